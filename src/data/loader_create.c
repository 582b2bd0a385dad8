/* Checking the options of a loader, and its memory. */
#include <math.h>

#include "src/base/counts.h"
#include "src/base/options.h"
#include "src/data/loader.h"
#include "tow/group.h"

enum {
    DEFAULT_PREFETCH = 2,
    MOST_PREFETCH = 1 << 16
};

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* The part of each batch that a rank reads. */
static tow_status check_part(tow_context *ctx, const tow_loader_options *o)
{
    const int ranks = o->ranks == 0 ? 1 : o->ranks, groups = o->row_groups == 0 && ranks == 1 ? 1 : o->row_groups;
    int begin, end;
    if (o->ranks < 0 || o->rank < 0 || o->rank >= ranks)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected .rank from 0 to below .ranks, found %d of %d", o->rank,
                         o->ranks);
    if (tow_group_rows(o->rank, ranks, groups, &begin, &end) != TOW_OK)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "expected .row_groups to be a power of two from .ranks to 65536, found %d for %d ranks",
                         o->row_groups, ranks);
    if (o->batch % groups == 0) return TOW_OK;
    return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                     "expected .row_groups that divide the rows of .batch evenly, found %d of %lld rows", groups,
                     (long long)o->batch);
}

static tow_status check_numbers(tow_context *ctx, const tow_loader_options *o)
{
    tow_status status = tow__check_count(ctx, "tow_loader_create", ".n_fields", o->n_fields);
    if (!status) status = tow__check_count(ctx, "tow_loader_create", ".n_outputs", o->n_outputs);
    if (status) return status;
    if (o->n_fields == 0 || !o->fields)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected at least one field, found %s",
                         o->n_fields > 0 ? "NULL" : "none");
    if (o->batch < 1)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected .batch of at least 1, found %lld", (long long)o->batch);
    const int64_t shards = o->shards == 0 ? 1 : o->shards;
    if (shards < 1 || o->shard < 0 || o->shard >= shards)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected .shard from 0 to below .shards, found %lld of %lld",
                         (long long)o->shard, (long long)shards);
    const tow_status status_of_part = check_part(ctx, o);
    if (status_of_part) return status_of_part;
    if (o->epochs < 0 || o->prefetch < 0 || o->prefetch > MOST_PREFETCH)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "expected .epochs of at least 0 and .prefetch from 0 to %d, found %lld and %d", MOST_PREFETCH,
                         (long long)o->epochs, o->prefetch);
    if ((unsigned)o->order > TOW_ORDER_LANES || (o->order == TOW_ORDER_LANES && (o->shuffle || o->keep_last)))
        return tow__fail(
            ctx, TOW_INVALID_ARGUMENT,
            "expected an order of tow_row_order, TOW_ORDER_LANES without .shuffle and .keep_last, found %d",
            (int)o->order);
    const tow_row_split *s = &o->split;
    if (!(s->low >= 0 && s->high <= 1 && (s->low < s->high || (s->low == 0 && s->high == 0))))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected a split with 0 <= low < high <= 1, found %g to %g",
                         s->low, s->high);
    if (o->n_outputs > 0 && (!o->on_batch || !o->output_types || o->keep_last))
        return tow__fail(
            ctx, TOW_INVALID_ARGUMENT,
            "expected .output_types together with .on_batch, and without .keep_last: they are those of whole "
            "batches");
    return TOW_OK;
}

/* Rows of the split, of this shard, and batches. */
static tow_status count_rows(tow_loader *l, const tow_loader_options *o)
{
    const int64_t n = l->fields[0].source->rows;
    for (size_t i = 1; i < l->n_fields; i++)
        if (l->fields[i].source->rows != n)
            return tow__fail(l->ctx, TOW_INVALID_ARGUMENT,
                             "expected sources of equally many rows, found %lld in field 0 and %lld in field %zu",
                             (long long)n, (long long)l->fields[i].source->rows, i);
    const bool all = o->split.low == 0 && o->split.high == 0;
    l->source_rows = n;
    l->split_low = o->split.low;
    l->split_high = all ? 1 : o->split.high;
    l->split_first = (int64_t)floor(l->split_low * (double)n + 0.5);
    l->split_n = (l->split_high == 1 ? n : (int64_t)floor(l->split_high * (double)n + 0.5)) - l->split_first;
    l->split_in_order = all || o->split.in_order;
    l->split_seed = o->split.seed;
    l->split_order = tow__order_make(n, o->split.seed, UINT64_MAX);
    l->rows = l->split_n / l->shards;
    l->batches = o->keep_last ? (l->rows - 1) / l->batch + (l->rows > 0) : l->rows / l->batch;
    l->last_rows = o->keep_last && l->batches > 0 ? l->rows - (l->batches - 1) * l->batch : l->batch;
    if (o->order == TOW_ORDER_LANES || !o->keep_last) l->rows = l->batches * l->batch;
    if (l->epochs > 0 && l->batches > INT64_MAX / l->epochs)
        return tow__fail(l->ctx, TOW_INVALID_ARGUMENT,
                         "expected fewer than 2^63 batches in all, found %lld epochs of %lld", (long long)l->epochs,
                         (long long)l->batches);
    if (l->batches > 0) return TOW_OK;
    return tow__fail(
        l->ctx, TOW_INVALID_ARGUMENT,
        "expected at least a batch of %lld rows, found %lld rows of %lld in this split and shard; use smaller "
        "batches or .keep_last",
        (long long)l->batch, (long long)(l->split_n / l->shards), (long long)n);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static tow_status make_slot(tow_loader *l, tow__batch_slot *slot)
{
    tow_status status = TOW_OK;
    int64_t first, rows, last_first, last_end;
    slot->fields = tow__arena_alloc(&l->memory, l->n_fields, sizeof *slot->fields);
    slot->outputs = tow__arena_alloc(&l->memory, l->n_outputs, sizeof *slot->outputs);
    slot->last = tow__arena_alloc(&l->memory, l->n_fields, sizeof *slot->last);
    if (!slot->fields || !slot->outputs || !slot->last) return TOW_OUT_OF_MEMORY;
    tow_loader_part(l, &first, &rows);
    tow__loader_part(l, l->last_rows, &last_first, &last_end);
    for (size_t i = 0; i < l->n_fields; i++) {
        tow_type type = l->fields[i].row;
        memmove(type.dims + 1, type.dims, (size_t)type.rank * sizeof *type.dims);
        type.rank++;
        type.dims[0] = rows;
        TRY(tow_array_create(l->ctx, type, &slot->fields[i]));
        type.dims[0] = last_end - last_first;
        if (l->last_rows < l->batch) TRY(tow__array_view(l->ctx, slot->fields[i], 0, type, &slot->last[i]));
    }
    for (size_t i = 0; i < l->n_outputs; i++) TRY(tow_array_create(l->ctx, l->output_types[i], &slot->outputs[i]));
done:
    return status;
}

static tow_status make_memory(tow_loader *l, const tow_loader_options *o)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < l->n_fields; i++) {
        const size_t bytes = tow__field_scratch(&l->fields[i]);
        if (bytes > l->scratch_bytes) l->scratch_bytes = bytes;
    }
    if (l->scratch_bytes > 0 && !(l->scratch = tow__alloc_aligned(l->ctx, l->scratch_bytes))) return TOW_OUT_OF_MEMORY;
    l->output_types = tow__arena_copy(&l->memory, o->output_types, l->n_outputs, sizeof *l->output_types);
    if (!l->output_types) return TOW_OUT_OF_MEMORY;
    l->synchronous = o->no_thread;
    l->n_slots = o->no_thread ? 1 : 1 + (size_t)(o->prefetch == 0 ? DEFAULT_PREFETCH : o->prefetch);
    l->slots = tow__arena_alloc(&l->memory, l->n_slots, sizeof *l->slots);
    if (!l->slots) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < l->n_slots; i++) TRY(make_slot(l, &l->slots[i]));
done:
    return status;
}

static tow_status make_fields(tow_loader *l, const tow_loader_options *o)
{
    tow__field *fields = tow__arena_alloc(&l->memory, o->n_fields, sizeof *fields);
    tow_status status = TOW_OK;
    if (!fields) return TOW_OUT_OF_MEMORY;
    l->fields = fields;
    while (l->n_fields < o->n_fields && status == TOW_OK) {
        l->n_fields++; /* also one that is made in part is freed */
        status = tow__field_create(l->ctx, &o->fields[l->n_fields - 1], l->n_fields - 1, &fields[l->n_fields - 1]);
    }
    return status;
}

tow_status tow_loader_create(tow_context *context, const tow_loader_options *options, tow_loader **loader)
{
    if (loader) *loader = NULL;
    if (!context || !options || !loader)
        return tow__missing(context, __func__, "a context, options and a place for the loader");
    tow_loader_options own;
    if (!TOW__OPTIONS_TAKE(context, tow_loader_options, options, &own)) return TOW_INVALID_ARGUMENT;
    const tow_loader_options *o = options;
    tow_status status = check_numbers(context, o);
    if (status != TOW_OK) return status;
    tow_loader *l = tow__alloc(context, 1, sizeof *l);
    if (!l) return TOW_OUT_OF_MEMORY;
    *l = (tow_loader){.ctx = context,
                      .n_outputs = o->n_outputs,
                      .shuffle = o->shuffle,
                      .order = o->order,
                      .seed = o->seed,
                      .batch = o->batch,
                      .shard = o->shard,
                      .shards = o->shards == 0 ? 1 : o->shards,
                      .epochs = o->epochs,
                      .row_groups = o->row_groups == 0 ? 1 : o->row_groups,
                      .transform = o->on_batch,
                      .user = o->user};
    tow__arena_init(&l->memory, context);
    TRY(tow_group_rows(o->rank, o->ranks == 0 ? 1 : o->ranks, l->row_groups, &l->first_group, &l->end_group));
    TRY(make_fields(l, o));
    TRY(count_rows(l, o));
    TRY(make_memory(l, o));
    TRY(tow__loader_begin(l));
    *loader = l;
    return TOW_OK;
done:
    tow_loader_free(l);
    return status;
}

void tow_loader_free(tow_loader *l)
{
    if (!l) return;
    tow__loader_end(l);
    for (size_t i = 0; l->slots && i < l->n_slots; i++) {
        const tow__batch_slot *slot = &l->slots[i];
        for (size_t f = 0; slot->fields && f < l->n_fields; f++) tow_array_release(slot->fields[f]);
        for (size_t f = 0; slot->last && f < l->n_fields; f++) tow_array_release(slot->last[f]);
        for (size_t f = 0; slot->outputs && f < l->n_outputs; f++) tow_array_release(slot->outputs[f]);
    }
    for (size_t i = 0; i < l->n_fields; i++) tow__field_free(l->ctx, &l->fields[i]);
    if (l->scratch) tow__free_aligned(l->ctx, l->scratch, l->scratch_bytes);
    tow__arena_free(&l->memory);
    tow__free(l->ctx, l, 1, sizeof *l);
}

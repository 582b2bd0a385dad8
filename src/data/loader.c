/* Loaders: batch number p is made of rows that are a function of the options and of p alone. */
#include "src/data/loader.h"

#include <stdio.h>

#include "src/base/arithmetic.h"
#include "src/base/keys.h"

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The row at place i of the split. */
static int64_t row_of_split(const tow_loader *l, int64_t i)
{
    return l->split_in_order ? l->split_first + i : tow__order_at(&l->split_order, l->split_first + i);
}

/* Place i of an epoch of this shard: every shards-th one of all. */
static int64_t row_at(const tow_loader *l, const tow__order *epoch, int64_t i)
{
    if (l->order == TOW_ORDER_LANES && !l->shuffle) {
        const int64_t lane = i % l->batch, at = i / l->batch;
        return row_of_split(l, l->shard + l->shards * (lane * l->batches + at));
    }
    const int64_t place = l->shard + l->shards * i;
    return row_of_split(l, l->shuffle ? tow__order_at(epoch, place) : place);
}

static tow__order order_of_epoch(const tow_loader *l, uint64_t epoch)
{
    return tow__order_make(l->split_n, l->seed, epoch);
}

int64_t tow_loader_row(const tow_loader *loader, uint64_t epoch, int64_t index)
{
    const tow__order order = order_of_epoch(loader, epoch);
    return index >= 0 && index < loader->rows ? row_at(loader, &order, index) : -1;
}

/* Rows of a batch of n rows before group g: n g / row_groups, without overflow. */
static int64_t rows_before(const tow_loader *l, int64_t n, int g)
{
    return n / l->row_groups * g + n % l->row_groups * g / l->row_groups;
}

void tow__loader_part(const tow_loader *l, int64_t rows, int64_t *first, int64_t *end)
{
    *first = rows_before(l, rows, l->first_group);
    *end = rows_before(l, rows, l->end_group);
}

void tow_loader_part(const tow_loader *loader, int64_t *first, int64_t *rows)
{
    int64_t end;
    tow__loader_part(loader, loader->batch, first, &end);
    *rows = end - *first;
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static tow__key batch_key(const tow_loader *l, uint64_t epoch, uint64_t index)
{
    const tow__key shard = tow__key_fold_in(tow__key_from_seed(l->seed), (uint32_t)l->shard);
    return tow__key_fold_in(tow__key_fold_in(shard, (uint32_t)epoch), (uint32_t)index);
}

/* first_row, whole_rows: as in tow_batch. */
static void run_transform(tow_loader *l, uint64_t position, tow__batch_slot *slot, int64_t first_row,
                          int64_t whole_rows)
{
    char text[512] = "";
    tow_batch batch = {.inputs = slot->is_last ? slot->last : slot->fields,
                       .outputs = l->n_outputs > 0 ? slot->outputs : NULL,
                       .position = position,
                       .user = l->user,
                       .error = text,
                       .error_size = sizeof text,
                       .first_row = first_row,
                       .whole_rows = whole_rows};
    const tow__key key = batch_key(l, position / (uint64_t)l->batches, position % (uint64_t)l->batches);
    memcpy(batch.key, key.k, sizeof batch.key);
    const tow_status status = l->transform(&batch);
    text[sizeof text - 1] = '\0';
    if (status != TOW_OK)
        tow__row_fail(&slot->error, status, "the transform: %s", text[0] != '\0' ? text : tow_status_text(status));
}

void tow__loader_fill(tow_loader *l, uint64_t position, tow__batch_slot *slot)
{
    TOW__ARITHMETIC(false);
    const uint64_t epoch = l->batches > 0 ? position / (uint64_t)l->batches : 0;
    slot->error = (tow__row_error){0};
    slot->end = l->batches == 0 || (l->epochs > 0 && epoch >= (uint64_t)l->epochs);
    if (slot->end) return;
    const int64_t index = (int64_t)(position % (uint64_t)l->batches);
    const tow__order order = order_of_epoch(l, epoch);
    slot->is_last = index == l->batches - 1 && l->last_rows < l->batch;
    const int64_t n = slot->is_last ? l->last_rows : l->batch;
    int64_t first, end;
    tow__loader_part(l, n, &first, &end);
    for (int64_t i = 0; i < end - first && slot->error.status == TOW_OK; i++) {
        const int64_t row = row_at(l, &order, index * l->batch + first + i);
        for (size_t f = 0; f < l->n_fields && slot->error.status == TOW_OK; f++)
            tow__field_read(&l->fields[f], f, row, i, tow_array_data(slot->fields[f]), l->scratch, &slot->error);
    }
    if (slot->error.status == TOW_OK && l->transform) run_transform(l, position, slot, first, n);
}

tow_status tow_loader_next(tow_loader *loader, tow_array *const **batch)
{
    if (batch) *batch = NULL;
    if (!loader || !batch)
        return tow__missing(loader ? loader->ctx : NULL, __func__, "a loader and a place for the batch");
    tow__batch_slot *slot = tow__loader_take(loader);
    if (slot->error.status != TOW_OK)
        return tow__fail(loader->ctx, slot->error.status, "batch %llu: %s", (unsigned long long)loader->position,
                         slot->error.text);
    if (slot->end) return TOW_OK;
    loader->position++;
    *batch = loader->n_outputs > 0 ? slot->outputs : slot->is_last ? slot->last : slot->fields;
    return TOW_OK;
}

uint64_t tow_loader_position(const tow_loader *loader) { return loader->position; }

tow_status tow_loader_seek(tow_loader *loader, uint64_t position)
{
    if (!loader) return tow__missing(NULL, __func__, "a loader");
    if (loader->epochs > 0 &&
        position / (loader->batches > 0 ? (uint64_t)loader->batches : 1) > (uint64_t)loader->epochs - 1 &&
        position != (uint64_t)loader->epochs * (uint64_t)loader->batches)
        return tow__fail(loader->ctx, TOW_INVALID_ARGUMENT,
                         "expected a position from 0 to %lld, as there are %lld epochs of %lld batches, found %llu",
                         (long long)(loader->epochs * loader->batches), (long long)loader->epochs,
                         (long long)loader->batches, (unsigned long long)position);
    tow__loader_stop(loader);
    loader->position = position;
    return TOW_OK;
}

int64_t tow_loader_batch_count(const tow_loader *loader) { return loader->batches; }
int64_t tow_loader_row_count(const tow_loader *loader) { return loader->rows; }

size_t tow_loader_array_count(const tow_loader *loader)
{
    return loader->n_outputs > 0 ? loader->n_outputs : loader->n_fields;
}

tow_type tow_loader_type(const tow_loader *loader, size_t index)
{
    if (index >= tow_loader_array_count(loader)) return tow_make_type(TOW_F32, -1, NULL);
    return tow_array_type(loader->n_outputs > 0 ? loader->slots[0].outputs[index] : loader->slots[0].fields[index]);
}

size_t tow_loader_describe(const tow_loader *l, char *text, size_t size)
{
    char split[96] = "all", shard[64] = "";
    if (l->split_n != l->source_rows)
        snprintf(split, sizeof split, "%s %.6g to %.6g seed %llu", l->split_in_order ? "in order" : "split",
                 l->split_low, l->split_high, (unsigned long long)l->split_seed);
    if (l->shards > 1) snprintf(shard, sizeof shard, ", shard %lld of %lld", (long long)l->shard, (long long)l->shards);
    const int n = snprintf(text, size, "%lld rows of %lld (%s), batch %lld, %s, seed %llu%s", (long long)l->rows,
                           (long long)l->source_rows, split, (long long)l->batch,
                           l->shuffle                    ? "shuffled"
                           : l->order == TOW_ORDER_LANES ? "lanes"
                                                         : "in order",
                           (unsigned long long)l->seed, shard);
    return n > 0 ? (size_t)n : 0;
}

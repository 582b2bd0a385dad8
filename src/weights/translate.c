/* Rewrites a file of one program as one of another, through the parameters that both mappings name: a parameter exists
 * only while a tensor is made of it. */
#include "src/io/gguf.h"
#include "src/weights/mapping.h"

typedef struct translation {
    tow__links from, to;
    void *ours, *theirs; /* [n_ours], [n_theirs] bytes: for the largest parameter and the largest tensor */
    size_t n_ours, n_theirs, last;
} translation;

/* Reads a parameter into an array of its own. */
static tow_status read_parameter(const translation *t, size_t index)
{
    tow_tensors *set = t->from.ours;
    const void *data;
    tow_status status = TOW_OK;
    if (set->items[index].array) return TOW_OK;
    TRY(tow__links_our_data(&t->from, index, t->ours, &data));
    TRY(tow_array_from_data(set->ctx, set->items[index].type, data, &set->items[index].array));
done:
    return status;
}

/* Drops what the tensor before was made of. */
static void forget_last(translation *t)
{
    if (t->last == SIZE_MAX) return;
    const tow__link *link = &t->to.links[t->last];
    for (int p = 0; p < link->rule->n_ours; p++) {
        tow__tensor *ours = &t->from.ours->items[link->ours[p]];
        tow_array_release(ours->array);
        ours->array = NULL;
        tow__tensors_forget(t->from.theirs, t->from.links[t->from.by_ours[link->ours[p]] - 1].theirs);
    }
}

static tow_status next_data(void *user, size_t index, const void **data)
{
    translation *t = user;
    const tow__link *link = &t->to.links[index];
    tow_status status = TOW_OK;
    if (t->last != index) forget_last(t);
    t->last = index;
    for (int p = 0; p < link->rule->n_ours; p++) TRY(read_parameter(t, link->ours[p]));
    TRY(tow__links_their_data(&t->to, index, t->theirs, data));
done:
    return status;
}

static tow_status write(translation *t, const char *path)
{
    tow_status status = TOW_OK;
    t->n_ours = tow__largest_bytes(t->from.ours);
    t->n_theirs = tow__largest_bytes(t->to.theirs);
    t->last = SIZE_MAX;
    t->ours = tow__alloc_raw(t->to.ctx, t->n_ours);
    t->theirs = tow__alloc_raw(t->to.ctx, t->n_theirs);
    if (!t->ours || !t->theirs) TRY(TOW_OUT_OF_MEMORY);
    TRY(tow__weights_write(&t->to, path, t->to.theirs, (tow__tensor_data){.get = next_data, .user = t}));
done:
    if (t->ours) tow__free_aligned(t->to.ctx, t->ours, t->n_ours);
    if (t->theirs) tow__free_aligned(t->to.ctx, t->theirs, t->n_theirs);
    return status;
}

/* Reads the headers, and makes the sets of parameters and of tensors to write, without data. */
static tow_status link_both(translation *t, const char *from, tow_tensors **read)
{
    tow_context *ctx = t->from.ctx;
    const bool strict = !t->from.options->partial;
    tow_status status = TOW_OK;
    t->from.where = t->to.where = from;
    TRY(tow__weights_open(ctx, from, read));
    t->from.theirs = *read;
    TRY(tow_tensors_create(ctx, &t->from.ours));
    t->to.ours = t->from.ours;
    TRY(tow_tensors_create(ctx, &t->to.theirs));
    TRY(tow__links_make_ours(&t->from));
    if (strict) TRY(tow__report_strict(t->from.report, ctx, from, false));
    TRY(tow__links_make_theirs(&t->to));
    if (strict) TRY(tow__report_strict(t->to.report, ctx, from, true));
done:
    return status;
}

tow_status tow_weight_mapping_translate_file(tow_context *context, const tow_weight_mapping *from_mapping,
                                             const char *from, const tow_weight_mapping *to_mapping, const char *to,
                                             const tow_weight_mapping_options *options,
                                             tow_weight_mapping_report **report)
{
    if (report) *report = NULL;
    if (!context || !from_mapping || !from || !to_mapping || !to)
        return tow__missing(context, __func__, "a context, two mappings and two paths");
    translation t = {.last = SIZE_MAX};
    tow_weight_mapping_options reading;
    tow_tensors *read = NULL;
    tow_status status = tow__links_begin(&t.to, context, to_mapping, options, NULL);
    if (status != TOW_OK) return status;
    reading = *t.to.options;
    reading.convert = false; /* elements are converted once, when they are written */
    status = tow__links_begin(&t.from, context, from_mapping, &reading, report);
    if (status != TOW_OK) {
        tow_weight_mapping_report_free(t.to.report);
        return status;
    }
    TRY(link_both(&t, from, &read));
    TRY(write(&t, to));
done:
    tow_tensors_free(t.from.ours);
    tow_tensors_free(t.to.theirs);
    tow_tensors_free(read);
    tow_weight_mapping_report_free(t.to.report);
    tow__links_free(&t.to);
    return tow__links_end(&t.from, status, report);
}

/* Loading and writing parameters as another program's tensors, and rewriting its files without a model. */
#include <inttypes.h>
#include <sys/stat.h>

#include "src/base/options.h"
#include "src/io/file_calls.h"
#include "src/params/params.h"
#include "src/weights/mapping.h"

static const tow_weight_mapping_options no_options = TOW_WEIGHT_MAPPING_OPTIONS();

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

static tow_status check_options(tow_context *ctx, const tow_weight_mapping_options *o)
{
    if (o->convert && o->dtype && tow_dtype_size(o->dtype) == 0)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "tow_weight_mapping_options: expected an element type as .dtype, found %d", (int)o->dtype);
    if (o->n_axes > 0 && !o->axes) return tow__missing(ctx, "tow_weight_mapping_options", "%zu .axes", o->n_axes);
    for (size_t i = 0; i < o->n_axes; i++)
        if (!o->axes[i].name || o->axes[i].size <= 0)
            return tow__fail(
                ctx, TOW_INVALID_ARGUMENT,
                "tow_weight_mapping_options: expected .axes with names and positive sizes, found '%.100s' of %" PRId64,
                o->axes[i].name ? o->axes[i].name : "no name", o->axes[i].size);
    return TOW_OK;
}

static tow_status begin(tow__links *l, tow_context *ctx, const tow_weight_mapping *mapping,
                        const tow_weight_mapping_options *options, tow_weight_mapping_report **report)
{
    if (report) *report = NULL;
    *l = (tow__links){.ctx = ctx, .mapping = mapping, .options = options ? options : &no_options};
    if (!TOW__OPTIONS_TAKE(ctx, tow_weight_mapping_options, l->options, &l->own_options)) return TOW_INVALID_ARGUMENT;
    l->n_axes = l->options->n_axes;
    l->axes = l->options->axes;
    const tow_status status = check_options(ctx, l->options);
    return status == TOW_OK ? tow__report_create(ctx, &l->report) : status;
}

/* Gives the report away, also after an error of what is missing or unused. */
static tow_status end(tow__links *l, tow_status status, tow_weight_mapping_report **report)
{
    tow__links_free(l);
    if (report && l->report && (status == TOW_OK || status == TOW_NOT_FOUND))
        *report = l->report;
    else
        tow_weight_mapping_report_free(l->report);
    return status;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* Everything that may fail: reading data, checksums, integers that do not fit. */
static tow_status prepare(const tow__links *l)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < l->count; i++) {
        const tow__link *link = &l->links[i];
        TRY(tow__tensors_load(l->theirs, link->theirs));
        for (int p = 0; p < link->rule->n_ours; p++)
            TRY(tow__tensors_check(l->theirs, link->theirs, l->ours->items[link->ours[p]].type.dtype));
    }
done:
    return status;
}

static void copy_all(const tow__links *l)
{
    for (size_t i = 0; i < l->count; i++) {
        const tow__link *link = &l->links[i];
        const tow__tensor *theirs = &l->theirs->items[link->theirs];
        for (int p = 0; p < link->rule->n_ours; p++) {
            const tow__tensor *ours = &l->ours->items[link->ours[p]];
            tow__layout_gather(&link->layouts[p], tow_type_element_count(ours->type), ours->type.dtype,
                               tow_array_data(ours->array), theirs->type.dtype, tow_array_data(theirs->array));
        }
    }
}

static tow_status load(const tow_weight_mapping *mapping, tow_params *params, const tow_tensors *tensors,
                       const char *where, const tow_weight_mapping_options *options, tow_weight_mapping_report **report)
{
    tow__links l;
    tow_tensors *ours = NULL;
    tow_status status = begin(&l, params->ctx, mapping, options, report);
    if (status != TOW_OK) return status;
    l.where = where;
    l.theirs = (tow_tensors *)(uintptr_t)tensors; /* whose data are read, and nothing is added */
    TRY(tow_tensors_create(params->ctx, &ours));
    l.ours = ours;
    TRY(tow__params_share(params, "", ours));
    TRY(tow__links_match(&l));
    if (!l.options->partial) TRY(tow__report_strict(l.report, params->ctx, where, false));
    TRY(prepare(&l));
    copy_all(&l);
    tow__params_put_copies(params, ours);
done:
    tow_tensors_free(ours);
    return end(&l, status, report);
}

tow_status tow_weight_mapping_load(const tow_weight_mapping *mapping, tow_params *params, const tow_tensors *tensors,
                                   const tow_weight_mapping_options *options, tow_weight_mapping_report **report)
{
    if (report) *report = NULL;
    if (!mapping || !params || !tensors)
        return tow__missing(params ? params->ctx : NULL, __func__, "a mapping, parameters and a set of tensors");
    return load(mapping, params, tensors, NULL, options, report);
}

/* A directory stands for the model in it. */
static tow_status open_model(tow_context *ctx, const char *path, tow_tensors **tensors)
{
    struct stat info;
    int result;
    TOW__RETRY(result, tow__calls(ctx)->stat(path, &info));
    if (result != 0 || !S_ISDIR(info.st_mode)) return tow_safetensors_mmap(ctx, path, tensors);
    tow__string file;
    tow__string_init(&file, ctx);
    tow__string_add(&file, "%s/model.safetensors", path);
    const tow_status status = file.failed ? TOW_OUT_OF_MEMORY : tow_safetensors_mmap(ctx, file.text, tensors);
    tow__string_free(&file);
    return status;
}

tow_status tow_weight_mapping_load_file(const tow_weight_mapping *mapping, tow_params *params, const char *path,
                                        const tow_weight_mapping_options *options, tow_weight_mapping_report **report)
{
    if (report) *report = NULL;
    if (!mapping || !params || !path)
        return tow__missing(params ? params->ctx : NULL, __func__, "a mapping, parameters and the path of a file");
    tow_weight_mapping_options own;
    if (!TOW__OPTIONS_TAKE(params->ctx, tow_weight_mapping_options, options, &own)) return TOW_INVALID_ARGUMENT;
    tow_tensors *tensors = NULL;
    tow_status status = open_model(params->ctx, path, &tensors);
    if (status == TOW_OK) status = load(mapping, params, tensors, path, options, report);
    tow_tensors_free(tensors);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The bytes of one tensor at a time. */
typedef struct source {
    const tow__links *links;
    bool reverse; /* theirs are written, link i is tensor i; else ours */
    void *buffer; /* [bytes] for the largest tensor that needs a place */
    size_t bytes;
} source;

static const void *data_of(const tow_tensors *set, size_t index) { return tow_array_data(set->items[index].array); }

static tow_status their_data(const source *s, size_t index, const void **data)
{
    const tow__link *link = &s->links->links[index];
    const tow_tensors *ours = s->links->ours;
    const tow_type type = s->links->theirs->items[index].type;
    tow_status status = TOW_OK;
    for (int p = 0; p < link->rule->n_ours; p++) TRY(tow__tensors_load(ours, link->ours[p]));
    *data = data_of(ours, link->ours[0]);
    if (link->layouts[0].whole && ours->items[link->ours[0]].type.dtype == type.dtype) return TOW_OK;
    for (int p = 0; p < link->rule->n_ours; p++) {
        const tow_type part = ours->items[link->ours[p]].type;
        tow__layout_scatter(&link->layouts[p], tow_type_element_count(part), type.dtype, s->buffer, part.dtype,
                            data_of(ours, link->ours[p]));
    }
    *data = s->buffer;
done:
    return status;
}

static tow_status our_data(const source *s, size_t index, const void **data)
{
    const tow__link *link = &s->links->links[s->links->by_ours[index] - 1];
    const tow_tensors *theirs = s->links->theirs;
    const tow_type type = s->links->ours->items[index].type, from = theirs->items[link->theirs].type;
    int part = 0;
    const tow_status status = tow__tensors_load(theirs, link->theirs);
    if (status != TOW_OK) return status;
    *data = data_of(theirs, link->theirs);
    if (link->layouts[0].whole && from.dtype == type.dtype) return TOW_OK;
    while (link->ours[part] != index) part++;
    tow__layout_gather(&link->layouts[part], tow_type_element_count(type), type.dtype, s->buffer, from.dtype, *data);
    *data = s->buffer;
    return TOW_OK;
}

static tow_status next_data(void *user, size_t index, const void **data)
{
    const source *s = user;
    return s->reverse ? their_data(s, index, data) : our_data(s, index, data);
}

static tow_status write(const tow__links *l, const char *path, bool reverse)
{
    const tow_tensors *set = reverse ? l->theirs : l->ours;
    source s = {.links = l, .reverse = reverse};
    for (size_t i = 0; i < set->count; i++) {
        const size_t bytes = tow_type_bytes(set->items[i].type);
        if (bytes > s.bytes) s.bytes = bytes;
    }
    s.buffer = tow__alloc_raw(l->ctx, s.bytes);
    if (!s.buffer) return TOW_OUT_OF_MEMORY;
    const tow__tensor_data data = {.get = next_data, .user = &s};
    const tow_status status = l->options->max_file_bytes > 0
                                  ? tow__safetensors_write_sharded(path, set, data, l->options->max_file_bytes)
                                  : tow__safetensors_write_file(path, set, data);
    tow__free_aligned(l->ctx, s.buffer, s.bytes);
    return status;
}

/* Links `ours` with tensors that are made, and writes these. */
static tow_status write_theirs(tow__links *l, const char *path)
{
    tow_status status = TOW_OK;
    TRY(tow_tensors_create(l->ctx, &l->theirs));
    TRY(tow_tensors_set_metadata(l->theirs, "format", "pt"));
    TRY(tow__links_make_theirs(l));
    if (!l->options->partial) TRY(tow__report_strict(l->report, l->ctx, l->where, true));
    TRY(write(l, path, true));
done:
    tow_tensors_free(l->theirs);
    return status;
}

tow_status tow_weight_mapping_save_file(const tow_weight_mapping *mapping, const tow_params *params, const char *path,
                                        const tow_weight_mapping_options *options, tow_weight_mapping_report **report)
{
    if (report) *report = NULL;
    if (!mapping || !params || !path)
        return tow__missing(params ? params->ctx : NULL, __func__, "a mapping, parameters and the path of a file");
    tow__links l;
    tow_tensors *ours = NULL;
    tow_status status = begin(&l, params->ctx, mapping, options, report);
    if (status != TOW_OK) return status;
    TRY(tow_tensors_create(params->ctx, &ours));
    l.ours = ours;
    TRY(tow__params_share(params, "", ours));
    TRY(write_theirs(&l, path));
done:
    tow_tensors_free(ours);
    return end(&l, status, report);
}

/* ---- without a model --------------------------------------------------------------------------------------------- */

static tow_status write_ours(tow__links *l, const char *path)
{
    tow_status status = TOW_OK;
    TRY(tow_tensors_create(l->ctx, &l->ours));
    TRY(tow__links_make_ours(l));
    if (!l->options->partial) TRY(tow__report_strict(l->report, l->ctx, l->where, false));
    TRY(write(l, path, false));
done:
    tow_tensors_free(l->ours);
    return status;
}

tow_status tow_weight_mapping_convert_file(tow_context *context, const tow_weight_mapping *mapping, const char *from,
                                           const char *to, bool reverse, const tow_weight_mapping_options *options,
                                           tow_weight_mapping_report **report)
{
    if (report) *report = NULL;
    if (!mapping || !context || !from || !to)
        return tow__missing(context, __func__, "a context, a mapping and two paths");
    tow__links l;
    tow_tensors *read = NULL;
    tow_status status = begin(&l, context, mapping, options, report);
    if (status != TOW_OK) return status;
    l.where = from;
    TRY(open_model(context, from, &read));
    *(reverse ? &l.ours : &l.theirs) = read;
    TRY(reverse ? write_theirs(&l, to) : write_ours(&l, to));
done:
    tow_tensors_free(read);
    return end(&l, status, report);
}

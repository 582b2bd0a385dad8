/* Loading and writing parameters as another program's tensors, and rewriting its files without a model. */
#include <inttypes.h>
#include <sys/stat.h>

#include "src/base/dtypes.h"
#include "src/base/options.h"
#include "src/io/file_calls.h"
#include "src/io/gguf.h"
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

tow_status tow__links_begin(tow__links *l, tow_context *ctx, const tow_weight_mapping *mapping,
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

tow_status tow__links_end(tow__links *l, tow_status status, tow_weight_mapping_report **report)
{
    tow__links_free(l);
    if (report && l->report && (status == TOW_OK || status == TOW_NOT_FOUND))
        *report = l->report;
    else
        tow_weight_mapping_report_free(l->report);
    return status;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* Parameters while they are loaded. */
typedef struct load_state {
    tow__links links;
    tow_params *params;
    bool own_file; /* the set is that of a file, which nobody else has */
    void *buffer;  /* [bytes] for a tensor that is decoded while it is copied */
    size_t buffer_bytes;
} load_state;

/* The entry of a parameter that may get another array: one that is no layer of a stack. */
static bool find_entry(const load_state *l, const tow__tensor *ours, uint32_t *entry)
{
    *entry = tow__params_index(l->params, ours->name, 0);
    return *entry != TOW__NO_NAME;
}

/* The type of the elements that are copied: the tensor's, or that of blocks that both file and parameter have. */
static tow_dtype dtype_copied(const tow__links *l, const tow__link *link)
{
    const tow_dtype ours = l->ours->items[link->ours[0]].type.dtype;
    const bool same = tow__is_blocks(ours) && tow__tensors_mapped(l->theirs, link->theirs, ours);
    return same ? ours : l->theirs->items[link->theirs].type.dtype;
}

/* True if the mapped file has the elements of part p in their order and type. */
static bool is_in_place(const load_state *l, const tow__link *link, int p)
{
    const tow__tensor *ours = &l->links.ours->items[link->ours[p]];
    uint32_t entry;
    return l->own_file && l->links.options->in_place && tow__layout_contiguous(&link->layouts[p]) &&
           tow__tensors_mapped(l->links.theirs, link->theirs, ours->type.dtype) && find_entry(l, ours, &entry);
}

/* Everything that may fail: reading data, checksums, integers that do not fit, memory. */
static tow_status prepare(load_state *state)
{
    const tow__links *l = &state->links;
    tow_status status = TOW_OK;
    for (size_t i = 0; i < l->count; i++) {
        const tow__link *link = &l->links[i];
        const tow__tensor *theirs = &l->theirs->items[link->theirs];
        const size_t bytes = tow_type_bytes(theirs->type);
        const bool view = theirs->array || tow__tensors_have_view(l->theirs, link->theirs);
        if (view) TRY(tow__tensors_load(l->theirs, link->theirs));
        if (!view && dtype_copied(l, link) == theirs->type.dtype && bytes > state->buffer_bytes)
            state->buffer_bytes = bytes;
        for (int p = 0; p < link->rule->n_ours; p++) {
            const tow_dtype dtype = l->ours->items[link->ours[p]].type.dtype;
            TRY(tow__tensors_check(l->theirs, link->theirs, tow__is_blocks(dtype) ? theirs->type.dtype : dtype));
        }
        if (state->own_file) tow__tensors_drop_pages(l->theirs, link->theirs); /* that a checksum was made of */
    }
    if (state->buffer_bytes > 0) {
        state->buffer = tow__alloc_raw(l->ctx, state->buffer_bytes);
        if (!state->buffer) return TOW_OUT_OF_MEMORY;
    }
done:
    return status;
}

/* The elements of a tensor to copy: in place, or decoded into the buffer. */
static tow_status find_data(const load_state *state, const tow__link *link, const void **data)
{
    const tow__links *l = &state->links;
    const tow__tensor *theirs = &l->theirs->items[link->theirs];
    const tow_dtype dtype = dtype_copied(l, link);
    *data = dtype != theirs->type.dtype ? tow__tensors_mapped(l->theirs, link->theirs, dtype)
            : theirs->array             ? tow_array_data(theirs->array)
                                        : state->buffer;
    return *data != state->buffer || !state->buffer ? TOW_OK
                                                    : tow__tensors_copy(l->theirs, link->theirs, dtype, state->buffer);
}

/* The array in the file becomes the parameter's. */
static tow_status put_in_place(load_state *l, const tow__link *link, int p)
{
    tow__tensor *ours = &l->links.ours->items[link->ours[p]];
    const size_t offset = (size_t)link->layouts[p].offset * tow_dtype_size(ours->type.dtype);
    tow_array *array;
    uint32_t entry;
    if (!find_entry(l, ours, &entry)) return TOW_OK;
    const tow_status status = tow__tensors_view(l->links.theirs, link->theirs, offset, ours->type, &array);
    if (status != TOW_OK) return status;
    tow_array_release(l->params->arrays[entry]);
    l->params->arrays[entry] = array;
    tow_array_release(ours->array); /* the old one, which takes memory */
    ours->array = tow_array_retain(array);
    return TOW_OK;
}

/* Copies the parameters of one tensor, or puts them in place. Errors: those of the system. */
static tow_status fill_link(load_state *state, const tow__link *link)
{
    const tow__links *l = &state->links;
    const void *data = NULL;
    tow_status status = TOW_OK;
    for (int p = 0; p < link->rule->n_ours; p++) {
        const tow__tensor *ours = &l->ours->items[link->ours[p]];
        if (is_in_place(state, link, p)) {
            TRY(put_in_place(state, link, p));
            continue;
        }
        if (!data) TRY(find_data(state, link, &data));
        tow__layout_gather(&link->layouts[p], tow_type_element_count(ours->type), ours->type.dtype,
                           tow_array_data(ours->array), dtype_copied(l, link), data);
    }
    if (data && state->own_file) tow__tensors_drop_pages(l->theirs, link->theirs);
done:
    return status;
}

static tow_status copy_all(load_state *l)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < l->links.count; i++) TRY(fill_link(l, &l->links.links[i]));
done:
    return status;
}

static tow_status load(const tow_weight_mapping *mapping, tow_params *params, const tow_tensors *tensors,
                       const char *where, const tow_weight_mapping_options *options, tow_weight_mapping_report **report)
{
    load_state l = {.params = params, .own_file = where != NULL};
    tow_tensors *ours = NULL;
    tow_status status = tow__links_begin(&l.links, params->ctx, mapping, options, report);
    if (status != TOW_OK) return status;
    l.links.where = where;
    l.links.theirs = (tow_tensors *)(uintptr_t)tensors; /* whose data are read, and nothing is added */
    TRY(tow_tensors_create(params->ctx, &ours));
    l.links.ours = ours;
    TRY(tow__params_share(params, "", ours));
    TRY(tow__links_match(&l.links));
    if (!l.links.options->partial) TRY(tow__report_strict(l.links.report, params->ctx, where, false));
    TRY(prepare(&l));
    TRY(copy_all(&l));
    tow__params_put_copies(params, ours);
done:
    tow_tensors_free(ours);
    if (l.buffer) tow__free_aligned(params->ctx, l.buffer, l.buffer_bytes);
    return tow__links_end(&l.links, status, report);
}

tow_status tow_weight_mapping_load(const tow_weight_mapping *mapping, tow_params *params, const tow_tensors *tensors,
                                   const tow_weight_mapping_options *options, tow_weight_mapping_report **report)
{
    if (report) *report = NULL;
    if (!mapping || !params || !tensors)
        return tow__missing(params ? params->ctx : NULL, __func__, "a mapping, parameters and a set of tensors");
    return load(mapping, params, tensors, NULL, options, report);
}

/* A file of safetensors, or of GGUF. */
static tow_status open_file(tow_context *ctx, const char *path, tow_tensors **tensors)
{
    struct stat info;
    int result;
    bool is_gguf = false;
    TOW__RETRY(result, tow__calls(ctx)->stat(path, &info)); /* there may be an index in its place */
    const tow_status status = result == 0 ? tow__gguf_recognize(ctx, path, &is_gguf) : TOW_OK;
    if (status != TOW_OK) return status;
    return (is_gguf ? tow_gguf_mmap : tow_safetensors_mmap)(ctx, path, tensors);
}

tow_status tow__weights_open(tow_context *ctx, const char *path, tow_tensors **tensors)
{
    struct stat info;
    int result;
    TOW__RETRY(result, tow__calls(ctx)->stat(path, &info));
    if (result != 0 || !S_ISDIR(info.st_mode)) return open_file(ctx, path, tensors);
    tow__string file;
    tow__string_init(&file, ctx);
    tow__string_add(&file, "%s/model.safetensors", path);
    const tow_status status = file.failed ? TOW_OUT_OF_MEMORY : open_file(ctx, file.text, tensors);
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
    tow_status status = tow__weights_open(params->ctx, path, &tensors);
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
    size_t bytes, last;
} source;

static const void *data_of(const tow_tensors *set, size_t index) { return tow_array_data(set->items[index].array); }

tow_status tow__links_their_data(const tow__links *l, size_t index, void *buffer, const void **data)
{
    const tow__link *link = &l->links[index];
    const tow_tensors *ours = l->ours;
    const tow_type type = l->theirs->items[index].type;
    tow_status status = TOW_OK;
    for (int p = 0; p < link->rule->n_ours; p++) TRY(tow__tensors_load(ours, link->ours[p]));
    *data = data_of(ours, link->ours[0]);
    if (link->layouts[0].whole && ours->items[link->ours[0]].type.dtype == type.dtype) return TOW_OK;
    for (int p = 0; p < link->rule->n_ours; p++) {
        const tow_type part = ours->items[link->ours[p]].type;
        tow__layout_scatter(&link->layouts[p], tow_type_element_count(part), type.dtype, buffer, part.dtype,
                            data_of(ours, link->ours[p]));
    }
    *data = buffer;
done:
    return status;
}

tow_status tow__links_our_data(const tow__links *l, size_t index, void *buffer, const void **data)
{
    const tow__link *link = &l->links[l->by_ours[index] - 1];
    const tow_tensors *theirs = l->theirs;
    const tow_type type = l->ours->items[index].type, from = theirs->items[link->theirs].type;
    int part = 0;
    const tow_status status = tow__tensors_load(theirs, link->theirs);
    if (status != TOW_OK) return status;
    *data = data_of(theirs, link->theirs);
    if (link->layouts[0].whole && from.dtype == type.dtype) return TOW_OK;
    while (link->ours[part] != index) part++;
    tow__layout_gather(&link->layouts[part], tow_type_element_count(type), type.dtype, buffer, from.dtype, *data);
    *data = buffer;
    return TOW_OK;
}

static tow_status next_data(void *user, size_t index, const void **data)
{
    source *s = user;
    const tow__links *l = s->links;
    const size_t theirs = s->reverse ? SIZE_MAX : l->links[l->by_ours[index] - 1].theirs;
    if (!s->reverse && s->last != SIZE_MAX && s->last != theirs) tow__tensors_forget(l->theirs, s->last);
    s->last = theirs;
    return s->reverse ? tow__links_their_data(l, index, s->buffer, data)
                      : tow__links_our_data(l, index, s->buffer, data);
}

size_t tow__largest_bytes(const tow_tensors *set)
{
    size_t largest = 0;
    for (size_t i = 0; i < set->count; i++) {
        const size_t bytes = tow_type_bytes(set->items[i].type);
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

static bool is_gguf_path(const char *path)
{
    const size_t length = strlen(path), tail = sizeof ".gguf" - 1;
    return length >= tail && strcmp(path + length - tail, ".gguf") == 0;
}

/* The data of a set, and behind them those of the tensors of another one. */
typedef struct joined {
    tow__tensor_data data;
    size_t count; /* tensors of the first */
    const tow_tensors *more;
} joined;

static tow_status next_of_joined(void *user, size_t index, const void **data)
{
    const joined *j = user;
    if (index < j->count) return j->data.get(j->data.user, index, data);
    const tow_status status = tow__tensors_load(j->more, index - j->count);
    if (status == TOW_OK) *data = data_of(j->more, index - j->count);
    return status;
}

/* Adds the tensors, whose data the joined function gives. */
static tow_status add_tensors(const tow__links *l, tow_tensors *set, const tow_tensors *more)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; more && i < more->count; i++) {
        bool duplicate;
        TRY(tow__tensors_append(set, more->items[i].name, more->items[i].type, &duplicate));
        if (duplicate)
            TRY(tow__links_fail(l, TOW_INVALID_ARGUMENT, more->items[i].name,
                                "the set that .metadata is has a tensor of this name, and so has the mapping"));
    }
done:
    return status;
}

static tow_status set_metadata(const tow__links *l, const char *path, tow_tensors *set)
{
    const tow_tensors *from = l->options->metadata;
    tow_status status = TOW_OK;
    if (!from) return is_gguf_path(path) ? TOW_OK : tow_tensors_set_metadata(set, "format", "pt");
    for (size_t i = 0; i < from->n_metadata; i++)
        TRY(tow_tensors_set_metadata_value(set, from->metadata[i].key, from->metadata[i].value));
done:
    return status;
}

tow_status tow__weights_write(const tow__links *l, const char *path, tow_tensors *set, tow__tensor_data data)
{
    const uint64_t most = l->options->max_file_bytes;
    joined j = {data, set->count, l->options->metadata};
    if (j.more && j.more->count > 0) data = (tow__tensor_data){.get = next_of_joined, .user = &j};
    tow_status status = add_tensors(l, set, j.more);
    if (status == TOW_OK) status = set_metadata(l, path, set);
    if (status != TOW_OK) return status;
    if (is_gguf_path(path) && most > 0)
        return tow__fail(l->ctx, TOW_UNSUPPORTED, "%s: a GGUF file is one file; leave .max_file_bytes out", path);
    if (is_gguf_path(path)) return tow__gguf_write_file(path, set, data, l->options->gguf_type);
    return most > 0 ? tow__safetensors_write_sharded(path, set, data, most)
                    : tow__safetensors_write_file(path, set, data);
}

static tow_status write(const tow__links *l, const char *path, bool reverse)
{
    tow_tensors *set = reverse ? l->theirs : l->ours;
    source s = {.links = l, .reverse = reverse, .bytes = tow__largest_bytes(set), .last = SIZE_MAX};
    s.buffer = tow__alloc_raw(l->ctx, s.bytes);
    if (!s.buffer) return TOW_OUT_OF_MEMORY;
    const tow_status status = tow__weights_write(l, path, set, (tow__tensor_data){.get = next_data, .user = &s});
    tow__free_aligned(l->ctx, s.buffer, s.bytes);
    return status;
}

/* Links `ours` with tensors that are made, and writes these. */
static tow_status write_theirs(tow__links *l, const char *path)
{
    tow_status status = TOW_OK;
    TRY(tow_tensors_create(l->ctx, &l->theirs));
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
    tow_status status = tow__links_begin(&l, params->ctx, mapping, options, report);
    if (status != TOW_OK) return status;
    TRY(tow_tensors_create(params->ctx, &ours));
    l.ours = ours;
    TRY(tow__params_share(params, "", ours));
    TRY(write_theirs(&l, path));
done:
    tow_tensors_free(ours);
    return tow__links_end(&l, status, report);
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
    tow_status status = tow__links_begin(&l, context, mapping, options, report);
    if (status != TOW_OK) return status;
    l.where = from;
    TRY(tow__weights_open(context, from, &read));
    *(reverse ? &l.ours : &l.theirs) = read;
    TRY(reverse ? write_theirs(&l, to) : write_ours(&l, to));
done:
    tow_tensors_free(read);
    return tow__links_end(&l, status, report);
}

/* Parameters from sets of tensors and from files: all that does not fit is found first, and then, unless the options
 * allow it, nothing is copied. */
#include "src/base/options.h"
#include "src/io/tensors.h"
#include "src/params/params.h"

tow_status tow__loading_create(tow_context *ctx, const tow_tensors *tensors, tow__loading *loading)
{
    *loading = (tow__loading){.ctx = ctx, .tensors = tensors, .capacity = tensors->count};
    loading->copies = tow__alloc(ctx, loading->capacity, sizeof *loading->copies);
    loading->wanted = tow__alloc(ctx, loading->capacity, sizeof *loading->wanted);
    return loading->copies && loading->wanted ? TOW_OK : TOW_OUT_OF_MEMORY;
}

void tow__loading_free(tow__loading *loading)
{
    if (loading->copies) tow__free(loading->ctx, loading->copies, loading->capacity, sizeof *loading->copies);
    if (loading->staging) tow__free(loading->ctx, loading->staging, loading->staging_bytes, 1);
    if (loading->wanted) tow__free(loading->ctx, loading->wanted, loading->capacity, sizeof *loading->wanted);
    tow_load_report_free(&loading->report);
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

void tow_load_report_free(tow_load_report *report)
{
    if (!report) return;
    if (report->memory) { tow__arena_drop(report->memory); }
    *report = (tow_load_report){0};
}

/* Room for one item more. */
static tow_status reserve_item(tow__loading *l)
{
    tow_load_report *r = &l->report;
    if (!r->memory) {
        r->memory = tow__alloc(l->ctx, 1, sizeof(tow__arena));
        if (!r->memory) return TOW_OUT_OF_MEMORY;
        tow__arena_init(r->memory, l->ctx);
    }
    if (r->count < l->report_capacity) return TOW_OK;
    const size_t capacity = r->count ? 2 * r->count : 16;
    tow_load_item *items = tow__arena_alloc(r->memory, capacity, sizeof *items);
    if (!items) return TOW_OUT_OF_MEMORY;
    if (r->count) memcpy(items, r->items, r->count * sizeof *items);
    r->items = items;
    l->report_capacity = capacity;
    return TOW_OK;
}

static bool is_allowed(const tow_load_options *o, tow_load_problem problem)
{
    return o && (problem == TOW_LOAD_MISSING    ? o->allow_missing
                 : problem == TOW_LOAD_MISMATCH ? o->allow_mismatch
                                                : o->allow_unused);
}

/* The type of a tensor of the file. */
static tow__type_text found_type(const tow_load_item *item)
{
    tow__type_text text = {"what Tow cannot read"};
    return item->found.rank < 0 ? text : tow__type_name(item->found);
}

/* The treatment of an array of another type. */
static const char *mismatch_advice(const tow_load_item *item)
{
    tow_type converted = item->found;
    converted.dtype = item->expected.dtype;
    if (!tow_type_equal(converted, item->expected)) return "use the file of a model with the same sizes";
    return tow__file_converts(item->found.dtype, item->expected.dtype)
               ? "to convert it, load it with .convert of tow_load_options"
               : "floats are not converted to integers; use the file of a model with the same types";
}

/* The error that the item leads to. */
static tow_status refuse(const tow__loading *l, const tow_load_item *item)
{
    static const char *const partly[] = {
        [TOW_LOAD_MISSING] = ", or set .allow_missing of tow_load_options, which leaves it as it is",
        [TOW_LOAD_MISMATCH] = ", or set .allow_mismatch of tow_load_options, which leaves the parameter as it is",
        [TOW_LOAD_UNUSED] = ", or set .allow_unused of tow_load_options, which leaves the tensor out"};
    const char *else_allow = l->may_be_partial ? partly[item->problem] : "";
    if (item->problem == TOW_LOAD_MISSING)
        return tow__fail(l->ctx, TOW_NOT_FOUND,
                         "%s: missing; expected %s; use the file of a model with the same layers and options%s",
                         item->name, tow__type_name(item->expected).text, else_allow);
    if (item->problem == TOW_LOAD_MISMATCH)
        return tow__fail(l->ctx, TOW_TYPE_MISMATCH, "%s: expected %s, found %s; %s%s", item->name,
                         tow__type_name(item->expected).text, found_type(item).text, mismatch_advice(item), else_allow);
    return tow__fail(l->ctx, TOW_NOT_FOUND,
                     "%s: %s in the file, but the model has no such parameter or variable; use a model with the same "
                     "layers and options%s",
                     item->name, found_type(item).text, else_allow);
}

/* Puts a tensor or a parameter that does not fit into the report if the caller wants one, else an error unless the
 * options allow it. */
static tow_status note(tow__loading *l, tow_load_problem problem, const char *name, tow_type expected, tow_type found)
{
    tow_load_report *r = &l->report;
    tow_load_item item = {.problem = problem, .name = name, .expected = expected, .found = found};
    if (!l->options || !l->options->report) return is_allowed(l->options, problem) ? TOW_OK : refuse(l, &item);
    tow_status status = reserve_item(l);
    if (status) return status;
    item.name = tow__arena_string(r->memory, name);
    if (!item.name) return TOW_OUT_OF_MEMORY;
    r->items[r->count++] = item;
    r->missing += problem == TOW_LOAD_MISSING;
    r->mismatched += problem == TOW_LOAD_MISMATCH;
    r->unused += problem == TOW_LOAD_UNUSED;
    return TOW_OK;
}

#define TOTALS "%zu loaded, %zu missing, %zu of another type, %zu unused\n"

size_t tow_load_report_text(const tow_load_report *report, char *text, size_t size)
{
    if (!report->memory) {
        const int length =
            snprintf(text, size, TOTALS, report->loaded, report->missing, report->mismatched, report->unused);
        return length > 0 ? (size_t)length : 0;
    }
    tow__string s;
    tow__string_init(&s, ((const tow__arena *)report->memory)->ctx);
    for (size_t i = 0; i < report->count; i++) {
        const tow_load_item *item = &report->items[i];
        if (item->problem == TOW_LOAD_MISSING)
            tow__string_add(&s, "%s: missing, expected %s\n", item->name, tow__type_name(item->expected).text);
        else if (item->problem == TOW_LOAD_UNUSED)
            tow__string_add(&s, "%s: unused, %s\n", item->name, found_type(item).text);
        else
            tow__string_add(&s, "%s: expected %s, found %s\n", item->name, tow__type_name(item->expected).text,
                            found_type(item).text);
    }
    tow__string_add(&s, TOTALS, report->loaded, report->missing, report->mismatched, report->unused);
    return tow__string_hand_out(&s, text, size);
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static bool may_convert(const tow__loading *l) { return l->options && l->options->convert; }

/* Room for a layer that is put into its place from elsewhere. */
static tow_status reserve_staging(tow__loading *l, size_t bytes)
{
    if (bytes <= l->staging_bytes) return TOW_OK;
    void *staging = tow__alloc(l->ctx, bytes, 1);
    if (!staging) return TOW_OUT_OF_MEMORY;
    if (l->staging) tow__free(l->ctx, l->staging, l->staging_bytes, 1);
    l->staging = staging;
    l->staging_bytes = bytes;
    return TOW_OK;
}

static tow_status find_tensor(void *user, const tow__layer *layer)
{
    tow__loading *l = user;
    const char *name = layer->name;
    ptrdiff_t index = tow__tensors_lookup(l->tensors, name);
    const tow_type whole = tow__params_whole_layer(layer->params, layer->entry);
    const bool is_share = whole.rank >= 0;
    tow_type want = is_share ? whole : tow_array_type(layer->array);
    if (index < 0) return note(l, TOW_LOAD_MISSING, name, want, (tow_type){0});
    if (l->wanted[index]) /* two parameters of one name: each tensor is copied once, so there is room for all copies */
        return tow__fail(l->ctx, TOW_INVALID_ARGUMENT,
                         "%s: two parameters have this name on disk; give one of their layers another name", name);
    l->wanted[index] = true;
    if (l->tensors->items[index].foreign && !is_allowed(l->options, TOW_LOAD_MISMATCH))
        return tow__tensors_known(l->tensors, (size_t)index);
    tow_type found = l->tensors->items[index].type, converted = found;
    converted.dtype = want.dtype;
    if (!tow_type_equal(may_convert(l) && !is_share && tow__file_converts(found.dtype, want.dtype) ? converted : found,
                        want))
        return note(l, TOW_LOAD_MISMATCH, name, want, found);
    l->copies[l->n_copies++] = (struct tow__copy){.tensor = (size_t)index,
                                                  .dtype = want.dtype,
                                                  .shards = is_share ? layer->params->shards : NULL,
                                                  .to = layer->copied ? NULL : tow_array_data(layer->array),
                                                  .params = layer->copied ? layer->params : NULL,
                                                  .entry = layer->entry,
                                                  .row = layer->row};
    return layer->copied ? reserve_staging(l, tow_type_bytes(want)) : TOW_OK;
}

tow_status tow__loading_add(tow__loading *loading, const tow_params *params, const char *prefix, const char *path)
{
    const size_t first = loading->report.count;
    tow_status status = tow__params_visit(params, prefix, find_tensor, loading);
    for (size_t i = 0; i < loading->tensors->count && !status; i++) {
        const tow__tensor *tensor = &loading->tensors->items[i];
        if (!loading->wanted[i] && strncmp(tensor->name, prefix, strlen(prefix)) == 0)
            status = note(loading, TOW_LOAD_UNUSED, tensor->name, (tow_type){0}, tensor->type);
    }
    for (size_t i = first; i < loading->report.count && !status; i++)
        if (!is_allowed(loading->options, loading->report.items[i].problem))
            status = refuse(loading, &loading->report.items[i]);
    if (!status || status == TOW_OUT_OF_MEMORY || !path) return status;
    return tow__fail(loading->ctx, status, "%s: %s", path, tow_context_error(loading->ctx));
}

/* ---- copying ----------------------------------------------------------------------------------------------------- */

tow_status tow__loading_check(const tow__loading *loading)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < loading->n_copies && !status; i++) {
        status = tow__tensors_check(loading->tensors, loading->copies[i].tensor, loading->copies[i].dtype);
        if (loading->in_place) tow__tensors_drop_pages(loading->tensors, loading->copies[i].tensor);
    }
    return status;
}

static tow_status read_share(const tow_tensors *tensors, const struct tow__copy *copy)
{
    int64_t first = 0, n = 0;
    tow_group_share(tow_group_rank(copy->shards), tow_group_count(copy->shards),
                    tow_type_element_count(tensors->items[copy->tensor].type), &first, &n);
    return tow__tensors_read_elements(tensors, copy->tensor, first, n, copy->to);
}

/* The array in the file becomes the parameter's. Sets *done to false, and does nothing, where it is another one. */
static tow_status put_in_place(const tow__loading *l, const struct tow__copy *copy, bool *done)
{
    tow_params *params = l->in_place;
    tow_array *view;
    *done = params && !copy->shards && tow__path_levels(params->names.names[copy->entry]) == 0 &&
            tow__tensors_mapped(l->tensors, copy->tensor, copy->dtype);
    if (!*done) return TOW_OK;
    const tow_status status = tow__tensors_view(l->tensors, copy->tensor, 0, params->types[copy->entry], &view);
    if (status) return status;
    tow_array_release(params->arrays[copy->entry]);
    params->arrays[copy->entry] = view;
    return TOW_OK;
}

tow_status tow__loading_run(const tow__loading *loading)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < loading->n_copies && !status; i++) {
        const struct tow__copy *copy = &loading->copies[i];
        int64_t index[TOW_MAX_RANK];
        void *to = copy->params ? loading->staging : copy->to;
        bool done;
        status = put_in_place(loading, copy, &done);
        if (status || done) continue;
        if (copy->shards)
            status = read_share(loading->tensors, copy);
        else
            status = tow__tensors_copy(loading->tensors, copy->tensor, copy->dtype, to);
        if (loading->in_place) tow__tensors_drop_pages(loading->tensors, copy->tensor);
        if (status || !copy->params) continue;
        tow__params_row_index(copy->params, copy->entry, copy->row, index);
        tow__params_put_layer(copy->params, copy->entry, index, to);
    }
    return status;
}

static tow_status load(tow_params *params, const char *prefix, const tow_tensors *tensors, const char *path,
                       const tow_load_options *options)
{
    tow__loading loading;
    tow_status status = tow__loading_create(params->ctx, tensors, &loading);
    loading.options = options;
    loading.may_be_partial = true;
    if (path && options && options->in_place) loading.in_place = params;
    if (!status) status = tow__loading_add(&loading, params, prefix, path);
    if (!status) status = tow__loading_check(&loading);
    if (!status) status = tow__loading_run(&loading);
    if (options && options->report && status != TOW_OUT_OF_MEMORY) {
        *options->report = loading.report;
        options->report->loaded = status ? 0 : loading.n_copies;
        loading.report = (tow_load_report){0};
    }
    tow__loading_free(&loading);
    return status;
}

static tow_status check_arguments(const char *caller, const tow_params *params, const char *prefix, const void *from,
                                  const char *what, const tow_load_options **options, tow_load_options *own)
{
    if (params && !TOW__OPTIONS_TAKE(params->ctx, tow_load_options, *options, own)) return TOW_INVALID_ARGUMENT;
    if (params && *options && (*options)->report) *(*options)->report = (tow_load_report){0};
    if (params && prefix && from) return TOW_OK;
    return tow__missing(params ? params->ctx : NULL, caller, "parameters, a prefix and %s", what);
}

tow_status tow_params_from_tensors(tow_params *params, const char *prefix, const tow_tensors *tensors)
{
    const tow_load_options *none = NULL;
    tow_load_options own;
    tow_status status = check_arguments(__func__, params, prefix, tensors, "a set of tensors", &none, &own);
    return status ? status : load(params, prefix, tensors, NULL, NULL);
}

tow_status tow_params_from_tensors_with(tow_params *params, const char *prefix, const tow_tensors *tensors,
                                        const tow_load_options *options)
{
    tow_load_options own;
    tow_status status = check_arguments(__func__, params, prefix, tensors, "a set of tensors", &options, &own);
    return status ? status : load(params, prefix, tensors, NULL, options);
}

tow_status tow_params_load(tow_params *params, const char *prefix, const char *path, const tow_load_options *options)
{
    tow_load_options own;
    tow_status status = check_arguments(__func__, params, prefix, path, "the path of a file", &options, &own);
    if (status) return status;
    tow_tensors *tensors = NULL;
    status = tow__safetensors_open(params->ctx, path, &tensors);
    if (!status && options && options->in_place) status = tow__tensors_map(tensors);
    if (!status) status = load(params, prefix, tensors, path, options);
    tow_tensors_free(tensors);
    return status;
}

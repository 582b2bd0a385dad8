/* Lists of parameters and variables: walking, finding, counting, printing, and the way to sets of tensors, in which
 * every layer of a stack has a name of its own. */
#include "src/params/params.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/io/json.h"
#include "src/io/tensors.h"

tow_status tow__params_create(tow_context *ctx, tow_params **params)
{
    *params = tow__alloc(ctx, 1, sizeof **params);
    if (!*params) return TOW_OUT_OF_MEMORY;
    (*params)->ctx = ctx;
    tow__names_init(&(*params)->names, ctx);
    return TOW_OK;
}

static void free_columns(tow_params *p)
{
    if (p->types) tow__free(p->ctx, p->types, p->capacity, sizeof *p->types);
    if (p->arrays) tow__free(p->ctx, p->arrays, p->capacity, sizeof *p->arrays);
    if (p->frozen) tow__free(p->ctx, p->frozen, p->capacity, sizeof *p->frozen);
    if (p->kinds) tow__free(p->ctx, p->kinds, p->capacity, sizeof *p->kinds);
    if (p->wholes) tow__free(p->ctx, p->wholes, p->capacity, sizeof *p->wholes);
}

void tow_params_free(tow_params *params)
{
    if (!params) return;
    tow_context *ctx = params->ctx;
    for (uint32_t i = 0; i < params->names.count; i++) tow_array_release(params->arrays[i]);
    free_columns(params);
    tow__names_free(&params->names);
    tow__free(ctx, params, 1, sizeof *params);
}

static tow_status reserve(tow_params *p)
{
    if (p->names.count < p->capacity) return TOW_OK;
    tow_params wider = {.ctx = p->ctx, .capacity = p->capacity ? 2 * p->capacity : 8};
    wider.types = tow__alloc(p->ctx, wider.capacity, sizeof *wider.types);
    wider.arrays = tow__alloc(p->ctx, wider.capacity, sizeof *wider.arrays);
    wider.frozen = tow__alloc(p->ctx, wider.capacity, sizeof *wider.frozen);
    wider.kinds = tow__alloc(p->ctx, wider.capacity, sizeof *wider.kinds);
    if (p->wholes) wider.wholes = tow__alloc(p->ctx, wider.capacity, sizeof *wider.wholes);
    if (!wider.types || !wider.arrays || !wider.frozen || !wider.kinds || (p->wholes && !wider.wholes)) {
        free_columns(&wider);
        return TOW_OUT_OF_MEMORY;
    }
    if (p->capacity) {
        memcpy(wider.types, p->types, p->capacity * sizeof *p->types);
        memcpy(wider.arrays, p->arrays, p->capacity * sizeof *p->arrays);
        memcpy(wider.frozen, p->frozen, p->capacity * sizeof *p->frozen);
        memcpy(wider.kinds, p->kinds, p->capacity * sizeof *p->kinds);
        if (p->wholes) memcpy(wider.wholes, p->wholes, p->capacity * sizeof *p->wholes);
    }
    free_columns(p);
    p->types = wider.types;
    p->arrays = wider.arrays;
    p->frozen = wider.frozen;
    p->kinds = wider.kinds;
    p->wholes = wider.wholes;
    p->capacity = wider.capacity;
    return TOW_OK;
}

tow_status tow__params_add(tow_params *params, const char *path, tow_type type)
{
    tow_status status = reserve(params);
    if (status) return status;
    uint32_t index = params->names.count;
    params->types[index] = type;
    params->arrays[index] = NULL;
    params->frozen[index] = false;
    params->kinds[index] = tow__param_kind_of(path, type.rank - tow__path_levels(path));
    if (params->wholes) params->wholes[index].rank = -1;
    return tow__names_add(&params->names, path) == TOW__NO_NAME ? TOW_OUT_OF_MEMORY : TOW_OK;
}

tow_status tow__params_add_like(tow_params *params, const char *path, tow_type type, const tow_params *like, uint32_t i)
{
    tow_status status = tow__params_add(params, path, type);
    if (status) return status;
    params->frozen[params->names.count - 1] = like->frozen[i];
    params->kinds[params->names.count - 1] = like->kinds[i];
    if (tow__params_whole_layer(like, i).rank < 0 || !tow_type_equal(type, like->types[i])) return TOW_OK;
    params->types[params->names.count - 1] = like->wholes[i];
    return tow__params_set_share(params, params->names.count - 1, like->shards, type);
}

tow_status tow__params_set_share(tow_params *p, uint32_t i, tow_group *shards, tow_type kept)
{
    if (!p->wholes) {
        p->wholes = tow__alloc(p->ctx, p->capacity, sizeof *p->wholes);
        if (!p->wholes) return TOW_OUT_OF_MEMORY;
        for (uint32_t k = 0; k < p->capacity; k++) p->wholes[k].rank = -1;
    }
    p->shards = shards;
    p->wholes[i] = p->types[i];
    p->types[i] = kept;
    return TOW_OK;
}

tow_type tow__params_whole_layer(const tow_params *p, uint32_t i)
{
    if (!p->wholes || p->wholes[i].rank < 0) return (tow_type){.rank = -1};
    const tow_type *whole = &p->wholes[i];
    const int levels = tow__path_levels(p->names.names[i]);
    return tow_make_type(whole->dtype, whole->rank - levels, whole->dims + levels);
}

tow_status tow__params_append(tow_params *params, const char *path, tow_array *array, const tow_params *like,
                              uint32_t i)
{
    const tow_type type = array ? tow_array_type(array) : like->types[i];
    tow_status status = like ? tow__params_add_like(params, path, type, like, i) : tow__params_add(params, path, type);
    if (status) return status;
    params->arrays[params->names.count - 1] = tow_array_retain(array);
    return TOW_OK;
}

tow_status tow__params_shared(tow_context *ctx, const tow_params *params, tow_params **shared)
{
    tow_status status = tow__params_create(ctx, shared);
    for (uint32_t i = 0; i < params->names.count && !status; i++) {
        tow_array *array = params->ctx == ctx ? tow_array_retain(params->arrays[i]) : NULL;
        if (!array && params->arrays[i]) status = tow_array_share(ctx, params->arrays[i], &array);
        if (!status) status = tow__params_append(*shared, params->names.names[i], array, params, i);
        tow_array_release(array);
    }
    if (!status) return TOW_OK;
    tow_params_free(*shared);
    *shared = NULL;
    return status;
}

tow_status tow_params_share(tow_context *context, const tow_params *params, tow_params **shared)
{
    if (shared) *shared = NULL;
    if (!context || !params || !shared)
        return tow__missing(context, __func__, "a context, a list of parameters and a place for the shared one");
    tow_status status = tow__params_shared(context, params, shared);
    return status ? status : tow_params_freeze(*shared, NULL, true);
}

uint32_t tow__params_index(const tow_params *params, const char *path, uint32_t guess)
{
    if (guess < params->names.count && strcmp(params->names.names[guess], path) == 0) return guess;
    return tow__names_find(&params->names, path);
}

size_t tow_params_count(const tow_params *params) { return params->names.count; }
const char *tow_params_path(const tow_params *params, size_t index)
{
    return index < params->names.count ? params->names.names[index] : NULL;
}
tow_array *tow_params_array(const tow_params *params, size_t index)
{
    return index < params->names.count ? params->arrays[index] : NULL;
}

tow_array *const *tow_params_arrays(const tow_params *params) { return params->arrays; }

tow_array *tow_params_find(const tow_params *params, const char *path)
{
    uint32_t index = path ? tow__names_find(&params->names, path) : TOW__NO_NAME;
    return index == TOW__NO_NAME ? NULL : params->arrays[index];
}

static tow_status add_array(tow_params *params, size_t index, const char *path, tow_array *array)
{
    if (!path || !*path || !array || !tow__is_utf8(path))
        return tow__fail(params->ctx, TOW_INVALID_ARGUMENT,
                         "tow_params_from_arrays: entry %zu: expected a path in UTF-8 and an array, found %s", index,
                         !path    ? "no path"
                         : !*path ? "an empty path"
                         : !array ? "no array"
                                  : "other bytes");
    int axes[TOW_MAX_RANK];
    if (tow__path_axes(path, tow_array_type(array).rank, axes) < 0)
        return tow__fail(params->ctx, TOW_INVALID_ARGUMENT,
                         "tow_params_from_arrays: %.200s: expected an axis for each \"{}\", where \"{@k}\" is axis k, "
                         "found %s",
                         path, tow__type_name(tow_array_type(array)).text);
    if (tow__names_find(&params->names, path) != TOW__NO_NAME)
        return tow__fail(params->ctx, TOW_INVALID_ARGUMENT,
                         "tow_params_from_arrays: the path '%.200s' is there twice; name every array once", path);
    return tow__params_append(params, path, array, NULL, 0);
}

tow_status tow_params_from_arrays(tow_context *context, size_t n, const char *const *paths, tow_array *const *arrays,
                                  tow_params **params)
{
    if (params) *params = NULL;
    if (!context || !params || (n > 0 && (!paths || !arrays)))
        return tow__missing(context, __func__, "a context, paths, arrays and a place for the list");
    tow_status status = tow__params_create(context, params);
    for (size_t i = 0; i < n && status == TOW_OK; i++) status = add_array(*params, i, paths[i], arrays[i]);
    if (status != TOW_OK) {
        tow_params_free(*params);
        *params = NULL;
    }
    return status;
}

tow_status tow_params_zeros_like(const tow_params *params, tow_params **zeros)
{
    if (zeros) *zeros = NULL;
    if (!params || !zeros)
        return tow__missing(params ? params->ctx : NULL, __func__, "a list of parameters and a place for another");
    tow_status status = tow__params_create(params->ctx, zeros);
    for (uint32_t i = 0; i < params->names.count && !status; i++) {
        status = tow__params_add_like(*zeros, params->names.names[i], params->types[i], params, i);
        if (!status) status = tow_array_create(params->ctx, params->types[i], &(*zeros)->arrays[i]);
    }
    if (status) {
        tow_params_free(*zeros);
        *zeros = NULL;
    }
    return status;
}

/* ---- layers of a stack ------------------------------------------------------------------------------------------- */

bool tow__is_path(const char *path)
{
    if (!tow__is_utf8(path)) return false;
    for (;;) {
        const size_t length = strcspn(path, "/");
        if (length == 0 || (length == 12 && memcmp(path, "__metadata__", 12) == 0)) return false;
        if (!path[length]) return true;
        path += length + 1;
    }
}

void tow__params_add_layer_path(tow__string *s, const char *path, const int64_t *index)
{
    for (const char *c = path;;) {
        tow__numbering numbering;
        size_t length = strcspn(c, "/");
        if (tow__numbering_read(c, length, &numbering)) {
            tow__string_add(s, "%" PRId64, tow__numbering_layer(&numbering, index));
            index += numbering.levels;
        } else {
            tow__string_add(s, "%.*s", (int)length, c);
        }
        if (!c[length]) return;
        tow__string_add(s, "/");
        c += length + 1;
    }
}

tow_status tow__params_visit(const tow_params *p, const char *prefix, tow__layer_visitor visit, void *user)
{
    tow_status status = TOW_OK;
    tow__string name;
    tow__string_init(&name, p->ctx);
    for (uint32_t i = 0; i < p->names.count; i++) {
        const char *path = p->names.names[i];
        const int levels = tow__path_levels(path);
        const int64_t rows = tow__params_rows(p, i);
        const bool copies = !tow__path_in_front(path, p->types[i].rank);
        for (int64_t row = 0; row < rows; row++) {
            int64_t index[TOW_MAX_RANK];
            tow__params_row_index(p, i, row, index);
            tow__string_free(&name);
            tow__string_init(&name, p->ctx);
            tow__string_add(&name, "%s", prefix);
            tow__params_add_layer_path(&name, path, index);
            if (name.failed) TRY(TOW_OUT_OF_MEMORY);
            tow_array *view = NULL;
            TRY(tow__params_layer(p, i, levels, index, &view));
            const tow__layer layer = {name.text, view, p, i, row, copies};
            status = visit(user, &layer);
            tow_array_release(view);
            if (status) goto done;
        }
    }
done:
    tow__string_free(&name);
    return status;
}

static tow_status share_tensor(void *user, const tow__layer *layer)
{
    const tow_type whole = tow__params_whole_layer(layer->params, layer->entry);
    if (whole.rank < 0) return tow_tensors_add((tow_tensors *)user, layer->name, layer->array);
    return tow_tensors_add_share((tow_tensors *)user, layer->name, whole, layer->params->shards, layer->array);
}

static tow_status copy_tensor(void *user, const tow__layer *layer)
{
    tow_tensors *tensors = user;
    tow_array *copy;
    if (layer->copied || tow__params_whole_layer(layer->params, layer->entry).rank >= 0)
        return share_tensor(user, layer);
    tow_status status =
        tow_array_from_data(tensors->ctx, tow_array_type(layer->array), tow_array_data(layer->array), &copy);
    if (status) return status;
    status = tow_tensors_add(tensors, layer->name, copy);
    tow_array_release(copy);
    return status;
}

tow_status tow__params_share(const tow_params *params, const char *prefix, tow_tensors *tensors)
{
    return tow__params_visit(params, prefix, share_tensor, tensors);
}

tow_status tow_params_to_tensors(const tow_params *params, const char *prefix, tow_tensors *tensors)
{
    if (!params || !prefix || !tensors)
        return tow__missing(params ? params->ctx : NULL, __func__, "parameters, a prefix and a set of tensors");
    return tow__params_visit(params, prefix, copy_tensor, tensors);
}

/* ---- single layers ----------------------------------------------------------------------------------------------- */

/* True if `path` is one layer of the stack `stack`: fills index[0..levels). */
static bool matches_layer(const char *stack, const char *path, int64_t *index)
{
    for (;;) {
        tow__numbering numbering;
        size_t a = strcspn(stack, "/"), b = strcspn(path, "/");
        if (tow__numbering_read(stack, a, &numbering)) {
            int64_t layer;
            if (!tow__number_read(path, b, &layer) || !tow__numbering_index(&numbering, layer, index)) return false;
            index += numbering.levels;
        } else if (a != b || memcmp(stack, path, a) != 0) {
            return false;
        }
        if (!stack[a] || !path[b]) return stack[a] == path[b];
        stack += a + 1;
        path += b + 1;
    }
}

tow_status tow_params_get(const tow_params *params, const char *path, tow_array **array)
{
    if (array) *array = NULL;
    if (!params || !path || !array)
        return tow__missing(params ? params->ctx : NULL, __func__, "parameters, a path and a place for the array");
    *array = tow_params_find(params, path);
    if (*array) {
        tow_array_retain(*array);
        return TOW_OK;
    }
    for (uint32_t i = 0; i < params->names.count; i++) {
        int64_t index[TOW_MAX_RANK] = {0};
        int levels = tow__path_levels(params->names.names[i]);
        if (levels == 0 || !matches_layer(params->names.names[i], path, index)) continue;
        tow_status status = tow__params_layer(params, i, levels, index, array);
        if (status != TOW_INVALID_ARGUMENT) return status;
        return tow__fail(params->ctx, status, "params/%s: no such layer; params/%s is %s, one row for each layer", path,
                         params->names.names[i], tow__type_name(params->types[i]).text);
    }
    tow__string known;
    tow__string_init(&known, params->ctx);
    for (uint32_t i = 0; i < params->names.count && i < 20; i++) tow__string_add(&known, " %s", params->names.names[i]);
    tow_status status = tow__fail(params->ctx, TOW_NOT_FOUND, "params/%s: no such parameter; there are%s%s", path,
                                  known.text ? known.text : " none", params->names.count > 20 ? " ..." : "");
    tow__string_free(&known);
    return status;
}

size_t tow__string_hand_out(tow__string *s, char *text, size_t size)
{
    if (s->failed) s->length = 0; /* the context has the error */
    size_t length = tow__string_export(s, text, size);
    tow__string_free(s);
    return length;
}

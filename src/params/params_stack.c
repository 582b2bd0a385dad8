/* Stacks of layers taken apart, and put together. */
#include <inttypes.h>
#include <stdlib.h>

#include "src/params/params.h"

tow_status tow_params_unstack(const tow_params *params, tow_params **layers)
{
    if (layers) *layers = NULL;
    if (!params || !layers)
        return tow__missing(params ? params->ctx : NULL, __func__, "parameters and a place for the list");
    tow_params *made = NULL;
    tow_status status = TOW_OK;
    tow__string name;
    tow__string_init(&name, params->ctx);
    TRY(tow__params_check_names(params, "")); /* else two entries of the result could have one path */
    TRY(tow__params_create(params->ctx, &made));
    for (uint32_t i = 0; i < params->names.count; i++) {
        const int64_t rows = tow__params_rows(params, i);
        for (int64_t row = 0; row < rows; row++) {
            int64_t index[TOW_MAX_RANK];
            tow_array *view = NULL;
            tow__params_row_index(params, i, row, index);
            name.length = 0;
            tow__params_add_layer_path(&name, params->names.names[i], index);
            if (name.failed) TRY(TOW_OUT_OF_MEMORY);
            TRY(tow__params_layer(params, i, tow__path_levels(params->names.names[i]), index, &view));
            status = tow__params_append(made, name.text, view, params, i);
            tow_array_release(view);
            if (status) goto done;
        }
    }
    *layers = made;
    made = NULL;
done:
    tow_params_free(made);
    tow__string_free(&name);
    return status;
}

/* ---- stacking ---------------------------------------------------------------------------------------------------- */

/* One scan whose layers are put together. */
typedef struct stacking {
    const tow_params *params;
    const char *scan;
    size_t length; /* of scan */
    int outer;     /* axes of scans around it that the entries have already */
    int axis;      /* of the new one */
} stacking;

/* The index of the layer that entry i belongs to, and in *rest what stands behind it; -1: it is not of this scan. */
static int64_t layer_of(const stacking *s, uint32_t i, const char **rest)
{
    const char *path = s->params->names.names[i];
    if (strncmp(path, s->scan, s->length) != 0 || path[s->length] != '/') return -1;
    const char *number = path + s->length + 1;
    const size_t digits = strcspn(number, "/");
    int64_t layer;
    if (digits > 9 || !number[digits] || !tow__number_read(number, digits, &layer)) return -1;
    *rest = number + digits + 1;
    return layer;
}

/* The number of layers of the scan: one more than the largest index. */
static int64_t count_layers(const stacking *s)
{
    int64_t count = 0;
    for (uint32_t i = 0; i < s->params->names.count; i++) {
        const char *rest;
        const int64_t layer = layer_of(s, i, &rest);
        if (layer >= count) count = layer + 1;
    }
    return count;
}

/* The entry of `layer` that goes with `first`, whose path ends with `rest`. */
static tow_status find_layer(const stacking *s, int64_t layer, const char *rest, uint32_t first, uint32_t *found)
{
    const tow_params *p = s->params;
    tow__string name;
    tow__string_init(&name, p->ctx);
    tow__string_add(&name, "%s/%" PRId64 "/%s", s->scan, layer, rest);
    tow_status status = name.failed ? TOW_OUT_OF_MEMORY : TOW_OK;
    if (!status) *found = tow__names_find(&p->names, name.text);
    if (!status && *found == TOW__NO_NAME)
        status = tow__fail(p->ctx, TOW_NOT_FOUND,
                           "tow_params_stack: %s: missing; every layer of a stack has the same parameters as %s",
                           name.text, p->names.names[first]);
    else if (!status && !tow_type_equal(p->types[*found], p->types[first]))
        status = tow__fail(p->ctx, TOW_TYPE_MISMATCH,
                           "tow_params_stack: %s is %s, and %s is %s; layers of a stack have the same types", name.text,
                           tow__type_name(p->types[*found]).text, p->names.names[first],
                           tow__type_name(p->types[first]).text);
    tow__string_free(&name);
    return status;
}

/* Copies the layers that an entry holds, which are all of number `layer` in the scan, to their places in the last entry
 * of `made`. */
static tow_status copy_layers(const stacking *s, uint32_t entry, tow_params *made, int64_t layer)
{
    const int levels = tow__path_levels(s->params->names.names[entry]);
    const int64_t rows = tow__params_rows(s->params, entry);
    for (int64_t row = 0; row < rows; row++) {
        int64_t index[TOW_MAX_RANK + 1];
        tow_array *from = NULL;
        tow__params_row_index(s->params, entry, row, index);
        tow_status status = tow__params_layer(s->params, entry, levels, index, &from);
        if (status) return status;
        memmove(index + s->outer + 1, index + s->outer, (size_t)(levels - s->outer) * sizeof *index);
        index[s->outer] = layer;
        tow__params_put_layer(made, made->names.count - 1, index, tow_array_data(from));
        tow_array_release(from);
    }
    return TOW_OK;
}

/* The type of the stack at `path` of `count` arrays as that of entry `first`. */
static tow_status stacked_type(const stacking *s, uint32_t first, const char *path, int64_t count, tow_type *type)
{
    tow_context *ctx = s->params->ctx;
    int axes[TOW_MAX_RANK];
    const tow_type one = s->params->types[first];
    tow_type front = tow__type_in_front(s->params->names.names[first], one);
    if (one.rank == TOW_MAX_RANK)
        return tow__fail(ctx, TOW_UNSUPPORTED, "tow_params_stack: %s is %s; a stack would have more than %d axes",
                         s->params->names.names[first], tow__type_name(one).text, TOW_MAX_RANK);
    memmove(front.dims + s->outer + 1, front.dims + s->outer, (size_t)(one.rank - s->outer) * sizeof *front.dims);
    front.dims[s->outer] = count;
    front.rank++;
    if (tow__path_axes(path, front.rank, axes) < 0)
        return tow__fail(
            ctx, TOW_INVALID_ARGUMENT,
            "tow_params_stack: %s is %s, of which no stack has an axis %d; expected one that all parameters of the "
            "layers have",
            s->params->names.names[first], tow__type_name(one).text, s->axis);
    *type = tow__type_from_front(path, front);
    return TOW_OK;
}

/* The stack whose layer 0 is entry `first`. */
static tow_status append_stack(const stacking *s, tow_params *made, uint32_t first, const char *rest, int64_t count)
{
    const tow__numbering numbering = {.levels = 1, .strides = {1}, .axis = s->axis};
    tow_type type;
    tow_status status = TOW_OK;
    tow_array *array = NULL;
    char component[TOW__NUMBERING_SIZE];
    tow__string name;
    tow__string_init(&name, made->ctx);
    tow__numbering_write(&numbering, component);
    tow__string_add(&name, "%s/%s/%s", s->scan, component, rest);
    if (name.failed) TRY(TOW_OUT_OF_MEMORY);
    TRY(stacked_type(s, first, name.text, count, &type));
    if (tow__names_find(&made->names, name.text) != TOW__NO_NAME)
        TRY(tow__fail(made->ctx, TOW_INVALID_ARGUMENT, "tow_params_stack: %s is there already", name.text));
    TRY(tow_array_create(made->ctx, type, &array));
    TRY(tow__params_append(made, name.text, array, s->params, first));
    for (int64_t layer = 0; layer < count; layer++) {
        uint32_t entry = first;
        TRY(find_layer(s, layer, rest, first, &entry));
        TRY(copy_layers(s, entry, made, layer));
    }
done:
    tow_array_release(array);
    tow__string_free(&name);
    return status;
}

/* Entry i: as it is, or the stack that it begins, or nothing for another layer of a stack. */
static tow_status append_stacked(const stacking *s, tow_params *made, uint32_t i, int64_t count)
{
    const tow_params *p = s->params;
    const char *rest;
    const int64_t layer = layer_of(s, i, &rest);
    uint32_t first;
    if (layer > 0) return find_layer(s, 0, rest, i, &first); /* what layer 0 does not have is in no stack */
    if (layer == 0) return append_stack(s, made, i, rest, count);
    if (tow__names_find(&made->names, p->names.names[i]) != TOW__NO_NAME)
        return tow__fail(p->ctx, TOW_INVALID_ARGUMENT, "tow_params_stack: %s is there already", p->names.names[i]);
    return tow__params_append(made, p->names.names[i], p->arrays[i], p, i);
}

tow_status tow_params_stack(const tow_params *params, const char *scan, int axis, tow_params **stacked)
{
    if (stacked) *stacked = NULL;
    if (!params || !scan || !stacked)
        return tow__missing(params ? params->ctx : NULL, "tow_params_stack",
                            "parameters, a scan and a place for the list");
    if (axis < -TOW_MAX_RANK || axis >= TOW_MAX_RANK)
        return tow__fail(params->ctx, TOW_INVALID_ARGUMENT, "tow_params_stack: expected an axis in [%d, %d), found %d",
                         -TOW_MAX_RANK, TOW_MAX_RANK, axis);
    const stacking s = {params, scan, strlen(scan), tow__path_levels(scan), axis};
    const int64_t count = count_layers(&s);
    if (count == 0)
        return tow__fail(params->ctx, TOW_NOT_FOUND,
                         "tow_params_stack: no path begins with \"%.200s/0/\"; the first of %u is %s", scan,
                         params->names.count, params->names.count ? params->names.names[0] : "none");
    tow_params *made = NULL;
    tow_status status = tow__params_create(params->ctx, &made);
    for (uint32_t i = 0; i < params->names.count && !status; i++) status = append_stacked(&s, made, i, count);
    if (status)
        tow_params_free(made);
    else
        *stacked = made;
    return status;
}

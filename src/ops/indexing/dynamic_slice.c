/* Batching rules of dynamic_slice and dynamic_update_slice. If all rows share the starts, the batch axis is one more
 * axis that is taken whole. Slices at starts of each row are rows that a gather finds:
 *
 *   axes of x:  [leading | trailing, taken whole]        x as a table: [product of leading, trailing...]
 *
 * A slice whose places i32 does not count goes through a loop over the rows. Updates at starts of each row are windows
 * that a scatter puts into their rows, where x lies if nothing else reads it. */
#include "src/ops/indexing/dynamic_slice.h"

#include "src/ops/rules.h"
#include "tow/numpy.h"
#include "tow/ops.h"

/* Axes of x from which on the slice, of `sizes`, is the whole. */
static int leading_axes(tow_type x, const int64_t *sizes)
{
    int lead = x.rank;
    while (lead > 0 && sizes[lead - 1] == x.dims[lead - 1]) lead--;
    return lead;
}

static int64_t product(const int64_t *dims, int n)
{
    int64_t result = 1;
    for (int d = 0; d < n; d++) result *= dims[d];
    return result;
}

/* True if places along the leading axes of all rows fit into i32. */
static bool may_gather(const tow__batch *r, int lead)
{
    int64_t places = product(r->in[0].dims, lead);
    return places == 0 || r->size < INT32_MAX / places;
}

/* i32 [rows, dims of the leading axes] */
static tow_type places_type(const tow__batch *r, int lead, const int64_t *dims)
{
    tow_type type = tow_make_type(TOW_I32, lead, dims);
    return tow__with_axis(type, 0, r->size);
}

/* The start along axis d, clamped so that the slice lies inside, repeated to `type`. */
static tow_value clamped_start(const tow__batch *r, uint32_t operand, int64_t most, tow_type type)
{
    tow_value start = tow__batch_operand(r, operand, 0);
    start = tow_clamp(tow_zeros_like(start), start, tow_full_like(start, (double)most));
    return tow_broadcast_in_dim(start, type.rank, type.dims, (int[]){0});
}

/* place * size + along, where place is null for the first axis. */
static tow_value next_place(tow_value place, int64_t size, tow_value along)
{
    if (tow_is_null(place)) return along;
    return tow_add(tow_mul(place, tow_full_like(place, (double)size)), along);
}

/* Operand i as a table [places, trailing...] in which `place` of its leading axes is found: of a batched operand,
 * tables of all rows stand one after the other. */
static tow_value find_rows(const tow__batch *r, uint32_t i, int lead, tow_value place)
{
    tow_type type = r->in[i];
    int64_t shape[TOW_MAX_RANK] = {product(type.dims, lead)};
    for (int d = lead; d < type.rank; d++) shape[1 + d - lead] = type.dims[d];
    if (tow_is_null(place)) return place;
    if (tow__is_batched(r->x[i])) {
        tow_value first = tow_iota(r->t, tow_value_type(place), 0);
        place = tow_add(place, tow_mul(first, tow_full_like(first, (double)shape[0])));
        shape[0] *= r->size;
    }
    tow_value x = tow__is_batched(r->x[i]) ? tow__batch_operand(r, i, 0) : r->x[i].value;
    return tow_gather(tow_reshape(x, 1 + type.rank - lead, shape), place);
}

static bool starts_are_batched(const tow__batch *r, uint32_t first)
{
    for (uint32_t i = first; i < r->e->n_in; i++)
        if (tow__is_batched(r->x[i])) return true;
    return false;
}

/* Starts of a slice that takes the batch axis whole. */
static void shared_starts(const tow__batch *r, uint32_t first, int axis, tow_value *start)
{
    for (int d = 0; d < r->in[0].rank; d++) start[tow__shifted(d, axis)] = r->x[first + (uint32_t)d].value;
    start[axis] = tow_scalar(r->t, TOW_I32, 0);
}

void tow__batch_dynamic_slice(tow__batch *r)
{
    const tow__ints *sizes = &((const tow__sizes_params *)r->e->params)->sizes;
    tow_value start[TOW_MAX_RANK + 1], place = tow__null();
    if (!starts_are_batched(r, 1)) {
        int axis = r->x[0].axis;
        tow__ints whole = tow__with_entry(*sizes, axis, r->size);
        shared_starts(r, 1, axis, start);
        r->y[0] = (tow__mapped){.value = tow_dynamic_slice(r->x[0].value, start, whole.v), .axis = axis};
        return;
    }
    int lead = leading_axes(r->in[0], sizes->v);
    if (lead == 0 || !may_gather(r, lead)) {
        if (lead == 0)
            r->y[0] = r->x[0];
        else
            r->looped(r);
        return;
    }
    tow_type type = places_type(r, lead, sizes->v);
    for (int d = 0; d < lead; d++) {
        int64_t size = r->in[0].dims[d];
        tow_value first = clamped_start(r, 1 + (uint32_t)d, size - sizes->v[d], type);
        place = next_place(place, size, tow_add(tow_iota(r->t, type, d + 1), first));
    }
    r->y[0] = (tow__mapped){.value = find_rows(r, 0, lead, place), .axis = 0};
}

/* The update of each row is a window of that row, scattered to its start. */
static void update_by_rows(tow__batch *r, int lead)
{
    tow_scatter_dims dims = {.n_window = r->in[0].rank, .n_batching = 1, .n_index = lead};
    tow_value start[TOW_MAX_RANK];
    for (int d = 0; d < dims.n_window; d++) dims.update_window_dims[d] = 1 + d;
    for (int d = 0; d < lead; d++) {
        start[d] = tow__batch_operand(r, 2 + (uint32_t)d, 0);
        dims.scatter_dims_to_operand_dims[d] = 1 + d;
    }
    tow_value x = tow__batch_operand(r, 0, 0), update = tow__batch_operand(r, 1, 0);
    tow_value places = tow_stack((size_t)lead, start, 1);
    x = tow_scatter_general(TOW_SCATTER_SET, x, places, update, &dims, TOW_INDEX_CLIP, true);
    r->y[0] = (tow__mapped){.value = x, .axis = 0};
}

void tow__batch_dynamic_update_slice(tow__batch *r)
{
    tow_value start[TOW_MAX_RANK + 1];
    if (!starts_are_batched(r, 2)) {
        int axis = tow__is_batched(r->x[0]) ? r->x[0].axis : r->x[1].axis;
        shared_starts(r, 2, axis, start);
        tow_value x = tow__batch_operand(r, 0, axis), update = tow__batch_operand(r, 1, axis);
        r->y[0] = (tow__mapped){.value = tow_dynamic_update_slice(x, update, start), .axis = axis};
        return;
    }
    int lead = leading_axes(r->in[0], r->in[1].dims);
    if (lead == 0)
        r->y[0] = r->x[1];
    else if (tow_type_element_count(r->in[1]) == 0)
        r->y[0] = r->x[0];
    else
        update_by_rows(r, lead);
}

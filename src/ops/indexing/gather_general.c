/* gather_general: windows of an array at computed places, as XLA's Gather. Linear in the array; keeps the indices. */
#include <math.h>

#include "src/ops/indexing/indexing.h"
#include "src/ops/indexing/windows.h"
#include "src/ops/rules.h"

/* ---- type -------------------------------------------------------------------------------------------------------- */

/* [batch axes of the indices, window], the window at offset_dims */
static tow_status gather_shape(const tow__typing *ty, tow_type *y)
{
    const tow__gather_params *p = ty->params;
    tow_type x = ty->in[0], indices = ty->in[1];
    int rank = indices.rank - 1 + p->offset_dims.n;
    if (rank > TOW_MAX_RANK)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "the result would have rank %d, at most %d is possible", rank,
                              TOW_MAX_RANK);
    tow_status status = tow__require_distinct(ty, "offset_dims", &p->offset_dims, rank, true);
    if (status != TOW_OK) return status;
    *y = (tow_type){.dtype = x.dtype, .rank = rank};
    for (int d = 0, batch = 0, window = 0; d < rank; d++) {
        if (!tow__ints_contain(&p->offset_dims, d)) {
            y->dims[d] = indices.dims[batch++];
            continue;
        }
        while (tow__no_window_axis(&p->collapsed_slice_dims, &p->operand_batching_dims, window)) window++;
        y->dims[d] = p->slice_sizes.v[window++];
    }
    return tow__require_valid(ty, *y);
}

static tow_status slice_sizes_fit(const tow__typing *ty)
{
    const tow__gather_params *p = ty->params;
    tow_type x = ty->in[0];
    for (int d = 0; d < x.rank; d++) {
        bool none = tow__no_window_axis(&p->collapsed_slice_dims, &p->operand_batching_dims, d);
        int64_t size = p->slice_sizes.v[d];
        if (none && size != 1)
            return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                                  "axis %d is collapsed or a batching axis, so its slice size must be 1, found %lld", d,
                                  (long long)size);
        if (size < 0 || (size > x.dims[d] && tow_type_element_count(ty->in[1]) > 0))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "axis %d: a slice of size %lld does not fit into %s", d,
                                  (long long)size, tow__type_name(x).text);
    }
    return TOW_OK;
}

static tow_status gather_type(const tow__typing *ty)
{
    const tow__gather_params *p = ty->params;
    const tow__windows w = {&p->collapsed_slice_dims, &p->operand_batching_dims, &p->start_indices_batching_dims,
                            &p->start_index_map};
    tow_type x = ty->in[0];
    tow_status status = tow__require_windows(ty, &w);
    if (status != TOW_OK) return status;
    if (p->slice_sizes.n != x.rank)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "slice_sizes need one entry for each axis of %s, found %d",
                              tow__type_name(x).text, p->slice_sizes.n);
    if (p->offset_dims.n + p->collapsed_slice_dims.n + p->operand_batching_dims.n != x.rank)
        return tow__type_fail(
            ty, TOW_INVALID_ARGUMENT,
            "each of the %d axes of %s must be in the window, collapsed or a batching axis, found %d, "
            "%d and %d",
            x.rank, tow__type_name(x).text, p->offset_dims.n, p->collapsed_slice_dims.n, p->operand_batching_dims.n);
    if (p->clip && p->fill)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "windows outside are clipped or filled; set one of both");
    if (p->fill && !tow__holds(x.dtype, p->fill_value))
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "fill_value %g is not a number of type %s", p->fill_value,
                              tow_dtype_name(x.dtype));
    status = slice_sizes_fit(ty);
    return status == TOW_OK ? gather_shape(ty, &ty->out[0]) : status;
}

/* ---- derivatives ------------------------------------------------------------------------------------------------- */

tow_value tow__bind_gather(tow_value x, tow_value indices, const tow__gather_params *p)
{
    return tow__op(&tow__gather_general_p, p, 2, (tow_value[]){x, indices});
}

/* Windows that are filled are constant. */
static void gather_jvp(tow__jvp *r)
{
    tow__gather_params p = *(const tow__gather_params *)r->e->params;
    tow__jvp_primal(r);
    p.fill_value = 0;
    if (!tow_is_null(r->dx[0])) r->dy[0] = tow__bind_gather(r->dx[0], r->x[1], &p);
}

/* Adds to the cotangent that has been accumulated for the array. If windows are neither filled nor clipped, those
 * outside are read at the edge, but get no gradient, as in JAX. */
static void gather_transpose(tow__transpose *r)
{
    const tow__gather_params *p = r->e->params;
    tow__scatter_params s = {p->offset_dims,
                             p->collapsed_slice_dims,
                             p->operand_batching_dims,
                             p->start_indices_batching_dims,
                             p->start_index_map,
                             p->clip,
                             false};
    tow_value sum = tow_is_null(r->dx[0]) ? tow__zeros(r->t, r->in_types[0]) : r->dx[0];
    r->dx[0] = tow__op(&tow__scatter_general_add_p, &s, 3, (tow_value[]){sum, r->x[1], r->ct[0]});
}

/* ---- tiling ------------------------------------------------------------------------------------------------------ */

/* Axes of the indices pass; those of the window, whose sizes are parameters, do not. */
static bool tile_gather(const tow__operation *o, int axis, int *from)
{
    const tow__gather_params *p = o->params;
    int batch = 0;
    if (tow__ints_contain(&p->offset_dims, axis)) return false;
    for (int d = 0; d < axis; d++) batch += !tow__ints_contain(&p->offset_dims, d);
    from[0] = TOW__WHOLE;
    from[1] = batch;
    for (int i = 0; i < p->start_indices_batching_dims.n; i++)
        if (p->start_indices_batching_dims.v[i] == batch) from[0] = (int)p->operand_batching_dims.v[i];
    return true;
}

/* ---- batching: the batch axis of the array joins the window, or goes along with that of the indices -------------- */

static void gather_batch(tow__batch *r)
{
    tow__gather_params p = *(const tow__gather_params *)r->e->params;
    bool of_array = tow__is_batched(r->x[0]), of_indices = tow__is_batched(r->x[1]);
    tow_value in[2] = {of_array ? tow__batch_operand(r, 0, 0) : r->x[0].value,
                       of_indices ? tow__batch_operand(r, 1, 0) : r->x[1].value};
    p.offset_dims = tow__all_shifted(p.offset_dims, 0);
    if (of_array) {
        p.collapsed_slice_dims = tow__all_shifted(p.collapsed_slice_dims, 0);
        p.operand_batching_dims = tow__all_shifted(p.operand_batching_dims, 0);
        p.start_index_map = tow__all_shifted(p.start_index_map, 0);
        p.slice_sizes = tow__with_entry(p.slice_sizes, 0, of_indices ? 1 : r->size);
    }
    if (of_indices) p.start_indices_batching_dims = tow__all_shifted(p.start_indices_batching_dims, 0);
    if (of_array && of_indices) {
        p.operand_batching_dims = tow__with_entry(p.operand_batching_dims, 0, 0);
        p.start_indices_batching_dims = tow__with_entry(p.start_indices_batching_dims, 0, 0);
    }
    if (!of_indices) p.offset_dims = tow__with_entry(p.offset_dims, 0, 0);
    tow__batch_bind(r, &p, in, 0);
}

TOW__PRIMITIVE(gather_general, TOW__MOVE, tile_gather, tow__element_cost, .operands = "x, indices", .inputs = 2,
               .outputs = 1, .continues = true, .type = gather_type, .jvp = gather_jvp, .transpose = gather_transpose,
               .batch = gather_batch,
               TOW__PARAMS(tow__gather_params, TOW__PARAM(tow__gather_params, offset_dims, TOW__P_INTS),
                           TOW__PARAM(tow__gather_params, collapsed_slice_dims, TOW__P_INTS),
                           TOW__PARAM(tow__gather_params, operand_batching_dims, TOW__P_INTS),
                           TOW__PARAM(tow__gather_params, start_indices_batching_dims, TOW__P_INTS),
                           TOW__PARAM(tow__gather_params, start_index_map, TOW__P_INTS),
                           TOW__PARAM(tow__gather_params, slice_sizes, TOW__P_INTS),
                           TOW__PARAM(tow__gather_params, clip, TOW__P_BOOL),
                           TOW__PARAM(tow__gather_params, fill, TOW__P_BOOL),
                           TOW__PARAM(tow__gather_params, fill_value, TOW__P_FLOAT)));

/* ---- public functions -------------------------------------------------------------------------------------------- */

double tow__usual_fill(tow_dtype dtype)
{
    const int bits = 8 * (int)tow_dtype_size(dtype);
    if (tow_dtype_is_float(dtype)) return (double)NAN;
    if (dtype == TOW_BOOL) return 1;
    if (tow__dtype_in(dtype, TOW__SIGNED)) return -ldexp(1, bits - 1);
    return bits == 64 ? 0x1p64 : ldexp(1, bits) - 1; /* the greatest u64, which is no double: what becomes it */
}

tow_value tow_gather_general(tow_value x, tow_value indices, const tow_gather_dims *dims, const int64_t *slice_sizes,
                             tow_index_mode mode, const double *fill)
{
    if (tow__any_null(2, (tow_value[]){x, indices})) return tow__null();
    tow_type type = tow_value_type(x);
    if (!tow__given(x, "gather_general", dims && (slice_sizes || type.rank == 0), "dimension numbers and slice sizes"))
        return tow__null();
    tow__gather_params p = {.slice_sizes = tow__ints_of(type.rank, slice_sizes),
                            .clip = mode == TOW_INDEX_CLIP,
                            .fill = mode == TOW_INDEX_FILL};
    if (p.fill) p.fill_value = fill ? *fill : tow__usual_fill(type.dtype);
    bool fits = tow__list(dims->n_offset, dims->offset_dims, &p.offset_dims) &&
                tow__list(dims->n_collapsed, dims->collapsed_slice_dims, &p.collapsed_slice_dims) &&
                tow__list(dims->n_batching, dims->operand_batching_dims, &p.operand_batching_dims) &&
                tow__list(dims->n_batching, dims->start_indices_batching_dims, &p.start_indices_batching_dims) &&
                tow__list(dims->n_index, dims->start_index_map, &p.start_index_map);
    if (!fits || (unsigned)mode > TOW_INDEX_FILL)
        return tow__op_fail(x, "gather_general", TOW_INVALID_ARGUMENT,
                            "expected 0 to %d axes in each list and a mode of tow_index_mode", TOW_MAX_RANK);
    return tow__bind_gather(x, indices, &p);
}

tow_gather_dims tow__along_dims(int rank, int axis)
{
    tow_gather_dims dims = {.n_collapsed = 1, .n_index = 1};
    dims.collapsed_slice_dims[0] = dims.start_index_map[0] = axis;
    for (int d = 0; d < rank; d++) {
        if (d == axis) continue;
        dims.operand_batching_dims[dims.n_batching] = d;
        dims.start_indices_batching_dims[dims.n_batching++] = d;
    }
    return dims;
}

/* Takes along the last axis of matrices, for arrays that have no room for the axis of the index vectors. */
static tow_value take_along_rows(tow_value x, tow_value indices, int axis)
{
    tow_type type = tow_value_type(indices);
    int last[TOW_MAX_RANK], back[TOW_MAX_RANK], n = 0;
    for (int d = 0; d < type.rank; d++)
        if (d != axis) last[n++] = d;
    last[n] = axis;
    for (int d = 0; d < type.rank; d++) back[last[d]] = d;
    tow_value v[2] = {tow_transpose(x, type.rank, last), tow_transpose(indices, type.rank, last)};
    tow_type moved = tow_value_type(v[1]);
    for (int i = 0; i < 2 && !tow__any_null(2, v); i++) {
        tow_type t = tow_value_type(v[i]);
        int64_t size = t.dims[t.rank - 1], rows = 1;
        for (int d = 0; d + 1 < t.rank; d++) rows *= t.dims[d];
        v[i] = tow_reshape(v[i], 2, (int64_t[]){rows, size});
    }
    tow_value y = tow__take_at(v[0], tow__index_vectors(v[1]), 1);
    return tow_transpose(tow_reshape(y, moved.rank, moved.dims), type.rank, back);
}

tow_value tow__index_vectors(tow_value indices)
{
    return tow_value_type(indices).rank == TOW_MAX_RANK ? indices : tow_expand_dims(indices, -1);
}

tow_value tow__take_at(tow_value x, tow_value vectors, int axis)
{
    int rank = tow_value_type(x).rank;
    const int64_t ones[TOW_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (tow__any_null(2, (tow_value[]){x, vectors})) return tow__null();
    if (rank == TOW_MAX_RANK) return take_along_rows(x, vectors, axis);
    tow_gather_dims dims = tow__along_dims(rank, axis);
    return tow_gather_general(x, vectors, &dims, ones, TOW_INDEX_IN_BOUNDS, NULL);
}

/* Primitives with computed positions: gather, scatter_add, index_add, dynamic_slice, dynamic_update_slice. They are
 * linear in their float operands and keep the indices, never the arrays that are read or written. */
#include "src/ops/indexing/dynamic_slice.h"
#include "src/ops/rules.h"

static tow_value bind_gather(tow_value table, tow_value indices)
{
    return tow__op(&tow__gather_p, NULL, 2, (tow_value[]){table, indices});
}

static tow_value bind_scatter(tow_value indices, tow_value updates, int64_t rows)
{
    return tow__op(&tow__scatter_add_p, &(tow__rows_params){rows}, 2, (tow_value[]){indices, updates});
}

static tow_value bind_index_add(tow_value x, tow_value indices, tow_value updates)
{
    return tow__op(&tow__index_add_p, NULL, 3, (tow_value[]){x, indices, updates});
}

/* ---- rows of many tables as rows of one -------------------------------------------------------------------------- */

/* True if all rows of r->size tables, and one beyond, can be counted in i32. */
static bool countable(const tow__batch *r, int64_t rows) { return rows == 0 || r->size < INT32_MAX / rows; }

/* [n, rows, ...] -> [n rows, ...] */
static tow_value join_tables(tow_value x)
{
    tow_type type = tow_value_type(x);
    type.dims[1] *= type.dims[0];
    return tow_reshape(x, type.rank - 1, type.dims + 1);
}

/* [n rows, ...] -> [n, rows, ...] */
static tow_value part_tables(tow_value x, int64_t n, int64_t rows)
{
    tow_type type = tow_value_type(x);
    if (tow_is_null(x)) return x;
    type.dims[0] = rows;
    type = tow__with_axis(type, 0, n);
    return tow_reshape(x, type.rank, type.dims);
}

/* True where the index names one of so many rows. */
static tow_value names_row(tow_value indices, double rows)
{
    indices = tow__index_words(indices);
    tow_value inside = tow_lt(indices, tow_full_like(indices, rows));
    if (tow__dtype_in(tow__dtype(indices), TOW__UNSIGNED)) return inside;
    return tow_and(inside, tow_ge(indices, tow_full_like(indices, -rows)));
}

/* indices [n, I...] into n tables of so many rows -> indices into the joined one; what is outside stays outside. */
static tow_value joined_indices(tow_value indices, int64_t rows)
{
    indices = tow__index_words(indices);
    tow_type type = tow_value_type(indices);
    if (tow_is_null(indices)) return indices;
    tow_value count = tow_full_like(indices, (double)rows), row = indices;
    tow_value outside = tow_full_like(indices, (double)(type.dims[0] * rows));
    if (tow__dtype_in(type.dtype, TOW__SIGNED))
        row = tow_where(tow_lt(row, tow_zeros_like(row)), tow_add(row, count), row);
    row = tow_add(row, tow_mul(tow_iota(indices.trace, type, 0), count));
    return tow_where(names_row(indices, (double)rows), row, outside);
}

/* ---- gather(table [V, ...], indices [I...]) -> [I..., ...] ------------------------------------------------------- */

static tow_status gather_type(const tow__typing *ty)
{
    tow_type table = ty->in[0], indices = ty->in[1];
    tow_status status = tow__require_dtype(ty, 1, TOW__INTEGERS);
    if (status != TOW_OK) return status;
    if (table.rank == 0)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "the table needs a leading axis of rows, found %s",
                              tow__type_name(table).text);
    if (indices.rank + table.rank - 1 > TOW_MAX_RANK)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "the result would have rank %d, at most %d is possible; reshape the indices",
                              indices.rank + table.rank - 1, TOW_MAX_RANK);
    tow_type y = {.dtype = table.dtype, .rank = indices.rank + table.rank - 1};
    for (int d = 0; d < indices.rank; d++) y.dims[d] = indices.dims[d];
    for (int d = 1; d < table.rank; d++) y.dims[indices.rank + d - 1] = table.dims[d];
    ty->out[0] = y;
    return tow__require_valid(ty, y);
}

/* Rows of x, zeros where the index is outside. */
static tow_value rows_inside(tow_value x, tow_value indices)
{
    int axes[TOW_MAX_RANK];
    double rows = (double)tow_value_type(x).dims[0];
    for (int d = 0; d < tow_value_type(indices).rank; d++) axes[d] = d;
    tow_value found = bind_gather(x, indices), inside = names_row(indices, rows);
    tow_type type = tow_value_type(found);
    inside = tow_broadcast_in_dim(inside, type.rank, type.dims, axes);
    return tow_where(inside, found, tow_zeros_like(found));
}

/* The rows outside are NaN whatever the table is: their tangents are zeros. In reverse mode one equation says so, whose
 * transpose drops them as that of gather does; only linearize leaves it in a graph. */
static void gather_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    if (tow_is_null(r->dx[0])) return;
    r->dy[0] = r->reverse ? tow__op(&tow__gather_jvp_p, NULL, 2, (tow_value[]){r->dx[0], r->x[1]})
                          : rows_inside(r->dx[0], r->x[1]);
}

static void gather_jvp_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t, (void)e;
    y[0] = rows_inside(x[0], x[1]);
}

/* Adds to what has been accumulated for the table, which may be much larger than the rows that were read. */
static void gather_transpose(tow__transpose *r)
{
    r->dx[0] = tow_is_null(r->dx[0]) ? bind_scatter(r->x[1], r->ct[0], r->in_types[0].dims[0])
                                     : bind_index_add(r->dx[0], r->x[1], r->ct[0]);
}

/* Batched indices are more indices. Of a batched table, an index names a row [rows, ...]; of both, a row of the joined
 * tables. */
static void gather_batch(tow__batch *r)
{
    const tow__mapped *table = &r->x[0], *indices = &r->x[1];
    int64_t rows = r->in[0].dims[0];
    tow_value in[2] = {table->value, indices->value};
    if (!tow__is_batched(*table)) {
        tow__batch_bind(r, NULL, in, indices->axis);
    } else if (!tow__is_batched(*indices)) {
        in[0] = tow__batch_operand(r, 0, 1);
        tow__batch_bind(r, NULL, in, r->in[1].rank);
    } else if (!countable(r, rows)) {
        r->looped(r);
    } else {
        in[0] = join_tables(tow__batch_operand(r, 0, 0));
        in[1] = joined_indices(tow__batch_operand(r, 1, 0), rows);
        tow__batch_bind(r, NULL, in, 0);
    }
}

/* (table [V, ...], indices [I...]) -> [I..., ...] */
static bool tile_gather(const tow__operation *o, int axis, int *from)
{
    int indices = tow__in_type(o, 1)->rank;
    from[0] = axis < indices ? TOW__WHOLE : axis - indices + 1;
    from[1] = axis < indices ? axis : TOW__WHOLE;
    return true;
}

TOW__PRIMITIVE(gather, TOW__MOVE, tile_gather, tow__element_cost, .takes_blocks = true, .operands = "table, indices",
               .inputs = 2, .outputs = 1, .continues = true, .type = gather_type, .jvp = gather_jvp,
               .transpose = gather_transpose, .batch = gather_batch);
/* The same with zeros for the rows outside. */
TOW__PRIMITIVE(gather_jvp, TOW__COMPOSITE, tile_gather, tow__element_cost, .operands = "dtable, indices", .inputs = 2,
               .outputs = 1, .continues = true, .type = gather_type, .jvp = gather_jvp, .transpose = gather_transpose,
               .batch = gather_batch, .decompose = gather_jvp_decompose);

tow_value tow_gather(tow_value table, tow_value indices) { return bind_gather(table, indices); }

/* ---- scatter_add(indices [I...], updates [I..., ...]) -> [rows, ...] --------------------------------------------- */

static tow_status require_updates(const tow__typing *ty, tow_type indices, tow_type updates)
{
    bool fits = updates.rank >= indices.rank;
    for (int d = 0; fits && d < indices.rank; d++) fits = updates.dims[d] == indices.dims[d];
    if (!fits)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "the updates must have the axes of the indices first: found indices %s and "
                              "updates %s",
                              tow__type_name(indices).text, tow__type_name(updates).text);
    return TOW_OK;
}

static tow_status scatter_type(const tow__typing *ty)
{
    int64_t rows = ((const tow__rows_params *)ty->params)->rows;
    tow_type indices = ty->in[0], updates = ty->in[1];
    tow_status status = tow__require_dtype(ty, 0, TOW__INTEGERS);
    if (status == TOW_OK) status = tow__require_dtype(ty, 1, TOW__NUMBERS);
    if (status != TOW_OK) return status;
    if (rows < 0)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "rows must not be negative, found %lld", (long long)rows);
    status = require_updates(ty, indices, updates);
    if (status != TOW_OK) return status;
    if (updates.rank - indices.rank + 1 > TOW_MAX_RANK)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "the result would have rank %d, at most %d is possible",
                              TOW_MAX_RANK + 1, TOW_MAX_RANK);
    tow_type y = {.dtype = updates.dtype, .rank = updates.rank - indices.rank + 1, .dims = {rows}};
    for (int d = indices.rank; d < updates.rank; d++) y.dims[d - indices.rank + 1] = updates.dims[d];
    ty->out[0] = y;
    return tow__require_valid(ty, y);
}

static void scatter_transpose(tow__transpose *r) { r->dx[1] = rows_inside(r->ct[0], r->x[0]); }

/* As that of gather. */
static void scatter_batch(tow__batch *r)
{
    int64_t rows = ((const tow__rows_params *)r->e->params)->rows;
    if (!tow__is_batched(r->x[0])) {
        tow_value in[2] = {r->x[0].value, tow__batch_operand(r, 1, r->in[0].rank)};
        tow__batch_bind(r, r->e->params, in, 1);
    } else if (!countable(r, rows)) {
        r->looped(r);
    } else {
        tow_value indices = joined_indices(tow__batch_operand(r, 0, 0), rows);
        tow_value sums = bind_scatter(indices, tow__batch_operand(r, 1, 0), r->size * rows);
        r->y[0] = (tow__mapped){.value = part_tables(sums, r->size, rows), .axis = 0};
    }
}

/* Axes of the indices: rows are added to those at hand. */
static bool sum_scatter(const tow__operation *o, uint32_t i, int axis, int *from)
{
    from[0] = from[1] = axis;
    return i < 2 && axis < o->in[0].type.rank;
}

TOW__PRIMITIVE(scatter_add, TOW__MOVE, tow__no_tiling, tow__element_cost, .sums = sum_scatter,
               .operands = "indices, updates", .of_result = true, .inputs = 2, .outputs = 1, .type = scatter_type,
               .transpose = scatter_transpose, .batch = scatter_batch,
               TOW__PARAMS(tow__rows_params, TOW__PARAM(tow__rows_params, rows, TOW__P_INT)));

tow_value tow_scatter_add(tow_value indices, tow_value updates, int64_t rows)
{
    return bind_scatter(indices, updates, rows);
}

/* ---- index_add(x [V, ...], indices [I...], updates [I..., ...]) -> [V, ...]; linear in x and updates together ---- */

static tow_status index_add_type(const tow__typing *ty)
{
    tow_type x = ty->in[0], indices = ty->in[1], updates = ty->in[2];
    tow_status status = tow__require_dtype(ty, 0, TOW__NUMBERS);
    if (status == TOW_OK) status = tow__require_dtype(ty, 1, TOW__INTEGERS);
    if (status == TOW_OK) status = require_updates(ty, indices, updates);
    if (status != TOW_OK) return status;
    bool fits = x.rank > 0 && x.dtype == updates.dtype && x.rank == updates.rank - indices.rank + 1;
    for (int d = 1; fits && d < x.rank; d++) fits = x.dims[d] == updates.dims[indices.rank + d - 1];
    if (!fits)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "the updates must be rows of the operand, one for each index: found operand %s, indices "
                              "%s and updates %s",
                              tow__type_name(x).text, tow__type_name(indices).text, tow__type_name(updates).text);
    ty->out[0] = x;
    return TOW_OK;
}

static void index_add_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    if (tow_is_null(r->dx[2]))
        r->dy[0] = r->dx[0];
    else if (tow_is_null(r->dx[0]))
        r->dy[0] = bind_scatter(r->x[1], r->dx[2], tow_value_type(r->x[0]).dims[0]);
    else
        r->dy[0] = bind_index_add(r->dx[0], r->x[1], r->dx[2]);
}

static void index_add_transpose(tow__transpose *r)
{
    if (r->linear[0]) r->dx[0] = r->ct[0];
    if (r->linear[2]) r->dx[2] = rows_inside(r->ct[0], r->x[1]);
}

/* As that of gather. */
static void index_add_batch(tow__batch *r)
{
    int64_t rows = r->in[0].dims[0];
    if (!tow__is_batched(r->x[1])) {
        tow_value in[3] = {tow__batch_operand(r, 0, 1), r->x[1].value, tow__batch_operand(r, 2, r->in[1].rank)};
        tow__batch_bind(r, NULL, in, 1);
    } else if (!countable(r, rows)) {
        r->looped(r);
    } else {
        tow_value indices = joined_indices(tow__batch_operand(r, 1, 0), rows);
        tow_value sums = bind_index_add(join_tables(tow__batch_operand(r, 0, 0)), indices, tow__batch_operand(r, 2, 0));
        r->y[0] = (tow__mapped){.value = part_tables(sums, r->size, rows), .axis = 0};
    }
}

/* Updates, and what they change, read and written. */
static tow__op_cost index_add_cost(const tow__operation *o)
{
    return (tow__op_cost){.estimate = TOW__PER_ELEMENT * 3 * tow__elements(&o->in[2])};
}

TOW__PRIMITIVE(index_add, TOW__MOVE, tow__no_tiling, index_add_cost, .aliasing = TOW__ALIAS_FIRST,
               .operands = "x, indices, updates", .inputs = 3, .outputs = 1, .type = index_add_type,
               .jvp = index_add_jvp, .transpose = index_add_transpose, .batch = index_add_batch);

tow_value tow_index_add(tow_value x, tow_value indices, tow_value updates)
{
    return bind_index_add(x, indices, updates);
}

/* ---- dynamic_slice(x, one i32 start per axis): starts are clamped so that the slice lies inside ------------------ */

/* Operands first .. are one i32 scalar for each axis of operand 0. */
static tow_status starts_type(const tow__typing *ty, size_t first)
{
    tow_status status = tow__require_count(ty, first + (size_t)ty->in[0].rank, 1);
    for (size_t i = first; status == TOW_OK && i < ty->n_in; i++) {
        status = tow__require_dtype(ty, i, 1 << TOW_I32);
        if (status == TOW_OK) status = tow__require_rank(ty, i, 0);
    }
    return status;
}

static tow_status sizes_fit(const tow__typing *ty, const int64_t *sizes)
{
    for (int d = 0; d < ty->in[0].rank; d++)
        if (sizes[d] < 0 || sizes[d] > ty->in[0].dims[d])
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "axis %d: a slice of size %lld does not fit into %s", d,
                                  (long long)sizes[d], tow__type_name(ty->in[0]).text);
    return TOW_OK;
}

static tow_status dynamic_slice_type(const tow__typing *ty)
{
    const tow__sizes_params *p = ty->params;
    if (ty->n_in == 0) return tow__require_count(ty, 1, 1);
    tow_status status = starts_type(ty, 1);
    if (status != TOW_OK) return status;
    if (p->sizes.n != ty->in[0].rank)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "sizes need one entry for each of the %d axes, found %d",
                              ty->in[0].rank, p->sizes.n);
    ty->out[0] = tow_make_type(ty->in[0].dtype, p->sizes.n, p->sizes.v);
    return sizes_fit(ty, p->sizes.v);
}

static void dynamic_slice_transpose(tow__transpose *r)
{
    r->dx[0] = tow_dynamic_update_slice(tow__zeros(r->t, r->in_types[0]), r->ct[0], r->x + 1);
}

TOW__PRIMITIVE(dynamic_slice, TOW__MOVE, tow__no_tiling, tow__element_cost, .takes_blocks = true,
               .operands = "x, start...", .inputs = -1, .outputs = 1, .type = dynamic_slice_type,
               .transpose = dynamic_slice_transpose, .batch = tow__batch_dynamic_slice,
               TOW__PARAMS(tow__sizes_params, TOW__PARAM(tow__sizes_params, sizes, TOW__P_INTS)));

/* A start of any integer type as i32: clamped into its range, beyond which no slice begins. */
static tow_value start_of(tow_value start)
{
    start = tow__index_words(start);
    if (tow_is_null(start) || !tow_dtype_is_integer(tow__dtype(start))) return start;
    const bool is_signed = tow__dtype_in(tow__dtype(start), TOW__SIGNED);
    if (tow__dtype(start) != TOW_I32)
        start = tow_clamp(tow_full_like(start, is_signed ? INT32_MIN : 0), start, tow_full_like(start, INT32_MAX));
    return tow_convert(start, TOW_I32);
}

tow_value tow_dynamic_slice(tow_value x, const tow_value *start, const int64_t *sizes)
{
    if (tow_is_null(x)) return x;
    int rank = tow_value_type(x).rank;
    if (!tow__given(x, "dynamic_slice", rank == 0 || (start && sizes), "start and size of each axis"))
        return tow__null();
    tow_value v[1 + TOW_MAX_RANK] = {x};
    for (int d = 0; d < rank; d++) v[1 + d] = start_of(start[d]);
    return tow__op(&tow__dynamic_slice_p, &(tow__sizes_params){tow__ints_of(rank, sizes)}, 1 + (size_t)rank, v);
}

/* ---- dynamic_update_slice(x, update, starts...): x with a part replaced; linear in x and update together --------- */

static tow_status dynamic_update_slice_type(const tow__typing *ty)
{
    if (ty->n_in < 2) return tow__require_count(ty, 2, 1);
    tow_status status = starts_type(ty, 2);
    if (status != TOW_OK) return status;
    if (ty->in[1].dtype != ty->in[0].dtype || ty->in[1].rank != ty->in[0].rank)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "the update must have the element type and rank of the operand, found %s and %s",
                              tow__type_name(ty->in[0]).text, tow__type_name(ty->in[1]).text);
    ty->out[0] = ty->in[0];
    return sizes_fit(ty, ty->in[1].dims);
}

static void dynamic_update_slice_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    r->dy[0] = tow_dynamic_update_slice(tow__or_zeros(r->dx[0], r->x[0]), tow__or_zeros(r->dx[1], r->x[1]), r->x + 2);
}

static void dynamic_update_slice_transpose(tow__transpose *r)
{
    if (r->linear[0]) r->dx[0] = tow_dynamic_update_slice(r->ct[0], tow__zeros(r->t, r->in_types[1]), r->x + 2);
    if (r->linear[1]) r->dx[1] = tow_dynamic_slice(r->ct[0], r->x + 2, r->in_types[1].dims);
}

TOW__PRIMITIVE(dynamic_update_slice, TOW__MOVE, tow__no_tiling, tow__element_cost, .takes_blocks = true,
               .aliasing = TOW__ALIAS_FIRST, .operands = "x, update, start...", .inputs = -1, .outputs = 1,
               .type = dynamic_update_slice_type, .jvp = dynamic_update_slice_jvp,
               .transpose = dynamic_update_slice_transpose, .batch = tow__batch_dynamic_update_slice);

tow_value tow_dynamic_update_slice(tow_value x, tow_value update, const tow_value *start)
{
    if (tow_is_null(x)) return x;
    int rank = tow_value_type(x).rank;
    if (!tow__given(x, "dynamic_update_slice", rank == 0 || start, "a start for each axis")) return tow__null();
    tow_value v[2 + TOW_MAX_RANK] = {x, update};
    for (int d = 0; d < rank; d++) v[2 + d] = start_of(start[d]);
    return tow__op(&tow__dynamic_update_slice_p, NULL, 2 + (size_t)rank, v);
}

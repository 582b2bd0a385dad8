/* scatter_general and scatter_general_add, _mul, _min, _max: windows of an array replaced by updates or combined with
 * them at computed places, as XLA's Scatter, in the row-major order of the places.
 *
 * The first two are linear in the array and the updates together and keep the indices alone. */
#include <math.h>

#include "src/ops/indexing/indexing.h"
#include "src/ops/indexing/windows.h"
#include "src/ops/rules.h"

/* ---- type -------------------------------------------------------------------------------------------------------- */

/* The updates have the batch axes of the indices and, at update_window_dims, those of the window. */
static tow_status updates_fit(const tow__typing *ty)
{
    const tow__scatter_params *p = ty->params;
    tow_type x = ty->in[0], indices = ty->in[1], updates = ty->in[2];
    tow_status status = tow__require_rank(ty, 2, indices.rank - 1 + p->update_window_dims.n);
    if (status == TOW_OK)
        status = tow__require_distinct(ty, "update_window_dims", &p->update_window_dims, updates.rank, true);
    if (status != TOW_OK) return status;
    for (int d = 0, batch = 0, axis = 0; d < updates.rank; d++) {
        if (!tow__ints_contain(&p->update_window_dims, d)) {
            if (updates.dims[d] != indices.dims[batch])
                return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                      "axis %d of the updates %s goes along axis %d of the indices %s; both must have "
                                      "one size",
                                      d, tow__type_name(updates).text, batch, tow__type_name(indices).text);
            batch++;
            continue;
        }
        while (tow__no_window_axis(&p->inserted_window_dims, &p->operand_batching_dims, axis)) axis++;
        if (updates.dims[d] > x.dims[axis])
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                  "axis %d of the updates %s does not fit into axis %d of operand 0, %s", d,
                                  tow__type_name(updates).text, axis, tow__type_name(x).text);
        axis++;
    }
    return TOW_OK;
}

static tow_status scatter_type_of(const tow__typing *ty, unsigned dtypes)
{
    const tow__scatter_params *p = ty->params;
    const tow__windows w = {&p->inserted_window_dims, &p->operand_batching_dims, &p->scatter_indices_batching_dims,
                            &p->scatter_dims_to_operand_dims};
    tow_type x = ty->in[0];
    tow_status status = tow__require_dtype(ty, 0, dtypes);
    if (status == TOW_OK) status = tow__require_windows(ty, &w);
    if (status != TOW_OK) return status;
    if (ty->in[2].dtype != x.dtype)
        return tow__type_fail(ty, TOW_TYPE_MISMATCH,
                              "array and updates must have one element type, found %s and %s; convert one with "
                              "tow_convert",
                              tow__type_name(x).text, tow__type_name(ty->in[2]).text);
    if (p->update_window_dims.n + p->inserted_window_dims.n + p->operand_batching_dims.n != x.rank)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "each of the %d axes of %s must be in the window, inserted or a batching axis, found %d, "
                              "%d and %d",
                              x.rank, tow__type_name(x).text, p->update_window_dims.n, p->inserted_window_dims.n,
                              p->operand_batching_dims.n);
    ty->out[0] = x;
    return updates_fit(ty);
}

static tow_status scatter_type(const tow__typing *ty) { return scatter_type_of(ty, TOW__ANY_OR_BLOCKS); }
static tow_status scatter_number_type(const tow__typing *ty) { return scatter_type_of(ty, TOW__NUMBERS); }

/* ---- helpers of derivatives -------------------------------------------------------------------------------------- */

static tow_value bind(const tow_primitive *op, tow_value x, tow_value indices, tow_value updates,
                      const tow__scatter_params *p)
{
    return tow__op(op, p, 3, (tow_value[]){x, indices, updates});
}

/* The elements of x that the scatter of `updates` reads or writes, in the updates' shape; where it drops them,
 * `fill`. */
static tow_value windows_of(tow_value x, tow_value indices, tow_type updates, const tow__scatter_params *p, double fill)
{
    tow__gather_params g = {p->update_window_dims, p->inserted_window_dims, p->operand_batching_dims,
                            p->scatter_indices_batching_dims, p->scatter_dims_to_operand_dims};
    g.clip = p->clip;
    g.fill = !p->clip;
    g.fill_value = g.fill ? fill : 0;
    tow_type type = tow_value_type(x);
    g.slice_sizes.n = type.rank;
    for (int d = 0, window = 0; d < type.rank; d++) {
        bool none = tow__no_window_axis(&p->inserted_window_dims, &p->operand_batching_dims, d);
        g.slice_sizes.v[d] = none ? 1 : updates.dims[p->update_window_dims.v[window++]];
    }
    return tow__bind_gather(x, indices, &g);
}

/* ---- set: ct without the windows; of the updates, ct where the update is the one that stayed --------------------- */

/* Finds the elements of the updates that are in the result: places are numbered, scattered and read back. */
static tow_value winners(tow__transpose *r, const tow__scatter_params *p)
{
    tow_type type = r->in_types[2], places = type, cells = r->in_types[0];
    for (int i = 0; i < p->update_window_dims.n; i++) places.dims[p->update_window_dims.v[i]] = 1;
    int64_t count = tow_type_element_count(places);
    cells.dtype = TOW_I32;
    tow_value numbers = tow_reshape(tow_iota(r->t, tow_make_type(TOW_I32, 1, &count), 0), places.rank, places.dims);
    numbers = tow_broadcast_to(numbers, type.rank, type.dims);
    tow_value last = bind(&tow__scatter_general_p, tow_full(r->t, cells, -1), r->x[1], numbers, p);
    return tow_eq(windows_of(last, r->x[1], type, p, -1), numbers);
}

static void scatter_transpose(tow__transpose *r)
{
    const tow__scatter_params *p = r->e->params;
    tow_type updates = r->in_types[2];
    if (r->linear[0]) r->dx[0] = bind(&tow__scatter_general_p, r->ct[0], r->x[1], tow__zeros(r->t, updates), p);
    if (!r->linear[2]) return;
    tow_value ct = windows_of(r->ct[0], r->x[1], updates, p, 0);
    r->dx[2] = p->unique_indices ? ct : tow_where(winners(r, p), ct, tow_zeros_like(ct));
}

/* ---- add: dx plus du at the same places -------------------------------------------------------------------------- */

static void add_jvp(tow__jvp *r)
{
    const tow__scatter_params *p = r->e->params;
    tow__jvp_primal(r);
    r->dy[0] = r->dx[0];
    if (tow_is_null(r->dx[2])) return;
    r->dy[0] = bind(&tow__scatter_general_add_p, tow__or_zeros(r->dx[0], r->x[0]), r->x[1], r->dx[2], p);
}

static void add_transpose(tow__transpose *r)
{
    const tow__scatter_params *p = r->e->params;
    if (r->linear[0]) r->dx[0] = r->ct[0];
    if (r->linear[2]) r->dx[2] = windows_of(r->ct[0], r->x[1], r->in_types[2], p, 0);
}

/* ---- mul: dx times u, plus x times du; keeps u and x for the other side ------------------------------------------ */

static void mul_jvp(tow__jvp *r)
{
    const tow__scatter_params *p = r->e->params;
    tow__jvp_primal(r);
    tow_value a = tow__null(), b = tow__null();
    if (!tow_is_null(r->dx[0])) a = bind(&tow__scatter_general_mul_p, r->dx[0], r->x[1], r->x[2], p);
    if (!tow_is_null(r->dx[2])) {
        if (!p->unique_indices) {
            tow__op_fail(r->y[0], "scatter_general_mul", TOW_UNSUPPORTED,
                         "the derivative with respect to updates needs unique_indices, the promise that no two windows "
                         "overlap");
            return;
        }
        tow_value zeros = tow_zeros_like(r->x[0]);
        b = tow_mul(r->x[0], bind(&tow__scatter_general_add_p, zeros, r->x[1], r->dx[2], p));
    }
    r->dy[0] = tow__add_or(a, b);
}

static void mul_transpose(tow__transpose *r)
{
    if (r->linear[0]) r->dx[0] = bind(&tow__scatter_general_mul_p, r->ct[0], r->x[1], r->x[2], r->e->params);
}

/* ---- min, max: the cotangent is shared by the element of x, if it is the result, and all updates that equal it --- */

/* With w = the result, n = the number of updates that equal it, k = that of all updates of an element, each read at the
 * updates' places: dx + scatter_add(dx c1 + du c2), c1 = ((x == w ? 1 / (n + 1) : 0) - 1) / k and
 * c2 = (u == w ? (x == w ? 1 / (n + 1) : 1 / n) : 0). Keeps c1 and c2, both of the size of the updates. Floats of 16
 * bits do not count far enough: n, k and what they divide are f32 there. */
static void extremum_jvp(tow__jvp *r)
{
    const tow__scatter_params *p = r->e->params;
    tow__jvp_primal(r);
    tow_value x = r->x[0], at = r->x[1], u = r->x[2];
    tow_type type = tow_value_type(u), cells = tow_value_type(x);
    const tow_dtype wide = cells.dtype = tow__wide(type.dtype);
    tow_value none = tow__zeros(r->t, cells), ones = tow_convert(tow_full_like(u, 1), wide);
    tow_value zeros = tow_zeros_like(ones), result = windows_of(r->y[0], at, type, p, (double)NAN);
    tow_value won = tow_eq(u, result), kept = tow_eq(windows_of(x, at, type, p, (double)NAN), result);
    tow_value n = bind(&tow__scatter_general_add_p, none, at, tow_convert(won, wide), p);
    tow_value k = bind(&tow__scatter_general_add_p, none, at, ones, p);
    n = windows_of(n, at, type, p, 1);
    k = windows_of(k, at, type, p, 1);
    tow_value share = tow_div(ones, tow_add(n, ones)), rest = tow_where(kept, share, zeros);
    tow_value c1 = tow_convert(tow_div(tow_sub(rest, ones), k), type.dtype);
    tow_value c2 = tow_convert(tow_where(won, tow_where(kept, share, tow_div(ones, n)), zeros), type.dtype);
    tow_value a = tow_is_null(r->dx[0]) ? tow__null() : tow_mul(windows_of(r->dx[0], at, type, p, 0), c1);
    tow_value b = tow_is_null(r->dx[2]) ? tow__null() : tow_mul(r->dx[2], c2);
    r->dy[0] = bind(&tow__scatter_general_add_p, tow__or_zeros(r->dx[0], x), at, tow__add_or(a, b), p);
}

/* ---- batching: the batch axis is one more axis of the window, or goes along with that of the indices ------------- */

static void scatter_batch(tow__batch *r)
{
    tow__scatter_params p = *(const tow__scatter_params *)r->e->params;
    bool of_indices = tow__is_batched(r->x[1]);
    tow_value in[3] = {tow__batch_operand(r, 0, 0), of_indices ? tow__batch_operand(r, 1, 0) : r->x[1].value,
                       tow__batch_operand(r, 2, 0)};
    p.update_window_dims = tow__all_shifted(p.update_window_dims, 0);
    p.inserted_window_dims = tow__all_shifted(p.inserted_window_dims, 0);
    p.operand_batching_dims = tow__all_shifted(p.operand_batching_dims, 0);
    p.scatter_dims_to_operand_dims = tow__all_shifted(p.scatter_dims_to_operand_dims, 0);
    if (of_indices) {
        p.scatter_indices_batching_dims = tow__all_shifted(p.scatter_indices_batching_dims, 0);
        p.scatter_indices_batching_dims = tow__with_entry(p.scatter_indices_batching_dims, 0, 0);
        p.operand_batching_dims = tow__with_entry(p.operand_batching_dims, 0, 0);
    } else {
        p.update_window_dims = tow__with_entry(p.update_window_dims, 0, 0);
    }
    tow__batch_bind(r, &p, in, 0);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

/* Updates, and what they change, read and written. */
static tow__op_cost scatter_cost(const tow__operation *o)
{
    return (tow__op_cost){.estimate = TOW__PER_ELEMENT * 3 * tow__elements(&o->in[2])};
}

#define SCATTER(name, rule, ...)                                                                                       \
    TOW__PRIMITIVE(name, TOW__MOVE, tow__no_tiling, scatter_cost, .aliasing = TOW__ALIAS_FIRST, .inputs = 3,           \
                   .outputs = 1, .operands = "x, indices, updates", .type = rule, .batch = scatter_batch,              \
                   TOW__PARAMS(tow__scatter_params, TOW__PARAM(tow__scatter_params, update_window_dims, TOW__P_INTS),  \
                               TOW__PARAM(tow__scatter_params, inserted_window_dims, TOW__P_INTS),                     \
                               TOW__PARAM(tow__scatter_params, operand_batching_dims, TOW__P_INTS),                    \
                               TOW__PARAM(tow__scatter_params, scatter_indices_batching_dims, TOW__P_INTS),            \
                               TOW__PARAM(tow__scatter_params, scatter_dims_to_operand_dims, TOW__P_INTS),             \
                               TOW__PARAM(tow__scatter_params, clip, TOW__P_BOOL),                                     \
                               TOW__PARAM(tow__scatter_params, unique_indices, TOW__P_BOOL)),                          \
                   __VA_ARGS__)
SCATTER(scatter_general, scatter_type, .takes_blocks = true, .transpose = scatter_transpose);
SCATTER(scatter_general_add, scatter_number_type, .jvp = add_jvp, .transpose = add_transpose);
SCATTER(scatter_general_mul, scatter_number_type, .jvp = mul_jvp, .transpose = mul_transpose,
        .linear_in = tow__linear_in_first);
SCATTER(scatter_general_min, scatter_number_type, .jvp = extremum_jvp);
SCATTER(scatter_general_max, scatter_number_type, .jvp = extremum_jvp);

/* ---- public function --------------------------------------------------------------------------------------------- */

tow_value tow_scatter_general(tow_scatter_kind kind, tow_value x, tow_value indices, tow_value updates,
                              const tow_scatter_dims *dims, tow_index_mode mode, bool unique_indices)
{
    static const tow_primitive *const primitives[] = {&tow__scatter_general_p, &tow__scatter_general_add_p,
                                                      &tow__scatter_general_mul_p, &tow__scatter_general_min_p,
                                                      &tow__scatter_general_max_p};
    if (tow__any_null(3, (tow_value[]){x, indices, updates})) return tow__null();
    if (!tow__given(x, "scatter_general", dims, "dimension numbers")) return tow__null();
    tow__scatter_params p = {.clip = mode == TOW_INDEX_CLIP, .unique_indices = unique_indices};
    bool fits = tow__list(dims->n_window, dims->update_window_dims, &p.update_window_dims) &&
                tow__list(dims->n_inserted, dims->inserted_window_dims, &p.inserted_window_dims) &&
                tow__list(dims->n_batching, dims->operand_batching_dims, &p.operand_batching_dims) &&
                tow__list(dims->n_batching, dims->scatter_indices_batching_dims, &p.scatter_indices_batching_dims) &&
                tow__list(dims->n_index, dims->scatter_dims_to_operand_dims, &p.scatter_dims_to_operand_dims);
    if (!fits || (unsigned)mode > TOW_INDEX_FILL || (unsigned)kind > TOW_SCATTER_MAX)
        return tow__op_fail(x, "scatter_general", TOW_INVALID_ARGUMENT,
                            "expected 0 to %d axes in each list, a mode of tow_index_mode and a kind of "
                            "tow_scatter_kind",
                            TOW_MAX_RANK);
    return bind(primitives[kind], x, indices, updates, &p);
}

/* Elementwise choice and conversion: select, clamp, convert, bitcast. */
#include "src/ops/rules.h"
#include "src/ops/shapes/broadcast.h"

/* ---- select(predicate bool, a, b): linear in a and b; keeps the predicate only, a missing branch is a constant zero
 * --------- */

static tow_status select_type(const tow__typing *ty)
{
    tow_status status = tow__require_dtype(ty, 0, 1 << TOW_BOOL);
    if (status == TOW_OK) status = tow__require_same(ty, 1);
    if (status != TOW_OK) return status;
    tow_type predicate = ty->in[0];
    predicate.dtype = ty->in[1].dtype;
    if (!tow_type_equal(predicate, ty->in[1]))
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "predicate and branches must have one shape, found %s and %s; reshape one, "
                              "or give it axes of size 1 where it should repeat",
                              tow__type_name(ty->in[0]).text, tow__type_name(ty->in[1]).text);
    ty->out[0] = ty->in[1];
    return TOW_OK;
}

static void select_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    r->dy[0] = tow_where(r->x[0], tow__or_zeros(r->dx[1], r->x[1]), tow__or_zeros(r->dx[2], r->x[2]));
}

static void select_transpose(tow__transpose *r)
{
    tow_value ct = r->ct[0], zeros = tow_zeros_like(ct);
    if (r->linear[1]) r->dx[1] = tow_where(r->x[0], ct, zeros);
    if (r->linear[2]) r->dx[2] = tow_where(r->x[0], zeros, ct);
}

TOW__ARITHMETIC_PRIMITIVE(select, .operands = "predicate, on_true, on_false", .inputs = 3, .outputs = 1,
                          .type = select_type, .jvp = select_jvp, .transpose = select_transpose);

tow_value tow_where(tow_value predicate, tow_value on_true, tow_value on_false)
{
    tow_value v[3] = {predicate, on_true, on_false};
    return tow__broadcast_all(3, v) ? tow__op(&tow__select_p, NULL, 3, v) : tow__null();
}

/* cases[first .. first + n), of which half are left after each comparison. */
static tow_value select_among(tow_value which, size_t first, size_t n, const tow_value *cases)
{
    if (n == 1) return cases[first];
    size_t half = n / 2;
    tow_value low = select_among(which, first, half, cases), high = select_among(which, first + half, n - half, cases);
    return tow_where(tow_lt(which, tow_full_like(which, (double)(first + half))), low, high);
}

tow_value tow_select_n(tow_value which, size_t n, const tow_value *cases)
{
    if (tow_is_null(which) || !tow__given(which, "select_n", n > 0 && cases, "at least one case")) return tow__null();
    if (tow__any_null(n, cases)) return tow__null();
    tow_type type = tow_value_type(which), of_case = tow_value_type(cases[0]);
    if (tow_dtype_is_float(type.dtype) || (type.dtype == TOW_BOOL && n > 2))
        return tow__op_fail(which, "select_n", TOW_TYPE_MISMATCH,
                            "expected an integer, or a bool for at most 2 cases, to choose among %zu; found %s", n,
                            tow__type_name(type).text);
    for (size_t i = 0; i < n; i++)
        if (!tow_type_equal(tow_value_type(cases[i]), of_case))
            return tow__op_fail(which, "select_n", TOW_SHAPE_MISMATCH,
                                "all cases must have one type, found %s and %s; broadcast or convert one",
                                tow__type_name(of_case).text, tow__type_name(tow_value_type(cases[i])).text);
    if (type.rank != 0) of_case.dtype = type.dtype;
    if (type.rank != 0 && !tow_type_equal(type, of_case))
        return tow__op_fail(which, "select_n", TOW_SHAPE_MISMATCH,
                            "what chooses must be a scalar or have the shape of the cases, found %s and %s",
                            tow__type_name(type).text, tow__type_name(of_case).text);
    if (n == 2 && type.dtype == TOW_BOOL) return tow_where(which, cases[1], cases[0]);
    return select_among(tow__index_words(which), 0, n, cases);
}

/* ---- clamp(low, x, high) = min(max(x, low), high): dx strictly inside; keeps one bool mask per differentiated operand
 * ---------- */

static void clamp_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    tow_value low = r->x[0], x = r->x[1], high = r->x[2], masks[3] = {{0}};
    if (!tow_is_null(r->dx[0])) masks[0] = tow_and(tow_gt(low, x), tow_lt(low, high));
    if (!tow_is_null(r->dx[1])) masks[1] = tow_and(tow_gt(x, low), tow_lt(x, high));
    if (!tow_is_null(r->dx[2])) masks[2] = tow_lt(high, x);
    for (int i = 0; i < 3; i++)
        if (!tow_is_null(masks[i]))
            r->dy[0] = tow__add_or(r->dy[0], tow_where(masks[i], r->dx[i], tow_zeros_like(r->dx[i])));
}

TOW__ARITHMETIC_PRIMITIVE(clamp, .operands = "low, x, high", .inputs = 3, .outputs = 1, .type = tow__type_same_number,
                          .jvp = clamp_jvp);

tow_value tow_clamp(tow_value low, tow_value x, tow_value high)
{
    tow_value v[3] = {low, x, high};
    if (tow__any_null(3, v)) return tow__null();
    tow_type type = tow_value_type(x);
    for (int i = 0; i < 3; i += 2)
        if (tow_value_type(v[i]).rank == 0) v[i] = tow_at(tow_broadcast_to(v[i], type.rank, type.dims), v[i].here);
    return tow__op(&tow__clamp_p, NULL, 3, v);
}

/* ---- convert, bitcast -------------------------------------------------------------------------------------------- */

static tow_status convert_type(const tow__typing *ty)
{
    ty->out[0] = ty->in[0];
    ty->out[0].dtype = ((const tow__dtype_params *)ty->params)->dtype;
    return tow__require_valid(ty, ty->out[0]);
}

/* Linear between floats; through integers and bools the derivative is zero. */
static void convert_jvp(tow__jvp *r)
{
    tow_dtype dtype = ((const tow__dtype_params *)r->e->params)->dtype;
    tow__jvp_primal(r);
    if (tow_dtype_is_float(dtype)) r->dy[0] = tow_convert(r->dx[0], dtype);
}

static void convert_transpose(tow__transpose *r) { r->dx[0] = tow_convert(r->ct[0], r->in_types[0].dtype); }

static tow_status bitcast_type(const tow__typing *ty)
{
    tow_dtype dtype = ((const tow__dtype_params *)ty->params)->dtype;
    if (ty->in[0].dtype == TOW_BOOL || dtype == TOW_BOOL || tow_dtype_size(ty->in[0].dtype) != tow_dtype_size(dtype))
        return tow__type_fail(ty, TOW_TYPE_MISMATCH,
                              "it goes between numbers of one size in bytes, found %s to %s; use "
                              "tow_convert to convert values",
                              tow__type_name(ty->in[0]).text, tow_dtype_name(dtype));
    return convert_type(ty);
}

#define DTYPE_PARAM TOW__PARAMS(tow__dtype_params, TOW__PARAM(tow__dtype_params, dtype, TOW__P_DTYPE))

TOW__PRIMITIVE(convert, TOW__ELEMENTWISE, tow__tile_elementwise, tow__element_cost, .inputs = 1, .outputs = 1,
               .batch = tow__batch_elementwise, .type = convert_type, .jvp = convert_jvp,
               .transpose = convert_transpose, DTYPE_PARAM);
TOW__ARITHMETIC_PRIMITIVE(bitcast, .inputs = 1, .outputs = 1, .type = bitcast_type, DTYPE_PARAM);

tow_value tow_convert(tow_value x, tow_dtype dtype)
{
    if (!tow_is_null(x) && tow__dtype(x) == dtype) return x;
    return tow__op(&tow__convert_p, &(tow__dtype_params){dtype}, 1, &x);
}

tow_value tow_bitcast(tow_value x, tow_dtype dtype)
{
    if (!tow_is_null(x) && tow__dtype(x) == dtype) return x;
    return tow__op(&tow__bitcast_p, &(tow__dtype_params){dtype}, 1, &x);
}

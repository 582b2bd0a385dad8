/* Products of groups of rows, whose sizes are data: ragged_dot, and ragged_dot_contract, which its derivatives are
 * made of.
 *
 *   ragged_dot(x [m, k], y [g, k, n], sizes [g])      -> [m, n]     row i: x[i] y[group of i], 0 behind the last group
 *   ragged_dot_contract(x [m, k], y [m, n], sizes)    -> [g, k, n]  sum over the rows i of a group of x[i]^T y[i]
 *
 * Both are linear in x and in y; each is the transpose of the other. Policies take them for dots with a batch axis. */
#include "src/ops/rules.h"

/* x [m, k], y of rank `rank`, both of one float type, sizes i32 [g] */
static tow_status ragged_type(const tow__typing *ty, int rank)
{
    tow_status status = tow__require_dtype(ty, 0, TOW__FLOATS);
    if (status == TOW_OK) status = tow__require_dtype(ty, 1, 1u << ty->in[0].dtype);
    if (status == TOW_OK) status = tow__require_dtype(ty, 2, 1u << TOW_I32);
    if (status == TOW_OK) status = tow__require_rank(ty, 0, 2);
    if (status == TOW_OK) status = tow__require_rank(ty, 1, rank);
    if (status == TOW_OK) status = tow__require_rank(ty, 2, 1);
    return status;
}

static tow_status ragged_dot_type(const tow__typing *ty)
{
    tow_status status = ragged_type(ty, 3);
    if (status != TOW_OK) return status;
    const tow_type x = ty->in[0], y = ty->in[1];
    if (x.dims[1] != y.dims[1] || y.dims[0] != ty->in[2].dims[0])
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "expected x [m, k], y [g, k, n] and g sizes, found %s, %s and %lld sizes",
                              tow__type_name(x).text, tow__type_name(y).text, (long long)ty->in[2].dims[0]);
    ty->out[0] = tow_make_type(x.dtype, 2, (int64_t[]){x.dims[0], y.dims[2]});
    return tow__require_valid(ty, ty->out[0]);
}

static tow_status ragged_dot_contract_type(const tow__typing *ty)
{
    tow_status status = ragged_type(ty, 2);
    if (status != TOW_OK) return status;
    const tow_type x = ty->in[0], y = ty->in[1];
    if (x.dims[0] != y.dims[0])
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "expected x [m, k] and y [m, n] with equal rows, found %s and %s",
                              tow__type_name(x).text, tow__type_name(y).text);
    ty->out[0] = tow_make_type(x.dtype, 3, (int64_t[]){ty->in[2].dims[0], x.dims[1], y.dims[1]});
    return tow__require_valid(ty, ty->out[0]);
}

/* ---- derivatives: keeps the opposite operand of each differentiated one, and the sizes --------------------------- */

/* x dy + dx y */
static void ragged_jvp(tow__jvp *r)
{
    const tow_primitive *p = r->e->primitive;
    tow__jvp_primal(r);
    tow_value a = tow__null(), b = tow__null();
    if (!tow_is_null(r->dx[0])) a = tow__op(p, NULL, 3, (tow_value[]){r->dx[0], r->x[1], r->x[2]});
    if (!tow_is_null(r->dx[1])) b = tow__op(p, NULL, 3, (tow_value[]){r->x[0], r->dx[1], r->x[2]});
    r->dy[0] = tow__add_or(a, b);
}

/* [g, k, n] -> [g, n, k] */
static tow_value exchanged(tow_value y) { return tow_transpose(y, 3, (int[]){0, 2, 1}); }

static void ragged_dot_transpose(tow__transpose *r)
{
    if (r->linear[0])
        r->dx[0] = tow_ragged_dot(r->ct[0], exchanged(r->x[1]), r->x[2]);
    else
        r->dx[1] = tow_ragged_dot_contract(r->x[0], r->ct[0], r->x[2]);
}

static void ragged_dot_contract_transpose(tow__transpose *r)
{
    if (r->linear[0])
        r->dx[0] = tow_ragged_dot(r->x[1], exchanged(r->ct[0]), r->x[2]);
    else
        r->dx[1] = tow_ragged_dot(r->x[0], r->ct[0], r->x[2]);
}

/* Every row belongs to at most one group: 2 m k n. */
static tow__op_cost ragged_dot_cost(const tow__operation *o)
{
    return tow__exact_cost(2 * (double)tow__in_type(o, 0)->dims[1] * tow__elements(&o->out[0]));
}

static tow__op_cost ragged_dot_contract_cost(const tow__operation *o)
{
    const tow_type *x = tow__in_type(o, 0), *y = tow__in_type(o, 1);
    return tow__exact_cost(2 * (double)x->dims[0] * (double)x->dims[1] * (double)y->dims[1]);
}

#define RAGGED(name)                                                                                                   \
    TOW__PRIMITIVE(name, TOW__COMPOSITE, tow__no_tiling, name##_cost, .operands = "x, y, sizes", .inputs = 3,          \
                   .outputs = 1, .product = TOW__BATCHED_PRODUCT, .type = name##_type, .jvp = ragged_jvp,              \
                   .transpose = name##_transpose);                                                                     \
    tow_value tow_##name(tow_value x, tow_value y, tow_value sizes)                                                    \
    {                                                                                                                  \
        if (!tow_is_null(sizes) && (1u << tow__dtype(sizes) & TOW__INTEGERS) == 0)                                     \
            return tow__op_fail(sizes, #name, TOW_TYPE_MISMATCH, "sizes must be integers, found %s",                   \
                                tow__type_name(tow_value_type(sizes)).text);                                           \
        return tow__op(&tow__##name##_p, NULL, 3, (tow_value[]){x, y, tow_convert(sizes, TOW_I32)});                   \
    }
RAGGED(ragged_dot)
RAGGED(ragged_dot_contract)

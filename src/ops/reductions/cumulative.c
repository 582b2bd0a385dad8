/* Cumulative operations along an axis: each result combines all elements up to its own, or from its own on with
 * `reverse`.
 *   cumsum cumprod cummax cummin     cumlogsumexp: log of the sum of exp
 * The sum is linear. The derivatives of the others are those of a tree of pairs, as in JAX: products by zero have exact
 * derivatives, and the two sides of a pair share equally where they are equal. */
#include <math.h>

#include "src/ops/reductions/scan_tree.h"
#include "src/ops/rules.h"

static tow_status cumulative_type(const tow__typing *ty)
{
    const tow__cumsum_params *p = ty->params;
    tow_status status = tow__require_axis(ty, p->axis);
    return status == TOW_OK ? tow__type_same_number(ty) : status;
}

static tow_status cumulative_float_type(const tow__typing *ty)
{
    const tow__cumsum_params *p = ty->params;
    tow_status status = tow__require_axis(ty, p->axis);
    return status == TOW_OK ? tow__type_same_float(ty) : status;
}

static void cumsum_transpose(tow__transpose *r)
{
    const tow__cumsum_params *p = r->e->params;
    r->dx[0] = tow_cumsum(r->ct[0], (int)p->axis, !p->reverse);
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

/* A value and its tangent. */
typedef struct dual {
    tow_value x, dx;
} dual;
typedef dual (*combination)(dual a, dual b);

/* x y: dx y + x dy */
static dual product(dual a, dual b)
{
    return (dual){tow_mul(a.x, b.x), tow_add(tow_mul(a.dx, b.x), tow_mul(a.x, b.dx))};
}

/* z = max or min of x and y: the tangent of the one that is z, half of each where both are */
static dual extremum(dual a, dual b, tow_value z)
{
    tow_value is_a = tow_eq(z, a.x), is_b = tow_eq(z, b.x), both = tow_mul_scalar(tow_add(a.dx, b.dx), 0.5);
    tow_value neither = tow_zeros_like(a.dx);
    return (dual){z, tow_where(is_a, tow_where(is_b, both, a.dx), tow_where(is_b, b.dx, neither))};
}

static dual maximum(dual a, dual b) { return extremum(a, b, tow_max(a.x, b.x)); }
static dual minimum(dual a, dual b) { return extremum(a, b, tow_min(a.x, b.x)); }

static tow_value without_infinity(tow_value x)
{
    return tow_where(tow_eq(x, tow_full_like(x, (double)INFINITY)), tow_zeros_like(x), x);
}

/* z = log(exp x + exp y) = m + log1p(exp(-|x - y|)), m = max(x, y): dx exp(x - z) + dy exp(y - z) */
static dual logaddexp(dual a, dual b)
{
    tow_value d = tow_sub(a.x, b.x);
    tow_value apart = tow_add(tow_max(a.x, b.x), tow_log1p(tow_exp(tow_neg(tow_abs(d)))));
    tow_value z = tow_where(tow_ne(d, d), tow_add(a.x, b.x), apart), finite = without_infinity(z);
    tow_value wa = tow_exp(tow_sub(without_infinity(a.x), finite)),
              wb = tow_exp(tow_sub(without_infinity(b.x), finite));
    return (dual){z, tow_add(tow_mul(a.dx, wa), tow_mul(b.dx, wb))};
}

/* in: values and tangents of a, then of b */
static void combine_duals(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const dual c = (*(const combination *)user)((dual){in[0], in[1]}, (dual){in[2], in[3]});
    (void)t;
    out[0] = c.x, out[1] = c.dx;
}

static void tree_jvp(tow__jvp *r, combination combine)
{
    const tow__cumsum_params *p = r->e->params;
    const int axis = (int)p->axis, axes[2] = {axis, axis};
    const tow_dtype dtype = tow_value_type(r->x[0]).dtype,
                    wide = tow__wide(dtype); /* rounded once, not at each level */
    tow_value a[2] = {tow_convert(r->x[0], wide), tow_convert(r->dx[0], wide)};
    tow__jvp_primal(r);
    for (int i = 0; i < 2 && p->reverse; i++) a[i] = tow_rev(a[i], 1, &axis);
    tow__scan_tree(r->t, 2, a, axes, &(tow__combination){combine_duals, &combine});
    r->dy[0] = tow_convert(p->reverse ? tow_rev(a[1], 1, &axis) : a[1], dtype);
}

static void cumprod_jvp(tow__jvp *r) { tree_jvp(r, product); }
static void cummax_jvp(tow__jvp *r) { tree_jvp(r, maximum); }
static void cummin_jvp(tow__jvp *r) { tree_jvp(r, minimum); }
static void cumlogsumexp_jvp(tow__jvp *r) { tree_jvp(r, logaddexp); }

/* ---- descriptors and public functions ---------------------------------------------------------------------------- */

static void cumulative_batch(tow__batch *r)
{
    tow__cumsum_params p = *(const tow__cumsum_params *)r->e->params;
    p.axis = tow__shifted(p.axis, r->x[0].axis);
    tow__batch_bind(r, &p, &r->x[0].value, r->x[0].axis);
}

static bool tile_cumulative(const tow__operation *o, int axis, int *from)
{
    from[0] = axis;
    return ((const tow__cumsum_params *)o->params)->axis != axis;
}

#define CUMULATIVE(op, rule, ...)                                                                                      \
    TOW__PRIMITIVE(cum##op, TOW__REDUCTION, tile_cumulative, tow__element_cost, .inputs = 1, .outputs = 1,             \
                   .type = rule, .batch = cumulative_batch,                                                            \
                   TOW__PARAMS(tow__cumsum_params, TOW__PARAM(tow__cumsum_params, axis, TOW__P_INT),                   \
                               TOW__PARAM(tow__cumsum_params, reverse, TOW__P_BOOL)),                                  \
                   __VA_ARGS__);                                                                                       \
    tow_value tow_cum##op(tow_value x, int axis, bool reverse)                                                         \
    {                                                                                                                  \
        tow__cumsum_params p = {.reverse = reverse};                                                                   \
        if (tow_is_null(x) || !tow__normal_axis(x, "cum" #op, axis, tow_value_type(x).rank, &p.axis))                  \
            return tow__null();                                                                                        \
        return tow__op(&tow__cum##op##_p, &p, 1, &x);                                                                  \
    }
CUMULATIVE(sum, cumulative_type, .transpose = cumsum_transpose)
CUMULATIVE(prod, cumulative_type, .jvp = cumprod_jvp)
CUMULATIVE(max, cumulative_type, .jvp = cummax_jvp)
CUMULATIVE(min, cumulative_type, .jvp = cummin_jvp)
CUMULATIVE(logsumexp, cumulative_float_type, .jvp = cumlogsumexp_jvp)

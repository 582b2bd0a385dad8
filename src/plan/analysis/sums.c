/* The operations that sum, or reduce otherwise, over an axis of an operand, and the axes of the others along which a
 * block of the sum lies: a rule for each of them, as tiling rules are for axes that pass. */
#include "src/base/window.h"
#include "src/plan/analysis/axis.h"
#include "src/plan/operations.h"

typedef bool (*sum_rule)(const tow__operation *o, uint32_t i, int axis, int *from);

/* Contracted axes, of both operands together. */
static bool sum_dot(const tow__operation *o, uint32_t i, int axis, int *from)
{
    const tow__dot_params *p = o->params;
    const tow__ints *own = i == 0 ? &p->lhs_contract : &p->rhs_contract;
    for (int k = 0; i < 2 && k < own->n; k++) {
        if (own->v[k] != axis) continue;
        from[0] = (int)p->lhs_contract.v[k];
        from[1] = (int)p->rhs_contract.v[k];
        return true;
    }
    return false;
}

/* Features of the operand: those of the derivative with respect to a kernel are batch entries. */
static bool sum_conv(const tow__operation *o, uint32_t i, int axis, int *from)
{
    const tow__conv_params *p = o->params;
    tow__conv_axes axes;
    if (p->batch_groups > 1 || p->feature_groups > 1 || !tow__conv_axes_read(p->dimensions, &axes)) return false;
    from[0] = axes.lhs[1];
    from[1] = axes.rhs[1];
    return i < 2 && axis == from[i];
}

static bool sum_reduction(const tow__operation *o, uint32_t i, int axis, int *from)
{
    from[i] = axis;
    return i == 0 && tow__ints_contain(&((const tow__axes_params *)o->params)->axes, axis);
}

/* Derivatives with respect to scale and bias alone, bits 1 and 2 of `wrt`: all axes but the last. Scale is operand 1.
 * */
static bool sum_norm_vjp(const tow__operation *o, uint32_t i, int axis, int *from)
{
    const int64_t wrt = ((const tow__norm_ad_params *)o->params)->wrt;
    if ((wrt & 1) || axis + 1 >= o->in[0].type.rank) return false;
    for (uint32_t k = 0; k < o->n_in; k++) from[k] = k == 1 ? TOW__WHOLE : axis;
    return i != 1;
}

/* Axes of the indices: rows are added to those at hand. */
static bool sum_scatter(const tow__operation *o, uint32_t i, int axis, int *from)
{
    from[0] = from[1] = axis;
    return i < 2 && axis < o->in[0].type.rank;
}

static const struct {
    const tow_primitive *op;
    sum_rule sums;
} rules[] = {
    {&tow__dot_general_p, sum_dot},         {&tow__conv_general_dilated_p, sum_conv},
    {&tow__layer_norm_vjp_p, sum_norm_vjp}, {&tow__rms_norm_vjp_p, sum_norm_vjp},
    {&tow__scatter_add_p, sum_scatter},     {&tow__reduce_sum_p, sum_reduction},
    {&tow__reduce_max_p, sum_reduction},    {&tow__reduce_min_p, sum_reduction},
    {&tow__reduce_prod_p, sum_reduction},   {&tow__reduce_and_p, sum_reduction},
    {&tow__reduce_or_p, sum_reduction},     {&tow__reduce_xor_p, sum_reduction},
};

bool tow__sums_along(const tow__operation *o, uint32_t i, int axis, int *from)
{
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
        if (rules[k].op == o->primitive) return rules[k].sums(o, i, axis, from);
    return false;
}

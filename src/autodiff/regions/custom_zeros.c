/* Rules of custom calls on tangents that are zero. A rule is traced once, with a tangent for every input that may have
 * one. If a call is differentiated with respect to some of them, the others are zero, and their factors in the rule are
 * neither computed nor kept: zero tangents go through the equations that are linear in them.
 *
 *   linear in one operand alone         zero if one operand is: mul, dot_general, convolution
 *   linear in the first operand alone   zero if that is: div
 *   add, sub                            the operand that is not zero
 *   others with a transpose rule        zero if all operands that are floats are
 *   anything else, and regions          gets an array of zeros */
#include "src/autodiff/regions/custom.h"
#include "src/ops/rules.h"

/* Are all results of e zero? x: its operands, null = zero, of which there is at least one. */
static bool is_zero(const tow_graph *g, const tow__equation *e, const tow_value *x)
{
    if (e->primitive->linear_in == tow__linear_in_one) return true; /* a product of operands */
    if (e->primitive->linear_in == tow__linear_in_first && tow_is_null(x[0])) return true;
    if (!e->primitive->transpose || tow__is_region(e)) return false;
    for (uint32_t i = 0; i < e->n_in; i++)
        if (!tow_is_null(x[i]) && tow__has_tangent(g->vars[e->in[i]].type)) return false;
    return true;
}

/* The one operand of a sum that is not zero, if that is all there is to it; else the null value. */
static tow_value only_term(const tow__equation *e, const tow_value *x)
{
    if (e->primitive == &tow__add_p) return tow_is_null(x[0]) ? x[1] : x[0];
    return e->primitive == &tow__sub_p ? x[0] : tow__null();
}

static void record(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                   const void *user)
{
    bool any = false;
    (void)user;
    for (uint32_t i = 0; i < e->n_in; i++) any |= tow_is_null(x[i]);
    if (any && is_zero(g, e, x)) return;
    if (any && !tow_is_null(y[0] = only_term(e, x))) return;
    for (uint32_t i = 0; i < e->n_in; i++)
        if (tow_is_null(x[i])) x[i] = tow__zeros(t, g->vars[e->in[i]].type);
    tow__rebind(t, e, x, y);
}

void tow__inline_zeros(tow_trace *t, const tow_graph *g, const tow_value *in, tow_value *out)
{
    tow__inline_by(t, g, record, NULL, in, out);
}

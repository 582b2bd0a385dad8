/* same_bits: a value that a gradient makes again, once it has been compared with the one that was kept, bit by bit.
 * Differentiation puts it where a program is to be verified (autodiff/partial.c). */
#include "src/ops/batching.h"
#include "src/ops/rules.h"

static tow_status same_bits_type(const tow__typing *ty)
{
    const tow__same_bits_params *p = ty->params;
    if (!p->what) return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "it does not say what made its operands");
    if (!tow_type_equal(ty->in[0], ty->in[1]))
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "expected two values of one type, found %s and %s",
                              tow__type_name(ty->in[0]).text, tow__type_name(ty->in[1]).text);
    ty->out[0] = ty->in[0];
    return TOW_OK;
}

/* Both operands are one value, and so are their tangents. */
static void same_bits_jvp(tow__jvp *r)
{
    tow__rebind(r->t, r->e, r->x, r->y);
    r->dy[0] = r->dx[0];
}

TOW__PRIMITIVE(same_bits, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .takes_blocks = true, .inputs = 2,
               .outputs = 1, .operands = "again, kept", .type = same_bits_type, .jvp = same_bits_jvp,
               .batch = tow__batch_elementwise, .aliasing = TOW__ALIAS_FIRST, .host = true,
               TOW__PARAMS(tow__same_bits_params, TOW__PARAM(tow__same_bits_params, what, TOW__P_STRING),
                           TOW__PARAM(tow__same_bits_params, result, TOW__P_INT)));

/* name: the identity, with a name that policies know its operand by. A policy's answers about it count for the value
 * (autodiff/partial.c). */
#include "src/ops/rules.h"

static tow_status name_type(const tow__typing *ty)
{
    const tow__name_params *p = ty->params;
    if (!p->name || !*p->name)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "a checkpoint name must not be empty; give the value a name that "
                              "policies can refer to");
    ty->out[0] = ty->in[0];
    return TOW_OK;
}

static void name_jvp(tow__jvp *r)
{
    tow__rebind(r->t, r->e, r->x, r->y);
    r->dy[0] = r->dx[0];
}

static void name_transpose(tow__transpose *r) { r->dx[0] = r->ct[0]; }

TOW__PRIMITIVE(name, TOW__NAME, tow__no_tiling, tow__element_cost, .inputs = 1, .outputs = 1, .type = name_type,
               .jvp = name_jvp, .transpose = name_transpose, .batch = tow__batch_elementwise,
               TOW__PARAMS(tow__name_params, TOW__PARAM(tow__name_params, name, TOW__P_STRING)));

tow_value(tow_checkpoint_name)(tow_value x, const char *name)
{
    if (tow_is_null(x)) return x;
    if (!name || !*name) {
        tow_trace_fail(x.trace, TOW_INVALID_ARGUMENT, "checkpoint_name: expected a name, found an empty one");
        return (tow_value){0};
    }
    tow__name_params params = {.name = name};
    return tow__bind1(x.trace, &tow__name_p, &params, 1, &x);
}

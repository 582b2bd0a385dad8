/* Descriptors of the operations that only plans make. What is made before tiles are formed has the tiling rule of what
 * it was made of; the others are parts of loops already. */
#include "src/plan/operations.h"

#include "src/ops/tiling.h"

#define AS_PRIMITIVE(op, base, kind, alias)                                                                            \
    static bool op##_tile(const tow__operation *o, int axis, int *from)                                                \
    {                                                                                                                  \
        return tow__##base##_p.tile(o, axis, from);                                                                    \
    }                                                                                                                  \
    static tow__op_cost op##_cost(const tow__operation *o) { return tow__##base##_p.cost(o); }                         \
    TOW__PRIMITIVE(op, kind, op##_tile, op##_cost, .inputs = -1, .outputs = -1, .aliasing = alias,                     \
                   .product = TOW__PLAIN_PRODUCT)

AS_PRIMITIVE(fused_dot_general, dot_general, TOW__DOT, TOW__ALIAS_NONE);
AS_PRIMITIVE(fused_conv_general_dilated, conv_general_dilated, TOW__CONVOLUTION, TOW__ALIAS_NONE);
AS_PRIMITIVE(dot_general_add, dot_general, TOW__DOT, TOW__ALIAS_LAST);
AS_PRIMITIVE(dot_general_part, dot_general, TOW__DOT, TOW__ALIAS_NONE);

TOW__PRIMITIVE(fused, TOW__ELEMENTWISE, tow__tile_elementwise, tow__element_cost, .inputs = -1, .outputs = -1,
               .aliasing = TOW__ALIAS_EACH);
TOW__PRIMITIVE(copy, TOW__MOVE, tow__tile_elementwise, tow__element_cost, .inputs = 1, .outputs = 1);

#define UNTILED(op, cost, alias)                                                                                       \
    TOW__PRIMITIVE(op, TOW__COMPOSITE, tow__no_tiling, cost, .inputs = -1, .outputs = -1, .aliasing = alias)

UNTILED(fused_reduce, tow__element_cost, TOW__ALIAS_EACH);
UNTILED(reduce_part, tow__element_cost, TOW__ALIAS_NONE);
UNTILED(sum_rows, tow__element_cost, TOW__ALIAS_FIRST);
UNTILED(sum_dots, tow__element_cost, TOW__ALIAS_FIRST);
UNTILED(pack_operand, tow__element_cost, TOW__ALIAS_NONE);
UNTILED(tile_group, tow__element_cost, TOW__ALIAS_NONE);

/* Results: loss, log-sum-exp, gradients. */
static tow__op_cost loss_and_vjp_cost(const tow__operation *o)
{
    tow__operation vjp = *o;
    vjp.n_out -= 2;
    return tow__linear_cross_entropy_vjp_p.cost(&vjp);
}
UNTILED(linear_cross_entropy_and_vjp, loss_and_vjp_cost, TOW__ALIAS_NONE);

const tow_primitive *tow__with_epilogue(const tow_primitive *product)
{
    if (product == &tow__dot_general_p) return &tow__fused_dot_general_p;
    return product == &tow__conv_general_dilated_p ? &tow__fused_conv_general_dilated_p : NULL;
}

const tow_primitive *tow__operation_find(const char *name)
{
    static const tow_primitive *const operations[] = {
#define X(name, what) &tow__##name##_p,
        TOW__OPERATION_LIST(X)
#undef X
    };
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (strcmp(operations[i]->name, name) == 0) return operations[i];
    return tow__primitive_find(name, strlen(name));
}

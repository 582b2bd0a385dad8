/* Descriptors of the operations that only plans make. Operations that are made before tiles are formed have the tiling
 * rules of their origins; the others are parts of loops already. */
#include "src/plan/operations.h"

#include "src/ops/tiling.h"

TOW__PRIMITIVE(fused, TOW__ELEMENTWISE, tow__tile_elementwise, tow__element_cost, .inputs = -1, .outputs = -1,
               .aliasing = TOW__ALIAS_EACH);
TOW__PRIMITIVE(copy, TOW__MOVE, tow__tile_elementwise, tow__element_cost, .inputs = 1, .outputs = 1);

TOW__PRIMITIVE(pack_operand, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .inputs = -1, .outputs = -1);
TOW__PRIMITIVE(tile_group, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .inputs = -1, .outputs = -1);

/* Results: loss, log-sum-exp, gradients. */
static tow__op_cost loss_and_vjp_cost(const tow__operation *o)
{
    tow__operation vjp = *o;
    vjp.n_out -= 2;
    return tow__linear_cross_entropy_vjp_p.cost(&vjp);
}
TOW__PRIMITIVE(linear_cross_entropy_and_vjp, TOW__COMPOSITE, tow__no_tiling, loss_and_vjp_cost, .inputs = -1,
               .outputs = -1, .product = TOW__PLAIN_PRODUCT);

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

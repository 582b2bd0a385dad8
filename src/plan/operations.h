/* Operations that plans make and graphs do not have, as descriptors, and how plans ask what an operation is. The work
 * of an instruction beside its operation, an epilogue, an accumulation or a part of a sum, is no operation of its own:
 * see tow__extras in kernels/kernel.h. */
#ifndef TOW_SRC_PLAN_OPERATIONS_H
#define TOW_SRC_PLAN_OPERATIONS_H

#include "src/graph/region.h"
#include "src/kernels/kernel.h"
#include "src/ops/table.h"

/* X(name, what it does) */
#define TOW__OPERATION_LIST(X)                                                                                         \
    X(copy, "a view, made contiguous")                                                                                 \
    X(fused, "a row program: elementwise functions in one pass")                                                       \
    X(linear_cross_entropy_and_vjp, "a loss and its derivative, which share their logits")                             \
    X(pack_operand, "what the engine of a product would make of operand 1")                                            \
    X(tile_group, "a loop over blocks of rows")

#define X(name, what) extern const tow_primitive tow__##name##_p;
TOW__OPERATION_LIST(X)
#undef X

/* Is equation e one of the primitive `name` of the table, or of the operation of plans? */
#define TOW__IS(e, name) ((e)->primitive == &tow__##name##_p)

/* The kernel that computes op on this type; NULL: there is none. */
static inline const tow__kernel *tow__kernel_of(const tow_primitive *op, tow_dtype dtype)
{
    if (op->definition) return op->definition->kernel.run ? &tow__kernel_defined : NULL;
    return tow__kernel_find(op->name, dtype);
}

/* The kernel and the user pointer for a call of an operation that a user of the library has defined; NULL for
 * others. */
static inline const tow_kernel *tow__defined_kernel(const tow_primitive *op)
{
    return op->definition ? &op->definition->kernel : NULL;
}
static inline void *tow__defined_user(const tow_primitive *op) { return op->definition ? op->definition->user : NULL; }

/* The primitive or operation of that name; NULL: there is none. */
const tow_primitive *tow__operation_find(const char *name);

#endif

/* Operations that plans make and graphs do not have, as descriptors, and how plans ask what an operation is. */
#ifndef TOW_SRC_PLAN_OPERATIONS_H
#define TOW_SRC_PLAN_OPERATIONS_H

#include "src/graph/region.h"
#include "src/kernels/kernel.h"
#include "src/ops/table.h"

/* X(name, what it does) */
#define TOW__OPERATION_LIST(X)                                                                                         \
    X(copy, "a view, made contiguous")                                                                                 \
    X(dot_general_add, "a product of vectors that is added to a matrix where that lies")                               \
    X(dot_general_part, "a block of the rows that a product sums, added to what it has so far")                        \
    X(fused, "a row program: elementwise functions in one pass")                                                       \
    X(fused_conv_general_dilated, "a convolution and a row program on its finished strips")                            \
    X(fused_dot_general, "a product and a row program on its finished strips")                                         \
    X(fused_reduce, "a row program and reductions of what it makes")                                                   \
    X(linear_cross_entropy_and_vjp, "a loss and its derivative, which share their logits")                             \
    X(pack_operand, "what the engine of a product would make of operand 1")                                            \
    X(reduce_part, "a block of the rows that a reduction takes in, joined with what it has so far")                    \
    X(sum_dots, "the sum of a carry and of a product for each row of two arrays, in order")                            \
    X(sum_rows, "the sum of a carry and of all rows of an array, in order")                                            \
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

/* What a call of an operation that a user of the library has defined needs to know; NULL for others. */
static inline const tow_kernel *tow__defined_kernel(const tow_primitive *op)
{
    return op->definition ? &op->definition->kernel : NULL;
}
static inline void *tow__defined_user(const tow_primitive *op) { return op->definition ? op->definition->user : NULL; }

/* The operation that is a product with a row program as epilogue (tow__fused_product_params); NULL: this primitive cannot
 * have one. */
const tow_primitive *tow__with_epilogue(const tow_primitive *product);

/* The primitive or operation of that name; NULL: there is none. */
const tow_primitive *tow__operation_find(const char *name);

#endif

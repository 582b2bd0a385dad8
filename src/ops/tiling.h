/* Tiling rules and costs of whole families; those of a single family stand beside its descriptors.
 * src/graph/primitive.h says what they promise. */
#ifndef TOW_SRC_TILING_H
#define TOW_SRC_TILING_H

#include "src/graph/primitive.h"

enum {
    TOW__PER_ELEMENT = 8 /* operations per element of what moves or computes single elements */
};

/* ---- tiling ------------------------------------------------------------------------------------------------------ */

/* No axis passes through. */
bool tow__no_tiling(const tow__operation *o, int axis, int *from);
/* Every operand has the shape of the results or is a scalar, which every block needs. */
bool tow__tile_elementwise(const tow__operation *o, int axis, int *from);
/* Every operand has the same leading axes as the results, except for the last of operand 0: (logits, labels, ...). */
bool tow__tile_rows(const tow__operation *o, int axis, int *from);
/* All axes but that of tow__axis_params, which the results have or have lost. */
bool tow__tile_along_axis(const tow__operation *o, int axis, int *from);
/* The axis of the operand that `axis` of the result is, where the sorted axes `removed` are missing in the result. */
int tow__kept_axis(const tow__ints *removed, int axis);

static inline const tow_type *tow__in_type(const tow__operation *o, uint32_t i) { return &o->in[i].type; }
static inline int64_t tow__extent(const tow_type *type, int axis) { return axis < type->rank ? type->dims[axis] : 0; }
/* Operand i has as many elements along axis `at` as result 0 has along `axis`. */
bool tow__same_extent(const tow__operation *o, int axis, uint32_t i, int at);

/* ---- cost -------------------------------------------------------------------------------------------------------- */

static inline double tow__elements(const tow__view *x) { return (double)tow_type_element_count(x->type); }
/* The cost of what multiplies and adds, which is known. */
static inline tow__op_cost tow__exact_cost(double flops) { return (tow__op_cost){flops, flops}; }
/* The operations that reports count: of elementwise operations on floats one for each result, of reductions one less
 * than they take for each, of composites those of their decomposition, of anything else none. */
double tow__counted_flops(const tow__operation *o);
/* The estimate is TOW__PER_ELEMENT of all operands and results. */
tow__op_cost tow__element_cost(const tow__operation *o);

#endif

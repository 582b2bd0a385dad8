/* Fusion of elementwise instructions, of epilogues with products, and of reductions with what they read. */
#ifndef TOW_SRC_PLAN_FUSE_H
#define TOW_SRC_PLAN_FUSE_H

#include "src/plan/ir.h"

/* Joins elementwise instructions into row programs ("fused" instructions, src/kernels/elementwise/fused.h;
 * fuse/row_program.c). After lowering. */
tow_status tow__fuse(tow__function_state *s);
/* Joins row programs with reductions of what they make. After fusion and tile groups, in which
 * reductions along rows go with their rows. */
tow_status tow__fuse_reductions(tow__function_state *s);
/* A reduction of a whole storage to another one, in the order of src/kernels/reductions/reduce.h? */
bool tow__is_reduction(const tow_program *p, const tow__instruction *inst);

typedef struct tow__extents {
    int64_t outer, elements, columns;
} tow__extents;

/* The operand of a reduction as [outer, elements, columns]; false: there is a kept axis among those reduced. */
bool tow__find_extents(const tow__instruction *inst, tow__extents *e);
/* The row program of an instruction: all that a fused instruction does, or what follows a product; NULL: none. */
const struct tow__fused *tow__row_program_of(const tow__instruction *inst);

#endif

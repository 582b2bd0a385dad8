/* Batching rules of whole families, and helpers for writing others. A rule gets operands whose batch axes may be
 * anywhere and leaves that of its results where it falls, so that few transposes are recorded; what has to be moved or
 * repeated is brought to a place with tow__batched_at. */
#ifndef TOW_SRC_OPS_BATCHING_H
#define TOW_SRC_OPS_BATCHING_H

#include "src/graph/primitive.h"

static inline bool tow__is_batched(tow__mapped x) { return x.axis != TOW__UNBATCHED; }

/* x with its batch axis, of `size` rows, at `axis`: transposed, or repeated if it is unbatched. Repeating is a
 * broadcast, which moves no elements. */
tow_value tow__batched_at(tow__mapped x, int64_t size, int axis);
/* Operand i, likewise. */
tow_value tow__batch_operand(const tow__batch *r, uint32_t i, int axis);
/* The batch axis of the first batched operand. */
int tow__batch_axis(const tow__batch *r);
/* Binds the equation's primitive with `params` on `in`; all results have their batch axis at `axis`. */
void tow__batch_bind(tow__batch *r, const void *params, const tow_value *in, int axis);

/* ---- axes in parameters: of a row -> of an array whose batch axis is at `at` ------------------------------------- */

static inline int64_t tow__shifted(int64_t axis, int at) { return axis >= at ? axis + 1 : axis; }
tow__ints tow__all_shifted(tow__ints axes, int at);
/* `list` with `value` as its entry `at`. */
tow__ints tow__with_entry(tow__ints list, int at, int64_t value);
/* `type` with an axis of `size` at `at`. */
tow_type tow__with_axis(tow_type type, int at, int64_t size);

/* ---- families ---------------------------------------------------------------------------------------------------- */

/* Operands and results have one shape: all get their batch axis where the first batched operand has it. */
void tow__batch_elementwise(tow__batch *r);
/* tow__axes_params, one operand: reductions, whose axes vanish, and rev, whose axes stay. */
void tow__batch_over_axes(tow__batch *r);
/* tow__axis_params: the axis stays (softmax, concatenate) or vanishes (argmax, logsumexp). */
void tow__batch_along_axis(tow__batch *r);
/* Everything happens within the last axis, which operand 0 has: leading axes may be any. Operands with whole[i] have no
 * leading axes; if one of those is batched, false, and nothing is recorded. */
bool tow__batch_rows(tow__batch *r, const bool *whole);
/* A rule that records several operations, applied in f32 where there are floats of 16 bits: its results are rounded
 * once, as those of the equation are. */
void tow__batch_wide(tow__batch *r, void (*rule)(tow__batch *r));

#endif

/* Calls with rules of their own: custom_jvp and custom_vjp. */
#ifndef TOW_SRC_AUTODIFF_CUSTOM_H
#define TOW_SRC_AUTODIFF_CUSTOM_H

#include "src/graph/region.h"

/* This primitive stands for the derivative of a custom_vjp until reverse mode transposes it. Nobody can write it. */
extern const tow_primitive tow__custom_tangents_p;

/* Calls whose first graph is their value, and further ones rules. */
extern const tow__region tow__value_region;

/* Does the input or result of this type have a tangent? */
static inline bool tow__has_tangent(tow_type type) { return tow_dtype_is_float(type.dtype); }

/* A rule of the call e with e in the place of each custom_self that stands for it. The caller releases the result. */
tow_status tow__tie(const tow__equation *e, const tow_graph *rule, tow_graph **result);
/* Does a custom_self in g stand for the call whose rule g is? */
bool tow__calls_itself(const tow_graph *g);

/* Records g, of whose inputs those that are null are zeros, in which g is linear. Results that are zero are null. */
void tow__inline_zeros(tow_trace *t, const tow_graph *g, const tow_value *in, tow_value *out);

/* Batching rules (custom_batch.c). */
void tow__batch_custom_self(tow__batch *r);
void tow__batch_custom_jvp(tow__batch *r);
void tow__batch_custom_vjp(tow__batch *r);

#endif

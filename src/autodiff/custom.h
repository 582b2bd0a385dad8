/* Calls with rules of their own: custom_jvp and custom_vjp. */
#ifndef TOW_SRC_AUTODIFF_CUSTOM_H
#define TOW_SRC_AUTODIFF_CUSTOM_H

#include "src/graph/primitive.h"

/* What stands for the derivative of a custom_vjp until reverse mode transposes it. Nobody can write it. */
extern const tow_primitive tow__custom_tangents_p;

/* Does the input or result of this type have a tangent? */
static inline bool tow__has_tangent(tow_type type) { return tow_dtype_is_float(type.dtype); }

/* Batching rules (custom_batch.c). */
void tow__batch_custom_jvp(tow__batch *r);
void tow__batch_custom_vjp(tow__batch *r);

#endif

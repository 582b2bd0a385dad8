/* Element types of layers: what they compute in, and store parameters in. */
#ifndef TOW_SRC_SCOPE_DTYPES_H
#define TOW_SRC_SCOPE_DTYPES_H

#include "src/scope/scope.h"

/* The types in which one call of a layer computes and stores its parameters. A layer has the options .dtype and
 * .param_dtype and begins with
 *
 *     tow__dtypes types;
 *     if (... || !tow__read_dtypes(scope, "Dense", m->dtype, m->param_dtype, n_in, in, &types)) return;
 *     tow_value x = tow__as(in[0], types.compute);
 *     tow_value kernel = tow__param(scope, "kernel", 2, dims, init, &types); */
typedef struct tow__dtypes {
    tow_dtype compute, params;
    tow_dtype blocks; /* of weights, if they are stored in blocks of few bits (then params is of the others); else 0 */
} tow__dtypes;
/* From the options, or the defaults around, or else what floats among the inputs and the parameters promote to. False,
 * reported: an option that is no float type. */
bool tow__read_dtypes(tow_scope *scope, const char *layer, tow_dtype dtype, tow_dtype param_dtype, size_t n,
                      const tow_value *in, tow__dtypes *types);
/* The same for a layer whose weights may be stored in blocks; for others blocks are an error in their own options, and
 * around them no matter. */
bool tow__read_weight_dtypes(tow_scope *scope, const char *layer, tow_dtype dtype, tow_dtype param_dtype, size_t n,
                             const tow_value *in, tow__dtypes *types);
/* The type that the option `option` stands for, which is not zero. */
bool tow__read_dtype(tow_scope *scope, const char *layer, const char *option, tow_dtype given, tow_dtype *dtype);
/* Each by itself. params: those of the layer, or NULL if it has none. */
bool tow__param_dtype(tow_scope *scope, const char *layer, tow_dtype param_dtype, tow_dtype *dtype);
bool tow__compute_dtype(tow_scope *scope, const char *layer, tow_dtype dtype, size_t n, const tow_value *values,
                        const tow_dtype *params, tow_dtype *compute);
/* x as another float type; x itself if it is of that type, or null. */
tow_value tow__as(tow_value x, tow_dtype dtype);
/* A layer made of layers: the scope with its two options as the defaults of all that is called under it; zero leaves
 * what is around. NULL after an error. */
tow_scope *tow__scope_with_dtypes(tow_scope *scope, const char *layer, tow_dtype dtype, tow_dtype param_dtype);
/* values[0..n), floats of different types, as the type that they promote to; others, and null values, stay. */
void tow__promote_floats(size_t n, tow_value *values);
/* x + y as the type that they promote to. */
tow_value tow__add_promoted(tow_value x, tow_value y);
tow_value tow__mul_promoted(tow_value x, tow_value y);

#endif

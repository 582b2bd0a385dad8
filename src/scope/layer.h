/* Shared by the layers: checks of their inputs with one wording, and defaults. */
#ifndef TOW_SRC_SCOPE_LAYER_H
#define TOW_SRC_SCOPE_LAYER_H

#include "src/scope/scope.h"
#include "tow/module.h"

/* Reports unless min_in <= n_in <= max_in and n_out is 1. */
bool tow__check_counts(tow_scope *scope, const char *layer, size_t n_in, size_t min_in, size_t max_in, size_t n_out);
/* The types of inputs that layers compute with. */
static inline bool tow__is_float(tow_dtype dtype) { return tow_dtype_is_float(dtype); }
/* Reports unless input i is of a float type and of at least this rank. */
bool tow__check_float(tow_scope *scope, const char *layer, size_t i, tow_value x, int min_rank);
/* Reports an option that is out of its range; returns ok. */
bool tow__check_option(tow_scope *scope, const char *layer, bool ok, const char *option, double found,
                       const char *expected);

/* Sizes in options are below this, so that sums of products of two of them do not overflow. */
#define TOW__SIZE_LIMIT ((int64_t)1 << 30)
/* The number of sizes that the option has before the first of the zeros that end the list; 0 after an error: none, a
 * negative one, or one behind a zero, which would be left out without a word. */
int tow__count_sizes(tow_scope *scope, const char *layer, const char *option, int limit, const int64_t *sizes);
/* filled[0..n) of a list with an entry for each of n axes: one entry alone stands for all of them, none for
 * `otherwise`. False after an error: an entry below 1, a wrong number of them. */
bool tow__fill_sizes(tow_scope *scope, const char *layer, const char *option, int n, const int64_t *sizes,
                     int64_t otherwise, int64_t *filled);
/* The axes that an option names, n of them or else the last one, increasing, and *count how many. False after an error:
 * an axis that x does not have, or twice. */
bool tow__read_axes(tow_scope *scope, const char *layer, tow_type x, int n, const int *axes, int *sorted, int *count);
/* The same of an option with another name than "axes". */
bool tow__read_axes_of(tow_scope *scope, const char *layer, const char *option, tow_type x, int n, const int *axes,
                       int *sorted, int *count);
/* Reports an axis that is not zero beyond the first n of TOW_MAX_RANK: its count was forgotten. */
bool tow__check_axes(tow_scope *scope, const char *layer, const char *option, int n, const int *axes);

/* ---- element types (dtypes.c) ------------------------------------------------------------------------------------ */

/* The types in which one call of a layer computes and stores its parameters. A layer has the options .dtype and
 * .param_dtype and begins with
 *
 *     tow__dtypes types;
 *     if (... || !tow__read_dtypes(scope, "Dense", m->dtype, m->param_dtype, n_in, in, &types)) return;
 *     tow_value x = tow__as(in[0], types.compute);
 *     tow_value kernel = tow__param(scope, "kernel", 2, dims, init, &types); */
typedef struct tow__dtypes {
    tow_dtype compute, params;
} tow__dtypes;
/* From the options, or the defaults around, or else what floats among the inputs and the parameters promote to. False,
 * reported: an option that is no float type. */
bool tow__read_dtypes(tow_scope *scope, const char *layer, tow_layer_dtype dtype, tow_layer_dtype param_dtype, size_t n,
                      const tow_value *in, tow__dtypes *types);
/* The type that the option `option` stands for, which is not zero. */
bool tow__read_dtype(tow_scope *scope, const char *layer, const char *option, tow_layer_dtype given, tow_dtype *dtype);
/* Each by itself. params: those of the layer, or NULL if it has none. */
bool tow__param_dtype(tow_scope *scope, const char *layer, tow_layer_dtype param_dtype, tow_dtype *dtype);
bool tow__compute_dtype(tow_scope *scope, const char *layer, tow_layer_dtype dtype, size_t n, const tow_value *values,
                        const tow_dtype *params, tow_dtype *compute);
/* x as another float type; x itself if it is of that type, or null. */
tow_value tow__as(tow_value x, tow_dtype dtype);
/* The parameter, stored as types->params, as types->compute. */
tow_value tow__param(tow_scope *scope, const char *name, int rank, const int64_t *dims, tow_initializer init,
                     const tow__dtypes *types);
/* The product of x with the parameter, and what views make of it; x and the result are of the type types->compute. */
tow_value tow__product_with_param(tow_scope *scope, const char *name, int rank, const int64_t *dims,
                                  tow_initializer init, const tow__dtypes *types, tow_value x, const tow_dot_dims *dot);
/* A layer made of layers: the scope with its two options as the defaults of all that is called under it; zero leaves
 * what is around. NULL after an error. */
tow_scope *tow__scope_with_dtypes(tow_scope *scope, const char *layer, tow_layer_dtype dtype,
                                  tow_layer_dtype param_dtype);
/* values[0..n), floats of different types, as the type that they promote to; others, and null values, stay. */
void tow__promote_floats(size_t n, tow_value *values);
/* x + y as the type that they promote to. */
tow_value tow__add_promoted(tow_value x, tow_value y);
tow_value tow__mul_promoted(tow_value x, tow_value y);
/* y + bias [its last axis], the parameter "bias". */
tow_value tow__add_bias(tow_scope *scope, tow_value y, tow_initializer init, const tow__dtypes *types);

static inline tow_initializer tow__init_or(tow_initializer given, tow_initializer otherwise)
{
    return tow_initializer_is_default(&given) ? otherwise : given;
}

#endif

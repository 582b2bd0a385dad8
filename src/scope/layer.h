/* Shared by the layers: checks of their inputs with one wording, and defaults. */
#ifndef TOW_SRC_SCOPE_LAYER_H
#define TOW_SRC_SCOPE_LAYER_H

#include "src/scope/dtypes.h"
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

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* The parameter, stored as types->params, as types->compute. */
tow_value tow__param(tow_scope *scope, const char *name, int rank, const int64_t *dims, tow_initializer init,
                     const tow__dtypes *types);
/* The product of x with the parameter, and what views make of it; x and the result are of the type types->compute. */
tow_value tow__product_with_param(tow_scope *scope, const char *name, int rank, const int64_t *dims,
                                  tow_initializer init, const tow__dtypes *types, tow_value x, const tow_dot_dims *dot);
/* A table [rows, features] as it is stored, in floats or in blocks along its rows; and some of its rows, which alone
 * are converted. */
tow_value tow__table(tow_scope *scope, const char *name, int64_t rows, int64_t features, tow_initializer init,
                     const tow__dtypes *types);
tow_value tow__rows(tow_value table, tow_value indices, tow_dtype dtype);
/* y + bias [its last axis], the parameter "bias". */
tow_value tow__add_bias(tow_scope *scope, tow_value y, tow_initializer init, const tow__dtypes *types);

static inline tow_initializer tow__init_or(tow_initializer given, tow_initializer otherwise)
{
    return tow_initializer_is_default(&given) ? otherwise : given;
}

#endif

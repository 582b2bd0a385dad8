/* What the layers share: checks of their inputs with one wording, and defaults. */
#ifndef TOW_LAYERS_LAYER_H
#define TOW_LAYERS_LAYER_H

#include "layers/scope.h"
#include "tow/layers.h"

/* Reports unless min_in <= n_in <= max_in and n_out is 1. */
bool tow__check_counts(tow_scope *scope, const char *layer, size_t n_in, size_t min_in, size_t max_in, size_t n_out);
/* The types of inputs that layers compute with. */
static inline bool tow__is_float(tow_dtype dtype) { return dtype == TOW_F32 || dtype == TOW_F64; }
/* Reports unless input i is f32 or f64 of at least this rank. */
bool tow__check_float(tow_scope *scope, const char *layer, size_t i, tow_value x, int min_rank);
/* Reports an option that is out of its range; returns ok. */
bool tow__check_option(tow_scope *scope, const char *layer, bool ok, const char *option, double found,
                       const char *expected);

/* Sizes in options are below this, so that sums of products of two of them do not overflow. */
#define TOW__SIZE_LIMIT ((int64_t)1 << 30)
/* How many sizes the option has before the first of the zeros that end the list; 0 after an error: none, a negative one,
 * or one behind a zero, which would be left out without a word. */
int tow__count_sizes(tow_scope *scope, const char *layer, const char *option, int limit, const int64_t *sizes);
/* filled[0..n) of a list with an entry for each of n axes: one entry alone stands for all of them, none for `otherwise`.
 * False after an error: an entry below 1, a wrong number of them. */
bool tow__fill_sizes(tow_scope *scope, const char *layer, const char *option, int n, const int64_t *sizes,
                     int64_t otherwise, int64_t *filled);
/* The axes that an option names, n of them or else the last one, increasing, and *count how many. False after an error:
 * an axis that x does not have, or twice. */
bool tow__read_axes(tow_scope *scope, const char *layer, tow_type x, int n, const int *axes, int *sorted, int *count);
/* Reports an axis that is not zero beyond the first n of TOW_MAX_RANK: its count was forgotten. */
bool tow__check_axes(tow_scope *scope, const char *layer, const char *option, int n, const int *axes);

/* The parameter, converted to the type of x. */
tow_value tow__param_like(tow_scope *scope, const char *name, int rank, const int64_t *dims, tow_initializer init,
                          tow_value x);
/* y + bias [its last axis], the parameter "bias". */
tow_value tow__add_bias(tow_scope *scope, tow_value y, tow_initializer init);

static inline tow_initializer tow__init_or(tow_initializer given, tow_initializer otherwise)
{
    return tow_initializer_is_default(&given) ? otherwise : given;
}

#endif

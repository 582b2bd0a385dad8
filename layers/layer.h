/* What the layers share: checks of their inputs with one wording, and defaults. */
#ifndef TOW_LAYERS_LAYER_H
#define TOW_LAYERS_LAYER_H

#include "layers/scope.h"
#include "tow/layers.h"

/* Reports unless min_in <= n_in <= max_in and n_out is 1. */
bool tow__check_counts(tow_scope *scope, const char *layer, size_t n_in, size_t min_in, size_t max_in, size_t n_out);
/* Reports unless input i is f32 of at least this rank. */
bool tow__check_f32(tow_scope *scope, const char *layer, size_t i, tow_value x, int min_rank);
/* Reports an option that is out of its range; returns ok. */
bool tow__check_option(tow_scope *scope, const char *layer, bool ok, const char *option, double found,
                       const char *expected);

/* How many widths there are before the first of the zeros that end the list; 0 after an error: none, a negative one, or
 * one behind a zero, which would be left out without a word. */
int tow__count_widths(tow_scope *scope, const char *layer, int limit, const int64_t *features);
/* Reports an axis that is not zero beyond the first n of TOW_MAX_RANK: its count was forgotten. */
bool tow__check_axes(tow_scope *scope, const char *layer, const char *option, int n, const int *axes);

static inline tow_initializer tow__init_or(tow_initializer given, tow_initializer otherwise)
{
    return tow_initializer_is_default(&given) ? otherwise : given;
}

#endif

/* See layer.h. */
#include "layers/layer.h"

bool tow__check_counts(tow_scope *scope, const char *layer, size_t n_in, size_t min_in, size_t max_in, size_t n_out)
{
    if (n_in >= min_in && n_in <= max_in && n_out == 1) return true;
    if (min_in == max_in)
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "%s: expected %zu input%s and 1 output, found %zu and %zu", layer,
                       min_in, min_in == 1 ? "" : "s", n_in, n_out);
    else
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "%s: expected %zu to %zu inputs and 1 output, found %zu and %zu",
                       layer, min_in, max_in, n_in, n_out);
    return false;
}

bool tow__check_f32(tow_scope *scope, const char *layer, size_t i, tow_value x, int min_rank)
{
    tow_type type = tow_value_type(x);
    if (type.dtype == TOW_F32 && type.rank >= min_rank) return true;
    tow_scope_fail(scope, type.dtype == TOW_F32 ? TOW_SHAPE_MISMATCH : TOW_TYPE_MISMATCH,
                   "%s: input %zu: expected f32 of rank %d or more, found %s", layer, i, min_rank,
                   tow__type_name(type).text);
    return false;
}

bool tow__check_option(tow_scope *scope, const char *layer, bool ok, const char *option, double found,
                       const char *expected)
{
    if (!ok) tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "%s: .%s = %g; expected %s", layer, option, found, expected);
    return ok;
}

int tow__count_widths(tow_scope *scope, const char *layer, int limit, const int64_t *features)
{
    int n = 0;
    while (n < limit && features[n] > 0) ++n;
    if (!tow__check_option(scope, layer, n > 0, "features[0]", (double)features[0], "at least one positive width"))
        return 0;
    for (int i = n; i < limit; i++)
        if (!tow__check_option(scope, layer, features[i] == 0, "features", (double)features[i],
                               "positive widths and then only zeros"))
            return 0;
    return n;
}

bool tow__check_axes(tow_scope *scope, const char *layer, const char *option, int n, const int *axes)
{
    for (int i = n > 0 ? n : 0; i < TOW_MAX_RANK; i++) {
        if (axes[i] == 0) continue;
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "%s: .%s[%d] = %d, but .n_%s = %d; set .n_%s to the number of axes",
                       layer, option, i, axes[i], option, n, option);
        return false;
    }
    return true;
}

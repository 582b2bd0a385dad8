/* See layer.h. */
#include "src/scope/layer.h"

#include "src/base/dtypes.h"
#include "src/scope/initializers.h"
#include "src/scope/views.h"

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

bool tow__check_float(tow_scope *scope, const char *layer, size_t i, tow_value x, int min_rank)
{
    tow_type type = tow_value_type(x);
    bool is_float = tow__is_float(type.dtype);
    if (is_float && type.rank >= min_rank) return true;
    tow_scope_fail(scope, is_float ? TOW_SHAPE_MISMATCH : TOW_TYPE_MISMATCH,
                   "%s: input %zu: expected f32, f64, bf16 or f16 of rank %d or more, found %s", layer, i, min_rank,
                   tow__type_name(type).text);
    return false;
}

bool tow__check_option(tow_scope *scope, const char *layer, bool ok, const char *option, double found,
                       const char *expected)
{
    if (!ok) tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "%s: .%s = %g; expected %s", layer, option, found, expected);
    return ok;
}

int tow__count_sizes(tow_scope *scope, const char *layer, const char *option, int limit, const int64_t *sizes)
{
    int n = 0;
    while (n < limit && sizes[n] > 0) {
        if (!tow__check_option(scope, layer, sizes[n] < TOW__SIZE_LIMIT, option, (double)sizes[n],
                               "numbers below 2^30"))
            return 0;
        ++n;
    }
    if (n == 0) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "%s: .%s[0] = %lld; expected at least one positive number", layer,
                       option, (long long)sizes[0]);
        return 0;
    }
    for (int i = n; i < limit; i++)
        if (!tow__check_option(scope, layer, sizes[i] == 0, option, (double)sizes[i],
                               "positive numbers and then only zeros"))
            return 0;
    return n;
}

bool tow__fill_sizes(tow_scope *scope, const char *layer, const char *option, int n, const int64_t *sizes,
                     int64_t otherwise, int64_t *filled)
{
    int given = TOW_MAX_RANK;
    while (given > 0 && sizes[given - 1] == 0) given--;
    if (given != 0 && given != 1 && given != n) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "%s: .%s has %d entries; expected %d, one for each axis, or one for all", layer, option, given,
                       n);
        return false;
    }
    for (int i = 0; i < n; i++) {
        filled[i] = given == 0 ? otherwise : sizes[given == 1 ? 0 : i];
        if (!tow__check_option(scope, layer, filled[i] > 0 && filled[i] < TOW__SIZE_LIMIT, option, (double)filled[i],
                               "positive numbers below 2^30"))
            return false;
    }
    return true;
}

bool tow__read_axes(tow_scope *scope, const char *layer, tow_type x, int n, const int *axes, int *sorted, int *count)
{
    return tow__read_axes_of(scope, layer, "axes", x, n, axes, sorted, count);
}

bool tow__read_axes_of(tow_scope *scope, const char *layer, const char *option, tow_type x, int n, const int *axes,
                       int *sorted, int *count)
{
    bool marked[TOW_MAX_RANK] = {false};
    *count = 0;
    if (n < 0 || n > x.rank) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "%s: .n_%s = %d; expected at most as many as the input has, %d",
                       layer, option, n, x.rank);
        return false;
    }
    if (!tow__check_axes(scope, layer, option, n, axes)) return false;
    if (n == 0 && x.rank == 0) return true;
    for (int i = 0; i < (n ? n : 1); i++) {
        int axis = n ? axes[i] : -1;
        if (axis < 0) axis += x.rank;
        if (axis < 0 || axis >= x.rank || marked[axis]) {
            tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "%s: .%s[%d] = %d; expected distinct axes of %s", layer, option,
                           i, n ? axes[i] : -1, tow__type_name(x).text);
            return false;
        }
        marked[axis] = true;
    }
    for (int axis = 0; axis < x.rank; axis++)
        if (marked[axis]) sorted[(*count)++] = axis;
    return true;
}

/* The letters of x [batch, free and contracted axes], the parameter [batch, contracted, features] and their product. */
static void spell_product(int x_rank, int rank, const tow_dot_dims *dot, char *x, char *param, char *y)
{
    int n = 0;
    for (int i = 0; i < x_rank; i++) x[i] = (char)('a' + i);
    for (int i = 0; i < dot->n_batch; i++) param[n++] = x[dot->lhs_batch[i]];
    for (int i = 0; i < dot->n_contract; i++) param[n++] = x[dot->lhs_contract[i]];
    for (; n < rank; n++) param[n] = (char)('A' + n);
    int k = 0;
    for (int i = 0; i < x_rank; i++) {
        bool contracted = false;
        for (int c = 0; c < dot->n_contract; c++) contracted = contracted || dot->lhs_contract[c] == i;
        if (!contracted) y[k++] = x[i];
    }
    for (int i = dot->n_batch + dot->n_contract; i < rank; i++) y[k++] = param[i];
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

tow_value tow__product_with_param(tow_scope *scope, const char *name, int rank, const int64_t *dims,
                                  tow_initializer init, const tow__dtypes *types, tow_value x, const tow_dot_dims *dot)
{
    char in[TOW_MAX_RANK + 1] = {0}, own[TOW_MAX_RANK + 1] = {0}, y[2 * TOW_MAX_RANK + 1] = {0};
    tow_variable_request request = {.collection = "params",
                                    .name = name,
                                    .type = tow_make_type(types->params, rank, dims),
                                    .init = init,
                                    .blocks = types->blocks,
                                    .summed = dot->n_batch > 0 ? 0 : dot->n_contract};
    if (scope->view) spell_product(tow_value_type(x).rank, rank, dot, in, own, y);
    return tow__request_product(scope, &request,
                                &(tow__product){in, own, y, dot->n_batch, dot->n_contract, types->compute, dot}, x);
}

tow_value tow__table(tow_scope *scope, const char *name, int64_t rows, int64_t features, tow_initializer init,
                     const tow__dtypes *types)
{
    const tow_variable_request request = {.collection = "params",
                                          .name = name,
                                          .type = tow_make_type(types->params, 2, (int64_t[]){rows, features}),
                                          .init = init,
                                          .blocks = types->blocks,
                                          .summed = -1};
    return tow__request_stored(scope, &request);
}

tow_value tow__rows(tow_value table, tow_value indices, tow_dtype dtype)
{
    const tow_value rows = tow_gather(table, indices);
    return tow_dtype_numbers(tow_value_type(table).dtype) > 1 ? tow_dequantize(rows, dtype) : tow__as(rows, dtype);
}

tow_value tow__param(tow_scope *scope, const char *name, int rank, const int64_t *dims, tow_initializer init,
                     const tow__dtypes *types)
{
    return tow__as(tow_param_with(scope, name, tow_make_type(types->params, rank, dims), TOW_PARAM_DEFAULT, init),
                   types->compute);
}

tow_value tow__add_bias(tow_scope *scope, tow_value y, tow_initializer init, const tow__dtypes *types)
{
    tow_type type = tow_value_type(y);
    if (tow_is_null(y)) return y;
    init = tow__init_or(init, tow_initializer_zeros());
    return tow_add(y, tow__param(scope, "bias", 1, &type.dims[type.rank - 1], init, types));
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

/* Scans by an associative function as a tree of pairs, as jax.lax.associative_scan: neighbors are combined, the halves
 * that this makes are scanned, which gives results 1, 3, 5, ..., and each of these with the element behind it gives the
 * others. So the function is recorded about 2 log2(n) times, on arrays that are ever shorter, and a result has log2(n)
 * levels.
 *
 * The derivatives of cumulative operations are such scans of values with their tangents (cumulative.c). */
#include "src/ops/reductions/scan_tree.h"

#include "src/ops/rules.h"
#include "tow/control.h"

/* Elements start, start + 2, ... below limit. */
static tow_value every_second(tow_value x, int axis, int64_t start, int64_t limit)
{
    tow_type type = tow_value_type(x);
    int64_t starts[TOW_MAX_RANK] = {0}, strides[TOW_MAX_RANK];
    if (tow_is_null(x)) return x;
    for (int d = 0; d < type.rank; d++) strides[d] = 1;
    starts[axis] = start;
    type.dims[axis] = limit;
    strides[axis] = 2;
    return tow_slice(x, starts, type.dims, strides);
}

/* even[0] odd[0] even[1] ...; even has as many elements as odd, or one more. */
static tow_value interleave(tow_value even, tow_value odd, int axis)
{
    tow_type type = tow_value_type(even);
    int64_t n = type.dims[axis], n_odd = tow_value_type(odd).dims[axis], low[TOW_MAX_RANK] = {0};
    int64_t high[TOW_MAX_RANK] = {0}, pair[TOW_MAX_RANK];
    if (tow__any_null(2, (tow_value[]){even, odd})) return tow__null();
    high[axis] = n - n_odd;
    if (n > n_odd) odd = tow_pad(odd, tow_scalar(odd.trace, type.dtype, 0), low, high, NULL);
    /* An axis for the pair may be one too many: the axes before and behind become one each. */
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < type.rank; d++) {
        if (d <= axis)
            outer *= type.dims[d];
        else
            inner *= type.dims[d];
    }
    pair[0] = outer, pair[1] = 1, pair[2] = inner;
    tow_value both = tow_concatenate(2, (tow_value[]){tow_reshape(even, 3, pair), tow_reshape(odd, 3, pair)}, 1);
    type.dims[axis] = 2 * n;
    return tow_slice_axis(tow_reshape(both, type.rank, type.dims), axis, 0, n + n_odd);
}

static tow_value behind_first(tow_value x, tow_value first, int axis)
{
    return tow_concatenate(2, (tow_value[]){tow_slice_axis(first, axis, 0, 1), x}, axis);
}

void tow__scan_tree(tow_trace *t, size_t n_values, tow_value *x, const int *axes, const tow__combination *combination)
{
    const int64_t n = n_values > 0 ? tow_value_type(x[0]).dims[axes[0]] : 0, half = n / 2;
    if (tow__failed(t) || tow__any_null(n_values, x) || n < 2) return;
    tow_value *a = tow__trace_alloc(t, 2 * n_values, sizeof *a), *odd = tow__trace_alloc(t, n_values, sizeof *odd),
              *even = tow__trace_alloc(t, n_values, sizeof *even);
    if (!a || !odd || !even) return;
    for (size_t i = 0; i < n_values; i++) {
        a[i] = every_second(x[i], axes[i], 0, n - 1);
        a[n_values + i] = every_second(x[i], axes[i], 1, n);
    }
    combination->combine(t, a, odd, combination->user);
    tow__scan_tree(t, n_values, odd, axes, combination);
    for (size_t i = 0; i < n_values; i++) {
        even[i] = every_second(x[i], axes[i], 0, 1);
        if (n == 2) continue;
        a[i] = tow_is_null(odd[i]) ? odd[i] : tow_slice_axis(odd[i], axes[i], 0, n % 2 == 0 ? half - 1 : half);
        a[n_values + i] = every_second(x[i], axes[i], 2, n);
    }
    if (n > 2) combination->combine(t, a, even, combination->user);
    for (size_t i = 0; i < n_values; i++) {
        if (n > 2 && !tow_is_null(even[i])) even[i] = behind_first(even[i], x[i], axes[i]);
        x[i] = interleave(even[i], odd[i], axes[i]);
    }
}

/* ---- public function --------------------------------------------------------------------------------------------- */

typedef struct scan_user {
    tow_function function;
    void *user;
    size_t n;
} scan_user;

/* The user's function, with a check of what it wrote. */
static void combine_checked(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const scan_user *s = user;
    for (size_t i = 0; i < s->n; i++) out[i] = tow__null();
    if (tow__failed(t)) return;
    s->function(t, in, out, s->user);
    for (size_t i = 0; i < s->n && !tow__failed(t); i++) {
        if (tow_is_null(out[i])) {
            tow_trace_fail(t, TOW_INVALID_ARGUMENT,
                           "associative_scan: the function never wrote output %zu; assign outputs[%zu] in it", i, i);
            return;
        }
        const tow_type want = tow_value_type(in[i]), found = tow_value_type(out[i]);
        if (!tow_type_equal(want, found))
            tow_trace_fail(t, TOW_SHAPE_MISMATCH,
                           "associative_scan: output %zu of the function must have the type of its operands, %s, found "
                           "%s",
                           i, tow__type_name(want).text, tow__type_name(found).text);
    }
}

/* The axis of each operand; false: the error is in the trace. */
static bool find_axes(tow_trace *t, size_t n, const tow_value *xs, int axis, int *axes)
{
    for (size_t i = 0; i < n; i++) {
        int64_t found;
        const tow_type type = tow_value_type(xs[i]), first = tow_value_type(xs[0]);
        if (!tow__normal_axis(xs[i], "associative_scan", axis, type.rank, &found)) return false;
        axes[i] = (int)found;
        if (type.dims[axes[i]] == first.dims[axes[0]]) continue;
        tow_trace_fail(
            t, TOW_SHAPE_MISMATCH,
            "associative_scan: operand %zu, %s, has %lld elements along axis %d and operand 0, %s, has %lld; "
            "all must have as many",
            i, tow__type_name(type).text, (long long)type.dims[axes[i]], axis, tow__type_name(first).text,
            (long long)first.dims[axes[0]]);
        return false;
    }
    return true;
}

void tow_associative_scan_function(tow_trace *trace, tow_function function, void *user, int axis, bool reverse,
                                   size_t n, const tow_value *xs, tow_value *ys)
{
    if (!tow__records(trace, NULL)) return;
    if (!function || (n > 0 && (!xs || !ys))) {
        tow_trace_fail(trace, TOW_INVALID_ARGUMENT,
                       "associative_scan: expected a function, operands and places for as many results, found NULL");
        return;
    }
    int *axes = tow__trace_alloc(trace, n, sizeof *axes);
    tow_value *x = tow__trace_alloc(trace, n, sizeof *x);
    scan_user s = {function, user, n};
    const tow__combination combination = {combine_checked, &s};
    if (x && n > 0) memcpy(x, xs, n * sizeof *x);
    for (size_t i = 0; i < n; i++) ys[i] = tow__null();
    if (!axes || !x || tow__any_null(n, x) || !find_axes(trace, n, x, axis, axes)) return;
    for (size_t i = 0; i < n && reverse; i++) x[i] = tow_rev(x[i], 1, &axes[i]);
    tow__scan_tree(trace, n, x, axes, &combination);
    if (tow__failed(trace)) return;
    for (size_t i = 0; i < n; i++) ys[i] = reverse ? tow_rev(x[i], 1, &axes[i]) : x[i];
}

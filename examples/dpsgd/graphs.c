/* See graphs.h. (Abadi and others, Deep learning with differential privacy, 2016) */
#include "graphs.h"

#include <stdlib.h>

typedef struct recording {
    const tow_graph *gradient;
    const tow_params *params;
    const dp_privacy *privacy;
    int64_t n;
} recording;

static size_t n_params(const recording *r) { return tow_params_count(r->params); }
/* Inputs of one example. */
static size_t n_example(const recording *r) { return tow_graph_input_count(r->gradient) - n_params(r); }

/* ---- clipped sums ------------------------------------------------------------------------------------------------ */

/* One example. in: parameters..., its inputs, present -> loss, gradients..., times present min(1, clip / norm). */
static void clipped(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const recording *r = user;
    tow_value present = in[n_params(r) + n_example(r)], square = {0};
    tow_inline(trace, r->gradient, in, out);
    for (size_t i = 1; i <= n_params(r); i++) {
        tow_value part = tow_reduce_sum(tow_square(tow_convert(out[i], TOW_F64)), 0, NULL);
        square = i == 1 ? part : tow_add(square, part);
    }
    /* the square of the norm is at least a number that keeps the quotient finite, and does not matter beside clip */
    tow_value norm = tow_sqrt(tow_max_scalar(square, 1e-30));
    tow_value factor = tow_min_scalar(tow_div(tow_full_like(norm, r->privacy->clip), norm), 1);
    out[0] = tow_mul(present, out[0]);
    factor = tow_mul(factor, tow_convert(present, TOW_F64));
    for (size_t i = 1; i <= n_params(r); i++) /* f64: the largest gradients of f32 have norms that f32 does not hold */
        out[i] = tow_convert(tow_mul(tow_convert(out[i], TOW_F64), factor), TOW_F32);
}

static void sums(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const recording *r = user;
    size_t n = n_params(r), inputs = n + n_example(r) + 1;
    tow_value *row = calloc(2 * inputs, sizeof *row);
    int *axes = calloc(inputs, sizeof *axes);
    if (!row || !axes) {
        tow_trace_fail(trace, TOW_OUT_OF_MEMORY, "clipped sums: out of memory");
    } else {
        for (size_t i = 0; i < inputs; i++) {
            row[i] = in[i < n ? i : i + n];
            axes[i] = i < n ? TOW_NOT_MAPPED : 0;
        }
        tow_value *each = row + inputs; /* loss, gradients...: [r->n, ...] */
        tow_vmap_function(trace, clipped, user, &TOW_VMAP_OPTIONS(.in_axes = axes), inputs, row, n + 1, each);
        for (size_t i = 0; i <= n; i++) {
            tow_value sum = tow_reduce_sum(each[i], 1, (const int[]){0});
            out[i] = i == 0 ? sum : tow_add(in[n + i - 1], sum);
        }
    }
    free(axes);
    free(row);
}

tow_status dp_clipped_sums(tow_context *context, const tow_graph *gradient, const tow_params *params, int64_t n,
                           const dp_privacy *privacy, tow_graph **graph)
{
    recording r = {gradient, params, privacy, n};
    size_t count = n_params(&r), inputs = 2 * count + n_example(&r) + 1;
    tow_type *types = calloc(inputs, sizeof *types);
    if (!types) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) types[i] = types[count + i] = tow_array_type(tow_params_array(params, i));
    for (size_t i = 2 * count; i < inputs; i++) {
        bool last = i + 1 == inputs;
        tow_type one = last ? tow_make_type(TOW_F32, 0, NULL) : tow_graph_input_type(gradient, i - count);
        int64_t dims[TOW_MAX_RANK] = {n};
        for (int axis = 0; axis < one.rank && axis + 1 < TOW_MAX_RANK; axis++) dims[axis + 1] = one.dims[axis];
        types[i] = tow_make_type(one.dtype, one.rank + 1, dims);
    }
    tow_status status = tow_trace_function(context, sums, &r, inputs, types, NULL, count + 1, graph);
    free(types);
    return status;
}

/* ---- noise, and who takes part ----------------------------------------------------------------------------------- */

static void means(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const recording *r = user;
    const dp_privacy *p = r->privacy;
    (void)trace;
    for (size_t i = 0; i < n_params(r); i++) {
        tow_value key = tow_random_fold_in(in[n_params(r)], tow_scalar(trace, TOW_U32, (double)i));
        tow_value noise = tow_random_normal_with(key, tow_value_type(in[i]));
        out[i] = tow_mul_scalar(tow_add(in[i], tow_mul_scalar(noise, p->noise * p->clip)), 1 / p->expected);
    }
}

static tow_type key_type(void) { return tow_make_type(TOW_U32, 1, (const int64_t[]){2}); }

tow_status dp_noisy_means(tow_context *context, const tow_params *params, const dp_privacy *privacy, tow_graph **graph)
{
    recording r = {.params = params, .privacy = privacy};
    size_t count = n_params(&r);
    tow_type *types = calloc(count + 1, sizeof *types);
    if (!types) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) types[i] = tow_array_type(tow_params_array(params, i));
    types[count] = key_type();
    tow_status status = tow_trace_function(context, means, &r, count + 1, types, NULL, count, graph);
    free(types);
    return status;
}

static void draws(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    *out = tow_random_uniform_with(*in, tow_make_type(TOW_F32, 1, user), 0, 1);
}

tow_status dp_draws(tow_context *context, int64_t n, tow_graph **graph)
{
    tow_type type = key_type();
    return tow_trace_function(context, draws, &n, 1, &type, NULL, 1, graph);
}

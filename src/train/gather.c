/* Sums and norms of gradients, as compiled programs. Gradients of 16 bits are added up in f32.
 *
 *   call 1: s = g       calls 2 .. every-1: s = s + g       call `every`: mean = (s + g) / every
 *
 * The order of the sum is that of the calls, and there is one division at the end: where the sums are exact, and
 * `every` is a power of two, the mean has the bits of one large batch. With weights, w g stands for g, and the sum of
 * the weights for `every`. */
#include "src/train/gather.h"

#include <math.h>

#include "src/base/base.h"
#include "src/graph/graph.h"
#include "src/params/params.h"
#include "src/train/norms.h"
#include "src/train/update.h"
#include "tow/numpy.h"
#include "tow/ops.h"
#include "tow/program.h"

/* ---- sums -------------------------------------------------------------------------------------------------------- */

enum {
    FIRST,
    NEXT,
    LAST,
    STAGES
};

struct tow__gathering {
    tow_context *ctx;
    const tow_params *params;
    size_t n, every, have;
    bool sum, weighted;
    tow_array *weights[2];         /* f64[]: of the call, and of all calls with it; NULL without weights */
    tow_array **sums;              /* [n], of f32 where gradients have 16 bits */
    tow_array **means;             /* [n] of the gradients' types: the array of the sum where that has the same type */
    tow_program *programs[STAGES]; /* (sums..., gradients..., weights...) -> sums..., or means... */
    tow_array **inputs;
};

tow_type tow__gradient_sum_type(tow_type type)
{
    if (type.dtype == TOW_BF16 || type.dtype == TOW_F16) type.dtype = TOW_F32;
    return type;
}

/* weight x; 0 where the weight is 0, whatever x is. */
static tow_value weigh(tow_value x, tow_value weight)
{
    const tow_value zero = tow_zeros_like(x), counts = tow_gt(weight, tow_zeros_like(weight));
    return tow_where(counts, tow_mul(x, tow_convert(weight, tow_value_type(x).dtype)), zero);
}

static tow_value as_type(tow_value x, tow_dtype dtype)
{
    return tow_value_type(x).dtype == dtype ? x : tow_convert(x, dtype);
}

tow_value tow__gradient_term(tow_value x, tow_dtype sum_dtype, tow_value weight)
{
    const tow_value wide = as_type(x, sum_dtype);
    return tow_is_null(weight) ? wide : weigh(wide, weight);
}

tow_value tow__gradient_mean(tow_value sum, size_t every, tow_value weights, tow_dtype dtype)
{
    const tow_value mean = tow_is_null(weights) ? tow_div_scalar(sum, (double)every)
                                                : tow_div(sum, tow_convert(weights, tow_value_type(sum).dtype));
    return as_type(mean, dtype);
}

typedef struct adding {
    const tow__gathering *g;
    int stage;
} adding;

static void record_sums(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const adding *a = user;
    const tow__gathering *g = a->g;
    const tow_value weight = g->weighted ? in[2 * g->n] : (tow_value){0},
                    weights = g->weighted ? in[2 * g->n + 1] : (tow_value){0};
    (void)trace;
    for (size_t i = 0; i < g->n; i++) {
        const tow_dtype of_gradient = tow_value_type(in[g->n + i]).dtype;
        tow_value sum = tow__gradient_term(in[g->n + i], tow_value_type(in[i]).dtype, weight);
        if (a->stage != FIRST) sum = tow_add(in[i], sum);
        if (a->stage == LAST)
            sum = g->sum ? as_type(sum, of_gradient) : tow__gradient_mean(sum, g->every, weights, of_gradient);
        out[i] = sum;
    }
}

/* Results are written over the sums, where they have the same type. */
static tow_status compile_sums(tow__gathering *g, int stage, const tow_type *types)
{
    tow_graph *graph = NULL;
    tow_donation *donations = tow__alloc(g->ctx, g->n + 1, sizeof *donations);
    adding a = {g, stage};
    tow_compile_options options = TOW_COMPILE_OPTIONS(.flush_subnormals = true, .donations = donations);
    tow_status status = TOW_OK;
    if (!donations) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < g->n; i++)
        if (stage != LAST || tow_type_equal(types[i], types[g->n + i]))
            donations[options.n_donations++] = (tow_donation){i, i};
    TRY(tow_trace_function(g->ctx, record_sums, &a, 2 * g->n + (g->weighted ? 2 : 0), types, NULL, g->n, &graph));
    TRY(tow_compile(g->ctx, graph, &options, &g->programs[stage]));
done:
    tow_graph_release(graph);
    tow__free(g->ctx, donations, g->n + 1, sizeof *donations);
    return status;
}

static tow_status make_sums(tow__gathering *g)
{
    tow_status status = TOW_OK;
    tow_type *types = tow__alloc(g->ctx, 2 * g->n + 2, sizeof *types);
    if (!types) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < 2; i++) {
        types[2 * g->n + i] = tow_make_type(TOW_F64, 0, NULL);
        if (g->weighted) TRY(tow_array_create(g->ctx, types[2 * g->n + i], &g->weights[i]));
        g->inputs[2 * g->n + i] = g->weights[i];
    }
    for (size_t i = 0; i < g->n; i++) {
        types[g->n + i] = g->params->types[i];
        types[i] = tow__gradient_sum_type(types[g->n + i]);
        TRY(tow_array_create(g->ctx, types[i], &g->sums[i]));
        if (tow_type_equal(types[i], types[g->n + i]))
            g->means[i] = tow_array_retain(g->sums[i]);
        else
            TRY(tow_array_create(g->ctx, types[g->n + i], &g->means[i]));
        g->inputs[i] = g->sums[i];
    }
    for (int stage = 0; stage < STAGES; stage++) TRY(compile_sums(g, stage, types));
done:
    tow__free(g->ctx, types, 2 * g->n + 2, sizeof *types);
    return status;
}

tow_status tow__gathering_create(tow_context *ctx, const tow_params *params, size_t every, bool sum, bool weighted,
                                 tow__gathering **gathering)
{
    tow__gathering *g = *gathering = tow__alloc(ctx, 1, sizeof *g);
    if (!g) return TOW_OUT_OF_MEMORY;
    *g = (tow__gathering){
        .ctx = ctx, .params = params, .n = tow_params_count(params), .every = every, .sum = sum, .weighted = weighted};
    g->sums = tow__alloc(ctx, g->n + 1, sizeof *g->sums);
    g->means = tow__alloc(ctx, g->n + 1, sizeof *g->means);
    g->inputs = tow__alloc(ctx, 2 * g->n + 2, sizeof *g->inputs);
    return g->sums && g->means && g->inputs ? make_sums(g) : TOW_OUT_OF_MEMORY;
}

static void free_arrays(tow_context *ctx, tow_array **arrays, size_t n)
{
    for (size_t i = 0; arrays && i < n; i++) tow_array_release(arrays[i]);
    if (arrays) tow__free(ctx, arrays, n + 1, sizeof *arrays);
}

void tow__gathering_free(tow__gathering *g)
{
    if (!g) return;
    free_arrays(g->ctx, g->sums, g->n);
    free_arrays(g->ctx, g->means, g->n);
    if (g->inputs) tow__free(g->ctx, g->inputs, 2 * g->n + 2, sizeof *g->inputs);
    for (size_t i = 0; i < 2; i++) tow_array_release(g->weights[i]);
    for (int stage = 0; stage < STAGES; stage++) tow_program_free(g->programs[stage]);
    tow__free(g->ctx, g, 1, sizeof *g);
}

/* Sets the weight of a call, and that of all calls so far. */
static tow_status set_weight(tow__gathering *g, double weight, bool last)
{
    if (!g->weighted) return TOW_OK;
    double *own = tow_array_data(g->weights[0]), *all = tow_array_data(g->weights[1]);
    const double sum = (g->have > 0 ? *all : 0) + weight;
    if (!(weight >= 0) || isinf(weight))
        return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                         "optimizer: expected gradients with a finite weight of 0 or more, found %g", weight);
    if (last && !g->sum && sum == 0)
        return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                         "optimizer: expected gradients one of which has a weight above 0, found %zu with weight 0",
                         g->every);
    *own = weight;
    *all = sum;
    return TOW_OK;
}

tow_status tow__gathering_add(tow__gathering *g, tow_array *const *gradients, double weight,
                              tow_array *const **complete)
{
    const bool last = g->have + 1 == g->every;
    *complete = NULL;
    const tow_status weighed = set_weight(g, weight, last);
    if (weighed != TOW_OK) return weighed;
    memcpy(g->inputs + g->n, gradients, g->n * sizeof *gradients);
    tow_status status = tow_program_run(g->programs[g->have == 0 ? FIRST
                                                    : last       ? LAST
                                                                 : NEXT],
                                        g->inputs, last ? g->means : g->sums);
    if (status != TOW_OK) return status;
    g->have = last ? 0 : g->have + 1;
    if (last) *complete = g->means;
    return TOW_OK;
}

size_t tow__gathering_count(const tow__gathering *g) { return g->have; }
void tow__gathering_forget(tow__gathering *g) { g->have = 0; }

/* ---- norms ------------------------------------------------------------------------------------------------------- */

struct tow__norm {
    tow_context *ctx;
    tow_program *program;  /* gradients... -> f64[], bool[] */
    tow_array *outputs[2]; /* the norm; whether all is finite */
};

/* Squares of f32 are finite in f64, so their sum tells; those of f64 are looked at element by element. */
static tow__root root_of(size_t n, const tow_value *x, const int64_t *layers)
{
    return layers ? tow__root_of_lines(n, x, layers) : tow__root_of_squares(n, x);
}

void tow__record_norm(tow_trace *trace, const tow_params *params, bool by_lines, const tow_value *gradients,
                      tow_value *norm, tow_value *finite)
{
    const size_t n = tow_params_count(params);
    tow_value *all = tow__trace_alloc(trace, 2 * n + 1, sizeof *all);
    int64_t *layers = tow__trace_alloc(trace, 2 * n + 1, sizeof *layers);
    size_t n_narrow = 0;
    *norm = *finite = tow_scalar(trace, TOW_BOOL, 1);
    if (!all || !layers) return;
    for (size_t i = 0; i < n; i++) {
        layers[i] = layers[n + n_narrow] = tow__layers_of(params, (uint32_t)i);
        const bool wide = tow_value_type(gradients[i]).dtype == TOW_F64;
        int axes[TOW_MAX_RANK], n_axes = tow__path_axes(params->names.names[i], params->types[i].rank, axes);
        tow_value x = tow__axes_to_front(gradients[i], n_axes,
                                         axes); /* the sum of a model does not depend on where layers are stacked */
        all[i] = x;
        if (wide)
            *finite = tow_and(*finite, tow_reduce_and(tow_is_finite(x), 0, NULL));
        else
            all[n + n_narrow++] = x;
    }
    if (n == 0) all[0] = tow_scalar(trace, TOW_F64, 0);
    const int64_t *of_lines = by_lines && n > 0 ? layers : NULL;
    *norm = tow__root_value(root_of(n ? n : 1, all, of_lines));
    if (n_narrow > 0) {
        tow_value narrow =
            n_narrow == n ? *norm : tow__root_value(root_of(n_narrow, all + n, of_lines ? layers + n : NULL));
        *finite = tow_and(*finite, tow_is_finite(narrow));
    }
}

static void record_norm(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow__record_norm(trace, user, false, in, &out[0], &out[1]);
}

static void record_norm_of_lines(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow__record_norm(trace, user, true, in, &out[0], &out[1]);
}

tow_status tow__norm_graph(tow_context *ctx, const tow_params *params, tow_graph **graph)
{
    return tow_trace_function(ctx, record_norm_of_lines, (void *)(uintptr_t)params, tow_params_count(params),
                              params->types, NULL, 2, graph);
}

tow_status tow__norm_create(tow_context *ctx, const tow_params *params, tow__norm **norm)
{
    tow_graph *graph = NULL;
    tow__norm *m = *norm = tow__alloc(ctx, 1, sizeof *m);
    tow_status status = TOW_OK;
    if (!m) return TOW_OUT_OF_MEMORY;
    m->ctx = ctx;
    TRY(tow_trace_function(ctx, record_norm, (void *)(uintptr_t)params, tow_params_count(params), params->types, NULL,
                           2, &graph));
    TRY(tow_compile(ctx, graph, &TOW_COMPILE_OPTIONS(.flush_subnormals = true), &m->program));
    for (size_t i = 0; i < 2; i++) TRY(tow_array_create(ctx, tow_graph_output_type(graph, i), &m->outputs[i]));
done:
    tow_graph_release(graph);
    return status;
}

void tow__norm_free(tow__norm *m)
{
    if (!m) return;
    tow_program_free(m->program);
    for (size_t i = 0; i < 2; i++) tow_array_release(m->outputs[i]);
    tow__free(m->ctx, m, 1, sizeof *m);
}

tow_status tow__norm_run(tow__norm *m, tow_array *const *gradients, double *value, bool *finite)
{
    tow_status status = tow_program_run(m->program, gradients, m->outputs);
    if (status != TOW_OK) return status;
    if (value) *value = *(const double *)tow_array_data(m->outputs[0]);
    *finite = *(const bool *)tow_array_data(m->outputs[1]);
    return TOW_OK;
}

/* Everything but products and attention, kernel by kernel, against the copy bandwidth of the same memory: elementwise
 * functions, chains of them, softmax, norms, reductions, moves, AdamW.
 *
 *     vectors [--threads N] [--only SUBSTRING] [--no-regions]
 *
 * Each kernel runs as a compiled program of one operation, on arrays that lie in the cache and on arrays that do not.
 * GB/s counts every operand read and every result written once. "of copy" is the share of what memcpy moves in arrays
 * of that size, on the same threads in the same process; kernels with much arithmetic cannot reach it in the cache. The
 * last table has the functions' arithmetic by itself, compiled for each instruction set. With --no-regions programs are
 * compiled without row regions: what is written out takes several passes then. */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "kernels/sets.h"
#include "limits.h"
#include "tow/optimizer.h"

enum {
    ROW = 1024,      /* elements of the last axis */
    NEAR_ROWS = 16,  /* 64 KiB per array */
    FAR_ROWS = 16384 /* 64 MiB */
};

/* ---- what is measured: functions of x, y [rows, ROW], a, b [ROW] and labels [rows] ------------------------------- */

enum {
    X,
    Y,
    A,
    B,
    LABELS,
    OPERANDS
};

#define UNARY(name)                                                                                                    \
    static tow_value call_##name(const tow_value *in) { return tow_##name(in[X]); }
UNARY(neg)
UNARY(square)
UNARY(relu)
UNARY(sqrt)
UNARY(rsqrt)
UNARY(exp)
UNARY(log)
UNARY(sin)
UNARY(tanh)
UNARY(logistic)
UNARY(silu)
UNARY(erf)
static tow_value call_gelu(const tow_value *in) { return tow_gelu(in[X]); }
static tow_value call_gelu_erf(const tow_value *in) { return tow_gelu_erf(in[X]); }
static tow_value call_add(const tow_value *in) { return tow_add(in[X], in[Y]); }
static tow_value call_add_row(const tow_value *in) { return tow_add(in[X], in[A]); }
static tow_value call_mul_column(const tow_value *in)
{
    const tow_type type = tow_value_type(in[X]);
    tow_value labels = tow_convert(in[LABELS], TOW_F32);
    return tow_mul(in[X], tow_broadcast_in_dim(labels, 2, type.dims, (const int[]){0}));
}
static tow_value call_chain(const tow_value *in) { return tow_add(tow_tanh(tow_mul(in[X], in[Y])), in[A]); }
static tow_value call_softmax(const tow_value *in) { return tow_softmax(in[X], 1); }
static tow_value call_softmax_columns(const tow_value *in) { return tow_softmax(in[X], 0); }
static tow_value call_logsumexp(const tow_value *in) { return tow_logsumexp(in[X], 1); }
static tow_value call_cross_entropy(const tow_value *in) { return tow_softmax_cross_entropy(in[X], in[LABELS]); }
static tow_value call_layer_norm(const tow_value *in) { return tow_normalize_layer(in[X], in[A], in[B], 1e-6); }
static tow_value call_rms_norm(const tow_value *in) { return tow_normalize_rms(in[X], in[A], 1e-6); }
/* As a user writes it who does not know the layer. */
static tow_value call_written_norm(const tow_value *in)
{
    tow_value mean = tow_mean(tow_square(in[X]), 1, (const int[]){1});
    tow_value rstd = tow_rsqrt(tow_add_scalar(mean, 1e-6));
    const tow_type type = tow_value_type(in[X]);
    return tow_mul(tow_mul(in[X], tow_broadcast_in_dim(rstd, 2, type.dims, (const int[]){0})), in[A]);
}
static tow_value call_written_softmax(const tow_value *in)
{
    const tow_type type = tow_value_type(in[X]);
    tow_value most = tow_reduce_max(in[X], 1, (const int[]){1});
    tow_value e = tow_exp(tow_sub(in[X], tow_broadcast_in_dim(most, 2, type.dims, (const int[]){0})));
    tow_value sum = tow_reduce_sum(e, 1, (const int[]){1});
    return tow_div(e, tow_broadcast_in_dim(sum, 2, type.dims, (const int[]){0}));
}
static tow_value call_written_batch_norm(const tow_value *in)
{
    const tow_type type = tow_value_type(in[X]);
    tow_value mean = tow_mean(in[X], 1, (const int[]){0});
    tow_value centered = tow_sub(in[X], tow_broadcast_to(mean, 2, type.dims));
    tow_value variance = tow_mean(tow_square(centered), 1, (const int[]){0});
    tow_value rstd = tow_rsqrt(tow_add_scalar(variance, 1e-5));
    tow_value scaled = tow_mul(tow_mul(centered, tow_broadcast_to(rstd, 2, type.dims)), in[A]);
    return tow_add(scaled, in[B]);
}
static tow_value call_squared_error(const tow_value *in)
{
    return tow_mean(tow_square(tow_sub(tow_tanh(in[X]), in[Y])), 0, NULL);
}
static tow_value call_huber(const tow_value *in)
{
    tow_value error = tow_sub(in[X], in[Y]), size = tow_abs(error);
    tow_value square = tow_mul_scalar(tow_square(error), 0.5), line = tow_add_scalar(size, -0.5);
    return tow_mean(tow_where(tow_lt(size, tow_full_like(size, 1)), square, line), 0, NULL);
}
/* x as rows of n elements. */
static tow_value short_rows(tow_value x, int64_t n)
{
    return tow_reshape(x, 2, (const int64_t[]){tow_type_element_count(tow_value_type(x)) / n, n});
}
static tow_value call_sum_short(const tow_value *in)
{
    return tow_reduce_sum(short_rows(in[X], 8), 1, (const int[]){1});
}
static tow_value call_count(const tow_value *in)
{
    return tow_reduce_sum(tow_convert(tow_gt(in[X], in[Y]), TOW_I32), 0, NULL);
}
static tow_value call_triangle(const tow_value *in)
{
    tow_type type = tow_value_type(in[X]);
    type.dtype = TOW_I32;
    tow_trace *t = in[X].trace;
    return tow_where(tow_ge(tow_iota(t, type, 0), tow_iota(t, type, 1)), in[X], tow_zeros_like(in[X]));
}
static tow_value call_argmax(const tow_value *in) { return tow_argmax(in[X], 1); }
static tow_value call_argmax_columns(const tow_value *in) { return tow_argmax(in[X], 0); }
static tow_value call_argmax_short(const tow_value *in) { return tow_argmax(short_rows(in[X], 16), 1); }
static tow_value call_sum_rows(const tow_value *in) { return tow_reduce_sum(in[X], 1, (const int[]){1}); }
static tow_value call_sum_columns(const tow_value *in) { return tow_reduce_sum(in[X], 1, (const int[]){0}); }
static tow_value call_max_rows(const tow_value *in) { return tow_reduce_max(in[X], 1, (const int[]){1}); }
static tow_value call_transpose(const tow_value *in) { return tow_transpose(in[X], 0, NULL); }
static tow_value call_concatenate(const tow_value *in)
{
    return tow_concatenate(
        2, (tow_value[]) { in[X], in[Y] }, 1);
}
static tow_value call_gather(const tow_value *in) { return tow_gather(in[X], in[LABELS]); }
static tow_value call_scatter(const tow_value *in) { return tow_scatter_add(in[LABELS], in[X], ROW); }

typedef struct kernel {
    const char *name;
    tow_value (*call)(const tow_value *in);
    unsigned operands; /* bits: which of them it reads */
    bool gradient;     /* value and gradient instead, of a result that is no scalar: of the sum of its squares */
} kernel;

static const kernel kernels[] = {
    {"neg", call_neg, 1 << X},
    {"square", call_square, 1 << X},
    {"relu", call_relu, 1 << X},
    {"sqrt", call_sqrt, 1 << X},
    {"rsqrt", call_rsqrt, 1 << X},
    {"exp", call_exp, 1 << X},
    {"log", call_log, 1 << X},
    {"sin", call_sin, 1 << X},
    {"tanh", call_tanh, 1 << X},
    {"logistic", call_logistic, 1 << X},
    {"silu", call_silu, 1 << X},
    {"erf", call_erf, 1 << X},
    {"gelu (tanh)", call_gelu, 1 << X},
    {"gelu (erf)", call_gelu_erf, 1 << X},
    {"add", call_add, 1 << X | 1 << Y},
    {"add, one row to all", call_add_row, 1 << X | 1 << A},
    {"mul, one column to all", call_mul_column, 1 << X | 1 << LABELS},
    {"tanh(x y) + row", call_chain, 1 << X | 1 << Y | 1 << A},
    {"softmax", call_softmax, 1 << X},
    {"softmax over columns", call_softmax_columns, 1 << X},
    {"logsumexp", call_logsumexp, 1 << X},
    {"softmax cross-entropy", call_cross_entropy, 1 << X | 1 << LABELS},
    {"layer norm", call_layer_norm, 1 << X | 1 << A | 1 << B},
    {"layer norm, value and gradient", call_layer_norm, 1 << X | 1 << A | 1 << B, true},
    {"RMS norm", call_rms_norm, 1 << X | 1 << A},
    {"RMS norm, written out", call_written_norm, 1 << X | 1 << A},
    {"RMS norm, written out, value and gradient", call_written_norm, 1 << X | 1 << A, true},
    {"softmax, written out", call_written_softmax, 1 << X},
    {"batch norm, written out", call_written_batch_norm, 1 << X | 1 << A | 1 << B},
    {"batch norm, written out, value and gradient", call_written_batch_norm, 1 << X | 1 << A | 1 << B, true},
    {"squared error, written out", call_squared_error, 1 << X | 1 << Y},
    {"squared error, written out, value and gradient", call_squared_error, 1 << X | 1 << Y, true},
    {"Huber loss, written out", call_huber, 1 << X | 1 << Y},
    {"Huber loss, written out, value and gradient", call_huber, 1 << X | 1 << Y, true},
    {"sum over rows", call_sum_rows, 1 << X},
    {"sum over rows of 8", call_sum_short, 1 << X},
    {"sum over columns", call_sum_columns, 1 << X},
    {"maximum over rows", call_max_rows, 1 << X},
    {"count of x > y", call_count, 1 << X | 1 << Y},
    {"lower triangle", call_triangle, 1 << X},
    {"argmax over rows", call_argmax, 1 << X},
    {"argmax over rows of 16", call_argmax_short, 1 << X},
    {"argmax over columns", call_argmax_columns, 1 << X},
    {"transpose", call_transpose, 1 << X},
    {"concatenate", call_concatenate, 1 << X | 1 << Y},
    {"gather of rows", call_gather, 1 << X | 1 << LABELS},
    {"sums of rows by label", call_scatter, 1 << X | 1 << LABELS},
};
enum {
    KERNELS = sizeof kernels / sizeof *kernels
};

/* The operands that the kernel reads are the inputs, in order. */
static void trace_kernel(tow_trace *trace, const tow_value *inputs, tow_value *out, void *user)
{
    (void)trace;
    const kernel *k = *(const kernel *const *)user;
    tow_value in[OPERANDS] = {{0}};
    size_t n = 0;
    for (int i = 0; i < OPERANDS; i++)
        if (k->operands & 1u << i) in[i] = inputs[n++];
    out[0] = k->call(in);
    if (k->gradient && tow_value_type(out[0]).rank > 0) out[0] = tow_reduce_sum(tow_square(out[0]), 0, NULL);
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

/* Seconds of the fastest call, for as long as it takes to see it. */
static double fastest(tow_status (*step)(void *user), void *user, const bench *b)
{
    double best = 1e30, calls = 1;
    int timings = 0; /* at least some: the first one may be the first to touch the memory */
    for (double end = bench_now() + 0.15, now = 0; now < end || timings < 5; timings++) {
        double start = bench_now();
        for (int64_t i = 0; i < (int64_t)calls; i++) bench_check(b, step(user));
        now = bench_now();
        double seconds = (now - start) / calls;
        if (seconds < best) best = seconds;
        calls = 1 + 5e-4 / best; /* about half a millisecond per timing */
    }
    return best;
}

typedef struct run {
    tow_program *program;
    tow_array *in[OPERANDS], *out[1 + OPERANDS];
} run;

static tow_status run_once(void *user)
{
    run *r = user;
    return tow_program_run(r->program, r->in, r->out);
}

static tow_type operand_type(int operand, int64_t rows)
{
    if (operand == LABELS) return tow_make_type(TOW_I32, 1, &rows);
    if (operand == A || operand == B) return tow_make_type(TOW_F32, 1, (int64_t[]){ROW});
    return tow_make_type(TOW_F32, 2, (int64_t[]){rows, ROW});
}

/* Gbyte/s. */
static double measure_kernel(const bench *b, const kernel *k, int64_t rows, const tow_compile_options *options)
{
    run r = {0};
    tow_type types[OPERANDS];
    tow_graph *graph = NULL, *gradient = NULL;
    size_t n = 0, wrt[OPERANDS], bytes = 0;
    for (int i = 0; i < OPERANDS; i++) {
        if (!(k->operands & 1u << i)) continue;
        types[n] = operand_type(i, rows);
        wrt[n] = n;
        bench_check(b, tow_array_create(b->context, types[n], &r.in[n]));
        bench_fill(r.in[n], (uint64_t)i, i == LABELS ? (double)(rows < ROW ? rows : ROW) : 1);
        for (int64_t e = 0; i == X && e < tow_type_element_count(types[n]); e++)
            ((float *)tow_array_data(r.in[n]))[e] += 1.5f;
        bytes += tow_type_bytes(types[n++]);
    }
    bench_check(b, tow_trace_function(b->context, trace_kernel, &k, n, types, NULL, 1, &graph));
    if (k->gradient) bench_check(b, tow_value_and_grad(graph, n, wrt, false, &gradient));
    const tow_graph *chosen = k->gradient ? gradient : graph;
    bench_check(b, tow_compile(b->context, chosen, options, &r.program));
    for (size_t i = 0; i < tow_graph_output_count(chosen); i++) {
        bench_check(b, tow_array_create(b->context, tow_graph_output_type(chosen, i), &r.out[i]));
        bytes += tow_type_bytes(tow_graph_output_type(chosen, i));
    }
    double seconds = fastest(run_once, &r, b);
    for (size_t i = 0; i < n; i++) tow_array_release(r.in[i]);
    for (size_t i = 0; i < tow_graph_output_count(chosen); i++) tow_array_release(r.out[i]);
    tow_program_free(r.program);
    tow_graph_release(gradient);
    tow_graph_release(graph);
    return (double)bytes / seconds * 1e-9;
}

/* AdamW reads gradients and updates parameters and two slots: 7 words per parameter. */
typedef struct adamw {
    tow_optimizer_state *state;
    tow_array *gradient;
} adamw;

static tow_status update(void *user)
{
    const adamw *a = user;
    return tow_optimizer_update(a->state, &a->gradient);
}

static double measure_adamw(const bench *b, int64_t rows)
{
    tow_array *arrays[2];
    tow_params *params;
    tow_type type = operand_type(X, rows);
    for (int i = 0; i < 2; i++) {
        bench_check(b, tow_array_create(b->context, type, &arrays[i]));
        bench_fill(arrays[i], (uint64_t)i, 1);
    }
    const tow_scale_by_adam moments = TOW_SCALE_BY_ADAM();
    const tow_add_decayed_weights decay = TOW_ADD_DECAYED_WEIGHTS(.weight_decay = 0.01);
    const tow_scale_by_learning_rate rate = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(1e-3));
    const tow_chain chain =
        TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&moments), TOW_GRADIENT_TRANSFORM(&decay), TOW_GRADIENT_TRANSFORM(&rate));
    adamw a = {.gradient = arrays[1]};
    bench_check(b, tow_params_from_arrays(b->context, 1, (const char *const[]){"p"}, arrays, &params));
    bench_check(b, tow_optimizer_create(b->context, TOW_GRADIENT_TRANSFORM(&chain), params, NULL, &a.state));
    double seconds = fastest(update, &a, b);
    tow_optimizer_free(a.state);
    tow_params_free(params);
    for (int i = 0; i < 2; i++) tow_array_release(arrays[i]);
    return 7.0 * (double)tow_type_bytes(type) / 4 / seconds * 4e-9;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static void show(const char *name, double near, double far, double near_copy, double far_copy)
{
    printf("| %s | %.1f | %.0f %% | %.1f | %.0f %% |\n", name, near, 100 * near / near_copy, far, 100 * far / far_copy);
    fflush(stdout);
}

/* Elements per nanosecond of the arithmetic alone, one thread, arrays in the nearest cache. */
static void show_sets(const char *only)
{
    printf("\n| function, elements per ns on one thread | plain C | AVX2 | AVX-512 |\n|---|---|---|---|\n");
    for (int f = 0; f < SET_FUNCTIONS; f++) {
        if (!strstr(set_names[f], only)) continue;
        printf("| %s |", set_names[f]);
        for (int isa = BENCH_PLAIN; isa <= BENCH_AVX512; isa++) {
            double speed = isa <= (int)bench_best_isa() ? sets_measure(f, (bench_isa)isa) : 0;
            printf(speed > 0 ? " %.2f |" : " |", speed);
        }
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    bench b;
    const char *only = "";
    tow_compile_options compile = TOW_COMPILE_OPTIONS(.no_regions = false);
    const bench_option options[] = {{"only", .text = &only}, {"no-regions", .flag = &compile.no_regions}, {0}};
    bench_start(&b, "vectors", argc, argv, options);
    if (b.trace) bench_fail("vectors: --trace: there are no steps here; trace one of the other programs");
    int threads = (int)b.threads;
    const size_t row = ROW * sizeof(float);
    double near = bench_copy_bandwidth(threads, NEAR_ROWS * row / (size_t)threads / 64 * 64);
    double far = bench_copy_bandwidth(threads, FAR_ROWS * row / (size_t)threads / 64 * 64);
    printf("%d threads; copies: %.1f GB/s in arrays of %zu KiB, %.1f GB/s in arrays of %zu MiB; multiply-adds:",
           threads, near, NEAR_ROWS * row >> 10, far, FAR_ROWS * row >> 20);
    for (int isa = BENCH_PLAIN; isa <= (int)bench_best_isa(); isa++)
        printf(" %s %.0f GFLOP/s", bench_isa_name((bench_isa)isa), bench_peak_gflops(threads, (bench_isa)isa));
    printf("\n\n| kernel | in the cache, GB/s | of copy | in memory, GB/s | of copy |\n|---|---|---|---|---|\n");
    for (int i = 0; i < KERNELS; i++)
        if (strstr(kernels[i].name, only))
            show(kernels[i].name, measure_kernel(&b, &kernels[i], NEAR_ROWS, &compile),
                 measure_kernel(&b, &kernels[i], FAR_ROWS, &compile), near, far);
    if (strstr("AdamW", only)) show("AdamW", measure_adamw(&b, NEAR_ROWS), measure_adamw(&b, FAR_ROWS), near, far);
    show_sets(only);
    json_decref(b.json);
    tow_context_free(b.context);
    return 0;
}

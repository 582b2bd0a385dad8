/* Products of a few rows with weights of every element type, as generation makes them: what they take, beside what
 * reading the weights takes.
 *
 *   bench_weights [--rows M] [--in K] [--out N] [--megabytes B] [--type f32|bf16|f16|q8_0|q4_0] [--threads T]
 *                 [--seconds S]
 *
 * One program multiplies x [M, K] with as many weights as have B megabytes together, so that they come from memory and
 * not from caches; types take turns. For each: milliseconds of a run, best and median, the rate at which the weights
 * are read, and that of multiplying and adding. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum {
    TYPES = 5,
    MOST = 4096, /* weights of a program */
    MOST_RUNS = 10000
};
static const tow_dtype types[TYPES] = {TOW_F32, TOW_BF16, TOW_F16, TOW_Q8_0, TOW_Q4_0};

typedef struct workload {
    tow_dtype dtype;
    int64_t count;
    tow_program *program;
    tow_array *in[MOST + 1], *out[MOST];
    double seconds[MOST_RUNS];
    int runs;
} workload;

static int64_t rows = 1, in = 768, out = 3072, megabytes = 256;
static const char *only;

static void fail(const bench *b, const char *what)
{
    fprintf(stderr, "bench_weights: %s: %s\n", what, tow_context_error(b->context));
    exit(1);
}

static void record(tow_trace *trace, const tow_value *x, tow_value *y, void *user)
{
    const workload *w = user;
    (void)trace;
    for (int64_t i = 0; i < w->count; i++) {
        if (tow_dtype_numbers(w->dtype) > 1)
            y[i] = tow_quantized_dot(x[0], x[1 + i]);
        else if (w->dtype == TOW_F32)
            y[i] = tow_matmul(x[0], x[1 + i]);
        else
            y[i] = tow_matmul(tow_convert(x[0], w->dtype), x[1 + i]);
    }
}

static void build(const bench *b, workload *w)
{
    const bool in_blocks = tow_dtype_numbers(w->dtype) > 1;
    const tow_type x = tow_make_type(TOW_F32, 2, (int64_t[]){rows, in}),
                   matrix = tow_make_type(TOW_F32, 2, in_blocks ? (int64_t[]){out, in} : (int64_t[]){in, out});
    tow_array *numbers;
    if (tow_array_create(b->context, x, &w->in[0]) || tow_array_create(b->context, matrix, &numbers)) fail(b, "inputs");
    for (int64_t i = 0; i < rows * in; i++)
        ((float *)tow_array_data(w->in[0]))[i] = (float)(i * 7919 % 257 - 128) / 128;
    for (int64_t i = 0; i < in * out; i++) ((float *)tow_array_data(numbers))[i] = (float)(i * 7919 % 509 - 254) / 4096;
    if (tow_array_convert(numbers, w->dtype, &w->in[1])) fail(b, "weights");
    tow_array_release(numbers);
    const size_t bytes = tow_type_bytes(tow_array_type(w->in[1]));
    w->count = (megabytes * 1000000 + (int64_t)bytes - 1) / (int64_t)bytes;
    if (w->count > MOST) w->count = MOST;
    for (int64_t i = 1; i < w->count; i++)
        if (tow_array_from_data(b->context, tow_array_type(w->in[1]), tow_array_data(w->in[1]), &w->in[1 + i]))
            fail(b, "weights");
    tow_type in_types[MOST + 1];
    for (int64_t i = 0; i <= w->count; i++) in_types[i] = tow_array_type(w->in[i]);
    tow_graph *graph;
    if (tow_trace_function(b->context, record, w, (size_t)w->count + 1, in_types, NULL, (size_t)w->count, &graph) ||
        tow_compile(b->context, graph, NULL, &w->program))
        fail(b, "program");
    for (int64_t i = 0; i < w->count; i++)
        if (tow_array_create(b->context, tow_graph_output_type(graph, (size_t)i), &w->out[i])) fail(b, "results");
    tow_graph_release(graph);
    if (tow_program_run(w->program, w->in, w->out)) fail(b, "run");
}

static void run(const bench *b, workload *w)
{
    const double start = bench_now();
    if (tow_program_run(w->program, w->in, w->out)) fail(b, "run");
    if (w->runs < MOST_RUNS) w->seconds[w->runs++] = bench_now() - start;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(workload *w)
{
    qsort(w->seconds, (size_t)w->runs, sizeof *w->seconds, compare);
    const double best = w->seconds[0], median = w->seconds[w->runs / 2];
    const double bytes = (double)w->count * (double)tow_type_bytes(tow_array_type(w->in[1]));
    printf("%-5s %5lld x [%lld, %lld] x %4lld  best %8.3f ms  median %8.3f ms  %6.2f GB/s  %8.1f GFLOP/s\n",
           tow_dtype_name(w->dtype), (long long)rows, (long long)in, (long long)out, (long long)w->count, 1e3 * best,
           1e3 * median, 1e-9 * bytes / best, 2e-9 * (double)(rows * in * out * w->count) / best);
}

int main(int argc, char **argv)
{
    static workload workloads[TYPES];
    bench b;
    const bench_option options[] = {{.name = "rows", .number = &rows, .least = 1, .most = 65536},
                                    {.name = "in", .number = &in, .least = 32, .most = 65536},
                                    {.name = "out", .number = &out, .least = 1, .most = 1 << 20},
                                    {.name = "megabytes", .number = &megabytes, .least = 1, .most = 4096},
                                    {.name = "type", .text = &only},
                                    {0}};
    bench_start(&b, "weights", argc, argv, options);
    int n = 0;
    for (int t = 0; t < TYPES; t++) {
        if (only && strcmp(only, tow_dtype_name(types[t])) != 0) continue;
        workloads[n].dtype = types[t];
        build(&b, &workloads[n++]);
    }
    for (double end = bench_now() + (double)b.seconds; n > 0 && bench_now() < end;)
        for (int i = 0; i < n; i++) run(&b, &workloads[i]);
    for (int i = 0; i < n; i++) report(&workloads[i]);
    return n > 0 ? 0 : 2;
}

/* Products of a few rows with weights of every element type, as generation makes them: what they take, beside what
 * reading the weights takes.
 *
 *   bench_weights [--rows M] [--in K] [--out N] [--megabytes B] [--type f32|bf16|f16|q8_0|q4_0] [--threads T]
 *                 [--seconds S] [--gpt2]
 *
 * One program multiplies x [M, K] with as many weights as have B megabytes together, so that they come from memory and
 * not from caches; types take turns. For each: milliseconds of a run, best and median, the rate at which the weights
 * are read, and that of multiplying and adding.
 *
 * With --gpt2, the weights are those of GPT-2 with 124 million parameters: the products of M positions, of which the
 * last one alone has logits. bench/peers/weights_llama.py times llama.cpp on such a model. */
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
    int64_t sizes[MOST][2]; /* inputs, outputs of each weight */
    tow_program *program;
    tow_array *in[MOST + 2], *out[MOST]; /* x of both widths, weights */
    double bytes, flops;
    double seconds[MOST_RUNS];
    int runs;
} workload;

static int64_t rows = 1, in = 768, out = 3072, megabytes = 256;
static const char *only;
static bool gpt2;

static void fail(const bench *b, const char *what)
{
    fprintf(stderr, "bench_weights: %s: %s\n", what, tow_context_error(b->context));
    exit(1);
}

static bool is_logits(int64_t n) { return gpt2 && n > 4096; }

static void record(tow_trace *trace, const tow_value *x, tow_value *y, void *user)
{
    const workload *w = user;
    (void)trace;
    for (int64_t i = 0; i < w->count; i++) {
        tow_value from = x[w->sizes[i][0] != in], weight = x[2 + i];
        if (is_logits(w->sizes[i][1])) from = tow_slice_axis(from, 0, rows - 1, rows);
        if (tow_dtype_numbers(w->dtype) > 1)
            y[i] = tow_quantized_dot(from, weight);
        else
            y[i] = tow_matmul(tow_convert(from, w->dtype), weight);
    }
}

static void add(workload *w, int64_t inputs, int64_t outputs)
{
    w->sizes[w->count][0] = inputs;
    w->sizes[w->count++][1] = outputs;
}

static void choose_sizes(workload *w)
{
    const double bytes = (double)tow_dtype_size(w->dtype) / tow_dtype_numbers(w->dtype) * (double)(in * out);
    if (!gpt2) {
        for (double all = 0; all < 1e6 * (double)megabytes && w->count < MOST; all += bytes) add(w, in, out);
        return;
    }
    for (int layer = 0; layer < 12; layer++) add(w, 768, 2304), add(w, 768, 768), add(w, 768, 3072), add(w, 3072, 768);
    add(w, 768, 50257);
}

static tow_array *numbers(const bench *b, int64_t m, int64_t n, float unit)
{
    tow_array *x;
    if (tow_array_create(b->context, tow_make_type(TOW_F32, 2, (int64_t[]){m, n}), &x)) fail(b, "numbers");
    for (int64_t i = 0; i < m * n; i++) ((float *)tow_array_data(x))[i] = (float)(i * 7919 % 257 - 128) * unit;
    return x;
}

static tow_array *weight(const bench *b, const workload *w, int64_t i)
{
    const int64_t *sizes = w->sizes[i];
    const bool in_blocks = tow_dtype_numbers(w->dtype) > 1;
    tow_array *matrix = numbers(b, sizes[!in_blocks ? 0 : 1], sizes[!in_blocks ? 1 : 0], 0x1p-12F), *converted;
    if (tow_array_convert(matrix, w->dtype, &converted)) fail(b, "weights");
    tow_array_release(matrix);
    return converted;
}

static void build(const bench *b, workload *w)
{
    static tow_type types_of_inputs[MOST + 2];
    tow_graph *graph;
    choose_sizes(w);
    w->in[0] = numbers(b, rows, in, 0x1p-7F);
    w->in[1] = numbers(b, rows, gpt2 ? 3072 : 1, 0x1p-7F);
    for (int64_t i = 0; i < w->count; i++) {
        w->in[2 + i] = weight(b, w, i);
        w->bytes += (double)tow_type_bytes(tow_array_type(w->in[2 + i]));
        w->flops += 2.0 * (double)(w->sizes[i][0] * w->sizes[i][1] * (is_logits(w->sizes[i][1]) ? 1 : rows));
    }
    for (int64_t i = 0; i < w->count + 2; i++) types_of_inputs[i] = tow_array_type(w->in[i]);
    if (tow_trace_function(b->context, record, w, (size_t)w->count + 2, types_of_inputs, NULL, (size_t)w->count,
                           &graph) ||
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
    printf("%-5s %5lld rows, %4lld weights  best %8.3f ms  median %8.3f ms  %6.2f GB/s  %8.1f GFLOP/s\n",
           tow_dtype_name(w->dtype), (long long)rows, (long long)w->count, 1e3 * best, 1e3 * median,
           1e-9 * w->bytes / best, 1e-9 * w->flops / best);
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
                                    {.name = "gpt2", .flag = &gpt2},
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

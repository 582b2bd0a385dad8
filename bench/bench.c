/* Command line, timing and report of the benchmark programs. */
#include "bench.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "watch.h"

enum {
    LEAST_STEPS = 5,
    MOST_STEPS = 100000
};

#define PROBED         0.05 /* share of the time in which the sustained peak is measured */
#define BETWEEN_PROBES 0.1  /* seconds */

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void bench_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

void bench_check(const bench *b, tow_status status)
{
    if (status == TOW_OK) return;
    const char *text = tow_context_error(b->context);
    bench_fail("%s: %s", b->workload, *text ? text : tow_status_text(status));
}

/* ---- command line ------------------------------------------------------------------------------------------------ */

static void list_options(FILE *file, const bench_option *options, const bench_option *common)
{
    for (const bench_option *lists[] = {options, common, NULL}, **list = lists; *list; list++)
        for (const bench_option *o = *list; o->name; o++)
            fprintf(file, " --%s%s", o->name, o->flag ? "" : o->number ? " N" : " WORD");
    fputc('\n', file);
}

static _Noreturn void usage(const char *workload, const char *problem, const char *argument,
                            const bench_option *options, const bench_option *common)
{
    fprintf(stderr, "%s: %s '%s'; options:", workload, problem, argument);
    list_options(stderr, options, common);
    exit(2);
}

static const bench_option *find_option(const char *argument, const bench_option *options)
{
    if (strncmp(argument, "--", 2) != 0) return NULL;
    for (; options->name; options++)
        if (strcmp(argument + 2, options->name) == 0) return options;
    return NULL;
}

static void read_number(const char *workload, const bench_option *o, const char *text)
{
    int64_t most = o->most ? o->most : INT32_MAX;
    char *end;
    errno = 0;
    *o->number = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0 && *o->number >= o->least && *o->number <= most) return;
    fprintf(stderr, "%s: --%s: expected a whole number from %" PRId64 " to %" PRId64 ", found '%s'\n", workload,
            o->name, o->least, most, text);
    exit(2);
}

static void read_options(const char *workload, int argc, char **argv, const bench_option *options,
                         const bench_option *common)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--version") == 0) {
            printf("bench_%s (Tow) %s\n", workload, TOW_VERSION);
            exit(0);
        }
        if (strcmp(argv[i], "--help") == 0) {
            printf("bench_%s: options:", workload);
            list_options(stdout, options, common);
            exit(0);
        }
        const bench_option *o = find_option(argv[i], options);
        if (!o) o = find_option(argv[i], common);
        if (!o) usage(workload, "unknown option", argv[i], options, common);
        if (o->flag) {
            *o->flag = true;
            continue;
        }
        if (++i == argc) usage(workload, "no value for", argv[i - 1], options, common);
        if (o->text)
            *o->text = argv[i];
        else
            read_number(workload, o, argv[i]);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* A line of /proc/self/status in bytes: "VmHWM" is the peak of resident memory of this program image, "VmRSS" what is
 * resident now. 0 where there is no such file. */
static size_t resident(const char *key)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    size_t kib = 0;
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), ": %zu", &kib);
    if (file) fclose(file);
    return kib * 1024;
}

/* ---- start, time, report ----------------------------------------------------------------------------------------- */

void bench_set(bench *b, const char *key, json_t *value)
{
    if (json_object_set_new(b->json, key, value) != 0) bench_fail("out of memory");
}

void bench_start(bench *b, const char *workload, int argc, char **argv, const bench_option *options)
{
    *b = (bench){.workload = workload, .seconds = 3};
    const bench_option common[] = {{"threads", .number = &b->threads, .most = 1024},
                                   {"steps", .number = &b->steps, .most = MOST_STEPS},
                                   {"seconds", .number = &b->seconds},
                                   {"trace", .text = &b->trace},
                                   {0}};
    read_options(workload, argc, argv, options, common);
    b->json = json_object();
    if (!b->json) bench_fail("%s: out of memory", workload);
    const tow_context_options context = TOW_CONTEXT_OPTIONS(.threads = (int)b->threads);
    if (tow_context_create(&context, &b->context) != TOW_OK)
        bench_fail("%s: %s", workload, tow_context_error(b->context));
    b->threads = tow_context_thread_count(b->context);
    bench_set(b, "workload", json_string(workload));
    bench_set(b, "library", json_string("tow"));
    for (const bench_option *o = options; o->name; o++)
        bench_set(b, o->name,
                  o->number ? json_integer(*o->number)
                  : o->flag ? json_boolean(*o->flag)
                            : json_string(*o->text ? *o->text : ""));
    bench_set(b, "threads", json_integer(b->threads));
    b->peak = bench_peak_gflops((int)b->threads, bench_best_isa());
    b->rss_before = resident("VmRSS");
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Measures the sustained peak for a part of the time since `last`; returns when that ended. */
static double probe_between(bench *b, double last)
{
    const double elapsed = bench_now() - last;
    if (elapsed < BETWEEN_PROBES) return last;
    bench_sustained_add(&b->sustained, (int)b->threads, bench_best_isa(), false, PROBED * elapsed);
    return bench_now();
}

void bench_repeat(bench *b, tow_status (*step)(void *user), void *user, int64_t calls)
{
    int64_t most = b->steps > 0 ? b->steps : MOST_STEPS, n = 0;
    double *seconds = malloc((size_t)most * sizeof *seconds), start = bench_now(), probed;
    if (!seconds) bench_fail("%s: out of memory", b->workload);
    for (int i = 0; i < 2; i++) bench_check(b, step(user));
    const bench_watch watch = bench_watch_start();
    probed = bench_now();
    for (double end = bench_now() + (double)b->seconds; n < most; n++) {
        start = bench_now();
        if (b->steps == 0 && n >= LEAST_STEPS && start > end) break;
        bench_check(b, step(user));
        seconds[n] = (bench_now() - start) / (double)calls;
        probed = probe_between(b, probed);
    }
    bench_watch_stop(&watch, &b->others, &b->steal);
    qsort(seconds, (size_t)n, sizeof *seconds, compare);
    b->fastest = seconds[0];
    b->median = n % 2 ? seconds[n / 2] : (seconds[n / 2 - 1] + seconds[n / 2]) / 2;
    b->repeated = n;
    free(seconds);
}

void bench_trace(bench *b, tow_status (*step)(void *user, FILE *file), void *user)
{
    if (!b->trace) return;
    FILE *file = fopen(b->trace, "w");
    if (!file) bench_fail("%s: %s: cannot be written: %s", b->workload, b->trace, strerror(errno));
    bench_check(b, step(user, file));
    if (fclose(file) != 0) bench_fail("%s: %s: cannot be written: %s", b->workload, b->trace, strerror(errno));
    b->trace = NULL;
}

typedef struct run {
    tow_program *program;
    tow_array **inputs, **outputs;
    int64_t calls;
} run;

static tow_status run_traced(void *user, FILE *file)
{
    const run *r = user;
    tow_status status = tow_program_record(r->program, true);
    if (status == TOW_OK) status = tow_program_run(r->program, r->inputs, r->outputs);
    return status == TOW_OK ? tow_program_write_trace(r->program, file) : status;
}

void bench_trace_program(bench *b, tow_program *program, tow_array **inputs, tow_array **outputs)
{
    bench_trace(b, run_traced, &(run){program, inputs, outputs, 1});
}

/* Sets the bytes that the work moves, and the bandwidth of copying arrays as large as its inputs and outputs, which
 * limits work on memory. */
static void set_traffic(bench *b)
{
    const size_t arrays = 2 * (size_t)b->threads, bytes = (b->footprint / arrays + 63) / 64 * 64;
    if (bytes == 0) return;
    bench_set(b, "gbyte", json_real((b->moved > 0 ? b->moved : (double)b->footprint) * 1e-9));
    bench_set(b, "copy_gbytes", json_real(bench_copy_bandwidth((int)b->threads, bytes)));
}

int bench_finish(bench *b, double flops)
{
    char describe[1024];
    if (b->trace) bench_fail("%s: %s: no step was run that could be traced", b->workload, b->trace);
    tow_context_describe(b->context, describe, sizeof describe);
    bench_set(b, "rss_peak", json_integer((json_int_t)resident("VmHWM")));
    bench_set(b, "rss_before", json_integer((json_int_t)b->rss_before));
    double again = bench_peak_gflops((int)b->threads, bench_best_isa());
    if (again > b->peak) b->peak = again;
    if (b->sustained.seconds == 0)
        bench_sustained_add(&b->sustained, (int)b->threads, bench_best_isa(), false, PROBED * BETWEEN_PROBES);
    const double sustained = b->sustained.seconds > 0 ? b->sustained.gflop / b->sustained.seconds : 0;
    if (b->repeated > 0) {
        bench_set(b, "steps", json_integer(b->repeated));
        bench_set(b, "median_seconds", json_real(b->median));
        bench_set(b, "min_seconds", json_real(b->fastest));
        bench_set(b, "others", json_real(b->others));
        bench_set(b, "steal", json_real(b->steal));
        set_traffic(b);
    }
    if (b->repeated > 0 && flops > 0) {
        bench_set(b, "gflop", json_real(flops * 1e-9));
        bench_set(b, "gflops", json_real(flops * 1e-9 / b->fastest));
        if (sustained > 0) bench_set(b, "share_of_peak", json_real(flops * 1e-9 / b->median / sustained));
    }
    if (sustained > 0) bench_set(b, "sustained_gflops", json_real(sustained));
    bench_set(b, "peak_gflops", json_real(b->peak));
    bench_set(b, "peak_isa", json_string(bench_isa_name(bench_best_isa())));
    bench_set(b, "describe", json_string(describe));
    int status =
        json_dumpf(b->json, stdout, JSON_REAL_PRECISION(6)) == 0 && putchar('\n') != EOF && fflush(stdout) == 0;
    json_decref(b->json);
    tow_context_free(b->context);
    return status ? 0 : 1;
}

void bench_set_program_bytes(bench *b, const tow_program *program)
{
    tow_program_bytes bytes = tow_program_get_bytes(program);
    bench_set(b, "planned",
              json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "inputs", (json_int_t)bytes.inputs, "outputs",
                        (json_int_t)bytes.outputs, "arena", (json_int_t)bytes.arena, "lower_bound",
                        (json_int_t)bytes.lower_bound, "residuals", (json_int_t)bytes.residuals, "constants",
                        (json_int_t)bytes.constants, "temporary", (json_int_t)(bytes.arena + bytes.constants)));
}

void bench_set_engines(bench *b, const tow_program *program)
{
    json_t *list = json_array();
    tow_program_engine e;
    for (size_t i = 0; tow_program_get_engine(program, i, &e); i++) {
        char type[64], line[320];
        tow_type_text(e.result, type, sizeof type);
        snprintf(line, sizeof line, "%s %s%s: %s", e.instruction, type, e.backward ? ", backward" : "", e.reason);
        json_array_append_new(list, json_string(line));
    }
    bench_set(b, "engines", list);
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

void bench_fill(tow_array *array, uint64_t seed, double scale)
{
    tow_type type = tow_array_type(array);
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t bits = (uint32_t)(state >> 40); /* 24 good bits */
        if (type.dtype == TOW_I32)
            ((int32_t *)tow_array_data(array))[i] = (int32_t)(bits % (uint32_t)scale);
        else if (type.dtype == TOW_U8)
            ((uint8_t *)tow_array_data(array))[i] = (uint8_t)(bits % (uint32_t)scale);
        else if (type.dtype == TOW_F32)
            ((float *)tow_array_data(array))[i] = (float)(scale * (2.0 * bits / (1 << 24) - 1.0));
    }
}

tow_array *bench_draw(const bench *b, tow_type type, uint64_t seed, double scale)
{
    const int numbers = tow_dtype_numbers(type.dtype);
    const bool rounded = numbers > 1 || type.dtype == TOW_BF16 || type.dtype == TOW_F16;
    tow_type drawn = type;
    tow_array *wide = NULL, *array = NULL;
    if (rounded) drawn.dtype = TOW_F32;
    if (numbers > 1) drawn.dims[drawn.rank - 1] *= numbers;
    bench_check(b, tow_array_create(b->context, drawn, &wide));
    bench_fill(wide, seed, scale);
    if (!rounded) return wide;
    bench_check(b, tow_array_convert(wide, type.dtype, &array));
    tow_array_release(wide);
    return array;
}

/* ---- value and gradient of a function ---------------------------------------------------------------------------- */

static tow_status run_once(void *user)
{
    const run *r = user;
    for (int64_t i = 0; i < r->calls; i++) {
        tow_status status = tow_program_run(r->program, r->inputs, r->outputs);
        if (status != TOW_OK) return status;
    }
    return TOW_OK;
}

/* Forward and backward graph of a function, for pull_back. */
typedef struct pullback {
    const bench_gradient *g;
    tow_graph *forward, *backward;
} pullback;

/* x... ct -> y, gradients */
static void pull_back(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    enum {
        MOST = 16
    };
    const pullback *p = user;
    const size_t n = tow_graph_output_count(p->forward), first = p->g->without_y ? 0 : 1;
    tow_value values[MOST];
    if (n >= MOST) bench_fail("more residuals than a benchmark has room for");
    tow_inline(trace, p->forward, in, values);
    if (first == 1) out[0] = values[0];
    values[n] = in[p->g->n_inputs - 1];
    tow_inline(trace, p->backward, values + 1, out + first);
}

static tow_graph *trace(const bench *b, const bench_gradient *g)
{
    const size_t n_inputs = g->n_inputs - (g->pulls_back ? 1 : 0);
    tow_graph *graph = NULL, *gradient = NULL;
    bench_check(b, tow_trace_function(b->context, g->loss, g->user, n_inputs, g->types, NULL, 1, &graph));
    if (g->n_wrt == 0) return graph;
    if (g->pulls_back) {
        pullback p = {.g = g};
        bench_check(b, tow_vjp(graph, g->n_wrt, g->wrt, &p.forward, &p.backward));
        const size_t n = g->n_wrt + (g->without_y ? 0 : 1);
        bench_check(b, tow_trace_function(b->context, pull_back, &p, g->n_inputs, g->types, NULL, n, &gradient));
        tow_graph_release(p.forward);
        tow_graph_release(p.backward);
    } else
        bench_check(b, tow_value_and_grad(graph, g->n_wrt, g->wrt, false, &gradient));
    tow_graph_release(graph);
    return gradient;
}

void bench_run_gradient(bench *b, const bench_gradient *g)
{
    const tow_compile_options options = TOW_COMPILE_OPTIONS(.flush_subnormals = true, .memory_limit = g->memory_limit);
    run r = {.calls = g->calls > 0 ? g->calls : 1};
    double start = bench_now();
    tow_graph *gradient = trace(b, g);
    bench_check(b, tow_compile(b->context, gradient, &options, &r.program));
    bench_set(b, "compile_seconds", json_real(bench_now() - start));
    bench_set_program_bytes(b, r.program);
    size_t n_out = tow_graph_output_count(gradient);
    r.inputs = calloc(g->n_inputs, sizeof *r.inputs);
    r.outputs = calloc(n_out, sizeof *r.outputs);
    if (!r.inputs || !r.outputs) bench_fail("%s: out of memory", b->workload);
    for (size_t i = 0; !g->only_compile && i < g->n_inputs; i++)
        r.inputs[i] = bench_draw(b, g->types[i], i, g->scales[i]);
    for (size_t i = 0; !g->only_compile && i < n_out; i++)
        bench_check(b, tow_array_create(b->context, tow_graph_output_type(gradient, i), &r.outputs[i]));
    if (!g->only_compile) {
        bench_repeat(b, run_once, &r, r.calls);
        b->footprint = tow_program_get_bytes(r.program).inputs + tow_program_get_bytes(r.program).outputs;
        bench_trace_program(b, r.program, r.inputs, r.outputs);
        bench_set_engines(b, r.program);
        if (!g->pulls_back && tow_graph_output_type(gradient, 0).dtype == TOW_F32)
            bench_set(b, "loss", json_real(((float *)tow_array_data(r.outputs[0]))[0]));
    }
    for (size_t i = 0; i < g->n_inputs; i++) tow_array_release(r.inputs[i]);
    for (size_t i = 0; i < n_out; i++) tow_array_release(r.outputs[i]);
    free(r.inputs);
    free(r.outputs);
    tow_program_free(r.program);
    tow_graph_release(gradient);
}

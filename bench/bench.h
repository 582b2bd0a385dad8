/* Shared by the benchmark programs: command line, timing, resident memory, and the JSON object that each prints.
 *
 * A program measures one workload in one process:
 *
 *     bench b;
 *     bench_start(&b, "ffn", argc, argv, options);   reads the command line, probes the peak, makes the context
 *     ... build and warm up ...
 *     bench_repeat(&b, step, user);                  times step(user)
 *     return bench_finish(&b, flops of one step);    prints the JSON object
 *
 * Errors print one line to standard error and end with status 1; a bad command line ends with status 2. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <jansson.h>
#include <stdio.h>

#include "limits.h"
#include "tow/tow.h"

/* One option "--name": exactly one of number (takes a whole number), text (takes a word) and flag is set. */
typedef struct bench_option {
    const char *name;
    int64_t *number;
    int64_t least, most; /* of the number; most 0: 2^31 - 1 */
    const char **text;
    bool *flag;
} bench_option;

typedef struct bench {
    const char *workload;
    int64_t threads;   /* --threads, default: what the affinity mask allows */
    int64_t steps;     /* --steps: timed repetitions, at most 100000; 0: as many as fit --seconds, at least 5 */
    int64_t seconds;   /* --seconds, default 3 */
    const char *trace; /* --trace: file for the trace of one more step; NULL: none, or it has been written */
    tow_context *context;
    double peak;               /* GFLOP/s, measured before and after the workload: the better one */
    bench_sustained sustained; /* the same between timed steps, a twentieth of their time */
    size_t rss_before;         /* resident bytes before the workload is built */
    size_t footprint;          /* bytes of inputs and outputs; 0: the bandwidth of copying so many is not measured */
    double moved;              /* bytes that the work reads and writes at least; by default footprint */
    double median, fastest;    /* seconds per step */
    double others, steal;      /* shares of the CPUs that others and the hypervisor took during the timed steps */
    int64_t repeated;
    json_t *json; /* what bench_finish prints; programs add to it */
} bench;

double bench_now(void); /* seconds */

/* options ends with a NULL name; --threads, --steps, --seconds and --trace are understood by all programs. Without a
 * step there is no trace: asking for one is an error then. */
void bench_start(bench *b, const char *workload, int argc, char **argv, const bench_option *options);
/* Two calls to warm up, then timed ones, between which the sustained peak is measured. `calls`: steps that one call of
 * `step` makes (small ones are timed in groups). */
void bench_repeat(bench *b, tow_status (*step)(void *user), void *user, int64_t calls);
/* With --trace, runs `step`, which records one more step and writes its trace to the file. */
void bench_trace(bench *b, tow_status (*step)(void *user, FILE *file), void *user);
/* The same for one more run of a program. */
void bench_trace_program(bench *b, tow_program *program, tow_array **inputs, tow_array **outputs);
/* flops: of one step; 0: no rates. Prints them as a share of the sustained peak, both as medians or means: a machine
 * that others use is as slow for one as for the other. Returns the exit status. */
int bench_finish(bench *b, double flops);

/* Ends the program with the context's error if status is not TOW_OK. */
void bench_check(const bench *b, tow_status status);
/* Ends the program with a message. */
__attribute__((format(printf, 1, 2), noreturn)) void bench_fail(const char *format, ...);

void bench_set(bench *b, const char *key, json_t *value); /* takes the reference */
/* Planned bytes by kind; "temporary" is what comes beside inputs and outputs. */
void bench_set_program_bytes(bench *b, const tow_program *program);

/* Sets "engines": which engine runs each product, and why. To be called when first runs have decided. */
void bench_set_engines(bench *b, const tow_program *program);

/* Uniform numbers from [-scale, scale), the same in every run. i32 and u8: from {0, ..., scale - 1}. Other types:
 * zeros. */
void bench_fill(tow_array *array, uint64_t seed, double scale);
/* A new array of such numbers, or of those in f32 rounded to the type, if it has 16 bits or blocks. */
tow_array *bench_draw(const bench *b, tow_type type, uint64_t seed, double scale);

/* Value and gradient of a scalar function, or with n_wrt 0 the value of any function of one result, compiled and timed.
 * Input i is bench_draw(scales[i]). */
typedef struct bench_gradient {
    tow_function loss;
    void *user;
    size_t n_inputs;
    const tow_type *types;
    const double *scales;
    size_t n_wrt;
    const size_t *wrt;
    /* Instead, for the one result y of any function: y, and the gradients for given cotangents of y, which are the last
     * input; .n_inputs counts them. */
    bool pulls_back;
    bool without_y;     /* those gradients alone */
    int64_t calls;      /* per timing; 0: 1 */
    bool only_compile;  /* time tracing and compiling only */
    size_t memory_limit; /* tow_compile_options */
} bench_gradient;
/* Adds compile_seconds (tracing and compiling), planned bytes, the times of a step, the bytes that it moves and the
 * bandwidth of copying arrays as large as all inputs and outputs together. */
void bench_run_gradient(bench *b, const bench_gradient *g);

#endif

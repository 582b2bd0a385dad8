/* Schedules with states in a file (.file_slots): gradients bit by bit against the loop that keeps everything, how many
 * iterations run, bytes, what is read and written, and files that cannot be made, written or read: an error that leaves
 * arrays as they were. Tests regions/tier.c, ops/spill.c, kernels/spill.c, base/spill.c. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "src/autodiff/regions/schedule.h"
#include "src/base/spill.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    D = 3 /* numbers in a state */
};

/* ---- the system, with counts and faults -------------------------------------------------------------------------- */

typedef enum fault {
    NONE,
    NO_FILE,    /* none can be made */
    FULL,       /* the disk, after some writes */
    HALF,       /* calls do half of what they are asked for, or are interrupted */
    SHORT_READ, /* the file ends early */
    BAD_READ
} fault;

static fault planted;
static atomic_int reads, writes, open_files;

static int make_file(const char *folder)
{
    char path[200];
    if (planted == NO_FILE) {
        errno = EACCES;
        return -1;
    }
    snprintf(path, sizeof path, "%s/tow-test-XXXXXX", folder);
    const int fd = mkstemp(path);
    if (fd >= 0) unlink(path);
    open_files++;
    return fd;
}

static ssize_t read_some(int fd, void *data, size_t count, off_t offset)
{
    const int n = reads++;
    if (planted == BAD_READ && n >= 2) {
        errno = EIO;
        return -1;
    }
    if (planted == SHORT_READ && n >= 2) return 0;
    if (planted == HALF && n % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return pread(fd, data, planted == HALF ? (count + 1) / 2 : count, offset);
}

static ssize_t write_some(int fd, const void *data, size_t count, off_t offset)
{
    const int n = writes++;
    if (planted == FULL && n >= 3) {
        errno = ENOSPC;
        return -1;
    }
    return pwrite(fd, data, planted == HALF ? (count + 1) / 2 : count, offset);
}

static const tow__spill_calls calls = {make_file, read_some, write_some};

static int setup_calls(void **state)
{
    if (setup(state)) return -1;
    ctx->spill_calls = &calls;
    ctx->scratch_folder = "/tmp";
    return 0;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

typedef struct loop {
    int64_t length, bound; /* bound: a while with max_iterations, of `length` iterations; 0: none */
    bool stops, reverse, around;
    tow_scan_schedule schedule;
    tow_value w, n;
} loop;

/* in: x, v, row; an outer weight used twice, and ys */
static void step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const loop *l = user;
    (void)t;
    tow_value pulled = tow_mul(l->w, tow_rev(in[0], 1, (int[]){0}));
    out[1] = tow_add(tow_mul_scalar(in[1], 0.5), tow_sin(tow_add(pulled, in[2])));
    out[0] = tow_add(tow_mul_scalar(in[0], 0.75), tow_mul(tow_mul_scalar(out[1], 0.125), l->w));
    out[2] = tow_mul(out[0], in[1]);
}

static void goes_on(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const loop *l = user;
    (void)t;
    out[0] = tow_lt(in[0], l->n);
}

/* in: number, x, v */
static void step_of_while(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_value x[] = {in[1], in[2], tow_add(tow_mul_scalar(in[2], 0), tow_convert(in[0], TOW_F64))};
    tow_value y[3];
    step(t, x, y, user);
    out[0] = tow_add_scalar(in[0], 1);
    out[1] = y[0], out[2] = y[1];
}

/* in: x, v, xs -> x, v, ys */
static void whole_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const loop *l = user;
    if (l->stops) {
        const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = l->bound, .schedule = l->schedule);
        tow_value all[] = {tow_scalar(t, TOW_I32, 0), in[0], in[1]};
        tow_while_function(t, goes_on, step_of_while, user, &options, 3, all, all);
        out[0] = all[1], out[1] = all[2], out[2] = in[2];
        return;
    }
    const tow_scan_options options =
        TOW_SCAN_OPTIONS(.length = l->length, .reverse = l->reverse, .schedule = l->schedule);
    tow_scan_function(t, step, user, &options, 2, in, 1, in + 2, 1, out, out + 2);
}

/* in: w, x, v, xs, number of iterations */
static void loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    loop *l = user;
    tow_value y[3];
    l->w = in[0], l->n = in[4];
    if (l->around)
        tow_remat_function(t, whole_loop, l, NULL, 3, in + 1, 3, y);
    else
        whole_loop(t, in + 1, y, l);
    tow_value sum = tow_reduce_sum(tow_mul(y[0], tow_add(y[1], l->w)), 1, (int[]){0});
    out[0] = tow_add(sum, tow_reduce_sum(tow_sin(y[2]), 2, (int[]){0, 1}));
}

enum {
    INPUTS = 5,
    OUTPUTS = 5
};

static tow_graph *traced(loop *l)
{
    const tow_type row = tow_make_type(TOW_F64, 1, (int64_t[]){D});
    const tow_type types[] = {row, row, row, tow_make_type(TOW_F64, 2, (int64_t[]){l->length, D}),
                              tow_make_type(TOW_I32, 0, NULL)};
    tow_graph *g;
    OK(tow_trace_function(ctx, loss, l, INPUTS, types, NULL, 1, &g));
    return g;
}

static tow_program *compiled(loop l)
{
    tow_graph *g = traced(&l), *gradient;
    tow_program *program;
    OK(tow_value_and_grad(g, 4, (size_t[]){0, 1, 2, 3}, false, &gradient));
    OK(tow_compile(ctx, gradient, NULL, &program));
    OK(tow_program_check(program));
    tow_graph_release(gradient);
    tow_graph_release(g);
    return program;
}

/* Loss and gradients, one after the other, of a program for l; the status of the run. */
static tow_status run(tow_program *program, const loop *l, double *found)
{
    const tow_type row = tow_make_type(TOW_F64, 1, (int64_t[]){D});
    const tow_type rows = tow_make_type(TOW_F64, 2, (int64_t[]){l->length, D});
    const tow_type types[] = {row, row, row, rows}, results[] = {tow_make_type(TOW_F64, 0, NULL), row, row, row, rows};
    tow_array *in[INPUTS], *out[OUTPUTS];
    for (int i = 0; i < 4; i++) {
        OK(tow_array_create(ctx, types[i], &in[i]));
        for (int64_t j = 0; j < tow_type_element_count(types[i]); j++)
            ((double *)tow_array_data(in[i]))[j] = sin((double)(5 * i + 3 * j)) / 2;
    }
    OK(tow_array_from_data(ctx, tow_make_type(TOW_I32, 0, NULL), &(int32_t){(int32_t)l->length}, &in[4]));
    for (int i = 0; i < OUTPUTS; i++) OK(tow_array_create(ctx, results[i], &out[i]));
    reads = writes = 0;
    const tow_status status = tow_program_run(program, in, out);
    for (int i = 0; i < OUTPUTS; i++) {
        const size_t bytes = tow_type_bytes(results[i]);
        memcpy(found, tow_array_data(out[i]), bytes);
        found += bytes / sizeof *found;
        tow_array_release(out[i]);
    }
    for (int i = 0; i < INPUTS; i++) tow_array_release(in[i]);
    return status;
}

static size_t numbers(const loop *l) { return 1 + 3 * D + (size_t)l->length * D; }

/* ---- bits -------------------------------------------------------------------------------------------------------- */

static void expect_same(loop l, tow_scan_schedule schedule)
{
    double *expected = calloc(numbers(&l), sizeof *expected), *found = calloc(numbers(&l), sizeof *found);
    loop scheduled = l;
    assert_true(expected && found);
    l.bound = l.stops ? 64 : 0;
    scheduled.schedule = schedule;
    tow_program *plain = compiled(l), *program = compiled(scheduled);
    OK(run(plain, &l, expected));
    for (int again = 0; again < 2; again++) { /* a file serves many runs */
        OK(run(program, &scheduled, found));
        for (size_t i = 0; i < numbers(&l); i++)
            if (memcmp(&expected[i], &found[i], sizeof *found) != 0)
                fail_msg("%lld iterations%s%s%s, slots %lld and %lld: number %zu: expected %.17g, found %.17g",
                         (long long)l.length, l.reverse ? " in reverse" : "", l.around ? " in a region" : "",
                         l.stops ? " of a while" : "", (long long)schedule.slots, (long long)schedule.file_slots, i,
                         expected[i], found[i]);
    }
    tow_program_free(plain);
    tow_program_free(program);
    free(expected);
    free(found);
}

static void test_bits(void **state)
{
    (void)state;
    const int64_t lengths[] = {1, 2, 7, 30};
    const tow_scan_schedule schedules[] = {{.slots = 1, .file_slots = 1},  {.slots = 1, .file_slots = 6},
                                           {.slots = 3, .file_slots = 2},  {.slots = 2, .file_slots = 100},
                                           {.slots = 40, .file_slots = 3}, {.slots = 2, .file_slots = 7}};
    for (int half = 0; half < 2; half++) {
        planted = half ? HALF : NONE;
        for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
            for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++)
                for (int kind = 0; kind < (half ? 1 : 6); kind++)
                    expect_same((loop){.length = lengths[n],
                                       .reverse = kind == 1 || kind == 3,
                                       .around = kind == 2 || kind == 3 || kind == 5,
                                       .stops = kind >= 4},
                                schedules[s]);
    }
    planted = NONE;
}

/* ---- what is written and read, and how many bytes it takes ------------------------------------------------------- */

/* With a slot in the file for every state, each state but those in memory is written once, and read once: of two
 * carries. */
static void test_traffic(void **state)
{
    (void)state;
    const loop l = {.length = 50, .schedule = {.slots = 4, .file_slots = 1000}};
    double *found = calloc(numbers(&l), sizeof *found);
    tow_program *program = compiled(l);
    OK(run(program, &l, found));
    assert_int_equal(writes, 2 * (50 - 1 - 4));
    assert_int_equal(reads, 2 * (50 - 1 - 4));
    tow_program_free(program);
    free(found);
}

/* Memory does not depend on the slots in the file. */
static void test_bytes(void **state)
{
    (void)state;
    const loop some = {.length = 600, .schedule = {.slots = 4, .file_slots = 10}},
               many = {.length = 600, .schedule = {.slots = 4, .file_slots = 500}};
    tow_program *a = compiled(some), *b = compiled(many);
    const size_t numbers_of_positions = 490 * sizeof(int32_t); /* i32 for each slot */
    const size_t more = tow_program_get_bytes(b).arena - tow_program_get_bytes(a).arena;
    assert_true(more <= 4 * numbers_of_positions);
    /* The file is a line of its own: of each carry so many rows, in whole pages. */
    assert_int_equal(tow_program_get_bytes(b).file % 4096, 0);
    assert_true(tow_program_get_bytes(b).file > tow_program_get_bytes(a).file && tow_program_get_bytes(a).file > 0);
    tow_program_free(a);
    tow_program_free(b);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static void expect_error(tow_program *program, const loop *l, const char *text)
{
    double *found = calloc(numbers(l), sizeof *found);
    assert_int_equal(run(program, l, found), TOW_IO_ERROR);
    if (!strstr(tow_context_error(ctx), text)) fail_msg("found \"%s\"", tow_context_error(ctx));
    free(found);
}

static void test_faults(void **state)
{
    (void)state;
    static const struct {
        fault fault;
        const char *text;
    } faults[] = {{NO_FILE, "cannot make one in /tmp: Permission denied"},
                  {FULL, "cannot write: No space left on device"},
                  {SHORT_READ, "cannot read: the file has become shorter"},
                  {BAD_READ, "cannot read: Input/output error"}};
    for (int stops = 0; stops < 2; stops++) {
        const loop l = {.length = 30, .stops = stops, .schedule = {.slots = 2, .file_slots = 12}};
        double *expected = calloc(numbers(&l), sizeof *expected), *found = calloc(numbers(&l), sizeof *found);
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
            tow_program *program = compiled(l);
            planted = faults[i].fault;
            expect_error(program, &l, faults[i].text);
            planted = NONE;
            OK(run(program, &l, i ? found : expected)); /* the next run is as good as any */
            if (i) assert_memory_equal(expected, found, numbers(&l) * sizeof *found);
            tow_program_free(program);
        }
        free(expected);
        free(found);
    }
}

/* A limit of file sizes is an error, not a signal that ends the process. */
static void test_limit_of_file_sizes(void **state)
{
    (void)state;
    struct rlimit before, small;
    const loop l = {.length = 2000, .schedule = {.slots = 2, .file_slots = 1900}};
    tow_program *program = compiled(l);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4096;
    ctx->spill_calls = NULL;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    expect_error(program, &l, "cannot write: File too large");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    ctx->spill_calls = &calls;
    tow_program_free(program);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

enum {
    ROWS = 4,
    WIDTH = 5
};

static void swing(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_sin(tow_mul_scalar(in[0], 1.5));
}

/* The mean square of what 30 iterations make of the layer's outputs. */
static void swinging_loss(tow_trace *t, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                          void *user)
{
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = 30, .schedule = {.slots = 2, .file_slots = 20});
    tow_value last;
    (void)extra, (void)aux;
    tow_scan_function(t, swing, user, &options, 1, out, 0, NULL, 0, &last, NULL);
    *loss = tow_mean(tow_square(last), 0, NULL);
}

static tow_train_state *training(const tow_module *layer, const tow_type *type)
{
    tow_train_state *state;
    OK(tow_train_create(ctx, layer,
                        &TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.1)},
                                           .loss = swinging_loss, .n_inputs = 1, .input_types = type),
                        &state));
    return state;
}

static void expect_same_params(const tow_train_state *a, const tow_train_state *b)
{
    tow_params *x = tow_train_params(a), *y = tow_train_params(b);
    for (size_t i = 0; i < tow_params_count(x); i++) {
        const tow_array *p = tow_params_array(x, i), *q = tow_params_array(y, i);
        assert_memory_equal(tow_array_data(p), tow_array_data(q), tow_type_bytes(tow_array_type(p)));
    }
}

/* A step whose states cannot be written leaves all as it was: the steps after it are those of a training in which it
 * was not tried. */
static void test_training(void **state)
{
    (void)state;
    tow_dense dense = TOW_DENSE(.features = WIDTH);
    const tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, WIDTH});
    tow_train_state *tried = training(TOW_MODULE(&dense), &type), *other = training(TOW_MODULE(&dense), &type);
    tow_array *batch;
    double loss;
    OK(tow_array_create(ctx, type, &batch));
    for (int i = 0; i < ROWS * WIDTH; i++) ((float *)tow_array_data(batch))[i] = sinf((float)i);
    for (int step_number = 0; step_number < 3; step_number++) {
        planted = FULL;
        writes = 0;
        assert_int_equal(tow_train_step(tried, &batch, &loss), TOW_IO_ERROR);
        planted = NONE;
        expect_same_params(tried, other);
        assert_int_equal(tow_train_step_count(tried), step_number);
        OK(tow_train_step(tried, &batch, &loss));
        OK(tow_train_step(other, &batch, &loss));
    }
    expect_same_params(tried, other);
    tow_array_release(batch);
    tow_train_free(tried);
    tow_train_free(other);
}

/* ---- what cannot be asked for ------------------------------------------------------------------------------------ */

static void test_errors(void **state)
{
    (void)state;
    loop l = {.length = 30, .schedule = {.slots = 2, .file_slots = 12}};
    tow_graph *g = traced(&l), *gradient, *other, *backward;
    static const size_t all[] = {0, 1, 2, 3};
    OK(tow_grad(g, 4, all, false, &gradient));
    assert_int_equal(tow_jvp(gradient, 4, all, &other), TOW_UNSUPPORTED);
    assert_non_null(strstr(tow_context_error(ctx), ".file_slots = 0"));
    assert_int_equal(tow_vmap(gradient, 3, NULL, NULL, &other), TOW_UNSUPPORTED);
    assert_non_null(strstr(tow_context_error(ctx), ".file_slots = 0"));
    tow_graph_release(gradient);
    /* another program would read states that are gone */
    OK(tow_vjp(g, 4, all, &other, &backward));
    tow_array *in[32], *out[32];
    const size_t n = tow_graph_input_count(backward), n_out = tow_graph_output_count(backward);
    assert_true(n <= 32 && n_out <= 32);
    for (size_t i = 0; i < n; i++) OK(tow_array_create(ctx, tow_graph_input_type(backward, i), &in[i]));
    assert_int_equal(tow_evaluate(backward, in, out), TOW_UNSUPPORTED);
    assert_non_null(strstr(tow_context_error(ctx), "in one program"));
    for (size_t i = 0; i < n; i++) tow_array_release(in[i]);
    tow_graph_release(other);
    tow_graph_release(backward);
    tow_graph_release(g);
}

/* A loop with states in a file, in `around`, of two iterations or one; a region around the inner loop, or none. */
static tow_status differentiate_nested(const char *around, bool in_region, double result[2])
{
    static const char loop_text[] = "scan[length=7 consts=0 carry=1 slots=3 file_slots=2 body={ lambda ; x:f64[]. let\n"
                                    "    y:f64[] = sin x\n  in (y) }] x\n";
    char inner[400], text[1200];
    snprintf(inner, sizeof inner,
             in_region ? "remat[policy=\"nothing\" body={ lambda ; x:f64[]. let\n  z:f64[] = %s  in (z) }] x\n" : "%s",
             loop_text);
    snprintf(text, sizeof text, around, inner);
    tow_graph *g, *gradient = NULL;
    tow_program *program = NULL;
    tow_array *in, *out[2];
    OK(tow_graph_parse(ctx, text, &g));
    OK(tow_array_from_data(ctx, tow_graph_input_type(g, 0), &(double){0.5}, &in));
    for (int i = 0; i < 2; i++) OK(tow_array_create(ctx, tow_graph_input_type(g, 0), &out[i]));
    tow_status status = tow_value_and_grad(g, 0, NULL, false, &gradient);
    if (status == TOW_OK) status = tow_compile(ctx, gradient, NULL, &program);
    if (status == TOW_OK) status = tow_program_run(program, &in, out);
    for (int i = 0; i < 2; i++) result[i] = *(double *)tow_array_data(out[i]);
    for (int i = 0; i < 2; i++) tow_array_release(out[i]);
    tow_array_release(in);
    tow_program_free(program);
    tow_graph_release(gradient);
    tow_graph_release(g);
    return status;
}

/* The file holds the states of one iteration of a loop around, so that is an error; in a region they are made again. */
static void test_loops_in_loops(void **state)
{
    (void)state;
    static const char scan[] = "{ lambda ; x:f64[]\"x\". let\n"
                               "  l:f64[] = scan[length=2 consts=0 carry=1 body={ lambda ; x:f64[]. let\n"
                               "      y:f64[] = %s    in (y) }] x\n  in (l) }\n";
    static const char once[] =
        "{ lambda ; x:f64[]\"x\". let\n"
        "  i:i32[] = const[value=0]\n"
        "  n:i32[] l:f64[] = while[max_iterations=4 consts=0 condition={ lambda ; i:i32[] x:f64[]. let\n"
        "      k:i32[] = const[value=1]\n      c:bool[] = lt i k\n    in (c) }\n"
        "    body={ lambda ; i:i32[] x:f64[]. let\n"
        "      k:i32[] = const[value=1]\n      j:i32[] = add i k\n"
        "      y:f64[] = %s    in (j, y) }] i x\n  in (l) }\n";
    const char *const texts[] = {scan, once};
    for (int i = 0; i < 2; i++) {
        double x = 0.5, slope = 1, found[2];
        for (int j = 0; j < (i == 0 ? 14 : 7); j++) slope *= cos(x), x = sin(x);
        assert_int_equal(differentiate_nested(texts[i], false, found), TOW_UNSUPPORTED);
        assert_non_null(strstr(tow_context_error(ctx), i == 0 ? "within a scan" : "within a while"));
        OK(differentiate_nested(texts[i], true, found));
        assert_true(fabs(found[0] - x) < 1e-14 && fabs(found[1] - slope) < 1e-14);
    }
}

/* A cond hands the states of its branch out in other arrays than the loop wrote through, in a loop and without one: the
 * run ends. In a region they are made again. Below 0.9 branch 0 is taken. */
static void test_loops_in_conds(void **state)
{
    (void)state;
#define COND                                                                                                           \
    "c:f64[] = const[value=0.9]\n  p:bool[] = gt x c\n"                                                                \
    "  y:f64[] = cond[branches=({ lambda ; x:f64[]. let\n    y:f64[] = %s  in (y) }, { lambda ; x:f64[]. let\n"        \
    "    y:f64[] = exp x\n  in (y) })] p x\n"
    const char *const texts[] = {"{ lambda ; x:f64[]\"x\". let\n  " COND "  in (y) }\n",
                                 "{ lambda ; x:f64[]\"x\". let\n"
                                 "  l:f64[] = scan[length=2 consts=0 carry=1 body={ lambda ; x:f64[]. let\n  " COND
                                 "  in (y) }] x\n  in (l) }\n"};
#undef COND
    for (int i = 0; i < 2; i++) {
        double x = 0.5, slope = 1, found[2];
        for (int j = 0; j < 7 * (i + 1); j++) slope *= cos(x), x = sin(x);
        assert_int_equal(differentiate_nested(texts[i], false, found), TOW_UNSUPPORTED);
        assert_non_null(strstr(tow_context_error(ctx), "or a cond around it"));
        OK(differentiate_nested(texts[i], true, found));
        assert_true(fabs(found[0] - x) < 1e-14 && fabs(found[1] - slope) < 1e-14);
    }
}

/* Bytes that no file can have are refused before anything is multiplied. */
static void test_rows_beyond_all_files(void **state)
{
    (void)state;
    int64_t bytes = 0;
    assert_true(tow__spill_count(3, 5000, &bytes));
    assert_int_equal(bytes, 16384); /* whole pages */
    assert_true(tow__spill_count(0, 8, &bytes));
    assert_true(tow__spill_count(1, 0, &bytes));
    assert_int_equal(bytes, 16384);
    assert_false(tow__spill_count(INT64_MAX / 2, 8, &bytes));
    assert_false(tow__spill_count(2, SIZE_MAX / 2, &bytes));
    assert_false(tow__spill_count(1, (size_t)INT64_MAX, &bytes));
    assert_false(tow__spill_count(-1, 8, &bytes));
    assert_int_equal(bytes, 16384);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits),
                                       cmocka_unit_test(test_traffic),
                                       cmocka_unit_test(test_bytes),
                                       cmocka_unit_test(test_faults),
                                       cmocka_unit_test(test_limit_of_file_sizes),
                                       cmocka_unit_test(test_training),
                                       cmocka_unit_test(test_loops_in_loops),
                                       cmocka_unit_test(test_loops_in_conds),
                                       cmocka_unit_test(test_rows_beyond_all_files),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests_name("tiers", tests, setup_calls, teardown);
}

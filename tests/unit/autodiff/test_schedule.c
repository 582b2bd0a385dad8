/* Schedules of scans: how many iterations run, by a primitive that counts its calls, against checkpoint_schedules
 * (tests/oracle/schedules_golden.py) and the closed form; gradients bit by bit against the loop that keeps everything;
 * bytes; and what cannot be asked for. Tests regions/binomial.c, regions/replay.c, regions/fetch.c,
 * regions/scan_schedule.c, limit/loss_variants.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/autodiff/regions/schedule.h"
#include "tests/unit/support/counted.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    D = 3 /* numbers in a state */
};

static int setup_counted(void **state) { return setup(state) || counted_define(ctx, 1); }

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

typedef struct loop {
    int64_t length;
    bool reverse, counted, around; /* around: in a remat region */
    tow_scan_schedule schedule;
    tow_value w, b;
} loop;

/* in: x, v, row; two carries, of which one hands on a part of the other, an outer weight used twice, ys */
static void step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const loop *l = user;
    tow_value x = in[0];
    if (l->counted) tow_primitive_call(t, tow_primitive_find(ctx, "counted"), NULL, &in[0], &x);
    tow_value pulled = tow_mul(l->w, tow_rev(x, 1, (int[]){0}));
    out[1] = tow_add(tow_mul_scalar(in[1], 0.5), tow_sin(tow_add(pulled, in[2])));
    out[0] = tow_add(x, tow_mul(tow_mul_scalar(out[1], 0.125), l->w));
    out[2] = tow_mul(out[0], in[1]);
}

static void whole_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const loop *l = user;
    const tow_scan_options options =
        TOW_SCAN_OPTIONS(.length = l->length, .reverse = l->reverse, .schedule = l->schedule);
    tow_scan_function(t, step, user, &options, 2, in, 1, in + 2, 1, out, out + 2);
}

/* in: w, x, v, xs */
static void loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    loop *l = user;
    tow_value y[3];
    l->w = in[0];
    if (l->around)
        tow_remat_function(t, whole_loop, l, NULL, 3, in + 1, 3, y);
    else
        whole_loop(t, in + 1, y, l);
    tow_value sum = tow_reduce_sum(tow_mul(y[0], tow_add(y[1], l->w)), 1, (int[]){0});
    out[0] = tow_add(sum, tow_reduce_sum(tow_sin(y[2]), 2, (int[]){0, 1}));
}

/* Loss and gradients, one after the other; the bytes of the plan are checked and returned. */
static tow_program_bytes gradients(loop l, double *found)
{
    const tow_type row = tow_make_type(TOW_F64, 1, (int64_t[]){D});
    const tow_type types[] = {row, row, row, tow_make_type(TOW_F64, 2, (int64_t[]){l.length, D})};
    tow_array *in[4], *out[5];
    tow_graph *g, *gradient;
    tow_program *program;
    OK(tow_trace_function(ctx, loss, &l, 4, types, NULL, 1, &g));
    OK(tow_value_and_grad(g, 4, (size_t[]){0, 1, 2, 3}, false, &gradient));
    OK(tow_compile(ctx, gradient, NULL, &program));
    OK(tow_program_check(program));
    for (int i = 0; i < 4; i++) {
        OK(tow_array_create(ctx, types[i], &in[i]));
        for (int64_t j = 0; j < tow_type_element_count(types[i]); j++)
            ((double *)tow_array_data(in[i]))[j] = sin((double)(5 * i + 3 * j)) / 2;
    }
    for (size_t i = 0; i < 5; i++) OK(tow_array_create(ctx, tow_graph_output_type(gradient, i), &out[i]));
    counted_reset();
    OK(tow_program_run(program, in, out));
    for (size_t i = 0; i < 5; i++) {
        const size_t bytes = tow_type_bytes(tow_graph_output_type(gradient, i));
        memcpy(found, tow_array_data(out[i]), bytes);
        found += bytes / sizeof *found;
        tow_array_release(out[i]);
    }
    for (int i = 0; i < 4; i++) tow_array_release(in[i]);
    const tow_program_bytes bytes = tow_program_get_bytes(program);
    tow_program_free(program);
    tow_graph_release(gradient);
    tow_graph_release(g);
    return bytes;
}

static size_t numbers(const loop *l) { return 1 + 3 * D + (size_t)l->length * D; }

/* ---- iterations that run ----------------------------------------------------------------------------------------- */

/* All forward iterations of the program: those of the theory, and the last one before the loss is known. */
static void expect_steps(int64_t n, int64_t slots, int64_t theory)
{
    loop l = {.length = n, .counted = true, .schedule = {.slots = slots}};
    double *found = calloc(numbers(&l), sizeof *found);
    assert_non_null(found);
    gradients(l, found);
    if (counted.calls != theory + 1)
        fail_msg("%lld iterations, %lld slots: expected %lld calls, found %lld", (long long)n, (long long)slots,
                 (long long)theory + 1, (long long)counted.calls);
    free(found);
}

static void test_steps_of_the_oracle(void **state)
{
    (void)state;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/schedules.txt", "r");
    long long n, slots, steps;
    int lines = 0;
    assert_non_null(file);
    while (fscanf(file, "%lld %lld %lld", &n, &slots, &steps) == 3) {
        assert_int_equal(tow__binomial_steps(n, slots), steps);
        expect_steps(n, slots, steps);
        lines++;
    }
    assert_true(feof(file) && lines > 40);
    fclose(file);
}

/* C(s + t, t) by Pascal's triangle. */
static void test_arithmetic(void **state)
{
    (void)state;
    enum {
        MOST = 30
    };
    int64_t reach[MOST][MOST];
    for (int s = 0; s < MOST; s++)
        for (int t = 0; t < MOST; t++) {
            reach[s][t] = s == 0 || t == 0 ? 1 : reach[s - 1][t] + reach[s][t - 1];
            assert_int_equal(tow__binomial_reach(s, t, INT64_MAX / 64),
                             reach[s][t] < INT64_MAX / 64 ? reach[s][t] : INT64_MAX / 64);
        }
    /* least steps by dynamic programming over where the next state is kept */
    enum {
        LONGEST = 60
    };
    int64_t least[7][LONGEST + 1];
    for (int s = 1; s < 7; s++)
        for (int n = 1; n <= LONGEST; n++) {
            least[s][n] = s == 1 ? (int64_t)n * (n + 1) / 2 : n == 1 ? 1 : INT64_MAX;
            for (int m = 1; s > 1 && m < n; m++) {
                const int64_t steps = m + least[s - 1][n - m] + least[s][m];
                if (steps < least[s][n]) least[s][n] = steps;
            }
            assert_int_equal(tow__binomial_steps(n, s), least[s][n]);
            if (s == 1 || n == 1) continue;
            const int64_t m = tow__binomial_split(n, s);
            assert_int_equal(m + least[s - 1][n - m] + least[s][m], least[s][n]);
        }
    /* 10^6 iterations: t = 13 with 10 slots, for C(22, 12) < 10^6 <= C(23, 13) */
    assert_int_equal(tow__binomial_repetitions(1000000, 10), 13);
    assert_int_equal(tow__binomial_steps(1000000, 10), 1000000 + 13 * 1000000LL - 1144066LL * 13 / 11);
}

/* ---- bits and bytes ---------------------------------------------------------------------------------------------- */

static void expect_same(loop l, tow_scan_schedule schedule)
{
    double *plain = calloc(numbers(&l), sizeof *plain), *found = calloc(numbers(&l), sizeof *found);
    assert_true(plain && found);
    gradients(l, plain);
    l.schedule = schedule;
    gradients(l, found);
    for (size_t i = 0; i < numbers(&l); i++)
        if (memcmp(&plain[i], &found[i], sizeof *plain) != 0)
            fail_msg(
                "%lld iterations%s%s, every %lld, levels %lld, slots %lld: number %zu: expected %.17g, found %.17g",
                (long long)l.length, l.reverse ? " in reverse" : "", l.around ? " in a region" : "",
                (long long)schedule.every, (long long)schedule.levels, (long long)schedule.slots, i, plain[i],
                found[i]);
    free(plain);
    free(found);
}

static void test_bits(void **state)
{
    (void)state;
    const int64_t lengths[] = {1, 2, 7, 30};
    const tow_scan_schedule schedules[] = {{.slots = 1},  {.slots = 2},  {.slots = 4},  {.slots = 29},
                                           {.slots = 50}, {.every = 1},  {.every = 4},  {.every = 40},
                                           {.levels = 1}, {.levels = 2}, {.levels = 3}, {.levels = 9}};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int kind = 0; kind < 4; kind++)
            for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++)
                expect_same((loop){.length = lengths[n], .reverse = kind & 1, .around = kind & 2}, schedules[s]);
}

/* ---- among other transformations --------------------------------------------------------------------------------- */

typedef enum around {
    NESTED, /* the loop stands in a loop with a schedule of its own */
    FORWARD_OVER_REVERSE,
    REVERSE_OVER_REVERSE,
    ROWS,
    LINEARIZED, /* forward and linear program, of which the latter runs forward */
    WAYS
} around;

/* in: x, v, xs -> x, v, ys: the last ys alone, so that no iteration forwards */
static void inner_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const loop *l = user;
    const tow_value operands[] = {in[0], in[1], tow_mul_scalar(l->b, 0.5)};
    tow_value y[3];
    whole_loop(t, operands, y, user);
    out[0] = y[0], out[1] = tow_add(y[1], in[2]);
    out[2] = tow_reduce_sum(y[2], 1, (int[]){0});
}

static void nested_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    loop *l = user;
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = l->length, .schedule = l->schedule);
    tow_value y[3];
    l->w = in[0], l->b = in[3];
    tow_scan_function(t, inner_loop, l, &options, 2, in + 1, 1, in + 3, 1, y, y + 2);
    out[0] = tow_add(tow_reduce_sum(tow_mul(y[0], y[1]), 1, (int[]){0}), tow_reduce_sum(y[2], 2, (int[]){0, 1}));
}

static tow_graph *transformed(loop l, around way)
{
    const tow_type row = tow_make_type(TOW_F64, 1, (int64_t[]){D});
    const tow_type types[] = {row, row, row, tow_make_type(TOW_F64, 2, (int64_t[]){l.length, D})};
    const size_t all[] = {0, 1, 2, 3};
    tow_graph *g, *gradient = NULL, *result = NULL, *other = NULL;
    OK(tow_trace_function(ctx, way == NESTED ? nested_loss : loss, &l, 4, types, NULL, 1, &g));
    if (way == LINEARIZED)
        OK(tow_linearize(g, 4, all, &other, &gradient));
    else
        OK(tow_grad(g, 4, all, false, &gradient));
    if (way == FORWARD_OVER_REVERSE) OK(tow_jvp(gradient, 4, all, &result));
    if (way == REVERSE_OVER_REVERSE) OK(tow_jacrev(gradient, 4, all, &result));
    if (way == ROWS) OK(tow_vmap(gradient, 3, NULL, NULL, &result));
    if (way == NESTED) result = gradient, gradient = NULL;
    if (way == LINEARIZED) result = other, other = NULL;
    tow_graph_release(g);
    tow_graph_release(gradient);
    tow_graph_release(other);
    return result;
}

/* All outputs, one after the other; *n: how many. */
static double *values_of(const tow_graph *g, size_t *n)
{
    tow_array *in[16], *out[16];
    const size_t n_in = tow_graph_input_count(g), n_out = tow_graph_output_count(g);
    double *found = NULL;
    assert_true(n_in <= 16 && n_out <= 16);
    for (size_t i = 0; i < n_in; i++) {
        const tow_type type = tow_graph_input_type(g, i);
        OK(tow_array_create(ctx, type, &in[i]));
        for (int64_t j = 0; j < tow_type_element_count(type); j++)
            ((double *)tow_array_data(in[i]))[j] = sin((double)(5 * (int64_t)i + 3 * j)) / 2;
    }
    OK(tow_evaluate(g, in, out));
    *n = 0;
    for (size_t i = 0; i < n_out; i++) {
        const tow_type type = tow_graph_output_type(g, i);
        const size_t count = type.dtype == TOW_F64 ? (size_t)tow_type_element_count(type) : 0;
        found = realloc(found, (*n + count + 1) * sizeof *found);
        assert_non_null(found);
        memcpy(found + *n, tow_array_data(out[i]), count * sizeof *found);
        *n += count;
        tow_array_release(out[i]);
    }
    for (size_t i = 0; i < n_in; i++) tow_array_release(in[i]);
    return found;
}

/* Second derivatives and rows add up in orders of their own, so they agree to rounding: 1e-12 of sums of about 100
 * terms of size 1. Gradients of nested loops have the same bits. */
static void test_transformations(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        if (way == LINEARIZED) continue; /* its residuals are other ones: test_linearized */
        size_t n, n_plain;
        tow_graph *plain = transformed((loop){.length = 7}, (around)way);
        tow_graph *scheduled = transformed((loop){.length = 7, .schedule = {.slots = 2}}, (around)way);
        double *expected = values_of(plain, &n_plain), *found = values_of(scheduled, &n);
        assert_int_equal(n, n_plain);
        for (size_t i = 0; i < n; i++) {
            const double most = way == NESTED ? 0 : 1e-12 * (1 + fabs(expected[i]));
            if (!(fabs(found[i] - expected[i]) <= most))
                fail_msg("way %d, number %zu: expected %.17g, found %.17g", way, i, expected[i], found[i]);
        }
        free(expected);
        free(found);
        tow_graph_release(plain);
        tow_graph_release(scheduled);
    }
}

/* The forward program of a linearisation hands out s + 1 states of each carry, not all. */
static void test_linearized(void **state)
{
    (void)state;
    tow_graph *g = transformed((loop){.length = 50, .schedule = {.slots = 4}}, LINEARIZED);
    int kept = 0;
    for (size_t i = 0; i < tow_graph_output_count(g); i++) {
        const tow_type type = tow_graph_output_type(g, i);
        kept += type.rank == 2 && type.dims[0] == 5;
    }
    assert_int_equal(kept, 2);
    tow_graph_release(g);
}

/* The arena does not grow with the iterations, but for the rows of ys. */
static void test_bytes(void **state)
{
    (void)state;
    double *found = calloc(1 + 3 * D + 4000 * D, sizeof *found);
    assert_non_null(found);
    const loop small = {.length = 500, .schedule = {.slots = 5}}, large = {.length = 4000, .schedule = {.slots = 5}};
    const tow_program_bytes a = gradients(small, found), b = gradients(large, found);
    const size_t rows = (4000 - 500) * D * sizeof *found;
    assert_int_equal(a.residuals, b.residuals - rows); /* ys, of which the loss takes the sine */
    assert_true(b.arena - a.arena <= rows + 128);
    free(found);
}

/* ---- within a memory limit --------------------------------------------------------------------------------------- */

enum {
    LONG = 400,
    WIDE = 64
};

static void wide_step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const loop *l = user;
    (void)t;
    out[0] = tow_sin(tow_add(tow_mul(l->w, tow_roll(in[0], 1, 0)), in[0]));
}

/* in: w, x [WIDE] */
static void wide_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    loop *l = user;
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = LONG);
    tow_value last;
    l->w = in[0];
    tow_scan_function(t, wide_step, l, &options, 1, &in[1], 0, NULL, 0, &last, NULL);
    out[0] = tow_reduce_sum(tow_square(last), 0, NULL);
}

/* Loss and gradients within the limit (0: none); returns the bytes of the run. */
static size_t limited(size_t limit, double found[1 + 2 * WIDE])
{
    loop l = {0};
    const tow_type row = tow_make_type(TOW_F64, 1, (int64_t[]){WIDE}), types[] = {row, row};
    tow_graph *g, *gradient;
    tow_program *program;
    tow_array *in[2], *out[3];
    OK(tow_trace_function(ctx, wide_loss, &l, 2, types, NULL, 1, &g));
    OK(tow_value_and_grad(g, 2, (size_t[]){0, 1}, false, &gradient));
    OK(tow_compile(ctx, gradient, &TOW_COMPILE_OPTIONS(.memory_limit = limit), &program));
    for (int i = 0; i < 2; i++) {
        OK(tow_array_create(ctx, row, &in[i]));
        for (int64_t j = 0; j < WIDE; j++) ((double *)tow_array_data(in[i]))[j] = sin((double)(5 * i + 3 * j)) / 2;
    }
    for (size_t i = 0; i < 3; i++) OK(tow_array_create(ctx, tow_graph_output_type(gradient, i), &out[i]));
    OK(tow_program_run(program, in, out));
    for (size_t i = 0; i < 3; i++) {
        const size_t bytes = tow_type_bytes(tow_array_type(out[i]));
        memcpy(found, tow_array_data(out[i]), bytes);
        found += bytes / sizeof *found;
        tow_array_release(out[i]);
    }
    const tow_program_bytes bytes = tow_program_get_bytes(program);
    for (int i = 0; i < 2; i++) tow_array_release(in[i]);
    tow_program_free(program);
    tow_graph_release(gradient);
    tow_graph_release(g);
    return bytes.inputs + bytes.outputs + bytes.arena + bytes.constants;
}

/* Groups of 20 iterations would keep 20 states of 512 bytes, and what 20 iterations keep, which is as much again. */
static void test_limit(void **state)
{
    (void)state;
    double expected[1 + 2 * WIDE], found[1 + 2 * WIDE];
    const size_t limit = 16 << 10;
    assert_true(limited(0, expected) > 400 * WIDE * sizeof(double));
    assert_true(limited(limit, found) <= limit);
    assert_memory_equal(expected, found, sizeof found);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        tow_scan_schedule schedule;
        const char *expected;
    } wrong[] = {{{.slots = -1}, "expected numbers from 0 on"},
                 {{.every = -2}, "expected numbers from 0 on"},
                 {{.every = 2, .slots = 3}, "expected one of them"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        loop l = {.length = 4, .schedule = wrong[i].schedule};
        const tow_type row = tow_make_type(TOW_F64, 1, (int64_t[]){D});
        const tow_type types[] = {row, row, row, tow_make_type(TOW_F64, 2, (int64_t[]){l.length, D})};
        tow_graph *g;
        assert_int_equal(tow_trace_function(ctx, loss, &l, 4, types, NULL, 1, &g), TOW_INVALID_ARGUMENT);
        if (!strstr(tow_context_error(ctx), wrong[i].expected)) fail_msg("found \"%s\"", tow_context_error(ctx));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_steps_of_the_oracle),
                                       cmocka_unit_test(test_bits),       cmocka_unit_test(test_transformations),
                                       cmocka_unit_test(test_linearized), cmocka_unit_test(test_bytes),
                                       cmocka_unit_test(test_limit),      cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests_name("schedule", tests, setup_counted, teardown);
}

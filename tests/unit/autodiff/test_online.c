/* Schedules of loops whose iterations are not known before they end: how many iterations run, by a primitive that
 * counts its calls, against the rule of while_schedule.c played on numbers and the theory of binomial schedules;
 * gradients bit by bit against the loop that keeps everything; bytes; what stands around; and what cannot be asked for.
 * Tests regions/while_schedule.c, regions/replay_while.c, regions/fetch.c, regions/advance.c. */
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

static int setup_counted(void **state) { return setup(state) || counted_define(ctx, 2); }

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

typedef struct loop {
    int64_t slots, bound; /* bound: max_iterations */
    bool counted, around; /* around: in a remat region */
    tow_value w, n;
} loop;

enum {
    NUMBER, /* i32 */
    X,
    V,
    CARRIES
};

static void goes_on(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const loop *l = user;
    (void)t;
    out[0] = tow_lt(in[NUMBER], l->n);
}

/* There are two carries, of which one hands on a part of the other, an outer weight used twice, and the number. */
static void step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const loop *l = user;
    const tow_value number = tow_convert(in[NUMBER], TOW_F64);
    tow_value x = in[X];
    if (l->counted) {
        const tow_value operands[] = {x, tow_add(tow_mul_scalar(x, 0), number)};
        tow_primitive_call(t, tow_primitive_find(ctx, "counted"), NULL, operands, &x);
    }
    tow_value pulled = tow_mul(l->w, tow_rev(x, 1, (int[]){0}));
    out[V] = tow_add(tow_mul_scalar(in[V], 0.5), tow_sin(tow_add(pulled, number)));
    out[X] = tow_add(tow_mul_scalar(x, 0.75), tow_mul(tow_mul_scalar(out[V], 0.125), l->w));
    out[NUMBER] = tow_add_scalar(in[NUMBER], 1);
}

/* in: x, v -> x, v */
static void whole_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const loop *l = user;
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = l->bound, .schedule = {.slots = l->slots});
    tow_value all[CARRIES] = {tow_scalar(t, TOW_I32, 0), in[0], in[1]};
    tow_while_function(t, goes_on, step, user, &options, CARRIES, all, all);
    out[0] = all[X], out[1] = all[V];
}

/* in: w, x, v, number of iterations */
static void loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    loop *l = user;
    tow_value y[2];
    l->w = in[0], l->n = in[3];
    if (l->around)
        tow_remat_function(t, whole_loop, l, NULL, 2, in + 1, 2, y);
    else
        whole_loop(t, in + 1, y, l);
    out[0] = tow_reduce_sum(tow_mul(y[0], tow_add(y[1], l->w)), 1, (int[]){0});
}

enum {
    INPUTS = 4,
    NUMBERS = 1 + 3 * D /* loss and gradients */
};

static tow_graph *traced(loop *l, tow_function function)
{
    const tow_type row = tow_make_type(TOW_F64, 1, (int64_t[]){D});
    tow_graph *g;
    OK(tow_trace_function(ctx, function, l, INPUTS, (const tow_type[]){row, row, row, tow_make_type(TOW_I32, 0, NULL)},
                          NULL, 1, &g));
    return g;
}

static void make_inputs(tow_array **in, int64_t n)
{
    const tow_type row = tow_make_type(TOW_F64, 1, (int64_t[]){D});
    for (int i = 0; i < 3; i++) {
        OK(tow_array_create(ctx, row, &in[i]));
        for (int64_t j = 0; j < D; j++) ((double *)tow_array_data(in[i]))[j] = sin((double)(5 * i + 3 * j)) / 2;
    }
    OK(tow_array_from_data(ctx, tow_make_type(TOW_I32, 0, NULL), &(int32_t){(int32_t)n}, &in[3]));
}

static tow_program *compiled(loop l)
{
    tow_graph *g = traced(&l, loss), *gradient;
    tow_program *program;
    OK(tow_value_and_grad(g, 3, (size_t[]){0, 1, 2}, false, &gradient));
    OK(tow_compile(ctx, gradient, NULL, &program));
    OK(tow_program_check(program));
    tow_graph_release(gradient);
    tow_graph_release(g);
    return program;
}

/* Loss and gradients of n iterations, one after the other. */
static void run(tow_program *program, int64_t n, double *found)
{
    tow_array *in[INPUTS], *out[4];
    make_inputs(in, n);
    for (int i = 0; i < 4; i++) OK(tow_array_create(ctx, tow_make_type(TOW_F64, i > 0, (int64_t[]){D}), &out[i]));
    counted_reset();
    OK(tow_program_run(program, in, out));
    for (int i = 0; i < 4; i++) {
        const size_t count = i > 0 ? D : 1;
        memcpy(found, tow_array_data(out[i]), count * sizeof *found);
        found += count;
        tow_array_release(out[i]);
    }
    for (int i = 0; i < INPUTS; i++) tow_array_release(in[i]);
}

/* ---- iterations that run ----------------------------------------------------------------------------------------- */

/* Finds the states that are kept after n iterations, by the rule of while_schedule.c; returns how many there are. */
static int64_t kept_after(int64_t n, int64_t slots, int64_t *positions)
{
    int64_t levels[64], last = -1, i = 0;
    while (i < n) {
        int64_t place = last + 1, level = i == 0 ? INT32_MAX : i >= slots;
        if (last == slots - 1) {
            for (place = 0; levels[place] > levels[last];) place++;
            level = levels[last] + 1;
        }
        positions[place] = i, levels[place] = level, last = place;
        i += i + 1 < slots ? 1 : slots == 1 ? n : slots - place;
    }
    return last + 1;
}

static void test_iterations(void **state)
{
    (void)state;
    const int64_t lengths[] = {0, 1, 2, 3, 4, 5, 7, 11, 12, 29, 64, 200, 1000, COUNTED_ITERATIONS};
    for (int64_t slots = 1; slots <= 30; slots += slots < 5 ? 1 : 8) {
        tow_program *program = compiled((loop){.slots = slots, .counted = true});
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            const int64_t n = lengths[k];
            int64_t positions[64], most = 0;
            double found[NUMBERS];
            if (slots == 1 && n > 200) continue;
            /* all run once before the loss is known; then a binomial schedule for each part, with the slots left */
            const int64_t n_kept = kept_after(n, slots, positions);
            int64_t expected = n;
            for (int64_t p = 0; p < n_kept; p++)
                expected += tow__binomial_steps((p + 1 < n_kept ? positions[p + 1] : n) - positions[p], slots - p);
            run(program, n, found);
            if (counted.calls != expected)
                fail_msg("%lld iterations, %lld slots: expected %lld calls, found %lld", (long long)n, (long long)slots,
                         (long long)expected, (long long)counted.calls);
            /* no iteration runs more often than if n had been known, but for the run before the loss is known */
            for (int64_t i = 0; i < n; i++) most = counted.of_iteration[i] > most ? counted.of_iteration[i] : most;
            if (n > 0) assert_true(most <= 2 + tow__binomial_repetitions(n, slots));
            /* nor all together more than 1.5 times as often */
            assert_true(2 * counted.calls <= 3 * (tow__binomial_steps(n, slots) + 1));
        }
        tow_program_free(program);
    }
}

/* ---- bits and bytes ---------------------------------------------------------------------------------------------- */

static void test_bits(void **state)
{
    (void)state;
    const int64_t lengths[] = {0, 1, 2, 7, 30, 61};
    for (int around = 0; around < 2; around++) {
        tow_program *plain = compiled((loop){.bound = 64, .around = around});
        for (int64_t slots = 1; slots <= 9; slots += slots < 4 ? 1 : 5)
            for (int bounded = 0; bounded < 2; bounded++) {
                tow_program *program = compiled((loop){.slots = slots, .bound = bounded ? 64 : 0, .around = around});
                for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
                    double expected[NUMBERS], found[NUMBERS];
                    run(plain, lengths[k], expected);
                    run(program, lengths[k], found);
                    for (int i = 0; i < NUMBERS; i++)
                        if (memcmp(&expected[i], &found[i], sizeof *found) != 0)
                            fail_msg("%lld iterations%s, %lld slots: number %d: expected %.17g, found %.17g",
                                     (long long)lengths[k], around ? " in a region" : "", (long long)slots, i,
                                     expected[i], found[i]);
                }
                tow_program_free(program);
            }
        tow_program_free(plain);
    }
}

/* Residuals are `slots` states, their places, and scalars. */
static void test_bytes(void **state)
{
    (void)state;
    size_t before = 0;
    for (int64_t slots = 2; slots <= 32; slots *= 2) {
        tow_program *program = compiled((loop){.slots = slots});
        const tow_program_bytes bytes = tow_program_get_bytes(program);
        const size_t kept = (size_t)slots * (2 * D * sizeof(double) + sizeof(int32_t));
        assert_true(bytes.residuals >= kept && bytes.residuals <= 2 * kept + 1024);
        assert_true(bytes.residuals > before);
        before = bytes.residuals;
        tow_program_free(program);
    }
}

/* The loop of a linearisation hands out as many states of each carry as there are slots. */
static void test_linearized(void **state)
{
    (void)state;
    loop l = {.slots = 4};
    tow_graph *g = traced(&l, loss), *forward, *linear;
    OK(tow_linearize(g, 3, (size_t[]){0, 1, 2}, &forward, &linear));
    int kept = 0;
    for (size_t i = 0; i < tow_graph_output_count(forward); i++) {
        const tow_type type = tow_graph_output_type(forward, i);
        kept += type.rank == 2 && type.dims[0] == 4 && type.dims[1] == D;
    }
    assert_int_equal(kept, 2);
    tow_graph_release(linear);
    tow_graph_release(forward);
    tow_graph_release(g);
}

/* ---- among other transformations --------------------------------------------------------------------------------- */

typedef enum way {
    FORWARD_OVER_REVERSE,
    REVERSE_OVER_REVERSE, /* of a loop with a bound */
    ROWS,
    WAYS
} way;

static tow_graph *transformed(loop l, way w)
{
    static const size_t all[] = {0, 1, 2};
    tow_graph *g = traced(&l, loss), *gradient, *result = NULL;
    OK(tow_grad(g, 3, all, false, &gradient));
    if (w == FORWARD_OVER_REVERSE) OK(tow_jvp(gradient, 3, all, &result));
    if (w == REVERSE_OVER_REVERSE) OK(tow_jacrev(gradient, 3, all, &result));
    if (w == ROWS) OK(tow_vmap(gradient, 5, NULL, NULL, &result));
    tow_graph_release(gradient);
    tow_graph_release(g);
    return result;
}

static double *values_of(const tow_graph *g, size_t *n)
{
    tow_array *in[16], *out[16];
    const size_t n_in = tow_graph_input_count(g), n_out = tow_graph_output_count(g);
    double *found = NULL;
    assert_true(n_in <= 16 && n_out <= 16);
    for (size_t i = 0; i < n_in; i++) {
        const tow_type type = tow_graph_input_type(g, i);
        OK(tow_array_create(ctx, type, &in[i]));
        for (int64_t j = 0; j < tow_type_element_count(type); j++) {
            if (type.dtype == TOW_I32)
                ((int32_t *)tow_array_data(in[i]))[j] = (int32_t)(7 - 2 * j); /* rows run 7, 5, ... times */
            else
                ((double *)tow_array_data(in[i]))[j] = sin((double)(5 * (int64_t)i + 3 * j)) / 2;
        }
    }
    OK(tow_evaluate(g, in, out));
    *n = 0;
    for (size_t i = 0; i < n_out; i++) {
        const size_t count = (size_t)tow_type_element_count(tow_graph_output_type(g, i));
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
 * terms of size 1. */
static void test_transformations(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        const int64_t bound = w == REVERSE_OVER_REVERSE ? 10 : 0;
        size_t n, n_plain;
        tow_graph *plain = transformed((loop){.bound = 10}, (way)w);
        tow_graph *scheduled = transformed((loop){.slots = 2, .bound = bound}, (way)w);
        double *expected = values_of(plain, &n_plain), *found = values_of(scheduled, &n);
        assert_int_equal(n, n_plain);
        for (size_t i = 0; i < n; i++)
            if (!(fabs(found[i] - expected[i]) <= 1e-12 * (1 + fabs(expected[i]))))
                fail_msg("way %d, number %zu: expected %.17g, found %.17g", w, i, expected[i], found[i]);
        free(expected);
        free(found);
        tow_graph_release(plain);
        tow_graph_release(scheduled);
    }
}

/* A loop in a loop, both with slots, and both printed and read again. */
static void inner_step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value y[2];
    whole_loop(
        t, (const tow_value[]) { in[X], in[V] }, y, user);
    out[X] = y[0], out[V] = tow_sin(y[1]);
    out[NUMBER] = tow_add_scalar(in[NUMBER], 1);
}

static void nested_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    loop *l = user;
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = l->bound, .schedule = {.slots = l->slots});
    tow_value all[CARRIES] = {tow_scalar(t, TOW_I32, 0), in[1], in[2]};
    l->w = in[0], l->n = in[3];
    tow_while_function(t, goes_on, inner_step, l, &options, CARRIES, all, all);
    out[0] = tow_reduce_sum(tow_mul(all[X], tow_add(all[V], l->w)), 1, (int[]){0});
}

static void test_nested(void **state)
{
    (void)state;
    double *values[2];
    size_t n = 0;
    for (int scheduled = 0; scheduled < 2; scheduled++) {
        loop l = {.slots = scheduled ? 3 : 0, .bound = scheduled ? 0 : 12};
        tow_graph *g = traced(&l, nested_loss), *read, *gradient;
        char *text = NULL;
        size_t size;
        FILE *file = open_memstream(&text, &size);
        assert_non_null(file);
        OK(tow_graph_print(g, file));
        fclose(file);
        OK(tow_graph_parse(ctx, text, &read));
        OK(tow_grad(read, 3, (size_t[]){0, 1, 2}, false, &gradient));
        values[scheduled] = values_of(gradient, &n);
        free(text);
        tow_graph_release(g);
        tow_graph_release(read);
        tow_graph_release(gradient);
    }
    assert_memory_equal(values[0], values[1], n * sizeof **values);
    free(values[0]);
    free(values[1]);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

typedef struct wrong_loop {
    loop l;
    tow_scan_schedule schedule;
} wrong_loop;

static void wrong_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    wrong_loop *wrong = user;
    const tow_while_options options = TOW_WHILE_OPTIONS(.schedule = wrong->schedule);
    tow_value all[CARRIES] = {tow_scalar(t, TOW_I32, 0), in[1], in[2]};
    wrong->l.w = in[0], wrong->l.n = in[3];
    tow_while_function(t, goes_on, step, &wrong->l, &options, CARRIES, all, all);
    out[0] = all[X];
}

static void test_errors(void **state)
{
    (void)state;
    static const tow_scan_schedule wrong[] = {{.slots = -1}, {.every = 2}, {.levels = 2}, {.slots = 2, .every = 1}};
    const tow_type row = tow_make_type(TOW_F64, 1, (int64_t[]){D});
    const tow_type types[] = {row, row, row, tow_make_type(TOW_I32, 0, NULL)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wrong_loop w = {.schedule = wrong[i]};
        tow_graph *g;
        assert_int_equal(tow_trace_function(ctx, wrong_loss, &w, INPUTS, types, NULL, 1, &g), TOW_INVALID_ARGUMENT);
        if (!strstr(tow_context_error(ctx), "expected .slots alone")) fail_msg("found \"%s\"", tow_context_error(ctx));
    }
    loop l = {0};
    tow_graph *g = traced(&l, loss), *gradient;
    assert_int_equal(tow_grad(g, 3, (size_t[]){0, 1, 2}, false, &gradient), TOW_UNSUPPORTED);
    if (!strstr(tow_context_error(ctx), ".slots = 8")) fail_msg("found \"%s\"", tow_context_error(ctx));
    tow_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_iterations),      cmocka_unit_test(test_bits),
                                       cmocka_unit_test(test_bytes),           cmocka_unit_test(test_linearized),
                                       cmocka_unit_test(test_transformations), cmocka_unit_test(test_nested),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests_name("online", tests, setup_counted, teardown);
}

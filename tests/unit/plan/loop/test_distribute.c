/* Products that leave scans, on an LSTM over a sequence: values against JAX, equal bits for scan and unrolled steps and
 * under remat, how often products run, and that wide steps stay as they are.
 *
 * Tests distribute.c, record_distributed.c, strip_mine.c, rules/scan_to_reduction.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/plan/ir.h"
#include "tests/unit/support/threaded_context.h"
#include "tests/unit/support/tried.h"
#include "tow/autodiff.h"
#include "tow/ops.h"
#include "tow/program.h"

/* ---- the model --------------------------------------------------------------------------------------------------- */

enum {
    INPUTS = 4 /* xs, w, u, b */
};

/* batch 0: vectors instead of matrices of one row */
typedef struct lstm {
    int64_t steps, batch, in, hidden;
    bool reverse, unrolled, remat;
    tow_value w, u, b;
} lstm;

static tow_value gate(const lstm *m, tow_value gates, int i)
{
    return tow_slice_axis(gates, -1, i * m->hidden, (i + 1) * m->hidden);
}

/* in: h, c, x, w, u, b; out: h, c */
static void cell(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    const lstm *m = user;
    tow_value gates = tow_add(tow_add(tow_dot(in[2], in[3]), tow_dot(in[0], in[4])), in[5]);
    tow_value c = tow_add(tow_mul(tow_logistic(gate(m, gates, 1)), in[1]),
                          tow_mul(tow_logistic(gate(m, gates, 0)), tow_tanh(gate(m, gates, 2))));
    out[0] = tow_mul(tow_logistic(gate(m, gates, 3)), tow_tanh(c));
    out[1] = c;
}

/* in: h, c, x; out: h, c, h */
static void step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const lstm *m = user;
    tow_value operands[] = {in[0], in[1], in[2], m->w, m->u, m->b};
    if (m->remat)
        tow_remat_function(t, cell, user, NULL, 6, operands, 2, out);
    else
        cell(t, operands, out, user);
    out[2] = out[0];
}

static tow_type row_type(tow_type type) { return tow_make_type(type.dtype, type.rank - 1, type.dims + 1); }

static void loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    lstm *m = user;
    m->w = in[1], m->u = in[2], m->b = in[3];
    tow_type type = row_type(tow_value_type(in[0])), row = type;
    row.dims[row.rank - 1] = m->hidden;
    tow_value zero = tow_full(t, row, 0), carry[2] = {zero, zero}, last[2], all;
    if (m->unrolled) {
        tow_value h[160], y[3] = {zero, zero, zero};
        for (int64_t i = 0; i < m->steps; i++) {
            int64_t k = m->reverse ? m->steps - 1 - i : i;
            tow_value x = tow_reshape(tow_slice_axis(in[0], 0, k, k + 1), type.rank, type.dims);
            step(t, (tow_value[]){y[0], y[1], x}, y, m);
            h[k] = tow_expand_dims(y[2], 0);
        }
        all = tow_concatenate((size_t)m->steps, h, 0);
        last[1] = y[1];
    } else {
        tow_scan_options options = TOW_SCAN_OPTIONS(.reverse = m->reverse);
        tow_scan_function(t, step, m, &options, 2, carry, 1, in, 1, last, &all);
    }
    out[0] = tow_add(tow_reduce_sum(tow_square(all), 0, NULL), tow_reduce_sum(last[1], 0, NULL));
}

/* Types of the inputs. */
static void input_types(const lstm *m, tow_dtype dtype, tow_type *types)
{
    types[0] = m->batch > 0 ? tow_make_type(dtype, 3, (int64_t[]){m->steps, m->batch, m->in})
                            : tow_make_type(dtype, 2, (int64_t[]){m->steps, m->in});
    types[1] = tow_make_type(dtype, 2, (int64_t[]){m->in, 4 * m->hidden});
    types[2] = tow_make_type(dtype, 2, (int64_t[]){m->hidden, 4 * m->hidden});
    types[3] = tow_make_type(dtype, 1, (int64_t[]){4 * m->hidden});
}

static tow_program *compile(lstm *m, tow_dtype dtype, int threads, tow_graph **gradient)
{
    const size_t wrt[] = {0, 1, 2, 3};
    tow_type types[INPUTS];
    tow_graph *g;
    tow_program *p;
    input_types(m, dtype, types);
    OK(tow_trace_function(ctx, loss, m, INPUTS, types, NULL, 1, &g));
    OK(tow_value_and_grad(g, INPUTS, wrt, false, gradient));
    OK(tow_compile(ctx, *gradient, &TOW_COMPILE_OPTIONS(.threads = threads), &p));
    OK(tow_program_check(p));
    tow_graph_release(g);
    return p;
}

static void fill(tow_array *array, double scale)
{
    tow_type type = tow_array_type(array);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        double x = (double)(7919 * i % 257 - 128) / 64 * scale;
        if (type.dtype == TOW_F64)
            ((double *)tow_array_data(array))[i] = x;
        else
            ((float *)tow_array_data(array))[i] = (float)(x * 0.97); /* with digits to round */
    }
}

static void run(lstm *m, tow_dtype dtype, int threads, tow_array **out)
{
    tow_graph *gradient;
    tow_program *p = compile(m, dtype, threads, &gradient);
    tow_array *in[INPUTS];
    tow_type types[INPUTS];
    input_types(m, dtype, types);
    for (int i = 0; i < INPUTS; i++) {
        OK(tow_array_create(ctx, types[i], &in[i]));
        fill(in[i], i == 0 ? 1 : 0.25);
    }
    for (size_t i = 0; i <= INPUTS; i++) OK(tow_array_create(ctx, tow_graph_output_type(gradient, i), &out[i]));
    OK(tow_program_run(p, in, out));
    for (int i = 0; i < INPUTS; i++) tow_array_release(in[i]);
    tow_program_free(p);
    tow_graph_release(gradient);
}

static void release(tow_array **arrays)
{
    for (int i = 0; i <= INPUTS; i++) tow_array_release(arrays[i]);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void check_line(char *line, tow_array *const found[2][INPUTS + 1])
{
    static const char *const names[] = {"loss", "xs", "w", "u", "b"};
    char *rest, *name = strtok_r(line, " ", &rest);
    int reverse = atoi(strtok_r(NULL, " ", &rest)), which = 0;
    while (strcmp(names[which], name) != 0) which++;
    tow_array *array = found[reverse][which];
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(array)); i++) {
        double expected = strtod(rest, &rest), x = ((double *)tow_array_data(array))[i];
        if (!(fabs(x - expected) <= 1e-13 * (1 + fabs(expected))))
            fail_msg("%s[%lld], reverse %d: expected %.17g, found %.17g", name, (long long)i, reverse, expected, x);
    }
}

static void values_are_those_of_jax(void **state)
{
    (void)state;
    tow_array *found[2][INPUTS + 1];
    for (int reverse = 0; reverse < 2; reverse++) {
        lstm m = {.steps = 5, .batch = 3, .in = 4, .hidden = 6, .reverse = reverse};
        run(&m, TOW_F64, 2, found[reverse]);
    }
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/lstm.txt", "r");
    assert_non_null(file);
    static char line[1 << 16];
    int lines = 0;
    while (fgets(line, sizeof line, file)) {
        check_line(line, found);
        lines++;
    }
    fclose(file);
    assert_int_equal(lines, 2 * (INPUTS + 1));
    release(found[0]);
    release(found[1]);
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

/* Batches below and above the limit for moving products, gates wider than a panel and than a block of panels, inputs
 * wider than a block of rows, more steps than are packed at a time, more than make a chunk, steps of one row. */
static const lstm shapes[] = {
    {.steps = 6, .batch = 3, .in = 5, .hidden = 7},       {.steps = 2, .batch = 1, .in = 16, .hidden = 16},
    {.steps = 33, .batch = 16, .in = 24, .hidden = 32},   {.steps = 5, .batch = 64, .in = 9, .hidden = 8},
    {.steps = 7, .batch = 0, .in = 12, .hidden = 16},     {.steps = 4, .batch = 63, .in = 3, .hidden = 130},
    {.steps = 9, .batch = 2, .in = 1, .hidden = 1},       {.steps = 9, .batch = 33, .in = 140, .hidden = 9},
    {.steps = 3, .batch = 16, .in = 2, .hidden = 150},    {.steps = 150, .batch = 0, .in = 3, .hidden = 5},
    {.steps = 120, .batch = 16, .in = 80, .hidden = 150},
};

static void bits_do_not_depend_on_the_way(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int dtype = TOW_F32; dtype <= TOW_F64; dtype++)
            for (int reverse = 0; reverse < 2; reverse++) {
                tow_array *expected[INPUTS + 1], *found[INPUTS + 1];
                lstm m = shapes[s];
                /* With sanitizers, planning all iterations of a long loop one by one takes half a minute. */
                if (SLOWDOWN > 1 && m.steps > 100 && (dtype != TOW_F32 || reverse)) continue;
                m.reverse = reverse;
                m.unrolled = true;
                run(&m, (tow_dtype)dtype, 1, expected);
                for (int way = 0; way < 4; way++) {
                    m.unrolled = false;
                    m.remat = way / 2;
                    run(&m, (tow_dtype)dtype, 1 + way % 2, found);
                    for (int k = 0; k <= INPUTS; k++)
                        if (memcmp(tow_array_data(expected[k]), tow_array_data(found[k]),
                                   tow_type_bytes(tow_array_type(found[k]))) != 0)
                            fail_msg("shape %zu, %s, reverse %d, remat %d: the bits of output %d differ", s,
                                     tow_dtype_name((tow_dtype)dtype), reverse, m.remat, k);
                    release(found);
                }
                release(expected);
            }
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* The number of sums over iterations that a run does, by operation. */
static uint64_t count_sums(const tow__body *body, const tow_primitive *op)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        n += inst->op == op && inst->extras.accumulation && inst->extras.accumulation->in_order;
        if (inst->loop) n += (uint64_t)inst->loop->length * count_sums(inst->loop->body, op);
    }
    return n;
}

static void expect_counts(lstm m, uint64_t dots, uint64_t sums, uint64_t additions)
{
    tow_graph *gradient;
    tow_program *p = compile(&m, TOW_F32, 1, &gradient);
    assert_int_equal(tow_program_operation_count(p, "dot_general"), dots + sums);
    assert_int_equal(count_sums(p->top, &tow__dot_general_p), sums);
    assert_int_equal(count_sums(p->top, &tow__reduce_sum_p), additions);
    tow_program_free(p);
    tow_graph_release(gradient);
}

static void products_leave_narrow_steps(void **state)
{
    (void)state;
    /* per step: h u forward and dz u^T backward; x w and dz w^T once; w and u summed over all steps, and b */
    expect_counts((lstm){.steps = 20, .batch = 4, .in = 8, .hidden = 8}, 2 * 20 + 2, 2, 1);
    /* 64 rows per step: two products forward and four backward */
    expect_counts((lstm){.steps = 20, .batch = 64, .in = 8, .hidden = 8}, 6 * 20, 0, 0);
    /* x w is more than 8 times as wide as x: it stays; all else goes */
    expect_counts((lstm){.steps = 20, .batch = 4, .in = 4, .hidden = 8}, 3 * 20 + 1, 2, 1);
    /* 120 steps are ten chunks of twelve: what would be done once is done once per chunk */
    expect_counts((lstm){.steps = 120, .batch = 16, .in = 80, .hidden = 150}, 2 * 120 + 2 * 10, 2 * 10, 10);
    /* one step has nothing to wait for */
    expect_counts((lstm){.steps = 1, .batch = 4, .in = 8, .hidden = 8}, 6, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_jax),
        cmocka_unit_test(bits_do_not_depend_on_the_way),
        cmocka_unit_test(products_leave_narrow_steps),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

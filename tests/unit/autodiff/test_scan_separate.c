/* Loops whose carries become one value: below the limit the first iterations are written out, above it the carries stay
 * apart. The same function gives gradients that differ by the order of a few additions only. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    N = 64,
    LENGTH = 6
};

/* neg neg x is x, so all of these bodies are one function. */
static void body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    tow_value u = tow_mul(in[0], in[1]);
    u = tow_add(u, tow_mul(in[2], tow_sin(in[1])));
    for (int i = 0; i < 2 * *(const int *)user; i++) u = tow_neg(u);
    out[0] = u;
    out[1] = out[2] = in[0]; /* one value from the second iteration on */
}

static void loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_value carry[3] = {in[0], in[1], in[2]};
    tow_value last[3];
    tow_scan_options options = TOW_SCAN_OPTIONS(.length = LENGTH);
    tow_scan_function(t, body, user, &options, 3, carry, 0, NULL, 0, last, NULL);
    tow_value sum = tow_add(tow_mul(last[0], in[1]), tow_mul(last[1], last[2]));
    out[0] = tow_reduce_sum(sum, 1, (int[]){0});
}

/* The gradients of the three inputs; returns equations of the gradient's graph that are not in the loops. */
static size_t gradients(int pairs, float found[3][N])
{
    tow_graph *g, *gradient;
    tow_program *program;
    tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){N});
    const tow_type types[3] = {type, type, type};
    tow_array *in[3], *out[3];
    for (int i = 0; i < 3; i++) {
        OK(tow_array_create(ctx, type, &in[i]));
        OK(tow_array_create(ctx, type, &out[i]));
        for (int j = 0; j < N; j++) ((float *)tow_array_data(in[i]))[j] = 0.3F + 0.5F * sinf((float)(7 * i + j));
    }
    OK(tow_trace_function(ctx, loop, &pairs, 3, types, NULL, 1, &g));
    OK(tow_grad(g, 0, NULL, false, &gradient));
    size_t outside = tow_graph_equation_count(gradient);
    OK(tow_compile(ctx, gradient, NULL, &program));
    OK(tow_program_run(program, in, out));
    for (int i = 0; i < 3; i++) {
        memcpy(found[i], tow_array_data(out[i]), sizeof found[i]);
        tow_array_release(in[i]);
        tow_array_release(out[i]);
    }
    tow_program_free(program);
    tow_graph_release(gradient);
    tow_graph_release(g);
    return outside;
}

static void test_both_sides_of_the_limit(void **state)
{
    (void)state;
    static float below[3][N], above[3][N];
    enum {
        FEW = 20,
        MANY = (1 << 16) / 2 + 100
    };
    size_t written_out = gradients(FEW, below), apart = gradients(MANY, above);
    assert_true(written_out > 2 * (size_t)FEW); /* an iteration stands outside of the loop */
    assert_true(apart < 2 * (size_t)MANY);      /* none does */
    /* Sums of products of at most 2 LENGTH factors below 2: a few dozen roundings of terms that do not cancel much. */
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < N; j++) {
            float most = 1 + fabsf(below[i][j]);
            if (!(fabsf(below[i][j] - above[i][j]) <= 64 * 0x1p-24F * most))
                fail_msg("gradient %d, element %d: %a below the limit, %a above", i, j, (double)below[i][j],
                         (double)above[i][j]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_both_sides_of_the_limit)};
    return cmocka_run_group_tests_name("scan separate", tests, setup, teardown);
}

/* When outputs are there, by the cost model. Tests output_times.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    LAYERS = 6,
    WIDTH = 64
};

/* carry [W, W], w [W, W] -> w carry, and that again. All rows of a carry need all of the one before: else threads take
 * blocks of rows through all iterations, and outputs are there at the end. */
static void layer(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_matmul(in[1], in[0]);
    out[1] = out[0];
}

/* x [W, W], ws [L, W, W] -> sum, all carries, the end twice as large, x */
static void record(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_value made[2];
    (void)user;
    out[3] = in[0];
    tow_scan_function(trace, layer, NULL, &TOW_SCAN_OPTIONS(.length = LAYERS), 1, in, 1, in + 1, 1, made, made + 1);
    out[1] = made[1];
    out[2] = tow_mul_scalar(made[0], 2);
    out[0] = tow_mean(out[2], 0, NULL);
}

static void outputs_have_times(void **state)
{
    (void)state;
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){WIDTH, WIDTH}),
                              tow_make_type(TOW_F32, 3, (int64_t[]){LAYERS, WIDTH, WIDTH})};
    tow_graph *graph = NULL;
    tow_program *program = NULL;
    OK(tow_trace_function(ctx, record, NULL, 2, types, NULL, 4, &graph));
    OK(tow_compile(ctx, graph, &TOW_COMPILE_OPTIONS(.plan_only = true), &program));
    const double seconds = tow_program_seconds(program);
    const tow_output_time sum = tow_program_output_time(program, 0), rows = tow_program_output_time(program, 1),
                          end = tow_program_output_time(program, 2), none = tow_program_output_time(program, 17);
    assert_true(seconds > 0);
    assert_int_equal(sum.pieces, 1);
    assert_true(sum.first == sum.last && sum.last > 0 && sum.last <= seconds);
    assert_int_equal(rows.pieces, LAYERS); /* one row by each iteration, */
    assert_true(rows.first > 0 && rows.last < end.last + 1e-15 && end.last <= seconds);
    const double each = (rows.last - rows.first) / (LAYERS - 1); /* in equal distances */
    assert_true(each > 0 && rows.first < 1.5 * each);
    assert_int_equal(end.pieces, 1);
    assert_int_equal(none.pieces, 0);
    assert_true(tow_program_seconds(NULL) == 0 && tow_program_output_time(NULL, 0).pieces == 0);
    tow_program_free(program);
    tow_graph_release(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(outputs_have_times)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

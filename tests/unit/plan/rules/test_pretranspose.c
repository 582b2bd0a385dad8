/* Constants of scans that products read transposed: one copy before the loop where that pays, none elsewhere, and the
 * same values in either case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/graph.h"
#include "tow/program.h"

/* x <- x w^T or x <- x w, `length` times, where x has `rows` rows and w is [2, 2]. */
typedef struct example {
    int rows, length;
    bool transposed;
    uint64_t copies; /* of w */
} example;

static const example examples[] = {
    {3, 4, true, 1},  /* few rows, enough iterations */
    {63, 9, true, 1}, /* the most rows that are few */
    {64, 9, true, 0}, /* transposing is hidden behind the product */
    {3, 3, true, 0},  /* too few iterations to save anything */
    {3, 4, false, 0}, /* w is read as it is */
};

static tow_program *compile(const example *x, const tow_compile_options *options)
{
    char text[1024];
    snprintf(
        text, sizeof text,
        "{ lambda ; x:f32[%1$d,2]\"x\" w:f32[2,2]\"w\". let\n"
        "    y:f32[%1$d,2] = scan[length=%2$d reverse=false consts=1 carry=1\n"
        "      body={ lambda ; w:f32[2,2] a:f32[%1$d,2]. let\n"
        "          b:f32[%1$d,2] = dot_general[lhs_contract=(1) rhs_contract=(%3$d) lhs_batch=() rhs_batch=()] a w\n"
        "        in (b) }] w x\n"
        "  in (y) }",
        x->rows, x->length, x->transposed ? 1 : 0);
    tow_graph *g;
    tow_program *p;
    OK(tow_graph_parse(ctx, text, &g));
    OK(tow_compile(ctx, g, options, &p));
    OK(tow_program_check(p));
    tow_graph_release(g);
    return p;
}

static void copies_where_they_pay(void **state)
{
    (void)state;
    const char *const without[] = {"pretranspose", NULL};
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        tow_program *p = compile(&examples[i], NULL);
        if (tow_program_operation_count(p, "copy") != examples[i].copies) fail_msg("example %zu", i);
        tow_program_free(p);
        p = compile(&examples[i], &TOW_COMPILE_OPTIONS(.without = without));
        assert_int_equal(tow_program_operation_count(p, "copy"), 0);
        tow_program_free(p);
    }
}

/* w = [[1 1] [0 2]]. (a, b) w^T = (a + b, 2 b), four times: (a + 15 b, 16 b). (a, b) w = (a, a + 2 b), four times:
 * (a, 15 a + 16 b). All of it is exact. */
static void expect_values(const example *x)
{
    float in[6] = {1, 2, 3, 4, 5, 6};
    tow_array *arrays[2], *y;
    tow_program *p = compile(x, NULL);
    OK(tow_array_from_data(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){3, 2}), in, &arrays[0]));
    OK(tow_array_from_data(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){2, 2}), (float[]){1, 1, 0, 2}, &arrays[1]));
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){3, 2}), &y));
    OK(tow_program_run(p, arrays, &y));
    const float *found = tow_array_data(y);
    for (int r = 0; r < 3; r++) {
        float a = in[2 * r], b = in[2 * r + 1];
        assert_true(found[2 * r] == (x->transposed ? a + 15 * b : a));
        assert_true(found[2 * r + 1] == (x->transposed ? 16 * b : 15 * a + 16 * b));
    }
    tow_array_release(arrays[0]);
    tow_array_release(arrays[1]);
    tow_array_release(y);
    tow_program_free(p);
}

static void values(void **state)
{
    (void)state;
    expect_values(&examples[0]);
    expect_values(&examples[4]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_where_they_pay),
        cmocka_unit_test(values),
    };
    return cmocka_run_group_tests_name("turn", tests, setup, teardown);
}

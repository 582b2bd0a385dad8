/* Tests how instructions compute rows, with instructions made by hand: what splits and what its operands must give, how
 * much work it is, which views lie in blocks, and how evenly blocks go to threads.
 * Tests ops/tiling.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "src/plan/analysis/tiling.h"
#include "src/plan/ir.h"
#include "tests/unit/support/plain_context.h"

static tow__view whole(int rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return tow__view_whole(0, tow_make_type(TOW_F32, rank, (int64_t[]){a, b, c, d}));
}

static tow__instruction inst_of(const tow_primitive *op, const void *params, uint32_t n_in, tow__view *in,
                                uint32_t n_out, tow__view *out)
{
    const tow__kernel *kernel = tow__kernel_of(op, TOW_F32);
    assert_non_null(kernel);
    return (tow__instruction){
        .op = op, .kernel = kernel, .params = params, .n_in = n_in, .in = in, .n_out = n_out, .out = out};
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void elementwise_steps_split(void **state)
{
    (void)state;
    int from[2];
    tow__view in[] = {whole(2, 4, 3, 0, 0), whole(0, 0, 0, 0, 0)}, out = whole(2, 4, 3, 0, 0);
    tow__instruction add = inst_of(&tow__add_p, NULL, 2, in, 1, &out);
    assert_true(tow__is_tileable(&add, from));
    assert_int_equal(from[0], 0);
    assert_int_equal(from[1], TOW__WHOLE); /* a scalar */
    add.kernel = NULL;
    assert_false(tow__is_tileable(&add, from)); /* a loop */
    in[0] = out = whole(2, 1, 3, 0, 0);
    add = inst_of(&tow__add_p, NULL, 2, in, 1, &out);
    assert_false(tow__is_tileable(&add, from)); /* a single row */
    in[0] = out = whole(0, 0, 0, 0, 0);
    assert_false(tow__is_tileable(&add, from)); /* no row */
}

/* All results must have the rows of the first. */
static void results_have_the_same_rows(void **state)
{
    (void)state;
    int from[1];
    tow__view in = whole(2, 4, 3, 0, 0), out[] = {in, in};
    tow__instruction fused = inst_of(&tow__fused_p, NULL, 1, &in, 2, out);
    assert_true(tow__is_tileable(&fused, from));
    out[1] = whole(2, 2, 6, 0, 0);
    assert_false(tow__is_tileable(&fused, from));
}

/* x w keeps the rows of x; x^T d has those of what it sums over, so only its left operand's columns could be cut; of a
 * vector times a matrix, only the matrix has what becomes axis 0. */
static void products_split_by_their_left_operand(void **state)
{
    (void)state;
    int from[2];
    tow__dot_params by_columns = {.lhs_contract = {1, {1}}, .rhs_contract = {1, {0}}};
    tow__view in[] = {whole(2, 4, 8, 0, 0), whole(2, 8, 3, 0, 0)}, out = whole(2, 4, 3, 0, 0);
    tow__instruction dot = inst_of(&tow__dot_general_p, &by_columns, 2, in, 1, &out);
    assert_true(tow__is_tileable(&dot, from));
    assert_int_equal(from[0], 0);
    assert_int_equal(from[1], TOW__WHOLE);
    tow__dot_params by_rows = {.lhs_contract = {1, {0}}, .rhs_contract = {1, {0}}};
    tow__view transposed[] = {whole(2, 8, 4, 0, 0), whole(2, 8, 3, 0, 0)};
    dot = inst_of(&tow__dot_general_p, &by_rows, 2, transposed, 1, &out);
    assert_false(tow__is_tileable(&dot, from));
    tow__view vector[] = {whole(1, 8, 0, 0, 0), whole(2, 8, 3, 0, 0)}, row = whole(1, 3, 0, 0, 0);
    dot = inst_of(&tow__dot_general_p, &by_rows, 2, vector, 1, &row);
    assert_false(tow__is_tileable(&dot, from));
}

/* A sum along axis 1 keeps rows, one along axis 0 mixes them. */
static void reductions_split_along_their_rows(void **state)
{
    (void)state;
    int from[1];
    tow__axes_params along = {{1, {1}}}, across = {{1, {0}}};
    tow__view in = whole(2, 4, 4, 0, 0), out = whole(1, 4, 0, 0, 0);
    tow__instruction sum = inst_of(&tow__reduce_sum_p, &along, 1, &in, 1, &out);
    assert_true(tow__is_tileable(&sum, from));
    assert_int_equal(from[0], 0);
    assert_true(tow__reduces_axis(&sum));
    sum = inst_of(&tow__reduce_sum_p, &across, 1, &in, 1, &out);
    assert_false(tow__is_tileable(&sum, from));
    tow__instruction tanh = inst_of(&tow__tanh_p, NULL, 1, &in, 1, &in);
    assert_false(tow__reduces_axis(&tanh));
}

/* A product: 2 * 4 * 8 * 3. Other steps: 8 for each of 12 elements read and 12 written. */
static void work(void **state)
{
    (void)state;
    tow__dot_params by_columns = {.lhs_contract = {1, {1}}, .rhs_contract = {1, {0}}};
    tow__view in[] = {whole(2, 4, 8, 0, 0), whole(2, 8, 3, 0, 0)}, out = whole(2, 4, 3, 0, 0);
    tow__instruction dot = inst_of(&tow__dot_general_p, &by_columns, 2, in, 1, &out);
    assert_true(tow__flops(&dot) == 192);
    tow__instruction tanh = inst_of(&tow__tanh_p, NULL, 1, &out, 1, &out);
    assert_true(tow__flops(&tanh) == 8 * (12 + 12));
}

static void inner_rows(void **state)
{
    (void)state;
    tow__view x = whole(4, 2, 5, 7, 3), w = whole(2, 3, 6, 0, 0), y = whole(4, 2, 5, 7, 6), in[] = {x, w};
    tow__dot_params last = {.lhs_contract = {1, {3}}, .rhs_contract = {1, {0}}};
    tow__instruction step = inst_of(&tow__dot_general_p, &last, 2, in, 1, &y);
    assert_int_equal(tow__inner_rows(&step, 0), 5 * 7); /* rows of 3 in x[0] */
    step = inst_of(&tow__tanh_p, NULL, 1, &x, 1, &x);
    assert_int_equal(tow__inner_rows(&step, 0), 5); /* x[0] has 5 rows */
    tow__view vector = whole(1, 9, 0, 0, 0);
    step = inst_of(&tow__tanh_p, NULL, 1, &vector, 1, &vector);
    assert_int_equal(tow__inner_rows(&step, 0), 1);
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

/* Views of 24 elements: in n blocks, block b must lie in elements 24 / n * b to 24 / n * (b + 1) - 1. */
static void views_that_lie_in_blocks(void **state)
{
    (void)state;
    const int64_t reversed = -1;
    const struct {
        int64_t rows, columns, offset, row_stride, column_stride, blocks;
        bool fits;
    } cases[] = {
        {8, 3, 0, 3, 1, 4, true},         /* two rows of three in each six */
        {8, 3, 0, 3, 1, 8, true},         /* a row in each three */
        {8, 3, 0, 3, 1, 3, false},        /* 8 rows are not three times as many */
        {8, 3, 0, 3, 1, 5, false},        /* nor do 24 elements make five parts */
        {3, 8, 0, 1, 3, 3, false},        /* transposed: each row is everywhere */
        {8, 2, 1, 3, 1, 4, true},         /* columns 1 and 2: 1 2 4 5 of 0 to 5 */
        {8, 2, 2, 3, 1, 4, false},        /* 2 3 5 6 */
        {8, 3, 2, 3, reversed, 4, true},  /* columns in reverse: 2 1 0 5 4 3 */
        {8, 3, 1, 3, reversed, 4, false}, /* 1 0 -1 */
        {8, 3, 21, -3, 1, 4, false},      /* rows in reverse: block 0 lies in the last part */
        {4, 3, 0, 3, 1, 4, false},        /* half of it: row 1 lies in part 0, too */
        {4, 3, 0, 6, 1, 4, true},         /* every other row */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow__storage storage = {.bytes = 24 * sizeof(float)};
        tow_program p = {.storages = &storage, .n_storages = 1};
        tow__view x = whole(2, cases[i].rows, cases[i].columns, 0, 0);
        x.offset = cases[i].offset;
        x.strides[0] = cases[i].row_stride;
        x.strides[1] = cases[i].column_stride;
        if (tow__fits_tiles(&p, &x, 0, cases[i].blocks) != cases[i].fits) fail_msg("case %zu", i);
        storage.bytes = 0;
        assert_false(tow__fits_tiles(&p, &x, 0, cases[i].blocks));
    }
}

static void repeated_rows(void **state)
{
    (void)state;
    tow__view x = whole(2, 8, 3, 0, 0);
    assert_false(tow__repeats_rows(&x, 0));
    x.strides[0] = 0;
    assert_true(tow__repeats_rows(&x, 0));
    x.type.dims[0] = 1; /* there is nothing to repeat */
    assert_false(tow__repeats_rows(&x, 0));
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* Four threads take 5 blocks in two rounds of four, which is 5 of 8, less than three quarters;
 * 6 of 8 are three quarters. */
static void blocks_keep_threads_busy(void **state)
{
    (void)state;
    const struct {
        int64_t blocks, threads;
        bool balanced;
    } cases[] = {{1, 1, true}, {7, 1, true},  {1, 2, false},  {3, 2, true}, {2, 4, false},
                 {3, 4, true}, {4, 4, true},  {5, 4, false},  {6, 4, true}, {9, 4, true},
                 {8, 4, true}, {9, 8, false}, {11, 8, false}, {12, 8, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(tow__is_balanced(cases[i].blocks, cases[i].threads), cases[i].balanced);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_steps_split),
        cmocka_unit_test(results_have_the_same_rows),
        cmocka_unit_test(products_split_by_their_left_operand),
        cmocka_unit_test(reductions_split_along_their_rows),
        cmocka_unit_test(work),
        cmocka_unit_test(inner_rows),
        cmocka_unit_test(views_that_lie_in_blocks),
        cmocka_unit_test(repeated_rows),
        cmocka_unit_test(blocks_keep_threads_busy),
    };
    return cmocka_run_group_tests_name("rows", tests, setup, teardown);
}

/* Reductions and products over one element in row programs: the bits of separate steps, and plans as they should be.
 *
 * Tests fuse_reductions.c, tile/profitability.c, kernels/reductions/fused_reduce.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "src/plan/ir.h"
#include "tests/unit/support/fusion.h"
#include "tow/autodiff.h"
#include "tow/ops.h"

/* ---- reductions of what a program makes ---------------------------------------------------------------------------
 * */

/* x, y [outer, elements, columns], row [columns]: two chains; the second is read again, which *user says, and a sum of
 * the first over other axes has to stay apart. */
static void chains_to_sums(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t;
    tow_type type = tow_value_type(x[0]);
    tow_value row = tow_broadcast_to(x[2], 3, type.dims);
    tow_value a = tow_neg(tow_relu(tow_sub(tow_mul(x[0], x[1]), row))), b = tow_tanh(tow_add(x[1], row));
    y[0] = tow_reduce_sum(a, 1, (int[]){1});
    y[1] = tow_reduce_max(b, 1, (int[]){1});
    y[2] = tow_reduce_min(a, 1, (int[]){1});
    y[3] = *(const int *)user ? b : tow_reduce_sum(a, 2, (int[]){0, 2});
}

/* Segments, lanes and strips of columns that are not full, full, or one more; few results of much and many of little,
 * but not so many that they become a region. */
static void test_reductions(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 2, 700},    {1, 15, 64},    {1, 16, 100},  {1, 17, 257},  {1, 1023, 3},
                                        {1, 1024, 128}, {1, 1025, 129}, {1, 2049, 1},  {1, 30000, 1}, {1, 5000, 7},
                                        {1, 70, 1100},  {3, 300, 256},  {40, 300, 2},  {2, 333, 255}, {700, 2, 1},
                                        {300, 100, 1},  {3, 1025, 1},   {17, 1024, 1}, {2, 2100, 64}, {1, 1200, 513}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int way = 0; way < 4; way++) {
            tow_dtype dtype = way / 2 ? TOW_F64 : TOW_F32;
            tow_type m = tow_make_type(dtype, 3, shapes[i]), row = tow_make_type(dtype, 1, &shapes[i][2]);
            size_t fused, separate;
            tow_graph *g = trace(chains_to_sums, &(int){way % 2}, 3, (tow_type[]){m, m, row}, 4);
            expect_same(g, (uint32_t)i, &fused, &separate);
            assert_true(fused < separate);
            assert_true(says(g, "reduce_sum, reduce_max, reduce_min)("));
            tow_graph_release(g);
        }
    }
}

/* Sums of both types, whose parts lie behind each other. */
static void sums_of_types(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    tow_value a = tow_sin(x[0]), b = tow_exp(tow_convert(a, TOW_F64));
    y[0] = tow_reduce_sum(a, 0, NULL);
    y[1] = tow_reduce_max(b, 0, NULL);
    y[2] = tow_reduce_min(a, 0, NULL);
}

/* x: one above the other where the row's number is not below the column's */
static void count_and_multiply(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_type type = tow_value_type(x[0]);
    type.dtype = TOW_I32;
    tow_value above = tow_gt(x[0], x[1]), lower = tow_ge(tow_iota(t, type, 0), tow_iota(t, type, 1));
    tow_value counted = tow_convert(tow_and(above, lower), TOW_I32);
    y[0] = tow_reduce_sum(counted, 0, NULL);
    y[1] = tow_reduce_prod(tow_add_scalar(tow_mul_scalar(tow_tanh(x[0]), 0.01), 1), 1, (int[]){1});
    y[2] = tow_reduce_or(above, 1, (int[]){0});
    y[3] = tow_reduce_min(tow_convert(tow_mul_scalar(x[1], 9), TOW_I32), 1, (int[]){1});
}

/* No array is there but the one byte of comparisons that `or` reads. */
static void test_reductions_of_integers(void **state)
{
    (void)state;
    const tow_type m = matrix(90, 70);
    size_t fused, separate;
    tow_graph *g = trace(count_and_multiply, NULL, 2, (tow_type[]){m, m}, 4);
    expect_same(g, 0, &fused, &separate);
    assert_true(fused < 2 * 90 * 70 && separate > 4 * 90 * 70);
    assert_true(says(g, "reduce_prod)("));
    tow_graph_release(g);
}

static void test_reductions_of_types(void **state)
{
    (void)state;
    tow_type m = matrix(60, 51);
    size_t fused, separate;
    tow_graph *g = trace(sums_of_types, NULL, 1, &m, 3);
    expect_same(g, 0, &fused, &separate);
    assert_true(says(g, "exp, reduce_sum, reduce_max, reduce_min)("));
    tow_graph_release(g);
}

/* The sum over rows runs in one piece: it would keep one thread busy while the other waits. */
static void narrow_sum(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_reduce_sum(tow_exp(tow_sin(x[0])), 1, (int[]){0});
}

static void test_reductions_that_stay(void **state)
{
    (void)state;
    for (int64_t rows = 1000; rows <= 2000; rows += 1000) {
        tow_type m = matrix(rows, 100);
        size_t fused, separate;
        tow_graph *g = trace(narrow_sum, NULL, 1, &m, 1);
        expect_same(g, 0, &fused, &separate);
        for (int threads = 1; threads <= 2; threads++) {
            tow_program *p;
            OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.threads = threads), &p));
            assert_int_equal(p->top->n_insts, p->team.threads == 2 && rows == 1000 ? 2 : 1);
            tow_program_free(p);
        }
        tow_graph_release(g);
    }
}

/* One over everything and two over columns: the program takes the two. */
static void sums_of_both_kinds(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    tow_value a = tow_sin(x[0]), b = tow_exp(a);
    y[0] = tow_reduce_sum(a, 0, NULL);
    y[1] = tow_reduce_sum(a, 1, (int[]){0});
    y[2] = tow_reduce_max(b, 1, (int[]){0});
}

static void test_most_reductions(void **state)
{
    (void)state;
    tow_type m = matrix(300, 200);
    size_t fused, separate;
    tow_graph *g = trace(sums_of_both_kinds, NULL, 1, &m, 3);
    expect_same(g, 0, &fused, &separate);
    assert_true(fused < separate);
    assert_true(says(g, "fused(sin, exp, reduce_sum, reduce_max)("));
    tow_graph_release(g);
}

/* Sums of two rows each, of results that stay: all of them would be alive from their programs on. */
static void late_sums(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[3] = x[3];
    for (size_t i = 0; i < 3; i++) y[i] = tow_sin(x[i]);
    for (size_t i = 0; i < 3; i++) y[3] = tow_cumsum(tow_add(y[3], tow_reduce_sum(y[i], 1, (int[]){0})), 0, false);
}

static void test_sums_that_linger(void **state)
{
    (void)state;
    tow_type m = matrix(2, 5000), types[] = {m, m, m, tow_make_type(TOW_F32, 1, (int64_t[]){5000})};
    size_t fused, separate;
    tow_graph *g = trace(late_sums, NULL, 4, types, 4);
    expect_same(g, 0, &fused, &separate);
    assert_true(fused <= separate);
    tow_graph_release(g);
}

/* ---- forward and backward pass together ---------------------------------------------------------------------------
 * */

static void squared_error(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_mean(tow_square(tow_sub(tow_tanh(x[0]), x[1])), 0, NULL);
}

static void weighted_logsumexp(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_reduce_sum(tow_mul(tow_logsumexp(x[0], 0), tow_reduce_max(x[1], 1, (int[]){0})), 0, NULL);
}

/* Of its backward pass only the whole keeps less alive beside the forward pass: each step alone makes something larger
 * than the masks that it reads. */
static void huber(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    tow_value error = tow_sub(x[0], x[1]), size = tow_abs(error);
    tow_value square = tow_mul_scalar(tow_square(error), 0.5), line = tow_add_scalar(size, -0.5);
    y[0] = tow_mean(tow_where(tow_lt(size, tow_full_like(size, 1)), square, line), 0, NULL);
}

static tow_graph *gradient_of(tow_function function, size_t n_in, const tow_type *types, size_t n_wrt)
{
    tow_graph *g = trace(function, NULL, n_in, types, 1), *gradient;
    OK(tow_value_and_grad(g, n_wrt, (size_t[]){0, 1}, false, &gradient));
    tow_graph_release(g);
    return gradient;
}

/* One pass over memory where separate parts would make two. */
static void test_both_parts(void **state)
{
    (void)state;
    const tow_type m = matrix(300, 200);
    static const char *const expected[] = {
        "(tanh, sub, integer_pow, mul + mul, neg, neg + mul, mul + add, reduce_sum)(", "fused(sub, exp, mul)("};
    for (size_t i = 0; i < 2; i++) {
        tow_graph *g = gradient_of(i == 0 ? squared_error : weighted_logsumexp, 2, (tow_type[]){m, m}, 2 - i);
        size_t fused, separate;
        expect_same(g, (uint32_t)i, &fused, &separate);
        assert_true(fused <= separate);
        assert_true(says(g, expected[i]));
        tow_graph_release(g);
    }
    for (size_t n_wrt = 1; n_wrt <= 2; n_wrt++) {
        size_t fused, separate;
        tow_graph *g = gradient_of(huber, 2, (tow_type[]){m, m}, n_wrt);
        expect_same(g, 2, &fused, &separate);
        assert_true(fused < 300 * 200 && 300 * 200 * sizeof(float) < separate); /* no array stays, not even a mask */
        tow_graph_release(g);
    }
}

/* ---- blocks of rows ---------------------------------------------------------------------------------------------- */

/* A norm whose squares are summed: in blocks of rows, they would have to be stored. */
static void norm_to_sum(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    const tow_type type = tow_value_type(x[0]);
    tow_value mean = tow_mean(tow_square(x[0]), 1, (int[]){1}), rstd = tow_rsqrt(tow_add_scalar(mean, 1e-6));
    tow_value scaled = tow_mul(x[0], tow_broadcast_in_dim(rstd, 2, type.dims, (int[]){0}));
    y[0] = tow_reduce_sum(tow_square(tow_mul(scaled, tow_broadcast_to(x[1], 2, type.dims))), 0, NULL);
}

static size_t arena_of(const tow_graph *g, bool no_regions)
{
    tow_program *p;
    OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.threads = 2, .no_regions = no_regions), &p));
    size_t bytes = tow_program_get_bytes(p).arena;
    tow_program_free(p);
    return bytes;
}

static void test_blocks_store_nothing_for_sums(void **state)
{
    (void)state;
    const tow_type types[] = {matrix(2048, 512), tow_make_type(TOW_F32, 1, (int64_t[]){512})};
    for (size_t wrt = 1; wrt <= 2; wrt++) { /* the gradient of x[1] is a sum: blocks may store an array for it */
        tow_graph *g = gradient_of(norm_to_sum, 2, types, wrt);
        size_t fused, separate, most = (256 << 10) + (wrt == 2 ? tow_type_bytes(types[0]) : 0); /* two blocks */
        expect_same(g, 0, &fused, &separate);
        assert_true(arena_of(g, false) <= arena_of(g, true) + most);
        tow_graph_release(g);
    }
}

/* ---- products over one element ------------------------------------------------------------------------------------
 * */

/* x [2, 1, 60], y [1, 2, 30]: batch axes 0 and 1, contracted axes of one element; and what it means, written out. */
static void outer(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    const int64_t shape[] = {2, 60, 30};
    y[0] = tow_dot_general(x[0], x[1], (tow_dot_dims){1, 1, {1}, {0}, {0}, {1}});
    y[1] = tow_mul(tow_broadcast_to(tow_reshape(x[0], 3, (int64_t[]){2, 60, 1}), 3, shape),
                   tow_broadcast_to(tow_reshape(x[1], 3, (int64_t[]){2, 1, 30}), 3, shape));
}

/* The gradient of a weight that sees one row at a time. */
static void outer_products(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_matmul(tow_transpose(x[0], 0, NULL), x[1]);
    for (size_t i = 2; i < 8; i += 2) y[0] = tow_add(y[0], tow_matmul(tow_transpose(x[i], 0, NULL), x[i + 1]));
}

static void test_outer_products(void **state)
{
    (void)state;
    size_t fused, separate;
    for (int dtype = TOW_F32; dtype <= TOW_F64; dtype++) {
        tow_type a = tow_make_type((tow_dtype)dtype, 3, (int64_t[]){2, 1, 60}),
                 b = tow_make_type((tow_dtype)dtype, 3, (int64_t[]){1, 2, 30});
        tow_graph *g = trace(outer, NULL, 2, (tow_type[]){a, b}, 2);
        tow_array *x[2], *y[2];
        for (size_t i = 0; i < 2; i++) {
            OK(tow_array_create(ctx, tow_graph_input_type(g, i), &x[i]));
            fill(x[i]);
        }
        (void)run(g, NULL, x, y);
        assert_memory_equal(tow_array_data(y[0]), tow_array_data(y[1]), tow_type_bytes(tow_array_type(y[0])));
        for (size_t i = 0; i < 2; i++) {
            tow_array_release(x[i]);
            tow_array_release(y[i]);
        }
        tow_graph_release(g);
    }
    tow_type row = matrix(1, 300), types[8] = {row, row, row, row, row, row, row, row};
    tow_graph *g = trace(outer_products, NULL, 8, types, 1);
    expect_same(g, 0, &fused, &separate);
    assert_int_equal(fused, 0);
    assert_true(says(g, "fused(mul + mul + add, mul + add, mul + add)("));
    tow_graph_release(g);
}

/* carry - x_t w, in a loop or written out: the gradient of w sums a product over one element for each step. */
enum {
    STEPS = 19
};

static void subtract_product(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t;
    y[0] = tow_sub(x[0], tow_matmul(x[1], *(const tow_value *)user));
}

static void in_loop(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_value w = x[2];
    tow_scan_function(t, subtract_product, &w, NULL, 1, x, 1, x + 1, 0, y, NULL);
    y[0] = tow_reduce_sum(y[0], 0, NULL);
}

static void written_out(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)user;
    tow_value w = x[2], in[] = {x[0], x[1]};
    for (int64_t i = 0; i < STEPS; i++) {
        in[1] = tow_reshape(tow_slice_axis(x[1], 0, i, i + 1), 2, (int64_t[]){1, -1});
        subtract_product(t, in, &in[0], &w);
    }
    y[0] = tow_reduce_sum(in[0], 0, NULL);
}

/* Signs of zeros are those of elementwise products both ways. */
static void test_outer_products_of_loops(void **state)
{
    (void)state;
    for (int which = 0; which < 2 * 3; which++) {
        static const int64_t widths[] = {1, 8, 70};
        const tow_dtype dtype = which % 2 ? TOW_F64 : TOW_F32;
        const int64_t n = widths[which / 2];
        tow_type types[] = {tow_make_type(dtype, 2, (int64_t[]){1, n}),
                            tow_make_type(dtype, 3, (int64_t[]){STEPS, 1, 6}),
                            tow_make_type(dtype, 2, (int64_t[]){6, n})};
        tow_array *x[3], *y[2][2];
        for (size_t i = 0; i < 3; i++) {
            OK(tow_array_create(ctx, types[i], &x[i]));
            fill(x[i]);
        }
        for (int64_t i = 0; i < STEPS * 6; i += 2) { /* every other feature: a zero of some sign */
            double zero = i % 3 ? 0.0 : -0.0;
            if (dtype == TOW_F32) ((float *)tow_array_data(x[1]))[i] = (float)zero;
            if (dtype == TOW_F64) ((double *)tow_array_data(x[1]))[i] = zero;
        }
        for (int way = 0; way < 2; way++) {
            tow_graph *g = trace(way ? in_loop : written_out, NULL, 3, types, 1), *gradient;
            OK(tow_value_and_grad(g, 1, (size_t[]){2}, false, &gradient));
            (void)run(gradient, NULL, x, y[way]);
            tow_graph_release(g);
            tow_graph_release(gradient);
        }
        assert_memory_equal(tow_array_data(y[0][1]), tow_array_data(y[1][1]), tow_type_bytes(types[2]));
        for (int way = 0; way < 4; way++) tow_array_release(y[way / 2][way % 2]);
        for (size_t i = 0; i < 3; i++) tow_array_release(x[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reductions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reductions_of_types, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reductions_of_integers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reductions_that_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(test_most_reductions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sums_that_linger, setup, teardown),
        cmocka_unit_test_setup_teardown(test_both_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_blocks_store_nothing_for_sums, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outer_products, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outer_products_of_loops, setup, teardown),
    };
    return cmocka_run_group_tests_name("fused reductions", tests, NULL, NULL);
}

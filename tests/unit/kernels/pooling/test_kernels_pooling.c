/* Fast kernels of reductions over windows and of what windows select against the plain ones, bit for bit: features
 * last, first and none, strides, dilations, padding that cuts, tiles of rows and of runs, in all layouts of operands,
 * with one and two threads.
 *
 * Tests pooling.c, reduce_windows.c, select_windows.c. */
#include "tests/unit/support/kernels.h"

#include "src/base/window.h"

typedef struct window_case {
    int rank;
    int64_t dims[4];
    tow__window_params p;
} window_case;

#define LIST(...)                                                                                                      \
    {                                                                                                                  \
        .n = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .v = { __VA_ARGS__ }                                  \
    }

static const window_case cases[] = {
    {4,
     {2, 9, 8, 5},
     {.window = LIST(1, 3, 3, 1), .strides = LIST(1, 2, 2, 1), .low = LIST(0, 1, 1, 0), .high = LIST(0, 1, 1, 0)}},
    {4,
     {2, 3, 9, 300},
     {.window = LIST(1, 1, 3, 3), .strides = LIST(1, 1, 2, 2), .low = LIST(0, 0, 1, 1), .high = LIST(0, 0, 1, 1)}},
    {4, {2, 3, 6, 7}, {.window = LIST(1, 1, 2, 2), .low = LIST(0, 0, 3, 4), .high = LIST(0, 0, 2, 3)}},
    {3,
     {2, 5, 140},
     {.window = LIST(1, 1, 5), .low = LIST(0, 0, -2), .high = LIST(0, 0, 9), .window_dilation = LIST(1, 1, 3)}},
    {3, {2, 3, 20}, {.window = LIST(1, 1, 4), .low = LIST(0, 0, 2), .base_dilation = LIST(1, 1, 2)}},
    {3,
     {2, 3, 20},
     {.window = LIST(2, 2, 4), .strides = LIST(1, 2, 3), .low = LIST(1, 0, 7), .base_dilation = LIST(1, 3, 1)}},
    {1, {50}, {.window = LIST(60), .low = LIST(30), .high = LIST(40)}},
    {2, {3, 4}, {.window = LIST(1, 3), .low = LIST(0, 10), .high = LIST(0, 10)}},
    /* Windows that do not overlap, and the sums that are their gradients: features last, features first. */
    {4, {2, 8, 6, 32}, {.window = LIST(1, 2, 2, 1), .strides = LIST(1, 2, 2, 1)}},
    {4,
     {2, 4, 3, 32},
     {.window = LIST(1, 2, 2, 1),
      .low = LIST(0, 1, 1, 0),
      .high = LIST(0, 1, 1, 0),
      .base_dilation = LIST(1, 2, 2, 1)}},
    {4, {2, 3, 8, 14}, {.window = LIST(1, 1, 2, 2), .strides = LIST(1, 1, 2, 2)}},
    {4,
     {2, 3, 4, 7},
     {.window = LIST(1, 1, 3, 3),
      .low = LIST(0, 0, 1, 2),
      .high = LIST(0, 0, 2, 1),
      .base_dilation = LIST(1, 1, 2, 2)}},
    /* Rows of several tiles, and steps between lanes in lowest terms: stride 4 over a dilation of 6. */
    {3,
     {2, 90, 17},
     {.window = LIST(1, 5, 1), .strides = LIST(1, 4, 1), .low = LIST(0, 3, 0), .base_dilation = LIST(1, 6, 1)}},
    {2,
     {2, 700},
     {.window = LIST(1, 4),
      .strides = LIST(1, 4),
      .low = LIST(0, -5),
      .high = LIST(0, 9),
      .base_dilation = LIST(1, 6),
      .window_dilation = LIST(1, 2)}},
    /* More taps of a row than are found once, with and without holes; runs of more elements than a tile has. */
    {3,
     {2, 80, 20},
     {.window = LIST(1, 40, 1), .strides = LIST(1, 3, 1), .low = LIST(0, 20, 0), .high = LIST(0, 31, 0)}},
    {3,
     {1, 9, 70},
     {.window = LIST(1, 33, 1), .low = LIST(0, 32, 0), .high = LIST(0, 32, 0), .base_dilation = LIST(1, 4, 1)}},
    {3,
     {1, 3, 1100},
     {.window = LIST(1, 2, 1), .low = LIST(0, 1, 0), .high = LIST(0, 1, 0), .base_dilation = LIST(1, 2, 1)}},
    /* Runs of whole and partial vectors: windows that overlap, that partition their axes, whole images; and more taps
     * of the outer axes than are listed. */
    {4,
     {2, 9, 7, 45},
     {.window = LIST(1, 3, 3, 1), .strides = LIST(1, 2, 2, 1), .low = LIST(0, 1, 1, 0), .high = LIST(0, 1, 1, 0)}},
    {4, {2, 6, 8, 45}, {.window = LIST(1, 2, 2, 1), .strides = LIST(1, 2, 2, 1)}},
    {4, {2, 5, 70, 13}, {.window = LIST(1, 3, 5, 1), .window_dilation = LIST(1, 2, 3, 1)}},
    {4, {2, 6, 6, 150}, {.window = LIST(1, 6, 6, 1)}},
    {4, {1, 6, 7, 150}, {.window = LIST(1, 8, 9, 1), .low = LIST(0, 1, 2, 0), .high = LIST(0, 1, 0, 0)}},
    {4, {17, 17, 3, 9}, {.window = LIST(17, 17, 2, 1)}},
    {3, {2, 0, 5}, {.window = LIST(1, 2, 1), .low = LIST(0, 2, 0), .high = LIST(0, 2, 0)}},
};

static tow__buffer result_of(tow_dtype dtype, const window_case *c)
{
    int64_t dims[4];
    for (int i = 0; i < c->rank; i++) {
        tow__window_axis a = tow__window_axis_of(&c->p, i, c->dims[i]);
        assert_true(tow__window_result(&a));
        dims[i] = a.result;
    }
    return make(dtype, c->rank, dims, ROW_MAJOR);
}

static void expect_same(const char *name, size_t n_in, const tow__buffer *in, const tow__buffer *like,
                        const window_case *c)
{
    const tow_dtype dtype = in[0].dtype;
    tow__buffer fast = make(dtype, like->rank, like->dims, ROW_MAJOR),
                plain = make(dtype, like->rank, like->dims, ROW_MAJOR);
    run_kernel(tow__kernel_find(name, dtype), n_in, in, 1, &fast, &c->p);
    run_kernel(tow__kernel_reference(name, dtype), n_in, in, 1, &plain, &c->p);
    assert_equal_bits(&fast, &plain, name);
}

static void kernels_agree(void **state)
{
    enum {
        IN_ALL_LAYOUTS = 3
    };
    static const tow_dtype types[] = {TOW_F32, TOW_F64, TOW_I32, TOW_I8, TOW_U8, TOW_U32, TOW_I64, TOW_U64};
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int how = 0; how < LAYOUTS; how++)
            for (size_t t = 0; t < (how == ROW_MAJOR ? sizeof types / sizeof *types : IN_ALL_LAYOUTS); t++) {
                const window_case *c = &cases[k];
                const tow_dtype dtype = types[t];
                tow__buffer x = random_operand(dtype, c->rank, c->dims, (layout)how), y = result_of(dtype, c);
                expect_same("reduce_window_max", 1, &x, &y, c);
                expect_same("reduce_window_min", 1, &x, &y, c);
                expect_same("reduce_window_sum", 1, &x, &y, c);
                if (dtype == TOW_F32 || dtype == TOW_F64) {
                    tow__buffer of_x = random_operand(dtype, c->rank, c->dims, (layout)((how + 3) % LAYOUTS));
                    tow__buffer of_y = random_operand(dtype, c->rank, y.dims, (layout)((how + 1) % LAYOUTS));
                    expect_same("select_and_gather_add", 2, (tow__buffer[]){of_x, x}, &y, c);
                    expect_same("select_and_scatter_add", 2, (tow__buffer[]){of_y, x}, &x, c);
                }
                release_all();
            }
}

/* Operands of few values, so that windows have ties, and of NaN, infinities and zeros of both signs. */
static void special_values_agree(void **state)
{
    static const double values[] = {0.0, -0.0, 1, -1, (double)INFINITY, -(double)INFINITY, (double)NAN, 2};
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int t = 0; t < 2; t++) {
            const window_case *c = &cases[k];
            const tow_dtype dtype = t == 0 ? TOW_F32 : TOW_F64;
            tow__buffer x = make(dtype, c->rank, c->dims, ROW_MAJOR), y = result_of(dtype, c);
            for (int64_t i = 0; i < count_of(&x); i++) set(&x, i, values[random_bits() % 8]);
            tow__buffer of_x = random_operand(dtype, c->rank, c->dims, ROW_MAJOR);
            tow__buffer of_y = random_operand(dtype, c->rank, y.dims, ROW_MAJOR);
            expect_same("reduce_window_max", 1, &x, &y, c);
            expect_same("reduce_window_min", 1, &x, &y, c);
            for (int minimum = 0; minimum < 2; minimum++) {
                window_case selects = *c;
                selects.p.minimum = minimum;
                expect_same("select_and_gather_add", 2, (tow__buffer[]){of_x, x}, &y, &selects);
                expect_same("select_and_scatter_add", 2, (tow__buffer[]){of_y, x}, &x, &selects);
            }
            release_all();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_agree), cmocka_unit_test(special_values_agree)};
    return cmocka_run_group_tests_name("kernels_pooling", tests, NULL, NULL);
}

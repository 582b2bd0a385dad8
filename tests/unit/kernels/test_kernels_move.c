/* Kernels that move elements, against loops over coordinates.
 * Tests strided.c. */
#include "tests/unit/support/kernels.h"

static const int64_t shapes[][3] = {{3, 5, 7}, {1, 1, 1}, {2, 260, 33}, {0, 3, 2}, {5, 1, 600}};
enum {
    SHAPES = sizeof shapes / sizeof shapes[0]
};

static void copy_and_iota(void **state)
{
    (void)state;
    for (size_t c = 0; c < 5 * LAYOUTS * SHAPES; c++) {
        tow_dtype dtype = all_dtypes[c % 5];
        const int64_t *dims = shapes[c / 5 / LAYOUTS];
        tow__buffer x = random_operand(dtype, 3, dims, (layout)(c / 5 % LAYOUTS)), y = make(dtype, 3, dims, ROW_MAJOR);
        run_kernel(tow__kernel_find("copy", dtype), 1, &x, 1, &y, NULL);
        for (int64_t i = 0; i < count_of(&x); i++) assert_true(get(&x, i) == get(&y, i));
        for (int axis = 0; axis < 3 && dtype != TOW_BOOL; axis++) {
            run_kernel(tow__kernel_find("iota", dtype), 0, NULL, 1, &y,
                       &(tow__iota_params){dtype, {3, {dims[0], dims[1], dims[2]}}, axis});
            for (int64_t i = 0; i < count_of(&y); i++) {
                int64_t at[3] = {i / dims[2] / dims[1], i / dims[2] % dims[1], i % dims[2]};
                assert_true(get(&y, i) == (double)at[axis]);
            }
        }
        release_all();
    }
}

/* Transpositions go patch by patch. */
static void transpositions(void **state)
{
    (void)state;
    for (size_t c = 0; c < 3 * 24; c++) {
        static const tow_dtype dtypes[] = {TOW_F32, TOW_F64, TOW_BOOL};
        static const int64_t dims[4] = {67, 3, 72, 9};
        int order[4] = {0, 1, 2, 3}, left = 4, permutation[4];
        for (int i = 0, rest = (int)(c / 3), radix = 6; i<4; i++, radix = radix> 1 ? radix / (4 - i) : 1) {
            int pick = rest / radix;
            rest %= radix;
            permutation[i] = order[pick];
            left--;
            for (int j = pick; j < left; j++) order[j] = order[j + 1];
        }
        tow__buffer x = random_operand(dtypes[c % 3], 4, dims, ROW_MAJOR), view = x;
        for (int i = 0; i < 4; i++) {
            view.dims[i] = x.dims[permutation[i]];
            view.strides[i] = x.strides[permutation[i]];
        }
        tow__buffer y = make(x.dtype, 4, view.dims, ROW_MAJOR);
        run_kernel(tow__kernel_find("copy", x.dtype), 1, &view, 1, &y, NULL);
        for (int64_t i = 0; i < count_of(&y); i++) assert_true(get(&y, i) == get(&view, i));
        release_all();
    }
}

static void pads(void **state)
{
    (void)state;
    static const int64_t cases[][6] = {/* low, high, interior of both axes */
                                       {0, 0, 0, 0, 0, 0},  {2, 1, 0, 0, 3, 0},    {-1, 2, 0, 1, -2, 0},
                                       {1, 1, 2, 0, 0, 1},  {-3, -1, 1, -2, 2, 3}, {-5, 5, 0, 0, 0, 0},
                                       {3, -4, 1, -6, 3, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0] * LAYOUTS * 2; c++) {
        const int64_t *p = cases[c / LAYOUTS / 2], in_dims[2] = {4, 5};
        tow_dtype dtype = c % 2 ? TOW_BOOL : TOW_F32;
        int64_t dims[2];
        tow__pad_params params = {{2, {p[0], p[3]}}, {2, {p[1], p[4]}}, {2, {p[2], p[5]}}};
        for (int i = 0; i < 2; i++) dims[i] = p[3 * i] + p[3 * i + 1] + in_dims[i] + (in_dims[i] - 1) * p[3 * i + 2];
        tow__buffer in[2] = {random_operand(dtype, 2, in_dims, (layout)(c / 2 % LAYOUTS)),
                             random_operand(dtype, 0, NULL, ROW_MAJOR)};
        tow__buffer out = make(dtype, 2, dims, ROW_MAJOR);
        run_kernel(tow__kernel_find("pad", dtype), 2, in, 1, &out, &params);
        for (int64_t i = 0; i < count_of(&out); i++) {
            int64_t at[2] = {i / dims[1], i % dims[1]}, from[2];
            bool inside = true;
            for (int d = 0; d < 2; d++) {
                int64_t step = p[3 * d + 2] + 1, shifted = at[d] - p[3 * d];
                inside &= shifted >= 0 && shifted % step == 0 && shifted / step < in_dims[d];
                from[d] = shifted / step;
            }
            assert_true(get(&out, i) == (inside ? get(&in[0], from[0] * 5 + from[1]) : get(&in[1], 0)));
        }
        release_all();
    }
}

static void concatenations(void **state)
{
    (void)state;
    for (int c = 0; c < 3 * LAYOUTS * 5; c++) {
        int axis = c % 3;
        tow_dtype dtype = all_dtypes[c / 3 % 5];
        layout how = (layout)(c / 15);
        int64_t base[3] = {3, 4, 50}, lengths[3] = {5, 0, 2}, total[3] = {3, 4, 50};
        tow__buffer in[3];
        for (int i = 0; i < 3; i++) {
            base[axis] = lengths[i];
            in[i] = random_operand(dtype, 3, base, how);
        }
        total[axis] = 7;
        tow__buffer out = make(dtype, 3, total, ROW_MAJOR);
        run_kernel(tow__kernel_find("concatenate", dtype), 3, in, 1, &out, &(tow__axis_params){axis});
        for (int64_t i = 0; i < count_of(&out); i++) {
            int64_t at[3] = {i / total[2] / total[1], i / total[2] % total[1], i % total[2]};
            const tow__buffer *x = at[axis] < 5 ? &in[0] : &in[2];
            if (x == &in[2]) at[axis] -= 5;
            assert_true(get(&out, i) == get(x, (at[0] * x->dims[1] + at[1]) * x->dims[2] + at[2]));
        }
        release_all();
    }
}

static void dynamic_slices(void **state)
{
    (void)state;
    static const int64_t starts[][2] = {{0, 0}, {2, 3}, {-4, 1}, {100, 100}, {4, -100}};
    for (size_t c = 0; c < 5 * LAYOUTS * 5; c++) {
        tow_dtype dtype = all_dtypes[c % 5];
        layout how = (layout)(c / 5 % LAYOUTS);
        const int64_t *start = starts[c / 5 / LAYOUTS];
        tow__buffer x = random_operand(dtype, SHAPE(6, 9), how),
                    in[4] = {x, make(TOW_I32, 0, NULL, ROW_MAJOR), make(TOW_I32, 0, NULL, ROW_MAJOR)};
        tow__buffer part = make(dtype, SHAPE(3, 4), ROW_MAJOR), whole = make(dtype, SHAPE(6, 9), ROW_MAJOR);
        int64_t first[2];
        for (int d = 0; d < 2; d++) {
            int64_t last = d == 0 ? 3 : 5;
            set(&in[1 + d], 0, (double)start[d]);
            first[d] = start[d] < 0 ? 0 : start[d] > last ? last : start[d];
        }
        run_kernel(tow__kernel_find("dynamic_slice", dtype), 3, in, 1, &part, &(tow__sizes_params){{2, {3, 4}}});
        for (int64_t i = 0; i < 12; i++)
            assert_true(get(&part, i) == get(&x, (first[0] + i / 4) * 9 + first[1] + i % 4));
        tow__buffer update = random_operand(dtype, SHAPE(3, 4), how), operands[4] = {x, update, in[1], in[2]};
        const tow__kernel *kernel = tow__kernel_find("dynamic_update_slice", dtype);
        run_kernel(kernel, 4, operands, 1, &whole, NULL);
        for (int64_t i = 0; i < 54; i++) {
            int64_t row = i / 9 - first[0], column = i % 9 - first[1];
            bool inside = row >= 0 && row < 3 && column >= 0 && column < 4;
            assert_true(get(&whole, i) == (inside ? get(&update, row * 4 + column) : get(&x, i)));
        }
        tow__buffer same = make(dtype, SHAPE(6, 9), ROW_MAJOR);
        for (int64_t i = 0; i < 54; i++) set(&same, i, get(&x, i));
        operands[0] = same;
        run_once(kernel, 4, operands, 1, &same, NULL, 2);
        assert_equal_bits(&same, &whole, "dynamic_update_slice in place");
        release_all();
    }
}

/* So many rows that threads take blocks of them; and pieces of which no block holds one. */
static void large_concatenations(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{700, 33, 20}, {5, 4000, 3000}, {20000, 1, 1}, {300, 0, 64}, {33, 2048, 2047}};
    for (size_t c = 0; c < sizeof sizes / sizeof sizes[0]; c++) {
        const int64_t rows = sizes[c][0], a = sizes[c][1], b = sizes[c][2], n = a + b + a;
        tow__buffer in[3] = {random_operand(TOW_F32, SHAPE(rows, a), ROW_MAJOR),
                             random_operand(TOW_F32, SHAPE(rows, b), ROW_MAJOR)};
        in[2] = in[0];
        tow__buffer out = make(TOW_F32, SHAPE(rows, n), ROW_MAJOR);
        run_kernel(tow__kernel_find("concatenate", TOW_F32), 3, in, 1, &out, &(tow__axis_params){1});
        for (int64_t r = 0; r < rows; r++) {
            const float *row = (float *)out.data + r * n, *x = (float *)in[0].data + r * a;
            assert_memory_equal(row, x, (size_t)a * sizeof(float));
            assert_memory_equal(row + a, (float *)in[1].data + r * b, (size_t)b * sizeof(float));
            assert_memory_equal(row + a + b, x, (size_t)a * sizeof(float));
        }
        release_all();
    }
}

/* Threads share the zeros of a table. */
static void scatter_into_a_large_table(void **state)
{
    (void)state;
    enum {
        ROWS = 3001,
        COLUMNS = 70,
        N = 40
    };
    tow__buffer in[2] = {make(TOW_I32, SHAPE(N), ROW_MAJOR), random_operand(TOW_F32, SHAPE(N, COLUMNS), ROW_MAJOR)};
    tow__buffer sums = make(TOW_F32, SHAPE(ROWS, COLUMNS), ROW_MAJOR);
    float *want = take(ROWS * COLUMNS * sizeof *want);
    memset(want, 0, ROWS * COLUMNS * sizeof *want);
    for (int64_t i = 0; i < N; i++) {
        int64_t row = i < 3 ? i * (ROWS - 1) / 2 : (int64_t)(random_bits() % 20);
        set(&in[0], i, (double)row);
        for (int64_t j = 0; j < COLUMNS; j++) want[row * COLUMNS + j] += ((float *)in[1].data)[i * COLUMNS + j];
    }
    run_kernel(tow__kernel_find("scatter_add", TOW_F32), 2, in, 1, &sums, &(tow__rows_params){ROWS});
    assert_memory_equal(sums.data, want, ROWS * COLUMNS * sizeof *want);
    release_all();
}

static void gather_and_scatter(void **state)
{
    (void)state;
    for (size_t c = 0; c < 4 * LAYOUTS * 2; c++) {
        tow_dtype dtype = all_dtypes[c % 4], index_dtype = c / 4 / LAYOUTS ? TOW_U32 : TOW_I32;
        layout how = (layout)(c / 4 % LAYOUTS);
        tow__buffer in[2] = {random_operand(dtype, SHAPE(7, 3, 50), how),
                             make(index_dtype, SHAPE(11, 2), how == REPEATED ? SPACED : how)};
        for (int64_t i = 0; i < 22; i++)
            set(&in[1], i, index_dtype == TOW_U32 ? (double)(random_bits() % 9) : (double)(random_bits() % 18) - 9);
        tow__buffer rows = make(dtype, SHAPE(11, 2, 3, 50), ROW_MAJOR), sums = make(dtype, SHAPE(7, 3, 50), ROW_MAJOR);
        run_kernel(tow__kernel_find("gather", dtype), 2, in, 1, &rows, NULL);
        double want[7 * 150] = {0};
        tow__buffer scatter[2] = {in[1], random_operand(dtype, SHAPE(11, 2, 3, 50), how)};
        run_kernel(tow__kernel_find("scatter_add", dtype), 2, scatter, 1, &sums, &(tow__rows_params){7});
        for (int64_t i = 0; i < 22; i++) {
            int64_t row = (int64_t)get(&in[1], i);
            if (row < 0) row += 7;
            bool inside = row >= 0 && row < 7;
            for (int64_t j = 0; j < 150; j++) {
                double got = get(&rows, i * 150 + j);
                if (inside) {
                    assert_true(got == get(&in[0], row * 150 + j));
                    want[row * 150 + j] = as_type(want[row * 150 + j] + get(&scatter[1], i * 150 + j), dtype);
                } else {
                    assert_true(dtype <= TOW_F64 ? isnan(got) : got == 0);
                }
            }
        }
        for (int64_t i = 0; i < 7 * 150; i++) assert_close(get(&sums, i), want[i], 0, "scatter_add", i);
        release_all();
    }
}

/* Threads share the rows of sums where those are short; some indices are outside. */
static void many_short_rows(void **state)
{
    (void)state;
    enum {
        ROWS = 700,
        N = 3000
    };
    static const int64_t columns[] = {1, 3, 16, 33, 70};
    for (size_t c = 0; c < 4 * 5; c++) {
        const tow_dtype dtype = all_dtypes[c % 4];
        const int64_t n = columns[c / 4];
        tow__buffer table = random_operand(dtype, SHAPE(ROWS, n), ROW_MAJOR), at = make(TOW_I32, SHAPE(N), ROW_MAJOR);
        tow__buffer updates = random_operand(dtype, SHAPE(N, n), ROW_MAJOR);
        for (int64_t i = 0; i < N; i++) set(&at, i, (double)(random_bits() % (2 * ROWS + 20)) - ROWS - 10);
        const struct {
            const char *primitive;
            size_t n_in;
            tow__buffer in[3];
            int64_t rows;
        } calls[] = {{"gather", 2, {table, at}, N},
                     {"scatter_add", 2, {at, updates}, ROWS},
                     {"index_add", 3, {table, at, updates}, ROWS}};
        for (size_t k = 0; k < 3; k++) {
            tow__buffer out = make(dtype, SHAPE(calls[k].rows, n), ROW_MAJOR),
                        twin = make(dtype, SHAPE(calls[k].rows, n), ROW_MAJOR);
            const tow__rows_params params = {ROWS};
            run_kernel(tow__kernel_find(calls[k].primitive, dtype), calls[k].n_in, calls[k].in, 1, &out, &params);
            run_kernel(tow__kernel_reference(calls[k].primitive, dtype), calls[k].n_in, calls[k].in, 1, &twin, &params);
            assert_equal_bits(&out, &twin, calls[k].primitive);
        }
        release_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy_and_iota),
        cmocka_unit_test(transpositions),
        cmocka_unit_test(pads),
        cmocka_unit_test(concatenations),
        cmocka_unit_test(dynamic_slices),
        cmocka_unit_test(gather_and_scatter),
        cmocka_unit_test(large_concatenations),
        cmocka_unit_test(scatter_into_a_large_table),
        cmocka_unit_test(many_short_rows),
    };
    return cmocka_run_group_tests_name("moves", tests, NULL, NULL);
}

/* Reductions and argmax against loops in double precision, over all sets of axes and in all layouts; the vector
 * kernels have the bits of their twins.
 * Tests argmax.c, reduce.c, reduce_part.c. */
#include "tests/unit/support/kernels.h"
#include "tests/unit/support/tried.h"

#include "src/kernels/reductions/reduce.h"

static const char *const reductions[] = {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod",
                                         "reduce_and", "reduce_or",  "reduce_xor"};

static double combine(int op, double a, double b)
{
    switch (op) {
    case 0:
        return a + b;
    case 1:
        return fmax(a, b);
    case 2:
        return fmin(a, b);
    case 3:
        return a * b;
    case 4:
        return (double)((int64_t)a & (int64_t)b);
    case 5:
        return (double)((int64_t)a | (int64_t)b);
    default:
        return (double)((int64_t)a ^ (int64_t)b);
    }
}

static double identity(int op, tow_dtype dtype)
{
    bool real = dtype == TOW_F32 || dtype == TOW_F64;
    switch (op) {
    case 0:
        return 0;
    case 1:
        return real ? -(double)INFINITY : dtype == TOW_I32 ? -2147483648.0 : 0;
    case 2:
        return real ? (double)INFINITY : dtype == TOW_I32 ? 2147483647.0 : dtype == TOW_U32 ? 4294967295.0 : 1;
    case 3:
        return 1;
    case 4:
        return dtype == TOW_BOOL ? 1 : dtype == TOW_I32 ? -1 : 4294967295.0;
    default:
        return 0;
    }
}

/* axes: bit set. The result of integer products wraps, so their operands are kept small. */
static void check_reduction(int op, tow_dtype dtype, const int64_t *dims, unsigned axes, layout how)
{
    tow__buffer x = random_operand(dtype, 3, dims, how);
    int64_t kept[3], count = count_of(&x);
    int rank = 0;
    tow__axes_params params = {{0}};
    for (int i = 0; i < 3; i++) {
        if (axes >> i & 1)
            params.axes.v[params.axes.n++] = i;
        else
            kept[rank++] = dims[i];
    }
    for (int64_t i = 0; i < count && op == 3; i++)
        set(&x, i, dtype <= TOW_F64 ? 1 + 0.01 * random_unit() : random_bits() % 97 == 0 ? 2 : 1);
    tow__buffer out = make(dtype, rank, kept, ROW_MAJOR), twin = make(dtype, rank, kept, ROW_MAJOR);
    run_kernel(tow__kernel_find(reductions[op], dtype), 1, &x, 1, &out, &params);
    run_kernel(tow__kernel_reference(reductions[op], dtype), 1, &x, 1, &twin, &params);
    assert_equal_bits(&out, &twin, reductions[op]);
    int64_t results = count_of(&out);
    double *want = take((size_t)results * 16 + 8), *size = want + results;
    for (int64_t i = 0; i < results; i++) want[i] = identity(op, dtype), size[i] = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at[3] = {i / dims[2] / dims[1], i / dims[2] % dims[1], i % dims[2]}, to = 0;
        for (int d = 0; d < 3; d++)
            if (!(axes >> d & 1)) to = to * dims[d] + at[d];
        want[to] = combine(op, want[to], get(&x, i));
        size[to] += op == 3 ? fabs(want[to]) : fabs(get(&x, i));
    }
    for (int64_t i = 0; i < results; i++) {
        double tolerance = dtype <= TOW_F64 && (op == 0 || op == 3) ? epsilon_of(dtype) * 2 * size[i] : 0;
        assert_close(get(&out, i), as_type(want[i], dtype), tolerance, reductions[op], i);
    }
    release_all();
}

static void reductions_over_axes(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{3, 5, 7},    {2, 33, 130}, {1, 1, 1},   {0, 3, 2},   {3, 0, 2},
                                       {5, 1, 1100}, {40, 40, 3},  {1, 70, 65}, {40, 2, 64}, {3, 2, 1040}};
    for (int op = 0; op < 7; op++)
        for (size_t d = 0; d < 5; d++)
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0] && accepts(reductions[op], all_dtypes[d]); s++)
                for (unsigned axes = 1 + (unsigned)(s + d) % SLOWDOWN; axes < 8; axes += SLOWDOWN)
                    check_reduction(op, all_dtypes[d], sizes[s], axes, (layout)((axes + s + d) % LAYOUTS));
}

/* Long sums are split into segments on several threads. */
static void long_reductions(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 70000}, {1500, 2, 33}, {1, 20000, 2}, {3, 1, 35001}};
    for (size_t s = 0; s < 4; s++)
        for (unsigned axes = 1; axes < 8; axes++)
            for (int how = (int)(s + axes) % SLOWDOWN; how < LAYOUTS; how += SLOWDOWN)
                check_reduction(how % 3, how % 2 ? TOW_F64 : TOW_F32, sizes[s], axes, (layout)how);
}

/* Sums over rows and over a few neighboring elements of each, as those of groups of channels: fewer rows than lanes,
 * several segments, several strips. */
static void grouped_rows(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{3, 40, 4}, {1, 5, 2}, {300, 5, 8}, {130, 7, 16}, {700, 300, 2}};
    for (int op = 0; op < 7; op++)
        for (size_t d = 0; d < 5; d++)
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0] && accepts(reductions[op], all_dtypes[d]); s++)
                check_reduction(op, all_dtypes[d], sizes[s], 5, ROW_MAJOR);
}

/* Rows of several strips, in several segments: four rows of a lane at once, and those that are left. */
static void wide_rows(void **state)
{
    (void)state;
    for (int op = 0; op < 3; op++)
        for (int d = 0; d < 2; d++) check_reduction(op, all_dtypes[d], (const int64_t[]){1117, 1, 530}, 1, ROW_MAJOR);
}

/* NaN, infinities and zeros of both signs at each place of rows that are and are not whole vectors; a NaN has any sign
 * and payload, and comes out as one. */
static void special_values(void **state)
{
    (void)state;
    static const double specials[] = {NAN, -NAN, INFINITY, -INFINITY, -0.0, 0.0};
    enum {
        SPECIALS = sizeof specials / sizeof *specials
    };
    static const int64_t lengths[] = {1, 2, 5, 8, 10, 15, 16, 17, 31, 32, 33, 130};
    for (int c = 0; c < 2 * 3 * 12; c++) {
        const int op = c % 3;
        const int64_t n = lengths[c / 6];
        const tow_dtype dtype = c / 3 % 2 ? TOW_F64 : TOW_F32;
        tow__axes_params params = {.axes = {.n = 1, .v = {2}}};
        tow__buffer x = random_operand(dtype, SHAPE(SPECIALS, n, n), ROW_MAJOR);
        for (int64_t k = 0; k < SPECIALS; k++)
            for (int64_t place = 0; place < n; place++) {
                for (int64_t i = 0; i < n && k >= 4; i++) set(&x, (k * n + place) * n + i, -specials[k]);
                set(&x, (k * n + place) * n + place, specials[k]);
            }
        tow__buffer out = make(dtype, 2, (int64_t[]){SPECIALS, n}, ROW_MAJOR),
                    twin = make(dtype, 2, (int64_t[]){SPECIALS, n}, ROW_MAJOR);
        run_kernel(tow__kernel_find(reductions[op], dtype), 1, &x, 1, &out, &params);
        run_kernel(tow__kernel_reference(reductions[op], dtype), 1, &x, 1, &twin, &params);
        for (int64_t i = 0; i < SPECIALS * n; i++) {
            double want = get(&twin, i), found = get(&out, i);
            bool nan = i / n < 2;
            assert_int_equal(isnan(want) != 0, nan);
            assert_int_equal(isnan(found) != 0, nan);
            if (!nan) assert_true(want == found && signbit(want) == signbit(found));
            if (!nan && op == 1 && i / n >= 4) assert_int_equal(signbit(found) != 0, n == 1 && i / n == 4);
        }
        release_all();
    }
}

static void first_of_maxima(void **state)
{
    (void)state;
    for (size_t c = 0; c < 5 * 3 * LAYOUTS; c++) {
        tow_dtype dtype = all_dtypes[c % 5];
        int axis = (int)(c / 5 % 3);
        tow__buffer x = random_operand(dtype, SHAPE(4, 30, 5), (layout)(c / 15));
        int64_t n = x.dims[axis], inner = axis == 0 ? 150 : axis == 1 ? 5 : 1, kept[2], at = 0;
        for (int i = 0; i < 3; i++)
            if (i != axis) kept[at++] = x.dims[i];
        tow__buffer best = make(TOW_I32, 2, kept, ROW_MAJOR);
        if (dtype <= TOW_F64) set(&x, 77, NAN);
        run_kernel(tow__kernel_find("argmax", dtype), 1, &x, 1, &best, &(tow__axis_params){axis});
        for (int64_t r = 0; r < 600 / n; r++) {
            int64_t base = r / inner * n * inner + r % inner, want = 0;
            for (int64_t i = n - 1; i >= 0; i--) {
                double v = get(&x, base + i * inner), w = get(&x, base + want * inner);
                if (isnan(v) || (!isnan(w) && v >= w)) want = i;
            }
            assert_int_equal((int64_t)get(&best, r), want);
        }
        release_all();
    }
}

/* Few different numbers, so that most maxima are there more than once, and the special ones among them. */
static void argmax_of_equals(void **state)
{
    (void)state;
    static const double values[] = {0, -0.0, 1, -1, 2, INFINITY, -INFINITY, NAN, -NAN};
    static const int64_t sizes[][3] = {{3, 1, 70},  {2, 10, 130}, {65, 16, 3}, {1, 2, 64},
                                       {70, 33, 2}, {3, 300, 5},  {2, 64, 65}, {129, 65, 1}};
    for (size_t c = 0; c < 8 * 3 * 2 * 6; c++) {
        const tow_dtype dtype = c % 2 ? TOW_F64 : TOW_F32;
        const int64_t *dims = sizes[c / 6 % 8];
        const int axis = (int)(c / 2 % 3);
        const uint32_t different = 3 + (uint32_t)(c / 48); /* up to all of them */
        int64_t kept[2], rank = 0;
        for (int i = 0; i < 3; i++)
            if (i != axis) kept[rank++] = dims[i];
        tow__buffer x = make(dtype, 3, dims, c % 5 ? ROW_MAJOR : SPACED);
        for (int64_t i = 0; i < dims[0] * dims[1] * dims[2]; i++) set(&x, i, values[random_bits() % different]);
        tow__buffer out = make(TOW_I32, 2, kept, ROW_MAJOR), twin = make(TOW_I32, 2, kept, ROW_MAJOR);
        run_kernel(tow__kernel_find("argmax", dtype), 1, &x, 1, &out, &(tow__axis_params){axis});
        run_kernel(tow__kernel_reference("argmax", dtype), 1, &x, 1, &twin, &(tow__axis_params){axis});
        assert_equal_bits(&out, &twin, "argmax");
        release_all();
    }
}

/* Rows that come in blocks, the last of which is a loop of its own: the bits of the whole reduction. */
static void check_parts(int op, tow_dtype dtype, int64_t elements, int64_t columns, int64_t block, int threads)
{
    tow__buffer x = random_operand(dtype, 2, (int64_t[]){elements, columns}, ROW_MAJOR), part = x;
    tow__buffer want = make(dtype, 1, &columns, ROW_MAJOR);
    tow__buffer out[2] = {make(dtype, 1, &columns, ROW_MAJOR),
                          make(dtype, 2, (int64_t[]){TOW__LANES, columns}, ROW_MAJOR)};
    const tow__axes_params axes = {{1, {0}}};
    int64_t row, rest = elements % block;
    tow__sum_part sum = {
        .row = &row, .reducer = tow__reducer_of(tow__kernel_find(reductions[op], dtype), dtype), .elements = elements};
    const tow__kernel *kernel = tow__kernel_variant(reductions[op], TOW__PART_OF_SUM, dtype);
    for (int64_t i = 0; i < count_of(&x) && op == 3; i++)
        set(&x, i, dtype <= TOW_F64 ? 1 + 0.01 * random_unit() : random_bits() % 97 == 0 ? 2 : 1);
    run_kernel(tow__kernel_find(reductions[op], dtype), 1, &x, 1, &want, &axes);
    part.dims[0] = block;
    for (row = 0; row < elements / block; row++) {
        run_more(kernel, 1, &part, columns > 1 ? 2 : 1, out, &axes, &(tow__extras){.part = &sum}, threads);
        part.data = (char *)part.data + (size_t)(block * columns) * tow_dtype_size(dtype);
    }
    sum.before = elements - rest;
    part.dims[0] = rest;
    row = 0;
    if (rest) run_more(kernel, 1, &part, columns > 1 ? 2 : 1, out, &axes, &(tow__extras){.part = &sum}, threads);
    assert_equal_bits(&out[0], &want, reductions[op]);
    release_all();
}

static void reductions_in_parts(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {/* elements, columns, rows of a block */
                                       {3000, 1, 1024}, {5000, 1, 2048}, {900, 1, 1024},   {3000, 3, 704},
                                       {2048, 3, 1024}, {2500, 130, 1},  {4100, 257, 900}, {1030, 64, 1029},
                                       {700, 129, 100}, {1500, 2, 1500}};
    for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++)
        for (int op = 0; op < 7; op++)
            for (int dtype = TOW_F32; dtype < TOW_BOOL; dtype++)
                if ((c + (size_t)dtype) % (SLOWDOWN / 3 + 1) == 0 &&
                    tow__reducer_of(tow__kernel_find(reductions[op], (tow_dtype)dtype), (tow_dtype)dtype))
                    check_parts(op, (tow_dtype)dtype, sizes[c][0], sizes[c][1], sizes[c][2], 1 + (op + dtype) % 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_over_axes), cmocka_unit_test(long_reductions),
        cmocka_unit_test(grouped_rows),         cmocka_unit_test(wide_rows),
        cmocka_unit_test(special_values),       cmocka_unit_test(first_of_maxima),
        cmocka_unit_test(argmax_of_equals),     cmocka_unit_test(reductions_in_parts),
    };
    return cmocka_run_group_tests_name("reductions", tests, NULL, NULL);
}

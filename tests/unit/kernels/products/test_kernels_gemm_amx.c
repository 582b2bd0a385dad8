/* Products on the matrix unit: f32 accuracy on numbers of all sizes, infinities and NaNs as the own kernel has them,
 * and a rule that sees whole products. Skipped where there is no such unit, but for the rule. */
#include "tests/unit/support/gemm_products.h"

#include <float.h>

#include "src/kernels/products/dot.h"
#include "src/kernels/products/gemm_own.h"
#include "src/kernels/tables.h"

static const tow__gemm_choice unit = {.matrix_unit = true}; /* only where it is usable */

/* A and B with C = A B on both kernels; bits of `transposed`: A, B. */
typedef struct problem {
    tow__gemm g;
    tow__buffer a, b, c, own;
} problem;

static float normal(void)
{
    float sum = -6;
    for (int i = 0; i < 12; i++) sum += (float)(random_bits() >> 8) * 0x1p-24f;
    return sum;
}

static problem problem_of(int64_t m, int64_t n, int64_t k, unsigned transposed)
{
    problem p = {.a = make(TOW_F32, SHAPE(m, k), transposed & 1 ? COLUMN_MAJOR : ROW_MAJOR),
                 .b = make(TOW_F32, SHAPE(k, n), transposed & 2 ? COLUMN_MAJOR : ROW_MAJOR),
                 .c = make(TOW_F32, SHAPE(m, n), ROW_MAJOR),
                 .own = make(TOW_F32, SHAPE(m, n), ROW_MAJOR)};
    for (int64_t i = 0; i < m * k; i++) set(&p.a, i, normal());
    for (int64_t i = 0; i < k * n; i++) set(&p.b, i, normal());
    p.g = product_of(&p.a, &p.b, &p.c);
    p.g.choice = &unit;
    return p;
}

static void run_both(problem *p)
{
    tow__gemm g = p->g;
    g.scratch = take(tow__gemm_scratch(&g, &tow__gemm_amx) + 64);
    tow__gemm_run(&g, &tow__gemm_amx);
    g.c = p->own.data;
    g.scratch = NULL;
    tow__gemm_run(&g, &tow__gemm_own);
}

typedef struct errors {
    double worst, squares; /* over the sum of the magnitudes of the terms, in 2^-24 */
} errors;

static errors errors_of(const problem *p, const tow__buffer *c)
{
    errors e = {0, 0};
    for (int64_t i = 0; i < p->g.m; i++) {
        for (int64_t j = 0; j < p->g.n; j++) {
            double want = 0, magnitudes = 0;
            for (int64_t q = 0; q < p->g.k; q++) {
                double term = get(&p->a, i * p->g.k + q) * get(&p->b, q * p->g.n + j);
                want += term;
                magnitudes += fabs(term);
            }
            double error = fabs(get(c, i * p->g.n + j) - want);
            if (magnitudes == 0) assert_true(error == 0);
            if (error == 0) continue;
            error *= 0x1p24 / magnitudes;
            e.squares += error * error;
            if (error > e.worst) e.worst = error;
        }
    }
    return e;
}

/* No less exact than chains of fused multiply-adds, on the same numbers. */
static void errors_are_smaller_than_those_of_chains(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{64, 64, 64}, {33, 70, 200}, {40, 50, 384}, {32, 40, 1000}};
    if (!tow__gemm_amx_usable()) skip();
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (unsigned transposed = 0; transposed < 4; transposed++) {
            problem p = problem_of(sizes[s][0], sizes[s][1], sizes[s][2], transposed);
            run_both(&p);
            errors unit_errors = errors_of(&p, &p.c), chain = errors_of(&p, &p.own);
            assert_true(unit_errors.worst < chain.worst && unit_errors.squares < chain.squares / 2);
            release_all();
        }
    }
}

/* Rows and columns of very different sizes: powers of two change nothing but exponents. */
static void powers_of_two_change_no_digits(void **state)
{
    (void)state;
    const int64_t m = 50, n = 45, k = 70;
    static const int rows[] = {-90, -36, -35, -34, -33, -20, 0, 13, 14, 15, 30, 58};
    static const int columns[] = {-34, -20, 0, 14, 40};
    if (!tow__gemm_amx_usable()) skip();
    for (unsigned transposed = 0; transposed < 4; transposed++) {
        problem p = problem_of(m, n, k, transposed);
        run_both(&p);
        tow__buffer before = p.c, after = make(TOW_F32, SHAPE(m, n), ROW_MAJOR);
        for (int64_t i = 0; i < m; i++)
            for (int64_t q = 0; q < k; q++) set(&p.a, i * k + q, ldexp(get(&p.a, i * k + q), rows[i % 12]));
        for (int64_t q = 0; q < k; q++)
            for (int64_t j = 0; j < n; j++) set(&p.b, q * n + j, ldexp(get(&p.b, q * n + j), columns[j % 5]));
        p.g.c = after.data;
        p.c = after;
        run_both(&p);
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < n; j++) {
                float want = ldexpf((float)get(&before, i * n + j), rows[i % 12] + columns[j % 5]);
                assert_true(get(&after, i * n + j) == (double)want);
            }
        }
        release_all();
    }
}

/* Large numbers beside small ones in a row, subnormal numbers, the largest number, zeros of both signs. */
static void odd_numbers(void **state)
{
    (void)state;
    const int64_t m = 20, n = 18, k = 40;
    if (!tow__gemm_amx_usable()) skip();
    for (unsigned transposed = 0; transposed < 4; transposed++) {
        problem p = problem_of(m, n, k, transposed);
        for (int64_t q = 0; q < k; q++) {
            set(&p.a, 0 * k + q, 0);
            set(&p.a, 1 * k + q, -0.0);
            set(&p.a, 2 * k + q, ldexp(get(&p.a, 2 * k + q), -135));                   /* subnormal */
            set(&p.a, 3 * k + q, ldexp(get(&p.a, 3 * k + q), (int)(q % 7) * 10 - 30)); /* mixed */
            set(&p.a, 4 * k + q, q == 3 ? FLT_MAX : 0);
            set(&p.a, 5 * k + q, q == 5 ? -FLT_MAX : q == 6 ? FLT_MAX : 0);
            set(&p.a, 6 * k + q, q % 2 == 0 ? 1 : -1);
        }
        for (int64_t q = 0; q < k; q++) set(&p.b, q * n, 0.5);
        run_both(&p);
        for (int64_t i = 0; i < m; i++) {
            double scale = i == 2 ? 0x1p-149 : 0; /* a result that is subnormal itself */
            for (int64_t j = 0; j < n; j++) {
                double want = 0, magnitudes = 0;
                for (int64_t q = 0; q < k; q++) {
                    double term = get(&p.a, i * k + q) * get(&p.b, q * n + j);
                    want += term;
                    magnitudes += fabs(term);
                }
                double got = get(&p.c, i * n + j), own = get(&p.own, i * n + j);
                if (i == 4 || i == 5) /* the largest number: as in the own kernel */
                    assert_true(got == own || (isnan(got) && isnan(own)));
                else
                    assert_true(fabs(got - want) <= magnitudes * 0x1p-22 + scale);
            }
        }
        release_all();
    }
}

/* Rows and columns with an infinity, a NaN or a number of 2^64 or more have the bits of the own kernel, all others
 * those that they had. */
static void special_values_spread_as_in_the_own_kernel(void **state)
{
    (void)state;
    const int64_t m = 70, n = 75, k = 500;
    static const float values[] = {INFINITY, -INFINITY, NAN, FLT_MAX, 0x1p64F};
    if (!tow__gemm_amx_usable()) skip();
    for (unsigned transposed = 0; transposed < 4; transposed++) {
        for (int variant = 0; variant < 10; variant++) {
            problem p = problem_of(m, n, k, transposed);
            tow__buffer base = make(TOW_F32, SHAPE(m, n), ROW_MAJOR);
            for (int64_t i = 0; i < m * n; i++) set(&base, i, normal());
            size_t bytes = (size_t)(m * n) * sizeof(float);
            p.g.accumulate = variant & 1;
            memcpy(p.c.data, base.data, bytes);
            memcpy(p.own.data, base.data, bytes);
            run_both(&p);
            tow__buffer plain = p.c;
            p.c = make(TOW_F32, SHAPE(m, n), ROW_MAJOR);
            p.g.c = p.c.data;
            memcpy(p.c.data, base.data, bytes);
            memcpy(p.own.data, base.data, bytes);
            set(&p.a, 3 * k + 7, values[variant % 5]);
            set(&p.a, 40 * k + 499, values[(variant + 1) % 5]);
            set(&p.b, 100 * n + 66, values[(variant + 3) % 5]);
            run_both(&p);
            for (int64_t i = 0; i < m; i++) {
                for (int64_t j = 0; j < n; j++) {
                    bool special = i == 3 || i == 40 || j == 66;
                    double got = get(&p.c, i * n + j), own = get(&p.own, i * n + j);
                    if (!special)
                        assert_true(got == get(&plain, i * n + j));
                    else
                        assert_true(isnan(own) ? isnan(got) : got == own);
                }
            }
            release_all();
        }
    }
}

/* Parts along k, cuts of rows and columns and missing scratch memory change no bits. */
static void parts_keep_bits(void **state)
{
    (void)state;
    const int64_t m = 90, n = 100, k = 900, kc = tow__gemm_kc(k);
    if (!tow__gemm_amx_usable()) skip();
    for (unsigned transposed = 0; transposed < 4; transposed++) {
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            problem p = problem_of(m, n, k, transposed);
            size_t bytes = (size_t)(m * n) * sizeof(float);
            for (int64_t i = 0; i < m * n; i++) set(&p.c, i, 0);
            memcpy(p.own.data, p.c.data, bytes);
            p.g.accumulate = accumulate;
            tow__gemm g = p.g;
            g.scratch = take(tow__gemm_scratch(&g, &tow__gemm_amx) + 64);
            tow__gemm_run(&g, &tow__gemm_amx);
            g.c = p.own.data;
            g.scratch = NULL;
            g.kc = kc;
            for (int64_t first = 0; first < k; first += kc) {
                g.accumulate = first > 0;
                g.k = k - first < kc ? k - first : kc;
                g.a = (const float *)p.g.a + first * g.a_column;
                g.b = (const float *)p.g.b + first * g.b_row;
                tow__gemm_run(&g, &tow__gemm_amx);
            }
            for (int64_t i = 0; i < m * n; i++) assert_true(get(&p.c, i) == get(&p.own, i));
            release_all();
        }
    }
}

/* Strides of 0, which repeat elements, and others that are neither along k nor across it: the bits of plain copies. */
static void any_strides_keep_bits(void **state)
{
    (void)state;
    enum {
        M = 70,
        N = 140,
        K = 450
    };
    static const int64_t strides[][2] = {{0, 1}, {1, 0}, {0, 0}, {3, 5}, {0, 7}, {K + 1, 1}, {1, K + 1}};
    if (!tow__gemm_amx_usable()) skip();
    for (size_t i = 0; i < 2 * sizeof strides / sizeof *strides; i++) {
        const bool of_b = i % 2;
        const int64_t *s = strides[i / 2], rows = of_b ? K : M, columns = of_b ? N : K;
        problem p = problem_of(M, N, K, 0);
        float *from = take((size_t)(rows * s[0] + columns * s[1] + 1) * sizeof(float));
        for (int64_t j = 0; j <= rows * s[0] + columns * s[1]; j++) from[j] = normal();
        for (int64_t j = 0; j < rows; j++)
            for (int64_t x = 0; x < columns; x++) set(of_b ? &p.b : &p.a, j * columns + x, from[j * s[0] + x * s[1]]);
        run_both(&p);
        tow__gemm g = p.g;
        if (of_b)
            g.b = from, g.b_row = s[0], g.b_column = s[1];
        else
            g.a = from, g.a_row = s[0], g.a_column = s[1];
        g.c = p.own.data;
        g.scratch = take(tow__gemm_scratch(&g, &tow__gemm_amx) + 64);
        tow__gemm_run(&g, &tow__gemm_amx);
        assert_memory_equal(p.c.data, p.own.data, M * N * sizeof(float));
        release_all();
    }
}

/* B packed in two pieces and used in two: blocks of k that end within a group, panels with columns that need powers of
 * two and with infinities. */
static void packed_operands_keep_bits(void **state)
{
    (void)state;
    const int64_t m = 90, n = 300, k = 1000, pieces[] = {0, 96, 300}, cuts[] = {0, 160, 300};
    if (!tow__gemm_amx_usable()) skip();
    for (unsigned transposed = 0; transposed < 4; transposed++) {
        problem p = problem_of(m, n, k, transposed);
        for (int64_t i = 0; i < k; i++) set(&p.b, i * n + 33, get(&p.b, i * n + 33) * 0x1p-50);
        for (int64_t i = 0; i < k; i++) set(&p.b, i * n + 290, get(&p.b, i * n + 290) * 0x1p30);
        set(&p.b, 700 * n + 130, INFINITY);
        run_both(&p);
        tow__gemm g = p.g;
        size_t bytes = tow__gemm_packed(&g, &tow__gemm_amx);
        g.packed = take(bytes + 64);
        memset(g.packed, 0xFF, bytes);
        assert_true(bytes >= (size_t)(n * k) * 3 * sizeof(uint16_t));
        for (int i = 0; i < 2; i++) {
            tow__gemm part = g;
            part.packed_column = pieces[i], part.n = pieces[i + 1] - pieces[i];
            part.b = (const float *)g.b + pieces[i] * g.b_column;
            tow__gemm_pack(&part, &tow__gemm_amx);
        }
        for (int scratch = 0; scratch < 2; scratch++) {
            memset(p.own.data, 0xFF, (size_t)(m * n) * sizeof(float));
            g.scratch = scratch ? take(tow__gemm_scratch(&g, &tow__gemm_amx) + 64) : NULL;
            for (int i = 0; i < 2; i++) {
                tow__gemm part = g;
                part.packed_column = cuts[i], part.n = cuts[i + 1] - cuts[i];
                part.b = (const float *)g.b + cuts[i] * g.b_column;
                part.c = (float *)p.own.data + cuts[i];
                tow__gemm_run(&part, &tow__gemm_amx);
            }
            assert_memory_equal(p.c.data, p.own.data, (size_t)(m * n) * sizeof(float));
        }
        release_all();
    }
    tow__gemm g = problem_of(1, 1, 1, 0).g;
    assert_int_equal(tow__gemm_packed(&g, tow__gemm_find("reference")), 0);
    release_all();
}

/* The rule looks at the product of the graph: a part of a large one runs on the unit, joined small ones do not. */
static void the_rule_sees_whole_products(void **state)
{
    (void)state;
    tow__gemm g = {.dtype = TOW_F32, .m = 512, .n = 512, .k = 256, .a_row = 256, .a_column = 1, .b_row = 512};
    g.b_column = 1, g.ldc = 512;
    assert_ptr_equal(tow__gemm_choose(&g), &tow__gemm_own);
    bool usable = tow__gemm_amx_usable();
    const tow__gemm_engine *large = usable ? &tow__gemm_amx : &tow__gemm_own;
    g.choice = &(tow__gemm_choice){.matrix_unit = usable};
    assert_ptr_equal(tow__gemm_choose(&g), large);
    g.rows = 512, g.columns = 512;
    g.m = 1;
    g.n = 32;
    assert_ptr_equal(tow__gemm_choose(&g), large);
    g.m = 4096;
    g.n = 512;
    g.rows = 16;
    assert_ptr_equal(tow__gemm_choose(&g), &tow__gemm_own);
    g.rows = 512;
    g.choice = &(tow__gemm_choice){.matrix_unit = usable, .portable = true};
    assert_ptr_equal(tow__gemm_choose(&g), &tow__gemm_own);

    tow__dot_params p = {{1, {2}}, {1, {0}}, {0}, {0}, 0, 0};
    tow__dot_sizes(&p, tow_make_type(TOW_F32, SHAPE(4, 32, 256)), tow_make_type(TOW_F32, SHAPE(256, 300)));
    assert_int_equal(p.rows, 128);
    assert_int_equal(p.columns, 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_smaller_than_those_of_chains),
        cmocka_unit_test(powers_of_two_change_no_digits),
        cmocka_unit_test(odd_numbers),
        cmocka_unit_test(special_values_spread_as_in_the_own_kernel),
        cmocka_unit_test(parts_keep_bits),
        cmocka_unit_test(any_strides_keep_bits),
        cmocka_unit_test(packed_operands_keep_bits),
        cmocka_unit_test(the_rule_sees_whole_products),
    };
    return cmocka_run_group_tests_name("products on the matrix unit", tests, NULL, NULL);
}

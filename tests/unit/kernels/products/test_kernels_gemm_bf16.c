/* Products of stored bf16 on units for it, and on their emulations in plain C: the bits that gemm_bf16.h defines,
 * element by element, for all layouts and sizes, with and without scratch memory, in slices, with epilogues, with
 * a B that is packed beforehand; which products the rule gives them; and through dot_general.
 * Tests gemm_bf16.c, gemm_bf16.inc, gemm_bf16_amx.c, gemm_bf16_dots.c and their emulations. */
#include "src/kernels/products/gemm_bf16.h"
#include "src/kernels/products/gemm_own.h"
#include "tests/unit/support/bf16_units.h"
#include "tests/unit/support/gemm_products.h"

#include "src/base/params.h"
#include "src/kernels/halves.h"

typedef struct candidate {
    const tow__gemm_bf16_version *version;
    float (*definition)(const float *a, const float *b, int64_t k);
    bool slow;
} candidate;

static const candidate candidates[] = {
#ifdef TOW__BF16_UNITS
    {&tow__gemm_bf16_amx, by_matrix_unit, false},
    {&tow__gemm_bf16_dots, by_dots, false},
#endif
    {&tow__gemm_bf16_amx_emulated, by_matrix_unit, true},
    {&tow__gemm_bf16_dots_emulated, by_dots, true},
};
enum {
    CANDIDATES = sizeof candidates / sizeof candidates[0]
};

/* ---- products ---------------------------------------------------------------------------------------------------- */

typedef struct problem {
    tow__buffer a, b, c, want;
    tow__gemm g;
} problem;

/* Numbers whose sums are rounded, and now and then those that units take for zeros, infinities and NaNs. */
static tow__buffer operand_of(int64_t rows, int64_t columns, layout how, bool special)
{
    static const float some[] = {0, -0.0F, 0x1p-127F, -0x1p-133F, 0x1.8p-126F, 0x1p127F, INFINITY, NAN};
    tow__buffer x = random_operand(TOW_BF16, SHAPE(rows, columns), how);
    for (int64_t i = 3; special && i < count_of(&x); i += 101) set(&x, i, (double)some[i / 101 % 8]);
    return x;
}

static void set_want(problem *p, const candidate *how)
{
    const int64_t m = p->g.m, n = p->g.n, k = p->g.k;
    float *a = take((size_t)(m * k + 1) * sizeof *a), *b = take((size_t)(n * k + 1) * sizeof *b);
    for (int64_t i = 0; i < m * k; i++) a[i] = (float)get(&p->a, i);
    for (int64_t q = 0; q < k; q++)
        for (int64_t j = 0; j < n; j++) b[j * k + q] = (float)get(&p->b, q * n + j);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            const int64_t at = i * p->g.ldc + j;
            const float x = how->definition(a + i * k, b + j * k, k);
            if (p->g.c_dtype)
                ((uint16_t *)p->want.data)[at] = (uint16_t)(tow__rounded_to_bf16(tow__bits_of_f32(x)) >> 16);
            else if (p->g.accumulate)
                ((float *)p->want.data)[at] += x;
            else
                ((float *)p->want.data)[at] = x;
        }
    }
}

/* C has three more columns than the product, which nobody may write. adds: C + A B. */
static problem problem_of(const candidate *how, const int64_t *size, layout a, layout b, tow_dtype c, bool adds)
{
    const int64_t m = size[0], n = size[1], k = size[2];
    problem p = {.a = operand_of(m, k, a, n % 2), .b = operand_of(k, n, b, m % 2)};
    p.c = random_operand(c, SHAPE(m, n + 3), ROW_MAJOR);
    p.want = make(c, 2, p.c.dims, ROW_MAJOR);
    memcpy(p.want.data, p.c.data, (size_t)count_of(&p.c) * tow_dtype_size(c));
    p.g = product_of(&p.a, &p.b, &p.c);
    p.g.dtype = TOW_F32;
    p.g.a_dtype = p.g.b_dtype = TOW_BF16;
    p.g.c_dtype = c == TOW_BF16 ? c : (tow_dtype)0;
    p.g.accumulate = adds;
    set_want(&p, how);
    return p;
}

/* Bits, but for those of NaNs. */
static void assert_wanted(const problem *p, const tow__buffer *got)
{
    for (int64_t i = 0; i < count_of(&p->want); i++) {
        if (isnan(get(&p->want, i))) {
            assert_true(isnan(get(got, i)));
            continue;
        }
        const double want = get(&p->want, i), x = get(got, i);
        if (memcmp(&want, &x, sizeof x) != 0)
            fail_msg("%lld x %lld x %lld, element %lld: expected %a, found %a", (long long)p->g.m, (long long)p->g.n,
                     (long long)p->g.k, (long long)i, want, x);
    }
}

typedef struct finished {
    const tow__gemm *g;
    unsigned char *times;
} finished;

/* The epilogue reads what is complete: C is negated, by its sign bit. */
static void negate(void *user, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    const finished *f = user;
    assert_true(columns <= TOW__GEMM_EPILOGUE_COLUMNS);
    for (int64_t i = row; i < row + rows; i++) {
        for (int64_t j = column; j < column + columns; j++) {
            f->times[i * f->g->n + j]++;
            if (f->g->c_dtype)
                ((uint16_t *)f->g->c)[i * f->g->ldc + j] ^= 0x8000;
            else
                ((uint32_t *)f->g->c)[i * f->g->ldc + j] ^= 0x80000000;
        }
    }
}

static tow__buffer copy_of(const tow__buffer *x)
{
    tow__buffer copy = make(x->dtype, 2, x->dims, ROW_MAJOR);
    memcpy(copy.data, x->data, (size_t)count_of(x) * tow_dtype_size(x->dtype));
    return copy;
}

static void check_whole(const problem *p, const candidate *how, bool scratch)
{
    tow__buffer c = copy_of(&p->c);
    tow__gemm g = p->g;
    finished f = {.g = &g, .times = take((size_t)(g.m * g.n))};
    memset(f.times, 0, (size_t)(g.m * g.n));
    g.c = c.data;
    g.epilogue = negate, g.user = &f;
    g.scratch = scratch ? take(tow__gemm_bf16_scratch(&g) + 64) : NULL;
    how->version->run(&g);
    for (int64_t i = 0; i < g.m * g.n; i++) assert_int_equal(f.times[i], 1);
    for (int64_t i = 0; i < g.m; i++)
        for (int64_t j = 0; j < g.n; j += 128) negate(&f, i, 1, j, g.n - j < 128 ? g.n - j : 128);
    assert_wanted(p, &c);
}

/* In slices of rows and columns, as threads make them, with scratch memory for the whole. */
static void check_slices(const problem *p, const candidate *how)
{
    tow__buffer c = copy_of(&p->c);
    void *scratch = take(tow__gemm_bf16_scratch(&p->g) + 64);
    const int64_t row_cut = p->g.m / 3, column_cut = p->g.n / 2;
    for (int part = 0; part < 4; part++) {
        tow__gemm s = p->g;
        const int64_t row = part & 1 ? row_cut : 0, column = part & 2 ? column_cut : 0;
        s.m = part & 1 ? s.m - row_cut : row_cut;
        s.n = part & 2 ? s.n - column_cut : column_cut;
        if (s.m == 0 || s.n == 0) continue;
        s.a = (const char *)s.a + row * s.a_row * 2;
        s.b = (const char *)s.b + column * s.b_column * 2;
        s.c = (char *)c.data + (row * s.ldc + column) * tow__gemm_c_bytes(&s);
        s.scratch = scratch;
        how->version->run(&s);
    }
    assert_wanted(p, &c);
}

/* With a B that was packed in parts of 64 columns, in slices of 32 columns and the rest. */
static void check_packed(const problem *p, const candidate *how)
{
    tow__buffer c = copy_of(&p->c);
    tow__gemm g = p->g;
    g.packed = take(tow__gemm_bf16_packed(&g) + 64);
    g.scratch = take(tow__gemm_bf16_scratch(&g) + 64);
    for (g.packed_column = 0; g.packed_column < p->g.n; g.packed_column += 64) {
        g.b = (const char *)p->g.b + g.packed_column * g.b_column * 2;
        g.n = p->g.n - g.packed_column < 64 ? p->g.n - g.packed_column : 64;
        how->version->pack(&g);
    }
    for (int64_t first = 0, n = 32; first < p->g.n; first += n, n = p->g.n) {
        g.packed_column = first;
        g.b = (const char *)p->g.b + first * g.b_column * 2;
        g.c = (char *)c.data + first * tow__gemm_c_bytes(&g);
        g.n = n < p->g.n - first ? n : p->g.n - first;
        how->version->run(&g);
    }
    assert_wanted(p, &c);
}

static void check_product(const candidate *how, const int64_t *size, layout a, layout b, tow_dtype c, bool adds)
{
    const problem p = problem_of(how, size, a, b, c, adds);
    check_whole(&p, how, true);
    check_whole(&p, how, false);
    check_slices(&p, how);
    check_packed(&p, how);
    release_all();
}

/* m, n, k: edges of tiles, strips, panels, groups and blocks of k, rows 4 KiB apart, several blocks of columns. */
static const int64_t sizes[][3] = {
    {1, 1, 1},     {1, 5, 7},    {7, 1, 5},    {5, 7, 3},    {16, 16, 32}, {17, 15, 33},  {32, 32, 64},
    {33, 65, 129}, {64, 64, 64}, {17, 31, 13}, {100, 3, 20}, {3, 100, 77}, {63, 130, 67}, {33, 34, 512},
    {34, 36, 513}, {2, 70, 900}, {5, 9, 2048}, {3, 40, 600}, {1, 300, 90}, {9, 1100, 40}, {34, 7, 2048},
};

static void bits_are_those_of_the_definition(void **state)
{
    (void)state;
    static const layout layouts[] = {ROW_MAJOR, COLUMN_MAJOR, SPACED};
    for (size_t i = 0; i < CANDIDATES; i++) {
        if (!candidates[i].version->usable()) continue;
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t how = 0; how < 9; how++)
                for (size_t c = 0; c < 3; c++)
                    if ((s + how + c) % (candidates[i].slow ? 18 : 5) == 0)
                        check_product(&candidates[i], sizes[s], layouts[how % 3], layouts[how / 3],
                                      c == 0 ? TOW_BF16 : TOW_F32, c == 2);
    }
}

/* ---- the rule ---------------------------------------------------------------------------------------------------- */

static const char *chosen(const tow__gemm_choice *choice, tow_dtype a, tow_dtype b, tow_dtype c, int64_t rows)
{
    tow__gemm g = {.dtype = TOW_F32, .a_dtype = a, .b_dtype = b, .c_dtype = c, .m = 8, .n = 100, .k = 200};
    g.rows = rows, g.columns = 100;
    g.a_row = 200, g.b_row = g.ldc = 100, g.a_column = g.b_column = 1;
    g.choice = choice;
    return tow__gemm_choose(&g)->name;
}

static void units_get_large_products_of_two_bf16(void **state)
{
    (void)state;
    const tow_dtype sums = (tow_dtype)0;
    const tow__gemm_choice unit = {.matrix_unit = true, .dots = true}, dots = {.dots = true};
    const tow__gemm_choice portable = {.matrix_unit = true, .dots = true, .portable = true}, none = {0};
    assert_string_equal(chosen(&unit, TOW_BF16, TOW_BF16, TOW_BF16, 64), "amx");
    assert_string_equal(chosen(&unit, TOW_BF16, TOW_BF16, sums, 64), "amx");
    assert_string_equal(chosen(&dots, TOW_BF16, TOW_BF16, TOW_BF16, 64), "avx512_bf16");
    assert_string_equal(chosen(&unit, TOW_BF16, TOW_BF16, TOW_BF16, 4), "own");
    assert_string_equal(chosen(&unit, TOW_F16, TOW_F16, TOW_F16, 64), "own");
    assert_string_equal(chosen(&unit, TOW_BF16, sums, sums, 64), "own");
    assert_string_equal(chosen(&portable, TOW_BF16, TOW_BF16, TOW_BF16, 64), "own");
    assert_string_equal(chosen(&none, TOW_BF16, TOW_BF16, TOW_BF16, 64), "own");
}

/* Units make one chain of all of k, so plans may not cut what they run. */
static void units_take_no_parts(void **state)
{
    (void)state;
    tow__gemm g = {.dtype = TOW_F32, .m = 64, .n = 64, .k = 800};
    assert_true(tow__gemm_in_parts(&g, &tow__gemm_amx) && tow__gemm_in_parts(&g, &tow__gemm_own));
    g.a_dtype = g.b_dtype = TOW_BF16;
    assert_false(tow__gemm_in_parts(&g, &tow__gemm_amx) || tow__gemm_in_parts(&g, &tow__gemm_dots));
    assert_true(tow__gemm_in_parts(&g, &tow__gemm_own));
}

/* ---- dot_general ------------------------------------------------------------------------------------------------- */

/* Operands [2, 3] times m, n and k, in several orders of their axes. */
typedef struct dot_case {
    tow__dot_params params;
    int64_t lhs[4], rhs[4];       /* dimensions */
    int lhs_axes[4], rhs_axes[4]; /* which axis is batch 0, batch 1, m or n, k */
} dot_case;

enum {
    M = 35,
    N = 40,
    K = 70
};
static const dot_case dot_cases[] = {
    {{.lhs_contract = {1, {3}}, .rhs_contract = {1, {2}}, .lhs_batch = {2, {0, 1}}, .rhs_batch = {2, {0, 1}}},
     {2, 3, M, K},
     {2, 3, K, N},
     {0, 1, 2, 3},
     {0, 1, 3, 2}},
    {{.lhs_contract = {1, {3}}, .rhs_contract = {1, {3}}, .lhs_batch = {2, {0, 2}}, .rhs_batch = {2, {0, 2}}},
     {2, M, 3, K},
     {2, N, 3, K},
     {0, 2, 1, 3},
     {0, 2, 1, 3}},
    {{.lhs_contract = {1, {0}}, .rhs_contract = {1, {1}}, .lhs_batch = {2, {1, 3}}, .rhs_batch = {2, {2, 0}}},
     {K, 2, M, 3},
     {3, K, 2, N},
     {1, 3, 2, 0},
     {2, 0, 3, 1}},
};

/* Numbers along k of one row or column. */
static void numbers_of(const tow__buffer *x, const int *axes, int64_t batch, int64_t row, float *to)
{
    for (int64_t k = 0; k < K; k++) {
        int64_t at[4], index = 0;
        at[axes[0]] = batch / 3, at[axes[1]] = batch % 3, at[axes[2]] = row, at[axes[3]] = k;
        for (int i = 0; i < 4; i++) index = index * x->dims[i] + at[i];
        to[k] = (float)get(x, index);
    }
}

static void check_dot(const candidate *how, const dot_case *c, layout a, layout b, tow_dtype result, int threads)
{
    const bool amx = how->definition == by_matrix_unit;
    const tow__gemm_choice choice = {
        .engine = amx ? &tow__gemm_amx : &tow__gemm_dots, .matrix_unit = amx, .dots = !amx};
    tow__buffer in[] = {random_operand(TOW_BF16, 4, c->lhs, a), random_operand(TOW_BF16, 4, c->rhs, b)};
    tow__buffer got = make(result, SHAPE(2, 3, M, N), ROW_MAJOR), want = make(result, SHAPE(2, 3, M, N), ROW_MAJOR);
    for (int64_t i = 0; i < 6 * M * N; i++) {
        float row[K], column[K];
        numbers_of(&in[0], c->lhs_axes, i / (M * N), i / N % M, row);
        numbers_of(&in[1], c->rhs_axes, i / (M * N), i % N, column);
        const float x = how->definition(row, column, K);
        tow__convert_elements(result, (char *)want.data + (size_t)i * tow_dtype_size(result), TOW_F32, &x, 1);
    }
    tow__team team;
    assert_int_equal(tow__team_create(the_kernel_context(), threads, &team), TOW_OK);
    team.products = &choice;
    const tow__kernel *kernel = tow__kernel_find("dot_general", TOW_BF16);
    tow__kernel_call call = {.n_in = 2, .n_out = 1, .in = in, .out = &got, .params = &c->params, .team = &team};
    call.scratch = take(kernel->scratch(&call) + 1);
    assert_string_equal(kernel->engine_of(&call), choice.engine->name);
    kernel->run(&call);
    assert_equal_bits(&got, &want, "dot_general");
    release_all();
}

static void dot_general_has_batch_axes(void **state)
{
    (void)state;
    static const layout layouts[] = {ROW_MAJOR, SPACED, REVERSED};
    for (int v = 0; v < (int)CANDIDATES; v++) {
        if (!candidates[v].version->usable() || candidates[v].slow) continue; /* engines run units that are there */
        for (int c = 0; c < 3; c++)
            for (int how = 0; how < 3; how++)
                check_dot(&candidates[v], &dot_cases[c], layouts[how], layouts[(how + c) % 3],
                          how % 2 ? TOW_F32 : TOW_BF16, 1 + (c + how) % 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_the_definition), cmocka_unit_test(units_get_large_products_of_two_bf16),
        cmocka_unit_test(units_take_no_parts), cmocka_unit_test(dot_general_has_batch_axes)};
    return cmocka_run_group_tests_name("kernels_gemm_bf16", tests, NULL, NULL);
}

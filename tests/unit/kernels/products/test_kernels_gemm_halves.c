/* Matrix products whose operands or results are stored in 16 bits: the bits of the product of the same numbers as f32
 * (which test_kernels_gemm.c compares with its definition), rounded once, for every instruction set, the matrix unit,
 * every layout and size, with and without scratch memory, in parts and slices, packed, and through dot_general.
 * Tests gemm_halves.inc, gemm_few.inc, gemm_amx_*.inc. */
#include "src/kernels/products/gemm_own.h"
#include "tests/unit/support/gemm_products.h"

#include "src/base/params.h"

enum {
    GUARD = 0x5A5A /* behind the columns of C */
};

/* The bits of 16 as numbers of f32, in the same layout. */
static tow__buffer widened(const tow__buffer *x)
{
    tow__buffer wide = *x;
    int64_t elements = 1;
    for (int i = 0; i < x->rank; i++) elements += (x->dims[i] - 1) * x->strides[i];
    wide.dtype = TOW_F32;
    wide.data = take((size_t)elements * sizeof(float));
    tow__convert_elements(TOW_F32, wide.data, x->dtype, x->data, elements);
    return wide;
}

/* Numbers of all sizes: sums that are subnormal or infinite in f16, zeros of both signs, some that are no numbers. */
static tow__buffer random_halves(tow_dtype dtype, const int64_t *dims, layout how, bool special)
{
    tow__buffer x = random_operand(dtype, 2, dims, how);
    for (int64_t i = 0; special && i < count_of(&x); i += 7) {
        static const double some[] = {0, -0.0, 0x1p-15, -0x1p-13, 300, -60000, (double)INFINITY};
        set(&x, i, i % 49 == 0 ? some[i / 49 % 7] : get(&x, i) * 0x1p-12);
    }
    return x;
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

/* A bit says that this matrix is stored in 16 bits; of B, that it has the other type of them. */
enum {
    HALF_A = 1,
    HALF_B = 2,
    HALF_C = 4,
    OTHER_B = 8
};

typedef struct problem {
    tow__gemm g;         /* as it is stored */
    tow__buffer a, b, c; /* likewise */
    tow__buffer want;    /* the result of the product of f32, rounded */
    size_t bytes;        /* of C */
} problem;

static problem make_problem(tow_dtype half, const int64_t *size, layout how_a, layout how_b, unsigned halves,
                            const tow__gemm_choice *choice)
{
    const tow_dtype half_b = !(halves & OTHER_B) ? half : half == TOW_BF16 ? TOW_F16 : TOW_BF16;
    const int64_t m = size[0], n = size[1], k = size[2];
    const tow_dtype c_dtype = halves & HALF_C ? half : TOW_F32;
    problem p = {.a = random_halves(half, (int64_t[]){m, k}, how_a, n % 2),
                 .b = random_halves(half_b, (int64_t[]){k, n}, how_b, m % 4 == 2)};
    tow__buffer a = widened(&p.a), b = widened(&p.b), wide = make(TOW_F32, 2, (int64_t[]){m, n + 3}, ROW_MAJOR);
    memset(wide.data, 0x5A, (size_t)count_of(&wide) * sizeof(float));
    tow__gemm g = product_of(&a, &b, &wide);
    g.choice = choice;
    tow__gemm_run(&g, NULL);
    p.want = make(c_dtype, 2, wide.dims, ROW_MAJOR);
    p.c = make(c_dtype, 2, wide.dims, ROW_MAJOR);
    p.bytes = (size_t)count_of(&p.c) * tow_dtype_size(c_dtype);
    tow__convert_elements(c_dtype, p.want.data, TOW_F32, wide.data, count_of(&wide));
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = n; j < n + 3; j++)
            memset((char *)p.want.data + (size_t)(i * (n + 3) + j) * tow_dtype_size(c_dtype), 0x5A,
                   tow_dtype_size(c_dtype));
    p.g = product_of(halves & HALF_A ? &p.a : &a, halves & HALF_B ? &p.b : &b, &p.c);
    p.g.dtype = TOW_F32;
    p.g.a_dtype = halves & HALF_A ? half : (tow_dtype)0;
    p.g.b_dtype = halves & HALF_B ? half_b : (tow_dtype)0;
    p.g.c_dtype = halves & HALF_C ? half : (tow_dtype)0;
    p.g.as_f32 = true;
    p.g.choice = choice;
    return p;
}

/* In slices of rows and columns, as threads make them. */
static void run_slices(const tow__gemm *g)
{
    const int64_t row_cut = g->m / 3, column_cut = g->n / 2;
    for (int part = 0; part < 4; part++) {
        tow__gemm s = *g;
        const int64_t row = part & 1 ? row_cut : 0, column = part & 2 ? column_cut : 0;
        s.m = part & 1 ? g->m - row_cut : row_cut;
        s.n = part & 2 ? g->n - column_cut : column_cut;
        s.a = (const char *)g->a + row * g->a_row * tow__gemm_a_bytes(g);
        s.b = (const char *)g->b + column * g->b_column * tow__gemm_b_bytes(g);
        s.c = (char *)g->c + (row * g->ldc + column) * tow__gemm_c_bytes(g);
        s.epilogue = NULL;
        tow__gemm_run(&s, NULL);
    }
}

/* In parts along k, which a C of f32 allows. */
static void run_parts(const tow__gemm *whole)
{
    tow__gemm g = *whole;
    g.epilogue = NULL;
    g.kc = tow__gemm_kc(whole->k);
    for (int64_t first = 0; first < whole->k; first += g.kc) {
        g.k = whole->k - first < g.kc ? whole->k - first : g.kc;
        g.a = (const char *)whole->a + first * g.a_column * tow__gemm_a_bytes(&g);
        g.b = (const char *)whole->b + first * g.b_row * tow__gemm_b_bytes(&g);
        g.accumulate = first > 0;
        tow__gemm_run(&g, NULL);
    }
}

static void check_whole(problem *p, bool scratch)
{
    const int64_t count = p->g.m * p->g.n;
    finished f = {.g = &p->g, .times = take((size_t)count)};
    memset(f.times, 0, (size_t)count);
    memset(p->c.data, 0x5A, p->bytes);
    const tow__gemm_engine *engine = tow__gemm_choose(&p->g);
    assert_string_equal(engine->name, p->g.choice->portable ? "own" : "amx");
    if (p->g.choice->portable) assert_int_equal(tow__gemm_packed(&p->g, engine), 0);
    tow__gemm g = p->g;
    g.epilogue = negate, g.user = &f;
    g.scratch = scratch ? take(tow__gemm_scratch(&g, engine) + 1) : NULL;
    tow__gemm_run(&g, engine);
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(f.times[i], 1);
        const int64_t at = i / p->g.n * p->g.ldc + i % p->g.n;
        if (p->g.c_dtype)
            ((uint16_t *)p->c.data)[at] ^= 0x8000;
        else
            ((uint32_t *)p->c.data)[at] ^= 0x80000000;
    }
    assert_memory_equal(p->c.data, p->want.data, p->bytes);
}

/* With a B that was packed beforehand, if the engine wants that. */
static void run_packed(const tow__gemm *whole)
{
    tow__gemm g = *whole;
    g.packed = take(tow__gemm_packed(&g, &tow__gemm_amx) + 64);
    tow__gemm_pack(&g, &tow__gemm_amx);
    tow__gemm_run(&g, &tow__gemm_amx);
}

static void check_product_by(tow_dtype half, const int64_t *size, layout a, layout b, unsigned halves,
                             const tow__gemm_choice *choice)
{
    problem p = make_problem(half, size, a, b, halves, choice);
    check_whole(&p, true);
    check_whole(&p, false);
    memset(p.c.data, 0x5A, p.bytes);
    run_slices(&p.g);
    assert_memory_equal(p.c.data, p.want.data, p.bytes);
    if (!p.g.c_dtype) {
        memset(p.c.data, 0x5A, p.bytes);
        run_parts(&p.g);
        assert_memory_equal(p.c.data, p.want.data, p.bytes);
    }
    if (!choice->portable) {
        memset(p.c.data, 0x5A, p.bytes);
        run_packed(&p.g);
        assert_memory_equal(p.c.data, p.want.data, p.bytes);
    }
    release_all();
}

static void check_product(tow_dtype half, const int64_t *size, layout a, layout b, unsigned halves, int set)
{
    const tow__gemm_choice choice = {.portable = true, .set = set};
    check_product_by(half, size, a, b, halves, &choice);
}

/* m, n, k: edges of tiles and vectors, several blocks of rows, columns and k, few rows, rows 4 KiB apart. */
static const int64_t sizes[][3] = {
    {1, 1, 2},      {1, 5, 7},     {7, 1, 5},      {5, 7, 3},      {1, 64, 64},   {64, 1, 64},
    {33, 65, 129},  {64, 64, 64},  {17, 31, 13},   {100, 3, 200},  {3, 100, 77},  {63, 130, 67},
    {257, 40, 91},  {2, 2, 515},   {2, 70, 1500},  {30, 100, 400}, {1, 300, 900}, {470, 33, 400},
    {20, 300, 400}, {50, 160, 50}, {15, 65, 1024}, {40, 400, 390},
};

static void halves_have_the_bits_of_the_wide_product(void **state)
{
    (void)state;
    static const layout layouts[] = {ROW_MAJOR, COLUMN_MAJOR, SPACED};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t how = 0; how < 9; how++)
            for (unsigned halves = 1; halves < 8; halves++)
                for (int set = TOW__GEMM_PLAIN; set <= TOW__GEMM_AVX512; set++)
                    if ((s + how + 2 * halves + (size_t)set) % 6 == 0)
                        check_product((s + how + halves) % 2 ? TOW_BF16 : TOW_F16, sizes[s], layouts[how % 3],
                                      layouts[how / 3], halves, set);
}

/* Parts of numbers that are zeros are left out. Numbers of all sizes, which need powers of two if they are bf16. */
static void the_matrix_unit_has_the_bits_of_the_wide_product(void **state)
{
    (void)state;
    static const layout layouts[] = {ROW_MAJOR, COLUMN_MAJOR, SPACED};
    const tow__gemm_choice unit = {.engine = &tow__gemm_amx, .matrix_unit = true};
    if (!tow__gemm_amx_usable()) skip();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t how = 0; how < 9; how++)
            for (unsigned halves = 1; halves < 16; halves++) {
                if ((halves & OTHER_B) && (halves & (HALF_A | HALF_B)) != (HALF_A | HALF_B)) continue;
                if ((s + how + 2 * halves) % 11 == 0)
                    check_product_by((s + how + halves) % 2 ? TOW_BF16 : TOW_F16, sizes[s], layouts[how % 3],
                                     layouts[how / 3], halves, &unit);
            }
}

/* One to four rows and a B of 16 bits, which is read as it is stored: along its rows with columns that fill no panel,
 * no block of sums or several, and along its columns with pairs and words of k that are not whole. */
static void few_rows_have_the_bits_of_the_wide_product(void **state)
{
    (void)state;
    static const int64_t columns[] = {3, 32, 47, 131, 1030}, depths[] = {2, 9, 16, 31, 33, 406};
    static const unsigned halves[] = {HALF_B, HALF_A | HALF_B, HALF_B | HALF_C};
    unsigned turn = 0;
    for (int64_t rows = 1; rows <= 4; rows++)
        for (size_t j = 0; j < sizeof columns / sizeof *columns; j++)
            for (size_t k = 0; k < sizeof depths / sizeof *depths; k++)
                for (int set = TOW__GEMM_PLAIN; set <= TOW__GEMM_AVX512; set++, turn++) {
                    const int64_t size[] = {rows, columns[j], depths[k]};
                    const tow_dtype half = (turn / 3 + (unsigned)rows) % 2 ? TOW_BF16 : TOW_F16;
                    check_product(half, size, ROW_MAJOR, ROW_MAJOR, halves[turn % 7 % 3], set);
                    check_product(half, size, turn % 2 ? ROW_MAJOR : COLUMN_MAJOR, COLUMN_MAJOR, halves[turn % 5 % 3],
                                  set);
                }
    const int64_t long_row[] = {1, 4160, 390};
    check_product(TOW_BF16, long_row, ROW_MAJOR, ROW_MAJOR, HALF_B, TOW__GEMM_AVX2);
    check_product(TOW_F16, long_row, ROW_MAJOR, ROW_MAJOR, HALF_B, TOW__GEMM_AVX512);
    release_all();
}

/* All numbers of f32 that begin with these 16 bits and end in some others are rounded as convert rounds them. */
static void results_are_rounded_as_convert_does(void **state)
{
    (void)state;
    enum {
        N = 1 << 12
    };
    static const uint32_t ends[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x0FFF, 0x1000, 0x1001, 0x3000};
    float *numbers = take(N * sizeof(float));
    uint16_t *got = take(N * sizeof *got), *want = take(N * sizeof *want);
    for (int set = TOW__GEMM_PLAIN; set <= TOW__GEMM_AVX512; set++) {
        for (int half = 0; half < 2; half++) {
            for (uint32_t i = 0; i < 160; i++) {
                const tow_dtype dtype = half ? TOW_F16 : TOW_BF16;
                tow__gemm_choice choice = {.portable = true, .set = set};
                for (uint32_t j = 0; j < N; j++) {
                    const uint32_t bits = (i % 16 * N + j) << 16 | ends[i / 16];
                    memcpy(&numbers[j], &bits, sizeof bits);
                    if (!isfinite(numbers[j])) numbers[j] = i % 3 ? numbers[j] : 1; /* whose sign no rule keeps */
                }
                float one = 1;
                tow__gemm g = {.dtype = TOW_F32,
                               .c_dtype = dtype,
                               .m = 1,
                               .n = N,
                               .k = 1,
                               .a = &one,
                               .a_row = 1,
                               .a_column = 1,
                               .b = numbers,
                               .b_row = N,
                               .b_column = 1,
                               .c = got,
                               .ldc = N};
                g.choice = &choice;
                tow__gemm_run(&g, NULL);
                for (uint32_t j = 0; j < N; j++) numbers[j] = fmaf(one, numbers[j], 0);
                tow__convert_elements(dtype, want, TOW_F32, numbers, N);
                assert_memory_equal(got, want, N * sizeof *want);
            }
        }
    }
    release_all();
}

/* dot_general: operands of 16 bits against a product of f32, with batch axes and free axes that do not merge. */
static void check_dot(tow_dtype half, tow_dtype result, layout how, int threads)
{
    const tow__dot_params params = {
        .lhs_contract = {1, {2}}, .rhs_contract = {1, {1}}, .lhs_batch = {1, {0}}, .rhs_batch = {1, {0}}};
    tow__buffer x = random_operand(half, SHAPE(3, 40, 70), how), y = random_operand(half, SHAPE(3, 70, 50), how);
    tow__buffer in[] = {x, y}, wide_in[] = {widened(&x), widened(&y)};
    tow__buffer wide = make(TOW_F32, SHAPE(3, 40, 50), ROW_MAJOR), got = make(result, SHAPE(3, 40, 50), ROW_MAJOR);
    tow__buffer want = make(result, SHAPE(3, 40, 50), ROW_MAJOR);
    run_more(tow__kernel_find("dot_general", TOW_F32), 2, wide_in, 1, &wide, &params, NULL, 1);
    tow__convert_elements(result, want.data, TOW_F32, wide.data, count_of(&wide));
    run_more(tow__kernel_find("dot_general", half), 2, in, 1, &got, &params, NULL, threads);
    assert_equal_bits(&got, &want, "dot_general");
    release_all();
}

static void dot_general_takes_halves(void **state)
{
    (void)state;
    static const layout layouts[] = {ROW_MAJOR, COLUMN_MAJOR, SPACED};
    for (int how = 0; how < 3; how++)
        for (int threads = 1; threads < 3; threads++)
            for (int type = 0; type < 4; type++) {
                const tow_dtype half = type % 2 ? TOW_BF16 : TOW_F16;
                check_dot(half, type / 2 ? TOW_F32 : half, layouts[how], threads);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(halves_have_the_bits_of_the_wide_product),
                                       cmocka_unit_test(the_matrix_unit_has_the_bits_of_the_wide_product),
                                       cmocka_unit_test(few_rows_have_the_bits_of_the_wide_product),
                                       cmocka_unit_test(results_are_rounded_as_convert_does),
                                       cmocka_unit_test(dot_general_takes_halves)};
    setenv("TOW_ENGINE", "own", 1); /* units for bf16 have other bits (test_kernels_gemm_bf16.c) */
    return cmocka_run_group_tests_name("kernels_gemm_halves", tests, NULL, NULL);
}

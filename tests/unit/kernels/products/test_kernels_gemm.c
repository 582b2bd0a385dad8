/* Matrix products: every engine and dot_general against loops in double precision; bits for 1 and 2 threads and for
 * splits of rows and columns, and for all instruction sets of the own kernel.
 * Tests dot.c, gemm*.c, ragged.c, sum_dots*.c. */
#include "src/kernels/products/gemm_own.h"
#include "tests/unit/support/gemm_products.h"

#include "src/kernels/products/gemm.h"
#include "src/kernels/tables.h"

/* Every engine, the own one with every instruction set; those that this build lacks are NULL. */
typedef struct candidate {
    const char *engine;
    tow__gemm_set set;
} candidate;
static const candidate candidates[] = {
    {"reference", TOW__GEMM_AUTO}, {"own", TOW__GEMM_PLAIN}, {"own", TOW__GEMM_AVX2}, {"own", TOW__GEMM_AVX512},
    {"blis", TOW__GEMM_AUTO},      {"xsmm", TOW__GEMM_AUTO}, {"amx", TOW__GEMM_AUTO},
};
enum {
    CANDIDATES = sizeof candidates / sizeof candidates[0]
};

/* Makes g run on a candidate: NULL if it cannot. */
static const tow__gemm_engine *prepare_candidate(int index, tow__gemm *g, tow__gemm_choice *choice)
{
    const tow__gemm_engine *engine = tow__gemm_find(candidates[index].engine);
    *choice =
        (tow__gemm_choice){.engine = engine, .set = (int)candidates[index].set, .matrix_unit = tow__gemm_amx_usable()};
    g->choice = choice;
    if (engine == NULL || !engine->applicable(g)) return NULL;
    return tow__gemm_prepare(g, engine);
}

static const int64_t sizes[][3] = {
    /* m n k */
    {1, 1, 1},    {1, 5, 7},     {7, 1, 5},    {5, 7, 1},    {1, 64, 64},   {64, 1, 64},   {33, 65, 129}, {64, 64, 64},
    {17, 31, 13}, {100, 3, 200}, {3, 100, 77}, {128, 96, 1}, {63, 130, 67}, {257, 40, 91}, {2, 2, 515},
};
enum {
    SIZES = sizeof sizes / sizeof sizes[0]
};

typedef struct problem {
    tow__gemm g;
    tow__buffer a, b, c;
} problem;

/* transposed bits: 1 A, 2 B, 4 A spaced in both directions, 8 B likewise */
static problem make_problem(tow_dtype dtype, const int64_t *size, unsigned transposed)
{
    int64_t m = size[0], n = size[1], k = size[2];
    problem p;
    p.a = random_operand(dtype, SHAPE(m, k), transposed & 4 ? SPACED : transposed & 1 ? COLUMN_MAJOR : ROW_MAJOR);
    p.b = random_operand(dtype, SHAPE(k, n), transposed & 8 ? SPACED : transposed & 2 ? COLUMN_MAJOR : ROW_MAJOR);
    p.c = random_operand(dtype, SHAPE(m, n + 3), ROW_MAJOR);
    p.g = product_of(&p.a, &p.b, &p.c);
    return p;
}

/* Counts how often each element was reported finished. */
typedef struct finished {
    int64_t n, calls;
    unsigned char *times;
} finished;

static void count_finished(void *user, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    finished *f = user;
    assert_true(rows > 0 && columns > 0 && columns <= TOW__GEMM_EPILOGUE_COLUMNS);
    f->calls++;
    for (int64_t i = row; i < row + rows; i++)
        for (int64_t j = column; j < column + columns; j++) f->times[i * f->n + j]++;
}

static void check_product(int index, tow_dtype dtype, const int64_t *size, unsigned transposed, bool accumulate)
{
    problem p = make_problem(dtype, size, transposed);
    tow__gemm_choice choice;
    const tow__gemm_engine *engine = prepare_candidate(index, &p.g, &choice);
    if (engine == NULL) {
        release_all();
        return;
    }
    int64_t m = size[0], n = size[1], k = size[2];
    tow__buffer before = make(dtype, 2, p.c.dims, ROW_MAJOR), two = make(dtype, 2, p.c.dims, ROW_MAJOR);
    size_t bytes = (size_t)count_of(&p.c) * tow_dtype_size(dtype);
    memcpy(before.data, p.c.data, bytes);
    memcpy(two.data, p.c.data, bytes);
    p.g.accumulate = accumulate;
    finished f = {.n = n, .times = take((size_t)(m * n))};
    memset(f.times, 0, (size_t)(m * n));
    p.g.epilogue = count_finished;
    p.g.user = &f;
    p.g.epilogue_operands[0] = before.data; /* fetched, no more */
    tow__gemm_run(&p.g, engine);
    for (int64_t i = 0; i < m * n; i++) assert_int_equal(f.times[i], 1);
    int64_t step = 1 + m * n * k / 100000; /* large products: some elements, and all that lie behind the columns */
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n + 3; j++) {
            if (j < n && (i * n + j) % step != 0) continue;
            double want = j < n && !accumulate ? 0 : get(&before, i * (n + 3) + j), size_of_sum = 4;
            for (int64_t q = 0; q < k && j < n; q++) {
                double term = get(&p.a, i * k + q) * get(&p.b, q * n + j);
                want += term;
                size_of_sum += fabs(term);
            }
            /* the rounding of k additions; behind the columns nothing may change */
            double tolerance = j < n ? epsilon_of(dtype) * size_of_sum * 4 : 0;
            assert_close(get(&p.c, i * (n + 3) + j), want, tolerance, engine->name, i * n + j);
        }
    }
    tow__gemm g = p.g; /* scratch memory and threads change no bits */
    g.c = two.data;
    g.threads = 2;
    g.epilogue = NULL;
    g.scratch = take(tow__gemm_scratch(&g, engine) + 1);
    tow__gemm_run(&g, engine);
    assert_memory_equal(two.data, p.c.data, bytes);
    release_all();
}

static void products(void **state)
{
    (void)state;
    for (int e = 0; e < CANDIDATES; e++)
        for (int s = 0; s < SIZES; s++)
            for (unsigned transposed = 0; transposed < 16; transposed++)
                for (int variant = 0; variant < 4; variant++)
                    if (is_tried((size_t)s + transposed, (size_t)variant))
                        check_product(e, variant & 1 ? TOW_F64 : TOW_F32, sizes[s], transposed, variant & 2);
}

/* A product over nothing is zero: it clears C, or is added to it, after which a zero is positive. */
static void products_over_nothing(void **state)
{
    (void)state;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        float c[] = {-0.0f, 1, -2, 7, 3, -0.0f, -5, 7};
        double d[] = {-0.0, 1, -2, 7, 3, -0.0, -5, 7};
        tow__gemm g = {
            .accumulate = accumulate, .m = 2, .n = 3, .a_row = 1, .a_column = 1, .b_row = 3, .b_column = 1, .ldc = 4};
        g.dtype = TOW_F32, g.c = c;
        tow__gemm_run(&g, NULL);
        g.dtype = TOW_F64, g.c = d;
        tow__gemm_run(&g, NULL);
        const float cleared[] = {0, 0, 0, 7, 0, 0, 0, 7}, kept[] = {0, 1, -2, 7, 3, 0, -5, 7};
        assert_memory_equal(c, accumulate ? kept : cleared, sizeof c);
        for (int i = 0; i < 8; i++) assert_true(d[i] == (double)c[i] && !signbit(d[i]) == !signbit(c[i]));
    }
}

/* A row, or a column, computed alone has the bits that it has in the whole product. */
static void splits_keep_bits(void **state)
{
    (void)state;
    for (int e = 0; e < CANDIDATES; e++) {
        for (int s = 0; s < SIZES; s++) {
            for (unsigned transposed = 0; transposed < 4; transposed++) {
                problem p = make_problem(TOW_F32, sizes[s], transposed);
                tow__gemm_choice choice;
                const tow__gemm_engine *engine = prepare_candidate(e, &p.g, &choice);
                if (engine == NULL || !engine->cuts) {
                    release_all();
                    continue;
                }
                tow__buffer parts = make(TOW_F32, 2, p.c.dims, ROW_MAJOR);
                size_t bytes = (size_t)count_of(&p.c) * sizeof(float);
                memcpy(parts.data, p.c.data, bytes);
                tow__gemm_run(&p.g, engine);
                int64_t m = p.g.m, n = p.g.n, row_cut = m / 3, column_cut = n / 2;
                for (int part = 0; part < 4; part++) {
                    tow__gemm g = p.g;
                    int64_t row = part & 1 ? row_cut : 0, column = part & 2 ? column_cut : 0;
                    g.m = part & 1 ? m - row_cut : row_cut;
                    g.n = part & 2 ? n - column_cut : column_cut;
                    g.a = (const float *)p.g.a + row * g.a_row;
                    g.b = (const float *)p.g.b + column * g.b_column;
                    g.c = (float *)parts.data + row * g.ldc + column;
                    tow__gemm_run(&g, engine);
                }
                assert_memory_equal(parts.data, p.c.data, bytes);
                release_all();
            }
        }
    }
}

/* The definition in gemm.h of the bits of the own kernel, with any instruction set: blocks of k, each a chain of fused
 * multiply-adds, added in order; an accumulated C is added last. Data that are fetched meanwhile, from wherever, change
 * none. */
#define DEFINED_ELEMENT(T, FMA)                                                                                        \
    static T defined_##T(const problem *p, int64_t i, int64_t j)                                                       \
    {                                                                                                                  \
        const T *a = p->a.data, *b = p->b.data;                                                                        \
        int64_t k = p->g.k, blocks = (k + 383) / 384, kc = ((k + blocks - 1) / blocks + 15) / 16 * 16;                 \
        T sum = 0;                                                                                                     \
        for (int64_t first = 0; first < k; first += kc) {                                                              \
            T part = 0;                                                                                                \
            for (int64_t q = first; q < k && q < first + kc; q++)                                                      \
                part = FMA(a[i * p->g.a_row + q * p->g.a_column], b[q * p->g.b_row + j * p->g.b_column], part);        \
            sum = first == 0 ? part : sum + part;                                                                      \
        }                                                                                                              \
        return p->g.accumulate ? ((const T *)p->c.data)[i * p->g.ldc + j] + sum : sum;                                 \
    }
DEFINED_ELEMENT(float, fmaf)
DEFINED_ELEMENT(double, fma)

static double defined_element(const problem *p, int64_t i, int64_t j)
{
    return p->g.dtype == TOW_F64 ? defined_double(p, i, j) : (double)defined_float(p, i, j);
}

/* Columns from .. limit of g, all columns of which lie in g->packed. */
static tow__gemm columns_of(const tow__gemm *g, int64_t from, int64_t limit)
{
    tow__gemm part = *g;
    part.packed_column = from;
    part.n = limit - from;
    const int64_t size = (int64_t)tow_dtype_size(g->dtype);
    part.b = (const char *)g->b + from * g->b_column * size;
    part.c = (char *)g->c + from * size;
    return part;
}

/* B is packed in two pieces and used in two others. False: it is not worth it. */
static bool run_packed(tow__gemm *g)
{
    const tow__gemm_engine *engine = tow__gemm_choose(g);
    const int64_t first = g->n / 64 * TOW__GEMM_PACKED_COLUMNS, cut = g->n / 96 * 2 * TOW__GEMM_PACKED_COLUMNS;
    size_t bytes = tow__gemm_packed(g, engine);
    if (bytes == 0) return false;
    g->packed = take(bytes + 64);
    memset(g->packed, 0xFF, bytes);
    for (int i = 0; i < 2; i++) {
        tow__gemm part = i == 0 ? columns_of(g, 0, first) : columns_of(g, first, g->n);
        tow__gemm_pack(&part, engine);
    }
    for (int i = 0; i < 2; i++) {
        tow__gemm part = i == 0 ? columns_of(g, 0, cut) : columns_of(g, cut, g->n);
        tow__gemm_run(&part, engine);
    }
    return true;
}

/* In parts along k of so many blocks, the last one shorter. */
static void run_parts(const tow__gemm *whole, int64_t blocks)
{
    tow__gemm g = *whole;
    g.kc = tow__gemm_kc(whole->k);
    for (int64_t first = 0; first < whole->k; first += g.k) {
        g.k = whole->k - first < blocks * g.kc ? whole->k - first : blocks * g.kc;
        g.a = (const char *)whole->a + first * g.a_column * (int64_t)tow_dtype_size(g.dtype);
        g.b = (const char *)whole->b + first * g.b_row * (int64_t)tow_dtype_size(g.dtype);
        g.accumulate = first > 0;
        tow__gemm_run(&g, NULL);
    }
}

/* Returns how often B was packed. */
static int check_definition(tow_dtype dtype, const int64_t *size, unsigned transposed, bool accumulate)
{
    int packed = 0;
    problem p = make_problem(dtype, size, transposed);
    p.g.accumulate = accumulate;
    size_t bytes = (size_t)count_of(&p.c) * tow_dtype_size(dtype);
    tow__buffer want = make(dtype, 2, p.c.dims, ROW_MAJOR), got = make(dtype, 2, p.c.dims, ROW_MAJOR);
    memcpy(want.data, p.c.data, bytes);
    for (int64_t i = 0; i < p.g.m; i++)
        for (int64_t j = 0; j < p.g.n; j++) set(&want, i * p.g.ldc + j, defined_element(&p, i, j));
    for (int set = TOW__GEMM_AUTO; set <= TOW__GEMM_AVX512; set++) {
        tow__gemm_choice choice = {.portable = true, .set = set};
        tow__gemm g = p.g;
        memcpy(got.data, p.c.data, bytes);
        g.c = got.data;
        g.choice = &choice;
        const tow__span later[TOW__SPANS] = {{got.data, bytes}, {(const char *)g.b + 3, 1001}, {&later, 1 << 20}};
        g.read_after = set != TOW__GEMM_AUTO ? later : NULL;
        g.scratch = take(tow__gemm_scratch(&g, tow__gemm_choose(&g)) + 1);
        tow__gemm_run(&g, NULL);
        assert_memory_equal(got.data, want.data, bytes);
        for (int64_t blocks = 1; blocks < 3 && !accumulate; blocks++) {
            memcpy(got.data, p.c.data, bytes);
            run_parts(&g, blocks);
            assert_memory_equal(got.data, want.data, bytes);
        }
        memcpy(got.data, p.c.data, bytes);
        if (!run_packed(&g)) continue;
        assert_memory_equal(got.data, want.data, bytes);
        packed++;
    }
    release_all();
    return packed;
}

static void own_bits_are_the_same_everywhere(void **state)
{
    (void)state;
    /* several blocks of k, rows and columns; few rows; rows that are 4 KiB apart */
    static const int64_t more[][3] = {{2, 70, 1500},  {30, 100, 400}, {1, 300, 1000}, {3, 256, 385}, {470, 33, 400},
                                      {20, 300, 400}, {50, 160, 50},  {6, 140, 20},   {15, 65, 1024}};
    int packed = 0;
    for (unsigned transposed = 0; transposed < 12; transposed++) {
        for (int variant = 0; variant < 4; variant++) {
            const tow_dtype dtype = variant / 2 ? TOW_F64 : TOW_F32;
            const bool accumulate = variant % 2;
            for (size_t s = 0; s < SIZES; s++)
                if (is_tried(transposed + s, (size_t)variant))
                    packed += check_definition(dtype, sizes[s], transposed, accumulate);
            for (size_t s = 0; s < sizeof more / sizeof more[0]; s++)
                if (is_tried(transposed + s, (size_t)variant))
                    packed += check_definition(dtype, more[s], transposed, accumulate);
        }
    }
    assert_true(packed > (tries_fewer() ? 10 : 100));
}

static void large_products_do_not_depend_on_threads(void **state)
{
    (void)state;
    static const int64_t large[][3] = {
        {96, 384, 384}, {777, 111, 333}, {64, 512, 700}, {512, 65, 300}, {300, 300, 1000}};
    for (size_t s = 0; s < sizeof large / sizeof large[0]; s++) {
        for (unsigned transposed = 0; transposed < 4; transposed++) {
            problem p = make_problem(TOW_F32, large[s], transposed);
            size_t bytes = (size_t)count_of(&p.c) * sizeof(float);
            void *two = take(bytes);
            memcpy(two, p.c.data, bytes);
            tow__gemm_run(&p.g, NULL);
            p.g.c = two;
            p.g.threads = 2;
            tow__gemm_run(&p.g, NULL);
            assert_memory_equal(two, p.c.data, bytes);
            release_all();
        }
    }
}

/* ---- dot_general ------------------------------------------------------------------------------------------------ */

typedef struct dot_case {
    int x_rank, y_rank;
    int64_t x[4], y[4];
    tow__dot_params p;
} dot_case;

static const dot_case dots[] = {
    {2, 2, {5, 7}, {7, 6}, {{1, {1}}, {1, {0}}, {0}, {0}}},
    {1, 1, {9}, {9}, {{1, {0}}, {1, {0}}, {0}, {0}}},
    {2, 1, {5, 9}, {9}, {{1, {1}}, {1, {0}}, {0}, {0}}},
    {1, 2, {3}, {4, 3}, {{1, {0}}, {1, {1}}, {0}, {0}}},
    {1, 1, {3}, {4}, {{0}, {0}, {0}, {0}}}, /* outer product */
    {3, 2, {4, 5, 6}, {6, 7}, {{1, {2}}, {1, {0}}, {0}, {0}}},
    {3, 3, {4, 5, 6}, {4, 5, 7}, {{2, {0, 1}}, {2, {0, 1}}, {0}, {0}}}, /* weight gradient */
    {3, 3, {4, 5, 6}, {5, 4, 7}, {{2, {1, 0}}, {2, {0, 1}}, {0}, {0}}}, /* contracted axes that do not merge */
    {3, 3, {3, 5, 6}, {3, 6, 4}, {{1, {2}}, {1, {1}}, {1, {0}}, {1, {0}}}},
    {4, 4, {2, 5, 3, 6}, {2, 7, 3, 6}, {{1, {3}}, {1, {3}}, {2, {0, 2}}, {2, {0, 2}}}}, /* attention logits */
    {4, 4, {2, 3, 5, 7}, {2, 7, 3, 6}, {{1, {3}}, {1, {1}}, {2, {0, 1}}, {2, {0, 2}}}}, /* attention values */
    {4, 2, {2, 3, 4, 5}, {4, 6}, {{1, {2}}, {1, {0}}, {0}, {0}}}, /* free axes that do not merge */
    {2, 4, {4, 6}, {2, 3, 4, 17}, {{1, {0}}, {1, {2}}, {0}, {0}}},
    {4, 1, {12, 9, 4, 33}, {4}, {{1, {2}}, {1, {0}}, {0}, {0}}},
    {2, 2, {5, 0}, {0, 6}, {{1, {1}}, {1, {0}}, {0}, {0}}}, /* an empty sum is 0 */
    {2, 2, {0, 4}, {4, 6}, {{1, {1}}, {1, {0}}, {0}, {0}}},
    {3, 3, {0, 5, 6}, {0, 6, 4}, {{1, {2}}, {1, {1}}, {1, {0}}, {1, {0}}}},
    {3, 2, {40, 32, 33}, {33, 70}, {{1, {2}}, {1, {0}}, {0}, {0}}}, /* large enough for several threads */
    {2, 2, {40, 300}, {300, 500}, {{1, {1}}, {1, {0}}, {0}, {0}}},
    {2, 1, {700, 8}, {8}, {{1, {1}}, {1, {0}}, {0}, {0}}}, /* one column */
    {2, 2, {8, 900}, {8, 1}, {{1, {0}}, {1, {0}}, {0}, {0}}},
    {4, 3, {3, 5, 7, 8}, {3, 8, 1}, {{1, {3}}, {1, {1}}, {1, {0}}, {1, {0}}}},
    {4, 4, {2, 40, 2, 64}, {2, 70, 2, 64}, {{1, {3}}, {1, {3}}, {2, {0, 2}}, {2, {0, 2}}}},
};

static bool has(const tow__ints *axes, int axis)
{
    for (int i = 0; i < axes->n; i++)
        if (axes->v[i] == axis) return true;
    return false;
}

static tow__buffer dot_output(const dot_case *c, tow_dtype dtype)
{
    int64_t dims[TOW_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < c->p.lhs_batch.n; i++) dims[rank++] = c->x[c->p.lhs_batch.v[i]];
    for (int i = 0; i < c->x_rank; i++)
        if (!has(&c->p.lhs_batch, i) && !has(&c->p.lhs_contract, i)) dims[rank++] = c->x[i];
    for (int i = 0; i < c->y_rank; i++)
        if (!has(&c->p.rhs_batch, i) && !has(&c->p.rhs_contract, i)) dims[rank++] = c->y[i];
    return make(dtype, rank, dims, ROW_MAJOR);
}

/* Row-major index of an operand whose batch, contracted and free coordinates are given. */
static int64_t operand_index(int rank, const int64_t *dims, const tow__ints *batch, const tow__ints *contract,
                             const int64_t *batch_at, const int64_t *contract_at, const int64_t *free_at)
{
    int64_t index = 0;
    for (int i = 0, f = 0; i < rank; i++) {
        int64_t at = 0;
        bool found = false;
        for (int j = 0; j < batch->n; j++)
            if (batch->v[j] == i) at = batch_at[j], found = true;
        for (int j = 0; j < contract->n; j++)
            if (contract->v[j] == i) at = contract_at[j], found = true;
        if (!found) at = free_at[f++];
        index = index * dims[i] + at;
    }
    return index;
}

static double dot_element(const dot_case *c, const tow__buffer *x, const tow__buffer *y, const tow__buffer *out,
                          int64_t element, double *size_of_sum)
{
    int64_t at[TOW_MAX_RANK], depth = 1;
    for (int i = out->rank - 1; i >= 0; i--) {
        at[i] = element % out->dims[i];
        element /= out->dims[i];
    }
    for (int i = 0; i < c->p.lhs_contract.n; i++) depth *= c->x[c->p.lhs_contract.v[i]];
    int n_batch = c->p.lhs_batch.n, x_free = c->x_rank - n_batch - c->p.lhs_contract.n;
    double sum = 0;
    for (int64_t k = 0; k < depth; k++) {
        int64_t contract_at[TOW_MAX_RANK], rest = k;
        for (int i = c->p.lhs_contract.n - 1; i >= 0; i--) {
            contract_at[i] = rest % c->x[c->p.lhs_contract.v[i]];
            rest /= c->x[c->p.lhs_contract.v[i]];
        }
        double term =
            get(x, operand_index(c->x_rank, c->x, &c->p.lhs_batch, &c->p.lhs_contract, at, contract_at, at + n_batch)) *
            get(y, operand_index(c->y_rank, c->y, &c->p.rhs_batch, &c->p.rhs_contract, at, contract_at,
                                 at + n_batch + x_free));
        sum += term;
        *size_of_sum += fabs(term);
    }
    return sum;
}

static void check_dot(const dot_case *c, tow_dtype dtype, layout x_layout, layout y_layout, const tow__kernel *kernel)
{
    tow__buffer in[2] = {random_operand(dtype, c->x_rank, c->x, x_layout),
                         random_operand(dtype, c->y_rank, c->y, y_layout)};
    tow__buffer out = dot_output(c, dtype);
    run_kernel(kernel, 2, in, 1, &out, &c->p);
    int64_t count = count_of(&out), step = 1 + count / 5000;
    for (int64_t i = 0; i < count; i += step) {
        double size_of_sum = 0, want = dot_element(c, &in[0], &in[1], &out, i, &size_of_sum);
        assert_close(get(&out, i), want, size_of_sum * epsilon_of(dtype) * 4, "dot_general", i);
    }
    release_all();
}

#define DIMS(...)                                                                                                      \
    (const int64_t[]) { __VA_ARGS__ }

/* Products of one column are computed as one row. */
static void columns_have_the_bits_they_have_among_others(void **state)
{
    (void)state;
    static const int64_t cases[][2] = {{1, 5}, {2, 33}, {17, 300}, {100, 1}, {3, 1500}, {700, 800}};
    const tow__kernel *kernel = tow__kernel_find("dot_general", TOW_F32);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0] * 4; c++) {
        const int64_t m = cases[c / 4][0], k = cases[c / 4][1];
        const int x_axis = c & 1 ? 0 : 1, y_axis = c & 2 ? 1 : 0;
        const tow__dot_params p = {.lhs_contract = {1, {x_axis}}, .rhs_contract = {1, {y_axis}}};
        tow__buffer in[2] = {random_operand(TOW_F32, 2, x_axis ? DIMS(m, k) : DIMS(k, m), ROW_MAJOR),
                             random_operand(TOW_F32, 2, y_axis ? DIMS(3, k) : DIMS(k, 3), ROW_MAJOR)};
        tow__buffer all = make(TOW_F32, SHAPE(m, 3), ROW_MAJOR), alone = make(TOW_F32, SHAPE(m, 1), ROW_MAJOR);
        run_kernel(kernel, 2, in, 1, &all, &p);
        tow__buffer x[2] = {in[0], in[1]};
        x[1].dims[1 - y_axis] = 1;
        for (int column = 0; column < 3; column++) {
            x[1].data = (float *)in[1].data + column * in[1].strides[1 - y_axis];
            run_kernel(kernel, 2, x, 1, &alone, &p);
            for (int64_t i = 0; i < m; i++)
                assert_memory_equal((float *)all.data + i * 3 + column, (float *)alone.data + i, sizeof(float));
        }
        release_all();
    }
}

static void dot_general(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof dots / sizeof dots[0]; i++)
        for (int x_layout = 0; x_layout < LAYOUTS; x_layout++)
            for (int y_layout = 0; y_layout < LAYOUTS; y_layout++) {
                tow_dtype dtype = (x_layout + y_layout) % 2 ? TOW_F64 : TOW_F32;
                check_dot(&dots[i], dtype, (layout)x_layout, (layout)y_layout, tow__kernel_find("dot_general", dtype));
            }
    for (size_t i = 0; i + 2 < sizeof dots / sizeof dots[0]; i++)
        check_dot(&dots[i], TOW_F32, SPACED, REVERSED, tow__kernel_reference("dot_general", TOW_F32));
}

/* Strides are a matter of the plan: an operand has the same result wherever it lies. */
static void layouts_keep_bits(void **state)
{
    (void)state;
    const tow__kernel *kernel = tow__kernel_find("dot_general", TOW_F32);
    for (size_t i = 0; i < sizeof dots / sizeof dots[0]; i++) {
        tow__buffer first = {0};
        for (int how = 0; how < LAYOUTS; how++) {
            if (how == REPEATED) continue;
            random_state = 7;
            tow__buffer in[2] = {random_operand(TOW_F32, dots[i].x_rank, dots[i].x, (layout)how),
                                 random_operand(TOW_F32, dots[i].y_rank, dots[i].y, (layout)how)};
            tow__buffer out = dot_output(&dots[i], TOW_F32);
            run_kernel(kernel, 2, in, 1, &out, &dots[i].p);
            if (how == 0) first = out;
            assert_memory_equal(out.data, first.data, (size_t)count_of(&out) * sizeof(float));
        }
        release_all();
    }
}

/* ---- the choice of an engine ------------------------------------------------------------------------------------- */

static void assert_refused(const tow_context_options *options, const char *part)
{
    tow_context *ctx = NULL;
    char why[512], small[8];
    size_t length = tow_context_options_check(options, why, sizeof why);
    assert_int_equal(length, strlen(why));
    assert_int_equal(tow_context_options_check(options, small, sizeof small), length);
    assert_non_null(strstr(why, part));
    assert_int_equal(tow_context_create(options, &ctx), TOW_INVALID_ARGUMENT);
    assert_string_equal(tow_context_error(ctx), why);
    tow_context_free(ctx);
}

static void assert_described(const tow_context_options *options, const char *part)
{
    tow_context *ctx = NULL;
    char why[8], text[1024];
    assert_int_equal(tow_context_options_check(options, why, sizeof why), 0);
    assert_string_equal(why, "");
    assert_int_equal(tow_context_create(options, &ctx), TOW_OK);
    tow_context_describe(ctx, text, sizeof text);
    if (strstr(text, part) == NULL) print_error("no \"%s\" in: %s", part, text);
    assert_non_null(strstr(text, part));
    tow_context_free(ctx);
}

static void contexts_choose_engines(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("TOW_ENGINE"), 0);
    assert_refused(&TOW_CONTEXT_OPTIONS(.engine = "fast"), "found \"fast\"");
    assert_refused(&TOW_CONTEXT_OPTIONS(.engine = ""), "option engine");
    assert_refused(&TOW_CONTEXT_OPTIONS(.engine = "reference", .portable_bits = true), "portable_bits");
    static const char *const wrong[] = {"-",        "-fast",    "-reference", "-own,", "-own,amx",
                                        "-own-amx", "own,-amx", "-ow",        "-owner"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refused(&TOW_CONTEXT_OPTIONS(.engine = wrong[i]), wrong[i]);
    assert_described(&TOW_CONTEXT_OPTIONS(.engine = "-amx"), "f32 by own kernel");
    const char *left_out = tow__gemm_find("blis") != NULL ? "-amx,-own,-blis" : "-amx,-own";
    assert_described(&TOW_CONTEXT_OPTIONS(.engine = left_out), "f32 by reference, f64 by reference");
    if (tow__gemm_find("blis") != NULL) assert_described(&TOW_CONTEXT_OPTIONS(.engine = "-own,-amx"), "f32 by blis");
    assert_described(&TOW_CONTEXT_OPTIONS(.engine = "-amx"), "; without those that the caller leaves out");
    assert_described(&TOW_CONTEXT_OPTIONS(.engine = "reference"), "f32 by reference, f64 by reference");
    assert_described(&TOW_CONTEXT_OPTIONS(.portable_bits = true), "f32 by own kernel");
    assert_described(&TOW_CONTEXT_OPTIONS(.portable_bits = true), "f64 by own kernel");
    assert_described(&TOW_CONTEXT_OPTIONS(.portable_bits = true), "bf16 widened to f32 by own kernel");
    if (tow__gemm_amx_usable()) assert_described(NULL, "bf16 as it is stored by matrix unit");
    assert_described(NULL, "own kernel");
    assert_described(&TOW_CONTEXT_OPTIONS(.engine = "amx"),
                     tow__gemm_amx_usable() ? "AMX, f64 by" : "the chosen engine cannot run here");
    assert_int_equal(setenv("TOW_ENGINE", "quick", 1), 0);
    assert_refused(NULL, "TOW_ENGINE: expected an engine of this build, one of \"amx\", \"avx512_bf16\", \"own\"");
    assert_described(&TOW_CONTEXT_OPTIONS(.engine = "own"), "f32 by own kernel");
    assert_described(&TOW_CONTEXT_OPTIONS(.portable_bits = true), "bits are portable");
    assert_int_equal(setenv("TOW_ENGINE", "reference", 1), 0);
    assert_described(NULL, "f32 by reference");
    assert_int_equal(unsetenv("TOW_ENGINE"), 0);
}

/* dot_general computes with the engine that the context of its team asks for. */
static void programs_use_the_chosen_engine(void **state)
{
    (void)state;
    const tow__kernel *kernel = tow__kernel_find("dot_general", TOW_F32);
    const dot_case *c = &dots[0];
    tow__buffer in[2] = {random_operand(TOW_F32, c->x_rank, c->x, ROW_MAJOR),
                         random_operand(TOW_F32, c->y_rank, c->y, ROW_MAJOR)};
    tow__gemm g = {.dtype = TOW_F32, .threads = 1, .m = 5, .n = 6, .k = 7, .a = in[0].data, .b = in[1].data, .ldc = 6};
    g.a_row = 7, g.a_column = 1, g.b_row = 6, g.b_column = 1;
    int differing = 0;
    for (int e = 0; tow__gemm_at(e) != NULL; e++) {
        tow__buffer out = dot_output(c, TOW_F32), want = dot_output(c, TOW_F32);
        tow__gemm_choice choice = {.engine = tow__gemm_at(e), .matrix_unit = tow__gemm_amx_usable()};
        tow__team team = {.threads = 1, .products = &choice};
        g.choice = &choice;
        if (!tow__gemm_at(e)->applicable(&g)) continue;
        tow__kernel_call call = {.n_in = 2, .n_out = 1, .in = in, .out = &out, .params = &c->p, .team = &team};
        call.scratch = take(kernel->scratch(&call) + 1);
        kernel->run(&call);
        g.c = want.data;
        tow__gemm_run(&g, tow__gemm_at(e));
        assert_memory_equal(out.data, want.data, 5 * 6 * sizeof(float));
        tow__gemm_run(&g, &tow__gemm_own);
        differing += memcmp(out.data, want.data, 5 * 6 * sizeof(float)) != 0;
    }
    assert_true(differing > 0); /* the plain C engine rounds products, so its bits tell it apart */
    release_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(products_over_nothing),
        cmocka_unit_test(splits_keep_bits),
        cmocka_unit_test(own_bits_are_the_same_everywhere),
        cmocka_unit_test(large_products_do_not_depend_on_threads),
        cmocka_unit_test(columns_have_the_bits_they_have_among_others),
        cmocka_unit_test(dot_general),
        cmocka_unit_test(layouts_keep_bits),
        cmocka_unit_test(contexts_choose_engines),
        cmocka_unit_test(programs_use_the_chosen_engine),
    };
    return cmocka_run_group_tests_name("matrix products", tests, NULL, NULL);
}

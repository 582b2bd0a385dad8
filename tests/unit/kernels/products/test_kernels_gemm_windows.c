/* Products of windows of one A: their bits are those of the own kernel on each window by itself, for every instruction
 * set and layout of both operands; positions are laid out in any order, and nothing is written behind the last one.
 * Tests gemm_own.c. */
#include "src/kernels/products/gemm_own.h"
#include "tests/unit/support/gemm_products.h"

enum {
    MOST_WINDOWS = 6,
    BEHIND = 64 /* bytes after the strips that nothing may write */
};

typedef struct windows_case {
    int64_t m, n, k, positions;
    int64_t at[MOST_WINDOWS], count; /* where windows begin */
    bool joined;                     /* each C begins where the one before it ends */
} windows_case;

static const windows_case cases[] = {
    {64, 64, 70, 100, {0, 1, 2, 30, 29, 28}, 6, false},
    {29, 33, 17, 40, {3, 23, 0}, 3, false},
    {13, 16, 400, 500, {100, 0, 7}, 3, false}, /* two blocks of k */
    {1, 40, 9, 11, {0, 1, 2}, 3, true},
    {1, 17, 20, 43, {0, 1, 2, 3, 4, 9}, 6, true},
    {2, 8, 33, 40, {0, 1, 2, 4, 5, 6}, 6, true},
    {3, 100, 12, 31, {19, 1, 2, 3}, 4, true},
    {6, 1, 5, 9, {4, 0}, 2, true},
    {1, 1, 1, 1, {0}, 1, false},
};

/* The strips of a [m, positions]: the middle first, then the beginning, the last position alone. `from` and below `to`
 * they are zeros. */
static void lay(const tow__gemm_strips *s, const tow__buffer *a, int64_t from, int64_t to)
{
    const int64_t ends[][2] = {{to, s->positions - 1}, {0, from}, {from, to}, {s->positions - 1, s->positions}};
    for (int i = 0; i < 4; i++) {
        const int64_t first = ends[i][0], count = ends[i][1] - first;
        const char *at = (const char *)a->data + first * a->strides[1] * (int64_t)tow_dtype_size(a->dtype);
        tow__gemm_lay_strips(s, first, count, i == 2 ? NULL : at, a->strides[0], a->strides[1]);
    }
}

static void lay_all_panels(const tow__gemm_panels *s, const tow__buffer *b)
{
    const int64_t half = s->k / 2, size = (int64_t)tow_dtype_size(b->dtype);
    tow__gemm_lay_panels(s, half, s->k - half, (const char *)b->data + half * b->strides[0] * size, b->strides[0],
                         b->strides[1]);
    tow__gemm_lay_panels(s, 0, half, b->data, b->strides[0], b->strides[1]);
}

/* The windows, each as a product of its own. */
static void run_alone(const windows_case *t, const tow__buffer *a, const tow__buffer *b, const tow__gemm_windows *w,
                      const tow__gemm_choice *choice)
{
    for (int64_t i = 0; i < t->count; i++) {
        tow__gemm g = product_of(a, b, b);
        g.k = t->k, g.kc = w->kc, g.ldc = w->ldc, g.accumulate = w->adds, g.choice = choice;
        g.a = (const char *)a->data + t->at[i] * a->strides[1] * (int64_t)tow_dtype_size(a->dtype);
        g.c = w->windows[i].c;
        tow__gemm_run(&g, &tow__gemm_own);
    }
}

/* Windows whose C are rows of `c`, joined or one after the other with gaps. */
static void place_windows(const windows_case *t, const tow__buffer *c, tow__gemm_window *windows)
{
    const int64_t rows = t->joined ? t->m : t->m + 1, size = (int64_t)tow_dtype_size(c->dtype);
    for (int64_t i = 0; i < t->count; i++) {
        windows[i].first = t->at[i];
        windows[i].c = (char *)c->data + i * rows * c->dims[1] * size;
    }
}

static void check_case(const windows_case *t, tow_dtype dtype, layout a_layout, layout b_layout, bool adds)
{
    const tow__buffer a = random_operand(dtype, SHAPE(t->m, t->positions), a_layout);
    const tow__buffer b = random_operand(dtype, SHAPE(t->k, t->n), b_layout);
    const tow__buffer c = random_operand(dtype, SHAPE(t->count * (t->m + 1), t->n + 3), ROW_MAJOR);
    const size_t bytes = (size_t)count_of(&c) * tow_dtype_size(dtype);
    const tow__buffer want = make(dtype, 2, c.dims, ROW_MAJOR), got = make(dtype, 2, c.dims, ROW_MAJOR);
    const size_t strip_bytes = (size_t)(t->m * t->positions) * tow_dtype_size(dtype);
    const int64_t columns = tow__ceil_div(t->n, TOW__GEMM_PACKED_COLUMNS) * TOW__GEMM_PACKED_COLUMNS;
    const int64_t from = t->positions / 3, to = tow__min(from + 2, t->positions - 1);
    tow__gemm_window windows[MOST_WINDOWS];
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t p = from; p < to; p++) set(&a, i * t->positions + p, 0);
    for (int isa = TOW__GEMM_AUTO; isa <= TOW__GEMM_AVX512; isa++) {
        const tow__gemm_choice choice = {.set = isa};
        const tow__gemm_strips strips = {dtype, (tow_dtype)0, t->m, t->positions, take(strip_bytes + BEHIND), &choice};
        const tow__gemm_panels panels = {
            dtype, (tow_dtype)0, t->n, t->k, take((size_t)(columns * t->k) * tow_dtype_size(dtype)), &choice};
        lay(&strips, &a, from, to);
        lay_all_panels(&panels, &b);
        for (size_t i = 0; i < BEHIND; i++) assert_int_equal(((unsigned char *)strips.data)[strip_bytes + i], 0xA5);
        tow__gemm_windows w = {&strips, &panels, tow__gemm_kc(t->k), t->n + 3, windows, t->count, adds};
        memcpy(want.data, c.data, bytes);
        memcpy(got.data, c.data, bytes);
        place_windows(t, &want, windows);
        run_alone(t, &a, &b, &w, &choice);
        place_windows(t, &got, windows);
        tow__gemm_run_windows(&w);
        assert_memory_equal(got.data, want.data, bytes);
    }
    release_all();
}

static void windows_have_the_bits_of_products(void **state)
{
    (void)state;
    static const layout layouts[] = {ROW_MAJOR, COLUMN_MAJOR, SPACED};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int how = 0; how < 18; how++)
            check_case(&cases[i], how % 2 ? TOW_F64 : TOW_F32, layouts[how / 2 % 3], layouts[how / 6],
                       (i + (size_t)how) % 3 > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(windows_have_the_bits_of_products)};
    return cmocka_run_group_tests_name("kernels_gemm_windows", tests, NULL, NULL);
}

/* Every engine of quantized_dot against the plain twin, bit by bit: all that this processor has, and the loops for VNNI
 * with its instruction emulated; over the edges of panels and of groups of outputs, and any number of threads.
 * Tests kernels/quantized/quantized_dot.c, kernels/quantized/quantized_dot_avx2.c,
 * kernels/quantized/quantized_dot_avx512_vnni.c, kernels/quantized/quantized_dot_avx_vnni.c,
 * kernels/quantized/quantized_dot_vnni_emulated.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "src/base/base.h"
#include "src/kernels/quantized/quantized_dot.h"
#include "tests/unit/support/plain_context.h"

typedef struct shape {
    int64_t rows, n, blocks;
} shape;

static const tow_dtype types[] = {TOW_Q8_0, TOW_Q4_0, TOW_Q4_K, TOW_Q6_K};
enum {
    TYPES = sizeof types / sizeof *types
};

static uint32_t state_of_random = 35;
static uint32_t draw(void) { return (state_of_random = state_of_random * 1664525u + 1013904223u) >> 8; }

static tow__buffer matrix(void *data, tow_dtype dtype, int64_t rows, int64_t columns)
{
    return (tow__buffer){data, dtype, 2, {rows, columns}, {columns, 1}};
}

/* Numbers of all sizes, blocks of zeros and of tiny numbers among them. */
static float *draw_x(const shape *s, tow_dtype dtype)
{
    const int64_t groups = s->rows * s->blocks * tow_dtype_numbers(dtype) / TOW__BLOCK_NUMBERS;
    float *x = malloc((size_t)(groups * TOW__BLOCK_NUMBERS + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t b = 0; b < groups; b++) {
        static const float sizes[] = {1, 1, 1, 1e-3F, 1e4F, 0, 1e-38F};
        const float size = sizes[draw() % 7];
        for (int j = 0; j < TOW__BLOCK_NUMBERS; j++)
            x[b * TOW__BLOCK_NUMBERS + j] = size * ((float)(draw() & 0xFFFF) / 32768 - 1);
    }
    return x;
}

/* Any bytes, but for scales, which are finite. */
static char *draw_w(const shape *s, tow_dtype dtype)
{
    const size_t size = tow_dtype_size(dtype), bytes = (size_t)(s->n * s->blocks) * size;
    char *w = malloc(bytes + 1);
    assert_non_null(w);
    for (size_t i = 0; i < bytes; i++) w[i] = (char)draw();
    for (size_t i = 0; i < bytes; i += size)
        for (size_t k = 0; k < (dtype == TOW_Q4_K ? 2 : 1); k++) {
            const uint16_t scale = (uint16_t)(draw() & 0xBBFF);
            memcpy(w + i + (dtype == TOW_Q6_K ? 208 : 2 * k), &scale, sizeof scale);
        }
    return w;
}

static void run(const tow__quantized_engine *engine, const tow__kernel *kernel, int threads, const tow__buffer in[2],
                tow__buffer *out)
{
    tow__team team;
    OK(tow__team_create(ctx, threads, &team));
    tow__kernel_call call = {.n_in = 2, .n_out = 1, .in = in, .out = out, .team = &team};
    const size_t bytes = kernel->scratch ? kernel->scratch(&call) : 0;
    if (posix_memalign(&call.scratch, 64, bytes + 64) != 0) fail();
    memset(call.scratch, 0x7F, bytes);
    memset((char *)call.scratch + bytes, 0x55, 64);
    if (engine)
        tow__quantized_dot_on(engine, &call);
    else
        kernel->run(&call);
    for (int i = 0; i < 64; i++) assert_int_equal(((char *)call.scratch)[bytes + (size_t)i], 0x55);
    free(call.scratch);
}

static void check_shape(const shape *s, tow_dtype dtype, const tow__quantized_engine *const *engines, size_t n)
{
    float *x = draw_x(s, dtype);
    char *w = draw_w(s, dtype);
    const size_t count = (size_t)(s->rows * s->n);
    float *expected = malloc((count + 1) * sizeof *expected), *found = malloc((count + 1) * sizeof *found);
    assert_true(expected && found);
    const tow__buffer in[2] = {matrix(x, TOW_F32, s->rows, s->blocks * tow_dtype_numbers(dtype)),
                               matrix(w, dtype, s->n, s->blocks)};
    tow__buffer out = matrix(expected, TOW_F32, s->rows, s->n);
    run(NULL, tow__kernel_reference("quantized_dot", TOW_F32), 1, in, &out);
    out.data = found;
    for (size_t e = 0; e < n; e++)
        for (int threads = 1; threads <= 3; threads += 2) {
            memset(found, 0xFF, (count + 1) * sizeof *found);
            run(engines[e], tow__kernel_find("quantized_dot", TOW_F32), threads, in, &out);
            if (memcmp(found, expected, count * sizeof *found) != 0)
                fail_msg("%s, %s: %d rows, %d outputs, %d blocks, %d threads: other bits", engines[e]->name,
                         tow_dtype_name(dtype), (int)s->rows, (int)s->n, (int)s->blocks, threads);
            assert_int_equal(((unsigned char *)(found + count))[0], 0xFF);
        }
    free(x), free(w), free(expected), free(found);
}

/* All that this processor has. */
static size_t find_engines(const tow__quantized_engine *engines[8])
{
    size_t n = 0;
    for (size_t i = 0; i < tow__quantized_engine_count; i++)
        if (tow__quantized_engines[i]->runs()) engines[n++] = tow__quantized_engines[i];
#if defined(__x86_64__)
    if (tow__quantized_vnni_emulated.runs()) engines[n++] = &tow__quantized_vnni_emulated;
#endif
    return n;
}

static void engines_have_the_same_bits(void **state)
{
    (void)state;
    static const shape shapes[] = {{1, 1, 1},  {1, 7, 5},    {1, 8, 2},  {1, 33, 9},  {2, 24, 3},  {3, 50, 33},
                                   {4, 16, 1}, {4, 8, 32},   {5, 15, 2}, {6, 17, 65}, {8, 32, 31}, {9, 100, 3},
                                   {40, 5, 4}, {1, 700, 40}, {7, 0, 3},  {0, 7, 3},   {5, 20, 0},  {1, 20, 0}};
    const tow__quantized_engine *engines[8];
    const size_t n = find_engines(engines);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int k = 0; k < TYPES; k++) {
            shape s = shapes[i];
            if (k >= 2) s.blocks = (s.blocks + 7) / 8; /* about as many numbers */
            check_shape(&s, types[k], engines, n);
        }
}

/* A block of numbers that are all the largest or all the smallest; gives them. */
static int fill_block(tow_dtype dtype, bool largest, char *block)
{
    const uint16_t one = 0x3C00;
    const size_t size = tow_dtype_size(dtype);
    memset(block, dtype == TOW_Q8_0 ? (largest ? 127 : -128) : largest ? -1 : 0, size);
    memcpy(block + (dtype == TOW_Q6_K ? 208 : 0), &one, sizeof one);
    if (dtype == TOW_Q8_0) return largest ? 127 : -128;
    if (dtype == TOW_Q4_0) return largest ? 7 : -8;
    if (dtype == TOW_Q4_K) { /* levels of 63 */
        memcpy(block + 2, &one, sizeof one);
        memset(block + 4, -1, 12);
        return largest ? 63 * 15 - 63 : -63;
    }
    memset(block + 192, largest ? 127 : -128, 16);
    return largest ? 127 * 31 : 128 * 32;
}

/* The largest sums that there are: they do not overflow. */
static void extremes_fit(void **state)
{
    (void)state;
    enum {
        ROWS = 7,
        OUT = 16,
        MOST = 256
    };
    static float x[ROWS * MOST], y[ROWS][OUT];
    static _Alignas(2) char w[OUT * 256];
    const tow__quantized_engine *engines[8];
    const size_t n = find_engines(engines);
    for (int k = 0; k < TYPES; k++) {
        const int numbers = tow_dtype_numbers(types[k]), size = (int)tow_dtype_size(types[k]);
        int value[2];
        for (int i = 0; i < ROWS * numbers; i++) x[i] = i / numbers % 2 ? 127 : -127;
        for (int i = 0; i < OUT; i++) value[i % 2] = fill_block(types[k], i % 2 == 0, w + i * size);
        for (size_t e = 0; e < n; e++)
            for (int rows = 1; rows <= ROWS; rows += 3) {
                const tow__buffer in[2] = {matrix(x, TOW_F32, rows, numbers), matrix(w, types[k], OUT, 1)};
                tow__buffer out = matrix(y, TOW_F32, rows, OUT);
                run(engines[e], tow__kernel_find("quantized_dot", TOW_F32), 1, in, &out);
                for (int r = 0; r < rows; r++)
                    for (int i = 0; i < OUT; i++) {
                        const double expected = (r % 2 ? 127.0 : -127.0) * numbers * value[i % 2];
                        assert_true(fabs((double)y[r][i] - expected) <= 0x1p-23 * fabs(expected) * 16);
                    }
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_have_the_same_bits),
        cmocka_unit_test(extremes_fit),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

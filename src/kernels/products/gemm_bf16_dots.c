/* Products of stored bf16 by AVX512_BF16 (gemm_bf16.h): VDPBF16PS on tiles of up to 11 rows and two vectors. */
#include "src/kernels/products/gemm_bf16.h"

#ifdef TOW__BF16_UNITS
#include <cpuid.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512bf16,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))),        \
                             apply_to = function)
#else
#pragma GCC target("avx512bf16,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#include <immintrin.h>

#define ROUNDS_BY_INSTRUCTION
#include "src/kernels/products/gemm_bf16_avx512.inc"

#define RUN    run_dots
#define PACK_B pack_dots
#include "src/kernels/products/gemm_bf16.inc"

static void begin_unit(void) {}
static void end_unit(void) {}

enum {
    ROWS = 11 /* of a tile: 22 sums, two vectors of B, and pairs of A, which instructions read as they are */
};

TOW__INLINE __m512bh pairs_of(const uint16_t *x) { return (__m512bh)_mm512_loadu_si512(x); }

TOW__INLINE __m512bh every(const uint16_t *pair)
{
    int32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return (__m512bh)_mm512_set1_epi32(bits);
}

TOW__INLINE void multiply_rows(const int rows, const uint16_t *a, int64_t pitch, const uint16_t *b, int64_t pairs,
                               bool begins, f32 *sums)
{
    vector low[ROWS], high[ROWS];
#pragma GCC unroll 11
    for (int i = 0; i < rows; i++) {
        low[i] = begins ? _mm512_setzero_ps() : _mm512_load_ps(sums + i * PANEL);
        high[i] = begins ? _mm512_setzero_ps() : _mm512_load_ps(sums + i * PANEL + W);
    }
    for (int64_t p = 0; p < pairs; p++, a += 2, b += 2 * PANEL) {
        const __m512bh y0 = pairs_of(b), y1 = pairs_of(b + PANEL);
#pragma GCC unroll 11
        for (int i = 0; i < rows; i++) {
            const __m512bh x = every(a + i * pitch);
            low[i] = _mm512_dpbf16_ps(low[i], x, y0);
            high[i] = _mm512_dpbf16_ps(high[i], x, y1);
        }
    }
#pragma GCC unroll 11
    for (int i = 0; i < rows; i++) {
        _mm512_store_ps(sums + i * PANEL, low[i]);
        _mm512_store_ps(sums + i * PANEL + W, high[i]);
    }
}

#define OF_ROWS(n)                                                                                                     \
    static void multiply_##n(const uint16_t *a, int64_t pitch, const uint16_t *b, int64_t pairs, bool begins,          \
                             f32 *sums)                                                                                \
    {                                                                                                                  \
        multiply_rows(n, a, pitch, b, pairs, begins, sums);                                                            \
    }
OF_ROWS(1)
OF_ROWS(2)
OF_ROWS(3)
OF_ROWS(4)
OF_ROWS(5)
OF_ROWS(6)
OF_ROWS(7)
OF_ROWS(8)
OF_ROWS(9)
OF_ROWS(10)
OF_ROWS(11)

static void multiply(const uint16_t *a, int64_t pitch, int64_t rows, const uint16_t *b, int64_t columns, int64_t groups,
                     bool begins, f32 *sums, delivery *before)
{
    static void (*const of[])(const uint16_t *, int64_t, const uint16_t *, int64_t, bool,
                              f32 *) = {multiply_1, multiply_2, multiply_3, multiply_4,  multiply_5, multiply_6,
                                        multiply_7, multiply_8, multiply_9, multiply_10, multiply_11};
    (void)columns;
    deliver(before, STRIP);
    for (int64_t tiles = tow__ceil_div(rows, ROWS); tiles > 0; tiles--) {
        const int64_t n = tow__ceil_div(rows, tiles);
        of[n - 1](a, pitch, b, groups * (GROUP / 2), begins, sums);
        a += n * pitch, sums += n * PANEL, rows -= n;
    }
}

/* ---- the processor ----------------------------------------------------------------------------------------------- */

/* Asked of the processor itself: not all compilers know the name of this feature. */
static bool usable(void)
{
    enum {
        LEAF = 7,
        BF16 = 1 << 5 /* of eax of its subleaf 1 */
    };
    unsigned a = 0, b, c, d;
    return tow__has_avx512() && __get_cpuid_count(LEAF, 1, &a, &b, &c, &d) && (a & BF16);
}

const tow__gemm_bf16_version tow__gemm_bf16_dots = {"vectors of bf16, AVX512_BF16", usable, run_dots, pack_dots};

/* Each instruction on sums in registers 0 .. 15, `count` times: in assembly, since a compiler that keeps sums in memory
 * would measure that. */
#define LOW(f)             f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#define HIGH(f)            f(8) f(9) f(10) f(11) f(12) f(13) f(14) f(15)
#define EACH(f)            LOW(f) HIGH(f)
#define CLEAR(i)           "vpxord %%zmm" #i ", %%zmm" #i ", %%zmm" #i "\n\t"
#define ADD_PAIRS(i)       "vdpbf16ps %%zmm31, %%zmm31, %%zmm" #i "\n\t"
#define ADD_PRODUCT(i)     "vfmadd231ps %%zmm31, %%zmm31, %%zmm" #i "\n\t"
#define LOOP(instructions) CLEAR(31) EACH(CLEAR) "1:\n\t" EACH(instructions) "dec %0\n\tjnz 1b"
#define REGISTERS                                                                                                      \
    "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",   \
        "xmm13", "xmm14", "xmm15", "xmm31"

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum {
    TIMED = 1000 /* instructions of pairs on each sum; of f32 twice as many make as many multiply-adds */
};

static double time_pairs(void)
{
    const double begin = seconds();
    int64_t count = TIMED;
    __asm__ volatile(LOOP(ADD_PAIRS) : "+r"(count) : : REGISTERS);
    return seconds() - begin;
}

static double time_products(void)
{
    const double begin = seconds();
    int64_t count = (int64_t)2 * TIMED;
    __asm__ volatile(LOOP(ADD_PRODUCT) : "+r"(count) : : REGISTERS);
    return seconds() - begin;
}

static bool gains;

static void compare(void)
{
    double pairs = 1, products = 1;
    for (int i = 0; i < 5; i++) {
        const double p = time_pairs(), f = time_products();
        pairs = p < pairs ? p : pairs;
        products = f < products ? f : products;
    }
    gains = pairs < 0.9 * products;
}

bool tow__gemm_bf16_dots_gain(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!usable()) return false;
    pthread_once(&once, compare);
    return gains;
}
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
bool tow__gemm_bf16_dots_gain(void) { return false; }
#endif

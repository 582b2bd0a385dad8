/* Products of stored bf16 on the matrix unit (gemm_bf16.h): TDPBF16PS on tiles of 16 rows of 64 bytes. Of A, a row of a
 * tile is 32 elements of k of a row; of B, row r has elements 2 r and 2 r + 1 of k for each of 16 columns. */
#include "src/kernels/products/gemm_bf16.h"

#ifdef TOW__BF16_UNITS
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(                                                                                          \
    __attribute__((target("amx-tile,amx-bf16,avx512bf16,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))),               \
    apply_to = function)
#else
#pragma GCC target("amx-tile,amx-bf16,avx512bf16,avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#include <immintrin.h>
#ifdef TOW_EMULATED_AMX
#include "src/kernels/products/amx_emulated.inc"
#else
#define ROUNDS_BY_INSTRUCTION
#endif

#include "src/kernels/products/gemm_bf16_avx512.inc"

typedef struct configuration {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} configuration;

#define RUN    run_amx
#define PACK_B pack_amx
#include "src/kernels/products/gemm_bf16.inc"

static void begin_unit(void)
{
    configuration c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.bytes[i] = 4 * W;
        c.rows[i] = W;
    }
    _tile_loadconfig(&c);
}

static void end_unit(void) { _tile_release(); }

enum {
    PITCH = 2 * PANEL * (int)sizeof(uint16_t), /* bytes of a pair of k in a panel, and of a row of sums */
    HALF = PITCH / 2
};
_Static_assert(PITCH == PANEL * sizeof(f32), "a row of sums is as long as a pair of k in a panel");

/* Tiles 0 .. 3: sums, with the rows and columns behind the first 16; 4, 5: of A; 6, 7: of B. Numbers of tiles are
 * parts of instructions. f: of a sum, its row and its column of tiles, and those of A and of B. */
#define EACH_SUM(f)                                                                                                    \
    do {                                                                                                               \
        f(0, 0, 0, 4, 6);                                                                                              \
        if (two_columns) f(1, 0, 1, 4, 7);                                                                             \
        if (two_rows) f(2, 1, 0, 5, 6);                                                                                \
        if (two_rows && two_columns) f(3, 1, 1, 5, 7);                                                                 \
    } while (0)
#define CLEAR(sum, row, column, a, b)    _tile_zero(sum)
#define LOAD(sum, row, column, a, b)     _tile_loadd(sum, (char *)sums + (row)*W * PITCH + (column)*HALF, PITCH)
#define STORE(sum, row, column, a, b)    _tile_stored(sum, (char *)sums + (row)*W * PITCH + (column)*HALF, PITCH)
#define MULTIPLY(sum, row, column, a, b) _tile_dpbf16ps(sum, a, b)

TOW__INLINE void multiply_tiles(const bool two_rows, const bool two_columns, const uint16_t *a, int64_t pitch,
                                const uint16_t *b, int64_t groups, bool begins, f32 *sums, delivery *before)
{
    const int64_t share = tow__ceil_div(STRIP, groups);
    if (begins)
        EACH_SUM(CLEAR);
    else
        EACH_SUM(LOAD);
    for (int64_t i = 0; i < groups; i++, a += GROUP, b += GROUP * PANEL) {
        _tile_loadd(4, a, 2 * pitch);
        _tile_stream_loadd(6, b, PITCH); /* panels pass by: the strip stays in the first cache */
        if (two_columns) _tile_stream_loadd(7, (const char *)b + HALF, PITCH);
        if (two_rows) _tile_loadd(5, a + W * pitch, 2 * pitch);
        EACH_SUM(MULTIPLY);
        deliver(before, share);
    }
    EACH_SUM(STORE);
}

static void multiply(const uint16_t *a, int64_t pitch, int64_t rows, const uint16_t *b, int64_t columns, int64_t groups,
                     bool begins, f32 *sums, delivery *before)
{
    if (rows > W && columns > W)
        multiply_tiles(true, true, a, pitch, b, groups, begins, sums, before);
    else if (rows > W)
        multiply_tiles(true, false, a, pitch, b, groups, begins, sums, before);
    else if (columns > W)
        multiply_tiles(false, true, a, pitch, b, groups, begins, sums, before);
    else
        multiply_tiles(false, false, a, pitch, b, groups, begins, sums, before);
}

const tow__gemm_bf16_version tow__gemm_bf16_amx = {"matrix unit on bf16, AMX", tow__gemm_amx_usable, run_amx, pack_amx};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif

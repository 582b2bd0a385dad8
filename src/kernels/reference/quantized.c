/* Plain C twins of the kernels of blocks, which say what the others compute. */
#include "src/kernels/quantized/quantized_dot.h"

enum {
    N = TOW__BLOCK_NUMBERS
};

static const char *block_at(const tow__strided *blocks, int64_t i)
{
    return blocks->data + tow__strided_offset(blocks, i) * (int64_t)blocks->size;
}

static void run_dequantize(const tow__kernel_call *call)
{
    const tow__strided blocks = tow__strided_buffer(&call->in[0]);
    const int64_t numbers = tow_dtype_numbers(call->in[0].dtype);
    for (int64_t i = 0; i < blocks.count; i++)
        tow__dequantize_blocks(call->in[0].dtype, 1, block_at(&blocks, i), (f32 *)call->out[0].data + i * numbers);
}

static void run_quantize(const tow__kernel_call *call)
{
    const tow__strided x = tow__strided_buffer(&call->in[0]);
    const size_t size = tow__element_bytes(call->out[0].dtype);
    const int64_t held = tow_dtype_numbers(call->out[0].dtype);
    f32 numbers[TOW__MOST_BLOCK_NUMBERS];
    for (int64_t i = 0; i < x.count / held; i++) {
        tow__strided_read(&x, i * held, held, numbers);
        tow__quantize_blocks(call->out[0].dtype, 1, numbers, (char *)call->out[0].data + (size_t)i * size);
    }
}

/* ---- quantized_dot ----------------------------------------------------------------------------------------------- */

/* Numbers 32 k to 32 k + 31 of a block, w as integers. */
typedef struct group {
    f32 d, m;
    i32 w[N];
} group;

static void read_q8_0(const void *data, int k, group *g)
{
    const tow__q8_0 *block = data;
    (void)k;
    g->d = tow__from_f16(block->scale);
    for (int j = 0; j < N; j++) g->w[j] = block->q[j];
}

static void read_q4_0(const void *data, int k, group *g)
{
    const tow__q4_0 *block = data;
    (void)k;
    g->d = tow__from_f16(block->scale);
    for (int j = 0; j < N; j++) g->w[j] = (j < N / 2 ? block->q[j] & 15 : block->q[j - N / 2] >> 4) - 8;
}

static void read_q4_k(const void *data, int k, group *g)
{
    const tow__q4_k *block = data;
    int s, t;
    tow__q4_k_levels_of(block, k, &s, &t);
    g->d = tow__from_f16(block->scale) * (f32)s;
    g->m = tow__from_f16(block->minimum) * (f32)t;
    for (int j = 0; j < N; j++) g->w[j] = tow__q4_k_at(block, k, j);
}

static void read_q6_k(const void *data, int k, group *g)
{
    const tow__q6_k *block = data;
    g->d = tow__from_f16(block->scale);
    for (int j = 0; j < N; j++) g->w[j] = block->levels[2 * k + j / 16] * (tow__q6_k_at(block, k, j) - 32);
}

static f32 add_group(tow_dtype dtype, const void *block, int k, const i8 *q, f32 scale, f32 y)
{
    static void (*const read[TOW__BLOCK_DTYPES])(const void *, int, group *) = {read_q8_0, read_q4_0, read_q4_k,
                                                                                read_q6_k};
    group g = {.m = 0};
    i32 sum = 0, all = 0;
    read[tow__blocks_index(dtype)](block, k, &g);
    for (int j = 0; j < N; j++) {
        sum += g.w[j] * q[j];
        all += q[j];
    }
    y = fmaf(g.d * scale, (f32)sum, y);
    return dtype == TOW_Q4_K ? fmaf(-g.m, scale * (f32)all, y) : y;
}

static void run_quantized_dot(const tow__kernel_call *call)
{
    const tow__strided x = tow__strided_buffer(&call->in[0]), w = tow__strided_buffer(&call->in[1]);
    const tow_dtype dtype = call->in[1].dtype;
    const int64_t n = call->in[1].dims[0], blocks = call->in[1].dims[1], of_block = tow_dtype_numbers(dtype) / N;
    const int64_t rows = tow__buffer_count(&call->out[0]) / tow__max(1, n), groups = blocks * of_block;
    f32 *y = call->out[0].data;
    for (int64_t i = 0; i < rows * n; i++) y[i] = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < groups; g++) {
            f32 numbers[N];
            i8 q[N];
            tow__strided_read(&x, (r * groups + g) * N, N, numbers);
            const f32 scale = tow__quantize_activations(numbers, q);
            for (int64_t i = 0; i < n; i++)
                y[r * n + i] = add_group(dtype, block_at(&w, i * blocks + g / of_block), (int)(g % of_block), q, scale,
                                         y[r * n + i]);
        }
}

static const tow__kernel kernels[] = {
    {"dequantize", TOW__BLOCKS, run_dequantize, NULL, "reference"},
    {"quantize", 1 << TOW_F32, run_quantize, NULL, "reference"},
    {"quantized_dot", 1 << TOW_F32, run_quantized_dot, NULL, "reference"},
};
const tow__kernel_table tow__reference_quantized = {kernels, sizeof kernels / sizeof kernels[0]};

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
    for (int64_t i = 0; i < blocks.count; i++)
        tow__dequantize_blocks(call->in[0].dtype, 1, block_at(&blocks, i), (f32 *)call->out[0].data + i * N);
}

static void run_quantize(const tow__kernel_call *call)
{
    const tow__strided x = tow__strided_buffer(&call->in[0]);
    const size_t size = tow__element_bytes(call->out[0].dtype);
    f32 numbers[N];
    for (int64_t i = 0; i < x.count / N; i++) {
        tow__strided_read(&x, i * N, N, numbers);
        tow__quantize_blocks(call->out[0].dtype, 1, numbers, (char *)call->out[0].data + (size_t)i * size);
    }
}

static i32 weight_number(tow_dtype dtype, const void *block, int j)
{
    if (dtype == TOW_Q8_0) return ((const tow__q8_0 *)block)->q[j];
    const u8 both = ((const tow__q4_0 *)block)->q[j % (N / 2)];
    return (j < N / 2 ? both & 15 : both >> 4) - 8;
}

static f32 add_block(tow_dtype dtype, const void *block, const i8 *q, f32 scale, f32 y)
{
    i32 sum = 0;
    for (int j = 0; j < N; j++) sum += weight_number(dtype, block, j) * q[j];
    f16 d;
    memcpy(&d, block, sizeof d);
    return fmaf(tow__from_f16(d) * scale, (f32)sum, y);
}

static void run_quantized_dot(const tow__kernel_call *call)
{
    const tow__strided x = tow__strided_buffer(&call->in[0]), w = tow__strided_buffer(&call->in[1]);
    const int64_t n = call->in[1].dims[0], blocks = call->in[1].dims[1];
    const int64_t rows = tow__buffer_count(&call->out[0]) / tow__max(1, n);
    f32 *y = call->out[0].data;
    for (int64_t i = 0; i < rows * n; i++) y[i] = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t b = 0; b < blocks; b++) {
            f32 numbers[N];
            i8 q[N];
            tow__strided_read(&x, (r * blocks + b) * N, N, numbers);
            const f32 scale = tow__quantize_activations(numbers, q);
            for (int64_t i = 0; i < n; i++)
                y[r * n + i] = add_block(call->in[1].dtype, block_at(&w, i * blocks + b), q, scale, y[r * n + i]);
        }
}

static const tow__kernel kernels[] = {
    {"dequantize", TOW__BLOCKS, run_dequantize, NULL, "reference"},
    {"quantize", 1 << TOW_F32, run_quantize, NULL, "reference"},
    {"quantized_dot", 1 << TOW_F32, run_quantized_dot, NULL, "reference"},
};
const tow__kernel_table tow__reference_quantized = {kernels, sizeof kernels / sizeof kernels[0]};

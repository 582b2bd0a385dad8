/* Blocks of few bits. References follow the definitions of GGUF's types and of quantized_dot.h in plain loops; arrays
 * of doubles hold numbers, so that blocks are made and read within the graphs.
 * Tests ops/quantized/blocks.c, kernels/quantized/blocks.c. */
#include <math.h>

#include "tests/property/property.h"

enum {
    N = 32
};

static tow_dtype kind_of(const property_case *c) { return c->label[0] == '8' ? TOW_Q8_0 : TOW_Q4_0; }

static double nearest_half(double x)
{
    const double unit = ldexp(1, (x == 0 ? -14 : (int)fmax(-14, floor(log2(fabs(x))))) - 10);
    return nearbyint(x / unit) * unit;
}

/* 32 numbers as a scale, rounded to f16, and integers: numbers beyond f16 are not drawn. */
static void make_block(tow_dtype dtype, const double *x, double *scale, double *q)
{
    double most = 0;
    for (int j = 0; j < N; j++)
        if (fabs(x[j]) > fabs(most)) most = x[j];
    const float d = dtype == TOW_Q8_0 ? (float)fabs(most) / 127 : (float)most / -8, factor = d == 0 ? 0 : 1 / d;
    for (int j = 0; j < N; j++)
        q[j] = dtype == TOW_Q8_0 ? round((double)((float)x[j] * factor))
                                 : fmin(15, floor((double)(float)(x[j] * (double)factor + 8.5))) - 8;
    *scale = nearest_half((double)d);
}

static void blocks_and_back(const property_case *c, double *const *in, double *const *out)
{
    const int64_t n = property_count(&c->in[0]);
    for (int64_t i = 0; i < n; i += N) {
        double scale, q[N];
        make_block(kind_of(c), in[0] + i, &scale, q);
        for (int j = 0; j < N; j++) out[0][i + j] = scale * q[j];
    }
}

static void record_blocks(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    (void)trace;
    out[0] = tow_dequantize(tow_quantize(in[0], kind_of(c)), TOW_F32);
}

/* x [..., K], w [n, K] */
static void dot(const property_case *c, double *const *in, double *const *out)
{
    const int64_t n = c->in[1].dims[0], K = c->in[1].dims[1], rows = property_count(&c->in[0]) / K;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            float y = 0;
            for (int64_t k = 0; k < K; k += N) {
                const double *x = in[0] + r * K + k;
                double d, q[N], sum = 0, most = 0;
                make_block(kind_of(c), in[1] + i * K + k, &d, q);
                for (int j = 0; j < N; j++) most = fmax(most, fabs(x[j]));
                const float factor = most == 0 ? 0 : 127 / (float)most, scale = (float)most / 127;
                for (int j = 0; j < N; j++) sum += nearbyint((double)((float)x[j] * factor)) * q[j];
                y = fmaf((float)d * scale, (float)sum, y);
            }
            out[0][r * n + i] = (double)y;
        }
}

static void record_dot(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    (void)trace;
    out[0] = tow_quantized_dot(in[0], tow_quantize(in[1], kind_of(c)));
}

#define BLOCKS(name, label_, ...)                                                                                      \
    {                                                                                                                  \
        .primitive = name, .label = label_, .n_in = 1, .build = record_blocks, .value = blocks_and_back,               \
        .no_derivative = true, .in = {                                                                                 \
            {.dtype = TOW_F32, __VA_ARGS__, .low = -3, .high = 3}                                                      \
        }                                                                                                              \
    }
#define DOT(label_, shape, n, k)                                                                                       \
    {                                                                                                                  \
        .primitive = "quantized_dot", .label = label_, .n_in = 2, .build = record_dot, .value = dot,                   \
        .no_derivative = true, .in = {                                                                                 \
            {.dtype = TOW_F32, shape},                                                                                 \
            {.dtype = TOW_F32, S2(n, k)}                                                                               \
        }                                                                                                              \
    }

static const property_case cases[] = {
    BLOCKS("quantize", "8 bits", S2(3, 64)),
    BLOCKS("quantize", "4 bits", S2(3, 64)),
    BLOCKS("dequantize", "8 bits", S3(2, 3, 32)),
    BLOCKS("dequantize", "4 bits", S1(96)),
    DOT("8 bits", S2(3, 64), 5, 64),
    DOT("4 bits", S2(3, 64), 5, 64),
    DOT("8 bits, a vector", S1(96), 17, 96),
    DOT("4 bits, more rows", S3(2, 3, 32), 4, 32),
};

const property_table quantized_cases = TABLE(cases);

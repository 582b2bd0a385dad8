/* A convolution of images, or with --height 0 a causal one of sequences, channels last.
 *
 *     conv --batch 8 --height 56 --width 56 --features 128 --out 128 [--kernel 3] [--stride 1] [--depthwise]
 *          [--part all] [--dtype f32 | bf16 | f16]
 *
 * --part all: the sum of the squares of what it gives, value and gradients of both operands. The three convolutions in
 * that, apart: forward; input and kernel, the gradients of one operand for given cotangents. */
#include "bench.h"

#include <string.h>

enum {
    INPUTS = 3 /* x, kernel, cotangents of y */
};

typedef struct conv {
    int64_t batch, height, width, features, out, kernel, stride;
    bool depthwise;
} conv;

static tow_value convolve(const tow_value *in, const conv *c)
{
    tow_conv_options options =
        TOW_CONV_OPTIONS(.padding = c->height > 0 ? TOW_PAD_SAME : TOW_PAD_EXPLICIT, .strides = {c->stride, c->stride},
                         .feature_groups = c->depthwise ? c->features : 1);
    if (c->height == 0) options.low[0] = c->kernel - 1;
    return tow_conv_general_dilated(in[0], in[1], &options);
}

static void all(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = tow_reduce_sum(tow_square(convolve(in, user)), 0, NULL);
}

static void forward(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = convolve(in, user);
}

typedef struct part {
    const char *name;
    tow_function function;
    size_t n_inputs, n_wrt, wrt[2];
    double convolutions;
} part;

static const part *find_part(const char *name)
{
    static const part parts[] = {{"all", all, 2, 2, {0, 1}, 3},
                                 {"forward", forward, 2, 0, {0}, 1},
                                 {"input", forward, INPUTS, 1, {0}, 1},
                                 {"kernel", forward, INPUTS, 1, {1}, 1}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(parts[i].name, name) == 0) return &parts[i];
    bench_fail("conv: --part: expected all, forward, input or kernel, found '%s'", name);
}

static tow_dtype find_dtype(const char *name)
{
    static const tow_dtype dtypes[] = {TOW_F32, TOW_BF16, TOW_F16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(tow_dtype_name(dtypes[i]), name) == 0) return dtypes[i];
    bench_fail("conv: --dtype: expected f32, bf16 or f16, found '%s'", name);
}

static tow_type sequences_or_images(tow_dtype dtype, bool images, int64_t n, int64_t height, int64_t width,
                                    int64_t features)
{
    return images ? tow_make_type(dtype, 4, (int64_t[]){n, height, width, features})
                  : tow_make_type(dtype, 3, (int64_t[]){n, width, features});
}

int main(int argc, char **argv)
{
    bench b;
    conv c = {.batch = 8, .height = 56, .width = 56, .features = 128, .out = 128, .kernel = 3, .stride = 1};
    const char *name = "all", *type = "f32";
    const bench_option options[] = {{"batch", .number = &c.batch, .least = 1},
                                    {"height", .number = &c.height},
                                    {"width", .number = &c.width, .least = 1},
                                    {"features", .number = &c.features, .least = 1},
                                    {"out", .number = &c.out, .least = 1},
                                    {"kernel", .number = &c.kernel, .least = 1},
                                    {"stride", .number = &c.stride, .least = 1},
                                    {"depthwise", .flag = &c.depthwise},
                                    {"part", .text = &name},
                                    {"dtype", .text = &type},
                                    {0}};
    bench_start(&b, "conv", argc, argv, options);
    const part *p = find_part(name);
    const bool images = c.height > 0;
    const tow_dtype dtype = find_dtype(type);
    const int64_t in = c.depthwise ? 1 : c.features, high = images ? (c.height + c.stride - 1) / c.stride : 1;
    const int64_t wide = (c.width + c.stride - 1) / c.stride, taps = images ? c.kernel * c.kernel : c.kernel;
    const tow_type types[INPUTS] = {
        sequences_or_images(dtype, images, c.batch, c.height, c.width, c.features),
        images ? tow_make_type(dtype, 4, (int64_t[]){c.kernel, c.kernel, in, c.out})
               : tow_make_type(dtype, 3, (int64_t[]){c.kernel, in, c.out}),
        sequences_or_images(dtype, images, c.batch, high, wide, c.out),
    };
    bench_run_gradient(&b, &(bench_gradient){.loss = p->function,
                                             .user = &c,
                                             .n_inputs = p->n_inputs,
                                             .types = types,
                                             .scales = (const double[INPUTS]){1, 0.05, 1},
                                             .n_wrt = p->n_wrt,
                                             .wrt = p->wrt,
                                             .pulls_back = p->n_inputs == INPUTS,
                                             .without_y = true});
    return bench_finish(&b, 2.0 * p->convolutions * (double)c.batch * (double)high * (double)wide *
                                (double)(taps * in) * (double)c.out);
}

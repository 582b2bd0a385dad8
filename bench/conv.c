/* A convolution of images, or with --height 0 a causal one of sequences, channels last, and the sum of the squares of what it
 * gives: value and gradients of both operands.
 *
 *     conv --batch 8 --height 56 --width 56 --features 128 --out 128 [--kernel 3] [--stride 1] [--depthwise] */
#include "bench.h"

typedef struct conv {
    int64_t batch, height, width, features, out, kernel, stride;
    bool depthwise;
} conv;

static void loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const conv *c = user;
    (void)trace;
    tow_conv_options options = {.padding = c->height > 0 ? TOW_PAD_SAME : TOW_PAD_EXPLICIT,
                                .strides = {c->stride, c->stride},
                                .feature_groups = c->depthwise ? c->features : 1};
    if (c->height == 0) options.low[0] = c->kernel - 1;
    out[0] = tow_reduce_sum(tow_square(tow_conv_general_dilated(in[0], in[1], &options)), 0, NULL);
}

int main(int argc, char **argv)
{
    bench b;
    conv c = {.batch = 8, .height = 56, .width = 56, .features = 128, .out = 128, .kernel = 3, .stride = 1};
    const bench_option options[] = {{"batch", .number = &c.batch, .least = 1},
                                    {"height", .number = &c.height},
                                    {"width", .number = &c.width, .least = 1},
                                    {"features", .number = &c.features, .least = 1},
                                    {"out", .number = &c.out, .least = 1},
                                    {"kernel", .number = &c.kernel, .least = 1},
                                    {"stride", .number = &c.stride, .least = 1},
                                    {"depthwise", .flag = &c.depthwise},
                                    {0}};
    bench_start(&b, "conv", argc, argv, options);
    const bool images = c.height > 0;
    const int64_t in = c.depthwise ? 1 : c.features, high = images ? (c.height + c.stride - 1) / c.stride : 1;
    const int64_t wide = (c.width + c.stride - 1) / c.stride, taps = images ? c.kernel * c.kernel : c.kernel;
    const tow_type types[] = {
        images ? tow_make_type(TOW_F32, 4, (int64_t[]){c.batch, c.height, c.width, c.features})
               : tow_make_type(TOW_F32, 3, (int64_t[]){c.batch, c.width, c.features}),
        images ? tow_make_type(TOW_F32, 4, (int64_t[]){c.kernel, c.kernel, in, c.out})
               : tow_make_type(TOW_F32, 3, (int64_t[]){c.kernel, in, c.out}),
    };
    bench_run_gradient(&b, &(bench_gradient){.loss = loss,
                                             .user = &c,
                                             .n_inputs = 2,
                                             .types = types,
                                             .scales = (const double[]){1, 0.05},
                                             .n_wrt = 2,
                                             .wrt = (const size_t[]){0, 1}});
    return bench_finish(&b, 6.0 * (double)c.batch * (double)high * (double)wide * (double)(taps * in) * (double)c.out);
}

/* Normalization of images, channels last, as in training: BatchNorm by statistics of the batch, or GroupNorm. The
 * results, or with --gradient the results and the gradients of x, scale and bias for given cotangents.
 *
 *     norm_images --batch 32 --height 56 --width 56 --features 256 [--kind batch] [--groups 32] [--gradient]
 *
 * "gbyte" counts the passes over memory that the work needs at least. Forward reads x for the statistics, reads it
 * again and writes y; the gradient reads x and the cotangents for the sums, reads both again and writes the gradient of
 * x. */
#include "bench.h"

#include <string.h>

#include "tow/numpy.h"

enum {
    INPUTS = 4 /* x, scale, bias, cotangents */
};

typedef struct norm {
    int64_t batch, height, width, features, groups;
    bool batch_norm;
} norm;

/* (x - mean) / sqrt(variance + epsilon) * scale + bias. x: [n, h, w, c], or [n, h, w, groups, c / groups]. */
static tow_value normalize(const tow_value *in, const norm *m)
{
    const int of_batch[] = {0, 1, 2}, of_groups[] = {1, 2, 4};
    const int64_t grouped[] = {m->batch, m->height, m->width, m->groups, m->features / m->groups};
    const int *axes = m->batch_norm ? of_batch : of_groups;
    tow_value x = in[0], scale = in[1], bias = in[2];
    if (!m->batch_norm) {
        x = tow_reshape(x, 5, grouped);
        scale = tow_reshape(scale, 2, grouped + 3);
        bias = tow_reshape(bias, 2, grouped + 3);
    }
    tow_value centered = tow_sub(x, tow_mean_keepdims(x, 3, axes)),
              variance = tow_mean_keepdims(tow_square(centered), 3, axes);
    tow_value y = tow_add(tow_mul(centered, tow_mul(tow_rsqrt(tow_add_scalar(variance, 1e-5)), scale)), bias);
    return m->batch_norm ? y : tow_reshape(y, 4, (int64_t[]){m->batch, m->height, m->width, m->features});
}

static void forward(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = normalize(in, user);
}

int main(int argc, char **argv)
{
    bench b;
    norm m = {.batch = 32, .height = 56, .width = 56, .features = 256, .groups = 32};
    const char *kind = "batch";
    bool gradient = false;
    const bench_option options[] = {{"batch", .number = &m.batch, .least = 1},
                                    {"height", .number = &m.height, .least = 1},
                                    {"width", .number = &m.width, .least = 1},
                                    {"features", .number = &m.features, .least = 1},
                                    {"groups", .number = &m.groups, .least = 1},
                                    {"kind", .text = &kind},
                                    {"gradient", .flag = &gradient},
                                    {0}};
    bench_start(&b, "norm_images", argc, argv, options);
    m.batch_norm = strcmp(kind, "batch") == 0;
    if (!m.batch_norm && strcmp(kind, "group") != 0)
        bench_fail("norm_images: --kind: expected batch or group, found '%s'", kind);
    if (m.features % m.groups != 0)
        bench_fail("norm_images: --groups: expected a divisor of %lld, found %lld", (long long)m.features,
                   (long long)m.groups);
    const tow_type x = tow_make_type(TOW_F32, 4, (int64_t[]){m.batch, m.height, m.width, m.features});
    const tow_type features = tow_make_type(TOW_F32, 1, &m.features);
    bench_run_gradient(&b, &(bench_gradient){.loss = forward,
                                             .user = &m,
                                             .n_inputs = gradient ? INPUTS : 3,
                                             .types = (const tow_type[INPUTS]){x, features, features, x},
                                             .scales = (const double[INPUTS]){1, 1, 1, 1},
                                             .n_wrt = gradient ? 3 : 0,
                                             .wrt = (const size_t[]){0, 1, 2},
                                             .pulls_back = gradient});
    b.moved = (gradient ? 8 : 3) * (double)tow_type_element_count(x) * sizeof(float);
    return bench_finish(&b, 0);
}

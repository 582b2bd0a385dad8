/* Pooling of images, channels last, without padding: the results, or with --gradient the results and the gradient of x
 * for given cotangents.
 *
 *     pooling --batch 64 --height 28 --width 28 --features 32 [--kind max] [--window 2] [--stride 2] [--type f32]
 *             [--gradient]
 *
 * --window 0: over the whole image. */
#include "bench.h"

#include <string.h>

typedef struct pooling {
    int64_t batch, height, width, features, window, stride;
    bool average;
} pooling;

static tow_value pool(tow_value x, const pooling *p)
{
    const bool global = p->window == 0;
    const tow_pool_options options =
        TOW_POOL_OPTIONS(.spatial = 2, .window = {global ? p->height : p->window, global ? p->width : p->window},
                         .strides = {p->stride, p->stride}, .padding = TOW_PAD_VALID);
    return p->average ? tow_avg_pool(x, &options) : tow_max_pool(x, &options);
}

static void forward(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    out[0] = pool(in[0], user);
}

static tow_dtype read_type(const char *name)
{
    static const struct {
        const char *name;
        tow_dtype dtype;
    } types[] = {{"f32", TOW_F32}, {"i32", TOW_I32}, {"u8", TOW_U8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return types[i].dtype;
    bench_fail("pooling: --type: expected f32, i32 or u8, found '%s'", name);
}

/* The number of windows along an axis. */
static int64_t windows(const pooling *p, int64_t size)
{
    if (p->window > size) bench_fail("pooling: --window: %lld exceeds the image", (long long)p->window);
    return p->window == 0 ? 1 : (size - p->window) / p->stride + 1;
}

int main(int argc, char **argv)
{
    bench b;
    pooling p = {.batch = 64, .height = 28, .width = 28, .features = 32, .window = 2, .stride = 2};
    const char *kind = "max", *type = "f32";
    bool gradient = false;
    const bench_option options[] = {{"batch", .number = &p.batch, .least = 1},
                                    {"height", .number = &p.height, .least = 1},
                                    {"width", .number = &p.width, .least = 1},
                                    {"features", .number = &p.features, .least = 1},
                                    {"window", .number = &p.window},
                                    {"stride", .number = &p.stride, .least = 1},
                                    {"kind", .text = &kind},
                                    {"type", .text = &type},
                                    {"gradient", .flag = &gradient},
                                    {0}};
    bench_start(&b, "pooling", argc, argv, options);
    p.average = strcmp(kind, "avg") == 0;
    if (!p.average && strcmp(kind, "max") != 0) bench_fail("pooling: --kind: expected max or avg, found '%s'", kind);
    const tow_dtype dtype = read_type(type);
    const tow_type types[] = {
        tow_make_type(dtype, 4, (int64_t[]){p.batch, p.height, p.width, p.features}),
        tow_make_type(dtype, 4, (int64_t[]){p.batch, windows(&p, p.height), windows(&p, p.width), p.features})};
    bench_run_gradient(&b, &(bench_gradient){.loss = forward,
                                             .user = &p,
                                             .n_inputs = gradient ? 2 : 1,
                                             .types = types,
                                             .scales = (const double[]){dtype == TOW_F32 ? 1 : 250, 1},
                                             .n_wrt = gradient,
                                             .wrt = (const size_t[]){0},
                                             .pulls_back = gradient});
    return bench_finish(&b, 0);
}

/* A deep chain x <- tanh(x W_i + b_i), sum of squares at the end: value and gradients of all W and b.
 *
 *     chain --layers 4096 --width 128 --batch 128 [--mode scan | remat | sqrt | unrolled] [--only-compile]
 *
 * scan: one loop; remat: its body in remat; sqrt: a loop over remat regions that each loop over sqrt(layers) layers;
 * unrolled: every layer by itself, with parameters of its own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

typedef struct chain {
    int64_t layers, width, batch, group; /* group: layers of an inner loop */
} chain;

/* in: x [batch, width], W [width, width], b [width] */
static void layer(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_tanh(tow_add(tow_dot(in[0], in[1]), in[2]));
}

static void layer_in_remat(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(trace, layer, user, NULL, 3, in, 1, out);
}

static tow_value sum_of_squares(tow_value x) { return tow_reduce_sum(tow_square(x), 0, NULL); }

/* in: x, W [layers, width, width], b [layers, width] */
static void scan(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_scan_function(trace, layer, user, NULL, 1, in, 2, in + 1, 0, out, NULL);
}

static void scan_loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    scan(trace, in, out, user);
    out[0] = sum_of_squares(out[0]);
}

static void remat_loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_scan_function(trace, layer_in_remat, user, NULL, 1, in, 2, in + 1, 0, out, NULL);
    out[0] = sum_of_squares(out[0]);
}

static void group_in_remat(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(trace, scan, user, NULL, 3, in, 1, out);
}

static void sqrt_loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const chain *c = user;
    int64_t groups = c->layers / c->group;
    tow_value grouped[2] = {tow_reshape(in[1], 4, (int64_t[]){groups, c->group, c->width, c->width}),
                            tow_reshape(in[2], 3, (int64_t[]){groups, c->group, c->width})};
    tow_scan_function(trace, group_in_remat, user, NULL, 1, in, 2, grouped, 0, out, NULL);
    out[0] = sum_of_squares(out[0]);
}

/* in: x, then W and b of each layer in turn */
static void unrolled_loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const chain *c = user;
    tow_value x[3] = {in[0]};
    for (int64_t i = 0; i < c->layers; i++) {
        x[1] = in[1 + 2 * i];
        x[2] = in[2 + 2 * i];
        layer(trace, x, x, user);
    }
    out[0] = sum_of_squares(x[0]);
}

static const struct mode {
    const char *name;
    tow_function loss;
} modes[] = {{"scan", scan_loss}, {"remat", remat_loss}, {"sqrt", sqrt_loss}, {"unrolled", unrolled_loss}};

static tow_function find_mode(const char *name)
{
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i].name, name) == 0) return modes[i].loss;
    bench_fail("chain: unknown --mode '%s': expected scan, remat, sqrt or unrolled", name);
}

int main(int argc, char **argv)
{
    bench b;
    chain c = {.layers = 4096, .width = 128, .batch = 128, .group = 1};
    const char *mode = "scan";
    bool only_compile = false;
    const bench_option options[] = {
        {"layers", .number = &c.layers, .least = 1}, {"width", .number = &c.width, .least = 1},
        {"batch", .number = &c.batch, .least = 1},   {"mode", .text = &mode},
        {"only-compile", .flag = &only_compile},     {0}};
    bench_start(&b, "chain", argc, argv, options);
    tow_function loss = find_mode(mode);
    while ((c.group + 1) * (c.group + 1) <= c.layers) c.group++;
    while (c.layers % c.group != 0) c.group--;
    bool unrolled = loss == unrolled_loss;
    size_t n = unrolled ? 1 + 2 * (size_t)c.layers : 3;
    tow_type *types = calloc(n, sizeof *types);
    double *scales = calloc(n, sizeof *scales);
    size_t *wrt = calloc(n, sizeof *wrt);
    if (!types || !scales || !wrt) bench_fail("chain: out of memory");
    types[0] = tow_make_type(TOW_F32, 2, (int64_t[]){c.batch, c.width});
    scales[0] = 1;
    for (size_t i = 1; i < n; i++) {
        bool bias = i % 2 == 0;
        const int64_t dims[] = {c.layers, c.width, c.width};
        types[i] = tow_make_type(TOW_F32, (bias ? 1 : 2) + !unrolled, dims + unrolled);
        scales[i] = bias ? 0 : sqrt(3.0 / (double)c.width); /* variances of the peers: gradients do not fade away */
        wrt[i - 1] = i;
    }
    bench_run_gradient(&b, &(bench_gradient){.loss = loss,
                                             .user = &c,
                                             .n_inputs = n,
                                             .types = types,
                                             .scales = scales,
                                             .n_wrt = n - 1,
                                             .wrt = wrt,
                                             .only_compile = only_compile});
    free(types);
    free(scales);
    free(wrt);
    return bench_finish(&b, 6.0 * (double)(c.batch * c.width) * (double)(c.width * c.layers));
}

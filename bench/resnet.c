/* ResNet-18 with batch normalization over the batch, as in training: value and gradients of the cross entropy with
 * regard to all parameters.
 *
 *     resnet --batch 8 --size 64 --classes 1000
 *
 * Images [batch, size, size, 3] and labels are data. Useful flops: each convolution forward, for its kernel and, but
 * for the first one, for its input. */
#include "bench.h"

enum {
    STAGES = 4,
    BLOCKS = 2,
    MOST = 80 /* inputs */
};

/* The network is walked twice: for the types of its parameters, and to trace it. */
typedef struct net {
    tow_value in[MOST];
    tow_type types[MOST];
    double scales[MOST];
    size_t n;        /* parameters met so far */
    bool only_lists; /* no values: the first walk */
    int64_t batch, classes;
    double flops;
} net;

/* An activation and its sizes: [batch, side, side, features]. */
typedef struct images {
    tow_value x;
    int64_t side, features;
} images;

static tow_value parameter(net *m, tow_type type, double scale)
{
    if (m->only_lists) m->types[m->n] = type, m->scales[m->n] = scale;
    m->n++;
    return m->in[m->n - 1];
}

/* (x - mean) / sqrt(variance + epsilon) * scale + bias, over all but the features. */
static tow_value normalize(net *m, images x)
{
    const int axes[] = {0, 1, 2};
    const tow_type features = tow_make_type(TOW_F32, 1, &x.features);
    tow_value scale = parameter(m, features, 1), bias = parameter(m, features, 1);
    if (m->only_lists) return x.x;
    tow_value centered = tow_sub(x.x, tow_mean(x.x, 3, axes)), variance = tow_mean(tow_square(centered), 3, axes);
    return tow_add(tow_mul(centered, tow_mul(tow_rsqrt(tow_add_scalar(variance, 1e-5)), scale)), bias);
}

/* A convolution without bias, then normalization. */
static images convolve(net *m, images x, int64_t features, int64_t window, int64_t stride)
{
    const bool first = m->n == 2;
    images y = {.side = (x.side + stride - 1) / stride, .features = features};
    tow_value kernel = parameter(m, tow_make_type(TOW_F32, 4, (int64_t[]){window, window, x.features, features}), 0.05);
    m->flops +=
        (first ? 4.0 : 6.0) * (double)(m->batch * y.side * y.side * window * window) * (double)(x.features * features);
    const int64_t pad = window / 2;
    if (!m->only_lists)
        y.x = tow_conv_general_dilated(x.x, kernel,
                                       &TOW_CONV_OPTIONS(.strides = {stride, stride}, .padding = TOW_PAD_EXPLICIT,
                                                         .low = {pad, pad}, .high = {pad, pad}));
    y.x = normalize(m, y);
    return y;
}

static images activate(const net *m, images x)
{
    if (!m->only_lists) x.x = tow_relu(x.x);
    return x;
}

static images residual_block(net *m, images x, int64_t features, int64_t stride)
{
    images y = activate(m, convolve(m, x, features, 3, stride));
    y = convolve(m, y, features, 3, 1);
    if (stride > 1 || x.features != features) x = convolve(m, x, features, 1, stride);
    if (!m->only_lists) y.x = tow_add(y.x, x.x);
    return activate(m, y);
}

static tow_value walk(net *m, int64_t size)
{
    images x = {m->in[0], size, 3};
    m->n = 2;
    m->flops = 0;
    x = activate(m, convolve(m, x, 64, 7, 2));
    if (!m->only_lists)
        x.x = tow_max_pool(x.x, &TOW_POOL_OPTIONS(.spatial = 2, .window = {3, 3}, .strides = {2, 2},
                                                  .padding = TOW_PAD_EXPLICIT, .low = {1, 1}, .high = {1, 1}));
    x.side = (x.side + 1) / 2;
    for (int stage = 0; stage < STAGES; stage++)
        for (int block = 0; block < BLOCKS; block++)
            x = residual_block(m, x, 64 << stage, stage > 0 && block == 0 ? 2 : 1);
    tow_value kernel = parameter(m, tow_make_type(TOW_F32, 2, (int64_t[]){x.features, m->classes}), 0.05);
    tow_value bias = parameter(m, tow_make_type(TOW_F32, 1, &m->classes), 0.05);
    m->flops += 6.0 * (double)(m->batch * x.features * m->classes);
    if (m->only_lists) return kernel;
    tow_value logits = tow_add(tow_dot(tow_mean(x.x, 2, (int[]){1, 2}), kernel), bias);
    return tow_mean(tow_softmax_cross_entropy(logits, m->in[1]), 1, (int[]){0});
}

typedef struct task {
    net *m;
    int64_t size;
} task;

static void loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const task *t = user;
    (void)trace;
    for (size_t i = 0; i < t->m->n; i++) t->m->in[i] = in[i];
    out[0] = walk(t->m, t->size);
}

int main(int argc, char **argv)
{
    bench b;
    static net m;
    task t = {&m, 64};
    size_t wrt[MOST];
    m = (net){.batch = 8, .classes = 1000, .only_lists = true};
    const bench_option options[] = {{"batch", .number = &m.batch, .least = 1},
                                    {"size", .number = &t.size, .least = 1},
                                    {"classes", .number = &m.classes, .least = 1},
                                    {0}};
    bench_start(&b, "resnet", argc, argv, options);
    m.types[0] = tow_make_type(TOW_F32, 4, (int64_t[]){m.batch, t.size, t.size, 3});
    m.types[1] = tow_make_type(TOW_I32, 1, &m.batch);
    m.scales[0] = 1.7;
    m.scales[1] = (double)m.classes;
    walk(&m, t.size);
    m.only_lists = false;
    for (size_t i = 2; i < m.n; i++) wrt[i - 2] = i;
    bench_run_gradient(&b, &(bench_gradient){.loss = loss,
                                             .user = &t,
                                             .n_inputs = m.n,
                                             .types = m.types,
                                             .scales = m.scales,
                                             .n_wrt = m.n - 2,
                                             .wrt = wrt});
    return bench_finish(&b, m.flops);
}

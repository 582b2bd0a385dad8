/* See memory_models.h. */
#include "memory_models.h"

#include <stdlib.h>

#include "examples/gpt/model.h"

/* ---- GPT --------------------------------------------------------------------------------------------------------- */

static tow_graph *gpt_graph(bench *b, gpt_shape shape, int64_t batch, size_t *n_params)
{
    static gpt model;
    tow_params *params = NULL;
    tow_graph *loss = NULL;
    gpt_make(&model, &shape);
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){batch, shape.context});
    bench_check(b, tow_model_init(b->context, TOW_MODULE(&model), 0, 1, &type, &params));
    bench_check(b, tow_model_loss_graph(TOW_MODULE(&model), params, 2, (tow_type[]){type, type}, 0, NULL, gpt_loss,
                                        NULL, 0, NULL, &loss));
    *n_params = tow_params_count(params);
    tow_params_free(params);
    return loss;
}

static tow_graph *gpt_loss_graph(bench *b, const tow_policy *policy, bool unrolled, size_t *n_params)
{
    const gpt_shape shape = {.vocabulary = 65,
                             .layers = 6,
                             .width = 384,
                             .heads = 6,
                             .context = 256,
                             .policy = policy,
                             .unrolled = unrolled};
    return gpt_graph(b, shape, 8, n_params);
}

static tow_graph *gpt2_loss_graph(bench *b, const tow_policy *policy, bool unrolled, size_t *n_params)
{
    const gpt_shape shape = {.vocabulary = 50257,
                             .layers = 12,
                             .width = 768,
                             .heads = 12,
                             .context = 256,
                             .policy = policy,
                             .unrolled = unrolled};
    return gpt_graph(b, shape, 4, n_params);
}

/* ---- networks of convolutions ------------------------------------------------------------------------------------ */

enum {
    MOST = 320 /* inputs */
};

/* The network is walked twice: for the types of its parameters, and to trace it. */
typedef struct net {
    tow_value in[MOST];
    tow_type types[MOST];
    size_t n;
    bool only_lists; /* no values: the first walk */
    const tow_policy *policy;
    int64_t batch, size;
    void (*walk)(struct net *m, tow_value images, tow_value labels, tow_value *loss);
} net;

/* An activation and its sizes: [batch, side, side, features]. */
typedef struct images {
    tow_value x;
    int64_t side, features;
} images;

static tow_value parameter(net *m, tow_type type)
{
    if (m->n == MOST) bench_fail("memory: too many parameters");
    if (m->only_lists) m->types[m->n] = type;
    return m->in[m->n++];
}

static images convolve(net *m, images x, int64_t features, int64_t window, int64_t stride)
{
    const int64_t pad = window / 2;
    images y = {.side = (x.side + stride - 1) / stride, .features = features};
    const tow_type of_features = tow_make_type(TOW_F32, 1, &features);
    tow_value kernel = parameter(m, tow_make_type(TOW_F32, 4, (int64_t[]){window, window, x.features, features})),
              scale = parameter(m, of_features), bias = parameter(m, of_features);
    if (m->only_lists) return y;
    y.x = tow_conv_general_dilated(x.x, kernel,
                                   &TOW_CONV_OPTIONS(.strides = {stride, stride}, .padding = TOW_PAD_EXPLICIT,
                                                     .low = {pad, pad}, .high = {pad, pad}));
    const int axes[] = {0, 1, 2};
    tow_value centered = tow_sub(y.x, tow_mean(y.x, 3, axes)), variance = tow_mean(tow_square(centered), 3, axes);
    y.x = tow_add(tow_mul(centered, tow_mul(tow_rsqrt(tow_add_scalar(variance, 1e-5)), scale)), bias);
    return y;
}

static images activate(const net *m, images x)
{
    if (!m->only_lists) x.x = tow_relu(x.x);
    return x;
}

/* A block as a region, if there is a policy. */
typedef struct block {
    net *m;
    images x;
    int64_t features, stride;
    images (*make)(net *m, images x, int64_t features, int64_t stride);
    images y;
} block;

static void trace_block(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    block *k = user;
    (void)t;
    k->x.x = in[0];
    k->y = k->make(k->m, k->x, k->features, k->stride);
    out[0] = k->y.x;
}

static images in_region(net *m, images x, int64_t features, int64_t stride,
                        images (*make)(net *m, images x, int64_t features, int64_t stride))
{
    block k = {m, x, features, stride, make, x};
    if (m->only_lists || !m->policy) return make(m, x, features, stride);
    tow_remat_function(tow_value_trace(x.x), trace_block, &k, m->policy, 1, &x.x, 1, &k.y.x);
    return k.y;
}

static images bottleneck(net *m, images x, int64_t features, int64_t stride)
{
    images y = activate(m, convolve(m, x, features, 1, 1));
    y = activate(m, convolve(m, y, features, 3, stride));
    y = convolve(m, y, 4 * features, 1, 1);
    if (stride > 1 || x.features != 4 * features) x = convolve(m, x, 4 * features, 1, stride);
    if (!m->only_lists) y.x = tow_add(y.x, x.x);
    return activate(m, y);
}

static images stem(net *m, images x, int64_t features, int64_t stride)
{
    x = activate(m, convolve(m, x, features, 7, stride));
    if (!m->only_lists)
        x.x = tow_max_pool(x.x, &TOW_POOL_OPTIONS(.spatial = 2, .window = {3, 3}, .strides = {2, 2},
                                                  .padding = TOW_PAD_EXPLICIT, .low = {1, 1}, .high = {1, 1}));
    x.side = (x.side + 1) / 2;
    return x;
}

static void resnet50(net *m, tow_value in, tow_value labels, tow_value *loss)
{
    static const int blocks[] = {3, 4, 6, 3};
    const int64_t classes = 1000;
    images x = in_region(m, (images){in, m->size, 3}, 64, 2, stem);
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < blocks[stage]; i++)
            x = in_region(m, x, 64 << stage, stage > 0 && i == 0 ? 2 : 1, bottleneck);
    tow_value kernel = parameter(m, tow_make_type(TOW_F32, 2, (int64_t[]){x.features, classes}));
    if (m->only_lists) return;
    *loss =
        tow_mean(tow_softmax_cross_entropy(tow_dot(tow_mean(x.x, 2, (int[]){1, 2}), kernel), labels), 1, (int[]){0});
}

static images double_convolution(net *m, images x, int64_t features, int64_t stride)
{
    x = activate(m, convolve(m, x, features, 3, stride));
    return activate(m, convolve(m, x, features, 3, 1));
}

/* Twice the side: each pixel four times, then a convolution; joined with what the encoder had of that side. */
static images upwards(net *m, images x, images skip)
{
    if (!m->only_lists) {
        const int64_t n = m->batch, s = x.side, f = x.features;
        tow_value y = tow_reshape(x.x, 6, (int64_t[]){n, s, 1, s, 1, f});
        y = tow_broadcast_in_dim(y, 6, (int64_t[]){n, s, 2, s, 2, f}, (int[]){0, 1, 2, 3, 4, 5});
        x.x = tow_reshape(y, 4, (int64_t[]){n, 2 * s, 2 * s, f});
    }
    x.side *= 2;
    x = convolve(m, x, x.features / 2, 3, 1);
    if (!m->only_lists) x.x = tow_concatenate(2, (tow_value[]){skip.x, x.x}, 3);
    x.features += skip.features;
    return x;
}

static void unet(net *m, tow_value in, tow_value labels, tow_value *loss)
{
    enum {
        LEVELS = 4
    };
    images x = {in, m->size, 3}, skips[LEVELS];
    (void)labels;
    for (int i = 0; i < LEVELS; i++) {
        skips[i] = x = in_region(m, x, 64 << i, 1, double_convolution);
        if (!m->only_lists)
            x.x = tow_max_pool(x.x, &TOW_POOL_OPTIONS(.spatial = 2, .window = {2, 2}, .strides = {2, 2}));
        x.side /= 2;
    }
    x = in_region(m, x, 64 << LEVELS, 1, double_convolution);
    for (int i = LEVELS; i-- > 0;) x = in_region(m, upwards(m, x, skips[i]), 64 << i, 1, double_convolution);
    x = convolve(m, x, 2, 1, 1);
    if (!m->only_lists) *loss = tow_mean(tow_square(x.x), 4, (int[]){0, 1, 2, 3});
}

/* in: parameters, then images and labels */
static void trace_net(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    net *m = user;
    (void)t;
    const size_t n_params = m->n;
    for (size_t i = 0; i < n_params; i++) m->in[i] = in[i];
    m->n = 0;
    m->walk(m, in[n_params], in[n_params + 1], out);
}

static tow_graph *net_graph(bench *b, net m, size_t *n_params)
{
    static net walked;
    tow_graph *loss = NULL;
    walked = m;
    walked.only_lists = true;
    walked.walk(&walked, (tow_value){0}, (tow_value){0}, NULL);
    *n_params = walked.n;
    walked.only_lists = false;
    walked.types[walked.n] = tow_make_type(TOW_F32, 4, (int64_t[]){m.batch, m.size, m.size, 3});
    walked.types[walked.n + 1] = tow_make_type(TOW_I32, 1, &m.batch);
    bench_check(b, tow_trace_function(b->context, trace_net, &walked, walked.n + 2, walked.types, NULL, 1, &loss));
    return loss;
}

static tow_graph *resnet_loss_graph(bench *b, const tow_policy *policy, bool unrolled, size_t *n_params)
{
    (void)unrolled;
    return net_graph(b, (net){.policy = policy, .batch = 184, .size = 224, .walk = resnet50}, n_params);
}

static tow_graph *unet_loss_graph(bench *b, const tow_policy *policy, bool unrolled, size_t *n_params)
{
    (void)unrolled;
    return net_graph(b, (net){.policy = policy, .batch = 11, .size = 512, .walk = unet}, n_params);
}

/* ---- a chain ----------------------------------------------------------------------------------------------------- */

typedef struct chain {
    int64_t layers;
    const tow_policy *policy;
} chain;

static void tanh_layer(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_tanh(tow_add(tow_dot(in[0], in[1]), in[2]));
}

static void chain_layer(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const chain *c = user;
    if (c->policy)
        tow_remat_function(t, tanh_layer, user, c->policy, 3, in, 1, out);
    else
        tanh_layer(t, in, out, user);
}

/* in: W [layers, width, width], b [layers, width], x [batch, width] */
static void chain_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value y;
    tow_scan_function(t, chain_layer, user, NULL, 1, &in[2], 2, in, 0, &y, NULL);
    out[0] = tow_reduce_sum(tow_square(y), 0, NULL);
}

/* in: W and b of each layer in turn, x */
static void unrolled_chain_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const chain *c = user;
    tow_value x[3] = {in[2 * c->layers]};
    for (int64_t i = 0; i < c->layers; i++) {
        x[1] = in[2 * i], x[2] = in[2 * i + 1];
        chain_layer(t, x, x, user);
    }
    out[0] = tow_reduce_sum(tow_square(x[0]), 0, NULL);
}

static tow_graph *chain_loss_graph(bench *b, const tow_policy *policy, bool unrolled, size_t *n_params)
{
    enum {
        LAYERS = 48
    };
    chain c = {LAYERS, policy};
    tow_graph *loss = NULL;
    const int64_t width = 128;
    tow_type types[2 * LAYERS + 1];
    size_t n = 0;
    for (int i = 0; i < (unrolled ? LAYERS : 1); i++) {
        const int64_t dims[] = {LAYERS, width, width}, rows[] = {LAYERS, width};
        types[n++] = unrolled ? tow_make_type(TOW_F32, 2, dims + 1) : tow_make_type(TOW_F32, 3, dims);
        types[n++] = unrolled ? tow_make_type(TOW_F32, 1, rows + 1) : tow_make_type(TOW_F32, 2, rows);
    }
    *n_params = n;
    types[n++] = tow_make_type(TOW_F32, 2, (int64_t[]){128, width});
    bench_check(
        b, tow_trace_function(b->context, unrolled ? unrolled_chain_loss : chain_loss, &c, n, types, NULL, 1, &loss));
    return loss;
}

const memory_model memory_models[] = {
    {"gpt", "GPT 6 x 384, T 256, B 8, V 65", gpt_loss_graph, true},
    {"gpt2", "GPT-2 124M, B 4, T 256", gpt2_loss_graph, true},
    {"resnet50", "ResNet-50, [184,224,224,3]", resnet_loss_graph, false},
    {"unet", "U-Net from 64 features, [11,512,512,3]", unet_loss_graph, false},
    {"chain", "tanh chain, 48 layers, C 128, B 128", chain_loss_graph, true},
};
const size_t memory_models_count = sizeof memory_models / sizeof *memory_models;

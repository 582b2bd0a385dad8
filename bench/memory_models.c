/* See memory_models.h. */
#include "memory_models.h"

#include <stdlib.h>
#include <string.h>

#include "examples/gpt/model.h"
#include "models.h"

/* ---- GPT --------------------------------------------------------------------------------------------------------- */

static void make_gpt(gpt *model, const memory_model *m, const tow_policy *policy, bool unrolled)
{
    gpt_make(model, &(gpt_shape){.vocabulary = m->classes,
                                 .layers = m->layers,
                                 .width = m->width,
                                 .heads = m->width / 64,
                                 .context = m->size,
                                 .policy = policy,
                                 .unrolled = unrolled});
}

static tow_graph *gpt_graph(bench *b, const memory_model *m, const tow_policy *policy, bool unrolled, size_t *n_params)
{
    static gpt model;
    tow_params *params = NULL;
    tow_graph *loss = NULL;
    make_gpt(&model, m, policy, unrolled);
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){m->batch, m->size});
    bench_check(b, tow_model_init(b->context, TOW_MODULE(&model), 0, 1, &type, &params));
    bench_check(b, tow_model_loss_graph(TOW_MODULE(&model), params, 2, (tow_type[]){type, type}, 0, NULL, gpt_loss,
                                        NULL, 0, NULL, &loss));
    *n_params = tow_params_count(params);
    tow_params_free(params);
    return loss;
}

static tow_train_state *gpt_training(bench *b, const memory_model *m, bool unrolled)
{
    static gpt model;
    tow_train_state *state = NULL;
    make_gpt(&model, m, NULL, unrolled);
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){m->batch, m->size});
    tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = {.kind = TOW_ADAMW,
                                                                .learning_rate = tow_schedule_constant(3e-4),
                                                                .weight_decay = 0.01},
                                                  .n_inputs = 2, .input_types = (tow_type[]){type, type},
                                                  .loss = gpt_loss, .early_update = true);
    bench_check(b, tow_train_create(b->context, TOW_MODULE(&model), &options, &state));
    return state;
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
    const memory_model *model;
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
    const int64_t width = m->model->width;
    images x = in_region(m, (images){in, m->model->size, 3}, width, 2, stem);
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < blocks[stage]; i++)
            x = in_region(m, x, width << stage, stage > 0 && i == 0 ? 2 : 1, bottleneck);
    tow_value kernel = parameter(m, tow_make_type(TOW_F32, 2, (int64_t[]){x.features, m->model->classes}));
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
        const int64_t n = m->model->batch, s = x.side, f = x.features;
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
    const int64_t width = m->model->width;
    images x = {in, m->model->size, 3}, skips[LEVELS];
    (void)labels;
    for (int i = 0; i < LEVELS; i++) {
        skips[i] = x = in_region(m, x, width << i, 1, double_convolution);
        if (!m->only_lists)
            x.x = tow_max_pool(x.x, &TOW_POOL_OPTIONS(.spatial = 2, .window = {2, 2}, .strides = {2, 2}));
        x.side /= 2;
    }
    x = in_region(m, x, width << LEVELS, 1, double_convolution);
    for (int i = LEVELS; i-- > 0;) x = in_region(m, upwards(m, x, skips[i]), width << i, 1, double_convolution);
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

static tow_graph *net_graph(bench *b, const memory_model *m, const tow_policy *policy,
                            void (*walk)(net *m, tow_value images, tow_value labels, tow_value *loss), size_t *n_params)
{
    static net walked;
    tow_graph *loss = NULL;
    walked = (net){.only_lists = true, .policy = policy, .model = m, .walk = walk};
    walk(&walked, (tow_value){0}, (tow_value){0}, NULL);
    *n_params = walked.n;
    walked.only_lists = false;
    walked.types[walked.n] = tow_make_type(TOW_F32, 4, (int64_t[]){m->batch, m->size, m->size, 3});
    walked.types[walked.n + 1] = tow_make_type(TOW_I32, 1, &m->batch);
    bench_check(b, tow_trace_function(b->context, trace_net, &walked, walked.n + 2, walked.types, NULL, 1, &loss));
    return loss;
}

static tow_graph *resnet_graph(bench *b, const memory_model *m, const tow_policy *policy, bool unrolled,
                               size_t *n_params)
{
    (void)unrolled;
    return net_graph(b, m, policy, resnet50, n_params);
}

static tow_graph *unet_graph(bench *b, const memory_model *m, const tow_policy *policy, bool unrolled, size_t *n_params)
{
    (void)unrolled;
    return net_graph(b, m, policy, unet, n_params);
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

static tow_graph *chain_graph(bench *b, const memory_model *m, const tow_policy *policy, bool unrolled,
                              size_t *n_params)
{
    chain c = {m->layers, policy};
    tow_graph *loss = NULL;
    tow_type *types = calloc(2 * (size_t)m->layers + 1, sizeof *types);
    size_t n = 0;
    if (!types) bench_fail("memory: out of memory");
    for (int64_t i = 0; i < (unrolled ? m->layers : 1); i++) {
        const int64_t dims[] = {m->layers, m->width, m->width}, rows[] = {m->layers, m->width};
        types[n++] = unrolled ? tow_make_type(TOW_F32, 2, dims + 1) : tow_make_type(TOW_F32, 3, dims);
        types[n++] = unrolled ? tow_make_type(TOW_F32, 1, rows + 1) : tow_make_type(TOW_F32, 2, rows);
    }
    *n_params = n;
    types[n++] = tow_make_type(TOW_F32, 2, (int64_t[]){m->batch, m->width});
    bench_check(
        b, tow_trace_function(b->context, unrolled ? unrolled_chain_loss : chain_loss, &c, n, types, NULL, 1, &loss));
    free(types);
    return loss;
}

/* ---- two products ------------------------------------------------------------------------------------------------ */

/* in: x, W1, W2 */
static void ffn_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_reduce_sum(tow_square(tow_dot(tow_gelu(tow_dot(in[0], in[1])), in[2])), 0, NULL);
}

/* size: features between the products */
static tow_graph *ffn_graph(bench *b, const memory_model *m, const tow_policy *policy, bool unrolled, size_t *n_params)
{
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){m->batch, m->width}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){m->width, m->size}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){m->size, m->width})};
    tow_graph *loss = NULL;
    (void)policy, (void)unrolled;
    *n_params = 3;
    bench_check(b, tow_trace_function(b->context, ffn_loss, NULL, 3, types, NULL, 1, &loss));
    return loss;
}

/* ---- LSTM -------------------------------------------------------------------------------------------------------- */

static tow_graph *lstm_graph(bench *b, const memory_model *m, const tow_policy *policy, bool unrolled, size_t *n_params)
{
    tow_graph *loss = NULL;
    (void)policy, (void)unrolled;
    *n_params = 3;
    bench_check(b, tow_trace_function(b->context, bench_lstm_loss, NULL, 4,
                                      (tow_type[]){tow_make_type(TOW_F32, 2, (int64_t[]){m->width, 4 * m->width}),
                                                   tow_make_type(TOW_F32, 2, (int64_t[]){m->width, 4 * m->width}),
                                                   tow_make_type(TOW_F32, 1, (int64_t[]){4 * m->width}),
                                                   tow_make_type(TOW_F32, 3, (int64_t[]){m->size, m->batch, m->width})},
                                      NULL, 1, &loss));
    return loss;
}

static const memory_model memory_models[] = {
    {"gpt", "GPT 6 x 384, T 256, B 8, V 65", gpt_graph, gpt_training, true, 8, 256, 384, 6, 65},
    {"gpt2", "GPT-2 124M, B 4, T 256", gpt_graph, gpt_training, true, 4, 256, 768, 12, 50257},
    {"gpt2_64", "GPT-2 124M, B 4, T 64", gpt_graph, gpt_training, true, 4, 64, 768, 12, 50257},
    {"resnet50", "ResNet-50, [184,224,224,3]", resnet_graph, NULL, false, 184, 224, 64, 0, 1000},
    {"unet", "U-Net from 64 features, [11,512,512,3]", unet_graph, NULL, false, 11, 512, 64, 0, 0},
    {"chain", "tanh chain, 48 layers, C 128, B 128", chain_graph, NULL, true, 128, 0, 128, 48, 0},
    {"chain256", "tanh chain, 256 layers, C 128, B 128", chain_graph, NULL, true, 128, 0, 128, 256, 0},
    {"chain4096", "tanh chain, 4096 layers, C 128, B 128", chain_graph, NULL, true, 128, 0, 128, 4096, 0},
    {"ffn", "FFN 512-8192-512, N 2048", ffn_graph, NULL, false, 2048, 8192, 512, 0, 0},
    /* smaller ones, of which a step takes 20 to 100 ms */
    {"gpt-small", "GPT 8 x 128, T 64, B 8, V 65", gpt_graph, gpt_training, true, 8, 64, 128, 8, 65},
    {"resnet50-small", "ResNet-50 from 8 features, [8,64,64,3]", resnet_graph, NULL, false, 8, 64, 8, 0, 10},
    {"unet-small", "U-Net from 8 features, [2,64,64,3]", unet_graph, NULL, false, 2, 64, 8, 0, 0},
    {"lstm-small", "LSTM 128, T 64, B 32", lstm_graph, NULL, false, 32, 64, 128, 0, 0},
    {"chain-small", "tanh chain, 24 layers, C 256, B 128", chain_graph, NULL, true, 128, 0, 256, 24, 0},
};

const memory_model *memory_model_named(const char *name)
{
    for (size_t i = 0; i < sizeof memory_models / sizeof *memory_models; i++)
        if (strcmp(memory_models[i].name, name) == 0) return &memory_models[i];
    bench_fail(
        "memory: --model: expected gpt, gpt2, gpt2_64, resnet50, unet, chain, chain256, chain4096, ffn, or one of "
        "gpt, resnet50, unet, lstm and chain with -small, found '%s'",
        name);
}

tow_graph *memory_gradient(bench *b, const memory_model *m, const tow_policy *policy, bool unrolled)
{
    size_t n = 0;
    tow_graph *loss = m->loss(b, m, policy, unrolled, &n), *gradient = NULL;
    size_t *wrt = malloc((n + 1) * sizeof *wrt);
    if (!wrt) bench_fail("memory: out of memory");
    for (size_t i = 0; i < n; i++) wrt[i] = i;
    bench_check(b, tow_value_and_grad(loss, n, wrt, false, &gradient));
    tow_graph_release(loss);
    free(wrt);
    return gradient;
}

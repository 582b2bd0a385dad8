/* The U-Net in the words of Tow. */
#include "model.h"

#include <math.h>

static const double offset = 0.008, half_pi = 1.5707963267948966;

static double cosine(double t)
{
    double c = cos(half_pi * (t / STEPS + offset) / (1 + offset));
    return c * c;
}

double signal_after(int step) { return cosine(step + 1) / cosine(0); }

/* The same in the graph. steps: i32 [batch] -> f32 [batch, 1, 1, 1] */
static tow_value signals(tow_value steps)
{
    tow_value t = tow_add_scalar(tow_convert(steps, TOW_F32), 1);
    tow_value angle = tow_mul_scalar(tow_add_scalar(tow_mul_scalar(t, 1.0 / STEPS), offset), half_pi / (1 + offset));
    tow_value signal = tow_mul_scalar(tow_square(tow_cos(angle)), 1 / cosine(0));
    return tow_reshape(signal, 4, (int64_t[]){-1, 1, 1, 1});
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

/* Sines and cosines of the step at 16 frequencies, and of the label an embedding: [batch, EMBEDDING] */
static tow_value embed(tow_scope *scope, const diffusion_model *m, tow_value labels, tow_value steps)
{
    enum {
        FREQUENCIES = 16
    };
    tow_trace *trace = tow_scope_trace(scope);
    tow_value k = tow_iota(trace, tow_make_type(TOW_F32, 2, (int64_t[]){1, FREQUENCIES}), 1);
    tow_value frequency = tow_exp(tow_mul_scalar(k, -log(1000) / FREQUENCIES)); /* from 1 to 1/1000 */
    tow_value t = tow_reshape(tow_convert(steps, TOW_F32), 2, (int64_t[]){-1, 1});
    tow_value angle = tow_mul(t, frequency); /* [batch, FREQUENCIES] */
    tow_value parts[] = {tow_sin(angle), tow_cos(angle)};
    tow_value x = tow_silu(tow_apply(scope, "time1", &m->time[0], tow_concatenate(2, parts, 1)));
    x = tow_apply(scope, "time2", &m->time[1], x);
    return tow_silu(tow_add(x, tow_apply(scope, "labels", &m->labels, labels)));
}

/* x: [batch, h, w, c], embedding: [batch, EMBEDDING] -> [batch, h, w, features] */
static tow_value residual(tow_scope *parent, const char *name, const res_block *b, tow_value x, tow_value embedding)
{
    tow_scope *scope = tow_scope_begin(parent, name);
    int64_t features = b->conv.features;
    tow_value h = tow_silu(tow_apply(scope, "norm1", &b->norm, x));
    h = tow_apply(scope, "conv1", &b->conv, h);
    tow_value shift = tow_apply(scope, "embed", &b->embed, embedding);
    h = tow_add(h, tow_reshape(shift, 4, (int64_t[]){-1, 1, 1, features}));
    h = tow_silu(tow_apply(scope, "norm2", &b->norm, h));
    h = tow_apply(scope, "conv2", &b->conv, h);
    if (tow_value_type(x).rank == 4 && tow_value_type(x).dims[3] != features) x = tow_apply(scope, "skip", &b->skip, x);
    x = tow_add(x, h);
    tow_scope_end(scope);
    return x;
}

/* noisy: [batch, 8, 8, 1] -> the noise in it, [batch, 8, 8, 1] */
static tow_value predict_noise(tow_scope *scope, const diffusion_model *m, tow_value noisy, tow_value labels,
                               tow_value steps)
{
    tow_value embedding = embed(scope, m, labels, steps);
    tow_value x = tow_apply(scope, "first", &m->first, noisy);          /* [batch, 8, 8, NARROW] */
    tow_value beside = residual(scope, "in", &m->narrow, x, embedding); /* kept for the way up */
    x = tow_apply(scope, "down", &m->down, beside);                     /* [batch, 4, 4, WIDE] */
    x = residual(scope, "middle1", &m->wide, x, embedding);
    x = residual(scope, "middle2", &m->wide, x, embedding);
    tow_value both[2];
    both[0] = tow_apply(scope, "up", &m->up, x); /* [batch, 8, 8, NARROW] */
    both[1] = beside;
    x = residual(scope, "out", &m->narrow, tow_concatenate(2, both, 3), embedding);
    return tow_apply(scope, "last", &m->last, tow_silu(tow_apply(scope, "norm", &m->norm, x)));
}

/* ---- training and sampling --------------------------------------------------------------------------------------- */

/* noisy = sqrt(signal) image + sqrt(1 - signal) noise, with a step drawn for each image; the square of what the
 * network's answer is wrong by (Ho, Jain and Abbeel 2020, algorithm 1). */
static tow_value squared_errors(tow_scope *scope, const diffusion_model *m, tow_value images, tow_value labels)
{
    tow_type type = tow_value_type(images);
    tow_value key = tow_make_rng(scope, "noise");
    tow_value keys[2];
    for (uint32_t i = 0; i < 2; i++) keys[i] = tow_random_fold_in(key, tow_scalar(tow_scope_trace(scope), TOW_U32, i));
    tow_value steps = tow_random_randint(keys[0], tow_make_type(TOW_I32, 1, type.dims), 0, STEPS);
    tow_value noise = tow_random_normal(keys[1], type.rank, type.dims);
    tow_value signal = signals(steps), rest = tow_add_scalar(tow_neg(signal), 1);
    tow_value noisy = tow_add(tow_mul(images, tow_sqrt(signal)), tow_mul(noise, tow_sqrt(rest)));
    return tow_square(tow_sub(noise, predict_noise(scope, m, noisy, labels, steps)));
}

static void diffusion_call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                           tow_value *out)
{
    const diffusion_model *m = (const diffusion_model *)module;
    if (n_in < 2 || n_in > 3 || n_out != 1 || tow_value_type(in[0]).rank != 4) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "expected images [batch, 8, 8, 1], labels, steps or none, and one result");
        return;
    }
    out[0] = n_in == 2 ? squared_errors(scope, m, in[0], in[1]) : predict_noise(scope, m, in[0], in[1], in[2]);
}

static const tow_module_class diffusion_class = {.name = "Diffusion", .call = diffusion_call};

static res_block make_block(int64_t features)
{
    return (res_block){.norm = TOW_GROUP_NORM(.groups = 8),
                       .conv = TOW_CONV(.features = features, .kernel_size = {3, 3}),
                       .skip = TOW_CONV(.features = features, .kernel_size = {1, 1}),
                       .embed = TOW_DENSE(.features = features)};
}

void diffusion_make(diffusion_model *m)
{
    m->module.cls = &diffusion_class;
    m->labels =
        TOW_EMBED(.num_embeddings = CLASSES, .features = EMBEDDING, .embedding_init = tow_initializer_normal(1));
    m->time[0] = m->time[1] = TOW_DENSE(.features = EMBEDDING);
    m->first = TOW_CONV(.features = NARROW, .kernel_size = {3, 3});
    m->down = TOW_CONV(.features = WIDE, .kernel_size = {3, 3}, .strides = {2});
    m->up = TOW_CONV_TRANSPOSE(.features = NARROW, .kernel_size = {2, 2}, .strides = {2});
    m->norm = TOW_GROUP_NORM(.groups = 8);
    m->last = TOW_CONV(.features = 1, .kernel_size = {3, 3}, .kernel_init = tow_initializer_zeros());
    m->narrow = make_block(NARROW);
    m->wide = make_block(WIDE);
}

/* The autoencoder and its loss. */
#include "model.h"

/* mean + exp(log_variance / 2) noise: gradients go through the draw. */
static tow_value draw_code(tow_scope *scope, tow_value mean, tow_value log_variance)
{
    if (tow_scope_is_deterministic(scope)) return mean;
    tow_value noise = tow_random_normal_with(tow_make_rng(scope, "noise"), tow_value_type(mean));
    return tow_add(mean, tow_mul(tow_exp(tow_mul_scalar(log_variance, 0.5)), noise));
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const vae *m = (const vae *)module;
    if (n_in != 1 || n_out != 3) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "expected 1 input and 3 outputs, found %zu and %zu", n_in, n_out);
        return;
    }
    const int64_t flat[] = {tow_value_type(in[0]).dims[0], PIXELS};
    tow_value statistics = tow_apply(scope, "encoder", &m->encoder, tow_reshape(in[0], 2, flat));
    out[1] = tow_slice_axis(statistics, 1, 0, CODE);
    out[2] = tow_slice_axis(statistics, 1, CODE, 2 * CODE);
    out[0] = tow_apply(scope, "decoder", &m->decoder, draw_code(scope, out[1], out[2]));
}

static const tow_module_class vae_class = {"VAE", call};

void vae_make(vae *m)
{
    *m = (vae){.module = {&vae_class},
               .encoder = TOW_MLP(.features = {HIDDEN, 2 * CODE}),
               .decoder = TOW_MLP(.features = {HIDDEN, PIXELS})};
}

/* Sum over the second axis, mean over the first. */
static tow_value per_image(tow_value x) { return tow_mean(tow_reduce_sum(x, 1, (int[]){1}), 0, NULL); }

void vae_loss(tow_trace *trace, const tow_value *outputs, const tow_value *extra, tow_value *loss, tow_value *aux,
              void *user)
{
    (void)trace, (void)user;
    tow_value logits = outputs[0], mean = outputs[1], log_variance = outputs[2];
    const tow_type type = tow_value_type(logits);
    tow_value pixels = tow_reshape(extra[0], type.rank, type.dims);
    /* -x log p - (1 - x) log(1 - p) with p = sigmoid(l): max(l, 0) - l x + log(1 + exp(-|l|)) */
    tow_value tail = tow_log1p(tow_exp(tow_neg(tow_abs(logits))));
    aux[0] = per_image(tow_add(tow_sub(tow_relu(logits), tow_mul(logits, pixels)), tail));
    /* (mean^2 + variance - log variance - 1) / 2 */
    tow_value spread = tow_sub(tow_add(tow_square(mean), tow_exp(log_variance)), tow_add_scalar(log_variance, 1));
    aux[1] = per_image(tow_mul_scalar(spread, 0.5));
    *loss = tow_add(aux[0], aux[1]);
}

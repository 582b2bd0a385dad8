/* TransformerBlock, pre-norm:  x = x + dropout(attn(ln1(x)));  x = x + dropout(down(activation(up(ln2(x))))). */
#include "layers/layer.h"
#include "tow/autodiff.h"

static tow_value normalize(tow_scope *scope, const tow_transformer_block *m, const char *name, tow_value x)
{
    tow_layer_norm layer_norm = TOW_LAYER_NORM(.epsilon = m->epsilon);
    tow_rms_norm rms_norm = TOW_RMS_NORM(.epsilon = m->epsilon);
    tow_value y = tow_apply_module(scope, name, m->rms_norm ? &rms_norm.module : &layer_norm.module, x);
    return tow_checkpoint_name(y, name);
}

/* x [B, T, D] -> [B, T, D] */
static tow_value feed_forward(tow_scope *scope, const tow_transformer_block *m, tow_value x)
{
    tow_type type = tow_value_type(x);
    int64_t features = type.dims[2];
    tow_dense up = TOW_DENSE(.features = m->mlp_features ? m->mlp_features : 4 * features, .no_bias = m->no_bias,
                             .kernel_init = m->kernel_init);
    tow_dense down = TOW_DENSE(.features = features, .no_bias = m->no_bias,
                               .kernel_init = tow__init_or(m->out_init, m->kernel_init));
    tow_scope *mlp = tow_scope_begin(scope, "mlp");
    x = tow_checkpoint_name(tow_apply(mlp, "up", &up, x), "mlp_pre");
    x = tow_checkpoint_name((m->activation ? m->activation : tow_gelu_tanh)(x), "mlp_act");
    x = tow_checkpoint_name(tow_apply(mlp, "down", &down, x), "mlp_out");
    tow_scope_end(mlp);
    return x;
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_transformer_block *m = (const tow_transformer_block *)module;
    if (!tow__check_counts(scope, "TransformerBlock", n_in, 1, 2, n_out)) return;
    tow_type type = tow_value_type(in[0]);
    if (!tow__is_float(type.dtype) || type.rank != 3) {
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                       "TransformerBlock: expected f32 or f64 [batch,time,features], found %s",
                       tow__type_name(type).text);
        return;
    }
    tow_multi_head_attention attention =
        TOW_MULTI_HEAD_ATTENTION(.heads = m->heads, .kv_heads = m->kv_heads, .causal = m->causal, .no_bias = m->no_bias,
                                 .dropout_rate = m->attn_dropout_rate, .deterministic = m->deterministic,
                                 .kernel_init = m->kernel_init, .out_kernel_init = m->out_init);
    tow_dropout dropout = TOW_DROPOUT(.rate = m->dropout_rate, .deterministic = m->deterministic);
    tow_value x = in[0], y[2] = {normalize(scope, m, "ln1", x), in[n_in - 1]}; /* y[1]: the mask, if there is one */
    tow_value branch;
    tow_apply_n(scope, "attn", &attention, n_in, y, 1, &branch);
    branch = tow_checkpoint_name(branch, "attn_out");
    x = tow_checkpoint_name(tow_add(x, tow_apply(scope, "dropout1", &dropout, branch)), "attn_residual");
    branch = feed_forward(scope, m, normalize(scope, m, "ln2", x));
    x = tow_add(x, tow_apply(scope, "dropout2", &dropout, branch));
    out[0] = tow_checkpoint_name(x, "block_out");
}

const tow_module_class tow_transformer_block_class = {.name = "TransformerBlock", .call = call};

/* TransformerBlock: branches (self-attention, cross attention, feed-forward layer), each with a norm and added to its
 * input.
 *
 *   pre-norm   x + dropout(branch(norm(x)))      post-norm   norm(x + dropout(branch(x)))
 *   parallel   x + dropout(attention(norm(x))) + dropout(mlp(norm(x))) */
#include "src/scope/layer.h"
#include "src/scope/tree.h"
#include "tow/attention.h"
#include "tow/autodiff.h"

/* The operands of one call. Null values: not given. */
typedef struct block_call {
    tow_scope *scope;
    const tow_transformer_block *m;
    tow_value memory, mask, cross_mask, bias, positions;
} block_call;

/* A branch: its children, the checkpoint names of its result and of the sum, and what it computes. */
typedef struct branch {
    const char *norm, *result_norm, *dropout, *result, *sum;
    tow_value (*compute)(const block_call *b, tow_value x);
} branch;

/* ---- branches ---------------------------------------------------------------------------------------------------- */

static tow_value attend(const block_call *b, tow_value x)
{
    const tow_transformer_block *m = b->m;
    tow_multi_head_attention attention =
        TOW_MULTI_HEAD_ATTENTION(.heads = m->heads, .kv_heads = m->kv_heads, .qkv_features = m->qkv_features,
                                 .causal = m->causal, .no_bias = m->no_bias, .no_qkv_bias = m->no_qkv_bias,
                                 .no_out_bias = m->no_out_bias, .scale = m->scale, .window = m->window,
                                 .logit_cap = m->logit_cap, .qk_norm = m->qk_norm,
                                 .qk_norm_epsilon = m->qk_norm_epsilon > 0 ? m->qk_norm_epsilon : m->epsilon,
                                 .head_gates = m->head_gates, .rope = m->rope, .rope_options = m->rope_options,
                                 .decode = m->decode, .cache_length = m->cache_length, .cache_dtype = m->cache_dtype,
                                 .sow_weights = m->sow_weights, .dropout_rate = m->attn_dropout_rate,
                                 .deterministic = m->deterministic, .kernel_init = m->kernel_init,
                                 .out_kernel_init = m->out_init);
    const tow_value further[] = {b->bias, b->mask, b->positions};
    tow_value in[4] = {x}, y;
    size_t n = 1;
    for (size_t i = 0; i < 3; i++)
        if (!tow_is_null(further[i])) in[n++] = further[i];
    tow_apply_n(b->scope, "attn", &attention, n, in, 1, &y);
    return y;
}

static tow_value attend_to_memory(const block_call *b, tow_value x)
{
    const tow_transformer_block *m = b->m;
    tow_multi_head_attention attention =
        TOW_MULTI_HEAD_ATTENTION(.heads = m->heads, .kv_heads = m->kv_heads,
                                 .qkv_features = m->qkv_features ? m->qkv_features : tow_value_type(x).dims[2],
                                 .no_bias = m->no_bias, .no_qkv_bias = m->no_qkv_bias, .no_out_bias = m->no_out_bias,
                                 .scale = m->scale, .logit_cap = m->logit_cap, .qk_norm = m->qk_norm,
                                 .qk_norm_epsilon = m->qk_norm_epsilon > 0 ? m->qk_norm_epsilon : m->epsilon,
                                 .head_gates = m->head_gates, .decode = m->decode, .recall = m->recall,
                                 .sow_weights = m->sow_weights, .dropout_rate = m->attn_dropout_rate,
                                 .deterministic = m->deterministic, .kernel_init = m->kernel_init,
                                 .out_kernel_init = m->out_init);
    tow_value in[3] = {x, b->memory, b->cross_mask}, y;
    tow_apply_n(b->scope, "cross", &attention, tow_is_null(b->cross_mask) ? 2 : 3, in, 1, &y);
    return y;
}

/* x [B, T, D] -> [B, T, D], the MLP with two products in the scope "mlp" */
static tow_value feed_forward(const block_call *b, tow_value x)
{
    const tow_transformer_block *m = b->m;
    int64_t features = tow_value_type(x).dims[2], hidden = m->mlp_features ? m->mlp_features : 4 * features;
    bool no_bias = m->no_bias || m->no_mlp_bias;
    tow_initializer out_init = tow__init_or(m->out_init, m->kernel_init);
    if (m->gated) {
        tow_gated_mlp gated = TOW_GATED_MLP(.features = hidden, .activation = m->activation, .no_bias = no_bias,
                                            .kernel_init = m->kernel_init, .down_kernel_init = out_init);
        return tow_apply(b->scope, "mlp", &gated, x);
    }
    tow_dense up = TOW_DENSE(.features = hidden, .no_bias = no_bias, .kernel_init = m->kernel_init);
    tow_dense down = TOW_DENSE(.features = features, .no_bias = no_bias, .kernel_init = out_init);
    tow_scope *mlp = tow_scope_begin(b->scope, "mlp");
    x = tow_checkpoint_name(tow_apply(mlp, "up", &up, x), "mlp_pre");
    x = tow_checkpoint_name((m->activation ? m->activation : tow_gelu)(x), "mlp_act");
    x = tow_checkpoint_name(tow_apply(mlp, "down", &down, x), "mlp_out");
    tow_scope_end(mlp);
    return x;
}

static const branch self_attention = {"ln1", "post_ln1", "dropout1", "attn_out", "attn_residual", attend};
static const branch cross_attention = {"ln_cross",  "post_ln_cross",  "dropout3",
                                       "cross_out", "cross_residual", attend_to_memory};
static const branch mlp = {"ln2", "post_ln2", "dropout2", NULL, "block_out", feed_forward};

/* ---- the block --------------------------------------------------------------------------------------------------- */

/* dtype: of the norm; 0: the default */
static tow_value normalize_in(const block_call *b, const char *name, tow_dtype dtype, tow_value x)
{
    tow_layer_norm layer_norm = TOW_LAYER_NORM(.epsilon = b->m->epsilon, .dtype = dtype);
    tow_rms_norm rms_norm = TOW_RMS_NORM(.epsilon = b->m->epsilon, .dtype = dtype);
    tow_value y = tow_apply_module(b->scope, name, b->m->rms_norm ? &rms_norm.module : &layer_norm.module, x);
    return tow_checkpoint_name(y, name);
}

static tow_value normalize(const block_call *b, const char *name, tow_value x) { return normalize_in(b, name, 0, x); }

/* A norm behind a sum, which is what the next branch is added to: it keeps the type of the sum, as sums without a norm
 * keep that of the block's input. So branches that compute in bf16 are added to what is f32, in f32. */
static tow_value normalize_sum(const block_call *b, const char *name, tow_value sum)
{
    const tow_dtype dtype = tow_value_type(sum).dtype;
    return normalize_in(b, name, dtype == TOW_F32 ? TOW_F32 : (tow_dtype)dtype, sum);
}

/* x + dropout(the branch of h) */
static tow_value add_branch(const block_call *b, const branch *k, tow_value x, tow_value h)
{
    tow_dropout dropout = TOW_DROPOUT(.rate = b->m->dropout_rate, .deterministic = b->m->deterministic);
    tow_value y = k->compute(b, h);
    if (k->result) y = tow_checkpoint_name(y, k->result);
    if (b->m->branch_norms) y = normalize(b, k->result_norm, y);
    return tow__add_promoted(x, tow_apply(b->scope, k->dropout, &dropout, y));
}

static tow_value apply_branch(const block_call *b, const branch *k, tow_value x)
{
    if (!b->m->post_norm) return tow_checkpoint_name(add_branch(b, k, x, normalize(b, k->norm, x)), k->sum);
    x = add_branch(b, k, x, x);
    if (k == &mlp) return tow_checkpoint_name(normalize_sum(b, k->norm, x), k->sum);
    return normalize_sum(b, k->norm, tow_checkpoint_name(x, k->sum));
}

static tow_value apply_parallel(const block_call *b, tow_value x)
{
    tow_value h = normalize(b, self_attention.norm, x);
    tow_value y = tow_checkpoint_name(add_branch(b, &self_attention, x, h), self_attention.sum);
    if (!b->m->shared_norm) h = normalize(b, mlp.norm, x);
    return tow_checkpoint_name(add_branch(b, &mlp, y, h), mlp.sum);
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

/* The role of input i, by its type; NULL: nowhere. */
static tow_value *place_of(block_call *b, size_t i, tow_type type)
{
    bool cross = b->m->cross;
    if (type.dtype == TOW_BOOL) return cross && !tow_is_null(b->mask) ? &b->cross_mask : &b->mask;
    if (type.dtype == TOW_I32) return &b->positions;
    if (!tow__is_float(type.dtype)) return NULL;
    if (type.rank == 4) return &b->bias;
    return type.rank == 3 && i == 1 && cross ? &b->memory : NULL;
}

static bool read_inputs(block_call *b, size_t n_in, const tow_value *in)
{
    tow_type type = tow_value_type(in[0]);
    if (!tow__is_float(type.dtype) || type.rank != 3) {
        tow_scope_fail(b->scope, TOW_SHAPE_MISMATCH,
                       "TransformerBlock: expected f32, f64, bf16 or f16 [batch,time,features], found %s",
                       tow__type_name(type).text);
        return false;
    }
    for (size_t i = 1; i < n_in; i++) {
        tow_value *place = place_of(b, i, tow_value_type(in[i]));
        if (place && tow_is_null(*place)) {
            *place = in[i];
            continue;
        }
        tow_scope_fail(b->scope, TOW_SHAPE_MISMATCH,
                       "TransformerBlock: input %zu: expected %sa mask (bool), a bias (float, rank 4) or positions "
                       "(i32), each once, "
                       "found %s",
                       i, b->m->cross ? "the memory [batch,time,features] first, then up to two masks, " : "",
                       tow__type_name(tow_value_type(in[i])).text);
        return false;
    }
    if (!b->m->cross || !tow_is_null(b->memory)) return true;
    tow_scope_fail(b->scope, TOW_INVALID_ARGUMENT,
                   "TransformerBlock: .cross without a memory [batch,time,features] as second input");
    return false;
}

static bool check_options(tow_scope *scope, const tow_transformer_block *m)
{
    return tow__check_option(scope, "TransformerBlock", !m->parallel || (!m->post_norm && !m->cross), "parallel",
                             m->parallel, "neither .post_norm nor .cross beside it") &&
           tow__check_option(scope, "TransformerBlock", m->parallel || !m->shared_norm, "shared_norm", m->shared_norm,
                             ".parallel beside it") &&
           tow__check_option(scope, "TransformerBlock", !m->recall || (m->decode && m->cross), "recall", m->recall,
                             ".decode and .cross beside it");
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_transformer_block *m = (const tow_transformer_block *)module;
    block_call b = {.scope = scope, .m = m};
    if (!tow__check_counts(scope, "TransformerBlock", n_in, 1, m->cross ? 6 : 4, n_out) || !check_options(scope, m) ||
        !read_inputs(&b, n_in, in))
        return;
    b.scope = tow__scope_with_dtypes(scope, "TransformerBlock", m->dtype, m->param_dtype);
    if (!b.scope) return;
    if (m->parallel) {
        out[0] = apply_parallel(&b, in[0]);
        return;
    }
    tow_value x = apply_branch(&b, &self_attention, in[0]);
    if (m->cross) x = apply_branch(&b, &cross_attention, x);
    out[0] = apply_branch(&b, &mlp, x);
}

const tow_module_class tow_transformer_block_class = {TOW__MADE_BY(TOW_TRANSFORMER_BLOCK, tow_transformer_block),
                                                      .name = "TransformerBlock", .call = call,
                                                      .layout = TOW__LAYOUT(tow_transformer_block)};

/* MultiHeadAttention: projections, attention by heads, output projection.
 *
 * Without dropout of the weights the attention is the fused primitive, which keeps its output and log-sum-exp only;
 * with it, it is written out, since the weights [B, H, T, S] must exist to be dropped. */
#include <float.h>
#include <math.h>

#include "layers/layer.h"
#include "tow/autodiff.h"

/* What one call works on. */
typedef struct heads {
    int64_t B, T, S, H, G, D; /* G key heads, D features of a head */
} heads;

static bool read_sizes(tow_scope *scope, const tow_multi_head_attention *m, tow_type q, tow_type kv, heads *h)
{
    const char *layer = "MultiHeadAttention";
    int64_t features = m->qkv_features ? m->qkv_features : q.dims[2];
    int64_t kv_heads = m->kv_heads ? m->kv_heads : m->heads;
    if (!tow__check_option(scope, layer, m->heads > 0, "heads", (double)m->heads, "a positive number") ||
        !tow__check_option(scope, layer, kv_heads > 0 && m->heads % kv_heads == 0, "kv_heads", (double)kv_heads,
                           "a positive divisor of .heads") ||
        !tow__check_option(scope, layer, features > 0 && features % m->heads == 0, "qkv_features", (double)features,
                           "a positive multiple of .heads (the default is the input's last axis)") ||
        !tow__check_option(scope, layer, m->dropout_rate >= 0 && m->dropout_rate <= 1, "dropout_rate", m->dropout_rate,
                           "a number in [0, 1]"))
        return false;
    *h = (heads){q.dims[0], q.dims[1], kv.dims[1], m->heads, kv_heads, features / m->heads};
    return true;
}

/* x [B, T, E] -> [B, T, heads, D] */
static tow_value project(tow_scope *scope, const tow_multi_head_attention *m, const char *name, tow_value x, int64_t n,
                         int64_t D)
{
    tow_dense_general dense = TOW_DENSE_GENERAL(.features = {n, D}, .no_bias = m->no_bias,
                                                .kernel_init = m->kernel_init, .bias_init = m->bias_init);
    return tow_checkpoint_name(tow_apply(scope, name, &dense, x), name);
}

/* bool [T, S]: key j is visible to query i if j <= i + S - T. */
static tow_value causal_mask(tow_trace *t, const heads *h)
{
    tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){h->T, h->S});
    return tow_le(tow_iota(t, type, 1), tow_add_scalar(tow_iota(t, type, 0), (double)(h->S - h->T)));
}

/* q [B, T, H, D], k and v [B, S, G, D] -> [B, T, H, D], with weights dropped by `key`. */
static tow_value attend_with_dropout(const tow_multi_head_attention *m, const heads *h, tow_value q, tow_value k,
                                     tow_value v, tow_value mask, tow_value key)
{
    int64_t R = h->H / h->G;
    q = tow_mul_scalar(q, 1 / sqrt((double)h->D)); /* before the product, as in Flax */
    q = tow_reshape(q, 5, (int64_t[]){h->B, h->T, h->G, R, h->D});
    tow_value logits = tow_dot_general(q, k,
                                       (tow_dot_dims){.n_contract = 1,
                                                      .n_batch = 2,
                                                      .lhs_contract = {4},
                                                      .rhs_contract = {3},
                                                      .lhs_batch = {0, 2},
                                                      .rhs_batch = {0, 2}}); /* [B, G, T, R, S] */
    logits = tow_transpose(logits, 5, (int[]){0, 1, 3, 2, 4});
    logits = tow_reshape(logits, 4, (int64_t[]){h->B, h->H, h->T, h->S});
    tow_dtype dtype = tow_value_type(q).dtype;
    tow_value lowest = tow_scalar(tow_value_trace(q), dtype, dtype == TOW_F64 ? -DBL_MAX : -(double)FLT_MAX);
    if (m->causal) logits = tow_select(causal_mask(tow_value_trace(q), h), logits, lowest);
    if (!tow_is_null(mask)) logits = tow_select(mask, logits, lowest);
    tow_value weights = tow_softmax(logits, -1);
    weights = tow_dropout_with_key(weights, key, m->dropout_rate, m->dropout_each ? 0 : 2, (int[]){0, 1});
    weights = tow_reshape(weights, 5, (int64_t[]){h->B, h->G, R, h->T, h->S});
    tow_value out = tow_dot_general(weights, v,
                                    (tow_dot_dims){.n_contract = 1,
                                                   .n_batch = 2,
                                                   .lhs_contract = {4},
                                                   .rhs_contract = {1},
                                                   .lhs_batch = {0, 1},
                                                   .rhs_batch = {0, 2}}); /* [B, G, R, T, D] */
    out = tow_transpose(out, 5, (int[]){0, 3, 1, 2, 4});
    return tow_reshape(out, 4, (int64_t[]){h->B, h->T, h->H, h->D});
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_multi_head_attention *m = (const tow_multi_head_attention *)module;
    if (!tow__check_counts(scope, "MultiHeadAttention", n_in, 1, 3, n_out)) return;
    tow_value mask = {0};
    if (n_in > 1 && tow_value_type(in[n_in - 1]).dtype == TOW_BOOL) mask = in[--n_in];
    if (!tow__check_counts(scope, "MultiHeadAttention (without its bool mask)", n_in, 1, 2, n_out)) return;
    for (size_t i = 0; i < n_in; i++) {
        tow_type type = tow_value_type(in[i]);
        if (tow__is_float(type.dtype) && type.rank == 3 && type.dtype == tow_value_type(in[0]).dtype) continue;
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                       "MultiHeadAttention: input %zu: expected f32 or f64 [batch,time,features], all of one type, "
                       "found %s; a mask is bool and comes last",
                       i, tow__type_name(type).text);
        return;
    }
    tow_value x_q = in[0], x_kv = in[n_in - 1];
    heads h;
    if (!read_sizes(scope, m, tow_value_type(x_q), tow_value_type(x_kv), &h)) return;
    tow_value q = project(scope, m, "query", x_q, h.H, h.D);
    tow_value k = project(scope, m, "key", x_kv, h.G, h.D);
    tow_value v = project(scope, m, "value", x_kv, h.G, h.D);
    tow_value y;
    if (m->dropout_rate > 0 && !m->deterministic && !tow_scope_deterministic(scope))
        y = attend_with_dropout(m, &h, q, k, v, mask, tow_make_rng(scope, "dropout"));
    else
        y = tow_attention(q, k, v, (&(tow_attention_options){.causal = m->causal, .mask = mask}));
    y = tow_checkpoint_name(y, "attention");
    tow_dense_general project_out =
        TOW_DENSE_GENERAL(.features = {m->out_features ? m->out_features : tow_value_type(x_q).dims[2]}, .n_axes = 2,
                          .axes = {-2, -1}, .no_bias = m->no_bias,
                          .kernel_init = tow__init_or(m->out_kernel_init, m->kernel_init), .bias_init = m->bias_init);
    out[0] = tow_apply(scope, "out", &project_out, y);
}

const tow_module_class tow_multi_head_attention_class = {.name = "MultiHeadAttention", .call = call};

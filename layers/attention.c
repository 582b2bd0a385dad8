/* MultiHeadAttention: projections, attention by heads, output projection.
 *
 * The attention is the fused primitive, which keeps its output and log-sum-exp only. With dropout of the weights it is written out
 * (attention_weights.c), since the weights [B, H, T, S] must exist to be dropped. */
#include "layers/attention.h"

#include <math.h>

#include "tow/autodiff.h"

static const char layer[] = "MultiHeadAttention";

/* ---- reading the call -------------------------------------------------------------------------------------------- */

static bool check_options(tow_scope *scope, const tow_multi_head_attention *m, int64_t features, int64_t kv_heads)
{
    return tow__check_option(scope, layer, m->heads > 0, "heads", (double)m->heads, "a positive number") &&
           tow__check_option(scope, layer, kv_heads > 0 && m->heads % kv_heads == 0, "kv_heads", (double)kv_heads,
                             "a positive divisor of .heads") &&
           tow__check_option(scope, layer, features > 0 && features % m->heads == 0, "qkv_features", (double)features,
                             "a positive multiple of .heads (the default is the input's last axis)") &&
           tow__check_option(scope, layer, m->dropout_rate >= 0 && m->dropout_rate <= 1, "dropout_rate",
                             m->dropout_rate, "a number in [0, 1]") &&
           tow__check_option(scope, layer, m->window >= 0, "window", (double)m->window,
                             "0 (all keys) or a number of keys") &&
           tow__check_option(scope, layer, m->logit_cap >= 0, "logit_cap", m->logit_cap, "a positive number") &&
           tow__check_option(scope, layer, m->qk_norm_epsilon >= 0, "qk_norm_epsilon", m->qk_norm_epsilon,
                             "a positive number") &&
           tow__check_option(scope, layer, (unsigned)m->qk_norm <= TOW_QK_RMS_NORM, "qk_norm", m->qk_norm,
                             "one of enum tow_qk_norm") &&
           tow__check_option(scope, layer, m->cache_length >= 0 && m->cache_length < TOW__SIZE_LIMIT, "cache_length",
                             (double)m->cache_length, "a positive number below 2^30") &&
           tow__check_option(scope, layer, isfinite(m->scale), "scale", m->scale, "a finite number");
}

/* Which of the values input i is, by its type; NULL: none of them. */
static tow_value *place_of(tow__attention_call *c, size_t i, tow_type type)
{
    if (type.dtype == TOW_BOOL && i > 0) return &c->mask;
    if (type.dtype == TOW_I32 && i > 0) return &c->positions;
    if (!tow__is_float(type.dtype)) return NULL;
    if (type.rank == 4 && i > 0) return &c->bias;
    if (type.rank != 3 || i > 1) return NULL;
    return i == 0 ? &c->x_q : &c->x_kv;
}

/* A mask with axes of size 1 in front of it, as it broadcasts. */
static tow_value with_rank_4(tow_value mask)
{
    tow_type type = tow_value_type(mask);
    int64_t dims[4] = {1, 1, 1, 1};
    if (tow_is_null(mask) || type.rank >= 4) return mask;
    if (type.rank > 0) memcpy(dims + 4 - type.rank, type.dims, (size_t)type.rank * sizeof *dims);
    return tow_reshape(mask, 4, dims);
}

static bool read_inputs(tow_scope *scope, size_t n_in, const tow_value *in, tow__attention_call *c)
{
    for (size_t i = 0; i < n_in; i++) {
        tow_type type = tow_value_type(in[i]);
        tow_value *place = place_of(c, i, type);
        if (place && tow_is_null(*place)) {
            *place = in[i];
            continue;
        }
        tow_scope_fail(
            scope, TOW_SHAPE_MISMATCH,
            "%s: input %zu: expected one or two floats [batch,time,features], then at most one mask (bool), bias "
            "(float, rank 4) and positions (i32), found %s",
            layer, i, tow__type_name(type).text);
        return false;
    }
    if (tow_is_null(c->x_kv)) c->x_kv = c->x_q;
    tow_dtype q = tow_value_type(c->x_q).dtype, kv = tow_value_type(c->x_kv).dtype;
    c->x_q = tow__as(c->x_q, tow_promote_types(q, kv));
    c->x_kv = tow__as(c->x_kv, tow_promote_types(q, kv));
    c->mask = with_rank_4(c->mask);
    return true;
}

/* The bias broadcasts to the logits. */
static bool check_bias(tow_scope *scope, const tow__attention_call *c)
{
    if (tow_is_null(c->bias)) return true;
    tow_type type = tow_value_type(c->bias);
    int64_t full[4] = {c->B, c->H, c->T, c->S};
    bool fits = true;
    for (int d = 0; d < 4; d++) fits = fits && (type.dims[d] == full[d] || type.dims[d] == 1);
    if (!fits)
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH, "%s: the bias must be %s or have axes of size 1 in it, found %s",
                       layer, tow__type_name(tow_make_type(type.dtype, 4, full)).text, tow__type_name(type).text);
    return fits;
}

static bool read_call(tow_scope *scope, const tow_multi_head_attention *m, size_t n_in, const tow_value *in,
                      size_t n_out, tow__attention_call *c)
{
    *c = (tow__attention_call){.causal = m->causal || m->decode};
    if (!tow__check_counts(scope, layer, n_in, 1, 5, n_out) || !read_inputs(scope, n_in, in, c)) return false;
    tow_type q = tow_value_type(c->x_q), kv = tow_value_type(c->x_kv);
    int64_t features = m->qkv_features ? m->qkv_features : q.dims[2], kv_heads = m->kv_heads ? m->kv_heads : m->heads;
    if (!check_options(scope, m, features, kv_heads)) return false;
    c->B = q.dims[0], c->T = q.dims[1], c->S = kv.dims[1];
    c->H = m->heads, c->G = kv_heads, c->D = features / m->heads;
    c->scale = m->scale != 0 ? m->scale : 1 / sqrt((double)c->D);
    if (m->decode && c->x_q.id != c->x_kv.id) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "%s: .decode with a second input; expected x alone, whose keys are cached", layer);
        return false;
    }
    if (!tow_is_null(c->positions) && (!m->rope || m->decode)) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "%s: positions are for .rope, and without .decode, which counts them", layer);
        return false;
    }
    return true;
}

/* ---- computing --------------------------------------------------------------------------------------------------- */

/* x [B, T, E] -> [B, T, heads, D] */
static tow_value project(tow_scope *scope, const tow_multi_head_attention *m, const char *name, tow_value x, int64_t n,
                         int64_t D)
{
    tow_dense_general dense = TOW_DENSE_GENERAL(.features = {n, D}, .no_bias = m->no_bias || m->no_qkv_bias,
                                                .kernel_init = m->kernel_init, .bias_init = m->bias_init);
    return tow_checkpoint_name(tow_apply(scope, name, &dense, x), name);
}

static tow_value normalise(tow_scope *scope, const tow_multi_head_attention *m, const char *name, tow_value x)
{
    tow_layer_norm layer_norm = TOW_LAYER_NORM(.epsilon = m->qk_norm_epsilon, .no_bias = true);
    tow_rms_norm rms_norm = TOW_RMS_NORM(.epsilon = m->qk_norm_epsilon);
    if (m->qk_norm == TOW_QK_NO_NORM) return x;
    return tow_apply_module(scope, name, m->qk_norm == TOW_QK_RMS_NORM ? &rms_norm.module : &layer_norm.module, x);
}

/* Queries and keys at their positions. */
static void rotate(const tow_multi_head_attention *m, const tow__attention_call *c, tow_value *q, tow_value *k)
{
    tow_value at = c->positions;
    if (!m->rope) return;
    if (!tow_is_null(c->start)) {
        tow_value here = tow_iota(tow_value_trace(*q), tow_make_type(TOW_I32, 1, &c->T), 0);
        at = tow_add(here, c->start);
    }
    *q = tow_apply_rope(*q, at, &m->rope_options);
    *k = tow_apply_rope(*k, c->x_q.id == c->x_kv.id ? at : (tow_value){0}, &m->rope_options);
}

/* q [B, T, H, D], k and v [B, S, G, D] -> [B, T, H, D] */
static tow_value attend(tow_scope *scope, const tow_multi_head_attention *m, const tow__attention_call *c, tow_value q,
                        tow_value k, tow_value v)
{
    bool drops = m->dropout_rate > 0 && !m->deterministic && !tow_scope_deterministic(scope);
    bool sows = m->sow_weights && tow_is_mutable(scope, "intermediates");
    tow_value weights = drops || sows ? tow__attention_weights(m, c, q, k) : (tow_value){0};
    if (sows) tow_sow(scope, "intermediates", "attention_weights", weights);
    if (drops) {
        tow_value key = tow_make_rng(scope, "dropout");
        weights = tow_dropout_with_key(weights, key, m->dropout_rate, m->dropout_each ? 0 : 2, (int[]){0, 1});
        return tow__weigh_values(c, weights, v);
    }
    return tow_attention(q, k, v,
                         (&(tow_attention_options){.causal = c->causal,
                                                   .scale = m->scale,
                                                   .mask = c->mask,
                                                   .bias = tow__as(c->bias, tow_value_type(q).dtype),
                                                   .offset = c->start,
                                                   .window = m->window,
                                                   .logit_cap = m->logit_cap}));
}

/* y [B, T, H, D] times logistic(gate(x)) [B, T, H] */
static tow_value gate_heads(tow_scope *scope, const tow_multi_head_attention *m, const tow__attention_call *c,
                            tow_value y)
{
    tow_dense gate = TOW_DENSE(.features = c->H, .no_bias = m->no_bias || m->no_qkv_bias, .kernel_init = m->kernel_init,
                               .bias_init = m->bias_init);
    tow_value open = tow_logistic(tow_apply(scope, "gate", &gate, c->x_q));
    return tow_is_null(open) ? open : tow_mul(y, tow__as(tow_expand_dims(open, -1), tow_value_type(y).dtype));
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_multi_head_attention *m = (const tow_multi_head_attention *)module;
    tow__attention_call c;
    if (!read_call(scope, m, n_in, in, n_out, &c)) return;
    scope = tow__scope_with_dtypes(scope, layer, m->dtype, m->param_dtype);
    if (!scope) return;
    if (m->decode) c.start = tow__cache_index(scope);
    tow_value q = project(scope, m, "query", c.x_q, c.H, c.D);
    tow_value k = project(scope, m, "key", c.x_kv, c.G, c.D);
    tow_value v = project(scope, m, "value", c.x_kv, c.G, c.D);
    q = normalise(scope, m, "query_ln", q);
    k = normalise(scope, m, "key_ln", k);
    if (tow__scope_failed(scope)) return;
    tow_value qkv[3] = {q, k, v};
    tow__promote_floats(3, qkv);
    q = qkv[0], k = qkv[1], v = qkv[2];
    rotate(m, &c, &q, &k);
    if (tow__scope_failed(scope) || (m->decode && !tow__update_cache(scope, m, &c, &k, &v)) || !check_bias(scope, &c))
        return;
    tow_value y = attend(scope, m, &c, q, k, v);
    if (m->decode) tow__advance_index(scope, c.start, c.T);
    if (m->head_gates) y = gate_heads(scope, m, &c, y);
    y = tow_checkpoint_name(y, "attention");
    tow_dense_general project_out =
        TOW_DENSE_GENERAL(.features = {m->out_features ? m->out_features : tow_value_type(c.x_q).dims[2]}, .n_axes = 2,
                          .axes = {-2, -1}, .no_bias = m->no_bias || m->no_out_bias,
                          .kernel_init = tow__init_or(m->out_kernel_init, m->kernel_init), .bias_init = m->bias_init);
    out[0] = tow_apply(scope, "out", &project_out, y);
}

const tow_module_class tow_multi_head_attention_class = {.name = "MultiHeadAttention", .call = call};

/* MultiHeadAttention: projections, attention by heads, output projection.
 *
 * The attention is the fused primitive, which keeps its output and log-sum-exp only. With dropout of the weights it is
 * written out (attention_weights.c), since the weights [B, H, T, S] must exist to be dropped. */
#include "layers/attention.h"
#include "src/scope/tree.h"

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

/* The role of input i, by its type; NULL: none of them. Those of the first one's rank are x_q, x_k and x_v. */
static tow_value *place_of(tow__attention_call *c, size_t i, tow_type type)
{
    if (type.dtype == TOW_BOOL && i > 0) return &c->mask;
    if (type.dtype == TOW_I32 && i > 0) return &c->positions;
    if (!tow__is_float(type.dtype) || (i == 0 && (type.rank < 2 || type.rank >= TOW_MAX_RANK))) return NULL;
    if (i == 0) return &c->x_q;
    if (type.rank == c->type.rank + 1) return &c->bias;
    if (type.rank != c->type.rank || i > 2 || (i == 2 && tow_is_null(c->x_k))) return NULL;
    return i == 1 ? &c->x_k : &c->x_v;
}

static bool read_inputs(tow_scope *scope, size_t n_in, const tow_value *in, tow__attention_call *c)
{
    for (size_t i = 0; i < n_in; i++) {
        tow_type type = tow_value_type(in[i]);
        if (i == 0) c->type = type;
        tow_value *place = place_of(c, i, type);
        if (place && tow_is_null(*place)) {
            *place = in[i];
            continue;
        }
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                       "%s: input %zu: expected one to three floats [batch...,time,features], then at "
                       "most one mask (bool), bias (float, an axis more) and positions (i32), found %s",
                       layer, i, tow__type_name(type).text);
        return false;
    }
    if (tow_is_null(c->x_k)) c->x_k = c->x_q;
    if (tow_is_null(c->x_v)) c->x_v = c->x_k;
    return true;
}

/* x_k or x_v: the batch axes of x_q, and as many positions as x_k. */
static bool check_memory(tow_scope *scope, const tow__attention_call *c, size_t i, tow_value x, tow_value x_k)
{
    tow_type found = tow_value_type(x), expected = c->type;
    const int time = expected.rank - 2;
    expected.dims[time] = tow_value_type(x_k).dims[time];
    expected.dims[time + 1] = found.dims[time + 1];
    expected.dtype = found.dtype;
    if (tow_type_equal(expected, found)) return true;
    tow_scope_fail(scope, TOW_SHAPE_MISMATCH, "%s: input %zu: expected %s, for the %s of input %d, found %s", layer, i,
                   tow__type_name(expected).text, i == 1 ? "batch" : "positions", i == 1 ? 0 : 1,
                   tow__type_name(found).text);
    return false;
}

/* A value that broadcasts to [batch..., rest], where the rest are the last `kept` axes, with one batch axis: [B or 1,
 * rest]. A null value stays. */
static tow_value flatten(const tow__attention_call *c, tow_value v, int kept)
{
    tow_type type = tow_value_type(v);
    const int batch = c->type.rank - 2, given = type.rank - kept;
    int64_t dims[TOW_MAX_RANK], wide[TOW_MAX_RANK];
    bool shared = true;
    if (tow_is_null(v) || (batch == 1 && given == 1)) return v;
    for (int i = 0; i < given; i++) shared = shared && type.dims[i] == 1;
    for (int i = 0; i < batch; i++) wide[i] = c->type.dims[i];
    for (int i = 0; i < kept; i++) wide[batch + i] = dims[1 + i] = given + i < 0 ? 1 : type.dims[given + i];
    dims[0] = shared ? 1 : c->B;
    return tow_reshape(shared ? v : tow_broadcast_to(v, batch + kept, wide), 1 + kept, dims);
}

/* Mask or bias: it broadcasts to the logits. */
static bool check_broadcast(tow_scope *scope, const tow__attention_call *c, const char *what, tow_value v)
{
    tow_type found = tow_value_type(v), full = c->type;
    const int batch = full.rank - 2;
    if (tow_is_null(v)) return true;
    full.rank = batch + 3;
    full.dtype = found.dtype;
    full.dims[batch] = c->H, full.dims[batch + 1] = c->T, full.dims[batch + 2] = c->S;
    bool fits = found.rank <= full.rank;
    for (int i = 0; i < found.rank && fits; i++)
        fits = found.dims[i] == 1 || found.dims[i] == full.dims[full.rank - found.rank + i];
    if (!fits)
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH, "%s: the %s must be %s or have axes of size 1 in it, found %s", layer,
                       what, tow__type_name(full).text, tow__type_name(found).text);
    return fits;
}

/* Positions broadcast to [batch..., T], in which T is not 1. */
static bool check_positions(tow_scope *scope, const tow__attention_call *c)
{
    const tow_type found = tow_value_type(c->positions);
    tow_type full = c->type;
    if (tow_is_null(c->positions)) return true;
    full.rank--;
    full.dtype = TOW_I32;
    bool fits = found.rank > 0 && found.rank <= full.rank && found.dims[found.rank - 1] == c->T;
    for (int i = 0; i < found.rank - 1 && fits; i++)
        fits = found.dims[i] == 1 || found.dims[i] == full.dims[full.rank - found.rank + i];
    if (!fits)
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                       "%s: the positions must be i32[%lld], or %s or have batch axes of size 1 in it, found %s", layer,
                       (long long)c->T, tow__type_name(full).text, tow__type_name(found).text);
    return fits;
}

/* x [batch..., time, features] -> [B, time, features] */
static tow_value one_batch_axis(const tow__attention_call *c, tow_value x)
{
    const int64_t *dims = tow_value_type(x).dims + c->type.rank - 2;
    return tow_reshape(x, 3, (int64_t[]){c->B, dims[0], dims[1]});
}

/* All inputs with one batch axis, x of one type. */
static void flatten_inputs(tow__attention_call *c)
{
    tow_value *x[3] = {&c->x_q, &c->x_k, &c->x_v};
    const uint32_t ids[3] = {c->x_q.id, c->x_k.id, c->x_v.id};
    tow_dtype dtype = tow_promote_types(tow_promote_types(tow_value_type(c->x_q).dtype, tow_value_type(c->x_k).dtype),
                                        tow_value_type(c->x_v).dtype);
    for (int i = 0; i < 3; i++) {
        if (i > 0 && ids[i] == ids[i - 1])
            *x[i] = *x[i - 1]; /* one value stays one */
        else
            *x[i] = c->type.rank == 3 ? tow__as(*x[i], dtype) : one_batch_axis(c, tow__as(*x[i], dtype));
    }
    if (tow_value_type(c->positions).rank > 1) c->positions = flatten(c, c->positions, 1);
}

/* Finds out whether the call decodes, and with a memory. */
static bool read_decoding(tow_scope *scope, const tow_multi_head_attention *m, tow__attention_call *c)
{
    const bool memory = c->x_q.id != c->x_k.id || c->x_k.id != c->x_v.id;
    const char *wrong = NULL;
    c->remembers = m->decode && memory;
    c->causal = m->causal || (m->decode && !memory);
    if (m->recall && !c->remembers)
        wrong = ".recall without .decode or without a memory as further input, whose keys and values the cache has";
    else if (m->decode && c->type.rank != 3)
        wrong = ".decode with inputs of another rank than 3; expected [batch,time,features]";
    else if (c->remembers && (m->causal || m->window > 0 || m->rope))
        wrong = ".decode with a memory and .causal, .window or .rope; expected none of them, since a query sees all of "
                "the memory";
    if (wrong) tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "%s: %s", layer, wrong);
    return !wrong;
}

static bool read_call(tow_scope *scope, const tow_multi_head_attention *m, size_t n_in, const tow_value *in,
                      size_t n_out, tow__attention_call *c)
{
    *c = (tow__attention_call){.B = 1};
    if (!tow__check_counts(scope, layer, n_in, 1, 6, n_out) || !read_inputs(scope, n_in, in, c) ||
        !check_memory(scope, c, 1, c->x_k, c->x_k) || !check_memory(scope, c, 2, c->x_v, c->x_k))
        return false;
    const int time = c->type.rank - 2;
    int64_t features = m->qkv_features ? m->qkv_features : c->type.dims[time + 1],
            kv_heads = m->kv_heads ? m->kv_heads : m->heads;
    if (!check_options(scope, m, features, kv_heads)) return false;
    for (int i = 0; i < time; i++) c->B *= c->type.dims[i];
    c->T = c->type.dims[time], c->S = tow_value_type(c->x_k).dims[time];
    c->H = m->heads, c->G = kv_heads, c->D = features / m->heads;
    c->scale = m->scale != 0 ? m->scale : 1 / sqrt((double)c->D);
    if (!read_decoding(scope, m, c)) return false;
    if (!tow_is_null(c->positions) && (!m->rope || m->decode)) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "%s: positions are for .rope, and without .decode, which counts them", layer);
        return false;
    }
    if (!check_positions(scope, c)) return false;
    flatten_inputs(c);
    return !tow_is_null(c->x_q) && !tow_is_null(c->x_k) && !tow_is_null(c->x_v);
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

static tow_value normalize(tow_scope *scope, const tow_multi_head_attention *m, const char *name, tow_value x)
{
    tow_layer_norm layer_norm = TOW_LAYER_NORM(.epsilon = m->qk_norm_epsilon, .no_bias = true);
    tow_rms_norm rms_norm = TOW_RMS_NORM(.epsilon = m->qk_norm_epsilon);
    if (m->qk_norm == TOW_QK_NO_NORM) return x;
    return tow_apply_module(scope, name, m->qk_norm == TOW_QK_RMS_NORM ? &rms_norm.module : &layer_norm.module, x);
}

/* Queries and keys at their positions. */
static void rotate(tow_scope *scope, const tow_multi_head_attention *m, const tow__attention_call *c, tow_value *q,
                   tow_value *k)
{
    tow_value at = c->positions;
    if (!m->rope) return;
    if (!tow_is_null(c->start)) at = tow__positions_from(scope, c->start, c->T);
    const tow_rope_options *o = &m->rope_options;
    const tow_rope rope = TOW_ROPE(.features = o->features, .theta = o->theta, .interleaved = o->interleaved,
                                   .scaling = o->scaling, .factor = o->factor, .low_frequency = o->low_frequency,
                                   .high_frequency = o->high_frequency, .original_length = o->original_length);
    *q = tow_apply_rope(*q, at, &rope);
    *k = tow_apply_rope(*k, c->x_q.id == c->x_k.id ? at : (tow_value){0}, &rope);
}

/* [B, rest] -> [batch..., rest] */
static tow_value with_batch_axes(const tow__attention_call *c, tow_value y)
{
    tow_type type = tow_value_type(y);
    const int batch = c->type.rank - 2;
    int64_t dims[TOW_MAX_RANK];
    if (batch == 1 || tow_is_null(y)) return y;
    for (int i = 0; i < batch; i++) dims[i] = c->type.dims[i];
    for (int i = 1; i < type.rank; i++) dims[batch + i - 1] = type.dims[i];
    return tow_reshape(y, batch + type.rank - 1, dims);
}

/* Keys or values of a cache as numbers of `dtype`. */
static tow_value numbers_of(tow_value x, tow_dtype dtype)
{
    return tow_dtype_numbers(tow_value_type(x).dtype) > 1 ? tow_dequantize(x, dtype) : tow__as(x, dtype);
}

/* Attention on a cache as it is stored, in 16 bits or in blocks, which the kernel decodes. Queries are of f32 then, and
 * the result is rounded to their type. */
static tow_value attend_to_stored(const tow_multi_head_attention *m, const tow__attention_call *c, tow_value q,
                                  tow_value k, tow_value v)
{
    const tow_dtype dtype = tow_value_type(q).dtype, stored = tow_value_type(k).dtype;
    const bool is_stored = tow__stores_less(stored);
    const bool decodes = m->decode && is_stored && dtype != TOW_F64;
    const tow_dtype computed = decodes ? TOW_F32 : dtype;
    if (!decodes && stored != dtype) k = numbers_of(k, dtype), v = numbers_of(v, dtype);
    const tow_attention_options options =
        TOW_ATTENTION_OPTIONS(.causal = c->causal, .scale = m->scale, .mask = c->mask,
                              .bias = tow__as(tow__as(c->bias, dtype), computed), .offset = c->start,
                              .window = m->window, .logit_cap = m->logit_cap);
    return tow__as(tow_attention(tow__as(q, computed), k, v, &options), dtype);
}

/* q [B, T, H, D], k and v [B, S, G, D] -> [B, T, H, D] */
static tow_value attend(tow_scope *scope, const tow_multi_head_attention *m, const tow__attention_call *c, tow_value q,
                        tow_value k, tow_value v)
{
    bool drops = m->dropout_rate > 0 && !m->deterministic && !tow_scope_is_deterministic(scope);
    bool sows = m->sow_weights && tow_is_mutable(scope, "intermediates");
    if (drops || sows) {
        k = numbers_of(k, tow_value_type(q).dtype);
        v = numbers_of(v, tow_value_type(q).dtype);
    }
    tow_value weights = drops || sows ? tow__attention_weights(m, c, q, k) : (tow_value){0};
    if (sows) tow_sow(scope, "intermediates", "attention_weights", with_batch_axes(c, weights));
    if (drops) {
        tow_value key = tow_make_rng(scope, "dropout");
        weights = tow_dropout_with_key(weights, key, m->dropout_rate, m->dropout_each ? 0 : 2, (int[]){0, 1});
        return tow__weigh_values(c, weights, v);
    }
    return attend_to_stored(m, c, q, k, v);
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
    const bool counts = m->decode && !c.remembers;
    if (counts) c.start = tow__cache_index(scope);
    tow_value q = project(scope, m, "query", c.x_q, c.H, c.D);
    tow_value k = project(scope, m, "key", c.x_k, c.G, c.D);
    tow_value v = project(scope, m, "value", c.x_v, c.G, c.D);
    q = normalize(scope, m, "query_ln", q);
    k = normalize(scope, m, "key_ln", k);
    if (tow__scope_failed(scope)) return;
    tow_value qkv[3] = {q, k, v};
    tow__promote_floats(3, qkv);
    q = qkv[0], k = qkv[1], v = qkv[2];
    rotate(scope, m, &c, &q, &k);
    if (tow__scope_failed(scope) || (counts && !tow__update_cache(scope, m, &c, &k, &v)) ||
        (c.remembers && !tow__remember(scope, m, &k, &v)) || !check_broadcast(scope, &c, "mask", c.mask) ||
        !check_broadcast(scope, &c, "bias", c.bias))
        return;
    c.mask = flatten(&c, c.mask, 3);
    c.bias = flatten(&c, c.bias, 3);
    tow_value y = attend(scope, m, &c, q, k, v);
    if (counts) tow__advance_index(scope, c.start, c.T);
    if (m->head_gates) y = gate_heads(scope, m, &c, y);
    y = tow_checkpoint_name(y, "attention");
    tow_dense_general project_out =
        TOW_DENSE_GENERAL(.features = {m->out_features ? m->out_features : tow_value_type(c.x_q).dims[2]}, .n_axes = 2,
                          .axes = {-2, -1}, .no_bias = m->no_bias || m->no_out_bias,
                          .kernel_init = tow__init_or(m->out_kernel_init, m->kernel_init), .bias_init = m->bias_init);
    out[0] = with_batch_axes(&c, tow_apply(scope, "out", &project_out, y));
}

const tow_module_class tow_multi_head_attention_class = {
    TOW__MADE_BY(TOW_MULTI_HEAD_ATTENTION, tow_multi_head_attention), .name = "MultiHeadAttention", .call = call,
    .layout = TOW__LAYOUT(tow_multi_head_attention)};

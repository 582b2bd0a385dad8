/* Scaled dot-product attention with grouped heads (Vaswani et al., "Attention is all you need", 2017; Ainslie et al.,
 * "GQA", 2023). The fused pair keeps q, k, v, the output and the log-sum-exp of each row, never the probabilities (Dao
 * et al., "FlashAttention", 2022).
 *   q: [B, T, H, D], k: [B, S, G, D], v: [B, S, G, E],
 *   mask: bool [B|1, H|1, T|1, S|1], bias: likewise, offset: i32 [] or [B]
 *   -> out: [B, T, H, E], lse: [B, H, T]
 * Keys and values may be stored in less than queries of f32: in 16 bits, or in blocks, [B, S, G, D / 32]. The
 * results are those of their numbers in f32; the kernel decodes them while it reads them.
 * Head h reads group h / (H/G). Inside, heads stand before rows, and the R = H/G heads of a group are rows of one
 * product:
 *   [B, T, H, d] -> [B, H, T, d] = [B, G, R T, d];  scores: [B, H, T, S] = [B, G, R T, S]
 * Logits are l = scale q k, or c = cap tanh(l / cap), plus the bias. Derivatives, with p = exp(logits - lse) and the
 * slope of the cap 1 - (c / cap)^2, or 1:
 *   tangent:    dl = slope scale (dq k + q dk) where visible, else 0;
 *               dout = (p dl) v - sum(p dl) out + p dv
 *   cotangents: dl = slope p (ct v - sum(ct out)) where visible;
 *               dq = scale dl k, dk = dl' (scale q), dv = p' ct */
#include <float.h>
#include <math.h>

#include "src/base/dtypes.h"
#include "src/ops/rules.h"
#include "tow/numpy.h"

enum {
    WRT_Q = 1,
    WRT_K = 2,
    WRT_V = 4,
    MOST_OPERANDS = 11 /* of a companion: q, k, v, out, lse, mask, bias, offset, dq, dk, dv */
};

/* Shared by the decompositions. */
typedef struct attention {
    tow_trace *t;
    tow_dtype dtype;
    int64_t b, t_len, s_len, heads, groups, d, e; /* B T S H G D E */
    tow_value q, k, v;                            /* q: scaled, [B, G, R T, D]; k: [B, S, G, D]; v: [B, S, G, E] */
    tow_value visible;                            /* bool [B, H, T, S], null: everything */
    tow_value bias;                               /* [B, H, T, S], null: none */
    double scale, cap;
} attention;

/* The operands that may stand behind q, k and v, and behind the statistics of companions: which are there, and
 * where. */
typedef struct optional {
    int mask, bias, offset; /* -1: not there */
    size_t end;             /* of these operands */
} optional;

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* Keys and values may be of this type beside queries of f32. */
static bool may_be_stored(tow_dtype dtype) { return tow__is_half(dtype) || tow_dtype_numbers(dtype) > 1; }

/* A type with numbers in place of blocks. */
static tow_type type_of_numbers(tow_type type)
{
    if (type.rank == 4) type.dims[3] *= tow_dtype_numbers(type.dtype);
    return type;
}

/* x as numbers of `dtype`. */
static tow_value numbers_of(tow_value x, tow_dtype dtype)
{
    const tow_dtype stored = tow_value_type(x).dtype;
    if (stored == dtype || tow_is_null(x)) return x;
    return tow_dtype_numbers(stored) > 1 ? tow_dequantize(x, dtype) : tow_convert(x, dtype);
}

/* [B, T, H, d] -> [B, G, R T, d] */
static tow_value to_groups(const attention *a, tow_value x, int64_t d)
{
    x = tow_transpose(x, 4, (int[]){0, 2, 1, 3});
    return tow_reshape(x, 4, (int64_t[]){a->b, a->groups, a->heads / a->groups * a->t_len, d});
}

/* [B, G, R T, d] -> [B, T, H, d] */
static tow_value from_groups(const attention *a, tow_value x, int64_t d)
{
    x = tow_reshape(x, 4, (int64_t[]){a->b, a->heads, a->t_len, d});
    return tow_transpose(x, 4, (int[]){0, 2, 1, 3});
}

/* [B, G, R T, S] <-> [B, H, T, S] */
static tow_value scores_by_head(const attention *a, tow_value x)
{
    return tow_reshape(x, 4, (int64_t[]){a->b, a->heads, a->t_len, a->s_len});
}
static tow_value scores_by_group(const attention *a, tow_value x)
{
    return tow_reshape(x, 4, (int64_t[]){a->b, a->groups, a->heads / a->groups * a->t_len, a->s_len});
}

/* [B, H, T] -> [B, H, T, S] */
static tow_value per_score(const attention *a, tow_value x)
{
    int64_t shape[4] = {a->b, a->heads, a->t_len, a->s_len};
    return tow_broadcast_in_dim(x, 4, shape, (int[]){0, 1, 2});
}

/* ---- products, batched over B and G ------------------------------------------------------------------------------ */

/* rows [B, G, R T, d] . keys [B, S, G, d] -> [B, H, T, S] */
static tow_value times_keys(const attention *a, tow_value rows, tow_value keys)
{
    tow_dot_dims dims = {.n_contract = 1,
                         .lhs_contract = {3},
                         .rhs_contract = {3},
                         .n_batch = 2,
                         .lhs_batch = {0, 1},
                         .rhs_batch = {0, 2}};
    return scores_by_head(a, tow_dot_general(rows, keys, dims));
}

/* scores [B, H, T, S] . values [B, S, G, d] -> [B, G, R T, d] */
static tow_value times_values(const attention *a, tow_value scores, tow_value values)
{
    tow_dot_dims dims = {.n_contract = 1,
                         .lhs_contract = {3},
                         .rhs_contract = {1},
                         .n_batch = 2,
                         .lhs_batch = {0, 1},
                         .rhs_batch = {0, 2}};
    return tow_dot_general(scores_by_group(a, scores), values, dims);
}

/* transposed scores [B, H, T, S] . rows [B, G, R T, d] -> [B, S, G, d] */
static tow_value to_keys(const attention *a, tow_value scores, tow_value rows)
{
    tow_dot_dims dims = {.n_contract = 1,
                         .lhs_contract = {2},
                         .rhs_contract = {2},
                         .n_batch = 2,
                         .lhs_batch = {0, 1},
                         .rhs_batch = {0, 1}};
    return tow_transpose(tow_dot_general(scores_by_group(a, scores), rows, dims), 4, (int[]){0, 2, 1, 3});
}

/* ---- logits and probabilities ------------------------------------------------------------------------------------ */

/* i32 [B, 1, T, S] or [T, S]: the positions of the queries; their offset may be null. */
static tow_value positions(const attention *a, tow_value offset)
{
    int64_t shape[4] = {a->b, 1, a->t_len, a->s_len};
    tow_value row = tow_iota(a->t, tow_make_type(TOW_I32, 2, shape + 2), 0);
    if (tow_is_null(offset)) return tow_add_scalar(row, (double)(a->s_len - a->t_len));
    row = tow_broadcast_to(row, 4, shape);
    bool own = tow_value_type(offset).rank > 0; /* of each sequence */
    return tow_add(row, tow_broadcast_in_dim(offset, 4, shape, own ? (int[]){0} : NULL));
}

/* The keys that causality, the window and the mask leave visible; null: all. */
static tow_value visibility(const attention *a, bool causal, int64_t window, tow_value mask, tow_value offset)
{
    int64_t shape[4] = {a->b, a->heads, a->t_len, a->s_len};
    tow_value visible = tow__null();
    if (causal || window > 0) {
        tow_value row = positions(a, offset);
        tow_type type = tow_value_type(row);
        tow_value column = tow_iota(a->t, type, type.rank - 1);
        if (causal) visible = tow_le(column, row);
        if (window > 0) {
            tow_value near = tow_lt_scalar(tow_abs(tow_sub(row, column)), (double)window);
            visible = tow_is_null(visible) ? near : tow_and(visible, near);
        }
        visible = tow_broadcast_to(visible, 4, shape);
    }
    if (tow_is_null(mask)) return visible;
    mask = tow_broadcast_to(mask, 4, shape);
    return tow_is_null(visible) ? mask : tow_and(visible, mask);
}

static attention begin(tow_trace *t, const tow_value *x, const tow__attention_params *p, const optional *o)
{
    tow_value none = tow__null();
    tow_type q = tow_value_type(x[0]), v = type_of_numbers(tow_value_type(x[2]));
    attention a = {.t = t,
                   .dtype = q.dtype,
                   .b = q.dims[0],
                   .t_len = q.dims[1],
                   .heads = q.dims[2],
                   .d = q.dims[3],
                   .s_len = v.dims[1],
                   .groups = v.dims[2],
                   .e = v.dims[3],
                   .k = numbers_of(x[1], q.dtype),
                   .v = numbers_of(x[2], q.dtype),
                   .scale = p->scale,
                   .cap = p->cap};
    a.q = to_groups(&a, tow_mul_scalar(x[0], p->scale), a.d);
    a.visible =
        visibility(&a, p->causal, p->window, o->mask < 0 ? none : x[o->mask], o->offset < 0 ? none : x[o->offset]);
    if (o->bias >= 0) a.bias = tow_broadcast_to(x[o->bias], 4, (int64_t[]){a.b, a.heads, a.t_len, a.s_len});
    return a;
}

static double lowest(const attention *a) { return a->dtype == TOW_F64 ? -DBL_MAX : -(double)FLT_MAX; }

/* Of the products of queries and keys; *slope is the derivative of the cap, null: 1. */
static tow_value capped(const attention *a, tow_value logits, tow_value *slope)
{
    if (slope) *slope = tow__null();
    if (a->cap == 0) return logits;
    tow_value y = tow_tanh(tow_div_scalar(logits, a->cap));
    if (slope) *slope = tow_rsub_scalar(tow_square(y), 1);
    return tow_mul_scalar(y, a->cap);
}

static tow_value logits_of(const attention *a, tow_value *slope)
{
    tow_value logits = capped(a, times_keys(a, a->q, a->k), slope);
    if (!tow_is_null(a->bias)) logits = tow_add(logits, a->bias);
    return tow_is_null(a->visible) ? logits : tow_where(a->visible, logits, tow_full_like(logits, lowest(a)));
}

/* exp(logits - lse). A row without any visible key has lse = lowest, to which log(S) is lost: its probabilities are
 * 1/S. */
static tow_value probabilities(const attention *a, tow_value lse, tow_value *slope)
{
    tow_value p = tow_exp(tow_sub(logits_of(a, slope), per_score(a, lse)));
    if (tow_is_null(a->visible)) return p;
    tow_value blind = tow_le(lse, tow_full_like(lse, lowest(a)));
    return tow_where(per_score(a, blind), tow_full_like(p, 1 / (double)a->s_len), p);
}

static tow_value where_visible(const attention *a, tow_value x)
{
    return tow_is_null(a->visible) ? x : tow_where(a->visible, x, tow_zeros_like(x));
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* The optional operands of attention, by their types: behind q, k, v a bool mask, a float bias, an integer offset. */
static optional optional_of(uint32_t n_in, const tow_type *const *types)
{
    optional o = {-1, -1, -1, 3};
    if (o.end < n_in && types[o.end]->dtype == TOW_BOOL) o.mask = (int)o.end++;
    if (o.end < n_in && tow__dtype_in(types[o.end]->dtype, TOW__FLOATS)) o.bias = (int)o.end++;
    if (o.end < n_in && types[o.end]->dtype == TOW_I32) o.offset = (int)o.end++;
    return o;
}

/* Those of companions, by their parameters. */
static optional optional_of_companion(const tow__attention_ad_params *p)
{
    optional o = {-1, -1, -1, 5};
    if (p->masked) o.mask = (int)o.end++;
    if (p->biased) o.bias = (int)o.end++;
    if (p->shifted) o.offset = (int)o.end++;
    return o;
}

/* Checks the type of an operand that broadcasts to the logits. */
static tow_status logits_type(const tow__typing *ty, const char *what, tow_dtype dtype, tow_type found)
{
    tow_type q = ty->in[0], k = ty->in[1];
    int64_t full[4] = {q.dims[0], q.dims[2], q.dims[1], k.dims[1]};
    bool fits = found.dtype == dtype && found.rank == 4;
    for (int d = 0; fits && d < 4; d++) fits = found.dims[d] == full[d] || found.dims[d] == 1;
    if (fits) return TOW_OK;
    return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "the %s must be %s or have axes of size 1 in it, found %s", what,
                          tow__type_name(tow_make_type(dtype, 4, full)).text, tow__type_name(found).text);
}

static tow_status offset_type(const tow__typing *ty, tow_type found)
{
    if (found.dtype == TOW_I32 && (found.rank == 0 || (found.rank == 1 && found.dims[0] == ty->in[0].dims[0])))
        return TOW_OK;
    return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "the offset must be i32[] or i32[%lld], found %s",
                          (long long)ty->in[0].dims[0], tow__type_name(found).text);
}

/* q, k, v (operands 0..2) and the optional operands fit together, the parameters are in their ranges. stores: k and v
 * may be stored in another type than q. */
static tow_status operands_type(const tow__typing *ty, const optional *o, double cap, int64_t window, bool stores)
{
    tow_type q = ty->in[0], k = type_of_numbers(ty->in[1]), v = type_of_numbers(ty->in[2]);
    tow_status status = tow__require_dtype(ty, 0, TOW__FLOATS);
    for (size_t i = 0; status == TOW_OK && i < 3; i++) {
        const bool stored =
            stores && i > 0 && q.dtype == TOW_F32 && k.dtype == v.dtype && may_be_stored(ty->in[i].dtype);
        status = tow__require_rank(ty, i, 4);
        if (status == TOW_OK && ty->in[i].dtype != q.dtype && !stored)
            return tow__type_fail(
                ty, TOW_TYPE_MISMATCH,
                "queries, keys and values must have one element type, or keys and values one of bf16, "
                "f16, q8_0, q4_0, q4_k and q6_k beside queries of f32, found %s and %s",
                tow__type_name(q).text, tow__type_name(ty->in[i]).text);
    }
    if (status != TOW_OK) return status;
    if (k.dims[0] != q.dims[0] || v.dims[0] != q.dims[0] || v.dims[1] != k.dims[1] || v.dims[2] != k.dims[2] ||
        k.dims[3] != q.dims[3])
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "expected q [B, T, H, D], k [B, S, G, D], v [B, S, G, E], found %s, %s, %s",
                              tow__type_name(q).text, tow__type_name(k).text, tow__type_name(v).text);
    if (k.dims[1] == 0 || k.dims[2] == 0 || q.dims[2] % k.dims[2] != 0)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "there must be keys, and their %lld groups must divide the %lld heads of the "
                              "queries; found q %s, k %s",
                              (long long)k.dims[2], (long long)q.dims[2], tow__type_name(q).text,
                              tow__type_name(k).text);
    if (!(cap >= 0 && isfinite(cap)) || window < 0)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "cap and window must not be negative, found %g and %lld", cap,
                              (long long)window);
    if (o->mask >= 0) status = logits_type(ty, "mask", TOW_BOOL, ty->in[o->mask]);
    if (status == TOW_OK && o->bias >= 0) status = logits_type(ty, "bias", q.dtype, ty->in[o->bias]);
    if (status == TOW_OK && o->offset >= 0) status = offset_type(ty, ty->in[o->offset]);
    return status;
}

static tow_type out_type(const tow__typing *ty)
{
    tow_type q = ty->in[0];
    return tow_make_type(q.dtype, 4, (int64_t[]){q.dims[0], q.dims[1], q.dims[2], type_of_numbers(ty->in[2]).dims[3]});
}

static tow_type lse_type(const tow__typing *ty)
{
    tow_type q = ty->in[0];
    return tow_make_type(tow__wide(q.dtype), 3, (int64_t[]){q.dims[0], q.dims[2], q.dims[1]});
}

static tow_status attention_type(const tow__typing *ty)
{
    const tow__attention_params *p = ty->params;
    const tow_type *types[MOST_OPERANDS] = {NULL};
    for (uint32_t i = 0; i < ty->n_in && i < MOST_OPERANDS; i++) types[i] = &ty->in[i];
    optional o = optional_of((uint32_t)(ty->n_in < MOST_OPERANDS ? ty->n_in : MOST_OPERANDS), types);
    tow_status status = tow__require_count(ty, ty->n_in < 3 ? 3 : o.end, 2);
    if (status == TOW_OK) status = operands_type(ty, &o, p->cap, p->window, true);
    if (status != TOW_OK) return status;
    ty->out[0] = out_type(ty);
    ty->out[1] = lse_type(ty);
    return TOW_OK;
}

static optional optional_of_values(uint32_t n_in, const tow_value *x)
{
    tow_type of[MOST_OPERANDS];
    const tow_type *types[MOST_OPERANDS];
    for (uint32_t i = 0; i < n_in; i++) {
        of[i] = tow_value_type(x[i]);
        types[i] = &of[i];
    }
    return optional_of(n_in, types);
}

static void attention_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    optional o = optional_of_values(e->n_in, x);
    attention a = begin(t, x, e->params, &o);
    tow_value logits = logits_of(&a, NULL), top = tow_stop_gradient(tow_reduce_max(logits, 1, (int[]){3}));
    tow_value weights = tow_exp(tow_sub(logits, per_score(&a, top)));
    tow_value sum = tow_reduce_sum(weights, 1, (int[]){3});
    y[0] = from_groups(&a, times_values(&a, tow_div(weights, per_score(&a, sum)), a.v), a.e);
    y[1] = tow_add(tow_log(sum), top);
}

static void attention_jvp(tow__jvp *r)
{
    const tow__attention_params *params = r->e->params;
    optional o = optional_of_values(r->e->n_in, r->x);
    const bool stored = tow_value_type(r->x[1]).dtype != tow_value_type(r->x[0]).dtype;
    if (!r->reverse || stored || tow__uses_residual_outputs(r) || (o.bias >= 0 && !tow_is_null(r->dx[o.bias]))) {
        r->decomposed(r);
        return;
    }
    tow__attention_ad_params p = {.causal = params->causal,
                                  .masked = o.mask >= 0,
                                  .biased = o.bias >= 0,
                                  .shifted = o.offset >= 0,
                                  .scale = params->scale,
                                  .cap = params->cap,
                                  .window = params->window};
    tow__jvp_primal(r);
    tow_value in[MOST_OPERANDS] = {r->x[0], r->x[1], r->x[2], r->y[0], r->y[1]};
    size_t n = 5;
    for (uint32_t i = 3; i < r->e->n_in; i++) in[n++] = r->x[i];
    for (int i = 0; i < 3; i++) {
        if (tow_is_null(r->dx[i])) continue;
        in[n++] = r->dx[i];
        p.wrt |= 1 << i;
    }
    r->dy[0] = tow__op(&tow__attention_jvp_p, &p, n, in);
}

/* ---- companions: (q, k, v, out, lse [, mask] [, bias] [, offset], ...) ------------------------------------------- */

static size_t residual_count(const tow__attention_ad_params *p) { return optional_of_companion(p).end; }

static tow_status residuals_type(const tow__typing *ty, const tow__attention_ad_params *p, size_t rest)
{
    if (p->wrt <= 0 || p->wrt > 7)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "wrt must name some of q, k, v by bits 0 to 2, found %lld",
                              (long long)p->wrt);
    tow_status status = tow__require_count(ty, residual_count(p) + rest, ty->n_out);
    optional o = optional_of_companion(p);
    if (status == TOW_OK) status = operands_type(ty, &o, p->cap, p->window, false);
    if (status != TOW_OK) return status;
    if (!tow_type_equal(ty->in[3], out_type(ty)) || !tow_type_equal(ty->in[4], lse_type(ty)))
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "output and log-sum-exp must be %s and %s, found %s and %s",
                              tow__type_name(out_type(ty)).text, tow__type_name(lse_type(ty)).text,
                              tow__type_name(ty->in[3]).text, tow__type_name(ty->in[4]).text);
    return TOW_OK;
}

/* Operands are residuals, then tangents. */
static bool attention_jvp_linear_in(const tow__equation *e, const bool *depends)
{
    return tow__linear_behind(e, depends, residual_count(e->params));
}

static size_t count_wrt(int64_t wrt) { return (size_t)((wrt & 1) + (wrt >> 1 & 1) + (wrt >> 2 & 1)); }

static tow_status attention_jvp_type(const tow__typing *ty)
{
    const tow__attention_ad_params *p = ty->params;
    tow_status status = residuals_type(ty, p, count_wrt(p->wrt));
    size_t next = residual_count(p);
    for (int i = 0; status == TOW_OK && i < 3; i++)
        if (p->wrt >> i & 1 && !tow_type_equal(ty->in[next++], ty->in[i]))
            status = tow__type_fail(ty, TOW_SHAPE_MISMATCH, "tangent operand %zu must be %s, found %s", next - 1,
                                    tow__type_name(ty->in[i]).text, tow__type_name(ty->in[next - 1]).text);
    if (status == TOW_OK) ty->out[0] = out_type(ty);
    return status;
}

static tow_status attention_vjp_type(const tow__typing *ty)
{
    const tow__attention_ad_params *p = ty->params;
    tow_status status = residuals_type(ty, p, 1);
    size_t ct = residual_count(p), next = 0;
    if (status == TOW_OK) status = tow__require_count(ty, ct + 1, count_wrt(p->wrt));
    if (status != TOW_OK) return status;
    if (!tow_type_equal(ty->in[ct], out_type(ty)))
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "the cotangent must be %s, found %s",
                              tow__type_name(out_type(ty)).text, tow__type_name(ty->in[ct]).text);
    for (int i = 0; i < 3; i++)
        if (p->wrt >> i & 1) ty->out[next++] = ty->in[i];
    return TOW_OK;
}

static attention begin_companion(tow_trace *t, const tow__equation *e, const tow_value *x)
{
    const tow__attention_ad_params *p = e->params;
    tow__attention_params forward = {.causal = p->causal, .scale = p->scale, .cap = p->cap, .window = p->window};
    optional o = optional_of_companion(p);
    return begin(t, x, &forward, &o);
}

static void attention_jvp_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow__attention_ad_params *params = e->params;
    attention a = begin_companion(t, e, x);
    const tow_value *tangent = x + residual_count(params);
    tow_value slope, p = probabilities(&a, x[4], &slope), dl = tow__null();
    y[0] = tow__null();
    if (params->wrt & WRT_Q) dl = times_keys(&a, to_groups(&a, tow_mul_scalar(*tangent++, a.scale), a.d), a.k);
    if (params->wrt & WRT_K) dl = tow__add_or(dl, times_keys(&a, a.q, *tangent++));
    if (!tow_is_null(dl) && !tow_is_null(slope)) dl = tow_mul(dl, slope);
    if (!tow_is_null(dl)) {
        tow_value pdl = tow_mul(p, where_visible(&a, dl));
        tow_value sum = tow_transpose(tow_reduce_sum(pdl, 1, (int[]){3}), 3, (int[]){0, 2, 1}); /* [B, T, H] */
        tow_type type = tow_value_type(x[3]);
        tow_value shift = tow_mul(tow_broadcast_in_dim(sum, 4, type.dims, (int[]){0, 1, 2}), x[3]);
        y[0] = tow_sub(from_groups(&a, times_values(&a, pdl, a.v), a.e), shift);
    }
    if (params->wrt & WRT_V) y[0] = tow__add_or(y[0], from_groups(&a, times_values(&a, p, *tangent++), a.e));
}

static void attention_vjp_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow__attention_ad_params *params = e->params;
    attention a = begin_companion(t, e, x);
    tow_value ct = x[residual_count(params)], rows = to_groups(&a, ct, a.e), slope;
    tow_value p = probabilities(&a, x[4], &slope), dl = tow__null();
    if (params->wrt & (WRT_Q | WRT_K)) {
        tow_value sum =
            tow_transpose(tow_reduce_sum(tow_mul(ct, x[3]), 1, (int[]){3}), 3, (int[]){0, 2, 1}); /* [B, H, T] */
        dl = where_visible(&a, tow_mul(p, tow_sub(times_keys(&a, rows, a.v), per_score(&a, sum))));
        if (!tow_is_null(slope)) dl = tow_mul(dl, slope);
    }
    if (params->wrt & WRT_Q) *y++ = tow_mul_scalar(from_groups(&a, times_values(&a, dl, a.k), a.d), a.scale);
    if (params->wrt & WRT_K) *y++ = to_keys(&a, dl, a.q);
    if (params->wrt & WRT_V) *y++ = to_keys(&a, p, rows);
}

static void attention_jvp_transpose(tow__transpose *r)
{
    tow__attention_ad_params p = *(const tow__attention_ad_params *)r->e->params;
    tow__transpose_to_vjp(r, &tow__attention_vjp_p, &p, &p.wrt, residual_count(&p));
}

/* ---- batching: rows of the batch are sequences like those that there are ----------------------------------------- */

/* [rows, B, ...] -> [rows B, ...] */
static tow_value join_sequences(tow_value x)
{
    tow_type type = tow_value_type(x);
    type.dims[1] *= type.dims[0];
    return tow_is_null(x) ? x : tow_reshape(x, type.rank - 1, type.dims + 1);
}

/* A mask or bias that all sequences share stays so; others are those of each sequence. */
static tow_value join_masks(const tow__batch *r, uint32_t i)
{
    if (!tow__is_batched(r->x[i]) && r->in[i].dims[0] == 1) return r->x[i].value;
    tow_value mask = tow__batch_operand(r, i, 0);
    tow_type type = tow_value_type(mask);
    type.dims[1] = r->in[0].dims[0];
    return join_sequences(tow_broadcast_to(mask, type.rank, type.dims));
}

/* One offset for all, or one for each sequence. */
static tow_value join_offsets(const tow__batch *r, uint32_t i)
{
    if (!tow__is_batched(r->x[i]) && r->in[i].rank == 0) return r->x[i].value;
    int64_t shape[2] = {r->size, r->in[0].dims[0]}, joined = shape[0] * shape[1];
    tow_value offset = tow__batch_operand(r, i, 0); /* [rows] or [rows, B] */
    if (r->in[i].rank == 0) offset = tow_broadcast_in_dim(offset, 2, shape, (int[]){0});
    return tow_reshape(offset, 1, &joined);
}

static void batch_sequences(tow__batch *r, const optional *o)
{
    tow_value in[MOST_OPERANDS];
    for (uint32_t i = 0; i < r->e->n_in; i++) {
        bool shared = (int)i == o->mask || (int)i == o->bias;
        in[i] = shared                ? join_masks(r, i)
                : (int)i == o->offset ? join_offsets(r, i)
                                      : join_sequences(tow__batch_operand(r, i, 0));
    }
    tow__batch_bind(r, r->e->params, in, 0);
    for (uint32_t i = 0; i < r->e->n_out; i++) {
        tow_type type = tow__with_axis(r->out[i], 0, r->size);
        r->y[i].value = tow_reshape(r->y[i].value, type.rank, type.dims);
    }
}

static void attention_batch(tow__batch *r)
{
    const tow_type *types[MOST_OPERANDS];
    for (uint32_t i = 0; i < r->e->n_in; i++) types[i] = &r->in[i];
    optional o = optional_of(r->e->n_in, types);
    batch_sequences(r, &o);
}

static void attention_vjp_batch(tow__batch *r)
{
    optional o = optional_of_companion(r->e->params);
    batch_sequences(r, &o);
}

/* ---- tiling and cost --------------------------------------------------------------------------------------------- */

/* Sequences, with a mask, a bias or an offset that all of them share, if they do. */
static bool tile_attention(const tow__operation *o, int axis, int *from)
{
    for (uint32_t i = 0; i < o->n_in; i++) {
        const tow_type *type = tow__in_type(o, i);
        bool shared = i >= 3 && (type->rank == 0 || tow__extent(type, 0) == 1);
        from[i] = type->rank > 0 && tow__same_extent(o, axis, i, 0) ? 0 : TOW__WHOLE;
        if (from[i] == TOW__WHOLE && !shared) return false;
    }
    return axis == 0;
}

/* Pairs of a query and a key that it may see, in one head; a mask or an offset, which are not known here, may hide
 * more. */
static double pairs(int64_t queries, int64_t keys, bool causal, int64_t window)
{
    double near = window > 0 ? (double)window : (double)keys;
    if (!causal) return (double)queries * fmin((double)keys, 2 * near - (window > 0));
    double seeing = (double)(queries < keys ? queries : keys); /* the last one sees all keys, each before it one less */
    double cut = fmax(0, fmin(seeing, (double)keys - near));   /* of so many the window hides some */
    return seeing * (double)keys - seeing * (seeing - 1) / 2 - (cut * ((double)keys - near) - cut * (cut - 1) / 2);
}

/* features: those of a head that products sum or make, all together. q [B, T, H, D], k [B, S, G, D], v [B, S, G, E] */
static tow__op_cost products_cost(const tow__operation *o, bool causal, int64_t window, double features)
{
    const int64_t *q = tow__in_type(o, 0)->dims, *v = tow__in_type(o, 2)->dims;
    return tow__exact_cost(2 * features * (double)(q[0] * q[2]) * pairs(q[1], v[1], causal, window));
}

/* Logits, and what they weigh of v. */
static tow__op_cost attention_cost(const tow__operation *o)
{
    double d = (double)tow__in_type(o, 0)->dims[3], e = (double)type_of_numbers(*tow__in_type(o, 2)).dims[3];
    const tow__attention_params *p = o->params;
    return products_cost(o, p->causal, p->window, d + e);
}

/* Logits again, the cotangents of probabilities, and a product for each gradient. */
static tow__op_cost attention_vjp_cost(const tow__operation *o)
{
    const tow__attention_ad_params *p = o->params;
    double d = (double)tow__in_type(o, 0)->dims[3], e = (double)tow__in_type(o, 2)->dims[3];
    double gradients = (p->wrt & 1 ? d : 0) + (p->wrt & 2 ? d : 0) + (p->wrt & 4 ? e : 0);
    return products_cost(o, p->causal, p->window, d + e + gradients);
}

#define AD_PARAMS                                                                                                      \
    TOW__PARAMS(tow__attention_ad_params, TOW__PARAM(tow__attention_ad_params, causal, TOW__P_BOOL),                   \
                TOW__PARAM(tow__attention_ad_params, masked, TOW__P_BOOL),                                             \
                TOW__PARAM(tow__attention_ad_params, biased, TOW__P_BOOL),                                             \
                TOW__PARAM(tow__attention_ad_params, shifted, TOW__P_BOOL),                                            \
                TOW__PARAM(tow__attention_ad_params, scale, TOW__P_FLOAT),                                             \
                TOW__PARAM(tow__attention_ad_params, cap, TOW__P_AMOUNT),                                              \
                TOW__PARAM(tow__attention_ad_params, window, TOW__P_COUNT),                                            \
                TOW__PARAM(tow__attention_ad_params, wrt, TOW__P_INT))

TOW__PRIMITIVE(attention, TOW__COMPOSITE, tile_attention, attention_cost, .operands = "q, k, v, mask?, bias?, offset?",
               .inputs = -1, .outputs = 2, .product = TOW__BATCHED_PRODUCT, .type = attention_type, .of_first = true,
               .takes_blocks = true, .jvp = attention_jvp, .batch = attention_batch, .decompose = attention_decompose,
               .output_names = (const char *const[]){"out", "lse", NULL},
               TOW__PARAMS(tow__attention_params, TOW__PARAM(tow__attention_params, causal, TOW__P_BOOL),
                           TOW__PARAM(tow__attention_params, scale, TOW__P_FLOAT),
                           TOW__PARAM(tow__attention_params, cap, TOW__P_AMOUNT),
                           TOW__PARAM(tow__attention_params, window, TOW__P_COUNT)));
TOW__PRIMITIVE(attention_jvp, TOW__COMPOSITE, tow__no_tiling, tow__element_cost,
               .operands = "q, k, v, out, lse, mask?, bias?, offset?, dq?, dk?, dv?", .inputs = -1, .outputs = 1,
               .product = TOW__BATCHED_PRODUCT, .type = attention_jvp_type, .transpose = attention_jvp_transpose,
               .linear_in = attention_jvp_linear_in, .decompose = attention_jvp_decompose, AD_PARAMS);
TOW__PRIMITIVE(attention_vjp, TOW__COMPOSITE, tile_attention, attention_vjp_cost,
               .operands = "q, k, v, out, lse, mask?, bias?, offset?, ct", .inputs = -1, .outputs = -1,
               .product = TOW__BATCHED_PRODUCT, .type = attention_vjp_type, .batch = attention_vjp_batch,
               .decompose = attention_vjp_decompose, AD_PARAMS);

tow_value tow_attention(tow_value q, tow_value k, tow_value v, const tow_attention_options *options)
{
    tow_attention_options o = TOW_ATTENTION_OPTIONS();
    if (!TOW__TRACE_OPTIONS(q.trace, tow_attention_options, options, &o)) return tow__null();
    tow_value in[6] = {q, k, v}, out[2] = {{0}};
    const tow_value further[] = {o.mask, o.bias, o.offset};
    size_t n = 3;
    for (size_t i = 0; i < 3; i++)
        if (!tow_is_null(further[i])) in[n++] = further[i];
    if (tow__any_null(n, in)) return tow__null();
    tow_type type = tow_value_type(q);
    double width = type.rank == 4 && type.dims[3] > 0 ? (double)type.dims[3] : 1;
    tow__attention_params p = {
        .causal = o.causal, .scale = o.scale != 0 ? o.scale : 1 / sqrt(width), .cap = o.logit_cap, .window = o.window};
    tow__bind(q.trace, &tow__attention_p, &p, n, in, 2, out);
    return out[0];
}

/* Attention written out: for what the primitive does not do, since the weights [B, H, T, S] must exist to be dropped or
 * looked at. */
#include <float.h>

#include "layers/attention.h"

/* i32 [T, S] or [B, 1, T, S]: the distance from query i back to key j, i + start - j. */
static tow_value distances(const tow__attention_call *c, tow_trace *t)
{
    tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){c->T, c->S});
    tow_value row = tow_iota(t, type, 0), column = tow_iota(t, type, 1);
    if (tow_is_null(c->start)) return tow_sub(tow_add_scalar(row, (double)(c->S - c->T)), column);
    if (tow_value_type(c->start).rank == 0) return tow_sub(tow_add(row, c->start), column);
    const int64_t dims[4] = {c->B, 1, c->T, c->S};
    const tow_value start = tow_reshape(c->start, 4, (int64_t[]){c->B, 1, 1, 1});
    return tow_add(tow_broadcast_to(tow_sub(row, column), 4, dims), tow_broadcast_to(start, 4, dims));
}

/* bool, broadcastable to [B, H, T, S]; null: everything is visible. */
static tow_value visibility(const tow_multi_head_attention *m, const tow__attention_call *c, tow_trace *t)
{
    tow_value visible = {0};
    if (c->causal) visible = tow_ge_scalar(distances(c, t), 0);
    if (m->window > 0) {
        tow_value near = tow_lt_scalar(tow_abs(distances(c, t)), (double)m->window);
        visible = tow_is_null(visible) ? near : tow_and(visible, near);
    }
    if (tow_is_null(c->mask)) return visible;
    return tow_is_null(visible) ? c->mask : tow_and(visible, c->mask);
}

/* [B, H, T, S] */
static tow_value logits_of(const tow__attention_call *c, tow_value q, tow_value k)
{
    int64_t R = c->H / c->G;
    q = tow_mul_scalar(q, c->scale); /* before the product, as in Flax */
    q = tow_reshape(q, 5, (int64_t[]){c->B, c->T, c->G, R, c->D});
    tow_dot_dims dims = {.n_contract = 1,
                         .n_batch = 2,
                         .lhs_contract = {4},
                         .rhs_contract = {3},
                         .lhs_batch = {0, 2},
                         .rhs_batch = {0, 2}};
    tow_value logits = tow_transpose(tow_dot_general(q, k, dims), 5, (int[]){0, 1, 3, 2, 4}); /* of [B, G, T, R, S] */
    return tow_reshape(logits, 4, (int64_t[]){c->B, c->H, c->T, c->S});
}

tow_value tow__attention_weights(const tow_multi_head_attention *m, const tow__attention_call *c, tow_value q,
                                 tow_value k)
{
    tow_trace *t = tow_value_trace(q);
    tow_dtype dtype = tow_value_type(q).dtype, wide = tow_promote_types(dtype, TOW_F32);
    tow_value logits = logits_of(c, tow__as(q, wide), tow__as(k, wide));
    if (m->logit_cap > 0) logits = tow_mul_scalar(tow_tanh(tow_div_scalar(logits, m->logit_cap)), m->logit_cap);
    if (!tow_is_null(c->bias)) logits = tow_add(logits, tow__as(c->bias, wide));
    /* the lowest finite number: a row that sees nothing weighs all keys alike */
    tow_value visible = visibility(m, c, t),
              lowest = tow_scalar(t, wide, wide == TOW_F64 ? -DBL_MAX : -(double)FLT_MAX);
    if (!tow_is_null(visible)) logits = tow_where(visible, logits, lowest);
    return tow__as(tow_softmax(logits, -1), dtype);
}

tow_value tow__weigh_values(const tow__attention_call *c, tow_value weights, tow_value v)
{
    int64_t R = c->H / c->G;
    weights = tow_reshape(weights, 5, (int64_t[]){c->B, c->G, R, c->T, c->S});
    tow_dot_dims dims = {.n_contract = 1,
                         .n_batch = 2,
                         .lhs_contract = {4},
                         .rhs_contract = {1},
                         .lhs_batch = {0, 1},
                         .rhs_batch = {0, 2}};
    tow_value y = tow_transpose(tow_dot_general(weights, v, dims), 5, (int[]){0, 3, 1, 2, 4}); /* of [B, G, R, T, D] */
    return tow_reshape(y, 4, (int64_t[]){c->B, c->T, c->H, c->D});
}

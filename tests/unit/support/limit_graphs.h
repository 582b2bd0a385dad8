/* Thirty losses of the kinds that memory limits are for, small enough to be planned in milliseconds: chains, residual,
 * dense and branching networks, U-Nets, attention, recurrent cells, blocks of transformers, products with narrow
 * results.
 *
 * A loss is written once; it is walked twice, for the types of its inputs and to be traced. */
#ifndef TOW_TESTS_LIMIT_GRAPHS_H
#define TOW_TESTS_LIMIT_GRAPHS_H

#include "tow/tow.h"

enum {
    LIMIT_INPUTS = 96,
    LIMIT_GRAPHS = 30
};

typedef struct limit_net {
    tow_value in[LIMIT_INPUTS];
    tow_type types[LIMIT_INPUTS];
    size_t n; /* inputs met so far */
    bool only_lists;
    int kind;
    int64_t rows;
} limit_net;

static tow_value limit_input(limit_net *m, int rank, const int64_t *dims)
{
    if (m->only_lists) m->types[m->n] = tow_make_type(TOW_F32, rank, dims);
    return m->in[m->n++];
}

/* x times weights [in, out] of its own. */
static tow_value limit_dot(limit_net *m, tow_value x, int64_t in, int64_t out)
{
    tow_value w = limit_input(m, 2, (int64_t[]){in, out});
    return m->only_lists ? x : tow_dot(x, w);
}

#define LIMIT_UNARY(name, op)                                                                                          \
    static tow_value limit_##name(const limit_net *m, tow_value x) { return m->only_lists ? x : op(x); }
LIMIT_UNARY(tanh, tow_tanh)
LIMIT_UNARY(gelu, tow_gelu)
LIMIT_UNARY(relu, tow_relu)
LIMIT_UNARY(sin, tow_sin)
LIMIT_UNARY(logistic, tow_logistic)

static tow_value limit_add(const limit_net *m, tow_value x, tow_value y) { return m->only_lists ? x : tow_add(x, y); }
static tow_value limit_mul(const limit_net *m, tow_value x, tow_value y) { return m->only_lists ? x : tow_mul(x, y); }

static tow_value limit_join(const limit_net *m, size_t n, const tow_value *x)
{
    return m->only_lists ? x[0] : tow_concatenate(n, x, 1);
}

/* ---- networks: x [rows, 16] -> y --------------------------------------------------------------------------------- */

static tow_value limit_chain(limit_net *m, tow_value x, const int64_t *widths, int n)
{
    int64_t in = 16;
    for (int i = 0; i < n; i++) {
        x = limit_dot(m, x, in, widths[i]);
        x = i % 3 == 0 ? limit_tanh(m, x) : i % 3 == 1 ? limit_gelu(m, x) : limit_sin(m, x);
        in = widths[i];
    }
    return x;
}

static tow_value limit_residual(limit_net *m, tow_value x, int n, int64_t hidden)
{
    for (int i = 0; i < n; i++)
        x = limit_add(m, x, limit_dot(m, limit_gelu(m, limit_dot(m, x, 16, hidden)), hidden, 16));
    return x;
}

static tow_value limit_dense(limit_net *m, tow_value x, int n, int64_t grown)
{
    int64_t width = 16;
    for (int i = 0; i < n; i++, width += grown) {
        tow_value y = limit_relu(m, limit_dot(m, x, width, grown));
        x = limit_join(m, 2, (tow_value[]){x, y});
    }
    return x;
}

static tow_value limit_inception(limit_net *m, tow_value x, int n)
{
    for (int i = 0; i < n; i++) {
        tow_value a = limit_relu(m, limit_dot(m, x, 16, 4)), b = limit_relu(m, limit_dot(m, x, 16, 24));
        b = limit_relu(m, limit_dot(m, b, 24, 8));
        tow_value c = limit_tanh(m, limit_dot(m, limit_relu(m, limit_dot(m, x, 16, 6)), 6, 4));
        x = limit_join(m, 3, (tow_value[]){a, b, c});
    }
    return x;
}

static tow_value limit_unet(limit_net *m, tow_value x, int levels)
{
    tow_value skips[4];
    int64_t width = 16;
    for (int i = 0; i < levels; i++, width *= 2) {
        skips[i] = x = limit_relu(m, limit_dot(m, x, width, width));
        x = limit_relu(m, limit_dot(m, x, width, 2 * width));
    }
    for (int i = levels; i-- > 0; width /= 2) {
        x = limit_relu(m, limit_dot(m, x, width, width / 2));
        x = limit_join(m, 2, (tow_value[]){x, skips[i]});
        x = limit_relu(m, limit_dot(m, x, width, width / 2));
    }
    return x;
}

/* [rows, 16] as [1, 2, rows, 8] and back. */
static tow_value limit_attention(limit_net *m, tow_value x)
{
    tow_value q = limit_dot(m, x, 16, 16), k = limit_dot(m, x, 16, 16), v = limit_dot(m, x, 16, 16);
    if (!m->only_lists) {
        const int64_t heads[] = {1, m->rows, 2, 8};
        tow_value in[3] = {q, k, v};
        for (int i = 0; i < 3; i++) in[i] = tow_reshape(in[i], 4, heads);
        x = tow_reshape(tow_attention(in[0], in[1], in[2], &TOW_ATTENTION_OPTIONS(.causal = true)), 2,
                        (int64_t[]){m->rows, 16});
    }
    return limit_dot(m, x, 16, 16);
}

static tow_value limit_transformer(limit_net *m, tow_value x, int n, int64_t hidden)
{
    for (int i = 0; i < n; i++) {
        x = limit_add(m, x, limit_attention(m, x));
        x = limit_add(m, x, limit_dot(m, limit_gelu(m, limit_dot(m, x, 16, hidden)), hidden, 16));
    }
    return x;
}

/* n steps of an LSTM on the same input, weights shared. */
static tow_value limit_lstm(limit_net *m, tow_value x, int n)
{
    tow_value w[4], h = x, c = x;
    for (int g = 0; g < 4; g++) w[g] = limit_input(m, 2, (int64_t[]){16, 16});
    for (int i = 0; i < n && !m->only_lists; i++) {
        tow_value y = limit_add(m, x, h);
        tow_value in = limit_logistic(m, tow_dot(y, w[0])), forget = limit_logistic(m, tow_dot(y, w[1])),
                  out = limit_logistic(m, tow_dot(y, w[2])), new = limit_tanh(m, tow_dot(y, w[3]));
        c = limit_add(m, limit_mul(m, forget, c), limit_mul(m, in, new));
        h = limit_mul(m, out, limit_tanh(m, c));
    }
    return h;
}

/* Pairs of products: many operations for a narrow result, few for a wide one. */
static tow_value limit_pairs(limit_net *m, tow_value x, int n, int64_t narrow)
{
    for (int i = 0; i < n; i++) x = limit_sin(m, limit_dot(m, limit_tanh(m, limit_dot(m, x, 16, narrow)), narrow, 16));
    return x;
}

static tow_value limit_gated(limit_net *m, tow_value x, int n, int64_t hidden)
{
    for (int i = 0; i < n; i++) {
        tow_value gate = limit_logistic(m, limit_dot(m, x, 16, hidden)), value = limit_dot(m, x, 16, hidden);
        x = limit_add(m, x, limit_dot(m, limit_mul(m, gate, value), hidden, 16));
    }
    return x;
}

static tow_value limit_walk(limit_net *m)
{
    static const int64_t narrowing[] = {48, 8, 40, 12, 32, 4, 24}, widening[] = {4, 8, 16, 32, 64, 96},
                         waves[] = {64, 4, 64, 4, 64, 4, 64, 4}, alike[] = {16, 16, 16, 16, 16, 16, 16, 16, 16, 16};
    const int size = m->kind % 3;
    tow_value x = limit_input(m, 2, (int64_t[]){m->rows, 16});
    switch (m->kind / 3) {
    case 0:
        return limit_chain(m, x, size == 0 ? narrowing : size == 1 ? widening : waves, size == 2 ? 8 : 6);
    case 1:
        return limit_residual(m, x, 2 + 2 * size, 24 + 20 * size);
    case 2:
        return limit_dense(m, x, 3 + 2 * size, 8);
    case 3:
        return limit_inception(m, x, 1 + size);
    case 4:
        return limit_unet(m, x, 1 + size);
    case 5:
        return size == 0 ? limit_attention(m, x) : limit_attention(m, limit_residual(m, x, size, 32));
    case 6:
        return limit_lstm(m, x, 1 + size);
    case 7:
        return limit_transformer(m, x, 1 + size, 48);
    case 8:
        return limit_pairs(m, x, 2 + 3 * size, size == 1 ? 4 : 2);
    default:
        return size == 2 ? limit_chain(m, x, alike, 10) : limit_gated(m, x, 2 + 2 * size, 40);
    }
}

static void limit_trace(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    limit_net *m = user;
    (void)t;
    memcpy(m->in, in, m->n * sizeof *in);
    m->n = 0;
    out[0] = tow_reduce_sum(tow_square(limit_walk(m)), 0, NULL);
}

/* Loss number kind < LIMIT_GRAPHS, of x and weights; *n: its inputs. */
static tow_status limit_loss(tow_context *context, int kind, int64_t rows, tow_graph **loss, size_t *n)
{
    limit_net m = {.only_lists = true, .kind = kind, .rows = rows};
    limit_walk(&m);
    m.only_lists = false;
    *n = m.n;
    return tow_trace_function(context, limit_trace, &m, m.n, m.types, NULL, 1, loss);
}

#endif

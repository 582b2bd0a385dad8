/* The parts of random models besides the layers of the library: operations, layers around layers, losses. Printed
 * programs contain a copy of this file, so it includes public headers only. */
#ifndef TOW_TESTS_MODELS_LAYERS_H
#define TOW_TESTS_MODELS_LAYERS_H

#include "tow/tow.h"

/* ---- operations on x [..., D] that keep its type: X(name, expression) -------------------------------------------- */

#define OPERATIONS(X)                                                                                                  \
    X(tanh, tow_tanh(x))                                                                                               \
    X(sin, tow_sin(x))                                                                                                 \
    X(logistic, tow_logistic(x))                                                                                       \
    X(erf, tow_erf(x))                                                                                                 \
    X(gelu, tow_gelu_erf(x))                                                                                           \
    X(gelu_tanh, tow_gelu(x))                                                                                          \
    X(silu, tow_silu(x))                                                                                               \
    X(relu, tow_relu(x))                                                                                               \
    X(abs, tow_abs(x))                                                                                                 \
    X(exp, tow_exp(tow_neg(tow_square(x))))                                                                            \
    X(root, tow_sqrt(tow_add_scalar(tow_square(x), 0.5)))                                                              \
    X(ratio, tow_div(x, tow_add_scalar(tow_square(x), 1)))                                                             \
    X(cube, tow_integer_pow(tow_tanh(x), 3))                                                                           \
    X(clamp, tow_clamp(tow_full_like(x, -0.7), x, tow_full_like(x, 1.3)))                                              \
    X(choose, choose(x))                                                                                               \
    X(softmax, tow_softmax(x, -1))                                                                                     \
    X(softmax_rows, tow_softmax(x, 0))                                                                                 \
    X(log_softmax, tow_mul_scalar(tow_log_softmax(x, -1), 0.25))                                                       \
    X(logsumexp, tow_sub(x, tow_expand_dims(tow_logsumexp(x, -1), -1)))                                                \
    X(cumsum, tow_tanh(tow_cumsum(x, 0, false)))                                                                       \
    X(cumsum_back, tow_tanh(tow_cumsum(x, -1, true)))                                                                  \
    X(reverse, tow_rev(x, 1, (int[]){0}))                                                                              \
    X(reverse_last, tow_add(x, tow_rev(x, 1, (int[]){tow_value_type(x).rank - 1})))                                    \
    X(center,                                                                                                          \
      tow_sub(x, tow_broadcast_to(tow_mean(x, 1, (int[]){0}), tow_value_type(x).rank, tow_value_type(x).dims)))        \
    X(maxima, tow_sub(x, tow_expand_dims(tow_reduce_max(x, 1, (int[]){-1}), -1)))                                      \
    X(product, tow_mul(x, tow_expand_dims(tow_tanh(tow_reduce_prod(x, 1, (int[]){-1})), -1)))                          \
    X(squares, tow_mul(x, tow_rsqrt(tow_add_scalar(tow_mean(tow_square(x), 0, NULL), 1))))                             \
    X(flat, tow_reshape(tow_sin(tow_reshape(x, 1, (int64_t[]){-1})), tow_value_type(x).rank, tow_value_type(x).dims))  \
    X(roll, roll(x))                                                                                                   \
    X(gram, gram(x))                                                                                                   \
    X(gathered, gathered(x))                                                                                           \
    X(named, tow_checkpoint_name(tow_mul_scalar(x, 0.75), "h"))

/* Planted faults, which only tests of the tests put in a model: another value each time that it is recorded, and a
 * derivative that is not that of the value. */
#define FAULTS(X)                                                                                                      \
    X(unsteady, tow_mul_scalar(x, 1 + 1e-6 * unsteady++))                                                              \
    X(wrong_derivative, tow_add(x, tow_stop_gradient(tow_mul_scalar(tow_sin(x), 0.01))))

static int unsteady;

/* Row i + 1 where row i was. */
static tow_value roll(tow_value x)
{
    int64_t rows = tow_value_type(x).dims[0];
    tow_value parts[] = {tow_slice_axis(x, 0, rows > 1, rows), tow_slice_axis(x, 0, 0, rows > 1)};
    return tow_concatenate(2, parts, 0);
}

/* Expressions that read x twice are recorded in statements of their own, or compilers differ in the order of the
 * gradient's terms. */
static tow_value choose(tow_value x)
{
    tow_value a = tow_sin(x), b = tow_mul_scalar(x, 0.5);
    return tow_where(tow_gt(x, tow_full_like(x, 0.1)), a, b);
}

/* tanh(x x^T) x / D over the last two axes: x is read by two products. */
static tow_value gram(tow_value x)
{
    tow_type t = tow_value_type(x);
    int order[] = {0, 2, 1};
    tow_value across = t.rank == 3 ? tow_transpose(x, 3, order) : tow_transpose(x, 2, (int[]){1, 0});
    return tow_mul_scalar(tow_matmul(tow_tanh(tow_matmul(x, across)), x), 1.0 / (double)t.dims[t.rank - 1]);
}

/* The first row for every other row: rows that are gathered several times. */
static tow_value gathered(tow_value x)
{
    tow_type t = tow_value_type(x), index = tow_make_type(TOW_I32, 1, t.dims);
    tow_value i = tow_iota(tow_value_trace(x), index, 0), odd = tow_and(i, tow_full_like(i, 1));
    return tow_add(x, tow_gather(tow_sin(x), tow_mul(i, odd)));
}

#define X(name, ...)                                                                                                   \
    static inline tow_value op_##name(tow_value x) { return __VA_ARGS__; }
OPERATIONS(X)
FAULTS(X)
#undef X

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* Operations one after the other. */
typedef struct ops {
    tow_module module;
    size_t n;
    const tow_activation *list;
} ops;

static void call_ops(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    (void)s, (void)n_in, (void)n_out;
    const ops *m = (const ops *)module;
    tow_value x = in[0];
    for (size_t i = 0; i < m->n; i++) x = m->list[i](x);
    out[0] = x;
}
static const tow_module_class ops_class = {"ops", call_ops};
#define OPS(...)                                                                                                       \
    ((ops){{&ops_class},                                                                                               \
           sizeof((tow_activation[]){__VA_ARGS__}) / sizeof(tow_activation),                                           \
           (tow_activation[]){__VA_ARGS__}})

/* Layers one after the other, whose results have the checkpoint name "h". */
typedef struct chain {
    tow_module module;
    size_t n;
    const tow_module *const *layers;
} chain;

static void call_chain(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)n_in, (void)n_out;
    const chain *m = (const chain *)module;
    char name[32];
    tow_value x = in[0];
    for (size_t i = 0; i < m->n; i++) {
        snprintf(name, sizeof name, "c%zu", i);
        x = tow_checkpoint_name(tow_apply_module(s, name, m->layers[i], x), "h");
    }
    out[0] = x;
}
static const tow_module_class chain_class = {"chain", call_chain};
#define CHAIN(...)                                                                                                     \
    ((chain){{&chain_class},                                                                                           \
             sizeof((const tow_module *[]){__VA_ARGS__}) / sizeof(const tow_module *),                                 \
             (const tow_module *const[]){__VA_ARGS__}})

/* A layer around another one that keeps the type; what it does with it is its class. */
typedef struct around {
    tow_module module;
    const tow_module *inner;
    int count;         /* shared: applications */
    tow_policy policy; /* in_remat */
    bool reverse, unrolled;
} around;
#define AROUND(class_name, layer, ...) ((around){{&class_name##_class}, TOW_MODULE(layer), __VA_ARGS__})

#define AROUND_CLASS(class_name)                                                                                       \
    static tow_value class_name(tow_scope *s, const around *m, tow_value x);                                           \
    static void call_##class_name(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in,            \
                                  size_t n_out, tow_value *out)                                                        \
    {                                                                                                                  \
        (void)n_in, (void)n_out;                                                                                       \
        out[0] = class_name(s, (const around *)module, in[0]);                                                         \
    }                                                                                                                  \
    static const tow_module_class class_name##_class = {#class_name, call_##class_name};

AROUND_CLASS(residual)
static tow_value residual(tow_scope *s, const around *m, tow_value x)
{
    return tow_add(x, tow_apply_module(s, "inner", m->inner, x));
}

/* One set of parameters, read `count` times. */
AROUND_CLASS(shared)
static tow_value shared(tow_scope *s, const around *m, tow_value x)
{
    for (int i = 0; i < m->count; i++) x = tow_apply_module(s, "inner", m->inner, x);
    return x;
}

/* The layers that a function of a region calls. */
typedef struct region {
    tow_scope *scope;
    const around *layer;
} region;

static void apply_region(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    const region *r = user;
    out[0] = tow_apply_module(r->scope, "inner", r->layer->inner, in[0]);
}

AROUND_CLASS(in_remat)
static tow_value in_remat(tow_scope *s, const around *m, tow_value x)
{
    region r = {s, m};
    tow_value y;
    tow_remat_function(tow_scope_trace(s), apply_region, &r, &m->policy, 1, &x, 1, &y);
    return y;
}

AROUND_CLASS(in_call)
static tow_value in_call(tow_scope *s, const around *m, tow_value x)
{
    region r = {s, m};
    tow_value y;
    tow_call_function(tow_scope_trace(s), apply_region, &r, "called", 1, &x, 1, &y);
    return y;
}

static void hand_through(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_sin(in[0]);
}

/* A branch of a cond, of which the numbers choose one; the other one has no parameters. */
AROUND_CLASS(choice)
static tow_value choice(tow_scope *s, const around *m, tow_value x)
{
    region r = {s, m};
    tow_value y, sum = tow_reduce_sum(x, 0, NULL), p = tow_gt_scalar(m->reverse ? tow_neg(sum) : sum, 0);
    tow_cond_function(tow_scope_trace(s), p, apply_region, hand_through, &r, 1, &x, 1, &y);
    return y;
}

/* As long as the numbers are small, at most `count` times, with one set of parameters. */
static void is_small(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_lt_scalar(tow_mean(tow_abs(in[0]), 0, NULL), 0.5);
}

AROUND_CLASS(until)
static tow_value until(tow_scope *s, const around *m, tow_value x)
{
    region r = {s, m};
    const tow_while_options options = TOW_WHILE_OPTIONS(.max_iterations = m->count);
    tow_value y = tow_tanh(x);
    tow_while_function(tow_scope_trace(s), is_small, apply_region, &r, &options, 1, &y, &y);
    return y;
}

/* Over axis 1 of x [B, T, D]: h = tanh(inner(h + x_t)), y_t = h sin(x_t), with the parameters of `inner` shared by all
 * iterations. h [B, D] begins as the mean over T. */
static void recur(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    const region *r = user;
    out[0] = tow_tanh(tow_apply_module(r->scope, "inner", r->layer->inner, tow_add(in[0], in[1])));
    out[1] = tow_mul(out[0], tow_sin(in[1]));
}

static tow_value swap_axes(tow_value x) { return tow_transpose(x, 3, (int[]){1, 0, 2}); }

AROUND_CLASS(loop)
static tow_value loop(tow_scope *s, const around *m, tow_value x)
{
    region r = {s, m};
    tow_scan_options options = TOW_SCAN_OPTIONS(.reverse = m->reverse);
    tow_value xs = swap_axes(x), h = tow_mean(xs, 1, (int[]){0}), ys;
    tow_scan_function(tow_scope_trace(s), recur, &r, &options, 1, &h, 1, &xs, 1, &h, &ys);
    return tow_add(swap_axes(ys), tow_expand_dims(h, 1));
}

/* The same with parameters for every iteration. */
typedef struct cell {
    tow_module module;
    const around *layer;
} cell;

static void call_cell(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)n_in, (void)n_out;
    recur(tow_scope_trace(s), in, out, &(region){s, ((const cell *)module)->layer});
}
static const tow_module_class cell_class = {"cell", call_cell};

AROUND_CLASS(cells)
static tow_value cells(tow_scope *s, const around *m, tow_value x)
{
    cell one = {{&cell_class}, m};
    tow_value xs = swap_axes(x), in[] = {tow_mean(xs, 1, (int[]){0}), xs}, out[2];
    tow_scan scan =
        TOW_SCAN(&one, .length = tow_value_type(xs).dims[0], .reverse = m->reverse, .unrolled = m->unrolled);
    tow_apply_n(s, "cells", &scan, 2, in, 2, out);
    return tow_add(swap_axes(out[1]), tow_expand_dims(out[0], 1));
}

/* x logistic(x w) with a parameter w [D] of its own, which is read twice. */
typedef struct plain {
    tow_module module;
} plain;

static void call_gate(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_type t = tow_value_type(in[0]);
    tow_value v[2] = {in[0], tow_param(s, "w", 1, &t.dims[t.rank - 1], tow_initializer_ones())};
    tow_promote(s, 0, 2, v);
    tow_value gated = tow_mul(v[0], tow_logistic(tow_mul(v[0], v[1])));
    out[0] = tow_add(gated, tow_sin(v[1]));
}
static const tow_module_class gate_class = {"gate", call_gate};

/* Two DenseGeneral: into heads and back. */
typedef struct heads {
    tow_module module;
    int64_t heads, features;
    bool no_bias;
} heads;

static void call_heads(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)n_in, (void)n_out;
    const heads *m = (const heads *)module;
    tow_type t = tow_value_type(in[0]);
    tow_dense_general split = TOW_DENSE_GENERAL(.features = {m->heads, m->features}, .no_bias = m->no_bias);
    tow_dense_general join = TOW_DENSE_GENERAL(.features = {t.dims[t.rank - 1]}, .n_axes = 2, .axes = {-1, -2});
    out[0] = tow_apply(s, "join", &join, tow_sin(tow_apply(s, "split", &split, in[0])));
}
static const tow_module_class heads_class = {"heads", call_heads};
#define HEADS(...) ((heads){{&heads_class}, __VA_ARGS__})

/* x minus a running mean over all its rows, and the number of calls so far. */
static void call_running(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_type t = tow_value_type(in[0]), type = tow_make_type(TOW_F32, 1, &t.dims[t.rank - 1]);
    tow_value mean = tow_variable(s, "batch_stats", "mean", type, tow_initializer_constant(0.125));
    tow_value calls = tow_variable(s, "batch_stats", "calls", tow_make_type(TOW_I32, 0, NULL), (tow_initializer){0});
    out[0] = tow_sub(in[0], tow_convert(mean, t.dtype));
    if (!tow_is_mutable(s, "batch_stats")) return;
    tow_value now = tow_mean(tow_convert(in[0], TOW_F32), t.rank - 1, (int[]){0, 1});
    tow_set_variable(s, "batch_stats", "mean", tow_add(tow_mul_scalar(mean, 0.75), tow_mul_scalar(now, 0.25)));
    tow_set_variable(s, "batch_stats", "calls", tow_add(calls, tow_full_like(calls, 1)));
}
static const tow_module_class running_class = {"running", call_running};

/* The whole model: inputs x, or tokens and labels. */
typedef struct whole {
    tow_module module;
    tow_embed embed; /* features 0: none, the input is x */
    const tow_module *body;
    bool tied; /* results are cross-entropies of the labels with the embedding's table */
} whole;

static void call_whole(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)n_in, (void)n_out;
    const whole *m = (const whole *)module;
    tow_value x = m->embed.features ? tow_apply(s, "embed", &m->embed, in[0]) : in[0];
    tow_type t = tow_value_type(x);
    x = tow_mul(
        x, tow_param(s, "scale", 1, &t.dims[t.rank - 1], tow_initializer_ones())); /* every model has a parameter */
    out[0] = tow_apply_module(s, "body", m->body, x);
    if (m->tied) out[0] = tow_embed_cross_entropy(s, "embed", &m->embed, out[0], in[1]);
}
static const tow_module_class whole_class = {"whole", call_whole};

/* ---- losses: y, f32 targets of its shape, i32 labels for its last axis; X(name, expression) ---------------------- */

#define LOSSES(X)                                                                                                      \
    X(squares, tow_mean(tow_square(tow_sub(y, targets)), 0, NULL))                                                     \
    X(cross_entropy, tow_mean(tow_softmax_cross_entropy(y, labels), 0, NULL))                                          \
    X(waves, tow_reduce_sum(tow_mul(tow_sin(y), targets), 0, NULL))                                                    \
    X(largest, tow_mean(tow_logsumexp(tow_mul(y, targets), -1), 0, NULL))

#define X(name, ...)                                                                                                   \
    static inline void loss_##name(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss,    \
                                   tow_value *aux, void *user)                                                         \
    {                                                                                                                  \
        tow_value y = out[0], targets = extra[0], labels = extra[1];                                                   \
        (void)trace, (void)aux, (void)user, (void)targets, (void)labels;                                               \
        *loss = __VA_ARGS__;                                                                                           \
    }
LOSSES(X)
#undef X

#endif

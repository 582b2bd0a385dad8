/* Layers of the library with many options, and layers around others, made of drawn numbers. Printed programs contain a
 * copy of this file, so that one function says what a node is both where it is built and where it is printed.
 *
 * A function make_NAME gets the numbers of a node; o[i] is 0 to 3, and 0 is the default of what it chooses, for
 * shrinking. */
#ifndef TOW_TESTS_MODELS_MADE_H
#define TOW_TESTS_MODELS_MADE_H

#include "tests/models/side.h"

enum {
    MOST_CHILDREN = 4,
    MOST_OPTIONS = 8
};

typedef struct drawn {
    int64_t a, b;
    bool flag, other;
    int o[MOST_OPTIONS];
    tow_activation op;
    tow_policy policy;
    const tow_module *inner[MOST_CHILDREN];
    const tow_lift_rule *rules, *keys; /* of layers that are made of others */
} drawn;

/* Any layer. */
typedef struct wrapped {
    tow_module module;
} wrapped;

#define MAKE(s, type, ...) ((const wrapped *)keep_layer(s, &(__VA_ARGS__), sizeof(type)))
#define INNER(d, i)        ((const wrapped *)(d)->inner[i])

/* A layer of drawn numbers, whose call is CALL(scope, numbers, x). */
typedef struct made {
    tow_module module;
    drawn d;
} made;

#define MADE_CLASS(class_name)                                                                                         \
    static tow_value class_name(tow_scope *s, const drawn *d, tow_value x);                                            \
    static void call_##class_name(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in,            \
                                  size_t n_out, tow_value *out)                                                        \
    {                                                                                                                  \
        (void)n_in, (void)n_out;                                                                                       \
        out[0] = class_name(s, &((const made *)module)->d, in[0]);                                                     \
    }                                                                                                                  \
    static const tow_module_class class_name##_class = {#class_name, call_##class_name, NULL};                         \
    static inline const wrapped *make_##class_name(side *s, const drawn *d)                                            \
    {                                                                                                                  \
        return MAKE(s, made, (made){{&class_name##_class}, *d});                                                       \
    }

static inline int64_t size_of(tow_value x, int axis) { return tow_value_type(x).dims[axis]; }

/* ---- recurrent networks ------------------------------------------------------------------------------------------ */

/* Cells: kind 0 to 3 in one of two variants. */
static inline const wrapped *make_cell(side *s, int kind, bool variant, int64_t features, bool drawn_carry)
{
    tow_initializer carry = drawn_carry ? tow_initializer_normal(0.5) : (tow_initializer){0};
    if (kind == 0) return MAKE(s, tow_gru_cell, TOW_GRU_CELL(.features = features, .carry_init = carry));
    if (kind == 1 && variant)
        return MAKE(s, tow_optimized_lstm_cell, TOW_OPTIMIZED_LSTM_CELL(.features = features, .carry_init = carry));
    if (kind == 1) return MAKE(s, tow_lstm_cell, TOW_LSTM_CELL(.features = features, .carry_init = carry));
    if (kind == 2)
        return MAKE(s, tow_mgu_cell, TOW_MGU_CELL(.features = features, .no_reset_gate = variant, .carry_init = carry));
    return MAKE(s, tow_simple_cell, TOW_SIMPLE_CELL(.features = features, .residual = variant, .carry_init = carry));
}

/* The cell of an RNN, or a remat of it: o[0] kind, o[1] variant, o[2] how the carry begins, o[5] remat. */
static inline const tow_module *make_inner_cell(side *s, const drawn *d, int kind)
{
    const wrapped *steps = make_cell(s, kind, d->o[1] % 2, d->a, d->o[2] == 1);
    if (d->o[5] == 1) steps = MAKE(s, tow_remat, TOW_REMAT(steps, .policy = d->policy));
    return &steps->module;
}

/* The numbers of elements of each sequence of x [B, T, D] that count: none and all of them among others. */
static inline tow_value lengths_of(tow_scope *s, tow_value x)
{
    int64_t B = size_of(x, 0), T = size_of(x, 1);
    int32_t *data = malloc((size_t)(B + 1) * sizeof *data);
    if (data == NULL) abort();
    for (int64_t i = 0; i < B; i++) data[i] = (int32_t)((i * 5 + 2) % (T + 1));
    tow_value lengths = tow_constant_data(tow_scope_trace(s), tow_make_type(TOW_I32, 1, &B), data);
    free(data);
    return lengths;
}

/* RNN on x [B, T, D] -> [B, T, a]. o[2]: 2 and 3: the initial carry is given, and the last one is added to the result;
 * o[3]: direction; o[4]: lengths; o[6]: the cell has no path of its own, time comes first. */
MADE_CLASS(rnn)
static tow_value rnn(tow_scope *s, const drawn *d, tow_value x)
{
    const size_t n_carry = d->o[0] == 1 ? 2 : 1, given = d->o[2] > 1 ? n_carry : 0;
    tow_rnn net = TOW_RNN(INNER(d, 0), .reverse = d->o[3] > 0, .keep_order = d->o[3] > 1, .lengths = d->o[4] > 0,
                          .unrolled = d->other, .in_place = d->o[6] % 2, .time_major = d->o[6] > 1, .unroll = d->o[7]);
    tow_value in[4], out[3];
    for (size_t i = 0; i < given; i++) {
        tow_dense first = TOW_DENSE(.features = d->a);
        in[i] = tow_tanh(tow_apply(s, i ? "carry1" : "carry0", &first, tow_mean(x, 1, (int[]){1})));
    }
    in[given] = d->o[6] > 1 ? tow_moveaxis(x, 1, 0) : x;
    if (d->o[4] > 0) in[given + 1] = lengths_of(s, x);
    tow_apply_n(s, "rnn", &net, given + 1 + (d->o[4] > 0), in, 1 + given, out);
    tow_value y = d->o[6] > 1 ? tow_moveaxis(out[given], 1, 0) : out[given];
    for (size_t i = 0; i < given; i++) y = tow_add(y, tow_expand_dims(out[i], 1));
    return y;
}

static inline const wrapped *make_recurrent(side *s, const drawn *d)
{
    drawn with_cell = *d;
    with_cell.inner[0] = make_inner_cell(s, d, d->o[0]);
    return make_rnn(s, &with_cell);
}

/* [B, T, D] -> [B, T, 2 a], or, with o[3], the sum of both directions [B, T, a]. */
MADE_CLASS(both_ways)
static tow_value both_ways(tow_scope *s, const drawn *d, tow_value x)
{
    tow_rnn forward = TOW_RNN(INNER(d, 0), .unrolled = d->other), backward = forward;
    backward.inner = d->inner[1];
    tow_bidirectional net = TOW_BIDIRECTIONAL(.forward_rnn = &forward, .lengths = d->o[4] > 0,
                                              .backward_rnn = d->inner[1] ? &backward : NULL,
                                              .merge = d->o[3] ? tow_add : NULL, .shared = !d->inner[1] && d->o[6]);
    tow_value in[2] = {x, d->o[4] > 0 ? lengths_of(s, x) : x}, y;
    tow_apply_n(s, "net", &net, 1 + (d->o[4] > 0), in, 1, &y);
    return y;
}

static inline const wrapped *make_bidirectional(side *s, const drawn *d)
{
    drawn with_cells = *d;
    with_cells.inner[0] = make_inner_cell(s, d, d->o[0]);
    with_cells.inner[1] = d->o[7] ? make_inner_cell(s, d, d->o[7]) : NULL;
    return make_both_ways(s, &with_cells);
}

/* x [B, T, D] as images of one feature: x + the mean of b features. */
MADE_CLASS(conv_lstm)
static tow_value conv_lstm(tow_scope *s, const drawn *d, tow_value x)
{
    tow_conv_lstm_cell step = TOW_CONV_LSTM_CELL(.features = d->b, .kernel_size = {1 + d->o[0]}, .no_bias = d->flag);
    tow_rnn net = TOW_RNN(&step, .reverse = d->o[3] > 0, .unrolled = d->other, .lengths = d->o[4] > 0);
    tow_value in[2] = {tow_expand_dims(x, -1), d->o[4] > 0 ? lengths_of(s, x) : x}, y;
    tow_apply_n(s, "net", &net, 1 + (d->o[4] > 0), in, 1, &y);
    return tow_add(x, tow_mean(y, 1, (int[]){-1}));
}

/* ---- attention and feed-forward layers --------------------------------------------------------------------------- */

static inline tow_rope_options rope_of(int kind)
{
    tow_rope_options rope = {.theta = 100};
    if (kind == 2) rope.interleaved = true, rope.scaling = TOW_ROPE_LINEAR, rope.factor = 2;
    if (kind == 3) rope.features = 2, rope.scaling = TOW_ROPE_LLAMA3, rope.factor = 4, rope.original_length = 16;
    return rope;
}

/* A parameter that broadcasts to the logits [B, H, T, S]. */
static inline tow_value bias_of(tow_scope *s, int kind, int64_t H, tow_value x, int64_t S)
{
    int64_t dims[4] = {1, kind == 1 ? H : 1, kind == 3 ? 1 : size_of(x, 1), S};
    return tow_param(s, "bias", 4, dims, tow_initializer_normal(1));
}

/* b heads. o[0]: causal, window or both; o[1]: cap; o[2]: norms; o[3]: RoPE; o[4]: bias; o[5]: gates; o[6]: mask; o[7]:
 * decode, weights that are sown, dropout. */
MADE_CLASS(attend)
static tow_value attend(tow_scope *s, const drawn *d, tow_value x)
{
    const int64_t T = size_of(x, 1), D = size_of(x, 2), S = d->o[7] == 1 ? T + 2 : T;
    const bool rope = d->o[3] > 0 && D / d->b % 2 == 0;
    tow_multi_head_attention m =
        TOW_MULTI_HEAD_ATTENTION(.heads = d->b, .kv_heads = d->flag, .causal = d->o[0] % 2,
                                 .window = d->o[0] > 1 ? 2 : 0, .logit_cap = d->o[1] ? 3 : 0,
                                 .qk_norm = (tow_qk_norm)(d->o[2] % 3), .qk_norm_epsilon = 0.01, .rope = rope,
                                 .rope_options = rope_of(d->o[3]), .head_gates = d->o[5] > 0,
                                 .no_qkv_bias = d->o[5] > 1, .no_out_bias = d->other, .decode = d->o[7] == 1,
                                 .cache_length = S, .sow_weights = d->o[7] == 2,
                                 .dropout_rate = d->o[7] == 3 ? 0.25 : 0, .dropout_each = d->o[6] == 2);
    tow_value in[3] = {x}, y;
    size_t n = 1;
    if (d->o[4]) in[n++] = bias_of(s, d->o[4], d->b, x, S);
    if (d->o[6]) {
        tow_type square = tow_make_type(TOW_I32, 2, (int64_t[]){T, S});
        tow_value i = tow_iota(tow_scope_trace(s), square, 0), j = tow_iota(tow_scope_trace(s), square, 1);
        in[n++] = tow_or(tow_eq(i, j), tow_ne_scalar(tow_and(tow_add(i, j), tow_full_like(i, 3)), 1));
    }
    tow_apply_n(s, "attention", &m, n, in, 1, &y);
    return y;
}

/* TransformerBlock, o[0]: order of its parts; o[1]: norms; o[2]: gates and caps; o[3]: RoPE; o[4]: window; o[5]: of
 * queries and keys; o[6]: cross attention to the reversed sequence, 2: decoding, 3: from a cache; o[7]: dropout. */
MADE_CLASS(block)
static tow_value block(tow_scope *s, const drawn *d, tow_value x)
{
    const bool rope = d->o[3] > 0 && size_of(x, 2) / d->b % 2 == 0, cross = d->o[6] > 0 && d->o[0] < 2;
    tow_transformer_block m =
        TOW_TRANSFORMER_BLOCK(.heads = d->b, .kv_heads = d->flag, .mlp_features = d->a, .causal = d->other,
                              .post_norm = d->o[0] == 1, .parallel = d->o[0] > 1, .shared_norm = d->o[0] == 3,
                              .branch_norms = d->o[1] == 1 && d->o[0] == 0, .rms_norm = d->o[1] == 2, .epsilon = 0.01,
                              .gated = d->o[2] % 2, .head_gates = d->o[2] > 1, .logit_cap = d->o[2] > 1 ? 2 : 0,
                              .rope = rope, .rope_options = rope_of(d->o[3]), .window = d->o[4],
                              .qk_norm = (tow_qk_norm)(d->o[5] % 3), .cross = cross, .decode = cross && d->o[6] > 1,
                              .recall = cross && d->o[6] > 2, .dropout_rate = d->o[7] == 1 ? 0.25 : 0,
                              .activation = d->o[2] % 2 ? d->op : NULL);
    tow_value in[2] = {x, tow_rev(x, 1, (int[]){1})}, y;
    tow_apply_n(s, "block", &m, 1 + m.cross, in, 1, &y);
    return y;
}

/* [..., D] -> [..., a], or D if flag. */
static inline const wrapped *make_gated(side *s, const drawn *d)
{
    return MAKE(s, tow_gated_mlp,
                TOW_GATED_MLP(.features = d->b + 1, .out_features = d->flag ? 0 : d->a, .no_bias = d->other,
                              .activation = d->o[0] ? d->op : NULL));
}

/* Norms with groups, batches and examples, PReLU, and a convolution over the second last axis. */
static inline const wrapped *make_feature(side *s, const drawn *d)
{
    if (d->o[0] == 0)
        return MAKE(s, tow_batch_norm, TOW_BATCH_NORM(.momentum = 0.75, .epsilon = 0.1, .no_scale = d->flag));
    if (d->o[0] == 1) return MAKE(s, tow_group_norm, TOW_GROUP_NORM(.groups = 1, .epsilon = 0.1, .no_bias = d->flag));
    if (d->o[0] == 2) return MAKE(s, tow_instance_norm, TOW_INSTANCE_NORM(.epsilon = 0.1, .no_bias = d->flag));
    return MAKE(s, tow_prelu, TOW_PRELU(.slope_init = tow_initializer_constant(0.25)));
}

/* x [B, T, D] -> [B, T, a]. */
static inline const wrapped *make_time_conv(side *s, const drawn *d)
{
    return MAKE(s, tow_conv,
                TOW_CONV(.features = d->a, .kernel_size = {1 + d->o[0]}, .no_bias = d->flag,
                         .padding = d->o[1] == 1   ? TOW_CONV_CAUSAL
                                    : d->o[1] == 2 ? TOW_CONV_CIRCULAR
                                                   : TOW_CONV_SAME,
                         .kernel_dilation = {1 + d->o[2] % 2}));
}

/* ---- combinators ------------------------------------------------------------------------------------------------- */

static inline tow_value twice(tow_scope *scope, tow_value x)
{
    tow_value w[2] = {x, tow_param(scope, "twice", 0, NULL, tow_initializer_constant(0.5))};
    tow_promote(scope, 0, 2, w);
    return tow_add(tow_sin(tow_mul(w[0], w[1])), tow_mul(x, w[1]));
}

/* A function, the inner layer under a name of its own, and once more without. */
static inline const wrapped *make_sequential(side *s, const drawn *d)
{
    const wrapped *f = MAKE(s, tow_function_layer, TOW_FUNCTION(twice));
    const wrapped *named = MAKE(s, tow_named, TOW_NAMED("first", INNER(d, 0)));
    const tow_module *layers[] = {&f->module, &named->module, d->inner[0]};
    const size_t n = d->flag ? 2 : 3;
    return MAKE(s, tow_sequential,
                ((tow_sequential){.module = {&tow_sequential_class, sizeof(tow_sequential)},
                                  .layers = keep_layer(s, layers, sizeof layers),
                                  .n_layers = n}));
}

/* Two branches: o[0] how they are combined; 3: side by side, so twice as wide. */
static inline const wrapped *make_parallel(side *s, const drawn *d)
{
    static const tow_combine ways[] = {TOW_SUM, TOW_MEAN, TOW_PRODUCT, TOW_CONCATENATE};
    return MAKE(s, tow_parallel,
                ((tow_parallel){.module = {&tow_parallel_class, sizeof(tow_parallel)},
                                .combine = ways[d->o[0]],
                                .branches = keep_layer(s, d->inner, sizeof d->inner),
                                .n_branches = 2}));
}

static inline const wrapped *make_scaled_residual(side *s, const drawn *d)
{
    const wrapped *straight = MAKE(s, tow_function_layer, TOW_FUNCTION(twice));
    return MAKE(s, tow_residual_layer,
                TOW_RESIDUAL(INNER(d, 0), .scale = d->o[0] ? 0.5 : 0, .projection = d->o[1] ? &straight->module : NULL,
                             .scale_init = d->o[2] ? tow_initializer_constant(0.25) : (tow_initializer){0}));
}

/* A layer with a parameter, a key and, if wanted, variables of its own around another one: every rule for them
 * matches. */
MADE_CLASS(owner)
static tow_value owner(tow_scope *s, const drawn *d, tow_value x)
{
    tow_value w[4] = {x, tow_param(s, "own", 0, NULL, tow_initializer_constant(1)),
                      tow_param(s, "shift", 0, NULL, tow_initializer_zeros())};
    if (d->o[4] == 1) {
        tow_value calls =
            tow_variable(s, "batch_stats", "own", tow_make_type(TOW_F32, 0, NULL), tow_initializer_zeros());
        if (tow_is_mutable(s, "batch_stats")) tow_set_variable(s, "batch_stats", "own", tow_add_scalar(calls, 0.25));
        w[3] = calls;
    }
    if (d->o[4] == 2) tow_sow(s, TOW_INTERMEDIATES, "own", x);
    tow_promote(s, 0, 4, w);
    tow_value y = tow_add(tow_mul(w[0], w[1]), w[2]);
    if (d->o[4] == 1) y = tow_add(y, w[3]);
    if (d->o[3] && !tow_scope_is_deterministic(s))
        y = tow_dropout_with_key(y, tow_make_rng(s, "dropout"), 0.25, 0, NULL);
    return tow_apply_module(s, "inner", d->inner[0], y);
}

static inline void call_halved(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                               tow_value *out)
{
    module->cls->call(s, module, n_in, in, n_out, out);
    out[0] = tow_mul_scalar(out[0], 0.5);
}

static inline const wrapped *make_method(side *s, const drawn *d)
{
    const wrapped *own = make_owner(s, d);
    return MAKE(s, tow_method, TOW_METHOD(own, .function = call_halved));
}

/* ---- types and views --------------------------------------------------------------------------------------------- */

/* The inner layer in another element type: o[0]; x and the result stay what they are. */
MADE_CLASS(precise)
static tow_value precise(tow_scope *s, const drawn *d, tow_value x)
{
    static const tow_dtype compute[] = {TOW_BF16, TOW_BF16, TOW_F16, TOW_F64};
    static const tow_dtype params[] = {0, TOW_BF16, 0, TOW_F64};
    const tow_dtype was = tow_value_type(x).dtype;
    tow_precision m = TOW_PRECISION(INNER(d, 0), .dtype = compute[d->o[0]], .param_dtype = params[d->o[0]]);
    tow_value y = tow_apply(s, "inner", &m, tow_convert(x, (tow_dtype)compute[d->o[0]]));
    return tow_convert(y, was);
}

/* A Dense, which has a kernel, and the inner layer. */
MADE_CLASS(kernelled)
static tow_value kernelled(tow_scope *s, const drawn *d, tow_value x)
{
    tow_dense dense = TOW_DENSE(.features = size_of(x, tow_value_type(x).rank - 1));
    return tow_apply_module(s, "inner", d->inner[0], tow_apply(s, "dense", &dense, x));
}

static inline const wrapped *make_lora(side *s, const drawn *d)
{
    const wrapped *inner = make_kernelled(s, d);
    return MAKE(s, tow_lora, TOW_LORA(inner, .rank = d->b, .alpha = d->o[0]));
}

static inline const wrapped *make_weight_norm(side *s, const drawn *d)
{
    const wrapped *inner = make_kernelled(s, d);
    return MAKE(s, tow_weight_norm,
                TOW_WEIGHT_NORM(inner, .whole = d->o[0] == 1, .no_scale = d->o[1], .epsilon = 0.01));
}

static inline const wrapped *make_spectral_norm(side *s, const drawn *d)
{
    const wrapped *inner = make_kernelled(s, d);
    return MAKE(s, tow_spectral_norm, TOW_SPECTRAL_NORM(inner, .n_steps = d->o[0], .epsilon = 0.01));
}

/* ---- lifted transforms ------------------------------------------------------------------------------------------- */

enum {
    MOST_RULES = 4
};

/* The rules that o[0], o[3] and o[4] stand for: of parameters, keys and variables of an owner. */
static inline const tow_lift_rule *rules_of(side *s, const drawn *d, bool carries)
{
    tow_lift_rule rules[MOST_RULES] = {{NULL, TOW_STACKED}};
    size_t n = 0;
    if (d->o[0] == 1) rules[n++] = (tow_lift_rule){"params", TOW_SHARED};
    if (d->o[0] == 2) rules[n++] = (tow_lift_rule){"params/own", TOW_SHARED};
    if (d->o[0] == 3)
        rules[n++] = (tow_lift_rule){"params/o*", TOW_STACKED}, rules[n++] = (tow_lift_rule){"params/**", TOW_SHARED};
    if (d->o[4] == 1 && carries && d->o[5]) rules[n++] = (tow_lift_rule){"batch_stats/own", TOW_CARRIED};
    return n ? keep_layer(s, rules, sizeof rules) : NULL;
}

static inline const tow_lift_rule *keys_of(side *s, const drawn *d)
{
    const tow_lift_rule rules[] = {{"dropout", TOW_SHARED}, {NULL, TOW_STACKED}};
    return d->o[3] == 2 ? keep_layer(s, rules, sizeof rules) : NULL;
}

static inline const wrapped *make_ruled(side *s, const drawn *d)
{
    const wrapped *own = make_owner(s, d);
    return MAKE(s, tow_scan,
                TOW_SCAN(own, .length = d->a, .unrolled = d->other, .reverse = d->flag, .unroll = d->o[2],
                         .keys = d->o[6] == 1 ? TOW_KEYS_FLAX : TOW_KEYS_PATH, .variables = rules_of(s, d, true),
                         .streams = keys_of(s, d)));
}

static inline const wrapped *make_remat_scan(side *s, const drawn *d)
{
    const wrapped *own = make_owner(s, d);
    return MAKE(s, tow_remat_scan,
                TOW_REMAT_SCAN(own, .lengths = {1 + d->a % 2, d->b, d->o[2] == 2 ? 2 : 0}, .policy = d->policy,
                               .keys = d->o[6] == 1 ? TOW_KEYS_FLAX : TOW_KEYS_PATH, .variables = rules_of(s, d, true),
                               .streams = keys_of(s, d)));
}

/* Two kinds of layers by turns, `a` layers, and more where o[0] says before and o[1] behind them. */
static inline const wrapped *make_stack(side *s, const drawn *d)
{
    const wrapped *own = make_owner(s, d);
    const tow_module *pattern[] = {d->inner[0], d->inner[1], NULL}, *one[] = {&own->module, NULL};
    return MAKE(s, tow_layer_stack,
                TOW_LAYER_STACK(.length = d->a + (d->o[0] > 0) + (d->o[1] > 0),
                                .pattern = keep_layer(s, pattern, sizeof pattern), .unrolled = d->other,
                                .first = d->o[0] ? keep_layer(s, one, sizeof one) : NULL,
                                .last = d->o[1] ? keep_layer(s, one, sizeof one) : NULL));
}

/* b members of an ensemble on the same input, whose mean is the result. */
MADE_CLASS(ensemble)
static tow_value ensemble(tow_scope *s, const drawn *d, tow_value x)
{
    const int rank = tow_value_type(x).rank, last = d->o[7] ? -1 : 0;
    tow_vmap_layer m =
        TOW_VMAP(INNER(d, 0), .axis_size = d->b, .in_axes = (int[]){TOW_NOT_MAPPED}, .out_axes = (int[]){last},
                 .keys = d->o[6] == 1 ? TOW_KEYS_FLAX : TOW_KEYS_PATH, .variables = d->rules, .streams = d->keys);
    tow_value y = tow_apply(s, "members", &m, x);
    return tow_mean(y, 1, (int[]){last ? rank : 0});
}

/* An owner and the rules for it. */
static inline drawn with_rules(side *s, const drawn *d)
{
    drawn with = *d;
    with.inner[0] = &make_owner(s, d)->module;
    with.rules = rules_of(s, d, false);
    with.keys = keys_of(s, d);
    return with;
}

static inline const wrapped *make_members(side *s, const drawn *d)
{
    drawn with = with_rules(s, d);
    return make_ensemble(s, &with);
}

/* The inner layer on every row of x [B, T, D] along axis 0, 1, or 1 counted from the end. */
MADE_CLASS(rows)
static tow_value rows(tow_scope *s, const drawn *d, tow_value x)
{
    static const int axes[] = {0, 1, -2, 0}, out_axes[] = {0, 1, 1, -3};
    tow_vmap_layer m =
        TOW_VMAP(INNER(d, 0), .in_axes = &axes[d->o[7]], .out_axes = &out_axes[d->o[7]],
                 .keys = d->o[6] == 1 ? TOW_KEYS_FLAX : TOW_KEYS_PATH, .variables = d->rules, .streams = d->keys);
    return tow_apply(s, "rows", &m, x);
}

static inline const wrapped *make_mapped(side *s, const drawn *d)
{
    drawn with = with_rules(s, d);
    return make_rows(s, &with);
}

/* in: h, what every iteration sees, x of the iteration. out: h, y. */
static inline void call_axis_cell(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in,
                                  size_t n_out, tow_value *out)
{
    (void)n_in, (void)n_out;
    const drawn *d = &((const made *)module)->d;
    tow_value h = tow_add(tow_mul_scalar(in[0], 0.5), tow_add(in[1], in[2]));
    out[0] = tow_tanh(owner(s, d, h));
    out[1] = tow_mul(out[0], tow_sin(in[2]));
}

/* A scan over an axis of x [B, T, D] where it is. */
MADE_CLASS(axis_cells)
static tow_value axis_cells(tow_scope *s, const drawn *d, tow_value x)
{
    static const tow_module_class step_class = {"axis cell", call_axis_cell, NULL};
    const made step = {{&step_class}, *d};
    const tow_value middle = tow_mean(x, 1, (int[]){1});
    const int in_axis = d->o[1] ? -2 : 1, out_axis = d->o[1] == 2 ? -2 : 1;
    tow_scan scan = TOW_SCAN(&step, .n_broadcast = 1, .in_axes = &in_axis, .out_axes = &out_axis, .reverse = d->flag,
                             .unrolled = d->other, .unroll = d->o[2],
                             .variables = d->o[0] ? TOW_RULES({"params/own", TOW_SHARED}) : NULL);
    tow_value in[] = {tow_sin(middle), middle, x}, out[2];
    tow_apply_n(s, "cells", &scan, 3, in, 2, out);
    return tow_add(out[1], tow_expand_dims(out[0], 1));
}

/* ---- choices and loops ------------------------------------------------------------------------------------------- */

/* One of two layers, as the numbers say. o[0]: 2 and 3: the other one; o[1]: as a switch of three; o[2]: behind a
 * custom rule that changes nothing. */
MADE_CLASS(chosen)
static tow_value chosen(tow_scope *s, const drawn *d, tow_value x)
{
    tow_named yes = TOW_NAMED("yes", INNER(d, 0)), no = TOW_NAMED("no", INNER(d, 1));
    tow_cond either = TOW_COND(.yes = TOW_MODULE(&yes), .no = TOW_MODULE(&no));
    tow_switch three = TOW_SWITCH(.branches = TOW_LAYERS(TOW_MODULE(&no), TOW_MODULE(&yes), TOW_MODULE(&no)));
    tow_value sum = tow_reduce_sum(x, 0, NULL), p = tow_gt_scalar(d->o[0] > 1 ? tow_neg(sum) : sum, 0), y;
    if (d->o[1]) p = tow_convert(p, TOW_I32);
    const tow_module *layer = d->o[1] ? TOW_MODULE(&three) : TOW_MODULE(&either);
    tow_custom_vjp_layer rule = TOW_CUSTOM_VJP((const wrapped *)layer);
    if (d->o[2] == 1) layer = TOW_MODULE(&rule);
    tow_apply_module_n(s, "choice", layer, 2, (tow_value[]){p, x}, 1, &y);
    return y;
}

static tow_value small_numbers(tow_scope *s, tow_value x)
{
    (void)s;
    return tow_lt_scalar(tow_mean(tow_abs(x), 0, NULL), 0.5);
}

/* A layer and a gain, so that rules match something. */
MADE_CLASS(stepping)
static tow_value stepping(tow_scope *s, const drawn *d, tow_value x)
{
    tow_value gain = tow_param(s, "gain", 0, NULL, tow_initializer_ones()),
              y = tow_apply_module(s, "inner", d->inner[0], x);
    const tow_type was = tow_value_type(x), type = tow_value_type(y);
    y = tow_mul(y, tow_convert(tow_broadcast_to(gain, type.rank, type.dims), type.dtype));
    return tow_convert(y, was.dtype);
}

/* As long as the numbers are small, at most `a` times. o[0]: keys are the same in all iterations. */
MADE_CLASS(repeated)
static tow_value repeated(tow_scope *s, const drawn *d, tow_value x)
{
    tow_function_layer small = TOW_FUNCTION(small_numbers);
    made step = {{&stepping_class}, *d};
    tow_while loop =
        TOW_WHILE(.condition = TOW_MODULE(&small), .body = TOW_MODULE(&step), .max_iterations = d->a,
                  .variables = TOW_RULES({"*", TOW_CARRIED}), .streams = d->o[0] ? TOW_RULES({"*", TOW_SHARED}) : NULL);
    return tow_apply(s, "loop", &loop, tow_tanh(x));
}

#endif

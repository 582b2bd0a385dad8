/* Attention, positions, gated feed-forward layers and blocks: initial values, outputs and gradients against Flax and
 * JAX (tests/oracle/flax_attention.py), and the same bits under remat, vmap and scan. Tests attention_weights.c,
 * gated_mlp.c, positions.c, rope.c, transformer_block.c, transforms/encoder_decoder.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"

#include "tests/unit/support/catalogue.h"

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* An input after x that is a constant; of the type of x where it is a float. */
typedef struct constant {
    char kind; /* 0: the list ends; m: mask, i mod 3 != 0; p: positions, 5 i mod 11; k: memory; b: bias */
    int rank;
    int64_t dims[5];
} constant;

enum {
    MOST_CONSTANTS = 4
};
/* The child "layer" with constants behind its input. */
typedef struct supplied {
    tow_module module;
    const tow_module *inner;
    constant constants[MOST_CONSTANTS];
} supplied;

static tow_value value_of(tow_trace *t, const constant *c, tow_dtype dtype)
{
    bool mask[256];
    int32_t positions[256];
    for (int i = 0; i < 256; i++) {
        mask[i] = i % 3 != 0;
        positions[i] = i * 5 % 11;
    }
    if (c->kind == 'm') return tow_constant_data(t, tow_make_type(TOW_BOOL, c->rank, c->dims), mask);
    if (c->kind == 'p') return tow_constant_data(t, tow_make_type(TOW_I32, c->rank, c->dims), positions);
    tow_array *array = fractions(tow_make_type(dtype, c->rank, c->dims), c->kind == 'k' ? 1000 : 2000);
    tow_value value = tow_constant(t, array);
    tow_array_release(array);
    return value;
}

static void call_supplied(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    const supplied *m = (const supplied *)module;
    tow_value x[1 + MOST_CONSTANTS] = {in[0]};
    size_t n = 1;
    assert_true(n_in == 1 && n_out == 1);
    for (; n <= MOST_CONSTANTS && m->constants[n - 1].kind; n++)
        x[n] = value_of(tow_scope_trace(s), &m->constants[n - 1], tow_value_type(in[0]).dtype);
    tow_apply_module_n(s, "layer", m->inner, n, x, 1, out);
}
static const tow_module_class supplied_class = {.name = "supplied", .call = call_supplied};

static tow_value gelu_erf(tow_value x) { return tow_gelu_erf(x); }
static tow_value relu(tow_value x) { return tow_relu(x); }
static tow_value logistic(tow_value x) { return tow_logistic(x); }

#define LLAMA3                                                                                                         \
    {                                                                                                                  \
        .theta = 500, .scaling = TOW_ROPE_LLAMA3, .factor = 8, .low_frequency = 1, .high_frequency = 4,                \
        .original_length = 64                                                                                          \
    }

/* Calls use(user, ...) for the case of this name, or for every case (NULL); false if there is none. */
static bool with_case(const char *name, tow_dtype dtype, case_use use, void *user)
{
    bool found = false;
#define LIST(...) {__VA_ARGS__}
#define SHAPE(...)                                                                                                     \
    {                                                                                                                  \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), { __VA_ARGS__ }                                            \
    }
#define MASK(...)                                                                                                      \
    {                                                                                                                  \
        'm', sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), { __VA_ARGS__ }                                       \
    }
#define AT(...)                                                                                                        \
    {                                                                                                                  \
        'p', sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), { __VA_ARGS__ }                                       \
    }
#define MEMORY(...)                                                                                                    \
    {                                                                                                                  \
        'k', sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), { __VA_ARGS__ }                                       \
    }
#define BIAS(...)                                                                                                      \
    {                                                                                                                  \
        'b', sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), { __VA_ARGS__ }                                       \
    }
#define CASE(text, shape, layer, ...)                                                                                  \
    if (!name || strcmp(name, text) == 0) {                                                                            \
        const struct {                                                                                                 \
            int rank;                                                                                                  \
            int64_t dims[4];                                                                                           \
        } input = shape;                                                                                               \
        supplied model = {{&supplied_class}, TOW_MODULE(&(layer)), {__VA_ARGS__}};                                     \
        use(user, text, TOW_MODULE(&model), tow_make_type(dtype, input.rank, input.dims));                             \
        found = true;                                                                                                  \
    }
#define ATTENTION(...) TOW_MULTI_HEAD_ATTENTION(__VA_ARGS__)
#define BLOCK(...)     TOW_TRANSFORMER_BLOCK(__VA_ARGS__)
#define X              SHAPE(2, 5, 8)
    CASE("qk_norm", X, ATTENTION(.heads = 2, .qk_norm = TOW_QK_LAYER_NORM), {0})
    CASE("bias", X, ATTENTION(.heads = 2), BIAS(1, 2, 5, 5))
    CASE("bias_mask", X, ATTENTION(.heads = 4), BIAS(2, 1, 1, 5), MASK(1, 4, 5, 5))
    CASE("cross", SHAPE(2, 4, 8), ATTENTION(.heads = 2, .qkv_features = 12, .out_features = 5), MEMORY(2, 3, 6),
         MASK(2, 1, 1, 3))
    CASE("values", SHAPE(2, 4, 8), ATTENTION(.heads = 2), MEMORY(2, 3, 6), BIAS(2, 3, 5))
    CASE("values_mask", SHAPE(2, 4, 8), ATTENTION(.heads = 4), MEMORY(2, 3, 8), BIAS(2, 3, 8), MASK(4, 3))
    CASE("batches", SHAPE(2, 3, 4, 8), ATTENTION(.heads = 2), MEMORY(2, 3, 5, 6), MASK(3, 1, 4, 5), BIAS(2, 1, 2, 1, 5))
    CASE("batches_self", SHAPE(2, 2, 3, 4), ATTENTION(.heads = 2, .out_features = 3), MASK(2, 1, 1, 3, 3))
    CASE("no_batch", SHAPE(5, 8), ATTENTION(.heads = 2, .qk_norm = TOW_QK_LAYER_NORM), MASK(1, 5, 5), BIAS(2, 5, 5))
    CASE("window", X, ATTENTION(.heads = 2, .causal = true, .window = 3), {0})
    CASE("window_both", SHAPE(2, 7, 8), ATTENTION(.heads = 2, .window = 2), {0})
    CASE("window_cross", SHAPE(2, 4, 8), ATTENTION(.heads = 4, .kv_heads = 2, .causal = true, .window = 2),
         MEMORY(2, 6, 8))
    CASE("window_one", X, ATTENTION(.heads = 2, .causal = true, .window = 1), {0})
    CASE("window_mask", SHAPE(1, 7, 8), ATTENTION(.heads = 2, .window = 4), MASK(1, 1, 7, 7))
    CASE("cap", X, ATTENTION(.heads = 2, .logit_cap = 1.5, .scale = 0.7), {0})
    CASE("cap_causal", X, ATTENTION(.heads = 4, .kv_heads = 1, .logit_cap = 2, .causal = true), {0})
    CASE("cap_bias_mask", X, ATTENTION(.heads = 2, .logit_cap = 0.5), MASK(2, 2, 5, 5), BIAS(2, 2, 5, 1))
    CASE("gates", X, ATTENTION(.heads = 4, .kv_heads = 2, .head_gates = true), {0})
    CASE("no_qkv_bias", X, ATTENTION(.heads = 2, .no_qkv_bias = true, .head_gates = true), {0})
    CASE("no_out_bias", X, ATTENTION(.heads = 2, .no_out_bias = true), {0})
    CASE("rope_rms", X, ATTENTION(.heads = 2, .causal = true, .qk_norm = TOW_QK_RMS_NORM, .rope = true), {0})
    CASE("rope_cross", X, ATTENTION(.heads = 2, .rope = true, .rope_options = {.theta = 100}), MEMORY(2, 3, 8))
    CASE("rope_positions", X, ATTENTION(.heads = 2, .rope = true), AT(2, 5))
    CASE("rope_row", X, ATTENTION(.heads = 2, .rope = true, .rope_options = {.interleaved = true}), AT(5))
    CASE("everything", SHAPE(2, 6, 8),
         ATTENTION(.heads = 4, .kv_heads = 2, .qkv_features = 16, .out_features = 6, .causal = true, .window = 4,
                   .logit_cap = 3, .scale = 0.4, .qk_norm = TOW_QK_RMS_NORM, .head_gates = true, .rope = true,
                   .rope_options = LLAMA3, .no_qkv_bias = true),
         MASK(2, 1, 6, 6), BIAS(1, 4, 6, 6))
    CASE("rope", SHAPE(2, 6, 3, 8), TOW_ROPE(), {0})
    CASE("rope_interleaved", SHAPE(2, 6, 3, 8), TOW_ROPE(.interleaved = true, .theta = 50), {0})
    CASE("rope_partial", SHAPE(2, 6, 3, 10), TOW_ROPE(.features = 4), {0})
    CASE("rope_partial_interleaved", SHAPE(6, 2, 7), TOW_ROPE(.features = 6, .interleaved = true), {0})
    CASE("rope_linear", SHAPE(2, 6, 1, 8), TOW_ROPE(.scaling = TOW_ROPE_LINEAR, .factor = 4), {0})
    CASE("rope_ntk", SHAPE(2, 6, 1, 8), TOW_ROPE(.scaling = TOW_ROPE_NTK, .factor = 4), {0})
    CASE("rope_llama3", SHAPE(1, 9, 1, 16),
         TOW_ROPE(.theta = 500, .scaling = TOW_ROPE_LLAMA3, .factor = 8, .low_frequency = 1, .high_frequency = 4,
                  .original_length = 64),
         {0})
    CASE("rope_batch", SHAPE(2, 4, 1, 6), TOW_ROPE(), AT(2, 4))
    CASE("learned", SHAPE(2, 5, 4), TOW_LEARNED_POSITIONS(.max_length = 7), {0})
    CASE("learned_positions", SHAPE(2, 5, 4), TOW_LEARNED_POSITIONS(.max_length = 11), AT(2, 5))
    CASE("sinusoidal", SHAPE(2, 5, 6), TOW_SINUSOIDAL_POSITIONS(), {0})
    CASE("sinusoidal_odd", SHAPE(2, 5, 7), TOW_SINUSOIDAL_POSITIONS(.max_timescale = 100), {0})
    CASE("sinusoidal_halves", SHAPE(2, 5, 7), TOW_SINUSOIDAL_POSITIONS(.halves = true), AT(2, 5))
    CASE("swiglu", SHAPE(3, 4), TOW_GATED_MLP(.features = 6), {0})
    CASE("geglu", SHAPE(2, 3, 4), TOW_GATED_MLP(.features = 6, .activation = gelu_erf, .out_features = 5), {0})
    CASE("glu", SHAPE(3, 4), TOW_GATED_MLP(.features = 6, .activation = logistic, .no_bias = true), {0})
    CASE("post_norm", X,
         BLOCK(.heads = 2, .mlp_features = 16, .post_norm = true, .epsilon = 1e-12, .activation = gelu_erf),
         MASK(2, 1, 1, 5))
    CASE("parallel", X,
         BLOCK(.heads = 2, .mlp_features = 16, .parallel = true, .causal = true, .rope = true,
               .rope_options = {.features = 2}),
         {0})
    CASE("parallel_shared", X,
         BLOCK(.heads = 2, .mlp_features = 16, .parallel = true, .shared_norm = true, .causal = true, .rope = true,
               .rope_options = {.interleaved = true}),
         {0})
    CASE("llama", X,
         BLOCK(.heads = 4, .kv_heads = 2, .mlp_features = 12, .rms_norm = true, .epsilon = 1e-5, .gated = true,
               .no_bias = true, .causal = true, .rope = true, .rope_options = LLAMA3),
         {0})
    CASE("gemma", X,
         BLOCK(.heads = 2, .qkv_features = 16, .mlp_features = 12, .rms_norm = true, .branch_norms = true,
               .gated = true, .activation = tow_gelu, .no_bias = true, .causal = true, .logit_cap = 5, .window = 3,
               .rope = true, .qk_norm = TOW_QK_RMS_NORM),
         {0})
    CASE("decoder", X, BLOCK(.heads = 2, .mlp_features = 16, .causal = true, .cross = true), MEMORY(2, 3, 6),
         MASK(2, 1, 1, 5), MASK(2, 1, 1, 3))
    CASE("decoder_post", X, BLOCK(.heads = 2, .mlp_features = 16, .causal = true, .cross = true, .post_norm = true),
         MEMORY(2, 3, 8), BIAS(1, 2, 5, 5))
    return found;
}

/* The cases of flax_encoder_decoder.py: the input is the source. */
static bool with_pair(const char *name, tow_dtype dtype, case_use use, void *user)
{
    bool found = false;
    tow_transformer_block read = BLOCK(.heads = 2, .mlp_features = 6),
                          write = BLOCK(.heads = 2, .mlp_features = 6, .causal = true, .cross = true),
                          read_post = BLOCK(.heads = 2, .mlp_features = 6, .post_norm = true, .activation = relu),
                          write_post = BLOCK(.heads = 2, .mlp_features = 6, .causal = true, .cross = true,
                                             .post_norm = true, .activation = relu);
    tow_remat cheap = TOW_REMAT(&write);
    CASE("plain", X,
         TOW_ENCODER_DECODER(.encoder = TOW_MODULE(&read), .decoder = TOW_MODULE(&cheap), .encoder_length = 1,
                             .decoder_length = 2, .unrolled = true),
         MEMORY(2, 4, 8))
    CASE("padded", X,
         TOW_ENCODER_DECODER(.encoder = TOW_MODULE(&read), .decoder = TOW_MODULE(&write), .encoder_length = 2,
                             .decoder_length = 1, .unrolled = true),
         MEMORY(2, 4, 6), MASK(2, 5), MASK(2, 4))
    CASE("post_norm", X,
         TOW_ENCODER_DECODER(.encoder = TOW_MODULE(&read_post), .decoder = TOW_MODULE(&write_post), .encoder_length = 1,
                             .decoder_length = 2, .unrolled = true, .no_final_norms = true),
         MEMORY(2, 4, 8), MASK(2, 5))
    return found;
}

/* As loops the stacks give the bits that they give unrolled. */
static void test_encoder_decoder(void **unused)
{
    (void)unused;
    assert_true(check_golden("flax_encoder_decoder.txt", with_pair) > 200);
    check_wrapped(with_pair);
    check_rows(with_pair);
    tow_transformer_block read = BLOCK(.heads = 2), write = BLOCK(.heads = 2, .causal = true, .cross = true);
    tow_encoder_decoder loop = TOW_ENCODER_DECODER(.encoder = TOW_MODULE(&read), .decoder = TOW_MODULE(&write),
                                                   .encoder_length = 2, .decoder_length = 2),
                        unrolled = loop;
    unrolled.unrolled = true;
    results a = {0}, b = {0};
    tow_type input = tow_make_type(TOW_F32, 3, (int64_t[]){2, 5, 8});
    supplied looped = {{&supplied_class}, TOW_MODULE(&loop), {MEMORY(2, 4, 8), MASK(2, 5)}},
             written = {{&supplied_class}, TOW_MODULE(&unrolled), {MEMORY(2, 4, 8), MASK(2, 5)}};
    compute(&a, TOW_MODULE(&looped), input);
    compute(&b, TOW_MODULE(&written), input);
    assert_memory_equal(tow_array_data(a.arrays[1]), tow_array_data(b.arrays[1]),
                        tow_type_bytes(tow_array_type(b.arrays[1])));
    assert_memory_equal(tow_array_data(a.arrays[a.n - 1]), tow_array_data(b.arrays[b.n - 1]), tow_type_bytes(input));
    release(&a);
    release(&b);
}

static void test_golden(void **unused)
{
    (void)unused;
    assert_true(check_golden("flax_attention.txt", with_case) > 300);
}

static void test_remat(void **unused)
{
    (void)unused;
    check_wrapped(with_case);
}

static void test_scan(void **unused)
{
    (void)unused;
    assert_true(check_stacked(with_case) > 10);
}

static void test_vmap(void **unused)
{
    (void)unused;
    check_rows(with_case);
}

/* Weights are sown before dropout and change no bit of the output; without a mutable collection nothing is sown. */
static void test_sown_weights(void **unused)
{
    (void)unused;
    static const char *const streams[] = {"dropout", NULL}, *const sown[] = {"intermediates", NULL};
    tow_type type = tow_make_type(TOW_F32, 3, (int64_t[]){2, 5, 8});
    tow_params *params, *updates = NULL;
    tow_array *weights[2] = {0}, *outputs[2];
    for (int drops = 0; drops < 2; drops++) {
        tow_multi_head_attention m = TOW_MULTI_HEAD_ATTENTION(.heads = 2, .kv_heads = 1, .causal = true, .window = 3,
                                                              .dropout_rate = drops ? 0.5 : 0);
        OK(tow_model_init(ctx, TOW_MODULE(&m), 3, 1, &type, &params));
        size_t n = tow_params_count(params);
        tow_array *in[16], *out[2];
        for (size_t i = 0; i < n; i++) in[i] = tow_params_array(params, i);
        in[n] = fractions(type, 0);
        OK(tow_array_create(ctx, tow_make_type(TOW_U32, 1, (int64_t[]){2}), &in[n + 1]));
        tow_random_host_key(9, tow_array_data(in[n + 1]));
        for (int sows = 0; sows < 2; sows++) {
            tow_graph *graph;
            m.sow_weights = true;
            tow_model_options options = TOW_MODEL_OPTIONS(.streams = streams, .mutable_collections = sows ? sown : NULL,
                                                          .updates = sows ? &updates : NULL);
            OK(tow_model_forward_graph(TOW_MODULE(&m), params, 1, &type, &options, &graph));
            OK(tow_evaluate(graph, in, out));
            tow_graph_release(graph);
            outputs[sows] = out[0];
            if (!sows) continue;
            assert_int_equal(tow_params_count(updates), 1);
            assert_string_equal(tow_params_path(updates, 0), "intermediates/attention_weights/0");
            tow_params_free(updates);
            weights[drops] = out[1];
        }
        assert_memory_equal(tow_array_data(outputs[0]), tow_array_data(outputs[1]), tow_type_bytes(type));
        for (int i = 0; i < 2; i++) tow_array_release(outputs[i]);
        tow_array_release(in[n]);
        tow_array_release(in[n + 1]);
        tow_params_free(params);
    }
    tow_type shape = tow_make_type(TOW_F32, 4, (int64_t[]){2, 2, 5, 5});
    assert_true(tow_type_equal(tow_array_type(weights[0]), shape));
    assert_memory_equal(tow_array_data(weights[0]), tow_array_data(weights[1]), tow_type_bytes(shape));
    for (int row = 0; row < 20; row++) {
        double sum = 0;
        for (int s = 0; s < 5; s++) {
            double p = element(weights[0], row * 5 + s);
            bool visible = s <= row % 5 && row % 5 - s < 3;
            assert_true(visible ? p > 0 : p == 0);
            sum += p;
        }
        assert_true(fabs(sum - 1) < 1e-6);
    }
    for (int i = 0; i < 2; i++) tow_array_release(weights[i]);
}

/* A mask of fewer axes is one with axes of size 1 in front. */
static void test_masks_broadcast(void **unused)
{
    (void)unused;
    static const constant masks[][2] = {
        {MASK(5, 5), MASK(1, 1, 5, 5)}, {MASK(5), MASK(1, 1, 1, 5)}, {MASK(2, 5, 1), MASK(1, 2, 5, 1)}};
    const tow_type input = tow_make_type(TOW_F32, 3, (int64_t[]){2, 5, 8});
    for (int k = 0; k < 6; k++) {
        tow_multi_head_attention attention = ATTENTION(.heads = 2, .causal = k % 2);
        supplied few = {{&supplied_class}, TOW_MODULE(&attention), {masks[k / 2][0]}},
                 all = {{&supplied_class}, TOW_MODULE(&attention), {masks[k / 2][1]}};
        results a = {0}, b = {0};
        compute(&a, TOW_MODULE(&few), input);
        compute(&b, TOW_MODULE(&all), input);
        for (size_t i = 0; i < a.n; i++)
            assert_memory_equal(tow_array_data(a.arrays[i]), tow_array_data(b.arrays[i]),
                                tow_type_bytes(tow_array_type(b.arrays[i])));
        release(&a);
        release(&b);
    }
}

/* Computed in bf16, with what floats of 16 bits could not count in f32: 8 bits, some of which sums and norms lose. */
static void test_half_precision(void **unused)
{
    (void)unused;
    tow_transformer_block block =
        BLOCK(.heads = 2, .causal = true, .rope = true, .rope_options = {.interleaved = true}, .window = 300,
              .logit_cap = 5, .gated = true, .qk_norm = TOW_QK_RMS_NORM, .rms_norm = true, .attn_dropout_rate = 0);
    tow_precision half = TOW_PRECISION(&block, .dtype = TOW_BF16);
    supplied exact = {{&supplied_class}, TOW_MODULE(&block), {BIAS(1, 2, 400, 1)}},
             rounded = {{&supplied_class}, TOW_MODULE(&half), {BIAS(1, 2, 400, 1)}};
    tow_type input = tow_make_type(TOW_F32, 3, (int64_t[]){1, 400, 8});
    results a = {0}, b = {0};
    compute(&a, TOW_MODULE(&exact), input);
    compute(&b, TOW_MODULE(&rounded), input);
    for (int64_t i = 0; i < 400 * 8; i++) {
        double x = element(a.arrays[1], i), y = element(b.arrays[1], i);
        if (!(fabs(x - y) <= 0.1 * (1 + fabs(x)))) fail_msg("element %d: %g in f32, %g in bf16", (int)i, x, y);
    }
    release(&a);
    release(&b);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void expect_error(const char *says, const tow_module *layer, constant first, constant second)
{
    supplied model = {{&supplied_class}, layer, {first, second}};
    tow_type input = tow_make_type(TOW_F32, 3, (int64_t[]){2, 5, 8});
    tow_params *params = NULL;
    assert_int_not_equal(tow_model_init(ctx, TOW_MODULE(&model), 3, 1, &input, &params), TOW_OK);
    if (!strstr(tow_context_error(ctx), says)) fail_msg("expected \"%s\" in: %s", says, tow_context_error(ctx));
}

static void test_errors(void **unused)
{
    (void)unused;
    const constant none = {0}, mask = MASK(2, 1, 1, 5), at = AT(2, 5), bias = BIAS(1, 2, 5, 5), kv = MEMORY(2, 3, 8);
    const constant wrong_bias = BIAS(1, 2, 4, 5), wrong_at = AT(3), wrong_mask = MASK(3, 5, 5), deep_at = AT(2, 2, 5),
                   rows_at = AT(3, 5);
    const constant other = MEMORY(3, 3, 8), longer = BIAS(2, 4, 8), flat = MEMORY(2, 8);
#define FAILS(says, layer, first, second) expect_error(says, TOW_MODULE(&(layer)), first, second)
#define OPTION(says, ...)                 FAILS(says, ATTENTION(.heads = 2, __VA_ARGS__), none, none)
    OPTION("window", .window = -1);
    OPTION("logit_cap", .logit_cap = -1);
    OPTION("qk_norm_epsilon", .qk_norm_epsilon = -1);
    OPTION("qk_norm", .qk_norm = (tow_qk_norm)7);
    OPTION("scale", .scale = INFINITY);
    OPTION("even number", .rope = true, .rope_options = {.features = 3});
    OPTION("even number", .rope = true, .rope_options = {.features = 6});
    OPTION("negative", .rope = true, .rope_options = {.theta = -1});
    OPTION("high_frequency", .rope = true,
           .rope_options = {.scaling = TOW_ROPE_LLAMA3, .low_frequency = 4, .high_frequency = 2});
    FAILS("input 2", ATTENTION(.heads = 2), mask, mask);
    FAILS("positions are for .rope", ATTENTION(.heads = 2), at, none);
    FAILS("positions must be i32[5], or i32[2,5]", ATTENTION(.heads = 2, .rope = true), wrong_at, none);
    FAILS("positions must be i32[5], or i32[2,5]", ATTENTION(.heads = 2, .rope = true), deep_at, none);
    FAILS("positions must be i32[5], or i32[2,5]", ATTENTION(.heads = 2, .rope = true), rows_at, none);
    FAILS("the bias must be f32[2,2,5,5]", ATTENTION(.heads = 2), wrong_bias, none);
    FAILS("input 1: expected f32[2,3,8], for the batch of input 0, found f32[3,3,8]", ATTENTION(.heads = 2), other,
          none);
    FAILS("input 2: expected f32[2,3,8], for the positions of input 1, found f32[2,4,8]", ATTENTION(.heads = 2), kv,
          longer);
    FAILS("the mask must be bool[2,2,5,5]", ATTENTION(.heads = 2), wrong_mask, none);
    FAILS("input 1: expected one to three", ATTENTION(.heads = 2), flat, none);
    FAILS("expected none of them", ATTENTION(.heads = 2, .decode = true, .causal = true), kv, none);
    FAILS("expected none of them", ATTENTION(.heads = 2, .decode = true, .window = 2), kv, none);
    FAILS("expected none of them", ATTENTION(.heads = 2, .decode = true, .rope = true), kv, none);
    FAILS(".recall without .decode", ATTENTION(.heads = 2, .recall = true), kv, none);
    FAILS("or without a memory", ATTENTION(.heads = 2, .decode = true, .recall = true), none, none);
    FAILS("recall", BLOCK(.heads = 2, .decode = true, .recall = true), none, none);
    FAILS(".parallel", BLOCK(.heads = 2, .parallel = true, .post_norm = true), none, none);
    FAILS(".shared_norm", BLOCK(.heads = 2, .shared_norm = true), none, none);
    FAILS(".cross without a memory", BLOCK(.heads = 2, .cross = true), none, none);
    FAILS("input 1", BLOCK(.heads = 2), kv, none);
    FAILS("input 2", BLOCK(.heads = 2), bias, bias);
    FAILS("features", TOW_GATED_MLP(.features = 0), none, none);
    FAILS("max_length", TOW_LEARNED_POSITIONS(.max_length = 4), none, none);
    FAILS("expected positions", TOW_SINUSOIDAL_POSITIONS(), wrong_at, none);
    FAILS("without .decode", TOW_LEARNED_POSITIONS(.max_length = 9, .decode = true), at, none);
    FAILS("max_timescale", TOW_SINUSOIDAL_POSITIONS(.max_timescale = -1), none, none);
    tow_transformer_block block = BLOCK(.heads = 2);
    FAILS("encoder_length", TOW_ENCODER_DECODER(.encoder = TOW_MODULE(&block), .decoder = TOW_MODULE(&block)), kv,
          none);
    FAILS("input 2",
          TOW_ENCODER_DECODER(.encoder = TOW_MODULE(&block), .decoder = TOW_MODULE(&block), .encoder_length = 1,
                              .decoder_length = 1),
          kv, mask);
    FAILS("expected a layer", TOW_ENCODER_DECODER(.encoder_length = 1, .decoder_length = 1), kv, none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_remat),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_vmap),
        cmocka_unit_test(test_encoder_decoder),
        cmocka_unit_test(test_sown_weights),
        cmocka_unit_test(test_masks_broadcast),
        cmocka_unit_test(test_half_precision),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, portable_setup, teardown);
}

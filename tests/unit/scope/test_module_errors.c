/* Tests what goes wrong in models: one message with the path, what was expected, what was found and what to do; and
 * every allocation failing in turn, without a leak. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/plain_context.h"
#include "tow/attention.h"
#include "tow/model.h"
#include "tow/transforms.h"

#define TYPE(dtype, ...)                                                                                               \
    tow_make_type(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
#define F32(...) TYPE(TOW_F32, __VA_ARGS__)

/* The status, and every text in the message (NULL-terminated list). */
#define expect_error(found, status, ...) check_error(#found, found, status, (const char *const[]){__VA_ARGS__, NULL})
static void check_error(const char *call, tow_status found, tow_status expected, const char *const *texts)
{
    const char *message = tow_context_error(ctx);
    if (found != expected)
        fail_msg("%s: expected \"%s\", found \"%s\": %s", call, tow_status_text(expected), tow_status_text(found),
                 message);
    for (; *texts; texts++)
        if (!strstr(message, *texts)) fail_msg("%s: \"%s\" is not in: %s", call, *texts, message);
}

/* A layer in the scopes "model" / "part", so that messages have a path. */
typedef struct nested {
    tow_module module;
    const tow_module *inner;
} nested;
static void call_nested(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    tow_scope *part = tow_scope_begin(s, "part");
    tow_apply_module_n(part, "layer", ((const nested *)module)->inner, n_in, in, n_out, out);
    tow_scope_end(part);
}
static const tow_module_class nested_class = {"nested", call_nested};

static tow_status init_layer(const tow_module *layer, size_t n_in, const tow_type *types)
{
    nested model = {{&nested_class}, layer};
    tow_params *params = NULL;
    tow_status status = tow_model_init(ctx, TOW_MODULE(&model), 0, n_in, types, &params);
    if (status) assert_null(params);
    tow_params_free(params);
    return status;
}
#define init(layer, ...)                                                                                               \
    init_layer(TOW_MODULE(&(layer)), sizeof((tow_type[]){__VA_ARGS__}) / sizeof(tow_type), (tow_type[]){__VA_ARGS__})

static void test_layers_check_inputs_and_options(void **state)
{
    (void)state;
    expect_error(init(TOW_DENSE(), F32(2, 3)), TOW_INVALID_ARGUMENT,
                 "part/layer: Dense: .features = 0; expected a positive number");
    expect_error(init(TOW_DENSE(.features = -4), F32(2, 3)), TOW_INVALID_ARGUMENT, ".features = -4");
    expect_error(init(TOW_DENSE(.features = 4), TYPE(TOW_I32, 2, 3)), TOW_TYPE_MISMATCH, "part/layer",
                 "f32, f64, bf16 or f16 of rank 1 or more", "i32[2,3]");
    expect_error(init(TOW_DENSE(.features = 4), tow_make_type(TOW_F32, 0, NULL)), TOW_SHAPE_MISMATCH, "part/layer",
                 "f32[]");
    expect_error(init(TOW_DENSE(.features = 4), F32(2, 3), F32(2, 3)), TOW_INVALID_ARGUMENT,
                 "expected 1 input and 1 output, found 2 and 1");
    expect_error(init(TOW_DENSE_GENERAL(.features = {4}, .n_axes = 1, .axes = {3}), F32(2, 3)), TOW_INVALID_ARGUMENT,
                 ".axes[0] = 3", "f32[2,3]");
    expect_error(init(TOW_DENSE_GENERAL(.features = {4}, .n_axes = 2, .axes = {1, -1}), F32(2, 3)),
                 TOW_INVALID_ARGUMENT, ".axes[1] = -1");
    expect_error(init(TOW_DENSE_GENERAL(), F32(2, 3)), TOW_INVALID_ARGUMENT, ".features");
    expect_error(init(TOW_MLP(), F32(2, 3)), TOW_INVALID_ARGUMENT, ".features[0] = 0");
    expect_error(init(TOW_EMBED(.num_embeddings = 5, .features = 2), F32(3)), TOW_TYPE_MISMATCH, "i32 or u32",
                 "f32[3]");
    expect_error(init(TOW_DROPOUT(.rate = 1.5), F32(3)), TOW_INVALID_ARGUMENT, ".rate = 1.5", "[0, 1]");
    expect_error(init(TOW_DROPOUT(.rate = 0.5, .n_broadcast_axes = 1, .broadcast_axes = {1}), F32(3)),
                 TOW_INVALID_ARGUMENT, "Dropout: .broadcast_axes[0] = 1", "f32[3]");
    expect_error(init(TOW_MULTI_HEAD_ATTENTION(.heads = 3), F32(1, 2, 8)), TOW_INVALID_ARGUMENT, ".qkv_features = 8",
                 "multiple of .heads");
    expect_error(init(TOW_MULTI_HEAD_ATTENTION(.heads = 4, .kv_heads = 3), F32(1, 2, 8)), TOW_INVALID_ARGUMENT,
                 ".kv_heads = 3");
    expect_error(init(TOW_MULTI_HEAD_ATTENTION(.heads = 2), F32(8)), TOW_SHAPE_MISMATCH,
                 "floats [batch...,time,features]", "f32[8]");
    expect_error(init(TOW_MULTI_HEAD_ATTENTION(.heads = 2), F32(1, 2, 8), TYPE(TOW_BOOL, 1, 1, 2, 3)),
                 TOW_SHAPE_MISMATCH, "bool[1,1,2,3]");
    expect_error(init(TOW_TRANSFORMER_BLOCK(.heads = 2), F32(4, 8)), TOW_SHAPE_MISMATCH, "TransformerBlock",
                 "f32[4,8]");
    expect_error(init(((tow_sequential){.module = {&tow_sequential_class, sizeof(tow_sequential)}}), F32(2)),
                 TOW_INVALID_ARGUMENT, "no layers");
    expect_error(init((tow_dense){.features = 3}, F32(2)), TOW_INVALID_ARGUMENT, "the layer has no class");
    expect_error(init(TOW_DENSE(.features = 3, .bias_init = tow_initializer_lecun_normal()), F32(2)),
                 TOW_INVALID_ARGUMENT, "params/part/layer/bias: variance scaling needs a shape of rank 2 or more",
                 "f32[3]");
    tow_initializer no_fan = tow_initializer_variance_scaling(1, (tow_fan_mode)7, TOW_NORMAL);
    tow_initializer no_distribution = tow_initializer_variance_scaling(1, TOW_FAN_IN, (tow_distribution)3);
    expect_error(init(TOW_DENSE(.features = 3, .kernel_init = no_fan), F32(2)), TOW_INVALID_ARGUMENT,
                 "params/part/layer/kernel: variance scaling", "mode 7, distribution 1");
    expect_error(init(TOW_DENSE(.features = 3, .kernel_init = no_distribution), F32(2)), TOW_INVALID_ARGUMENT,
                 "params/part/layer/kernel: variance scaling", "mode 0, distribution 3");
}

/* Two children of one name and different sizes. */
static void call_twins(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_dense a = TOW_DENSE(.features = 3), b = TOW_DENSE(.features = 4);
    out[0] = tow_apply(s, "twin", &b, tow_apply(s, "twin", &a, in[0]));
}
static const tow_module_class twins_class = {"twins", call_twins};

static void call_slash(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_dense a = TOW_DENSE(.features = 3);
    out[0] = tow_apply(s, "a/b", &a, in[0]);
}
static const tow_module_class slash_class = {"slash", call_slash};

static void call_silent(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)s, (void)module, (void)n_in, (void)in, (void)n_out, (void)out;
}
static const tow_module_class silent_class = {"Silent", call_silent};

/* Hands a value of the first call to a layer in the second. */
static void call_late(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    static tow_value first;
    (void)module, (void)n_in, (void)n_out;
    tow_dense dense = TOW_DENSE(.features = 3);
    if (tow_is_null(first)) first = in[0];
    out[0] = tow_apply(s, "dense", &dense, first);
}
static const tow_module_class late_class = {"Late", call_late};

typedef struct bare {
    tow_module module;
} bare;

/* A parameter of the module's own, as it says. */
typedef struct own {
    tow_module module;
    const char *name;
    const int64_t *dims;
    tow_initializer init;
} own;

static void call_own(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    (void)n_in, (void)in, (void)n_out;
    const own *m = (const own *)module;
    out[0] = tow_param(s, m->name, 1, m->dims, m->init);
}
static const tow_module_class own_class = {"Own", call_own};

static tow_status fail_silently(tow_context *context, const tow_initializer *self, tow_type type, const uint32_t key[2],
                                float *data)
{
    (void)context, (void)self, (void)type, (void)key, (void)data;
    return TOW_UNSUPPORTED;
}

static void test_parameters_are_checked(void **state)
{
    (void)state;
    static const int64_t three = 3, negative = -3, huge = INT64_MAX;
    const tow_initializer zeros = tow_initializer_zeros(), silent = {.fill = fail_silently};
    const tow_initializer odd = tow_initializer_variance_scaling(1, (tow_fan_mode)9, TOW_NORMAL),
                          below = tow_initializer_variance_scaling(-1, TOW_FAN_IN, TOW_NORMAL);
    expect_error(init(((own){{&own_class}, "a/b", &three, zeros}), F32(2)), TOW_INVALID_ARGUMENT, "\"a/b\"",
                 "without '/'");
    expect_error(init(((own){{&own_class}, "{}", &three, zeros}), F32(2)), TOW_INVALID_ARGUMENT, "\"{}\"");
    expect_error(init(((own){{&own_class}, "", &three, zeros}), F32(2)), TOW_INVALID_ARGUMENT, "no such name");
    expect_error(init(((own){{&own_class}, NULL, &three, zeros}), F32(2)), TOW_INVALID_ARGUMENT, "no such name");
    expect_error(init(((own){{&own_class}, "a", NULL, zeros}), F32(2)), TOW_INVALID_ARGUMENT, "found no dimensions");
    expect_error(init(((own){{&own_class}, "a", &three, {0}}), F32(2)), TOW_INVALID_ARGUMENT, "found no initializer");
    expect_error(init(((own){{&own_class}, "a", &negative, zeros}), F32(2)), TOW_INVALID_ARGUMENT, "f32[-3]");
    expect_error(init(((own){{&own_class}, "a", &huge, zeros}), F32(2)), TOW_INVALID_ARGUMENT, "2^60 bytes");
    expect_error(init(((own){{&own_class}, "a", &three, silent}), F32(2)), TOW_UNSUPPORTED, "params/part/layer/a",
                 "failed without a message");
    expect_error(init(((own){{&own_class}, "a", &three, odd}), F32(2)), TOW_INVALID_ARGUMENT, "params/part/layer/a",
                 "variance scaling", "mode 9");
    expect_error(init(((own){{&own_class}, "a", &three, below}), F32(2)), TOW_INVALID_ARGUMENT, "scale -1");
}

static void test_scopes_check_names(void **state)
{
    (void)state;
    expect_error(init(((bare){{&twins_class}}), F32(2, 4)), TOW_SHAPE_MISMATCH,
                 "params/part/layer/twin/kernel: the layer asks for f32[3,4], the parameter is f32[4,3]");
    expect_error(init(((bare){{&slash_class}}), F32(2, 4)), TOW_INVALID_ARGUMENT, "\"a/b\" cannot name a child");
    expect_error(init(((bare){{&silent_class}}), F32(2, 4)), TOW_INVALID_ARGUMENT,
                 "part/layer: Silent did not write output 0 of 1");
    OK(init(((bare){{&late_class}}), F32(2, 4)));
    expect_error(init(((bare){{&late_class}}), F32(2, 4)), TOW_INVALID_ARGUMENT, "test_module_errors.c",
                 "part/layer/dense", "a value of an earlier trace, which has ended");
}

static void test_given_parameters_must_fit(void **state)
{
    (void)state;
    tow_dense small = TOW_DENSE(.features = 3), wide = TOW_DENSE(.features = 4),
              bare_dense = TOW_DENSE(.features = 3, .no_bias = true);
    tow_dense square = TOW_DENSE(.features = 5);
    tow_scan six = TOW_SCAN(&square, .length = 6), four = TOW_SCAN(&square, .length = 4),
             flat = TOW_SCAN(&square, .length = 6, .unrolled = true);
    tow_type x = F32(2, 5);
    tow_params *of_small, *of_bare, *of_six;
    OK(tow_model_init(ctx, TOW_MODULE(&small), 0, 1, &x, &of_small));
    OK(tow_model_init(ctx, TOW_MODULE(&bare_dense), 0, 1, &x, &of_bare));
    OK(tow_model_init(ctx, TOW_MODULE(&six), 0, 1, &x, &of_six));
    tow_graph *g;
    expect_error(tow_model_forward_graph(TOW_MODULE(&wide), of_small, 1, &x, NULL, &g), TOW_SHAPE_MISMATCH,
                 "params/kernel: the layer asks for f32[5,4], the parameter is f32[5,3]");
    assert_null(g);
    expect_error(tow_model_forward_graph(TOW_MODULE(&small), of_bare, 1, &x, NULL, &g), TOW_NOT_FOUND,
                 "params/bias: the model asks for f32[3]");
    expect_error(tow_model_forward_graph(TOW_MODULE(&bare_dense), of_small, 1, &x, NULL, &g), TOW_NOT_FOUND,
                 "params/bias: f32[3] is among the parameters given, but the model does not ask for it");
    expect_error(tow_model_forward_graph(TOW_MODULE(&four), of_six, 1, &x, NULL, &g), TOW_SHAPE_MISMATCH,
                 "params/{}/kernel: expected 4 layers in the leading axis", "f32[6,5,5]");
    expect_error(tow_model_forward_graph(TOW_MODULE(&flat), of_six, 1, &x, NULL, &g), TOW_NOT_FOUND, "params/0/kernel",
                 "tow_params_from_tensors");
    tow_params_free(of_small);
    tow_params_free(of_bare);
    tow_params_free(of_six);
}

static void not_scalar(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss, tow_value *aux,
                       void *user)
{
    (void)t, (void)extra, (void)aux, (void)user;
    *loss = outputs[0];
}

static void test_streams_and_losses(void **state)
{
    (void)state;
    tow_dropout dropout = TOW_DROPOUT(.rate = 0.1);
    nested model = {{&nested_class}, TOW_MODULE(&dropout)};
    tow_type x = F32(2, 5);
    tow_params *params;
    OK(tow_model_init(ctx, TOW_MODULE(&model), 0, 1, &x, &params));
    tow_graph *g;
    expect_error(tow_model_forward_graph(TOW_MODULE(&model), params, 1, &x, NULL, &g), TOW_NOT_FOUND,
                 "part/layer: needs random keys of stream \"dropout\"", "given none", ".streams");
    tow_model_options other = TOW_MODEL_OPTIONS(.streams = (const char *const[]){"dropuot", NULL});
    expect_error(tow_model_forward_graph(TOW_MODULE(&model), params, 1, &x, &other, &g), TOW_NOT_FOUND,
                 "given \"dropuot\"");
    tow_model_options evaluation = TOW_MODEL_OPTIONS(.deterministic = true);
    OK(tow_model_forward_graph(TOW_MODULE(&model), params, 1, &x, &evaluation, &g));
    assert_int_equal(tow_graph_equation_count(g), 0);
    tow_graph_release(g);
    expect_error(tow_model_loss_graph(TOW_MODULE(&model), params, 1, &x, 0, NULL, not_scalar, NULL, 0, &evaluation, &g),
                 TOW_SHAPE_MISMATCH, "loss: expected a float scalar, found f32[2,5]");
    expect_error(tow_model_loss_graph(TOW_MODULE(&model), params, 1, &x, 0, NULL, NULL, NULL, 0, NULL, &g),
                 TOW_INVALID_ARGUMENT, "tow_model_forward_graph");
    tow_params_free(params);
}

static void test_transforms(void **state)
{
    (void)state;
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 2);
    tow_type x = F32(1, 2, 4);
    expect_error(init(TOW_REMAT(&block, .policy = tow_save_only_these_names("attn_out", "mlp_oot")), x), TOW_NOT_FOUND,
                 "part/layer: remat: the policy refers to the checkpoint name \"mlp_oot\"", "attn_out", "mlp_out",
                 "block_out");
    tow_scan blocks = TOW_SCAN(&block, .length = 2);
    OK(init(TOW_REMAT(&blocks, .policy = tow_save_only_these_names("mlp_out")), x)); /* a name inside a nested loop */
    tow_dense dense = TOW_DENSE(.features = 3);
    expect_error(init(TOW_REMAT(&dense, .policy = tow_save_any_names_but_these("a")), F32(2, 3)), TOW_NOT_FOUND,
                 "no value in it is named");
    const tow_policy dots = tow_dots_saveable(), name = tow_save_only_these_names("a");
    expect_error(init(TOW_REMAT(&dense, .policy = tow_save_either(&dots, &name)), F32(2, 3)), TOW_NOT_FOUND, "\"a\"");

    for (int unrolled = 0; unrolled < 2; unrolled++) {
        const char *path = unrolled ? "part/layer/0: scan: carry 0" : "part/layer/{}: scan: carry 0";
        expect_error(init(TOW_SCAN(&dense, .length = 2, .unrolled = unrolled), F32(2, 5)), TOW_TYPE_MISMATCH, path,
                     "f32[2,5]", "f32[2,3]");
        expect_error(init(TOW_SCAN(&dense, .length = 4, .unrolled = unrolled), F32(2, 3), F32(3, 3)),
                     TOW_SHAPE_MISMATCH, "scan: xs 0", "length 4", "f32[3,3]");
    }
    expect_error(init(TOW_SCAN(&dense), F32(2, 3)), TOW_INVALID_ARGUMENT, "scan: no length");
    expect_error(init(TOW_SCAN(&dense, .length = -1), F32(2, 3)), TOW_INVALID_ARGUMENT, ".length = -1");
    expect_error(init(TOW_SCAN(&dense, .length = 2, .n_carry = 2), F32(2, 3)), TOW_INVALID_ARGUMENT,
                 "at least 2 inputs");
    OK(init(TOW_SCAN(&dense, .empty = true), F32(2, 3)));
}

/* ---- every allocation failing in turn ---------------------------------------------------------------------------- */

/* Everything this folder does with a model, once. */
static tow_status use_model(tow_context *c)
{
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 2, .mlp_features = 4, .dropout_rate = 0.5);
    tow_remat remat = TOW_REMAT(&block, .policy = tow_save_only_these_names("mlp_out"));
    tow_scan scan = TOW_SCAN(&remat, .length = 2);
    nested model = {{&nested_class}, TOW_MODULE(&scan)};
    tow_type x = F32(1, 2, 4);
    tow_model_options options = TOW_MODEL_OPTIONS(.streams = (const char *const[]){"dropout", NULL});
    tow_params *params = NULL, *zeros = NULL;
    tow_tensors *tensors = NULL;
    tow_graph *g = NULL;
    tow_status status = tow_model_init(c, TOW_MODULE(&model), 0, 1, &x, &params);
    if (!status) status = tow_model_forward_graph(TOW_MODULE(&model), params, 1, &x, &options, &g);
    if (!status) status = tow_params_zeros_like(params, &zeros);
    if (!status) status = tow_tensors_create(c, &tensors);
    if (!status) status = tow_params_to_tensors(params, "p/", tensors);
    if (!status) status = tow_params_from_tensors(zeros, "p/", tensors);
    tow_tensors_free(tensors);
    tow_graph_release(g);
    tow_params_free(params);
    tow_params_free(zeros);
    return status;
}

static void test_every_allocation_failing(void **state)
{
    (void)state;
    counting count;
    long runs = 0;
    for (long n = 0;; ++n, ++runs) {
        tow_context_options options = counting_options(&count, n);
        tow_context *c = NULL;
        tow_status status = tow_context_create(&options, &c);
        if (!status) status = use_model(c);
        bool failed = count.calls > n;
        if (status != (failed ? TOW_OUT_OF_MEMORY : TOW_OK))
            fail_msg("allocation %ld: %s: %s", n, tow_status_text(status), c ? tow_context_error(c) : "");
        tow_context_free(c);
        if (count.blocks != 0 || count.wrong_sizes != 0)
            fail_msg("allocation %ld: %ld blocks leak, %d wrong sizes", n, count.blocks, count.wrong_sizes);
        if (!failed) break;
    }
    assert_true(runs > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_check_inputs_and_options),
        cmocka_unit_test(test_scopes_check_names),
        cmocka_unit_test(test_parameters_are_checked),
        cmocka_unit_test(test_given_parameters_must_fit),
        cmocka_unit_test(test_streams_and_losses),
        cmocka_unit_test(test_transforms),
        cmocka_unit_test(test_every_allocation_failing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

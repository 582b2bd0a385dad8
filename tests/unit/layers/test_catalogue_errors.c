/* Tests what goes wrong in the layers from Conv on: one message with the path, what was expected, what was found and
 * what to do; and every allocation failing in turn, without a leak. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

#define TYPE(dtype, ...)                                                                                               \
    tow_make_type(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
#define F32(...) TYPE(TOW_F32, __VA_ARGS__)

/* A layer in the scope "part". */
typedef struct nested {
    tow_module module;
    const tow_module *inner;
} nested;
static void call_nested(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    tow_apply_module_n(s, "part", ((const nested *)module)->inner, n_in, in, n_out, out);
}
static const tow_module_class nested_class = {.name = "nested", .call = call_nested};

/* The layer is refused with this status, and every text in the message (NULL-terminated). */
static void check_refused(const char *what, const tow_module *layer, tow_status expected, size_t n_in,
                          const tow_type *types, const char *const *texts)
{
    nested model = {{&nested_class}, layer};
    tow_params *params = NULL, *state = NULL;
    tow_status status = tow_model_init_with(ctx, TOW_MODULE(&model), 0, n_in, types, NULL, &params, &state);
    const char *message = status ? tow_context_error(ctx) : "accepted";
    if (status != expected) fail_msg("%s: expected \"%s\", found: %s", what, tow_status_text(expected), message);
    if (strncmp(message, "part: ", 6) != 0) fail_msg("%s: the message has no path: %s", what, message);
    for (; *texts; texts++)
        if (!strstr(message, *texts)) fail_msg("%s: \"%s\" is not in: %s", what, *texts, message);
    assert_null(params);
    assert_null(state);
}
#define INPUTS(...)                                                                                                    \
    sizeof((tow_type[]){__VA_ARGS__}) / sizeof(tow_type), (tow_type[]) { __VA_ARGS__ }
#define SHAPE TOW_SHAPE_MISMATCH
#define BAD   TOW_INVALID_ARGUMENT
#define refused(layer, status, inputs, ...)                                                                            \
    check_refused(#layer, TOW_MODULE(&(layer)), status, INPUTS inputs, (const char *const[]){__VA_ARGS__, NULL})

static void test_convolutions(void **state)
{
    (void)state;
    refused(TOW_CONV(.kernel_size = {3}), BAD, (F32(2, 5, 3)), "Conv: .features = 0", "a positive number");
    refused(TOW_CONV(.features = 2), BAD, (F32(2, 5, 3)), "Conv: .kernel_size[0] = 0", "at least one positive number");
    refused(TOW_CONV(.features = 2, .kernel_size = {3, 0, 3}), BAD, (F32(2, 5, 3)), ".kernel_size = 3", "only zeros");
    refused(TOW_CONV(.features = 2, .kernel_size = {3, 3}), SHAPE, (F32(5, 3)), "2 spatial axes", "f32[5,3]");
    refused(TOW_CONV(.features = 2, .kernel_size = {1, 1, 1, 1, 1, 1, 1}), BAD, (F32(5, 3)), "7 entries", "at most 6");
    refused(TOW_CONV(.features = 2, .kernel_size = {3}), TOW_TYPE_MISMATCH, (TYPE(TOW_I32, 2, 5, 3)),
            "Conv: input 0: expected f32, f64, bf16 or f16", "i32[2,5,3]");
    refused(TOW_CONV(.features = 2, .kernel_size = {3, 3}, .strides = {1, 2, 2}), BAD, (F32(2, 5, 5, 3)),
            ".strides has 3 entries; expected 2");
    refused(TOW_CONV(.features = 2, .kernel_size = {3, 3}, .strides = {2, -1}), BAD, (F32(2, 5, 5, 3)),
            ".strides = -1");
    refused(TOW_CONV(.features = 2, .kernel_size = {3}, .kernel_dilation = {-2}), BAD, (F32(2, 5, 3)),
            ".kernel_dilation = -2");
    refused(TOW_CONV(.features = 4, .kernel_size = {3}, .groups = 2), SHAPE, (F32(2, 5, 3)), ".groups = 2 must divide",
            "the 3 features");
    refused(TOW_CONV(.features = 3, .kernel_size = {3}, .groups = -1), BAD, (F32(2, 5, 3)), ".groups = -1");
    refused(TOW_CONV(.features = 3, .kernel_size = {3, 3}, .padding = TOW_CONV_CAUSAL), BAD, (F32(2, 5, 5, 3)),
            "TOW_CONV_CAUSAL is for one spatial axis", "use TOW_CONV_EXPLICIT");
    refused(TOW_CONV(.features = 3, .kernel_size = {3}, .input_dilation = {2}), BAD, (F32(2, 5, 3)),
            "TOW_CONV_SAME is not defined with .input_dilation", "ConvTranspose");
    refused(TOW_CONV(.features = 3, .kernel_size = {3}, .padding = (tow_conv_padding)9), BAD, (F32(2, 5, 3)),
            ".padding = 9; expected a tow_conv_padding");
    refused(TOW_CONV(.features = 3, .kernel_size = {3}, .low = {1}), BAD, (F32(2, 5, 3)), ".low[0] = 1",
            "explicit padding only");
    refused(TOW_CONV(.features = 3, .kernel_size = {3}, .padding = TOW_CONV_EXPLICIT, .high = {0, 2}), BAD,
            (F32(2, 5, 3)), ".high[1] = 2", "the 1 spatial axes");
    refused(TOW_CONV(.features = 3, .kernel_size = {3}, .padding = TOW_CONV_CIRCULAR), SHAPE, (F32(2, 0, 3)),
            "TOW_CONV_CIRCULAR has nothing to pad with", "is empty");
    refused(TOW_CONV(.features = 3, .kernel_size = {3}), SHAPE, (F32(2, 5, 3), TYPE(TOW_BOOL, 3, 3)),
            "expected a mask of the kernel's shape f32[3,3,3], found bool[3,3]");
    refused(TOW_CONV(.features = 1, .kernel_size = {INT64_MAX}), BAD, (F32(2, 5, 3)), ".kernel_size", "below 2^30");
    refused(TOW_CONV(.features = 1, .kernel_size = {3}, .kernel_dilation = {INT64_MAX}), BAD, (F32(2, 5, 3)),
            ".kernel_dilation", "below 2^30");
    refused(TOW_CONV_LOCAL(.kernel_size = {3}), BAD, (F32(2, 5, 3)), "ConvLocal: .features = 0");
    refused(TOW_CONV_LOCAL(.features = 1, .kernel_size = {65, 65}), BAD, (F32(2, 5, 5, 3)),
            "ConvLocal: .kernel_size = 4225; expected at most 4096");
    refused(TOW_CONV_LOCAL(.features = 1, .kernel_size = {1, 1, 1, 1, 1, 1}), BAD, (F32(1, 1, 1, 1, 1, 1, 1, 1)),
            "ConvLocal: .kernel_size = 6; expected at most 5");
    refused(TOW_CONV_LOCAL(.features = 3, .kernel_size = {3}), SHAPE, (F32(2, 5, 3), TYPE(TOW_BOOL, 3, 3, 3)),
            "expected a mask of the kernel's shape f32[5,9,3]");
    refused(TOW_CONV_TRANSPOSE(.features = 3, .kernel_size = {3}, .padding = TOW_CONV_REFLECT), BAD, (F32(2, 5, 3)),
            "ConvTranspose: .padding", "_CIRCULAR or _EXPLICIT");
    refused(TOW_CONV_TRANSPOSE(.kernel_size = {3}), BAD, (F32(2, 5, 3)), "ConvTranspose: .features = 0");
    refused(TOW_CONV_TRANSPOSE(.features = 3, .kernel_size = {3}, .high = {1}), BAD, (F32(2, 5, 3)), ".high[0] = 1");
}

static void test_pools(void **state)
{
    (void)state;
    refused(TOW_POOL(), BAD, (F32(2, 5, 3)), "Pool: .window[0] = 0");
    refused(TOW_POOL(.window = {2}, .kind = (tow_pool_kind)3), BAD, (F32(2, 5, 3)), ".kind = 3", "TOW_POOL_AVG");
    refused(TOW_POOL(.window = {2, 2}), SHAPE, (F32(5, 3)), "2 spatial axes");
    refused(TOW_POOL(.window = {2}, .low = {1}), BAD, (F32(2, 5, 3)), ".low[0] = 1");
    refused(TOW_ADAPTIVE_POOL(.size = {0}), BAD, (F32(2, 5, 3)), "AdaptivePool: .size[0] = 0");
    refused(TOW_ADAPTIVE_POOL(.size = {2}), SHAPE, (F32(2, 0, 3)), "axis 1 of the input f32[2,0,3] has no elements");
    refused(TOW_ADAPTIVE_POOL(.size = {5000}), BAD, (F32(2, 7, 3)), ".size = 5000", "at most 4096");
    refused(TOW_SPACE_TO_DEPTH(.block = {1 << 20, 1 << 20}, .inverse = true), BAD, (F32(2, 4, 4, 6)), ".block",
            "below 2^30");
    refused(TOW_SPACE_TO_DEPTH(.block = {2, 2}), SHAPE, (F32(2, 4, 5, 3)), "axis 2 of f32[2,4,5,3]", ".block[1] = 2");
    refused(TOW_SPACE_TO_DEPTH(.block = {2, 2}, .inverse = true), SHAPE, (F32(2, 4, 4, 6)),
            "multiple of the 4 elements");
    refused(TOW_SPACE_TO_DEPTH(.block = {1, 1, 1, 1}), TOW_UNSUPPORTED, (F32(2, 4, 4, 4, 4, 6)),
            "4 entries; expected at most 3");
}

static void test_norms(void **state)
{
    (void)state;
    refused(TOW_BATCH_NORM(.epsilon = -1), BAD, (F32(2, 3)), "BatchNorm: .epsilon = -1");
    refused(TOW_LAYER_NORM(.epsilon = INFINITY), BAD, (F32(2, 3)), "LayerNorm: .epsilon = inf");
    refused(TOW_BATCH_NORM(.momentum = 1.5), BAD, (F32(2, 3)), ".momentum = 1.5", "from 0 to 1");
    refused(TOW_BATCH_NORM(.n_axes = 2, .axes = {1, -1}), BAD, (F32(2, 3)), ".axes[1] = -1",
            "distinct axes of f32[2,3]");
    refused(TOW_BATCH_NORM(.axes = {1}), BAD, (F32(2, 3)), "set .n_axes");
    refused(TOW_BATCH_NORM(), SHAPE, (tow_make_type(TOW_F32, 0, NULL)), "BatchNorm: input 0", "rank 1 or more");
    refused(TOW_BATCH_NORM(), TOW_TYPE_MISMATCH, (F32(2, 3), F32(2, 1)), "a mask of type bool", "f32[2,1]");
    refused(TOW_BATCH_NORM(), SHAPE, (F32(2, 3), TYPE(TOW_BOOL, 2)), "broadcasts to f32[2,3], found bool[2]");
    refused(TOW_GROUP_NORM(), SHAPE, (F32(2, 30)), "GroupNorm: 30 features", ".groups = 32");
    refused(TOW_GROUP_NORM(.group_size = 4), SHAPE, (F32(2, 30)), ".group_size = 4");
    refused(TOW_GROUP_NORM(.groups = 2, .group_size = 4), BAD, (F32(2, 8)), "set one of them");
    refused(TOW_GROUP_NORM(.groups = -2), BAD, (F32(2, 8)), ".groups = -2");
    refused(TOW_INSTANCE_NORM(.n_axes = 1, .axes = {0}), BAD, (F32(2, 8)), "axis 0 of f32[2,8] counts examples");
    refused(TOW_INSTANCE_NORM(), SHAPE, (F32(8)), "InstanceNorm: input 0", "rank 2 or more");
    refused(TOW_GROUP_NORM(.groups = 2, .n_reduction_axes = 1, .reduction_axes = {1}), BAD, (F32(2, 3, 8)),
            "GroupNorm: .reduction_axes leave out the last axis of f32[2,3,8]", "add -1");
    refused(TOW_LAYER_NORM(.n_reduction_axes = 1, .reduction_axes = {2}), BAD, (F32(2, 8)),
            "LayerNorm: .reduction_axes[0] = 2", "distinct axes of f32[2,8]");
    refused(TOW_LAYER_NORM(.n_feature_axes = 2, .feature_axes = {1, -1}), BAD, (F32(2, 8)), ".feature_axes[1] = -1");
    refused(TOW_LAYER_NORM(.feature_axes = {1}), BAD, (F32(2, 8)), "set .n_feature_axes");
    refused(TOW_LAYER_NORM(.n_reduction_axes = 3), BAD, (F32(2, 8)), ".n_reduction_axes = 3", "the input has, 2");
    refused(TOW_RMS_NORM(.n_feature_axes = -1), BAD, (F32(2, 8)), "RMSNorm: .n_feature_axes = -1");
    refused(TOW_RMS_NORM(), TOW_TYPE_MISMATCH, (F32(2, 3), F32(2, 1)), "RMSNorm: input 1", "a mask of type bool");
    tow_conv conv = TOW_CONV(.features = 4, .kernel_size = {3});
    refused(TOW_WEIGHT_NORM(&conv, .epsilon = -1), BAD, (F32(2, 5, 3)), "WeightNorm: .epsilon = -1");
    refused(TOW_WEIGHT_NORM(&conv, .n_axes = 1, .axes = {3}), BAD, (F32(2, 5, 3)), "WeightNorm: .axes[0] = 3",
            "f32[3,3,4]");
    refused(TOW_SPECTRAL_NORM(&conv, .n_steps = -2), BAD, (F32(2, 5, 3)), "SpectralNorm: .n_steps = -2");
    refused(TOW_SPECTRAL_NORM(&conv, .matrices_only = true), BAD, (F32(2, 5, 3)), "\"kernel\" is f32[3,3,4]",
            ".matrices_only");
    refused(TOW_PRELU(), TOW_TYPE_MISMATCH, (TYPE(TOW_I32, 3)), "PReLU: input 0");
}

static void test_einsum(void **state)
{
    (void)state;
    refused(TOW_EINSUM(.shape = {3}), BAD, (F32(2, 3)), "Einsum: .spec = \"NULL\"", "such as");
    refused(TOW_EINSUM(.spec = "ab,bc", .shape = {3, 2}), BAD, (F32(2, 3)), ".spec = \"ab,bc\"");
    refused(TOW_EINSUM(.spec = "ab,bc,cd->ad", .shape = {3, 2}), BAD, (F32(2, 3)), "two operands");
    refused(TOW_EINSUM(.spec = "ab->ab", .shape = {3, 2}), BAD, (F32(2, 3)), "two operands");
    refused(TOW_EINSUM(.spec = "ab,...b->a...", .shape = {3, 3}), TOW_UNSUPPORTED, (F32(2, 3)),
            "the kernel cannot have");
    refused(TOW_EINSUM(.spec = "ab,bc->ac"), BAD, (F32(2, 3)), ".shape[0] = 0");
    refused(TOW_EINSUM(.spec = "ab,bc->ac", .shape = {4, 2}), SHAPE, (F32(2, 3)), "einsum");
}

/* Statistics are written, so their collection must be mutable, unless the running ones are used. */
static void test_batch_norm_in_training(void **state)
{
    (void)state;
    tow_batch_norm norm = TOW_BATCH_NORM(), frozen = TOW_BATCH_NORM(.use_running_average = true);
    nested model = {{&nested_class}, TOW_MODULE(&norm)};
    tow_type type = F32(2, 3);
    tow_params *params, *variables;
    tow_graph *graph = NULL;
    OK(tow_model_init_with(ctx, TOW_MODULE(&model), 0, 1, &type, NULL, &params, &variables));
    tow_model_options options = TOW_MODEL_OPTIONS(.state = variables);
    assert_int_equal(tow_model_forward_graph(TOW_MODULE(&model), params, 1, &type, &options, &graph),
                     TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "batch_stats/part/mean: cannot be written"));
    assert_null(graph);
    options.deterministic = true;
    OK(tow_model_forward_graph(TOW_MODULE(&model), params, 1, &type, &options, &graph));
    tow_graph_release(graph);
    options.deterministic = false;
    model.inner = TOW_MODULE(&frozen);
    OK(tow_model_forward_graph(TOW_MODULE(&model), params, 1, &type, &options, &graph));
    tow_graph_release(graph);
    tow_params_free(params);
    tow_params_free(variables);
}

/* ---- allocations ------------------------------------------------------------------------------------------------- */

static void mean(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss, tow_value *aux,
                 void *user)
{
    (void)t, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(outputs[0], 0, NULL);
}

/* A model of them all: its parameters, its loss, and the gradient of that. */
static tow_status build(tow_context *context)
{
    tow_conv conv = TOW_CONV(.features = 4, .kernel_size = {3, 3}, .padding = TOW_CONV_REFLECT);
    tow_batch_norm batch = TOW_BATCH_NORM();
    tow_prelu prelu = TOW_PRELU();
    tow_pool pool = TOW_POOL(.window = {2, 2}, .strides = {2});
    tow_group_norm group = TOW_GROUP_NORM(.groups = 2);
    tow_conv_transpose transpose = TOW_CONV_TRANSPOSE(.features = 4, .kernel_size = {3}, .padding = TOW_CONV_CIRCULAR);
    tow_instance_norm instance = TOW_INSTANCE_NORM();
    tow_space_to_depth depth = TOW_SPACE_TO_DEPTH(.block = {2, 1});
    tow_adaptive_pool adaptive = TOW_ADAPTIVE_POOL(.kind = TOW_POOL_AVG, .size = {1, 2});
    tow_einsum_layer einsum = TOW_EINSUM(.spec = "...c,cf->...f", .shape = {8, 3});
    tow_weight_norm weight = TOW_WEIGHT_NORM(&conv);
    tow_spectral_norm spectral = TOW_SPECTRAL_NORM(&transpose);
    tow_sequential model = TOW_SEQUENTIAL(
        TOW_MODULE(&weight), TOW_MODULE(&batch), TOW_MODULE(&prelu), TOW_MODULE(&pool), TOW_MODULE(&group),
        TOW_MODULE(&spectral), TOW_MODULE(&instance), TOW_MODULE(&depth), TOW_MODULE(&adaptive), TOW_MODULE(&einsum));
    static const char *const every[] = {TOW_EVERY_COLLECTION, NULL};
    tow_type type = F32(2, 8, 8, 2);
    tow_params *params = NULL, *state = NULL;
    tow_graph *loss = NULL, *gradient = NULL;
    tow_status status = tow_model_init_with(context, TOW_MODULE(&model), 0, 1, &type, NULL, &params, &state);
    tow_model_options options = TOW_MODEL_OPTIONS(.state = state, .mutable_collections = every);
    if (!status)
        status = tow_model_loss_graph(TOW_MODULE(&model), params, 1, &type, 0, NULL, mean, NULL, 0, &options, &loss);
    if (!status) status = tow_grad(loss, 0, NULL, true, &gradient);
    tow_graph_release(gradient);
    tow_graph_release(loss);
    tow_params_free(params);
    tow_params_free(state);
    return status;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    counting count;
    for (long n = 0;; n += 1 + n / 50) {
        tow_context_options options = counting_options(&count, n);
        tow_context *context = NULL;
        tow_status status = tow_context_create(&options, &context);
        if (status == TOW_OK) status = build(context);
        bool failed = count.calls > n;
        if (status != (failed ? TOW_OUT_OF_MEMORY : TOW_OK))
            fail_msg("allocation %ld: %s: %s", n, tow_status_text(status), context ? tow_context_error(context) : "");
        tow_context_free(context);
        if (count.blocks || count.wrong_sizes)
            fail_msg("allocation %ld: %ld blocks leak, %d wrong sizes", n, count.blocks, count.wrong_sizes);
        if (!failed) break;
    }
    assert_true(count.calls > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_pools),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_einsum),
        cmocka_unit_test(test_batch_norm_in_training),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

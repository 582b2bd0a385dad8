/* The layers: initial values, outputs, gradients and running statistics against Flax and PyTorch
 * (tests/oracle/flax_catalogue.py), and the same bits under remat, vmap and scan.
 * Tests batch_norm.c, conv.c, conv_local.c, conv_transpose.c, convolution.c, dense.c, dense_general.c, einsum.c,
 * group_norm.c, mlp.c, norm.c, pool.c, prelu.c, space_to_depth.c, statistics.c, transforms/weight_norm.c,
 * scope/layer.c. */
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

/* The child "layer", with a mask of its own (i mod 3 != 0) where rank > 0. */
typedef struct masked {
    tow_module module;
    const tow_module *inner;
    int rank;
    int64_t dims[4];
} masked;

static void call_masked(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const masked *m = (const masked *)module;
    tow_type type = tow_make_type(TOW_BOOL, m->rank, m->dims);
    bool mask[64];
    assert_true(n_in == 1 && n_out == 1 && tow_type_element_count(type) <= 64);
    for (int i = 0; i < 64; i++) mask[i] = i % 3 != 0;
    tow_value x[2] = {in[0], tow_constant_data(tow_scope_trace(s), type, mask)};
    tow_apply_module_n(s, "layer", m->inner, m->rank ? 2 : 1, x, 1, out);
}
static const tow_module_class masked_class = {.name = "masked", .call = call_masked};

/* Calls use(user, ...) for the case of this name, or for every case (NULL); false if there is none. */
static bool with_case(const char *name, tow_dtype dtype, case_use use, void *user)
{
    bool found = false;
#define MASKED(text, layer, mask_rank, mask_dims, ...)                                                                 \
    if (!name || strcmp(name, text) == 0) {                                                                            \
        int64_t dims[] = {__VA_ARGS__};                                                                                \
        masked model = {{&masked_class}, TOW_MODULE(&(layer)), mask_rank, mask_dims};                                  \
        use(user, text, TOW_MODULE(&model), tow_make_type(dtype, (int)(sizeof dims / sizeof *dims), dims));            \
        found = true;                                                                                                  \
    }
#define LIST(...)              {__VA_ARGS__}
#define CASE(text, layer, ...) MASKED(text, layer, 0, LIST(0), __VA_ARGS__)
    CASE("dense", TOW_DENSE(.features = 6), 3, 5)
    CASE("general", TOW_DENSE_GENERAL(.features = {3, 2}, .n_batch_dims = 1), 2, 4, 5)
    CASE("general_order", TOW_DENSE_GENERAL(.features = {3, 2}, .n_axes = 2, .axes = {-1, 1}), 2, 4, 4)
    CASE("general_batch_order", TOW_DENSE_GENERAL(.features = {5}, .n_axes = 2, .axes = {-1, 2}, .n_batch_dims = 1), 2,
         3, 4, 4)
    CASE("mlp", TOW_MLP(.features = {7, 6, 4}), 3, 5)
    CASE("layer_norm", TOW_LAYER_NORM(), 3, 9)
    CASE("rms_norm", TOW_RMS_NORM(), 3, 9)
    CASE("attention", TOW_MULTI_HEAD_ATTENTION(.heads = 2), 2, 5, 8)
    CASE("block", TOW_TRANSFORMER_BLOCK(.heads = 2, .mlp_features = 16, .causal = true), 2, 5, 8)
    CASE("block_open", TOW_TRANSFORMER_BLOCK(.heads = 4, .mlp_features = 12), 1, 4, 8)
    CASE("conv", TOW_CONV(.features = 5, .kernel_size = {3, 3}), 2, 6, 5, 3)
    CASE("conv_1d", TOW_CONV(.features = 4, .kernel_size = {3}, .no_bias = true), 2, 7, 3)
    CASE("conv_3d", TOW_CONV(.features = 2, .kernel_size = {2, 3, 2}, .strides = {1, 2, 1}), 1, 3, 4, 3, 2)
    CASE("conv_valid_strides",
         TOW_CONV(.features = 4, .kernel_size = {3, 2}, .strides = {2, 1}, .padding = TOW_CONV_VALID), 2, 7, 5, 3)
    CASE("conv_same_lower", TOW_CONV(.features = 3, .kernel_size = {4}, .strides = {2}, .padding = TOW_CONV_SAME_LOWER),
         2, 7, 2)
    CASE("conv_causal", TOW_CONV(.features = 3, .kernel_size = {3}, .padding = TOW_CONV_CAUSAL, .kernel_dilation = {2}),
         2, 8, 2)
    CASE("conv_circular", TOW_CONV(.features = 3, .kernel_size = {4, 3}, .padding = TOW_CONV_CIRCULAR), 2, 5, 4, 2)
    CASE("conv_circular_far",
         TOW_CONV(.features = 2, .kernel_size = {7}, .padding = TOW_CONV_CIRCULAR, .kernel_dilation = {2},
                  .strides = {2}),
         1, 4, 2)
    CASE("conv_reflect", TOW_CONV(.features = 3, .kernel_size = {4, 3}, .padding = TOW_CONV_REFLECT, .strides = {2}), 1,
         5, 6, 2)
    CASE("conv_reflect_far", TOW_CONV(.features = 2, .kernel_size = {8}, .padding = TOW_CONV_REFLECT), 1, 3, 2)
    CASE("conv_explicit",
         TOW_CONV(.features = 3, .kernel_size = {3, 2}, .padding = TOW_CONV_EXPLICIT, .low = {2, -1}, .high = {0, 3},
                  .kernel_dilation = {1, 2}),
         2, 5, 6, 2)
    CASE("conv_input_dilation",
         TOW_CONV(.features = 3, .kernel_size = {3}, .padding = TOW_CONV_EXPLICIT, .low = {1}, .high = {2},
                  .input_dilation = {3}),
         2, 4, 2)
    CASE("conv_groups", TOW_CONV(.features = 6, .kernel_size = {3}, .groups = 2), 2, 5, 4)
    CASE("conv_depthwise", TOW_CONV(.features = 6, .kernel_size = {3, 3}, .groups = 3), 1, 4, 4, 3)
    CASE("conv_batches", TOW_CONV(.features = 2, .kernel_size = {3}), 2, 2, 5, 3)
    CASE("conv_no_batch", TOW_CONV(.features = 2, .kernel_size = {3, 3}), 5, 4, 3)
    CASE("conv_init",
         TOW_CONV(.features = 3, .kernel_size = {3}, .kernel_init = tow_initializer_normal(0.5),
                  .bias_init = tow_initializer_uniform(0.3)),
         2, 5, 2)
    MASKED("conv_mask", TOW_CONV(.features = 3, .kernel_size = {3}), 3, LIST(3, 2, 3), 2, 5, 2)
    CASE("conv_large_kernel", TOW_CONV(.features = 3, .kernel_size = {5}, .padding = TOW_CONV_VALID), 2, 3, 2)
    CASE("conv_local", TOW_CONV_LOCAL(.features = 4, .kernel_size = {3, 2}), 2, 4, 5, 3)
    CASE("conv_local_strides",
         TOW_CONV_LOCAL(.features = 3, .kernel_size = {3}, .strides = {2}, .kernel_dilation = {2},
                        .padding = TOW_CONV_EXPLICIT, .low = {2}, .high = {1}, .no_bias = true),
         2, 7, 2)
    CASE("conv_local_dilated",
         TOW_CONV_LOCAL(.features = 2, .kernel_size = {2, 3}, .padding = TOW_CONV_EXPLICIT, .low = {0, 1},
                        .high = {2, -1}, .input_dilation = {2, 1}),
         1, 3, 4, 2)
    CASE("conv_local_circular",
         TOW_CONV_LOCAL(.features = 2, .kernel_size = {4}, .padding = TOW_CONV_CIRCULAR,
                        .bias_init = tow_initializer_normal(1.0)),
         3, 5, 2)
    CASE("conv_local_causal", TOW_CONV_LOCAL(.features = 2, .kernel_size = {3}, .padding = TOW_CONV_CAUSAL), 5, 3)
    MASKED("conv_local_mask", TOW_CONV_LOCAL(.features = 3, .kernel_size = {2}, .padding = TOW_CONV_VALID), 3,
           LIST(4, 4, 3), 2, 5, 2)
    CASE("conv_local_3d", TOW_CONV_LOCAL(.features = 2, .kernel_size = {1, 2, 2}, .strides = {2, 1, 2}), 1, 2, 3, 2, 3,
         2)
    CASE("conv_transpose", TOW_CONV_TRANSPOSE(.features = 3, .kernel_size = {3, 3}, .strides = {2}), 1, 3, 4, 2)
    CASE("conv_transpose_valid",
         TOW_CONV_TRANSPOSE(.features = 3, .kernel_size = {4}, .strides = {3}, .padding = TOW_CONV_VALID), 2, 4, 2)
    CASE("conv_transpose_short", TOW_CONV_TRANSPOSE(.features = 2, .kernel_size = {2}, .strides = {3}), 2, 3, 2)
    CASE("conv_transpose_circular",
         TOW_CONV_TRANSPOSE(.features = 2, .kernel_size = {4, 3}, .strides = {2, 1}, .padding = TOW_CONV_CIRCULAR), 1,
         3, 4, 2)
    CASE("conv_transpose_flipped",
         TOW_CONV_TRANSPOSE(.features = 3, .kernel_size = {4}, .strides = {2}, .transpose_kernel = true), 2, 4, 2)
    CASE("conv_transpose_flipped_circular",
         TOW_CONV_TRANSPOSE(.features = 3, .kernel_size = {4}, .strides = {2}, .padding = TOW_CONV_CIRCULAR,
                            .transpose_kernel = true),
         2, 3, 2)
    CASE("conv_transpose_explicit",
         TOW_CONV_TRANSPOSE(.features = 2, .kernel_size = {3}, .strides = {2}, .padding = TOW_CONV_EXPLICIT, .low = {1},
                            .high = {2}, .kernel_dilation = {2}),
         2, 4, 2)
    CASE("conv_transpose_no_batch", TOW_CONV_TRANSPOSE(.features = 2, .kernel_size = {3}, .no_bias = true), 4, 3)
    CASE("pool_max", TOW_POOL(.window = {2, 3}, .strides = {2, 1}, .padding = TOW_PAD_SAME), 2, 5, 6, 2)
    CASE("pool_avg", TOW_POOL(.kind = TOW_POOL_AVG, .window = {3}, .strides = {2}, .padding = TOW_PAD_SAME), 2, 6, 2)
    CASE("pool_avg_inside",
         TOW_POOL(.kind = TOW_POOL_AVG, .window = {3}, .strides = {2}, .padding = TOW_PAD_EXPLICIT, .low = {1},
                  .high = {2}, .exclude_padding = true),
         2, 6, 2)
    CASE("pool_min", TOW_POOL(.kind = TOW_POOL_MIN, .window = {2, 2}), 1, 4, 3, 2)
    CASE("adaptive_avg", TOW_ADAPTIVE_POOL(.kind = TOW_POOL_AVG, .size = {3, 2}), 2, 5, 7, 2)
    CASE("adaptive_avg_global", TOW_ADAPTIVE_POOL(.kind = TOW_POOL_AVG, .size = {1, 1}), 2, 5, 4, 3)
    CASE("adaptive_avg_even", TOW_ADAPTIVE_POOL(.kind = TOW_POOL_AVG, .size = {3}), 2, 6, 3)
    CASE("adaptive_avg_larger", TOW_ADAPTIVE_POOL(.kind = TOW_POOL_AVG, .size = {5}), 2, 3, 2)
    CASE("adaptive_avg_kept", TOW_ADAPTIVE_POOL(.kind = TOW_POOL_AVG, .size = {-1, 2}), 1, 3, 5, 2)
    CASE("adaptive_max", TOW_ADAPTIVE_POOL(.size = {2, 3}), 2, 5, 4, 2)
    CASE("adaptive_max_3d", TOW_ADAPTIVE_POOL(.size = {2, 1, 2}), 1, 3, 2, 5, 2)
    CASE("space_to_depth", TOW_SPACE_TO_DEPTH(.block = {2, 3}), 2, 4, 6, 2)
    CASE("depth_to_space", TOW_SPACE_TO_DEPTH(.block = {2, 3}, .inverse = true), 1, 2, 2, 12)
    CASE("batch_norm", TOW_BATCH_NORM(), 4, 3, 5)
    CASE("batch_norm_axes",
         TOW_BATCH_NORM(.n_axes = 2, .axes = {-1, 1}, .momentum = 0.75, .epsilon = 0.01, .no_bias = true), 4, 3, 2, 3)
    MASKED("batch_norm_mask", TOW_BATCH_NORM(.no_scale = true), 2, LIST(6, 1), 6, 4)
    CASE("batch_norm_frozen", TOW_BATCH_NORM(.use_running_average = true), 4, 5)
    CASE("batch_norm_init",
         TOW_BATCH_NORM(.scale_init = tow_initializer_normal(0.5), .bias_init = tow_initializer_uniform(0.3)), 4, 5)
    CASE("group_norm", TOW_GROUP_NORM(.groups = 3), 2, 4, 3, 6)
    CASE("group_norm_size", TOW_GROUP_NORM(.group_size = 2, .no_bias = true, .epsilon = 0.1), 2, 5, 4)
    CASE("group_norm_default", TOW_GROUP_NORM(), 2, 64)
    MASKED("group_norm_mask", TOW_GROUP_NORM(.groups = 2), 3, LIST(2, 4, 4), 2, 4, 4)
    CASE("instance_norm", TOW_INSTANCE_NORM(), 2, 4, 3, 2)
    CASE("instance_norm_axes", TOW_INSTANCE_NORM(.n_axes = 2, .axes = {1, -1}, .no_scale = true), 2, 2, 5, 3)
    CASE("instance_norm_rows", TOW_INSTANCE_NORM(.bias_init = tow_initializer_normal(1.0)), 3, 4)
    MASKED("instance_norm_mask", TOW_INSTANCE_NORM(), 3, LIST(2, 5, 1), 2, 5, 3)
    CASE("layer_norm_axes",
         TOW_LAYER_NORM(.n_reduction_axes = 2, .reduction_axes = {-1, 1}, .n_feature_axes = 2, .feature_axes = {2, 1},
                        .bias_init = tow_initializer_normal(1.0)),
         3, 4, 5)
    CASE("layer_norm_first",
         TOW_LAYER_NORM(.n_reduction_axes = 1, .n_feature_axes = 1, .feature_axes = {-2}, .epsilon = 0.1), 4, 3, 2)
    CASE("layer_norm_features",
         TOW_LAYER_NORM(.n_feature_axes = 2, .feature_axes = {0, 1}, .no_bias = true,
                        .scale_init = tow_initializer_normal(1.0)),
         3, 5)
    MASKED("layer_norm_mask", TOW_LAYER_NORM(), 3, LIST(3, 1, 7), 3, 2, 7)
    CASE("layer_norm_fast", TOW_LAYER_NORM(.fast_variance = true), 3, 9)
    CASE("layer_norm_one", TOW_LAYER_NORM(.fast_variance = true, .no_scale = true), 3, 1)
    CASE("rms_norm_axes",
         TOW_RMS_NORM(.n_reduction_axes = 2, .reduction_axes = {0, -1}, .n_feature_axes = 1, .feature_axes = {1},
                      .scale_init = tow_initializer_normal(1.0)),
         3, 4, 5)
    MASKED("rms_norm_mask", TOW_RMS_NORM(.epsilon = 0.01), 2, LIST(3, 9), 3, 9)
    CASE("batch_norm_fast", TOW_BATCH_NORM(.fast_variance = true), 4, 3, 5)
    MASKED("batch_norm_fast_mask", TOW_BATCH_NORM(.n_axes = 1, .axes = {0}, .fast_variance = true), 2, LIST(6, 4), 6, 4)
    CASE("group_norm_axes", TOW_GROUP_NORM(.groups = 3, .n_reduction_axes = 2, .reduction_axes = {-1, 2}), 2, 4, 3, 6)
    MASKED("group_norm_batch", TOW_GROUP_NORM(.groups = 2, .n_reduction_axes = 3, .reduction_axes = {0, 1, 2}), 3,
           LIST(3, 2, 4), 3, 2, 4)
    CASE("group_norm_fast",
         TOW_GROUP_NORM(.groups = 3, .fast_variance = true, .bias_init = tow_initializer_normal(1.0)), 2, 4, 3, 6)
    CASE("instance_norm_fast", TOW_INSTANCE_NORM(.fast_variance = true), 2, 4, 3, 2)
    CASE("prelu", TOW_PRELU(), 3, 5)
    CASE("prelu_init", TOW_PRELU(.slope_init = tow_initializer_constant(0.25)), 3, 5)
    tow_dense dense = TOW_DENSE(.features = 4);
    tow_conv conv = TOW_CONV(.features = 4, .kernel_size = {3}),
             conv_bias = TOW_CONV(.features = 4, .kernel_size = {3}, .bias_init = tow_initializer_normal(1.0));
    tow_mlp mlp = TOW_MLP(.features = {4, 3});
    CASE("weight_norm", TOW_WEIGHT_NORM(&dense), 3, 5)
    CASE("weight_norm_everything", TOW_WEIGHT_NORM(&conv_bias, .everything = true), 2, 5, 3)
    CASE("weight_norm_axes",
         TOW_WEIGHT_NORM(&conv, .n_axes = 2, .axes = {-1, 0}, .scale_init = tow_initializer_constant(1.5)), 2, 5, 3)
    CASE("weight_norm_whole", TOW_WEIGHT_NORM(&dense, .whole = true, .epsilon = 0.1), 3, 5)
    CASE("weight_norm_no_scale", TOW_WEIGHT_NORM(&dense, .no_scale = true), 3, 5)
    CASE("weight_norm_filter", TOW_WEIGHT_NORM(&mlp, .filter = TOW_NAMES("Dense_1")), 3, 5)
    CASE("spectral_norm", TOW_SPECTRAL_NORM(&dense), 3, 5)
    CASE("spectral_norm_steps", TOW_SPECTRAL_NORM(&conv, .n_steps = 3, .epsilon = 1e-3), 2, 5, 3)
    CASE("spectral_norm_mlp", TOW_SPECTRAL_NORM(&mlp), 3, 5)
    CASE("einsum", TOW_EINSUM(.spec = "btd,dhk->bthk", .shape = {6, 2, 4}), 2, 3, 6)
    CASE("einsum_mixed",
         TOW_EINSUM(.spec = "btd , dkt -> bkt", .shape = {5, 2, 3}, .bias_init = tow_initializer_normal(1.0)), 2, 3, 5)
    CASE("einsum_dots", TOW_EINSUM(.spec = "...d,dk->...k", .shape = {4, 3}), 2, 2, 3, 4)
    CASE("einsum_no_bias", TOW_EINSUM(.spec = "ab,bc->ca", .shape = {3, 2}, .no_bias = true), 4, 3)
    return found;
#undef CASE
#undef MASKED
#undef LIST
}

/* ---- views of parameters ----------------------------------------------------------------------------------------- */

/* Applies one Dense so many times. */
typedef struct repeated {
    tow_module module;
    int times;
} repeated;

static void call_repeated(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    tow_dense dense = TOW_DENSE(.features = tow_value_type(in[0]).dims[1]);
    (void)n_in, (void)n_out;
    out[0] = in[0];
    for (int i = 0; i < ((const repeated *)module)->times; i++) out[0] = tow_apply(s, "dense", &dense, out[0]);
}
static const tow_module_class repeated_class = {.name = "repeated", .call = call_repeated};

/* However often a layer asks for a parameter in one call, SpectralNorm makes its iterations once: four products. */
static void test_a_parameter_is_viewed_once(void **unused)
{
    static const char *const every[] = {TOW_EVERY_COLLECTION, NULL};
    tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){2, 4});
    (void)unused;
    for (int times = 1; times <= 3; times++) {
        repeated layer = {{&repeated_class}, times};
        tow_spectral_norm spectral = TOW_SPECTRAL_NORM(&layer);
        tow_weight_norm model = TOW_WEIGHT_NORM(&spectral);
        tow_params *params, *state;
        tow_graph *graph;
        OK(tow_model_init_with(ctx, TOW_MODULE(&model), 0, 1, &type, NULL, &params, &state));
        assert_int_equal(tow_params_count(params), 3);
        assert_string_equal(tow_params_path(params, 1), "dense/WeightNorm/kernel/scale");
        tow_model_options options = TOW_MODEL_OPTIONS(.state = state, .mutable_collections = every);
        OK(tow_model_forward_graph(TOW_MODULE(&model), params, 1, &type, &options, &graph));
        assert_int_equal(tow_graph_primitive_count(graph, "dot_general"), 4 + times);
        tow_graph_release(graph);
        tow_params_free(params);
        tow_params_free(state);
    }
}

static void test_golden(void **unused)
{
    (void)unused;
    assert_true(check_golden("flax_catalogue.txt", with_case) > 300);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_remat),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_vmap),
        cmocka_unit_test(test_a_parameter_is_viewed_once),
    };
    return cmocka_run_group_tests(tests, portable_setup, teardown);
}

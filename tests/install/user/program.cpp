// A small program of a user, C++17: every macro that makes a layer or a policy, and a gradient.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <tow/tow.h>

static void sine(tow_trace *, const tow_value *in, tow_value *out, void *) { out[0] = tow_sin(in[0]); }

static bool layers_have_classes()
{
    tow_dense dense = TOW_DENSE();
    tow_dense_general general = TOW_DENSE_GENERAL();
    tow_mlp mlp = TOW_MLP();
    tow_embed embed = TOW_EMBED();
    tow_layer_norm layer_norm = TOW_LAYER_NORM();
    tow_rms_norm rms_norm = TOW_RMS_NORM();
    tow_dropout dropout = TOW_DROPOUT();
    tow_multi_head_attention attention = TOW_MULTI_HEAD_ATTENTION();
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK();
    tow_conv conv = TOW_CONV();
    tow_conv_transpose conv_transpose = TOW_CONV_TRANSPOSE();
    tow_pool pool = TOW_POOL();
    tow_adaptive_pool adaptive_pool = TOW_ADAPTIVE_POOL();
    tow_space_to_depth space_to_depth = TOW_SPACE_TO_DEPTH();
    tow_batch_norm batch_norm = TOW_BATCH_NORM();
    tow_group_norm group_norm = TOW_GROUP_NORM();
    tow_instance_norm instance_norm = TOW_INSTANCE_NORM();
    tow_prelu prelu = TOW_PRELU();
    tow_einsum_layer einsum = TOW_EINSUM();
    tow_remat remat = TOW_REMAT(&block);
    remat.policy = tow_save_only_these_names("a", "b");
    tow_scan scan = TOW_SCAN(&remat);
    static const tow_lift_rule *const rules = TOW_RULES({"params", TOW_SHARED}, {"cache", TOW_STACKED, 1});
    scan.variables = TOW_RULES({"params", TOW_SHARED}, {"counters", TOW_CARRIED});
    scan.streams = rules;
    if (scan.variables[1].how != TOW_CARRIED || scan.variables[2].pattern || rules[1].axis != 1) return false;
    tow_weight_norm weight_norm = TOW_WEIGHT_NORM(&dense);
    tow_spectral_norm spectral_norm = TOW_SPECTRAL_NORM(&dense);
    tow_activation_layer activation = TOW_ACTIVATION(tow_relu);
    const tow_module *list[] = {TOW_MODULE(&scan), TOW_MODULE(&dense)};
    tow_sequential of = TOW_SEQUENTIAL_OF(list);
    return dense.module.cls == &tow_dense_class && dense.features == 0 &&
           general.module.cls == &tow_dense_general_class && mlp.module.cls == &tow_mlp_class &&
           embed.module.cls == &tow_embed_class && layer_norm.module.cls == &tow_layer_norm_class &&
           rms_norm.module.cls == &tow_rms_norm_class && dropout.module.cls == &tow_dropout_class &&
           attention.module.cls == &tow_multi_head_attention_class && conv.module.cls == &tow_conv_class &&
           conv_transpose.module.cls == &tow_conv_transpose_class && pool.module.cls == &tow_pool_class &&
           adaptive_pool.module.cls == &tow_adaptive_pool_class &&
           space_to_depth.module.cls == &tow_space_to_depth_class && batch_norm.module.cls == &tow_batch_norm_class &&
           group_norm.module.cls == &tow_group_norm_class && instance_norm.module.cls == &tow_instance_norm_class &&
           prelu.module.cls == &tow_prelu_class && einsum.module.cls == &tow_einsum_layer_class &&
           block.module.cls == &tow_transformer_block_class && remat.module.cls == &tow_remat_class &&
           weight_norm.inner == &dense.module && weight_norm.module.cls == &tow_weight_norm_class &&
           spectral_norm.inner == &dense.module && spectral_norm.module.cls == &tow_spectral_norm_class &&
           remat.inner == &block.module && scan.module.cls == &tow_scan_class && scan.inner == &remat.module &&
           of.module.cls == &tow_sequential_class && of.n_layers == 2 && of.layers == list &&
           activation.module.cls == &tow_activation_class && activation.activation == tow_relu;
}

static tow_value twice(tow_scope *, tow_value x) { return tow_add(x, x); }
static tow_value times(tow_scope *, tow_value x, const void *user)
{
    return tow_mul_scalar(x, *static_cast<const double *>(user));
}
static void both(tow_scope *, size_t n_in, const tow_value *in, size_t n_out, tow_value *out, const void *)
{
    for (size_t i = 0; i < n_in && i < n_out; i++) out[i] = in[i];
}

// Layers of layers and of functions, and a model of them that gives 3 (x + x) + x.
static bool combinators_are_right(tow_context *context)
{
    static const double factor = 3;
    tow_function_layer f = TOW_FUNCTION(twice), w = TOW_FUNCTION_WITH(times, &factor),
                       n = TOW_FUNCTION_N(both, nullptr);
    tow_named named = TOW_NAMED("three", &w);
    const tow_module *list[] = {TOW_MODULE(&f), TOW_MODULE(&named)}, *one[] = {TOW_MODULE(&n)};
    tow_sequential both_of = TOW_SEQUENTIAL_OF(list);
    tow_residual_layer residual = TOW_RESIDUAL(&both_of);
    tow_precision precision = TOW_PRECISION(&residual);
    precision.output_dtype = TOW_F64;
    tow_parallel parallel = TOW_PARALLEL_OF(TOW_MEAN, one);
    tow_type type = tow_make_type(TOW_F32, 0, nullptr);
    tow_params *params = nullptr;
    tow_graph *graph = nullptr;
    tow_array *x = nullptr, *y = nullptr;
    const float four = 4;
    bool good = tow_model_init(context, TOW_MODULE(&precision), 0, 1, &type, &params) == TOW_OK &&
                tow_model_forward_graph(TOW_MODULE(&precision), params, 1, &type, nullptr, &graph) == TOW_OK &&
                tow_array_from_data(context, type, &four, &x) == TOW_OK && tow_evaluate(graph, &x, &y) == TOW_OK &&
                *static_cast<double *>(tow_array_data(y)) == 28 && parallel.module.cls == &tow_parallel_class &&
                parallel.n_branches == 1 && parallel.combine == TOW_MEAN && n.function_n == both;
    tow_array_release(x);
    tow_array_release(y);
    tow_graph_release(graph);
    tow_params_free(params);
    return good;
}

// The textual form of each policy, worked out from autodiff.h.
static bool is(tow_policy policy, const char *expected)
{
    char text[100];
    tow_policy_text(&policy, text, sizeof text);
    if (std::strcmp(text, expected) != 0) std::fprintf(stderr, "policy: expected '%s', found '%s'\n", expected, text);
    return std::strcmp(text, expected) == 0;
}

static tow_verdict never(const tow_policy_query *, void *) { return tow_verdict(); }

static bool policies_are_right()
{
    tow_policy dots = tow_dots_saveable(), nothing = tow_nothing_saveable();
    return is(nothing, "nothing") && is(tow_everything_saveable(), "everything") && is(dots, "dots") &&
           is(tow_dots_with_no_batch_dims_saveable(), "dots_with_no_batch_dims") &&
           is(tow_save_only_these_names("a", "b"), "names:a,b") &&
           is(tow_save_any_names_but_these("a"), "any_names_but:a") &&
           is(tow_save_anything_except_these_names("a"), "anything_except:a") &&
           is(tow_save_either(&dots, &nothing), "either(dots;nothing)") &&
           is(tow_save_both(&dots, &nothing), "both(dots;nothing)") && is(tow_save_not(&dots), "not(dots)") &&
           is(tow_save_except_names(&dots, "a", "b"), "except(dots;a,b)") &&
           is(tow_policy_custom(never, nullptr), "custom");
}

int main()
{
    tow_context *context = nullptr;
    tow_graph *graph = nullptr, *gradient = nullptr;
    tow_array *x = nullptr, *dx = nullptr;
    const tow_type scalar = tow_make_type(TOW_F64, 0, nullptr);
    const double at = 0.5;
    bool good = false;
    if (tow_context_create(nullptr, &context) == TOW_OK &&
        tow_trace_function(context, sine, nullptr, 1, &scalar, nullptr, 1, &graph) == TOW_OK &&
        tow_grad(graph, 0, nullptr, false, &gradient) == TOW_OK &&
        tow_array_from_data(context, scalar, &at, &x) == TOW_OK && tow_evaluate(gradient, &x, &dx) == TOW_OK) {
        const double found = *static_cast<const double *>(tow_array_data(dx));
        good = std::fabs(found - std::cos(at)) < 1e-15 && layers_have_classes() && policies_are_right() &&
               combinators_are_right(context);
        std::printf("tow %s: d sin(0.5) = %.17g\n", tow_version(), found);
    } else {
        std::fprintf(stderr, "%s\n", tow_context_error(context));
    }
    tow_array_release(x);
    tow_array_release(dx);
    tow_graph_release(graph);
    tow_graph_release(gradient);
    tow_context_free(context);
    return !good;
}

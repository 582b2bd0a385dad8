/* A small program of a user, C11: every macro that makes a layer, without options and with some, and a gradient. */
#include <math.h>
#include <stdio.h>
#include <tow/tow.h>

static void sine(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_sin(in[0]);
}

static tow_value twice(tow_scope *scope, tow_value x)
{
    (void)scope;
    return tow_add(x, x);
}
static tow_value times(tow_scope *scope, tow_value x, const void *user)
{
    (void)scope;
    return tow_mul_scalar(x, *(const double *)user);
}
static void both(tow_scope *scope, size_t n_in, const tow_value *in, size_t n_out, tow_value *out, const void *user)
{
    (void)scope, (void)user;
    for (size_t i = 0; i < n_in && i < n_out; i++) out[i] = in[i];
}

/* Layers of layers and of functions. */
static int combinators_have_classes(void)
{
    static const double factor = 3;
    tow_dense dense = TOW_DENSE(.features = 2, .dtype = TOW_BF16, .param_dtype = TOW_F32);
    tow_function_layer f = TOW_FUNCTION(twice), w = TOW_FUNCTION_WITH(times, &factor), n = TOW_FUNCTION_N(both, NULL);
    tow_named named = TOW_NAMED("head", &dense);
    tow_residual_layer residual = TOW_RESIDUAL(&named), scaled = TOW_RESIDUAL(&f, .scale = 0.5);
    tow_parallel parallel = TOW_PARALLEL(TOW_CONCATENATE, TOW_MODULE(&f), TOW_MODULE(&TOW_NAMED("w", &w)));
    const tow_module *list[] = {TOW_MODULE(&parallel), TOW_MODULE(&n)};
    tow_parallel of = TOW_PARALLEL_OF(TOW_MEAN, list);
    tow_precision precision = TOW_PRECISION(&of, .dtype = TOW_BF16);
    return f.module.cls == &tow_function_class && f.function == twice && f.name[0] == 't' && w.function_with == times &&
           w.user == &factor && n.function_n == both && named.module.cls == &tow_named_class &&
           named.inner == &dense.module && residual.module.cls == &tow_residual_layer_class &&
           residual.inner == &named.module && scaled.scale > 0.4 && parallel.module.cls == &tow_parallel_class &&
           parallel.n_branches == 2 && parallel.combine == TOW_CONCATENATE && of.branches == list &&
           of.n_branches == 2 && precision.module.cls == &tow_precision_class && precision.inner == &of.module;
}

/* Macros are clean without options, too: what they make has the right class. */
static int layers_have_classes(void)
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
    const tow_lift_rule *const rules = TOW_RULES({"params", TOW_SHARED}, {"cache", TOW_STACKED, 1});
    tow_scan shared =
        TOW_SCAN(&dense, .variables = TOW_RULES({"params", TOW_SHARED}, {"counters", TOW_CARRIED}), .streams = rules);
    tow_cond cond = TOW_COND(.yes = TOW_MODULE(&TOW_REMAT(&dense, .streams = TOW_RULES({"dropout", TOW_HIDDEN}))),
                             .no = TOW_MODULE(&mlp));
    if (shared.variables[1].how != TOW_CARRIED || shared.variables[2].pattern || rules[1].axis != 1 || !cond.yes)
        return 0;
    tow_remat remat = TOW_REMAT(&block), named = TOW_REMAT(&mlp, .policy = tow_save_only_these_names("a", "b"));
    tow_scan scan = TOW_SCAN(&remat), loop = TOW_SCAN(&named, .length = 4);
    tow_weight_norm weight_norm = TOW_WEIGHT_NORM(&dense);
    tow_spectral_norm spectral_norm = TOW_SPECTRAL_NORM(&dense);
    tow_activation_layer activation = TOW_ACTIVATION(tow_relu);
    tow_sequential one = TOW_SEQUENTIAL(TOW_MODULE(&scan)), two = TOW_SEQUENTIAL(TOW_MODULE(&loop), TOW_MODULE(&dense));
    const tow_module *list[] = {TOW_MODULE(&general), TOW_MODULE(&embed), TOW_MODULE(&activation)};
    tow_sequential of = TOW_SEQUENTIAL_OF(list);
    return dense.module.cls == &tow_dense_class && general.module.cls == &tow_dense_general_class &&
           mlp.module.cls == &tow_mlp_class && embed.module.cls == &tow_embed_class &&
           layer_norm.module.cls == &tow_layer_norm_class && rms_norm.module.cls == &tow_rms_norm_class &&
           dropout.module.cls == &tow_dropout_class && attention.module.cls == &tow_multi_head_attention_class &&
           conv.module.cls == &tow_conv_class && conv_transpose.module.cls == &tow_conv_transpose_class &&
           pool.module.cls == &tow_pool_class && adaptive_pool.module.cls == &tow_adaptive_pool_class &&
           space_to_depth.module.cls == &tow_space_to_depth_class && batch_norm.module.cls == &tow_batch_norm_class &&
           group_norm.module.cls == &tow_group_norm_class && instance_norm.module.cls == &tow_instance_norm_class &&
           prelu.module.cls == &tow_prelu_class && einsum.module.cls == &tow_einsum_layer_class &&
           block.module.cls == &tow_transformer_block_class && remat.module.cls == &tow_remat_class &&
           weight_norm.inner == &dense.module && weight_norm.module.cls == &tow_weight_norm_class &&
           spectral_norm.inner == &dense.module && spectral_norm.module.cls == &tow_spectral_norm_class &&
           remat.inner == &block.module && scan.module.cls == &tow_scan_class && scan.inner == &remat.module &&
           loop.inner == &named.module && loop.length == 4 && named.policy.kind == TOW_POLICY_ONLY_NAMES &&
           named.policy.names[1][0] == 'b' && named.policy.names[2] == NULL && one.n_layers == 1 && two.n_layers == 2 &&
           of.n_layers == 3 && of.layers == list && activation.activation == tow_relu;
}

int main(void)
{
    tow_context *context = NULL;
    tow_graph *graph = NULL, *gradient = NULL;
    tow_array *x = NULL, *dx = NULL;
    const tow_type scalar = tow_make_type(TOW_F64, 0, NULL);
    const double at = 0.5;
    int failed = 1;
    if (tow_context_create(NULL, &context) == TOW_OK &&
        tow_trace_function(context, sine, NULL, 1, &scalar, NULL, 1, &graph) == TOW_OK &&
        tow_grad(graph, 0, NULL, false, &gradient) == TOW_OK &&
        tow_array_from_data(context, scalar, &at, &x) == TOW_OK && tow_evaluate(gradient, &x, &dx) == TOW_OK) {
        const double found = *(const double *)tow_array_data(dx);
        failed = !(fabs(found - cos(at)) < 1e-15) || !layers_have_classes() || !combinators_have_classes();
        printf("tow %s: d sin(0.5) = %.17g\n", tow_version(), found);
    } else {
        fprintf(stderr, "%s\n", tow_context_error(context));
    }
    tow_array_release(x);
    tow_array_release(dx);
    tow_graph_release(graph);
    tow_graph_release(gradient);
    tow_context_free(context);
    return failed;
}

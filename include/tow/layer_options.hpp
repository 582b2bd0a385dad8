/* Options of all layers for C++, and functions that make layers of them. Included by tow.hpp, which says more. Written by
 * cmake/layer_options.cmake from the headers of layers. */
#ifndef TOW_LAYER_OPTIONS_HPP
#define TOW_LAYER_OPTIONS_HPP

namespace tow {

/* clang-format off */

struct dense_options {
    int64_t features{};
    bool no_bias{};
    tow_initializer kernel_init{};
    tow_initializer bias_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(dense, dense)

struct dense_general_options {
    int64_t features[TOW_MAX_RANK]{};
    int n_axes{};
    int axes[TOW_MAX_RANK]{};
    int n_batch_dims{};
    bool no_bias{};
    tow_initializer kernel_init{};
    tow_initializer bias_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(dense_general, dense_general)

struct mlp_options {
    int64_t features[TOW_MLP_LIMIT]{};
    tow_activation activation{};
    bool activate_last{};
    bool no_bias{};
    tow_initializer kernel_init{};
    tow_initializer bias_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(mlp, mlp)

struct embed_options {
    int64_t num_embeddings{}, features{};
    tow_initializer embedding_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(embed, embed)

struct layer_norm_options {
    double epsilon{};
    bool no_scale{}, no_bias{};
    tow_initializer scale_init{};
    tow_initializer bias_init{};
    tow_dtype dtype{}, param_dtype{};
    int n_reduction_axes{};
    int reduction_axes[TOW_MAX_RANK]{};
    int n_feature_axes{};
    int feature_axes[TOW_MAX_RANK]{};
    bool fast_variance{};
};
TOW__CPP_LAYER(layer_norm, layer_norm)

struct rms_norm_options {
    double epsilon{};
    bool no_scale{};
    tow_initializer scale_init{};
    tow_dtype dtype{}, param_dtype{};
    int n_reduction_axes{};
    int reduction_axes[TOW_MAX_RANK]{};
    int n_feature_axes{};
    int feature_axes[TOW_MAX_RANK]{};
};
TOW__CPP_LAYER(rms_norm, rms_norm)

struct dropout_options {
    double rate{};
    bool deterministic{};
    const char *stream{};
    int n_broadcast_axes{};
    int broadcast_axes[TOW_MAX_RANK]{};
};
TOW__CPP_LAYER(dropout, dropout)

struct conv_options {
    int64_t features{};
    int64_t kernel_size[TOW_MAX_RANK]{};
    int64_t strides[TOW_MAX_RANK]{};
    tow_conv_padding padding{};
    int64_t low[TOW_MAX_RANK]{};
    int64_t high[TOW_MAX_RANK]{};
    int64_t input_dilation[TOW_MAX_RANK]{};
    int64_t kernel_dilation[TOW_MAX_RANK]{};
    int64_t groups{};
    bool no_bias{};
    tow_initializer kernel_init{};
    tow_initializer bias_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(conv, conv)

struct conv_local_options {
    int64_t features{};
    int64_t kernel_size[TOW_MAX_RANK]{};
    int64_t strides[TOW_MAX_RANK]{};
    tow_conv_padding padding{};
    int64_t low[TOW_MAX_RANK]{};
    int64_t high[TOW_MAX_RANK]{};
    int64_t input_dilation[TOW_MAX_RANK]{};
    int64_t kernel_dilation[TOW_MAX_RANK]{};
    bool no_bias{};
    tow_initializer kernel_init{};
    tow_initializer bias_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(conv_local, conv_local)

struct conv_transpose_options {
    int64_t features{};
    int64_t kernel_size[TOW_MAX_RANK]{};
    int64_t strides[TOW_MAX_RANK]{};
    tow_conv_padding padding{};
    int64_t low[TOW_MAX_RANK]{};
    int64_t high[TOW_MAX_RANK]{};
    int64_t kernel_dilation[TOW_MAX_RANK]{};
    bool transpose_kernel{};
    bool no_bias{};
    tow_initializer kernel_init{};
    tow_initializer bias_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(conv_transpose, conv_transpose)

struct pool_options {
    tow_pool_kind kind{};
    int64_t window[TOW_MAX_RANK]{};
    int64_t strides[TOW_MAX_RANK]{};
    tow_padding padding{};
    int64_t low[TOW_MAX_RANK]{};
    int64_t high[TOW_MAX_RANK]{};
    bool exclude_padding{};
};
TOW__CPP_LAYER(pool, pool)

struct adaptive_pool_options {
    tow_pool_kind kind{};
    int64_t size[TOW_MAX_RANK]{};
};
TOW__CPP_LAYER(adaptive_pool, adaptive_pool)

struct space_to_depth_options {
    int64_t block[TOW_MAX_RANK]{};
    bool inverse{};
};
TOW__CPP_LAYER(space_to_depth, space_to_depth)

struct batch_norm_options {
    int n_axes{};
    int axes[TOW_MAX_RANK]{};
    bool use_running_average{};
    double momentum{};
    double epsilon{};
    bool no_scale{}, no_bias{};
    tow_initializer scale_init{};
    tow_initializer bias_init{};
    tow_dtype dtype{}, param_dtype{};
    bool fast_variance{};
};
TOW__CPP_LAYER(batch_norm, batch_norm)

struct group_norm_options {
    int64_t groups{};
    int64_t group_size{};
    double epsilon{};
    bool no_scale{}, no_bias{};
    tow_initializer scale_init{};
    tow_initializer bias_init{};
    tow_dtype dtype{}, param_dtype{};
    int n_reduction_axes{};
    int reduction_axes[TOW_MAX_RANK]{};
    bool fast_variance{};
};
TOW__CPP_LAYER(group_norm, group_norm)

struct instance_norm_options {
    int n_axes{};
    int axes[TOW_MAX_RANK]{};
    double epsilon{};
    bool no_scale{}, no_bias{};
    tow_initializer scale_init{};
    tow_initializer bias_init{};
    tow_dtype dtype{}, param_dtype{};
    bool fast_variance{};
};
TOW__CPP_LAYER(instance_norm, instance_norm)

struct prelu_options {
    tow_initializer slope_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(prelu, prelu)

struct einsum_layer_options {
    const char *spec{};
    int64_t shape[TOW_MAX_RANK]{};
    bool no_bias{};
    tow_initializer kernel_init{};
    tow_initializer bias_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(einsum_layer, einsum_layer)

struct residual_layer_options {
    const tow_module *projection{};
    double scale{};
    tow_initializer scale_init{};
};
TOW__CPP_WRAPPER(residual_layer, residual_layer)

struct rope_options {
    double theta{};
    int64_t features{};
    bool interleaved{};
    tow_rope_scaling scaling{};
    double factor{};
    double low_frequency{};
    double high_frequency{};
    double original_length{};
};
TOW__CPP_LAYER(rope, rope)

struct learned_positions_options {
    int64_t max_length{};
    bool decode{};
    tow_initializer embedding_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(learned_positions, learned_positions)

struct sinusoidal_positions_options {
    double max_timescale{};
    bool halves{};
    bool decode{};
};
TOW__CPP_LAYER(sinusoidal_positions, sinusoidal_positions)

struct gated_mlp_options {
    int64_t features{};
    int64_t out_features{};
    tow_activation activation{};
    bool no_bias{};
    tow_initializer kernel_init{};
    tow_initializer down_kernel_init{};
    tow_initializer bias_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(gated_mlp, gated_mlp)

struct multi_head_attention_options {
    int64_t heads{};
    int64_t kv_heads{};
    int64_t qkv_features{};
    int64_t out_features{};
    bool causal{};
    bool no_bias{};
    bool no_qkv_bias{};
    bool no_out_bias{};
    double scale{};
    int64_t window{};
    double logit_cap{};
    tow_qk_norm qk_norm{};
    double qk_norm_epsilon{};
    bool head_gates{};
    bool rope{};
    tow_rope_options rope_options{};
    bool decode{};
    bool recall{};
    int64_t cache_length{};
    bool sow_weights{};
    double dropout_rate{};
    bool dropout_each{};
    bool deterministic{};
    tow_initializer kernel_init{};
    tow_initializer out_kernel_init{};
    tow_initializer bias_init{};
    tow_dtype dtype{}, param_dtype{};
    tow_dtype cache_dtype{};
};
TOW__CPP_LAYER(multi_head_attention, multi_head_attention)

struct transformer_block_options {
    int64_t heads{};
    int64_t kv_heads{};
    int64_t mlp_features{};
    bool causal{};
    bool no_bias{};
    bool rms_norm{};
    double epsilon{};
    double dropout_rate{};
    double attn_dropout_rate{};
    bool deterministic{};
    tow_activation activation{};
    tow_initializer kernel_init{};
    tow_initializer out_init{};
    bool post_norm{};
    bool branch_norms{};
    bool parallel{};
    bool shared_norm{};
    bool gated{};
    bool cross{};
    bool no_qkv_bias{}, no_out_bias{}, no_mlp_bias{};
    int64_t qkv_features{};
    double scale{};
    int64_t window{};
    double logit_cap{};
    tow_qk_norm qk_norm{};
    double qk_norm_epsilon{};
    bool head_gates{};
    bool rope{};
    tow_rope_options rope_options{};
    bool decode{};
    bool recall{};
    int64_t cache_length{};
    bool sow_weights{};
    tow_dtype dtype{}, param_dtype{};
    tow_dtype cache_dtype{};
};
TOW__CPP_LAYER(transformer_block, transformer_block)

struct encoder_decoder_options {
    const tow_module *encoder{};
    const tow_module *decoder{};
    int64_t encoder_length{};
    int64_t decoder_length{};
    bool unrolled{};
    bool no_final_norms{};
    bool rms_norm{};
    double epsilon{};
};
TOW__CPP_LAYER(encoder_decoder, encoder_decoder)

struct simple_cell_options {
    int64_t features{};
    bool residual{};
    tow_activation activation{};
    tow_initializer kernel_init{};
    tow_initializer recurrent_kernel_init{};
    tow_initializer bias_init{};
    tow_initializer carry_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(simple_cell, simple_cell)

struct lstm_cell_options {
    int64_t features{};
    tow_activation gate{};
    tow_activation activation{};
    tow_initializer kernel_init{};
    tow_initializer recurrent_kernel_init{};
    tow_initializer bias_init{};
    tow_initializer carry_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(lstm_cell, lstm_cell)

struct optimized_lstm_cell_options {
    int64_t features{};
    tow_activation gate{};
    tow_activation activation{};
    tow_initializer kernel_init{};
    tow_initializer recurrent_kernel_init{};
    tow_initializer bias_init{};
    tow_initializer carry_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(optimized_lstm_cell, optimized_lstm_cell)

struct gru_cell_options {
    int64_t features{};
    tow_activation gate{};
    tow_activation activation{};
    tow_initializer kernel_init{};
    tow_initializer recurrent_kernel_init{};
    tow_initializer bias_init{};
    tow_initializer carry_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(gru_cell, gru_cell)

struct mgu_cell_options {
    int64_t features{};
    bool no_reset_gate{};
    tow_activation gate{};
    tow_activation activation{};
    tow_initializer kernel_init{};
    tow_initializer recurrent_kernel_init{};
    tow_initializer forget_bias_init{};
    tow_initializer activation_bias_init{};
    tow_initializer carry_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(mgu_cell, mgu_cell)

struct conv_lstm_cell_options {
    int64_t features{};
    int64_t kernel_size[TOW_MAX_RANK]{};
    bool no_bias{};
    tow_initializer kernel_init{};
    tow_initializer bias_init{};
    tow_initializer carry_init{};
    tow_dtype dtype{}, param_dtype{};
};
TOW__CPP_LAYER(conv_lstm_cell, conv_lstm_cell)

struct rnn_options {
    bool time_major{};
    bool lengths{};
    bool reverse{};
    bool keep_order{};
    bool in_place{};
    uint64_t carry_seed{};
    bool unrolled{};
    int64_t unroll{};
    tow_scan_schedule schedule{};
    tow_scan_keys keys{};
    const tow_lift_rule *variables{};
    const tow_lift_rule *streams{};
};
TOW__CPP_WRAPPER(rnn, rnn)

struct bidirectional_options {
    const tow_rnn *forward_rnn{}, *backward_rnn{};
    tow_value (*merge)(tow_value forward, tow_value backward){};
    bool time_major{};
    bool lengths{};
    bool shared{};
};
TOW__CPP_LAYER(bidirectional, bidirectional)

struct remat_options {
    tow_policy policy{};
    const tow_lift_rule *variables{}, *streams{};
    size_t limit{};
};
TOW__CPP_WRAPPER(remat, remat)

struct scan_options {
    int64_t length{};
    bool empty{};
    bool reverse{};
    bool unrolled{};
    size_t n_carry{};
    size_t n_broadcast{};
    int64_t unroll{};
    tow_scan_schedule schedule{};
    const int *in_axes{};
    const int *out_axes{};
    tow_scan_keys keys{};
    const tow_lift_rule *variables{};
    const tow_lift_rule *streams{};
};
TOW__CPP_WRAPPER(scan, scan)

struct method_options {
    void (*function)(tow_scope *scope, const tow_module *module, size_t n_inputs, const tow_value *inputs, size_t n_outputs, tow_value *outputs){};
    const char *name{};
};
TOW__CPP_WRAPPER(method, method)

struct remat_scan_options {
    int64_t lengths[TOW_MAX_RANK]{};
    tow_policy policy{};
    size_t n_carry{};
    size_t n_broadcast{};
    tow_scan_keys keys{};
    const tow_lift_rule *variables{}, *streams{};
};
TOW__CPP_WRAPPER(remat_scan, remat_scan)

struct layer_stack_options {
    int64_t length{};
    const tow_module *const *pattern{}, *const *first{}, *const *last{};
    size_t n_carry{};
    size_t n_broadcast{};
    bool unrolled{};
    tow_scan_keys keys{};
    const tow_lift_rule *variables{}, *streams{};
};
TOW__CPP_LAYER(layer_stack, layer_stack)

struct vmap_layer_options {
    int64_t axis_size{};
    bool empty{};
    const int *in_axes{};
    const int *out_axes{};
    bool unrolled{};
    tow_scan_keys keys{};
    const tow_lift_rule *variables{}, *streams{};
};
TOW__CPP_WRAPPER(vmap_layer, vmap_layer)

struct cond_options {
    const tow_module *yes{}, *no{};
    const tow_lift_rule *variables{}, *streams{};
};
TOW__CPP_LAYER(cond, cond)

struct switch_options {
    const tow_module *const *branches{};
    const tow_lift_rule *variables{}, *streams{};
};
TOW__CPP_LAYER(switch_layer, switch)

struct while_options {
    const tow_module *condition{}, *body{};
    size_t n_carry{};
    int64_t max_iterations{};
    const tow_lift_rule *variables{};
    const tow_lift_rule *streams{};
    tow_scan_schedule schedule{};
};
TOW__CPP_LAYER(while_layer, while)

struct value_and_grad_layer_options {
    size_t n_aux{};
    const char *const *wrt{};
    const tow_lift_rule *variables{}, *streams{};
};
TOW__CPP_WRAPPER(value_and_grad_layer, value_and_grad_layer)

struct vjp_layer_options {
    size_t n_inputs{}, n_outputs{};
    const char *const *wrt{};
    const tow_lift_rule *variables{}, *streams{};
};
TOW__CPP_WRAPPER(vjp_layer, vjp_layer)

struct jvp_layer_options {
    size_t n_inputs{}, n_outputs{};
    const char *const *wrt{};
    const tow_lift_rule *variables{}, *streams{};
};
TOW__CPP_WRAPPER(jvp_layer, jvp_layer)

struct custom_vjp_layer_options {
    tow_value (*cotangent)(tow_trace *trace, size_t index, tow_value cotangent, const void *user){};
    tow_value (*gradient)(tow_trace *trace, const char *parameter, size_t index, tow_value gradient, const void *user){};
    const void *user{};
    const tow_lift_rule *variables{}, *streams{};
};
TOW__CPP_WRAPPER(custom_vjp_layer, custom_vjp_layer)

struct map_variables_options {
    const char *const *variables{};
    tow_value (*trans_in)(tow_value stored, const tow_variable_request *asked, const void *user){};
    tow_value (*trans_out)(tow_value seen, const tow_variable_request *asked, const void *user){};
    tow_value (*make)(tow_scope *scope, const tow_variable_request *asked, const void *user){};
    const void *user{};
};
TOW__CPP_WRAPPER(map_variables, map_variables)

struct tied_options {
    const char *parameter{};
    const char *to{};
    bool transposed{};
};
TOW__CPP_WRAPPER(tied, tied)

struct weight_norm_options {
    const char *const *filter{};
    bool everything{};
    int n_axes{};
    int axes[TOW_MAX_RANK]{};
    bool whole{};
    bool no_scale{};
    double epsilon{};
    tow_initializer scale_init{};
};
TOW__CPP_WRAPPER(weight_norm, weight_norm)

struct spectral_norm_options {
    int64_t n_steps{};
    double epsilon{};
    bool keep_stats{};
    bool matrices_only{};
};
TOW__CPP_WRAPPER(spectral_norm, spectral_norm)

struct precision_options {
    tow_dtype dtype{}, param_dtype{};
    tow_dtype output_dtype{};
    const tow_dtype_rule *param_dtypes{};
};
TOW__CPP_WRAPPER(precision, precision)

struct lora_options {
    int64_t rank{};
    double alpha{};
    const char *const * filter{};
    tow_initializer a_init{};
    tow_initializer b_init{};
};
TOW__CPP_WRAPPER(lora, lora)

/* clang-format on */

} // namespace tow

#endif

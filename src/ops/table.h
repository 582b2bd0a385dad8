/* X(name) for every primitive, sorted by name as strcmp sorts: declares the descriptors and fills the table. */
#ifndef TOW_SRC_TABLE_H
#define TOW_SRC_TABLE_H

#include "src/graph/primitive.h"

/* clang-format off */
#define TOW__PRIMITIVE_LIST(X)                                                                                         \
    X(abs) X(acos) X(acosh) X(add) X(and) X(argmax) X(argmin) X(asin) X(asinh) X(atan) X(atan2) X(atanh) X(attention)  \
    X(attention_jvp) X(attention_vjp) X(bitcast) X(broadcast_in_dim) X(call) X(cbrt) X(ceil) X(clamp) X(clz)           \
    X(concatenate) X(cond) X(const) X(conv_general_dilated) X(convert) X(cos) X(cosh) X(cumlogsumexp) X(cummax)        \
    X(cummin) X(cumprod) X(cumsum) X(custom_jvp) X(custom_vjp) X(digamma) X(div) X(dot_general) X(dropout)             \
    X(dynamic_slice) X(dynamic_update_slice) X(empty) X(eq) X(erf) X(erf_inv) X(erfc) X(exp) X(exp2) X(expm1) X(floor) \
    X(fma) X(fori) X(gather) X(gather_general) X(gather_jvp) X(ge) X(gelu) X(gelu_grad) X(gt) X(index_add)             \
    X(integer_pow) X(iota) X(is_finite) X(layer_norm) X(layer_norm_jvp) X(layer_norm_vjp) X(le) X(lgamma)              \
    X(linear_cross_entropy) X(linear_cross_entropy_jvp) X(linear_cross_entropy_vjp) X(log) X(log1p) X(log_softmax)     \
    X(logistic) X(logsumexp) X(lt) X(max) X(min) X(mul) X(name) X(ne) X(neg) X(nextafter) X(not) X(or) X(pad)          \
    X(polygamma) X(population_count) X(pow) X(random_bits) X(reduce_and) X(reduce_max) X(reduce_min) X(reduce_or)      \
    X(reduce_precision) X(reduce_prod) X(reduce_sum) X(reduce_window_max) X(reduce_window_min) X(reduce_window_sum)    \
    X(relu) X(rem) X(remat) X(reshape) X(rev) X(rms_norm) X(rms_norm_jvp) X(rms_norm_vjp) X(round) X(rsqrt) X(scan)    \
    X(scatter_add) X(scatter_general) X(scatter_general_add) X(scatter_general_max) X(scatter_general_min)             \
    X(scatter_general_mul) X(searchsorted) X(select) X(select_and_gather_add) X(select_and_scatter_add) X(shift_left)  \
    X(shift_right) X(shift_right_arithmetic) X(sign) X(silu) X(silu_grad) X(sin) X(sinh) X(slice) X(softmax)           \
    X(softmax_cross_entropy) X(softmax_cross_entropy_jvp) X(softmax_cross_entropy_vjp) X(sort) X(sqrt)                 \
    X(stop_gradient) X(sub) X(tan) X(tanh) X(threefry2x32) X(top_k) X(transpose) X(while) X(xor)
/* clang-format on */

#define X(name) extern const tow_primitive tow__##name##_p;
TOW__PRIMITIVE_LIST(X)
#undef X

#endif

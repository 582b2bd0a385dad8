/* The functions that elementwise kernels compute: what the ops of row programs are known by. */
#ifndef TOW_SRC_KERNELS_FUNCTIONS_H
#define TOW_SRC_KERNELS_FUNCTIONS_H

/* clang-format off */
#define TOW__FUNCTION_LIST(X) \
    X(abs) X(acos) X(acosh) X(add) X(and) X(asin) X(asinh) X(atan) X(atan2) X(atanh) X(bitcast) X(cbrt) X(ceil) \
    X(clamp) X(clz) X(convert) X(cos) X(cosh) X(digamma) X(div) X(eq) X(erf) X(erf_inv) X(erfc) X(exp) X(exp2) \
    X(expm1) X(floor) X(ge) X(gelu) X(gelu_grad) X(gt) X(integer_pow) X(is_finite) X(le) X(lgamma) X(log) X(log1p) \
    X(logistic) X(lt) X(max) X(min) X(mul) X(ne) X(neg) X(nextafter) X(not) X(or) X(polygamma) X(population_count) \
    X(pow) X(reduce_precision) X(relu) X(rem) X(round) X(rsqrt) X(select) X(shift_left) X(shift_right) \
    X(shift_right_arithmetic) X(sign) X(silu) X(silu_grad) X(sin) X(sinh) X(sqrt) X(square) X(stop_gradient) X(sub) \
    X(tan) X(tanh) X(threefry2x32) X(xor)
/* clang-format on */

typedef enum tow__function {
    TOW__NO_FUNCTION,
#define X(name) TOW__FN_##name,
    TOW__FUNCTION_LIST(X)
#undef X
} tow__function;

/* The name of the primitive. */
const char *tow__function_name(tow__function function);

#endif

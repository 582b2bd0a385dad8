/* The functions that elementwise kernels compute, by which row programs know them, and the types that they take. A line
 * here and an expression in reference/float.inc or reference/integer.inc make a kernel. */
#ifndef TOW_SRC_KERNELS_FUNCTIONS_H
#define TOW_SRC_KERNELS_FUNCTIONS_H

/* clang-format off */
/* X(name, types of operands): results have the type of the first operand, or are bool. */
#define TOW__MAPPED_FUNCTION_LIST(X) \
    X(abs, NUMBERS) X(acos, FLOATS) X(acosh, FLOATS) X(add, NUMBERS) X(and, LOGICAL) X(asin, FLOATS) \
    X(asinh, FLOATS) X(atan, FLOATS) X(atan2, FLOATS) X(atanh, FLOATS) X(bessel_i0e, FLOATS) X(bessel_i1e, FLOATS) \
    X(betainc, FLOATS) X(cbrt, FLOATS) X(ceil, FLOATS) \
    X(clamp, NUMBERS) X(clz, INTEGERS) X(cos, FLOATS) X(cosh, FLOATS) X(digamma, FLOATS) X(div, NUMBERS) X(eq, ALL) \
    X(erf, FLOATS) X(erf_inv, FLOATS) X(erfc, FLOATS) X(exp, FLOATS) X(exp2, FLOATS) X(expm1, FLOATS) \
    X(floor, FLOATS) X(fma, FLOATS) X(ge, ALL) X(gelu, FLOATS) X(gelu_grad, FLOATS) X(gt, ALL) X(igamma, FLOATS) \
    X(igamma_grad_a, FLOATS) X(igammac, FLOATS) X(integer_pow, NUMBERS) \
    X(is_finite, FLOATS) X(le, ALL) X(lgamma, FLOATS) X(log, FLOATS) X(log1p, FLOATS) X(logistic, FLOATS) X(lt, ALL) \
    X(max, ALL) X(min, ALL) X(mul, NUMBERS) X(ne, ALL) X(neg, NUMBERS) X(nextafter, ALL_FLOATS) X(not, LOGICAL) \
    X(or, LOGICAL) X(polygamma, FLOATS) X(population_count, INTEGERS) X(pow, NUMBERS) X(random_gamma_grad, FLOATS) \
    X(reduce_precision, FLOATS) \
    X(relu, FLOATS) X(rem, NUMBERS) X(round, FLOATS) X(rsqrt, FLOATS) X(shift_left, INTEGERS) \
    X(shift_right, INTEGERS) X(shift_right_arithmetic, INTEGERS) X(sign, NUMBERS) X(silu, FLOATS) \
    X(silu_grad, FLOATS) X(sin, FLOATS) X(sinh, FLOATS) X(sqrt, FLOATS) X(square, NUMBERS) X(stop_gradient, ALL) \
    X(sub, NUMBERS) X(tan, FLOATS) X(tanh, FLOATS) X(xor, LOGICAL) X(zeta, FLOATS)
/* Functions with a type of their own for some operand or result. */
#define TOW__CONVERTING_FUNCTION_LIST(X) \
    X(bitcast, EVERY) X(convert, EVERY) X(select, EVERY) X(threefry2x32, WORDS)
/* clang-format on */
#define TOW__FUNCTION_LIST(X) TOW__MAPPED_FUNCTION_LIST(X) TOW__CONVERTING_FUNCTION_LIST(X)

typedef enum tow__function {
    TOW__NO_FUNCTION,
#define X(name, types) TOW__FN_##name,
    TOW__FUNCTION_LIST(X)
#undef X
} tow__function;

/* The name of the primitive. */
const char *tow__function_name(tow__function function);

#endif

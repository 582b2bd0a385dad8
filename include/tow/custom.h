/* Functions with a derivative of one's own, traced from C as the function itself is.
 *
 * A rule replaces what differentiation would make of the function: for numerical stability, for a gradient that is not
 * the derivative, or for one that is cheaper. Calls may stand in remat, scan, call and vmap, and rules may contain all
 * of them.
 * The equations that a rule records are ordinary: they are differentiated again for second derivatives, and policies,
 * checkpoint names and reports see their values. Functions and rules may use values of the trace from outside, as long
 * as those are not differentiated themselves.
 *
 * A rule may call its own function with its rule, as rules in JAX do: with the same functions, the same `user` and
 * operands of the same types. Such a call is a custom_self in the printed graph, and every further derivative goes
 * through the rule again. Two functions whose rules call each other work likewise. docs/custom-rules.md has
 * examples. */
#ifndef TOW_CUSTOM_H
#define TOW_CUSTOM_H

#include "tow/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Options of a call; all may be left out. */
typedef struct tow_custom_options {
    size_t size TOW__SIZE(tow_custom_options); /* set by TOW_CUSTOM_OPTIONS */
    const char *name;                          /* for messages and the printed graph; copied */
    const bool *fixed; /* [n_inputs] inputs that are not differentiated: nothing flows back through them; NULL: none */
} tow_custom_options;
#define TOW_CUSTOM_OPTIONS(...) TOW__OPTIONS(tow_custom_options, __VA_ARGS__)

/* outputs = function(inputs), with the derivative that `rule` gives in forward and in reverse mode.
 *   function: reads x[n_inputs], writes y[n_outputs].
 *   rule:     reads x[n_inputs], then the tangents dx[n_inputs]; writes y[n_outputs], then the tangents dy[n_outputs].
 *             dx[i] is the null value for inputs that are fixed or not floats. If an input turns out to have no
 *             tangent, dx[i] is zero, and products of the rule with it are neither computed nor kept.
 *             dy[j] may be left null: zero. It must be so for outputs that are not floats.
 * Under differentiation the values are those that the rule writes. Reverse mode transposes the rule, which must be
 * linear in the tangents, and so do linearize and lists of residuals; their error names the operation that is not.
 * Both functions are traced here; where a rule calls tow_custom_jvp_function again, `function` is traced there, too,
 * and all are traced once more if only a rule uses some outer value. options may be NULL.
 * Errors: a function (not its rule) that calls itself; results of the rule whose types are not those of the function's
 * results; an outer value that has a tangent when the call is differentiated. */
TOW_API void tow_custom_jvp_function(tow_trace *trace, tow_function function, tow_function rule, void *user,
                                     const tow_custom_options *options, size_t n_inputs, const tow_value *inputs,
                                     size_t n_outputs, tow_value *outputs);

/* outputs = function(inputs), with the gradient that `backward` gives in reverse mode.
 *   function: reads x[n_inputs], writes y[n_outputs].
 *   forward:  reads x[n_inputs], writes y[n_outputs], then residuals[n_residuals] for the backward function.
 *   backward: reads residuals[n_residuals], then cotangents of y[n_outputs]; writes cotangents of x[n_inputs].
 *             The cotangent of an output that is not a float is the null value; that of an output without a reader is
 *             zeros.
 *             Cotangents of inputs may be left null: zero. They must be so for inputs that are fixed or not floats.
 * Under differentiation the values are those that `forward` writes, and the function itself is not run. Residuals are
 * kept or made again as policies say about the operations of `forward`; a residual that is an input takes no memory of
 * its own. Second derivatives differentiate `forward` and `backward` as ordinary code. Forward mode (jvp, linearize,
 * jacfwd) of the call itself is an error. options may be NULL.
 * Errors: as above; results of `forward` or `backward` of the wrong type, forward mode. */
TOW_API void tow_custom_vjp_function(tow_trace *trace, tow_function function, tow_function forward,
                                     tow_function backward, void *user, const tow_custom_options *options,
                                     size_t n_inputs, const tow_value *inputs, size_t n_residuals, size_t n_outputs,
                                     tow_value *outputs);

#ifdef __cplusplus
}
#endif
#endif

/* Control flow: functions of which one runs, and functions that run a number of times that the data decide.
 *
 * Everything here can be differentiated in forward mode, stands under remat, whose policies reach inside, and in scans,
 * and nests. A function that does not run costs memory only, and branches that exclude each other share theirs.
 * Functions may use any value of the trace from outside. Layers may be called in them under a scope of the caller: all
 * branches and iterations share its parameters and keys, and may read variables but not write or sow them; the layers
 * TOW_COND, TOW_SWITCH and TOW_WHILE (tow/transforms.h) may do that as well. */
#ifndef TOW_CONTROL_H
#define TOW_CONTROL_H

#include "tow/autodiff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A function and what it gets as `user`. */
typedef struct tow_branch {
    tow_function function;
    void *user;
} tow_branch;

/* Runs if_true or if_false on inputs.
 *   predicate: [] bool, or a number: true if it is not 0 (a NaN is true).
 * The outputs of both must have the same types. Gradients are those of the function that ran.
 * Errors: a predicate that is not a scalar, outputs whose types differ. */
TOW_API void tow_cond_function(tow_trace *trace, tow_value predicate, tow_function if_true, tow_function if_false,
                               void *user, size_t n_inputs, const tow_value *inputs, size_t n_outputs,
                               tow_value *outputs);

/* Runs branches[index], index being clamped: the first one for a negative index, the last one for one that is too
 * large.
 *   index: [] an integer (read as i32: from 2^31 on it is negative).
 * A single branch is recorded without a choice. Errors: as tow_cond_function, and no branch. */
TOW_API void tow_switch_function(tow_trace *trace, tow_value index, size_t n_branches, const tow_branch *branches,
                                 size_t n_inputs, const tow_value *inputs, size_t n_outputs, tow_value *outputs);

/* max_iterations > 0: the loop ends after so many iterations, whatever the condition says. Reverse mode then keeps what
 * the policy around the loop permits in arrays with a row for each of them, of which only rows of iterations that ran
 * are written and read; a body inside a remat region keeps its inputs and is run again. Without it (0) and without
 * slots, reverse mode is an error unless no derivative flows through the loop.
 *
 * schedule.slots = s > 0, the one kind of schedule that a while has: reverse mode keeps at most s states, a state being
 * the carries with which an iteration begins, however many iterations there turn out to be, and runs the others again.
 * Bits are those of the loop with max_iterations. Of n iterations none runs forward more than t times again, t the
 * least number with C(s + t, t) >= n: no schedule does with less, even one that knows n (Wang, Moin, Iaccarino, SIAM
 * Journal on Scientific Computing 31, 2009). All in all about as many run as under .slots of a scan (tow/autodiff.h):
 * at most 1.5 times as many, for long loops 1.03 times. The loop ends after 2^31 - 1 iterations then. With
 * max_iterations <= s the loop keeps what it keeps without a schedule. */
typedef struct tow_while_options {
    size_t size TOW__SIZE(tow_while_options); /* set by TOW_WHILE_OPTIONS */
    int64_t max_iterations;
    tow_scan_schedule schedule; /* .slots; zeros: max_iterations bounds what is kept */
} tow_while_options;
#define TOW_WHILE_OPTIONS(...) TOW__OPTIONS(tow_while_options, __VA_ARGS__)

/* carry = body(carry) as long as condition(carry) holds.
 *   condition: reads carry[n_carry] and writes outputs[0], bool [].     body: reads and writes carry[n_carry].
 * carry_out is the last carry: the init values if the condition does not hold at first. Types of carries must not
 * change.
 * The residuals that reverse mode keeps have a row for each of max_iterations; rows of iterations that did not run have
 * no particular values, which shows where tow_linearize hands them out, and are not read.
 * options may be NULL. Errors: a condition that is not a bool scalar, a carry whose type changes, a negative bound. */
TOW_API void tow_while_function(tow_trace *trace, tow_function condition, tow_function body, void *user,
                                const tow_while_options *options, size_t n_carry, const tow_value *carry,
                                tow_value *carry_out);

/* Bounds that are known only when the program runs, i32 [] or u32 []; a null value stands for the number that was
 * given. With one of them the loop is a while, with its max_iterations and its schedule; without, a scan with this
 * schedule. */
typedef struct tow_fori_options {
    size_t size TOW__SIZE(tow_fori_options); /* set by TOW_FORI_OPTIONS */
    tow_value lower, upper;
    int64_t max_iterations;
    tow_scan_schedule schedule; /* zeros: the policy around the loop decides what it keeps */
} tow_fori_options;
#define TOW_FORI_OPTIONS(...) TOW__OPTIONS(tow_fori_options, __VA_ARGS__)

/* carry = body(i, carry) for i = lower, ..., upper - 1; none if upper <= lower.
 *   body: reads i [], then carry[n_carry], and writes carry[n_carry]. i is i32, or what bounds in options are.
 * With bounds that are numbers the loop is a scan, which reverse mode differentiates without further ado.
 * options may be NULL. Errors: as tow_while_function, bounds outside of i32, bounds of two types. */
TOW_API void tow_fori_function(tow_trace *trace, int64_t lower, int64_t upper, tow_function body, void *user,
                               const tow_fori_options *options, size_t n_carry, const tow_value *carry,
                               tow_value *carry_out);

/* ys[i][t] = xs[i][0] combined with all elements up to t along `axis` (negative: from the end, of each operand), or
 * from the last one back to t with reverse: jax.lax.associative_scan.
 *   function: reads a[n], then b[n], arrays of equal types with some of the elements along the axis; writes what each
 *             element of a combined with that of b gives, in the same types. It must be associative; a stands before b.
 * All xs have as many elements along the axis. The function is called about 2 log2(elements) times, with ever fewer
 * elements, so a linear recurrence h[t] = a[t] h[t-1] + b[t] takes log2 steps instead of one after the other:
 *     static void combine(tow_trace *t, const tow_value *in, tow_value *out, void *user)
 *     {
 *         out[0] = tow_mul(in[0], in[2]);                       a1 a2
 *         out[1] = tow_add(tow_mul(in[2], in[1]), in[3]);       a2 b1 + b2
 *     }
 * The order depends on the number of elements alone. Errors: operands that do not fit together, results of other
 * types. */
TOW_API void tow_associative_scan_function(tow_trace *trace, tow_function function, void *user, int axis, bool reverse,
                                           size_t n, const tow_value *xs, tow_value *ys);

#ifdef __cplusplus
}
#endif
#endif

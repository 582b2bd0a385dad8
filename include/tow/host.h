/* C functions in the middle of a program: data, logging, debugging.
 *
 *     static tow_status log_loss(const tow_host_call *call)
 *     {
 *         printf("loss %g\n", *(const float *)call->inputs[0].data);
 *         return TOW_OK;
 *     }
 *
 *     static const tow_host_function log = {.name = "log_loss", .run = log_loss};
 *     tow_call_host(trace, &log, 1, &loss, 0, NULL, NULL);
 *
 *     tow_debug_print("x = {}, y = {}", x, y);
 *
 * Calls with effects, which are all but those of pure functions, run once wherever the program reaches them, in the
 * order in which they were recorded: no pass removes, merges, repeats or swaps them. In a scan or while that is once in
 * each iteration; in a cond, in the branch that is taken; in a remat region, once in the forward pass: recomputation
 * reads their results, which are kept whatever the policy says, and does not call again. Under vmap a function is
 * called for each row, the rows of one call in order; a call whose operands all rows share is made once. A pure
 * function may be left out if nobody reads its results, merged with an equal call, and called again by recomputation.
 *
 * Functions are called on the thread that runs the program, never side by side: loops and tiles with host calls are not
 * run in parallel. They are not differentiated. A call without float results is passed by: its tangents are dropped.
 * One with float results is an error where a tangent reaches it: wrap it in tow_custom_jvp_function or
 * tow_custom_vjp_function, or give it tow_stop_gradient of its operands.
 *
 * In the textual form a call names its function, call_host[name="log_loss" ...]. It is read by contexts that know the
 * function: tow_host_define. */
#ifndef TOW_HOST_H
#define TOW_HOST_H

#include "tow/graph.h"
#include "tow/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One call. All buffers are row-major and contiguous. Operands are only read, results are to be written whole. */
typedef struct tow_host_call {
    size_t n_inputs, n_outputs;
    const tow_buffer *inputs, *outputs;
    void *user;           /* of the function */
    tow_context *context; /* of the program: for tow_host_fail, and nothing else while the program runs */
} tow_host_call;

/* Fields that are zero are left out. */
typedef struct tow_host_function {
    const char *name; /* in graphs and messages: not empty */
    /* Any status but TOW_OK stops the program: tow_program_run returns it, with a message that says where the call was
     * recorded. Results of the program are then unspecified. The function runs in Tow's floating-point environment, and
     * may not run the program that calls it. */
    tow_status (*run)(const tow_host_call *call);
    void *user;
    bool pure;        /* results depend on operands alone, and nothing else happens */
    bool whole_batch; /* under vmap it is called once: every operand and result has one more axis in front, the rows */
} tow_host_function;

/* Makes the function known to the context by its name, which tow_call_host does as well. `user` and the function must
 * live as long as the context. Errors: TOW_INVALID_ARGUMENT if there is another function of the name. */
TOW_API tow_status tow_host_define(tow_context *context, const tow_host_function *function);

/* Records a call. inputs: [n_inputs]; types, outputs: [n_outputs] the types of the results, and the results. */
TOW_API void tow_call_host(tow_trace *trace, const tow_host_function *function, size_t n_inputs,
                           const tow_value *inputs, size_t n_outputs, const tow_type *types, tow_value *outputs);

/* In a function: sets the message of the failure, and returns `status`. printf format. */
#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
TOW_API tow_status
tow_host_fail(const tow_host_call *call, tow_status status, const char *format, ...);

/* ---- printing ---------------------------------------------------------------------------------------------------- */

/* Prints the values when the program reaches this point: a line of text with the i-th value in the place of the i-th
 * "{}". "{{" and "}}" are braces. Numbers are as short as they can be with the same bits; arrays are in brackets, [[1
 * 2] [3 4]]; of an axis in an array of more than 1,000 elements only the first and the last three are shown. Tangents
 * are dropped, and under vmap there is a line for each row.
 *
 * trace NULL: that of the first value. Error: a format that has not n places. */
TOW_API void tow_debug_print_values(tow_trace *trace, const char *format, size_t n, const tow_value *x);

/* tow_debug_print("x = {}", x, ...): the same with the values one by one, at least one. */
#ifndef __cplusplus
#define tow_debug_print(format, ...)                                                                                   \
    tow_debug_print_values(NULL, (format), sizeof((tow_value[]){__VA_ARGS__}) / sizeof(tow_value),                     \
                           (const tow_value[]){__VA_ARGS__})
#endif

/* Sets the function that gets the lines from the next run on, each whole, with its newline. NULL: the standard
 * output. */
TOW_API void tow_debug_output(tow_context *context, void (*write)(void *user, const char *text, size_t length),
                              void *user);

#ifdef __cplusplus
}

template <typename... Values> inline void tow_debug_print(const char *format, Values... values)
{
    const tow_value all[] = {values...};
    tow_debug_print_values(nullptr, format, sizeof...(values), all);
}
#endif
#endif

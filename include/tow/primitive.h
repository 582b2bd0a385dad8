/* Primitives of one's own: operations with a kernel in C that graphs, differentiation and plans treat like built-in
 * ones.
 *
 *     static const tow_primitive_definition twice = {
 *         .name = "twice", .n_inputs = 1, .n_outputs = 1,
 *         .type = twice_type, .kernel = {.run = twice_run}, .linear = true, .transpose = twice_transpose};
 *
 *     const tow_primitive *primitive;
 *     tow_primitive_define(context, &twice, &primitive);
 *     ...
 *     tow_primitive_call(trace, primitive, NULL, &x, &y);        while tracing
 *
 * A defined primitive belongs to its context: graphs of the context are printed with it and read again, compiled,
 * counted and differentiated. Policies see it under its name. */
#ifndef TOW_PRIMITIVE_H
#define TOW_PRIMITIVE_H

#include "tow/graph.h"
#include "tow/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tow_primitive tow_primitive;

enum {
    TOW_PRIMITIVE_MAX = 16 /* operands, results and attributes of a defined primitive, at most */
};

/* An attribute: a field of a struct, printed as name=value and read again. */
typedef enum tow_attribute_kind {
    TOW_ATTRIBUTE_INT,   /* int64_t */
    TOW_ATTRIBUTE_FLOAT, /* double */
    TOW_ATTRIBUTE_BOOL,  /* bool */
    TOW_ATTRIBUTE_DTYPE  /* tow_dtype */
} tow_attribute_kind;

typedef struct tow_attribute {
    const char *name; /* letters, digits and _, beginning with a letter */
    tow_attribute_kind kind;
    size_t offset; /* offsetof the field */
} tow_attribute;

/* The arguments of rules: the attributes of one equation and `user` of the definition. */
typedef struct tow_primitive_rule {
    tow_context *context;
    const void *attributes; /* NULL: the primitive has none */
    void *user;
} tow_primitive_rule;

/* The axes of the results that a plan may compute block by block, with the bits of the whole. */
typedef enum tow_primitive_tiling {
    TOW_TILING_NONE,
    TOW_TILING_ELEMENTWISE, /* operands have the shape of the results, or are scalars: every axis */
    TOW_TILING_ROWS /* all operands and results have the same leading axes: all but the last axis of operand 0 */
} tow_primitive_tiling;

/* The treatment by policies of dots. */
typedef enum tow_primitive_dot {
    TOW_NO_DOT,
    TOW_PLAIN_DOT,  /* a product without batch dimensions */
    TOW_BATCHED_DOT /* with them */
} tow_primitive_dot;

/* Fields that are zero are left out. The definition is copied; `user` and functions must live as long as the
 * context. */
typedef struct tow_primitive_definition {
    const char *name; /* letters, digits and _, beginning with a letter; no built-in or defined primitive has it */
    size_t n_inputs, n_outputs;
    const tow_attribute *attributes;
    size_t n_attributes, attributes_size; /* size of the struct */
    void *user;

    /* Types of the results from those of the operands. It is asked about graphs that are read from files, too, and
     * checks everything; a refusal is tow_primitive_fail. Needed. */
    tow_status (*type)(const tow_primitive_rule *rule, const tow_type *inputs, tow_type *outputs);
    /* Computes it. */
    tow_kernel kernel;
    /* Computes it, too, in C as plain as can be: what tow_primitive_check (tow/check.h) compares the kernel with, and
     * what contexts with portable_bits run. Optional, with a kernel. */
    tow_kernel reference;
    /* The kernel may give other bits in another call with the same operands (it sums in the order in which threads
     * come, say). Without this, equality of bits is claimed: for any strides of the operands, for any number of threads
     * and, where there is a tiling rule, for any block of rows. Such an operation is computed once: remat keeps its
     * results whatever the policy says, and it is not tiled. */
    bool varies;
    /* The same function in operations of Tow; instead of a kernel, or for derivatives and batching where there are no
     * rules for them. x: [n_inputs]; writes y: [n_outputs] with the types of the type rule. */
    void (*decompose)(tow_trace *trace, const tow_primitive_rule *rule, const tow_value *x, tow_value *y);

    /* Derivatives: one of these, or a decomposition, or the promise that all derivatives are zero. Otherwise
     * differentiation is an error.
     * jvp: writes the results y and their tangents dy (left null: zero) from x and dx (null: zero).
     * linear: tangents of results are the primitive on tangents of all float operands, zeros where there is no tangent.
     * A primitive that is linear in some of its float operands, such as a rotation of x by angles, has a jvp, which
     * records the primitive on (dx, angles).
     * transpose, with either of them: from cotangents ct of the results (null: zero) those of the operands with
     * linear[i], in dx (left null: zero). x[i] is null where linear[i]: operand i depends on a tangent. */
    void (*jvp)(tow_trace *trace, const tow_primitive_rule *rule, const tow_value *x, const tow_value *dx, tow_value *y,
                tow_value *dy);
    bool linear;
    void (*transpose)(tow_trace *trace, const tow_primitive_rule *rule, const tow_type *types, const bool *linear,
                      const tow_value *x, const tow_value *ct, tow_value *dx);
    bool no_derivative;
    /* vmap: records the primitive for `size` rows; axes[i] is the batch axis of x[i], or TOW_NOT_MAPPED. Writes y and
     * y_axes. Without it the decomposition is batched, and without that the primitive runs in a loop over the rows. */
    void (*batch)(tow_trace *trace, const tow_primitive_rule *rule, int64_t size, const tow_value *x, const int *axes,
                  tow_value *y, int *y_axes);

    tow_primitive_tiling tiling;
    /* Floating-point operations, for plans and reports; NULL: a guess from the number of elements, and in reports what
     * the decomposition does, if there is one. */
    double (*cost)(const tow_primitive_rule *rule, const tow_type *inputs, const tow_type *outputs);
    tow_primitive_dot dot;
} tow_primitive_definition;

/* Makes the primitive known to the context, which keeps it to its end.
 * Errors: TOW_INVALID_ARGUMENT for a definition that lacks something, contradicts itself or takes a name that is
 * taken. */
TOW_API tow_status tow_primitive_define(tow_context *context, const tow_primitive_definition *definition,
                                        const tow_primitive **primitive);
/* The primitive of this name that was defined in the context, or NULL. */
TOW_API const tow_primitive *tow_primitive_find(tow_context *context, const char *name);
/* Records the primitive. attributes: the struct, which is copied, or NULL if it has none. x: [n_inputs]; y:
 * [n_outputs], null values after an error. */
TOW_API void tow_primitive_call(tow_trace *trace, const tow_primitive *primitive, const void *attributes,
                                const tow_value *x, tow_value *y);
/* In a type rule: refuses with a message, and returns `status`. printf format. */
#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
TOW_API tow_status
tow_primitive_fail(const tow_primitive_rule *rule, tow_status status, const char *format, ...);

/* ==== C functions in the middle of a program ====================================================================== */

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
TOW_API void tow_debug_output(tow_context *context, void (*write)(const char *text, size_t length, void *user),
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

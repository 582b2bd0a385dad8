/* Checks a primitive of one's own, as the library's tests check the built-in ones.
 *
 *     const tow_check_input inputs[] = {{.type = {TOW_F32, 2, {5, 8}}},
 *                                       {.type = {TOW_F32, 2, {5, 4}}, .constant = true}};
 *     const tow_check_case cases[] = {{.label = "5 rows", .inputs = inputs, .attributes = &attributes}};
 *     tow_check_summary summary;
 *     if (tow_primitive_check(context, primitive, 1, cases, NULL, &summary) != TOW_OK)
 *         fprintf(stderr, "%s\n", tow_context_error(context));
 *
 * Each case is a set of operand types. Operands are drawn at random, the same ones each time. */
#ifndef TOW_CHECK_H
#define TOW_CHECK_H

#include "tow/primitive.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(symbol, name, what is compared) */
#define TOW_CHECK_LIST(X)                                                                                              \
    X(TOW_CHECK_VALUE, "value", "the kernel with the reference or, without one, with the decomposition")               \
    X(TOW_CHECK_KERNEL, "kernel",                                                                                      \
      "the kernel with itself: on operands with other strides, with other numbers of threads, over other memory "      \
      "contents; and what it writes outside of its results and scratch memory")                                        \
    X(TOW_CHECK_TEXT, "text", "graphs with what is read after they are printed, in regions of all kinds")              \
    X(TOW_CHECK_CLEANING, "cleaning", "graphs with what is left after dead code and common subexpressions")            \
    X(TOW_CHECK_JVP, "jvp", "tangents with differences")                                                               \
    X(TOW_CHECK_TRANSPOSE, "transpose", "cotangents with tangents, <ct, J v> = <J^T ct, v>")                           \
    X(TOW_CHECK_GRADIENT, "gradient", "gradients of gradients with differences, and those in f32 with those in f64")   \
    X(TOW_CHECK_BATCH, "batch", "rows of a batch with the primitive on each row, value, tangents and gradients")       \
    X(TOW_CHECK_TILING, "tiling", "blocks of the results with the whole, in the shapes of the case and larger ones")   \
    X(TOW_CHECK_SIZES, "sizes", "results for axes of no elements: that they have the right type and the kernel runs")  \
    X(TOW_CHECK_MEMORY, "memory", "allocations that fail, one after the other: errors, no leaks")

typedef enum tow_check_kind {
#define X(symbol, name, what) symbol,
    TOW_CHECK_LIST(X)
#undef X
} tow_check_kind;

/* The name of a check, for instance "jvp". Never NULL. */
TOW_API const char *tow_check_name(tow_check_kind kind);

/* An operand of a case. */
typedef struct tow_check_input {
    tow_type type;    /* f32 and f64 stand for each other: the case runs in those of the two that the type rule takes */
    double low, high; /* both 0: floats from [-1, 1), integers 0, 1 or 2, bool either; integers include high */
    const void *data; /* NULL, or the elements: what cannot be drawn, such as indices that fit together */
    bool constant;    /* float, but not differentiated */
} tow_check_input;

typedef struct tow_check_case {
    const char *label;             /* for messages, or NULL */
    const tow_check_input *inputs; /* [n_inputs of the primitive] */
    const void *attributes;        /* of the primitive, or NULL if it has none */
    double tolerance;              /* factor on the tolerances of values and gradients; 0: 1 */
    bool first_order;              /* derivatives of derivatives are not checked: the rules have none */
} tow_check_case;

/* A failure that the check found. Texts live until the function that gets it returns. */
typedef struct tow_check_failure {
    const char *primitive;
    size_t index;      /* of the case */
    const char *label; /* of the case, or NULL */
    tow_check_kind kind;
    const char *text; /* all that is known, one or more lines */
    size_t result;    /* where a difference is about one element: which result, or which operand of a gradient, */
    int64_t element;  /* its row-major index, or -1: it is about no element; */
    double expected, found;
} tow_check_failure;

typedef struct tow_check_options {
    size_t size TOW__SIZE(tow_check_options); /* set by TOW_CHECK_OPTIONS */
    unsigned without;                         /* bits 1 << kind of checks to leave out */
    /* Gets every failure; NULL: none. The first one is the context's error text in any case. */
    void (*report)(const tow_check_failure *failure, void *user);
    void *user;
} tow_check_options;
#define TOW_CHECK_OPTIONS(...) TOW__OPTIONS(tow_check_options, __VA_ARGS__)

typedef struct tow_check_summary {
    size_t cases, failures;
    unsigned done; /* bits 1 << kind of checks that compared something: a primitive without a reference and without a
                      decomposition, for instance, has no TOW_CHECK_VALUE */
} tow_check_summary;

/* Checks the primitive in n cases. options and summary may be NULL.
 *
 * Values are compared with a tolerance of 1e-5 (f64: 1e-12) of the largest element of a result. Tangents are compared
 * with central differences, in f64 if the type rule takes f64, else in f32 with the tolerance that differences in f32
 * have. Everything else is compared bit by bit, except where the definition says `varies`.
 *
 * Errors: TOW_CHECK_FAILED if a check fails; the text is that of the first failure, and says how many there are.
 * TOW_INVALID_ARGUMENT for a primitive of another context or a case that its type rule refuses. TOW_OUT_OF_MEMORY. */
TOW_API tow_status tow_primitive_check(tow_context *context, const tow_primitive *primitive, size_t n,
                                       const tow_check_case *cases, const tow_check_options *options,
                                       tow_check_summary *summary);

#ifdef __cplusplus
}
#endif
#endif

/* Checks of primitives: one case goes through the properties that every primitive must have. tests/property runs them
 * for the primitives of the library, tow_primitive_check for those of users.
 *
 *   values.c        drawing inputs, the graph of a case, running graphs on arrays of double
 *   value.c         value against the reference, text, dead code and common subexpressions
 *   derivatives.c   forward mode against differences, reverse mode against forward mode, second derivatives
 *   batching.c      a batched graph against the graph on each row
 *   tiling.c        blocks of results, and parts of sums, against the whole
 *   round_trip.c    what is printed is read as the same graph
 *   failing.c       allocations fail in turn
 *   sizes.c         axes of no elements
 *   kernel.c        the kernel of a defined primitive, called by itself: strides, threads, what it writes
 *   primitive_check.c   tow_primitive_check
 *
 * Element type TOW_F64 in a case stands for "float": the case runs in f64 and in f32. Inputs are drawn
 * deterministically and are exact in f32. Memory comes from the context and may run out, which ends the checks. */
#ifndef TOW_SRC_CHECK_H
#define TOW_SRC_CHECK_H

#include <stdio.h>

#include "src/graph/primitive.h"
#include "tow/check.h"

enum {
    TOW__CHECK_IN = 16,
    TOW__CHECK_OUT = 16,
    TOW__CHECK_ARRAYS = 2 * TOW__CHECK_IN + 2 * TOW__CHECK_OUT
};

typedef struct tow__check_input {
    tow_dtype dtype;
    int rank;
    int64_t dims[TOW_MAX_RANK];
    double low, high; /* both 0: floats from [-1, 1), integers from {0, 1, 2}, bool either; integers include high */
    bool statistic;   /* float, in f32 where the others have 16 bits */
    bool constant; /* float, but not differentiated: its derivative is zero by definition or depends on other inputs */
} tow__check_input;

typedef struct tow__check_case {
    const char *primitive; /* whose case this is */
    const char *label;     /* what is special about it, or NULL */
    const void *params;
    tow__check_input in[TOW__CHECK_IN];
    size_t n_in;
    size_t n_out; /* 0: 1 */
    /* Exactly one of these gives the value. unary, binary: of each element. */
    double (*unary)(double x);
    double (*binary)(double x, double y);
    void (*value)(const struct tow__check_case *c, double *const *in, double *const *out);
    /* NULL, or changes drawn inputs so that they fit together (mean and rstd of x). */
    void (*prepare)(const struct tow__check_case *c, double *const *in);
    /* NULL: binds `primitive` with params. Else records the case itself (regions); user is the case. */
    void (*build)(tow_trace *trace, const tow_value *in, tow_value *out, const struct tow__check_case *c);
    bool first_only;    /* further outputs have no reader, as in use: composites then differentiate as fused pairs */
    bool reverse_only;  /* forward mode of it is an error; that of its gradient is not */
    bool no_derivative; /* no second derivatives either: piecewise constant results, or drawn bits */
    double loose;       /* factor on the tolerances of values; 0: 1 */
    double loose_f64;   /* factor for f64 alone; 0: 1 */
    const tow_check_case *user;   /* what it was made of, or NULL */
    const tow_primitive *defined; /* the primitive, if a user has defined it: tables of the library do not have it */
    bool fixed;                   /* its inputs fit no other shapes */
    unsigned floats;              /* bits 1 << dtype of the float types that it runs in; 0: f32 and f64 */
} tow__check_case;

/* n inputs or outputs as arrays of double; arrays[i] has counts[i] elements. */
typedef struct tow__check_values {
    tow_context *ctx;
    size_t n;
    double *arrays[TOW__CHECK_ARRAYS];
    int64_t counts[TOW__CHECK_ARRAYS];
} tow__check_values;

/* One run of checks. */
typedef struct tow__check {
    tow_context *ctx;
    const tow__check_case *c;
    size_t index;        /* of the case */
    tow_check_kind kind; /* of the check that runs */
    unsigned done;       /* bits of those that compared something */
    int failures;
    FILE *nowhere;                    /* takes what is printed while allocations fail; NULL: nothing is printed */
    size_t n_wrt, wrt[TOW__CHECK_IN]; /* by what graphs are differentiated then; none: by all float inputs */
    bool first_order;                 /* derivatives of derivatives are left out */
    bool varies;                      /* nothing is compared bit by bit */
    bool rounds_apart;                /* rows and blocks need not have the bits of the whole */
    void (*report)(const tow_check_failure *failure, void *user);
    void *user;
} tow__check;

/* Counts and reports a failure; element -1: of no element. The text says all. */
__attribute__((format(printf, 2, 3))) void tow__check_fail(tow__check *k, const char *format, ...);
__attribute__((format(printf, 6, 7))) void tow__check_fail_at(tow__check *k, size_t result, int64_t element,
                                                              double expected, double found, const char *format, ...);

/* ---- values.c ---------------------------------------------------------------------------------------------------- */

const tow_primitive *tow__check_primitive(const tow__check_case *c);
int64_t tow__check_count(const tow__check_input *in);
/* True if the case runs with these floats. */
bool tow__check_runs(const tow__check_case *c, tow_dtype floats);
/* The widest float type that the case runs in. */
tow_dtype tow__check_widest(const tow__check_case *c);
/* The type of an input, if floats are `floats`. */
tow_type tow__check_input_type(const tow__check_case *c, size_t i, tow_dtype floats);
uint64_t tow__check_random(uint64_t *state); /* splitmix64 */
double tow__check_unit(uint64_t *state);     /* [-1, 1), exact in f32 */

/* One more array of zeros; NULL: out of memory. */
double *tow__check_array(tow__check_values *values, int64_t count);
tow__check_values tow__check_no_values(const tow__check *k);
void tow__check_free(tow__check_values *values);
/* Functions that return bool return false for an error: out of memory, which is in the context, or what they report. */
bool tow__check_copy(const tow__check_values *from, tow__check_values *values); /* appends */
/* Random arrays as large as those that `which` lists. */
bool tow__check_random_like(const tow__check_values *like, const size_t *which, size_t n, uint64_t seed,
                            tow__check_values *values);
bool tow__check_draw(tow__check *k, const tow__check_case *c, uint64_t row, tow__check_values *values);
/* Adds weights for the further inputs of the scalar graph. */
bool tow__check_draw_weights(const tow_graph *scalar, tow__check_values *values);

/* The case as a graph, TOW_F64 inputs replaced by `floats`. NULL, with the error reported. */
tow_graph *tow__check_graph(tow__check *k, const tow__check_case *c, tow_dtype floats);
/* The same, followed by a scalar: the sum over all float outputs of (output * weight), the weights being further
 * inputs. */
tow_graph *tow__check_scalar_graph(tow__check *k, const tow__check_case *c, tow_dtype floats);
/* Runs graph on inputs (converted to its types) and converts the results to double. The error is reported. */
bool tow__check_evaluate(tow__check *k, const tow_graph *graph, const tow__check_values *inputs,
                         tow__check_values *outputs);
/* Row-major elements of this type from doubles, and back. */
void tow__check_to_elements(const double *from, tow_type type, void *to);
void tow__check_from_elements(const void *from, tow_type type, double *to);
bool tow__check_has_float_output(const tow_graph *graph);

/* ---- properties -------------------------------------------------------------------------------------------------- */

/* |found - expected| <= tolerance * (|expected| + largest |expected|): rounding of sums is relative to their terms. NaN
 * equals NaN. *where: the first element that is not close. */
bool tow__check_close(const double *found, const double *expected, int64_t n, double tolerance, int64_t *where);
/* Index of the first of n elements with other bits or, if the primitive varies, that is not close; -1: none. */
int64_t tow__check_difference(const tow__check *k, const double *found, const double *expected, int64_t n);
/* The largest finite |x|. */
double tow__check_magnitude(const double *x, int64_t n);
/* Inputs that are differentiated, by index; returns how many. */
size_t tow__check_differentiable(const tow__check_case *c, size_t wrt[TOW__CHECK_IN]);

/* A graph is well-formed, and the same when it was printed and parsed. */
void tow__check_text(tow__check *k, const tow_graph *graph, const char *what);
/* Cleaning passes give the very same bits. */
void tow__check_cleaning(tow__check *k, const tow_graph *graph, const tow__check_values *inputs,
                         const tow__check_values *expected, const char *what);
void tow__check_value(tow__check *k, tow_dtype floats, const tow__check_values *inputs);
void tow__check_derivatives(tow__check *k, const tow__check_values *inputs);
void tow__check_batching(tow__check *k);
/* The primitive of the case with another batching rule; NULL: the default. */
void tow__check_batching_rule(tow__check *k, void (*rule)(tow__batch *r));
/* Adds to *axes how many axes of how many shapes passed through. claim: takes the first axis for one that passes
 * through, whatever the rule says, in a larger shape. */
void tow__check_tiling(tow__check *k, bool claim, size_t *axes);
/* The same for axes of operands over which the results are sums. claim: takes every axis of the first operand for
 * one. */
void tow__check_sums(tow__check *k, bool claim, size_t *axes);
void tow__check_round_trips(tow__check *k);
void tow__check_failing(tow__check *k);
/* Axes of no elements. Sets the bit in k->done if the type rule takes any. */
void tow__check_sizes(tow__check *k, tow_dtype floats);
/* The kernel of a primitive that was defined, by itself. dtype: of floats. */
void tow__check_kernel(tow__check *k, tow_dtype floats);

#endif

/* Property tests: cases for every primitive, and the checks that each of them goes through.
 *
 *   cases_*.c           tables of cases: shapes, parameters, ranges, and the value in double precision, written out
 *   run.c               arrays and evaluation            checks.c   the properties
 *   tiling.c            the property of tiling rules
 *   batching.c          the property of batching rules
 *   round_trip.c        text of what is made of cases, printed and read
 *   bits.c              hashes of what cases give, to compare builds
 *   test_primitives.c   walks the table of primitives; with --coverage only says whether each has a case, which the
 * build of this test asks for: a primitive without cases does not build
 *
 * To add a case, add a row to the table of its family. Element type TOW_F64 in a case stands for "float": the case runs
 * in f64 and in f32. Inputs are drawn deterministically and are exact in f32.
 */
#ifndef TOW_TESTS_PROPERTY_H
#define TOW_TESTS_PROPERTY_H

#include "src/graph/primitive.h"
#include "tow/tow.h"

enum {
    MAX_IN = 10,
    MAX_OUT = 6
};

typedef struct property_input {
    tow_dtype dtype;
    int rank;
    int64_t dims[4];
    double low, high; /* both 0: floats from [-1, 1), integers from {0, 1, 2}, bool either; integers include high */
    bool constant; /* float, but not differentiated: its derivative is zero by definition or depends on other inputs */
} property_input;

typedef struct property_case {
    const char *primitive; /* whose case this is */
    const char *label;     /* what is special about it, or NULL */
    const void *params;
    property_input in[MAX_IN];
    size_t n_in;
    size_t n_out; /* 0: 1 */
    /* Exactly one of these gives the value. unary, binary: of each element. */
    double (*unary)(double x);
    double (*binary)(double x, double y);
    void (*value)(const struct property_case *c, double *const *in, double *const *out);
    /* NULL, or changes drawn inputs so that they fit together (mean and rstd of x). */
    void (*prepare)(const struct property_case *c, double *const *in);
    /* NULL: binds `primitive` with params. Else records the case itself (regions); user is the case. */
    void (*build)(tow_trace *trace, const tow_value *in, tow_value *out, const struct property_case *c);
    bool first_only;    /* further outputs have no reader, as in use: composites then differentiate as fused pairs */
    bool reverse_only;  /* forward mode of it is an error; that of its gradient is not */
    bool no_derivative; /* no second derivatives either: piecewise constant results, or drawn bits */
    double loose;       /* factor on the tolerances of values; 0: 1 */
    double loose_f64;   /* factor for f64 alone; 0: 1 */
} property_case;

typedef struct property_table {
    const property_case *cases;
    size_t count;
} property_table;

#define TABLE(array)                                                                                                   \
    {                                                                                                                  \
        array, sizeof array / sizeof *(array)                                                                          \
    }

extern const property_table elementwise_cases, integer_cases, product_cases, reduction_cases, move_cases, random_cases,
    region_cases, composite_cases, companion_cases, indexing_cases, window_cases, custom_cases;

/* Shapes of inputs. */
#define S0             .rank = 0
#define S1(a)          .rank = 1, .dims = {a}
#define S2(a, b)       .rank = 2, .dims = {a, b}
#define S3(a, b, c)    .rank = 3, .dims = {a, b, c}
#define S4(a, b, c, d) .rank = 4, .dims = {a, b, c, d}
#define INTS(...)                                                                                                      \
    {                                                                                                                  \
        .n = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .v = { __VA_ARGS__ }                                  \
    }

/* Elements of an input. */
int64_t property_count(const property_input *in);
/* Axes before, at and after `axis`: element (i, j, k) is at (i * axis size + j) * after + k. */
typedef struct property_axis {
    int64_t before, size, after;
} property_axis;
property_axis property_axis_of(const property_input *in, int64_t axis);

/* References of composites, which those of their companions differentiate (cases_composite.c). */
void property_layer_norm(const property_case *c, double *const *in,
                         double *const *out); /* x, scale, bias -> y, mean, rstd */
void property_rms_norm(const property_case *c, double *const *in, double *const *out); /* x, scale -> y, rstd */
void property_attention(const property_case *c, double *const *in,
                        double *const *out); /* q, k, v [, mask] -> out, lse */
void property_linear_cross_entropy(const property_case *c, double *const *in, double *const *out);
void property_cross_entropy(const property_case *c, double *const *in,
                            double *const *out); /* logits, labels -> loss, lse */

/* ---- run.c ------------------------------------------------------------------------------------------------------ */

/* n inputs or outputs as double arrays; arrays[i] has counts[i] elements. */
typedef struct property_values {
    size_t n;
    double *arrays[2 * MAX_IN + 2 * MAX_OUT];
    int64_t counts[2 * MAX_IN + 2 * MAX_OUT];
} property_values;

void property_draw(const property_case *c, property_values *values); /* the case's inputs */
/* The same for a row of a batch; row 0 is the case's. */
void property_draw_row(const property_case *c, uint64_t row, property_values *values);
void property_free(property_values *values);
uint64_t property_random(uint64_t *state);
double property_unit(uint64_t *state); /* [-1, 1), exact in f32 */

/* The case as a graph, TOW_F64 inputs replaced by `floats`. NULL with the error printed on failure. */
tow_graph *property_graph(tow_context *context, const property_case *c, tow_dtype floats);
/* The same, followed by a scalar: the sum over all differentiable outputs of (output * weight), the weights being
 * further inputs. */
tow_graph *property_scalar_graph(tow_context *context, const property_case *c, tow_dtype floats);
/* Adds weights for those further inputs to the values of the case's own. */
void property_draw_weights(const tow_graph *scalar, property_values *values);
/* Runs graph on inputs (converted to its types) and converts the results to double; false with the error printed. */
bool property_evaluate(const tow_graph *graph, const property_values *inputs, property_values *outputs);

/* ---- checks.c
 * -------------------------------------------------------------------------------------------------------- */

/* Inputs that are differentiated, by index; returns how many. */
size_t property_differentiable(const property_case *c, size_t wrt[MAX_IN]);
/* Runs all checks on a case and prints what fails. Returns the number of failures. */
int property_check(tow_context *context, const property_case *c);
/* Prints hashes of the value of a case and, where there is one, of its gradient (bits.c). Returns the number of failures. */
int property_bits(tow_context *context, const property_case *c, tow_dtype floats);
/* Whether a graph is well-formed, and the same when it was printed and parsed: the number of failures, which are printed. */
int property_check_text(const tow_graph *graph, const char *what);
/* Whether the batched case and its derivatives are the case on each row (batching.c). context: with portable bits. Returns
 * the number of failures. */
int property_check_batching(tow_context *context, const property_case *c);
/* The case with another batching rule: true if that is found to be wrong. */
bool property_finds_wrong_batching(tow_context *context, const property_case *c, void (*rule)(tow__batch *r));
/* Whether blocks have the bits of the whole where the tiling rule says so (tiling.c). Adds to *axes how many axes of how
 * many shapes passed through. Returns the number of failures. */
int property_check_tiling(tow_context *context, const property_case *c, size_t *axes);
/* The same for axis 0 as if it passed through, from axis 0 of every operand: true if that is found to be wrong. */
bool property_finds_wrong_tiling(tow_context *context, const property_case *c);
/* What is printed reads as the same graph (round_trip.c): the number of failures, which are printed. */
int property_check_round_trips(tow_context *context, const property_case *c);
/* Allocations failing in turn: the number of failures, which are printed. */
int property_check_failing(const property_case *c);

#endif

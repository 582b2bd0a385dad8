/* Property tests: cases for every primitive, and the checks that each of them goes through.
 *
 *   cases_*.c           tables of cases: shapes, parameters, ranges, and the value in double precision, written out
 *   run.c               all checks on a case; the checks themselves are in src/check
 *   halves.c            cases in floats of 16 bits
 *   bits.c              hashes of what cases give, to compare builds
 *   test_primitives.c   walks the table of primitives; with --coverage only says whether each has a case, which the
 * build of this test asks for: a primitive without cases does not build
 *
 * To add a case, add a row to the table of its family. Element type TOW_F64 in a case stands for "float": the case runs
 * in f64 and in f32, and in bf16 and f16 as f32 with its results rounded. Inputs are drawn deterministically and are
 * exact in f32.
 */
#ifndef TOW_TESTS_PROPERTY_H
#define TOW_TESTS_PROPERTY_H

#include "src/check/check.h"
#include "tow/tow.h"

enum {
    MAX_IN = TOW__CHECK_IN,
    MAX_OUT = TOW__CHECK_OUT
};

typedef tow__check_input property_input;
typedef tow__check_case property_case;

typedef struct property_table {
    const property_case *cases;
    size_t count;
} property_table;

#define TABLE(array)                                                                                                   \
    {                                                                                                                  \
        array, sizeof array / sizeof *(array)                                                                          \
    }

extern const property_table elementwise_cases, integer_cases, product_cases, reduction_cases, move_cases, random_cases,
    region_cases, composite_cases, companion_cases, indexing_cases, window_cases, custom_cases, host_cases,
    quantized_cases;

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

/* A run of checks that prints what fails. */
tow__check property_begin(tow_context *context, const property_case *c);
/* Runs all checks on a case but those of tiling rules. portable: a context with portable bits. Returns the number of
 * failures, which are printed. */
int property_check(tow_context *context, tow_context *portable, const property_case *c);
/* The case in a float type of 16 bits, k->c->floats, against itself in f32: values, and gradients (halves.c). */
void property_check_halves(tow__check *k, tow_dtype floats);
/* Prints hashes of the value of a case and, where there is one, of its gradient (bits.c). Returns the number of
 * failures. */
int property_bits(tow_context *context, const property_case *c, tow_dtype floats);

#endif

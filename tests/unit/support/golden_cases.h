/* Cases in a golden file: a function, its inputs, and what JAX gives for its value and gradient. A test program
 * includes this once, after cmocka, with plain_context.h, lists functions and the messages of calls that are refused,
 * and runs the tests golden, failing_allocations and refusals:
 *
 *     #define FUNCTIONS(X) X(sums, 2, tow_add(in[0], in[1]), tow_sub(in[0], in[1]))
 *     GOLDEN_TESTS(FUNCTIONS, "sums.txt")
 *     #define REFUSALS(X) X(sum_of_null, tow_add(in[0], in[1]), "what the message says")
 *     REFUSAL_TEST(REFUSALS, 0, NULL)
 *
 * Programs whose functions are written by hand call the checks at the end of this file with a table of them.
 *
 * The file:
 *
 *   case NAME TOLERANCE          the function; 0: bits, and signs of zeros
 *   in DTYPE RANK DIMS... VALUES...
 *   out DTYPE RANK DIMS... VALUES...
 *   grad INPUT DTYPE RANK DIMS... VALUES...     of the sum of all float outputs times golden_weight(place)
 *   end
 *
 * tests/oracle/golden_cases.py writes them. Numbers may be off by TOLERANCE times the larger of 1 and the number. */
#ifndef TOW_TESTS_GOLDEN_CASES_H
#define TOW_TESTS_GOLDEN_CASES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/elements.h"
#include "tow/tow.h"

/* A function of n results, which the expressions give in order; an expression may write further ones to `out`. */
#define GOLDEN_FUNCTION(name, n, ...)                                                                                  \
    static void record_##name(tow_trace *trace, const tow_value *in, tow_value *out, void *user)                       \
    {                                                                                                                  \
        (void)trace, (void)in, (void)user;                                                                             \
        const tow_value y[] = {__VA_ARGS__};                                                                           \
        memcpy(out, y, (sizeof y / sizeof *y < n ? sizeof y / sizeof *y : n) * sizeof *y);                             \
    }
#define GOLDEN_ROW(name, n, ...)                 {#name, record_##name, n},
#define REFUSED_FUNCTION(name, expression, says) GOLDEN_FUNCTION(refuse_##name, 1, expression)
#define REFUSAL_ROW(name, expression, says)      {#name, record_refuse_##name, says},

/* The tests of a list of functions: `golden` compares them with the cases of the golden file, `failing_allocations`
 * records each with every allocation failing in turn. */
#define GOLDEN_TESTS(FUNCTIONS, file)                                                                                  \
    FUNCTIONS(GOLDEN_FUNCTION)                                                                                         \
    static const golden_function functions[] = {FUNCTIONS(GOLDEN_ROW)};                                                \
    static const char cases[] = TOW_TEST_DATA "/oracle/golden/" file;                                                  \
    static void golden(void **state)                                                                                   \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        check_golden_cases(ctx, cases, functions, sizeof functions / sizeof *functions);                               \
    }                                                                                                                  \
    static void failing_allocations(void **state)                                                                      \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        check_golden_failing(ctx, cases, functions, sizeof functions / sizeof *functions);                             \
    }
/* The test `refusals` of a list of calls that cannot be traced with inputs of these types. */
#define REFUSAL_TEST(REFUSALS, n_in, types)                                                                            \
    REFUSALS(REFUSED_FUNCTION)                                                                                         \
    static void refusals(void **state)                                                                                 \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        static const refusal table[] = {REFUSALS(REFUSAL_ROW)};                                                        \
        check_refusals(ctx, table, sizeof table / sizeof *table, n_in, types);                                         \
    }

typedef struct golden_function {
    const char *name;
    tow_function record;
    size_t n_out;
} golden_function;

/* A function that cannot be traced: the message must contain `says`. */
typedef struct refusal {
    const char *name;
    tow_function record;
    const char *says;
} refusal;

enum {
    GOLDEN_ARRAYS = 9
};

typedef struct golden_case {
    char name[64];
    double tolerance;
    size_t n_in, n_out, n_grad, wrt[GOLDEN_ARRAYS];
    tow_array *in[GOLDEN_ARRAYS], *out[GOLDEN_ARRAYS], *grad[GOLDEN_ARRAYS];
    const golden_function *function;
} golden_case;

static double golden_weight(int64_t k) { return (double)((k * 7 + 3) % 11 - 5) * 0.25; }

static void golden_word(FILE *file, char word[64])
{
    if (fscanf(file, "%63s", word) != 1) fail_msg("the golden file ends early");
}

static tow_array *golden_read_array(tow_context *context, FILE *file)
{
    char word[64];
    tow_type type = {0};
    tow_array *array = NULL;
    golden_word(file, word);
    while ((int)type.dtype < TOW_DTYPE_END && strcmp(word, tow_dtype_name(type.dtype)) != 0) type.dtype++;
    assert_true((int)type.dtype < TOW_DTYPE_END);
    assert_int_equal(fscanf(file, "%d", &type.rank), 1);
    for (int d = 0; d < type.rank; d++) {
        golden_word(file, word);
        type.dims[d] = strtoll(word, NULL, 10);
    }
    assert_int_equal(tow_array_create(context, type, &array), TOW_OK);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        golden_word(file, word);
        if (type.dtype == TOW_I64)
            ((int64_t *)tow_array_data(array))[i] = strtoll(word, NULL, 10);
        else if (type.dtype == TOW_U64)
            ((uint64_t *)tow_array_data(array))[i] = strtoull(word, NULL, 10);
        else
            set_array_element(array, i, strtod(word, NULL));
    }
    return array;
}

/* False at the end of the file. */
static bool golden_read(tow_context *context, FILE *file, golden_case *c)
{
    char word[64];
    *c = (golden_case){.n_in = 0};
    do
        if (fscanf(file, "%63s", word) != 1) return false;
    while (word[0] == '#' && fscanf(file, "%*[^\n]") >= 0);
    assert_string_equal(word, "case");
    golden_word(file, c->name);
    golden_word(file, word);
    c->tolerance = strtod(word, NULL);
    for (golden_word(file, word); strcmp(word, "end") != 0; golden_word(file, word)) {
        if (strcmp(word, "in") == 0)
            c->in[c->n_in++] = golden_read_array(context, file);
        else if (strcmp(word, "out") == 0)
            c->out[c->n_out++] = golden_read_array(context, file);
        else {
            assert_string_equal(word, "grad");
            assert_int_equal(fscanf(file, "%zu", &c->wrt[c->n_grad]), 1);
            c->grad[c->n_grad++] = golden_read_array(context, file);
        }
        assert_true(c->n_in < GOLDEN_ARRAYS && c->n_out < GOLDEN_ARRAYS && c->n_grad < GOLDEN_ARRAYS);
    }
    return true;
}

/* in -> the sum of the outputs of a case, weighted */
static void golden_scalar(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const golden_case *c = user;
    tow_value y[GOLDEN_ARRAYS] = {{0}};
    c->function->record(trace, in, y, NULL);
    for (size_t i = 0; i < c->function->n_out; i++) {
        tow_type type = tow_value_type(y[i]);
        if (tow_is_null(y[i]) || !tow_dtype_is_float(type.dtype)) continue;
        const int64_t count = tow_type_element_count(type);
        tow_array *weights = NULL;
        assert_int_equal(tow_array_create(tow_trace_context(trace), type, &weights), TOW_OK);
        for (int64_t k = 0; k < count; k++) set_array_element(weights, k, golden_weight(k));
        tow_value term = tow_reduce_sum(tow_mul(y[i], tow_constant(trace, weights)), 0, NULL);
        out[0] = tow_is_null(out[0]) ? term : tow_add(out[0], term);
        tow_array_release(weights);
    }
}

static int golden_compare(const golden_case *c, const char *what, size_t which, const tow_array *found,
                          const tow_array *expected, bool signs)
{
    char have[96], want[96];
    tow_type_text(tow_array_type(found), have, sizeof have);
    tow_type_text(tow_array_type(expected), want, sizeof want);
    if (strcmp(have, want) != 0)
        return printf("%s, %s %zu: found %s, expected %s\n", c->name, what, which, have, want), 1;
    const tow_type type = tow_array_type(found);
    const size_t bytes = tow_dtype_size(type.dtype);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        const char *a = tow_array_data(found), *b = tow_array_data(expected);
        if (bytes == 8 && tow_dtype_is_integer(type.dtype) &&
            memcmp(a + (size_t)i * bytes, b + (size_t)i * bytes, bytes))
            return printf("%s, %s %zu of %s, element %lld: other bits\n", c->name, what, which, want, (long long)i), 1;
        const double f = array_element(found, i), e = array_element(expected, i);
        const double size = fabs(e) > 1 ? fabs(e) : 1;
        if (isnan(e) ? isnan(f) : f == e && (!signs || c->tolerance > 0 || !signbit(f) == !signbit(e))) continue;
        if (fabs(f - e) <= c->tolerance * size) continue;
        return printf("%s, %s %zu of %s, element %lld: found %.17g, expected %.17g\n", c->name, what, which, want,
                      (long long)i, f, e),
               1;
    }
    return 0;
}

static int golden_check(tow_context *context, const golden_case *c)
{
    tow_type types[GOLDEN_ARRAYS];
    tow_array *found[GOLDEN_ARRAYS] = {NULL};
    tow_graph *graph = NULL, *scalar = NULL, *gradient = NULL;
    int failures = 0;
    for (size_t i = 0; i < c->n_in; i++) types[i] = tow_array_type(c->in[i]);
    if (c->n_out != c->function->n_out)
        failures += printf("%s: %zu results, %zu expected\n", c->name, c->function->n_out, c->n_out) > 0;
    else if (tow_trace_function(context, c->function->record, NULL, c->n_in, types, NULL, c->n_out, &graph) != TOW_OK ||
             tow_graph_check(graph) != TOW_OK || tow_evaluate(graph, c->in, found) != TOW_OK)
        failures += printf("%s: %s\n", c->name, tow_context_error(context)) > 0;
    else
        for (size_t i = 0; i < c->n_out; i++) {
            failures += golden_compare(c, "result", i, found[i], c->out[i], true);
            tow_array_release(found[i]);
            found[i] = NULL;
        }
    if (failures == 0 && c->n_grad > 0) {
        if (tow_trace_function(context, golden_scalar, (void *)c, c->n_in, types, NULL, 1, &scalar) != TOW_OK ||
            tow_grad(scalar, c->n_grad, c->wrt, false, &gradient) != TOW_OK || tow_graph_check(gradient) != TOW_OK ||
            tow_evaluate(gradient, c->in, found) != TOW_OK)
            failures += printf("gradient of %s: %s\n", c->name, tow_context_error(context)) > 0;
        else
            for (size_t i = 0; i < c->n_grad; i++) {
                failures += golden_compare(c, "gradient", c->wrt[i], found[i], c->grad[i], false);
                tow_array_release(found[i]);
            }
    }
    tow_graph_release(graph);
    tow_graph_release(scalar);
    tow_graph_release(gradient);
    return failures;
}

static void golden_free(golden_case *c)
{
    for (size_t i = 0; i < GOLDEN_ARRAYS; i++) {
        tow_array_release(c->in[i]);
        tow_array_release(c->out[i]);
        tow_array_release(c->grad[i]);
    }
}

static const golden_function *golden_find(const golden_function *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

/* ---- the checks -------------------------------------------------------------------------------------------------- */

/* Every case of the file has a function in the table, and every function has a case. */
static inline void check_golden_cases(tow_context *context, const char *path, const golden_function *table, size_t n)
{
    FILE *file = fopen(path, "r");
    golden_case c;
    int failures = 0;
    bool *seen = calloc(n, sizeof *seen);
    assert_non_null(file);
    assert_non_null(seen);
    while (golden_read(context, file, &c)) {
        c.function = golden_find(table, n, c.name);
        if (c.function) seen[c.function - table] = true;
        failures += c.function ? golden_check(context, &c) : printf("no function '%s'\n", c.name) > 0;
        golden_free(&c);
    }
    for (size_t i = 0; i < n; i++)
        if (!seen[i]) failures += printf("the golden file has no case of '%s'\n", table[i].name) > 0;
    free(seen);
    fclose(file);
    assert_int_equal(failures, 0);
}

/* Tracing the function with every allocation failing in turn: each failure is reported and leaves nothing behind. */
static int golden_check_failing(const golden_case *c)
{
    counting count;
    const tow_context_options options = counting_options(&count, -1);
    tow_context *context = NULL;
    tow_type types[GOLDEN_ARRAYS];
    tow_status status = TOW_OUT_OF_MEMORY;
    int failures = 0;
    for (size_t i = 0; i < c->n_in; i++) types[i] = tow_array_type(c->in[i]);
    assert_int_equal(tow_context_create(&options, &context), TOW_OK);
    tow_graph *first = NULL;
    failures +=
        tow_trace_function(context, c->function->record, NULL, c->n_in, types, NULL, c->n_out, &first) != TOW_OK;
    tow_graph_release(first);
    const long blocks = count.blocks; /* what the context keeps of a trace that ended is there */
    for (long k = 0; status != TOW_OK && failures == 0; k++) {
        tow_graph *graph = NULL;
        count.calls = 0;
        count.fail_at = k;
        status = tow_trace_function(context, c->function->record, NULL, c->n_in, types, NULL, c->n_out, &graph);
        count.fail_at = -1;
        if (status != TOW_OK && (status != TOW_OUT_OF_MEMORY || graph || count.blocks != blocks))
            failures += printf("%s, allocation %ld fails: %s, '%s', %ld blocks leak\n", c->name, k,
                               tow_status_text(status), tow_context_error(context), count.blocks - blocks) > 0;
        tow_graph_release(graph);
    }
    tow_context_free(context);
    return failures + (count.blocks != 0 || count.wrong_sizes != 0);
}

/* The same for the functions of all cases. */
static inline void check_golden_failing(tow_context *context, const char *path, const golden_function *table, size_t n)
{
    FILE *file = fopen(path, "r");
    golden_case c;
    int failures = 0;
    assert_non_null(file);
    while (golden_read(context, file, &c)) {
        c.function = golden_find(table, n, c.name);
        assert_non_null(c.function);
        failures += golden_check_failing(&c);
        golden_free(&c);
    }
    fclose(file);
    assert_int_equal(failures, 0);
}

/* Each function, of n_in inputs, is refused with the message it names. */
static inline void check_refusals(tow_context *context, const refusal *table, size_t n, size_t n_in,
                                  const tow_type *types)
{
    for (size_t i = 0; i < n; i++) {
        tow_graph *graph = NULL;
        tow_context_clear_error(context);
        assert_int_not_equal(tow_trace_function(context, table[i].record, NULL, n_in, types, NULL, 1, &graph), TOW_OK);
        assert_null(graph);
        if (!strstr(tow_context_error(context), table[i].says))
            fail_msg("%s: expected '%s', found '%s'", table[i].name, table[i].says, tow_context_error(context));
    }
}

#endif

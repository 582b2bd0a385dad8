/* Cases of layers: a file of golden values against Flax, and the same bits under remat, vmap and scan. A test program
 * includes this once, after cmocka and a context, and has a list of cases: a function that calls use(user, name, model,
 * type of the input) for the case of a name, or for every case (NULL), and returns false if there is none.
 *
 * A line of the golden file: case dtype what shape values... tests/oracle/flax_catalogue.py writes them and says what
 * is what. */
#ifndef TOW_TESTS_CATALOGUE_H
#define TOW_TESTS_CATALOGUE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/fractions.h"
#include "tests/unit/support/shape_text.h"
#include "tow/tow.h"

/* The layer by itself has the shape of its input and no mask: it can be stacked. */
typedef void (*case_use)(void *user, const char *name, const tow_module *model, tow_type input);

typedef bool (*case_list)(const char *name, tow_dtype dtype, case_use use, void *user);

/* ---- running ----------------------------------------------------------------------------------------------------- */

enum {
    MOST = 192
};
/* The results of one call of a model in training. */
typedef struct results {
    tow_params *params, *state;
    size_t n;
    tow_array *arrays[MOST]; /* loss, output, new variables, gradients of parameters and of the input */
    tow_array *eval;         /* the output with the new variables */
} results;

static void evaluate_again(results *r, const tow_module *model, tow_type type, tow_array *x)
{
    size_t n = tow_params_count(r->params), n_state = tow_params_count(r->state);
    tow_model_options options = TOW_MODEL_OPTIONS(.state = r->state, .deterministic = true);
    tow_array *in[MOST];
    tow_graph *graph;
    OK(tow_model_forward_graph(model, r->params, 1, &type, &options, &graph));
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(r->params, i);
    for (size_t i = 0; i < n_state; i++) in[n + i] = r->arrays[2 + i];
    in[n + n_state] = x;
    OK(tow_evaluate(graph, in, &r->eval));
    tow_graph_release(graph);
}

static void compute(results *r, const tow_module *model, tow_type type)
{
    static const char *const every[] = {TOW_EVERY_COLLECTION, NULL};
    OK(tow_model_init_with(ctx, model, 3, 1, &type, NULL, &r->params, &r->state));
    size_t n = tow_params_count(r->params), n_state = tow_params_count(r->state), wrt[MOST], n_wrt = 0;
    tow_model_options options = TOW_MODEL_OPTIONS(.state = r->state, .mutable_collections = n_state ? every : NULL);
    tow_graph *loss, *gradient;
    OK(tow_model_loss_graph(model, r->params, 1, &type, 0, NULL, weighted_sum, NULL, 1, &options, &loss));
    for (size_t i = 0; i < n; i++) wrt[n_wrt++] = i;
    wrt[n_wrt++] = n + n_state;
    OK(tow_value_and_grad(loss, n_wrt, wrt, true, &gradient));
    r->n = 2 + n_state + n_wrt;
    tow_array *x = fractions(type, 0), *in[MOST];
    assert_true(r->n <= MOST);
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(r->params, i);
    for (size_t i = 0; i < n_state; i++) in[n + i] = tow_params_array(r->state, i);
    in[n + n_state] = x;
    OK(tow_evaluate(gradient, in, r->arrays));
    if (n_state) evaluate_again(r, model, type, x);
    tow_array_release(x);
    tow_graph_release(loss);
    tow_graph_release(gradient);
}

static void release(results *r)
{
    for (size_t i = 0; i < r->n; i++) tow_array_release(r->arrays[i]);
    tow_array_release(r->eval);
    tow_params_free(r->params);
    tow_params_free(r->state);
    *r = (results){0};
}

/* ---- against Flax and PyTorch ------------------------------------------------------------------------------------ */

static void compute_case(void *user, const char *name, const tow_module *model, tow_type input)
{
    (void)name;
    compute(user, model, input);
}

static tow_array *result_called(const results *r, const char *what)
{
    size_t n_state = tow_params_count(r->state);
    if (strcmp(what, "output") == 0) return r->arrays[1];
    if (strcmp(what, "input") == 0) return r->arrays[r->n - 1];
    if (strcmp(what, "eval") == 0) return r->eval;
    for (size_t i = 0; i < tow_params_count(r->params); i++) {
        if (strncmp(what, "param/", 6) == 0 && strcmp(tow_params_path(r->params, i), what + 6) == 0)
            return tow_params_array(r->params, i);
        if (strncmp(what, "grad/", 5) == 0 && strcmp(tow_params_path(r->params, i), what + 5) == 0)
            return r->arrays[2 + n_state + i];
    }
    for (size_t i = 0; i < n_state; i++)
        if ((strncmp(what, "state/", 6) == 0 || strncmp(what, "start/", 6) == 0) &&
            strcmp(tow_params_path(r->state, i), what + 6) == 0)
            return strncmp(what, "start/", 6) == 0 ? tow_params_array(r->state, i) : r->arrays[2 + i];
    fail_msg("nothing is called %s", what);
    return NULL;
}

/* Every line of the golden file (how many there are). Initial values have the same bits. Sums are taken in other
 * orders: 2e-5 of the largest element of an array in f32, 1e-12 in f64, whose running statistics are f32. */
static int check_golden(const char *golden, case_list with_case)
{
    char path[256];
    snprintf(path, sizeof path, TOW_TEST_DATA "/oracle/golden/%s", golden);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char name[64], dtype[8], what[128], shape[128], found[128], last[80] = "", now[80];
    int lines = 0;
    results r = {0};
    while (fscanf(file, "%63s %7s %127s %127s", name, dtype, what, shape) == 4) {
        bool is_double = strcmp(dtype, "f64") == 0;
        snprintf(now, sizeof now, "%s %s", name, dtype);
        if (strcmp(now, last) != 0) {
            release(&r);
            if (!with_case(name, is_double ? TOW_F64 : TOW_F32, compute_case, &r)) fail_msg("no case %s", name);
            strcpy(last, now);
        }
        tow_array *array = result_called(&r, what);
        if (strcmp(shape_text(tow_array_type(array), found), shape) != 0)
            fail_msg("%s %s %s: expected the shape %s, found %s", name, dtype, what, shape, found);
        bool exact = strncmp(what, "param/", 6) == 0 || strncmp(what, "start/", 6) == 0;
        double largest = 1, error = 0, expected;
        for (int64_t i = 0; i < tow_type_element_count(tow_array_type(array)); i++) {
            assert_int_equal(fscanf(file, "%lf", &expected), 1);
            if (exact && (float)expected != (float)element(array, i))
                fail_msg("%s %s %s[%d]: expected %.9g, found %.9g", name, dtype, what, (int)i, expected,
                         element(array, i));
            largest = fmax(largest, fabs(expected));
            double difference = fabs(expected - element(array, i));
            if (!(difference <= error)) error = difference; /* a NaN stays */
        }
        double limit = is_double && tow_array_type(array).dtype == TOW_F64 ? 1e-12 : 2e-5;
        if (strcmp(what, "eval") == 0 && is_double) limit = 1e-7; /* by running statistics in f32 */
        if (strstr(name, "weight_norm") || strstr(name, "spectral_norm"))
            limit = 2e-5; /* parameters are normalized in f32 */
        if (!(error <= limit * largest))
            fail_msg("%s %s %s: differs by %g, largest element %g", name, dtype, what, error, largest);
        ++lines;
    }
    assert_true(feof(file));
    fclose(file);
    release(&r);
    return lines;
}

/* ---- the same bits under every wrapping -------------------------------------------------------------------------- */

static void expect_equal(const char *name, const char *where, const results *a, const results *b)
{
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        assert_true(tow_type_equal(tow_array_type(a->arrays[i]), tow_array_type(b->arrays[i])));
        if (memcmp(tow_array_data(a->arrays[i]), tow_array_data(b->arrays[i]),
                   tow_type_bytes(tow_array_type(a->arrays[i]))))
            fail_msg("%s %s: result %zu has other bits", name, where, i);
    }
}

static void check_remat(void *user, const char *name, const tow_module *model, tow_type input)
{
    const tow_policy policies[] = {tow_nothing_saveable(), tow_dots_saveable(), tow_everything_saveable()};
    results plain = {0}, wrapped = {0};
    (void)user;
    compute(&plain, model, input);
    for (int i = 0; i < 3; i++) {
        tow_remat remat = {.module = {&tow_remat_class, sizeof(tow_remat)}, .inner = model, .policy = policies[i]};
        compute(&wrapped, TOW_MODULE(&remat), input);
        expect_equal(name, "in remat", &plain, &wrapped);
        release(&wrapped);
    }
    release(&plain);
}

static bool keeps_its_type(const tow_module *model, tow_type input)
{
    results r = {0};
    compute(&r, model, input);
    bool same = tow_type_equal(tow_array_type(r.arrays[1]), input);
    release(&r);
    return same;
}

/* Parameters and variables of the loop are stacked: [length, ...] beside "0/...", "1/..." */
static void check_scan(void *user, const char *name, const tow_module *model, tow_type input)
{
    int *stacked = user;
    if (!keeps_its_type(model, input)) return;
    ++*stacked;
    tow_remat region = {.module = {&tow_remat_class, sizeof(tow_remat)}, .inner = model};
    tow_scan loop = TOW_SCAN(&region, .length = 2), unrolled = TOW_SCAN(&region, .length = 2, .unrolled = true);
    results a = {0}, b = {0};
    compute(&a, TOW_MODULE(&loop), input);
    compute(&b, TOW_MODULE(&unrolled), input);
    size_t last = a.n - 1, end = b.n - 1;
    if (memcmp(tow_array_data(a.arrays[1]), tow_array_data(b.arrays[1]), tow_type_bytes(input)) ||
        memcmp(tow_array_data(a.arrays[last]), tow_array_data(b.arrays[end]), tow_type_bytes(input)))
        fail_msg("%s in a scan: output or gradient has other bits than unrolled", name);
    for (size_t i = 0; i < tow_params_count(a.state); i++) { /* variables of each iteration change once */
        size_t bytes = tow_type_bytes(tow_array_type(a.arrays[2 + i])) / 2;
        for (size_t k = 0; k < 2; k++) {
            char path[128];
            const char *stack = tow_params_path(a.state, i), *mark = strstr(stack, "{}");
            snprintf(path, sizeof path, "%.*s%zu%s", (int)(mark - stack), stack, k, mark + 2);
            for (size_t j = 0; j < tow_params_count(b.state); j++)
                if (strcmp(tow_params_path(b.state, j), path) == 0 &&
                    memcmp((char *)tow_array_data(a.arrays[2 + i]) + k * bytes, tow_array_data(b.arrays[2 + j]), bytes))
                    fail_msg("%s in a scan: %s has other bits than unrolled", name, path);
        }
    }
    release(&a);
    release(&b);
}

/* Row r of the batched forward pass has the bits of the pass on row r. */
static void check_vmap(void *user, const char *name, const tow_module *model, tow_type input)
{
    static const char *const every[] = {TOW_EVERY_COLLECTION, NULL};
    tow_params *params, *state;
    tow_graph *one, *both;
    tow_array *in[MOST], *x, *rows[2], *out[MOST], *expected[MOST];
    (void)user;
    OK(tow_model_init_with(ctx, model, 3, 1, &input, NULL, &params, &state));
    size_t n = tow_params_count(params), n_state = tow_params_count(state), n_out = 1 + n_state;
    tow_model_options options = TOW_MODEL_OPTIONS(.state = state, .mutable_collections = n_state ? every : NULL);
    OK(tow_model_forward_graph(model, params, 1, &input, &options, &one));
    int axes[MOST];
    for (size_t i = 0; i < n + n_state; i++) axes[i] = TOW_NOT_MAPPED;
    axes[n + n_state] = 0;
    OK(tow_vmap(one, 2, axes, NULL, &both));
    tow_type types = input;
    memmove(types.dims + 1, types.dims, (size_t)input.rank * sizeof *types.dims);
    types.dims[0] = 2;
    types.rank++;
    x = fractions(types, 0);
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(params, i);
    for (size_t i = 0; i < n_state; i++) in[n + i] = tow_params_array(state, i);
    in[n + n_state] = x;
    OK(tow_evaluate(both, in, out));
    for (int row = 0; row < 2; row++) {
        rows[row] = fractions(input, row * tow_type_element_count(input));
        in[n + n_state] = rows[row];
        OK(tow_evaluate(one, in, expected));
        for (size_t i = 0; i < n_out; i++) {
            size_t bytes = tow_type_bytes(tow_array_type(expected[i]));
            if (memcmp((char *)tow_array_data(out[i]) + (size_t)row * bytes, tow_array_data(expected[i]), bytes))
                fail_msg("%s under vmap: row %d of result %zu has other bits", name, row, i);
            tow_array_release(expected[i]);
        }
        tow_array_release(rows[row]);
    }
    for (size_t i = 0; i < n_out; i++) tow_array_release(out[i]);
    tow_array_release(x);
    tow_graph_release(one);
    tow_graph_release(both);
    tow_params_free(params);
    tow_params_free(state);
}

/* Remat of every case, in both types. */
static void check_wrapped(case_list with_case)
{
    assert_true(with_case(NULL, TOW_F32, check_remat, NULL));
    assert_true(with_case(NULL, TOW_F64, check_remat, NULL));
}

/* Stacks of every case that can be stacked; how many there are. */
static int check_stacked(case_list with_case)
{
    int stacked = 0;
    with_case(NULL, TOW_F32, check_scan, &stacked);
    return stacked;
}

static void check_rows(case_list with_case)
{
    with_case(NULL, TOW_F32, check_vmap, NULL);
    with_case(NULL, TOW_F64, check_vmap, NULL);
}

static int portable_setup(void **unused)
{
    (void)unused;
    tow_context_options options = TOW_CONTEXT_OPTIONS(.portable_bits = true);
    return tow_context_create(&options, &ctx) == TOW_OK ? 0 : -1;
}

#endif

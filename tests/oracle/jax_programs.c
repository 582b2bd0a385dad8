/* jax_programs FILE.tow FILE.safetensors: a program that was written in JAX, converted by scripts/jaxpr_to_tow.py,
 * against values that JAX computed. The arrays have two rows of everything (inputs by name, results as out.I, gradients
 * of result 0 as grad.NAME), and the first comment of the program states a tolerance:
 *
 *   - results and gradients of either row, |found - expected| <= tolerance * (largest |expected| of the array);
 *   - the same under the policies nothing, everything and dots, with gradients equal to those without, bit for bit;
 *   - both rows at once by vmap.
 *
 * tests/oracle/jax_programs.py writes both files. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/elements.h"
#include "tow/tow.h"

enum {
    ROWS = 2,
    MAX_ARRAYS = 256
};

typedef struct test {
    tow_context *context;
    tow_graph *graph;
    tow_tensors *golden;
    double tolerance;
    size_t n_in, n_out, n_wrt;
    size_t wrt[MAX_ARRAYS];
    tow_array *plain[ROWS][MAX_ARRAYS]; /* value and gradient of each row without a policy */
    bool failed;
} test;

static void fail(test *t, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tow_context_error(t->context));
    t->failed = true;
}

/* ---- comparisons ------------------------------------------------------------------------------------------------- */

static bool is_close(double found, double expected, double allowed)
{
    if (isnan(expected)) return isnan(found);
    return found == expected || fabs(found - expected) <= allowed;
}

/* Integers are compared by their bytes: those of 64 bits are no doubles. */
static bool agree(const tow_array *found, const tow_array *expected, int64_t i, double allowed)
{
    const tow_dtype dtype = tow_array_type(expected).dtype;
    const size_t size = tow_dtype_size(dtype), at = (size_t)i * size;
    if (tow_dtype_is_float(dtype)) return is_close(array_element(found, i), array_element(expected, i), allowed);
    return memcmp((char *)tow_array_data(found) + at, (char *)tow_array_data(expected) + at, size) == 0;
}

static void compare(test *t, const tow_array *found, const tow_array *expected, const char *what)
{
    const tow_type type = tow_array_type(expected);
    if (!tow_type_equal(tow_array_type(found), type)) {
        fprintf(stderr, "%s has another type than the expectation\n", what);
        t->failed = true;
        return;
    }
    double largest = 0;
    for (int64_t i = 0; i < tow_type_element_count(type); i++)
        if (isfinite(array_element(expected, i))) largest = fmax(largest, fabs(array_element(expected, i)));
    const double allowed = t->tolerance * largest;
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        if (agree(found, expected, i, allowed)) continue;
        const double f = array_element(found, i), e = array_element(expected, i);
        fprintf(stderr, "%s, element %lld: found %.17g, expected %.17g; %g apart, allowed are %g\n", what, (long long)i,
                f, e, fabs(f - e), allowed);
        t->failed = true;
        return;
    }
}

static const char *input_name(const test *t, size_t i)
{
    const char *name = tow_graph_input_name(t->graph, i);
    return name ? name : "(no name)";
}

/* The golden array of result k of the value and gradient, all rows. */
static tow_array *expected(const test *t, size_t k, char label[300])
{
    if (k < t->n_out)
        snprintf(label, 300, "out.%zu", k);
    else
        snprintf(label, 300, "grad.%s", input_name(t, t->wrt[k - t->n_out]));
    return tow_tensors_find(t->golden, label);
}

/* row < 0: the arrays hold all rows. */
static void compare_all(test *t, tow_array *const *found, int row, const char *how)
{
    char label[300], what[400];
    for (size_t k = 0; k < t->n_out + t->n_wrt && !t->failed; k++) {
        tow_array *all = expected(t, k, label), *want = all;
        snprintf(what, sizeof what, "%s, row %d, %s", how, row, label);
        if (!all || (row >= 0 && tow_array_row(all, row, &want) != TOW_OK)) {
            fprintf(stderr, "%s: no such array in the golden file\n", what);
            t->failed = true;
            return;
        }
        compare(t, found[k], want, what);
        if (row >= 0) tow_array_release(want);
    }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void release_all(size_t n, tow_array **arrays)
{
    for (size_t i = 0; i < n; i++) {
        tow_array_release(arrays[i]);
        arrays[i] = NULL;
    }
}

/* row < 0: all rows at once. */
static bool evaluate(test *t, const tow_graph *graph, int row, tow_array **results, const char *how)
{
    tow_array *inputs[MAX_ARRAYS] = {NULL};
    tow_status status = TOW_OK;
    for (size_t i = 0; i < t->n_in && status == TOW_OK; i++) {
        tow_array *all = tow_tensors_find(t->golden, input_name(t, i));
        if (!all) {
            fprintf(stderr, "input %s is not in the golden file\n", input_name(t, i));
            t->failed = true;
            break;
        }
        if (row < 0)
            inputs[i] = tow_array_retain(all);
        else
            status = tow_array_row(all, row, &inputs[i]);
    }
    if (!t->failed && status == TOW_OK) status = tow_evaluate(graph, inputs, results);
    release_all(t->n_in, inputs);
    if (status != TOW_OK) fail(t, how);
    return !t->failed;
}

/* Value and gradient of the graph under a policy (NULL: none), which `plain` has already without one. */
static void check_policy(test *t, const char *text)
{
    tow_policy *policy = NULL;
    tow_graph *whole = NULL, *gradient = NULL;
    const char *how = text ? text : "no policy";
    const size_t n = t->n_out + t->n_wrt;
    tow_status status = text ? tow_policy_parse(t->context, text, &policy) : TOW_OK;
    if (status == TOW_OK && text) status = tow_remat_whole(t->graph, policy, &whole);
    if (status == TOW_OK)
        status = tow_value_and_grad(text ? whole : t->graph, t->n_wrt, t->wrt, t->n_out > 1, &gradient);
    if (status != TOW_OK) fail(t, how);
    for (int row = 0; row < ROWS && !t->failed; row++) {
        tow_array *found[MAX_ARRAYS] = {NULL};
        tow_array **results = text ? found : t->plain[row];
        if (evaluate(t, gradient, row, results, how)) compare_all(t, results, row, how);
        for (size_t k = 0; text && k < n && !t->failed; k++) {
            const tow_array *a = found[k], *b = t->plain[row][k];
            if (memcmp(tow_array_data(a), tow_array_data(b), tow_type_bytes(tow_array_type(a))) == 0) continue;
            fprintf(stderr, "%s, row %d, result %zu: other bits than without a policy\n", how, row, k);
            t->failed = true;
        }
        release_all(n, found);
    }
    tow_graph_release(gradient);
    tow_graph_release(whole);
    tow_policy_free(policy);
}

/* The value alone, and by vmap value and gradient of all rows. */
static void check_value_and_rows(test *t)
{
    tow_array *found[MAX_ARRAYS] = {NULL};
    tow_graph *gradient = NULL, *rows = NULL;
    const size_t n_wrt = t->n_wrt;
    for (int row = 0; row < ROWS && !t->failed; row++) {
        t->n_wrt = 0;
        if (evaluate(t, t->graph, row, found, "value")) compare_all(t, found, row, "value");
        t->n_wrt = n_wrt;
        release_all(t->n_out, found);
    }
    tow_status status = tow_value_and_grad(t->graph, t->n_wrt, t->wrt, t->n_out > 1, &gradient);
    if (status == TOW_OK) status = tow_vmap(gradient, ROWS, NULL, NULL, &rows);
    if (status != TOW_OK) fail(t, "vmap");
    if (!t->failed && evaluate(t, rows, -1, found, "vmap")) compare_all(t, found, -1, "vmap");
    release_all(t->n_out + t->n_wrt, found);
    tow_graph_release(rows);
    tow_graph_release(gradient);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long size = -1;
    if (file && fseek(file, 0, SEEK_END) == 0) size = ftell(file);
    if (size >= 0 && fseek(file, 0, SEEK_SET) == 0) text = malloc((size_t)size + 1);
    if (text) text[fread(text, 1, (size_t)size, file)] = '\0';
    if (file) fclose(file);
    return text;
}

static void load(test *t, const char *path, const char *arrays)
{
    char *text = read_text(path);
    const char *stated = text ? strstr(text, "# tolerance: ") : NULL;
    if (!stated) {
        fprintf(stderr, "%s: cannot be read, or states no tolerance\n", path);
        t->failed = true;
    } else {
        t->tolerance = strtod(stated + strlen("# tolerance: "), NULL);
        if (tow_graph_parse(t->context, text, &t->graph) != TOW_OK ||
            tow_safetensors_read(t->context, arrays, &t->golden) != TOW_OK)
            fail(t, path);
    }
    free(text);
    if (t->failed) return;
    t->n_in = tow_graph_input_count(t->graph);
    t->n_out = tow_graph_output_count(t->graph);
    if (t->n_in + t->n_out + t->n_in > MAX_ARRAYS) {
        fprintf(stderr, "%s has too many inputs and results\n", path);
        t->failed = true;
        return;
    }
    for (size_t i = 0; i < t->n_in; i++)
        if (tow_dtype_is_float(tow_graph_input_type(t->graph, i).dtype)) t->wrt[t->n_wrt++] = i;
}

int main(int argc, char **argv)
{
    static const char *const policies[] = {NULL, "nothing", "everything", "dots"};
    test t = {0};
    if (argc != 3) {
        fprintf(stderr, "usage: %s FILE.tow FILE.safetensors\n", argv[0]);
        return 2;
    }
    if (tow_context_create(NULL, &t.context) != TOW_OK) return 1;
    load(&t, argv[1], argv[2]);
    for (size_t i = 0; i < sizeof policies / sizeof *policies && !t.failed; i++) check_policy(&t, policies[i]);
    if (!t.failed) check_value_and_rows(&t);
    for (int row = 0; row < ROWS; row++) release_all(MAX_ARRAYS, t.plain[row]);
    tow_tensors_free(t.golden);
    tow_graph_release(t.graph);
    tow_context_free(t.context);
    return t.failed;
}

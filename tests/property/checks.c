/* The properties of a case: value, printing, forward mode, reverse mode, second derivative, cleaning. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/property/property.h"

/* Prints one failure and counts it. */
#define FAIL(count, ...) (printf("  "), printf(__VA_ARGS__), printf("\n"), (count)++)

/* ---- comparing -------------------------------------------------------------------------------------------------- */

static double magnitude(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(x[i]) && fabs(x[i]) > most) most = fabs(x[i]);
    return most;
}

/* |found - expected| <= tolerance * (|expected| + largest |expected|): rounding of sums is relative to their terms. */
static bool close_to(const double *found, const double *expected, int64_t n, double tolerance, int64_t *where)
{
    const double scale = magnitude(expected, n);
    for (*where = 0; *where < n; ++*where) {
        const double f = found[*where], e = expected[*where];
        if (isnan(e) ? isnan(f) : f == e) continue;
        if (!(fabs(f - e) <= tolerance * (fabs(e) + scale))) return false;
    }
    return true;
}

/* ---- graphs stay well-formed and printable
 * ---------------------------------------------------------------------------- */

int property_check_text(const tow_graph *graph, const char *what)
{
    tow_context *context = tow_graph_context(graph);
    const size_t length = tow_graph_text(graph, NULL, 0);
    char *text = malloc(length + 1), *again = NULL;
    tow_graph *parsed = NULL;
    int failures = 0;
    if (text == NULL) return FAIL(failures, "%s: out of memory", what), failures;
    tow_graph_text(graph, text, length + 1);
    if (tow_graph_check(graph) != TOW_OK) FAIL(failures, "%s: check: %s", what, tow_context_error(context));
    if (tow_graph_parse(context, text, &parsed) != TOW_OK) {
        FAIL(failures, "%s: parse: %s in\n%s", what, tow_context_error(context), text);
    } else if (tow_graph_text(parsed, NULL, 0) != length || (again = malloc(length + 1)) == NULL) {
        FAIL(failures, "%s: printed, parsed and printed again it has another length", what);
    } else {
        tow_graph_text(parsed, again, length + 1);
        if (strcmp(text, again) != 0) FAIL(failures, "%s: changed by printing and parsing:\n%s\n%s", what, text, again);
    }
    tow_graph_release(parsed);
    free(text);
    free(again);
    return failures;
}

/* Cleaning passes and a parsed copy give the very same bits. */
static int check_cleaning(const tow_graph *graph, const property_values *inputs, const property_values *expected,
                          const char *what)
{
    static const struct {
        const char *name;
        tow_status (*pass)(const tow_graph *graph, tow_graph **result);
    } passes[] = {{"dce", tow_graph_dce}, {"cse", tow_graph_cse}};
    int failures = 0;
    for (size_t p = 0; p < sizeof passes / sizeof *passes; p++) {
        tow_graph *clean = NULL;
        property_values found = {0};
        if (passes[p].pass(graph, &clean) != TOW_OK)
            FAIL(failures, "%s: %s: %s", what, passes[p].name, tow_context_error(tow_graph_context(graph)));
        else if (tow_graph_check(clean) != TOW_OK)
            FAIL(failures, "%s: after %s: %s", what, passes[p].name, tow_context_error(tow_graph_context(graph)));
        else if (!property_evaluate(clean, inputs, &found))
            FAIL(failures, "%s: does not run after %s", what, passes[p].name);
        for (size_t i = 0; i < found.n; i++)
            if (memcmp(found.arrays[i], expected->arrays[i], (size_t)found.counts[i] * sizeof(double)) != 0)
                FAIL(failures, "%s: result %zu is changed by %s", what, i, passes[p].name);
        property_free(&found);
        tow_graph_release(clean);
    }
    return failures;
}

/* ---- value
 * -------------------------------------------------------------------------------------------------------------- */

static void reference(const property_case *c, const property_values *inputs, property_values *expected)
{
    if (c->value != NULL) {
        c->value(c, inputs->arrays, expected->arrays);
        return;
    }
    for (int64_t i = 0; i < expected->counts[0]; i++)
        expected->arrays[0][i] =
            c->unary != NULL ? c->unary(inputs->arrays[0][i]) : c->binary(inputs->arrays[0][i], inputs->arrays[1][i]);
}

static int check_value(tow_context *context, const property_case *c, tow_dtype floats, const property_values *inputs)
{
    /* f32: a few units in the last place of 6e-8; f64: room for references that sum in another order. */
    const double base = floats == TOW_F32 ? 1e-6 : 1e-14 * (c->loose_f64 == 0 ? 1 : c->loose_f64);
    const double tolerance = base * (c->loose == 0 ? 1 : c->loose);
    tow_graph *graph = property_graph(context, c, floats);
    property_values found = {0}, expected = {0};
    int failures = 0;
    if (graph == NULL) return 1;
    failures += property_check_text(graph, tow_dtype_name(floats));
    if (!property_evaluate(graph, inputs, &found)) {
        failures++;
    } else {
        failures += check_cleaning(graph, inputs, &found, tow_dtype_name(floats));
        expected.n = found.n;
        for (size_t i = 0; i < found.n; i++) {
            expected.counts[i] = found.counts[i];
            expected.arrays[i] = calloc((size_t)found.counts[i] + 1, sizeof(double));
        }
        while (expected.n < MAX_OUT) { /* room for outputs that the reference has and the graph does not return */
            expected.counts[expected.n] = 1024;
            expected.arrays[expected.n++] = calloc(1024, sizeof(double));
        }
        reference(c, inputs, &expected);
        for (size_t i = 0; i < found.n; i++) {
            const bool exact = !tow_dtype_is_float(tow_graph_output_type(graph, i).dtype);
            int64_t k;
            if (!close_to(found.arrays[i], expected.arrays[i], found.counts[i], exact ? 0 : tolerance, &k))
                FAIL(failures, "%s: result %zu, element %lld: expected %.17g, found %.17g", tow_dtype_name(floats), i,
                     (long long)k, expected.arrays[i][k], found.arrays[i][k]);
        }
    }
    property_free(&found);
    property_free(&expected);
    tow_graph_release(graph);
    return failures;
}

/* ---- derivatives
 * ------------------------------------------------------------------------------------------------------------ */

size_t property_differentiable(const property_case *c, size_t wrt[MAX_IN])
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_in; i++)
        if (c->in[i].dtype == TOW_F64 && !c->in[i].constant) wrt[n++] = i;
    return n;
}

static double *copy_array(const double *array, int64_t n)
{
    double *copy = calloc((size_t)n + 1, sizeof *copy);
    if (copy == NULL) abort();
    memcpy(copy, array, (size_t)n * sizeof *copy);
    return copy;
}

/* values + h * direction on the inputs wrt. */
static property_values moved(const property_values *values, const property_values *direction, const size_t *wrt,
                             double h)
{
    property_values result = {.n = values->n};
    for (size_t i = 0; i < values->n; i++) {
        result.counts[i] = values->counts[i];
        result.arrays[i] = copy_array(values->arrays[i], values->counts[i]);
    }
    for (size_t j = 0; j < direction->n; j++)
        for (int64_t k = 0; k < direction->counts[j]; k++) result.arrays[wrt[j]][k] += h * direction->arrays[j][k];
    return result;
}

static property_values joined(const property_values *a, const property_values *b)
{
    property_values result = {0};
    const property_values *parts[] = {a, b};
    for (size_t p = 0; p < 2; p++)
        for (size_t i = 0; i < parts[p]->n; i++) {
            result.counts[result.n] = parts[p]->counts[i];
            result.arrays[result.n++] = copy_array(parts[p]->arrays[i], parts[p]->counts[i]);
        }
    return result;
}

static property_values random_like(const property_values *values, const size_t *which, size_t n, uint64_t seed)
{
    property_values result = {.n = n};
    for (size_t j = 0; j < n; j++) {
        result.counts[j] = values->counts[which[j]];
        result.arrays[j] = calloc((size_t)result.counts[j] + 1, sizeof(double));
        if (result.arrays[j] == NULL) abort();
        for (int64_t k = 0; k < result.counts[j]; k++) result.arrays[j][k] = property_unit(&seed);
    }
    return result;
}

/* (f(x + h v) - f(x - h v)) / 2h for all results. */
static bool central_difference(const tow_graph *graph, const property_values *x, const property_values *v,
                               const size_t *wrt, double h, property_values *result)
{
    property_values up = moved(x, v, wrt, h), down = moved(x, v, wrt, -h), low = {0};
    const bool good = property_evaluate(graph, &up, result) && property_evaluate(graph, &down, &low);
    for (size_t i = 0; good && i < result->n; i++)
        for (int64_t k = 0; k < result->counts[i]; k++)
            result->arrays[i][k] = (result->arrays[i][k] - low.arrays[i][k]) / (2 * h);
    property_free(&up);
    property_free(&down);
    property_free(&low);
    return good;
}

/* Forward mode of graph against central differences, all in f64. The tolerance calibrates itself: with steps h and h/2
 * the differences d and e are off by about (d - e) 4/3 and (d - e)/3; Richardson's (4e - d)/3 is far better than that.
 * Where d and e disagree much, the case sits on a kink, and that is a failure of the case. */
static int check_forward(const tow_graph *graph, const property_values *x, const size_t *wrt, size_t n_wrt,
                         const char *what)
{
    const double h = 1e-3;
    property_values v = random_like(x, wrt, n_wrt, 77), joint = joined(x, &v), found = {0}, d = {0}, e = {0};
    tow_graph *jvp = NULL;
    int failures = 0;
    if (tow_jvp(graph, n_wrt, wrt, &jvp) != TOW_OK) {
        FAIL(failures, "%s: jvp: %s", what, tow_context_error(tow_graph_context(graph)));
    } else if (!property_evaluate(jvp, &joint, &found) || !central_difference(graph, x, &v, wrt, h, &d) ||
               !central_difference(graph, x, &v, wrt, h / 2, &e)) {
        FAIL(failures, "%s: jvp or its reference does not run", what);
    } else {
        size_t next = tow_graph_outputs(graph); /* y..., then dy of the float outputs */
        failures += property_check_text(jvp, what);
        failures += check_cleaning(jvp, &joint, &found, what);
        for (size_t i = 0; i < d.n; i++) {
            if (!tow_dtype_is_float(tow_graph_output_type(graph, i).dtype)) continue;
            const double scale = 1e-3 + magnitude(e.arrays[i], e.counts[i]);
            for (int64_t k = 0; k < d.counts[i]; k++) {
                const double a = d.arrays[i][k], b = e.arrays[i][k], best = (4 * b - a) / 3, dy = found.arrays[next][k];
                const double spread = fabs(a - b);
                if (spread > 1e-2 * scale)
                    FAIL(failures, "%s: result %zu, element %lld: differences %g and %g disagree: a kink?", what, i,
                         (long long)k, a, b);
                else if (!(fabs(dy - best) <= spread * 0.1 + 2e-9 * scale))
                    FAIL(failures, "%s: tangent of result %zu, element %lld: expected %.10g, found %.10g", what, i,
                         (long long)k, best, dy);
                else
                    continue;
                break; /* one message per result */
            }
            next++;
        }
    }
    tow_graph_release(jvp);
    property_free(&v);
    property_free(&joint);
    property_free(&found);
    property_free(&d);
    property_free(&e);
    return failures;
}

/* <ct, J v> = <J^T ct, v>: reverse mode against forward mode. */
static int check_reverse(const tow_graph *graph, const property_values *x, const size_t *wrt, size_t n_wrt)
{
    property_values v = random_like(x, wrt, n_wrt, 177), joint = joined(x, &v), y = {0}, forward = {0}, back = {0},
                    ct = {0};
    tow_graph *jvp = NULL, *f = NULL, *b = NULL;
    size_t floats[MAX_OUT], n_float = 0;
    const size_t n_out = tow_graph_outputs(graph);
    int failures = 0;
    for (size_t i = 0; i < n_out; i++)
        if (tow_dtype_is_float(tow_graph_output_type(graph, i).dtype)) floats[n_float++] = i;
    if (tow_jvp(graph, n_wrt, wrt, &jvp) != TOW_OK || tow_vjp(graph, n_wrt, wrt, &f, &b) != TOW_OK) {
        FAIL(failures, "vjp: %s", tow_context_error(tow_graph_context(graph)));
    } else if (!property_evaluate(jvp, &joint, &y) || !property_evaluate(f, x, &forward)) {
        FAIL(failures, "vjp: does not run forward");
    } else {
        ct = random_like(&y, floats, n_float, 277);
        property_values residuals = {.n = forward.n - n_out};
        for (size_t i = 0; i < residuals.n; i++) {
            residuals.arrays[i] = forward.arrays[n_out + i];
            residuals.counts[i] = forward.counts[n_out + i];
        }
        property_values inputs = joined(&residuals, &ct);
        failures += property_check_text(f, "forward graph") + property_check_text(b, "backward graph");
        if (!property_evaluate(b, &inputs, &back)) {
            FAIL(failures, "vjp: does not run backward");
        } else {
            double left = 0, right = 0, size = 1e-3;
            failures += check_cleaning(b, &inputs, &back, "backward graph");
            for (size_t j = 0; j < n_float; j++)
                for (int64_t k = 0; k < ct.counts[j]; k++) {
                    const double term = ct.arrays[j][k] * y.arrays[n_out + j][k];
                    left += term;
                    size += fabs(term);
                }
            for (size_t j = 0; j < n_wrt; j++)
                for (int64_t k = 0; k < v.counts[j]; k++) right += back.arrays[j][k] * v.arrays[j][k];
            if (!(fabs(left - right) <= 1e-11 * size))
                FAIL(failures, "transpose: <ct, J v> = %.15g, <J^T ct, v> = %.15g", left, right);
        }
        property_free(&inputs);
    }
    tow_graph_release(jvp);
    tow_graph_release(f);
    tow_graph_release(b);
    property_free(&v);
    property_free(&joint);
    property_free(&y);
    property_free(&forward);
    property_free(&back);
    property_free(&ct);
    return failures;
}

/* <gradient, v> against central differences of the scalar along v, where there is no forward mode to compare with. */
static int check_gradient(const tow_graph *scalar, const property_values *x, const property_values *gradient,
                          const size_t *wrt, size_t n_wrt)
{
    property_values v = random_like(x, wrt, n_wrt, 377), d = {0}, e = {0};
    int failures = 0;
    if (!central_difference(scalar, x, &v, wrt, 1e-3, &d) || !central_difference(scalar, x, &v, wrt, 5e-4, &e)) {
        FAIL(failures, "grad: its reference does not run");
    } else {
        double found = 0, size = 1e-3;
        for (size_t j = 0; j < n_wrt; j++)
            for (int64_t k = 0; k < v.counts[j]; k++) {
                found += gradient->arrays[j][k] * v.arrays[j][k];
                size += fabs(gradient->arrays[j][k]);
            }
        const double a = d.arrays[0][0], b = e.arrays[0][0], best = (4 * b - a) / 3;
        if (!(fabs(found - best) <= fabs(a - b) * 0.1 + 2e-9 * size))
            FAIL(failures, "gradient: expected %.10g along a direction, found %.10g", best, found);
    }
    property_free(&v);
    property_free(&d);
    property_free(&e);
    return failures;
}

/* Gradients of the weighted sum of results: in f32 against f64, and forward mode over them against differences. */
static int check_second(tow_context *context, const property_case *c, const property_values *x, const size_t *wrt,
                        size_t n_wrt)
{
    tow_graph *scalar = property_scalar_graph(context, c, TOW_F64),
              *scalar32 = property_scalar_graph(context, c, TOW_F32);
    tow_graph *grad = NULL, *grad32 = NULL;
    property_values all = joined(x, &(property_values){0}), g = {0}, g32 = {0};
    int failures = 0;
    if (scalar == NULL || scalar32 == NULL || tow_grad(scalar, n_wrt, wrt, false, &grad) != TOW_OK ||
        tow_grad(scalar32, n_wrt, wrt, false, &grad32) != TOW_OK) {
        FAIL(failures, "grad: %s", tow_context_error(context));
    } else {
        property_draw_weights(scalar, &all);
        failures += property_check_text(grad, "gradient");
        if (!property_evaluate(grad, &all, &g) || !property_evaluate(grad32, &all, &g32)) {
            FAIL(failures, "grad: does not run");
        } else {
            failures += check_cleaning(grad, &all, &g, "gradient");
            for (size_t j = 0; j < g.n; j++) {
                int64_t k;
                if (!close_to(g32.arrays[j], g.arrays[j], g.counts[j], 4e-6 * (c->loose == 0 ? 1 : c->loose), &k))
                    FAIL(failures, "gradient of input %zu, element %lld: f64 %.10g, f32 %.10g", wrt[j], (long long)k,
                         g.arrays[j][k], g32.arrays[j][k]);
            }
            if (c->reverse_only) failures += check_gradient(scalar, &all, &g, wrt, n_wrt);
            failures += check_forward(grad, &all, wrt, n_wrt, "second derivative");
        }
    }
    tow_graph_release(scalar);
    tow_graph_release(scalar32);
    tow_graph_release(grad);
    tow_graph_release(grad32);
    property_free(&all);
    property_free(&g);
    property_free(&g32);
    return failures;
}

int property_check(tow_context *context, const property_case *c)
{
    property_values x = {0};
    size_t wrt[MAX_IN];
    const size_t n_wrt = property_differentiable(c, wrt);
    int failures = 0;
    tow_context_clear_error(context);
    property_draw(c, &x);
    failures += check_value(context, c, TOW_F64, &x);
    failures += check_value(context, c, TOW_F32, &x);
    if (failures == 0 && n_wrt > 0 && !c->no_derivative) {
        tow_graph *graph = property_graph(context, c, TOW_F64);
        bool floats = false;
        for (size_t i = 0; graph != NULL && i < tow_graph_outputs(graph); i++)
            floats = floats || tow_dtype_is_float(tow_graph_output_type(graph, i).dtype);
        if (graph == NULL) {
            failures++;
        } else if (floats) {
            if (!c->reverse_only) failures += check_forward(graph, &x, wrt, n_wrt, "jvp");
            if (!c->reverse_only) failures += check_reverse(graph, &x, wrt, n_wrt);
            failures += check_second(context, c, &x, wrt, n_wrt);
        }
        tow_graph_release(graph);
    }
    property_free(&x);
    return failures;
}

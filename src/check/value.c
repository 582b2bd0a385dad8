/* The value of a case, against the reference; and what changes no bit of it: text, cleaning. */
#include <math.h>

#include "src/check/check.h"

#include "src/base/base.h"

/* ---- comparing --------------------------------------------------------------------------------------------------- */

double tow__check_magnitude(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(x[i]) && fabs(x[i]) > most) most = fabs(x[i]);
    return most;
}

bool tow__check_close(const double *found, const double *expected, int64_t n, double tolerance, int64_t *where)
{
    const double scale = tow__check_magnitude(expected, n);
    for (*where = 0; *where < n; ++*where) {
        const double f = found[*where], e = expected[*where];
        if (isnan(e) ? isnan(f) : f == e) continue;
        if (!(fabs(f - e) <= tolerance * (fabs(e) + scale))) return false;
    }
    return true;
}

int64_t tow__check_difference(const tow__check *k, const double *found, const double *expected, int64_t n)
{
    int64_t e = 0;
    if (k->varies) return tow__check_close(found, expected, n, 1e-5, &e) ? -1 : e;
    while (e < n && memcmp(&found[e], &expected[e], sizeof *found) == 0) e++;
    return e < n ? e : -1;
}

/* ---- graphs stay well-formed and printable ----------------------------------------------------------------------- */

static void compare_text(tow__check *k, const tow_graph *graph, const char *text, size_t length, const char *what)
{
    tow_graph *parsed = NULL;
    char *again = NULL;
    if (tow_graph_parse(k->ctx, text, &parsed) != TOW_OK) {
        tow__check_fail(k, "%s: parse: %s in\n%s", what, tow_context_error(tow_graph_context(graph)), text);
    } else if (tow_graph_text(parsed, NULL, 0) != length) {
        tow__check_fail(k, "%s: printed, parsed and printed again it has another length", what);
    } else if ((again = tow__alloc(k->ctx, length + 1, 1))) {
        tow_graph_text(parsed, again, length + 1);
        if (strcmp(text, again) != 0)
            tow__check_fail(k, "%s: changed by printing and parsing:\n%s\n%s", what, text, again);
    } else {
        tow__check_fail(k, "%s: %s", what, tow_context_error(k->ctx));
    }
    tow_graph_release(parsed);
    tow__free(k->ctx, again, length + 1, 1);
}

void tow__check_text(tow__check *k, const tow_graph *graph, const char *what)
{
    const tow_check_kind kind = k->kind;
    const size_t length = tow_graph_text(graph, NULL, 0);
    k->kind = TOW_CHECK_TEXT;
    k->done |= 1u << TOW_CHECK_TEXT;
    char *text = tow__alloc(k->ctx, length + 1, 1);
    if (text) {
        tow_graph_text(graph, text, length + 1);
        if (tow_graph_check(graph) != TOW_OK) tow__check_fail(k, "%s: check: %s", what, tow_context_error(k->ctx));
        compare_text(k, graph, text, length, what);
        tow__free(k->ctx, text, length + 1, 1);
    } else {
        tow__check_fail(k, "%s: %s", what, tow_context_error(k->ctx));
    }
    k->kind = kind;
}

void tow__check_cleaning(tow__check *k, const tow_graph *graph, const tow__check_values *inputs,
                         const tow__check_values *expected, const char *what)
{
    static const struct {
        const char *name;
        tow_status (*pass)(const tow_graph *graph, tow_graph **result);
    } passes[] = {{"dce", tow_graph_dce}, {"cse", tow_graph_cse}};
    const tow_check_kind kind = k->kind;
    k->kind = TOW_CHECK_CLEANING;
    k->done |= 1u << TOW_CHECK_CLEANING;
    for (size_t p = 0; p < sizeof passes / sizeof *passes; p++) {
        tow_graph *clean = NULL;
        tow__check_values found = tow__check_no_values(k);
        if (passes[p].pass(graph, &clean) != TOW_OK)
            tow__check_fail(k, "%s: %s: %s", what, passes[p].name, tow_context_error(k->ctx));
        else if (tow_graph_check(clean) != TOW_OK)
            tow__check_fail(k, "%s: after %s: %s", what, passes[p].name, tow_context_error(k->ctx));
        else if (!tow__check_evaluate(k, clean, inputs, &found))
            tow__check_fail(k, "%s: does not run after %s", what, passes[p].name);
        for (size_t i = 0; i < found.n; i++)
            if (tow__check_difference(k, found.arrays[i], expected->arrays[i], found.counts[i]) >= 0)
                tow__check_fail(k, "%s: result %zu is changed by %s", what, i, passes[p].name);
        tow__check_free(&found);
        tow_graph_release(clean);
    }
    k->kind = kind;
}

/* ---- value ------------------------------------------------------------------------------------------------------- */

static void reference(const tow__check_case *c, const tow__check_values *inputs, tow__check_values *expected)
{
    if (c->value) {
        c->value(c, inputs->arrays, expected->arrays);
        return;
    }
    for (int64_t i = 0; i < expected->counts[0]; i++)
        expected->arrays[0][i] =
            c->unary ? c->unary(inputs->arrays[0][i]) : c->binary(inputs->arrays[0][i], inputs->arrays[1][i]);
}

/* Results of the reference: as many as were found, and room for those that it has and the graph does not return. */
static bool make_room(const tow__check_values *found, tow__check_values *expected)
{
    for (size_t i = 0; i < TOW__CHECK_OUT; i++)
        if (!tow__check_array(expected, i < found->n ? found->counts[i] : 1024)) return false;
    return true;
}

static void compare(tow__check *k, const tow_graph *graph, const tow__check_values *inputs,
                    const tow__check_values *found, tow_dtype floats)
{
    /* f32: a few units in the last place of 6e-8; f64: room for references that sum in another order. */
    const tow__check_case *c = k->c;
    const double base = floats == TOW_F32 ? 1e-6 : 1e-14 * (c->loose_f64 == 0 ? 1 : c->loose_f64);
    const double tolerance = base * (c->loose == 0 ? 1 : c->loose);
    tow__check_values expected = tow__check_no_values(k);
    if (!make_room(found, &expected)) {
        tow__check_fail(k, "%s", tow_context_error(k->ctx));
        goto done;
    }
    reference(c, inputs, &expected);
    for (size_t i = 0; i < found->n; i++) {
        const bool exact = !tow_dtype_is_float(tow_graph_output_type(graph, i).dtype);
        int64_t e;
        if (!tow__check_close(found->arrays[i], expected.arrays[i], found->counts[i], exact ? 0 : tolerance, &e))
            tow__check_fail_at(k, i, e, expected.arrays[i][e], found->arrays[i][e],
                               "%s: result %zu, element %lld: expected %.17g, found %.17g", tow_dtype_name(floats), i,
                               (long long)e, expected.arrays[i][e], found->arrays[i][e]);
    }
done:
    tow__check_free(&expected);
}

void tow__check_value(tow__check *k, tow_dtype floats, const tow__check_values *inputs)
{
    tow_graph *graph = tow__check_graph(k, k->c, floats);
    tow__check_values found = tow__check_no_values(k);
    k->kind = TOW_CHECK_VALUE;
    if (!graph) return;
    tow__check_text(k, graph, tow_dtype_name(floats));
    if (tow__check_evaluate(k, graph, inputs, &found)) {
        tow__check_cleaning(k, graph, inputs, &found, tow_dtype_name(floats));
        if (k->c->value || k->c->unary || k->c->binary) compare(k, graph, inputs, &found, floats);
    }
    tow__check_free(&found);
    tow_graph_release(graph);
}

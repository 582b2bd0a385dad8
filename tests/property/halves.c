/* Floats of 16 bits: what a case gives in bf16 or f16 is what it gives in f32 on the same operands, rounded once; and
 * its derivatives, whose equations round one by one, are near those in f32. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/property/property.h"
#include "tests/unit/support/elements.h"

/* Half a unit in the last place of 1. */
static double rounding(tow_dtype floats) { return floats == TOW_BF16 ? 0x1p-8 : 0x1p-11; }

static double rounded(tow_dtype dtype, double x)
{
    double element = 0;
    element_set(dtype, &element, 0, x);
    return element_get(dtype, &element, 0);
}

/* The inputs of a graph as its types have them. */
static void round_inputs(const tow_graph *graph, tow__check_values *x)
{
    for (size_t i = 0; i < x->n; i++)
        for (int64_t e = 0; e < x->counts[i]; e++)
            x->arrays[i][e] = rounded(tow_graph_input_type(graph, i).dtype, x->arrays[i][e]);
}

/* Results of both graphs on x. steps: roundings that the results may differ by, all in one direction; 0: the last one
 * only. Bodies of loops round several times in each iteration. */
static void compare(tow__check *k, const tow_graph *half, const tow_graph *single, tow__check_values *x, double steps,
                    const char *what)
{
    tow__check_values found = tow__check_no_values(k), expected = tow__check_no_values(k);
    round_inputs(half, x);
    if (tow__check_evaluate(k, half, x, &found) && tow__check_evaluate(k, single, x, &expected)) {
        tow__check_cleaning(k, half, x, &found, what);
        for (size_t i = 0; i < found.n; i++) {
            const tow_dtype dtype = tow_graph_output_type(half, i).dtype;
            const bool exact = steps == 0 || !tow_dtype_is_float(dtype);
            int64_t at;
            for (int64_t e = 0; e < found.counts[i]; e++) expected.arrays[i][e] = rounded(dtype, expected.arrays[i][e]);
            const double tolerance = exact ? 0 : steps * rounding(tow_graph_input_type(half, 0).dtype);
            if (!tow__check_close(found.arrays[i], expected.arrays[i], found.counts[i], tolerance, &at))
                tow__check_fail(k, "%s: result %zu, element %lld: expected %.9g, found %.9g", what, i, (long long)at,
                                expected.arrays[i][at], found.arrays[i][at]);
        }
    }
    tow__check_free(&found);
    tow__check_free(&expected);
}

static void check_gradient(tow__check *k, tow_dtype floats, const size_t *wrt, size_t n_wrt, tow__check_values *x)
{
    tow_graph *half = tow__check_scalar_graph(k, k->c, floats), *single = tow__check_scalar_graph(k, k->c, TOW_F32);
    tow_graph *half_grad = NULL, *single_grad = NULL;
    if (half && single) {
        if (tow_grad(half, n_wrt, wrt, false, &half_grad) != TOW_OK ||
            tow_grad(single, n_wrt, wrt, false, &single_grad) != TOW_OK || !tow__check_draw_weights(half, x)) {
            tow__check_fail(k, "gradient in %s: %s", tow_dtype_name(floats), tow_context_error(k->ctx));
        } else {
            tow__check_text(k, half_grad, "gradient in 16 bits");
            compare(k, half_grad, single_grad, x, k->c->build ? 32 : 8, "gradient in 16 bits");
        }
    }
    tow_graph_release(half);
    tow_graph_release(single);
    tow_graph_release(half_grad);
    tow_graph_release(single_grad);
}

/* The next number is another one in each type, and functions of the host take types as they are. */
static bool depends_on_type(const property_case *c)
{
    return strcmp(c->primitive, "nextafter") == 0 || strcmp(c->primitive, "call_host") == 0;
}

void property_check_halves(tow__check *k, tow_dtype floats)
{
    tow__check_values x = {0};
    size_t wrt[TOW__CHECK_IN];
    const property_case *c = k->c;
    const size_t n_wrt = c->no_derivative ? 0 : tow__check_differentiable(c, wrt);
    bool halves = false;
    k->kind = TOW_CHECK_VALUE;
    for (size_t i = 0; i < c->n_in; i++) halves = halves || tow__check_input_type(c, i, floats).dtype == floats;
    if (!halves || depends_on_type(c)) return;
    tow_graph *half = tow__check_graph(k, c, floats), *single = tow__check_graph(k, c, TOW_F32);
    if (half && single && tow__check_draw(k, c, 0, &x)) {
        tow__check_text(k, half, tow_dtype_name(floats));
        compare(k, half, single, &x, c->build ? 16 : 0, tow_dtype_name(floats));
        if (k->failures == 0 && n_wrt > 0 && tow__check_has_float_output(half))
            check_gradient(k, floats, wrt, n_wrt, &x);
    }
    tow_graph_release(half);
    tow_graph_release(single);
    tow__check_free(&x);
}

/* Derivatives of a case: forward mode against central differences, reverse mode against forward mode, gradients in f32
 * against those in f64, and forward mode over gradients against differences of them. */
#include <math.h>

#include "src/check/check.h"

#include "src/base/base.h"
#include "tow/autodiff.h"

/* The way in which differences are taken: in f64 with small steps; in f32, for primitives that have no other type, with
 * steps that balance the error of the formula, h^4, and of rounding, 1e-7 / h. */
typedef struct precision {
    double step;
    double noise;   /* of a difference, relative to the largest one */
    double adjoint; /* of an inner product, relative to the sum of its terms */
} precision;

static precision precision_of(tow_dtype floats)
{
    return floats == TOW_F64 ? (precision){1e-3, 2e-9, 1e-11} : (precision){1.0 / 32, 4e-4, 2e-5};
}

static bool join(const tow__check_values *a, const tow__check_values *b, tow__check_values *result)
{
    return tow__check_copy(a, result) && tow__check_copy(b, result);
}

/* values + h * direction on the inputs wrt. */
static bool move(const tow__check_values *values, const tow__check_values *direction, const size_t *wrt, double h,
                 tow__check_values *result)
{
    if (!tow__check_copy(values, result)) return false;
    for (size_t j = 0; j < direction->n; j++)
        for (int64_t e = 0; e < direction->counts[j]; e++) result->arrays[wrt[j]][e] += h * direction->arrays[j][e];
    return true;
}

/* (f(x + h v) - f(x - h v)) / 2h for all results. */
static bool difference(tow__check *k, const tow_graph *graph, const tow__check_values *x, const tow__check_values *v,
                       const size_t *wrt, double h, tow__check_values *result)
{
    tow__check_values up = tow__check_no_values(k), down = up, low = up;
    const bool good = move(x, v, wrt, h, &up) && move(x, v, wrt, -h, &down) &&
                      tow__check_evaluate(k, graph, &up, result) && tow__check_evaluate(k, graph, &down, &low);
    for (size_t i = 0; good && i < result->n; i++)
        for (int64_t e = 0; e < result->counts[i]; e++)
            result->arrays[i][e] = (result->arrays[i][e] - low.arrays[i][e]) / (2 * h);
    tow__check_free(&up);
    tow__check_free(&down);
    tow__check_free(&low);
    return good;
}

/* ---- forward mode ------------------------------------------------------------------------------------------------ */

/* One result: dy against the differences a and b with steps h and h/2. The tolerance calibrates itself: a and b are off
 * by about (a - b) 4/3 and (a - b)/3; Richardson's (4b - a)/3 is far better than that. If a and b disagree much, the
 * case sits on a kink, and that is a failure of the case. */
static void compare_tangent(tow__check *k, size_t i, int64_t n, const double *a, const double *b, const double *dy,
                            precision p, const char *what)
{
    const double scale = 1e-3 + tow__check_magnitude(b, n);
    for (int64_t e = 0; e < n; e++) {
        const double best = (4 * b[e] - a[e]) / 3, spread = fabs(a[e] - b[e]);
        if (spread > 1e-2 * scale + 10 * p.noise * scale) {
            tow__check_fail(k, "%s: result %zu, element %lld: differences %g and %g disagree: a kink?", what, i,
                            (long long)e, a[e], b[e]);
            return;
        }
        if (!(fabs(dy[e] - best) <= spread * 0.1 + p.noise * scale)) {
            tow__check_fail_at(k, i, e, best, dy[e],
                               "%s: tangent of result %zu, element %lld: expected %.10g, found %.10g", what, i,
                               (long long)e, best, dy[e]);
            return;
        }
    }
}

static void check_forward(tow__check *k, const tow_graph *graph, const tow__check_values *x, const size_t *wrt,
                          size_t n_wrt, precision p, const char *what)
{
    tow__check_values v = tow__check_no_values(k), joint = v, found = v, d = v, e = v;
    tow_graph *jvp = NULL;
    if (!tow__check_random_like(x, wrt, n_wrt, 77, &v) || !join(x, &v, &joint) ||
        tow_jvp(graph, n_wrt, wrt, &jvp) != TOW_OK) {
        tow__check_fail(k, "%s: %s", what, tow_context_error(k->ctx));
    } else if (tow__check_evaluate(k, jvp, &joint, &found) && difference(k, graph, x, &v, wrt, p.step, &d) &&
               difference(k, graph, x, &v, wrt, p.step / 2, &e)) {
        size_t next = tow_graph_output_count(graph); /* y..., then dy of the float outputs */
        tow__check_text(k, jvp, what);
        tow__check_cleaning(k, jvp, &joint, &found, what);
        for (size_t i = 0; i < d.n; i++)
            if (tow_dtype_is_float(tow_graph_output_type(graph, i).dtype))
                compare_tangent(k, i, d.counts[i], d.arrays[i], e.arrays[i], found.arrays[next++], p, what);
    }
    tow_graph_release(jvp);
    tow__check_free(&v);
    tow__check_free(&joint);
    tow__check_free(&found);
    tow__check_free(&d);
    tow__check_free(&e);
}

/* ---- reverse mode ------------------------------------------------------------------------------------------------ */

/* The sum of products of arrays from a and, `first` behind, b; adds their sizes to *size. */
static double inner(const tow__check_values *a, const tow__check_values *b, size_t first, double *size)
{
    double sum = 0;
    for (size_t j = 0; j < a->n; j++)
        for (int64_t e = 0; e < a->counts[j]; e++) {
            const double term = a->arrays[j][e] * b->arrays[first + j][e];
            sum += term;
            *size += fabs(term);
        }
    return sum;
}

/* <ct, J v> = <J^T ct, v>. y: what the jvp gives, results and then tangents; forward: what the forward graph gives,
 * results and then residuals. */
static void compare_adjoint(tow__check *k, const tow_graph *back, size_t n_out, const tow__check_values *v,
                            const tow__check_values *y, const tow__check_values *forward, const tow__check_values *ct,
                            precision p)
{
    tow__check_values residuals = {.ctx = k->ctx, .n = forward->n - n_out}, inputs = tow__check_no_values(k),
                      found = inputs;
    for (size_t i = 0; i < residuals.n; i++) {
        residuals.arrays[i] = forward->arrays[n_out + i];
        residuals.counts[i] = forward->counts[n_out + i];
    }
    if (join(&residuals, ct, &inputs) && tow__check_evaluate(k, back, &inputs, &found)) {
        double size = 1e-3, ignored = 0;
        const double left = inner(ct, y, n_out, &size), right = inner(v, &found, 0, &ignored);
        tow__check_cleaning(k, back, &inputs, &found, "backward graph");
        if (!(fabs(left - right) <= p.adjoint * size))
            tow__check_fail(k, "transpose: <ct, J v> = %.15g, <J^T ct, v> = %.15g", left, right);
    }
    tow__check_free(&inputs);
    tow__check_free(&found);
}

static void check_reverse(tow__check *k, const tow_graph *graph, const tow__check_values *x, const size_t *wrt,
                          size_t n_wrt, precision p)
{
    tow__check_values v = tow__check_no_values(k), joint = v, y = v, forward = v, ct = v;
    tow_graph *jvp = NULL, *f = NULL, *b = NULL;
    size_t floats[TOW__CHECK_OUT], n_float = 0;
    const size_t n_out = tow_graph_output_count(graph);
    for (size_t i = 0; i < n_out; i++)
        if (tow_dtype_is_float(tow_graph_output_type(graph, i).dtype)) floats[n_float++] = i;
    if (!tow__check_random_like(x, wrt, n_wrt, 177, &v) || !join(x, &v, &joint) ||
        tow_jvp(graph, n_wrt, wrt, &jvp) != TOW_OK || tow_vjp(graph, n_wrt, wrt, &f, &b) != TOW_OK) {
        tow__check_fail(k, "vjp: %s", tow_context_error(k->ctx));
    } else if (tow__check_evaluate(k, jvp, &joint, &y) && tow__check_evaluate(k, f, x, &forward)) {
        tow__check_text(k, f, "forward graph");
        tow__check_text(k, b, "backward graph");
        if (tow__check_random_like(&y, floats, n_float, 277, &ct))
            compare_adjoint(k, b, n_out, &v, &y, &forward, &ct, p);
        else
            tow__check_fail(k, "vjp: %s", tow_context_error(k->ctx));
    }
    tow_graph_release(jvp);
    tow_graph_release(f);
    tow_graph_release(b);
    tow__check_free(&v);
    tow__check_free(&joint);
    tow__check_free(&y);
    tow__check_free(&forward);
    tow__check_free(&ct);
}

/* <gradient, v> against central differences of the scalar along v, where there is no forward mode to compare with. */
static void check_gradient(tow__check *k, const tow_graph *scalar, const tow__check_values *x,
                           const tow__check_values *gradient, const size_t *wrt, size_t n_wrt, precision p)
{
    tow__check_values v = tow__check_no_values(k), d = v, e = v;
    if (!tow__check_random_like(x, wrt, n_wrt, 377, &v)) {
        tow__check_fail(k, "grad: %s", tow_context_error(k->ctx));
    } else if (difference(k, scalar, x, &v, wrt, p.step, &d) && difference(k, scalar, x, &v, wrt, p.step / 2, &e)) {
        double found = 0, size = 1e-3;
        for (size_t j = 0; j < n_wrt; j++)
            for (int64_t i = 0; i < v.counts[j]; i++) {
                found += gradient->arrays[j][i] * v.arrays[j][i];
                size += fabs(gradient->arrays[j][i]);
            }
        const double a = d.arrays[0][0], b = e.arrays[0][0], best = (4 * b - a) / 3;
        if (!(fabs(found - best) <= fabs(a - b) * 0.1 + p.noise * size))
            tow__check_fail(k, "gradient: expected %.10g along a direction, found %.10g", best, found);
    }
    tow__check_free(&v);
    tow__check_free(&d);
    tow__check_free(&e);
}

/* ---- gradients of the weighted sum of results -------------------------------------------------------------------- */

/* In f32 against f64. */
static void compare_gradients(tow__check *k, const tow__check_values *all, const tow__check_values *g,
                              const size_t *wrt, size_t n_wrt)
{
    tow_graph *scalar = tow__check_scalar_graph(k, k->c, TOW_F32), *grad = NULL;
    tow__check_values found = tow__check_no_values(k);
    if (scalar && tow_grad(scalar, n_wrt, wrt, false, &grad) != TOW_OK)
        tow__check_fail(k, "grad: %s", tow_context_error(k->ctx));
    if (grad && tow__check_evaluate(k, grad, all, &found))
        for (size_t j = 0; j < found.n; j++) {
            const double tolerance = 4e-6 * (k->c->loose == 0 ? 1 : k->c->loose);
            int64_t e;
            if (!tow__check_close(found.arrays[j], g->arrays[j], g->counts[j], tolerance, &e))
                tow__check_fail_at(k, wrt[j], e, g->arrays[j][e], found.arrays[j][e],
                                   "gradient of input %zu, element %lld: f64 %.10g, f32 %.10g", wrt[j], (long long)e,
                                   g->arrays[j][e], found.arrays[j][e]);
        }
    tow_graph_release(scalar);
    tow_graph_release(grad);
    tow__check_free(&found);
}

static void check_grad(tow__check *k, tow_dtype floats, const tow__check_values *x, const size_t *wrt, size_t n_wrt)
{
    const precision p = precision_of(floats);
    tow_graph *scalar = tow__check_scalar_graph(k, k->c, floats), *grad = NULL;
    tow__check_values all = tow__check_no_values(k), g = all;
    if (!scalar) return;
    if (tow_grad(scalar, n_wrt, wrt, false, &grad) != TOW_OK || !tow__check_copy(x, &all) ||
        !tow__check_draw_weights(scalar, &all)) {
        tow__check_fail(k, "grad: %s", tow_context_error(k->ctx));
    } else if (tow__check_evaluate(k, grad, &all, &g)) {
        tow__check_text(k, grad, "gradient");
        tow__check_cleaning(k, grad, &all, &g, "gradient");
        if (floats == TOW_F64 && tow__check_runs(k->c, TOW_F32)) compare_gradients(k, &all, &g, wrt, n_wrt);
        if (k->c->reverse_only) check_gradient(k, scalar, &all, &g, wrt, n_wrt, p);
        if (!k->first_order) check_forward(k, grad, &all, wrt, n_wrt, p, "second derivative");
    }
    tow_graph_release(scalar);
    tow_graph_release(grad);
    tow__check_free(&all);
    tow__check_free(&g);
}

void tow__check_derivatives(tow__check *k, const tow__check_values *inputs)
{
    size_t wrt[TOW__CHECK_IN];
    const size_t n_wrt = tow__check_differentiable(k->c, wrt);
    const tow_dtype floats = tow__check_runs(k->c, TOW_F64) ? TOW_F64 : TOW_F32;
    if (n_wrt == 0 || k->c->no_derivative) return;
    tow_graph *graph = tow__check_graph(k, k->c, floats);
    if (tow__check_has_float_output(graph)) {
        const precision p = precision_of(floats);
        const int before = k->failures;
        k->done |= 1u << TOW_CHECK_JVP | 1u << TOW_CHECK_TRANSPOSE | 1u << TOW_CHECK_GRADIENT;
        k->kind = TOW_CHECK_JVP;
        if (!k->c->reverse_only) check_forward(k, graph, inputs, wrt, n_wrt, p, "first derivative");
        k->kind = TOW_CHECK_TRANSPOSE;
        if (!k->c->reverse_only && k->failures == before) check_reverse(k, graph, inputs, wrt, n_wrt, p);
        k->kind = TOW_CHECK_GRADIENT;
        if (k->failures == before) check_grad(k, floats, inputs, wrt, n_wrt);
    }
    tow_graph_release(graph);
}

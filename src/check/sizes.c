/* Axes of no elements: where the type rule takes them, everything runs. */
#include "src/check/check.h"

#include "src/base/base.h"
#include "tow/autodiff.h"

/* Runs a graph that was made of the case in another shape. */
static void run(tow__check *k, const tow_graph *graph, const tow__check_values *inputs, const char *what)
{
    tow__check_values found = tow__check_no_values(k);
    if (!graph)
        tow__check_fail(k, "%s: %s", what, tow_context_error(k->ctx));
    else
        tow__check_evaluate(k, graph, inputs, &found);
    tow__check_free(&found);
}

static void check_case(tow__check *k, const tow__check_case *c, tow_dtype floats)
{
    size_t wrt[TOW__CHECK_IN];
    const size_t n_wrt = c->no_derivative ? 0 : tow__check_differentiable(c, wrt);
    tow_graph *graph = tow__check_graph(k, c, floats), *scalar = NULL, *grad = NULL;
    tow__check_values x = {0};
    if (!graph) return;
    k->done |= 1u << TOW_CHECK_SIZES;
    if (!tow__check_draw(k, c, 0, &x)) {
        tow__check_fail(k, "%s", tow_context_error(k->ctx));
        goto done;
    }
    run(k, graph, &x, "the value");
    if (n_wrt == 0 || !tow__check_has_float_output(graph)) goto done;
    scalar = tow__check_scalar_graph(k, c, floats);
    if (!scalar) goto done;
    if (!tow__check_draw_weights(scalar, &x) || tow_grad(scalar, n_wrt, wrt, false, &grad) != TOW_OK)
        tow__check_fail(k, "the gradient: %s", tow_context_error(k->ctx));
    else
        run(k, grad, &x, "the gradient");
done:
    tow_graph_release(graph);
    tow_graph_release(scalar);
    tow_graph_release(grad);
    tow__check_free(&x);
}

/* Does the type rule take the shapes? */
static bool is_taken(tow__check *k, const tow__check_case *c, tow_dtype floats)
{
    tow__check quiet = {.ctx = k->ctx, .c = c};
    tow_graph *graph = tow__check_graph(&quiet, c, floats);
    tow_graph_release(graph);
    tow_context_clear_error(k->ctx);
    return graph;
}

/* The case with every axis of the size `size` empty; size -1: one of its first axes, of each operand; -2: all axes. */
static void check_empty(tow__check *k, int64_t size, tow_dtype floats)
{
    tow__check_case empty = *k->c;
    for (size_t i = 0; i < empty.n_in; i++)
        for (int d = 0; d < empty.in[i].rank; d++)
            if (size == empty.in[i].dims[d] || (size == -1 && d == 0) || size == -2) empty.in[i].dims[d] = 0;
    empty.prepare = NULL;
    if (is_taken(k, &empty, floats)) check_case(k, &empty, floats);
}

void tow__check_sizes(tow__check *k, tow_dtype floats)
{
    const tow__check_case *c = k->c;
    k->kind = TOW_CHECK_SIZES;
    if (c->build || c->fixed) return;
    check_empty(k, -1, floats);
    check_empty(k, -2, floats);
    for (size_t i = 0; i < c->n_in; i++)
        for (int d = 0; d < c->in[i].rank; d++) check_empty(k, c->in[i].dims[d], floats);
}

/* Derivatives of whole arrays: Jacobians by batching tangents or cotangents over the unit vectors, Hessians, and
 * gradients for each example of a batch.
 *
 *   jacfwd    column k of dy/dx = jvp with the tangent e_k: all columns are the rows of a batched jvp, whose primal
 *             values are the same for all rows and computed once
 *   jacrev    row k of dy/dx = vjp with the cotangent e_k: the forward graph once, the backward graph batched
 *   hessian   jacfwd of the gradient
 *
 * y: [o...], x: [i...], Jacobian: [o..., i...] */
#include "src/autodiff/batch.h"
#include "src/autodiff/transformations/differentiate.h"
#include "src/base/arithmetic.h"
#include "src/ops/rules.h"

/* ---- what both share --------------------------------------------------------------------------------------------- */

/* The unit vectors of an array of `type`: [elements, dims...], row k is 1 at element k. */
static tow_value unit_vectors(tow_trace *t, tow_type type)
{
    int64_t n = tow_type_element_count(type);
    tow_type square = tow_make_type(TOW_I32, 2, (int64_t[]){n, n});
    if (n > INT32_MAX || type.rank == TOW_MAX_RANK) {
        tow_trace_fail(t, TOW_UNSUPPORTED,
                       "a Jacobian of %s would need %lld unit vectors of rank %d; take fewer inputs "
                       "or reshape them",
                       tow__type_name(type).text, (long long)n, type.rank + 1);
        return tow__null();
    }
    tow_value one = tow_convert(tow_eq(tow_iota(t, square, 0), tow_iota(t, square, 1)), type.dtype);
    type = tow__with_axis(type, 0, n);
    return tow_reshape(one, type.rank, type.dims);
}

/* [n, ...] or [..., n] with the batch axis where the rule left it -> y's and x's axes side by side. */
static tow_value side_by_side(tow__mapped rows, int64_t size, tow_type y, tow_type x, bool rows_are_x)
{
    tow_type both = y;
    if (tow_is_null(rows.value)) return rows.value;
    if (y.rank + x.rank > TOW_MAX_RANK) {
        tow_trace_fail(
            rows.value.trace, TOW_UNSUPPORTED,
            "the Jacobian of %s with respect to %s would have rank %d, at most %d is possible; reshape one of "
            "them",
            tow__type_name(y).text, tow__type_name(x).text, y.rank + x.rank, TOW_MAX_RANK);
        return tow__null();
    }
    for (int d = 0; d < x.rank; d++) both.dims[both.rank++] = x.dims[d];
    tow_value matrix = tow__batched_at(rows, size, rows_are_x ? y.rank : 0);
    return tow_reshape(matrix, both.rank, both.dims);
}

/* ---- what is differentiated -------------------------------------------------------------------------------------- */

typedef struct inputs {
    size_t *list;
    size_t n;
} inputs;

/* A trace in which the inputs of g are inputs, and what is differentiated there. */
typedef struct jacobians {
    tow_trace *t;
    tow_value *x;   /* [inputs] */
    tow_value *out; /* [float outputs * chosen.n] */
    inputs chosen;
} jacobians;

static size_t float_outputs(const tow_graph *g)
{
    size_t n = 0;
    for (uint32_t i = 0; i < g->n_outputs; i++) n += tow_dtype_is_float(g->vars[g->outputs[i]].type.dtype);
    return n;
}

/* The inputs that are chosen, as a list in the trace's memory. */
static tow_status choose(const tow_graph *g, const char *caller, size_t n_wrt, const size_t *wrt, jacobians *j)
{
    bool *chosen = tow__trace_alloc(j->t, g->n_inputs, sizeof *chosen);
    j->chosen.list = tow__trace_alloc(j->t, g->n_inputs, sizeof *j->chosen.list);
    if (!chosen || !j->chosen.list) return TOW_OUT_OF_MEMORY;
    tow_status status = tow__choose_inputs(g, caller, n_wrt, wrt, chosen);
    for (uint32_t i = 0; status == TOW_OK && i < g->n_inputs; i++)
        if (chosen[i]) j->chosen.list[j->chosen.n++] = i;
    return status;
}

/* Errors name `caller`; then nothing is left behind. */
static tow_status begin(const tow_graph *g, const char *caller, size_t n_wrt, const size_t *wrt, jacobians *j)
{
    *j = (jacobians){.t = NULL};
    tow_status status = tow__check_any_float(g, caller);
    if (status != TOW_OK) return status;
    if (!(j->t = tow__trace_begin(g->ctx))) return TOW_OUT_OF_MEMORY;
    status = choose(g, caller, n_wrt, wrt, j);
    if (status != TOW_OK) {
        tow__trace_abandon(j->t);
        return status;
    }
    j->x = tow__trace_alloc(j->t, g->n_inputs, sizeof *j->x);
    j->out = tow__trace_alloc(j->t, float_outputs(g) * j->chosen.n, sizeof *j->out);
    for (uint32_t i = 0; j->x && j->out && i < g->n_inputs; i++)
        j->x[i] = tow__input(j->t, g->vars[g->inputs[i]].type, g->input_names[i]);
    return TOW_OK;
}

/* Ends the trace; equal equations are merged: primal values that several Jacobians share. */
static tow_status finish(const tow_graph *g, jacobians *j, tow_graph **result)
{
    tow_graph *all = NULL;
    tow_status status = tow__trace_end(j->t, j->out ? float_outputs(g) * j->chosen.n : 0, j->out, true, &all);
    if (status == TOW_OK) status = tow_graph_cse(all, result);
    tow_graph_release(all);
    return status;
}

/* ---- forward mode ------------------------------------------------------------------------------------------------ */

/* Column j of the list of Jacobians: those of all float outputs with respect to input `wrt`. jvp: (x..., dx) -> (y...,
 * dy...). columns: out[i * stride] is that of float output i; a stride of 1: there is no other column. */
static void record_columns(tow_trace *t, const tow_graph *g, const tow_graph *jvp, size_t wrt, const tow_value *x,
                           tow_value *out, size_t stride)
{
    tow_type type = g->vars[g->inputs[wrt]].type;
    int64_t size = tow_type_element_count(type);
    tow__mapped *in = tow__trace_alloc(t, jvp->n_inputs, sizeof *in),
                *y = tow__trace_alloc(t, jvp->n_outputs, sizeof *y);
    tow_value basis = unit_vectors(t, type);
    const bool alone = stride == 1;
    if (!in || !y || tow_is_null(basis)) return;
    for (uint32_t i = 0; i < g->n_inputs; i++) in[i] = (tow__mapped){.value = x[i], .axis = TOW__UNBATCHED};
    in[g->n_inputs] = (tow__mapped){.value = basis, .axis = 0};
    if (alone)
        tow__batch_inline(t, jvp, NULL, size, in, y);
    else
        tow__batch_inline(t, jvp, NULL, size, in, y);
    for (uint32_t i = 0, j = g->n_outputs; i < g->n_outputs; i++) {
        tow_type to = g->vars[g->outputs[i]].type;
        if (!tow_dtype_is_float(to.dtype)) continue;
        *out = side_by_side(y[j++], size, to, type, true);
        out += stride;
    }
}

tow_status tow_jacfwd(const tow_graph *graph, size_t n_wrt, const size_t *wrt, tow_graph **result)
{
    if (result) *result = NULL;
    if (!graph || !result) return tow__missing(tow__context_of(graph), __func__, "a graph and a place for the result");
    TOW__ARITHMETIC(false);
    jacobians j;
    tow_status status = begin(graph, "jacfwd", n_wrt, wrt, &j);
    if (status != TOW_OK) return status;
    for (size_t k = 0; k < j.chosen.n && !tow__failed(j.t); k++) {
        tow_graph *jvp = NULL;
        if (tow_jvp(graph, 1, &j.chosen.list[k], &jvp) != TOW_OK)
            tow__adopt_error(j.t);
        else
            record_columns(j.t, graph, jvp, j.chosen.list[k], j.x, j.out + k, j.chosen.n);
        tow_graph_release(jvp);
    }
    return finish(graph, &j, result);
}

/* ---- reverse mode ------------------------------------------------------------------------------------------------ */

/* Jacobians of output 0 of g, its only one, with respect to the chosen inputs. */
static void record_rows(tow_trace *t, const tow_graph *g, inputs chosen, const tow_value *x, tow_value *out)
{
    tow_graph *forward = NULL, *backward = NULL;
    tow_type y = g->vars[g->outputs[0]].type;
    int64_t size = tow_type_element_count(y);
    if (tow_vjp(g, chosen.n, chosen.list, &forward, &backward) != TOW_OK) {
        tow__adopt_error(t);
        return;
    }
    size_t residuals = backward->n_inputs - 1;
    tow_value *kept = tow__trace_alloc(t, forward->n_outputs, sizeof *kept), basis = unit_vectors(t, y);
    tow__mapped *in = tow__trace_alloc(t, backward->n_inputs, sizeof *in);
    tow__mapped *dx = tow__trace_alloc(t, backward->n_outputs, sizeof *dx);
    if (kept && in && dx && !tow_is_null(basis)) {
        tow__inline(t, forward, x, kept);
        for (size_t i = 0; i < residuals; i++) in[i] = (tow__mapped){.value = kept[1 + i], .axis = TOW__UNBATCHED};
        in[residuals] = (tow__mapped){.value = basis, .axis = 0};
        tow__batch_inline(t, backward, NULL, size, in, dx);
        for (size_t j = 0; j < chosen.n && !tow__failed(t); j++)
            out[j] = side_by_side(dx[j], size, y, g->vars[g->inputs[chosen.list[j]]].type, false);
    }
    tow_graph_release(forward);
    tow_graph_release(backward);
}

tow_status tow_jacrev(const tow_graph *graph, size_t n_wrt, const size_t *wrt, tow_graph **result)
{
    if (result) *result = NULL;
    if (!graph || !result) return tow__missing(tow__context_of(graph), __func__, "a graph and a place for the result");
    TOW__ARITHMETIC(false);
    jacobians j;
    tow_status status = begin(graph, "jacrev", n_wrt, wrt, &j);
    if (status != TOW_OK) return status;
    bool *used = tow__trace_alloc(j.t, graph->n_outputs, sizeof *used);
    tow_value *out = j.out;
    for (uint32_t i = 0; used && i < graph->n_outputs && !tow__failed(j.t); i++) {
        tow_graph *alone = NULL;
        if (!tow_dtype_is_float(graph->vars[graph->outputs[i]].type.dtype)) continue;
        used[i] = true;
        if (tow__dce(graph, used, false, NULL, &alone) != TOW_OK)
            tow__adopt_error(j.t);
        else
            record_rows(j.t, alone, j.chosen, j.x, out);
        tow_graph_release(alone);
        out += j.chosen.n;
        used[i] = false;
    }
    return finish(graph, &j, result);
}

/* ---- on top of both ---------------------------------------------------------------------------------------------- */

tow_status tow_hessian(const tow_graph *graph, size_t n_wrt, const size_t *wrt, tow_graph **result)
{
    if (result) *result = NULL;
    if (!graph || !result) return tow__missing(tow__context_of(graph), __func__, "a graph and a place for the result");
    tow_graph *gradient = NULL;
    tow_status status = tow_grad(graph, n_wrt, wrt, false, &gradient);
    if (status == TOW_OK) status = tow_jacfwd(gradient, n_wrt, wrt, result);
    tow_graph_release(gradient);
    return status;
}

tow_status tow_per_example_grad(const tow_graph *graph, size_t n_wrt, const size_t *wrt, bool has_aux, int64_t size,
                                const int *in_axes, tow_graph **result)
{
    if (result) *result = NULL;
    if (!graph || !result) return tow__missing(tow__context_of(graph), __func__, "a graph and a place for the result");
    tow_graph *gradient = NULL;
    tow_status status = tow_grad(graph, n_wrt, wrt, has_aux, &gradient);
    if (status == TOW_OK) status = tow_vmap(gradient, size, in_axes, NULL, result);
    tow_graph_release(gradient);
    return status;
}

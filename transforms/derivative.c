/* jvp, vjp and value_and_grad as layers: derivatives of a layer with respect to its inputs, inside of a model. The layer is recorded
 * aside in the scope of the transform, its graph is differentiated, and what comes out is recorded in its place: ordinary operations,
 * which are differentiated again for the gradient of the model. What the layer writes and sows is that of its one call. */
#include "tow/autodiff.h"
#include "tow/transforms.h"
#include "transforms/aside.h"

/* One call. */
typedef struct derivative {
    const char *name; /* "vjp" */
    tow_scope *scope;
    tow__aside aside;
    const tow_module *inner;
    size_t n_in, n_out; /* of the layer */
    const tow_value *in;
    size_t n_wrt, *wrt; /* its float inputs, as inputs of the body */
    tow__body body;
} derivative;

static bool is_float(tow_type type) { return tow_dtype_is_float(type.dtype); }

/* How many of the outputs [first, first + n) of the body are floats. */
static size_t count_float_outputs(const derivative *d, size_t first, size_t n)
{
    size_t floats = 0;
    for (size_t i = first; i < first + n; i++) floats += is_float(tow_graph_output_type(d->body.graph, i));
    return floats;
}

/* Counts what the transform gets and gives besides inputs and outputs of the layer; found: all of it. */
static bool check_counts(const derivative *d, const char *inputs, size_t n_in, size_t found_in, const char *outputs,
                         size_t n_out, size_t found_out)
{
    if (found_in == n_in && found_out == n_out) return true;
    tow_scope_fail(d->scope, TOW_INVALID_ARGUMENT,
                   "%s: expected %zu inputs (%s) and %zu outputs (%s), found %zu and %zu", d->name, n_in, inputs, n_out,
                   outputs, found_in, found_out);
    return false;
}

/* Records the layer on in[0..n_in). False: an error. */
static bool record(derivative *d)
{
    tow_trace *t = d->scope->model->trace;
    d->wrt = tow__trace_alloc(t, d->n_in, sizeof *d->wrt);
    if (!d->wrt || !tow__aside_record(&d->aside, d->inner, d->n_in, d->in, d->n_out, &d->body)) return false;
    for (size_t i = 0; i < d->n_in; i++)
        if (is_float(tow_value_type(d->in[i]))) d->wrt[d->n_wrt++] = d->body.n_captures + i;
    if (d->n_wrt == 0)
        tow_scope_fail(d->scope, TOW_INVALID_ARGUMENT,
                       "%s: no input of %s is a float; expected one or more to differentiate by", d->name,
                       d->inner->cls->name);
    return d->n_wrt > 0;
}

/* Records `graph`, whose inputs are those of the body and then more[0..n_more). NULL: an error. */
static tow_value *inline_graph(const derivative *d, const tow_graph *graph, size_t n_more, const tow_value *more)
{
    tow_trace *t = d->scope->model->trace;
    const size_t n = d->body.n_captures;
    tow_value *in = tow__trace_alloc(t, n + d->n_in + n_more, sizeof *in);
    tow_value *out = tow__trace_alloc(t, tow_graph_outputs(graph), sizeof *out);
    if (!in || !out) return NULL;
    if (n) memcpy(in, d->body.captures, n * sizeof *in);
    if (d->n_in) memcpy(in + n, d->in, d->n_in * sizeof *in);
    if (n_more) memcpy(in + n + d->n_in, more, n_more * sizeof *in);
    tow__inline(t, graph, in, out);
    return tow__failed(t) ? NULL : out;
}

/* True if a graph was made; else its error becomes that of the trace. */
static bool adopted(const derivative *d, tow_status status)
{
    if (status) tow__adopt_error(d->scope->model->trace);
    return status == TOW_OK;
}

/* Calls `run` with the layer recorded. */
static void with_layer(derivative *d, const tow_lift_rule *variables, const tow_lift_rule *streams,
                       void (*run)(derivative *d, const void *user), const void *user)
{
    if (!tow__aside_begin(&d->aside, d->scope, d->name, variables, streams)) return;
    if (record(d)) run(d, user);
    tow__aside_end(&d->aside);
    tow__body_free(&d->body);
}

/* Each value must have the type of its primal; kind: "tangent". */
static bool check_type(const derivative *d, const char *kind, size_t i, tow_type primal, tow_value found)
{
    if (tow_type_equal(primal, tow_value_type(found))) return true;
    tow_scope_fail(d->scope, TOW_TYPE_MISMATCH, "%s: %s %zu: expected %s, the type of its %s, found %s", d->name, kind,
                   i, tow__type_name(primal).text, kind[0] == 't' ? "input" : "output",
                   tow__type_name(tow_value_type(found)).text);
    return false;
}

/* What a transform gets behind the inputs of the layer, and where its results go. */
typedef struct places {
    size_t n_given, n_out;
    const tow_value *given;
    tow_value *out;
} places;

/* ---- jvp --------------------------------------------------------------------------------------------------------- */

/* given: dx of the float inputs. out: y..., dy of the float outputs. */
static void run_jvp(derivative *d, const void *user)
{
    const places *p = user;
    tow_graph *jvp = NULL;
    const size_t n_dy = count_float_outputs(d, 0, d->n_out);
    bool fine = check_counts(d, "those of the layer, and a tangent of each that is a float", d->n_in + d->n_wrt,
                             d->n_in + p->n_given, "those of the layer, and a tangent of each that is a float",
                             d->n_out + n_dy, p->n_out);
    for (size_t i = 0; i < d->n_wrt && fine; i++)
        fine = check_type(d, "tangent", i, tow_value_type(d->in[d->wrt[i] - d->body.n_captures]), p->given[i]);
    if (!fine || !adopted(d, tow_jvp(d->body.graph, d->n_wrt, d->wrt, &jvp))) return;
    const tow_value *all = inline_graph(d, jvp, d->n_wrt, p->given);
    if (all) {
        memcpy(p->out, all, d->n_out * sizeof *all);
        memcpy(p->out + d->n_out, all + d->body.n_out, n_dy * sizeof *all);
        tow__body_commit(d->scope->model, &d->body, all + d->n_out);
    }
    tow_graph_release(jvp);
}

static void call_jvp(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    const tow_jvp_layer *m = (const tow_jvp_layer *)module;
    derivative d = {.name = "jvp", .scope = scope, .inner = m->inner, .in = in};
    d.n_in = m->n_inputs ? m->n_inputs : 1;
    d.n_out = m->n_outputs ? m->n_outputs : 1;
    if (n_in < d.n_in || n_out < d.n_out) {
        check_counts(&d, "those of the layer, and their tangents", 2 * d.n_in, n_in,
                     "those of the layer, and their tangents", 2 * d.n_out, n_out);
        return;
    }
    const places p = {n_in - d.n_in, n_out, in + d.n_in, out};
    with_layer(&d, m->variables, m->streams, run_jvp, &p);
}

/* ---- vjp --------------------------------------------------------------------------------------------------------- */

/* The cotangents of all float outputs of the body: those that are given, zeros of what it writes and sows. NULL: an error. */
static tow_value *all_cotangents(const derivative *d, const places *p, size_t n, size_t n_residuals,
                                 const tow_value *residuals)
{
    tow_trace *t = d->scope->model->trace;
    tow_value *in = tow__trace_alloc(t, n_residuals + d->body.n_out, sizeof *in), *next = in + n_residuals;
    if (!in) return NULL;
    memcpy(in, residuals, n_residuals * sizeof *in);
    for (size_t i = 0, given = 0; i < d->body.n_out; i++) {
        const tow_type type = tow_graph_output_type(d->body.graph, i);
        if (!is_float(type)) continue;
        if (given < n && !check_type(d, "cotangent", given, type, p->given[given])) return NULL;
        *next++ = given < n ? p->given[given] : tow_full(t, type, 0);
        given++;
    }
    return in;
}

/* given: cotangents of the float outputs. out: y..., cotangents of the float inputs. */
static void run_vjp(derivative *d, const void *user)
{
    const places *p = user;
    tow_graph *forward = NULL, *backward = NULL;
    const size_t n_ct = count_float_outputs(d, 0, d->n_out);
    if (!check_counts(d, "those of the layer, and a cotangent of each output that is a float", d->n_in + n_ct,
                      d->n_in + p->n_given, "those of the layer, and a cotangent of each input that is a float",
                      d->n_out + d->n_wrt, p->n_out) ||
        !adopted(d, tow_vjp(d->body.graph, d->n_wrt, d->wrt, &forward, &backward)))
        return;
    const tow_value *all = inline_graph(d, forward, 0, NULL);
    const tow_value *in =
        all ? all_cotangents(d, p, n_ct, tow_graph_outputs(forward) - d->body.n_out, all + d->body.n_out) : NULL;
    if (in) {
        memcpy(p->out, all, d->n_out * sizeof *all);
        tow__inline(d->scope->model->trace, backward, in, p->out + d->n_out);
        tow__body_commit(d->scope->model, &d->body, all + d->n_out);
    }
    tow_graph_release(forward);
    tow_graph_release(backward);
}

static void call_vjp(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    const tow_vjp_layer *m = (const tow_vjp_layer *)module;
    derivative d = {.name = "vjp", .scope = scope, .inner = m->inner, .in = in};
    d.n_in = m->n_inputs ? m->n_inputs : 1;
    d.n_out = m->n_outputs ? m->n_outputs : 1;
    if (n_in < d.n_in || n_out < d.n_out) {
        check_counts(&d, "those of the layer, and cotangents of its outputs", d.n_in + d.n_out, n_in,
                     "those of the layer, and cotangents of its inputs", d.n_in + d.n_out, n_out);
        return;
    }
    const places p = {n_in - d.n_in, n_out, in + d.n_in, out};
    with_layer(&d, m->variables, m->streams, run_vjp, &p);
}

/* ---- value_and_grad ---------------------------------------------------------------------------------------------- */

/* out: y, aux..., gradients of the float inputs. */
static void run_value_and_grad(derivative *d, const void *user)
{
    const places *p = user;
    tow_graph *graph = NULL;
    const tow_type type = tow_graph_output_type(d->body.graph, 0);
    if (!check_counts(
            d, "those of the layer", d->n_in, d->n_in,
            "those of the layer, .n_aux of them behind the first one, and a gradient for each input that is a "
            "float",
            d->n_out + d->n_wrt, p->n_out))
        return;
    if (!is_float(type) || type.rank != 0) {
        tow_scope_fail(d->scope, is_float(type) ? TOW_SHAPE_MISMATCH : TOW_TYPE_MISMATCH,
                       "value_and_grad: output 0 of %s: expected a float scalar, found %s; add it up (tow_reduce_sum), "
                       "or use TOW_VJP",
                       d->inner->cls->name, tow__type_name(type).text);
        return;
    }
    if (!adopted(d, tow_value_and_grad(d->body.graph, d->n_wrt, d->wrt, true, &graph))) return;
    const tow_value *all = inline_graph(d, graph, 0, NULL);
    if (all) {
        memcpy(p->out, all, d->n_out * sizeof *all);
        memcpy(p->out + d->n_out, all + d->body.n_out, d->n_wrt * sizeof *all);
        tow__body_commit(d->scope->model, &d->body, all + d->n_out);
    }
    tow_graph_release(graph);
}

static void call_value_and_grad(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in,
                                size_t n_out, tow_value *out)
{
    const tow_value_and_grad_layer *m = (const tow_value_and_grad_layer *)module;
    derivative d = {.name = "value_and_grad", .scope = scope, .inner = m->inner, .in = in, .n_in = n_in};
    const places p = {.n_out = n_out, .out = out};
    if (m->n_aux >= n_out) {
        tow_scope_fail(
            scope, TOW_INVALID_ARGUMENT,
            "value_and_grad: .n_aux is %zu, found %zu outputs; expected one more than .n_aux, and a gradient "
            "for each input that is a float",
            m->n_aux, n_out);
        return;
    }
    d.n_out = 1 + m->n_aux;
    with_layer(&d, m->variables, m->streams, run_value_and_grad, &p);
}

const tow_module_class tow_jvp_layer_class = {.name = "jvp", .call = call_jvp};
const tow_module_class tow_vjp_layer_class = {.name = "vjp", .call = call_vjp};
const tow_module_class tow_value_and_grad_layer_class = {.name = "value_and_grad", .call = call_value_and_grad};

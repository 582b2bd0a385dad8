/* jvp, vjp and value_and_grad as layers: derivatives of a layer with respect to its inputs and parameters, inside of a
 * model. The layer is recorded aside in the scope of the transform, its graph is differentiated, and what comes out is
 * recorded in its place: ordinary operations, which are differentiated again for the gradient of the model. The values
 * that the layer writes and sows are those of its one call. */
#include "src/scope/lift.h"
#include "src/scope/store.h"
#include "src/scope/tree.h"
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
    const char *const *names; /* .wrt: parameters below the scope; NULL: none */
    size_t n_names;
    tow_type *types; /* [n_names] of them */
    size_t *slot;    /* [n_names]: which of wrt a parameter is; NOT_READ: the layer computes nothing of it */
    size_t n_wrt;    /* what the body is differentiated by: n_read parameters that it captures, then its float inputs */
    size_t n_read;
    size_t *wrt; /* [n_wrt], inputs of the body, increasing */
    tow__recorded_body body;
} derivative;

#define NOT_READ SIZE_MAX
static size_t count_float_inputs(const derivative *d) { return d->n_wrt - d->n_read; }

static bool is_float(tow_type type) { return tow_dtype_is_float(type.dtype); }

/* The number of floats among the outputs [first, first + n) of the body. */
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

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* The parameter that .wrt calls `name`: its type here, and its value, a null value while initializing. False: an
 * error. */
static bool find_parameter(const derivative *d, const char *name, tow_type *type, tow_value *value)
{
    tow__model *m = d->scope->model;
    const char *last;
    tow__resolved resolved;
    const tow_scope *scope = tow__scope_at(d->scope, name, &last);
    if (tow__scope_failed(d->scope)) return false;
    if (scope && !tow__resolve(scope, "params", last, &resolved)) return false;
    const char *path = scope ? tow__entry_path(resolved.scope, NULL, last) : NULL;
    if (scope && !path) return false;
    const uint32_t index = path ? tow__names_find(&m->params.list->names, path) : TOW__NO_NAME;
    if (index == TOW__NO_NAME) {
        tow_scope_fail(
            d->scope, TOW_NOT_FOUND,
            "%s: .wrt: \"%s\" is no parameter of %s that it has asked for; expected a path below it, such as "
            "\"dense/kernel\"",
            d->name, name, d->inner->cls->name);
        return false;
    }
    *type = tow__seen_type(resolved.scope, m->params.list->types[index]);
    *value = m->initializing ? (tow_value){0} : tow__import(m->trace, tow__param_value(m, index));
    return !tow__scope_failed(d->scope);
}

/* The index of a value among the captures of the body. NOT_READ: none. */
static size_t capture_of(const derivative *d, tow_value value)
{
    for (size_t i = 0; !tow_is_null(value) && i < d->body.n_captures; i++)
        if (d->body.captures[i].id == value.id) return i;
    return NOT_READ;
}

/* wrt[0..n_read): the captures that are parameters of .wrt, increasing. False: an error. */
static bool find_parameters(derivative *d)
{
    tow_trace *t = d->scope->model->trace;
    size_t *captured = tow__trace_alloc(t, d->n_names + 1, sizeof *captured);
    if (!captured) return false;
    for (size_t i = 0; i < d->n_names; i++) {
        tow_value value;
        if (!find_parameter(d, d->names[i], &d->types[i], &value)) return false;
        captured[i] = capture_of(d, value);
        size_t at = d->n_read;
        for (size_t k = 0; k < i; k++) {
            if (strcmp(d->names[k], d->names[i]) != 0) continue;
            tow_scope_fail(d->scope, TOW_INVALID_ARGUMENT, "%s: .wrt names \"%s\" twice; name it once", d->name,
                           d->names[i]);
            return false;
        }
        if (captured[i] == NOT_READ) continue;
        for (; at > 0 && d->wrt[at - 1] > captured[i]; at--) d->wrt[at] = d->wrt[at - 1];
        d->wrt[at] = captured[i];
        d->n_read++;
    }
    for (size_t i = 0; i < d->n_names; i++) {
        d->slot[i] = captured[i] == NOT_READ ? NOT_READ : 0;
        while (captured[i] != NOT_READ && d->wrt[d->slot[i]] != captured[i]) d->slot[i]++;
    }
    return true;
}

/* Derivatives in the order of wrt, at `by_wrt`, to their places: those of the inputs, then those of the parameters. */
static void place(const derivative *d, const tow_value *by_wrt, tow_value *out)
{
    const size_t n = count_float_inputs(d);
    if (n) memcpy(out, by_wrt + d->n_read, n * sizeof *out);
    for (size_t i = 0; i < d->n_names; i++)
        out[n + i] = d->slot[i] == NOT_READ ? tow_full(d->scope->model->trace, d->types[i], 0) : by_wrt[d->slot[i]];
}

/* Records the layer on in[0..n_in). False: an error. */
static bool record(derivative *d)
{
    tow_trace *t = d->scope->model->trace;
    while (d->names && d->names[d->n_names]) d->n_names++;
    d->wrt = tow__trace_alloc(t, d->n_in + d->n_names, sizeof *d->wrt);
    d->types = tow__trace_alloc(t, d->n_names, sizeof *d->types);
    d->slot = tow__trace_alloc(t, d->n_names, sizeof *d->slot);
    if (!d->wrt || !d->types || !d->slot) return false;
    if (!tow__aside_record(&d->aside, d->inner, d->n_in, d->in, d->n_out, &d->body) || !find_parameters(d))
        return false;
    d->n_wrt = d->n_read;
    for (size_t i = 0; i < d->n_in; i++)
        if (is_float(tow_value_type(d->in[i]))) d->wrt[d->n_wrt++] = d->body.n_captures + i;
    if (d->n_wrt + d->n_names == 0)
        tow_scope_fail(d->scope, TOW_INVALID_ARGUMENT,
                       "%s: no input of %s is a float; expected one or more to differentiate by, or parameters in .wrt",
                       d->name, d->inner->cls->name);
    return d->n_wrt + d->n_names > 0;
}

/* Records `graph`, whose inputs are those of the body and then more[0..n_more). NULL: an error. */
static tow_value *inline_graph(const derivative *d, const tow_graph *graph, size_t n_more, const tow_value *more)
{
    tow_trace *t = d->scope->model->trace;
    const size_t n = d->body.n_captures;
    tow_value *in = tow__trace_alloc(t, n + d->n_in + n_more, sizeof *in);
    tow_value *out = tow__trace_alloc(t, tow_graph_output_count(graph), sizeof *out);
    if (!in || !out) return NULL;
    if (n) memcpy(in, d->body.captures, n * sizeof *in);
    if (d->n_in) memcpy(in + n, d->in, d->n_in * sizeof *in);
    if (n_more) memcpy(in + n + d->n_in, more, n_more * sizeof *in);
    tow__inline(t, graph, in, out);
    return tow__failed(t) ? NULL : out;
}

/* The operands of a transform behind the inputs of the layer, and the place of its results. */
typedef struct places {
    size_t n_given, n_out;
    const tow_value *given;
    tow_value *out;
} places;

/* Results of a layer that computes nothing of what it is differentiated by: its own, and zeros. */
static void run_plain(const derivative *d, const places *p)
{
    const tow_value *all = inline_graph(d, d->body.graph, 0, NULL);
    if (!all) return;
    memcpy(p->out, all, d->n_out * sizeof *all);
    place(d, NULL, p->out + d->n_out);
    tow__body_commit(d->scope->model, &d->body, all + d->n_out);
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
                   i, tow__type_name(primal).text,
                   kind[0] != 't'              ? "output"
                   : i < count_float_inputs(d) ? "input"
                                               : "parameter",
                   tow__type_name(tow_value_type(found)).text);
    return false;
}

/* ---- jvp --------------------------------------------------------------------------------------------------------- */

/* y..., and zeros for the tangents of its floats: nothing that has a tangent is read. */
static void run_still(const derivative *d, const places *p, size_t n_dy)
{
    const tow_value *all = inline_graph(d, d->body.graph, 0, NULL);
    if (!all) return;
    memcpy(p->out, all, d->n_out * sizeof *all);
    for (size_t i = 0, next = 0; i < d->n_out && next < n_dy; i++) {
        const tow_type type = tow_value_type(all[i]);
        if (is_float(type)) p->out[d->n_out + next++] = tow_full(d->scope->model->trace, type, 0);
    }
    tow__body_commit(d->scope->model, &d->body, all + d->n_out);
}

/* given: dx of the float inputs, then of the parameters. out: y..., dy of the float outputs. */
static void run_jvp(derivative *d, const void *user)
{
    const places *p = user;
    tow_graph *jvp = NULL;
    const size_t n_dy = count_float_outputs(d, 0, d->n_out);
    const size_t n_dx = count_float_inputs(d);
    bool fine = check_counts(d, "those of the layer, a tangent of each that is a float, and of the parameters in .wrt",
                             d->n_in + n_dx + d->n_names, d->n_in + p->n_given,
                             "those of the layer, and a tangent of each that is a float", d->n_out + n_dy, p->n_out);
    for (size_t i = 0; i < n_dx && fine; i++)
        fine =
            check_type(d, "tangent", i, tow_value_type(d->in[d->wrt[d->n_read + i] - d->body.n_captures]), p->given[i]);
    for (size_t i = 0; i < d->n_names && fine; i++)
        fine = check_type(d, "tangent", n_dx + i, d->types[i], p->given[n_dx + i]);
    tow_value *tangents = fine ? tow__trace_alloc(d->scope->model->trace, d->n_wrt, sizeof *tangents) : NULL;
    if (!tangents) return;
    for (size_t i = 0; i < d->n_names; i++)
        if (d->slot[i] != NOT_READ) tangents[d->slot[i]] = p->given[n_dx + i];
    if (n_dx) memcpy(tangents + d->n_read, p->given, n_dx * sizeof *tangents);
    if (d->n_wrt == 0) {
        run_still(d, p, n_dy);
        return;
    }
    if (!adopted(d, tow_jvp(d->body.graph, d->n_wrt, d->wrt, &jvp))) return;
    const tow_value *all = inline_graph(d, jvp, d->n_wrt, tangents);
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
    derivative d = {.name = "jvp", .scope = scope, .inner = m->inner, .in = in, .names = m->wrt};
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

/* The cotangents of all float outputs of the body: those that are given, zeros of what it writes and sows. NULL: an
 * error. */
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

/* given: cotangents of the float outputs. out: y..., cotangents of the float inputs, then of the parameters. */
static void run_vjp(derivative *d, const void *user)
{
    const places *p = user;
    tow_graph *forward = NULL, *backward = NULL;
    const size_t n_ct = count_float_outputs(d, 0, d->n_out);
    if (!check_counts(d, "those of the layer, and a cotangent of each output that is a float", d->n_in + n_ct,
                      d->n_in + p->n_given,
                      "those of the layer, a cotangent of each input that is a float, and of the parameters in .wrt",
                      d->n_out + count_float_inputs(d) + d->n_names, p->n_out))
        return;
    if (d->n_wrt == 0) {
        run_plain(d, p);
        return;
    }
    tow_value *by_wrt = tow__trace_alloc(d->scope->model->trace, d->n_wrt, sizeof *by_wrt);
    if (!by_wrt || !adopted(d, tow_vjp(d->body.graph, d->n_wrt, d->wrt, &forward, &backward))) return;
    const tow_value *all = inline_graph(d, forward, 0, NULL);
    const tow_value *in =
        all ? all_cotangents(d, p, n_ct, tow_graph_output_count(forward) - d->body.n_out, all + d->body.n_out) : NULL;
    if (in) {
        memcpy(p->out, all, d->n_out * sizeof *all);
        tow__inline(d->scope->model->trace, backward, in, by_wrt);
        place(d, by_wrt, p->out + d->n_out);
        tow__body_commit(d->scope->model, &d->body, all + d->n_out);
    }
    tow_graph_release(forward);
    tow_graph_release(backward);
}

static void call_vjp(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    const tow_vjp_layer *m = (const tow_vjp_layer *)module;
    derivative d = {.name = "vjp", .scope = scope, .inner = m->inner, .in = in, .names = m->wrt};
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

/* out: y, aux..., gradients of the float inputs, then of the parameters. */
static void run_value_and_grad(derivative *d, const void *user)
{
    const places *p = user;
    tow_graph *graph = NULL;
    const tow_type type = tow_graph_output_type(d->body.graph, 0);
    if (!check_counts(
            d, "those of the layer", d->n_in, d->n_in,
            "those of the layer, .n_aux of them behind the first one, a gradient for each input that is a float, and "
            "for the parameters in .wrt",
            d->n_out + count_float_inputs(d) + d->n_names, p->n_out))
        return;
    if (!is_float(type) || type.rank != 0) {
        tow_scope_fail(d->scope, is_float(type) ? TOW_SHAPE_MISMATCH : TOW_TYPE_MISMATCH,
                       "value_and_grad: output 0 of %s: expected a float scalar, found %s; add it up (tow_reduce_sum), "
                       "or use TOW_VJP",
                       d->inner->cls->name, tow__type_name(type).text);
        return;
    }
    if (d->n_wrt == 0) {
        run_plain(d, p);
        return;
    }
    if (!adopted(d, tow_value_and_grad(d->body.graph, d->n_wrt, d->wrt, true, &graph))) return;
    const tow_value *all = inline_graph(d, graph, 0, NULL);
    if (all) {
        memcpy(p->out, all, d->n_out * sizeof *all);
        place(d, all + d->body.n_out, p->out + d->n_out);
        tow__body_commit(d->scope->model, &d->body, all + d->n_out);
    }
    tow_graph_release(graph);
}

static void call_value_and_grad(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in,
                                size_t n_out, tow_value *out)
{
    const tow_value_and_grad_layer *m = (const tow_value_and_grad_layer *)module;
    derivative d = {
        .name = "value_and_grad", .scope = scope, .inner = m->inner, .in = in, .n_in = n_in, .names = m->wrt};
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

const tow_module_class tow_jvp_layer_class = {
    TOW__MADE_BY(TOW_JVP, tow_jvp_layer), .name = "jvp", .call = call_jvp,
    .layout = TOW__LAYOUT_OF(tow_jvp_layer, TOW_MEMBER(tow_jvp_layer, inner, TOW_MEMBER_LAYER),
                             TOW_MEMBER(tow_jvp_layer, wrt, TOW_MEMBER_NAMES),
                             TOW_MEMBER(tow_jvp_layer, variables, TOW_MEMBER_RULES),
                             TOW_MEMBER(tow_jvp_layer, streams, TOW_MEMBER_RULES))};
const tow_module_class tow_vjp_layer_class = {
    TOW__MADE_BY(TOW_VJP, tow_vjp_layer), .name = "vjp", .call = call_vjp,
    .layout = TOW__LAYOUT_OF(tow_vjp_layer, TOW_MEMBER(tow_vjp_layer, inner, TOW_MEMBER_LAYER),
                             TOW_MEMBER(tow_vjp_layer, wrt, TOW_MEMBER_NAMES),
                             TOW_MEMBER(tow_vjp_layer, variables, TOW_MEMBER_RULES),
                             TOW_MEMBER(tow_vjp_layer, streams, TOW_MEMBER_RULES))};
const tow_module_class tow_value_and_grad_layer_class = {
    TOW__MADE_BY(TOW_VALUE_AND_GRAD, tow_value_and_grad_layer), .name = "value_and_grad", .call = call_value_and_grad,
    .layout = TOW__LAYOUT_OF(tow_value_and_grad_layer, TOW_MEMBER(tow_value_and_grad_layer, inner, TOW_MEMBER_LAYER),
                             TOW_MEMBER(tow_value_and_grad_layer, wrt, TOW_MEMBER_NAMES),
                             TOW_MEMBER(tow_value_and_grad_layer, variables, TOW_MEMBER_RULES),
                             TOW_MEMBER(tow_value_and_grad_layer, streams, TOW_MEMBER_RULES))};

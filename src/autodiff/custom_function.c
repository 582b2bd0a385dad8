/* tow_custom_jvp_function, tow_custom_vjp_function: trace a function and its rules, and bind the call.
 *
 * The order of operands is captured values, fixed inputs, all other inputs. Each function is traced by itself and captures
 * what it uses; all of them then get the union of the captured values. */
#include "tow/custom.h"

#include "src/autodiff/custom.h"
#include "src/ops/rules.h"

/* A call under construction. */
typedef struct call {
    tow_trace *t;
    const char *op, *name;
    void *user;
    size_t n_in, n_out, n_fixed;
    const tow_value *in; /* [n_in] a copy: results may be written over the operands */
    const bool *fixed;   /* [n_in] */
    tow_type *in_types, *out_types;
} call;

/* One of its functions after tracing: (captured, its inputs) -> results. */
typedef struct traced {
    tow_graph *graph;
    size_t n_captures;
    tow_value *captures;
} traced;

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* The error that functions or lists are missing; true if none is. */
static bool all_given(const call *c, bool functions, const tow_value *in, const tow_value *out)
{
    if (functions && (c->n_in == 0 || in) && (c->n_out == 0 || out)) return true;
    tow_trace_fail(
        c->t, TOW_INVALID_ARGUMENT,
        "%s: expected all functions, %zu inputs and places for %zu outputs, found NULL; pass what is missing", c->op,
        c->n_in, c->n_out);
    return false;
}

static bool begin(call *c, bool functions, const tow_custom_options *options, const tow_value *in, tow_value *out)
{
    if (!tow__records(c->t, NULL) || !all_given(c, functions, in, out)) return false;
    tow_value *copy = tow__trace_alloc(c->t, c->n_in, sizeof *copy);
    bool *fixed = tow__trace_alloc(c->t, c->n_in, sizeof *fixed);
    c->in_types = tow__trace_alloc(c->t, c->n_in, sizeof *c->in_types);
    c->out_types = tow__trace_alloc(c->t, c->n_out, sizeof *c->out_types);
    if (!copy || !fixed || !c->in_types || !c->out_types) return false;
    for (size_t i = 0; i < c->n_in; i++) {
        if (!tow__is_current(c->t, in[i])) return false;
        copy[i] = in[i];
        c->in_types[i] = tow_value_type(in[i]);
        fixed[i] = options && options->fixed && options->fixed[i];
        c->n_fixed += fixed[i];
    }
    c->in = copy;
    c->fixed = fixed;
    c->name = options && options->name ? options->name : "function";
    return true;
}

static void clear(size_t n, tow_value *values)
{
    for (size_t i = 0; values && i < n; i++) values[i] = tow__null();
}

static bool is_differentiated(const call *c, size_t i) { return !c->fixed[i] && tow__has_tangent(c->in_types[i]); }

/* Placeholders for x: fixed inputs first. */
static void add_inputs(const call *c, tow_value *x)
{
    for (int fixed = 1; fixed >= 0; fixed--)
        for (size_t i = 0; i < c->n_in; i++)
            if (c->fixed[i] == (fixed == 1)) x[i] = tow__input(c->t, c->in_types[i], NULL);
}

/* ---- tracing ----------------------------------------------------------------------------------------------------- */

/* Runs function on in; checks nothing but that it wrote within its n places. */
static void run(const call *c, tow_function function, const tow_value *in, size_t n, tow_value *out)
{
    if (tow__failed(c->t)) return;
    function(c->t, in, out, c->user);
    tow__check_guards(c->t, "outputs", n, out);
}

static bool close_function(const call *c, size_t n, const tow_value *results, traced *f)
{
    f->graph = tow__pop(c->t, n, results, &f->n_captures, &f->captures);
    return f->graph && tow__may_nest(c->t, f->graph->depth);
}

/* Result `index` of `what` must be of this type. */
static void check_result(const call *c, const char *what, const char *kind, size_t index, tow_value found,
                         tow_type type)
{
    if (tow__failed(c->t)) return;
    if (tow_is_null(found))
        tow_trace_fail(c->t, TOW_INVALID_ARGUMENT, "%s %s: %s %zu was never written by the %s; it must be %s", c->op,
                       c->name, kind, index, what, tow__type_name(type).text);
    else if (tow__is_current(c->t, found) && !tow_type_equal(tow_value_type(found), type))
        tow_trace_fail(c->t, TOW_SHAPE_MISMATCH, "%s%s%s %s: %s %zu of the %s must be %s, found %s",
                       found.here ? found.here : "", found.here ? ": " : "", c->op, c->name, kind, index, what,
                       tow__type_name(type).text, tow__type_name(tow_value_type(found)).text);
}

/* A tangent or cotangent of a value of this type, null standing for zeros; *at counts those that there are. */
static void take_linear(const call *c, const char *what, const char *kind, size_t index, tow_value found, tow_type type,
                        bool exists, tow_value *results, size_t *at)
{
    if (tow__failed(c->t)) return;
    if (!exists) {
        if (!tow_is_null(found))
            tow_trace_fail(c->t, TOW_INVALID_ARGUMENT,
                           "%s %s: %s %zu of the %s must be left null, because %s is not differentiated", c->op,
                           c->name, kind, index, what, tow__type_name(type).text);
        return;
    }
    if (tow_is_null(found)) found = tow__zeros(c->t, type);
    check_result(c, what, kind, index, found, type);
    results[(*at)++] = found;
}

/* y = function(x): gives the types of the outputs. */
static bool trace_body(call *c, tow_function function, traced *f)
{
    tow_value *x = tow__trace_alloc(c->t, c->n_in, sizeof *x), *y = tow__guarded_alloc(c->t, c->n_out);
    if (!x || !y || !tow__may_nest(c->t, 1)) return false;
    tow__push(c->t);
    add_inputs(c, x);
    run(c, function, x, c->n_out, y);
    for (size_t i = 0; i < c->n_out && !tow__failed(c->t); i++) {
        if (tow_is_null(y[i]))
            tow_trace_fail(c->t, TOW_INVALID_ARGUMENT, "%s %s: output %zu of %zu was never written by the function",
                           c->op, c->name, i, c->n_out);
        else if (tow__is_current(c->t, y[i]))
            c->out_types[i] = tow_value_type(y[i]);
    }
    return close_function(c, c->n_out, y, f);
}

/* (x, dx) -> (y, dy) */
static bool trace_rule(const call *c, tow_function rule, traced *f)
{
    tow_value *in = tow__trace_alloc(c->t, 2 * c->n_in, sizeof *in), *out = tow__guarded_alloc(c->t, 2 * c->n_out);
    tow_value *results = tow__trace_alloc(c->t, 2 * c->n_out, sizeof *results);
    size_t n = c->n_out;
    if (!in || !out || !results || !tow__may_nest(c->t, 1)) return false;
    tow__push(c->t);
    add_inputs(c, in);
    for (size_t i = 0; i < c->n_in; i++)
        if (is_differentiated(c, i)) in[c->n_in + i] = tow__input(c->t, c->in_types[i], NULL);
    run(c, rule, in, 2 * c->n_out, out);
    for (size_t i = 0; i < c->n_out; i++) {
        check_result(c, "rule", "output", i, out[i], c->out_types[i]);
        results[i] = out[i];
    }
    for (size_t i = 0; i < c->n_out; i++)
        take_linear(c, "rule", "the tangent of output", i, out[c->n_out + i], c->out_types[i],
                    tow__has_tangent(c->out_types[i]), results, &n);
    return close_function(c, n, results, f);
}

/* x -> (y, residuals); types of the residuals. */
static bool trace_forward(const call *c, tow_function forward, size_t n_residuals, tow_type *types, traced *f)
{
    tow_value *x = tow__trace_alloc(c->t, c->n_in, sizeof *x), *out = tow__guarded_alloc(c->t, c->n_out + n_residuals);
    if (!x || !out || !tow__may_nest(c->t, 1)) return false;
    tow__push(c->t);
    add_inputs(c, x);
    run(c, forward, x, c->n_out + n_residuals, out);
    for (size_t i = 0; i < c->n_out; i++) check_result(c, "forward function", "output", i, out[i], c->out_types[i]);
    for (size_t i = 0; i < n_residuals && !tow__failed(c->t); i++) {
        tow_value found = out[c->n_out + i];
        if (tow_is_null(found))
            tow_trace_fail(c->t, TOW_INVALID_ARGUMENT,
                           "%s %s: residual %zu of %zu was never written by the forward function", c->op, c->name, i,
                           n_residuals);
        else if (tow__is_current(c->t, found))
            types[i] = tow_value_type(found);
    }
    return close_function(c, c->n_out + n_residuals, out, f);
}

/* (residuals, ct of y) -> ct of x */
static bool trace_backward(const call *c, tow_function backward, size_t n_residuals, const tow_type *types, traced *f)
{
    tow_value *in = tow__trace_alloc(c->t, n_residuals + c->n_out, sizeof *in),
              *out = tow__guarded_alloc(c->t, c->n_in);
    tow_value *results = tow__trace_alloc(c->t, c->n_in, sizeof *results);
    size_t n = 0;
    if (!in || !out || !results || !tow__may_nest(c->t, 1)) return false;
    tow__push(c->t);
    for (size_t i = 0; i < n_residuals; i++) in[i] = tow__input(c->t, types[i], NULL);
    for (size_t i = 0; i < c->n_out; i++)
        if (tow__has_tangent(c->out_types[i])) in[n_residuals + i] = tow__input(c->t, c->out_types[i], NULL);
    run(c, backward, in, c->n_in, out);
    for (size_t i = 0; i < c->n_in; i++)
        take_linear(c, "backward function", "the cotangent of input", i, out[i], c->in_types[i],
                    is_differentiated(c, i), results, &n);
    return close_function(c, n, results, f);
}

/* ---- captured values --------------------------------------------------------------------------------------------- */

/* Values that any of the functions captured, each once. */
typedef struct capture_union {
    tow_value *values;
    size_t n;
} capture_union;

static size_t place_in(const capture_union *u, tow_value v)
{
    size_t i = 0;
    while (i < u->n && u->values[i].id != v.id) i++;
    return i;
}

static bool unite(tow_trace *t, size_t n, const traced *functions, capture_union *u)
{
    size_t most = 0;
    for (size_t k = 0; k < n; k++) most += functions[k].n_captures;
    u->values = tow__trace_alloc(t, most, sizeof *u->values);
    for (size_t k = 0; u->values && k < n; k++)
        for (size_t i = 0; i < functions[k].n_captures; i++)
            if (place_in(u, functions[k].captures[i]) == u->n) u->values[u->n++] = functions[k].captures[i];
    return u->values != NULL;
}

/* The function with all captured values as its first inputs. */
static bool capture_all(tow_trace *t, const capture_union *u, traced *f)
{
    tow_graph *g = f->graph, *whole = NULL;
    tow_value *in, *out;
    if (f->n_captures == u->n && u->n == 0) return true;
    tow_trace *inner = tow__trace_begin_over(g, &in, &out);
    tow_value *all = inner ? tow__trace_alloc(inner, u->n, sizeof *all) : NULL;
    if (all) {
        for (size_t i = 0; i < u->n; i++) all[i] = tow__input(inner, tow_value_type(u->values[i]), NULL);
        for (size_t i = 0; i < f->n_captures; i++) in[i] = all[place_in(u, f->captures[i])];
        for (size_t i = f->n_captures; i < g->n_inputs; i++)
            in[i] = tow__input(inner, tow_graph_input_type(g, i), g->input_names[i]);
        tow__inline(inner, g, in, out);
        tow__trace_end(inner, g->n_outputs, out, false, &whole);
    } else if (inner) {
        tow__trace_abandon(inner);
    }
    if (!whole) {
        tow__adopt_error(t);
        return false;
    }
    tow_graph_release(g);
    f->graph = whole;
    return true;
}

/* Gives all functions the same captured values. */
static bool close_over(const call *c, size_t n, traced *functions, capture_union *u)
{
    bool fine = unite(c->t, n, functions, u);
    for (size_t k = 0; fine && k < n; k++) fine = capture_all(c->t, u, &functions[k]);
    return fine;
}

static void bind_call(const call *c, const tow_primitive *p, const void *params, const capture_union *u,
                      tow_value *outputs)
{
    tow_value *operands = tow__trace_alloc(c->t, u->n + c->n_in, sizeof *operands);
    size_t n = u->n;
    if (!operands) return;
    if (u->n) memcpy(operands, u->values, u->n * sizeof *operands);
    for (int fixed = 1; fixed >= 0; fixed--)
        for (size_t i = 0; i < c->n_in; i++)
            if (c->fixed[i] == (fixed == 1)) operands[n++] = c->in[i];
    tow__bind(c->t, p, params, n, operands, c->n_out, outputs);
}

/* ---- the public functions ---------------------------------------------------------------------------------------- */

void tow_custom_jvp_function(tow_trace *trace, tow_function function, tow_function rule, void *user,
                             const tow_custom_options *options, size_t n_inputs, const tow_value *inputs,
                             size_t n_outputs, tow_value *outputs)
{
    call c = {.t = trace, .op = "custom_jvp", .user = user, .n_in = n_inputs, .n_out = n_outputs};
    traced f[2] = {{0}};
    capture_union u = {0};
    bool fine = begin(&c, function && rule, options, inputs, outputs);
    clear(n_outputs, outputs);
    if (fine && trace_body(&c, function, &f[0]) && trace_rule(&c, rule, &f[1]) && close_over(&c, 2, f, &u)) {
        tow__custom_jvp_params params = {.name = c.name,
                                         .captured = (int64_t)u.n,
                                         .fixed = (int64_t)c.n_fixed,
                                         .body = f[0].graph,
                                         .rule = f[1].graph};
        bind_call(&c, &tow__custom_jvp_p, &params, &u, outputs);
    }
    for (int k = 0; k < 2; k++) tow_graph_release(f[k].graph);
}

void tow_custom_vjp_function(tow_trace *trace, tow_function function, tow_function forward, tow_function backward,
                             void *user, const tow_custom_options *options, size_t n_inputs, const tow_value *inputs,
                             size_t n_residuals, size_t n_outputs, tow_value *outputs)
{
    call c = {.t = trace, .op = "custom_vjp", .user = user, .n_in = n_inputs, .n_out = n_outputs};
    traced f[3] = {{0}};
    capture_union u = {0};
    bool fine = begin(&c, function && forward && backward, options, inputs, outputs);
    tow_type *types = fine ? tow__trace_alloc(trace, n_residuals, sizeof *types) : NULL;
    clear(n_outputs, outputs);
    if (types && trace_body(&c, function, &f[0]) && trace_forward(&c, forward, n_residuals, types, &f[1]) &&
        trace_backward(&c, backward, n_residuals, types, &f[2]) && close_over(&c, 3, f, &u)) {
        tow__custom_vjp_params params = {.name = c.name,
                                         .captured = (int64_t)u.n,
                                         .fixed = (int64_t)c.n_fixed,
                                         .body = f[0].graph,
                                         .forward = f[1].graph,
                                         .backward = f[2].graph};
        bind_call(&c, &tow__custom_vjp_p, &params, &u, outputs);
    }
    for (int k = 0; k < 3; k++) tow_graph_release(f[k].graph);
}

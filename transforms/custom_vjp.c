/* custom_vjp as a layer: the layer in it is recorded aside, in the scope of the transform, and bound as a function with
 * a rule of its own, whose operands are all that the layer reads:
 *
 *     forward:   captured values..., inputs...  ->  outputs, written, sown..., residuals...      the layer's own
 *                                                                                                forward pass
 *     backward:  residuals..., cotangents...    ->  cotangents of captured values and inputs     its backward pass
 *                                                                                                between two functions
 *
 * Captured values that are parameters are known by being the values of those that the layer asked for. */
#include "src/scope/lift.h"
#include "src/scope/tree.h"
#include "tow/autodiff.h"
#include "tow/transforms.h"
#include "transforms/aside.h"

/* One call. */
typedef struct custom_call {
    const tow_custom_vjp_layer *m;
    tow_scope *scope;
    tow__aside aside;
    size_t n_in, n_out; /* of the layer */
    tow__recorded_body body;
    const char **parameters; /* [n_captures] their paths below the layer; NULL: no parameter */
    tow_graph *forward, *backward;
} custom_call;

/* ---- what is differentiated -------------------------------------------------------------------------------------- */

static bool has_float(const tow_graph *g, size_t n, tow_type (*type_of)(const tow_graph *, size_t))
{
    for (size_t i = 0; i < n; i++)
        if (tow_dtype_is_float(type_of(g, i).dtype)) return true;
    return false;
}

/* The path of the parameter below the layer, with "{}" for scans whatever their axes; where an outer transform shares
 * it, its whole path. NULL: out of memory, reported. */
static const char *path_below(const custom_call *c, const char *path)
{
    tow_lift_rule rule;
    const char *rest = tow__entry_below(c->scope, "params", path, &rule);
    if (!rest) rest = path;
    char *plain = tow__trace_alloc(c->scope->model->trace, strlen(rest) + 1, 1);
    if (plain) tow__path_plain(rest, plain);
    return plain;
}

/* asked[p]: the layer asked for parameter p. */
static bool name_captures(custom_call *c, const bool *asked)
{
    const tow__model *model = c->scope->model;
    c->parameters = tow__trace_alloc(model->trace, c->body.n_captures, sizeof *c->parameters);
    if (!c->parameters) return false;
    for (uint32_t p = 0; asked && p < model->params.list->names.count; p++) {
        if (!asked[p]) continue;
        const uint32_t id = tow__import(model->trace, tow__param_value(model, p)).id;
        for (size_t i = 0; i < c->body.n_captures; i++)
            if (c->body.captures[i].id == id) c->parameters[i] = path_below(c, model->params.list->names.names[p]);
    }
    return !tow__failed(model->trace);
}

/* Records the layer. False: an error. */
static bool record(custom_call *c, const tow_value *in)
{
    tow__model *model = c->scope->model;
    const size_t n = model->initializing ? 0 : model->params.list->names.count;
    bool *before = tow__trace_alloc(model->trace, n, sizeof *before), *used = model->params.used;
    if (!before) return false;
    for (size_t i = 0; i < n; i++) {
        before[i] = used[i];
        used[i] = false;
    }
    bool fine = tow__aside_record(&c->aside, c->m->inner, c->n_in, in, c->n_out, &c->body) &&
                name_captures(c, n > 0 ? used : NULL);
    for (size_t i = 0; i < n; i++) used[i] = used[i] || before[i];
    return fine;
}

/* ---- the functions ----------------------------------------------------------------------------------------------- */

static void function(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow__inline(t, ((const custom_call *)user)->body.graph, in, out);
}

static void forward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow__inline(t, ((const custom_call *)user)->forward, in, out);
}

/* False, reported: a function returned another type. where: "cotangent of output 0". The null value becomes zeros. */
static bool check_returned(tow_trace *t, const char *where, size_t index, tow_type type, tow_value *value)
{
    if (tow__failed(t)) return false;
    if (tow_is_null(*value)) *value = tow_full(t, type, 0);
    if (tow_type_equal(tow_value_type(*value), type)) return true;
    tow_trace_fail(t, TOW_TYPE_MISMATCH, "custom_vjp: the %s %zu: expected %s, as the function was given it, found %s",
                   where, index, tow__type_name(type).text, tow__type_name(tow_value_type(*value)).text);
    return false;
}

/* A gradient as the layer's function makes it. False: an error. */
static bool change_gradient(tow_trace *t, const custom_call *c, size_t input, tow_value *gradient)
{
    const bool captured = input < c->body.n_captures;
    const char *parameter = captured ? c->parameters[input] : NULL;
    const size_t index = captured ? 0 : input - c->body.n_captures;
    if (!c->m->gradient || (captured && !parameter)) return true;
    const tow_type type = tow_value_type(*gradient);
    *gradient = c->m->gradient(t, parameter, index, *gradient, c->m->user);
    return check_returned(t, parameter ? "gradient of a parameter, operand" : "gradient of input",
                          parameter ? input : index, type, gradient);
}

/* in: residuals, then cotangents of all results; null values for those that are not floats. */
static void backward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const custom_call *c = user;
    const size_t n_residuals = tow_graph_output_count(c->forward) - c->body.n_out,
                 n_in = tow_graph_input_count(c->body.graph);
    tow_value *all = tow__trace_alloc(t, n_residuals + c->body.n_out, sizeof *all), *next = all + n_residuals;
    tow_value *gradients = tow__trace_alloc(t, n_in, sizeof *gradients);
    if (!all || !gradients) return;
    if (n_residuals) memcpy(all, in, n_residuals * sizeof *all);
    for (size_t i = 0; i < c->body.n_out; i++) {
        const tow_type type = tow_graph_output_type(c->body.graph, i);
        tow_value ct = in[n_residuals + i];
        if (!tow_dtype_is_float(type.dtype)) continue;
        if (c->m->cotangent && i < c->n_out) ct = c->m->cotangent(t, i, ct, c->m->user);
        if (!check_returned(t, "cotangent of output", i, type, &ct)) return;
        *next++ = ct;
    }
    tow__inline(t, c->backward, all, gradients);
    for (size_t i = 0, k = 0; i < n_in && !tow__failed(t); i++) {
        if (!tow_dtype_is_float(tow_graph_input_type(c->body.graph, i).dtype)) continue;
        if (!change_gradient(t, c, i, &gradients[k])) return;
        out[i] = gradients[k++];
    }
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static void bind(custom_call *c, const tow_value *in, tow_value *out)
{
    tow_trace *t = c->scope->model->trace;
    const tow__recorded_body *b = &c->body;
    const size_t n = b->n_captures + c->n_in;
    const tow_custom_options options = TOW_CUSTOM_OPTIONS(.name = c->m->inner->cls->name);
    tow_value *operands = tow__trace_alloc(t, n, sizeof *operands), *all = tow__trace_alloc(t, b->n_out, sizeof *all);
    if (!operands || !all) return;
    if (b->n_captures) memcpy(operands, b->captures, b->n_captures * sizeof *operands);
    if (c->n_in) memcpy(operands + b->n_captures, in, c->n_in * sizeof *operands);
    const bool flows =
        has_float(b->graph, n, tow_graph_input_type) && has_float(b->graph, b->n_out, tow_graph_output_type);
    if (!flows) {
        tow__inline(t, b->graph, operands, all);
    } else if (tow_vjp(b->graph, 0, NULL, &c->forward, &c->backward)) {
        tow__adopt_error(t);
    } else {
        tow_custom_vjp_function(t, function, forward, backward, c, &options, n, operands,
                                tow_graph_output_count(c->forward) - b->n_out, b->n_out, all);
    }
    if (tow__failed(t)) return;
    if (c->n_out) memcpy(out, all, c->n_out * sizeof *out);
    tow__body_commit(c->scope->model, b, all + c->n_out);
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    custom_call c = {.m = (const tow_custom_vjp_layer *)module, .scope = scope, .n_in = n_in, .n_out = n_out};
    if (!tow__aside_begin(&c.aside, scope, "custom_vjp", c.m->variables, c.m->streams)) return;
    if (record(&c, in)) bind(&c, in, out);
    tow__aside_end(&c.aside);
    tow_graph_release(c.forward);
    tow_graph_release(c.backward);
    tow__body_free(&c.body);
}

const tow_module_class tow_custom_vjp_layer_class = {
    TOW__MADE_BY(TOW_CUSTOM_VJP, tow_custom_vjp_layer), .name = "custom_vjp", .call = call,
    .layout = TOW__LAYOUT_OF(tow_custom_vjp_layer, TOW_MEMBER(tow_custom_vjp_layer, inner, TOW_MEMBER_LAYER),
                             TOW_MEMBER(tow_custom_vjp_layer, variables, TOW_MEMBER_RULES),
                             TOW_MEMBER(tow_custom_vjp_layer, streams, TOW_MEMBER_RULES))};

/* tow_custom_jvp_function, tow_custom_vjp_function: trace a function and its rules, and bind the call.
 *
 * The order of operands is captured values, fixed inputs, all other inputs. Each function is traced by itself and
 * captures what it uses; all of them then get the union of the captured values.
 *
 * A rule may call its own function with its rule. The calls whose rules are being traced stand in a list that starts at
 * the trace; a call that equals one of them becomes custom_self, which says how many rules further out its own one
 * stands. */
#include "src/base/counts.h"
#include "tow/autodiff.h"

#include "src/autodiff/regions/custom.h"
#include "src/autodiff/regions/record.h"
#include "src/ops/rules.h"

enum {
    MOST_FUNCTIONS = 3,
    DEEPEST = 32 /* calls of one function in its rules, of other types or with another user each time */
};

/* The function of a call that is being traced. */
typedef enum stage {
    VALUE,
    RULES
} stage;

/* A call under construction. */
typedef struct call {
    tow_trace *t;
    const char *op, *name;
    const tow_primitive *primitive;
    tow_function functions[MOST_FUNCTIONS]; /* function and rule; or function, forward, backward */
    void *user;
    size_t n_functions, n_in, n_out, n_residuals, n_fixed;
    const tow_value *in; /* [n_in] a copy: results may be written over the operands */
    const bool *fixed;   /* [n_in] */
    tow_type *in_types, *out_types, *residual_types;
    tow__captures outer;
    stage stage;
    bool is_recursive;    /* a rule calls the function again */
    struct call *outside; /* the call in whose function or rule this one is traced */
} call;

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static bool begin(call *c, const tow_custom_options *options, const tow_value *in, const tow_value *out)
{
    bool given = true;
    for (size_t k = 0; k < c->n_functions; k++) given &= c->functions[k] != NULL;
    c->in = tow__operands_of(c->t, c->op, given, (tow__listed){c->n_in, in}, (tow__listed){0},
                             (tow__listed){c->n_out, out}, (tow__listed){0});
    if (!c->in) return false;
    bool *fixed = tow__trace_alloc(c->t, c->n_in, sizeof *fixed);
    c->in_types = tow__types_of(c->t, c->n_in, c->in);
    c->out_types = tow__trace_alloc(c->t, c->n_out, sizeof *c->out_types);
    c->residual_types = tow__trace_alloc(c->t, c->n_residuals, sizeof *c->residual_types);
    if (!fixed || !c->in_types || !c->out_types || !c->residual_types) return false;
    for (size_t i = 0; i < c->n_in; i++) {
        fixed[i] = options && options->fixed && options->fixed[i];
        c->n_fixed += fixed[i];
    }
    c->fixed = fixed;
    c->name = options && options->name ? options->name : "function";
    return true;
}

static bool is_differentiated(const call *c, size_t i) { return !c->fixed[i] && tow__has_tangent(c->in_types[i]); }

/* order[k]: the input that operand k is, fixed inputs first. NULL: no memory. */
static size_t *operand_order(const call *c)
{
    size_t *order = tow__trace_alloc(c->t, c->n_in, sizeof *order), n = 0;
    for (int fixed = 1; fixed >= 0 && order; fixed--)
        for (size_t i = 0; i < c->n_in; i++)
            if (c->fixed[i] == (fixed == 1)) order[n++] = i;
    return order;
}

/* The types of x as operands, then those of tangents or cotangents; *n: how many. NULL: no memory. */
static tow_type *operand_types(const call *c, bool tangents, size_t *n)
{
    tow_type *types = tow__trace_alloc(c->t, 2 * c->n_in, sizeof *types);
    const size_t *order = operand_order(c);
    *n = 0;
    for (size_t i = 0; types && order && i < c->n_in; i++) types[(*n)++] = c->in_types[order[i]];
    for (size_t i = 0; types && tangents && i < c->n_in; i++)
        if (is_differentiated(c, i)) types[(*n)++] = c->in_types[i];
    return order ? types : NULL;
}

/* ---- what the functions write ------------------------------------------------------------------------------------ */

/* The words in front of the function that should have written a result. */
static const char *unwritten(tow_value found)
{
    return tow__null_text(found, NULL)
               ? "is made of no values (tow_concatenate, tow_stack and the like take at least one) in the"
               : "was never written by the";
}

/* Result `index` of `what` must be of this type. */
static void check_result(const call *c, const char *what, const char *kind, size_t index, tow_value found,
                         tow_type type)
{
    if (tow__failed(c->t)) return;
    if (tow_is_null(found))
        tow_trace_fail(c->t, TOW_INVALID_ARGUMENT, "%s %s: %s %zu %s %s; it must be %s", c->op, c->name, kind, index,
                       unwritten(found), what, tow__type_name(type).text);
    else if (tow__is_current(c->t, found) && !tow_type_equal(tow_value_type(found), type))
        tow_trace_fail(c->t, TOW_SHAPE_MISMATCH, "%s%s%s %s: %s %zu of the %s must be %s, found %s",
                       found.here ? found.here : "", found.here ? ": " : "", c->op, c->name, kind, index, what,
                       tow__type_name(type).text, tow__type_name(tow_value_type(found)).text);
}

/* Result `index` of n, which gives the type. */
static void learn_type(const call *c, const char *what, const char *kind, size_t index, size_t n, tow_value found,
                       tow_type *type)
{
    if (tow__failed(c->t)) return;
    if (tow_is_null(found))
        tow_trace_fail(c->t, TOW_INVALID_ARGUMENT, "%s %s: %s %zu of %zu %s %s", c->op, c->name, kind, index, n,
                       unwritten(found), what);
    else if (tow__is_current(c->t, found))
        *type = tow_value_type(found);
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

/* ---- the functions as bodies: operands in their order, only what exists ------------------------------------------ */

/* Operands as x[n_in], and room for the tangents of all inputs behind them, which are null. NULL: no memory. */
static tow_value *inputs_of(const call *c, const tow_value *operands)
{
    tow_value *x = tow__trace_alloc(c->t, 2 * c->n_in, sizeof *x);
    const size_t *order = operand_order(c);
    for (size_t i = 0; x && order && i < c->n_in; i++) x[order[i]] = operands[i];
    return order ? x : NULL;
}

/* y = function(x): gives the types of the outputs. */
static void value_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    call *c = user;
    tow_value *x = inputs_of(c, in), *y = tow__guarded_alloc(t, c->n_out);
    if (!x || !y || !tow__run_function(t, c->functions[0], c->user, x, c->n_out, y)) return;
    for (size_t i = 0; i < c->n_out; i++) {
        learn_type(c, "function", "output", i, c->n_out, y[i], &c->out_types[i]);
        out[i] = y[i];
    }
}

/* (x, dx) -> (y, dy) */
static void rule_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    call *c = user;
    tow_value *x = inputs_of(c, in), *y = tow__guarded_alloc(t, 2 * c->n_out);
    if (!x || !y) return;
    for (size_t i = 0, n = c->n_in; i < c->n_in; i++)
        if (is_differentiated(c, i)) x[c->n_in + i] = in[n++];
    if (!tow__run_function(t, c->functions[1], c->user, x, 2 * c->n_out, y)) return;
    for (size_t i = 0; i < c->n_out; i++) {
        check_result(c, "rule", "output", i, y[i], c->out_types[i]);
        out[i] = y[i];
    }
    for (size_t i = 0, n = c->n_out; i < c->n_out; i++)
        take_linear(c, "rule", "the tangent of output", i, y[c->n_out + i], c->out_types[i],
                    tow__has_tangent(c->out_types[i]), out, &n);
}

/* x -> (y, residuals); gives the types of the residuals. */
static void forward_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    call *c = user;
    size_t n_out = c->n_out + c->n_residuals;
    tow_value *x = inputs_of(c, in), *y = tow__guarded_alloc(t, n_out);
    if (!x || !y || !tow__run_function(t, c->functions[1], c->user, x, n_out, y)) return;
    for (size_t i = 0; i < c->n_out; i++) check_result(c, "forward function", "output", i, y[i], c->out_types[i]);
    for (size_t i = 0; i < c->n_residuals; i++)
        learn_type(c, "forward function", "residual", i, c->n_residuals, y[c->n_out + i], &c->residual_types[i]);
    if (n_out) memcpy(out, y, n_out * sizeof *out);
}

/* (residuals, ct of y) -> ct of x */
static void backward_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    call *c = user;
    tow_value *all = tow__trace_alloc(t, c->n_residuals + c->n_out, sizeof *all);
    tow_value *ct = tow__guarded_alloc(t, c->n_in);
    size_t n = c->n_residuals;
    if (!all || !ct) return;
    if (n) memcpy(all, in, n * sizeof *in);
    for (size_t i = 0; i < c->n_out; i++)
        if (tow__has_tangent(c->out_types[i])) all[c->n_residuals + i] = in[n++];
    if (!tow__run_function(t, c->functions[2], c->user, all, c->n_in, ct)) return;
    n = 0;
    for (size_t i = 0; i < c->n_in; i++)
        take_linear(c, "backward function", "the cotangent of input", i, ct[i], c->in_types[i], is_differentiated(c, i),
                    out, &n);
}

/* ---- tracing ----------------------------------------------------------------------------------------------------- */

static size_t count_tangents(size_t n, const tow_type *types)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += tow__has_tangent(types[i]);
    return count;
}

static bool trace_value(call *c, tow__traced_body *body)
{
    size_t n;
    tow_type *types = operand_types(c, false, &n);
    return types && tow__trace_body(c->t, value_body, c, n, types, c->n_out, body);
}

static bool trace_rule(call *c, tow__traced_body *body)
{
    size_t n;
    tow_type *types = operand_types(c, true, &n);
    return types &&
           tow__trace_body(c->t, rule_body, c, n, types, c->n_out + count_tangents(c->n_out, c->out_types), body);
}

static bool trace_forward(call *c, tow__traced_body *body)
{
    size_t n;
    tow_type *types = operand_types(c, false, &n);
    return types && tow__trace_body(c->t, forward_body, c, n, types, c->n_out + c->n_residuals, body);
}

static bool trace_backward(call *c, tow__traced_body *body)
{
    size_t n = c->n_residuals, n_results = 0;
    tow_type *types = tow__trace_alloc(c->t, n + c->n_out, sizeof *types);
    if (!types) return false;
    if (n) memcpy(types, c->residual_types, n * sizeof *types);
    for (size_t i = 0; i < c->n_out; i++)
        if (tow__has_tangent(c->out_types[i])) types[n++] = c->out_types[i];
    for (size_t i = 0; i < c->n_in; i++) n_results += is_differentiated(c, i);
    return tow__trace_body(c->t, backward_body, c, n, types, n_results, body);
}

static void release_bodies(tow__traced_body *bodies)
{
    for (size_t k = 0; k < MOST_FUNCTIONS; k++) {
        tow_graph_release(bodies[k].graph);
        bodies[k] = (tow__traced_body){0};
    }
}

/* Traces all functions. c->outer: what any of them captures. */
static bool trace_functions(call *c, tow__traced_body *bodies)
{
    c->stage = VALUE;
    if (!trace_value(c, &bodies[0])) return false;
    c->stage = RULES;
    bool fine =
        c->n_functions == 2 ? trace_rule(c, &bodies[1]) : trace_forward(c, &bodies[1]) && trace_backward(c, &bodies[2]);
    return fine && tow__unite_captures(c->t, c->n_functions, bodies, &c->outer);
}

/* Rules that call the function again hand it all captured values, also those that only rules use. Such values are known
 * after the rules have been traced, which are then traced once more. */
static bool trace_call(call *c, tow__traced_body *bodies)
{
    bool fine = trace_functions(c, bodies);
    if (fine && c->is_recursive && c->outer.n > bodies[0].n_captures) {
        release_bodies(bodies);
        fine = trace_functions(c, bodies);
    }
    for (size_t k = 0; k < c->n_functions && fine; k++) fine = tow__capture_all(c->t, &c->outer, &bodies[k]);
    return fine;
}

/* ---- a rule that calls its own function -------------------------------------------------------------------------- */

static bool is_same_call(const call *a, const call *b)
{
    bool same = a->primitive == b->primitive && a->user == b->user && a->n_in == b->n_in && a->n_out == b->n_out &&
                a->n_residuals == b->n_residuals;
    for (size_t k = 0; k < a->n_functions && same; k++) same = a->functions[k] == b->functions[k];
    for (size_t i = 0; i < a->n_in && same; i++)
        same = a->fixed[i] == b->fixed[i] && tow_type_equal(a->in_types[i], b->in_types[i]);
    return same;
}

/* The call around c that equals it, and how many rules stand between the two; NULL: none. */
static call *find_outside(const call *c, int64_t *level)
{
    *level = 0;
    for (call *o = c->outside; o; o = o->outside) {
        if (is_same_call(o, c)) return o;
        *level += o->stage == RULES;
    }
    return NULL;
}

/* Binds p on (captured values, inputs in the order of operands). */
static void bind_call(const call *c, const tow_primitive *p, const void *params, const tow__captures *captured,
                      tow_value *outputs)
{
    tow_value *operands = tow__trace_alloc(c->t, captured->n + c->n_in, sizeof *operands);
    const size_t *order = operand_order(c);
    if (!operands || !order) return;
    if (captured->n) memcpy(operands, captured->values, captured->n * sizeof *operands);
    for (size_t i = 0; i < c->n_in; i++) operands[captured->n + i] = c->in[order[i]];
    tow__bind(c->t, p, params, captured->n + c->n_in, operands, c->n_out, outputs);
}

/* outputs = custom_self of the function of `target`, whose rule is being traced. */
static void bind_self(call *c, call *target, int64_t level, tow_value *outputs)
{
    tow__traced_body body = {0};
    tow__captures captured = {0};
    tow_value *outer = tow__trace_alloc(c->t, target->outer.n, sizeof *outer);
    if (!outer) return;
    if (target->stage == VALUE) {
        tow_trace_fail(c->t, TOW_INVALID_ARGUMENT,
                       "%s %s: the function calls itself, which never ends; only its rule may call it", c->op, c->name);
        return;
    }
    target->is_recursive = true;
    for (size_t i = 0; i < target->outer.n; i++) outer[i] = tow__import(c->t, target->outer.values[i]);
    captured = (tow__captures){.n = target->outer.n, .values = outer};
    if (trace_value(c, &body) && tow__unite_captures(c->t, 1, &body, &captured) &&
        tow__capture_all(c->t, &captured, &body)) {
        tow__custom_self_params params = {.name = c->name, .level = level, .body = body.graph};
        bind_call(c, &tow__custom_self_p, &params, &captured, outputs);
    }
    tow_graph_release(body.graph);
}

/* False, with the error, if rules of one function call it ever deeper, and each call is another one. */
static bool is_shallow(const call *c)
{
    size_t depth = 0;
    for (const call *o = c->outside; o; o = o->outside) depth += o->functions[1] == c->functions[1];
    if (depth < DEEPEST) return true;
    tow_trace_fail(
        c->t, TOW_UNSUPPORTED,
        "%s %s: a rule that calls its own function stands in itself %d times over, with other operands or another "
        "user each time; call it with the same functions and the same user, and operands of the same types",
        c->op, c->name, (int)DEEPEST);
    return false;
}

/* ---- the public functions ---------------------------------------------------------------------------------------- */

static void record(call *c, const tow_custom_options *options, const tow_value *inputs, tow_value *outputs)
{
    tow__traced_body bodies[MOST_FUNCTIONS] = {{0}};
    int64_t level;
    bool fine = c->n_residuals <= TOW__MOST_VALUES;
    if (!fine)
        tow_trace_fail(c->t, TOW_INVALID_ARGUMENT, "%s: n_residuals: expected at most %d, found %zu", c->op,
                       (int)TOW__MOST_VALUES, c->n_residuals);
    fine = fine && begin(c, options, inputs, outputs);
    tow__clear(c->n_out, outputs);
    if (!fine) return;
    c->outside = tow__open_call(c->t);
    call *target = find_outside(c, &level);
    if (!target && !is_shallow(c)) return;
    tow__set_open_call(c->t, c);
    if (target) {
        bind_self(c, target, level, outputs);
    } else if (trace_call(c, bodies)) {
        tow__custom_jvp_params jvp = {.name = c->name,
                                      .captured = (int64_t)c->outer.n,
                                      .fixed = (int64_t)c->n_fixed,
                                      .body = bodies[0].graph,
                                      .rule = bodies[1].graph};
        tow__custom_vjp_params vjp = {.name = c->name,
                                      .captured = (int64_t)c->outer.n,
                                      .fixed = (int64_t)c->n_fixed,
                                      .body = bodies[0].graph,
                                      .forward = bodies[1].graph,
                                      .backward = bodies[2].graph};
        bind_call(c, c->primitive, c->n_functions == 2 ? (const void *)&jvp : &vjp, &c->outer, outputs);
    }
    tow__set_open_call(c->t, c->outside);
    release_bodies(bodies);
}

void tow_custom_jvp_function(tow_trace *trace, tow_function function, tow_function rule, void *user,
                             const tow_custom_options *options, size_t n_inputs, const tow_value *inputs,
                             size_t n_outputs, tow_value *outputs)
{
    call c = {.t = trace,
              .op = "custom_jvp",
              .primitive = &tow__custom_jvp_p,
              .functions = {function, rule},
              .user = user,
              .n_functions = 2,
              .n_in = n_inputs,
              .n_out = n_outputs};
    tow_custom_options own;
    if (TOW__TRACE_OPTIONS(trace, tow_custom_options, options, &own))
        record(&c, options, inputs, outputs);
    else
        tow__clear(outputs ? n_outputs : 0, outputs);
}

void tow_custom_vjp_function(tow_trace *trace, tow_function function, tow_function forward, tow_function backward,
                             void *user, const tow_custom_options *options, size_t n_inputs, const tow_value *inputs,
                             size_t n_residuals, size_t n_outputs, tow_value *outputs)
{
    call c = {.t = trace,
              .op = "custom_vjp",
              .primitive = &tow__custom_vjp_p,
              .functions = {function, forward, backward},
              .user = user,
              .n_functions = 3,
              .n_in = n_inputs,
              .n_out = n_outputs,
              .n_residuals = n_residuals};
    tow_custom_options own;
    if (TOW__TRACE_OPTIONS(trace, tow_custom_options, options, &own))
        record(&c, options, inputs, outputs);
    else
        tow__clear(outputs ? n_outputs : 0, outputs);
}

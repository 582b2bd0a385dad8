/* while as a layer: a loop around a layer, in the scope of the loop itself. The condition and the body are layers, each
 * recorded aside in a frame of its own. Variables that a rule carries are carries of the loop beside the caller's, and
 * so is what the body sows:
 *
 *     carry:  index of the iteration (if a random key is made of it), the caller's..., carried variables..., values
 *             sown...
 *
 * Everything else, parameters above all, is captured like any outer value: the iterations share it and do not write
 * it. */
#include "src/scope/calls.h"
#include "src/scope/frames.h"
#include "src/scope/lift.h"
#include "src/scope/scope.h"
#include "src/scope/store.h"
#include "src/scope/tree.h"
#include "tow/autodiff.h"
#include "tow/control.h"
#include "tow/transforms.h"

/* A call of a while. */
typedef struct loop_call {
    const tow_while *m;
    tow_scope *scope;
    const tow__lift *lift;
    size_t n_carry, n_broadcast, n_carried, n_sown;
    const tow_value *in; /* carry..., broadcast... */
    uint32_t *carried;   /* variables */
    tow__recorded_body condition, body;
    bool counted; /* the index is a carry */
} loop_call;

/* The condition or the body, while it is recorded. */
typedef struct part {
    loop_call *c;
    bool is_condition;
    tow__repetition repetition;
} part;

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static const tow_module *layer_of(const loop_call *c, bool is_condition)
{
    return is_condition ? c->m->condition : c->m->body;
}

static bool read_call(loop_call *c, size_t n_in, size_t n_out)
{
    c->n_carry = c->m->n_carry ? c->m->n_carry : 1;
    for (int i = 0; i < 2; i++)
        if (!layer_of(c, i == 0)) {
            tow_scope_fail(c->scope, TOW_INVALID_ARGUMENT, "while: .%s is NULL; expected a layer, TOW_MODULE(&layer)",
                           i == 0 ? "condition" : "body");
            return false;
        }
    if (n_in < c->n_carry || n_out != c->n_carry) {
        tow_scope_fail(c->scope, TOW_INVALID_ARGUMENT,
                       "while: expected at least %zu inputs (carry, then what every iteration sees) and %zu outputs "
                       "(carry), found %zu and %zu; .n_carry is the number of carries",
                       c->n_carry, c->n_carry, n_in, n_out);
        return false;
    }
    c->n_broadcast = n_in - c->n_carry;
    return true;
}

/* The condition gives bool [], the body the types of the carry. */
static bool check_types(const loop_call *c)
{
    const tow_type condition = tow_graph_output_type(c->condition.graph, 0);
    if (condition.dtype != TOW_BOOL || condition.rank != 0) {
        tow_scope_fail(c->scope, TOW_TYPE_MISMATCH,
                       "while: .condition (%s): expected bool[], found %s; compare numbers (tow_gt), and reduce what "
                       "they give (tow_reduce_and, tow_reduce_or)",
                       c->m->condition->cls->name, tow__type_name(condition).text);
        return false;
    }
    for (size_t i = 0; i < c->n_carry; i++) {
        const tow_type before = tow_value_type(c->in[i]), after = tow_graph_output_type(c->body.graph, i);
        if (tow_type_equal(before, after)) continue;
        tow_scope_fail(c->scope, TOW_TYPE_MISMATCH,
                       "while: carry %zu enters an iteration as %s and leaves .body (%s) as %s; the layer must return "
                       "the type that it is given",
                       i, tow__type_name(before).text, c->m->body->cls->name, tow__type_name(after).text);
        return false;
    }
    return true;
}

/* Nothing is written but carried variables, and these by the body. */
static bool check_written(const loop_call *c)
{
    tow__model *model = c->scope->model;
    const tow__recorded_body *b = c->condition.n_written ? &c->condition : &c->body;
    if (b->n_written == 0) return true;
    const char *path = model->state.list->names.names[b->written[0]];
    const char *here = c->scope->path[0] ? c->scope->path : "around the model";
    const size_t n = strcspn(path, "/");
    if (b == &c->condition)
        tow__params_fail(model, TOW_INVALID_ARGUMENT,
                         "%s: written in .condition (%s) of the while %s, which only reads; write it in .body, under a "
                         "rule TOW_CARRIED",
                         path, c->m->condition->cls->name, here);
    else
        tow__params_fail(model, TOW_INVALID_ARGUMENT,
                         "%s: written in .body (%s) of the while %s, whose iterations share it; carry it: .variables = "
                         "TOW_RULES({\"%.*s\", TOW_CARRIED})",
                         path, c->m->body->cls->name, here, (int)n, path);
    return false;
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

/* Variables that a rule carries and that may be written. */
static bool collect(loop_call *c)
{
    tow__model *model = c->scope->model;
    const tow__names *names = &model->state.list->names;
    const tow_scope *lifted = tow__scope_lifted(c->scope, c->lift, NULL);
    c->carried = tow__trace_alloc(model->trace, names->count, sizeof *c->carried);
    if (!c->carried || lifted == c->scope) return false;
    for (uint32_t i = 0; i < names->count && !model->initializing && !tow__unreturned(model); i++) {
        const char *path = names->names[i], *below, *collection = tow__collection_of(model, path, &below);
        tow_lift_rule rule;
        if (!collection) return false;
        const char *rest = tow__entry_below(c->scope, collection, below, &rule);
        if (!rest || tow__rule_below(lifted, collection, rest).how != TOW_CARRIED) continue;
        if (tow__collection_mutable(model, collection)) c->carried[c->n_carried++] = i;
    }
    return !tow__scope_failed(c->scope);
}

/* in: index, carry..., carried variables.... out: of the layer; then, of the body, the carried variables. */
static void record_part(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    part *p = user;
    const loop_call *c = p->c;
    tow__model *model = c->scope->model;
    tow__frame *f = model->frame;
    const size_t n_in = c->n_carry + c->n_broadcast, n_out = p->is_condition ? 1 : c->n_carry;
    tow_value *layer_in = tow__trace_alloc(t, n_in, sizeof *layer_in);
    f->state = tow__trace_alloc(t, model->state.list->names.count, sizeof *f->state);
    if (!layer_in || !f->state) return;
    f->silent = f->silent || p->is_condition;
    memcpy(layer_in, in + 1, c->n_carry * sizeof *layer_in);
    for (size_t i = c->n_carry; i < n_in; i++) layer_in[i] = c->in[i];
    for (size_t i = 0; i < c->n_carried; i++) f->state[c->carried[i]] = in[1 + c->n_carry + i];
    p->repetition = (tow__repetition){.index = in[0], .negative = p->is_condition};
    tow_scope *inner = tow__scope_lifted(c->scope, c->lift, &p->repetition);
    tow__call_here(inner, layer_of(c, p->is_condition), n_in, layer_in, n_out, out);
    for (size_t i = 0; i < c->n_carried && !p->is_condition; i++) {
        out[c->n_carry + i] = tow__variable_value(model, c->carried[i]);
        if (f->written) f->written[c->carried[i]] = false; /* handed on as a carry */
    }
}

static bool record(loop_call *c, bool is_condition)
{
    tow__model *model = c->scope->model;
    const size_t n_in = 1 + c->n_carry + c->n_carried;
    part p = {.c = c, .is_condition = is_condition};
    tow_type *types = tow__trace_alloc(model->trace, n_in, sizeof *types);
    if (!types) return false;
    types[0] = tow_make_type(TOW_I32, 0, NULL);
    for (size_t i = 0; i < c->n_carry; i++) types[1 + i] = tow_value_type(c->in[i]);
    for (size_t i = 0; i < c->n_carried; i++)
        types[1 + c->n_carry + i] = tow_value_type(tow__variable_value(model, c->carried[i]));
    bool fine = tow__body_record(model, record_part, &p, n_in, types, is_condition ? 1 : c->n_carry + c->n_carried,
                                 is_condition ? &c->condition : &c->body);
    c->counted = c->counted || p.repetition.used;
    return fine;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* The results of the condition or the body, from the carries of the loop. */
static tow_value *replay(tow_trace *t, const loop_call *c, const tow__recorded_body *body, const tow_value *carry)
{
    const size_t n = c->n_carry + c->n_carried;
    tow_value *in = tow__trace_alloc(t, 1 + n, sizeof *in), *out = tow__trace_alloc(t, body->n_out, sizeof *out);
    if (!in || !out) return NULL;
    in[0] = c->counted ? carry[0] : tow_scalar(t, TOW_I32, 0);
    memcpy(in + 1, carry + c->counted, n * sizeof *in);
    tow__body_replay(t, in, out, (void *)body);
    return out;
}

static void replay_condition(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const loop_call *c = user;
    const tow_value *results = replay(t, c, &c->condition, in);
    if (results) out[0] = results[0];
}

static void replay_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const loop_call *c = user;
    const tow_value *results = replay(t, c, &c->body, in);
    if (!results) return;
    if (c->counted) *out++ = tow_add_scalar(in[0], 1);
    memcpy(out, results, c->body.n_out * sizeof *out);
}

static void bind(loop_call *c, tow_value *out)
{
    tow__model *model = c->scope->model;
    tow_trace *t = model->trace;
    const size_t n = c->n_carry + c->n_carried, n_all = c->counted + c->body.n_out;
    const tow_while_options options =
        TOW_WHILE_OPTIONS(.max_iterations = c->m->max_iterations, .schedule = c->m->schedule);
    tow_value *carry = tow__trace_alloc(t, n_all, sizeof *carry), *last = tow__trace_alloc(t, n_all, sizeof *last),
              *at = carry;
    if (!carry || !last) return;
    if (c->counted) *at++ = tow_scalar(t, TOW_I32, 0);
    for (size_t i = 0; i < c->n_carry; i++) *at++ = c->in[i];
    for (size_t i = 0; i < c->n_carried; i++) *at++ = tow__variable_value(model, c->carried[i]);
    for (size_t i = n; i < c->body.n_out; i++) *at++ = tow_full(t, tow_graph_output_type(c->body.graph, i), 0);
    tow_while_function(t, replay_condition, replay_body, c, &options, n_all, carry, last);
    last += c->counted;
    memcpy(out, last, c->n_carry * sizeof *out);
    for (size_t i = 0; i < c->n_carried && !tow__failed(t); i++)
        tow__variable_write(model, c->carried[i], last[c->n_carry + i]);
    if (!tow__failed(t)) tow__body_commit(model, &c->body, last + n);
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    loop_call c = {.m = (const tow_while *)module, .scope = scope, .in = in};
    if (!read_call(&c, n_in, n_out)) return;
    c.lift = tow__lift_make(scope, "while", TOW__LIFT_REPEATS, c.m->variables, c.m->streams);
    if (tow__scope_failed(scope) || !collect(&c)) return;
    /* Flax traces the condition first, which counts for random keys; parameters are those of the body, which is called
     * before the loop while they are initialized. */
    const bool body_first = scope->model->initializing;
    if (record(&c, !body_first) && record(&c, body_first) && check_types(&c) && check_written(&c)) bind(&c, out);
    tow__lift_check_used(scope, "while", c.lift);
    tow__body_free(&c.condition);
    tow__body_free(&c.body);
}

const tow_module_class tow_while_class = {
    TOW__MADE_BY(TOW_WHILE, tow_while), .name = "while", .call = call,
    .layout = TOW__LAYOUT_OF(
        tow_while, TOW_MEMBER(tow_while, condition, TOW_MEMBER_LAYER), TOW_MEMBER(tow_while, body, TOW_MEMBER_LAYER),
        TOW_MEMBER(tow_while, variables, TOW_MEMBER_RULES), TOW_MEMBER(tow_while, streams, TOW_MEMBER_RULES))};

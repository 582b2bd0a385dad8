/* Loops over layers as one scan. See loop.h. */
#include <inttypes.h>
#include <stdio.h>

#include "src/scope/frames.h"
#include "src/scope/lift.h"
#include "src/scope/store.h"
#include "tow/autodiff.h"
#include "tow/numpy.h"
#include "transforms/loop.h"

/* The state of a loop while it is recorded. */
typedef struct recording {
    const tow__layer_loop *loop;
    size_t n_xs;                         /* that enter by rows */
    size_t n_params, n_state, n_carried; /* parameters and variables that enter by rows, variables that are carried */
    uint32_t *params, *state, *carried;
    int *axes;             /* [n_state] of the rows in what the variables are outside of the loop */
    tow_scope *iterations; /* one for each body */
    tow__recorded_body body;
    bool *results; /* per output of the body: it is a result of the loop */
} recording;

static bool is_whole(const tow__layer_loop *c, size_t k) { return c->whole && c->whole[k]; }
static bool is_once(const tow__layer_loop *c, size_t k) { return c->once && c->once[k]; }

/* ---- the body ---------------------------------------------------------------------------------------------------- */

/* ys[j * n_ys + k] of the bodies -> out[k]: rows of all bodies in one array. */
static void join_rows(const tow__layer_loop *c, const tow_value *ys, tow_value *out)
{
    tow_trace *t = c->scope->model->trace;
    tow_value *rows = tow__trace_alloc(t, c->n_bodies, sizeof *rows);
    for (size_t k = 0; rows && k < c->n_ys; k++) {
        for (size_t j = 0; j < c->n_bodies; j++) rows[j] = ys[j * c->n_ys + k];
        out[k] = c->n_bodies == 1 || is_once(c, k) ? rows[0] : tow__loop_stack(t, (int64_t)c->n_bodies, rows);
    }
}

/* in: carry, carried variables, rows of xs, rows of parameters, rows of variables, index. */
static void loop_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const recording *r = user;
    const tow__layer_loop *c = r->loop;
    tow__model *model = c->scope->model;
    tow__frame *f = model->frame;
    const tow_value *carried = in + c->n_carry, *rows = carried + r->n_carried, *params = rows + r->n_xs;
    const tow_value *state = params + r->n_params;
    tow__level *level = tow__trace_alloc(t, 1, sizeof *level), *outer = c->scope->level;
    tow_value *carry = tow__trace_alloc(t, c->n_carry + 1, sizeof *carry),
              *xs = tow__trace_alloc(t, c->n_xs + 1, sizeof *xs);
    tow_value *ys = tow__trace_alloc(t, c->n_bodies * c->n_ys + 1, sizeof *ys);
    f->params = tow__trace_alloc(t, model->params.list->names.count + 1U, sizeof *f->params);
    f->state = tow__trace_alloc(t, model->state.list->names.count + 1U, sizeof *f->state);
    if (!level || !carry || !xs || !ys || !f->params || !f->state) return;
    for (size_t i = 0; i < r->n_params; i++) f->params[r->params[i]] = params[i];
    for (size_t i = 0; i < r->n_state; i++) f->state[r->state[i]] = state[i];
    for (size_t i = 0; i < r->n_carried; i++) f->state[r->carried[i]] = carried[i];
    for (size_t k = 0; k < c->n_xs; k++) xs[k] = is_whole(c, k) ? c->xs[k] : *rows++;
    if (c->n_carry) memcpy(carry, in, c->n_carry * sizeof *carry);
    *level = (tow__level){
        .outer = outer, .depth = outer ? outer->depth + 1 : 0, .length = c->turns, .index = state[r->n_state]};
    tow__turn turn = {
        .level = level, .covered = c->covered, .flax_keys = c->flax_keys, .mapped = c->mapped, .lift = c->lift};
    tow__loop_turn(c, turn, carry, xs, ys);
    if (c->n_carry) memcpy(out, carry, c->n_carry * sizeof *out);
    for (size_t i = 0; i < r->n_carried; i++) {
        out[c->n_carry + i] = tow__variable_value(model, r->carried[i]);
        if (f->written) f->written[r->carried[i]] = false; /* handed on as a carry */
    }
    if (!tow__failed(t)) join_rows(c, ys, out + c->n_carry + r->n_carried);
}

/* ---- what enters ------------------------------------------------------------------------------------------------- */

/* The value `stack` of the entry `name`, with the rows along `axis`, becomes an xs. False: an error. */
static bool add_row(const tow__layer_loop *c, const char *kind, const char *name, tow_value stack, int axis,
                    tow_value **xs)
{
    tow_type type = tow_value_type(stack);
    const int at = tow__axis_at(axis, type.rank);
    char which[24] = "the leading axis";
    if (axis != 0) snprintf(which, sizeof which, "axis %d", axis);
    if (at < 0 || type.dims[at] != c->turns) {
        tow__params_fail(c->scope->model, TOW_SHAPE_MISMATCH,
                         "%s%s: expected %" PRId64 " layers in %s (the length of the scan), found %s; use "
                         "the length that it was initialized with",
                         kind, name, c->turns, which, tow__type_name(type).text);
        return false;
    }
    *(*xs)++ = at == 0 ? stack : tow_moveaxis(stack, at, 0);
    return true;
}

tow_scope tow__loop_iteration(const tow__layer_loop *c, size_t j)
{
    tow_scope iteration = *c->scope;
    iteration.parent = c->scope;
    iteration.iteration = true;
    iteration.fixed = -1;
    iteration.covered = c->covered;
    iteration.transparent = false;
    iteration.first = c->first + c->stride * (int64_t)j;
    iteration.stride = c->stride * (int64_t)c->n_bodies;
    iteration.lift = c->lift;
    tow__numbering numbering;
    char *name = tow__trace_alloc(c->scope->model->trace, TOW__NUMBERING_SIZE, 1);
    if (name && tow__scope_numbering(&iteration, &numbering)) tow__numbering_write(&numbering, name);
    iteration.name = name ? name : "{}";
    return iteration;
}

/* Says whether a body has the entry, and how. path: without the collection. */
static bool has_entry(const tow_scope *iterations, size_t n, const char *collection, const char *path,
                      tow_lift_rule *rule)
{
    for (size_t j = 0; j < n; j++)
        if (tow__entry_below(&iterations[j], collection, path, rule)) return true;
    return false;
}

/* Parameters of which every iteration has its own become xs. */
static bool collect_params(recording *r, tow_value **xs)
{
    const tow__layer_loop *c = r->loop;
    tow__model *model = c->scope->model;
    const tow__names *names = &model->params.list->names;
    for (uint32_t i = 0; i < names->count; i++) {
        tow_lift_rule rule;
        if (!has_entry(r->iterations, c->n_bodies, "params", names->names[i], &rule) || rule.how != TOW_STACKED)
            continue;
        if (!add_row(c, "params/", names->names[i], tow__param_value(model, i), rule.axis, xs)) return false;
        r->params[r->n_params++] = i;
    }
    return true;
}

/* Variables of which every iteration has its own become xs, carried ones that are mutable carries. */
static bool collect_state(recording *r, tow_value **xs, tow_value *carry)
{
    const tow__layer_loop *c = r->loop;
    tow__model *model = c->scope->model;
    const tow__names *names = &model->state.list->names;
    for (uint32_t i = 0; i < names->count; i++) {
        const char *path = names->names[i], *below;
        const char *collection = tow__collection_of(model, path, &below);
        tow_lift_rule rule;
        if (!collection) return false;
        if (!has_entry(r->iterations, c->n_bodies, collection, below, &rule)) continue;
        if (rule.how == TOW_STACKED) {
            if (!add_row(c, "", path, tow__variable_value(model, i), rule.axis, xs)) return false;
            r->axes[r->n_state] = rule.axis;
            r->state[r->n_state++] = i;
        } else if (rule.how == TOW_CARRIED && tow__collection_mutable(model, collection) && !tow__unreturned(model)) {
            r->carried[r->n_carried] = i;
            carry[c->n_carry + r->n_carried++] = tow__variable_value(model, i);
        }
    }
    return true;
}

static bool collect(recording *r, tow_value **xs, tow_value *carry)
{
    const tow__layer_loop *c = r->loop;
    tow__model *model = c->scope->model;
    tow_trace *t = model->trace;
    r->iterations = tow__trace_alloc(t, c->n_bodies, sizeof *r->iterations);
    r->params = tow__trace_alloc(t, model->params.list->names.count + 1U, sizeof *r->params);
    r->state = tow__trace_alloc(t, model->state.list->names.count + 1U, sizeof *r->state);
    r->carried = tow__trace_alloc(t, model->state.list->names.count + 1U, sizeof *r->carried);
    r->axes = tow__trace_alloc(t, model->state.list->names.count + 1U, sizeof *r->axes);
    if (!r->iterations || !r->params || !r->state || !r->carried || !r->axes) return false;
    for (size_t j = 0; j < c->n_bodies; j++) r->iterations[j] = tow__loop_iteration(c, j);
    return model->initializing || (collect_params(r, xs) && collect_state(r, xs, carry));
}

/* The caller's xs that enter by rows: [turns * n_bodies, ...] as [turns, n_bodies, ...]. */
static void add_xs(recording *r, tow_value **end)
{
    const tow__layer_loop *c = r->loop;
    for (size_t k = 0; k < c->n_xs; k++) {
        if (is_whole(c, k)) continue;
        tow_value x = c->xs[k];
        tow_type type = tow_value_type(x);
        if (c->n_bodies > 1 && type.rank > 0) {
            int64_t dims[TOW_MAX_RANK + 1] = {c->turns, (int64_t)c->n_bodies};
            memcpy(dims + 2, type.dims + 1, (size_t)(type.rank - 1) * sizeof *dims);
            x = tow_reshape(x, type.rank + 1, dims);
        }
        *(*end)++ = x;
        r->n_xs++;
    }
}

/* ---- the equation ------------------------------------------------------------------------------------------------ */

static bool is_row(const recording *r, uint32_t variable)
{
    for (size_t k = 0; k < r->n_state; k++)
        if (r->state[k] == variable) return true;
    return false;
}

/* A variable that the body wrote must be declared in it: one of its rows, or one that all share. */
static bool check_written(const recording *r)
{
    const tow__layer_loop *c = r->loop;
    tow__model *model = c->scope->model;
    for (size_t i = 0; i < r->body.n_written; i++) {
        const char *path = model->state.list->names.names[r->body.written[i]], *below;
        const char *collection = tow__collection_of(model, path, &below);
        tow_lift_rule rule;
        if (!collection) return false;
        if (is_row(r, r->body.written[i]) || has_entry(r->iterations, c->n_bodies, collection, below, &rule)) continue;
        tow__params_fail(
            model, TOW_INVALID_ARGUMENT,
            "%s: written in the %s %s, in which it was not declared; let the layer declare it in the scope that "
            "it is given, and put its collection under a rule TOW_CARRIED or TOW_SHARED, if all iterations write one "
            "variable",
            path, c->transform, c->scope->path);
        return false;
    }
    return true;
}

/* Finds the equation that computes output `index` of the body, which must not depend on the iteration; NULL: it does,
 * reported. kept: the inputs of the body that it has. variable: which one it is the new value of, or NULL: output y of
 * the layer. */
static tow_graph *invariant_part(const recording *r, size_t index, size_t y, const char *variable, bool *kept)
{
    const tow__layer_loop *c = r->loop;
    const tow__recorded_body *b = &r->body;
    tow_trace *t = c->scope->model->trace;
    bool *used = tow__trace_alloc(t, b->n_out + 1, sizeof *used), depends = false;
    tow_graph *alone = NULL;
    if (!used || !kept) return NULL;
    used[index] = true;
    if (tow__dce(b->graph, used, true, kept, &alone)) {
        tow__adopt_error(t);
        return NULL;
    }
    for (size_t i = b->n_captures; i < tow_graph_input_count(b->graph); i++) depends = depends || kept[i];
    if (!depends) return alone;
    tow_graph_release(alone);
    if (variable)
        tow__params_fail(
            c->scope->model, TOW_INVALID_ARGUMENT,
            "%s: written in the %s %s with a value that depends on the %s, but a rule says TOW_SHARED; use %s",
            variable, c->transform, c->scope->path, c->mapped ? "row" : "iteration",
            c->mapped ? "TOW_STACKED, so that each row has its own"
                      : "TOW_CARRIED, so that each iteration reads what the one before it wrote");
    else
        tow_scope_fail(
            c->scope, TOW_INVALID_ARGUMENT,
            "%s: output %zu is TOW_NOT_MAPPED in .out_axes, but depends on the iteration; give it an axis, along "
            "which the iterations are stacked",
            c->transform, y);
    return NULL;
}

/* The same as a value outside of the loop. */
static tow_value outside(const recording *r, size_t index, size_t y, const char *variable)
{
    const tow__recorded_body *b = &r->body;
    tow_trace *t = r->loop->scope->model->trace;
    const size_t n_in = tow_graph_input_count(b->graph);
    bool *kept = tow__trace_alloc(t, n_in + 1, sizeof *kept);
    tow_value *in = tow__trace_alloc(t, n_in + 1, sizeof *in), out = {0};
    tow_graph *alone = in ? invariant_part(r, index, y, variable, kept) : NULL;
    if (!alone) return out;
    for (size_t i = 0, n = 0; i < b->n_captures; i++)
        if (kept[i]) in[n++] = b->captures[i];
    tow__inline(t, alone, in, &out);
    tow_graph_release(alone);
    return out;
}

/* The body without the outputs that are given once. */
static void replay(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const recording *r = user;
    tow_value *all = tow__trace_alloc(t, r->body.n_out + 1, sizeof *all);
    if (!all) return;
    tow__body_replay(t, in, all, (void *)&r->body);
    for (size_t i = 0; i < r->body.n_out; i++)
        if (r->results[i]) *out++ = all[i];
}

/* Rows of all bodies [turns, n_bodies, ...] -> [turns * n_bodies, ...]. */
static tow_value merge_rows(const tow__layer_loop *c, tow_value y)
{
    tow_type type = tow_value_type(y);
    if (c->n_bodies == 1 || tow_is_null(y)) return y;
    type.dims[1] *= type.dims[0];
    return tow_reshape(y, type.rank - 1, type.dims + 1);
}

/* True if output i of the body is the same for all iterations: given once, or the value of a variable that they
 * share. */
static bool is_invariant(const recording *r, size_t n_carry, size_t i)
{
    if (i < n_carry) return false;
    if (i < n_carry + r->loop->n_ys) return is_once(r->loop, i - n_carry);
    i -= n_carry + r->loop->n_ys;
    return i < r->body.n_written && !is_row(r, r->body.written[i]);
}

/* The axis on which the rule for a value that was sown stacks it. False, reported: it does not have this axis. */
static bool sown_axis(const recording *r, const tow__sown *sown, int rank, int *axis)
{
    tow__model *model = r->loop->scope->model;
    const char *below, *collection = tow__collection_of(model, sown->path, &below);
    tow_lift_rule rule = {0};
    if (!collection) return false;
    has_entry(r->iterations, r->loop->n_bodies, collection, below, &rule);
    *axis = rule.axis;
    if (tow__axis_at(rule.axis, rank) >= 0) return true;
    tow__params_fail(
        model, TOW_INVALID_ARGUMENT,
        "%s: a rule of the %s %s stacks it on axis %d; expected an axis in [%d, %d); change .axis, or give this path "
        "a rule of its own before that one",
        sown->path, r->loop->transform, r->loop->scope->path, rule.axis, -rank, rank);
    return false;
}

/* values: what is written and sown, with rows in front; those that have rows get them where their rules say. */
static void place_rows(const recording *r, tow_value *values)
{
    const tow__recorded_body *b = &r->body;
    const tow__sown *sown = b->frame.sown;
    for (size_t i = 0; i < b->n_written; i++)
        for (size_t k = 0; k < r->n_state; k++)
            if (r->state[k] == b->written[i] && r->axes[k] != 0) values[i] = tow_moveaxis(values[i], 0, r->axes[k]);
    for (tow_value *value = values + b->n_written; sown; sown = sown->next, value++) {
        int axis = 0;
        if (!sown_axis(r, sown, tow_value_type(*value).rank, &axis)) return;
        if (axis != 0) *value = tow_moveaxis(*value, 0, axis);
    }
}

/* Hands out what is written and sown; next: the results of the loop behind those of the layer. */
static void commit(const recording *r, size_t n_carry, const tow_value *next)
{
    const tow__layer_loop *c = r->loop;
    const tow__recorded_body *b = &r->body;
    tow__model *model = c->scope->model;
    tow_value *values = tow__trace_alloc(model->trace, b->n_out + 1, sizeof *values);
    const size_t first = n_carry + c->n_ys;
    if (!values) return;
    for (size_t i = first; i < b->n_out; i++)
        values[i - first] =
            r->results[i] ? *next++ : outside(r, i, 0, model->state.list->names.names[b->written[i - first]]);
    if (!tow__failed(model->trace)) place_rows(r, values);
    if (!tow__failed(model->trace)) tow__body_commit(model, b, values);
}

/* The values that rows of a vmap write to variables that they share must not depend on the row. */
static bool check_shared(const recording *r)
{
    const tow__layer_loop *c = r->loop;
    const tow__names *names = &c->scope->model->state.list->names;
    for (size_t i = c->n_ys; i < r->body.n_out; i++) {
        if (!is_invariant(r, 0, i)) continue;
        bool *kept = tow__trace_alloc(c->scope->model->trace, tow_graph_input_count(r->body.graph) + 1, sizeof *kept);
        tow_graph *alone = invariant_part(r, i, 0, names->names[r->body.written[i - c->n_ys]], kept);
        if (!alone) return false;
        tow_graph_release(alone);
    }
    return true;
}

/* All turns at once. */
static void bind_rows(recording *r, size_t n_xs, const tow_value *xs, tow_value *out)
{
    const tow__layer_loop *c = r->loop;
    tow_trace *t = c->scope->model->trace;
    tow_value *all = tow__trace_alloc(t, r->body.n_out + 1, sizeof *all);
    int *axes = tow__trace_alloc(t, r->body.n_out + 1, sizeof *axes);
    if (!all || !axes || !check_shared(r)) return;
    for (size_t i = 0; i < r->body.n_out; i++) axes[i] = is_invariant(r, 0, i) ? TOW_NOT_MAPPED : 0;
    const tow_vmap_options options = TOW_VMAP_OPTIONS(.out_axes = axes, .axis_size = c->turns, .has_axis_size = true);
    tow_vmap_function(t, tow__body_replay, &r->body, &options, n_xs, xs, r->body.n_out, all);
    if (tow__failed(t)) return;
    if (c->n_ys) memcpy(out, all, c->n_ys * sizeof *out);
    place_rows(r, all + c->n_ys);
    if (!tow__failed(t)) tow__body_commit(c->scope->model, &r->body, all + c->n_ys);
}

/* See tow__iteration_scope. */
static const char *iteration_scope(tow_trace *t, const char *scope, const char *around, int64_t number, int64_t every)
{
    char *renamed = tow__trace_alloc(t, strlen(scope) + TOW__NUMBERING_SIZE, 1);
    if (!renamed) return NULL;
    return tow__path_of_iterations(scope, around, number, every, renamed) ? renamed : scope;
}

static void bind_loop(recording *r, const tow_value *carry, size_t n_xs, const tow_value *xs, tow_value *out)
{
    const tow__layer_loop *c = r->loop;
    tow__model *model = c->scope->model;
    tow_trace *t = model->trace;
    const size_t n_carry = c->n_carry + r->n_carried;
    size_t n_out = r->body.n_out;
    tow_value *all = tow__trace_alloc(t, n_out, sizeof *all);
    r->results = tow__trace_alloc(t, n_out + 1, sizeof *r->results);
    if (!all || !r->results) return;
    for (size_t i = 0; i < r->body.n_out; i++) {
        r->results[i] = !is_invariant(r, n_carry, i);
        n_out -= !r->results[i];
    }
    tow_scan_options options = TOW_SCAN_OPTIONS(.length = c->turns, .has_length = true, .reverse = c->reverse,
                                                .unroll = c->unroll, .schedule = c->schedule);
    tow__set_iteration_scope(t, iteration_scope);
    tow_scan_function(t, replay, r, &options, n_carry, carry, n_xs, xs, n_out - n_carry, all, all + n_carry);
    tow__set_iteration_scope(t, NULL);
    if (tow__failed(t)) return;
    if (c->n_carry) memcpy(out, all, c->n_carry * sizeof *out);
    const tow_value *next = all + n_carry;
    for (size_t k = 0; k < c->n_ys; k++)
        out[c->n_carry + k] = is_once(c, k) ? outside(r, n_carry + k, k, NULL) : merge_rows(c, *next++);
    for (size_t i = 0; i < r->n_carried; i++) tow__variable_write(model, r->carried[i], all[c->n_carry + i]);
    commit(r, n_carry, next);
}

/* Types of the body's explicit inputs; NULL: out of memory. */
static tow_type *body_types(tow_trace *t, size_t n_carry, const tow_value *carry, size_t n_xs, const tow_value *xs)
{
    tow_type *types = tow__trace_alloc(t, n_carry + n_xs, sizeof *types);
    for (size_t i = 0; types && i < n_carry; i++) types[i] = tow_value_type(carry[i]);
    for (size_t i = 0; types && i < n_xs; i++) {
        tow_type type = tow_value_type(xs[i]);
        types[n_carry + i] = tow_make_type(type.dtype, type.rank - 1, type.dims + 1);
    }
    return types;
}

void tow__loop_record(const tow__layer_loop *c, tow_value *out)
{
    tow__model *model = c->scope->model;
    tow_trace *t = model->trace;
    size_t n_state = model->state.list->names.count, n_params = model->params.list->names.count;
    recording r = {.loop = c};
    tow_value *xs = tow__trace_alloc(t, c->n_xs + n_params + n_state + 1, sizeof *xs), *end = xs;
    tow_value *carry = tow__trace_alloc(t, c->n_carry + n_state, sizeof *carry);
    if (!xs || !carry) return;
    if (c->n_carry) memcpy(carry, c->carry, c->n_carry * sizeof *carry);
    add_xs(&r, &end);
    if (tow__failed(t) || !collect(&r, &end, carry)) return;
    *end++ = tow_iota(t, tow_make_type(TOW_I32, 1, &c->turns), 0);
    size_t n_xs = (size_t)(end - xs), n_carry = c->n_carry + r.n_carried;
    tow_type *types = tow__failed(t) ? NULL : body_types(t, n_carry, carry, n_xs, xs);
    if (!types || !tow__body_record(model, loop_body, &r, n_carry + n_xs, types, n_carry + c->n_ys, &r.body)) return;
    if (check_written(&r)) {
        if (c->mapped)
            bind_rows(&r, n_xs, xs, out);
        else
            bind_loop(&r, carry, n_xs, xs, out);
    }
    tow__body_free(&r.body);
}

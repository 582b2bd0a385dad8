/* One turn of a loop, and loops of which every turn is recorded by itself. See loop.h. */
#include "transforms/loop.h"
#include "src/scope/calls.h"
#include "src/scope/frames.h"
#include "src/scope/lift.h"

/* After a trace that does not count, entries below the iteration that it made, or drew anew after the trace of a scan
 * around this one, are drawn anew; but not those that the iterations share, which are of the first trace. first: how
 * many had been recorded before it. */
static void set_stale(tow__store *store, uint32_t first, const tow_scope *iteration, bool collections)
{
    for (uint32_t i = 0; i < store->list->names.count; i++) {
        const char *path = store->list->names.names[i], *below = path;
        const char *collection = collections ? tow__collection_of(iteration->model, path, &below) : "params";
        tow_lift_rule rule;
        if (!collection || store->recipes[i].recorded < first) continue;
        if (tow__entry_below(iteration, collection, below, &rule) && rule.how == TOW_STACKED)
            store->recipes[i].stale = true;
    }
}

/* Flax traces the body of a scan twice and keeps the draws of the second time: a call of which nothing but the counters
 * of its streams remains. */
static void call_for_counters(const tow__layer_loop *c, const tow_module *body, tow_scope *iteration, size_t n_in,
                              const tow_value *in, tow_value *out)
{
    tow__model *model = c->scope->model;
    uint32_t params = model->params.recorded, state = model->state.recorded;
    tow__call_log *log = model->log;
    const bool wraps = model->open_call && model->open_call->wraps;
    tow__frame dropped;
    tow__frame_open(model, &dropped);
    model->log = NULL;
    tow__call_here(iteration, body, n_in, in, c->n_carry + c->n_ys, out);
    model->log = log;
    if (model->open_call) model->open_call->wraps = wraps;
    tow__frame_close(model);
    if (!model->initializing) return;
    set_stale(&model->params, params, iteration, false);
    set_stale(&model->state, state, iteration, true);
}

static void call_body(const tow__layer_loop *c, const tow_module *body, tow_scope *iteration, const tow_value *carry,
                      const tow_value *xs, tow_value *out)
{
    size_t n_in = c->n_carry + c->n_broadcast + c->n_xs;
    tow_value *in = tow__trace_alloc(c->scope->model->trace, n_in + 1, sizeof *in);
    if (!in) return;
    if (c->n_carry) memcpy(in, carry, c->n_carry * sizeof *in);
    if (c->n_broadcast) memcpy(in + c->n_carry, c->broadcast, c->n_broadcast * sizeof *in);
    if (c->n_xs) memcpy(in + c->n_carry + c->n_broadcast, xs, c->n_xs * sizeof *in);
    if (c->flax_keys && !c->mapped) call_for_counters(c, body, iteration, n_in, in, out);
    tow__call_here(iteration, body, n_in, in, c->n_carry + c->n_ys, out);
    for (size_t i = 0; i < c->n_carry && !tow__scope_failed(iteration); i++) {
        tow_type before = tow_value_type(carry[i]), after = tow_value_type(out[i]);
        if (!tow_type_equal(before, after))
            tow_scope_fail(
                iteration, TOW_TYPE_MISMATCH,
                "%s: carry %zu enters an iteration as %s and leaves it as %s; the layer must return the type "
                "that it is given",
                c->transform, i, tow__type_name(before).text, tow__type_name(after).text);
    }
}

void tow__loop_turn(const tow__layer_loop *c, tow__turn turn, tow_value *carry, const tow_value *xs, tow_value *ys)
{
    tow_trace *t = c->scope->model->trace;
    tow_value *out = tow__trace_alloc(t, c->n_carry + c->n_ys + 1, sizeof *out),
              *rows = tow__trace_alloc(t, c->n_xs + 1, sizeof *rows);
    if (!out || !rows) return;
    for (size_t step = 0; step < c->n_bodies && !tow__failed(t); step++) {
        size_t j = c->reverse ? c->n_bodies - 1 - step : step;
        for (size_t k = 0; k < c->n_xs; k++)
            rows[k] = c->n_bodies == 1 || (c->whole && c->whole[k]) ? xs[k] : tow__loop_row(xs[k], (int64_t)j);
        turn.unit = c->stride;
        turn.stride = c->stride * (int64_t)c->n_bodies;
        turn.first = c->first + c->stride * (int64_t)j;
        tow_scope *iteration = tow__scope_iteration(c->scope, &turn);
        call_body(c, c->bodies[j], iteration, carry, rows, out);
        tow_scope_end(iteration);
        if (c->n_carry) memcpy(carry, out, c->n_carry * sizeof *carry);
        if (c->n_ys) memcpy(ys + j * c->n_ys, out + c->n_carry, c->n_ys * sizeof *ys);
    }
}

/* ---- every turn by itself ---------------------------------------------------------------------------------------- */

tow_value tow__loop_row(tow_value x, int64_t i)
{
    tow_type type = tow_value_type(x);
    return tow_reshape(tow_slice_axis(x, 0, i, i + 1), type.rank - 1, type.dims + 1);
}

tow_value tow__loop_stack(tow_trace *t, int64_t n, tow_value *rows)
{
    for (int64_t i = 0; i < n; i++) rows[i] = tow_expand_dims(rows[i], 0);
    return tow__failed(t) ? (tow_value){0} : tow_concatenate((size_t)n, rows, 0);
}

/* Variables that the turns share: each turn reads what was there before the loop, as in the loop, and what is written
 * is there behind it. */
typedef struct shared_variables {
    size_t n;
    uint32_t *index;
    tow_value *before, *after;
} shared_variables;

static bool is_shared(const tow_scope *iterations, size_t n, const char *collection, const char *below)
{
    tow_lift_rule rule;
    for (size_t j = 0; j < n; j++)
        if (tow__entry_below(&iterations[j], collection, below, &rule) && rule.how == TOW_SHARED) return true;
    return false;
}

/* False: out of memory, which sticks. */
static bool find_shared(const tow__layer_loop *c, shared_variables *s)
{
    tow__model *model = c->scope->model;
    tow_trace *t = model->trace;
    const tow__names *names = &model->state.list->names;
    const size_t n = names->count;
    *s = (shared_variables){0};
    if (model->initializing || !c->lift || n == 0) return true;
    tow_scope *iterations = tow__trace_alloc(t, c->n_bodies, sizeof *iterations);
    s->index = tow__trace_alloc(t, n, sizeof *s->index);
    s->before = tow__trace_alloc(t, n, sizeof *s->before);
    s->after = tow__trace_alloc(t, n, sizeof *s->after);
    if (!iterations || !s->index || !s->before || !s->after) return false;
    for (size_t j = 0; j < c->n_bodies; j++) iterations[j] = tow__loop_iteration(c, j);
    for (uint32_t i = 0; i < n && !tow__failed(t); i++) {
        const char *below, *collection = tow__collection_of(model, names->names[i], &below);
        if (!collection || !is_shared(iterations, c->n_bodies, collection, below)) continue;
        s->index[s->n] = i;
        s->before[s->n] = s->after[s->n] = tow__variable_value(model, i);
        s->n++;
    }
    return !tow__failed(t);
}

/* After a turn: values that it wrote are put aside. */
static void restore_shared(tow__model *model, shared_variables *s)
{
    for (size_t k = 0; k < s->n; k++) {
        tow_value now = tow__variable_value(model, s->index[k]);
        if (now.id == s->before[k].id) continue;
        s->after[k] = now;
        tow__variable_write(model, s->index[k], s->before[k]);
    }
}

static void write_shared(tow__model *model, const shared_variables *s)
{
    for (size_t k = 0; k < s->n; k++)
        if (s->after[k].id != s->before[k].id) tow__variable_write(model, s->index[k], s->after[k]);
}

/* Reports unless so many layers may be written out, of which the first one recorded so many equations. */
static bool may_unroll(const tow__layer_loop *c, size_t layers, uint32_t equations)
{
    const size_t most = TOW__MOST_UNROLLED / (equations > 0 ? equations : 1);
    if (layers <= most || layers == 1 || tow__scope_failed(c->scope)) return true;
    tow_scope_fail(
        c->scope, TOW_INVALID_ARGUMENT,
        "%s: .unrolled writes out %zu layers of %u equations, more than %d equations in all; expected at most "
        "%zu layers: leave .unrolled out, a loop has the same names, values and bits",
        c->transform, layers, equations, (int)TOW__MOST_UNROLLED, most > 0 ? most : 1);
    return false;
}

void tow__loop_unroll(const tow__layer_loop *c, tow_value *out)
{
    tow_trace *t = c->scope->model->trace;
    size_t turns = (size_t)c->turns, layers = turns * c->n_bodies;
    if (layers == 0 && c->n_ys > 0) {
        tow_scope_fail(c->scope, TOW_UNSUPPORTED,
                       "%s: an unrolled loop of length 0 cannot tell the types of its ys; leave .unrolled out",
                       c->transform);
        return;
    }
    tow_value *carry = tow__trace_alloc(t, c->n_carry + 1, sizeof *carry),
              *xs = tow__trace_alloc(t, c->n_xs + 1, sizeof *xs);
    tow_value *ys = tow__trace_alloc(t, c->n_ys * layers + 1, sizeof *ys),
              *rows = tow__trace_alloc(t, layers + 1, sizeof *rows);
    shared_variables shared;
    if (!carry || !xs || !ys || !rows || !find_shared(c, &shared)) return;
    if (c->n_carry) memcpy(carry, c->carry, c->n_carry * sizeof *carry);
    tow__layer_loop one = *c;
    one.n_bodies = 1;
    for (size_t step = 0; step < layers && !tow__failed(t); step++) {
        size_t layer = c->reverse ? layers - 1 - step : step, j = layer % c->n_bodies;
        for (size_t k = 0; k < c->n_xs; k++)
            xs[k] = c->whole && c->whole[k] ? c->xs[k] : tow__loop_row(c->xs[k], (int64_t)layer);
        one.bodies = &c->bodies[j];
        tow__turn turn = {.fixed = (int64_t)layer,
                          .covered = c->covered,
                          .flax_keys = c->flax_keys,
                          .mapped = c->mapped,
                          .lift = c->lift};
        const uint32_t before = step == 0 ? tow__recorded(t) : 0;
        tow__loop_turn(&one, turn, carry, xs, ys + layer * c->n_ys);
        if (step == 0 && !may_unroll(c, layers, tow__recorded(t) - before)) return;
        restore_shared(c->scope->model, &shared);
    }
    if (tow__failed(t)) return;
    write_shared(c->scope->model, &shared);
    if (c->n_carry) memcpy(out, carry, c->n_carry * sizeof *out);
    for (size_t k = 0; k < c->n_ys; k++) {
        for (size_t i = 0; i < layers; i++) rows[i] = ys[i * c->n_ys + k];
        out[c->n_carry + k] = c->once && c->once[k] ? rows[0] : tow__loop_stack(t, (int64_t)layers, rows);
    }
}

/* scan as a layer: `length` copies of the inner layer. The body is traced once; stacked parameters and variables enter
 * the loop as xs beside the caller's, together with the iteration's index, from which random keys are made.
 *
 *   operands:  carry..., shared variables...   xs: caller's..., rows of parameters..., rows of variables..., index i32
 *   results:   carry..., shared variables...   ys: caller's..., rows of variables written..., values sown...
 *   broadcast inputs are captured by the body like any outer value, and so are shared variables that are immutable. */
#include <inttypes.h>
#include <stdio.h>

#include "layers/scope.h"
#include "tow/transforms.h"

/* One call of a scan. */
typedef struct call_info {
    tow_scope *scope;
    const tow_scan *m;
    int64_t length;
    size_t n_carry, n_broadcast, n_xs, n_ys;
    const tow_value *carry, *broadcast, *xs; /* slices of the inputs */
    tow__lift *lift;                         /* lives as long as the trace */
    size_t n_params, n_state, n_shared; /* parameters and variables that enter by rows, variables that are carried */
    uint32_t *params, *state, *shared;
} call_info;

/* ---- checking the call ------------------------------------------------------------------------------------------- */

static bool read_length(call_info *c)
{
    const tow_scan *m = c->m;
    tow_scope *scope = c->scope;
    if (m->length < 0 || (m->empty && m->length > 0)) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "scan: .length = %" PRId64 "%s; expected a positive number",
                       m->length, m->empty ? " with .empty" : "");
        return false;
    }
    bool known = m->empty || m->length > 0;
    c->length = m->length;
    for (size_t i = 0; i < c->n_xs; i++) {
        tow_type type = tow_value_type(c->xs[i]);
        if (type.rank > 0 && !known) {
            c->length = type.dims[0];
            known = true;
        }
        if (type.rank > 0 && type.dims[0] == c->length) continue;
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                       "scan: xs %zu: expected a leading axis of length %" PRId64 " (%s), found %s", i, c->length,
                       m->length || m->empty ? "that of the scan" : "that of the first xs", tow__type_name(type).text);
        return false;
    }
    if (!known)
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "scan: no length; give .length = N (or .empty = true), or xs to take it from");
    return known;
}

static bool read_call(tow_scope *scope, const tow_scan *m, size_t n_in, const tow_value *in, size_t n_out, call_info *c)
{
    size_t n_carry = m->n_carry ? m->n_carry : 1;
    if (n_in < n_carry + m->n_broadcast || n_out < n_carry) {
        tow_scope_fail(
            scope, TOW_INVALID_ARGUMENT,
            "scan: expected at least %zu inputs (carry %zu, broadcast %zu) and %zu outputs, found %zu and %zu",
            n_carry + m->n_broadcast, n_carry, m->n_broadcast, n_carry, n_in, n_out);
        return false;
    }
    *c = (call_info){.scope = scope,
                     .m = m,
                     .n_carry = n_carry,
                     .n_broadcast = m->n_broadcast,
                     .n_xs = n_in - n_carry - m->n_broadcast,
                     .n_ys = n_out - n_carry,
                     .carry = in,
                     .broadcast = in + n_carry,
                     .xs = in + n_carry + m->n_broadcast};
    return read_length(c);
}

/* ---- one iteration ----------------------------------------------------------------------------------------------- */

/* After a trace that does not count, entries below the iteration that it made, or drew anew after the trace of a scan
 * around this one, are drawn anew; but not those that the iterations share, which are of the first trace. first: how many had
 * been recorded before it. */
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
static void call_for_counters(const call_info *c, tow_scope *iteration, size_t n_in, const tow_value *in,
                              tow_value *out)
{
    tow__model *model = c->scope->model;
    uint32_t params = model->params.recorded, state = model->state.recorded;
    tow__frame dropped;
    tow__frame_open(model, &dropped);
    tow__call_here(iteration, c->m->inner, n_in, in, c->n_carry + c->n_ys, out);
    tow__frame_close(model);
    if (!model->initialising) return;
    set_stale(&model->params, params, iteration, false);
    set_stale(&model->state, state, iteration, true);
}

static void call_inner(const call_info *c, tow_scope *iteration, const tow_value *carry, const tow_value *xs,
                       tow_value *out)
{
    tow_trace *t = c->scope->model->trace;
    size_t n_in = c->n_carry + c->n_broadcast + c->n_xs;
    tow_value *in = tow__trace_alloc(t, n_in + 1, sizeof *in);
    if (!in) return;
    memcpy(in, carry, c->n_carry * sizeof *in);
    if (c->n_broadcast) memcpy(in + c->n_carry, c->broadcast, c->n_broadcast * sizeof *in);
    if (c->n_xs) memcpy(in + c->n_carry + c->n_broadcast, xs, c->n_xs * sizeof *in);
    if (c->m->keys == TOW_KEYS_FLAX) call_for_counters(c, iteration, n_in, in, out);
    tow__call_here(iteration, c->m->inner, n_in, in, c->n_carry + c->n_ys, out);
    for (size_t i = 0; i < c->n_carry && !tow__scope_failed(iteration); i++) {
        tow_type before = tow_value_type(carry[i]), after = tow_value_type(out[i]);
        if (!tow_type_equal(before, after))
            tow_scope_fail(
                iteration, TOW_TYPE_MISMATCH,
                "scan: carry %zu enters an iteration as %s and leaves it as %s; the layer must return the type "
                "that it is given",
                i, tow__type_name(before).text, tow__type_name(after).text);
    }
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* The body: in = carry, shared variables, xs, rows of parameters, rows of variables, index. */
static void loop_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const call_info *c = user;
    tow__model *model = c->scope->model;
    tow__frame *f = model->frame;
    const tow_value *shared = in + c->n_carry, *xs = shared + c->n_shared, *params = xs + c->n_xs;
    const tow_value *state = params + c->n_params;
    tow__level *level = tow__trace_alloc(t, 1, sizeof *level), *outer = c->scope->level;
    tow_value *inner_out = tow__trace_alloc(t, c->n_carry + c->n_ys, sizeof *inner_out);
    f->params = tow__trace_alloc(t, model->params.list->names.count + 1U, sizeof *f->params);
    f->state = tow__trace_alloc(t, model->state.list->names.count + 1U, sizeof *f->state);
    if (!level || !inner_out || !f->params || !f->state) return;
    for (size_t i = 0; i < c->n_params; i++) f->params[c->params[i]] = params[i];
    for (size_t i = 0; i < c->n_state; i++) f->state[c->state[i]] = state[i];
    for (size_t i = 0; i < c->n_shared; i++) f->state[c->shared[i]] = shared[i];
    *level = (tow__level){
        .outer = outer, .depth = outer ? outer->depth + 1 : 0, .length = c->length, .index = state[c->n_state]};
    tow_scope *iteration = tow__scope_iteration(c->scope, level, -1, c->m->keys == TOW_KEYS_FLAX, c->lift);
    call_inner(c, iteration, in, xs, inner_out);
    tow_scope_end(iteration);
    memcpy(out, inner_out, c->n_carry * sizeof *out);
    for (size_t i = 0; i < c->n_shared; i++) {
        out[c->n_carry + i] = tow__variable_value(model, c->shared[i]);
        if (f->written) f->written[c->shared[i]] = false; /* handed on as a carry */
    }
    if (c->n_ys) memcpy(out + c->n_carry + c->n_shared, inner_out + c->n_carry, c->n_ys * sizeof *out);
}

/* The value `stack` of the entry `name` becomes an xs. False: an error. */
static bool add_row(const call_info *c, const char *kind, const char *name, tow_value stack, tow_value **xs)
{
    tow_type type = tow_value_type(stack);
    if (type.rank == 0 || type.dims[0] != c->length) {
        tow__params_fail(c->scope->model, TOW_SHAPE_MISMATCH,
                         "%s%s: expected %" PRId64
                         " layers in the leading axis (the length of the scan), found %s; use "
                         "the length that it was initialised with",
                         kind, name, c->length, tow__type_name(type).text);
        return false;
    }
    *(*xs)++ = stack;
    return true;
}

/* The scope of an iteration, for asking what it says of entries. */
static tow_scope an_iteration(const call_info *c)
{
    tow_scope iteration = *c->scope;
    iteration.parent = c->scope;
    iteration.name = "{}";
    iteration.iteration = true;
    iteration.transparent = false;
    iteration.lift = c->lift;
    return iteration;
}

/* Parameters of which every iteration has its own become xs. */
static bool collect_params(call_info *c, tow_value **xs)
{
    tow__model *model = c->scope->model;
    const tow__names *names = &model->params.list->names;
    const tow_scope iteration = an_iteration(c);
    c->params = tow__trace_alloc(model->trace, names->count + 1U, sizeof *c->params);
    if (!c->params) return false;
    for (uint32_t i = 0; i < names->count; i++) {
        tow_lift_rule rule;
        if (!tow__entry_below(&iteration, "params", names->names[i], &rule) || rule.how != TOW_STACKED) continue;
        if (!add_row(c, "params/", names->names[i], tow__param_value(model, i), xs)) return false;
        c->params[c->n_params++] = i;
    }
    return true;
}

/* Variables of which every iteration has its own become xs, carried ones that are mutable carries. */
static bool collect_state(call_info *c, tow_value **xs, tow_value *carry)
{
    tow__model *model = c->scope->model;
    const tow__names *names = &model->state.list->names;
    const tow_scope iteration = an_iteration(c);
    c->state = tow__trace_alloc(model->trace, names->count + 1U, sizeof *c->state);
    c->shared = tow__trace_alloc(model->trace, names->count + 1U, sizeof *c->shared);
    if (!c->state || !c->shared) return false;
    for (uint32_t i = 0; i < names->count; i++) {
        const char *path = names->names[i], *below;
        const char *collection = tow__collection_of(model, path, &below);
        tow_lift_rule rule;
        if (!collection) return false;
        if (!tow__entry_below(&iteration, collection, below, &rule)) continue;
        if (rule.how == TOW_STACKED) {
            if (!add_row(c, "", path, tow__variable_value(model, i), xs)) return false;
            c->state[c->n_state++] = i;
        } else if (rule.how == TOW_CARRIED && tow__collection_mutable(model, collection) && !tow__unreturned(model)) {
            c->shared[c->n_shared] = i;
            carry[c->n_carry + c->n_shared++] = tow__variable_value(model, i);
        }
    }
    return true;
}

/* A variable that the body wrote must be one of its rows: it is the layer's own. */
static bool check_written(const call_info *c, const tow__body *body)
{
    for (size_t i = 0; i < body->n_written; i++) {
        bool row = false;
        for (size_t k = 0; k < c->n_state; k++) row = row || c->state[k] == body->written[i];
        if (row) continue;
        tow__params_fail(
            c->scope->model, TOW_INVALID_ARGUMENT,
            "%s: written in the scan %s, in which it was not declared or is TOW_SHARED; let the layer declare "
            "it in the scope that it is given, and put its collection into .shared_collections, or under a "
            "rule TOW_CARRIED, if all iterations write one variable",
            c->scope->model->state.list->names.names[body->written[i]], c->scope->path);
        return false;
    }
    return true;
}

static void bind_loop(call_info *c, tow__body *body, const tow_value *carry, size_t n_xs, const tow_value *xs,
                      tow_value *out)
{
    tow__model *model = c->scope->model;
    size_t n_carry = c->n_carry + c->n_shared;
    tow_value *all = tow__trace_alloc(model->trace, body->n_out, sizeof *all);
    if (!all) return;
    tow_scan_options options = {.length = c->length, .has_length = true, .reverse = c->m->reverse};
    tow_scan_function(model->trace, tow__body_replay, body, &options, n_carry, carry, n_xs, xs, body->n_out - n_carry,
                      all, all + n_carry);
    if (tow__failed(model->trace)) return;
    memcpy(out, all, c->n_carry * sizeof *out);
    if (c->n_ys) memcpy(out + c->n_carry, all + n_carry, c->n_ys * sizeof *out);
    for (size_t i = 0; i < c->n_shared; i++) tow__variable_write(model, c->shared[i], all[c->n_carry + i]);
    tow__body_commit(model, body, all + n_carry + c->n_ys);
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

static void record_loop(call_info *c, tow_value *out)
{
    tow__model *model = c->scope->model;
    tow_trace *t = model->trace;
    size_t n_state = model->state.list->names.count, n_params = model->params.list->names.count;
    tow_value *xs = tow__trace_alloc(t, c->n_xs + n_params + n_state + 1, sizeof *xs);
    tow_value *carry = tow__trace_alloc(t, c->n_carry + n_state, sizeof *carry);
    if (!xs || !carry) return;
    memcpy(carry, c->carry, c->n_carry * sizeof *carry);
    if (c->n_xs) memcpy(xs, c->xs, c->n_xs * sizeof *xs);
    tow_value *end = xs + c->n_xs;
    if (!model->initialising && (!collect_params(c, &end) || !collect_state(c, &end, carry))) return;
    *end++ = tow_iota(t, tow_make_type(TOW_I32, 1, &c->length), 0);
    size_t n_xs = (size_t)(end - xs), n_carry = c->n_carry + c->n_shared;
    tow_type *types = tow__failed(t) ? NULL : body_types(t, n_carry, carry, n_xs, xs);
    tow__body body;
    if (!types || !tow__body_record(model, loop_body, c, n_carry + n_xs, types, n_carry + c->n_ys, &body)) return;
    if (check_written(c, &body)) bind_loop(c, &body, carry, n_xs, xs, out);
    tow__body_free(&body);
}

/* ---- unrolled: every iteration by itself ------------------------------------------------------------------------- */

/* Row i of x [length, ...]. */
static tow_value row_of(tow_value x, int64_t i)
{
    tow_type type = tow_value_type(x);
    return tow_reshape(tow_slice_axis(x, 0, i, i + 1), type.rank - 1, type.dims + 1);
}

/* parts[0..length) -> [length, ...] */
static tow_value stack_rows(tow_trace *t, int64_t length, tow_value *parts)
{
    for (int64_t i = 0; i < length; i++) parts[i] = tow_expand_dims(parts[i], 0);
    return tow__failed(t) ? (tow_value){0} : tow_concatenate((size_t)length, parts, 0);
}

static void record_unrolled(call_info *c, tow_value *out)
{
    tow_trace *t = c->scope->model->trace;
    size_t n_out = c->n_carry + c->n_ys, length = (size_t)c->length;
    if (length == 0 && c->n_ys > 0) {
        tow_scope_fail(c->scope, TOW_UNSUPPORTED,
                       "scan: an unrolled scan of length 0 cannot tell the types of its ys; leave .unrolled out");
        return;
    }
    tow_value *carry = tow__trace_alloc(t, n_out, sizeof *carry), *next = tow__trace_alloc(t, n_out, sizeof *next);
    tow_value *xs = tow__trace_alloc(t, c->n_xs + 1, sizeof *xs),
              *ys = tow__trace_alloc(t, c->n_ys * length + 1, sizeof *ys);
    if (!carry || !next || !xs || !ys) return;
    memcpy(carry, c->carry, c->n_carry * sizeof *carry);
    for (size_t step = 0; step < length && !tow__failed(t); step++) {
        size_t i = c->m->reverse ? length - 1 - step : step;
        for (size_t k = 0; k < c->n_xs; k++) xs[k] = row_of(c->xs[k], (int64_t)i);
        tow_scope *iteration = tow__scope_iteration(c->scope, NULL, (int64_t)i, c->m->keys == TOW_KEYS_FLAX, c->lift);
        call_inner(c, iteration, carry, xs, next);
        tow_scope_end(iteration);
        memcpy(carry, next, c->n_carry * sizeof *carry);
        for (size_t k = 0; k < c->n_ys; k++) ys[k * length + i] = next[c->n_carry + k];
    }
    if (tow__failed(t)) return;
    memcpy(out, carry, c->n_carry * sizeof *out);
    for (size_t k = 0; k < c->n_ys; k++) out[c->n_carry + k] = stack_rows(t, c->length, ys + k * length);
}

/* ---- the layer --------------------------------------------------------------------------------------------------- */

/* After the body was traced: whether some entry below the scan is in the collection. */
static bool has_below(const call_info *c, const tow_scope *iteration, const char *collection)
{
    const tow__model *model = c->scope->model;
    tow_lift_rule rule;
    if (strcmp(collection, "params") == 0)
        for (uint32_t i = 0; i < model->params.list->names.count; i++)
            if (tow__entry_below(iteration, collection, model->params.list->names.names[i], &rule)) return true;
    for (uint32_t i = 0; i < model->state.list->names.count; i++) {
        const char *path = model->state.list->names.names[i];
        if (tow__path_in(path, collection) &&
            tow__entry_below(iteration, collection, path + strlen(collection) + 1, &rule))
            return true;
    }
    return false;
}

/* Every collection named must be one in which the layer has a variable. */
static void check_shared(const call_info *c)
{
    const tow_scope iteration = an_iteration(c);
    const tow__names *names = &c->scope->model->state.list->names;
    for (const char *const *name = c->m->shared_collections; name && *name && !tow__scope_failed(c->scope); name++)
        if (!has_below(c, &iteration, *name))
            tow_scope_fail(c->scope, TOW_NOT_FOUND,
                           "scan: .shared_collections names \"%s\", but the layer declares no variable in it (the "
                           "model has %u variables, the first is %s)",
                           *name, names->count, names->count ? names->names[0] : "none");
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_scan *m = (const tow_scan *)module;
    call_info c;
    if (scope->level && scope->level->depth + 1 >= TOW_MAX_RANK) {
        tow_scope_fail(scope, TOW_UNSUPPORTED, "scan: more than %d scans inside each other", TOW_MAX_RANK);
        return;
    }
    if (!read_call(scope, m, n_in, in, n_out, &c)) return;
    c.lift = tow__lift_make(scope, "scan", m->variables, m->streams, m->shared_collections);
    if (tow__scope_failed(scope)) return;
    (m->unrolled ? record_unrolled : record_loop)(&c, out);
    if (m->unrolled && c.length == 0) return;
    check_shared(&c);
    tow__lift_check_used(scope, "scan", c.lift);
}

const tow_module_class tow_scan_class = {.name = "scan", .call = call};

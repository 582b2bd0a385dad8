/* scan as a layer: `length` copies of the inner layer. The body is traced once; stacked parameters enter the loop as xs
 * beside the caller's, together with the iteration's index, from which random keys are made.
 *
 *   operands of the loop:  carry...   xs: caller's xs..., rows of parameters..., index i32
 *   broadcast inputs are captured by the body like any outer value. */
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
    size_t n_rows;
    uint32_t *row_params; /* which parameters enter by rows */
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
    for (size_t i = 0; i < c->n_xs; ++i) {
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

/* After a trace that does not count, parameters made since `first` are drawn anew. */
static void set_stale(tow__model *model, uint32_t first, const char *prefix)
{
    size_t length = strlen(prefix);
    for (uint32_t i = first; i < model->params->names.count; ++i)
        if (strncmp(model->params->names.names[i], prefix, length) == 0) model->recipes[i].stale = true;
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
    if (c->m->keys == TOW_KEYS_FLAX) { /* Flax traces the body twice and keeps the draws of the second time */
        tow__model *model = c->scope->model;
        uint32_t first = model->params->names.count;
        tow__call_here(iteration, c->m->inner, n_in, in, c->n_carry + c->n_ys, out);
        if (model->initialising) set_stale(model, first, iteration->path);
    }
    tow__call_here(iteration, c->m->inner, n_in, in, c->n_carry + c->n_ys, out);
    for (size_t i = 0; i < c->n_carry && !tow__scope_failed(iteration); ++i) {
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

/* The body: in = carry, xs, rows of parameters, index. */
static void loop_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const call_info *c = user;
    tow__model *model = c->scope->model;
    tow__level *level = tow__trace_alloc(t, 1, sizeof *level);
    tow_value *rows = tow__trace_alloc(t, model->params->names.count + 1U, sizeof *rows);
    if (!level || !rows) return;
    const tow_value *xs = in + c->n_carry, *params = xs + c->n_xs;
    for (size_t i = 0; i < c->n_rows; ++i) rows[c->row_params[i]] = params[i];
    tow__level *outer = c->scope->level;
    *level = (tow__level){.outer = outer,
                          .depth = outer ? outer->depth + 1 : 0,
                          .length = c->length,
                          .index = params[c->n_rows],
                          .rows = model->initialising ? NULL : rows};
    tow_scope *iteration = tow__scope_iteration(c->scope, level, -1, c->m->keys == TOW_KEYS_FLAX);
    call_inner(c, iteration, in, xs, out);
    tow_scope_end(iteration);
}

/* Parameters below "path/{}/" become xs; their leading axis at this level must be the scan's length. */
static tow_value *collect_rows(call_info *c, tow_value *xs)
{
    tow__model *model = c->scope->model;
    size_t size = strlen(c->scope->path) + 8;
    char *prefix = tow__trace_alloc(model->trace, size, 1);
    if (!prefix) return NULL;
    snprintf(prefix, size, "%s%s{}/", c->scope->path, c->scope->path[0] ? "/" : "");
    for (uint32_t i = 0; i < model->params->names.count; ++i) {
        const char *path = model->params->names.names[i];
        if (strncmp(path, prefix, strlen(prefix)) != 0) continue;
        tow_value stack = tow__param_value(c->scope, i);
        tow_type type = tow_value_type(stack);
        if (type.rank == 0 || type.dims[0] != c->length) {
            tow__params_fail(model, TOW_SHAPE_MISMATCH,
                             "params/%s: expected %" PRId64
                             " layers in the leading axis (the length of the scan), found %s; use "
                             "the length that the parameters were initialised with",
                             path, c->length, tow__type_name(type).text);
            return NULL;
        }
        c->row_params[c->n_rows++] = i;
        *xs++ = stack;
    }
    return xs;
}

static void record_loop(call_info *c, tow_value *out)
{
    tow__model *model = c->scope->model;
    tow_trace *t = model->trace;
    size_t most = model->params->names.count + 1U;
    tow_value *xs = tow__trace_alloc(t, c->n_xs + most + 1, sizeof *xs);
    c->row_params = tow__trace_alloc(t, most, sizeof *c->row_params);
    if (!xs || !c->row_params) return;
    if (c->n_xs) memcpy(xs, c->xs, c->n_xs * sizeof *xs);
    tow_value *end = model->initialising ? xs + c->n_xs : collect_rows(c, xs + c->n_xs);
    if (!end) return;
    *end++ = tow_iota(t, tow_make_type(TOW_I32, 1, &c->length), 0);
    tow_scan_options options = {.length = c->length, .has_length = true, .reverse = c->m->reverse};
    tow_scan_function(t, loop_body, c, &options, c->n_carry, c->carry, (size_t)(end - xs), xs, c->n_ys, out,
                      out + c->n_carry);
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
    for (int64_t i = 0; i < length; ++i) parts[i] = tow_expand_dims(parts[i], 0);
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
    for (size_t step = 0; step < length && !tow__failed(t); ++step) {
        size_t i = c->m->reverse ? length - 1 - step : step;
        for (size_t k = 0; k < c->n_xs; ++k) xs[k] = row_of(c->xs[k], (int64_t)i);
        tow_scope *iteration = tow__scope_iteration(c->scope, NULL, (int64_t)i, c->m->keys == TOW_KEYS_FLAX);
        call_inner(c, iteration, carry, xs, next);
        tow_scope_end(iteration);
        memcpy(carry, next, c->n_carry * sizeof *carry);
        for (size_t k = 0; k < c->n_ys; ++k) ys[k * length + i] = next[c->n_carry + k];
    }
    if (tow__failed(t)) return;
    memcpy(out, carry, c->n_carry * sizeof *out);
    for (size_t k = 0; k < c->n_ys; ++k) out[c->n_carry + k] = stack_rows(t, c->length, ys + k * length);
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
    (m->unrolled ? record_unrolled : record_loop)(&c, out);
}

const tow_module_class tow_scan_class = {.name = "scan", .call = call};

/* scan as a layer: `length` copies of the inner layer, one after the other. The loop itself is in loop.c. */
#include <inttypes.h>

#include "src/scope/lift.h"
#include "src/scope/tree.h"
#include "tow/numpy.h"
#include "tow/transforms.h"
#include "transforms/loop.h"

/* One call of a scan. */
typedef struct call_info {
    tow__layer_loop loop;
    const tow_scan *m;
    tow_value *xs;
    bool *whole, *once;
} call_info;

/* ---- checking the call ------------------------------------------------------------------------------------------- */

/* Axis `axis` of the inputs that are scanned comes to the front; those that are not are seen whole. */
static bool read_axes(call_info *c, size_t i)
{
    const int axis = c->m->in_axes ? c->m->in_axes[i] : 0;
    tow_type type = tow_value_type(c->loop.xs[i]);
    c->xs[i] = c->loop.xs[i];
    c->whole[i] = axis == TOW_NOT_MAPPED;
    if (c->whole[i]) return true;
    if (type.rank > 0 && (axis < -type.rank || axis >= type.rank)) {
        tow_scope_fail(c->loop.scope, TOW_INVALID_ARGUMENT,
                       "scan: xs %zu is %s, which has no axis %d of .in_axes; give one in [%d, %d), or TOW_NOT_MAPPED",
                       i, tow__type_name(type).text, axis, -type.rank, type.rank);
        return false;
    }
    if (type.rank > 0 && axis != 0) c->xs[i] = tow_moveaxis(c->loop.xs[i], axis, 0);
    return true;
}

static bool read_length(call_info *c)
{
    const tow_scan *m = c->m;
    tow_scope *scope = c->loop.scope;
    if (m->length < 0 || (m->empty && m->length > 0)) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "scan: .length = %" PRId64 "%s; expected a positive number",
                       m->length, m->empty ? " with .empty" : "");
        return false;
    }
    bool known = m->empty || m->length > 0;
    c->loop.turns = m->length;
    for (size_t i = 0; i < c->loop.n_xs; i++) {
        if (!read_axes(c, i)) return false;
        tow_type type = tow_value_type(c->xs[i]);
        if (c->whole[i]) continue;
        if (type.rank > 0 && !known) {
            c->loop.turns = type.dims[0];
            known = true;
        }
        if (type.rank > 0 && type.dims[0] == c->loop.turns) continue;
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH, "scan: xs %zu: expected %s of length %" PRId64 " (%s), found %s", i,
                       m->in_axes && m->in_axes[i] ? "a scanned axis" : "a leading axis", c->loop.turns,
                       m->length || m->empty ? "that of the scan" : "that of the first xs",
                       tow__type_name(tow_value_type(c->loop.xs[i])).text);
        return false;
    }
    if (!known)
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "scan: no length; give .length = N (or .empty = true), or xs to take it from");
    return known;
}

static bool read_call(tow_scope *scope, const tow_scan *m, size_t n_in, const tow_value *in, size_t n_out, call_info *c)
{
    tow_trace *t = scope->model->trace;
    size_t n_carry = m->n_carry ? m->n_carry : 1;
    if (n_in < n_carry + m->n_broadcast || n_out < n_carry) {
        tow_scope_fail(
            scope, TOW_INVALID_ARGUMENT,
            "scan: expected at least %zu inputs (carry %zu, broadcast %zu) and %zu outputs, found %zu and %zu",
            n_carry + m->n_broadcast, n_carry, m->n_broadcast, n_carry, n_in, n_out);
        return false;
    }
    *c = (call_info){.m = m};
    c->loop = (tow__layer_loop){.transform = "scan",
                                .scope = scope,
                                .n_bodies = 1,
                                .bodies = &m->inner,
                                .stride = 1,
                                .reverse = m->reverse,
                                .flax_keys = tow__flax_keys(scope, m->keys),
                                .unroll = m->unroll,
                                .schedule = m->schedule,
                                .n_carry = n_carry,
                                .n_broadcast = m->n_broadcast,
                                .n_xs = n_in - n_carry - m->n_broadcast,
                                .n_ys = n_out - n_carry,
                                .carry = in,
                                .broadcast = in + n_carry,
                                .xs = in + n_carry + m->n_broadcast};
    c->xs = tow__trace_alloc(t, c->loop.n_xs + 1, sizeof *c->xs);
    c->whole = tow__trace_alloc(t, c->loop.n_xs + 1, sizeof *c->whole);
    c->once = tow__trace_alloc(t, c->loop.n_ys + 1, sizeof *c->once);
    if (!c->xs || !c->whole || !c->once || !read_length(c)) return false;
    if (m->unroll < 0) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "scan: .unroll = %" PRId64 "; expected a positive number, or 0 for one", m->unroll);
        return false;
    }
    for (size_t k = 0; k < c->loop.n_ys; k++) c->once[k] = m->out_axes && m->out_axes[k] == TOW_NOT_MAPPED;
    c->loop.xs = c->xs;
    c->loop.whole = c->whole;
    c->loop.once = c->once;
    return true;
}

/* ---- after the call ---------------------------------------------------------------------------------------------- */

/* The axis of each ys along which its rows are stacked. */
static void move_outputs(const call_info *c, tow_value *ys)
{
    for (size_t k = 0; k < c->loop.n_ys && !tow__scope_failed(c->loop.scope); k++) {
        const int axis = c->m->out_axes ? c->m->out_axes[k] : 0;
        tow_type type = tow_value_type(ys[k]);
        if (axis == 0 || c->once[k]) continue;
        if (axis >= -type.rank && axis < type.rank)
            ys[k] = tow_moveaxis(ys[k], 0, axis);
        else
            tow_scope_fail(
                c->loop.scope, TOW_INVALID_ARGUMENT,
                "scan: ys %zu is %s when stacked, which has no axis %d of .out_axes; give one in [%d, %d), or "
                "TOW_NOT_MAPPED",
                k, tow__type_name(type).text, axis, -type.rank, type.rank);
    }
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
    c.loop.lift = tow__lift_make(scope, "scan", TOW__LIFT_LAYERS, m->variables, m->streams);
    if (tow__scope_failed(scope)) return;
    (m->unrolled ? tow__loop_unroll : tow__loop_record)(&c.loop, out);
    move_outputs(&c, out + c.loop.n_carry);
    if (m->unrolled && c.loop.turns == 0) return;
    tow__lift_check_used(scope, "scan", c.loop.lift);
}

const tow_module_class tow_scan_class = {TOW__MADE_BY(TOW_SCAN, tow_scan), .name = "scan", .call = call,
                                         .layout =
                                             TOW__LAYOUT_OF(tow_scan, TOW_MEMBER(tow_scan, inner, TOW_MEMBER_LAYER),
                                                            TOW_MEMBER(tow_scan, variables, TOW_MEMBER_RULES),
                                                            TOW_MEMBER(tow_scan, streams, TOW_MEMBER_RULES))};

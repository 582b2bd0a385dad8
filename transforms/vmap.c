/* vmap as a layer: the inner layer on every row of its inputs at once. Values that each row has of its own enter beside
 * the inputs, as in a loop (loop.h), but all rows are computed together. */
#include <inttypes.h>

#include "src/scope/lift.h"
#include "src/scope/tree.h"
#include "tow/numpy.h"
#include "tow/transforms.h"
#include "transforms/loop.h"

/* An input with its mapped axis in front; *size: of the axis, -1: of none so far. False: an error. */
static bool read_input(tow_scope *scope, const tow_vmap_layer *m, size_t i, tow_value *x, bool *whole, int64_t *size)
{
    const int axis = m->in_axes ? m->in_axes[i] : 0;
    tow_type type = tow_value_type(*x);
    *whole = axis == TOW_NOT_MAPPED;
    if (*whole) return true;
    if (axis < -type.rank || axis >= type.rank) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "vmap: input %zu is %s, which has no axis %d to map over; give one of [%d, %d) in .in_axes, or "
                       "TOW_NOT_MAPPED",
                       i, tow__type_name(type).text, axis, -type.rank, type.rank);
        return false;
    }
    const int64_t found = type.dims[axis < 0 ? axis + type.rank : axis];
    if (*size >= 0 && found != *size) {
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                       "vmap: input %zu is %s with %" PRId64 " rows along axis %d; expected %" PRId64 " (%s)", i,
                       tow__type_name(type).text, found, axis, *size,
                       m->axis_size || m->empty ? "the .axis_size" : "as an earlier input has");
        return false;
    }
    *size = found;
    if (axis != 0) *x = tow_moveaxis(*x, axis, 0);
    return true;
}

static bool read_inputs(tow_scope *scope, const tow_vmap_layer *m, size_t n_in, const tow_value *in, tow_value *xs,
                        bool *whole, int64_t *size)
{
    if (m->axis_size < 0 || (m->empty && m->axis_size > 0)) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "vmap: .axis_size = %" PRId64 "%s; expected a positive number",
                       m->axis_size, m->empty ? " with .empty" : "");
        return false;
    }
    *size = m->axis_size || m->empty ? m->axis_size : -1;
    for (size_t i = 0; i < n_in; i++) {
        xs[i] = in[i];
        if (!read_input(scope, m, i, &xs[i], &whole[i], size)) return false;
    }
    if (*size < 0)
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "vmap: no mapped input to take the number of rows from; give .axis_size = N (or .empty = true)");
    return *size >= 0;
}

/* The axis of each output along which its rows are stacked. */
static void move_outputs(tow_scope *scope, const tow_vmap_layer *m, size_t n_out, tow_value *out)
{
    for (size_t k = 0; k < n_out && !tow__scope_failed(scope); k++) {
        const int axis = m->out_axes ? m->out_axes[k] : 0;
        tow_type type = tow_value_type(out[k]);
        if (axis == 0 || axis == TOW_NOT_MAPPED) continue;
        if (axis >= -type.rank && axis < type.rank)
            out[k] = tow_moveaxis(out[k], 0, axis);
        else
            tow_scope_fail(
                scope, TOW_INVALID_ARGUMENT,
                "vmap: output %zu is %s when stacked, which has no axis %d of .out_axes; give one in [%d, %d), or "
                "TOW_NOT_MAPPED",
                k, tow__type_name(type).text, axis, -type.rank, type.rank);
    }
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_vmap_layer *m = (const tow_vmap_layer *)module;
    tow_trace *t = scope->model->trace;
    tow_value *xs = tow__trace_alloc(t, n_in + 1, sizeof *xs);
    bool *whole = tow__trace_alloc(t, n_in + 1, sizeof *whole), *once = tow__trace_alloc(t, n_out + 1, sizeof *once);
    tow__layer_loop loop = {
        .transform = "vmap", .scope = scope, .n_bodies = 1, .bodies = &m->inner, .stride = 1, .mapped = true};
    if (!xs || !whole || !once) return;
    if (scope->level && scope->level->depth + 1 >= TOW_MAX_RANK) {
        tow_scope_fail(scope, TOW_UNSUPPORTED, "vmap: more than %d scans and vmaps inside each other", TOW_MAX_RANK);
        return;
    }
    if (!read_inputs(scope, m, n_in, in, xs, whole, &loop.turns)) return;
    for (size_t k = 0; k < n_out; k++) once[k] = m->out_axes && m->out_axes[k] == TOW_NOT_MAPPED;
    loop.flax_keys = tow__flax_keys(scope, m->keys);
    loop.n_xs = n_in;
    loop.n_ys = n_out;
    loop.xs = xs;
    loop.whole = whole;
    loop.once = once;
    loop.lift = tow__lift_make(scope, "vmap", TOW__LIFT_ROWS, m->variables, m->streams);
    if (tow__scope_failed(scope)) return;
    (m->unrolled ? tow__loop_unroll : tow__loop_record)(&loop, out);
    move_outputs(scope, m, n_out, out);
    if (!m->unrolled || loop.turns > 0) tow__lift_check_used(scope, "vmap", loop.lift);
}

const tow_module_class tow_vmap_layer_class = {
    TOW__MADE_BY(TOW_VMAP, tow_vmap_layer), .name = "vmap", .call = call,
    .layout = TOW__LAYOUT_OF(tow_vmap_layer, TOW_MEMBER(tow_vmap_layer, inner, TOW_MEMBER_LAYER),
                             TOW_MEMBER(tow_vmap_layer, variables, TOW_MEMBER_RULES),
                             TOW_MEMBER(tow_vmap_layer, streams, TOW_MEMBER_RULES))};

/* RNN as a layer: a loop over time whose iterations share the parameters of the cell.
 *
 *   x [batch..., T, in...]  ->  time first, perhaps reversed  ->  prepared: what does not wait for the carry, all steps
 *                                                                 at once
 *     ->  loop: (carry, element) -> (carry, y)  ->  y in its place; the carry of the last element that counts
 *
 * Reversal keeps what lies beyond a sequence's length behind it: element t comes from (T - 1 - t + length) mod T. */
#include <inttypes.h>

#include "src/scope/calls.h"
#include "src/scope/layer.h"
#include "src/scope/lift.h"
#include "src/scope/tree.h"
#include "tow/numpy.h"
#include "tow/recurrent.h"
#include "transforms/rnn.h"

/* One call. */
typedef struct rnn_call {
    tow_scope *scope, *cell_scope;
    const tow_rnn *m;
    const tow_module *cell; /* behind the remats around it */
    const tow_cell_methods *methods;
    size_t n_carry;
    int feature_axes;
    const tow_value *carry; /* given, or NULL */
    tow_value x, lengths;   /* x time first; lengths a null value if there are none */
    int64_t steps;
    bool keeps_history; /* the carries of all steps are results */
    tow_cell_prepared prepared;
} rnn_call;

/* ---- the inputs -------------------------------------------------------------------------------------------------- */

const tow_module *tow__bare_cell(const tow_module *module)
{
    while (module && module->cls == &tow_remat_class) module = ((const tow_remat *)module)->inner;
    return module;
}

static bool read_counts(rnn_call *c, size_t n_in, size_t n_out)
{
    size_t own = 1 + (size_t)c->m->lengths, given = n_in < own ? 0 : n_in - own;
    const char *cell = c->cell->cls->name;
    if (!c->methods) c->n_carry = given;
    if (n_in >= own && (given == 0 || given == c->n_carry) && (n_out == 1 || n_out == 1 + c->n_carry)) {
        if (given > 0 || c->methods) return true;
        tow_scope_fail(
            c->scope, TOW_INVALID_ARGUMENT,
            "RNN: the layer %s is no cell that can make its carry (tow_module_class.cell); give the initial carry "
            "as inputs before x",
            cell);
        return false;
    }
    tow_scope_fail(
        c->scope, TOW_INVALID_ARGUMENT,
        "RNN: expected %zu inputs (x%s), or %zu with the carry of %s before x, and 1 output (y) or %zu (carry, "
        "y), found %zu and %zu",
        own, c->m->lengths ? ", lengths" : "", own + c->n_carry, cell, 1 + c->n_carry, n_in, n_out);
    return false;
}

/* lengths as i32 [batch...]. */
static bool read_lengths(rnn_call *c, tow_value lengths, int batch_axes, const int64_t *batch)
{
    tow_type type = tow_value_type(lengths), expected = tow_make_type(TOW_I32, batch_axes, batch);
    bool integer = type.dtype == TOW_I32 || type.dtype == TOW_U32;
    expected.dtype = integer ? type.dtype : TOW_I32;
    if (!integer || !tow_type_equal(type, expected)) {
        tow_scope_fail(c->scope, integer ? TOW_SHAPE_MISMATCH : TOW_TYPE_MISMATCH,
                       "RNN: lengths: expected %s, a number for each sequence, found %s", tow__type_name(expected).text,
                       tow__type_name(type).text);
        return false;
    }
    c->lengths = tow_convert(lengths, TOW_I32);
    return true;
}

static bool read_call(rnn_call *c, size_t n_in, const tow_value *in, size_t n_out)
{
    c->cell = tow__bare_cell(c->m->inner);
    if (!c->cell || !c->cell->cls || !c->cell->cls->name) {
        tow_scope_fail(c->scope, TOW_INVALID_ARGUMENT, "RNN: expected a cell, found %s; make it with TOW_RNN(&cell)",
                       c->cell ? "a layer without a class" : "NULL");
        return false;
    }
    c->cell = tow__read_layer(c->scope, c->cell);
    if (!c->cell) return false;
    c->methods = c->cell->cls->cell;
    c->n_carry = c->methods ? c->methods->n_carry : 0;
    c->feature_axes = c->methods && c->methods->feature_axes ? c->methods->feature_axes(c->cell) : 1;
    if (!read_counts(c, n_in, n_out)) return false;
    const tow_value *x = &in[n_in - 1 - (size_t)c->m->lengths];
    tow_type type = tow_value_type(*x);
    if (type.rank < c->feature_axes + 1) {
        tow_scope_fail(c->scope, TOW_SHAPE_MISMATCH, "RNN: x: expected a time axis and %d of features, found %s",
                       c->feature_axes, tow__type_name(type).text);
        return false;
    }
    c->carry = x > in ? in : NULL;
    c->x = c->m->time_major ? *x : tow_moveaxis(*x, type.rank - c->feature_axes - 1, 0);
    type = tow_value_type(c->x);
    c->steps = type.dims[0];
    c->keeps_history = c->m->lengths && n_out > 1;
    return !c->m->lengths || read_lengths(c, x[1], type.rank - 1 - c->feature_axes, type.dims + 1);
}

/* ---- lengths ----------------------------------------------------------------------------------------------------- */

/* Rows [T, batch...] of x [T, batch..., ...]: result [at..., ...] with element x[at[i..., b], b], where `at` ends in
 * the batch axes. */
static tow_value rows_at(const rnn_call *c, tow_value x, tow_value at)
{
    tow_type type = tow_value_type(x), batch = tow_value_type(c->lengths), found = tow_value_type(at);
    if (tow__scope_failed(c->scope)) return (tow_value){0};
    int64_t sequences = tow_type_element_count(batch), dims[TOW_MAX_RANK],
            rows[TOW_MAX_RANK] = {type.dims[0] * sequences};
    if (rows[0] > INT32_MAX) {
        tow_scope_fail(c->scope, TOW_UNSUPPORTED,
                       "RNN: lengths: expected at most 2^31 - 1 elements in all sequences, found %" PRId64, rows[0]);
        return (tow_value){0};
    }
    int features = type.rank - 1 - batch.rank;
    tow_value own = tow_reshape(tow_iota(tow_scope_trace(c->scope), tow_make_type(TOW_I32, 1, &sequences), 0),
                                batch.rank, batch.dims);
    for (int i = 0; i < features; i++) rows[1 + i] = type.dims[1 + batch.rank + i];
    for (int i = 0; i < found.rank; i++) dims[i] = found.dims[i];
    for (int i = 0; i < features; i++) dims[found.rank + i] = rows[1 + i];
    at = tow_add(tow_mul_scalar(at, (double)sequences), own);
    at = tow_reshape(at, 1, (int64_t[]){tow_type_element_count(found)});
    return tow_reshape(tow_gather(tow_reshape(x, 1 + features, rows), at), found.rank + features, dims);
}

/* The elements of each sequence in the other order; what is beyond its length stays behind it. */
static tow_value reversed(const rnn_call *c, tow_value x)
{
    const int first = 0;
    if (!c->m->lengths || c->steps == 0) return tow_rev(x, 1, &first);
    tow_type at = tow_value_type(c->lengths);
    memmove(at.dims + 1, at.dims, (size_t)at.rank * sizeof *at.dims);
    at.dims[0] = c->steps;
    at.rank++;
    tow_value back = tow_rev(tow_iota(tow_scope_trace(c->scope), at, 0), 1, &first);
    tow_value size = tow_scalar(tow_scope_trace(c->scope), TOW_I32, (double)c->steps);
    return rows_at(c, x, tow_mod(tow_add(back, c->lengths), size));
}

/* Of carries [T, batch..., ...] that after the last element that counts; a length of 0 counts from the end. */
static tow_value last_carry(const rnn_call *c, tow_value carries)
{
    tow_trace *t = tow_scope_trace(c->scope);
    tow_value at = tow_add_scalar(c->lengths, -1), zero = tow_zeros_like(at);
    at = tow_where(tow_lt(at, zero), tow_add_scalar(at, (double)c->steps), at);
    at = tow_min(tow_max(at, zero), tow_scalar(t, TOW_I32, (double)(c->steps - 1)));
    return rows_at(c, carries, at);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* The parts of which the loop makes its iterations. */
typedef struct step_module {
    tow_module module;
    const rnn_call *rnn;
} step_module;

static void check_carry(const rnn_call *c, tow_scope *scope, const tow_value *before, const tow_value *after)
{
    for (size_t i = 0; i < c->n_carry && !tow__scope_failed(scope); i++) {
        tow_type a = tow_value_type(before[i]), b = tow_value_type(after[i]);
        if (!tow_type_equal(a, b))
            tow_scope_fail(scope, TOW_TYPE_MISMATCH,
                           "RNN: carry %zu enters a step as %s and leaves it as %s; the cell must return the type that "
                           "it is given",
                           i, tow__type_name(a).text, tow__type_name(b).text);
    }
}

/* in: carry..., x. out: carry..., y, and the carries once more if all are wanted. */
static void call_step(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    const rnn_call *c = ((const step_module *)module)->rnn;
    const size_t n = c->n_carry;
    tow__resolved resolved;
    (void)n_in, (void)n_out;
    /* The rule for parameters counts as used: a cell may have none, or have asked for them before the loop. */
    if (!tow__resolve(scope, "params", "kernel", &resolved)) return;
    if (c->methods && c->methods->prepare)
        c->methods->step(scope, c->cell, &c->prepared, in, in[n], out);
    else
        tow__call_here(scope, c->cell, n + 1, in, n + 1, out);
    check_carry(c, scope, in, out);
    if (c->keeps_history) memcpy(out + n + 1, out, n * sizeof *out);
}

static const tow_module_class step_class = {.name = "RNN step", .call = call_step};

/* The step in copies of the remats that are around the cell. NULL: an error. */
static const tow_module *wrap(tow_scope *scope, const tow_module *around, const tow_module *step)
{
    if (around->cls != &tow_remat_class) return step;
    const tow_remat *remat = (const tow_remat *)tow__read_layer(scope, around);
    tow_remat *copy = remat ? tow__trace_alloc(tow_scope_trace(scope), 1, sizeof *copy) : NULL;
    if (!copy) return NULL;
    *copy = *remat;
    copy->inner = wrap(scope, copy->inner, step);
    return copy->inner ? &copy->module : NULL;
}

/* Parameters are shared; then come the caller's rules. NULL: out of memory. */
static const tow_lift_rule *make_rules(const rnn_call *c)
{
    size_t n = 0;
    while (c->m->variables && c->m->variables[n].pattern) n++;
    tow_lift_rule *rules = tow__trace_alloc(tow_scope_trace(c->scope), n + 2, sizeof *rules);
    if (!rules) return NULL;
    rules[0] = (tow_lift_rule){"params", TOW_SHARED};
    if (n) memcpy(rules + 1, c->m->variables, n * sizeof *rules);
    rules[n + 1] = (tow_lift_rule){0};
    return rules;
}

/* all: n_carry last carries, y [T, ...], and histories of carries if they are kept. */
static void record_loop(rnn_call *c, tow_value *carry_and_xs, tow_value *all)
{
    const step_module step = {{&step_class}, c};
    const size_t n = c->n_carry;
    const tow_scan scan = {.module = {&tow_scan_class, sizeof(tow_scan)},
                           .inner = wrap(c->scope, c->m->inner, &step.module),
                           .length = c->steps,
                           .empty = c->steps == 0,
                           .reverse = c->m->reverse && !c->m->lengths,
                           .unrolled = c->m->unrolled && c->steps > 0,
                           .unroll = c->m->unroll,
                           .schedule = c->m->schedule,
                           .n_carry = n,
                           .keys = c->m->keys,
                           .variables = make_rules(c),
                           .streams = c->m->streams};
    if (!scan.inner || !scan.variables) return;
    carry_and_xs[n] = c->prepared.xs;
    tow__call_here(c->cell_scope, &scan.module, n + 1, carry_and_xs, 1 + n + (c->keeps_history ? n : 0), all);
}

/* The carry before the first step. */
static void first_carry(const rnn_call *c, tow_value *carry)
{
    tow_type x = tow_value_type(c->x);
    if (c->carry)
        memcpy(carry, c->carry, c->n_carry * sizeof *carry);
    else
        tow_cell_initial_carry(c->cell_scope, c->cell, tow_make_type(x.dtype, x.rank - 1, x.dims + 1), c->m->carry_seed,
                               c->n_carry, carry);
}

static void record(rnn_call *c, size_t n_out, tow_value *out)
{
    tow_trace *t = tow_scope_trace(c->scope);
    size_t n = c->n_carry;
    bool flipped = c->m->reverse && c->m->lengths;
    tow_value *carry = tow__trace_alloc(t, n + 1, sizeof *carry), *all = tow__trace_alloc(t, 2 * n + 1, sizeof *all);
    if (!carry || !all) return;
    first_carry(c, carry);
    if (flipped) c->x = reversed(c, c->x);
    c->prepared = (tow_cell_prepared){.xs = c->x};
    if (tow__scope_failed(c->scope)) return;
    if (c->methods && c->methods->prepare) c->methods->prepare(c->cell_scope, c->cell, c->x, &c->prepared);
    record_loop(c, carry, all);
    if (tow__scope_failed(c->scope)) return;
    for (size_t i = 0; n_out > 1 && i < n; i++)
        out[i] = c->keeps_history && c->steps > 0 ? last_carry(c, all[n + 1 + i]) : all[i];
    tow_value y = all[n];
    if (c->m->reverse && flipped == c->m->keep_order) y = reversed(c, y);
    int batch_axes = tow_value_type(c->x).rank - 1 - c->feature_axes;
    out[n_out - 1] = c->m->time_major ? y : tow_moveaxis(y, 0, batch_axes);
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_rnn *m = (const tow_rnn *)module;
    rnn_call c = {.scope = scope, .m = m};
    if (!read_call(&c, n_in, in, n_out) || tow__scope_failed(scope)) return;
    c.cell_scope = m->in_place ? scope : tow_scope_begin(scope, "cell");
    record(&c, n_out, out);
    if (!m->in_place) tow_scope_end(c.cell_scope);
}

const tow_module_class tow_rnn_class = {TOW__MADE_BY(TOW_RNN, tow_rnn), .name = "RNN", .call = call,
                                        .layout = TOW__LAYOUT_OF(tow_rnn, TOW_MEMBER(tow_rnn, inner, TOW_MEMBER_LAYER),
                                                                 TOW_MEMBER(tow_rnn, variables, TOW_MEMBER_RULES),
                                                                 TOW_MEMBER(tow_rnn, streams, TOW_MEMBER_RULES))};

/* ---- the carry --------------------------------------------------------------------------------------------------- */

void tow_cell_initial_carry(tow_scope *scope, const tow_module *cell, tow_type x, uint64_t seed, size_t n_carry,
                            tow_value *carry)
{
    cell = tow__bare_cell(cell);
    const tow_cell_methods *methods = cell && cell->cls ? cell->cls->cell : NULL;
    if (tow__scope_failed(scope)) return;
    if (!methods || methods->n_carry != n_carry || !carry) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "initial carry of %zu values: expected a cell with as many and places for them, found %s",
                       n_carry, methods ? "another number" : "a layer that is no cell (tow_module_class.cell)");
        return;
    }
    tow__key key = tow__key_from_seed(seed);
    cell = tow__read_layer(scope, cell);
    if (!cell) return;
    methods->initial_carry(scope, cell, x, key.k, carry);
}

/* Stacks of layers made of several loops: remat_scan, loops inside each other, and layer_stack, loops one after the
 * other. The loop itself is in loop.c. */
#include <inttypes.h>

#include "src/scope/lift.h"
#include "src/scope/tree.h"
#include "tow/numpy.h"
#include "tow/transforms.h"
#include "transforms/loop.h"

static bool check_depth(tow_scope *scope, const char *transform, int levels)
{
    const int depth = (scope->level ? scope->level->depth + 1 : 0) + levels;
    if (depth > TOW_MAX_RANK)
        tow_scope_fail(scope, TOW_UNSUPPORTED, "%s: more than %d scans inside each other", transform, TOW_MAX_RANK);
    return depth <= TOW_MAX_RANK;
}

/* The number of lengths; 0, reported: none, or a negative one. */
static int count_lengths(tow_scope *scope, const int64_t *lengths)
{
    int n = 0;
    while (n < TOW_MAX_RANK && lengths[n] > 0) n++;
    const bool ends = n == TOW_MAX_RANK || lengths[n] == 0;
    if (n > 0 && ends) return n;
    tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                   "remat_scan: .lengths[%d] = %" PRId64 "; expected positive numbers, at least one", n,
                   n < TOW_MAX_RANK ? lengths[n] : 0);
    return 0;
}

/* ---- remat_scan -------------------------------------------------------------------------------------------------- */

/* The levels of a remat_scan from `depth` on. */
typedef struct rest {
    tow_module module;
    const tow_remat_scan *m;
    int depth, levels;
    bool flax_keys;
    tow__lift *lift;
} rest;

static void call_rest(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out);
static const tow_module_class rest_class = {.name = "remat_scan", .call = call_rest};

static void call_rest(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)n_in;
    const rest *r = (const rest *)module;
    const bool innermost = r->depth == r->levels - 1;
    rest below = *r;
    below.module.cls = &rest_class;
    below.depth++;
    const tow_remat remat = {{&tow_remat_class, sizeof(tow_remat)}, .inner = &below.module, .policy = r->m->policy};
    const tow_module *body = innermost ? r->m->inner : &remat.module;
    int64_t stride = 1;
    for (int i = r->depth + 1; i < r->levels; i++) stride *= r->m->lengths[i];
    tow__layer_loop loop = {.transform = "remat_scan",
                            .scope = scope,
                            .turns = r->m->lengths[r->depth],
                            .n_bodies = 1,
                            .bodies = &body,
                            .stride = stride,
                            .covered = !innermost,
                            .flax_keys = r->flax_keys,
                            .lift = r->lift,
                            .n_carry = n_out,
                            .n_broadcast = r->m->n_broadcast,
                            .carry = in,
                            .broadcast = in + n_out};
    tow__loop_record(&loop, out);
}

static void call_remat_scan(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                            tow_value *out)
{
    const tow_remat_scan *m = (const tow_remat_scan *)module;
    const size_t n_carry = m->n_carry ? m->n_carry : 1;
    if (n_in != n_carry + m->n_broadcast || n_out != n_carry) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "remat_scan: expected %zu inputs (carry %zu, broadcast %zu) and %zu outputs, found %zu and %zu",
                       n_carry + m->n_broadcast, n_carry, m->n_broadcast, n_carry, n_in, n_out);
        return;
    }
    rest r = {{&rest_class}, .m = m, .flax_keys = tow__flax_keys(scope, m->keys)};
    r.levels = count_lengths(scope, m->lengths);
    if (r.levels == 0 || !check_depth(scope, "remat_scan", r.levels)) return;
    r.lift = tow__lift_make(scope, "remat_scan", TOW__LIFT_LAYERS, m->variables, m->streams);
    if (tow__scope_failed(scope)) return;
    call_rest(scope, &r.module, n_in, in, n_out, out);
    tow__lift_check_used(scope, "remat_scan", r.lift);
}

const tow_module_class tow_remat_scan_class = {
    TOW__MADE_BY(TOW_REMAT_SCAN, tow_remat_scan), .name = "remat_scan", .call = call_remat_scan,
    .layout = TOW__LAYOUT_OF(tow_remat_scan, TOW_MEMBER(tow_remat_scan, inner, TOW_MEMBER_LAYER),
                             TOW_MEMBER(tow_remat_scan, policy, TOW_MEMBER_POLICY),
                             TOW_MEMBER(tow_remat_scan, variables, TOW_MEMBER_RULES),
                             TOW_MEMBER(tow_remat_scan, streams, TOW_MEMBER_RULES))};

/* ---- layer_stack ------------------------------------------------------------------------------------------------- */

static size_t count_layers(const tow_module *const *layers)
{
    size_t n = 0;
    while (layers && layers[n]) n++;
    return n;
}

/* The inputs and outputs of the layers from `first` on. */
typedef struct run {
    tow__layer_loop loop; /* of the whole stack; its carry is that so far */
    tow_value *ys;        /* [pieces * n_ys] */
    size_t pieces;
} run;

/* The next n_bodies * turns layers. */
static void run_layers(run *r, const tow_module *const *bodies, size_t n_bodies, int64_t turns, bool unrolled)
{
    tow_trace *t = r->loop.scope->model->trace;
    if (n_bodies == 0 || turns == 0 || tow__failed(t)) return;
    tow__layer_loop part = r->loop;
    const int64_t layers = (int64_t)n_bodies * turns;
    tow_value *xs = tow__trace_alloc(t, part.n_xs + 1, sizeof *xs);
    tow_value *out = tow__trace_alloc(t, part.n_carry + part.n_ys, sizeof *out);
    if (!xs || !out) return;
    part.bodies = bodies;
    part.n_bodies = n_bodies;
    part.turns = turns;
    part.xs = xs;
    for (size_t k = 0; k < part.n_xs; k++) xs[k] = tow_slice_axis(r->loop.xs[k], 0, part.first, part.first + layers);
    (unrolled ? tow__loop_unroll : tow__loop_record)(&part, out);
    r->loop.carry = out;
    r->loop.first += layers;
    for (size_t k = 0; k < part.n_ys; k++) r->ys[k * 4 + r->pieces] = out[part.n_carry + k];
    r->pieces++;
}

static bool read_stack(tow_scope *scope, const tow_layer_stack *m, size_t n_in, size_t n_out, int64_t length)
{
    const size_t n_carry = m->n_carry ? m->n_carry : 1;
    if (n_in < n_carry + m->n_broadcast || n_out < n_carry) {
        tow_scope_fail(
            scope, TOW_INVALID_ARGUMENT,
            "layer_stack: expected at least %zu inputs (carry %zu, broadcast %zu) and %zu outputs, found %zu and %zu",
            n_carry + m->n_broadcast, n_carry, m->n_broadcast, n_carry, n_in, n_out);
        return false;
    }
    const int64_t ends = (int64_t)(count_layers(m->first) + count_layers(m->last));
    const bool fits = length >= ends && (length == ends || count_layers(m->pattern) > 0);
    if (!fits || length == 0)
        tow_scope_fail(
            scope, TOW_INVALID_ARGUMENT,
            "layer_stack: .length = %" PRId64 ", with %" PRId64 " layers in .first and .last and %zu in .pattern; "
            "expected a positive length of at least .first and .last, and a pattern for what is between them",
            m->length, ends, count_layers(m->pattern));
    return fits && length > 0 && check_depth(scope, "layer_stack", 1);
}

static bool check_rows(const run *r, int64_t length)
{
    for (size_t k = 0; k < r->loop.n_xs; k++) {
        tow_type type = tow_value_type(r->loop.xs[k]);
        if (type.rank > 0 && type.dims[0] == length) continue;
        tow_scope_fail(r->loop.scope, TOW_SHAPE_MISMATCH,
                       "layer_stack: xs %zu: expected a leading axis of length %" PRId64
                       ", one row for each layer, found %s",
                       k, length, tow__type_name(type).text);
        return false;
    }
    return true;
}

static void call_layer_stack(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                             tow_value *out)
{
    const tow_layer_stack *m = (const tow_layer_stack *)module;
    const size_t n_first = count_layers(m->first), n_last = count_layers(m->last), period = count_layers(m->pattern);
    const int64_t length = m->length ? m->length : (int64_t)(n_first + period + n_last);
    if (!read_stack(scope, m, n_in, n_out, length)) return;
    const size_t n_carry = m->n_carry ? m->n_carry : 1, middle = (size_t)length - n_first - n_last;
    run r = {.loop = {.transform = "layer_stack",
                      .scope = scope,
                      .stride = 1,
                      .flax_keys = tow__flax_keys(scope, m->keys),
                      .n_carry = n_carry,
                      .n_broadcast = m->n_broadcast,
                      .n_xs = n_in - n_carry - m->n_broadcast,
                      .n_ys = n_out - n_carry,
                      .carry = in,
                      .broadcast = in + n_carry,
                      .xs = in + n_carry + m->n_broadcast}};
    r.ys = tow__trace_alloc(scope->model->trace, 4 * r.loop.n_ys + 1, sizeof *r.ys);
    r.loop.lift = tow__lift_make(scope, "layer_stack", TOW__LIFT_LAYERS, m->variables, m->streams);
    if (!r.ys || tow__scope_failed(scope) || !check_rows(&r, length)) return;
    run_layers(&r, m->first, n_first, 1, true);
    if (period) run_layers(&r, m->pattern, period, (int64_t)(middle / period), m->unrolled);
    if (period) run_layers(&r, m->pattern, middle % period, 1, true);
    run_layers(&r, m->last, n_last, 1, true);
    if (tow__scope_failed(scope)) return;
    memcpy(out, r.loop.carry, n_carry * sizeof *out);
    for (size_t k = 0; k < r.loop.n_ys; k++) out[n_carry + k] = tow_concatenate(r.pieces, r.ys + k * 4, 0);
    tow__lift_check_used(scope, "layer_stack", r.loop.lift);
}

const tow_module_class tow_layer_stack_class = {
    TOW__MADE_BY(TOW_LAYER_STACK, tow_layer_stack), .name = "layer_stack", .call = call_layer_stack,
    .layout = TOW__LAYOUT_OF(tow_layer_stack, TOW_MEMBER(tow_layer_stack, pattern, TOW_MEMBER_LAYERS),
                             TOW_MEMBER(tow_layer_stack, first, TOW_MEMBER_LAYERS),
                             TOW_MEMBER(tow_layer_stack, last, TOW_MEMBER_LAYERS),
                             TOW_MEMBER(tow_layer_stack, variables, TOW_MEMBER_RULES),
                             TOW_MEMBER(tow_layer_stack, streams, TOW_MEMBER_RULES))};

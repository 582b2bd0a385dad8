/* Axis propagation: see axis.h. Tiling rules and rules of sums, of descriptors, say what instructions do,
 * strides what views do, and a loop is what its body does to rows and carries. */
#include "src/plan/analysis/axis.h"
#include "src/plan/analysis/columns.h"

enum {
    STACKED_SPAN = -2 /* in the body of a loop: it differs from iteration to iteration, and iterations are the axis */
};

typedef struct propagation {
    tow_program *p;
    tow__arena *scratch;
    tow__axis_flow *flow;
} propagation;

static tow__axis_flow *propagate(tow_program *p, const tow__body *body, int64_t *span, tow__arena *scratch);

/* ---- views ------------------------------------------------------------------------------------------------------- */

int64_t tow__span_of(tow_type type, int axis)
{
    int64_t span = 1;
    for (int a = axis; a < type.rank; a++) span *= type.dims[a];
    return span;
}

/* Do the axes other than `axis` stay inside one element of it, but for those that step over whole spans? */
static bool stays_inside(const tow__view *x, int axis, int64_t span)
{
    int64_t low = x->offset % span, high = low;
    for (int a = 0; a < x->type.rank; a++) {
        const int64_t reach = (x->type.dims[a] - 1) * x->strides[a];
        if (a != axis && x->strides[a] % span != 0) *(reach < 0 ? &low : &high) += reach;
    }
    return low >= 0 && high < x->strides[axis];
}

int tow__axis_of_span(const tow__view *x, int64_t span)
{
    for (int a = 0; a < x->type.rank && span > 0; a++)
        if (x->type.dims[a] > 1 && x->strides[a] > 0 && x->type.dims[a] * x->strides[a] == span &&
            stays_inside(x, a, span))
            return a;
    return TOW__WHOLE;
}

int tow__following_axis(const tow__axis_flow *flow, const tow__view *x)
{
    return tow__axis_of_span(x, flow->span[x->storage]);
}

bool tow__mixes_axis(const tow__axis_flow *flow, uint32_t storage) { return flow->span[storage] < 0; }

bool tow__sums_axis(const tow__axis_flow *flow, uint32_t i)
{
    return flow->steps[i].role == TOW__CONTRACTS_AXIS || flow->steps[i].role == TOW__REDUCES_AXIS;
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void cut(propagation *g, int64_t length) { g->flow->blocks = gcd(g->flow->blocks, length); }

static void set_spans(propagation *g, const tow__instruction *inst, int64_t span)
{
    for (uint32_t k = 0; k < inst->n_out; k++) g->flow->span[inst->out[k].storage] = span;
}

/* Does the rule ask for the axes of operands that follow? Operands that do not depend on the axis may be cut anywhere,
 * or not at all. at: [n_in] the axis that follows, TOW__WHOLE: the operand does not depend on it. */
static bool agrees(const tow__instruction *inst, const int *from, const int *at)
{
    for (uint32_t i = 0; i < inst->n_in; i++) {
        if (at[i] != TOW__WHOLE && from[i] != at[i]) return false;
        if (from[i] >= inst->in[i].type.rank) return false;
    }
    return true;
}

static bool have_extent(const tow__instruction *inst, int axis)
{
    for (uint32_t k = 0; k < inst->n_out; k++)
        if (axis >= inst->out[k].type.rank || inst->out[k].type.dims[axis] != inst->out[0].type.dims[axis])
            return false;
    return inst->out[0].type.dims[axis] > 1;
}

static void blank(const tow__instruction *inst, int *from)
{
    for (uint32_t i = 0; i < inst->n_in; i++) from[i] = TOW__WHOLE;
}

/* Does an axis of the results follow? */
static bool passes(propagation *g, const tow__instruction *inst, const int *at, tow__axis_step *step)
{
    const tow__operation o = tow__operation_of(inst);
    if (inst->extras.part || inst->extras.reductions) return false;
    for (int axis = 0; axis < inst->out[0].type.rank; axis++) {
        blank(inst, step->from);
        if (!have_extent(inst, axis) || !inst->op->tile(&o, axis, step->from)) continue;
        if (inst->extras.accumulation) step->from[inst->n_in - 1] = axis;
        if (!agrees(inst, step->from, at)) continue;
        for (uint32_t k = 0; k < inst->n_out; k++)
            g->flow->span[inst->out[k].storage] = tow__span_of(inst->out[k].type, axis);
        cut(g, inst->out[0].type.dims[axis]);
        *step = (tow__axis_step){.role = TOW__PARALLEL_AXIS, .axis = axis, .from = step->from};
        return true;
    }
    return false;
}

/* Are the results sums, or other reductions, over the axis? An epilogue would need them complete. */
static bool sums(propagation *g, const tow__instruction *inst, const int *at, tow__axis_step *step)
{
    const tow__operation o = tow__operation_of(inst);
    if (!inst->op->sums || inst->extras.epilogue || inst->extras.part || inst->extras.reductions) return false;
    for (uint32_t i = 0; i < inst->n_in; i++) {
        if (at[i] == TOW__WHOLE) continue;
        blank(inst, step->from);
        if (!inst->op->sums(&o, i, at[i], step->from) || !agrees(inst, step->from, at)) return false;
        set_spans(g, inst, TOW__NO_SPAN);
        cut(g, inst->in[i].type.dims[at[i]]);
        step->role = inst->op->product ? TOW__CONTRACTS_AXIS : TOW__REDUCES_AXIS;
        step->axis = TOW__WHOLE;
        return true;
    }
    return false;
}

/* In the body of a loop whose iterations are the axis: what an iteration makes of its own rows is of that iteration. */
static bool stays_in_iteration(propagation *g, const tow__instruction *inst)
{
    bool any = false;
    for (uint32_t i = 0; i < inst->n_in; i++) {
        const int64_t span = g->flow->span[inst->in[i].storage];
        if (span != TOW__NO_SPAN && span != STACKED_SPAN) return false;
        any |= span == STACKED_SPAN;
    }
    return any;
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

static void set_span(propagation *g, uint32_t storage, int64_t span)
{
    if (storage != TOW__NONE) g->flow->span[storage] = span;
}

/* The span of rows, or of an initial value, that a loop reads from a view: of stacked ones along axis 0 STACKED_SPAN.
 * */
static int64_t span_inside(const propagation *g, const tow__view *x, bool rows)
{
    const int64_t span = g->flow->span[x->storage];
    if (span <= 0) return span;
    const int axis = tow__axis_of_span(x, span);
    if (axis == TOW__WHOLE) return TOW__MIXED_SPAN;
    if (!rows) return tow__span_of(x->type, axis); /* carries lie whole in their buffers */
    return axis == 0 ? STACKED_SPAN : span;
}

/* Once the body is known: a carry leaves as it enters, or it follows no axis. *again: the body is to be looked at once
 * more, with another axis for a carry. */
static void join_carry(propagation *g, const tow__carry *c, bool *again)
{
    int64_t *in = &g->flow->span[c->in];
    const int64_t out = g->flow->span[c->out];
    if (out == *in || *in == TOW__MIXED_SPAN) return;
    *in = *in == TOW__NO_SPAN && out > 0 ? out : TOW__MIXED_SPAN;
    *again = true;
}

/* Rows that an iteration makes, stacked. */
static int64_t span_outside(propagation *g, const tow__loop *loop, const tow__rows *ys)
{
    const uint32_t row = ys->row != TOW__NONE ? ys->row : ys->carry ? ys->carry->out : TOW__NONE;
    const int64_t span = row == TOW__NONE ? TOW__MIXED_SPAN : g->flow->span[row];
    if (span != STACKED_SPAN) return span;
    cut(g, loop->length);
    return tow__span_of(ys->array.type, 0);
}

static bool enter_loop(propagation *g, const tow__instruction *inst)
{
    const tow__loop *loop = inst->loop;
    if (tow__by_blocks(loop) || loop->schedule != TOW__SEQUENTIAL || loop->stops) return false;
    for (uint32_t j = 0; j < loop->n_xs; j++) set_span(g, loop->xs[j].row, span_inside(g, &loop->xs[j].array, true));
    for (uint32_t j = 0; j < loop->n_carry; j++)
        set_span(g, loop->carry[j].in, span_inside(g, &loop->carry[j].init, false));
    return true;
}

/* False: out of memory. */
static bool pass_loop(propagation *g, const tow__instruction *inst, tow__axis_step *step)
{
    const tow__loop *loop = inst->loop;
    *step = (tow__axis_step){.role = TOW__NOT_TILEABLE, .axis = TOW__WHOLE, .from = step->from};
    set_spans(g, inst, TOW__MIXED_SPAN);
    if (!enter_loop(g, inst)) return true;
    for (bool again = true; again;) { /* spans of carries change twice at most: none, an axis, mixed */
        again = false;
        step->inside = propagate(g->p, loop->body, g->flow->span, g->scratch);
        if (!step->inside) return false;
        for (uint32_t j = 0; j < loop->n_carry; j++) join_carry(g, &loop->carry[j], &again);
    }
    step->role = TOW__PARALLEL_AXIS;
    if (step->inside->blocks) cut(g, step->inside->blocks);
    for (uint32_t j = 0; j < loop->n_carry; j++) set_span(g, loop->carry[j].result, g->flow->span[loop->carry[j].in]);
    for (uint32_t j = 0; j < loop->n_ys; j++)
        set_span(g, loop->ys[j].array.storage, span_outside(g, loop, &loop->ys[j]));
    for (uint32_t k = 0; k < inst->n_out; k++)
        if (g->flow->span[inst->out[k].storage] < 0) step->role = TOW__NOT_TILEABLE;
    return true;
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

/* at: [n_in] becomes the axis of each operand that follows. *depends: an operand depends on the axis; returns whether
 * each that does follows it. */
static bool find_axes(const propagation *g, const tow__instruction *inst, int *at, bool *depends)
{
    bool follow = true;
    *depends = false;
    for (uint32_t i = 0; i < inst->n_in; i++) {
        const int64_t span = g->flow->span[inst->in[i].storage];
        at[i] = tow__axis_of_span(&inst->in[i], span);
        *depends |= span != TOW__NO_SPAN;
        follow &= span == TOW__NO_SPAN || at[i] != TOW__WHOLE;
    }
    return follow;
}

/* False: out of memory. */
static bool propagate_inst(propagation *g, uint32_t i, int *at)
{
    const tow__instruction *inst = &g->flow->body->insts[i];
    tow__axis_step *step = &g->flow->steps[i];
    bool depends;
    const bool follow = find_axes(g, inst, at, &depends);
    blank(inst, step->from);
    *step = (tow__axis_step){.role = TOW__WITHOUT_AXIS, .axis = TOW__WHOLE, .from = step->from};
    if (inst->loop && depends) return pass_loop(g, inst, step);
    if (!depends) {
        set_spans(g, inst, TOW__NO_SPAN);
        return true;
    }
    if (inst->n_out == 0 || (follow && (passes(g, inst, at, step) || sums(g, inst, at, step)))) return true;
    const bool own = stays_in_iteration(g, inst);
    blank(inst, step->from);
    step->role = own ? TOW__PARALLEL_AXIS : TOW__NOT_TILEABLE;
    set_spans(g, inst, own ? STACKED_SPAN : TOW__MIXED_SPAN);
    return true;
}

static tow__axis_flow *propagate(tow_program *p, const tow__body *body, int64_t *span, tow__arena *scratch)
{
    tow__axis_flow *flow = tow__arena_alloc(scratch, 1, sizeof *flow);
    uint32_t operands = 0, widest = 0;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        operands += body->insts[i].n_in;
        if (body->insts[i].n_in > widest) widest = body->insts[i].n_in;
    }
    int *from = tow__arena_alloc(scratch, operands, sizeof *from), *at = tow__arena_alloc(scratch, widest, sizeof *at);
    tow__axis_step *steps = tow__arena_alloc(scratch, body->n_insts, sizeof *steps);
    if (!flow || !from || !at || !steps) return NULL;
    *flow = (tow__axis_flow){.body = body, .steps = steps, .span = span};
    propagation g = {.p = p, .scratch = scratch, .flow = flow};
    for (uint32_t i = 0; i < body->n_insts; from += body->insts[i++].n_in) {
        steps[i].from = from;
        if (!propagate_inst(&g, i, at)) return NULL;
    }
    return flow;
}

tow__axis_flow *tow__propagate_axis(tow_program *p, const tow__body *body, const tow__axis_seed *seeds, uint32_t n,
                                    tow__arena *scratch)
{
    int64_t *span = tow__borrow(p, scratch, sizeof *span, 0);
    if (!span) return NULL;
    for (uint32_t i = 0; i < n; i++) span[seeds[i].storage] = tow__span_of(seeds[i].type, seeds[i].axis);
    tow__axis_flow *flow = propagate(p, body, span, scratch);
    for (uint32_t i = 0; flow && i < n; i++) flow->blocks = gcd(flow->blocks, seeds[i].type.dims[seeds[i].axis]);
    return flow;
}

static void forget(tow_program *p, const int64_t *span, const tow__body *body)
{
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__loop *loop = body->insts[i].loop;
        if (!loop) continue;
        for (uint32_t j = 0; j < loop->n_carry; j++) {
            tow__blank(p, span, loop->carry[j].in);
            tow__blank(p, span, loop->carry[j].out);
        }
        for (uint32_t j = 0; j < loop->n_xs; j++)
            if (loop->xs[j].row != TOW__NONE) tow__blank(p, span, loop->xs[j].row);
        forget(p, span, loop->body);
    }
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        for (uint32_t j = 0; j < inst->n_in; j++) tow__blank(p, span, inst->in[j].storage);
        for (uint32_t j = 0; j < inst->n_out; j++) tow__blank(p, span, inst->out[j].storage);
    }
}

void tow__free_axis_flow(tow_program *p, const tow__axis_flow *flow, const tow__axis_seed *seeds, uint32_t n)
{
    forget(p, flow->span, flow->body);
    for (uint32_t i = 0; i < n; i++) tow__blank(p, flow->span, seeds[i].storage);
    tow__give_back(p, flow->span, NULL, 0, NULL);
}

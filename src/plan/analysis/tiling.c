/* The instructions that compute blocks along an axis independently, and the part of each operand in that: tiling rules,
 * asked for axis 0, or where an axis of an operand that is propagated says. */
#include "src/plan/analysis/tiling.h"
#include "src/plan/analysis/analysis.h"
#include "src/plan/analysis/axis.h"
#include "src/plan/analysis/view.h"
#include "src/plan/pass.h"

static int64_t rows(const tow__view *x) { return x->type.rank ? x->type.dims[0] : 0; }

bool tow__reduces_axis(const tow__instruction *inst) { return inst->op->reduces_axis; }

/* Rows of products are rows of the left operand: blocks of them are products of as many columns. */
bool tow__is_tileable(const tow__instruction *inst, int *from)
{
    const tow__operation o = tow__operation_of(inst);
    for (uint32_t i = 0; i < inst->n_in; i++) from[i] = TOW__WHOLE;
    if (!inst->kernel || !inst->n_out || rows(&inst->out[0]) < 2 || inst->extras.part) return false;
    if (inst->extras.reductions || (inst->extras.accumulation && inst->extras.accumulation->in_order)) return false;
    for (uint32_t i = 1; i < inst->n_out; i++)
        if (rows(&inst->out[i]) != rows(&inst->out[0])) return false;
    if (!inst->op->tile(&o, 0, from)) return false;
    for (uint32_t i = 0; i < inst->n_in; i++)
        if (from[i] > 0) return false;
    return inst->op->kind != TOW__DOT || from[0] == 0;
}

tow__tiling *tow__find_tiling(const tow__body *body, tow__arena *scratch)
{
    tow__tiling *t = tow__arena_alloc(scratch, 1, sizeof *t);
    size_t operands = 0;
    for (uint32_t i = 0; i < body->n_insts; i++) operands += body->insts[i].n_in;
    int *from = tow__arena_alloc(scratch, operands, sizeof *from);
    if (!t || !from) return NULL;
    t->is_tileable = tow__arena_alloc(scratch, body->n_insts, sizeof *t->is_tileable);
    t->axis = tow__arena_alloc(scratch, body->n_insts, sizeof *t->axis);
    t->from = tow__arena_alloc(scratch, body->n_insts, sizeof *t->from);
    if (!t->is_tileable || !t->axis || !t->from) return NULL;
    for (uint32_t i = 0; i < body->n_insts; from += body->insts[i++].n_in) {
        t->from[i] = from;
        t->is_tileable[i] = tow__is_tileable(&body->insts[i], from);
    }
    return t;
}

/* ---- blocks of rows ---------------------------------------------------------------------------------------------- */

bool tow__is_balanced(int64_t blocks, int64_t threads)
{
    int64_t rounds = (blocks + threads - 1) / threads;
    return 4 * blocks >= 3 * rounds * threads;
}

int64_t tow__inner_rows(const tow__instruction *inst, int axis)
{
    const tow_type *x = &inst->in[0].type;
    int64_t inner = x->rank > axis + 1 ? x->dims[axis + 1] : 1, count = 1;
    if (inst->op != &tow__dot_general_p) return inner;
    const tow__dot_params *p = inst->params;
    for (int i = 0; i < x->rank; i++)
        if (i != axis) count *= x->dims[i];
    for (int i = 0; i < p->lhs_contract.n; i++)
        count /= (x->dims[p->lhs_contract.v[i]] ? x->dims[p->lhs_contract.v[i]] : 1);
    return count;
}

bool tow__fits_tiles(const tow_program *p, const tow__view *x, int axis, int64_t n)
{
    const tow__storage *s = &p->storages[x->storage];
    int64_t size = (int64_t)tow_dtype_size(x->type.dtype);
    if (s->bytes == 0 || s->bytes % (size_t)(n * size) || x->type.dims[axis] % n) return false;
    int64_t part = (int64_t)s->bytes / size / n, per_block = x->type.dims[axis] / n;
    int64_t low = x->offset, high = x->offset;
    if (x->strides[axis] * per_block != part) return false;
    for (int a = 0; a < x->type.rank; a++) {
        int64_t reach = ((a == axis ? per_block : x->type.dims[a]) - 1) * x->strides[a];
        if (reach < 0)
            low += reach;
        else
            high += reach;
    }
    return low >= 0 && high < part;
}

bool tow__repeats_rows(const tow__view *x, int axis) { return x->strides[axis] == 0 && x->type.dims[axis] > 1; }

/* ---- an axis that is named --------------------------------------------------------------------------------------- */

enum {
    MOST_SEEDS = 16 /* axes that are tried */
};

/* Operands that the function does not make, each with its outermost axis that has several elements: blocks of that lie
 * in one piece. */
static uint32_t list_seeds(tow__function_state *s, const tow__uses *uses, tow__axis_seed *seeds)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->body->n_insts; i++) {
        const tow__instruction *inst = &s->body->insts[i];
        for (uint32_t j = 0; j < inst->n_in && n < MOST_SEEDS; j++) {
            const tow__view *x = &inst->in[j];
            int axis = 0;
            bool known = s->p->storages[x->storage].kind == TOW__S_CONSTANT || !tow__is_whole(s->p, x);
            while (axis < x->type.rank && x->type.dims[axis] == 1) axis++;
            for (uint32_t k = 0; k < n; k++) known |= seeds[k].storage == x->storage;
            if (known || uses->producer[x->storage] != TOW__NONE || axis == x->type.rank) continue;
            seeds[n++] = (tow__axis_seed){x->storage, x->type, axis};
        }
    }
    return n;
}

/* The flow as a tiling: of instructions of which a block can be computed by itself. */
static tow__tiling *tiling_of(const tow__axis_flow *flow, tow__arena *scratch)
{
    const uint32_t n = flow->body->n_insts;
    tow__tiling *t = tow__arena_alloc(scratch, 1, sizeof *t);
    if (!t) return NULL;
    *t = (tow__tiling){.is_tileable = tow__arena_alloc(scratch, n, sizeof *t->is_tileable),
                       .axis = tow__arena_alloc(scratch, n, sizeof *t->axis),
                       .from = tow__arena_alloc(scratch, n, sizeof *t->from)};
    if (!t->is_tileable || !t->axis || !t->from) return NULL;
    for (uint32_t i = 0; i < n; i++) {
        const tow__axis_step *step = &flow->steps[i];
        const tow__instruction *inst = &flow->body->insts[i];
        t->axis[i] = step->axis;
        t->from[i] = step->from;
        t->is_tileable[i] = step->role == TOW__PARALLEL_AXIS && inst->kernel && step->axis != TOW__WHOLE &&
                            (inst->op->kind != TOW__DOT || step->from[0] != TOW__WHOLE);
    }
    return t;
}

static double seconds_of(const tow__tiling *t, const tow__cost *cost, uint32_t n)
{
    double seconds = 0;
    for (uint32_t i = 0; i < n; i++) seconds += t->is_tileable[i] ? cost->seconds[i] : 0;
    return seconds;
}

tow_status tow__find_named_tiling(tow__function_state *s, const tow__tiling **tiling)
{
    const tow__uses *uses = tow__get_uses(s);
    const tow__cost *cost = tow__get_cost(s);
    tow__axis_seed seeds[MOST_SEEDS];
    double most = 0;
    *tiling = NULL;
    if (!uses || !cost) return TOW_OUT_OF_MEMORY;
    /* Two blocks would take too little time for their calls. */
    if (TOW__CALLS_SHARE * cost->total < 2 * s->body->n_insts * s->p->machine.rates.call) return TOW_OK;
    const uint32_t n = list_seeds(s, uses, seeds);
    for (uint32_t i = 0; i < n; i++) {
        const tow__axis_flow *flow = tow__propagate_axis(s->p, s->body, &seeds[i], 1, s->scratch);
        const tow__tiling *t = flow ? tiling_of(flow, s->scratch) : NULL;
        if (!t) return TOW_OUT_OF_MEMORY;
        tow__free_axis_flow(s->p, flow, &seeds[i], 1);
        const double seconds = seconds_of(t, cost, s->body->n_insts);
        if (seconds > most) *tiling = t, most = seconds;
    }
    return TOW_OK;
}

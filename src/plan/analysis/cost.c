/* See cost.h. Flops are those of the descriptors' cost rules; row programs count the functions that they compute. */
#include "src/plan/analysis/cost.h"

#include <math.h>

#include "src/graph/region.h"
#include "src/kernels/elementwise/joined.h"
#include "src/ops/tiling.h"
#include "src/plan/analysis/analysis.h"
#include "src/plan/analysis/tiling.h"
#include "src/plan/fuse/fuse.h"

enum {
    DEAR = 16,    /* cheap functions that take as long as one that is no arithmetic, such as tanh */
    PASSES = 4,   /* over its rows, of softmax, norms and the like */
    OPERANDS = 32 /* of an instruction whose rows may be counted apart, at most */
};

double tow__flops(const tow__instruction *inst)
{
    const tow__operation o = tow__operation_of(inst);
    return inst->op->cost(&o).estimate;
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

void tow__add_work(tow__work *sum, const tow__work *more, double times)
{
    sum->f32 += more->f32 * times;
    sum->f64 += more->f64 * times;
    sum->functions += more->functions * times;
    for (int i = 0; i < TOW__LEVELS; i++) sum->bytes[i] += more->bytes[i] * times;
    sum->calls += more->calls * times;
}

/* A vector holds fewer large elements. */
static double width(tow_dtype dtype) { return fmax(1, (double)tow_dtype_size(dtype) / 4); }

static double weight(const tow_primitive *p, tow_dtype dtype)
{
    const bool cheap =
        p->arithmetic || p->kind != TOW__ELEMENTWISE || !tow_dtype_is_float(dtype) || p == &tow__convert_p;
    return (cheap ? 1 : DEAR) * width(dtype);
}

static const tow_primitive *primitive_of(tow__function function)
{
    static const tow_primitive *const primitives[] = {
#define tow__square_p  tow__mul_p /* it is none by itself */
#define X(name, types) [TOW__FN_##name] = &tow__##name##_p,
        TOW__FUNCTION_LIST(X)
#undef X
#undef tow__square_p
    };
    return primitives[function];
}

/* Cheap functions for each element of a row program. */
static double program_functions(const tow__fused *program)
{
    double sum = 0;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        tow__function functions[TOW__JOINED_FUNCTIONS];
        const uint32_t n = tow__op_functions(&program->ops[i], functions);
        for (uint32_t j = 0; j < n; j++) sum += weight(primitive_of(functions[j]), program->ops[i].dtype);
    }
    return sum;
}

/* The arithmetic of an operation, without the bytes that it moves. */
static tow__work arithmetic_of(const tow__operation *o)
{
    const tow_primitive *p = o->primitive;
    tow__work work = {.calls = 1};
    if (o->n_out == 0) return work;
    const tow_dtype dtype = o->out[0].type.dtype;
    if (p->product)
        *(dtype == TOW_F64 ? &work.f64 : &work.f32) = p->cost(o).estimate;
    else if (p->kind == TOW__ELEMENTWISE)
        work.functions = weight(p, dtype) * tow__elements(&o->out[0]);
    else if (p->kind != TOW__MOVE && p->kind != TOW__SOURCE)
        work.functions = p->cost(o).estimate / TOW__PER_ELEMENT * width(dtype) *
                         (p->kind == TOW__COMPOSITE && p->reduces_axis ? PASSES : 1);
    return work;
}

static tow__work arithmetic_of_inst(const tow__instruction *inst)
{
    const tow__operation o = tow__operation_of(inst);
    const tow__row_reductions *reductions = inst->extras.reductions;
    const tow__fused *program = tow__row_program_of(inst);
    tow__work work = {.calls = 1};
    if (!program) return arithmetic_of(&o);
    double elements = tow__elements(&inst->out[0]);
    if (reductions) {
        elements = (double)reductions->outer * (double)reductions->elements * (double)reductions->columns;
        work.functions = elements * reductions->n_reductions;
    } else if (!TOW__COMPUTES(inst, fused)) {
        work = arithmetic_of(&o);
    }
    work.functions += elements * program_functions(program);
    return work;
}

/* Bytes of the elements that a view reads or writes; repeated ones count once. */
static double bytes_of(const tow__view *x)
{
    double bytes = (double)tow_dtype_size(x->type.dtype);
    for (int i = 0; i < x->type.rank; i++)
        if (x->strides[i] != 0) bytes *= (double)x->type.dims[i];
    return bytes;
}

/* level NULL: where data of so many bytes are found. */
static void add_bytes(const tow__machine *m, tow__work *work, double bytes, const tow__memory_level *level)
{
    work->bytes[level ? *level : tow__machine_level(m, bytes)] += bytes;
}

tow__work tow__work_of_operation(const tow__machine *m, const tow__operation *o)
{
    tow__work work = arithmetic_of(o);
    for (uint32_t i = 0; i < o->n_in; i++) add_bytes(m, &work, bytes_of(&o->in[i]), NULL);
    for (uint32_t i = 0; i < o->n_out; i++) add_bytes(m, &work, bytes_of(&o->out[i]), NULL);
    return work;
}

tow__work tow__work_of(const tow__machine *m, const tow__instruction *inst, int64_t rows, const tow__where *where)
{
    const tow__work all = arithmetic_of_inst(inst);
    int from[OPERANDS];
    const bool apart = (rows > 0 || where) && inst->n_in <= OPERANDS && tow__is_tileable(inst, from);
    const int64_t most = apart ? inst->out[0].type.dims[0] : 0;
    const double part = apart && rows > 0 && rows < most ? (double)rows / (double)most : 1;
    tow__work work = {0};
    tow__add_work(&work, &all, part);
    work.calls = all.calls;
    for (uint32_t i = 0; i < inst->n_in; i++) {
        const bool whole = !apart || from[i] == TOW__WHOLE;
        if (inst->packed && i == 1) continue; /* operand 2 is read in its place */
        add_bytes(m, &work, bytes_of(&inst->in[i]) * (whole ? 1 : part),
                  !where  ? NULL
                  : whole ? &where->whole
                          : &where->rows);
    }
    for (uint32_t i = 0; i < inst->n_out; i++)
        add_bytes(m, &work, bytes_of(&inst->out[i]) * part, where ? &where->rows : NULL);
    return work;
}

/* ---- seconds ----------------------------------------------------------------------------------------------------- */

/* Without memory and calls: what threads divide. */
static double near_seconds(const tow__rates *r, const tow__work *w)
{
    double seconds = w->f32 / r->f32 + w->f64 / r->f64 + w->functions / r->functions;
    for (int i = 0; i < TOW__IN_MEMORY; i++) seconds += w->bytes[i] / r->bytes[i];
    return seconds;
}

double tow__seconds_of_work(const tow__machine *m, const tow__work *w)
{
    const tow__rates *r = &m->rates;
    return near_seconds(r, w) + w->bytes[TOW__IN_MEMORY] / r->bytes[TOW__IN_MEMORY] + w->calls * r->call;
}

double tow__moving_seconds(const tow__machine *m, double bytes)
{
    return bytes / m->rates.bytes[tow__machine_level(m, bytes)];
}

/* Bytes of memory per second that so many threads get together. */
static double memory_rate(const tow__machine *m, int threads)
{
    const double one = m->rates.bytes[TOW__IN_MEMORY];
    return fmax(one, fmin(one * threads, m->rates.shared));
}

double tow__shared_seconds_of_work(const tow__machine *m, const tow__work *w)
{
    const double alone = tow__seconds_of_work(m, w);
    if (m->threads < 2) return alone;
    const double together = near_seconds(&m->rates, w) / m->threads +
                            w->bytes[TOW__IN_MEMORY] / memory_rate(m, m->threads) +
                            w->calls * (m->rates.call + m->rates.meeting);
    return fmin(alone, together);
}

double tow__seconds(const tow__machine *m, const tow__instruction *inst, int64_t rows, const tow__where *where)
{
    const tow__work work = tow__work_of(m, inst, rows, where);
    return tow__seconds_of_work(m, &work);
}

/* One thread runs the body once. */
static double solo_seconds(const tow__machine *m, const tow__body *body)
{
    tow__machine solo = *m;
    solo.threads = 1;
    return tow__body_seconds(&solo, body);
}

static double loop_seconds(const tow__machine *m, const tow__loop *loop)
{
    const bool unknown = loop->stops && loop->length == INT64_MAX;
    const double length = unknown ? 1 : (double)loop->length, shared = (double)loop->shared;
    if (loop->schedule == TOW__SEQUENTIAL || loop->schedule == TOW__ORDERED_TILES)
        return length * tow__body_seconds(m, loop->body);
    const double one = solo_seconds(m, loop->body), met = m->threads > 1 ? m->rates.meeting : 0;
    if (loop->schedule == TOW__PARALLEL_ROWS) /* instructions of the body are those of one block */
        return length * one * ceil((double)loop->blocks / m->threads) + met;
    return one * ceil((length - shared) / m->threads) + shared * tow__body_seconds(m, loop->body) + met;
}

double tow__instruction_seconds(const tow__machine *m, const tow__instruction *inst)
{
    if (inst->loop) return loop_seconds(m, inst->loop);
    const tow__work work = tow__work_of(m, inst, 0, NULL);
    return tow__shared_seconds_of_work(m, &work);
}

double tow__body_seconds(const tow__machine *m, const tow__body *body)
{
    double sum = 0;
    for (uint32_t i = 0; i < body->n_insts; i++) sum += tow__instruction_seconds(m, &body->insts[i]);
    return sum;
}

tow__memory_level tow__weight_level(const tow__machine *m, double bytes)
{
    const tow__memory_level level = tow__machine_level(m, bytes);
    return level > TOW__IN_L2 ? level : m->l3.bytes > 0 ? TOW__IN_L3 : TOW__IN_MEMORY;
}

int64_t tow__rows_for_share(const tow__machine *m, tow__memory_level level, double share, int threads)
{
    const double memory = memory_rate(m, threads) / threads;
    const double rate = level == TOW__IN_MEMORY ? memory : m->rates.bytes[level];
    const double rows = 4 / rate / (2 / m->rates.f32) / share;
    return (int64_t)fmax(1, fmin(1e9, ceil(rows * (1 - 1e-9)))); /* without what rounding may add */
}

int64_t tow__enough_rows(const tow__machine *m) { return tow__rows_for_share(m, TOW__IN_L3, TOW__GAIN, 1); }

bool tow__is_worth(const tow__machine *m, double before, double after, double bytes)
{
    return after + bytes / m->rates.bytes[TOW__IN_MEMORY] < (1 - TOW__GAIN) * before;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static double graph_seconds(const tow__machine *m, const tow_graph *g, tow__view *views)
{
    double sum = 0;
    for (uint32_t i = 0; i < g->n_equations; i++) sum += tow__equation_seconds(m, g, &g->equations[i], views);
    return sum;
}

static double region_seconds(const tow__machine *m, const tow__equation *e, const tow__region_form *form,
                             tow__view *views)
{
    const int64_t bound = form->most > 0 ? form->most : 1;
    const double runs = (double)(form->length == TOW__DATA_DECIDE ? bound : form->length);
    double dearest = 0, seconds = 0;
    for (uint32_t k = 0; k < form->conditions + form->branches; k++) {
        const double one = graph_seconds(m, tow__nested(e->primitive, e->params, k), views);
        if (k < form->conditions)
            seconds += one;
        else
            dearest = fmax(dearest, one);
    }
    return runs * (seconds + dearest);
}

uint32_t tow__most_views(const tow_graph *g)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (e->n_in + e->n_out > most) most = e->n_in + e->n_out;
        for (uint32_t k = 0; k < tow__nested_count(e->primitive, e->params); k++) {
            const uint32_t inner = tow__most_views(tow__nested(e->primitive, e->params, k));
            if (inner > most) most = inner;
        }
    }
    return most;
}

tow__equation_time tow__time_equation(const tow__machine *m, const tow_graph *g, const tow__equation *e,
                                      tow__view *views)
{
    const tow__operation o = {e->params, e->n_in, e->n_out, views, views + e->n_in, e->primitive};
    if (e->primitive->view) return (tow__equation_time){0};
    for (uint32_t i = 0; i < e->n_in + e->n_out; i++)
        views[i] = tow__view_whole(i, g->vars[i < e->n_in ? e->in[i] : e->out[i - e->n_in]].type);
    const tow__work work = tow__work_of_operation(m, &o);
    return (tow__equation_time){tow__seconds_of_work(m, &work), tow__shared_seconds_of_work(m, &work)};
}

double tow__equation_seconds(const tow__machine *m, const tow_graph *g, const tow__equation *e, tow__view *views)
{
    tow__region_form form;
    if (tow__region_of(e, &form)) return region_seconds(m, e, &form, views);
    return tow__time_equation(m, g, e, views).alone;
}

/* ---- the analysis ------------------------------------------------------------------------------------------------ */

tow__cost *tow__find_cost(const tow_program *p, const tow__body *body, tow__arena *scratch)
{
    tow__cost *c = tow__arena_alloc(scratch, 1, sizeof *c);
    if (!c) return NULL;
    c->work = tow__arena_alloc(scratch, body->n_insts, sizeof *c->work);
    c->seconds = tow__arena_alloc(scratch, body->n_insts, sizeof *c->seconds);
    if (!c->work || !c->seconds) return NULL;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        if (body->insts[i].loop) continue;
        c->work[i] = tow__work_of(&p->machine, &body->insts[i], 0, NULL);
        c->seconds[i] = tow__seconds_of_work(&p->machine, &c->work[i]);
        c->shared += tow__shared_seconds_of_work(&p->machine, &c->work[i]);
        c->total += c->seconds[i];
    }
    return c;
}

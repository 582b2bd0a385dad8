/* Running a program: a loop over prepared calls. Nothing is allocated or looked up. */
#include "src/base/arithmetic.h"
#include "src/plan/plan.h"
#include "src/run/record.h"

static void run_plan(tow_program *p, const tow__plan *plan);

static inline void move_slot(const tow_program *p, uint32_t slot, char *address)
{
    const tow__slot *s = &p->slots[slot];
    for (uint32_t i = s->begin; i < s->end; i++) *p->patches[i].where = address + p->patches[i].offset;
}

static int64_t row_of(const tow__loop *loop, int64_t i) { return loop->reverse ? loop->length - 1 - i : i; }

/* Where iteration i leaves the new value: the last one in the result, others where the next iteration keeps its old
 * value, or in turn if there are two buffers. Iteration -1: where a copied init value goes. */
static char *carry_buffer(const tow__loop *loop, const tow__carry *c, int64_t i)
{
    int64_t left = loop->length - 1 - i;
    if (c->kept && (left > 0 || c->spans))
        return loop->ys[c->rows].data + row_of(loop, i + 1) * loop->ys[c->rows].stride;
    return c->alternates && left % 2 ? c->spare_data : c->result_data;
}

/* An init value that is strided, or that ys keep, is copied into the buffer that iteration 0 reads. */
static void copy_init(tow_program *p, const tow__loop *loop, tow__carry *c)
{
    c->copy_out.data = carry_buffer(loop, c, -1);
    tow__kernel_call call = {.n_in = 1, .n_out = 1, .in = &c->copy_in, .out = &c->copy_out, .team = &p->team};
    p->copy->run(&call);
}

#ifdef NDEBUG
static inline void poison_dead(const tow_program *p, const tow__plan *plan, const tow__instruction *inst, size_t copy)
{
    (void)p, (void)plan, (void)inst, (void)copy;
}
#else
/* Freed ranges become NaN, so that a wrong lifetime shows in the results. */
static void poison_dead(const tow_program *p, const tow__plan *plan, const tow__instruction *inst, size_t copy)
{
    for (uint32_t i = inst->dead_begin; i < inst->dead_end; i++) {
        const tow__storage *s = &p->storages[plan->dead[i]];
        if (s->bytes) memset(p->arena + plan->base + copy * plan->bytes + s->offset, 0xFF, s->bytes);
    }
}
#endif

/* Rows and carries for iteration i, of a block of rows for a copy of the body. */
static inline void begin_iteration(const tow_program *p, const tow__loop *loop, int64_t i, int64_t block, uint32_t copy)
{
    const tow__storage *storages = p->storages;
    int64_t row = row_of(loop, i);
    for (uint32_t j = 0; j < loop->n_xs; j++) {
        const tow__rows *x = &loop->xs[j];
        move_slot(p, storages[x->row].slot + copy, x->data + row * x->stride + block * x->part);
    }
    for (uint32_t j = 0; j < loop->n_ys; j++) {
        const tow__rows *y = &loop->ys[j];
        if (y->row != TOW__NONE)
            move_slot(p, storages[y->row].slot + copy, y->data + row * y->stride + block * y->part);
    }
    for (uint32_t j = 0; j < loop->n_carry; j++) {
        const tow__carry *c = &loop->carry[j];
        if (i >= 2 && !c->alternates) continue; /* one buffer: nothing moves any more */
        char *in = i == 0 && !c->copies ? c->init_data : carry_buffer(loop, c, i - 1);
        move_slot(p, storages[c->in].slot + copy, in + block * c->part);
        move_slot(p, storages[c->out].slot + copy, carry_buffer(loop, c, i) + block * c->part);
    }
}

/* What the threads of a loop that is spread over them share. */
typedef struct spread_run {
    tow_program *p;
    const tow__loop *loop;
} spread_run;

/* One pass through the body with these calls, on the memory of the copy that belongs to `thread`. */
static void run_insts(const tow_program *p, const tow__plan *body, const tow__instruction *insts, int64_t block,
                      int thread)
{
    if (p->recording) {
        for (uint32_t i = 0; i < body->n_insts; i++) {
            double start = tow__record_now();
            insts[i].kernel->run(&insts[i].call);
            tow__record(p->recording, thread, &body->insts[i], block, start);
            poison_dead(p, body, &insts[i], (size_t)thread);
        }
        return;
    }
    for (uint32_t i = 0; i < body->n_insts; i++) {
        insts[i].kernel->run(&insts[i].call);
        poison_dead(p, body, &insts[i], (size_t)thread);
    }
}

static void run_copy(const spread_run *r, int64_t block, int thread)
{
    run_insts(r->p, r->loop->body, r->loop->body->linked[thread], block, thread);
}

/* An iteration that depends on no other. */
static void run_iteration(void *user, int64_t iteration, int thread)
{
    const spread_run *r = user;
    begin_iteration(r->p, r->loop, iteration, 0, (uint32_t)thread);
    run_copy(r, iteration, thread);
}

/* A block of rows, through all iterations. */
static void run_rows(void *user, int64_t block, int thread)
{
    const spread_run *r = user;
    for (int64_t i = 0; i < r->loop->length; i++) {
        begin_iteration(r->p, r->loop, i, block, (uint32_t)thread);
        run_copy(r, block, thread);
    }
}

static void run_loop(tow_program *p, tow__loop *loop)
{
    spread_run spread = {p, loop};
    if (tow__is_parallel(loop)) {
        int64_t apart = loop->length - loop->shared;
        tow__team_run_indexed(&p->team, apart, run_iteration, &spread);
        for (int64_t i = apart; i < loop->length; i++) {
            begin_iteration(p, loop, i, 0, 0);
            run_insts(p, loop->body, loop->body->together, -1, 0);
        }
        return;
    }
    for (uint32_t j = 0; j < loop->n_carry; j++)
        if (loop->carry[j].copies) copy_init(p, loop, &loop->carry[j]);
    if (loop->schedule == TOW__PARALLEL_ROWS) {
        tow__team_run_indexed(&p->team, loop->blocks, run_rows, &spread);
        return;
    }
    for (int64_t i = 0; i < loop->length; i++) {
        loop->row = row_of(loop, i);
        begin_iteration(p, loop, i, 0, 0);
        run_plan(p, loop->body);
    }
}

/* As run_plan, with the times of all steps. */
static void record_plan(tow_program *p, const tow__plan *plan)
{
    for (uint32_t i = 0; i < plan->n_insts; i++) {
        const tow__instruction *inst = &plan->insts[i];
        double start = tow__record_now();
        if (inst->loop)
            run_loop(p, inst->loop);
        else
            inst->kernel->run(&inst->call);
        tow__record(p->recording, 0, inst, -1, start);
        poison_dead(p, plan, inst, 0);
    }
}

static void run_plan(tow_program *p, const tow__plan *plan)
{
    if (p->recording) {
        record_plan(p, plan);
        return;
    }
    for (uint32_t i = 0; i < plan->n_insts; i++) {
        const tow__instruction *inst = &plan->insts[i];
        if (inst->loop)
            run_loop(p, inst->loop);
        else
            inst->kernel->run(&inst->call);
        poison_dead(p, plan, inst, 0);
    }
}

static void run_top(tow_program *p)
{
    TOW__ARITHMETIC(p->flush_subnormals);
    run_plan(p, p->top);
}

static tow_status check_array(const tow_program *p, const char *what, size_t index, const char *name, tow_type expected,
                              const tow_array *array)
{
    if (!array)
        return tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                         "%s %zu%s%s: expected an array of type %s, found NULL; pass an array", what, index,
                         name ? " " : "", name ? name : "", tow__type_name(expected).text);
    if (tow_type_equal(tow_array_type(array), expected)) return TOW_OK;
    return tow__fail(p->ctx, TOW_TYPE_MISMATCH, "%s %zu%s%s: expected %s, found %s; pass an array of the expected type",
                     what, index, name ? " " : "", name ? name : "", tow__type_name(expected).text,
                     tow__type_name(tow_array_type(array)).text);
}

tow_status tow_program_run(tow_program *p, tow_array *const *inputs, tow_array *const *outputs)
{
    if (!p) return tow__missing(NULL, __func__, "a program");
    const tow_graph *g = p->graph;
    tow_status status = TOW_OK;
    if (p->plan_only)
        return tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                         "tow_program_run: the program was compiled with .plan_only and has no memory; compile it "
                         "without");
    if ((!inputs && g->n_inputs) || (!outputs && g->n_outputs))
        return tow__fail(p->ctx, TOW_INVALID_ARGUMENT, "tow_program_run: expected %u inputs and %u outputs, found NULL",
                         g->n_inputs, g->n_outputs);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        TRY(check_array(p, "input", i, g->input_names[i], g->vars[g->inputs[i]].type, inputs[i]));
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (!p->consumers[i].consume) TRY(check_array(p, "output", i, NULL, g->vars[g->outputs[i]].type, outputs[i]));
    for (uint32_t i = 0; i < g->n_inputs; i++) move_slot(p, i, tow_array_data(inputs[i]));
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (!p->consumers[i].consume) move_slot(p, g->n_inputs + i, tow_array_data(outputs[i]));
#ifndef NDEBUG
    memset(p->arena, 0xFF, p->arena_size);
#endif
    if (p->recording) tow__recording_reset(p->recording);
    run_top(p);
done:
    return status;
}

tow_status tow_evaluate(const tow_graph *g, tow_array *const *inputs, tow_array **outputs)
{
    tow_program *p = NULL;
    tow_status status = TOW_OK;
    if (!g || (!outputs && g->n_outputs > 0))
        return tow__missing(tow__context_of(g), __func__, "a graph and places for its outputs");
    for (uint32_t i = 0; i < g->n_outputs; i++) outputs[i] = NULL;
    TRY(tow_compile(g->ctx, g, NULL, &p));
    for (uint32_t i = 0; i < g->n_outputs; i++) TRY(tow_array_create(g->ctx, g->vars[g->outputs[i]].type, &outputs[i]));
    TRY(tow_program_run(p, inputs, outputs));
done:
    tow_program_free(p);
    for (uint32_t i = 0; status != TOW_OK && i < g->n_outputs; i++) {
        tow_array_release(outputs[i]);
        outputs[i] = NULL;
    }
    return status;
}

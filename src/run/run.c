/* Running a program: a loop over prepared calls. Nothing is allocated or looked up. */
#include "src/plan/plan.h"

static void run_plan(tow_program *p, const tow__plan *plan);

static inline void move_slot(const tow_program *p, uint32_t slot, char *address)
{
    const tow__slot *s = &p->slots[slot];
    for (uint32_t i = s->begin; i < s->end; i++) *p->patches[i].where = address + p->patches[i].offset;
}

/* Where iteration i of `length` leaves the new value: the last one in the result, the others in turn if there are two. */
static char *carry_buffer(const tow__carry *c, int64_t length, int64_t i)
{
    return c->alternates && (length - 1 - i) % 2 ? c->spare_data : c->result_data;
}

/* A strided init value becomes contiguous in the buffer that iteration 0 does not write or may overwrite. */
static char *first_carry(tow_program *p, tow__carry *c, int64_t length)
{
    if (!c->copies) return c->init_data;
    c->copy_out.data = carry_buffer(c, length, -1);
    tow__kernel_call call = {.n_in = 1, .n_out = 1, .in = &c->copy_in, .out = &c->copy_out, .team = &p->team};
    p->copy->run(&call);
    return c->copy_out.data;
}

static void run_loop(tow_program *p, const tow__loop *loop)
{
    const tow__storage *storages = p->storages;
    for (int64_t i = 0; i < loop->length; i++) {
        int64_t row = loop->reverse ? loop->length - 1 - i : i;
        for (uint32_t j = 0; j < loop->n_xs; j++)
            move_slot(p, storages[loop->xs[j].row].slot, loop->xs[j].data + row * loop->xs[j].stride);
        for (uint32_t j = 0; j < loop->n_ys; j++)
            move_slot(p, storages[loop->ys[j].row].slot, loop->ys[j].data + row * loop->ys[j].stride);
        for (uint32_t j = 0; j < loop->n_carry; j++) {
            tow__carry *c = &loop->carry[j];
            if (i >= 2 && !c->alternates) continue; /* one buffer: nothing moves any more */
            char *in = i == 0 ? first_carry(p, c, loop->length) : carry_buffer(c, loop->length, i - 1);
            move_slot(p, storages[c->in].slot, in);
            move_slot(p, storages[c->out].slot, carry_buffer(c, loop->length, i));
        }
        run_plan(p, loop->body);
    }
}

#ifdef NDEBUG
static inline void poison_dead(const tow_program *p, const tow__plan *plan, const tow__step *step) { (void)p, (void)plan, (void)step; }
#else
/* Freed ranges become NaN, so that a wrong lifetime shows in the results. */
static void poison_dead(const tow_program *p, const tow__plan *plan, const tow__step *step)
{
    for (uint32_t i = step->dead_begin; i < step->dead_end; i++) {
        const tow__storage *s = &p->storages[plan->dead[i]];
        if (s->bytes) memset(p->arena + plan->base + s->offset, 0xFF, s->bytes);
    }
}
#endif

static void run_plan(tow_program *p, const tow__plan *plan)
{
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const tow__step *step = &plan->steps[i];
        if (step->loop) run_loop(p, step->loop);
        else step->kernel->run(&step->call);
        poison_dead(p, plan, step);
    }
}

static tow_status check_array(const tow_program *p, const char *what, size_t index, const char *name, tow_type expected, const tow_array *array)
{
    if (!array)
        return tow__fail(p->ctx, TOW_INVALID_ARGUMENT, "%s %zu%s%s: expected an array of type %s, found NULL; pass an array", what,
                         index, name ? " " : "", name ? name : "", tow__type_name(expected).text);
    if (tow_type_equal(tow_array_type(array), expected)) return TOW_OK;
    return tow__fail(p->ctx, TOW_TYPE_MISMATCH, "%s %zu%s%s: expected %s, found %s; pass an array of the expected type", what, index,
                     name ? " " : "", name ? name : "", tow__type_name(expected).text, tow__type_name(tow_array_type(array)).text);
}

tow_status tow_program_run(tow_program *p, tow_array *const *inputs, tow_array *const *outputs)
{
    const tow_graph *g = p->graph;
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        TRY(check_array(p, "input", i, g->input_names[i], g->vars[g->inputs[i]].type, inputs[i]));
    for (uint32_t i = 0; i < g->n_outputs; i++)
        TRY(check_array(p, "output", i, NULL, g->vars[g->outputs[i]].type, outputs[i]));
    for (uint32_t i = 0; i < g->n_inputs; i++) move_slot(p, i, tow_array_data(inputs[i]));
    for (uint32_t i = 0; i < g->n_outputs; i++) move_slot(p, g->n_inputs + i, tow_array_data(outputs[i]));
#ifndef NDEBUG
    memset(p->arena, 0xFF, p->arena_size);
#endif
    run_plan(p, p->top);
done:
    return status;
}

tow_status tow_evaluate(const tow_graph *g, tow_array *const *inputs, tow_array **outputs)
{
    tow_program *p = NULL;
    tow_status status = TOW_OK;
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

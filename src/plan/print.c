/* A plan as text: one line per step with engine, operands, results, what is freed, and the bytes alive while it runs.
 *
 *   step  engine     instruction                                                     live
 *      0  reference  #3 f32[8,4] @0 = sin(#0 f32[8,4] input 0)                         128  free #3 */
#include <inttypes.h>

#include "src/base/arithmetic.h"
#include "src/kernels/fused.h"
#include "src/plan/plan.h"

static const char *kind_name(tow__storage_kind kind)
{
    static const char *const names[] = {
#define X(symbol, text) [symbol] = text,
        TOW__STORAGE_LIST(X)
#undef X
    };
    return names[kind];
}

/* #7 f32[2,3] @640, with +offset and strides where the view is not the whole storage */
static void add_view(tow__string *s, const tow_program *p, const tow__view *x)
{
    uint32_t root = tow__root(p, x->storage);
    const tow__storage *storage = &p->storages[root];
    tow__string_add(s, "#%u ", root);
    tow__string_add_type(s, x->type);
    if (storage->kind == TOW__S_ARENA)
        tow__string_add(s, " @%zu", storage->plan->base + storage->offset);
    else if (storage->kind == TOW__S_CONSTANT)
        tow__string_add(s, " %s", kind_name(storage->kind));
    else
        tow__string_add(s, " %s %u", kind_name(storage->kind), storage->index);
    if (x->offset) tow__string_add(s, "+%" PRId64, x->offset);
    if (tow__view_contiguous(x)) return;
    for (int i = 0; i < x->type.rank; i++) tow__string_add(s, "%s%" PRId64, i ? "," : " strides ", x->strides[i]);
}

static size_t live_bytes(const tow_program *p, const tow__plan *plan, uint32_t step)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < p->n_storages; i++) {
        const tow__storage *s = &p->storages[i];
        if (s->kind == TOW__S_ARENA && s->plan == plan && s->root == i && s->first != TOW__NONE && s->first <= step &&
            step <= s->last)
            bytes += tow__round_up(s->bytes);
    }
    return bytes;
}

static void add_plan(tow__string *s, const tow_program *p, const tow__plan *plan, int depth);

static void add_loop(tow__string *s, const tow_program *p, const tow__loop *loop, int depth)
{
    if (loop->parallel)
        tow__string_add(s, "%*s       %" PRId64 " blocks", 4 * depth, "", loop->length);
    else if (loop->ordered)
        tow__string_add(s, "%*s       %" PRId64 " blocks in order", 4 * depth, "", loop->length);
    else
        tow__string_add(s, "%*s       length %" PRId64 "%s", 4 * depth, "", loop->length,
                        loop->reverse ? " reverse" : "");
    if (loop->shared) tow__string_add(s, ", the last %" PRId64 " by all threads", loop->shared);
    if (loop->blocks > 1) tow__string_add(s, " for each of %" PRId64 " blocks of rows", loop->blocks);
    if (loop->body->copies)
        tow__string_add(s, ", %zu bytes @%zu for each of %u threads", loop->body->bytes, loop->body->base,
                        loop->body->copies);
    else
        tow__string_add(s, ", body block %zu bytes @%zu", loop->body->bytes, loop->body->base);
    for (uint32_t j = 0; j < loop->n_carry; j++) {
        const tow__carry *c = &loop->carry[j];
        tow__string_add(s, ", carry %u %s%s", j,
                        c->kept         ? "in rows of ys"
                        : c->alternates ? "alternates"
                                        : "in place",
                        c->copies ? " from a copy" : "");
    }
    tow__string_add(s, "\n");
    add_plan(s, p, loop->body, depth + 1);
}

/* fused(add, mul, tanh), fused_reduce(mul, reduce_sum) */
static void add_parts(tow__string *s, const tow__step *step)
{
    const tow__fused *program = tow__step_program(step);
    for (uint32_t i = 0; i < program->n_ops; i++) {
        const tow__fused_op *op = &program->ops[i];
        tow__string_add(s, "%s%s%s%s", i ? ", " : "", op->first ? tow__function_name(op->first) : "",
                        op->first ? " + " : "", tow__function_name(op->function));
    }
    if (step->base != &tow__fused_reduce_p) return;
    const tow__fused_reduce_params *p = step->params;
    for (uint32_t r = 0; r < p->n_reductions; r++) tow__string_add(s, ", %s", p->reductions[r].name);
}

const char *tow__step_engine(const tow_program *p, const tow__step *step)
{
    if (!step->kernel->engine_of) return step->kernel->engine;
    tow__team team = p->team;
    tow__buffer in[2], out = tow__view_buffer(&step->out[0]);
    tow__kernel_call call = {.n_out = 1, .in = in, .out = &out, .params = step->params, .team = &team};
    for (; call.n_in < 2 && call.n_in < step->n_in; call.n_in++) in[call.n_in] = tow__view_buffer(&step->in[call.n_in]);
    return step->kernel->engine_of(&call);
}

static void add_step(tow__string *s, const tow_program *p, const tow__plan *plan, uint32_t i, int depth)
{
    const tow__step *step = &plan->steps[i];
    tow__string_add(s, "%*s%5u%s %-10s ", 4 * depth, "", i, step->backward ? "b" : " ",
                    !step->loop                  ? tow__step_engine(p, step)
                    : tow__by_blocks(step->loop) ? "region"
                                                 : "loop");
    for (uint32_t j = 0; j < step->n_out; j++) {
        if (j) tow__string_add(s, ", ");
        add_view(s, p, &step->out[j]);
    }
    tow__string_add(s, " = %s(", step->base->name);
    if (tow__step_program(step)) {
        add_parts(s, step);
        tow__string_add(s, ")(");
    }
    for (uint32_t j = 0; j < step->n_in; j++) {
        if (j) tow__string_add(s, ", ");
        add_view(s, p, &step->in[j]);
    }
    tow__string_add(s, ")");
    if (!step->loop && step->scratch != TOW__NONE) {
        const tow__storage *scratch = &p->storages[step->scratch];
        tow__string_add(s, " scratch %zu @%zu", scratch->bytes, scratch->plan->base + scratch->offset);
    }
    tow__string_add(s, "  live %zu", live_bytes(p, plan, i));
    for (uint32_t j = step->dead_begin; j < step->dead_end; j++)
        tow__string_add(s, "%s#%u", j > step->dead_begin ? " " : "  free ", plan->dead[j]);
    tow__string_add(s, "\n");
    if (step->loop) add_loop(s, p, step->loop, depth);
}

static void add_plan(tow__string *s, const tow_program *p, const tow__plan *plan, int depth)
{
    for (uint32_t i = 0; i < plan->n_steps; i++) add_step(s, p, plan, i, depth);
}

size_t tow_program_text(const tow_program *p, char *text, size_t size)
{
    TOW__ARITHMETIC(false);
    tow__string s;
    tow__string_init(&s, p->ctx);
    add_plan(&s, p, p->top, 0);
    tow__string_add(&s,
                    "inputs %zu, outputs %zu, constants %zu, arena %zu (at least %zu), residuals %zu bytes; %" PRIu64
                    " instructions per run\n",
                    p->bytes.inputs, p->bytes.outputs, p->bytes.constants, p->bytes.arena, p->bytes.lower_bound,
                    p->bytes.residuals, tow_program_count(p, NULL));
    if (p->n_repeated)
        tow__string_add(&s,
                        "remat would repeat %" PRIu32 " products of the forward part; %" PRIu32
                        " are kept within %zu bytes%s\n",
                        p->n_repeated, p->keeping.all ? p->n_repeated : p->keeping.products, p->keep_within,
                        p->keeping.all ? ", and so is everything else" : "");
    if (p->keeping.interleaved)
        tow__string_add(&s, "blocks of rows may go through the forward and the backward part in turn\n");
    if (s.failed) s.length = 0; /* a part of a plan would mislead; the context has the error */
    size_t length = tow__string_export(&s, text, size);
    tow__string_free(&s);
    return length;
}

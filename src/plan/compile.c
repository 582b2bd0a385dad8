/* tow_compile: graph in, program out; and what a program tells about itself in numbers. */
#include "src/base/arithmetic.h"
#include "src/kernels/elementwise/fused.h"
#include "src/plan/analysis/phase.h"
#include "src/plan/fuse/fuse.h"
#include "src/plan/lower/lower.h"
#include "src/plan/lower/output_sink.h"
#include "src/plan/pass.h"
#include "src/plan/remat/remat.h"
#include "src/run/record.h"

/* The storage of the surrounding plan that a step of a region names, itself or as a block. */
static uint32_t outside(const tow_program *p, const tow__loop *loop, uint32_t s)
{
    const tow__storage *storage = &p->storages[s];
    if (storage->body == loop->body && storage->kind == TOW__S_ROW_IN) s = loop->xs[storage->index].array.storage;
    if (storage->body == loop->body && storage->kind == TOW__S_ROW_OUT) s = loop->ys[storage->index].array.storage;
    return tow__representative(p, s);
}

bool tow__is_backward(const tow_program *p, const tow__instruction *inst, uint32_t root, bool write)
{
    const tow__loop *loop = inst->loop;
    for (uint32_t i = 0; loop && loop->mixed && i < loop->body->n_insts; i++) {
        const tow__instruction *inner = &loop->body->insts[i];
        const tow__view *views = write ? inner->out : inner->in;
        for (uint32_t j = 0; j < (write ? inner->n_out : inner->n_in); j++)
            if (outside(p, loop, views[j].storage) == root && (write || inner->backward)) return inner->backward;
    }
    return inst->backward;
}

/* Bytes of the arena that are written by the forward part and still read by the backward part. */
static size_t residual_bytes(const tow_program *p)
{
    const tow__body *body = p->top;
    size_t bytes = 0;
    for (uint32_t i = tow__first_storage(body); i != TOW__NONE; i = p->storages[i].next) {
        const tow__storage *s = &p->storages[i];
        if (!tow__in_arena(p, i)) continue;
        if (tow__is_backward(p, &body->insts[s->first], i, true)) continue;
        if (tow__is_backward(p, &body->insts[s->last], i, false)) bytes += s->bytes;
    }
    return bytes;
}

/* What there is before anything is planned. */
static tow_status begin_program(tow_program *p, const tow_compile_options *options, int threads)
{
    tow_status status = TOW_OK;
    if (options) {
        p->plan_only = options->plan_only;
        p->keep_within = options->keep_within;
        p->flush_subnormals = options->flush_subnormals;
    }
    if (options) TRY(tow__select_passes(p, options));
    p->top = tow__arena_alloc(&p->memory, 1, sizeof *p->top);
    if (!p->top) return TOW_OUT_OF_MEMORY;
    p->top->block = TOW__NONE;
    p->top->team = &p->team;
    p->copy = tow__kernel_of(&tow__copy_p, TOW_F32);
    if (!p->copy) return tow__fail(p->ctx, TOW_INTERNAL_ERROR, "there is no kernel named \"copy\"");
    TRY(tow__team_create(p->ctx, threads, &p->team));
    p->solo = (tow__team){.threads = 1, .products = p->team.products};
    TRY(tow__set_consumers(p, options));
done:
    return status;
}

static tow_status make_plan(tow_program *p, tow__arena *scratch)
{
    tow_status status = TOW_OK;
    tow__function_state s = {.p = p, .scratch = scratch, .kind = TOW__TOP, .graph = p->graph, .body = p->top};
    TRY(tow__run_passes(&s, TOW__ON_GRAPH, 0));
    TRY(tow__run_passes(&s, TOW__ON_VALUES, 0));
    TRY(tow__run_passes(&s, TOW__LOWERING, 0));
    TRY(tow__run_view_passes(&s));
    p->bytes.arena = p->top->bytes;
    p->bytes.lower_bound = p->top->need;
    p->bytes.residuals = residual_bytes(p);
    TRY(tow__run_passes(&s, TOW__ON_PROGRAM, 0));
#ifndef NDEBUG
    TRY(tow_program_check(p));
#endif
done:
    return status;
}

tow_status tow__compile_with_budget(tow_context *ctx, const tow_graph *graph, const tow_compile_options *options,
                                    int threads, tow__remat_budget budget, tow_program **program)
{
    *program = NULL;
    tow_program *p = tow__alloc(ctx, 1, sizeof *p);
    if (!p) return TOW_OUT_OF_MEMORY;
    p->ctx = ctx;
    p->budget = budget;
    p->graph = tow__graph_share(graph);
    tow__arena scratch;
    tow__arena_init(&p->memory, ctx);
    tow__arena_init(&scratch, ctx);
    tow_status status = begin_program(p, options, threads);
    if (status == TOW_OK) status = make_plan(p, &scratch);
    tow__arena_free(&scratch);
    p->columns = NULL; /* they lay there */
    if (status == TOW_OK)
        *program = p;
    else
        tow_program_free(p);
    return status;
}

tow_status tow_compile(tow_context *ctx, const tow_graph *graph, const tow_compile_options *options,
                       tow_program **program)
{
    if (program) *program = NULL;
    if (!ctx || !graph || !program)
        return tow__missing(ctx, __func__, "a context, a graph and a place for the program");
    TOW__ARITHMETIC(false);
    int threads = options && options->threads ? options->threads : ctx->threads;
    tow__remat_budget budget = {0};
    if (threads < 1)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "tow_compile: expected a positive number of threads or 0, found %d",
                         threads);
    if (options && options->keep_within) {
        tow_status status = tow__search_budget(ctx, graph, options, threads, &budget);
        if (status != TOW_OK) return status;
    }
    return tow__compile_with_budget(ctx, graph, options, threads, budget, program);
}

void tow_program_free(tow_program *p)
{
    if (!p) return;
    tow_context *ctx = p->ctx;
    for (uint32_t i = 0; i < p->n_decompositions; i++) tow_graph_release(p->decompositions[i]);
    tow__recording_free(p->executable.recording);
    if (p->executable.arena) tow__free_aligned(ctx, p->executable.arena, p->executable.arena_size);
    tow__arena_free(&p->memory);
    tow_graph_release(p->graph);
    tow__free(ctx, p, 1, sizeof *p);
}

tow_status tow_program_run(tow_program *p, tow_array *const *inputs, tow_array *const *outputs)
{
    return p ? tow__execute(&p->executable, inputs, outputs) : tow__missing(NULL, __func__, "a program");
}

tow_status tow_program_record(tow_program *p, bool on)
{
    if (!p) return tow__missing(NULL, __func__, "a program");
    TOW__ARITHMETIC(false);
    return tow__record_runs(&p->executable, on);
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

tow_program_bytes tow_program_get_bytes(const tow_program *p) { return p->bytes; }

/* Is it the one that is counted? NULL: all are. Names of operations are the same strings everywhere. */
static bool counts(const tow_primitive *wanted, const char *name) { return !wanted || wanted->name == name; }

static bool counts_function(const tow_primitive *wanted, tow__function function)
{
    return !wanted || wanted == tow__operation_find(tow__function_name(function));
}

/* Parts of a row program. */
static uint64_t count_ops(const tow__fused *program, const tow_primitive *wanted)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        const tow__fused_op *op = &program->ops[i];
        count += counts_function(wanted, op->function);
        count += op->first && counts_function(wanted, op->first);
    }
    return count;
}

static uint64_t count_reductions(const tow__instruction *inst, const tow_primitive *wanted)
{
    uint64_t count = 0;
    if (inst->base != &tow__fused_reduce_p) return 0;
    const tow__fused_reduce_params *p = inst->params;
    for (uint32_t r = 0; r < p->n_reductions; r++) count += counts(wanted, p->reductions[r].name);
    return count;
}

static uint64_t count_insts(const tow__body *body, const tow_primitive *wanted)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        const tow__loop *loop = inst->loop;
        bool region = loop && inst->base == &tow__region_p; /* its blocks together make each step once */
        if (region && loop->continues) continue;
        const tow__fused *program = tow__row_program_of(inst);
        if (program) count += count_ops(program, wanted);
        count += count_reductions(inst, wanted);
        bool parts_only = inst->base == &tow__fused_p || inst->base == &tow__fused_reduce_p;
        if (!parts_only) count += !region && counts(wanted, inst->base->name);
        if (loop) count += (region ? 1 : (uint64_t)loop->length) * count_insts(loop->body, wanted);
    }
    return count;
}

uint64_t tow_program_count(const tow_program *p, const char *name)
{
    const tow_primitive *wanted = name ? tow__operation_find(name) : NULL;
    return name && !wanted ? 0 : count_insts(p->top, wanted);
}

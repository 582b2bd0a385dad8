/* tow_compile: graph in, program out. */
#include <inttypes.h>

#include "src/base/arithmetic.h"
#include "src/base/options.h"
#include "src/kernels/elementwise/fused.h"
#include "src/kernels/machine_rates.h"
#include "src/ops/collective.h"
#include "src/plan/analysis/phase.h"
#include "src/plan/fuse/fuse.h"
#include "src/plan/loop/loop.h"
#include "src/plan/lower/lower.h"
#include "src/plan/memory/memory.h"
#include "src/plan/pass.h"
#include "src/plan/remat/remat.h"
#include "src/run/record.h"

/* Is a function of the caller's called that may end the run, in the graph or in one nested in it? */
static bool calls_host(const tow_graph *g)
{
    for (uint32_t k = 0; k < g->n_equations; k++) {
        const tow__equation *e = &g->equations[k];
        const tow_primitive *p = e->primitive; /* a collective that fails ends all processes */
        if (p->host && !tow__starts_collective(p) && !tow__awaits_collective(p)) return true;
        for (uint32_t i = 0; i < tow__nested_count(e->primitive, e->params); i++)
            if (calls_host(tow__nested(e->primitive, e->params, i))) return true;
    }
    return false;
}

/* Makes the program before anything is planned. */
static tow_status begin_program(tow_program *p, const tow_compile_options *options, int threads)
{
    tow_status status = TOW_OK;
    if (options) {
        p->plan_only = options->plan_only;
        p->memory_limit = options->memory_limit;
        p->flush_subnormals = options->flush_subnormals;
        p->verifies = options->verify;
        p->shared_arena = options->shared_arena;
        p->n_donations = options->donations ? options->n_donations : 0; /* tow__set_donors refuses a list of NULL */
        if (p->n_donations) {
            p->donations = tow__arena_copy(&p->memory, options->donations, p->n_donations, sizeof *p->donations);
            if (!p->donations) return TOW_OUT_OF_MEMORY;
        }
    }
    p->calls_host = calls_host(p->graph);
    if (options) TRY(tow__select_passes(p, options));
    p->left_out[TOW__PASS_tile] |= p->choice.untiled;
    p->top = tow__arena_alloc(&p->memory, 1, sizeof *p->top);
    if (!p->top) return TOW_OUT_OF_MEMORY;
    p->top->block = TOW__NONE;
    p->top->team = &p->team;
    p->copy = tow__kernel_of(&tow__copy_p, TOW_F32);
    if (!p->copy) return tow__fail(p->ctx, TOW_INTERNAL_ERROR, "there is no kernel named \"copy\"");
    TRY(tow__team_create(p->ctx, threads, &p->team));
    p->solo = (tow__team){.threads = 1, .products = p->team.products};
    TRY(tow__set_donors(p, options));
    TRY(tow__split_donated_stacks(p));
done:
    return status;
}

enum {
    MEASURED = 1000 /* a program that takes so many microseconds is worth a look at the machine, once in a process */
};

/* The machine that the program is planned for, as its facts have it. */
static void choose_machine(tow_program *p)
{
    if (tow__machine_given(&p->machine)) {
        if (p->machine.threads == 0) p->machine.threads = p->team.threads;
        return;
    }
    p->machine = *tow__machine_here();
    if (p->machine.threads == 0) p->machine.threads = p->team.threads;
    p->machine.rates = tow__machine_nominal(&p->machine);
}

/* Rates in the light of timings: not for a small program, nor for vectors that are known. Then facts say enough, and
 * two processes plan alike, however busy the machine is. */
static void correct_machine(tow_program *p)
{
    tow__machine given;
    if (p->machine.vector_bytes > 0 || tow__body_seconds(&p->machine, p->top) < 1e-6 * MEASURED) return;
    if (tow__machine_given(&given)) return;
    const tow__measured_rates measured = tow__measure_machine();
    p->machine.rates = tow__correct_rates(&p->machine, &measured);
}

/* Adds up the rows that loops keep in the file. */
static tow_status find_file_bytes(tow_program *p, const tow__body *body)
{
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < body->n_insts && status == TOW_OK; i++) {
        const tow__instruction *inst = &body->insts[i];
        if (inst->loop) status = find_file_bytes(p, inst->loop->body);
        if (status != TOW_OK || !TOW__COMPUTES(inst, spill)) continue;
        const tow__spill_params *params = inst->params;
        const size_t row = tow_type_bytes(tow_make_type(params->dtype, params->shape.n, params->shape.v));
        int64_t all = (int64_t)p->bytes.file;
        if (!tow__spill_count(params->file_rows, row, &all))
            return tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                             "expected states of loops that take less than 2^63 bytes of a file, found %" PRId64
                             " rows of %zu bytes; use fewer .file_slots",
                             params->file_rows, row);
        p->bytes.file = (size_t)all;
    }
    return status;
}

static tow_status make_plan(tow_program *p, tow__arena *scratch)
{
    tow_status status = TOW_OK;
    tow__function_state s = {.p = p, .scratch = scratch, .kind = TOW__TOP, .graph = p->graph, .body = p->top};
    choose_machine(p);
    TRY(tow__run_passes(&s, TOW__ON_GRAPH, 0));
    TRY(tow__run_passes(&s, TOW__ON_VALUES, 0));
    TRY(tow__run_passes(&s, TOW__LOWERING, 0));
    correct_machine(p);
    TRY(tow__run_view_passes(&s));
    p->bytes.arena = p->top->bytes;
    p->bytes.lower_bound = p->top->need;
    p->bytes.residuals = tow__residual_bytes(p);
    TRY(find_file_bytes(p, p->top));
    TRY(tow__run_passes(&s, TOW__ON_PROGRAM, 0));
#ifndef NDEBUG
    TRY(tow_program_check(p));
#endif
done:
    return status;
}

tow_status tow__compile_with_choice(tow_context *ctx, const tow_graph *graph, const tow_compile_options *options,
                                    int threads, tow__remat_choice choice, tow_program **program)
{
    *program = NULL;
    tow_program *p = tow__alloc(ctx, 1, sizeof *p);
    if (!p) return TOW_OUT_OF_MEMORY;
    p->ctx = ctx;
    p->choice = choice;
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

static tow_status check_compile(tow_context *ctx, const tow_compile_options *options, int *threads)
{
    *threads = options && options->threads ? options->threads : ctx->threads;
    if (options && options->shared_arena && options->shared_arena->ctx != ctx)
        return tow__fail(
            ctx, TOW_INVALID_ARGUMENT,
            "tow_compile: expected a .shared_arena of this context, found one of another; make one for each "
            "context");
    if (*threads < 1)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "tow_compile: expected a positive number of threads or 0, found %d",
                         *threads);
    return TOW_OK;
}

/* ---- comparisons of what is made again --------------------------------------------------------------------------- */

/* The first equation of the backward pass that makes a value again. *compares: is there a comparison? */
static const tow__equation *find_repeated(const tow_graph *g, bool *compares)
{
    const tow__equation *found = NULL;
    for (uint32_t k = 0; k < g->n_equations; k++) {
        const tow__equation *e = &g->equations[k];
        *compares |= TOW__IS(e, same_bits);
        if (!found && e->source.phase == TOW__RECOMPUTED && e->n_in > 0) found = e;
        for (uint32_t i = 0; i < tow__nested_count(e->primitive, e->params); i++) {
            const tow__equation *inner = find_repeated(tow__nested(e->primitive, e->params, i), compares);
            if (!found) found = inner;
        }
    }
    return found;
}

/* A graph that cannot be differentiated again compares already, or makes nothing again. */
static tow_status check_compares(const tow_graph *g)
{
    bool compares = false;
    const tow__equation *e = find_repeated(g, &compares);
    if (!e || compares) return TOW_OK;
    return tow__fail(
        g->ctx, TOW_UNSUPPORTED,
        "verify: expected a gradient (tow_grad, tow_value_and_grad), found a graph that makes values again "
        "(%s%s%s) and does not say of what it is the gradient; make it in a context with .verify",
        e->primitive->name, e->source.here ? " at " : "", e->source.here ? e->source.here : "");
}

/* The graph with comparisons in it. */
static tow_status make_verified(const tow_graph *g, tow_graph **result)
{
    tow_status status = TOW_OK;
    *result = NULL;
    if (!g->origin || !g->origin->again) {
        if ((status = check_compares(g)) == TOW_OK) *result = tow__graph_share(g);
        return status;
    }
    const bool before = tow__verify_gradients(g->ctx, true);
    status = g->origin->again(g, result);
    tow__verify_gradients(g->ctx, before);
    return status;
}

static tow_status compile_plain(tow_context *ctx, const tow_graph *graph, const tow_compile_options *options,
                                int threads, tow_program **program)
{
    tow_graph *verified = NULL;
    tow_status status = options && options->verify ? make_verified(graph, &verified) : TOW_OK;
    if (status == TOW_OK)
        status = tow__compile_with_choice(ctx, verified ? verified : graph, options, threads, (tow__remat_choice){0},
                                          program);
    tow_graph_release(verified);
    return status;
}

/* ---- memory limits ----------------------------------------------------------------------------------------------- */

static tow_status make_itself(void *user, uint32_t i, tow_graph **graph)
{
    (void)i;
    *graph = tow__graph_share(user);
    return TOW_OK;
}

/* Variants of a graph: those of the function that it is the gradient of, or itself alone. */
static tow_status begin_variants(const tow_graph *graph, int threads, tow__variants *v)
{
    *v = (tow__variants){.n = 1, .user = (void *)(uintptr_t)graph, .make = make_itself};
    tow__pricing pricing;
    if (!graph->origin || !graph->origin->variants) return TOW_OK;
    tow_status status = tow__pricing_begin(graph->ctx, graph->origin->loss, threads, &pricing);
    if (status == TOW_OK) status = graph->origin->variants(graph, &pricing.price, v);
    tow__pricing_end(&pricing);
    return status;
}

static void end_variants(const tow_graph *graph, tow__variants *v)
{
    if (graph->origin && graph->origin->free_variants) graph->origin->free_variants(v);
}

tow_status tow_compile(tow_context *ctx, const tow_graph *graph, const tow_compile_options *options,
                       tow_program **program)
{
    if (program) *program = NULL;
    if (!ctx || !graph || !program)
        return tow__missing(ctx, __func__, "a context, a graph and a place for the program");
    tow_compile_options own;
    if (!TOW__OPTIONS_TAKE(ctx, tow_compile_options, options, &own)) return TOW_INVALID_ARGUMENT;
    TOW__ARITHMETIC(false);
    int threads;
    tow__variants variants;
    tow_status status = check_compile(ctx, options, &threads);
    if (status != TOW_OK) return status;
    if (!options || !options->memory_limit) return compile_plain(ctx, graph, options, threads, program);
    const bool again = graph->origin && graph->origin->again;
    if (options->verify && !again && (status = check_compares(graph)) != TOW_OK) return status;
    status = begin_variants(graph, threads, &variants);
    if (status == TOW_OK) status = tow__compile_within(ctx, &variants, options, threads, program);
    end_variants(graph, &variants);
    return status;
}

tow_status tow__compile_variants(tow_context *ctx, const tow__variants *variants, const tow_compile_options *options,
                                 tow_program **program)
{
    int threads;
    tow_status status = check_compile(ctx, options, &threads);
    return status == TOW_OK ? tow__compile_within(ctx, variants, options, threads, program) : status;
}

tow_status tow_memory_curve(tow_context *ctx, const tow_graph *graph, const tow_compile_options *options, size_t size,
                            tow_memory_point *points, size_t *n)
{
    if (n) *n = 0;
    if (!ctx || !graph || !n || (size && !points))
        return tow__missing(ctx, __func__, "a context, a graph, and places for points and their number");
    tow_compile_options own;
    if (!TOW__OPTIONS_TAKE(ctx, tow_compile_options, options, &own)) return TOW_INVALID_ARGUMENT;
    TOW__ARITHMETIC(false);
    const tow_compile_options none = TOW_COMPILE_OPTIONS();
    int threads;
    tow__variants variants = {0};
    tow_status status = check_compile(ctx, options, &threads);
    if (status != TOW_OK) return status;
    status = begin_variants(graph, threads, &variants);
    if (status == TOW_OK) status = tow__list_plans(ctx, &variants, options ? options : &none, threads, size, points, n);
    end_variants(graph, &variants);
    return status;
}

void tow_program_free(tow_program *p)
{
    if (!p) return;
    tow_context *ctx = p->ctx;
    for (uint32_t i = 0; i < p->n_decompositions; i++) tow_graph_release(p->decompositions[i]);
    tow__recording_free(p->executable.recording);
    tow__spill_end(&p->executable.spill);
    tow__collectives_free(&p->executable.collectives);
    if (p->executable.shared_arena)
        tow_shared_arena_release(p->executable.shared_arena);
    else
        tow__free_aligned(ctx, p->executable.arena, p->executable.arena_size);
    tow__arena_free(&p->memory);
    tow_graph_release(p->graph);
    tow_graph_release(p->split.whole);
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

/* Plans of a model within memory limits: exact bytes, exact flops of products, seconds by the cost model; nothing runs,
 * so that every machine prints the same bytes and flops.
 *
 *     memory --model gpt | gpt2 | gpt2_64 | resnet50 | unet | ffn | chain | chain256 | chain4096 [--no-scan]
 *            [--step]
 *
 * "curve": the plans among which a limit chooses, of value and gradient of the loss, or, with --step, of a step with
 * AdamW. "unlimited": the plan of value and gradient without a limit. */
#include <time.h>

#include "memory_models.h"
#include "src/graph/graph.h"
#include "src/plan/remat/remat.h"

/* "residuals": bytes that cross from the forward to the backward pass. */
static json_t *json_point(const tow__plan_point *p, size_t residuals)
{
    return json_pack("{s:I, s:I, s:f, s:f}", "bytes", (json_int_t)p->bytes, "residuals", (json_int_t)residuals, "flops",
                     p->flops, "seconds", p->seconds);
}

static size_t residuals_of(bench *b, const tow__variants *variants, const tow__plan_point *p)
{
    const tow_compile_options options = TOW_COMPILE_OPTIONS();
    tow_graph *graph = NULL;
    tow_program *program = NULL;
    bench_check(b, variants->make(variants->user, p->variant, &graph));
    bench_check(b, tow__compile_with_choice(b->context, graph, &options, (int)b->threads, p->choice, &program));
    const size_t residuals = tow_program_get_bytes(program).residuals;
    tow_program_free(program);
    tow_graph_release(graph);
    return residuals;
}

static void set_unlimited(bench *b, const tow_graph *gradient)
{
    tow_program *p = NULL;
    const tow__machine machine = tow__price_machine((int)b->threads);
    bench_check(b, tow_compile(b->context, gradient, &TOW_COMPILE_OPTIONS(.plan_only = true), &p));
    const tow_program_bytes bytes = tow_program_get_bytes(p);
    const tow__plan_point point = {.bytes = bytes.inputs + bytes.outputs + bytes.constants + bytes.arena,
                                   .seconds = tow__modelled_seconds(p, &machine),
                                   .flops = tow__modelled_flops(p)};
    bench_set(b, "unlimited", json_point(&point, bytes.residuals));
    tow_program_free(p);
}

static void set_curve(bench *b, const tow_graph *gradient)
{
    const tow__origin *origin = gradient->origin;
    tow__pricing pricing;
    tow__variants variants = {0};
    tow__frontier f = {0};
    tow__arena arena;
    const clock_t start = clock();
    tow__arena_init(&arena, b->context);
    bench_check(b, tow__pricing_begin(b->context, origin->loss, (int)b->threads, &pricing));
    bench_check(b, origin->variants(gradient, &pricing.price, &variants));
    tow__pricing_end(&pricing);
    bench_check(b, tow__find_frontier(&arena, &variants, &TOW_COMPILE_OPTIONS(), (int)b->threads, &f));
    bench_set(b, "search_seconds", json_real((double)(clock() - start) / CLOCKS_PER_SEC));
    bench_set(b, "plans", json_integer(f.n_plans));
    json_t *list = json_array();
    for (uint32_t i = 0; i < f.n; i++)
        json_array_append_new(list, json_point(&f.points[i], residuals_of(b, &variants, &f.points[i])));
    bench_set(b, "curve", list);
    set_unlimited(b, gradient);
    origin->free_variants(&variants);
    tow__arena_free(&arena);
}

static void set_step_curve(bench *b, const memory_model *m, bool unrolled)
{
    enum {
        MOST = 256
    };
    static tow_memory_point points[MOST];
    size_t n = 0;
    if (!m->training) bench_fail("memory: --step: expected gpt, gpt2, gpt2_64 or gpt-small, found '%s'", m->name);
    tow_train_state *state = m->training(b, m, unrolled);
    bench_check(b, tow_train_memory_curve(state, MOST, points, &n));
    json_t *list = json_array();
    for (size_t i = 0; i < n && i < MOST; i++)
        json_array_append_new(list, json_pack("{s:I, s:f, s:f}", "bytes", (json_int_t)points[i].bytes, "flops",
                                              points[i].flops, "seconds", points[i].seconds));
    bench_set(b, "curve", list);
    tow_train_free(state);
}

int main(int argc, char **argv)
{
    bench b;
    const char *name = "gpt";
    bool unrolled = false, step = false;
    const bench_option options[] = {
        {"model", .text = &name}, {"no-scan", .flag = &unrolled}, {"step", .flag = &step}, {0}};
    bench_start(&b, "memory", argc, argv, options);
    const memory_model *m = memory_model_named(name);
    if (step) {
        set_step_curve(&b, m, unrolled);
        return bench_finish(&b, 0);
    }
    tow_graph *gradient = memory_gradient(&b, m, NULL, unrolled);
    set_curve(&b, gradient);
    tow_graph_release(gradient);
    return bench_finish(&b, 0);
}

/* Plans of a model within memory limits: exact bytes, exact flops of products, seconds by the cost model; nothing runs,
 * so that every machine prints the same bytes and flops.
 *
 *     memory --model gpt | gpt2 | resnet50 | unet | chain [--no-scan]
 *
 * "curve": the plans among which a limit chooses. "unlimited": the plan without a limit. */
#include <time.h>

#include "memory_models.h"
#include "src/graph/graph.h"
#include "src/plan/remat/remat.h"

static json_t *json_point(const tow__plan_point *p)
{
    return json_pack("{s:I, s:f, s:f}", "bytes", (json_int_t)p->bytes, "flops", p->flops, "seconds", p->seconds);
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
    bench_set(b, "unlimited", json_point(&point));
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
    for (uint32_t i = 0; i < f.n; i++) json_array_append_new(list, json_point(&f.points[i]));
    bench_set(b, "curve", list);
    set_unlimited(b, gradient);
    origin->free_variants(&variants);
    tow__arena_free(&arena);
}

int main(int argc, char **argv)
{
    bench b;
    const char *name = "gpt";
    bool unrolled = false;
    const bench_option options[] = {{"model", .text = &name}, {"no-scan", .flag = &unrolled}, {0}};
    bench_start(&b, "memory", argc, argv, options);
    tow_graph *gradient = memory_gradient(&b, memory_model_named(name), NULL, unrolled);
    set_curve(&b, gradient);
    tow_graph_release(gradient);
    return bench_finish(&b, 0);
}

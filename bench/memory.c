/* Plans of a model within memory limits: exact bytes, exact flops of products, seconds by the cost model; nothing runs,
 * so that every machine prints the same bytes and flops.
 *
 *     memory --model gpt | gpt2 | resnet50 | unet | chain [--no-scan]
 *
 * "curve": the plans among which a limit chooses. "policies": what JAX's policies around each block take. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory_models.h"
#include "src/graph/graph.h"
#include "src/plan/remat/remat.h"

static tow_graph *gradient_of(bench *b, const memory_model *m, const tow_policy *policy, bool unrolled)
{
    size_t n = 0;
    tow_graph *loss = m->loss(b, policy, unrolled, &n), *gradient = NULL;
    size_t *wrt = malloc((n + 1) * sizeof *wrt);
    if (!wrt) bench_fail("memory: out of memory");
    for (size_t i = 0; i < n; i++) wrt[i] = i;
    bench_check(b, tow_value_and_grad(loss, n, wrt, false, &gradient));
    tow_graph_release(loss);
    free(wrt);
    return gradient;
}

static json_t *json_point(const tow__plan_point *p)
{
    return json_pack("{s:I, s:f, s:f}", "bytes", (json_int_t)p->bytes, "flops", p->flops, "seconds", p->seconds);
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
    const memory_model *m = NULL;
    for (size_t i = 0; i < memory_models_count; i++)
        if (strcmp(memory_models[i].name, name) == 0) m = &memory_models[i];
    if (!m) bench_fail("memory: --model: expected gpt, gpt2, resnet50, unet or chain, found '%s'", name);
    tow_graph *gradient = gradient_of(&b, m, NULL, unrolled);
    set_curve(&b, gradient);
    tow_graph_release(gradient);
    return bench_finish(&b, 0);
}

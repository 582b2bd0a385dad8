/* Residuals in the plan of their gradient: places, and what would change, against plans of graphs that are written in
 * the other way by hand.
 * Tests explain.c, plan/report/values.c, autodiff/limit/override.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/plan/ir.h"
#include "src/plan/remat/remat.h"
#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

#define DOT "dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()]"

/* Two layers [128, 64] -> [128, 256] -> [128, 64] in one region under a policy, %s. */
static const char two_layers[] = "{ lambda ; x:f32[128,64]\"x\" v:f32[64,256]\"v\" w:f32[256,64]\"w\". let\n"
                                 "    y:f32[128,64] = remat[policy=\"%s\" body={ lambda ; x:f32[128,64] "
                                 "v:f32[64,256] w:f32[256,64]. let\n"
                                 "        a:f32[128,256] = " DOT " x v\n"
                                 "        b:f32[128,256] = name[name=\"b\"] a\n"
                                 "        c:f32[128,256] = tanh b\n"
                                 "        d:f32[128,256] = name[name=\"d\"] c\n"
                                 "        e:f32[128,64] = " DOT " d w\n"
                                 "        f:f32[128,64] = name[name=\"f\"] e\n"
                                 "        g:f32[128,64] = sin f\n"
                                 "      in (g) }] x v w\n"
                                 "    s:f32[] = reduce_sum[axes=(0,1)] y\n"
                                 "  in (s) }\n";

/* Every residual is an array then: in tile groups it is a block of rows at a time. */
static const tow_compile_options whole_arrays = TOW_COMPILE_OPTIONS(.plan_only = true, .no_regions = true);

static tow_program *compile(tow_context *c, const char *policy)
{
    char text[2048];
    tow_graph *loss, *gradient;
    tow_program *p;
    snprintf(text, sizeof text, two_layers, policy);
    OK(tow_graph_parse(c, text, &loss));
    OK(tow_value_and_grad(loss, 0, NULL, false, &gradient));
    OK(tow_compile(c, gradient, &whole_arrays, &p));
    tow_graph_release(gradient);
    tow_graph_release(loss);
    return p;
}

static const tow_residual *find(const tow_residual *items, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(items[i].what, what) == 0) return &items[i];
    fail_msg("no residual %s", what);
    return NULL;
}

/* Each stored residual lies in the arena, where the checker says that nobody else is, and is read by the backward pass
 * last. */
static void places_are_those_of_the_plan(void **state)
{
    (void)state;
    tow_program *p = compile(ctx, "names:b,d,f");
    tow_residuals list;
    OK(tow_program_explain(p, &list));
    size_t stored = 0;
    for (size_t i = 0; i < list.count; i++) {
        const tow_residual_plan *plan = &list.items[i].plan;
        assert_true(plan->planned);
        assert_true(plan->stored == !plan->held);
        if (!plan->stored) continue;
        const tow__storage *s = &p->storages[plan->storage];
        assert_int_equal(plan->offset, s->body->arena_offset + s->offset);
        assert_int_equal(plan->bytes, s->bytes);
        assert_true(plan->offset + plan->bytes <= p->bytes.arena);
        assert_true(plan->first < plan->last && plan->last < p->top->n_insts);
        stored++;
    }
    assert_true(stored > 0);
    const tow_residual_plan *d = &find(list.items, list.count, "d")->plan;
    assert_true(d->stored && !p->top->insts[d->first].backward && p->top->insts[d->last].backward);
    assert_int_equal(d->bytes, 128 * 256 * 4);
    const tow_residual *x = find(list.items, list.count, "x");
    assert_string_equal(x->plan.held, "in the caller's array");
    assert_true(find(list.items, list.count, "d")->seconds > 0);
    tow_residuals_free(&list);
    tow_program_free(p);
}

/* The report says about not keeping d what the plan of the policy without d differs by; and the other way round, about
 * keeping tanh, which is made again, what the plan of the policy with d differs by. */
static void changes_are_those_of_other_policies(void **state)
{
    (void)state;
    tow_program *with = compile(ctx, "names:b,d,f"), *without = compile(ctx, "names:b,f");
    const tow__machine m = tow__price_machine(with->team.threads);
    const int64_t more = (int64_t)without->bytes.arena - (int64_t)with->bytes.arena;
    const double seconds = tow__modelled_seconds(without, &m) - tow__modelled_seconds(with, &m);
    tow_residuals list;
    OK(tow_program_explain(with, &list));
    const tow_residual *d = find(list.items, list.count, "d");
    assert_true(d->plan.tried);
    assert_int_equal(d->plan.bytes_more, more);
    assert_true(d->plan.seconds_more == seconds && seconds > 0);
    assert_string_equal(d->plan.instead, "b from line 4"); /* tanh needs its result only, so b was not kept before */
    tow_residuals_free(&list);

    OK(tow_program_explain(without, &list));
    const tow_residual *again = find(list.again, list.again_count, "tanh");
    assert_true(again->plan.tried);
    assert_int_equal(again->plan.bytes_more, -more);
    assert_true(again->plan.seconds_more == -seconds);
    tow_residuals_free(&list);
    tow_program_free(with);
    tow_program_free(without);
}

/* Without a region: tanh not kept means that its operand is. */
static void operands_take_the_place(void **state)
{
    (void)state;
    tow_program *p = compile(ctx, "everything");
    tow_residuals list;
    OK(tow_program_explain(p, &list));
    const tow_residual *d = find(list.items, list.count, "d");
    assert_true(d->plan.tried);
    assert_non_null(d->plan.instead);
    assert_non_null(strstr(d->plan.instead, "b from line 4"));
    tow_residuals_free(&list);
    tow_program_free(p);
}

/* Layers [256, 64] -> [256, 256] -> [256, 64], one after the other, without a region. */
static tow_graph *chain(int layers)
{
    char text[8192];
    size_t n = (size_t)snprintf(text, sizeof text, "{ lambda ; x0:f32[256,64] w:f32[64,256] v:f32[256,64]. let\n");
    for (int i = 0; i < layers; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "a%d:f32[256,256] = " DOT " x%d w b%d:f32[256,256] = tanh a%d\n"
                              "c%d:f32[256,64] = " DOT " b%d v x%d:f32[256,64] = sin c%d\n",
                              i, i, i, i, i, i, i + 1, i);
    snprintf(text + n, sizeof text - n, "s:f32[] = reduce_sum[axes=(0,1)] x%d in (s) }", layers);
    tow_graph *g;
    OK(tow_graph_parse(ctx, text, &g));
    return g;
}

/* Within a limit the list is that of the plan that was chosen, and says so. */
static void limits_answer(void **state)
{
    (void)state;
    tow_graph *loss = chain(6), *gradient;
    tow_program *p;
    tow_memory_point points[64];
    size_t n;
    OK(tow_value_and_grad(loss, 0, NULL, false, &gradient));
    OK(tow_memory_curve(ctx, gradient, &whole_arrays, 64, points, &n));
    bool asked = false;
    for (size_t i = 0; i < n && i < 64; i++) {
        tow_residuals list;
        tow_compile_options options = whole_arrays;
        options.memory_limit = points[i].bytes;
        OK(tow_compile(ctx, gradient, &options, &p));
        OK(tow_program_explain(p, &list));
        for (size_t k = 0; k < list.count; k++)
            asked |= list.items[k].policy && strcmp(list.items[k].policy, "the memory limit") == 0;
        for (size_t k = 0; k < list.again_count; k++)
            asked |= list.again[k].policy && strcmp(list.again[k].policy, "the memory limit") == 0;
        tow_residuals_free(&list);
        tow_program_free(p);
    }
    assert_true(asked);
    tow_graph_release(gradient);
    tow_graph_release(loss);
}

/* It is not known what a verdict would change where the region's own limit forbids it. */
static void limits_of_regions_answer(void **state)
{
    (void)state;
    char text[2048];
    snprintf(text, sizeof text, two_layers, "nothing");
    char *at = strstr(text, " body="), limited[2200];
    snprintf(limited, sizeof limited, "%.*s limit=40000%s", (int)(at - text), text, at);
    tow_graph *loss, *gradient;
    tow_program *p;
    tow_residuals list;
    OK(tow_graph_parse(ctx, limited, &loss));
    OK(tow_value_and_grad(loss, 0, NULL, false, &gradient));
    for (int verify = 0; verify < 2; verify++) {
        OK(tow_compile(ctx, gradient, &TOW_COMPILE_OPTIONS(.plan_only = true, .verify = verify), &p));
        OK(tow_program_explain(p, &list));
        const tow_residual *made = find(list.again, list.again_count, "tanh");
        assert_true(made->bytes > 40000 && !made->plan.tried);
        tow_residuals_free(&list);
        tow_program_free(p);
    }
    tow_graph_release(gradient);
    tow_graph_release(loss);
}

static void no_gradient_is_an_error(void **state)
{
    (void)state;
    tow_graph *g;
    tow_program *p;
    tow_residuals list;
    OK(tow_graph_parse(ctx, "{ lambda ; x:f32[]. let y:f32[] = sin x in (y) }", &g));
    OK(tow_compile(ctx, g, NULL, &p));
    assert_int_equal(tow_program_explain(p, &list), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "expected the program of a gradient"));
    assert_int_equal(list.count, 0);
    tow_residuals_free(&list);
    tow_program_free(p);
    tow_graph_release(g);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    counting count;
    const tow_context_options options = counting_options(&count, -1);
    tow_context *c;
    assert_int_equal(tow_context_create(&options, &c), TOW_OK);
    tow_program *p = compile(c, "names:d");
    tow_residuals list;
    assert_int_equal(tow_program_explain(p, &list), TOW_OK);
    tow_residuals_free(&list);
    const long blocks = count.blocks;
    tow_status status = TOW_OUT_OF_MEMORY;
    for (long n = 0; status != TOW_OK; n += n < 100 ? 1 : 1 + n / 32) {
        count.calls = 0;
        count.fail_at = n;
        status = tow_program_explain(p, &list);
        count.fail_at = -1;
        if (status == TOW_OK) tow_residuals_free(&list);
        if ((status != TOW_OK && status != TOW_OUT_OF_MEMORY) || count.blocks != blocks)
            fail_msg("allocation %ld: %s, %ld blocks leak", n, tow_context_error(c), count.blocks - blocks);
    }
    tow_program_free(p);
    tow_context_free(c);
    assert_int_equal(count.blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_those_of_the_plan), cmocka_unit_test(changes_are_those_of_other_policies),
        cmocka_unit_test(operands_take_the_place),      cmocka_unit_test(limits_answer),
        cmocka_unit_test(limits_of_regions_answer),     cmocka_unit_test(no_gradient_is_an_error),
        cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests_name("explain", tests, setup, teardown);
}

/* Costs of primitives: what reports count, and what plans compare. Counted by hand. Tests tiling.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "src/ops/tiling.h"
#include "tests/unit/support/plain_context.h"
#include "tow/graph.h"

#define GRAPH(inputs, equation) "{ lambda ; " inputs ". let " equation " in (r) }"

static const struct {
    const char *text;
    double exact, estimate;
} cases[] = {
    {GRAPH("a:f32[4,3] b:f32[4,3]", "r:f32[4,3] = add a b"), 12, 8 * 36},
    {GRAPH("a:i32[4,3] b:i32[4,3]", "r:i32[4,3] = add a b"), 0, 8 * 36},
    {GRAPH("a:f32[4,3] b:f32[4,3]", "r:bool[4,3] = lt a b"), 0, 8 * 36},
    {GRAPH("a:f32[4,3]", "r:f32[4] = reduce_sum[axes=(1)] a"), 8, 8 * 16}, /* two additions for each of four */
    {GRAPH("a:f32[4,3]", "r:f32[4,3] = cumsum[axis=1 reverse=false] a"), 12, 8 * 24},
    {GRAPH("a:f32[4,3]", "r:f32[12] = reshape[shape=(12)] a"), 0, 8 * 24},
    {GRAPH("a:f32[4,8] b:f32[8,3]", "r:f32[4,3] = dot_general[lhs_contract=(1) rhs_contract=(0)] a b"), 192, 192},
    {GRAPH("a:f32[4,3]", "r:f32[4,3] = softmax[axis=1] a"), TOW__COST_OF_PARTS, 8 * 24},
};

static tow__op_cost cost_of(const tow_graph *g)
{
    const tow__equation *e = &g->equations[0];
    tow__view views[3];
    for (uint32_t i = 0; i < e->n_in; i++) views[i] = tow__view_whole(i, g->vars[e->in[i]].type);
    views[2] = tow__view_whole(2, g->vars[e->out[0]].type);
    const tow__operation o = {e->params, e->n_in, e->n_out, views, &views[2], e->primitive};
    return e->primitive->cost(&o);
}

static void test_costs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_graph *g;
        OK(tow_graph_parse(ctx, cases[i].text, &g));
        const tow__op_cost cost = cost_of(g);
        if (cost.exact != cases[i].exact || cost.estimate != cases[i].estimate)
            fail_msg("%s: %g and %g, expected %g and %g", cases[i].text, cost.exact, cost.estimate, cases[i].exact,
                     cases[i].estimate);
        tow_graph_release(g);
    }
}

/* All that multiply and add for the most part are products, for plans and policies alike. */
static void test_products(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        tow__product_kind product;
    } products[] = {{"dot_general", TOW__PLAIN_PRODUCT},
                    {"conv_general_dilated", TOW__BATCHED_PRODUCT},
                    {"attention", TOW__BATCHED_PRODUCT},
                    {"ragged_dot", TOW__BATCHED_PRODUCT},
                    {"linear_cross_entropy", TOW__PLAIN_PRODUCT},
                    {"linear_cross_entropy_parts", TOW__PLAIN_PRODUCT},
                    {"mul", TOW__NO_PRODUCT},
                    {"softmax", TOW__NO_PRODUCT}};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        assert_int_equal(tow__primitive_find(products[i].name, strlen(products[i].name))->product, products[i].product);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_products),
    };
    return cmocka_run_group_tests_name("costs", tests, setup, teardown);
}

/* Differentiation marks equations of the backward pass, and those that make again what remat does not keep; all that
 * make other graphs of a graph keep the marks. Expectations are the derivative of sum(sin(exp x)), worked out by
 * hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "src/graph/builder.h"
#include "tests/unit/support/plain_context.h"
#include "tow/autodiff.h"
#include "tow/ops.h"

static const char region[] = "{ lambda ; x:f64[3]\"x\". let y:f64[3] = remat[policy=\"nothing\" differentiated=false "
                             "body={ lambda ; x:f64[3]. let z:f64[3] = exp x s:f64[3] = sin z in (s) }] x "
                             "s:f64[] = reduce_sum[axes=(0)] y in (s) }";
static const char loop[] = "{ lambda ; x:f64[3]\"x\". let y:f64[3] = scan[length=4 reverse=false consts=0 carry=1 "
                           "body={ lambda ; x:f64[3]. let s:f64[3] = sin x in (s) }] x "
                           "s:f64[] = reduce_sum[axes=(0)] y in (s) }";

/* Equations `name` of this phase in g and its nested graphs. */
static int count(const tow_graph *g, const char *name, tow__phase phase)
{
    int n = 0;
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        n += strcmp(e->primitive->name, name) == 0 && e->source.phase == phase;
        for (uint32_t k = 0; k < tow__nested_count(e->primitive, e->params); k++)
            n += count(tow__nested(e->primitive, e->params, k), name, phase);
    }
    return n;
}

static tow_graph *gradient_of(const char *text)
{
    tow_graph *g, *gradient;
    assert_int_equal(tow_graph_parse(ctx, text, &g), TOW_OK);
    assert_int_equal(tow_value_and_grad(g, 0, NULL, false, &gradient), TOW_OK);
    tow_graph_release(g);
    return gradient;
}

/* exp and sin run forward; the region of the backward pass makes exp and cos again and multiplies twice. */
static void expect_marks(const tow_graph *g)
{
    assert_int_equal(count(g, "exp", TOW__FORWARD), 1);
    assert_int_equal(count(g, "sin", TOW__FORWARD), 1);
    assert_int_equal(count(g, "reduce_sum", TOW__FORWARD), 1);
    assert_int_equal(count(g, "remat", TOW__BACKWARD), 1);
    assert_int_equal(count(g, "exp", TOW__RECOMPUTED), 1);
    assert_int_equal(count(g, "cos", TOW__RECOMPUTED), 1);
    assert_int_equal(count(g, "mul", TOW__BACKWARD), 2);
    assert_int_equal(count(g, "mul", TOW__RECOMPUTED), 0);
}

static void test_gradient(void **state)
{
    (void)state;
    tow_graph *g = gradient_of(region);
    expect_marks(g);
    tow_graph_release(g);
    g = gradient_of(loop);
    assert_int_equal(count(g, "scan", TOW__FORWARD), 1);
    assert_int_equal(count(g, "scan", TOW__BACKWARD), 1);
    assert_int_equal(count(g, "mul", TOW__BACKWARD), 1);
    assert_int_equal(count(g, "sin", TOW__FORWARD), 1);
    tow_graph_release(g);
}

/* Clean-up, batching, and recording in another graph, as loops of one's own do. */
static void test_kept(void **state)
{
    (void)state;
    tow_graph *g = gradient_of(region), *made;
    assert_int_equal(tow_graph_dce(g, &made), TOW_OK);
    expect_marks(made);
    tow_graph_release(made);
    assert_int_equal(tow_graph_cse(g, &made), TOW_OK);
    expect_marks(made);
    tow_graph_release(made);
    assert_int_equal(tow_vmap(g, 5, NULL, NULL, &made), TOW_OK);
    expect_marks(made);
    tow_graph_release(made);
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    in[0] = tow__input(t, tow_graph_input_type(g, 0), NULL);
    tow__inline(t, g, in, out);
    out[1] = tow_sub(in[0], out[1]);
    assert_int_equal(tow__trace_end(t, 2, out, false, &made), TOW_OK);
    expect_marks(made);
    assert_int_equal(count(made, "sub", TOW__FORWARD), 1);
    tow_graph_release(made);
    tow_graph_release(g);
}

/* If a gradient is differentiated, all of it is the forward pass. */
static void test_second_gradient(void **state)
{
    (void)state;
    tow_graph *g = gradient_of(region), *second;
    assert_int_equal(tow_grad(g, 0, NULL, true, &second), TOW_OK);
    tow_graph_release(g);
    g = second;
    uint32_t first = 0;
    while (first < g->n_equations && g->equations[first].source.phase == TOW__FORWARD) first++;
    for (uint32_t i = first; i < g->n_equations; i++) assert_int_not_equal(g->equations[i].source.phase, TOW__FORWARD);
    assert_true(first > 0 && first < g->n_equations);
    tow_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_second_gradient),
    };
    return cmocka_run_group_tests_name("phases", tests, setup, teardown);
}

/* Tests how regions say that they use their nested graphs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "src/graph/region.h"
#include "tests/unit/support/plain_context.h"

#define BODY(inputs, outputs) "body={ lambda ; " inputs ". let in (" outputs ") }"

static const struct {
    const char *text; /* whose last equation it is */
    uint32_t body;    /* which nested graph gives the results */
    tow__region_form form;
} cases[] = {
    {"{ lambda ; x:f32[2]. let y:f32[2] = call[name=\"f\" " BODY("a:f32[2]", "a") "] x in (y) }",
     0,
     {.branches = 1, .length = 1}},
    {"{ lambda ; x:f32[2]. let y:f32[2] = remat[policy=\"nothing\" differentiated=false " BODY("a:f32[2]",
                                                                                               "a") "] x in (y) }",
     0,
     {.branches = 1, .length = 1}},
    {"{ lambda ; c:f32[] k:f32[2] x:f32[7]. let y:f32[2] z:f32[7] = scan[length=7 reverse=true consts=1 carry=1 " BODY(
         "c:f32[] k:f32[2] x:f32[]", "k, x") "] c k x in (y, z) }",
     0,
     {.branches = 1, .repeats = true, .consts = 1, .carry = 1, .reverse = true, .length = 7}},
    {"{ lambda ; i:i32[] x:f32[2]. let y:f32[2] = cond[branches=({ lambda ; a:f32[2]. let in (a) } "
     "{ lambda ; a:f32[2]. let in (a) } "
     "{ lambda ; a:f32[2]. let in (a) })] i x in (y) }",
     0,
     {.lead = 1, .branches = 3, .length = 1}},
    {"{ lambda ; p:bool[] x:f32[2]. let y:f32[2] = while[max_iterations=5 consts=1 condition={ lambda ; p:bool[] "
     "x:f32[2]. let in (p) } " BODY("p:bool[] x:f32[2]", "x") "] p x in (y) }",
     1,
     {.conditions = 1, .branches = 1, .repeats = true, .consts = 1, .carry = 1, .length = TOW__DATA_DECIDE, .most = 5}},
    {"{ lambda ; n:i32[] x:f32[2]. let y:f32[2] = fori[max_iterations=9 reverse=true consts=0 " BODY(
         "x:f32[2] i:i32[]", "x") "] n x in (y) }",
     0,
     {.lead = 1,
      .branches = 1,
      .repeats = true,
      .carry = 1,
      .counts = true,
      .reverse = true,
      .length = TOW__DATA_DECIDE,
      .most = 9}},
    {"{ lambda ; x:f32[2]. let y:f32[2] = custom_jvp[name=\"f\" " BODY(
         "a:f32[2]", "a") " rule={ lambda ; a:f32[2] b:f32[2]. let in (a, b) }] x in (y) }",
     0,
     {.branches = 1, .length = 1}},
};

static void test_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_graph *g;
        tow__region_form found, expected = cases[i].form;
        OK(tow_graph_parse(ctx, cases[i].text, &g));
        const tow__equation *e = &g->equations[g->n_equations - 1];
        assert_true(tow__region_of(e, &found));
        assert_ptr_equal(found.body, tow__nested(e->primitive, e->params, cases[i].body));
        assert_int_equal(found.lead, expected.lead);
        assert_int_equal(found.conditions, expected.conditions);
        assert_int_equal(found.branches, expected.branches);
        assert_int_equal(found.repeats, expected.repeats);
        assert_int_equal(found.consts, expected.consts);
        assert_int_equal(found.carry, expected.carry);
        assert_int_equal(found.counts, expected.counts);
        assert_int_equal(found.reverse, expected.reverse);
        assert_false(found.stops);
        assert_int_equal(found.length, expected.length);
        assert_int_equal(found.most, expected.most);
        tow_graph_release(g);
    }
}

/* Every primitive with graphs that passes walk through says how it uses them; no other one has a form. */
static void test_every_region_has_a_form(void **state)
{
    (void)state;
    for (size_t i = 0; i < tow__primitive_count; i++) {
        const tow_primitive *p = tow__primitives[i];
        bool graphs = false;
        for (const tow__param *q = p->params; q && q->name; q++)
            graphs |= q->kind == TOW__P_GRAPH || q->kind == TOW__P_GRAPHS;
        if (p->kind == TOW__REGION) assert_non_null(p->region);
        if (p->region) assert_true(graphs && p->region->form);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_every_region_has_a_form),
    };
    return cmocka_run_group_tests_name("regions", tests, setup, teardown);
}

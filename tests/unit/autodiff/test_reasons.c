/* Reasons of residuals: the line, the rule that asks, what a policy answers, readers, iterations, and what the backward
 * pass makes again. Expectations are worked out from the derivative rules in docs/residuals.md.
 * Tests transformations/residuals.c, transformations/readers.c, transformations/made_again.c.
 * Tests transformations/residuals_text.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/autodiff.h"
#include "tow/control.h"
#include "tow/ops.h"

static tow_graph *parse(const char *text)
{
    tow_graph *g;
    OK(tow_graph_parse(ctx, text, &g));
    return g;
}

static tow_residuals residuals_of(const char *text)
{
    tow_residuals list;
    tow_graph *g = parse(text);
    OK(tow_saved_residuals(g, 0, NULL, &list));
    tow_graph_release(g);
    return list; /* it needs the graph no more */
}

static void expect_text(const char *found, const char *expected)
{
    if (!expected)
        assert_null(found);
    else
        assert_string_equal(found, expected);
}

/* "cos/sin again, sin/sin again, mul/tanh": readers with the rules that recorded them. */
static void expect_readers(const tow_residual *r, const char *expected)
{
    char found[256] = "";
    for (size_t i = 0; i < r->n_readers; i++) {
        const size_t n = strlen(found);
        const tow_residual_reader *reader = &r->readers[i];
        snprintf(found + n, sizeof found - n, "%s%s/%s%s", i ? ", " : "", reader->what,
                 reader->rule ? reader->rule : "none", reader->again ? " again" : "");
    }
    assert_string_equal(found, expected);
}

static const char region[] = "{ lambda ; x:f32[8]\"x\" w:f32[8]\"w\". let\n"
                             "    a:f32[8] = mul x w\n"
                             "    b:f32[8] = remat[policy=\"names:t\" body={ lambda ; a:f32[8]. let\n"
                             "        c:f32[8] = tanh a\n"
                             "        d:f32[8] = name[name=\"t\"] c\n"
                             "        e:f32[8] = sin d\n"
                             "        f:f32[8] = mul e e\n"
                             "      in (f) }] a\n"
                             "    s:f32[] = reduce_sum[axes=(0)] b\n"
                             "  in (s) }\n";

/* t is kept by its name; sin t and cos t, which the rules of mul and of sin read, are made again from it. */
static void policies_answer(void **state)
{
    (void)state;
    tow_residuals list = residuals_of(region);
    assert_int_equal(list.count, 3);
    expect_text(list.items[0].what, "x");
    expect_readers(&list.items[0], "mul/mul");
    const tow_residual *t = &list.items[2];
    assert_int_equal(t->kind, TOW_RESIDUAL_NAMED);
    assert_int_equal(t->line, 5);
    assert_int_equal(t->iterations, 1);
    expect_text(t->policy, "names:t");
    assert_int_equal(t->verdict, TOW_MUST_SAVE);
    expect_text(t->rule, "tanh");
    expect_readers(t, "cos/sin again, sin/sin again, mul/tanh");
    assert_int_equal(t->readers[2].line, 4);
    assert_false(t->plan.planned);

    assert_int_equal(list.again_count, 2);
    expect_text(list.again[0].what, "cos");
    expect_text(list.again[1].what, "sin");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(list.again[i].line, 6);
        assert_int_equal(list.again[i].bytes, 32);
        expect_text(list.again[i].policy, "names:t");
        assert_int_equal(list.again[i].verdict, TOW_PREFER_RECOMPUTE);
    }
    expect_readers(&list.again[0], "mul/sin");
    expect_readers(&list.again[1], "mul/mul");
    tow_residuals_free(&list);
}

/* The body keeps its carry, for w, and its result, for tanh: five rows of 32 bytes each. */
static void loops_stack(void **state)
{
    (void)state;
    tow_residuals list = residuals_of("{ lambda ; x:f32[8]\"x\" w:f32[5,8]\"w\". let\n"
                                      "    y:f32[8] = scan[length=5 reverse=false consts=0 carry=1\n"
                                      "      body={ lambda ; h:f32[8] w:f32[8]. let\n"
                                      "        a:f32[8] = mul h w\n"
                                      "        b:f32[8] = tanh a\n"
                                      "      in (b) }] x w\n"
                                      "    s:f32[] = reduce_sum[axes=(0)] y\n"
                                      "  in (s) }\n");
    assert_int_equal(list.count, 3);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(list.items[i].iterations, 5);
        assert_int_equal(list.items[i].bytes, 160);
        assert_null(list.items[i].policy);
        assert_int_equal(list.items[i].verdict, TOW_PREFER_SAVE);
    }
    expect_text(list.items[1].rule, "mul"); /* the carry, for the cotangent of w */
    expect_readers(&list.items[1], "mul/mul");
    assert_int_equal(list.items[1].readers[0].line, 4);
    expect_text(list.items[2].rule, "tanh");
    expect_readers(&list.items[2], "mul/tanh");
    assert_int_equal(list.items[2].line, 5);
    assert_int_equal(list.again_count, 0);
    tow_residuals_free(&list);
}

/* In a loop whose body is a region, the values of an iteration are made again: bytes of all of them. */
static void loops_repeat(void **state)
{
    (void)state;
    tow_residuals list = residuals_of("{ lambda ; x:f32[8]\"x\". let\n"
                                      "    y:f32[8] = scan[length=5 reverse=false consts=0 carry=1\n"
                                      "      body={ lambda ; h:f32[8]. let\n"
                                      "        r:f32[8] = remat[policy=\"nothing\" body={ lambda ; h:f32[8]. let\n"
                                      "            a:f32[8] = sin h b:f32[8] = tanh a in (b) }] h\n"
                                      "      in (r) }] x\n"
                                      "    s:f32[] = reduce_sum[axes=(0)] y\n"
                                      "  in (s) }\n");
    assert_int_equal(list.count, 1); /* the carry */
    assert_int_equal(list.items[0].iterations, 5);
    assert_int_equal(list.again_count, 3);
    static const char *const again[] = {"cos", "sin", "tanh"};
    for (size_t i = 0; i < 3; i++) {
        expect_text(list.again[i].what, again[i]);
        assert_int_equal(list.again[i].iterations, 5);
        assert_int_equal(list.again[i].bytes, 160);
        expect_text(list.again[i].policy, "nothing");
    }
    tow_residuals_free(&list);
}

static void layers(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_trace_push_scope(t, "mlp");
    tow_value h = tow_tanh(tow_mul(in[0], in[1]));
    tow_trace_pop_scope(t);
    out[0] = tow_reduce_sum(h, 1, (int[]){0});
}

/* Traced in C, a reader has the scope of the operation whose rule it is of. */
static void readers_have_scopes(void **state)
{
    (void)state;
    const int64_t dims[] = {8};
    const tow_type types[] = {tow_make_type(TOW_F32, 1, dims), tow_make_type(TOW_F32, 1, dims)};
    tow_graph *g;
    tow_residuals list;
    OK(tow_trace_function(ctx, layers, NULL, 2, types, NULL, 1, &g));
    OK(tow_saved_residuals(g, 0, NULL, &list));
    const tow_residual *h = &list.items[2];
    expect_text(h->what, "tanh");
    expect_text(h->readers[0].scope, "mlp");
    expect_text(h->readers[0].rule, "tanh");
    assert_int_equal(h->line, 0);
    char text[4096];
    assert_in_range(tow_residuals_reasons(&list, text, sizeof text), 1, sizeof text - 1);
    assert_non_null(strstr(text, "    asked for    by the derivative rule of tanh\n"
                                 "    kept         no policy was asked: all that is read is kept\n"
                                 "    read by      mul of the rule of tanh"));
    assert_non_null(strstr(text, "(mlp)\n"));
    tow_residuals_free(&list);
    tow_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(policies_answer), cmocka_unit_test(loops_stack),
                                       cmocka_unit_test(loops_repeat), cmocka_unit_test(readers_have_scopes)};
    return cmocka_run_group_tests_name("reasons", tests, setup, teardown);
}

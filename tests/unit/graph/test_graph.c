/* Tracing with closure conversion, dead code, common subexpressions, the checker, and the textual
 * form: round trips, hostile text, and every allocation failing in turn.
 * Tests builder.c, check.c, cse.c, dce.c, effects.c, function.c, graph.c, iteration.c, params.c, parse.c, print.c,
 * read_params.c, reader.c, scalar_text.c, trace.c. */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "src/graph/builder.h"
#include "tests/unit/support/tracing.h"
#include "tow/autodiff.h"
#include "tow/numpy.h"
#include "tow/ops.h"

static tow_graph *parse(const char *text)
{
    tow_graph *g = NULL;
    if (tow_graph_parse(ctx, text, &g) != TOW_OK) print_error("%s\n", tow_context_error(ctx));
    assert_non_null(g);
    assert_int_equal(tow_graph_check(g), TOW_OK);
    return g;
}

static void assert_text(const tow_graph *g, const char *expected)
{
    static char text[1 << 16];
    assert_true(tow_graph_text(g, text, sizeof text) < sizeof text);
    assert_string_equal(text, expected);
}

/* ---- tracing --------------------------------------------------------------------------------------------------- */

static void two_outputs(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_trace_push_scope(t, "outer");
    tow_value s = tow_sin(in[0]);
    tow_trace_push_scope(t, "inner");
    out[0] = tow_add(s, in[1]);
    tow_trace_pop_scope(t);
    tow_trace_pop_scope(t);
    out[1] = in[1];
}

static void test_trace(void **state)
{
    (void)state;
    tow_graph *g = NULL;
    const char *names[] = {"x", NULL};
    assert_int_equal(tow_trace_function(ctx, two_outputs, NULL, 2, (tow_type[]){vector(3), vector(3)}, names, 2, &g),
                     TOW_OK);
    assert_int_equal(tow_graph_input_count(g), 2);
    assert_int_equal(tow_graph_output_count(g), 2);
    assert_int_equal(tow_graph_equation_count(g), 2);
    assert_string_equal(tow_graph_input_name(g, 0), "x");
    assert_null(tow_graph_input_name(g, 1));
    assert_int_equal(tow_graph_primitive_count(g, "sin"), 1);
    assert_int_equal(tow_graph_primitive_count(g, NULL), 2);
    assert_string_equal(g->equations[0].source.scope, "outer");
    assert_string_equal(g->equations[1].source.scope, "outer/inner");
    assert_non_null(strstr(g->equations[0].source.here, "test_graph.c:"));
    assert_text(g, "{ lambda ; a:f32[3]\"x\" b:f32[3]. let\n"
                   "    c:f32[3] = sin a\n"
                   "    d:f32[3] = add c b\n"
                   "  in (d, b) }\n");
    tow_graph_release(g);
}

/* Two levels: the inner body uses w (depth 0), u (depth 1) and w again; the middle one uses v itself. */
static void innermost(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    const tow_value *outer = user;
    tow_value u = tow_mul(in[0], outer[2]); /* one at a time: C does not order the operands of a call */
    out[0] = tow_mul(u, tow_mul(outer[0], outer[2]));
}

static void middle(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_value *outer = user;
    tow_value seen[3] = {outer[0], outer[1], tow_cos(in[0])}, inner;
    tow_call_function(t, innermost, seen, "inner", 1, in, 1, &inner);
    out[0] = tow_add(inner, outer[1]);
}

static void closures(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    const tow_value outer[2] = {tow_exp(in[1]), in[2]};
    tow_call_function(t, middle, (void *)(uintptr_t)outer, "middle", 1, in, 1, out);
}

static void test_closure_conversion(void **state)
{
    (void)state;
    tow_graph *g = trace(closures, 3, 1);
    /* middle captures exp(b) (for inner) and then c; inner captures cos, then the exp that middle captured. */
    assert_text(g, "{ lambda ; a:f32[3] b:f32[3] c:f32[3]. let\n"
                   "    d:f32[3] = exp b\n"
                   "    e:f32[3] = call[name=\"middle\"\n"
                   "      body={ lambda ; a:f32[3] b:f32[3] c:f32[3]. let\n"
                   "          d:f32[3] = cos c\n"
                   "          e:f32[3] = call[name=\"inner\"\n"
                   "            body={ lambda ; a:f32[3] b:f32[3] c:f32[3]. let\n"
                   "                d:f32[3] = mul c a\n"
                   "                e:f32[3] = mul b a\n"
                   "                f:f32[3] = mul d e\n"
                   "              in (f) }] d a c\n"
                   "          f:f32[3] = add e b\n"
                   "        in (f) }] d c a\n"
                   "  in (e) }\n");
    assert_int_equal(tow_graph_primitive_count(g, "mul"), 3);
    assert_int_equal(tow_graph_primitive_count(g, NULL), 8);
    tow_graph_release(g);
}

/* A body that hands an outer value and its own input through: captures come first, also those that are outputs only. */
static void test_outputs_are_captured(void **state)
{
    (void)state;
    tow_trace *t = tow__trace_begin(ctx);
    const tow_value a = tow__input(t, vector(3), "a"), b = tow__input(t, vector(4), "b");
    tow__push(t);
    const tow_value outputs[2] = {tow__input(t, vector(3), NULL), b};
    size_t n = 0;
    tow_value *captures, results[2];
    tow__call_params params = {.body = tow__pop(t, 2, outputs, &n, &captures)};
    assert_non_null(params.body);
    assert_int_equal(n, 1);
    assert_int_equal(captures[0].id, b.id);
    tow__bind(t, tow__primitive_find("call", 4), &params, 2, (tow_value[]){captures[0], a}, 2, results);
    tow_graph_release(params.body);
    tow_graph *g = NULL;
    assert_int_equal(tow__trace_end(t, 2, results, false, &g), TOW_OK);
    assert_text(g, "{ lambda ; a:f32[3]\"a\" b:f32[4]\"b\". let\n"
                   "    c:f32[3] d:f32[4] = call[name=none\n"
                   "      body={ lambda ; a:f32[4] b:f32[3]. let\n"
                   "        in (b, a) }] b a\n"
                   "  in (c, d) }\n");
    tow_graph_release(g);
}

static void inline_wrongly(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const int64_t shape[2] = {3, 1};
    tow_value reshaped[2] = {in[0], tow_reshape(in[1], 2, shape)};
    tow_inline(t, user, reshaped, out);
}

static void inline_twice(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value middle_values[2];
    tow_inline(t, user, in, middle_values);
    tow_inline(t, user, middle_values, out);
}

static void test_inline(void **state)
{
    (void)state;
    tow_graph *g = trace(two_outputs, 2, 2), *h;
    const tow_type types[2] = {vector(3), vector(3)};
    assert_int_equal(tow_trace_function(ctx, inline_twice, g, 2, types, NULL, 2, &h), TOW_OK);
    assert_text(h, "{ lambda ; a:f32[3] b:f32[3]. let\n    c:f32[3] = sin a\n    d:f32[3] = add c b\n"
                   "    e:f32[3] = sin d\n    f:f32[3] = add e b\n  in (f, b) }\n");
    assert_string_equal(h->equations[3].source.scope, "outer/inner"); /* sources come along */
    tow_graph_release(h);
    assert_int_equal(tow_trace_function(ctx, inline_wrongly, g, 2, types, NULL, 2, &h), TOW_TYPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "expected f32[3], found f32[3,1]"));
    tow_graph_release(g);
}

static void many_values(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    (void)user;
    out[0] = in[0];
    for (int i = 0; i < 20000; i++) out[0] = tow_sin(out[0]);
}

static void test_large_graph(void **state)
{
    (void)state;
    tow_graph *g = trace(many_values, 1, 1), *h;
    assert_int_equal(tow_graph_equation_count(g), 20000);
    size_t size = tow_graph_text(g, NULL, 0) + 1;
    char *text = malloc(size), *again = malloc(size);
    assert_int_equal(tow_graph_text(g, text, size), size - 1); /* names run through "in", which is reserved */
    h = parse(text);
    assert_int_equal(tow_graph_text(h, again, size), size - 1);
    assert_string_equal(text, again);
    free(text);
    free(again);
    tow_graph_release(h);
    tow_graph_release(g);
}

/* ---- the checker ----------------------------------------------------------------------------------------------- */

static void test_checker_sees_damage(void **state)
{
    (void)state;
    tow_graph *g = parse("{ lambda ; a:f32[3] b:f32[4]. let c:f32[3] = sin a d:f32[3] = cos c in (d) }");
    uint32_t c = g->equations[0].out[0], d = g->equations[1].out[0];
    g->equations[0].in[0] = d; /* use before definition */
    assert_int_equal(tow_graph_check(g), TOW_INTERNAL_ERROR);
    assert_non_null(strstr(tow_context_error(ctx), "equation 0 (sin)"));
    g->equations[0].in[0] = 1; /* b: the result would have another type */
    assert_int_equal(tow_graph_check(g), TOW_INTERNAL_ERROR);
    g->equations[0].in[0] = 99;
    assert_int_equal(tow_graph_check(g), TOW_INTERNAL_ERROR);
    g->equations[0].in[0] = 0;
    g->equations[1].out[0] = c; /* defined twice */
    assert_int_equal(tow_graph_check(g), TOW_INTERNAL_ERROR);
    g->equations[1].out[0] = d;
    g->outputs[0] = 99;
    assert_int_equal(tow_graph_check(g), TOW_INTERNAL_ERROR);
    g->outputs[0] = d;
    g->vars[d].type.dims[0] = 5;
    assert_int_equal(tow__verify(g, "a test"), TOW_INTERNAL_ERROR);
    assert_non_null(strstr(tow_context_error(ctx), "a test made a malformed graph"));
    g->vars[d].type.dims[0] = 3;
    g->n_equations = 1; /* d is defined nowhere */
    assert_int_equal(tow_graph_check(g), TOW_INTERNAL_ERROR);
    g->n_equations = 2;
    assert_int_equal(tow_graph_check(g), TOW_OK);
    tow_graph_release(g);
}

#include "tests/unit/support/graph_passes.h"
#include "tests/unit/support/graph_texts.h"

/* Results of regions written over their operands. */
static void twice(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add(in[0], in[0]);
}

static void apart(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_value v[4] = {in[0]};
    tow_remat_function(t, twice, NULL, NULL, 1, &v[0], 1, &v[1]);
    tow_call_function(t, twice, NULL, "twice", 1, &v[1], 1, &v[2]);
    tow_scan_function(t, twice, NULL, &TOW_SCAN_OPTIONS(.length = 3, .has_length = true), 1, &v[2], 0, NULL, 0, &v[3],
                      NULL);
    out[0] = v[3];
}

static void in_place(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_value v = in[0];
    tow_remat_function(t, twice, NULL, NULL, 1, &v, 1, &v);
    tow_call_function(t, twice, NULL, "twice", 1, &v, 1, &v);
    tow_scan_function(t, twice, NULL, &TOW_SCAN_OPTIONS(.length = 3, .has_length = true), 1, &v, 0, NULL, 0, &v, NULL);
    out[0] = v;
}

static void add_element(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add(in[0], in[1]);
}

/* Sums in[0] over its leading axis with the options at `user`. */
static void sum_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value zero = tow_scalar(t, TOW_F32, 0);
    tow_scan_function(t, add_element, NULL, user, 1, &zero, 1, in, 0, out, NULL);
}

static void counted_loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_scan_function(t, twice, NULL, user, 1, in, 0, NULL, 0, out, NULL);
}

/* A length counts whether has_length says so or not, which is for length 0. */
static void test_scan_lengths(void **state)
{
    (void)state;
    static const struct {
        tow_scan_options options;
        tow_status with_xs, without; /* xs of length 3 */
    } cases[] = {{{0}, TOW_OK, TOW_INVALID_ARGUMENT},
                 {{.length = 3}, TOW_OK, TOW_OK},
                 {{.length = 3, .has_length = true}, TOW_OK, TOW_OK},
                 {{.length = 2}, TOW_SHAPE_MISMATCH, TOW_OK},
                 {{.has_length = true}, TOW_SHAPE_MISMATCH, TOW_OK},
                 {{.length = -1}, TOW_OK, TOW_INVALID_ARGUMENT},
                 {{.length = -1, .has_length = true}, TOW_INVALID_ARGUMENT, TOW_INVALID_ARGUMENT},
                 {{.length = -2}, TOW_INVALID_ARGUMENT, TOW_INVALID_ARGUMENT}};
    const tow_type type = vector(3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int with = 0; with < 2; with++) {
            tow_scan_options options = cases[i].options;
            options.size = sizeof options;
            tow_graph *g;
            assert_int_equal(tow_trace_function(ctx, with ? sum_loop : counted_loop, &options, 1, &type, NULL, 1, &g),
                             with ? cases[i].with_xs : cases[i].without);
            tow_graph_release(g);
        }
}

static void test_results_over_operands(void **state)
{
    (void)state;
    static char text[1 << 12];
    tow_graph *g = trace(apart, 1, 1), *h = trace(in_place, 1, 1);
    assert_true(tow_graph_text(g, text, sizeof text) < sizeof text);
    assert_text(h, text);
    tow_graph_release(h);
    tow_graph_release(g);
}

int main(void)
{
    setenv("TOW_CHECK", "1", 1); /* what passes make is checked, also where nobody else sets it */
    const struct CMUnitTest tests[] = {
        TEST(test_trace),
        TEST(test_closure_conversion),
        TEST(test_scan_lengths),
        TEST(test_results_over_operands),
        TEST(test_outputs_are_captured),
        TEST(test_inline),
        TEST(test_large_graph),
        TEST(test_dce),
        TEST(test_dce_of_scan),
        TEST(test_dce_of_chosen_outputs),
        TEST(test_dce_of_deep_scans),
        TEST(test_cse),
        TEST(test_cse_keeps_phases_apart),
        TEST(test_checker_sees_damage),
        TEST(test_round_trips),
        TEST(test_scalars),
        TEST(test_reading_is_lenient),
        TEST(test_locale_does_not_matter),
        TEST(test_parse_errors),
        TEST(test_truncated_text),
        TEST(test_damaged_text),
        TEST(test_deep_nesting),
        TEST(test_every_allocation_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Tracing with closure conversion, errors while tracing, dead code, common subexpressions, the checker, and the textual
 * form: round trips, hostile text, and every allocation failing in turn. */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "counting_allocator.h"
#include "src/graph/builder.h"
#include "tow/autodiff.h"
#include "tow/ops.h"

static counting counted;
static tow_context *ctx;

static int setup(void **state)
{
    (void)state;
    tow_context_options options = counting_options(&counted, -1);
    return tow_context_create(&options, &ctx) == TOW_OK ? 0 : -1;
}

/* Nothing may be left, whatever the test did. */
static int teardown(void **state)
{
    (void)state;
    tow_context_destroy(ctx);
    if (counted.blocks != 0) print_error("%ld blocks leaked\n", counted.blocks);
    return counted.blocks == 0 && counted.wrong_sizes == 0 ? 0 : -1;
}

static tow_type vector(int64_t n) { return tow_make_type(TOW_F32, 1, &n); }

static tow_graph *trace(tow_function function, size_t n_inputs, size_t n_outputs)
{
    tow_graph *g = NULL;
    const tow_type types[] = {vector(3), vector(3), vector(3)};
    if (tow_trace_function(ctx, function, NULL, n_inputs, types, NULL, n_outputs, &g) != TOW_OK)
        print_error("%s\n", tow_context_error(ctx));
    assert_non_null(g);
    assert_int_equal(tow_graph_check(g), TOW_OK);
    return g;
}

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

/* ---- tracing -------------------------------------------------------------------------------------------------------------- */

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
    assert_int_equal(tow_trace_function(ctx, two_outputs, NULL, 2, (tow_type[]){vector(3), vector(3)}, names, 2, &g), TOW_OK);
    assert_int_equal(tow_graph_inputs(g), 2);
    assert_int_equal(tow_graph_outputs(g), 2);
    assert_int_equal(tow_graph_equations(g), 2);
    assert_string_equal(tow_graph_input_name(g, 0), "x");
    assert_null(tow_graph_input_name(g, 1));
    assert_int_equal(tow_graph_count(g, "sin"), 1);
    assert_int_equal(tow_graph_count(g, NULL), 2);
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
    tow_call(t, innermost, seen, "inner", 1, in, 1, &inner);
    out[0] = tow_add(inner, outer[1]);
}

static void closures(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    const tow_value outer[2] = {tow_exp(in[1]), in[2]};
    tow_call(t, middle, (void *)(uintptr_t)outer, "middle", 1, in, 1, out);
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
    assert_int_equal(tow_graph_count(g, "mul"), 3);
    assert_int_equal(tow_graph_count(g, NULL), 8);
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

/* ---- errors while tracing -------------------------------------------------------------------------------------------------- */

static tow_value escaped, foreign;

static void leak_value(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    (void)user;
    escaped = tow_sin(in[0]);
    out[0] = in[0];
}

static void use_escaped(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_call(t, leak_value, NULL, "f", 1, in, 1, out);
    out[0] = tow_add(out[0], escaped);
}

static void never_written(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    (void)user;
    out[0] = in[0];
}

static void from_another_trace(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    (void)user;
    out[0] = tow_add(in[0], foreign);
}

static void output_of_another_trace(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    (void)in;
    (void)user;
    out[0] = foreign;
}

static void wrong_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_trace_push_scope(t, "mlp");
    const int64_t shape[1] = {4};
    out[0] = tow_sin(tow_reshape(in[0], 1, shape));
    tow_trace_fail(t, TOW_NOT_FOUND, "a later error");
    tow_trace_pop_scope(t);
}

static void wrong_operation(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_trace_push_scope(t, "block");
    tow_call(t, wrong_body, NULL, "f", 1, in, 1, out);
    tow_trace_pop_scope(t);
    out[0] = tow_exp(out[0]);
}

static void fails_itself(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    out[0] = in[0];
    tow_trace_push_scope(t, "layer");
    tow_trace_fail(t, TOW_UNSUPPORTED, "width %d", 7);
    tow_trace_fail(t, TOW_NOT_FOUND, "ignored");
}

static void too_many_pops(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    out[0] = in[0];
    tow_trace_pop_scope(t);
}

static void test_trace_errors(void **state)
{
    (void)state;
    static const struct {
        tow_function function;
        size_t n_outputs;
        tow_status status;
        const char *parts[5];
    } cases[] = {
        {use_escaped, 1, TOW_INVALID_ARGUMENT, {"a value escaped from the body it was traced in", "make it an output"}},
        {never_written, 2, TOW_INVALID_ARGUMENT, {"output 1 was never written"}},
        {from_another_trace, 1, TOW_INVALID_ARGUMENT, {"another trace"}},
        {output_of_another_trace, 1, TOW_INVALID_ARGUMENT, {"another trace"}},
        {wrong_operation, 1, TOW_SHAPE_MISMATCH, {"test_graph.c:", "block/mlp", "reshape", "f32[3]", "4"}},
        {fails_itself, 1, TOW_UNSUPPORTED, {"layer: width 7"}},
        {too_many_pops, 1, TOW_INVALID_ARGUMENT, {"never pushed"}},
    };
    tow_trace *other = tow__trace_begin(ctx);
    foreign = tow__input(other, vector(3), NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_graph *g = NULL;
        const tow_type type = vector(3);
        tow_status status = tow_trace_function(ctx, cases[i].function, NULL, 1, &type, NULL, cases[i].n_outputs, &g);
        assert_null(g);
        assert_int_equal(status, cases[i].status);
        assert_int_equal(tow_context_status(ctx), status);
        for (size_t j = 0; j < 5 && cases[i].parts[j]; j++)
            if (!strstr(tow_context_error(ctx), cases[i].parts[j]))
                fail_msg("case %zu: '%s' is not in: %s", i, cases[i].parts[j], tow_context_error(ctx));
    }
    tow__trace_abandon(other);
}

static void test_error_survives_other_calls(void **state)
{
    (void)state;
    tow_trace *t = tow__trace_begin(ctx);
    tow_value x = tow__input(t, vector(3), NULL), y;
    tow_trace_fail(t, TOW_NOT_FOUND, "the first");
    tow_graph *g = trace(two_outputs, 2, 2); /* clears the context's error */
    tow_graph_release(g);
    y = tow_sin(x);
    assert_true(tow_is_null(y));
    assert_true(tow_is_null(tow_sin(y)));
    assert_int_equal(tow__trace_end(t, 1, &y, true, &g), TOW_NOT_FOUND);
    assert_string_equal(tow_context_error(ctx), "the first");
}

static void test_malformed_input_type(void **state)
{
    (void)state;
    tow_graph *g;
    tow_type type = vector(-3);
    assert_int_equal(tow_trace_function(ctx, never_written, NULL, 1, &type, NULL, 1, &g), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "f32[-3]"));
    type = (tow_type){.dtype = TOW_F32, .rank = 100};
    assert_int_equal(tow_trace_function(ctx, never_written, NULL, 1, &type, NULL, 1, &g), TOW_INVALID_ARGUMENT);
}

/* Bodies pushed after an error are popped without harm; bodies left open are an error. */
static void test_unbalanced_bodies(void **state)
{
    (void)state;
    size_t n;
    tow_value *captures;
    tow_graph *g;
    tow_trace *t = tow__trace_begin(ctx);
    tow__push(t);
    tow_trace_fail(t, TOW_NOT_FOUND, "stop");
    tow__push(t);
    assert_null(tow__pop(t, 0, NULL, &n, &captures));
    assert_null(tow__pop(t, 0, NULL, &n, &captures));
    assert_int_equal(tow__trace_end(t, 0, NULL, false, &g), TOW_NOT_FOUND);
    t = tow__trace_begin(ctx);
    tow__push(t);
    assert_int_equal(tow__trace_end(t, 0, NULL, false, &g), TOW_INTERNAL_ERROR);
    t = tow__trace_begin(ctx);
    assert_null(tow__pop(t, 0, NULL, &n, &captures));
    assert_int_equal(tow__trace_end(t, 0, NULL, false, &g), TOW_INTERNAL_ERROR);
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
    assert_int_equal(tow_graph_equations(g), 20000);
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

/* ---- dead code -------------------------------------------------------------------------------------------------------------- */

static void expect_dce(const char *text, const char *expected)
{
    tow_graph *g = parse(text), *h = NULL;
    assert_int_equal(tow_graph_dce(g, &h), TOW_OK);
    assert_text(h, expected);
    tow_graph_release(h);
    tow_graph_release(g);
}

static void test_dce(void **state)
{
    (void)state;
    expect_dce("{ lambda ; a:f32[3] b:f32[3]\"kept\". let c:f32[3] = sin a d:f32[3] = cos c e:f32[3] = exp c in (e) }",
               "{ lambda ; a:f32[3] b:f32[3]\"kept\". let\n    c:f32[3] = sin a\n    d:f32[3] = exp c\n  in (d) }\n");
    /* Of the body, the second output, what it needs and the operand b go. */
    expect_dce("{ lambda ; a:f32[3] b:f32[3]. let\n"
               "  c:f32[3] d:f32[3] = call[name=\"f\" body={ lambda ; a:f32[3] b:f32[3]. let\n"
               "    c:f32[3] = sin a d:f32[3] = cos b in (c, d) }] a b\n"
               "  in (c) }",
               "{ lambda ; a:f32[3] b:f32[3]. let\n"
               "    c:f32[3] = call[name=\"f\"\n"
               "      body={ lambda ; a:f32[3]. let\n"
               "          b:f32[3] = sin a\n"
               "        in (b) }] a\n"
               "  in (c) }\n");
    /* Two levels at once, in a remat. */
    expect_dce("{ lambda ; a:f32[3]. let\n"
               "  c:f32[3] d:f32[3] = remat[policy=\"dots\" body={ lambda ; a:f32[3]. let\n"
               "    e:f32[3] f:f32[3] = call[name=\"g\" body={ lambda ; a:f32[3]. let b:f32[3] = sin a c:f32[3] = cos a\n"
               "      in (b, c) }] a in (e, f) }] a\n"
               "  in (d) }",
               "{ lambda ; a:f32[3]. let\n"
               "    b:f32[3] = remat[policy=\"dots\" differentiated=false\n"
               "      body={ lambda ; a:f32[3]. let\n"
               "          b:f32[3] = call[name=\"g\"\n"
               "            body={ lambda ; a:f32[3]. let\n"
               "                b:f32[3] = cos a\n"
               "              in (b) }] a\n"
               "        in (b) }] a\n"
               "  in (b) }\n");
}

/* Carries p <- p + q, q <- q * k, r <- r * u; y = x + l. Wanted is p alone: q feeds p, so q and its constant k stay; r with
 * its constant u, and y with x and l, go. */
static void test_dce_of_scan(void **state)
{
    (void)state;
    expect_dce("{ lambda ; k:f32[] u:f32[] l:f32[] p:f32[] q:f32[] r:f32[] x:f32[5]. let\n"
               "  a:f32[] b:f32[] c:f32[] y:f32[5] = scan[length=5 reverse=true consts=3 carry=3\n"
               "    body={ lambda ; k:f32[] u:f32[] l:f32[] p:f32[] q:f32[] r:f32[] x:f32[]. let\n"
               "      p2:f32[] = add p q\n"
               "      q2:f32[] = mul q k\n"
               "      r2:f32[] = mul r u\n"
               "      y:f32[] = add x l\n"
               "    in (p2, q2, r2, y) }] k u l p q r x\n"
               "  in (a) }",
               "{ lambda ; a:f32[] b:f32[] c:f32[] d:f32[] e:f32[] f:f32[] g:f32[5]. let\n"
               "    h:f32[] i:f32[] = scan[length=5 reverse=true consts=1 carry=2\n"
               "      body={ lambda ; a:f32[] b:f32[] c:f32[]. let\n"
               "          d:f32[] = add b c\n"
               "          e:f32[] = mul c a\n"
               "        in (d, e) }] a d e\n"
               "  in (h) }\n");
    /* Only ys wanted: the carry that no y depends on goes, the one that is read stays although it is never written anew. */
    expect_dce("{ lambda ; p:f32[] q:f32[] x:f32[5]. let\n"
               "  a:f32[] b:f32[] y:f32[5] = scan[length=5 consts=0 carry=2\n"
               "    body={ lambda ; p:f32[] q:f32[] x:f32[]. let\n"
               "      q2:f32[] = add q x\n"
               "      y:f32[] = mul x p\n"
               "    in (p, q2, y) }] p q x\n"
               "  in (y) }",
               "{ lambda ; a:f32[] b:f32[] c:f32[5]. let\n"
               "    d:f32[] e:f32[5] = scan[length=5 reverse=false consts=0 carry=1\n"
               "      body={ lambda ; a:f32[] b:f32[]. let\n"
               "          c:f32[] = mul b a\n"
               "        in (a, c) }] a c\n"
               "  in (e) }\n");
}

static void test_dce_of_chosen_outputs(void **state)
{
    (void)state;
    tow_graph *g = parse("{ lambda ; a:f32[3]\"x\" b:f32[3]\"y\". let c:f32[3] = sin a d:f32[3] = cos b in (c, d, b) }"), *h;
    bool kept[2] = {true, true};
    assert_int_equal(tow__dce(g, (bool[]){false, true, false}, true, kept, &h), TOW_OK);
    assert_false(kept[0]);
    assert_true(kept[1]);
    assert_text(h, "{ lambda ; a:f32[3]\"y\". let\n    b:f32[3] = cos a\n  in (b) }\n");
    tow_graph_release(h);
    g->forward_equations = 1;
    assert_int_equal(tow__dce(g, (bool[]){true, false, true}, false, kept, &h), TOW_OK);
    assert_int_equal(tow_graph_inputs(h), 2);
    assert_int_equal(h->forward_equations, 1);
    assert_true(kept[0] && kept[1]);
    tow_graph_release(h);
    tow_graph_release(g);
}

/* 60 nested scans whose dead carry shows at the second look: marking must not take 2^60 steps. */
static void test_dce_of_deep_scans(void **state)
{
    (void)state;
    enum { DEEP = 60 };
    static char text[1 << 16];
    size_t at = 0;
    for (int i = 0; i < DEEP; i++)
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "{ lambda ; p:f32[] q:f32[]. let a:f32[] b:f32[] = scan[length=2 consts=0 carry=2 body=");
    at += (size_t)snprintf(text + at, sizeof text - at, "{ lambda ; p:f32[] q:f32[]. let c:f32[] = add p q in (c, q) }");
    for (int i = 0; i < DEEP; i++) at += (size_t)snprintf(text + at, sizeof text - at, "] p q in (%s) }", i < DEEP - 1 ? "a, b" : "a");
    tow_graph *g = parse(text), *h;
    assert_int_equal(tow_graph_dce(g, &h), TOW_OK);
    assert_int_equal(tow_graph_count(h, "scan"), DEEP);
    tow_graph_release(h);
    tow_graph_release(g);
}

/* ---- common subexpressions ---------------------------------------------------------------------------------------------------- */

static void expect_cse(const char *text, const char *expected)
{
    tow_graph *g = parse(text), *h = NULL;
    assert_int_equal(tow_graph_cse(g, &h), TOW_OK);
    assert_text(h, expected);
    tow_graph_release(h);
    tow_graph_release(g);
}

static void test_cse(void **state)
{
    (void)state;
    /* Chains merge; other parameters do not. */
    expect_cse("{ lambda ; a:f32[3]. let b:f32[3] = sin a c:f32[3] = sin a d:f32[3] = cos b e:f32[3] = cos c\n"
               "  f:f32[] = reduce_sum[axes=(0)] d g:f32[] = reduce_max[axes=(0)] e h:f32[3] = integer_pow[exponent=2] a\n"
               "  i:f32[3] = integer_pow[exponent=3] a in (f, g, h, i) }",
               "{ lambda ; a:f32[3]. let\n    b:f32[3] = sin a\n    c:f32[3] = cos b\n    d:f32[] = reduce_sum[axes=(0)] c\n"
               "    e:f32[] = reduce_max[axes=(0)] c\n    f:f32[3] = integer_pow[exponent=2] a\n"
               "    g:f32[3] = integer_pow[exponent=3] a\n  in (d, e, f, g) }\n");
    /* Constants merge bit for bit: 0 and -0 are two. */
    expect_cse("{ lambda ; . let a:f32[] = const[value=0.0] b:f32[] = const[value=-0.0] c:f32[] = const[value=0.0] in (a, b, c) }",
               "{ lambda ; . let\n    a:f32[] = const[value=0.0]\n    b:f32[] = const[value=-0.0]\n  in (a, b, a) }\n");
    /* Within the body, but not across its border. */
    expect_cse("{ lambda ; a:f32[3]. let b:f32[3] = sin a\n"
               "  c:f32[3] = remat[policy=none body={ lambda ; a:f32[3]. let b:f32[3] = sin a c:f32[3] = sin a d:f32[3] = mul b c\n"
               "    in (d) }] a in (b, c) }",
               "{ lambda ; a:f32[3]. let\n    b:f32[3] = sin a\n"
               "    c:f32[3] = remat[policy=none differentiated=false\n"
               "      body={ lambda ; a:f32[3]. let\n          b:f32[3] = sin a\n          c:f32[3] = mul b b\n        in (c) }] a\n"
               "  in (b, c) }\n");
    /* Equal regions merge; those with other policies do not. */
    tow_graph *g = parse("{ lambda ; a:f32[3]. let\n"
                         " b:f32[3] = remat[policy=\"dots\" body={ lambda ; a:f32[3]. let b:f32[3] = sin a in (b) }] a\n"
                         " c:f32[3] = remat[policy=\"dots\" body={ lambda ; a:f32[3]. let b:f32[3] = sin a in (b) }] a\n"
                         " d:f32[3] = remat[policy=\"nothing\" body={ lambda ; a:f32[3]. let b:f32[3] = sin a in (b) }] a\n"
                         " e:f32[3] = remat[policy=\"dots\" body={ lambda ; a:f32[3]. let b:f32[3] = cos a in (b) }] a\n"
                         "in (b, c, d, e) }"),
              *h;
    assert_int_equal(tow_graph_cse(g, &h), TOW_OK);
    assert_int_equal(tow_graph_count(h, "remat"), 3);
    assert_int_equal(h->outputs[0], h->outputs[1]);
    tow_graph_release(h);
    tow_graph_release(g);
}

static void test_cse_keeps_phases_apart(void **state)
{
    (void)state;
    tow_graph *g = parse("{ lambda ; a:f32[3]. let b:f32[3] = sin a c:f32[3] = sin a d:f32[3] = sin a e:f32[3] = sin a in (b, c, d, e) }"), *h;
    g->forward_equations = 2;
    assert_int_equal(tow_graph_cse(g, &h), TOW_OK);
    assert_int_equal(tow_graph_equations(h), 2);
    assert_int_equal(h->forward_equations, 1);
    tow_graph_release(h);
    tow_graph_release(g);
}

/* ---- the checker ---------------------------------------------------------------------------------------------------------------- */

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

/* ---- the textual form --------------------------------------------------------------------------------------------------------------- */

#include "graph_texts.h"

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_trace), TEST(test_closure_conversion), TEST(test_outputs_are_captured), TEST(test_trace_errors),
        TEST(test_error_survives_other_calls), TEST(test_malformed_input_type), TEST(test_unbalanced_bodies),
        TEST(test_inline), TEST(test_large_graph), TEST(test_dce), TEST(test_dce_of_scan),
        TEST(test_dce_of_chosen_outputs), TEST(test_dce_of_deep_scans), TEST(test_cse), TEST(test_cse_keeps_phases_apart),
        TEST(test_checker_sees_damage), TEST(test_round_trips), TEST(test_scalars), TEST(test_reading_is_lenient),
        TEST(test_locale_does_not_matter), TEST(test_parse_errors), TEST(test_truncated_text), TEST(test_damaged_text),
        TEST(test_deep_nesting), TEST(test_every_allocation_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

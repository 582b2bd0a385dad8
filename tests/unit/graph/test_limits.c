/* Limits of nesting, and what is printed at them: graphs, policies and layers are accepted up to a depth that the
 * reader reads and that small stacks bear, and refused beyond it with the depth and the limit. Regions refer to the
 * checkpoint names that they have, whether C or a text makes them. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/graph/policy.h"
#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/tried.h"
#include "tow/tow.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum {
    STACK = 2 << 20 /* frames have much around them there */
};
#elif defined NDEBUG
enum {
    STACK = 128 << 10
};
#else
enum {
    STACK = 512 << 10 /* nothing is optimized */
};
#endif

/* ---- texts ----------------------------------------------------------------------------------------------------- */

static char *text_of(const tow_graph *g)
{
    size_t size = tow_graph_text(g, NULL, 0) + 1;
    char *text = malloc(size);
    assert_non_null(text);
    assert_int_equal(tow_graph_text(g, text, size), size - 1);
    return text;
}

/* print -> parse -> print gives one text. */
static void expect_readable(const tow_graph *g)
{
    char *text = text_of(g);
    tow_graph *read;
    if (tow_graph_parse(ctx, text, &read) != TOW_OK) fail_msg("%s\n%.4000s", tow_context_error(ctx), text);
    char *again = text_of(read);
    assert_string_equal(again, text);
    tow_graph_release(read);
    free(text);
    free(again);
}

static void expect_error(tow_status found, tow_status status, const char *text)
{
    assert_int_equal(found, status);
    if (!strstr(tow_context_error(ctx), text)) fail_msg("expected '%s', found '%s'", text, tow_context_error(ctx));
}

/* ---- checkpoint names of regions --------------------------------------------------------------------------------- */

static tow_status parse_remat(const char *policy, tow_graph **g)
{
    static const char form[] = "{ lambda ; a:f32[]. let\n"
                               "    b:f32[] = sin a\n"
                               "    c:f32[] = remat[policy=\"%s\" body={ lambda ; a:f32[]. let\n"
                               "          b:f32[] = sin a\n"
                               "          c:f32[] = name[name=\"here\"] b\n"
                               "          d:f32[] = call[name=\"f\" body={ lambda ; a:f32[]. let\n"
                               "              b:f32[] = sin a\n"
                               "              c:f32[] = name[name=\"inside\"] b\n"
                               "            in (c) }] c\n"
                               "        in (d) }] b\n"
                               "  in (c) }\n";
    char text[1024];
    snprintf(text, sizeof text, form, policy);
    return tow_graph_parse(ctx, text, g);
}

static void test_names_that_are_read(void **state)
{
    (void)state;
    static const char *const fine[] = {"names:here", "names:inside,here", "any_names_but:inside",
                                       "names:", "either(except(dots;here);not(names:inside))"};
    static const char *const bad[] = {"names:zzz",
                                      "names:here,zzz",
                                      "any_names_but:zzz",
                                      "anything_except:zzz",
                                      "except(dots;zzz)",
                                      "not(names:zzz)",
                                      "either(dots;both(not(not(names:here,zzz));everything))",
                                      "except(names:zzz;here)"};
    static const char message[] =
        "remat: the policy refers to the checkpoint name \"zzz\", which no value in the region "
        "has; expected one of: here, inside";
    tow_graph *g;
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        OK(parse_remat(fine[i], &g));
        expect_readable(g);
        tow_policy *policy; /* C says the same of a region with these names */
        tow_graph *whole;
        OK(tow_policy_parse(ctx, fine[i], &policy));
        OK(tow_remat_whole(g, policy, &whole));
        tow_policy_free(policy);
        tow_graph_release(whole);
        tow_graph_release(g);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_error(parse_remat(bad[i], &g), TOW_NOT_FOUND, "line 3, column 20: ");
        expect_error(tow_context_status(ctx), TOW_NOT_FOUND, message);
        tow_policy *policy;
        tow_graph *whole;
        OK(parse_remat("dots", &g));
        OK(tow_policy_parse(ctx, bad[i], &policy));
        expect_error(tow_remat_whole(g, policy, &whole), TOW_NOT_FOUND, message);
        tow_policy_free(policy);
        tow_graph_release(g);
    }
}

/* The name stands on a value that nobody needs. Passes remove it, and it goes from the policy, too. */
static void test_names_that_passes_remove(void **state)
{
    (void)state;
    static const char text[] = "{ lambda ; a:f32[]. let\n"
                               "    b:f32[] = remat[policy=\"either(names:dead,kept;any_names_but:dead)\"\n"
                               "      body={ lambda ; a:f32[]. let\n"
                               "          b:f32[] = sin a\n"
                               "          c:f32[] = name[name=\"kept\"] b\n"
                               "          d:f32[] = cos a\n"
                               "          e:f32[] = name[name=\"dead\"] d\n"
                               "          f:f32[] = sin c\n"
                               "        in (f) }] a\n"
                               "  in (b) }\n";
    tow_graph *g, *clean, *derived[6] = {NULL};
    OK(tow_graph_parse(ctx, text, &g));
    OK(tow_graph_dce(g, &clean));
    char *cleaned = text_of(clean);
    if (!strstr(cleaned, "either(names:kept;any_names_but:)")) fail_msg("%s", cleaned);
    free(cleaned);
    expect_readable(clean);
    OK(tow_jvp(g, 0, NULL, &derived[0]));
    OK(tow_linearize(g, 0, NULL, &derived[1], &derived[2]));
    OK(tow_vjp(g, 0, NULL, &derived[3], &derived[4]));
    OK(tow_grad(g, 0, NULL, false, &derived[5]));
    for (size_t i = 0; i < 6; i++) {
        expect_readable(derived[i]);
        tow_graph_release(derived[i]);
    }
    tow_residuals kept, kept_of_clean;
    OK(tow_saved_residuals(g, 0, NULL, &kept));
    OK(tow_saved_residuals(clean, 0, NULL, &kept_of_clean));
    assert_int_equal(kept.count, kept_of_clean.count);
    tow_residuals_free(&kept);
    tow_residuals_free(&kept_of_clean);
    tow_graph_release(clean);
    tow_graph_release(g);
}

/* ---- policies ---------------------------------------------------------------------------------------------------- */

/* `levels` policies in one another, of all kinds that have others in them. The innermost is not there: nothing. */
static const tow_policy *nested_policy(tow_policy *memory, int levels)
{
    static const tow_policy dots = {.kind = TOW_POLICY_DOTS};
    static const tow_policy_kind kinds[] = {TOW_POLICY_NOT, TOW_POLICY_EITHER, TOW_POLICY_BOTH,
                                            TOW_POLICY_EXCEPT_NAMES};
    const tow_policy *inner = NULL;
    for (int i = 0; i < levels - 1; i++) {
        memory[i] = (tow_policy){.kind = kinds[i % 4], .a = inner};
        if (i % 4 == 1 || i % 4 == 2) memory[i].b = &dots;
        if (i % 8 == 1) memory[i].a = &dots, memory[i].b = inner;
        inner = &memory[i];
    }
    return inner;
}

static void test_deep_policies(void **state)
{
    (void)state;
    static tow_policy memory[100000];
    tow_graph *g, *whole;
    OK(parse_remat("dots", &g));
    for (int levels = 2; levels <= TOW__DEEPEST_POLICY; levels++) {
        const tow_policy *policy = nested_policy(memory, levels);
        char text[1024];
        tow_policy *read;
        assert_in_range(tow_policy_text(policy, text, sizeof text), 1, sizeof text - 1);
        OK(tow_policy_parse(ctx, text, &read));
        tow_policy_free(read);
        OK(tow_remat_whole(g, policy, &whole));
        expect_readable(whole);
        tow_graph_release(whole);
    }
    for (int levels = TOW__DEEPEST_POLICY + 1; levels <= 100000; levels *= 5) {
        const tow_policy *policy = nested_policy(memory, levels);
        char text[16] = "old";
        assert_int_equal(tow_policy_text(policy, text, sizeof text), 0);
        assert_string_equal(text, "");
        expect_error(tow_remat_whole(g, policy, &whole), TOW_UNSUPPORTED, "policies are nested more than 32 deep");
    }
    tow_graph_release(g);
    tow_policy *read;
    expect_error(tow_policy_parse(ctx,
                                  "not(not(not(not(not(not(not(not(not(not(not(not(not(not(not(not(not(not(not(not("
                                  "not(not(not(not(not(not(not(not(not(not(not(not(dots",
                                  &read),
                 TOW_UNSUPPORTED, "policies are nested more than 32 deep");
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

/* Regions in one another. The body of every level is linear, or has products. */
typedef struct nest {
    int level, levels;
    const char *kinds; /* of region, by level, again and again: c(all), r(emat), s(can) */
    bool linear;
} nest;

static void nested(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    nest *n = user;
    tow_value x = n->linear ? tow_mul_scalar(in[0], 0.5) : tow_sin(in[0]);
    tow_scan_options options = TOW_SCAN_OPTIONS(.length = 2);
    out[0] = x;
    if (n->level == n->levels) return;
    char kind = n->kinds[(size_t)(n->level - 1) % strlen(n->kinds)];
    n->level++;
    if (kind == 'c') tow_call_function(t, nested, n, "f", 1, &x, 1, out);
    if (kind == 'r') tow_remat_function(t, nested, n, NULL, 1, &x, 1, out);
    if (kind == 's') tow_scan_function(t, nested, n, &options, 1, &x, 0, NULL, 0, out, NULL);
    n->level--;
    out[0] = n->linear ? tow_add(out[0], x) : tow_mul(out[0], x);
}

/* Loops keep one more axis of what their bodies keep, so loops in loops with products in them have a remat between. */
static const nest nests[] = {{.kinds = "c"},
                             {.kinds = "r"},
                             {.kinds = "s", .linear = true},
                             {.kinds = "rsc", .linear = true},
                             {.kinds = "srcrrscr"}};
enum {
    NESTS = sizeof nests / sizeof *nests
};

static tow_status trace_nest(int levels, nest n, tow_graph **g)
{
    n.level = 1, n.levels = levels;
    tow_type type = tow_make_type(TOW_F32, 0, NULL);
    return tow_trace_function(ctx, nested, &n, 1, &type, NULL, 1, g);
}

static void expect_gradient(const tow_graph *g)
{
    tow_graph *gradient, *second, *merged;
    tow_program *program;
    tow_residuals kept;
    OK(tow_grad(g, 0, NULL, false, &gradient));
    expect_readable(gradient);
    OK(tow_graph_check(gradient));
    OK(tow_graph_cse(gradient, &merged));
    expect_readable(merged);
    OK(tow_jvp(gradient, 0, NULL, &second));
    expect_readable(second);
    OK(tow_saved_residuals(g, 0, NULL, &kept));
    tow_residuals_free(&kept);
    OK(tow_compile(ctx, gradient, NULL, &program));
    tow_program_free(program);
    tow_graph_release(second);
    tow_graph_release(merged);
    tow_graph_release(gradient);
}

static void test_deep_graphs(void **state)
{
    (void)state;
    for (int kind = 0; kind < NESTS; kind++) {
        tow_graph *g, *whole;
        OK(trace_nest(64, nests[kind], &g));
        expect_readable(g);
        expect_gradient(g);
        expect_error(tow_remat_whole(g, NULL, &whole), TOW_UNSUPPORTED,
                     "nested 65 levels deep; expected no more than 64");
        tow_graph_release(g);
        OK(trace_nest(63, nests[kind], &g));
        OK(tow_remat_whole(g, NULL, &whole));
        expect_readable(whole);
        expect_gradient(whole);
        tow_graph_release(whole);
        tow_graph_release(g);
        expect_error(trace_nest(65, nests[kind], &g), TOW_UNSUPPORTED,
                     "nested 65 levels deep; expected no more than 64");
        expect_error(trace_nest(70000, nests[kind], &g), TOW_UNSUPPORTED,
                     "nested 65 levels deep; expected no more than 64");
    }
}

/* Kinds of regions in random order; after a loop a remat if there are products, for the reason above. */
static void random_kinds(uint32_t seed, bool linear, char kinds[65])
{
    for (int i = 0; i < 64; i++) {
        seed = seed * 1664525 + 1013904223;
        kinds[i] = !linear && i > 0 && kinds[i - 1] == 's' ? 'r' : "crs"[(seed >> 16) % 3];
    }
    kinds[64] = '\0';
}

/* Allocations stand for time here. Each level is walked through by what handles those around it, so they may grow with
 * the square of the depth: a mix of 64 levels may take as much as 16 of 16 levels. Exponential growth is beyond
 * that. */
static long calls_of_gradient(nest n, int levels, size_t *equations)
{
    counting c;
    tow_context_options options = counting_options(&c, -1);
    tow_context *old = ctx;
    tow_graph *g, *gradient;
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    OK(trace_nest(levels, n, &g));
    long before = c.calls;
    OK(tow_grad(g, 0, NULL, false, &gradient));
    long calls = c.calls - before;
    *equations = tow_graph_primitive_count(gradient, NULL);
    tow_graph_release(gradient);
    tow_graph_release(g);
    tow_context_free(ctx);
    ctx = old;
    return calls;
}

static void test_random_mixes(void **state)
{
    (void)state;
    const char *checks = getenv("TOW_CHECK");
    char old[16];
    snprintf(old, sizeof old, "%s", checks ? checks : "");
    setenv("TOW_CHECK", "0", 1); /* checks after each pass allocate as well */
    for (uint32_t seed = 1; seed <= 24; seed++) {
        char kinds[65];
        size_t few, many;
        if (!is_tried(0, (seed - 1) / 2)) continue; /* of both kinds */
        nest n = {.kinds = kinds, .linear = seed % 2};
        random_kinds(seed, n.linear, kinds);
        long shallow = calls_of_gradient(n, 16, &few), deep = calls_of_gradient(n, 64, &many);
        if (deep > 32 * shallow || many > 32 * few)
            fail_msg("%s: %ld allocations and %zu equations for 16 levels, %ld and %zu for 64", kinds, shallow, few,
                     deep, many);
    }
    checks ? setenv("TOW_CHECK", old, 1) : unsetenv("TOW_CHECK");
}

/* A deep graph that is recorded again in a body. */
static void inlined(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, tow_inline(t, user, in, out);
}

static void in_call(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_call_function(t, inlined, user, "f", 1, in, 1, out);
}

static void in_two_calls(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_call_function(t, in_call, user, "f", 1, in, 1, out);
}

static void test_deep_graphs_in_bodies(void **state)
{
    (void)state;
    tow_graph *deep, *g;
    tow_type type = tow_make_type(TOW_F32, 0, NULL);
    OK(trace_nest(62, nests[3], &deep));
    OK(tow_trace_function(ctx, in_two_calls, deep, 1, &type, NULL, 1, &g));
    expect_readable(g);
    tow_graph_release(g);
    tow_graph_release(deep);
    OK(trace_nest(63, nests[3], &deep));
    OK(tow_trace_function(ctx, in_call, deep, 1, &type, NULL, 1, &g));
    tow_graph_release(g);
    expect_error(tow_trace_function(ctx, in_two_calls, deep, 1, &type, NULL, 1, &g), TOW_UNSUPPORTED, "65 levels");
    tow_graph_release(deep);
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

typedef struct chain {
    tow_module module;
    const tow_module *inner;
} chain;

static void call_chain(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)n_in, (void)n_out;
    const chain *c = (const chain *)module;
    tow_value w = tow_param(s, "w", 0, NULL, tow_initializer_ones());
    tow_value x = tow_mul(in[0], w);
    out[0] = c->inner ? tow_apply_module(s, "a layer with a long name", c->inner, x) : x;
}
static const tow_module_class chain_class = {"chain", call_chain};

static tow_status init_module(const tow_module *module)
{
    tow_type type = tow_make_type(TOW_F32, 0, NULL);
    tow_params *params;
    tow_status status = tow_model_init(ctx, module, 1, 1, &type, &params);
    if (status == TOW_OK) {
        tow_graph *g, *gradient;
        tow_program *program;
        OK(tow_model_forward_graph(module, params, 1, &type, NULL, &g));
        expect_readable(g);
        OK(tow_grad(g, 0, NULL, false, &gradient));
        OK(tow_compile(ctx, gradient, NULL, &program));
        tow_program_free(program);
        tow_graph_release(gradient);
        tow_graph_release(g);
        tow_params_free(params);
    }
    return status;
}

static tow_status init_chain(int levels)
{
    chain *layers = calloc((size_t)levels, sizeof *layers);
    assert_non_null(layers);
    for (int i = 0; i < levels; i++) layers[i] = (chain){{&chain_class}, i + 1 < levels ? &layers[i + 1].module : NULL};
    tow_status status = init_module(&layers[0].module);
    free(layers);
    return status;
}

static tow_status init_remats(int levels)
{
    chain inner = {{&chain_class}, NULL};
    tow_remat *layers = calloc((size_t)levels, sizeof *layers);
    assert_non_null(layers);
    for (int i = 0; i < levels; i++)
        layers[i] = i == 0 ? TOW_REMAT(&inner, .policy = tow_nothing_saveable())
                           : TOW_REMAT(&layers[i - 1], .policy = tow_nothing_saveable());
    tow_status status = init_module(&layers[levels - 1].module);
    free(layers);
    return status;
}

static void test_deep_layers(void **state)
{
    (void)state;
    assert_int_equal(init_chain(127), TOW_OK);
    assert_int_equal(init_chain(128), TOW_OK);
    expect_error(init_chain(129), TOW_UNSUPPORTED, "nested 129 levels deep, and the limit is 128");
    expect_error(init_chain(70000), TOW_UNSUPPORTED, "nested 129 levels deep, and the limit is 128");
    assert_int_equal(init_remats(63), TOW_OK);
    expect_error(init_remats(64), TOW_UNSUPPORTED, "nested 65 levels deep");
    expect_error(init_remats(70000), TOW_UNSUPPORTED, "levels deep");
}

/* Scopes in one another without calls. */
static void call_scopes(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)n_in, (void)n_out, (void)module;
    for (int i = 0; i < 70000; i++) s = tow_scope_begin(s, "a");
    out[0] = tow_mul(in[0], tow_param(s, "w", 0, NULL, tow_initializer_ones()));
}
static const tow_module_class scopes_class = {"scopes", call_scopes};

static void test_deep_scopes(void **state)
{
    (void)state;
    const tow_module module = {&scopes_class};
    expect_error(init_module(&module), TOW_UNSUPPORTED, "nested 129 levels deep, and the limit is 128");
}

/* ---- small stacks ------------------------------------------------------------------------------------------------ */

static void *on_thread(void *user)
{
    (void)user;
    void *state = NULL;
    test_deep_graphs(&state);
    test_deep_graphs_in_bodies(&state);
    test_deep_layers(&state);
    test_deep_scopes(&state);
    return NULL;
}

/* Last: where it fails, the program crashes. */
static void test_on_a_small_stack(void **state)
{
    (void)state;
    pthread_attr_t attributes;
    pthread_t thread;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, STACK), 0);
    assert_int_equal(pthread_create(&thread, &attributes, on_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_that_are_read), cmocka_unit_test(test_names_that_passes_remove),
        cmocka_unit_test(test_deep_policies),       cmocka_unit_test(test_deep_graphs),
        cmocka_unit_test(test_random_mixes),        cmocka_unit_test(test_deep_graphs_in_bodies),
        cmocka_unit_test(test_deep_layers),         cmocka_unit_test(test_deep_scopes),
        cmocka_unit_test(test_on_a_small_stack),
    };
    return cmocka_run_group_tests_name("limits", tests, setup, teardown);
}

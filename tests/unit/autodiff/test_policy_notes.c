/* Policies that have no effect, and the reason that lists of residuals give.
 * Tests autodiff/policy_log.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

/* The notes of a program, which are in its list of residuals, each a line before the total. */
static void expect_notes(const tow_graph *g, size_t n, const char *const *notes)
{
    tow_residuals r;
    char text[4096];
    OK(tow_saved_residuals(g, 0, NULL, &r));
    assert_int_equal(r.n_notes, n);
    assert_in_range(tow_residuals_text(&r, text, sizeof text), 1, sizeof text - 1);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(r.notes[i], notes[i]);
        const char *line = strstr(text, notes[i]);
        assert_non_null(line);
        assert_non_null(strstr(line, " residuals, "));
    }
    tow_residuals_free(&r);
}

static void expect_text(const char *text, size_t n, const char *const *notes)
{
    tow_graph *g;
    OK(tow_graph_parse(ctx, text, &g));
    expect_notes(g, n, notes);
    tow_graph_release(g);
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

#define REGION(policy, body)                                                                                           \
    "{ lambda ; x:f32[4,4]\"x\". let\n"                                                                                \
    "    y:f32[4,4] = remat[policy=\"" policy "\" body={ lambda ; x:f32[4,4]. let\n" body "      in (d) }] x\n"        \
    "    z:f32[4,4] = sin y\n"                                                                                         \
    "    l:f32[] = reduce_sum[axes=(0,1)] z\n"                                                                         \
    "  in (l) }"
#define SINES   "b:f32[4,4] = sin x d:f32[4,4] = sin b\n"
#define PRODUCT "b:f32[4,4] = dot_general[lhs_contract=(1) rhs_contract=(0)] x x d:f32[4,4] = sin b\n"
#define BATCHED                                                                                                        \
    "b:f32[4] = dot_general[lhs_contract=(1) rhs_contract=(1) lhs_batch=(0) rhs_batch=(0)] x x\n"                      \
    "c:f32[4] = sin b d:f32[4,4] = broadcast_in_dim[shape=(4,4) axes=(0)] c\n"
#define NAMED       "a:f32[4,4] = sin x b:f32[4,4] = name[name=\"q\"] a d:f32[4,4] = sin b\n"
#define NAMED_INPUT "b:f32[4,4] = name[name=\"q\"] x d:f32[4,4] = sin b\n"
#define LAST        "b:f32[4,4] = sin x d:f32[4,4] = dot_general[lhs_contract=(1) rhs_contract=(0)] b b\n"

static void test_reasons(void **state)
{
    (void)state;
    static const struct {
        const char *text, *note;
    } cases[] = {
        {REGION("nothing", SINES), NULL},
        {REGION("dots", PRODUCT), NULL},
        {REGION("names:q", NAMED), NULL},
        {REGION("dots", SINES), "remat: the policy \"dots\" has no effect: no value in the region is a product"},
        {REGION("dots_with_no_batch_dims", BATCHED), "remat: the policy \"dots_with_no_batch_dims\" has no effect: no "
                                                     "value in the region is a product without batch "
                                                     "dimensions"},
        {REGION("any_names_but:q", NAMED),
         "remat: the policy \"any_names_but:q\" has no effect: no value in the region has a name that it saves"},
        {REGION("names:q", NAMED_INPUT),
         "remat: the policy \"names:q\" has no effect: everything that it saves is kept anyway, as an input of the "
         "region"},
        {REGION("either(dots;nothing)", SINES),
         "remat: the policy \"either(dots;nothing)\" has no effect: it saves no value in the region"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_graph *g;
        OK(tow_graph_parse(ctx, cases[i].text, &g));
        expect_notes(g, cases[i].note != NULL, &cases[i].note);
        tow_graph_release(g);
    }
}

/* The result of the last operation is no residual: the derivative of a product reads its operands. */
static void test_unread(void **state)
{
    (void)state;
    static const char *const note = "remat: the policy \"dots\" has no effect: the backward pass reads nothing of what "
                                    "it saves, or makes it of what "
                                    "is kept anyway";
    expect_text("{ lambda ; x:f32[4,4]\"x\". let\n"
                "    y:f32[4,4] = remat[policy=\"dots\" body={ lambda ; x:f32[4,4]. let\n" LAST "      in (d) }] x\n"
                "    l:f32[] = reduce_sum[axes=(0,1)] y\n"
                "  in (l) }",
                1, &note);
}

/* Nothing in the region depends on a float input. */
static void test_undifferentiated(void **state)
{
    (void)state;
    static const char *const note =
        "remat: the policy \"names:q\" has no effect: nothing in the region is differentiated";
    expect_text("{ lambda ; x:f32[4]\"x\" n:i32[4]\"n\". let\n"
                "    m:i32[4] = remat[policy=\"names:q\" body={ lambda ; n:i32[4]. let\n"
                "        a:i32[4] = mul n n b:i32[4] = name[name=\"q\"] a d:i32[4] = mul b b\n"
                "      in (d) }] n\n"
                "    f:f32[4] = convert[dtype=f32] m\n"
                "    y:f32[4] = mul x f\n"
                "    l:f32[] = reduce_sum[axes=(0)] y\n"
                "  in (l) }",
                1, &note);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void plain(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_sin(tow_sin(in[0]));
}

static void named(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_sin(tow_checkpoint_name(tow_sin(in[0]), "q"));
}

/* Regions of two kinds with one policy: the first two have none of its names. */
static void two_kinds(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_policy policy = tow_save_only_these_names("q");
    tow_value x = in[0];
    (void)user;
    tow_remat_function(t, plain, NULL, &policy, 1, &x, 1, &x);
    tow_remat_function(t, plain, NULL, &policy, 1, &x, 1, &x);
    tow_remat_function(t, named, NULL, &policy, 1, &x, 1, &x);
    out[0] = tow_reduce_sum(x, 0, NULL);
}

/* A policy whose names one kind of region has may stand around another kind, and the note says where they are. */
static void test_elsewhere(void **state)
{
    (void)state;
    const tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){3});
    static const char *const note = "remat and 1 more: the policy \"names:\" has no effect: no value in the region has "
                                    "one of its names; \"q\" is in "
                                    "another region";
    tow_graph *g;
    OK(tow_trace_function(ctx, two_kinds, NULL, 1, &type, NULL, 1, &g));
    expect_notes(g, 1, &note);
    tow_graph_release(g);
}

/* The name is that of a value outside of the region. */
static void test_outside(void **state)
{
    (void)state;
    tow_graph *g;
    assert_int_equal(tow_graph_parse(ctx,
                                     "{ lambda ; x:f32[4]. let\n"
                                     "    a:f32[4] = name[name=\"q\"] x\n"
                                     "    y:f32[4] = remat[policy=\"names:q\" body={ lambda ; x:f32[4]. let\n"
                                     "        b:f32[4] = sin x\n"
                                     "      in (b) }] a\n"
                                     "  in (y) }",
                                     &g),
                     TOW_NOT_FOUND);
    assert_non_null(strstr(tow_context_error(ctx),
                           "\"q\", which no value in the region has; expected one of: (no value in "
                           "it is named); a value outside of it has the name"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reasons),   cmocka_unit_test(test_unread),  cmocka_unit_test(test_undifferentiated),
        cmocka_unit_test(test_elsewhere), cmocka_unit_test(test_outside),
    };
    return cmocka_run_group_tests_name("policy_notes", tests, setup, teardown);
}

/* The textual form of policies: what is printed reads back as the same policy and prints the same text, whatever the
 * checkpoint names are; in graphs and in messages as well.
 * Tests policy.c, policy_text.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/graph/policy.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

/* print -> parse -> print, with the same policy and the same text. Free the text. */
static char *round_trip(const tow_policy *policy)
{
    size_t size = tow_policy_text(policy, NULL, 0) + 1;
    char *text = malloc(size), *again = malloc(size);
    tow_policy *read;
    assert_true(text && again);
    assert_int_equal(tow_policy_text(policy, text, size), size - 1);
    if (tow_policy_parse(ctx, text, &read) != TOW_OK) fail_msg("%s", tow_context_error(ctx));
    if (!tow__policy_equal(policy, read)) fail_msg("'%s' reads as another policy", text);
    assert_int_equal(tow_policy_text(read, again, size), size - 1);
    assert_string_equal(again, text);
    tow_policy_free(read);
    free(again);
    return text;
}

static void expect_text(const tow_policy *policy, const char *expected)
{
    char *text = round_trip(policy);
    assert_string_equal(text, expected);
    free(text);
}

static void test_names_in_quotes(void **state)
{
    (void)state;
    expect_text(&tow_save_only_these_names("attn_out", "a.b/c-1", "\xc3\xbc"), "names:attn_out,a.b/c-1,\xc3\xbc");
    expect_text(&tow_save_only_these_names("a,b"), "names:\"a,b\"");
    expect_text(&tow_save_only_these_names("a", "b"), "names:a,b");
    expect_text(&tow_save_only_these_names("a b", "c"), "names:\"a b\",c");
    expect_text(&tow_save_any_names_but_these("", "x"), "any_names_but:\"\",x");
    expect_text(&tow_save_anything_except_these_names("\"", "\\", "a\n"),
                "anything_except:\"\\\"\",\"\\\\\",\"a\\x0a\"");
    expect_text(&tow_save_except_names(&tow_save_either(&tow_save_only_these_names("p;q)"), &tow_dots_saveable()), ")"),
                "except(either(names:\"p;q)\";dots);\")\")");
    expect_text(&(tow_policy){.kind = TOW_POLICY_ONLY_NAMES}, "names:");
}

/* Every string of up to three of the characters that mean something, and every character by itself. */
static void test_every_name(void **state)
{
    (void)state;
    static const char some[] = "a,\" \\x;:()\n";
    const size_t n = sizeof some; /* with the end of the string */
    for (size_t i = 0; i < n * n * n; i++) {
        const char name[] = {some[i % n], some[i / n % n], some[i / n / n], 0};
        free(round_trip(&tow_save_only_these_names(name, "b")));
        free(round_trip(&tow_save_except_names(&tow_save_any_names_but_these("b", name), name)));
    }
    for (int c = 1; c < 256; c++) {
        const char name[] = {(char)c, 0}, inside[] = {'a', (char)c, 'b', 0};
        free(round_trip(&tow_save_only_these_names(name, inside)));
    }
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *column;
    } bad[] = {
        {"names:a,", "column 9: expected a checkpoint name"},
        {"names:,a", "column 7: expected a checkpoint name"},
        {"names:a b", "column 8: expected the end"},
        {"names:\"a", "column 7: expected a checkpoint name with a closing quote"},
        {"names:\"a\\\"", "column 7: expected a checkpoint name with a closing quote"},
        {"names:b,\"a\\q\"", "column 11: expected one of \\\" \\\\ \\n \\t \\xHH"},
        {"names:\"\\x00\"", "column 8: expected one of"},
        {"names:\"\\x1\"", "column 8: expected one of"},
        {"names:\"a\"b", "column 10: expected the end"},
        {"except(dots;\"a)", "column 13: expected a checkpoint name with a closing quote"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tow_policy *policy;
        assert_int_equal(tow_policy_parse(ctx, bad[i].text, &policy), TOW_BAD_FORMAT);
        if (!strstr(tow_context_error(ctx), bad[i].column)) fail_msg("%s", tow_context_error(ctx));
        assert_null(policy);
    }
    tow_policy *policy; /* a quote within a word, and escapes that the printer does not use */
    OK(tow_policy_parse(ctx, "names:a\"b,\"\\ta\\x62\\n\"", &policy));
    assert_string_equal(policy->names[0], "a\"b");
    assert_string_equal(policy->names[1], "\tab\n");
    assert_null(policy->names[2]);
    tow_policy_free(policy);
}

/* sin sin x, the inner sine with two of these names. */
static const char *const tags[] = {"a,b", "a", "b c", "say \"\\n\"\n", ",", ", "};
enum {
    TAGS = sizeof tags / sizeof *tags
};

static void tagged(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    tow_value x = tow_sin(in[0]);
    for (int i = 0; i < TAGS; i++) x = tow_checkpoint_name(x, tags[i]);
    out[0] = tow_sin(x);
}

static void in_remat(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(t, tagged, NULL, user, 1, in, 1, out);
}

static tow_status trace(const tow_policy *policy, tow_graph **graph)
{
    tow_type type = tow_make_type(TOW_F32, 0, NULL);
    return tow_trace_function(ctx, in_remat, (void *)policy, 1, &type, NULL, 1, graph);
}

static char *text_of(const tow_graph *graph)
{
    size_t size = tow_graph_text(graph, NULL, 0) + 1;
    char *text = malloc(size);
    assert_non_null(text);
    tow_graph_text(graph, text, size);
    return text;
}

static void test_names_in_graphs(void **state)
{
    (void)state;
    for (int i = 0; i < TAGS; i++) {
        tow_graph *graph, *read;
        OK(trace(&tow_save_only_these_names(tags[i], "a"), &graph));
        char *text = text_of(graph);
        OK(tow_graph_parse(ctx, text, &read));
        char *again = text_of(read);
        assert_string_equal(again, text);
        tow_residuals kept, kept_again; /* the policy that was read decides as the first one */
        OK(tow_saved_residuals(graph, 0, NULL, &kept));
        OK(tow_saved_residuals(read, 0, NULL, &kept_again));
        assert_int_equal(kept.count, kept_again.count);
        for (size_t k = 0; k < kept.count; k++) assert_string_equal(kept.items[k].what, kept_again.items[k].what);
        tow_residuals_free(&kept);
        tow_residuals_free(&kept_again);
        free(text);
        free(again);
        tow_graph_release(graph);
        tow_graph_release(read);
    }
}

/* The names that there are: each once, as a policy spells it. */
static void test_names_in_messages(void **state)
{
    (void)state;
    tow_graph *graph;
    assert_int_equal(trace(&tow_save_only_these_names("a,"), &graph), TOW_NOT_FOUND);
    const char *message = tow_context_error(ctx);
    if (!strstr(message, "checkpoint name \"a,\", which no value") ||
        !strstr(message, "expected one of: \"a,b\", a, \"b c\", \"say \\\"\\\\n\\\"\\x0a\", \",\", \", \""))
        fail_msg("%s", message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_in_quotes),   cmocka_unit_test(test_every_name),
        cmocka_unit_test(test_what_is_refused),   cmocka_unit_test(test_names_in_graphs),
        cmocka_unit_test(test_names_in_messages),
    };
    return cmocka_run_group_tests_name("policy text", tests, setup, teardown);
}

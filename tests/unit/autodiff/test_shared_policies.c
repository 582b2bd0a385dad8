/* Policies as somebody gives them: one for regions and layers of different kinds, each of which has some of its names,
 * and kinds that there are not.
 * Tests graph/policy_names.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

static void expect_error(tow_status status, tow_status expected, const char *part)
{
    if (status != expected || !strstr(tow_context_error(ctx), part))
        fail_msg("expected \"%s\", found status %d and \"%s\"", part, (int)status, tow_context_error(ctx));
    tow_context_clear_error(ctx);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void named(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = tow_sin(tow_checkpoint_name(tow_sin(in[0]), user));
}

/* One policy around a region with "a" and one with "b". */
static void two_kinds(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    static char a[] = "a", b[] = "b";
    tow_value x = {0};
    tow_remat_function(t, named, a, user, 1, in, 1, &x);
    tow_remat_function(t, named, b, user, 1, &x, 1, out);
    out[0] = tow_reduce_sum(out[0], 0, NULL);
}

static void test_regions(void **state)
{
    (void)state;
    const tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){3});
    const tow_policy both = tow_save_only_these_names("a", "b"), wrong = tow_save_only_these_names("a", "zzz");
    const tow_policy dots = tow_dots_saveable(), nested = tow_save_either(&dots, &both),
                     deep = tow_save_except_names(&wrong, "b");
    tow_graph *g;
    const tow_policy *fine[] = {&both, &nested};
    for (size_t i = 0; i < 2; i++) {
        tow_residuals residuals;
        OK(tow_trace_function(ctx, two_kinds, (void *)(uintptr_t)fine[i], 1, &type, NULL, 1, &g));
        OK(tow_graph_check(g));
        OK(tow_saved_residuals(g, 0, NULL, &residuals));
        size_t kept = 0;
        for (size_t k = 0; k < residuals.count; k++) kept += residuals.items[k].kind == TOW_RESIDUAL_NAMED;
        assert_int_equal(kept, 2);
        tow_residuals_free(&residuals);
        char text[4096]; /* what is printed can be read again */
        tow_graph *again;
        assert_in_range(tow_graph_text(g, text, sizeof text), 1, sizeof text - 1);
        OK(tow_graph_parse(ctx, text, &again));
        tow_graph_release(again);
        tow_graph_release(g);
    }
    static const char message[] = "remat: the policy refers to the checkpoint name \"zzz\", which no value in its 2 "
                                  "regions has; expected one of: a, b";
    expect_error(tow_trace_function(ctx, two_kinds, (void *)(uintptr_t)&wrong, 1, &type, NULL, 1, &g), TOW_NOT_FOUND,
                 message);
    expect_error(tow_trace_function(ctx, two_kinds, (void *)(uintptr_t)&deep, 1, &type, NULL, 1, &g), TOW_NOT_FOUND,
                 message);
}

/* A layer that names what it makes. */
typedef struct sine {
    tow_module module;
    const char *name;
} sine;

static void call_sine(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)scope, (void)n_in, (void)n_out;
    out[0] = tow_sin(tow_checkpoint_name(tow_sin(in[0]), ((const sine *)module)->name));
}
static const tow_module_class sine_class = {.name = "Sine", .call = call_sine};

/* Layers of two kinds in one model, with the policies that are given. */
static tow_status init(tow_policy of_a, tow_policy of_b)
{
    const sine a = {.module.cls = &sine_class, .name = "a"}, b = {.module.cls = &sine_class, .name = "b"};
    const tow_remat first = TOW_REMAT(&a, .policy = of_a), second = TOW_REMAT(&b, .policy = of_b);
    const tow_sequential model = TOW_SEQUENTIAL(&first.module, &second.module);
    const tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){3});
    tow_params *params = NULL;
    tow_context_clear_error(ctx);
    tow_status status = tow_model_init(ctx, (const tow_module *)&model, 0, 1, &type, &params);
    tow_params_free(params);
    return status;
}

static void test_layers(void **state)
{
    (void)state;
    const tow_policy both = tow_save_only_these_names("a", "b"), wrong = tow_save_only_these_names("b", "zzz");
    OK(init(both, both));
    OK(init(tow_save_any_names_but_these("a", "b"), tow_save_any_names_but_these("a", "b")));
    expect_error(init(wrong, wrong), TOW_NOT_FOUND,
                 "the checkpoint name \"zzz\", which no value in its 2 regions has; expected one of: a, b");
    /* another policy is another choice: there b is a slip */
    expect_error(init(both, tow_save_only_these_names("b")), TOW_NOT_FOUND,
                 "the checkpoint name \"b\", which no value in the region has; expected one of: a");
}

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

static void test_kinds(void **state)
{
    (void)state;
    static const int kinds[] = {99, -1, TOW_POLICY_CUSTOM + 1};
    const tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){3});
    static char a[] = "a";
    tow_graph *g, *whole;
    OK(tow_trace_function(ctx, named, a, 1, &type, NULL, 1, &g));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const tow_policy bad = {.kind = (tow_policy_kind)kinds[i]}, dots = tow_dots_saveable();
        const tow_policy policies[] = {bad,
                                       tow_save_not(&bad),
                                       tow_save_either(&bad, &dots),
                                       tow_save_both(&dots, &bad),
                                       tow_save_except_names(&bad, "a"),
                                       tow_save_not(&policies[1])};
        for (size_t k = 0; k < sizeof policies / sizeof *policies; k++) {
            char message[96], text[64];
            snprintf(message, sizeof message, "the policy is of kind %d, expected one of tow_policy_kind", kinds[i]);
            expect_error(tow_remat_whole(g, &policies[k], &whole), TOW_INVALID_ARGUMENT, message);
            assert_null(whole);
            expect_error(tow_trace_function(ctx, two_kinds, (void *)(uintptr_t)&policies[k], 1, &type, NULL, 1, &whole),
                         TOW_INVALID_ARGUMENT, message);
            expect_error(init(policies[k], dots), TOW_INVALID_ARGUMENT, message);
            assert_int_equal(tow_policy_text(&policies[k], text, sizeof text), 0);
            assert_string_equal(text, "");
        }
    }
    tow_graph_release(g);
    tow_policy *read;
    expect_error(tow_policy_parse(ctx, "99", &read), TOW_BAD_FORMAT, "expected a policy");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_kinds),
    };
    return cmocka_run_group_tests_name("shared_policies", tests, setup, teardown);
}

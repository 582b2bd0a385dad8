/* Values are not kept that can be made from what is kept anyway. Expectations are worked out by hand. */
#include "tests/unit/support/residual_texts.h"
#include "tow/control.h"

static const char *const xy[] = {"x", "y"};
static const size_t both[] = {0, 1};

/* x y + x / y + sin x: the product keeps x and y; the rule of div reads the quotient, that of sin the cosine. */
static void mixed(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add(tow_add(tow_mul(in[0], in[1]), tow_div(in[0], in[1])), tow_sin(in[0]));
}

static tow_graph *trace_mixed(void)
{
    const tow_type types[] = {f32(1, 8, 0, 0), f32(1, 8, 0, 0)};
    return trace(mixed, NULL, 2, types, xy, 1);
}

/* The backward pass divides once more and runs the cosine. The linear program of linearize may run many times: there
 * both are kept, and the tangent is divided once. */
static void test_backward_and_linear(void **state)
{
    (void)state;
    expect_residuals(trace_mixed(), 0, NULL, "f32[8] x; f32[8] y");
    expect_counts(trace_mixed(), true, 2, both, "div 2, cos 1, sin 0");
    expect_counts(trace_mixed(), false, 2, both, "div 1, cos 0, sin 0");
    /* y alone is differentiated: x y keeps x, and -(dy c) keeps c = z / y, for which y would have to be kept besides */
    expect_residuals(trace_mixed(), 1, both + 1, "f32[8] x; f32[8] div");
    expect_counts(trace_mixed(), true, 1, both + 1, "div 0, cos 0");
}

/* A policy that prefers to save a quotient is asked for what is at hand first; one that insists is obeyed. */
static tow_verdict verdict_on_quotients(const tow_policy_query *query, void *user)
{
    return strcmp(query->primitive, "div") == 0 ? *(const tow_verdict *)user : TOW_PREFER_RECOMPUTE;
}

static void test_policies_insist(void **state)
{
    (void)state;
    tow_verdict prefer = TOW_PREFER_SAVE, must = TOW_MUST_SAVE;
    const tow_policy weak = {.kind = TOW_POLICY_CUSTOM, .decide = verdict_on_quotients, .user = &prefer};
    const tow_policy strong = {.kind = TOW_POLICY_CUSTOM, .decide = verdict_on_quotients, .user = &must};
    expect_residuals(remat(trace_mixed(), &weak), 0, NULL, "f32[8] x; f32[8] y");
    expect_residuals(remat(trace_mixed(), &strong), 0, NULL, "f32[8] x; f32[8] y; f32[8] div");
}

/* ((x w0) w1) ... w5: every product but the last is read by the tangent of the next one. A value that is given up
 * serves for no other, so x w0 is made again, (x w0) w1 is kept, and so on in turn: two steps never follow one
 * another. */
static void products(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = in[0];
    for (int i = 1; i <= 6; i++) out[0] = tow_mul(out[0], in[i]);
}

static void test_no_chains(void **state)
{
    (void)state;
    const tow_type v = f32(1, 8, 0, 0), types[] = {v, v, v, v, v, v, v};
    const char *names[] = {"x", "a", "b", "c", "d", "e", "f"};
    expect_residuals(trace(products, NULL, 7, types, names, 1), 0, NULL,
                     "f32[8] x; f32[8] a; f32[8] b; f32[8] c; f32[8] d; f32[8] e; f32[8] f; f32[8] mul; f32[8] mul");
    expect_counts(trace(products, NULL, 7, types, names, 1), true, 0, NULL, "mul 15"); /* 2 * 6, and 3 again */
}

/* Masks and ties: max(x, 0) keeps a mask of each side, made of x again where x is kept. */
static void masked(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = tow_relu(in[0]);
    if (user) out[0] = tow_add(out[0], tow_mul(in[0], in[0]));
}

static void test_masks(void **state)
{
    (void)state;
    const tow_type v = f32(1, 8, 0, 0);
    expect_residuals(trace(masked, NULL, 1, &v, xy, 1), 0, NULL, "bool[8] gt");
    expect_residuals(trace(masked, &(bool){true}, 1, &v, xy, 1), 0, NULL, "f32[8] x");
}

/* Branches that keep one, no and two arrays of one type: two slots of that type, and nothing is copied into an array of
 * all. sin x keeps the cosine; 2 x nothing; tanh(x) exp(x) both factors. */
static const char choice[] = "{ lambda ; i:i32[]\"i\" x:f32[8]\"x\". let\n"
                             "    y:f32[8] = cond[branches=(\n"
                             "      { lambda ; x:f32[8]. let\n"
                             "          y:f32[8] = sin x\n"
                             "        in (y) },\n"
                             "      { lambda ; x:f32[8]. let\n"
                             "          y:f32[8] = add x x\n"
                             "        in (y) },\n"
                             "      { lambda ; x:f32[8]. let\n"
                             "          a:f32[8] = tanh x\n"
                             "          b:f32[8] = exp x\n"
                             "          y:f32[8] = mul a b\n"
                             "        in (y) })] i x\n"
                             "    l:f32[] = reduce_sum[axes=(0)] y\n"
                             "  in (l) }\n";

static void test_slots(void **state)
{
    (void)state;
    tow_graph *g, *gradient;
    tow_residuals kept;
    OK(tow_graph_parse(ctx, choice, &g));
    OK(tow_grad(g, 1, both + 1, false, &gradient));
    assert_int_equal(tow_graph_primitive_count(gradient, "concatenate"), 0);
    OK(tow_saved_residuals(g, 1, both + 1, &kept));
    assert_int_equal(kept.bytes, 4 + 2 * 32); /* the index, and two slots */
    tow_residuals_free(&kept);
    tow_graph_release(gradient);
    tow_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backward_and_linear),
        cmocka_unit_test(test_policies_insist),
        cmocka_unit_test(test_no_chains),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_slots),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* The engine of rewrite rules: which places it offers to a rule and in which order, the counts of uses that it keeps
 * while instructions on values are replaced, and the list of instructions that it builds.
 *
 * Tests rewrite.c, split_norm_gradient.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "src/plan/lower/inline.h"
#include "src/plan/rules/rewrite.h"
#include "tests/unit/support/plain_context.h"
#include "tow/autodiff.h"
#include "tow/graph.h"
#include "tow/ops.h"

/* ---- on values ----------------------------------------------------------------------------------------------------
 * */

/* The instructions of a graph's text, in the order in which it has its equations; value i is input i, results follow.
 * */
static tow__function_state function_of(const char *text, tow_program *p, tow__arena *scratch)
{
    tow__function_state s = {.p = p, .scratch = scratch};
    OK(tow_graph_parse(ctx, text, &p->graph));
    p->ctx = ctx;
    tow__arena_init(&p->memory, ctx);
    tow__arena_init(scratch, ctx);
    s.body = tow__arena_alloc(scratch, 1, sizeof *s.body);
    assert_non_null(s.body);
    OK(tow__inline_graph(p, scratch, p->graph, NULL, s.body));
    return s;
}

static void end(tow_program *p, tow__arena *scratch)
{
    tow__arena_free(scratch);
    tow__arena_free(&p->memory);
    tow_graph_release(p->graph);
}

static uint32_t seen[8], n_seen;
static uint32_t uses_before[8], uses_after[8];

static bool is_neg(const tow_primitive *op) { return op == &tow__neg_p; }

/* neg(neg(x)) where nobody else reads the inner one. */
static bool is_double(tow__rewrite *r, uint32_t at, void *match)
{
    const tow__instruction *inner = tow__maker_of(r, r->f->insts[at].operands[0]);
    seen[n_seen++] = at;
    *(uint32_t *)match = inner ? inner->operands[0] : 0;
    return inner && is_neg(inner->op) && r->uses[inner->results[0]] == 1;
}

/* => x * x; what that is worth is no concern of the engine. */
static tow_status square(tow__rewrite *r, uint32_t at, const void *match)
{
    const uint32_t x = *(const uint32_t *)match, in[] = {x, x};
    for (uint32_t v = 0; v < 8 && v < r->f->n_values; v++) uses_before[v] = r->uses[v];
    tow_status status = tow__change_instruction(r, at, &(tow__computation){&tow__mul_p, NULL, 0, 2, in}, 1, NULL);
    for (uint32_t v = 0; v < 8 && v < r->f->n_values; v++) uses_after[v] = r->uses[v];
    return status;
}

static const tow__rule squares = {
    .on_values = true, .is_root = is_neg, .match_bytes = sizeof(uint32_t), .matches = is_double, .replace = square};

static const char chain[] = "{ lambda ; x:f32[3]. let\n" /* 0 */
                            "    a:f32[3] = neg x\n"     /* 1 */
                            "    b:f32[3] = neg a\n"     /* 2 */
                            "    c:f32[3] = neg b\n"     /* 3 */
                            "    d:f32[3] = neg x\n"     /* 4: nobody reads it */
                            "  in (c) }";

/* From the first instruction on: b becomes x * x; a is dead then, and c no longer the double of anything. */
static void first_matches_first(void **state)
{
    (void)state;
    tow_program p = {0};
    tow__arena scratch;
    tow__function_state s = function_of(chain, &p, &scratch);
    n_seen = 0;
    OK(tow__apply_rule(&s, &squares));
    assert_int_equal(n_seen, 3); /* instruction 3 is dead: it is not offered */
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(seen[i], i);
    assert_ptr_equal(s.body->insts[1].op, &tow__mul_p);
    assert_ptr_equal(s.body->insts[2].op, &tow__neg_p);
    assert_non_null(s.body->insts[1].kernel);
    assert_int_equal(uses_before[0], 2); /* a, d */
    assert_int_equal(uses_before[1], 1);
    assert_int_equal(uses_after[0], 3); /* d, and twice by the product; a no longer counts */
    assert_int_equal(uses_after[1], 0);
    assert_int_equal(uses_after[2], 1);
    end(&p, &scratch);
}

/* From the last instruction on: c becomes a * a. b is dead then and not offered; a stays alone. */
static void last_matches_first(void **state)
{
    (void)state;
    tow_program p = {0};
    tow__arena scratch;
    tow__function_state s = function_of(chain, &p, &scratch);
    tow__rule backwards = squares;
    backwards.last_first = true;
    n_seen = 0;
    OK(tow__apply_rule(&s, &backwards));
    assert_int_equal(n_seen, 2);
    assert_int_equal(seen[0], 2);
    assert_int_equal(seen[1], 0);
    assert_ptr_equal(s.body->insts[2].op, &tow__mul_p);
    assert_int_equal(s.body->insts[2].operands[0], 1);
    assert_int_equal(uses_after[1], 2);
    assert_int_equal(uses_after[2], 0);
    end(&p, &scratch);
}

/* A value with another reader, here an output, is no part of a pattern that asks for one use. */
static void outputs_are_uses(void **state)
{
    (void)state;
    tow_program p = {0};
    tow__arena scratch;
    tow__function_state s = function_of("{ lambda ; x:f32[3]. let\n"
                                        "    a:f32[3] = neg x\n"
                                        "    b:f32[3] = neg a\n"
                                        "  in (a, b) }",
                                        &p, &scratch);
    n_seen = 0;
    OK(tow__apply_rule(&s, &squares));
    assert_int_equal(n_seen, 2);
    assert_ptr_equal(s.body->insts[1].op, &tow__neg_p);
    end(&p, &scratch);
}

/* ---- on views --------------------------------------------------------------------------------------------- */

static tow_status apply(tow_program *p, const tow__rule *rule)
{
    tow__arena scratch;
    tow__arena_init(&scratch, ctx);
    tow__function_state s = {.p = p, .scratch = &scratch, .body = p->top};
    tow_status status = tow__apply_rule(&s, rule);
    tow__arena_free(&scratch);
    return status;
}

/* A program of four functions of one array, as four instructions. */
static tow_program *four_instructions(void)
{
    tow_graph *g;
    tow_program *p;
    OK(tow_graph_parse(ctx,
                       "{ lambda ; x:f32[3]. let\n"
                       "    a:f32[3] = neg x\n"
                       "    b:f32[3] = sin a\n"
                       "    c:f32[3] = neg b\n"
                       "    d:f32[3] = cos c\n"
                       "  in (d) }",
                       &g));
    OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.no_fusion = true, .no_regions = true, .plan_only = true, .threads = 1),
                   &p));
    tow_graph_release(g);
    assert_int_equal(p->top->n_insts, 4);
    return p;
}

static bool is_second(tow__rewrite *r, uint32_t at, void *match)
{
    (void)r, (void)match;
    seen[n_seen++] = at;
    return at == 2;
}

static bool is_none(tow__rewrite *r, uint32_t at, void *match)
{
    (void)r, (void)at, (void)match;
    return false;
}

/* neg x => copy x, where the value goes late */
static tow_status copy_late(tow__rewrite *r, uint32_t at, const void *match)
{
    (void)match;
    return tow__copy_late(r, &r->insts[at].in[0], r->insts[at].out[0].storage, false);
}

/* neg => neg neg */
static tow_status twice(tow__rewrite *r, uint32_t at, const void *match)
{
    (void)match;
    return tow__copy_instruction(r, at) && tow__copy_instruction(r, at) ? TOW_OK : TOW_OUT_OF_MEMORY;
}

static void expect_list(const tow_program *p, size_t n, const tow_primitive *const *ops)
{
    assert_int_equal(p->top->n_insts, n);
    for (size_t i = 0; i < n; i++) assert_ptr_equal(p->top->insts[i].op, ops[i]);
}

static void matched_instructions_are_replaced(void **state)
{
    (void)state;
    tow_program *p = four_instructions();
    const tow__rule doubles = {.is_root = is_neg, .matches = is_second, .replace = twice};
    n_seen = 0;
    OK(apply(p, &doubles));
    assert_int_equal(n_seen, 2); /* only those whose operation is a root */
    assert_int_equal(seen[0], 0);
    assert_int_equal(seen[1], 2);
    expect_list(p, 5, (const tow_primitive *const[]){&tow__neg_p, &tow__sin_p, &tow__neg_p, &tow__neg_p, &tow__cos_p});
    assert_true(p->top->insts[2].in != p->top->insts[3].in); /* each has views of its own */
    assert_int_equal(p->top->insts[3].in[0].storage, p->top->insts[1].out[0].storage);
    tow_program_free(p);
}

static void late_copies_follow_all_others(void **state)
{
    (void)state;
    tow_program *p = four_instructions();
    const tow__rule late = {.is_root = is_neg, .matches = is_second, .replace = copy_late};
    OK(apply(p, &late));
    expect_list(p, 4, (const tow_primitive *const[]){&tow__neg_p, &tow__sin_p, &tow__cos_p, &tow__copy_p});
    tow_program_free(p);
}

static void without_matches_the_list_stays(void **state)
{
    (void)state;
    tow_program *p = four_instructions();
    const tow__instruction *before = p->top->insts;
    const tow__rule none = {.is_root = is_neg, .matches = is_none, .replace = twice};
    OK(apply(p, &none));
    assert_ptr_equal(p->top->insts, before);
    assert_int_equal(p->top->n_insts, 4);
    tow_program_free(p);
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* The rule without its requirement that the function be tiled. */
static tow_status split(tow_program *p)
{
    tow__rule always = tow__rule_split_norm_gradient;
    assert_non_null(always.applies);
    always.applies = NULL;
    return apply(p, &always);
}

static void sum_of_norm(tow_trace *t, const tow_value *x, tow_value *y, void *user)
{
    (void)t, (void)user;
    y[0] = tow_reduce_sum(tow_normalize_layer(x[0], x[1], x[2], 1e-6), 0, NULL);
}

/* Derivatives of the sum of layer_norm(x [6, 4], scale, bias) by these inputs, one instruction each. */
static tow_program *norm_gradient(size_t n_wrt, const size_t *wrt)
{
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){6, 4}), tow_make_type(TOW_F32, 1, (int64_t[]){4}),
                              tow_make_type(TOW_F32, 1, (int64_t[]){4})};
    tow_graph *g, *gradient;
    tow_program *p;
    OK(tow_trace_function(ctx, sum_of_norm, NULL, 3, types, NULL, 1, &g));
    OK(tow_value_and_grad(g, n_wrt, wrt, false, &gradient));
    OK(tow_compile(ctx, gradient,
                   &TOW_COMPILE_OPTIONS(.no_fusion = true, .no_regions = true, .plan_only = true, .threads = 1), &p));
    tow_graph_release(g);
    tow_graph_release(gradient);
    return p;
}

/* Finds the steps of norm derivatives; how many there are. */
static uint32_t norm_steps(const tow_program *p, const tow__instruction *found[2])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->top->n_insts; i++) {
        if (p->top->insts[i].op != &tow__layer_norm_vjp_p) continue;
        assert_true(n < 2);
        found[n++] = &p->top->insts[i];
    }
    return n;
}

static int64_t wrt_of(const tow__instruction *step) { return ((const tow__norm_ad_params *)step->params)->wrt; }

/* dx goes by rows, dscale and dbias sum over rows: each step gets the operands of the whole and its own results. */
static void norm_gradients_become_two_steps(void **state)
{
    (void)state;
    const tow__instruction *found[2];
    tow_program *p = norm_gradient(3, (size_t[]){0, 1, 2});
    assert_int_equal(norm_steps(p, found), 1);
    assert_int_equal(wrt_of(found[0]), 7);
    const uint32_t results[] = {found[0]->out[0].storage, found[0]->out[1].storage, found[0]->out[2].storage};
    const uint32_t n_steps = p->top->n_insts, n_in = found[0]->n_in;
    OK(split(p));
    assert_int_equal(p->top->n_insts, n_steps + 1);
    assert_int_equal(norm_steps(p, found), 2);
    assert_int_equal(wrt_of(found[0]), 1);
    assert_int_equal(found[0]->n_out, 1);
    assert_int_equal(found[0]->out[0].storage, results[0]);
    assert_int_equal(wrt_of(found[1]), 6);
    assert_int_equal(found[1]->n_out, 2);
    assert_int_equal(found[1]->out[0].storage, results[1]);
    assert_int_equal(found[1]->out[1].storage, results[2]);
    for (int i = 0; i < 2; i++) assert_int_equal(found[i]->n_in, n_in);
    tow_program_free(p);
}

/* Only dx, or only dscale, which sums over rows: there is nothing to separate. */
static void other_norm_gradients_stay_one_step(void **state)
{
    (void)state;
    for (size_t input = 0; input < 2; input++) {
        const tow__instruction *found[2];
        tow_program *p = norm_gradient(1, &input);
        const uint32_t n_steps = p->top->n_insts, n = norm_steps(p, found);
        OK(split(p));
        assert_int_equal(p->top->n_insts, n_steps);
        assert_int_equal(norm_steps(p, found), n);
        assert_int_equal(n, 1);
        assert_int_equal(wrt_of(found[0]), 1 << input);
        tow_program_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_matches_first),
        cmocka_unit_test(last_matches_first),
        cmocka_unit_test(outputs_are_uses),
        cmocka_unit_test(matched_instructions_are_replaced),
        cmocka_unit_test(late_copies_follow_all_others),
        cmocka_unit_test(without_matches_the_list_stays),
        cmocka_unit_test(norm_gradients_become_two_steps),
        cmocka_unit_test(other_norm_gradients_stay_one_step),
    };
    return cmocka_run_group_tests_name("rewrite", tests, setup, teardown);
}

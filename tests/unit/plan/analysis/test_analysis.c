/* Analyses of functions whose facts are worked out by hand: uses, liveness with the bytes that are alive, cost and
 * tiling; how they are kept and dropped, and that one which is kept in spite of a change is found.
 *
 * Tests analysis.c, uses.c, liveness.c, cost.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "src/plan/pass.h"
#include "tests/unit/support/plain_context.h"
#include "tow/graph.h"
#include "tow/program.h"

enum {
    BYTES = 64 * 4 /* of f32[64] */
};

/* A program without fusion and tile groups, and a function state for its instructions. */
typedef struct fixture {
    tow_program *p;
    tow__arena scratch;
    tow__function_state s;
} fixture;

static void begin(fixture *f, const char *text)
{
    tow_graph *g;
    OK(tow_graph_parse(ctx, text, &g));
    OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.no_fusion = true, .no_regions = true, .plan_only = true, .threads = 1),
                   &f->p));
    tow_graph_release(g);
    tow__arena_init(&f->scratch, ctx);
    f->s = (tow__function_state){.p = f->p, .scratch = &f->scratch, .body = f->p->top};
}

static void end(fixture *f)
{
    tow__invalidate(&f->s);
    f->p->columns = NULL; /* they lie in the scratch memory */
    tow__arena_free(&f->scratch);
    tow_program_free(f->p);
}

static const char straight[] = "{ lambda ; x:f32[64]. let\n"
                               "    a:f32[64] = sin x\n"
                               "    b:f32[64] = cos a\n"
                               "    c:f32[64] = mul a a\n"
                               "    d:f32[64] = add c b\n"
                               "    e:f32[64] = tanh d\n"
                               "  in (e) }";

static uint32_t result(const fixture *f, uint32_t i) { return f->s.body->insts[i].out[0].storage; }

static void uses_of_straight_code(void **state)
{
    (void)state;
    fixture f;
    begin(&f, straight);
    const tow__uses *u = tow__get_uses(&f.s);
    assert_non_null(u);
    const uint32_t x = f.s.body->insts[0].in[0].storage, a = result(&f, 0), b = result(&f, 1), e = result(&f, 4);
    assert_int_equal(u->n_named, 6);
    assert_int_equal(u->named[0], x);
    assert_int_equal(u->producer[x], TOW__NONE);
    assert_int_equal(u->last_reader[x], 0);
    assert_int_equal(u->producer[a], 0);
    assert_int_equal(u->reads[a], 3); /* once by cos, twice by mul */
    assert_int_equal(u->last_reader[a], 2);
    assert_int_equal(u->reads[b], 1);
    assert_int_equal(u->last_reader[b], 3);
    assert_int_equal(u->producer[e], 4);
    assert_int_equal(u->reads[e], 0);
    assert_int_equal(u->last_reader[e], TOW__NONE);
    end(&f);
}

static const tow__live_range *range_of(const tow__liveness *l, uint32_t storage)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->ranges[i].storage == storage) return &l->ranges[i];
    fail_msg("storage %u has no range", storage);
    return NULL;
}

static void expect_range(const tow__liveness *l, uint32_t storage, uint32_t first, uint32_t last, bool is_result)
{
    const tow__live_range *x = range_of(l, storage);
    assert_int_equal(x->first, first);
    assert_int_equal(x->last, last);
    assert_int_equal(x->is_result, is_result);
}

/* alive      sin  cos  mul  add  tanh
 *   a         x    x    x
 *   b              x    x    x
 *   c                   x    x
 *   d                        x    x      e is the caller's */
static void liveness_of_straight_code(void **state)
{
    (void)state;
    fixture f;
    begin(&f, straight);
    const tow__liveness *l = tow__get_liveness(&f.s);
    assert_non_null(l);
    expect_range(l, f.s.body->insts[0].in[0].storage, 0, 0, false);
    expect_range(l, result(&f, 0), 0, 2, true);
    expect_range(l, result(&f, 1), 1, 3, true);
    expect_range(l, result(&f, 2), 2, 3, true);
    expect_range(l, result(&f, 3), 3, 4, true);
    expect_range(l, result(&f, 4), 4, 4, true);
    const size_t expected[] = {1, 2, 3, 3, 1};
    for (size_t i = 0; i < 5; i++) assert_int_equal(l->alive[i], expected[i] * BYTES);
    assert_int_equal(l->peak, 3 * BYTES);
    end(&f);
}

/* The second buffer of a carry and the arena of the body are accessed by the loop alone; they are no results. */
static void liveness_of_loops(void **state)
{
    (void)state;
    fixture f;
    begin(&f, "{ lambda ; x:f32[64] y:f32[64]. let\n"
              "    a:f32[64] b:f32[64] = scan[length=4 reverse=false consts=0 carry=2\n"
              "      body={ lambda ; a:f32[64] b:f32[64]. let\n"
              "        in (b, a) }] x y\n"
              "    c:f32[64] = add a b\n"
              "  in (c) }");
    const tow__loop *loop = f.s.body->insts[0].loop;
    assert_non_null(loop);
    const tow__liveness *l = tow__get_liveness(&f.s);
    assert_non_null(l);
    assert_true(loop->carry[0].spare != TOW__NONE);
    expect_range(l, loop->carry[0].spare, 0, 0, false);
    expect_range(l, f.s.body->insts[0].scratch, 0, 0, false);
    expect_range(l, loop->carry[0].result, 0, 1, true);
    assert_int_equal(l->peak, 2 * BYTES);
    end(&f);
}

static const char product[] = "{ lambda ; x:f32[4,8] w:f32[8,3]. let\n"
                              "    y:f32[4,3] = dot_general[lhs_contract=(1) rhs_contract=(0)] x w\n"
                              "    z:f32[4,3] = mul y y\n"
                              "    s:f32[] = reduce_sum[axes=(0,1)] z\n"
                              "  in (s) }";

/* Seconds of each instruction, and their sums; what they are is worked out in test_cost.c. */
static void cost_adds_seconds(void **state)
{
    (void)state;
    fixture f;
    begin(&f, product);
    const tow__cost *c = tow__get_cost(&f.s);
    assert_non_null(c);
    assert_true(c->work[0].f32 == 2 * 4 * 8 * 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(c->seconds[i] == tow__seconds(&f.p->machine, &f.s.body->insts[i], 0, NULL));
    assert_true(c->total == c->seconds[0] + c->seconds[1] + c->seconds[2]);
    assert_true(c->shared == c->total); /* one thread */
    end(&f);
}

static void tiling_says_which_rows_are_needed(void **state)
{
    (void)state;
    fixture f;
    begin(&f, product);
    const tow__tiling *t = tow__get_tiling(&f.s);
    assert_non_null(t);
    assert_true(t->is_tileable[0] && t->is_tileable[1] && !t->is_tileable[2]); /* the sum goes over rows */
    assert_int_equal(t->from[0][0], 0);
    assert_int_equal(t->from[0][1], TOW__WHOLE);
    assert_int_equal(t->from[1][0], 0);
    assert_int_equal(t->from[1][1], 0);
    end(&f);
}

static void analyses_are_kept_until_dropped(void **state)
{
    (void)state;
    fixture f;
    begin(&f, straight);
    const tow__uses *u = tow__get_uses(&f.s);
    const tow__cost *c = tow__get_cost(&f.s);
    assert_ptr_equal(tow__get_uses(&f.s), u);
    assert_ptr_equal(tow__get_cost(&f.s), c);
    const uint32_t a = result(&f, 0), *reads = u->reads;
    assert_int_equal(reads[a], 3);
    tow__invalidate(&f.s);
    assert_null(f.s.analyses.uses);
    assert_null(f.s.analyses.cost);
    f.s.body->n_insts = 2;
    u = tow__get_uses(&f.s);
    assert_ptr_equal(u->reads, reads); /* the column that was given back, blank again */
    assert_int_equal(u->reads[a], 1);
    assert_int_equal(u->n_named, 3);
    f.s.body->n_insts = 5;
    end(&f);
}

/* Each analysis is asked for, then the instructions are changed without a word. */
static void forgotten_changes_are_found(void **state)
{
    (void)state;
    static const char *const names[] = {"uses", "liveness", "cost", "tiling"};
    for (size_t i = 0; i < 4; i++) {
        fixture f;
        begin(&f, straight);
        if (i == 0) assert_non_null(tow__get_uses(&f.s));
        if (i == 1) assert_non_null(tow__get_liveness(&f.s));
        if (i == 2) assert_non_null(tow__get_cost(&f.s));
        if (i == 3) assert_non_null(tow__get_tiling(&f.s));
        OK(tow__verify_analyses(&f.s, "test"));
        tow__instruction *inst = &f.s.body->insts[3];
        const tow__view x = inst->in[1], y = inst->out[0];
        if (i < 2) inst->in[1] = f.s.body->insts[0].out[0]; /* reads a, not b */
        if (i == 2) inst->out[0].type.dims[0] = 32;
        if (i == 3) inst->out[0].type.dims[0] = 1;
        assert_int_equal(tow__verify_analyses(&f.s, "test"), TOW_INTERNAL_ERROR);
        assert_non_null(strstr(tow_context_error(ctx), "pass test changed"));
        assert_non_null(strstr(tow_context_error(ctx), names[i]));
        tow__invalidate(&f.s);
        OK(tow__verify_analyses(&f.s, "test"));
        inst->in[1] = x;
        inst->out[0] = y;
        end(&f);
    }
}

/* Intervals [0, 1], [1, 1] and [3, 3] of four instructions. */
static void bytes_alive_are_sums(void **state)
{
    (void)state;
    size_t alive[5] = {0};
    tow__add_alive(alive, 0, 1, 10);
    tow__add_alive(alive, 1, 1, 5);
    tow__add_alive(alive, 3, 3, 7);
    assert_int_equal(tow__sum_alive(alive, 4), 15);
    assert_int_equal(alive[0], 10);
    assert_int_equal(alive[1], 15);
    assert_int_equal(alive[2], 0);
    assert_int_equal(alive[3], 7);
    assert_int_equal(tow__sum_alive(alive, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uses_of_straight_code),
        cmocka_unit_test(liveness_of_straight_code),
        cmocka_unit_test(liveness_of_loops),
        cmocka_unit_test(cost_adds_seconds),
        cmocka_unit_test(tiling_says_which_rows_are_needed),
        cmocka_unit_test(analyses_are_kept_until_dropped),
        cmocka_unit_test(forgotten_changes_are_found),
        cmocka_unit_test(bytes_alive_are_sums),
    };
    return cmocka_run_group_tests_name("analysis", tests, setup, teardown);
}

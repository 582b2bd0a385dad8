/* Axis propagation: which axis of a result follows axis 0, 1 and 2 of x [4, 6, 8], worked out by hand for each kind of
 * operation, and which instructions are sums over it. And what it is for: a function whose rows are axis 1 is tiled
 * along that, with the same bits.
 *
 * Tests axis.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/plan/analysis/axis.h"
#include "src/plan/pass.h"
#include "tests/unit/support/plain_context.h"
#include "tow/autodiff.h"
#include "tow/graph.h"
#include "tow/ops.h"
#include "tow/program.h"

enum {
    NONE = -1,  /* it does not depend on the axis */
    MIXED = -2, /* it depends on all of it */
    SUM = -3,   /* it is a sum over it */
    MOST = 4
};

/* ---- programs: in[0] is x [4, 6, 8] ------------------------------------------------------------------------------ */

static void transposed(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_tanh(tow_transpose(in[0], 3, (int[]){2, 0, 1}));
}

static void merged(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_tanh(tow_reshape(in[0], 2, (int64_t[]){24, 8}));
}

static void split(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_tanh(tow_reshape(in[0], 4, (int64_t[]){4, 2, 3, 8}));
}

static void sliced(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_tanh(tow_slice(in[0], (int64_t[]){0, 0, 2}, (int64_t[]){4, 6, 5}, NULL));
}

/* w [8, 5] */
static void by_features(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_dot_general(in[0], in[1], (tow_dot_dims){.n_contract = 1, .lhs_contract = {2}});
    out[1] = tow_tanh(in[1]);
}

/* The gradient of a weight, from two values of x. */
static void by_rows(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_dot_general(in[0], tow_tanh(in[0]),
                             (tow_dot_dims){.n_contract = 2, .lhs_contract = {0, 1}, .rhs_contract = {0, 1}});
}

static void batched(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_dot_general(in[0], in[0],
                             (tow_dot_dims){.n_contract = 1,
                                            .n_batch = 1,
                                            .lhs_contract = {2},
                                            .rhs_contract = {2},
                                            .lhs_batch = {0},
                                            .rhs_batch = {0}});
}

/* kernel [3, 8, 2] */
static void convolved(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_conv_general_dilated(in[0], in[1], NULL);
}

static void attended(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    const tow_value q = tow_reshape(in[0], 4, (int64_t[]){4, 6, 2, 4});
    out[0] = tow_attention(q, q, q, NULL);
}

static void row(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_tanh(in[0]);
}

static void map(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_scan_function(t, row, NULL, NULL, 0, NULL, 1, in, 1, NULL, out);
}

static void next_state(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_tanh(tow_add(in[0], in[1]));
    out[1] = tow_sin(out[0]);
}

/* h [6, 8], which does not depend on the axis at first */
static void recurrent(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_scan_function(t, next_state, NULL, NULL, 1, in + 1, 1, in, 1, out, out + 1);
}

static void forgetful_state(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_tanh(in[0]);
    out[1] = tow_sin(out[0]);
    out[2] = tow_add(in[1], in[2]);
}

/* Of two states the first, h [6, 8], does not depend on the axis; the second begins with maxima of x and becomes a
 * value of the first one. */
static void forgetful(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    const tow_value first[2] = {in[1], tow_reduce_max(tow_softmax(in[0], 0), 1, (int[]){0})};
    tow_scan_function(t, forgetful_state, NULL, NULL, 2, first, 1, in, 1, out, out + 2);
}

/* A table [10, 3], and of x so many whole numbers as there are places. */
static void gathered(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_gather(in[1], tow_convert(in[0], TOW_I32));
}

static void scattered(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_scatter_add(in[1], in[0], 10);
}

static void looked_up(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_gather(in[0], in[1]);
}

static void joined(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_concatenate(2, (tow_value[]){in[0], tow_tanh(in[0])}, 2);
}

static void normalized(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_softmax(in[0], 2);
}

static void reduced(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_reduce_sum(in[0], 1, (int[]){1});
    out[1] = tow_reduce_max(out[0], 1, (int[]){1});
}

typedef struct program {
    const char *name;
    tow_function function;
    tow_type more; /* of input 1; rank -1: there is none */
    size_t n_out;
    int expected[3][MOST]; /* by axis of x, by output */
} program;

#define WITHOUT                                                                                                        \
    {                                                                                                                  \
        .rank = -1                                                                                                     \
    }
#define F32(...)                                                                                                       \
    {                                                                                                                  \
        .dtype = TOW_F32, .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dims = { __VA_ARGS__ }          \
    }

static const program programs[] = {
    {"transpose", transposed, WITHOUT, 1, {{1}, {2}, {0}}},
    {"merge", merged, WITHOUT, 1, {{0}, {MIXED}, {1}}},
    {"split", split, WITHOUT, 1, {{0}, {1}, {3}}},
    {"slice", sliced, WITHOUT, 1, {{0}, {1}, {MIXED}}},
    {"product with a weight", by_features, F32(8, 5), 2, {{0, NONE}, {1, NONE}, {SUM, NONE}}},
    {"gradient of a weight", by_rows, WITHOUT, 1, {{SUM}, {SUM}, {MIXED}}},
    {"batch axis", batched, WITHOUT, 1, {{0}, {MIXED}, {SUM}}},
    {"convolution", convolved, F32(3, 8, 2), 1, {{0}, {MIXED}, {SUM}}},
    {"attention", attended, WITHOUT, 1, {{0}, {MIXED}, {MIXED}}},
    {"scan without carry", map, WITHOUT, 1, {{0}, {1}, {2}}},
    {"scan with carry", recurrent, F32(6, 8), 2, {{MIXED, MIXED}, {0, 1}, {1, 2}}},
    {"scan that forgets", forgetful, F32(6, 8), 3, {{NONE, MIXED, MIXED}, {NONE, MIXED, MIXED}, {NONE, MIXED, MIXED}}},
    {"indices", gathered, F32(10, 3), 1, {{0}, {1}, {2}}},
    {"table", looked_up, {.dtype = TOW_I32, .rank = 1, .dims = {5}}, 1, {{MIXED}, {1}, {2}}},
    {"scatter", scattered, {.dtype = TOW_I32, .rank = 2, .dims = {4, 6}}, 1, {{SUM}, {SUM}, {MIXED}}},
    {"concatenation", joined, WITHOUT, 1, {{0}, {1}, {MIXED}}},
    {"softmax", normalized, WITHOUT, 1, {{0}, {1}, {MIXED}}},
    {"reductions", reduced, WITHOUT, 2, {{0, 0}, {SUM, NONE}, {1, SUM}}},
};

/* ---- propagation ------------------------------------------------------------------------------------------------- */

/* The span of output k, and its instruction. */
static int64_t span_of_output(const tow_program *p, const tow__axis_flow *flow, uint32_t k, uint32_t *maker)
{
    for (uint32_t i = 0; i < p->top->n_insts; i++)
        for (uint32_t j = 0; j < p->top->insts[i].n_out; j++) {
            const tow__storage *s = &p->storages[p->top->insts[i].out[j].storage];
            if (s->kind != TOW__S_OUTPUT || s->index != k) continue;
            *maker = i;
            return flow->span[p->top->insts[i].out[j].storage];
        }
    fail_msg("nobody makes output %u", k);
    return 0;
}

static int axis_of_output(const tow_program *p, const tow__axis_flow *flow, uint32_t k)
{
    uint32_t maker = 0;
    const int64_t span = span_of_output(p, flow, k, &maker);
    const tow_type type = p->graph->vars[p->graph->outputs[k]].type;
    if (span == TOW__NO_SPAN) return tow__sums_axis(flow, maker) ? SUM : NONE;
    for (int a = 0; a < type.rank; a++)
        if (tow__span_of(type, a) == span && type.dims[a] > 1) return a;
    return MIXED;
}

static void check_axis(const tow_program *p, const program *x, int axis, tow_type type)
{
    tow__arena scratch;
    tow__arena_init(&scratch, ctx);
    const tow__axis_seed seed = {0, type, axis}; /* the storages of inputs come first */
    assert_int_equal(p->storages[0].kind, TOW__S_INPUT);
    tow_program *q = (tow_program *)(uintptr_t)p;
    tow__axis_flow *flow = tow__propagate_axis(q, p->top, &seed, 1, &scratch);
    assert_non_null(flow);
    for (uint32_t k = 0; k < x->n_out; k++) {
        const int found = axis_of_output(p, flow, k);
        if (found != x->expected[axis][k])
            fail_msg("%s, axis %d: output %u: expected %d, found %d", x->name, axis, k, x->expected[axis][k], found);
    }
    assert_true(flow->blocks == 0 || type.dims[axis] % flow->blocks == 0);
    tow__free_axis_flow(q, flow, &seed, 1);
    q->columns = NULL; /* they lie in the scratch memory */
    tow__arena_free(&scratch);
}

static void axes_follow(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        const program *x = &programs[i];
        const tow_type types[] = {tow_make_type(TOW_F32, 3, (int64_t[]){4, 6, 8}), x->more};
        tow_graph *g;
        tow_program *p;
        OK(tow_trace_function(ctx, x->function, NULL, x->more.rank < 0 ? 1 : 2, types, NULL, x->n_out, &g));
        OK(tow_compile(
            ctx, g, &TOW_COMPILE_OPTIONS(.no_fusion = true, .no_regions = true, .plan_only = true, .threads = 1), &p));
        for (int axis = 0; axis < 3; axis++) check_axis(p, x, axis, types[0]);
        tow_program_free(p);
        tow_graph_release(g);
    }
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

/* Of a storage [4, 6] with span 24 (axis 0) and span 6 (axis 1). */
static void views_follow(void **state)
{
    (void)state;
    const struct {
        int64_t dims[2], strides[2], offset, span;
        int axis;
    } cases[] = {
        {{4, 6}, {6, 1}, 0, 24, 0},           /* the whole */
        {{4, 6}, {6, 1}, 0, 6, 1},            /* */
        {{6, 4}, {1, 6}, 0, 24, 1},           /* transposed */
        {{6, 4}, {1, 6}, 0, 6, 0},            /* */
        {{4, 2}, {6, 1}, 3, 24, 0},           /* columns 3 and 4 */
        {{4, 2}, {6, 1}, 3, 6, TOW__WHOLE},   /* which are not all of axis 1 */
        {{4, 2}, {6, 1}, 5, 24, TOW__WHOLE},  /* columns 5 and 6, of which there is none: the next row's */
        {{24, 1}, {1, 1}, 0, 24, 0},          /* merged: axis 0 is the major part */
        {{24, 1}, {1, 1}, 0, 6, TOW__WHOLE},  /* and axis 1 the minor one */
        {{2, 6}, {6, 1}, 0, 24, TOW__WHOLE},  /* two rows of four */
        {{2, 6}, {12, 1}, 0, 24, 0},          /* every other row: one in each half */
        {{2, 2}, {12, 6}, 0, 24, 0},          /* split: the major part */
        {{5, 4}, {0, 6}, 0, 24, 1},           /* repeated */
        {{4, 6}, {-6, 1}, 18, 24, TOW__WHOLE} /* backwards: block 0 is the last */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow__view x = {.type = tow_make_type(TOW_F32, 2, cases[i].dims), .offset = cases[i].offset};
        memcpy(x.strides, cases[i].strides, sizeof cases[i].strides);
        const int axis = tow__axis_of_span(&x, cases[i].span);
        if (axis != cases[i].axis) fail_msg("case %zu: expected %d, found %d", i, cases[i].axis, axis);
    }
}

/* ---- tile groups along another axis than 0 ----------------------------------------------------------------------- */

enum {
    ROWS = 1024,
    WIDTH = 64
};

/* x [1, ROWS, WIDTH], w [WIDTH, 4 WIDTH], v [4 WIDTH, WIDTH]: a feed-forward block on one long sequence. */
static void feed_forward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    const tow_dot_dims last = {.n_contract = 1, .lhs_contract = {2}};
    const tow_value n = tow_mul(in[0], tow_tanh(in[0]));
    const tow_value h = tow_tanh(tow_dot_general(n, in[1], last));
    const tow_value s = tow_softmax(h, 2);
    out[0] = tow_add(in[0], tow_dot_general(s, in[2], last));
}

static bool has_tiles(const tow_program *p)
{
    for (uint32_t i = 0; i < p->top->n_insts; i++)
        if (TOW__COMPUTES(&p->top->insts[i], tile_group)) return true;
    return false;
}

static void run_feed_forward(const tow_graph *g, const char *const *without, int threads, float *result, bool *tiles)
{
    const int64_t dims[][3] = {{1, ROWS, WIDTH}, {WIDTH, 4 * WIDTH}, {4 * WIDTH, WIDTH}};
    tow_array *in[3], *out;
    tow_program *p;
    uint32_t bits = 12345;
    for (int i = 0; i < 3; i++) {
        const tow_type type = tow_make_type(TOW_F32, i ? 2 : 3, dims[i]);
        OK(tow_array_create(ctx, type, &in[i]));
        float *x = tow_array_data(in[i]);
        for (size_t k = 0; k < (size_t)tow_type_element_count(type); k++) {
            bits = bits * 1664525 + 1013904223;
            x[k] = (float)(bits >> 8) / (float)(1 << 24) - 0.5f;
        }
    }
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, 3, dims[0]), &out));
    OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.without = without, .threads = threads), &p));
    OK(tow_program_run(p, in, &out));
    *tiles = has_tiles(p);
    memcpy(result, tow_array_data(out), ROWS * WIDTH * sizeof *result);
    tow_program_free(p);
    for (int i = 0; i < 3; i++) tow_array_release(in[i]);
    tow_array_release(out);
}

static void one_sequence_is_tiled(void **state)
{
    (void)state;
    const tow_type types[] = {tow_make_type(TOW_F32, 3, (int64_t[]){1, ROWS, WIDTH}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){WIDTH, 4 * WIDTH}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){4 * WIDTH, WIDTH})};
    static float whole[ROWS * WIDTH], tiled[ROWS * WIDTH];
    const char *const no_tiles[] = {"tile", NULL};
    tow_graph *g;
    bool tiles;
    OK(tow_trace_function(ctx, feed_forward, NULL, 3, types, NULL, 1, &g));
    run_feed_forward(g, no_tiles, 1, whole, &tiles);
    assert_false(tiles);
    for (int threads = 1; threads <= 3; threads++) {
        run_feed_forward(g, NULL, threads, tiled, &tiles);
        assert_true(tiles);
        assert_memory_equal(whole, tiled, sizeof whole);
    }
    tow_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(axes_follow, setup, teardown),
        cmocka_unit_test(views_follow),
        cmocka_unit_test_setup_teardown(one_sequence_is_tiled, setup, teardown),
    };
    return cmocka_run_group_tests_name("axes", tests, NULL, NULL);
}

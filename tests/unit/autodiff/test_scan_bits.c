/* Gradients of loops have the bits of their iterations written out, whatever the body hands on unchanged: one value to
 * two carries, a carry, an element or a constant to another carry or to results, from one starting value or several.
 * So have loops that a memory limit cuts into runs or whose iterations it groups; it leaves alone those that it cannot
 * cut with these bits, and says why. TOW_EVERY_LOOP in the environment: more lengths and random loops. Tests
 * regions/scan_flow.c, regions/scan_normal.c, regions/scan_sums.c. Tests limit/scan_cuts.c, limit/scan_runs.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/autodiff/limit/limit.h"
#include "src/graph/region.h"
#include "tests/unit/support/counting_allocator.h"
#include "tow/autodiff.h"
#include "tow/ops.h"
#include "tow/program.h"

static tow_context *ctx;
static bool every_loop;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(ctx));                                       \
    } while (0)

enum {
    N = 3,
    CARRIES = 3,
    YS = 2,
    LONGEST = 5,
    INPUTS = 5,
    NUMBERS = 1 + 3 * N + LONGEST * N + N * N
};

/* The values that a body can hand out: its carries, the element, the constant, then values that it makes. */
typedef enum part {
    K0,
    K1,
    K2,
    X,
    C,
    M0,
    M1,
    M2,
    PARTS
} part;

typedef struct shape {
    part carry[CARRIES], y[YS];
    int start[CARRIES]; /* which input each carry starts from */
    int64_t length;
    bool reverse, constant_x; /* xs are a constant of the body, too */
} shape;

typedef struct variant {
    bool loop, remat, nested;
    int64_t unroll; /* then gradients are sums in another order */
    const tow_policy *policy, *around;
    int64_t cut, group; /* the loop in runs: the first `cut` iterations, the rest; in groups of iterations */
    bool forced;        /* also where that is refused */
} variant;

typedef struct program {
    const shape *s;
    const variant *v;
    tow_value c, w, rows; /* outer values that the body uses; rows may be null */
} program;

/* in: k0, k1, k2, x. Every carry has several readers, so that the order of their terms shows. */
static void step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const program *p = user;
    tow_value all[PARTS] = {in[0], in[1], in[2], in[3], p->c};
    (void)t;
    all[M0] = tow_tanh(tow_add(tow_mul(in[0], in[1]), tow_dot(in[2], p->w)));
    all[M1] = tow_add(tow_mul(tow_sin(in[0]), in[1]), tow_mul(in[3], tow_mul(p->c, in[2])));
    all[M2] = tow_mul(tow_add(tow_checkpoint_name(in[2], "k"), tow_mul(in[0], in[3])), tow_sin(tow_add(p->c, in[1])));
    if (!tow_is_null(p->rows)) all[M2] = tow_add(all[M2], tow_reduce_sum(tow_sin(p->rows), 1, (int[]){0}));
    for (int k = 0; k < CARRIES; k++) out[k] = all[p->s->carry[k]];
    for (int y = 0; y < YS; y++) out[CARRIES + y] = all[p->s->y[y]];
}

static void body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const program *p = user;
    if (p->v->remat)
        tow_remat_function(t, step, user, p->v->policy, CARRIES + 1, in, CARRIES + YS, out);
    else
        step(t, in, out, user);
}

static void iterations(tow_trace *t, program *p, tow_value *carry, tow_value xs, tow_value *ys)
{
    int64_t length = p->s->length;
    tow_value rows[YS][LONGEST];
    if (p->v->loop) {
        tow_scan_options options = TOW_SCAN_OPTIONS(.reverse = p->s->reverse, .unroll = p->v->unroll);
        tow_scan_function(t, body, p, &options, CARRIES, carry, 1, &xs, YS, carry, ys);
        return;
    }
    for (int64_t step_index = 0; step_index < length; step_index++) {
        int64_t i = p->s->reverse ? length - 1 - step_index : step_index;
        tow_value in[CARRIES + 1], out[CARRIES + YS];
        memcpy(in, carry, CARRIES * sizeof *in);
        in[CARRIES] = tow_squeeze(tow_slice_axis(xs, 0, i, i + 1), 0);
        body(t, in, out, p);
        memcpy(carry, out, CARRIES * sizeof *out);
        for (int y = 0; y < YS; y++) rows[y][i] = out[CARRIES + y];
    }
    for (int y = 0; y < YS; y++) {
        for (int64_t i = 0; i < length; i++) rows[y][i] = tow_expand_dims(rows[y][i], 0);
        ys[y] = tow_concatenate((size_t)length, rows[y], 0);
    }
}

/* The loop as the body of another one, of two iterations. */
typedef struct nest {
    program *p;
    tow_value xs;
} nest;

static void outer_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    nest *n = user;
    tow_value ys[YS];
    memcpy(out, in, CARRIES * sizeof *out);
    iterations(t, n->p, out, n->xs, ys);
    for (int y = 0; y < YS; y++) out[0] = tow_add(out[0], tow_reduce_sum(tow_sin(ys[y]), 1, (int[]){0}));
}

static tow_value sum(tow_value x) { return tow_reduce_sum(x, 0, NULL); }

/* in: three vectors, xs, W. Everything is used before and after the loop as well. */
static void loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    program p = *(const program *)user;
    tow_value carry[CARRIES], ys[YS] = {{0}, {0}}, total = sum(tow_mul(in[0], tow_mul(in[1], in[2])));
    p.c = tow_sin(in[2]), p.w = in[4];
    if (p.s->constant_x) p.rows = in[3];
    for (int k = 0; k < CARRIES; k++) carry[k] = p.s->start[k] < 3 ? in[p.s->start[k]] : p.c;
    if (p.v->nested) {
        nest n = {&p, in[3]};
        const tow_scan_options twice = TOW_SCAN_OPTIONS(.length = 2, .has_length = true);
        if (p.v->loop) tow_scan_function(t, outer_body, &n, &twice, CARRIES, carry, 0, NULL, 0, carry, NULL);
        for (int i = 0; i < 2 && !p.v->loop; i++) outer_body(t, carry, carry, &n);
    } else {
        iterations(t, &p, carry, in[3], ys);
    }
    for (int y = 0; y < YS && !p.v->nested; y++) total = tow_add(total, sum(tow_sin(tow_mul_scalar(ys[y], y + 0.5))));
    for (int k = 0; k < CARRIES; k++) total = tow_add(total, sum(tow_mul(tow_sin(carry[k]), in[k])));
    total = tow_add(total, sum(tow_sin(in[4])));
    out[0] = tow_add(total, sum(tow_mul(tow_reduce_sum(in[3], 1, (int[]){0}), p.c)));
}

static void input_types(const shape *s, tow_type *types)
{
    const int64_t dims[] = {N, N}, rows[] = {s->length, N};
    for (int i = 0; i < 3; i++) types[i] = tow_make_type(TOW_F32, 1, dims);
    types[3] = tow_make_type(TOW_F32, 2, rows);
    types[4] = tow_make_type(TOW_F32, 2, dims);
}

/* ---- cuts -------------------------------------------------------------------------------------------------------- */

static uint32_t n_cut, n_left; /* loops that were cut, and that were left alone */
static const char *why_left;   /* the last one of these */

static void record_cut(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                       const void *user)
{
    const variant *v = user;
    const tow__scan_params *p = e->params;
    tow__cuts cuts;
    if (!tow__is_loop(e->primitive)) {
        tow__rebind(t, e, x, y);
        return;
    }
    OK(tow__scan_cuts(g, e, &cuts));
    const tow__scan_run runs[] = {{v->cut, p->body, 0}, {p->length - v->cut, p->body, 0}},
                        groups[] = {{p->length, p->body, v->group}};
    const bool cut = v->cut > 0 && v->cut < p->length && (v->forced || !cuts.why_not),
               grouped = v->group > 1 && p->length % v->group == 0 && (v->forced || cuts.groups);
    n_cut += cut || grouped;
    n_left += cuts.why_not != NULL;
    why_left = cuts.why_not;
    if (cut || grouped)
        tow__record_scan_runs(t, e, cut ? runs : groups, cut ? 2 : 1, x, y);
    else
        tow__rebind(t, e, x, y);
}

/* The graph with its loops cut as v says. */
static tow_graph *cut_loops(const tow_graph *g, const variant *v)
{
    tow_graph *result;
    tow_value *x, *y;
    tow_trace *t = tow__trace_begin_over(g, &x, &y);
    assert_non_null(t);
    for (uint32_t i = 0; i < g->n_inputs; i++) x[i] = tow__input(t, g->vars[g->inputs[i]].type, NULL);
    tow__inline_by(t, g, record_cut, v, x, y);
    OK(tow__trace_end(t, g->n_outputs, y, false, &result));
    return result;
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* The loss and all gradients, one after the other. 0: nothing was there to be cut. */
static size_t run(const shape *s, const variant *v, float *numbers)
{
    tow_type types[INPUTS];
    const size_t wrt[INPUTS] = {0, 1, 2, 3, 4};
    input_types(s, types);
    program p = {.s = s, .v = v};
    tow_graph *g, *whole, *gradient;
    tow_array *in[INPUTS], *out[INPUTS + 1];
    OK(tow_trace_function(ctx, loss, &p, INPUTS, types, NULL, 1, &g));
    if (v->around) {
        OK(tow_remat_whole(g, v->around, &whole));
        tow_graph_release(g);
        g = whole;
    }
    if (v->cut || v->group) {
        const uint32_t before = n_cut;
        tow_graph *cut = cut_loops(g, v);
        tow_graph_release(g);
        g = cut;
        if (n_cut == before) {
            tow_graph_release(g);
            return 0;
        }
    }
    OK(tow_value_and_grad(g, INPUTS, wrt, false, &gradient));
    for (uint32_t i = 0, state = 7; i < INPUTS; i++) {
        OK(tow_array_create(ctx, types[i], &in[i]));
        float *f = tow_array_data(in[i]);
        for (int64_t j = 0; j < tow_type_element_count(types[i]); j++) {
            state = state * 1664525u + 1013904223u;
            f[j] = (float)(state >> 8) / 16777216.0F - 0.4F;
        }
    }
    tow_program *plan;
    OK(tow_compile(ctx, gradient, &TOW_COMPILE_OPTIONS(.threads = 1, .no_fusion = true, .no_regions = true), &plan));
    for (int i = 0; i <= INPUTS; i++) OK(tow_array_create(ctx, tow_graph_output_type(gradient, (size_t)i), &out[i]));
    OK(tow_program_run(plan, in, out));
    tow_program_free(plan);
    size_t n = 0;
    for (int i = 0; i <= INPUTS; i++) {
        size_t count = (size_t)tow_type_element_count(tow_array_type(out[i]));
        memcpy(numbers + n, tow_array_data(out[i]), count * sizeof *numbers);
        n += count;
        tow_array_release(out[i]);
    }
    for (int i = 0; i < INPUTS; i++) tow_array_release(in[i]);
    tow_graph_release(gradient);
    tow_graph_release(g);
    return n;
}

static void expect_bits(const shape *s)
{
    const tow_policy nothing = tow_nothing_saveable(), dots = tow_dots_saveable(),
                     named = tow_save_only_these_names("k");
    const variant variants[] = {
        {.loop = true},
        {.loop = true, .remat = true, .policy = &nothing},
        {.loop = true, .remat = true, .policy = &named},
        {.loop = true, .around = &nothing},
        {.loop = true, .remat = true, .policy = &nothing, .around = &dots},
        {.remat = true, .policy = &dots},
        {.loop = true, .unroll = 2, .remat = true, .policy = &nothing},
        {.loop = true, .cut = 1},
        {.loop = true, .remat = true, .policy = &nothing, .cut = s->length - 1},
        {.loop = true, .group = 2},
    };
    for (int nested = 0; nested < 1 + (every_loop || s->reverse); nested++) {
        float plain[NUMBERS], other[NUMBERS];
        const variant unrolled = {.nested = nested};
        size_t n = run(s, &unrolled, plain);
        for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
            variant v = variants[i];
            v.nested = nested;
            const size_t m = run(s, &v, other);
            if (m == 0) continue;
            assert_int_equal(m, n);
            for (size_t j = 0; j < n; j++) {
                assert_true(plain[j] != 0 && plain[j] - plain[j] == 0); /* NaN or zeros would hide a difference */
                if (v.unroll && j > 0) {                                /* sums of at most 60 terms of size 1 */
                    assert_float_equal(plain[j], other[j], 1e-5);
                    continue;
                }
                if (memcmp(&plain[j], &other[j], sizeof *plain) == 0) continue;
                fail_msg("carries %d %d %d, ys %d %d, starts %d %d %d, length %d, reverse %d, nested %d, variant %zu: "
                         "number %zu is %.9g, expected %.9g",
                         s->carry[0], s->carry[1], s->carry[2], s->y[0], s->y[1], s->start[0], s->start[1], s->start[2],
                         (int)s->length, s->reverse, nested, i, j, (double)other[j], (double)plain[j]);
            }
        }
    }
}

static void expect_all_lengths(shape s)
{
    for (s.length = 1; s.length <= LONGEST; s.length += every_loop ? 1 : 2) expect_bits(&s);
    s.length = 3;
    s.reverse = true;
    expect_bits(&s);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static void test_fresh_carries(void **state)
{
    (void)state; /* the starting values are used after the loop, too */
    n_cut = n_left = 0;
    expect_all_lengths((shape){.carry = {M0, M1, M2}, .y = {M0, M1}, .start = {0, 1, 2}});
    assert_true(n_cut > 0 && n_left == 0); /* rows that are states are no obstacle */
    expect_all_lengths((shape){.carry = {M0, M1, M2}, .y = {K0, M2}, .start = {0, 1, 2}});
    assert_true(n_cut > 0 && n_left == 0);
    expect_all_lengths((shape){.carry = {M0, M1, M2}, .y = {M0, M0}, .start = {0, 0, 0}});
    assert_true(n_left > 0);                                                               /* rows of two results are */
    expect_all_lengths((shape){.carry = {M0, M1, M2}, .y = {K0, K0}, .start = {3, 1, 3}}); /* a constant starts two */
}

static void test_one_value_to_two_carries(void **state)
{
    (void)state;
    expect_all_lengths((shape){.carry = {M0, M0, M1}, .y = {M1, M2}, .start = {0, 1, 2}});
    expect_all_lengths((shape){.carry = {M0, M0, M0}, .y = {M0, K1}, .start = {0, 0, 2}});
    expect_all_lengths((shape){.carry = {X, X, M1}, .y = {X, M2}, .start = {0, 1, 1}});
}

static void test_carries_handed_on(void **state)
{
    (void)state;
    n_cut = n_left = 0;
    expect_all_lengths((shape){.carry = {M0, K0, K1}, .y = {M1, M2}, .start = {0, 1, 2}}); /* no rows of carries */
    assert_true(n_cut > 0 && n_left == 0);
    expect_all_lengths((shape){.carry = {M0, K0, K1}, .y = {M0, K1}, .start = {0, 1, 2}});
    expect_all_lengths((shape){.carry = {M2, K0, K0}, .y = {K2, M1}, .start = {0, 1, 1}});
    expect_all_lengths((shape){.carry = {X, K0, K1}, .y = {K0, K0}, .start = {2, 1, 0}});
    expect_all_lengths((shape){.carry = {K0, K0, M1}, .y = {K0, K1}, .start = {0, 1, 2}}); /* never changes */
    expect_all_lengths((shape){.carry = {K1, K0, M1}, .y = {K1, K0}, .start = {0, 1, 2}}); /* change places */
    expect_all_lengths((shape){.carry = {K1, K2, K0}, .y = {M0, K2}, .start = {0, 1, 2}});
    expect_all_lengths((shape){.carry = {K1, K0, K1}, .y = {K2, M2}, .start = {0, 1, 2}});
}

static void test_constants_handed_on(void **state)
{
    (void)state;
    expect_all_lengths((shape){.carry = {C, M0, M1}, .y = {M0, K0}, .start = {0, 1, 2}});
    expect_all_lengths((shape){.carry = {C, K0, M1}, .y = {C, K1}, .start = {0, 1, 2}});
    expect_all_lengths((shape){.carry = {C, C, K0}, .y = {C, C}, .start = {0, 3, 3}});
}

static void test_xs_that_are_constants(void **state)
{
    (void)state;
    expect_all_lengths((shape){.carry = {M0, M1, M2}, .y = {M2, X}, .start = {0, 1, 2}, .constant_x = true});
    expect_all_lengths((shape){.carry = {X, K0, M2}, .y = {X, K1}, .start = {0, 1, 1}, .constant_x = true});
}

/* Any of them at once. Carries that change places start from different values here. */
static void test_random_shapes(void **state)
{
    (void)state;
    uint32_t seed = 2024;
    for (int i = 0; i < (every_loop ? 150 : 20); i++) {
        uint32_t r[CARRIES + YS + CARRIES + 2];
        shape s = {.length = 1 + i % LONGEST};
        for (size_t j = 0; j < sizeof r / sizeof *r; j++) {
            seed = seed * 1664525u + 1013904223u;
            r[j] = seed >> 12;
        }
        bool different = i % 2;
        for (uint32_t k = 0; k < CARRIES; k++) {
            s.carry[k] = (part)(r[k] % PARTS);
            if (!different && s.carry[k] < k) s.carry[k] = (part)(K0 + k); /* no rings but of one */
            s.start[k] = different ? (int)((k + r[CARRIES + YS]) % 3) : (int)(r[CARRIES + YS + k] % 4);
        }
        for (int y = 0; y < YS; y++) s.y[y] = (part)(r[CARRIES + y] % PARTS);
        s.reverse = r[CARRIES + YS + CARRIES] % 2;
        s.constant_x = r[CARRIES + YS + CARRIES + 1] % 4 == 0;
        expect_bits(&s);
    }
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

/* The plan within a limit that all plans keep, and the error of one that none keeps, say why the loop is not cut. */
static void expect_reason(const shape *s, const char *reason)
{
    const variant plain = {.loop = true};
    const size_t wrt[INPUTS] = {0, 1, 2, 3, 4};
    program p = {.s = s, .v = &plain};
    tow_type types[INPUTS];
    tow_graph *g, *gradient;
    tow_program *plan;
    char line[256];
    input_types(s, types);
    OK(tow_trace_function(ctx, loss, &p, INPUTS, types, NULL, 1, &g));
    OK(tow_value_and_grad(g, INPUTS, wrt, false, &gradient));
    tow_compile_options options = TOW_COMPILE_OPTIONS(.plan_only = true, .memory_limit = SIZE_MAX);
    OK(tow_compile(ctx, gradient, &options, &plan));
    const size_t length = tow_program_text(plan, NULL, 0);
    char *text = malloc(length + 1);
    assert_non_null(text);
    tow_program_text(plan, text, length + 1);
    snprintf(line, sizeof line, "the scan of %d iterations", (int)s->length);
    if (!strstr(text, line)) fail_msg("expected \"%s\", found %s", line, text);
    snprintf(line, sizeof line, " is not cut into runs: %s, whose cotangents would be summed in another order\n",
             reason);
    if (!strstr(text, line)) fail_msg("expected \"%s\", found %s", line, text);
    free(text);
    tow_program_free(plan);
    options.memory_limit = 1;
    assert_int_equal(tow_compile(ctx, gradient, &options, &plan), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), line));
    tow_graph_release(gradient);
    tow_graph_release(g);
}

/* For every reason there is a loop whose bits would move if it were cut in the middle, or grouped. */
static void test_refusals(void **state)
{
    static const struct {
        const char *reason; /* NULL: only groups are refused */
        shape s;
    } refused[] = {
        {"a carry becomes a constant", {.carry = {K0, C, M1}, .y = {K1, M0}, .start = {1, 2, 0}, .length = 4}},
        {"two carries hold one value", {.carry = {K2, M1, M1}, .y = {M1, M0}, .start = {0, 1, 2}, .length = 4}},
        {"carries change places", {.carry = {K2, M2, K0}, .y = {K2, X}, .start = {2, 0, 1}, .length = 4}},
        {"rows of a result hold a constant", {.carry = {K0, M1, M2}, .y = {C, K0}, .start = {1, 2, 0}, .length = 4}},
        {"rows of a result hold the value of carries of several iterations",
         {.carry = {K2, M0, K1}, .y = {M2, K1}, .start = {0, 1, 2}, .length = 4}},
        {"rows of two results hold the value of one carry",
         {.carry = {M2, M1, K2}, .y = {M2, M2}, .start = {0, 1, 2}, .length = 3, .constant_x = true}},
        {"one value is two of its operands",
         {.carry = {M1, M2, M0}, .y = {M1, X}, .start = {0, 1, 2}, .length = 3, .constant_x = true}},
        {NULL, {.carry = {M0, M1, X}, .y = {K2, M1}, .start = {0, 1, 2}, .length = 4}},
    };
    int same = 0;
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const shape *s = &refused[i].s;
        const char *reason = refused[i].reason;
        variant plain = {0}, asked = {.loop = true}, forced;
        float expected[NUMBERS], moved[NUMBERS];
        if (reason)
            asked.cut = s->length / 2;
        else
            asked.group = 2;
        forced = asked;
        forced.forced = true;
        why_left = NULL;
        assert_int_equal(run(s, &asked, moved), 0);
        if (reason) assert_string_equal(why_left, reason);
        const size_t n = run(s, &plain, expected);
        assert_int_equal(run(s, &forced, moved), n);
        same += memcmp(expected, moved, n * sizeof *moved) == 0;
        /* the matrix unit sums the few numbers of one of these alike in either order */
        if (same > (getenv("TOW_ENGINE") ? 1 : 0)) fail_msg("%s: the same bits", reason ? reason : "groups");
        if (reason) expect_reason(s, reason);
    }
}

/* ---- regions that give one value twice --------------------------------------------------------------------------- */

/* The carry and the row are two results of the region. */
static const char doubled[] =
    "{ lambda ; a:f32[8,3,16] w:f32[16,16] h:f32[3,16]. let\n"
    "    c:f32[3,16] y:f32[8,3,16] = scan[length=8 consts=1 carry=1 body={ lambda ; w:f32[16,16] h:f32[3,16] "
    "x:f32[3,16]. let\n"
    "        d:f32[3,16] e:f32[3,16] = remat[policy=\"nothing\" body={ lambda ; w:f32[16,16] h:f32[3,16] x:f32[3,16]. "
    "let\n"
    "            p:f32[3,16] = dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()] h w\n"
    "            s:f32[3,16] = add p x\n"
    "            t:f32[3,16] = tanh s\n"
    "            m:f32[3,16] = mul t h\n"
    "            u:f32[3,16] = add m x\n"
    "          in (u, u) }] w h x\n"
    "      in (d, e) }] w h a\n"
    "    z:f32[8,3,16] = sin y\n"
    "    r:f32[] = reduce_sum[axes=(0,1,2)] z\n"
    "  in (r) }\n";

/* Gradients within all limits of the curve, which cut the loop. */
static void test_doubled_results(void **state)
{
    (void)state;
    static const size_t wrt[3] = {0, 1, 2};
    enum {
        MOST_POINTS = 16,
        RESULTS = 4
    };
    tow_graph *g, *gradient;
    tow_array *in[3], *out[RESULTS], *expected[RESULTS];
    tow_memory_point points[MOST_POINTS];
    size_t n, cuts = 0;
    OK(tow_graph_parse(ctx, doubled, &g));
    OK(tow_value_and_grad(g, 3, wrt, false, &gradient));
    for (int i = 0; i < 3; i++) {
        OK(tow_array_create(ctx, tow_graph_input_type(g, (size_t)i), &in[i]));
        const int64_t count = tow_type_element_count(tow_array_type(in[i]));
        for (int64_t k = 0; k < count; k++) ((float *)tow_array_data(in[i]))[k] = 0.3F * sinf((float)(7 * k + i));
    }
    OK(tow_evaluate(gradient, in, expected));
    tow_compile_options options = TOW_COMPILE_OPTIONS(.threads = 1);
    OK(tow_memory_curve(ctx, gradient, &options, MOST_POINTS, points, &n));
    for (size_t p = 0; p < n; p++) {
        tow_program *plan;
        options.memory_limit = points[p].bytes;
        OK(tow_compile(ctx, gradient, &options, &plan));
        for (size_t i = 0; i < RESULTS; i++) OK(tow_array_create(ctx, tow_graph_output_type(gradient, i), &out[i]));
        OK(tow_program_run(plan, in, out));
        cuts += tow_program_operation_count(plan, "scan") > 2;
        for (size_t i = 0; i < RESULTS; i++) {
            if (memcmp(tow_array_data(out[i]), tow_array_data(expected[i]), tow_type_bytes(tow_array_type(out[i]))) !=
                0)
                fail_msg("within %zu bytes, result %zu has other bits", points[p].bytes, i);
            tow_array_release(out[i]);
        }
        tow_program_free(plan);
    }
    assert_true(cuts > 0);
    for (int i = 0; i < 3; i++) tow_array_release(in[i]);
    for (size_t i = 0; i < RESULTS; i++) tow_array_release(expected[i]);
    tow_graph_release(gradient);
    tow_graph_release(g);
}

/* ---- allocations failing: a sample --------------------------------------------------------------------------- */

static void fail_allocations(const shape *s)
{
    const tow_policy nothing = tow_nothing_saveable();
    const variant v = {.loop = true, .remat = true, .policy = &nothing};
    const size_t wrt[INPUTS] = {0, 1, 2, 3, 4};
    program p = {.s = s, .v = &v};
    tow_type types[INPUTS];
    tow_status status = TOW_OUT_OF_MEMORY;
    input_types(s, types);
    for (long n = 0; status != TOW_OK; n += 1 + n / 40) { /* every one at first, then a growing sample */
        counting count;
        tow_context_options options = counting_options(&count, n);
        tow_context *c;
        tow_graph *g = NULL, *gradient = NULL;
        status = tow_context_create(&options, &c);
        if (status == TOW_OK) {
            status = tow_trace_function(c, loss, &p, INPUTS, types, NULL, 1, &g);
            if (status == TOW_OK) status = tow_value_and_grad(g, INPUTS, wrt, false, &gradient);
            tow_graph_release(gradient);
            tow_graph_release(g);
            tow_context_free(c);
        }
        assert_true(status == TOW_OUT_OF_MEMORY || (status == TOW_OK && count.calls <= n));
        assert_int_equal(count.blocks, 0);
        assert_int_equal(count.wrong_sizes, 0);
    }
}

static void test_allocation_failures(void **state)
{
    (void)state;
    fail_allocations(
        &(shape){.carry = {M0, K0, K0}, .y = {K2, C}, .start = {0, 1, 1}, .length = 5, .constant_x = true});
    fail_allocations(&(shape){.carry = {K1, K0, M1}, .y = {K1, M1}, .start = {0, 1, 2}, .length = 3, .reverse = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fresh_carries),
        cmocka_unit_test(test_one_value_to_two_carries),
        cmocka_unit_test(test_carries_handed_on),
        cmocka_unit_test(test_constants_handed_on),
        cmocka_unit_test(test_xs_that_are_constants),
        cmocka_unit_test(test_random_shapes),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_doubled_results),
        cmocka_unit_test(test_allocation_failures),
    };
    every_loop = getenv("TOW_EVERY_LOOP") != NULL;
    if (tow_context_create(NULL, &ctx) != TOW_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tow_context_free(ctx);
    return failed;
}

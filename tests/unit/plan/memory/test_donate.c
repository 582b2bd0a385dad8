/* Donated inputs: results in place of inputs have the bits of results in arrays of their own, take no memory where the
 * old value is read for the last time as the new one is written, and a copy at the end where it is read later. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/threaded_context.h"
#include "tow/graph.h"
#include "tow/program.h"

enum {
    MOST = 6
};

typedef struct graph_case {
    const char *name, *text;
    tow_donation donations[3];
    size_t n;
    uint64_t copies; /* with fusion and on one thread: how many of the new values cannot be made in place */
    bool no_arena;
} graph_case;

static const graph_case cases[] = {
    {"an update, element by element",
     "{ lambda ; p:f32[40,50] m:f32[40,50] v:f32[40,50] g:f32[40,50]. let\n"
     "    b:f32[40,50] = silu g\n"
     "    mu:f32[40,50] = add m b\n"
     "    d:f32[40,50] = mul g g\n"
     "    nu:f32[40,50] = add v d\n"
     "    r:f32[40,50] = sqrt nu\n"
     "    u:f32[40,50] = div mu r\n"
     "    q:f32[40,50] = sub p u\n"
     "  in (q, mu, nu) }",
     {{0, 0}, {1, 1}, {2, 2}},
     3,
     0,
     true},
    {"a row of a cache",
     "{ lambda ; cache:f32[64,8] x:f32[1,8] at:i32[] zero:i32[]. let\n"
     "    y:f32[64,8] = dynamic_update_slice cache x at zero\n"
     "    s:f32[8] = reduce_sum[axes=(0)] y\n"
     "  in (y, s) }",
     {{0, 0}},
     1,
     0,
     false},
    {"an old value that is read after the new one is there",
     "{ lambda ; x:f32[16,16]. let\n"
     "    y:f32[16,16] = dot_general[lhs_contract=(1) rhs_contract=(0)] x x\n"
     "    z:f32[16,16] = dot_general[lhs_contract=(1) rhs_contract=(0)] y x\n"
     "  in (y, z) }",
     {{0, 0}},
     1,
     1,
     false},
    {"arrays that change places",
     "{ lambda ; a:f32[5,3] b:f32[5,3]. let\n"
     "  in (b, a) }",
     {{0, 0}, {1, 1}},
     2,
     3,
     false},
    {"an array that stays",
     "{ lambda ; a:f32[5,3] b:f32[5,3]. let\n"
     "    c:f32[5,3] = add a b\n"
     "  in (c, a) }",
     {{1, 0}},
     1,
     0,
     false},
    {"a transpose in place",
     "{ lambda ; a:f32[7,7]. let\n"
     "    b:f32[7,7] = transpose[permutation=(1,0)] a\n"
     "  in (b) }",
     {{0, 0}},
     1,
     2,
     false},
    {"a carry that begins with the input",
     "{ lambda ; h:f32[3] x:f32[5,3]. let\n"
     "    k:f32[3] = scan[length=5 reverse=false consts=0 carry=1\n"
     "      body={ lambda ; h:f32[3] x:f32[3]. let n:f32[3] = mul h x in (n) }] h x\n"
     "  in (k) }",
     {{0, 0}},
     1,
     0,
     false},
    {"stacked caches, of which each iteration changes a row",
     "{ lambda ; cache:f32[6,9,4] h:f32[1,4] at:i32[] zero:i32[]. let\n"
     "    k:f32[1,4] c:f32[6,9,4] = scan[length=6 reverse=false consts=2 carry=1\n"
     "      body={ lambda ; at:i32[] zero:i32[] h:f32[1,4] c:f32[9,4]. let\n"
     "          d:f32[9,4] = dynamic_update_slice c h at zero\n"
     "          s:f32[4] = reduce_sum[axes=(0)] d\n"
     "          t:f32[1,4] = reshape[shape=(1,4)] s\n"
     "          n:f32[1,4] = tanh t\n"
     "        in (n, d) }] at zero h cache\n"
     "  in (c, k) }",
     {{0, 0}},
     1,
     0,
     false},
    {"rows that an iteration reads after it has written the new ones",
     "{ lambda ; x:f32[6,4,4] h:f32[4,4]. let\n"
     "    k:f32[4,4] y:f32[6,4,4] = scan[length=6 reverse=true consts=0 carry=1\n"
     "      body={ lambda ; h:f32[4,4] x:f32[4,4]. let\n"
     "          d:f32[4,4] = dot_general[lhs_contract=(1) rhs_contract=(0)] h x\n"
     "          n:f32[4,4] = dot_general[lhs_contract=(1) rhs_contract=(0)] d x\n"
     "          t:f32[4,4] = tanh n\n"
     "        in (t, d) }] h x\n"
     "  in (y, k) }",
     {{0, 0}},
     1,
     1,
     false},
    {"no elements",
     "{ lambda ; a:f32[0,3] b:f32[3]. let\n"
     "    c:f32[0,3] = neg a\n"
     "  in (c, b) }",
     {{0, 0}, {1, 1}},
     2,
     0,
     false},
};

static void fill(tow_array *x, size_t which)
{
    const tow_type type = tow_array_type(x);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        if (type.dtype == TOW_I32)
            ((int32_t *)tow_array_data(x))[i] = which == 2 ? 5 : 0;
        else
            ((float *)tow_array_data(x))[i] = 0.3f + 0.1f * (float)(which + 1) + 0.01f * (float)i;
    }
}

static tow_program *compile(const graph_case *c, const tow_graph *g, tow_compile_options options, bool donates)
{
    tow_program *p;
    options.donations = c->donations;
    options.n_donations = donates ? c->n : 0;
    if (tow_compile(ctx, g, &options, &p) != TOW_OK) fail_msg("%s: %s", c->name, tow_context_error(ctx));
    if (tow_program_check(p) != TOW_OK) fail_msg("%s: %s", c->name, tow_context_error(ctx));
    return p;
}

static void expect_case(const graph_case *c, const tow_graph *g, tow_compile_options options, bool plain)
{
    tow_array *x[MOST], *y[MOST], *z[MOST];
    const size_t n_in = tow_graph_input_count(g), n_out = tow_graph_output_count(g);
    tow_program *apart = compile(c, g, options, false), *in_place = compile(c, g, options, true);
    for (size_t i = 0; i < n_in; i++) {
        OK(tow_array_create(ctx, tow_graph_input_type(g, i), &x[i]));
        fill(x[i], i);
    }
    for (size_t i = 0; i < n_out; i++) {
        OK(tow_array_create(ctx, tow_graph_output_type(g, i), &y[i]));
        z[i] = y[i];
    }
    OK(tow_program_run(apart, x, y));
    for (size_t i = 0; i < n_out; i++) OK(tow_array_create(ctx, tow_graph_output_type(g, i), &z[i]));
    for (size_t i = 0; i < c->n; i++) {
        tow_array_release(z[c->donations[i].output]);
        z[c->donations[i].output] = NULL;
    }
    OK(tow_program_run(in_place, x, z));
    for (size_t i = 0; i < c->n; i++) z[c->donations[i].output] = tow_array_retain(x[c->donations[i].input]);
    for (size_t i = 0; i < n_out; i++)
        if (memcmp(tow_array_data(y[i]), tow_array_data(z[i]), tow_type_bytes(tow_array_type(y[i]))) != 0)
            fail_msg("%s: output %zu differs", c->name, i);
    if (plain && tow_program_operation_count(in_place, "copy") != c->copies)
        fail_msg("%s: expected %d copies, found %d", c->name, (int)c->copies,
                 (int)tow_program_operation_count(in_place, "copy"));
    const tow_program_bytes a = tow_program_get_bytes(apart), b = tow_program_get_bytes(in_place);
    size_t donated = 0;
    for (size_t i = 0; i < c->n; i++) donated += tow_type_bytes(tow_graph_input_type(g, c->donations[i].input));
    assert_int_equal(a.outputs, b.outputs + donated);
    if (plain && c->no_arena) assert_int_equal(b.arena, 0);
    for (size_t i = 0; i < n_in; i++) tow_array_release(x[i]);
    for (size_t i = 0; i < n_out; i++) {
        tow_array_release(y[i]);
        tow_array_release(z[i]);
    }
    tow_program_free(apart);
    tow_program_free(in_place);
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        tow_graph *g;
        if (tow_graph_parse(ctx, cases[n].text, &g) != TOW_OK)
            fail_msg("%s: %s", cases[n].name, tow_context_error(ctx));
        for (int way = 0; way < 8; way++)
            expect_case(
                &cases[n], g,
                TOW_COMPILE_OPTIONS(.threads = 1 + way % 2, .no_fusion = way / 2 % 2 == 1, .no_regions = way / 4 == 1),
                way == 0);
        tow_graph_release(g);
    }
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void expect_refusal(const tow_graph *g, const tow_compile_options *options, tow_status status, const char *text)
{
    tow_program *p = NULL;
    assert_int_equal(tow_compile(ctx, g, options, &p), status);
    assert_null(p);
    if (!strstr(tow_context_error(ctx), text)) fail_msg("expected '%s' in '%s'", text, tow_context_error(ctx));
}

static void test_refusals(void **state)
{
    (void)state;
    static const char text[] = "{ lambda ; a:f32[3] b:f32[3] c:f64[3]. let\n"
                               "    d:f32[3] = add a b\n"
                               "    e:f32[3] = mul a b\n"
                               "  in (d, e) }";
    static const struct {
        tow_donation donations[2];
        size_t n;
        tow_status status;
        const char *message;
    } bad[] = {
        {{{2, 0}},
         1,
         TOW_INVALID_ARGUMENT,
         "expected one of 2 outputs and one of 3 inputs, found output 2 and input 0"},
        {{{0, 3}}, 1, TOW_INVALID_ARGUMENT, "found output 0 and input 3"},
        {{{0, 0}, {0, 1}}, 2, TOW_INVALID_ARGUMENT, "donation 1: output 0 goes to another input"},
        {{{0, 0}, {1, 0}}, 2, TOW_INVALID_ARGUMENT, "donation 1: input 0 is overwritten by another output"},
        {{{1, 2}}, 1, TOW_TYPE_MISMATCH, "expected an output and an input of one type, found f32[3] and f64[3]"},
    };
    tow_graph *g;
    OK(tow_graph_parse(ctx, text, &g));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(g, &TOW_COMPILE_OPTIONS(.donations = bad[i].donations, .n_donations = bad[i].n), bad[i].status,
                       bad[i].message);
    expect_refusal(g, &TOW_COMPILE_OPTIONS(.n_donations = 1), TOW_INVALID_ARGUMENT, "donations is NULL");
    tow_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cases, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
    };
    return cmocka_run_group_tests_name("donate", tests, NULL, NULL);
}

/* Outputs that consumers take: results are as if all of them were there before the first consumer overwrites its input,
 * however inputs, their views and rows of them meet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/threaded_context.h"
#include "tow/autodiff.h"
#include "tow/graph.h"
#include "tow/program.h"

enum {
    MOST = 6
};

/* Keeps what it gets, and overwrites the same elements of the input. */
typedef struct taker {
    float *kept, *input;
    int64_t pieces;
} taker;

static void take(void *user, int64_t first, int64_t count, const void *data)
{
    taker *t = user;
    memcpy(t->kept + first, data, (size_t)count * sizeof(float));
    for (int64_t i = first; i < first + count; i++) t->input[i] = -77;
    t->pieces++;
}

typedef struct pair {
    size_t output, input;
} pair;

typedef struct graph_case {
    const char *name, *text;
    bool gradient;
    pair pairs[3];
    size_t n;
    int64_t pieces; /* in which the first consumer gets its output */
} graph_case;

#define SCAN(results, length, consts, carry, body, operands)                                                           \
    results " = scan[length=" length " reverse=false consts=" consts " carry=" carry "\n      body={ lambda ; " body   \
            " }] " operands "\n"

static const graph_case cases[] = {
    {"parameters change places",
     "{ lambda ; a:f32[3,3] b:f32[3,3] c:f32[3,3]. let\n"
     "    d:f32[3,3] = transpose[permutation=(1,0)] c\n"
     "    e:f32[3,3] = neg a\n"
     "  in (b, a, d, e) }",
     false,
     {{0, 0}, {1, 1}, {2, 2}},
     3,
     1},
    {"two consumers of one input",
     "{ lambda ; a:f32[3,3] b:f32[3,3]. let\n"
     "    c:f32[3,3] = add a b\n"
     "    d:f32[3,3] = mul a b\n"
     "  in (c, a, d) }",
     false,
     {{0, 0}, {1, 0}, {2, 1}},
     3,
     1},
    {"a function of the input that is needed after the loop",
     "{ lambda ; h:f32[3] x:f32[4,3] w:f32[4,3]. let\n"
     "    s:f32[4,3] = sin x\n" SCAN("    k:f32[3] y:f32[4,3]", "4", "0", "1",
                                     "h:f32[3] x:f32[3]. let n:f32[3] = add h x t:f32[3] = sin n in (n, t)",
                                     "h x") "    p:f32[4,3] = mul s w\n"
                                            "  in (y, p, k) }",
     false,
     {{0, 1}},
     1,
     4},
    {"the same in a gradient",
     "{ lambda ; h:f32[3] x:f32[4,3] w:f32[4,3]. let\n"
     "    z:f32[4,3] = stop_gradient x\n"
     "    s:f32[4,3] = sin z\n"
     "    p:f32[4,3] = mul s w\n"
     "    a:f32[] = reduce_sum[axes=(0,1)] p\n" SCAN(
         "    k:f32[3] y:f32[4,3]", "4", "0", "1",
         "h:f32[3] x:f32[3]. let n:f32[3] = mul h x t:f32[3] = sin n in (t, n)",
         "h x") "    b:f32[] = reduce_sum[axes=(0)] k\n"
                "    loss:f32[] = add a b\n"
                "  in (loss) }",
     true,
     {{1, 1}},
     1,
     4},
    {"rows of one input that go where those of another are",
     "{ lambda ; h:f32[2,2] x:f32[4,2,2] y:f32[4,2,2]. let\n" SCAN(
         "    k:f32[2,2] p:f32[4,2,2] q:f32[4,2,2]", "4", "0", "1",
         "h:f32[2,2] x:f32[2,2] y:f32[2,2]. let n:f32[2,2] = add h x\n"
         "        a:f32[2,2] = transpose[permutation=(1,0)] y b:f32[4] = reshape[shape=(4)] x\n"
         "        c:f32[2,2] = reshape[shape=(2,2)] b in (n, a, c)",
         "h x y") "  in (p, q, k) }",
     false,
     {{0, 1}, {1, 2}},
     2,
     4},
    {"an input that an earlier loop hands through",
     "{ lambda ; h:f32[3] x:f32[4,3] z:f32[5,3]. let\n" SCAN(
         "    m:f32[3] v:f32[4,3]", "5", "0", "2", "h:f32[3] k:f32[4,3] z:f32[3]. let n:f32[3] = add h z in (n, k)",
         "h x z")
         SCAN("    k:f32[3] y:f32[4,3]", "4", "0", "1",
              "h:f32[3] x:f32[3]. let n:f32[3] = add h x t:f32[3] = sin n in (n, t)", "m x") "    s:f32[4,3] = neg v\n"
                                                                                             "  in (y, s, k, v) }",
     false,
     {{0, 1}},
     1,
     1},
    {"an input whose rows a loop reads twice",
     "{ lambda ; h:f32[3] x:f32[4,3]. let\n" SCAN(
         "    k:f32[3] y:f32[4,3]", "4", "0", "1",
         "h:f32[3] x:f32[3] z:f32[3]. let t:f32[3] = sin h n:f32[3] = add h x m:f32[3] = mul n z in (m, t)",
         "h x x") "  in (y, k) }",
     false,
     {{0, 1}},
     1,
     1},
};

static tow_graph *graph_of(const graph_case *c)
{
    tow_graph *g, *gradient;
    if (tow_graph_parse(ctx, c->text, &g) != TOW_OK) fail_msg("%s: %s", c->name, tow_context_error(ctx));
    if (!c->gradient) return g;
    OK(tow_grad(g, 3, (size_t[]){0, 1, 2}, false, &gradient));
    tow_graph_release(g);
    return gradient;
}

static void fill(tow_array *x, size_t which)
{
    for (int64_t i = 0; i < tow_type_count(tow_array_type(x)); i++)
        ((float *)tow_array_data(x))[i] = 0.3f + 0.1f * (float)(which + 1) + 0.01f * (float)i;
}

/* Fills inputs and runs; outputs that are taken land in y as well. */
static void run(const graph_case *c, const tow_graph *g, tow_compile_options options, bool takes, tow_array **x,
                tow_array **y)
{
    taker takers[3] = {{0}};
    tow_consumer consumers[3];
    tow_program *p;
    for (size_t i = 0; i < tow_graph_inputs(g); i++) fill(x[i], i);
    for (size_t i = 0; i < c->n; i++) {
        takers[i] = (taker){tow_array_data(y[c->pairs[i].output]), tow_array_data(x[c->pairs[i].input]), 0};
        consumers[i] = (tow_consumer){c->pairs[i].output, c->pairs[i].input, take, &takers[i]};
    }
    options.consumers = consumers;
    options.n_consumers = takes ? c->n : 0;
    if (tow_compile(ctx, g, &options, &p) != TOW_OK) fail_msg("%s: %s", c->name, tow_context_error(ctx));
    if (tow_program_check(p) != TOW_OK) fail_msg("%s: %s", c->name, tow_context_error(ctx));
    OK(tow_program_run(p, x, y));
    if (takes) assert_int_equal(takers[0].pieces, c->pieces);
    tow_program_free(p);
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        tow_graph *g = graph_of(&cases[n]);
        tow_array *x[MOST], *y[MOST], *z[MOST];
        size_t n_in = tow_graph_inputs(g), n_out = tow_graph_outputs(g);
        assert_true(n_in <= MOST && n_out <= MOST);
        for (size_t i = 0; i < n_in; i++) OK(tow_array_create(ctx, tow_graph_input_type(g, i), &x[i]));
        for (size_t i = 0; i < n_out; i++) {
            OK(tow_array_create(ctx, tow_graph_output_type(g, i), &y[i]));
            OK(tow_array_create(ctx, tow_graph_output_type(g, i), &z[i]));
        }
        run(&cases[n], g, (tow_compile_options){0}, false, x, y);
        for (int way = 0; way < 8; way++) {
            tow_compile_options options = {
                .threads = 1 + way % 2, .no_fusion = way / 2 % 2 == 1, .no_regions = way / 4 == 1};
            for (size_t i = 0; i < n_out; i++) memset(tow_array_data(z[i]), 0x7e, tow_type_bytes(tow_array_type(z[i])));
            run(&cases[n], g, options, true, x, z);
            for (size_t i = 0; i < n_out; i++)
                if (memcmp(tow_array_data(y[i]), tow_array_data(z[i]), tow_type_bytes(tow_array_type(y[i]))) != 0)
                    fail_msg("%s: output %zu differs, way %d", cases[n].name, i, way);
        }
        for (size_t i = 0; i < n_in; i++) tow_array_release(x[i]);
        for (size_t i = 0; i < n_out; i++) {
            tow_array_release(y[i]);
            tow_array_release(z[i]);
        }
        tow_graph_release(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cases, setup, teardown),
    };
    return cmocka_run_group_tests_name("output_sink", tests, NULL, NULL);
}

/* long-test: planning takes time and memory in proportion to the program, but for logarithms. Long programs of several
 * shapes, and their gradients, are planned, checked and printed; eight times as many equations take less than sixteen
 * times the memory and 22 times the time. What is quadratic takes 64 times as much, as far as it counts.
 *
 * Bytes are counted by the allocator. Time is the processor's for this process; the least of several attempts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tow/autodiff.h"
#include "tow/program.h"

enum {
    LINKS = 1500, /* of the shorter chain */
    LONGER = 8,   /* times as many has the longer one */
    /* What grows linearly grows LONGER times, what grows quadratically LONGER^2 times; this is between the two. The shorter
     * chain fits into caches and the longer one does not, which costs up to twice the time. */
    BOUND = 22,
    ATTEMPTS = 3
};

/* A chain: link i makes y<i> of y<i - 1>, x is y0. Formats get the numbers of the new and the old value, in turn. */
typedef struct shape {
    const char *name, *type, *link;
} shape;

#define DOT "dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()]"

static const shape shapes[] = {
    {"scans", "f32[8,8]",
     " s%d:f32[8,8] = scan[length=3 reverse=false consts=0 carry=1 body={ lambda ; h:f32[8,8]. let\n"
     "  a:f32[8,8] = tanh h\n  b:f32[8,8] = mul a h in (b) }] y%d\n y%d:f32[8,8] = sin s%d\n"},
    {"elementwise", "f32[64,64]", " s%d:f32[64,64] = sin y%d\n y%d:f32[64,64] = mul s%d x\n"},
    {"products", "f32[8,8]", " s%d:f32[8,8] = " DOT " y%d x\n y%d:f32[8,8] = tanh s%d\n"},
    {"calls", "f32[64,64]",
     " s%d:f32[64,64] = call[name=\"f\" body={ lambda ; x:f32[64,64]. let a:f32[64,64] = sin x in (a) }] y%d\n"
     " y%d:f32[64,64] = tanh s%d\n"},
    {"recomputation", "f32[8,8]",
     " s%d:f32[8,8] = remat[policy=\"nothing\" differentiated=false body={ lambda ; x:f32[8,8]. let\n"
     "  a:f32[8,8] = tanh x\n  b:f32[8,8] = sin a in (b) }] y%d\n y%d:f32[8,8] = tanh s%d\n"},
    {"slices", "f32[8,8]",
     " s%d:f32[4,8] = slice[start=(2,0) limit=(6,8) stride=(1,1)] y%d\n"
     " y%d:f32[8,8] = concatenate[axis=0] s%d s%d\n"},
    {"reductions", "f32[8,64]",
     " s%d:f32[8] = reduce_sum[axes=(1)] y%d\n t%d:f32[8,64] = broadcast_in_dim[shape=(8,64) axes=(0)] s%d\n"
     " y%d:f32[8,64] = mul t%d x\n"},
};

static char *add_link(char *at, size_t size, const shape *s, int i)
{
    const int old = i - 1;
    int n = strcmp(s->name, "slices") == 0       ? snprintf(at, size, s->link, i, old, i, i, i)
            : strcmp(s->name, "reductions") == 0 ? snprintf(at, size, s->link, i, old, i, i, i, i)
                                                 : snprintf(at, size, s->link, i, old, i, i);
    assert_true(n > 0 && (size_t)n < size);
    return at + n;
}

static tow_graph *make_chain(tow_context *ctx, const shape *s, int links)
{
    size_t size = 512 * (size_t)(links + 1);
    char *text = malloc(size), *at = text;
    tow_graph *graph = NULL;
    assert_non_null(text);
    at += snprintf(at, size, "{ lambda ; x:%s. let\n y0:%s = neg x\n", s->type, s->type);
    for (int i = 1; i <= links; i++) at = add_link(at, size - (size_t)(at - text), s, i);
    snprintf(at, size - (size_t)(at - text), " z:f32[] = reduce_sum[axes=(0,1)] y%d\n in (z) }\n", links);
    if (tow_graph_parse(ctx, text, &graph) != TOW_OK) fail_msg("%s: %s", s->name, tow_context_error(ctx));
    free(text);
    return graph;
}

typedef struct cost {
    double seconds;
    size_t bytes;
} cost;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static cost plan(tow_context *ctx, counting *c, const tow_graph *graph)
{
    const tow_compile_options options = {.plan_only = true, .threads = 2};
    const size_t before = c->bytes;
    tow_program *program;
    c->peak = before;
    double start = now();
    assert_int_equal(tow_compile(ctx, graph, &options, &program), TOW_OK);
    assert_int_equal(tow_program_check(program), TOW_OK);
    assert_true(tow_program_text(program, NULL, 0) > 0);
    cost result = {now() - start, c->peak - before};
    tow_program_free(program);
    return result;
}

static cost measure(const shape *s, int links, bool gradient)
{
    counting c;
    tow_context *ctx;
    const tow_context_options options = counting_options(&c, -1);
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    tow_graph *graph = make_chain(ctx, s, links), *derived = NULL;
    if (gradient) assert_int_equal(tow_value_and_grad(graph, 1, (size_t[]){0}, false, &derived), TOW_OK);
    cost best = plan(ctx, &c, gradient ? derived : graph);
    for (int i = 1; i < ATTEMPTS; i++) {
        cost again = plan(ctx, &c, gradient ? derived : graph);
        if (again.seconds < best.seconds) best.seconds = again.seconds;
    }
    tow_graph_release(derived);
    tow_graph_release(graph);
    tow_context_destroy(ctx);
    return best;
}

static void test_growth(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            cost one = measure(&shapes[i], LINKS, gradient), more = measure(&shapes[i], LONGER * LINKS, gradient);
            print_message("%s%s: %.1f and %.1f ms, %zu and %zu KiB\n", shapes[i].name, gradient ? ", gradient" : "",
                          1e3 * one.seconds, 1e3 * more.seconds, one.bytes >> 10, more.bytes >> 10);
            assert_true(more.bytes < 2 * LONGER * one.bytes);
            assert_true(more.seconds < BOUND * one.seconds);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_growth)};
    return cmocka_run_group_tests_name("linear", tests, NULL, NULL);
}

/* long-test: planning takes work and memory in proportion to the program, but for logarithms. Long programs of several
 * shapes, and their gradients, are made, derived, planned, checked and printed; eight times as many equations take less
 * than sixteen times the memory and the instructions. A quadratic algorithm takes 64 times as many, as far as it
 * counts.
 *
 * Bytes are counted by the allocator, instructions by valgrind where it is installed: both are the same however busy
 * the machine is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tow/autodiff.h"
#include "tow/program.h"

enum {
    LINKS = 750,         /* of the shorter chain whose bytes are counted */
    COUNTED_LINKS = 60,  /* of the one whose instructions are */
    LONGER = 8,          /* times as many has the longer one */
    BOUND = 2 * LONGER   /* between what grows linearly and what grows quadratically */
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

static size_t plan(tow_context *ctx, counting *c, const tow_graph *graph)
{
    const tow_compile_options options = TOW_COMPILE_OPTIONS(.plan_only = true, .threads = 2);
    const size_t before = c->bytes;
    tow_program *program;
    c->peak = before;
    assert_int_equal(tow_compile(ctx, graph, &options, &program), TOW_OK);
    assert_int_equal(tow_program_check(program), TOW_OK);
    assert_true(tow_program_text(program, NULL, 0) > 0);
    tow_program_free(program);
    return c->peak - before;
}

/* The bytes that the plan of a chain takes. */
static size_t bytes_of(const shape *s, int links, bool gradient)
{
    counting c;
    tow_context *ctx;
    const tow_context_options options = counting_options(&c, -1);
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    tow_graph *graph = make_chain(ctx, s, links), *derived = NULL;
    if (gradient) assert_int_equal(tow_value_and_grad(graph, 1, (size_t[]){0}, false, &derived), TOW_OK);
    const size_t bytes = plan(ctx, &c, gradient ? derived : graph);
    tow_graph_release(derived);
    tow_graph_release(graph);
    tow_context_free(ctx);
    return bytes;
}

static void test_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            const size_t one = bytes_of(&shapes[i], LINKS, gradient),
                         more = bytes_of(&shapes[i], LONGER * LINKS, gradient);
            print_message("%s%s: %zu and %zu KiB\n", shapes[i].name, gradient ? ", gradient" : "", one >> 10,
                          more >> 10);
            assert_true(more < BOUND * one);
        }
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

/* This program runs itself with the name of a shape, whether it is the gradient, and the number of links, in this
 * variable. */
#define CHAIN "TOW_TEST_CHAIN"

static void make_one_plan(void **state)
{
    (void)state;
    char name[32];
    int gradient, links;
    assert_int_equal(sscanf(getenv(CHAIN), "%31s %d %d", name, &gradient, &links), 3);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i].name, name) == 0) (void)bytes_of(&shapes[i], links, gradient);
}

/* The number in a line such as "==12== I   refs:      1,234,567", or 0. */
static double read_count(const char *line)
{
    const char *at = strstr(line, "refs:");
    double count = 0;
    if (!at || !strstr(line, " I ")) return 0;
    for (at += strlen("refs:"); *at; at++)
        if (*at >= '0' && *at <= '9') count = 10 * count + (*at - '0');
    return count;
}

/* The instructions of a process that makes one plan. */
static double instructions_of(const shape *s, int links, int gradient)
{
    char self[512], command[1024], line[256], last[256] = "";
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = '\0';
    const int n =
        snprintf(command, sizeof command,
                 CHAIN "='%s %d %d' valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null "
                       "'%s' linear 2>&1",
                 s->name, gradient, links, self);
    assert_true(n > 0 && (size_t)n < sizeof command);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    double count = 0;
    while (fgets(line, sizeof line, pipe)) {
        const double found = read_count(line);
        count = found > 0 ? found : count;
        memcpy(last, line, sizeof line);
    }
    const int status = pclose(pipe);
    if (status != 0 || count <= 0) fail_msg("%s: status %d, %s", command, status, last);
    return count;
}

static void test_instructions(void **state)
{
    (void)state;
    if (system("valgrind --version >/dev/null 2>&1") != 0) {
        print_message("valgrind is not installed: no instructions are counted\n");
        skip();
    }
    const double start = instructions_of(&shapes[0], 1, 0); /* of the process and of the libraries */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            const double one = instructions_of(&shapes[i], COUNTED_LINKS, gradient) - start;
            const double more = instructions_of(&shapes[i], LONGER * COUNTED_LINKS, gradient) - start;
            print_message("%s%s: %.0f and %.0f million instructions\n", shapes[i].name, gradient ? ", gradient" : "",
                          1e-6 * one, 1e-6 * more);
            assert_true(one > 0 && more < BOUND * one);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes), cmocka_unit_test(test_instructions)};
    const struct CMUnitTest part[] = {cmocka_unit_test(make_one_plan)};
    if (getenv(CHAIN)) return cmocka_run_group_tests_name("one plan", part, NULL, NULL);
    return cmocka_run_group_tests_name("linear", tests, NULL, NULL);
}

/* Calls of host functions: how often and in which order they happen under every transformation and on every kind of
 * plan, what fails, what is printed, and the textual form.
 * Tests host.c, kernels/host.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

/* ---- functions that write down when they are called: NAME(first element of operand 0) ---------------------------- */

static char journal[8192];

static void note(const char *name, const tow_host_call *call)
{
    const size_t used = strlen(journal);
    double x = 0;
    if (call->n_inputs > 0) {
        const tow_buffer *b = &call->inputs[0];
        x = b->dtype == TOW_F32 ? (double)*(const float *)b->data : (double)*(const int32_t *)b->data;
    }
    snprintf(journal + used, sizeof journal - used, "%s(%g) ", name, x);
}

/* Results, if there are any, are copies of operand 0. */
static tow_status log_call(const tow_host_call *call)
{
    note(call->user, call);
    if (call->n_outputs > 0) {
        const tow_buffer *y = &call->outputs[0];
        size_t bytes = tow_dtype_size(y->dtype);
        for (int d = 0; d < y->rank; d++) bytes *= (size_t)y->dims[d];
        memcpy(y->data, call->inputs[0].data, bytes);
    }
    return TOW_OK;
}

static tow_status refuse(const tow_host_call *call)
{
    note("refuse", call);
    return tow_host_fail(call, TOW_INTERRUPTED, "no more than %d", 7);
}

static tow_status refuse_above(const tow_host_call *call)
{
    note("at_most_2", call);
    return *(const float *)call->inputs[0].data > 2 ? TOW_IO_ERROR : TOW_OK;
}

static const tow_host_function functions[] = {
    {.name = "a", .run = log_call, .user = (void *)"a"},
    {.name = "b", .run = log_call, .user = (void *)"b"},
    {.name = "id", .run = log_call, .user = (void *)"id", .pure = true},
    {.name = "all", .run = log_call, .user = (void *)"all", .whole_batch = true},
    {.name = "refuse", .run = refuse},
    {.name = "at_most_2", .run = refuse_above},
};

static void define_all(tow_context *context)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        assert_int_equal(tow_host_define(context, &functions[i]), TOW_OK);
}

static tow_graph *parse(tow_context *context, const char *text)
{
    tow_graph *graph = NULL;
    if (tow_graph_parse(context, text, &graph) != TOW_OK) fail_msg("%s in\n%s", tow_context_error(context), text);
    return graph;
}

/* Runs the graph on numbers 1, 2, ... (inputs of f32, i32 or bool); y: the first element of output 0. */
static tow_status run(const tow_graph *graph, const tow_compile_options *options, float *y)
{
    tow_context *context = tow_graph_context(graph);
    tow_array *in[8] = {NULL}, *out[8] = {NULL};
    tow_program *program = NULL;
    journal[0] = '\0';
    for (size_t i = 0; i < tow_graph_input_count(graph); i++) {
        const tow_type type = tow_graph_input_type(graph, i);
        assert_int_equal(tow_array_create(context, type, &in[i]), TOW_OK);
        for (int64_t k = 0; k < tow_type_element_count(type); k++)
            if (type.dtype == TOW_F32)
                ((float *)tow_array_data(in[i]))[k] = (float)(k + 1);
            else if (type.dtype == TOW_I32)
                ((int32_t *)tow_array_data(in[i]))[k] = (int32_t)(k + 1);
            else
                ((bool *)tow_array_data(in[i]))[k] = k % 2;
    }
    for (size_t i = 0; i < tow_graph_output_count(graph); i++)
        assert_int_equal(tow_array_create(context, tow_graph_output_type(graph, i), &out[i]), TOW_OK);
    if (tow_compile(context, graph, options, &program) != TOW_OK) fail_msg("%s", tow_context_error(context));
    assert_int_equal(tow_program_check(program), TOW_OK);
    const tow_status status = tow_program_run(program, in, out);
    if (y && tow_graph_output_count(graph) > 0) *y = *(const float *)tow_array_data(out[0]);
    tow_program_free(program);
    for (size_t i = 0; i < 8; i++) tow_array_release(in[i]), tow_array_release(out[i]);
    return status;
}

/* ---- how often, and in which order ------------------------------------------------------------------------------- */

/* A scalar function of x; bodies of regions use the names x and y. */
#define PROGRAM(equations, result) "{ lambda ; x:f32[]. let\n" equations "  in (" result ") }\n"
#define BODY(equations, result)    "{ lambda ; x:f32[]. let\n" equations "  in (" result ") }"

typedef struct counted {
    const char *what, *text, *plain, *gradient, *batched; /* gradient: of value_and_grad; batched: 2 rows */
} counted;

static const counted programs[] = {
    {"order",
     PROGRAM(" = call_host[name=\"a\"] x\n y:f32[] = mul x x\n = call_host[name=\"b\"] y\n = call_host[name=\"a\"] x\n",
             "y"),
     "a(1) b(1) a(1) ", "a(1) b(1) a(1) ", "a(1) a(2) b(1) b(4) a(1) a(2) "},
    {"results that nobody reads",
     PROGRAM(" i:i32[] = convert[dtype=i32] x\n j:i32[] = call_host[name=\"a\" results=(i32[])] i\n"
             " k:i32[] = call_host[name=\"id\" results=(i32[]) pure=true] i\n y:f32[] = mul x x\n",
             "y"),
     "a(1) ", "a(1) ", "a(1) a(2) "},
    {"pure calls that are equal",
     PROGRAM(" i:i32[] = convert[dtype=i32] x\n j:i32[] = call_host[name=\"id\" results=(i32[]) pure=true] i\n"
             " k:i32[] = call_host[name=\"id\" results=(i32[]) pure=true] i\n l:i32[] = add j k\n"
             " z:f32[] = convert[dtype=f32] l\n y:f32[] = mul z x\n",
             "y"),
     "id(1) ", "id(1) ", "id(1) id(2) "},
    {"call",
     PROGRAM(" y:f32[] = call[name=\"f\" body=" BODY(" = call_host[name=\"a\"] x\n y:f32[] = sin x\n", "y") "] x\n",
             "y"),
     "a(1) ", "a(1) ", "a(1) a(2) "},
    {"remat that recomputes",
     PROGRAM(" y:f32[] = remat[policy=\"nothing\" body=" BODY(
                 " y:f32[] = sin x\n = call_host[name=\"a\"] x\n z:f32[] = sin y\n"
                 " = call_host[name=\"b\"] x\n",
                 "z") "] x\n = call_host[name=\"a\"] x\n",
             "y"),
     "a(1) b(1) a(1) ", "a(1) b(1) a(1) ", "a(1) a(2) b(1) b(2) a(1) a(2) "},
    {"results in a remat that recomputes",
     PROGRAM(" y:f32[] = remat[policy=\"nothing\" body=" BODY(
                 " i:i32[] = convert[dtype=i32] x\n j:i32[] = call_host[name=\"a\" results=(i32[])] i\n"
                 " w:f32[] = convert[dtype=f32] j\n y:f32[] = mul x w\n z:f32[] = sin y\n u:f32[] = mul z w\n",
                 "u") "] x\n",
             "y"),
     "a(1) ", "a(1) ", "a(1) a(2) "},
    {"remat in a remat",
     PROGRAM(" y:f32[] = remat[policy=\"nothing\" body=" BODY(
                 " y:f32[] = remat[policy=\"dots\" body=" BODY(
                     " = call_host[name=\"a\"] x\n y:f32[] = sin x\n z:f32[] = sin y\n", "z") "] x\n z:f32[] = sin y\n",
                 "z") "] x\n",
             "y"),
     "a(1) ", "a(1) ", "a(1) a(2) "},
    {"scan",
     PROGRAM(" y:f32[] = scan[length=3 reverse=false consts=0 carry=1 body=" BODY(
                 " = call_host[name=\"a\"] x\n y:f32[] = add x x\n = call_host[name=\"b\"] y\n", "y") "] x\n",
             "y"),
     "a(1) b(2) a(2) b(4) a(4) b(8) ", "a(1) b(2) a(2) b(4) a(4) b(8) ",
     "a(1) a(2) b(2) b(4) a(2) a(4) b(4) b(8) a(4) a(8) b(8) b(16) "},
    {"scan of a constant: a call per iteration",
     PROGRAM(" y:f32[] = scan[length=3 reverse=false consts=1 carry=1 body={ lambda ; c:f32[] x:f32[]. let\n = "
             "call_host[name=\"a\"] c\n"
             " s:f32[] = sin c\n y:f32[] = mul x s\n  in (y) }] x x\n",
             "y"),
     "a(1) a(1) a(1) ", "a(1) a(1) a(1) ", "a(1) a(2) a(1) a(2) a(1) a(2) "},
    {"scan whose results nobody reads",
     PROGRAM(" z:f32[] = scan[length=2 reverse=false consts=0 carry=1 body=" BODY(
                 " = call_host[name=\"a\"] x\n y:f32[] = add x x\n", "y") "] x\n"
                                                                          " y:f32[] = mul x x\n",
             "y"),
     "a(1) a(2) ", "a(1) a(2) ", "a(1) a(2) a(2) a(4) "},
    {"scan of a remat",
     PROGRAM(" y:f32[] = scan[length=2 reverse=false consts=0 carry=1 body=" BODY(
                 " y:f32[] = remat[policy=\"nothing\" body=" BODY(
                     " y:f32[] = sin x\n = call_host[name=\"a\"] x\n z:f32[] = add y x\n", "z") "] x\n",
                 "y") "] x\n",
             "y"),
     "a(1) a(1.84147) ", "a(1) a(1.84147) ", "a(1) a(2) a(1.84147) a(2.9093) "},
    {"remat of a scan",
     PROGRAM(
         " y:f32[] = remat[policy=\"nothing\" body=" BODY(
             " y:f32[] = scan[length=2 reverse=false consts=0 carry=1 body=" BODY(
                 " = call_host[name=\"a\"] x\n y:f32[] = sin x\n z:f32[] = mul y x\n", "z") "] x\n z:f32[] = sin y\n",
             "z") "] x\n",
         "y"),
     "a(1) a(0.841471) ", "a(1) a(0.841471) ", "a(1) a(2) a(0.841471) a(1.81859) "},
    {"cond",
     PROGRAM(" c:f32[] = const[value=1.5]\n p:bool[] = gt x c\n y:f32[] = cond[branches=(" BODY(
                 " = call_host[name=\"a\"] x\n y:f32[] = sin x\n",
                 "y") " " BODY(" = call_host[name=\"b\"] x\n y:f32[] = mul x x\n", "y") ")] p x\n",
             "y"),
     "a(1) ", "a(1) ", "a(1) b(2) "},
    {"cond without results",
     PROGRAM(" c:f32[] = const[value=0.5]\n p:bool[] = gt x c\n = cond[branches=(" BODY("", "") " " BODY(
                 " = call_host[name=\"b\"] x\n", "") ")] p x\n"
                                                     " y:f32[] = mul x x\n",
             "y"),
     "b(1) ", "b(1) ", "b(1) b(2) "},
    {"cond in a remat",
     PROGRAM(" y:f32[] = remat[policy=\"nothing\" body=" BODY(
                 " c:f32[] = const[value=0.5]\n p:bool[] = gt x c\n s:f32[] = sin x\n y:f32[] = cond[branches=(" BODY(
                     "", "x") " " BODY(" = call_host[name=\"b\"] x\n y:f32[] = mul x x\n",
                                       "y") ")] p s\n z:f32[] = sin y\n",
                 "z") "] x\n",
             "y"),
     "b(0.841471) ", "b(0.841471) ", "b(0.841471) b(0.909297) "},
    {"while with a bound",
     PROGRAM(" y:f32[] = while[consts=0 max_iterations=9 condition=" BODY(
                 " c:f32[] = const[value=5.0]\n p:bool[] = lt x c\n",
                 "p") " body=" BODY(" = call_host[name=\"a\"] x\n y:f32[] = add x x\n", "y") "] x\n",
             "y"),
     "a(1) a(2) a(4) ", "a(1) a(2) a(4) ", "a(1) a(2) a(4) a(2) a(4) "},
    {"while with a bound in a remat",
     PROGRAM(
         " y:f32[] = remat[policy=\"nothing\" body=" BODY(
             " s:f32[] = add x x\n y:f32[] = while[consts=0 max_iterations=9 condition=" BODY(
                 " c:f32[] = const[value=5.0]\n p:bool[] = lt x c\n",
                 "p") " body=" BODY(" = call_host[name=\"a\"] x\n y:f32[] = mul x x\n", "y") "] s\n z:f32[] = sin y\n",
             "z") "] x\n",
         "y"),
     "a(2) a(4) ", "a(2) a(4) ", "a(2) a(4) a(4) "},
    {"condition with an effect",
     PROGRAM(" y:f32[] = while[consts=0 max_iterations=9 condition=" BODY(
                 " = call_host[name=\"a\"] x\n c:f32[] = const[value=3.0]\n p:bool[] = lt x c\n",
                 "p") " body=" BODY(" y:f32[] = add x x\n", "y") "] x\n",
             "y"),
     "a(1) a(2) a(4) ", "a(1) a(2) a(4) ", "a(1) a(2) a(4) a(2) a(4) "},
    {"custom rule",
     PROGRAM(" y:f32[] = custom_jvp[body=" BODY(" = call_host[name=\"a\"] x\n y:f32[] = sin x\n",
                                                "y") " rule={ lambda ; x:f32[] d:f32[]. let\n = call_host[name=\"b\"] "
                                                     "x\n y:f32[] = sin x\n c:f32[] = cos x\n z:f32[] = mul c d\n"
                                                     "  in (y, z) }] x\n",
             "y"),
     "a(1) ", "b(1) ", "a(1) a(2) "},
    {"prints and calls",
     PROGRAM(" = debug_print[format=\"x = {}\"] x\n y:f32[] = mul x x\n = call_host[name=\"a\"] y\n", "y"),
     "x = 1\n a(1) ", "x = 1\n a(1) ", "x = 1\n x = 2\n a(1) a(4) "},
};
enum {
    PROGRAMS = sizeof programs / sizeof *programs
};

static void write_down(const char *text, size_t length, void *user)
{
    const size_t used = strlen(journal);
    (void)user;
    snprintf(journal + used, sizeof journal - used, "%.*s ", (int)length, text);
}

static void expect(const counted *c, const char *how, const tow_graph *graph, const char *expected)
{
    if (run(graph, NULL, NULL) != TOW_OK) fail_msg("%s, %s: %s", c->what, how, tow_context_error(ctx));
    if (strcmp(journal, expected) != 0) fail_msg("%s, %s: expected %s, found %s", c->what, how, expected, journal);
    /* every pass that may be left out, and clean-up before */
    tow_graph *clean[2] = {NULL};
    OK(tow_graph_dce(graph, &clean[0]));
    OK(tow_graph_cse(clean[0], &clean[1]));
    OK(run(clean[1], NULL, NULL));
    if (strcmp(journal, expected) != 0)
        fail_msg("%s, %s, cleaned: expected %s, found %s", c->what, how, expected, journal);
    tow_graph_release(clean[0]);
    tow_graph_release(clean[1]);
}

static void test_how_often(void **state)
{
    (void)state;
    define_all(ctx);
    tow_debug_output(ctx, write_down, NULL);
    for (size_t i = 0; i < PROGRAMS; i++) {
        const counted *c = &programs[i];
        tow_graph *graph = parse(ctx, c->text), *merged, *gradient, *batched, *second, *text;
        OK(tow_graph_cse(graph, &merged));
        expect(c, "value", merged, c->plain);
        if (tow_value_and_grad(merged, 0, NULL, false, &gradient) != TOW_OK)
            fail_msg("%s: %s", c->what, tow_context_error(ctx));
        expect(c, "gradient", gradient, c->gradient);
        /* what is printed does the same */
        char *buffer = malloc(1 << 16);
        assert_in_range(tow_graph_text(gradient, buffer, 1 << 16), 1, (1 << 16) - 1);
        text = parse(ctx, buffer);
        expect(c, "gradient, printed", text, c->gradient);
        free(buffer);
        OK(tow_vmap(merged, 2, NULL, NULL, &batched));
        expect(c, "batched", batched, c->batched);
        if (tow_jvp(gradient, 0, NULL, &second) != TOW_OK) fail_msg("%s: %s", c->what, tow_context_error(ctx));
        expect(c, "forward over reverse", second, c->gradient);
        tow_graph_release(second);
        tow_graph_release(text);
        tow_graph_release(batched);
        tow_graph_release(gradient);
        tow_graph_release(merged);
        tow_graph_release(graph);
    }
}

/* Every policy: a call happens once, and gradients have the same bits. */
static void test_policies(void **state)
{
    (void)state;
    const tow_policy *const policies[] = {&tow_nothing_saveable(), &tow_everything_saveable(), &tow_dots_saveable()};
    define_all(ctx);
    tow_debug_output(ctx, write_down, NULL);
    for (size_t i = 0; i < PROGRAMS; i++) {
        tow_graph *graph, *merged, *plain, *whole, *gradient;
        float expected, found;
        if (strstr(programs[i].text, "pure=true")) continue; /* may be called again */
        graph = parse(ctx, programs[i].text);
        OK(tow_graph_cse(graph, &merged));
        OK(tow_grad(merged, 0, NULL, false, &plain));
        OK(run(plain, NULL, &expected));
        for (size_t k = 0; k < sizeof policies / sizeof *policies; k++) {
            OK(tow_remat_whole(merged, policies[k], &whole));
            if (tow_value_and_grad(whole, 0, NULL, false, &gradient) != TOW_OK)
                fail_msg("%s: %s", programs[i].what, tow_context_error(ctx));
            expect(&programs[i], "gradient under a policy", gradient, programs[i].gradient);
            tow_graph_release(gradient);
            OK(tow_grad(whole, 0, NULL, false, &gradient));
            OK(run(gradient, NULL, &found));
            assert_memory_equal(&found, &expected, sizeof found);
            tow_graph_release(gradient);
            tow_graph_release(whole);
        }
        tow_graph_release(plain);
        tow_graph_release(merged);
        tow_graph_release(graph);
    }
}

/* Rows: of a call that all rows share, and of one that takes all at once. */
static void test_rows(void **state)
{
    (void)state;
    define_all(ctx);
    tow_graph *graph =
                  parse(ctx, "{ lambda ; x:f32[2] s:f32[]. let\n = call_host[name=\"a\"] s\n"
                             " = call_host[name=\"all\" whole_batch=true] x s\n"
                             " y:i32[] = convert[dtype=i32] s\n"
                             " z:i32[] = call_host[name=\"all\" results=(i32[]) whole_batch=true] y\n  in (x, z) }\n"),
              *batched;
    OK(tow_vmap(graph, 3, (const int[]){1, TOW_NOT_MAPPED}, NULL, &batched));
    OK(run(batched, NULL, NULL));
    assert_string_equal(journal, "a(1) all(1) all(1) ");
    tow_graph_release(batched);
    tow_graph_release(graph);
}

/* Large loops and products, several threads, every pass left out in turn: one thread calls, in order. */
static void test_plans(void **state)
{
    (void)state;
    static const char text[] =
        "{ lambda ; x:f32[64,96] w:f32[96,96] i:i32[12]. let\n"
        "    y:f32[64,96] z:f32[12,64,96] = scan[length=12 reverse=false consts=1 carry=1 body={ lambda ; w:f32[96,96] "
        "x:f32[64,96] i:i32[]. let\n"
        "        = call_host[name=\"a\"] i\n"
        "        u:f32[64,96] = dot_general[lhs_contract=(1) rhs_contract=(0)] x w\n"
        "        v:f32[64,96] = tanh u\n"
        "        = call_host[name=\"b\"] i v\n"
        "      in (v, u) }] w x i\n"
        "    q:f32[12,64,96] = scan[length=12 consts=0 carry=0 body={ lambda ; z:f32[64,96] i:i32[]. let\n"
        "        = call_host[name=\"a\"] i\n"
        "        j:i32[] = call_host[name=\"id\" results=(i32[]) pure=true] i\n"
        "        f:f32[] = convert[dtype=f32] j\n"
        "        g:f32[64,96] = broadcast_in_dim[shape=(64,96) axes=()] f\n"
        "        v:f32[64,96] = mul z g\n"
        "      in (v) }] z i\n"
        "    r:f32[] = reduce_sum[axes=(0,1,2)] q\n"
        "    s:f32[] = reduce_sum[axes=(0,1)] y\n"
        "    t:f32[] = add r s\n"
        "    k:i32[] = convert[dtype=i32] s\n"
        "    = call_host[name=\"b\"] t\n"
        "  in (t) }\n";
    tow_context *threaded = NULL;
    char expected[sizeof journal] = "";
    assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 2), &threaded), TOW_OK);
    define_all(threaded);
    tow_graph *graph = parse(threaded, text), *gradient;
    assert_int_equal(tow_grad(graph, 2, (const size_t[]){0, 1}, false, &gradient), TOW_OK);
    for (int g = 0; g < 2; g++) {
        const tow_graph *each = g ? gradient : graph;
        assert_int_equal(run(each, NULL, NULL), TOW_OK);
        memcpy(expected, journal, sizeof journal);
        assert_ptr_equal(strstr(expected, "a(1) b(1) a(2) b(2) a(3) b(3) "), expected);
        assert_non_null(strstr(expected, "a(12) b(12) a(1) id(1) a(2) id(2) "));
        for (size_t i = 0; tow_pass_name(i); i++) {
            const char *const without[] = {tow_pass_name(i), NULL};
            if (tow_pass_required(i) || tow_pass_within(i)) continue;
            tow_compile_options options = TOW_COMPILE_OPTIONS(.without = without);
            assert_int_equal(run(each, &options, NULL), TOW_OK);
            assert_string_equal(journal, expected);
        }
    }
    tow_graph_release(gradient);
    tow_graph_release(graph);
    tow_context_free(threaded);
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

static void test_failures(void **state)
{
    (void)state;
    float y;
    define_all(ctx);
    tow_graph *graph = parse(
        ctx, PROGRAM(" = call_host[name=\"a\"] x\n = call_host[name=\"refuse\"] x\n = call_host[name=\"b\"] x\n", "x"));
    assert_int_equal(run(graph, NULL, &y), TOW_INTERRUPTED);
    assert_string_equal(journal, "a(1) refuse(1) ");
    assert_non_null(strstr(tow_context_error(ctx), "host function \"refuse\": no more than 7"));
    tow_graph_release(graph);
    /* loops end: an endless one, too; a status without a message has that of the status */
    graph = parse(ctx, PROGRAM(" y:f32[] = while[consts=0 max_iterations=0 condition=" BODY(
                                   " c:f32[] = const[value=0.0]\n p:bool[] = gt x c\n",
                                   "p") " body=" BODY(" = call_host[name=\"at_most_2\"] x\n e:f32[] = "
                                                      "const[value=1.0]\n y:f32[] = add x e\n",
                                                      "y") "] x\n"
                                                           " = call_host[name=\"b\"] y\n",
                               "y"));
    assert_int_equal(run(graph, NULL, &y), TOW_IO_ERROR);
    assert_string_equal(journal, "at_most_2(1) at_most_2(2) at_most_2(3) ");
    assert_non_null(strstr(tow_context_error(ctx), "host function \"at_most_2\": input/output error"));
    tow_graph_release(graph);
    graph =
        parse(ctx, PROGRAM(" y:f32[] = scan[length=9 reverse=false consts=0 carry=1 body=" BODY(
                               " = call_host[name=\"at_most_2\"] x\n e:f32[] = const[value=1.0]\n y:f32[] = add x e\n",
                               "y") "] x\n",
                           "y"));
    assert_int_equal(run(graph, NULL, &y), TOW_IO_ERROR);
    assert_string_equal(journal, "at_most_2(1) at_most_2(2) at_most_2(3) ");
    tow_graph_release(graph);
}

static void call_on_line(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_value x = tow_sin(in[0]);
    tow_call_host(trace, user, 1, &x, 0, NULL, NULL);
    out[0] = x;
}

static void test_message_has_the_line(void **state)
{
    (void)state;
    const tow_type scalar = tow_make_type(TOW_F32, 0, NULL);
    tow_graph *graph;
    float y;
    OK(tow_trace_function(ctx, call_on_line, (void *)&functions[4], 1, &scalar, NULL, 1, &graph));
    assert_int_equal(run(graph, NULL, &y), TOW_INTERRUPTED);
    assert_non_null(strstr(tow_context_error(ctx), "test_host.c:"));
    tow_graph_release(graph);
}

static void expect_error(const char *text, tow_status status, const char *message)
{
    tow_graph *graph = NULL;
    assert_int_equal(tow_graph_parse(ctx, text, &graph), status);
    if (!strstr(tow_context_error(ctx), message)) fail_msg("%s is not in: %s", message, tow_context_error(ctx));
}

static void test_bad_calls(void **state)
{
    (void)state;
    tow_context *other = NULL;
    tow_graph *graph = NULL, *derivative = NULL;
    define_all(ctx);
    expect_error(PROGRAM(" = call_host[name=\"nobody\"] x\n", "x"), TOW_NOT_FOUND, "has no host function \"nobody\"");
    expect_error(PROGRAM(" = call_host x\n", "x"), TOW_NOT_FOUND, "has no host function \"\"");
    expect_error(PROGRAM(" = call_host[name=\"a\" pure=true] x\n", "x"), TOW_INVALID_ARGUMENT, "expected pure=false");
    expect_error(PROGRAM(" y:f32[] = call_host[name=\"a\"] x\n", "x"), TOW_INVALID_ARGUMENT,
                 "types for 0 results, found 1");
    expect_error(PROGRAM(" y:f32[] = call_host[name=\"a\" results=(i32[])] x\n", "x"), TOW_TYPE_MISMATCH,
                 "declared as f32[]");
    expect_error(PROGRAM(" = debug_print[format=\"{} {}\"] x\n", "x"), TOW_INVALID_ARGUMENT,
                 "places for 2 values, found 1");
    expect_error(PROGRAM(" = debug_print[format=\"{x}\"] x\n", "x"), TOW_INVALID_ARGUMENT, "found a single brace at 0");
    expect_error(PROGRAM(" = debug_print x\n", "x"), TOW_INVALID_ARGUMENT, "it has no format");
    expect_error(PROGRAM(" y:f32[] = debug_print[format=\"{}\"] x\n", "x"), TOW_INVALID_ARGUMENT, "expected 0 results");
    /* another function of a known name */
    tow_host_function a = functions[0];
    a.user = (void *)"c";
    assert_int_equal(tow_host_define(ctx, &a), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "another function"));
    a.name = "";
    assert_int_equal(tow_host_define(ctx, &a), TOW_INVALID_ARGUMENT);
    a.run = NULL;
    assert_int_equal(tow_host_define(ctx, &a), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_host_define(NULL, &a), TOW_INVALID_ARGUMENT);
    /* a context that does not know it, and one that does */
    OK(tow_context_create(NULL, &other));
    assert_int_equal(tow_graph_parse(other, programs[0].text, &graph), TOW_NOT_FOUND);
    define_all(other);
    assert_int_equal(tow_graph_parse(other, programs[0].text, &graph), TOW_OK);
    tow_graph_release(graph);
    tow_context_free(other);
    /* no derivative */
    graph = parse(ctx, PROGRAM(" y:f32[] = call_host[name=\"id\" results=(f32[]) pure=true] x\n", "y"));
    assert_int_equal(tow_grad(graph, 0, NULL, false, &derivative), TOW_UNSUPPORTED);
    assert_non_null(strstr(tow_context_error(ctx), "host function \"id\" has no derivative: call it within "
                                                   "tow_custom_jvp_function or tow_custom_vjp_function"));
    tow_graph_release(graph);
    graph =
        parse(ctx, PROGRAM(" s:f32[] = stop_gradient x\n z:f32[] = call_host[name=\"id\" results=(f32[]) pure=true] s\n"
                           " y:f32[] = mul z x\n",
                           "y"));
    OK(tow_grad(graph, 0, NULL, false, &derivative));
    tow_graph_release(derivative);
    tow_graph_release(graph);
}

/* A loop without a bound is repeated for its derivative: what has results and an effect cannot be. */
static void test_unbounded(void **state)
{
    (void)state;
    define_all(ctx);
    static const char logs[] =
        PROGRAM(" y:f32[] = while[consts=0 max_iterations=0 condition=" BODY(
                    " c:f32[] = const[value=5.0]\n p:bool[] = lt x c\n",
                    "p") " body=" BODY(" = call_host[name=\"a\"] x\n y:f32[] = add x x\n", "y") "] x\n",
                "y");
    tow_graph *graph = parse(ctx, logs), *jvp, *known, *linear;
    OK(tow_jvp(graph, 0, NULL, &jvp));
    OK(run(jvp, NULL, NULL));
    assert_string_equal(journal, "a(1) a(2) a(4) ");
    OK(tow_linearize(graph, 0, NULL, &known, &linear));
    OK(run(known, NULL, NULL));
    assert_string_equal(journal, "a(1) a(2) a(4) ");
    OK(run(linear, NULL, NULL));
    assert_string_equal(journal, "");
    tow_graph_release(known);
    tow_graph_release(linear);
    tow_graph_release(jvp);
    tow_graph_release(graph);
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static void test_print(void **state)
{
    static const struct {
        const char *inputs, *equations, *expected;
    } cases[] = {
        {"x:f32[]", " = debug_print[format=\"x is {}.\"] x\n", "x is 1.\n "},
        {"x:f32[]", " = debug_print[format=\"{{}} {}{}\"] x x\n", "{} 11\n "},
        {"x:f32[]", " = debug_print[format=\"nothing\"]\n", "nothing\n "},
        {"x:f32[3]", " = debug_print[format=\"{}\"] x\n", "[1 2 3]\n "},
        {"x:f32[2,3]", " y:f32[3,2] = transpose[permutation=(1,0)] x\n = debug_print[format=\"{}\"] y\n",
         "[[1 4] [2 5] [3 6]]\n "},
        {"x:f32[3]", " y:f32[3] = rev[axes=(0)] x\n = debug_print[format=\"{}\"] y\n", "[3 2 1]\n "},
        {"x:i32[2]", " y:i32[2] = neg x\n = debug_print[format=\"{}\"] y\n", "[-1 -2]\n "},
        {"x:bool[3]", " = debug_print[format=\"{}\"] x\n", "[false true false]\n "},
        {"x:f32[0]", " = debug_print[format=\"{}\"] x\n", "[]\n "},
        {"x:f32[2,0]", " = debug_print[format=\"{}\"] x\n", "[[] []]\n "},
        {"x:f32[2]", " y:f64[2] = convert[dtype=f64] x\n = debug_print[format=\"{}\"] y\n", "[1 2]\n "},
        {"x:f32[1001]", " = debug_print[format=\"{}\"] x\n", "[1 2 3 ... 999 1000 1001]\n "},
        {"x:f32[2,600]", " = debug_print[format=\"{}\"] x\n",
         "[[1 2 3 ... 598 599 600] [601 602 603 ... 1198 1199 1200]]\n "},
    };
    (void)state;
    tow_debug_output(ctx, write_down, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{ lambda ; %s. let\n%s  in (x) }\n", cases[i].inputs, cases[i].equations);
        tow_graph *graph = parse(ctx, text);
        OK(run(graph, NULL, NULL));
        assert_string_equal(journal, cases[i].expected);
        tow_graph_release(graph);
    }
    tow_debug_output(ctx, NULL, NULL);
}

static void print_numbers(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    const tow_value third = tow_mul_scalar(in[0], 1.0 / 3), tenth = tow_scalar(trace, TOW_F64, 0.1);
    tow_debug_print("{} {} {}", third, tenth, tow_convert(third, TOW_BF16));
    tow_debug_print("{} {}", tow_scalar(trace, TOW_F32, 16777216), tow_scalar(trace, TOW_I32, -5));
    tow_debug_print("{}", tow_sqrt(tow_neg(in[0])));
    out[0] = in[0];
}

/* Short, and with all bits. */
static void test_numbers(void **state)
{
    (void)state;
    const tow_type scalar = tow_make_type(TOW_F32, 0, NULL);
    tow_graph *graph;
    tow_debug_output(ctx, write_down, NULL);
    OK(tow_trace_function(ctx, print_numbers, NULL, 1, &scalar, NULL, 1, &graph));
    OK(run(graph, NULL, NULL));
    assert_ptr_equal(strstr(journal, "0.33333334 0.1 0.334\n 16777216 -5\n "), journal);
    assert_non_null(strstr(journal, "nan"));
    tow_graph_release(graph);
    tow_debug_output(ctx, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_how_often, setup, teardown),
        cmocka_unit_test_setup_teardown(test_policies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plans, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_message_has_the_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_calls, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unbounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_print, setup, teardown),
        cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

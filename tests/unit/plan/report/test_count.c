/* Operations and floating-point operations that runs count equal those of the plan, of the programs of `tow count`, and
 * those worked out here: without and within regions, loops, limits and schedules, for any number of threads.
 * Tests plan/report/count.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/graph_runs.h"
#include "tow/tow.h"

enum {
    ROWS = 2048,
    WIDTH = 32,
    LENGTH = 6,
    RUNS = 2
};

/* ---- programs: x [ROWS, WIDTH], w [WIDTH, WIDTH] -> a scalar ----------------------------------------------------- */

static void layer(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_tanh(tow_dot(in[0], in[1]));
}

/* The carries of a loop over x with w from outside. */
static void step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    layer(t, (const tow_value[]){in[0], *(const tow_value *)user}, out, NULL);
}

static void layers(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    out[0] = in[0];
    for (int i = 0; i < LENGTH; i++) layer(t, (const tow_value[]){out[0], in[1]}, out, user);
}

static void in_region(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_policy *policy = user;
    tow_remat_function(t, layers, NULL, policy, 2, in, 1, out);
}

static void regions(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_policy *policy = user;
    out[0] = in[0];
    for (int i = 0; i < LENGTH; i++)
        tow_remat_function(t, layer, NULL, policy, 2, (const tow_value[]){out[0], in[1]}, 1, out);
}

static void bind_scan(tow_trace *t, const tow_value *in, tow_value *out, tow_function body, tow_scan_schedule schedule)
{
    tow_value w = in[1];
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = LENGTH, .schedule = schedule);
    tow_scan_function(t, body, &w, &options, 1, in, 0, NULL, 0, out, NULL);
}

static void scan(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    bind_scan(t, in, out, step, (tow_scan_schedule){0});
}

static void region_step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(t, step, user, NULL, 1, in, 1, out);
}

static void scan_of_regions(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    bind_scan(t, in, out, region_step, (tow_scan_schedule){0});
}

static void every_third(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    bind_scan(t, in, out, step, (tow_scan_schedule){.every = 3});
}

static void two_slots(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    bind_scan(t, in, out, step, (tow_scan_schedule){.slots = 2});
}

/* x as pictures [1, 16, 16, 8] and w as kernels [3, 3, 8, 8], of its first numbers. */
static void convolution(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    const tow_value x = tow_reshape(in[0], 4, (int64_t[]){ROWS * WIDTH / 2048, 16, 16, 8});
    const tow_value w = tow_reshape(tow_slice_axis(tow_reshape(in[1], 1, (int64_t[]){WIDTH * WIDTH}), 0, 0, 576), 4,
                                    (int64_t[]){3, 3, 8, 8});
    out[0] = tow_tanh(tow_conv_general_dilated(x, w, NULL));
}

static void below(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    out[0] = tow_lt(in[1], tow_scalar(t, TOW_I32, 4));
}

static void count_on(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    step(t, in, out, user);
    out[1] = tow_add_scalar(in[1], 1);
}

/* Four iterations of at most nine. */
static void loop(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value w = in[1], both[] = {in[0], tow_scalar(t, TOW_I32, 0)};
    (void)user;
    tow_while_function(t, below, count_on, &w, &TOW_WHILE_OPTIONS(.max_iterations = 9), 2, both, both);
    out[0] = both[0];
}

/* The branch of two layers runs. */
static void two_layers(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    layer(t, in, out, user);
    layer(t, (const tow_value[]){out[0], in[1]}, out, user);
}

static void choice(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_value finite = tow_lt(tow_reduce_sum(tow_tanh(in[0]), 0, NULL), tow_scalar(t, TOW_F32, 1e9));
    (void)user;
    tow_cond_function(t, finite, two_layers, layer, NULL, 2, in, 1, out);
}

typedef struct example {
    const char *name;
    tow_function function;
    const char *policy;
    double products; /* of [ROWS, WIDTH] and [WIDTH, WIDTH], or of their transposes, in a gradient; 0: not worked out */
    bool limited;    /* within the least limit that is possible */
    bool data;       /* decide how often bodies run */
} example;

/* A gradient by w alone has a product for each layer and two for each product but the first, whose operand has no
 * gradient; what regions make again comes to that. */
static const example programs[] = {
    {"layers", layers, NULL, LENGTH + 2 * LENGTH - 1, false, false},
    {"layers within a limit", layers, NULL, 0, true, false},
    {"a region", in_region, "nothing", 2 * LENGTH - 1 + 2 * LENGTH, false, false},
    {"a region that keeps products", in_region, "dots", LENGTH + 2 * LENGTH - 1, false, false},
    {"regions", regions, "nothing", 2 * LENGTH + 2 * LENGTH - 1, false, false},
    {"a scan", scan, NULL, 0, false, false},
    {"a scan of regions", scan_of_regions, NULL, 0, false, false},
    {"a scan within a limit", scan, NULL, 0, true, false},
    {"a scan of blocks", every_third, NULL, 0, false, false},
    {"a scan of two slots", two_slots, NULL, 0, false, true},
    {"a convolution", convolution, NULL, 0, false, false},
    {"a while", loop, NULL, 4 + 2 * 4, false, true},
    {"a choice", choice, NULL, 2 + 2 * 2 - 1, false, true},
};

typedef struct recipe {
    tow_function function;
    const tow_policy *policy;
} recipe;

static void sum_of(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const recipe *r = user;
    r->function(t, in, out, (void *)(uintptr_t)r->policy);
    out[0] = tow_reduce_sum(tow_square(out[0]), 0, NULL);
}

static tow_graph *make_loss(tow_context *ctx, const example *of)
{
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, WIDTH}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){WIDTH, WIDTH})};
    tow_graph *loss;
    tow_policy *policy = NULL;
    if (of->policy) assert_int_equal(tow_policy_parse(ctx, of->policy, &policy), TOW_OK);
    recipe r = {of->function, policy};
    assert_int_equal(tow_trace_function(ctx, sum_of, &r, 2, types, NULL, 1, &loss), TOW_OK);
    tow_policy_free(policy);
    return loss;
}

static void make_gradient(problem *p, const example *of)
{
    tow_graph *loss = make_loss(p->ctx, of), *gradient;
    OK(p, tow_value_and_grad(loss, 1, (size_t[]){1}, false, &gradient));
    set_graph(p, gradient, 1);
    tow_graph_release(loss);
}

/* ---- the counts of a program ------------------------------------------------------------------------------------- */

static const char *const names[] = {"dot_general", "conv_general_dilated", "tanh", "add", "mul", "sub", "reduce_sum",
                                    "scan",        "broadcast_in_dim",     "copy", NULL};

static void compare_with_plan(const example *of, const tow_program *p, int threads)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const uint64_t planned = tow_program_operation_count(p, names[i]), counted = tow_program_counted(p, names[i]);
        const double flops = tow_program_flops(p, names[i]), done = tow_program_counted_flops(p, names[i]);
        if (counted != RUNS * planned)
            fail_msg("%s, %d threads: %s: %llu operations are planned, %llu are done in %d runs", of->name, threads,
                     names[i] ? names[i] : "all", (unsigned long long)planned, (unsigned long long)counted, RUNS);
        if (done != RUNS * flops)
            fail_msg("%s, %d threads: %s: %g flops are planned, %g are done in %d runs", of->name, threads,
                     names[i] ? names[i] : "all", flops, done, RUNS);
    }
}

/* `tow count` compiles forward and backward pass apart, and says the same. */
static void compare_with_passes(const problem *p, const example *of, const tow_program *run)
{
    static const char *const compared[] = {"dot_general", "conv_general_dilated", "tanh"};
    const tow_compile_options plan = TOW_COMPILE_OPTIONS(.plan_only = true, .threads = 1);
    tow_graph *loss = make_loss(p->ctx, of), *graphs[2];
    tow_program *passes[2];
    OK(p, tow_vjp(loss, 1, (size_t[]){1}, &graphs[0], &graphs[1]));
    for (int i = 0; i < 2; i++) OK(p, tow_compile(p->ctx, graphs[i], &plan, &passes[i]));
    for (size_t i = 0; i < sizeof compared / sizeof *compared; i++) {
        uint64_t planned = 0;
        for (int k = 0; k < 2; k++) planned += tow_program_operation_count(passes[k], compared[i]);
        if (RUNS * planned != tow_program_counted(run, compared[i]))
            fail_msg("%s: %s: %llu in both passes, %llu are done in %d runs", of->name, compared[i],
                     (unsigned long long)planned, (unsigned long long)tow_program_counted(run, compared[i]), RUNS);
    }
    for (int i = 0; i < 2; i++) {
        tow_program_free(passes[i]);
        tow_graph_release(graphs[i]);
    }
    tow_graph_release(loss);
}

static void count_program(const example *of, int threads, bool plain)
{
    problem p;
    tow_program *run;
    tow_memory_point least = {0};
    size_t n;
    start_context(&p);
    make_gradient(&p, of);
    tow_compile_options options = TOW_COMPILE_OPTIONS(.threads = threads, .no_regions = plain, .no_fusion = plain);
    if (of->limited) OK(&p, tow_memory_curve(p.ctx, p.graph, &options, 1, &least, &n));
    options.memory_limit = least.bytes;
    OK(&p, tow_compile(p.ctx, p.graph, &options, &run));
    OK(&p, tow_program_run(run, p.inputs, p.outputs));
    assert_int_equal(tow_program_counted(run, NULL), 0);
    OK(&p, tow_program_count(run, true));
    for (int i = 0; i < RUNS; i++) OK(&p, tow_program_run(run, p.inputs, p.outputs));
    if (!of->data) compare_with_plan(of, run, threads);
    if (!of->data && !of->limited) compare_with_passes(&p, of, run);
    assert_int_equal(tow_program_counted(run, "no such operation"), 0);
    OK(&p, tow_program_count(run, false));
    OK(&p, tow_program_run(run, p.inputs, p.outputs));
    assert_int_equal(tow_program_counted(run, NULL), 0);
    tow_program_free(run);
    end(&p);
}

static void test_programs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        for (int threads = 1; threads <= 2; threads++)
            for (int plain = 0; plain < 2; plain++) count_program(&programs[i], threads, plain);
}

/* A binomial schedule runs each iteration forward as often as its formula says: n + t n - C(s + t, t - 1) + 1 times in
 * all, with n = 6 and s = 2, for which t = 2: 6 + 12 - 4 + 1; and 2 products for each derivative. */
static void test_schedule(void **state)
{
    problem p;
    tow_program *run;
    (void)state;
    start_context(&p);
    make_gradient(&p, &(example){.function = two_slots});
    OK(&p, tow_compile(p.ctx, p.graph, &TOW_COMPILE_OPTIONS(.threads = 1), &run));
    OK(&p, tow_program_count(run, true));
    OK(&p, tow_program_run(run, p.inputs, p.outputs));
    assert_int_equal(tow_program_counted(run, "tanh"), 15);
    tow_program_free(run);
    end(&p);
}

/* ---- GPT --------------------------------------------------------------------------------------------------------- */

enum {
    LAYERS = 3,
    TOKENS = 16,
    BATCH = 2,
    FEATURES = 32
};

static void mean_square(tow_trace *trace, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                        tow_value *aux, void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(tow_square(outputs[0]), 0, NULL);
}

/* A step of a GPT: products, attention and all else, as often as its plan says; and the products of a block, forward
 * alone: four of width times width for each head's operands and the result, and two with four times the width. */
static void count_gpt(const char *policy, size_t limit)
{
    problem p;
    tow_policy *parsed = NULL;
    tow_train_state *state;
    double loss;
    start_context(&p);
    if (policy) OK(&p, tow_policy_parse(p.ctx, policy, &parsed));
    tow_embed embed = TOW_EMBED(.num_embeddings = 50, .features = FEATURES);
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 4, .causal = true);
    tow_remat region = TOW_REMAT(&block, .policy = parsed ? *parsed : tow_nothing_saveable());
    tow_scan blocks = TOW_SCAN(&region, .length = LAYERS);
    tow_sequential gpt = TOW_SEQUENTIAL(&embed.module, &blocks.module);
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){BATCH, TOKENS});
    OK(&p, tow_train_create(p.ctx, TOW_MODULE(&gpt),
                            &TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = {.peak_value = 0.01}}, .n_inputs = 1,
                                               .input_types = &type, .loss = mean_square, .memory_limit = limit),
                            &state));
    tow_program *run = (tow_program *)(uintptr_t)tow_train_program(state);
    OK(&p, tow_array_create(p.ctx, type, &p.inputs[0]));
    memset(tow_array_data(p.inputs[0]), 0, BATCH * TOKENS * sizeof(int32_t));
    OK(&p, tow_program_count(run, true));
    for (int i = 0; i < RUNS; i++) OK(&p, tow_train_step(state, p.inputs, &loss));
    compare_with_plan(&(example){.name = policy ? policy : "a GPT within a limit"}, run, 2);
    assert_true(tow_program_counted(run, "dot_general") >= RUNS * LAYERS * 18); /* six, and two for each */
    assert_true(tow_program_counted(run, "attention") >= RUNS * LAYERS);
    tow_array_release(p.inputs[0]);
    p.inputs[0] = NULL;
    tow_train_free(state);
    tow_policy_free(parsed);
    tow_context_free(p.ctx);
}

static void test_gpt(void **state)
{
    (void)state;
    count_gpt("nothing", 0);
    count_gpt("dots_with_no_batch_dims", 0);
    count_gpt("dots", 0);
    count_gpt(NULL, SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs), cmocka_unit_test(test_schedule),
                                       cmocka_unit_test(test_gpt)};
    return cmocka_run_group_tests_name("count", tests, NULL, NULL);
}

/* TOW_REMAT(.limit): the residuals that a region makes take no more bytes, in a call, in each iteration of a loop,
 * under vmap and under memory limits of the whole; more bytes mean less work; bits never change. The verdicts of a
 * policy hold, and are an error where they break the limit.
 *
 * Tests region_limit.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    ROWS = 8,
    WIDTH = 16,
    HIDDEN = 32,
    NARROW = ROWS * WIDTH * 4, /* bytes of one value */
    WIDE = ROWS * HIDDEN * 4,
    LENGTH = 5
};

typedef struct stack {
    tow_dense up, down;
    tow_activation_layer gelu, tanh;
    const tow_module *layers[4];
    tow_sequential block;
    tow_remat remat;
    tow_scan scan;
} stack;

/* Two layers in a region with this limit (TOW_REMAT without one has limit 0), once or LENGTH times in a loop. */
static const tow_module *make(stack *s, size_t limit, tow_policy policy, bool loop)
{
    s->up = TOW_DENSE(.features = HIDDEN);
    s->down = TOW_DENSE(.features = WIDTH);
    s->gelu = TOW_ACTIVATION(tow_gelu);
    s->tanh = TOW_ACTIVATION(tow_tanh);
    s->layers[0] = TOW_MODULE(&s->up);
    s->layers[1] = TOW_MODULE(&s->gelu);
    s->layers[2] = TOW_MODULE(&s->down);
    s->layers[3] = TOW_MODULE(&s->tanh);
    s->block =
        (tow_sequential){.module = {&tow_sequential_class, sizeof(tow_sequential)}, .layers = s->layers, .n_layers = 4};
    s->remat = TOW_REMAT(&s->block, .limit = limit, .policy = policy);
    s->scan = TOW_SCAN(&s->remat, .length = LENGTH);
    return loop ? TOW_MODULE(&s->scan) : TOW_MODULE(&s->remat);
}

static void sum_of_squares(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss,
                           tow_value *aux, void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_reduce_sum(tow_square(out[0]), 0, NULL);
}

typedef struct problem {
    tow_params *params;
    tow_graph *loss;
    tow_type x;
    size_t n, wrt[8];
} problem;

static problem start(const tow_module *model)
{
    problem p = {.x = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, WIDTH})};
    OK(tow_model_init(ctx, model, 3, 1, &p.x, &p.params));
    OK(tow_model_loss_graph(model, p.params, 1, &p.x, 0, NULL, sum_of_squares, NULL, 0, NULL, &p.loss));
    p.n = tow_params_count(p.params);
    for (size_t i = 0; i < p.n; i++) p.wrt[i] = i;
    return p;
}

static void stop(problem *p)
{
    tow_graph_release(p->loss);
    tow_params_free(p->params);
}

static size_t residual_bytes(const tow_graph *loss, size_t n, const size_t *wrt)
{
    tow_residuals r;
    OK(tow_saved_residuals(loss, n, wrt, &r));
    const size_t bytes = r.bytes - r.argument_bytes;
    assert_int_equal(r.n_notes, 0);
    tow_residuals_free(&r);
    return bytes;
}

/* Loss and gradients, one after the other. */
static size_t numbers_of(const problem *p, const tow_compile_options *options, float *numbers, uint64_t *products)
{
    tow_graph *gradient;
    tow_program *program;
    tow_array *in[9], *out[9];
    size_t n = 0;
    OK(tow_value_and_grad(p->loss, p->n, p->wrt, false, &gradient));
    OK(tow_compile(ctx, gradient, options, &program));
    OK(tow_program_check(program));
    for (size_t i = 0; i < p->n; i++) in[i] = tow_params_array(p->params, i);
    OK(tow_array_create(ctx, p->x, &in[p->n]));
    for (int i = 0; i < ROWS * WIDTH; i++) ((float *)tow_array_data(in[p->n]))[i] = (float)(i % 13 - 6) / 8;
    for (size_t i = 0; i <= p->n; i++) OK(tow_array_create(ctx, tow_graph_output_type(gradient, i), &out[i]));
    OK(tow_program_run(program, in, out));
    for (size_t i = 0; i <= p->n; i++) {
        const size_t bytes = tow_type_bytes(tow_array_type(out[i]));
        memcpy(numbers + n, tow_array_data(out[i]), bytes);
        n += bytes / sizeof *numbers;
        tow_array_release(out[i]);
    }
    if (products) *products = tow_program_operation_count(program, "dot_general");
    tow_array_release(in[p->n]);
    tow_program_free(program);
    tow_graph_release(gradient);
    return n;
}

enum {
    MOST_NUMBERS = 1 + LENGTH * (2 * WIDTH * HIDDEN + WIDTH + HIDDEN)
};

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void expect_limits_hold(bool loop)
{
    static float plain[MOST_NUMBERS], other[MOST_NUMBERS];
    stack s;
    problem p = start(make(&s, 0, tow_everything_saveable(), loop));
    const size_t times = loop ? LENGTH : 1, all = residual_bytes(p.loss, p.n, p.wrt);
    const size_t n = numbers_of(&p, NULL, plain, NULL);
    size_t most = 0;
    uint64_t work = UINT64_MAX;
    stop(&p);
    for (size_t limit = 1; limit <= 4 * WIDE; limit = limit < NARROW ? NARROW : limit + NARROW) {
        p = start(make(&s, limit, (tow_policy){0}, loop));
        const size_t bytes = residual_bytes(p.loss, p.n, p.wrt);
        uint64_t products;
        /* the loop stacks carries and reads its results besides */
        assert_true(bytes <= times * limit + (loop ? LENGTH * NARROW : 0) + NARROW);
        assert_int_equal(numbers_of(&p, NULL, other, &products), n);
        assert_memory_equal(plain, other, n * sizeof *plain);
        assert_true(products <= work);
        assert_true(bytes >= most);
        work = products;
        most = bytes;
        stop(&p);
    }
    assert_int_equal(most, all); /* no limit keeps more than there is */
}

static void limits_hold(void **state)
{
    (void)state;
    expect_limits_hold(false);
}

/* Of each iteration, so the rows that the loop stacks are so many times as large. */
static void limits_hold_in_iterations(void **state)
{
    (void)state;
    expect_limits_hold(true);
}

/* A region with a limit keeps no more if the memory limit of the whole leaves room for everything. */
static void limits_hold_within_limits(void **state)
{
    (void)state;
    for (int loop = 0; loop < 2; loop++) {
        static float plain[MOST_NUMBERS], other[MOST_NUMBERS];
        stack s;
        uint64_t least, most, limited;
        problem p = start(make(&s, 0, tow_everything_saveable(), loop));
        const size_t n = numbers_of(&p, NULL, plain, &least);
        stop(&p);
        const tow_compile_options roomy = TOW_COMPILE_OPTIONS(.memory_limit = SIZE_MAX);
        p = start(make(&s, 0, tow_nothing_saveable(), loop));
        numbers_of(&p, NULL, other, &most);
        numbers_of(&p, &roomy, other, &limited);
        assert_memory_equal(plain, other, n * sizeof *plain);
        assert_int_equal(limited, least); /* what a policy prefers, the limit of the whole overrules */
        stop(&p);
        p = start(make(&s, 1, tow_nothing_saveable(), loop));
        numbers_of(&p, &roomy, other, &limited);
        assert_memory_equal(plain, other, n * sizeof *plain);
        assert_true(most > least);
        assert_int_equal(limited, most);
        stop(&p);
    }
}

/* ---- policies ---------------------------------------------------------------------------------------------------- */

/* Two values with names in a region, each of 1024 bytes. */
static tow_graph *named(tow_context *c, const char *policy, size_t limit)
{
    static const char format[] = "{ lambda ; x:f32[256]\"x\". let\n"
                                 "    y:f32[256] = remat[policy=\"%s\" limit=%zu\n"
                                 "      body={ lambda ; x:f32[256]. let\n"
                                 "          a:f32[256] = exp x\n"
                                 "          b:f32[256] = name[name=\"b\"] a\n"
                                 "          c:f32[256] = sin b\n"
                                 "          d:f32[256] = name[name=\"d\"] c\n"
                                 "          e:f32[256] = exp d\n"
                                 "          f:f32[256] = sin e\n"
                                 "        in (f) }] x\n"
                                 "    l:f32[] = reduce_sum[axes=(0)] y\n"
                                 "  in (l) }\n";
    char text[sizeof format + 64];
    tow_graph *g = NULL;
    snprintf(text, sizeof text, format, policy, limit);
    (void)tow_graph_parse(c, text, &g);
    return g;
}

static size_t bytes_of(const char *policy, size_t limit)
{
    tow_graph *g = named(ctx, policy, limit);
    const size_t bytes = residual_bytes(g, 0, NULL);
    tow_graph_release(g);
    return bytes;
}

static bool keeps_name(const char *policy, size_t limit, const char *name)
{
    tow_graph *g = named(ctx, policy, limit);
    tow_residuals r;
    bool found = false;
    OK(tow_saved_residuals(g, 0, NULL, &r));
    for (size_t i = 0; i < r.count; i++)
        found |= r.items[i].kind == TOW_RESIDUAL_NAMED && strcmp(r.items[i].what, name) == 0;
    tow_residuals_free(&r);
    tow_graph_release(g);
    return found;
}

static void policies_are_verdicts(void **state)
{
    (void)state;
    for (size_t limit = 1024; limit <= 5 * 1024; limit += 1024) {
        assert_true(keeps_name("names:b", limit, "b"));
        assert_true(bytes_of("names:b", limit) <= limit);
        assert_true(!keeps_name("anything_except:b", limit, "b"));
        assert_true(bytes_of("anything_except:b", limit) <= limit);
    }
    assert_true(bytes_of("nothing", 4096) > 1024); /* what a policy prefers, the limit overrules */
    assert_int_equal(bytes_of("everything", 1023), 0);
    tow_graph *g = named(ctx, "names:b,d", 2047), *gradient;
    assert_int_equal(tow_grad(g, 0, NULL, false, &gradient), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "remat: .limit: expected at least 2048 bytes"));
    assert_non_null(strstr(tow_context_error(ctx), "found 2047"));
    tow_context_clear_error(ctx);
    tow_graph_release(g);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

typedef struct insisting {
    tow_module module;
} insisting;

static void call_insisting(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                           tow_value *out)
{
    (void)scope, (void)module, (void)n_in, (void)n_out;
    out[0] = tow_sin(tow_checkpoint_name(tow_exp(in[0]), "b"));
}

static const tow_module_class insisting_class = {.name = "insisting", .call = call_insisting};

/* The message has the path of the layer. */
static void impossible_limits_are_errors(void **state)
{
    (void)state;
    insisting inner = {.module = {&insisting_class, sizeof inner}};
    tow_remat remat = TOW_REMAT(&inner, .limit = 1023, .policy = tow_save_only_these_names("b"));
    tow_sequential model = TOW_SEQUENTIAL(TOW_MODULE(&TOW_NAMED("greedy", &remat)));
    const tow_type x = tow_make_type(TOW_F32, 1, (int64_t[]){256});
    tow_graph *loss, *gradient;
    tow_params *params;
    OK(tow_model_init(ctx, TOW_MODULE(&model), 0, 1, &x, &params));
    OK(tow_model_loss_graph(TOW_MODULE(&model), params, 1, &x, 0, NULL, sum_of_squares, NULL, 0, NULL, &loss));
    assert_int_equal(tow_grad(loss, 0, NULL, false, &gradient), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "remat in greedy"));
    assert_non_null(strstr(tow_context_error(ctx), ".limit: expected at least 1024 bytes"));
    tow_context_clear_error(ctx);
    tow_graph_release(loss);
    tow_params_free(params);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

/* Graphs with limits and their gradients can be printed and read again. */
static void text_round_trips(void **state)
{
    (void)state;
    tow_graph *g = named(ctx, "names:b", 3072), *gradient, *again;
    OK(tow_grad(g, 0, NULL, false, &gradient));
    const tow_graph *both[] = {g, gradient};
    for (int i = 0; i < 2; i++) {
        char text[4096], second[4096];
        assert_true(tow_graph_text(both[i], text, sizeof text) < sizeof text);
        OK(tow_graph_parse(ctx, text, &again));
        tow_graph_text(again, second, sizeof second);
        assert_string_equal(text, second);
        tow_graph_release(again);
    }
    tow_graph_release(gradient);
    tow_graph_release(g);
}

/* The limit is that of the batched region. */
static void batches_count(void **state)
{
    (void)state;
    tow_graph *g = named(ctx, "nothing", 4096), *batched;
    OK(tow_vmap(g, 8, (const int[]){0}, NULL, &batched));
    assert_int_equal(residual_bytes(g, 0, NULL), 2048);
    assert_int_equal(residual_bytes(batched, 0, NULL), 0); /* values have 8192 bytes now */
    tow_graph_release(batched);
    tow_graph_release(g);
}

static void allocations_may_fail(void **state)
{
    (void)state;
    tow_status status = TOW_OUT_OF_MEMORY;
    for (long n = 0; status != TOW_OK; n += 1 + n / 40) {
        counting count;
        tow_context_options options = counting_options(&count, n);
        tow_context *c;
        status = tow_context_create(&options, &c);
        if (status == TOW_OK) {
            tow_graph *g = named(c, "names:b", 2048), *gradient = NULL;
            status = g ? tow_grad(g, 0, NULL, false, &gradient) : TOW_OUT_OF_MEMORY;
            tow_graph_release(gradient);
            tow_graph_release(g);
            tow_context_free(c);
        }
        assert_true(status == TOW_OUT_OF_MEMORY || (status == TOW_OK && count.calls <= n));
        assert_int_equal(count.blocks, 0);
        assert_int_equal(count.wrong_sizes, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(limits_hold_in_iterations),
        cmocka_unit_test(limits_hold_within_limits),
        cmocka_unit_test(policies_are_verdicts),
        cmocka_unit_test(impossible_limits_are_errors),
        cmocka_unit_test(text_round_trips),
        cmocka_unit_test(batches_count),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests_name("region_limit", tests, setup, teardown);
}

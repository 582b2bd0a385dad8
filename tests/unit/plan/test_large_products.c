/* Products large enough for every engine that the rule knows: loops and their iterations written out, remat, threads
 * and passes left out give the same bits, whatever computes the products and however they are cut or joined; and what
 * leaves a loop keeps the engine of an iteration. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tow/autodiff.h"
#include "tow/ops.h"
#include "tow/program.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(ctx));                                       \
    } while (0)

enum {
    INPUTS = 5
};

/* In each step h' = tanh(h w + x u) + (h v) v', for rows x width numbers; u has `features` rows. */
typedef struct model {
    int64_t steps, rows, width, features, inner;
} model;

typedef struct variant {
    const char *name;
    bool loop, remat;
    const tow_policy *policy;
    int threads;
    tow_compile_options options;
} variant;

typedef struct call {
    const model *m;
    const variant *v;
    tow_value w, u, side;
} call;

static void step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const call *c = user;
    (void)t;
    tow_value h = tow_tanh(tow_add(tow_dot(in[0], c->w), tow_dot(in[1], c->u)));
    tow_value inner = tow_tanh(tow_dot(h, c->side));
    out[0] = tow_add(h, tow_dot(inner, tow_transpose(c->side, 2, (int[]){1, 0})));
}

static void body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const call *c = user;
    if (c->v->remat)
        tow_remat_function(t, step, user, c->v->policy, 2, in, 1, out);
    else
        step(t, in, out, user);
}

/* in: h, xs, w, u, v */
static void loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    call c = *(const call *)user;
    tow_value h = in[0];
    c.w = in[2], c.u = in[3], c.side = in[4];
    if (c.v->loop) tow_scan_function(t, body, &c, NULL, 1, &h, 1, &in[1], 0, &h, NULL);
    for (int64_t i = 0; i < c.m->steps && !c.v->loop; i++)
        body(t, (tow_value[]){h, tow_squeeze(tow_slice_axis(in[1], 0, i, i + 1), 0)}, &h, &c);
    out[0] = tow_reduce_sum(tow_mul(h, h), 0, NULL);
}

/* The loss and all gradients, one after the other, which the caller frees. */
static float *run(const model *m, const variant *v, const char *engine, size_t *count)
{
    const tow_type types[INPUTS] = {tow_make_type(TOW_F32, 2, (int64_t[]){m->rows, m->width}),
                                    tow_make_type(TOW_F32, 3, (int64_t[]){m->steps, m->rows, m->features}),
                                    tow_make_type(TOW_F32, 2, (int64_t[]){m->width, m->width}),
                                    tow_make_type(TOW_F32, 2, (int64_t[]){m->features, m->width}),
                                    tow_make_type(TOW_F32, 2, (int64_t[]){m->width, m->inner})};
    tow_context *ctx;
    assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = v->threads, .engine = engine), &ctx), TOW_OK);
    call c = {.m = m, .v = v};
    tow_graph *graph, *gradient;
    tow_array *in[INPUTS], *out[INPUTS + 1];
    tow_program *program;
    OK(tow_trace_function(ctx, loss, &c, INPUTS, types, NULL, 1, &graph));
    OK(tow_value_and_grad(graph, INPUTS, (size_t[]){0, 1, 2, 3, 4}, false, &gradient));
    tow_compile_options options = v->options;
    options.size = sizeof options;
    OK(tow_compile(ctx, gradient, &options, &program));
    *count = 1;
    uint32_t state = 7;
    for (int i = 0; i < INPUTS; i++) {
        OK(tow_array_create(ctx, types[i], &in[i]));
        for (int64_t j = 0; j < tow_type_element_count(types[i]); j++) {
            state = state * 1664525u + 1013904223u;
            ((float *)tow_array_data(in[i]))[j] = ((float)(state >> 8) * 0x1p-24f - 0.5f) * 0.25f;
        }
        *count += (size_t)tow_type_element_count(types[i]);
    }
    for (size_t i = 0; i <= INPUTS; i++) OK(tow_array_create(ctx, tow_graph_output_type(gradient, i), &out[i]));
    OK(tow_program_run(program, in, out));
    float *numbers = malloc(*count * sizeof *numbers), *to = numbers;
    assert_non_null(numbers);
    for (int i = 0; i <= INPUTS; i++) {
        size_t n = (size_t)tow_type_element_count(tow_array_type(out[i]));
        memcpy(to, tow_array_data(out[i]), n * sizeof *to);
        to += n;
        tow_array_release(out[i]);
    }
    for (int i = 0; i < INPUTS; i++) tow_array_release(in[i]);
    tow_program_free(program);
    tow_graph_release(gradient);
    tow_graph_release(graph);
    tow_context_free(ctx);
    return numbers;
}

static void expect_same_bits(const model *m, const char *engine)
{
    const tow_policy nothing = tow_nothing_saveable(), dots = tow_dots_saveable();
    const variant
        plain = {.name = "written out", .threads = 1},
        variants[] = {
            {.name = "two threads", .threads = 2},
            {.name = "no fusion", .threads = 2, .options = {.no_fusion = true}},
            {.name = "no regions", .threads = 2, .options = {.no_regions = true}},
            {.name = "remat", .remat = true, .policy = &nothing, .threads = 2},
            {.name = "a limit", .remat = true, .policy = &nothing, .threads = 2, .options = {.memory_limit = SIZE_MAX}},
            {.name = "a loop", .loop = true, .threads = 2},
            {.name = "a loop on one thread", .loop = true, .threads = 1, .options = {.no_regions = true}},
            {.name = "a loop with remat", .loop = true, .remat = true, .policy = &nothing, .threads = 2},
            {.name = "a loop with products kept", .loop = true, .remat = true, .policy = &dots, .threads = 2},
        };
    size_t count, other;
    float *want = run(m, &plain, engine, &count);
    for (size_t i = 0; i < count; i++) assert_true(want[i] - want[i] == 0);
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        float *got = run(m, &variants[v], engine, &other);
        assert_int_equal(other, count);
        for (size_t i = 0; i < count; i++)
            if (memcmp(&got[i], &want[i], sizeof *got) != 0)
                fail_msg("rows %d, %s: number %zu is %.9g, expected %.9g", (int)m->rows, variants[v].name, i,
                         (double)got[i], (double)want[i]);
        free(got);
    }
    free(want);
}

static void engines_change_no_bits_within_a_program(void **state)
{
    (void)state;
    static const model models[] = {
        {3, 176, 160, 160, 192}, /* all products are large */
        {3, 300, 130, 40, 150},  /* some are */
        {48, 4, 160, 160, 192},  /* few rows in an iteration, more than the rule asks for in all of them */
        {200, 1, 192, 192, 130},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) expect_same_bits(&models[i], NULL);
    expect_same_bits(&(model){3, 40, 33, 50, 70}, "amx"); /* small ones, on the matrix unit where there is one */
}

/* A choice of the caller holds for large products, too, and portable bits are those of the own kernel. */
static void choices_hold(void **state)
{
    (void)state;
    const model m = {3, 176, 160, 160, 192};
    const variant v = {.threads = 2};
    size_t count;
    float *own = run(&m, &v, "own", &count), *rule = run(&m, &v, NULL, &count);
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += (double)(own[i] - rule[i]) * (double)(own[i] - rule[i]);
        size += (double)own[i] * (double)own[i];
    }
    assert_true(difference <= 1e-12 * size);
    free(own);
    free(rule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_change_no_bits_within_a_program),
        cmocka_unit_test(choices_hold),
    };
    return cmocka_run_group_tests_name("large products", tests, NULL, NULL);
}

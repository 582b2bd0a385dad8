/* Gradients of one's own of which each process has its share (.in_layers, .out_layers of tow_row_groups): the bits of
 * one process that has all. Tests autodiff/sharding/analysis.c, autodiff/rows/rows.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/row_models.h"

enum {
    MOST = 64 /* inputs and outputs of a graph */
};

/* A gradient, and what it is of random tokens. */
typedef struct own_gradient {
    size_t n; /* parameters */
    int64_t micro_batches;
    bool turned;
    tow_graph *gradient;
    int axes[MOST];
    int64_t layers_in[MOST], layers_out[MOST];
    tow_array *inputs[MOST], *outputs[MOST]; /* outputs: of one process that has all */
} own_gradient;

/* This process's share of each layer. NULL: no memory. */
static tow_array *cut_share(tow_context *context, const tow_group *group, const tow_array *whole, int64_t layers)
{
    const tow_type type = tow_array_type(whole);
    const int64_t n = tow_type_element_count(type) / layers;
    int64_t first, count;
    tow_array *share;
    tow_group_share(tow_group_rank(group), tow_group_count(group), n, &first, &count);
    if (tow_array_create(context, tow_make_type(type.dtype, 2, (int64_t[]){layers, count}), &share) != TOW_OK)
        return NULL;
    for (int64_t l = 0; l < layers; l++)
        memcpy((float *)tow_array_data(share) + l * count, (const float *)tow_array_data(whole) + l * n + first,
               (size_t)count * sizeof(float));
    return share;
}

/* A loss of the mean alone, without values of rows. */
static void mean_loss(tow_trace *t, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                      void *user)
{
    (void)t, (void)aux, (void)user;
    *loss = tow_mean(tow_softmax_cross_entropy(out[0], extra[0]), 0, NULL);
}

/* A table [C, V] that is turned around before rows of it are looked up, and makes the logits as well: what lookups add
 * to its gradient is turned around after their sum. */
static void turned_loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_value rows = tow_transpose(in[0], 0, NULL), x = tow_tanh(tow_gather(rows, in[1]));
    (void)t, (void)user;
    out[0] = tow_mean(tow_softmax_cross_entropy(tow_matmul(x, tow_transpose(rows, 0, NULL)), in[2]), 0, NULL);
}

static tow_status make_turned_gradient(tow_context *context, own_gradient *o)
{
    const tow_type tokens = tow_make_type(TOW_I32, 2, (int64_t[]){B, 6}), types[] = {F32(96, 11), tokens, tokens};
    tow_graph *loss = NULL;
    *o = (own_gradient){.n = 1, .micro_batches = 1, .axes = {TOW_NOT_MAPPED}, .layers_in = {1}, .layers_out = {0, 1}};
    o->turned = true;
    drawn = 5;
    tow_status status = tow_trace_function(context, turned_loss, NULL, 3, types, NULL, 1, &loss);
    for (size_t i = 0; i < 3 && !status; i++)
        if (!(o->inputs[i] = random_array(context, types[i]))) status = TOW_OUT_OF_MEMORY;
    if (!status) status = tow_value_and_grad(loss, 1, (size_t[]){0}, false, &o->gradient);
    tow_graph_release(loss);
    return status;
}

/* The gradient of the whole batch, and its inputs. */
static tow_status make_own_gradient(tow_context *context, own_gradient *o)
{
    static const tow_module_class class = {.name = "Model", .call = call_model};
    const model m = {.module = {.cls = &class}, .kind = GPT};
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){B, 6});
    size_t wrt[MOST];
    tow_params *params = NULL;
    tow_graph *loss = NULL;
    *o = (own_gradient){.micro_batches = 1};
    tow_status status = tow_model_init(context, &m.module, 3, 1, &type, &params);
    if (!status)
        status = tow_model_loss_graph(&m.module, params, 1, &type, 1, &type, mean_loss, NULL, 0,
                                      &TOW_MODEL_OPTIONS(.deterministic = true), &loss);
    o->n = status ? 0 : tow_params_count(params);
    drawn = 5;
    for (size_t i = 0; i < o->n + 2 && !status; i++) {
        wrt[i] = i;
        o->axes[i] = i < o->n ? TOW_NOT_MAPPED : 0;
        o->inputs[i] = i < o->n ? tow_array_retain(tow_params_array(params, i)) : random_array(context, type);
        if (!o->inputs[i]) status = TOW_OUT_OF_MEMORY;
        if (i < o->n) o->layers_in[i] = o->layers_out[1 + i] = strstr(tow_params_path(params, i), "{}") ? 2 : 1;
    }
    if (!status) status = tow_value_and_grad(loss, o->n, wrt, false, &o->gradient);
    tow_graph_release(loss);
    tow_params_free(params);
    return status;
}

static void free_own_gradient(own_gradient *o)
{
    for (size_t i = 0; i < MOST; i++) tow_array_release(o->inputs[i]), tow_array_release(o->outputs[i]);
    tow_graph_release(o->gradient);
}

/* Runs it as one of the processes, or alone, on inputs that it releases. */
static tow_status run_gradient(tow_context *context, tow_group *group, const own_gradient *o, bool shares,
                               tow_array **in, tow_array **out)
{
    tow_graph *graph = NULL;
    tow_program *program = NULL;
    tow_row_groups_options options =
        TOW_ROW_GROUPS_OPTIONS(.groups = ROW_GROUPS, .micro_batches = o->micro_batches, .in_axes = o->axes,
                               .group = group, .in_layers = shares ? o->layers_in : NULL,
                               .out_layers = shares ? o->layers_out : NULL);
    tow_status status = tow_row_groups(o->gradient, &options, &graph);
    if (!status) status = tow_compile(context, graph, NULL, &program);
    for (size_t i = 0; i <= o->n && !status; i++)
        status = tow_array_create(context, tow_graph_output_type(graph, i), &out[i]);
    if (!status) status = tow_program_run(program, in, out);
    tow_program_free(program);
    tow_graph_release(graph);
    for (size_t i = 0; i < o->n + 2; i++) tow_array_release(in[i]);
    return status;
}

static int run_own_gradient(tow_context *context, tow_group *group, void *user)
{
    const own_gradient *all = user;
    own_gradient o;
    tow_array *in[MOST] = {NULL}, *out[MOST] = {NULL};
    int begin, end, wrong = 0;
    tow_group_rows(tow_group_rank(group), tow_group_count(group), ROW_GROUPS, &begin, &end);
    if ((all->turned ? make_turned_gradient : make_own_gradient)(context, &o) != TOW_OK) return 1;
    o.micro_batches = all->micro_batches;
    for (size_t i = 0; i < o.n + 2; i++) {
        const int64_t first = begin * B / ROW_GROUPS, count = (end - begin) * B / ROW_GROUPS;
        in[i] = i < o.n ? cut_share(context, group, o.inputs[i], o.layers_in[i])
                        : own_rows(context, o.inputs[i], first, count);
        if (!in[i]) return 2;
    }
    if (run_gradient(context, group, &o, true, in, out) != TOW_OK) {
        fprintf(stderr, "%s\n", tow_context_error(context));
        return 3;
    }
    for (size_t i = 0; i <= o.n; i++) {
        const int64_t layers = o.layers_out[i];
        tow_array *expected =
            i > 0 ? cut_share(context, group, all->outputs[i], layers) : tow_array_retain(all->outputs[i]);
        if (!expected) return 4;
        const size_t bytes = tow_type_bytes(tow_array_type(expected));
        wrong += memcmp(tow_array_data(out[i]), tow_array_data(expected), bytes) != 0;
        tow_array_release(expected), tow_array_release(out[i]);
    }
    free_own_gradient(&o);
    return wrong > 0 ? differs(group, "a gradient") : 0;
}

static void refuse_layers(const own_gradient *o)
{
    tow_graph *graph;
    assert_int_equal(tow_row_groups(o->gradient,
                                    &TOW_ROW_GROUPS_OPTIONS(.groups = ROW_GROUPS, .in_axes = o->axes,
                                                            .in_layers = o->layers_in, .out_layers = o->layers_out),
                                    &graph),
                     TOW_INVALID_ARGUMENT);
}

static void test_own_gradients(void **state)
{
    (void)state;
    own_gradient o;
    OK(make_own_gradient(ctx, &o));
    tow_array *in[MOST];
    for (size_t i = 0; i < o.n + 2; i++) in[i] = tow_array_retain(o.inputs[i]);
    OK(run_gradient(ctx, NULL, &o, false, in, o.outputs));
    for (int i = 0; i < 4; i++) {
        tow_context *own;
        o.micro_batches = i % 2 ? 8 : 1;
        OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &own));
        if (tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = 2 + i / 2), run_own_gradient, &o) != TOW_OK)
            fail_msg("%s", tow_context_error(own));
        tow_context_free(own);
    }
    const int64_t layers = o.layers_in[0];
    o.layers_in[0] = 7; /* no divisor of its elements */
    refuse_layers(&o);
    o.layers_in[0] = layers;
    o.layers_in[o.n] = 1; /* has rows */
    refuse_layers(&o);
    free_own_gradient(&o);
}

static void test_turned_gradient(void **state)
{
    (void)state;
    own_gradient o;
    tow_context *own;
    OK(make_turned_gradient(ctx, &o));
    tow_array *in[MOST];
    for (size_t i = 0; i < o.n + 2; i++) in[i] = tow_array_retain(o.inputs[i]);
    OK(run_gradient(ctx, NULL, &o, false, in, o.outputs));
    OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &own));
    if (tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = 3), run_own_gradient, &o) != TOW_OK)
        fail_msg("%s", tow_context_error(own));
    tow_context_free(own);
    free_own_gradient(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_own_gradients), cmocka_unit_test(test_turned_gradient)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* Methods of layers, and what a remat hides.
 * Tests view.c, scope/views.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/lift_cell.h"

static const tow_type x = {.dtype = TOW_F32, .rank = 2, .dims = {2, 4}};

static void expect_same_outputs(const char *what, const lift_run *a, const lift_run *b)
{
    for (size_t i = 0; i < a->n_out; i++)
        if (memcmp(tow_array_data(a->outputs[i]), tow_array_data(b->outputs[i]),
                   tow_type_bytes(tow_array_type(a->outputs[i]))))
            fail_msg("%s: output %zu", what, i);
}

/* ---- methods ----------------------------------------------------------------------------------------------------- */

/* y = W2 tanh(W1 x); its method is tanh(W1 x). */
typedef struct coder {
    tow_module module;
    int64_t features;
} coder;

static void call_encoder(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    (void)n_in, (void)n_out;
    tow_dense up = TOW_DENSE(.features = ((const coder *)module)->features);
    out[0] = tow_tanh(tow_apply(s, "up", &up, in[0]));
}
static void call_coder(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    tow_dense down = TOW_DENSE(.features = tow_value_type(in[0]).dims[1]);
    tow_value h;
    call_encoder(s, module, n_in, in, n_out, &h);
    out[0] = tow_apply(s, "down", &down, h);
}
static const tow_module_class coder_class = {"coder", call_coder};
static const coder four = {{&coder_class}, 4};

/* In another function of the layer parameters have the same paths and values, also in transforms. */
static void test_methods(void **unused)
{
    (void)unused;
    tow_method encode = TOW_METHOD(&four, .function = call_encoder);
    tow_remat remat = TOW_REMAT(&encode);
    tow_scan scan = TOW_SCAN(&remat, .length = 3), whole = TOW_SCAN(&four, .length = 3);
    lift_run a, b, c;
    run_lifted(&a, TOW_MODULE(&STACK(&encode)), 1, &x, 1, NULL);
    run_lifted(&b, TOW_MODULE(&STACK(&remat)), 1, &x, 1, NULL);
    run_lifted(&c, TOW_MODULE(&STACK(&four)), 1, &x, 1, NULL);
    expect_same_outputs("method", &a, &b);
    assert_int_equal(tow_params_count(a.params), 2);
    for (size_t i = 0; i < 2; i++) {
        tow_array *other = tow_params_find(c.params, tow_params_path(a.params, i));
        assert_memory_equal(tow_array_data(tow_params_array(a.params, i)), tow_array_data(other),
                            tow_type_bytes(tow_array_type(other)));
    }
    free_lift_run(&a);
    free_lift_run(&b);
    free_lift_run(&c);
    run_lifted(&a, TOW_MODULE(&STACK(&scan)), 1, &x, 1, NULL);
    run_lifted(&b, TOW_MODULE(&STACK(&whole)), 1, &x, 1, NULL);
    assert_int_equal(tow_params_count(a.params), 2);
    assert_memory_equal(tow_array_data(tow_params_find(a.params, "stack/{}/up/kernel")),
                        tow_array_data(tow_params_find(b.params, "stack/{}/up/kernel")), 3 * 64);
    free_lift_run(&a);
    free_lift_run(&b);
}

/* ---- what a remat hides ------------------------------------------------------------------------------------------ */

static tow_status initialize(const tow_module *module)
{
    const stack model = {{&stack_class}, module};
    tow_params *params = NULL, *state = NULL;
    tow_status status = tow_model_init_with(ctx, TOW_MODULE(&model), 3, 1, &x, NULL, &params, &state);
    tow_params_free(params);
    tow_params_free(state);
    return status;
}

static void test_hidden(void **unused)
{
    (void)unused;
    running layer = RUNNING();
    tow_remat sown = TOW_REMAT(&layer, .variables = TOW_RULES({"intermediates", TOW_HIDDEN})),
              plain = TOW_REMAT(&layer);
    const tow_remat *models[] = {&sown, &plain};
    static const char *const both[] = {"batch_stats", "intermediates", NULL}, *const stats_only[] = {"batch_stats",
                                                                                                     NULL};
    for (size_t i = 0; i < 2; i++) {
        tow_params *params, *state, *updates;
        tow_graph *graph;
        tow_model_options options = TOW_MODEL_OPTIONS(.updates = &updates);
        OK(tow_model_init_with(ctx, TOW_MODULE(models[i]), 1, 1, &x, &options, &params, &state));
        options.state = state;
        options.mutable_collections = both;
        if (i == 0) { /* nothing is sown, so that nothing can be taken out */
            expect_error(tow_model_forward_graph(TOW_MODULE(models[i]), params, 1, &x, &options, &graph), TOW_NOT_FOUND,
                         "intermediates");
            options.mutable_collections = stats_only;
        }
        OK(tow_model_forward_graph(TOW_MODULE(models[i]), params, 1, &x, &options, &graph));
        assert_int_equal(tow_params_count(updates), i == 0 ? 1 : 3);
        tow_graph_release(graph);
        tow_params_free(params);
        tow_params_free(state);
        tow_params_free(updates);
    }
    tow_remat params = TOW_REMAT(&cell, .variables = TOW_RULES({"params/*/bias", TOW_HIDDEN})),
              stats = TOW_REMAT(&cell, .variables = TOW_RULES({"params", TOW_STACKED}, {"*", TOW_HIDDEN})),
              keys = TOW_REMAT(&cell, .streams = TOW_RULES({"noise", TOW_HIDDEN}));
    tow_scan scan = TOW_SCAN(&params, .length = 2);
    expect_error(initialize(TOW_MODULE(&params)), TOW_NOT_FOUND, "params/stack/dense/bias", "TOW_HIDDEN");
    expect_error(initialize(TOW_MODULE(&scan)), TOW_NOT_FOUND, "params/stack/{}/dense/bias", "TOW_HIDDEN");
    expect_error(initialize(TOW_MODULE(&stats)), TOW_NOT_FOUND, "batch_stats/stack/mean", "TOW_HIDDEN");
    expect_error(initialize(TOW_MODULE(&keys)), TOW_NOT_FOUND, "\"noise\"", "TOW_HIDDEN");
}

/* ---- errors, memory ---------------------------------------------------------------------------------------------- */

static void test_errors(void **unused)
{
    (void)unused;
    expect_error(initialize(TOW_MODULE(&TOW_METHOD(&four, .function = NULL))), TOW_INVALID_ARGUMENT,
                 "found no .function");
}

static tow_status use_views(tow_context *c)
{
    tow_method encode = TOW_METHOD(&four, .function = call_encoder);
    tow_remat remat = TOW_REMAT(&encode, .variables = TOW_RULES({"params", TOW_STACKED}, {"*", TOW_HIDDEN}));
    tow_scan scan = TOW_SCAN(&remat, .length = 2);
    tow_params *params = NULL;
    tow_graph *graph = NULL;
    tow_status status = tow_model_init(c, TOW_MODULE(&scan), 3, 1, &x, &params);
    for (int i = 0; i < 3 && !status; i++) {
        tow_graph_release(graph);
        graph = NULL;
        status = tow_model_forward_graph(TOW_MODULE(&scan), params, 1, &x, NULL, &graph);
    }
    tow_params_free(params);
    tow_graph_release(graph);
    return status;
}

static void test_failing_allocations(void **unused)
{
    (void)unused;
    fail_in_turn(use_views);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_hidden),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

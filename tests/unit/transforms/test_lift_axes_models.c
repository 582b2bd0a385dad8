/* Models with variables on other axes than 0: errors, gradients, what is sown, views of parameters, summaries, odd
 * sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/lift_cell.h"
#include "tow/transforms.h"

static const tow_type x2 = {.dtype = TOW_F32, .rank = 2, .dims = {2, 4}};

static tow_status initialize(tow_scan scan, tow_params **params, tow_params **state)
{
    tow_params *made[2] = {NULL, NULL};
    const tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = 3);
    tow_status status = tow_model_init_with(ctx, TOW_MODULE(&STACK(&scan)), 3, 1, &x2, &options, &made[0], &made[1]);
    if (params) *params = made[0];
    if (!params) tow_params_free(made[0]);
    if (state) *state = made[1];
    if (!state) tow_params_free(made[1]);
    return status;
}
#define INIT(...) initialize(TOW_SCAN(&cell, .length = 3, .variables = TOW_RULES(__VA_ARGS__)), NULL, NULL)

static void errors(void **unused)
{
    (void)unused;
    expect_error(INIT({"*", TOW_STACKED, 1}), TOW_INVALID_ARGUMENT,
                 "counters/stack/{@1}/calls: a rule of the transform stack", "on axis 1", "i32[] in one layer",
                 "an axis in [-1, 1)", ".axis");
    expect_error(INIT({"params", TOW_STACKED, 2}), TOW_INVALID_ARGUMENT, "params/stack/{@2}/dense/bias", "on axis 2",
                 "[-2, 2)");
    expect_error(INIT({"params/dense/kernel", TOW_STACKED, -4}), TOW_INVALID_ARGUMENT,
                 "params/stack/{@-4}/dense/kernel", "[-3, 3)");
    expect_error(
        initialize(TOW_SCAN(&cell, .length = 3, .unrolled = true, .variables = TOW_RULES({"params", TOW_STACKED, 2})),
                   NULL, NULL),
        TOW_INVALID_ARGUMENT, "params/stack/0/dense/bias", "on axis 2", "[-2, 2)");
    expect_error(INIT({"params", TOW_SHARED, 1}), TOW_INVALID_ARGUMENT, ".variables: \"params\" has .axis = 1",
                 "TOW_STACKED");
    expect_error(INIT({"counters", TOW_CARRIED, -1}), TOW_INVALID_ARGUMENT, "\"counters\" has .axis = -1");
    expect_error(INIT({"params", TOW_STACKED, 8}), TOW_INVALID_ARGUMENT, "[-8, 8)");
    expect_error(INIT({"params", TOW_STACKED, INT32_MIN}), TOW_INVALID_ARGUMENT, "[-8, 8)");
    expect_error(initialize(TOW_SCAN(&cell, .length = 3, .streams = TOW_RULES({"noise", TOW_STACKED, 1})), NULL, NULL),
                 TOW_INVALID_ARGUMENT, ".streams: \"noise\" has .axis = 1", "keys are in no array");
    const tow_remat remat = TOW_REMAT(&cell, .variables = TOW_RULES({"params", TOW_STACKED, 1}));
    expect_error(initialize(TOW_SCAN(&remat, .length = 3), NULL, NULL), TOW_INVALID_ARGUMENT,
                 "remat: .variables: \"params\" has .axis = 1, but the transform stacks nothing");
    const tow_vmap_layer vmap = TOW_VMAP(&cell, .axis_size = 2, .in_axes = (int[]){TOW_NOT_MAPPED},
                                         .variables = TOW_RULES({"params", TOW_STACKED, 2}));
    tow_params *params = NULL;
    expect_error(tow_model_init_with(ctx, TOW_MODULE(&STACK(&vmap)), 3, 1, &x2, &TOW_MODEL_OPTIONS(.n_outputs = 3),
                                     &params, NULL),
                 TOW_INVALID_ARGUMENT, "params/stack/{@2}/dense/bias");
    const tow_scan inner = TOW_SCAN(&cell, .length = 2, .variables = TOW_RULES({"params", TOW_STACKED, 1}));
    const tow_scan outer = TOW_SCAN(&inner, .length = 2, .variables = TOW_RULES({"params", TOW_STACKED, 3}));
    expect_error(tow_model_init_with(ctx, TOW_MODULE(&STACK(&outer)), 3, 1, &x2, &TOW_MODEL_OPTIONS(.n_outputs = 3),
                                     &params, NULL),
                 TOW_INVALID_ARGUMENT, "params/stack/{@3}/{@1}/dense/bias", "on axis 3", "[-3, 3)");
}

/* A list of the same model with other axes, and one of another length. */
static void lists_of_other_axes(void **unused)
{
    (void)unused;
    const tow_scan scan = TOW_SCAN(&cell, .length = 3, .variables = TOW_RULES({"params", TOW_STACKED, 1}));
    tow_params *plain, *state, *moved, *longer;
    tow_graph *graph = NULL;
    OK(initialize(TOW_SCAN(&cell, .length = 3), &plain, &state));
    const tow_model_options options =
        TOW_MODEL_OPTIONS(.n_outputs = 3, .state = state, .streams = (const char *const[]){"noise", NULL});
    expect_error(tow_model_forward_graph(TOW_MODULE(&STACK(&scan)), plain, 1, &x2, &options, &graph), TOW_NOT_FOUND,
                 "params/stack/{@1}/dense/kernel: the model asks for f32[4,3,4]", "tow_params_to_tensors");
    OK(initialize(scan, &moved, NULL));
    tow_tensors *tensors = tensors_of(plain);
    OK(tow_params_from_tensors(moved, "", tensors));
    OK(tow_model_forward_graph(TOW_MODULE(&STACK(&scan)), moved, 1, &x2, &options, &graph));
    tow_graph_release(graph);
    OK(initialize(TOW_SCAN(&cell, .length = 5, .variables = scan.variables), &longer, NULL));
    expect_error(tow_model_forward_graph(TOW_MODULE(&STACK(&scan)), longer, 1, &x2, &options, &graph),
                 TOW_SHAPE_MISMATCH, "params/stack/{@1}/dense/", "expected 3 layers in axis 1", "f32[4,5,4]");
    tow_tensors_free(tensors);
    tow_params_free(plain);
    tow_params_free(state);
    tow_params_free(moved);
    tow_params_free(longer);
}

/* Gradients have the paths and types of their parameters, and updates those of the variables. */
static void mean_of_squares(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                            tow_value *aux, void *user)
{
    (void)t, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(tow_square(outputs[0]), 0, NULL);
}

static void gradients_have_the_axes(void **unused)
{
    (void)unused;
    const running layer = RUNNING(.drops = 0);
    const tow_lift_rule *const rules = TOW_RULES({"params/**/kernel", TOW_STACKED, -1}, {"params", TOW_STACKED, 1},
                                                 {"batch_stats", TOW_STACKED, 1}, {"intermediates", TOW_STACKED, 1});
    const tow_scan scan = TOW_SCAN(&layer, .length = 3, .variables = rules), plain = TOW_SCAN(&layer, .length = 3);
    const tow_scan *const models[] = {&plain, &scan};
    tow_params *params[2], *state[2];
    tow_model_function *functions[2];
    tow_model_results r[2];
    tow_array *x = exact_fractions(ctx, small);
    for (int i = 0; i < 2; i++) {
        OK(tow_model_init_with(ctx, TOW_MODULE(models[i]), 3, 1, &small, NULL, &params[i], &state[i]));
        const tow_model_options options =
            TOW_MODEL_OPTIONS(.state = state[i], .mutable_collections = (const char *const[]){"batch_stats", "counters",
                                                                                              "intermediates", NULL});
        OK(tow_model_function_create_value_and_grad(
            TOW_MODULE(models[i]), params[i],
            &TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .loss = mean_of_squares, .model = &options), &functions[i]));
        OK(tow_model_function_call(functions[i], &TOW_MODEL_ARGUMENTS(.inputs = &x), &r[i]));
        assert_int_equal(tow_params_count(r[i].gradients), tow_params_count(params[i]));
        for (size_t k = 0; k < tow_params_count(params[i]); k++) {
            assert_string_equal(tow_params_path(r[i].gradients, k), tow_params_path(params[i], k));
            assert_true(tow_type_equal(tow_array_type(tow_params_array(r[i].gradients, k)),
                                       tow_array_type(tow_params_array(params[i], k))));
        }
    }
    assert_true(r[0].loss == r[1].loss);
    expect_same_list("gradients", r[0].gradients, r[1].gradients);
    expect_same_list("updates", r[0].updates, r[1].updates);
    expect_same_list("sown", r[0].sown, r[1].sown);
    assert_non_null(tow_params_find(params[1], "{@-1}/dense/kernel"));
    assert_non_null(tow_params_find(r[1].updates, "batch_stats/{@1}/mean"));
    const tow_type hidden = TYPE(TOW_F32, 2, 3, 4);
    tow_array *sown = tow_params_find(r[1].sown, "intermediates/{@1}/hidden/1");
    assert_true(sown && tow_type_equal(tow_array_type(sown), hidden));
    OK(tow_params_assign(state[1], r[1].updates));
    for (int i = 0; i < 2; i++) {
        tow_model_function_free(functions[i]);
        tow_params_free(params[i]);
        tow_params_free(state[i]);
    }
    tow_array_release(x);
}

/* A value that is sown without that axis. */
static void call_scalar(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    out[0] = in[0];
    tow_sow(s, "intermediates", "sum", tow_reduce_sum(in[0], 0, NULL));
}
static const tow_module_class scalar_class = {"scalar", call_scalar};

static void sown_values_without_the_axis(void **unused)
{
    (void)unused;
    const bare layer = {{&scalar_class}};
    tow_graph *graph = NULL;
    tow_params *none, *updates = NULL;
    OK(tow_params_from_arrays(ctx, 0, NULL, NULL, &none));
    const tow_model_options options =
        TOW_MODEL_OPTIONS(.mutable_collections = (const char *const[]){"intermediates", NULL}, .updates = &updates);
    const tow_scan scan = TOW_SCAN(&layer, .length = 3, .variables = TOW_RULES({"intermediates", TOW_STACKED, 1}));
    const tow_vmap_layer vmap = TOW_VMAP(&layer, .variables = TOW_RULES({"intermediates", TOW_STACKED, -2}));
    expect_error(tow_model_forward_graph(TOW_MODULE(&STACK(&scan)), none, 1, &x2, &options, &graph),
                 TOW_INVALID_ARGUMENT, "intermediates/stack/{@1}/sum/0: a rule of the scan stack stacks it on axis 1",
                 "[-1, 1)");
    expect_error(tow_model_forward_graph(TOW_MODULE(&STACK(&vmap)), none, 1, &x2, &options, &graph),
                 TOW_INVALID_ARGUMENT, "intermediates/stack/{@-2}/sum/0: a rule of the vmap stack");
    tow_params_free(none);
}

/* Views of parameters, LoRA and WeightNorm, around and in a scan; updates fold into kernels on any axis. */
static void views_of_parameters(void **unused)
{
    (void)unused;
    const tow_mlp mlp = TOW_MLP(.features = {6, 4});
    const tow_weight_norm norm = TOW_WEIGHT_NORM(&mlp);
    const tow_lora lora = TOW_LORA(&norm, .rank = 2, .alpha = 3);
    for (int k = 0; k < 4; k++) {
        static const tow_lift_rule one[] = {{"params/**/kernel", TOW_STACKED, 1}, {0}},
                                   end[] = {{"params", TOW_STACKED, -1}, {0}};
        tow_scan scan = TOW_SCAN(&lora, .length = 3);
        const tow_scan within = TOW_SCAN(&norm, .length = 3, .variables = k & 1 ? one : end),
                       plain = TOW_SCAN(&norm, .length = 3);
        const tow_lora around = TOW_LORA(&within, .rank = 2, .alpha = 3),
                       plain_around = TOW_LORA(&plain, .rank = 2, .alpha = 3);
        const tow_module *models[2] = {k < 2 ? TOW_MODULE(&scan) : TOW_MODULE(&plain_around), TOW_MODULE(&around)};
        tow_scan moved = scan;
        moved.variables = k & 1 ? one : end;
        if (k < 2) models[1] = TOW_MODULE(&moved);
        tow_params *params[2];
        tow_tensors *tensors[3];
        for (int i = 0; i < 2; i++) OK(tow_model_init(ctx, models[i], 3, 1, &x2, &params[i]));
        for (size_t i = 0; i < tow_params_count(params[0]); i++) /* b is zeros at first */
            if (strstr(tow_params_path(params[0], i), "/b")) {
                tow_array *b = tow_params_array(params[0], i);
                for (int64_t e = 0; e < tow_type_element_count(tow_array_type(b)); e++)
                    ((float *)tow_array_data(b))[e] = (float)(e % 7) / 8;
            }
        tensors[0] = tensors_of(params[0]);
        OK(tow_params_from_tensors(params[1], "", tensors[0]));
        tow_array *x = exact_fractions(ctx, x2), *y[2];
        for (int i = 0; i < 2; i++) {
            tow_model_function *function;
            tow_model_results r;
            OK(tow_model_function_create(models[i], params[i], &TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1), &function));
            OK(tow_model_function_call(function, &TOW_MODEL_ARGUMENTS(.inputs = &x), &r));
            y[i] = tow_array_retain(r.outputs[0]);
            tow_model_function_free(function);
            OK(tow_lora_merge(params[i], 3));
            tensors[1 + i] = tensors_of(params[i]);
        }
        assert_memory_equal(tow_array_data(y[0]), tow_array_data(y[1]), 32);
        expect_same_tensors("merged", tensors[1], tensors[2]);
        for (int i = 0; i < 3; i++) tow_tensors_free(tensors[i]);
        for (int i = 0; i < 2; i++) {
            tow_array_release(y[i]);
            tow_params_free(params[i]);
        }
        tow_array_release(x);
    }
}

static tow_value flipped(tow_value x, const tow_variable_request *asked, const void *user)
{
    (void)asked, (void)user;
    return tow_transpose(x, 0, NULL);
}

/* Kernels that are stored transposed, by a map in the scan or around it; and a layer that is tied to the one before
 * it. */
static void mapped_variables(void **unused)
{
    (void)unused;
    const tow_lift_rule *const rules[] = {NULL,
                                          TOW_RULES({"params/**/kernel", TOW_STACKED, 1}, {"**", TOW_STACKED, -1})};
    const tow_mlp mlp = TOW_MLP(.features = {6, 4});
    const tow_map_variables inner =
        TOW_MAP_VARIABLES(&mlp, .variables = TOW_NAMES("params/*/kernel"), .trans_in = flipped, .trans_out = flipped);
    const tow_dense up = TOW_DENSE(.features = 6, .no_bias = true), down = TOW_DENSE(.features = 4);
    const tow_tied tied = TOW_TIED(&down, .to = "../up/kernel", .transposed = true);
    const tow_sequential both =
        TOW_SEQUENTIAL(TOW_MODULE(&TOW_NAMED("up", &up)), TOW_MODULE(&TOW_NAMED("down", &tied)));
    for (int k = 0; k < 3; k++) {
        tow_params *params[2];
        tow_array *x = exact_fractions(ctx, x2);
        tow_model_results r[2];
        tow_model_function *functions[2];
        for (int i = 0; i < 2; i++) {
            tow_scan scan = TOW_SCAN(&inner, .length = 3, .variables = rules[i]);
            const tow_map_variables outer = TOW_MAP_VARIABLES(&scan, .variables = TOW_NAMES("params/{}/*/kernel"),
                                                              .trans_in = flipped, .trans_out = flipped);
            if (k == 1) scan.inner = TOW_MODULE(&mlp);
            if (k == 2) scan.inner = TOW_MODULE(&both);
            const tow_module *model = k == 1 ? TOW_MODULE(&outer) : TOW_MODULE(&scan);
            OK(tow_model_init(ctx, model, 3, 1, &x2, &params[i]));
            OK(tow_model_function_create_value_and_grad(
                model, params[i], &TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .loss = mean_of_squares), &functions[i]));
            OK(tow_model_function_call(functions[i], &TOW_MODEL_ARGUMENTS(.inputs = &x), &r[i]));
        }
        const tow_type kernel = k == 2 ? TYPE(TOW_F32, 4, 3, 6) : TYPE(TOW_F32, 6, 3, 4);
        assert_true(tow_type_equal(tow_array_type(tow_params_array(params[1], 0)), kernel));
        assert_true(r[0].loss == r[1].loss);
        expect_same_list("parameters", params[0], params[1]);
        expect_same_list("gradients", r[0].gradients, r[1].gradients);
        for (int i = 0; i < 2; i++) {
            tow_model_function_free(functions[i]);
            tow_params_free(params[i]);
        }
        tow_array_release(x);
    }
}

/* Layers own what is theirs, and the text of a graph with such paths is read again. */
static void summaries_and_texts(void **unused)
{
    (void)unused;
    const tow_mlp mlp = TOW_MLP(.features = {6, 4});
    const tow_scan scan = TOW_SCAN(&mlp, .length = 3, .variables = TOW_RULES({"params", TOW_STACKED, -1}));
    const tow_module *model = TOW_MODULE(&STACK(&scan));
    tow_params *params;
    tow_model_summary *summary;
    OK(tow_model_init(ctx, model, 3, 1, &x2, &params));
    OK(tow_model_summary_create(model, params, 1, &x2, NULL, &summary));
    int64_t found = 0;
    for (size_t i = 0; i < tow_model_summary_layer_count(summary); i++) {
        const tow_layer_summary l = tow_model_summary_layer(summary, i);
        if (strcmp(l.path, "stack/{}/Dense_0") == 0) found = l.own_parameters;
    }
    assert_int_equal(found, 3 * (4 * 6 + 6));
    tow_model_summary_free(summary);

    tow_graph *graph, *again;
    OK(tow_model_forward_graph(model, params, 1, &x2, NULL, &graph));
    OK(tow_graph_check(graph));
    const size_t size = tow_graph_text(graph, NULL, 0) + 1;
    char *text = malloc(size), *second = malloc(size);
    assert_true(text && second);
    tow_graph_text(graph, text, size);
    OK(tow_graph_parse(ctx, text, &again));
    tow_graph_text(again, second, size);
    assert_string_equal(text, second);
    free(text);
    free(second);
    tow_graph_release(again);
    tow_graph_release(graph);
    tow_params_free(params);
}

/* The loop reads the slices where they are: no instruction moves the stack first. */
static void slices_are_not_copied(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 4);
    const tow_lift_rule *const rules[] = {NULL, TOW_RULES({"params/kernel", TOW_STACKED, 1})};
    uint64_t copies[2], moves[2];
    for (int i = 0; i < 2; i++) {
        const tow_scan scan = TOW_SCAN(&dense, .length = 3, .variables = rules[i]);
        tow_params *params;
        tow_graph *graph;
        tow_program *program;
        OK(tow_model_init(ctx, TOW_MODULE(&scan), 3, 1, &x2, &params));
        OK(tow_model_forward_graph(TOW_MODULE(&scan), params, 1, &x2, NULL, &graph));
        OK(tow_compile(ctx, graph, NULL, &program));
        copies[i] = tow_program_operation_count(program, "copy");
        moves[i] = tow_program_operation_count(program, "transpose");
        tow_program_free(program);
        tow_graph_release(graph);
        tow_params_free(params);
    }
    assert_true(copies[0] == copies[1] && moves[0] == moves[1]);
}

/* A parameter without elements. */
static void call_empty(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_value empty = tow_param(s, "kernel", 2, (int64_t[]){0, 3}, tow_initializer_normal(1));
    out[0] = tow_add(in[0], tow_broadcast_to(tow_reduce_sum(empty, 0, NULL), 2, tow_value_type(in[0]).dims));
}
static const tow_module_class empty_class = {"empty", call_empty};

/* No layers, one layer, sizes of zero, other types. */
static void odd_sizes(void **unused)
{
    (void)unused;
    for (int k = 0; k < 4; k++) {
        const tow_dense dense =
            TOW_DENSE(.features = 4, .dtype = TOW_F32, .param_dtype = k == 3 ? TOW_F64 : 0, .no_bias = true);
        const bare empty = {{&empty_class}};
        tow_scan scan =
            TOW_SCAN(&dense, .length = k, .empty = k == 0, .variables = TOW_RULES({"params", TOW_STACKED, -1}));
        if (k == 2) scan.inner = TOW_MODULE(&empty);
        tow_params *params, *layers;
        tow_graph *graph;
        OK(tow_model_init(ctx, TOW_MODULE(&scan), 3, 1, &x2, &params));
        const tow_type type = tow_array_type(tow_params_find(params, "{@-1}/kernel"));
        assert_true(type.rank == 3 && type.dims[2] == k);
        OK(tow_params_unstack(params, &layers));
        assert_int_equal(tow_params_count(layers), k);
        OK(tow_model_forward_graph(TOW_MODULE(&scan), params, 1, &x2, NULL, &graph));
        tow_array *in[2] = {tow_params_array(params, 0), exact_fractions(ctx, x2)}, *out;
        OK(tow_evaluate(graph, in, &out));
        if (k == 0 || k == 2) assert_memory_equal(tow_array_data(out), tow_array_data(in[1]), 32);
        tow_array_release(out);
        tow_array_release(in[1]);
        tow_graph_release(graph);
        tow_params_free(layers);
        tow_params_free(params);
    }
}

/* (carry, x) -> (carry + x, carry + x), and what was seen in this step. */
static void call_step(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_value seen = tow_variable(s, "stats", "seen", TYPE(TOW_F32, 3), tow_initializer_zeros());
    out[0] = out[1] = tow_add(in[0], in[1]);
    tow_set_variable(s, "stats", "seen", tow_add(seen, tow_mean(out[0], 1, (int[]){0})));
}
static const tow_module_class step_class = {"step", call_step};

/* Variables of the steps of an RNN. */
static void steps_of_an_rnn(void **unused)
{
    (void)unused;
    const bare step = {{&step_class}};
    const tow_type types[] = {TYPE(TOW_F32, 2, 3), TYPE(TOW_F32, 2, 5, 3)}, stacked = TYPE(TOW_F32, 3, 5);
    const tow_lift_rule *const rules[] = {NULL, TOW_RULES({"stats", TOW_STACKED, 1})};
    tow_params *params, *state[2];
    tow_array *x[] = {exact_fractions(ctx, types[0]), exact_fractions(ctx, types[1])};
    for (int i = 0; i < 2; i++) {
        const tow_rnn rnn = TOW_RNN(&step, .variables = rules[i], .reverse = true);
        OK(tow_model_init_with(ctx, TOW_MODULE(&rnn), 3, 2, types, NULL, &params, &state[i]));
        const tow_model_options options =
            TOW_MODEL_OPTIONS(.state = state[i], .mutable_collections = (const char *const[]){"stats", NULL});
        tow_model_function *function;
        tow_model_results r;
        OK(tow_model_function_create(TOW_MODULE(&rnn), params,
                                     &TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 2, .model = &options), &function));
        for (int call = 0; call < 2; call++) {
            OK(tow_model_function_call(function, &TOW_MODEL_ARGUMENTS(.inputs = x), &r));
            OK(tow_params_assign(state[i], r.updates));
        }
        tow_model_function_free(function);
        tow_params_free(params);
    }
    tow_array *seen = tow_params_find(state[1], "stats/cell/{@1}/seen");
    assert_true(seen && tow_type_equal(tow_array_type(seen), stacked) && ((float *)tow_array_data(seen))[0] != 0);
    expect_same_list("steps", state[0], state[1]);
    for (int i = 0; i < 2; i++) {
        tow_params_free(state[i]);
        tow_array_release(x[i]);
    }
}

/* ---- failing allocations ----------------------------------------------------------------------------------------- */

static tow_status use_models(tow_context *c)
{
    const tow_scan inner = TOW_SCAN(&cell, .length = 2, .variables = TOW_RULES({"batch_stats", TOW_STACKED, 1})),
                   outer =
                       TOW_SCAN(&inner, .length = 2,
                                .variables = TOW_RULES({"params/**/kernel", TOW_STACKED, 1}, {"*", TOW_STACKED, -1}));
    const tow_module *model = TOW_MODULE(&STACK(&outer));
    const tow_scale_by_adam adam = {.base = {&tow_scale_by_adam_class, sizeof(tow_scale_by_adam)}};
    tow_params *params = NULL, *state = NULL;
    tow_graph *graph = NULL;
    tow_optimizer_state *optimizer = NULL;
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = 3, .streams = (const char *const[]){"noise", NULL});
    tow_status status = tow_model_init_with(c, model, 3, 1, &x2, &options, &params, &state);
    options.state = state;
    options.mutable_collections = (const char *const[]){TOW_EVERY_COLLECTION, NULL};
    if (!status) status = tow_model_forward_graph(model, params, 1, &x2, &options, &graph);
    if (!status) status = tow_optimizer_create(c, &adam.base, params, NULL, &optimizer);
    tow_optimizer_free(optimizer);
    tow_params_free(params);
    tow_params_free(state);
    tow_graph_release(graph);
    return status;
}

static void every_allocation_may_fail(void **unused)
{
    (void)unused;
    fail_in_turn(use_models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors),
        cmocka_unit_test(lists_of_other_axes),
        cmocka_unit_test(gradients_have_the_axes),
        cmocka_unit_test(sown_values_without_the_axis),
        cmocka_unit_test(views_of_parameters),
        cmocka_unit_test(mapped_variables),
        cmocka_unit_test(summaries_and_texts),
        cmocka_unit_test(slices_are_not_copied),
        cmocka_unit_test(odd_sizes),
        cmocka_unit_test(steps_of_an_rnn),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

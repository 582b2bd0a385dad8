/* Parts of models with the whole's parameters, partial loading, models that share parameters.
 * Tests disk_names.c, params_load.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "tests/unit/support/directories.h"
#include "tests/unit/support/running_layer.h"

/* An encoder, which has parameters, variables and dropout, and a head. */
typedef struct whole {
    tow_module module;
    running encoder;
    tow_dense head;
} whole;

static void call_whole(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)n_in, (void)n_out;
    const whole *m = (const whole *)module;
    tow_value h = tow_apply(s, "encoder", &m->encoder, in[0]);
    tow_sow(s, "intermediates", "encoded", h);
    out[0] = tow_apply(s, "head", &m->head, h);
}
static const tow_module_class whole_class = {"Whole", call_whole};
#define WHOLE(head_features)                                                                                           \
    ((whole){.module = {&whole_class}, .encoder = RUNNING(.drops = 0.25), .head = TOW_DENSE(.features = head_features)})

static void sum_of_squares(tow_trace *trace, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                           tow_value *aux, void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_reduce_sum(tow_mul(outputs[0], outputs[0]), 0, NULL);
}

static tow_model_arguments at_step(tow_array *const *x, uint32_t step)
{
    return TOW_MODEL_ARGUMENTS(.inputs = x, .seed = 4, .step = step);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* The encoder alone, called where it stands in the whole, gives what it gives there: dropout and variables as well. */
static void a_part_is_called_with_the_whole_s_parameters(void **state)
{
    (void)state;
    const whole model = WHOLE(3);
    tow_params *params = NULL, *variables = NULL;
    OK(tow_model_init_with(ctx, TOW_MODULE(&model), 3, 1, &small, NULL, &params, &variables));
    tow_array *x = exact_fractions(ctx, small);
    tow_model_options calls =
        TOW_MODEL_OPTIONS(.streams = TOW_NAMES("dropout"), .state = variables,
                          .mutable_collections = TOW_NAMES("batch_stats", "counters", "intermediates"));
    tow_model_function_options options = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .model = &calls);
    tow_model_function *all = NULL, *part = NULL;
    tow_model_results of_all, of_part;
    OK(tow_model_function_create(TOW_MODULE(&model), params, &options, &all));
    const tow_model_arguments arguments = at_step(&x, 1);
    OK(tow_model_function_call(all, &arguments, &of_all));
    tow_array *encoded = tow_params_find(of_all.sown, "intermediates/encoded/0");

    calls.at = "encoder";
    OK(tow_model_function_create(TOW_MODULE(&model.encoder), params, &options, &part));
    OK(tow_model_function_call(part, &arguments, &of_part));
    const size_t bytes = tow_type_bytes(small);
    assert_memory_equal(tow_array_data(of_part.outputs[0]), tow_array_data(encoded), bytes);
    assert_true(tow_params_equal(of_all.updates, of_part.updates));
    tow_model_function_free(part);

    /* Rooted: other random keys, the same parameters, variables under shorter paths. */
    tow_params *rooted = NULL;
    OK(tow_params_subtree(params, "encoder", &rooted));
    calls = TOW_MODEL_OPTIONS(.deterministic = true, .at = "encoder", .state = variables);
    OK(tow_model_function_create(TOW_MODULE(&model.encoder), params, &options, &part));
    OK(tow_model_function_call(part, &arguments, &of_part));
    tow_params *short_variables = NULL;
    OK(tow_params_rename(variables, 1, &(tow_path_rule){"*/encoder/**", "$1/$2"}, &short_variables));
    tow_model_options calls_rooted = TOW_MODEL_OPTIONS(.deterministic = true, .state = short_variables);
    tow_model_function *by_root = NULL;
    tow_model_results of_root;
    options.model = &calls_rooted;
    OK(tow_model_function_create(TOW_MODULE(&model.encoder), rooted, &options, &by_root));
    OK(tow_model_function_call(by_root, &arguments, &of_root));
    assert_memory_equal(tow_array_data(of_part.outputs[0]), tow_array_data(of_root.outputs[0]), bytes);
    tow_model_function_free(by_root);
    tow_model_function_free(part);
    tow_model_function_free(all);
    tow_params_free(rooted);
    tow_params_free(short_variables);

    /* Drawn alone where it stands, the part gets the whole's values. */
    tow_params *drawn = NULL, *drawn_variables = NULL, *expected = NULL;
    OK(tow_model_init_with(ctx, TOW_MODULE(&model.encoder), 3, 1, &small, &TOW_MODEL_OPTIONS(.at = "encoder"), &drawn,
                           &drawn_variables));
    OK(tow_params_select(params, TOW_NAMES("encoder/**"), &expected));
    assert_true(tow_params_equal(drawn, expected));
    tow_params_free(drawn);
    tow_params_free(drawn_variables);
    tow_params_free(expected);
    tow_array_release(x);
    tow_params_free(params);
    tow_params_free(variables);
}

static void gradients_of_a_part_are_those_below_it(void **state)
{
    (void)state;
    const whole model = WHOLE(3);
    tow_params *params = NULL, *variables = NULL;
    OK(tow_model_init_with(ctx, TOW_MODULE(&model), 3, 1, &small, NULL, &params, &variables));
    tow_model_options calls = TOW_MODEL_OPTIONS(.deterministic = true, .state = variables, .at = "encoder");
    tow_model_function_options options =
        TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .loss = sum_of_squares, .model = &calls);
    tow_model_function *f = NULL;
    tow_model_results r;
    tow_array *x = exact_fractions(ctx, small);
    OK(tow_model_function_create_value_and_grad(TOW_MODULE(&model.encoder), params, &options, &f));
    const tow_model_arguments arguments = at_step(&x, 0);
    OK(tow_model_function_call(f, &arguments, &r));
    assert_int_equal(tow_params_count(r.gradients), 2);
    assert_non_null(tow_params_find(r.gradients, "encoder/dense/kernel"));
    tow_model_function_free(f);

    calls.at = "encoder/"; /* what is no path */
    OK(tow_model_function_create(TOW_MODULE(&model.encoder), params, &options, &f));
    expect_error(tow_model_function_call(f, &arguments, &r), TOW_INVALID_ARGUMENT, ".at", "\"encoder/\"");
    tow_model_function_free(f);
    calls.at = "decoder";
    OK(tow_model_function_create(TOW_MODULE(&model.encoder), params, &options, &f));
    expect_error(tow_model_function_call(f, &arguments, &r), TOW_NOT_FOUND, "batch_stats/decoder/mean");
    tow_model_function_free(f);
    calls.at = "encoder"; /* below the path everything must be used */
    const tow_dense dense = TOW_DENSE(.features = 4);
    OK(tow_model_function_create(TOW_MODULE(&dense), params, &options, &f));
    expect_error(tow_model_function_call(f, &arguments, &r), TOW_NOT_FOUND, "params/encoder/kernel");
    tow_model_function_free(f);
    tow_array_release(x);
    tow_params_free(params);
    tow_params_free(variables);
}

/* One block of a stack, by its rows. */
static void one_layer_of_a_scan_is_a_part(void **state)
{
    (void)state;
    const tow_dense block = TOW_DENSE(.features = 4);
    const tow_scan stack = TOW_SCAN(&block, .length = 3);
    tow_params *params = NULL, *rows[3] = {NULL};
    OK(tow_model_init(ctx, TOW_MODULE(&stack), 5, 1, &small, &params));
    tow_array *x = exact_fractions(ctx, small), *h = tow_array_retain(x);
    const tow_model_function_options options = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1);
    tow_model_function *f = NULL;
    tow_model_results r;
    for (int i = 0; i < 3; i++) {
        char path[16];
        snprintf(path, sizeof path, "%d", i);
        OK(tow_params_subtree(params, path, &rows[i]));
        OK(tow_model_function_create(TOW_MODULE(&block), rows[i], &options, &f));
        OK(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = &h), &r));
        tow_array *y = tow_array_retain(r.outputs[0]);
        tow_array_release(h);
        h = y;
        tow_model_function_free(f);
        tow_params_free(rows[i]);
    }
    OK(tow_model_function_create(TOW_MODULE(&stack), params, &options, &f));
    OK(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = &x), &r));
    assert_memory_equal(tow_array_data(r.outputs[0]), tow_array_data(h), tow_type_bytes(small));
    tow_model_function_free(f);
    tow_array_release(h);
    tow_array_release(x);
    tow_params_free(params);
}

/* ---- two models that share an encoder ---------------------------------------------------------------------------- */

/* Two heads on one encoder, trained in turn by plain gradient descent: each step moves the encoder by the gradient of
 * its own model at where the other one left it. */
static void two_models_share_parameters_and_both_train_them(void **state)
{
    (void)state;
    const whole models[2] = {WHOLE(3), WHOLE(2)};
    tow_params *params[2] = {NULL}, *variables[2] = {NULL}, *encoder = NULL, *head = NULL;
    for (int i = 0; i < 2; i++) {
        OK(tow_model_init_with(ctx, TOW_MODULE(&models[i]), 3 + (uint64_t)i, 1, &small, NULL, &params[i],
                               &variables[i]));
    }
    OK(tow_params_select(params[0], TOW_NAMES("encoder/**"), &encoder));
    OK(tow_params_select(params[1], TOW_NAMES("head/**"), &head));
    tow_params_free(params[1]);
    OK(tow_params_merge(encoder, head, TOW_MERGE_DISTINCT, &params[1]));
    const char *kernel = "encoder/dense/kernel";
    assert_ptr_equal(tow_params_find(params[0], kernel), tow_params_find(params[1], kernel));

    tow_scale sgd = TOW_SCALE(.factor = -0.0625);
    tow_model_function *f[2] = {NULL};
    tow_optimizer_state *optimizers[2] = {NULL};
    tow_array *x = exact_fractions(ctx, small);
    float expected[16];
    memcpy(expected, tow_array_data(tow_params_find(encoder, kernel)), sizeof expected);
    double first[2] = {0}, last[2] = {0};
    for (int step = 0; step < 20; step++) {
        const int i = step % 2;
        const tow_model_options calls = TOW_MODEL_OPTIONS(.deterministic = true, .state = variables[i]);
        const tow_model_function_options options =
            TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .loss = sum_of_squares, .model = &calls);
        if (step < 2) OK(tow_model_function_create_value_and_grad(TOW_MODULE(&models[i]), params[i], &options, &f[i]));
        if (step < 2) OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&sgd), params[i], NULL, &optimizers[i]));
        tow_model_results r;
        OK(tow_model_function_call(f[i], &TOW_MODEL_ARGUMENTS(.inputs = &x), &r));
        const float *g = tow_array_data(tow_params_find(r.gradients, kernel));
        for (int k = 0; k < 16; k++) expected[k] += -0.0625f * g[k];
        OK(tow_optimizer_update(optimizers[i], tow_params_arrays(r.gradients)));
        assert_memory_equal(tow_array_data(tow_params_find(params[1 - i], kernel)), expected, sizeof expected);
        if (step < 2) first[i] = r.loss;
        last[i] = r.loss;
    }
    assert_true(last[0] < 0.5 * first[0] && last[1] < 0.5 * first[1]);
    for (int i = 0; i < 2; i++) {
        tow_optimizer_free(optimizers[i]);
        tow_model_function_free(f[i]);
        tow_params_free(params[i]);
        tow_params_free(variables[i]);
    }
    tow_params_free(encoder);
    tow_params_free(head);
    tow_array_release(x);
}

/* ---- partial loading --------------------------------------------------------------------------------------------- */

static char directory[64], path[96];

static int setup_files(void **state)
{
    strcpy(directory, "/tmp/tow-test-transfer-XXXXXX");
    if (setup(state) != 0 || !mkdtemp(directory)) return -1;
    snprintf(path, sizeof path, "%s/file", directory);
    return 0;
}

static int teardown_files(void **state)
{
    const int failed = remove_directory(directory);
    return teardown(state) + failed;
}

/* f32[n] filled with `value`. */
static tow_array *filled(int64_t n, float value)
{
    tow_array *array = NULL;
    OK(tow_array_create(ctx, TYPE(TOW_F32, n), &array));
    for (int64_t i = 0; i < n; i++) ((float *)tow_array_data(array))[i] = value;
    return array;
}

static tow_params *filled_list(size_t n, const char *const *paths, const int64_t *sizes, float value)
{
    tow_array *arrays[8] = {NULL};
    tow_params *list = NULL;
    for (size_t i = 0; i < n; i++) arrays[i] = filled(sizes[i], value);
    OK(tow_params_from_arrays(ctx, n, paths, arrays, &list));
    for (size_t i = 0; i < n; i++) tow_array_release(arrays[i]);
    return list;
}

static float first_of(const tow_params *list, const char *name)
{
    return *(float *)tow_array_data(tow_params_find(list, name));
}

/* The file has old/encoder/a [2], old/encoder/b [3], old/head/w [5]; the model encoder/a [2], encoder/c [2], head/w
 * [4]. */
static void partial_loading_reports_everything(void **state)
{
    (void)state;
    tow_params *saved = filled_list(3, TOW_NAMES("encoder/a", "encoder/b", "head/w"), (int64_t[]){2, 3, 5}, 7);
    tow_params *params = filled_list(3, TOW_NAMES("encoder/a", "encoder/c", "head/w"), (int64_t[]){2, 2, 4}, 1);
    tow_tensors *tensors = NULL;
    OK(tow_tensors_create(ctx, &tensors));
    OK(tow_params_to_tensors(saved, "old/", tensors));
    OK(tow_safetensors_write(path, tensors));
    tow_load_report report;
    tow_load_options options = TOW_LOAD_OPTIONS(.report = &report);
    expect_error(tow_params_load(params, "old/", path, &options), TOW_NOT_FOUND, path, "old/encoder/c: missing");
    assert_true(report.loaded == 0 && report.missing == 1 && report.mismatched == 1 && report.unused == 1);
    char text[512];
    tow_load_report_text(&report, text, sizeof text);
    assert_string_equal(text, "old/encoder/c: missing, expected f32[2]\n"
                              "old/head/w: expected f32[4], found f32[5]\n"
                              "old/encoder/b: unused, f32[3]\n"
                              "0 loaded, 1 missing, 1 of another type, 1 unused\n");
    tow_load_report_free(&report);
    assert_null(report.items);
    options.allow_missing = true;
    expect_error(tow_params_load(params, "old/", path, &options), TOW_TYPE_MISMATCH, "old/head/w", "f32[4]");
    tow_load_report_free(&report);
    options.allow_mismatch = true;
    expect_error(tow_params_load(params, "old/", path, &options), TOW_NOT_FOUND, "old/encoder/b");
    tow_load_report_free(&report);
    assert_true(first_of(params, "encoder/a") == 1); /* nothing was copied so far */
    options.allow_unused = true;
    OK(tow_params_load(params, "old/", path, &options));
    assert_true(report.loaded == 1 && report.missing == 1 && report.mismatched == 1 && report.unused == 1);
    tow_load_report_free(&report);
    assert_true(first_of(params, "encoder/a") == 7 && first_of(params, "encoder/c") == 1);
    assert_true(first_of(params, "head/w") == 1);
    OK(tow_params_from_tensors_with(params, "old/", tensors, &options));
    assert_int_equal(report.count, 3);
    tow_load_report_free(&report);
    tow_tensors_free(tensors);
    tow_params_free(saved);
    tow_params_free(params);
}

/* Another prefix by a part of the list, other names by a list with the names of the file. */
static void names_are_mapped_by_lists(void **state)
{
    (void)state;
    tow_params *saved = filled_list(3, TOW_NAMES("bert/a", "bert/b", "gpt/a"), (int64_t[]){2, 3, 2}, 7);
    tow_params *params = filled_list(3, TOW_NAMES("encoder/a", "encoder/b", "head/w"), (int64_t[]){2, 3, 4}, 1);
    tow_tensors *tensors = NULL;
    OK(tow_tensors_create(ctx, &tensors));
    OK(tow_params_to_tensors(saved, "", tensors));
    OK(tow_safetensors_write(path, tensors));
    tow_params *part = NULL, *renamed = NULL, *encoder = NULL;
    OK(tow_params_subtree(params, "encoder", &part));
    OK(tow_params_load(part, "bert/", path, NULL)); /* strict below the prefix */
    assert_true(first_of(params, "encoder/b") == 7 && first_of(params, "head/w") == 1);
    memset(tow_array_data(tow_params_find(params, "encoder/b")), 0, 4);
    OK(tow_params_select(params, TOW_NAMES("encoder/*"), &encoder));
    OK(tow_params_rename(encoder, 1, &(tow_path_rule){"encoder/*", "bert/$1"}, &renamed));
    OK(tow_params_load(renamed, "", path, &TOW_LOAD_OPTIONS(.allow_unused = true)));
    assert_true(first_of(params, "encoder/b") == 7);
    tow_params_free(encoder);
    tow_params_free(renamed);
    tow_params_free(part);
    tow_tensors_free(tensors);
    tow_params_free(saved);
    tow_params_free(params);
}

static tow_status load_partly(tow_context *c)
{
    const int64_t two = 2;
    const tow_type type = tow_make_type(TOW_F32, 1, &two);
    tow_array *array = NULL;
    tow_params *params = NULL, *saved = NULL;
    tow_tensors *tensors = NULL;
    tow_load_report report = {0};
    char text[256];
    tow_status status = tow_array_create(c, type, &array);
    tow_array *const arrays[2] = {array, array};
    if (!status) status = tow_params_from_arrays(c, 2, TOW_NAMES("a", "b"), arrays, &params);
    if (!status) status = tow_params_from_arrays(c, 2, TOW_NAMES("b", "c"), arrays, &saved);
    if (!status) status = tow_tensors_create(c, &tensors);
    if (!status) status = tow_params_to_tensors(saved, "", tensors);
    const tow_load_options options = TOW_LOAD_OPTIONS(.allow_missing = true, .allow_unused = true, .report = &report);
    if (!status) status = tow_params_from_tensors_with(params, "", tensors, &options);
    if (!status && tow_load_report_text(&report, text, sizeof text) == 0) status = TOW_OUT_OF_MEMORY;
    if (!status) assert_true(report.loaded == 1 && report.missing == 1 && report.unused == 1);
    tow_load_report_free(&report);
    tow_tensors_free(tensors);
    tow_params_free(saved);
    tow_params_free(params);
    tow_array_release(array);
    return status;
}

static tow_status use_part(tow_context *c)
{
    const whole model = WHOLE(3);
    tow_params *params = NULL, *variables = NULL;
    tow_graph *graph = NULL;
    tow_status status = tow_model_init_with(c, TOW_MODULE(&model), 3, 1, &small, NULL, &params, &variables);
    const tow_model_options calls = TOW_MODEL_OPTIONS(.deterministic = true, .state = variables, .at = "encoder");
    if (!status) status = tow_model_forward_graph(TOW_MODULE(&model.encoder), params, 1, &small, &calls, &graph);
    if (!status) status = load_partly(c);
    tow_graph_release(graph);
    tow_params_free(params);
    tow_params_free(variables);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    fail_in_turn(use_part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_is_called_with_the_whole_s_parameters),
        cmocka_unit_test(gradients_of_a_part_are_those_below_it),
        cmocka_unit_test(one_layer_of_a_scan_is_a_part),
        cmocka_unit_test(two_models_share_parameters_and_both_train_them),
        cmocka_unit_test(partial_loading_reports_everything),
        cmocka_unit_test(names_are_mapped_by_lists),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup_files, teardown_files);
}

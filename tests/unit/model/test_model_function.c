/* Models as functions of arrays: loss, aux values, gradients by path, new variables, programs by shapes.
 * Tests model_function.c, program_cache.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/running_layer.h"

static tow_value mean(tow_value x) { return tow_mean(x, 0, NULL); }

/* loss: mean of (y - t)^2; aux: the mean of y, and the errors. */
static void squares(tow_trace *trace, const tow_value *outputs, const tow_value *extra, tow_value *loss, tow_value *aux,
                    void *user)
{
    (void)trace, (void)user;
    tow_value d = tow_sub(outputs[0], extra[0]);
    *loss = mean(tow_mul(d, d));
    if (!aux) return;
    aux[0] = mean(outputs[0]);
    aux[1] = d;
}

static tow_array *floats(tow_type type, const float *data)
{
    tow_array *array = NULL;
    OK(tow_array_from_data(ctx, type, data, &array));
    return array;
}

static float *data_of(const tow_params *list, const char *path)
{
    tow_array *array = tow_params_find(list, path);
    if (!array) fail_msg("%s is missing", path);
    return tow_array_data(array);
}

/* Dense 1 -> 1 with kernel 3 and bias 0.5. */
static tow_params *line_params(const tow_dense *line)
{
    tow_params *params = NULL;
    const tow_type x = TYPE(TOW_F32, 2, 1);
    OK(tow_model_init(ctx, TOW_MODULE(line), 0, 1, &x, &params));
    *data_of(params, "kernel") = 3;
    *data_of(params, "bias") = 0.5f;
    return params;
}

/* y = 3 x + 0.5 at x = 1, 2 with t = 3, 7: errors 0.5, -0.5; loss 0.25, d/dkernel = mean(2 e x) = -0.5, d/dbias = 0. */
static void loss_aux_and_gradients_of_a_line(void **state)
{
    (void)state;
    const tow_dense line = TOW_DENSE(.features = 1);
    tow_params *params = line_params(&line);
    tow_array *x = floats(TYPE(TOW_F32, 2, 1), (float[]){1, 2}), *t = floats(TYPE(TOW_F32, 2, 1), (float[]){3, 7});
    const tow_model_function_options options =
        TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .n_extra = 1, .loss = squares, .n_aux = 2);
    tow_model_function *f = NULL;
    tow_model_results r;
    OK(tow_model_function_create_value_and_grad(TOW_MODULE(&line), params, &options, &f));
    assert_int_equal(tow_model_function_program_count(f), 0);
    OK(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = &x, .extra = &t), &r));
    assert_true(r.loss == 0.25);
    assert_int_equal(r.n_outputs, 2);
    assert_true(*(float *)tow_array_data(r.outputs[0]) == 5);
    assert_memory_equal(tow_array_data(r.outputs[1]), ((float[]){0.5f, -0.5f}), 8);
    assert_int_equal(tow_params_count(r.gradients), tow_params_count(params));
    for (size_t i = 0; i < tow_params_count(params); i++)
        assert_string_equal(tow_params_path(r.gradients, i), tow_params_path(params, i));
    assert_true(*data_of(r.gradients, "kernel") == -0.5f);
    assert_true(*data_of(r.gradients, "bias") == 0);
    assert_int_equal(tow_params_count(r.updates) + tow_params_count(r.sown), 0);

    *data_of(params, "bias") = 0; /* the caller's arrays are those that the function reads */
    OK(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = &x, .extra = &t), &r));
    assert_true(r.loss == 0.5 && *data_of(r.gradients, "bias") == -1);

    tow_params *other = NULL; /* in another order */
    OK(tow_params_from_arrays(ctx, 2, (const char *const[]){"bias", "kernel"},
                              (tow_array *const[]){tow_params_find(params, "bias"), tow_params_find(params, "kernel")},
                              &other));
    OK(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.params = other, .inputs = &x, .extra = &t), &r));
    assert_true(r.loss == 0.5);
    tow_params_free(other);
    tow_params_free(params); /* the function holds references of its own */
    OK(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = &x, .extra = &t), &r));
    assert_true(r.loss == 0.5);
    tow_model_function_free(f);
    tow_array_release(x);
    tow_array_release(t);
}

/* d2/dkernel2 = mean(2 x^2) = 5, d2/dkernel dbias = mean(2 x) = 3, d2/dbias2 = 2. */
static void the_graph_is_there_for_second_derivatives(void **state)
{
    (void)state;
    const tow_dense line = TOW_DENSE(.features = 1);
    tow_params *params = line_params(&line);
    const tow_type type = TYPE(TOW_F32, 2, 1);
    const tow_model_function_options options = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .n_extra = 1, .loss = squares);
    tow_model_function *f = NULL;
    OK(tow_model_function_create_value_and_grad(TOW_MODULE(&line), params, &options, &f));
    OK(tow_model_function_prepare(f, &type, &type));
    const size_t *wrt = NULL;
    assert_int_equal(tow_model_function_wrt(f, &wrt), 2);
    const tow_model_program p = tow_model_function_program(f, 0);
    assert_int_equal(tow_graph_output_count(p.gradient), 3);
    tow_graph *hessian = NULL;
    OK(tow_hessian(p.graph, 2, wrt, &hessian));
    tow_array *x = floats(type, (float[]){1, 2}), *t = floats(type, (float[]){3, 7}), *out[4];
    OK(tow_evaluate(hessian, (tow_array *[]){tow_params_array(params, 0), tow_params_array(params, 1), x, t}, out));
    const float expected[2][2] = {{5, 3}, {3, 2}}; /* by kernel, bias */
    const bool kernel_first = strcmp(tow_params_path(params, 0), "kernel") == 0;
    for (int i = 0; i < 4; i++) {
        const int row = kernel_first ? i / 2 : 1 - i / 2, column = kernel_first ? i % 2 : 1 - i % 2;
        assert_true(*(float *)tow_array_data(out[i]) == expected[row][column]);
        tow_array_release(out[i]);
    }
    tow_graph_release(hessian);
    tow_array_release(x);
    tow_array_release(t);
    tow_model_function_free(f);
    tow_params_free(params);
}

/* ---- which parameters -------------------------------------------------------------------------------------------- */

static const tow_type mlp_input = {.dtype = TOW_F32, .rank = 2, .dims = {3, 4}};

typedef struct mlp_case {
    tow_dense first, second;
    const tow_module *layers[2];
    tow_sequential model;
} mlp_case;

static void make_mlp(mlp_case *c, tow_params **params)
{
    c->first = TOW_DENSE(.features = 5);
    c->second = TOW_DENSE(.features = 2);
    c->layers[0] = TOW_MODULE(&c->first);
    c->layers[1] = TOW_MODULE(&c->second);
    c->model =
        (tow_sequential){.module = {&tow_sequential_class, sizeof(tow_sequential)}, .n_layers = 2, .layers = c->layers};
    OK(tow_model_init(ctx, TOW_MODULE(&c->model), 7, 1, &mlp_input, params));
}

static void gradients_are_those_of_the_chosen_and_unfrozen_parameters(void **state)
{
    (void)state;
    mlp_case c;
    tow_params *params = NULL;
    make_mlp(&c, &params);
    tow_array *x = exact_fractions(ctx, mlp_input), *t = exact_fractions(ctx, TYPE(TOW_F32, 3, 2));
    tow_model_function_options options = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .n_extra = 1, .loss = squares);
    const tow_model_arguments arguments = TOW_MODEL_ARGUMENTS(.inputs = &x, .extra = &t);
    tow_model_function *all = NULL, *some = NULL;
    tow_model_results of_all, of_some;
    OK(tow_model_function_create_value_and_grad(TOW_MODULE(&c.model), params, &options, &all));
    OK(tow_model_function_call(all, &arguments, &of_all));
    assert_int_equal(tow_params_count(of_all.gradients), 4);

    options.wrt = TOW_NAMES("layers_1/**", "**/bias");
    OK(tow_model_function_create_value_and_grad(TOW_MODULE(&c.model), params, &options, &some));
    OK(tow_model_function_call(some, &arguments, &of_some));
    assert_int_equal(tow_params_count(of_some.gradients), 3);
    assert_null(tow_params_find(of_some.gradients, "layers_0/kernel"));
    tow_params *same = NULL;
    OK(tow_params_select(of_all.gradients, options.wrt, &same));
    assert_true(tow_params_equal(same, of_some.gradients));
    tow_params_free(same);
    tow_model_function_free(some);

    OK(tow_params_freeze(params, TOW_NAMES("layers_0/**"), true));
    OK(tow_model_function_create_value_and_grad(TOW_MODULE(&c.model), params, &options, &some));
    OK(tow_model_function_call(some, &arguments, &of_some));
    assert_int_equal(tow_params_count(of_some.gradients), 2);
    assert_true(of_some.loss == of_all.loss);
    tow_model_function_free(some);

    options.wrt = TOW_NAMES("layers_0/kernel");
    expect_error(tow_model_function_create_value_and_grad(TOW_MODULE(&c.model), params, &options, &some),
                 TOW_INVALID_ARGUMENT, "none of the 4 parameters", "tow_params_freeze");
    options.wrt = TOW_NAMES("layers_1/**", "layers_7/**");
    expect_error(tow_model_function_create_value_and_grad(TOW_MODULE(&c.model), params, &options, &some), TOW_NOT_FOUND,
                 ".wrt", "layers_7/**", "layers_0/kernel");
    assert_null(some);
    tow_model_function_free(all);
    tow_params_free(params);
    tow_array_release(x);
    tow_array_release(t);
}

/* An optimizer over the whole list leaves frozen parameters alone and takes the gradients that there are. */
static void frozen_parameters_stay_through_training(void **state)
{
    (void)state;
    mlp_case c;
    tow_params *params = NULL, *before = NULL;
    make_mlp(&c, &params);
    OK(tow_params_freeze(params, TOW_NAMES("layers_0/**"), true));
    OK(tow_params_copy(params, &before));
    assert_true(tow_params_is_frozen(before, 0));
    tow_array *x = exact_fractions(ctx, mlp_input), *t = exact_fractions(ctx, TYPE(TOW_F32, 3, 2));
    const tow_model_function_options options = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .n_extra = 1, .loss = squares);
    tow_scale sgd = TOW_SCALE(.factor = -0.125);
    tow_model_function *f = NULL;
    tow_optimizer_state *optimizer = NULL;
    tow_model_results r;
    OK(tow_model_function_create_value_and_grad(TOW_MODULE(&c.model), params, &options, &f));
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&sgd), params, NULL, &optimizer));
    OK(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = &x, .extra = &t), &r));
    tow_params *others = NULL; /* gradients of other parameters change nothing */
    OK(tow_params_select(r.gradients, TOW_NAMES("**/kernel"), &others));
    expect_error(tow_optimizer_update_params(optimizer, others), TOW_INVALID_ARGUMENT, "layers_1/");
    tow_params_free(others);
    OK(tow_params_under(r.gradients, "a", &others));
    expect_error(tow_optimizer_update_params(optimizer, others), TOW_INVALID_ARGUMENT, "a/layers_1/");
    tow_params_free(others);
    expect_error(tow_optimizer_update_params(optimizer, before), TOW_INVALID_ARGUMENT, "found layers_0/");
    assert_int_equal(tow_optimizer_update_params(NULL, before), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_optimizer_step_count(optimizer), 0);
    OK(tow_optimizer_update_params(optimizer, r.gradients));
    for (size_t i = 0; i < tow_params_count(params); i++) {
        const char *path = tow_params_path(params, i);
        const float *p = data_of(params, path), *old = data_of(before, path);
        const tow_array *gradient = tow_params_find(r.gradients, path);
        const float *g = gradient ? tow_array_data(gradient) : NULL;
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(tow_params_array(params, i))); k++)
            assert_true(p[k] == (g ? old[k] + -0.125f * g[k] : old[k]));
    }
    tow_optimizer_free(optimizer);
    tow_model_function_free(f);
    tow_params_free(before);
    tow_params_free(params);
    tow_array_release(x);
    tow_array_release(t);
}

/* ---- variables, streams ------------------------------------------------------------------------------------------ */

static void no_extra_loss(tow_trace *trace, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                          tow_value *aux, void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = mean(outputs[0]);
}

static void variables_are_updated_and_values_sown(void **state)
{
    (void)state;
    const running model = RUNNING(.drops = 0.5);
    tow_params *params = NULL, *variables = NULL;
    OK(tow_model_init_with(ctx, TOW_MODULE(&model), 3, 1, &small, NULL, &params, &variables));
    const tow_model_options calls =
        TOW_MODEL_OPTIONS(.streams = TOW_NAMES("dropout"), .state = variables,
                          .mutable_collections = TOW_NAMES("counters", "batch_stats", "intermediates"));
    const tow_model_function_options options =
        TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .loss = no_extra_loss, .model = &calls);
    tow_model_function *f = NULL;
    tow_model_results r;
    OK(tow_model_function_create_value_and_grad(TOW_MODULE(&model), params, &options, &f));
    tow_array *x = exact_fractions(ctx, small), *wide = exact_fractions(ctx, TYPE(TOW_F32, 5, 4));
    double losses[3];
    for (uint32_t step = 0; step < 3; step++) {
        OK(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = step == 1 ? &wide : &x, .seed = 9, .step = step),
                                   &r));
        assert_int_equal(tow_params_count(r.updates), 2);
        assert_int_equal(tow_params_count(r.sown), 2);
        const tow_type sown = tow_array_type(tow_params_find(r.sown, "intermediates/hidden/0"));
        assert_int_equal(sown.dims[0], step == 1 ? 5 : 2);
        assert_int_equal(count_at(variables, "counters/calls"), step);
        OK(tow_params_assign(variables, r.updates));
        assert_int_equal(count_at(variables, "counters/calls"), step + 1);
        losses[step] = r.loss;
    }
    assert_int_equal(tow_model_function_program_count(f), 2);
    assert_true(losses[0] != losses[2]);

    uint32_t key[2], keys[1][2]; /* the rule of training states: fold_in(fold_in(PRNGKey(seed), stream), step) */
    tow_random_host_key(9, key);
    tow_random_host_fold_in(key, 0, key);
    tow_random_host_fold_in(key, 2, keys[0]);
    tow_params *fresh = NULL;
    OK(tow_params_copy(variables, &fresh));
    OK(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.state = fresh, .inputs = &x, .seed = 9, .step = 2), &r));
    const double by_seed = r.loss;
    OK(tow_model_function_call(
        f, &TOW_MODEL_ARGUMENTS(.state = fresh, .inputs = &x, .keys = (const uint32_t(*)[2])keys), &r));
    assert_true(r.loss == by_seed);
    OK(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.state = fresh, .inputs = &x, .seed = 9, .step = 3), &r));
    assert_true(r.loss != by_seed);
    tow_params_free(fresh);
    tow_model_function_free(f);
    tow_params_free(params);
    tow_params_free(variables);
    tow_array_release(x);
    tow_array_release(wide);
}

/* ---- programs by shapes ------------------------------------------------------------------------------------------ */

static void programs_of_several_batch_sizes_share_everything(void **state)
{
    (void)state;
    mlp_case c;
    tow_params *params = NULL;
    make_mlp(&c, &params);
    const tow_model_function_options options =
        TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .n_extra = 1, .loss = squares, .limit = 2);
    tow_model_function *f = NULL;
    tow_model_results r;
    OK(tow_model_function_create_value_and_grad(TOW_MODULE(&c.model), params, &options, &f));
    const int64_t sizes[] = {3, 1, 3, 0, 3, 1}, programs[] = {1, 2, 2, 2, 2, 2};
    const tow_params *gradients = NULL;
    for (int i = 0; i < 6; i++) {
        tow_array *x = exact_fractions(ctx, TYPE(TOW_F32, sizes[i], 4)),
                  *t = exact_fractions(ctx, TYPE(TOW_F32, sizes[i], 2));
        OK(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = &x, .extra = &t), &r));
        assert_int_equal(tow_model_function_program_count(f), programs[i]);
        assert_true(i == 0 || r.gradients == gradients);
        gradients = r.gradients;
        const tow_model_program p = tow_model_function_program(f, 0);
        assert_ptr_equal(p.program, r.program);
        assert_int_equal(p.types[0].dims[0], sizes[i]);
        assert_int_equal(p.types[1].dims[1], 2);
        assert_int_equal(tow_program_get_bytes(p.program).inputs,
                         4 * ((size_t)tow_params_element_count(params, NULL) + (size_t)sizes[i] * 6));
        tow_array_release(x);
        tow_array_release(t);
    }
    assert_int_equal(tow_model_function_program(f, 1).types[0].dims[0], 3); /* that of 0 rows was used least recently */
    assert_null(tow_model_function_program(f, 2).program);
    tow_model_function_free(f);
    tow_params_free(params);
}

/* The shapes that a maker of programs is asked for. */
typedef struct made_programs {
    int made, freed;
    bool fails;
} made_programs;

static void twice(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_add(in[0], in[0]);
}

static tow_status make_twice(const tow_type *types, tow_program **program, void **data, void *user)
{
    made_programs *m = user;
    tow_graph *graph = NULL;
    if (m->fails) return TOW_UNSUPPORTED;
    OK(tow_trace_function(ctx, twice, NULL, 1, types, NULL, 1, &graph));
    tow_status status = tow_compile(ctx, graph, NULL, program);
    tow_graph_release(graph);
    m->made++;
    *data = &m->freed;
    return status;
}

static void count_freed(void *data, void *user)
{
    assert_ptr_equal(data, &((made_programs *)user)->freed);
    ((made_programs *)user)->freed++;
}

static void a_cache_keeps_what_was_used_last(void **state)
{
    (void)state;
    made_programs m = {0};
    const tow_program_cache_options options =
        TOW_PROGRAM_CACHE_OPTIONS(.n_types = 1, .limit = 2, .make = make_twice, .free_data = count_freed, .user = &m);
    tow_program_cache *cache = NULL;
    tow_cached_program p;
    OK(tow_program_cache_create(ctx, &options, &cache));
    const struct {
        int64_t size;
        int made, freed;
    } steps[] = {{1, 1, 0}, {2, 2, 0}, {1, 2, 0}, {3, 3, 1}, {1, 3, 1}, {2, 4, 2}, {3, 5, 3}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        OK(tow_program_cache_get(cache, &(tow_type){.dtype = TOW_F32, .rank = 1, .dims = {steps[i].size}}, &p));
        assert_int_equal(p.types[0].dims[0], steps[i].size);
        assert_int_equal(m.made, steps[i].made);
        assert_int_equal(m.freed, steps[i].freed);
        assert_ptr_equal(tow_program_cache_at(cache, 0).program, p.program);
    }
    assert_int_equal(tow_program_cache_made_count(cache), 5);
    m.fails = true;
    const tow_type scalar = SCALAR(TOW_F64);
    assert_int_equal(tow_program_cache_get(cache, &scalar, &p), TOW_UNSUPPORTED);
    assert_null(p.program);
    assert_int_equal(tow_program_cache_count(cache), 2);
    assert_int_equal(tow_program_cache_at(cache, 0).types[0].dims[0], 3);
    tow_program_cache_free(cache);
    assert_int_equal(m.freed, 5);
    expect_error(tow_program_cache_create(ctx, &TOW_PROGRAM_CACHE_OPTIONS(.limit = 1), &cache), TOW_INVALID_ARGUMENT,
                 ".make");
    expect_error(tow_program_cache_create(ctx, &TOW_PROGRAM_CACHE_OPTIONS(.limit = 5000, .make = make_twice), &cache),
                 TOW_INVALID_ARGUMENT, "4096", "5000");
}

/* ---- without gradients, bad input -------------------------------------------------------------------------------- */

static void forward_gives_outputs_or_loss(void **state)
{
    (void)state;
    const tow_dense line = TOW_DENSE(.features = 1);
    tow_params *params = line_params(&line);
    tow_array *x = floats(TYPE(TOW_F32, 2, 1), (float[]){1, 2}), *t = floats(TYPE(TOW_F32, 2, 1), (float[]){3, 7});
    tow_model_function *outputs = NULL, *loss = NULL;
    tow_model_results r;
    OK(tow_model_function_create(TOW_MODULE(&line), params, &TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1), &outputs));
    OK(tow_model_function_call(outputs, &TOW_MODEL_ARGUMENTS(.inputs = &x), &r));
    assert_int_equal(r.n_outputs, 1);
    assert_memory_equal(tow_array_data(r.outputs[0]), ((float[]){3.5f, 6.5f}), 8);
    assert_true(r.loss == 0 && r.gradients == NULL);
    const tow_model_function_options options =
        TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .n_extra = 1, .loss = squares, .n_aux = 2);
    OK(tow_model_function_create(TOW_MODULE(&line), params, &options, &loss));
    OK(tow_model_function_call(loss, &TOW_MODEL_ARGUMENTS(.inputs = &x, .extra = &t), &r));
    assert_true(r.loss == 0.25 && r.n_outputs == 2 && r.gradients == NULL);
    assert_null(tow_model_function_program(loss, 0).gradient);
    tow_model_function_free(outputs);
    tow_model_function_free(loss);
    tow_params_free(params);
    tow_array_release(x);
    tow_array_release(t);
}

static void bad_calls_are_refused(void **state)
{
    (void)state;
    const tow_dense line = TOW_DENSE(.features = 1);
    tow_params *params = line_params(&line), *other = NULL;
    tow_array *x = floats(TYPE(TOW_F32, 2, 1), (float[]){1, 2}), *missing = NULL;
    tow_model_function *f = NULL;
    tow_model_results r;
    tow_model_function_options options = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .n_extra = 1);
    expect_error(tow_model_function_create_value_and_grad(TOW_MODULE(&line), params, &options, &f),
                 TOW_INVALID_ARGUMENT, ".loss", "tow_model_function_create");
    assert_int_equal(tow_model_function_create_value_and_grad(TOW_MODULE(&line), NULL, &options, &f),
                     TOW_INVALID_ARGUMENT);
    options.loss = squares;
    options.compile = &TOW_COMPILE_OPTIONS(.plan_only = true);
    expect_error(tow_model_function_create_value_and_grad(TOW_MODULE(&line), params, &options, &f),
                 TOW_INVALID_ARGUMENT, ".plan_only");
    options.compile = NULL;
    OK(tow_model_function_create_value_and_grad(TOW_MODULE(&line), params, &options, &f));
    expect_error(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = &x), &r), TOW_INVALID_ARGUMENT, ".extra");
    expect_error(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = &missing, .extra = &x), &r),
                 TOW_INVALID_ARGUMENT, ".inputs[0]");
    OK(tow_params_rename(params, 1, &(tow_path_rule){"kernel", "weight"}, &other));
    expect_error(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.params = other, .inputs = &x, .extra = &x), &r),
                 TOW_NOT_FOUND, "params/kernel");
    tow_params_free(other);
    tow_params *more = NULL;
    OK(tow_params_under(params, "a", &other));
    OK(tow_params_merge(params, other, TOW_MERGE_DISTINCT, &more));
    expect_error(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.params = more, .inputs = &x, .extra = &x), &r),
                 TOW_NOT_FOUND, "params/a/", "tow_params_subtree");
    tow_params_free(more);
    tow_params_free(other);
    tow_array *wrong = floats(TYPE(TOW_F32, 2, 3), (float[6]){0});
    expect_error(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = &wrong, .extra = &x), &r),
                 TOW_SHAPE_MISMATCH, "kernel", "f32[3,1]");
    assert_int_equal(tow_model_function_program_count(f), 0);
    OK(tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = &x, .extra = &x), &r)); /* an error leaves it usable */
    tow_array_release(wrong);
    tow_array_release(x);
    tow_model_function_free(f);
    tow_params_free(params);
}

/* ---- failing allocations ----------------------------------------------------------------------------------------- */

static tow_status use_function(tow_context *c)
{
    const running model = RUNNING(.drops = 0.5);
    const tow_type type = small;
    tow_params *params = NULL, *variables = NULL;
    tow_model_function *f = NULL;
    tow_model_results r;
    tow_array *x = NULL;
    tow_status status = tow_model_init_with(c, TOW_MODULE(&model), 3, 1, &type, NULL, &params, &variables);
    const tow_model_options calls = TOW_MODEL_OPTIONS(.streams = TOW_NAMES("dropout"), .state = variables,
                                                      .mutable_collections = TOW_NAMES("counters", "intermediates"));
    const tow_model_function_options options =
        TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .loss = no_extra_loss, .model = &calls, .limit = 1);
    if (!status) status = tow_params_freeze(params, TOW_NAMES("**/bias"), true);
    if (!status) status = tow_model_function_create_value_and_grad(TOW_MODULE(&model), params, &options, &f);
    for (int64_t rows = 2; rows < 4 && !status; rows++) {
        tow_array_release(x);
        x = exact_fractions(c, TYPE(TOW_F32, rows, 4));
        status = x ? tow_model_function_call(f, &TOW_MODEL_ARGUMENTS(.inputs = &x), &r) : TOW_OUT_OF_MEMORY;
        if (!status) status = tow_params_assign(variables, r.updates);
    }
    tow_array_release(x);
    tow_model_function_free(f);
    tow_params_free(params);
    tow_params_free(variables);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    fail_in_turn(use_function);
}

/* After the first call with some types, others allocate nothing. */
static void calls_allocate_nothing(void **state)
{
    (void)state;
    counting count;
    tow_context_options options = counting_options(&count, -1);
    tow_context *c = NULL;
    assert_int_equal(tow_context_create(&options, &c), TOW_OK);
    const tow_dense line = TOW_DENSE(.features = 4);
    tow_params *params = NULL;
    tow_model_function *f = NULL;
    tow_model_results r;
    assert_int_equal(tow_model_init(c, TOW_MODULE(&line), 0, 1, &small, &params), TOW_OK);
    const tow_model_function_options o = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .n_extra = 1, .loss = squares);
    assert_int_equal(tow_model_function_create_value_and_grad(TOW_MODULE(&line), params, &o, &f), TOW_OK);
    tow_array *x = exact_fractions(c, small);
    const tow_model_arguments arguments = TOW_MODEL_ARGUMENTS(.inputs = &x, .extra = &x);
    assert_int_equal(tow_model_function_prepare(f, &small, &small), TOW_OK);
    assert_int_equal(tow_model_function_call(f, &arguments, &r), TOW_OK);
    const long calls = count.calls;
    for (int i = 0; i < 3; i++) assert_int_equal(tow_model_function_call(f, &arguments, &r), TOW_OK);
    assert_int_equal(count.calls, calls);
    tow_array_release(x);
    tow_model_function_free(f);
    tow_params_free(params);
    tow_context_free(c);
    assert_int_equal(count.blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_aux_and_gradients_of_a_line),
        cmocka_unit_test(the_graph_is_there_for_second_derivatives),
        cmocka_unit_test(gradients_are_those_of_the_chosen_and_unfrozen_parameters),
        cmocka_unit_test(frozen_parameters_stay_through_training),
        cmocka_unit_test(variables_are_updated_and_values_sown),
        cmocka_unit_test(programs_of_several_batch_sizes_share_everything),
        cmocka_unit_test(a_cache_keeps_what_was_used_last),
        cmocka_unit_test(forward_gives_outputs_or_loss),
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(calls_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

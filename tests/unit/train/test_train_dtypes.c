/* Training with parameters, or computation, of 16 bits against Flax and Optax (tests/oracle/train_dtypes_golden.py):
 * losses, types of moments; checkpoints; files of f32 loaded into parameters of bf16. */
#include "tests/unit/support/training.h"

/* Dense(8), LayerNorm, tanh, Dense(3), as in the golden file. */
typedef struct model {
    tow_dense in, out;
    tow_layer_norm norm;
    tow_activation_layer activation;
    tow_named names[4];
    const tow_module *layers[4];
    tow_sequential sequential;
    tow_precision precision;
} model;

static void make_model(model *m, tow_dtype dtype, tow_dtype param_dtype)
{
    m->in = TOW_DENSE(.features = 8);
    m->out = TOW_DENSE(.features = 3);
    m->norm = TOW_LAYER_NORM();
    m->activation = TOW_ACTIVATION(tow_tanh);
    m->names[0] = TOW_NAMED("in", &m->in);
    m->names[1] = TOW_NAMED("norm", &m->norm);
    m->names[2] = TOW_NAMED("tanh", &m->activation);
    m->names[3] = TOW_NAMED("out", &m->out);
    for (int i = 0; i < 4; i++) m->layers[i] = TOW_MODULE(&m->names[i]);
    m->sequential = TOW_SEQUENTIAL_OF(m->layers);
    m->precision = TOW_PRECISION(&m->sequential, .dtype = dtype, .param_dtype = param_dtype, .output_dtype = TOW_F32);
}

static const struct {
    const char *name;
    tow_dtype dtype, param_dtype;
    double limit; /* of a loss, relative: roundings of activations, and of parameters after each step, add up */
} settings[] = {
    {"plain", 0, 0, 1e-5},
    {"mixed", TOW_BF16, 0, 0.005},
    {"mixed_f16", TOW_F16, TOW_F32, 0.001},
    {"stored", TOW_BF16, TOW_BF16, 0.01},
    {"stored_f16", TOW_F16, TOW_F16, 0.002},
};
enum {
    SETTINGS = sizeof settings / sizeof *settings
};

static tow_train_options options_for(const char *optimizer)
{
    tow_standard_optimizer adamw = {.kind = TOW_ADAMW, .learning_rate = tow_schedule_constant(0.01)};
    tow_standard_optimizer sgd = {.kind = TOW_SGD, .learning_rate = tow_schedule_constant(0.05), .momentum = 0.9};
    return TOW_TRAIN_OPTIONS(.optimizer = strcmp(optimizer, "adamw") == 0 ? adamw : sgd, .seed = 3);
}

/* The type of a slot as the state saves it. */
static const char *saved_type(const fixture *f, const training *t, const char *name)
{
    tow_tensors *tensors;
    save(f, t, f->a);
    assert_int_equal(tow_safetensors_read(f->ctx, f->a, &tensors), TOW_OK);
    for (size_t i = 0; i < tow_tensors_count(tensors); i++) {
        if (strcmp(tow_tensors_name(tensors, i), name) != 0) continue;
        const char *type = tow_dtype_name(tow_tensors_type(tensors, i).dtype);
        tow_tensors_free(tensors);
        return type;
    }
    fail_msg("%s is not saved", name);
    return NULL;
}

/* The losses of 20 steps; moments are of the type of their parameter, as in Optax. */
static void losses_are_those_of_optax(void **state)
{
    const fixture *f = *state;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/train_dtypes.txt", "r");
    char name[32], optimizer[16], moments[8];
    int lines = 0;
    assert_non_null(file);
    for (; fscanf(file, "%31s %15s %7s", name, optimizer, moments) == 3; lines++) {
        int s = 0;
        while (strcmp(settings[s].name, name) != 0) assert_true(++s < SETTINGS);
        model m;
        make_model(&m, settings[s].dtype, settings[s].param_dtype);
        training t = start(f->ctx, TOW_MODULE(&m.precision), 5, 3, options_for(optimizer));
        for (int i = 0; i < 20; i++) {
            double expected, loss;
            assert_int_equal(fscanf(file, "%lf", &expected), 1);
            assert_int_equal(tow_train_step(t.state, t.batch, &loss), TOW_OK);
            if (!(fabs(loss - expected) <= settings[s].limit * expected))
                fail_msg("%s %s step %d: expected %.9g, found %.9g", name, optimizer, i, expected, loss);
        }
        const char *slot = strcmp(optimizer, "adamw") == 0 ? "adam/mu/in/kernel" : "sgd/trace/in/kernel";
        assert_string_equal(saved_type(f, &t, slot), moments);
        stop(&t);
    }
    assert_true(feof(file));
    assert_int_equal(lines, 9);
    fclose(file);
}

/* A state of bf16 goes on from its file with the bits of one that was not stopped; with masters, and with roundings at
 * random, too. */
static void training_resumes(void **state)
{
    const fixture *f = *state;
    for (int how = 0; how < 3; how++) {
        tow_train_options options = options_for("adamw");
        options.master = how == 1, options.stochastic_rounding = how == 2;
        model m;
        make_model(&m, TOW_BF16, TOW_BF16);
        training whole = start(f->ctx, TOW_MODULE(&m.precision), 5, 3, options);
        training part = start(f->ctx, TOW_MODULE(&m.precision), 5, 3, options);
        step(&whole, 4);
        step(&part, 2);
        save(f, &part, f->a);
        stop(&part);
        options.seed = 77; /* that of the file counts, for roundings, too */
        part = start(f->ctx, TOW_MODULE(&m.precision), 5, 3, options);
        assert_int_equal(tow_train_load(part.state, f->a), TOW_OK);
        step(&part, 2);
        save(f, &part, f->a);
        save(f, &whole, f->b);
        assert_equal_files(f->a, f->b);
        if (how > 0) assert_string_equal(saved_type(f, &whole, "adam/mu/in/kernel"), "f32");
        if (how == 1) assert_string_equal(saved_type(f, &whole, "master/weights/in/kernel"), "f32");
        stop(&whole);
        stop(&part);
    }
}

/* Parameters of f32 that were saved load into a model of bf16 where that is asked for, each rounded once. */
static void f32_files_load_into_bf16(void **state)
{
    const fixture *f = *state;
    model wide, narrow;
    make_model(&wide, 0, 0);
    make_model(&narrow, TOW_BF16, TOW_BF16);
    training from = start(f->ctx, TOW_MODULE(&wide.precision), 5, 3, options_for("sgd"));
    training to = start(f->ctx, TOW_MODULE(&narrow.precision), 5, 3, options_for("sgd"));
    step(&from, 1);
    save(f, &from, f->a);
    tow_params *params = tow_train_params(to.state), *source = tow_train_params(from.state);
    assert_int_equal(tow_params_load(params, "params/", f->a, NULL), TOW_TYPE_MISMATCH);
    assert_message(f, "bf16[5,8]");
    assert_int_equal(tow_params_load(params, "params/", f->a, &TOW_LOAD_OPTIONS(.convert = true)), TOW_OK);
    for (size_t i = 0; i < tow_params_count(params); i++) {
        tow_array *expected, *found = tow_params_array(params, i);
        assert_int_equal(tow_array_type(found).dtype, TOW_BF16);
        assert_int_equal(tow_array_convert(tow_params_find(source, tow_params_path(params, i)), TOW_BF16, &expected),
                         TOW_OK);
        assert_memory_equal(tow_array_data(found), tow_array_data(expected), tow_type_bytes(tow_array_type(found)));
        tow_array_release(expected);
    }
    step(&to, 1);
    stop(&from);
    stop(&to);
}

/* Mixed precision under remat and in a loop: gradients of f32 stacks. */
static void mixed_precision_in_a_scan(void **state)
{
    const fixture *f = *state;
    tow_layer_norm norm = TOW_LAYER_NORM();
    tow_mlp mlp = TOW_MLP(.features = {8, 4});
    tow_sequential inside = TOW_SEQUENTIAL(TOW_MODULE(&norm), TOW_MODULE(&mlp));
    tow_residual_layer block = TOW_RESIDUAL(&inside);
    tow_remat remat = TOW_REMAT(&block);
    tow_scan loop = TOW_SCAN(&remat, .length = 3);
    tow_dense first = TOW_DENSE(.features = 4), last = TOW_DENSE(.features = 2, .dtype = TOW_F32);
    tow_sequential all = TOW_SEQUENTIAL(TOW_MODULE(&first), TOW_MODULE(&loop), TOW_MODULE(&last));
    tow_precision mixed = TOW_PRECISION(&all, .dtype = TOW_BF16);
    training a = start(f->ctx, TOW_MODULE(&all), 4, 2, options_for("adamw"));
    training b = start(f->ctx, TOW_MODULE(&mixed), 4, 2, options_for("adamw"));
    for (int i = 0; i < 10; i++) {
        double plain, loss;
        assert_int_equal(tow_train_step(a.state, a.batch, &plain), TOW_OK);
        assert_int_equal(tow_train_step(b.state, b.batch, &loss), TOW_OK);
        if (!(fabs(loss - plain) <= 0.03 * plain)) fail_msg("step %d: %g in f32, %g in bf16", i, plain, loss);
        assert_true(loss != plain);
    }
    assert_string_equal(saved_type(f, &b, "params/layers_1/2/layers_1/Dense_0/kernel"), "f32");
    stop(&a);
    stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(losses_are_those_of_optax, setup, teardown),
        cmocka_unit_test_setup_teardown(training_resumes, setup, teardown),
        cmocka_unit_test_setup_teardown(f32_files_load_into_bf16, setup, teardown),
        cmocka_unit_test_setup_teardown(mixed_precision_in_a_scan, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Training: schedules and optimisers against optax, equal bits for any number of threads and after resuming, checkpoints
 * that do not fit, no allocation in a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tow/tow.h"

/* ---- a small model ---------------------------------------------------------------------------------------------------- */

enum {
    ROWS = 4,
    STEPS = 6
};

static void mean_squared_error(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss,
                               tow_value *aux, void *user)
{
    (void)trace, (void)aux, (void)user;
    *loss = tow_mean(tow_square(tow_sub(out[0], extra[0])), 0, NULL);
}

/* The inputs of the golden file: ((7919 i) mod 257 - 128) / 64. */
static tow_array *exact_fractions(tow_context *ctx, int64_t rows, int64_t columns)
{
    tow_array *array = NULL;
    assert_int_equal(tow_array_create(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){rows, columns}), &array), TOW_OK);
    float *data = tow_array_data(array);
    for (int64_t i = 0; i < rows * columns; i++) data[i] = (float)((i * 7919) % 257 - 128) / 64;
    return array;
}

/* A state over a model [ROWS, in] -> [ROWS, out], and its batch. */
typedef struct training {
    tow_train_state *state;
    tow_array *batch[2];
} training;

static training start(tow_context *ctx, const tow_module *model, int64_t in, int64_t out, tow_train_options options)
{
    training t = {.batch = {exact_fractions(ctx, ROWS, in), exact_fractions(ctx, ROWS, out)}};
    tow_type types[2] = {tow_array_type(t.batch[0]), tow_array_type(t.batch[1])};
    options.n_inputs = options.n_extra = 1;
    options.input_types = &types[0];
    options.extra_types = &types[1];
    options.loss = mean_squared_error;
    if (tow_train_create(ctx, model, &options, &t.state) != TOW_OK) fail_msg("%s", tow_context_error(ctx));
    return t;
}

static void step(training *t, int count)
{
    double loss;
    for (int i = 0; i < count; i++) {
        assert_int_equal(tow_train_step(t->state, t->batch, &loss), TOW_OK);
        assert_true(isfinite(loss));
    }
}

static void stop(training *t)
{
    tow_train_free(t->state);
    tow_array_release(t->batch[0]);
    tow_array_release(t->batch[1]);
}

typedef struct fixture {
    tow_context *ctx;
    char directory[64], a[96], b[96];
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (f == NULL) return -1;
    strcpy(f->directory, "/tmp/tow-test-train-XXXXXX");
    if (mkdtemp(f->directory) == NULL || tow_context_create(NULL, &f->ctx) != TOW_OK) return -1;
    snprintf(f->a, sizeof f->a, "%s/a", f->directory);
    snprintf(f->b, sizeof f->b, "%s/b", f->directory);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", f->directory);
    int failed = system(command);
    tow_context_destroy(f->ctx);
    free(f);
    return failed;
}

static void assert_message(const fixture *f, const char *part)
{
    const char *text = tow_context_error(f->ctx);
    if (strstr(text, part) == NULL) fail_msg("expected a message with \"%s\", found \"%s\"", part, text);
}

static void save(const fixture *f, const training *t, const char *path)
{
    if (tow_train_save(t->state, path) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
}

static void assert_equal_files(const char *a, const char *b)
{
    char command[256];
    snprintf(command, sizeof command, "cmp '%s' '%s'", a, b);
    assert_int_equal(system(command), 0);
}

/* ---- optax -------------------------------------------------------------------------------------------------------------- */

/* Calls `line(word, rest)` for each line of the golden file that begins with `kind`. */
static void golden(const char *kind, void (*line)(fixture *f, const char *name, const char *rest), fixture *f)
{
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/train.txt", "r");
    assert_non_null(file);
    char text[1024], word[32], name[64];
    int at, lines = 0;
    while (fgets(text, sizeof text, file) != NULL) {
        assert_int_equal(sscanf(text, "%31s %63s %n", word, name, &at), 2);
        if (strcmp(word, kind) != 0) continue;
        line(f, name, text + at);
        lines++;
    }
    fclose(file);
    assert_true(lines > 0);
}

static void assert_close(const char *name, double found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance * fmax(1, fabs(expected))))
        fail_msg("%s: expected %.9g, found %.9g", name, expected, found);
}

static void check_schedule(fixture *f, const char *name, const char *rest)
{
    (void)f;
    tow_schedule exponent = tow_schedule_warmup_cosine(0, 1, 2, 12, 0.1);
    exponent.exponent = 2;
    const struct {
        const char *name;
        tow_schedule schedule;
    } cases[] = {{"constant", tow_schedule_constant(0.25)},
                 {"warmup", tow_schedule_warmup_cosine(0.1, 1, 4, 12, 0.2)},
                 {"no_warmup", tow_schedule_warmup_cosine(0, 2, 0, 10, 0)},
                 {"exponent", exponent}};
    long long at;
    double expected;
    assert_int_equal(sscanf(rest, "%lld %lf", &at, &expected), 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(cases[i].name, name) == 0) {
            assert_close(name, tow_schedule_at(&cases[i].schedule, at), expected, 3e-7); /* optax computes in float32 */
            return;
        }
    fail_msg("no schedule %s", name);
}

static void schedules_are_those_of_optax(void **state) { golden("schedule", check_schedule, *state); }

static void check_optimizer(fixture *f, const char *name, const char *rest)
{
    const tow_schedule rate = tow_schedule_constant(0.05), fast = tow_schedule_constant(0.1);
    const struct {
        const char *name;
        tow_optimizer optimizer;
    } cases[] = {
        {"adamw", {.learning_rate = rate}},
        {"adamw_decay", {.learning_rate = rate, .b1 = 0.8, .b2 = 0.95, .eps = 1e-6, .weight_decay = 0.5}},
        {"adamw_decay_all", {.learning_rate = rate, .weight_decay = 0.5, .decay_all = true}},
        {"adamw_clip",
         {.learning_rate = tow_schedule_warmup_cosine(0, 0.1, 2, 8, 0.01), .weight_decay = 0.1, .clip_norm = 0.5}},
        {"sgd", {.kind = TOW_SGD, .learning_rate = fast}},
        {"sgd_momentum", {.kind = TOW_SGD, .learning_rate = fast, .momentum = 0.9}},
        {"sgd_nesterov",
         {.kind = TOW_SGD,
          .learning_rate = fast,
          .momentum = 0.9,
          .nesterov = true,
          .weight_decay = 0.2,
          .clip_norm = 0.25}},
    };
    size_t c = 0;
    while (c < sizeof cases / sizeof cases[0] && strcmp(cases[c].name, name) != 0) c++;
    assert_true(c < sizeof cases / sizeof cases[0]);

    tow_dense model = TOW_DENSE(.features = 2);
    training t =
        start(f->ctx, TOW_MODULE(&model), 3, 2, (tow_train_options){.optimizer = cases[c].optimizer, .seed = 1});
    double expected, loss;
    int at;
    for (int i = 0; i < STEPS; i++, rest += at) {
        assert_int_equal(sscanf(rest, "%lf %n", &expected, &at), 1);
        assert_int_equal(tow_train_step(t.state, t.batch, &loss), TOW_OK);
        assert_close(name, loss, expected, 1e-5); /* a few roundings of float32 per step, amplified by the steps */
    }
    assert_int_equal(tow_train_step_number(t.state), STEPS);
    static const char *const paths[] = {"kernel", "bias"};
    for (size_t p = 0; p < 2; p++) {
        tow_array *array = tow_params_find(tow_train_params(t.state), paths[p]);
        assert_non_null(array);
        for (int64_t i = 0; i < tow_type_count(tow_array_type(array)); i++, rest += at) {
            assert_int_equal(sscanf(rest, "%lf %n", &expected, &at), 1);
            assert_close(name, (double)((float *)tow_array_data(array))[i], expected, 1e-5);
        }
    }
    assert_int_equal(*rest, '\0');
    stop(&t);
}

static void optimizers_are_those_of_optax(void **state) { golden("optimizer", check_optimizer, *state); }

/* The norm by hand: one parameter of gradient 3 and one of 4. loss = 3 a + 4 b. */
static void linear_call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)module, (void)n_in, (void)in, (void)n_out;
    tow_value a = tow_param(scope, "a", 0, NULL, tow_init_zeros()),
              b = tow_param(scope, "b", 0, NULL, tow_init_zeros());
    out[0] = tow_add(tow_mul_scalar(a, 3), tow_mul_scalar(b, 4));
}

static void output_itself(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss,
                          tow_value *aux, void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = out[0];
}

static void clipping_scales_to_the_norm(void **state)
{
    fixture *f = *state;
    static const tow_module_class cls = {"Linear", linear_call};
    const tow_module model = {&cls};
    static const double limits[] = {10, 5, 1}, expected[] = {1, 1, 0.2}; /* a norm of exactly c gives g/n*c = g */
    for (size_t i = 0; i < 3; i++) {
        tow_train_options options = {
            .optimizer = {.kind = TOW_SGD, .learning_rate = tow_schedule_constant(1), .clip_norm = limits[i]},
            .loss = output_itself};
        tow_train_state *s;
        assert_int_equal(tow_train_create(f->ctx, &model, &options, &s), TOW_OK);
        assert_int_equal(tow_train_step(s, NULL, NULL), TOW_OK);
        assert_close("norm", tow_train_gradient_norm(s), 5, 0);
        assert_close("a", (double)*(float *)tow_array_data(tow_params_find(tow_train_params(s), "a")), -3 * expected[i],
                     1e-7);
        assert_close("b", (double)*(float *)tow_array_data(tow_params_find(tow_train_params(s), "b")), -4 * expected[i],
                     1e-7);
        tow_train_free(s);
    }
}

/* ---- bits ---------------------------------------------------------------------------------------------------------------- */

static const tow_optimizer usual = {.learning_rate = {.peak_value = 0.01}, .weight_decay = 0.1, .clip_norm = 0.5};

/* Enough parameters for several blocks of the optimiser. */
static void threads_do_not_matter(void **state)
{
    fixture *f = *state;
    for (int threads = 1; threads <= 3; threads++) {
        tow_context *ctx;
        assert_int_equal(tow_context_create(&(tow_context_options){.threads = threads}, &ctx), TOW_OK);
        tow_mlp model = TOW_MLP(.features = {300, 257, 5});
        training t = start(ctx, TOW_MODULE(&model), 31, 5, (tow_train_options){.optimizer = usual});
        step(&t, 3);
        assert_int_equal(tow_train_save(t.state, threads == 1 ? f->a : f->b), TOW_OK);
        if (threads > 1) assert_equal_files(f->a, f->b);
        stop(&t);
        tow_context_destroy(ctx);
    }
}

/* Updates inside the backward pass: the same files, and no gradients in memory. Stacked layers are updated row by row. */
static void early_updates_are_the_same(void **state)
{
    fixture *f = *state;
    tow_dense layer = TOW_DENSE(.features = 40);
    tow_remat cheap = TOW_REMAT(&layer, .policy = tow_nothing_saveable());
    tow_scan stacked = TOW_SCAN(&cheap, .length = 4);
    tow_mlp plain = TOW_MLP(.features = {300, 257, 5});
    static const tow_optimizer optimizers[] = {
        {.learning_rate = {.peak_value = 0.01}, .weight_decay = 0.1},
        {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.01}, .momentum = 0.9, .nesterov = true},
    };
    for (size_t i = 0; i < 4; i++) {
        const tow_module *model = i % 2 ? TOW_MODULE(&stacked) : TOW_MODULE(&plain);
        int64_t in = i % 2 ? 40 : 31, out = i % 2 ? 40 : 5;
        tow_train_options options = {.optimizer = optimizers[i / 2]};
        training late = start(f->ctx, model, in, out, options);
        options.early_update = true;
        training early = start(f->ctx, model, in, out, options);
        step(&late, 3);
        step(&early, 3);
        save(f, &late, f->a);
        save(f, &early, f->b);
        assert_equal_files(f->a, f->b);
        tow_train_bytes a = tow_train_get_bytes(late.state), b = tow_train_get_bytes(early.state);
        assert_int_equal(b.gradients, 0);
        assert_true(b.total < a.total);
        stop(&late);
        stop(&early);
    }
    tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, 40});
    tow_train_options clipped = {.optimizer = {.clip_norm = 1},
                                 .early_update = true,
                                 .n_inputs = 1,
                                 .input_types = &type,
                                 .n_extra = 1,
                                 .extra_types = &type,
                                 .loss = mean_squared_error};
    tow_train_state *s;
    assert_int_equal(tow_train_create(f->ctx, TOW_MODULE(&stacked), &clipped, &s), TOW_INVALID_ARGUMENT);
    assert_null(s);
    assert_message(f, "clip_norm");
}

/* A model with random masks: resuming must draw the same ones. */
typedef struct noisy {
    tow_dense up, down;
    tow_dropout dropout;
    const tow_module *layers[3];
    tow_sequential model;
} noisy;

static const tow_module *make_noisy(noisy *n)
{
    n->up = TOW_DENSE(.features = 16);
    n->dropout = TOW_DROPOUT(.rate = 0.5);
    n->down = TOW_DENSE(.features = 2);
    n->layers[0] = TOW_MODULE(&n->up);
    n->layers[1] = TOW_MODULE(&n->dropout);
    n->layers[2] = TOW_MODULE(&n->down);
    n->model = (tow_sequential){.module = {&tow_sequential_class}, .layers = n->layers, .n_layers = 3};
    return TOW_MODULE(&n->model);
}

static const tow_model_options with_dropout = {.streams = (const char *const[]){"dropout", NULL}};

static void resumed_is_bit_equal(void **state)
{
    fixture *f = *state;
    noisy n;
    const tow_module *model = make_noisy(&n);
    static const tow_optimizer optimizers[] = {
        {.learning_rate = {.peak_value = 0.01}, .weight_decay = 0.1, .clip_norm = 0.5},
        {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.01}, .momentum = 0.9},
        {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.01}},
    };
    for (size_t i = 0; i < 3; i++) {
        tow_train_options options = {
            .optimizer = optimizers[i], .seed = 7, .model = &with_dropout, .description = "noisy"};
        training whole = start(f->ctx, model, 3, 2, options);
        step(&whole, 3);
        tow_train_set_data_position(whole.state, UINT64_MAX);
        save(f, &whole, f->a);
        options.seed = 8;
        training resumed = start(f->ctx, model, 3, 2, options);
        step(&resumed, 1);
        assert_int_equal(tow_train_load(resumed.state, f->a), TOW_OK);
        assert_int_equal(tow_train_step_number(resumed.state), 3);
        assert_true(tow_train_data_position(resumed.state) == UINT64_MAX);
        step(&whole, 4);
        step(&resumed, 4);
        save(f, &whole, f->a);
        save(f, &resumed, f->b);
        assert_equal_files(f->a, f->b);
        stop(&whole);
        stop(&resumed);
    }
}

/* The masks must differ from step to step, or the test above would prove little. */
static void masks_change_with_the_step(void **state)
{
    fixture *f = *state;
    noisy n;
    training t = start(f->ctx, make_noisy(&n), 3, 2,
                       (tow_train_options){.optimizer = {.kind = TOW_SGD, .learning_rate = {.peak_value = 0}},
                                           .model = &with_dropout});
    double first, second;
    assert_int_equal(tow_train_step(t.state, t.batch, &first), TOW_OK);
    assert_int_equal(tow_train_step(t.state, t.batch, &second), TOW_OK);
    assert_true(first != second);
    stop(&t);
}

static void scanned_and_unrolled_read_each_other(void **state)
{
    fixture *f = *state;
    tow_dense layer = TOW_DENSE(.features = 3);
    tow_scan stacked = TOW_SCAN(&layer, .length = 4), unrolled = TOW_SCAN(&layer, .length = 4, .unrolled = true);
    tow_train_options options = {.optimizer = usual};
    training a = start(f->ctx, TOW_MODULE(&stacked), 3, 3, options),
             b = start(f->ctx, TOW_MODULE(&unrolled), 3, 3, options);
    step(&a, 3);
    save(f, &a, f->a);
    assert_int_equal(tow_train_load(b.state, f->a), TOW_OK);
    step(&a, 2);
    step(&b, 2);
    save(f, &b, f->b);
    training c = start(f->ctx, TOW_MODULE(&stacked), 3, 3, options);
    assert_int_equal(tow_train_load(c.state, f->b), TOW_OK);
    save(f, &c, f->b);
    save(f, &a, f->a);
    assert_equal_files(f->a, f->b);
    stop(&a);
    stop(&b);
    stop(&c);
}

/* ---- evaluation, bytes ----------------------------------------------------------------------------------------------------- */

static void evaluation_is_without_dropout_and_changes_nothing(void **state)
{
    fixture *f = *state;
    noisy n;
    tow_train_options options = {.optimizer = usual, .model = &with_dropout, .evaluation = true};
    training t = start(f->ctx, make_noisy(&n), 3, 2, options);
    step(&t, 1);
    save(f, &t, f->a);
    double first, second, third;
    assert_int_equal(tow_train_evaluate(t.state, t.batch, &first), TOW_OK);
    save(f, &t, f->b);
    assert_equal_files(f->a, f->b);
    assert_int_equal(tow_train_evaluate(t.state, t.batch, &second), TOW_OK);
    assert_true(first == second);
    /* by hand, from the parameters: mean((x K0 + b0) K1 + b1 - target)^2 */
    tow_params *p = tow_train_params(t.state);
    const float *k0 = tow_array_data(tow_params_find(p, "layers_0/kernel")),
                *b0 = tow_array_data(tow_params_find(p, "layers_0/bias"));
    const float *k1 = tow_array_data(tow_params_find(p, "layers_2/kernel")),
                *b1 = tow_array_data(tow_params_find(p, "layers_2/bias"));
    const float *x = tow_array_data(t.batch[0]), *target = tow_array_data(t.batch[1]);
    third = 0;
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < 2; o++) {
            double y = (double)b1[o] - (double)target[2 * r + o];
            for (int h = 0; h < 16; h++) {
                double hidden = (double)b0[h];
                for (int i = 0; i < 3; i++) hidden += (double)x[3 * r + i] * (double)k0[16 * i + h];
                y += hidden * (double)k1[2 * h + o];
            }
            third += y * y / (2 * ROWS);
        }
    assert_close("evaluation", first, third, 1e-5);
    stop(&t);
    options.evaluation = false;
    t = start(f->ctx, make_noisy(&n), 3, 2, options);
    assert_int_equal(tow_train_evaluate(t.state, t.batch, &first), TOW_INVALID_ARGUMENT);
    assert_message(f, ".evaluation = true");
    stop(&t);
}

static void bytes_by_kind(void **state)
{
    fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2); /* kernel [3, 2], bias [2]: 8 floats */
    training t = start(f->ctx, TOW_MODULE(&model), 3, 2, (tow_train_options){.optimizer = usual, .evaluation = true});
    tow_train_bytes bytes = tow_train_get_bytes(t.state);
    assert_int_equal(bytes.parameters, 32);
    assert_int_equal(bytes.gradients, 32);
    assert_int_equal(bytes.optimizer, 64);
    assert_true(bytes.evaluation > 0);
    assert_int_equal(bytes.total, bytes.parameters + bytes.gradients + bytes.optimizer + bytes.residuals +
                                      bytes.workspace + bytes.evaluation);
    tow_program_bytes program = tow_program_get_bytes(tow_train_program(t.state));
    assert_int_equal(bytes.residuals, program.residuals);
    assert_true(bytes.residuals + bytes.workspace >= program.arena);
    stop(&t);
}

/* ---- what does not fit ------------------------------------------------------------------------------------------------------- */

static tow_tensors *read_back(const fixture *f, const char *path)
{
    tow_tensors *tensors;
    if (tow_safetensors_read(f->ctx, path, &tensors) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
    return tensors;
}

/* Copies `from` without the tensor `without`, with metadata key=value, and with the array `extra_name` of 7 floats. */
static void edit(const fixture *f, const char *from, const char *to, const char *without, const char *key,
                 const char *value, const char *extra_name)
{
    static const char *const keys[] = {"format", "optimizer", "description", "step", "seed", "data_position"};
    tow_tensors *old = read_back(f, from), *new;
    assert_int_equal(tow_tensors_create(f->ctx, &new), TOW_OK);
    for (size_t i = 0; i < tow_tensors_count(old); i++)
        if (without == NULL || strcmp(tow_tensors_name(old, i), without) != 0)
            assert_int_equal(tow_tensors_add(new, tow_tensors_name(old, i), tow_tensors_at(old, i)), TOW_OK);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *text = key != NULL && strcmp(keys[i], key) == 0 ? value : tow_tensors_metadata(old, keys[i]);
        if (text != NULL) assert_int_equal(tow_tensors_set_metadata(new, keys[i], text), TOW_OK);
    }
    if (extra_name != NULL) {
        tow_array *extra;
        assert_int_equal(tow_array_create(f->ctx, tow_make_type(TOW_F32, 1, (int64_t[]){7}), &extra), TOW_OK);
        assert_int_equal(tow_tensors_add(new, extra_name, extra), TOW_OK);
        tow_array_release(extra);
    }
    assert_int_equal(tow_safetensors_write(to, new), TOW_OK);
    tow_tensors_free(old);
    tow_tensors_free(new);
}

typedef struct misfit {
    const char *without, *key, *value, *extra;
    const char *message;
} misfit;

static void checkpoints_that_do_not_fit_change_nothing(void **state)
{
    fixture *f = *state;
    static const misfit cases[] = {
        {"params/kernel", NULL, NULL, NULL, "kernel"},
        {"adam/mu/kernel", NULL, NULL, NULL, "adam/mu/kernel"},
        {"adam/nu/bias", NULL, NULL, NULL, "adam/nu/bias"},
        {NULL, NULL, NULL, "params/other", "params/other"},
        {NULL, NULL, NULL, "adam/nu/other", "adam/nu/other"},
        {NULL, NULL, NULL, "sgd/trace/kernel", "sgd/trace/kernel"},
        {NULL, NULL, NULL, "unknown", "unknown"},
        {"params/bias", NULL, NULL, "params/bias", "f32[7]"},
        {NULL, "format", "tow-train-state-0", NULL, "tow-train-state-1"},
        {NULL, "format", NULL, NULL, "format"},
        {NULL, "optimizer", "sgd", NULL, "'adamw', found 'sgd'"},
        {NULL, "description", "b", NULL, "description 'a', found 'b'"},
        {NULL, "step", "-1", NULL, "'step'"},
        {NULL, "step", "1e3", NULL, "'step'"},
        {NULL, "step", "99999999999999999999", NULL, "'step'"},
        {NULL, "step", "18446744073709551615", NULL, "below 2^63"},
        {NULL, "step", "", NULL, "'step'"},
        {NULL, "seed", NULL, NULL, "'seed'"},
        {NULL, "data_position", "x", NULL, "'data_position'"},
    };
    tow_dense model = TOW_DENSE(.features = 2);
    char bad[128], before[128];
    training t = start(f->ctx, TOW_MODULE(&model), 3, 2, (tow_train_options){.optimizer = usual, .description = "a"});
    snprintf(bad, sizeof bad, "%s/bad", f->directory);
    snprintf(before, sizeof before, "%s/before", f->directory);
    save(f, &t, f->a);
    step(&t, 2);
    save(f, &t, before);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const misfit *c = &cases[i];
        edit(f, f->a, bad, c->without, c->key, c->value, c->extra);
        assert_int_not_equal(tow_train_load(t.state, bad), TOW_OK);
        assert_message(f, bad);
        assert_message(f, c->message);
        save(f, &t, f->b);
        assert_equal_files(before, f->b);
    }
    assert_int_equal(truncate(bad, 100), 0);
    assert_int_equal(tow_train_load(t.state, bad), TOW_BAD_FORMAT);
    assert_int_equal(tow_train_load(t.state, "/nowhere/at/all"), TOW_IO_ERROR);
    assert_int_equal(tow_train_load(t.state, f->a), TOW_OK);
    assert_int_equal(tow_train_step_number(t.state), 0);
    stop(&t);
}

static void a_full_disk_is_reported(void **state)
{
    fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    training t = start(f->ctx, TOW_MODULE(&model), 3, 2, (tow_train_options){.optimizer = usual});
    assert_int_equal(tow_train_save(t.state, "/dev/full"), TOW_IO_ERROR);
    assert_message(f, "No space left");
    stop(&t);
}

static void wrong_batches_change_nothing(void **state)
{
    fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    training t = start(f->ctx, TOW_MODULE(&model), 3, 2, (tow_train_options){.optimizer = usual});
    save(f, &t, f->a);
    tow_array *swapped[2] = {t.batch[1], t.batch[0]};
    assert_int_equal(tow_train_step(t.state, swapped, NULL), TOW_TYPE_MISMATCH);
    assert_message(f, "f32[4,3]");
    save(f, &t, f->b);
    assert_equal_files(f->a, f->b);
    step(&t, 1);
    stop(&t);
}

static void options_out_of_range(void **state)
{
    fixture *f = *state;
    static const struct {
        tow_optimizer optimizer;
        const char *message;
    } cases[] = {
        {{.kind = (tow_optimizer_kind)9}, "found 9"},
        {{.b1 = 1}, "b1"},
        {{.b2 = -0.5}, "b2"},
        {{.eps = -1}, "eps"},
        {{.kind = TOW_SGD, .momentum = 2}, "momentum"},
        {{.weight_decay = -1}, "weight_decay"},
        {{.clip_norm = NAN}, "clip_norm"},
        {{.learning_rate = {.peak_value = INFINITY}}, "learning rates"},
        {{.learning_rate = {.kind = TOW_SCHEDULE_WARMUP_COSINE, .warmup_steps = 5, .decay_steps = 5}}, "decay_steps"},
        {{.learning_rate = {.kind = (tow_schedule_kind)7}}, "schedule"},
    };
    tow_dense model = TOW_DENSE(.features = 2);
    tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){4, 2});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tow_train_options options = {.optimizer = cases[i].optimizer,
                                     .n_inputs = 1,
                                     .input_types = &type,
                                     .n_extra = 1,
                                     .extra_types = &type,
                                     .loss = mean_squared_error};
        tow_train_state *s;
        assert_int_equal(tow_train_create(f->ctx, TOW_MODULE(&model), &options, &s), TOW_INVALID_ARGUMENT);
        assert_null(s);
        assert_message(f, cases[i].message);
    }
    tow_train_state *s;
    assert_int_equal(tow_train_create(f->ctx, TOW_MODULE(&model), &(tow_train_options){.n_inputs = 1}, &s),
                     TOW_INVALID_ARGUMENT);
    assert_null(s);
    tow_activation_layer fixed = TOW_ACTIVATION(tow_tanh);
    tow_train_options plain = {
        .n_inputs = 1, .input_types = &type, .n_extra = 1, .extra_types = &type, .loss = mean_squared_error};
    assert_int_equal(tow_train_create(f->ctx, TOW_MODULE(&fixed), &plain, &s), TOW_INVALID_ARGUMENT);
    assert_null(s);
    assert_message(f, "no parameters");
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------- */

typedef struct budget {
    long allowed, in_use;
} budget;

static void *limited(void *user, void *pointer, size_t old_size, size_t size)
{
    budget *b = user;
    if (size == 0) {
        if (pointer != NULL) b->in_use--;
        free(pointer);
        return NULL;
    }
    if (b->allowed-- <= 0) return NULL;
    void *memory = NULL;
    if (posix_memalign(&memory, 64, size) != 0) return NULL;
    if (pointer == NULL) {
        b->in_use++;
    } else {
        memcpy(memory, pointer, old_size < size ? old_size : size);
        free(pointer);
    }
    return memory;
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    budget b = {.allowed = 1000000};
    tow_context *ctx;
    assert_int_equal(tow_context_create(&(tow_context_options){.allocator = {limited, &b}}, &ctx), TOW_OK);
    noisy n;
    training t = start(ctx, make_noisy(&n), 3, 2,
                       (tow_train_options){.optimizer = usual, .model = &with_dropout, .evaluation = true});
    double loss;
    b.allowed = 0;
    step(&t, 5);
    assert_int_equal(tow_train_evaluate(t.state, t.batch, &loss), TOW_OK);
    assert_int_equal(b.allowed, 0);
    stop(&t);
    tow_context_destroy(ctx);
    assert_int_equal(b.in_use, 0);
}

/* Creating, saving and loading with ever more allocations allowed, until all succeeds: a status each time, and no leak. */
static void allocations_fail_in_turn(void **state)
{
    fixture *f = *state;
    budget b = {.allowed = 1000000};
    tow_context *ctx;
    assert_int_equal(tow_context_create(&(tow_context_options){.allocator = {limited, &b}, .threads = 1}, &ctx),
                     TOW_OK);
    noisy n;
    const tow_module *model = make_noisy(&n);
    tow_type types[2] = {tow_make_type(TOW_F32, 2, (int64_t[]){4, 3}), tow_make_type(TOW_F32, 2, (int64_t[]){4, 2})};
    const tow_train_options options = {.optimizer = usual,
                                       .n_inputs = 1,
                                       .input_types = &types[0],
                                       .n_extra = 1,
                                       .extra_types = &types[1],
                                       .loss = mean_squared_error,
                                       .model = &with_dropout};
    long idle = b.in_use;
    tow_status status = TOW_OUT_OF_MEMORY;
    for (long allowed = 0; status != TOW_OK; allowed += 1 + allowed / 64) {
        tow_train_state *s;
        b.allowed = allowed;
        status = tow_train_create(ctx, model, &options, &s);
        if (status == TOW_OK) status = tow_train_save(s, f->a);
        if (status == TOW_OK) status = tow_train_load(s, f->a);
        if (status != TOW_OK) assert_int_equal(status, TOW_OUT_OF_MEMORY);
        tow_train_free(s);
        assert_int_equal(b.in_use, idle);
        assert_true(allowed < 1000000);
    }
    b.allowed = 1000000;
    tow_context_destroy(ctx);
    assert_int_equal(b.in_use, 0);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(schedules_are_those_of_optax),
        TEST(optimizers_are_those_of_optax),
        TEST(clipping_scales_to_the_norm),
        TEST(threads_do_not_matter),
        TEST(early_updates_are_the_same),
        TEST(resumed_is_bit_equal),
        TEST(masks_change_with_the_step),
        TEST(scanned_and_unrolled_read_each_other),
        TEST(evaluation_is_without_dropout_and_changes_nothing),
        TEST(bytes_by_kind),
        TEST(checkpoints_that_do_not_fit_change_nothing),
        TEST(a_full_disk_is_reported),
        TEST(wrong_batches_change_nothing),
        TEST(options_out_of_range),
        TEST(a_step_allocates_nothing),
        TEST(allocations_fail_in_turn),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}

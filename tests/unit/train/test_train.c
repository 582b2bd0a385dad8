/* Training: schedules and optimizers against optax, equal bits for any number of threads and after resuming,
 * evaluation. */
#include "tests/unit/support/training.h"

/* ---- optax ------------------------------------------------------------------------------------------------------- */

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
        tow_standard_optimizer optimizer;
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
    training t = start(f->ctx, TOW_MODULE(&model), 3, 2, TOW_TRAIN_OPTIONS(.optimizer = cases[c].optimizer, .seed = 1));
    double expected, loss;
    int at;
    for (int i = 0; i < STEPS; i++, rest += at) {
        assert_int_equal(sscanf(rest, "%lf %n", &expected, &at), 1);
        assert_int_equal(tow_train_step(t.state, t.batch, &loss), TOW_OK);
        assert_close(name, loss, expected, 1e-5); /* a few roundings of float32 per step, amplified by the steps */
    }
    assert_int_equal(tow_train_step_count(t.state), STEPS);
    static const char *const paths[] = {"kernel", "bias"};
    for (size_t p = 0; p < 2; p++) {
        tow_array *array = tow_params_find(tow_train_params(t.state), paths[p]);
        assert_non_null(array);
        for (int64_t i = 0; i < tow_type_element_count(tow_array_type(array)); i++, rest += at) {
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
    tow_value a = tow_param(scope, "a", 0, NULL, tow_initializer_zeros()),
              b = tow_param(scope, "b", 0, NULL, tow_initializer_zeros());
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
        tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = {.kind = TOW_SGD,
                                                                    .learning_rate = tow_schedule_constant(1),
                                                                    .clip_norm = limits[i]},
                                                      .loss = output_itself);
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

/* ---- bits -------------------------------------------------------------------------------------------------------- */

/* Enough parameters for several blocks of the optimizer. */
static void threads_do_not_matter(void **state)
{
    fixture *f = *state;
    for (int threads = 1; threads <= 3; threads++) {
        tow_context *ctx;
        assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = threads), &ctx), TOW_OK);
        tow_mlp model = TOW_MLP(.features = {300, 257, 5});
        training t = start(ctx, TOW_MODULE(&model), 31, 5, TOW_TRAIN_OPTIONS(.optimizer = usual));
        step(&t, 3);
        assert_int_equal(tow_train_save(t.state, threads == 1 ? f->a : f->b), TOW_OK);
        if (threads > 1) assert_equal_files(f->a, f->b);
        stop(&t);
        tow_context_free(ctx);
    }
}

/* The wish for updates inside the backward pass: the same files, and no more memory. */
static void early_updates_are_the_same(void **state)
{
    fixture *f = *state;
    tow_dense layer = TOW_DENSE(.features = 40);
    tow_remat cheap = TOW_REMAT(&layer, .policy = tow_nothing_saveable());
    tow_scan stacked = TOW_SCAN(&cheap, .length = 4);
    tow_mlp plain = TOW_MLP(.features = {300, 257, 5});
    static const tow_standard_optimizer optimizers[] = {
        {.learning_rate = {.peak_value = 0.01}, .weight_decay = 0.1},
        {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.01}, .momentum = 0.9, .nesterov = true},
    };
    for (size_t i = 0; i < 4; i++) {
        const tow_module *model = i % 2 ? TOW_MODULE(&stacked) : TOW_MODULE(&plain);
        int64_t in = i % 2 ? 40 : 31, out = i % 2 ? 40 : 5;
        tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = optimizers[i / 2]);
        training late = start(f->ctx, model, in, out, options);
        options.early_update = true;
        training early = start(f->ctx, model, in, out, options);
        step(&late, 3);
        step(&early, 3);
        save(f, &late, f->a);
        save(f, &early, f->b);
        assert_equal_files(f->a, f->b);
        tow_train_bytes a = tow_train_get_bytes(late.state), b = tow_train_get_bytes(early.state);
        assert_true(b.total <= a.total);
        stop(&late);
        stop(&early);
    }
}

/* The curve of a step: each limit takes the plan of its point, in all its numbers. */
static void curves_are_those_of_steps(void **state)
{
    enum {
        MOST_POINTS = 64
    };
    fixture *f = *state;
    tow_dense layer = TOW_DENSE(.features = 40);
    tow_remat cheap = TOW_REMAT(&layer, .policy = tow_nothing_saveable());
    tow_scan stacked = TOW_SCAN(&cheap, .length = 4);
    for (int kind = 0; kind < 8; kind++) {
        tow_train_options options =
            TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = {.peak_value = 0.01}}, .early_update = kind & 1,
                              .micro_batches = kind & 2 ? 2 : 1, .verify = kind & 4);
        tow_memory_point points[MOST_POINTS] = {{0}};
        size_t n;
        training t = start(f->ctx, TOW_MODULE(&stacked), 40, 40, options);
        assert_int_equal(tow_train_memory_curve(t.state, MOST_POINTS, points, &n), TOW_OK);
        assert_in_range(n, 1, MOST_POINTS);
        stop(&t);
        t = start(f->ctx, TOW_MODULE(&stacked), 40, 40, (options.verify = false, options));
        const tow_memory_point unlimited = tow_program_memory_point(tow_train_program(t.state));
        assert_int_equal(tow_program_unlimited_point(tow_train_program(t.state)).bytes, unlimited.bytes);
        stop(&t);
        for (size_t i = 0; i < n; i++) {
            if (i > 0) assert_true(points[i].bytes > points[i - 1].bytes && points[i].seconds < points[i - 1].seconds);
            options.memory_limit = points[i].bytes + (i + 1 < n ? points[i + 1].bytes - points[i].bytes - 1 : 0);
            t = start(f->ctx, TOW_MODULE(&stacked), 40, 40, options);
            const tow_memory_point found = tow_program_memory_point(tow_train_program(t.state));
            assert_int_equal(found.bytes, points[i].bytes);
            assert_memory_equal(&found, &points[i], sizeof found);
            const tow_memory_point without = tow_program_unlimited_point(tow_train_program(t.state));
            assert_memory_equal(&without, &unlimited, sizeof without);
            const tow_train_bytes bytes = tow_train_get_bytes(t.state);
            assert_int_equal(bytes.total - bytes.evaluation, points[i].bytes);
            stop(&t);
        }
    }
}

/* The program of a step knows the reasons of what it keeps and makes again, as that of a gradient does; each what-if is
 * a plan of the whole step. */
static void steps_say_why(void **state)
{
    fixture *f = *state;
    tow_mlp layer = TOW_MLP(.features = {40}, .activation = tow_tanh, .activate_last = true);
    tow_scan stacked = TOW_SCAN(&layer, .length = 4);
    for (int kind = 0; kind < 10; kind++) {
        tow_train_options options =
            TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = {.peak_value = 0.01}}, .early_update = kind & 1,
                              .micro_batches = kind & 2 ? 2 : 1, .verify = kind & 4, .row_groups = kind & 8 ? 2 : 0);
        tow_memory_point least;
        size_t n, tried = 0;
        tow_residuals residuals;
        training t = start(f->ctx, TOW_MODULE(&stacked), 40, 40, options);
        assert_int_equal(tow_program_explain(tow_train_program(t.state), &residuals), TOW_OK);
        assert_true(residuals.count > 0 && residuals.again_count == 0);
        tow_residuals_free(&residuals);
        assert_int_equal(tow_train_memory_curve(t.state, 1, &least, &n), TOW_OK);
        stop(&t);
        options.memory_limit = least.bytes;
        t = start(f->ctx, TOW_MODULE(&stacked), 40, 40, options);
        assert_int_equal(tow_program_explain(tow_train_program(t.state), &residuals), TOW_OK);
        assert_true(residuals.again_count > 0);
        for (size_t i = 0; i < residuals.again_count; i++) tried += residuals.again[i].plan.tried;
        assert_true(tried > 0);
        tow_residuals_free(&residuals);
        assert_int_equal(tow_program_write_html(tow_train_program(t.state), NULL, f->a), TOW_OK);
        step(&t, 1);
        stop(&t);
    }
}

/* Layers one by one in remat: with a memory limit something else is kept, and nothing else changes. */
static void memory_limits_change_no_step(void **state)
{
    fixture *f = *state;
    tow_dense layer = TOW_DENSE(.features = 40);
    tow_remat cheap = TOW_REMAT(&layer, .policy = tow_nothing_saveable());
    tow_scan unrolled = TOW_SCAN(&cheap, .length = 4, .unrolled = true);
    for (int early = 0; early < 2; early++) {
        tow_train_options options =
            TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = {.peak_value = 0.01}}, .early_update = early);
        training without = start(f->ctx, TOW_MODULE(&unrolled), 40, 40, options);
        options.memory_limit = SIZE_MAX;
        training within = start(f->ctx, TOW_MODULE(&unrolled), 40, 40, options);
        step(&without, 3);
        step(&within, 3);
        save(f, &without, f->a);
        save(f, &within, f->b);
        assert_equal_files(f->a, f->b);
        stop(&without);
        stop(&within);
    }
}

/* A verified step does what a step does, with a memory limit, too. */
static void verified_steps_are_the_same(void **state)
{
    fixture *f = *state;
    tow_mlp layer = TOW_MLP(.features = {40}, .activation = tow_tanh, .activate_last = true);
    tow_remat cheap = TOW_REMAT(&layer, .policy = tow_nothing_saveable());
    tow_scan layers = TOW_SCAN(&cheap, .length = 4);
    for (int k = 0; k < 8; k++) {
        tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = {.peak_value = 0.01}},
                                                      .early_update = k & 1, .micro_batches = k & 2 ? 2 : 1);
        training plain = start(f->ctx, TOW_MODULE(&layers), 40, 40, options);
        options.verify = true;
        options.memory_limit = k & 4 ? SIZE_MAX : 0;
        training verified = start(f->ctx, TOW_MODULE(&layers), 40, 40, options);
        const tow_program *p = tow_train_program(verified.state);
        if (!options.memory_limit) assert_in_range(tow_program_operation_count(p, "same_bits"), 1, 1000);
        step(&plain, 3);
        step(&verified, 3);
        save(f, &plain, f->a);
        save(f, &verified, f->b);
        assert_equal_files(f->a, f->b);
        stop(&plain);
        stop(&verified);
    }
}

static void resumed_is_bit_equal(void **state)
{
    fixture *f = *state;
    noisy n;
    const tow_module *model = make_noisy(&n);
    static const tow_standard_optimizer optimizers[] = {
        {.learning_rate = {.peak_value = 0.01}, .weight_decay = 0.1, .clip_norm = 0.5},
        {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.01}, .momentum = 0.9},
        {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.01}},
    };
    for (size_t i = 0; i < 3; i++) {
        tow_train_options options =
            TOW_TRAIN_OPTIONS(.optimizer = optimizers[i], .seed = 7, .model = &with_dropout, .description = "noisy");
        training whole = start(f->ctx, model, 3, 2, options);
        step(&whole, 3);
        tow_train_set_data_position(whole.state, UINT64_MAX);
        save(f, &whole, f->a);
        options.seed = 8;
        training resumed = start(f->ctx, model, 3, 2, options);
        step(&resumed, 1);
        assert_int_equal(tow_train_load(resumed.state, f->a), TOW_OK);
        assert_int_equal(tow_train_step_count(resumed.state), 3);
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
    training t = start(
        f->ctx, make_noisy(&n), 3, 2,
        TOW_TRAIN_OPTIONS(.optimizer = {.kind = TOW_SGD, .learning_rate = {.peak_value = 0}}, .model = &with_dropout));
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
    tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = usual);
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

/* ---- evaluation, bytes ------------------------------------------------------------------------------------------- */

static void evaluation_is_without_dropout_and_changes_nothing(void **state)
{
    fixture *f = *state;
    noisy n;
    tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = usual, .model = &with_dropout, .evaluation = true);
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
    training t = start(f->ctx, TOW_MODULE(&model), 3, 2, TOW_TRAIN_OPTIONS(.optimizer = usual, .evaluation = true));
    tow_train_bytes bytes = tow_train_get_bytes(t.state);
    assert_int_equal(bytes.parameters, 32);
    assert_int_equal(bytes.optimizer, 64);
    assert_true(bytes.evaluation > 0);
    assert_int_equal(bytes.total, bytes.parameters + bytes.optimizer + bytes.residuals + bytes.workspace +
                                      bytes.evaluation + bytes.batch);
    tow_program_bytes program = tow_program_get_bytes(tow_train_program(t.state));
    assert_int_equal(bytes.residuals, program.residuals);
    assert_true(bytes.residuals + bytes.workspace >= program.arena);
    stop(&t);
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
        TEST(memory_limits_change_no_step),
        TEST(curves_are_those_of_steps),
        TEST(steps_say_why),
        TEST(verified_steps_are_the_same),
        TEST(resumed_is_bit_equal),
        TEST(masks_change_with_the_step),
        TEST(scanned_and_unrolled_read_each_other),
        TEST(evaluation_is_without_dropout_and_changes_nothing),
        TEST(bytes_by_kind),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}

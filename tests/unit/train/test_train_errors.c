/* Training: checkpoints, batches and options that do not fit, no allocation in a step, every allocation failing in
 * turn. */
#include "tests/unit/support/training.h"

/* ---- what does not fit ------------------------------------------------------------------------------------------- */

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
        {NULL, "step", "9223372036854775807", NULL, "below 2^63"},
        {NULL, "step", "", NULL, "'step'"},
        {NULL, "seed", NULL, NULL, "'seed'"},
        {NULL, "data_position", "x", NULL, "'data_position'"},
    };
    tow_dense model = TOW_DENSE(.features = 2);
    char bad[128], before[128];
    training t = start(f->ctx, TOW_MODULE(&model), 3, 2, TOW_TRAIN_OPTIONS(.optimizer = usual, .description = "a"));
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
    assert_int_equal(tow_train_step_count(t.state), 0);
    stop(&t);
}

static void a_full_disk_is_reported(void **state)
{
    fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    training t = start(f->ctx, TOW_MODULE(&model), 3, 2, TOW_TRAIN_OPTIONS(.optimizer = usual));
    assert_int_equal(tow_train_save(t.state, "/dev/full"), TOW_IO_ERROR);
    assert_message(f, "No space left");
    stop(&t);
}

static void wrong_batches_change_nothing(void **state)
{
    fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 2);
    training t = start(f->ctx, TOW_MODULE(&model), 3, 2, TOW_TRAIN_OPTIONS(.optimizer = usual));
    save(f, &t, f->a);
    tow_array *swapped[2] = {t.batch[1], t.batch[0]};
    assert_int_equal(tow_train_step(t.state, swapped, NULL), TOW_TYPE_MISMATCH);
    assert_message(f, "f32[4,3]");
    assert_int_equal(tow_train_step(t.state, NULL, NULL), TOW_INVALID_ARGUMENT);
    assert_message(f, "a batch of 2 arrays");
    save(f, &t, f->b);
    assert_equal_files(f->a, f->b);
    step(&t, 1);
    stop(&t);
}

static void options_out_of_range(void **state)
{
    fixture *f = *state;
    static const struct {
        tow_standard_optimizer optimizer;
        const char *message;
    } cases[] = {
        {{.kind = (tow_standard_optimizer_kind)9}, "found 9"},
        {{.b1 = 1}, "b1"},
        {{.b2 = -0.5}, "b2"},
        {{.eps = -1}, "eps"},
        {{.eps = 1e-300}, "eps"}, /* 0 in f32: 0 / 0 */
        {{.weight_decay = INFINITY}, "weight_decay"},
        {{.b1 = 1}, "[0, 1), found 1"},
        {{.kind = TOW_SGD, .momentum = 2}, "momentum"},
        {{.weight_decay = -1}, "weight_decay"},
        {{.clip_norm = NAN}, "clip_norm"},
        {{.clip_norm = INFINITY}, "clip_norm"},
        {{.clip_norm = -1}, "clip_norm"},
        {{.eps = 1e-39}, "eps"}, /* subnormal in f32, and so flushed: 0 / 0 */
        {{.eps = INFINITY}, "eps"},
        {{.kind = TOW_SGD, .momentum = NAN}, "momentum"},
        {{.b1 = NAN}, "b1"},
        {{.weight_decay = 1e39}, "weight_decay"},
        {{.learning_rate = {.peak_value = INFINITY}}, "learning_rate.peak_value in [-3.40282347e+38, 3.40282347e+38]"},
        {{.learning_rate = {.peak_value = 1e300}}, "learning_rate.peak_value"}, /* infinite in f32 */
        {{.learning_rate = {.peak_value = NAN}}, "learning_rate.peak_value"},
        {{.learning_rate = {.init_value = 1e39}}, "learning_rate.init_value"},
        {{.learning_rate = {.end_value = -1e39}}, "learning_rate.end_value"},
        {{.learning_rate = {.exponent = -1}}, "learning_rate.exponent"},
        {{.learning_rate = {.exponent = INFINITY}}, "learning_rate.exponent"},
        {{.learning_rate = {.kind = TOW_SCHEDULE_WARMUP_COSINE, .warmup_steps = 5, .decay_steps = 5}}, "decay_steps"},
        {{.learning_rate = {.kind = (tow_schedule_kind)7}}, "schedule"},
    };
    tow_dense model = TOW_DENSE(.features = 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_refused(f, TOW_MODULE(&model), 2, TOW_TRAIN_OPTIONS(.optimizer = cases[i].optimizer), cases[i].message);
    tow_train_state *s;
    assert_int_equal(tow_train_create(f->ctx, TOW_MODULE(&model), &TOW_TRAIN_OPTIONS(.n_inputs = 1), &s),
                     TOW_INVALID_ARGUMENT);
    assert_null(s);
    tow_activation_layer fixed = TOW_ACTIVATION(tow_tanh);
    assert_refused(f, TOW_MODULE(&fixed), 2, TOW_TRAIN_OPTIONS(), "no parameters");
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

typedef struct budget {
    long allowed, in_use;
} budget;

static void *limited(void *pointer, size_t old_size, size_t size, void *user)
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
    assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.allocator = {limited, &b}), &ctx), TOW_OK);
    noisy n;
    for (size_t micro = 1; micro <= 2; micro++) {
        training t = start(ctx, make_noisy(&n), 3, 2,
                           TOW_TRAIN_OPTIONS(.optimizer = usual, .model = &with_dropout, .evaluation = true,
                                             .micro_batches = micro,
                                             .average = micro > 1 ? &TOW_AVERAGE_OPTIONS(.decay = 0.9) : NULL,
                                             .check_finite = micro > 1, .skip_not_finite = micro - 1));
        double loss;
        b.allowed = 0;
        step(&t, 5);
        assert_int_equal(tow_train_evaluate(t.state, t.batch, &loss), TOW_OK);
        assert_int_equal(b.allowed, 0);
        b.allowed = 1000000;
        stop(&t);
    }
    tow_context_free(ctx);
    assert_int_equal(b.in_use, 0);
}

/* Creating, saving and loading with ever more allocations allowed, until all succeeds: a status each time, and no
 * leak. */
static void allocations_fail_in_turn(void **state)
{
    fixture *f = *state;
    budget b = {.allowed = 1000000};
    tow_context *ctx;
    assert_int_equal(tow_context_create(&TOW_CONTEXT_OPTIONS(.allocator = {limited, &b}, .threads = 1), &ctx), TOW_OK);
    noisy n;
    const tow_module *model = make_noisy(&n);
    tow_type types[2] = {tow_make_type(TOW_F32, 2, (int64_t[]){4, 3}), tow_make_type(TOW_F32, 2, (int64_t[]){4, 2})};
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = usual, .n_inputs = 1, .input_types = &types[0], .n_extra = 1,
                          .extra_types = &types[1], .loss = mean_squared_error, .evaluation = true, .micro_batches = 2,
                          .average = &TOW_AVERAGE_OPTIONS(.decay = 0.9), .check_finite = true, .skip_not_finite = 1,
                          .model = &with_dropout);
    tow_train_state *first; /* after which the context has what it keeps of traces */
    assert_int_equal(tow_train_create(ctx, model, &options, &first), TOW_OK);
    tow_train_free(first);
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
    tow_context_free(ctx);
    assert_int_equal(b.in_use, 0);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
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

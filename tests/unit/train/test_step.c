/* Tests what options do to a step: micro-batches, averages, updates that are left out, other batch sizes, aux values,
 * the learning rate.
 * Tests step.c, programs.c, checkpoint.c, state.c, step*.c. */
#include "src/train/state.h"
#include "tests/unit/support/training.h"

enum {
    BATCH = 8,
    FEATURES = 3
};

/* ---- a batch of whole numbers, whose sums are exact -------------------------------------------------------------- */

static tow_array *whole_numbers(tow_context *ctx, int64_t rows, int64_t columns, int seed)
{
    tow_array *array = NULL;
    assert_int_equal(tow_array_create(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){rows, columns}), &array), TOW_OK);
    float *data = tow_array_data(array);
    for (int64_t i = 0; i < rows * columns; i++) data[i] = (float)((i * 7 + seed) % 5 - 2);
    return array;
}

typedef struct problem {
    tow_train_state *state;
    tow_array *batch[2];
} problem;

static void error_and_outputs(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss,
                              tow_value *aux, void *user)
{
    mean_squared_error(trace, out, extra, loss, aux, user);
    if (!aux) return;
    aux[0] = out[0];
    aux[1] = tow_reduce_sum(extra[0], 0, NULL);
}

static problem make(tow_context *ctx, const tow_module *model, int64_t rows, tow_train_options options)
{
    problem p = {.batch = {whole_numbers(ctx, rows, FEATURES, 1), whole_numbers(ctx, rows, 2, 3)}};
    const tow_type types[2] = {tow_array_type(p.batch[0]), tow_array_type(p.batch[1])};
    options.n_inputs = options.n_extra = 1;
    options.input_types = &types[0];
    options.extra_types = &types[1];
    options.loss = error_and_outputs;
    if (tow_train_create(ctx, model, &options, &p.state) != TOW_OK) fail_msg("%s", tow_context_error(ctx));
    return p;
}

static void drop(problem *p)
{
    tow_train_free(p->state);
    tow_array_release(p->batch[0]);
    tow_array_release(p->batch[1]);
}

static void set_to_zero(tow_params *params)
{
    for (size_t i = 0; i < tow_params_count(params); i++) {
        tow_array *x = tow_params_array(params, i);
        memset(tow_array_data(x), 0, tow_type_bytes(tow_array_type(x)));
    }
}

static void assert_equal_params(const tow_params *a, const tow_params *b)
{
    assert_int_equal(tow_params_count(a), tow_params_count(b));
    for (size_t i = 0; i < tow_params_count(a); i++) {
        const tow_array *x = tow_params_array(a, i), *y = tow_params_array(b, i);
        if (memcmp(tow_array_data(x), tow_array_data(y), tow_type_bytes(tow_array_type(x))) != 0)
            fail_msg("%s differs", tow_params_path(a, i));
    }
}

static const tow_standard_optimizer half = {.kind = TOW_SGD, .learning_rate = {.peak_value = 0.5}};

/* ---- micro-batches ----------------------------------------------------------------------------------------------- */

/* Sums of whole numbers are exact, and sizes are powers of two: the same bits. */
static void micro_batches_are_the_large_batch(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_dense model = TOW_DENSE(.features = 2);
    for (size_t n = 1; n <= BATCH; n *= 2) {
        problem whole = make(f->ctx, TOW_MODULE(&model), BATCH, TOW_TRAIN_OPTIONS(.optimizer = half));
        problem cut = make(f->ctx, TOW_MODULE(&model), BATCH, TOW_TRAIN_OPTIONS(.optimizer = half, .micro_batches = n));
        set_to_zero(tow_train_params(whole.state));
        set_to_zero(tow_train_params(cut.state));
        for (int i = 0; i < 2; i++) {
            double a, b;
            assert_int_equal(tow_train_step(whole.state, whole.batch, &a), TOW_OK);
            assert_int_equal(tow_train_step(cut.state, cut.batch, &b), TOW_OK);
            assert_true(a == b);
            assert_equal_params(tow_train_params(whole.state), tow_train_params(cut.state));
        }
        assert_int_equal(tow_train_step_count(cut.state), 2);
        drop(&whole);
        drop(&cut);
    }
}

/* If sums are rounded, the mean of three means is near the mean of all. */
static void rounded_sums_are_near(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_mlp model = TOW_MLP(.features = {16, 2});
    const tow_standard_optimizer adamw = {.learning_rate = {.peak_value = 0.01}, .clip_norm = 0.1};
    problem whole = make(f->ctx, TOW_MODULE(&model), 12, TOW_TRAIN_OPTIONS(.optimizer = adamw, .seed = 3));
    problem cut =
        make(f->ctx, TOW_MODULE(&model), 12, TOW_TRAIN_OPTIONS(.optimizer = adamw, .seed = 3, .micro_batches = 3));
    for (int i = 0; i < STEPS; i++) {
        double a, b;
        assert_int_equal(tow_train_step(whole.state, whole.batch, &a), TOW_OK);
        assert_int_equal(tow_train_step(cut.state, cut.batch, &b), TOW_OK);
        assert_true(fabs(a - b) <= 1e-5 * fabs(a)); /* a few roundings per step, amplified by Adam */
    }
    drop(&whole);
    drop(&cut);
}

/* The arena is that of a batch of a fourth, and one set of sums of gradients comes on top. */
static void memory_is_that_of_a_micro_batch(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_mlp model = TOW_MLP(.features = {64, 2});
    problem small = make(f->ctx, TOW_MODULE(&model), 64, TOW_TRAIN_OPTIONS(.optimizer = half));
    problem cut = make(f->ctx, TOW_MODULE(&model), 256, TOW_TRAIN_OPTIONS(.optimizer = half, .micro_batches = 4));
    const tow_train_bytes a = tow_train_get_bytes(small.state), b = tow_train_get_bytes(cut.state);
    assert_int_equal(a.residuals, b.residuals);
    assert_true(b.total - b.batch <= a.total - a.batch + a.parameters + 4096);
    drop(&small);
    drop(&cut);
}

/* Two micro-batches with dropout: parameters after a step are the mean of two steps' gradients with the keys of the
 * parts, and resuming draws the same masks. */
static void micro_batches_resume(void **fixture_)
{
    const fixture *f = *fixture_;
    noisy model;
    const tow_module *module = make_noisy(&model);
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = usual, .seed = 5, .micro_batches = 4, .model = &with_dropout,
                          .average = &TOW_AVERAGE_OPTIONS(.decay = 0.5));
    problem a = make(f->ctx, module, BATCH, options), b = make(f->ctx, module, BATCH, options);
    double loss, first, second;
    for (int i = 0; i < 3; i++) assert_int_equal(tow_train_step(a.state, a.batch, &loss), TOW_OK);
    assert_int_equal(tow_train_save(a.state, f->a), TOW_OK);
    assert_int_equal(tow_train_load(b.state, f->a), TOW_OK);
    assert_int_equal(tow_train_step(a.state, a.batch, &first), TOW_OK);
    assert_int_equal(tow_train_step(b.state, b.batch, &second), TOW_OK);
    assert_true(first == second);
    assert_equal_params(tow_train_params(a.state), tow_train_params(b.state));
    assert_equal_params(tow_train_averages(a.state), tow_train_averages(b.state));
    drop(&a);
    drop(&b);
}

/* Another number of row groups would go on with other bits, and is refused unless it is wished for. */
static void row_groups_resume(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_dense model = TOW_DENSE(.features = 2);
    const tow_train_options groups = TOW_TRAIN_OPTIONS(.optimizer = half, .row_groups = 4);
    problem a = make(f->ctx, TOW_MODULE(&model), BATCH, groups),
            other = make(f->ctx, TOW_MODULE(&model), BATCH, TOW_TRAIN_OPTIONS(.optimizer = half)),
            any = make(f->ctx, TOW_MODULE(&model), BATCH,
                       TOW_TRAIN_OPTIONS(.optimizer = half, .row_groups = 2, .other_row_groups = true));
    size_t found = 0;
    double loss;
    assert_int_equal(tow_train_step(a.state, a.batch, &loss), TOW_OK);
    assert_int_equal(tow_train_save(a.state, f->a), TOW_OK);
    assert_int_equal(tow_train_saved_row_groups(f->ctx, f->a, &found), TOW_OK);
    assert_int_equal(found, 4);
    assert_int_equal(tow_train_load(a.state, f->a), TOW_OK);
    assert_int_equal(tow_train_load(other.state, f->a), TOW_BAD_FORMAT);
    assert_message(f, "trained with .row_groups = 1, found 4");
    assert_int_equal(tow_train_step_count(other.state), 0);
    assert_int_equal(tow_train_load(any.state, f->a), TOW_OK);
    assert_equal_params(tow_train_params(a.state), tow_train_params(any.state));
    tow_tensors *tensors;
    assert_int_equal(tow_safetensors_read(f->ctx, f->a, &tensors), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata(tensors, "row_groups", "many"), TOW_OK);
    assert_int_equal(tow_safetensors_write(f->b, tensors), TOW_OK);
    assert_int_equal(tow_train_load(any.state, f->b), TOW_BAD_FORMAT);
    assert_int_equal(tow_train_saved_row_groups(f->ctx, f->b, &found), TOW_BAD_FORMAT);
    assert_message(f, "expected a number as metadata 'row_groups', found 'many'");
    tow_tensors_free(tensors);
    assert_int_equal(tow_train_saved_row_groups(f->ctx, NULL, &found), TOW_INVALID_ARGUMENT);
    drop(&a);
    drop(&other);
    drop(&any);
}

/* The table is not cut; a batch that three does not divide is refused. */
static void whole_inputs(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_dense model = TOW_DENSE(.features = 2);
    const bool whole[] = {false, true};
    tow_array *x = whole_numbers(f->ctx, 4, FEATURES, 1), *y = whole_numbers(f->ctx, 2, 2, 3);
    const tow_type types[2] = {tow_array_type(x), tow_array_type(y)};
    tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = half, .micro_batches = 2, .n_inputs = 1, .input_types = &types[0], .n_extra = 1,
                          .extra_types = &types[1], .loss = mean_squared_error, .whole_inputs = whole);
    tow_train_state *s;
    double loss;
    assert_int_equal(tow_train_create(f->ctx, TOW_MODULE(&model), &options, &s), TOW_OK);
    assert_int_equal(tow_train_step(s, (tow_array *[]){x, y}, &loss), TOW_OK);
    tow_train_free(s);
    options.micro_batches = 3;
    assert_int_equal(tow_train_create(f->ctx, TOW_MODULE(&model), &options, &s), TOW_INVALID_ARGUMENT);
    assert_message(f, "input 0: expected an axis 0 that .micro_batches = 3 divides, found f32[4,3]");
    tow_array_release(x);
    tow_array_release(y);
}

/* ---- averages ---------------------------------------------------------------------------------------------------- */

static void evaluation_with_averages(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_dense model = TOW_DENSE(.features = 2);
    const tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = half, .evaluation = true,
                                                        .average = &TOW_AVERAGE_OPTIONS(.decay = 0.5, .debias = true));
    problem a = make(f->ctx, TOW_MODULE(&model), BATCH, options), b = make(f->ctx, TOW_MODULE(&model), BATCH, options);
    double loss, with_average, with_params;
    for (int i = 0; i < 3; i++) assert_int_equal(tow_train_step(a.state, a.batch, &loss), TOW_OK);
    assert_int_equal(tow_train_evaluate_average(a.state, a.batch, &with_average), TOW_OK);
    for (size_t i = 0; i < tow_params_count(tow_train_params(b.state)); i++) {
        tow_array *to = tow_params_array(tow_train_params(b.state), i);
        memcpy(tow_array_data(to), tow_array_data(tow_params_array(tow_train_averages(a.state), i)),
               tow_type_bytes(tow_array_type(to)));
    }
    assert_int_equal(tow_train_evaluate(b.state, b.batch, &with_params), TOW_OK);
    assert_true(with_average == with_params);
    assert_int_equal(tow_train_evaluate(a.state, a.batch, &with_params), TOW_OK);
    assert_true(with_average != with_params);
    drop(&b);
    b = make(f->ctx, TOW_MODULE(&model), BATCH, TOW_TRAIN_OPTIONS(.optimizer = half));
    assert_null(tow_train_averages(b.state));
    assert_int_equal(tow_train_evaluate_average(b.state, b.batch, &loss), TOW_INVALID_ARGUMENT);
    assert_message(f, "set .average");
    drop(&a);
    drop(&b);
}

/* Files with averages and without are read by states with averages and without. */
static void averages_in_checkpoints(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_dense model = TOW_DENSE(.features = 2);
    const tow_train_options plain = TOW_TRAIN_OPTIONS(.optimizer = half),
                            averaged =
                                TOW_TRAIN_OPTIONS(.optimizer = half, .average = &TOW_AVERAGE_OPTIONS(.decay = 0.5));
    problem a = make(f->ctx, TOW_MODULE(&model), BATCH, averaged), b = make(f->ctx, TOW_MODULE(&model), BATCH, plain);
    double loss;
    for (int i = 0; i < 3; i++) assert_int_equal(tow_train_step(a.state, a.batch, &loss), TOW_OK);
    assert_int_equal(tow_train_save(a.state, f->a), TOW_OK);
    assert_int_equal(tow_train_load(b.state, f->a), TOW_OK);
    assert_equal_params(tow_train_params(a.state), tow_train_params(b.state));
    assert_int_equal(tow_train_save(b.state, f->b), TOW_OK);
    assert_int_equal(tow_train_load(a.state, f->b), TOW_OK);
    assert_equal_params(tow_train_params(a.state), tow_train_averages(a.state)); /* they begin again */
    drop(&a);
    drop(&b);
}

/* ---- not finite -------------------------------------------------------------------------------------------------- */

static void assert_unchanged(const fixture *f, const problem *p)
{
    assert_int_equal(tow_train_save(p->state, f->b), TOW_OK);
    assert_equal_files(f->a, f->b);
}

static void refused_step_changes_nothing(void **fixture_)
{
    const fixture *f = *fixture_;
    noisy model;
    for (size_t micro = 1; micro <= 4; micro *= 2) {
        problem p = make(f->ctx, make_noisy(&model), BATCH,
                         TOW_TRAIN_OPTIONS(.optimizer = usual, .check_finite = true, .micro_batches = micro,
                                           .average = &TOW_AVERAGE_OPTIONS(.decay = 0.9), .model = &with_dropout));
        double loss;
        assert_int_equal(tow_train_step(p.state, p.batch, &loss), TOW_OK);
        assert_true(tow_train_gradient_norm(p.state) > 0);
        assert_int_equal(tow_train_save(p.state, f->a), TOW_OK);
        float *label = (float *)tow_array_data(p.batch[1]) + 2 * BATCH - 1; /* in the last part */
        const float kept = *label;
        *label = NAN;
        assert_int_equal(tow_train_step(p.state, p.batch, &loss), TOW_CHECK_FAILED);
        assert_message(f, "step 2: the loss is nan, and gradients are not finite: input ");
        assert_message(f, "holds NaN already");
        assert_unchanged(f, &p);
        *label = kept;
        assert_int_equal(tow_train_step(p.state, p.batch, &loss), TOW_OK);
        assert_int_equal(tow_train_step_count(p.state), 2);
        drop(&p);
    }
}

static void skipped_steps(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_dense model = TOW_DENSE(.features = 2);
    problem p = make(f->ctx, TOW_MODULE(&model), BATCH, TOW_TRAIN_OPTIONS(.optimizer = usual, .skip_not_finite = 2));
    double loss;
    int64_t in_a_row;
    assert_int_equal(tow_train_step(p.state, p.batch, &loss), TOW_OK);
    float *label = tow_array_data(p.batch[1]);
    const float kept = *label;
    *label = INFINITY;
    for (int i = 0; i < 2; i++) assert_int_equal(tow_train_step(p.state, p.batch, &loss), TOW_OK);
    assert_true(isinf(loss));
    assert_int_equal(tow_train_step_count(p.state), 1);
    assert_int_equal(tow_optimizer_skipped_count(tow_train_optimizer(p.state), &in_a_row), 2);
    assert_int_equal(in_a_row, 2);
    assert_int_equal(tow_train_save(p.state, f->a), TOW_OK); /* the count is saved */
    problem q = make(f->ctx, TOW_MODULE(&model), BATCH, TOW_TRAIN_OPTIONS(.optimizer = usual, .skip_not_finite = 2));
    assert_int_equal(tow_train_load(q.state, f->a), TOW_OK);
    *label = kept;
    assert_int_equal(tow_train_step(p.state, p.batch, &loss), TOW_OK);
    assert_int_equal(tow_train_step_count(p.state), 2);
    assert_int_equal(tow_optimizer_skipped_count(tow_train_optimizer(p.state), &in_a_row), 2);
    assert_int_equal(in_a_row, 0);
    *label = INFINITY;
    assert_int_equal(tow_train_step(q.state, p.batch, &loss), TOW_OK); /* the third in a row is made */
    assert_int_equal(tow_train_step_count(q.state), 2);
    drop(&p);
    drop(&q);
}

/* With both: two are left out, the third in a row is refused and says why. */
static void skipped_and_then_refused(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_dense model = TOW_DENSE(.features = 2);
    for (size_t micro = 1; micro <= 2; micro++) {
        problem p = make(
            f->ctx, TOW_MODULE(&model), BATCH,
            TOW_TRAIN_OPTIONS(.optimizer = usual, .skip_not_finite = 2, .check_finite = true, .micro_batches = micro));
        double loss;
        assert_int_equal(tow_train_step(p.state, p.batch, &loss), TOW_OK);
        *(float *)tow_array_data(p.batch[1]) = NAN;
        for (int i = 0; i < 2; i++) assert_int_equal(tow_train_step(p.state, p.batch, &loss), TOW_OK);
        assert_int_equal(tow_train_save(p.state, f->a), TOW_OK);
        assert_int_equal(tow_train_step(p.state, p.batch, &loss), TOW_CHECK_FAILED);
        assert_message(f, "step 2: the loss is nan");
        assert_unchanged(f, &p);
        assert_int_equal(tow_train_step_count(p.state), 1);
        drop(&p);
    }
}

/* ---- files of older versions ------------------------------------------------------------------------------------- */

/* The number of row groups is all that the first file has, and the old one has not. */
static void expect_row_groups_alone(const fixture *f, const char *path, const char *old)
{
    tow_tensors *tensors;
    size_t found = 9;
    assert_int_equal(tow_train_saved_row_groups(f->ctx, old, &found), TOW_OK);
    assert_int_equal(found, 0);
    assert_int_equal(tow_safetensors_read(f->ctx, old, &tensors), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata(tensors, "row_groups", "1"), TOW_OK);
    assert_int_equal(tow_safetensors_write(f->b, tensors), TOW_OK);
    tow_tensors_free(tensors);
    assert_equal_files(path, f->b);
}

/* A file of the first format, without averages, counts and the number of row groups, that a state of three steps
 * wrote: it still loads, also where averages are wanted, and the run goes on with the same bits. */
static void old_files_load(void **fixture_)
{
    const fixture *f = *fixture_;
    static const char path[] = TOW_TEST_DATA "/unit/train/state_of_three_steps.safetensors";
    tow_dense model = TOW_DENSE(.features = 2);
    for (int averaged = 0; averaged < 2; averaged++) {
        const tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = usual, .seed = 11),
                                wanted =
                                    TOW_TRAIN_OPTIONS(.optimizer = usual, .seed = 11,
                                                      .average = averaged ? &TOW_AVERAGE_OPTIONS(.decay = 0.5) : NULL);
        problem fresh = make(f->ctx, TOW_MODULE(&model), BATCH, options),
                loaded = make(f->ctx, TOW_MODULE(&model), BATCH, wanted);
        double a, b;
        for (int i = 0; i < 3; i++) assert_int_equal(tow_train_step(fresh.state, fresh.batch, &a), TOW_OK);
        tow_train_set_data_position(fresh.state, 3 * BATCH);
        if (tow_train_load(loaded.state, path) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
        assert_int_equal(tow_train_step_count(loaded.state), 3);
        assert_int_equal(tow_train_data_position(loaded.state), 3 * BATCH);
        assert_equal_params(tow_train_params(fresh.state), tow_train_params(loaded.state));
        assert_int_equal(tow_train_save(fresh.state, f->a), TOW_OK);
        expect_row_groups_alone(f, f->a, path);
        assert_int_equal(tow_train_step(fresh.state, fresh.batch, &a), TOW_OK);
        assert_int_equal(tow_train_step(loaded.state, loaded.batch, &b), TOW_OK);
        assert_true(a == b);
        assert_equal_params(tow_train_params(fresh.state), tow_train_params(loaded.state));
        drop(&fresh);
        drop(&loaded);
    }
}

/* ---- other sizes ------------------------------------------------------------------------------------------------- */

static void other_sizes_share_parameters(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_dense model = TOW_DENSE(.features = 2);
    const tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = usual, .evaluation = true, .other_shapes = 2);
    const int64_t sizes[] = {8, 5, 8, 1, 3, 5, 0, 8};
    problem p = make(f->ctx, TOW_MODULE(&model), 8, options);
    tow_train_options alone = options;
    alone.other_shapes = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        problem q = make(f->ctx, TOW_MODULE(&model), sizes[i], alone);
        double a, b;
        assert_int_equal(tow_train_save(p.state, f->a), TOW_OK);
        assert_int_equal(tow_train_load(q.state, f->a), TOW_OK);
        assert_int_equal(tow_train_evaluate(p.state, q.batch, &a), TOW_OK);
        assert_int_equal(tow_train_evaluate(q.state, q.batch, &b), TOW_OK);
        assert_memory_equal(&a, &b, sizeof a);
        if (sizes[i] > 0) {
            assert_int_equal(tow_train_step(p.state, q.batch, &a), TOW_OK);
            assert_int_equal(tow_train_step(q.state, q.batch, &b), TOW_OK);
            assert_true(a == b);
            assert_equal_params(tow_train_params(p.state), tow_train_params(q.state));
        }
        drop(&q);
    }
    problem other = make(f->ctx, TOW_MODULE(&model), 5, alone);
    double loss;
    assert_int_equal(tow_train_step(other.state, p.batch, &loss), TOW_TYPE_MISMATCH);
    assert_message(
        f, "input 0: expected f32[5,3], found f32[8,3]; pass an array of the expected type, or set .other_shapes");
    drop(&other);
    tow_array *transposed = whole_numbers(f->ctx, 8, 2, 1);
    assert_int_equal(tow_train_step(p.state, (tow_array *[]){transposed, p.batch[1]}, &loss), TOW_SHAPE_MISMATCH);
    assert_int_equal(tow_train_step(p.state, p.batch, &loss), TOW_OK);
    tow_array_release(transposed);
    drop(&p);
}

/* A step within a memory limit, and the number of plans that the state has made so far. */
static uint64_t step_within(problem *p, tow_context *ctx, int64_t rows)
{
    tow_array *batch[] = {whole_numbers(ctx, rows, FEATURES, 1), whole_numbers(ctx, rows, 2, 3)};
    double loss;
    assert_int_equal(tow_train_step(p->state, batch, &loss), TOW_OK);
    tow_array_release(batch[0]);
    tow_array_release(batch[1]);
    return p->state->frontiers.plans;
}

/* A size whose program has gone is compiled again without another search, into the same plan, in whatever order sizes
 * come: after equal steps the parameters have the same bits as without a limit. */
static void sizes_are_searched_once(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_dense model = TOW_DENSE(.features = 2);
    tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = usual, .other_shapes = 1);
    problem plain = make(f->ctx, TOW_MODULE(&model), 8, options);
    options.memory_limit = SIZE_MAX;
    problem p = make(f->ctx, TOW_MODULE(&model), 8, options);
    uint64_t plans = p.state->frontiers.plans;
    assert_true(plans > 0);
    for (int64_t rows = 8; rows >= 5; rows--) { /* programs of two sizes are kept */
        const uint64_t now = step_within(&p, f->ctx, rows);
        assert_int_equal(now > plans, rows < 8);
        plans = now;
        step_within(&plain, f->ctx, rows);
    }
    for (int64_t rows = 5; rows <= 8; rows++) {
        assert_int_equal(step_within(&p, f->ctx, rows), plans);
        step_within(&plain, f->ctx, rows);
    }
    assert_int_equal(step_within(&plain, f->ctx, 8), 0);
    step_within(&p, f->ctx, 8);
    assert_equal_params(tow_train_params(p.state), tow_train_params(plain.state));
    assert_int_equal(tow_program_cache_made_count(p.state->steps), 1 + 3 + 2 + 0 + 0);
    drop(&p);
    drop(&plain);
}

/* ---- aux values, the learning rate ------------------------------------------------------------------------------- */

static void aux_values(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_dense model = TOW_DENSE(.features = 2);
    for (size_t n = 1; n <= 2; n++) {
        problem p = make(f->ctx, TOW_MODULE(&model), BATCH,
                         TOW_TRAIN_OPTIONS(.optimizer = half, .n_aux = 2, .micro_batches = n, .evaluation = true));
        double loss, sum = 0, error = 0;
        assert_null(tow_train_aux(p.state, 0));
        assert_int_equal(tow_train_step(p.state, p.batch, &loss), TOW_OK);
        const float *labels = tow_array_data(p.batch[1]), *out = tow_array_data(tow_train_aux(p.state, 0));
        const float *sums = tow_array_data(tow_train_aux(p.state, 1));
        assert_int_equal(tow_array_type(tow_train_aux(p.state, 0)).rank, n == 1 ? 2 : 3);
        assert_int_equal(tow_array_type(tow_train_aux(p.state, 1)).rank, n == 1 ? 0 : 1);
        for (int i = 0; i < 2 * BATCH; i++) {
            sum += labels[i];
            error += ((double)out[i] - labels[i]) * ((double)out[i] - labels[i]) / (2 * BATCH);
        }
        assert_true((double)sums[0] + (n == 1 ? 0 : (double)sums[1]) == sum);
        assert_true(fabs(error - loss) <= 1e-6 * error);
        assert_null(tow_train_aux(p.state, 2));
        const float before = out[0];
        assert_int_equal(tow_train_evaluate(p.state, p.batch, &loss), TOW_OK);
        assert_true(((const float *)tow_array_data(tow_train_aux(p.state, 0)))[0] != before);
        drop(&p);
    }
}

static void learning_rate_is_set(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_dense model = TOW_DENSE(.features = 2);
    const tow_scale_by_learning_rate of_kernel = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(0.5)),
                                     of_others = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(0.25));
    const tow_partition_rule rules[] = {{"kernel", TOW_GRADIENT_TRANSFORM(&of_kernel)},
                                        {"**", TOW_GRADIENT_TRANSFORM(&of_others)}};
    const tow_partition both = TOW_PARTITION(.rules = rules, .n = 2);
    const tow_scale scale = TOW_SCALE(.factor = -0.5);
    problem p = make(f->ctx, TOW_MODULE(&model), BATCH, TOW_TRAIN_OPTIONS(.transform = TOW_GRADIENT_TRANSFORM(&both)));
    double loss;
    assert_true(tow_train_learning_rate(p.state) == 0.5);
    assert_int_equal(tow_train_save(p.state, f->a), TOW_OK);
    assert_int_equal(tow_train_set_learning_rate(p.state, 0), TOW_OK);
    assert_true(tow_train_learning_rate(p.state) == 0);
    set_to_zero(tow_train_params(p.state));
    assert_int_equal(tow_train_step(p.state, p.batch, &loss), TOW_OK);
    for (size_t i = 0; i < 2; i++)
        assert_true(*(const float *)tow_array_data(tow_params_array(tow_train_params(p.state), i)) == 0);
    assert_int_equal(tow_train_set_learning_rate(p.state, NAN), TOW_OK);
    assert_true(tow_train_learning_rate(p.state) == 0.5);
    drop(&p);
    p = make(f->ctx, TOW_MODULE(&model), BATCH, TOW_TRAIN_OPTIONS(.transform = TOW_GRADIENT_TRANSFORM(&scale)));
    assert_int_equal(tow_train_set_learning_rate(p.state, 1), TOW_NOT_FOUND);
    assert_true(isnan(tow_train_learning_rate(p.state)));
    drop(&p);
}

/* ---- early updates ----------------------------------------------------------------------------------------------- */

/* The wish for early updates goes with everything, also with what needs all gradients, and changes no bits. */
static void early_updates_go_with_everything(void **fixture_)
{
    const fixture *f = *fixture_;
    static const tow_average_options average = TOW_AVERAGE_OPTIONS(.decay = 0.9);
    static const tow_train_options all[] = {
        TOW_TRAIN_OPTIONS(.micro_batches = 2),
        TOW_TRAIN_OPTIONS(.check_finite = true),
        TOW_TRAIN_OPTIONS(.skip_not_finite = 1),
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = {.peak_value = 0.01}, .clip_norm = 0.5}),
        TOW_TRAIN_OPTIONS(.average = &average, .optimizer = {.learning_rate = {.peak_value = 0.01}}),
    };
    tow_mlp model = TOW_MLP(.features = {16, 2});
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tow_train_options options = all[i];
        if (options.optimizer.learning_rate.peak_value == 0) options.optimizer = half;
        problem late = make(f->ctx, TOW_MODULE(&model), BATCH, options);
        options.early_update = true;
        problem early = make(f->ctx, TOW_MODULE(&model), BATCH, options);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(tow_train_step(late.state, late.batch, NULL), TOW_OK);
            assert_int_equal(tow_train_step(early.state, early.batch, NULL), TOW_OK);
        }
        assert_int_equal(tow_train_save(late.state, f->a), TOW_OK);
        assert_int_equal(tow_train_save(early.state, f->b), TOW_OK);
        assert_equal_files(f->a, f->b);
        assert_true(tow_train_get_bytes(early.state).total <= tow_train_get_bytes(late.state).total);
        drop(&late);
        drop(&early);
    }
}

static void averages_out_of_range(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_dense model = TOW_DENSE(.features = 2);
    assert_refused(f, TOW_MODULE(&model), 2,
                   TOW_TRAIN_OPTIONS(.optimizer = half, .average = &TOW_AVERAGE_OPTIONS(.decay = 2)),
                   "expected .decay between 0 and 1, found 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(micro_batches_are_the_large_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(rounded_sums_are_near, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_is_that_of_a_micro_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(micro_batches_resume, setup, teardown),
        cmocka_unit_test_setup_teardown(row_groups_resume, setup, teardown),
        cmocka_unit_test_setup_teardown(whole_inputs, setup, teardown),
        cmocka_unit_test_setup_teardown(evaluation_with_averages, setup, teardown),
        cmocka_unit_test_setup_teardown(averages_in_checkpoints, setup, teardown),
        cmocka_unit_test_setup_teardown(refused_step_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(skipped_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(skipped_and_then_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(old_files_load, setup, teardown),
        cmocka_unit_test_setup_teardown(other_sizes_share_parameters, setup, teardown),
        cmocka_unit_test_setup_teardown(sizes_are_searched_once, setup, teardown),
        cmocka_unit_test_setup_teardown(aux_values, setup, teardown),
        cmocka_unit_test_setup_teardown(learning_rate_is_set, setup, teardown),
        cmocka_unit_test_setup_teardown(early_updates_go_with_everything, setup, teardown),
        cmocka_unit_test_setup_teardown(averages_out_of_range, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Dynamic loss scaling: the bits of training without it where nothing is too small or too large, gradients of f16 that
 * would be zeros, scales that follow what is finite, and checkpoints.
 * Tests loss_scale.c. */
#include "tests/unit/support/training.h"

/* ---- models ------------------------------------------------------------------------------------------------------ */

typedef struct model {
    tow_dense in, out;
    tow_activation_layer activation;
    tow_sequential sequential;
    const tow_module *layers[3];
    tow_precision precision;
} model;

static void make_model(model *m, tow_dtype dtype)
{
    m->in = TOW_DENSE(.features = 8);
    m->out = TOW_DENSE(.features = 3);
    m->activation = TOW_ACTIVATION(tow_tanh);
    m->layers[0] = TOW_MODULE(&m->in), m->layers[1] = TOW_MODULE(&m->activation), m->layers[2] = TOW_MODULE(&m->out);
    m->sequential = TOW_SEQUENTIAL_OF(m->layers);
    m->precision = TOW_PRECISION(&m->sequential, .dtype = dtype, .param_dtype = dtype, .output_dtype = TOW_F32);
}

static tow_train_options usual_options(void)
{
    const tow_standard_optimizer adamw = {
        .kind = TOW_ADAMW, .learning_rate = tow_schedule_constant(0.01), .weight_decay = 0.1, .clip_norm = 1};
    return TOW_TRAIN_OPTIONS(.optimizer = adamw, .seed = 3);
}

static void assert_equal_params(const tow_train_state *a, const tow_train_state *b)
{
    const tow_params *p = tow_train_params((tow_train_state *)(uintptr_t)a),
                     *q = tow_train_params((tow_train_state *)(uintptr_t)b);
    for (size_t i = 0; i < tow_params_count(p); i++)
        assert_memory_equal(tow_array_data(tow_params_array(p, i)), tow_array_data(tow_params_array(q, i)),
                            tow_type_bytes(tow_array_type(tow_params_array(p, i))));
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* A power of two changes the exponents of gradients alone. */
static void bits_stay(void **state)
{
    const fixture *f = *state;
    for (size_t parts = 1; parts <= 2; parts++) {
        model m;
        make_model(&m, TOW_F32);
        tow_train_options options = usual_options();
        options.micro_batches = parts;
        training plain = start(f->ctx, TOW_MODULE(&m.precision), 5, 3, options);
        options.loss_scale = 0x1p20;
        options.loss_scale_period = 2;
        training scaled = start(f->ctx, TOW_MODULE(&m.precision), 5, 3, options);
        for (int i = 0; i < 5; i++) {
            double a, b;
            assert_int_equal(tow_train_step(plain.state, plain.batch, &a), TOW_OK);
            assert_int_equal(tow_train_step(scaled.state, scaled.batch, &b), TOW_OK);
            assert_true(a == b);
        }
        assert_true(tow_optimizer_number(tow_train_optimizer(scaled.state), "loss_scale/scale") == 0x1p22);
        assert_equal_params(plain.state, scaled.state);
        stop(&plain);
        stop(&scaled);
    }
}

static void tiny_loss(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                      void *user)
{
    mean_squared_error(trace, out, extra, loss, aux, user);
    *loss = tow_mul_scalar(*loss, 0x1p-26);
}

/* Gradients below 2^-25 are zeros in f16, and nothing moves; scaled ones move every kernel. The large rate of SGD makes
 * up for the small loss. */
static void small_gradients_count(void **state)
{
    const fixture *f = *state;
    const tow_standard_optimizer sgd = {.kind = TOW_SGD, .learning_rate = tow_schedule_constant(0x1p20)};
    for (int scaled = 0; scaled < 2; scaled++) {
        model m;
        make_model(&m, TOW_F16);
        tow_type types[2] = {tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, 5}),
                             tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, 3})};
        tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = sgd, .n_inputs = 1, .input_types = types,
                                                      .n_extra = 1, .extra_types = types + 1, .loss = tiny_loss,
                                                      .master = true, .loss_scale = scaled ? 0x1p20 : 0);
        tow_train_state *s, *before;
        tow_array *batch[2] = {exact_fractions(f->ctx, ROWS, 5), exact_fractions(f->ctx, ROWS, 3)};
        assert_int_equal(tow_train_create(f->ctx, TOW_MODULE(&m.precision), &options, &s), TOW_OK);
        assert_int_equal(tow_train_create(f->ctx, TOW_MODULE(&m.precision), &options, &before), TOW_OK);
        assert_int_equal(tow_train_step(s, batch, NULL), TOW_OK);
        for (size_t i = 0; i < tow_params_count(tow_train_params(s)); i++) {
            tow_array *p = tow_params_array(tow_train_params(s), i), *q = tow_params_array(tow_train_params(before), i);
            const bool same = memcmp(tow_array_data(p), tow_array_data(q), tow_type_bytes(tow_array_type(p))) == 0;
            assert_true(same == !scaled);
        }
        tow_train_free(s);
        tow_train_free(before);
        tow_array_release(batch[0]);
        tow_array_release(batch[1]);
    }
}

/* Scales after updates that are finite (+), infinite (i) or not a number (n), with a period of 3. None of the latter is
 * made, however many there are in a row. */
static void follow_scales(const fixture *f, size_t skip_not_finite)
{
    static const char updates[] = "+++++i++n+++iiiii+";
    static const double scales[] = {4, 4, 8, 8, 8, 4, 4, 4, 2, 2, 2, 4, 2, 1, 1, 1, 1, 1};
    const tow_type type = tow_make_type(TOW_F16, 1, (int64_t[]){2});
    const char *const path = "w";
    tow_array *w, *g;
    tow_params *params;
    tow_optimizer_state *o;
    tow_scale minus = TOW_SCALE(.factor = -1);
    double expected = 0;
    assert_int_equal(tow_array_create(f->ctx, type, &w), TOW_OK);
    assert_int_equal(tow_array_create(f->ctx, type, &g), TOW_OK);
    memset(tow_array_data(w), 0, tow_type_bytes(type));
    assert_int_equal(tow_params_from_arrays(f->ctx, 1, &path, &w, &params), TOW_OK);
    const tow_optimizer_options options =
        TOW_OPTIMIZER_OPTIONS(.loss_scale = 4, .loss_scale_period = 3, .skip_not_finite = skip_not_finite);
    assert_int_equal(tow_optimizer_create(f->ctx, TOW_GRADIENT_TRANSFORM(&minus), params, &options, &o), TOW_OK);
    for (size_t i = 0; updates[i]; i++) {
        uint16_t *gradient = tow_array_data(g), one = 0x3C00, infinite = 0x7C00, nan = 0x7E00;
        gradient[0] = gradient[1] = one;
        if (updates[i] != '+') gradient[1] = updates[i] == 'i' ? infinite : nan;
        if (updates[i] == '+') expected -= 1 / tow_optimizer_number(o, "loss_scale/scale");
        assert_int_equal(tow_optimizer_update(o, &g), TOW_OK);
        assert_true(tow_optimizer_number(o, "loss_scale/scale") == scales[i]);
    }
    tow_array *moved;
    assert_int_equal(tow_array_convert(w, TOW_F32, &moved), TOW_OK);
    const double found = ((float *)tow_array_data(moved))[1];
    if (found != expected) fail_msg("expected %g, found %g", expected, found); /* multiples of 1/8 */
    assert_int_equal(tow_optimizer_skipped_count(o, NULL), 7);
    tow_array_release(moved);
    tow_optimizer_free(o);
    tow_params_free(params);
    tow_array_release(w);
    tow_array_release(g);
}

static void scales_follow(void **state)
{
    follow_scales(*state, 0);
    follow_scales(*state, 2);
}

/* A step whose gradients overflow changes nothing but the scale, and training goes on from its file with both. */
static void training_resumes(void **state)
{
    const fixture *f = *state;
    model m;
    make_model(&m, TOW_F16);
    tow_train_options options = usual_options();
    options.loss_scale = 0x1p30;
    options.loss_scale_period = 4;
    options.master = true;
    training whole = start(f->ctx, TOW_MODULE(&m.precision), 5, 3, options);
    training part = start(f->ctx, TOW_MODULE(&m.precision), 5, 3, options),
             fresh = start(f->ctx, TOW_MODULE(&m.precision), 5, 3, options);
    assert_int_equal(tow_train_step(part.state, part.batch, NULL), TOW_OK);
    assert_int_equal(tow_train_step_count(part.state), 0);
    assert_equal_params(part.state, fresh.state);
    stop(&fresh);
    for (int i = 0; i < 41; i++) assert_int_equal(tow_train_step(whole.state, whole.batch, NULL), TOW_OK);
    assert_true(tow_train_step_count(whole.state) > 0);
    for (int i = 1; i < 21; i++) assert_int_equal(tow_train_step(part.state, part.batch, NULL), TOW_OK);
    save(f, &part, f->a);
    stop(&part);
    part = start(f->ctx, TOW_MODULE(&m.precision), 5, 3, options);
    assert_int_equal(tow_train_load(part.state, f->a), TOW_OK);
    for (int i = 21; i < 41; i++) assert_int_equal(tow_train_step(part.state, part.batch, NULL), TOW_OK);
    save(f, &part, f->a);
    save(f, &whole, f->b);
    assert_equal_files(f->a, f->b);
    stop(&whole);
    stop(&part);
}

static void wrong_scales_are_refused(void **state)
{
    const fixture *f = *state;
    static const double wrong[] = {3, 0.5, -65536, 0x1p127, INFINITY, NAN};
    model m;
    make_model(&m, TOW_F16);
    tow_type types[2] = {tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, 5}),
                         tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, 3})};
    tow_train_state *s;
    tow_train_options options = usual_options();
    options.n_inputs = options.n_extra = 1;
    options.input_types = types, options.extra_types = types + 1;
    options.loss = mean_squared_error;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.loss_scale = wrong[i];
        assert_int_equal(tow_train_create(f->ctx, TOW_MODULE(&m.precision), &options, &s), TOW_INVALID_ARGUMENT);
        assert_message(f, "a .loss_scale that is a power of two");
    }
    options.loss_scale = 65536;
    options.check_finite = true;
    assert_int_equal(tow_train_create(f->ctx, TOW_MODULE(&m.precision), &options, &s), TOW_INVALID_ARGUMENT);
    assert_message(f, ".loss_scale or .check_finite, found both");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bits_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(small_gradients_count, setup, teardown),
        cmocka_unit_test_setup_teardown(scales_follow, setup, teardown),
        cmocka_unit_test_setup_teardown(training_resumes, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_scales_are_refused, setup, teardown),
    };
    return cmocka_run_group_tests_name("loss_scale", tests, NULL, NULL);
}

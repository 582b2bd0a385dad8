/* A training step is one program, whatever the options: its runs are counted, its bytes add up, and its bits are those
 * of gradients, sums, norms, updates and averages by programs of their own. So is a step of the caller's own
 * (tow_step).
 *
 * Tests step_graph.c, step_program.c. */
#include "tests/unit/support/training.h"

#include "src/run/program.h"
#include "src/train/state.h"

enum {
    BATCH = 8,
    FEATURES = 3
};

/* The linker puts this in the place of tow__execute, which every run of a program goes through
 * (tests/CMakeLists.txt). */
static int64_t runs;
tow_status __real_tow__execute(tow__executable *x, tow_array *const *inputs, tow_array *const *outputs);
tow_status __wrap_tow__execute(tow__executable *x, tow_array *const *inputs, tow_array *const *outputs);
tow_status __wrap_tow__execute(tow__executable *x, tow_array *const *inputs, tow_array *const *outputs)
{
    runs++;
    return __real_tow__execute(x, inputs, outputs);
}

/* The loss is a mean with a weight, the sum of the labels' squares. */
static void weighted_error(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss,
                           tow_value *aux, void *user)
{
    mean_squared_error(trace, out, extra, loss, NULL, user);
    if (aux) aux[0] = tow_reduce_sum(tow_square(extra[0]), 0, NULL);
}

typedef struct problem {
    tow_train_state *state;
    tow_array *batch[2];
    tow_type types[2];
} problem;

static problem make_of(tow_context *ctx, const tow_module *model, int64_t rows, tow_train_options options)
{
    problem p = {.batch = {exact_fractions(ctx, rows, FEATURES), exact_fractions(ctx, rows, 2)}};
    for (int i = 0; i < 2; i++) p.types[i] = tow_array_type(p.batch[i]);
    options.n_inputs = options.n_extra = 1;
    options.input_types = &p.types[0];
    options.extra_types = &p.types[1];
    options.loss = weighted_error;
    if (options.weighted) options.n_aux = 1;
    if (tow_train_create(ctx, model, &options, &p.state) != TOW_OK) fail_msg("%s", tow_context_error(ctx));
    return p;
}

static problem make(tow_context *ctx, const tow_module *model, tow_train_options options)
{
    return make_of(ctx, model, BATCH, options);
}

static void drop(problem *p)
{
    tow_train_free(p->state);
    tow_array_release(p->batch[0]);
    tow_array_release(p->batch[1]);
}

/* ---- programs and bytes ------------------------------------------------------------------------------------------ */

/* Combination `bits` of the options. */
static tow_train_options combination(unsigned bits)
{
    tow_train_options o = TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = {.peak_value = 0.01}, .weight_decay = 0.1});
    if (bits & 1) o.optimizer.clip_norm = 0.5;
    if (bits & 2) o.check_finite = true;
    if (bits & 4) o.skip_not_finite = 2;
    if (bits & 8) o.weighted = true;
    if (bits & 16) o.micro_batches = 4;
    static const tow_average_options average = TOW_AVERAGE_OPTIONS(.decay = 0.9, .debias = true);
    if (bits & 32) o.average = &average;
    if (bits & 64) o.early_update = true;
    return o;
}

/* A layer with variables between two with parameters, in 16 bits if `half`. */
static const tow_module *normed(tow_sequential *model, tow_dense *first, tow_batch_norm *norm, tow_dense *last,
                                bool half)
{
    static const tow_module *layers[3];
    *first = TOW_DENSE(.features = 4);
    *norm = TOW_BATCH_NORM();
    *last = TOW_DENSE(.features = 2);
    if (half) first->param_dtype = last->param_dtype = TOW_BF16;
    layers[0] = TOW_MODULE(first);
    layers[1] = TOW_MODULE(norm);
    layers[2] = TOW_MODULE(last);
    *model =
        (tow_sequential){.module = {&tow_sequential_class, sizeof(tow_sequential)}, .layers = layers, .n_layers = 3};
    return TOW_MODULE(model);
}

static void one_program_for_each_combination(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_sequential model;
    tow_dense first, last;
    tow_batch_norm norm;
    for (unsigned bits = 0; bits < 128; bits++) {
        problem p = make(f->ctx, normed(&model, &first, &norm, &last, bits % 3 == 1), combination(bits));
        const int64_t before = runs;
        for (int i = 0; i < 3; i++)
            if (tow_train_step(p.state, p.batch, NULL) != TOW_OK) fail_msg("%u: %s", bits, tow_context_error(f->ctx));
        assert_int_equal(runs - before, 3);
        assert_int_equal(tow_program_cache_made_count(p.state->steps), 1);
        const tow_train_bytes b = tow_train_get_bytes(p.state);
        const tow_program_bytes program = tow_program_get_bytes(tow_train_program(p.state));
        const size_t held = b.parameters + b.optimizer + b.variables + b.averages;
        const size_t least = held + program.arena + program.constants;
        if (b.total < least || b.total > least + 512) /* numbers and losses */
            fail_msg("combination %u: %zu bytes, expected %zu", bits, b.total, least);
        drop(&p);
    }
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

/* The same steps by programs of their own: gradients, then tow_optimizer_update, then tow_average_update. */
typedef struct separate {
    tow_graph *loss, *gradient;
    tow_program *program;
    tow_params *params, *gradients;
    tow_optimizer_state *optimizer;
    tow_average *average;
    tow_array *of_loss, *of_weight;
    tow__optimizer_transforms transforms;
} separate;

static void start_separate(const fixture *f, const tow_module *model, const problem *p, separate *s)
{
    const tow_train_options *o = &p->state->options;
    const size_t n = o->micro_batches ? o->micro_batches : 1;
    tow_type types[2] = {p->types[0], p->types[1]};
    tow_standard_optimizer resolved;
    for (int i = 0; i < 2; i++) types[i].dims[0] /= (int64_t)n;
    assert_int_equal(tow_params_copy(tow_train_params(p->state), &s->params), TOW_OK);
    assert_int_equal(tow_params_zeros_like(s->params, &s->gradients), TOW_OK);
    assert_int_equal(
        tow_model_loss_graph(model, s->params, 1, &types[0], 1, &types[1], weighted_error, NULL, 1, NULL, &s->loss),
        TOW_OK);
    size_t wrt[16];
    for (size_t i = 0; i < tow_params_count(s->params); i++) wrt[i] = i;
    assert_int_equal(tow_value_and_grad(s->loss, tow_params_count(s->params), wrt, true, &s->gradient), TOW_OK);
    assert_int_equal(tow_compile(f->ctx, s->gradient, &TOW_COMPILE_OPTIONS(.flush_subnormals = true), &s->program),
                     TOW_OK);
    assert_int_equal(tow__optimizer_resolve(f->ctx, &o->optimizer, &resolved), TOW_OK);
    tow__optimizer_chain(&resolved, &s->transforms);
    const tow_optimizer_options options = TOW_OPTIMIZER_OPTIONS(.every = n, .weighted = o->weighted && n > 1);
    assert_int_equal(
        tow_optimizer_create(f->ctx, TOW_GRADIENT_TRANSFORM(&s->transforms.chain), s->params, &options, &s->optimizer),
        TOW_OK);
    if (o->average) assert_int_equal(tow_average_create(f->ctx, s->params, o->average, &s->average), TOW_OK);
    assert_int_equal(tow_array_create(f->ctx, tow_graph_output_type(s->loss, 0), &s->of_loss), TOW_OK);
    assert_int_equal(tow_array_create(f->ctx, tow_graph_output_type(s->loss, 1), &s->of_weight), TOW_OK);
}

static void step_separate(const problem *p, separate *s)
{
    const tow_train_options *o = &p->state->options;
    const int64_t n = o->micro_batches ? (int64_t)o->micro_batches : 1, rows = BATCH / n;
    const size_t count = tow_params_count(s->params);
    for (int64_t j = 0; j < n; j++) {
        tow_array *in[18], *out[18] = {s->of_loss, s->of_weight}, *parts[2];
        for (size_t i = 0; i < count; i++) in[i] = tow_params_array(s->params, i);
        for (int i = 0; i < 2; i++) {
            tow_type type = p->types[i];
            type.dims[0] = rows;
            assert_int_equal(tow_array_create(tow_graph_context(s->loss), type, &parts[i]), TOW_OK);
            memcpy(tow_array_data(parts[i]), (char *)tow_array_data(p->batch[i]) + (size_t)j * tow_type_bytes(type),
                   tow_type_bytes(type));
            in[count + (size_t)i] = parts[i];
        }
        for (size_t i = 0; i < count; i++) out[2 + i] = tow_params_array(s->gradients, i);
        assert_int_equal(tow_program_run(s->program, in, out), TOW_OK);
        tow_optimizer_set_weight(s->optimizer,
                                 o->weighted && n > 1 ? (double)*(float *)tow_array_data(s->of_weight) : 1);
        assert_int_equal(tow_optimizer_update(s->optimizer, tow_params_arrays(s->gradients)), TOW_OK);
        for (int i = 0; i < 2; i++) tow_array_release(parts[i]);
    }
    if (s->average) assert_int_equal(tow_average_update(s->average), TOW_OK);
}

static void end_separate(separate *s)
{
    tow_average_free(s->average);
    tow_optimizer_free(s->optimizer);
    tow_program_free(s->program);
    tow_graph_release(s->loss);
    tow_graph_release(s->gradient);
    tow_params_free(s->params);
    tow_params_free(s->gradients);
    tow_array_release(s->of_loss);
    tow_array_release(s->of_weight);
}

static void bits_are_those_of_separate_programs(void **fixture_)
{
    const fixture *f = *fixture_;
    for (unsigned bits = 0; bits < 128; bits++) {
        tow_mlp model = TOW_MLP(.features = {16, 2});
        separate s = {0};
        problem p = make(f->ctx, TOW_MODULE(&model), combination(bits));
        start_separate(f, TOW_MODULE(&model), &p, &s);
        for (int i = 0; i < 3; i++) {
            if (tow_train_step(p.state, p.batch, NULL) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
            step_separate(&p, &s);
        }
        if (!tow_params_equal(s.params, tow_train_params(p.state))) fail_msg("combination %u: other parameters", bits);
        for (size_t i = 0; i < tow_optimizer_slot_count(s.optimizer); i++)
            assert_true(tow_params_equal(tow_optimizer_slot(s.optimizer, i),
                                         tow_optimizer_slot(tow_train_optimizer(p.state), i)));
        if (s.average) assert_true(tow_params_equal(tow_average_params(s.average), tow_train_averages(p.state)));
        end_separate(&s);
        drop(&p);
    }
}

/* ---- a step of the caller's own ---------------------------------------------------------------------------------- */

static void steps_of_ones_own(void **fixture_)
{
    const fixture *f = *fixture_;
    tow_mlp model = TOW_MLP(.features = {16, 2});
    problem p = make(f->ctx, TOW_MODULE(&model), combination(1));
    separate s = {0};
    tow_step *step;
    start_separate(f, TOW_MODULE(&model), &p, &s);
    if (tow_step_create(s.optimizer, s.params, s.loss, NULL, &step) != TOW_OK)
        fail_msg("%s", tow_context_error(f->ctx));
    for (int i = 0; i < 3; i++) {
        double loss;
        assert_int_equal(tow_train_step(p.state, p.batch, &loss), TOW_OK);
        const int64_t before = runs;
        assert_int_equal(tow_step_run(step, p.batch, (tow_array *[]){s.of_loss, s.of_weight}), TOW_OK);
        assert_int_equal(runs - before, 1);
        assert_true((double)*(float *)tow_array_data(s.of_loss) == loss);
    }
    assert_int_equal(tow_optimizer_step_count(s.optimizer), 3);
    assert_true(tow_optimizer_reported(s.optimizer, "clip/norm") == tow_train_gradient_norm(p.state));
    assert_true(tow_params_equal(s.params, tow_train_params(p.state)));
    tow_context_cancel(f->ctx);
    assert_int_equal(tow_step_run(step, p.batch, (tow_array *[]){s.of_loss, s.of_weight}), TOW_CANCELLED);
    tow_context_cancel_reset(f->ctx);
    assert_true(tow_params_equal(s.params, tow_train_params(p.state)));
    tow_step_free(step);
    assert_int_equal(tow_step_create(tow_train_optimizer(p.state), s.params, s.loss, NULL, &step), TOW_UNSUPPORTED);
    assert_null(step);
    assert_int_equal(tow_step_create(s.optimizer, s.gradients, s.loss, NULL, &step), TOW_INVALID_ARGUMENT);
    assert_message(f, "expected the parameters of the optimizer among those of the loss");
    end_separate(&s);
    drop(&p);
}

static size_t total(const tow_program *p)
{
    const tow_program_bytes b = tow_program_get_bytes(p);
    return b.inputs + b.outputs + b.constants + b.arena;
}

/* Expects a refused limit; the least that is possible by the message. */
static size_t least_of(const fixture *f, const separate *s, size_t limit)
{
    tow_step *step;
    assert_int_equal(tow_step_create(s->optimizer, s->params, s->loss, &TOW_STEP_OPTIONS(.memory_limit = limit), &step),
                     TOW_INVALID_ARGUMENT);
    assert_null(step);
    assert_message(f, "parameters ");
    assert_message(f, "slots ");
    const char *at = strstr(tow_context_error(f->ctx), "at least ");
    assert_non_null(at);
    return strtoull(at + strlen("at least "), NULL, 10);
}

/* Three steps of one's own within the limit have the parameters of the states' steps without one. Returns bytes. */
static size_t steps_within(const fixture *f, const tow_module *model, int64_t rows, size_t limit)
{
    separate s = {0};
    tow_step *step;
    problem p = make_of(f->ctx, model, rows, combination(1));
    start_separate(f, model, &p, &s);
    if (tow_step_create(s.optimizer, s.params, s.loss, &TOW_STEP_OPTIONS(.memory_limit = limit), &step) != TOW_OK)
        fail_msg("%s", tow_context_error(f->ctx));
    const size_t bytes = total(tow_step_program(step));
    assert_true(limit == 0 || bytes <= limit);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tow_train_step(p.state, p.batch, NULL), TOW_OK);
        assert_int_equal(tow_step_run(step, p.batch, (tow_array *[]){s.of_loss, s.of_weight}), TOW_OK);
    }
    assert_true(tow_params_equal(s.params, tow_train_params(p.state)));
    tow_step_free(step);
    end_separate(&s);
    drop(&p);
    return bytes;
}

/* A limit bounds all bytes of a step over a deep scan and makes it smaller, with the same bits. The error below the
 * least says it, and what it consists of. */
static void steps_within_a_limit(void **fixture_)
{
    enum {
        ROWS_OF_SCAN = 64
    };
    const fixture *f = *fixture_;
    tow_dense in = TOW_DENSE(.features = 16), layer = in, last = TOW_DENSE(.features = 2);
    tow_activation_layer gelu = TOW_ACTIVATION(tow_gelu);
    tow_sequential block = TOW_SEQUENTIAL(TOW_MODULE(&layer), TOW_MODULE(&gelu));
    tow_scan layers = TOW_SCAN(&block, .length = 24);
    tow_sequential model = TOW_SEQUENTIAL(TOW_MODULE(&in), TOW_MODULE(&layers), TOW_MODULE(&last));
    problem p = make_of(f->ctx, TOW_MODULE(&model), ROWS_OF_SCAN, combination(1));
    separate s = {0};
    start_separate(f, TOW_MODULE(&model), &p, &s);
    const size_t least = least_of(f, &s, 1), most = steps_within(f, TOW_MODULE(&model), ROWS_OF_SCAN, 0);
    const uint64_t plans = s.optimizer->frontiers.plans;
    assert_true(plans > 0);
    assert_int_equal(least_of(f, &s, least - 1), least);
    assert_int_equal(s.optimizer->frontiers.plans, plans); /* nothing was searched for again */
    assert_true(least < most / 10 * 8);
    assert_int_equal(steps_within(f, TOW_MODULE(&model), ROWS_OF_SCAN, least), least);
    const size_t half = steps_within(f, TOW_MODULE(&model), ROWS_OF_SCAN, (least + most) / 2);
    assert_true(half > least && half < most);
    end_separate(&s);
    drop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_program_for_each_combination, setup, teardown),
        cmocka_unit_test_setup_teardown(bits_are_those_of_separate_programs, setup, teardown),
        cmocka_unit_test_setup_teardown(steps_of_ones_own, setup, teardown),
        cmocka_unit_test_setup_teardown(steps_within_a_limit, setup, teardown),
    };
    return cmocka_run_group_tests_name("step_program", tests, NULL, NULL);
}

/* Optimizers beside Optax: those of Adam's family, options that follow schedules, transforms around others, and those
 * that take the loss: parameters after 20 steps (tests/oracle/optax_trajectories.py). Tests adaptive_transforms.c,
 * wrapping_transforms.c, loss_transforms.c, clipping_transforms.c, options.c. */
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

#include "tests/unit/support/golden_parameters.h"

enum {
    STEPS = 20,
    LIST = 8
};

/* The loss of a step, as the script gives it. */
static double loss_at(int step) { return (double)((7919 * step + 13) % 257) / 64; }

/* ---- the chains -------------------------------------------------------------------------------------------------- */

#define CONSTANT(value)                                                                                                \
    {                                                                                                                  \
        .kind = TOW_SCHEDULE_CONSTANT, .peak_value = (value)                                                           \
    }
#define RATE(name, value)                                                                                              \
    static const tow_scale_by_learning_rate name = {                                                                   \
        .base = {&tow_scale_by_learning_rate_class, sizeof(tow_scale_by_learning_rate)}, .schedule = CONSTANT(value)}
RATE(rate, 0.01);
RATE(one, 1);
RATE(half, 0.5);
static const tow_scale_by_adam adam = {.base = {&tow_scale_by_adam_class, sizeof(tow_scale_by_adam)}};
static const tow_scale_by_adam adam_root = {.base = {&tow_scale_by_adam_class, sizeof(tow_scale_by_adam)},
                                            .eps_root = 0.25};
static const tow_scale_by_adam adam_bf16 = {.base = {&tow_scale_by_adam_class, sizeof(tow_scale_by_adam)},
                                            .mu_dtype = TOW_BF16};
static const tow_scale_by_adam nadam_f32 = {
    .base = {&tow_scale_by_adam_class, sizeof(tow_scale_by_adam)}, .nesterov = true, .mu_dtype = TOW_F32};
static const tow_scale_by_amsgrad amsgrad = {
    .base = {&tow_scale_by_amsgrad_class, sizeof(tow_scale_by_amsgrad)}, .eps_root = 0.25, .mu_dtype = TOW_F32};
static const tow_scale_by_lion lion = {.base = {&tow_scale_by_lion_class, sizeof(tow_scale_by_lion)},
                                       .mu_dtype = TOW_BF16};
static const tow_scale_by_belief belief = {.base = {&tow_scale_by_belief_class, sizeof(tow_scale_by_belief)}};
static const tow_scale_by_belief belief_nesterov = {
    .base = {&tow_scale_by_belief_class, sizeof(tow_scale_by_belief)}, .eps = 1e-3, .eps_root = 1e-4, .nesterov = true};
static const tow_scale_by_yogi yogi = {.base = {&tow_scale_by_yogi_class, sizeof(tow_scale_by_yogi)}};
static const tow_scale_by_adamax adamax = {.base = {&tow_scale_by_adamax_class, sizeof(tow_scale_by_adamax)}};
static const tow_add_decayed_weights decay = {
    {&tow_add_decayed_weights_class, sizeof(tow_add_decayed_weights)}, 0.1, true};
static const tow_add_decayed_weights little_decay = {
    {&tow_add_decayed_weights_class, sizeof(tow_add_decayed_weights)}, 1e-3, true};
static const tow_scale_by_adadelta adadelta = {.base = {&tow_scale_by_adadelta_class, sizeof(tow_scale_by_adadelta)}};
static const tow_scale_by_radam radam = {.base = {&tow_scale_by_radam_class, sizeof(tow_scale_by_radam)}};
static const tow_scale_by_radam radam_nesterov = {.base = {&tow_scale_by_radam_class, sizeof(tow_scale_by_radam)},
                                                  .b2 = 0.9,
                                                  .threshold = 4.5,
                                                  .eps_root = 1e-3,
                                                  .nesterov = true};
static const tow_scale_by_sign sign = {{&tow_scale_by_sign_class, sizeof(tow_scale_by_sign)}};
static const tow_centralize centralize = {{&tow_centralize_class, sizeof(tow_centralize)}};
static const tow_adaptive_grad_clip adaptive = {.base = {&tow_adaptive_grad_clip_class, sizeof(tow_adaptive_grad_clip)},
                                                .clipping = 0.5};
static const tow_adaptive_grad_clip adaptive_axis = {
    .base = {&tow_adaptive_grad_clip_class, sizeof(tow_adaptive_grad_clip)},
    .clipping = 0.25,
    .eps = 2,
    .n_axes = 1,
    .axes = {-1}};
static const tow_normalize normalize = {{&tow_normalize_class, sizeof(tow_normalize)}};
static const tow_trace_gradients momentum = {{&tow_trace_gradients_class, sizeof(tow_trace_gradients)}, 0.5, false};
static const tow_trace_gradients nesterov = {{&tow_trace_gradients_class, sizeof(tow_trace_gradients)}, 0.5, true};
static const tow_scale minus = {{&tow_scale_class, sizeof(tow_scale)}, -1};
static const tow_scale_by_polyak polyak = {
    .base = {&tow_scale_by_polyak_class, sizeof(tow_scale_by_polyak)}, .f_min = 0.5, .max_learning_rate = 0.05};
static const tow_scale_by_polyak polyak_plus = {.base = {&tow_scale_by_polyak_class, sizeof(tow_scale_by_polyak)},
                                                .f_min = 2,
                                                .max_learning_rate = 10,
                                                .eps = 1e-2,
                                                .plus = true};
static const tow_reduce_on_plateau plateau = {.base = {&tow_reduce_on_plateau_class, sizeof(tow_reduce_on_plateau)},
                                              .factor = 0.5,
                                              .patience = 2,
                                              .cooldown = 3,
                                              .rtol = 0.05};
static const tow_reduce_on_plateau plateau_mean = {
    .base = {&tow_reduce_on_plateau_class, sizeof(tow_reduce_on_plateau)},
    .factor = 0.5,
    .patience = 1,
    .accumulation = 3,
    .min_scale = 0.2};

#define LIST_OF(...)                                                                                                   \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }

static tow_chain chain_of(const tow_gradient_transform *const *list)
{
    size_t n = 0;
    while (list[n]) n++;
    return (tow_chain){.base = {&tow_chain_class, sizeof(tow_chain)}, .transforms = list, .n = n};
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static golden_problem run(const char *name, const tow_gradient_transform *transform, tow_dtype dtype,
                          tow_optimizer_state **state)
{
    golden_problem p = make_golden_problem(dtype);
    if (tow_optimizer_create(ctx, transform, p.params, NULL, state) != TOW_OK)
        fail_msg("%s: %s", name, tow_context_error(ctx));
    for (int step = 0; step < STEPS; step++) {
        fill_gradients(&p, step);
        OK(tow_optimizer_update_with(*state, p.gradients, loss_at(step)));
    }
    return p;
}

static void expect(const char *name, const tow_gradient_transform *transform, double f32, double f64)
{
    for (int wide = 0; wide < (f64 > 0 ? 2 : 1); wide++) {
        tow_optimizer_state *state;
        golden_problem p = run(name, transform, wide ? TOW_F64 : TOW_F32, &state);
        assert_int_equal(compare_lines("optax.txt", name, wide ? f64 : f32, p.parameters), PARAMETERS);
        tow_optimizer_free(state);
        free_golden_problem(&p);
    }
}

static const struct {
    const char *name;
    const tow_gradient_transform *transforms[LIST];
    double tolerance[2]; /* relative, of f32 and f64; 0: not compared, as XLA rounds f64 to bf16 twice */
} optimizers[] = {
    /* f32: 20 roundings. f64: Optax's biases of f32 moments are f32. */
    {"adam_eps_root", LIST_OF(&adam_root.base, &rate.base), {3e-6, 1e-13}},
    {"adam_mu_dtype", LIST_OF(&adam_bf16.base, &rate.base), {3e-6, 0}},
    {"nadam_mu_dtype", LIST_OF(&nadam_f32.base, &rate.base), {3e-6, 1e-8}},
    {"amsgrad_eps_root", LIST_OF(&amsgrad.base, &rate.base), {3e-6, 1e-8}},
    {"lion_mu_dtype", LIST_OF(&lion.base, &little_decay.base, &rate.base), {3e-6, 0}},
    {"adabelief", LIST_OF(&belief.base, &rate.base), {3e-6, 1e-13}},
    {"adabelief_nesterov", LIST_OF(&belief_nesterov.base, &rate.base), {3e-6, 1e-13}},
    {"yogi", LIST_OF(&yogi.base, &rate.base), {3e-6, 1e-13}},
    {"adamax", LIST_OF(&adamax.base, &rate.base), {3e-6, 1e-13}},
    {"adamaxw", LIST_OF(&adamax.base, &decay.base, &rate.base), {3e-6, 1e-13}},
    {"adadelta", LIST_OF(&decay.base, &adadelta.base, &one.base), {3e-6, 1e-13}},
    {"radam", LIST_OF(&radam.base, &rate.base), {3e-6, 1e-13}},
    {"radam_nesterov", LIST_OF(&radam_nesterov.base, &rate.base), {3e-6, 1e-13}},
    {"sign_sgd", LIST_OF(&sign.base, &rate.base), {3e-6, 1e-14}},
    {"centralize", LIST_OF(&centralize.base, &rate.base), {3e-6, 1e-13}},
    {"adaptive_grad_clip", LIST_OF(&adaptive.base, &rate.base), {3e-6, 1e-13}},
    {"adaptive_grad_clip_axis", LIST_OF(&adaptive_axis.base, &rate.base), {3e-6, 1e-13}},
    {"normalize", LIST_OF(&normalize.base, &rate.base), {3e-6, 1e-13}},
    {"polyak_sgd", LIST_OF(&minus.base, &polyak.base), {3e-6, 1e-13}},
    {"polyak_sgd_plus", LIST_OF(&minus.base, &polyak_plus.base), {3e-6, 1e-13}},
    {"reduce_on_plateau", LIST_OF(&adam.base, &rate.base, &plateau.base), {3e-6, 1e-13}},
    {"reduce_on_plateau_mean", LIST_OF(&rate.base, &plateau_mean.base), {3e-6, 1e-13}},
};

static void trajectories(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        const tow_chain chain = chain_of(optimizers[i].transforms);
        expect(optimizers[i].name, TOW_GRADIENT_TRANSFORM(&chain), optimizers[i].tolerance[0],
               optimizers[i].tolerance[1]);
    }
}

/* Options by schedules; numbers of the optimizer show and fix them. */
static void options_by_schedules(void **state)
{
    (void)state;
    static const tow_scale_by_adam with_eps = {.base = {&tow_scale_by_adam_class, sizeof(tow_scale_by_adam)},
                                               .eps = 1e-3};
    static const tow_gradient_transform *const adamw[] = LIST_OF(&with_eps.base, &decay.base, &rate.base);
    const tow_chain chain = chain_of(adamw);
    const tow_scheduled_option options[] = {{"adam/b1", tow_schedule_linear(0.5, 0.9, 10, 0)},
                                            {"adam/b2", tow_schedule_linear(0.9, 0.999, 15, 0)},
                                            {"decay/weight_decay", tow_schedule_exponential(0.2, 4, 0.5, 0, false)}};
    const tow_inject_hyperparams injected = TOW_INJECT_HYPERPARAMS(&chain, .n = 3, .options = options);
    expect("injected_adamw", TOW_GRADIENT_TRANSFORM(&injected), 3e-6, 1e-7); /* Optax's numbers are f32 */
    const tow_scheduled_option decay_of_momentum = {"decay", tow_schedule_linear(0.5, 0.95, 12, 0)};
    const tow_inject_hyperparams momentum_injected =
        TOW_INJECT_HYPERPARAMS(&nesterov, .n = 1, .options = &decay_of_momentum);
    const tow_scale_by_learning_rate falling =
        TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_linear(0.02, 0.001, 20, 0));
    const tow_chain sgd = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&momentum_injected), TOW_GRADIENT_TRANSFORM(&falling));
    expect("injected_momentum", TOW_GRADIENT_TRANSFORM(&sgd), 3e-6, 1e-7);
    tow_optimizer_state *optimizer;
    golden_problem p = make_golden_problem(TOW_F32);
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&injected), p.params, NULL, &optimizer));
    assert_non_null(tow_optimizer_find_slot(optimizer, "adam/mu/")); /* called as without the wrapper */
    tow_optimizer_set_step_count(optimizer, 5);
    assert_true(fabs(tow_optimizer_number(optimizer, "adam/b1") - 0.7) < 1e-15);
    OK(tow_optimizer_set_number(optimizer, "adam/b1", 0.25));
    assert_true(tow_optimizer_number(optimizer, "adam/b1") == 0.25);
    tow_optimizer_free(optimizer);
    const tow_scheduled_option wrong[] = {
        {"b3", tow_schedule_constant(1)}, {"b1", tow_schedule_constant(2)}, {NULL, {0}}};
    const tow_inject_hyperparams unknown = TOW_INJECT_HYPERPARAMS(&adam, .n = 1, .options = wrong),
                                 large = TOW_INJECT_HYPERPARAMS(&adam, .n = 1, .options = wrong + 1),
                                 nameless = TOW_INJECT_HYPERPARAMS(&adam, .n = 1, .options = wrong + 2);
    expect_error(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&unknown), p.params, NULL, &optimizer), TOW_NOT_FOUND,
                 "no transform in it reads an option \"b3\"");
    expect_error(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&large), p.params, NULL, &optimizer),
                 TOW_INVALID_ARGUMENT, "expected b1 in [0, 1), found 2");
    expect_error(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&nameless), p.params, NULL, &optimizer),
                 TOW_INVALID_ARGUMENT, "expected 1 options with names");
    free_golden_problem(&p);
}

static void expect_slot(const char *name, const tow_gradient_transform *transform, const char *prefix, double f32,
                        double f64)
{
    for (int wide = 0; wide < 2; wide++) {
        tow_optimizer_state *state;
        golden_problem p = run(name, transform, wide ? TOW_F64 : TOW_F32, &state);
        const tow_params *slow = tow_optimizer_find_slot(state, prefix);
        assert_non_null(slow);
        assert_int_equal(compare_lines("optax.txt", name, wide ? f64 : f32, tow_params_arrays(slow)), PARAMETERS);
        tow_optimizer_free(state);
        free_golden_problem(&p);
    }
}

static void lookahead(void **state)
{
    (void)state;
    static const tow_gradient_transform *const list[] = LIST_OF(&adam.base, &rate.base);
    const tow_chain fast = chain_of(list);
    const tow_lookahead plain = TOW_LOOKAHEAD(&fast, .sync_period = 6, .slow_step_size = 0.25);
    const tow_lookahead reset = TOW_LOOKAHEAD(&fast, .sync_period = 5, .reset_state = true);
    expect("lookahead", TOW_GRADIENT_TRANSFORM(&plain), 3e-6, 1e-13);
    expect("lookahead_reset", TOW_GRADIENT_TRANSFORM(&reset), 3e-6, 1e-13);
    expect_slot("lookahead_slow", TOW_GRADIENT_TRANSFORM(&plain), "lookahead/slow/", 3e-6, 1e-13);
    expect_slot("lookahead_reset_slow", TOW_GRADIENT_TRANSFORM(&reset), "lookahead/slow/", 3e-6, 1e-13);
}

static void sam(void **state)
{
    (void)state;
    static const tow_gradient_transform *const climb[] = LIST_OF(&normalize.base, &half.base);
    static const tow_gradient_transform *const long_climb[] = LIST_OF(&normalize.base, &momentum.base, &half.base);
    static const tow_gradient_transform *const adams[] = LIST_OF(&adam.base, &rate.base);
    static const tow_gradient_transform *const adamw[] = LIST_OF(&adam.base, &decay.base, &rate.base);
    const tow_chain inner[] = {chain_of(adams), chain_of(adamw)}, ascent[] = {chain_of(climb), chain_of(long_climb)};
    const tow_sam usual = TOW_SAM(&inner[0], .ascent = TOW_GRADIENT_TRANSFORM(&ascent[0]));
    const tow_sam three =
        TOW_SAM(&inner[1], .ascent = TOW_GRADIENT_TRANSFORM(&ascent[1]), .sync_period = 3, .keep_ascent_state = true);
    expect("sam", TOW_GRADIENT_TRANSFORM(&usual), 3e-6, 1e-13);
    expect("sam_long", TOW_GRADIENT_TRANSFORM(&three), 3e-6, 1e-13);
}

/* The parameters, and those that evaluations use. */
static void expect_free(const char *name, const tow_schedule_free *transform, double f32, double f64)
{
    char average[40];
    snprintf(average, sizeof average, "%s_x", name);
    expect(name, TOW_GRADIENT_TRANSFORM(transform), f32, f64);
    for (int wide = 0; wide < 2; wide++) {
        tow_optimizer_state *state;
        golden_problem p = run(name, TOW_GRADIENT_TRANSFORM(transform), wide ? TOW_F64 : TOW_F32, &state);
        tow_params *x;
        OK(tow_schedule_free_params(state, transform, &x));
        assert_int_equal(compare_lines("optax.txt", average, wide ? f64 : f32, tow_params_arrays(x)), PARAMETERS);
        tow_params_free(x);
        tow_optimizer_free(state);
        free_golden_problem(&p);
    }
}

static void schedule_free(void **state)
{
    (void)state;
    const tow_schedule warm = tow_schedule_linear(0, 0.01, 5, 0);
    const tow_scale_by_learning_rate warming = TOW_SCALE_BY_LEARNING_RATE(.schedule = warm);
    const tow_scale_by_rms rms = TOW_SCALE_BY_RMS(.decay = 0.999, .eps_outside = true, .bias_correction = true);
    const tow_chain adamw =
        TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&rms), TOW_GRADIENT_TRANSFORM(&decay), TOW_GRADIENT_TRANSFORM(&warming));
    const tow_schedule_free of_sgd = TOW_SCHEDULE_FREE(&warming, .learning_rate = warm);
    const tow_schedule_free of_adamw = TOW_SCHEDULE_FREE(&adamw, .learning_rate = warm, .b1 = 0.8, .weight_power = 1);
    expect_free("schedule_free_sgd", &of_sgd, 3e-6, 1e-8); /* Optax's schedule is f32 */
    expect_free("schedule_free_adamw", &of_adamw, 3e-6, 1e-8);
    golden_problem p = make_golden_problem(TOW_F32);
    tow_optimizer_state *plain;
    tow_params *x;
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&of_sgd), p.params, NULL, &plain));
    OK(tow_schedule_free_params(plain, &of_sgd, &x));
    assert_true(tow_params_equal(x, p.params)); /* before the first update */
    tow_params_free(x);
    tow_optimizer_free(plain);
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&warming), p.params, NULL, &plain));
    expect_error(tow_schedule_free_params(plain, &of_sgd, &x), TOW_NOT_FOUND, "has no TOW_SCHEDULE_FREE");
    tow_optimizer_free(plain);
    free_golden_problem(&p);
}

/* ---- the loss ---------------------------------------------------------------------------------------------------- */

static void takes_the_loss(void **state)
{
    (void)state;
    golden_problem p = make_golden_problem(TOW_F32);
    tow_optimizer_state *optimizer;
    fill_gradients(&p, 0);
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&polyak), p.params, NULL, &optimizer));
    expect_error(tow_optimizer_update(optimizer, p.gradients), TOW_INVALID_ARGUMENT, "polyak takes the loss",
                 "tow_optimizer_update_with");
    assert_int_equal(tow_optimizer_step_count(optimizer), 0);
    tow_optimizer_free(optimizer);
    const tow_optimizer_options gather = TOW_OPTIMIZER_OPTIONS(.every = 2);
    /* With .every the mean of the losses: 8 and 2 are 5, then 5 and 5 are no better than that; patience 1. */
    const tow_reduce_on_plateau at_once = TOW_REDUCE_ON_PLATEAU(.factor = 0.25, .patience = 1);
    const tow_chain chain = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&rate), TOW_GRADIENT_TRANSFORM(&at_once));
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&chain), p.params, &gather, &optimizer));
    const double losses[] = {8, 2, 5, 5}, scales[] = {0, 1, 1, 0.25};
    for (int i = 0; i < 4; i++) {
        OK(tow_optimizer_update_with(optimizer, p.gradients, losses[i]));
        assert_true(tow_optimizer_reported(optimizer, "reduce_on_plateau/scale") == scales[i]);
    }
    tow_optimizer_free(optimizer);
    const tow_reduce_on_plateau grows = TOW_REDUCE_ON_PLATEAU(.factor = 2);
    expect_error(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&grows), p.params, NULL, &optimizer),
                 TOW_INVALID_ARGUMENT, "expected a factor below 1");
    free_golden_problem(&p);
}

/* Stacks of layers are layers: updated one by one they get the same bits. */
static void rows_are_the_whole(void **state)
{
    (void)state;
    static const tow_gradient_transform *const list[] = LIST_OF(&adam.base, &rate.base);
    static const tow_gradient_transform *const climb[] = LIST_OF(&sign.base, &half.base);
    const tow_chain fast = chain_of(list), ascent = chain_of(climb);
    const tow_lookahead ahead = TOW_LOOKAHEAD(&fast, .sync_period = 2, .reset_state = true);
    const tow_sam sharp = TOW_SAM(&fast, .ascent = TOW_GRADIENT_TRANSFORM(&ascent));
    const tow_gradient_transform *const transforms[] = {TOW_GRADIENT_TRANSFORM(&ahead), TOW_GRADIENT_TRANSFORM(&sharp)};
    static const char *const stack = "blocks/{}/w";
    const tow_type type = tow_make_type(TOW_F32, 3, (int64_t[]){3, 4, 5});
    for (int t = 0; t < 2; t++) {
        tow_array *p[2], *g;
        tow_params *params[2];
        tow_optimizer_state *whole, *single;
        for (int i = 0; i < 2; i++) {
            OK(tow_array_create(ctx, type, &p[i]));
            fill(p[i], 0, 1000);
            OK(tow_params_from_arrays(ctx, 1, &stack, &p[i], &params[i]));
        }
        OK(tow_array_create(ctx, type, &g));
        OK(tow_optimizer_create(ctx, transforms[t], params[0], NULL, &whole));
        tow_params *layers;
        OK(tow_params_unstack(params[1], &layers));
        OK(tow_optimizer_create(ctx, transforms[t], layers, NULL, &single));
        for (int step = 0; step < 5; step++) {
            tow_array *rows[3];
            fill(g, 0, step);
            for (int i = 0; i < 3; i++) OK(tow_array_row(g, i, &rows[i]));
            OK(tow_optimizer_update(whole, &g));
            OK(tow_optimizer_update(single, rows));
            for (int i = 0; i < 3; i++) tow_array_release(rows[i]);
        }
        assert_memory_equal(tow_array_data(p[0]), tow_array_data(p[1]), tow_type_bytes(type));
        tow_optimizer_free(whole);
        tow_optimizer_free(single);
        tow_params_free(layers);
        for (int i = 0; i < 2; i++) tow_params_free(params[i]), tow_array_release(p[i]);
        tow_array_release(g);
    }
}

/* ---- train states ------------------------------------------------------------------------------------------------ */

static void squares(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                    void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(tow_mul(out[0], out[0]), 0, NULL);
}

/* A state of a Dense layer that took `steps` steps. */
static tow_train_state *trained(const tow_gradient_transform *transform, tow_array *x, int steps, const char *from)
{
    static const tow_dense model = {.module = {&tow_dense_class, sizeof(tow_dense)}, .features = 3};
    const tow_type type = tow_array_type(x);
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.transform = transform, .n_inputs = 1, .input_types = &type, .loss = squares, .seed = 1);
    tow_train_state *state;
    double loss;
    OK(tow_train_create(ctx, TOW_MODULE(&model), &options, &state));
    if (from) OK(tow_train_load(state, from));
    for (int i = 0; i < steps; i++) OK(tow_train_step(state, &x, &loss));
    return state;
}

/* A train state hands the loss on; what transforms keep is in checkpoints, so that a run goes on to the bit. */
static void resumed(void **unused)
{
    (void)unused;
    const tow_reduce_on_plateau impatient =
        TOW_REDUCE_ON_PLATEAU(.factor = 0.5, .patience = 1, .rtol = 0.5, .accumulation = 2);
    const tow_schedule constant = tow_schedule_constant(0.01);
    const tow_scale_by_learning_rate slow_rate = TOW_SCALE_BY_LEARNING_RATE(.schedule = constant);
    const tow_chain fast = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&adam_bf16), TOW_GRADIENT_TRANSFORM(&slow_rate));
    const tow_lookahead ahead = TOW_LOOKAHEAD(&fast, .sync_period = 3, .reset_state = true);
    const tow_sam sharp = TOW_SAM(&ahead, .ascent = TOW_GRADIENT_TRANSFORM(&minus), .sync_period = 2);
    const tow_schedule_free schedule_less = TOW_SCHEDULE_FREE(&slow_rate, .learning_rate = constant);
    const tow_chain chains[] = {TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&sharp), TOW_GRADIENT_TRANSFORM(&impatient)),
                                TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&schedule_less), TOW_GRADIENT_TRANSFORM(&impatient))};
    char path[] = "/tmp/tow_wrapped_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    tow_array *x;
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, 2, (int64_t[]){4, 5}), &x));
    fill(x, 0, 7);
    for (int c = 0; c < 2; c++) {
        tow_train_state *whole = trained(TOW_GRADIENT_TRANSFORM(&chains[c]), x, 15, NULL);
        tow_train_state *first = trained(TOW_GRADIENT_TRANSFORM(&chains[c]), x, 8, NULL);
        OK(tow_train_save(first, path));
        tow_train_state *second = trained(TOW_GRADIENT_TRANSFORM(&chains[c]), x, 7, path);
        assert_true(tow_params_equal(tow_train_params(whole), tow_train_params(second)));
        assert_false(tow_params_equal(tow_train_params(whole), tow_train_params(first)));
        tow_train_free(whole), tow_train_free(first), tow_train_free(second);
    }
    tow_array_release(x);
    remove(path);
}

static void refused(void **state)
{
    (void)state;
    const tow_lookahead never = TOW_LOOKAHEAD(&adam, .sync_period = 0);
    const tow_sam one_step = TOW_SAM(&adam, .ascent = TOW_GRADIENT_TRANSFORM(&sign), .sync_period = 1);
    const tow_sam no_ascent = TOW_SAM(&adam, .sync_period = 2);
    const tow_adaptive_grad_clip none = TOW_ADAPTIVE_GRAD_CLIP(.eps = 1),
                                 axis = TOW_ADAPTIVE_GRAD_CLIP(.clipping = 1, .n_axes = 1, .axes = {2});
    const tow_scale_by_adam dtype = TOW_SCALE_BY_ADAM(.mu_dtype = TOW_I32), root = TOW_SCALE_BY_ADAM(.eps_root = NAN);
    const struct {
        const tow_gradient_transform *transform;
        const char *text;
    } cases[] = {{TOW_GRADIENT_TRANSFORM(&never), "lookahead: expected a sync_period of at least 1, found 0"},
                 {TOW_GRADIENT_TRANSFORM(&one_step), "sam: expected a sync_period of at least 2, found 1"},
                 {TOW_GRADIENT_TRANSFORM(&no_ascent), "expected a transform whose class has a name"},
                 {TOW_GRADIENT_TRANSFORM(&none), "expected a finite clipping above 0, found 0"},
                 {TOW_GRADIENT_TRANSFORM(&axis), "f32[7] has no such axes"},
                 {TOW_GRADIENT_TRANSFORM(&dtype), ".mu_dtype: expected a float type"},
                 {TOW_GRADIENT_TRANSFORM(&root), "expected a finite eps_root that is not negative, found nan"}};
    golden_problem p = make_golden_problem(TOW_F32);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_optimizer_state *optimizer;
        expect_error(tow_optimizer_create(ctx, cases[i].transform, p.params, NULL, &optimizer), TOW_INVALID_ARGUMENT,
                     cases[i].text);
    }
    free_golden_problem(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trajectories),
        cmocka_unit_test(options_by_schedules),
        cmocka_unit_test(lookahead),
        cmocka_unit_test(sam),
        cmocka_unit_test(schedule_free),
        cmocka_unit_test(takes_the_loss),
        cmocka_unit_test(rows_are_the_whole),
        cmocka_unit_test(refused),
        cmocka_unit_test(resumed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

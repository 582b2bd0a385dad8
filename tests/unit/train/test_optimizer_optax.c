/* The optimizers that there are, beside Optax: parameters after 20 steps (tests/oracle/optax_trajectories.py). Tests
 * scaling_transforms.c.
 * Tests gradient_transforms.c, scaling_transforms.c, schedule.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/golden_parameters.h"

enum {
    STEPS = 20,
    LIST = 8
};

/* ---- the chains -------------------------------------------------------------------------------------------------- */

static const tow_scale_by_learning_rate rate = {
    .base = {&tow_scale_by_learning_rate_class, sizeof(tow_scale_by_learning_rate)},
    .schedule = {.kind = TOW_SCHEDULE_CONSTANT, .peak_value = 0.01}};
static const tow_trace_gradients momentum = {{&tow_trace_gradients_class, sizeof(tow_trace_gradients)}, 0.9, false};
static const tow_trace_gradients nesterov = {{&tow_trace_gradients_class, sizeof(tow_trace_gradients)}, 0.9, true};
static const tow_scale_by_rss adagrad = {{&tow_scale_by_rss_class, sizeof(tow_scale_by_rss)}, 0, 0};
static const tow_scale_by_rms rms = {.base = {&tow_scale_by_rms_class, sizeof(tow_scale_by_rms)}};
static const tow_scale_by_rms outside = {
    .base = {&tow_scale_by_rms_class, sizeof(tow_scale_by_rms)}, .eps_outside = true, .initial_scale = 1};
static const tow_scale_by_rms centered = {
    .base = {&tow_scale_by_rms_class, sizeof(tow_scale_by_rms)}, .centered = true, .initial_scale = 1};
static const tow_scale_by_rms corrected = {.base = {&tow_scale_by_rms_class, sizeof(tow_scale_by_rms)},
                                           .bias_correction = true};
static const tow_scale_by_adam adam = {.base = {&tow_scale_by_adam_class, sizeof(tow_scale_by_adam)}};
static const tow_scale_by_adam nadam = {.base = {&tow_scale_by_adam_class, sizeof(tow_scale_by_adam)},
                                        .nesterov = true};
static const tow_scale_by_adam of_lamb = {.base = {&tow_scale_by_adam_class, sizeof(tow_scale_by_adam)}, .eps = 1e-6};
static const tow_scale_by_amsgrad amsgrad = {.base = {&tow_scale_by_amsgrad_class, sizeof(tow_scale_by_amsgrad)}};
static const tow_scale_by_lion lion = {.base = {&tow_scale_by_lion_class, sizeof(tow_scale_by_lion)}};
static const tow_add_decayed_weights decay = {
    {&tow_add_decayed_weights_class, sizeof(tow_add_decayed_weights)}, 0.1, true};
static const tow_add_decayed_weights small_decay = {
    {&tow_add_decayed_weights_class, sizeof(tow_add_decayed_weights)}, 0.01, true};
static const tow_scale_by_trust_ratio trust = {
    .base = {&tow_scale_by_trust_ratio_class, sizeof(tow_scale_by_trust_ratio)}};
static const tow_scale_by_factored_rms factored = {
    .base = {&tow_scale_by_factored_rms_class, sizeof(tow_scale_by_factored_rms)}, .min_dim_size_to_factor = 4};
static const tow_scale_by_factored_rms whole = {
    .base = {&tow_scale_by_factored_rms_class, sizeof(tow_scale_by_factored_rms)}, .whole = true};
static const tow_clip_by_block_rms block_clip = {.base = {&tow_clip_by_block_rms_class, sizeof(tow_clip_by_block_rms)}};
static const tow_scale_by_param_block_rms block_rms = {
    .base = {&tow_scale_by_param_block_rms_class, sizeof(tow_scale_by_param_block_rms)}};
static const tow_scale hundredth = {{&tow_scale_class, sizeof(tow_scale)}, 0.01},
                       minus_hundredth = {{&tow_scale_class, sizeof(tow_scale)}, -0.01},
                       minus = {{&tow_scale_class, sizeof(tow_scale)}, -1};
static const tow_ema_gradients ema = {{&tow_ema_gradients_class, sizeof(tow_ema_gradients)}, 0.9};
static const tow_ema_gradients debiased = {
    .base = {&tow_ema_gradients_class, sizeof(tow_ema_gradients)}, .decay = 0.9, .debias = true};
static const tow_scale_by_adam scaled = {.base = {&tow_scale_by_adam_class, sizeof(tow_scale_by_adam)}};
static const tow_scheduled_option no_b1 = {"b1", {.kind = TOW_SCHEDULE_CONSTANT}};
static const tow_inject_hyperparams without_momentum = {
    .base = {&tow_inject_hyperparams_class, sizeof(tow_inject_hyperparams)},
    .inner = &scaled.base,
    .n = 1,
    .options = &no_b1};
static const tow_scale_by_muon muon = {.base = {&tow_scale_by_muon_class, sizeof(tow_scale_by_muon)}};
static const tow_clip_by_global_norm global_clip = {{&tow_clip_by_global_norm_class, sizeof(tow_clip_by_global_norm)},
                                                    1.0};
static const tow_clip_elements clip = {{&tow_clip_elements_class, sizeof(tow_clip_elements)}, 0.25};

#define LIST_OF(...)                                                                                                   \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }
static const struct {
    const char *name;
    const tow_gradient_transform *transforms[LIST];
    double tolerance[2]; /* relative, of f32 and f64 */
} optimizers[] = {
    /* f32: 20 roundings; where there are bias corrections, Optax computes them in f32, where 1 - 0.999^t has 4 digits
     * at first. Adafactor's decay is f32 there in f64, too. */
    {"sgd", LIST_OF(&rate.base), {3e-6, 1e-14}},
    {"momentum", LIST_OF(&momentum.base, &rate.base), {3e-6, 1e-14}},
    {"nesterov", LIST_OF(&nesterov.base, &rate.base), {3e-6, 1e-14}},
    {"adagrad", LIST_OF(&adagrad.base, &rate.base), {3e-6, 1e-14}},
    {"rmsprop", LIST_OF(&rms.base, &rate.base), {3e-6, 1e-14}},
    {"rmsprop_outside", LIST_OF(&outside.base, &rate.base), {3e-6, 1e-14}},
    {"rmsprop_centered", LIST_OF(&centered.base, &rate.base), {3e-6, 1e-13}},
    {"rmsprop_corrected", LIST_OF(&corrected.base, &rate.base), {3e-6, 1e-13}},
    {"rmsprop_momentum", LIST_OF(&rms.base, &rate.base, &momentum.base), {3e-6, 1e-14}},
    {"adam", LIST_OF(&adam.base, &rate.base), {3e-6, 1e-13}},
    {"nadam", LIST_OF(&nadam.base, &rate.base), {3e-6, 1e-13}},
    {"adamw", LIST_OF(&adam.base, &decay.base, &rate.base), {3e-6, 1e-13}},
    {"amsgrad", LIST_OF(&amsgrad.base, &rate.base), {3e-6, 1e-13}},
    {"lion", LIST_OF(&lion.base, &decay.base, &rate.base), {3e-6, 1e-14}},
    {"lamb", LIST_OF(&of_lamb.base, &decay.base, &trust.base, &rate.base), {3e-6, 1e-13}},
    {"adafactor",
     LIST_OF(&factored.base, &block_clip.base, &hundredth.base, &block_rms.base, &ema.base, &small_decay.base,
             &minus.base),
     {3e-6, 1e-7}},
    {"adafactor_whole",
     LIST_OF(&whole.base, &block_clip.base, &hundredth.base, &block_rms.base, &minus.base),
     {3e-6, 1e-7}},
    {"clipped", LIST_OF(&global_clip.base, &clip.base, &rate.base), {3e-6, 1e-14}},
    {"ema", LIST_OF(&ema.base, &minus_hundredth.base), {3e-6, 1e-14}},
    {"ema_debiased", LIST_OF(&debiased.base, &minus_hundredth.base), {3e-6, 1e-13}},
    {"adam_no_momentum", LIST_OF(&without_momentum.base, &rate.base), {3e-6, 1e-13}},
};

static tow_chain chain_of(const tow_gradient_transform *const *list)
{
    size_t n = 0;
    while (list[n]) n++;
    return (tow_chain){.base = {&tow_chain_class, sizeof(tow_chain)}, .transforms = list, .n = n};
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void expect(const char *name, const tow_gradient_transform *transform, tow_dtype dtype, double tolerance)
{
    golden_problem p = make_golden_problem(dtype);
    tow_optimizer_state *state;
    if (tow_optimizer_create(ctx, transform, p.params, NULL, &state) != TOW_OK)
        fail_msg("%s: %s", name, tow_context_error(ctx));
    for (int step = 0; step < STEPS; step++) {
        fill_gradients(&p, step);
        OK(tow_optimizer_update(state, p.gradients));
    }
    assert_int_equal(compare_lines("optax.txt", name, tolerance, p.parameters), PARAMETERS);
    tow_optimizer_free(state);
    free_golden_problem(&p);
}

static void trajectories(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        const tow_chain chain = chain_of(optimizers[i].transforms);
        expect(optimizers[i].name, TOW_GRADIENT_TRANSFORM(&chain), TOW_F32, optimizers[i].tolerance[0]);
        expect(optimizers[i].name, TOW_GRADIENT_TRANSFORM(&chain), TOW_F64, optimizers[i].tolerance[1]);
    }
}

/* Matrices by Muon, the vector by NAdam. */
static void muon_for_matrices(void **state)
{
    (void)state;
    static const tow_gradient_transform *const matrices[] = LIST_OF(&muon.base, &decay.base, &rate.base);
    static const tow_gradient_transform *const others[] = LIST_OF(&nadam.base, &rate.base);
    const tow_chain of_matrices = chain_of(matrices), of_others = chain_of(others);
    const tow_partition_rule rules[] = {{"b", TOW_GRADIENT_TRANSFORM(&of_others)},
                                        {"**", TOW_GRADIENT_TRANSFORM(&of_matrices)}};
    const tow_partition partition = TOW_PARTITION(.rules = rules, .n = 2);
    expect("muon", TOW_GRADIENT_TRANSFORM(&partition), TOW_F32, 2e-5);
    expect("muon", TOW_GRADIENT_TRANSFORM(&partition), TOW_F64, 1e-11);
    tow_array *vector;
    tow_params *params;
    tow_optimizer_state *none;
    OK(tow_array_create(ctx, type_of(0, TOW_F32), &vector));
    OK(tow_params_from_arrays(ctx, 1, paths, &vector, &params));
    expect_error(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&of_matrices), params, NULL, &none),
                 TOW_INVALID_ARGUMENT, "muon of parameter b: expected a matrix, found f32[7]", "TOW_PARTITION");
    tow_params_free(params);
    tow_array_release(vector);
}

/* Schedules at steps 0 to 14. Optax computes them in f32 or f64. */
static void schedules(void **state)
{
    (void)state;
    static const int64_t boundaries[] = {3, 4, 9}, restart = 6, backwards[] = {9, 4};
    static const double scales[] = {0.5, 0.1, 3};
    const tow_schedule waves[] = {tow_schedule_warmup_cosine(0.1, 1, 2, 6, 0.2),
                                  tow_schedule_warmup_cosine(0.2, 0.6, 1, 5, 0)};
    const tow_schedule parts[] = {tow_schedule_linear(0, 1, 3, 0), tow_schedule_constant(7),
                                  tow_schedule_exponential(1, 2, 0.5, 0, true)};
    const struct {
        const char *name;
        tow_schedule schedule;
    } cases[] = {{"linear", tow_schedule_linear(1, 0.1, 6, 3)},
                 {"polynomial", tow_schedule_polynomial(1, 0.1, 2.5, 9, 2)},
                 {"exponential", tow_schedule_exponential(0.5, 4, 0.3, 2, false)},
                 {"staircase", tow_schedule_exponential(0.5, 4, 0.3, 2, true)},
                 {"cosine", tow_schedule_cosine(0.5, 9, 0.1, 1.5)},
                 {"piecewise", tow_schedule_piecewise_constant(2, 3, boundaries, scales)},
                 {"linear_onecycle", tow_schedule_linear_onecycle(11, 0.7)},
                 {"cosine_onecycle", tow_schedule_cosine_onecycle(11, 0.7)},
                 {"restarts", tow_schedule_joined(2, waves, &restart)},
                 {"joined_backwards", tow_schedule_joined(3, parts, backwards)}};
    enum {
        CASES = sizeof cases / sizeof *cases
    };
    static char line[1 << 14];
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/optax.txt", "r");
    int found = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        char name[32];
        int read;
        if (strncmp(line, "schedule ", 9) != 0 || sscanf(line, "schedule %31s -%n", name, &read) != 1) continue;
        size_t k = 0;
        while (k < CASES && strcmp(cases[k].name, name) != 0) k++;
        assert_true(k < CASES);
        char *at = line + read;
        for (int64_t step = 0; step < 15; step++) {
            const double expected = strtod(at, &at), value = tow_schedule_at(&cases[k].schedule, step);
            if (!(fabs(value - expected) <= 2e-7)) /* some of f32 */
                fail_msg("%s at %d: expected %.9g, found %.9g", name, (int)step, expected, value);
        }
        found++;
    }
    fclose(file);
    assert_int_equal(found, CASES);
    assert_true(isnan(tow_schedule_at(&(tow_schedule){.kind = TOW_SCHEDULE_JOINED}, 0)));
    assert_true(isnan(tow_schedule_at(&(tow_schedule){.kind = TOW_SCHEDULE_FUNCTION}, 0)));
    assert_true(isnan(tow_schedule_at(&(tow_schedule){.kind = (tow_schedule_kind)77}, 0)));
    assert_true(tow_schedule_at(&cases[0].schedule, -5) == 1);
    const tow_schedule early = tow_schedule_linear(1, 0, 4, -2), late = tow_schedule_exponential(1, 4, 0.5, -4, false);
    assert_true(tow_schedule_at(&early, 2) == 0.5 && tow_schedule_at(&late, 4) == 0.5); /* as if they began at 0 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(trajectories, setup, teardown),
        cmocka_unit_test(schedules),
        cmocka_unit_test_setup_teardown(muon_for_matrices, setup, teardown),
    };
    return cmocka_run_group_tests_name("optimizer_optax", tests, NULL, NULL);
}

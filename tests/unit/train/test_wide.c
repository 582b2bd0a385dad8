/* Parameters of 16 bits that are updated in f32: masters have the bits of an optimizer of f32, roundings at random go
 * to the two neighbors and are right on average, layers of a stack are rounded as layers of their own.
 * Tests wide.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/dtypes.h"
#include "tests/unit/support/running_layer.h"

/* ---- one list of parameters -------------------------------------------------------------------------------------- */

enum {
    MOST = 4
};

typedef struct list {
    size_t n;
    tow_array *parameters[MOST], *gradients[MOST];
    tow_params *params;
    tow_optimizer_state *state;
    tow_scale scale;
} list;

static const tow_dtype halves[] = {TOW_BF16, TOW_F16};

static double number_in(const tow_array *array, int64_t i)
{
    return tow__load_element(tow_array_type(array).dtype, tow_array_data(array), i).f;
}

static void set_number(tow_array *array, int64_t i, double value)
{
    tow__store_element(tow_array_type(array).dtype, tow_array_data(array), i, value);
}

/* Multiples of 1/64 between -2 and 2, in seven bits: exact in all types. */
static double fraction(int64_t i, int step) { return (double)((i * 7919 + step * 31) % 127 - 63) / 32; }

static tow_status make_list(tow_context *c, list *l, size_t n, const char *const *paths, const tow_type *types)
{
    tow_status status = TOW_OK;
    *l = (list){.n = n};
    for (size_t i = 0; i < n && !status; i++) {
        status = tow_array_create(c, types[i], &l->parameters[i]);
        if (!status) status = tow_array_create(c, types[i], &l->gradients[i]);
        for (int64_t k = 0; k < tow_type_element_count(types[i]) && !status; k++)
            set_number(l->parameters[i], k, fraction(k + (int64_t)i, 0));
    }
    return status ? status : tow_params_from_arrays(c, n, paths, l->parameters, &l->params);
}

static void free_list(list *l)
{
    tow_optimizer_free(l->state);
    tow_params_free(l->params);
    for (size_t i = 0; i < l->n; i++) {
        tow_array_release(l->parameters[i]);
        tow_array_release(l->gradients[i]);
    }
}

static void fill_gradients(list *l, int step)
{
    for (size_t i = 0; i < l->n; i++)
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(l->gradients[i])); k++)
            set_number(l->gradients[i], k, fraction(3 * k + (int64_t)i, step));
}

/* AdamW with decay, of which moments and decay are in f32 as well. */
static tow_status make_adamw(tow_context *c, list *l, const tow_optimizer_options *options)
{
    static const tow_scale_by_adam adam = {.base = {&tow_scale_by_adam_class, sizeof adam}};
    static const tow_add_decayed_weights decay = {
        .base = {&tow_add_decayed_weights_class, sizeof decay}, .weight_decay = 0.1, .decay_all = true};
    static const tow_scale_by_learning_rate rate = {.base = {&tow_scale_by_learning_rate_class, sizeof rate},
                                                    .schedule = {.kind = TOW_SCHEDULE_CONSTANT, .peak_value = 1e-3}};
    static const tow_gradient_transform *const transforms[] = {&adam.base, &decay.base, &rate.base};
    static const tow_chain chain = {{&tow_chain_class, sizeof chain}, transforms, 3};
    return tow_optimizer_create(c, &chain.base, l->params, options, &l->state);
}

/* p + factor g. */
static void make_scale(list *l, double factor, const tow_optimizer_options *options)
{
    l->scale = TOW_SCALE(.factor = factor);
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&l->scale), l->params, options, &l->state));
}

/* ---- masters ----------------------------------------------------------------------------------------------------- */

static const char *const layer_paths[] = {"blocks/{}/w", "bias", "{@1}/w"};
static void layer_types(tow_dtype dtype, tow_type types[3])
{
    types[0] = tow_make_type(dtype, 3, (int64_t[]){3, 4, 5});
    types[1] = tow_make_type(dtype, 1, (int64_t[]){37});
    types[2] = tow_make_type(dtype, 2, (int64_t[]){5, 3});
}

/* Masters are the parameters of the same optimizer in f32, and parameters are their nearest neighbors. */
static void masters_are_f32(void **unused)
{
    (void)unused;
    for (size_t h = 0; h < 2; h++) {
        tow_type types[3], wide[3];
        list l, f32;
        layer_types(halves[h], types);
        layer_types(TOW_F32, wide);
        OK(make_list(ctx, &l, 3, layer_paths, types));
        OK(make_list(ctx, &f32, 3, layer_paths, wide));
        OK(make_adamw(ctx, &l, &TOW_OPTIMIZER_OPTIONS(.master = true)));
        OK(make_adamw(ctx, &f32, NULL));
        assert_int_equal(tow_optimizer_bytes(l.state), (60 + 37 + 15) * 3 * 4);
        for (int step = 0; step < 5; step++) {
            fill_gradients(&l, step);
            fill_gradients(&f32, step);
            OK(tow_optimizer_update(l.state, l.gradients));
            OK(tow_optimizer_update(f32.state, f32.gradients));
        }
        tow_params *masters = tow_optimizer_find_slot(l.state, "master/weights/");
        assert_non_null(masters);
        for (size_t i = 0; i < 2; i++) { /* of the third one layers are in front */
            const tow_array *master = tow_params_find(masters, layer_paths[i]);
            assert_int_equal(tow_array_type(master).dtype, TOW_F32);
            assert_memory_equal(tow_array_data(master), tow_array_data(f32.parameters[i]), tow_type_bytes(wide[i]));
        }
        for (size_t i = 0; i < 3; i++)
            for (int64_t k = 0; k < tow_type_element_count(types[i]); k++) {
                uint16_t nearest[2];
                tow__store_element(halves[h], nearest, 0, number_in(f32.parameters[i], k));
                assert_memory_equal((uint16_t *)tow_array_data(l.parameters[i]) + k, nearest, sizeof nearest[0]);
            }
        free_list(&l);
        free_list(&f32);
    }
}

/* 100 steps of 1e-3 leave 1.0 where it is without a master. */
static void small_steps_count(void **unused)
{
    (void)unused;
    const tow_type type = tow_make_type(TOW_BF16, 1, (int64_t[]){2});
    const char *const path = "w";
    for (int master = 0; master < 2; master++) {
        list l;
        OK(make_list(ctx, &l, 1, &path, &type));
        make_scale(&l, -1, &TOW_OPTIMIZER_OPTIONS(.master = master));
        for (int64_t k = 0; k < 2; k++) set_number(l.parameters[0], k, 1), set_number(l.gradients[0], k, 0x1p-10);
        for (int step = 0; step < 100; step++) OK(tow_optimizer_update(l.state, l.gradients));
        assert_true(number_in(l.parameters[0], 0) == (master ? 0.90234375 : 1)); /* 1 - 100/1024 = 0.90234375 */
        free_list(&l);
    }
}

/* A parameter that somebody sets begins there; the others go on with their masters. */
static void parameters_may_be_set(void **unused)
{
    (void)unused;
    const tow_type type = tow_make_type(TOW_BF16, 1, (int64_t[]){2});
    const char *const path = "w";
    list l;
    OK(make_list(ctx, &l, 1, &path, &type));
    make_scale(&l, -1, &TOW_OPTIMIZER_OPTIONS(.master = true));
    for (int64_t k = 0; k < 2; k++) set_number(l.parameters[0], k, 1), set_number(l.gradients[0], k, 0x1p-10);
    OK(tow_optimizer_update(l.state, l.gradients));
    set_number(l.parameters[0], 0, 4);
    OK(tow_optimizer_update(l.state, l.gradients));
    const float *masters = tow_array_data(tow_params_find(tow_optimizer_find_slot(l.state, "master/weights/"), path));
    assert_true(masters[0] == 4 - 0x1p-10F);
    assert_true(masters[1] == 1 - 0x1p-9F);
    free_list(&l);
}

/* ---- stochastic rounding ----------------------------------------------------------------------------------------- */

enum {
    DRAWS = 1 << 16
};

/* Every result is a neighbor of 1 + x, and their mean is right: four standard deviations of the mean. */
static void rounds_to_neighbors(void **unused)
{
    (void)unused;
    static const struct {
        tow_dtype dtype;
        double from, step, below, above;
    } cases[] = {
        {TOW_BF16, 1, 0x1p-9 * 0.75, 1, 1 + 0x1p-7},             /* 3/16 of the way */
        {TOW_BF16, -1, -0x1p-7 * 0.5, -1 - 0x1p-7, -1},          /* half of it */
        {TOW_F16, 1, 0x1p-10 * 0.875, 1, 1 + 0x1p-10},           /* 7/8 */
        {TOW_F16, 0x1p-20, 0x1p-26, 0x1p-20, 0x1p-20 + 0x1p-24}, /* subnormal, a quarter */
        {TOW_F16, -0x1p-20, -0x1p-26, -0x1p-20 - 0x1p-24, -0x1p-20},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const tow_type type = tow_make_type(cases[c].dtype, 1, (int64_t[]){DRAWS});
        const char *const path = "w";
        const double x = cases[c].from + cases[c].step, way = cases[c].above - cases[c].below;
        double mean = 0;
        list l;
        OK(make_list(ctx, &l, 1, &path, &type));
        make_scale(&l, cases[c].step, &TOW_OPTIMIZER_OPTIONS(.stochastic_rounding = true, .seed = 5));
        assert_int_equal(tow_optimizer_bytes(l.state), 0);
        for (int64_t k = 0; k < DRAWS; k++)
            set_number(l.parameters[0], k, cases[c].from), set_number(l.gradients[0], k, 1);
        OK(tow_optimizer_update(l.state, l.gradients));
        for (int64_t k = 0; k < DRAWS; k++) {
            const double found = number_in(l.parameters[0], k);
            if (found != cases[c].below && found != cases[c].above)
                fail_msg("case %zu: found %.9g, expected %.9g or %.9g", c, found, cases[c].below, cases[c].above);
            mean += (found - cases[c].below) / way / DRAWS;
        }
        const double share = (x - cases[c].below) / way, deviation = sqrt(share * (1 - share) / DRAWS);
        if (fabs(mean - share) > 4 * deviation)
            fail_msg("case %zu: the mean is at %.4f of the way, expected %.4f", c, mean, share);
        free_list(&l);
    }
}

/* All numbers of the type stay as they are when nothing is added, whatever the random bits are. */
static void numbers_of_the_type_stay(void **unused)
{
    (void)unused;
    const char *const path = "w";
    for (size_t h = 0; h < 2; h++) {
        const tow_type type = tow_make_type(halves[h], 1, (int64_t[]){DRAWS});
        list l;
        OK(make_list(ctx, &l, 1, &path, &type));
        make_scale(&l, -1, &TOW_OPTIMIZER_OPTIONS(.stochastic_rounding = true));
        uint16_t *bits = tow_array_data(l.parameters[0]);
        for (int64_t k = 0; k < DRAWS; k++) bits[k] = (uint16_t)k;
        memset(tow_array_data(l.gradients[0]), 0, tow_type_bytes(type));
        for (int step = 0; step < 4; step++) OK(tow_optimizer_update(l.state, l.gradients));
        for (int64_t k = 0; k < DRAWS; k++) {
            uint16_t was[2] = {(uint16_t)k};
            const double expected = tow__load_element(halves[h], was, 0).f, found = number_in(l.parameters[0], k);
            /* subnormal numbers of bf16 are subnormal in f32, and updates flush those */
            const bool flushed = halves[h] == TOW_BF16 && fabs(expected) < 0x1p-126;
            if (flushed ? found != 0 : isnan(expected) ? !isnan(found) : found != expected)
                fail_msg("%04x: expected %.9g, found %.9g", (unsigned)k, expected, found);
        }
        free_list(&l);
    }
}

/* Numbers between the largest one of the type and infinity are rounded to nearest. */
static void largest_numbers_stay_finite(void **unused)
{
    (void)unused;
    const char *const path = "w";
    const double largest[2] = {0x1.fep127, 65504}, less_than_half[2] = {0x1p118, 10};
    for (size_t h = 0; h < 2; h++) {
        const tow_type type = tow_make_type(halves[h], 1, (int64_t[]){DRAWS});
        list l;
        OK(make_list(ctx, &l, 1, &path, &type));
        make_scale(&l, -1, &TOW_OPTIMIZER_OPTIONS(.stochastic_rounding = true));
        for (int64_t k = 0; k < DRAWS; k++) {
            set_number(l.parameters[0], k, largest[h]);
            set_number(l.gradients[0], k, -less_than_half[h]);
        }
        OK(tow_optimizer_update(l.state, l.gradients));
        for (int64_t k = 0; k < DRAWS; k++)
            if (number_in(l.parameters[0], k) != largest[h])
                fail_msg("expected %g, found %g", largest[h], number_in(l.parameters[0], k));
        free_list(&l);
    }
}

/* Layers of a stack are rounded as the parameters "blocks/0/w", "blocks/1/w", "blocks/2/w"; each with bits of its own,
 * which the seed, the step and the path change. */
static void stacks_are_layers(void **unused)
{
    (void)unused;
    enum {
        LAYERS = 3,
        SIZE = 64
    };
    const tow_type whole = tow_make_type(TOW_BF16, 2, (int64_t[]){LAYERS, SIZE}),
                   one = tow_make_type(TOW_BF16, 1, (int64_t[]){SIZE});
    const char *const stacked[] = {"blocks/{}/w"}, *const single[] = {"blocks/0/w", "blocks/1/w", "blocks/2/w"};
    const tow_type ones[LAYERS] = {one, one, one};
    uint16_t steps[2][LAYERS * SIZE];
    list a, b;
    OK(make_list(ctx, &a, 1, stacked, &whole));
    OK(make_list(ctx, &b, LAYERS, single, ones));
    make_scale(&a, -1, &TOW_OPTIMIZER_OPTIONS(.stochastic_rounding = true, .seed = 9));
    make_scale(&b, -1, &TOW_OPTIMIZER_OPTIONS(.stochastic_rounding = true, .seed = 9));
    for (int step = 0; step < 2; step++) {
        for (int64_t k = 0; k < LAYERS * SIZE; k++) {
            set_number(a.parameters[0], k, 1), set_number(a.gradients[0], k, 0x1p-9);
            set_number(b.parameters[k / SIZE], k % SIZE, 1), set_number(b.gradients[k / SIZE], k % SIZE, 0x1p-9);
        }
        OK(tow_optimizer_update(a.state, a.gradients));
        OK(tow_optimizer_update(b.state, b.gradients));
        memcpy(steps[step], tow_array_data(a.parameters[0]), sizeof steps[step]);
        for (int i = 0; i < LAYERS; i++)
            assert_memory_equal(steps[step] + SIZE * i, tow_array_data(b.parameters[i]), SIZE * 2);
    }
    assert_memory_not_equal(steps[0], steps[1], sizeof steps[0]);
    assert_memory_not_equal(steps[0], steps[0] + SIZE, SIZE * 2);
    free_list(&a);
    free_list(&b);
}

/* ---- moments of other types -------------------------------------------------------------------------------------- */

static float in_bf16(double x)
{
    uint16_t bits[2];
    tow__store_element(TOW_BF16, bits, 0, x);
    return (float)tow__load_element(TOW_BF16, bits, 0).f;
}

/* m = g + decay m, and the average decay m + (1 - decay) g: m is multiplied as it is kept, in bf16, and the update is
 * made of what is not rounded yet, as in Optax. Parameters of bf16 whose m is kept in f32 lose nothing of it. */
static void accumulators_have_types(void **unused)
{
    (void)unused;
    enum {
        SIZE = 16
    };
    const char *const path = "w";
    for (int way = 0; way < 4; way++) {
        const bool average = way & 1, wide = way & 2;
        const tow_dtype own = wide ? TOW_BF16 : TOW_F32, kept = wide ? TOW_F32 : TOW_BF16;
        const tow_type type = tow_make_type(own, 1, (int64_t[]){SIZE});
        tow_trace_gradients trace = TOW_TRACE_GRADIENTS(.decay = 0.75, .accumulator_dtype = kept);
        tow_ema_gradients ema = TOW_EMA_GRADIENTS(.decay = 0.75, .accumulator_dtype = kept);
        float m[SIZE] = {0};
        list l;
        OK(make_list(ctx, &l, 1, &path, &type));
        OK(tow_optimizer_create(ctx, average ? TOW_GRADIENT_TRANSFORM(&ema) : TOW_GRADIENT_TRANSFORM(&trace), l.params,
                                NULL, &l.state));
        for (int step = 0; step < 3; step++) {
            float expected[SIZE];
            fill_gradients(&l, step);
            for (int k = 0; k < SIZE; k++) {
                const float g = (float)number_in(l.gradients[0], k), p = (float)number_in(l.parameters[0], k);
                const float old = wide ? m[k] * 0.75f : in_bf16((double)(m[k] * 0.75f));
                float term = average ? g * 0.25f : g;
                if (wide && average) term = in_bf16((double)term);
                const float now = term + old;
                m[k] = wide ? now : in_bf16((double)now);
                expected[k] = wide ? in_bf16((double)(p + in_bf16((double)now))) : p + now;
            }
            OK(tow_optimizer_update(l.state, l.gradients));
            for (int k = 0; k < SIZE; k++)
                if (number_in(l.parameters[0], k) != (double)expected[k])
                    fail_msg("way %d, step %d, element %d: expected %.9g, found %.9g", way, step, k,
                             (double)expected[k], number_in(l.parameters[0], k));
        }
        tow_params *slot = tow_optimizer_find_slot(l.state, average ? "ema/ema/" : "sgd/trace/");
        assert_int_equal(tow_array_type(tow_params_find(slot, path)).dtype, kept);
        free_list(&l);
    }
    const tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){SIZE});
    tow_trace_gradients wrong = TOW_TRACE_GRADIENTS(.accumulator_dtype = TOW_I32);
    list l;
    OK(make_list(ctx, &l, 1, &path, &type));
    expect_error(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&wrong), l.params, NULL, &l.state),
                 TOW_INVALID_ARGUMENT, ".accumulator_dtype: expected a float type");
    free_list(&l);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void one_of_the_two(void **unused)
{
    (void)unused;
    const tow_type type = tow_make_type(TOW_BF16, 1, (int64_t[]){2});
    const char *const path = "w";
    list l;
    OK(make_list(ctx, &l, 1, &path, &type));
    expect_error(make_adamw(ctx, &l, &TOW_OPTIMIZER_OPTIONS(.master = true, .stochastic_rounding = true)),
                 TOW_INVALID_ARGUMENT, "found .master and .stochastic_rounding");
    expect_error(make_adamw(ctx, &l, &TOW_OPTIMIZER_OPTIONS(.master = true, .line_search = true)), TOW_INVALID_ARGUMENT,
                 "neither .master nor .stochastic_rounding with .line_search");
    free_list(&l);
}

static tow_status make_and_run(tow_context *c)
{
    list l;
    tow_type types[3];
    layer_types(TOW_F16, types);
    tow_status status = make_list(c, &l, 3, layer_paths, types);
    if (!status) status = make_adamw(c, &l, &TOW_OPTIMIZER_OPTIONS(.stochastic_rounding = true));
    if (!status) status = tow_optimizer_update(l.state, l.gradients);
    free_list(&l);
    return status;
}

static void allocations_may_fail(void **unused)
{
    (void)unused;
    fail_in_turn(make_and_run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(masters_are_f32, setup, teardown),
        cmocka_unit_test_setup_teardown(small_steps_count, setup, teardown),
        cmocka_unit_test_setup_teardown(parameters_may_be_set, setup, teardown),
        cmocka_unit_test_setup_teardown(rounds_to_neighbors, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_of_the_type_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(largest_numbers_stay_finite, setup, teardown),
        cmocka_unit_test_setup_teardown(stacks_are_layers, setup, teardown),
        cmocka_unit_test_setup_teardown(accumulators_have_types, setup, teardown),
        cmocka_unit_test_setup_teardown(one_of_the_two, setup, teardown),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests_name("wide", tests, NULL, NULL);
}

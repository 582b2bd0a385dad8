/* Optimizers of gradient transforms: those of one's own, stacks of layers, rules by path, numbers that are set, updates
 * piece by piece. Expectations are computed with plain loops.
 * Tests optimizer.c, optimizer_params.c, optimizer_state.c, options.c, update.c, update_graph.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/train/update.h"
#include "tests/unit/support/running_layer.h"

/* ---- parameters -------------------------------------------------------------------------------------------------- */

enum {
    PARAMETERS = 3
};
static const char *const paths[PARAMETERS] = {"blocks/{}/w", "bias", "outer/{}/inner/{}/w"};
static tow_type type_of(size_t i)
{
    static const int64_t dims[PARAMETERS][4] = {{3, 4, 5}, {7, 0, 0}, {2, 3, 2, 2}};
    static const int ranks[PARAMETERS] = {3, 1, 4};
    return tow_make_type(TOW_F32, ranks[i], dims[i]);
}

typedef struct problem {
    tow_context *ctx;
    tow_array *parameters[PARAMETERS], *gradients[PARAMETERS];
    tow_params *params;
} problem;

static float value_at(size_t parameter, int64_t i, int step)
{
    return (float)((i * 7919 + (int64_t)parameter * 31 + step * 17) % 257 - 128) / 64;
}

static tow_status make_problem(tow_context *c, problem *p)
{
    *p = (problem){.ctx = c};
    for (size_t i = 0; i < PARAMETERS; i++) {
        tow_status status = tow_array_create(c, type_of(i), &p->parameters[i]);
        if (!status) status = tow_array_create(c, type_of(i), &p->gradients[i]);
        if (status) return status;
        for (int64_t k = 0; k < tow_type_element_count(type_of(i)); k++)
            ((float *)tow_array_data(p->parameters[i]))[k] = value_at(i, k, 1000);
    }
    return tow_params_from_arrays(c, PARAMETERS, paths, p->parameters, &p->params);
}

static void fill_gradients(problem *p, int step)
{
    for (size_t i = 0; i < PARAMETERS; i++)
        for (int64_t k = 0; k < tow_type_element_count(type_of(i)); k++)
            ((float *)tow_array_data(p->gradients[i]))[k] = value_at(i, k, step);
}

static void free_problem(problem *p)
{
    tow_params_free(p->params);
    for (size_t i = 0; i < PARAMETERS; i++) {
        tow_array_release(p->parameters[i]);
        tow_array_release(p->gradients[i]);
    }
}

/* ---- a transform of one's own ------------------------------------------------------------------------------------ */

typedef struct lion {
    tow_gradient_transform base;
    double b1, b2;
} lion;

static tow_value lion_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    const lion *o = (const lion *)self;
    tow_value m = tow_slot(u, "mu");
    (void)p;
    tow_set_slot(u, "mu", tow_add(tow_mul_scalar(m, o->b2), tow_mul_scalar(g, 1 - o->b2)));
    return tow_sign(tow_add(tow_mul_scalar(m, o->b1), tow_mul_scalar(g, 1 - o->b1)));
}
static const tow_gradient_transform_class lion_class = {.name = "lion", .each = lion_each};

/* g / |g| of each layer, by a slot that counts and one that is no array like the parameter. */
typedef struct normalize {
    tow_gradient_transform base;
} normalize;

static tow_value normalize_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)self, (void)p;
    tow_value norm = tow_sqrt(tow_reduce_sum(tow_mul(g, g), 0, NULL));
    tow_value last = tow_slot_with(u, "norm", tow_make_type(TOW_F32, 0, NULL), 0.5);
    tow_set_slot(u, "norm", norm);
    const tow_type type = tow_value_type(g);
    return tow_div(g, tow_broadcast_to(tow_add(norm, last), type.rank, type.dims));
}
static const tow_gradient_transform_class normalize_class = {.name = "normalize", .each = normalize_each};

static double halves(int64_t step, const void *user) { return *(const double *)user / (double)(1 << step); }

static const double first_rate = 0.5;

static tow_status run_lion(tow_context *c, problem *p, int steps, tow_optimizer_state **state)
{
    static const lion mine = {{&lion_class}, .b1 = 0.9, .b2 = 0.99};
    static const tow_scale_by_learning_rate rate = {
        {&tow_scale_by_learning_rate_class, sizeof(tow_scale_by_learning_rate)},
        .schedule = {.kind = TOW_SCHEDULE_FUNCTION, .function = halves, .user = &first_rate}};
    static const tow_gradient_transform *const list[] = {TOW_GRADIENT_TRANSFORM(&mine), TOW_GRADIENT_TRANSFORM(&rate)};
    static const tow_chain chain = {{&tow_chain_class, sizeof(tow_chain)}, list, 2};
    tow_status status = tow_optimizer_create(c, TOW_GRADIENT_TRANSFORM(&chain), p->params, NULL, state);
    for (int step = 0; step < steps && !status; step++) {
        fill_gradients(p, step);
        status = tow_optimizer_update(*state, p->gradients);
    }
    return status;
}

static void own_transforms(void **unused)
{
    (void)unused;
    problem p;
    tow_optimizer_state *state;
    OK(make_problem(ctx, &p));
    OK(run_lion(ctx, &p, 3, &state));
    assert_int_equal(tow_optimizer_step_count(state), 3);
    assert_int_equal(tow_optimizer_slot_count(state), 1);
    assert_string_equal(tow_optimizer_slot_prefix(state, 0), "lion/mu/");
    assert_int_equal(tow_optimizer_bytes(state), (60 + 7 + 24) * sizeof(float));
    for (size_t i = 0; i < PARAMETERS; i++) {
        const float *moments = tow_array_data(tow_params_find(tow_optimizer_slot(state, 0), paths[i]));
        for (int64_t k = 0; k < tow_type_element_count(type_of(i)); k++) {
            float x = value_at(i, k, 1000), m = 0;
            for (int step = 0; step < 3; step++) {
                const float g = value_at(i, k, step), mixed = m * 0.9f + g * (float)(1 - 0.9);
                const float sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : 0.0f;
                m = m * 0.99f + g * (float)(1 - 0.99);
                x -= (float)(0.5 / (1 << step)) * sign;
            }
            assert_true(((float *)tow_array_data(p.parameters[i]))[k] == x);
            assert_true(moments[k] == m);
        }
    }
    tow_optimizer_free(state);
    free_problem(&p);
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

/* Layers of a stack are updated as parameters of their own are. */
static void stacks_are_layers(void **unused)
{
    (void)unused;
    static const normalize mine = {{&normalize_class}};
    problem p;
    tow_array *layers[9], *gradients[9];
    char names[9][16];
    const char *layer_paths[9];
    tow_params *params;
    tow_optimizer_state *whole, *single;
    OK(make_problem(ctx, &p));
    for (int64_t i = 0; i < 9; i++) { /* 3 of the first parameter, 6 of the third one */
        tow_array *row, *of = i < 3 ? p.parameters[0] : p.parameters[2], *copy;
        OK(tow_array_row(of, i < 3 ? i : (i - 3) / 3, &row));
        if (i >= 3) {
            tow_array *outer = row;
            OK(tow_array_row(outer, (i - 3) % 3, &row));
            tow_array_release(outer);
        }
        OK(tow_array_from_data(ctx, tow_array_type(row), tow_array_data(row), &copy));
        tow_array_release(row);
        layers[i] = copy;
        OK(tow_array_create(ctx, tow_array_type(copy), &gradients[i]));
        snprintf(names[i], sizeof names[i], "layer_%d", (int)i);
        layer_paths[i] = names[i];
    }
    OK(tow_params_from_arrays(ctx, 9, layer_paths, layers, &params));
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&mine), p.params, NULL, &whole));
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&mine), params, NULL, &single));
    for (int step = 0; step < 3; step++) {
        fill_gradients(&p, step);
        const float *first = tow_array_data(p.gradients[0]), *third = tow_array_data(p.gradients[2]);
        for (int i = 0; i < 9; i++)
            memcpy(tow_array_data(gradients[i]), i < 3 ? first + 20 * i : third + 4 * (i - 3),
                   (i < 3 ? 20 : 4) * sizeof(float));
        OK(tow_optimizer_update(whole, p.gradients));
        OK(tow_optimizer_update(single, gradients));
    }
    const float *first = tow_array_data(p.parameters[0]), *third = tow_array_data(p.parameters[2]);
    for (int i = 0; i < 9; i++)
        assert_memory_equal(tow_array_data(layers[i]), i < 3 ? first + 20 * i : third + 4 * (i - 3),
                            (i < 3 ? 20 : 4) * sizeof(float));
    tow_params *norms = tow_optimizer_slot(whole, 0);
    assert_int_equal(tow_array_type(tow_params_find(norms, "outer/{}/inner/{}/w")).rank, 2);
    tow_optimizer_free(whole);
    tow_optimizer_free(single);
    tow_params_free(params);
    for (int i = 0; i < 9; i++) {
        tow_array_release(layers[i]);
        tow_array_release(gradients[i]);
    }
    free_problem(&p);
}

/* ---- rules by path, numbers -------------------------------------------------------------------------------------- */

static void patterns_match(void **unused)
{
    (void)unused;
    static const struct {
        const char *pattern, *path;
        bool matches;
    } cases[] = {{"**", "a/b/c", true},
                 {"**", "", true},
                 {"*", "a", true},
                 {"*", "a/b", false},
                 {"blocks/*/mlp/**", "blocks/{}/mlp/up/kernel", true},
                 {"blocks/*/mlp/**", "blocks/{}/attn/kernel", false},
                 {"blocks/*/mlp/**", "blocks/{}/mlp", false},
                 {"**/kernel", "a/b/kernel", true},
                 {"**/kernel", "kernel", false},
                 {"**kernel", "kernel", true},
                 {"a*c/d", "abbc/d", true},
                 {"a*c/d", "ab/c/d", false},
                 {"**b*c", "abxb/bc", true},
                 {"**b*c", "abxb/b/c", false},
                 {"", "", true},
                 {"", "a", false},
                 {"a", "", false},
                 {"*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (tow_path_matches(cases[i].pattern, cases[i].path) != cases[i].matches)
            fail_msg("'%s' and '%s'", cases[i].pattern, cases[i].path);
}

static void rules_by_path(void **unused)
{
    (void)unused;
    const tow_scale little = TOW_SCALE(.factor = -0.25), large = TOW_SCALE(.factor = -2);
    const tow_partition_rule rules[] = {
        {"blocks/*/w", TOW_GRADIENT_TRANSFORM(&little)}, {"bias", NULL}, {"**", TOW_GRADIENT_TRANSFORM(&large)}};
    const tow_partition partition = TOW_PARTITION(.rules = rules, .n = 3);
    static const float factors[PARAMETERS] = {-0.25f, 0, -2};
    problem p;
    tow_optimizer_state *state;
    OK(make_problem(ctx, &p));
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&partition), p.params, NULL, &state));
    fill_gradients(&p, 0);
    ((float *)tow_array_data(p.parameters[1]))[0] = -0.0f;
    OK(tow_optimizer_update(state, p.gradients));
    for (size_t i = 0; i < PARAMETERS; i++)
        for (int64_t k = 1; k < tow_type_element_count(type_of(i)); k++)
            assert_true(((float *)tow_array_data(p.parameters[i]))[k] ==
                        value_at(i, k, 1000) + factors[i] * value_at(i, k, 0));
    assert_true(signbit(((float *)tow_array_data(p.parameters[1]))[0])); /* frozen to the bit */
    tow_optimizer_free(state);
    const tow_partition open = TOW_PARTITION(.rules = rules, .n = 2);
    assert_int_equal(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&open), p.params, NULL, &state), TOW_NOT_FOUND);
    assert_non_null(strstr(tow_context_error(ctx), "no rule of the partition matches parameter outer/{}/inner/{}/w"));
    const tow_partition_rule misspelled[] = {{"block/**", NULL}, {"**", TOW_GRADIENT_TRANSFORM(&large)}};
    const tow_partition idle = TOW_PARTITION(.rules = misspelled, .n = 2);
    assert_int_equal(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&idle), p.params, NULL, &state), TOW_NOT_FOUND);
    assert_non_null(strstr(tow_context_error(ctx), "no parameter matches rule \"block/**\" of the partition"));
    const tow_chain inner = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&partition), TOW_GRADIENT_TRANSFORM(&little));
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&inner), p.params, NULL, &state));
    tow_optimizer_free(state);
    free_problem(&p);
}

/* A parameter of several axes is the matrix that .row_axes says, bit for bit. */
static void muon_of_several_axes(void **unused)
{
    (void)unused;
    static const char *const path[] = {"w"};
    const tow_type types[] = {tow_make_type(TOW_F32, 3, (int64_t[]){4, 2, 3}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){4, 6}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){8, 3})};
    const tow_scale_by_muon ways[] = {TOW_SCALE_BY_MUON(.row_axes = 1), TOW_SCALE_BY_MUON(.row_axes = 2),
                                      TOW_SCALE_BY_MUON(), TOW_SCALE_BY_MUON()};
    static const int shapes[] = {0, 0, 1, 2};
    float results[4][24];
    for (int way = 0; way < 4; way++) {
        tow_array *parameter, *gradient;
        tow_params *params;
        tow_optimizer_state *state;
        OK(tow_array_create(ctx, types[shapes[way]], &parameter));
        OK(tow_array_create(ctx, types[shapes[way]], &gradient));
        for (int k = 0; k < 24; k++) ((float *)tow_array_data(gradient))[k] = value_at(0, k, 3);
        OK(tow_params_from_arrays(ctx, 1, path, &parameter, &params));
        OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&ways[way]), params, NULL, &state));
        for (int step = 0; step < 3; step++) OK(tow_optimizer_update(state, &gradient));
        memcpy(results[way], tow_array_data(parameter), sizeof results[way]);
        tow_optimizer_free(state);
        const tow_scale_by_muon wrong = TOW_SCALE_BY_MUON(.row_axes = types[shapes[way]].rank);
        assert_int_equal(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&wrong), params, NULL, &state),
                         TOW_INVALID_ARGUMENT);
        assert_non_null(strstr(tow_context_error(ctx), ".row_axes"));
        tow_params_free(params);
        tow_array_release(parameter);
        tow_array_release(gradient);
    }
    assert_memory_equal(results[0], results[2], sizeof results[0]);
    assert_memory_equal(results[1], results[3], sizeof results[0]);
}

/* Adafactor of 16 bits goes on averaging late in training. With g = 1 up to step 3000 and 8 from there on, the average
 * of squares is d + 64 (1 - d), d = 1 - 3001^-0.8, and the update 8 over its root: 7.61, where an average that stands
 * still gives 8. Three roundings of 2^-9 (square, average, update) and two of the division allow 1 %. */
static void late_averages_of_16_bits(void **unused)
{
    (void)unused;
    const tow_scale_by_factored_rms ways[] = {TOW_SCALE_BY_FACTORED_RMS(.min_dim_size_to_factor = 2),
                                              TOW_SCALE_BY_FACTORED_RMS(.whole = true)};
    const double d = 1 - pow(3001, -0.8), expected = 8 / sqrt(d + 64 * (1 - d));
    const uint16_t one = 0x3f80, eight = 0x4100; /* bf16 */
    for (int way = 0; way < 2; way++) {
        const tow_type type = tow_make_type(TOW_BF16, 2, (int64_t[]){2, 4});
        tow_array *parameter, *gradient;
        tow_params *params;
        tow_optimizer_state *state;
        OK(tow_array_create(ctx, type, &parameter));
        OK(tow_array_create(ctx, type, &gradient));
        OK(tow_params_from_arrays(ctx, 1, (const char *const[]){"w"}, &parameter, &params));
        OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&ways[way]), params, NULL, &state));
        uint16_t *g = tow_array_data(gradient), *w = tow_array_data(parameter);
        for (int k = 0; k < 8; k++) g[k] = one;
        OK(tow_optimizer_update(state, &gradient)); /* the decay of the first step is 0: the average is 1 */
        tow_optimizer_set_step_count(state, 3000);
        for (int k = 0; k < 8; k++) g[k] = eight, w[k] = 0;
        OK(tow_optimizer_update(state, &gradient));
        for (int k = 0; k < 8; k++) {
            const uint32_t bits = (uint32_t)w[k] << 16;
            float found;
            memcpy(&found, &bits, sizeof found);
            if (!(fabs(fabs((double)found) - expected) <= 0.01 * expected))
                fail_msg("way %d: expected an update of %g, found %g", way, expected, (double)found);
        }
        tow_optimizer_free(state);
        tow_params_free(params);
        tow_array_release(parameter);
        tow_array_release(gradient);
    }
}

static void numbers_out_of_range(void **unused)
{
    (void)unused;
    const tow_scale_by_adam adam = TOW_SCALE_BY_ADAM(.eps = NAN);
    const tow_trace_gradients trace = TOW_TRACE_GRADIENTS(.decay = INFINITY);
    const tow_clip_by_global_norm norm = TOW_CLIP_BY_GLOBAL_NORM(.max_norm = 0);
    const tow_clip_elements elements = TOW_CLIP_ELEMENTS(.max_delta = -1);
    const tow_ema_gradients average = TOW_EMA_GRADIENTS(.decay = 2);
    const tow_add_decayed_weights decay = TOW_ADD_DECAYED_WEIGHTS(.weight_decay = NAN);
    const tow_clip_by_block_rms block = TOW_CLIP_BY_BLOCK_RMS(.threshold = -1);
    const tow_scale_by_learning_rate unknown = TOW_SCALE_BY_LEARNING_RATE(.schedule = {.kind = (tow_schedule_kind)99}),
                                     joined = TOW_SCALE_BY_LEARNING_RATE(.schedule = {.kind = TOW_SCHEDULE_JOINED}),
                                     infinite = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(INFINITY)),
                                     none = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(NAN));
    const tow_schedule parts[] = {tow_schedule_constant(1), tow_schedule_linear(1, NAN, 5, 0)};
    const tow_scale_by_learning_rate later =
        TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_joined(2, parts, (const int64_t[]){5}));
    const double scales[] = {1, NAN};
    const tow_scale_by_learning_rate pieces =
        TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_piecewise_constant(1, 2, (const int64_t[]){3, 4}, scales));
    const struct {
        const tow_gradient_transform *transform;
        const char *message;
    } cases[] = {
        {TOW_GRADIENT_TRANSFORM(&adam), "expected a finite eps that is not negative, found nan"},
        {TOW_GRADIENT_TRANSFORM(&trace), "expected a finite decay, found inf"},
        {TOW_GRADIENT_TRANSFORM(&norm), "expected a finite max_norm above 0, found 0"},
        {TOW_GRADIENT_TRANSFORM(&elements), "expected a finite max_delta that is not negative, found -1"},
        {TOW_GRADIENT_TRANSFORM(&average), "expected decay in [0, 1), found 2"},
        {TOW_GRADIENT_TRANSFORM(&decay), "expected a finite weight_decay, found nan"},
        {TOW_GRADIENT_TRANSFORM(&block), "expected a finite threshold above 0, found -1"},
        {TOW_GRADIENT_TRANSFORM(&unknown), "expected a schedule for number 'value', found one of an unknown kind"},
        {TOW_GRADIENT_TRANSFORM(&joined), "expected a schedule for number 'value'"},
        {TOW_GRADIENT_TRANSFORM(&infinite), "expected a finite learning rate at step 0, found inf"},
        {TOW_GRADIENT_TRANSFORM(&none),
         "expected a schedule for number 'value', found one of an unknown kind, with NaN"},
        {TOW_GRADIENT_TRANSFORM(&later), "expected a schedule for number 'value'"},
        {TOW_GRADIENT_TRANSFORM(&pieces), "expected a schedule for number 'value'"}};
    problem p;
    tow_optimizer_state *state;
    OK(make_problem(ctx, &p));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(tow_optimizer_create(ctx, cases[i].transform, p.params, NULL, &state), TOW_INVALID_ARGUMENT);
        if (!strstr(tow_context_error(ctx), cases[i].message))
            fail_msg("expected '%s' in '%s'", cases[i].message, tow_context_error(ctx));
    }
    free_problem(&p);
}

static void numbers_can_be_set(void **unused)
{
    (void)unused;
    problem p;
    tow_optimizer_state *state;
    OK(make_problem(ctx, &p));
    OK(run_lion(ctx, &p, 1, &state));
    assert_true(tow_optimizer_number(state, "learning_rate/value") == 0.25);
    OK(tow_optimizer_set_number(state, "learning_rate/value", 0));
    const float before = ((float *)tow_array_data(p.parameters[0]))[3];
    OK(tow_optimizer_update(state, p.gradients));
    assert_true(((float *)tow_array_data(p.parameters[0]))[3] == before);
    OK(tow_optimizer_set_number(state, "learning_rate/value", NAN));
    assert_true(tow_optimizer_number(state, "learning_rate/value") == 0.125);
    assert_int_equal(tow_optimizer_set_number(state, "rate", 1), TOW_NOT_FOUND);
    assert_non_null(strstr(tow_context_error(ctx), "there are: learning_rate/value"));
    assert_true(isnan(tow_optimizer_number(state, "rate")) && isnan(tow_optimizer_reported(state, "norm")));
    tow_optimizer_free(state);
    free_problem(&p);
}

static void clipping_reports(void **unused)
{
    (void)unused;
    const tow_clip_by_global_norm clip = TOW_CLIP_BY_GLOBAL_NORM(.max_norm = 0.5);
    const tow_scale minus = TOW_SCALE(.factor = -1);
    const tow_chain chain = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&clip), TOW_GRADIENT_TRANSFORM(&minus));
    problem p;
    tow_optimizer_state *state;
    OK(make_problem(ctx, &p));
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&chain), p.params, NULL, &state));
    fill_gradients(&p, 0);
    double sum = 0;
    for (size_t i = 0; i < PARAMETERS; i++)
        for (int64_t k = 0; k < tow_type_element_count(type_of(i)); k++)
            sum += (double)value_at(i, k, 0) * (double)value_at(i, k, 0);
    OK(tow_optimizer_update(state, p.gradients)); /* squares of fractions of 64: their sum is exact in any order */
    assert_true(tow_optimizer_reported(state, "clip/norm") == sqrt(sum));
    const float factor = (float)(0.5 / sqrt(sum));
    for (size_t i = 0; i < PARAMETERS; i++)
        for (int64_t k = 0; k < tow_type_element_count(type_of(i)); k++)
            assert_true(((float *)tow_array_data(p.parameters[i]))[k] ==
                        value_at(i, k, 1000) - value_at(i, k, 0) * factor);
    tow_optimizer_free(state);
    free_problem(&p);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static tow_value other_type(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)u, (void)self, (void)p;
    return tow_convert(g, TOW_F64);
}
static tow_value slot_changes(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)self, (void)p;
    tow_slot(u, "m");
    tow_set_slot(u, "m", tow_convert(g, TOW_F64));
    return g;
}
static tow_value slot_missing(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)self, (void)p;
    tow_set_slot(u, "m", g);
    return g;
}
static tow_value slot_twice(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)self, (void)p;
    tow_slot(u, "m");
    tow_slot_with(u, "m", tow_make_type(TOW_I32, 0, NULL), 0);
    return g;
}
static tow_value reports(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
{
    (void)self, (void)p;
    tow_update_report(u, "r", tow_reduce_sum(g, 0, NULL));
    return g;
}

static void wrong_transforms_are_refused(void **unused)
{
    (void)unused;
    static const struct {
        tow_gradient_transform_class cls;
        tow_status status;
        const char *message;
    } bad[] = {
        {{.name = "t", .each = other_type},
         TOW_TYPE_MISMATCH,
         "t of parameter blocks/{}/w: expected a gradient of type f32[4,5], found f64[4,5]"},
        {{.name = "t", .each = slot_changes},
         TOW_TYPE_MISMATCH,
         "slot 'm': expected a new value of the type that it has"},
        {{.name = "t", .each = slot_missing}, TOW_NOT_FOUND, "slot 'm' is written, but was not asked for"},
        {{.name = "t", .each = slot_twice},
         TOW_TYPE_MISMATCH,
         "slot 'm' is f32[3,4,5] for all layers, but is asked for as i32[3]"},
        {{.name = "t", .each = reports},
         TOW_INVALID_ARGUMENT,
         "report 'r': expected a float scalar, reported by `all`"},
        {{.name = "t"}, TOW_INVALID_ARGUMENT, "one of .each and .all"},
        {{.each = lion_each}, TOW_INVALID_ARGUMENT, "whose class has a name"},
    };
    problem p;
    tow_optimizer_state *state;
    OK(make_problem(ctx, &p));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const tow_gradient_transform transform = {&bad[i].cls};
        assert_int_equal(tow_optimizer_create(ctx, &transform, p.params, NULL, &state), bad[i].status);
        assert_null(state);
        if (!strstr(tow_context_error(ctx), bad[i].message))
            fail_msg("expected '%s' in '%s'", bad[i].message, tow_context_error(ctx));
    }
    OK(run_lion(ctx, &p, 1, &state));
    tow_array *kept = p.gradients[1];
    p.gradients[1] = NULL;
    assert_int_equal(tow_optimizer_update(state, p.gradients), TOW_INVALID_ARGUMENT);
    p.gradients[1] = p.gradients[0];
    assert_int_equal(tow_optimizer_update(state, p.gradients), TOW_TYPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "the gradient of params/bias: expected f32[7], found f32[3,4,5]"));
    p.gradients[1] = kept;
    assert_int_equal(tow_optimizer_step_count(state), 1);
    tow_optimizer_free(state);
    free_problem(&p);
}

static void lists_of_arrays(void **unused)
{
    (void)unused;
    tow_array *arrays[2];
    tow_params *params;
    for (int i = 0; i < 2; i++) OK(tow_array_create(ctx, type_of(1), &arrays[i]));
    assert_int_equal(tow_params_from_arrays(ctx, 2, (const char *const[]){"a", "a"}, arrays, &params),
                     TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "the path 'a' is there twice"));
    assert_int_equal(tow_params_from_arrays(ctx, 2, (const char *const[]){"a", ""}, arrays, &params),
                     TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_params_from_arrays(ctx, 2, (const char *const[]){"a", "\xff"}, arrays, &params),
                     TOW_INVALID_ARGUMENT);
    assert_null(params);
    OK(tow_params_from_arrays(ctx, 0, NULL, NULL, &params));
    assert_int_equal(tow_params_count(params), 0);
    tow_params_free(params);
    for (int i = 0; i < 2; i++) tow_array_release(arrays[i]);
}

static tow_status make_and_run(tow_context *c)
{
    problem p;
    tow_optimizer_state *state = NULL;
    tow_status status = make_problem(c, &p);
    if (!status) status = run_lion(c, &p, 1, &state);
    tow_optimizer_free(state);
    free_problem(&p);
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
        cmocka_unit_test_setup_teardown(own_transforms, setup, teardown),
        cmocka_unit_test_setup_teardown(stacks_are_layers, setup, teardown),
        cmocka_unit_test(patterns_match),
        cmocka_unit_test_setup_teardown(rules_by_path, setup, teardown),
        cmocka_unit_test_setup_teardown(muon_of_several_axes, setup, teardown),
        cmocka_unit_test_setup_teardown(late_averages_of_16_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_out_of_range, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_can_be_set, setup, teardown),
        cmocka_unit_test_setup_teardown(clipping_reports, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_transforms_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(lists_of_arrays, setup, teardown),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests_name("optimizer", tests, NULL, NULL);
}

/* Tests what parameters are: kinds that layers say, in lists, patterns, weight decay, partitions, Muon, LoRA and
 * summaries.
 * Tests params/param_kind.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/running_layer.h"
#include "tow/tow.h"

/* ---- weight decay ------------------------------------------------------------------------------------------------ */

static const char *last_name(const char *path) { return strrchr(path, '/') ? strrchr(path, '/') + 1 : path; }

/* Parameters 1, gradients 0, decay 0.1, rate 1: p - (0 + 0.1 p) = 0.9 for what decays, 1 for the rest. */
static void expect_decay(const tow_module *model, tow_type x, const char *const *decayed, size_t least)
{
    tow_params *params, *gradients;
    tow_optimizer_state *state;
    const tow_add_decayed_weights decay = TOW_ADD_DECAYED_WEIGHTS(.weight_decay = 0.1);
    const tow_scale_by_learning_rate rate = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(1));
    const tow_chain chain = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&decay), TOW_GRADIENT_TRANSFORM(&rate));
    OK(tow_model_init(ctx, model, 1, 1, &x, &params));
    OK(tow_params_zeros_like(params, &gradients));
    for (size_t i = 0; i < tow_params_count(params); i++) {
        tow_array *a = tow_params_array(params, i);
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(a)); k++) ((float *)tow_array_data(a))[k] = 1;
    }
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&chain), params, NULL, &state));
    OK(tow_optimizer_update_params(state, gradients));
    size_t wide = 0; /* biases and scales of two axes or more */
    for (size_t i = 0; i < tow_params_count(params); i++) {
        const char *path = tow_params_path(params, i);
        const tow_array *a = tow_params_array(params, i);
        bool decays = false;
        for (const char *const *name = decayed; *name; name++) decays = decays || !strcmp(last_name(path), *name);
        wide += !decays && tow_array_type(a).rank >= 2;
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(a)); k++) {
            const float found = ((const float *)tow_array_data(a))[k], expected = decays ? 1 - 0.1f : 1;
            if (found != expected) fail_msg("%s: expected %g, found %g", path, (double)expected, (double)found);
        }
    }
    assert_true(wide >= least);
    tow_optimizer_free(state);
    tow_params_free(gradients);
    tow_params_free(params);
}

static void decay_leaves_biases_alone(void **state)
{
    (void)state;
    static const char *const kernels[] = {"kernel", "embedding", "a", "b", NULL};
    const tow_type sequence = tow_make_type(TOW_F32, 3, (int64_t[]){2, 5, 8});
    const tow_type tokens = tow_make_type(TOW_I32, 2, (int64_t[]){2, 5});
    const tow_multi_head_attention attention = TOW_MULTI_HEAD_ATTENTION(.heads = 2);
    const tow_conv_local local = TOW_CONV_LOCAL(.features = 3, .kernel_size = {3});
    const tow_layer_norm norm = TOW_LAYER_NORM(.n_reduction_axes = 2, .reduction_axes = {-2, -1}, .n_feature_axes = 2,
                                               .feature_axes = {-2, -1});
    const tow_lora lora = TOW_LORA(&attention, .rank = 2);
    const tow_scan layers = TOW_SCAN(&attention, .length = 3);
    const tow_embed embed = TOW_EMBED(.num_embeddings = 7, .features = 4);
    const tow_weight_norm normed = TOW_WEIGHT_NORM(&local);
    expect_decay(TOW_MODULE(&attention), sequence, kernels, 3);
    expect_decay(TOW_MODULE(&local), sequence, kernels, 1);
    expect_decay(TOW_MODULE(&norm), sequence, kernels, 2);
    expect_decay(TOW_MODULE(&lora), sequence, kernels, 3);
    expect_decay(TOW_MODULE(&layers), sequence, kernels, 4);
    expect_decay(TOW_MODULE(&embed), tokens, kernels, 0);
    expect_decay(TOW_MODULE(&normed), sequence, kernels, 1);
}

/* ---- a layer that says what its parameters are ------------------------------------------------------------------- */

/* y = x (w + b) + gate: w is its kernel, b a bias for each head. */
static tow_value own(tow_scope *scope, tow_value x)
{
    const tow_type square = tow_make_type(TOW_F32, 2, (int64_t[]){4, 4});
    const int64_t four = 4;
    tow_value w = tow_param_with(scope, "w", square, TOW_PARAM_KERNEL, tow_initializer_lecun_normal());
    tow_value b = tow_param_with(scope, "b", square, TOW_PARAM_BIAS, tow_initializer_ones());
    tow_value table = tow_param(scope, "table", 2, square.dims, tow_initializer_ones());
    tow_value gate = tow_param(scope, "gate", 1, &four, tow_initializer_ones());
    return tow_add(tow_dot(x, tow_add(w, tow_mul(b, table))), tow_broadcast_to(gate, 2, tow_value_type(x).dims));
}

static const tow_type own_input = {.dtype = TOW_F32, .rank = 2, .dims = {3, 4}};

static void expect_kinds(const tow_params *params, size_t n, const char *const *paths, const tow_param_kind *kinds)
{
    assert_int_equal(tow_params_count(params), n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(tow_params_path(params, i), paths[i]);
        assert_string_equal(tow_param_kind_name(tow_params_kind(params, i)), tow_param_kind_name(kinds[i]));
    }
}

static void lists_keep_kinds(void **state)
{
    (void)state;
    static const tow_param_kind said[] = {TOW_PARAM_KERNEL, TOW_PARAM_BIAS, TOW_PARAM_WEIGHT, TOW_PARAM_OTHER};
    static const char *const paths[] = {"w", "b", "table", "gate"}, *const moved[] = {"at/w", "at/b", "at/kernel",
                                                                                      "at/gate"};
    const tow_function_layer layer = TOW_FUNCTION(own);
    tow_params *params, *copy, *renamed, *part, *rest;
    OK(tow_model_init(ctx, TOW_MODULE(&layer), 1, 1, &own_input, &params));
    expect_kinds(params, 4, paths, said);
    OK(tow_params_copy(params, &copy));
    expect_kinds(copy, 4, paths, said);
    OK(tow_params_rename(params, 2, (const tow_path_rule[]){{"//weight", "at/kernel"}, {"*", "at/$1"}}, &renamed));
    expect_kinds(renamed, 4, moved, said); /* whatever it is called */
    OK(tow_params_split(params, TOW_NAMES("//bias", "//kernel/w"), &part, &rest));
    expect_kinds(part, 2, paths, said);
    expect_kinds(rest, 2, paths + 2, said + 2);
    OK(tow_params_freeze(params, TOW_NAMES("//bias/*"), true));
    assert_true(!tow_params_is_frozen(params, 0) && tow_params_is_frozen(params, 1) &&
                !tow_params_is_frozen(params, 2));
    assert_int_equal(tow_params_element_count(params, TOW_NAMES("//other", "//weight/t*")), 20);
    OK(tow_params_set_kind(params, TOW_NAMES("table"), TOW_PARAM_EMBEDDING));
    assert_int_equal(tow_params_kind(params, 2), TOW_PARAM_EMBEDDING);
    assert_int_equal(tow_params_kind(copy, 2), TOW_PARAM_WEIGHT);
    OK(tow_params_set_kind(params, NULL, TOW_PARAM_DEFAULT));
    assert_int_equal(tow_params_kind(params, 0), TOW_PARAM_WEIGHT);
    assert_int_equal(tow_params_kind(params, 9), TOW_PARAM_OTHER);
    expect_error(tow_params_freeze(renamed, TOW_NAMES("//kernal"), true), TOW_NOT_FOUND, "//kernal", "//bias/at/b");
    expect_error(tow_params_set_kind(params, NULL, (tow_param_kind)99), TOW_INVALID_ARGUMENT, "99 is no kind");
    tow_params *lists[] = {params, copy, renamed, part, rest};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) tow_params_free(lists[i]);
}

/* Arrays without a model: by name and rank, which is that of one layer. */
static void kinds_by_name_and_rank(void **state)
{
    (void)state;
    static const char *const paths[] = {"query/bias", "kernel", "a/embedding", "a/{}/scale", "a/{}/w", "a/{}/v"};
    static const int ranks[] = {2, 1, 2, 3, 3, 2};
    static const tow_param_kind kinds[] = {TOW_PARAM_BIAS,  TOW_PARAM_KERNEL, TOW_PARAM_EMBEDDING,
                                           TOW_PARAM_SCALE, TOW_PARAM_WEIGHT, TOW_PARAM_OTHER};
    tow_array *arrays[6];
    tow_params *params;
    for (int i = 0; i < 6; i++)
        OK(tow_array_create(ctx, tow_make_type(TOW_F32, ranks[i], (int64_t[]){2, 2, 2}), &arrays[i]));
    OK(tow_params_from_arrays(ctx, 6, paths, arrays, &params));
    expect_kinds(params, 6, paths, kinds);
    for (int i = 0; i < 6; i++) tow_array_release(arrays[i]);
    tow_params_free(params);
}

static void transforms_go_by_kinds(void **state)
{
    (void)state;
    const tow_function_layer layer = TOW_FUNCTION(own);
    tow_params *params, *gradients;
    tow_optimizer_state *optimizer;
    OK(tow_model_init(ctx, TOW_MODULE(&layer), 1, 1, &own_input, &params));
    OK(tow_params_zeros_like(params, &gradients));
    const tow_scale_by_muon muon = TOW_SCALE_BY_MUON();
    const tow_scale minus = TOW_SCALE(.factor = -1);
    const tow_partition_rule rules[] = {
        {"//kernel", TOW_GRADIENT_TRANSFORM(&muon)}, {"//bias", NULL}, {"**", TOW_GRADIENT_TRANSFORM(&minus)}};
    const tow_partition partition = TOW_PARTITION(.rules = rules, .n = 3);
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&partition), params, NULL, &optimizer));
    for (size_t i = 0; i < 4; i++)
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(tow_params_array(gradients, i))); k++)
            ((float *)tow_array_data(tow_params_array(gradients, i)))[k] = 1;
    OK(tow_optimizer_update_params(optimizer, gradients));
    assert_true(((float *)tow_array_data(tow_params_find(params, "b")))[0] == 1);
    assert_true(((float *)tow_array_data(tow_params_find(params, "table")))[0] == 0);
    assert_int_equal(tow_optimizer_slot_count(optimizer), 1);
    assert_int_equal(tow_params_count(tow_optimizer_slot(optimizer, 0)), 1);
    assert_int_equal(tow_params_kind(tow_optimizer_slot(optimizer, 0), 0), TOW_PARAM_KERNEL);
    tow_optimizer_free(optimizer);
    OK(tow_params_freeze(params, TOW_NAMES("gate"), true));
    expect_error(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&muon), params, NULL, &optimizer),
                 TOW_INVALID_ARGUMENT, "muon of parameter b: expected a matrix, found a bias", "//kernel");
    tow_params_free(params);
    tow_params_free(gradients);
}

/* LoRA takes kernels, whatever they are called; a summary says what parameters are. */
static void layers_go_by_kinds(void **state)
{
    (void)state;
    const tow_function_layer layer = TOW_FUNCTION(own);
    const tow_lora lora = TOW_LORA(&layer, .rank = 1);
    const tow_lora of_weights = TOW_LORA(&layer, .rank = 1, .filter = TOW_NAMES("//weight/t*"));
    tow_params *params;
    tow_model_summary *summary;
    char text[4096];
    OK(tow_model_init(ctx, TOW_MODULE(&of_weights), 1, 1, &own_input, &params));
    assert_non_null(tow_params_find(params, "LoRA/table/a"));
    assert_null(tow_params_find(params, "LoRA/w/a"));
    tow_params_free(params);
    OK(tow_model_init(ctx, TOW_MODULE(&lora), 1, 1, &own_input, &params));
    assert_non_null(tow_params_find(params, "LoRA/w/a"));
    assert_null(tow_params_find(params, "LoRA/table/a"));
    assert_int_equal(tow_params_element_count(params, TOW_NAMES("//low_rank")), 8);
    OK(tow_model_summary_create(TOW_MODULE(&lora), params, 1, &own_input, NULL, &summary));
    assert_true(tow_model_summary_json(summary, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "{\"path\": \"b\", \"kind\": \"bias\", \"type\": \"f32[4,4]\""));
    assert_non_null(strstr(text, "{\"path\": \"LoRA/w/a\", \"kind\": \"low_rank\""));
    assert_true(tow_params_table(params, NULL, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "w         f32[4,4]             kernel"));
    tow_model_summary_free(summary);
    tow_params_free(params);
}

static tow_value strange(tow_scope *scope, tow_value x)
{
    tow_value y =
        tow_param_with(scope, "w", tow_make_type(TOW_F32, 0, NULL), (tow_param_kind)99, tow_initializer_ones());
    return tow_is_null(y) ? x : tow_add_scalar(x, 1);
}

static void no_kind(void **state)
{
    (void)state;
    const tow_function_layer layer = TOW_FUNCTION(strange);
    tow_params *params;
    expect_error(tow_model_init(ctx, TOW_MODULE(&layer), 1, 1, &own_input, &params), TOW_INVALID_ARGUMENT,
                 "99 is no kind of parameter");
    assert_null(tow_param_kind_name((tow_param_kind)99));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decay_leaves_biases_alone), cmocka_unit_test(lists_keep_kinds),
        cmocka_unit_test(kinds_by_name_and_rank),    cmocka_unit_test(transforms_go_by_kinds),
        cmocka_unit_test(layers_go_by_kinds),        cmocka_unit_test(no_kind),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

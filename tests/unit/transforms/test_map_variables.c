/* Layers that see their variables through functions, and tied layers: against Flax (tests/oracle/flax_views.py), within
 * each other and LoRA, WeightNorm, SpectralNorm, Precision, in all transforms, in lists, files and summaries; errors.
 * Tests map_variables.c, tied.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/mapped_layers.h"

#define TRANSPOSED .trans_in = transpose, .trans_out = transpose

static const tow_type x24 = {.dtype = TOW_F32, .rank = 2, .dims = {2, 4}};

/* ---- against Flax ------------------------------------------------------------------------------------------------ */

static bool run_mapped(const char *name, lift_run *r)
{
    const tow_dense dense = TOW_DENSE(.features = 3, .bias_init = tow_initializer_normal(0.5));
    const built average = BUILT(average);
    const tow_map_variables inner = TOW_MAP_VARIABLES(&dense, .variables = TOW_NAMES("params/kernel"),
                                                      .trans_in = plus_one, .trans_out = minus_one);
    const struct {
        const char *name;
        tow_map_variables layer;
    } cases[] = {
        {"upper", TOW_MAP_VARIABLES(&dense, .variables = TOW_NAMES("params/kernel"), .trans_in = upper)},
        {"transposed", TOW_MAP_VARIABLES(&dense, .variables = KERNELS, TRANSPOSED)},
        {"signs", TOW_MAP_VARIABLES(&dense, .trans_in = signs)},
        {"standardized", TOW_MAP_VARIABLES(&dense, .variables = KERNELS, .trans_in = standardized)},
        {"flat", TOW_MAP_VARIABLES(&dense, .variables = KERNELS, .trans_in = as_asked, .trans_out = flat)},
        {"halved_state", TOW_MAP_VARIABLES(&average, .variables = TOW_NAMES("batch_stats/mean"), .trans_in = doubled,
                                           .trans_out = halved)},
        {"everything", TOW_MAP_VARIABLES(&average, .variables = TOW_NAMES("params", "batch_stats"), .trans_in = doubled,
                                         .trans_out = halved)},
        {"nested", TOW_MAP_VARIABLES(&inner, .variables = KERNELS, .trans_in = doubled, .trans_out = halved)},
        {"low_rank", TOW_MAP_VARIABLES(&dense, .variables = KERNELS, .make = low_rank)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, name) != 0) continue;
        run_lifted(r, TOW_MODULE(&STACK(&cases[i].layer)), 1, &x24, 1, NULL);
        return true;
    }
    return false;
}

static bool run_tied(const char *name, lift_run *r)
{
    const tow_dense encoder = TOW_DENSE(.features = 3, .no_bias = true),
                    decoder = TOW_DENSE(.features = 4, .no_bias = true);
    const tow_map_variables mapped = TOW_MAP_VARIABLES(&decoder, TRANSPOSED);
    const tow_tied tied = TOW_TIED(&decoder, .to = "../embed/embedding", .transposed = true);
    const built autoencoder = BUILT(autoencoder, TOW_MODULE(&encoder), TOW_MODULE(&mapped)),
                projected = BUILT(projected, TOW_MODULE(&tied));
    const bool coder = strcmp(name, "autoencoder") == 0;
    if (!coder && strcmp(name, "tied") != 0) return false;
    run_lifted(r, coder ? TOW_MODULE(&autoencoder) : TOW_MODULE(&projected), 1, &x24, 1, NULL);
    return true;
}

static bool run_transforms(const char *name, lift_run *r)
{
    const built step = BUILT(step);
    const tow_map_variables mapped = TOW_MAP_VARIABLES(&step, .variables = KERNELS, TRANSPOSED);
    const tow_scan scan_of = TOW_SCAN(&mapped, .length = 3, .keys = TOW_KEYS_FLAX),
                   scan = TOW_SCAN(&step, .length = 3, .keys = TOW_KEYS_FLAX);
    const tow_vmap_layer vmap_of = TOW_VMAP(&mapped, .keys = TOW_KEYS_FLAX),
                         vmap = TOW_VMAP(&step, .keys = TOW_KEYS_FLAX);
    const tow_map_variables mapped_scan = TOW_MAP_VARIABLES(&scan, .variables = KERNELS, TRANSPOSED),
                            mapped_vmap = TOW_MAP_VARIABLES(&vmap, .variables = KERNELS, TRANSPOSED);
    const built models[] = {BUILT(rows, TOW_MODULE(&vmap_of)), BUILT(rows, TOW_MODULE(&mapped_vmap))};
    const stack stacks[] = {STACK(&scan_of), STACK(&mapped_scan)};
    const char *const names[] = {"scan_of_mapped", "mapped_scan", "vmap_of_mapped", "mapped_vmap"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(names[i], name) != 0) continue;
        run_lifted(r, i < 2 ? TOW_MODULE(&stacks[i]) : TOW_MODULE(&models[i - 2]), 1, &x24, 1, NULL);
        return true;
    }
    return false;
}

static bool with_case(const char *name, lift_run *r)
{
    free_lift_run(r);
    return run_mapped(name, r) || run_tied(name, r) || run_transforms(name, r);
}

static void test_golden(void **unused)
{
    (void)unused;
    compare_lifted(TOW_TEST_DATA "/oracle/golden/flax_views.txt", 80, with_case);
}

/* ---- in transforms ----------------------------------------------------------------------------------------------- */

/* A dense layer asked for its kernel twice, tanh, and an output that is tied to the parameter at layers[0]. */
MODEL(both)
{
    tow_dense dense = TOW_DENSE(.features = 4, .bias_init = tow_initializer_normal(0.5));
    tow_value h = tow_tanh(tow_apply(s, "dense", &dense, tow_apply(s, "dense", &dense, x)));
    out[0] = tow_tanh(tow_apply_module(s, "output", layers[0], h));
}

/* Form `form` of a body under a scan of 3: 0 the loop, 1 written out, 2 to 5 a loop of remats with a policy each. */
static void run_form(lift_run *r, int form, bool outside, const tow_module *body, const tow_lift_rule *rules,
                     tow_map_variables map)
{
    const tow_policy policies[] = {tow_nothing_saveable(), tow_everything_saveable(), tow_dots_saveable(),
                                   tow_dots_with_no_batch_dims_saveable()};
    tow_map_variables inside = map;
    inside.inner = body;
    tow_remat remat = TOW_REMAT(&cell, .policy = policies[form < 2 ? 0 : form - 2]);
    remat.inner = outside ? body : TOW_MODULE(&inside);
    tow_scan loop = TOW_SCAN(&remat, .length = 3, .unrolled = form == 1, .variables = rules);
    if (form < 2) loop.inner = remat.inner;
    map.inner = TOW_MODULE(&loop);
    stack model = {{&stack_class}, outside ? TOW_MODULE(&map) : TOW_MODULE(&loop)};
    run_lifted(r, TOW_MODULE(&model), 1, &x24, 1, NULL);
}

/* Mapped inside and outside a scan: equal names on disk, values and bits, whatever is recomputed. */
static void expect_same_forms(const char *name, const tow_module *body, const tow_lift_rule *rules,
                              tow_map_variables map)
{
    lift_run first, r;
    run_form(&first, 0, false, body, rules, map);
    for (int form = 0; form < 12; form++) {
        char text[96];
        snprintf(text, sizeof text, "%s, form %d", name, form);
        run_form(&r, form % 6, form >= 6, body, rules, map);
        expect_same_lift(text, &first, &r);
        free_lift_run(&r);
    }
    free_lift_run(&first);
}

static void test_transforms(void **unused)
{
    (void)unused;
    const tow_dense output = TOW_DENSE(.features = 4, .bias_init = tow_initializer_normal(0.5));
    const tow_tied tied = TOW_TIED(&output, .to = "../dense/kernel", .transposed = true);
    const built plain = BUILT(both, TOW_MODULE(&output)), twice = BUILT(both, TOW_MODULE(&tied)),
                averages = BUILT(average);
    const tow_lift_rule *const shared = TOW_RULES({"params", TOW_SHARED}),
                               *const some = TOW_RULES({"params/dense/kernel", TOW_SHARED}),
                               *const carried = TOW_RULES({"batch_stats", TOW_CARRIED});
    const tow_map_variables transposed = TOW_MAP_VARIABLES(&cell, .variables = KERNELS, TRANSPOSED),
                            standard = TOW_MAP_VARIABLES(&cell, .variables = KERNELS, .trans_in = standardized),
                            factors = TOW_MAP_VARIABLES(&cell, .variables = KERNELS, .make = low_rank),
                            state = TOW_MAP_VARIABLES(&cell, .variables = TOW_NAMES("batch_stats"), .trans_in = doubled,
                                                      .trans_out = halved);
    expect_same_forms("transposed", TOW_MODULE(&plain), NULL, transposed);
    expect_same_forms("transposed, tied", TOW_MODULE(&twice), NULL, transposed);
    expect_same_forms("standardized, tied", TOW_MODULE(&twice), NULL, standard);
    expect_same_forms("standardized, shared", TOW_MODULE(&twice), shared, standard);
    expect_same_forms("standardized, some shared", TOW_MODULE(&plain), some, standard);
    expect_same_forms("factors", TOW_MODULE(&plain), NULL, factors);
    expect_same_forms("factors, shared", TOW_MODULE(&plain), shared, factors);
    expect_same_forms("state", TOW_MODULE(&averages), NULL, state);
    expect_same_forms("state, carried", TOW_MODULE(&averages), carried, state);
}

/* Variables that a scan stacks on another axis: the map sees the same layers, whatever axis they are on. */
static void test_stacked_axes(void **unused)
{
    (void)unused;
    const tow_dense output = TOW_DENSE(.features = 4, .bias_init = tow_initializer_normal(0.5));
    const tow_tied tied = TOW_TIED(&output, .to = "../dense/kernel", .transposed = true);
    const built body = BUILT(both, TOW_MODULE(&tied));
    const tow_map_variables inside =
        TOW_MAP_VARIABLES(&body, .variables = TOW_NAMES("params/dense/kernel"), TRANSPOSED);
    const tow_scan first = TOW_SCAN(&inside, .length = 3);
    lift_run a, b;
    run_lifted(&a, TOW_MODULE(&STACK(&first)), 1, &x24, 1, NULL);
    for (int axis = -1; axis < 3; axis++) {
        const tow_lift_rule rules[] = {{"params/**kernel", TOW_STACKED, axis}, {NULL, TOW_STACKED, 0}};
        const tow_scan scan = TOW_SCAN(&inside, .length = 3, .variables = rules),
                       plain = TOW_SCAN(&body, .length = 3, .variables = rules);
        const tow_map_variables outside =
            TOW_MAP_VARIABLES(&plain, .variables = TOW_NAMES("params/*/dense/kernel"), TRANSPOSED);
        for (int i = 0; i < 2; i++) {
            const stack model = {{&stack_class}, i ? TOW_MODULE(&outside) : TOW_MODULE(&scan)};
            run_lifted(&b, TOW_MODULE(&model), 1, &x24, 1, NULL);
            expect_same_list("stacked on another axis", a.params, b.params);
            assert_memory_equal(tow_array_data(a.outputs[0]), tow_array_data(b.outputs[0]), tow_type_bytes(x24));
            assert_memory_equal(tow_array_data(a.in_grads[0]), tow_array_data(b.in_grads[0]), tow_type_bytes(x24));
            free_lift_run(&b);
        }
    }
    free_lift_run(&a);
}

/* A tied layer in a scan with Flax's keys, which traces the body twice; the iterations written out draw the same. */
static void test_tied_with_flax_keys(void **unused)
{
    (void)unused;
    const tow_dense output = TOW_DENSE(.features = 4, .bias_init = tow_initializer_normal(0.5));
    const tow_tied tied = TOW_TIED(&output, .to = "../dense/kernel", .transposed = true);
    const built body = BUILT(both, TOW_MODULE(&tied));
    tow_scan scan = TOW_SCAN(&body, .length = 3, .keys = TOW_KEYS_FLAX);
    const tow_map_variables map = TOW_MAP_VARIABLES(&scan, .variables = KERNELS, TRANSPOSED);
    lift_run a, b;
    run_lifted(&a, TOW_MODULE(&STACK(&map)), 1, &x24, 1, NULL);
    scan.unrolled = true;
    run_lifted(&b, TOW_MODULE(&STACK(&map)), 1, &x24, 1, NULL);
    expect_same_lift("tied, Flax's keys", &a, &b);
    free_lift_run(&a);
    free_lift_run(&b);
}

/* Layers of all kinds ask through the same function: recurrent cells, attention, convolutions, norms. */
static void expect_mapped(const char *what, const tow_module *layer, tow_type type)
{
    tow_map_variables map = TOW_MAP_VARIABLES(&cell, .trans_in = as_asked, .trans_out = flat);
    map.inner = layer;
    lift_run a, b;
    const stack models[] = {{{&stack_class}, layer}, {{&stack_class}, TOW_MODULE(&map)}};
    run_lifted(&a, TOW_MODULE(&models[0]), 1, &type, 1, NULL);
    run_lifted(&b, TOW_MODULE(&models[1]), 1, &type, 1, NULL);
    assert_int_equal(tow_params_count(a.params), tow_params_count(b.params));
    for (size_t i = 0; i < tow_params_count(a.params); i++) {
        tow_array *x = tow_params_array(a.params, i), *y = tow_params_array(b.params, i), *g = a.grads[i],
                  *h = b.grads[i];
        const size_t bytes = tow_type_bytes(tow_array_type(x));
        assert_string_equal(tow_params_path(a.params, i), tow_params_path(b.params, i));
        assert_int_equal(tow_array_type(y).rank, strstr(tow_params_path(b.params, i), "{}") ? 2 : 1);
        if (memcmp(tow_array_data(x), tow_array_data(y), bytes) || memcmp(tow_array_data(g), tow_array_data(h), bytes))
            fail_msg("%s: %s or its gradient", what, tow_params_path(a.params, i));
    }
    assert_memory_equal(tow_array_data(a.outputs[0]), tow_array_data(b.outputs[0]),
                        tow_type_bytes(tow_array_type(a.outputs[0])));
    free_lift_run(&a);
    free_lift_run(&b);
}

static void test_layers(void **unused)
{
    (void)unused;
    const tow_lstm_cell lstm = TOW_LSTM_CELL(.features = 3);
    const tow_rnn rnn = TOW_RNN(&lstm);
    const tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 2, .mlp_features = 12, .causal = true);
    const tow_scan blocks = TOW_SCAN(&block, .length = 2);
    const tow_conv conv = TOW_CONV(.features = 4, .kernel_size = {3});
    const tow_einsum_layer einsum = TOW_EINSUM(.spec = "btd,dhk->bthk", .shape = {4, 2, 3}),
                           other = TOW_EINSUM(.spec = "btd,hdk->bthk", .shape = {2, 4, 3});
    const tow_type type = TYPE(TOW_F32, 2, 5, 4);
    expect_mapped("rnn", TOW_MODULE(&rnn), type);
    expect_mapped("block", TOW_MODULE(&block), type);
    expect_mapped("blocks", TOW_MODULE(&blocks), type);
    expect_mapped("conv", TOW_MODULE(&conv), type);
    expect_mapped("einsum", TOW_MODULE(&einsum), type);
    expect_mapped("einsum of another order", TOW_MODULE(&other), type);
}

/* A function is called once for each parameter in each body, however often the parameter is asked for. */
static tow_value counted(tow_value v, const tow_variable_request *asked, const void *user)
{
    (void)asked;
    ++*(int *)user;
    return whole(v, 2);
}

static void test_once(void **unused)
{
    (void)unused;
    const tow_dense output = TOW_DENSE(.features = 4);
    const tow_tied tied = TOW_TIED(&output, .to = "../dense/kernel", .transposed = true);
    const built model = BUILT(both, TOW_MODULE(&tied));
    const tow_remat remat = TOW_REMAT(&model);
    int calls = 0;
    tow_map_variables map = TOW_MAP_VARIABLES(&model, .variables = KERNELS, .trans_in = counted, .user = &calls);
    tow_params *params;
    tow_graph *graph;
    OK(tow_model_init(ctx, TOW_MODULE(&map), 0, 1, &x24, &params));
    assert_int_equal(calls, 1);
    for (int i = 0; i < 2; i++) {
        calls = 0;
        map.inner = i ? TOW_MODULE(&remat) : TOW_MODULE(&model);
        OK(tow_model_forward_graph(TOW_MODULE(&map), params, 1, &x24, NULL, &graph));
        assert_int_equal(calls, 1);
        tow_graph_release(graph);
    }
    tow_params_free(params);
}

/* ---- tied -------------------------------------------------------------------------------------------------------- */

/* An embedding and an output, tied or by tow_embed_attend if layers[0] is NULL. */
MODEL(language)
{
    tow_embed embed = TOW_EMBED(.num_embeddings = 7, .features = 4);
    tow_value tokens = tow_convert(tow_abs(tow_mul_scalar(x, 3)), TOW_I32);
    tow_value h = tow_tanh(tow_apply(s, "embed", &embed, tokens));
    out[0] = layers[0] ? tow_apply_module(s, "output", layers[0], h) : tow_embed_attend(s, "embed", &embed, h);
}

static void test_tied_embedding(void **unused)
{
    (void)unused;
    const tow_dense output = TOW_DENSE(.features = 7, .no_bias = true);
    const tow_tied tied = TOW_TIED(&output, .to = "../embed/embedding", .transposed = true);
    const tow_tied by_path = TOW_TIED(&BUILT(language, TOW_MODULE(&output)), .parameter = "output/kernel",
                                      .to = "embed/embedding", .transposed = true);
    const built models[] = {BUILT(language, NULL), BUILT(language, TOW_MODULE(&tied))};
    lift_run a, b;
    run_lifted(&a, TOW_MODULE(&models[0]), 1, &x24, 1, NULL);
    for (int i = 0; i < 2; i++) {
        run_lifted(&b, i ? TOW_MODULE(&by_path) : TOW_MODULE(&models[1]), 1, &x24, 1, NULL);
        expect_same_lift("tied embedding", &a, &b);
        free_lift_run(&b);
    }
    free_lift_run(&a);
}

/* LoRA in a tied layer adds to this use of the parameter, and not to the parameter; around it there is nothing to add
 * to. */
static void test_tied_with_lora(void **unused)
{
    (void)unused;
    const tow_dense output = TOW_DENSE(.features = 7, .no_bias = true);
    const tow_lora lora = TOW_LORA(&output, .rank = 2);
    const tow_tied tied = TOW_TIED(&lora, .to = "../embed/embedding", .transposed = true),
                   plain = TOW_TIED(&output, .to = "../embed/embedding", .transposed = true);
    const tow_lora around = TOW_LORA(&plain, .rank = 2);
    const built models[] = {BUILT(language, NULL), BUILT(language, TOW_MODULE(&tied)),
                            BUILT(language, TOW_MODULE(&around))};
    lift_run a, b;
    run_lifted(&a, TOW_MODULE(&models[0]), 1, &x24, 1, NULL);
    run_lifted(&b, TOW_MODULE(&models[1]), 1, &x24, 1, NULL);
    assert_int_equal(tow_params_count(b.params), 3);
    assert_memory_equal(tow_array_data(a.outputs[0]), tow_array_data(b.outputs[0]),
                        tow_type_bytes(tow_array_type(a.outputs[0]))); /* b is zeros at first */
    size_t of_b = 0;
    assert_non_null(array_at(b.params, "output/LoRA/kernel/b", &of_b));
    const float *g = tow_array_data(b.grads[of_b]);
    bool any = false;
    for (int i = 0; i < 14; i++) any = any || g[i] != 0;
    assert_true(any);
    free_lift_run(&a);
    free_lift_run(&b);
    tow_params *params;
    expect_error(tow_model_init(ctx, TOW_MODULE(&models[2]), 0, 1, &x24, &params), TOW_NOT_FOUND, "output: LoRA");
}

/* A layer in a scan that is tied to a parameter outside of it: the same as one kernel that the iterations share. */
MODEL(outside)
{
    tow_scope *embed = tow_scope_begin(s, "embed");
    tow_param(embed, "kernel", 2, (int64_t[]){4, 4}, tow_initializer_constant(0.25));
    tow_scope_end(embed);
    out[0] = tow_apply_module(s, "stack", layers[0], x);
}
MODEL(named) { out[0] = tow_tanh(tow_apply_module(s, "dense", layers[0], x)); }

static void test_tied_across_scans(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 4, .kernel_init = tow_initializer_constant(0.25));
    const tow_tied tied = TOW_TIED(&dense, .to = "../../../embed/kernel");
    const built bodies[] = {BUILT(named, TOW_MODULE(&dense)), BUILT(named, TOW_MODULE(&tied))};
    const tow_remat remat = TOW_REMAT(&bodies[1]);
    const tow_scan shared = TOW_SCAN(&bodies[0], .length = 3, .variables = TOW_RULES({"params/**kernel", TOW_SHARED}));
    const tow_scan scans[] = {TOW_SCAN(&bodies[1], .length = 3), TOW_SCAN(&remat, .length = 3),
                              TOW_SCAN(&bodies[1], .length = 3, .unrolled = true)};
    lift_run a, b;
    run_lifted(&a, TOW_MODULE(&STACK(&shared)), 1, &x24, 1, NULL);
    for (int i = 0; i < 3; i++) {
        run_lifted(&b, TOW_MODULE(&BUILT(outside, TOW_MODULE(&scans[i]))), 1, &x24, 1, NULL);
        const size_t bytes = tow_type_bytes(x24);
        assert_memory_equal(tow_array_data(a.outputs[0]), tow_array_data(b.outputs[0]), bytes);
        assert_memory_equal(tow_array_data(a.in_grads[0]), tow_array_data(b.in_grads[0]), bytes);
        size_t of_a = 0, of_b = 0;
        assert_true(array_at(a.params, "stack/dense/kernel", &of_a) && array_at(b.params, "embed/kernel", &of_b));
        assert_memory_equal(tow_array_data(a.grads[of_a]), tow_array_data(b.grads[of_b]), 64);
        free_lift_run(&b);
    }
    free_lift_run(&a);
}

/* The same for the rows of a vmap. */
static void test_tied_across_rows(void **unused)
{
    (void)unused;
    const tow_type x324 = TYPE(TOW_F32, 3, 2, 4);
    const tow_dense dense = TOW_DENSE(.features = 4, .kernel_init = tow_initializer_constant(0.25));
    const tow_tied tied = TOW_TIED(&dense, .to = "../../../embed/kernel");
    const built bodies[] = {BUILT(named, TOW_MODULE(&dense)), BUILT(named, TOW_MODULE(&tied))};
    const tow_vmap_layer shared = TOW_VMAP(&bodies[0], .variables = TOW_RULES({"params/**kernel", TOW_SHARED}));
    const tow_vmap_layer rows[] = {TOW_VMAP(&bodies[1]), TOW_VMAP(&bodies[1], .unrolled = true)};
    lift_run a, b;
    run_lifted(&a, TOW_MODULE(&STACK(&shared)), 1, &x324, 1, NULL);
    for (int i = 0; i < 2; i++) {
        run_lifted(&b, TOW_MODULE(&BUILT(outside, TOW_MODULE(&rows[i]))), 1, &x324, 1, NULL);
        const size_t bytes = tow_type_bytes(x324);
        size_t of_a = 0, of_b = 0;
        assert_memory_equal(tow_array_data(a.outputs[0]), tow_array_data(b.outputs[0]), bytes);
        assert_memory_equal(tow_array_data(a.in_grads[0]), tow_array_data(b.in_grads[0]), bytes);
        assert_true(array_at(a.params, "stack/dense/kernel", &of_a) && array_at(b.params, "embed/kernel", &of_b));
        for (int k = 0; k < 16; k++) /* rows written out add up in another order */
            assert_float_equal(array_element(a.grads[of_a], k), array_element(b.grads[of_b], k), 1e-5);
        free_lift_run(&b);
    }
    free_lift_run(&a);
}

/* ---- within each other ------------------------------------------------------------------------------------------- */

static void expect_near_outputs(const char *what, const tow_module *a_module, const tow_module *b_module, double limit)
{
    lift_run a, b;
    const stack models[] = {{{&stack_class}, a_module}, {{&stack_class}, b_module}};
    run_lifted(&a, TOW_MODULE(&models[0]), 1, &x24, 1, NULL);
    run_lifted(&b, TOW_MODULE(&models[1]), 1, &x24, 1, NULL);
    tow_array *pairs[][2] = {{a.outputs[0], b.outputs[0]}, {a.in_grads[0], b.in_grads[0]}};
    for (int k = 0; k < 2; k++) {
        assert_true(tow_type_equal(tow_array_type(pairs[k][0]), tow_array_type(pairs[k][1])));
        for (int64_t i = 0; i < tow_type_element_count(tow_array_type(pairs[k][0])); i++) {
            double x = array_element(pairs[k][0], i), y = array_element(pairs[k][1], i);
            if (!(fabs(x - y) <= limit))
                fail_msg("%s, %s %d: %g and %g", what, k ? "gradient" : "output", (int)i, x, y);
        }
    }
    free_lift_run(&a);
    free_lift_run(&b);
}

/* A layer that keeps parameters beside a kernel has the values of the same layer without a map, wherever the map
 * stands. */
static void test_nesting(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 3, .bias_init = tow_initializer_normal(0.5));
#define MAPPED(layer) TOW_MAP_VARIABLES(&layer, .variables = TOW_NAMES("params/kernel"), TRANSPOSED)
#define LORA(layer)   TOW_LORA(&layer, .rank = 2, .alpha = 4, .b_init = tow_initializer_normal(1))
    const tow_map_variables mapped = MAPPED(dense);
    const tow_lora lora = LORA(dense), lora_mapped = LORA(mapped);
    const tow_weight_norm norm = TOW_WEIGHT_NORM(&dense, .scale_init = tow_initializer_normal(1)),
                          norm_mapped = TOW_WEIGHT_NORM(&mapped, .n_axes = 1, .axes = {0},
                                                        .scale_init = tow_initializer_normal(1)),
                          norm_lora = TOW_WEIGHT_NORM(&lora, .scale_init = tow_initializer_normal(1));
    const tow_spectral_norm spectral = TOW_SPECTRAL_NORM(&dense, .n_steps = 60),
                            spectral_mapped = TOW_SPECTRAL_NORM(&mapped, .n_steps = 60);
    const tow_lora lora_norm = LORA(norm);
    const tow_map_variables mapped_lora = MAPPED(lora), mapped_norm = MAPPED(norm), mapped_spectral = MAPPED(spectral),
                            mapped_norm_lora = MAPPED(norm_lora), mapped_lora_norm = MAPPED(lora_norm);
    const struct {
        const char *what;
        const tow_module *plain, *mapped;
        double limit;
    } pairs[] = {
        {"map", TOW_MODULE(&dense), TOW_MODULE(&mapped), 0},
        {"map, LoRA", TOW_MODULE(&lora), TOW_MODULE(&mapped_lora), 0},
        {"map, WeightNorm", TOW_MODULE(&norm), TOW_MODULE(&mapped_norm), 0},
        {"WeightNorm, map", TOW_MODULE(&norm), TOW_MODULE(&norm_mapped), 1e-5},
        {"map, SpectralNorm", TOW_MODULE(&spectral), TOW_MODULE(&mapped_spectral), 0},
        {"SpectralNorm, map", TOW_MODULE(&spectral), TOW_MODULE(&spectral_mapped), 1e-4},
        {"map, WeightNorm, LoRA", TOW_MODULE(&norm_lora), TOW_MODULE(&mapped_norm_lora), 0},
        {"map, LoRA, WeightNorm", TOW_MODULE(&lora_norm), TOW_MODULE(&mapped_lora_norm), 0},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        expect_near_outputs(pairs[i].what, pairs[i].plain, pairs[i].mapped, pairs[i].limit);
    lift_run r; /* LoRA around a map has the sizes of what is stored */
    run_lifted(&r, TOW_MODULE(&STACK(&lora_mapped)), 1, &x24, 1, NULL);
    assert_true(tow_type_equal(tow_array_type(tow_params_find(r.params, "stack/LoRA/kernel/a")), TYPE(TOW_F32, 3, 2)));
    assert_true(tow_type_equal(tow_array_type(tow_params_find(r.params, "stack/LoRA/kernel/b")), TYPE(TOW_F32, 2, 4)));
    free_lift_run(&r);
}

/* A variable that is kept beside a parameter is mapped by its path, and by no norm. */
static void test_kept(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 3);
    const tow_lora lora = LORA(dense);
    const tow_map_variables map = TOW_MAP_VARIABLES(&lora, .variables = TOW_NAMES("params/LoRA/kernel/*"), TRANSPOSED);
    const tow_weight_norm norm = TOW_WEIGHT_NORM(&lora, .everything = true);
    lift_run r;
    run_lifted(&r, TOW_MODULE(&STACK(&map)), 1, &x24, 1, NULL);
    assert_true(tow_type_equal(tow_array_type(tow_params_find(r.params, "stack/LoRA/kernel/a")), TYPE(TOW_F32, 2, 4)));
    assert_true(tow_type_equal(tow_array_type(tow_params_find(r.params, "stack/kernel")), TYPE(TOW_F32, 4, 3)));
    free_lift_run(&r);
    expect_near_outputs("map of LoRA", TOW_MODULE(&lora), TOW_MODULE(&map), 0);
    run_lifted(&r, TOW_MODULE(&STACK(&norm)), 1, &x24, 1, NULL);
    assert_int_equal(tow_params_count(r.params), 6); /* two, their norms, and the factors */
    free_lift_run(&r);
}

/* Parameters that are stored as bf16, by a map and by TOW_PRECISION around one. */
static void test_precision(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 3);
    const tow_map_variables as_half = TOW_MAP_VARIABLES(&dense, .trans_in = as_dtype_asked, .trans_out = as_bf16),
                            transposed = TOW_MAP_VARIABLES(&dense, .variables = KERNELS, TRANSPOSED);
    const tow_precision half = TOW_PRECISION(&transposed, .param_dtype = TOW_BF16),
                        plain = TOW_PRECISION(&dense, .param_dtype = TOW_BF16);
    lift_run r;
    run_lifted(&r, TOW_MODULE(&STACK(&as_half)), 1, &x24, 1, NULL);
    assert_true(tow_type_equal(tow_array_type(tow_params_find(r.params, "stack/kernel")), TYPE(TOW_BF16, 4, 3)));
    assert_int_equal(tow_array_type(r.outputs[0]).dtype, TOW_F32);
    free_lift_run(&r);
    run_lifted(&r, TOW_MODULE(&STACK(&half)), 1, &x24, 1, NULL);
    assert_true(tow_type_equal(tow_array_type(tow_params_find(r.params, "stack/kernel")), TYPE(TOW_BF16, 3, 4)));
    free_lift_run(&r);
    expect_near_outputs("bf16, transposed", TOW_MODULE(&plain), TOW_MODULE(&half), 0);
}

/* ---- errors, memory ---------------------------------------------------------------------------------------------- */

static tow_status initialize(const tow_module *module)
{
    const stack model = {{&stack_class}, module};
    tow_params *params = NULL, *state = NULL;
    tow_status status = tow_model_init_with(ctx, TOW_MODULE(&model), 3, 1, &x24, NULL, &params, &state);
    tow_params_free(params);
    tow_params_free(state);
    return status;
}

#define expect_refused(layer, status, ...) expect_error(initialize(TOW_MODULE(&layer)), status, "stack", __VA_ARGS__)

static void test_errors(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 3);
    const built average = BUILT(average);
    const tow_lora lora = LORA(dense);
    expect_refused(TOW_MAP_VARIABLES(&dense), TOW_INVALID_ARGUMENT, "no function", ".trans_in");
    expect_refused(TOW_MAP_VARIABLES(&dense, .variables = (const char *const[]){NULL}, .trans_in = doubled),
                   TOW_INVALID_ARGUMENT, ".variables has no pattern");
    expect_refused(TOW_MAP_VARIABLES(&dense, .make = low_rank, .trans_in = doubled), TOW_INVALID_ARGUMENT,
                   ".make beside another");
    expect_refused(TOW_MAP_VARIABLES(&dense, .variables = TOW_NAMES("params", "params/kernl"), .trans_in = doubled),
                   TOW_NOT_FOUND, "\"params/kernl\" matches nothing");
    expect_refused(TOW_MAP_VARIABLES(&dense, .variables = TOW_NAMES("batch_stats"), .trans_in = doubled), TOW_NOT_FOUND,
                   "\"batch_stats\"");
    expect_refused(TOW_MAP_VARIABLES(&dense, .variables = KERNELS, .trans_in = transpose), TOW_TYPE_MISMATCH,
                   "\"kernel\" of type f32[4,3], and .trans_in gave f32[3,4]", "give .trans_out");
    expect_refused(TOW_MAP_VARIABLES(&dense, .variables = KERNELS, .trans_in = doubled, .trans_out = transpose),
                   TOW_TYPE_MISMATCH, ".trans_in gave f32[3,4]");
    expect_refused(TOW_MAP_VARIABLES(&dense, .trans_in = none), TOW_TYPE_MISMATCH, "the null value");
    expect_refused(TOW_MAP_VARIABLES(&dense, .trans_in = doubled, .trans_out = none), TOW_INVALID_ARGUMENT,
                   ".trans_out of \"kernel\" (f32[4,3])");
    expect_refused(TOW_MAP_VARIABLES(&average, .variables = TOW_NAMES("batch_stats/mean"), .trans_in = doubled),
                   TOW_INVALID_ARGUMENT, "writes \"mean\" of batch_stats", "give .trans_out");
    expect_refused(TOW_LORA(&lora, .rank = 0), TOW_INVALID_ARGUMENT, ".rank");
    expect_error(initialize(TOW_MODULE(&TOW_TIED(&dense, .to = "../other/kernel"))), TOW_NOT_FOUND,
                 "params/other/kernel", "no layer that was called before");
    expect_refused(TOW_TIED(&dense), TOW_INVALID_ARGUMENT, ".to = \"NULL\"");
    expect_refused(TOW_TIED(&dense, .to = "../../../kernel"), TOW_INVALID_ARGUMENT, ".to = \"../../../kernel\"");
    expect_refused(TOW_TIED(&dense, .to = "../embed/"), TOW_INVALID_ARGUMENT, ".to = \"../embed/\"");
    expect_refused(TOW_TIED(&dense, .to = "../a//kernel"), TOW_INVALID_ARGUMENT, ".to = ");
    expect_refused(TOW_TIED(&dense, .to = "bias", .parameter = "table"), TOW_NOT_FOUND, "no parameter \"table\"");
}

static tow_status use_views(tow_context *c)
{
    const tow_dense output = TOW_DENSE(.features = 4);
    const tow_tied tied = TOW_TIED(&output, .to = "../dense/kernel", .transposed = true);
    const built model = BUILT(both, TOW_MODULE(&tied));
    const tow_lora lora = TOW_LORA(&model, .rank = 2);
    const tow_map_variables mapped = TOW_MAP_VARIABLES(&lora, .variables = KERNELS, TRANSPOSED);
    const tow_scan scan = TOW_SCAN(&mapped, .length = 2);
    tow_params *params = NULL;
    tow_graph *graph = NULL;
    tow_status status = tow_model_init(c, TOW_MODULE(&scan), 3, 1, &x24, &params);
    if (!status) status = tow_model_forward_graph(TOW_MODULE(&scan), params, 1, &x24, NULL, &graph);
    tow_params_free(params);
    tow_graph_release(graph);
    return status;
}

static void test_failing_allocations(void **unused)
{
    (void)unused;
    fail_in_turn(use_views);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_transforms),
        cmocka_unit_test(test_tied_with_flax_keys),
        cmocka_unit_test(test_stacked_axes),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_tied_embedding),
        cmocka_unit_test(test_tied_with_lora),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_tied_across_scans),
        cmocka_unit_test(test_tied_across_rows),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_precision),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

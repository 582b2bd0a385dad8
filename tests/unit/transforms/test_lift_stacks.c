/* Stacks of several loops: remat_scan, layer_stack and unrolled turns have the names on disk, values, variables,
 * gradients and keys of the layers written out.
 * Tests loop.c, loop_record.c, scan.c, stack.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/lift_cell.h"

/* A Cell whose Dense has another name, and parameters of another shape. */
static void call_other(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in;
    tow_mlp mlp = TOW_MLP(.features = {6, 4});
    tow_value key = tow_make_rng(s, "noise");
    out[0] = tow_apply(s, "mlp", &mlp, in[0]);
    if (n_out > 1) out[1] = tow_mul_scalar(out[0], 3);
    if (n_out > 2) out[2] = key;
}
static const tow_module_class other_class = {"other", call_other};
static const bare other = {{&other_class}};

static const tow_type x = {.dtype = TOW_F32, .rank = 2, .dims = {2, 4}};

/* Gradients as parameters, so that those of a stack can be compared layer by layer. */
static tow_params *gradients(const lift_run *r)
{
    tow_params *list;
    const char *paths[LIFT_ARRAYS];
    for (size_t i = 0; i < tow_params_count(r->params); i++) paths[i] = tow_params_path(r->params, i);
    OK(tow_params_from_arrays(ctx, tow_params_count(r->params), paths, r->grads, &list));
    return list;
}

static void expect_same(const char *what, const tow_module *a, const tow_module *b, size_t n_in, const tow_type *types,
                        size_t n_out)
{
    lift_run r[2];
    const stack models[] = {{{&stack_class}, a}, {{&stack_class}, b}};
    for (int i = 0; i < 2; i++) run_lifted(&r[i], TOW_MODULE(&models[i]), n_in, types, n_out, NULL);
    tow_params *grads[] = {gradients(&r[0]), gradients(&r[1])};
    expect_same_list(what, r[0].params, r[1].params);
    expect_same_list(what, r[0].state, r[1].state);
    expect_same_list(what, grads[0], grads[1]);
    for (size_t i = 0; i < n_out; i++) {
        tow_array *y = r[0].outputs[i], *z = r[1].outputs[i];
        assert_true(tow_type_equal(tow_array_type(y), tow_array_type(z)));
        if (memcmp(tow_array_data(y), tow_array_data(z), tow_type_bytes(tow_array_type(y))))
            fail_msg("%s: output %zu", what, i);
    }
    for (int i = 0; i < 2; i++) {
        tow_params_free(grads[i]);
        free_lift_run(&r[i]);
    }
}

static void test_remat_scan(void **unused)
{
    (void)unused;
    static const int64_t lengths[][3] = {{2, 3}, {3, 2}, {6}, {1, 6}, {3, 1, 2}};
    tow_scan flat = TOW_SCAN(&cell, .length = 6), unrolled = TOW_SCAN(&cell, .length = 6, .unrolled = true);
    tow_scan carried = TOW_SCAN(&cell, .length = 6,
                                .variables = TOW_RULES({"params/dense/bias", TOW_SHARED}, {"counters", TOW_CARRIED}));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        tow_remat_scan deep = TOW_REMAT_SCAN(&cell, .policy = tow_dots_saveable());
        memcpy(deep.lengths, lengths[i], sizeof lengths[i]);
        expect_same("remat_scan and scan", TOW_MODULE(&deep), TOW_MODULE(&flat), 1, &x, 1);
        expect_same("remat_scan and layers", TOW_MODULE(&deep), TOW_MODULE(&unrolled), 1, &x, 1);
        deep.variables = carried.variables;
        lift_run a, b;
        run_lifted(&a, TOW_MODULE(&STACK(&deep)), 1, &x, 1, NULL);
        run_lifted(&b, TOW_MODULE(&STACK(&carried)), 1, &x, 1, NULL);
        expect_same_list("shared and carried", a.params, b.params);
        expect_same_list("shared and carried", a.state, b.state);
        free_lift_run(&a);
        free_lift_run(&b);
    }
}

static void test_layer_stack(void **unused)
{
    (void)unused;
    const tow_module *a = TOW_MODULE(&cell), *b = TOW_MODULE(&other);
    const tow_remat remat = TOW_REMAT(&cell), dots = TOW_REMAT(&other, .policy = tow_dots_saveable());
    const tow_module *c = TOW_MODULE(&remat), *d = TOW_MODULE(&dots);
    const tow_layer_stack stacks[] = {
        TOW_LAYER_STACK(.length = 8, .pattern = TOW_LAYERS(a, a, b)),
        TOW_LAYER_STACK(.length = 7, .pattern = TOW_LAYERS(c, b)),
        TOW_LAYER_STACK(.length = 7, .pattern = TOW_LAYERS(a, d), .first = TOW_LAYERS(b), .last = TOW_LAYERS(b, a)),
        TOW_LAYER_STACK(.pattern = TOW_LAYERS(c, a, d)),
        TOW_LAYER_STACK(.length = 1, .pattern = TOW_LAYERS(a, b)),
        TOW_LAYER_STACK(.first = TOW_LAYERS(a, b)),
        TOW_LAYER_STACK(.length = 6, .pattern = TOW_LAYERS(a), .variables = TOW_RULES({"batch_stats", TOW_CARRIED})),
        TOW_LAYER_STACK(.length = 9, .pattern = TOW_LAYERS(a, b), .streams = TOW_RULES({"noise", TOW_SHARED})),
        TOW_LAYER_STACK(.length = 5, .pattern = TOW_LAYERS(a, c), .keys = TOW_KEYS_FLAX),
    };
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        char what[32];
        tow_layer_stack unrolled = stacks[i];
        unrolled.unrolled = true;
        snprintf(what, sizeof what, "stack %zu", i);
        expect_same(what, TOW_MODULE(&stacks[i]), TOW_MODULE(&unrolled), 1, &x, 3);
    }
    /* Of one kind of layers it is a scan, also with a policy for every second one. */
    tow_scan scan = TOW_SCAN(&cell, .length = 6);
    tow_layer_stack second = TOW_LAYER_STACK(.length = 6, .pattern = TOW_LAYERS(c, a));
    const tow_type rows[] = {x, TYPE(TOW_F32, 6, 2, 4)};
    expect_same("every second one", TOW_MODULE(&second), TOW_MODULE(&scan), 2, rows, 3);
}

/* Layers of a pattern are rows of few arrays, found by the number of the layer. */
static void test_layers_by_number(void **unused)
{
    (void)unused;
    tow_layer_stack model = TOW_LAYER_STACK(.length = 8, .pattern = TOW_LAYERS(TOW_MODULE(&cell), TOW_MODULE(&other)),
                                            .first = TOW_LAYERS(TOW_MODULE(&cell)));
    tow_remat_scan deep = TOW_REMAT_SCAN(&cell, .lengths = {2, 3});
    lift_run r;
    tow_array *layer, *rows;
    run_lifted(&r, TOW_MODULE(&STACK(&model)), 1, &x, 1, NULL);
    rows = tow_params_find(r.params, "stack/{1+2}/dense/kernel");
    assert_non_null(rows);
    assert_true(tow_type_equal(tow_array_type(rows), TYPE(TOW_F32, 3, 4, 4)));
    OK(tow_params_get(r.params, "stack/5/dense/kernel", &layer));
    assert_ptr_equal(tow_array_data(layer), (char *)tow_array_data(rows) + 2 * 64);
    tow_array_release(layer);
    expect_error(tow_params_get(r.params, "stack/4/dense/kernel", &layer), TOW_NOT_FOUND, "stack/4/dense/kernel");
    expect_error(tow_params_get(r.params, "stack/9/dense/kernel", &layer), TOW_INVALID_ARGUMENT, "no such layer");
    assert_non_null(tow_params_find(r.params, "stack/0/dense/kernel"));
    assert_non_null(tow_params_find(r.params, "stack/7/dense/kernel"));
    free_lift_run(&r);
    run_lifted(&r, TOW_MODULE(&STACK(&deep)), 1, &x, 1, NULL);
    rows = tow_params_find(r.params, "stack/{0+3,1}/dense/kernel");
    assert_non_null(rows);
    OK(tow_params_get(r.params, "stack/4/dense/kernel", &layer));
    assert_ptr_equal(tow_array_data(layer), (char *)tow_array_data(rows) + 4 * 64);
    tow_array_release(layer);
    free_lift_run(&r);
}

/* Several iterations in a turn: outputs, variables and keys have the same bits. */
static void test_unroll(void **unused)
{
    (void)unused;
    for (int64_t length = 0; length < 8; length++)
        for (int64_t unroll = 2; unroll < 6; unroll++)
            for (int reverse = 0; reverse < 2; reverse++) {
                const tow_type types[] = {x, TYPE(TOW_F32, length, 2, 4)};
                tow_scan plain = TOW_SCAN(&cell, .reverse = reverse), turns = plain;
                turns.unroll = unroll;
                expect_same("unroll", TOW_MODULE(&plain), TOW_MODULE(&turns), 2, types, 3);
            }
}

/* A default for keys in the options of the model is that of each scan. */
static void test_keys_of_the_model(void **unused)
{
    (void)unused;
    tow_model_options flax = TOW_MODEL_OPTIONS(.keys = TOW_KEYS_FLAX), path = TOW_MODEL_OPTIONS(.keys = TOW_KEYS_PATH);
    tow_scan plain = TOW_SCAN(&cell, .length = 3), by_path = plain, by_flax = plain;
    by_path.keys = TOW_KEYS_PATH;
    by_flax.keys = TOW_KEYS_FLAX;
    lift_run a, b, c;
    run_lifted(&a, TOW_MODULE(&STACK(&plain)), 1, &x, 3, &flax);
    run_lifted(&b, TOW_MODULE(&STACK(&by_flax)), 1, &x, 3, &path);
    run_lifted(&c, TOW_MODULE(&STACK(&by_path)), 1, &x, 3, &flax);
    expect_same_list("keys", a.params, b.params);
    assert_memory_equal(tow_array_data(a.outputs[2]), tow_array_data(b.outputs[2]), 24);
    assert_memory_not_equal(tow_array_data(a.outputs[2]), tow_array_data(c.outputs[2]), 24);
    free_lift_run(&a);
    free_lift_run(&b);
    free_lift_run(&c);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static tow_status init_with(const tow_module *module, size_t n_in, size_t n_out)
{
    const tow_type types[] = {x, TYPE(TOW_F32, 3, 2, 4), TYPE(TOW_F32, 2, 2, 4)};
    const stack model = {{&stack_class}, module};
    tow_params *params = NULL, *state = NULL;
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = n_out);
    tow_status status = tow_model_init_with(ctx, TOW_MODULE(&model), 3, n_in, types, &options, &params, &state);
    tow_params_free(params);
    tow_params_free(state);
    return status;
}

static void test_errors(void **unused)
{
    (void)unused;
    const int bad_axis[] = {3}, minus[] = {-4}, whole[] = {TOW_NOT_MAPPED}, once[] = {TOW_NOT_MAPPED, 0};
    const tow_module *a = TOW_MODULE(&cell);
    expect_error(init_with(TOW_MODULE(&TOW_SCAN(&cell, .in_axes = bad_axis)), 2, 1), TOW_INVALID_ARGUMENT,
                 "scan: xs 0 is f32[3,2,4], which has no axis 3 of .in_axes", "TOW_NOT_MAPPED");
    expect_error(init_with(TOW_MODULE(&TOW_SCAN(&cell, .out_axes = minus)), 2, 2), TOW_INVALID_ARGUMENT,
                 "ys 0 is f32[3,2,4] when stacked, which has no axis -4");
    expect_error(init_with(TOW_MODULE(&TOW_SCAN(&cell, .in_axes = whole)), 2, 1), TOW_INVALID_ARGUMENT, "no length");
    expect_error(init_with(TOW_MODULE(&TOW_SCAN(&cell, .length = 2)), 2, 1), TOW_SHAPE_MISMATCH,
                 "xs 0: expected a leading axis of length 2", "f32[3,2,4]");
    expect_error(init_with(TOW_MODULE(&TOW_SCAN(&cell, .unroll = -1)), 2, 1), TOW_INVALID_ARGUMENT, ".unroll = -1");
    expect_error(init_with(TOW_MODULE(&TOW_SCAN(&cell, .length = 1000000, .unroll = 1000000)), 1, 1),
                 TOW_INVALID_ARGUMENT, "scan: unroll writes out 1000000 iterations of", "more than 1048576 equations");
    expect_error(init_with(TOW_MODULE(&TOW_SCAN(&cell, .length = 1000000, .unrolled = true)), 1, 1),
                 TOW_INVALID_ARGUMENT, "scan: .unrolled writes out 1000000 layers of", "leave .unrolled out");
    expect_error(init_with(TOW_MODULE(&TOW_VMAP(&cell, .axis_size = 1000000, .unrolled = true,
                                                .in_axes = (int[]){TOW_NOT_MAPPED})),
                           1, 1),
                 TOW_INVALID_ARGUMENT, "vmap: .unrolled writes out 1000000 layers of");
    expect_error(init_with(TOW_MODULE(&TOW_SCAN(&cell, .out_axes = once)), 2, 3), TOW_INVALID_ARGUMENT,
                 "output 0 is TOW_NOT_MAPPED in .out_axes, but depends on the iteration");
    expect_error(init_with(TOW_MODULE(&TOW_REMAT_SCAN(&cell, .policy = tow_dots_saveable())), 1, 1),
                 TOW_INVALID_ARGUMENT, "remat_scan: .lengths[0] = 0");
    expect_error(init_with(TOW_MODULE(&TOW_REMAT_SCAN(&cell, .lengths = {2, -1})), 1, 1), TOW_INVALID_ARGUMENT,
                 ".lengths[1] = -1");
    expect_error(init_with(TOW_MODULE(&TOW_REMAT_SCAN(&cell, .lengths = {2})), 2, 1), TOW_INVALID_ARGUMENT,
                 "expected 1 inputs");
    expect_error(init_with(TOW_MODULE(&TOW_LAYER_STACK(.length = 2)), 1, 1), TOW_INVALID_ARGUMENT, ".length = 2",
                 "pattern");
    expect_error(init_with(TOW_MODULE(&TOW_LAYER_STACK(.length = 1, .first = TOW_LAYERS(a, a))), 1, 1),
                 TOW_INVALID_ARGUMENT, ".length = 1, with 2 layers");
    expect_error(init_with(TOW_MODULE(&TOW_LAYER_STACK(.length = 0)), 1, 1), TOW_INVALID_ARGUMENT, "positive length");
    expect_error(init_with(TOW_MODULE(&TOW_LAYER_STACK(.length = 4, .pattern = TOW_LAYERS(a))), 2, 1),
                 TOW_SHAPE_MISMATCH, "layer_stack: xs 0: expected a leading axis of length 4");
    expect_error(init_with(TOW_MODULE(&TOW_LAYER_STACK(.pattern = TOW_LAYERS(a), .n_carry = 2)), 1, 1),
                 TOW_INVALID_ARGUMENT, "expected at least 2 inputs");
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static tow_status use_stacks(tow_context *c)
{
    const int axes[] = {1};
    tow_remat_scan deep = TOW_REMAT_SCAN(&cell, .lengths = {2, 2}, .variables = TOW_RULES({"counters", TOW_CARRIED}));
    tow_scan scan = TOW_SCAN(&cell, .unroll = 2, .in_axes = axes);
    tow_layer_stack layers = TOW_LAYER_STACK(.length = 4, .pattern = TOW_LAYERS(TOW_MODULE(&cell), TOW_MODULE(&other)),
                                             .last = TOW_LAYERS(TOW_MODULE(&deep)));
    const tow_module *models[] = {TOW_MODULE(&layers), TOW_MODULE(&scan)};
    const tow_type types[] = {x, TYPE(TOW_F32, 2, 3, 4)};
    tow_status status = TOW_OK;
    for (unsigned i = 0; i < 2 && !status; i++) {
        tow_params *params = NULL, *state = NULL;
        tow_graph *graph = NULL;
        tow_model_options options = TOW_MODEL_OPTIONS(.streams = (const char *const[]){"noise", NULL});
        status = tow_model_init_with(c, models[i], 3, i + 1U, types, &options, &params, &state);
        options.state = state;
        if (!status) status = tow_model_forward_graph(models[i], params, i + 1U, types, &options, &graph);
        tow_params_free(params);
        tow_params_free(state);
        tow_graph_release(graph);
    }
    return status;
}

static void test_failing_allocations(void **unused)
{
    (void)unused;
    fail_in_turn(use_stacks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remat_scan),          cmocka_unit_test(test_layer_stack),
        cmocka_unit_test(test_layers_by_number),    cmocka_unit_test(test_unroll),
        cmocka_unit_test(test_keys_of_the_model),   cmocka_unit_test(test_errors),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

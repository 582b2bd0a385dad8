/* TOW_VMAP beyond its golden files: rows recorded by themselves, no rows at all, variables that rows share, what goes
 * wrong, and failing allocations. Tests vmap.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/lift_cell.h"

static const tow_type rows = {.dtype = TOW_F32, .rank = 3, .dims = {3, 2, 4}};

static void run_layer(lift_run *r, const tow_module *inner, const tow_type *x, size_t n_out)
{
    const stack model = {{&stack_class}, inner};
    run_lifted(r, TOW_MODULE(&model), 1, x, n_out, NULL);
}

/* ---- rows by themselves ------------------------------------------------------------------------------------------ */

static void expect_close(const char *what, tow_array *a, tow_array *b)
{
    assert_true(tow_type_equal(tow_array_type(a), tow_array_type(b)));
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(a)); i++) {
        double x = array_element(a, i), y = array_element(b, i);
        if (!(fabs(x - y) <= 1e-6 * (1 + fabs(x)))) fail_msg("%s[%d]: %.9g and %.9g", what, (int)i, x, y);
    }
}

/* Names on disk, initial values and keys are equal, outputs, gradients and variables agree: products of one row may be
 * summed in another order than those of all rows. */
static void expect_same_rows(const char *what, tow_vmap_layer vmap, const tow_type *x)
{
    lift_run a, b;
    tow_vmap_layer unrolled = vmap;
    unrolled.unrolled = true;
    run_layer(&a, TOW_MODULE(&vmap), x, 3);
    run_layer(&b, TOW_MODULE(&unrolled), x, 3);
    expect_same_list(what, a.params, b.params);
    for (size_t i = 0; i < 2; i++) expect_close(what, a.outputs[i], b.outputs[i]);
    assert_memory_equal(tow_array_data(a.outputs[2]), tow_array_data(b.outputs[2]),
                        tow_type_bytes(tow_array_type(a.outputs[2])));
    expect_close(what, a.in_grads[0], b.in_grads[0]);
    tow_tensors *of_a, *of_b;
    OK(tow_tensors_create(ctx, &of_a));
    OK(tow_tensors_create(ctx, &of_b));
    OK(tow_params_to_tensors(a.state, "", of_a));
    OK(tow_params_to_tensors(b.state, "", of_b));
    assert_int_equal(tow_tensors_count(of_a), tow_tensors_count(of_b));
    for (size_t i = 0; i < tow_tensors_count(of_a); i++) {
        tow_array *other = tow_tensors_find(of_b, tow_tensors_name(of_a, i));
        if (!other) fail_msg("%s: no variable %s", what, tow_tensors_name(of_a, i));
        expect_close(what, tow_tensors_at(of_a, i), other);
    }
    tow_tensors_free(of_a);
    tow_tensors_free(of_b);
    free_lift_run(&a);
    free_lift_run(&b);
}

static void test_unrolled(void **unused)
{
    (void)unused;
    const int whole[] = {TOW_NOT_MAPPED}, last[] = {-2}, out[] = {1, -1, 1};
    const tow_type x = TYPE(TOW_F32, 2, 4), middle = TYPE(TOW_F32, 2, 3, 4);
    const tow_remat remat = TOW_REMAT(&cell);
    for (int flax = 0; flax < 2; flax++) {
        const tow_scan_keys keys = flax ? TOW_KEYS_FLAX : TOW_KEYS_PATH;
        expect_same_rows("rows", TOW_VMAP(&cell, .keys = keys), &rows);
        expect_same_rows("ensemble", TOW_VMAP(&remat, .axis_size = 3, .in_axes = whole, .keys = keys), &x);
        expect_same_rows("axes", TOW_VMAP(&cell, .in_axes = last, .out_axes = out, .keys = keys), &middle);
        expect_same_rows("parameters", TOW_VMAP(&cell, .variables = TOW_RULES({"params", TOW_SHARED}), .keys = keys),
                         &rows);
        expect_same_rows("keys", TOW_VMAP(&cell, .streams = TOW_RULES({"noise", TOW_SHARED}), .keys = keys), &rows);
        expect_same_rows("counters", TOW_VMAP(&cell, .variables = TOW_RULES({"counters", TOW_SHARED}), .keys = keys),
                         &rows);
    }
}

/* A scan may write what its iterations share where the value does not depend on the iteration: all of them read what
 * was there before. */
static void test_shared_in_scan(void **unused)
{
    (void)unused;
    const tow_type x = TYPE(TOW_F32, 2, 4);
    lift_run a, b;
    tow_scan loop = TOW_SCAN(&cell, .length = 3, .variables = TOW_RULES({"counters", TOW_SHARED})), unrolled = loop;
    unrolled.unrolled = true;
    run_layer(&a, TOW_MODULE(&loop), &x, 3);
    run_layer(&b, TOW_MODULE(&unrolled), &x, 3);
    assert_true(((const int32_t *)tow_array_data(tow_params_find(a.state, "counters/stack/calls")))[0] == 2);
    expect_same_list("shared", a.state, b.state);
    for (size_t i = 0; i < 3; i++)
        assert_memory_equal(tow_array_data(a.outputs[i]), tow_array_data(b.outputs[i]),
                            tow_type_bytes(tow_array_type(a.outputs[i])));
    free_lift_run(&a);
    free_lift_run(&b);
}

/* ---- no rows ----------------------------------------------------------------------------------------------------- */

static void test_empty(void **unused)
{
    (void)unused;
    const int whole[] = {TOW_NOT_MAPPED};
    const tow_type none = TYPE(TOW_F32, 0, 2, 4), x = TYPE(TOW_F32, 2, 4);
    const tow_vmap_layer by_size = TOW_VMAP(&cell, .empty = true, .in_axes = whole), by_input = TOW_VMAP(&cell);
    lift_run r;
    for (int k = 0; k < 2; k++) {
        run_layer(&r, k ? TOW_MODULE(&by_input) : TOW_MODULE(&by_size), k ? &none : &x, 3);
        assert_true(tow_type_equal(tow_array_type(r.outputs[0]), none));
        assert_true(tow_type_equal(tow_array_type(r.outputs[2]), TYPE(TOW_U32, 0, 2)));
        assert_true(
            tow_type_equal(tow_array_type(tow_params_find(r.params, "stack/{}/dense/kernel")), TYPE(TOW_F32, 0, 4, 4)));
        for (int64_t i = 0; k == 0 && i < 8; i++) assert_true(array_element(r.in_grads[0], i) == 0);
        free_lift_run(&r);
    }
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Initializes and records a call that may write everything. */
static tow_status record(tow_context *c, const tow_module *inner, size_t n_in, size_t n_out)
{
    const tow_type types[] = {rows, TYPE(TOW_F32, 2, 2, 4)};
    const stack model = {{&stack_class}, inner};
    tow_params *params = NULL, *state = NULL;
    tow_graph *graph = NULL;
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = n_out, .streams = (const char *const[]){"noise", NULL});
    tow_status status = tow_model_init_with(c, TOW_MODULE(&model), 3, n_in, types, &options, &params, &state);
    options.state = state;
    options.mutable_collections = (const char *const[]){TOW_EVERY_COLLECTION, NULL};
    if (!status) status = tow_model_forward_graph(TOW_MODULE(&model), params, n_in, types, &options, &graph);
    tow_params_free(params);
    tow_params_free(state);
    tow_graph_release(graph);
    return status;
}
#define EXPECT(n_in, n_out, status, text, ...)                                                                         \
    expect_error(record(ctx, TOW_MODULE(&TOW_VMAP(&cell, __VA_ARGS__)), n_in, n_out), status, "vmap: " text)

static void test_errors(void **unused)
{
    (void)unused;
    const int three[] = {3}, minus[] = {-4}, whole[] = {TOW_NOT_MAPPED}, once[] = {TOW_NOT_MAPPED, 0};
    EXPECT(1, 1, TOW_INVALID_ARGUMENT, "input 0 is f32[3,2,4], which has no axis 3", .in_axes = three);
    EXPECT(1, 1, TOW_INVALID_ARGUMENT, "input 0 is f32[3,2,4], which has no axis -4", .in_axes = minus);
    EXPECT(2, 1, TOW_SHAPE_MISMATCH, "input 1 is f32[2,2,4] with 2 rows along axis 0; expected 3 (as an earlier",
           .unrolled = false);
    EXPECT(1, 1, TOW_SHAPE_MISMATCH, "input 0 is f32[3,2,4] with 3 rows along axis 0; expected 5 (the .axis_size)",
           .axis_size = 5);
    EXPECT(1, 1, TOW_SHAPE_MISMATCH, "input 0 is f32[3,2,4] with 3 rows along axis 0; expected 0", .empty = true);
    EXPECT(1, 1, TOW_INVALID_ARGUMENT, ".axis_size = -1; expected a positive", .axis_size = -1);
    EXPECT(1, 1, TOW_INVALID_ARGUMENT, ".axis_size = 3 with .empty", .axis_size = 3, .empty = true);
    EXPECT(1, 1, TOW_INVALID_ARGUMENT, "no mapped input", .in_axes = whole);
    EXPECT(1, 1, TOW_INVALID_ARGUMENT, "output 0 is f32[3,2,4] when stacked, which has no axis 3", .out_axes = three);
    EXPECT(1, 1, TOW_INVALID_ARGUMENT, "output 0 is f32[3,2,4] when stacked, which has no axis -4", .out_axes = minus);
    EXPECT(1, 1, TOW_INVALID_ARGUMENT, ".variables: \"counters\" is TOW_CARRIED",
           .variables = TOW_RULES({"counters", TOW_CARRIED}));
    EXPECT(1, 1, TOW_NOT_FOUND, ".variables: \"counter\" matches no", .variables = TOW_RULES({"counter", TOW_SHARED}));
    const tow_vmap_layer given_once = TOW_VMAP(&cell, .out_axes = once),
                         written = TOW_VMAP(&cell, .variables = TOW_RULES({"batch_stats", TOW_SHARED}));
    expect_error(record(ctx, TOW_MODULE(&given_once), 1, 2), TOW_INVALID_ARGUMENT, "output 0", "TOW_NOT_MAPPED");
    expect_error(record(ctx, TOW_MODULE(&written), 1, 1), TOW_INVALID_ARGUMENT,
                 "batch_stats/stack/mean: written in the vmap stack with a value that depends on the row",
                 "TOW_STACKED");
}

/* Transforms inside each other beyond the axes that arrays may have. */
static void test_depth(void **unused)
{
    (void)unused;
    const int whole[] = {TOW_NOT_MAPPED};
    tow_vmap_layer levels[TOW_MAX_RANK + 1];
    for (int i = 0; i <= TOW_MAX_RANK; i++) {
        levels[i] = TOW_VMAP(&cell, .axis_size = 1, .in_axes = whole);
        if (i > 0) levels[i].inner = TOW_MODULE(&levels[i - 1]);
    }
    expect_error(record(ctx, TOW_MODULE(&levels[TOW_MAX_RANK]), 1, 1), TOW_UNSUPPORTED, "inside each other");
}

static tow_status use_rows(tow_context *c)
{
    const int middle[] = {1}, out[] = {1, 1, 0};
    const tow_vmap_layer vmap =
        TOW_VMAP(&cell, .in_axes = middle, .out_axes = out, .keys = TOW_KEYS_FLAX,
                 .variables = TOW_RULES({"params/**/kernel", TOW_SHARED}, {"counters", TOW_SHARED}),
                 .streams = TOW_RULES({"noise", TOW_SHARED}));
    tow_vmap_layer unrolled = vmap;
    unrolled.unrolled = true;
    tow_status status = record(c, TOW_MODULE(&vmap), 1, 3);
    return status ? status : record(c, TOW_MODULE(&unrolled), 1, 3);
}

static void test_failing_allocations(void **unused)
{
    (void)unused;
    fail_in_turn(use_rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unrolled), cmocka_unit_test(test_shared_in_scan),
        cmocka_unit_test(test_empty),    cmocka_unit_test(test_errors),
        cmocka_unit_test(test_depth),    cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

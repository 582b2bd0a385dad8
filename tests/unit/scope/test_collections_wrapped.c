/* Collections besides "params" over several calls: variables and sown values as worked out by hand; with loss and
 * gradients the same under remat and scan in any order, and as Flax has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/unit/support/running_layer.h"
#include "tests/unit/support/shape_text.h"

static void weighted_sum(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                         tow_value *aux, void *user)
{
    (void)t, (void)aux, (void)user;
    *loss = tow_reduce_sum(tow_mul(outputs[0], extra[0]), 0, NULL);
}

/* ---- runs: loss, gradients and variables of several calls, each with the variables that the last one left -------- */

typedef struct run {
    tow_params *params, *state, *updates, *gradients; /* updates: of the last call */
    float loss;
    tow_array *output;
    uint64_t tanhs;
} run;

static const char *const every_and_sown[] = {TOW_EVERY_COLLECTION, "intermediates", NULL};
static const tow_policy nothing = {.kind = TOW_POLICY_NOTHING};

static run run_model(const tow_module *model, uint64_t seed, int calls)
{
    run r = {0};
    tow_type x = TYPE(TOW_F32, 2, 4), key = TYPE(TOW_U32, 2);
    tow_model_options options = TOW_MODEL_OPTIONS(.streams = (const char *const[]){"dropout", NULL});
    OK(tow_model_init_with(ctx, model, seed, 1, &x, &options, &r.params, &r.state));
    options.state = r.state;
    options.mutable_collections = every_and_sown;
    options.updates = &r.updates;
    tow_graph *forward, *loss, *gradient;
    OK(tow_model_loss_graph(model, r.params, 1, &x, 1, &x, weighted_sum, NULL, 0, &options, &loss));
    tow_params_free(r.updates);
    OK(tow_model_forward_graph(model, r.params, 1, &x, &options, &forward));
    OK(tow_graph_check(forward));
    OK(tow_graph_check(loss));
    size_t n = tow_params_count(r.params), n_state = tow_params_count(r.state), n_updates = tow_params_count(r.updates);
    assert_int_equal(tow_graph_output_count(forward), 1 + n_updates);
    assert_int_equal(tow_graph_output_count(loss), 1 + n_updates);
    size_t wrt[64];
    for (size_t i = 0; i < n; i++) wrt[i] = i;
    OK(tow_value_and_grad(loss, n, wrt, true, &gradient));
    OK(tow_graph_check(gradient));
    tow_program *program;
    OK(tow_compile(ctx, gradient, NULL, &program));
    r.tanhs = tow_program_operation_count(program, "tanh");
    OK(tow_params_zeros_like(r.params, &r.gradients));
    tow_array *in[64], *out[64], *scalar;
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(r.params, i);
    for (size_t i = 0; i < n_state; i++) in[n + i] = tow_params_array(r.state, i);
    tow_array *batch = exact_fractions(ctx, x), *rng;
    OK(tow_array_from_data(ctx, key, (uint32_t[]){0, 5}, &rng));
    OK(tow_array_create(ctx, SCALAR(TOW_F32), &scalar));
    in[n + n_state] = in[n + n_state + 1] = batch;
    in[n + n_state + 2] = rng;
    out[0] = scalar;
    for (size_t i = 0; i < n_updates; i++) out[1 + i] = tow_params_array(r.updates, i);
    for (size_t i = 0; i < n; i++) out[1 + n_updates + i] = tow_params_array(r.gradients, i);
    for (int call = 0; call < calls; call++) {
        if (call == calls - 1) { /* the forward graph alone gives the same updates */
            tow_array *again[64], *inputs[64];
            memcpy(inputs, in, sizeof inputs);
            inputs[n + n_state + 1] = rng;
            OK(tow_evaluate(forward, inputs, again));
            r.output = again[0];
            OK(tow_program_run(program, in, out));
            for (size_t i = 0; i < n_updates; i++) {
                assert_memory_equal(tow_array_data(again[1 + i]), tow_array_data(out[1 + i]),
                                    tow_type_bytes(tow_array_type(out[1 + i])));
                tow_array_release(again[1 + i]);
            }
        } else {
            OK(tow_program_run(program, in, out));
        }
        copy_matching(r.state, r.updates);
    }
    r.loss = *(float *)tow_array_data(scalar);
    tow_array_release(scalar);
    tow_array_release(batch);
    tow_array_release(rng);
    tow_program_free(program);
    tow_graph_release(forward);
    tow_graph_release(loss);
    tow_graph_release(gradient);
    return r;
}

static void free_run(run *r)
{
    tow_params_free(r->params);
    tow_params_free(r->state);
    tow_params_free(r->updates);
    tow_params_free(r->gradients);
    tow_array_release(r->output);
}

static void expect_same_run(const char *what, const run *a, const run *b)
{
    expect_same_list(what, a->params, b->params);
    expect_same_list(what, a->updates, b->updates); /* variables and sown values */
    expect_same_list(what, a->state, b->state);
    expect_same_list(what, a->gradients, b->gradients);
    if (memcmp(&a->loss, &b->loss, sizeof a->loss) != 0) fail_msg("%s: loss", what);
    assert_memory_equal(tow_array_data(a->output), tow_array_data(b->output), 8 * sizeof(float));
}

/* ---- plain ------------------------------------------------------------------------------------------------------- */

static void test_variables_by_hand(void **state)
{
    (void)state;
    running layer = RUNNING();
    run r = run_model(TOW_MODULE(&layer), 1, 2);
    assert_int_equal(tow_params_count(r.params), 2);
    assert_int_equal(tow_params_count(r.state), 2);
    assert_string_equal(tow_params_path(r.state, 0), "batch_stats/mean");
    assert_string_equal(tow_params_path(r.state, 1), "counters/calls");
    assert_int_equal(tow_params_count(r.updates), 4);
    assert_string_equal(tow_params_path(r.updates, 2), "intermediates/hidden/0");
    assert_string_equal(tow_params_path(r.updates, 3), "intermediates/hidden/1");
    assert_int_equal(count_at(r.state, "counters/calls"), 2);
    const float *mean = tow_array_data(tow_params_array(r.state, 0)), *y = tow_array_data(r.output);
    const float *sown = tow_array_data(tow_params_array(r.updates, 2)),
                *twice = tow_array_data(tow_params_array(r.updates, 3));
    for (int i = 0; i < 4; i++) {
        float a = (float)((i * 7919) % 257 - 128) / 64, b = (float)(((i + 4) * 7919) % 257 - 128) / 64;
        assert_true(mean[i] == 0.75F * (0.25F * ((a + b) / 2)) + 0.25F * ((a + b) / 2)); /* exact in float32 */
    }
    for (int i = 0; i < 8; i++) {
        assert_true(sown[i] == y[i]);
        assert_true(twice[i] == 2 * y[i]);
    }
    free_run(&r);
}

/* ---- every wrapping ---------------------------------------------------------------------------------------------- */

static void expect_wrapping_is_invisible(running layer, const tow_lift_rule *shared)
{
    const tow_policy dots = tow_dots_saveable(), everything = tow_everything_saveable();
    const tow_policy *policies[] = {&nothing, &dots, &everything};
    tow_scan plain = TOW_SCAN(&layer, .length = 3, .unrolled = true, .variables = shared);
    run reference = run_model(TOW_MODULE(&plain), 7, 3);
    assert_true(fabsf(reference.loss) > 0.01F);
    if (shared)
        assert_int_equal(count_at(reference.state, "counters/calls"), 9);
    else
        assert_int_equal(count_at(reference.state, "counters/2/calls"), 3);
    for (size_t i = 0; i < 3; i++) {
        tow_remat inner = TOW_REMAT(&layer, .policy = *policies[i]), twice = TOW_REMAT(&inner);
        tow_scan scanned = TOW_SCAN(&layer, .length = 3, .variables = shared);
        tow_scan scan_remat = TOW_SCAN(&inner, .length = 3, .variables = shared);
        tow_scan loop_remat = TOW_SCAN(&inner, .length = 3, .unrolled = true, .variables = shared);
        tow_scan scan_twice = TOW_SCAN(&twice, .length = 3, .variables = shared);
        tow_remat remat_scan = TOW_REMAT(&scanned, .policy = *policies[i]);
        tow_remat both = TOW_REMAT(&scan_remat, .policy = *policies[i]);
        const struct {
            const char *name;
            const tow_module *module;
        } wrappings[] = {{"scan", TOW_MODULE(&scanned)},
                         {"scan(remat)", TOW_MODULE(&scan_remat)},
                         {"unrolled remat", TOW_MODULE(&loop_remat)},
                         {"remat(scan)", TOW_MODULE(&remat_scan)},
                         {"remat(scan(remat))", TOW_MODULE(&both)},
                         {"scan(remat(remat))", TOW_MODULE(&scan_twice)}};
        for (size_t k = 0; k < sizeof wrappings / sizeof *wrappings; k++) {
            char what[96];
            snprintf(what, sizeof what, "%s, policy %zu%s", wrappings[k].name, i, shared ? ", shared" : "");
            run r = run_model(wrappings[k].module, 7, 3);
            expect_same_run(what, &reference, &r);
            /* Layers are recomputed, or the test would prove little. The last one needs none: its output is at hand. */
            if (i == 0 && k > 2) assert_true(r.tanhs > reference.tanhs);
            free_run(&r);
        }
    }
    free_run(&reference);
}

static void test_wrapping_is_invisible(void **state)
{
    (void)state;
    expect_wrapping_is_invisible(RUNNING(), NULL);
    expect_wrapping_is_invisible(RUNNING(.drops = 0.5), NULL);
}

static void test_wrapping_is_invisible_to_shared_variables(void **state)
{
    (void)state;
    expect_wrapping_is_invisible(RUNNING(), TOW_RULES({"counters", TOW_CARRIED}));
    expect_wrapping_is_invisible(RUNNING(.drops = 0.5),
                                 TOW_RULES({"counters", TOW_CARRIED}, {"batch_stats", TOW_CARRIED}));
}

/* Two levels: rows of rows, shared by the inner iterations, by the outer, by all. */
static void test_nested_scans(void **state)
{
    (void)state;
    running layer = RUNNING();
    static const tow_lift_rule counters[] = {{"counters", TOW_CARRIED}, {.pattern = NULL}};
    static const char *const calls[4][2] = {{"counters/1/2/calls", "counters/{}/{}/calls"},
                                            {"counters/1/calls", "counters/{}/calls"},
                                            {"counters/2/calls", "counters/{}/calls"},
                                            {"counters/calls", "counters/calls"}};
    static const int32_t expected[4] = {2, 6, 4, 12};
    for (int shared = 0; shared < 4; shared++) {
        run reference;
        for (int unrolled = 3; unrolled >= 0; --unrolled) {
            tow_scan inner =
                TOW_SCAN(&layer, .length = 3, .unrolled = unrolled & 1, .variables = shared & 1 ? counters : NULL);
            tow_remat between = TOW_REMAT(&inner);
            tow_scan outer =
                TOW_SCAN(&between, .length = 2, .unrolled = unrolled >> 1, .variables = shared & 2 ? counters : NULL);
            run r = run_model(TOW_MODULE(&outer), 7, 2);
            assert_int_equal(count_at(r.state, calls[shared][0]), expected[shared]);
            if (unrolled == 0) assert_non_null(tow_params_find(r.state, calls[shared][1]));
            if (unrolled == 3) {
                reference = r;
                continue;
            }
            expect_same_run("nested", &reference, &r);
            free_run(&r);
        }
        free_run(&reference);
    }
}

/* The order in which iterations see a shared variable; one scope called twice; reverse; no iterations. */
static void test_order_of_shared_variables(void **state)
{
    (void)state;
    running layer = RUNNING();
    static const tow_lift_rule counters[] = {{"counters", TOW_CARRIED}, {.pattern = NULL}};
    for (int reverse = 0; reverse < 2; reverse++) {
        tow_scan loop = TOW_SCAN(&layer, .length = 3, .reverse = reverse, .variables = counters);
        tow_scan unrolled = loop;
        unrolled.unrolled = true;
        run a = run_model(TOW_MODULE(&loop), 3, 2), b = run_model(TOW_MODULE(&unrolled), 3, 2);
        expect_same_run("order", &a, &b);
        free_run(&a);
        free_run(&b);
    }
    tow_scan none = TOW_SCAN(&layer, .empty = true, .variables = counters);
    run r = run_model(TOW_MODULE(&none), 3, 2);
    assert_int_equal(count_at(r.state, "counters/calls"), 0);
    assert_true(tow_type_equal(tow_array_type(tow_params_find(r.state, "batch_stats/{}/mean")), TYPE(TOW_F32, 0, 4)));
    free_run(&r);
}

/* The same child twice: tied parameters, and the second call sees what the first one wrote. */
static void call_tied(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    running layer = RUNNING();
    tow_remat remat = TOW_REMAT(&layer);
    tow_scan loop = TOW_SCAN(&remat, .length = 2);
    out[0] = tow_apply(s, "tied", &loop, tow_apply(s, "tied", &loop, in[0]));
}
static const tow_module_class tied_class = {"tied", call_tied};

static void test_one_scope_twice(void **state)
{
    (void)state;
    bare model = {{&tied_class}};
    tow_remat remat = TOW_REMAT(&model);
    run a = run_model(TOW_MODULE(&model), 3, 2), b = run_model(TOW_MODULE(&remat), 3, 2);
    assert_int_equal(count_at(a.state, "counters/tied/1/calls"), 4);
    assert_non_null(tow_params_find(a.updates, "intermediates/tied/{}/hidden/3"));
    expect_same_run("tied", &a, &b);
    free_run(&a);
    free_run(&b);
}

/* ---- Flax -------------------------------------------------------------------------------------------------------- */

static tow_array *flax_value(const run *r, const char *what)
{
    if (strncmp(what, "output", 6) == 0) return r->output;
    if (strcmp(what, "gradient") == 0) {
        tow_array *plain = tow_params_find(r->gradients, "dense/kernel");
        return plain ? plain : tow_params_find(r->gradients, "{}/dense/kernel");
    }
    tow_array *found = tow_params_find(r->updates, what);
    char stacked[64]; /* "counters/calls" -> "counters/{}/calls" */
    snprintf(stacked, sizeof stacked, "%.*s/{}%s", (int)strcspn(what, "/"), what, strchr(what, '/'));
    return found ? found : tow_params_find(r->updates, stacked);
}

static void test_as_flax(void **state)
{
    (void)state;
    running layer = RUNNING();
    tow_remat plain = TOW_REMAT(&layer);
    tow_scan scan = TOW_SCAN(&plain, .length = 3, .keys = TOW_KEYS_FLAX), carry = scan;
    carry.variables = TOW_RULES({"counters", TOW_CARRIED});
    tow_scan unrolled = scan, carry_unrolled = carry;
    unrolled.unrolled = carry_unrolled.unrolled = true;
    static const char *const cases[] = {"plain", "scan", "carry"};
    const tow_module *models[] = {TOW_MODULE(&plain), TOW_MODULE(&scan), TOW_MODULE(&carry)};
    const tow_module *loops[] = {TOW_MODULE(&unrolled), TOW_MODULE(&carry_unrolled)};
    run runs[3][2];
    for (int c = 0; c < 3; c++)
        for (int calls = 1; calls <= 2; calls++) runs[c][calls - 1] = run_model(models[c], 3, calls);
    for (int c = 1; c < 3; c++) {
        run r = run_model(loops[c - 1], 3, 2);
        expect_same_run(cases[c], &runs[c][1], &r);
        free_run(&r);
    }
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/flax_collections.txt", "r");
    assert_non_null(file);
    char name[32], what[64];
    char shape[128], shape_found[128];
    int lines = 0;
    for (; fscanf(file, "%31s %63s %127s", name, what, shape) == 3; lines++) {
        int c = 0;
        while (strcmp(cases[c], name) != 0) assert_true(++c < 3);
        tow_array *array = flax_value(&runs[c][strcmp(what, "output0") != 0], what);
        if (!array) fail_msg("%s: no %s", name, what);
        tow_type type = tow_array_type(array);
        if (strcmp(shape_text(type, shape_found), shape) != 0)
            fail_msg("%s %s: expected the shape %s, found %s", name, what, shape, shape_found);
        int64_t n = tow_type_element_count(type);
        for (int64_t i = 0; i < n; i++) {
            double expected, found;
            assert_int_equal(fscanf(file, "%lf", &expected), 1);
            found = type.dtype == TOW_I32 ? ((int32_t *)tow_array_data(array))[i]
                                          : (double)((float *)tow_array_data(array))[i];
            if (!(fabs(found - expected) <= 2e-6 * fmax(1, fabs(expected)))) /* roundings of float32 in three layers */
                fail_msg("%s %s[%d]: expected %.9g, found %.9g", name, what, (int)i, expected, found);
        }
    }
    fclose(file);
    assert_int_equal(lines, 21);
    for (int c = 0; c < 3; c++)
        for (int calls = 0; calls < 2; calls++) free_run(&runs[c][calls]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables_by_hand),
        cmocka_unit_test(test_wrapping_is_invisible),
        cmocka_unit_test(test_wrapping_is_invisible_to_shared_variables),
        cmocka_unit_test(test_nested_scans),
        cmocka_unit_test(test_order_of_shared_variables),
        cmocka_unit_test(test_one_scope_twice),
        cmocka_unit_test(test_as_flax),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

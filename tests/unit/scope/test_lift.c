/* Lifted transforms against Flax, option by option: initial values and random keys bit for bit, outputs, gradients and
 * the variables after two calls to float rounding. The golden file is written by tests/oracle/flax_lift.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/lift_golden.h"

#define FLAX .keys = TOW_KEYS_FLAX

/* Hands out what does not depend on the iteration. */
static void call_once(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_type type = tow_value_type(in[0]);
    tow_value gain = tow_param(s, "gain", 1, &type.dims[1], tow_initializer_normal(0.5));
    out[0] = tow_tanh(tow_add(in[0], gain));
    out[1] = tow_mul_scalar(gain, 2);
    out[2] = tow_make_rng(s, "noise");
}
static const tow_module_class once_class = {"once", call_once};

/* Runs the model of a case. */
static bool with_case(const char *name, lift_run *r)
{
    static const bare once = {{&once_class}};
    const int in_1[] = {1}, in_end[] = {-1}, in_whole[] = {TOW_NOT_MAPPED};
    const int out_axes[] = {2, 1}, out_ends[] = {-2, -1}, out_once[] = {TOW_NOT_MAPPED, 0};
    const tow_type x = TYPE(TOW_F32, 2, 4), x3 = TYPE(TOW_F32, 3, 2, 4), x5 = TYPE(TOW_F32, 5, 2, 4);
    const struct {
        const char *name;
        tow_remat_scan scan;
    } remat_scans[] = {
        {"remat_scan", TOW_REMAT_SCAN(&cell, .lengths = {2, 3}, FLAX)},
        {"remat_scan_flat", TOW_REMAT_SCAN(&cell, .lengths = {3}, FLAX)},
        {"remat_scan_deep", TOW_REMAT_SCAN(&cell, .lengths = {2, 1, 2}, .policy = tow_dots_saveable(), FLAX)},
    };
    const struct {
        const char *name;
        tow_type u; /* of a second input, for the iterations; rank 0: none */
        tow_scan scan;
    } scans[] = {
        {"stacked", {0}, TOW_SCAN(&cell, .length = 3, FLAX)},
        {"xs", x3, TOW_SCAN(&cell, .length = 3, FLAX)},
        {"shared_params", x3, TOW_SCAN(&cell, .length = 3, FLAX, .variables = TOW_RULES({"params", TOW_SHARED}))},
        {"carried", x3, TOW_SCAN(&cell, .length = 3, FLAX, .variables = TOW_RULES({"counters", TOW_CARRIED}))},
        {"shared_noise", x3, TOW_SCAN(&cell, .length = 3, FLAX, .streams = TOW_RULES({"noise", TOW_SHARED}))},
        {"shared_keys", x3, TOW_SCAN(&cell, FLAX, .streams = TOW_RULES({"noise", TOW_SHARED}, {"params", TOW_SHARED}))},
        {"reverse", x3, TOW_SCAN(&cell, .reverse = true, FLAX)},
        {"axes", TYPE(TOW_F32, 2, 3, 4), TOW_SCAN(&cell, .in_axes = in_1, .out_axes = out_axes, FLAX)},
        {"negative_axes", TYPE(TOW_F32, 2, 4, 3), TOW_SCAN(&cell, .in_axes = in_end, .out_axes = out_ends, FLAX)},
        {"whole", x, TOW_SCAN(&cell, .length = 3, .in_axes = in_whole, FLAX)},
        {"once",
         {0},
         TOW_SCAN(&once, .length = 3, .variables = TOW_RULES({"params", TOW_SHARED}), .out_axes = out_once, FLAX)},
        {"unroll", x5, TOW_SCAN(&cell, .unroll = 2, FLAX)},
        {"unroll_reverse", x5, TOW_SCAN(&cell, .unroll = 3, .reverse = true, FLAX)},
        {"unroll_all", x3, TOW_SCAN(&cell, .unroll = 7, FLAX)},
    };
    const int whole[] = {TOW_NOT_MAPPED}, in[] = {1, -1}, out[] = {1, -1, 1};
    const tow_remat remat = TOW_REMAT(&cell);
    const tow_scan inner = TOW_SCAN(&cell, .length = 2, FLAX);
    const tow_vmap_layer rows = TOW_VMAP(&cell, FLAX);
    const tow_scan outer = TOW_SCAN(&rows, .length = 2, FLAX);
    const struct {
        const char *name;
        tow_type x, u;
        tow_vmap_layer vmap;
    } vmaps[] = {
        {"vmap", x3, {0}, rows},
        {"vmap_ensemble", x, {0}, TOW_VMAP(&cell, .axis_size = 3, .in_axes = whole, FLAX)},
        {"vmap_shared", x3, {0}, TOW_VMAP(&cell, .variables = TOW_RULES({"params", TOW_SHARED}), FLAX)},
        {"vmap_same_noise", x3, {0}, TOW_VMAP(&cell, .streams = TOW_RULES({"noise", TOW_SHARED}), FLAX)},
        {"vmap_axes", TYPE(TOW_F32, 2, 3, 4), TYPE(TOW_F32, 2, 4, 3),
         TOW_VMAP(&cell, .in_axes = in, .out_axes = out, FLAX)},
        {"vmap_remat", x3, {0}, TOW_VMAP(&remat, FLAX)},
        {"vmap_of_scan", x3, {0}, TOW_VMAP(&inner, FLAX)},
    };
    free_lift_run(r);
    for (size_t i = 0; i < sizeof vmaps / sizeof *vmaps; i++) {
        if (strcmp(vmaps[i].name, name) != 0) continue;
        run_lifted(r, TOW_MODULE(&STACK(&vmaps[i].vmap)), vmaps[i].u.rank ? 2 : 1, (tow_type[]){vmaps[i].x, vmaps[i].u},
                   3, NULL);
        return true;
    }
    if (strcmp(name, "scan_of_vmap") == 0) {
        run_lifted(r, TOW_MODULE(&STACK(&outer)), 1, &x3, 3, NULL);
        return true;
    }
    for (size_t i = 0; i < sizeof remat_scans / sizeof *remat_scans; i++) {
        if (strcmp(remat_scans[i].name, name) != 0) continue;
        run_lifted(r, TOW_MODULE(&STACK(&remat_scans[i].scan)), 1, &x, 1, NULL);
        return true;
    }
    for (size_t i = 0; i < sizeof scans / sizeof *scans; i++) {
        if (strcmp(scans[i].name, name) != 0) continue;
        run_lifted(r, TOW_MODULE(&STACK(&scans[i].scan)), scans[i].u.rank ? 2 : 1, (tow_type[]){x, scans[i].u}, 3,
                   NULL);
        return true;
    }
    return false;
}

static void test_golden(void **unused)
{
    (void)unused;
    compare_lifted(TOW_TEST_DATA "/oracle/golden/flax_lift.txt", 60, with_case);
}

/* ---- sharing, with keys by path ---------------------------------------------------------------------------------- */

static const tow_type two[] = {{.dtype = TOW_F32, .rank = 2, .dims = {2, 4}},
                               {.dtype = TOW_F32, .rank = 3, .dims = {3, 2, 4}}};

/* The loop, the loop over remat and the same written out have equal names on disk, values and bits, whatever is
 * shared. */
static void test_rules_unrolled(void **unused)
{
    (void)unused;
    const tow_lift_rule *const variables[] = {
        TOW_RULES({"params", TOW_SHARED}), TOW_RULES({"params/dense/kernel", TOW_SHARED}),
        TOW_RULES({"params/**", TOW_SHARED}, {"counters", TOW_CARRIED}), TOW_RULES({"*/mean", TOW_CARRIED}),
        TOW_RULES({"params/dense/bias", TOW_STACKED}, {"*", TOW_CARRIED})};
    const tow_lift_rule *const streams[] = {NULL, TOW_RULES({"noise", TOW_SHARED}), TOW_RULES({"*", TOW_SHARED})};
    const tow_remat remat = TOW_REMAT(&cell);
    for (size_t v = 0; v < 5; v++)
        for (size_t s = 0; s < 3; s++)
            for (int reverse = 0; reverse < 2; reverse++) {
                char what[64];
                snprintf(what, sizeof what, "rules %zu, streams %zu%s", v, s, reverse ? ", reverse" : "");
                tow_scan loop = TOW_SCAN(&cell, .variables = variables[v], .streams = streams[s], .reverse = reverse);
                tow_scan unrolled = loop, over_remat = loop;
                unrolled.unrolled = true;
                over_remat.inner = TOW_MODULE(&remat);
                lift_run a, b, c;
                run_lifted(&a, TOW_MODULE(&STACK(&loop)), 2, two, 3, NULL);
                run_lifted(&b, TOW_MODULE(&STACK(&unrolled)), 2, two, 3, NULL);
                run_lifted(&c, TOW_MODULE(&STACK(&over_remat)), 2, two, 3, NULL);
                expect_same_lift(what, &a, &b);
                expect_same_lift(what, &a, &c);
                free_lift_run(&a);
                free_lift_run(&b);
                free_lift_run(&c);
            }
}

/* Shared parameters are those of the plain layer at the path of the scan; by a pattern some are and some are not. */
static void test_shared_parameters(void **unused)
{
    (void)unused;
    lift_run plain, shared, some;
    tow_scan all = TOW_SCAN(&cell, .variables = TOW_RULES({"params", TOW_SHARED})),
             kernels = TOW_SCAN(&cell, .variables = TOW_RULES({"params/*/kernel", TOW_SHARED}));
    run_lifted(&plain, TOW_MODULE(&STACK(&cell)), 1, two, 3, NULL);
    run_lifted(&shared, TOW_MODULE(&STACK(&all)), 2, two, 3, NULL);
    expect_same_list("shared", plain.params, shared.params);
    run_lifted(&some, TOW_MODULE(&STACK(&kernels)), 2, two, 3, NULL);
    assert_string_equal(tow_params_path(some.params, 0), "stack/dense/kernel");
    assert_string_equal(tow_params_path(some.params, 1), "stack/{}/dense/bias");
    assert_memory_equal(tow_array_data(tow_params_array(some.params, 0)),
                        tow_array_data(tow_params_array(plain.params, 0)), 64);
    free_lift_run(&plain);
    free_lift_run(&shared);
    free_lift_run(&some);
}

/* A scan in a scan: shared by the outer, the inner, both, by pattern. */
static void test_nested_rules(void **unused)
{
    (void)unused;
    const tow_lift_rule *const rules[] = {NULL, TOW_RULES({"params", TOW_SHARED}),
                                          TOW_RULES({"params/**/kernel", TOW_SHARED})};
    const char *const kernels[] = {"stack/{}/{}/dense/kernel", "stack/{}/dense/kernel", "stack/dense/kernel"};
    const tow_type x = {.dtype = TOW_F32, .rank = 2, .dims = {2, 4}};
    for (int outer = 0; outer < 3; outer++)
        for (int inner = 0; inner < 3; inner++) {
            lift_run runs[4];
            for (int unrolled = 0; unrolled < 4; unrolled++) {
                tow_scan in = TOW_SCAN(&cell, .length = 3, .variables = rules[inner], .unrolled = unrolled & 1);
                tow_remat between = TOW_REMAT(&in);
                tow_scan out = TOW_SCAN(&between, .length = 2, .variables = rules[outer], .unrolled = unrolled >> 1);
                run_lifted(&runs[unrolled], TOW_MODULE(&STACK(&out)), 1, &x, 1, NULL);
            }
            assert_non_null(tow_params_find(runs[0].params, kernels[(outer > 0) + (inner > 0)]));
            for (int i = 1; i < 4; i++) expect_same_lift("nested", &runs[0], &runs[i]);
            for (int i = 0; i < 4; i++) free_lift_run(&runs[i]);
        }
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static tow_status initialize(tow_scan scan)
{
    tow_params *params = NULL, *state = NULL;
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = 3);
    tow_status status = tow_model_init_with(ctx, TOW_MODULE(&STACK(&scan)), 3, 2, two, &options, &params, &state);
    tow_params_free(params);
    tow_params_free(state);
    return status;
}

static void test_errors(void **unused)
{
    (void)unused;
    expect_error(initialize(TOW_SCAN(&cell, .variables = TOW_RULES({"parms", TOW_SHARED}))), TOW_NOT_FOUND,
                 "scan: .variables: \"parms\" matches no parameter");
    expect_error(initialize(TOW_SCAN(&cell, .variables = TOW_RULES({"*", TOW_SHARED}, {"params", TOW_SHARED}))),
                 TOW_NOT_FOUND, "\"params\" matches no parameter", "earlier");
    expect_error(initialize(TOW_SCAN(&cell, .variables = TOW_RULES({"params", TOW_CARRIED}))), TOW_INVALID_ARGUMENT,
                 "\"params\" is TOW_CARRIED", "TOW_SHARED");
    expect_error(initialize(TOW_SCAN(&cell, .streams = TOW_RULES({"noise", TOW_CARRIED}))), TOW_INVALID_ARGUMENT,
                 ".streams: \"noise\" is TOW_CARRIED");
    expect_error(initialize(TOW_SCAN(&cell, .streams = TOW_RULES({"noise", (tow_lifting)9}))), TOW_INVALID_ARGUMENT,
                 "\"noise\" is 9, which is no rule");
    expect_error(initialize(TOW_SCAN(&cell, .variables = TOW_RULES({"params/**/kernel", TOW_HIDDEN}))), TOW_NOT_FOUND,
                 "dense/kernel", "TOW_HIDDEN");
    expect_error(initialize(TOW_SCAN(&cell, .variables = TOW_RULES({"counters", TOW_HIDDEN}))), TOW_NOT_FOUND,
                 "counters/stack", "TOW_HIDDEN");
    const tow_remat sharing = TOW_REMAT(&cell, .variables = TOW_RULES({"params", TOW_SHARED}));
    expect_error(initialize(TOW_SCAN(&sharing)), TOW_INVALID_ARGUMENT, "remat: .variables: \"params\" is TOW_SHARED",
                 "expected TOW_STACKED or TOW_HIDDEN");
    expect_error(initialize(TOW_SCAN(&cell, .streams = TOW_RULES({"noise", TOW_HIDDEN}))), TOW_NOT_FOUND, "\"noise\"",
                 "TOW_HIDDEN");
}

/* Everything here once, in a context whose allocations fail in turn. */
static tow_status use_rules(tow_context *c)
{
    tow_scan scan =
        TOW_SCAN(&cell, FLAX, .variables = TOW_RULES({"params/**/kernel", TOW_SHARED}, {"counters", TOW_CARRIED}),
                 .streams = TOW_RULES({"noise", TOW_SHARED}));
    const tow_module *model = TOW_MODULE(&STACK(&scan));
    tow_params *params = NULL, *state = NULL;
    tow_graph *graph = NULL;
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = 3, .streams = (const char *const[]){"noise", NULL});
    tow_status status = tow_model_init_with(c, model, 3, 2, two, &options, &params, &state);
    options.state = state;
    options.mutable_collections = (const char *const[]){TOW_EVERY_COLLECTION, NULL};
    if (!status) status = tow_model_forward_graph(model, params, 2, two, &options, &graph);
    tow_params_free(params);
    tow_params_free(state);
    tow_graph_release(graph);
    return status;
}

static void test_failing_allocations(void **unused)
{
    (void)unused;
    fail_in_turn(use_rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_rules_unrolled),
        cmocka_unit_test(test_shared_parameters),
        cmocka_unit_test(test_nested_rules),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* Variables of scans and vmaps stacked on other axes than 0: against Flax (tests/oracle/flax_axes.py), and against axis
 * 0, from which the model must differ in nothing but where its layers are.
 * Tests scope/mapped_draw.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/lift_golden.h"
#include "tow/numpy.h"

#define FLAX .keys = TOW_KEYS_FLAX
#define AXES(params, stats, counters)                                                                                  \
    TOW_RULES({"params", TOW_STACKED, params}, {"batch_stats", TOW_STACKED, stats}, {"counters", TOW_STACKED, counters})

static const tow_type x2 = {.dtype = TOW_F32, .rank = 2, .dims = {2, 4}},
                      x3 = {.dtype = TOW_F32, .rank = 3, .dims = {3, 2, 4}},
                      x5 = {.dtype = TOW_F32, .rank = 3, .dims = {5, 2, 4}};

/* ---- Flax -------------------------------------------------------------------------------------------------------- */

static bool with_scan(const char *name, lift_run *r)
{
    const tow_remat remat = TOW_REMAT(&cell);
    const struct {
        const char *name;
        tow_type u; /* rank 0: none */
        tow_scan scan;
    } cases[] = {
        {"one", x3, TOW_SCAN(&cell, FLAX, .variables = AXES(1, 0, 0))},
        {"end", x3, TOW_SCAN(&cell, FLAX, .variables = AXES(-1, 1, -1))},
        {"negative", x3, TOW_SCAN(&cell, FLAX, .variables = AXES(-2, -2, 0))},
        {"statistics", {0}, TOW_SCAN(&cell, .length = 3, FLAX, .variables = AXES(0, 1, 0))},
        {"reverse", x3, TOW_SCAN(&cell, .reverse = true, FLAX, .variables = AXES(-1, 1, -1))},
        {"unroll", x5, TOW_SCAN(&cell, .unroll = 2, FLAX, .variables = AXES(1, 0, 0))},
        {"remat", x3, TOW_SCAN(&remat, FLAX, .variables = AXES(1, 0, 0))},
        {"carried", x3,
         TOW_SCAN(&cell, FLAX,
                  .variables =
                      TOW_RULES({"counters", TOW_CARRIED}, {"params", TOW_STACKED, 1}, {"*", TOW_STACKED, -1}))},
        {"shared", x3,
         TOW_SCAN(&cell, FLAX, .variables = TOW_RULES({"params", TOW_SHARED}, {"batch_stats", TOW_STACKED, 1}))},
        {"by_path", x3,
         TOW_SCAN(&cell, FLAX,
                  .variables = TOW_RULES({"params/*/kernel", TOW_STACKED, 1}, {"params/dense/bias", TOW_STACKED, -1},
                                         {"batch_stats/mean", TOW_STACKED, 1}))},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, name) != 0) continue;
        run_lifted(r, TOW_MODULE(&STACK(&cases[i].scan)), cases[i].u.rank ? 2 : 1, (tow_type[]){x2, cases[i].u}, 3,
                   NULL);
        return true;
    }
    return false;
}

static bool with_nested(const char *name, lift_run *r)
{
    const struct {
        const char *name;
        const tow_lift_rule *outer, *inner;
    } cases[] = {
        {"nested_1_0", AXES(1, 1, 0), NULL},
        {"nested_0_1", NULL, AXES(1, 1, 0)},
        {"nested_1_1", AXES(1, 1, 0), AXES(1, 1, 0)},
        {"nested_end_1", AXES(-1, -1, -1), AXES(1, 0, 0)},
        {"nested_1_end", AXES(1, 0, 1), AXES(-1, -1, 0)},
        {"nested_end_end", AXES(-1, -2, 0), AXES(-1, 1, 0)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, name) != 0) continue;
        const tow_scan inner = TOW_SCAN(&cell, .length = 3, FLAX, .variables = cases[i].inner);
        const tow_scan outer = TOW_SCAN(&inner, .length = 2, FLAX, .variables = cases[i].outer);
        run_lifted(r, TOW_MODULE(&STACK(&outer)), 1, &x2, 3, NULL);
        return true;
    }
    return false;
}

static bool with_rest(const char *name, lift_run *r)
{
    const int whole[] = {TOW_NOT_MAPPED};
    const tow_scan inner = TOW_SCAN(&cell, .length = 2, FLAX, .variables = AXES(-1, 0, 0));
    const tow_vmap_layer rows = TOW_VMAP(&cell, FLAX, .variables = AXES(1, -1, 0));
    const tow_vmap_layer vmap = TOW_VMAP(&cell, FLAX, .variables = AXES(1, 0, 0)),
                         end = TOW_VMAP(&cell, FLAX, .variables = AXES(-1, 1, -1)),
                         ensemble =
                             TOW_VMAP(&cell, .axis_size = 3, .in_axes = whole, FLAX, .variables = AXES(1, -1, 0)),
                         of_scan = TOW_VMAP(&inner, FLAX, .variables = AXES(1, 1, 0));
    const tow_scan of_vmap = TOW_SCAN(&rows, .length = 2, FLAX, .variables = AXES(-1, 0, 0));
    const tow_remat_scan deep = TOW_REMAT_SCAN(&cell, .lengths = {2, 3}, FLAX, .variables = AXES(1, -1, 0)),
                         deeper = TOW_REMAT_SCAN(&cell, .lengths = {2, 1, 2}, FLAX, .variables = AXES(-1, 1, 0));
    const struct {
        const char *name;
        const tow_module *module;
        tow_type x;
        size_t n_out;
    } cases[] = {
        {"vmap", TOW_MODULE(&vmap), x3, 3},
        {"vmap_end", TOW_MODULE(&end), x3, 3},
        {"vmap_ensemble", TOW_MODULE(&ensemble), x2, 3},
        {"vmap_of_scan", TOW_MODULE(&of_scan), x3, 3},
        {"scan_of_vmap", TOW_MODULE(&of_vmap), x3, 3},
        {"remat_scan", TOW_MODULE(&deep), x2, 1},
        {"remat_scan_end", TOW_MODULE(&deeper), x2, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, name) != 0) continue;
        run_lifted(r, TOW_MODULE(&((stack){{&stack_class}, cases[i].module})), 1, &cases[i].x, cases[i].n_out, NULL);
        return true;
    }
    return false;
}

static bool with_case(const char *name, lift_run *r)
{
    free_lift_run(r);
    return with_scan(name, r) || with_nested(name, r) || with_rest(name, r);
}

static void test_golden(void **unused)
{
    (void)unused;
    compare_lifted(TOW_TEST_DATA "/oracle/golden/flax_axes.txt", 150, with_case);
}

/* ---- axis 0 ------------------------------------------------------------------------------------------------------ */

static tow_params *gradients(const lift_run *r)
{
    tow_params *list;
    const char *paths[LIFT_ARRAYS];
    for (size_t i = 0; i < tow_params_count(r->params); i++) paths[i] = tow_params_path(r->params, i);
    OK(tow_params_from_arrays(ctx, tow_params_count(r->params), paths, r->grads, &list));
    return list;
}

/* Layer by layer: parameters, variables, gradients; and outputs; all bit for bit. */
static void expect_same(const char *what, const lift_run *a, const lift_run *b)
{
    tow_params *grads[] = {gradients(a), gradients(b)};
    expect_same_list(what, a->params, b->params);
    expect_same_list(what, a->state, b->state);
    expect_same_list(what, grads[0], grads[1]);
    for (size_t i = 0; i < a->n_out; i++)
        if (memcmp(tow_array_data(a->outputs[i]), tow_array_data(b->outputs[i]),
                   tow_type_bytes(tow_array_type(a->outputs[i]))))
            fail_msg("%s: output %zu", what, i);
    tow_params_free(grads[0]);
    tow_params_free(grads[1]);
}

static const tow_lift_rule axis_1[] = {{"params", TOW_STACKED, 1}, {"batch_stats", TOW_STACKED, 1}, {0}},
                           last_axis[] = {{"*", TOW_STACKED, -1}, {0}},
                           by_path[] = {{"params/**/kernel", TOW_STACKED, -2}, {"params/**", TOW_STACKED, 1}, {0}},
                           *const rules[] = {axis_1, last_axis, by_path};

/* The loop, over remats of every kind, unrolled, reversed: the bits of axis 0. */
static void test_bits_of_axis_0(void **unused)
{
    (void)unused;
    const tow_policy policies[] = {tow_nothing_saveable(), tow_everything_saveable(), tow_dots_saveable()};
    const tow_type types[] = {x2, x5};
    for (size_t k = 0; k < 3; k++)
        for (int reverse = 0; reverse < 2; reverse++) {
            lift_run plain, run;
            tow_scan scan = TOW_SCAN(&cell, .reverse = reverse);
            run_lifted(&plain, TOW_MODULE(&STACK(&scan)), 2, types, 3, NULL);
            scan.variables = rules[k];
            for (int unroll = 0; unroll < 4; unroll += 3) {
                scan.unroll = unroll;
                run_lifted(&run, TOW_MODULE(&STACK(&scan)), 2, types, 3, NULL);
                expect_same("scan", &plain, &run);
                free_lift_run(&run);
            }
            for (size_t p = 0; p < 3; p++) {
                const tow_remat remat = TOW_REMAT(&cell, .policy = policies[p]);
                tow_scan over = scan;
                over.inner = TOW_MODULE(&remat);
                run_lifted(&run, TOW_MODULE(&STACK(&over)), 2, types, 3, NULL);
                expect_same("remat", &plain, &run);
                free_lift_run(&run);
            }
            scan.unrolled = true;
            run_lifted(&run, TOW_MODULE(&STACK(&scan)), 2, types, 3, NULL);
            expect_same("unrolled", &plain, &run);
            free_lift_run(&run);
            free_lift_run(&plain);
        }
}

/* Stacks of several loops, and loops in loops of which each is unrolled or not. */
static void test_stacks(void **unused)
{
    (void)unused;
    for (size_t k = 0; k < 3; k++) {
        lift_run a, b;
        const tow_module *const c = TOW_MODULE(&cell);
        tow_layer_stack layers =
            TOW_LAYER_STACK(.length = 7, .first = TOW_LAYERS(c), .pattern = TOW_LAYERS(c, c), .last = TOW_LAYERS(c));
        run_lifted(&a, TOW_MODULE(&STACK(&layers)), 1, &x2, 1, NULL);
        layers.variables = rules[k];
        run_lifted(&b, TOW_MODULE(&STACK(&layers)), 1, &x2, 1, NULL);
        size_t stacked = 0; /* kernel and bias of both layers of the pattern */
        for (size_t i = 0; i < tow_params_count(b.params); i++)
            stacked += strstr(tow_params_path(b.params, i), "+2@") != NULL;
        assert_int_equal(stacked, 4);
        expect_same("layer_stack", &a, &b);
        free_lift_run(&a);
        free_lift_run(&b);
        for (int unrolled = 0; unrolled < 4; unrolled++) {
            tow_scan inner = TOW_SCAN(&cell, .length = 3), outer = TOW_SCAN(&inner, .length = 2);
            run_lifted(&a, TOW_MODULE(&STACK(&outer)), 1, &x2, 3, NULL);
            inner = TOW_SCAN(&cell, .length = 3, .variables = rules[k], .unrolled = unrolled & 1);
            outer = TOW_SCAN(&inner, .length = 2, .variables = rules[(k + 1) % 3], .unrolled = unrolled >> 1);
            run_lifted(&b, TOW_MODULE(&STACK(&outer)), 1, &x2, 3, NULL);
            expect_same("nested", &a, &b);
            free_lift_run(&a);
            free_lift_run(&b);
        }
    }
}

/* One of two cells, each with parameters of its own. */
static void call_choosing(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    (void)module, (void)n_in;
    const tow_remat remat = TOW_REMAT(&cell);
    const tow_named other = TOW_NAMED("other", &remat);
    const tow_cond cond = TOW_COND(.yes = TOW_MODULE(&other), .no = TOW_MODULE(&cell));
    tow_value sum = tow_reduce_sum(in[0], 0, NULL);
    tow_apply_n(s, "choice", &cond, 2, ((tow_value[]){tow_gt(sum, tow_zeros_like(sum)), in[0]}), n_out, out);
}
static const tow_module_class choosing_class = {"choosing", call_choosing};

static void test_choices(void **unused)
{
    (void)unused;
    const bare choosing = {{&choosing_class}};
    for (size_t k = 0; k < 3; k++) {
        lift_run a, b;
        tow_scan scan = TOW_SCAN(&choosing, .length = 4);
        run_lifted(&a, TOW_MODULE(&STACK(&scan)), 1, &x2, 1, NULL);
        scan.variables = rules[k];
        run_lifted(&b, TOW_MODULE(&STACK(&scan)), 1, &x2, 1, NULL);
        expect_same("choice", &a, &b);
        free_lift_run(&a);
        free_lift_run(&b);
    }
}

/* A rule of the outer scan finds what the inner one stacks under its plain name. */
static void test_rules_see_plain_paths(void **unused)
{
    (void)unused;
    lift_run a, b;
    tow_scan inner = TOW_SCAN(&cell, .length = 3, .variables = axis_1),
             outer = TOW_SCAN(&inner, .length = 2, .variables = TOW_RULES({"params/{}/dense/kernel", TOW_STACKED, -1}));
    run_lifted(&a, TOW_MODULE(&STACK(&outer)), 1, &x2, 3, NULL);
    assert_non_null(tow_params_find(a.params, "stack/{@-1}/{@1}/dense/kernel"));
    assert_non_null(tow_params_find(a.params, "stack/{}/{@1}/dense/bias"));
    assert_non_null(tow_params_find(a.state, "batch_stats/stack/{}/{@1}/mean"));
    inner.variables = NULL;
    outer.variables = NULL;
    run_lifted(&b, TOW_MODULE(&STACK(&outer)), 1, &x2, 3, NULL);
    expect_same("by path", &a, &b);
    free_lift_run(&a);
    free_lift_run(&b);
}

/* ---- values that are sown ---------------------------------------------------------------------------------------- */

static void call_sowing(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_dense dense = TOW_DENSE(.features = 4);
    out[0] = tow_tanh(tow_apply(s, "dense", &dense, in[0]));
    tow_sow(s, "intermediates", "y", out[0]);
}
static const tow_module_class sowing_class = {"sowing", call_sowing};
static const bare sowing = {{&sowing_class}};

static tow_status sow(const tow_module *model, tow_params **updates, tow_graph **graph)
{
    static const char *const sown[] = {"intermediates", NULL};
    tow_params *params = NULL;
    tow_status status = tow_model_init(ctx, model, 3, 1, &x2, &params);
    const tow_model_options options = TOW_MODEL_OPTIONS(.mutable_collections = sown, .updates = updates);
    if (!status) status = tow_model_forward_graph(model, params, 1, &x2, &options, graph);
    tow_params_free(params);
    return status;
}

static void test_sown(void **unused)
{
    (void)unused;
    const struct {
        int inner, outer;
        tow_type expected;
    } cases[] = {{0, 0, TYPE(TOW_F32, 2, 3, 2, 4)},
                 {1, 0, TYPE(TOW_F32, 2, 2, 3, 4)},
                 {-1, 1, TYPE(TOW_F32, 2, 2, 4, 3)},
                 {1, -1, TYPE(TOW_F32, 2, 3, 4, 2)}};
    for (size_t i = 0; i < 4; i++) {
        tow_scan inner =
            TOW_SCAN(&sowing, .length = 3, .variables = TOW_RULES({"intermediates", TOW_STACKED, cases[i].inner}));
        tow_vmap_layer middle = TOW_VMAP(&inner, .axis_size = 2, .in_axes = (int[]){TOW_NOT_MAPPED},
                                         .variables = TOW_RULES({"intermediates", TOW_STACKED, cases[i].outer}));
        tow_params *updates = NULL;
        tow_graph *graph = NULL;
        OK(sow(TOW_MODULE(&middle), &updates, &graph));
        assert_int_equal(tow_params_count(updates), 1);
        const tow_type found = tow_graph_output_type(graph, tow_graph_output_count(graph) - 1);
        if (!tow_type_equal(found, cases[i].expected)) fail_msg("case %zu: rank %d", i, found.rank);
        tow_params_free(updates);
        tow_graph_release(graph);
    }
}

static void call_quiet(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_dense dense = TOW_DENSE(.features = 4);
    out[0] = tow_apply(s, "dense", &dense, in[0]);
}
static const tow_module_class quiet_class = {"quiet", call_quiet};
static const bare quiet = {{&quiet_class}};

/* A rule for intermediates holds for what is captured, and matches nothing in calls without. */
static void test_captured(void **unused)
{
    (void)unused;
    const tow_scan scan = TOW_SCAN(&quiet, .length = 3, .variables = TOW_RULES({"intermediates", TOW_STACKED, -1}));
    tow_params *params = NULL, *updates = NULL;
    tow_graph *graph = NULL;
    OK(tow_model_init(ctx, TOW_MODULE(&scan), 3, 1, &x2, &params));
    OK(tow_model_forward_graph(TOW_MODULE(&scan), params, 1, &x2, NULL, &graph));
    tow_graph_release(graph);
    const tow_model_options options =
        TOW_MODEL_OPTIONS(.capture = (const char *const[]){"**dense", NULL},
                          .mutable_collections = (const char *const[]){"intermediates", NULL}, .updates = &updates);
    OK(tow_model_forward_graph(TOW_MODULE(&scan), params, 1, &x2, &options, &graph));
    assert_int_equal(tow_params_count(updates), 1);
    assert_true(tow_type_equal(tow_graph_output_type(graph, 1), TYPE(TOW_F32, 2, 4, 3)));
    tow_params_free(updates);
    tow_params_free(params);
    tow_graph_release(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),   cmocka_unit_test(test_bits_of_axis_0),
        cmocka_unit_test(test_stacks),   cmocka_unit_test(test_rules_see_plain_paths),
        cmocka_unit_test(test_choices),  cmocka_unit_test(test_sown),
        cmocka_unit_test(test_captured),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

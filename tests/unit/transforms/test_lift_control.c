/* Tests choice.c, while.c: cond, switch and while as layers. Against Flax: initial values and random keys bit for bit,
 * outputs, gradients and the variables after two calls to float rounding. The golden file is written by
 * tests/oracle/flax_control.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/control_layers.h"
#include "tests/unit/support/lift_golden.h"

#define FLAX .keys = TOW_KEYS_FLAX

static const tow_type x3 = {.dtype = TOW_F32, .rank = 3, .dims = {3, 2, 4}};
static const tow_lift_rule *const carried =
    (const tow_lift_rule[]){{"counters", TOW_CARRIED}, {"batch_stats", TOW_CARRIED}, {NULL, TOW_STACKED}};
static const tow_lift_rule *const same_noise = (const tow_lift_rule[]){{"noise", TOW_SHARED}, {NULL, TOW_STACKED}};

#define A(layer) TOW_MODULE(&TOW_NAMED("a", layer))
#define B(layer) TOW_MODULE(&TOW_NAMED("b", layer))
#define C(layer) TOW_MODULE(&TOW_NAMED("c", layer))

/* ---- against Flax ------------------------------------------------------------------------------------------------ */

static bool choice_case(const char *name, lift_run *r)
{
    const tow_batch_norm norm = TOW_BATCH_NORM();
    const tow_dropout drop = TOW_DROPOUT(.rate = 0.5, .stream = "noise");
    const tow_cond named = TOW_COND(.yes = A(&cell), .no = B(&cell)),
                   shared = TOW_COND(.yes = A(&cell), .no = A(&negated)),
                   owns = TOW_COND(.yes = TOW_MODULE(&OWN(false)), .no = TOW_MODULE(&OWN(true))),
                   norms = TOW_COND(.yes = TOW_MODULE(&TOW_NAMED("norm", &norm)),
                                    .no = TOW_MODULE(&TOW_NAMED("drop", &drop)));
    const tow_switch three = TOW_SWITCH(.branches = TOW_LAYERS(A(&cell), B(&cell), C(&cell))),
                     one = TOW_SWITCH(.branches = TOW_LAYERS(A(&cell)));
    const struct {
        const char *name;
        chooser model;
        size_t n_out;
    } cases[] = {
        {"cond_yes", CHOOSER(&named), 3},        {"cond_no", CHOOSER(&named, -1), 3},
        {"switch", CHOOSER(&three), 3},          {"switch_last", CHOOSER(&three, 1), 3},
        {"switch_above", CHOOSER(&three, 2), 3}, {"switch_below", CHOOSER(&three, -2), 3},
        {"switch_one", CHOOSER(&one), 3},        {"shared_yes", CHOOSER(&shared), 3},
        {"shared_no", CHOOSER(&shared, -1), 3},  {"own_yes", CHOOSER(&owns), 3},
        {"own_no", CHOOSER(&owns, -1), 3},       {"norm", CHOOSER(&norms), 1},
        {"drop", CHOOSER(&norms, -1), 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, name) != 0) continue;
        run_lifted(r, TOW_MODULE(&STACK(&cases[i].model)), 1, &small, cases[i].n_out, NULL);
        return true;
    }
    const chooser choose = CHOOSER(&named), by_sign = CHOOSER(&named, .by_sign = true), choose_three = CHOOSER(&three);
    const tow_remat remat = TOW_REMAT(&choose);
    const tow_scan scan = TOW_SCAN(&choose_three, .length = 3, .variables = TOW_RULES({"steps", TOW_CARRIED}), FLAX);
    const tow_vmap_layer rows = TOW_VMAP(&by_sign, FLAX);
    if (strcmp(name, "cond_remat") == 0) return run_lifted(r, TOW_MODULE(&STACK(&remat)), 1, &small, 3, NULL), true;
    if (strcmp(name, "switch_scan") == 0) return run_lifted(r, TOW_MODULE(&STACK(&scan)), 1, &small, 3, NULL), true;
    if (strcmp(name, "cond_vmap") == 0) return run_lifted(r, TOW_MODULE(&STACK(&rows)), 1, &x3, 3, NULL), true;
    return false;
}

static bool loop_case(const char *name, lift_run *r)
{
    const struct {
        const char *name;
        tow_while loop;
        int around; /* 1: remat, 2: scan, 3: vmap */
    } cases[] = {
#define LOOP(by, ...)                                                                                                  \
    TOW_WHILE(.condition = CONDITION(by), .body = BODY(by), .n_carry = 4, .max_iterations = 11, .variables = carried,  \
              __VA_ARGS__)
        {"while", LOOP(BY_COUNTER), 0},
        {"while_same_noise", LOOP(BY_COUNTER, .streams = same_noise), 0},
        {"while_broadcast",
         TOW_WHILE(.condition = CONDITION(BY_NUMBER), .body = BODY(BY_NUMBER, .plain = true), .n_carry = 4,
                   .max_iterations = 4),
         0},
        {"while_none", LOOP(BY_NONE), 0},
        {"while_key", LOOP(BY_KEY), 0},
        {"while_key_same", LOOP(BY_KEY, .streams = same_noise), 0},
        {"while_remat", LOOP(BY_COUNTER), 1},
        {"while_scan", LOOP(BY_KEY), 2},
        {"while_vmap", LOOP(BY_SIGN), 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, name) != 0) continue;
        const looper model = LOOPER(&cases[i].loop);
        const tow_remat remat = TOW_REMAT(&model);
        const tow_scan scan = TOW_SCAN(&model, .length = 2, FLAX);
        const tow_vmap_layer rows = TOW_VMAP(&model, FLAX);
        const tow_module *const models[] = {TOW_MODULE(&STACK(&model)), TOW_MODULE(&STACK(&remat)),
                                            TOW_MODULE(&STACK(&scan)), TOW_MODULE(&STACK(&rows))};
        run_lifted(r, models[cases[i].around], 1, cases[i].around == 3 ? &x3 : &small, 3, NULL);
        return true;
    }
    return false;
}

static bool with_case(const char *name, lift_run *r)
{
    free_lift_run(r);
    return choice_case(name, r) || loop_case(name, r);
}

static void test_golden(void **unused)
{
    (void)unused;
    compare_lifted(TOW_TEST_DATA "/oracle/golden/flax_control.txt", 340, with_case);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static const tow_type predicate = {.dtype = TOW_BOOL}, number = {.dtype = TOW_I32};

/* A layer under the name "stack", beside which something is sown. */
static void call_top(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    tow_sow(s, TOW_INTERMEDIATES, "top", tow_scalar(tow_scope_trace(s), TOW_F32, 1));
    call_stack(s, module, n_in, in, n_out, out);
}
static const tow_module_class top_class = {"top", call_top};

/* Initializing `layer` under the name "stack", then tracing it with everything mutable. */
static tow_status trace(tow_context *c, const tow_module *layer, size_t n_in, const tow_type *types, size_t n_out)
{
    const stack model = {{&top_class}, layer};
    tow_params *params = NULL, *state = NULL;
    tow_graph *graph = NULL;
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = n_out, .streams = (const char *const[]){"noise", NULL});
    tow_status status = tow_model_init_with(c, TOW_MODULE(&model), 3, n_in, types, &options, &params, &state);
    options.state = state;
    options.mutable_collections = (const char *const[]){TOW_EVERY_COLLECTION, TOW_INTERMEDIATES, NULL};
    if (!status) status = tow_model_forward_graph(TOW_MODULE(&model), params, n_in, types, &options, &graph);
    tow_params_free(params);
    tow_params_free(state);
    tow_graph_release(graph);
    return status;
}
#define TRACE(layer, n_out, ...)                                                                                       \
    trace(ctx, TOW_MODULE(layer), sizeof((tow_type[]){__VA_ARGS__}) / sizeof(tow_type), (tow_type[]){__VA_ARGS__},     \
          n_out)

/* Sows x, or its first element. */
typedef struct sower {
    tow_module module;
    bool element;
} sower;
static void call_sower(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)n_in, (void)n_out;
    out[0] = tow_mul_scalar(in[0], 2);
    tow_sow(s, TOW_INTERMEDIATES, "seen", ((const sower *)module)->element ? first_element(in[0]) : in[0]);
}
static const tow_module_class sower_class = {"sower", call_sower};

static void test_choice_errors(void **unused)
{
    (void)unused;
    const tow_dense four = TOW_DENSE(.features = 4), five = TOW_DENSE(.features = 5);
    const sower whole = {{&sower_class}, false}, element = {{&sower_class}, true};
    const tow_cond good = TOW_COND(.yes = A(&four), .no = B(&four)), uneven = TOW_COND(.yes = A(&four), .no = B(&five)),
                   none = TOW_COND(.yes = A(&four)),
                   clash = TOW_COND(.yes = TOW_MODULE(&four), .no = TOW_MODULE(&five)),
                   sown = TOW_COND(.yes = TOW_MODULE(&whole), .no = TOW_MODULE(&element)),
                   hidden = TOW_COND(.yes = A(&cell), .no = A(&negated), .streams = TOW_RULES({"noise", TOW_HIDDEN})),
                   hidden_kernel =
                       TOW_COND(.yes = A(&four), .no = B(&four), .variables = TOW_RULES({"params/b/*", TOW_HIDDEN})),
                   unused_rule =
                       TOW_COND(.yes = A(&four), .no = B(&four), .variables = TOW_RULES({"parms", TOW_STACKED}));
    const tow_switch nothing = TOW_SWITCH(.branches = TOW_LAYERS(NULL)), missing = TOW_SWITCH(),
                     mixed = TOW_SWITCH(.branches = TOW_LAYERS(TOW_MODULE(&cell), TOW_MODULE(&cell), A(&five)));
    OK(TRACE(&good, 1, predicate, small));
    OK(TRACE(&good, 1, number, small));
    expect_error(TRACE(&uneven, 1, predicate, small), TOW_TYPE_MISMATCH, "stack: cond: output 0: expected f32[2,4]",
                 ".yes (\"a\")", "found f32[2,5] from .no (\"b\")", "convert or reshape");
    expect_error(TRACE(&mixed, 1, number, small), TOW_TYPE_MISMATCH, "switch: output 0: expected f32[2,4]",
                 "branch 0 (cell)", "f32[2,5] from branch 2 (\"a\")");
    expect_error(TRACE(&good, 1, TYPE(TOW_BOOL, 2), small), TOW_SHAPE_MISMATCH, "stack: cond",
                 "predicate must be a scalar, found bool[2]");
    expect_error(TRACE(&mixed, 1, TYPE(TOW_F32, 1), small), TOW_TYPE_MISMATCH, "switch");
    const tow_switch two = TOW_SWITCH(.branches = TOW_LAYERS(A(&four), B(&four)));
    expect_error(TRACE(&two, 1, SCALAR(TOW_F32), small), TOW_TYPE_MISMATCH, "integer scalar", "found f32[]");
    expect_error(TRACE(&two, 1, TYPE(TOW_I32, 2), small), TOW_SHAPE_MISMATCH, "integer scalar", "found i32[2]");
    expect_error(TRACE(&none, 1, predicate, small), TOW_INVALID_ARGUMENT, "cond: .no is NULL");
    expect_error(TRACE(&nothing, 1, number, small), TOW_INVALID_ARGUMENT, "switch: no .branches", "TOW_LAYERS");
    expect_error(TRACE(&missing, 1, number, small), TOW_INVALID_ARGUMENT, "switch: no .branches");
    expect_error(trace(ctx, TOW_MODULE(&good), 0, NULL, 1), TOW_INVALID_ARGUMENT, "cond: expected a predicate");
    expect_error(trace(ctx, TOW_MODULE(&two), 0, NULL, 1), TOW_INVALID_ARGUMENT, "switch: expected an index");
    expect_error(TRACE(&clash, 1, predicate, small), TOW_SHAPE_MISMATCH, "params/stack/kernel", "f32[4,5]", "f32[4,4]",
                 "give two layers different names");
    expect_error(TRACE(&sown, 1, predicate, small), TOW_TYPE_MISMATCH, "intermediates/stack/seen/0",
                 "expected f32[2,4]", "found f32[] in .no (sower)");
    expect_error(TRACE(&hidden, 3, predicate, small), TOW_NOT_FOUND, "\"noise\"", "TOW_HIDDEN");
    expect_error(TRACE(&hidden_kernel, 1, predicate, small), TOW_NOT_FOUND, "params/stack/b/kernel", "TOW_HIDDEN");
    expect_error(TRACE(&unused_rule, 1, predicate, small), TOW_NOT_FOUND, "cond: .variables: \"parms\" matches no");
}

static void call_fixed(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)s, (void)module, (void)n_in, (void)n_out;
    out[0] = tow_gt(in[0], tow_full_like(in[0], 0));
}
static const tow_module_class fixed_class = {"fixed", call_fixed};
static const bare elements = {{&fixed_class}};

static void call_writing(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_value n = tow_variable(s, "counters", "n", SCALAR(TOW_I32), (tow_initializer){0});
    if (tow_is_mutable(s, "counters")) tow_set_variable(s, "counters", "n", tow_add_scalar(n, 1));
    tow_sow(s, TOW_INTERMEDIATES, "lost", in[0]);
    out[0] = tow_lt(n, tow_scalar(in[0].trace, TOW_I32, 3));
}
static const tow_module_class writing_class = {"writing", call_writing};
static const bare writing = {{&writing_class}};

static void test_while_errors(void **unused)
{
    (void)unused;
    const tow_dense five = TOW_DENSE(.features = 5);
    const tow_type types[] = {small, small, {.dtype = TOW_U32, .rank = 1, .dims = {2}}, number};
#define WHILE(...) TOW_MODULE(&TOW_WHILE(.n_carry = 4, __VA_ARGS__))
    OK(trace(ctx, WHILE(.condition = CONDITION(BY_NUMBER), .body = BODY(BY_NUMBER, .plain = true)), 4, types, 4));
    expect_error(trace(ctx, WHILE(.body = BODY(BY_NUMBER)), 4, types, 4), TOW_INVALID_ARGUMENT,
                 "stack: while: .condition is NULL");
    expect_error(trace(ctx, WHILE(.condition = CONDITION(BY_NUMBER)), 4, types, 4), TOW_INVALID_ARGUMENT,
                 "while: .body is NULL");
    expect_error(trace(ctx, WHILE(.condition = CONDITION(BY_NUMBER), .body = BODY(BY_NUMBER)), 3, types, 3),
                 TOW_INVALID_ARGUMENT, "at least 4 inputs", "found 3 and 3", ".n_carry");
    expect_error(trace(ctx, WHILE(.condition = CONDITION(BY_NUMBER), .body = BODY(BY_NUMBER)), 4, types, 4),
                 TOW_INVALID_ARGUMENT, "stack/cell/", "written in .body (looped) of the while stack",
                 "TOW_RULES({\"batch_stats\", TOW_CARRIED})");
    expect_error(trace(ctx,
                       WHILE(.condition = TOW_MODULE(&writing), .body = BODY(BY_NUMBER, .plain = true),
                             .variables = TOW_RULES({"counters", TOW_CARRIED})),
                       4, types, 4),
                 TOW_INVALID_ARGUMENT, "counters/stack/n: written in .condition (writing)", "only reads");
    expect_error(trace(ctx,
                       WHILE(.condition = CONDITION(BY_NUMBER), .body = BODY(BY_NUMBER),
                             .variables = TOW_RULES({"counters", TOW_STACKED})),
                       4, types, 4),
                 TOW_INVALID_ARGUMENT, "\"counters\" is TOW_STACKED", "TOW_CARRIED");
    expect_error(trace(ctx,
                       WHILE(.condition = CONDITION(BY_NUMBER), .body = BODY(BY_NUMBER),
                             .variables = TOW_RULES({"params", TOW_CARRIED})),
                       4, types, 4),
                 TOW_INVALID_ARGUMENT, "\"params\" is TOW_CARRIED");
    expect_error(trace(ctx,
                       WHILE(.condition = CONDITION(BY_KEY), .body = BODY(BY_KEY, .plain = true),
                             .streams = TOW_RULES({"noise", TOW_HIDDEN})),
                       4, types, 4),
                 TOW_NOT_FOUND, "\"noise\"", "TOW_HIDDEN");
    expect_error(
        trace(ctx,
              WHILE(.condition = CONDITION(BY_NUMBER), .body = BODY(BY_NUMBER, .plain = true), .max_iterations = -1), 4,
              types, 4),
        TOW_INVALID_ARGUMENT, "max_iterations is -1");
    const tow_while vector =
        TOW_WHILE(.condition = TOW_MODULE(&elements), .body = TOW_MODULE(&TOW_DENSE(.features = 4)));
    expect_error(TRACE(&vector, 1, small), TOW_TYPE_MISMATCH, "while: .condition (fixed): expected bool[]",
                 "found bool[2,4]", "tow_reduce_and");
    const tow_while wide = TOW_WHILE(.condition = TOW_MODULE(&writing), .body = TOW_MODULE(&five));
    expect_error(TRACE(&wide, 1, small), TOW_TYPE_MISMATCH, "carry 0 enters an iteration as f32[2,4]",
                 ".body (Dense) as f32[2,5]");
}

/* Everything here once, in a context whose allocations fail in turn. */
static tow_status use_control(tow_context *c)
{
    const tow_switch three = TOW_SWITCH(.branches = TOW_LAYERS(A(&cell), B(&negated), A(&cell)),
                                        .variables = TOW_RULES({"params", TOW_STACKED}));
    const chooser choose = CHOOSER(&three);
    const tow_while loop =
        TOW_WHILE(.condition = CONDITION(BY_COUNTER), .body = BODY(BY_COUNTER), .n_carry = 4, .variables = carried);
    const sower whole = {{&sower_class}, false};
    const tow_cond sown = TOW_COND(.yes = TOW_MODULE(&whole), .no = TOW_MODULE(&TOW_ACTIVATION(tow_tanh)));
    tow_status status = trace(c, TOW_MODULE(&choose), 1, &small, 3);
    if (!status) status = trace(c, TOW_MODULE(&LOOPER(&loop)), 1, &small, 3);
    if (!status) status = trace(c, TOW_MODULE(&sown), 2, (tow_type[]){predicate, small}, 1);
    return status;
}

static void test_failing_allocations(void **unused)
{
    (void)unused;
    fail_in_turn(use_control);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_choice_errors),
        cmocka_unit_test(test_while_errors),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* Tests lift.c: which rules mean something for which transform, of variables, of parameters and of streams, as
 * tow/transforms.h and tow/module.h say; all others are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/running_layer.h"

/* x -> dense(x), or its sum; reads a counter and draws a key. */
typedef struct reader {
    tow_module module;
    bool sums;
} reader;

static void call_reader(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const tow_dense dense = TOW_DENSE(.features = 4);
    (void)n_in, (void)n_out;
    tow_variable(s, "counters", "n", SCALAR(TOW_I32), (tow_initializer){0});
    tow_make_rng(s, "noise");
    out[0] = tow_apply(s, "dense", &dense, in[0]);
    if (((const reader *)module)->sums) out[0] = tow_reduce_sum(out[0], 2, (int[]){0, 1});
}
static const tow_module_class reader_class = {"reader", call_reader};
static const reader plain = {{&reader_class}, false}, summed = {{&reader_class}, true};

static void call_never(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)s, (void)module, (void)n_in, (void)n_out;
    out[0] = tow_full(in[0].trace, SCALAR(TOW_BOOL), 0);
}
static const tow_module_class never_class = {"never", call_never};
static const bare never = {{&never_class}};

/* A transform of the reader. */
typedef union transform {
    tow_module module;
    tow_remat remat;
    tow_cond cond;
    tow_switch choice;
    tow_value_and_grad_layer gradient;
    tow_vjp_layer vjp;
    tow_jvp_layer jvp;
    tow_custom_vjp_layer custom;
    tow_while loop;
    tow_vmap_layer rows;
    tow_scan scan;
    tow_remat_scan remat_scan;
    tow_layer_stack stack;
} transform;

typedef enum kind {
    REMAT,
    COND,
    SWITCH,
    GRADIENT,
    VJP,
    JVP,
    CUSTOM,
    WHILE,
    VMAP,
    SCAN,
    REMAT_SCAN,
    STACK,
    KINDS
} kind;

/* The name of each, and what it gives and gets in front of and behind x. */
static const struct {
    const char *name;
    size_t n_out;
    int first; /* 0: none */
    bool cotangent, rows;
    const char *variables, *params, *streams; /* the rules that mean something: s, S, C, H */
} transforms[KINDS] = {
    [REMAT] = {"remat", 1, 0, false, false, "sH", "sH", "sH"},
    [COND] = {"cond", 1, TOW_BOOL, false, false, "sH", "sH", "sH"},
    [SWITCH] = {"switch", 1, TOW_I32, false, false, "sH", "sH", "sH"},
    [GRADIENT] = {"value_and_grad", 2, 0, false, false, "sH", "sH", "sH"},
    [VJP] = {"vjp", 2, 0, true, false, "sH", "sH", "sH"},
    [JVP] = {"jvp", 2, 0, true, false, "sH", "sH", "sH"},
    [CUSTOM] = {"custom_vjp", 1, 0, false, false, "sH", "sH", "sH"},
    [WHILE] = {"while", 1, 0, false, false, "SCH", "SH", "sSH"},
    [VMAP] = {"vmap", 1, 0, false, true, "sSH", "sSH", "sSH"},
    [SCAN] = {"scan", 1, 0, false, false, "sSCH", "sSH", "sSH"},
    [REMAT_SCAN] = {"remat_scan", 1, 0, false, false, "sSCH", "sSH", "sSH"},
    [STACK] = {"layer_stack", 1, 0, false, false, "sSCH", "sSH", "sSH"},
};

static const char letters[] = "sSCH";
static const char *const names[] = {"TOW_STACKED", "TOW_SHARED", "TOW_CARRIED", "TOW_HIDDEN"};

/* The status of a model that is the transform. */
static tow_status initialize(kind k, const tow_lift_rule *variables, const tow_lift_rule *streams)
{
    const tow_module *const branches[] = {TOW_MODULE(&plain), TOW_MODULE(&plain), NULL};
    transform t;
#define RULES .variables = variables, .streams = streams
    switch (k) {
    case REMAT:
        t.remat = TOW_REMAT(&plain, RULES);
        break;
    case COND:
        t.cond = TOW_COND(.yes = branches[0], .no = branches[1], RULES);
        break;
    case SWITCH:
        t.choice = TOW_SWITCH(.branches = branches, RULES);
        break;
    case GRADIENT:
        t.gradient = TOW_VALUE_AND_GRAD(&summed, RULES);
        break;
    case VJP:
        t.vjp = TOW_VJP(&plain, RULES);
        break;
    case JVP:
        t.jvp = TOW_JVP(&plain, RULES);
        break;
    case CUSTOM:
        t.custom = TOW_CUSTOM_VJP(&plain, RULES);
        break;
    case WHILE:
        t.loop = TOW_WHILE(.condition = TOW_MODULE(&never), .body = TOW_MODULE(&plain), RULES);
        break;
    case VMAP:
        t.rows = TOW_VMAP(&plain, RULES);
        break;
    case SCAN:
        t.scan = TOW_SCAN(&plain, .length = 3, RULES);
        break;
    case REMAT_SCAN:
        t.remat_scan = TOW_REMAT_SCAN(&plain, .lengths = {3}, RULES);
        break;
    default:
        t.stack = TOW_LAYER_STACK(.length = 3, .pattern = branches, RULES);
        break;
    }
    tow_type types[3];
    size_t n = 0;
    if (transforms[k].first) types[n++] = (tow_type){.dtype = (tow_dtype)transforms[k].first};
    types[n++] = transforms[k].rows ? TYPE(TOW_F32, 3, 2, 4) : small;
    if (transforms[k].cotangent) types[n++] = small;
    tow_params *params = NULL, *state = NULL;
    const tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = transforms[k].n_out);
    tow_status status = tow_model_init_with(ctx, &t.module, 3, n, types, &options, &params, &state);
    tow_params_free(params);
    tow_params_free(state);
    return status;
}

/* Each rule for the pattern, of which `fine` ones mean something. */
static void check_rules(kind k, const char *pattern, bool streams, const char *fine)
{
    for (int how = TOW_STACKED; how <= TOW_HIDDEN; how++) {
        const tow_lift_rule rules[] = {{pattern, (tow_lifting)how}, {NULL, TOW_STACKED}};
        const bool meant = strchr(fine, letters[how]) != NULL;
        const tow_status status = initialize(k, streams ? NULL : rules, streams ? rules : NULL);
        char expected[96], found[128];
        snprintf(found, sizeof found, "%s: .%s: \"%s\" is %s, but ", transforms[k].name,
                 streams ? "streams" : "variables", pattern, names[how]);
        int length = snprintf(expected, sizeof expected, "; expected ");
        for (const char *c = fine; *c; c++)
            length += snprintf(expected + length, sizeof expected - (size_t)length, "%s%s",
                               c == fine ? ""
                               : c[1]    ? ", "
                                         : " or ",
                               names[strchr(letters, *c) - letters]);
        if (!meant)
            expect_error(status, TOW_INVALID_ARGUMENT, found, expected);
        else if (how == TOW_HIDDEN) /* the layer asks for it */
            expect_error(status, TOW_NOT_FOUND, "TOW_HIDDEN");
        else if (status)
            fail_msg("%s, %s, %s: %s", transforms[k].name, pattern, names[how], tow_context_error(ctx));
    }
}

static void test_rules_that_mean_something(void **unused)
{
    (void)unused;
    for (int k = 0; k < KINDS; k++) {
        check_rules((kind)k, "counters", false, transforms[k].variables);
        check_rules((kind)k, "params", false, transforms[k].params);
        check_rules((kind)k, "params/dense/kernel", false, transforms[k].params);
        check_rules((kind)k, "noise", true, transforms[k].streams);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules_that_mean_something)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

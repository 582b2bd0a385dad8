/* Collections: what goes wrong, with one message each, and every allocation failing in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/running_layer.h"

/* ---- errors ------------------------------------------------------------------------------------------------------ */

typedef enum mistake {
    WRONG_TYPE,
    OTHER_TYPE,
    UNDECLARED,
    READS_UNDECLARED,
    PARAMS,
    SLASH,
    EMPTY,
    HALF,
    OUTSIDE,
    SOWS_NOTHING,
    RANK,
    MISTAKES
} mistake;

typedef struct mistaken {
    tow_module module;
    mistake which;
    tow_scope *outer; /* OUTSIDE */
} mistaken;

static void call_mistaken(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    (void)n_in, (void)n_out;
    const mistaken *m = (const mistaken *)module;
    tow_scope *part = tow_scope_begin(s, "part");
    tow_value v = tow_variable(part, "c", "v", TYPE(TOW_F32, 2), tow_initializer_zeros());
    tow_type big = tow_make_type(TOW_F32, TOW_MAX_RANK, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1});
    switch (m->which) {
    case WRONG_TYPE:
        tow_set_variable(part, "c", "v", tow_reduce_sum(v, 0, NULL));
        break;
    case OTHER_TYPE:
        tow_variable(part, "c", "v", TYPE(TOW_I32, 2), tow_initializer_zeros());
        break;
    case UNDECLARED:
        tow_set_variable(part, "d", "v", v);
        break;
    case READS_UNDECLARED:
        tow_get_variable(part, "c", "w");
        break;
    case PARAMS:
        tow_variable(part, "params", "v", TYPE(TOW_F32, 2), tow_initializer_zeros());
        break;
    case SLASH:
        tow_variable(part, "c", "v/w", TYPE(TOW_F32, 2), tow_initializer_zeros());
        break;
    case EMPTY:
        tow_sow(part, "", "v", v);
        break;
    case HALF:
        tow_variable(part, "c", "half", TYPE(TOW_I32, 2), tow_initializer_constant(0.5));
        break;
    case OUTSIDE:
        if (m->outer && tow_is_mutable(m->outer, "c"))
            tow_set_variable(m->outer, "c", "far", tow_get_variable(m->outer, "c", "far"));
        break;
    case SOWS_NOTHING:
        tow_sow(part, "intermediates", "v", (tow_value){0});
        break;
    case RANK:
        tow_variable(part, "c", "big", big, tow_initializer_zeros());
        break;
    case MISTAKES:
        break;
    }
    tow_scope_end(part);
    out[0] = in[0];
}
static const tow_module_class mistaken_class = {"mistaken", call_mistaken};

static void call_outside(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_variable(s, "c", "far", TYPE(TOW_F32, 2), tow_initializer_zeros());
    mistaken inner = {{&mistaken_class}, OUTSIDE, s};
    tow_scan loop = TOW_SCAN(&inner, .length = 2);
    out[0] = tow_apply(s, "loop", &loop, in[0]);
}
static const tow_module_class outside_class = {"outside", call_outside};

/* Initializes a model; the lists are freed. */
static tow_status init(const tow_module *model)
{
    tow_params *params, *variables;
    tow_status status = tow_model_init_with(ctx, model, 0, 1, &small, NULL, &params, &variables);
    if (status) assert_true(params == NULL && variables == NULL);
    tow_params_free(params);
    tow_params_free(variables);
    return status;
}

/* A forward graph of `model` with the variables of `like` and these mutable collections. */
static tow_status forward(const tow_module *model, const tow_module *like, const char *const *mutable_collections)
{
    tow_params *params, *variables, *updates = NULL;
    OK(tow_model_init_with(ctx, like, 0, 1, &small, NULL, &params, &variables));
    tow_model_options options =
        TOW_MODEL_OPTIONS(.state = variables, .mutable_collections = mutable_collections, .updates = &updates);
    tow_graph *g;
    tow_status status = tow_model_forward_graph(model, params, 1, &small, &options, &g);
    if (status) assert_true(updates == NULL && g == NULL);
    tow_graph_release(g);
    tow_params_free(params);
    tow_params_free(variables);
    tow_params_free(updates);
    return status;
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_layers_errors(void **state)
{
    (void)state;
    static const struct {
        mistake which;
        tow_status status;
        const char *texts[3];
    } cases[] = {
        {WRONG_TYPE, TOW_TYPE_MISMATCH, {"c/part/v: expected f32[2] as its new value, found f32[]"}},
        {OTHER_TYPE, TOW_SHAPE_MISMATCH, {"c/part/v: the layer asks for i32[2], the variable is f32[2]"}},
        {UNDECLARED, TOW_NOT_FOUND, {"d/part/v: no such variable", "tow_variable"}},
        {READS_UNDECLARED, TOW_NOT_FOUND, {"c/part/w: no such variable"}},
        {PARAMS, TOW_INVALID_ARGUMENT, {"part: variable \"v\"", "tow_param"}},
        {SLASH, TOW_INVALID_ARGUMENT, {"part: variable \"v/w\" of collection \"c\""}},
        {EMPTY, TOW_INVALID_ARGUMENT, {"part: variable \"v\" of collection \"\""}},
        {HALF, TOW_INVALID_ARGUMENT, {"c/part/half: the initial value 0.5 is no i32"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mistaken m = {{&mistaken_class}, cases[i].which, NULL};
        check_error("mistake", init(TOW_MODULE(&m)), cases[i].status, cases[i].texts);
    }
    mistaken rank = {{&mistaken_class}, RANK, NULL};
    tow_scan loop = TOW_SCAN(&rank, .length = 2);
    expect_error(init(TOW_MODULE(&loop)), TOW_INVALID_ARGUMENT, "{}/part: variable \"big\"", "rank 8");
    mistaken sows = {{&mistaken_class}, SOWS_NOTHING, NULL};
    expect_error(forward(TOW_MODULE(&sows), TOW_MODULE(&sows), NAMES("intermediates")), TOW_INVALID_ARGUMENT,
                 "part: \"v\" is sown into \"intermediates\"", "null value");
    bare outside = {{&outside_class}};
    expect_error(forward(TOW_MODULE(&outside), TOW_MODULE(&outside), NAMES("c")), TOW_INVALID_ARGUMENT,
                 "c/far: written in the scan loop", "under a rule TOW_CARRIED");
}

static void test_callers_errors(void **state)
{
    (void)state;
    running layer = RUNNING(), always = RUNNING(.always = true);
    tow_dense dense = TOW_DENSE(.features = 4);
    tow_scan loop = TOW_SCAN(&always, .length = 3), longer = TOW_SCAN(&always, .length = 4);
    tow_remat remat = TOW_REMAT(&loop);
    tow_params *params;
    expect_error(tow_model_init(ctx, TOW_MODULE(&layer), 0, 1, &small, &params), TOW_INVALID_ARGUMENT,
                 "batch_stats/mean: the model has 2 variables besides its parameters", "tow_model_init_with");
    assert_null(params);
    /* As ModifyScopeVariableError: immutable unless named; reading is allowed. */
    OK(forward(TOW_MODULE(&layer), TOW_MODULE(&layer), NULL));
    OK(forward(TOW_MODULE(&layer), TOW_MODULE(&layer), NAMES("counters")));
    expect_error(forward(TOW_MODULE(&always), TOW_MODULE(&always), NULL), TOW_INVALID_ARGUMENT,
                 "batch_stats/mean: cannot be written, the collection \"batch_stats\" is immutable",
                 "or set tow_model_options.deterministic", "mutable_collections");
    expect_error(forward(TOW_MODULE(&remat), TOW_MODULE(&remat), NAMES("batch_stats")), TOW_INVALID_ARGUMENT,
                 "counters/{}/calls: cannot be written");
    /* Misspelled. */
    expect_error(forward(TOW_MODULE(&layer), TOW_MODULE(&layer), NAMES("batch_stat")), TOW_NOT_FOUND,
                 "mutable collection \"batch_stat\"", "batch_stats/mean", "counters/calls", "intermediates/... (sown)");
    expect_error(forward(TOW_MODULE(&layer), TOW_MODULE(&layer), NAMES("params")), TOW_NOT_FOUND,
                 "no call changes parameters");
    expect_error(forward(TOW_MODULE(&dense), TOW_MODULE(&dense), NAMES("intermediates")), TOW_NOT_FOUND,
                 "there are none");
    OK(forward(TOW_MODULE(&dense), TOW_MODULE(&dense), NAMES(TOW_EVERY_COLLECTION)));
    /* Variables of another model, or none. */
    tow_params *variables;
    tow_graph *g;
    OK(tow_model_init_with(ctx, TOW_MODULE(&layer), 0, 1, &small, NULL, &params, &variables));
    expect_error(tow_model_forward_graph(TOW_MODULE(&layer), params, 1, &small, NULL, &g), TOW_NOT_FOUND,
                 "batch_stats/mean: the model asks for f32[4]", "0 paths", "tow_model_options.state");
    tow_model_options options = TOW_MODEL_OPTIONS(.state = params);
    expect_error(tow_model_forward_graph(TOW_MODULE(&dense), variables, 1, &small, NULL, &g), TOW_NOT_FOUND,
                 "params/kernel");
    expect_error(tow_model_forward_graph(TOW_MODULE(&layer), params, 1, &small, &options, &g), TOW_NOT_FOUND,
                 "batch_stats/mean");
    tow_params_free(params);
    options.state = variables;
    OK(tow_model_init(ctx, TOW_MODULE(&dense), 0, 1, &small, &params));
    expect_error(tow_model_forward_graph(TOW_MODULE(&dense), params, 1, &small, &options, &g), TOW_NOT_FOUND,
                 "batch_stats/mean: f32[4] is among the variables given, but the model does not ask for it");
    tow_params_free(params);
    tow_params_free(variables);
    OK(tow_model_init_with(ctx, TOW_MODULE(&loop), 0, 1, &small, NULL, &params, &variables));
    tow_params *longer_params, *longer_variables;
    OK(tow_model_init_with(ctx, TOW_MODULE(&longer), 0, 1, &small, NULL, &longer_params, &longer_variables));
    options = TOW_MODEL_OPTIONS(.state = variables, .mutable_collections = NAMES(TOW_EVERY_COLLECTION));
    expect_error(tow_model_forward_graph(TOW_MODULE(&longer), longer_params, 1, &small, &options, &g),
                 TOW_SHAPE_MISMATCH, "batch_stats/{}/mean: expected 4 layers in the leading axis", "f32[3,4]");
    tow_params_free(params);
    tow_params_free(variables);
    tow_params_free(longer_params);
    tow_params_free(longer_variables);
}

static void test_carried_collections_errors(void **state)
{
    (void)state;
    running layer = RUNNING();
    expect_error(init(TOW_MODULE(&TOW_SCAN(&layer, .length = 2, .variables = TOW_RULES({"counter", TOW_CARRIED})))),
                 TOW_NOT_FOUND, "scan: .variables: \"counter\" matches no parameter", "expected a collection");
    mistaken sows = {{&mistaken_class}, SOWS_NOTHING, NULL};
    tow_scan shares = TOW_SCAN(&sows, .length = 2, .variables = TOW_RULES({"intermediates", TOW_CARRIED}));
    tow_scan plain = TOW_SCAN(&sows, .length = 2);
    expect_error(forward(TOW_MODULE(&shares), TOW_MODULE(&plain), NAMES("intermediates")), TOW_UNSUPPORTED,
                 "\"v\" is sown into \"intermediates\", which the iterations of a scan share");
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Everything about collections, once; steps and programs are tested elsewhere. */
static tow_status use_collections(tow_context *c)
{
    running layer = RUNNING(.drops = 0.5);
    tow_remat remat = TOW_REMAT(&layer);
    tow_scan scan =
        TOW_SCAN(&remat, .length = 2, .keys = TOW_KEYS_FLAX, .variables = TOW_RULES({"counters", TOW_CARRIED}));
    tow_remat model = TOW_REMAT(&scan);
    tow_model_options options = TOW_MODEL_OPTIONS(.streams = (const char *const[]){"dropout", NULL});
    tow_params *params = NULL, *variables = NULL, *zeros = NULL, *updates = NULL;
    tow_tensors *tensors = NULL;
    tow_graph *g = NULL;
    tow_status status = tow_model_init_with(c, TOW_MODULE(&model), 0, 1, &small, &options, &params, &variables);
    options.state = variables;
    options.mutable_collections = NAMES(TOW_EVERY_COLLECTION, "intermediates");
    options.updates = &updates;
    if (!status) status = tow_model_forward_graph(TOW_MODULE(&model), params, 1, &small, &options, &g);
    if (!status) status = tow_params_zeros_like(updates, &zeros);
    if (!status) status = tow_tensors_create(c, &tensors);
    if (!status) status = tow_params_to_tensors(updates, "state/", tensors);
    if (!status) status = tow_params_from_tensors(zeros, "state/", tensors);
    tow_tensors_free(tensors);
    tow_graph_release(g);
    tow_params_free(params);
    tow_params_free(variables);
    tow_params_free(updates);
    tow_params_free(zeros);
    return status;
}

static void test_every_allocation_failing(void **state)
{
    (void)state;
    fail_in_turn(use_collections);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_errors),
        cmocka_unit_test(test_callers_errors),
        cmocka_unit_test(test_carried_collections_errors),
        cmocka_unit_test(test_every_allocation_failing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

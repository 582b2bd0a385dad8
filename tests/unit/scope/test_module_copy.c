/* Copies of models that were built in a function, and the check that finds what such a function has left on the stack.
 * Tests tree.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "src/scope/tree.h"
#include "tests/unit/support/running_layer.h"

/* ---- a layer of one's own ---------------------------------------------------------------------------------------- */

/* Calls a layer n times under one name. */
typedef struct again {
    tow_module module;
    const tow_module *inner;
    int64_t n;
} again;
static void call_again(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    const again *m = (const again *)module;
    (void)n_in, (void)n_out;
    out[0] = in[0];
    for (int64_t i = 0; i < m->n; i++)
        out[0] = tow_checkpoint_name(tow_apply_module(s, "again", m->inner, out[0]), "a");
}
static const tow_member again_members[] = {TOW_MEMBER(again, inner, TOW_MEMBER_LAYER)};
static const tow_module_layout again_layout = {sizeof(again), 1, again_members};
static const tow_module_class again_class = {.name = "Again", .call = call_again, .layout = &again_layout},
                              unknown_class = {.name = "Unknown", .call = call_again};

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* A model with every kind of member; what() gets it while all of it is there. Names are built here, so that copies need
 * their own. */
static tow_status with_model(bool unknown, tow_status (*what)(const tow_module *model, void *user), void *user)
{
    char own[16], rule[16], kept_name[16];
    snprintf(kept_name, sizeof kept_name, "%s", "a");
    snprintf(own, sizeof own, "%s", "own");
    snprintf(rule, sizeof rule, "%s", "params");
    tow_dense narrow = TOW_DENSE(.features = 3),
              wide = TOW_DENSE(.features = 4, .bias_init = tow_initializer_normal(0.5));
    again both = {{unknown ? &unknown_class : &again_class}, TOW_MODULE(&wide), 2};
    tow_remat remat = TOW_REMAT(&both, .policy = tow_save_only_these_names(kept_name));
    tow_scan scan = TOW_SCAN(&wide, .length = 3, .variables = TOW_RULES({rule, TOW_SHARED}));
    tow_layer_stack layers = TOW_LAYER_STACK(.length = 5, .pattern = TOW_LAYERS(TOW_MODULE(&wide), TOW_MODULE(&remat)));
    tow_parallel parallel = TOW_PARALLEL(TOW_SUM, TOW_MODULE(&TOW_NAMED(own, &wide)), TOW_MODULE(&scan));
    tow_sequential model = TOW_SEQUENTIAL(TOW_MODULE(&wide), TOW_MODULE(&parallel), TOW_MODULE(&layers),
                                          TOW_MODULE(&TOW_ACTIVATION(tow_relu)), TOW_MODULE(&narrow));
    return what(TOW_MODULE(&model), user);
}

static tow_status copy_it(const tow_module *model, void *user) { return tow_module_copy(ctx, model, user); }

/* The computation of a model, as a text of its graph, and its parameters. */
typedef struct result {
    tow_params *params;
    char *text;
} result;
static tow_status compute(const tow_module *model, void *user)
{
    result *r = user;
    const tow_type x = TYPE(TOW_F32, 2, 4);
    tow_graph *graph;
    OK(tow_model_init(ctx, model, 7, 1, &x, &r->params));
    OK(tow_model_forward_graph(model, r->params, 1, &x, NULL, &graph));
    const size_t size = tow_graph_text(graph, NULL, 0) + 1;
    r->text = malloc(size);
    tow_graph_text(graph, r->text, size);
    tow_graph_release(graph);
    return TOW_OK;
}

/* Overwrites what functions that have returned left on the stack. */
static void __attribute__((noinline)) scribble(void)
{
    volatile char used[16384];
    for (size_t i = 0; i < sizeof used; i++) used[i] = (char)0xA5;
}

static void test_copy_is_the_model(void **unused)
{
    (void)unused;
    result before = {0}, after = {0};
    tow_module *copy = NULL;
    OK(with_model(false, compute, &before));
    OK(with_model(false, copy_it, &copy));
    scribble();
    OK(compute(copy, &after));
    assert_string_equal(before.text, after.text);
    assert_int_equal(tow_params_count(before.params), tow_params_count(after.params));
    for (size_t i = 0; i < tow_params_count(before.params); i++) {
        assert_string_equal(tow_params_path(before.params, i), tow_params_path(after.params, i));
        const tow_array *a = tow_params_array(before.params, i), *b = tow_params_array(after.params, i);
        const size_t bytes = sizeof(float) * (size_t)tow_type_element_count(tow_array_type(a));
        assert_memory_equal(tow_array_data((tow_array *)a), tow_array_data((tow_array *)b), bytes);
    }
    /* A layer that is in the model many times is once in the copy. */
    const tow_sequential *root = (const tow_sequential *)copy;
    const tow_parallel *parallel = (const tow_parallel *)root->layers[1];
    assert_ptr_equal(((const tow_named *)parallel->branches[0])->inner, root->layers[0]);
    assert_ptr_equal(((const tow_scan *)parallel->branches[1])->inner, root->layers[0]);
    assert_string_equal(((const tow_scan *)parallel->branches[1])->variables[0].pattern, "params");
    tow_module_free(copy);
    tow_module_free(NULL);
    free(before.text);
    free(after.text);
    tow_params_free(before.params);
    tow_params_free(after.params);
}

static void test_refused(void **unused)
{
    (void)unused;
    tow_module *copy = (tow_module *)1;
    expect_error(with_model(true, copy_it, &copy), TOW_UNSUPPORTED, "the class of layer Unknown has no .layout");
    assert_null(copy);
    const tow_dense no_class = {.features = 3};
    const tow_remat around = TOW_REMAT(&no_class);
    expect_error(tow_module_copy(ctx, TOW_MODULE(&around), &copy), TOW_INVALID_ARGUMENT, "a layer has no class");
    expect_error(tow_module_copy(ctx, NULL, &copy), TOW_INVALID_ARGUMENT, "tow_module_copy");
    expect_error(tow_module_copy(ctx, TOW_MODULE(&around), NULL), TOW_INVALID_ARGUMENT, "tow_module_copy");
}

/* ---- what is left behind ----------------------------------------------------------------------------------------- */

static const tow_sequential *kept;

/* Returns a model by value, whose layers are gone then. */
static tow_sequential __attribute__((noinline)) dead_list(void)
{
    tow_dense a = TOW_DENSE(.features = 3), b = TOW_DENSE(.features = 4);
    return TOW_SEQUENTIAL(TOW_MODULE(&a), TOW_MODULE(&b));
}
static tow_remat __attribute__((noinline)) dead_layer(void)
{
    tow_dense a = TOW_DENSE(.features = 3);
    return TOW_REMAT(&a);
}
static void __attribute__((noinline)) dead_model(void)
{
    static const tow_sequential *volatile place;
    tow_dense a = TOW_DENSE(.features = 3);
    tow_sequential model = TOW_SEQUENTIAL(TOW_MODULE(&a));
    place = &model;
    kept = place;
}
static tow_scan __attribute__((noinline)) dead_rules(const tow_module *inner)
{
    return (tow_scan){.module = {&tow_scan_class, sizeof(tow_scan)},
                      .inner = inner,
                      .length = 2,
                      .variables = TOW_RULES({"params", TOW_SHARED})};
}

static tow_chain __attribute__((noinline)) dead_chain(void)
{
    tow_scale_by_adam adam = TOW_SCALE_BY_ADAM();
    return TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&adam));
}

static void mean(tow_trace *t, const tow_value *y, const tow_value *extra, tow_value *loss, tow_value *aux, void *user)
{
    (void)t, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(y[0], 0, NULL);
}

/* Functions that keep the model, and trace it at a later call, look at it when they get it. */
static void expect_kept_refused(const tow_params *params)
{
    const tow_type x = tow_make_type(TOW_F32, 2, (int64_t[]){2, 3});
    const tow_model_function_options options = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .loss = mean);
    tow_model_function *function = NULL;
    tow_model_summary *summary = NULL;
    tow_generator *generator = NULL;
    tow_sequential dead = dead_list();
    expect_error(tow_model_function_create(TOW_MODULE(&dead), params, &options, &function), TOW_INVALID_ARGUMENT,
                 "tow_model_function_create: the list of layers of Sequential was made in a function");
    dead = dead_list();
    expect_error(tow_model_function_create_value_and_grad(TOW_MODULE(&dead), params, &options, &function),
                 TOW_INVALID_ARGUMENT, "tow_model_function_create_value_and_grad: the list of layers");
    dead = dead_list();
    expect_error(tow_model_summary_create(TOW_MODULE(&dead), params, 1, &x, NULL, &summary), TOW_INVALID_ARGUMENT,
                 "tow_model_summary_create: the list of layers");
    dead = dead_list();
    expect_error(tow_generator_create(ctx, TOW_MODULE(&dead), params, NULL, &generator), TOW_INVALID_ARGUMENT,
                 "tow_generator_create: the list of layers");
    const tow_dense alive = TOW_DENSE(.features = 2);
    dead = dead_list();
    expect_error(tow_generator_create(ctx, TOW_MODULE(&alive), params,
                                      &TOW_GENERATOR_OPTIONS(.further = TOW_MODULE(&dead)), &generator),
                 TOW_INVALID_ARGUMENT, "tow_generator_create: the list of layers");
}

static void test_left_behind(void **unused)
{
    (void)unused;
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* it keeps locals elsewhere, and finds them itself */
#endif
    const tow_type x = TYPE(TOW_F32, 2, 4);
    tow_params *params = NULL;
    tow_module *copy = NULL;
    static const tow_dense alive = TOW_DENSE(.features = 4);
    tow_sequential list = dead_list();
    expect_error(tow_model_init(ctx, TOW_MODULE(&list), 0, 1, &x, &params), TOW_INVALID_ARGUMENT,
                 "tow_model_init: the list of layers of Sequential was made in a function that has returned",
                 "tow_module_copy");
    tow_remat layer = dead_layer();
    expect_error(tow_model_init(ctx, TOW_MODULE(&layer), 0, 1, &x, &params), TOW_INVALID_ARGUMENT,
                 "a layer of remat was made in a function that has returned");
    const tow_remat around = TOW_REMAT(&layer);
    expect_error(tow_model_init(ctx, TOW_MODULE(&around), 0, 1, &x, &params), TOW_INVALID_ARGUMENT,
                 "a layer of remat was made");
    dead_model();
    expect_error(tow_model_init(ctx, TOW_MODULE(kept), 0, 1, &x, &params), TOW_INVALID_ARGUMENT,
                 "the model was made in");
    tow_scan rules = dead_rules(TOW_MODULE(&alive));
    expect_error(tow_model_init(ctx, TOW_MODULE(&rules), 0, 1, &x, &params), TOW_INVALID_ARGUMENT,
                 "a list of rules of scan");
    OK(tow_model_init(ctx, TOW_MODULE(&alive), 0, 1, &x, &params));
    expect_kept_refused(params);
    tow_optimizer_state *state = NULL;
    tow_chain chain = dead_chain();
    expect_error(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&chain), params, NULL, &state), TOW_INVALID_ARGUMENT,
                 "tow_optimizer_create: the list of a chain of gradient transforms was made in a function");
    tow_params_free(params);
    tow_sequential again_dead = dead_list();
    expect_error(tow_module_copy(ctx, TOW_MODULE(&again_dead), &copy), TOW_INVALID_ARGUMENT, "the list of layers");
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void test_failing_allocations(void **unused)
{
    (void)unused;
    tow_context *plain = ctx;
    tow_status status = TOW_OUT_OF_MEMORY;
    for (long fail_at = 1; status != TOW_OK; fail_at++) {
        counting c;
        const tow_context_options options = counting_options(&c, fail_at);
        if (tow_context_create(&options, &ctx) != TOW_OK) continue;
        tow_module *copy = NULL;
        status = with_model(false, copy_it, &copy);
        assert_true(status == TOW_OK || (status == TOW_OUT_OF_MEMORY && !copy));
        tow_module_free(copy);
        tow_context_free(ctx);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.wrong_sizes, 0);
    }
    ctx = plain;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copy_is_the_model), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_left_behind), cmocka_unit_test(test_failing_allocations)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* Names of layers, parameters and variables: what a checkpoint cannot hold is refused when the model is first traced,
 * and names with digits draw the values that they should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "src/params/names.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

static void check_message(tow_status found, const char *const *texts)
{
    const char *message = tow_context_error(ctx);
    if (found != TOW_INVALID_ARGUMENT) fail_msg("expected an invalid argument, found %d: %s", (int)found, message);
    for (; *texts; texts++)
        if (!strstr(message, *texts)) fail_msg("\"%s\" is not in: %s", *texts, message);
}

/* Calls children in order, each at a path of its own, two components at most. */
typedef struct tree {
    tow_module module;
    struct child {
        const char *scope, *name; /* scope NULL: none in between */
        const tow_module *layer;
    } children[4];
} tree;

static void call_tree(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)n_in, (void)n_out;
    const tree *m = (const tree *)module;
    out[0] = in[0];
    for (size_t i = 0; i < 4 && m->children[i].name; i++) {
        tow_scope *scope = m->children[i].scope ? tow_scope_begin(s, m->children[i].scope) : s;
        out[0] = tow_apply_module(scope, m->children[i].name, m->children[i].layer, out[0]);
        if (scope != s) tow_scope_end(scope);
    }
}
static const tow_module_class tree_class = {"tree", call_tree};

/* A layer with a variable and maybe a parameter. */
typedef struct own {
    tow_module module;
    const char *param, *collection, *variable; /* NULL: none */
    bool sows;
} own;

static void call_own(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    (void)n_in, (void)n_out;
    const own *m = (const own *)module;
    int64_t columns = tow_value_type(in[0]).dims[1];
    out[0] = in[0];
    if (m->param) out[0] = tow_add(out[0], tow_param(s, m->param, 1, &columns, tow_initializer_zeros()));
    if (m->sows)
        tow_sow(s, m->collection, m->variable, in[0]);
    else if (m->collection)
        out[0] = tow_add(out[0], tow_variable(s, m->collection, m->variable, tow_make_type(TOW_F32, 0, NULL),
                                              tow_initializer_zeros()));
}
static const tow_module_class own_class = {"own", call_own};

static const tow_type input = {.dtype = TOW_F32, .rank = 2, .dims = {2, 3}};

static tow_status init(const tow_module *model)
{
    tow_params *params = NULL, *state = NULL;
    tow_status status = tow_model_init_with(ctx, model, 0, 1, &input, NULL, &params, &state);
    tow_params_free(params);
    tow_params_free(state);
    return status;
}

/* ---- what a checkpoint can hold ---------------------------------------------------------------------------------- */

/* A model that is initialized is one that can be saved: all its names are different ones. */
static void expect_saved(const tow_module *model)
{
    tow_params *params, *state;
    tow_tensors *tensors;
    OK(tow_model_init_with(ctx, model, 0, 1, &input, NULL, &params, &state));
    OK(tow_tensors_create(ctx, &tensors));
    OK(tow_params_to_tensors(params, "params/", tensors));
    OK(tow_params_to_tensors(state, "state/", tensors));
    tow_tensors_free(tensors);
    tow_params_free(params);
    tow_params_free(state);
}

#define REFUSED(model, ...) check_message(init(TOW_MODULE(&(model))), (const char *const[]){__VA_ARGS__, NULL})

static void test_layers_of_a_scan_and_children(void **state)
{
    (void)state;
    tow_dense dense = TOW_DENSE(.features = 3);
    tow_scan scan = TOW_SCAN(&dense, .length = 3), unrolled = TOW_SCAN(&dense, .length = 3, .unrolled = true);
    const tow_module *d = TOW_MODULE(&dense), *s = TOW_MODULE(&scan), *u = TOW_MODULE(&unrolled);
    for (int first = 0; first < 2; first++) {
        struct child child = {"f", "2", d}, loop = {NULL, "f", s}, list = {NULL, "f", u};
        tree looped = {{&tree_class}, {first ? child : loop, first ? loop : child}};
        REFUSED(looped, "params/f/{}/kernel", "params/f/2/kernel", "another name");
        tree listed = {{&tree_class}, {first ? child : list, first ? list : child}};
        REFUSED(listed, "params/f/2/kernel", "iteration 2 of the scan f", "another name");
    }
    tree beyond = {{&tree_class}, {{NULL, "f", s}, {"f", "3", d}, {"f", "02", d}, {"f", "-1", d}}};
    expect_saved(TOW_MODULE(&beyond));
    tree twice = {{&tree_class}, {{NULL, "f", u}, {NULL, "f", u}, {NULL, "g", s}, {NULL, "g", s}}};
    expect_saved(TOW_MODULE(&twice));
    /* Stacks that meet: f/{}/1 of a scan of children "1", and f/0/{} of a child "0" with a scan. */
    tree inner = {{&tree_class}, {{NULL, "1", d}}};
    tow_scan over = TOW_SCAN(&inner, .length = 2);
    tree meet = {{&tree_class}, {{NULL, "f", TOW_MODULE(&over)}, {"f", "0", s}}};
    REFUSED(meet, "params/f/{}/1/kernel", "params/f/0/{}/kernel", "f/0/1/kernel");
}

static void test_variables_that_collide(void **state)
{
    (void)state;
    own keeper = {.module = {&own_class}, .collection = "cache", .variable = "v"};
    tow_scan scan = TOW_SCAN(&keeper, .length = 2), unrolled = TOW_SCAN(&keeper, .length = 2, .unrolled = true);
    tow_scan shared = TOW_SCAN(&keeper, .length = 2, .unrolled = true, .variables = TOW_RULES({"cache", TOW_CARRIED}));
    struct child child = {"f", "0", TOW_MODULE(&keeper)};
    tree looped = {{&tree_class}, {{NULL, "f", TOW_MODULE(&scan)}, child}};
    REFUSED(looped, "cache/f/{}/v", "cache/f/0/v");
    tree listed = {{&tree_class}, {{NULL, "f", TOW_MODULE(&unrolled)}, child}};
    REFUSED(listed, "cache/f/0/v", "iteration 0 of the scan f");
    tree one = {{&tree_class}, {{NULL, "f", TOW_MODULE(&shared)}, {NULL, "f", TOW_MODULE(&keeper)}, child}};
    expect_saved(TOW_MODULE(&one));
}

static void test_sown_over_a_variable(void **state)
{
    (void)state;
    own sower = {.module = {&own_class}, .collection = "seen", .variable = "h", .sows = true};
    own keeper = {.module = {&own_class}, .collection = "seen", .variable = "0"};
    tree model = {{&tree_class}, {{"a", "h", TOW_MODULE(&keeper)}, {NULL, "a", TOW_MODULE(&sower)}}};
    tow_params *params, *variables;
    tow_graph *graph;
    OK(tow_model_init_with(ctx, TOW_MODULE(&model), 0, 1, &input, NULL, &params, &variables));
    tow_model_options options = TOW_MODEL_OPTIONS(.state = variables, .mutable_collections = TOW_NAMES("seen"));
    check_message(tow_model_forward_graph(TOW_MODULE(&model), params, 1, &input, &options, &graph),
                  TOW_NAMES("seen/a/h/0", "another name"));
    tow_params_free(params);
    tow_params_free(variables);
}

static void test_names_that_files_cannot_hold(void **state)
{
    (void)state;
    static const struct {
        const char *name, *why;
    } bad[] = {{"", "empty"},        {"a/b", "'/'"},        {"{}", "iterations"},      {"__metadata__", "reserved"},
               {"caf\xe9", "UTF-8"}, {"\xc0\xaf", "UTF-8"}, {"\xed\xa0\x80", "UTF-8"}, {"a\xf4\x90\x80\x80", "UTF-8"}};
    static const char *const good[] = {"caf\xc3\xa9",       "a.b", "{}x", "\xf0\x9f\x8c\xbe", "a b",
                                       "line\n\"quote\"\\", "\x01"};
    tow_dense dense = TOW_DENSE(.features = 3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *name = bad[i].name;
        tree child = {{&tree_class}, {{NULL, name, TOW_MODULE(&dense)}}};
        REFUSED(child, bad[i].why, "cannot name a child");
        own param = {.module = {&own_class}, .param = name};
        REFUSED(param, bad[i].why, "parameter");
        own variable = {.module = {&own_class}, .collection = "cache", .variable = name};
        REFUSED(variable, bad[i].why, "the name", "collection \"cache\"");
        own collection = {.module = {&own_class}, .collection = name, .variable = "v"};
        REFUSED(collection, bad[i].why, "the collection", "variable \"v\"");
        own sown = {.module = {&own_class}, .collection = "seen", .variable = name, .sows = true};
        REFUSED(sown, bad[i].why, "the name");
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        own leaf = {.module = {&own_class}, .param = good[i], .collection = good[i], .variable = good[i]};
        tree model = {{&tree_class}, {{good[i], good[i], TOW_MODULE(&leaf)}}};
        expect_saved(TOW_MODULE(&model));
    }
}

static void mean_loss(tow_trace *trace, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                      tow_value *aux, void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(outputs[0], 0, NULL);
}

static void test_description(void **state)
{
    (void)state;
    tow_dense dense = TOW_DENSE(.features = 3);
    tow_train_state *train;
    tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(1e-3)}, .loss = mean_loss, .n_inputs = 1,
                          .input_types = &input, .description = "caf\xe9");
    check_message(tow_train_create(ctx, TOW_MODULE(&dense), &options, &train), TOW_NAMES(".description", "UTF-8"));
}

/* ---- digits ------------------------------------------------------------------------------------------------------ */

/* The array at `path`, one layer of a stack maybe, of an initialized model. */
static void read_kernel(const tow_module *model, const char *path, float *kernel)
{
    tow_params *params;
    tow_array *array;
    OK(tow_model_init(ctx, model, 5, 1, &input, &params));
    OK(tow_params_get(params, path, &array));
    assert_int_equal(tow_type_bytes(tow_array_type(array)), 9 * sizeof *kernel);
    memcpy(kernel, tow_array_data(array), 9 * sizeof *kernel);
    tow_array_release(array);
    tow_params_free(params);
}

static void test_digits(void **state)
{
    (void)state;
    tow_dense dense = TOW_DENSE(.features = 3, .no_bias = true);
    tree block = {{&tree_class}, {{NULL, "3x3", TOW_MODULE(&dense)}, {NULL, "13x3", TOW_MODULE(&dense)}}};
    for (int keys = TOW_KEYS_PATH; keys <= TOW_KEYS_FLAX; keys++) {
        tow_scan loop = TOW_SCAN(&block, .length = 12, .keys = (tow_scan_keys)keys), list = loop;
        list.unrolled = true;
        tree looped = {{&tree_class}, {{NULL, "stack_1", TOW_MODULE(&loop)}}};
        tree listed = {{&tree_class}, {{NULL, "stack_1", TOW_MODULE(&list)}}};
        float a[9], b[9];
        for (int i = 0; i < 12; i++) {
            char path[64];
            snprintf(path, sizeof path, "stack_1/%d/3x3/kernel", i);
            read_kernel(TOW_MODULE(&looped), path, a);
            read_kernel(TOW_MODULE(&listed), path, b);
            assert_memory_equal(a, b, sizeof a);
        }
        read_kernel(TOW_MODULE(&looped), "stack_1/1/13x3/kernel", b); /* not as iteration 11's 3x3 */
        assert_memory_not_equal(a, b, sizeof a);
    }
    /* Without digits beside the index a scan draws what children with these names draw. */
    tow_scan plain = TOW_SCAN(&dense, .length = 12);
    tree looped = {{&tree_class}, {{NULL, "blocks", TOW_MODULE(&plain)}}};
    tree named = {{&tree_class}, {{"blocks", "11", TOW_MODULE(&dense)}}};
    float a[9], b[9];
    read_kernel(TOW_MODULE(&looped), "blocks/11/kernel", a);
    read_kernel(TOW_MODULE(&named), "blocks/11/kernel", b);
    assert_memory_equal(a, b, sizeof a);
}

static void test_paths_of_iterations(void **state)
{
    static const struct {
        const char *path, *around;
        int64_t number, every;
        const char *renamed; /* NULL: it is below no iteration */
    } cases[] = {
        {"blocks/{}/attn", "blocks", 1, 2, "blocks/{1+2}/attn"},
        {"blocks/{}/attn", "blocks", 10, 0, "blocks/10/attn"},
        {"blocks/{}", "blocks", 0, 4, "blocks/{0+4}"},
        {"{}/attn", "", 3, 0, "3/attn"},
        {"a/{}/b/{}/w", "a", 1, 0, "a/1/b/{}/w"},
        {"a/{}/b/{}/w", "a/{}/b", 1, 3, "a/{}/b/{1+3}/w"},
        {"blocks/attn", "blocks", 1, 2, NULL},
        {"blocks/{1+2}/attn", "blocks", 1, 2, NULL},
        {"blocks2/{}/attn", "blocks", 1, 2, NULL},
        {"blocks", "blocks", 1, 2, NULL},
        {"blocks/{}x", "blocks", 1, 2, NULL},
        {"embed/{}", "blocks", 1, 2, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char renamed[64 + TOW__NUMBERING_SIZE] = "as it was";
        const bool below =
            tow__path_of_iterations(cases[i].path, cases[i].around, cases[i].number, cases[i].every, renamed);
        assert_int_equal(below, cases[i].renamed != NULL);
        assert_string_equal(renamed, below ? cases[i].renamed : "as it was");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_of_a_scan_and_children),
        cmocka_unit_test(test_variables_that_collide),
        cmocka_unit_test(test_sown_over_a_variable),
        cmocka_unit_test(test_names_that_files_cannot_hold),
        cmocka_unit_test(test_description),
        cmocka_unit_test(test_digits),
        cmocka_unit_test(test_paths_of_iterations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* Mistakes in calling a model that did damage or meant something else in silence: loss functions that write past their
 * arrays, variables written in bodies that cannot hand them out, and options of which only a part is set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

/* The status, and every text in the message. */
#define REFUSED(call, status, ...) check_refused(#call, call, status, (const char *const[]){__VA_ARGS__, NULL})
static void check_refused(const char *call, tow_status found, tow_status expected, const char *const *texts)
{
    const char *message = tow_context_error(ctx);
    if (found != expected)
        fail_msg("%s: expected \"%s\", found \"%s\": %s", call, tow_status_text(expected), tow_status_text(found),
                 message);
    for (; *texts; texts++)
        if (!strstr(message, *texts)) fail_msg("%s: \"%s\" is not in: %s", call, *texts, message);
}

static tow_type f32(int64_t rows, int64_t columns) { return tow_make_type(TOW_F32, 2, (int64_t[]){rows, columns}); }

static tow_status init(const tow_module *model, tow_type type)
{
    tow_params *params = NULL, *state = NULL;
    tow_status status = tow_model_init_with(ctx, model, 0, 1, &type, NULL, &params, &state);
    if (status) assert_null(params);
    tow_params_free(params);
    tow_params_free(state);
    return status;
}

/* ---- loss functions ---------------------------------------------------------------------------------------------- */

/* Writes so many aux values, so many losses, whatever was asked for. */
typedef struct greed {
    size_t n_aux, n_loss;
    bool aux_was_null;
} greed;

static void greedy_loss(tow_trace *trace, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                        tow_value *aux, void *user)
{
    (void)trace, (void)extra;
    greed *g = user;
    g->aux_was_null = aux == NULL;
    for (size_t i = 0; i < g->n_loss; i++) loss[i] = tow_mean(outputs[0], 0, NULL);
    for (size_t i = 0; i < g->n_aux && aux; i++) aux[i] = loss[0];
}

static tow_status loss_of(greed *g, size_t n_aux)
{
    tow_dense model = TOW_DENSE(.features = 3);
    tow_type type = f32(2, 4);
    tow_params *params;
    tow_graph *graph = NULL;
    OK(tow_model_init(ctx, TOW_MODULE(&model), 0, 1, &type, &params));
    tow_status status =
        tow_model_loss_graph(TOW_MODULE(&model), params, 1, &type, 0, NULL, greedy_loss, g, n_aux, NULL, &graph);
    assert_int_equal(status == TOW_OK, graph != NULL);
    if (graph) assert_int_equal(tow_graph_output_count(graph), 1 + n_aux);
    tow_graph_release(graph);
    tow_params_free(params);
    return status;
}

static void test_aux_of_no_values_is_null(void **state)
{
    (void)state;
    greed g = {.n_loss = 1, .n_aux = 40};
    OK(loss_of(&g, 0));
    assert_true(g.aux_was_null);
    g = (greed){.n_loss = 1};
    tow_dense model = TOW_DENSE(.features = 3);
    tow_type type = f32(2, 4);
    tow_train_state *train;
    tow_train_options options =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(1e-3)}, .loss = greedy_loss,
                          .loss_user = &g, .n_inputs = 1, .input_types = &type);
    OK(tow_train_create(ctx, TOW_MODULE(&model), &options, &train));
    assert_true(g.aux_was_null);
    tow_train_free(train);
}

static void test_writes_past_aux(void **state)
{
    (void)state;
    OK(loss_of(&(greed){.n_loss = 1, .n_aux = 2}, 2));
    REFUSED(loss_of(&(greed){.n_loss = 1, .n_aux = 3}, 2), TOW_INVALID_ARGUMENT, "aux[2]", "expected 2 values");
    REFUSED(loss_of(&(greed){.n_loss = 1, .n_aux = 40}, 1), TOW_INVALID_ARGUMENT, "aux[39]", "expected 1 value;");
    REFUSED(loss_of(&(greed){.n_loss = 2}, 0), TOW_INVALID_ARGUMENT, "loss[1]", "expected 1 value;");
    REFUSED(loss_of(&(greed){.n_loss = 1, .n_aux = 1}, 2), TOW_INVALID_ARGUMENT, "aux[1]", "expected 2 values");
}

static void write_three(tow_trace *trace, const tow_value *inputs, tow_value *outputs, void *user)
{
    (void)trace, (void)user;
    for (int i = 0; i < 3; i++) outputs[i] = tow_sin(inputs[0]);
}

typedef enum body_kind {
    REMAT,
    SCAN,
    CALL,
    BRANCH,
    CASE,
    LOOP,
    VMAP
} body_kind;

static void hand_through(tow_trace *trace, const tow_value *inputs, tow_value *outputs, void *user)
{
    (void)trace, (void)user;
    outputs[0] = tow_neg(inputs[0]);
}

static void is_small(tow_trace *trace, const tow_value *inputs, tow_value *outputs, void *user)
{
    (void)trace, (void)user;
    outputs[0] = tow_lt_scalar(tow_reduce_sum(inputs[0], 0, NULL), 3);
}

/* `function` as a body over one value that keeps its type. */
static void run_body(tow_trace *trace, body_kind kind, tow_function function, void *user, tow_value x, tow_value *out)
{
    tow_scan_options twice = TOW_SCAN_OPTIONS(.length = 2);
    static const int none[] = {TOW_NOT_MAPPED};
    tow_vmap_options same = TOW_VMAP_OPTIONS(.in_axes = none, .out_axes = none, .axis_size = 2);
    if (kind == REMAT) tow_remat_function(trace, function, user, NULL, 1, &x, 1, out);
    if (kind == SCAN) tow_scan_function(trace, function, user, &twice, 1, &x, 0, NULL, 0, out, NULL);
    if (kind == CALL) tow_call_function(trace, function, user, "body", 1, &x, 1, out);
    const tow_branch branches[] = {{function, user}, {hand_through, NULL}, {function, user}};
    tow_while_options bound = TOW_WHILE_OPTIONS(.max_iterations = 2);
    if (kind == BRANCH)
        tow_cond_function(trace, tow_reduce_sum(x, 0, NULL), function, hand_through, user, 1, &x, 1, out);
    if (kind == CASE) tow_switch_function(trace, tow_scalar(trace, TOW_I32, 2), 3, branches, 1, &x, 1, out);
    if (kind == LOOP) tow_while_function(trace, is_small, function, user, &bound, 1, &x, out);
    if (kind == VMAP) tow_vmap_function(trace, function, user, &same, 1, &x, 1, out);
}

static void wrap_three(tow_trace *trace, const tow_value *inputs, tow_value *outputs, void *user)
{
    run_body(trace, *(body_kind *)user, write_three, NULL, inputs[0], outputs);
}

static void test_writes_past_outputs(void **state)
{
    (void)state;
    tow_type type = f32(2, 2);
    tow_graph *graph = NULL;
    OK(tow_trace_function(ctx, write_three, NULL, 1, &type, NULL, 3, &graph));
    tow_graph_release(graph);
    REFUSED(tow_trace_function(ctx, write_three, NULL, 1, &type, NULL, 2, &graph), TOW_INVALID_ARGUMENT, "outputs[2]",
            "expected 2 values");
    for (body_kind kind = REMAT; kind <= VMAP; kind++)
        REFUSED(tow_trace_function(ctx, wrap_three, &kind, 1, &type, NULL, 1, &graph), TOW_INVALID_ARGUMENT,
                "outputs[2]", "expected 1 value;");
}

/* ---- bodies without a frame -------------------------------------------------------------------------------------- */

typedef enum action {
    READS,
    WRITES,
    SOWS
} action;

/* A layer with a variable, a parameter and a random key, which it reads, and maybe writes or sows. */
typedef struct keeper {
    tow_module module;
    action action;
} keeper;

static void call_keeper(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)n_in, (void)n_out;
    action a = ((const keeper *)module)->action;
    tow_value last = tow_variable(s, "cache", "last", tow_value_type(in[0]), tow_initializer_zeros());
    tow_dense dense = TOW_DENSE(.features = tow_value_type(in[0]).dims[1]);
    tow_dropout dropout = TOW_DROPOUT(.rate = 0.5);
    out[0] = tow_add(last, tow_apply(s, "dense", &dense, in[0]));
    out[0] = tow_apply(s, "dropout", &dropout, out[0]);
    if (a == WRITES && tow_is_mutable(s, "cache")) tow_set_variable(s, "cache", "last", out[0]);
    if (a == SOWS) tow_sow(s, "intermediates", "seen", out[0]);
}
static const tow_module_class keeper_class = {"keeper", call_keeper};

/* A layer that calls `inner` in a body of its own making. */
typedef struct raw {
    tow_module module;
    body_kind kind;
    const tow_module *inner;
} raw;

typedef struct raw_call {
    const raw *m;
    tow_scope *scope;
} raw_call;

static void raw_body(tow_trace *trace, const tow_value *inputs, tow_value *outputs, void *user)
{
    (void)trace;
    const raw_call *c = user;
    outputs[0] = tow_apply_module(c->scope, "child", c->m->inner, inputs[0]);
}

static void call_raw(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    (void)n_in, (void)n_out;
    raw_call c = {(const raw *)module, s};
    run_body(tow_scope_trace(s), c.m->kind, raw_body, &c, in[0], out);
}
static const tow_module_class raw_class = {"raw", call_raw};

/* init and forward with everything mutable. */
static tow_status init_and_run(const tow_module *model)
{
    tow_type type = f32(2, 2);
    tow_params *params = NULL, *state = NULL;
    tow_graph *graph = NULL;
    tow_status status = tow_model_init_with(ctx, model, 0, 1, &type, NULL, &params, &state);
    tow_model_options options =
        TOW_MODEL_OPTIONS(.state = state, .streams = (const char *const[]){"dropout", NULL},
                          .mutable_collections = (const char *const[]){TOW_EVERY_COLLECTION, NULL});
    if (!status) OK(tow_model_forward_graph(model, params, 1, &type, &options, &graph));
    tow_graph_release(graph);
    tow_params_free(params);
    tow_params_free(state);
    return status;
}

/* The layer in the body is the keeper itself, or wrapped by the layers that hand variables out. */
static void test_raw_bodies(void **state)
{
    (void)state;
    for (body_kind kind = REMAT; kind <= VMAP; kind++)
        for (action a = READS; a <= SOWS; a++) {
            keeper k = {{&keeper_class}, a};
            tow_remat remat = TOW_REMAT(&k, .policy = tow_nothing_saveable());
            tow_scan scan = TOW_SCAN(&k, .length = 3), unrolled = TOW_SCAN(&k, .length = 3, .unrolled = true);
            tow_scan shared = TOW_SCAN(&k, .length = 3, .variables = TOW_RULES({"cache", TOW_CARRIED}));
            tow_scan flax = TOW_SCAN(&k, .length = 3, .keys = TOW_KEYS_FLAX);
            const tow_module *inner[] = {TOW_MODULE(&k),        TOW_MODULE(&remat),  TOW_MODULE(&scan),
                                         TOW_MODULE(&unrolled), TOW_MODULE(&shared), TOW_MODULE(&flax)};
            for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
                if (a == SOWS && inner[i] == TOW_MODULE(&shared)) continue;
                raw outer = {{&raw_class}, kind, inner[i]};
                if (a == READS)
                    OK(init_and_run(TOW_MODULE(&outer)));
                else
                    REFUSED(init_and_run(TOW_MODULE(&outer)), TOW_UNSUPPORTED, "child",
                            a == WRITES ? "cache/child" : "intermediates/child",
                            a == WRITES ? "last: the variable is written" : "seen: a value is sown",
                            "tow_cond_function", "of every branch", "TOW_REMAT");
            }
        }
    keeper k = {{&keeper_class}, WRITES};
    OK(init_and_run(TOW_MODULE(&k)));
}

/* ---- options of which a part is set ------------------------------------------------------------------------------ */

static void call_odd_variable(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                              tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    out[0] = tow_add(in[0], tow_variable(s, "cache", "mean", tow_value_type(in[0]), (tow_initializer){.a = 1}));
}
static const tow_module_class odd_variable_class = {"odd_variable", call_odd_variable};

#define NOT_WHOLE(layer, ...)                                                                                          \
    do {                                                                                                               \
        const tow_module *model = TOW_MODULE(&(layer));                                                                \
        REFUSED(init(model, f32(4, 4)), TOW_INVALID_ARGUMENT, __VA_ARGS__);                                            \
    } while (0)

static void test_half_filled_initializers(void **state)
{
    (void)state;
    const tow_initializer two = {.a = 2}, mode = {.mode = TOW_FAN_OUT};
    assert_false(tow_initializer_is_default(&two));
    assert_false(tow_initializer_is_default(&mode));
    assert_true(tow_initializer_is_default(&(tow_initializer){0}));
    NOT_WHOLE(TOW_DENSE(.features = 2, .kernel_init = {.a = 2}), "kernel", ".fill");
    NOT_WHOLE(TOW_DENSE(.features = 2, .bias_init = two), "bias", ".fill");
    NOT_WHOLE(TOW_DENSE(.features = 2, .kernel_init = mode), "kernel", ".fill");
    NOT_WHOLE(TOW_DENSE_GENERAL(.features = {2}, .kernel_init = two), "kernel", ".fill");
    NOT_WHOLE(TOW_LAYER_NORM(.scale_init = two), "scale", ".fill");
    NOT_WHOLE(TOW_RMS_NORM(.scale_init = two), "scale", ".fill");
    NOT_WHOLE(TOW_MLP(.features = {2}, .bias_init = two), "bias", ".fill");
    NOT_WHOLE(((keeper){{&odd_variable_class}, READS}), "mean", ".fill");
    tow_multi_head_attention attention = TOW_MULTI_HEAD_ATTENTION(.heads = 2, .out_kernel_init = two);
    REFUSED(init(TOW_MODULE(&attention), tow_make_type(TOW_F32, 3, (int64_t[]){1, 2, 4})), TOW_INVALID_ARGUMENT,
            "out: parameter \"kernel\"", ".fill");
}

static void test_half_filled_lists(void **state)
{
    (void)state;
    NOT_WHOLE(TOW_DENSE_GENERAL(.features = {2}, .axes = {-1, 1}), ".axes[0] = -1", ".n_axes");
    NOT_WHOLE(TOW_DENSE_GENERAL(.features = {2}, .n_axes = 1, .axes = {-1, 1}), ".axes[1] = 1", ".n_axes = 1");
    NOT_WHOLE(TOW_DENSE_GENERAL(.features = {2, 0, 3}), ".features = 3");
    NOT_WHOLE(TOW_MLP(.features = {2, 0, 3}), ".features = 3");
    NOT_WHOLE(TOW_MLP(.features = {2, -3}), ".features = -3");
    NOT_WHOLE(TOW_DROPOUT(.rate = 0.5, .broadcast_axes = {1}), ".broadcast_axes[0] = 1", ".n_broadcast_axes");
}

static void test_half_filled_policies(void **state)
{
    (void)state;
    tow_dense dense = TOW_DENSE(.features = 2);
    tow_policy dots = tow_dots_saveable();
    const tow_policy policies[] = {
        {.names = TOW_NAMES("a")},
        {.a = &dots},
        {.b = &dots},
        {.kind = TOW_POLICY_NOT, .a = &dots, .b = &dots},
        {.kind = TOW_POLICY_EITHER, .a = &dots, .b = &(tow_policy){.names = TOW_NAMES("a")}}};
    const char *const fields[] = {".names", ".a", ".b", ".b", ".names"};
    for (size_t i = 0; i < 5; i++) {
        tow_remat remat = TOW_REMAT(&dense, .policy = policies[i]);
        NOT_WHOLE(remat, "the policy has", fields[i]);
    }
}

static void test_half_filled_optimizers(void **state)
{
    (void)state;
    tow_dense model = TOW_DENSE(.features = 3);
    tow_type type = f32(2, 4);
    greed g = {.n_loss = 1};
    const tow_schedule rate = tow_schedule_constant(1e-3);
    const struct {
        tow_standard_optimizer optimizer;
        const char *text;
    } cases[] = {{{.learning_rate = {.peak_value = 1e-3, .warmup_steps = 10, .decay_steps = 100}}, "CONSTANT"},
                 {{.learning_rate = {.peak_value = 1e-3, .end_value = 1e-5}}, "CONSTANT"},
                 {{.learning_rate = rate, .momentum = 0.9}, "TOW_ADAMW"},
                 {{.learning_rate = rate, .nesterov = true}, "TOW_ADAMW"},
                 {{.kind = TOW_SGD, .learning_rate = rate, .b1 = 0.9}, "TOW_SGD"},
                 {{.kind = TOW_SGD, .learning_rate = rate, .eps = 1e-8}, "TOW_SGD"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_train_state *train;
        tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = cases[i].optimizer, .loss = greedy_loss,
                                                      .loss_user = &g, .n_inputs = 1, .input_types = &type);
        REFUSED(tow_train_create(ctx, TOW_MODULE(&model), &options, &train), TOW_INVALID_ARGUMENT, "optimizer",
                cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_aux_of_no_values_is_null), cmocka_unit_test(test_writes_past_aux),
        cmocka_unit_test(test_writes_past_outputs),      cmocka_unit_test(test_raw_bodies),
        cmocka_unit_test(test_half_filled_initializers), cmocka_unit_test(test_half_filled_lists),
        cmocka_unit_test(test_half_filled_policies),     cmocka_unit_test(test_half_filled_optimizers),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

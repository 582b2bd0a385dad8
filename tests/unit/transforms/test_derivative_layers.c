/* Tests derivative.c, custom_vjp.c: value_and_grad, vjp, jvp and custom_vjp as layers. Against Flax as in
 * test_lift_control.c, with gradients of models that contain derivatives; the golden file is written by
 * tests/oracle/flax_derivative.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "src/scope/calls.h"
#include "src/scope/scope.h"
#include "tests/unit/support/control_layers.h"
#include "tests/unit/support/lift_golden.h"

#define FLAX       .keys = TOW_KEYS_FLAX
#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- the models of the oracle ------------------------------------------------------------------------------------ */

/* (sum of y^2, ys, key) of a cell, or its results as they are. */
typedef struct celled {
    tow_module module;
    bool energy;
} celled;
static void call_celled(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    tow_apply_n(s, "cell", &cell, n_in, in, n_out, out);
    if (((const celled *)module)->energy) out[0] = tow_reduce_sum(tow_mul(out[0], out[0]), 0, NULL);
}
static const tow_module_class celled_class = {"celled", call_celled};
static const celled energy = {{&celled_class}, true}, plain_cell = {{&celled_class}, false};

static tow_value as_small(tow_value scalar, tow_value like)
{
    return tow_broadcast_to(scalar, tow_value_type(like).rank, tow_value_type(like).dims);
}

static void call_force(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    const tow_value_and_grad_layer force = TOW_VALUE_AND_GRAD(&energy, .n_aux = 2);
    tow_value all[4];
    (void)module, (void)n_in;
    tow__call_here(s, TOW_MODULE(&force), 1, in, 4, all);
    out[0] = tow_add(tow_mul_scalar(all[3], 0.25), as_small(tow_mul_scalar(all[0], 0.125), all[3]));
    memcpy(out + 1, all + 1, (n_out - 1) * sizeof *out);
}

static void call_pullback(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    const tow_vjp_layer pullback = TOW_VJP(&plain_cell, .n_outputs = 3);
    tow_array *weights = exact_fractions(ctx, tow_value_type(in[0]));
    tow_value all[4];
    (void)module, (void)n_in;
    tow__call_here(s, TOW_MODULE(&pullback), 3, (tow_value[]){in[0], tow_constant(in[0].trace, weights), in[0]}, 4,
                   all);
    out[0] = tow_add(all[0], tow_mul_scalar(all[3], 0.125));
    memcpy(out + 1, all + 1, (n_out - 1) * sizeof *out);
    tow_array_release(weights);
}

static void call_pushforward(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                             tow_value *out)
{
    const tow_jvp_layer pushforward = TOW_JVP(&plain_cell, .n_outputs = 3);
    tow_value all[5], tangent = tow_add_scalar(tow_mul_scalar(in[0], 0.5), 1);
    (void)module, (void)n_in;
    tow__call_here(s, TOW_MODULE(&pushforward), 2, (tow_value[]){in[0], tangent}, 5, all);
    out[0] = tow_add(all[0], tow_mul_scalar(all[3], 0.25));
    if (n_out > 1) out[1] = tow_sub(all[1], all[4]);
    if (n_out > 2) out[2] = all[2];
}
static const tow_module_class force_class = {"force", call_force}, pullback_class = {"pullback", call_pullback},
                              pushforward_class = {"pushforward", call_pushforward};
static const bare force = {{&force_class}}, pullback = {{&pullback_class}}, pushforward = {{&pushforward_class}};

/* A cell whose gradients are changed: those of its output doubled, of its input clipped, of kernels replaced by their
 * signs. */
static tow_value doubled(tow_trace *t, size_t index, tow_value cotangent, const void *user)
{
    (void)t, (void)user;
    return index == 0 ? tow_mul_scalar(cotangent, 2) : cotangent;
}
static tow_value changed_gradient(tow_trace *t, const char *parameter, size_t index, tow_value gradient,
                                  const void *user)
{
    (void)index, (void)user;
    if (parameter) return strcmp(parameter, "cell/dense/kernel") == 0 ? tow_sign(gradient) : gradient;
    return tow_clip(gradient, tow_scalar(t, TOW_F32, -0.5), tow_scalar(t, TOW_F32, 0.5));
}
static void call_changed(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    const tow_custom_vjp_layer changes =
        TOW_CUSTOM_VJP(&plain_cell, .cotangent = doubled, .gradient = changed_gradient);
    (void)module, (void)n_in;
    tow__call_here(s, TOW_MODULE(&changes), 1, in, 1, out);
    if (n_out > 1) out[1] = tow_mul_scalar(out[0], 2);
    tow_value key = tow_make_rng(s, "noise");
    if (n_out > 2) out[2] = key;
}
static const tow_module_class changed_class = {"changed", call_changed};
static const bare changed = {{&changed_class}};

static bool with_case(const char *name, lift_run *r)
{
    const tow_type x3 = TYPE(TOW_F32, 3, 2, 4);
    const tow_remat remat = TOW_REMAT(&force);
    const tow_scan forces = TOW_SCAN(&force, .length = 2, FLAX), pullbacks = TOW_SCAN(&pullback, .length = 2, FLAX);
    const tow_vmap_layer pushes = TOW_VMAP(&pushforward, FLAX), many = TOW_VMAP(&force, FLAX),
                         changes = TOW_VMAP(&changed, FLAX);
    const struct {
        const char *name;
        const tow_module *layer;
        const tow_type *x;
    } cases[] = {{"value_and_grad", TOW_MODULE(&force), &small},
                 {"vjp", TOW_MODULE(&pullback), &small},
                 {"jvp", TOW_MODULE(&pushforward), &small},
                 {"value_and_grad_remat", TOW_MODULE(&remat), &small},
                 {"value_and_grad_scan", TOW_MODULE(&forces), &small},
                 {"vjp_scan", TOW_MODULE(&pullbacks), &small},
                 {"custom_vjp", TOW_MODULE(&changed), &small},
                 {"custom_vjp_vmap", TOW_MODULE(&changes), &x3},
                 {"jvp_vmap", TOW_MODULE(&pushes), &x3},
                 {"value_and_grad_vmap", TOW_MODULE(&many), &x3}};
    free_lift_run(r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, name) != 0) continue;
        const stack model = {{&stack_class}, cases[i].layer};
        run_lifted(r, TOW_MODULE(&model), 1, cases[i].x, 3, NULL);
        return true;
    }
    return false;
}

static void test_golden(void **unused)
{
    (void)unused;
    compare_lifted(TOW_TEST_DATA "/oracle/golden/flax_derivative.txt", 98, with_case);
}

/* ---- inputs of several types, derivatives of derivatives --------------------------------------------------------- */

/* (a [2, 4], n i32 [], b f64 []) -> sum a^3 + n b^2 in f64, and n */
static void call_cubic(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in;
    tow_value cube = tow_reduce_sum(tow_mul(in[0], tow_mul(in[0], in[0])), 0, NULL);
    out[0] = tow_add(tow_convert(cube, TOW_F64), tow_mul(tow_convert(in[1], TOW_F64), tow_mul(in[2], in[2])));
    if (n_out > 1) out[1] = in[1];
    tow_sow(s, TOW_INTERMEDIATES, "cube", cube);
}
static const tow_module_class cubic_class = {"cubic", call_cubic};
static const bare cubic = {{&cubic_class}};

/* a, n, b -> the sum of d cubic / d a, which is 3 sum a^2 */
static void call_slopes(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const tow_value_and_grad_layer first = TOW_VALUE_AND_GRAD(&cubic);
    tow_value all[3];
    (void)module, (void)n_in, (void)n_out;
    tow__call_here(s, TOW_MODULE(&first), 3, in, 3, all);
    out[0] = tow_reduce_sum(all[1], 0, NULL);
}
static const tow_module_class slopes_class = {"slopes", call_slopes};
static const bare slopes = {{&slopes_class}};

static void test_several_inputs(void **unused)
{
    (void)unused;
    const tow_value_and_grad_layer first = TOW_VALUE_AND_GRAD(&cubic, .n_aux = 1), second = TOW_VALUE_AND_GRAD(&slopes);
    const tow_type types[] = {small, SCALAR(TOW_I32), SCALAR(TOW_F64)};
    tow_array *in[3] = {exact_fractions(ctx, small)}, *out[5];
    const float *a = tow_array_data(in[0]);
    OK(tow_array_from_data(ctx, types[1], (int32_t[]){3}, &in[1]));
    OK(tow_array_from_data(ctx, types[2], (double[]){0.5}, &in[2]));
    for (int twice = 0; twice < 2; twice++) {
        const tow_module *model = twice ? TOW_MODULE(&second) : TOW_MODULE(&first);
        tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = twice ? 3 : 4);
        tow_params *params;
        tow_graph *graph;
        OK(tow_model_init_with(ctx, model, 3, 3, types, &options, &params, NULL));
        options.mutable_collections = NAMES(TOW_INTERMEDIATES);
        OK(tow_model_forward_graph(model, params, 3, types, &options, &graph));
        assert_int_equal(tow_graph_output_count(graph), options.n_outputs + 1); /* sown once */
        OK(tow_evaluate(graph, in, out));
        const float *da = tow_array_data(out[options.n_outputs - 2]);
        for (int i = 0; i < 8; i++) assert_true(fabsf(da[i] - (twice ? 6 * a[i] : 3 * a[i] * a[i])) <= 1e-5f);
        const double db = *(double *)tow_array_data(out[options.n_outputs - 1]);
        assert_true(db == (twice ? 0 : 3));
        if (!twice) assert_int_equal(*(int32_t *)tow_array_data(out[1]), 3);
        for (size_t i = 0; i <= options.n_outputs; i++) tow_array_release(out[i]);
        tow_graph_release(graph);
        tow_params_free(params);
    }
    for (int i = 0; i < 3; i++) tow_array_release(in[i]);
}

/* ---- custom_vjp -------------------------------------------------------------------------------------------------- */

/* As loops, written out and recomputed: the same values and bits; and by themselves those without the functions. */
static void test_custom_stacks(void **unused)
{
    (void)unused;
    const tow_remat remat = TOW_REMAT(&changed);
    const tow_custom_vjp_layer nothing = TOW_CUSTOM_VJP(&plain_cell);
    const tow_scan scans[] = {TOW_SCAN(&changed, .length = 3), TOW_SCAN(&changed, .length = 3, .unrolled = true),
                              TOW_SCAN(&remat, .length = 3), TOW_SCAN(&nothing, .length = 3),
                              TOW_SCAN(&plain_cell, .length = 3)};
    lift_run runs[5];
    for (int i = 0; i < 5; i++) run_lifted(&runs[i], TOW_MODULE(&STACK(&scans[i])), 1, &small, 3, NULL);
    for (int i = 1; i < 5; i++) {
        const lift_run *a = &runs[i < 3 ? 0 : 3], *b = &runs[i];
        expect_same_list("parameters", a->params, b->params);
        expect_same_list("variables", a->state, b->state);
        assert_memory_equal(tow_array_data(a->outputs[0]), tow_array_data(b->outputs[0]), 32);
        assert_memory_equal(tow_array_data(a->in_grads[0]), tow_array_data(b->in_grads[0]), 32);
    }
    /* The kernel's gradient is its sign, in the loop as well. */
    const tow_array *kernels = array_at(runs[0].params, "stack/cell/dense/kernel", NULL);
    assert_non_null(kernels);
    int signs = 0;
    for (size_t i = 0; i < tow_params_count(runs[0].params); i++) {
        if (tow_params_array(runs[0].params, i) != kernels) continue;
        for (int k = 0; k < 48; k++, signs++) assert_true(fabs(array_element(runs[0].grads[i], k)) == 1);
    }
    assert_int_equal(signs, 48);
    for (int i = 0; i < 5; i++) free_lift_run(&runs[i]);
}

static tow_value as_null(tow_trace *t, const char *parameter, size_t index, tow_value gradient, const void *user)
{
    (void)t, (void)index;
    return parameter && strcmp(parameter, user) == 0 ? gradient : (tow_value){0};
}

/* The null value stands for zeros: one parameter alone learns. */
static void test_custom_null(void **unused)
{
    (void)unused;
    const tow_custom_vjp_layer one = TOW_CUSTOM_VJP(&plain_cell, .gradient = as_null, .user = "cell/dense/bias");
    lift_run a, b;
    run_lifted(&a, TOW_MODULE(&STACK(&one)), 1, &small, 2, NULL);
    run_lifted(&b, TOW_MODULE(&STACK(&plain_cell)), 1, &small, 2, NULL);
    for (size_t i = 0; i < 2; i++) {
        const bool bias = strstr(tow_params_path(a.params, i), "bias");
        for (int64_t k = 0; k < (bias ? 4 : 16); k++)
            assert_true(array_element(a.grads[i], k) == (bias ? array_element(b.grads[i], k) : 0));
    }
    for (int k = 0; k < 8; k++) assert_true(array_element(a.in_grads[0], k) == 0);
    free_lift_run(&a);
    free_lift_run(&b);
}

static tow_value summed(tow_trace *t, size_t index, tow_value cotangent, const void *user)
{
    (void)t, (void)index, (void)user;
    return tow_reduce_sum(cotangent, 0, NULL);
}
static tow_value widened(tow_trace *t, const char *parameter, size_t index, tow_value gradient, const void *user)
{
    (void)t, (void)parameter, (void)index, (void)user;
    return tow_convert(gradient, TOW_F64);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static tow_status trace(tow_context *c, const tow_module *layer, size_t n_in, const tow_type *types, size_t n_out)
{
    const stack model = {{&stack_class}, layer};
    tow_params *params = NULL, *state = NULL;
    tow_graph *graph = NULL;
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = n_out, .streams = NAMES("noise"));
    tow_status status = tow_model_init_with(c, TOW_MODULE(&model), 3, n_in, types, &options, &params, &state);
    const bool has_state = !status && tow_params_count(state) > 0;
    options.state = state;
    options.mutable_collections = has_state ? NAMES(TOW_EVERY_COLLECTION) : NULL;
    if (!status) status = tow_model_forward_graph(TOW_MODULE(&model), params, n_in, types, &options, &graph);
    tow_params_free(params);
    tow_params_free(state);
    tow_graph_release(graph);
    return status;
}
#define TRACE(layer, n_out, ...)                                                                                       \
    trace(ctx, TOW_MODULE(&layer), sizeof((tow_type[]){__VA_ARGS__}) / sizeof(tow_type), (tow_type[]){__VA_ARGS__},    \
          n_out)

static void call_endless(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    const tow_while loop =
        TOW_WHILE(.condition = CONDITION(BY_NUMBER), .body = BODY(BY_NUMBER, .plain = true), .n_carry = 4);
    call_looper(s, TOW_MODULE(&LOOPER(&loop)), n_in, in, n_out, out);
    (void)module;
    out[0] = tow_reduce_sum(out[0], 0, NULL);
}
static const tow_module_class endless_class = {"endless", call_endless};
static const bare endless = {{&endless_class}};

static void test_errors(void **unused)
{
    (void)unused;
    const tow_dense dense = TOW_DENSE(.features = 3);
    const tow_embed embed = TOW_EMBED(.num_embeddings = 3, .features = 2);
    const tow_value_and_grad_layer gradient = TOW_VALUE_AND_GRAD(&energy, .n_aux = 2),
                                   matrix = TOW_VALUE_AND_GRAD(&dense), of_loop = TOW_VALUE_AND_GRAD(&endless),
                                   whole = TOW_VALUE_AND_GRAD(&embed),
                                   silent = TOW_VALUE_AND_GRAD(&energy, .streams = TOW_RULES({"noise", TOW_HIDDEN})),
                                   unmatched = TOW_VALUE_AND_GRAD(&energy, .n_aux = 2,
                                                                  .variables = TOW_RULES({"parms", TOW_STACKED})),
                                   endless_aux = TOW_VALUE_AND_GRAD(&energy, .n_aux = SIZE_MAX),
                                   none = {
                                       .module = {&tow_value_and_grad_layer_class, sizeof(tow_value_and_grad_layer)}};
    const tow_vjp_layer pull = TOW_VJP(&dense), pull_none = TOW_VJP(&embed);
    const tow_jvp_layer push = TOW_JVP(&dense);
    const tow_type row = TYPE(TOW_F32, 2, 3), number = TYPE(TOW_I32, 2);
    OK(TRACE(gradient, 4, small));
    OK(TRACE(pull, 2, small, row));
    OK(TRACE(push, 2, small, small));
    expect_error(TRACE(gradient, 3, small), TOW_INVALID_ARGUMENT, "stack: value_and_grad: expected 1 inputs",
                 "4 outputs", "found 1 and 3");
    expect_error(TRACE(endless_aux, 4, small), TOW_INVALID_ARGUMENT, "stack: value_and_grad: .n_aux is ",
                 "found 4 outputs");
    expect_error(TRACE(matrix, 2, small), TOW_SHAPE_MISMATCH,
                 "output 0 of Dense: expected a float scalar, found f32[2,3]", "tow_reduce_sum");
    expect_error(TRACE(whole, 2, number), TOW_INVALID_ARGUMENT, "no input of Embed is a float");
    expect_error(TRACE(pull_none, 2, number, row), TOW_INVALID_ARGUMENT, "vjp: no input of Embed is a float");
    expect_error(TRACE(of_loop, 2, small), TOW_UNSUPPORTED, "stack: while: reverse mode does not work",
                 "max_iterations");
    expect_error(TRACE(silent, 2, small), TOW_NOT_FOUND, "\"noise\"", "TOW_HIDDEN");
    expect_error(TRACE(unmatched, 4, small), TOW_NOT_FOUND, "value_and_grad: .variables: \"parms\" matches no");
    expect_error(TRACE(none, 2, small), TOW_INVALID_ARGUMENT, "expected a layer, found NULL");
    expect_error(TRACE(pull, 2, small), TOW_INVALID_ARGUMENT, "vjp: expected 2 inputs", "2 outputs", "found 1 and 2");
    expect_error(TRACE(pull, 1, small, row), TOW_INVALID_ARGUMENT, "vjp: expected 2 inputs", "found 2 and 1");
    expect_error(TRACE(pull, 2, small, small), TOW_TYPE_MISMATCH, "vjp: cotangent 0: expected f32[2,3]", "its output",
                 "found f32[2,4]");
    const tow_custom_vjp_layer sums = TOW_CUSTOM_VJP(&dense, .cotangent = summed),
                               widens = TOW_CUSTOM_VJP(&dense, .gradient = widened),
                               no_layer = {.module = {&tow_custom_vjp_layer_class, sizeof(tow_custom_vjp_layer)}},
                               whole_numbers =
                                   TOW_CUSTOM_VJP(&embed, .cotangent = doubled, .gradient = changed_gradient),
                               hides = TOW_CUSTOM_VJP(&plain_cell, .streams = TOW_RULES({"noise", TOW_HIDDEN}));
    OK(TRACE(whole_numbers, 1, number));
    expect_error(TRACE(sums, 1, small), TOW_TYPE_MISMATCH, "custom_vjp: the cotangent of output 0: expected f32[2,3]",
                 "found f32[]");
    expect_error(TRACE(widens, 1, small), TOW_TYPE_MISMATCH, "custom_vjp: the gradient of input 0: expected f32[2,4]",
                 "found f64[2,4]");
    expect_error(TRACE(hides, 3, small), TOW_NOT_FOUND, "\"noise\"", "TOW_HIDDEN");
    expect_error(TRACE(no_layer, 1, small), TOW_INVALID_ARGUMENT, "expected a layer, found NULL");
    expect_error(TRACE(push, 2, small), TOW_INVALID_ARGUMENT, "jvp: expected 2 inputs", "found 1 and 2");
    expect_error(TRACE(push, 2, small, row), TOW_TYPE_MISMATCH, "jvp: tangent 0: expected f32[2,4]", "its input",
                 "found f32[2,3]");
}

static tow_status use_derivatives(tow_context *c)
{
    const tow_vjp_layer pull = TOW_VJP(&plain_cell, .n_outputs = 3, .variables = TOW_RULES({"params", TOW_STACKED}));
    const tow_jvp_layer push = TOW_JVP(&plain_cell, .n_outputs = 3);
    tow_status status = trace(c, TOW_MODULE(&force), 1, &small, 3);
    if (!status) status = trace(c, TOW_MODULE(&pull), 3, (tow_type[]){small, small, small}, 4);
    if (!status) status = trace(c, TOW_MODULE(&changed), 1, &small, 3);
    if (!status) status = trace(c, TOW_MODULE(&push), 2, (tow_type[]){small, small}, 5);
    return status;
}

static void test_failing_allocations(void **unused)
{
    (void)unused;
    fail_in_turn(use_derivatives);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),        cmocka_unit_test(test_several_inputs),
        cmocka_unit_test(test_custom_stacks), cmocka_unit_test(test_custom_null),
        cmocka_unit_test(test_errors),        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

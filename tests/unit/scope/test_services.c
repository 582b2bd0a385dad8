/* Tests what layers do inside of themselves: calls in their own scope, sums that are sown, perturbations, derivatives
 * with respect to parameters, captured methods; against Flax (tests/oracle/flax_services.py).
 * Tests scope.c, sow.c, transforms/derivative.c, transforms/method.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/elements.h"
#include "tests/unit/support/running_layer.h"
#include "tests/unit/support/shape_text.h"

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- the models of the oracle ------------------------------------------------------------------------------------ */

typedef struct plain {
    tow_module module;
    bool chosen;
} plain;

static tow_value tanh_of_dense(tow_scope *s, tow_value x)
{
    const tow_dense dense = TOW_DENSE(.features = 4, .bias_init = tow_initializer_normal(0.5));
    return tow_tanh(tow_apply(s, "dense", &dense, x));
}

static tow_value deep_branch(tow_scope *s, tow_value x)
{
    const tow_dense dense = TOW_DENSE(.features = 4, .bias_init = tow_initializer_normal(0.5));
    return tow_tanh(tow_apply(s, "deep", &dense, x));
}
static tow_value flat_branch(tow_scope *s, tow_value x)
{
    const tow_dense dense = TOW_DENSE(.features = 4);
    return tow_apply(s, "flat", &dense, x);
}
static void below_three(tow_scope *s, size_t n_in, const tow_value *in, size_t n_out, tow_value *out, const void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = tow_lt(in[0], tow_scalar(tow_scope_trace(s), TOW_I32, 3));
}
static void one_step(tow_scope *s, size_t n_in, const tow_value *in, size_t n_out, tow_value *out, const void *user)
{
    (void)n_in, (void)n_out, (void)user;
    const tow_dense dense = TOW_DENSE(.features = 4);
    out[0] = tow_add(in[0], tow_full_like(in[0], 1));
    out[1] = tow_tanh(tow_apply(s, "step", &dense, in[1]));
}

static void call_choice(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)n_in, (void)n_out;
    tow_trace *t = tow_scope_trace(s);
    const bool chosen = ((const plain *)module)->chosen;
    const tow_function_layer deep = TOW_FUNCTION(deep_branch), flat = TOW_FUNCTION(flat_branch),
                             less = TOW_FUNCTION_N(below_three, NULL), step = TOW_FUNCTION_N(one_step, NULL);
    const tow_cond cond = TOW_COND(.yes = TOW_MODULE(&deep), .no = TOW_MODULE(&flat));
    const tow_switch either = TOW_SWITCH(.branches = TOW_LAYERS(TOW_MODULE(&flat), TOW_MODULE(&deep)));
    const tow_while loop = TOW_WHILE(.condition = TOW_MODULE(&less), .body = TOW_MODULE(&step), .n_carry = 2);
    tow_value y, z, ends[2];
    tow_apply_here_n(s, &cond, 2, ((tow_value[]){tow_scalar(t, TOW_BOOL, chosen), in[0]}), 1, &y);
    tow_apply_here_n(s, &either, 2, ((tow_value[]){tow_scalar(t, TOW_I32, chosen), in[0]}), 1, &z);
    tow_apply_here_n(s, &loop, 2, ((tow_value[]){tow_scalar(t, TOW_I32, 0), tow_add(y, z)}), 2, ends);
    out[0] = ends[1];
}

static tow_value half_sum(tow_value before, tow_value value) { return tow_add(before, tow_mul_scalar(value, 0.5)); }
static tow_value larger(tow_value before, tow_value value) { return tow_max(before, value); }
static tow_value add_loss(tow_scope *s, tow_value h)
{
    tow_sow_with(s, "losses", "square", tow_reduce_sum(tow_mul(h, h), 0, NULL), 1, half_sum);
    const tow_dense dense = TOW_DENSE(.features = 4);
    return tow_tanh(tow_apply(s, "dense", &dense, h));
}
static void call_losses(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    const tow_function_layer add = TOW_FUNCTION(add_loss);
    const tow_remat remat = TOW_REMAT(&add);
    out[0] = tow_apply_here(s, &remat, add_loss(s, in[0]));
    tow_sow_with(s, "losses", "largest", tow_reduce_max(out[0], 0, NULL), -1, larger);
    tow_sow_with(s, "losses", "largest", tow_reduce_max(in[0], 0, NULL), -1, larger);
}

static void call_perturbed(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                           tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    const tow_dense first = TOW_DENSE(.features = 3), second = TOW_DENSE(.features = 2);
    tow_value h = tow_perturb(s, "hidden", tow_apply(s, "first", &first, in[0]));
    out[0] = tow_perturb(s, "result", tow_apply(s, "second", &second, tow_tanh(h)));
}

static tow_value energy_of(tow_scope *s, tow_value x)
{
    tow_value y = tanh_of_dense(s, x);
    return tow_reduce_sum(tow_mul(y, y), 0, NULL);
}
static const tow_function_layer *inner_layer(void)
{
    static const tow_function_layer inner = TOW_FUNCTION(tanh_of_dense);
    return &inner;
}

/* Initializing, the derivatives of the oracle's models call the inner layer alone; here, the derivative asks for the
 * same. */
static void call_pullback(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    const tow_vjp_layer vjp = TOW_VJP(inner_layer(), .wrt = NAMES("dense/kernel", "dense/bias"));
    tow_array *weights = exact_fractions(ctx, tow_value_type(in[0]));
    tow_apply_n(s, "inner", &vjp, 2, ((tow_value[]){in[0], tow_constant(tow_scope_trace(s), weights)}), 4, out);
    tow_array_release(weights);
}
static void call_energy(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    const tow_function_layer energy = TOW_FUNCTION(energy_of);
    const tow_value_and_grad_layer grad = TOW_VALUE_AND_GRAD(&energy, .wrt = NAMES("dense/bias", "dense/kernel"));
    tow_apply_n(s, "inner", &grad, 1, in, 4, out);
}
static void call_pushforward(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                             tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    const tow_jvp_layer jvp = TOW_JVP(inner_layer(), .wrt = NAMES("dense/kernel"));
    tow_array *tangent = exact_fractions(ctx, TYPE(TOW_F32, 4, 4));
    const tow_value all[] = {in[0], tow_mul_scalar(in[0], 0.5), tow_constant(tow_scope_trace(s), tangent)};
    tow_apply_n(s, "inner", &jvp, 3, all, 2, out);
    tow_array_release(tangent);
}

static void call_encode(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    const tow_dense dense = TOW_DENSE(.features = 4);
    out[0] = tow_tanh(tow_apply(s, "dense", &dense, in[0]));
}
static void call_coder(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)n_in, (void)n_out;
    const tow_method encode = {
        .module = {&tow_method_class, sizeof(tow_method)}, .inner = module, .function = call_encode, .name = "encode"};
    out[0] = tow_add(tow_apply_here(s, &encode, in[0]), in[0]);
}
static const tow_module_class coder_class = {"coder", call_coder};
static void call_outer(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    const plain coder = {{&coder_class}, false};
    const tow_method encode = TOW_METHOD(&coder, .function = call_encode, .name = "encode");
    out[0] = tow_apply(s, "coder", &encode, tow_apply(s, "coder", &coder, in[0]));
}

static const tow_module_class choice_class = {"choice", call_choice}, losses_class = {"losses", call_losses},
                              perturbed_class = {"perturbed", call_perturbed},
                              pullback_class = {"pullback", call_pullback}, energy_class = {"energy", call_energy},
                              pushforward_class = {"pushforward", call_pushforward},
                              outer_class = {"outer", call_outer};
static const struct {
    const char *name;
    plain model;
    size_t n_outputs;
    bool differentiated; /* by its parameters */
    const char *sown, *captured;
} cases[] = {
    {"deep", {{&choice_class}, true}, 1, false, NULL, NULL},
    {"flat", {{&choice_class}, false}, 1, false, NULL, NULL},
    {"vjp", {{&pullback_class}, false}, 4, true, NULL, NULL},
    {"value_and_grad", {{&energy_class}, false}, 4, true, NULL, NULL},
    {"jvp", {{&pushforward_class}, false}, 2, true, NULL, NULL},
    {"sow", {{&losses_class}, false}, 1, false, "losses", NULL},
    {"perturb", {{&perturbed_class}, false}, 1, false, NULL, NULL},
    {"perturb_absent", {{&perturbed_class}, false}, 1, false, NULL, NULL},
    {"capture", {{&outer_class}, false}, 1, false, NULL, "coder:encode"},
};

/* ---- running ----------------------------------------------------------------------------------------------------- */

enum {
    MOST = 32
};
/* The results of a case, by the names of the golden file. */
typedef struct results {
    tow_params *params, *state;
    size_t n;
    char names[MOST][96];
    tow_array *arrays[MOST];
} results;

static void free_results(results *r)
{
    tow_params_free(r->params);
    tow_params_free(r->state);
    for (size_t i = 0; i < r->n; i++) tow_array_release(r->arrays[i]);
    *r = (results){0};
}

static void add_result(results *r, const char *prefix, const char *path, tow_array *array)
{
    assert_true(r->n < MOST);
    snprintf(r->names[r->n], sizeof r->names[0], "%s%s", prefix, path);
    r->arrays[r->n++] = array;
}

static void loss_of_all(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss, tow_value *aux,
                        void *user)
{
    (void)extra;
    for (size_t i = 0; i < *(const size_t *)user; i++) {
        tow_array *weights = exact_fractions(ctx, tow_value_type(outputs[i]));
        tow_value sum = tow_reduce_sum(tow_mul(outputs[i], tow_constant(t, weights)), 0, NULL);
        *loss = i ? tow_add(*loss, sum) : sum;
        aux[i] = outputs[i];
        tow_array_release(weights);
    }
}

static void run_case(size_t k, results *r)
{
    const tow_module *model = &cases[k].model.module;
    const tow_type x = TYPE(TOW_F32, 2, 4);
    size_t n_out = cases[k].n_outputs;
    const bool perturbed = strcmp(cases[k].name, "perturb") == 0;
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = n_out);
    tow_params *updates = NULL;
    tow_graph *graph, *gradient;
    OK(tow_model_init_with(ctx, model, 5, 1, &x, &options, &r->params, &r->state));
    if (perturbed) {
        options.state = r->state;
        for (size_t i = 0; i < tow_params_count(r->state); i++)
            for (int64_t e = 0; e < tow_type_element_count(tow_array_type(tow_params_array(r->state, i))); e++)
                set_array_element(tow_params_array(r->state, i), e, 0.25);
    }
    const char *const sown[] = {cases[k].sown, NULL}, *const captured[] = {cases[k].captured, NULL};
    if (cases[k].sown) options.mutable_collections = sown;
    if (cases[k].captured) options.capture = captured;
    options.updates = &updates;
    const bool whole = cases[k].differentiated || perturbed;
    if (whole)
        OK(tow_model_loss_graph(model, r->params, 1, &x, 0, NULL, loss_of_all, &n_out, n_out, &options, &graph));
    else
        OK(tow_model_forward_graph(model, r->params, 1, &x, &options, &graph));
    OK(tow_graph_check(graph));
    size_t wrt[MOST], n_wrt = 0;
    const size_t n_params = tow_params_count(r->params), n_state = perturbed ? tow_params_count(r->state) : 0;
    for (size_t i = 0; i < n_params + n_state; i++)
        if (whole && (perturbed ? i >= n_params : true)) wrt[n_wrt++] = i;
    if (whole)
        OK(tow_value_and_grad(graph, n_wrt, wrt, true, &gradient));
    else
        gradient = tow_graph_retain(graph);
    tow_array *in[MOST], *out[MOST];
    size_t n = 0;
    for (size_t i = 0; i < n_params; i++) in[n++] = tow_params_array(r->params, i);
    for (size_t i = 0; i < n_state; i++) in[n++] = tow_params_array(r->state, i);
    in[n] = exact_fractions(ctx, x);
    OK(tow_evaluate(gradient, in, out));
    tow_array_release(in[n]);
    for (size_t i = 0; i < n_params; i++)
        add_result(r, "param/", tow_params_path(r->params, i), tow_array_retain(tow_params_array(r->params, i)));
    char number[24];
    for (size_t i = 0; i < n_out; i++) {
        snprintf(number, sizeof number, "%zu", i);
        add_result(r, "output/", number, out[whole + i]);
    }
    if (whole) tow_array_release(out[0]);
    const size_t n_updates = tow_params_count(updates);
    for (size_t i = 0; i < n_updates; i++) add_result(r, "", tow_params_path(updates, i), out[whole + n_out + i]);
    for (size_t i = 0; i < n_wrt; i++)
        add_result(r, perturbed ? "" : "grad/",
                   wrt[i] < n_params ? tow_params_path(r->params, wrt[i])
                                     : tow_params_path(r->state, wrt[i] - n_params),
                   out[1 + n_out + n_updates + i]);
    tow_params_free(updates);
    tow_graph_release(gradient);
    tow_graph_release(graph);
}

/* Sums of at most 16 products of numbers up to 2 agree to 1e-5 of the largest. */
static void test_golden(void **unused)
{
    (void)unused;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/flax_services.txt", "r");
    assert_non_null(file);
    char name[64], what[128], shape[128], found[128], last[64] = "";
    results r = {0};
    int lines = 0;
    while (fscanf(file, "%63s %127s %127s", name, what, shape) == 3) {
        if (strcmp(name, last) != 0) {
            size_t k = 0;
            while (strcmp(cases[k].name, name) != 0) assert_true(++k < sizeof cases / sizeof *cases);
            free_results(&r);
            run_case(k, &r);
            strcpy(last, name);
        }
        size_t i = 0;
        while (i < r.n && strcmp(r.names[i], what) != 0) i++;
        if (i == r.n) fail_msg("%s: nothing is called %s", name, what);
        if (strcmp(shape_text(tow_array_type(r.arrays[i]), found), shape) != 0)
            fail_msg("%s %s: expected the shape %s, found %s", name, what, shape, found);
        double largest = 1, error = 0;
        for (int64_t e = 0; e < tow_type_element_count(tow_array_type(r.arrays[i])); e++) {
            double expected;
            assert_int_equal(fscanf(file, "%lf", &expected), 1);
            const double difference = fabs(expected - array_element(r.arrays[i], e));
            largest = fmax(largest, fabs(expected));
            if (!(difference <= error)) error = difference;
        }
        if (!(error <= 1e-5 * largest)) fail_msg("%s %s: off by %g of %g", name, what, error, largest);
        lines++;
    }
    assert_true(feof(file) && lines > 40);
    fclose(file);
    free_results(&r);
}

/* ---- sums in choices and loops ----------------------------------------------------------------------------------- */

static void sow_number(tow_scope *s, const char *name, double number, double initial)
{
    tow_sow_with(s, "losses", name, tow_scalar(tow_scope_trace(s), TOW_F32, number), initial, half_sum);
}
static tow_value sow_more(tow_scope *s, tow_value x)
{
    sow_number(s, "both", 4, 1);
    sow_number(s, "one", 4, 10);
    return x;
}
static tow_value sow_nothing(tow_scope *s, tow_value x)
{
    (void)s;
    return x;
}
static void call_maybe(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)n_in, (void)n_out;
    const tow_function_layer more = TOW_FUNCTION(sow_more), nothing = TOW_FUNCTION(sow_nothing);
    const tow_cond cond = TOW_COND(.yes = TOW_MODULE(&more), .no = TOW_MODULE(&nothing));
    const tow_scan scan = TOW_SCAN(&more, .length = 3);
    const tow_value yes = tow_scalar(tow_scope_trace(s), TOW_BOOL, ((const plain *)module)->chosen);
    sow_number(s, "both", 2, 1); /* 1 + 2 / 2 */
    tow_apply_here_n(s, &cond, 2, ((tow_value[]){yes, in[0]}), 1, out);
    sow_number(s, "both", 6, 1);
    out[0] = tow_apply(s, "scan", &scan, out[0]);
}
static const tow_module_class maybe_class = {"maybe", call_maybe};

/* A branch that is not taken leaves a reduced value as it was; each iteration of a scan has its own. */
static void test_reductions(void **unused)
{
    (void)unused;
    for (int chosen = 0; chosen < 2; chosen++) {
        const plain model = {{&maybe_class}, chosen};
        const tow_type x = TYPE(TOW_F32, 2, 4);
        tow_params *params, *state, *updates;
        tow_graph *graph;
        tow_array *in = exact_fractions(ctx, x), *out[8];
        OK(tow_model_init_with(ctx, &model.module, 5, 1, &x, NULL, &params, &state));
        const tow_model_options options =
            TOW_MODEL_OPTIONS(.mutable_collections = NAMES("losses"), .updates = &updates);
        OK(tow_model_forward_graph(&model.module, params, 1, &x, &options, &graph));
        OK(tow_evaluate(graph, &in, out));
        const struct {
            const char *path;
            int64_t n;
            double expected;
        } rows[] = {{"losses/both", 1, chosen ? 7 : 5},
                    {"losses/one", 1, chosen ? 12 : 10},
                    {"losses/scan/{}/both", 3, 3},
                    {"losses/scan/{}/one", 3, 12}};
        assert_int_equal(tow_params_count(updates), 4);
        for (size_t i = 0; i < 4; i++) {
            size_t at = 0;
            while (at < 4 && strcmp(tow_params_path(updates, at), rows[i].path) != 0) at++;
            if (at == 4) fail_msg("nothing is called %s", rows[i].path);
            assert_int_equal(tow_type_element_count(tow_array_type(out[1 + at])), rows[i].n);
            for (int64_t e = 0; e < rows[i].n; e++)
                if (array_element(out[1 + at], e) != rows[i].expected)
                    fail_msg("%d %s: expected %g, found %g", chosen, rows[i].path, rows[i].expected,
                             array_element(out[1 + at], e));
        }
        for (int i = 0; i < 5; i++) tow_array_release(out[i]);
        tow_array_release(in);
        tow_graph_release(graph);
        tow_params_free(updates);
        tow_params_free(params);
        tow_params_free(state);
    }
}

/* ---- mistakes ---------------------------------------------------------------------------------------------------- */

static tow_value to_i32(tow_value before, tow_value value)
{
    (void)before;
    return tow_convert(value, TOW_I32);
}
static void call_wrong(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)n_in, (void)n_out;
    out[0] = in[0];
    if (((const plain *)module)->chosen)
        tow_sow_with(s, "losses", "square", in[0], 0, to_i32);
    else
        tow_sow_with(s, "losses", "square", in[0], 0, NULL);
}
static const tow_module_class wrong_class = {"wrong", call_wrong};

static tow_status forward_of(const tow_module *model, const tow_model_options *options)
{
    const tow_type x = TYPE(TOW_F32, 2, 4);
    tow_params *params, *state;
    tow_graph *graph = NULL;
    tow_status status = tow_model_init_with(ctx, model, 5, 1, &x, NULL, &params, &state);
    if (!status) status = tow_model_forward_graph(model, params, 1, &x, options, &graph);
    tow_graph_release(graph);
    tow_params_free(params);
    tow_params_free(state);
    return status;
}

static void test_mistakes(void **unused)
{
    (void)unused;
    const tow_model_options losses = TOW_MODEL_OPTIONS(.mutable_collections = NAMES("losses"));
    const plain types = {{&wrong_class}, true}, no_function = {{&wrong_class}, false};
    expect_error(forward_of(&types.module, &losses), TOW_TYPE_MISMATCH, "losses/square: its reduction gives i32[2,4]");
    expect_error(forward_of(&no_function.module, &losses), TOW_INVALID_ARGUMENT, "a function that reduces");
    const tow_model_options misspelled = TOW_MODEL_OPTIONS(.capture = NAMES("coder:decode"));
    expect_error(forward_of(&cases[8].model.module, &misspelled), TOW_NOT_FOUND, "\"coder:decode\" matches");
    const tow_function_layer energy = TOW_FUNCTION(energy_of);
    const tow_value_and_grad_layer wrong = TOW_VALUE_AND_GRAD(&energy, .wrt = NAMES("dense/kernle")),
                                   twice = TOW_VALUE_AND_GRAD(&energy, .wrt = NAMES("dense/bias", "dense/bias"));
    const tow_model_options three = TOW_MODEL_OPTIONS(.n_outputs = 3), four = TOW_MODEL_OPTIONS(.n_outputs = 4);
    const tow_type x = TYPE(TOW_F32, 2, 4);
    tow_params *params, *state;
    expect_error(tow_model_init_with(ctx, &wrong.module, 5, 1, &x, &three, &params, &state), TOW_NOT_FOUND,
                 "value_and_grad: .wrt: \"dense/kernle\" is no parameter of Function");
    expect_error(tow_model_init_with(ctx, &twice.module, 5, 1, &x, &four, &params, &state), TOW_INVALID_ARGUMENT,
                 ".wrt names \"dense/bias\" twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_reductions),
                                       cmocka_unit_test(test_mistakes)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

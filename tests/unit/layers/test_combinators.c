/* Layers made of layers and functions against Flax (tests/oracle/flax_combinators.py), and the same bits in remat, scan
 * and vmap; names, several inputs and outputs, errors. Tests named.c, sequential.c, parallel.c, residual.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/shape_text.h"
#include "tow/tow.h"

#define TYPE(dtype, ...)                                                                                               \
    tow_make_type(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

/* ---- functions as layers ----------------------------------------------------------------------------------------- */

/* value(x gain) logistic(gate(x gain)) */
static tow_value gated_with(tow_scope *scope, tow_value x, const void *user)
{
    tow_type type = tow_value_type(x);
    tow_dense dense = TOW_DENSE(.features = *(const int64_t *)user);
    tow_value gain = tow_param(scope, "gain", 1, &type.dims[type.rank - 1], tow_initializer_normal(0.5));
    x = tow_mul(x, gain);
    tow_value value = tow_apply(scope, "value", &dense, x), gate = tow_apply(scope, "gate", &dense, x);
    return tow_mul(value, tow_logistic(gate));
}

static tow_value gated(tow_scope *scope, tow_value x)
{
    const int64_t four = 4;
    return gated_with(scope, x, &four);
}

/* inputs in reverse order */
static void reversed(tow_scope *scope, size_t n_in, const tow_value *in, size_t n_out, tow_value *out, const void *user)
{
    (void)user;
    if (n_in != n_out) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "reversed: expected as many outputs as inputs");
        return;
    }
    tow_value kept[8];
    memcpy(kept, in, n_in * sizeof *kept);
    for (size_t i = 0; i < n_in; i++) out[i] = kept[n_in - 1 - i];
}

/* a = Dense(first input): a^2 + b^2 and a - b */
static void two_to_two(tow_scope *scope, size_t n_in, const tow_value *in, size_t n_out, tow_value *out,
                       const void *user)
{
    tow_dense dense = TOW_DENSE(.features = 3);
    assert_true(user == NULL);
    if (n_in != 2 || n_out != 2) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "two_to_two: expected 2 inputs and 2 outputs");
        return;
    }
    tow_value a = tow_apply(scope, "a", &dense, in[0]), b = in[1];
    out[0] = tow_add(tow_square(a), tow_square(b));
    out[1] = tow_sub(a, b);
}

static tow_value nothing(tow_scope *scope, tow_value x)
{
    (void)scope, (void)x;
    return (tow_value){0};
}

/* a logistic(b) - c */
static tow_value combine(tow_scope *scope, size_t n, const tow_value *results, const void *user)
{
    (void)scope;
    assert_int_equal(n, 3);
    assert_string_equal(user, "user");
    return tow_sub(tow_mul(results[0], tow_logistic(results[1])), results[2]);
}

/* ---- the models of the golden file ------------------------------------------------------------------------------- */

typedef void (*case_use)(void *user, const char *name, const tow_module *model, tow_type input);

/* Calls use(user, ...) for the case of this name, or for every case (NULL). */
static bool with_case(const char *name, case_use use, void *user)
{
    bool found = false;
#define CASE(text, layer, ...)                                                                                         \
    if (!name || strcmp(name, text) == 0) {                                                                            \
        use(user, text, TOW_MODULE(&(layer)), TYPE(TOW_F32, __VA_ARGS__));                                             \
        found = true;                                                                                                  \
    }
    const int64_t four = 4;
    tow_dense two = TOW_DENSE(.features = 2), three = TOW_DENSE(.features = 3), dense4 = TOW_DENSE(.features = 4),
              five = TOW_DENSE(.features = 5), six = TOW_DENSE(.features = 6),
              gate = TOW_DENSE(.features = 4, .kernel_init = tow_initializer_normal(0.5));
    tow_activation_layer relu = TOW_ACTIVATION(tow_relu);
    tow_function_layer function = TOW_FUNCTION(gated), with = TOW_FUNCTION_WITH(gated_with, &four);
    CASE("sequential", TOW_SEQUENTIAL(TOW_MODULE(&six), TOW_MODULE(&relu), TOW_MODULE(&two)), 3, 5)
    tow_named in = TOW_NAMED("in", &six), middle = TOW_NAMED("layers_1", &six), out = TOW_NAMED("out", &with);
    tow_activation_layer first_relu = TOW_ACTIVATION(tow_relu);
    CASE("named",
         TOW_SEQUENTIAL(TOW_MODULE(&in), TOW_MODULE(&TOW_NAMED("relu", &first_relu)), TOW_MODULE(&middle),
                        TOW_MODULE(&out)),
         3, 5)
    CASE("function", function, 3, 5)
    tow_named f5 = TOW_NAMED("f", &five), f3 = TOW_NAMED("f", &three);
    CASE("residual", TOW_RESIDUAL(&f5, .projection = TOW_MODULE(&five), .scale = 0.5), 2, 4)
    CASE("residual_scale", TOW_RESIDUAL(&f3, .scale_init = tow_initializer_constant(0.1)), 2, 3)
    const tow_module *branches[] = {TOW_MODULE(&dense4), TOW_MODULE(&TOW_NAMED("gate", &gate)), TOW_MODULE(&function)};
    tow_parallel parallel = TOW_PARALLEL_OF(TOW_SUM, branches);
    CASE("parallel_sum", parallel, 2, 3)
    parallel.combine = TOW_MEAN;
    CASE("parallel_mean", parallel, 2, 3)
    parallel.combine = TOW_PRODUCT;
    CASE("parallel_product", parallel, 2, 3)
    parallel.combine = TOW_CONCATENATE;
    CASE("parallel_concatenate", parallel, 2, 3)
    parallel.axis = -2;
    CASE("parallel_concatenate_first", parallel, 2, 3)
    parallel.combine = TOW_STACK;
    CASE("parallel_stack", parallel, 2, 3)
    parallel.combine = TOW_COMBINED_BY;
    parallel.function = combine;
    parallel.user = "user";
    CASE("parallel_by", parallel, 2, 3)
    return found;
#undef CASE
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static float fraction(int64_t i) { return (float)((i * 7919) % 257 - 128) / 64; }

static tow_array *fractions(tow_type type)
{
    tow_array *array;
    OK(tow_array_create(ctx, type, &array));
    for (int64_t i = 0; i < tow_type_element_count(type); i++) ((float *)tow_array_data(array))[i] = fraction(i);
    return array;
}

/* sum(output * fractions), and the output */
static void weighted_sum(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                         tow_value *aux, void *user)
{
    (void)extra, (void)user;
    tow_array *weights = fractions(tow_value_type(outputs[0]));
    *loss = tow_reduce_sum(tow_mul(outputs[0], tow_constant(t, weights)), 0, NULL);
    aux[0] = outputs[0];
    tow_array_release(weights);
}

enum {
    MOST = 48
};
typedef struct results {
    tow_params *params;
    size_t n;
    tow_array *arrays[MOST]; /* loss, output, gradients of parameters and of the input */
} results;

static void compute(void *user, const char *name, const tow_module *model, tow_type type)
{
    results *r = user;
    (void)name;
    OK(tow_model_init(ctx, model, 3, 1, &type, &r->params));
    size_t n = tow_params_count(r->params), wrt[MOST];
    assert_true(n + 3 <= MOST);
    tow_graph *loss, *gradient;
    OK(tow_model_loss_graph(model, r->params, 1, &type, 0, NULL, weighted_sum, NULL, 1, NULL, &loss));
    for (size_t i = 0; i <= n; i++) wrt[i] = i;
    OK(tow_value_and_grad(loss, n + 1, wrt, true, &gradient));
    r->n = n + 3;
    tow_array *in[MOST];
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(r->params, i);
    in[n] = fractions(type);
    OK(tow_evaluate(gradient, in, r->arrays));
    tow_array_release(in[n]);
    tow_graph_release(loss);
    tow_graph_release(gradient);
}

static void release(results *r)
{
    for (size_t i = 0; i < r->n; i++) tow_array_release(r->arrays[i]);
    tow_params_free(r->params);
    *r = (results){0};
}

/* ---- against Flax ------------------------------------------------------------------------------------------------ */

static tow_array *result_called(const results *r, const char *what)
{
    if (strcmp(what, "output") == 0) return r->arrays[1];
    if (strcmp(what, "input") == 0) return r->arrays[r->n - 1];
    for (size_t i = 0; i < tow_params_count(r->params); i++) {
        if (strncmp(what, "param/", 6) == 0 && strcmp(tow_params_path(r->params, i), what + 6) == 0)
            return tow_params_array(r->params, i);
        if (strncmp(what, "grad/", 5) == 0 && strcmp(tow_params_path(r->params, i), what + 5) == 0)
            return r->arrays[2 + i];
    }
    fail_msg("nothing is called %s", what);
    return NULL;
}

/* Parameters have the names and bits of Flax; sums in other orders: 2e-5 of the largest element. */
static void test_golden(void **unused)
{
    (void)unused;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/flax_combinators.txt", "r");
    char name[64], what[128], shape[128], found[128], last[64] = "";
    int lines = 0;
    size_t wanted = 0;
    results r = {0};
    assert_non_null(file);
    for (; fscanf(file, "%63s %127s %127s", name, what, shape) == 3; lines++) {
        if (strcmp(name, last) != 0) {
            if (r.params) assert_int_equal(wanted, tow_params_count(r.params));
            release(&r);
            if (!with_case(name, compute, &r)) fail_msg("no case %s", name);
            strcpy(last, name);
            wanted = 0;
        }
        wanted += strncmp(what, "param/", 6) == 0;
        tow_array *array = result_called(&r, what);
        if (strcmp(shape_text(tow_array_type(array), found), shape) != 0)
            fail_msg("%s %s: expected the shape %s, found %s", name, what, shape, found);
        double largest = 1, error = 0, expected;
        for (int64_t i = 0; i < tow_type_element_count(tow_array_type(array)); i++) {
            assert_int_equal(fscanf(file, "%lf", &expected), 1);
            float x = ((float *)tow_array_data(array))[i];
            if (strncmp(what, "param/", 6) == 0 && x != (float)expected)
                fail_msg("%s %s[%d]: expected %.9g, found %.9g", name, what, (int)i, expected, (double)x);
            largest = fmax(largest, fabs(expected));
            if (!(fabs(expected - (double)x) <= error)) error = fabs(expected - (double)x);
        }
        if (!(error <= 2e-5 * largest))
            fail_msg("%s %s: differs by %g, largest element %g", name, what, error, largest);
    }
    assert_true(feof(file));
    fclose(file);
    assert_true(lines > 100);
    release(&r);
}

/* ---- the same bits under every wrapping -------------------------------------------------------------------------- */

static void check_remat(void *unused, const char *name, const tow_module *model, tow_type type)
{
    results plain = {0}, wrapped = {0};
    (void)unused;
    tow_remat remat = {.module = {&tow_remat_class, sizeof(tow_remat)}, .inner = model};
    compute(&plain, name, model, type);
    compute(&wrapped, name, TOW_MODULE(&remat), type);
    assert_int_equal(plain.n, wrapped.n);
    for (size_t i = 0; i < plain.n; i++)
        if (memcmp(tow_array_data(plain.arrays[i]), tow_array_data(wrapped.arrays[i]),
                   tow_type_bytes(tow_array_type(plain.arrays[i]))))
            fail_msg("%s in remat: result %zu has other bits", name, i);
    release(&plain);
    release(&wrapped);
}

static void check_vmap(void *unused, const char *name, const tow_module *model, tow_type type)
{
    tow_params *params;
    tow_graph *one, *rows;
    tow_array *in[MOST], *row[MOST], *out, *expected;
    int axes[MOST];
    (void)unused;
    OK(tow_model_init(ctx, model, 3, 1, &type, &params));
    size_t n = tow_params_count(params);
    for (size_t i = 0; i < n; i++) in[i] = row[i] = tow_params_array(params, i), axes[i] = TOW_NOT_MAPPED;
    axes[n] = 0;
    tow_type two = TYPE(TOW_F32, 2, type.dims[0], type.dims[1]);
    in[n] = fractions(two);
    OK(tow_model_forward_graph(model, params, 1, &type, NULL, &one));
    OK(tow_vmap(one, 2, axes, NULL, &rows));
    OK(tow_evaluate(rows, in, &out));
    for (int64_t i = 0; i < 2; i++) {
        tow_array *part;
        OK(tow_array_row(in[n], i, &row[n]));
        OK(tow_evaluate(one, row, &expected));
        OK(tow_array_row(out, i, &part));
        float *a = tow_array_data(part), *b = tow_array_data(expected);
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(expected)); k++)
            if (!(fabsf(a[k] - b[k]) <= 1e-5F * fmaxf(1, fabsf(b[k])))) fail_msg("%s in vmap: row %d", name, (int)i);
        tow_array_release(part);
        tow_array_release(expected);
        tow_array_release(row[n]);
    }
    tow_array_release(in[n]);
    tow_array_release(out);
    tow_graph_release(one);
    tow_graph_release(rows);
    tow_params_free(params);
}

static void test_wrapped(void **unused)
{
    (void)unused;
    assert_true(with_case(NULL, check_remat, NULL));
    assert_true(with_case(NULL, check_vmap, NULL));
}

/* A stack of residuals, whose names below an iteration are those of the unrolled stack. */
static void test_scan(void **unused)
{
    (void)unused;
    tow_layer_norm norm = TOW_LAYER_NORM();
    tow_mlp mlp = TOW_MLP(.features = {8, 4});
    tow_function_layer function = TOW_FUNCTION(gated);
    tow_remat remat = TOW_REMAT(&mlp);
    tow_sequential inside = TOW_SEQUENTIAL(TOW_MODULE(&TOW_NAMED("norm", &norm)), TOW_MODULE(&TOW_NAMED("mlp", &remat)),
                                           TOW_MODULE(&function));
    tow_residual_layer block = TOW_RESIDUAL(&inside, .scale = 0.5);
    tow_scan loop = TOW_SCAN(&block, .length = 3), unrolled = TOW_SCAN(&block, .length = 3, .unrolled = true);
    tow_named named = TOW_NAMED("blocks", &loop), apart = TOW_NAMED("blocks", &unrolled);
    results a = {0}, b = {0};
    compute(&a, "loop", TOW_MODULE(&named), TYPE(TOW_F32, 2, 4));
    compute(&b, "unrolled", TOW_MODULE(&apart), TYPE(TOW_F32, 2, 4));
    assert_memory_equal(tow_array_data(a.arrays[1]), tow_array_data(b.arrays[1]), 32);
    assert_memory_equal(tow_array_data(a.arrays[a.n - 1]), tow_array_data(b.arrays[b.n - 1]), 32);
    assert_non_null(tow_params_find(a.params, "blocks/{}/norm/scale"));
    assert_non_null(tow_params_find(a.params, "blocks/{}/mlp/Dense_1/kernel"));
    assert_non_null(tow_params_find(a.params, "blocks/{}/layers_2/gain"));
    assert_non_null(tow_params_find(b.params, "blocks/2/layers_2/gate/bias"));
    release(&a);
    release(&b);
}

/* ---- several inputs and outputs ---------------------------------------------------------------------------------- */

/* outputs of the model on two inputs [2, 3]; n_out of them */
static void run_two(const tow_module *model, size_t n_out, tow_array **out)
{
    tow_type types[] = {TYPE(TOW_F32, 2, 3), TYPE(TOW_F32, 2, 3)};
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = n_out);
    tow_params *params;
    tow_graph *graph;
    tow_array *in[MOST];
    OK(tow_model_init_with(ctx, model, 1, 2, types, &options, &params, NULL));
    OK(tow_model_forward_graph(model, params, 2, types, &options, &graph));
    size_t n = tow_params_count(params);
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(params, i);
    in[n] = fractions(types[0]);
    in[n + 1] = fractions(types[1]);
    for (int i = 0; i < 6; i++) ((float *)tow_array_data(in[n + 1]))[i] += 1;
    OK(tow_evaluate(graph, in, out));
    tow_array_release(in[n]);
    tow_array_release(in[n + 1]);
    tow_graph_release(graph);
    tow_params_free(params);
}

static void expect_values(tow_array *array, float (*expected)(float x))
{
    for (int64_t i = 0; i < 6; i++)
        if (((float *)tow_array_data(array))[i] != expected(fraction(i))) fail_msg("element %d", (int)i);
    tow_array_release(array);
}

static float itself(float x) { return x; }
static float one_more(float x) { return x + 1; }
static float sum_of_both(float x) { return x + (x + 1); }
static float skip_and_half(float x) { return x + 0.5F * (x + 1); }
static float positive_next(float x) { return x + 1 > 0 ? x + 1 : 0; }

static tow_value same(tow_scope *scope, tow_value x)
{
    (void)scope;
    return tow_add_scalar(x, 0);
}

static void test_several_values(void **unused)
{
    (void)unused;
    tow_array *out[2];
    tow_function_layer swap = TOW_FUNCTION_N(reversed, NULL), identity = TOW_FUNCTION(same),
                       both = TOW_FUNCTION_N(two_to_two, NULL);
    tow_activation_layer relu = TOW_ACTIVATION(tow_relu);
    run_two(TOW_MODULE(&swap), 2, out);
    expect_values(out[0], one_more);
    expect_values(out[1], itself);
    /* a residual gives what is behind its first output as it comes */
    tow_residual_layer residual = TOW_RESIDUAL(&swap, .scale = 0.5);
    run_two(TOW_MODULE(&residual), 2, out);
    expect_values(out[0], skip_and_half);
    expect_values(out[1], itself);
    /* branches with an input each, outputs apart, or added */
    tow_parallel apart = TOW_PARALLEL(TOW_APART, TOW_MODULE(&identity), TOW_MODULE(&relu));
    apart.own_inputs = true;
    run_two(TOW_MODULE(&apart), 2, out);
    expect_values(out[0], itself);
    expect_values(out[1], positive_next);
    tow_parallel sum = TOW_PARALLEL(TOW_SUM, TOW_MODULE(&identity), TOW_MODULE(&identity));
    sum.own_inputs = true;
    run_two(TOW_MODULE(&sum), 1, out);
    expect_values(out[0], sum_of_both);
    /* the first layer of a list gets all inputs, the last one gives all outputs */
    tow_sequential last = TOW_SEQUENTIAL(TOW_MODULE(&sum), TOW_MODULE(&TOW_NAMED("more", &identity)));
    run_two(TOW_MODULE(&last), 1, out);
    expect_values(out[0], sum_of_both);
    run_two(TOW_MODULE(&both), 2, out);
    tow_array_release(out[0]);
    tow_array_release(out[1]);
}

/* Types of bf16 and f32 meet: the sum is f32, as in JAX. */
static void test_promotion(void **unused)
{
    (void)unused;
    tow_dense half = TOW_DENSE(.features = 3, .dtype = TOW_BF16), full = TOW_DENSE(.features = 3);
    tow_residual_layer residual = TOW_RESIDUAL(&half);
    tow_parallel parallel = TOW_PARALLEL(TOW_CONCATENATE, TOW_MODULE(&half), TOW_MODULE(&full));
    const tow_module *models[] = {TOW_MODULE(&residual), TOW_MODULE(&parallel)};
    for (int i = 0; i < 2; i++) {
        results r = {0};
        compute(&r, "promotion", models[i], TYPE(TOW_F32, 2, 3));
        assert_int_equal(tow_array_type(r.arrays[1]).dtype, TOW_F32);
        release(&r);
    }
}

/* One layer twice under one name has one set of parameters. */
static void test_shared(void **unused)
{
    (void)unused;
    tow_dense dense = TOW_DENSE(.features = 3);
    tow_named tied = TOW_NAMED("tied", &dense);
    tow_sequential twice = TOW_SEQUENTIAL(TOW_MODULE(&tied), TOW_MODULE(&tied), TOW_MODULE(&dense));
    tow_type type = TYPE(TOW_F32, 2, 3);
    tow_params *params;
    OK(tow_model_init(ctx, TOW_MODULE(&twice), 1, 1, &type, &params));
    assert_int_equal(tow_params_count(params), 4);
    assert_string_equal(tow_params_path(params, 0), "tied/kernel");
    assert_string_equal(tow_params_path(params, 2), "layers_2/kernel");
    tow_params_free(params);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void expect_failure(const tow_module *model, tow_status status, const char *text)
{
    tow_type type = TYPE(TOW_F32, 2, 3);
    tow_params *params;
    tow_status found = tow_model_init(ctx, model, 1, 1, &type, &params);
    if (found != status || !strstr(tow_context_error(ctx), text))
        fail_msg("expected \"%s\", found %s: \"%s\"", text, tow_status_text(found), tow_context_error(ctx));
    assert_null(params);
}
#define FAILS(layer, status, text) expect_failure(TOW_MODULE(&(layer)), TOW_##status, text)

static void test_errors(void **unused)
{
    (void)unused;
    tow_dense three = TOW_DENSE(.features = 3), four = TOW_DENSE(.features = 4), bad = TOW_DENSE();
    tow_function_layer function = TOW_FUNCTION(nothing),
                       none = {.module = {&tow_function_class, sizeof(tow_function_layer)}},
                       two = TOW_FUNCTION(nothing), n = TOW_FUNCTION_N(two_to_two, NULL);
    two.function_n = two_to_two;
    FAILS(TOW_NAMED("a/b", &three), INVALID_ARGUMENT, "\"a/b\" cannot name a child: it has a '/'");
    FAILS(TOW_NAMED(NULL, &three), INVALID_ARGUMENT, "cannot name a child");
    FAILS(TOW_NAMED("head", &bad), INVALID_ARGUMENT, "head: Dense: .features = 0");
    FAILS(((tow_named){.module = {&tow_named_class, sizeof(tow_named)}, .name = "head"}), INVALID_ARGUMENT,
          "head: expected a layer, found NULL");
    FAILS(function, INVALID_ARGUMENT, "nothing returned the null value");
    FAILS(none, INVALID_ARGUMENT, "Function: expected one function, found 0");
    FAILS(two, INVALID_ARGUMENT, "Function: expected one function, found 2");
    FAILS(n, INVALID_ARGUMENT, "two_to_two: expected 2 inputs and 2 outputs");
    tow_named in_error = TOW_NAMED("broken", &function);
    FAILS(TOW_SEQUENTIAL(TOW_MODULE(&three), TOW_MODULE(&in_error)), INVALID_ARGUMENT, "broken: nothing returned");
    FAILS(((tow_sequential){.module = {&tow_sequential_class, sizeof(tow_sequential)}}), INVALID_ARGUMENT,
          "Sequential: no layers");
    FAILS(TOW_SEQUENTIAL(TOW_MODULE(&three), NULL), INVALID_ARGUMENT, "layers_1: expected a layer, found NULL");
    tow_named a = TOW_NAMED("a", &three), again = TOW_NAMED("a", &four), place = TOW_NAMED("layers_0", &four);
    FAILS(TOW_SEQUENTIAL(TOW_MODULE(&a), TOW_MODULE(&three), TOW_MODULE(&again)), INVALID_ARGUMENT,
          "layers 0 and 2 are both called \"a\"");
    FAILS(TOW_SEQUENTIAL(TOW_MODULE(&three), TOW_MODULE(&place)), INVALID_ARGUMENT,
          "layers 0 and 1 are both called \"layers_0\"");

    tow_parallel p = TOW_PARALLEL(TOW_SUM, TOW_MODULE(&three), TOW_MODULE(&four));
    FAILS(p, SHAPE_MISMATCH, "branches 0 and 1 cannot be added: f32[2,3] and f32[2,4]");
    p.combine = TOW_PRODUCT;
    FAILS(p, SHAPE_MISMATCH, "cannot be multiplied");
    p.combine = TOW_STACK;
    FAILS(p, SHAPE_MISMATCH, "cannot be stacked");
    p.combine = TOW_CONCATENATE;
    p.axis = -2;
    FAILS(p, SHAPE_MISMATCH, "cannot be concatenated");
    p.axis = 2;
    FAILS(p, INVALID_ARGUMENT, "Parallel: .axis = 2");
    p.axis = -3;
    FAILS(p, INVALID_ARGUMENT, "Parallel: .axis = -3");
    p.combine = (tow_combine)9;
    FAILS(p, INVALID_ARGUMENT, "Parallel: .combine = 9");
    p.combine = TOW_COMBINED_BY;
    FAILS(p, INVALID_ARGUMENT, "TOW_COMBINED_BY and .function go together");
    p.combine = TOW_APART;
    FAILS(p, INVALID_ARGUMENT, "Parallel: expected 2 outputs, found 1");
    p.combine = TOW_SUM;
    p.own_inputs = true;
    FAILS(p, INVALID_ARGUMENT, "an input for each of 2 branches, found 1");
    FAILS(((tow_parallel){.module = {&tow_parallel_class, sizeof(tow_parallel)}}), INVALID_ARGUMENT,
          "Parallel: no branches");

    FAILS(TOW_RESIDUAL(&four), SHAPE_MISMATCH, "the layer gives f32[2,4], which cannot be added to its input f32[2,3]");
    FAILS(TOW_RESIDUAL(&three, .projection = TOW_MODULE(&four)), SHAPE_MISMATCH,
          "cannot be added to the projection f32[2,4]");
    FAILS(TOW_RESIDUAL(&three, .projection = TOW_MODULE(&bad)), INVALID_ARGUMENT, "projection: Dense: .features = 0");
    FAILS(TOW_RESIDUAL(&three, .scale = (double)INFINITY), INVALID_ARGUMENT, "Residual: .scale = inf");
    FAILS(((tow_residual_layer){.module = {&tow_residual_layer_class, sizeof(tow_residual_layer)}}), INVALID_ARGUMENT,
          "expected a layer, found NULL");
}

static void test_failing_allocations(void **unused)
{
    (void)unused;
    for (long fail_at = 0;; fail_at++) {
        counting c;
        tow_context_options options = counting_options(&c, fail_at);
        tow_context *context = NULL;
        tow_params *params = NULL;
        tow_dense dense = TOW_DENSE(.features = 2);
        tow_function_layer function = TOW_FUNCTION(gated);
        tow_parallel parallel = TOW_PARALLEL(TOW_STACK, TOW_MODULE(&dense), TOW_MODULE(&TOW_NAMED("more", &dense)));
        tow_residual_layer residual =
            TOW_RESIDUAL(&dense, .projection = TOW_MODULE(&dense), .scale_init = tow_initializer_ones());
        tow_sequential model = TOW_SEQUENTIAL(TOW_MODULE(&residual), TOW_MODULE(&function), TOW_MODULE(&parallel));
        tow_type type = TYPE(TOW_F32, 2, 2);
        tow_status status = tow_context_create(&options, &context);
        if (!status) status = tow_model_init(context, TOW_MODULE(&model), 1, 1, &type, &params);
        assert_true(status == TOW_OK || status == TOW_OUT_OF_MEMORY);
        assert_true((status == TOW_OK) == (params != NULL));
        tow_params_free(params);
        tow_context_free(context);
        assert_int_equal(c.blocks, 0);
        if (status == TOW_OK) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),    cmocka_unit_test(test_wrapped),
        cmocka_unit_test(test_scan),      cmocka_unit_test(test_several_values),
        cmocka_unit_test(test_promotion), cmocka_unit_test(test_shared),
        cmocka_unit_test(test_errors),    cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

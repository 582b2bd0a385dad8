/* The graphs of a private step against the same thing done example by example: clipping, absent examples, what noise
 * adds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpsgd/graphs.h"

enum {
    N = 5,
    INPUTS = 7,
    CLASSES = 3,
    PARAMS = 4
};

static tow_context *context;

static void must(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "dpsgd test: %s: %s\n", what, context ? tow_context_error(context) : "no context");
    exit(1);
}

static tow_array *array(tow_type type)
{
    tow_array *result = NULL;
    must(tow_array_create(context, type, &result) == TOW_OK, "array");
    return result;
}

static float *numbers(tow_array *a) { return tow_array_data(a); }

static void cross_entropy(tow_trace *trace, const tow_value *outputs, const tow_value *labels, tow_value *loss,
                          tow_value *aux, void *user)
{
    (void)trace, (void)aux, (void)user;
    *loss = tow_softmax_cross_entropy(outputs[0], labels[0]);
}

/* Examples 0 to N - 1, whose gradients differ much in length. */
static void fill(int64_t i, float *image, int32_t *label)
{
    for (int64_t j = 0; j < INPUTS; j++) image[j] = (float)((i * INPUTS + j) * 7919 % 257 - 128) / 64 * (float)(i * i);
    *label = (int32_t)(i % CLASSES);
}

/* Adds the clipped gradient of example i to expected[PARAMS], and its loss. */
static void add_alone(tow_graph *gradient, tow_params *params, int64_t i, double clip, double **expected, double *loss)
{
    tow_array *inputs[PARAMS + 2], *outputs[PARAMS + 1];
    for (size_t p = 0; p < PARAMS; p++) inputs[p] = tow_params_array(params, p);
    inputs[PARAMS] = array(tow_graph_input_type(gradient, PARAMS));
    inputs[PARAMS + 1] = array(tow_graph_input_type(gradient, PARAMS + 1));
    fill(i, numbers(inputs[PARAMS]), tow_array_data(inputs[PARAMS + 1]));
    must(tow_evaluate(gradient, inputs, outputs) == TOW_OK, "gradient of one example");
    double square = 0;
    for (size_t p = 1; p <= PARAMS; p++)
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(outputs[p])); k++)
            square += (double)numbers(outputs[p])[k] * (double)numbers(outputs[p])[k];
    double factor = fmin(1, clip / sqrt(square));
    for (size_t p = 1; p <= PARAMS; p++)
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(outputs[p])); k++)
            expected[p - 1][k] += factor * (double)numbers(outputs[p])[k];
    *loss += (double)*numbers(outputs[0]);
    for (size_t p = 0; p <= PARAMS; p++) tow_array_release(outputs[p]);
    tow_array_release(inputs[PARAMS]);
    tow_array_release(inputs[PARAMS + 1]);
}

static void compare_sums(tow_graph *gradient, tow_params *params, const dp_privacy *privacy)
{
    static const float present[N] = {1, 0, 1, 1, 0};
    tow_graph *graph = NULL;
    tow_array *inputs[2 * PARAMS + 3], *outputs[PARAMS + 1];
    double *expected[PARAMS], loss = 0;
    must(dp_clipped_sums(context, gradient, params, N, privacy, &graph) == TOW_OK, "graph of sums");
    for (size_t p = 0; p < PARAMS; p++) {
        inputs[p] = tow_params_array(params, p);
        inputs[PARAMS + p] = array(tow_array_type(inputs[p]));
        int64_t n = tow_type_element_count(tow_array_type(inputs[p]));
        expected[p] = calloc((size_t)n, sizeof **expected);
        must(expected[p] != NULL, "memory");
        for (int64_t k = 0; k < n; k++) expected[p][k] = (double)(numbers(inputs[PARAMS + p])[k] = (float)k / 8);
    }
    for (size_t i = 2 * PARAMS; i < 2 * PARAMS + 3; i++) inputs[i] = array(tow_graph_input_type(graph, i));
    for (int64_t i = 0; i < N; i++) {
        fill(i, numbers(inputs[2 * PARAMS]) + i * INPUTS, (int32_t *)tow_array_data(inputs[2 * PARAMS + 1]) + i);
        numbers(inputs[2 * PARAMS + 2])[i] = present[i];
        if (present[i] != 0) add_alone(gradient, params, i, privacy->clip, expected, &loss);
    }
    must(tow_evaluate(graph, inputs, outputs) == TOW_OK, "sums");
    must(fabs((double)*numbers(outputs[0]) - loss) < 1e-5 * loss, "sum of losses");
    for (size_t p = 0; p < PARAMS; p++)
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(inputs[p])); k++)
            must(fabs((double)numbers(outputs[1 + p])[k] - expected[p][k]) < 1e-5 * fmax(1, fabs(expected[p][k])),
                 "clipped sum");
    for (size_t i = PARAMS; i < 2 * PARAMS + 3; i++) tow_array_release(inputs[i]);
    for (size_t p = 0; p <= PARAMS; p++) tow_array_release(outputs[p]);
    for (size_t p = 0; p < PARAMS; p++) free(expected[p]);
    tow_graph_release(graph);
}

/* Of 40,000 numbers: mean and standard deviation within five standard errors; and each parameter has noise of its
 * own. */
static void check_noise(const dp_privacy *privacy)
{
    enum {
        SIDE = 200
    };
    tow_graph *graph = NULL;
    tow_params *params = NULL;
    const tow_type type = tow_make_type(TOW_F32, 2, (const int64_t[]){SIDE, SIDE});
    tow_array *inputs[] = {array(type), array(type), array(tow_make_type(TOW_U32, 1, (const int64_t[]){2}))},
              *outputs[2];
    must(tow_params_from_arrays(context, 2, (const char *const[]){"a", "b"}, inputs, &params) == TOW_OK, "parameters");
    must(dp_noisy_means(context, params, privacy, &graph) == TOW_OK, "graph of noise");
    for (size_t p = 0; p < 2; p++)
        for (int k = 0; k < SIDE * SIDE; k++) numbers(inputs[p])[k] = 3;
    tow_random_host_key(1, tow_array_data(inputs[2]));
    must(tow_evaluate(graph, inputs, outputs) == TOW_OK, "noise");
    const double n = SIDE * SIDE, deviation = privacy->noise * privacy->clip;
    double sum = 0, square = 0, product = 0;
    for (int k = 0; k < SIDE * SIDE; k++) {
        double a = (double)numbers(outputs[0])[k] * privacy->expected - 3,
               b = (double)numbers(outputs[1])[k] * privacy->expected - 3;
        sum += a;
        square += a * a;
        product += a * b;
    }
    must(fabs(sum / n) < 5 * deviation / sqrt(n), "mean of the noise");
    must(fabs(sqrt(square / n) / deviation - 1) < 5 / sqrt(2 * n), "standard deviation of the noise");
    must(fabs(product / n) < 5 * deviation * deviation / sqrt(n), "noise of two parameters");
    for (size_t p = 0; p < 2; p++) tow_array_release(outputs[p]);
    for (size_t p = 0; p < 3; p++) tow_array_release(inputs[p]);
    tow_params_free(params);
    tow_graph_release(graph);
}

int main(void)
{
    const tow_type image = tow_make_type(TOW_F32, 1, (const int64_t[]){INPUTS}),
                   label = tow_make_type(TOW_I32, 0, NULL);
    tow_mlp model = TOW_MLP(.features = {6, CLASSES}, .activation = tow_tanh);
    tow_params *params = NULL;
    tow_graph *loss = NULL, *gradient = NULL;
    must(tow_context_create(NULL, &context) == TOW_OK, "context");
    must(tow_model_init(context, TOW_MODULE(&model), 3, 1, &image, &params) == TOW_OK, "parameters");
    must(tow_model_loss_graph(TOW_MODULE(&model), params, 1, &image, 1, &label, cross_entropy, NULL, 0, NULL, &loss) ==
             TOW_OK,
         "loss");
    must(tow_value_and_grad(loss, PARAMS, (const size_t[]){0, 1, 2, 3}, false, &gradient) == TOW_OK, "gradient");
    static const double clips[] = {0.01, 1, 1000}; /* all examples are clipped, some, none */
    for (size_t i = 0; i < 3; i++)
        compare_sums(gradient, params, &(dp_privacy){.clip = clips[i], .noise = 1, .expected = 1});
    check_noise(&(dp_privacy){.clip = 0.5, .noise = 3, .expected = 10});
    tow_graph_release(gradient);
    tow_graph_release(loss);
    tow_params_free(params);
    tow_context_free(context);
    puts("clipped sums and noise are right");
    return 0;
}

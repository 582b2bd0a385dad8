/* An MLP, Dense -> relu -> Dense -> relu -> Dense, wrapped in remat with the policy dots_with_no_batch_dims_saveable,
 * initialized from a seed and applied to a vector. The parameters are those of Flax for the same seed, bit for bit, and
 * the result is that of the MLP without remat: a policy matters only to a derivative.
 *
 *     nn_remat_policy --seed 7 --features 16 --input x.npy --output y.npy */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>

#include "seed.h"

typedef struct options {
    uint64_t seed;
    int64_t features;
    const char *input, *output;
} options;

static const struct argp_option table[] = {
    {"seed", 's', "N", 0, "Of the parameters (0)", 0},
    {"features", 'f', "N", 0, "Width of all three layers", 0},
    {"input", 'i', "FILE", 0, "x, a .npy of numbers [D]", 0},
    {"output", 'o', "FILE", 0, "Where to write y, f32 [features]; without it y is printed", 0},
    {0},
};

static error_t parse(int key, char *value, struct argp_state *state)
{
    options *o = state->input;
    switch (key) {
    case 's':
        o->seed = (uint64_t)number_option(state->name, "--seed", value, INT64_MIN, INT64_MAX);
        break;
    case 'f':
        o->features = number_option(state->name, "--features", value, 1, 1 << 20);
        break;
    case 'i':
        o->input = value;
        break;
    case 'o':
        o->output = value;
        break;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", value);
        break;
    case ARGP_KEY_END:
        if (o->features == 0 || !o->input) argp_error(state, "--features and --input are needed");
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* Inputs of a forward graph: params..., x. Free the list only. */
static tow_array **inputs_of(const tow_params *params, tow_array *x)
{
    size_t n = tow_params_count(params);
    tow_array **inputs = malloc((n + 1) * sizeof *inputs);
    if (!inputs) must(NULL, TOW_OUT_OF_MEMORY);
    for (size_t i = 0; i < n; i++) inputs[i] = tow_params_array(params, i);
    inputs[n] = x;
    return inputs;
}

static void print_vector(const tow_array *y)
{
    const float *data = tow_array_data(y);
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(y)); i++) printf("%.9g\n", (double)data[i]);
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = table, .parser = parse, .doc = "A remat-wrapped MLP applied to a vector."};
    options o = {0};
    argp_program_version = "nn_remat_policy (Tow) " TOW_VERSION;
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, &o);

    tow_context *context = open_context();
    tow_array *x = read_f32(context, o.input), *y = NULL;
    tow_type type = tow_array_type(x);
    if (type.rank != 1) {
        char found[160];
        tow_type_text(type, found, sizeof found);
        fprintf(stderr, "error: %s: expected a vector, found %s; give one input of the network\n", o.input, found);
        return 1;
    }

    tow_mlp mlp = TOW_MLP(.features = {o.features, o.features, o.features}, .activation = tow_relu);
    tow_remat model = TOW_REMAT(&mlp, .policy = tow_dots_with_no_batch_dims_saveable());
    tow_params *params = NULL;
    tow_graph *forward = NULL;
    must(context, tow_model_init(context, TOW_MODULE(&model), o.seed, 1, &type, &params));
    must(context, tow_model_forward_graph(TOW_MODULE(&model), params, 1, &type, NULL, &forward));
    tow_array **inputs = inputs_of(params, x);
    must(context, tow_evaluate(forward, inputs, &y));
    if (o.output)
        must(context, tow_npy_write(context, o.output, y));
    else
        print_vector(y);

    free(inputs);
    tow_array_release(x);
    tow_array_release(y);
    tow_graph_release(forward);
    tow_params_free(params);
    tow_context_free(context);
    return 0;
}

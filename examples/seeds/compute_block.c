/* A block with a large intermediate value, gelu(x W1) W2, in a mean-squared-error loss: loss and gradients of W1 and W2
 * with the block as it is and with the block checkpointed, their times and planned memory, and how far the gradients
 * differ.
 *
 *     compute_block --batch 64 --input-dim 512 --hidden-dim 8192 --output-dim 512 --seed 42 */
#include <argp.h>
#include <math.h>
#include <stdio.h>

#include "seed.h"

typedef struct options {
    int64_t batch, input_dim, hidden_dim, output_dim;
    uint64_t seed;
} options;

static const struct argp_option table[] = {
    {"batch", 'b', "N", 0, "Rows of x (64)", 0},
    {"input-dim", 'i', "N", 0, "Columns of x (512)", 0},
    {"hidden-dim", 'h', "N", 0, "Columns of W1 (8192)", 0},
    {"output-dim", 'o', "N", 0, "Columns of W2 (512)", 0},
    {"seed", 's', "N", 0, "Of all arrays (42)", 0},
    {0},
};

static error_t parse(int key, char *value, struct argp_state *state)
{
    options *o = state->input;
    switch (key) {
    case 'b':
        o->batch = number_option(state->name, "--batch", value, 1, 1 << 24);
        break;
    case 'i':
        o->input_dim = number_option(state->name, "--input-dim", value, 1, 1 << 24);
        break;
    case 'h':
        o->hidden_dim = number_option(state->name, "--hidden-dim", value, 1, 1 << 24);
        break;
    case 'o':
        o->output_dim = number_option(state->name, "--output-dim", value, 1, 1 << 24);
        break;
    case 's':
        o->seed = (uint64_t)number_option(state->name, "--seed", value, INT64_MIN, INT64_MAX);
        break;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", value);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

enum {
    X,
    W1,
    W2,
    TARGETS,
    N_ARRAYS
};
static const char *const names[N_ARRAYS] = {"x", "W1", "W2", "targets"};

/* x, W1, W2, targets: normal, from keys 1 to 4 of split(PRNGKey(seed), 5); the weights times 0.02. user: options */
static void draw_data(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)in;
    const options *o = user;
    const int64_t shapes[N_ARRAYS][2] = {{o->batch, o->input_dim},
                                         {o->input_dim, o->hidden_dim},
                                         {o->hidden_dim, o->output_dim},
                                         {o->batch, o->output_dim}};
    tow_value keys = tow_random_split(tow_random_key(t, o->seed), N_ARRAYS + 1); /* [5, 2] */
    for (int i = 0; i < N_ARRAYS; i++) {
        tow_value key = tow_squeeze(tow_slice_axis(keys, 0, i + 1, i + 2), 0);
        out[i] = tow_random_normal(key, 2, shapes[i]);
        if (i == W1 || i == W2) out[i] = tow_mul_scalar(out[i], 0.02);
    }
}

/* ---- the block and its loss -------------------------------------------------------------------------------------- */

/* in: x [batch, input], W1 [input, hidden], W2 [hidden, output] -> [batch, output] */
static void compute_block(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    tow_value y = tow_dot(in[X], in[W1]);
    y = tow_gelu(y); /* [batch, hidden]: what we may want to avoid keeping */
    out[0] = tow_dot(y, in[W2]);
}

/* user: bool, whether the block is checkpointed */
static void loss_function(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value z;
    if (*(bool *)user)
        tow_remat_function(t, compute_block, NULL, NULL, 3, in, 1, &z);
    else
        compute_block(t, in, &z, NULL);
    out[0] = tow_mean(tow_square(tow_sub(z, in[TARGETS])), 0, NULL);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

enum {
    LOSS,
    DW1,
    DW2,
    N_RESULTS
};

/* Traces, differentiates, compiles and runs one version, and prints its loss, times and planned memory. */
static void run_version(tow_context *context, const char *name, bool checkpointed, const tow_type *types,
                        tow_array **arrays, tow_array **results)
{
    tow_graph *grad = NULL;
    tow_program *program = NULL;
    double start = seconds_now();
    tow_graph *graph = trace(context, loss_function, &checkpointed, N_ARRAYS, types, names, 1);
    must(context, tow_value_and_grad(graph, 2, (size_t[]){W1, W2}, false, &grad));
    must(context, tow_compile(context, grad, NULL, &program));
    for (size_t i = 0; i < N_RESULTS; i++)
        must(context, tow_array_create(context, tow_graph_output_type(grad, i), &results[i]));
    double compiled = seconds_now();
    must(context, tow_program_run(program, arrays, results));
    double first = seconds_now();
    must(context, tow_program_run(program, arrays, results));
    double second = seconds_now();
    tow_program_bytes bytes = tow_program_get_bytes(program);
    printf("%s Loss: %.9g\n", name, scalar_of(results[LOSS]));
    printf("%s Time: %.4f seconds (compilation %.4f, first run %.4f), second run %.4f\n", name, first - start,
           compiled - start, first - compiled, second - first);
    printf("%s Memory: %zu bytes kept from forward to backward, %zu bytes of intermediate values in all\n\n", name,
           bytes.residuals, bytes.arena);
    tow_program_free(program);
    tow_graph_release(grad);
    tow_graph_release(graph);
}

static double max_difference(const tow_array *a, const tow_array *b)
{
    const float *x = tow_array_data(a), *y = tow_array_data(b);
    double greatest = 0;
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(a)); i++)
        greatest = fmax(greatest, fabs((double)x[i] - (double)y[i]));
    return greatest;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = table, .parser = parse, .doc = "Gradients of a block, plain and checkpointed."};
    options o = {.batch = 64, .input_dim = 512, .hidden_dim = 8192, .output_dim = 512, .seed = 42};
    argp_program_version = "compute_block (Tow) " TOW_VERSION;
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, &o);

    tow_context *context = open_context();
    tow_array *arrays[N_ARRAYS], *standard[N_RESULTS], *checkpointed[N_RESULTS];
    tow_type types[N_ARRAYS];
    tow_graph *data = trace(context, draw_data, &o, 0, NULL, NULL, N_ARRAYS);
    must(context, tow_evaluate(data, NULL, arrays));
    for (int i = 0; i < N_ARRAYS; i++) types[i] = tow_array_type(arrays[i]);

    run_version(context, "Standard", false, types, arrays, standard);
    run_version(context, "Checkpointed", true, types, arrays, checkpointed);
    printf("Max absolute difference W1: %.2e\n", max_difference(standard[DW1], checkpointed[DW1]));
    printf("Max absolute difference W2: %.2e\n", max_difference(standard[DW2], checkpointed[DW2]));

    for (int i = 0; i < N_RESULTS; i++) tow_array_release(standard[i]);
    for (int i = 0; i < N_RESULTS; i++) tow_array_release(checkpointed[i]);
    for (int i = 0; i < N_ARRAYS; i++) tow_array_release(arrays[i]);
    tow_graph_release(data);
    tow_context_free(context);
    return 0;
}

/* sum((relu(x w1) w2)^2) inside remat with the policy dots_with_no_batch_dims_saveable: both products may be kept, relu
 * is computed again. The value does not depend on the policy.
 *
 *     checkpoint_dot_policy --w1 a.npy --w2 b.npy --x x.npy */
#include <argp.h>
#include <stdio.h>

#include "seed.h"

enum {
    W1,
    W2,
    X,
    N_ARGUMENTS
};
static const char *const names[N_ARGUMENTS] = {"w1", "w2", "x"};

static const struct argp_option table[] = {
    {"w1", W1 + 256, "FILE", 0, "w1, a .npy of numbers [d, d]", 0},
    {"w2", W2 + 256, "FILE", 0, "w2, a .npy of numbers [d, d]", 0},
    {"x", X + 256, "FILE", 0, "x, a .npy of numbers [n, d]", 0},
    {0},
};

static error_t parse(int key, char *value, struct argp_state *state)
{
    const char **paths = state->input;
    if (key >= W1 + 256 && key <= X + 256) {
        paths[key - 256] = value;
        return 0;
    }
    if (key == ARGP_KEY_ARG) argp_error(state, "unexpected argument '%s'", value);
    if (key == ARGP_KEY_END && (!paths[W1] || !paths[W2] || !paths[X]))
        argp_error(state, "--w1, --w2 and --x are needed");
    return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
}

/* in: w1 [d, d], w2 [d, d], x [n, d] -> [] */
static void pipeline(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    tow_value y = tow_relu(tow_dot(in[X], in[W1]));
    y = tow_dot(y, in[W2]);
    out[0] = tow_reduce_sum(tow_square(y), 0, NULL);
}

static void checkpointed(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_policy policy = tow_dots_with_no_batch_dims_saveable();
    tow_remat_function(t, pipeline, user, &policy, N_ARGUMENTS, in, 1, out);
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = table, .parser = parse, .doc = "A checkpointed pipeline of two products."};
    const char *paths[N_ARGUMENTS] = {NULL};
    argp_program_version = "checkpoint_dot_policy (Tow) " TOW_VERSION;
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, paths);

    tow_context *context = open_context();
    tow_array *arrays[N_ARGUMENTS] = {NULL}, *result = NULL;
    tow_type types[N_ARGUMENTS];
    for (int i = 0; i < N_ARGUMENTS; i++) {
        arrays[i] = read_f32(context, paths[i]);
        types[i] = tow_array_type(arrays[i]);
    }
    tow_graph *graph = trace(context, checkpointed, NULL, N_ARGUMENTS, types, names, 1);
    must(context, tow_evaluate(graph, arrays, &result));
    printf("%.9g\n", scalar_of(result));

    tow_array_release(result);
    for (int i = 0; i < N_ARGUMENTS; i++) tow_array_release(arrays[i]);
    tow_graph_release(graph);
    tow_context_free(context);
    return 0;
}

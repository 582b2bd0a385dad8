/* Effects of a rematerialization policy, constants, and arguments that are not traced.
 *
 * 1. A chain of layers sin(W x) inside remat with the policy dots_saveable: only products may be kept, so the cosines
 * that
 *    the derivative of sin needs, and the sines that later layers need, are computed again in the backward pass.
 * 2. A large array that does not depend on the argument: without remat it is kept, with remat it is computed again.
 * 3. A choice between two computations is an ordinary C argument of the traced function. */
#include <stdio.h>
#include <stdlib.h>

#include "seed.h"

enum {
    N_LAYERS = 3,
    WIDTH = 4
};

/* ---- a policy for products --------------------------------------------------------------------------------------- */

static tow_value apply_layer(tow_value w, tow_value x) { return tow_sin(tow_dot(w, x)); }

/* in: W1, W2, W3 [width, width], x [width] */
static void predict(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    tow_value x = in[N_LAYERS];
    for (int i = 0; i < N_LAYERS - 1; i++) x = apply_layer(in[i], x);
    out[0] = tow_dot(in[N_LAYERS - 1], x);
}

static void predict_checkpointed(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_policy policy = tow_dots_saveable();
    tow_remat_function(trace, predict, user, &policy, N_LAYERS + 1, in, 1, out);
}

static void show_policy(tow_context *context)
{
    static const char *const names[] = {"W1", "W2", "W3", "x"};
    tow_type types[N_LAYERS + 1];
    for (int i = 0; i < N_LAYERS; i++) types[i] = tow_make_type(TOW_F32, 2, (int64_t[]){WIDTH, WIDTH});
    types[N_LAYERS] = tow_make_type(TOW_F32, 1, (int64_t[]){WIDTH});
    tow_graph *plain = trace(context, predict, NULL, N_LAYERS + 1, types, names, 1);
    tow_graph *checkpointed = trace(context, predict_checkpointed, NULL, N_LAYERS + 1, types, names, 1);
    print_residuals("predict", plain);
    print_residuals("predict, checkpoint_dots", checkpointed);
    puts("# predict, checkpoint_dots: forward and backward");
    must(context, tow_print_forward_backward(checkpointed, 0, NULL, stdout));
    putchar('\n');
    tow_graph_release(plain);
    tow_graph_release(checkpointed);
}

/* ---- constants --------------------------------------------------------------------------------------------------- */

/* f(x) = sum(a x),  a = cos(0, 1, 2, ...): a does not depend on x. user: number of elements */
static void scaled_constant(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_value a = tow_cos(tow_iota(trace, tow_make_type(TOW_F32, 1, user), 0));
    out[0] = tow_reduce_sum(tow_mul(a, in[0]), 0, NULL);
}

static void scaled_constant_checkpointed(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(trace, scaled_constant, user, NULL, 1, in, 1, out);
}

/* df/dx, the same for both ways */
static double gradient(tow_graph *graph)
{
    tow_context *context = tow_graph_context(graph);
    tow_graph *grad = NULL;
    tow_array *x = NULL, *dx = NULL;
    must(context, tow_grad(graph, 0, NULL, false, &grad));
    must(context, tow_array_from_data(context, tow_make_type(TOW_F32, 0, NULL), &(float){2}, &x));
    must(context, tow_evaluate(grad, &x, &dx));
    double value = scalar_of(dx);
    tow_array_release(x);
    tow_array_release(dx);
    tow_graph_release(grad);
    return value;
}

static void show_constants(tow_context *context, int64_t elements)
{
    const tow_type type = tow_make_type(TOW_F32, 0, NULL);
    const char *const name = "x";
    tow_graph *plain = trace(context, scaled_constant, &elements, 1, &type, &name, 1);
    tow_graph *checkpointed = trace(context, scaled_constant_checkpointed, &elements, 1, &type, &name, 1);
    print_residuals("a constant", plain);
    print_residuals("a constant, checkpointed", checkpointed);
    printf("gradient %.9g\ngradient, checkpointed %.9g\n\n", gradient(plain), gradient(checkpointed));
    tow_graph_release(plain);
    tow_graph_release(checkpointed);
}

/* ---- arguments that are not traced ------------------------------------------------------------------------------- */

/* x tanh(x) in training, else tanh(x). user: bool is_training */
static void foo(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    const bool *is_training = user;
    tow_value y = tow_tanh(in[0]);
    out[0] = *is_training ? tow_mul(in[0], y) : y;
}

static void foo_checkpointed(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_remat_function(trace, foo, user, NULL, 1, in, 1, out);
}

static void show_static_argument(tow_context *context)
{
    const tow_type type = tow_make_type(TOW_F32, 0, NULL);
    const char *const name = "x";
    for (int is_training = 0; is_training < 2; is_training++) {
        tow_graph *graph = trace(context, foo_checkpointed, &(bool){is_training}, 1, &type, &name, 1);
        printf("foo(x, is_training=%s): gradient at 2 is %.9g\n", is_training ? "true" : "false", gradient(graph));
        tow_graph_release(graph);
    }
}

int main(int argc, char **argv)
{
    show_version("remat_changes", argc, argv);
    int64_t elements = argc > 1 ? number_option(argv[0], "ELEMENTS", argv[1], 1, 1 << 30) : 10000000;
    tow_context *context = open_context();
    show_policy(context);
    show_constants(context, elements);
    show_static_argument(context);
    tow_context_free(context);
    return 0;
}

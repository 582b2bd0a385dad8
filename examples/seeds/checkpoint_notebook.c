/* The values that reverse mode keeps, for a series of functions: three layers sin(W x) plain, with each layer
 * checkpointed, under a policy, and with named values; a loss over three layers; chains of sines checkpointed
 * recursively. */
#include <stdio.h>

#include "seed.h"

enum {
    LAYERS = 3,
    MAX_CHAIN = 16
};

/* ---- three layers: f, f2, f3, f4 --------------------------------------------------------------------------------- */

/* in: W [m, n], x [n] -> sin(W x) [m] */
static void g(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    tow_value y = tow_dot(in[0], in[1]);
    out[0] = tow_sin(y);
}

/* in: W1 [5, 4], W2 [6, 5], W3 [7, 6], x [4] -> [7] */
static void f(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value x = in[LAYERS];
    for (int i = 0; i < LAYERS; i++) g(t, (tow_value[]){in[i], x}, &x, user);
    out[0] = x;
}

static void f2(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value x = in[LAYERS];
    for (int i = 0; i < LAYERS; i++) tow_remat_function(t, g, user, NULL, 2, (tow_value[]){in[i], x}, 1, &x);
    out[0] = x;
}

static void f3(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_policy policy = tow_dots_with_no_batch_dims_saveable();
    tow_remat_function(t, f, user, &policy, LAYERS + 1, in, 1, out);
}

static void f_named(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    static const char *const names[] = {"a", "b", "c"};
    tow_value x = in[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        g(t, (tow_value[]){in[i], x}, &x, user);
        x = tow_checkpoint_name(x, names[i]);
    }
    out[0] = x;
}

static void f4(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_policy policy = tow_save_only_these_names("a");
    tow_remat_function(t, f_named, user, &policy, LAYERS + 1, in, 1, out);
}

/* ---- a loss over three layers ------------------------------------------------------------------------------------ */

/* user: NULL, or names for the results of the first two layers. in: params[3] [4, 4], x [4] -> [4] */
static tow_value predict(const tow_value *in, const char *const *names)
{
    tow_value x = in[LAYERS];
    for (int i = 0; i < LAYERS - 1; i++) {
        x = tow_sin(tow_dot(in[i], x));
        if (names) x = tow_checkpoint_name(x, names[i]);
    }
    return tow_dot(in[LAYERS - 1], x);
}

/* in: params[3], x, y -> sum (predict - y)^2 */
static void loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    tow_value difference = tow_sub(predict(in, user), in[LAYERS + 1]);
    out[0] = tow_reduce_sum(tow_square(difference), 0, NULL);
}

static void loss_checkpoint(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_policy policy = tow_dots_with_no_batch_dims_saveable();
    tow_remat_function(t, loss, user, &policy, LAYERS + 2, in, 1, out);
}

static void loss_checkpoint2(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_policy policy = tow_save_any_names_but_these("layer1_output");
    tow_remat_function(t, loss, user, &policy, LAYERS + 2, in, 1, out);
}

/* ---- chains of sines --------------------------------------------------------------------------------------------- */

/* user: int, the number of sines */
static void chain(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    tow_value x = in[0];
    for (int i = 0; i < *(int *)user; i++) x = tow_sin(x);
    out[0] = x;
}

/* One or two functions are composed; of more, the second half, which comes first, is checkpointed as a whole: D
 * functions keep O(log D) values. */
static void recursive(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    int n = *(int *)user;
    if (n <= 2) {
        chain(t, in, out, user);
        return;
    }
    int first = n / 2, second = n - first;
    tow_value x;
    tow_remat_function(t, recursive, &second, NULL, 1, in, 1, &x);
    recursive(t, &x, out, &first);
}

/* ---- the lists --------------------------------------------------------------------------------------------------- */

static const char *const layer_names[] = {"layer0_output", "layer1_output"};
static const int eight = 8, sixteen = 16;

typedef enum arguments {
    FOUR,
    LOSS,
    SCALAR
} arguments;

typedef struct list {
    const char *title;
    tow_function function;
    const void *user;
    arguments arguments;
    bool both; /* also print forward and backward */
} list;

static const list lists[] = {
    {"f", f, NULL, FOUR, true},
    {"f2: each layer checkpointed", f2, NULL, FOUR, false},
    {"f3: dots_with_no_batch_dims_saveable", f3, NULL, FOUR, true},
    {"f4: save_only_these_names a", f4, NULL, FOUR, false},
    {"loss", loss, NULL, LOSS, false},
    {"loss, dots_with_no_batch_dims_saveable", loss_checkpoint, NULL, LOSS, false},
    {"loss with names", loss, layer_names, LOSS, false},
    {"loss with names, save_any_names_but_these layer1_output", loss_checkpoint2, layer_names, LOSS, false},
    {"chain of 8", chain, &eight, SCALAR, true},
    {"chain of 16", chain, &sixteen, SCALAR, false},
    {"recursive checkpoints of 8", recursive, &eight, SCALAR, true},
    {"recursive checkpoints of 16", recursive, &sixteen, SCALAR, false},
};

#define MATRIX(m, n)                                                                                                   \
    {                                                                                                                  \
        .dtype = TOW_F32, .rank = 2, .dims = { m, n }                                                                  \
    }
#define VECTOR(n)                                                                                                      \
    {                                                                                                                  \
        .dtype = TOW_F32, .rank = 1, .dims = { n }                                                                     \
    }
typedef struct signature {
    size_t count;
    tow_type types[5];
    const char *names[5];
} signature;
static const signature signatures[] = {
    [FOUR] = {4, {MATRIX(5, 4), MATRIX(6, 5), MATRIX(7, 6), VECTOR(4)}, {"W1", "W2", "W3", "x"}},
    [LOSS] = {5,
              {MATRIX(4, 4), MATRIX(4, 4), MATRIX(4, 4), VECTOR(4), VECTOR(4)},
              {"params[0]", "params[1]", "params[2]", "x", "y"}},
    [SCALAR] = {1, {{.dtype = TOW_F32}}, {"x"}},
};

int main(int argc, char **argv)
{
    show_version("checkpoint_notebook", argc, argv);
    tow_context *context = open_context();
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const list *l = &lists[i];
        const signature *s = &signatures[l->arguments];
        tow_graph *graph = trace(context, l->function, (void *)(uintptr_t)l->user, s->count, s->types, s->names, 1);
        print_residuals(l->title, graph);
        if (l->both) {
            printf("# %s: forward and backward\n", l->title);
            must(context, tow_print_forward_backward(graph, 0, NULL, stdout));
            putchar('\n');
        }
        tow_graph_release(graph);
    }
    tow_context_free(context);
    return 0;
}

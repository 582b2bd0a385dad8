/* Gradients for each example of an MLP of three layers, 512 -> 512 -> 512 -> 512, beside the gradient of the whole
 * batch. The gradient of each example is as large as the weights, so the figure to compare with is the time of the
 * batch gradient plus that of writing the results at the bandwidth of copying: "ratio" is the measured time over that.
 *
 *     perexample [--batch 32] [--width 512] */
#include <stdlib.h>

#include "bench.h"
#include "limits.h"

enum {
    LAYERS = 3
};

typedef struct call {
    tow_program *program;
    tow_array *inputs[LAYERS + 1], *outputs[LAYERS];
    size_t n_out;
} call;

/* in: w1, w2, w3 [n, n], x [n] -> the loss of one example */
static void example_loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_value h = in[LAYERS];
    (void)trace, (void)user;
    for (int i = 0; i < LAYERS; i++) h = i + 1 < LAYERS ? tow_relu(tow_dot(h, in[i])) : tow_dot(h, in[i]);
    out[0] = tow_reduce_sum(tow_square(h), 0, NULL);
}

/* The same with x [batch, n]: the sum over the batch */
static void batch_loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const int axes[LAYERS + 1] = {TOW_NOT_MAPPED, TOW_NOT_MAPPED, TOW_NOT_MAPPED, 0};
    const tow_vmap_options options = TOW_VMAP_OPTIONS(.in_axes = axes);
    tow_vmap_function(trace, example_loss, user, &options, LAYERS + 1, in, 1, out);
    out[0] = tow_reduce_sum(out[0], 0, NULL);
}

static tow_status run(void *user)
{
    const call *c = user;
    return tow_program_run(c->program, c->inputs, c->outputs);
}

/* Compiles the gradient and makes its arrays; releases it. */
static call make_call(const bench *b, tow_graph *gradient)
{
    call c = {.n_out = tow_graph_output_count(gradient)};
    bench_check(b, tow_compile(b->context, gradient, NULL, &c.program));
    for (size_t i = 0; i <= LAYERS; i++) {
        bench_check(b, tow_array_create(b->context, tow_graph_input_type(gradient, i), &c.inputs[i]));
        bench_fill(c.inputs[i], i, i < LAYERS ? 0.08 : 1.0);
    }
    for (size_t i = 0; i < c.n_out; i++)
        bench_check(b, tow_array_create(b->context, tow_graph_output_type(gradient, i), &c.outputs[i]));
    tow_graph_release(gradient);
    return c;
}

static void free_call(call *c)
{
    for (size_t i = 0; i <= LAYERS; i++) tow_array_release(c->inputs[i]);
    for (size_t i = 0; i < c->n_out; i++) tow_array_release(c->outputs[i]);
    tow_program_free(c->program);
}

/* Seconds of the fastest of some runs. */
static double fastest(const bench *b, call *c)
{
    double best = 0;
    for (int i = 0; i < 30; i++) {
        double start = bench_now();
        bench_check(b, run(c));
        double seconds = bench_now() - start;
        if (i == 1 || (i > 1 && seconds < best)) best = seconds;
    }
    return best;
}

int main(int argc, char **argv)
{
    bench b;
    int64_t batch = 32, width = 512;
    const bench_option options[] = {
        {"batch", .number = &batch, .least = 1}, {"width", .number = &width, .least = 1}, {0}};
    bench_start(&b, "perexample", argc, argv, options);
    const size_t wrt[LAYERS] = {0, 1, 2};
    const int axes[LAYERS + 1] = {TOW_NOT_MAPPED, TOW_NOT_MAPPED, TOW_NOT_MAPPED, 0};
    tow_type types[LAYERS + 1];
    tow_graph *loss = NULL, *gradient = NULL, *gradients = NULL;
    for (int i = 0; i < LAYERS; i++) types[i] = tow_make_type(TOW_F32, 2, (int64_t[]){width, width});
    types[LAYERS] = tow_make_type(TOW_F32, 1, &width);
    bench_check(&b, tow_trace_function(b.context, example_loss, NULL, LAYERS + 1, types, NULL, 1, &loss));
    bench_check(&b, tow_per_example_grad(loss, LAYERS, wrt, false, batch, axes, &gradients));
    tow_graph_release(loss);
    types[LAYERS] = tow_make_type(TOW_F32, 2, (int64_t[]){batch, width});
    bench_check(&b, tow_trace_function(b.context, batch_loss, NULL, LAYERS + 1, types, NULL, 1, &loss));
    bench_check(&b, tow_grad(loss, LAYERS, wrt, false, &gradient));
    tow_graph_release(loss);

    call whole = make_call(&b, gradient), each = make_call(&b, gradients);
    double batch_seconds = fastest(&b, &whole);
    free_call(&whole);
    bench_set_program_bytes(&b, each.program);
    bench_repeat(&b, run, &each, 1);
    double bytes = (double)LAYERS * (double)(batch * width * width) * sizeof(float);
    double bandwidth = bench_copy_bandwidth((int)b.threads, (size_t)64 << 20) * 1e9;
    double expected = batch_seconds + bytes / bandwidth;
    bench_set(&b, "batch_seconds", json_real(batch_seconds));
    bench_set(&b, "result_bytes", json_real(bytes));
    bench_set(&b, "expected_seconds", json_real(expected));
    bench_set(&b, "ratio", json_real(b.fastest / expected));
    bench_trace_program(&b, each.program, each.inputs, each.outputs);
    free_call(&each);
    /* forward, and for each layer but the first one the cotangents of its input; an outer product per example and
     * layer */
    double n = (double)width;
    return bench_finish(&b, (double)batch * n * n * (2 * LAYERS + 2 * (LAYERS - 1) + 2 * LAYERS));
}

/* One call of value and gradient of a tiny MLP, 8 -> 32 -> 32 -> 4 on a batch of 4: what a call costs beside its work.
 *
 *     mlp [--batch 4] */
#include <stdlib.h>

#include "bench.h"

enum {
    CALLS = 200, /* per timing */
    FEATURES = 8
};

typedef struct call {
    tow_program *program;
    tow_array **inputs, **outputs;
} call;

static tow_status run(void *user)
{
    const call *c = user;
    for (int i = 0; i < CALLS; i++) {
        tow_status status = tow_program_run(c->program, c->inputs, c->outputs);
        if (status != TOW_OK) return status;
    }
    return TOW_OK;
}

static void square_loss(tow_trace *trace, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                        tow_value *aux, void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_reduce_sum(tow_square(outputs[0]), 0, NULL);
}

int main(int argc, char **argv)
{
    bench b;
    int64_t batch = 4;
    const bench_option options[] = {{"batch", .number = &batch, .least = 1}, {0}};
    bench_start(&b, "mlp", argc, argv, options);
    tow_mlp model = TOW_MLP(.features = {32, 32, 4});
    tow_type x = tow_make_type(TOW_F32, 2, (int64_t[]){batch, FEATURES});
    tow_params *params = NULL;
    tow_graph *loss = NULL, *gradient = NULL;
    call c = {0};

    bench_check(&b, tow_init(b.context, TOW_MODULE(&model), 0, 1, &x, &params));
    size_t n = tow_params_count(params), wrt[2 * TOW_MLP_LIMIT];
    for (size_t i = 0; i < n; i++) wrt[i] = i;
    double start = bench_now();
    bench_check(&b, tow_loss(TOW_MODULE(&model), params, 1, &x, 0, NULL, square_loss, NULL, 0, NULL, &loss));
    bench_check(&b, tow_value_and_grad(loss, n, wrt, false, &gradient));
    bench_check(&b, tow_compile(b.context, gradient, NULL, &c.program));
    bench_set(&b, "compile_seconds", json_real(bench_now() - start));
    bench_set_program_bytes(&b, c.program);

    c.inputs = calloc(n + 1, sizeof *c.inputs);
    c.outputs = calloc(n + 1, sizeof *c.outputs);
    if (!c.inputs || !c.outputs) bench_fail("mlp: out of memory");
    for (size_t i = 0; i < n; i++) c.inputs[i] = tow_array_retain(tow_params_array(params, i));
    bench_check(&b, tow_array_create(b.context, x, &c.inputs[n]));
    bench_fill(c.inputs[n], 1, 1.7);
    for (size_t i = 0; i <= n; i++)
        bench_check(&b, tow_array_create(b.context, tow_graph_output_type(gradient, i), &c.outputs[i]));
    bench_repeat(&b, run, &c, CALLS);
    bench_trace_program(&b, c.program, c.inputs, c.outputs);
    bench_set_engines(&b, c.program);
    bench_set(&b, "loss", json_real(((float *)tow_array_data(c.outputs[0]))[0]));

    for (size_t i = 0; i <= n; i++) tow_array_release(c.inputs[i]);
    for (size_t i = 0; i <= n; i++) tow_array_release(c.outputs[i]);
    free(c.inputs);
    free(c.outputs);
    tow_program_free(c.program);
    tow_graph_release(loss);
    tow_graph_release(gradient);
    tow_params_free(params);
    return bench_finish(&b, 6.0 * (double)batch * (FEATURES * 32 + 32 * 32 + 32 * 4));
}

/* A recurrent layer over a sequence, sum of the squares of all its outputs: value and gradients of its parameters.
 *
 *     rnn --cell lstm|gru --length 128 --batch 32 --width 256 [--batch-first] [--remat]
 *
 * x [length, batch, width], or [batch, length, width], are data. Useful flops: with G gates (LSTM 4, GRU 3) 2 G
 * products of [width, width] per element forward; backward the gradients of all kernels and of the hidden state. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

typedef struct call {
    tow_program *program;
    tow_array **inputs, **outputs;
} call;

static tow_status run(void *user)
{
    const call *c = user;
    return tow_program_run(c->program, c->inputs, c->outputs);
}

static void square_loss(tow_trace *trace, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                        tow_value *aux, void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_reduce_sum(tow_square(outputs[0]), 0, NULL);
}

/* Times the gradient of the model's parameters. */
static void measure(bench *b, const tow_module *model, tow_type x)
{
    tow_params *params = NULL;
    tow_graph *loss = NULL, *gradient = NULL;
    call c = {0};
    bench_check(b, tow_init(b->context, model, 0, 1, &x, &params));
    size_t n = tow_params_count(params), *wrt = calloc(n, sizeof *wrt);
    c.inputs = calloc(n + 1, sizeof *c.inputs);
    c.outputs = calloc(n + 1, sizeof *c.outputs);
    if (!c.inputs || !c.outputs || !wrt) bench_fail("rnn: out of memory");
    for (size_t i = 0; i < n; i++) wrt[i] = i;
    double start = bench_now();
    bench_check(b, tow_loss(model, params, 1, &x, 0, NULL, square_loss, NULL, 0, NULL, &loss));
    bench_check(b, tow_value_and_grad(loss, n, wrt, false, &gradient));
    bench_check(b, tow_compile(b->context, gradient, NULL, &c.program));
    bench_set(b, "compile_seconds", json_real(bench_now() - start));
    bench_set_program_bytes(b, c.program);
    for (size_t i = 0; i < n; i++) c.inputs[i] = tow_array_retain(tow_params_array(params, i));
    bench_check(b, tow_array_create(b->context, x, &c.inputs[n]));
    bench_fill(c.inputs[n], 1, 1.7);
    for (size_t i = 0; i <= n; i++)
        bench_check(b, tow_array_create(b->context, tow_graph_output_type(gradient, i), &c.outputs[i]));
    bench_repeat(b, run, &c, 1);
    bench_trace_program(b, c.program, c.inputs, c.outputs);
    bench_set_engines(b, c.program);
    bench_set(b, "loss", json_real(((float *)tow_array_data(c.outputs[0]))[0]));
    for (size_t i = 0; i <= n; i++) tow_array_release(c.inputs[i]);
    for (size_t i = 0; i <= n; i++) tow_array_release(c.outputs[i]);
    free(c.inputs);
    free(c.outputs);
    free(wrt);
    tow_program_free(c.program);
    tow_graph_release(loss);
    tow_graph_release(gradient);
    tow_params_free(params);
}

int main(int argc, char **argv)
{
    bench b;
    int64_t length = 128, batch = 32, width = 256;
    const char *kind = "lstm";
    bool batch_first = false, remat = false;
    const bench_option options[] = {{"cell", .text = &kind},
                                    {"length", .number = &length, .least = 1},
                                    {"batch", .number = &batch, .least = 1},
                                    {"width", .number = &width, .least = 1},
                                    {"batch-first", .flag = &batch_first},
                                    {"remat", .flag = &remat},
                                    {0}};
    bench_start(&b, "rnn", argc, argv, options);
    tow_optimized_lstm_cell lstm = TOW_OPTIMIZED_LSTM_CELL(.features = width);
    tow_gru_cell gru = TOW_GRU_CELL(.features = width);
    bool is_gru = strcmp(kind, "gru") == 0;
    if (!is_gru && strcmp(kind, "lstm") != 0) bench_fail("rnn: --cell: expected lstm or gru, found '%s'", kind);
    tow_remat region = {.module = {&tow_remat_class}, .inner = is_gru ? TOW_MODULE(&gru) : TOW_MODULE(&lstm)};
    tow_rnn model = {
        .module = {&tow_rnn_class}, .inner = remat ? TOW_MODULE(&region) : region.inner, .time_major = !batch_first};
    const int64_t dims[] = {batch_first ? batch : length, batch_first ? length : batch, width};
    measure(&b, TOW_MODULE(&model), tow_make_type(TOW_F32, 3, dims));
    return bench_finish(&b, (is_gru ? 30.0 : 40.0) * (double)(batch * length) * (double)(width * width));
}

/* See models.h. */
#include "models.h"

#include <stdlib.h>
#include <string.h>

/* ---- element types ----------------------------------------------------------------------------------------------- */

const tow_module *bench_with_dtypes(const tow_module *model, const char *name, tow_precision *precision)
{
    static const struct {
        const char *name;
        tow_dtype dtype, param_dtype;
    } modes[] = {{"f32", TOW_F32, TOW_F32},
                 {"mixed", TOW_BF16, TOW_F32},
                 {"mixed-f16", TOW_F16, TOW_F32},
                 {"bf16", TOW_BF16, TOW_BF16},
                 {"f16", TOW_F16, TOW_F16}};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(name, modes[i].name) != 0) continue;
        if (i == 0) return model;
        *precision = (tow_precision){.module = {&tow_precision_class, sizeof(tow_precision)},
                                     .inner = model,
                                     .dtype = modes[i].dtype,
                                     .param_dtype = modes[i].param_dtype,
                                     .output_dtype = TOW_F32};
        return TOW_MODULE(precision);
    }
    bench_fail("--dtype is f32, mixed, mixed-f16, bf16 or f16");
}

/* ---- steps of a training ----------------------------------------------------------------------------------------- */

void bench_create_training(bench *b, const tow_module *model, const tow_train_options *options, bench_training *t)
{
    const double start = bench_now();
    bench_check(b, tow_train_create(b->context, model, options, &t->state));
    bench_set(b, "create_seconds", json_real(bench_now() - start));
}

void bench_make_batch(bench *b, bench_training *t, int i, tow_type type, double scale)
{
    bench_check(b, tow_array_create(b->context, type, &t->batch[i]));
    bench_fill(t->batch[i], (uint64_t)i, scale);
}

static tow_status step(void *user)
{
    bench_training *t = user;
    return tow_train_step(t->state, t->batch, &t->loss);
}

static tow_status traced_step(void *user, FILE *file)
{
    bench_training *t = user;
    return tow_train_step_with(t->state, t->batch, &t->loss, file);
}

void bench_run_training(bench *b, bench_training *t)
{
    bench_repeat(b, step, t, 1);
    bench_trace(b, traced_step, t);
    bench_set(b, "loss", json_real(t->loss));
    for (int i = 0; i < 2; i++) tow_array_release(t->batch[i]);
    tow_train_free(t->state);
}

/* ---- calls of a loss with its gradients -------------------------------------------------------------------------- */

typedef struct call {
    tow_program *program;
    tow_array **inputs, **outputs;
    int64_t times;
} call;

static tow_status run(void *user)
{
    const call *c = user;
    for (int64_t i = 0; i < c->times; i++) {
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

/* The loss, with its gradients with respect to the parameters unless it is `alone`, compiled. */
static tow_graph *compile(bench *b, const tow_module *model, const tow_params *params, tow_type x, bool alone, call *c)
{
    tow_graph *loss = NULL, *gradient = NULL;
    const size_t n = tow_params_count(params);
    size_t *wrt = calloc(n + 1, sizeof *wrt);
    if (!wrt) bench_fail("out of memory");
    for (size_t i = 0; i < n; i++) wrt[i] = i;
    const double start = bench_now();
    bench_check(b, tow_model_loss_graph(model, params, 1, &x, 0, NULL, square_loss, NULL, 0, NULL, &loss));
    if (alone)
        gradient = tow_graph_retain(loss);
    else
        bench_check(b, tow_value_and_grad(loss, n, wrt, false, &gradient));
    bench_check(b, tow_compile(b->context, gradient, NULL, &c->program));
    bench_set(b, "compile_seconds", json_real(bench_now() - start));
    bench_set_program_bytes(b, c->program);
    tow_graph_release(loss);
    free(wrt);
    return gradient;
}

void bench_run_model(bench *b, const tow_module *model, tow_type x, bool forward, int64_t calls)
{
    tow_params *params = NULL;
    call c = {.times = calls};
    bench_check(b, tow_model_init(b->context, model, 0, 1, &x, &params));
    tow_graph *gradient = compile(b, model, params, x, forward, &c);
    const size_t n = tow_params_count(params), n_out = tow_graph_output_count(gradient);
    c.inputs = calloc(n + 1, sizeof *c.inputs);
    c.outputs = calloc(n + 1, sizeof *c.outputs);
    if (!c.inputs || !c.outputs) bench_fail("out of memory");
    for (size_t i = 0; i < n; i++) c.inputs[i] = tow_array_retain(tow_params_array(params, i));
    bench_check(b, tow_array_create(b->context, x, &c.inputs[n]));
    bench_fill(c.inputs[n], 1, 1.7);
    for (size_t i = 0; i < n_out; i++)
        bench_check(b, tow_array_create(b->context, tow_graph_output_type(gradient, i), &c.outputs[i]));
    bench_repeat(b, run, &c, calls);
    bench_trace_program(b, c.program, c.inputs, c.outputs);
    bench_set_engines(b, c.program);
    bench_set(b, "loss", json_real(((float *)tow_array_data(c.outputs[0]))[0]));
    for (size_t i = 0; i <= n; i++) tow_array_release(c.inputs[i]);
    for (size_t i = 0; i <= n; i++) tow_array_release(c.outputs[i]);
    free(c.inputs);
    free(c.outputs);
    tow_program_free(c.program);
    tow_graph_release(gradient);
    tow_params_free(params);
}

/* ---- LSTM -------------------------------------------------------------------------------------------------------- */

static tow_value gate(tow_value gates, int64_t width, int i)
{
    return tow_slice_axis(gates, 1, i * width, (i + 1) * width);
}

/* in: h, c [batch, width], x [batch, width]; out: h, c, h. user: kernels and bias */
static void lstm_step(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    const tow_value *m = user;
    const int64_t width = tow_value_type(in[0]).dims[1];
    tow_value gates = tow_add(tow_add(tow_dot(in[2], m[0]), tow_dot(in[0], m[1])), m[2]);
    tow_value kept = tow_mul(tow_logistic(gate(gates, width, 0)), in[1]);
    tow_value c = tow_add(kept, tow_mul(tow_logistic(gate(gates, width, 1)), tow_tanh(gate(gates, width, 2))));
    tow_value h = tow_mul(tow_logistic(gate(gates, width, 3)), tow_tanh(c));
    out[0] = out[2] = h;
    out[1] = c;
}

void bench_lstm_loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_value m[3] = {in[0], in[1], in[2]}, last[2], all;
    const tow_type type = tow_value_type(in[3]);
    const tow_value zero = tow_full(trace, tow_make_type(TOW_F32, 2, type.dims + 1), 0), carry[2] = {zero, zero};
    (void)user;
    tow_scan_function(trace, lstm_step, m, NULL, 2, carry, 1, &in[3], 1, last, &all);
    out[0] = tow_reduce_sum(tow_square(all), 0, NULL);
}

/* An LSTM over a sequence, sum of the squares of all hidden states: value and gradients of its parameters.
 *
 *     lstm --length 512 --batch 16 --width 128
 *
 * xs [length, batch, width] are data. Useful flops: two products per gate and step forward, both weight gradients and
 * the gradient of the hidden state backward. */
#include "bench.h"

typedef struct cell {
    int64_t width;
    tow_value input, hidden, bias; /* [width, 4 width], [width, 4 width], [4 width] */
} cell;

static tow_value gate(const cell *c, tow_value gates, int i)
{
    return tow_slice_axis(gates, 1, i * c->width, (i + 1) * c->width);
}

/* in: h, c [batch, width], x [batch, width]; out: h, c, h */
static void step(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace;
    const cell *m = user;
    tow_value gates = tow_add(tow_add(tow_dot(in[2], m->input), tow_dot(in[0], m->hidden)), m->bias);
    tow_value kept = tow_mul(tow_logistic(gate(m, gates, 0)), in[1]);
    tow_value c = tow_add(kept, tow_mul(tow_logistic(gate(m, gates, 1)), tow_tanh(gate(m, gates, 2))));
    tow_value h = tow_mul(tow_logistic(gate(m, gates, 3)), tow_tanh(c));
    out[0] = out[2] = h;
    out[1] = c;
}

/* in: xs, input kernel, hidden kernel, bias */
static void loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    cell *m = user;
    m->input = in[1];
    m->hidden = in[2];
    m->bias = in[3];
    tow_type type = tow_value_type(in[0]);
    tow_value zero = tow_full(trace, tow_make_type(TOW_F32, 2, type.dims + 1), 0), carry[2] = {zero, zero}, last[2],
              all;
    tow_scan_function(trace, step, m, NULL, 2, carry, 1, in, 1, last, &all);
    out[0] = tow_reduce_sum(tow_square(all), 0, NULL);
}

int main(int argc, char **argv)
{
    bench b;
    int64_t length = 512, batch = 16, width = 128;
    const bench_option options[] = {{"length", .number = &length, .least = 1},
                                    {"batch", .number = &batch, .least = 1},
                                    {"width", .number = &width, .least = 1},
                                    {0}};
    bench_start(&b, "lstm", argc, argv, options);
    cell m = {.width = width};
    const tow_type types[] = {tow_make_type(TOW_F32, 3, (int64_t[]){length, batch, width}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){width, 4 * width}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){width, 4 * width}),
                              tow_make_type(TOW_F32, 1, (int64_t[]){4 * width})};
    bench_run_gradient(&b, &(bench_gradient){.loss = loss,
                                             .user = &m,
                                             .n_inputs = 4,
                                             .types = types,
                                             .scales = (const double[]){1.7, 0.15, 0.15, 0.1},
                                             .n_wrt = 3,
                                             .wrt = (const size_t[]){1, 2, 3}});
    return bench_finish(&b, 40.0 * (double)(batch * length) * (double)(width * width));
}

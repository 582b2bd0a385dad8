/* An LSTM over a sequence, sum of the squares of all hidden states: value and gradients of its parameters.
 *
 *     lstm --length 512 --batch 16 --width 128
 *
 * xs [length, batch, width] are data. Useful flops: two products per gate and step forward, both weight gradients and
 * the gradient of the hidden state backward. */
#include "models.h"

int main(int argc, char **argv)
{
    bench b;
    int64_t length = 512, batch = 16, width = 128;
    const bench_option options[] = {{"length", .number = &length, .least = 1},
                                    {"batch", .number = &batch, .least = 1},
                                    {"width", .number = &width, .least = 1},
                                    {0}};
    bench_start(&b, "lstm", argc, argv, options);
    const tow_type types[] = {tow_make_type(TOW_F32, 2, (int64_t[]){width, 4 * width}),
                              tow_make_type(TOW_F32, 2, (int64_t[]){width, 4 * width}),
                              tow_make_type(TOW_F32, 1, (int64_t[]){4 * width}),
                              tow_make_type(TOW_F32, 3, (int64_t[]){length, batch, width})};
    bench_run_gradient(&b, &(bench_gradient){.loss = bench_lstm_loss,
                                             .n_inputs = 4,
                                             .types = types,
                                             .scales = (const double[]){0.15, 0.15, 0.1, 1.7},
                                             .n_wrt = 3,
                                             .wrt = (const size_t[]){0, 1, 2}});
    return bench_finish(&b, 40.0 * (double)(batch * length) * (double)(width * width));
}

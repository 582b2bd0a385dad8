/* A recurrent layer over a sequence, sum of the squares of all its outputs: value and gradients of its parameters, or
 * the value alone.
 *
 *     rnn --cell lstm|gru --length 128 --batch 32 --width 256 [--batch-first] [--remat]
 *         [--dtype f32|mixed|mixed-f16|bf16|f16] [--forward]
 *
 * x [length, batch, width], or [batch, length, width], are data. Useful flops: with G gates (LSTM 4, GRU 3) 2 G
 * products of [width, width] per element forward; backward the gradients of all kernels and of the hidden state. */
#include <string.h>

#include "models.h"

int main(int argc, char **argv)
{
    bench b;
    int64_t length = 128, batch = 32, width = 256;
    const char *kind = "lstm", *dtype = "f32";
    bool batch_first = false, remat = false, forward = false;
    const bench_option options[] = {{"cell", .text = &kind},
                                    {"length", .number = &length, .least = 1},
                                    {"batch", .number = &batch, .least = 1},
                                    {"width", .number = &width, .least = 1},
                                    {"batch-first", .flag = &batch_first},
                                    {"remat", .flag = &remat},
                                    {"dtype", .text = &dtype},
                                    {"forward", .flag = &forward},
                                    {0}};
    bench_start(&b, "rnn", argc, argv, options);
    tow_optimized_lstm_cell lstm = TOW_OPTIMIZED_LSTM_CELL(.features = width);
    tow_gru_cell gru = TOW_GRU_CELL(.features = width);
    bool is_gru = strcmp(kind, "gru") == 0;
    if (!is_gru && strcmp(kind, "lstm") != 0) bench_fail("rnn: --cell: expected lstm or gru, found '%s'", kind);
    tow_remat region = {.module = {&tow_remat_class, sizeof(tow_remat)},
                        .inner = is_gru ? TOW_MODULE(&gru) : TOW_MODULE(&lstm)};
    tow_rnn model = {.module = {&tow_rnn_class, sizeof(tow_rnn)},
                     .inner = remat ? TOW_MODULE(&region) : region.inner,
                     .time_major = !batch_first};
    const int64_t dims[] = {batch_first ? batch : length, batch_first ? length : batch, width};
    tow_precision precision;
    bench_run_model(&b, bench_with_dtypes(TOW_MODULE(&model), dtype, &precision), tow_make_type(TOW_F32, 3, dims),
                    forward, 1);
    const double gates = is_gru ? 3 : 4, products = forward ? 2 : 5;
    return bench_finish(&b, 2 * gates * products * (double)(batch * length) * (double)(width * width));
}

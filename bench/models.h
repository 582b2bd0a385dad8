/* Benchmarks of models: steps of a training, and calls of a loss with its gradients. */
#ifndef BENCH_MODELS_H
#define BENCH_MODELS_H

#include "bench.h"

/* The model in the element types of option --dtype, within *precision. */
const tow_module *bench_with_dtypes(const tow_module *model, const char *name, tow_precision *precision);

/* A training whose batches are two arrays. Zeros, but for .state, before the first call. */
typedef struct bench_training {
    tow_train_state *state;
    tow_array *batch[2]; /* inputs, labels */
    double loss;
} bench_training;

/* Makes the state, and adds create_seconds. */
void bench_create_training(bench *b, const tow_module *model, const tow_train_options *options, bench_training *t);
/* Makes array i of the batch, filled by bench_fill. */
void bench_make_batch(bench *b, bench_training *t, int i, tow_type type, double scale);
/* Times steps, traces one, adds the loss, and frees all of it. */
void bench_run_training(bench *b, bench_training *t);

/* Times so many calls at once of the sum of the squares of all that the model gives for an input of type x, with the
 * gradients of all its parameters unless it is `forward` alone; adds compile_seconds, bytes and the loss. */
void bench_run_model(bench *b, const tow_module *model, tow_type x, bool forward, int64_t calls);

/* The sum of the squares of all hidden states of an LSTM (tow_function). in: kernels of inputs and of hidden states
 * [width, 4 width], bias [4 width], xs [length, batch, width]. */
void bench_lstm_loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user);

#endif

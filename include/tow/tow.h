/* Tow: neural-network layers, autodiff with rematerialization, and compiled training programs in C.
 *
 * This program learns y = sin(3x); README.md says how to compile it.
 *
 *     #include <math.h>
 *     #include <stdio.h>
 *     #include <tow/tow.h>
 *
 *     // Mean squared error of the model's result y[0] against the labels.
 *     static void squared_error(tow_trace *trace, const tow_value *y, const tow_value *labels, tow_value *loss,
 *                               tow_value *aux, void *user)
 *     {
 *         *loss = tow_mean(tow_square(tow_sub(y[0], labels[0])), 0, NULL);
 *     }
 *
 *     int main(void)
 *     {
 *         // Four hidden layers as one loop, in which backward recomputes all but the products.
 *         tow_dense first = TOW_DENSE(.features = 32), last = TOW_DENSE(.features = 1);
 *         tow_mlp hidden = TOW_MLP(.features = {32}, .activation = tow_tanh, .activate_last = true);
 *         tow_remat cheap = TOW_REMAT(&hidden, .policy = tow_dots_saveable());
 *         tow_scan stack = TOW_SCAN(&cheap, .length = 4);
 *         tow_sequential model = TOW_SEQUENTIAL(TOW_MODULE(&first), TOW_MODULE(&stack), TOW_MODULE(&last));
 *
 *         float x[64], y[64]; // y = sin(3x)
 *         for (int i = 0; i < 64; i++) y[i] = sinf(3 * (x[i] = (float)i / 32 - 1));
 *         tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){64, 1});
 *         tow_train_options options = TOW_TRAIN_OPTIONS(
 *             .optimizer = {.learning_rate = tow_schedule_constant(1e-3)}, .loss = squared_error,
 *             .n_inputs = 1, .input_types = &type, .n_extra = 1, .extra_types = &type);
 *         tow_context *context = NULL;
 *         tow_train_state *state = NULL;
 *         tow_array *batch[2] = {NULL, NULL};
 *         double loss = 0;
 *         tow_status status = tow_context_create(NULL, &context);
 *         if (!status) status = tow_array_from_data(context, type, x, &batch[0]);
 *         if (!status) status = tow_array_from_data(context, type, y, &batch[1]);
 *         if (!status) status = tow_train_create(context, TOW_MODULE(&model), &options, &state);
 *         for (int step = 0; !status && step <= 500; step++) {
 *             status = tow_train_step(state, batch, &loss);
 *             if (step % 100 == 0) printf("step %3d  loss %.6f\n", step, loss);
 *         }
 *         if (status) fprintf(stderr, "%s\n", tow_context_error(context));
 *         tow_train_free(state);
 *         tow_array_release(batch[0]);
 *         tow_array_release(batch[1]);
 *         tow_context_free(context);
 *         return status;
 *     }
 *
 * C11 and later, C++17 and later. In C++, which has no compound literals, shapes and axes are arrays in variables where
 * the comments of these headers write (int64_t[]){3, 4}, and macros of layers take no options (module.h); tow/tow.hpp
 * has layers with options for C++.
 *
 * Each header below is the manual of its part; docs/README.md leads through the pages. */
#ifndef TOW_TOW_H
#define TOW_TOW_H

/* The base: status, context, arrays; traced values and graphs; compiled programs. */
#include "tow/base.h"
#include "tow/graph.h"
#include "tow/program.h"

/* Operations: primitives; the vocabulary of jax.numpy and jax.nn; jax.random; choices and loops. */
#include "tow/control.h"
#include "tow/numpy.h"
#include "tow/ops.h"
#include "tow/random.h"

/* Derivatives, remat, vmap; operations and C functions of one's own, kernels, checks. */
#include "tow/autodiff.h"
#include "tow/check.h"
#include "tow/kernel.h"
#include "tow/primitive.h"

/* Models: what layers are made of; layers; transforms of layers. */
#include "tow/attention.h"
#include "tow/layers.h"
#include "tow/module.h"
#include "tow/recurrent.h"
#include "tow/transforms.h"

/* Models as functions: lists of parameters; forward, loss and gradients; generation. */
#include "tow/generate.h"
#include "tow/model.h"
#include "tow/params.h"

/* Training: gradient transforms and schedules; optimizers; train state, loops, checkpoints; data; metrics and logs. */
#include "tow/data.h"
#include "tow/gradient_transforms.h"
#include "tow/log.h"
#include "tow/optimizer.h"
#include "tow/train.h"

/* Files: arrays, safetensors and GGUF; weights and tokenizers of other programs. */
#include "tow/gguf.h"
#include "tow/io.h"
#include "tow/tokenizer.h"
#include "tow/weights.h"

/* Many processes, on one machine or on many. tow/mpi.h, which needs a library of its own, is not among these. */
#include "tow/group.h"

#endif

/* Metrics of a training loop by name: what an evaluation adds up besides the loss. */
#ifndef TOW_SRC_TRAIN_LOOP_METRICS_H
#define TOW_SRC_TRAIN_LOOP_METRICS_H

#include "src/train/state.h"
#include "tow/log.h"

/* The sums of one evaluation; as many as the loop has metrics. */
typedef struct tow__loop_metrics {
    tow_accuracy accuracy[TOW_MAX_METRICS];
    tow_statistics mean[TOW_MAX_METRICS];
} tow__loop_metrics;

/* Error: TOW_INVALID_ARGUMENT with the metric that the state cannot compute. */
tow_status tow__loop_metrics_check(const tow_train_state *state, const tow_train_loop *loop);
/* The beginning of an evaluation. */
void tow__loop_metrics_begin(const tow_train_loop *loop, tow__loop_metrics *metrics);
/* After the evaluation of a batch. */
tow_status tow__loop_metrics_add(const tow_train_loop *loop, tow__loop_metrics *metrics, tow_train_state *state,
                                 tow_array *const *inputs);
/* The values of all metrics. loss: the mean of the evaluation. */
void tow__loop_metrics_values(const tow_train_loop *loop, const tow__loop_metrics *metrics, double loss,
                              double values[TOW_MAX_METRICS]);
/* The index of the metric of that name, or -1. */
int tow__loop_metric(const tow_train_loop *loop, const char *name);

#endif

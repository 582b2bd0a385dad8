/* Metrics of a training loop by name: what an evaluation adds up besides the loss. */
#ifndef TOW_SRC_TRAIN_LOOP_METRICS_H
#define TOW_SRC_TRAIN_LOOP_METRICS_H

#include "src/train/state.h"
#include "tow/log.h"

/* The sums of one metric over the rows of one row group. */
typedef struct tow__metric_sums {
    tow_accuracy accuracy;
    tow_statistics mean;
} tow__metric_sums;

/* The sums of one evaluation. Rows of one row group are added up in their order, batch after batch, and the sums of
 * groups as the tree goes on: the same bits for every number of processes, each of which adds up its groups. */
typedef struct tow__loop_metrics {
    tow__metric_sums *sums; /* [row groups of all processes][n_metrics]; [0][...] are those of all in the end */
    size_t n, groups;
} tow__loop_metrics;

/* Error: TOW_INVALID_ARGUMENT with the metric that the state cannot compute. */
tow_status tow__loop_metrics_check(const tow_train_state *state, const tow_train_loop *loop);
/* Error: TOW_OUT_OF_MEMORY. Free also after an error. */
tow_status tow__loop_metrics_create(const tow_train_state *state, const tow_train_loop *loop,
                                    tow__loop_metrics *metrics);
void tow__loop_metrics_free(const tow_train_state *state, tow__loop_metrics *metrics);
/* The beginning of an evaluation. */
void tow__loop_metrics_begin(const tow_train_loop *loop, tow__loop_metrics *metrics);
/* After the evaluation of a batch. */
tow_status tow__loop_metrics_add(const tow_train_loop *loop, tow__loop_metrics *metrics, tow_train_state *state,
                                 tow_array *const *inputs);
/* The values of all metrics over the rows of all processes; collective. loss: the mean of the evaluation. Error:
 * TOW_INVALID_ARGUMENT for a metric of functions that gives processes different numbers. */
tow_status tow__loop_metrics_values(const tow_train_loop *loop, tow__loop_metrics *metrics, tow_train_state *state,
                                    double loss, double values[TOW_MAX_METRICS]);
/* The index of the metric of that name, or -1. */
int tow__loop_metric(const tow_train_loop *loop, const char *name);

#endif

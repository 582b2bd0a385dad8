/* Rows of scores and their labels, as metrics read them. */
#ifndef TOW_SRC_TRAIN_SCORES_H
#define TOW_SRC_TRAIN_SCORES_H

#include "tow/base.h"

typedef struct tow__scores {
    const tow_array *scores, *labels, *mask; /* mask: may be NULL */
    int64_t rows, classes;                   /* classes: of the axis of scores, or of the caller if there is none */
    bool plain;                              /* scores have the shape of the labels */
} tow__scores;

/* Checks types, shapes and labels. classes: how many there are where the scores do not say so. */
tow_status tow__scores_check(const char *function, tow__scores *scores, int64_t classes);
bool tow__scores_counts(const tow__scores *scores, int64_t row);
int64_t tow__scores_label(const tow__scores *scores, int64_t row);
double tow__scores_value(const tow__scores *scores, int64_t row, int64_t index);
/* The number of scores of the row that come before that of the label; the number of classes if one is NaN. */
int64_t tow__scores_rank(const tow__scores *scores, int64_t row);

#endif

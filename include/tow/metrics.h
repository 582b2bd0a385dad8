/* Metrics over many batches: accuracy, top-k, means and deviations, perplexity, confusion counts. They run on the host,
 * over arrays that steps and evaluations hand out (tow_train_aux). Counts are integers, so a metric does not depend on
 * how examples are spread over batches.
 *
 *     tow_accuracy accuracy = {0};
 *     for (each batch) {
 *         tow_train_evaluate(state, batch, &loss);
 *         tow_accuracy_add(&accuracy, tow_train_aux(state, 0), labels, NULL);
 *     }
 *     printf("%.1f %%\n", 100 * tow_accuracy_value(&accuracy));
 */
#ifndef TOW_METRICS_H
#define TOW_METRICS_H

#include "tow/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- means ------------------------------------------------------------------------------------------------------- */

/* Numbers one after the other: how many, their mean, and the sum of the squares of their distances from it (Welford,
 * 1962). A struct of zeros is a beginning. */
typedef struct tow_statistics {
    int64_t count;
    double mean, squares;
} tow_statistics;

TOW_API void tow_statistics_add(tow_statistics *statistics, double value);
/* Every element of an array of any numeric type. Error: TOW_INVALID_ARGUMENT for NULL. */
TOW_API tow_status tow_statistics_add_array(tow_statistics *statistics, const tow_array *values);
/* As if the numbers of `other` had been added. (Chan and others, 1979) */
TOW_API void tow_statistics_merge(tow_statistics *statistics, const tow_statistics *other);
/* squares / count, and its root; NAN without numbers. */
TOW_API double tow_statistics_variance(const tow_statistics *statistics);
TOW_API double tow_statistics_deviation(const tow_statistics *statistics);
/* Of the mean: deviation / sqrt(count). */
TOW_API double tow_statistics_error(const tow_statistics *statistics);

/* sum(weight value) / sum(weight): losses of batches of several sizes, with the sizes as weights. A struct of zeros is
 * a beginning. */
typedef struct tow_weighted_mean {
    double sum, weight;
} tow_weighted_mean;

/* A value of weight 0 counts for nothing, NaN included. */
TOW_API void tow_weighted_mean_add(tow_weighted_mean *mean, double value, double weight);
/* NAN while all weights are 0. */
TOW_API double tow_weighted_mean_value(const tow_weighted_mean *mean);
/* exp of the mean: of cross-entropies of tokens, weighted by their number. */
TOW_API double tow_perplexity(const tow_weighted_mean *mean);

/* ---- accuracy ---------------------------------------------------------------------------------------------------- */

/* A struct of zeros is a beginning. */
typedef struct tow_accuracy {
    int64_t correct, total;
} tow_accuracy;

typedef struct tow_accuracy_options {
    size_t size TOW__SIZE(tow_accuracy_options); /* set by TOW_ACCURACY_OPTIONS */
    int64_t k;                                   /* correct if the label is among the k largest scores; 0: 1 */
    double threshold;                            /* of scores without an axis of classes */
    const tow_array *mask;                       /* bool, as the labels: only examples with true count; NULL: all */
} tow_accuracy_options;
#define TOW_ACCURACY_OPTIONS(...) TOW__OPTIONS(tow_accuracy_options, __VA_ARGS__)

/* scores: float [..., classes], labels: integers [...]. The label's score counts as larger than equal ones behind it
 * (jax.numpy.argmax, jax.lax.top_k). A row with a NaN is never correct. scores of the labels' own shape: class 1 where
 * the score is above the threshold, else class 0. options may be NULL.
 * Errors: TOW_TYPE_MISMATCH and TOW_SHAPE_MISMATCH; TOW_INVALID_ARGUMENT for a label that is no class, with its index.
 * Then nothing was added. */
TOW_API tow_status tow_accuracy_add(tow_accuracy *accuracy, const tow_array *scores, const tow_array *labels,
                                    const tow_accuracy_options *options);
/* correct / total; NAN without examples. */
TOW_API double tow_accuracy_value(const tow_accuracy *accuracy);

/* ---- confusion counts -------------------------------------------------------------------------------------------- */

typedef struct tow_confusion tow_confusion;

/* Error: TOW_INVALID_ARGUMENT for less than 2 classes. */
TOW_API tow_status tow_confusion_create(tow_context *context, int64_t classes, tow_confusion **confusion);
/* NULL is accepted. */
TOW_API void tow_confusion_free(tow_confusion *confusion);
/* predictions: scores, float [..., classes], of which the largest is predicted; or classes, integers [...] as the
 * labels. mask: as above, or NULL. Errors: as tow_accuracy_add; a row of scores with a NaN predicts nothing, which is
 * TOW_INVALID_ARGUMENT. */
TOW_API tow_status tow_confusion_add(tow_confusion *confusion, const tow_array *predictions, const tow_array *labels,
                                     const tow_array *mask);
TOW_API void tow_confusion_reset(tow_confusion *confusion);
TOW_API int64_t tow_confusion_class_count(const tow_confusion *confusion);
/* [classes, classes], row-major: how often label i (row) was predicted as j (column). */
TOW_API const int64_t *tow_confusion_counts(const tow_confusion *confusion);
/* Share of the diagonal; NAN without examples. */
TOW_API double tow_confusion_accuracy(const tow_confusion *confusion);

/* precision: of those that were predicted so, how many are; recall: of those that are, how many were predicted so; f1:
 * 2 precision recall / (precision + recall). A ratio 0/0 is 0, as in scikit-learn. */
typedef struct tow_precision_recall {
    double precision, recall, f1;
    int64_t support; /* examples */
} tow_precision_recall;

/* Of one class, in [0, classes). */
TOW_API tow_precision_recall tow_confusion_class(const tow_confusion *confusion, int64_t index);
typedef enum tow_class_average {
    TOW_MACRO,   /* each class counts the same */
    TOW_MICRO,   /* each example counts the same: all three are the accuracy */
    TOW_WEIGHTED /* each class counts by its examples */
} tow_class_average;
TOW_API tow_precision_recall tow_confusion_average(const tow_confusion *confusion, tow_class_average average);
/* A table of counts, precision, recall and F1; like snprintf. */
TOW_API size_t tow_confusion_text(const tow_confusion *confusion, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif

/* Metrics of models over many batches, logs of a training, and pictures of images and of curves. */
#ifndef TOW_LOG_H
#define TOW_LOG_H

#include "tow/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== metrics ===================================================================================================== */

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

/* ==== logs and pictures =========================================================================================== */

/* Loggers write numbers, images and histograms, as JSON lines and for TensorBoard; pictures show images and curves.
 *
 *     tow_logger_create(context, &TOW_LOGGER_OPTIONS(.lines = "train.jsonl", .events = "runs/first"), &log);
 *     tow_logger_numbers(log, step, 2, (tow_log_number[]){{"loss", loss}, {"accuracy", accuracy}});
 *     tow_logger_free(log);
 *
 * `tow plot train.jsonl -o loss.svg` draws the curves, `tensorboard --logdir runs` shows them as they grow. */

/* ---- logs -------------------------------------------------------------------------------------------------------- */

typedef struct tow_logger tow_logger;

/* Zero means the default. */
typedef struct tow_logger_options {
    size_t size TOW__SIZE(tow_logger_options); /* set by TOW_LOGGER_OPTIONS */
    const char *lines;                         /* a file of JSON lines, a pipe or a terminal; NULL: none */
    const char *events; /* a directory for a new file of events, made with those above it; NULL: none */
    /* Steps that were done before: of the file of lines, those of later steps, and a line that is not finished, are cut
     * off. Events in other files stay, and TensorBoard is told that later steps are void. 0: the file of lines begins
     * anew. */
    int64_t first;
} tow_logger_options;
#define TOW_LOGGER_OPTIONS(...) TOW__OPTIONS(tow_logger_options, __VA_ARGS__)
/* Every entry is handed to the system at once, one write for each call, so that a killed process loses nothing of it.
 * Errors: TOW_IO_ERROR with the path. */
TOW_API tow_status tow_logger_create(tow_context *context, const tow_logger_options *options, tow_logger **log);
/* Closes the files and frees the log, also after an error. NULL is accepted. Error: TOW_IO_ERROR. */
TOW_API tow_status tow_logger_free(tow_logger *log);

typedef struct tow_log_number {
    const char *name; /* "loss"; not "step" */
    double value;
} tow_log_number;
/* One line {"step": 7, "loss": 2.25, ...}, in which numbers that are not finite are null, and an event for each number,
 * as f32. Errors: TOW_IO_ERROR with the path, TOW_INVALID_ARGUMENT for names. */
TOW_API tow_status tow_logger_numbers(tow_logger *log, int64_t step, size_t n, const tow_log_number *numbers);
/* For TensorBoard alone: pixels as in tow_png_write; a histogram of all elements that are finite, in 30 equally wide
 * buckets. Errors: also TOW_TYPE_MISMATCH. */
TOW_API tow_status tow_logger_image(tow_logger *log, int64_t step, const char *name, const tow_array *pixels);
TOW_API tow_status tow_logger_histogram(tow_logger *log, int64_t step, const char *name, const tow_array *values);
/* Waits until all of it is on the disk. */
TOW_API tow_status tow_logger_sync(tow_logger *log);
/* The file of events; NULL: none. */
TOW_API const char *tow_logger_events_path(const tow_logger *log);

/* A number in a file of events. */
typedef struct tow_log_entry {
    int64_t step;
    double wall_time; /* seconds since 1970 */
    const char *name; /* lives as long as the call */
    double value;
} tow_log_entry;
/* Any status but TOW_OK ends the reading and is its result. */
typedef tow_status (*tow_log_visitor)(const tow_log_entry *entry, void *user);
/* Calls `visit` for each number of a file of events, also of those that TensorFlow and PyTorch write, in its order.
 * Error: TOW_BAD_FORMAT with the record's number and offset, after all those before it were visited: of a file that is
 * being written, the last record may be there in part. */
TOW_API tow_status tow_events_read(tow_context *context, const char *path, tow_log_visitor visit, void *user);

/* ---- pictures of arrays ------------------------------------------------------------------------------------------ */

/* Writes pixels as a PNG: u8 [height, width] or [height, width, channels] with 1 channel (gray), 3 (RGB) or 4 (RGBA).
 * The bytes of the file depend on the pixels, and on the version of zlib, alone; it is the old one or the whole new
 * one, as all files of tow/io.h.
 * Errors: TOW_TYPE_MISMATCH for other arrays and for sides of 0 or more than 2^31 - 1, TOW_IO_ERROR with the path. */
TOW_API tow_status tow_png_write(tow_context *context, const char *path, const tow_array *pixels);

/* Zero means the default. */
typedef struct tow_grid_options {
    size_t size TOW__SIZE(tow_grid_options); /* set by TOW_GRID_OPTIONS */
    int64_t columns;                         /* images side by side; 0: as many as make the grid about square */
    int64_t zoom;                            /* each pixel becomes a square of so many; 0: 1 */
    int64_t gap;                             /* pixels between images and around them; 0: the zoom; -1: none */
    double low, high; /* values of black and of white; both 0: 0 and 255 for u8, 0 and 1 for other types */
    uint8_t ground;   /* of the gaps: 0 is black */
} tow_grid_options;
#define TOW_GRID_OPTIONS(...) TOW__OPTIONS(tow_grid_options, __VA_ARGS__)
/* Lays images [n, height, width] or [n, height, width, channels], of any element type, out row by row: u8 pixels for
 * tow_png_write. Values beyond low and high are black and white, NaN is black. options may be NULL. Errors:
 * TOW_TYPE_MISMATCH, TOW_INVALID_ARGUMENT, TOW_OUT_OF_MEMORY. */
TOW_API tow_status tow_image_grid(tow_context *context, const tow_array *images, const tow_grid_options *options,
                                  tow_array **pixels);

/* ---- charts ------------------------------------------------------------------------------------------------------ */

/* Points (x[i], y[i]) that a line joins. One that is not finite, or beyond 1e300, or has no logarithm where its axis
 * needs it, is left out and interrupts the line. */
typedef struct tow_series {
    const char *name; /* in the legend; NULL or "": not there */
    size_t n;
    const double *x, *y;
} tow_series;

/* A point with a name that stands beside it. */
typedef struct tow_chart_mark {
    const char *name;
    double x, y;
} tow_chart_mark;

/* Zero means the default. */
typedef struct tow_chart {
    size_t size TOW__SIZE(tow_chart);      /* set by TOW_CHART */
    const char *title, *x_label, *y_label; /* NULL: none */
    size_t n_series;
    const tow_series *series;
    bool log_x, log_y; /* logarithmic axes */
    /* From 0 to below 1. s_i = smoothing s_(i-1) + (1 - smoothing) y_i, divided by 1 - smoothing^i: the moving average
     * of TensorBoard. The points themselves are drawn pale behind it. */
    double smoothing;
    double y_low, y_high; /* both 0: as far as the points reach */
    int width, height;    /* in pixels; 0: 720 and 420 */
    bool steps;           /* y stays what it is up to the next x, and points are dots */
    size_t n_marks;
    const tow_chart_mark *marks;
} tow_chart;
#define TOW_CHART(...) TOW__OPTIONS(tow_chart, __VA_ARGS__)
/* Draws a chart as SVG, with ticks, grid and legend; the ground is dark where the system is. Errors:
 * TOW_INVALID_ARGUMENT, TOW_OUT_OF_MEMORY, TOW_IO_ERROR with the path. */
TOW_API tow_status tow_chart_write(tow_context *context, const char *path, const tow_chart *chart);

#ifdef __cplusplus
}
#endif
#endif

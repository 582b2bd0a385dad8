/* Reports of a training: logs of numbers, images and histograms, as JSON lines and for TensorBoard, and pictures of
 * images and of curves.
 *
 *     tow_logger_create(context, &TOW_LOGGER_OPTIONS(.lines = "train.jsonl", .events = "runs/first"), &log);
 *     tow_logger_numbers(log, step, 2, (tow_log_number[]){{"loss", loss}, {"accuracy", accuracy}});
 *     tow_logger_free(log);
 *
 * `tow plot train.jsonl -o loss.svg` draws the curves, `tensorboard --logdir runs` shows them as they grow. */
#ifndef TOW_LOG_H
#define TOW_LOG_H

#include "tow/base.h"

#ifdef __cplusplus
extern "C" {
#endif

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
typedef tow_status (*tow_log_visitor)(void *user, const tow_log_entry *entry);
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
} tow_chart;
#define TOW_CHART(...) TOW__OPTIONS(tow_chart, __VA_ARGS__)
/* Draws a chart as SVG, with ticks, grid and legend. Errors: TOW_INVALID_ARGUMENT, TOW_OUT_OF_MEMORY, TOW_IO_ERROR with
 * the path. */
TOW_API tow_status tow_chart_write(tow_context *context, const char *path, const tow_chart *chart);

#ifdef __cplusplus
}
#endif
#endif

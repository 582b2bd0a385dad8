/* What is seen of a training: pictures of images and of curves. */
#ifndef TOW_LOG_H
#define TOW_LOG_H

#include "tow/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- pictures of arrays ------------------------------------------------------------------------------------------ */

/* Writes pixels as a PNG: u8 [height, width] or [height, width, channels] with 1 channel (grey), 3 (RGB) or 4 (RGBA). The bytes of
 * the file depend on the pixels, and on the version of zlib, alone; it is the old one or the whole new one, as all files of tow/io.h.
 * Errors: TOW_TYPE_MISMATCH for other arrays and for sides of 0 or more than 2^31 - 1, TOW_IO_ERROR with the path. */
TOW_API tow_status tow_png_write(const char *path, const tow_array *pixels, tow_context *context);

/* Zero means the default. */
typedef struct tow_grid_options {
    int64_t columns;  /* images side by side; 0: as many as make the grid about square */
    int64_t zoom;     /* each pixel becomes a square of so many; 0: 1 */
    int64_t gap;      /* pixels between images and around them; 0: the zoom; -1: none */
    double low, high; /* values of black and of white; both 0: 0 and 255 for u8, 0 and 1 for other types */
    uint8_t ground;   /* of the gaps: 0 is black */
} tow_grid_options;
/* Lays images [n, height, width] or [n, height, width, channels], of any element type, out row by row: u8 pixels for
 * tow_png_write. Values beyond low and high are black and white, NaN is black. options may be NULL. Errors:
 * TOW_TYPE_MISMATCH, TOW_INVALID_ARGUMENT, TOW_OUT_OF_MEMORY. */
TOW_API tow_status tow_image_grid(tow_context *context, const tow_array *images, const tow_grid_options *options,
                                  tow_array **pixels);

/* ---- charts ------------------------------------------------------------------------------------------------------ */

/* Points (x[i], y[i]) that a line joins. One that is not finite, or beyond 1e300, or has no logarithm where its axis needs it, is
 * left out and interrupts the line. */
typedef struct tow_series {
    const char *name; /* in the legend; NULL or "": not there */
    size_t n;
    const double *x, *y;
} tow_series;

/* Zero means the default. */
typedef struct tow_chart {
    const char *title, *x_label, *y_label; /* NULL: none */
    size_t n_series;
    const tow_series *series;
    bool log_x, log_y; /* logarithmic axes */
    /* From 0 to below 1. s_i = smoothing s_(i-1) + (1 - smoothing) y_i, divided by 1 - smoothing^i: the moving average of
     * TensorBoard. The points themselves are drawn pale behind it. */
    double smoothing;
    double y_low, y_high; /* both 0: as far as the points reach */
    int width, height;    /* in pixels; 0: 720 and 420 */
} tow_chart;
/* Draws a chart as SVG, with ticks, grid and legend. Errors: TOW_INVALID_ARGUMENT, TOW_OUT_OF_MEMORY, TOW_IO_ERROR with the path. */
TOW_API tow_status tow_chart_write(const char *path, const tow_chart *chart, tow_context *context);

#ifdef __cplusplus
}
#endif
#endif

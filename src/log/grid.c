/* Images side by side. */
#include <math.h>

#include "src/base/base.h"
#include "src/base/options.h"
#include "tow/log.h"

typedef struct grid {
    int64_t n, height, width, channels; /* of the images */
    int64_t columns, rows, zoom, gap;
    double low, high;
} grid;

static tow_status read_options(tow_context *ctx, tow_type type, const tow_grid_options *o, grid *g)
{
    const bool bytes = type.dtype == TOW_U8, wide = o->low != 0 || o->high != 0;
    if ((type.rank != 3 && type.rank != 4) || tow_type_element_count(type) == 0)
        return tow__fail(ctx, TOW_TYPE_MISMATCH,
                         "expected images [n, height, width] or [n, height, width, channels], not empty, found %s",
                         tow__type_name(type).text);
    if (o->columns < 0 || o->zoom < 0 || o->gap < -1)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "expected a grid with columns and zoom of at least 0 and a gap of at least -1, found %lld, "
                         "%lld and %lld",
                         (long long)o->columns, (long long)o->zoom, (long long)o->gap);
    if (wide && !(o->low < o->high && isfinite(o->low) && isfinite(o->high)))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected low below high, both finite, found %g and %g", o->low,
                         o->high);
    *g = (grid){.n = type.dims[0],
                .height = type.dims[1],
                .width = type.dims[2],
                .channels = type.rank == 4 ? type.dims[3] : 1,
                .columns = o->columns,
                .zoom = o->zoom > 0 ? o->zoom : 1,
                .low = o->low,
                .high = wide    ? o->high
                        : bytes ? 255
                                : 1};
    g->gap = o->gap == -1 ? 0 : o->gap > 0 ? o->gap : g->zoom;
    if (g->columns == 0) g->columns = (int64_t)ceil(sqrt((double)g->n));
    if (g->columns > g->n) g->columns = g->n;
    g->rows = (g->n - 1) / g->columns + 1;
    return TOW_OK;
}

/* Sides of the grid; one beyond 2^31 - 1 is refused before anything is computed with it. */
static tow_status measure(tow_context *ctx, const grid *g, int64_t *height, int64_t *width)
{
    const double h = (double)g->rows * ((double)g->height * (double)g->zoom + (double)g->gap) + (double)g->gap;
    const double w = (double)g->columns * ((double)g->width * (double)g->zoom + (double)g->gap) + (double)g->gap;
    *height = *width = 0;
    if (h > INT32_MAX || w > INT32_MAX)
        return tow__fail(
            ctx, TOW_INVALID_ARGUMENT,
            "expected a grid of at most 2147483647 pixels each way, found %.0f x %.0f; use fewer images or "
            "less zoom",
            h, w);
    *height = (int64_t)h;
    *width = (int64_t)w;
    return TOW_OK;
}

static unsigned char shade(const grid *g, double value)
{
    const double x = (value - g->low) / (g->high - g->low);
    return x >= 1 ? 255 : x > 0 ? (unsigned char)lrint(255 * x) : 0; /* NaN: 0 */
}

static void draw_image(const grid *g, const double *from, unsigned char *to, int64_t row)
{
    for (int64_t y = 0; y < g->height * g->zoom; y++)
        for (int64_t x = 0; x < g->width * g->zoom; x++)
            for (int64_t c = 0; c < g->channels; c++)
                to[y * row + x * g->channels + c] =
                    shade(g, from[((y / g->zoom) * g->width + x / g->zoom) * g->channels + c]);
}

tow_status tow_image_grid(tow_context *context, const tow_array *images, const tow_grid_options *options,
                          tow_array **pixels)
{
    if (pixels) *pixels = NULL;
    if (!context || !images || !pixels)
        return tow__missing(context, __func__, "a context, images and a place for the pixels");
    tow_grid_options own;
    if (!TOW__OPTIONS_TAKE(context, tow_grid_options, options, &own)) return TOW_INVALID_ARGUMENT;
    static const tow_grid_options none = TOW_GRID_OPTIONS();
    const tow_grid_options *o = options ? options : &none;
    tow_array *values = NULL, *made = NULL;
    grid g = {0};
    int64_t height, width;
    tow_status status = TOW_OK;
    TRY(read_options(context, tow_array_type(images), o, &g));
    TRY(measure(context, &g, &height, &width));
    TRY(tow_array_convert(images, TOW_F64, &values));
    const int64_t dims[] = {height, width, g.channels};
    TRY(tow_array_create(context, tow_make_type(TOW_U8, g.channels > 1 ? 3 : 2, dims), &made));
    unsigned char *to = tow_array_data(made);
    const double *from = tow_array_data(values);
    memset(to, o->ground, tow_type_bytes(tow_array_type(made)));
    for (int64_t i = 0; i < g.n; i++) {
        const int64_t y = g.gap + i / g.columns * (g.height * g.zoom + g.gap);
        const int64_t x = g.gap + i % g.columns * (g.width * g.zoom + g.gap);
        draw_image(&g, from + i * g.height * g.width * g.channels, to + (y * width + x) * g.channels,
                   width * g.channels);
    }
done:
    tow_array_release(values);
    if (status == TOW_OK)
        *pixels = made;
    else
        tow_array_release(made);
    return status;
}

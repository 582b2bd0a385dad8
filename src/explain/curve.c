/* Curves of bytes against time, with other plans marked beside them: as a table, and as a chart. */
#include <float.h>
#include <stdio.h>

#include "src/base/arithmetic.h"
#include "src/base/base.h"
#include "src/base/locale.h"
#include "src/base/options.h"
#include "tow/log.h"
#include "tow/program.h"

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* One line; `last`: the fastest plan of the curve. */
static void add_row(char *text, size_t size, size_t *at, const tow_memory_point *p, const tow_memory_point *last,
                    const char *name)
{
    const size_t rest = *at < size ? size - *at : 0;
    const int n =
        snprintf(rest ? text + *at : NULL, rest, "%11zu    %5.3f          %5.3f %14.0f%s%s\n", p->bytes,
                 (double)p->bytes / (double)last->bytes, p->seconds / last->seconds, p->flops, *name ? "  " : "", name);
    if (n > 0) *at += (size_t)n;
}

static void add_head(char *text, size_t size, size_t *at, const char *head)
{
    const size_t rest = *at < size ? size - *at : 0;
    const int n = snprintf(rest ? text + *at : NULL, rest, "%s\n", head);
    if (n > 0) *at += (size_t)n;
}

size_t tow_memory_curve_text(size_t n, const tow_memory_point *points, size_t n_marks, const tow_memory_mark *marks,
                             char *text, size_t size)
{
    size_t at = 0;
    if (n == 0 || !points || (n_marks && !marks)) return 0;
    if (size) text[0] = '\0';
    const tow__locale locale = tow__locale_enter();
    add_head(text, size, &at, "      bytes  of most  of least time     operations");
    for (size_t i = 0; i < n; i++) add_row(text, size, &at, &points[i], &points[n - 1], "");
    if (n_marks) add_head(text, size, &at, "\n      bytes  of most  of least time     operations  policy");
    for (size_t i = 0; i < n_marks; i++)
        add_row(text, size, &at, &marks[i].point, &points[n - 1], marks[i].name ? marks[i].name : "");
    tow__locale_leave(locale);
    return at;
}

/* ---- the chart --------------------------------------------------------------------------------------------------- */

typedef struct drawing {
    double *x, *y; /* [n] of the curve */
    tow_chart_mark *marks;
    double slowest; /* as a ratio to the fastest */
} drawing;

/* The unit in which the axis has at least two digits. */
static const char *unit_of(double most, double *bytes)
{
    static const char *const labels[] = {"bytes", "bytes (KiB)", "bytes (MiB)", "bytes (GiB)", "bytes (TiB)"};
    size_t i = 0;
    *bytes = 1;
    for (; i < 4 && most >= 10 * 1024 * *bytes; i++) *bytes *= 1024;
    return labels[i];
}

static void fill(drawing *d, size_t n, const tow_memory_point *points, size_t n_marks, const tow_memory_mark *marks,
                 double unit)
{
    const double fastest = points[n - 1].seconds > 0 ? points[n - 1].seconds : DBL_MIN;
    for (size_t i = 0; i < n; i++) {
        d->x[i] = (double)points[i].bytes / unit;
        d->y[i] = points[i].seconds / fastest;
        if (d->y[i] > d->slowest) d->slowest = d->y[i];
    }
    for (size_t i = 0; i < n_marks; i++) {
        d->marks[i] =
            (tow_chart_mark){marks[i].name, (double)marks[i].point.bytes / unit, marks[i].point.seconds / fastest};
        if (d->marks[i].y > d->slowest) d->slowest = d->marks[i].y;
    }
}

static double most_bytes(size_t n, const tow_memory_point *points, size_t n_marks, const tow_memory_mark *marks)
{
    size_t most = points[n - 1].bytes;
    for (size_t i = 0; i < n_marks; i++)
        if (marks[i].point.bytes > most) most = marks[i].point.bytes;
    return (double)most;
}

tow_status tow_memory_curve_draw(tow_context *ctx, const char *path, size_t n, const tow_memory_point *points,
                                 size_t n_marks, const tow_memory_mark *marks)
{
    if (!ctx || !path || (n && !points) || (n_marks && !marks))
        return tow__missing(ctx, __func__, "a context, the path of a file, points and marks");
    if (n == 0) return tow__fail(ctx, TOW_INVALID_ARGUMENT, "tow_memory_curve_draw: expected points, found none");
    TOW__ARITHMETIC(false);
    double unit;
    const char *label = unit_of(most_bytes(n, points, n_marks, marks), &unit);
    drawing d = {.x = tow__alloc(ctx, 2 * n, sizeof *d.x), .marks = tow__alloc(ctx, n_marks + 1, sizeof *d.marks)};
    tow_status status = d.x && d.marks ? TOW_OK : TOW_OUT_OF_MEMORY;
    if (status == TOW_OK) {
        d.y = d.x + n;
        fill(&d, n, points, n_marks, marks, unit);
        const tow_series curve = {.n = n, .x = d.x, .y = d.y};
        status =
            tow_chart_write(ctx, path,
                            &TOW_CHART(.title = "Plans within a memory limit", .x_label = label,
                                       .y_label = "modelled time, 1: the fastest plan", .n_series = 1, .series = &curve,
                                       .log_y = d.slowest > 3, .steps = true, .n_marks = n_marks, .marks = d.marks));
    }
    if (d.x) tow__free(ctx, d.x, 2 * n, sizeof *d.x);
    if (d.marks) tow__free(ctx, d.marks, n_marks + 1, sizeof *d.marks);
    return status;
}

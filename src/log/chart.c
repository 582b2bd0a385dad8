/* Line charts as SVG: frame, ticks and grid, lines, legend. Numbers have a decimal point, whatever the locale is. */
#include <math.h>
#include <stdio.h>

#include "src/base/locale.h"
#include "src/base/options.h"
#include "src/io/io.h"
#include "tow/log.h"

enum {
    LEFT = 68,
    TOP = 40,
    BOTTOM = 50,
    RIGHT = 18,
    LETTER = 7, /* width of a letter, at most */
    LINE_HEIGHT = 18,
    LONGEST_NAME = 40, /* letters in the legend; of longer names the end is shown */
    LEAST_SIDE = 160,
    MOST_SIDE = 20000,
    TICKS = 6 /* about so many on an axis */
};

/* Okabe and Ito's colors, which most people tell apart; black last. */
static const char *const colors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                     "#e69f00", "#56b4e9", "#7f7f7f", "#000000"};
static const char *const dashes[] = {"", " stroke-dasharray=\"7 3\"", " stroke-dasharray=\"2 3\""};
enum {
    N_COLORS = sizeof colors / sizeof *colors,
    N_DASHES = sizeof dashes / sizeof *dashes
};

/* One axis: `low` and `high`, of which logarithms are taken if it is logarithmic, lie at the pixels `from` and `to`. */
typedef struct axis {
    bool logarithmic;
    double low, high, from, to;
} axis;

typedef struct picture {
    tow__string s;
    const tow_chart *chart;
    axis x, y;
    int width, height, legend; /* legend: width of it, 0 without one */
} picture;

static double scaled(const axis *a, double value) { return a->logarithmic ? log10(value) : value; }

/* Ranges of larger numbers would overflow. */
static bool is_drawn(const axis *a, double value) { return fabs(value) <= 1e300 && (!a->logarithmic || value > 0); }

static double pixel(const axis *a, double position)
{
    return a->from + (a->to - a->from) * (position - a->low) / (a->high - a->low);
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

static void include(axis *a, double value)
{
    if (value < a->low) a->low = value;
    if (value > a->high) a->high = value;
}

static void find_ranges(picture *p)
{
    const tow_chart *c = p->chart;
    p->x.low = p->y.low = INFINITY;
    p->x.high = p->y.high = -INFINITY;
    for (size_t i = 0; i < c->n_series; i++)
        for (size_t j = 0; j < c->series[i].n; j++) {
            const double x = c->series[i].x[j], y = c->series[i].y[j];
            if (!is_drawn(&p->x, x) || !is_drawn(&p->y, y)) continue;
            include(&p->x, scaled(&p->x, x));
            include(&p->y, scaled(&p->y, y));
        }
    for (size_t i = 0; i < c->n_marks; i++) {
        if (!is_drawn(&p->x, c->marks[i].x) || !is_drawn(&p->y, c->marks[i].y)) continue;
        include(&p->x, scaled(&p->x, c->marks[i].x));
        include(&p->y, scaled(&p->y, c->marks[i].y));
    }
}

/* An axis without points, or on which all are one, gets a range around them. `part` of it is added on both sides. */
static void widen(axis *a, double part)
{
    if (a->low > a->high) a->low = a->high = 0;
    double more = part * (a->high / 2 - a->low / 2) * 2;
    if (a->high - a->low <= 1e-12 * (fabs(a->low) + fabs(a->high))) {
        const double size = fabs(a->low);
        more = size > 0 ? size / 10 : 1;
    }
    a->low -= more;
    a->high += more;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void add_escaped(tow__string *s, const char *text)
{
    for (; *text; text++) {
        const char c = *text;
        const char *entity = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : NULL;
        if (entity)
            tow__string_add(s, "%s", entity);
        else
            tow__string_add(s, "%c", (unsigned char)c < ' ' ? '?' : c);
    }
}

static void add_text(picture *p, double x, double y, const char *attributes, const char *text)
{
    tow__string_add(&p->s, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, attributes);
    add_escaped(&p->s, text);
    tow__string_add(&p->s, "</text>\n");
}

static void add_line(picture *p, double x1, double y1, double x2, double y2, const char *stroke)
{
    tow__string_add(&p->s, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2,
                    stroke);
}

/* The end of a name, where names of files differ, from a whole character of UTF-8 on. */
static const char *end_of_name(const char *name)
{
    const size_t length = strlen(name);
    const char *at = length > LONGEST_NAME ? name + length - LONGEST_NAME : name;
    while (((unsigned char)*at & 0xc0) == 0x80) at++;
    return at;
}

/* The beginning of the name of a mark up to a whole character of UTF-8; dots say that more follows. */
static void begin_of_name(const char *name, char begin[LONGEST_NAME + sizeof "…"])
{
    size_t length = strlen(name);
    const bool cut = length > LONGEST_NAME;
    for (length = cut ? LONGEST_NAME : length; cut && ((unsigned char)name[length] & 0xc0) == 0x80;) length--;
    memcpy(begin, name, length);
    strcpy(begin + length, cut ? "…" : "");
}

/* ---- ticks ------------------------------------------------------------------------------------------------------- */

/* A tick at `position` of the axis with the value `value`. */
static void add_tick(picture *p, const axis *a, double position, double value)
{
    const bool across = a == &p->x;
    const double slack = 1e-9 * (a->high - a->low);
    char text[32];
    if (position < a->low - slack || position > a->high + slack) return;
    snprintf(text, sizeof text, "%.6g", fabs(value) < 1e-12 * fabs(a->high - a->low) ? 0 : value);
    const double at = pixel(a, position);
    if (across) {
        add_line(p, at, p->y.to, at, p->y.from, "#e4e4e4");
        add_text(p, at, p->y.from + 18, " text-anchor=\"middle\"", text);
    } else {
        add_line(p, p->x.from, at, p->x.to, at, "#e4e4e4");
        add_text(p, p->x.from - 8, at + 4, " text-anchor=\"end\"", text);
    }
}

/* Distance of linear ticks: 1, 2 or 5 times a power of ten. */
static double tick_distance(double range)
{
    const double step = pow(10, floor(log10(range / TICKS))), times = range / TICKS / step;
    return times > 5 ? 10 * step : times > 2 ? 5 * step : times > 1 ? 2 * step : step;
}

/* Powers of ten, every one or every so many; below two decades also 2 and 5 times them, below a third of one linear
 * ticks. */
static void add_log_ticks(picture *p, const axis *a)
{
    const double decades = a->high - a->low;
    if (decades < 0.3) {
        const double low = pow(10, a->low), high = pow(10, a->high), step = tick_distance(high - low);
        for (double at = ceil(low / step) * step; at <= high; at += step) add_tick(p, a, log10(at), at);
        return;
    }
    const double every = decades > 2 * TICKS ? ceil(decades / TICKS) : 1;
    for (double power = floor(a->low); power <= a->high; power += 1) {
        if (fmod(power, every) != 0) continue;
        add_tick(p, a, power, pow(10, power));
        if (decades > 2) continue;
        add_tick(p, a, power + log10(2), 2 * pow(10, power));
        add_tick(p, a, power + log10(5), 5 * pow(10, power));
    }
}

static void add_ticks(picture *p, const axis *a)
{
    if (a->logarithmic) {
        add_log_ticks(p, a);
        return;
    }
    const double step = tick_distance(a->high - a->low);
    const double first = ceil(a->low / step), last = floor(a->high / step);
    for (double i = first; i <= last && i - first < 100; i += 1) add_tick(p, a, i * step, i * step);
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* The value of point j after smoothing; `sum` and `weight` are those of the points before it. */
static double smooth(double smoothing, double y, double *sum, double *weight)
{
    *sum = smoothing * *sum + (1 - smoothing) * y;
    *weight = smoothing * *weight + (1 - smoothing);
    return *sum / *weight;
}

/* A run of points in one column of pixels is drawn from its first to its lowest, its highest and its last point, so
 * that a picture has no more points than its width calls for. */
typedef struct column {
    size_t n;     /* points in it */
    size_t drawn; /* of the columns before it */
    double x, first, low, high, last;
} column;

static void add_corner(picture *p, column *c, double y)
{
    tow__string_add(&p->s, "%.1f,%.1f ", c->x, y);
    c->drawn++;
}

static void end_column(picture *p, column *c)
{
    if (c->n > 0) add_corner(p, c, c->first);
    if (c->n > 2 && c->low < c->first && c->low < c->last) add_corner(p, c, c->low);
    if (c->n > 2 && c->high > c->first && c->high > c->last) add_corner(p, c, c->high);
    if (c->n > 1) add_corner(p, c, c->last);
    c->n = 0;
}

static void add_point(picture *p, column *c, double x, double y)
{
    x = round(2 * x) / 2;
    if (c->n > 0 && x != c->x) end_column(p, c);
    if (c->n == 0) *c = (column){.drawn = c->drawn, .x = x, .first = y, .low = y, .high = y};
    c->n++;
    c->last = y;
    if (y < c->low) c->low = y;
    if (y > c->high) c->high = y;
}

/* A line to where it is already is a dot, as ends of lines are round. */
static void end_run(picture *p, column *c)
{
    end_column(p, c);
    if (c->drawn == 1) add_corner(p, c, c->first);
    c->drawn = 0;
    tow__string_add(&p->s, "\"/>\n");
}

/* Dots at the points of steps, whose corners are not all points. */
static void add_dots(picture *p, const tow_series *series, size_t index)
{
    for (size_t j = 0; j < series->n; j++)
        if (is_drawn(&p->x, series->x[j]) && is_drawn(&p->y, series->y[j]))
            tow__string_add(&p->s, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\" fill=\"%s\"/>\n",
                            pixel(&p->x, scaled(&p->x, series->x[j])), pixel(&p->y, scaled(&p->y, series->y[j])),
                            colors[index % N_COLORS]);
}

/* One line for each run of points that are drawn. */
static void add_series(picture *p, const tow_series *series, size_t index, double smoothing, const char *style)
{
    double sum = 0, weight = 0, before = 0;
    column c = {0};
    bool open = false;
    for (size_t j = 0; j < series->n; j++) {
        const double x = series->x[j];
        double y = series->y[j];
        const bool drawn = is_drawn(&p->x, x) && is_drawn(&p->y, y);
        if (!drawn && open) end_run(p, &c);
        open = open && drawn;
        if (!drawn) continue;
        if (smoothing > 0) y = smooth(smoothing, y, &sum, &weight);
        if (!open)
            tow__string_add(&p->s, "<polyline fill=\"none\" stroke=\"%s\"%s%s points=\"", colors[index % N_COLORS],
                            dashes[index / N_COLORS % N_DASHES], style);
        const double at = pixel(&p->x, scaled(&p->x, x)), height = pixel(&p->y, scaled(&p->y, y));
        if (open && p->chart->steps) add_point(p, &c, at, before);
        open = true;
        before = height;
        add_point(p, &c, at, height);
    }
    if (open) end_run(p, &c);
}

static void add_all_series(picture *p)
{
    const tow_chart *c = p->chart;
    tow__string_add(&p->s,
                    "<clipPath id=\"frame\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/></clipPath>\n"
                    "<g clip-path=\"url(#frame)\" stroke-linejoin=\"round\" stroke-linecap=\"round\">\n",
                    p->x.from, p->y.to - 2, p->x.to - p->x.from, p->y.from - p->y.to + 4);
    if (c->smoothing > 0)
        for (size_t i = 0; i < c->n_series; i++)
            add_series(p, &c->series[i], i, 0, " stroke-width=\"1\" stroke-opacity=\"0.25\"");
    for (size_t i = 0; i < c->n_series; i++) add_series(p, &c->series[i], i, c->smoothing, " stroke-width=\"1.8\"");
    for (size_t i = 0; i < c->n_series && c->steps; i++) add_dots(p, &c->series[i], i);
    tow__string_add(&p->s, "</g>\n");
}

/* ---- marks ------------------------------------------------------------------------------------------------------- */

typedef struct box {
    double x, y, width; /* of a line of text: its left end, its base line */
} box;

static bool overlap(const box *a, const box *b)
{
    return fabs(a->y - b->y) < LINE_HEIGHT - 3 && a->x < b->x + b->width && b->x < a->x + a->width;
}

/* The place of the name of a mark at (x, y): beside it, or as many lines above or below as the names before it and the
 * frame demand. */
static box place_name(const picture *p, const box *taken, size_t n, double x, double y, const char *name)
{
    enum {
        LINES = 60
    };
    const double width = LETTER * (double)strlen(name);
    box found = {.x = x + 10 + width < p->x.to ? x + 10 : x - 10 - width, .y = y + 4, .width = width};
    for (int i = 0; i < LINES; i++) {
        const int line = i % 2 ? -(i + 1) / 2 : i / 2; /* 0, -1, 1, -2, 2, ... */
        const box b = {found.x, y + 4 + LINE_HEIGHT * line, width};
        bool free = b.y > p->y.to + 12 && b.y < p->y.from - 4;
        for (size_t j = 0; j < n && free; j++) free = !overlap(&b, &taken[j]);
        if (free) return b;
    }
    return found;
}

static void add_mark(picture *p, const tow_chart_mark *m, box *taken, size_t *n)
{
    if (!is_drawn(&p->x, m->x) || !is_drawn(&p->y, m->y)) return;
    const double x = pixel(&p->x, scaled(&p->x, m->x)), y = pixel(&p->y, scaled(&p->y, m->y));
    char name[LONGEST_NAME + sizeof "…"];
    begin_of_name(m->name ? m->name : "", name);
    const box b = place_name(p, taken, *n, x, y, name);
    taken[(*n)++] = b;
    tow__string_add(&p->s, "<g class=\"mark\">");
    if (fabs(b.y - y - 4) > 1)
        tow__string_add(&p->s, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#808080\"/>", x, y,
                        b.x > x ? b.x - 2 : b.x + b.width + 2, b.y - 4);
    tow__string_add(&p->s,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"9\" height=\"9\" fill=\"%s\" "
                    "transform=\"rotate(45 %.1f %.1f)\"/>",
                    x - 4.5, y - 4.5, colors[1], x, y);
    add_text(p, b.x, b.y, "", name);
    tow__string_add(&p->s, "</g>\n");
}

static tow_status add_marks(picture *p)
{
    const tow_chart *c = p->chart;
    size_t n = 0;
    box *taken = c->n_marks ? tow__alloc(p->s.ctx, c->n_marks, sizeof *taken) : NULL;
    if (c->n_marks && !taken) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < c->n_marks; i++) add_mark(p, &c->marks[i], taken, &n);
    if (taken) tow__free(p->s.ctx, taken, c->n_marks, sizeof *taken);
    return TOW_OK;
}

/* ---- legend, frame ----------------------------------------------------------------------------------------------- */

static bool is_named(const tow_series *s) { return s->name != NULL && s->name[0] != '\0'; }

static void measure_legend(picture *p)
{
    size_t most = 0;
    for (size_t i = 0; i < p->chart->n_series; i++) {
        const tow_series *s = &p->chart->series[i];
        const size_t length = is_named(s) ? strlen(end_of_name(s->name)) : 0;
        if (length > most) most = length;
    }
    p->legend = most > 0 ? (int)most * LETTER + 44 : 0;
}

static void add_legend(picture *p)
{
    double y = p->y.to + 8;
    for (size_t i = 0; i < p->chart->n_series; i++) {
        const tow_series *s = &p->chart->series[i];
        if (!is_named(s)) continue;
        tow__string_add(
            &p->s, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2.5\"%s/>\n",
            p->x.to + 14, y, p->x.to + 36, y, colors[i % N_COLORS], dashes[i / N_COLORS % N_DASHES]);
        add_text(p, p->x.to + 42, y + 4, "", end_of_name(s->name));
        y += LINE_HEIGHT;
    }
}

/* The colors of ground, text, grid and two series where a system is dark. */
static const char dark[] = "<style>@media (prefers-color-scheme: dark) { "
                           ".tow-chart rect[fill=\"white\"] { fill: #16181d; } "
                           ".tow-chart text { fill: #e2e4e8; } "
                           ".tow-chart [stroke=\"#e4e4e4\"] { stroke: #363a42; } "
                           ".tow-chart [stroke=\"#000000\"] { stroke: #ffffff; } "
                           ".tow-chart [stroke=\"#0072b2\"] { stroke: #4da6e0; } "
                           ".tow-chart [fill=\"#0072b2\"] { fill: #4da6e0; } }</style>\n";

static void add_head(picture *p)
{
    tow__string_add(&p->s,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                    "class=\"tow-chart\" font-family=\"sans-serif\" font-size=\"12\">\n%s"
                    "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                    p->width, p->height, p->width, p->height, dark);
}

static void add_labels(picture *p)
{
    const tow_chart *c = p->chart;
    const double middle = (p->x.from + p->x.to) / 2, half = (p->y.from + p->y.to) / 2;
    char turned[96];
    snprintf(turned, sizeof turned, " text-anchor=\"middle\" transform=\"rotate(-90 16 %.1f)\"", half);
    if (c->title) add_text(p, middle, 24, " text-anchor=\"middle\" font-size=\"15\"", c->title);
    if (c->x_label) add_text(p, middle, p->height - 12, " text-anchor=\"middle\"", c->x_label);
    if (c->y_label) add_text(p, 16, half, turned, c->y_label);
    tow__string_add(&p->s,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"#808080\"/>\n",
                    p->x.from, p->y.to, p->x.to - p->x.from, p->y.from - p->y.to);
}

static tow_status draw(picture *p)
{
    const tow_chart *c = p->chart;
    find_ranges(p);
    if (c->y_low != 0 || c->y_high != 0) {
        p->y.low = scaled(&p->y, c->y_low);
        p->y.high = scaled(&p->y, c->y_high);
    } else {
        widen(&p->y, 0.04);
    }
    widen(&p->x, c->n_marks > 0 ? 0.03 : 0);
    p->x.from = LEFT;
    p->x.to = p->width - RIGHT - p->legend;
    p->y.from = p->height - BOTTOM;
    p->y.to = TOP;
    add_head(p);
    add_ticks(p, &p->x);
    add_ticks(p, &p->y);
    add_all_series(p);
    tow_status status = add_marks(p);
    add_labels(p);
    add_legend(p);
    tow__string_add(&p->s, "</svg>\n");
    return status == TOW_OK && p->s.failed ? TOW_OUT_OF_MEMORY : status;
}

/* ---- the public function ----------------------------------------------------------------------------------------- */

static tow_status check(tow_context *ctx, const tow_chart *c, int width, int height)
{
    if (width < LEAST_SIDE || height < LEAST_SIDE || width > MOST_SIDE || height > MOST_SIDE)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected a chart of %d to %d pixels each way, found %d x %d",
                         LEAST_SIDE, MOST_SIDE, width, height);
    if (!(c->smoothing >= 0 && c->smoothing < 1))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected smoothing from 0 to below 1, found %g", c->smoothing);
    const bool given = c->y_low != 0 || c->y_high != 0;
    if (given && !(isfinite(c->y_low) && isfinite(c->y_high) && c->y_low < c->y_high && (!c->log_y || c->y_low > 0)))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "expected y_low below y_high, both finite and on a logarithmic axis above 0, found %g and %g",
                         c->y_low, c->y_high);
    for (size_t i = 0; i < c->n_series; i++)
        if (c->series[i].n > 0 && (!c->series[i].x || !c->series[i].y))
            return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected x and y of %zu points in series %zu, found NULL",
                             c->series[i].n, i);
    if (c->n_marks > 0 && !c->marks)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected %zu marks, found NULL", c->n_marks);
    return TOW_OK;
}

tow_status tow_chart_write(tow_context *context, const char *path, const tow_chart *chart)
{
    if (!context || !chart || (chart->n_series > 0 && !chart->series))
        return tow__missing(context, __func__, "a context, a chart and its series");
    tow_chart own;
    if (!TOW__OPTIONS_TAKE(context, tow_chart, chart, &own)) return TOW_INVALID_ARGUMENT;
    const int width = chart->width != 0 ? chart->width : 720, height = chart->height != 0 ? chart->height : 420;
    tow_status status = check(context, chart, width, height);
    if (status != TOW_OK) return status;
    tow__output_file file = {0};
    picture p = {.chart = chart, .x.logarithmic = chart->log_x, .y.logarithmic = chart->log_y, .height = height};
    tow__string_init(&p.s, context);
    measure_legend(&p);
    p.width = width + p.legend;
    const tow__locale locale = tow__locale_enter();
    status = draw(&p);
    tow__locale_leave(locale);
    if (status == TOW_OK) status = tow__output_open(context, path, &file);
    if (status == TOW_OK) status = tow__output_write(&file, p.s.text, p.s.length);
    if (status == TOW_OK) status = tow__output_commit(&file);
    tow__output_close(&file);
    tow__string_free(&p.s);
    return status;
}

/* Votes as pixels, calibration and disagreement as charts. */
#include "pictures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"

/* ---- votes ------------------------------------------------------------------------------------------------------- */

/* A tile, in pixels: the image, below it a column for each digit with the members' probabilities on top of each other,
 * and the digits. */
enum {
    ACROSS = 8, /* tiles of a row */
    ZOOM = 10,
    TILE = SIDE * ZOOM, /* wide */
    COLUMN = TILE / CLASSES,
    BARS = 48,
    GLYPH = 2, /* zoom of digits of 3 x 5 */
    SPACE = 3,
    HEIGHT = TILE + SPACE + BARS + SPACE + 5 * GLYPH,
    GAP = 14
};

typedef struct color {
    uint8_t r, g, b;
} color;

typedef struct canvas {
    color *pixels;
    int64_t width, height;
} canvas;

static void fill(canvas *c, int64_t x, int64_t y, int64_t width, int64_t height, color with)
{
    for (int64_t i = 0; i < height; i++)
        for (int64_t j = 0; j < width; j++) c->pixels[(y + i) * c->width + x + j] = with;
}

/* One of 3 x 5 pixels; each octal digit is a row. */
static void draw_glyph(canvas *c, int64_t x, int64_t y, int digit)
{
    static const int glyphs[CLASSES] = {075557, 026227, 071747, 071717, 055711, 074717, 074757, 071122, 075757, 075717};
    for (int i = 0; i < 15; i++)
        if (glyphs[digit] >> (14 - i) & 1)
            fill(c, x + i % 3 * GLYPH, y + i / 3 * GLYPH, GLYPH, GLYPH, (color){64, 64, 64});
}

/* The votes for one digit. Members are told apart by two shades, the right digit from others by its color. */
static void draw_votes(canvas *c, int64_t x, int64_t y, const evaluation *e, int set, int64_t image, int digit)
{
    static const color shades[2][2] = {{{214, 96, 40}, {236, 150, 100}}, {{24, 92, 168}, {100, 156, 214}}};
    const bool right = ((const int32_t *)tow_array_data(e->sets[set].labels))[image] == digit;
    double sum = 0;
    fill(c, x, y, COLUMN - 1, BARS, (color){238, 238, 238});
    for (int64_t m = 0; m < e->members; m++) {
        const int64_t from = lround(sum);
        sum += probabilities_of(e, set, m)[image * CLASSES + digit] * BARS / (double)e->members;
        const int64_t to = lround(fmin(sum, BARS));
        fill(c, x, y + BARS - to, COLUMN - 1, to - from, shades[right][m % 2]);
    }
}

static void draw_tile(canvas *c, int64_t x, int64_t y, const evaluation *e, int set, int64_t image)
{
    const float *pixels = (const float *)tow_array_data(e->sets[set].images) + image * PIXELS;
    for (int i = 0; i < PIXELS; i++) {
        const uint8_t gray = (uint8_t)lround(255 * fmax(0, fmin(1, pixels[i])));
        fill(c, x + i % SIDE * ZOOM, y + i / SIDE * ZOOM, ZOOM, ZOOM, (color){gray, gray, gray});
    }
    for (int digit = 0; digit < CLASSES; digit++) {
        draw_votes(c, x + digit * COLUMN, y + TILE + SPACE, e, set, image, digit);
        draw_glyph(c, x + digit * COLUMN, y + HEIGHT - 5 * GLYPH, digit);
    }
}

/* Image number `rank` of a set in the order of disagreement, largest first. */
static int64_t find_rank(const image_set *set, int64_t rank)
{
    const double *d = set->disagreement;
    for (int64_t i = 0; i < set->n; i++) {
        int64_t before = 0;
        for (int64_t j = 0; j < set->n; j++) before += d[j] > d[i] || (d[j] == d[i] && j < i);
        if (before == rank) return i;
    }
    return 0;
}

/* A row of tiles: images about which the members agree most, or least. */
static void draw_row(canvas *c, int64_t y, const evaluation *e, int set, bool agree)
{
    const int64_t n = e->sets[set].n;
    for (int64_t i = 0; i < ACROSS && i < n; i++)
        draw_tile(c, GAP + i * (TILE + GAP), y, e, set, find_rank(&e->sets[set], agree ? n - 1 - i : i));
}

/* Held-out digits about which the members agree most; below them, of every set, those about which they agree least. */
static tow_status draw_all_votes(const evaluation *e, const char *path)
{
    tow_array *pixels = NULL;
    int64_t rows = 1, y = GAP;
    for (int i = 0; i < N_SETS; i++) rows += e->sets[i].n > 0;
    const int64_t dims[] = {rows * (HEIGHT + GAP) + GAP, ACROSS * (TILE + GAP) + GAP, 3};
    tow_status status = tow_array_create(e->context, tow_make_type(TOW_U8, 3, dims), &pixels);
    if (status) return status;
    canvas c = {.pixels = tow_array_data(pixels), .width = dims[1], .height = dims[0]};
    fill(&c, 0, 0, c.width, c.height, (color){255, 255, 255});
    draw_row(&c, y, e, HELD_OUT, true);
    for (int i = 0; i < N_SETS; i++)
        if (e->sets[i].n > 0) draw_row(&c, y += HEIGHT + GAP, e, i, false);
    status = tow_png_write(e->context, path, pixels);
    tow_array_release(pixels);
    return status;
}

/* ---- charts ------------------------------------------------------------------------------------------------------ */

/* Confidence and accuracy of the bins that have `least` images; returns how many there are. */
static size_t curve_of(const bin *bins, double least, double *x, double *y)
{
    size_t n = 0;
    for (int i = 0; i < BINS; i++) {
        if (bins[i].images < least) continue;
        x[n] = bins[i].confidence / bins[i].images;
        y[n++] = bins[i].right / bins[i].images;
    }
    return n;
}

/* Of digits with noise: so sure are the members alone, and all together. */
static tow_status draw_calibration(const evaluation *e, const char *path)
{
    const image_set *set = &e->sets[NOISY];
    const int32_t *labels = tow_array_data(set->labels);
    static const double ends[] = {0, 1};
    double x[2][BINS], y[2][BINS];
    bin alone[BINS] = {{0}}, together[BINS] = {{0}};
    for (int64_t m = 0; m < e->members; m++) fill_bins(probabilities_of(e, NOISY, m), labels, set->n, alone);
    fill_bins(probabilities_of(e, NOISY, e->members), labels, set->n, together);
    const tow_series series[] = {
        {.name = "as sure as right", .n = 2, .x = ends, .y = ends},
        {.name = "members alone", .n = curve_of(alone, 5 * (double)e->members, x[0], y[0]), .x = x[0], .y = y[0]},
        {.name = "all together", .n = curve_of(together, 5, x[1], y[1]), .x = x[1], .y = y[1]}};
    const tow_chart chart = TOW_CHART(.title = "Calibration on digits with noise", .x_label = "confidence",
                                      .y_label = "accuracy", .n_series = 3, .series = series, .y_high = 1);
    return tow_chart_write(e->context, path, &chart);
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* y[i]: the part of the images about which the members disagree at least by x[i]. */
static tow_status draw_disagreement(const evaluation *e, const char *path)
{
    tow_series series[N_SETS];
    double *numbers[N_SETS] = {NULL};
    size_t n_series = 0;
    tow_status status = TOW_OK;
    for (int i = 0; i < N_SETS && !status; i++) {
        const size_t n = (size_t)e->sets[i].n;
        if (n == 0) continue;
        double *x = numbers[i] = malloc(2 * n * sizeof *x);
        if (!x) {
            status = TOW_OUT_OF_MEMORY;
            break;
        }
        memcpy(x, e->sets[i].disagreement, n * sizeof *x);
        qsort(x, n, sizeof *x, descending);
        for (size_t k = 0; k < n; k++) x[n + k] = (double)(k + 1) / (double)n;
        series[n_series++] = (tow_series){.name = e->sets[i].name, .n = n, .x = x, .y = x + n};
    }
    const tow_chart chart =
        TOW_CHART(.title = "How many images the members disagree about",
                  .x_label = "disagreement of at least so many nats", .y_label = "part of the images",
                  .n_series = n_series, .series = series, .y_high = 1);
    if (!status) status = tow_chart_write(e->context, path, &chart);
    for (int i = 0; i < N_SETS; i++) free(numbers[i]);
    return status;
}

tow_status draw_pictures(const char *program, const evaluation *e, const char *directory)
{
    static const struct {
        const char *name;
        tow_status (*draw)(const evaluation *e, const char *path);
    } pictures[] = {
        {"votes.png", draw_all_votes}, {"calibration.svg", draw_calibration}, {"disagreement.svg", draw_disagreement}};
    tow_status status = TOW_OK;
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures && !status; i++) {
        char *path = path_in(program, directory, pictures[i].name);
        status = path ? pictures[i].draw(e, path) : TOW_OUT_OF_MEMORY;
        free(path);
    }
    return status;
}

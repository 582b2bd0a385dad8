/* PNG, grids of images, charts. PNG is read back by zlib and the specification: signature, CRC of each chunk, filters.
 * Tests chart.c, grid.c, png.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <locale.h>
#include <zlib.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/io_files.h"
#include "tow/log.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(f->ctx));                                    \
    } while (0)

static uint32_t big(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Reads a PNG without filters: the pixels, and its header. */
static size_t read_png(const char *path, unsigned char head[13], unsigned char *pixels, size_t capacity, int *chunks)
{
    static unsigned char file[1 << 20], packed[1 << 20], rows[1 << 21];
    const size_t size = read_bytes(path, file, sizeof file);
    size_t at = 8, n_packed = 0;
    assert_memory_equal(file, "\x89PNG\r\n\x1a\n", 8);
    for (*chunks = 0;; *chunks += 1) {
        const size_t n = big(file + at);
        assert_true(at + 12 + n <= size);
        assert_int_equal(crc32(0, file + at + 4, (unsigned)n + 4), big(file + at + 8 + n));
        if (memcmp(file + at + 4, "IHDR", 4) == 0) memcpy(head, file + at + 8, 13);
        if (memcmp(file + at + 4, "IEND", 4) == 0) break;
        if (memcmp(file + at + 4, "IDAT", 4) == 0) {
            memcpy(packed + n_packed, file + at + 8, n);
            n_packed += n;
        }
        at += 12 + n;
    }
    assert_int_equal(at + 12, size);
    unsigned long n_rows = sizeof rows;
    assert_int_equal(uncompress(rows, &n_rows, packed, n_packed), Z_OK);
    const size_t width = big(head), height = big(head + 4), row = width * (head[9] == 0 ? 1 : head[9] == 2 ? 3 : 4);
    assert_int_equal(n_rows, height * (row + 1));
    assert_true(height * row <= capacity);
    for (size_t y = 0; y < height; y++) {
        assert_int_equal(rows[y * (row + 1)], 0);
        memcpy(pixels + y * row, rows + y * (row + 1) + 1, row);
    }
    return height * row;
}

static void png_files(void **state)
{
    fixture *f = *state;
    static unsigned char data[1 << 20], back[1 << 20];
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)((x = x * 1664525 + 1013904223) >> 24);
    const struct {
        int rank, color;
        int64_t dims[3];
    } shapes[] = {{2, 0, {3, 5}},    {3, 0, {2, 2, 1}},   {3, 2, {7, 1, 3}},
                  {3, 6, {1, 9, 4}}, {2, 0, {2, 200000}}, {3, 2, {300, 400, 3}}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const tow_type type = tow_make_type(TOW_U8, shapes[i].rank, shapes[i].dims);
        tow_array *pixels = array_of(f, type, data);
        unsigned char head[13] = {0};
        int chunks;
        OK(tow_png_write(f->ctx, f->path, pixels));
        const size_t n = read_png(f->path, head, back, sizeof back, &chunks);
        assert_int_equal(n, tow_type_bytes(type));
        assert_memory_equal(back, data, n);
        assert_int_equal(big(head), shapes[i].dims[1]);
        assert_int_equal(big(head + 4), shapes[i].dims[0]);
        assert_int_equal(head[8], 8);
        assert_int_equal(head[9], shapes[i].color);
        if (i >= 4) assert_true(chunks > 2); /* several pieces of data */
        tow_array_release(pixels);
    }
    const tow_type bad[] = {tow_make_type(TOW_F32, 2, (int64_t[]){2, 2}),
                            tow_make_type(TOW_U8, 3, (int64_t[]){2, 2, 2}), tow_make_type(TOW_U8, 2, (int64_t[]){0, 2}),
                            tow_make_type(TOW_U8, 1, (int64_t[]){4})};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tow_array *pixels = array_of(f, bad[i], data);
        assert_int_equal(tow_png_write(f->ctx, f->path, pixels), TOW_TYPE_MISMATCH);
        assert_message(f, "expected pixels u8[height, width]");
        tow_array_release(pixels);
    }
    tow_array *pixels = array_of(f, tow_make_type(TOW_U8, 2, (int64_t[]){1, 1}), data);
    assert_int_equal(tow_png_write(f->ctx, "/tmp/no/such/directory.png", pixels), TOW_IO_ERROR);
    assert_int_equal(tow_png_write(f->ctx, f->path, NULL), TOW_INVALID_ARGUMENT);
    tow_array_release(pixels);
}

static void grids(void **state)
{
    fixture *f = *state;
    const float values[] = {0, 1, 0.5F, NAN, -1, 2, 0.25F, 1};
    tow_array *images = array_of(f, tow_make_type(TOW_F32, 3, (int64_t[]){2, 2, 2}), values), *pixels;
    OK(tow_image_grid(f->ctx, images, &TOW_GRID_OPTIONS(.gap = 1, .ground = 9), &pixels));
    const uint8_t expected[] = {9, 9,   9,   9, 9,  9,   9, /* two columns */
                                9, 0,   255, 9, 0,  255, 9, /**/
                                9, 128, 0,   9, 64, 255, 9, 9, 9, 9, 9, 9, 9, 9};
    assert_array(pixels, tow_make_type(TOW_U8, 2, (int64_t[]){4, 7}), expected);
    tow_array_release(pixels);
    OK(tow_image_grid(f->ctx, images, &TOW_GRID_OPTIONS(.gap = -1, .columns = 1, .zoom = 2, .low = -1, .high = 1),
                      &pixels));
    assert_true(tow_type_equal(tow_array_type(pixels), tow_make_type(TOW_U8, 2, (int64_t[]){8, 4})));
    const uint8_t *at = tow_array_data(pixels);
    assert_true(at[0] == 128 && at[1] == 128 && at[4] == 128 && at[2] == 255 && at[4 * 4] == 0);
    tow_array_release(pixels);
    assert_int_equal(tow_image_grid(f->ctx, images, &TOW_GRID_OPTIONS(.zoom = INT64_MAX), &pixels),
                     TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_image_grid(f->ctx, images, &TOW_GRID_OPTIONS(.columns = -1), &pixels), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_image_grid(f->ctx, images, &TOW_GRID_OPTIONS(.low = 1, .high = 1), &pixels),
                     TOW_INVALID_ARGUMENT);
    tow_array_release(images);
    images = array_of(f, tow_make_type(TOW_U8, 4, (int64_t[]){3, 1, 1, 3}), (uint8_t[]){1, 2, 3, 4, 5, 6, 7, 8, 9});
    OK(tow_image_grid(f->ctx, images, &TOW_GRID_OPTIONS(.gap = -1), &pixels)); /* 2 x 2, the last place is ground */
    assert_array(pixels, tow_make_type(TOW_U8, 3, (int64_t[]){2, 2, 3}),
                 (uint8_t[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0});
    tow_array_release(pixels);
    tow_array_release(images);
    images = array_of(f, tow_make_type(TOW_F32, 2, (int64_t[]){2, 2}), values);
    assert_int_equal(tow_image_grid(f->ctx, images, NULL, &pixels), TOW_TYPE_MISMATCH);
    tow_array_release(images);
}

static char *chart_text(const fixture *f, const tow_chart *chart)
{
    static char text[1 << 20];
    OK(tow_chart_write(f->ctx, f->path, chart));
    text[read_bytes(f->path, (unsigned char *)text, sizeof text - 1)] = '\0';
    return text;
}

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("expected %s in: %s", part, text);
}

static void charts(void **state)
{
    fixture *f = *state;
    const double x[] = {0, 50, 100}, y[] = {1, 0.1, 0.01}, holes[] = {1, NAN, 0.5};
    const tow_series series[] = {{"a <loss> & \"more\"", 3, x, y}, {"holes", 3, x, holes}};
    tow_chart chart =
        TOW_CHART(.title = "T", .x_label = "step", .y_label = "loss", .n_series = 2, .series = series, .log_y = true);
    const char *text = chart_text(f, &chart);
    assert_has(text, "<svg xmlns");
    assert_has(text, "a &lt;loss&gt; &amp; &quot;more&quot;</text>");
    for (const char *const *tick = (const char *const[]){">0.01<", ">0.1<", ">1<", ">0<", ">20<", ">100<", NULL}; *tick;
         tick++)
        assert_has(text, *tick);
    /* x from 68 to 702, y of the plot from 370 (0.01) to 40 (1), 4 % beyond on both sides: 1 is 330 * 0.08 / 2.16 below
     * the top */
    assert_has(text, "points=\"68.0,52.2 385.0,205.0 702.0,357.8 \"");
    assert_has(text, "points=\"68.0,52.2 68.0,52.2 \""); /* a point alone is a dot, on both sides of the hole */
    chart.log_y = false;
    chart.smoothing = 0.5;
    text = chart_text(f, &chart); /* 1, (0.5 + 0.1) / 1.5, ... and the points behind it */
    assert_has(text, "stroke-opacity=\"0.25\"");
    chart.series = NULL;
    chart.n_series = 0;
    assert_has(chart_text(f, &chart), "</svg>"); /* empty charts are drawn, too */
    const double same[] = {5, 5, 5}, inf[] = {INFINITY, -INFINITY, NAN}, large[] = {-1e308, 1e308, 0};
    const double *const values[] = {same, inf, large};
    for (size_t i = 0; i < 3; i++)
        for (int logarithmic = 0; logarithmic < 2; logarithmic++) {
            const tow_series one = {"", 3, x, values[i]};
            const tow_chart c =
                TOW_CHART(.n_series = 1, .series = &one, .log_y = logarithmic == 1, .log_x = logarithmic == 1);
            text = chart_text(f, &c);
            assert_null(strstr(text, "nan"));
            assert_null(strstr(text, "inf"));
        }
    const tow_chart bad[] = {TOW_CHART(.smoothing = 1),
                             TOW_CHART(.smoothing = NAN),
                             TOW_CHART(.width = 10),
                             TOW_CHART(.height = 1 << 30),
                             TOW_CHART(.y_low = 2, .y_high = 1),
                             TOW_CHART(.log_y = true, .y_low = -1, .y_high = 1),
                             TOW_CHART(.n_series = 1)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(tow_chart_write(f->ctx, f->path, &bad[i]), TOW_INVALID_ARGUMENT);
}

/* Steps go along, then up or down; each mark has a name, and names do not lie on each other. */
static void charts_with_steps_and_marks(void **state)
{
    const fixture *f = *state;
    static const double x[] = {0, 1, 2}, y[] = {2, 1, 0};
    const tow_series one = {.n = 3, .x = x, .y = y};
    const tow_chart_mark marks[] = {{"a&b", 1, 2}, {"second", 1, 2}, {"beyond", NAN, 1}};
    tow_chart chart = TOW_CHART(.n_series = 1, .series = &one, .steps = true, .n_marks = 3, .marks = marks);
    const char *text = chart_text(f, &chart);
    size_t n_marks = 0, corners = 0;
    for (const char *at = text; (at = strstr(at, "<g class=\"mark\">")); at++) n_marks++;
    assert_int_equal(n_marks, 2);
    assert_has(text, ">a&amp;b</text>");
    assert_has(text, ">second</text>");
    const char *at = strstr(text, "points=\"") + strlen("points=\"");
    double px, py, before_x = 0, before_y = 0;
    for (; sscanf(at, "%lf,%lf", &px, &py) == 2; at = strchr(at, ' ') + 1, corners++) {
        if (corners > 0) assert_true((px <= before_x && px >= before_x) || (py <= before_y && py >= before_y));
        before_x = px;
        before_y = py;
        if (!strchr(at, ' ') || strchr(at, '"') < strchr(at, ' ')) break;
    }
    assert_int_equal(corners, 5);
    double first = 0, second = 0;
    const char *name = strstr(text, ">a&amp;b");
    while (*name != 'y' || name[1] != '=') name--;
    assert_int_equal(sscanf(name, "y=\"%lf", &first), 1);
    name = strstr(text, ">second");
    while (*name != 'y' || name[1] != '=') name--;
    assert_int_equal(sscanf(name, "y=\"%lf", &second), 1);
    assert_true(fabs(first - second) >= 12);
    const tow_chart_mark of_names = {"names:ln1,query,key,value,attention,atnöut,ln2", 1, 2};
    chart.n_marks = 1;
    chart.marks = &of_names;
    assert_has(chart_text(f, &chart), ">names:ln1,query,key,value,attention,atn…</text>");
    chart.marks = NULL;
    assert_int_equal(tow_chart_write(f->ctx, f->path, &chart), TOW_INVALID_ARGUMENT);
}

/* A million points make no larger picture than some thousand, and the lowest and the highest are drawn. */
static void charts_of_many_points(void **state)
{
    fixture *f = *state;
    enum {
        N = 1000000
    };
    double *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    assert_true(x && y);
    for (int i = 0; i < N; i++) {
        x[i] = i;
        y[i] = i == 777777 ? 100 : i == 333333 ? -100 : i % 7;
    }
    const tow_series one = {NULL, N, x, y};
    const tow_chart chart = TOW_CHART(.n_series = 1, .series = &one);
    const char *text = chart_text(f, &chart);
    assert_true(strlen(text) < 100000);
    assert_has(text, ",52.2 ");  /* the highest, 330 * 0.04 / 1.08 below the top */
    assert_has(text, ",357.8 "); /* the lowest */
    free(x);
    free(y);
}

static void numbers_in_any_locale(void **state)
{
    fixture *f = *state;
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) skip();
    const double x[] = {0, 1}, y[] = {0, 0.5};
    const tow_series one = {NULL, 2, x, y};
    const char *text = chart_text(f, &TOW_CHART(.n_series = 1, .series = &one));
    setlocale(LC_ALL, "C");
    assert_has(text, ">0.5<");
}

static void failing_allocations(void **state)
{
    fixture *f = *state;
    tow_status status = TOW_OUT_OF_MEMORY;
    for (long i = 0; status != TOW_OK; i++) {
        counting c;
        const tow_context_options options = counting_options(&c, -1);
        tow_context *ctx;
        tow_array *images = NULL, *pixels = NULL;
        const double x[] = {0, 1};
        const tow_series one = {"name", 2, x, x};
        assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
        assert_int_equal(tow_array_create(ctx, tow_make_type(TOW_F32, 3, (int64_t[]){2, 3, 3}), &images), TOW_OK);
        c.fail_at = c.calls + i;
        status = tow_image_grid(ctx, images, NULL, &pixels);
        if (status == TOW_OK) status = tow_png_write(ctx, f->path, pixels);
        if (status == TOW_OK) status = tow_chart_write(ctx, f->path, &TOW_CHART(.n_series = 1, .series = &one));
        assert_true(status == TOW_OK || status == TOW_OUT_OF_MEMORY);
        tow_array_release(images);
        tow_array_release(pixels);
        tow_context_free(ctx);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.wrong_sizes, 0);
        assert_true(i < 200);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(png_files),
                                       TEST(grids),
                                       TEST(charts),
                                       TEST(charts_with_steps_and_marks),
                                       TEST(charts_of_many_points),
                                       TEST(numbers_in_any_locale),
                                       TEST(failing_allocations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

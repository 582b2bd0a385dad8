/* Rows of arrays, .npy, IDX, raw and CSV files, of functions and windows: values that are written out here byte by
 * byte, and what damaged files and wrong options give.
 * Tests csv.c, field.c, files.c, source.c, windows.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/io_files.h"
#include "tow/data.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(f->ctx));                                    \
    } while (0)

/* Asserts that row `row` has this type and these bytes. */
static void assert_row(const fixture *f, tow_source *source, int64_t row, tow_type type, const void *data)
{
    tow_array *array = NULL;
    OK(tow_source_row(source, row, &array));
    assert_array(array, type, data);
    tow_array_release(array);
}

static void write_text(const fixture *f, const char *text) { write_bytes(f->path, text, strlen(text)); }

/* ---- IDX --------------------------------------------------------------------------------------------------------- */

static const unsigned char idx_bytes[] = {0, 0, 0x08, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 250, 251, 252};

static void idx_files(void **state)
{
    fixture *f = *state;
    tow_source *source;
    write_bytes(f->path, idx_bytes, sizeof idx_bytes);
    OK(tow_source_idx(f->ctx, f->path, &source));
    assert_int_equal(tow_source_row_count(source), 2);
    assert_row(f, source, 1, tow_make_type(TOW_U8, 2, (int64_t[]){1, 3}), (uint8_t[]){250, 251, 252});
    tow_source_release(source);

    static const unsigned char shorts[] = {0, 0, 0x0b, 1, 0, 0, 0, 3, 0x01, 0x02, 0xff, 0xfe, 0x80, 0x00};
    write_bytes(f->path, shorts, sizeof shorts);
    OK(tow_source_idx(f->ctx, f->path, &source));
    for (int i = 0; i < 3; i++)
        assert_row(f, source, i, tow_make_type(TOW_I32, 0, NULL), &(int32_t[]){258, -2, -32768}[i]);
    tow_source_release(source);

    static const unsigned char floats[] = {0, 0, 0x0d, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0x3f, 0xc0, 0, 0, 0xc2, 0xf7, 0, 0};
    write_bytes(f->path, floats, sizeof floats);
    OK(tow_source_idx(f->ctx, f->path, &source));
    assert_row(f, source, 0, tow_make_type(TOW_F32, 1, (int64_t[]){2}), (float[]){1.5F, -123.5F});
    tow_source_release(source);
}

static tow_status read_idx(tow_context *ctx, const char *path, void **result)
{
    tow_source *source = NULL;
    const tow_status status = tow_source_idx(ctx, path, &source);
    *result = NULL;
    if (status != TOW_OK) return status;
    tow_array *array;
    *result = (void *)idx_bytes;
    for (int64_t row = 0; row < tow_source_row_count(source) && row < 8; row++) {
        if (tow_source_row(source, row, &array) == TOW_OK) tow_array_release(array);
    }
    tow_source_release(source);
    return TOW_OK;
}

static void damaged_idx_files(void **state)
{
    fixture *f = *state;
    tow_source *source;
    write_bytes(f->path, idx_bytes, sizeof idx_bytes);
    damage(f, read_idx, false);
    static const unsigned char huge[] = {0,    0,    0x0e, 3,    0xff, 0xff, 0xff, 0xff,
                                         0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    write_bytes(f->path, huge, sizeof huge);
    assert_int_equal(tow_source_idx(f->ctx, f->path, &source), TOW_BAD_FORMAT);
    assert_message(f, "or more bytes of data from byte 16 on");
    static const unsigned char many[] = {0, 0, 0x08, 200};
    write_bytes(f->path, many, sizeof many);
    assert_int_equal(tow_source_idx(f->ctx, f->path, &source), TOW_BAD_FORMAT);
    assert_message(f, "expected 1 to 9 axes at byte 3, found 200");
    write_bytes(f->path, "\x1f\x8b\x08", 3);
    assert_int_equal(tow_source_idx(f->ctx, f->path, &source), TOW_BAD_FORMAT);
    assert_message(f, "gunzip it first");
    assert_int_equal(tow_source_idx(f->ctx, "/tmp", &source), TOW_IO_ERROR);
    assert_int_equal(tow_source_idx(f->ctx, NULL, &source), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_source_idx(NULL, f->path, &source), TOW_INVALID_ARGUMENT);
    assert_null(source);
}

/* 4 GiB of rows in a file that takes no room on the disk: nothing of it is read, and the last row is where it should
 * be. */
static void sparse_files(void **state)
{
    fixture *f = *state;
    static const unsigned char head[] = {0, 0, 0x08, 2, 0x00, 0x40, 0, 0, 0, 0, 0x04, 0};
    tow_source *source;
    write_bytes(f->path, head, sizeof head);
    const off_t size = (off_t)sizeof head + ((off_t)1 << 32);
    if (truncate(f->path, size) != 0) skip();
    FILE *file = fopen(f->path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseeko(file, size - 1, SEEK_SET), 0);
    assert_int_equal(fputc(7, file), 7);
    assert_int_equal(fclose(file), 0);
    OK(tow_source_idx(f->ctx, f->path, &source));
    assert_int_equal(tow_source_row_count(source), 1 << 22);
    uint8_t last[1024] = {0};
    last[1023] = 7;
    assert_row(f, source, (1 << 22) - 1, tow_make_type(TOW_U8, 1, (int64_t[]){1024}), last);
    tow_source_release(source);
}

/* ---- .npy, raw, arrays, functions -------------------------------------------------------------------------------- */

/* The bytes that numpy.save writes in front of the data of an array of that dtype and shape. */
static size_t npy_head(unsigned char *to, const char *descr, const char *fortran, const char *shape)
{
    memcpy(to, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(to + 10, ' ', 118);
    const int n =
        sprintf((char *)to + 10, "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }", descr, fortran, shape);
    to[10 + n] = ' ';
    to[127] = '\n';
    return 128;
}

static void npy_files(void **state)
{
    fixture *f = *state;
    unsigned char bytes[256];
    tow_source *source;
    size_t n = npy_head(bytes, "<u2", "False", "(3,)");
    memcpy(bytes + n, "\x01\x00\xff\xff\x00\x80", 6);
    write_bytes(f->path, bytes, n + 6);
    OK(tow_source_npy(f->ctx, f->path, &source));
    for (int i = 0; i < 3; i++)
        assert_row(f, source, i, tow_make_type(TOW_I32, 0, NULL), &(int32_t[]){1, 65535, 32768}[i]);
    tow_source_release(source);
    tow_array *array;
    OK(tow_npy_read(f->ctx, f->path, &array)); /* the reader of arrays knows them as well */
    assert_array(array, tow_make_type(TOW_I32, 1, (int64_t[]){3}), (int32_t[]){1, 65535, 32768});
    tow_array_release(array);
    OK(tow_npy_read_with(f->ctx, f->path, TOW_F32, &array));
    assert_array(array, tow_make_type(TOW_F32, 1, (int64_t[]){3}), (float[]){1, 65535, 32768});
    tow_array_release(array);
    assert_int_equal(tow_npy_read_with(f->ctx, f->path, TOW_I8, &array), TOW_TYPE_MISMATCH);

    n = npy_head(bytes, ">i2", "True", "(2, 2)");
    memcpy(bytes + n, "\x00\x01\x00\x02\xff\xfd\x00\x04", 8); /* 1 2 -3 4 by columns */
    write_bytes(f->path, bytes, n + 8);
    OK(tow_source_npy(f->ctx, f->path, &source));
    assert_row(f, source, 0, tow_make_type(TOW_I32, 1, (int64_t[]){2}), (int32_t[]){1, -3});
    assert_row(f, source, 1, tow_make_type(TOW_I32, 1, (int64_t[]){2}), (int32_t[]){2, 4});
    tow_source_release(source);
    write_bytes(f->path, bytes, n + 7);
    assert_int_equal(tow_source_npy(f->ctx, f->path, &source), TOW_BAD_FORMAT);
    assert_message(f, "expected 8 bytes of data");

    n = npy_head(bytes, "<f4", "False", "()");
    memcpy(bytes + n, "\x00\x00\x80\x3f", 4);
    write_bytes(f->path, bytes, n + 4);
    assert_int_equal(tow_source_npy(f->ctx, f->path, &source), TOW_TYPE_MISMATCH);
    n = npy_head(bytes, "|b1", "False", "(2, 1)");
    bytes[n] = 1, bytes[n + 1] = 2;
    write_bytes(f->path, bytes, n + 2);
    OK(tow_source_npy(f->ctx, f->path, &source));
    assert_row(f, source, 0, tow_make_type(TOW_BOOL, 1, (int64_t[]){1}), (uint8_t[]){1});
    assert_int_equal(tow_source_row(source, 1, &array), TOW_BAD_FORMAT);
    assert_message(f, "booleans of bytes 0 and 1 in row 1");
    tow_source_release(source);
}

static void raw_files_and_windows(void **state)
{
    fixture *f = *state;
    tow_source *tokens, *windows;
    const tow_raw_options u16 = TOW_RAW_OPTIONS(.stored = TOW_STORED_U16, .skip = 4);
    static const unsigned char bytes[] = {9, 9, 9, 9, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 0x50, 0xc3};
    write_bytes(f->path, bytes, sizeof bytes);
    OK(tow_source_raw(f->ctx, f->path, &u16, &tokens));
    assert_int_equal(tow_source_row_count(tokens), 6);
    assert_row(f, tokens, 5, tow_make_type(TOW_I32, 0, NULL), &(int32_t){50000});
    OK(tow_source_windows(tokens, 3, 2, 1, &windows));
    tow_source_release(tokens);
    assert_int_equal(tow_source_row_count(windows), 2); /* 1 2 3 (4) and 3 4 5 (50000) */
    const tow_type three = tow_make_type(TOW_I32, 1, (int64_t[]){3});
    assert_row(f, windows, 0, three, (int32_t[]){1, 2, 3});
    assert_row(f, windows, 1, three, (int32_t[]){3, 4, 5});
    tow_source *none;
    assert_int_equal(tow_source_windows(windows, 3, 1, 0, &none), TOW_INVALID_ARGUMENT);
    assert_message(f, "expected at least 3 rows for a window and 0 ahead, found 2");
    assert_int_equal(tow_source_windows(windows, 0, 1, 0, &none), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_source_windows(windows, INT64_MAX, 1, INT64_MAX, &none), TOW_INVALID_ARGUMENT);
    OK(tow_source_windows(windows, 2, 1, 0, &none)); /* windows of windows */
    assert_row(f, none, 0, tow_make_type(TOW_I32, 2, (int64_t[]){2, 3}), (int32_t[]){1, 2, 3, 3, 4, 5});
    tow_source_release(none);
    tow_source_release(windows);

    const tow_raw_options pairs = TOW_RAW_OPTIONS(.stored = TOW_STORED_U32, .rank = 1, .dims = {2}, .big_endian = true);
    OK(tow_source_raw(f->ctx, f->path, &pairs, &tokens));
    assert_row(f, tokens, 0, tow_make_type(TOW_U32, 1, (int64_t[]){2}), (uint32_t[]){0x09090909, 0x01000200});
    tow_source_release(tokens);
    write_bytes(f->path, bytes, 15);
    assert_int_equal(tow_source_raw(f->ctx, f->path, &u16, &tokens), TOW_BAD_FORMAT);
    assert_message(f, "expected rows of 2 bytes from byte 4 on, found 11 bytes");
    assert_int_equal(tow_source_raw(f->ctx, f->path, &TOW_RAW_OPTIONS(.skip = 99), &tokens), TOW_BAD_FORMAT);
    assert_int_equal(tow_source_raw(f->ctx, f->path, &TOW_RAW_OPTIONS(.rank = 1), &tokens), TOW_BAD_FORMAT);
    assert_int_equal(tow_source_raw(f->ctx, f->path, &TOW_RAW_OPTIONS(.rank = 9), &tokens), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_source_raw(f->ctx, f->path, &TOW_RAW_OPTIONS(.stored = (tow_stored)99), &tokens),
                     TOW_INVALID_ARGUMENT);
    write_bytes(f->path, bytes, 0);
    OK(tow_source_raw(f->ctx, f->path, NULL, &tokens)); /* an empty file has no rows */
    assert_int_equal(tow_source_row_count(tokens), 0);
    tow_source_release(tokens);
}

static tow_status squares(int64_t row, void *data, char *error, size_t size, void *user)
{
    if (row == *(int64_t *)user) {
        snprintf(error, size, "row %lld is not to be had", (long long)row);
        return TOW_NOT_FOUND;
    }
    *(double *)data = (double)(row * row);
    return TOW_OK;
}

static void arrays_and_functions(void **state)
{
    fixture *f = *state;
    int64_t bad = 3;
    tow_source *source;
    tow_array *array = array_of(f, tow_make_type(TOW_F32, 2, (int64_t[]){2, 2}), (float[]){1, 2, 3, 4}), *row;
    OK(tow_source_array(f->ctx, array, &source));
    tow_array_release(array);
    assert_row(f, source, 1, tow_make_type(TOW_F32, 1, (int64_t[]){2}), (float[]){3, 4});
    assert_int_equal(tow_source_row(source, 2, &row), TOW_INVALID_ARGUMENT);
    assert_message(f, "expected a row from 0 to 1, found 2");
    tow_source_release(source);
    array = array_of(f, tow_make_type(TOW_F32, 0, NULL), (float[]){1});
    assert_int_equal(tow_source_array(f->ctx, array, &source), TOW_TYPE_MISMATCH);
    tow_array_release(array);
    OK(tow_source_function(f->ctx, 5, tow_make_type(TOW_F64, 0, NULL), squares, &bad, &source));
    assert_row(f, source, 4, tow_make_type(TOW_F64, 0, NULL), &(double){16});
    assert_int_equal(tow_source_row(source, 3, &row), TOW_NOT_FOUND);
    assert_message(f, "row 3: row 3 is not to be had");
    tow_source_release(source);
    OK(tow_source_function(f->ctx, INT64_MAX, tow_make_type(TOW_F64, 0, NULL), squares, &bad, &source));
    tow_source *window;
    assert_int_equal(tow_source_windows(source, INT64_MAX / 4, 1, 0, &window), TOW_INVALID_ARGUMENT);
    assert_message(f, "more bytes than can be addressed");
    assert_null(window);
    tow_source_release(source);
    assert_int_equal(tow_source_function(f->ctx, -1, tow_make_type(TOW_F64, 0, NULL), squares, &bad, &source),
                     TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_source_function(f->ctx, 1, tow_make_type(TOW_F64, 0, NULL), NULL, &bad, &source),
                     TOW_INVALID_ARGUMENT);
}

/* ---- CSV --------------------------------------------------------------------------------------------------------- */

static void csv_files(void **state)
{
    fixture *f = *state;
    tow_source *source;
    write_text(f,
               "\xef\xbb\xbfname,\"x, \"\"y\"\"\",n\r\n\r\n\"a\nb\",1.5,7\r\nc, -2e3 ,8\n\nd,inf,-9223372036854775808");
    const tow_csv_options numbers =
        TOW_CSV_OPTIONS(.header = true, .n_columns = 2, .names = (const char *const[]){"n", "x, \"y\""});
    OK(tow_source_csv(f->ctx, f->path, &numbers, &source));
    assert_int_equal(tow_source_row_count(source), 3);
    const tow_type pair = tow_make_type(TOW_F64, 1, (int64_t[]){2});
    assert_row(f, source, 0, pair, (double[]){7, 1.5});
    assert_row(f, source, 1, pair, (double[]){8, -2000});
    assert_row(f, source, 2, pair, (double[]){-0x1p63, INFINITY});
    tow_source_release(source);

    const tow_csv_options whole =
        TOW_CSV_OPTIONS(.header = true, .n_columns = 1, .columns = (const int[]){2}, .integers = true);
    OK(tow_source_csv(f->ctx, f->path, &whole, &source));
    assert_row(f, source, 2, tow_make_type(TOW_I64, 0, NULL), &(int64_t){INT64_MIN});
    tow_source_release(source);

    const tow_csv_options words = TOW_CSV_OPTIONS(.header = true, .n_columns = 1, .columns = (const int[]){0},
                                                  .classes = (const char *const[]){"d", "c", "a\nb", NULL});
    OK(tow_source_csv(f->ctx, f->path, &words, &source));
    for (int i = 0; i < 3; i++) assert_row(f, source, i, tow_make_type(TOW_I64, 0, NULL), &(int64_t[]){2, 1, 0}[i]);
    tow_source_release(source);

    write_text(f, "\" a\" , x\n a ,x\n"); /* spaces between quotes belong to the word */
    const tow_csv_options spaced =
        TOW_CSV_OPTIONS(.n_columns = 1, .columns = (const int[]){0}, .classes = (const char *const[]){"a", " a", NULL});
    OK(tow_source_csv(f->ctx, f->path, &TOW_CSV_OPTIONS(), &source) == TOW_BAD_FORMAT ? TOW_OK : TOW_INTERNAL_ERROR);
    assert_message(f, "line 1: expected a separator or the end of the line behind a closing quote");
    write_text(f, "\" a\", x\n a ,x\n");
    OK(tow_source_csv(f->ctx, f->path, &spaced, &source));
    for (int i = 0; i < 2; i++) assert_row(f, source, i, tow_make_type(TOW_I64, 0, NULL), &(int64_t[]){1, 0}[i]);
    tow_source_release(source);

    write_text(f, "1;2\n;4\n");
    OK(tow_source_csv(f->ctx, f->path, &TOW_CSV_OPTIONS(.separator = ';', .missing = true), &source));
    tow_array *row;
    OK(tow_source_row(source, 1, &row));
    assert_true(isnan(((double *)tow_array_data(row))[0]) && ((double *)tow_array_data(row))[1] == 4);
    tow_array_release(row);
    tow_source_release(source);
    for (const char *const *text = (const char *const[]){"", "\n\r\n\n", "a,b\n", NULL}; *text; text++) { /* no rows */
        write_text(f, *text);
        OK(tow_source_csv(f->ctx, f->path, &TOW_CSV_OPTIONS(.header = true), &source));
        assert_int_equal(tow_source_row_count(source), 0);
        tow_source_release(source);
    }
}

/* Rows far behind the places that are remembered, with empty lines and quoted line breaks among them. */
static void csv_rows_by_number(void **state)
{
    fixture *f = *state;
    enum {
        N = 1000
    };
    FILE *file = fopen(f->path, "w");
    for (int i = 0; i < N; i++) fprintf(file, i % 3 == 0 ? "%d,\"a\nb\"\n\n" : "%d,x\r\n", i * i);
    assert_int_equal(fclose(file), 0);
    tow_source *source;
    OK(tow_source_csv(f->ctx, f->path, &TOW_CSV_OPTIONS(.n_columns = 1, .columns = (const int[]){0}), &source));
    assert_int_equal(tow_source_row_count(source), N);
    for (int i = 0; i < N; i++) {
        const int row = i * 7 % N;
        assert_row(f, source, row, tow_make_type(TOW_F64, 0, NULL), &(double){row * row});
    }
    tow_source_release(source);
}

/* Each text has the rows {1.5, NaN} and {-2, 4}. pandas.read_csv with the same options reads them so, too, but for
 * spaces: it keeps those behind a field, and a line of spaces and a comment is a row for it. */
static void csv_dialects(void **state)
{
    fixture *f = *state;
    const struct {
        const char *text;
        tow_csv_options options;
    } cases[] = {
        {"1,5;\n-2;4,0\n", {.missing = true, .decimal = ','}},
        {"1,5\tNA\n-2,\t4e0\n", {.missing = true, .decimal = ',', .separator = '\t'}},
        {"\"1,5\";null\n\"-2\";4", {.missing = true, .decimal = ','}},
        {"1.5,NA\n-2,4\n", {.missing = true}},
        {"1.5, <NA> \n-2,4\n", {.missing = true}},
        {"1.5,\"n/a\"\n-2,4\n", {.missing = true, .decimal = '.'}},
        {"1.5,?\n-2,4\n", {.missing = true, .missing_words = (const char *const[]){"-", "?", NULL}}},
        {"1.5,\n-2,4\n", {.missing = true, .missing_words = (const char *const[]){NULL}}},
        {"1.5,\r-2,4\r", {.missing = true}},
        {"\r\r1.5,\r\r-2,4", {.missing = true}},
        {"# first, line\n1.5, # none\n  # a line\n\n-2,4# last", {.missing = true, .comment = '#'}},
        {"%\r\n1.5,NA%x\r\n-2,4%\r\n%", {.missing = true, .comment = '%'}},
        {"#\n\"a # b\",y # \"\n#\n1.5,\n-2,4\n", {.missing = true, .comment = '#', .header = true}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_source *source;
        tow_array *row;
        tow_csv_options options = cases[i].options;
        options.size = sizeof options;
        write_text(f, cases[i].text);
        OK(tow_source_csv(f->ctx, f->path, &options, &source));
        assert_int_equal(tow_source_row_count(source), 2);
        OK(tow_source_row(source, 0, &row));
        assert_true(((double *)tow_array_data(row))[0] == 1.5 && isnan(((double *)tow_array_data(row))[1]));
        tow_array_release(row);
        assert_row(f, source, 1, tow_make_type(TOW_F64, 1, (int64_t[]){2}), (double[]){-2, 4});
        tow_source_release(source);
    }
}

typedef struct bad_csv {
    const char *text;
    tow_csv_options options;
    bool at_row; /* found when row 1 is read */
    tow_status status;
    const char *message;
} bad_csv;

static void bad_csv_files(void **state)
{
    fixture *f = *state;
    static const int third[] = {2};
    static const char *const unknown[] = {"z"};
    static const char *const classes[] = {"a", NULL};
    const bad_csv cases[] = {
        {"1,2\n3\n", {0}, false, TOW_BAD_FORMAT, "line 2: expected 2 fields, found 1"},
        {"1,2\n\n3,4,5\n", {0}, false, TOW_BAD_FORMAT, "line 3: expected 2 fields, found 3"},
        {"1,2\n\"3,4\n5,6\n", {0}, false, TOW_BAD_FORMAT, "line 2: expected a closing quote"},
        {"1,2\n\"3\"x,4\n", {0}, false, TOW_BAD_FORMAT, "line 2: expected a separator or the end of the line"},
        {"1,2\n3,four\n", {0}, true, TOW_BAD_FORMAT, "line 2, field 2: expected a number, found 'four'"},
        {"1,2\n\n3,\n", {0}, true, TOW_BAD_FORMAT, "line 3, field 2: expected a number, found ''"},
        {"1\n2.5\n", {.integers = true}, true, TOW_BAD_FORMAT, "line 2, field 1: expected a whole number"},
        {"1\n9223372036854775808\n", {.integers = true}, true, TOW_BAD_FORMAT, "expected a whole number"},
        {"a\nb\n", {.classes = classes}, true, TOW_BAD_FORMAT, "expected one of the classes, found 'b'"},
        {"1,2\n", {.n_columns = 1, .columns = third}, false, TOW_NOT_FOUND, "expected a column from 0 to 1, found 2"},
        {"x,y\n1,2\n",
         {.header = true, .n_columns = 1, .names = unknown},
         false,
         TOW_NOT_FOUND,
         "there is no column 'z'; the header is 'x,y'"},
        {"x,y\n", {.n_columns = 1, .names = unknown}, false, TOW_INVALID_ARGUMENT, ".names together with .header"},
        {"x,y\n", {.n_columns = 1}, false, TOW_INVALID_ARGUMENT, "the numbers or the names of 1 columns"},
        {"x,y\n", {.separator = '"'}, false, TOW_INVALID_ARGUMENT, "separator"},
        {"1,2\r\n3\r", {0}, false, TOW_BAD_FORMAT, "line 2: expected 2 fields, found 1"},
        {"\"1\r2\r\n3\n4\",2\n3\n", {0}, false, TOW_BAD_FORMAT, "line 5: expected 2 fields, found 1"},
        {"#\n1,2\n#\n3#,4\n", {.comment = '#'}, false, TOW_BAD_FORMAT, "line 4: expected 2 fields, found 1"},
        {"1;2\n1.5;2\n", {.decimal = ','}, true, TOW_BAD_FORMAT, "line 2, field 1: expected a number, found '1.5'"},
        {"1;2\n1,5,5;2\n", {.decimal = ','}, true, TOW_BAD_FORMAT, "expected a number, found '1,5,5'"},
        {"1,2\n?,2\n", {.missing = true}, true, TOW_BAD_FORMAT, "expected a number, found '?'"},
        {"1\n", {.decimal = 'x'}, false, TOW_INVALID_ARGUMENT, "expected .decimal to be '.' or ','"},
        {"1\n", {.decimal = ',', .separator = ','}, false, TOW_INVALID_ARGUMENT, "another separator than a comma"},
        {"1\n", {.comment = ','}, false, TOW_INVALID_ARGUMENT, "a start of comments that differ"},
        {"1\n", {.missing_words = unknown}, false, TOW_INVALID_ARGUMENT, ".missing_words together with .missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_source *source;
        tow_array *row = NULL;
        tow_csv_options options = cases[i].options;
        options.size = sizeof options;
        write_text(f, cases[i].text);
        tow_status status = tow_source_csv(f->ctx, f->path, &options, &source);
        if (cases[i].at_row) {
            OK(status);
            status = tow_source_row(source, 1, &row);
        } else {
            assert_null(source);
        }
        assert_int_equal(status, cases[i].status);
        assert_message(f, cases[i].message);
        assert_null(row);
        tow_source_release(source);
    }
    char text[400];
    memset(text, '1', sizeof text);
    write_bytes(f->path, text, sizeof text);
    tow_source *source;
    tow_array *row;
    OK(tow_source_csv(f->ctx, f->path, NULL, &source));
    assert_int_equal(tow_source_row(source, 0, &row), TOW_BAD_FORMAT);
    assert_message(f, "expected at most 255 bytes of text, found 400");
    tow_source_release(source);
    write_bytes(f->path,
                "1\0"
                "2",
                3);
    OK(tow_source_csv(f->ctx, f->path, NULL, &source));
    assert_int_equal(tow_source_row(source, 0, &row), TOW_BAD_FORMAT);
    assert_message(f, "line 1, field 1: expected text, found a zero byte");
    tow_source_release(source);
}

/* ---- failing allocations ----------------------------------------------------------------------------------------- */

static tow_status open_all(tow_context *ctx, const fixture *f, tow_source **csv, tow_source **windows)
{
    const tow_csv_options options =
        TOW_CSV_OPTIONS(.header = true, .n_columns = 2, .names = (const char *const[]){"b", "a"});
    tow_source *lines = NULL;
    tow_status status = tow_source_csv(ctx, f->path, &options, csv);
    if (status == TOW_OK) status = tow_source_raw(ctx, f->path, NULL, &lines);
    if (status == TOW_OK) status = tow_source_windows(lines, 2, 1, 0, windows);
    tow_source_release(lines);
    return status;
}

static void failing_allocations(void **state)
{
    fixture *f = *state;
    write_text(f, "a,b\n1,2\n3,4\n");
    tow_status status = TOW_OUT_OF_MEMORY;
    for (long i = 0; status != TOW_OK; i++) {
        counting c;
        const tow_context_options options = counting_options(&c, -1);
        tow_context *ctx;
        tow_source *csv = NULL, *windows = NULL;
        assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
        c.fail_at = c.calls + i;
        status = open_all(ctx, f, &csv, &windows);
        assert_true(status == TOW_OK || status == TOW_OUT_OF_MEMORY);
        tow_source_release(csv);
        tow_source_release(windows);
        tow_context_free(ctx);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.wrong_sizes, 0);
        assert_true(i < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(idx_files),    TEST(damaged_idx_files),     TEST(sparse_files),
        TEST(npy_files),    TEST(raw_files_and_windows), TEST(arrays_and_functions),
        TEST(csv_files),    TEST(csv_rows_by_number),    TEST(bad_csv_files),
        TEST(csv_dialects), TEST(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Fuzz target: bytes as a file of rows, of which the first byte says which kind: IDX, CSV with one of several options,
 * raw. All rows are read, twice: what a row holds depends on its number alone. */
#include "tow/data.h"
#include "tests/fuzz/fuzz.h"

enum {
    ROWS = 300 /* that are read, at most */
};

static tow_status open_source(tow_context *ctx, unsigned kind, tow_source **source)
{
    static const char *const names[] = {"a", "b"}, *const classes[] = {"x", "y", NULL};
    static const int columns[] = {1, 0, 1};
    static const tow_csv_options csv[] = {
        TOW_CSV_OPTIONS(), TOW_CSV_OPTIONS(.header = true, .n_columns = 2, .names = names),
        TOW_CSV_OPTIONS(.separator = ';', .integers = true),
        TOW_CSV_OPTIONS(.n_columns = 3, .columns = columns, .missing = true), TOW_CSV_OPTIONS(.classes = classes)};
    static const tow_raw_options raw = TOW_RAW_OPTIONS(.stored = TOW_STORED_U16, .rank = 1, .dims = {3}, .skip = 1);
    if (kind % 8 < 5) return tow_source_csv(ctx, "input", &csv[kind % 8], source);
    return kind % 8 == 5 ? tow_source_raw(ctx, "input", &raw, source) : tow_source_idx(ctx, "input", source);
}

static tow_array *row_of(tow_context *ctx, tow_source *source, int64_t row)
{
    tow_array *array = NULL;
    const bool succeeds = fuzz_succeeds(ctx, tow_source_row(source, row, &array));
    if (succeeds != (array != NULL)) fuzz_fail("a status that does not agree with the array");
    return array;
}

int fuzz_target(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    tow_context *ctx = fuzz_context();
    tow_source *source = NULL;
    fuzz_file(ctx, data + 1, size - 1);
    const bool succeeds = fuzz_succeeds(ctx, open_source(ctx, data[0], &source));
    if (succeeds != (source != NULL)) fuzz_fail("a status that does not agree with the source");
    const int64_t n = succeeds ? tow_source_row_count(source) : 0;
    const size_t bytes = succeeds ? tow_type_bytes(tow_source_row_type(source)) : 0;
    if (bytes > 8 * (size + 1) + 24 && n > 0) fuzz_fail("rows of %zu bytes of a file of %zu", bytes, size);
    for (int64_t i = 0; i < n && i < ROWS; i++) {
        tow_array *first = row_of(ctx, source, i), *again = row_of(ctx, source, i);
        if ((first != NULL) != (again != NULL)) fuzz_fail("row %lld is read once", (long long)i);
        if (first && memcmp(tow_array_data(first), tow_array_data(again), bytes) != 0)
            fuzz_fail("row %lld has two values", (long long)i);
        tow_array_release(first);
        tow_array_release(again);
    }
    tow_source_release(source);
    fuzz_end(ctx);
    return 0;
}

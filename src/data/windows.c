/* Windows over a stream of rows. */
#include "src/data/source.h"

typedef struct windows {
    tow_source source; /* this field comes first */
    tow_source *stream;
    int64_t length;
} windows;

static tow_status read_window(const tow_source *s, int64_t start, void *data, tow__row_error *error)
{
    const windows *w = (const windows *)s;
    return w->length > 0 ? w->stream->cls->read(w->stream, start, w->length, data, error) : TOW_OK;
}

static tow_status read_windows(const tow_source *s, int64_t row, int64_t n_rows, void *data, tow__row_error *error)
{
    const size_t bytes = (size_t)tow_type_element_count(s->row) * s->stored_size;
    tow_status status = TOW_OK;
    for (int64_t i = 0; i < n_rows && status == TOW_OK; i++)
        status = read_window(s, (row + i) * s->stride, (unsigned char *)data + (size_t)i * bytes, error);
    return status;
}

static void free_windows(tow_source *s) { tow_source_release(((windows *)s)->stream); }

static const tow__source_class windows_class = {.read = read_windows, .read_window = read_window, .free = free_windows};

static tow_status check(const tow_source *stream, int64_t length, int64_t stride, int64_t ahead)
{
    tow_context *ctx = stream->ctx;
    if (length < 1 || stride < 1 || ahead < 0)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "expected windows with length and stride of at least 1 and ahead of at least 0, found %lld, "
                         "%lld and %lld",
                         (long long)length, (long long)stride, (long long)ahead);
    if (stream->row.rank == TOW_MAX_RANK)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected rows of at most %d axes, found %s", TOW_MAX_RANK - 1,
                         tow__type_name(stream->row).text);
    if (stream->rows < length || stream->rows - length < ahead)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "%s%sexpected at least %lld rows for a window and %lld ahead, found %lld; use shorter windows",
                         stream->name, stream->name[0] != '\0' ? ": " : "", (long long)length, (long long)ahead,
                         (long long)stream->rows);
    return TOW_OK;
}

tow_status tow_source_windows(tow_source *stream, int64_t length, int64_t stride, int64_t ahead, tow_source **source)
{
    if (source) *source = NULL;
    if (!stream || !source)
        return tow__missing(stream ? stream->ctx : NULL, __func__, "a stream and a place for the source");
    tow_status status = check(stream, length, stride, ahead);
    if (status != TOW_OK) return status;
    status = tow__source_create(stream->ctx, sizeof(windows), &windows_class, stream->name, source);
    if (status != TOW_OK) return status;
    windows *w = (windows *)*source;
    tow_source *s = &w->source;
    s->rows = (stream->rows - length - ahead) / stride + 1;
    s->row.dtype = stream->row.dtype;
    s->row.rank = stream->row.rank + 1;
    s->row.dims[0] = length;
    memcpy(s->row.dims + 1, stream->row.dims, (TOW_MAX_RANK - 1) * sizeof *s->row.dims);
    s->stored_size = stream->stored_size;
    s->narrow = stream->narrow;
    s->is_signed = stream->is_signed;
    s->swapped = stream->swapped;
    s->ahead = ahead;
    s->stride = stride;
    w->stream = tow_source_retain(stream);
    w->length = length;
    if (tow__type_valid(s->row)) return TOW_OK;
    status =
        tow__fail(stream->ctx, TOW_INVALID_ARGUMENT, "a window of %lld rows %s has more bytes than can be addressed",
                  (long long)length, tow__type_name(stream->row).text);
    tow_source_release(s);
    *source = NULL;
    return status;
}

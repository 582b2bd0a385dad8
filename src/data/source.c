/* Life of sources, and those that are made of memory, functions and other sources. */
#include "src/data/source.h"

#include <stdio.h>

#include "src/io/io.h"

tow_status tow__row_fail(tow__row_error *error, tow_status status, const char *format, ...)
{
    if (error->status != TOW_OK) return error->status;
    error->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return status;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

tow_status tow__source_create(tow_context *ctx, size_t bytes, const tow__source_class *cls, const char *name,
                              tow_source **source)
{
    tow_source *s = tow__alloc(ctx, bytes, 1);
    *source = NULL;
    if (!s) return TOW_OUT_OF_MEMORY;
    *s = (tow_source){.cls = cls, .ctx = ctx, .bytes = bytes, .name_bytes = strlen(name) + 1};
    atomic_init(&s->references, 1);
    char *copy = tow__alloc(ctx, s->name_bytes, 1);
    if (!copy) {
        tow__free(ctx, s, bytes, 1);
        return TOW_OUT_OF_MEMORY;
    }
    memcpy(copy, name, s->name_bytes);
    s->name = copy;
    tow__context_hold(ctx);
    *source = s;
    return TOW_OK;
}

tow_source *tow_source_retain(tow_source *source)
{
    if (source) atomic_fetch_add_explicit(&source->references, 1, memory_order_relaxed);
    return source;
}

void tow_source_release(tow_source *source)
{
    if (!source || atomic_fetch_sub_explicit(&source->references, 1, memory_order_acq_rel) > 1) return;
    tow_context *ctx = source->ctx;
    source->cls->free(source);
    tow__free(ctx, (void *)(uintptr_t)source->name, source->name_bytes, 1);
    tow__free(ctx, source, source->bytes, 1);
    tow__context_drop(ctx);
}

int64_t tow_source_row_count(const tow_source *source) { return source->rows; }
tow_type tow_source_row_type(const tow_source *source) { return source->row; }

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void swap_elements(unsigned char *data, int64_t n, size_t size)
{
    for (unsigned char *at = data; n > 0; n--, at += size)
        for (size_t i = 0; i < size / 2; i++) {
            const unsigned char byte = at[i];
            at[i] = at[size - 1 - i];
            at[size - 1 - i] = byte;
        }
}

void tow__source_widen(const tow_source *s, void *data, int64_t n)
{
    if (s->swapped) swap_elements(data, n, s->stored_size);
    if (s->narrow) tow__widen_16_bits(data, (size_t)n, s->is_signed);
}

tow_status tow__source_read(const tow_source *s, int64_t row, int64_t ahead, void *data, tow__row_error *error)
{
    if (row < 0 || row >= s->rows)
        return tow__row_fail(error, TOW_INVALID_ARGUMENT, "expected a row from 0 to %lld, found %lld",
                             (long long)s->rows - 1, (long long)row);
    if (ahead != 0) return s->cls->read_window(s, row * s->stride + ahead, data, error);
    return s->cls->read(s, row, 1, data, error);
}

tow_status tow_source_row(tow_source *source, int64_t row, tow_array **array)
{
    if (array) *array = NULL;
    if (!source || !array)
        return tow__missing(source ? source->ctx : NULL, __func__, "a source and a place for the array");
    tow_array *made = NULL;
    tow__row_error error = {0};
    tow_status status = tow_array_create(source->ctx, source->row, &made);
    if (status != TOW_OK) return status;
    if (tow__source_read(source, row, 0, tow_array_data(made), &error) != TOW_OK) {
        tow_array_release(made);
        return tow__fail(source->ctx, error.status, "%s", error.text);
    }
    tow__source_widen(source, tow_array_data(made), tow_type_element_count(source->row));
    *array = made;
    return TOW_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static tow_status read_memory(const tow_source *s, int64_t row, int64_t n_rows, void *data, tow__row_error *error)
{
    const tow__memory_source *m = (const tow__memory_source *)s;
    const size_t bytes = (size_t)tow_type_element_count(s->row) * s->stored_size;
    if (bytes > 0) memcpy(data, m->data + (size_t)row * bytes, (size_t)n_rows * bytes);
    if (s->row.dtype == TOW_BOOL && !tow__valid_bools(data, (size_t)n_rows * bytes))
        return tow__row_fail(error, TOW_BAD_FORMAT, "%s: expected booleans of bytes 0 and 1 in row %lld, found others",
                             s->name, (long long)row);
    return TOW_OK;
}

static void free_memory(tow_source *s) { tow_array_release(((tow__memory_source *)s)->array); }

static const tow__source_class memory_class = {.read = read_memory, .free = free_memory};

tow_status tow__source_of_memory(tow_context *ctx, const char *name, tow_array *array, size_t offset,
                                 const tow_source *like, tow_source **source)
{
    tow_status status = tow__source_create(ctx, sizeof(tow__memory_source), &memory_class, name, source);
    if (status != TOW_OK) return status;
    tow__memory_source *m = (tow__memory_source *)*source;
    m->source.rows = like->rows;
    m->source.row = like->row;
    m->source.stored_size = like->stored_size;
    m->source.narrow = like->narrow;
    m->source.is_signed = like->is_signed;
    m->source.swapped = like->swapped;
    m->array = tow_array_retain(array);
    m->data = array ? (const unsigned char *)tow_array_data(array) + offset : NULL;
    return TOW_OK;
}

tow_status tow_source_array(tow_context *context, tow_array *array, tow_source **source)
{
    if (source) *source = NULL;
    if (!context || !array || !source)
        return tow__missing(context, __func__, "a context, an array and a place for the source");
    const tow_type type = tow_array_type(array);
    if (type.rank == 0)
        return tow__fail(context, TOW_TYPE_MISMATCH, "expected an array with an axis of rows, found %s",
                         tow__type_name(type).text);
    const tow_source like = {.rows = type.dims[0],
                             .row = tow_make_type(type.dtype, type.rank - 1, type.dims + 1),
                             .stored_size = tow_dtype_size(type.dtype)};
    return tow__source_of_memory(context, "", array, 0, &like, source);
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

typedef struct function_source {
    tow_source source; /* this field comes first */
    tow_row_function function;
    void *user;
} function_source;

static tow_status read_function(const tow_source *s, int64_t row, int64_t n_rows, void *data, tow__row_error *error)
{
    const function_source *f = (const function_source *)s;
    const size_t bytes = tow_type_bytes(s->row);
    for (int64_t i = 0; i < n_rows; i++) {
        char text[512] = "";
        const tow_status status =
            f->function(row + i, (unsigned char *)data + (size_t)i * bytes, text, sizeof text, f->user);
        if (status != TOW_OK)
            return tow__row_fail(error, status, "row %lld: %s", (long long)(row + i),
                                 text[0] != '\0' ? text : tow_status_text(status));
    }
    return TOW_OK;
}

static void free_function(tow_source *s) { (void)s; }

static const tow__source_class function_class = {.read = read_function, .free = free_function};

tow_status tow_source_function(tow_context *context, int64_t rows, tow_type row_type, tow_row_function function,
                               void *user, tow_source **source)
{
    if (source) *source = NULL;
    if (!context || !function || !source)
        return tow__missing(context, __func__, "a context, a function and a place for the source");
    if (rows < 0 || !tow__type_valid(row_type))
        return tow__fail(context, TOW_INVALID_ARGUMENT, "expected at least 0 rows of a valid type, found %lld of %s",
                         (long long)rows, tow__type_name(row_type).text);
    tow_status status = tow__source_create(context, sizeof(function_source), &function_class, "", source);
    if (status != TOW_OK) return status;
    function_source *f = (function_source *)*source;
    f->source.rows = rows;
    f->source.row = row_type;
    f->source.stored_size = tow_dtype_size(row_type.dtype);
    f->function = function;
    f->user = user;
    return TOW_OK;
}

/* NumPy's .npy: a header (npy_header.c), then the data. */
#include "src/io/npy.h"

#include <inttypes.h>

#include "src/base/dtypes.h"

enum {
    PIECE = 256 << 10
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The destination of the elements of a file: `at` is the offset of the next one in row-major order. */
typedef struct walk {
    tow_type type;
    bool fortran;
    int64_t index[TOW_MAX_RANK];
    size_t stride[TOW_MAX_RANK];
    size_t at;
} walk;

static void walk_start(walk *w, const tow__npy *npy)
{
    *w = (walk){.type = npy->type, .fortran = npy->fortran};
    for (int32_t i = w->type.rank - 1; i >= 0; i--)
        w->stride[i] = i == w->type.rank - 1 ? 1 : w->stride[i + 1] * (size_t)w->type.dims[i + 1];
}

/* The next element: in Fortran order the first axis runs fastest. */
static void walk_on(walk *w)
{
    for (int32_t i = 0; i < w->type.rank; i++) {
        w->at += w->stride[i];
        if (++w->index[i] < w->type.dims[i]) return;
        w->at -= w->stride[i] * (size_t)w->type.dims[i];
        w->index[i] = 0;
    }
}

static void swap_bytes(unsigned char *data, size_t count, size_t size)
{
    for (unsigned char *at = data; at < data + count * size; at += size)
        for (size_t i = 0; i < size / 2; i++) {
            const unsigned char byte = at[i];
            at[i] = at[size - 1 - i];
            at[size - 1 - i] = byte;
        }
}

/* Stores `count` elements of size `size`, which are next in the file. */
static void store(walk *w, const unsigned char *piece, size_t count, size_t size, unsigned char *data)
{
    if (!w->fortran) {
        memcpy(data + w->at * size, piece, count * size);
        w->at += count;
        return;
    }
    for (size_t i = 0; i < count; i++, walk_on(w)) memcpy(data + w->at * size, piece + i * size, size);
}

/* Data that are not in the file as they are in the array: they come in pieces, which are converted beside them. */
static tow_status read_pieces(tow__stream *s, const tow__npy *npy, tow_dtype dtype, unsigned char *data)
{
    tow_status status = TOW_OK;
    const size_t count = (size_t)tow_type_element_count(npy->type), size = tow_dtype_size(npy->type.dtype);
    const size_t to_size = tow_dtype_size(dtype), step = PIECE / 2 / (size > to_size ? size : to_size);
    unsigned char *piece = tow__alloc_raw(s->ctx, PIECE), *converted = piece + PIECE / 2;
    walk w;
    if (!piece) return TOW_OUT_OF_MEMORY;
    walk_start(&w, npy);
    for (size_t first = 0; first < count; first += step) {
        const size_t n = count - first < step ? count - first : step;
        const size_t stored = tow__npy_element_size(npy);
        TRY(tow__stream_read(s, piece, n * stored));
        if (npy->swapped) swap_bytes(piece, n, stored);
        if (npy->narrow) tow__widen_16_bits(piece, n, npy->is_signed);
        const int64_t misfit = tow__file_convert(dtype, converted, npy->type.dtype, piece, (int64_t)n);
        if (misfit >= 0) {
            char number[24];
            tow__integer_text(npy->type.dtype, piece, misfit, number);
            TRY(tow__fail(s->ctx, TOW_TYPE_MISMATCH,
                          "%s: expected integers that fit %s, found %s at element %zu; read them as %s", s->path,
                          tow_dtype_name(dtype), number, first + (size_t)misfit, tow_dtype_name(npy->type.dtype)));
        }
        store(&w, converted, n, to_size, data);
    }
done:
    tow__free_aligned(s->ctx, piece, PIECE);
    return status;
}

/* True if the data are in the file as they are in an array of the dtype. */
static bool is_plain(const tow__npy *npy, tow_dtype dtype)
{
    return npy->type.dtype == dtype && !npy->fortran && !npy->swapped && !npy->narrow;
}

tow_status tow__npy_read_data(tow__stream *s, const tow__npy *npy, tow_dtype dtype, tow_array **array)
{
    tow_status status = TOW_OK;
    tow_type type = npy->type;
    *array = NULL;
    if (!tow__file_converts(type.dtype, dtype))
        return tow__fail(s->ctx, TOW_TYPE_MISMATCH,
                         "%s: expected %s, found %s, which does not convert to it; convert it with astype first",
                         s->path, tow_dtype_name(dtype), tow__type_name(type).text);
    type.dtype = dtype;
    TRY(tow_array_create(s->ctx, type, array));
    void *data = tow_array_data(*array);
    TRY(is_plain(npy, dtype) ? tow__stream_read(s, data, tow_type_bytes(type)) : read_pieces(s, npy, dtype, data));
    if (type.dtype == TOW_BOOL && !tow__valid_bools(data, (size_t)tow_type_element_count(type)))
        TRY(tow__fail(s->ctx, TOW_BAD_FORMAT, "%s: expected booleans of bytes 0 and 1, found others", s->path));
done:
    if (status != TOW_OK) {
        tow_array_release(*array);
        *array = NULL;
    }
    return status;
}

/* dtype < 0: that of the file. A mapping is of use unless the data must be converted, are not aligned for their type,
 * or are booleans, which were not 0 or 1 any more if others changed the file. */
static tow_status load(tow_context *context, const char *path, int dtype, bool map, tow_array **array)
{
    tow__input_file file;
    tow_array *mapping = NULL;
    tow_status status = tow__input_open(context, path, &file);
    if (status != TOW_OK) return status;
    tow__file_stream s = tow__stream_of_file(&file, path, 0, file.size);
    tow__npy npy;
    TRY(tow__npy_read_header(&s.stream, &npy));
    const tow_dtype wanted = dtype < 0 ? npy.type.dtype : (tow_dtype)dtype;
    map = map && is_plain(&npy, wanted) && npy.data % tow_dtype_size(wanted) == 0 && wanted != TOW_BOOL;
    if (map) TRY(tow__input_map(&file, &mapping));
    TRY(map ? tow__array_view(context, mapping, (size_t)npy.data, npy.type, array)
            : tow__npy_read_data(&s.stream, &npy, wanted, array));
done:
    tow_array_release(mapping);
    tow__input_close(&file);
    return status;
}

tow_status tow_npy_read(tow_context *context, const char *path, tow_array **array)
{
    if (array) *array = NULL;
    if (!context || !array) return tow__missing(context, __func__, "a context and a place for the array");
    return load(context, path, -1, false, array);
}

tow_status tow_npy_read_with(tow_context *context, const char *path, tow_dtype dtype, tow_array **array)
{
    if (array) *array = NULL;
    if (!context || !array) return tow__missing(context, __func__, "a context and a place for the array");
    if (tow_dtype_size(dtype) == 0)
        return tow__fail(context, TOW_INVALID_ARGUMENT, "expected " TOW__A_DTYPE " to read %s as, found %d",
                         path ? path : "NULL", (int)dtype);
    return load(context, path, (int)dtype, false, array);
}

tow_status tow_npy_mmap(tow_context *context, const char *path, tow_array **array)
{
    if (array) *array = NULL;
    if (!context || !array) return tow__missing(context, __func__, "a context and a place for the array");
    return load(context, path, -1, true, array);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

tow_status tow_npy_write(tow_context *context, const char *path, const tow_array *array)
{
    if (!context || !array) return tow__missing(context, __func__, "a context and an array");
    char prefix[TOW__NPY_PREFIX];
    tow__output_file file;
    tow_type type = tow_array_type(array);
    tow_status status = tow__npy_check(context, path, type);
    if (status != TOW_OK) return status;
    size_t length = tow__npy_prefix(type, prefix);
    status = tow__output_open(context, path, &file);
    if (status == TOW_OK) status = tow__output_write(&file, prefix, length);
    if (status == TOW_OK) status = tow__output_write(&file, tow_array_data(array), tow_type_bytes(type));
    if (status == TOW_OK) status = tow__output_commit(&file);
    tow__output_close(&file);
    return status;
}

/* Sources that are files of rows: raw elements, .npy, IDX. */
#include <inttypes.h>

#include "src/base/options.h"
#include "src/data/source.h"
#include "src/io/npy.h"

tow_status tow__source_map(tow_context *ctx, const char *path, tow_array **array, uint64_t *size)
{
    tow__input_file file;
    *array = NULL;
    tow_status status = tow__input_open(ctx, path, &file);
    if (status != TOW_OK) return status;
    *size = file.size;
    if (file.size > SIZE_MAX / 2)
        status =
            tow__fail(ctx, TOW_BAD_FORMAT, "%s: %" PRIu64 " bytes are more than can be addressed", path, file.size);
    else if (file.size > 0)
        status = tow__input_map(&file, array);
    tow__input_close(&file);
    return status;
}

/* ---- raw elements ------------------------------------------------------------------------------------------------ */

/* The stored type of each kind, and the element type of its rows. */
typedef struct kind {
    tow_dtype dtype;
    bool narrow, is_signed;
} kind;

static const kind kinds[] = {
    [TOW_STORED_U8] = {TOW_U8},   [TOW_STORED_I8] = {TOW_I8},     [TOW_STORED_U16] = {TOW_I32, true},
    [TOW_STORED_U32] = {TOW_U32}, [TOW_STORED_I32] = {TOW_I32},   [TOW_STORED_I16] = {TOW_I32, true, true},
    [TOW_STORED_U64] = {TOW_U64}, [TOW_STORED_I64] = {TOW_I64},   [TOW_STORED_F16] = {TOW_F16},
    [TOW_STORED_F32] = {TOW_F32}, [TOW_STORED_BF16] = {TOW_BF16}, [TOW_STORED_F64] = {TOW_F64},
};
enum {
    N_KINDS = sizeof kinds / sizeof *kinds
};

/* Sets element type and size of rows. */
static void set_kind(tow_source *like, kind k)
{
    like->row.dtype = k.dtype;
    like->narrow = k.narrow;
    like->is_signed = k.is_signed;
    like->stored_size = k.narrow ? 2 : tow_dtype_size(k.dtype);
}

static tow_status raw_rows(tow_context *ctx, const char *path, const tow_raw_options *o, uint64_t size,
                           tow_source *like)
{
    const uint64_t bytes = (uint64_t)tow_type_element_count(like->row) * like->stored_size;
    if (size < o->skip)
        return tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected at least %" PRIu64 " bytes to skip, found %" PRIu64, path,
                         o->skip, size);
    if (bytes == 0 || (size - o->skip) % bytes != 0)
        return tow__fail(ctx, TOW_BAD_FORMAT,
                         "%s: expected rows of %" PRIu64 " bytes from byte %" PRIu64 " on, found %" PRIu64
                         " bytes, which are no whole number of them",
                         path, bytes, o->skip, size - o->skip);
    like->rows = (int64_t)((size - o->skip) / bytes);
    return TOW_OK;
}

tow_status tow_source_raw(tow_context *context, const char *path, const tow_raw_options *options, tow_source **source)
{
    static const tow_raw_options none = TOW_RAW_OPTIONS();
    if (source) *source = NULL;
    if (!context || !source) return tow__missing(context, __func__, "a context and a place for the source");
    tow_raw_options own;
    if (!TOW__OPTIONS_TAKE(context, tow_raw_options, options, &own)) return TOW_INVALID_ARGUMENT;
    const tow_raw_options *o = options ? options : &none;
    if ((unsigned)o->stored >= N_KINDS)
        return tow__fail(context, TOW_INVALID_ARGUMENT, "expected one of tow_stored, found %d", (int)o->stored);
    tow_source like = {.row = tow_make_type(TOW_U8, o->rank, o->dims), .swapped = o->big_endian};
    set_kind(&like, kinds[o->stored]);
    if (!tow__type_valid(like.row))
        return tow__fail(context, TOW_INVALID_ARGUMENT,
                         "expected rows of 0 to %d axes of at least 0 elements, found %s", TOW_MAX_RANK,
                         tow__type_name(like.row).text);
    tow_array *mapping;
    uint64_t size = 0;
    tow_status status = TOW_OK;
    TRY(tow__source_map(context, path, &mapping, &size));
    status = raw_rows(context, path, o, size, &like);
    if (status == TOW_OK) status = tow__source_of_memory(context, path, mapping, (size_t)o->skip, &like, source);
    tow_array_release(mapping);
done:
    return status;
}

/* ---- .npy -------------------------------------------------------------------------------------------------------- */

/* Data in Fortran order, whose rows are not in one piece, are read. */
static tow_status copy_npy(tow_context *ctx, const char *path, tow_source **source)
{
    tow_array *array;
    tow_status status = tow_npy_read(ctx, path, &array);
    if (status == TOW_OK) status = tow_source_array(ctx, array, source);
    tow_array_release(array);
    return status;
}

tow_status tow_source_npy(tow_context *context, const char *path, tow_source **source)
{
    if (source) *source = NULL;
    if (!context || !source) return tow__missing(context, __func__, "a context and a place for the source");
    tow__input_file file;
    tow_array *mapping = NULL;
    tow__npy npy;
    tow_status status = tow__input_open(context, path, &file);
    if (status != TOW_OK) return status;
    tow__file_stream s = tow__stream_of_file(&file, path, 0, file.size);
    TRY(tow__npy_read_header(&s.stream, &npy));
    if (npy.type.rank == 0)
        TRY(tow__fail(context, TOW_TYPE_MISMATCH, "%s: expected an array with an axis of rows, found %s", path,
                      tow__type_name(npy.type).text));
    if (npy.fortran) {
        TRY(copy_npy(context, path, source));
        goto done;
    }
    TRY(tow__input_map(&file, &mapping));
    tow_source like = {.rows = npy.type.dims[0],
                       .row = tow_make_type(npy.type.dtype, npy.type.rank - 1, npy.type.dims + 1),
                       .swapped = npy.swapped};
    set_kind(&like, (kind){npy.type.dtype, npy.narrow, npy.is_signed});
    TRY(tow__source_of_memory(context, path, mapping, (size_t)npy.data, &like, source));
done:
    tow_array_release(mapping);
    tow__input_close(&file);
    return status;
}

/* ---- IDX: 0 0 type axes, sizes u32, data, all in big-endian order ------------------------------------------------ */

typedef struct idx_type {
    unsigned char code;
    tow_stored stored;
} idx_type;

static const idx_type idx_types[] = {
    {0x08, TOW_STORED_U8},  {0x09, TOW_STORED_I8},  {0x0B, TOW_STORED_I16},
    {0x0C, TOW_STORED_I32}, {0x0D, TOW_STORED_F32}, {0x0E, TOW_STORED_F64},
};

static tow_status idx_magic(tow_context *ctx, const char *path, const unsigned char *head, uint64_t size,
                            tow_source *like)
{
    if (size >= 2 && head[0] == 0x1f && head[1] == 0x8b)
        return tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected an IDX file, found a gzip archive; gunzip it first", path);
    if (size < 4 || head[0] != 0 || head[1] != 0)
        return tow__fail(ctx, TOW_BAD_FORMAT,
                         "%s: expected an IDX file, which begins with bytes 0 0 type axes, found %" PRIu64
                         " bytes that begin with %02x %02x",
                         path, size, size > 0 ? head[0] : 0, size > 1 ? head[1] : 0);
    for (size_t i = 0; i < sizeof idx_types / sizeof *idx_types; i++)
        if (idx_types[i].code == head[2]) {
            set_kind(like, kinds[idx_types[i].stored]);
            return TOW_OK;
        }
    return tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected an element type 08, 09, 0b, 0c, 0d or 0e at byte 2, found %02x",
                     path, head[2]);
}

/* Sizes of axes, and that the data are what follows them. */
static tow_status idx_sizes(tow_context *ctx, const char *path, const unsigned char *head, uint64_t size,
                            tow_source *like)
{
    const unsigned axes = head[3];
    const uint64_t start = 4 + 4 * (uint64_t)axes;
    uint64_t expected = like->stored_size;
    if (axes == 0 || axes > TOW_MAX_RANK + 1)
        return tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected 1 to %d axes at byte 3, found %u", path, TOW_MAX_RANK + 1,
                         axes);
    if (size < start)
        return tow__fail(ctx, TOW_BAD_FORMAT,
                         "%s: expected %u sizes of axes up to byte %" PRIu64 ", found %" PRIu64
                         " bytes; the file is truncated",
                         path, axes, start, size);
    bool fits = true, empty = false;
    for (unsigned i = 0; i < axes; i++) {
        const unsigned char *at = head + 4 + 4 * i;
        const uint32_t dim = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
        empty = empty || dim == 0;
        if (fits && dim > 0) fits = !__builtin_mul_overflow(expected, dim, &expected);
        if (i > 0)
            like->row.dims[i - 1] = dim;
        else
            like->rows = dim;
    }
    like->row.rank = (int32_t)axes - 1;
    if (empty) expected = 0;
    if ((fits || empty) && expected == size - start && tow__type_valid(like->row)) return TOW_OK;
    return tow__fail(ctx, TOW_BAD_FORMAT,
                     "%s: expected %" PRIu64 "%s bytes of data from byte %" PRIu64
                     " on, as the %u sizes before them say, "
                     "found %" PRIu64,
                     path, fits ? expected : UINT64_MAX, fits ? "" : " or more", start, axes, size - start);
}

tow_status tow_source_idx(tow_context *context, const char *path, tow_source **source)
{
    if (source) *source = NULL;
    if (!context || !source) return tow__missing(context, __func__, "a context and a place for the source");
    tow_array *mapping = NULL;
    uint64_t size = 0;
    tow_source like = {.swapped = true};
    tow_status status = TOW_OK;
    TRY(tow__source_map(context, path, &mapping, &size));
    const unsigned char *head = mapping ? tow_array_data(mapping) : NULL;
    TRY(idx_magic(context, path, head, size, &like));
    TRY(idx_sizes(context, path, head, size, &like));
    TRY(tow__source_of_memory(context, path, mapping, 4 + 4 * (size_t)head[3], &like, source));
done:
    tow_array_release(mapping);
    return status;
}

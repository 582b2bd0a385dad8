/* PNG (ISO/IEC 15948): a signature and chunks of length, type, data and CRC. The pixels are one zlib stream of rows,
 * each behind a byte that names its filter, here always "none". */
#include "src/log/png.h"

#include "src/io/inflate.h"
#include "src/io/io.h"
#include "tow/log.h"

enum {
    MOST_SIDE = INT32_MAX,
    GRAY = 0,
    RGB = 2,
    RGBA = 6
};

tow_status tow__png_shape(tow_context *ctx, const tow_array *pixels, int64_t *height, int64_t *width, int64_t *channels)
{
    const tow_type type = tow_array_type(pixels);
    const bool images = type.dtype == TOW_U8 && (type.rank == 2 || type.rank == 3);
    *height = images ? type.dims[0] : 0;
    *width = images ? type.dims[1] : 0;
    *channels = type.rank == 3 ? type.dims[2] : 1;
    if (*height > 0 && *width > 0 && *height <= MOST_SIDE && *width <= MOST_SIDE &&
        (*channels == 1 || *channels == 3 || *channels == 4))
        return TOW_OK;
    return tow__fail(ctx, TOW_TYPE_MISMATCH,
                     "expected pixels u8[height, width] or u8[height, width, channels], not empty, with 1, 3 or 4 "
                     "channels, found %s; tow_image_grid makes pixels of other arrays",
                     tow__type_name(type).text);
}

static void add_chunk(tow__bytes *b, const char type[4], const void *data, size_t size)
{
    uint32_t crc = (uint32_t)crc32_z(0, (const unsigned char *)type, 4);
    if (size > 0) crc = (uint32_t)crc32_z(crc, data, size);
    tow__bytes_add_big(b, size, 4);
    tow__bytes_add(b, type, 4);
    tow__bytes_add(b, data, size);
    tow__bytes_add_big(b, crc, 4);
}

/* Deflates `size` bytes; each buffer that is full becomes a chunk. The first chunk begins with the header of a zlib
 * stream. */
static tow_status deflate_piece(tow__bytes *b, tow__deflater *d, tow__bytes *packed, const void *data, size_t size,
                                bool last)
{
    d->z.next_in = (unsigned char *)(uintptr_t)data;
    d->z.avail_in = (unsigned)size;
    int result = Z_OK;
    do {
        d->z.next_out = d->buffer;
        d->z.avail_out = sizeof d->buffer;
        result = deflate(&d->z, last ? Z_FINISH : Z_NO_FLUSH);
        tow__bytes_add(packed, d->buffer, sizeof d->buffer - d->z.avail_out);
        if (packed->failed || b->failed) return TOW_OUT_OF_MEMORY;
        if (packed->size >= sizeof d->buffer) {
            add_chunk(b, "IDAT", packed->data, packed->size);
            packed->size = 0;
        }
    } while (d->z.avail_out == 0);
    return result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR ? TOW_OK : TOW_INTERNAL_ERROR;
}

static tow_status add_rows(tow__bytes *b, const unsigned char *pixels, int64_t height, size_t row)
{
    static const unsigned char header[2] = {0x78, 0x9c}, filter = 0;
    tow__deflater *d = NULL;
    tow__bytes packed;
    tow__bytes_init(&packed, b->ctx);
    tow_status status = TOW_OK;
    TRY(tow__deflater_create(b->ctx, &d));
    tow__bytes_add(&packed, header, sizeof header);
    uint32_t adler = 1;
    for (int64_t y = 0; y < height; y++) {
        const unsigned char *from = pixels + (size_t)y * row;
        adler = (uint32_t)adler32_z(adler32_z(adler, &filter, 1), from, row);
        TRY(deflate_piece(b, d, &packed, &filter, 1, false));
        for (size_t at = 0; at < row; at += TOW__ZLIB_BUFFER)
            TRY(deflate_piece(b, d, &packed, from + at, row - at < TOW__ZLIB_BUFFER ? row - at : TOW__ZLIB_BUFFER,
                              false));
    }
    TRY(deflate_piece(b, d, &packed, NULL, 0, true));
    tow__bytes_add_big(&packed, adler, 4);
    add_chunk(b, "IDAT", packed.data, packed.size);
    if (packed.failed) status = TOW_OUT_OF_MEMORY;
done:
    tow__bytes_free(&packed);
    tow__deflater_free(d);
    return status;
}

tow_status tow__png_encode(tow_context *ctx, const tow_array *pixels, tow__bytes *b)
{
    static const unsigned char signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    int64_t height, width, channels;
    tow_status status = tow__png_shape(ctx, pixels, &height, &width, &channels);
    if (status != TOW_OK) return status;
    unsigned char head[13] = {0};
    for (int i = 0; i < 4; i++) {
        head[i] = (unsigned char)(width >> 8 * (3 - i));
        head[4 + i] = (unsigned char)(height >> 8 * (3 - i));
    }
    head[8] = 8; /* bits of a sample */
    head[9] = channels == 1 ? GRAY : channels == 3 ? RGB : RGBA;
    tow__bytes_add(b, signature, sizeof signature);
    add_chunk(b, "IHDR", head, sizeof head);
    status = add_rows(b, tow_array_data(pixels), height, (size_t)(width * channels));
    add_chunk(b, "IEND", NULL, 0);
    return status == TOW_OK && b->failed ? TOW_OUT_OF_MEMORY : status;
}

tow_status tow_png_write(tow_context *context, const char *path, const tow_array *pixels)
{
    if (!context || !pixels) return tow__missing(context, __func__, "a context and pixels");
    tow__output_file file = {0};
    tow__bytes b;
    tow__bytes_init(&b, context);
    tow_status status = tow__png_encode(context, pixels, &b);
    if (status == TOW_OK) status = tow__output_open(context, path, &file);
    if (status == TOW_OK) status = tow__output_write(&file, b.data, b.size);
    if (status == TOW_OK) status = tow__output_commit(&file);
    tow__output_close(&file);
    tow__bytes_free(&b);
    return status;
}

/* Members of zip archives as streams: stored bytes as they are, deflated ones inflated. */
#include <inttypes.h>

#include "src/io/inflate.h"
#include "src/io/zip.h"

static tow_status damaged(const tow__zip_stream *s, const char *what)
{
    return tow__fail(s->stream.ctx, TOW_BAD_FORMAT, "%s: %s; the file is damaged, use another copy", s->stream.path,
                     what);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static tow_status read_packed(tow__zip_stream *s, void *data, size_t count)
{
    tow_status status = tow__input_read(s->file, s->at, data, count);
    s->at += count;
    s->packed_left -= count;
    return status;
}

/* Inflates until `count` bytes are there, or, with count 0, until the stream has ended. */
static tow_status inflate_bytes(tow__zip_stream *s, void *data, size_t count)
{
    tow_status status = TOW_OK;
    z_stream *z = &s->inflater->z;
    unsigned char more;
    int result = Z_OK;
    while (count > 0 || result != Z_STREAM_END) {
        const unsigned piece = count > 1 << 30 ? 1U << 30 : (unsigned)count;
        if (z->avail_in == 0 && s->packed_left > 0) {
            const size_t n = s->packed_left < TOW__ZLIB_BUFFER ? (size_t)s->packed_left : TOW__ZLIB_BUFFER;
            TRY(read_packed(s, s->inflater->buffer, n));
            z->next_in = s->inflater->buffer;
            z->avail_in = (unsigned)n;
        }
        z->next_out = count > 0 ? data : &more;
        z->avail_out = count > 0 ? piece : 1;
        const unsigned asked = z->avail_out;
        result = inflate(z, Z_NO_FLUSH);
        const unsigned found = asked - z->avail_out;
        if (result == Z_MEM_ERROR) return tow__fail(s->stream.ctx, TOW_OUT_OF_MEMORY, "out of memory for zlib");
        if (result != Z_OK && result != Z_STREAM_END) return damaged(s, "its deflated bytes are no stream of deflate");
        if (count == 0 && found > 0) return damaged(s, "it inflates to more bytes than it says");
        data = (char *)data + (count > 0 ? found : 0);
        count -= count > 0 ? found : 0;
        if (result == Z_STREAM_END && count > 0) return damaged(s, "it inflates to fewer bytes than it says");
    }
done:
    return status;
}

static tow_status finish(tow__zip_stream *s)
{
    tow_status status = TOW_OK;
    if (s->inflater) TRY(inflate_bytes(s, NULL, 0));
    if (s->packed_left > 0 || (s->inflater && s->inflater->z.avail_in > 0))
        return damaged(s, "bytes stand behind its deflated ones");
    if (s->crc == s->expected) return TOW_OK;
    return tow__fail(s->stream.ctx, TOW_BAD_FORMAT,
                     "%s: the data have the CRC %08" PRIx32 ", expected %08" PRIx32
                     "; the file is damaged, use another copy",
                     s->stream.path, s->crc, s->expected);
done:
    return status;
}

static tow_status read_member(tow__stream *stream, void *data, size_t count)
{
    tow__zip_stream *s = (tow__zip_stream *)stream;
    tow_status status = TOW_OK;
    TRY(s->inflater ? inflate_bytes(s, data, count) : read_packed(s, data, count));
    s->crc = (uint32_t)crc32_z(s->crc, data, count);
    if (stream->left == 0) TRY(finish(s));
done:
    return status;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

tow_status tow__zip_stream_open(const tow__zip *zip, const tow__zip_member *m, const char *path, tow__zip_stream *s)
{
    const tow__input_file *file = zip->file;
    unsigned char header[TOW__ZIP_LOCAL_SIZE];
    tow_status status = TOW_OK;
    *s = (tow__zip_stream){.stream = {.ctx = file->ctx, .path = path, .left = m->size, .read = read_member},
                           .file = file,
                           .packed_left = m->packed,
                           .expected = m->crc};
    if (file->size < sizeof header || m->header > file->size - sizeof header)
        return damaged(s, "it begins behind the end of the file");
    TRY(tow__input_read(file, m->header, header, sizeof header));
    s->at = m->header + sizeof header + tow__zip_get(header + 26, 2) + tow__zip_get(header + 28, 2);
    if (tow__zip_get(header, 4) != TOW__ZIP_LOCAL || tow__zip_get(header + 8, 2) != m->method)
        return damaged(s, "its own header does not agree with the directory");
    if (s->at > file->size || m->packed > file->size - s->at) return damaged(s, "it ends behind the end of the file");
    if (m->method == TOW__ZIP_DEFLATED) TRY(tow__inflater_create(file->ctx, &s->inflater));
done:
    return status;
}

void tow__zip_stream_close(tow__zip_stream *s)
{
    tow__inflater_free(s->inflater);
    s->inflater = NULL;
}

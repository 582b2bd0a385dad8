/* Members of zip archives as streams: stored bytes as they are, deflated ones inflated. */
#include <inttypes.h>

#include "src/io/inflate.h"
#include "src/io/zip.h"

enum {
    MOST_AT_ONCE = 1 << 30 /* bytes: zlib counts them in an unsigned */
};

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

/* Inflates up to `size` bytes. *ended: the stream has no more. */
static tow_status inflate_piece(tow__zip_stream *s, void *data, unsigned size, unsigned *found, bool *ended)
{
    tow_status status = TOW_OK;
    z_stream *z = &s->inflater->z;
    if (z->avail_in == 0 && s->packed_left > 0) {
        const size_t n = s->packed_left < TOW__ZLIB_BUFFER ? (size_t)s->packed_left : TOW__ZLIB_BUFFER;
        TRY(read_packed(s, s->inflater->buffer, n));
        z->next_in = s->inflater->buffer;
        z->avail_in = (unsigned)n;
    }
    z->next_out = data;
    z->avail_out = size;
    const int result = inflate(z, Z_NO_FLUSH);
    *found = size - z->avail_out;
    *ended = result == Z_STREAM_END;
    if (result == Z_MEM_ERROR) return TOW_OUT_OF_MEMORY; /* the context has the message */
    if (result != Z_OK && result != Z_STREAM_END) return damaged(s, "its deflated bytes are no stream of deflate");
done:
    return status;
}

static tow_status inflate_bytes(tow__zip_stream *s, void *data, size_t count)
{
    tow_status status = TOW_OK;
    while (count > 0) {
        unsigned found;
        bool ended;
        TRY(inflate_piece(s, data, count > MOST_AT_ONCE ? MOST_AT_ONCE : (unsigned)count, &found, &ended));
        data = (char *)data + found;
        count -= found;
        if (ended && count > 0) return damaged(s, "it inflates to fewer bytes than it says");
    }
done:
    return status;
}

/* The rest of the stream: its end, and no byte. */
static tow_status inflate_end(tow__zip_stream *s)
{
    tow_status status = TOW_OK;
    unsigned found = 0;
    for (bool ended = false; !ended;) {
        unsigned char more;
        TRY(inflate_piece(s, &more, 1, &found, &ended));
        if (found > 0) return damaged(s, "it inflates to more bytes than it says");
    }
done:
    return status;
}

static tow_status finish(tow__zip_stream *s)
{
    tow_status status = TOW_OK;
    if (s->inflater) TRY(inflate_end(s));
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
    *s = (tow__zip_stream){.stream = {.ctx = file->ctx, .path = path, .left = m->size, .read = read_member},
                           .file = file,
                           .at = m->data,
                           .packed_left = m->packed,
                           .expected = m->crc};
    if (m->encrypted)
        return tow__fail(file->ctx, TOW_UNSUPPORTED, "%s: it is encrypted; write it without a password", path);
    if (m->method != TOW__ZIP_STORED && m->method != TOW__ZIP_DEFLATED)
        return tow__fail(file->ctx, TOW_UNSUPPORTED,
                         "%s: expected a member that is stored or deflated, found method %d; write it with numpy.savez",
                         path, m->method);
    return m->method == TOW__ZIP_DEFLATED ? tow__inflater_create(file->ctx, &s->inflater) : TOW_OK;
}

void tow__zip_stream_close(tow__zip_stream *s)
{
    tow__inflater_free(s->inflater);
    s->inflater = NULL;
}

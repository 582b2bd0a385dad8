/* Writing zip archives, front to back, so that they can go to pipes as well. Sizes are of 64 bits throughout, as in
 * NumPy's archives; those of deflated members stand behind their data. */
#include "src/io/inflate.h"
#include "src/io/zip.h"

enum {
    VERSION = 45,                 /* of zip, the first one with sizes of 64 bits */
    UNIX = 3 << 8,                /* who wrote it */
    MODE = 0600,                  /* of files that are extracted */
    DATE = (0 << 9) | 1 << 5 | 1, /* 1 January 1980: the bytes of a file depend on its contents alone */
    EXTRA = 4 + 16,
    ENTRY_EXTRA = 4 + 24,
    MOST_NAME = UINT16_MAX
};

static tow_status write_bytes(tow__zip_writer *w, const void *data, size_t size)
{
    w->at += size;
    return tow__output_write(w->file, data, size);
}

tow_status tow__zip_begin(tow__zip_writer *w, tow__output_file *file, tow__zip_member *members, bool compress)
{
    *w = (tow__zip_writer){.file = file, .members = members};
    return compress ? tow__deflater_create(file->ctx, &w->deflater) : TOW_OK;
}

void tow__zip_end(tow__zip_writer *w)
{
    tow__deflater_free(w->deflater);
    w->deflater = NULL;
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

static tow_status write_local(tow__zip_writer *w, const tow__zip_member *m)
{
    unsigned char header[TOW__ZIP_LOCAL_SIZE], extra[EXTRA], *at = header;
    const bool later = m->method == TOW__ZIP_DEFLATED;
    tow_status status = TOW_OK;
    at = tow__zip_put(at, 4, TOW__ZIP_LOCAL);
    at = tow__zip_put(at, 2, VERSION);
    at = tow__zip_put(at, 2, TOW__ZIP_UTF8 | (later ? TOW__ZIP_LATER : 0));
    at = tow__zip_put(at, 2, m->method);
    at = tow__zip_put(at, 2, 0); /* time */
    at = tow__zip_put(at, 2, DATE);
    at = tow__zip_put(at, 4, m->crc);
    at = tow__zip_put(at, 4, UINT32_MAX);
    at = tow__zip_put(at, 4, UINT32_MAX);
    at = tow__zip_put(at, 2, strlen(m->name));
    tow__zip_put(at, 2, EXTRA);
    at = tow__zip_put(extra, 2, TOW__ZIP_EXTRA64);
    at = tow__zip_put(at, 2, EXTRA - 4);
    at = tow__zip_put(at, 8, later ? 0 : m->size);
    tow__zip_put(at, 8, later ? 0 : m->packed);
    TRY(write_bytes(w, header, sizeof header));
    TRY(write_bytes(w, m->name, strlen(m->name)));
    TRY(write_bytes(w, extra, sizeof extra));
done:
    return status;
}

/* Deflates what there is and writes it; with `last` to the end of the stream. */
static tow_status deflate_bytes(tow__zip_writer *w, const void *data, size_t size, bool last)
{
    z_stream *z = &w->deflater->z;
    tow_status status = TOW_OK;
    do {
        const unsigned piece = size > 1 << 30 ? 1U << 30 : (unsigned)size;
        z->next_in = (unsigned char *)(uintptr_t)data; /* zlib does not write to it, but has no const here */
        z->avail_in = piece;
        do {
            z->next_out = w->deflater->buffer;
            z->avail_out = TOW__ZLIB_BUFFER;
            deflate(z, last && size == piece ? Z_FINISH : Z_NO_FLUSH);
            TRY(write_bytes(w, w->deflater->buffer, TOW__ZLIB_BUFFER - z->avail_out));
        } while (z->avail_out == 0);
        data = (const char *)data + piece;
        size -= piece;
    } while (size > 0);
done:
    return status;
}

static tow_status write_deflated(tow__zip_writer *w, tow__zip_member *m, size_t n, const tow__zip_part *parts)
{
    unsigned char descriptor[24], *at = descriptor;
    tow_status status = TOW_OK;
    const uint64_t start = w->at;
    deflateReset(&w->deflater->z);
    for (size_t i = 0; i < n; i++) TRY(deflate_bytes(w, parts[i].data, parts[i].size, i + 1 == n));
    m->packed = w->at - start;
    at = tow__zip_put(at, 4, TOW__ZIP_DESCRIPTOR);
    at = tow__zip_put(at, 4, m->crc);
    at = tow__zip_put(at, 8, m->packed);
    tow__zip_put(at, 8, m->size);
    TRY(write_bytes(w, descriptor, sizeof descriptor));
done:
    return status;
}

tow_status tow__zip_add(tow__zip_writer *w, const char *name, size_t n, const tow__zip_part *parts)
{
    tow_status status = TOW_OK;
    tow__zip_member *m = &w->members[w->count++];
    *m = (tow__zip_member){.name = name, .header = w->at, .method = w->deflater ? TOW__ZIP_DEFLATED : TOW__ZIP_STORED};
    if (strlen(name) > MOST_NAME)
        return tow__fail(w->file->ctx, TOW_INVALID_ARGUMENT,
                         "%s: expected names of at most %d bytes in a zip archive, found %zu", w->file->path, MOST_NAME,
                         strlen(name));
    for (size_t i = 0; i < n; i++) {
        m->crc = (uint32_t)crc32_z(m->crc, parts[i].data, parts[i].size);
        m->size += parts[i].size;
    }
    m->packed = m->size;
    TRY(write_local(w, m));
    if (w->deflater) return write_deflated(w, m, n, parts);
    for (size_t i = 0; i < n; i++) TRY(write_bytes(w, parts[i].data, parts[i].size));
done:
    return status;
}

/* ---- the directory ----------------------------------------------------------------------------------------------- */

static tow_status write_entry(tow__zip_writer *w, const tow__zip_member *m)
{
    unsigned char entry[TOW__ZIP_ENTRY_SIZE], extra[ENTRY_EXTRA], *at = entry;
    tow_status status = TOW_OK;
    at = tow__zip_put(at, 4, TOW__ZIP_ENTRY);
    at = tow__zip_put(at, 2, VERSION | UNIX);
    at = tow__zip_put(at, 2, VERSION);
    at = tow__zip_put(at, 2, TOW__ZIP_UTF8 | (m->method == TOW__ZIP_DEFLATED ? TOW__ZIP_LATER : 0));
    at = tow__zip_put(at, 2, m->method);
    at = tow__zip_put(at, 2, 0);
    at = tow__zip_put(at, 2, DATE);
    at = tow__zip_put(at, 4, m->crc);
    at = tow__zip_put(at, 4, UINT32_MAX);
    at = tow__zip_put(at, 4, UINT32_MAX);
    at = tow__zip_put(at, 2, strlen(m->name));
    at = tow__zip_put(at, 2, ENTRY_EXTRA);
    at = tow__zip_put(at, 6, 0); /* comment, disk, attributes inside */
    at = tow__zip_put(at, 4, (uint64_t)MODE << 16);
    tow__zip_put(at, 4, UINT32_MAX);
    at = tow__zip_put(extra, 2, TOW__ZIP_EXTRA64);
    at = tow__zip_put(at, 2, ENTRY_EXTRA - 4);
    at = tow__zip_put(at, 8, m->size);
    at = tow__zip_put(at, 8, m->packed);
    tow__zip_put(at, 8, m->header);
    TRY(write_bytes(w, entry, sizeof entry));
    TRY(write_bytes(w, m->name, strlen(m->name)));
    TRY(write_bytes(w, extra, sizeof extra));
done:
    return status;
}

tow_status tow__zip_finish(tow__zip_writer *w)
{
    unsigned char end[TOW__ZIP_END64_SIZE + TOW__ZIP_LOCATOR_SIZE + TOW__ZIP_END_SIZE], *at = end;
    tow_status status = TOW_OK;
    const uint64_t start = w->at;
    for (size_t i = 0; i < w->count; i++) TRY(write_entry(w, &w->members[i]));
    const uint64_t end64 = w->at;
    at = tow__zip_put(at, 4, TOW__ZIP_END64);
    at = tow__zip_put(at, 8, TOW__ZIP_END64_SIZE - 12);
    at = tow__zip_put(at, 2, VERSION | UNIX);
    at = tow__zip_put(at, 2, VERSION);
    at = tow__zip_put(at, 8, 0); /* disks */
    at = tow__zip_put(at, 8, w->count);
    at = tow__zip_put(at, 8, w->count);
    at = tow__zip_put(at, 8, end64 - start);
    at = tow__zip_put(at, 8, start);
    at = tow__zip_put(at, 4, TOW__ZIP_LOCATOR);
    at = tow__zip_put(at, 4, 0);
    at = tow__zip_put(at, 8, end64);
    at = tow__zip_put(at, 4, 1); /* disks */
    at = tow__zip_put(at, 4, TOW__ZIP_END);
    at = tow__zip_put(at, 4, 0);
    at = tow__zip_put(at, 4, UINT32_MAX); /* twice the number of members, of 16 bits */
    at = tow__zip_put(at, 4, UINT32_MAX);
    at = tow__zip_put(at, 4, UINT32_MAX);
    tow__zip_put(at, 2, 0);
    TRY(write_bytes(w, end, sizeof end));
done:
    return status;
}

/* Reading zip archives: the directory at the end of the file, then members.
 *
 *   [local header, data] [local header, data] ... directory [end64, locator] end
 *
 * Nothing is believed: what the directory says must be within the file, its members must fill it, members do not take
 * more bytes together than the file has, what they inflate to is at most 1,032 times as long, as deflate cannot do
 * more, and the local headers say the same names and methods. No checksum covers the two headers of a member, so a
 * flipped bit in a name shows in this comparison alone. */
#include "src/io/zip.h"

#include <inttypes.h>

enum {
    MOST_COMMENT = 65535,
    MOST_DIRECTORY = 100000000,
    DEFLATE_RATIO = 1032
};

static tow_status damaged(const tow__input_file *file, const char *what)
{
    return tow__fail(file->ctx, TOW_BAD_FORMAT, "%s: expected a zip archive (.npz), found %s; is it whole?", file->path,
                     what);
}

/* ---- the directory ----------------------------------------------------------------------------------------------- */

typedef struct place {
    uint64_t count, size, start; /* entries and bytes of the directory, and where it begins */
    uint64_t limit;              /* where it must end */
} place;

/* The record `end64` that stands before `end`, which begins at `at`. */
static tow_status find_directory64(const tow__input_file *file, uint64_t at, place *p)
{
    unsigned char locator[TOW__ZIP_LOCATOR_SIZE], end[TOW__ZIP_END64_SIZE];
    tow_status status = TOW_OK;
    if (at < sizeof locator) return damaged(file, "no place for the sizes of 64 bits that it names");
    TRY(tow__input_read(file, at - sizeof locator, locator, sizeof locator));
    const uint64_t start = tow__zip_get(locator + 8, 8);
    if (tow__zip_get(locator, 4) != TOW__ZIP_LOCATOR || at < sizeof locator + sizeof end ||
        start > at - sizeof locator - sizeof end)
        return damaged(file, "no sizes of 64 bits where it names them");
    TRY(tow__input_read(file, start, end, sizeof end));
    if (tow__zip_get(end, 4) != TOW__ZIP_END64) return damaged(file, "no sizes of 64 bits where it names them");
    *p = (place){.count = tow__zip_get(end + 32, 8),
                 .size = tow__zip_get(end + 40, 8),
                 .start = tow__zip_get(end + 48, 8),
                 .limit = start};
done:
    return status;
}

/* `end` is the last record, and only a comment stands behind it. */
static tow_status find_directory(const tow__input_file *file, place *p)
{
    tow_status status = TOW_OK;
    const uint64_t most = TOW__ZIP_END_SIZE + MOST_COMMENT;
    const size_t length = (size_t)(file->size < most ? file->size : most);
    const uint64_t tail_start = file->size - length;
    unsigned char *tail = tow__alloc(file->ctx, length + 1, 1), *end = NULL;
    if (!tail) return TOW_OUT_OF_MEMORY;
    TRY(tow__input_read(file, tail_start, tail, length));
    for (size_t i = TOW__ZIP_END_SIZE; i <= length && !end; i++) {
        unsigned char *at = tail + length - i;
        if (tow__zip_get(at, 4) == TOW__ZIP_END && tow__zip_get(at + 20, 2) == i - TOW__ZIP_END_SIZE) end = at;
    }
    if (!end) TRY(damaged(file, "no end of its directory"));
    const uint64_t at = tail_start + (uint64_t)(end - tail);
    *p = (place){.count = tow__zip_get(end + 10, 2),
                 .size = tow__zip_get(end + 12, 4),
                 .start = tow__zip_get(end + 16, 4),
                 .limit = at};
    if (p->count == UINT16_MAX || p->size == UINT32_MAX || p->start == UINT32_MAX) TRY(find_directory64(file, at, p));
    if (p->start > p->limit || p->size != p->limit - p->start)
        TRY(damaged(file, "a directory that does not reach to its end"));
    if (p->size > MOST_DIRECTORY || p->count > p->size / TOW__ZIP_ENTRY_SIZE)
        TRY(damaged(file, "a directory that is too large or too small for its members"));
done:
    tow__free(file->ctx, tail, length + 1, 1);
    return status;
}

/* Sizes of 64 bits stand in the extra field, in this order, for those numbers that are all ones. False if they do
 * not. */
static bool read_extra64(const unsigned char *extra, size_t length, size_t n, uint64_t *const *values)
{
    for (size_t at = 0; at + 4 <= length;) {
        const uint64_t id = tow__zip_get(extra + at, 2), size = tow__zip_get(extra + at + 2, 2);
        const unsigned char *field = extra + at + 4;
        if (size > length - at - 4) return false;
        if (id == TOW__ZIP_EXTRA64) {
            if (size < 8 * n) return false;
            for (size_t i = 0; i < n; i++) *values[i] = tow__zip_get(field + 8 * i, 8);
            return true;
        }
        at += 4 + (size_t)size;
    }
    return n == 0;
}

/* Bytes of the directory from `at` on: sets *length to those of the entry. */
static tow_status read_entry(tow__zip *zip, const unsigned char *at, size_t left, tow__zip_member *m, size_t *length)
{
    if (left < TOW__ZIP_ENTRY_SIZE || tow__zip_get(at, 4) != TOW__ZIP_ENTRY)
        return damaged(zip->file, "less than the directory's members");
    const size_t name = (size_t)tow__zip_get(at + 28, 2), extra = (size_t)tow__zip_get(at + 30, 2);
    *length = TOW__ZIP_ENTRY_SIZE + name + extra + (size_t)tow__zip_get(at + 32, 2);
    if (*length > left) return damaged(zip->file, "a member beyond the end of the directory");
    *m = (tow__zip_member){.name = (const char *)at + TOW__ZIP_ENTRY_SIZE,
                           .header = tow__zip_get(at + 42, 4),
                           .packed = tow__zip_get(at + 20, 4),
                           .size = tow__zip_get(at + 24, 4),
                           .crc = (uint32_t)tow__zip_get(at + 16, 4),
                           .method = (uint16_t)tow__zip_get(at + 10, 2),
                           .encrypted = tow__zip_get(at + 8, 2) & 1};
    uint64_t *values[3];
    size_t n = 0;
    if (m->size == UINT32_MAX) values[n++] = &m->size;
    if (m->packed == UINT32_MAX) values[n++] = &m->packed;
    if (m->header == UINT32_MAX) values[n++] = &m->header;
    if (n > 0 && !read_extra64(at + TOW__ZIP_ENTRY_SIZE + name, extra, n, values))
        return damaged(zip->file, "a member without its sizes of 64 bits");
    if (memchr(m->name, '\0', name)) return damaged(zip->file, "a name with a zero byte");
    return TOW_OK;
}

static tow_status check_member(const tow__zip *zip, const tow__zip_member *m)
{
    const tow__input_file *file = zip->file;
    if (m->encrypted || (m->method != TOW__ZIP_STORED && m->method != TOW__ZIP_DEFLATED))
        return TOW_OK; /* its bytes are not read */
    const uint64_t most = m->method == TOW__ZIP_STORED ? m->packed : (m->packed + 1) * DEFLATE_RATIO;
    if (m->size <= most && (m->size == most || m->method == TOW__ZIP_DEFLATED)) return TOW_OK;
    return tow__fail(file->ctx, TOW_BAD_FORMAT,
                     "%s: the member '%.200s' has %" PRIu64 " bytes, which cannot be %" PRIu64 "; the file is damaged",
                     file->path, m->name, m->packed, m->size);
}

static tow_status bad_local_header(const tow__zip *zip, const tow__zip_member *m, const char *what)
{
    return tow__fail(zip->file->ctx, TOW_BAD_FORMAT, "%s/%.200s: %s; the file is damaged, use another copy",
                     zip->file->path, m->name, what);
}

/* True if the file has the member's name at `at`. */
static tow_status compare_name(const tow__input_file *file, uint64_t at, const char *name, size_t length, bool *same)
{
    char piece[256];
    tow_status status = TOW_OK;
    *same = true;
    for (size_t first = 0; first < length && *same; first += sizeof piece) {
        const size_t n = length - first < sizeof piece ? length - first : sizeof piece;
        TRY(tow__input_read(file, at + first, piece, n));
        *same = memcmp(piece, name + first, n) == 0;
    }
done:
    return status;
}

/* Compares what a member says of itself with the directory, and finds its data. */
static tow_status read_local_header(const tow__zip *zip, tow__zip_member *m)
{
    const tow__input_file *file = zip->file;
    unsigned char header[TOW__ZIP_LOCAL_SIZE];
    tow_status status = TOW_OK;
    if (file->size < sizeof header || m->header > file->size - sizeof header)
        return bad_local_header(zip, m, "it begins behind the end of the file");
    TRY(tow__input_read(file, m->header, header, sizeof header));
    const uint64_t name = m->header + sizeof header, length = tow__zip_get(header + 26, 2);
    m->data = name + length + tow__zip_get(header + 28, 2);
    bool same = tow__zip_get(header, 4) == TOW__ZIP_LOCAL && tow__zip_get(header + 8, 2) == m->method &&
                length == strlen(m->name);
    if (same && length > file->size - name) return bad_local_header(zip, m, "it ends behind the end of the file");
    if (same) TRY(compare_name(file, name, m->name, (size_t)length, &same));
    if (!same) return bad_local_header(zip, m, "its own header does not agree with the directory");
    if (m->data > file->size || m->packed > file->size - m->data)
        return bad_local_header(zip, m, "it ends behind the end of the file");
done:
    return status;
}

/* Names get their zero bytes when all is read: they stand where the next field begins. */
static tow_status read_members(tow__zip *zip)
{
    tow_status status = TOW_OK;
    const unsigned char *directory = (const unsigned char *)zip->directory;
    uint64_t packed = 0;
    size_t at = 0;
    for (size_t i = 0; i < zip->capacity; i++) {
        size_t length = 0;
        TRY(read_entry(zip, directory + at, zip->directory_size - at, &zip->members[i], &length));
        const uint64_t bytes = zip->members[i].packed;
        if (bytes > zip->file->size - packed) TRY(damaged(zip->file, "members with more bytes than it has"));
        packed += bytes;
        at += length;
        zip->count++;
    }
    if (at != zip->directory_size) TRY(damaged(zip->file, "more members in its directory than its end counts"));
    for (size_t i = 0; i < zip->count; i++) {
        char *name = zip->directory + (zip->members[i].name - zip->directory);
        name[tow__zip_get((unsigned char *)name - TOW__ZIP_ENTRY_SIZE + 28, 2)] = '\0';
    }
    for (size_t i = 0; i < zip->count; i++) {
        TRY(check_member(zip, &zip->members[i]));
        TRY(read_local_header(zip, &zip->members[i]));
    }
done:
    return status;
}

tow_status tow__zip_open(const tow__input_file *file, tow__zip *zip)
{
    tow_status status = TOW_OK;
    place p = {0};
    *zip = (tow__zip){.file = file};
    TRY(tow__input_check_kind(file, TOW__FORMAT_ZIP, "a zip archive (.npz)"));
    TRY(find_directory(file, &p));
    zip->capacity = (size_t)p.count;
    zip->directory_size = (size_t)p.size;
    zip->members = tow__alloc(file->ctx, zip->capacity, sizeof *zip->members);
    zip->directory = tow__alloc(file->ctx, zip->directory_size + 1, 1);
    if (!zip->members || !zip->directory) TRY(TOW_OUT_OF_MEMORY);
    TRY(tow__input_read(file, p.start, zip->directory, zip->directory_size));
    TRY(read_members(zip));
done:
    if (status != TOW_OK) tow__zip_close(zip);
    return status;
}

void tow__zip_close(tow__zip *zip)
{
    tow_context *ctx = zip->file->ctx;
    if (zip->members) tow__free(ctx, zip->members, zip->capacity, sizeof *zip->members);
    if (zip->directory) tow__free(ctx, zip->directory, zip->directory_size + 1, 1);
    zip->members = NULL;
    zip->directory = NULL;
}

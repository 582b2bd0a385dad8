/* Bytes that come in order: those of a file from some place on, or what a member of an archive is inflated to. */
#ifndef TOW_SRC_IO_STREAM_H
#define TOW_SRC_IO_STREAM_H

#include "src/io/io.h"

typedef struct tow__stream {
    tow_context *ctx;
    const char *path; /* of the file, or of the archive and its member, for messages */
    uint64_t left;    /* bytes to come */
    /* Reads exactly `count` bytes, which must be left. */
    tow_status (*read)(struct tow__stream *stream, void *data, size_t count);
} tow__stream;

static inline tow_status tow__stream_read(tow__stream *stream, void *data, size_t count)
{
    stream->left -= count;
    return count > 0 ? stream->read(stream, data, count) : TOW_OK;
}

/* A file from `at` on. */
typedef struct tow__file_stream {
    tow__stream stream; /* this field comes first */
    const tow__input_file *file;
    uint64_t at;
} tow__file_stream;

tow__file_stream tow__stream_of_file(const tow__input_file *file, const char *path, uint64_t at, uint64_t size);

#endif

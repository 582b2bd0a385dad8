/* Streams of the bytes of a file. */
#include "src/io/stream.h"

static tow_status read_file(tow__stream *stream, void *data, size_t count)
{
    tow__file_stream *s = (tow__file_stream *)stream;
    tow_status status = tow__input_read(s->file, s->at, data, count);
    s->at += count;
    return status;
}

tow__file_stream tow__stream_of_file(const tow__input_file *file, const char *path, uint64_t at, uint64_t size)
{
    return (tow__file_stream){
        .stream = {.ctx = file->ctx, .path = path, .left = size, .read = read_file}, .file = file, .at = at};
}

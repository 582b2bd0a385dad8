/* The inside of a log. */
#ifndef TOW_SRC_LOG_LOG_H
#define TOW_SRC_LOG_LOG_H

#include "src/log/bytes.h"
#include "tow/log.h"

struct tow_logger {
    tow_context *ctx;
    int lines, events; /* files; -1: none */
    char *lines_path, *events_path;
    size_t lines_bytes, events_bytes; /* of the paths */
    tow__bytes bytes;                 /* records that are not written yet */
};

#endif

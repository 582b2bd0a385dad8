/* Deflate and its inverse by zlib, with memory of the context. */
#ifndef TOW_SRC_IO_INFLATE_H
#define TOW_SRC_IO_INFLATE_H

#include <zlib.h>

#include "src/base/base.h"

enum {
    TOW__ZLIB_BUFFER = 64 << 10
};

typedef struct tow__inflater {
    tow_context *ctx;
    z_stream z;
    unsigned char buffer[TOW__ZLIB_BUFFER]; /* packed bytes */
} tow__inflater;

typedef struct tow__deflater {
    tow_context *ctx;
    z_stream z;
    unsigned char buffer[TOW__ZLIB_BUFFER]; /* packed bytes */
} tow__deflater;

tow_status tow__inflater_create(tow_context *ctx, tow__inflater **inflater);
void tow__inflater_free(tow__inflater *inflater); /* NULL is accepted */
tow_status tow__deflater_create(tow_context *ctx, tow__deflater **deflater);
void tow__deflater_free(tow__deflater *deflater);

#endif

/* Life of zlib's streams. */
#include "src/io/inflate.h"

enum {
    HEAD = 16 /* bytes before a block, which hold its size */
};

static void *zlib_alloc(void *ctx, unsigned items, unsigned size)
{
    const size_t bytes = (size_t)items * size + HEAD;
    size_t *block = tow__alloc(ctx, bytes, 1);
    if (!block) return NULL;
    *block = bytes;
    return (char *)block + HEAD;
}

static void zlib_free(void *ctx, void *pointer)
{
    void *block = (char *)pointer - HEAD;
    tow__free(ctx, block, *(size_t *)block, 1);
}

/* Streams without zlib's header and checksum, as zip has them. */
tow_status tow__inflater_create(tow_context *ctx, tow__inflater **inflater)
{
    tow__inflater *i = *inflater = tow__alloc(ctx, 1, sizeof *i);
    if (!i) return TOW_OUT_OF_MEMORY;
    i->ctx = ctx;
    i->z = (z_stream){.zalloc = zlib_alloc, .zfree = zlib_free, .opaque = ctx};
    if (inflateInit2(&i->z, -MAX_WBITS) == Z_OK) return TOW_OK;
    tow__free(ctx, i, 1, sizeof *i);
    *inflater = NULL;
    return tow__fail(ctx, TOW_OUT_OF_MEMORY, "out of memory for zlib");
}

void tow__inflater_free(tow__inflater *i)
{
    if (!i) return;
    inflateEnd(&i->z);
    tow__free(i->ctx, i, 1, sizeof *i);
}

tow_status tow__deflater_create(tow_context *ctx, tow__deflater **deflater)
{
    tow__deflater *d = *deflater = tow__alloc(ctx, 1, sizeof *d);
    if (!d) return TOW_OUT_OF_MEMORY;
    d->ctx = ctx;
    d->z = (z_stream){.zalloc = zlib_alloc, .zfree = zlib_free, .opaque = ctx};
    if (deflateInit2(&d->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK)
        return TOW_OK;
    tow__free(ctx, d, 1, sizeof *d);
    *deflater = NULL;
    return tow__fail(ctx, TOW_OUT_OF_MEMORY, "out of memory for zlib");
}

void tow__deflater_free(tow__deflater *d)
{
    if (!d) return;
    deflateEnd(&d->z);
    tow__free(d->ctx, d, 1, sizeof *d);
}

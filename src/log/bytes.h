/* Bytes that grow: what is encoded before it is written. After an allocation failure `failed` is set and nothing is
 * added. */
#ifndef TOW_SRC_LOG_BYTES_H
#define TOW_SRC_LOG_BYTES_H

#include "src/base/base.h"

typedef struct tow__bytes {
    tow_context *ctx;
    unsigned char *data;
    size_t size, capacity;
    bool failed;
} tow__bytes;

void tow__bytes_init(tow__bytes *b, tow_context *ctx);
void tow__bytes_free(tow__bytes *b);
void tow__bytes_add(tow__bytes *b, const void *data, size_t size);
/* The lowest `size` bytes of a number, the highest byte first. */
void tow__bytes_add_big(tow__bytes *b, uint64_t number, size_t size);
/* The same, the lowest byte first. */
void tow__bytes_add_little(tow__bytes *b, uint64_t number, size_t size);

#endif

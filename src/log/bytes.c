/* Bytes that grow. */
#include "src/log/bytes.h"

enum {
    LEAST = 256
};

void tow__bytes_init(tow__bytes *b, tow_context *ctx) { *b = (tow__bytes){.ctx = ctx}; }

void tow__bytes_free(tow__bytes *b)
{
    tow__free(b->ctx, b->data, b->capacity, 1);
    tow__bytes_init(b, b->ctx);
}

void tow__bytes_add(tow__bytes *b, const void *data, size_t size)
{
    if (b->failed || size == 0) return;
    if (size > b->capacity - b->size) {
        size_t capacity = b->capacity < LEAST ? LEAST : b->capacity;
        while (capacity - b->size < size) capacity *= 2;
        unsigned char *grown = tow__grow(b->ctx, b->data, b->capacity, capacity, 1);
        if (!grown) {
            b->failed = true;
            return;
        }
        b->data = grown;
        b->capacity = capacity;
    }
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

void tow__bytes_add_big(tow__bytes *b, uint64_t number, size_t size)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(number >> 8 * (size - 1 - i));
    tow__bytes_add(b, bytes, size);
}

void tow__bytes_add_little(tow__bytes *b, uint64_t number, size_t size)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(number >> 8 * i);
    tow__bytes_add(b, bytes, size);
}

/* An allocator for tests: fails the allocation with number `fail_at`, counts what is alive, and checks that the library
 * keeps its side (old sizes are true, alignment is as promised). One test program includes it once. */
#ifndef TOW_TESTS_COUNTING_ALLOCATOR_H
#define TOW_TESTS_COUNTING_ALLOCATOR_H

#include <stdlib.h>
#include <string.h>

#include "tow/base.h"

typedef struct counting {
    long calls;   /* allocations and resizes asked for */
    long fail_at; /* the call with this number (from 0) fails; -1: none */
    long blocks;  /* alive */
    size_t bytes; /* alive */
    size_t peak;  /* of bytes */
    int wrong_sizes;
} counting;

/* Each block carries its size in a header of 64 bytes, so that old_size can be checked. */
static void *counting_resize(void *pointer, size_t old_size, size_t size, void *user)
{
    counting *c = user;
    char *old = pointer ? (char *)pointer - 64 : NULL;
    if (old && *(size_t *)(void *)old != old_size) c->wrong_sizes++;
    if (!old && old_size != 0) c->wrong_sizes++;
    if (size > 0 && c->calls++ == c->fail_at) return NULL;
    char *new = NULL;
    if (size > 0) {
        new = aligned_alloc(64, (size + 64 + 63) / 64 * 64);
        if (!new) abort();
        memset(new, 0xa5, size + 64);
        *(size_t *)(void *)new = size;
        if (old) memcpy(new + 64, old + 64, old_size < size ? old_size : size);
        c->blocks++;
        c->bytes += size;
        if (c->bytes > c->peak) c->peak = c->bytes; /* a resize has both blocks at once */
    }
    if (old) {
        c->blocks--;
        c->bytes -= *(size_t *)(void *)old;
        free(old);
    }
    return new ? new + 64 : NULL;
}

static inline tow_context_options counting_options(counting *c, long fail_at)
{
    *c = (counting){.fail_at = fail_at};
    return TOW_CONTEXT_OPTIONS(.allocator = {.resize = counting_resize, .user = c}, .threads = 1);
}

#endif

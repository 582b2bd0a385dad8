/* A growing list of distinct strings with an index by hash: parameter paths, counters of random streams,
 * checkpoint names. */
#ifndef TOW_SRC_NAMES_H
#define TOW_SRC_NAMES_H

#include "src/base/base.h"

#define TOW__NO_NAME UINT32_MAX

typedef struct tow__names {
    tow_context *ctx;
    char **names; /* in order of addition */
    uint32_t count, capacity;
    uint32_t *slots;  /* open addressing; index + 1, 0 is free */
    uint32_t n_slots; /* a power of two, at least twice count */
} tow__names;

void tow__names_init(tow__names *n, tow_context *ctx);
void tow__names_free(tow__names *n);
uint32_t tow__names_find(const tow__names *n, const char *name); /* TOW__NO_NAME if absent */
/* Adds a name that is not there yet. TOW__NO_NAME: out of memory, set in ctx. */
uint32_t tow__names_add(tow__names *n, const char *name);

#endif

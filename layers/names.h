/* A growing list of distinct strings with an index by hash: parameter paths, and the counters of random streams. */
#ifndef TOW_LAYERS_NAMES_H
#define TOW_LAYERS_NAMES_H

#include "src/base/base.h"

#define TOW__NO_NAME UINT32_MAX

typedef struct tow__names {
    tow_context *ctx;
    char **names; /* in order of addition */
    uint32_t count, capacity;
    uint32_t *slots;  /* open addressing; index + 1, 0 is free */
    uint32_t n_slots; /* a power of two, at least twice count */
} tow__names;

/* Why `name` cannot be one component of a path; NULL: it can. Paths are names of tensors in files, so a component is what
 * such a file can hold, and what can be told from its neighbours and from an iteration. */
const char *tow__component_fault(const char *name);

void tow__names_init(tow__names *n, tow_context *ctx);
void tow__names_free(tow__names *n);
uint32_t tow__names_find(const tow__names *n, const char *name); /* TOW__NO_NAME if absent */
/* Adds a name that is not there yet. TOW__NO_NAME: out of memory, set in ctx. */
uint32_t tow__names_add(tow__names *n, const char *name);

#endif

/* Host functions: those that a context knows, and the place where a program calls one. */
#ifndef TOW_SRC_HOST_H
#define TOW_SRC_HOST_H

#include "tow/primitive.h"

typedef struct tow__host {
    tow_host_function function; /* its name is the context's */
    struct tow__host *next;
} tow__host;

/* The function of that name; NULL: the context knows none. */
const tow__host *tow__host_find(const tow_context *ctx, const char *name);

/* The `user` of the kernel of a host call. */
typedef struct tow__host_site {
    tow_context *ctx;
    const tow__host *host;    /* NULL: not call_host */
    const char *here, *scope; /* where it was recorded, or NULL */
    tow_status *failure;      /* of the run: TOW_OK until a function fails */
    const int64_t *rows[8];   /* of same_bits: the iterations at hand of the loops around it, innermost first */
    int n_rows;
    struct tow__spill *spill;             /* of the program */
    struct tow__spill_region *region;     /* of a spill: what it begins */
    struct tow__collectives *collectives; /* of the program */
    uint32_t collective;                  /* of a start: its number among them, */
    bool in_turn;                         /* or that of the first of two, which iterations take in turn */
    bool deferred;                        /* an all_reduce_wait that leaves the waiting to its loop */
} tow__host_site;

#endif

/* Frontiers of plans that were found (plan/remat/frontier.c), by all that they depend on, so that nobody searches for
 * one twice. A graph has those of its gradient's variants, a training state and an optimizer those of their steps.
 *
 * A frontier for other sizes is never the beginning of a search: what is planned first would then decide what is found,
 * and a larger limit could give a slower plan than a smaller one, for which more was searched. */
#ifndef TOW_SRC_FRONTIERS_H
#define TOW_SRC_FRONTIERS_H

#include "src/base/base.h"
#include "tow/graph.h"

typedef struct tow__frontiers {
    tow_context *ctx;                  /* of all plans in it */
    struct tow__known_frontier *first; /* the one that was found last */
    uint32_t n;
    uint64_t plans; /* made so far in searches, for the frontiers that are gone, too */
} tow__frontiers;

/* The bytes of a frontier, *size of them, until the next one is added; NULL: none is known for the loss (or NULL) under
 * the key. */
const void *tow__frontiers_find(const tow__frontiers *frontiers, const tow_graph *loss, const char *key, size_t *size);
/* Copies key and frontier, which took so many plans, and shares the loss. Of more than a hundred the one found first
 * goes. Error: TOW_OUT_OF_MEMORY. */
tow_status tow__frontiers_add(tow__frontiers *frontiers, const tow_graph *loss, const char *key, const void *frontier,
                              size_t size, uint32_t plans);
/* Forgets them all. */
void tow__frontiers_free(tow__frontiers *frontiers);

#endif

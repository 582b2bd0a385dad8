/* The frontiers that were found: a list, the latest first. There are few of them: a search walks the list. */
#include "src/graph/frontiers.h"

#include "src/graph/graph.h"

enum {
    MOST = 100 /* frontiers, of some hundred bytes each */
};

typedef struct tow__known_frontier {
    struct tow__known_frontier *next;
    tow_graph *loss; /* alive, so no other graph lies there */
    char *key;
    void *frontier;
    size_t size;
} known;

const void *tow__frontiers_find(const tow__frontiers *f, const tow_graph *loss, const char *key, size_t *size)
{
    for (const known *k = f->first; k; k = k->next) {
        if (k->loss != loss || strcmp(k->key, key) != 0) continue;
        *size = k->size;
        return k->frontier;
    }
    return NULL;
}

static void free_known(tow_context *ctx, known *k)
{
    tow_graph_release(k->loss);
    if (k->key) tow__free(ctx, k->key, strlen(k->key) + 1, 1);
    if (k->frontier) tow__free(ctx, k->frontier, k->size, 1);
    tow__free(ctx, k, 1, sizeof *k);
}

static void drop_last(tow__frontiers *f)
{
    known **last = &f->first;
    while ((*last)->next) last = &(*last)->next;
    free_known(f->ctx, *last);
    *last = NULL;
    f->n--;
}

tow_status tow__frontiers_add(tow__frontiers *f, const tow_graph *loss, const char *key, const void *frontier,
                              size_t size, uint32_t plans)
{
    tow_context *ctx = f->ctx;
    const size_t length = strlen(key) + 1;
    known *k = tow__alloc(ctx, 1, sizeof *k);
    if (!k) return TOW_OUT_OF_MEMORY;
    *k = (known){.next = f->first, .size = size};
    k->key = tow__alloc(ctx, length, 1);
    k->frontier = k->key ? tow__alloc(ctx, size, 1) : NULL;
    if (!k->frontier) {
        free_known(ctx, k);
        return TOW_OUT_OF_MEMORY;
    }
    k->loss = loss ? tow__graph_share(loss) : NULL;
    memcpy(k->key, key, length);
    memcpy(k->frontier, frontier, size);
    f->first = k;
    f->plans += plans;
    if (++f->n > MOST) drop_last(f);
    return TOW_OK;
}

void tow__frontiers_free(tow__frontiers *f)
{
    while (f->first) {
        known *next = f->first->next;
        free_known(f->ctx, f->first);
        f->first = next;
    }
    f->n = 0;
}

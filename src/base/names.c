/* See names.h. */
#include "src/base/names.h"

#include "src/base/hash.h"

void tow__names_init(tow__names *n, tow_context *ctx) { *n = (tow__names){.ctx = ctx}; }

void tow__names_free(tow__names *n)
{
    for (uint32_t i = 0; i < n->count; i++) tow__free(n->ctx, n->names[i], strlen(n->names[i]) + 1, 1);
    if (n->names) tow__free(n->ctx, n->names, n->capacity, sizeof *n->names);
    if (n->slots) tow__free(n->ctx, n->slots, n->n_slots, sizeof *n->slots);
    tow__names_init(n, n->ctx);
}

/* The slot that holds `name` or would. */
static uint32_t probe(const tow__names *n, const char *name)
{
    uint32_t mask = n->n_slots - 1, i = (uint32_t)tow__hash(n->ctx->hash_seed, name, strlen(name)) & mask;
    while (n->slots[i] && strcmp(n->names[n->slots[i] - 1], name) != 0) i = (i + 1) & mask;
    return i;
}

uint32_t tow__names_find(const tow__names *n, const char *name)
{
    if (n->n_slots == 0) return TOW__NO_NAME;
    return n->slots[probe(n, name)] - 1; /* a free slot wraps to TOW__NO_NAME */
}

static bool grow_slots(tow__names *n)
{
    uint32_t old = n->n_slots, size = old ? 2 * old : 16;
    uint32_t *slots = tow__alloc(n->ctx, size, sizeof *slots);
    if (!slots) return false;
    if (n->slots) tow__free(n->ctx, n->slots, old, sizeof *slots);
    n->slots = slots;
    n->n_slots = size;
    for (uint32_t i = 0; i < n->count; i++) n->slots[probe(n, n->names[i])] = i + 1;
    return true;
}

uint32_t tow__names_add(tow__names *n, const char *name)
{
    if (2 * (n->count + 1) > n->n_slots && !grow_slots(n)) return TOW__NO_NAME;
    if (n->count == n->capacity) {
        uint32_t capacity = n->capacity ? 2 * n->capacity : 8;
        char **names = tow__grow(n->ctx, n->names, n->capacity, capacity, sizeof *names);
        if (!names) return TOW__NO_NAME;
        n->names = names;
        n->capacity = capacity;
    }
    size_t size = strlen(name) + 1;
    char *copy = tow__alloc(n->ctx, size, 1);
    if (!copy) return TOW__NO_NAME;
    memcpy(copy, name, size);
    n->slots[probe(n, name)] = n->count + 1;
    n->names[n->count] = copy;
    return n->count++;
}

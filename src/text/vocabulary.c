/* Tokens by id, and ids by token. */
#include "src/base/hash.h"
#include "src/text/tokenizer.h"

enum {
    MOST_IDS = 1 << 20 /* entries are an array, which a small file must not make large */
};

void tow__vocabulary_init(tow__vocabulary *v, tow_context *ctx)
{
    *v = (tow__vocabulary){.ctx = ctx};
    tow__arena_init(&v->strings, ctx);
}

void tow__vocabulary_free(tow__vocabulary *v)
{
    if (v->entries) tow__free(v->ctx, v->entries, v->capacity, sizeof *v->entries);
    if (v->slots) tow__free(v->ctx, v->slots, v->n_slots, sizeof *v->slots);
    tow__arena_free(&v->strings);
}

static size_t find_slot(const tow__vocabulary *v, const char *token, size_t length)
{
    size_t slot = (size_t)tow__hash(v->ctx->hash_seed, token, length) & (v->n_slots - 1);
    for (; v->slots[slot] != 0; slot = (slot + 1) & (v->n_slots - 1)) {
        const tow__entry *e = &v->entries[v->slots[slot] - 1];
        if (e->length == length && memcmp(e->token, token, length) == 0) break;
    }
    return slot;
}

int32_t tow__vocabulary_find(const tow__vocabulary *v, const char *token, size_t length)
{
    if (v->n_slots == 0 || length > v->longest) return TOW__NO_ID;
    return (int32_t)v->slots[find_slot(v, token, length)] - 1;
}

int32_t tow__vocabulary_find_model(const tow__vocabulary *v, const char *token, size_t length)
{
    const int32_t id = tow__vocabulary_find(v, token, length);
    return id != TOW__NO_ID && v->entries[id].model ? id : TOW__NO_ID;
}

static tow_status rehash(tow__vocabulary *v, size_t n_slots)
{
    uint32_t *old = v->slots, *slots = tow__alloc(v->ctx, n_slots, sizeof *slots);
    const size_t n_old = v->n_slots;
    if (!slots) return TOW_OUT_OF_MEMORY;
    v->slots = slots;
    v->n_slots = n_slots;
    for (size_t i = 0; i < n_old; i++)
        if (old[i] != 0) {
            const tow__entry *e = &v->entries[old[i] - 1];
            slots[find_slot(v, e->token, e->length)] = old[i];
        }
    if (old) tow__free(v->ctx, old, n_old, sizeof *old);
    return TOW_OK;
}

static tow_status reserve(tow__vocabulary *v, int32_t id)
{
    if ((size_t)id >= v->capacity) {
        size_t capacity = v->capacity ? v->capacity : 256;
        while (capacity <= (size_t)id) capacity *= 2;
        tow__entry *entries = tow__grow(v->ctx, v->entries, v->capacity, capacity, sizeof *entries);
        if (!entries) return TOW_OUT_OF_MEMORY;
        v->entries = entries;
        v->capacity = capacity;
    }
    return 2 * (v->n_tokens + 1) > v->n_slots ? rehash(v, v->n_slots ? 2 * v->n_slots : 512) : TOW_OK;
}

tow_status tow__vocabulary_add(tow__vocabulary *v, const char *token, size_t length, int32_t id)
{
    if (id < 0 || id >= MOST_IDS)
        return tow__fail(v->ctx, TOW_BAD_FORMAT, "expected an id from 0 to %d, found %d", MOST_IDS - 1, (int)id);
    tow_status status = reserve(v, id);
    if (status != TOW_OK) return status;
    const size_t slot = find_slot(v, token, length);
    if (v->slots[slot] != 0 || v->entries[id].token)
        return tow__fail(v->ctx, TOW_BAD_FORMAT, "'%.100s' has the id %d, but so has '%.100s' with the id %d", token,
                         (int)id, v->slots[slot] ? token : v->entries[id].token,
                         v->slots[slot] ? (int)v->slots[slot] - 1 : (int)id);
    char *copy = tow__arena_alloc(&v->strings, length + 1, 1);
    if (!copy) return TOW_OUT_OF_MEMORY;
    memcpy(copy, token, length);
    v->entries[id] = (tow__entry){.token = copy, .length = (uint32_t)length, .model = true};
    v->slots[slot] = (uint32_t)id + 1;
    v->n_tokens++;
    if (length > v->longest) v->longest = (uint32_t)length;
    if (id >= v->count) v->count = id + 1;
    return TOW_OK;
}

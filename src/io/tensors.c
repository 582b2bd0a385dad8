/* Named arrays and metadata: what a safetensors file holds. */
#include "src/io/tensors.h"

#include <stdlib.h>

#include "src/base/hash.h"

const char tow__checksum_key[] = "tow.xxh3";

bool tow__is_checksum_key(const char *key, const char **name)
{
    const size_t length = sizeof tow__checksum_key - 1;
    if (strncmp(key, tow__checksum_key, length) != 0 || (key[length] != '\0' && key[length] != '/')) return false;
    *name = key[length] == '/' ? key + length + 1 : NULL;
    return true;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* The slot that holds `name`, or the empty one where it belongs. n_slots > 0. */
static size_t find_slot(const tow_tensors *t, const char *name)
{
    size_t slot = (size_t)tow__hash(t->ctx->hash_seed, name, strlen(name)) & (t->n_slots - 1);
    while (t->slots[slot] != 0 && strcmp(t->items[t->slots[slot] - 1].name, name) != 0)
        slot = (slot + 1) & (t->n_slots - 1);
    return slot;
}

ptrdiff_t tow__tensors_lookup(const tow_tensors *tensors, const char *name)
{
    if (tensors->n_slots == 0 || !name) return -1;
    return (ptrdiff_t)tensors->slots[find_slot(tensors, name)] - 1;
}

static tow_status rehash(tow_tensors *t, size_t n_slots)
{
    uint32_t *slots = tow__alloc(t->ctx, n_slots, sizeof *slots);
    if (!slots) return TOW_OUT_OF_MEMORY;
    if (t->slots) tow__free(t->ctx, t->slots, t->n_slots, sizeof *slots);
    t->slots = slots;
    t->n_slots = n_slots;
    for (size_t i = 0; i < t->count; i++) slots[find_slot(t, t->items[i].name)] = (uint32_t)i + 1;
    return TOW_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

tow_status tow_tensors_create(tow_context *context, tow_tensors **tensors)
{
    if (tensors) *tensors = NULL;
    if (!context || !tensors) return tow__missing(context, __func__, "a context and a place for the tensors");
    tow_tensors *t = *tensors = tow__alloc(context, 1, sizeof **tensors);
    if (!t) return TOW_OUT_OF_MEMORY;
    t->ctx = context;
    t->file.fd = -1;
    tow__arena_init(&t->strings, context);
    return TOW_OK;
}

void tow_tensors_free(tow_tensors *tensors)
{
    if (!tensors) return;
    tow_context *ctx = tensors->ctx;
    tow__input_close(&tensors->file);
    for (size_t i = 0; i < tensors->count; i++) tow_array_release(tensors->items[i].array);
    tow__arena_free(&tensors->strings);
    if (tensors->items) tow__free(ctx, tensors->items, tensors->capacity, sizeof(tow__tensor));
    if (tensors->slots) tow__free(ctx, tensors->slots, tensors->n_slots, sizeof(uint32_t));
    if (tensors->metadata) tow__free(ctx, tensors->metadata, tensors->metadata_capacity, sizeof(tow__metadata));
    tow__free(ctx, tensors, 1, sizeof *tensors);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

tow_status tow__tensors_reserve(tow_tensors *t, size_t capacity)
{
    tow_status status = TOW_OK;
    size_t n_slots = t->n_slots == 0 ? 32 : t->n_slots;
    if (capacity > UINT32_MAX / 4)
        return tow__fail(t->ctx, TOW_OUT_OF_MEMORY, "expected fewer than 2^30 tensors, found %zu", capacity);
    while (n_slots < 2 * capacity) n_slots *= 2;
    if (n_slots > t->n_slots) TRY(rehash(t, n_slots)); /* first: there are never more items than slots allow */
    if (capacity > t->capacity) {
        tow__tensor *items = tow__grow(t->ctx, t->items, t->capacity, capacity, sizeof *items);
        if (!items) return TOW_OUT_OF_MEMORY;
        t->items = items;
        t->capacity = capacity;
    }
done:
    return status;
}

static int by_offset(const void *a, const void *b)
{
    const tow__tensor *x = a, *y = b;
    const size_t m = tow_type_bytes(x->type), n = tow_type_bytes(y->type);
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (m != n) return m < n ? -1 : 1;
    return strcmp(x->name, y->name);
}

tow_status tow__tensors_sort(tow_tensors *t)
{
    if (t->count > 1) qsort(t->items, t->count, sizeof *t->items, by_offset);
    return t->count > 1 ? rehash(t, t->n_slots) : TOW_OK;
}

tow_status tow__tensors_append(tow_tensors *t, const char *name, tow_type type, bool *duplicate)
{
    tow_status status = TOW_OK;
    if (t->count == t->capacity) TRY(tow__tensors_reserve(t, t->capacity == 0 ? 16 : 2 * t->capacity));
    size_t slot = find_slot(t, name);
    *duplicate = t->slots[slot] != 0;
    if (*duplicate) return TOW_OK;
    const char *copy = tow__arena_string(&t->strings, name);
    if (!copy) return TOW_OUT_OF_MEMORY;
    t->items[t->count] = (tow__tensor){.name = copy, .type = type};
    t->slots[slot] = (uint32_t)++t->count;
done:
    return status;
}

tow_status tow_tensors_add(tow_tensors *tensors, const char *name, tow_array *array)
{
    if (!tensors) return tow__missing(NULL, __func__, "a set of tensors");
    tow_context *ctx = tensors->ctx;
    if (!name || !array)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "expected a name and an array to add to a set of tensors, found NULL");
    if (strcmp(name, "__metadata__") == 0)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "__metadata__ cannot name a tensor: safetensors keeps its metadata there");
    bool duplicate;
    tow_status status = tow__tensors_append(tensors, name, tow_array_type(array), &duplicate);
    if (status != TOW_OK) return status;
    if (duplicate)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "%s: a tensor of this name is there already; names must differ",
                         name);
    tensors->items[tensors->count - 1].array = tow_array_retain(array);
    return TOW_OK;
}

size_t tow_tensors_count(const tow_tensors *tensors) { return tensors->count; }

const char *tow_tensors_name(const tow_tensors *tensors, size_t index)
{
    return index < tensors->count ? tensors->items[index].name : NULL;
}

tow_array *tow_tensors_at(const tow_tensors *tensors, size_t index)
{
    return index < tensors->count ? tensors->items[index].array : NULL;
}

tow_array *tow_tensors_find(const tow_tensors *tensors, const char *name)
{
    ptrdiff_t index = tow__tensors_lookup(tensors, name);
    return index >= 0 ? tensors->items[index].array : NULL;
}

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

static tow__metadata *find_metadata(const tow_tensors *tensors, const char *key)
{
    for (size_t i = 0; i < tensors->n_metadata; i++)
        if (strcmp(tensors->metadata[i].key, key) == 0) return &tensors->metadata[i];
    return NULL;
}

tow_status tow_tensors_set_metadata(tow_tensors *tensors, const char *key, const char *value)
{
    const char *name;
    if (!tensors) return tow__missing(NULL, __func__, "a set of tensors");
    tow_context *ctx = tensors->ctx;
    if (!key || !value)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected a key and a value of metadata, found NULL");
    if (tow__is_checksum_key(key, &name))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "'%.200s' cannot be set as metadata: checksums that are made on writing have such keys", key);
    tow__metadata *found = find_metadata(tensors, key);
    if (!found && tensors->n_metadata == tensors->metadata_capacity) {
        size_t capacity = tensors->metadata_capacity == 0 ? 8 : 2 * tensors->metadata_capacity;
        tow__metadata *metadata =
            tow__grow(ctx, tensors->metadata, tensors->metadata_capacity, capacity, sizeof *metadata);
        if (!metadata) return TOW_OUT_OF_MEMORY;
        tensors->metadata = metadata;
        tensors->metadata_capacity = capacity;
    }
    tow__metadata new = {.key = found != NULL ? found->key : tow__arena_string(&tensors->strings, key),
                         .value = tow__arena_string(&tensors->strings, value)};
    if (!new.key || !new.value) return TOW_OUT_OF_MEMORY;
    if (found)
        *found = new;
    else
        tensors->metadata[tensors->n_metadata++] = new;
    return TOW_OK;
}

const char *tow_tensors_metadata(const tow_tensors *tensors, const char *key)
{
    const tow__metadata *found = key != NULL ? find_metadata(tensors, key) : NULL;
    return found != NULL ? found->value : NULL;
}

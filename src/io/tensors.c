/* Named arrays and metadata: what a safetensors file holds.
 *
 * Entries are in the order of insertion; an open-addressing table of indices finds them by name. Its capacity is a
 * power of two and at least twice the number of entries, so every probe ends. */
#include "src/base/base.h"
#include "src/io/io.h"

typedef struct tensor {
    char *name;
    tow_array *array;
} tensor;

typedef struct pair {
    char *key, *value;
} pair;

struct tow_tensors {
    tow_context *ctx;
    tensor *items;
    size_t count, capacity;
    uint32_t *slots; /* index + 1; 0: empty */
    size_t n_slots;
    pair *metadata;
    size_t n_metadata, metadata_capacity;
};

static char *copy_string(tow_context *ctx, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = tow__alloc(ctx, size, 1);
    if (copy != NULL) memcpy(copy, text, size);
    return copy;
}

static void free_string(tow_context *ctx, char *text)
{
    if (text != NULL) tow__free(ctx, text, strlen(text) + 1, 1);
}

/* FNV-1a */
static uint64_t hash(const char *text)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *text != '\0'; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h ^ (h >> 32);
}

/* The slot that holds `name`, or the empty one where it belongs. n_slots > 0. */
static size_t find_slot(const tow_tensors *t, const char *name)
{
    size_t slot = (size_t)hash(name) & (t->n_slots - 1);
    while (t->slots[slot] != 0 && strcmp(t->items[t->slots[slot] - 1].name, name) != 0)
        slot = (slot + 1) & (t->n_slots - 1);
    return slot;
}

static tow_status grow(tow_tensors *t)
{
    size_t capacity = t->capacity == 0 ? 16 : 2 * t->capacity;
    if (capacity > UINT32_MAX / 2) return tow__fail(t->ctx, TOW_OUT_OF_MEMORY, "more than %zu tensors", t->count);
    tensor *items = tow__grow(t->ctx, t->items, t->capacity, capacity, sizeof *items);
    if (items == NULL) return TOW_OUT_OF_MEMORY;
    t->items = items;
    t->capacity = capacity;
    return TOW_OK;
}

static tow_status rehash(tow_tensors *t)
{
    size_t n_slots = t->n_slots == 0 ? 32 : 2 * t->n_slots;
    uint32_t *slots = tow__alloc(t->ctx, n_slots, sizeof *slots);
    if (slots == NULL) return TOW_OUT_OF_MEMORY;
    if (t->slots != NULL) tow__free(t->ctx, t->slots, t->n_slots, sizeof *slots);
    t->slots = slots;
    t->n_slots = n_slots;
    for (size_t i = 0; i < t->count; i++) slots[find_slot(t, t->items[i].name)] = (uint32_t)i + 1;
    return TOW_OK;
}

tow_status tow_tensors_create(tow_context *context, tow_tensors **tensors)
{
    if (tensors != NULL) *tensors = NULL;
    if (context == NULL || tensors == NULL)
        return tow__missing(context, __func__, "a context and a place for the tensors");
    *tensors = tow__alloc(context, 1, sizeof **tensors);
    if (*tensors == NULL) return TOW_OUT_OF_MEMORY;
    (*tensors)->ctx = context;
    return TOW_OK;
}

void tow_tensors_free(tow_tensors *tensors)
{
    if (tensors == NULL) return;
    tow_context *ctx = tensors->ctx;
    for (size_t i = 0; i < tensors->count; i++) {
        free_string(ctx, tensors->items[i].name);
        tow_array_release(tensors->items[i].array);
    }
    for (size_t i = 0; i < tensors->n_metadata; i++) {
        free_string(ctx, tensors->metadata[i].key);
        free_string(ctx, tensors->metadata[i].value);
    }
    if (tensors->items != NULL) tow__free(ctx, tensors->items, tensors->capacity, sizeof(tensor));
    if (tensors->slots != NULL) tow__free(ctx, tensors->slots, tensors->n_slots, sizeof(uint32_t));
    if (tensors->metadata != NULL) tow__free(ctx, tensors->metadata, tensors->metadata_capacity, sizeof(pair));
    tow__free(ctx, tensors, 1, sizeof *tensors);
}

tow_status tow__tensors_add(tow_tensors *t, const char *name, tow_array *array, bool *duplicate)
{
    tow_status status = TOW_OK;
    *duplicate = false;
    if (t->count == t->capacity) TRY(grow(t));
    if (2 * (t->count + 1) > t->n_slots) TRY(rehash(t));
    size_t slot = find_slot(t, name);
    *duplicate = t->slots[slot] != 0;
    if (*duplicate) return TOW_OK;
    char *copy = copy_string(t->ctx, name);
    if (copy == NULL) return TOW_OUT_OF_MEMORY;
    t->items[t->count] = (tensor){.name = copy, .array = tow_array_retain(array)};
    t->slots[slot] = (uint32_t)++t->count;
done:
    return status;
}

tow_status tow_tensors_add(tow_tensors *tensors, const char *name, tow_array *array)
{
    if (tensors == NULL) return tow__missing(NULL, __func__, "a set of tensors");
    tow_context *ctx = tensors->ctx;
    if (name == NULL || array == NULL)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "expected a name and an array to add to a set of tensors, found NULL");
    if (strcmp(name, "__metadata__") == 0)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "__metadata__ cannot name a tensor: safetensors keeps its metadata there");
    bool duplicate;
    tow_status status = tow__tensors_add(tensors, name, array, &duplicate);
    if (status == TOW_OK && duplicate)
        status =
            tow__fail(ctx, TOW_INVALID_ARGUMENT, "%s: a tensor of this name is there already; names must differ", name);
    return status;
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
    if (tensors->n_slots == 0 || name == NULL) return NULL;
    uint32_t entry = tensors->slots[find_slot(tensors, name)];
    return entry != 0 ? tensors->items[entry - 1].array : NULL;
}

tow_context *tow__tensors_context(const tow_tensors *tensors) { return tensors->ctx; }

static pair *find_metadata(const tow_tensors *tensors, const char *key)
{
    for (size_t i = 0; i < tensors->n_metadata; i++)
        if (strcmp(tensors->metadata[i].key, key) == 0) return &tensors->metadata[i];
    return NULL;
}

tow_status tow_tensors_set_metadata(tow_tensors *tensors, const char *key, const char *value)
{
    if (tensors == NULL) return tow__missing(NULL, __func__, "a set of tensors");
    tow_context *ctx = tensors->ctx;
    if (key == NULL || value == NULL)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected a key and a value of metadata, found NULL");
    char *new_value = copy_string(ctx, value);
    if (new_value == NULL) return TOW_OUT_OF_MEMORY;
    pair *found = find_metadata(tensors, key);
    if (found != NULL) {
        free_string(ctx, found->value);
        found->value = new_value;
        return TOW_OK;
    }
    char *new_key = copy_string(ctx, key);
    if (new_key == NULL) goto failed;
    if (tensors->n_metadata == tensors->metadata_capacity) {
        size_t capacity = tensors->metadata_capacity == 0 ? 8 : 2 * tensors->metadata_capacity;
        pair *metadata = tow__grow(ctx, tensors->metadata, tensors->metadata_capacity, capacity, sizeof *metadata);
        if (metadata == NULL) goto failed;
        tensors->metadata = metadata;
        tensors->metadata_capacity = capacity;
    }
    tensors->metadata[tensors->n_metadata++] = (pair){.key = new_key, .value = new_value};
    return TOW_OK;
failed:
    free_string(ctx, new_key);
    free_string(ctx, new_value);
    return TOW_OUT_OF_MEMORY;
}

const char *tow_tensors_metadata(const tow_tensors *tensors, const char *key)
{
    const pair *found = key != NULL ? find_metadata(tensors, key) : NULL;
    return found != NULL ? found->value : NULL;
}

bool tow__tensors_metadata_at(const tow_tensors *tensors, size_t index, const char **key, const char **value)
{
    if (index >= tensors->n_metadata) return false;
    *key = tensors->metadata[index].key;
    *value = tensors->metadata[index].value;
    return true;
}

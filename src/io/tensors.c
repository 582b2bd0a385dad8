/* Named arrays and metadata: what a safetensors file holds. */
#include "src/io/tensors.h"

#include <stdlib.h>

#include "src/base/dtypes.h"
#include "src/base/hash.h"

const char tow__checksum_key[] = "tow.xxh3";
const char tow__set_key[] = "tow.xxh3.set";

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
    tow__arena_init(&t->strings, context);
    return TOW_OK;
}

void tow_tensors_free(tow_tensors *tensors)
{
    if (!tensors) return;
    tow_context *ctx = tensors->ctx;
    for (size_t i = 0; i < tensors->n_files; i++) {
        tow__input_close(&tensors->files[i].input);
        tow_array_release(tensors->files[i].mapping);
    }
    for (size_t i = 0; i < tensors->count; i++) tow_array_release(tensors->items[i].array);
    tow__arena_free(&tensors->strings);
    if (tensors->items) tow__free(ctx, tensors->items, tensors->capacity, sizeof(tow__tensor));
    if (tensors->slots) tow__free(ctx, tensors->slots, tensors->n_slots, sizeof(uint32_t));
    if (tensors->files) tow__free(ctx, tensors->files, tensors->files_capacity, sizeof *tensors->files);
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

uint64_t tow__tensor_bytes(const tow__tensor *tensor)
{
    if (tensor->foreign) return tensor->foreign_bytes;
    if (tensor->stored == TOW__STORED_PLAIN || tensor->array) return tow_type_bytes(tensor->type);
    const tow__stored_form *form = &tow__stored_forms[tensor->stored];
    return (uint64_t)(tow_type_element_count(tensor->type) / form->elements) * (uint64_t)form->bytes;
}

static int by_offset(const void *a, const void *b)
{
    const tow__tensor *x = a, *y = b;
    const uint64_t m = tow__tensor_bytes(x), n = tow__tensor_bytes(y);
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (m != n) return m < n ? -1 : 1;
    return strcmp(x->name, y->name);
}

tow_status tow__tensors_sort(tow_tensors *t)
{
    if (t->count < 2) return TOW_OK;
    qsort(t->items, t->count, sizeof *t->items, by_offset);
    return rehash(t, t->n_slots);
}

tow_status tow__tensors_open_file(tow_tensors *t, const char *path)
{
    if (t->n_files == t->files_capacity) {
        const size_t capacity = t->files_capacity == 0 ? 1 : 2 * t->files_capacity;
        tow__tensor_file *files = tow__grow(t->ctx, t->files, t->files_capacity, capacity, sizeof *files);
        if (!files) return TOW_OUT_OF_MEMORY;
        t->files = files;
        t->files_capacity = capacity;
    }
    tow__tensor_file file = {.path = NULL};
    tow_status status = tow__input_open(t->ctx, path, &file.input);
    if (status != TOW_OK) return status;
    file.path = tow__arena_string(&t->strings, path);
    if (!file.path) {
        tow__input_close(&file.input);
        return TOW_OUT_OF_MEMORY;
    }
    t->files[t->n_files++] = file;
    return TOW_OK;
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
    t->items[t->count] = (tow__tensor){.name = copy, .type = type, .file = UINT32_MAX};
    t->slots[slot] = (uint32_t)++t->count;
done:
    return status;
}

tow_status tow__tensors_take(tow_tensors *t, const tow__tensor *tensor, uint32_t file, bool *duplicate)
{
    const tow_status status = tow__tensors_append(t, tensor->name, tensor->type, duplicate);
    if (status != TOW_OK || *duplicate) return status;
    tow__tensor *taken = &t->items[t->count - 1];
    const char *name = taken->name;
    *taken = *tensor;
    taken->name = name;
    taken->file = file;
    return TOW_OK;
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

tow_type tow_tensors_type(const tow_tensors *tensors, size_t index)
{
    return index < tensors->count ? tensors->items[index].type : tow_make_type(TOW_F32, -1, NULL);
}

tow_dtype tow_tensors_stored_dtype(const tow_tensors *tensors, size_t index)
{
    if (!tensors || index >= tensors->count || tensors->items[index].type.rank < 0) return (tow_dtype)0;
    const tow_dtype blocks = tow__stored_forms[tensors->items[index].stored].dtype;
    return blocks && tow__tensors_mapped(tensors, index, blocks) ? blocks : tensors->items[index].type.dtype;
}

tow_array *tow_tensors_at(const tow_tensors *tensors, size_t index)
{
    return index < tensors->count && tow__tensors_load(tensors, index) == TOW_OK ? tensors->items[index].array : NULL;
}

tow_array *tow_tensors_find(const tow_tensors *tensors, const char *name)
{
    ptrdiff_t index = tow__tensors_lookup(tensors, name);
    return index >= 0 ? tow_tensors_at(tensors, (size_t)index) : NULL;
}

/* The tensor of a name; the error names some that there are. */
static tow_status require(const tow_tensors *tensors, const char *name, size_t *index)
{
    const ptrdiff_t found = tow__tensors_lookup(tensors, name);
    *index = (size_t)found;
    if (found >= 0) return TOW_OK;
    tow__string known;
    tow__string_init(&known, tensors->ctx);
    for (size_t i = 0; i < tensors->count && i < 10; i++) tow__string_add(&known, " %.100s", tensors->items[i].name);
    tow_status status = tow__fail(tensors->ctx, TOW_NOT_FOUND, "%s: no such tensor; there are%s%s", name,
                                  known.text ? known.text : " none", tensors->count > 10 ? " ..." : "");
    tow__string_free(&known);
    return status;
}

tow_status tow_tensors_get(const tow_tensors *tensors, const char *name, tow_array **array)
{
    if (array) *array = NULL;
    if (!tensors || !name || !array)
        return tow__missing(tensors ? tensors->ctx : NULL, __func__, "tensors, a name and a place for the array");
    size_t index;
    tow_status status = TOW_OK;
    TRY(require(tensors, name, &index));
    TRY(tow__tensors_load(tensors, index));
    *array = tow_array_retain(tensors->items[index].array);
done:
    return status;
}

/* Numbers in blocks: those of the mapped file if it has them, else made of the numbers. */
static tow_status get_blocks(const tow_tensors *t, size_t index, tow_dtype dtype, tow_array **array)
{
    tow_type type = t->items[index].type;
    tow_status status = TOW_OK;
    if (!tow_dtype_is_float(type.dtype) || !tow__type_in_blocks(&type, dtype))
        return tow__fail(t->ctx, TOW_TYPE_MISMATCH,
                         "%s: expected floats with a multiple of %d on the last axis, of which %s is made, found %s",
                         t->items[index].name, tow_dtype_numbers(dtype), tow_dtype_name(dtype),
                         tow__type_name(t->items[index].type).text);
    if (tow__tensors_mapped(t, index, dtype)) return tow__tensors_view(t, index, 0, type, array);
    TRY(tow__tensors_load(t, index));
    TRY(tow_array_convert(t->items[index].array, dtype, array));
done:
    return status;
}

tow_status tow_tensors_get_with(const tow_tensors *tensors, const char *name, tow_dtype dtype, tow_array **array)
{
    if (array) *array = NULL;
    if (!tensors || !name || !array)
        return tow__missing(tensors ? tensors->ctx : NULL, __func__, "tensors, a name and a place for the array");
    size_t index;
    tow_status status = TOW_OK;
    if (tow_dtype_size(dtype) == 0)
        return tow__fail(tensors->ctx, TOW_INVALID_ARGUMENT, "expected " TOW__A_DTYPE " to read %s as, found %d", name,
                         (int)dtype);
    TRY(require(tensors, name, &index));
    TRY(tow__tensors_known(tensors, index));
    tow_type type = tensors->items[index].type;
    if (type.dtype == dtype) return tow_tensors_get(tensors, name, array);
    if (tow__is_blocks(dtype)) return get_blocks(tensors, index, dtype, array);
    if (!tow__file_converts(type.dtype, dtype))
        return tow__fail(tensors->ctx, TOW_TYPE_MISMATCH, "%s: expected %s, found %s, which does not convert to it",
                         name, tow_dtype_name(dtype), tow__type_name(type).text);
    type.dtype = dtype;
    TRY(tow_array_create(tensors->ctx, type, array));
    TRY(tow__tensors_copy(tensors, index, dtype, tow_array_data(*array)));
done:
    if (status != TOW_OK) {
        tow_array_release(*array);
        *array = NULL;
    }
    return status;
}

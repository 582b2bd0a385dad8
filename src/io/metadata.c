/* Metadata of a set of tensors: strings, and the values with types that GGUF files have, in the order of insertion. */
#include <inttypes.h>
#include <math.h>

#include "src/base/numbers.h"
#include "src/io/tensors.h"

enum {
    MAX_DEPTH = 8 /* of arrays in arrays */
};

/* ---- types ------------------------------------------------------------------------------------------------------- */

/* Integers are those of min to max; max is UINT64_MAX for u64 alone. */
typedef struct type_info {
    size_t size; /* of an element of an array */
    int64_t min;
    uint64_t max;
} type_info;

static const type_info types[] = {
    [TOW_METADATA_U8] = {1, 0, UINT8_MAX},
    [TOW_METADATA_I8] = {1, INT8_MIN, INT8_MAX},
    [TOW_METADATA_U16] = {2, 0, UINT16_MAX},
    [TOW_METADATA_I16] = {2, INT16_MIN, INT16_MAX},
    [TOW_METADATA_U32] = {4, 0, UINT32_MAX},
    [TOW_METADATA_I32] = {4, INT32_MIN, INT32_MAX},
    [TOW_METADATA_F32] = {4},
    [TOW_METADATA_BOOL] = {sizeof(bool), 0, 1},
    [TOW_METADATA_STRING] = {sizeof(char *)},
    [TOW_METADATA_ARRAY] = {sizeof(tow_metadata_value)},
    [TOW_METADATA_U64] = {8, 0, UINT64_MAX},
    [TOW_METADATA_I64] = {8, INT64_MIN, INT64_MAX},
    [TOW_METADATA_F64] = {8},
};
enum {
    N_TYPES = sizeof types / sizeof types[0]
};

size_t tow__metadata_size(tow_metadata_type type) { return (unsigned)type < N_TYPES ? types[type].size : 0; }

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static tow__metadata *find_metadata(const tow_tensors *tensors, const char *key)
{
    for (size_t i = 0; i < tensors->n_metadata; i++)
        if (strcmp(tensors->metadata[i].key, key) == 0) return &tensors->metadata[i];
    return NULL;
}

const char *tow_tensors_metadata(const tow_tensors *tensors, const char *key)
{
    const tow__metadata *found = key != NULL ? find_metadata(tensors, key) : NULL;
    return found != NULL ? found->text : NULL;
}

tow_metadata_value tow_tensors_metadata_value(const tow_tensors *tensors, const char *key)
{
    const tow__metadata *found = tensors && key ? find_metadata(tensors, key) : NULL;
    return found != NULL ? found->value : (tow_metadata_value){.type = TOW_METADATA_NONE};
}

const char *tow_tensors_metadata_key(const tow_tensors *tensors, size_t index)
{
    return tensors && index < tensors->n_metadata ? tensors->metadata[index].key : NULL;
}

/* ---- setting ----------------------------------------------------------------------------------------------------- */

tow_status tow__metadata_append(tow_tensors *tensors, const char *key, tow_metadata_value value)
{
    if (tensors->n_metadata == tensors->metadata_capacity) {
        size_t capacity = tensors->metadata_capacity == 0 ? 8 : 2 * tensors->metadata_capacity;
        tow__metadata *metadata =
            tow__grow(tensors->ctx, tensors->metadata, tensors->metadata_capacity, capacity, sizeof *metadata);
        if (!metadata) return TOW_OUT_OF_MEMORY;
        tensors->metadata = metadata;
        tensors->metadata_capacity = capacity;
    }
    tensors->metadata[tensors->n_metadata++] =
        (tow__metadata){.key = key, .text = value.type == TOW_METADATA_STRING ? value.text : NULL, .value = value};
    return TOW_OK;
}

static tow_status copy_array(tow_tensors *t, tow_metadata_value *value, int depth)
{
    const size_t size = tow__metadata_size(value->element);
    tow_status status = TOW_OK;
    if (size == 0 || (value->count > 0 && !value->elements) || depth == MAX_DEPTH)
        return tow__fail(t->ctx, TOW_INVALID_ARGUMENT,
                         "expected an array of metadata with a type of elements, the elements, and arrays in it of at "
                         "most %d levels, found type %d of %zu elements",
                         (int)MAX_DEPTH, (int)value->element, value->count);
    void *copy = value->count > 0 ? tow__arena_copy(&t->strings, value->elements, value->count, size) : NULL;
    if (value->count > 0 && !copy) return TOW_OUT_OF_MEMORY;
    value->elements = copy;
    for (size_t i = 0; i < value->count && value->element == TOW_METADATA_STRING; i++) {
        const char **text = (const char **)copy + i;
        *text = tow__arena_string(&t->strings, *text ? *text : "");
        if (!*text) return TOW_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < value->count && value->element == TOW_METADATA_ARRAY; i++) {
        tow_metadata_value *inner = (tow_metadata_value *)copy + i;
        if (inner->type != TOW_METADATA_ARRAY)
            TRY(tow__fail(t->ctx, TOW_INVALID_ARGUMENT, "expected arrays as elements of an array of arrays"));
        TRY(copy_array(t, inner, depth + 1));
    }
done:
    return status;
}

tow_status tow__metadata_copy(tow_tensors *t, tow_metadata_value *value)
{
    const tow_metadata_value given = *value;
    *value = (tow_metadata_value){.type = given.type};
    if (given.type == TOW_METADATA_ARRAY) {
        value->element = given.element;
        value->count = given.count;
        value->elements = given.elements;
        return copy_array(t, value, 0);
    }
    if (given.type == TOW_METADATA_STRING) {
        value->text = tow__arena_string(&t->strings, given.text ? given.text : "");
        return value->text ? TOW_OK : TOW_OUT_OF_MEMORY;
    }
    if (given.type == TOW_METADATA_F32 || given.type == TOW_METADATA_F64) {
        value->number = given.type == TOW_METADATA_F32 ? (double)(float)given.number : given.number;
        return TOW_OK;
    }
    value->integer = given.integer;
    value->number = given.type == TOW_METADATA_U64 ? (double)(uint64_t)given.integer : (double)given.integer;
    return TOW_OK;
}

/* Is it a type, and an integer one of its type's? */
static tow_status check_value(const tow_tensors *t, const char *key, const tow_metadata_value *value)
{
    if (tow__metadata_size(value->type) == 0)
        return tow__fail(t->ctx, TOW_INVALID_ARGUMENT, "'%.200s': expected a type of metadata, found %d", key,
                         (int)value->type);
    const type_info *info = &types[value->type];
    if (info->max == 0 || info->max == UINT64_MAX) return TOW_OK; /* no integer, or any of 64 bits */
    if (value->integer >= info->min && (value->integer < 0 || (uint64_t)value->integer <= info->max)) return TOW_OK;
    return tow__fail(t->ctx, TOW_INVALID_ARGUMENT,
                     "'%.200s': expected an integer of %" PRId64 " to %" PRIu64 ", found %" PRId64, key, info->min,
                     info->max, value->integer);
}

tow_status tow_tensors_set_metadata_value(tow_tensors *tensors, const char *key, tow_metadata_value value)
{
    const char *name;
    if (!tensors) return tow__missing(NULL, __func__, "a set of tensors");
    tow_context *ctx = tensors->ctx;
    if (!key) return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected a key and a value of metadata, found NULL");
    if (tow__is_checksum_key(key, &name) || strcmp(key, tow__set_key) == 0)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "'%.200s' cannot be set as metadata: checksums that are made on writing have such keys", key);
    tow_status status = TOW_OK;
    TRY(check_value(tensors, key, &value));
    TRY(tow__metadata_copy(tensors, &value));
    tow__metadata *found = find_metadata(tensors, key);
    if (found) {
        found->value = value;
        found->text = value.type == TOW_METADATA_STRING ? value.text : NULL;
        return TOW_OK;
    }
    const char *copy = tow__arena_string(&tensors->strings, key);
    if (!copy) return TOW_OUT_OF_MEMORY;
    TRY(tow__metadata_append(tensors, copy, value));
done:
    return status;
}

tow_status tow_tensors_set_metadata(tow_tensors *tensors, const char *key, const char *value)
{
    if (!tensors) return tow__missing(NULL, __func__, "a set of tensors");
    if (!key || !value)
        return tow__fail(tensors->ctx, TOW_INVALID_ARGUMENT, "expected a key and a value of metadata, found NULL");
    return tow_tensors_set_metadata_value(tensors, key,
                                          (tow_metadata_value){.type = TOW_METADATA_STRING, .text = value});
}

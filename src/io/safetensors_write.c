/* Writing safetensors: the header as text, with the checksums of all data, then the data. */
#include <inttypes.h>

#include "src/base/xxh3.h"
#include "src/io/json.h"
#include "src/io/tensors.h"

/* Large elements first, so that every tensor is aligned for its type; within a size in the order of insertion. */
static const size_t element_sizes[] = {8, 4, 2, 1};
enum {
    N_ELEMENT_SIZES = sizeof element_sizes / sizeof element_sizes[0]
};

/* The order of the data: starts with *index 0 and *size 0. False behind the last tensor. */
static bool next_tensor(const tow_tensors *t, size_t *size, size_t *index)
{
    for (; *size < N_ELEMENT_SIZES; ++*size, *index = 0)
        for (; *index < t->count; ++*index)
            if (tow_dtype_size(t->items[*index].type.dtype) == element_sizes[*size]) return true;
    return false;
}

static tow_status check_names(const char *path, const tow_tensors *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (!tow__is_utf8(t->items[i].name))
            return tow__fail(t->ctx, TOW_INVALID_ARGUMENT, "%s: names in a safetensors file are UTF-8, found '%.200s'",
                             path, t->items[i].name);
    for (size_t i = 0; i < t->n_metadata; i++) {
        if (!tow__is_utf8(t->metadata[i].key))
            return tow__fail(t->ctx, TOW_INVALID_ARGUMENT, "%s: names in a safetensors file are UTF-8, found '%.200s'",
                             path, t->metadata[i].key);
        if (!tow__is_utf8(t->metadata[i].value))
            return tow__fail(t->ctx, TOW_INVALID_ARGUMENT,
                             "%s: metadata in a safetensors file are UTF-8, found '%.200s' as '%.200s'", path,
                             t->metadata[i].value, t->metadata[i].key);
    }
    return TOW_OK;
}

/* ---- the header -------------------------------------------------------------------------------------------------- */

/* "__metadata__":{...} with the checksums of the tensors, [count]. */
static void add_metadata(tow__string *text, const tow_tensors *t, const uint64_t *checksums)
{
    uint64_t sum = 0;
    tow__string_add(text, "\"__metadata__\":{");
    for (size_t i = 0; i < t->n_metadata; i++) {
        tow__json_add_string(text, t->metadata[i].key);
        tow__string_add(text, ":");
        tow__json_add_string(text, t->metadata[i].value);
        tow__string_add(text, ",");
        sum += tow__metadata_sum(t->metadata[i].key, t->metadata[i].value);
    }
    for (size_t i = 0; i < t->count; i++) {
        tow__string key;
        tow__string_init(&key, t->ctx);
        tow__string_add(&key, "%s/%s", tow__checksum_key, t->items[i].name);
        if (key.failed)
            text->failed = true;
        else
            tow__json_add_string(text, key.text);
        tow__string_free(&key);
        tow__string_add(text, ":\"%016" PRIx64 "\",", checksums[i]);
        sum += tow__tensor_sum(t->items[i].name, t->items[i].type, checksums[i]);
    }
    tow__string_add(text, "\"%s\":\"%016" PRIx64 "\"}", tow__checksum_key, sum);
}

static void add_tensor(tow__string *text, const tow__tensor *tensor, uint64_t begin)
{
    tow__string_add(text, ",");
    tow__json_add_string(text, tensor->name);
    tow__string_add(text, ":{\"dtype\":\"%s\",\"shape\":[", tow__safetensors_dtype(tensor->type.dtype));
    for (int32_t i = 0; i < tensor->type.rank; i++)
        tow__string_add(text, i == 0 ? "%" PRId64 : ",%" PRId64, tensor->type.dims[i]);
    tow__string_add(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin,
                    begin + (uint64_t)tow_type_bytes(tensor->type));
}

static tow_status make_header(const char *path, const tow_tensors *t, tow__string *text)
{
    uint64_t *checksums = tow__alloc(t->ctx, t->count, sizeof *checksums), begin = 0;
    if (!checksums) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < t->count; i++)
        checksums[i] = XXH3_64bits(tow_array_data(t->items[i].array), tow_type_bytes(t->items[i].type));
    tow__string_add(text, "{");
    add_metadata(text, t, checksums);
    for (size_t size = 0, i = 0; next_tensor(t, &size, &i); i++) {
        add_tensor(text, &t->items[i], begin);
        begin += tow_type_bytes(t->items[i].type);
    }
    tow__string_add(text, "}");
    tow__free(t->ctx, checksums, t->count, sizeof *checksums);
    if (text->failed) return TOW_OUT_OF_MEMORY;
    while (text->length % 8 != 0 && !text->failed) tow__string_add(text, " ");
    if (text->failed) return TOW_OUT_OF_MEMORY;
    if (text->length <= TOW__SAFETENSORS_MAX_HEADER) return TOW_OK;
    return tow__fail(t->ctx, TOW_INVALID_ARGUMENT, "%s: the names need a header of %zu bytes; readers accept %" PRIu64,
                     path, text->length, TOW__SAFETENSORS_MAX_HEADER);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static tow_status write_file(const char *path, const tow_tensors *t, const tow__string *header)
{
    tow__output_file file;
    const uint64_t length = header->length;
    tow_status status = TOW_OK;
    TRY(tow__output_open(t->ctx, path, &file));
    TRY(tow__output_write(&file, &length, sizeof length));
    TRY(tow__output_write(&file, header->text, header->length));
    for (size_t size = 0, i = 0; next_tensor(t, &size, &i); i++)
        TRY(tow__output_write(&file, tow_array_data(t->items[i].array), tow_type_bytes(t->items[i].type)));
    TRY(tow__output_commit(&file));
done:
    tow__output_close(&file);
    return status;
}

tow_status tow_safetensors_write(const char *path, const tow_tensors *tensors)
{
    if (!tensors) return tow__missing(NULL, __func__, "a set of tensors");
    if (!path) return tow__missing(tensors->ctx, __func__, "the path of a file to write");
    tow__string header;
    tow__string_init(&header, tensors->ctx);
    tow_status status = TOW_OK;
    TRY(check_names(path, tensors));
    for (size_t i = 0; i < tensors->count; i++) TRY(tow__tensors_load(tensors, i));
    TRY(make_header(path, tensors, &header));
    TRY(write_file(path, tensors, &header));
done:
    tow__string_free(&header);
    return status;
}

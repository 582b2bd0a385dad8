/* Writing safetensors: the header as text, with the checksums of all data, then the data. The data of one tensor at a
 * time are asked for: first for its checksum, then to be written, so that a set may be larger than memory. */
#include <inttypes.h>

#include "src/base/xxh3.h"
#include "src/io/json.h"
#include "src/io/tensors.h"

/* Large elements first, so that every tensor is aligned for its type; within a size in the order of insertion. */
static const size_t element_sizes[] = {8, 4, 2, 1};
enum {
    N_ELEMENT_SIZES = sizeof element_sizes / sizeof element_sizes[0]
};

bool tow__tensor_writer_next(const tow__tensor_writer *w, size_t *size, size_t *index)
{
    for (; *size < N_ELEMENT_SIZES; ++*size, *index = w->first)
        for (; *index < w->end; ++*index)
            if (tow_dtype_size(w->tensors->items[*index].type.dtype) == element_sizes[*size]) return true;
    return false;
}

tow_status tow__safetensors_check(const char *path, const tow_tensors *t)
{
    for (size_t i = 0; i < t->count; i++) {
        if (!tow__is_utf8(t->items[i].name))
            return tow__fail(t->ctx, TOW_INVALID_ARGUMENT, "%s: names in a safetensors file are UTF-8, found '%.200s'",
                             path, t->items[i].name);
        if (!tow__safetensors_dtype(t->items[i].type.dtype))
            return tow__fail(t->ctx, TOW_TYPE_MISMATCH,
                             "%s: %.200s: safetensors has no type for %s; convert it with tow_array_convert", path,
                             t->items[i].name, tow__type_name(t->items[i].type).text);
    }
    for (size_t i = 0; i < t->n_metadata; i++) {
        if (!tow__is_utf8(t->metadata[i].key))
            return tow__fail(t->ctx, TOW_INVALID_ARGUMENT, "%s: names in a safetensors file are UTF-8, found '%.200s'",
                             path, t->metadata[i].key);
        if (t->metadata[i].text && !tow__is_utf8(t->metadata[i].text))
            return tow__fail(t->ctx, TOW_INVALID_ARGUMENT,
                             "%s: metadata in a safetensors file are UTF-8, found '%.200s' as '%.200s'", path,
                             t->metadata[i].text, t->metadata[i].key);
    }
    return TOW_OK;
}

/* ---- the header -------------------------------------------------------------------------------------------------- */

static void add_pair(tow__string *text, const char *key, const char *value, uint64_t *sum)
{
    tow__json_add_string(text, key);
    tow__string_add(text, ":");
    tow__json_add_string(text, value);
    tow__string_add(text, ",");
    *sum += tow__metadata_sum(key, value);
}

/* "__metadata__":{...} with the checksums of the tensors. */
static void add_metadata(tow__string *text, const tow__tensor_writer *w)
{
    const tow_tensors *t = w->tensors;
    uint64_t sum = 0;
    tow__string_add(text, "\"__metadata__\":{");
    for (size_t i = 0; i < t->n_metadata; i++)
        if (t->metadata[i].text) add_pair(text, t->metadata[i].key, t->metadata[i].text, &sum);
    if (w->set) add_pair(text, tow__set_key, w->set, &sum);
    for (size_t i = w->first; i < w->end; i++) {
        tow__string key;
        tow__string_init(&key, t->ctx);
        tow__string_add(&key, "%s/%s", tow__checksum_key, t->items[i].name);
        if (key.failed)
            text->failed = true;
        else
            tow__json_add_string(text, key.text);
        tow__string_free(&key);
        tow__string_add(text, ":\"%016" PRIx64 "\",", w->checksums[i]);
        sum += tow__tensor_sum(t->items[i].name, t->items[i].type, w->checksums[i]);
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

tow_status tow__tensor_writer_header(const tow__tensor_writer *w, const char *path, tow__string *text)
{
    uint64_t begin = 0;
    tow__string_add(text, "{");
    add_metadata(text, w);
    for (size_t size = 0, i = w->first; tow__tensor_writer_next(w, &size, &i); i++) {
        add_tensor(text, &w->tensors->items[i], begin);
        begin += tow_type_bytes(w->tensors->items[i].type);
    }
    tow__string_add(text, "}");
    if (text->failed) return TOW_OUT_OF_MEMORY;
    while (text->length % 8 != 0 && !text->failed) tow__string_add(text, " ");
    if (text->failed) return TOW_OUT_OF_MEMORY;
    if (text->length <= TOW__SAFETENSORS_MAX_HEADER) return TOW_OK;
    return tow__fail(w->tensors->ctx, TOW_INVALID_ARGUMENT,
                     "%s: the names need a header of %zu bytes; readers accept %" PRIu64, path, text->length,
                     TOW__SAFETENSORS_MAX_HEADER);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

tow_status tow__tensor_writer_sum(tow__tensor_writer *w)
{
    const tow_tensors *t = w->tensors;
    tow_status status = TOW_OK;
    w->checksums = tow__alloc(t->ctx, t->count, sizeof *w->checksums);
    if (!w->checksums) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < t->count; i++) {
        const void *data;
        TRY(w->data.get(w->data.user, i, &data));
        w->checksums[i] = XXH3_64bits(data, tow_type_bytes(t->items[i].type));
    }
done:
    return status;
}

void tow__tensor_writer_free(tow__tensor_writer *w)
{
    if (w->checksums) tow__free(w->tensors->ctx, w->checksums, w->tensors->count, sizeof *w->checksums);
    w->checksums = NULL;
}

tow_status tow__tensor_writer_write(const tow__tensor_writer *w, const char *path, tow__output_file *file)
{
    tow_status status = TOW_OK;
    tow__string header;
    tow__string_init(&header, w->tensors->ctx);
    TRY(tow__tensor_writer_header(w, path, &header));
    const uint64_t length = header.length;
    TRY(tow__output_open(w->tensors->ctx, path, file));
    TRY(tow__output_write(file, &length, sizeof length));
    TRY(tow__output_write(file, header.text, header.length));
    for (size_t size = 0, i = w->first; tow__tensor_writer_next(w, &size, &i); i++) {
        const void *data;
        TRY(w->data.get(w->data.user, i, &data));
        TRY(tow__output_write(file, data, tow_type_bytes(w->tensors->items[i].type)));
    }
done:
    tow__string_free(&header);
    return status;
}

static tow_status data_of_set(void *user, size_t index, const void **data)
{
    const tow_tensors *tensors = user;
    const tow_status status = tow__tensors_load(tensors, index);
    *data = status == TOW_OK ? tow_array_data(tensors->items[index].array) : NULL;
    return status;
}

tow__tensor_data tow__tensors_data(const tow_tensors *tensors)
{
    return (tow__tensor_data){.get = data_of_set, .user = (void *)(uintptr_t)tensors};
}

tow_status tow_safetensors_write(const char *path, const tow_tensors *tensors)
{
    if (!tensors) return tow__missing(NULL, __func__, "a set of tensors");
    if (!path) return tow__missing(tensors->ctx, __func__, "the path of a file to write");
    return tow__safetensors_write_file(path, tensors, tow__tensors_data(tensors));
}

tow_status tow__safetensors_write_file(const char *path, const tow_tensors *tensors, tow__tensor_data data)
{
    tow__tensor_writer w = {.tensors = tensors, .data = data, .end = tensors->count};
    tow__output_file file = {.fd = -1};
    tow_status status = TOW_OK;
    TRY(tow__safetensors_check(path, tensors));
    TRY(tow__tensor_writer_sum(&w));
    TRY(tow__tensor_writer_write(&w, path, &file));
    TRY(tow__output_commit(&file));
done:
    tow__output_close(&file);
    tow__tensor_writer_free(&w);
    return status;
}

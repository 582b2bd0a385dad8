/* Data of safetensors files: read into arrays, mapped, or compared with their checksums piece by piece. */
#include <inttypes.h>

#include "src/base/xxh3.h"
#include "src/io/tensors.h"

enum {
    PIECE = 256 << 10
};

static tow_status damaged(const tow_tensors *t, size_t index, uint64_t found)
{
    const tow__tensor *tensor = &t->items[index];
    return tow__fail(t->ctx, TOW_BAD_FORMAT,
                     "%s: tensor '%.200s': the data have the checksum %016" PRIx64 ", expected %016" PRIx64
                     "; the file is damaged, or a program changed it and kept its checksums; use another copy",
                     t->file.path, tensor->name, found, tensor->checksum);
}

static tow_status check_bools(const tow_tensors *t, size_t index, const void *data, size_t bytes)
{
    if (t->items[index].type.dtype != TOW_BOOL || tow__valid_bools(data, bytes)) return TOW_OK;
    return tow__fail(t->ctx, TOW_BAD_FORMAT, "%s: tensor '%.200s': expected bytes 0 and 1, found others", t->file.path,
                     t->items[index].name);
}

tow_status tow__tensors_copy(const tow_tensors *t, size_t index, void *data)
{
    const tow__tensor *tensor = &t->items[index];
    const size_t bytes = tow_type_bytes(tensor->type);
    tow_status status = TOW_OK;
    if (tensor->array) {
        memmove(data, tow_array_data(tensor->array), bytes); /* the caller may have put its own array into the set */
        return TOW_OK;
    }
    TRY(tow__input_read(&t->file, tensor->offset, data, bytes));
    const uint64_t found = tensor->has_checksum ? XXH3_64bits(data, bytes) : 0;
    if (found != tensor->checksum) TRY(damaged(t, index, found));
    TRY(check_bools(t, index, data, bytes));
done:
    return status;
}

static tow_status verify_one(const tow_tensors *t, size_t index, void *piece)
{
    const tow__tensor *tensor = &t->items[index];
    const size_t bytes = tow_type_bytes(tensor->type);
    tow_status status = TOW_OK;
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t count = bytes - at < PIECE ? bytes - at : PIECE;
        TRY(tow__input_read(&t->file, tensor->offset + at, piece, count));
        TRY(check_bools(t, index, piece, count));
        XXH3_64bits_update(&state, piece, count);
    }
    const uint64_t found = XXH3_64bits_digest(&state);
    if (tensor->has_checksum && found != tensor->checksum) TRY(damaged(t, index, found));
done:
    return status;
}

tow_status tow__tensors_verify(const tow_tensors *t)
{
    void *piece = tow__alloc_raw(t->ctx, PIECE);
    if (!piece) return TOW_OUT_OF_MEMORY;
    tow_status status = TOW_OK;
    for (size_t i = 0; i < t->count; i++) {
        const tow__tensor *tensor = &t->items[i];
        const bool checked = tensor->has_checksum || tensor->type.dtype == TOW_BOOL;
        if (!tensor->array && checked) TRY(verify_one(t, i, piece));
    }
done:
    tow__free_aligned(t->ctx, piece, PIECE);
    return status;
}

/* ---- all tensors of a file --------------------------------------------------------------------------------------- */

static tow_status read_array(tow_tensors *t, size_t index)
{
    tow_array *array = NULL;
    tow_status status = tow_array_create(t->ctx, t->items[index].type, &array);
    if (status == TOW_OK) status = tow__tensors_copy(t, index, tow_array_data(array));
    if (status == TOW_OK)
        t->items[index].array = array;
    else
        tow_array_release(array);
    return status;
}

/* A view into the mapping, which starts at a page. Data that are not aligned for their type are copied. So are booleans:
 * kernels rely on their being 0 or 1, which was checked now and which others might change in the file. */
static tow_status map_array(tow_tensors *t, size_t index, tow_array *mapping)
{
    tow__tensor *tensor = &t->items[index];
    if (tensor->offset % tow_dtype_size(tensor->type.dtype) != 0 || tensor->type.dtype == TOW_BOOL)
        return read_array(t, index);
    return tow__array_view(mapping, (size_t)tensor->offset, tensor->type, &tensor->array);
}

static tow_status load(tow_context *context, const char *path, bool map, tow_tensors **tensors)
{
    tow_array *mapping = NULL;
    tow_tensors *t = NULL;
    tow_status status = tow__safetensors_open(context, path, &t);
    if (status != TOW_OK) return status;
    if (map) TRY(tow__tensors_verify(t));
    if (map) TRY(tow__input_map(&t->file, &mapping));
    for (size_t i = 0; i < t->count; i++) TRY(map ? map_array(t, i, mapping) : read_array(t, i));
    tow__input_close(&t->file);
done:
    tow_array_release(mapping);
    if (status == TOW_OK)
        *tensors = t;
    else
        tow_tensors_free(t);
    return status;
}

tow_status tow_safetensors_read(tow_context *context, const char *path, tow_tensors **tensors)
{
    if (tensors) *tensors = NULL;
    if (!context || !tensors) return tow__missing(context, __func__, "a context and a place for the tensors");
    return load(context, path, false, tensors);
}

tow_status tow_safetensors_map(tow_context *context, const char *path, tow_tensors **tensors)
{
    if (tensors) *tensors = NULL;
    if (!context || !tensors) return tow__missing(context, __func__, "a context and a place for the tensors");
    return load(context, path, true, tensors);
}

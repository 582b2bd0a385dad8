/* Data of tensors in files: read into arrays, mapped, decoded, converted, compared with their checksums. */
#include <inttypes.h>
#include <stdio.h>

#include "src/base/dtypes.h"
#include "src/base/xxh3.h"
#include "src/io/file_calls.h"
#include "src/io/tensors.h"

enum {
    FEW = 2048,    /* elements that are converted or checked at a time, on the stack */
    ENCODED = 4096 /* bytes that are decoded at a time */
};

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* An error about a tensor. */
__attribute__((format(printf, 4, 5))) static tow_status refuse(const tow_tensors *t, size_t index, tow_status status,
                                                               const char *format, ...)
{
    const tow__tensor *tensor = &t->items[index];
    const bool has_file = tensor->file < t->n_files;
    char why[256];
    va_list args;
    va_start(args, format);
    if (vsnprintf(why, sizeof why, format, args) < 0) why[0] = '\0';
    va_end(args);
    return tow__fail(t->ctx, status, "%s%stensor '%.200s': %s", has_file ? t->files[tensor->file].path : "",
                     has_file ? ": " : "", tensor->name, why);
}

tow_status tow__tensors_check_sum(const tow_tensors *t, size_t index, uint64_t found)
{
    const tow__tensor *tensor = &t->items[index];
    if (!tensor->has_checksum || found == tensor->checksum) return TOW_OK;
    return refuse(t, index, TOW_BAD_FORMAT,
                  "the data have the checksum %016" PRIx64 ", expected %016" PRIx64
                  "; the file is damaged, or a program changed it and kept its checksums; use another copy",
                  found, tensor->checksum);
}

tow_status tow__tensors_known(const tow_tensors *t, size_t index)
{
    const char *foreign = t->items[index].foreign;
    if (t->items[index].is_share)
        return refuse(t, index, TOW_UNSUPPORTED,
                      "expected all of its elements, found those of one process; write it with "
                      "tow_safetensors_write_all");
    if (!foreign) return TOW_OK;
    if (t->items[index].file == UINT32_MAX) return tow__fail(t->ctx, TOW_UNSUPPORTED, "%s", foreign);
    if (t->files[t->items[index].file].format == TOW__FORMAT_GGUF)
        return refuse(
            t, index, TOW_UNSUPPORTED,
            "expected F32, F16, BF16, F64, I8, I16, I32, I64, Q8_0, Q4_0, Q4_K or Q6_K, found %s; make a file "
            "with one of these types",
            foreign);
    return refuse(t, index, TOW_UNSUPPORTED,
                  "expected at most 8 axes of dtype F32, F64, BF16, F16, I8, U8, I32, U32, I64, U64 or BOOL, found %s; "
                  "convert it first",
                  foreign);
}

static tow_status check_bools(const tow_tensors *t, size_t index, const void *data, size_t bytes)
{
    if (t->items[index].type.dtype != TOW_BOOL || tow__valid_bools(data, bytes)) return TOW_OK;
    return refuse(t, index, TOW_BAD_FORMAT, "expected bytes 0 and 1, found others");
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

tow_status tow__tensors_read_bytes(const tow_tensors *t, size_t index, uint64_t at, void *data, size_t count)
{
    const tow__tensor *tensor = &t->items[index];
    const tow__tensor_file *file = &t->files[tensor->file];
    if (!file->mapping) return tow__input_read(&file->input, tensor->offset + at, data, count);
    if (count > 0) memcpy(data, (const char *)tow_array_data(file->mapping) + tensor->offset + at, count);
    return TOW_OK;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static tow_status copy_plain(const tow_tensors *t, size_t index, void *data)
{
    const tow__tensor *tensor = &t->items[index];
    const size_t bytes = tow_type_bytes(tensor->type);
    tow_status status = TOW_OK;
    if (tensor->array) {
        if (bytes > 0) memmove(data, tow_array_data(tensor->array), bytes); /* it may be the caller's own array */
        return TOW_OK;
    }
    TRY(tow__tensors_read_bytes(t, index, 0, data, bytes));
    if (tensor->has_checksum) TRY(tow__tensors_check_sum(t, index, XXH3_64bits(data, bytes)));
    TRY(check_bools(t, index, data, bytes));
done:
    return status;
}

/* The same of a tensor in blocks: whole ones are decoded where they belong, others aside. */
static tow_status fetch_blocks(const tow_tensors *t, size_t index, int64_t first, int64_t n, char *out)
{
    const tow__stored_form *form = &tow__stored_forms[t->items[index].stored];
    const size_t size = tow_dtype_size(t->items[index].type.dtype);
    _Alignas(8) unsigned char blocks[ENCODED];
    float aside[TOW__BLOCK_ELEMENTS];
    tow_status status = TOW_OK;
    while (n > 0) {
        const int64_t block = first / form->elements, skip = first % form->elements, left = form->elements - skip;
        const int64_t room = ENCODED / form->bytes, all = n / form->elements;
        const bool whole = skip == 0 && all > 0;
        const int64_t count = !whole ? 1 : all < room ? all : room;
        const int64_t done = whole ? count * form->elements : n < left ? n : left;
        TRY(tow__tensors_read_bytes(t, index, (uint64_t)block * (uint64_t)form->bytes, blocks,
                                    (size_t)count * (size_t)form->bytes));
        form->decode(blocks, count, whole ? (void *)out : aside);
        if (!whole) memcpy(out, (char *)aside + (size_t)skip * size, (size_t)done * size);
        first += done;
        n -= done;
        out += (size_t)done * size;
    }
done:
    return status;
}

/* Elements `first` to `first` + n of a tensor as its type has them, which its file may store in fewer bytes. */
static tow_status fetch_elements(const tow_tensors *t, size_t index, int64_t first, int64_t n, void *piece)
{
    const tow__tensor *tensor = &t->items[index];
    const size_t size = tow_dtype_size(tensor->type.dtype);
    if (tensor->stored != TOW__STORED_PLAIN) return fetch_blocks(t, index, first, n, piece);
    return tow__tensors_read_bytes(t, index, (size_t)first * size, piece, (size_t)n * size);
}

tow_status tow__tensors_read_elements(const tow_tensors *t, size_t index, int64_t first, int64_t n, void *data)
{
    const tow__tensor *tensor = &t->items[index];
    const size_t size = tow_dtype_size(tensor->type.dtype), bytes = (size_t)n * size;
    tow_status status = tow__tensors_known(t, index);
    if (status || n == 0) return status;
    if (tensor->array)
        memcpy(data, (const char *)tow_array_data(tensor->array) + (size_t)first * size, bytes);
    else
        TRY(fetch_elements(t, index, first, n, data));
    TRY(check_bools(t, index, data, bytes));
done:
    return status;
}

/* Elements `first` to `first` + n of a tensor: read, checked and converted. */
static tow_status convert_piece(const tow_tensors *t, size_t index, int64_t first, int64_t n, void *piece,
                                tow_dtype dtype, void *converted)
{
    const tow__tensor *tensor = &t->items[index];
    const tow_dtype from = tensor->type.dtype;
    const size_t size = tow_dtype_size(from), bytes = (size_t)n * size, at = (size_t)first * size;
    tow_status status = TOW_OK;
    if (tensor->array)
        memcpy(piece, (const char *)tow_array_data(tensor->array) + at, bytes);
    else
        TRY(fetch_elements(t, index, first, n, piece));
    TRY(check_bools(t, index, piece, bytes));
    const int64_t misfit = tow__file_convert(dtype, converted, from, piece, n);
    if (misfit < 0) return TOW_OK;
    char number[24];
    tow__integer_text(from, piece, misfit, number);
    return refuse(t, index, TOW_TYPE_MISMATCH,
                  "expected integers that fit %s, found %s at element %" PRId64 "; load it as %s",
                  tow_dtype_name(dtype), number, first + misfit, tow_dtype_name(from));
done:
    return status;
}

/* data NULL: the elements are only checked. */
static tow_status copy_converted(const tow_tensors *t, size_t index, tow_dtype dtype, char *data)
{
    const tow__tensor *tensor = &t->items[index];
    const size_t size = tow_dtype_size(tensor->type.dtype), to_size = tow_dtype_size(dtype);
    const int64_t count = tow_type_element_count(tensor->type);
    const bool sums = tensor->has_checksum && !tensor->array;
    uint64_t piece[FEW], converted[FEW]; /* of 8 bytes, as the largest elements have */
    tow_status status = TOW_OK;
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (int64_t first = 0; first < count; first += FEW) {
        const int64_t n = count - first < FEW ? count - first : FEW;
        TRY(convert_piece(t, index, first, n, piece, dtype, converted));
        if (sums) XXH3_64bits_update(&state, piece, (size_t)n * size);
        if (data) memcpy(data + (size_t)first * to_size, converted, (size_t)n * to_size);
    }
    if (sums) TRY(tow__tensors_check_sum(t, index, XXH3_64bits_digest(&state)));
done:
    return status;
}

tow_status tow__tensors_copy(const tow_tensors *t, size_t index, tow_dtype dtype, void *data)
{
    const tow_status status = tow__tensors_known(t, index);
    if (status != TOW_OK) return status;
    const tow__tensor *tensor = &t->items[index];
    const bool plain = tensor->type.dtype == dtype && (tensor->array || tensor->stored == TOW__STORED_PLAIN);
    return plain ? copy_plain(t, index, data) : copy_converted(t, index, dtype, data);
}

tow_status tow__tensors_check(const tow_tensors *t, size_t index, tow_dtype dtype)
{
    const tow__tensor *tensor = &t->items[index];
    const tow_status status = tow__tensors_known(t, index);
    if (status != TOW_OK) return status;
    const bool in_file = !tensor->array && (tensor->has_checksum || tensor->type.dtype == TOW_BOOL);
    const bool narrows = tensor->type.dtype != dtype && tow_dtype_is_integer(dtype);
    return in_file || narrows ? copy_converted(t, index, dtype, NULL) : TOW_OK;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* Data that are not aligned for their type have no view. Nor have booleans: kernels rely on their being 0 or 1, which
 * others might change in the file after it was checked. */
bool tow__tensors_have_view(const tow_tensors *t, size_t index)
{
    return tow__tensors_mapped(t, index, t->items[index].type.dtype) != NULL;
}

const void *tow__tensors_mapped(const tow_tensors *t, size_t index, tow_dtype dtype)
{
    const tow__tensor *tensor = &t->items[index];
    const size_t align = tow__is_blocks(dtype) ? 2 : tow_dtype_size(dtype);
    if (tensor->file >= t->n_files || !t->files[tensor->file].mapping || tensor->foreign || dtype == TOW_BOOL)
        return NULL;
    const tow_dtype held =
        tensor->stored == TOW__STORED_PLAIN ? tensor->type.dtype : tow__stored_forms[tensor->stored].dtype;
    if (held != dtype || tensor->offset % align != 0) return NULL;
    return (const char *)tow_array_data(t->files[tensor->file].mapping) + tensor->offset;
}

tow_status tow__tensors_view(const tow_tensors *t, size_t index, size_t offset, tow_type type, tow_array **view)
{
    const tow__tensor *tensor = &t->items[index];
    return tow__array_view(t->ctx, t->files[tensor->file].mapping, (size_t)tensor->offset + offset, type, view);
}

bool tow__type_in_blocks(tow_type *type, tow_dtype dtype)
{
    const int numbers = tow_dtype_numbers(dtype);
    if (type->rank < 1 || type->dims[type->rank - 1] % numbers != 0) return false;
    type->dims[type->rank - 1] /= numbers;
    type->dtype = dtype;
    return true;
}

tow_status tow__tensors_load(const tow_tensors *t, size_t index)
{
    tow__tensor *tensor = &t->items[index];
    tow_array *array = NULL;
    tow_status status = TOW_OK;
    if (tensor->array && !tensor->is_share) return TOW_OK;
    TRY(tow__tensors_known(t, index));
    if (tow__tensors_have_view(t, index)) {
        TRY(tow__array_view(t->ctx, t->files[tensor->file].mapping, (size_t)tensor->offset, tensor->type, &array));
        if (tensor->has_checksum)
            TRY(tow__tensors_check_sum(t, index, XXH3_64bits(tow_array_data(array), tow_type_bytes(tensor->type))));
    } else {
        TRY(tow_array_create(t->ctx, tensor->type, &array));
        TRY(tow__tensors_copy(t, index, tensor->type.dtype, tow_array_data(array)));
    }
    tensor->array = array;
done:
    if (status != TOW_OK) tow_array_release(array);
    return status;
}

void tow__tensors_drop_pages(const tow_tensors *t, size_t index)
{
    const tow__tensor *tensor = &t->items[index];
    const tow__file_calls *calls = tow__calls(t->ctx);
    if (tensor->file >= t->n_files || !t->files[tensor->file].mapping || !calls->drop) return;
    char *data = tow_array_data(t->files[tensor->file].mapping);
    calls->drop(data + tensor->offset, (size_t)tow__tensor_bytes(tensor));
}

void tow__tensors_forget(tow_tensors *t, size_t index)
{
    tow__tensor *tensor = &t->items[index];
    if (tensor->file >= t->n_files || !t->files[tensor->file].mapping) return;
    tow_array_release(tensor->array);
    tensor->array = NULL;
    tow__tensors_drop_pages(t, index);
}

/* Writes GGUF files: the header, then the data of one tensor at a time, converted in pieces. */
#include <inttypes.h>
#include <math.h>

#include "src/base/blocks.h"
#include "src/base/options.h"
#include "src/io/gguf.h"
#include "src/io/json.h"

enum {
    BUFFER = 16384,
    PIECE = 2048,   /* elements that are converted at a time: whole blocks */
    MAX_KEY = 65535 /* bytes */
};

/* An element type in a file. */
typedef struct target {
    uint32_t number;
    const tow__gguf_dtype *dtype;
    bool copied; /* the bytes are those of the set's file */
} target;

typedef struct writer {
    tow_context *ctx;
    const char *path;
    const tow_tensors *tensors;
    tow__tensor_data data;
    tow_gguf_type type;
    uint64_t alignment, at;
    target *targets; /* [count] */
    tow__output_file file;
    size_t used;
    unsigned char buffer[BUFFER];
} writer;

/* ---- what is written --------------------------------------------------------------------------------------------- */

typedef struct choice {
    tow_dtype dtype;
    int stored;
} choice;
static const choice choices[] = {
    [TOW_GGUF_F32] = {TOW_F32, TOW__STORED_PLAIN},   [TOW_GGUF_F16] = {TOW_F16, TOW__STORED_PLAIN},
    [TOW_GGUF_BF16] = {TOW_BF16, TOW__STORED_PLAIN}, [TOW_GGUF_Q8_0] = {TOW_F32, TOW__STORED_Q8_0},
    [TOW_GGUF_Q4_0] = {TOW_F32, TOW__STORED_Q4_0},
};
enum {
    N_CHOICES = sizeof choices / sizeof choices[0]
};

/* Tensors that llama.cpp keeps in f32, whatever the others are. */
static bool stays_wide(const char *name)
{
    static const char *const names[] = {"position_embd.weight", "token_types.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* The form of blocks of a type. */
static int stored_as(tow_dtype blocks)
{
    int form = TOW__STORED_PLAIN + 1;
    while (tow__stored_forms[form].dtype != blocks) form++;
    return form;
}

static tow_status choose(const writer *w, size_t index, target *chosen)
{
    const tow__tensor *tensor = &w->tensors->items[index];
    const tow_type type = tensor->type;
    choice c = {type.dtype, TOW__STORED_PLAIN};
    if (tow__is_blocks(type.dtype)) {
        c = (choice){TOW_F32, stored_as(type.dtype)};
    } else if (w->type != TOW_GGUF_AS_IT_IS && tow_dtype_is_float(type.dtype)) {
        c = choices[type.rank < 2 || stays_wide(tensor->name) ? TOW_GGUF_F32 : w->type];
        const tow__stored_form *form = &tow__stored_forms[c.stored];
        if (c.stored != TOW__STORED_PLAIN && type.dims[type.rank - 1] % form->elements != 0) c = choices[TOW_GGUF_F32];
    } else if (!tensor->array && tensor->file < w->tensors->n_files) {
        c.stored = tensor->stored;
        chosen->copied = c.stored != TOW__STORED_PLAIN;
    }
    chosen->number = tow__gguf_number_of(c.dtype, c.stored);
    chosen->dtype = tow__gguf_dtype_of(chosen->number);
    if (chosen->dtype) return TOW_OK;
    return tow__fail(w->ctx, TOW_UNSUPPORTED,
                     "%s: tensor '%.200s': expected f32, f64, bf16, f16, i8, i32 or i64, found %s, which GGUF does not "
                     "have",
                     w->path, tensor->name, tow_dtype_name(c.dtype));
}

static tow_status check_tensor(const writer *w, const tow__tensor *tensor)
{
    if (!tow__is_utf8(tensor->name) || strlen(tensor->name) >= TOW__GGUF_NAME_BYTES)
        return tow__fail(w->ctx, TOW_INVALID_ARGUMENT,
                         "%s: names of tensors in a GGUF file are UTF-8 of at most %d bytes, found '%.200s'", w->path,
                         (int)TOW__GGUF_NAME_BYTES - 1, tensor->name);
    if (tensor->type.rank > TOW__GGUF_MAX_AXES)
        return tow__fail(w->ctx, TOW_INVALID_ARGUMENT,
                         "%s: tensor '%.200s': expected at most %d axes, as GGUF has them, found %s", w->path,
                         tensor->name, (int)TOW__GGUF_MAX_AXES, tow__type_name(tensor->type).text);
    return TOW_OK;
}

static tow_status prepare(writer *w)
{
    const tow_tensors *t = w->tensors;
    const tow_metadata_value alignment = tow_tensors_metadata_value(t, TOW__GGUF_ALIGNMENT_KEY);
    const int64_t a = alignment.type != TOW_METADATA_NONE ? alignment.integer : TOW__GGUF_ALIGNMENT;
    tow_status status = TOW_OK;
    if ((alignment.type != TOW_METADATA_NONE && alignment.type != TOW_METADATA_U32) || a < 8 ||
        a > TOW__GGUF_MAX_ALIGNMENT || (a & (a - 1)) != 0)
        return tow__fail(w->ctx, TOW_INVALID_ARGUMENT,
                         "%s: expected %s to be a power of two, 8 to %d, as an u32, found %" PRId64, w->path,
                         TOW__GGUF_ALIGNMENT_KEY, (int)TOW__GGUF_MAX_ALIGNMENT, a);
    w->alignment = (uint64_t)a;
    for (size_t i = 0; i < t->n_metadata; i++)
        if (!tow__is_utf8(t->metadata[i].key) || strlen(t->metadata[i].key) > MAX_KEY)
            return tow__fail(w->ctx, TOW_INVALID_ARGUMENT,
                             "%s: keys of metadata in a GGUF file are UTF-8 of at most %d bytes, found '%.200s'",
                             w->path, (int)MAX_KEY, t->metadata[i].key);
    w->targets = tow__alloc(w->ctx, t->count, sizeof *w->targets);
    if (!w->targets) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < t->count; i++) {
        TRY(tow__tensors_known(t, i));
        TRY(check_tensor(w, &t->items[i]));
        TRY(choose(w, i, &w->targets[i]));
    }
done:
    return status;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static tow_status flush(writer *w)
{
    const tow_status status = tow__output_write(&w->file, w->buffer, w->used);
    w->used = 0;
    return status;
}

static tow_status put(writer *w, const void *data, size_t count)
{
    tow_status status = TOW_OK;
    w->at += count;
    if (count > BUFFER - w->used) TRY(flush(w));
    if (count > BUFFER) return tow__output_write(&w->file, data, count);
    if (count > 0) memcpy(w->buffer + w->used, data, count);
    w->used += count;
done:
    return status;
}

static tow_status put_u32(writer *w, uint32_t value) { return put(w, &value, sizeof value); }
static tow_status put_u64(writer *w, uint64_t value) { return put(w, &value, sizeof value); }

static tow_status put_string(writer *w, const char *text)
{
    const size_t length = strlen(text);
    const tow_status status = put_u64(w, length);
    return status == TOW_OK ? put(w, text, length) : status;
}

/* Zeros up to a multiple of the alignment. */
static tow_status pad(writer *w)
{
    static const unsigned char zeros[256];
    tow_status status = TOW_OK;
    while (w->at % w->alignment != 0) {
        const uint64_t gap = w->alignment - w->at % w->alignment;
        TRY(put(w, zeros, gap < sizeof zeros ? (size_t)gap : sizeof zeros));
    }
done:
    return status;
}

/* ---- the header -------------------------------------------------------------------------------------------------- */

static uint32_t number_of(tow_metadata_type type) { return (uint32_t)type - 1; }

static tow_status put_array(writer *w, const tow_metadata_value *value)
{
    tow_status status = TOW_OK;
    TRY(put_u32(w, number_of(value->element)));
    TRY(put_u64(w, value->count));
    for (size_t i = 0; i < value->count && value->element == TOW_METADATA_STRING; i++)
        TRY(put_string(w, ((const char *const *)value->elements)[i]));
    for (size_t i = 0; i < value->count && value->element == TOW_METADATA_ARRAY; i++)
        TRY(put_array(w, (const tow_metadata_value *)value->elements + i));
    if (value->element != TOW_METADATA_STRING && value->element != TOW_METADATA_ARRAY)
        TRY(put(w, value->elements, value->count * tow__metadata_size(value->element)));
done:
    return status;
}

static tow_status put_entry(writer *w, const tow__metadata *entry)
{
    const tow_metadata_value *value = &entry->value;
    const float narrow = (float)value->number;
    tow_status status = TOW_OK;
    TRY(put_string(w, entry->key));
    TRY(put_u32(w, number_of(value->type)));
    switch (value->type) {
    case TOW_METADATA_STRING:
        return put_string(w, value->text);
    case TOW_METADATA_ARRAY:
        return put_array(w, value);
    case TOW_METADATA_F32:
        return put(w, &narrow, sizeof narrow);
    case TOW_METADATA_F64:
        return put(w, &value->number, sizeof value->number);
    default:
        return put(w, &value->integer, tow__metadata_size(value->type)); /* the low bytes come first */
    }
done:
    return status;
}

static uint64_t bytes_of(const target *chosen, tow_type type)
{
    if (tow__is_blocks(type.dtype)) return tow_type_bytes(type);
    return (uint64_t)tow_type_element_count(type) / (uint64_t)chosen->dtype->elements * (uint64_t)chosen->dtype->bytes;
}

static tow_status put_header(writer *w)
{
    const tow_tensors *t = w->tensors;
    uint64_t offset = 0;
    tow_status status = TOW_OK;
    TRY(put(w, "GGUF", 4));
    TRY(put_u32(w, TOW__GGUF_VERSION));
    TRY(put_u64(w, t->count));
    TRY(put_u64(w, t->n_metadata));
    for (size_t i = 0; i < t->n_metadata; i++) TRY(put_entry(w, &t->metadata[i]));
    for (size_t i = 0; i < t->count; i++) {
        const tow_type type = t->items[i].type;
        TRY(put_string(w, t->items[i].name));
        TRY(put_u32(w, (uint32_t)type.rank));
        for (int32_t axis = type.rank; axis-- > 0;) {
            const int numbers = axis == type.rank - 1 ? tow_dtype_numbers(type.dtype) : 1;
            TRY(put_u64(w, (uint64_t)type.dims[axis] * (uint64_t)numbers));
        }
        TRY(put_u32(w, w->targets[i].number));
        TRY(put_u64(w, offset));
        offset = (offset + bytes_of(&w->targets[i], type) + w->alignment - 1) / w->alignment * w->alignment;
    }
    TRY(pad(w));
done:
    return status;
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

/* The scale, an f16, is in front of each block. */
static bool have_finite_scales(const unsigned char *blocks, int64_t n, size_t bytes)
{
    for (int64_t i = 0; i < n; i++)
        if ((blocks[(size_t)i * bytes + 1] & 0x7c) == 0x7c) return false;
    return true;
}

/* Index of the first of n numbers of 16 bits that is infinite and was finite; n: there is none. */
static int64_t find_overflow(tow_dtype to, const uint64_t *piece, tow_dtype from, const char *data, int64_t n)
{
    const unsigned infinity = to == TOW_F16 ? 0x7c00 : 0x7f80;
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        double number;
        memcpy(&bits, (const char *)piece + 2 * i, sizeof bits);
        if ((bits & 0x7fff) != infinity) continue;
        tow__convert_elements(TOW_F64, &number, from, data + (size_t)i * tow_dtype_size(from), 1);
        if (isfinite(number)) return i;
    }
    return n;
}

/* Elements that become another type, or blocks. */
static tow_status put_converted(writer *w, const tow__tensor *tensor, const target *chosen, const char *data)
{
    const int64_t count = tow_type_element_count(tensor->type);
    const size_t from = tow_dtype_size(tensor->type.dtype);
    const tow_dtype to = (tow_dtype)chosen->dtype->tow;
    uint64_t piece[PIECE]; /* of 8 bytes, as the largest elements have */
    _Alignas(8) unsigned char blocks[PIECE * 2];
    tow_status status = TOW_OK;
    for (int64_t first = 0; first < count; first += PIECE) {
        const int64_t n = count - first < PIECE ? count - first : PIECE, n_blocks = n / chosen->dtype->elements;
        const void *bytes = piece;
        tow__convert_elements(to, piece, tensor->type.dtype, data + (size_t)first * from, n);
        const bool halves = tow_dtype_size(to) == 2 && tow_dtype_is_float(to);
        const int64_t large = halves ? find_overflow(to, piece, tensor->type.dtype, data + (size_t)first * from, n) : n;
        if (large < n)
            TRY(tow__fail(w->ctx, TOW_INVALID_ARGUMENT,
                          "%s: tensor '%.200s': expected numbers that %s can hold, found a larger one at element "
                          "%" PRId64 "; choose another type",
                          w->path, tensor->name, chosen->dtype->name, first + large));
        if (chosen->dtype->stored != TOW__STORED_PLAIN) {
            const tow_dtype dtype = tow__stored_forms[chosen->dtype->stored].dtype;
            tow__quantize_blocks(dtype, n_blocks, (const float *)(const void *)piece, blocks);
            const bool finite = have_finite_scales(blocks, n_blocks, (size_t)chosen->dtype->bytes);
            if (!finite)
                TRY(tow__fail(w->ctx, TOW_INVALID_ARGUMENT,
                              "%s: tensor '%.200s': expected finite numbers whose scales are at most 65504, as %s has "
                              "them, found others among elements %" PRId64 " to %" PRId64,
                              w->path, tensor->name, chosen->dtype->name, first, first + n - 1));
            bytes = blocks;
        }
        TRY(put(w, bytes, (size_t)n_blocks * (size_t)chosen->dtype->bytes));
    }
done:
    return status;
}

/* Bytes as the set's file has them. */
static tow_status put_copied(writer *w, size_t index)
{
    const uint64_t bytes = tow__tensor_bytes(&w->tensors->items[index]);
    unsigned char piece[BUFFER];
    tow_status status = TOW_OK;
    for (uint64_t at = 0; at < bytes; at += sizeof piece) {
        const size_t n = bytes - at < sizeof piece ? (size_t)(bytes - at) : sizeof piece;
        TRY(tow__tensors_read_bytes(w->tensors, index, at, piece, n));
        TRY(put(w, piece, n));
    }
done:
    return status;
}

static tow_status put_tensor(writer *w, size_t index)
{
    const tow__tensor *tensor = &w->tensors->items[index];
    const target *chosen = &w->targets[index];
    const void *data;
    tow_status status = TOW_OK;
    if (chosen->copied) {
        TRY(put_copied(w, index));
    } else {
        TRY(w->data.get(w->data.user, index, &data));
        const bool plain = chosen->dtype->stored == TOW__STORED_PLAIN, blocks = tow__is_blocks(tensor->type.dtype);
        const bool same = blocks || (plain && chosen->dtype->tow == (int)tensor->type.dtype);
        TRY(same ? put(w, data, tow_type_bytes(tensor->type)) : put_converted(w, tensor, chosen, data));
    }
    TRY(pad(w));
done:
    return status;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

tow_status tow__gguf_write_file(const char *path, const tow_tensors *tensors, tow__tensor_data data, tow_gguf_type type)
{
    tow_status status = TOW_OK;
    writer *w = tow__alloc(tensors->ctx, 1, sizeof *w);
    if (!w) return TOW_OUT_OF_MEMORY;
    w->ctx = tensors->ctx;
    w->path = path;
    w->tensors = tensors;
    w->data = data;
    w->type = type;
    w->file.fd = -1;
    TRY(prepare(w));
    TRY(tow__output_open(w->ctx, path, &w->file));
    TRY(put_header(w));
    for (size_t i = 0; i < tensors->count; i++) TRY(put_tensor(w, i));
    TRY(flush(w));
    TRY(tow__output_commit(&w->file));
done:
    tow__output_close(&w->file);
    if (w->targets) tow__free(w->ctx, w->targets, tensors->count, sizeof *w->targets);
    tow__free(w->ctx, w, 1, sizeof *w);
    return status;
}

tow_status tow_gguf_write(const char *path, const tow_tensors *tensors, const tow_gguf_write_options *options)
{
    tow_gguf_write_options own;
    if (!tensors) return tow__missing(NULL, __func__, "a set of tensors");
    if (!path) return tow__missing(tensors->ctx, __func__, "the path of a file to write");
    if (!TOW__OPTIONS_TAKE(tensors->ctx, tow_gguf_write_options, options, &own)) return TOW_INVALID_ARGUMENT;
    const tow_gguf_type type = options ? options->type : TOW_GGUF_AS_IT_IS;
    if ((unsigned)type >= N_CHOICES)
        return tow__fail(tensors->ctx, TOW_INVALID_ARGUMENT,
                         "tow_gguf_write_options: expected one of tow_gguf_type as "
                         ".type, found %d",
                         (int)type);
    return tow__gguf_write_file(path, tensors, tow__tensors_data(tensors), type);
}

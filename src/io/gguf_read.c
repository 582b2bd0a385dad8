/* Reads GGUF files: the header through a small buffer, value by value, then what it says about the data.
 *
 * Nothing is allocated by a claim alone: a string or an array takes memory when its bytes are known to be in the file,
 * and elements of arrays, entries and tensors that are promised but not read yet reserve the least bytes that they can
 * have (`reserved`). So all memory that a header makes the reader take is in proportion to the header's bytes. */
#include <inttypes.h>
#include <stdio.h>

#include "src/base/numbers.h"
#include "src/io/gguf.h"
#include "src/io/json.h"

enum {
    BUFFER = 4096,
    MAX_DEPTH = 8,     /* of arrays in arrays */
    LEAST_ENTRY = 13,  /* bytes of metadata: an empty key, a type, one byte */
    LEAST_TENSOR = 24, /* bytes of a tensor: an empty name, no axes, a type, an offset */
    LEAST_ARRAY = 12
};
/* Headers of more bytes are not read. */
#define MAX_HEADER (UINT64_C(1) << 30)

typedef struct reader {
    tow_context *ctx;
    const char *path;
    tow_tensors *tensors;
    const tow__input_file *file;
    uint64_t at, end;  /* the next byte of the header; the end of the file, or of what may be header */
    uint64_t reserved; /* bytes of what is promised */
    uint64_t filled;   /* bytes of the file up to the end of the buffer */
    size_t used, have; /* of the buffer */
    const char *what;  /* that is read, for messages */
    unsigned char buffer[BUFFER];
} reader;

__attribute__((format(printf, 2, 3))) static tow_status refuse(const reader *r, const char *format, ...)
{
    char why[512];
    va_list args;
    va_start(args, format);
    if (vsnprintf(why, sizeof why, format, args) < 0) why[0] = '\0';
    va_end(args);
    return tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: %s%s%s", r->path, r->what ? r->what : "", r->what ? ": " : "", why);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static uint64_t left(const reader *r) { return r->end - r->at; }

/* Promises `count` things of at least `least` bytes each, or says that the file is too short for them. */
static tow_status reserve(reader *r, uint64_t count, uint64_t least, const char *things)
{
    const uint64_t room = left(r) > r->reserved ? left(r) - r->reserved : 0;
    if (count > room / least)
        return refuse(r,
                      "the header claims %" PRIu64 " %s, but only %" PRIu64
                      " bytes are left for them; the file is truncated or damaged",
                      count, things, room);
    r->reserved += count * least;
    return TOW_OK;
}

static tow_status fill(reader *r)
{
    const uint64_t more = r->end - r->filled;
    r->used = 0;
    r->have = more < BUFFER ? (size_t)more : BUFFER;
    const tow_status status = tow__input_read(r->file, r->filled, r->buffer, r->have);
    r->filled += r->have;
    return status;
}

static tow_status take(reader *r, void *data, uint64_t count)
{
    unsigned char *bytes = data;
    tow_status status = TOW_OK;
    if (count > left(r))
        return refuse(r,
                      "expected %" PRIu64 " more bytes of the header at byte %" PRIu64 ", found %" PRIu64
                      "; the file is truncated or damaged",
                      count, r->at, left(r));
    r->at += count;
    while (count > 0) {
        if (r->used == r->have) TRY(fill(r));
        const size_t n = count < r->have - r->used ? (size_t)count : r->have - r->used;
        memcpy(bytes, r->buffer + r->used, n);
        r->used += n;
        bytes += n;
        count -= n;
    }
done:
    return status;
}

static tow_status take_u32(reader *r, uint32_t *value) { return take(r, value, sizeof *value); }
static tow_status take_u64(reader *r, uint64_t *value) { return take(r, value, sizeof *value); }

/* A string in the memory of the set, with a zero byte behind it. */
static tow_status take_string(reader *r, const char **text, uint64_t *length)
{
    tow_status status = TOW_OK;
    TRY(take_u64(r, length));
    TRY(reserve(r, *length, 1, "bytes of a string"));
    r->reserved -= *length;
    char *bytes = tow__arena_alloc(&r->tensors->strings, (size_t)*length + 1, 1);
    if (!bytes) return TOW_OUT_OF_MEMORY;
    TRY(take(r, bytes, *length));
    *text = bytes;
done:
    return status;
}

/* A name or a key: a string of UTF-8 without zero bytes. */
static tow_status take_name(reader *r, const char *kind, const char **name)
{
    uint64_t length;
    const tow_status status = take_string(r, name, &length);
    if (status != TOW_OK) return status;
    if (strlen(*name) == length && tow__is_utf8(*name)) return TOW_OK;
    return refuse(r, "expected %s in UTF-8 without zero bytes, found '%.100s'", kind, *name);
}

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

static bool is_bool(unsigned char byte) { return byte <= 1; }

static tow_status take_number(reader *r, tow_metadata_value *value)
{
    unsigned char b[8] = {0};
    tow_status status = TOW_OK;
    int64_t bits;
    const size_t size = value->type == TOW_METADATA_BOOL ? 1 : tow__metadata_size(value->type);
    TRY(take(r, b, size));
    memcpy(&bits, b, sizeof bits);
    switch (value->type) {
    case TOW_METADATA_I8:
        value->integer = (int8_t)bits;
        break;
    case TOW_METADATA_I16:
        value->integer = (int16_t)bits;
        break;
    case TOW_METADATA_I32:
        value->integer = (int32_t)bits;
        break;
    case TOW_METADATA_F32:
        value->number = (double)tow__f32_of_bits((uint32_t)bits);
        return TOW_OK;
    case TOW_METADATA_F64:
        memcpy(&value->number, b, sizeof value->number);
        return TOW_OK;
    default:
        value->integer = bits;
    }
    value->number = value->type == TOW_METADATA_U64 ? (double)(uint64_t)value->integer : (double)value->integer;
    if (value->type == TOW_METADATA_BOOL && !is_bool(b[0])) TRY(refuse(r, "expected a bool of 0 or 1, found %d", b[0]));
done:
    return status;
}

static tow_status take_type(reader *r, tow_metadata_type *type)
{
    uint32_t number;
    const tow_status status = take_u32(r, &number);
    if (status != TOW_OK) return status;
    *type = (tow_metadata_type)(number < TOW_METADATA_F64 ? number + 1 : 0);
    if (tow__metadata_size(*type) != 0) return TOW_OK;
    return refuse(r,
                  "expected a type of metadata, 0 to %d, found %" PRIu32 "; the file is damaged or of a later version",
                  (int)TOW_METADATA_F64 - 1, number);
}

static tow_status take_array(reader *r, tow_metadata_value *value, int depth);

/* Elements that take memory of their own. */
static tow_status take_elements(reader *r, tow_metadata_value *value, void *elements, int depth)
{
    const bool strings = value->element == TOW_METADATA_STRING;
    tow_status status = TOW_OK;
    for (size_t i = 0; i < value->count; i++) {
        uint64_t length;
        r->reserved -= strings ? sizeof length : LEAST_ARRAY;
        if (strings) {
            TRY(take_string(r, (const char **)elements + i, &length));
        } else {
            tow_metadata_value *inner = (tow_metadata_value *)elements + i;
            inner->type = TOW_METADATA_ARRAY;
            TRY(take_array(r, inner, depth + 1));
        }
    }
done:
    return status;
}

static tow_status take_numbers(reader *r, tow_metadata_value *value, void *elements, size_t size)
{
    tow_status status = TOW_OK;
    r->reserved -= value->count * size;
    TRY(take(r, elements, value->count * size));
    for (size_t i = 0; value->element == TOW_METADATA_BOOL && i < value->count; i++)
        if (!is_bool(((unsigned char *)elements)[i]))
            TRY(refuse(r, "expected bools of 0 or 1, found %d as element %zu", ((unsigned char *)elements)[i], i));
done:
    return status;
}

static tow_status take_array(reader *r, tow_metadata_value *value, int depth)
{
    tow_status status = TOW_OK;
    uint64_t count;
    if (depth == MAX_DEPTH) return refuse(r, "expected arrays in arrays of at most %d levels, found more", MAX_DEPTH);
    TRY(take_type(r, &value->element));
    TRY(take_u64(r, &count));
    const size_t size = tow__metadata_size(value->element);
    const bool strings = value->element == TOW_METADATA_STRING, arrays = value->element == TOW_METADATA_ARRAY;
    TRY(reserve(r, count, strings ? 8 : arrays ? LEAST_ARRAY : size, "elements of an array"));
    value->count = (size_t)count;
    void *elements = tow__arena_alloc(&r->tensors->strings, value->count, size);
    if (!elements) return TOW_OUT_OF_MEMORY;
    value->elements = elements;
    TRY(strings || arrays ? take_elements(r, value, elements, depth) : take_numbers(r, value, elements, size));
done:
    return status;
}
_Static_assert(sizeof(bool) == 1, "bools of arrays are read as bytes");

static tow_status read_entry(reader *r)
{
    tow_metadata_value value = {.type = TOW_METADATA_NONE};
    const char *key;
    uint64_t length;
    tow_status status = TOW_OK;
    r->what = NULL;
    r->reserved -= LEAST_ENTRY;
    TRY(take_name(r, "a key of metadata", &key));
    r->what = key;
    if (tow_tensors_metadata_value(r->tensors, key).type != TOW_METADATA_NONE) TRY(refuse(r, "duplicate metadata"));
    TRY(take_type(r, &value.type));
    TRY(value.type == TOW_METADATA_STRING  ? take_string(r, &value.text, &length)
        : value.type == TOW_METADATA_ARRAY ? take_array(r, &value, 0)
                                           : take_number(r, &value));
    TRY(tow__metadata_append(r->tensors, key, value));
done:
    return status;
}

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

static tow_status read_axes(reader *r, tow_type *type)
{
    uint32_t rank;
    uint64_t dims[TOW__GGUF_MAX_AXES];
    tow_status status = TOW_OK;
    TRY(take_u32(r, &rank));
    if (rank > TOW__GGUF_MAX_AXES)
        TRY(refuse(r, "expected at most %d axes, found %" PRIu32, (int)TOW__GGUF_MAX_AXES, rank));
    TRY(take(r, dims, rank * sizeof dims[0]));
    type->rank = (int32_t)rank;
    for (uint32_t axis = 0; axis < rank; axis++) {
        if (dims[axis] > INT64_MAX) TRY(refuse(r, "expected axes < 2^63, found %" PRIu64, dims[axis]));
        type->dims[rank - 1 - axis] = (int64_t)dims[axis];
    }
done:
    return status;
}

/* Bytes of the data: whole blocks of rows. */
static tow_status size_tensor(const reader *r, const tow__gguf_dtype *dtype, const tow_type *type, uint64_t *bytes)
{
    const int64_t row = type->rank > 0 ? type->dims[type->rank - 1] : 1;
    uint64_t elements = 1;
    bool too_many = false;
    for (int32_t i = 0; i < type->rank; i++)
        too_many |= __builtin_mul_overflow(elements, (uint64_t)type->dims[i], &elements);
    if (row % dtype->elements != 0)
        return refuse(r, "expected rows of a multiple of %d elements, as %s has them, found %" PRId64, dtype->elements,
                      dtype->name, row);
    too_many |= __builtin_mul_overflow(elements / (uint64_t)dtype->elements, (uint64_t)dtype->bytes, bytes);
    if (too_many || !tow__type_valid(*type)) return refuse(r, "its shape has more bytes than can be addressed");
    return TOW_OK;
}

static tow_status read_tensor(reader *r)
{
    tow_type type = {.dtype = TOW_F32};
    const char *name;
    uint32_t number;
    uint64_t offset, bytes = 0;
    bool duplicate;
    tow_status status = TOW_OK;
    r->what = NULL;
    r->reserved -= LEAST_TENSOR;
    TRY(take_name(r, "the name of a tensor", &name));
    r->what = name;
    TRY(read_axes(r, &type));
    TRY(take_u32(r, &number));
    TRY(take_u64(r, &offset));
    const tow__gguf_dtype *dtype = tow__gguf_dtype_of(number);
    if (!dtype)
        TRY(refuse(
            r, "expected a type of tensors, found the number %" PRIu32 "; the file is damaged or of a later version",
            number));
    if (dtype->tow) type.dtype = (tow_dtype)dtype->tow;
    TRY(size_tensor(r, dtype, &type, &bytes));
    TRY(tow__tensors_append(r->tensors, name, dtype->tow ? type : tow_make_type(TOW_F32, -1, NULL), &duplicate));
    if (duplicate) TRY(refuse(r, "duplicate name of a tensor"));
    tow__tensor *tensor = &r->tensors->items[r->tensors->count - 1];
    tensor->file = 0;
    tensor->stored = dtype->stored;
    tensor->offset = offset;
    if (!dtype->tow) {
        tensor->foreign = dtype->name;
        tensor->foreign_bytes = bytes;
    }
done:
    return status;
}

/* ---- the whole header -------------------------------------------------------------------------------------------- */

static tow_status read_beginning(reader *r, uint64_t *n_tensors, uint64_t *n_entries)
{
    char magic[4];
    uint32_t version;
    tow_status status = TOW_OK;
    TRY(tow__input_check_kind(r->file, TOW__FORMAT_GGUF, "a GGUF file"));
    TRY(take(r, magic, sizeof magic));
    if (memcmp(magic, "GGUF", sizeof magic) != 0) TRY(refuse(r, "expected a GGUF file, found other first bytes"));
    TRY(take_u32(r, &version));
    if (version != 2 && version != 3)
        TRY(tow__fail(r->ctx, TOW_UNSUPPORTED, "%s: expected version 2 or 3 of GGUF, found %s%" PRIu32 "%s", r->path,
                      (version & 0xffff) == 0 ? "one with the highest byte first, or " : "", version,
                      version == 1 ? "; convert the model anew" : ""));
    TRY(take_u64(r, n_tensors));
    TRY(take_u64(r, n_entries));
    if (*n_entries > TOW__GGUF_MAX_METADATA)
        TRY(refuse(r, "expected at most %d entries of metadata, found %" PRIu64, (int)TOW__GGUF_MAX_METADATA,
                   *n_entries));
    TRY(reserve(r, *n_entries, LEAST_ENTRY, "entries of metadata"));
    TRY(reserve(r, *n_tensors, LEAST_TENSOR, "tensors"));
done:
    return status;
}

static tow_status find_alignment(const reader *r, uint64_t *alignment)
{
    const tow_metadata_value value = tow_tensors_metadata_value(r->tensors, TOW__GGUF_ALIGNMENT_KEY);
    *alignment = TOW__GGUF_ALIGNMENT;
    if (value.type == TOW_METADATA_NONE) return TOW_OK;
    const int64_t a = value.integer;
    if (value.type != TOW_METADATA_U32 || a < 8 || a > TOW__GGUF_MAX_ALIGNMENT || (a & (a - 1)) != 0)
        return refuse(r, "%s: expected a power of two, 8 to %d, as an u32, found %" PRId64, TOW__GGUF_ALIGNMENT_KEY,
                      (int)TOW__GGUF_MAX_ALIGNMENT, a);
    *alignment = (uint64_t)a;
    return TOW_OK;
}

/* Offsets become those of the file. Sorted, each tensor must begin where the one before it ends, aligned. */
static tow_status check_data(reader *r, uint64_t alignment)
{
    tow_tensors *t = r->tensors;
    const uint64_t size = r->file->size, start = (r->at + alignment - 1) / alignment * alignment;
    uint64_t at = 0; /* bytes of data before */
    for (size_t i = 0; i < t->count; i++) {
        tow__tensor *tensor = &t->items[i];
        const uint64_t bytes = tow__tensor_bytes(tensor);
        r->what = tensor->name;
        if (tensor->offset != at)
            return refuse(r,
                          "expected its data at byte %" PRIu64 ", found %" PRIu64
                          "; data overlap, have gaps or are not aligned",
                          at, tensor->offset);
        if (start > size || at > size - start || bytes > size - start - at)
            return refuse(r,
                          "its %" PRIu64 " bytes at byte %" PRIu64 " do not lie within the %" PRIu64
                          " bytes of data; the file is truncated or damaged",
                          bytes, at, start > size ? 0 : size - start);
        tensor->offset = start + at;
        at = (at + bytes + alignment - 1) / alignment * alignment;
    }
    return TOW_OK;
}

tow_status tow__gguf_read_header(tow_tensors *t)
{
    tow_status status = TOW_OK;
    uint64_t n_tensors, n_entries, alignment;
    reader *r = tow__alloc(t->ctx, 1, sizeof *r);
    if (!r) return TOW_OUT_OF_MEMORY;
    r->ctx = t->ctx;
    r->path = t->files[0].path;
    r->tensors = t;
    r->file = &t->files[0].input;
    r->end = r->file->size < MAX_HEADER ? r->file->size : MAX_HEADER;
    TRY(read_beginning(r, &n_tensors, &n_entries));
    for (uint64_t i = 0; i < n_entries; i++) TRY(read_entry(r));
    for (uint64_t i = 0; i < n_tensors; i++) TRY(read_tensor(r));
    r->what = NULL;
    TRY(find_alignment(r, &alignment));
    TRY(tow__tensors_sort(t));
    TRY(check_data(r, alignment));
done:
    tow__free(t->ctx, r, 1, sizeof *r);
    return status;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

tow_status tow__gguf_open(tow_context *ctx, const char *path, tow_tensors **tensors)
{
    tow_status status = tow_tensors_create(ctx, tensors);
    if (status != TOW_OK) return status;
    TRY(tow__tensors_open_file(*tensors, path));
    (*tensors)->files[0].format = TOW__FORMAT_GGUF;
    TRY(tow__gguf_read_header(*tensors));
    TRY(tow__gguf_read_others(*tensors));
done:
    if (status != TOW_OK) {
        tow_tensors_free(*tensors);
        *tensors = NULL;
    }
    return status;
}

tow_status tow__gguf_recognize(tow_context *ctx, const char *path, bool *is_gguf)
{
    tow__input_file file;
    char magic[4] = {0};
    *is_gguf = false;
    tow_status status = tow__input_open(ctx, path, &file);
    if (status != TOW_OK) return status;
    if (file.size >= sizeof magic) TRY(tow__input_read(&file, 0, magic, sizeof magic));
    *is_gguf = memcmp(magic, "GGUF", sizeof magic) == 0;
done:
    tow__input_close(&file);
    return status;
}

tow_status tow_gguf_read(tow_context *context, const char *path, tow_tensors **tensors)
{
    if (tensors) *tensors = NULL;
    if (!context || !tensors) return tow__missing(context, __func__, "a context and a place for the tensors");
    return tow__tensors_open(context, path, tow__gguf_open, tow__tensors_load_all, tensors);
}

tow_status tow_gguf_mmap(tow_context *context, const char *path, tow_tensors **tensors)
{
    if (tensors) *tensors = NULL;
    if (!context || !tensors) return tow__missing(context, __func__, "a context and a place for the tensors");
    return tow__tensors_open(context, path, tow__gguf_open, tow__tensors_map, tensors);
}

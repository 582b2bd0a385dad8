/* safetensors: u64 header length, JSON header {name: {dtype, shape, data_offsets: [begin, end)}}, data.
 *
 * Offsets count from the end of the header. A file is read only if the tensors cover the data exactly: no gap, no
 * overlap, nothing behind them. The header is checked as a whole before any data are read, so what a hostile file can
 * make the reader allocate is bounded by the size of the file. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "src/base/base.h"
#include "src/io/io.h"

enum {
    MAX_METADATA = 4096
};
static const uint64_t max_header = 100000000; /* as the reference reader */

/* `tow` is TOW_DTYPE_COUNT for types of the format that Tow does not have. */
typedef struct dtype_name {
    const char *name;
    int tow;
} dtype_name;

static const dtype_name dtype_names[] = {
    {"F32", TOW_F32},
    {"F64", TOW_F64},
    {"I32", TOW_I32},
    {"U32", TOW_U32},
    {"BOOL", TOW_BOOL},
    {"F16", TOW_DTYPE_COUNT},
    {"BF16", TOW_DTYPE_COUNT},
    {"I64", TOW_DTYPE_COUNT},
    {"U64", TOW_DTYPE_COUNT},
    {"I16", TOW_DTYPE_COUNT},
    {"U16", TOW_DTYPE_COUNT},
    {"I8", TOW_DTYPE_COUNT},
    {"U8", TOW_DTYPE_COUNT},
    {"F8_E4M3", TOW_DTYPE_COUNT},
    {"F8_E5M2", TOW_DTYPE_COUNT},
    {"F8_E8M0", TOW_DTYPE_COUNT},
};
enum {
    N_DTYPE_NAMES = sizeof dtype_names / sizeof dtype_names[0]
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* One tensor of the header. `name` belongs to the JSON object. */
typedef struct entry {
    const char *name;
    tow_type type;
    uint64_t begin, end;
} entry;

typedef struct reader {
    tow__input_file file;
    uint64_t data_start, data_size;
    json_t *header;
    entry *entries;
    size_t n_entries, capacity;
    tow_tensors *tensors;
} reader;

static tow_status read_header(reader *r)
{
    tow_context *ctx = r->file.ctx;
    const char *path = r->file.path;
    tow_status status = TOW_OK;
    uint64_t length = 0;
    char *text = NULL;
    if (r->file.size < sizeof length)
        return tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected a safetensors file, found only %" PRIu64 " bytes", path,
                         r->file.size);
    TRY(tow__input_read(&r->file, 0, &length, sizeof length));
    if (length > max_header)
        return tow__fail(ctx, TOW_BAD_FORMAT,
                         "%s: expected a header of at most %" PRIu64 " bytes, found a length of %" PRIu64
                         "; is this a safetensors file?",
                         path, max_header, length);
    if (length > r->file.size - sizeof length)
        return tow__fail(ctx, TOW_BAD_FORMAT,
                         "%s: the header claims %" PRIu64 " bytes, but only %" PRIu64
                         " follow; the file is truncated or damaged",
                         path, length, r->file.size - sizeof length);
    r->data_start = sizeof length + length;
    r->data_size = r->file.size - r->data_start;
    text = tow__alloc(ctx, (size_t)length + 1, 1);
    if (text == NULL) return TOW_OUT_OF_MEMORY;
    TRY(tow__input_read(&r->file, sizeof length, text, (size_t)length));
    json_error_t error;
    r->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (r->header == NULL && error.text[0] == '\0') /* the reader of JSON says nothing when it lacks memory */
        status = tow__fail(ctx, TOW_OUT_OF_MEMORY, "%s: out of memory while reading the header", path);
    else if (r->header == NULL)
        status = tow__fail(ctx, TOW_BAD_FORMAT, "%s: the header is not valid JSON: %s (byte %d of the header)", path,
                           error.text, error.position);
    else if (!json_is_object(r->header))
        status = tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected a JSON object as header, found an array", path);
done:
    tow__free(ctx, text, (size_t)length + 1, 1);
    return status;
}

static tow_status read_metadata(const reader *r, const json_t *metadata)
{
    tow_context *ctx = r->file.ctx;
    if (!json_is_object(metadata))
        return tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected __metadata__ to be an object of strings", r->file.path);
    if (json_object_size(metadata) > MAX_METADATA)
        return tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected at most %d entries of __metadata__, found %zu",
                         r->file.path, MAX_METADATA, json_object_size(metadata));
    const char *key;
    json_t *value;
    tow_status status = TOW_OK;
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value)
    {
        if (!json_is_string(value))
            return tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected a string as value of the metadata '%.100s'",
                             r->file.path, key);
        TRY(tow_tensors_set_metadata(r->tensors, key, json_string_value(value)));
    }
done:
    return status;
}

static tow_status read_dtype(const reader *r, const char *name, const json_t *value, tow_dtype *dtype)
{
    const char *text = json_string_value(value);
    for (size_t i = 0; text != NULL && i < N_DTYPE_NAMES; i++) {
        if (strcmp(text, dtype_names[i].name) != 0) continue;
        if (dtype_names[i].tow == TOW_DTYPE_COUNT)
            return tow__fail(r->file.ctx, TOW_UNSUPPORTED,
                             "%s: tensor '%.200s' has dtype %s; expected F32, F64, I32, U32 or BOOL; convert it first",
                             r->file.path, name, text);
        *dtype = (tow_dtype)dtype_names[i].tow;
        return TOW_OK;
    }
    return tow__fail(r->file.ctx, TOW_BAD_FORMAT,
                     "%s: tensor '%.200s': expected a dtype such as \"F32\", found %.40s%s%.40s", r->file.path, name,
                     text ? "\"" : "", text ? text : "no string", text ? "\"" : "");
}

static tow_status read_shape(const reader *r, const char *name, const json_t *value, tow_type *type)
{
    tow_context *ctx = r->file.ctx;
    if (!json_is_array(value))
        return tow__fail(ctx, TOW_BAD_FORMAT, "%s: tensor '%.200s': expected a shape, a list of numbers", r->file.path,
                         name);
    if (json_array_size(value) > TOW_MAX_RANK)
        return tow__fail(ctx, TOW_UNSUPPORTED, "%s: tensor '%.200s': expected at most %d axes, found %zu", r->file.path,
                         name, TOW_MAX_RANK, json_array_size(value));
    type->rank = (int32_t)json_array_size(value);
    for (int32_t i = 0; i < type->rank; i++) {
        const json_t *dim = json_array_get(value, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return tow__fail(ctx, TOW_BAD_FORMAT,
                             "%s: tensor '%.200s': expected axis %d of the shape to be a number >= 0", r->file.path,
                             name, i);
        type->dims[i] = json_integer_value(dim);
    }
    if (!tow__type_valid(*type))
        return tow__fail(ctx, TOW_BAD_FORMAT, "%s: tensor '%.200s': the shape %s has more bytes than can be addressed",
                         r->file.path, name, tow__type_name(*type).text);
    return TOW_OK;
}

static tow_status read_entry(reader *r, const char *name, const json_t *value)
{
    tow_context *ctx = r->file.ctx;
    tow_status status = TOW_OK;
    if (!json_is_object(value) || json_object_size(value) != 3)
        return tow__fail(ctx, TOW_BAD_FORMAT,
                         "%s: tensor '%.200s': expected an object of dtype, shape and data_offsets", r->file.path,
                         name);
    entry e = {.name = name};
    TRY(read_dtype(r, name, json_object_get(value, "dtype"), &e.type.dtype));
    TRY(read_shape(r, name, json_object_get(value, "shape"), &e.type));
    const json_t *offsets = json_object_get(value, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0)
        return tow__fail(ctx, TOW_BAD_FORMAT, "%s: tensor '%.200s': expected data_offsets [begin, end]", r->file.path,
                         name);
    json_int_t first = json_integer_value(begin), last = json_integer_value(end);
    if (last < first || (uint64_t)last > r->data_size)
        return tow__fail(ctx, TOW_BAD_FORMAT,
                         "%s: tensor '%.200s': the data_offsets [%lld, %lld] do not lie within the %" PRIu64
                         " bytes of data; the file is truncated or damaged",
                         r->file.path, name, (long long)first, (long long)last, r->data_size);
    if ((uint64_t)(last - first) != tow_type_bytes(e.type))
        return tow__fail(
            ctx, TOW_BAD_FORMAT, "%s: tensor '%.200s': expected %zu bytes for %s, found data_offsets of %lld bytes",
            r->file.path, name, tow_type_bytes(e.type), tow__type_name(e.type).text, (long long)(last - first));
    e.begin = (uint64_t)first;
    e.end = (uint64_t)last;
    r->entries[r->n_entries++] = e;
done:
    return status;
}

static int by_offset(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Entries sorted by offset must cover the data exactly. */
static tow_status check_coverage(const reader *r)
{
    uint64_t at = 0;
    for (size_t i = 0; i < r->n_entries; i++) {
        const entry *e = &r->entries[i];
        if (e->begin < at)
            return tow__fail(r->file.ctx, TOW_BAD_FORMAT,
                             "%s: tensor '%.200s' starts at byte %" PRIu64 ", but '%.200s' reaches to %" PRIu64
                             "; tensors overlap",
                             r->file.path, e->name, e->begin, r->entries[i - 1].name, at);
        if (e->begin > at)
            return tow__fail(r->file.ctx, TOW_BAD_FORMAT,
                             "%s: expected tensor '%.200s' to start at byte %" PRIu64 ", found %" PRIu64
                             "; there is a gap",
                             r->file.path, e->name, at, e->begin);
        at = e->end;
    }
    if (at != r->data_size)
        return tow__fail(r->file.ctx, TOW_BAD_FORMAT,
                         "%s: expected %" PRIu64 " bytes of data, found %" PRIu64
                         "; bytes at the end belong to no tensor",
                         r->file.path, at, r->data_size);
    return TOW_OK;
}

static tow_status read_data(const reader *r, const entry *e)
{
    tow_context *ctx = r->file.ctx;
    tow_array *array = NULL;
    bool duplicate;
    tow_status status = tow_array_create(ctx, e->type, &array);
    if (status != TOW_OK) return status;
    TRY(tow__input_read(&r->file, r->data_start + e->begin, tow_array_data(array), (size_t)(e->end - e->begin)));
    if (e->type.dtype == TOW_BOOL && !tow__valid_bools(tow_array_data(array), (size_t)(e->end - e->begin)))
        TRY(tow__fail(ctx, TOW_BAD_FORMAT, "%s: tensor '%.200s': expected bytes 0 and 1, found others", r->file.path,
                      e->name));
    TRY(tow__tensors_add(r->tensors, e->name, array, &duplicate)); /* the JSON reader rejects duplicates */
done:
    tow_array_release(array);
    return status;
}

static tow_status read_all(reader *r)
{
    tow_status status = TOW_OK;
    const char *name;
    json_t *value;
    TRY(read_header(r));
    r->capacity = json_object_size(r->header) + 1;
    r->entries = tow__alloc(r->file.ctx, r->capacity, sizeof *r->entries);
    if (r->entries == NULL) TRY(TOW_OUT_OF_MEMORY);
    json_object_foreach(r->header, name, value)
    {
        if (strcmp(name, "__metadata__") == 0)
            TRY(read_metadata(r, value));
        else
            TRY(read_entry(r, name, value));
    }
    qsort(r->entries, r->n_entries, sizeof *r->entries, by_offset);
    TRY(check_coverage(r));
    for (size_t i = 0; i < r->n_entries; i++) TRY(read_data(r, &r->entries[i]));
done:
    return status;
}

tow_status tow_safetensors_read(tow_context *context, const char *path, tow_tensors **tensors)
{
    reader r = {0};
    if (tensors != NULL) *tensors = NULL;
    if (context == NULL || tensors == NULL)
        return tow__missing(context, __func__, "a context and a place for the tensors");
    tow_status status = tow__input_open(context, path, &r.file);
    if (status != TOW_OK) return status;
    status = tow_tensors_create(context, &r.tensors);
    if (status == TOW_OK) status = read_all(&r);
    json_decref(r.header);
    if (r.entries != NULL) tow__free(context, r.entries, r.capacity, sizeof *r.entries);
    tow__input_close(&r.file);
    if (status == TOW_OK)
        *tensors = r.tensors;
    else
        tow_tensors_free(r.tensors);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Large elements first, so that every tensor is aligned for its type; within a size in the order of insertion. */
static const size_t element_sizes[] = {8, 4, 1};
enum {
    N_ELEMENT_SIZES = sizeof element_sizes / sizeof element_sizes[0]
};

static bool has_size(const tow_tensors *tensors, size_t index, size_t size)
{
    return tow_dtype_size(tow_array_type(tow_tensors_at(tensors, index)).dtype) == size;
}

/* As RFC 3629 has it: neither overlong forms nor surrogates, at most U+10FFFF. Asked when JSON refuses a string, which
 * is either this or a lack of memory. */
static bool is_utf8(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        const int more = *c < 0x80                 ? 0
                         : *c >= 0xc2 && *c < 0xe0 ? 1
                         : (*c & 0xf0) == 0xe0     ? 2
                         : *c >= 0xf0 && *c < 0xf5 ? 3
                                                   : -1;
        if (more < 0 || (*c == 0xe0 && c[1] < 0xa0) || (*c == 0xed && c[1] > 0x9f) || (*c == 0xf0 && c[1] < 0x90) ||
            (*c == 0xf4 && c[1] > 0x8f))
            return false;
        c++;
        for (int i = 0; i < more; i++, c++)
            if ((*c & 0xc0) != 0x80) return false;
    }
    return true;
}

/* Steals `value`. A failure is either a name that is not UTF-8 or a lack of memory. */
static tow_status put(tow_context *ctx, const char *path, json_t *object, const char *key, json_t *value)
{
    if (value != NULL && json_object_set_new(object, key, value) == 0) return TOW_OK;
    if (is_utf8(key)) return tow__fail(ctx, TOW_OUT_OF_MEMORY, "%s: out of memory while writing the header", path);
    return tow__fail(ctx, TOW_INVALID_ARGUMENT, "%s: names in a safetensors file are UTF-8, found '%.200s'", path, key);
}

static tow_status put_text(tow_context *ctx, const char *path, json_t *object, const char *key, const char *text)
{
    json_t *value = json_string(text);
    if (value == NULL && !is_utf8(text))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "%s: metadata in a safetensors file are UTF-8, found '%.200s' as '%.200s'", path, text, key);
    return put(ctx, path, object, key, value);
}

static const char *format_dtype(tow_dtype dtype)
{
    for (size_t i = 0; i < N_DTYPE_NAMES; i++)
        if (dtype_names[i].tow == (int)dtype) return dtype_names[i].name;
    return NULL;
}

static json_t *describe(tow_type type, uint64_t begin)
{
    json_t *shape = json_array();
    for (int32_t i = 0; i < type.rank; i++) json_array_append_new(shape, json_integer(type.dims[i]));
    if (shape != NULL && json_array_size(shape) != (size_t)type.rank) {
        json_decref(shape);
        shape = NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", format_dtype(type.dtype), "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + tow_type_bytes(type)));
}

static tow_status make_header(tow_context *ctx, const char *path, const tow_tensors *tensors, json_t *header)
{
    tow_status status = TOW_OK;
    const char *key, *value;
    if (tow__tensors_metadata_at(tensors, 0, &key, &value)) {
        json_t *metadata = json_object();
        TRY(put(ctx, path, header, "__metadata__", metadata));
        for (size_t i = 0; tow__tensors_metadata_at(tensors, i, &key, &value); i++)
            TRY(put_text(ctx, path, metadata, key, value));
    }
    uint64_t at = 0;
    for (size_t s = 0; s < N_ELEMENT_SIZES; s++)
        for (size_t i = 0; i < tow_tensors_count(tensors); i++) {
            if (!has_size(tensors, i, element_sizes[s])) continue;
            tow_type type = tow_array_type(tow_tensors_at(tensors, i));
            TRY(put(ctx, path, header, tow_tensors_name(tensors, i), describe(type, at)));
            at += tow_type_bytes(type);
        }
done:
    return status;
}

static tow_status write_all(tow__output_file *file, const tow_tensors *tensors, const char *header)
{
    tow_status status = TOW_OK;
    static const char spaces[8] = "        ";
    size_t length = strlen(header), padding = (8 - length % 8) % 8;
    uint64_t total = length + padding;
    TRY(tow__output_write(file, &total, sizeof total));
    TRY(tow__output_write(file, header, length));
    TRY(tow__output_write(file, spaces, padding));
    for (size_t s = 0; s < N_ELEMENT_SIZES; s++)
        for (size_t i = 0; i < tow_tensors_count(tensors); i++) {
            tow_array *array = tow_tensors_at(tensors, i);
            if (has_size(tensors, i, element_sizes[s]))
                TRY(tow__output_write(file, tow_array_data(array), tow_type_bytes(tow_array_type(array))));
        }
    TRY(tow__output_commit(file));
done:
    return status;
}

tow_status tow_safetensors_write(const char *path, const tow_tensors *tensors)
{
    if (tensors == NULL) return tow__missing(NULL, __func__, "a set of tensors");
    tow_context *ctx = tow__tensors_context(tensors);
    if (path == NULL) return tow__missing(ctx, __func__, "the path of a file to write");
    json_t *header = json_object();
    if (header == NULL) return tow__fail(ctx, TOW_OUT_OF_MEMORY, "out of memory while writing a safetensors header");
    char *text = NULL;
    tow__output_file file = {.fd = -1};
    tow_status status = TOW_OK;
    TRY(make_header(ctx, path, tensors, header));
    text = json_dumps(header, JSON_COMPACT);
    if (text == NULL) TRY(tow__fail(ctx, TOW_OUT_OF_MEMORY, "out of memory while writing a safetensors header"));
    if (strlen(text) > max_header - 8)
        TRY(tow__fail(ctx, TOW_INVALID_ARGUMENT, "%s: the names need a header of %zu bytes; readers accept %" PRIu64,
                      path, strlen(text), max_header));
    TRY(tow__output_open(ctx, path, &file));
    TRY(write_all(&file, tensors, text));
done:
    tow__output_close(&file);
    free(text);
    json_decref(header);
    return status;
}

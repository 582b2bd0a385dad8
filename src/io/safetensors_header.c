/* safetensors: u64 header length, JSON header {name: {dtype, shape, data_offsets: [begin, end)}}, data.
 *
 * Offsets count from the end of the header. A file is accepted only if the tensors cover the data exactly: no gap, no
 * overlap, nothing behind them. The header is checked as a whole before any data are read. The memory that a hostile
 * file can make the reader allocate for its header is at most seven times the header's length: the text, one entry for
 * as many tensors as it has room to describe (2.6), and a growing list of the checksums in it (3.2). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/xxh3.h"
#include "src/io/json.h"
#include "src/io/tensors.h"

enum {
    MAX_METADATA = 4096,
    SHORTEST_ENTRY = sizeof "\"\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,0]}" - 1
};

/* `tow` is TOW_DTYPE_END for types of the format that Tow does not have. Tensors of these can be in a file, but not
 * be asked for. Integers of 16 bits become i32. */
typedef struct dtype_name {
    const char *name;
    int tow;
    uint64_t bits; /* of an element */
    int stored;
} dtype_name;

static const dtype_name dtype_names[] = {
    {"F32", TOW_F32, 32},
    {"F64", TOW_F64, 64},
    {"I32", TOW_I32, 32},
    {"U32", TOW_U32, 32},
    {"BOOL", TOW_BOOL, 8},
    {"F16", TOW_F16, 16},
    {"BF16", TOW_BF16, 16},
    {"I64", TOW_I64, 64},
    {"U64", TOW_U64, 64},
    {"I8", TOW_I8, 8},
    {"U8", TOW_U8, 8},
    {"I16", TOW_I32, 16, TOW__STORED_I16},
    {"U16", TOW_I32, 16, TOW__STORED_U16},
    {"C64", TOW_DTYPE_END, 64},
    {"F4", TOW_DTYPE_END, 4},
    {"F6_E2M3", TOW_DTYPE_END, 6},
    {"F6_E3M2", TOW_DTYPE_END, 6},
    {"F8_E4M3", TOW_DTYPE_END, 8},
    {"F8_E5M2", TOW_DTYPE_END, 8},
    {"F8_E8M0", TOW_DTYPE_END, 8},
};
enum {
    N_DTYPE_NAMES = sizeof dtype_names / sizeof dtype_names[0]
};

const char *tow__safetensors_dtype(tow_dtype dtype)
{
    for (size_t i = 0; i < N_DTYPE_NAMES; i++)
        if (dtype_names[i].tow == (int)dtype) return dtype_names[i].name;
    return NULL;
}

/* ---- checksums of the header ------------------------------------------------------------------------------------- */

uint64_t tow__tensor_sum(const char *name, tow_type type, uint64_t checksum)
{
    const char *dtype = tow__safetensors_dtype(type.dtype);
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, name, strlen(name) + 1);
    XXH3_64bits_update(&state, dtype, strlen(dtype) + 1);
    XXH3_64bits_update(&state, type.dims, (size_t)type.rank * sizeof type.dims[0]);
    XXH3_64bits_update(&state, &checksum, sizeof checksum);
    return XXH3_64bits_digest(&state);
}

uint64_t tow__metadata_sum(const char *key, const char *value)
{
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, key, strlen(key) + 1);
    XXH3_64bits_update(&state, value, strlen(value) + 1);
    return XXH3_64bits_digest(&state);
}

/* ---- what the reader knows --------------------------------------------------------------------------------------- */

/* The strings are in the text of the header. */
typedef struct checksum {
    const char *name; /* of the tensor; NULL: of the header */
    const char *digits;
} checksum;

typedef struct reader {
    tow_context *ctx;
    const char *path;
    tow_tensors *tensors; /* of this file alone */
    tow__json json;
    char *text; /* [length + 1] */
    size_t length;
    uint64_t data_start, data_size;
    checksum *checksums;
    size_t n_checksums, capacity;
    uint64_t metadata_sum; /* of all entries but checksums */
    size_t n_metadata;
    bool seen_metadata;
} reader;

/* An error about a tensor. */
__attribute__((format(printf, 4, 5))) static tow_status refuse(const reader *r, tow_status status, const char *name,
                                                               const char *format, ...)
{
    char why[256];
    va_list args;
    va_start(args, format);
    if (vsnprintf(why, sizeof why, format, args) < 0) why[0] = '\0';
    va_end(args);
    return tow__fail(r->ctx, status, "%s: tensor '%.200s': %s", r->path, name, why);
}

/* ---- metadata ---------------------------------------------------------------------------------------------------- */

static tow_status add_checksum(reader *r, const char *name, const char *digits)
{
    if (r->n_checksums == r->capacity) {
        size_t capacity = r->capacity == 0 ? 32 : 2 * r->capacity;
        checksum *checksums = tow__grow(r->ctx, r->checksums, r->capacity, capacity, sizeof *checksums);
        if (!checksums) return TOW_OUT_OF_MEMORY;
        r->checksums = checksums;
        r->capacity = capacity;
    }
    r->checksums[r->n_checksums++] = (checksum){.name = name, .digits = digits};
    return TOW_OK;
}

static tow_status read_metadata(reader *r)
{
    tow_status status = TOW_OK;
    bool more;
    if (r->seen_metadata) return tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: duplicate __metadata__ in the header", r->path);
    r->seen_metadata = true;
    if (!tow__json_accept(&r->json, '{'))
        return tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: expected __metadata__ to be an object of strings", r->path);
    for (size_t i = 0;; i++) {
        char *key, *value;
        const char *name;
        TRY(tow__json_next(&r->json, i, '}', &more));
        if (!more) break;
        TRY(tow__json_string(&r->json, &key));
        TRY(tow__json_expect(&r->json, ':'));
        if (!tow__json_accept(&r->json, '"'))
            TRY(tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: expected a string as value of the metadata '%.100s'", r->path,
                          key));
        r->json.at--;
        TRY(tow__json_string(&r->json, &value));
        if (tow__is_checksum_key(key, &name)) {
            TRY(add_checksum(r, name, value));
            continue;
        }
        const bool set = strcmp(key, tow__set_key) == 0;
        const char **file_set = &r->tensors->files[0].set;
        const bool known = set ? *file_set != NULL : tow_tensors_metadata(r->tensors, key) != NULL;
        if (known) TRY(tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: duplicate metadata '%.100s'", r->path, key));
        if (r->n_metadata++ == MAX_METADATA)
            TRY(tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: expected at most %d entries of __metadata__, found more",
                          r->path, MAX_METADATA));
        r->metadata_sum += tow__metadata_sum(key, value);
        if (set && !(*file_set = tow__arena_string(&r->tensors->strings, value))) TRY(TOW_OUT_OF_MEMORY);
        if (!set) TRY(tow_tensors_set_metadata(r->tensors, key, value));
    }
done:
    return status;
}

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

typedef struct entry {
    const char *name;
    tow_type type;
    const dtype_name *dtype;
    int64_t begin, end;
    uint64_t elements; /* of all axes */
    bool too_many;     /* that is more than can be counted */
    bool more_axes;    /* than TOW_MAX_RANK */
    bool has_dtype, has_shape, has_offsets;
} entry;

static tow_status read_dtype(reader *r, entry *e)
{
    char *text;
    if (!tow__json_accept(&r->json, '"'))
        return refuse(r, TOW_BAD_FORMAT, e->name, "expected a dtype such as \"F32\", found no string");
    r->json.at--;
    tow_status status = tow__json_string(&r->json, &text);
    if (status != TOW_OK) return status;
    for (size_t i = 0; i < N_DTYPE_NAMES; i++) {
        if (strcmp(text, dtype_names[i].name) != 0) continue;
        e->dtype = &dtype_names[i];
        e->type.dtype = (tow_dtype)dtype_names[i].tow;
        return TOW_OK;
    }
    return refuse(r, TOW_BAD_FORMAT, e->name, "expected a dtype such as \"F32\", found \"%.40s\"", text);
}

static tow_status read_shape(reader *r, entry *e)
{
    tow_status status = TOW_OK;
    bool more;
    if (!tow__json_accept(&r->json, '['))
        return refuse(r, TOW_BAD_FORMAT, e->name, "expected a shape, a list of numbers");
    e->elements = 1;
    for (size_t axis = 0;; axis++) {
        int64_t dim;
        TRY(tow__json_next(&r->json, axis, ']', &more));
        if (!more) break;
        if (!tow__json_integer(&r->json, &dim) || dim < 0)
            TRY(refuse(r, TOW_BAD_FORMAT, e->name, "expected axis %zu of the shape to be a number >= 0 and < 2^63",
                       axis));
        if (__builtin_mul_overflow(e->elements, (uint64_t)dim, &e->elements)) e->too_many = true;
        if (e->type.rank == TOW_MAX_RANK)
            e->more_axes = true;
        else
            e->type.dims[e->type.rank++] = dim;
    }
done:
    return status;
}

static tow_status read_offsets(reader *r, entry *e)
{
    tow__json *json = &r->json;
    if (tow__json_accept(json, '[') && tow__json_integer(json, &e->begin) && tow__json_accept(json, ',') &&
        tow__json_integer(json, &e->end) && tow__json_accept(json, ']') && e->begin >= 0)
        return TOW_OK;
    return refuse(r, TOW_BAD_FORMAT, e->name, "expected data_offsets [begin, end], two numbers >= 0 and < 2^63");
}

typedef struct key {
    const char *name;
    tow_status (*read)(reader *r, entry *e);
    size_t seen; /* offset of the flag in entry */
} key;
static const key keys[] = {
    {"dtype", read_dtype, offsetof(entry, has_dtype)},
    {"shape", read_shape, offsetof(entry, has_shape)},
    {"data_offsets", read_offsets, offsetof(entry, has_offsets)},
};
enum {
    N_KEYS = sizeof keys / sizeof keys[0]
};

/* The fields in any order, each once. */
static tow_status read_fields(reader *r, entry *e)
{
    tow_status status = TOW_OK;
    bool more;
    if (!tow__json_accept(&r->json, '{'))
        return r->json.at == r->json.end
                   ? tow__json_malformed(&r->json, "'{'")
                   : refuse(r, TOW_BAD_FORMAT, e->name, "expected an object of dtype, shape and data_offsets");
    for (size_t i = 0;; i++) {
        char *name;
        TRY(tow__json_next(&r->json, i, '}', &more));
        if (!more) break;
        TRY(tow__json_string(&r->json, &name));
        TRY(tow__json_expect(&r->json, ':'));
        const key *found = NULL;
        for (size_t k = 0; k < N_KEYS; k++)
            if (strcmp(name, keys[k].name) == 0) found = &keys[k];
        bool *seen = found != NULL ? (bool *)((char *)e + found->seen) : NULL;
        if (!found || *seen)
            TRY(refuse(r, TOW_BAD_FORMAT, e->name, "expected dtype, shape and data_offsets, each once, found '%.40s'",
                       name));
        *seen = true;
        TRY(found->read(r, e));
    }
    if (!e->has_dtype || !e->has_shape || !e->has_offsets)
        TRY(refuse(r, TOW_BAD_FORMAT, e->name, "expected dtype, shape and data_offsets, found no %s",
                   !e->has_dtype   ? "dtype"
                   : !e->has_shape ? "shape"
                                   : "data_offsets"));
done:
    return status;
}

static const char *const foreign_rank = "a tensor of more than 8 axes";
_Static_assert(TOW_MAX_RANK == 8, "foreign_rank says so");

/* The bytes that the data must have; what Tow cannot read becomes foreign. */
static tow_status size_entry(const reader *r, entry *e, const char **foreign, uint64_t *bytes)
{
    uint64_t bits;
    *foreign = e->dtype->tow == TOW_DTYPE_END ? e->dtype->name : e->more_axes ? foreign_rank : NULL;
    if (!*foreign && !tow__type_valid(e->type))
        return refuse(r, TOW_BAD_FORMAT, e->name, "the shape %s has more bytes than can be addressed",
                      tow__type_name(e->type).text);
    if (e->too_many || __builtin_mul_overflow(e->elements, e->dtype->bits, &bits)) {
        if (*foreign) return refuse(r, TOW_BAD_FORMAT, e->name, "its shape has more bytes than can be addressed");
        bits = 0; /* a valid type, so some axis has size 0 */
    }
    *bytes = bits / 8 + (bits % 8 != 0);
    if (*foreign) e->type = tow_make_type(TOW_F32, -1, NULL);
    return TOW_OK;
}

static tow_status read_tensor(reader *r, const char *name)
{
    entry e = {.name = name};
    bool duplicate;
    const char *foreign;
    uint64_t bytes = 0;
    tow_status status = read_fields(r, &e);
    if (status != TOW_OK) return status;
    TRY(size_entry(r, &e, &foreign, &bytes));
    if (e.end < e.begin || (uint64_t)e.end > r->data_size)
        return refuse(r, TOW_BAD_FORMAT, name,
                      "the data_offsets [%" PRId64 ", %" PRId64 "] do not lie within the %" PRIu64
                      " bytes of data; the file is truncated or damaged",
                      e.begin, e.end, r->data_size);
    if ((uint64_t)(e.end - e.begin) != bytes)
        return refuse(r, TOW_BAD_FORMAT, name,
                      "expected %" PRIu64 " bytes for %s, found data_offsets of %" PRId64 " bytes", bytes,
                      foreign ? foreign : tow__type_name(e.type).text, e.end - e.begin);
    TRY(tow__tensors_append(r->tensors, name, e.type, &duplicate));
    if (duplicate) return refuse(r, TOW_BAD_FORMAT, name, "duplicate name");
    tow__tensor *tensor = &r->tensors->items[r->tensors->count - 1];
    tensor->file = 0;
    tensor->stored = e.dtype->stored;
    tensor->offset = r->data_start + (uint64_t)e.begin;
    tensor->foreign = foreign;
    if (foreign) tensor->foreign_bytes = bytes;
done:
    return status;
}

/* ---- the whole header -------------------------------------------------------------------------------------------- */

static tow_status read_text(reader *r)
{
    const tow__input_file *file = &r->tensors->files[0].input;
    tow_status status = TOW_OK;
    uint64_t length = 0;
    char first;
    if (file->size < sizeof length)
        return tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: expected a safetensors file, found only %" PRIu64 " bytes",
                         r->path, file->size);
    TRY(tow__input_read(file, 0, &length, sizeof length));
    if (length > file->size - sizeof length)
        TRY(tow__input_check_kind(file, TOW__FORMAT_SAFETENSORS, "a safetensors file"));
    if (length > TOW__SAFETENSORS_MAX_HEADER)
        return tow__fail(r->ctx, TOW_BAD_FORMAT,
                         "%s: expected a header of at most %" PRIu64 " bytes, found a length of %" PRIu64
                         "; is this a safetensors file?",
                         r->path, TOW__SAFETENSORS_MAX_HEADER, length);
    if (length > file->size - sizeof length)
        return tow__fail(r->ctx, TOW_BAD_FORMAT,
                         "%s: the header claims %" PRIu64 " bytes, but only %" PRIu64
                         " follow; the file is truncated or damaged",
                         r->path, length, file->size - sizeof length);
    if (length == 0) return tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: the header is not valid JSON: it is empty", r->path);
    TRY(tow__input_read(file, sizeof length, &first, 1)); /* before memory is taken for what is no header at all */
    if (first != '{')
        return tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: expected a JSON object as header, found '%s'", r->path,
                         tow__escape(first).text);
    r->length = (size_t)length;
    r->data_start = sizeof length + length;
    r->data_size = file->size - r->data_start;
    r->text = tow__alloc(r->ctx, r->length + 1, 1);
    if (!r->text) return TOW_OUT_OF_MEMORY;
    TRY(tow__input_read(file, sizeof length, r->text, r->length));
    r->json = (tow__json){.ctx = r->ctx,
                          .path = r->path,
                          .what = "the header",
                          .start = r->text,
                          .at = r->text,
                          .end = r->text + r->length};
done:
    return status;
}

static tow_status read_entries(reader *r)
{
    tow_status status = TOW_OK;
    bool more;
    TRY(tow__tensors_reserve(r->tensors, r->length / SHORTEST_ENTRY + 1));
    TRY(tow__json_expect(&r->json, '{'));
    for (size_t i = 0;; i++) {
        char *name;
        TRY(tow__json_next(&r->json, i, '}', &more));
        if (!more) break;
        TRY(tow__json_string(&r->json, &name));
        TRY(tow__json_expect(&r->json, ':'));
        TRY(strcmp(name, "__metadata__") == 0 ? read_metadata(r) : read_tensor(r, name));
    }
    TRY(tow__json_end(&r->json));
done:
    return status;
}

/* Tensors sorted by offset must cover the data exactly. */
static tow_status check_coverage(const reader *r)
{
    uint64_t at = r->data_start;
    for (size_t i = 0; i < r->tensors->count; i++) {
        const tow__tensor *t = &r->tensors->items[i];
        if (t->offset < at)
            return refuse(r, TOW_BAD_FORMAT, t->name,
                          "its data start at byte %" PRIu64 ", but those before it reach to %" PRIu64
                          "; tensors overlap",
                          t->offset - r->data_start, at - r->data_start);
        if (t->offset > at)
            return refuse(r, TOW_BAD_FORMAT, t->name,
                          "expected its data to start at byte %" PRIu64 ", found %" PRIu64 "; there is a gap",
                          at - r->data_start, t->offset - r->data_start);
        at += tow__tensor_bytes(t);
    }
    at -= r->data_start;
    if (at == r->data_size) return TOW_OK;
    return tow__fail(r->ctx, TOW_BAD_FORMAT,
                     "%s: expected %" PRIu64 " bytes of data, found %" PRIu64 "; bytes at the end belong to no tensor",
                     r->path, at, r->data_size);
}

/* ---- checksums --------------------------------------------------------------------------------------------------- */

static const char no_copy[] = "the file is damaged, or a program changed it and kept its checksums; use another copy";

/* Exactly 16 digits in lower case, so that a flipped bit is never another way to write the same number. */
static bool parse_digits(const char *text, uint64_t *value)
{
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) return false;
    *value = strtoull(text, NULL, 16);
    return true;
}

/* Gives each tensor its checksum, and compares that of the header. */
static tow_status check_sums(const reader *r)
{
    tow_tensors *t = r->tensors;
    uint64_t expected = 0, found = r->metadata_sum;
    bool has_sum = false;
    if (r->n_checksums == 0) return TOW_OK; /* written by another program */
    for (size_t i = 0; i < r->n_checksums; i++) {
        const checksum *c = &r->checksums[i];
        const char *name = c->name != NULL ? c->name : "the header";
        const ptrdiff_t index = c->name != NULL ? tow__tensors_lookup(t, c->name) : -1;
        tow__tensor *tensor = index >= 0 ? &t->items[index] : NULL;
        bool *has = tensor != NULL ? &tensor->has_checksum : &has_sum;
        if ((c->name && !tensor) || *has)
            return tow__fail(r->ctx, TOW_BAD_FORMAT, "%s: found a checksum of '%.200s', which %s; %s", r->path, name,
                             *has ? "has one already" : "is not there", no_copy);
        if (tensor && (tensor->foreign || tensor->stored != TOW__STORED_PLAIN))
            return refuse(r, TOW_BAD_FORMAT, tensor->name, "it is %s, and has a checksum that Tow did not make; %s",
                          tensor->foreign ? tensor->foreign : "of 16-bit integers", no_copy);
        *has = true;
        if (!parse_digits(c->digits, tensor != NULL ? &tensor->checksum : &expected))
            return tow__fail(r->ctx, TOW_BAD_FORMAT,
                             "%s: expected 16 hexadecimal digits as checksum of '%.200s', found '%.40s'; %s", r->path,
                             name, c->digits, no_copy);
    }
    for (size_t i = 0; i < t->count; i++) {
        if (!t->items[i].has_checksum)
            return refuse(r, TOW_BAD_FORMAT, t->items[i].name, "it has no checksum, but others have; %s", no_copy);
        found += tow__tensor_sum(t->items[i].name, t->items[i].type, t->items[i].checksum);
    }
    if (has_sum && found == expected) return TOW_OK;
    return tow__fail(r->ctx, TOW_BAD_FORMAT,
                     "%s: the names, types and metadata in the header do not have its checksum '%s': expected %s "
                     "%016" PRIx64 ", found %016" PRIx64 "; %s",
                     r->path, tow__checksum_key, has_sum ? "" : "one, not none, or", expected, found, no_copy);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

tow_status tow__safetensors_read_header(tow_tensors *t)
{
    tow_status status = TOW_OK;
    reader r = {.ctx = t->ctx, .path = t->files[0].path, .tensors = t};
    TRY(read_text(&r));
    TRY(read_entries(&r));
    TRY(tow__tensors_sort(t));
    TRY(check_coverage(&r));
    TRY(check_sums(&r));
done:
    if (r.text) tow__free(t->ctx, r.text, r.length + 1, 1);
    if (r.checksums) tow__free(t->ctx, r.checksums, r.capacity, sizeof *r.checksums);
    return status;
}

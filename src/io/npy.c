/* NumPy's .npy: magic, version, header length, a Python dictionary as text, data.
 *
 * The header is {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } with keys in any order. The reader takes
 * exactly this grammar and nothing else of Python. Nothing is allocated from a shape before it agrees with the size of
 * the file. */
#include <inttypes.h>
#include <stdio.h>

#include "src/base/base.h"
#include "src/io/io.h"

enum {
    PREFIX = 8,
    MAX_HEADER = 1 << 20,
    PIECE = 256 << 10,
    ALIGNMENT = 64
};
static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* X: what files may hold. 8-byte integers become i32 if they fit. */
typedef struct descr {
    const char *name; /* without the byte order */
    tow_dtype dtype;
    size_t size;
} descr;
static const descr descrs[] = {
    {"f4", TOW_F32, 4}, {"f8", TOW_F64, 8},  {"i4", TOW_I32, 4},
    {"u4", TOW_U32, 4}, {"b1", TOW_BOOL, 1}, {"i8", TOW_I32, 8},
};
enum {
    N_DESCRS = sizeof descrs / sizeof descrs[0]
};

/* ---- the header's grammar ---------------------------------------------------------------------------------------- */

typedef struct header {
    const descr *descr;
    bool fortran;
    tow_type type;
    bool has_descr, has_fortran, has_shape;
} header;

typedef struct parser {
    tow_context *ctx;
    const char *path, *start, *at;
} parser;

static tow_status malformed(const parser *p, const char *expected)
{
    return tow__fail(p->ctx, TOW_BAD_FORMAT, "%s: expected %s at byte %td of the .npy header, found '%.20s'", p->path,
                     expected, p->at - p->start, p->at);
}

static void skip_spaces(parser *p)
{
    while (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r') p->at++;
}

static bool accept(parser *p, const char *token)
{
    skip_spaces(p);
    size_t n = strlen(token);
    if (strncmp(p->at, token, n) != 0) return false;
    p->at += n;
    return true;
}

/* A quoted string without escapes. */
static tow_status parse_string(parser *p, char *text, size_t size)
{
    skip_spaces(p);
    char quote = *p->at;
    if (quote != '\'' && quote != '"') return malformed(p, "a quoted string");
    const char *end = strchr(p->at + 1, quote);
    if (!end || (size_t)(end - p->at - 1) >= size) return malformed(p, "a short quoted string");
    memcpy(text, p->at + 1, (size_t)(end - p->at - 1));
    text[end - p->at - 1] = '\0';
    p->at = end + 1;
    return TOW_OK;
}

static tow_status parse_descr(parser *p, header *h)
{
    char text[32];
    skip_spaces(p);
    if (*p->at == '[')
        return tow__fail(p->ctx, TOW_UNSUPPORTED,
                         "%s: structured .npy arrays are not supported; save one field at a time", p->path);
    tow_status status = parse_string(p, text, sizeof text);
    if (status != TOW_OK) return status;
    bool order = text[0] == '<' || text[0] == '|' || text[0] == '=';
    for (size_t i = 0; i < N_DESCRS; i++)
        if (strcmp(text + (order ? 1 : 0), descrs[i].name) == 0) h->descr = &descrs[i];
    if (!h->descr)
        return tow__fail(p->ctx, TOW_UNSUPPORTED,
                         "%s: expected dtype <f4, <f8, <i4, <u4, |b1 or <i8, found '%s'; convert it with astype first",
                         p->path, text);
    h->type.dtype = h->descr->dtype;
    return TOW_OK;
}

static tow_status parse_fortran(parser *p, header *h)
{
    h->fortran = accept(p, "True");
    return h->fortran || accept(p, "False") ? TOW_OK : malformed(p, "True or False");
}

static tow_status parse_shape(parser *p, header *h)
{
    if (!accept(p, "(")) return malformed(p, "a shape in parentheses");
    while (!accept(p, ")")) {
        int64_t dim = 0;
        if (*p->at < '0' || *p->at > '9') return malformed(p, "a dimension or ')'");
        for (; *p->at >= '0' && *p->at <= '9'; p->at++)
            if (__builtin_mul_overflow(dim, 10, &dim) || __builtin_add_overflow(dim, *p->at - '0', &dim))
                return malformed(p, "a dimension below 2^63");
        if (h->type.rank == TOW_MAX_RANK)
            return tow__fail(p->ctx, TOW_UNSUPPORTED, "%s: expected at most %d axes, found more", p->path,
                             TOW_MAX_RANK);
        h->type.dims[h->type.rank++] = dim;
        if (accept(p, ",")) continue;
        if (!accept(p, ")")) return malformed(p, "',' or ')'");
        break;
    }
    return TOW_OK;
}

typedef struct key {
    const char *name;
    tow_status (*parse)(parser *p, header *h);
    size_t seen; /* offset of the flag in header */
} key;
static const key keys[] = {
    {"descr", parse_descr, offsetof(header, has_descr)},
    {"fortran_order", parse_fortran, offsetof(header, has_fortran)},
    {"shape", parse_shape, offsetof(header, has_shape)},
};
enum {
    N_KEYS = sizeof keys / sizeof keys[0]
};

static tow_status parse_item(parser *p, header *h)
{
    char name[32];
    tow_status status = parse_string(p, name, sizeof name);
    if (status != TOW_OK) return status;
    if (!accept(p, ":")) return malformed(p, "':'");
    for (size_t i = 0; i < N_KEYS; i++) {
        bool *seen = (bool *)((char *)h + keys[i].seen);
        if (strcmp(name, keys[i].name) != 0 || *seen) continue;
        *seen = true;
        return keys[i].parse(p, h);
    }
    return tow__fail(p->ctx, TOW_BAD_FORMAT,
                     "%s: expected descr, fortran_order and shape in the .npy header, found '%s'", p->path, name);
}

static tow_status parse_header(parser *p, header *h)
{
    tow_status status = TOW_OK;
    if (!accept(p, "{")) return malformed(p, "'{'");
    while (!accept(p, "}")) {
        TRY(parse_item(p, h));
        if (accept(p, ",")) continue;
        if (!accept(p, "}")) return malformed(p, "',' or '}'");
        break;
    }
    skip_spaces(p);
    if (*p->at != '\0') return malformed(p, "the end of the header");
    if (!h->has_descr || !h->has_fortran || !h->has_shape)
        return tow__fail(p->ctx, TOW_BAD_FORMAT,
                         "%s: expected descr, fortran_order and shape in the .npy header, found no %s", p->path,
                         !h->has_descr     ? "descr"
                         : !h->has_fortran ? "fortran_order"
                                           : "shape");
done:
    return status;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Finds version and extent of the header text: file bytes [*start, *start + *length). */
static tow_status find_header(const tow__input_file *file, uint64_t *start, size_t *length)
{
    tow_status status = TOW_OK;
    unsigned char prefix[PREFIX + 4] = {0};
    size_t have = file->size < sizeof prefix ? (size_t)file->size : sizeof prefix;
    TRY(tow__input_read(file, 0, prefix, have));
    if (have < PREFIX + 2 || memcmp(prefix, magic, sizeof magic) != 0)
        return tow__fail(file->ctx, TOW_BAD_FORMAT,
                         "%s: expected a .npy file, found none of its first bytes \\x93NUMPY", file->path);
    unsigned major = prefix[6];
    if (major < 1 || major > 3)
        return tow__fail(file->ctx, TOW_UNSUPPORTED, "%s: expected .npy version 1, 2 or 3, found %u.%u", file->path,
                         major, prefix[7]);
    *start = major == 1 ? PREFIX + 2 : PREFIX + 4;
    *length = (size_t)(prefix[8] | prefix[9] << 8);
    if (major > 1) *length |= (size_t)prefix[10] << 16 | (size_t)prefix[11] << 24;
    if (*start > file->size || *length > file->size - *start)
        return tow__fail(file->ctx, TOW_BAD_FORMAT,
                         "%s: the header claims %zu bytes, but the file has %" PRIu64 "; it is truncated or damaged",
                         file->path, *length, file->size);
    if (*length > MAX_HEADER)
        return tow__fail(file->ctx, TOW_BAD_FORMAT, "%s: expected a header of at most %d bytes, found %zu", file->path,
                         MAX_HEADER, *length);
done:
    return status;
}

/* Data must end where the file ends. size: of one element in the file. */
static tow_status check_size(const tow__input_file *file, const header *h, uint64_t data_start)
{
    uint64_t expected;
    tow_type wide = h->type;
    if (h->descr->size == 8) wide.dtype = TOW_F64;
    if (!tow__type_valid(wide))
        return tow__fail(file->ctx, TOW_BAD_FORMAT, "%s: the shape %s has more bytes than can be addressed", file->path,
                         tow__type_name(h->type).text);
    expected = (uint64_t)tow_type_bytes(wide);
    uint64_t found = file->size - data_start;
    if (found == expected) return TOW_OK;
    return tow__fail(file->ctx, TOW_BAD_FORMAT, "%s: expected %" PRIu64 " bytes of data for %s, found %" PRIu64 "; %s",
                     file->path, expected, tow__type_name(h->type).text, found,
                     found < expected ? "the file is truncated" : "a file holds one array and nothing behind it");
}

/* Where the elements of a file go: `at` is the offset of the next one in row-major order. */
typedef struct walk {
    tow_type type;
    bool fortran;
    int64_t index[TOW_MAX_RANK];
    size_t stride[TOW_MAX_RANK];
    size_t at;
} walk;

static void walk_start(walk *w, const header *h)
{
    *w = (walk){.type = h->type, .fortran = h->fortran && h->type.rank > 1};
    for (int32_t i = w->type.rank - 1; i >= 0; i--)
        w->stride[i] = i == w->type.rank - 1 ? 1 : w->stride[i + 1] * (size_t)w->type.dims[i + 1];
}

/* The next element: in Fortran order the first axis runs fastest. */
static void walk_on(walk *w)
{
    if (!w->fortran) {
        w->at++;
        return;
    }
    for (int32_t i = 0; i < w->type.rank; i++) {
        w->at += w->stride[i];
        if (++w->index[i] < w->type.dims[i]) return;
        w->at -= w->stride[i] * (size_t)w->type.dims[i];
        w->index[i] = 0;
    }
}

/* Stores `count` elements of the file, which begin with element `first`; 8-byte integers are narrowed to i32. */
static tow_status store(const tow__input_file *file, const header *h, walk *w, const unsigned char *piece, size_t first,
                        size_t count, unsigned char *data)
{
    const size_t size = tow_dtype_size(h->type.dtype);
    for (size_t i = 0; i < count; i++, walk_on(w)) {
        if (h->descr->size == size) {
            memcpy(data + w->at * size, piece + i * size, size);
            continue;
        }
        int64_t wide;
        memcpy(&wide, piece + i * sizeof wide, sizeof wide);
        if (wide < INT32_MIN || wide > INT32_MAX)
            return tow__fail(file->ctx, TOW_UNSUPPORTED,
                             "%s: expected integers that fit 32 bits, found %" PRId64 " at element %zu", file->path,
                             wide, first + i);
        const int32_t narrow = (int32_t)wide;
        memcpy(data + w->at * size, &narrow, size);
    }
    return TOW_OK;
}

/* True if the data are in the file as they are in an array. */
static bool is_plain(const header *h)
{
    return h->descr->size == tow_dtype_size(h->type.dtype) && !(h->fortran && h->type.rank > 1);
}

static tow_status read_data(const tow__input_file *file, const header *h, uint64_t data_start, tow_array *array)
{
    tow_context *ctx = file->ctx;
    tow_status status = TOW_OK;
    const size_t count = (size_t)tow_type_count(h->type), size = h->descr->size, step = PIECE / size;
    unsigned char *piece = NULL, *data = tow_array_data(array);
    if (is_plain(h)) {
        TRY(tow__input_read(file, data_start, data, count * size));
    } else {
        walk w;
        walk_start(&w, h);
        piece = tow__alloc_raw(ctx, PIECE);
        if (!piece) TRY(TOW_OUT_OF_MEMORY);
        for (size_t first = 0; first < count; first += step) {
            const size_t n = count - first < step ? count - first : step;
            TRY(tow__input_read(file, data_start + first * size, piece, n * size));
            TRY(store(file, h, &w, piece, first, n, data));
        }
    }
    if (h->type.dtype == TOW_BOOL && !tow__valid_bools(data, count))
        TRY(tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected booleans of bytes 0 and 1, found others", file->path));
done:
    if (piece) tow__free_aligned(ctx, piece, PIECE);
    return status;
}

/* A view into a mapping of the file, unless the data must be converted, are not aligned for their type, or are booleans,
 * which were not 0 or 1 any more if others changed the file. */
static tow_status make_array(const tow__input_file *file, const header *h, uint64_t data_start, bool map,
                             tow_array **array)
{
    tow_status status = TOW_OK;
    tow_array *mapping = NULL;
    if (!map || !is_plain(h) || data_start % h->descr->size != 0 || h->type.dtype == TOW_BOOL) {
        TRY(tow_array_create(file->ctx, h->type, array));
        TRY(read_data(file, h, data_start, *array));
    } else {
        TRY(tow__input_map(file, &mapping));
        TRY(tow__array_view(mapping, (size_t)data_start, h->type, array));
    }
done:
    tow_array_release(mapping);
    return status;
}

static tow_status load(tow_context *context, const char *path, bool map, tow_array **array)
{
    tow__input_file file;
    tow_status status = tow__input_open(context, path, &file);
    if (status != TOW_OK) return status;
    uint64_t start = 0;
    size_t length = 0;
    char *text = NULL;
    header h = {0};
    TRY(find_header(&file, &start, &length));
    text = tow__alloc(context, length + 1, 1);
    if (!text) TRY(TOW_OUT_OF_MEMORY);
    TRY(tow__input_read(&file, start, text, length));
    if (memchr(text, '\0', length))
        TRY(tow__fail(context, TOW_BAD_FORMAT, "%s: expected text in the .npy header, found a zero byte", path));
    parser p = {.ctx = context, .path = path, .start = text, .at = text};
    TRY(parse_header(&p, &h));
    TRY(check_size(&file, &h, start + length));
    TRY(make_array(&file, &h, start + length, map, array));
done:
    if (text) tow__free(context, text, length + 1, 1);
    tow__input_close(&file);
    if (status != TOW_OK) {
        tow_array_release(*array);
        *array = NULL;
    }
    return status;
}

tow_status tow_npy_read(tow_context *context, const char *path, tow_array **array)
{
    if (array) *array = NULL;
    if (!context || !array) return tow__missing(context, __func__, "a context and a place for the array");
    return load(context, path, false, array);
}

tow_status tow_npy_map(tow_context *context, const char *path, tow_array **array)
{
    if (array) *array = NULL;
    if (!context || !array) return tow__missing(context, __func__, "a context and a place for the array");
    return load(context, path, true, array);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static const char *const names[TOW_DTYPE_COUNT] = {
    [TOW_F32] = "<f4", [TOW_F64] = "<f8", [TOW_I32] = "<i4", [TOW_U32] = "<u4", [TOW_BOOL] = "|b1"};

/* Magic, version 1.0 and header, padded so that the data start at a multiple of 64. Returns the number of bytes. */
static size_t make_prefix(tow_type type, char *text, size_t size)
{
    memset(text, ' ', size);
    memcpy(text, magic, sizeof magic);
    size_t at = PREFIX + 2;
    at +=
        (size_t)snprintf(text + at, size - at, "{'descr': '%s', 'fortran_order': False, 'shape': (", names[type.dtype]);
    for (int32_t i = 0; i < type.rank; i++)
        at += (size_t)snprintf(text + at, size - at,
                               i == 0   ? "%" PRId64 ","
                               : i == 1 ? " %" PRId64
                                        : ", %" PRId64,
                               type.dims[i]);
    at += (size_t)snprintf(text + at, size - at, "), }");
    text[at] = ' ';
    size_t total = (at + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    text[total - 1] = '\n';
    text[6] = 1;
    text[7] = 0;
    text[8] = (char)((total - PREFIX - 2) & 0xff);
    text[9] = (char)((total - PREFIX - 2) >> 8);
    return total;
}

tow_status tow_npy_write(const char *path, const tow_array *array, tow_context *context)
{
    if (!context || !array) return tow__missing(context, __func__, "a context and an array");
    char prefix[512];
    tow__output_file file;
    tow_type type = tow_array_type(array);
    if (!names[type.dtype])
        return tow__fail(context, TOW_UNSUPPORTED, "%s: .npy files hold no %s; convert the array, or write safetensors",
                         path ? path : "", tow_dtype_name(type.dtype));
    size_t length = make_prefix(type, prefix, sizeof prefix);
    tow_status status = tow__output_open(context, path, &file);
    if (status == TOW_OK) status = tow__output_write(&file, prefix, length);
    if (status == TOW_OK) status = tow__output_write(&file, tow_array_data(array), tow_type_bytes(type));
    if (status == TOW_OK) status = tow__output_commit(&file);
    tow__output_close(&file);
    return status;
}

/* The header of .npy files: magic, version, length, and a Python dictionary as text.
 *
 * The dictionary is {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } with keys in any order. The reader
 * takes exactly this grammar and nothing else of Python. Nothing is allocated from a shape before it agrees with the
 * bytes that are there. */
#include <inttypes.h>
#include <stdio.h>

#include "src/base/dtypes.h"
#include "src/io/npy.h"

enum {
    PREFIX = 8, /* magic and version */
    MAX_HEADER = 1 << 20,
    ALIGNMENT = 64
};
static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* NumPy's names behind the byte order. NumPy has no bf16: arrays of ml_dtypes.bfloat16 are saved as "void" of 2
 * bytes. */
static const char *const names[TOW_DTYPE_END] = {
    [TOW_F32] = "f4", [TOW_F64] = "f8", [TOW_I32] = "i4", [TOW_U32] = "u4", [TOW_BOOL] = "b1", [TOW_BF16] = "V2",
    [TOW_F16] = "f2", [TOW_I8] = "i1",  [TOW_U8] = "u1",  [TOW_I64] = "i8", [TOW_U64] = "u8",
};

/* ---- the header's grammar ---------------------------------------------------------------------------------------- */

typedef struct header {
    tow__npy npy;
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
    const bool order = text[0] != '\0' && strchr("<>|=", text[0]) != NULL;
    for (int dtype = 1; dtype < TOW_DTYPE_END; dtype++) {
        if (strcmp(text + order, names[dtype]) != 0) continue;
        h->npy.type.dtype = (tow_dtype)dtype;
        h->npy.swapped = text[0] == '>' && tow_dtype_size((tow_dtype)dtype) > 1;
        return TOW_OK;
    }
    if (strcmp(text + order, "i2") == 0 || strcmp(text + order, "u2") == 0) {
        h->npy.type.dtype = TOW_I32;
        h->npy.narrow = true;
        h->npy.is_signed = text[order] == 'i';
        h->npy.swapped = text[0] == '>';
        return TOW_OK;
    }
    return tow__fail(
        p->ctx, TOW_UNSUPPORTED,
        "%s: expected dtype f2, f4, f8, i1, i2, i4, i8, u1, u2, u4, u8, b1 or V2 (bfloat16), found '%s'; convert it "
        "with astype first",
        p->path, text);
}

static tow_status parse_fortran(parser *p, header *h)
{
    h->npy.fortran = accept(p, "True");
    return h->npy.fortran || accept(p, "False") ? TOW_OK : malformed(p, "True or False");
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
        if (h->npy.type.rank == TOW_MAX_RANK)
            return tow__fail(p->ctx, TOW_UNSUPPORTED, "%s: expected at most %d axes, found more", p->path,
                             TOW_MAX_RANK);
        h->npy.type.dims[h->npy.type.rank++] = dim;
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

/* ---- what stands before and behind the dictionary ---------------------------------------------------------------- */

static tow_status truncated(const tow__stream *s, uint64_t expected)
{
    return tow__fail(s->ctx, TOW_BAD_FORMAT,
                     "%s: the header claims %" PRIu64 " bytes, but only %" PRIu64 " follow; it is truncated or damaged",
                     s->path, expected, s->left);
}

/* Version and length of the dictionary. */
static tow_status read_prefix(tow__stream *s, size_t *length, uint64_t *read)
{
    tow_status status = TOW_OK;
    unsigned char prefix[PREFIX + 4] = {0};
    *read = PREFIX + 2;
    if (s->left >= *read) TRY(tow__stream_read(s, prefix, PREFIX + 2));
    const char *kind = tow__other_kind(prefix, PREFIX + 2, TOW__FORMAT_NPY);
    if (memcmp(prefix, magic, sizeof magic) != 0)
        return tow__fail(s->ctx, TOW_BAD_FORMAT, "%s: expected a .npy file, found %s", s->path,
                         kind ? kind : "none of its first bytes \\x93NUMPY");
    const unsigned major = prefix[6];
    if (major < 1 || major > 3)
        return tow__fail(s->ctx, TOW_UNSUPPORTED, "%s: expected .npy version 1, 2 or 3, found %u.%u", s->path, major,
                         prefix[7]);
    if (major > 1) {
        if (s->left < 2) return truncated(s, 2);
        TRY(tow__stream_read(s, prefix + PREFIX + 2, 2));
        *read += 2;
    }
    *length = (size_t)prefix[8] | (size_t)prefix[9] << 8 | (size_t)prefix[10] << 16 | (size_t)prefix[11] << 24;
    if (*length > s->left) return truncated(s, *length);
    if (*length > MAX_HEADER)
        return tow__fail(s->ctx, TOW_BAD_FORMAT, "%s: expected a header of at most %d bytes, found %zu", s->path,
                         MAX_HEADER, *length);
done:
    return status;
}

/* Data must end where the file ends. */
static tow_status check_size(const tow__stream *s, const tow__npy *npy)
{
    const tow_type type = npy->type;
    if (!tow__type_valid(type))
        return tow__fail(s->ctx, TOW_BAD_FORMAT, "%s: the shape %s has more bytes than can be addressed", s->path,
                         tow__type_name(type).text);
    const uint64_t expected = (uint64_t)tow_type_element_count(type) * tow__npy_element_size(npy);
    if (s->left == expected) return TOW_OK;
    return tow__fail(s->ctx, TOW_BAD_FORMAT, "%s: expected %" PRIu64 " bytes of data for %s, found %" PRIu64 "; %s",
                     s->path, expected, tow__type_name(type).text, s->left,
                     s->left < expected ? "the file is truncated" : "a file holds one array and nothing behind it");
}

tow_status tow__npy_read_header(tow__stream *s, tow__npy *npy)
{
    tow_status status = TOW_OK;
    size_t length = 0;
    uint64_t read;
    char *text = NULL;
    header h = {0};
    TRY(read_prefix(s, &length, &read));
    text = tow__alloc(s->ctx, length + 1, 1);
    if (!text) return TOW_OUT_OF_MEMORY;
    TRY(tow__stream_read(s, text, length));
    if (memchr(text, '\0', length))
        TRY(tow__fail(s->ctx, TOW_BAD_FORMAT, "%s: expected text in the .npy header, found a zero byte", s->path));
    parser p = {.ctx = s->ctx, .path = s->path, .start = text, .at = text};
    TRY(parse_header(&p, &h));
    TRY(check_size(s, &h.npy));
    h.npy.fortran = h.npy.fortran && h.npy.type.rank > 1;
    h.npy.data = read + length;
    *npy = h.npy;
done:
    if (text) tow__free(s->ctx, text, length + 1, 1);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

tow_status tow__npy_check(tow_context *ctx, const char *what, tow_type type)
{
    if (!tow__is_blocks(type.dtype)) return TOW_OK;
    return tow__fail(ctx, TOW_TYPE_MISMATCH, "%s: NumPy has no type for %s; convert it with tow_array_convert", what,
                     tow__type_name(type).text);
}

size_t tow__npy_prefix(tow_type type, char text[TOW__NPY_PREFIX])
{
    const size_t size = TOW__NPY_PREFIX;
    memset(text, ' ', size);
    memcpy(text, magic, sizeof magic);
    size_t at = PREFIX + 2;
    at += (size_t)snprintf(text + at, size - at, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                           tow_dtype_size(type.dtype) == 1 ? '|' : '<', names[type.dtype]);
    for (int32_t i = 0; i < type.rank; i++)
        at += (size_t)snprintf(text + at, size - at,
                               i == 0   ? "%" PRId64 ","
                               : i == 1 ? " %" PRId64
                                        : ", %" PRId64,
                               type.dims[i]);
    at += (size_t)snprintf(text + at, size - at, "), }");
    text[at] = ' ';
    const size_t total = (at + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    text[total - 1] = '\n';
    text[6] = 1;
    text[7] = 0;
    text[8] = (char)((total - PREFIX - 2) & 0xff);
    text[9] = (char)((total - PREFIX - 2) >> 8);
    return total;
}

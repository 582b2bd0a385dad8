/* Element types and array types. */
#include <inttypes.h>
#include <stdio.h>

#include "src/base/base.h"
#include "src/base/blocks.h"
#include "src/base/dtypes.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[TOW__DTYPE_LIMIT] = {
#define X(symbol, text, bytes) [symbol] = {text, bytes},
    TOW_DTYPE_LIST(X) TOW_BLOCK_DTYPE_LIST(X)
#undef X
};

static bool dtype_known(tow_dtype dtype)
{
    return (int)dtype > 0 && (int)dtype < TOW__DTYPE_LIMIT && tow__dtype_in(dtype, TOW__ANY_OR_BLOCKS);
}

const char *tow_dtype_name(tow_dtype dtype) { return dtype_known(dtype) ? dtypes[dtype].name : "?"; }
size_t tow_dtype_size(tow_dtype dtype) { return dtype_known(dtype) ? dtypes[dtype].size : 0; }
int tow_dtype_numbers(tow_dtype dtype)
{
    return !dtype_known(dtype) ? 0 : tow__is_blocks(dtype) ? tow__block_form_of(dtype)->numbers : 1;
}
bool tow_dtype_is_float(tow_dtype dtype) { return dtype_known(dtype) && (TOW__FLOATS >> dtype & 1) != 0; }
bool tow_dtype_is_integer(tow_dtype dtype) { return dtype_known(dtype) && (TOW__INTEGERS >> dtype & 1) != 0; }

tow_type tow_make_type(tow_dtype dtype, int rank, const int64_t *dims)
{
    tow_type type = {.dtype = dtype, .rank = rank > 0 && !dims ? -1 : rank};
    for (int i = 0; i < type.rank && i < TOW_MAX_RANK; i++) type.dims[i] = dims[i];
    return type;
}

bool tow_type_equal(tow_type a, tow_type b)
{
    if (a.dtype != b.dtype || a.rank != b.rank) return false;
    for (int i = 0; i < a.rank && i < TOW_MAX_RANK; i++)
        if (a.dims[i] != b.dims[i]) return false;
    return true;
}

/* Elements are limited to 2^60 / size, so that sums of a few sizes never overflow. Dimensions of 0 do not hide large
 * ones. */
bool tow__type_valid(tow_type type)
{
    if (!dtype_known(type.dtype) || type.rank < 0 || type.rank > TOW_MAX_RANK) return false;
    int64_t bytes = (int64_t)dtypes[type.dtype].size;
    for (int i = 0; i < type.rank; i++) {
        if (type.dims[i] < 0) return false;
        int64_t factor = type.dims[i] > 0 ? type.dims[i] : 1;
        if (__builtin_mul_overflow(bytes, factor, &bytes) || bytes > INT64_C(1) << 60) return false;
    }
    return true;
}

int64_t tow_type_element_count(tow_type type)
{
    int64_t count = 1;
    for (int i = 0; i < type.rank && i < TOW_MAX_RANK; i++) count *= type.dims[i];
    return count;
}

size_t tow_type_bytes(tow_type type) { return (size_t)tow_type_element_count(type) * tow_dtype_size(type.dtype); }

/* Malformed types print, too: errors name them. */
tow__type_text tow__type_name(tow_type type)
{
    tow__type_text name;
    size_t room = sizeof name.text;
    int rank = type.rank < 0 ? 0 : type.rank > TOW_MAX_RANK ? TOW_MAX_RANK : type.rank;
    size_t at = (size_t)snprintf(name.text, room, "%s[", tow_dtype_name(type.dtype));
    for (int i = 0; i < rank && at + 24 < room; i++)
        at += (size_t)snprintf(name.text + at, room - at, i > 0 ? ",%" PRId64 : "%" PRId64, type.dims[i]);
    if (at + 2 > room) at = room - 2;
    name.text[at] = ']';
    name.text[at + 1] = '\0';
    return name;
}

size_t tow_type_text(tow_type type, char *text, size_t size)
{
    int length = snprintf(text, size, "%s", tow__type_name(type).text);
    return length < 0 ? 0 : (size_t)length;
}

/* Conversions that readers of files offer: no number becomes another one but by one rounding to a float type. */
#include <inttypes.h>
#include <stdio.h>

#include "src/base/dtypes.h"
#include "src/io/io.h"

void tow__widen_16_bits(void *data, size_t count, bool is_signed)
{
    unsigned char *bytes = data;
    for (size_t i = count; i-- > 0;) {
        uint16_t bits;
        memcpy(&bits, bytes + sizeof bits * i, sizeof bits);
        const int32_t wide = is_signed ? (int32_t)(int16_t)bits : (int32_t)bits;
        memcpy(bytes + sizeof wide * i, &wide, sizeof wide);
    }
}

bool tow__file_converts(tow_dtype from, tow_dtype to)
{
    if (from == to) return true;
    if (tow__is_blocks(from) || tow__is_blocks(to)) return false; /* their arrays have other shapes */
    if (tow_dtype_is_float(to)) return true;
    return tow_dtype_is_integer(to) && !tow_dtype_is_float(from);
}

/* True if two elements that are no floats are one number. */
static bool same_number(tow__element a, tow__element b)
{
    const bool a_negative = a.kind == TOW__A_SIGNED && a.i < 0, b_negative = b.kind == TOW__A_SIGNED && b.i < 0;
    const uint64_t x = a.kind == TOW__A_SIGNED ? (uint64_t)a.i : a.u, y = b.kind == TOW__A_SIGNED ? (uint64_t)b.i : b.u;
    return a_negative == b_negative && x == y;
}

int64_t tow__file_convert(tow_dtype to_dtype, void *to, tow_dtype from_dtype, const void *from, int64_t n)
{
    tow__convert_elements(to_dtype, to, from_dtype, from, n);
    if (to_dtype == from_dtype || !tow_dtype_is_integer(to_dtype) || !tow_dtype_is_integer(from_dtype)) return -1;
    for (int64_t i = 0; i < n; i++)
        if (!same_number(tow__load_element(from_dtype, from, i), tow__load_element(to_dtype, to, i))) return i;
    return -1;
}

void tow__integer_text(tow_dtype dtype, const void *data, int64_t i, char text[24])
{
    const tow__element e = tow__load_element(dtype, data, i);
    if (e.kind == TOW__A_SIGNED)
        snprintf(text, 24, "%" PRId64, e.i);
    else
        snprintf(text, 24, "%" PRIu64, e.u);
}

/* Elements of arrays as text. */
#include "src/kernels/element_text.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/dtypes.h"
#include "src/kernels/strided.h"

static int write_float(char *text, tow_dtype dtype, double x)
{
    int n = 0;
    if (x != x) return snprintf(text, TOW__NUMBER_BYTES, "nan");
    if (x == trunc(x) && fabs(x) < 1e15) return snprintf(text, TOW__NUMBER_BYTES, "%.0f", x);
    for (int digits = 1; digits <= tow__float_digits(dtype); digits++) {
        char bytes[8], same[8];
        n = snprintf(text, TOW__NUMBER_BYTES, "%.*g", digits, x);
        tow__store_element(dtype, bytes, 0, x);
        tow__store_element(dtype, same, 0, strtod(text, NULL));
        if (memcmp(bytes, same, tow__element_bytes(dtype)) == 0) break;
    }
    char *point = strchr(text, *localeconv()->decimal_point);
    if (point) *point = '.';
    return n;
}

int tow__write_element(char *text, tow_dtype dtype, const void *data, int64_t index)
{
    const tow__element e = tow__load_element(dtype, data, index);
    switch (e.kind) {
    case TOW__A_FLOAT:
        return write_float(text, dtype, e.f);
    case TOW__A_SIGNED:
        return snprintf(text, TOW__NUMBER_BYTES, "%" PRId64, e.i);
    case TOW__AN_UNSIGNED:
        return snprintf(text, TOW__NUMBER_BYTES, "%" PRIu64, e.u);
    case TOW__A_BOOL:
        return snprintf(text, TOW__NUMBER_BYTES, "%s", e.u ? "true" : "false");
    }
    return 0;
}

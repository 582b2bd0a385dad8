/* Helpers of the tests of primitives: a context, and operands and parameters written in one line of a table. A test
 * program includes it once, after cmocka and before Tow's headers: operations are plain functions here, so that only
 * tow_at gives a message its line. */
#ifndef TOW_TESTS_PRIMITIVE_CASES_H
#define TOW_TESTS_PRIMITIVE_CASES_H

#ifndef TOW_NO_SOURCE_LINES
#define TOW_NO_SOURCE_LINES
#endif
#include <stdlib.h>
#include <string.h>

#include "src/graph/graph.h"
#include "src/ops/table.h"
#include "tow/ops.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Types: of some dimensions, and of a scalar. */
#define T(kind, ...)                                                                                                   \
    {                                                                                                                  \
        .dtype = TOW_##kind, .rank = COUNT(((int64_t[]){__VA_ARGS__})), .dims = { __VA_ARGS__ }                        \
    }
#define T0(kind)                                                                                                       \
    {                                                                                                                  \
        .dtype = TOW_##kind                                                                                            \
    }

/* A list in the parameters of a primitive. */
#define INTS(...)                                                                                                      \
    {                                                                                                                  \
        .n = COUNT(((int64_t[]){__VA_ARGS__})), .v = { __VA_ARGS__ }                                                   \
    }

static inline tow_context *new_context(void)
{
    tow_context *ctx = NULL;
    assert_int_equal(tow_context_create(NULL, &ctx), TOW_OK);
    return ctx;
}

#endif

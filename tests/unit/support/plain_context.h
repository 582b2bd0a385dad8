/* A context as callers get it by default, for all tests of a program. One test program includes it once, after
 * cmocka. */
#ifndef TOW_TESTS_PLAIN_CONTEXT_H
#define TOW_TESTS_PLAIN_CONTEXT_H

#include "tow/base.h"

static tow_context *ctx;

static inline int setup(void **state)
{
    (void)state;
    return tow_context_create(NULL, &ctx) == TOW_OK ? 0 : -1;
}

static inline int teardown(void **state)
{
    (void)state;
    tow_context_free(ctx);
    return 0;
}

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(ctx));                                       \
    } while (0)

#endif

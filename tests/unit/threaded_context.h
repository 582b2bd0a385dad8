/* The context of a test program with two threads, made anew for each test. */
#ifndef TOW_TESTS_THREADED_CONTEXT_H
#define TOW_TESTS_THREADED_CONTEXT_H

#include "tow/base.h"

static tow_context *ctx;

static int setup(void **state)
{
    (void)state;
    return tow_context_create(&(tow_context_options){.threads = 2}, &ctx) == TOW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tow_context_destroy(ctx);
    return 0;
}

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(ctx));                                       \
    } while (0)

#endif

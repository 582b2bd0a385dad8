/* The context of a test program with two threads, made anew for each test, which must leave nothing behind. */
#ifndef TOW_TESTS_THREADED_CONTEXT_H
#define TOW_TESTS_THREADED_CONTEXT_H

#include "tests/unit/support/counting_allocator.h"
#include "tow/base.h"

static counting memory;
static tow_context *ctx;

static int setup(void **state)
{
    (void)state;
    memory = (counting){.fail_at = -1};
    tow_context_options options =
        TOW_CONTEXT_OPTIONS(.allocator = {.resize = counting_resize, .user = &memory}, .threads = 2);
    return tow_context_create(&options, &ctx) == TOW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tow_context_free(ctx);
    return memory.blocks == 0 && memory.wrong_sizes == 0 ? 0 : -1;
}

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(ctx));                                       \
    } while (0)

#endif

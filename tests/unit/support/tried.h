/* Tests of many combinations try some of them, each build others. */
#ifndef TOW_TESTS_UNIT_TRIED_H
#define TOW_TESTS_UNIT_TRIED_H

#include <stdbool.h>
#include <stddef.h>

enum {
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    SLOWDOWN = 10 /* sanitizers take so many times as long: tests of many numbers take so many fewer */
#else
    SLOWDOWN = 1
#endif
};

/* A combination that every build tries is tried five times a day. So clang takes one half of them, and other compilers
 * take the other half, with sanitizers a tenth of theirs. `turn` moves the choice on. */
static inline bool is_tried(size_t turn, size_t combination)
{
    const size_t at = turn + combination;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return at % (2 * SLOWDOWN) == 0;
#elif defined __clang__
    return at % 2 == 1;
#else
    return at % 2 == 0;
#endif
}

#endif

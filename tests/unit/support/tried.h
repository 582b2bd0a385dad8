/* Tests of many combinations try some of them, each build others. */
#ifndef TOW_TESTS_UNIT_TRIED_H
#define TOW_TESTS_UNIT_TRIED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

enum {
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    SLOWDOWN = 10 /* sanitizers take so many times as long: tests of many numbers take so many fewer */
#else
    SLOWDOWN = 1
#endif
};

/* TOW_TEST_KERNELS in the environment: another build, which differs in some kernels only, has passed all tests. */
static inline bool kernels_alone(void) { return getenv("TOW_TEST_KERNELS") != NULL; }
static inline bool tries_fewer(void) { return SLOWDOWN > 1 || kernels_alone(); }

/* A combination that every build tries is tried five times a day. So clang takes one half of them, and other compilers
 * take the other half, where fewer are tried a tenth of theirs. `turn` moves the choice on. */
static inline bool is_tried(size_t turn, size_t combination)
{
#ifdef __clang__
    const size_t half = 1;
#else
    const size_t half = 0;
#endif
    return (turn + combination) % (tries_fewer() ? 20 : 2) == half;
}

#endif

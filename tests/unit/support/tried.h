/* Sanitizers take ten times as long: there tests of many combinations try a sixth of them. */
#ifndef TOW_TESTS_UNIT_TRIED_H
#define TOW_TESTS_UNIT_TRIED_H

#include <stdbool.h>
#include <stddef.h>

/* Tests of many combinations try all of them, but under sanitizers, which take ten times as long, every sixth: another
 * sixth for each `turn`. */
static inline bool is_tried(size_t turn, size_t combination)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return (turn + combination) % 6 == 0;
#else
    (void)turn, (void)combination;
    return true;
#endif
}

#endif

/* The monotonic clock, which stands in no relation to the time of day. */
#ifndef TOW_SRC_CLOCK_H
#define TOW_SRC_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t tow__nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif

/* Choices of random tests: the same on every machine. */
#ifndef TOW_TESTS_PICK_H
#define TOW_TESTS_PICK_H

#include <stdint.h>

static uint32_t seed;

/* 0 .. n - 1 */
static int pick(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

#endif

/* Numbers of 8 bits between -1 and 1 with an exponent of ten and a fraction that share the bits: a number near 1 has
 * many bits of fraction, one near 1e-6 none. (Dettmers and others, 8-bit optimizers via block-wise quantization, 2021,
 * section 2.1; the numbers are those of bitsandbytes, create_dynamic_map.)
 *
 *   signed          for i = 0 .. 6: +- 10^(i - 6) times the means of 2^i equal parts of [0.1, 1]; 0; 1
 *   not negative    for i = 0 .. 6: 10^(i - 6) times the means of 2^(i + 1) equal parts; 0; 1
 *
 * Of numbers that are not negative, 0 alone has the code of 0: where Adam divides by roots of averages of squares, a
 * small one that became 0 would make a step without bounds. */
#ifndef TOW_SRC_KERNELS_DYNAMIC_MAP_H
#define TOW_SRC_KERNELS_DYNAMIC_MAP_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TOW__CODES = 256,
    TOW__DYNAMIC_LINES = 7 /* one for each exponent of ten */
};

/* The least of slope * magnitude + at_zero, rounded down, is the number of steps from 0 to the nearest number of the
 * map, or one less. */
typedef struct tow__dynamic_lines {
    float slope[TOW__DYNAMIC_LINES], at_zero[TOW__DYNAMIC_LINES];
} tow__dynamic_lines;

typedef struct tow__dynamic_map {
    float values[TOW__CODES];  /* in ascending order: the code of values[i] is i */
    float between[TOW__CODES]; /* the middle of values i and i + 1; infinity at the end */
    tow__dynamic_lines lines;
} tow__dynamic_map;

/* Made in the first call, and never freed. */
const tow__dynamic_map *tow__dynamic_map_get(bool nonnegative);

#endif

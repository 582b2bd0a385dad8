/* The maps of dynamic_map.h. */
#include "src/kernels/quantized/dynamic_map.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static tow__dynamic_map maps[2];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static int compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void make_values(bool nonnegative, float *values)
{
    int n = 0;
    double power = 1e-6;
    for (int i = 0; i < 7; i++, power *= 10) {
        const int parts = nonnegative ? 2 << i : 1 << i;
        for (int k = 0; k < parts; k++) {
            const double mean = 0.1 + 0.9 * (k + 0.5) / parts;
            values[n++] = (float)(power * mean);
            if (!nonnegative) values[n++] = (float)(-power * mean);
        }
    }
    values[n++] = 0;
    values[n++] = 1;
    qsort(values, TOW__CODES, sizeof *values, compare);
}

/* Of the exponent i, part k begins at 10^(i - 6) (0.1 + 0.9 k / parts), as step parts + k if there are negative
 * numbers: one less if there are none, as the numbers of smaller exponents and 0 are before it. Halfway between two
 * exponents, the nearest number changes 0.2 of a step later than a part begins (7 / 36 of one next to 0): LOW is above
 * both, and leaves the highest number, whose half step is at 127.75, in reach. */
static void make_lines(bool nonnegative, tow__dynamic_lines *lines)
{
    const double LOW = 0.3;
    double power = 1e-6;
    for (int i = 0; i < TOW__DYNAMIC_LINES; i++, power *= 10) {
        const double parts = nonnegative ? 2 << i : 1 << i;
        lines->slope[i] = (float)(parts / (0.9 * power));
        lines->at_zero[i] = (float)(parts * 8 / 9 - LOW - nonnegative);
    }
}

static void make_map(bool nonnegative, tow__dynamic_map *map)
{
    make_values(nonnegative, map->values);
    for (int i = 0; i + 1 < TOW__CODES; i++)
        map->between[i] = (float)(((double)map->values[i] + (double)map->values[i + 1]) / 2);
    map->between[TOW__CODES - 1] = INFINITY;
    if (nonnegative) map->between[0] = 0;
    make_lines(nonnegative, &map->lines);
}

static void make_maps(void)
{
    make_map(false, &maps[0]);
    make_map(true, &maps[1]);
}

const tow__dynamic_map *tow__dynamic_map_get(bool nonnegative)
{
    pthread_once(&made, make_maps);
    return &maps[nonnegative];
}

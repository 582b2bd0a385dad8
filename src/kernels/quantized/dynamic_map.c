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

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static int32_t code_of(const tow__dynamic_map *map, float x)
{
    int32_t code = 0;
    while (x > map->between[code]) code++;
    return code;
}

static void make_map(bool nonnegative, tow__dynamic_map *map)
{
    make_values(nonnegative, map->values);
    for (int i = 0; i + 1 < TOW__CODES; i++)
        map->between[i] = (float)(((double)map->values[i] + (double)map->values[i + 1]) / 2);
    map->between[TOW__CODES - 1] = INFINITY;
    if (nonnegative) map->between[0] = 0;
    for (uint32_t k = 0; k < TOW__BUCKETS; k++) {
        const uint32_t bits = (TOW__FIRST_BUCKET + k) << 16;
        map->first[0][k] = code_of(map, k ? from_bits(bits) : 0);
        map->first[1][k] = code_of(map, -from_bits(bits | 0xFFFF));
    }
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

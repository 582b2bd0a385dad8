/* Orders of rows without memory: permutations of [0, n) that are computed place by place. */
#ifndef TOW_SRC_DATA_ORDER_H
#define TOW_SRC_DATA_ORDER_H

#include <stdint.h>

/* A permutation of [0, n): a Feistel network on the numbers below 4^half, of which those from n on are passed on until
 * one below n comes out. */
typedef struct tow__order {
    int64_t n;
    int half; /* bits of each half */
    uint64_t seed;
} tow__order;

/* The permutation number `index` of the seed. */
tow__order tow__order_make(int64_t n, uint64_t seed, uint64_t index);
/* The number at place i, 0 <= i < n. */
int64_t tow__order_at(const tow__order *order, int64_t i);

#endif

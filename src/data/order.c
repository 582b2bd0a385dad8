/* Permutations by Feistel networks. A round (left, right) -> (right, left ^ f(right)) is a bijection whatever f is, so
 * all rounds together permute [0, 4^half). Walking along the cycle of a number below n until the next one below n
 * permutes [0, n): fewer than four steps on average, as 4^half < 4 n (Black and Rogaway, Ciphers with arbitrary finite
 * domains, 2002). */
#include "src/data/order.h"

enum {
    ROUNDS = 8,
    LEAST_HALF = 5 /* a network of few numbers gives few permutations; walks of 1,024 steps at most cost nothing */
};

/* The finaliser of splitmix64 (Steele, Lea and Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t hash(uint64_t seed, uint64_t number)
{
    return mix(mix(seed + UINT64_C(0x9e3779b97f4a7c15)) + (number + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

tow__order tow__order_make(int64_t n, uint64_t seed, uint64_t index)
{
    tow__order order = {.n = n, .half = LEAST_HALF, .seed = hash(seed, index)};
    while (order.half < 32 && (uint64_t)n > UINT64_C(1) << 2 * order.half) order.half++;
    return order;
}

static uint64_t permute(const tow__order *order, uint64_t x)
{
    const uint64_t mask = (UINT64_C(1) << order->half) - 1;
    uint64_t left = x >> order->half, right = x & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const uint64_t next =
            left ^ (mix(order->seed + (round << order->half | right) * UINT64_C(0x9e3779b97f4a7c15)) & mask);
        left = right;
        right = next;
    }
    return left << order->half | right;
}

int64_t tow__order_at(const tow__order *order, int64_t i)
{
    uint64_t x = (uint64_t)i;
    do {
        x = permute(order, x);
    } while (x >= (uint64_t)order->n);
    return (int64_t)x;
}

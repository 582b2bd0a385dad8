/* Random keys on the host: Threefry 2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * 2011), with the layout of src/ops/random/random.c. */
#include "tow/random.h"

static void threefry(const uint32_t key[2], uint32_t x0, uint32_t x1, uint32_t result[2])
{
    static const unsigned rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    const uint32_t k[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDAu};
    x0 += k[0];
    x1 += k[1];
    for (unsigned i = 1; i <= 5; i++) {
        for (unsigned j = 0; j < 4; j++) {
            const unsigned r = rotations[(i + 1) % 2][j];
            x0 += x1;
            x1 = (x1 << r | x1 >> (32 - r)) ^ x0;
        }
        x0 += k[i % 3];
        x1 += k[(i + 1) % 3] + i;
    }
    result[0] = x0;
    result[1] = x1;
}

void tow_random_host_key(uint64_t seed, uint32_t key[2])
{
    key[0] = 0;
    key[1] = (uint32_t)seed;
}

void tow_random_host_fold_in(const uint32_t key[2], uint32_t data, uint32_t result[2])
{
    threefry(key, 0, data, result);
}

void tow_random_host_split(const uint32_t key[2], uint32_t n, uint32_t *result)
{
    for (uint32_t i = 0; i < n; i++) threefry(key, 0, i, result + 2 * (size_t)i);
}

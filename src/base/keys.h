/* Random keys on the host: Threefry 2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * 2011). They decide initial values and orders of data; in graphs the primitives of src/ops do the same. */
#ifndef TOW_SRC_KEYS_H
#define TOW_SRC_KEYS_H

#include <stdint.h>

typedef struct tow__key {
    uint32_t k[2];
} tow__key;

/* Threefry 2x32 with 20 rounds: (x0, x1) encrypted by key. */
static inline tow__key tow__threefry(tow__key key, uint32_t x0, uint32_t x1)
{
    static const unsigned rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    const uint32_t k[3] = {key.k[0], key.k[1], key.k[0] ^ key.k[1] ^ 0x1BD11BDAU};
    x0 += k[0];
    x1 += k[1];
    for (unsigned i = 1; i <= 5; i++) {
        const unsigned *r = rotations[(i + 1) % 2];
        for (unsigned j = 0; j < 4; j++) {
            x0 += x1;
            x1 = (x1 << r[j] | x1 >> (32 - r[j])) ^ x0;
        }
        x0 += k[i % 3];
        x1 += k[(i + 1) % 3] + i;
    }
    return (tow__key){{x0, x1}};
}

/* jax.random.PRNGKey: the low 32 bits of the seed. */
static inline tow__key tow__key_from_seed(uint64_t seed) { return (tow__key){{0, (uint32_t)seed}}; }
/* jax.random.fold_in; also row `data` of jax.random.split. */
static inline tow__key tow__key_fold_in(tow__key key, uint32_t data) { return tow__threefry(key, 0, data); }

#endif

/* Random keys on the host, with the layout of random.c. */
#include "src/base/keys.h"
#include "tow/random.h"

static void write_key(tow__key key, uint32_t result[2])
{
    result[0] = key.k[0];
    result[1] = key.k[1];
}

void tow_random_host_key(uint64_t seed, uint32_t key[2]) { write_key(tow__key_from_seed(seed), key); }

void tow_random_host_fold_in(const uint32_t key[2], uint32_t data, uint32_t result[2])
{
    write_key(tow__key_fold_in((tow__key){{key[0], key[1]}}, data), result);
}

void tow_random_host_split(const uint32_t key[2], uint32_t n, uint32_t *result)
{
    const tow__key all = {{key[0], key[1]}};
    for (uint32_t i = 0; i < n; i++) write_key(tow__key_fold_in(all, i), result + 2 * (size_t)i);
}

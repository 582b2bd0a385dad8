/* See hash.h. */
#include "src/base/hash.h"

#include <unistd.h>

#include "src/base/xxh3.h"

uint64_t tow__hash_seed(const void *place)
{
    uint64_t seed;
    return getentropy(&seed, sizeof seed) == 0 ? seed : (uint64_t)(uintptr_t)place;
}

uint64_t tow__hash(uint64_t seed, const void *data, size_t size) { return XXH3_64bits_withSeed(data, size, seed); }

/* The hash of all tables whose keys come from outside: XXH3 with a seed that every context draws for itself, so that
 * nobody can prepare keys that meet in one slot. Results of the library never depend on the seed: tables are asked,
 * not walked through. */
#ifndef TOW_SRC_HASH_H
#define TOW_SRC_HASH_H

#include <stddef.h>
#include <stdint.h>

/* A seed that cannot be foreseen, unless the system has no random numbers: then it depends on `place`. */
uint64_t tow__hash_seed(const void *place);
/* Of `size` bytes. To hash several things, give the hash of the first ones as the seed of the next. */
uint64_t tow__hash(uint64_t seed, const void *data, size_t size);

#endif

/* XXH3 with 64 bits, compiled in from the header of xxhash: checksums of data (without a seed: they find damage, not
 * intent) and the hash of tables (hash.h). */
#ifndef TOW_SRC_XXH3_H
#define TOW_SRC_XXH3_H

#define XXH_INLINE_ALL
#define XXH_NO_INLINE_HINTS 1 /* else compilers that optimize little refuse to inline what they must */
#include <xxhash.h>

#endif

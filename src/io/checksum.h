/* Checksums of data: XXH3 with 64 bits, compiled in from xxhash's header. They find damage, not intent. */
#ifndef TOW_SRC_IO_CHECKSUM_H
#define TOW_SRC_IO_CHECKSUM_H

#define XXH_INLINE_ALL
#define XXH_NO_INLINE_HINTS 1 /* else compilers that optimise little refuse to inline what they must */
#include <xxhash.h>

#endif

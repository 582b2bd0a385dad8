/* Mutator of .npz files: bytes change anywhere, and the CRCs of stored members are mostly true. */
#include <zlib.h>

#include "src/io/zip.h"
#include "tests/fuzz/mutate.h"

/* Corrects the CRC in the entry of the directory at `entry`, if it is of a stored member within the file. */
static void correct(mutant *m, unsigned char *entry)
{
    const unsigned char *bytes = (const unsigned char *)m->data;
    const size_t packed = (size_t)tow__zip_get(entry + 20, 4), header = (size_t)tow__zip_get(entry + 42, 4);
    if (tow__zip_get(entry + 10, 2) != TOW__ZIP_STORED || header > m->size || m->size - header < TOW__ZIP_LOCAL_SIZE)
        return;
    const size_t names = (size_t)(tow__zip_get(bytes + header + 26, 2) + tow__zip_get(bytes + header + 28, 2));
    const size_t start = header + TOW__ZIP_LOCAL_SIZE + names;
    if (start > m->size || packed > m->size - start) return;
    tow__zip_put(entry + 16, 4, crc32_z(0, bytes + start, packed));
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    mutant m = {.data = (char *)data, .size = size, .max_size = max_size, .random = (seed + UINT64_C(1)) << 20};
    const size_t length = size > 0 ? mutant_random(&m, size) : 0;
    if (length < 8 || mutant_random(&m, 4) == 0)
        m.size = LLVMFuzzerMutate(data, size, max_size);
    else
        mutant_mutate(&m, mutant_random(&m, size - length), length);
    if (mutant_random(&m, 8) == 0) return m.size;
    for (size_t at = 0; at + TOW__ZIP_ENTRY_SIZE <= m.size; at++)
        if (tow__zip_get(data + at, 4) == TOW__ZIP_ENTRY) correct(&m, data + at);
    return m.size;
}

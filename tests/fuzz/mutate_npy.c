/* Mutator of .npy files: header and data change separately, and the length of the header is mostly true. */
#include "tests/fuzz/mutate.h"

enum {
    PREFIX = 10 /* magic, version, length of the header of version 1 */
};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    mutant m = {.data = (char *)data, .size = size, .max_size = max_size, .random = (seed + UINT64_C(1)) << 20};
    if (size < PREFIX || mutant_random(&m, 8) == 0) return LLVMFuzzerMutate(data, size, max_size);
    size_t length = (size_t)(data[8] | data[9] << 8);
    if (length > size - PREFIX) length = size - PREFIX;
    const size_t data_size = size - PREFIX - length;
    if (mutant_random(&m, 3) == 0)
        mutant_mutate(&m, PREFIX + length, data_size);
    else
        mutant_mutate(&m, PREFIX, length);
    const size_t header = m.size - PREFIX > data_size ? m.size - PREFIX - data_size : 0;
    if (mutant_random(&m, 8) > 0 && header < 1 << 16) {
        data[8] = (uint8_t)header;
        data[9] = (uint8_t)(header >> 8);
    }
    return m.size;
}

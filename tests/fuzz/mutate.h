/* The parts that mutators share: random numbers and the parts of an input that are replaced. Only libFuzzer calls
 * mutators, so they are built only with it. */
#ifndef TOW_TESTS_FUZZ_MUTATE_H
#define TOW_TESTS_FUZZ_MUTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* libFuzzer's: how it mutates by itself, with its dictionary. Returns the new size. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
/* libFuzzer calls this function instead, if there is one. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* An input, which is changed in place. */
typedef struct mutant {
    char *data;
    size_t size, max_size;
    uint64_t random;
} mutant;

/* A number below n > 0 (xorshift64*). */
static inline size_t mutant_random(mutant *m, size_t n)
{
    m->random ^= m->random >> 12;
    m->random ^= m->random << 25;
    m->random ^= m->random >> 27;
    return (size_t)((m->random * UINT64_C(0x2545f4914f6cdd1d)) >> 33) % n;
}

/* `length` bytes at `at` become `size` others; false, and nothing changes, if there is no room. */
static inline bool mutant_replace(mutant *m, size_t at, size_t length, const char *data, size_t size)
{
    if (m->size - length + size > m->max_size) return false;
    memmove(m->data + at + size, m->data + at + length, m->size - at - length);
    memcpy(m->data + at, data, size);
    m->size += size - length;
    return true;
}

/* Mutates the range as libFuzzer does. */
static inline void mutant_mutate(mutant *m, size_t at, size_t length)
{
    uint8_t part[1 << 13];
    const size_t room = m->max_size - (m->size - length);
    if (length > sizeof part || room == 0) return;
    memcpy(part, m->data + at, length);
    const size_t size = LLVMFuzzerMutate(part, length, room < sizeof part ? room : sizeof part);
    mutant_replace(m, at, length, (const char *)part, size);
}

#endif

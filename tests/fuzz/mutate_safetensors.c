/* Mutator of safetensors files and checkpoints: header and data change separately. In most cases the length of the
 * header, the size of the data and the checksums are made true afterwards, so that what lies behind these checks is
 * reached. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/xxh3.h"
#include "src/io/tensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"

enum {
    PREFIX = 8 /* the length of the header */
};

static size_t header_size(const mutant *m)
{
    uint64_t length;
    memcpy(&length, m->data, PREFIX);
    return length < m->size - PREFIX ? (size_t)length : m->size - PREFIX;
}

static void set_header_size(mutant *m, uint64_t size) { memcpy(m->data, &size, PREFIX); }

/* Behind the next `key` in the header from *at on; NULL if there is none. */
static char *find(const mutant *m, const char *at, const char *key)
{
    const char *end = m->data + PREFIX + header_size(m);
    char *found = memmem(at, (size_t)(end - at), key, strlen(key));
    return found != NULL ? found + strlen(key) : NULL;
}

/* As many bytes of data as the largest end of "data_offsets":[begin,end] says, if that is not too many. */
static void fit_data(mutant *m)
{
    const size_t data_start = PREFIX + header_size(m);
    uint64_t most = 0;
    for (const char *at = m->data + PREFIX; (at = find(m, at, "\"data_offsets\":[")) != NULL;) {
        unsigned long long end = 0;
        char text[64] = "";
        memcpy(text, at, (size_t)(m->data + data_start - at) < 63 ? (size_t)(m->data + data_start - at) : 63);
        if (sscanf(text, "%*u,%llu", &end) == 1 && end > most) most = end;
    }
    if (most > m->max_size - data_start) return;
    if (data_start + most > m->size) memset(m->data + m->size, 0, data_start + most - m->size);
    m->size = data_start + most;
}

static void write_digits(const mutant *m, char *digits, uint64_t value)
{
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
    if (m->data + PREFIX + header_size(m) - digits >= 16) memcpy(digits, text, 16);
}

/* The checksums of the tensors that `tensors` has, and of the header. */
static void write_checksums(mutant *m, const tow_tensors *tensors)
{
    uint64_t sum = 0;
    char key[512];
    for (size_t i = 0; i < tensors->count; i++) {
        const tow__tensor *t = &tensors->items[i];
        if (t->foreign) continue; /* it has no checksum */
        const uint64_t checksum = XXH3_64bits(m->data + t->offset, tow_type_bytes(t->type));
        snprintf(key, sizeof key, "\"tow.xxh3/%.400s\":\"", t->name);
        char *digits = find(m, m->data + PREFIX, key);
        if (digits != NULL) write_digits(m, digits, checksum);
        sum += tow__tensor_sum(t->name, t->type, checksum);
    }
    for (size_t i = 0; i < tensors->n_metadata; i++)
        if (strncmp(tensors->metadata[i].key, "TOW.xxh3", 8) != 0)
            sum += tow__metadata_sum(tensors->metadata[i].key, tensors->metadata[i].text);
    char *digits = find(m, m->data + PREFIX, "\"tow.xxh3\":\"");
    if (digits != NULL) write_digits(m, digits, sum);
}

/* Reads the header without its checksums, which are renamed for that, and writes those that it must have. */
static void fix_checksums(mutant *m)
{
    tow_context *ctx = fuzz_mutators_context();
    tow_tensors *tensors = NULL;
    uint8_t *copy = malloc(m->size);
    if (copy == NULL) fuzz_fail("there is no memory for a copy");
    memcpy(copy, m->data, m->size);
    for (char *at = m->data + PREFIX; (at = find(m, at, "\"tow.xxh3")) != NULL;)
        memcpy(copy + (at - m->data) - strlen("tow.xxh3"), "TOW", 3);
    fuzz_file(ctx, copy, m->size);
    if (tow__safetensors_open(ctx, "mutant", &tensors) == TOW_OK) write_checksums(m, tensors);
    tow_tensors_free(tensors);
    free(copy);
    tow_context_free(ctx);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    mutant m = {.data = (char *)data, .size = size, .max_size = max_size, .random = (seed + UINT64_C(1)) << 20};
    if (size <= PREFIX || mutant_random(&m, 16) == 0) return LLVMFuzzerMutate(data, size, max_size);
    const size_t header = header_size(&m), data_size = size - PREFIX - header;
    const bool in_data = mutant_random(&m, 4) == 0;
    mutant_mutate(&m, in_data ? PREFIX + header : PREFIX, in_data ? data_size : header);
    if (mutant_random(&m, 4) == 0) return m.size;
    set_header_size(&m, in_data ? header : m.size - PREFIX - data_size);
    if (mutant_random(&m, 4) > 0) fit_data(&m);
    if (mutant_random(&m, 8) > 0) fix_checksums(&m);
    return m.size;
}

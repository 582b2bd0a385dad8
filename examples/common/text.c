/* Reading a text, splitting it, and drawing batches from it. */
#include "text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

enum {
    LIMIT = 1 << 30 /* of bytes: a device that never ends must not fill the memory */
};

/* Reads a whole file; NULL with errno set. */
static unsigned char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    size_t capacity = 1 << 20, n;
    unsigned char *data = malloc(capacity);
    *size = 0;
    while (data && (n = fread(data + *size, 1, capacity - *size, file)) > 0) {
        *size += n;
        if (*size < capacity) continue;
        if (capacity >= LIMIT) {
            free(data);
            data = NULL;
            errno = EFBIG;
            break;
        }
        capacity *= 2;
        unsigned char *larger = realloc(data, capacity);
        if (!larger) free(data);
        data = larger;
    }
    if (data && ferror(file)) {
        free(data);
        data = NULL;
    }
    int error = errno;
    fclose(file);
    errno = error;
    return data;
}

bool text_read(text *t, const char *program, const char *path, size_t context)
{
    *t = (text){0};
    t->tokens = read_file(path, &t->size);
    if (!t->tokens) {
        fprintf(stderr, "%s: %s: cannot read: %s\n", program, path, strerror(errno));
        return false;
    }
    t->train = t->size - t->size / 10;
    if (t->size / 10 < context + 1) {
        fprintf(stderr,
                "%s: %s: expected at least %zu bytes (the last tenth must hold a sequence of %zu and its label), "
                "found %zu; "
                "choose a longer text or a smaller --context\n",
                program, path, 10 * (context + 1), context, t->size);
        text_free(t);
        return false;
    }
    for (int byte = 0; byte < 256; byte++) t->token_of[byte] = -1;
    for (size_t i = 0; i < t->size; i++) t->token_of[t->tokens[i]] = 0;
    for (int byte = 0; byte < 256; byte++) {
        if (t->token_of[byte] < 0) continue;
        t->bytes[t->vocabulary] = (unsigned char)byte;
        t->token_of[byte] = (int16_t)t->vocabulary++;
    }
    for (size_t i = 0; i < t->size; i++) t->tokens[i] = (unsigned char)t->token_of[t->tokens[i]];
    return true;
}

void text_free(text *t)
{
    free(t->tokens);
    t->tokens = NULL;
}

void text_batch(const text *t, split part, uint64_t seed, uint64_t position, size_t batch, size_t context,
                int32_t *inputs, int32_t *labels)
{
    const unsigned char *tokens = part == TRAIN ? t->tokens : t->tokens + t->train;
    size_t starts = (part == TRAIN ? t->train : t->size - t->train) - context;
    for (size_t b = 0; b < batch; b++) {
        const unsigned char *from = tokens + random_bits(seed, position + b) % starts;
        for (size_t i = 0; i < context; i++) {
            inputs[b * context + i] = from[i];
            labels[b * context + i] = from[i + 1];
        }
    }
}

uint64_t text_vocabulary_hash(const text *t)
{
    uint64_t hash = 0;
    for (int i = 0; i < t->vocabulary; i++) hash = random_bits(hash, t->bytes[i]);
    return hash;
}

int text_draw(const float *logits, int vocabulary, double temperature, double u)
{
    double weight[256], total = 0;
    float greatest = logits[0];
    for (int i = 1; i < vocabulary; i++) greatest = logits[i] > greatest ? logits[i] : greatest;
    for (int i = 0; i < vocabulary; i++) total += weight[i] = exp((double)(logits[i] - greatest) / temperature);
    double rest = u * total;
    for (int i = 0; i < vocabulary; i++)
        if ((rest -= weight[i]) < 0) return i;
    return vocabulary - 1;
}

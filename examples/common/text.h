/* A text as training data: tokens are the byte values that occur, the last tenth is for validation, and batches are a
 * pure function of seed and position, so that resuming a run needs no random state. */
#ifndef EXAMPLE_TEXT_H
#define EXAMPLE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct text {
    unsigned char *tokens;    /* [size] token of each byte */
    size_t size, train;       /* tokens [0, train) are for training, the rest for validation */
    int vocabulary;           /* number of tokens */
    unsigned char bytes[256]; /* byte of each token */
    int16_t token_of[256];    /* token of each byte, -1 if it does not occur */
} text;

/* Reads a file. On failure prints a message of `program` and returns false. Both parts hold at least context + 1
 * tokens. */
bool text_read(text *t, const char *program, const char *path, size_t context);
void text_free(text *t);

/* A hash of which bytes are tokens: equal texts have equal hashes. */
uint64_t text_vocabulary_hash(const text *t);

typedef enum split {
    TRAIN,
    VALIDATION
} split;

/* Sequences number `position` and following: inputs and labels, both [batch, context], labels one token ahead. */
void text_batch(const text *t, split part, uint64_t seed, uint64_t position, size_t batch, size_t context,
                int32_t *inputs, int32_t *labels);

/* A token drawn from softmax(logits / temperature) with the number u in [0, 1). logits: [vocabulary], at most 256. */
int text_draw(const float *logits, int vocabulary, double temperature, double u);

#endif

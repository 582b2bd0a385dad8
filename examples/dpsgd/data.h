/* The digits in memory, cut into those for training and those held out. */
#ifndef DPSGD_DATA_H
#define DPSGD_DATA_H

#include "common/digits.h"

enum {
    DIGITS_PIXELS = DIGITS_SIDE * DIGITS_SIDE
};

/* Images f32 [n, 8, 8, 1] from 0 to 1, labels i32 [n]. They belong to the loader. */
typedef struct digits_part {
    tow_loader *loader;
    const tow_array *images, *labels;
    int64_t n;
} digits_part;

/* A fifth of the images is held out, always the same one. */
typedef struct digits_data {
    digits_part training, held_out;
} digits_data;

/* Prints a message and returns false on failure; digits_free then frees what there is. */
bool digits_read(tow_context *context, digits_data *data);
void digits_free(digits_data *data);
/* Image `from` and its label become number `to` of others: f32 [..., 64] and i32 [...]. */
void digits_copy(const digits_part *part, int64_t from, int64_t to, tow_array *images, tow_array *labels);

#endif

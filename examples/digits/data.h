/* The digits in memory, cut into those for training and those held out. */
#ifndef DIGITS_DATA_H
#define DIGITS_DATA_H

#include <tow/tow.h>

/* A fifth of the images is held out: which, depends on `split` alone. */
typedef struct digits_data {
    tow_array *images, *labels; /* u8 [1797, 8, 8], u8 [1797] */
    int64_t n, n_train;
    int32_t *order; /* [n] a permutation of the images: the first n_train are for training */
} digits_data;

/* Prints a message and returns false on failure; digits_free then frees what there is. */
bool digits_read(tow_context *context, uint64_t split, digits_data *data);
void digits_free(digits_data *data);

/* Batch number `index` of training: images f32 [batch, 8, 8, 1] from 0 to 1, each moved by up to a pixel in both directions, and
 * labels i32 [batch]. A pure function of seed and index; in an epoch every image comes once, but for those that fill no batch. */
void digits_batch(const digits_data *data, uint64_t seed, int64_t index, tow_array *images, tow_array *labels);
/* The held-out images [n - n_train, 8, 8, 1] and their labels. */
void digits_held_out(const digits_data *data, tow_array *images, tow_array *labels);

#endif

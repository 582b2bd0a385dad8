/* The digits in memory, cut into those for training and those held out. */
#ifndef DPSGD_DATA_H
#define DPSGD_DATA_H

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

#endif

/* The digits: batches for training, and how near other images are to them. */
#ifndef DIFFUSION_DIGITS_H
#define DIFFUSION_DIGITS_H

#include <tow/tow.h>

/* A loader of four fifths of the digits, images f32 [batch, 8, 8, 1] from -1 to 1 and labels i32 [batch]. Prints a
 * message and returns NULL on failure. */
tow_loader *digits_open(tow_context *context, int64_t batch, uint64_t seed);

/* Prints how far samples [SAMPLES, 8, 8, 1], in rows of one digit each, are from the digits for training, and how many
 * are nearest to one of their own label; the same of the digits that were held out, and of noise. Prints a message and
 * returns false on failure. */
bool digits_compare(tow_context *context, const tow_array *samples, uint64_t seed);

#endif

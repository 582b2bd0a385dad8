/* The digits as batches: those for training, and those held out. */
#ifndef DIGITS_DATA_H
#define DIGITS_DATA_H

#include <tow/tow.h>

/* A loader of images f32 [batch, 8, 8, 1] from 0 to 1 and labels i32 [batch]. For training: four fifths of the digits,
 * in another order in each epoch, half of them moved by up to a pixel in both directions. Otherwise the other fifth, in
 * one batch, whatever `batch` is. Prints a message and returns NULL on failure. */
tow_loader *digits_open(tow_context *context, bool training, int64_t batch, uint64_t seed);

#endif

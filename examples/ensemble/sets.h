/* The images that the members are asked about. */
#ifndef ENSEMBLE_SETS_H
#define ENSEMBLE_SETS_H

#include "evaluate.h"

/* A loader of the digits for training, f32 [batch, 8, 8, 1] from 0 to 1, in another order in each epoch. Prints a
 * message of `program` and returns NULL on failure. */
tow_loader *open_training(const char *program, tow_context *context, int64_t batch, uint64_t seed);
/* Fills names, numbers, images and labels of sets[N_SETS]. A set that is missing has n 0 and no arrays. */
tow_status make_sets(const char *program, tow_context *context, int64_t unseen, uint64_t seed, image_set *sets);

#endif

/* The digits that come with Tow as batches. */
#ifndef EXAMPLE_DIGITS_H
#define EXAMPLE_DIGITS_H

#include <tow/tow.h>

enum {
    DIGITS_SIDE = 8,    /* of an image, in pixels */
    DIGITS_CLASSES = 10 /* labels are 0 .. 9 */
};

/* Images f32 [batch, 8, 8, 1] from `black` to `white`, and labels i32 [batch]. The options say which, in which order,
 * and in which batches; their fields are set here, and .batch 0 makes one batch of all rows. Prints a message of
 * `program` and returns NULL on failure. */
tow_loader *digits_loader(const char *program, tow_context *context, double black, double white,
                          tow_loader_options options);

#endif

/* Elements of arrays as text, for messages and prints: no memory is taken, and the locale does not matter. */
#ifndef TOW_SRC_KERNELS_ELEMENT_TEXT_H
#define TOW_SRC_KERNELS_ELEMENT_TEXT_H

#include "tow/base.h"

enum {
    TOW__NUMBER_BYTES = 32 /* of a number, with the blank behind it */
};

/* The shortest text that reads as the same number, whole numbers without an exponent: element `index` of an array.
 * text: TOW__NUMBER_BYTES. Returns its length. */
int tow__write_element(char *text, tow_dtype dtype, const void *data, int64_t index);

#endif

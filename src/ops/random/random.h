/* Shared by the files of random numbers. */
#ifndef TOW_SRC_OPS_RANDOM_H
#define TOW_SRC_OPS_RANDOM_H

#include "src/graph/graph.h"

/* `key` if it is one, else an error and null. */
tow_value tow__checked_key(tow_value key, const char *op);
/* The two words of element i of `shape` (at most 2^32 elements): T(key; 0, i). Null values on errors. */
void tow__random_words(tow_value key, int rank, const int64_t *shape, tow_value words[2]);

#endif

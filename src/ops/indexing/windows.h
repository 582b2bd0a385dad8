/* Dimension numbers of gather_general and the scatters: checks that both share. */
#ifndef TOW_SRC_OPS_WINDOWS_H
#define TOW_SRC_OPS_WINDOWS_H

#include "src/graph/primitive.h"

/* The places of windows in operand 0: which of its axes have no axis in the window, and to which the elements of index
 * vectors belong. Operand 1: the indices. */
typedef struct tow__windows {
    const tow__ints *collapsed, *operand_batching, *indices_batching, *index_map;
} tow__windows;

tow_status tow__require_windows(const tow__typing *ty, const tow__windows *w);
/* Entries of `list`, called `name`, are distinct and in [0, rank); sorted, if so said. */
tow_status tow__require_distinct(const tow__typing *ty, const char *name, const tow__ints *list, int rank, bool sorted);
/* Axis `axis` of operand 0 has no axis in the window. */
bool tow__no_window_axis(const tow__ints *collapsed, const tow__ints *batching, int64_t axis);
/* Makes *list of n axes; false if there are too many, or fewer than none. */
bool tow__list(int n, const int *axes, tow__ints *list);
/* The number is one of dtype. */
bool tow__holds(tow_dtype dtype, double value);

#endif

/* A scan by an associative function, recorded as a tree of pairs. */
#ifndef TOW_SRC_OPS_SCAN_TREE_H
#define TOW_SRC_OPS_SCAN_TREE_H

#include "src/graph/graph.h"

/* combine: in[0 .. n) and in[n .. 2 n), element by element along the axis, to out[n] of the same types. */
typedef struct tow__combination {
    tow_function combine;
    void *user;
} tow__combination;

/* x[i] becomes its scan along axes[i], along which all have as many elements. After an error values are null. */
void tow__scan_tree(tow_trace *t, size_t n_values, tow_value *x, const int *axes, const tow__combination *combination);

#endif

/* Floating-point operations of graphs, equation by equation, for reports. */
#ifndef TOW_SRC_MODEL_FLOPS_H
#define TOW_SRC_MODEL_FLOPS_H

#include "src/graph/graph.h"

/* scope: of the equation, "" if it has none. */
typedef void (*tow__flops_visitor)(void *user, const char *scope, double flops);
/* Calls `visit` for every equation that computes with floats, those of nested graphs included. Products, convolutions
 * and attention count exactly (2 for each pair that is multiplied and added, masks left out); reductions one less than
 * they take for each result; elementwise operations one for each result, whatever the function is; moves, integers and
 * random bits nothing; other composites what their decompositions do. The body of a loop counts for each iteration (of
 * a while without a bound once), of the branches of a cond the dearest.
 * Error: TOW_OUT_OF_MEMORY. */
tow_status tow__count_flops(const tow_graph *graph, tow__flops_visitor visit, void *user);

#endif

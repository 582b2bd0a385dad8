/* For every operation of indexing.h a macro of the same name: its first value carries the source line.
 * Included by indexing.h; define TOW_NO_SOURCE_LINES to do without. Written by cmake/ops_lines.cmake. */
#ifndef TOW_INDEXING_LINES_H
#define TOW_INDEXING_LINES_H

#include "tow/graph.h"

/* clang-format off */

#define tow_sort(x, ...) tow_sort(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_argsort(x, ...) tow_argsort(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_top_k(x, ...) tow_top_k(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_argmin(x, ...) tow_argmin(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_searchsorted(x, ...) tow_searchsorted(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_gather_general(x, ...) tow_gather_general(tow_at((x), TOW_HERE), __VA_ARGS__)
#define tow_scatter_general(kind, x, ...) tow_scatter_general((kind), tow_at((x), TOW_HERE), __VA_ARGS__)

/* clang-format on */

#endif

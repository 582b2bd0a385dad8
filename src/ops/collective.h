/* Sums over processes, as equations of a graph (collective.c). */
#ifndef TOW_SRC_OPS_COLLECTIVE_H
#define TOW_SRC_OPS_COLLECTIVE_H

#include "src/base/params.h"
#include "src/graph/graph.h"
#include "src/group/group.h"

enum {
    TOW__COLLECTIVE_HEADER = 64 /* bytes of the buffer between start and wait, in front of scratch memory: a number */
};

/* The sum of x over the processes of the group, of which each brings that of its row groups (tow_group_all_reduce): a
 * start, and a wait that plans put in front of its first reader. NULL: x. */
tow_value tow__all_reduce(tow_trace *t, const tow_group *group, int64_t row_groups, tow_value x);

/* The collective of an all_reduce_start with these parameters; NULL: it is over the group of one. Errors: TOW_NOT_FOUND
 * for a group that the context does not know, and those of tow__collective_create. */
tow_status tow__all_reduce_create(tow_context *ctx, const tow__group_params *params, tow_type type, const char *what,
                                  tow__collective **collective);

#endif

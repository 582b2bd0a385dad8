/* Exchange between processes, as equations of a graph (collective.c). */
#ifndef TOW_SRC_OPS_COLLECTIVE_H
#define TOW_SRC_OPS_COLLECTIVE_H

#include "src/base/params.h"
#include "src/graph/graph.h"
#include "src/group/group.h"

enum {
    TOW__COLLECTIVE_HEADER = 64 /* bytes of the buffer between start and wait, in front of scratch memory: a number */
};

/* all_gather_start, reduce_scatter_wait */
typedef struct tow__share_params {
    const char *group; /* the name of one that the context knows; "": the group of one */
    int64_t n;         /* elements of a layer, which the processes share as tow_group_share says, */
    int64_t unit;      /* but in these units; 0: the usual ones */
    int64_t first,
        of; /* the layer is a window of one of so many elements, which the processes share; of: 0: it is not */
} tow__share_params;

/* The sum of x over the processes of the group, of which each brings that of its row groups (tow_group_all_reduce): a
 * start, and a wait that plans put in front of its first reader. NULL: x. */
tow_value tow__all_reduce(tow_trace *t, const tow_group *group, int64_t row_groups, tow_value x);
/* The same of x [layers, n], but only this process's share of each layer: [layers, n / N]; or, if a window is given, of
 * x [1, n] that is one. */
tow_value tow__reduce_scatter(tow_trace *t, const tow_group *group, int64_t row_groups, tow_value x,
                              tow__window window);
/* Layers of n elements from the shares of all processes, of which x [layers, n / N] is this one's: [layers, n]; of a
 * window, [1, n] from what each has of it. unit: of the shares, 0: the usual one. */
tow_value tow__all_gather(tow_trace *t, const tow_group *group, int64_t n, int64_t unit, tow_value x,
                          tow__window window);

/* Does an equation of this primitive start a collective, or wait for one? */
bool tow__starts_collective(const tow_primitive *primitive);
bool tow__awaits_collective(const tow_primitive *primitive);
/* The collective of a start with these parameters, on an operand of this type; NULL: it is over the group of one. what:
 * for messages, behind "sum of" and the like; or NULL. Errors: TOW_NOT_FOUND for a group that the context does not
 * know, and those of tow__collective_create. */
tow_status tow__collective_of_start(tow_context *ctx, const tow_primitive *primitive, const void *params, tow_type type,
                                    const char *what, tow__collective **collective);

#endif

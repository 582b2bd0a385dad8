/* Parameter structs that hold graphs, policies or arrays; all others are in src/base/params.h. */
#ifndef TOW_SRC_GRAPH_PARAMS_H
#define TOW_SRC_GRAPH_PARAMS_H

#include "tow/autodiff.h"
#include "tow/graph.h"

typedef struct tow__const_params {
    tow_array *value;
} tow__const_params; /* const */
typedef struct tow__call_params {
    tow_graph *body;
    const char *name;
} tow__call_params;                /* call */
typedef struct tow__remat_params { /* remat */
    tow_graph *body;
    const tow_policy *policy;
    bool differentiated; /* made by partial evaluation: recomputes and is linear in some operands */
} tow__remat_params;
typedef struct tow__scan_params { /* scan: operands consts, carry, xs; results carry, ys */
    tow_graph *body;              /* (consts, carry, x) -> (carry, y) */
    int64_t length;
    bool reverse;
    int64_t consts, carry; /* how many */
} tow__scan_params;

#endif

/* Parameter structs that hold graphs, policies or arrays; all others are in src/base/params.h. */
#ifndef TOW_SRC_GRAPH_PARAMS_H
#define TOW_SRC_GRAPH_PARAMS_H

#include "tow/autodiff.h"
#include "tow/graph.h"

/* Nested graphs of one parameter. */
typedef struct tow__graphs {
    uint32_t n;
    tow_graph **v;
} tow__graphs;

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
    int64_t limit;       /* bytes of residuals that the region may make; 0: no limit */
    bool differentiated; /* made by partial evaluation: recomputes and is linear in some operands */
} tow__remat_params;
typedef struct tow__scan_params { /* scan: operands consts, carry, xs; results carry, ys */
    tow_graph *body;              /* (consts, carry, x) -> (carry, y) */
    int64_t length;
    bool reverse;
    int64_t consts, carry; /* how many */
    int64_t slots;         /* 0, or the states that reverse mode keeps: the others are made again */
    int64_t file_slots;    /* states that it keeps in a file besides */
    int64_t stops;         /* set by plans: carry 0 is a bool; no iteration begins once it is false */
} tow__scan_params;
typedef struct tow__replay_params { /* replay: operands consts, kept, [file], xs; results states */
    tow_graph *body;                /* (consts, carry, x) -> carry */
    int64_t length;
    bool reverse;
    int64_t consts, carry; /* how many */
    int64_t slots;         /* states that are kept, but for the last one */
    int64_t file_slots;    /* so many of them, the first ones, are in a file */
} tow__replay_params;
typedef struct tow__cond_params { /* cond: operands index, then those of every branch */
    tow__graphs branches;         /* (operands) -> (results) */
} tow__cond_params;
typedef struct tow__while_params { /* while: operands consts, carry; results carry */
    tow_graph *condition;          /* (consts, carry) -> bool[] */
    tow_graph *body;               /* (consts, carry) -> carry */
    int64_t consts;                /* how many */
    int64_t max_iterations;        /* 0: no bound */
    int64_t slots;                 /* 0, or the states that reverse mode keeps: the others are made again */
    int64_t file_slots;            /* states that it keeps in a file besides */
} tow__while_params;
/* replay_while: operands count i32[], last i32[], positions i32[slots], kept, [file], consts, carry; results carry.
 * file: token and staging (spill) of each state, if some are in a file. Of the kept states, last + 1 are there: state k
 * is that with which iteration positions[k] begins, and positions[0] is 0. */
typedef struct tow__replay_while_params {
    tow_graph *advance;     /* (the first consts, state) -> state */
    tow_graph *body;        /* (consts, state, carry) -> carry */
    int64_t consts, states; /* how many */
    int64_t slots;          /* states that are kept */
    int64_t file_slots;     /* so many of them, the first ones, are in a file */
    int64_t max_iterations; /* count is at most this; 0: no bound */
} tow__replay_while_params;
typedef struct tow__fori_params { /* fori: operands count i32[], consts, carry; results carry */
    tow_graph *body;              /* (consts, carry, i i32[]) -> carry, for i = 0 .. count - 1 */
    bool reverse;                 /* from count - 1 down to 0 */
    int64_t consts;               /* how many */
    int64_t max_iterations;       /* count is at most this */
} tow__fori_params;
/* Operands of a call with a custom rule: outer values that its functions use (captured), inputs that are not
 * differentiated (fixed), all other inputs. Those of the last group that are floats have tangents; so have float
 * results. */
typedef struct tow__custom_jvp_params { /* custom_jvp */
    const char *name;
    int64_t captured, fixed; /* how many */
    tow_graph *body;         /* operands -> y */
    tow_graph *rule;         /* (operands, dx) -> (y, dy) */
} tow__custom_jvp_params;
typedef struct tow__custom_vjp_params { /* custom_vjp */
    const char *name;
    int64_t captured, fixed;
    tow_graph *body;     /* operands -> y */
    tow_graph *forward;  /* operands -> (y, residuals) */
    tow_graph *backward; /* (captured, residuals, ct of y) -> ct of x */
} tow__custom_vjp_params;
/* In a rule: the call whose rule this is, on new operands. */
typedef struct tow__custom_self_params { /* custom_self */
    const char *name;
    int64_t level;   /* 0: the innermost rule around it, 1: the rule around that one's call, ... */
    tow_graph *body; /* operands -> y: the call's */
} tow__custom_self_params;
/* The derivative of a custom_vjp before it is transposed: operands residuals (captured values among them), dx. */
typedef struct tow__custom_tangents_params { /* custom_tangents */
    const char *name;
    int64_t residuals;   /* how many */
    tow_graph *backward; /* (residuals, ct of y) -> ct of x */
} tow__custom_tangents_params;

#endif

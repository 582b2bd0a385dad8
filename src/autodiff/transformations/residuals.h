/* The list of residuals inside the library: with what a plan needs to find them again. */
#ifndef TOW_SRC_RESIDUALS_H
#define TOW_SRC_RESIDUALS_H

#include "src/autodiff/transformations/differentiate.h"
#include "src/graph/variants.h"

/* A value as plans know it, too: the equation that was written, and what makes it. */
typedef struct tow__residual_key {
    uint32_t number;           /* tow__reason */
    const tow_primitive *made; /* NULL: an input of the graph */
    tow_type row;              /* of one iteration of the innermost loop */
} tow__residual_key;

/* The memory of a list: residuals.memory points to it. */
typedef struct tow__residuals_memory {
    tow__arena arena;
    tow__residual_key *keys;       /* [count] */
    tow__residual_key *again_keys; /* [again_count] */
} tow__residuals_memory;

/* The residuals of the first output of graph alone (first), or of all; price (may be NULL) tells the seconds. */
tow_status tow__list_residuals(const tow_graph *graph, size_t n_wrt, const size_t *wrt, bool first,
                               const tow__price *price, tow_residuals *residuals);

/* Operand `operand` of an equation. */
typedef struct tow__operand_place {
    uint32_t equation, operand;
} tow__operand_place;

/* The operands of a graph by value: items[first[v]] to items[first[v + 1] - 1] are value v. Graphs are looked through
 * once, however many residuals ask. */
typedef struct tow__operand_lists {
    const tow_graph *g;
    uint32_t *first;
    tow__operand_place *items;
    struct tow__operand_lists *next; /* of another graph */
} tow__operand_lists;

/* Readers of one residual, each listed once; texts are those of the graph. */
typedef struct tow__readers {
    tow__arena *arena;
    tow__operand_lists **operands; /* of the graphs that were looked through so far */
    tow_residual_reader *items;
    size_t n, capacity;
    bool failed; /* out of memory */
} tow__readers;

/* Adds the equations that read the input of the backward pass. */
void tow__find_readers(tow__readers *list, const tow_graph *backward, uint32_t input);
/* Those that read value `var` of g. */
void tow__find_value_readers(tow__readers *list, const tow_graph *g, uint32_t var);

/* Values that a backward pass makes again, each listed once; texts are those of the graph. */
typedef struct tow__again_list {
    tow__arena *arena;
    tow__operand_lists **operands;
    const tow__price *price; /* or NULL */
    tow_residual *items;
    tow__residual_key *keys;
    size_t n, capacity;
} tow__again_list;

/* Iterations of a loop of `length` in one that has `around`. Loops in one another may have more of them than a number
 * holds: INT64_MAX stands for those. */
int64_t tow__iterations_in(int64_t around, int64_t length);

/* False: out of memory. */
bool tow__find_made_again(tow__again_list *list, const tow_graph *backward);

#endif

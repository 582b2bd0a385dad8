/* Graphs that compute the same bits with other bytes and other work, among which a plan within a memory limit is looked
 * for. Differentiation makes them (autodiff/limit), plans choose (plan/remat/frontier.c). */
#ifndef TOW_SRC_VARIANTS_H
#define TOW_SRC_VARIANTS_H

#include "src/graph/frontiers.h"
#include "src/graph/graph.h"

/* So many inputs of a graph in a row hold this: "parameters", "slots". */
typedef struct tow__input_kind {
    const char *kind;
    size_t n;
    /* Path of array i of the kind in the model, "blocks/0/mlp/kernel"; NULL: of no layer. user: of the variants. */
    const char *(*path)(const void *user, size_t i);
} tow__input_kind;

/* Seconds to make the results of equation e of g again, by the cost model, which plans have (plan/remat/seconds.c). */
typedef struct tow__price {
    double (*seconds)(const struct tow__price *price, const tow_graph *g, const tow__equation *e);
    const void *user;
} tow__price;

typedef struct tow__variants {
    uint32_t n; /* at least 1; number 0 is the graph as it was written */
    void *user;
    /* *graph: number i, with inputs and outputs of the same types as those of number 0. The caller releases it. */
    tow_status (*make)(void *user, uint32_t i, tow_graph **graph);
    const tow__input_kind *kinds; /* for messages: what the inputs hold, in their order; NULL: nothing is known */
    size_t n_kinds;
    const char *note; /* a line for each scan that is in no variant cut, with the reason; NULL or "": none */
    /* Frontiers that were found before, and are kept there; NULL: nobody keeps them. */
    tow__frontiers *frontiers;
    /* The loss of these variants, and a text that tells them from others of it that have their frontiers there; NULL:
     * there are no others. */
    const tow_graph *loss;
    const char *of;
    /* The processes that take one point, which rank 0 chooses: they start the same sums then. NULL: this one alone. */
    struct tow_group *group;
    bool others_wait; /* of this group, for the search of this process, which tells them that it goes on */
} tow__variants;

/* The function of which a graph is the gradient, or a step with that gradient, so that the graph can be made again with
 * other regions in it. */
typedef struct tow__origin {
    tow_graph *loss;
    size_t n_wrt;
    const size_t *wrt;
    bool value, has_aux;
    /* *graph: the same of another function with the inputs and outputs of the loss. user: the maker's. */
    tow_status (*make)(const struct tow__origin *origin, const tow_graph *loss, tow_graph **graph);
    void *user;
    /* The following are NULL for steps, whose makers know their variants. */
    tow__frontiers *frontiers; /* of the variants below */
    /* Variants of the gradient; free_variants in the end, also after an error. price: while this is called. */
    tow_status (*variants)(const tow_graph *gradient, const tow__price *price, tow__variants *variants);
    void (*free_variants)(tow__variants *variants);
    /* The gradient once more, with what the context says now. */
    tow_status (*again)(const tow_graph *gradient, tow_graph **result);
} tow__origin;

#endif

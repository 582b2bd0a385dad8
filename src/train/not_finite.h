/* The message of a step whose loss or gradients are not finite; shared by not_finite.c (the search), layer_path.c
 * (names) and not_finite_report.c (inputs, gradients, sentences). */
#ifndef TOW_SRC_TRAIN_NOT_FINITE_H
#define TOW_SRC_TRAIN_NOT_FINITE_H

#include "src/graph/graph.h"
#include "src/train/state.h"

/* Runs the gradient of a micro-batch again, equation by equation, and returns TOW_CHECK_FAILED with the place where the
 * first NaN or infinity came up. loss, finite: what the step has found of the loss and the gradients. */
tow_status tow__fail_not_finite(tow_train_state *state, const tow__train_program *program, tow_array *const *batch,
                                size_t micro, double loss, bool finite);

/* Elements of an array that are not finite. first, last: the row-major index of the first and the last NaN, or, without
 * one, of infinities. */
typedef struct tow__not_finite_counts {
    int64_t nans, infinities, first, last;
} tow__not_finite_counts;
tow__not_finite_counts tow__count_not_finite(const tow_array *x);

/* Notes the elements of `x` that are not finite. */
void tow__note_not_finite(tow_not_finite *found, const tow_array *x);

/* ---- not_finite_index.c ------------------------------------------------------------------------------------------ */

/* Notes the indices outside of its table that equation e has looked up with the operands `in`, if it is that kind of
 * equation. */
void tow__note_outside(const tow__equation *e, tow_array *const *in, tow_not_finite *found);
/* "label 10, expected 0 to 9; ", or nothing. Like snprintf. */
size_t tow__outside_text(const tow_not_finite *found, char *text, size_t size);

/* ---- not_finite_report.c ----------------------------------------------------------------------------------------- */

/* *found: the input that is not finite, the first one in the order of the layers; found->found is false if all are. */
tow_status tow__find_not_finite_input(const tow_graph *graph, tow_array *const *inputs, tow_not_finite *found);

/* A region that the search has entered. scope: of the equation that is the region; may be NULL. */
typedef struct tow__entered {
    const char *scope;
    int64_t iteration; /* of a loop; -1: it is none */
} tow__entered;

/* The layer that an equation belongs to: its scope, with a number in place of each component that stands for the layers
 * of a stack or the rows of a vmap. regions: outermost first. type, element: of its result, and which element of it is
 * meant. */
void tow__write_layer_path(const tow__entered *regions, int n_regions, const tow__source *source, const tow_type *type,
                           int64_t element, char *text, size_t size);

#endif

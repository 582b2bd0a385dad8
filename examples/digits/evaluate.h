/* Accuracy of a model on the digits that were held out. */
#ifndef DIGITS_EVALUATE_H
#define DIGITS_EVALUATE_H

#include "data.h"
#include "model.h"

typedef struct evaluation {
    tow_context *context;
    tow_program *program; /* parameters, variables, images -> logits */
    tow_array **inputs;   /* those of the train state, then the images */
    size_t n_inputs;
    tow_array *images, *labels; /* held out: the one batch of the loader, which lives as long */
    tow_array *logits;          /* [n, 10] */
    int64_t n;
    double accuracy;
    int64_t confusion[CLASSES][CLASSES]; /* of label and prediction */
    double *steps, *accuracies;          /* of the curve */
    size_t n_points, capacity;
} evaluation;

tow_status evaluation_create(tow_context *context, tow_loader *held_out, const tow_module *model,
                             const tow_train_state *state, evaluation *e);
void evaluation_free(evaluation *e);
/* Sets accuracy and confusion to those of the state's parameters now. */
tow_status evaluate(evaluation *e);
/* Adds the accuracy after `step` to the curve. Prints a message and returns false without memory. */
bool evaluation_note(evaluation *e, int64_t step);
void evaluation_print(const evaluation *e);
/* misread.png, filters.png and accuracy.svg. */
tow_status evaluation_draw(const evaluation *e, const tow_train_state *state, const char *directory);

#endif

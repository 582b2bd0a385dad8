/* The train state's layout, shared by state.c (making, stepping) and checkpoint.c (saving, loading). */
#ifndef TOW_TRAIN_STATE_H
#define TOW_TRAIN_STATE_H

#include "train/optimizer.h"
#include "train/update.h"

/* Who takes the gradient of one parameter. */
typedef struct tow__early {
    tow_train_state *state;
    uint32_t parameter;
} tow__early;

struct tow_train_state {
    tow_context *ctx;
    uint64_t seed;
    int64_t step;
    uint64_t data_position;
    bool torn; /* a load failed while it copied into the arrays */
    char *description;
    size_t description_size;
    tow_params *params;
    tow_params *variables; /* of all other collections; a step reads these and writes updates, which it then copies */
    tow_params *updates;
    tow__optimizer_transforms transforms; /* of the options' .optimizer; the chain is empty if they had a transform */
    const char *optimizer_name;
    tow_optimizer_state *optimizer;
    tow_status early_status; /* of the updates inside the program: the first error */

    tow_graph *loss_graph;
    tow_program *program, *evaluation;
    /* inputs: params..., variables..., the caller's n_inputs, one key per stream. outputs: loss, updates...,
     * gradients.... The evaluation program takes the same inputs and writes the loss only. */
    tow_array **inputs, **outputs;
    size_t n_params, n_variables, n_inputs, n_streams;
    bool early_update;  /* then the program hands gradients over, and there are no arrays for them */
    size_t keep_within; /* of the options */
    tow__early *early;  /* [n_params] */
};

/* The error of `function`, which cannot work on a state that is torn. */
tow_status tow__train_torn(const tow_train_state *state, const char *function);

#endif

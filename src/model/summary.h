/* The summary of a model: what summary.c finds out and summary_text.c prints. */
#ifndef TOW_SRC_MODEL_SUMMARY_H
#define TOW_SRC_MODEL_SUMMARY_H

#include "src/scope/calls.h"
#include "tow/model.h"

/* A parameter or variable, and the layer that it belongs to: the one with the longest path that its own is below. */
typedef struct tow__owned {
    const char *path; /* of a variable: with its collection */
    tow_type type;
    tow_param_kind kind;
    uint32_t layer;
    bool variable;
} tow__owned;

/* A value that is kept for the backward pass, and the layer that made it. */
typedef struct tow__kept {
    const char *what, *here; /* here may be NULL */
    tow_type type;
    size_t bytes;
    uint32_t layer;
} tow__kept;

struct tow_model_summary {
    tow_context *ctx;
    tow__arena arena; /* of all that is not freed by itself */
    tow__call_log log;
    tow_layer_summary *layers; /* [count] */
    uint32_t *parents;         /* the layer around each; of the first one itself */
    uint32_t count;
    tow__string scratch;
    tow__owned *owned;
    size_t n_owned;
    tow__kept *kept;
    size_t n_kept;
    const char *no_gradient; /* why there are no figures of the backward pass; NULL: there are */
};

/* As tow_model_forward_graph, with a list of the layers that are called (model.c). */
tow_status tow__forward_logged(const tow_module *model, const tow_params *params, size_t n_inputs,
                               const tow_type *input_types, const tow_model_options *options, tow__call_log *log,
                               tow_graph **graph);

#endif

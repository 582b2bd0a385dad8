/* The train state's layout, shared by state.c (making, asking), programs.c (what is compiled for a shape of the batch),
 * step.c (stepping, evaluating) and checkpoint.c (saving, loading). */
#ifndef TOW_SRC_TRAIN_STATE_H
#define TOW_SRC_TRAIN_STATE_H

#include "src/autodiff/rows/part.h"
#include "src/graph/frontiers.h"
#include "src/train/optimizer.h"
#include "src/train/update.h"
#include "tow/model.h"

/* The programs for batches of one shape: a program for steps, or one for evaluation of one micro-batch. */
typedef struct tow__train_program {
    tow_program *program;      /* belongs to the cache */
    tow_type *micro_types;     /* [n_inputs] with the rows of all processes */
    tow_graph *loss_graph;     /* of one micro-batch: (loss, aux..., updates...) */
    tow_graph *gradient_graph; /* with gradients behind; NULL in evaluation */
    tow_array *loss;           /* of a step with micro-batches: of all of them */
    tow_array **aux;           /* [n_aux], of all micro-batches */
    int *aux_axes;             /* evaluation: [n_aux] the axis with the rows, TOW__WHOLE: none */
    tow_array **rows;          /* evaluation: [micro_batches * n_aux] of them, or NULL if there is one micro-batch */
    tow_array **views;         /* [n_inputs] over a micro-batch of the caller's arrays, likewise */
} tow__train_program;

struct tow_train_state {
    tow_context *ctx;
    uint64_t seed;
    int64_t step;
    uint64_t data_position;
    bool torn; /* a load failed while it copied into the arrays */
    char *description;
    size_t description_size;
    tow_params *params;                   /* with the types of whole ones; of shared parameters without arrays */
    tow_params *kept;                     /* those that this process has: shares, or the same list */
    tow_params *variables;                /* of all other collections */
    tow__optimizer_transforms transforms; /* of the options' .optimizer; the chain is empty if they had a transform */
    const char *optimizer_name;
    tow_optimizer_state *optimizer;
    tow_average *average; /* NULL: none is wanted */
    double gradient_norm; /* of the last micro-batch, with .check_finite */

    const tow_module *model;   /* to compile other shapes */
    tow_train_options options; /* .model points to model_options, if it is given */
    tow_model_options model_options;
    tow_program_cache *steps, *evaluations;
    tow__frontiers frontiers;       /* of steps within a memory limit */
    tow_shared_arena *shared_arena; /* of the programs in both */
    tow_type *types; /* [2 * n_inputs] of a batch, with the rows of this process: as the options say, and of the one at
                        hand */
    const tow__train_program *last; /* whose aux values are asked for */
    /* Of the program of a step (step_graph.h). Its first n_kept inputs are what it changes in place. */
    tow_array **inputs, **outputs;
    /* Of graphs of one micro-batch: params..., variables..., inputs..., keys... -> loss, aux... */
    tow_array **micro_inputs, **micro_outputs;
    size_t n_kept, n_params, n_variables, n_inputs, n_streams, n_aux, micro_batches;
    /* The graph of the batch has its micro-batches in it if there are row groups: row_parts, and micro_batches is 1. */
    size_t row_groups, row_parts;
    tow__row_share share;             /* of this process in the rows */
    size_t step_inputs, step_outputs; /* lengths of the lists */
};

/* Are parameters shares? */
static inline bool tow__train_shares_params(const tow_train_state *s)
{
    return s->options.shard >= TOW_SHARD_PARAMETERS && s->share.group != NULL;
}

/* The graph, which takes shares of parameters as its first inputs, with these as they are kept. */
tow_status tow__train_on_shares(const tow_train_state *state, tow_graph **graph);
/* The gradient of the whole loss, of whole parameters, with whole gradients in every process. */
tow_status tow__train_whole_gradient(const tow_train_state *state, const tow_graph *loss, tow_graph **gradient);

/* The error of `function`, which cannot work on a state that is torn. */
tow_status tow__train_torn(const tow_train_state *state, const char *function);

/* Does the process compute with others? */
static inline bool tow__train_has_others(const tow_train_state *s) { return s->share.group != NULL; }

/* Input i of a batch of all rows, with the rows of this process alone, or the other way round. Error:
 * TOW_INVALID_ARGUMENT. */
tow_status tow__train_own_rows(const tow_train_state *state, size_t i, tow_type *type);
tow_status tow__train_all_rows(const tow_train_state *state, size_t i, tow_type *type);

/* The passes over the rows of this process alone, without sums over others. Free part also after an error. */
tow_status tow__train_own_part(const tow_train_state *state, const tow_graph *loss, tow__row_part *part);

/* Position of the first input of the model among the inputs of a graph of one micro-batch. */
static inline size_t tow__train_first_input(const tow_train_state *s) { return s->n_params + s->n_variables; }

/* The inputs of micro-batch `micro` of a batch, and its keys, which belong to the state, into s->micro_inputs. */
void tow__train_set_micro_inputs(tow_train_state *state, const tow__train_program *program, tow_array *const *batch,
                                 size_t micro);

/* Would this metric be the best so far? */
bool tow__early_stopping_improves(const tow_early_stopping *stopping, double metric);
/* Goes on from a best value that an earlier run had, of which there is no copy. */
void tow__early_stopping_resume(tow_early_stopping *stopping, double best, int64_t step);
/* tow_train_save, by all processes of the state's group, with the name and the value of the metric for which this state
 * is the best. */
tow_status tow__train_save_best(const tow_train_state *state, const char *path, const char *name, double metric);
/* That value, if the file is one of the metric `name` and not of a later step than the state's, else NAN; NAN also if
 * there is no file. Errors: those of reading a file. */
tow_status tow__train_read_best(const tow_train_state *state, const char *path, const char *name, double *metric,
                                int64_t *step);

/* Makes the cache of programs for steps or for evaluation. */
tow_status tow__train_programs_create(tow_train_state *state, bool evaluation);
/* The program for batches of these types, made if need be. Error: TOW_TYPE_MISMATCH for types for which none may be
 * made. */
tow_status tow__train_program_for(tow_train_state *state, const tow_type *types, bool evaluation,
                                  const tow__train_program **program);
/* TOW_INVALID_ARGUMENT, with `what` it is, if the graph differs between processes; collective. */
tow_status tow__train_check_same_graph(const tow_train_state *state, const char *what, const tow_graph *graph);

#endif

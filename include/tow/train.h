/* Training: learning-rate schedules, optimizers with global-norm clipping, and the train state, which holds parameters,
 * the variables of other collections, optimizer slots and the compiled loss-and-gradient program, takes steps, and
 * saves and loads checkpoints.
 *
 * A step allocates nothing. Sums run over fixed blocks, so a run gives the same bits for any number of threads, and a
 * run that was stopped and loaded again gives the same bits as one that never stopped.
 *
 *     tow_train_options options = TOW_TRAIN_OPTIONS(
 *         .optimizer = {.learning_rate = tow_schedule_constant(1e-3), .weight_decay = 0.1, .clip_norm = 1.0},
 *         .seed = 0, .n_inputs = 1, .input_types = &tokens, .n_extra = 1, .extra_types = &labels,
 *         .loss = mean_cross_entropy);
 *     tow_train_state *state;
 *     tow_train_create(context, TOW_MODULE(&model), &options, &state);
 *     while (tow_train_step_count(state) < 1000) tow_train_step(state, batch, &loss);
 */
#ifndef TOW_TRAIN_H
#define TOW_TRAIN_H

#include "tow/autodiff.h"
#include "tow/data.h"
#include "tow/group.h"
#include "tow/model.h"
#include "tow/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- optimizers -------------------------------------------------------------------------------------------------- */

typedef enum tow_standard_optimizer_kind {
    TOW_ADAMW,
    TOW_SGD
} tow_standard_optimizer_kind;

/* The two that most models are trained with; tow/gradient_transforms.h has others, and those of one's own.
 * g: gradient after clipping, p: parameter, a: learning rate, t: 1 for the first update. Zero means the default.
 *   AdamW  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  m' = m/(1-b1^t);  v' = v/(1-b2^t);
 *          p -= a (m'/(sqrt(v') + eps) + weight_decay p)
 *   SGD    g += weight_decay p;  m = g + momentum m;  p -= a m, or p -= a (g + momentum m) with nesterov.
 *          momentum 0 keeps no slot.
 * Numbers of the other kind (momentum with AdamW, eps with SGD), and of a warm-up in a constant schedule, are errors.
 * Weight decay acts on kernels, embeddings and other weights, not on biases and scales of any rank (tow_param_kind in
 * tow/params.h), unless decay_all.
 * A stack of layers counts with the rank that one layer has.
 * clip_norm c: with n the root of the sum of the squares of all gradients, g is left alone if n < c, else g/n*c.
 * Updates are computed in f32, in which subnormal numbers count as zeros. Values must be in range there, else
 * tow_train_create refuses them: learning rates finite, eps at least 1.17549435e-38, b1 and b2 in [0, 1), momentum in
 * [0, 1], weight_decay and clip_norm finite and not negative. */
typedef struct tow_standard_optimizer {
    tow_standard_optimizer_kind kind;
    tow_schedule learning_rate;
    double b1, b2, eps;  /* AdamW; 0: 0.9, 0.999, 1e-8 */
    double momentum;     /* SGD; 0: none */
    bool nesterov;       /* SGD */
    double weight_decay; /* 0: none */
    bool decay_all;
    double clip_norm; /* 0: no clipping */
} tow_standard_optimizer;

/* ---- averages of parameters -------------------------------------------------------------------------------------- */

/* An exponential average of parameters from update to update: a <- decay a + (1 - decay) p. It begins with the
 * parameters as they are; or, with debias, with nothing, and update t divides by 1 - decay^t, so that the average of
 * the first t updates has weights that add up to 1 (optax.ema). */
typedef struct tow_average_options {
    size_t size TOW__SIZE(tow_average_options); /* set by TOW_AVERAGE_OPTIONS */
    double decay;                               /* between 0 and 1 */
    bool debias;
} tow_average_options;
#define TOW_AVERAGE_OPTIONS(...) TOW__OPTIONS(tow_average_options, __VA_ARGS__)

typedef struct tow_average tow_average;

/* Of the caller's parameters, which live longer. Errors: TOW_INVALID_ARGUMENT for a decay out of range,
 * TOW_TYPE_MISMATCH for a parameter that is not of a float type. */
TOW_API tow_status tow_average_create(tow_context *context, const tow_params *params,
                                      const tow_average_options *options, tow_average **average);
/* NULL is accepted. */
TOW_API void tow_average_free(tow_average *average);
/* After an update of the parameters. Allocates nothing. */
TOW_API tow_status tow_average_update(tow_average *average);
/* The averages, with the parameters' paths and types; they change with every update and belong to `average`. (Of
 * parameters of 16 bits they are kept in f32 besides.) */
TOW_API tow_params *tow_average_params(const tow_average *average);

/* ---- what is not finite ------------------------------------------------------------------------------------------ */

/* The origin of the first NaN, or else of the first infinity: the equation that made it of operands that had none. */
typedef struct tow_not_finite {
    bool found;
    bool backward;            /* in the backward pass of a gradient */
    bool gradient;            /* of a parameter, in a list of gradients; else: in a graph */
    int64_t input;            /* of the graph or the list, that was so already; -1: an equation made it */
    char primitive[32];       /* "log" */
    char path[200];           /* of the layer, "blocks/3/attn", or the name of the input or parameter; "": unknown */
    char name[64];            /* of tow_checkpoint_name, or "" */
    char source[200];         /* "model.c:42", or "" */
    tow_type type;            /* of the value */
    int64_t nans, infinities; /* so many elements of it */
    int64_t first;            /* row-major index of the first one */
    char outside[8]; /* "index" or "label": what was looked up outside of its table or classes makes the NaN; or "" */
    int64_t outside_value; /* the first of them, ... */
    int64_t outside_at;    /* ... where it is among the indices or labels, row-major, ... */
    int64_t outside_limit; /* ... and how many rows or classes there are: 0 to outside_limit - 1 is right */
} tow_not_finite;

/* Runs `graph` equation by equation, and stops at the first NaN; as slow as that is. Loops are entered at the iteration
 * that is to blame, so that the path names one layer of a stack, one time step of an RNN ("rnn/cell/3") or one row of a
 * vmap; and functions of the caller's own (tow/primitive.h) run again. For a graph that a program ran with these inputs
 * and from which something came that is not finite. Errors: TOW_TYPE_MISMATCH, TOW_INVALID_ARGUMENT for inputs;
 * TOW_OUT_OF_MEMORY. */
TOW_API tow_status tow_find_not_finite(const tow_graph *graph, tow_array *const *inputs, tow_not_finite *found);
/* Of gradients (tow_model_function_create_value_and_grad), the first one in the order of the backward pass that is not
 * finite: that of the last layer, and in it of the parameter that was asked for last. found->found is false if all are
 * finite. Errors: TOW_OUT_OF_MEMORY. */
TOW_API tow_status tow_find_not_finite_gradient(const tow_params *gradients, tow_not_finite *found);
/* A sentence; like snprintf. */
TOW_API size_t tow_not_finite_text(const tow_not_finite *found, char *text, size_t size);

/* ---- train state ------------------------------------------------------------------------------------------------- */

typedef struct tow_train_state tow_train_state;

typedef struct tow_train_options {
    size_t size TOW__SIZE(tow_train_options); /* set by TOW_TRAIN_OPTIONS */
    tow_standard_optimizer optimizer;
    const tow_gradient_transform *transform; /* in place of .optimizer; lives as long as the state; NULL: .optimizer */
    uint64_t seed;                           /* of the initial parameters and of the random streams */
    size_t n_inputs;                         /* what the model takes */
    const tow_type *input_types;
    size_t n_extra; /* what only the loss sees (labels) */
    const tow_type *extra_types;
    tow_loss_function loss;
    void *loss_user;
    size_t n_aux;                   /* values that the loss function writes besides the loss, for tow_train_aux */
    const tow_model_options *model; /* streams and number of outputs; NULL: none and 1. The key of stream i at step t is
                                     * fold_in(fold_in(PRNGKey(seed), i), t), so resuming needs no random state.
                                     * .state, .mutable_collections, .updates and .capture are left NULL */
    /* A step updates each parameter inside the backward pass, as soon as its gradient is complete and nothing else
     * needs the parameter any more, wherever nothing needs all gradients first (clipping, checks, micro-batches). This
     * is a wish for fewer bytes still: loops over small layers stay whole, so that their gradients are never stacked.
     * The same bits. */
    bool early_update;
    /* Gradient accumulation: a batch is cut along axis 0 into so many parts of one size, which go through the model one
     * after the other, and the parameters are updated once by the mean of their gradients. A step takes the memory of
     * one part and of one set of sums of gradients. The loss is the mean of the parts' losses. See docs/training.md for
     * when that is, bit for bit, the step of the whole batch. Evaluation is cut likewise. 0: 1. */
    size_t micro_batches;
    /* Sums over the batch (gradients of weights, biases, norms, embeddings and kernels, losses, batch statistics) are
     * binary trees over so many blocks of rows of one size, a power of two (tow_row_groups). With more than one, losses
     * and parameters are functions of this number alone: the same bits for all micro_batches that divide it. 0: 1. */
    size_t row_groups;
    const bool *whole_inputs; /* [n_inputs + n_extra]: not cut, given to every part as it is; NULL: scalars only */
    /* The loss is a mean over something of which parts and batches have unequal numbers, tokens that are not padding
     * for instance. The loss function writes that number to aux value 0, a scalar of any type but bool, which is the
     * weight of a part: the loss of a step is sum(w loss) / sum(w) over its parts, and the gradients are averaged
     * likewise, which is the mean over all tokens and not the mean of means. tow_train_run weighs batches of an
     * evaluation so, too. A part of weight 0 counts for nothing; a step of which all have weight 0 is
     * TOW_INVALID_ARGUMENT, and nothing has changed. */
    bool weighted;
    const tow_average_options *average; /* of parameters, updated with every step, saved in checkpoints; NULL: none */
    /* Looks whether the loss and all gradients are finite before it updates: one more pass over the gradients. If not,
     * the step is refused with TOW_CHECK_FAILED, nothing has changed, and the message names the layer, the operation
     * and its source line where the first NaN or infinity came up. With .skip_not_finite as many in a row are left out
     * first. */
    bool check_finite;
    size_t skip_not_finite; /* leaves updates out whose gradients are not finite (tow_optimizer_options) */
    /* The number of programs, besides the first one, that are kept for batches of other sizes than those of the types.
     * They are compiled when a batch of such a size comes for the first time (that step allocates), that used longest
     * ago goes first, and all share parameters and optimizer. Then model, loss_user and all that the options point to
     * live as long as the state. 0: none, other sizes are errors. */
    size_t other_shapes;
    /* Bytes that a step may take: parameters, slots, averages, variables, batch, constants and arena. The fastest plan
     * within it is looked for (tow_compile_options), once for each size of batches, also if its program has gone and is
     * compiled again; it does not depend on the order in which sizes come. The same bits. The limit does not
     * count the values that .verify keeps. 0: no limit. Processes of .group may have different ones, or none. Error:
     * TOW_INVALID_ARGUMENT with the least that is possible and its parts. */
    size_t memory_limit;
    bool evaluation;         /* also compile the loss alone, with .deterministic = true, for tow_train_evaluate */
    const char *description; /* what a checkpoint must agree on besides shapes (which data, which vocabulary);
                                     * stored in checkpoints and compared on loading; NULL: "" */
    /* Compares what a step makes again with what it made first (tow_compile_options), which it keeps for that, also
     * beyond .memory_limit. A step that finds a difference fails with TOW_CHECK_FAILED and changes nothing. */
    bool verify;
    /* Parameters of bf16 and f16 are updated in f32 (tow_optimizer_options); the seed of roundings is that of the
     * state. */
    bool master, stochastic_rounding;
    /* Dynamic loss scaling (tow_optimizer_options): a step differentiates the loss times the scale, which checkpoints
     * keep; losses are those without it. tow_optimizer_skipped_count says how many updates were left out. Not with
     * .check_finite. */
    double loss_scale;
    size_t loss_scale_period;
    /* Slots of the optimizer in 8 bits (tow_optimizer_options). */
    int slot_bits;
    int64_t slot_bits_least;
    /* Processes that train together (tow/group.h), each on the rows of its row groups (tow_group_rows), of which there
     * are a power of two, at least as many as processes. The types are those of the whole batch; a step and an
     * evaluation are given, and give in aux values with rows, this process's rows alone: of f32[B, ...]
     * f32[B / row_groups * own groups, ...]. All processes make the state with the same options, but for .memory_limit,
     * and call the same functions in the same order. Losses, parameters and all that is kept are the same in all
     * processes, and have the bits that one process with all rows gets. A process that fails in a step calls
     * tow_group_abort, or the others wait for it. Freed after the state. NULL: one process. */
    tow_group *group;
    /* The part of the training state of which each process of .group keeps its share alone (tow_group_share, in every
     * layer of a stack): TOW_SHARD_NOTHING, all of it is in every process, ... The same bits and checkpoints. */
    int shard;
    /* tow_train_load also takes checkpoints that were trained with another .row_groups. Sums are made in another order
     * from there on, so losses are not those, to the last bit, that the run would have had. */
    bool other_row_groups;
} tow_train_options;
#define TOW_TRAIN_OPTIONS(...) TOW__OPTIONS(tow_train_options, __VA_ARGS__)

/* Stages of sharding over processes, each with what the stages before it share. */
enum {
    /* Every process has all of the state and updates all parameters. Sums of gradients are gathered as soon as they are
     * there, which hides them behind the backward pass: the fastest stage where the state fits and the update is short.
     * If every process updated its share of the parameters alone, it would read no more than its share of slots and
     * gradients, so that is the next stage. */
    TOW_SHARD_NOTHING = 0,
    /* Slots of the optimizer that have the shape of their parameter. A process updates its share of a parameter, and
     * the shares are gathered while others are updated. Transforms that read whole slots or updates, norms of layers
     * for instance, read what was gathered before. */
    TOW_SHARD_SLOTS = 1,
    /* Gradients: the sum over processes is scattered, so that each gets its share of it. As an update of shares reads
     * no more, TOW_SHARD_SLOTS does this, too: the two are one. */
    TOW_SHARD_GRADIENTS = 2,
    /* Parameters, and their averages. Those that a loop stacks are gathered an iteration ahead of the one that needs
     * them, and dropped behind it; others while what was gathered before them is read, at most two at a time, and
     * dropped behind their last reader of the forward pass and of the backward pass.
     * tow_train_params and tow_train_averages are lists of shares (tow_params_gather). A step that .check_finite
     * refuses gathers all parameters once, to say why. */
    TOW_SHARD_PARAMETERS = 3
};

/* Draws the parameters and initial variables, makes the optimizer slots and compiles a step, which is one program:
 * loss, gradients, clipping, checks, and the update of parameters, slots, variables and averages in place. The options'
 * arrays and the model need to live only during the call; `description` is copied.
 * Errors: those of tow_model_init, tow_model_loss_graph, tow_value_and_grad and tow_compile; TOW_INVALID_ARGUMENT for
 * options out of range. */
TOW_API tow_status tow_train_create(tow_context *context, const tow_module *model, const tow_train_options *options,
                                    tow_train_state **state);
/* NULL is accepted. */
TOW_API void tow_train_free(tow_train_state *state);

/* One update of the parameters and of all variables that the layers write; variables get no gradient and the optimizer
 * does not see them. inputs: the model's inputs, then the extra ones. loss (may be NULL): before the update. Allocates
 * nothing.
 * Errors: TOW_TYPE_MISMATCH with index, expected and found, TOW_INVALID_ARGUMENT for a missing array; then nothing has
 * changed. */
TOW_API tow_status tow_train_step(tow_train_state *state, tow_array *const *inputs, double *loss);
/* The same, and writes what the program did when to `file`, as tow_program_write_trace does. Allocates. Errors:
 * TOW_OUT_OF_MEMORY, before anything has changed; TOW_IO_ERROR, after the update. */
TOW_API tow_status tow_train_step_with(tow_train_state *state, tow_array *const *inputs, double *loss, FILE *file);
/* The loss alone, without dropout; changes nothing: layers write variables only where tow_is_mutable. Errors: as
 * tow_train_step; TOW_INVALID_ARGUMENT if the state was made without .evaluation. */
TOW_API tow_status tow_train_evaluate(tow_train_state *state, tow_array *const *inputs, double *loss);
/* The same with the averages in place of the parameters, and the variables as they are. Error: TOW_INVALID_ARGUMENT
 * without .average. */
TOW_API tow_status tow_train_evaluate_average(tow_train_state *state, tow_array *const *inputs, double *loss);
/* Aux value `index` of the last step or evaluation, written by it: belongs to the state, and is valid until the next
 * one. With micro-batches the values of all of them, [micro_batches, ...]. NULL before the first, and for an index that
 * there is not. */
TOW_API tow_array *tow_train_aux(const tow_train_state *state, size_t index);

/* Finished updates. */
TOW_API int64_t tow_train_step_count(const tow_train_state *state);
/* The position of the caller's data: any number that it wants back after loading. 0 at first. Set it when a step is
 * done (in a loop, in .on_step): the batch of a step that was cancelled comes again. */
TOW_API uint64_t tow_train_data_position(const tow_train_state *state);
TOW_API void tow_train_set_data_position(tow_train_state *state, uint64_t position);
/* Norm of all gradients of the last step, before clipping; 0 before the first step, and without .clip_norm or
 * .check_finite (then of the last micro-batch). */
TOW_API double tow_train_gradient_norm(const tow_train_state *state);
/* The optimizer: its numbers ("learning_rate/value") can be set between steps, its slots and reports looked at. Belongs
 * to the state, whose program updates it: tow_optimizer_update refuses it. */
TOW_API tow_optimizer_state *tow_train_optimizer(const tow_train_state *state);
/* Sets the learning rate of all steps from now on, in place of the schedule; NAN: the schedule again. Sets the number
 * "learning_rate/value" of every tow_scale_by_learning_rate of the optimizer. Error: TOW_NOT_FOUND if there is none. */
TOW_API tow_status tow_train_set_learning_rate(tow_train_state *state, double rate);
/* Of the next step; of the first one if there are several; NAN if there is none. */
TOW_API double tow_train_learning_rate(const tow_train_state *state);
/* The averages of the parameters, or NULL without .average. They belong to the state. */
TOW_API tow_params *tow_train_averages(const tow_train_state *state);
/* The parameters; they change with every step and belong to the state. */
TOW_API tow_params *tow_train_params(const tow_train_state *state);
/* The variables of all other collections ("batch_stats/norm/mean"), in the same way; an empty list if there are
 * none. */
TOW_API tow_params *tow_train_variables(const tow_train_state *state);
/* The graph (params..., variables..., inputs..., extra..., keys...) -> (loss, aux..., new variables...) before
 * differentiation, for tow_saved_residuals and printing, and the program that a step runs, of the batch size used last.
 * Both belong to the state. */
TOW_API const tow_graph *tow_train_loss_graph(const tow_train_state *state);
TOW_API const tow_program *tow_train_program(const tow_train_state *state);
/* The plans among which .memory_limit would choose the program of a step, for batches as the options have them, as
 * tow_memory_curve lists those of a graph: the bytes of a point are all bytes of a step, parameters, slots, averages,
 * variables and batch included. The state and its program stay as they are. Errors: those of tow_compile. */
TOW_API tow_status tow_train_memory_curve(tow_train_state *state, size_t size, tow_memory_point *points, size_t *n);

/* Planned bytes by kind; total is their sum: all that a training state holds while a step runs, from beginning to end,
 * and the caller's batch. A memory limit counts the same, without evaluation: total - evaluation is the number that it
 * bounds, for programs of one shape without .verify, which keeps more than a limit counts. (gpt calls the total the
 * peak. tow_program_draw_memory shows what is alive in the step's program, parameters, slots and the batch among it,
 * without the gaps of the arena.) */
typedef struct tow_train_bytes {
    size_t parameters, optimizer;
    size_t variables; /* of other collections */
    size_t residuals; /* made in the forward pass, read in the backward pass, by the largest program of a step */
    size_t
        workspace; /* the rest of its arena, gradients among it, which programs for all shapes share, and of all these
                        * programs the constants and the loss */
    size_t
        evaluation; /* of evaluation programs: constants, losses, and what the same arena is larger because of them */
    size_t averages;
    size_t total;
    /* Most bytes of whole gradients, which updates read last, that are alive at once in the largest program of a step.
     * They are a part of the arena, in memory of the workspace and of residuals that have been read, so the total does
     * not count them once more; with .early_update they are few. */
    size_t gradients;
    size_t batch; /* of the caller: inputs and extra arrays of a step, as the options have them */
    /* With a group: most bytes at once of parameters that are gathered and of memory in which sums of other processes
     * arrive, in the largest program of a step. Like gradients, they are a part of the arena and not counted once
     * more. */
    size_t exchange;
    /* Bytes of arrays that this process sends to others and receives in one such step, if each branch of a TOW_COND
     * runs: with branches that exchange, a step moves fewer. No part of the total. tow_program_get_collective of
     * tow_train_program lists the collectives that move them. */
    size_t sent, received;
} tow_train_bytes;
TOW_API tow_train_bytes tow_train_get_bytes(const tow_train_state *state);

/* ---- early stopping ---------------------------------------------------------------------------------------------- */

/* Watches a metric. It is better than the best so far if it is smaller by more than min_delta (flax.training's
 * EarlyStopping); the first one is. After `patience` values in a row that are not, the next such one says stop. NaN is
 * never better. */
typedef struct tow_early_stopping_options {
    size_t size TOW__SIZE(tow_early_stopping_options); /* set by TOW_EARLY_STOPPING_OPTIONS */
    int64_t patience;
    double min_delta;
    bool larger_is_better;
    bool restore_best; /* keeps copies of parameters, variables and averages of the best value, for
                        * tow_early_stopping_restore */
} tow_early_stopping_options;
#define TOW_EARLY_STOPPING_OPTIONS(...) TOW__OPTIONS(tow_early_stopping_options, __VA_ARGS__)

typedef struct tow_early_stopping tow_early_stopping;

/* The state lives longer. Errors: TOW_INVALID_ARGUMENT for negative numbers and NaN. */
TOW_API tow_status tow_early_stopping_create(tow_train_state *state, const tow_early_stopping_options *options,
                                             tow_early_stopping **stopping);
/* NULL is accepted. */
TOW_API void tow_early_stopping_free(tow_early_stopping *stopping);
/* The next value. improved and stop may be NULL; once it said stop, stop stays true. */
TOW_API tow_status tow_early_stopping_update(tow_early_stopping *stopping, double metric, bool *improved, bool *stop);
/* Its best value, and the step after which it was reached; NAN and 0 before the first one. */
TOW_API double tow_early_stopping_best(const tow_early_stopping *stopping, int64_t *step);
/* Puts the copies back into the state: parameters, variables and averages. Slots of the optimizer and the step stay.
 * Errors: TOW_INVALID_ARGUMENT without .restore_best, and before the first value. */
TOW_API tow_status tow_early_stopping_restore(tow_early_stopping *stopping);

/* ---- a loop ------------------------------------------------------------------------------------------------------ */

enum {
    TOW_MAX_METRICS = 16 /* of a loop */
};

typedef enum tow_metric_kind {
    TOW_METRIC_MEAN,       /* of all elements of aux value `aux` */
    TOW_METRIC_ACCURACY,   /* of the scores in aux value `aux` (tow_accuracy) */
    TOW_METRIC_PERPLEXITY, /* exp of the mean loss */
    TOW_METRIC_FUNCTIONS   /* what three functions make of the batches */
} tow_metric_kind;

/* A number that evaluations of a loop compute besides the loss. Zero means the default. */
typedef struct tow_metric {
    const char *name; /* any but "loss" */
    tow_metric_kind kind;
    size_t aux;    /* which value of the loss function's */
    size_t labels; /* accuracy: which array of the batch, inputs first and then extra, has the labels, */
    bool masked;   /* and whether */
    size_t mask;   /* array `mask` says which of them count */
    int64_t k;     /* accuracy: as in tow_accuracy_options */
    double threshold;
    /* TOW_METRIC_FUNCTIONS: before the first batch; after the evaluation of each, with tow_train_aux; after the
     * last. */
    void *user;
    void (*begin)(void *user);
    tow_status (*add)(tow_train_state *state, tow_array *const *inputs, void *user);
    double (*value)(void *user);
} tow_metric;

/* The progress of a loop, which its functions get. */
typedef struct tow_train_progress {
    tow_train_state *state;
    const struct tow_train_loop *loop;
    int64_t calls;     /* of tow_train_step in this loop; the state knows the number of updates */
    double loss;       /* of the last step */
    double seconds;    /* since the loop began */
    int64_t examples;  /* rows of the first input, of all steps of the loop */
    double evaluation; /* mean loss of the last evaluation, by rows or .weighted; NAN before the first one */
    double metrics[TOW_MAX_METRICS]; /* of the last evaluation, in the order of the loop's; see tow_train_metric */
    double metric;                   /* what .watch names; on_evaluation may write another one, which then decides */
    bool improved; /* the metric of the last evaluation was the best so far; in on_evaluation, that of this one */
    bool stop;     /* set it to end the loop */
} tow_train_progress;

/* Batches come from functions or from loaders (tow/data.h); other functions may be NULL. An error of one of them ends
 * the loop and is what tow_train_run returns. */
typedef struct tow_train_loop {
    size_t size TOW__SIZE(tow_train_loop); /* set by TOW_TRAIN_LOOP */
    void *user;                            /* what all functions get */
    /* The next batch for a step: writes inputs[n_inputs + n_extra], which stay valid until the next call, or *end. */
    tow_status (*batch)(tow_train_state *state, tow_array **inputs, bool *end, void *user);
    int64_t steps; /* ends when the state has done so many updates; 0: at the end of the batches */
    tow_status (*on_step)(tow_train_progress *progress, void *user);
    /* Every so many updates, and at the end: evaluation over batches 0, 1, ... until *end. */
    int64_t evaluate_every;
    tow_status (*evaluation_batch)(tow_train_state *state, int64_t index, tow_array **inputs, bool *end, void *user);
    bool evaluate_average; /* with the averages of the parameters */
    tow_status (*on_evaluation_batch)(tow_train_progress *progress, tow_array *const *inputs, void *user);
    tow_status (*on_evaluation)(tow_train_progress *progress, void *user);
    const tow_early_stopping_options *early_stopping; /* restores the best at the end, if it keeps that; NULL: none */
    int64_t save_every; /* updates; and at the end: tow_train_save to this path, NULL: never */
    const char *path;
    /* In place of .batch. It begins at the state's data position, which follows it from step to step, so that a loaded
     * checkpoint goes on with the batch that comes next. */
    tow_loader *loader;
    /* In place of .evaluation_batch: one epoch of it, from its first batch on, each time. */
    tow_loader *evaluation_loader;
    size_t n_metrics;
    const tow_metric *metrics;
    const char *watch;     /* the metric, or "loss", that early stopping and .best_path watch; NULL: "loss" */
    bool larger_is_better; /* of that metric; .early_stopping may say so as well */
    /* tow_train_save here after every evaluation that is the best so far. A loop that goes on from a checkpoint takes
     * the best value of the runs before it from this file (unless .early_stopping restores, which needs its own
     * copy). */
    const char *best_path;
} tow_train_loop;
#define TOW_TRAIN_LOOP(...) TOW__OPTIONS(tow_train_loop, __VA_ARGS__)

/* The value of a metric, or of "loss", in the last evaluation; NAN before the first one, and for a name that there is
 * not. */
TOW_API double tow_train_metric(const tow_train_progress *progress, const char *name);
/* Steps until one of the ends. last (may be NULL): the progress at the end, also after an error. After TOW_CANCELLED
 * the state is that after the last whole step. Errors: TOW_INVALID_ARGUMENT for a loop that misses what it needs; those
 * of steps, evaluation and saving. */
TOW_API tow_status tow_train_run(tow_train_state *state, const tow_train_loop *loop, tow_train_progress *last);

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* One safetensors file with "params/...", "state/COLLECTION/..." (variables), the optimizer's slots ("adam/mu/...",
 * "adam/nu/..." or "sgd/trace/..."), averages ("average/..."; layers of a scan one by one, so scanned and unrolled
 * models read each other's files), the metadata format, optimizer, step, seed, data_position, row_groups and
 * description, and checksums (tow/io.h). Written to a temporary file, synced and renamed: the file is the old one or
 * the whole new one, whatever happens. After an error the state can go on and be saved later. Errors: TOW_IO_ERROR
 * with the path, also where another process is writing it; TOW_INVALID_ARGUMENT after a load that failed halfway. */
TOW_API tow_status tow_train_save(const tow_train_state *state, const char *path);
/* The same file, byte for byte, by all processes of a group together, each of which writes its share of every tensor
 * (tow_safetensors_write_all). The processes have the same state, each its own copy of it. tow_train_load reads the
 * file with any number of processes. Errors: those of tow_train_save, the same in all processes, and
 * TOW_INVALID_ARGUMENT, with what differs, for states that differ in step, seed, data position or description. */
TOW_API tow_status tow_train_save_all(const tow_train_state *state, tow_group *group, const char *path);
/* Reads it back. Everything is checked before anything changes: names and types first, then the checksums, for which
 * the data are read once; then they are read again into the arrays of the state. Only if that second reading fails
 * (TOW_IO_ERROR, or TOW_BAD_FORMAT because somebody just wrote to the file) is the state a mixture; then it is neither
 * trained nor saved until a load succeeds. The seed is taken from the file. Any number of processes and .shard continue
 * with the same bits; another number of row groups would not, and is refused, unless .other_row_groups allows it.
 * Errors: those of tow_safetensors_read; TOW_BAD_FORMAT, TOW_NOT_FOUND, TOW_TYPE_MISMATCH with path, name, expected
 * and found. */
TOW_API tow_status tow_train_load(tow_train_state *state, const char *path);
/* The .row_groups of the state that wrote the checkpoint, for the options of one that is to go on with its bits; 0: the
 * file is of a version of Tow that did not write it. Errors: those of tow_safetensors_read; TOW_BAD_FORMAT. */
TOW_API tow_status tow_train_saved_row_groups(tow_context *context, const char *path, size_t *row_groups);

/* ---- a step in one program --------------------------------------------------------------------------------------- */

/* Value, gradient and update of a function of one's own, compiled into one program. Parameters and slots are updated in
 * place, each as soon as nothing needs its old value, so that whole gradients need not exist. */
typedef struct tow_step tow_step;

typedef struct tow_step_options {
    size_t size TOW__SIZE(tow_step_options); /* set by TOW_STEP_OPTIONS */
    size_t n_state;      /* so many inputs behind the parameters, variables of a model for instance, which the last
                         * n_state outputs replace in place */
    size_t memory_limit; /* bytes that a step may take (tow_compile_options); 0: no limit. The optimizer keeps what was
                          * found, so that one search is enough for all limits of this loss. */
    tow_shared_arena *shared_arena; /* NULL: an arena of its own */
    bool verify;                    /* compares what a step makes again with what it made first (tow_compile_options) */
    const tow_row_groups_options
        *row_groups; /* sums over rows as trees, micro-batches (tow_row_groups); in_axes: of the
                                                 inputs of the loss; NULL: none */
} tow_step_options;
#define TOW_STEP_OPTIONS(...) TOW__OPTIONS(tow_step_options, __VA_ARGS__)

/* loss: (params..., state..., inputs...) -> (loss, aux..., new state...), as tow_model_loss_graph makes it. params:
 * those of its first inputs, in their order, among them those of the optimizer, whose arrays both share. The optimizer,
 * the lists and the graph live longer. options may be NULL. Errors: those of tow_value_and_grad and tow_compile;
 * TOW_INVALID_ARGUMENT for parameters that the graph or the optimizer does not have; TOW_UNSUPPORTED for an optimizer
 * with .every, .skip_not_finite, .examples or .line_search. */
TOW_API tow_status tow_step_create(tow_optimizer_state *optimizer, const tow_params *params, const tow_graph *loss,
                                   const tow_step_options *options, tow_step **step);
/* NULL is accepted. */
TOW_API void tow_step_free(tow_step *step);
/* One step. inputs: state..., inputs... of the graph; outputs: loss, aux.... Allocates nothing. An error, TOW_CANCELLED
 * among them, has changed nothing, unless it is that of a function of the caller's own (tow/primitive.h) behind the
 * first update. */
TOW_API tow_status tow_step_run(tow_step *step, tow_array *const *inputs, tow_array *const *outputs);
/* The program, (params..., slots..., state..., inputs..., numbers...) -> (trainable params..., slots..., state...,
 * reports..., loss, aux...). Belongs to the step. */
TOW_API const tow_program *tow_step_program(const tow_step *step);

#ifdef __cplusplus
}
#endif
#endif

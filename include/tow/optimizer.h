/* Optimizers: a gradient transform with its slots and its program, over parameters that belong to the caller.
 * tow/gradient_transforms.h has the transforms and the schedules, tow/train.h the train state and a step in one
 * program.
 *
 *     tow_optimizer_state *optimizer;
 *     tow_optimizer_create(context, TOW_GRADIENT_TRANSFORM(&chain), params, NULL, &optimizer);
 *     while (...) {
 *         ...                                                       gradients of a batch
 *         tow_optimizer_update(optimizer, gradients);
 *     }
 *     tow_optimizer_free(optimizer);
 */
#ifndef TOW_OPTIMIZER_H
#define TOW_OPTIMIZER_H

#include "tow/gradient_transforms.h"
#include "tow/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An optimizer with its slots and its program, over parameters that belong to the caller. */
typedef struct tow_optimizer_state tow_optimizer_state;

typedef struct tow_optimizer_options {
    size_t size TOW__SIZE(tow_optimizer_options); /* set by TOW_OPTIMIZER_OPTIONS */
    /* Gradient accumulation: tow_optimizer_update adds gradients up, in f32 at least, and every so-many-th call updates
     * the parameters by their mean, or by their sum with .sum. The memory of one more set of gradients. (Optax:
     * MultiSteps.) 0: every call updates. */
    size_t every;
    bool sum;
    /* Calls have weights (tow_optimizer_set_weight): with gradients g of weights w, of means over w tokens for
     * instance, the parameters are updated by sum(w g) / sum(w), or by sum(w g) with .sum. */
    bool weighted;
    /* An update whose gradients are not all finite is left out, and nothing changes; but so many in a row at most, and
     * then the next one is made as it is. One more pass over the gradients. (Optax: apply_if_finite.) 0: none is left
     * out. */
    size_t skip_not_finite;
    /* Gradients are those of so many examples, [examples, ...] of each parameter (tow_per_example_grad), which the
     * first transform of the chain, TOW_DIFFERENTIALLY_PRIVATE_AGGREGATE, makes one of. 0: gradients have the types of
     * the parameters. */
    int64_t examples;
    bool line_search; /* tow_optimizer_line_search instead of tow_optimizer_update */
    /* The arena in which updates compute: that of the programs which make the gradients, as training states share it
     * (tow/program.h). NULL: one of its own. */
    tow_shared_arena *shared_arena;
    /* Parameters of bf16 and f16 are updated in f32: transforms see parameters, gradients and so slots of f32. With
     * .master the parameter in f32 is kept in the slot "master/weights/" and rounded to the nearest one that the
     * parameter holds; where that is not the parameter, because it was loaded or set since, the parameter counts. With
     * .stochastic_rounding nothing is kept: parameter plus update is rounded up or down at random, so that it is right
     * on average. Random bits are those of the key fold_in(fold_in(PRNGKey(seed), FNV-1a of the layer's path), number
     * of the update), so they depend neither on threads nor on how layers are stacked. Other parameters stay as they
     * are. One of the two; not with .line_search. */
    bool master, stochastic_rounding;
    uint64_t seed; /* of the roundings; its low 32 bits count, as in PRNGKey */
    /* Dynamic loss scaling, for gradients of f16: those that are given are of the loss times the scale, which is the
     * number "loss_scale/scale" (tow_optimizer_number); the update divides by it. Updates with gradients that are not
     * finite are left out, as with .skip_not_finite without an end and whatever that is, and halve the scale, down to
     * 1; the last of loss_scale_period finite ones in a row doubles it. A power of two, 65536 for instance; 0:
     * gradients are those of the loss. */
    double loss_scale;
    size_t loss_scale_period; /* 0: 2000 */
    /* 8: slots that are like a parameter of f32 (moments, not copies of parameters) are kept in 8 bits, in blocks of
     * 256 elements with a size each (tow_quantize_dynamic): 1.016 bytes instead of 4. Slots are decoded and encoded
     * where the update reads and writes them. "mu" is then the codes, u8[blocks, 256] behind the axes of layers, and
     * "mu_sizes" f32[blocks]. 0: slots are as their transform asks for them. (Dettmers and others, 2021) */
    int slot_bits;
    int64_t slot_bits_least; /* layers of fewer elements keep their slots; 0: 4096 */
} tow_optimizer_options;
#define TOW_OPTIMIZER_OPTIONS(...) TOW__OPTIONS(tow_optimizer_options, __VA_ARGS__)

/* Makes slots and program for the parameters that are not frozen (tow_params_freeze), whose arrays it shares. The
 * transform, with all that it points to, lives longer than the state. options may be NULL. Errors: what transforms
 * report, with the path of the parameter; TOW_TYPE_MISMATCH for a parameter that is not of a float type. */
TOW_API tow_status tow_optimizer_create(tow_context *context, const tow_gradient_transform *transform,
                                        tow_params *params, const tow_optimizer_options *options,
                                        tow_optimizer_state **state);
/* NULL is accepted. */
TOW_API void tow_optimizer_free(tow_optimizer_state *state);
/* One update of all parameters, in place, by gradients[0 .. tow_params_count), each of its parameter's type; frozen
 * parameters have none. No update with .every, if more gradients are to come, and with .skip_not_finite. Allocates
 * nothing. Errors: TOW_TYPE_MISMATCH, TOW_INVALID_ARGUMENT for a missing array; then nothing has changed. */
TOW_API tow_status tow_optimizer_update(tow_optimizer_state *state, tow_array *const *gradients);
/* The same by a list of gradients with the paths of the parameters, in their order, as tow_model_function_call gives
 * it. Error: also TOW_INVALID_ARGUMENT for other paths, with the first that differs; then nothing has changed. */
TOW_API tow_status tow_optimizer_update_params(tow_optimizer_state *state, const tow_params *gradients);
/* tow_optimizer_update with the loss that the gradients are of, for transforms that take it (tow_update_loss); with
 * .every the mean of the losses counts. Without it tow_optimizer_update is an error for them: TOW_INVALID_ARGUMENT,
 * with the transform's name. */
TOW_API tow_status tow_optimizer_update_with(tow_optimizer_state *state, tow_array *const *gradients, double loss);
/* The loss at the current values of the parameters, and its gradients into arrays of their types, which belong to the
 * caller. Any status but TOW_OK ends the search. */
typedef tow_status (*tow_loss_and_gradients)(double *loss, tow_array *const *gradients, void *user);
/* The line search of Nocedal and Wright (Numerical Optimization, 2006, algorithms 3.5 and 3.6) with the approximate
 * decrease of Hager and Zhang (2006, equation 23); Optax: scale_by_zoom_linesearch. */
typedef struct tow_line_search_options {
    size_t size TOW__SIZE(tow_line_search_options); /* set by TOW_LINE_SEARCH_OPTIONS */
    int max_steps;                                  /* calls of the function after the first one; 0: 20 */
    double max_learning_rate;                       /* 0: none */
    double tol;
    double increase_factor;    /* 0: 2 */
    double slope_rtol;         /* of sufficient decrease; 0: 1e-4 */
    double curv_rtol;          /* of small curvature; 0: 0.9 */
    double approx_dec_rtol;    /* 0: 1e-6; negative: no approximate decrease */
    double stepsize_precision; /* of the interval; 0: 1e-5 */
    bool keep_learning_rate;   /* it begins with the last rate instead of 1 */
    bool new_function;         /* the function changes: its value is not taken from the last search */
} tow_line_search_options;
#define TOW_LINE_SEARCH_OPTIONS(...) TOW__OPTIONS(tow_line_search_options, __VA_ARGS__)
typedef struct tow_line_search_result {
    double loss, learning_rate; /* where the parameters are now */
    int calls;                  /* of the function */
    double decrease_error, curvature_error;
    /* no rate meets both conditions; the parameters are where one with enough decrease, or none, led them */
    bool failed;
} tow_line_search_result;
/* One update along the direction that the transform makes of the gradients, at a rate that decreases the loss enough:
 * the function is called with the parameters at each trial. For a state with .line_search; options may be NULL, result
 * too. Parameters of f32 and f64. Errors: what the function returns, then the parameters are what they were, and the
 * transform has seen their gradients. */
TOW_API tow_status tow_optimizer_line_search(tow_optimizer_state *state, const tow_line_search_options *options,
                                             tow_loss_and_gradients function, void *user,
                                             tow_line_search_result *result);
/* Finished updates. */
TOW_API int64_t tow_optimizer_step_count(const tow_optimizer_state *state);
TOW_API void tow_optimizer_set_step_count(tow_optimizer_state *state, int64_t step);
/* With .weighted: the weight of the gradients of the calls that follow; 1 at first. A weight that is negative or not
 * finite is the error TOW_INVALID_ARGUMENT of the call, as is a last one where all are 0; gradients of weight 0 count
 * for nothing, NaN included. */
TOW_API void tow_optimizer_set_weight(tow_optimizer_state *state, double weight);
/* With .every: calls whose gradients wait for an update; these are forgotten by tow_optimizer_forget_gradients. */
TOW_API size_t tow_optimizer_gathered_count(const tow_optimizer_state *state);
TOW_API void tow_optimizer_forget_gradients(tow_optimizer_state *state);
/* With .skip_not_finite: updates that were left out since the state was made; *in_a_row (may be NULL): since the last
 * one with finite gradients, made as they are or not. */
TOW_API int64_t tow_optimizer_skipped_count(const tow_optimizer_state *state, int64_t *in_a_row);
/* Fixes number `name` ("learning_rate/value") to `value` from now on, NAN: gives it back to its schedule. Error:
 * TOW_NOT_FOUND, with the names that there are. */
TOW_API tow_status tow_optimizer_set_number(tow_optimizer_state *state, const char *name, double value);
/* The value that number `name` has in the next update; NAN if there is none of that name. */
TOW_API double tow_optimizer_number(const tow_optimizer_state *state, const char *name);
/* The number that a transform reported in the last update ("clip/norm"); 0 before the first one, NAN if nothing is
 * called so. */
TOW_API double tow_optimizer_reported(const tow_optimizer_state *state, const char *name);
/* The slots, group by group: "adam/mu/" with an array for each parameter that has it, named as the parameter. Axes of
 * layers are in front, also of a parameter that has them elsewhere: "blocks/{}/kernel" is a slot of
 * "blocks/{@1}/kernel". */
TOW_API size_t tow_optimizer_slot_count(const tow_optimizer_state *state);
TOW_API const char *tow_optimizer_slot_prefix(const tow_optimizer_state *state, size_t index);
TOW_API tow_params *tow_optimizer_slot(const tow_optimizer_state *state, size_t index);
/* The slot of this prefix; NULL: there is none. */
TOW_API tow_params *tow_optimizer_find_slot(const tow_optimizer_state *state, const char *prefix);
/* The parameters x of a schedule-free optimizer, (y - (1-b1) z) / b1 with y the parameters, for evaluation: a list of
 * its own. Before the first update: a copy of the parameters. Errors: TOW_NOT_FOUND for a transform that the optimizer
 * does not have, TOW_OUT_OF_MEMORY. Processes that share slots (.shard of tow_train_options) call it together. */
TOW_API tow_status tow_schedule_free_params(const tow_optimizer_state *state, const tow_schedule_free *transform,
                                            tow_params **params);
/* Bytes of all slots. */
TOW_API size_t tow_optimizer_bytes(const tow_optimizer_state *state);
/* The graph (parameters..., gradients..., slots..., numbers...) -> (parameters..., slots..., reports...), and the
 * program that an update runs; NULL for the optimizer of a training state. Both belong to the state. */
TOW_API const tow_graph *tow_optimizer_graph(const tow_optimizer_state *state);
TOW_API const tow_program *tow_optimizer_program(const tow_optimizer_state *state);

#ifdef __cplusplus
}
#endif
#endif

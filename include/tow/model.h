/* Whole models: drawing their parameters, and tracing them to graphs over given ones. */
#ifndef TOW_MODEL_H
#define TOW_MODEL_H

#include "tow/module.h"
#include "tow/params.h"
#include "tow/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In .mutable_collections: all that .state has. */
#define TOW_EVERY_COLLECTION "*"

/* How a model is called. Streams of random keys are names; each is one more u32[2] input of the graph, after the
 * model's inputs. */
typedef struct tow_model_options {
    const char *const *streams; /* NULL-terminated; NULL: none */
    size_t n_outputs;           /* of the model; 0: 1 */
    bool deterministic;         /* evaluation: layers such as Dropout are the identity and draw nothing */
    const tow_params *state;    /* variables besides the parameters, from tow_init_with_options; NULL: none */
    /* Collections that the call may change. Their new values are outputs of the graph after all others: the variables
     * of `state` in these collections in their order, written or not, then what was sown. NULL-terminated; NULL: none.
     * Error: TOW_NOT_FOUND for a name under which the model has nothing. */
    const char *const *mutable_collections;
    tow_params **updates; /* receives these outputs: paths, types, and arrays that a run can write; NULL: not wanted */
} tow_model_options;

/* Traces the model on inputs of the given types, and draws its parameters from PRNGKey(seed). Error:
 * TOW_INVALID_ARGUMENT if it has variables in other collections.
 * What is initialised can be saved. Names of children, parameters, variables and collections are UTF-8 without '/', not
 * empty, and neither "{}" nor "__metadata__"; and no two layers may have one path on disk, as iteration 0 of a scan "f" and
 * a child "0" of a scope "f" would. Errors: TOW_INVALID_ARGUMENT, with both paths. */
TOW_API tow_status tow_init(tow_context *context, const tow_module *model, uint64_t seed, size_t n_inputs,
                            const tow_type *input_types, tow_params **params);
/* The same for models with several outputs or with variables in other collections than "params": these go to *state
 * (NULL: there must be none). Streams need no keys here: nothing is computed but initial values, and writes do not
 * count. */
TOW_API tow_status tow_init_with_options(tow_context *context, const tow_module *model, uint64_t seed, size_t n_inputs,
                                         const tow_type *input_types, const tow_model_options *options,
                                         tow_params **params, tow_params **state);
/* A function of the model's outputs: what tow_forward and tow_loss add after the model. outputs: n_out of the model;
 * extra: inputs that the model does not see (labels). Writes the scalar *loss and aux[0..n_aux), with the n_aux that was
 * given to tow_loss; aux is NULL where that is 0, as in training. A write within 64 values behind aux is found when the
 * function returns (TOW_INVALID_ARGUMENT). */
typedef void (*tow_loss_function)(tow_trace *trace, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                                  tow_value *aux, void *user);
/* Graph (params..., state..., inputs..., stream keys...) -> (outputs..., updates...). params and .state give paths and
 * types (from tow_init). Error: TOW_INVALID_ARGUMENT if a layer writes a variable of an immutable collection. */
TOW_API tow_status tow_forward(const tow_module *model, const tow_params *params, size_t n_inputs,
                               const tow_type *input_types, const tow_model_options *options, tow_graph **graph);
/* Graph (params..., state..., inputs..., extra..., stream keys...) -> (loss, aux..., updates...). Differentiate it with
 * respect to inputs 0..tow_params_count-1. */
TOW_API tow_status tow_loss(const tow_module *model, const tow_params *params, size_t n_inputs,
                            const tow_type *input_types, size_t n_extra, const tow_type *extra_types,
                            tow_loss_function loss, void *user, size_t n_aux, const tow_model_options *options,
                            tow_graph **graph);

#ifdef __cplusplus
}
#endif
#endif

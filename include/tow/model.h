/* Whole models: drawing their parameters, and tracing them to graphs over given ones. */
#ifndef TOW_MODEL_H
#define TOW_MODEL_H

#include "tow/module.h"
#include "tow/params.h"
#include "tow/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Options of a call of a model. Streams of random keys are names; each is one more u32[2] input of the graph, after the
 * model's inputs. */
typedef struct tow_model_options {
    size_t size TOW__SIZE(tow_model_options); /* set by TOW_MODEL_OPTIONS */
    const char *const *streams;               /* NULL-terminated; NULL: none */
    size_t n_outputs;                         /* of the model; 0: 1 */
    bool deterministic;                       /* evaluation: layers such as Dropout are the identity and draw nothing */
    /* of scans that say nothing else: initial values and random keys; the same in all calls */
    tow_scan_keys keys;
    const tow_params *state; /* variables besides the parameters, from tow_model_init_with; NULL: none */
    /* Collections that the call may change. Their new values are outputs of the graph after all others: the variables
     * of `state` in these collections in their order, written or not, then what was sown. NULL-terminated; NULL: none.
     * Error: TOW_NOT_FOUND for a name under which the model has nothing. */
    const char *const *mutable_collections;
    /* The model is a part of a larger one: it is called in the scope at this path ("encoder"), where it has the
     * parameters, variables and random keys that it has in the whole. Lists of the whole are given, and what is not
     * below the path does not matter. NULL: it is the whole. (Flax: module.bind) */
    const char *at;
    /* Patterns (tow_path_matches) of layers whose outputs are handed out with what is sown:
     * "intermediates/PATH/__call__/0", one number for each output of each call, where the path is that of
     * tow_model_summary ("blocks/{}/attn"; of the model itself ""). The collection "intermediates" becomes mutable by
     * it. NULL-terminated; NULL: none. Layers that are called in functions given to operations, such as
     * tow_remat_function, are left out. Errors: TOW_NOT_FOUND for a pattern that matches no layer, TOW_UNSUPPORTED for
     * one that matches only such layers. "PATH:NAME" stands for the outputs of a method with a name (TOW_METHOD),
     * "intermediates/PATH/NAME/0". (Flax: capture_intermediates) */
    const char *const *capture;
    tow_params **updates; /* receives these outputs: paths, types, and arrays that a run can write; NULL: not wanted */
} tow_model_options;
#define TOW_MODEL_OPTIONS(...) TOW__OPTIONS(tow_model_options, __VA_ARGS__)

/* Traces the model on inputs of the given types, and draws its parameters from PRNGKey(seed). Error:
 * TOW_INVALID_ARGUMENT if it has variables in other collections.
 * Every model that can be initialized can be saved: names of children, parameters, variables and collections are UTF-8
 * without '/', not empty, and neither "{}" nor "__metadata__"; and no two layers may have one path on disk, as
 * iteration 0 of a scan "f" and a child "0" of a scope "f" would. Errors: TOW_INVALID_ARGUMENT, with both paths.
 * The model, and what its layers point to, lives while it is traced: a layer or a list that a function which has
 * returned left on the stack is TOW_INVALID_ARGUMENT, here and in all
 * functions that take a model (docs/where-layers-live.md). */
TOW_API tow_status tow_model_init(tow_context *context, const tow_module *model, uint64_t seed, size_t n_inputs,
                                  const tow_type *input_types, tow_params **params);
/* The same for models with several outputs or with variables in other collections than "params": these go to *state
 * (NULL: there must be none). Streams need no keys here: nothing is computed but initial values, and writes do not
 * count. */
TOW_API tow_status tow_model_init_with(tow_context *context, const tow_module *model, uint64_t seed, size_t n_inputs,
                                       const tow_type *input_types, const tow_model_options *options,
                                       tow_params **params, tow_params **state);
/* A function of the model's outputs: what tow_model_forward_graph and tow_model_loss_graph add after the model.
 * outputs: those of the model; extra: inputs that the model does not see (labels). Writes the scalar *loss and
 * aux[0..n_aux), with the n_aux that was given to tow_model_loss_graph; aux is NULL where that is 0, as in training. A
 * write within 64 values behind aux is found when the function returns (TOW_INVALID_ARGUMENT). */
typedef void (*tow_loss_function)(tow_trace *trace, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                                  tow_value *aux, void *user);
/* Graph (params..., state..., inputs..., stream keys...) -> (outputs..., updates...). params and .state give paths and
 * types (from tow_model_init). Error: TOW_INVALID_ARGUMENT if a layer writes a variable of an immutable collection. */
TOW_API tow_status tow_model_forward_graph(const tow_module *model, const tow_params *params, size_t n_inputs,
                                           const tow_type *input_types, const tow_model_options *options,
                                           tow_graph **graph);
/* Graph (params..., state..., inputs..., extra..., stream keys...) -> (loss, aux..., updates...). Differentiate it with
 * respect to inputs 0..tow_params_count-1. */
TOW_API tow_status tow_model_loss_graph(const tow_module *model, const tow_params *params, size_t n_inputs,
                                        const tow_type *input_types, size_t n_extra, const tow_type *extra_types,
                                        tow_loss_function loss, void *user, size_t n_aux,
                                        const tow_model_options *options, tow_graph **graph);

/* ---- a model as a function of arrays ----------------------------------------------------------------------------- */

/* A model made callable. A call gets arrays of any shapes that the model takes; for each combination of their types a
 * program is compiled when it first comes, and kept. All of these programs share the parameters, the variables, the
 * arrays that gradients and new variables are written to, and one arena (tow_shared_arena), since one thread runs them
 * one after the other. After the first call with inputs of some types, others of the same
 * types allocate nothing.
 *
 *     tow_model_function_options options =
 *         TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .n_extra = 1, .loss = mean_cross_entropy);
 *     tow_model_function_create_value_and_grad(TOW_MODULE(&model), params, &options, &function);
 *     tow_optimizer_create(context, TOW_GRADIENT_TRANSFORM(&sgd), params, NULL, &optimizer);
 *     for (int step = 0; step < 1000; step++) {
 *         tow_model_arguments arguments = TOW_MODEL_ARGUMENTS(.inputs = &x, .extra = &labels, .step = step);
 *         tow_model_function_call(function, &arguments, &results);
 *         tow_optimizer_update_params(optimizer, results.gradients);
 *     } */
typedef struct tow_model_function tow_model_function;

/* The model, and what the options point to, live as long as the function. */
typedef struct tow_model_function_options {
    size_t size TOW__SIZE(tow_model_function_options); /* set by TOW_MODEL_FUNCTION_OPTIONS */
    size_t n_inputs;                                   /* what the model takes */
    size_t n_extra;                                    /* what only the loss function sees (labels) */
    tow_loss_function loss;
    void *loss_user;
    size_t n_aux;                   /* values besides the loss that `loss` writes */
    const tow_model_options *model; /* NULL: none. .updates is left NULL */
    /* Patterns (tow_path_matches) of the parameters that gradients are taken of, NULL-terminated; NULL: all. Frozen
     * ones (tow_params_freeze) are left out in either case. */
    const char *const *wrt;
    const tow_compile_options *compile; /* NULL: subnormal numbers are taken as zeros, as in training states */
    size_t limit;                       /* programs that are kept (tow_program_cache_options); 0: 8 */
} tow_model_function_options;
#define TOW_MODEL_FUNCTION_OPTIONS(...) TOW__OPTIONS(tow_model_function_options, __VA_ARGS__)

/* The arguments of a call. */
typedef struct tow_model_arguments {
    size_t size TOW__SIZE(tow_model_arguments); /* set by TOW_MODEL_ARGUMENTS */
    /* Other values for the parameters and variables that the function was made with: the same paths, in any order, with
     * the same types. NULL: those that it was made with, as they are at the time of the call. */
    const tow_params *params, *state;
    tow_array *const *inputs, *const *extra; /* [n_inputs], [n_extra] */
    /* The keys of the streams, one for each; NULL: that of stream i is fold_in(fold_in(PRNGKey(seed), i), step), as in
     * training states. */
    const uint32_t (*keys)[2];
    uint64_t seed;
    uint32_t step;
} tow_model_arguments;
#define TOW_MODEL_ARGUMENTS(...) TOW__OPTIONS(tow_model_arguments, __VA_ARGS__)

/* The results of a call. All of them belong to the function: gradients and updates are overwritten by the next call,
 * outputs and sown values by the next one with inputs of the same types, and they go with their program when the cache
 * drops it. */
typedef struct tow_model_results {
    double loss; /* 0 without a loss function */
    size_t n_outputs;
    tow_array *const *outputs; /* the model's outputs; with a loss function, aux[0..n_aux) */
    tow_params *gradients;     /* paths and types of the parameters that they belong to; NULL without */
    tow_params *updates; /* new values of the variables in mutable collections, by their paths: tow_params_assign puts
                                * them into the state */
    tow_params *sown;    /* what was sown or captured */
    const tow_program *program;
} tow_model_results;

/* jax.value_and_grad(has_aux=True) of loss(model(params, ...)), with respect to parameters. Traces nothing yet.
 * Errors: TOW_INVALID_ARGUMENT without a loss function, or if no parameter is left to differentiate; TOW_NOT_FOUND for
 * a pattern in .wrt that no parameter matches. */
TOW_API tow_status tow_model_function_create_value_and_grad(const tow_module *model, const tow_params *params,
                                                            const tow_model_function_options *options,
                                                            tow_model_function **function);
/* The same without gradients: of the model's outputs, or of loss and aux values if there is a loss function; with
 * .model->deterministic, evaluation. */
TOW_API tow_status tow_model_function_create(const tow_module *model, const tow_params *params,
                                             const tow_model_function_options *options, tow_model_function **function);
/* NULL is accepted. */
TOW_API void tow_model_function_free(tow_model_function *function);
/* Runs the program for inputs of these types, which is compiled if there is none.
 * Errors: those of tow_model_loss_graph or tow_model_forward_graph, tow_value_and_grad and tow_compile; TOW_NOT_FOUND
 * and TOW_TYPE_MISMATCH for parameters or variables that are not those of the function, with the path;
 * TOW_INVALID_ARGUMENT for a missing array. */
TOW_API tow_status tow_model_function_call(tow_model_function *function, const tow_model_arguments *arguments,
                                           tow_model_results *results);
/* Compiles the program for inputs of these types beforehand, so that errors show and calls allocate nothing. */
TOW_API tow_status tow_model_function_prepare(tow_model_function *function, const tow_type *input_types,
                                              const tow_type *extra_types);

/* One of the programs of a function. */
typedef struct tow_model_program {
    const tow_type *types;      /* of the inputs, then the extra ones */
    const tow_program *program; /* tow_program_get_bytes says its exact bytes */
    /* Graph (params..., state..., inputs..., extra..., stream keys...) -> (loss, aux..., updates..., sown...), or the
     * model's outputs in place of loss and aux: to differentiate otherwise (tow_hessian, tow_vmap), to print, for
     * tow_saved_residuals. */
    const tow_graph *graph;
    const tow_graph *gradient; /* the same with gradients behind the results; NULL without */
} tow_model_program;
/* The number of programs that there are now, and one of them: index 0 ran last. An index behind the last one gives a
 * struct of zeros. */
TOW_API size_t tow_model_function_program_count(const tow_model_function *function);
TOW_API tow_model_program tow_model_function_program(const tow_model_function *function, size_t index);
/* Bytes of the one arena that all programs of the function share: those of the largest that was made so far. A
 * program's tow_program_get_bytes says how many of them it needs. With .compile.shared_arena, of that one. */
TOW_API size_t tow_model_function_arena_bytes(const tow_model_function *function);
/* The parameters that gradients are taken of: how many, and which inputs of .graph they are, in increasing order. */
TOW_API size_t tow_model_function_wrt(const tow_model_function *function, const size_t **indices);

/* ---- summaries --------------------------------------------------------------------------------------------------- */

/* A summary lists the layers of a model with shapes, parameters, work and memory. (Flax: nn.tabulate) */
typedef struct tow_model_summary tow_model_summary;

/* One layer, or the model itself, whose path is "". All calls in scopes of one path are one layer: a scan's body,
 * "blocks/{}", counts for all iterations together. Layers are in the order of their first calls. A layer that is a part
 * of the model stands for everything below it, too: sums of all layers would count that again. */
typedef struct tow_layer_summary {
    const char *path, *name; /* name: of its class, "Dense"; "Remat(Dense)" where one wraps the other in one scope */
    int depth;               /* components of the path */
    size_t calls;
    size_t n_inputs, n_outputs; /* of the first call; in the body of a scan of one iteration */
    const tow_type *inputs, *outputs;
    int64_t own_parameters, parameters;     /* elements: its own, and with those below it */
    size_t parameter_bytes, variable_bytes; /* with those below it */
    /* Floating-point operations of the model's forward pass in this layer and those below it. Products, convolutions
     * and attention count 2 for each pair that is multiplied and added, without masks; reductions one less than they
     * take for each result; elementwise operations one for each result; moves nothing. All iterations of scans count,
     * of other loops as many as their bounds say. */
    double flops;
    /* The same of the backward pass, for the gradient with respect to parameters and inputs, what remat computes again
     * included; NaN if the model cannot be differentiated. Flax's vjp_flops are the sum of both. */
    double backward_flops;
    /* of values that this layer makes in the forward pass, and those below it, and the backward pass reads
     * (tow_saved_residuals); parameters and inputs, which are there anyway, do not count */
    size_t kept_bytes;
} tow_layer_summary;

/* Traces the model as tow_model_forward_graph does. Errors: those of tow_model_forward_graph. That there is no gradient
 * is none. */
TOW_API tow_status tow_model_summary_create(const tow_module *model, const tow_params *params, size_t n_inputs,
                                            const tow_type *input_types, const tow_model_options *options,
                                            tow_model_summary **summary);
/* NULL is accepted. */
TOW_API void tow_model_summary_free(tow_model_summary *summary);
/* The number of layers, and one of them: index 0 is the model. An index behind the last one gives a struct of zeros.
 * The texts and arrays of the struct belong to the summary. */
TOW_API size_t tow_model_summary_layer_count(const tow_model_summary *summary);
TOW_API tow_layer_summary tow_model_summary_layer(const tow_model_summary *summary, size_t index);
/* Why there are no figures of the backward pass, or NULL. */
TOW_API const char *tow_model_summary_no_gradient(const tow_model_summary *summary);

typedef struct tow_summary_text_options {
    size_t size TOW__SIZE(tow_summary_text_options); /* set by TOW_SUMMARY_TEXT_OPTIONS */
    int depth; /* rows of layers whose paths have at most so many components; 0: all */
    /* also a line for each value that is kept for the backward pass: its layer, type, bytes, what it is, and where it
     * is made */
    bool kept;
} tow_summary_text_options;
#define TOW_SUMMARY_TEXT_OPTIONS(...) TOW__OPTIONS(tow_summary_text_options, __VA_ARGS__)
/* A table; options may be NULL. A row's parameters and bytes are its own and those of layers below it that have no row,
 * so that they add up to the total; its other figures are those of tow_layer_summary. Like snprintf. */
TOW_API size_t tow_model_summary_text(const tow_model_summary *summary, const tow_summary_text_options *options,
                                      char *text, size_t size);
/* {"layers": [{"path", "layer", "calls", "inputs", "outputs", "parameters": [{"path", "kind", "type", "count",
 * "bytes"}], "variables", "own_parameter_count", "parameter_count", "parameter_bytes", "variable_bytes", "flops",
 * "backward_flops", "kept_bytes", "kept": [{"type", "bytes", "what", "here"}]}], "total": {...}}: parameters, variables
 * and kept values are the layer's own, the numbers those of tow_layer_summary, null without a backward pass. Like
 * snprintf. */
TOW_API size_t tow_model_summary_json(const tow_model_summary *summary, char *text, size_t size);

/* ---- programs by the types of their inputs ----------------------------------------------------------------------- */

/* A small cache of programs that compute the same for inputs of different types: batch sizes, lengths of sequences.
 * When one more than `limit` was made, the one that was used least recently is freed. */
typedef struct tow_program_cache tow_program_cache;

typedef struct tow_program_cache_options {
    size_t size TOW__SIZE(tow_program_cache_options); /* set by TOW_PROGRAM_CACHE_OPTIONS */
    size_t n_types;                                   /* of a program */
    size_t limit;                                     /* programs that are kept; 0: 8 */
    /* Makes the program for these types[n_types], and in *data what the caller wants to keep beside it. */
    tow_status (*make)(const tow_type *types, tow_program **program, void **data, void *user);
    void (*free_data)(void *data, void *user); /* when the program is freed; NULL: there is nothing to free */
    void *user;
} tow_program_cache_options;
#define TOW_PROGRAM_CACHE_OPTIONS(...) TOW__OPTIONS(tow_program_cache_options, __VA_ARGS__)

typedef struct tow_cached_program {
    const tow_type *types;
    tow_program *program;
    void *data;
} tow_cached_program;

/* Error: TOW_INVALID_ARGUMENT without .make. */
TOW_API tow_status tow_program_cache_create(tow_context *context, const tow_program_cache_options *options,
                                            tow_program_cache **cache);
/* Frees the programs as well. NULL is accepted. */
TOW_API void tow_program_cache_free(tow_program_cache *cache);
/* The program for inputs of these types, made if it is not there. It is valid until as many others as `limit` says were
 * asked for. After an error of .make the cache is as before. */
TOW_API tow_status tow_program_cache_get(tow_program_cache *cache, const tow_type *types, tow_cached_program *program);
/* The number of programs in the cache, and one of them: index 0 was used last. An index behind the last one gives a
 * struct of zeros. */
TOW_API size_t tow_program_cache_count(const tow_program_cache *cache);
TOW_API tow_cached_program tow_program_cache_at(const tow_program_cache *cache, size_t index);
/* The number of programs that were made so far, with those that have been freed. */
TOW_API size_t tow_program_cache_made_count(const tow_program_cache *cache);

#ifdef __cplusplus
}
#endif
#endif

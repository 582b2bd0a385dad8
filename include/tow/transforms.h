/* Lifted transforms: remat and scan take a layer and are layers, so that they compose in any order: scan(remat(block)),
 * remat(scan(block)), remat(scan(remat(block))). Wrapping changes neither parameter names nor initial values nor random
 * streams: remat calls the layer in its own scope, scan adds the iteration as one component of the path. Variables that
 * the layer writes change once per call, whatever is recomputed. */
#ifndef TOW_TRANSFORMS_H
#define TOW_TRANSFORMS_H

#include "tow/autodiff.h"
#include "tow/module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- remat: recomputes in reverse mode what a policy does not save ----------------------------------------------- */
/* The layer `inner`; reverse mode keeps what `policy` permits of what happens in it and recomputes the rest.
 *     tow_remat cheap = TOW_REMAT(&block, .policy = tow_dots_with_no_batch_dims_saveable());
 * Error: a policy that refers to a checkpoint name which `inner` does not use; the message lists those that it uses. */
typedef struct tow_remat {
    tow_module module;
    const tow_module *inner;
    tow_policy policy; /* zero: tow_nothing_saveable() */
} tow_remat;
#define TOW_REMAT(...) TOW__WRAPPER(tow_remat, __VA_ARGS__)

/* ---- scan: a stack of layers as one loop ------------------------------------------------------------------------- */

/* Where the random keys of iteration i come from. */
typedef enum tow_scan_keys {
    TOW_KEYS_PATH, /* as those of a layer with path "blocks/i" */
    TOW_KEYS_FLAX  /* as in flax.linen.scan with split_rngs of every stream: split(root, length)[i], path without i */
} tow_scan_keys;

/* `length` copies of the layer `inner`, one after the other, each with its own parameters and random keys:
 *     tow_scan blocks = TOW_SCAN(&block, .length = 12);
 * Inputs:  carry[n_carry], broadcast[n_broadcast] (seen whole by each iteration), xs... (arrays [length, ...]).
 * Outputs: carry[n_carry], ys... (arrays [length, ...]).
 * `inner` sees (carry, broadcast, x of its iteration) and gives (carry, y). The types of the carry must not change.
 * Under a scope "blocks", iteration i has the path "blocks/i"; in memory its parameters and variables are rows of
 * stacked arrays. Rules say what is different: .variables and .streams (tow/lifting.h) share, carry or hide variables and
 * streams of random keys by collection and by path. What is shared has the path without "i", and is drawn by it:
 *     tow_scan rnn = TOW_SCAN(&cell, .variables = TOW_RULES({"params", TOW_SHARED}));     one set of parameters
 * .shared_collections is short for rules by which collections are carried, and parameters shared.
 * unrolled gives the bits of the loop, except in gradients of a parameter that one iteration reads more than once in a
 * stack that is itself applied more than once: a loop adds up what comes from one application first.
 * Errors: a shared collection in which `inner` declares no variable, a rule that nothing matches, TOW_CARRIED for parameters or
 * streams, a write to what is TOW_SHARED. */
typedef struct tow_scan {
    tow_module module;
    const tow_module *inner;
    int64_t length; /* 0 with xs: their leading axis */
    bool empty;     /* length 0 is meant: no iterations */
    bool reverse;   /* from the last iteration to the first; xs and ys stay in place */
    bool unrolled;  /* record every iteration by itself, parameters unstacked; same names on disk, values and bits */
    size_t n_carry; /* 0: one */
    size_t n_broadcast;
    tow_scan_keys keys;
    const char *const *shared_collections; /* NULL-terminated; NULL: none */
    const tow_lift_rule *variables;        /* of parameters and variables; NULL: all are stacked */
    const tow_lift_rule *streams;          /* of streams of random keys ("dropout"); NULL: all are split */
} tow_scan;
#define TOW_SCAN(...) TOW__WRAPPER(tow_scan, __VA_ARGS__)

/* ---- WeightNorm: a layer whose kernels have norms that are learned ----------------------------------------------- */
/* The layer `inner`, which sees its kernels as w rsqrt(sum(w^2) + epsilon) scale, with the sum over the axes that are not features.
 * Beside a parameter "kernel" stands "WeightNorm/kernel/scale", of the sizes of its feature axes: at first all norms are 1. */
typedef struct tow_weight_norm {
    tow_module module;
    const tow_module *inner;
    const char *const *filter;  /* NULL-terminated; parameters in whose path below this layer one is; NULL: "kernel" */
    bool everything;            /* all parameters */
    int n_axes;                 /* 0: one, the last */
    int axes[TOW_MAX_RANK];     /* of features, n_axes of them; may be negative */
    bool whole;                 /* one norm of each whole parameter */
    bool no_scale;              /* norms stay 1 */
    double epsilon;             /* 0: 1e-12 */
    tow_initializer scale_init; /* ones */
} tow_weight_norm;
#define TOW_WEIGHT_NORM(...) TOW__WRAPPER(tow_weight_norm, __VA_ARGS__)

/* ---- SpectralNorm: a layer whose kernels have the largest singular value 1 --------------------------------------- */
/* The layer `inner`, which sees its parameters of rank 2 and more divided by sigma, an estimate of their largest singular value (of
 * [..., out] as a matrix of `out` columns). n_steps of power iteration begin with the vector u of the call before: variables
 * "batch_stats" "SpectralNorm/kernel/u" [1, out], drawn from N(0, 1), and "sigma" [] beside a parameter "kernel". A call in training
 * (without tow_model_options.deterministic) writes both, for which "batch_stats" must be mutable. */
typedef struct tow_spectral_norm {
    tow_module module;
    const tow_module *inner;
    int64_t n_steps;    /* 0: 1 */
    double epsilon;     /* of the vectors' norms; 0: 1e-12 */
    bool keep_stats;    /* write nothing in training either */
    bool matrices_only; /* parameters of rank 3 and more are an error */
} tow_spectral_norm;
#define TOW_SPECTRAL_NORM(...) TOW__WRAPPER(tow_spectral_norm, __VA_ARGS__)

/* ---- Precision: the element types of all layers in it ------------------------------------------------------------ */
/* The layer `inner`, in which .dtype and .param_dtype are the defaults of all layers that do not set theirs. Mixed precision, that
 * is computing in bf16 with parameters, and their gradients, in f32:
 *     tow_precision model = TOW_PRECISION(&transformer, .dtype = TOW_BF16, .output_dtype = TOW_AS_F32);
 * Parameters that are stored in bf16: .param_dtype = TOW_BF16. Within another TOW_PRECISION, zero is what that one says. */
typedef struct tow_precision {
    tow_module module;
    const tow_module *inner;
    tow_layer_dtype dtype, param_dtype; /* tow_layer_dtype in tow/module.h */
    tow_layer_dtype output_dtype;       /* float outputs become this; 0: they stay */
} tow_precision;
#define TOW_PRECISION(...) TOW__WRAPPER(tow_precision, __VA_ARGS__)

TOW_API extern const tow_module_class tow_remat_class, tow_scan_class, tow_weight_norm_class, tow_spectral_norm_class,
    tow_precision_class;

#ifdef __cplusplus
}
#endif
#endif

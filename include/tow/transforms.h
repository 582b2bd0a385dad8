/* Lifted transforms: remat and scan take a layer and are layers, so that they compose in any order: scan(remat(block)),
 * remat(scan(block)), remat(scan(remat(block))). Wrapping changes neither parameter names nor initial values nor random
 * streams: remat calls the layer in its own scope, scan adds the iteration as one component of the path. Variables that
 * the layer writes change once per call, whatever is recomputed. */
#ifndef TOW_TRANSFORMS_H
#define TOW_TRANSFORMS_H

#include "tow/autodiff.h"
#include "tow/module.h"
#include "tow/params.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- remat: recomputes in reverse mode what a policy does not save ----------------------------------------------- */
/* The layer `inner`; reverse mode keeps what `policy` permits of what happens in it and recomputes the rest.
 *     tow_remat cheap = TOW_REMAT(&block, .policy = tow_dots_with_no_batch_dims_saveable());
 * One policy may serve layers of different kinds, each of which uses some of its checkpoint names.
 * With a limit, what is kept is chosen: of the sets of values that take no more bytes that with the least work to make
 * the rest again.
 *     tow_remat small = TOW_REMAT(&block, .limit = 1 << 20);
 * It counts the residuals that the layer makes in one call, in a loop in one iteration, under vmap in all rows of one.
 * Inputs and parameters do not count: others keep them. The policy's verdicts (TOW_MUST_SAVE, TOW_MUST_RECOMPUTE,
 * names) hold, its preferences do not. In another region, the outer one decides. The same bits under every limit.
 * Errors: a policy that refers to a checkpoint name which none of the layers under this policy uses; the message lists
 * those that they use. A rule that shares or carries, as there are no iterations. When it is differentiated, a policy
 * that insists on more bytes than the limit. */
typedef struct tow_remat {
    tow_module module;
    const tow_module *inner;
    tow_policy policy; /* zero: tow_nothing_saveable() */
    /* TOW_HIDDEN: what `inner` does not see (tow/module.h); NULL: it sees all */
    const tow_lift_rule *variables, *streams;
    size_t limit; /* bytes of the residuals that the layer makes; 0: none, the policy alone decides */
} tow_remat;
#define TOW_REMAT(...) TOW__WRAPPER(tow_remat, __VA_ARGS__)

/* ---- scan: a stack of layers as one loop ------------------------------------------------------------------------- */

/* `length` copies of the layer `inner`, one after the other, each with its own parameters and random keys:
 *     tow_scan blocks = TOW_SCAN(&block, .length = 12);
 * Inputs:  carry[n_carry], broadcast[n_broadcast] (seen whole by each iteration), xs... (arrays [length, ...], or with
 * the scanned axis where .in_axes says).
 * Outputs: carry[n_carry], ys... (arrays [length, ...], or stacked where .out_axes says).
 * `inner` sees (carry, broadcast, x of its iteration) and gives (carry, y). The types of the carry must not change.
 * Under a scope "blocks", iteration i has the path "blocks/i"; in memory its parameters and variables are rows of
 * stacked arrays. Rules say what is different: .variables and .streams (tow/module.h) share, carry or hide variables
 * and streams of random keys by collection and by path, and stack variables on other axes than the first one. Shared
 * parameters, variables and streams have the path without "i", by which they are drawn:
 *     tow_scan rnn = TOW_SCAN(&cell, .variables = TOW_RULES({"params", TOW_SHARED}));     one set of parameters
 *     tow_scan counts = TOW_SCAN(&layer, .variables = TOW_RULES({"counters", TOW_CARRIED}));   one counter for all
 * unrolled gives the bits of the loop, except in gradients of a parameter that one iteration reads more than once in a
 * stack that is itself applied more than once, where a loop adds up what comes from one application first, and, with
 * .row_groups above 1 (tow/train.h), in gradients of shared parameters: a loop adds up each block of rows over all
 * iterations first, and unrolled iterations each have a sum over the blocks. With .unroll, gradients agree up to
 * rounding.
 * Errors: a rule of .variables that nothing matches,
 * TOW_CARRIED for parameters or streams, an axis that a variable does not have, a write to what is TOW_SHARED. */
typedef struct tow_scan {
    tow_module module;
    const tow_module *inner;
    int64_t length; /* 0 with xs: their leading axis */
    bool empty;     /* length 0 is meant: no iterations */
    bool reverse;   /* from the last iteration to the first; xs and ys stay in place */
    bool unrolled;  /* record every iteration by itself, parameters unstacked; same names on disk, values and bits */
    size_t n_carry; /* 0: one */
    size_t n_broadcast;
    int64_t unroll;             /* iterations in one turn of the loop (tow_scan_options.unroll); 0: one */
    tow_scan_schedule schedule; /* which states reverse mode keeps (tow/autodiff.h); zeros: policies decide */
    /* of each xs: the scanned axis, negative ones from the end, or TOW_NOT_MAPPED: seen whole; NULL: all 0 */
    const int *in_axes;
    /* of each ys: where its rows are stacked, or TOW_NOT_MAPPED: it does not depend on the iteration and is given once;
     * NULL: all 0 */
    const int *out_axes;
    tow_scan_keys keys;             /* TOW_KEYS_DEFAULT: those of tow_model_options.keys */
    const tow_lift_rule *variables; /* of parameters and variables; NULL: all are stacked */
    const tow_lift_rule *streams;   /* of streams of random keys ("dropout"); NULL: all are split */
} tow_scan;
#define TOW_SCAN(...) TOW__WRAPPER(tow_scan, __VA_ARGS__)

/* ---- method: another function of a layer ------------------------------------------------------------------------- */
/* `function` in place of the layer's own call, with the same struct and in the same scope, so that parameters,
 * variables and keys are those of the layer. It is a layer itself, which transforms take as any other:
 *     tow_method encode = TOW_METHOD(&autoencoder, .function = call_encoder);
 *     tow_remat cheap = TOW_REMAT(&encode);                                    tow_apply(scope, "model", &cheap, x); */
typedef struct tow_method {
    tow_module module;
    const tow_module *inner;
    void (*function)(tow_scope *scope, const tow_module *module, size_t n_inputs, const tow_value *inputs,
                     size_t n_outputs, tow_value *outputs); /* as tow_module_class.call; module: `inner` */
    /* "encode": tow_model_options.capture hands outputs out as "intermediates/path/encode/0", by the pattern
     * "path:encode"; NULL: as those of the layer, "__call__" */
    const char *name;
} tow_method;
#define TOW_METHOD(...) TOW__WRAPPER(tow_method, __VA_ARGS__)

/* ---- remat_scan: scans inside each other, the bodies of all but the innermost recomputed ------------------------- */
/* lengths[0] * lengths[1] * ... copies of `inner`, as one scan of that length would have them, names, values and keys
 * included (with TOW_KEYS_FLAX: as scans inside each other split them). Reverse mode keeps the carries of the outermost
 * level and, while it works on one of its iterations, what the levels below need:
 *     tow_remat_scan deep = TOW_REMAT_SCAN(&block, .lengths = {8, 8});       64 layers, 8 of them at work at a time
 * The innermost level recomputes nothing (as in Flax); wrap `inner` in TOW_REMAT if it is to. In memory parameters have
 * an axis for each level. Inputs: carry[n_carry], broadcast[n_broadcast]. Outputs: carry[n_carry]. */
typedef struct tow_remat_scan {
    tow_module module;
    const tow_module *inner;
    int64_t lengths[TOW_MAX_RANK]; /* outermost first, up to the first 0 */
    tow_policy policy;             /* of the recomputed levels; zero: tow_nothing_saveable() */
    size_t n_carry;                /* 0: one */
    size_t n_broadcast;
    tow_scan_keys keys;
    const tow_lift_rule *variables, *streams;
} tow_remat_scan;
#define TOW_REMAT_SCAN(...) TOW__WRAPPER(tow_remat_scan, __VA_ARGS__)

/* ---- layer stack: layers that are not all alike, as few loops ---------------------------------------------------- */
/* `length` layers one after the other: those of `first`, then those of `pattern` again and again in a loop, a whole
 * number of times, then as many from the beginning of the pattern as are left over, then those of `last`:
 *     two local layers and one global, 26 in all: eight turns, and two local ones behind them
 *     const tow_module *l = TOW_MODULE(&local), *g = TOW_MODULE(&global);
 *     tow_layer_stack blocks = TOW_LAYER_STACK(.length = 26, .pattern = TOW_LAYERS(l, l, g));
 *     every second one recomputed
 *     tow_remat cheap = TOW_REMAT(&block);
 *     tow_layer_stack blocks =
 *         TOW_LAYER_STACK(.length = 12, .pattern = TOW_LAYERS(TOW_MODULE(&cheap), TOW_MODULE(&block)));
 * Layer i has the path "blocks/i", whatever it is; names on disk, initial values and random keys are those of the
 * layers written out. In memory the parameters of layer j of a pattern of 3 are rows of "blocks/{j+3}/..." (layers j, j
 * + 3, ...).
 * Inputs: carry[n_carry], broadcast[n_broadcast], xs... ([length, ...]). Outputs: carry[n_carry], ys... ([length,
 * ...]), as of tow_scan. Errors: as of tow_scan; a length smaller than the layers of `first` and `last`. */
typedef struct tow_layer_stack {
    tow_module module;
    int64_t length;                                                /* 0: those of `first`, `pattern` once, and `last` */
    const tow_module *const *pattern, *const *first, *const *last; /* NULL-terminated; NULL: none */
    size_t n_carry;                                                /* 0: one */
    size_t n_broadcast;
    bool unrolled; /* record every layer by itself */
    tow_scan_keys keys;
    const tow_lift_rule *variables, *streams;
} tow_layer_stack;
#define TOW_LAYER_STACK(...) TOW__LAYER(tow_layer_stack, __VA_ARGS__)
/* A list of layers that lives as long as the block that it stands in (docs/where-layers-live.md):
 * TOW_LAYERS(TOW_MODULE(&cheap), TOW_MODULE(&block)). */
#define TOW_LAYERS(...) ((const tow_module *const[]){__VA_ARGS__, NULL})

/* ---- vmap: one layer on many rows at once, each with parameters of its own or all with the same ------------------ */
/* The layer `inner` on every row of the inputs. By default each row has its own parameters, variables and random keys:
 *     an ensemble, [8, batch, ...]
 *     tow_vmap_layer members = TOW_VMAP(&mlp, .axis_size = 8, .in_axes = (int[]){TOW_NOT_MAPPED});
 *     one layer over a batch axis
 *     tow_vmap_layer rows = TOW_VMAP(&cell, .variables = TOW_RULES({"params", TOW_SHARED}));
 * Row i has the path "members/i"; in memory parameters and variables are rows of arrays "members/{}/...", and what is
 * TOW_SHARED is "members/...", without a row. With TOW_KEYS_FLAX row i draws by split(root, size)[i]: it has the bits
 * of the plain layer that is initialized with this key. Rules stack variables on other axes, as those of a scan do.
 * A variable that is TOW_SHARED may be written where the value does not depend on the row. Errors: as of
 * tow_vmap_function; a rule TOW_CARRIED, or one of .variables that nothing matches. */
typedef struct tow_vmap_layer {
    tow_module module;
    const tow_module *inner;
    int64_t axis_size; /* rows; 0: those of the inputs */
    bool empty;        /* no rows are meant */
    /* of each input: its mapped axis, negative ones from the end, or TOW_NOT_MAPPED: seen whole; NULL: all 0 */
    const int *in_axes;
    /* of each output: where its rows are stacked, or TOW_NOT_MAPPED: all are the same; NULL: all 0 */
    const int *out_axes;
    bool unrolled; /* record every row by itself; same names on disk and values */
    tow_scan_keys keys;
    const tow_lift_rule *variables, *streams;
} tow_vmap_layer;
#define TOW_VMAP(...) TOW__WRAPPER(tow_vmap_layer, __VA_ARGS__)

/* ---- cond: one of two layers, as a predicate says ---------------------------------------------------------------- */
/* The layer `yes` if the first input is true, else the layer `no`; both get the inputs behind it and must give the same
 * types:
 *     tow_cond step = TOW_COND(.yes = TOW_MODULE(&TOW_NAMED("deep", &mlp)),
 *                              .no = TOW_MODULE(&TOW_NAMED("flat", &dense)));
 *     const tow_value in[] = {predicate, x};            tow_apply_n(scope, "step", &step, 2, in, 1, &y);
 * Inputs:  predicate [], bool or a number that is true if it is not 0; then those of the layers. Outputs: those of the
 * layers.
 * Both are called in the scope of the choice: parameters of one path are shared (two layers TOW_DENSE have one kernel),
 * children under names of their own are apart. All are initialized, `yes` first. Only the layer that is chosen runs,
 * and gradients are its own. Variables may be written in either; in a call that chooses the other one they keep their
 * values. A value that only one of them sows, or whose capture was asked for, is zeros in calls that choose the other
 * one. Random keys do not depend on the choice: draws of one stream in one scope are counted through `yes` and then
 * `no`, as in Flax. TOW_VMAP with a predicate for each row computes both.
 * Errors: outputs of different types, or values of different types sown under one name; a predicate that is no scalar;
 * as of TOW_REMAT for rules. */
typedef struct tow_cond {
    tow_module module;
    const tow_module *yes, *no;
    /* TOW_HIDDEN: what the layers do not see (tow/module.h); NULL: they see all */
    const tow_lift_rule *variables, *streams;
} tow_cond;
#define TOW_COND(...) TOW__LAYER(tow_cond, __VA_ARGS__)

/* ---- switch: one of several layers, as an index says ------------------------------------------------------------- */
/* As TOW_COND, with a list of layers and an index: layer 0 if it is negative, the last one if it is too large.
 *     tow_switch experts = TOW_SWITCH(.branches = TOW_LAYERS(TOW_MODULE(&TOW_NAMED("e0", &mlp)),
 *                                                            TOW_MODULE(&TOW_NAMED("e1", &mlp))));
 * Inputs:  index [], an integer; then those of the layers. Outputs: those of the layers.
 * Errors: as of TOW_COND; no branch; an index that is no integer scalar. */
typedef struct tow_switch {
    tow_module module;
    const tow_module *const *branches; /* NULL-terminated */
    const tow_lift_rule *variables, *streams;
} tow_switch;
#define TOW_SWITCH(...) TOW__LAYER(tow_switch, __VA_ARGS__)

/* ---- while: a layer as long as another one says ------------------------------------------------------------------ */
/* carry = body(carry, broadcast), as long as condition(carry, broadcast) is true:
 *     tow_while solve = TOW_WHILE(.condition = TOW_MODULE(&unsettled), .body = TOW_MODULE(&update),
 *                                 .max_iterations = 50);
 * Inputs:  carry[n_carry], broadcast... (seen whole by each iteration). Outputs: carry[n_carry].
 * `condition` gives one bool []; `body` gives the carry, whose types must not change. A loop whose length is a number
 * is a TOW_SCAN with parameters TOW_SHARED.
 * Both are called in the scope of the loop, and all iterations share their parameters, which the body draws first.
 * Variables are shared and may be read; those under a rule TOW_CARRIED may be written in `body`, and each iteration,
 * and `condition`, reads what the one before wrote:
 *     TOW_WHILE(..., .variables = TOW_RULES({"counters", TOW_CARRIED}))
 * Iteration i draws by fold_in(root, i) of a stream, and `condition` by fold_in(root, -i), as in Flax with split_rngs;
 * a stream that is TOW_SHARED has the same keys in all of them. The values that `body` sows are those of the last
 * iteration, zeros if there was none; `condition` sows nothing.
 * Reverse mode needs .max_iterations, or .schedule = {.slots = s}, as in tow_while_options.
 * Errors: a write to a variable that is not TOW_CARRIED, or in `condition`; TOW_STACKED for variables; a condition that
 * is not bool []; a carry whose type changes; a rule of .variables that nothing matches. */
typedef struct tow_while {
    tow_module module;
    const tow_module *condition, *body;
    size_t n_carry;                 /* 0: one */
    int64_t max_iterations;         /* the loop ends after so many, whatever `condition` says; 0: no bound */
    const tow_lift_rule *variables; /* of parameters and variables; NULL: all are shared */
    const tow_lift_rule *streams;   /* of streams of random keys; NULL: all are split */
    tow_scan_schedule schedule;     /* .slots: the states that reverse mode keeps (tow_while_options) */
} tow_while;
#define TOW_WHILE(...) TOW__LAYER(tow_while, __VA_ARGS__)

TOW_API extern const tow_module_class tow_cond_class, tow_switch_class, tow_while_class;

/* ---- value_and_grad: a layer and its gradient with respect to its inputs ----------------------------------------- */
/* The layer `inner`, whose first output is a float scalar, and its derivatives with respect to the inputs, inside of a
 * model:
 *     tow_value_and_grad_layer force = TOW_VALUE_AND_GRAD(&energy);        x -> energy [], d energy / d x
 * Inputs: those of `inner`. Outputs: those of `inner` (the scalar, then n_aux others), then a gradient for each input
 * that is a float. Parameters are those of `inner`, at the same paths; they get their gradients when the model is
 * differentiated, through the derivatives as well. Variables are written, values sown and keys drawn once, as by a call
 * of `inner`.
 * With .wrt, a list of paths of parameters below this layer, their gradients come behind those of the inputs, in its
 * order; then no input need be a float:
 *     tow_value_and_grad_layer fit = TOW_VALUE_AND_GRAD(&loss, .wrt = TOW_NAMES("dense/kernel", "dense/bias"));
 * A parameter that is mapped or normed is differentiated as it is stored.
 * Errors: a first output that is no float scalar; no float input and no .wrt; a parameter that `inner` does not have;
 * those of differentiation (a while without .max_iterations); as of TOW_REMAT for rules. */
typedef struct tow_value_and_grad_layer {
    tow_module module;
    const tow_module *inner;
    size_t n_aux;
    const char *const *wrt; /* parameters, NULL-terminated; NULL: none */
    /* TOW_HIDDEN: what `inner` does not see (tow/module.h); NULL: it sees all */
    const tow_lift_rule *variables, *streams;
} tow_value_and_grad_layer;
#define TOW_VALUE_AND_GRAD(...) TOW__WRAPPER(tow_value_and_grad_layer, __VA_ARGS__)

/* ---- vjp: a layer and a product with its transposed Jacobian ----------------------------------------------------- */
/* Inputs:  those of `inner`, then a cotangent for each of its outputs that is a float.
 * Outputs: those of `inner`, then a cotangent for each of its inputs that is a float, then one for each parameter in
 * .wrt (nn.vjp of Flax with vjp_variables).
 * Otherwise as TOW_VALUE_AND_GRAD. Errors: cotangents of other types than the outputs. */
typedef struct tow_vjp_layer {
    tow_module module;
    const tow_module *inner;
    size_t n_inputs, n_outputs; /* of `inner`; 0: one */
    const char *const *wrt;     /* parameters, NULL-terminated; NULL: none */
    const tow_lift_rule *variables, *streams;
} tow_vjp_layer;
#define TOW_VJP(...) TOW__WRAPPER(tow_vjp_layer, __VA_ARGS__)

/* ---- jvp: a layer and a product with its Jacobian ---------------------------------------------------------------- */
/* Inputs:  those of `inner`, then a tangent for each of them that is a float, then one for each parameter in .wrt
 * (nn.jvp of Flax with variable_tangents); those of other parameters are zeros.
 * Outputs: those of `inner`, then a tangent for each of them that is a float.
 * Otherwise as TOW_VALUE_AND_GRAD. Errors: tangents of other types than the inputs. */
typedef struct tow_jvp_layer {
    tow_module module;
    const tow_module *inner;
    size_t n_inputs, n_outputs; /* of `inner`; 0: one */
    const char *const *wrt;     /* parameters, NULL-terminated; NULL: none */
    const tow_lift_rule *variables, *streams;
} tow_jvp_layer;
#define TOW_JVP(...) TOW__WRAPPER(tow_jvp_layer, __VA_ARGS__)

/* ---- custom_vjp: a layer whose gradients are changed on their way through ---------------------------------------- */
/* The layer `inner`, with the cotangents of its outputs and the gradients that come out of it as two functions make
 * them:
 *     static tow_value reversed(tow_trace *trace, const char *parameter, size_t index, tow_value gradient,
 *                               const void *user)
 *     {
 *         return parameter ? gradient : tow_neg(gradient);
 *     }
 *     tow_custom_vjp_layer domain = TOW_CUSTOM_VJP(&classifier, .gradient = reversed);
 * A function is called once for each value and returns one of the same type, or the null value for zeros. Values and
 * results of `inner`, parameters, variables, sown values and keys are as without it; derivatives of cotangents and
 * gradients are those of what the functions record. They see values that are given to them, and no outer ones but
 * through `user`.
 * Errors: forward mode; a value of another type; as of TOW_REMAT for rules. */
typedef struct tow_custom_vjp_layer {
    tow_module module;
    const tow_module *inner;
    /* Of output `index` of `inner`, before its backward pass; NULL: as they are. */
    tow_value (*cotangent)(tow_trace *trace, size_t index, tow_value cotangent, const void *user);
    /* After its backward pass: of the parameter with this path below `inner` ("dense/kernel"), or, if it is NULL, of
     * input `index`. */
    tow_value (*gradient)(tow_trace *trace, const char *parameter, size_t index, tow_value gradient, const void *user);
    const void *user;
    const tow_lift_rule *variables, *streams;
} tow_custom_vjp_layer;
#define TOW_CUSTOM_VJP(...) TOW__WRAPPER(tow_custom_vjp_layer, __VA_ARGS__)

TOW_API extern const tow_module_class tow_value_and_grad_layer_class, tow_vjp_layer_class, tow_jvp_layer_class,
    tow_custom_vjp_layer_class;

/* ---- map_variables: a layer that sees its parameters and variables changed --------------------------------------- */
/* The layer `inner`; what it asks for at the paths that `variables` lists is stored otherwise than it sees it, or made
 * of something else. A function gets the request of the layer, with the path below this layer, the type and the
 * initializer.
 *     trans_in     what the layer sees, made of what is stored: a mask, a norm, signs. It must have the type that was
 *                  asked for.
 *     trans_out    what is stored, made of what the layer sees: the inverse of trans_in. It says the stored type, the
 *                  initial value (of the layer's own draw), and what is stored when the layer writes a variable.
 *     make         in place of both: what the layer sees, made of whatever the function asks `scope` for
 *                  (tow_param_with, tow_variable, tow_make_rng; tow_request_variable(scope, asked) for what would be
 *                  stored without it), under any name.
 *     kernels whose upper triangle alone counts         .trans_in = upper_triangle
 *     kernels that are stored transposed                .trans_in = transpose, .trans_out = transpose
 *     kernels that are products a b of low rank         .make = product_of_two
 * Without trans_out and make the stored type and the initial value are those that the layer asks for. In reverse mode
 * gradients are those of what is stored. Layers of this kind, TOW_LORA, TOW_WEIGHT_NORM and the like nest in any order:
 * each sees what those around it give (LoRA and the norms once around a parameter). A parameter that they keep beside
 * it ("LoRA/kernel/a") is mapped if its path matches; sown values are not mapped. A parameter is mapped once in each
 * body of a scan, a remat or the like, however often it is asked for; files hold what is stored. The layer and what it
 * points to may be gone when tow_model_init draws the values.
 * Errors: TOW_NOT_FOUND for a pattern that nothing matches; TOW_TYPE_MISMATCH for a function that gives another type
 * than the layer asks for; TOW_INVALID_ARGUMENT for a variable that is written, without trans_out. */
typedef struct tow_map_variables {
    tow_module module;
    const tow_module *inner;
    /* Patterns as of tow_lift_rule, NULL-terminated: a collection ("params", "batch_stats"), or "collection/path" below
     * this layer ("params/kernel", "params/enc*kernel"); NULL: "params". */
    const char *const *variables;
    tow_value (*trans_in)(tow_value stored, const tow_variable_request *asked, const void *user); /* NULL: as stored */
    tow_value (*trans_out)(tow_value seen, const tow_variable_request *asked, const void *user);  /* NULL: as seen */
    tow_value (*make)(tow_scope *scope, const tow_variable_request *asked, const void *user);
    const void *user; /* for the functions */
} tow_map_variables;
#define TOW_MAP_VARIABLES(...) TOW__WRAPPER(tow_map_variables, __VA_ARGS__)

/* ---- tied: a layer one of whose parameters is that of another layer ---------------------------------------------- */
/* The layer `inner`, in which `parameter` is the parameter at the path `to`, or its transpose: one array, with one
 * gradient, the sum over all its uses. `to` begins at this layer, and ".." is the scope around it; an iteration of a
 * scan is one component:
 *     tow_tied output = TOW_TIED(&dense, .to = "../embed/embedding", .transposed = true);      dense.no_bias = true
 *     h = tow_apply(scope, "embed", &embed, tokens); ... logits = tow_apply(scope, "output", &output, h);
 * The parameter is seen through the map_variables, LoRA and norms around the scope in which `to` begins to go down.
 * Errors: TOW_NOT_FOUND if the layer does not ask for `parameter`, or if no layer that was called before holds `to`;
 * TOW_SHAPE_MISMATCH, TOW_TYPE_MISMATCH. One layer of a loop is no parameter of its own, and cannot be tied to from
 * outside. */
typedef struct tow_tied {
    tow_module module;
    const tow_module *inner;
    const char *parameter; /* path below this layer; NULL: "kernel" */
    const char *to;
    bool transposed; /* the axes in the opposite order */
} tow_tied;
#define TOW_TIED(...) TOW__WRAPPER(tow_tied, __VA_ARGS__)

/* ---- WeightNorm: a layer whose kernels have norms that are learned ----------------------------------------------- */
/* The layer `inner`, which sees its kernels as w rsqrt(sum(w^2) + epsilon) scale, with the sum over the axes that are
 * not features. Beside a parameter "kernel" stands "WeightNorm/kernel/scale", of the sizes of its feature axes: at
 * first all norms are 1. */
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
/* The layer `inner`, which sees its parameters of rank 2 and more divided by sigma, an estimate of their largest
 * singular value (of [..., out] as a matrix of `out` columns). n_steps of power iteration begin with the vector u of
 * the call before: variables "batch_stats" "SpectralNorm/kernel/u" [1, out], drawn from N(0, 1), and "sigma" [] beside
 * a parameter "kernel". A call in training (without tow_model_options.deterministic) writes both, for which
 * "batch_stats" must be mutable. */
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
/* The layer `inner`, in which .dtype and .param_dtype are the defaults of all layers that do not set theirs. Mixed
 * precision, that is computing in bf16 with parameters, and their gradients, in f32:
 *     tow_precision model = TOW_PRECISION(&transformer, .dtype = TOW_BF16, .output_dtype = TOW_F32);
 * Parameters that are stored in bf16: .param_dtype = TOW_BF16. Within another TOW_PRECISION, zero is what that one
 * says. Parameters of different types: rules by their paths below this layer, of which the first that matches counts,
 * and a rule of an inner TOW_PRECISION before those around it. A scan in a path is "{}", which "*" stands for, too:
 *     .param_dtypes = TOW_DTYPES({"blocks/{}/attn/value/kernel", TOW_Q8_0}, {"//kernel", TOW_Q4_0})
 * Layers compute what they would compute without rules, with these numbers; a weight in blocks is multiplied by
 * tow_quantized_dot. tow_weight_mapping_dtypes (tow/weights.h) makes the rules of a file.
 * Errors: TOW_NOT_FOUND for a rule that nothing matches, TOW_UNSUPPORTED for blocks where a layer has none. */
typedef struct tow_precision {
    tow_module module;
    const tow_module *inner;
    tow_dtype dtype, param_dtype;       /* tow_dtype in tow/module.h */
    tow_dtype output_dtype;             /* float outputs become this; 0: they stay */
    const tow_dtype_rule *param_dtypes; /* may be NULL */
} tow_precision;
#define TOW_PRECISION(...) TOW__WRAPPER(tow_precision, __VA_ARGS__)

TOW_API extern const tow_module_class tow_remat_class, tow_scan_class, tow_remat_scan_class, tow_layer_stack_class,
    tow_vmap_layer_class, tow_method_class, tow_map_variables_class, tow_tied_class, tow_weight_norm_class,
    tow_spectral_norm_class, tow_precision_class;

/* ==== LoRA ======================================================================================================== */

/* LoRA: fine-tuning with low-rank updates of kernels that stay as they are (Hu et al., "LoRA: Low-Rank Adaptation of
 * Large Language Models", 2021). docs/attention.md shows a whole program. */

/* ---- LoRA: a layer whose kernels get updates of low rank --------------------------------------------------------- */
/* The layer `inner`, which sees its kernels as w + alpha/rank a b. Beside a parameter "kernel" stand "LoRA/kernel/a"
 * [in..., rank] and "LoRA/kernel/b" [rank, out...]; b is zeros at first, so that the outputs are those of `inner`.
 * Dense, DenseGeneral and Einsum (whose kernel has its contracted axes first) compute x w + alpha/rank (x a) b without
 * making a b; other layers see the sum, where `in` is all axes but the last one. w may be in blocks of few bits
 * (TOW_Q4_0): then x w is tow_quantized_dot, and a and b are f32. Names and initial values of `inner` do not change:
 * its parameters load as before. These two calls train the factors alone:
 *     tow_params_freeze(params, NULL, true);
 *     tow_params_freeze(params, TOW_NAMES("**LoRA**"), false);
 * Error: TOW_NOT_FOUND if no parameter matches the filter. */
typedef struct tow_lora {
    tow_module module;
    const tow_module *inner;
    int64_t rank; /* positive */
    double alpha; /* 0: rank */
    const char *const *
        /* patterns (tow_path_matches) of paths below this layer, NULL-terminated; NULL: all kernels
         * (TOW_PARAM_KERNEL) */
        filter;
    tow_initializer a_init; /* he_uniform, as in flax.nnx.LoRA */
    tow_initializer b_init; /* zeros */
} tow_lora;
#define TOW_LORA(...) TOW__WRAPPER(tow_lora, __VA_ARGS__)

TOW_API extern const tow_module_class tow_lora_class;

/* For each "LoRA/kernel/a" and "b" among the parameters, kernel + alpha/rank a b in the array of the kernel (alpha 0:
 * rank, which is that of a). Then `inner` alone gives what the LoRA gave; a and b stay in the list, from which
 * tow_params_split takes them.
 * Stacked layers of scans are folded in together. Errors: TOW_NOT_FOUND without any, or for one whose kernel or b is
 * missing; TOW_SHAPE_MISMATCH; TOW_INVALID_ARGUMENT for an alpha that is not finite; TOW_UNSUPPORTED for a kernel in
 * blocks of few bits, which would round the update away. After an error nothing has changed. */
TOW_API tow_status tow_lora_merge(tow_params *params, double alpha);
/* The opposite: kernel - alpha/rank a b. The kernels are what they were before up to rounding; for their very bits,
 * keep a copy. */
TOW_API tow_status tow_lora_unmerge(tow_params *params, double alpha);

#ifdef __cplusplus
}
#endif
#endif

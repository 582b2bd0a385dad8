/* Rules of lifted transforms (tow/transforms.h): what the iterations of a scan have of their own, and what is one for
 * all of them. */
#ifndef TOW_LIFTING_H
#define TOW_LIFTING_H

#include "tow/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The source of the random keys of iteration i of a scan. */
typedef enum tow_scan_keys {
    TOW_KEYS_DEFAULT, /* as the model says (tow_model_options.keys), else TOW_KEYS_PATH */
    TOW_KEYS_PATH,    /* as those of a layer with path "blocks/i" */
    TOW_KEYS_FLAX /* as in flax.linen.scan with split_rngs of every stream: split(root, length)[i], path without i */
} tow_scan_keys;

/* The ways in which the iterations of a transform hold a parameter, a variable or a stream of random keys. */
typedef enum tow_lifting {
    TOW_STACKED, /* each iteration has its own: a row of one array, along .axis; of a stream: keys of its own */
    /* one for all, without the iteration in its path; of a stream: all draw the same keys. It is not written */
    TOW_SHARED,
    /* one for all, and each iteration reads what the one before it wrote; not for parameters and streams */
    TOW_CARRIED,
    TOW_HIDDEN /* the layer inside has none: asking for it is an error, sowing does nothing, tow_has_... is false */
} tow_lifting;

/* One rule. Of several, the first one that matches counts; what none matches is stacked on axis 0.
 * pattern: the name of a collection ("params", "batch_stats") or of a stream; or, with a '/', of "collection/path"
 * below the layer that is transformed ("params/mlp/kernel"). "*" in it stands for any text without '/', "**" for any
 * text; a scan in the layer is "{}" in the path, and the layer of one that is unrolled its number; "*" stands for both.
 * A rule for "intermediates" may match nothing, as calls differ in what they sow and capture, and so may a rule of
 * .streams, as calls differ in what they draw: a dropout of rate 0, or in a deterministic call, asks for no key.
 * axis, of variables that are TOW_STACKED: where the rows are in the stacked array, negative ones from its end, as in
 * Flax's variable_axes. A kernel [2, 4] of 3 layers is [3, 2, 4] with axis 0, [2, 3, 4] with 1 and [2, 4, 3] with -1;
 * its bias [4] is [3, 4], [4, 3] and [4, 3]. Of scans inside each other the inner one puts its axis in first.
 * Parameters, variables, gradients and what is sown have it, and paths tell: "blocks/{@1}/kernel",
 * "blocks/{@-1}/kernel", where "blocks/{}/kernel" is axis 0. The loop reads slices where they are; but axis 0, by which
 * layers are contiguous, spares optimizers, files and gradients moves of elements. An unrolled transform, whose layers
 * have arrays of their own, has no such axis, and only checks it.
 * Files hold layers, not stacks, and so does not change with the axis what is saved: parameters go from a model with
 * one axis to a model with another by tow_params_to_tensors and tow_params_from_tensors, or by a file or checkpoint. */
typedef struct tow_lift_rule {
    const char *pattern; /* NULL: the end of the rules */
    tow_lifting how;
    int axis TOW__ZERO; /* with TOW_STACKED only */
} tow_lift_rule;

/* Rules for .variables and .streams: TOW_RULES({"params", TOW_STACKED, 1}, {"cache", TOW_CARRIED}). In C they live as
 * long as the block in which they stand; in C++ as long as the program, and they are made of constants. */
#ifdef __cplusplus
#define TOW_RULES(...)                                                                                                 \
    ([]() -> const tow_lift_rule * {                                                                                   \
        static const tow_lift_rule tow__rules[] = {__VA_ARGS__, {nullptr, TOW_STACKED}};                               \
        return tow__rules;                                                                                             \
    }())
#else
/* [0] = tells GCC that what a rule leaves out is meant to be zero, as the pragmas tell clang. */
#define TOW_RULES(...)                                                                                                 \
    (TOW__LEAVES_OUT(const tow_lift_rule[]) {                                                                          \
        [0] = __VA_ARGS__, { NULL, TOW_STACKED }                                                                       \
    } TOW__LEAVES_OUT_NO_MORE)
#endif

#ifdef __cplusplus
}
#endif
#endif

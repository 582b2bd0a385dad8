/* The layers. Each is a struct whose first member is `module` and in which zero means the default, made by a macro that
 * reads like keyword arguments: tow_dense d = TOW_DENSE(.features = 128); (module.h says what to write in C++.) A layer
 * holds no parameters and no state: it is called under a scope, which supplies both, so one struct can be applied at
 * many places.
 *
 * Parameter names, shapes and initial values are those of Flax's linen. Shapes are given as [..., D] with D the
 * features. Parameters are f32 unless .param_dtype says otherwise. Inputs are of any float type; a layer computes in
 * what inputs and parameters promote to, or in .dtype; TOW_PRECISION sets both for all layers of a model. A wrong input
 * is reported with the scope's path, what was expected and what was found. */
#ifndef TOW_LAYERS_H
#define TOW_LAYERS_H

#include "tow/module.h"
#include "tow/numpy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An activation: tow_relu, tow_silu, tow_tanh, tow_gelu, tow_elu, ... (tow/numpy.h) */
typedef tow_value (*tow_activation)(tow_value x);

/* ---- Dense: x [..., in] -> x.kernel + bias [..., features]. kernel [in, features], bias [features] --------------- */
typedef struct tow_dense {
    tow_module module;
    int64_t features;
    bool no_bias;
    tow_initializer kernel_init;  /* lecun_normal */
    tow_initializer bias_init;    /* zeros */
    tow_dtype dtype, param_dtype; /* tow_dtype in tow/module.h */
} tow_dense;
#define TOW_DENSE(...) TOW__LAYER(tow_dense, __VA_ARGS__)

/* ---- DenseGeneral: contracts several axes into several feature axes ---------------------------------------------- */
/* x [batch..., ..., axes...] -> [batch..., ..., features...]. kernel [batch..., contracted..., features...],
 * bias [batch..., features...]. The contracted axes of the kernel are in the order that they have in x, whatever their
 * order in .axes, as in Flax. Examples: .features = {heads, 64}; or .features = {512}, .n_axes = 2, .axes = {-2,
 * -1}. */
typedef struct tow_dense_general {
    tow_module module;
    int64_t features[TOW_MAX_RANK]; /* ends at the first zero */
    int n_axes;                     /* 0: one, the last */
    int axes[TOW_MAX_RANK];         /* contracted, n_axes of them; may be negative */
    int n_batch_dims;               /* the first n axes of x have kernels of their own */
    bool no_bias;
    tow_initializer kernel_init;  /* lecun_normal over the flattened (batch * contracted, features) */
    tow_initializer bias_init;    /* zeros */
    tow_dtype dtype, param_dtype; /* tow_dtype in tow/module.h */
} tow_dense_general;
#define TOW_DENSE_GENERAL(...) TOW__LAYER(tow_dense_general, __VA_ARGS__)

/* ---- MLP: Dense_0, activation, Dense_1, ..., no activation after the last ---------------------------------------- */
enum {
    TOW_MLP_LIMIT = 32
};
typedef struct tow_mlp {
    tow_module module;
    int64_t features[TOW_MLP_LIMIT]; /* widths, ends at the first zero: {256, 256, 10} */
    tow_activation activation;       /* NULL: tow_relu */
    bool activate_last;
    bool no_bias;
    tow_initializer kernel_init;  /* lecun_normal */
    tow_initializer bias_init;    /* zeros */
    tow_dtype dtype, param_dtype; /* tow_dtype in tow/module.h */
} tow_mlp;
#define TOW_MLP(...) TOW__LAYER(tow_mlp, __VA_ARGS__)

/* ---- Embed: i32 or u32 [...] -> rows of embedding [num_embeddings, features]: [..., features] -------------------- */
/* Indices as tow_gather takes them: -1 is the last row, and one outside the table gives a row of NaN. */
typedef struct tow_embed {
    tow_module module;
    int64_t num_embeddings, features;
    tow_initializer embedding_init; /* normal, standard deviation 1/sqrt(features) */
    tow_dtype dtype, param_dtype;   /* tow_dtype in tow/module.h */
} tow_embed;
#define TOW_EMBED(...) TOW__LAYER(tow_embed, __VA_ARGS__)
/* x [..., features] -> x.embedding^T [..., num_embeddings], with the table of the child `name` of `scope`: tied
 * weights. */
TOW_API tow_value tow_embed_attend(tow_scope *scope, const char *name, const tow_embed *embed, tow_value x);
/* Cross-entropy of those logits and labels i32 [...]: [...]. The logits of large tables exist for some rows at a
 * time. */
TOW_API tow_value tow_embed_cross_entropy(tow_scope *scope, const char *name, const tow_embed *embed, tow_value x,
                                          tow_value labels);

/* ---- LayerNorm, RMSNorm: normalize each row ---------------------------------------------------------------------- */
/* LayerNorm: (x - mean) * rsqrt(var + epsilon) * scale + bias with var = mean((x - mean)^2), in two passes: what Flax
 * does with use_fast_variance=False. Flax's default is mean(x^2) - mean^2, which agrees to rounding while the mean is
 * not large beside the standard deviation: with a mean of 100 of these the results differ by 0.004, with 3000 Flax's
 * are useless. It is .fast_variance here and in the other norms. RMSNorm: x * rsqrt(mean(x^2) + epsilon) * scale.
 * Means are over the last axis, or those of .reduction_axes. scale, bias: [features...] of the last axis, or those of
 * .feature_axes. A second input, bool, broadcasts to x and says which elements the means are of (none: NaN). */
typedef struct tow_layer_norm {
    tow_module module;
    double epsilon; /* 0: 1e-6 */
    bool no_scale, no_bias;
    tow_initializer scale_init;       /* ones */
    tow_initializer bias_init;        /* zeros */
    tow_dtype dtype, param_dtype;     /* tow_dtype in tow/module.h */
    int n_reduction_axes;             /* 0: one, the last */
    int reduction_axes[TOW_MAX_RANK]; /* that the means are over, n_reduction_axes of them; may be negative */
    int n_feature_axes;               /* 0: one, the last */
    int feature_axes[TOW_MAX_RANK];   /* that scale and bias have, n_feature_axes of them; may be negative */
    bool fast_variance;               /* mean(x^2) - mean^2, or 0 if that is negative */
} tow_layer_norm;
#define TOW_LAYER_NORM(...) TOW__LAYER(tow_layer_norm, __VA_ARGS__)

typedef struct tow_rms_norm {
    tow_module module;
    double epsilon; /* 0: 1e-6 */
    bool no_scale;
    tow_initializer scale_init;       /* ones */
    tow_dtype dtype, param_dtype;     /* tow_dtype in tow/module.h */
    int n_reduction_axes;             /* 0: one, the last */
    int reduction_axes[TOW_MAX_RANK]; /* that the means are over, n_reduction_axes of them; may be negative */
    int n_feature_axes;               /* 0: one, the last */
    int feature_axes[TOW_MAX_RANK];   /* that scale and bias have, n_feature_axes of them; may be negative */
} tow_rms_norm;
#define TOW_RMS_NORM(...) TOW__LAYER(tow_rms_norm, __VA_ARGS__)

/* ---- Dropout: x / (1-rate) where kept, else 0 -------------------------------------------------------------------- */
/* The identity, without a draw, if rate is 0, if `deterministic`, or if the model is traced with .deterministic =
 * true. */
typedef struct tow_dropout {
    tow_module module;
    double rate; /* in [0, 1] */
    bool deterministic;
    const char *stream; /* NULL: "dropout" */
    int n_broadcast_axes;
    int broadcast_axes[TOW_MAX_RANK]; /* axes along which one draw is shared */
} tow_dropout;
#define TOW_DROPOUT(...) TOW__LAYER(tow_dropout, __VA_ARGS__)

/* ---- Conv: correlates x with kernels along the axes before the last one ------------------------------------------ */
/* x [batch..., spatial..., in] -> [batch..., spatial'..., features], any number of batch axes or none. kernel
 * [kernel_size..., in / groups, features], bias [features]. A second input, of the kernel's shape, is a mask that
 * multiplies the kernel. Lists have an entry for each spatial axis, as many as kernel_size has before its first zero
 * (at most 6); one entry alone stands for all axes. Results: floor((low + n + high - K) / stride) + 1 elements with K =
 * (kernel_size - 1) kernel_dilation + 1; none where the kernel exceeds the input. */
typedef enum tow_conv_padding {
    TOW_CONV_SAME,      /* ceil(n / stride) results; an odd zero goes behind the axis */
    TOW_CONV_VALID,     /* none */
    TOW_CONV_CAUSAL,    /* K - 1 zeros before a single spatial axis: no result sees what follows it */
    TOW_CONV_CIRCULAR,  /* (K - 1) / 2 elements before and K / 2 behind the axis, from its other end */
    TOW_CONV_REFLECT,   /* likewise, mirrored at the first and the last element */
    TOW_CONV_EXPLICIT,  /* .low zeros before and .high behind; negative numbers cut */
    TOW_CONV_SAME_LOWER /* SAME, but an odd zero goes before the axis */
} tow_conv_padding;
typedef struct tow_conv {
    tow_module module;
    int64_t features;
    int64_t kernel_size[TOW_MAX_RANK]; /* {3, 3} for images */
    int64_t strides[TOW_MAX_RANK];     /* 1 */
    tow_conv_padding padding;          /* SAME */
    int64_t low[TOW_MAX_RANK];         /* of TOW_CONV_EXPLICIT, one for each axis */
    int64_t high[TOW_MAX_RANK];
    int64_t input_dilation[TOW_MAX_RANK];  /* 1; with another one, padding is VALID, CAUSAL or EXPLICIT */
    int64_t kernel_dilation[TOW_MAX_RANK]; /* 1 */
    int64_t groups;                        /* 1; of features in and out, which do not meet; in, features: depthwise */
    bool no_bias;
    tow_initializer kernel_init;  /* lecun_normal */
    tow_initializer bias_init;    /* zeros */
    tow_dtype dtype, param_dtype; /* tow_dtype in tow/module.h */
} tow_conv;
#define TOW_CONV(...) TOW__LAYER(tow_conv, __VA_ARGS__)

/* ---- ConvLocal: a Conv with a kernel of its own at each place ---------------------------------------------------- */
/* x [batch..., spatial..., in] -> [batch..., spatial'..., features]: options, padding and results are those of Conv,
 * without groups. kernel [spatial'..., in * kernel_size..., features], its middle axis in row-major order of the
 * features and then of the place in the window, bias [spatial'..., features]. The input's size is thus a part of the
 * parameters. A second input, of the kernel's shape, is a mask that multiplies it. kernel_size has at most 5 entries,
 * and kernels at most 4096 places. */
typedef struct tow_conv_local {
    tow_module module;
    int64_t features;
    int64_t kernel_size[TOW_MAX_RANK];
    int64_t strides[TOW_MAX_RANK]; /* 1 */
    tow_conv_padding padding;      /* SAME */
    int64_t low[TOW_MAX_RANK];     /* of TOW_CONV_EXPLICIT, one for each axis */
    int64_t high[TOW_MAX_RANK];
    int64_t input_dilation[TOW_MAX_RANK];  /* 1; with another one, padding is VALID, CAUSAL or EXPLICIT */
    int64_t kernel_dilation[TOW_MAX_RANK]; /* 1 */
    bool no_bias;
    tow_initializer kernel_init;  /* lecun_normal */
    tow_initializer bias_init;    /* zeros */
    tow_dtype dtype, param_dtype; /* tow_dtype in tow/module.h */
} tow_conv_local;
#define TOW_CONV_LOCAL(...) TOW__LAYER(tow_conv_local, __VA_ARGS__)

/* ---- ConvTranspose: stride - 1 zeros between elements, then a correlation ---------------------------------------- */
/* x [batch..., spatial..., in] -> [batch..., spatial'..., features]. kernel [kernel_size..., in, features], with
 * .transpose_kernel [kernel_size..., features, in], bias [features]; mask and lists as in Conv. Results: n stride
 * elements (SAME, CIRCULAR), n stride + max(K - stride, 0) (VALID); with EXPLICIT, .low and .high are zeros around the
 * elements and the zeros between them. CIRCULAR adds what sticks out at one end to the other end. */
typedef struct tow_conv_transpose {
    tow_module module;
    int64_t features;
    int64_t kernel_size[TOW_MAX_RANK];
    int64_t strides[TOW_MAX_RANK]; /* 1 */
    tow_conv_padding padding;      /* SAME; or VALID, CIRCULAR, EXPLICIT */
    int64_t low[TOW_MAX_RANK];     /* of TOW_CONV_EXPLICIT, one for each axis */
    int64_t high[TOW_MAX_RANK];
    int64_t kernel_dilation[TOW_MAX_RANK]; /* 1 */
    bool transpose_kernel;                 /* flips the kernel and swaps its features: the transpose of a Conv */
    bool no_bias;
    tow_initializer kernel_init;  /* lecun_normal */
    tow_initializer bias_init;    /* zeros */
    tow_dtype dtype, param_dtype; /* tow_dtype in tow/module.h */
} tow_conv_transpose;
#define TOW_CONV_TRANSPOSE(...) TOW__LAYER(tow_conv_transpose, __VA_ARGS__)

/* ---- Pool: the largest, mean or smallest element of each window -------------------------------------------------- */
/* x [batch..., spatial..., features] -> [batch..., spatial'..., features]: tow_max_pool, tow_avg_pool, tow_min_pool as
 * a layer. */
typedef enum tow_pool_kind {
    TOW_POOL_MAX,
    TOW_POOL_AVG,
    TOW_POOL_MIN
} tow_pool_kind;
typedef struct tow_pool {
    tow_module module;
    tow_pool_kind kind;            /* TOW_POOL_MAX */
    int64_t window[TOW_MAX_RANK];  /* an entry for each spatial axis: {2, 2} */
    int64_t strides[TOW_MAX_RANK]; /* 1, as in Flax; one entry stands for all axes */
    tow_padding padding;           /* TOW_PAD_VALID */
    int64_t low[TOW_MAX_RANK];     /* of TOW_PAD_EXPLICIT, one for each axis */
    int64_t high[TOW_MAX_RANK];
    bool exclude_padding; /* means of the elements of x alone */
} tow_pool;
#define TOW_POOL(...) TOW__LAYER(tow_pool, __VA_ARGS__)

/* ---- AdaptivePool: pools to a given size, whatever the size of x ------------------------------------------------- */
/* x [batch..., spatial..., features] -> [batch..., size..., features]: element i of an axis pools the elements from
 * floor(i n / size) to ceil((i + 1) n / size), as PyTorch's. size {1, 1} pools everything. An axis without elements has
 * none to pool: an error. */
typedef struct tow_adaptive_pool {
    tow_module module;
    tow_pool_kind kind;         /* TOW_POOL_MAX */
    int64_t size[TOW_MAX_RANK]; /* an entry for each spatial axis; -1: that of x */
} tow_adaptive_pool;
#define TOW_ADAPTIVE_POOL(...) TOW__LAYER(tow_adaptive_pool, __VA_ARGS__)

/* ---- SpaceToDepth: blocks of neighbors become features ---------------------------------------------------------- */
/* x [batch..., n..., C] -> [batch..., n / block..., block... C]: features in row-major order of the place in the block,
 * then of C. inverse: the other way round (DepthToSpace). */
typedef struct tow_space_to_depth {
    tow_module module;
    int64_t block[TOW_MAX_RANK]; /* an entry for each spatial axis: {2, 2} */
    bool inverse;
} tow_space_to_depth;
#define TOW_SPACE_TO_DEPTH(...) TOW__LAYER(tow_space_to_depth, __VA_ARGS__)

/* ---- BatchNorm: normalizes each feature over all other axes ------------------------------------------------------ */
/* x -> (x - mean) * (rsqrt(var + epsilon) * scale) + bias, statistics in two passes as in LayerNorm, var without
 * correction.
 * scale, bias: [features...] of the axes; variables "batch_stats" mean (zeros) and var (ones), f32 of the same shape. A
 * second input, bool, broadcasts to x and says which elements the statistics are of (none: NaN).
 * In training (without tow_model_options.deterministic) statistics are those of the batch, and every call writes
 *     mean = momentum mean + (1 - momentum) batch mean, var likewise,
 * once, whatever remat makes again, and for each layer of a scan: "batch_stats" must be mutable then. Otherwise, and
 * with use_running_average, statistics are those variables. */
typedef struct tow_batch_norm {
    tow_module module;
    int n_axes;             /* 0: one, the last */
    int axes[TOW_MAX_RANK]; /* of features, n_axes of them; may be negative */
    bool use_running_average;
    double momentum; /* 0: 0.99 */
    double epsilon;  /* 0: 1e-5 */
    bool no_scale, no_bias;
    tow_initializer scale_init;   /* ones */
    tow_initializer bias_init;    /* zeros */
    tow_dtype dtype, param_dtype; /* tow_dtype in tow/module.h */
    bool fast_variance;           /* mean(x^2) - mean^2, as in LayerNorm */
} tow_batch_norm;
#define TOW_BATCH_NORM(...) TOW__LAYER(tow_batch_norm, __VA_ARGS__)

/* ---- GroupNorm: normalizes groups of features of each example ---------------------------------------------------- */
/* x [batch, ..., C] -> likewise, statistics over all axes between the first and the last one (.reduction_axes: others)
 * and over the C / groups features of a group. scale, bias: [C]. A second input is a mask as in BatchNorm. */
typedef struct tow_group_norm {
    tow_module module;
    int64_t groups;     /* 0: 32, or C / group_size */
    int64_t group_size; /* in place of groups */
    double epsilon;     /* 0: 1e-6 */
    bool no_scale, no_bias;
    tow_initializer scale_init;   /* ones */
    tow_initializer bias_init;    /* zeros */
    tow_dtype dtype, param_dtype; /* tow_dtype in tow/module.h */
    int n_reduction_axes;         /* 0: all but the first */
    /* that statistics are over, n_reduction_axes of them, the last axis of x among them; may be negative */
    int reduction_axes[TOW_MAX_RANK];
    bool fast_variance; /* mean(x^2) - mean^2, as in LayerNorm */
} tow_group_norm;
#define TOW_GROUP_NORM(...) TOW__LAYER(tow_group_norm, __VA_ARGS__)

/* ---- InstanceNorm: normalizes each feature of each example ------------------------------------------------------- */
/* x [batch, ...] -> likewise, statistics over all axes but the first one and those of features. scale, bias:
 * [features...]. A second input is a mask as in BatchNorm. */
typedef struct tow_instance_norm {
    tow_module module;
    int n_axes;             /* 0: one, the last */
    int axes[TOW_MAX_RANK]; /* of features, n_axes of them; may be negative */
    double epsilon;         /* 0: 1e-6 */
    bool no_scale, no_bias;
    tow_initializer scale_init;   /* ones */
    tow_initializer bias_init;    /* zeros */
    tow_dtype dtype, param_dtype; /* tow_dtype in tow/module.h */
    bool fast_variance;           /* mean(x^2) - mean^2, as in LayerNorm */
} tow_instance_norm;
#define TOW_INSTANCE_NORM(...) TOW__LAYER(tow_instance_norm, __VA_ARGS__)

/* ---- PReLU: x where x >= 0, else negative_slope x ---------------------------------------------------------------- */
/* negative_slope: []. */
typedef struct tow_prelu {
    tow_module module;
    tow_initializer slope_init;   /* constant 0.01 */
    tow_dtype dtype, param_dtype; /* tow_dtype in tow/module.h */
} tow_prelu;
#define TOW_PRELU(...) TOW__LAYER(tow_prelu, __VA_ARGS__)

/* ---- Einsum: einsum of x and a kernel, plus a bias --------------------------------------------------------------- */
/* kernel [shape...]; bias: the axes of the kernel that the result has, in the result's order. In C the name tow_einsum
 * is that of the function. */
typedef struct tow_einsum_layer {
    tow_module module;
    const char *spec;            /* "btd,dhk->bthk": x, kernel -> result; "..." in x and result only */
    int64_t shape[TOW_MAX_RANK]; /* of the kernel, ends at the first zero */
    bool no_bias;
    tow_initializer kernel_init;  /* lecun_normal of the shape as it is */
    tow_initializer bias_init;    /* zeros */
    tow_dtype dtype, param_dtype; /* tow_dtype in tow/module.h */
} tow_einsum_layer;
#define TOW_EINSUM(...) TOW__LAYER(tow_einsum_layer, __VA_ARGS__)

TOW_API extern const tow_module_class tow_dense_class, tow_dense_general_class, tow_mlp_class, tow_embed_class,
    tow_layer_norm_class, tow_rms_norm_class, tow_dropout_class, tow_conv_class, tow_conv_transpose_class,
    tow_conv_local_class, tow_pool_class, tow_adaptive_pool_class, tow_space_to_depth_class, tow_batch_norm_class,
    tow_group_norm_class, tow_instance_norm_class, tow_prelu_class, tow_einsum_layer_class;

/* ==== layers made of other layers ================================================================================= */

/* Layers made of other layers, and of functions: Sequential, Parallel, Residual, names for children, functions as
 * layers. They are layers like all others: they nest, and take remat, scan and vmap around and inside.
 *
 * Children are called after their place (layers_0, branches_1), or by TOW_NAMED. A wrapper (TOW_REMAT, TOW_PRECISION,
 * ...) around a layer changes no name, so a name goes around the wrapper: TOW_NAMED("attn", &remat). */

/* ---- Named: a layer under a name of its own ---------------------------------------------------------------------- */
/* The layer `inner` as the child `name`, which needs no layer around it that calls it so: as a model, as the layer of a
 * scan, or among the layers of Sequential and Parallel, where the name stands in place of layers_i.
 *     tow_sequential block = TOW_SEQUENTIAL(TOW_MODULE(&TOW_NAMED("norm", &norm)),
 *                                           TOW_MODULE(&TOW_NAMED("attn", &attention)));
 * Error: two layers of one Sequential or Parallel with one name, unless they are the same layer, which then shares its
 * parameters. */
typedef struct tow_named {
    tow_module module;
    const char *name;
    const tow_module *inner;
} tow_named;
#ifndef __cplusplus
#define TOW_NAMED(child, layer)                                                                                        \
    ((tow_named){.module = {&tow_named_class, sizeof(tow_named)}, .name = (child), .inner = &(layer)->module})
#else
#define TOW_NAMED(child, layer)                                                                                        \
    ([](const char *tow__name, const tow_module *tow__inner) {                                                         \
        tow_named tow__layer = {};                                                                                     \
        tow__layer.module = {&tow_named_class, sizeof tow__layer};                                                     \
        tow__layer.name = tow__name;                                                                                   \
        tow__layer.inner = tow__inner;                                                                                 \
        return tow__layer;                                                                                             \
    }((child), &(layer)->module))
#endif

typedef tow_value (*tow_layer_function)(tow_scope *scope, tow_value x);
typedef tow_value (*tow_layer_function_with)(tow_scope *scope, tow_value x, const void *user);
typedef void (*tow_layer_function_n)(tow_scope *scope, size_t n_inputs, const tow_value *inputs, size_t n_outputs,
                                     tow_value *outputs, const void *user);

/* ---- Function: a function as a layer, without a class ------------------------------------------------------------ */
/* One of three kinds. Each gets the scope, so it may have parameters, children, variables and random keys as a layer's
 * call has; errors are reported with tow_scope_fail.
 *     static tow_value gated(tow_scope *scope, tow_value x)
 *     {
 *         tow_dense dense = TOW_DENSE(.features = 8);
 *         return tow_mul(tow_apply(scope, "value", &dense, x), tow_logistic(tow_apply(scope, "gate", &dense, x)));
 *     }
 *     tow_function_layer layer = TOW_FUNCTION(gated);
 * TOW_FUNCTION_WITH(function, user) calls function(scope, x, user), TOW_FUNCTION_N(function, user) one with any numbers
 * of inputs and outputs, which it checks. `user` is only read, and lives as long as the layer is used. */
typedef struct tow_function_layer {
    tow_module module;
    const char *name;                      /* for messages: that of the function */
    tow_layer_function function;           /* of TOW_FUNCTION */
    tow_layer_function_with function_with; /* of TOW_FUNCTION_WITH */
    tow_layer_function_n function_n;       /* of TOW_FUNCTION_N */
    const void *user;
} tow_function_layer;
#ifndef __cplusplus
#define TOW_FUNCTION(call)                                                                                             \
    ((tow_function_layer){                                                                                             \
        .module = {&tow_function_class, sizeof(tow_function_layer)}, .name = #call, .function = (call)})
#define TOW_FUNCTION_WITH(call, context)                                                                               \
    ((tow_function_layer){.module = {&tow_function_class, sizeof(tow_function_layer)},                                 \
                          .name = #call,                                                                               \
                          .function_with = (call),                                                                     \
                          .user = (context)})
#define TOW_FUNCTION_N(call, context)                                                                                  \
    ((tow_function_layer){.module = {&tow_function_class, sizeof(tow_function_layer)},                                 \
                          .name = #call,                                                                               \
                          .function_n = (call),                                                                        \
                          .user = (context)})
#else
#define TOW_FUNCTION(call)               TOW__FUNCTION(call, tow_layer_function, function, nullptr)
#define TOW_FUNCTION_WITH(call, context) TOW__FUNCTION(call, tow_layer_function_with, function_with, context)
#define TOW_FUNCTION_N(call, context)    TOW__FUNCTION(call, tow_layer_function_n, function_n, context)
#define TOW__FUNCTION(call, type, member, context)                                                                     \
    ([](type tow__call, const void *tow__user) {                                                                       \
        tow_function_layer tow__layer = {};                                                                            \
        tow__layer.module = {&tow_function_class, sizeof tow__layer};                                                  \
        tow__layer.name = #call;                                                                                       \
        tow__layer.member = tow__call;                                                                                 \
        tow__layer.user = tow__user;                                                                                   \
        return tow__layer;                                                                                             \
    }((call), (context)))
#endif

/* ---- Sequential: layers one after the other ---------------------------------------------------------------------- */
/* Layer i is the child layers_i, or has the name that TOW_NAMED gives it.
 *     tow_sequential s = TOW_SEQUENTIAL(TOW_MODULE(&a), TOW_MODULE(&b));
 * At least one layer; the list lives as long as the enclosing block (docs/where-layers-live.md, tow_module_copy). Or,
 * in C++, too, of an array that lives as long as it is used:
 *     const tow_module *layers[] = {TOW_MODULE(&a), TOW_MODULE(&b)};
 *     tow_sequential s = TOW_SEQUENTIAL_OF(layers);
 * The first layer gets all inputs, each further one the result of the layer before it; the last one gives all
 * outputs. */
typedef struct tow_sequential {
    tow_module module;
    const tow_module *const *layers;
    size_t n_layers;
} tow_sequential;
#ifndef __cplusplus
#define TOW_SEQUENTIAL(...)                                                                                            \
    ((tow_sequential){.module = {&tow_sequential_class, sizeof(tow_sequential)},                                       \
                      .layers = (const tow_module *const[]){__VA_ARGS__},                                              \
                      .n_layers = sizeof((const tow_module *const[]){__VA_ARGS__}) / sizeof(const tow_module *)})

#define TOW_SEQUENTIAL_OF(array)                                                                                       \
    ((tow_sequential){.module = {&tow_sequential_class, sizeof(tow_sequential)},                                       \
                      .layers = (array),                                                                               \
                      .n_layers = sizeof(array) / sizeof(const tow_module *)})
#else
#define TOW_SEQUENTIAL_OF(array)                                                                                       \
    ([](const tow_module *const *tow__list, size_t tow__length) {                                                      \
        tow_sequential tow__layer = {};                                                                                \
        tow__layer.module = {&tow_sequential_class, sizeof tow__layer};                                                \
        tow__layer.layers = tow__list;                                                                                 \
        tow__layer.n_layers = tow__length;                                                                             \
        return tow__layer;                                                                                             \
    }((array), sizeof(array) / sizeof(const tow_module *)))
#endif

/* ---- Parallel: layers side by side, their results combined ------------------------------------------------------- */
/* Branch i is the child branches_i, or has the name that TOW_NAMED gives it. Each gets all inputs, or with .own_inputs
 * input i alone, and gives one result:
 *     tow_parallel p = TOW_PARALLEL(TOW_CONCATENATE, TOW_MODULE(&narrow), TOW_MODULE(&wide));
 *     tow_parallel q = TOW_PARALLEL_OF(TOW_SUM, branches);                   of an array, in C++, too
 * Results of different float types are promoted. Error: sums of different shapes. */
typedef enum tow_combine {
    TOW_SUM,
    TOW_MEAN,
    TOW_PRODUCT,
    TOW_CONCATENATE, /* along .axis */
    TOW_STACK,       /* along a new .axis */
    TOW_APART,       /* result i is output i: as many outputs as branches */
    TOW_COMBINED_BY  /* what .function makes of them */
} tow_combine;
/* results[0..n) -> the output */
typedef tow_value (*tow_combine_function)(tow_scope *scope, size_t n, const tow_value *results, const void *user);
typedef struct tow_parallel {
    tow_module module;
    const tow_module *const *branches;
    size_t n_branches;
    tow_combine combine; /* TOW_SUM */
    int axis;            /* of TOW_CONCATENATE and TOW_STACK, negative: from the end; 0: -1, the last */
    bool own_inputs;
    tow_combine_function function; /* of TOW_COMBINED_BY */
    const void *user;              /* for it */
} tow_parallel;
#ifndef __cplusplus
#define TOW_PARALLEL(how, ...)                                                                                         \
    ((tow_parallel){.module = {&tow_parallel_class, sizeof(tow_parallel)},                                             \
                    .combine = (how),                                                                                  \
                    .branches = (const tow_module *const[]){__VA_ARGS__},                                              \
                    .n_branches = sizeof((const tow_module *const[]){__VA_ARGS__}) / sizeof(const tow_module *)})
#define TOW_PARALLEL_OF(how, array)                                                                                    \
    ((tow_parallel){.module = {&tow_parallel_class, sizeof(tow_parallel)},                                             \
                    .combine = (how),                                                                                  \
                    .branches = (array),                                                                               \
                    .n_branches = sizeof(array) / sizeof(const tow_module *)})
#else
#define TOW_PARALLEL_OF(how, array)                                                                                    \
    ([](tow_combine tow__how, const tow_module *const *tow__list, size_t tow__length) {                                \
        tow_parallel tow__layer = {};                                                                                  \
        tow__layer.module = {&tow_parallel_class, sizeof tow__layer};                                                  \
        tow__layer.combine = tow__how;                                                                                 \
        tow__layer.branches = tow__list;                                                                               \
        tow__layer.n_branches = tow__length;                                                                           \
        return tow__layer;                                                                                             \
    }((how), (array), sizeof(array) / sizeof(const tow_module *)))
#endif

/* ---- Residual: a layer added to its input ------------------------------------------------------------------------ */
/* x, more inputs -> x + scale f(x, more inputs), f the layer `inner`, whose names stay as they are: TOW_RESIDUAL(&mlp).
 * With .projection it is projection(x) + scale f(x, ...); the projection is the child "projection" unless TOW_NAMED
 * says otherwise. Further outputs are those of f. Different float types are promoted. Error: shapes differ. */
typedef struct tow_residual_layer {
    tow_module module;
    const tow_module *inner;
    const tow_module *projection; /* NULL: x as it is */
    double scale;                 /* 0: 1 */
    tow_initializer scale_init;   /* set: the parameter "scale" [features] multiplies f(x), too (LayerScale) */
} tow_residual_layer;
#define TOW_RESIDUAL(...) TOW__WRAPPER(tow_residual_layer, __VA_ARGS__)

/* ---- Activation: a function without parameters as a layer ------------------------------------------------------- */
/* For Sequential: TOW_ACTIVATION(tow_relu). */
typedef struct tow_activation_layer {
    tow_module module;
    tow_activation activation;
} tow_activation_layer;
#ifndef __cplusplus
#define TOW_ACTIVATION(function)                                                                                       \
    ((tow_activation_layer){.module = {&tow_activation_class, sizeof(tow_activation_layer)}, .activation = (function)})
#else
#define TOW_ACTIVATION(function)                                                                                       \
    ([](tow_activation tow__function) {                                                                                \
        tow_activation_layer tow__layer = {};                                                                          \
        tow__layer.module = {&tow_activation_class, sizeof tow__layer};                                                \
        tow__layer.activation = tow__function;                                                                         \
        return tow__layer;                                                                                             \
    }(function))
#endif

TOW_API extern const tow_module_class tow_named_class, tow_function_class, tow_sequential_class, tow_parallel_class,
    tow_residual_layer_class, tow_activation_class;

#ifdef __cplusplus
}
#endif
#endif

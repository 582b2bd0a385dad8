/* Modules, scopes and variables, as layers use them: a model is a struct of layers; a scope is where its parameters,
 * variables and random keys come from. Below are initializers, rules of lifted transforms, modules and scopes, and
 * copies of models. tow/params.h has lists of parameters, tow/model.h runs models. */
#ifndef TOW_MODULE_H
#define TOW_MODULE_H

#include "tow/ops.h"
#include "tow/params.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== initializers ================================================================================================ */

/* Initializers: what fills a parameter from a key. An initializer is a function and its options; a struct of zeros
 * stands for the default of whoever takes it, options without `fill` are an error.
 *
 * Those of this header are jax.nn.initializers, bit for bit as JAX draws them on a CPU with FMA, in f32, f64, bf16 and
 * f16:
 * eagerly, operation by operation, as module.init does. A draw of another type is one of its own and no rounded f32:
 * bf16 takes other bits of the generator. f64 has JAX's bits where log and erf are those of glibc. Below a scan with
 * TOW_KEYS_FLAX f32 is drawn as in the body of flax.linen.scan, which XLA compiles: a normal draw
 * (tow_initializer_normal, variance scaling with TOW_NORMAL, the default of Embed) is multiplied by sqrt(2) * stddev
 * once, not by one factor after the other, so that it may differ in its last bits. Equal bits of whole models that are
 * initialized under jax.jit are not promised.
 *
 * Orthogonal matrices come from a QR decomposition. Tow computes it in f64 and rounds once; JAX's in f32 is off by the
 * order of LAPACK's sums. So they agree to 1e-5 in f32 (most to 1e-6), and the rows or columns of Tow's are orthonormal
 * to 1e-6. */

typedef enum tow_fan_mode {
    TOW_FAN_IN,
    TOW_FAN_OUT,
    TOW_FAN_AVG,
    TOW_FAN_GEO_AVG
} tow_fan_mode;
typedef enum tow_distribution {
    TOW_TRUNCATED_NORMAL,
    TOW_NORMAL,
    TOW_UNIFORM
} tow_distribution;

/* The axes that variance scaling takes for inputs and outputs, which may be negative, and those that count kernels side
 * by side. All others are a receptive field, which multiplies both fans. */
typedef struct tow_fan_axes {
    int n_in, in[TOW_MAX_RANK];   /* n_in 0: one, -2 */
    int n_out, out[TOW_MAX_RANK]; /* n_out 0: one, -1 */
    int n_batch, batch[TOW_MAX_RANK];
} tow_fan_axes;

/* An initializer of one's own is a `fill`, with `user` for what it needs:
 *
 *     static tow_status fill_eye(tow_context *context, const tow_initializer *self, tow_type type,
 *                                const uint32_t key[2], float *data)
 *     {
 *         (void)self, (void)key;
 *         if (type.rank != 2)
 *             return tow_initializer_fail(context, TOW_SHAPE_MISMATCH, "eye: expected a matrix, found rank %d",
 *                                         type.rank);
 *         for (int64_t i = 0; i < type.dims[0] && i < type.dims[1]; i++) data[i * type.dims[1] + i] = 1;
 *         return TOW_OK;
 *     }
 *     tow_dense dense = TOW_DENSE(.features = 8, .kernel_init = {.fill = fill_eye});
 *
 * It is called once for each parameter, in a scan once for each iteration, with a key of that parameter's alone. */
typedef struct tow_initializer {
    /* Writes a parameter as f32, row-major, into data, which is zero. type: f32 of the parameter's shape. */
    tow_status (*fill)(tow_context *context, const struct tow_initializer *self, tow_type type, const uint32_t key[2],
                       float *data);
    double a, b, c; /* meaning by initializer */
    int mode, distribution, axis;
    tow_fan_axes fan; /* of variance scaling */
    /* 0: the shape is that of the parameter. n: that of a matrix, its rows the first n axes and its columns the others
     * (DenseGeneral). */
    int matrix_of;
    bool compiled; /* draw what JAX draws inside a function that XLA compiles; set by scopes, see above */
    /* The same for parameters of f64, bf16 and f16, which type.dtype says: data has elements of that type. NULL: what
     * `fill` writes is rounded. */
    tow_status (*fill_as)(tow_context *context, const struct tow_initializer *self, tow_type type,
                          const uint32_t key[2], void *data);
    const void *user; /* for a fill of one's own; lives as long as models are initialized with it */
} tow_initializer;

/* For a `fill` that cannot: keeps the message, before which tow_model_init puts the path of the parameter, and returns
 * `status` (TOW_INVALID_ARGUMENT for TOW_OK). printf format. */
#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
TOW_API tow_status
tow_initializer_fail(tow_context *context, tow_status status, const char *format, ...);
/* True for a zeroed struct, of which nothing is set, and for NULL: layers then take their default. */
TOW_API bool tow_initializer_is_default(const tow_initializer *init);

TOW_API tow_initializer tow_initializer_zeros(void);
TOW_API tow_initializer tow_initializer_ones(void);
TOW_API tow_initializer tow_initializer_constant(double value);
TOW_API tow_initializer tow_initializer_normal(double stddev);
TOW_API tow_initializer tow_initializer_uniform(double scale);           /* [0, scale) */
TOW_API tow_initializer tow_initializer_truncated_normal(double stddev); /* normal, of what lies within 2 stddev */
/* stddev times normal numbers between `lower` and `upper`, which may be infinite: the bounds come before stddev. stddev
 * is that of the numbers before they are bounded; those between -2 and 2 have 0.8796 of it. Below a scan with
 * TOW_KEYS_FLAX last bits may differ from JAX's unless the bounds are -2 and 2. */
TOW_API tow_initializer tow_initializer_truncated_normal_with(double stddev, double lower, double upper);

/* Mean 0 and variance scale / fan, for parameters of rank 2 or more: axis -2 is the input, axis -1 the output, each
 * times the size of all other axes; fans of mode _AVG and _GEO_AVG are the arithmetic and the geometric mean of the
 * two. lecun: scale 1, fan in; he: scale 2, fan in; glorot: scale 1, average. _normal is truncated. */
TOW_API tow_initializer tow_initializer_variance_scaling(double scale, tow_fan_mode mode,
                                                         tow_distribution distribution);
TOW_API tow_initializer tow_initializer_lecun_normal(void);
TOW_API tow_initializer tow_initializer_lecun_uniform(void);
TOW_API tow_initializer tow_initializer_he_normal(void);
TOW_API tow_initializer tow_initializer_he_uniform(void);
TOW_API tow_initializer tow_initializer_glorot_normal(void);
TOW_API tow_initializer tow_initializer_glorot_uniform(void);
/* The same initializer with other axes for its fans (in_axis, out_axis and batch_axis of JAX), with which parameters
 * may be of rank 1:
 *     tow_fan_axes axes = {.n_in = 2, .in = {0, 1}, .n_out = 1, .out = {2}};
 *     tow_initializer init = tow_initializer_with_fan_axes(tow_initializer_lecun_normal(), &axes); */
TOW_API tow_initializer tow_initializer_with_fan_axes(tow_initializer init, const tow_fan_axes *axes);

/* scale times a matrix with orthonormal columns, or rows if there are fewer: the columns are the axis `column_axis`
 * (-1: the last), which may be negative, the rows all others in their order. All such matrices are equally likely.
 * Computed in f64; a parameter of 16 bits is rounded once, for which JAX has no initializer. Error: a rank below 2. */
TOW_API tow_initializer tow_initializer_orthogonal(double scale, int column_axis);
/* For convolutions, kernels [spatial..., in, features] of rank 3 to 5: zeros, but the middle tap (k - 1) / 2 is an
 * orthogonal matrix [in, features] of the same key; column_axis is one of these two, -1 or -2. Error: in > features. */
TOW_API tow_initializer tow_initializer_delta_orthogonal(double scale, int column_axis);

/* ==== rules of lifted transforms ================================================================================== */

/* Rules of lifted transforms (tow/transforms.h): what the iterations of a scan have of their own, and what is one for
 * all of them. */

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

/* ==== modules and scopes ========================================================================================== */

typedef struct tow_scope tow_scope;
typedef struct tow_module tow_module;
struct tow_cell_methods;
struct tow_module_layout;

/* The class of a layer: all layers of one kind share it. */
typedef struct tow_module_class {
    const char *name; /* "Dense" */
    /* Records the layer: inputs[0..n_inputs) -> outputs[0..n_outputs). Wrong counts are reported by tow_scope_fail. */
    void (*call)(tow_scope *scope, const tow_module *module, size_t n_inputs, const tow_value *inputs, size_t n_outputs,
                 tow_value *outputs);
    const struct tow_cell_methods *cell; /* of cells of recurrent networks, see recurrent.h; NULL: any other layer */
    const struct tow_module_layout
        *layout; /* what the struct points to, for tow_module_copy (below); NULL: nobody knows */
    /* Of libraries whose layers may get options later: the macro that makes them, "TOW_DENSE", and the size of the
     * struct. Layers then have to say their size. NULL: it is not looked at. */
    const char *macro;
    size_t size;
} tow_module_class;

/* First member of every layer struct. */
struct tow_module {
    const tow_module_class *cls;
    size_t size; /* of the whole struct, as the program was compiled; 0 for layers whose class has no .macro */
};

/* The module of a layer struct, for functions that take any. */
#define TOW_MODULE(layer) (&(layer)->module)

/* TOW__LAYER and TOW__WRAPPER make the macros of layers.h and transforms.h. In C++, which has no compound literals,
 * they take no options: options are assigned afterwards.
 *     tow_dense d = TOW_DENSE();  d.features = 128;
 *     tow_remat r = TOW_REMAT(&d);  r.policy = tow_dots_saveable(); */
#ifndef __cplusplus
#define TOW__LAYER(type, ...)                                                                                          \
    (TOW__LEAVES_OUT(type){.module = {&type##_class, sizeof(type)}, __VA_ARGS__} TOW__LEAVES_OUT_NO_MORE)
#else
#define TOW__LAYER(type, ...)                                                                                          \
    ([](__VA_ARGS__) {                                                                                                 \
        type tow__layer = {};                                                                                          \
        tow__layer.module = {&type##_class, sizeof(type)};                                                             \
        return tow__layer;                                                                                             \
    }())
#endif

/* A layer around another one: TOW_REMAT(&layer, options...); in C++ as module.h says. In C11 the part of a macro's
 * arguments that "..." stands for must not be missing: so the class is given behind the options. */
#ifndef __cplusplus
#define TOW__WRAPPER(type, ...) TOW__WRAPPER2(type, __VA_ARGS__, .module = {&type##_class, sizeof(type)})
#define TOW__WRAPPER2(type, layer, ...)                                                                                \
    (TOW__LEAVES_OUT(type){.inner = &(layer)->module, __VA_ARGS__} TOW__LEAVES_OUT_NO_MORE)
#else
#define TOW__WRAPPER(type, layer)                                                                                      \
    ([](const tow_module *tow__inner) {                                                                                \
        type tow__layer = {};                                                                                          \
        tow__layer.module = {&type##_class, sizeof(type)};                                                             \
        tow__layer.inner = tow__inner;                                                                                 \
        return tow__layer;                                                                                             \
    }(&(layer)->module))
#endif

/* ---- inside a layer's call --------------------------------------------------------------------------------------- */

/* Calls a child layer under `name`. The macro takes a pointer to any layer struct whose first member is `module`. */
#define tow_apply(scope, name, layer, x) tow_apply_module(scope, name, &(layer)->module, tow_at((x), TOW_HERE))
#define tow_apply_n(scope, name, layer, n_inputs, inputs, n_outputs, outputs)                                          \
    tow_apply_module_n(scope, name, &(layer)->module, n_inputs, inputs, n_outputs, outputs)
TOW_API tow_value tow_apply_module(tow_scope *scope, const char *name, const tow_module *module, tow_value x);
TOW_API void tow_apply_module_n(tow_scope *scope, const char *name, const tow_module *module, size_t n_inputs,
                                const tow_value *inputs, size_t n_outputs, tow_value *outputs);

/* Calls a layer in this very scope: its parameters, variables and children have the paths that they would have if the
 * caller itself asked for them. So a choice or a loop adds no level, as in Flax, where nn.cond, nn.switch and
 * nn.while_loop call functions of the module that they are given:
 *     tow_cond step = TOW_COND(.yes = TOW_MODULE(&TOW_NAMED("deep", &mlp)),
 *                              .no = TOW_MODULE(&TOW_NAMED("flat", &dense)));
 *     tow_apply_here_n(scope, &step, 2, in, 1, &y);                                 params "deep/...", "flat/kernel"
 * Two layers that ask for one path share what is there, and their draws count on. The output that is captured at this
 * path is that of the caller. */
#define tow_apply_here(scope, layer, x) tow_apply_module_here(scope, &(layer)->module, tow_at((x), TOW_HERE))
#define tow_apply_here_n(scope, layer, n_inputs, inputs, n_outputs, outputs)                                           \
    tow_apply_module_here_n(scope, &(layer)->module, n_inputs, inputs, n_outputs, outputs)
TOW_API tow_value tow_apply_module_here(tow_scope *scope, const tow_module *module, tow_value x);
TOW_API void tow_apply_module_here_n(tow_scope *scope, const tow_module *module, size_t n_inputs,
                                     const tow_value *inputs, size_t n_outputs, tow_value *outputs);

/* The trace that the layer records in. */
TOW_API tow_trace *tow_scope_trace(tow_scope *scope);
/* "blocks/attn": components joined by '/'. Valid as long as the scope. */
TOW_API const char *tow_scope_path(const tow_scope *scope);
/* Records an error in the trace, the scope's path in front: the first one sticks. printf format. */
#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
TOW_API void
tow_scope_fail(tow_scope *scope, tow_status status, const char *format, ...);

/* The parameter `name` (collection "params") of this scope, shape [dims]: f32, or what a TOW_PRECISION around says of
 * parameters. Asked for twice with the same type in one scope path it is the same parameter (tied weights); another
 * type is an error with both types. */
TOW_API tow_value tow_param(tow_scope *scope, const char *name, int rank, const int64_t *dims, tow_initializer init);
/* The same of a float type that the layer chooses, and of a kind that it says where the name alone does not: a bias "b"
 * of shape [heads, head] is no weight. Who asks for the parameter first says the kind; TOW_PARAM_DEFAULT: name and rank
 * say it. Error: TOW_INVALID_ARGUMENT for what is no kind. */
TOW_API tow_value tow_param_with(tow_scope *scope, const char *name, tow_type type, tow_param_kind kind,
                                 tow_initializer init);

/* ---- element types of layers ------------------------------------------------------------------------------------- */

/* Layers have options .dtype and .param_dtype: TOW_F32, TOW_F64, TOW_BF16, TOW_F16, or zero for the default.
 * .dtype: what a layer computes in and gives. Default: that of a TOW_PRECISION around, else the type that the inputs
 * and the parameters promote to: equal types stay, f64 wins, any two others are f32. Sums of bf16 and f16 are f32, and
 * so are statistics, of which norms round only their results.
 * .param_dtype: what parameters are stored and drawn in. Default: that of a TOW_PRECISION around, else f32. Rules of a
 * TOW_PRECISION around, .param_dtypes, choose the type of each parameter by its path, and count more.
 *
 * TOW_Q8_0, TOW_Q4_0, TOW_Q4_K and TOW_Q6_K as .param_dtype are for weights that are not trained (tow_params_convert
 * makes them of others).
 * Dense, DenseGeneral and Embed have such weights, and with them attention, MLPs and transformer blocks, in blocks of
 * 32 or 256 along the axes that are summed over, which have a multiple of so many numbers; products are those of
 * tow_quantized_dot.
 * A kernel [inputs..., features...] becomes a parameter [features, inputs / 32], with all features and all inputs as
 * one axis each, and a table [n, features] one of [n, features / 32], as GGUF files have them. Under a TOW_PRECISION
 * all other parameters, such as biases, norms and convolutions, are f32. Initial values are those of f32, quantized.
 * LoRA around such layers leaves the product with the blocks alone and adds its own; layers that change parameters (map
 * variables, WeightNorm, SpectralNorm, tied) see the numbers of the blocks, in f32 and in the shape of a kernel of
 * floats, and the product is that of floats. */
/* The type that `a` and `b` promote to, both floats. */
TOW_API tow_dtype tow_promote_types(tow_dtype a, tow_dtype b);
/* The type in which a layer with this option .param_dtype stores its parameters. */
TOW_API tow_dtype tow_scope_param_dtype(tow_scope *scope, tow_dtype param_dtype);
/* Converts n floats, such as inputs and parameters of a layer, to what it computes in, and returns that: its option
 * .dtype, or else the default. Values that are not floats, and null values, stay. A layer of a program calls this
 * before it computes:
 *
 *     tow_value v[2] = {in[0], tow_param(scope, "kernel", 2, dims, tow_initializer_lecun_normal())};
 *     tow_promote(scope, m->dtype, 2, v);
 *     out[0] = tow_matmul(v[0], v[1]); */
TOW_API tow_dtype tow_promote(tow_scope *scope, tow_dtype dtype, size_t n, tow_value *values);

/* ---- variables of other collections: what a call reads and changes ----------------------------------------------- */

/* The variable `name` of `collection` ("batch_stats", "cache", or any name but "params") in this scope: declares it
 * with its type and initial value, and reads what the last write of this call, or else the caller's state, says.
 * Without an initializer: zeros. Initializers draw f32; other types take those draws that they can hold. A variable
 * keeps its type, and no gradient is taken with respect to it. A layer declares its variables in every call, whether it
 * writes them or not. Under a scan every iteration has its own (rows of one array), and TOW_SCAN has rules. */
TOW_API tow_value tow_variable(tow_scope *scope, const char *collection, const char *name, tow_type type,
                               tow_initializer init);
/* Reads a variable whose type the layer does not know. Error: TOW_NOT_FOUND. */
TOW_API tow_value tow_get_variable(tow_scope *scope, const char *collection, const char *name);
/* True if the state has the variable; while initializing, if it was declared before. */
TOW_API bool tow_has_variable(const tow_scope *scope, const char *collection, const char *name);
/* Writes a variable: later reads of this call see `value`, and it is a result of the call. Layers that are recomputed
 * in reverse mode write once all the same. While initializing nothing is computed: the write is checked and dropped.
 * Errors: TOW_INVALID_ARGUMENT in an immutable collection, TOW_TYPE_MISMATCH, TOW_NOT_FOUND; TOW_UNSUPPORTED inside a
 * function given to an operation such as tow_remat_function, tow_cond_function or tow_while_function, which may read
 * variables and not write them. */
TOW_API void tow_set_variable(tow_scope *scope, const char *collection, const char *name, tow_value value);
/* In tow_model_options.mutable_collections: all that .state has. */
#define TOW_EVERY_COLLECTION "*"
/* True if variables of `collection` may be written: it is in tow_model_options.mutable_collections, or the model is
 * being initialized (then all are but "params" and "intermediates"). */
TOW_API bool tow_is_mutable(const tow_scope *scope, const char *collection);
/* True in tow_model_init. */
TOW_API bool tow_scope_is_initializing(const tow_scope *scope);
/* The collection of what is sown only to be looked at, and of captured outputs (tow_model_options.capture). */
#define TOW_INTERMEDIATES "intermediates"
/* Hands `value` out of the model as "collection/path/name/0" (the second of one name is ".../1") if `collection` is
 * named among the mutable ones, and does nothing otherwise: for looking at values inside a model. Returns whether it
 * did. Error: TOW_UNSUPPORTED inside a function given to an operation such as tow_remat_function. */
TOW_API bool tow_sow(tow_scope *scope, const char *collection, const char *name, tow_value value);
/* The same of one value "collection/path/name" that all calls in this scope make together, such as a sum of auxiliary
 * losses: it begins with `initial` in every element, and becomes reduce(what it was, value), tow_add for instance. (sow
 * of Flax with init_fn and reduce_fn; the value of an earlier call of the model does not come in, as if the collection
 * were not passed to apply.) A call in a choice that is not made leaves it as it was. Errors: as of tow_sow;
 * TOW_TYPE_MISMATCH for values of different types; TOW_UNSUPPORTED in the body of a TOW_WHILE, whose iterations hand on
 * variables under a rule TOW_CARRIED only. */
TOW_API bool tow_sow_with(tow_scope *scope, const char *collection, const char *name, tow_value value, double initial,
                          tow_value (*reduce)(tow_value before, tow_value value));
/* value plus the variable `name` of the collection "perturbations", zeros of the type of `value`: the gradient with
 * respect to the variable is that with respect to the value, wherever it is inside of the model (perturb of Flax). A
 * state without the collection, or none, leaves the value alone. In a graph of tow_model_loss_graph variable i is input
 * tow_params_count(params) + i, of which tow_value_and_grad takes gradients as of any other. Errors: TOW_NOT_FOUND if
 * the state has other perturbations and not this one; TOW_TYPE_MISMATCH if it is of another type. */
TOW_API tow_value tow_perturb(tow_scope *scope, const char *name, tow_value value);

/* A request of a layer to its scope. Functions of layers that change how others see their variables get one, and make
 * others: TOW_MAP_VARIABLES in tow/transforms.h. */
typedef struct tow_variable_request {
    const char *collection; /* "params" or that of a variable */
    const char *name;       /* "kernel" */
    const char *path;       /* "attn/query/kernel", below the layer whose function gets it; need not be set in others */
    tow_type type;
    tow_initializer init;
    tow_param_kind kind; /* of a parameter */
    /* Of a weight of Dense, DenseGeneral or Embed, which may be stored in blocks of few bits: the type of these that
     * the layer's .param_dtype says, or 0; and how many axes in front products sum over, or -1 for a table, where that
     * is the last axis. 0 in all others. `type` is that of the numbers. */
    tow_dtype blocks TOW__ZERO;
    int summed TOW__ZERO;
} tow_variable_request;
/* tow_param_with or tow_variable, as the collection says. */
TOW_API tow_value tow_request_variable(tow_scope *scope, const tow_variable_request *request);

/* ---- random keys, children --------------------------------------------------------------------------------------- */

/* A key u32[2] of stream `stream` ("dropout"): Flax's rule, fold_in(root, SHA-1(path, counter)), by which parameters
 * are drawn as well. Missing stream: error. SHA-1 gets the names of the path one after the other with nothing between
 * them, so that the children "block_1/3x3" and "block_13/x3" draw the same, as in Flax. Only the index of an iteration
 * of a scan, a loop's or an unrolled one's, is set off by a '/' from digits beside it (not with TOW_KEYS_FLAX, where it
 * is not in the path): iteration 3 of a scan `blocks` draws what a child "3" of a scope `blocks` draws, but not where
 * `blocks` ends with a digit or the names within begin with one. */
TOW_API tow_value tow_make_rng(tow_scope *scope, const char *stream);
/* True if there is a key for this stream: the caller gave one, or the model is being initialized. */
TOW_API bool tow_has_rng(const tow_scope *scope, const char *stream);
/* True if the model is traced for evaluation: tow_model_options.deterministic. */
TOW_API bool tow_scope_is_deterministic(const tow_scope *scope);
/* A new child scope without a module; close it with tow_scope_end. */
TOW_API tow_scope *tow_scope_begin(tow_scope *scope, const char *name);
TOW_API void tow_scope_end(tow_scope *child);

/* ==== copies of models ============================================================================================ */

/* Copies of models. Layers point to one another, and macros such as TOW_SEQUENTIAL, TOW_LAYERS, TOW_RULES and TOW_NAMES
 * make lists that live as long as the block in which they stand. So a function that builds a model and returns a layer
 * of it returns pointers to what is gone. A copy owns all of it:
 *
 *     static tow_module *build(tow_context *context, int64_t width)
 *     {
 *         tow_dense in = TOW_DENSE(.features = width), out = TOW_DENSE(.features = 10);
 *         tow_sequential model =
 *             TOW_SEQUENTIAL(TOW_MODULE(&in), TOW_MODULE(&TOW_ACTIVATION(tow_relu)), TOW_MODULE(&out));
 *         tow_module *copy = NULL;
 *         tow_module_copy(context, TOW_MODULE(&model), &copy);
 *         return copy;
 *     }
 *     tow_module *model = build(context, 64);
 *     tow_model_init(context, model, seed, 1, &type, &params);            ... and last, tow_module_free(model);
 *
 * docs/where-layers-live.md has the other ways. */

/* ---- what a layer struct points to ------------------------------------------------------------------------------- */

typedef enum tow_member_kind {
    TOW_MEMBER_LAYER,  /* const tow_module *, or a pointer to a layer struct */
    TOW_MEMBER_LAYERS, /* const tow_module *const *: a list that ends with NULL, or has the length in .count */
    TOW_MEMBER_TEXT,   /* const char * */
    TOW_MEMBER_NAMES,  /* const char *const *: a list that ends with NULL */
    TOW_MEMBER_RULES,  /* const tow_lift_rule *: a list that ends with .pattern NULL */
    TOW_MEMBER_POLICY, /* a tow_policy, not a pointer to one */
    TOW_MEMBER_DTYPES  /* const tow_dtype_rule *: a list that ends with .pattern NULL */
} tow_member_kind;

/* A member of a layer struct. All that are pointers may be NULL. */
typedef struct tow_member {
    tow_member_kind kind;
    size_t offset;
    size_t count; /* of TOW_MEMBER_LAYERS: the offset of a size_t with the length; 0: the list ends with NULL */
} tow_member;

/* In the class of a layer: .layout. Of members that are not listed the copy has the same bits: numbers and arrays in
 * the struct, and pointers to what outlives the copy (`user`, .in_axes and .out_axes of TOW_SCAN and TOW_VMAP, arrays
 * of one's own).
 *     typedef struct twice { tow_module module; const tow_module *inner; int64_t n; } twice;
 *     static const tow_member members[] = {TOW_MEMBER(twice, inner, TOW_MEMBER_LAYER)};
 *     static const tow_module_layout layout = {sizeof(twice), 1, members};
 *     static const tow_module_class twice_class = {.name = "Twice", .call = call_twice, .layout = &layout};
 * A layer without members needs the size: {sizeof(twice), 0, NULL}. */
typedef struct tow_module_layout {
    size_t size; /* of the struct */
    size_t n_members;
    const tow_member *members; /* [n_members] */
} tow_module_layout;
#define TOW_MEMBER(type, member, kind)                                                                                 \
    {                                                                                                                  \
        (kind), offsetof(type, member), 0                                                                              \
    }
#define TOW_MEMBER_LIST(type, member, length)                                                                          \
    {                                                                                                                  \
        TOW_MEMBER_LAYERS, offsetof(type, member), offsetof(type, length)                                              \
    }

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Copies a layer with all that it points to, layers in it included; a layer that is pointed to twice is one in the
 * copy, too. Paths, initial values and programs are those of the original, which may be gone afterwards.
 * Errors: TOW_UNSUPPORTED for a layer whose class has no .layout, with its name; TOW_INVALID_ARGUMENT for a layer
 * without a class, and for what has been left behind on the stack by a function that has returned; *copy is then
 * NULL. */
TOW_API tow_status tow_module_copy(tow_context *context, const tow_module *module, tow_module **copy);
/* Frees a copy, before its context is destroyed. NULL is accepted. */
TOW_API void tow_module_free(tow_module *copy);

#ifdef __cplusplus
}
#endif
#endif

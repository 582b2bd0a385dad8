/* Modules, scopes and variables, as layers use them: a model is a struct of layers; a scope is where its parameters,
 * variables and random keys come from. tow/params.h has lists of parameters, tow/model.h runs models. */
#ifndef TOW_MODULE_H
#define TOW_MODULE_H

#include "tow/initializers.h"
#include "tow/lifting.h"
#include "tow/ops.h"
#include "tow/params.h"

#ifdef __cplusplus
extern "C" {
#endif

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
        *layout; /* what the struct points to, for tow_module_copy (copy.h); NULL: nobody knows */
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
 * .param_dtype: what parameters are stored and drawn in. Default: that of a TOW_PRECISION around, else f32. */
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

#ifdef __cplusplus
}
#endif
#endif

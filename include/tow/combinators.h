/* Layers made of other layers, and of functions: Sequential, Parallel, Residual, names for children, functions as
 * layers. They are layers like all others: they nest, and take remat, scan and vmap around and inside. layers.h
 * includes this header.
 *
 * Children are called after their place (layers_0, branches_1), or by TOW_NAMED. A wrapper (TOW_REMAT, TOW_PRECISION,
 * ...) around a layer changes no name, so a name goes around the wrapper: TOW_NAMED("attn", &remat). */
#ifndef TOW_COMBINATORS_H
#define TOW_COMBINATORS_H

#include "tow/layers.h"

#ifdef __cplusplus
extern "C" {
#endif

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

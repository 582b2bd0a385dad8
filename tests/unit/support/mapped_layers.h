/* Helpers of the tests of map_variables and tied: functions of variables, and models. A test program includes it once,
 * after lift_golden.h. */
#ifndef TOW_TESTS_MAPPED_LAYERS_H
#define TOW_TESTS_MAPPED_LAYERS_H

#include "tests/unit/support/lift_golden.h"

/* ---- functions of variables; user, where they have one: a number ------------------------------------------------- */

#define MAP(name, expression)                                                                                          \
    static inline tow_value name(tow_value v, const tow_variable_request *asked, const void *user)                     \
    {                                                                                                                  \
        (void)asked, (void)user;                                                                                       \
        return expression;                                                                                             \
    }

static inline tow_value whole(tow_value v, double factor)
{
    tow_dtype dtype = tow_value_type(v).dtype;
    if (factor < 1 && !tow_dtype_is_float(dtype)) return tow_floor_divide(v, tow_full_like(v, 1 / factor));
    return tow_mul_scalar(v, factor);
}
static inline tow_value standardize(tow_value w)
{
    const int axis[] = {0};
    tow_value centered = tow_sub(w, tow_mean_keepdims(w, 1, axis));
    tow_value variance = tow_mean_keepdims(tow_square(centered), 1, axis);
    return tow_mul(centered, tow_rsqrt(tow_add_scalar(variance, 1e-4)));
}
static inline tow_value straight_through(tow_value w)
{
    tow_value one = tow_full_like(w, 1), signs = tow_where(tow_ge_scalar(w, 0), one, tow_neg(one));
    return tow_add(w, tow_stop_gradient(tow_sub(signs, w)));
}

MAP(transpose, tow_transpose(v, 0, NULL))
MAP(upper, tow_triu(v, 0))
MAP(doubled, whole(v, 2))
MAP(halved, whole(v, 0.5))
MAP(plus_one, tow_add_scalar(v, 1))
MAP(minus_one, tow_add_scalar(v, -1))
MAP(standardized, standardize(v))
MAP(signs, straight_through(v))
MAP(flat, tow_reshape(v, 1, (int64_t[]){tow_type_element_count(tow_value_type(v))}))
MAP(as_asked, tow_reshape(v, asked->type.rank, asked->type.dims))
MAP(as_bf16, tow_convert(v, TOW_BF16))
MAP(as_dtype_asked, tow_convert(v, asked->type.dtype))
MAP(none, ((void)v, (tow_value){0}))

/* left right, of rank 2 */
static inline tow_value low_rank(tow_scope *scope, const tow_variable_request *asked, const void *user)
{
    (void)user;
    tow_type left = asked->type, right = asked->type;
    left.dims[1] = right.dims[0] = 2;
    tow_value a = tow_param_with(scope, "left", left, TOW_PARAM_DEFAULT, tow_initializer_lecun_normal());
    return tow_dot(a, tow_param_with(scope, "right", right, TOW_PARAM_DEFAULT, tow_initializer_normal(0.25)));
}

#define KERNELS TOW_NAMES("params/**kernel")

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* A model of a function, with up to four layers. */
typedef struct built {
    tow_module module;
    const tow_module *layers[4];
} built;
#define MODEL(name)                                                                                                    \
    static inline void name##_call(tow_scope *s, const tow_module *const *layers, tow_value x, tow_value *out);        \
    static inline void name##_of(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in,             \
                                 size_t n_out, tow_value *out)                                                         \
    {                                                                                                                  \
        (void)n_in, (void)n_out;                                                                                       \
        name##_call(s, ((const built *)module)->layers, in[0], out);                                                   \
    }                                                                                                                  \
    static const tow_module_class name##_class = {#name, name##_of};                                                   \
    static inline void name##_call(tow_scope *s, const tow_module *const *layers, tow_value x, tow_value *out)
#define BUILT(name, ...) ((built){{&name##_class}, {__VA_ARGS__}})

/* tanh of a dense layer; a running mean, drawn at first */
MODEL(step)
{
    (void)layers;
    tow_dense dense = TOW_DENSE(.features = 4, .bias_init = tow_initializer_normal(0.5));
    out[0] = tow_tanh(tow_apply(s, "dense", &dense, x));
}
MODEL(average)
{
    (void)layers;
    tow_dense dense = TOW_DENSE(.features = 4, .bias_init = tow_initializer_normal(0.5));
    tow_value mean = tow_variable(s, "batch_stats", "mean", TYPE(TOW_F32, 4), tow_initializer_normal(0.5));
    tow_value count = tow_variable(s, "batch_stats", "count", SCALAR(TOW_I32), (tow_initializer){0});
    tow_value y = tow_apply(s, "dense", &dense, x);
    out[0] = tow_tanh(tow_sub(y, tow_broadcast_to(mean, 2, tow_value_type(y).dims)));
    if (!tow_is_mutable(s, "batch_stats")) return;
    tow_value now = tow_mean(x, 1, (int[]){0});
    tow_set_variable(s, "batch_stats", "mean", tow_add(tow_mul_scalar(mean, 0.75), tow_mul_scalar(now, 0.25)));
    tow_set_variable(s, "batch_stats", "count", tow_add(count, tow_full_like(count, 1)));
}
/* decoder(tanh(encoder(x))), both under the name "stack" */
MODEL(autoencoder)
{
    out[0] = tow_apply_module(s, "stack", layers[1], tow_tanh(tow_apply_module(s, "stack", layers[0], x)));
}
/* output(tanh(x embed)), the second layer called "output" */
MODEL(projected)
{
    tow_scope *embed = tow_scope_begin(s, "embed");
    tow_initializer init = tow_initializer_variance_scaling(1, TOW_FAN_IN, TOW_NORMAL);
    init.fan.n_out = 1;
    tow_value table = tow_param(embed, "embedding", 2, (int64_t[]){4, 3}, init);
    tow_scope_end(embed);
    out[0] = tow_apply_module(s, "output", layers[0], tow_tanh(tow_dot(x, table)));
}
/* The layer on [x, x + 1, 2 x]. */
MODEL(rows)
{
    tow_value parts[] = {x, tow_add_scalar(x, 1), tow_mul_scalar(x, 2)};
    for (int i = 0; i < 3; i++) parts[i] = tow_reshape(parts[i], 3, (int64_t[]){1, 2, 4});
    out[0] = tow_apply_module(s, "stack", layers[0], tow_concatenate(3, parts, 0));
}

#endif

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
#ifndef TOW_INITIALIZERS_H
#define TOW_INITIALIZERS_H

#include "tow/base.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif

/* Initializers: constants, draws, variance scaling; and how they are called for parameters of every element type. The
 * fill of each takes all float types, f32 among them. */
#include "src/scope/initializers.h"

#include <math.h>

#include "src/base/dtypes.h"
#include "src/scope/draws.h"

tow_status tow_initializer_fail(tow_context *context, tow_status status, const char *format, ...)
{
    if (!context) return status == TOW_OK ? TOW_INVALID_ARGUMENT : status;
    va_list args;
    va_start(args, format);
    status = tow__fail_of_caller(context, status, format ? format : "its initializer failed", args);
    va_end(args);
    return status;
}

/* Reports an option that is no finite number. */
static tow_status check_finite(tow_context *ctx, const char *what, double x)
{
    if (isfinite(x)) return TOW_OK;
    return tow__fail(ctx, TOW_INVALID_ARGUMENT, "initializer: expected a finite %s, found %g", what, x);
}

/* ---- constants, and draws of fixed width ------------------------------------------------------------------------- */

/* Elements [first, first + count) of the value. */
typedef struct part {
    int64_t first, count;
} part;

static tow_status part_of_constant(tow_context *ctx, const tow_initializer *self, tow_type type, const uint32_t key[2],
                                   part of, void *data)
{
    (void)ctx, (void)key;
    const size_t size = tow_dtype_size(type.dtype), bytes = (size_t)of.count * size;
    if (bytes == 0) return TOW_OK;
    tow__store_element(type.dtype, data, 0, self->a);
    for (size_t done = size; done < bytes; done *= 2) /* all that is there once more */
        memcpy((char *)data + done, data, done < bytes - done ? done : bytes - done);
    return TOW_OK;
}

/* b, c: the interval of uniform draws, the bounds of truncated ones. */
static tow_status part_of_draw(tow_context *ctx, const tow_initializer *self, tow_type type, const uint32_t key[2],
                               part of, void *data)
{
    tow_status status = check_finite(ctx, self->distribution == TOW_UNIFORM ? "scale" : "stddev", self->a);
    if (status) return status;
    if (self->distribution == TOW_TRUNCATED_NORMAL && !(self->b < self->c))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "truncated normal: expected a lower bound below the upper one, found %g and %g", self->b,
                         self->c);
    tow__draws draws = {.distribution = (tow_distribution)self->distribution,
                        .key = key,
                        .low = self->b,
                        .high = self->c,
                        .scale = self->a,
                        .folded = self->compiled};
    tow__draw(&draws, type.dtype, of.first, of.count, data);
    return TOW_OK;
}

/* ---- variance scaling -------------------------------------------------------------------------------------------- */

/* The product of the sizes of these axes; n 0: of the axis `otherwise`. */
static tow_status product(tow_context *ctx, const char *option, tow_type type, int n, const int *axes, int otherwise,
                          double *size)
{
    *size = 1;
    if (n < 0 || n > TOW_MAX_RANK)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "variance scaling: .fan.n_%s = %d; expected at most %d axes",
                         option, n, TOW_MAX_RANK);
    for (int i = 0; i < (n ? n : 1); i++) {
        int axis = n ? axes[i] : otherwise, found = axis;
        if (axis < 0) axis += type.rank;
        bool twice = false;
        for (int k = 0; k < i; k++) twice = twice || axes[k] == found || axes[k] == axis || axes[k] == axis - type.rank;
        if (axis < 0 || axis >= type.rank || twice)
            return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                             "variance scaling: .fan.%s[%d] = %d; expected distinct axes of %s", option, i, found,
                             tow__type_name(type).text);
        *size *= (double)type.dims[axis];
    }
    return TOW_OK;
}

/* Fans of a kernel: sizes of inputs and outputs, each times the receptive field. */
static tow_status fans(tow_context *ctx, const tow_initializer *self, tow_type type, double *fan_in, double *fan_out)
{
    const tow_fan_axes *fan = &self->fan;
    if (type.rank < 2 && (fan->n_in == 0 || type.rank == 0))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "variance scaling needs a shape of rank 2 or more to tell inputs from outputs, found %s; "
                         "use tow_initializer_normal, tow_initializer_zeros or another initializer without fans",
                         tow__type_name(type).text);
    double batch = 1, all = (double)tow_type_element_count(type);
    tow_status status = product(ctx, "in", type, fan->n_in, fan->in, -2, fan_in);
    if (!status) status = product(ctx, "out", type, fan->n_out, fan->out, -1, fan_out);
    if (!status && fan->n_batch) status = product(ctx, "batch", type, fan->n_batch, fan->batch, 0, &batch);
    if (status) return status;
    double field = all / *fan_in / *fan_out / batch;
    *fan_in *= field;
    *fan_out *= field;
    return TOW_OK;
}

static tow_status part_of_variance(tow_context *ctx, const tow_initializer *self, tow_type type, const uint32_t key[2],
                                   part of, void *data)
{
    if (!(self->a >= 0) || !isfinite(self->a) || self->mode < TOW_FAN_IN || self->mode > TOW_FAN_GEO_AVG ||
        self->distribution < TOW_TRUNCATED_NORMAL || self->distribution > TOW_UNIFORM)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "variance scaling: expected a scale of at least 0, a tow_fan_mode and a tow_distribution, "
                         "found scale %g, mode %d, distribution %d",
                         self->a, self->mode, self->distribution);
    if (tow_type_element_count(type) == 0) return TOW_OK;
    double in = 1, out = 1;
    tow_status status = fans(ctx, self, type, &in, &out);
    if (status) return status;
    const double denominators[] = {
        [TOW_FAN_IN] = in, [TOW_FAN_OUT] = out, [TOW_FAN_AVG] = (in + out) / 2, [TOW_FAN_GEO_AVG] = sqrt(in * out)};
    double variance = tow__as_float(type.dtype, self->a / denominators[self->mode]);
    tow__draws draws = {.distribution = (tow_distribution)self->distribution,
                        .key = key,
                        .low = -1,
                        .high = 1,
                        .folded = self->compiled};
    if (draws.distribution == TOW_TRUNCATED_NORMAL) {
        draws.low = -2;
        draws.high = 2;
        draws.scale = tow__as_float(type.dtype, sqrt(variance)) / /* of the standard deviation of what lies within 2 */
                      tow__as_float(type.dtype, 0.87962566103423978);
    } else {
        draws.scale = sqrt(draws.distribution == TOW_UNIFORM ? tow__as_float(type.dtype, 3 * variance) : variance);
    }
    tow__draw(&draws, type.dtype, of.first, of.count, data);
    return TOW_OK;
}

/* ---- calling ----------------------------------------------------------------------------------------------------- */

/* data[i] = values[i] as `dtype`. Error: a value that the type does not have. */
static tow_status convert_values(tow_context *ctx, tow_dtype dtype, int64_t count, const float *values, void *data)
{
    for (int64_t i = 0; i < count; i++) {
        const double x = (double)values[i];
        if (!tow__dtype_holds(dtype, x))
            return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                             "the initial value %g is no %s; use another one, or the type f32", x,
                             tow_dtype_name(dtype));
        tow__store_element(dtype, data, i, x);
    }
    return TOW_OK;
}

/* The matrix that the initializer is to see. */
static tow_type seen_type(const tow_initializer *init, tow_type type)
{
    if (init->matrix_of <= 0 || init->matrix_of > type.rank) return type;
    int64_t dims[2] = {1, 1};
    for (int i = 0; i < type.rank; i++) dims[i >= init->matrix_of] *= type.dims[i];
    return tow_make_type(type.dtype, 2, dims);
}

tow_status tow__initialize(tow_context *ctx, const tow_initializer *init, tow_type type, const uint32_t key[2],
                           void *data)
{
    tow_context_clear_error(ctx); /* so that no older message stands for one that the fill does not give */
    if (tow__is_blocks(type.dtype)) return tow__initialize_blocks(ctx, init, type, key, data);
    type = seen_type(init, type);
    if (type.dtype == TOW_F32) return init->fill(ctx, init, type, key, data);
    if (init->fill_as && (tow_dtype_is_float(type.dtype) || tow__mapped_draw_of(init)))
        return init->fill_as(ctx, init, type, key, data);
    size_t count = (size_t)tow_type_element_count(type);
    float *values = tow__alloc(ctx, count, sizeof *values);
    if (!values) return TOW_OUT_OF_MEMORY;
    tow_status status = init->fill(ctx, init, tow_make_type(TOW_F32, type.rank, type.dims), key, values);
    if (!status) status = convert_values(ctx, type.dtype, (int64_t)count, values, data);
    tow__free(ctx, values, count, sizeof *values);
    return status;
}

bool tow__init_draws(const tow_initializer *init)
{
    const tow__mapped_draw *mapped = tow__mapped_draw_of(init);
    const tow__turned_draw *turned = tow__turned_draw_of(init);
    if (turned) return tow__init_draws(&turned->init);
    return mapped ? tow__init_draws(&mapped->init) : init->fill != tow_initializer_zeros().fill;
}

/* ---- constructors ------------------------------------------------------------------------------------------------ */

/* Both functions of an initializer from one that takes all float types. */
#define FILLS(function)                                                                                                \
    static tow_status function##_f32(tow_context *ctx, const tow_initializer *self, tow_type type,                     \
                                     const uint32_t key[2], float *data)                                               \
    {                                                                                                                  \
        return function(ctx, self, type, key, data);                                                                   \
    }
/* One of these, of a function that makes a part. */
#define FILLS_WHOLE(function, of_part)                                                                                 \
    static tow_status function(tow_context *ctx, const tow_initializer *self, tow_type type, const uint32_t key[2],    \
                               void *data)                                                                             \
    {                                                                                                                  \
        return of_part(ctx, self, type, key, (part){0, tow_type_element_count(type)}, data);                           \
    }                                                                                                                  \
    FILLS(function)
FILLS_WHOLE(fill_constant, part_of_constant)
FILLS_WHOLE(fill_draw, part_of_draw)
FILLS_WHOLE(fill_variance, part_of_variance)
FILLS(tow__fill_orthogonal)
FILLS(tow__fill_delta_orthogonal)

/* Initializers whose elements are made one by one. */
static const struct {
    tow_status (*fill)(tow_context *, const tow_initializer *, tow_type, const uint32_t[2], float *);
    tow_status (*part)(tow_context *, const tow_initializer *, tow_type, const uint32_t[2], part, void *);
} parts[] = {
    {fill_constant_f32, part_of_constant}, {fill_draw_f32, part_of_draw}, {fill_variance_f32, part_of_variance}};

/* The whole is made first. */
static tow_status cut_part(tow_context *ctx, const tow_initializer *init, tow_type type, const uint32_t key[2], part of,
                           void *data)
{
    const size_t size = tow_dtype_size(type.dtype), bytes = tow_type_bytes(type);
    char *whole = tow__alloc_raw(ctx, bytes);
    if (!whole) return TOW_OUT_OF_MEMORY;
    const tow_status status = tow__initialize(ctx, init, type, key, whole);
    if (!status && of.count > 0) memcpy(data, whole + (size_t)of.first * size, (size_t)of.count * size);
    tow__free_aligned(ctx, whole, bytes);
    return status;
}

tow_status tow__initialize_part(tow_context *ctx, const tow_initializer *init, tow_type type, const uint32_t key[2],
                                int64_t first, int64_t count, void *data)
{
    const part of = {first, count};
    if (count == tow_type_element_count(type)) return tow__initialize(ctx, init, type, key, data);
    tow_context_clear_error(ctx);
    for (size_t i = 0; tow_dtype_is_float(type.dtype) && i < sizeof parts / sizeof *parts; i++)
        if (init->fill == parts[i].fill) return parts[i].part(ctx, init, seen_type(init, type), key, of, data);
    return cut_part(ctx, init, type, key, of, data);
}

tow_initializer tow_initializer_constant(double value)
{
    return (tow_initializer){.fill = fill_constant_f32, .fill_as = fill_constant, .a = value};
}
tow_initializer tow_initializer_zeros(void) { return tow_initializer_constant(0); }
tow_initializer tow_initializer_ones(void) { return tow_initializer_constant(1); }

static tow_initializer drawn(tow_distribution distribution, double scale, double low, double high)
{
    return (tow_initializer){.fill = fill_draw_f32,
                             .fill_as = fill_draw,
                             .a = scale,
                             .b = low,
                             .c = high,
                             .distribution = (int)distribution};
}
tow_initializer tow_initializer_normal(double stddev) { return drawn(TOW_NORMAL, stddev, 0, 0); }
tow_initializer tow_initializer_uniform(double scale) { return drawn(TOW_UNIFORM, scale, 0, 1); }
tow_initializer tow_initializer_truncated_normal(double stddev) { return drawn(TOW_TRUNCATED_NORMAL, stddev, -2, 2); }
tow_initializer tow_initializer_truncated_normal_with(double stddev, double lower, double upper)
{
    return drawn(TOW_TRUNCATED_NORMAL, stddev, lower, upper);
}

tow_initializer tow_initializer_variance_scaling(double scale, tow_fan_mode mode, tow_distribution distribution)
{
    return (tow_initializer){.fill = fill_variance_f32,
                             .fill_as = fill_variance,
                             .a = scale,
                             .mode = (int)mode,
                             .distribution = (int)distribution};
}
tow_initializer tow_initializer_lecun_normal(void)
{
    return tow_initializer_variance_scaling(1, TOW_FAN_IN, TOW_TRUNCATED_NORMAL);
}
tow_initializer tow_initializer_lecun_uniform(void)
{
    return tow_initializer_variance_scaling(1, TOW_FAN_IN, TOW_UNIFORM);
}
tow_initializer tow_initializer_he_normal(void)
{
    return tow_initializer_variance_scaling(2, TOW_FAN_IN, TOW_TRUNCATED_NORMAL);
}
tow_initializer tow_initializer_he_uniform(void)
{
    return tow_initializer_variance_scaling(2, TOW_FAN_IN, TOW_UNIFORM);
}
tow_initializer tow_initializer_glorot_normal(void)
{
    return tow_initializer_variance_scaling(1, TOW_FAN_AVG, TOW_TRUNCATED_NORMAL);
}
tow_initializer tow_initializer_glorot_uniform(void)
{
    return tow_initializer_variance_scaling(1, TOW_FAN_AVG, TOW_UNIFORM);
}

tow_initializer tow_initializer_with_fan_axes(tow_initializer init, const tow_fan_axes *axes)
{
    init.fan = axes ? *axes : (tow_fan_axes){0};
    return init;
}

tow_initializer tow_initializer_orthogonal(double scale, int column_axis)
{
    return (tow_initializer){
        .fill = tow__fill_orthogonal_f32, .fill_as = tow__fill_orthogonal, .a = scale, .axis = column_axis};
}
tow_initializer tow_initializer_delta_orthogonal(double scale, int column_axis)
{
    return (tow_initializer){
        .fill = tow__fill_delta_orthogonal_f32, .fill_as = tow__fill_delta_orthogonal, .a = scale, .axis = column_axis};
}

bool tow_initializer_is_default(const tow_initializer *init)
{
    return !init || (!init->fill && !init->fill_as && !init->user && init->a == 0 && init->b == 0 && init->c == 0 &&
                     init->mode == 0 && init->distribution == 0 && init->axis == 0 && init->fan.n_in == 0 &&
                     init->fan.n_out == 0 && init->fan.n_batch == 0 && init->matrix_of == 0 && !init->compiled);
}

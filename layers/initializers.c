/* Initialisers: what fills a parameter from a key, bit for bit as jax.nn.initializers does on a CPU with FMA.
 *
 * Every step is float32 in the order written; where XLA contracts a product and a sum, fmaf says so. In a body that XLA
 * compiles as a whole (Flax's scan) it multiplies the two constant factors of a normal draw, sqrt(2) and the standard
 * deviation, before the draw: tow_initializer.compiled. Other draws are the same there. The loops have no branches, so that compilers make vectors of them, and are compiled again for CPUs with FMA instructions: the same
 * bits, without a call per fmaf. */
#include <math.h>
#include <string.h>

#include "layers/keys.h"
#include "src/base/base.h"
#include "src/base/clones.h"
#include "tow/module.h"

#define INLINE static inline __attribute__((always_inline))
#define SQRT2  1.41421354F

/* Horner's rule with one rounding per step; c: highest power first. */
INLINE float horner(const float *c, int n, float x)
{
    float y = c[0];
    for (int i = 1; i < n; i++) y = fmaf(y, x, c[i]);
    return y;
}

/* log(x) for normal x > 0, after Cephes logf. */
INLINE float log_positive(float x)
{
    static const float ca[] = {0.070376836F, -0.1151461F, 0.116769984F};
    static const float cb[] = {-0.12420141F, 0.14249323F, -0.16668057F};
    static const float cc[] = {0.20000714F, -0.24999994F, 0.3333333F};
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    float e = (float)((int32_t)(bits >> 23) - 126); /* x = m * 2^e, 0.5 <= m < 1 */
    bits = (bits & 0x007FFFFFU) | 0x3F000000U;
    float m;
    memcpy(&m, &bits, sizeof m);
    bool low = m < 0.70710677F;
    float v = low ? m - 1.0F + m : m - 1.0F;
    e = low ? e - 1.0F : e;
    float v2 = v * v, v3 = v2 * v;
    float y = fmaf(fmaf(horner(ca, 3, v), v3, horner(cb, 3, v)), v3, horner(cc, 3, v));
    y = fmaf(y, v3, e * -2.1219444e-04F);
    return fmaf(e, 0.693359375F, fmaf(-0.5F, v2, v) + y);
}

/* log(1 + t) for -1 < t <= 0. */
INLINE float log_one_plus(float t)
{
    static const float p[] = {4.527e-05F, 0.49854103F, 6.5787325F, 29.911919F, 60.94967F, 57.112965F, 20.039553F};
    static const float q[] = {1.0F, 15.062909F, 83.04757F, 221.7624F, 309.09872F, 216.42789F, 60.11866F};
    float t2 = t * t, small = t + fmaf(-0.5F, t2, (t * t2) * (horner(p, 7, t) / horner(q, 7, t)));
    float large = log_positive(1.0F + t);
    return fabsf(t) < 0.41421357F ? small : large;
}

/* Inverse error function, |x| < 1 (M. Giles, single precision). */
INLINE float inverse_erf(float x)
{
    static const float near[] = {2.8102264e-08F, 3.4327394e-07F,  -3.5233877e-06F, -4.3915065e-06F, 2.1858087e-04F,
                                 -1.253725e-03F, -4.1776816e-03F, 0.24664073F,     1.5014094F};
    static const float far[] = {-2.0021426e-04F, 1.0095056e-04F, 1.3493432e-03F, -3.6734284e-03F, 5.7395077e-03F,
                                -7.6224613e-03F, 9.4388705e-03F, 1.001674F,      2.8329768F};
    float l = log_one_plus(-(x * x));
    float y = horner(near, 9, -2.5F - l), z = horner(far, 9, sqrtf(-l) - 3.0F);
    return (l > -5.0F ? y : z) * x;
}

/* Uniform in [low, high) from 32 random bits; span = high - low. */
INLINE float uniform_from_bits(uint32_t bits, float low, float span)
{
    bits = bits >> 9 | 0x3F800000U;
    float f;
    memcpy(&f, &bits, sizeof f);
    float u = fmaf(f - 1.0F, span, low);
    return u < low ? low : u;
}

typedef struct draw_job {
    tow_distribution distribution;
    tow__key key;
    float low, span; /* TOW_UNIFORM */
    float sqrt2;     /* TOW_NORMAL: the factor of the inverse error function, times the scale if XLA folds the two */
    float scale;     /* every draw is multiplied by it */
} draw_job;

enum {
    CHUNK = 4096 /* draws: the upper half of their counter is the same */
};

/* data[0..count) = scale * draws number first and following, word i of jax.random.bits; distribution is a constant. */
INLINE void draw_chunk(const draw_job *job, tow_distribution distribution, uint64_t first, uint32_t count, float *data)
{
    const float almost_minus_one = -0x1.fffffep-1F;
    const float edge = 0.9544997F; /* erf(sqrt 2): two standard deviations */
    const float almost_two = 0x1.fffffep+0F;
    for (uint32_t i = 0; i < count; i++) {
        tow__key word = tow__threefry(job->key, (uint32_t)(first >> 32), (uint32_t)first + i);
        uint32_t bits = word.k[0] ^ word.k[1];
        float x;
        if (distribution == TOW_UNIFORM) {
            x = uniform_from_bits(bits, job->low, job->span);
        } else if (distribution == TOW_NORMAL) {
            x = job->sqrt2 * inverse_erf(uniform_from_bits(bits, almost_minus_one, 2.0F));
        } else {
            x = SQRT2 * inverse_erf(uniform_from_bits(bits, -edge, 2.0F * edge));
            x = x < -almost_two ? -almost_two : x;
            x = x > almost_two ? almost_two : x;
        }
        data[i] = x * job->scale;
    }
}

INLINE void draw_all(const draw_job *job, int64_t count, float *data)
{
    for (int64_t i = 0; i < count; i += CHUNK) {
        uint32_t n = (uint32_t)(count - i < CHUNK ? count - i : CHUNK);
        if (job->distribution == TOW_UNIFORM)
            draw_chunk(job, TOW_UNIFORM, (uint64_t)i, n, data + i);
        else if (job->distribution == TOW_NORMAL)
            draw_chunk(job, TOW_NORMAL, (uint64_t)i, n, data + i);
        else
            draw_chunk(job, TOW_TRUNCATED_NORMAL, (uint64_t)i, n, data + i);
    }
}

static void draw_plain(const draw_job *job, int64_t count, float *data) { draw_all(job, count, data); }

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void draw_avx2(const draw_job *job, int64_t count, float *data)
{
    draw_all(job, count, data);
}

__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))) static void
draw_avx512(const draw_job *job, int64_t count, float *data)
{
    draw_all(job, count, data);
}
#endif

/* scale: the factor of every draw. */
static void draw(const tow_initializer *init, draw_job job, float scale, int64_t count, float *data)
{
    bool fold = init->compiled && job.distribution == TOW_NORMAL;
    job.sqrt2 = fold ? SQRT2 * scale : SQRT2;
    job.scale = fold ? 1.0F : scale;
#if defined(__x86_64__)
    if (tow__has_avx512()) {
        draw_avx512(&job, count, data);
        return;
    }
    if (tow__has_avx2()) {
        draw_avx2(&job, count, data);
        return;
    }
#endif
    draw_plain(&job, count, data);
}

/* ---- constants, and draws of fixed width ------------------------------------------------------------------------- */

static tow_status fill_constant(tow_context *ctx, const tow_initializer *self, tow_type type, const uint32_t key[2],
                                float *data)
{
    (void)ctx, (void)key;
    int64_t count = tow_type_count(type);
    for (int64_t i = 0; i < count; i++) data[i] = (float)self->a;
    return TOW_OK;
}

static tow_status fill_draw(tow_context *ctx, const tow_initializer *self, tow_type type, const uint32_t key[2],
                            float *data)
{
    (void)ctx;
    draw_job job = {.distribution = (tow_distribution)self->distribution, .key = {{key[0], key[1]}}, .span = 1.0F};
    draw(self, job, (float)self->a, tow_type_count(type), data);
    return TOW_OK;
}

/* ---- variance scaling -------------------------------------------------------------------------------------------- */

/* Fans of a kernel: axis -2 is the input, axis -1 the output, all others are a receptive field. */
static tow_status fans(tow_context *ctx, const tow_initializer *self, tow_type type, double *fan_in, double *fan_out)
{
    if (self->in_axes > 0 && self->in_axes < type.rank) {
        *fan_in = *fan_out = 1;
        for (int i = 0; i < type.rank; i++) *(i < self->in_axes ? fan_in : fan_out) *= (double)type.dims[i];
        return TOW_OK;
    }
    if (type.rank < 2)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "variance scaling needs a shape of rank 2 or more to tell inputs from outputs, found %s; "
                         "use tow_init_normal, tow_init_zeros or another initialiser without fans",
                         tow__type_name(type).text);
    double in = (double)type.dims[type.rank - 2], out = (double)type.dims[type.rank - 1], all = 1;
    if (self->out_axis_first) in = out = (double)type.dims[0];
    for (int i = 0; i < type.rank; i++) all *= (double)type.dims[i];
    double field = in * out > 0 ? all / in / out : 0;
    *fan_in = in * field;
    *fan_out = out * field;
    return TOW_OK;
}

static tow_status fill_variance(tow_context *ctx, const tow_initializer *self, tow_type type, const uint32_t key[2],
                                float *data)
{
    int64_t count = tow_type_count(type);
    if (!(self->a >= 0) || self->mode < TOW_FAN_IN || self->mode > TOW_FAN_GEO_AVG ||
        self->distribution < TOW_TRUNCATED_NORMAL || self->distribution > TOW_UNIFORM)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "variance scaling: expected a scale of at least 0, a tow_fan_mode and a tow_distribution, "
                         "found scale %g, mode %d, distribution %d",
                         self->a, self->mode, self->distribution);
    if (count == 0) return TOW_OK;
    double in = 1, out = 1;
    tow_status status = fans(ctx, self, type, &in, &out);
    if (status) return status;
    const double denominators[] = {
        [TOW_FAN_IN] = in, [TOW_FAN_OUT] = out, [TOW_FAN_AVG] = (in + out) / 2, [TOW_FAN_GEO_AVG] = sqrt(in * out)};
    float variance = (float)(self->a / denominators[self->mode]);
    draw_job job = {
        .distribution = (tow_distribution)self->distribution, .key = {{key[0], key[1]}}, .low = -1, .span = 2};
    float factor = 1;
    switch (job.distribution) {
    case TOW_TRUNCATED_NORMAL:
        factor = sqrtf(variance) / 0.87962566103423978F; /* the standard deviation of what lies within 2 */
        break;
    case TOW_NORMAL:
        factor = sqrtf(variance);
        break;
    case TOW_UNIFORM:
        factor = sqrtf(3.0F * variance);
        break;
    }
    draw(self, job, factor, count, data);
    return TOW_OK;
}

/* ---- constructors ------------------------------------------------------------------------------------------------ */

tow_initializer tow_init_constant(double value) { return (tow_initializer){.fill = fill_constant, .a = value}; }
tow_initializer tow_init_zeros(void) { return tow_init_constant(0); }
tow_initializer tow_init_ones(void) { return tow_init_constant(1); }
tow_initializer tow_init_normal(double stddev)
{
    return (tow_initializer){.fill = fill_draw, .a = stddev, .distribution = TOW_NORMAL};
}
tow_initializer tow_init_uniform(double scale)
{
    return (tow_initializer){.fill = fill_draw, .a = scale, .distribution = TOW_UNIFORM};
}
tow_initializer tow_init_truncated_normal(double stddev)
{
    return (tow_initializer){.fill = fill_draw, .a = stddev, .distribution = TOW_TRUNCATED_NORMAL};
}
tow_initializer tow_init_variance_scaling(double scale, tow_fan_mode mode, tow_distribution distribution)
{
    return (tow_initializer){.fill = fill_variance, .a = scale, .mode = (int)mode, .distribution = (int)distribution};
}
tow_initializer tow_init_lecun_normal(void) { return tow_init_variance_scaling(1, TOW_FAN_IN, TOW_TRUNCATED_NORMAL); }
tow_initializer tow_init_lecun_uniform(void) { return tow_init_variance_scaling(1, TOW_FAN_IN, TOW_UNIFORM); }
tow_initializer tow_init_he_normal(void) { return tow_init_variance_scaling(2, TOW_FAN_IN, TOW_TRUNCATED_NORMAL); }
tow_initializer tow_init_he_uniform(void) { return tow_init_variance_scaling(2, TOW_FAN_IN, TOW_UNIFORM); }
tow_initializer tow_init_glorot_normal(void) { return tow_init_variance_scaling(1, TOW_FAN_AVG, TOW_TRUNCATED_NORMAL); }
tow_initializer tow_init_glorot_uniform(void) { return tow_init_variance_scaling(1, TOW_FAN_AVG, TOW_UNIFORM); }

bool tow_initializer_is_default(const tow_initializer *init)
{
    return !init || (!init->fill && init->a == 0 && init->b == 0 && init->mode == 0 && init->distribution == 0 &&
                     !init->out_axis_first && init->in_axes == 0 && !init->compiled);
}

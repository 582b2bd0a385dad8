/* Draws on the host, bit for bit those of jax.random on a CPU with FMA.
 *
 * f32: every step is rounded, in the order written; where XLA contracts a product and a sum, fmaf says so. In a body
 * that XLA compiles as a whole (Flax's scan) it multiplies the two constant factors of a normal draw, sqrt(2) and the
 * scale, before the draw: tow__draws.folded. f64: the same formulas with the coefficients of doubles; log and erf are
 * the C library's. Floats of 16 bits: f32 inside of functions, rounded behind each of them.
 *
 * The loops have no branches, so that compilers make vectors of them, and are compiled again for CPUs with FMA
 * instructions: the same bits, without a call per fmaf. */
#include "src/scope/draws.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "src/base/clones.h"
#include "src/base/keys.h"
#include "src/base/numbers.h"

#define INLINE static inline __attribute__((always_inline))

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

/* Inverse error function, |x| <= 1 (M. Giles, single precision). */
INLINE float inverse_erf(float x)
{
    static const float near[] = {2.8102264e-08F, 3.4327394e-07F,  -3.5233877e-06F, -4.3915065e-06F, 2.1858087e-04F,
                                 -1.253725e-03F, -4.1776816e-03F, 0.24664073F,     1.5014094F};
    static const float far[] = {-2.0021426e-04F, 1.0095056e-04F, 1.3493432e-03F, -3.6734284e-03F, 5.7395077e-03F,
                                -7.6224613e-03F, 9.4388705e-03F, 1.001674F,      2.8329768F};
    float l = log_one_plus(-(x * x));
    float y = horner(near, 9, -2.5F - l), z = horner(far, 9, sqrtf(-l) - 3.0F);
    float inside = (l > -5.0F ? y : z) * x;
    return fabsf(x) < 1.0F ? inside : copysignf(INFINITY, x);
}

/* Error function: XLA's rational of x^2, beyond 3.75 one. */
static float error_function(float x)
{
    static const float p[] = {2.2905065e-04F, 3.408291e-03F, 0.050955694F, 0.18520832F, 1.1283791F};
    static const float q[] = {
        -1.1791603e-07F, 2.3547966e-05F, 1.0179626e-03F, 0.014070471F, 0.11098505F, 0.49746925F, 1.0F};
    if (fabsf(x) > 3.75F) return copysignf(1.0F, x);
    return x * horner(p, 5, x * x) / horner(q, 7, x * x);
}

/* ---- the same in f64 --------------------------------------------------------------------------------------------- */

INLINE double horner_f64(const double *c, int n, double x)
{
    double y = c[0];
    for (int i = 1; i < n; i++) y = fma(y, x, c[i]);
    return y;
}

INLINE double log_one_plus_f64(double t)
{
    static const double p[] = {4.5270000862445199635215e-5, 4.9854102823193375972212e-1, 6.5787325942061044846969,
                               29.911919328553073277375,    60.949667980987787057556,    57.112963590585538103336,
                               20.039553499201281259648};
    static const double q[] = {1.0,
                               15.062909083469192043167,
                               83.047565967967209469434,
                               221.76239823732856465394,
                               309.09872225312059774938,
                               216.42788614495947685003,
                               60.118660497603843919306};
    double t2 = t * t;
    if (fabs(t) >= 0.41421356237309504880) return log(1 + t);
    return t + fma(-0.5, t2, (t * t2) * (horner_f64(p, 7, t) / horner_f64(q, 7, t)));
}

/* |x| <= 1 (M. Giles, double precision). */
INLINE double inverse_erf_f64(double x)
{
    static const double near[] = {
        -3.6444120640178196996e-21, -1.685059138182016589e-19,  1.2858480715256400167e-18,  1.115787767802518096e-17,
        -1.333171662854620906e-16,  2.0972767875968561637e-17,  6.6376381343583238325e-15,  -4.0545662729752068639e-14,
        -8.1519341976054721522e-14, 2.6335093153082322977e-12,  -1.2975133253453532498e-11, -5.4154120542946279317e-11,
        1.051212273321532285e-09,   -4.1126339803469836976e-09, -2.9070369957882005086e-08, 4.2347877827932403518e-07,
        -1.3654692000834678645e-06, -1.3882523362786468719e-05, 0.0001867342080340571352,   -0.00074070253416626697512,
        -0.0060336708714301490533,  0.24015818242558961693,     1.6536545626831027356};
    static const double middle[] = {
        2.2137376921775787049e-09,  9.0756561938885390979e-08, -2.7517406297064545428e-07, 1.8239629214389227755e-08,
        1.5027403968909827627e-06,  -4.013867526981545969e-06, 2.9234449089955446044e-06,  1.2475304481671778723e-05,
        -4.7318229009055733981e-05, 6.8284851459573175448e-05, 2.4031110387097893999e-05,  -0.0003550375203628474796,
        0.00095328937973738049703,  -0.0016882755560235047313, 0.0024914420961078508066,   -0.0037512085075692412107,
        0.005370914553590063617,    1.0052589676941592334,     3.0838856104922207635};
    static const double far[] = {-2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
                                 -3.7894654401267369937e-09, 7.6157012080783393804e-09,  -1.4960026627149240478e-08,
                                 2.9147953450901080826e-08,  -6.7711997758452339498e-08, 2.2900482228026654717e-07,
                                 -9.9298272942317002539e-07, 4.5260625972231537039e-06,  -1.9681778105531670567e-05,
                                 7.5995277030017761139e-05,  -0.00021503011930044477347, -0.00013871931833623122026,
                                 1.0103004648645343977,      4.8499064014085844221};
    if (fabs(x) >= 1) return copysign(INFINITY, x);
    double w = -log_one_plus_f64(-(x * x));
    if (w < 6.25) return horner_f64(near, 23, w - 3.125) * x;
    if (w < 16) return horner_f64(middle, 19, sqrt(w) - 3.25) * x;
    return horner_f64(far, 17, sqrt(w) - 5) * x;
}

/* ---- numbers of a type ------------------------------------------------------------------------------------------- */

INLINE float round_half(tow_dtype dtype, float x)
{
    if (dtype == TOW_F32) return x;
    return dtype == TOW_BF16 ? tow__from_bf16(tow__bits_to_bf16(tow__bits_of_f32(x)))
                             : tow__from_f16(tow__bits_to_f16(tow__bits_of_f32(x)));
}

double tow__as_float(tow_dtype dtype, double x) { return dtype == TOW_F64 ? x : (double)round_half(dtype, (float)x); }

/* The number of the type next to x, upwards or downwards. */
static double neighbor(tow_dtype dtype, double x, bool up)
{
    double to = up ? INFINITY : -INFINITY;
    if (dtype == TOW_F64) return nextafter(x, to);
    if (dtype == TOW_F32) return (double)nextafterf((float)x, (float)to);
    uint16_t bits = 0;
    tow__store_element(dtype, &bits, 0, x);
    if (x == to) return x;
    if (x == 0)
        bits = up ? 1 : 0x8001;
    else
        bits = (uint16_t)((x > 0) == up ? bits + 1 : bits - 1);
    return dtype == TOW_BF16 ? (double)tow__from_bf16(bits) : (double)tow__from_f16(bits);
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

/* The constants of the loops, as numbers of the type. */
typedef struct job {
    tow__key key;
    int64_t first;      /* number of the first draw */
    double low, span;   /* of the uniform draw */
    double sqrt2;       /* the factor of the inverse error function */
    double least, most; /* of a truncated draw */
    double scale;
} job;

enum {
    CHUNK = 4096 /* draws, from a multiple of it on: the upper half of their counter is the same */
};

/* An f32 or, with steps rounded, a float of 16 bits, from word `bits`. */
INLINE float draw_f32(const job *j, tow_dtype dtype, tow_distribution distribution, uint32_t bits)
{
    const float low = (float)j->low, span = (float)j->span, least = (float)j->least, most = (float)j->most;
    float u;
    if (dtype == TOW_F32) {
        u = fmaf(tow__f32_of_bits(bits >> 9 | 0x3F800000U) - 1.0F, span, low);
    } else {
        u = dtype == TOW_BF16 ? (float)(bits >> 1 & 0x7F) * 0x1p-7F : (float)(bits >> 6 & 0x3FF) * 0x1p-10F;
        u = round_half(dtype, round_half(dtype, u * span) + low);
    }
    u = u < low ? low : u;
    if (distribution == TOW_UNIFORM) return round_half(dtype, u * (float)j->scale);
    float x = round_half(dtype, (float)j->sqrt2 * round_half(dtype, inverse_erf(u)));
    if (distribution == TOW_TRUNCATED_NORMAL) {
        x = x < least ? least : x;
        x = x > most ? most : x;
    }
    return round_half(dtype, x * (float)j->scale);
}

INLINE double draw_f64(const job *j, tow_distribution distribution, tow__key word)
{
    uint64_t bits = ((uint64_t)word.k[0] << 32 | word.k[1]) >> 12;
    double u = fma((double)bits * 0x1p-52, j->span, j->low);
    u = u < j->low ? j->low : u;
    if (distribution == TOW_UNIFORM) return u * j->scale;
    double x = j->sqrt2 * inverse_erf_f64(u);
    if (distribution == TOW_TRUNCATED_NORMAL) {
        x = x < j->least ? j->least : x;
        x = x > j->most ? j->most : x;
    }
    return x * j->scale;
}

/* data[i] = draw number first + i; dtype and distribution are constants. */
INLINE void draw_chunk(const job *j, tow_dtype dtype, tow_distribution distribution, uint64_t first, uint32_t count,
                       void *data)
{
    for (uint32_t i = 0; i < count; i++) {
        tow__key word = tow__threefry(j->key, (uint32_t)(first >> 32), (uint32_t)first + i);
        if (dtype == TOW_F64) {
            ((double *)data)[i] = draw_f64(j, distribution, word);
            continue;
        }
        float x = draw_f32(j, dtype, distribution, word.k[0] ^ word.k[1]);
        if (dtype == TOW_F32)
            ((float *)data)[i] = x;
        else if (dtype == TOW_BF16)
            ((uint16_t *)data)[i] = tow__bits_to_bf16(tow__bits_of_f32(x));
        else
            ((uint16_t *)data)[i] = tow__bits_to_f16(tow__bits_of_f32(x));
    }
}

INLINE void draw_type(const job *j, tow_dtype dtype, tow_distribution distribution, int64_t count, void *data)
{
    const int64_t size = (int64_t)tow_dtype_size(dtype);
    for (int64_t i = 0, n; i < count; i += n) {
        const uint64_t from = (uint64_t)(j->first + i);
        void *to = (char *)data + i * size;
        n = CHUNK - (int64_t)(from % CHUNK);
        if (n > count - i) n = count - i;
        if (distribution == TOW_UNIFORM)
            draw_chunk(j, dtype, TOW_UNIFORM, from, (uint32_t)n, to);
        else if (distribution == TOW_NORMAL)
            draw_chunk(j, dtype, TOW_NORMAL, from, (uint32_t)n, to);
        else
            draw_chunk(j, dtype, TOW_TRUNCATED_NORMAL, from, (uint32_t)n, to);
    }
}

INLINE void draw_all(const job *j, tow_dtype dtype, tow_distribution distribution, int64_t count, void *data)
{
    if (dtype == TOW_F64)
        draw_type(j, TOW_F64, distribution, count, data);
    else if (dtype == TOW_BF16)
        draw_type(j, TOW_BF16, distribution, count, data);
    else if (dtype == TOW_F16)
        draw_type(j, TOW_F16, distribution, count, data);
    else
        draw_type(j, TOW_F32, distribution, count, data);
}

static void draw_plain(const job *j, tow_dtype dtype, tow_distribution distribution, int64_t count, void *data)
{
    draw_all(j, dtype, distribution, count, data);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void draw_avx2(const job *j, tow_dtype dtype, tow_distribution distribution,
                                                          int64_t count, void *data)
{
    draw_all(j, dtype, distribution, count, data);
}

__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))) static void
draw_avx512(const job *j, tow_dtype dtype, tow_distribution distribution, int64_t count, void *data)
{
    draw_all(j, dtype, distribution, count, data);
}
#endif

/* erf(x / sqrt(2)), as JAX computes it in the type. */
static double half_of_normal(tow_dtype dtype, double x)
{
    const double sqrt2 = tow__as_float(dtype, sqrt(2.0));
    if (dtype == TOW_F64) return erf(x / sqrt2);
    return tow__as_float(dtype, (double)error_function((float)tow__as_float(dtype, x / sqrt2)));
}

void tow__draw(const tow__draws *draws, tow_dtype dtype, int64_t first, int64_t count, void *data)
{
    double low = tow__as_float(dtype, draws->low), high = tow__as_float(dtype, draws->high);
    job j = {.key = {{draws->key[0], draws->key[1]}},
             .first = first,
             .sqrt2 = tow__as_float(dtype, sqrt(2.0)),
             .scale = tow__as_float(dtype, draws->scale)};
    if (draws->distribution == TOW_NORMAL) {
        low = neighbor(dtype, -1, true);
        high = 1;
    } else if (draws->distribution == TOW_TRUNCATED_NORMAL) {
        j.least = neighbor(dtype, low, true);
        j.most = neighbor(dtype, high, false);
        low = half_of_normal(dtype, low);
        high = half_of_normal(dtype, high);
    }
    j.low = low;
    j.span = tow__as_float(dtype, high - low);
    if (draws->folded && draws->distribution == TOW_NORMAL) {
        j.sqrt2 = tow__as_float(dtype, j.sqrt2 * j.scale);
        j.scale = 1;
    }
#if defined(__x86_64__)
    if (tow__has_avx512()) {
        draw_avx512(&j, dtype, draws->distribution, count, data);
        return;
    }
    if (tow__has_avx2()) {
        draw_avx2(&j, dtype, draws->distribution, count, data);
        return;
    }
#endif
    draw_plain(&j, dtype, draws->distribution, count, data);
}

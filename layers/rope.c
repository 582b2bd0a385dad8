/* RoPE: pair i of the features of position p is rotated by the angle p f(i).
 *
 *   halves        (x[i], x[i + d/2])      interleaved   (x[2i], x[2i + 1])
 *   (a, b) -> (a cos - b sin, b cos + a sin)
 *
 * Frequencies are constants, computed here in double precision; angles, sines and cosines are part of the graph, since
 * positions may depend on what happens at run time. */
#include <math.h>

#include "layers/attention.h"
#include "src/scope/tree.h"

static const double pi = 3.14159265358979323846;

/* f(i) = theta^(-2i/d), scaled (Hugging Face's "linear" and "llama3"; NTK-aware: u/bloc97, 2023). */
static double frequency(const tow_rope *o, int64_t i, int64_t d)
{
    double theta = o->theta > 0 ? o->theta : 10000, factor = o->factor > 0 ? o->factor : 1;
    if (o->scaling == TOW_ROPE_NTK && d > 2) theta *= pow(factor, (double)d / (double)(d - 2));
    double f = pow(theta, -2 * (double)i / (double)d);
    if (o->scaling == TOW_ROPE_LINEAR) return f / factor;
    if (o->scaling != TOW_ROPE_LLAMA3) return f;
    double low = o->low_frequency > 0 ? o->low_frequency : 1, high = o->high_frequency > 0 ? o->high_frequency : 4;
    double turns = (o->original_length > 0 ? o->original_length : 8192) * f / (2 * pi); /* of the original length */
    if (turns < low) return f / factor;
    if (turns > high) return f;
    double smooth = (turns - low) / (high - low);
    return (1 - smooth) * f / factor + smooth * f;
}

/* The frequencies of d features as a constant [d/2], f32 or f64. */
static tow_value frequencies(tow_trace *t, const tow_rope *o, int64_t d, tow_dtype wide)
{
    int64_t pairs = d / 2;
    tow_type type = tow_make_type(wide, 1, &pairs);
    float *single = tow__trace_alloc(t, (size_t)pairs + 1, sizeof *single);
    double *twice = tow__trace_alloc(t, (size_t)pairs + 1, sizeof *twice);
    if (!single || !twice) return (tow_value){0};
    for (int64_t i = 0; i < pairs; i++) {
        twice[i] = frequency(o, i, d);
        single[i] = (float)twice[i];
    }
    return tow_constant_data(t, type, wide == TOW_F64 ? (const void *)twice : (const void *)single);
}

/* positions [..., T] -> angles [..., T, 1, d/2], which broadcast over heads */
static tow_value angles(tow_value positions, const tow_rope *o, int64_t d, tow_dtype wide)
{
    tow_value p = tow_convert(positions, wide);
    p = tow_expand_dims(tow_expand_dims(p, -1), -1);
    if (tow_is_null(p)) return p;
    return tow_mul(p, frequencies(tow_value_trace(p), o, d, wide));
}

/* x [..., d] -> parts [..., d/2], and back. */
static void take_pairs(tow_value x, bool interleaved, tow_value *a, tow_value *b)
{
    tow_type type = tow_value_type(x);
    int last = type.rank - 1;
    int64_t half = type.dims[last] / 2;
    if (!interleaved) {
        *a = tow_slice_axis(x, last, 0, half);
        *b = tow_slice_axis(x, last, half, 2 * half);
        return;
    }
    type.dims[last] = half;
    type.dims[last + 1] = 2;
    tow_value pairs = tow_reshape(x, last + 2, type.dims);
    *a = tow_squeeze(tow_slice_axis(pairs, last + 1, 0, 1), last + 1);
    *b = tow_squeeze(tow_slice_axis(pairs, last + 1, 1, 2), last + 1);
}
static tow_value put_pairs(tow_value a, tow_value b, bool interleaved)
{
    tow_type type = tow_value_type(a);
    int last = type.rank - 1;
    if (tow_is_null(a) || tow_is_null(b)) return (tow_value){0};
    if (!interleaved) return tow_concatenate(2, (tow_value[]){a, b}, last);
    tow_value pairs =
        tow_concatenate(2, (tow_value[]){tow_expand_dims(a, last + 1), tow_expand_dims(b, last + 1)}, last + 1);
    type.dims[last] *= 2;
    return tow_reshape(pairs, type.rank, type.dims);
}

/* The error in the operands and options, or NULL. */
static const char *fault_of(tow_type x, tow_value positions, const tow_rope *o)
{
    int64_t d = o->features ? o->features : x.dims[x.rank > 0 ? x.rank - 1 : 0];
    if (!tow__is_float(x.dtype) || x.rank < 3 || x.rank >= TOW_MAX_RANK) return "x must be floats [..., T, H, D]";
    if (d < 0 || d % 2 != 0 || d > x.dims[x.rank - 1]) return "an even number of features must be rotated, at most D";
    if (o->theta < 0 || o->factor < 0 || o->low_frequency < 0 || o->high_frequency < 0 || o->original_length < 0)
        return "options must not be negative";
    if (o->scaling == TOW_ROPE_LLAMA3 && o->high_frequency > 0 &&
        o->high_frequency <= (o->low_frequency > 0 ? o->low_frequency : 1))
        return ".high_frequency must be above .low_frequency";
    if ((unsigned)o->scaling > TOW_ROPE_LLAMA3) return ".scaling must be one of enum tow_rope_scaling";
    if (tow_is_null(positions)) return NULL;
    tow_type p = tow_value_type(positions);
    bool fits = p.dtype == TOW_I32 && p.rank > 0 && p.rank <= x.rank - 2 && p.dims[p.rank - 1] == x.dims[x.rank - 3];
    for (int i = 1; fits && i < p.rank; i++)
        fits = p.dims[p.rank - 1 - i] == x.dims[x.rank - 3 - i] || p.dims[p.rank - 1 - i] == 1;
    return fits ? NULL : "positions must be i32 [T], or have the axes of x up to T";
}

static tow_value rotate(tow_value x, tow_value positions, const tow_rope *o)
{
    tow_trace *t = tow_value_trace(x);
    tow_type type = tow_value_type(x);
    int last = type.rank - 1;
    int64_t D = type.dims[last], d = o->features ? o->features : D;
    if (tow_is_null(positions)) positions = tow_iota(t, tow_make_type(TOW_I32, 1, &type.dims[last - 2]), 0);
    tow_dtype wide = tow_promote_types(type.dtype, TOW_F32);
    tow_value angle = angles(positions, o, d, wide), cosine = tow_cos(angle), sine = tow_sin(angle), a, b;
    tow_value turned = tow__as(d < D ? tow_slice_axis(x, last, 0, d) : x, wide);
    if (tow_is_null(turned)) return turned;
    take_pairs(turned, o->interleaved, &a, &b);
    tow_value y = put_pairs(tow_sub(tow_mul(a, cosine), tow_mul(b, sine)),
                            tow_add(tow_mul(b, cosine), tow_mul(a, sine)), o->interleaved);
    y = tow__as(y, type.dtype);
    return d < D ? tow_concatenate(2, (tow_value[]){y, tow_slice_axis(x, last, d, D)}, last) : y;
}

tow_value tow_apply_rope(tow_value x, tow_value positions, const tow_rope *options)
{
    tow_rope o = TOW_ROPE();
    char text[320];
    if (tow_is_null(x)) return x;
    if (options && tow__struct_fault(TOW__STRUCT_KIND(tow_rope), options, options->module.size, text, sizeof text)) {
        tow_trace_fail(tow_value_trace(x), TOW_INVALID_ARGUMENT, "%s", text);
        return (tow_value){0};
    }
    if (options) tow__struct_copy(TOW__STRUCT_KIND(tow_rope), options, options->module.size, &o);
    tow_type type = tow_value_type(x);
    const char *fault = fault_of(type, positions, &o);
    if (!fault) return rotate(x, positions, &o);
    tow_type p = tow_is_null(positions) ? type : tow_value_type(positions);
    tow_trace_fail(tow_value_trace(x), TOW_INVALID_ARGUMENT,
                   "RoPE: %s; found x %s, positions %s, %lld features of a head to rotate", fault,
                   tow__type_name(type).text, tow_is_null(positions) ? "none" : tow__type_name(p).text,
                   (long long)o.features);
    return (tow_value){0};
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    if (!tow__check_counts(scope, "RoPE", n_in, 1, 2, n_out)) return;
    out[0] = tow_apply_rope(in[0], n_in > 1 ? in[1] : (tow_value){0}, (const tow_rope *)module);
}

const tow_module_class tow_rope_class = {TOW__MADE_BY(TOW_ROPE, tow_rope), .name = "RoPE", .call = call,
                                         .layout = TOW__LAYOUT(tow_rope)};

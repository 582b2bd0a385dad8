/* LearnedPositions and SinusoidalPositions: what is added to each position of a sequence. With .decode, the positions
 * of one call follow those of the call before: the variable "cache_index" counts them. */
#include <math.h>

#include "layers/attention.h"
#include "src/scope/tree.h"

/* i32 [T] or [B, T]: those given, those after the ones of earlier calls, or 0 .. T - 1. Null: an error, reported. */
static tow_value read_positions(tow_scope *scope, const char *layer, bool decode, size_t n_in, const tow_value *in)
{
    tow_type x = tow_value_type(in[0]);
    if (n_in == 1) {
        if (!decode) return tow_iota(tow_scope_trace(scope), tow_make_type(TOW_I32, 1, &x.dims[1]), 0);
        tow_value index = tow__cache_index(scope), after = tow__positions_from(scope, index, x.dims[1]);
        tow__advance_index(scope, index, x.dims[1]);
        return after;
    }
    tow_type p = tow_value_type(in[1]);
    bool fits = p.dtype == TOW_I32 && (p.rank == 1 || (p.rank == 2 && p.dims[0] == x.dims[0])) &&
                p.dims[p.rank - 1] == x.dims[1];
    if (fits && !decode) return in[1];
    tow_scope_fail(scope, fits ? TOW_INVALID_ARGUMENT : TOW_SHAPE_MISMATCH,
                   "%s: expected positions i32 [T] or [B, T] for x %s, and without .decode, found %s%s", layer,
                   tow__type_name(x).text, tow__type_name(p).text, decode ? " and .decode" : "");
    return (tow_value){0};
}

static bool check_input(tow_scope *scope, const char *layer, size_t n_in, const tow_value *in, size_t n_out)
{
    if (!tow__check_counts(scope, layer, n_in, 1, 2, n_out)) return false;
    tow_type type = tow_value_type(in[0]);
    if (tow__is_float(type.dtype) && type.rank == 3) return true;
    tow_scope_fail(scope, TOW_SHAPE_MISMATCH, "%s: expected f32, f64, bf16 or f16 [batch,time,features], found %s",
                   layer, tow__type_name(type).text);
    return false;
}

/* ---- LearnedPositions -------------------------------------------------------------------------------------------- */

static void call_learned(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    const tow_learned_positions *m = (const tow_learned_positions *)module;
    tow__dtypes types;
    if (!check_input(scope, "LearnedPositions", n_in, in, n_out)) return;
    tow_type type = tow_value_type(in[0]);
    int64_t dims[] = {m->max_length ? m->max_length : type.dims[1], type.dims[2]};
    if (!tow__check_option(scope, "LearnedPositions", dims[0] > 0 && (n_in > 1 || type.dims[1] <= dims[0]),
                           "max_length", (double)m->max_length, "a positive number, at least the input's length") ||
        !tow__read_dtypes(scope, "LearnedPositions", m->dtype, m->param_dtype, 1, in, &types))
        return;
    tow_initializer init = tow_initializer_variance_scaling(1, TOW_FAN_IN, TOW_NORMAL);
    init.fan.n_out = 1; /* axis 0 */
    tow_value positions = read_positions(scope, "LearnedPositions", m->decode, n_in, in);
    tow_value table = tow__table(scope, "embedding", dims[0], dims[1], tow__init_or(m->embedding_init, init), &types);
    if (tow_is_null(table)) return;
    out[0] = tow_add(tow__as(in[0], types.compute), tow__rows(table, positions, types.compute));
}

/* ---- SinusoidalPositions ----------------------------------------------------------------------------------------- */

/* Angles [..., T, D/2 rounded up] of positions [..., T]. */
static tow_value angles(tow_value positions, double timescale, int64_t features, tow_dtype dtype)
{
    int64_t n = (features + 1) / 2;
    tow_trace *t = tow_value_trace(positions);
    tow_value exponent =
        tow_mul_scalar(tow_iota(t, tow_make_type(TOW_F64, 1, &n), 0), -2 * log(timescale) / (double)features);
    return tow_mul(tow_expand_dims(tow_convert(positions, dtype), -1), tow_convert(tow_exp(exponent), dtype));
}

static void call_sinusoidal(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                            tow_value *out)
{
    const tow_sinusoidal_positions *m = (const tow_sinusoidal_positions *)module;
    double timescale = m->max_timescale > 0 ? m->max_timescale : 10000;
    if (!check_input(scope, "SinusoidalPositions", n_in, in, n_out) ||
        !tow__check_option(scope, "SinusoidalPositions", m->max_timescale >= 0, "max_timescale", m->max_timescale,
                           "a positive number"))
        return;
    tow_type type = tow_value_type(in[0]);
    int64_t features = type.dims[2];
    tow_value positions = read_positions(scope, "SinusoidalPositions", m->decode, n_in, in);
    if (tow_is_null(positions)) return;
    tow_value angle = angles(positions, timescale, features, tow_promote_types(type.dtype, TOW_F32)),
              sine = tow_sin(angle), cosine = tow_cos(angle);
    if (tow_is_null(angle)) return;
    tow_type half = tow_value_type(angle);
    int last = half.rank - 1;
    tow_value table;
    if (m->halves) {
        table = tow_concatenate(2, (tow_value[]){sine, tow_slice_axis(cosine, last, 0, features / 2)}, last);
    } else { /* [..., n, 2] -> [..., 2 n], of which an odd D has one less */
        tow_value both[2] = {tow_expand_dims(sine, -1), tow_expand_dims(cosine, -1)};
        half.dims[last] *= 2;
        table = tow_reshape(tow_concatenate(2, both, last + 1), half.rank, half.dims);
        table = tow_slice_axis(table, last, 0, features);
    }
    out[0] = tow_add(in[0], tow__as(table, type.dtype));
}

const tow_module_class tow_learned_positions_class = {TOW__MADE_BY(TOW_LEARNED_POSITIONS, tow_learned_positions),
                                                      .name = "LearnedPositions", .call = call_learned,
                                                      .layout = TOW__LAYOUT(tow_learned_positions)};
const tow_module_class tow_sinusoidal_positions_class = {
    TOW__MADE_BY(TOW_SINUSOIDAL_POSITIONS, tow_sinusoidal_positions), .name = "SinusoidalPositions",
    .call = call_sinusoidal, .layout = TOW__LAYOUT(tow_sinusoidal_positions)};

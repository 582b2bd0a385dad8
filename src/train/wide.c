/* Updates of parameters of 16 bits in f32 (wide.h). */
#include "src/train/wide.h"

#include <inttypes.h>
#include <stdio.h>

#include "src/params/names.h"
#include "src/scope/layer.h"
#include "src/train/loss_scale.h"
#include "src/train/transforms.h"
#include "tow/autodiff.h"
#include "tow/numpy.h"
#include "tow/random.h"

bool tow__update_widens(const tow_optimizer_state *o, uint32_t parameter)
{
    const tow_dtype dtype = o->params->types[parameter].dtype;
    return (o->master || o->stochastic_rounding) && (dtype == TOW_BF16 || dtype == TOW_F16);
}

tow_type tow__update_type(const tow_optimizer_state *o, uint32_t parameter)
{
    tow_type type = o->params->types[parameter];
    if (tow__update_widens(o, parameter)) type.dtype = TOW_F32;
    return type;
}

/* ---- masters ----------------------------------------------------------------------------------------------------- */

/* The update as the transform "master" would see it. */
static tow_update as_master(const tow_update *u)
{
    tow_update own = *u;
    own.owner = "master";
    return own;
}

/* A master whose rounding is not the parameter is of another time: the parameter was loaded or set since, or there was
 * no update yet. Then the parameter counts. */
tow_value tow__update_widen(tow_update *u, uint32_t parameter, tow_value stored)
{
    if (!tow__update_widens(u->o, parameter)) return stored;
    tow_value wide = tow_convert(stored, TOW_F32);
    if (!u->o->master) return wide;
    tow_update own = as_master(u);
    u->parameters[parameter] = wide;
    tow_value master = tow__parameter_slot(&own, parameter, "weights");
    if (u->discovering || tow_is_null(master)) return wide;
    return tow_where(tow_eq(tow_convert(master, tow_value_type(stored).dtype), stored), master, wide);
}

tow_value tow__update_widen_gradient(tow_update *u, uint32_t parameter, tow_value gradient)
{
    return tow__unscale(u, tow__update_widens(u->o, parameter) ? tow_convert(gradient, TOW_F32) : gradient);
}

/* ---- stochastic rounding ----------------------------------------------------------------------------------------- */

enum {
    SPARE_BF16 = 16, /* bits of an f32 behind those of a bf16 */
    SPARE_F16 = 13   /* and of a normal f16 */
};

static tow_value constant(tow_value like, uint32_t value) { return tow_full_like(like, value); }

/* x with `spare` bits less, away from zero if the random bits below 2^spare and those that go are 2^spare or more. */
static tow_value round_bits(tow_value x, tow_value random, int spare)
{
    tow_value bits = tow_bitcast(x, TOW_U32);
    bits = tow_and(tow_add(bits, random), constant(bits, UINT32_MAX << spare));
    return tow_bitcast(bits, TOW_F32);
}

/* Subnormal numbers of f16 are multiples of 2^-24. random: below 2^16. */
static tow_value round_subnormal(tow_value x, tow_value random)
{
    tow_value size = tow_mul_scalar(tow_abs(x), 0x1p24), below = tow_floor(size);
    tow_value share = tow_mul_scalar(tow_convert(random, TOW_F32), 0x1p-16);
    tow_value up = tow_convert(tow_lt(share, tow_sub(size, below)), TOW_F32);
    return tow_mul(tow_sign(x), tow_mul_scalar(tow_add(below, up), 0x1p-24));
}

static tow_value round_randomly(tow_value x, tow_value random, tow_dtype dtype)
{
    tow_value rounded;
    if (dtype == TOW_BF16) {
        rounded = round_bits(x, random, SPARE_BF16);
    } else {
        tow_value normal = round_bits(x, tow_shift_right(random, constant(random, 16 - SPARE_F16)), SPARE_F16);
        rounded = tow_where(tow_lt_scalar(tow_abs(x), 0x1p-14), round_subnormal(x, random), normal);
    }
    /* Numbers that are not below the largest one of the type are rounded to nearest: to it or to infinity. */
    tow_value chance = tow_lt_scalar(tow_abs(x), dtype == TOW_BF16 ? 0x1.fep127 : 65504);
    return tow_convert(tow_where(chance, rounded, x), dtype);
}

/* FNV-1a (Fowler, Noll and Vo) of the path of one layer: "blocks/3/kernel", whether layers are stacked or not. */
static uint32_t hash_text(uint32_t hash, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 16777619U;
    return hash;
}

static uint32_t hash_layer(const char *path, const int64_t *index)
{
    uint32_t hash = 2166136261U;
    for (const char *at = path; *at;) {
        const size_t length = strcspn(at, "/"), step = length + (at[length] == '/');
        tow__numbering numbering;
        char number[24];
        if (tow__numbering_read(at, length, &numbering)) {
            const int64_t layer = tow__numbering_layer(&numbering, index);
            index += numbering.levels;
            hash = hash_text(hash, number, (size_t)snprintf(number, sizeof number, "%" PRId64, layer));
            hash = hash_text(hash, at + length, step - length);
        } else {
            hash = hash_text(hash, at, step);
        }
        at += step;
    }
    return hash;
}

static double seed_of(int64_t step, const void *state)
{
    (void)step;
    return (double)(uint32_t)((const tow_optimizer_state *)state)->seed;
}

/* u32[layers]: the hash of each layer's path. */
static tow_value hashes_of(tow_update *u, uint32_t parameter, int levels, int64_t layers)
{
    const char *path = u->o->params->names.names[parameter];
    const tow_type front = tow__type_in_front(path, u->o->params->types[parameter]);
    uint32_t *hashes = tow__trace_alloc(u->trace, (size_t)layers + 1, sizeof *hashes);
    if (!hashes) return (tow_value){0};
    for (int64_t layer = 0; layer < layers; layer++) {
        int64_t index[TOW_MAX_RANK], rest = layer;
        for (int i = levels - 1; i >= 0; i--) index[i] = rest % front.dims[i], rest /= front.dims[i];
        hashes[layer] = hash_layer(path, index);
    }
    return tow_constant_data(u->trace, tow_make_type(TOW_U32, 1, &layers), hashes);
}

/* in: hash of the path, seed, number of the step, x. */
static void round_layer(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_dtype *dtype = user;
    const tow_type type = tow_value_type(in[3]);
    const int64_t one = 1;
    tow_value words[2] = {tow_full(trace, tow_make_type(TOW_U32, 1, &one), 0), tow_reshape(in[1], 1, &one)};
    tow_value key = tow_random_fold_in(tow_random_fold_in(tow_concatenate(2, words, 0), in[0]), in[2]);
    out[0] = round_randomly(in[3], tow_random_bits_with(key, 16, type.rank, type.dims), *dtype);
}

/* x [levels..., layer...] in 16 bits. */
static tow_value round_layers(tow_update *u, uint32_t parameter, tow_value x, tow_dtype dtype)
{
    const int levels = tow__path_levels(u->o->params->names.names[parameter]);
    const tow_type type = tow_value_type(x);
    int64_t dims[TOW_MAX_RANK + 1] = {1};
    for (int i = 0; i < levels; i++) dims[0] *= type.dims[i];
    for (int i = levels; i < type.rank; i++) dims[i - levels + 1] = type.dims[i];
    tow_update own = *u;
    own.owner = "rounding";
    tow_value step = tow_convert(tow__step_count(&own), TOW_U32),
              seed = tow_convert(tow_update_function(&own, "seed", seed_of, u->o, TOW_F64), TOW_U32),
              hashes = hashes_of(u, parameter, levels, dims[0]);
    if (tow_is_null(hashes)) return x;
    if (levels == 0) {
        tow_value in[4] = {tow_reshape(hashes, 0, NULL), seed, step, x}, out = {0};
        round_layer(u->trace, in, &out, &dtype);
        return out;
    }
    tow_value in[4] = {hashes, tow_broadcast_to(seed, 1, dims), tow_broadcast_to(step, 1, dims),
                       tow_reshape(x, type.rank - levels + 1, dims)},
              out = {0};
    tow_vmap_function(u->trace, round_layer, &dtype, NULL, 4, in, 1, &out);
    return tow_reshape(out, type.rank, type.dims);
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

tow_value tow__update_narrow(tow_update *u, uint32_t parameter, tow_value value)
{
    if (!tow__update_widens(u->o, parameter) || tow_is_null(value)) return value;
    const tow_dtype dtype = u->o->params->types[parameter].dtype;
    if (u->o->stochastic_rounding) return round_layers(u, parameter, value, dtype);
    tow_update own = as_master(u);
    tow__set_parameter_slot(&own, parameter, "weights", value);
    return tow_convert(value, dtype);
}

/* Random numbers as pure functions of a key u32[2]: Threefry 2x32 with 20 rounds (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", 2011), laid out as JAX does with partitionable keys. Nothing here has a derivative.
 *   fold_in(key, d)  = T(key; 0, d)
 *   split(key, n)[i] = T(key; 0, i)
 *   bits(key)[i]     = a ^ b, (a, b) = T(key; i >> 32, i) */
#include "src/ops/random/random.h"

#include <math.h>

#include "src/ops/rules.h"

/* threefry2x32(key 0, key 1, counter 0, counter 1) -> two words; elementwise */
static tow_status threefry_type(const tow__typing *ty)
{
    tow_status status = tow__require_same(ty, 0);
    if (status == TOW_OK) status = tow__require_dtype(ty, 0, 1 << TOW_U32);
    ty->out[0] = ty->out[1] = ty->in[0];
    return status;
}

TOW__PRIMITIVE(threefry2x32, TOW__ELEMENTWISE, tow__tile_elementwise, tow__element_cost,
               .operands = "key0, key1, counter0, counter1", .inputs = 4, .outputs = 2, .batch = tow__batch_elementwise,
               .type = threefry_type);

static tow_status require_key(const tow__typing *ty, size_t i)
{
    tow_type key = tow_make_type(TOW_U32, 1, (int64_t[]){2});
    if (tow_type_equal(ty->in[i], key)) return TOW_OK;
    return tow__type_fail(ty, TOW_TYPE_MISMATCH,
                          "operand %zu must be a random key u32[2], found %s; make one with "
                          "tow_random_key, or take a row of tow_random_split",
                          i, tow__type_name(ty->in[i]).text);
}

/* random_bits(key) -> u32[shape] */
static tow_status random_bits_type(const tow__typing *ty)
{
    const tow__shape_params *p = ty->params;
    tow_status status = require_key(ty, 0);
    ty->out[0] = tow_make_type(TOW_U32, p->shape.n, p->shape.v);
    if (status == TOW_OK) status = tow__require_valid(ty, ty->out[0]);
    if (status == TOW_OK && tow_type_element_count(ty->out[0]) > (int64_t)1 << 32)
        return tow__type_fail(ty, TOW_UNSUPPORTED,
                              "%s has more than 2^32 elements, which one key cannot draw; split the key",
                              tow__type_name(ty->out[0]).text);
    return status;
}

/* Word i of a key as a scalar. */
static tow_value key_word(tow_value key, int64_t i) { return tow_reshape(tow_slice_axis(key, 0, i, i + 1), 0, NULL); }

/* T(key; 0, counter), elementwise over the counters. */
static void hash(tow_value key, tow_value counter, tow_value out[2])
{
    tow_type type = tow_value_type(counter);
    tow_value v[4] = {key_word(key, 0), key_word(key, 1), tow_zeros_like(counter), counter};
    out[0] = out[1] = tow__null();
    for (int i = 0; i < 2; i++) v[i] = tow_broadcast_to(v[i], type.rank, type.dims);
    if (!tow__any_null(4, v)) tow__bind(key.trace, &tow__threefry2x32_p, NULL, 4, v, 2, out);
}

static void random_bits_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow__ints *shape = &((const tow__shape_params *)e->params)->shape;
    int64_t count = tow_type_element_count(tow_make_type(TOW_U32, shape->n, shape->v));
    tow_value words[2];
    hash(x[0], tow_iota(t, tow_make_type(TOW_U32, 1, &count), 0), words);
    y[0] = tow_reshape(tow_xor(words[0], words[1]), shape->n, shape->v);
}

TOW__PRIMITIVE(random_bits, TOW__RANDOM, tow__no_tiling, tow__element_cost, .operands = "key", .inputs = 1,
               .outputs = 1, .type = random_bits_type, .decompose = random_bits_decompose,
               TOW__PARAMS(tow__shape_params, TOW__PARAM(tow__shape_params, shape, TOW__P_INTS)));

/* ---- keys -------------------------------------------------------------------------------------------------------- */

tow_value tow_random_key(tow_trace *trace, uint64_t seed)
{
    uint32_t key[2] = {0, (uint32_t)seed};
    return tow_constant_data(trace, tow_make_type(TOW_U32, 1, (int64_t[]){2}), key);
}

tow_value tow__checked_key(tow_value key, const char *op)
{
    tow_type type = tow_value_type(key);
    if (tow_is_null(key) || (type.dtype == TOW_U32 && type.rank == 1 && type.dims[0] == 2)) return key;
    return tow__op_fail(key, op, TOW_TYPE_MISMATCH,
                        "expected a random key u32[2], found %s; make one with tow_random_key, or take "
                        "a row of tow_random_split",
                        tow__type_name(type).text);
}

/* counter [...] -> [..., 2]: the two words side by side */
static tow_value hashed_keys(tow_value key, tow_value counter)
{
    tow_value words[2];
    hash(key, counter, words);
    for (int i = 0; i < 2; i++) words[i] = tow_expand_dims(words[i], -1);
    return tow_concatenate(2, words, -1);
}

tow_value tow_random_fold_in(tow_value key, tow_value data)
{
    key = tow__checked_key(key, "random_fold_in");
    if (tow_is_null(key) || tow_is_null(data)) return tow__null();
    tow_type type = tow_value_type(data);
    if (type.dtype != TOW_U32 || type.rank != 0)
        return tow__op_fail(key, "random_fold_in", TOW_TYPE_MISMATCH,
                            "the data folded in must be u32[], found %s; convert it", tow__type_name(type).text);
    return hashed_keys(key, data);
}

tow_value tow_random_split(tow_value key, int64_t n)
{
    key = tow__checked_key(key, "random_split");
    if (tow_is_null(key)) return key;
    if (n < 0 || n > UINT32_MAX)
        return tow__op_fail(key, "random_split", TOW_INVALID_ARGUMENT, "%lld keys asked for; give 0 to 2^32 - 1",
                            (long long)n);
    return hashed_keys(key, tow_iota(key.trace, tow_make_type(TOW_U32, 1, &n), 0));
}

void tow__random_words(tow_value key, int rank, const int64_t *shape, tow_value words[2])
{
    words[0] = words[1] = tow__null();
    key = tow__checked_key(key, "random_bits");
    if (tow_is_null(key) || !tow__given(key, "random_bits", rank <= 0 || shape, "a shape")) return;
    tow_type type = tow_make_type(TOW_U32, rank, shape);
    if (!tow__type_valid(type) || tow_type_element_count(type) > (int64_t)1 << 32) {
        tow__op_fail(key, "random_bits", TOW_UNSUPPORTED,
                     "expected a shape of at most 2^32 elements, which one key can draw, found %s; split the key",
                     tow__type_name(type).text);
        return;
    }
    int64_t count = tow_type_element_count(type);
    hash(key, tow_iota(key.trace, tow_make_type(TOW_U32, 1, &count), 0), words);
    for (int i = 0; i < 2; i++) words[i] = tow_reshape(words[i], rank, shape);
}

/* ---- draws ------------------------------------------------------------------------------------------------------- */

tow_value tow_random_bits(tow_value key, int rank, const int64_t *shape)
{
    if (!tow_is_null(key) && (rank < 0 || rank > TOW_MAX_RANK))
        return tow__op_fail(key, "random_bits", TOW_INVALID_ARGUMENT, "rank %d is outside [0, %d]", rank, TOW_MAX_RANK);
    if (!tow__given(key, "random_bits", rank <= 0 || shape, "a shape")) return tow__null();
    return tow__op(&tow__random_bits_p, &(tow__shape_params){tow__ints_of(rank, shape)}, 1, &key);
}

/* f32 in [0, 1): 23 random bits as the mantissa of a number in [1, 2), minus 1. */
static tow_value unit_uniform(tow_value key, int rank, const int64_t *shape)
{
    tow_value bits = tow_random_bits(key, rank, shape);
    tow_value mantissa = tow_shift_right(bits, tow_full_like(bits, 9));
    tow_value ones = tow_bitcast(tow_or(mantissa, tow_full_like(bits, 0x3F800000)), TOW_F32);
    return tow_sub(ones, tow_full_like(ones, 1));
}

tow_value tow_random_uniform(tow_value key, int rank, const int64_t *shape, double low, double high)
{
    tow_value u = unit_uniform(key, rank, shape);
    if (tow_is_null(u) || (low == 0 && high == 1)) return u;
    float lowest = (float)low, span = (float)high - lowest;
    int exponent;
    bool exact = frexpf(span, &exponent) == 0.5F; /* then so is the product, and nothing is gained by rounding once */
    tow_value scaled = exact ? tow_add_scalar(tow_mul_scalar(u, span), lowest)
                             : tow_fma(u, tow_full_like(u, span), tow_full_like(u, lowest));
    return tow_max(tow_full_like(u, lowest), scaled);
}

tow_value tow_random_normal(tow_value key, int rank, const int64_t *shape)
{
    tow_value u = tow_random_uniform(key, rank, shape, nextafterf(-1.0F, 0.0F), 1);
    return tow_mul_scalar(tow_erf_inv(u), 1.41421354F);
}

tow_value tow_random_bernoulli(tow_value key, double p, int rank, const int64_t *shape)
{
    tow_value u = unit_uniform(key, rank, shape);
    return tow_lt(u, tow_full_like(u, (float)p));
}

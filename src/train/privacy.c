/* Per-example clipping and noise, as Optax's differentially_private_aggregate. (Abadi and others, Deep learning with
 * differential privacy, 2016) */
#include <float.h>

#include "src/scope/layer.h"
#include "src/train/recording.h"
#include "src/train/transforms.h"
#include "src/train/wide.h"
#include "tow/numpy.h"
#include "tow/random.h"

/* keys u32[n + 1, 2]: those of this update for n parameters, behind the one of the next update. */
static tow_value split_keys(tow_update *u, uint64_t seed)
{
    uint32_t words[2];
    const tow_type type = tow_make_type(TOW_U32, 1, (int64_t[]){2});
    tow_random_host_key(seed, words);
    tow_value first = tow__spread(tow__first_update(u), tow_constant_data(u->trace, type, words));
    tow_value key = tow_where(first, tow_constant_data(u->trace, type, words), tow_slot_with(u, "key", type, 0));
    tow_value keys = tow_random_split(key, (int64_t)tow_update_parameter_count(u) + 1);
    tow_set_slot(u, "key", tow_reshape(tow_slice_axis(keys, 0, 0, 1), 1, type.dims));
    return keys;
}

/* Sum over examples of g [examples, ...] times each one's factor [examples, 1]; in f32 at least. */
static tow_value clipped_sum(const tow__factor *factor, tow_value g, tow_type type)
{
    const int64_t examples = tow_value_type(g).dims[0];
    const tow_dtype wide = tow_promote_types(type.dtype, TOW_F32);
    static const int axis = 0;
    g = tow_reshape(tow__as(g, wide), 2, (int64_t[]){examples, tow_type_element_count(type)});
    return tow_reshape(tow_reduce_sum(tow__factor_apply(factor, g), 1, &axis), type.rank, type.dims);
}

static void aggregate_all(tow_update *u, const tow_gradient_transform *self)
{
    const tow_differentially_private_aggregate *o = (const tow_differentially_private_aggregate *)self;
    const size_t n = tow_update_parameter_count(u);
    if (!tow__is_number(u, "l2_norm_clip", o->l2_norm_clip, DBL_MIN) ||
        !tow__is_number(u, "noise_multiplier", o->noise_multiplier, 0))
        return;
    if (!u->o->examples || n == 0) {
        tow_trace_fail(u->trace, TOW_INVALID_ARGUMENT,
                       "optimizer: differentially_private_aggregate: expected gradients of single examples; set "
                       "tow_optimizer_options.examples, and put it first in the chain");
        return;
    }
    tow_value *given = tow__trace_alloc(u->trace, n, sizeof *given), keys = {0};
    if (!given) return;
    for (size_t i = 0; i < n; i++) given[i] = tow__example_gradients(u, i);
    tow__root norms = tow__roots_of_rows(n, given);
    tow__factor factor = tow__factor_clip(norms, tow_full_like(norms.value, o->l2_norm_clip), 0);
    if (o->noise_multiplier > 0) keys = split_keys(u, o->seed);
    for (size_t i = 0; i < n && !tow__failed(u->trace); i++) {
        const tow_type type = tow__update_type(u->o, u->which[i]);
        tow_value sum = clipped_sum(&factor, given[i], type);
        if (!tow_is_null(keys)) {
            const int64_t row = (int64_t)i + 1, two = 2;
            tow_value key = tow_reshape(tow_slice_axis(keys, 0, row, row + 1), 1, &two);
            tow_value noise = tow__as(tow_random_normal_with(key, type), tow_value_type(sum).dtype);
            sum = tow_add(sum, tow_mul_scalar(noise, o->l2_norm_clip * o->noise_multiplier));
        }
        sum = tow_div_scalar(sum, (double)u->o->examples);
        tow__set_aggregated(u, i, tow__as(sum, type.dtype));
    }
}
const tow_gradient_transform_class tow_differentially_private_aggregate_class = {
    TOW__MADE_BY(TOW_DIFFERENTIALLY_PRIVATE_AGGREGATE, tow_differentially_private_aggregate),
    .name = "differentially_private", .all = aggregate_all};

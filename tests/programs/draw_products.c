/* Products, convolutions, composites of layers, and random numbers. */
#include "tests/programs/draw.h"

/* Contracts an axis of x with an axis of y of its size, and pairs another two as a batch. */
static bool pair_axes(drawing *d, tow_type a, tow_type b, tow_dot_dims *dims)
{
    bool used_a[TOW_MAX_RANK] = {0}, used_b[TOW_MAX_RANK] = {0};
    const int wanted_batch = draw(d, 3) == 0;
    for (int i = 0; i < a.rank; i++)
        for (int j = 0; j < b.rank; j++) {
            if (used_a[i] || used_b[j] || a.dims[i] != b.dims[j] || draw(d, 3) == 0) continue;
            if (dims->n_contract == 0 || (dims->n_batch == wanted_batch && draw(d, 3) == 0)) {
                dims->lhs_contract[dims->n_contract] = i;
                dims->rhs_contract[dims->n_contract++] = j;
            } else if (dims->n_batch < wanted_batch) {
                dims->lhs_batch[dims->n_batch] = i;
                dims->rhs_batch[dims->n_batch++] = j;
            } else {
                continue;
            }
            used_a[i] = used_b[j] = true;
        }
    return a.rank + b.rank - 2 * dims->n_contract - dims->n_batch <= MOST_AXES && dims->n_contract > 0;
}

tow_value draw_product(drawing *d)
{
    tow_value x = draw_ranked(d, 1), y = draw_ranked(d, 1);
    tow_dot_dims dims = {0};
    if (pair_axes(d, tow_value_type(x), tow_value_type(y), &dims)) {
        tow_value product = tow_dot_general(x, y, dims);
        return draw(d, 6) ? product : tow_checkpoint_name(product, "a");
    }
    const int rank = tow_value_type(x).rank;
    if (rank == 0) return tow_mul(x, x);
    dims = (tow_dot_dims){.n_contract = 1, .lhs_contract = {rank - 1}, .rhs_contract = {rank - 1}, .n_batch = rank - 1};
    for (int i = 0; i + 1 < rank; i++) dims.lhs_batch[i] = dims.rhs_batch[i] = i;
    return tow_dot_general(x, tow_cos(x), dims);
}

/* One or two spatial axes, channels last. */
tow_value draw_convolution(drawing *d)
{
    tow_value x = draw_ranked(d, 2);
    tow_type type = tow_value_type(x);
    if (type.rank < 2) return (tow_value){0};
    if (type.rank == 2) {
        type = tow_make_type(type.dtype, 3, (int64_t[]){1, type.dims[0], type.dims[1]});
        x = tow_reshape(x, 3, type.dims);
    }
    const int spatial = type.rank - 2;
    const int64_t features = type.dims[type.rank - 1], groups = features > 0 && draw(d, 4) == 0 ? features : 1;
    tow_type kernel = {.dtype = type.dtype, .rank = type.rank};
    tow_conv_options o =
        TOW_CONV_OPTIONS(.padding = draw(d, 2) ? TOW_PAD_SAME : TOW_PAD_VALID, .feature_groups = groups);
    for (int i = 0; i < spatial; i++) {
        kernel.dims[i] = 1 + draw(d, 3);
        o.strides[i] = 1 + (draw(d, 3) == 0);
        o.lhs_dilation[i] = 1 + (o.padding == TOW_PAD_VALID && draw(d, 6) == 0);
        o.rhs_dilation[i] = 1 + (draw(d, 8) == 0);
    }
    kernel.dims[spatial] = features / groups;
    kernel.dims[spatial + 1] = groups * (1 + draw(d, 3));
    tow_value weights = fitted(draw_float(d), kernel);
    tow_value varied = tow_cos(tow_add(weights, tow_mul_scalar(tow_iota(d->t, kernel, spatial + 1), 0.5)));
    return tow_conv_general_dilated(x, varied, &o);
}

/* The latest value of this type, or constants. */
static tow_value weights(drawing *d, tow_type type, double constant)
{
    for (int i = d->n; i-- > 0;)
        if (tow_type_equal(tow_value_type(d->values[i]), type)) return d->values[i];
    return tow_full(d->t, type, constant);
}

static tow_value draw_attention(drawing *d, tow_value x)
{
    const tow_type type = tow_value_type(x);
    const int64_t features = type.dims[type.rank - 1], heads = features % 2 == 0 ? 2 : 1;
    int64_t rows = 1;
    for (int i = 0; i + 1 < type.rank; i++) rows *= type.dims[i];
    tow_value q = tow_reshape(x, 4, (int64_t[]){1, rows, heads, features / heads});
    const tow_attention_options options = TOW_ATTENTION_OPTIONS(.causal = draw(d, 2));
    return tow_reshape(tow_attention(q, tow_sin(q), tow_cos(q), &options), type.rank, type.dims);
}

tow_value draw_layer(drawing *d)
{
    tow_value x = draw_ranked(d, 2);
    const tow_type type = tow_value_type(x);
    if (type.rank < 2 || count_of(x) == 0) return tow_sin(x);
    const tow_type features = tow_make_type(type.dtype, 1, &type.dims[type.rank - 1]);
    switch (draw(d, 5)) {
    case 0:
        return tow_normalize_layer(x, weights(d, features, 1.5), weights(d, features, 0.25), 1e-2);
    case 1:
        return tow_normalize_rms(x, weights(d, features, 1.5), 1e-2);
    case 2:
        return draw_attention(d, x);
    case 3: {
        tow_type labels = type;
        labels.dtype = TOW_I32;
        labels.rank--;
        tow_value which = draw_indices(d, type.dims[type.rank - 1]);
        which =
            tow_reduce_max(tow_concatenate(2,
                                           (tow_value[]){tow_reshape(which, 1, (int64_t[]){-1}),
                                                         tow_full(d->t, tow_make_type(TOW_I32, 1, (int64_t[]){1}), 0)},
                                           0),
                           0, NULL);
        return tow_softmax_cross_entropy(x, tow_broadcast_to(which, labels.rank, labels.dims));
    }
    default: {
        const tow_type table = tow_make_type(type.dtype, 2, (int64_t[]){type.dims[type.rank - 1], 5});
        tow_type labels = type;
        labels.dtype = TOW_I32;
        labels.rank--;
        return tow_linear_cross_entropy(x, fitted(draw_float(d), table), false, tow_full(d->t, labels, draw(d, 5)));
    }
    }
}

tow_value draw_random(drawing *d)
{
    tow_value x = draw_ranked(d, 1);
    const tow_type type = tow_value_type(x);
    tow_value key = tow_random_fold_in(d->key, tow_scalar(d->t, TOW_U32, draw(d, 100)));
    switch (draw(d, 5)) {
    case 0:
        return tow_add(x, tow_random_uniform_with(key, type, -1, 1));
    case 1:
        return tow_random_bits(key, type.rank, type.dims);
    case 2:
        return tow_random_randint(key, tow_make_type(TOW_I32, type.rank, type.dims), 0, 5);
    default:
        return tow_dropout_with_key(x, key, 0.25, 0, NULL);
    }
}

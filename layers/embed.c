/* Embed: rows of a table by index, and the product with the same table for tied output projections. */
#include "src/scope/calls.h"
#include "src/scope/layer.h"
#include "src/scope/tree.h"
#include "tow/layers.h"

/* embedding [num_embeddings, features] as it is stored, in blocks along its rows or not; *compute: what the layer
 * gives, for inputs n of 0 or 1. */
static tow_value table(tow_scope *scope, const tow_embed *m, size_t n, const tow_value *x, tow_dtype *compute)
{
    tow__dtypes types;
    if (!tow__check_option(scope, "Embed", m->num_embeddings > 0, "num_embeddings", (double)m->num_embeddings,
                           "a positive number") ||
        !tow__check_option(scope, "Embed", m->features > 0, "features", (double)m->features, "a positive number") ||
        !tow__read_weight_dtypes(scope, "Embed", m->dtype, m->param_dtype, n, x, &types))
        return (tow_value){0};
    *compute = types.compute;
    tow_initializer init = tow_initializer_variance_scaling(1, TOW_FAN_IN, TOW_NORMAL);
    init.fan.n_out = 1; /* axis 0 */
    return tow__table(scope, "embedding", m->num_embeddings, m->features, tow__init_or(m->embedding_init, init),
                      &types);
}

static bool in_blocks(tow_value embedding) { return tow_dtype_numbers(tow_value_type(embedding).dtype) > 1; }

/* x [..., features] -> [..., num_embeddings] */
static tow_value multiply(tow_value x, tow_value embedding, tow_dtype compute)
{
    x = tow__as(x, compute);
    if (tow_is_null(x) || tow_is_null(embedding)) return (tow_value){0};
    if (in_blocks(embedding)) return tow_quantized_dot(x, embedding);
    return tow_dot_general(
        x, tow__as(embedding, compute),
        (tow_dot_dims){.n_contract = 1, .lhs_contract = {tow_value_type(x).rank - 1}, .rhs_contract = {1}});
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    if (!tow__check_counts(scope, "Embed", n_in, 1, 1, n_out)) return;
    tow_type type = tow_value_type(in[0]);
    if (type.dtype != TOW_I32 && type.dtype != TOW_U32) {
        tow_scope_fail(scope, TOW_TYPE_MISMATCH,
                       "Embed: expected indices of type i32 or u32, found %s; convert them with tow_convert",
                       tow__type_name(type).text);
        return;
    }
    tow_dtype compute;
    tow_value embedding = table(scope, (const tow_embed *)module, 0, NULL, &compute);
    if (tow_is_null(embedding)) return;
    out[0] = tow__rows(embedding, in[0], compute);
}

/* NULL stays NULL. */
static const tow_embed *read_embed(tow_scope *scope, const tow_embed *embed)
{
    return embed ? (const tow_embed *)tow__read_layer(scope, &embed->module) : NULL;
}

/* x fits the table of the child that `scope` is. */
static bool check_features(tow_scope *scope, const tow_embed *embed, tow_value x)
{
    if (!embed) tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "Embed attend: expected a layer, found NULL; pass one");
    if (tow__scope_failed(scope) || !tow__check_float(scope, "Embed attend", 0, x, 1)) return false;
    tow_type type = tow_value_type(x);
    if (type.dims[type.rank - 1] == embed->features) return true;
    tow_scope_fail(scope, TOW_SHAPE_MISMATCH, "Embed attend: expected %lld features in the last axis, found %s",
                   (long long)embed->features, tow__type_name(type).text);
    return false;
}

tow_value tow_embed_attend(tow_scope *scope, const char *name, const tow_embed *embed, tow_value x)
{
    tow_scope *child = tow_scope_begin(scope, name);
    tow_value y = {0};
    embed = read_embed(child, embed);
    if (check_features(child, embed, x)) {
        tow_dtype compute = TOW_F32;
        tow_value embedding = table(child, embed, 1, &x, &compute);
        y = multiply(x, embedding, compute);
    }
    tow_scope_end(child);
    return y;
}

tow_value tow_embed_cross_entropy(tow_scope *scope, const char *name, const tow_embed *embed, tow_value x,
                                  tow_value labels)
{
    tow_scope *child = tow_scope_begin(scope, name);
    tow_value y = {0};
    embed = read_embed(child, embed);
    if (check_features(child, embed, x)) {
        tow_dtype compute = TOW_F32;
        tow_value embedding = table(child, embed, 1, &x, &compute);
        if (!tow_is_null(embedding) && in_blocks(embedding))
            y = tow_softmax_cross_entropy(multiply(x, embedding, compute), labels);
        else
            y = tow_linear_cross_entropy(tow__as(x, compute), tow__as(embedding, compute), true, labels);
    }
    tow_scope_end(child);
    return y;
}

const tow_module_class tow_embed_class = {TOW__MADE_BY(TOW_EMBED, tow_embed), .name = "Embed", .call = call,
                                          .layout = TOW__LAYOUT(tow_embed)};

/* Embed: rows of a table by index, and the product with the same table for tied output projections. */
#include "layers/layer.h"

/* embedding [num_embeddings, features], f32 */
static tow_value table(tow_scope *scope, const tow_embed *m)
{
    if (!tow__check_option(scope, "Embed", m->num_embeddings > 0, "num_embeddings", (double)m->num_embeddings,
                           "a positive number") ||
        !tow__check_option(scope, "Embed", m->features > 0, "features", (double)m->features, "a positive number"))
        return (tow_value){0};
    tow_initializer init = tow_init_variance_scaling(1, TOW_FAN_IN, TOW_NORMAL);
    init.fan.n_out = 1; /* axis 0 */
    return tow_param(scope, "embedding", 2, (int64_t[]){m->num_embeddings, m->features},
                     tow__init_or(m->embedding_init, init));
}

/* The same in the type of x. */
static tow_value table_like(tow_scope *scope, const tow_embed *m, tow_value x)
{
    tow_value embedding = table(scope, m);
    tow_dtype dtype = tow_value_type(x).dtype;
    return tow_is_null(embedding) || dtype == TOW_F32 ? embedding : tow_convert(embedding, dtype);
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
    out[0] = tow_gather(table(scope, (const tow_embed *)module), in[0]);
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
    if (check_features(child, embed, x)) {
        int last = tow_value_type(x).rank - 1;
        y = tow_dot_general(x, table_like(child, embed, x),
                            (tow_dot_dims){.n_contract = 1, .lhs_contract = {last}, .rhs_contract = {1}});
    }
    tow_scope_end(child);
    return y;
}

tow_value tow_embed_cross_entropy(tow_scope *scope, const char *name, const tow_embed *embed, tow_value x,
                                  tow_value labels)
{
    tow_scope *child = tow_scope_begin(scope, name);
    tow_value y = {0};
    if (check_features(child, embed, x)) y = tow_linear_cross_entropy(x, table_like(child, embed, x), true, labels);
    tow_scope_end(child);
    return y;
}

const tow_module_class tow_embed_class = {.name = "Embed", .call = call};

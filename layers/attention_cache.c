/* The cache of keys and values: variables of the collection "cache", as in Flax.
 *
 *   cached_key, cached_value  [B, cache_length, G, D]      cache_index  i32 []
 *   memory_key, memory_value  [B, S, G, D]
 *
 * With .cache_dtype keys and values are rounded when they are put there: to 16 bits, or to blocks of 32 numbers, [B,
 * cache_length, G, D / 32].
 *
 * A caller whose rows have positions of their own, such as the generator, replaces cache_index by i32 [B].
 *
 * A call replaces the rows from cache_index on by its own. Nothing else is read from the old arrays before they are
 * written, so that a program to whose inputs the new ones are donated writes some rows and copies nothing. Those of a
 * memory are written whole by the calls that project it, and only read by the others. */
#include "layers/attention.h"
#include "tow/ops.h"

static const char cache[] = "cache";

tow_value tow__cache_index(tow_scope *scope)
{
    if (!tow_scope_is_initializing(scope) && tow_has_variable(scope, cache, "cache_index")) {
        tow_value index = tow_get_variable(scope, cache, "cache_index");
        const tow_type type = tow_value_type(index);
        if (type.rank == 1 && type.dtype == TOW_I32) return index;
    }
    return tow_variable(scope, cache, "cache_index", tow_make_type(TOW_I32, 0, NULL), tow_initializer_zeros());
}

tow_value tow__positions_from(tow_scope *scope, tow_value index, int64_t T)
{
    const tow_value here = tow_iota(tow_scope_trace(scope), tow_make_type(TOW_I32, 1, &T), 0);
    const tow_type type = tow_value_type(index);
    if (tow_is_null(index) || type.rank == 0) return tow_add(here, index);
    const int64_t dims[2] = {type.dims[0], T};
    return tow_add(tow_broadcast_to(here, 2, dims), tow_broadcast_to(tow_expand_dims(index, 1), 2, dims));
}

void tow__advance_index(tow_scope *scope, tow_value index, int64_t n)
{
    if (!tow__scope_failed(scope)) tow_set_variable(scope, cache, "cache_index", tow_add_scalar(index, (double)n));
}

/* all [B, length, G, D] with rows [B, T, G, D] from start[b] on; those in front of the first position or behind the
 * last are dropped. */
static tow_value scatter_rows(tow_scope *scope, tow_value all, tow_value rows, tow_value start)
{
    static const tow_scatter_dims dims = {.n_window = 2,
                                          .n_inserted = 1,
                                          .n_batching = 1,
                                          .n_index = 1,
                                          .update_window_dims = {2, 3},
                                          .inserted_window_dims = {1},
                                          .operand_batching_dims = {0},
                                          .scatter_indices_batching_dims = {0},
                                          .scatter_dims_to_operand_dims = {1}};
    const tow_type type = tow_value_type(rows), index = tow_value_type(start);
    if (index.dims[0] != type.dims[0]) {
        tow_scope_fail(
            scope, TOW_SHAPE_MISMATCH,
            "MultiHeadAttention: the variable \"cache_index\" has positions of %lld sequences, the call has %lld",
            (long long)index.dims[0], (long long)type.dims[0]);
        return (tow_value){0};
    }
    const tow_value places = tow_expand_dims(tow__positions_from(scope, start, type.dims[1]), 2);
    return tow_scatter_general(TOW_SCATTER_SET, all, places, rows, &dims, TOW_INDEX_FILL, true);
}

/* The rows of `name` with those of the call put in, or, while initializing, zeros of the cache's type. */
static tow_value put_rows(tow_scope *scope, const char *name, tow_value rows, int64_t length, tow_value start)
{
    tow_type type = tow_value_type(rows);
    type.dims[1] = length;
    tow_value all = tow_variable(scope, cache, name, type, tow_initializer_zeros());
    if (tow_is_null(all)) return all;
    tow_value zero = tow_zeros_like(start);
    if (tow_value_type(start).rank == 1)
        all = scatter_rows(scope, all, rows, start);
    else
        all = tow_dynamic_update_slice(all, rows, (tow_value[]){zero, start, zero, zero});
    tow_set_variable(scope, cache, name, all);
    return all;
}

/* The number of positions of the cache; 0 after an error. */
static int64_t length_of(tow_scope *scope, const tow_multi_head_attention *m, const tow__attention_call *c)
{
    int64_t length = m->cache_length ? m->cache_length : c->S;
    if (!m->cache_length && !tow_scope_is_initializing(scope)) {
        tow_type type = tow_value_type(tow_get_variable(scope, cache, "cached_key"));
        if (tow__scope_failed(scope)) return 0;
        length = type.rank == 4 ? type.dims[1] : 0;
    }
    if (c->T <= length) return length;
    tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                   "MultiHeadAttention: the cache has %lld positions, the call %lld; give a longer .cache_length, or "
                   "initialize the "
                   "model with longer inputs",
                   (long long)length, (long long)c->T);
    return 0;
}

static bool check_cache_dtype(tow_scope *scope, const tow_multi_head_attention *m, const tow__attention_call *c)
{
    const int numbers = tow_dtype_numbers(m->cache_dtype);
    const bool known = m->cache_dtype == 0 || m->cache_dtype == TOW_F32 || tow__stores_less(m->cache_dtype);
    if (known && (numbers <= 1 || c->D % numbers == 0)) return true;
    tow_scope_fail(
        scope, known ? TOW_SHAPE_MISMATCH : TOW_INVALID_ARGUMENT,
        "MultiHeadAttention: .cache_dtype = %s with %lld features of a head; expected f32, bf16, f16, q8_0 or q4_0 "
        "with a multiple of 32, or q4_k or q6_k with one of 256",
        tow_dtype_name(m->cache_dtype) ? tow_dtype_name(m->cache_dtype) : "no type", (long long)c->D);
    return false;
}

static tow_value stored_as(tow_value x, tow_dtype dtype)
{
    return tow_dtype_numbers(dtype) > 1 ? tow_quantize(x, dtype) : tow_convert(x, dtype);
}

bool tow__update_cache(tow_scope *scope, const tow_multi_head_attention *m, tow__attention_call *c, tow_value *k,
                       tow_value *v)
{
    int64_t length = length_of(scope, m, c);
    if (length == 0 || !check_cache_dtype(scope, m, c)) return false;
    if (m->cache_dtype) {
        *k = stored_as(*k, m->cache_dtype);
        *v = stored_as(*v, m->cache_dtype);
    }
    *k = put_rows(scope, "cached_key", *k, length, c->start);
    *v = put_rows(scope, "cached_value", *v, length, c->start);
    c->S = length;
    return !tow__scope_failed(scope);
}

/* The variable `name` with `value` in it, or with .recall as it is. */
static tow_value remember(tow_scope *scope, const tow_multi_head_attention *m, const char *name, tow_value value)
{
    tow_value kept = tow_variable(scope, cache, name, tow_value_type(value), tow_initializer_zeros());
    if (m->recall || tow__scope_failed(scope)) return kept;
    tow_set_variable(scope, cache, name, value);
    return value;
}

bool tow__remember(tow_scope *scope, const tow_multi_head_attention *m, tow_value *k, tow_value *v)
{
    *k = remember(scope, m, "memory_key", *k);
    *v = remember(scope, m, "memory_value", *v);
    return !tow__scope_failed(scope);
}

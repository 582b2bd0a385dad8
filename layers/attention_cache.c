/* The cache of keys and values: variables of the collection "cache", as in Flax.
 *
 *   cached_key, cached_value  [B, cache_length, G, D]      cache_index  i32 []
 *   memory_key, memory_value  [B, S, G, D]
 *
 * A call replaces the rows from cache_index on by its own. Nothing else is read from the old arrays before they are written, so that
 * a program to whose inputs the new ones are donated writes some rows and copies nothing. Those of a memory are written whole by the
 * calls that project it, and only read by the others. */
#include "layers/attention.h"

static const char cache[] = "cache";

tow_value tow__cache_index(tow_scope *scope)
{
    return tow_variable(scope, cache, "cache_index", tow_make_type(TOW_I32, 0, NULL), tow_init_zeros());
}

void tow__advance_index(tow_scope *scope, tow_value index, int64_t n)
{
    if (!tow__scope_failed(scope)) tow_set_variable(scope, cache, "cache_index", tow_add_scalar(index, (double)n));
}

/* The rows of `name` with those of the call put in, or, while initialising, zeros of the cache's type. */
static tow_value put_rows(tow_scope *scope, const char *name, tow_value rows, int64_t length, tow_value start)
{
    tow_type type = tow_value_type(rows);
    type.dims[1] = length;
    tow_value all = tow_variable(scope, cache, name, type, tow_init_zeros());
    if (tow_is_null(all)) return all;
    tow_value zero = tow_zeros_like(start);
    all = tow_dynamic_update_slice(all, rows, (tow_value[]){zero, start, zero, zero});
    tow_set_variable(scope, cache, name, all);
    return all;
}

/* How many positions the cache has; 0 after an error. */
static int64_t length_of(tow_scope *scope, const tow_multi_head_attention *m, const tow__attention_call *c)
{
    int64_t length = m->cache_length ? m->cache_length : c->S;
    if (!m->cache_length && !tow_scope_initialising(scope)) {
        tow_type type = tow_value_type(tow_get_variable(scope, cache, "cached_key"));
        if (tow__scope_failed(scope)) return 0;
        length = type.rank == 4 ? type.dims[1] : 0;
    }
    if (c->T <= length) return length;
    tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                   "MultiHeadAttention: the cache has %lld positions, the call %lld; give a longer .cache_length, or "
                   "initialise the "
                   "model with longer inputs",
                   (long long)length, (long long)c->T);
    return 0;
}

bool tow__update_cache(tow_scope *scope, const tow_multi_head_attention *m, tow__attention_call *c, tow_value *k,
                       tow_value *v)
{
    int64_t length = length_of(scope, m, c);
    if (length == 0) return false;
    *k = put_rows(scope, "cached_key", *k, length, c->start);
    *v = put_rows(scope, "cached_value", *v, length, c->start);
    c->S = length;
    return !tow__scope_failed(scope);
}

/* The variable `name` with `value` in it, or with .recall as it is. */
static tow_value remember(tow_scope *scope, const tow_multi_head_attention *m, const char *name, tow_value value)
{
    tow_value kept = tow_variable(scope, cache, name, tow_value_type(value), tow_init_zeros());
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

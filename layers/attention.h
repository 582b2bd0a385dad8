/* Shared by the files of attention: the sizes and options of one call, logits and weights written out, and the
 * cache. */
#ifndef TOW_LAYERS_ATTENTION_H
#define TOW_LAYERS_ATTENTION_H

#include "src/scope/layer.h"
#include "tow/attention.h"
#include "tow/numpy.h"

/* The operands and sizes of one call. Null values: not given. */
typedef struct tow__attention_call {
    int64_t B, T, S, H, G, D;                       /* G key heads, D features of a head */
    tow_value x_q, x_k, x_v, mask, bias, positions; /* with one batch axis */
    tow_type type;                                  /* of x_q as it was given */
    tow_value start;                                /* decoding: i32 [] or [B], the position of the first query */
    bool causal;
    bool remembers; /* decoding with a memory */
    double scale;
} tow__attention_call;

/* True for a type in which a cache may be that is not one of numbers that are computed with. */
static inline bool tow__stores_less(tow_dtype dtype)
{
    return dtype == TOW_BF16 || dtype == TOW_F16 || tow_dtype_numbers(dtype) > 1;
}

/* ---- attention_weights.c ----------------------------------------------------------------------------------------- */

/* softmax of the logits, [B, H, T, S]; q [B, T, H, D], k [B, S, G, D] */
tow_value tow__attention_weights(const tow_multi_head_attention *m, const tow__attention_call *c, tow_value q,
                                 tow_value k);
/* weights [B, H, T, S], v [B, S, G, D] -> [B, T, H, D] */
tow_value tow__weigh_values(const tow__attention_call *c, tow_value weights, tow_value v);

/* ---- attention_cache.c ------------------------------------------------------------------------------------------- */

/* The variable "cache_index" of this scope as the call finds it: i32 [], or [B] where the caller has replaced it so,
 * and each row has positions of its own. */
tow_value tow__cache_index(tow_scope *scope);
/* i32 [T] or [B, T]: the positions behind it. */
tow_value tow__positions_from(tow_scope *scope, tow_value index, int64_t T);
/* It goes on by n: to be called when the old value has been used, so that the new one may take its place. */
void tow__advance_index(tow_scope *scope, tow_value index, int64_t n);
/* Puts k and v of this call [B, T, G, D] into the cache, which they become [B, S, G, D]; S of the call is that of the
 * cache. False: an error, reported. */
bool tow__update_cache(tow_scope *scope, const tow_multi_head_attention *m, tow__attention_call *c, tow_value *k,
                       tow_value *v);
/* Puts k and v of this call's memory [B, S, G, D] into the cache, or with .recall they become those that it has. False:
 * an error, reported. */
bool tow__remember(tow_scope *scope, const tow_multi_head_attention *m, tow_value *k, tow_value *v);

#endif

/* Attention inside the kernels: the operands of one call, what each query may see, and the entry points for strips of
 * both float types.
 *
 *   q [B, T, H, D], k [B, S, G, D], v [B, S, G, E], out [B, T, H, E], lse [B, H, T]; head h reads group h / (H/G)
 *
 * A strip is up to 64 queries of one head. It sees keys start .. keys; query i of it sees those from from[i] to
 * limit[i], less what the mask hides: a window moves both ends, and keys outside of them are not read. A query that
 * sees no key at all is blind: it spreads over all S keys alike and has the lowest finite number as its log-sum-exp.
 *
 * Bits. Sums run in an order that shapes, causality and the mask fix, not threads: strips of a head do not meet
 * forward, and one thread runs those of a group of keys backward. In f32 the order is that of attention_f32.inc, over
 * lanes that round alike with every instruction set (attention_lanes.h). In f64 products have the bits of their engine
 * (products/gemm.h).
 *
 * Engines. f32 is compiled in plain C, for AVX2 and for AVX-512; tow__attention_f32 picks the best version that the
 * processor has. f64 is one version around products, whose engine tow__gemm_choose finds. */
#ifndef TOW_SRC_KERNELS_ATTENTION_H
#define TOW_SRC_KERNELS_ATTENTION_H

#include <float.h>
#include <string.h>

#include "src/kernels/products/gemm_bf16.h"

enum {
    TOW__STRIP = 64
};

/* An operand [B, T or S, H or G, width]. All operands may be stored in 16 bits, and keys and values of queries in f32
 * in 16 bits or in blocks of numbers: the kernel of f32 decodes them, a strip of queries and one head's keys at a time
 * (attention_f32.c). */
typedef struct tow__heads {
    const char *data;
    tow_dtype dtype;
    int64_t width, batch, row, head, column; /* numbers in a row; strides in elements */
} tow__heads;

typedef struct tow__attention_job {
    tow_dtype dtype;  /* TOW_F32 or TOW_F64: what it is computed in */
    tow_dtype result; /* of out, dq, dk and dv: `dtype`, or 16 bits beside TOW_F32 */
    bool causal, backward;
    double scale, cap;                            /* cap 0: none */
    int64_t window;                               /* 0: none */
    int64_t batches, t, s, heads, groups, strips; /* strips per head */
    tow__heads q, k, v, o, ct;
    tow__buffer lse;
    const tow__buffer *mask;            /* bool [B|1, H|1, T|1, S|1], or NULL */
    const tow__buffer *bias;            /* of the type of q, likewise */
    const tow__buffer *offset;          /* i32 [] or [B], or NULL: S - T */
    void *out, *lse_out;                /* forward */
    void *dq, *dk, *dv;                 /* backward; NULL where not asked for */
    const tow__gemm_choice *products;   /* what may compute them, in double precision and on units; NULL: the rule */
    const tow__gemm_bf16_version *unit; /* all is bf16, and products run on this one; NULL: on none */
} tow__attention_job;

typedef struct tow__strip {
    int64_t b, h, g, first, rows, start, keys; /* queries first .. first + rows; keys start .. keys */
    int64_t from[TOW__STRIP];                  /* 0 for blind queries, and `start` behind the last row */
    int64_t limit[TOW__STRIP];                 /* S for blind queries, and `keys` behind the last row */
    bool blind[TOW__STRIP];
    bool any_blind;
} tow__strip;

/* The mask of query i of a strip: element j is data[j * stride]. data is NULL without a mask. */
typedef struct tow__mask_row {
    const b8 *data;
    int64_t stride;
} tow__mask_row;

/* The bias of query i likewise. */
typedef struct tow__bias_row {
    const char *data; /* of the type of q */
    int64_t stride;   /* in elements */
} tow__bias_row;

/* Strip `index` of head h of sequence b. */
tow__strip tow__strip_of(const tow__attention_job *a, int64_t b, int64_t h, int64_t index);
tow__mask_row tow__strip_mask(const tow__attention_job *a, const tow__strip *s, int64_t i);
tow__bias_row tow__strip_bias(const tow__attention_job *a, const tow__strip *s, int64_t i);
/* Element (row, 0) of a head; of the strip's keys and values with head = s->g. */
const char *tow__head_row(const tow__heads *x, int64_t b, int64_t head, int64_t row);
/* True for what is stored in another type than f32, which the kernel of f32 decodes. */
static inline bool tow__heads_stored(const tow__heads *x) { return x->dtype != TOW_F32 && x->dtype != TOW_F64; }
/* Rows first .. first + rows of a head that is stored, as f32, `ld` apart, with zeros behind the width up to `end`
 * (attention_stored.c). */
void tow__heads_decode(const tow__heads *x, int64_t b, int64_t head, int64_t first, int64_t rows, f32 *to, int64_t ld,
                       int64_t end);
/* n numbers rounded to a type of 16 bits. */
void tow__narrow_row(tow_dtype dtype, int64_t n, const f32 *from, void *to);
/* Number i of a row in f32 or 16 bits. */
static inline f32 tow__number_at(tow_dtype dtype, const void *row, int64_t i)
{
    if (dtype == TOW_BF16) return tow__from_bf16(((const bf16 *)row)[i]);
    if (dtype == TOW_F16) return tow__from_f16(((const f16 *)row)[i]);
    return ((const f32 *)row)[i];
}

/* The unit for bf16 on which the products of a job run (attention_unit.c); NULL: none. Reads types, shapes and
 * .products. */
const tow__gemm_bf16_version *tow__attention_unit(const tow__attention_job *a);
/* Keys first .. first + keys of a strip on a unit. */
typedef struct tow__unit_block {
    const tow__gemm_bf16_version *unit;
    const tow__strip *strip;
    int64_t first, keys;
    uint16_t *halves; /* [keys, 64]: what sums read */
    void *scratch;    /* tow__unit_scratch bytes */
} tow__unit_block;
/* p [keys, 64] = keys or values against queries or cotangents */
void tow__unit_scores(const tow__unit_block *w, const tow__heads *keys, const tow__heads *queries, f32 *p);
/* halves [keys, 64] = p, rounded */
void tow__unit_narrow(int64_t keys, const f32 *p, uint16_t *halves);
/* c [64, width] (+)= halves' x, keys or values x */
void tow__unit_sum_over_keys(const tow__unit_block *w, const tow__heads *x, f32 *c, int64_t ldc, bool add);
/* The rows of the block of c [S, width] += halves x, queries or cotangents x */
void tow__unit_sum_over_queries(const tow__unit_block *w, const tow__heads *x, f32 *c, int64_t ldc);
size_t tow__unit_scratch(int64_t block, int64_t width);

/* The functions that compute in one float type. memory: 64-byte-aligned, as large as .bytes says. */
typedef struct tow__attention_code {
    size_t (*bytes)(const tow__attention_job *a);
    /* Strips from .. to of one head. */
    void (*forward)(const tow__attention_job *a, int64_t b, int64_t h, int64_t from, int64_t to, void *memory);
    /* All strips of one group of keys, in order: sums of dk and dv run over them. */
    void (*backward)(const tow__attention_job *a, int64_t b, int64_t g, void *memory);
} tow__attention_code;

extern const tow__attention_code tow__attention_f64;
/* f32 for one instruction set; entry 0 is the best that this CPU has. NULL behind the last one it has. */
const tow__attention_code *tow__attention_f32(int choice);

#endif

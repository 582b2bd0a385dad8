/* Attention by strips of 64 queries: the logits of a strip against all keys that it can see are made, exponentiated
 * with their exact maximum and multiplied with the values. Of T x S numbers only a strip exists; the output and the
 * log-sum-exp of each row are kept. The backward pass makes the same strips again.
 *
 *   q [B, T, H, D], k [B, S, G, D], v [B, S, G, E], out [B, T, H, E], lse [B, H, T]; head h reads group h / (H/G)
 *
 *   a strip of scratch memory, one per thread:
 *   | q: 64 x D, scaled | p: 64 x S | backward: ct: 64 x E | out: 64 x E | dp: 64 x S |
 *
 * Forward strips are independent. Backward, the strips of one (batch, group) add to the same dk and dv, so one thread
 * runs them in order. A row that sees no key at all spreads over all keys; its strip takes all keys for that. */
#include <float.h>

#include "src/kernels/gemm.h"
#include "src/kernels/rows.h"
#include "src/kernels/tables.h"

enum {
    STRIP = 64
};

/* An operand [B, T or S, H or G, width]. */
typedef struct heads_view {
    const char *data;
    int64_t width, batch, row, head, column; /* width; strides */
} heads_view;

typedef struct attention {
    tow_dtype dtype;
    size_t size;
    bool causal;
    double scale;
    int64_t batches, t, s, heads, groups, strips; /* strips per head */
    heads_view q, k, v, o, ct;
    tow__buffer lse;
    const tow__buffer *mask; /* bool [B|1, H|1, T|1, S|1], or NULL */
    void *out, *lse_out, *dq, *dk, *dv;
    char *scratch;
    size_t scratch_bytes; /* per thread */
} attention;

typedef struct strip {
    int64_t b, h, g, first, rows, keys; /* queries first .. first + rows; keys 0 .. keys */
    void *q, *p, *ct, *rows_out, *dp;
} strip;

typedef struct matrix {
    const void *data;
    int64_t row, column;
} matrix;

typedef struct row_mask {
    const b8 *data;
    int64_t stride;
} row_mask;

static heads_view view_heads(const tow__buffer *x)
{
    return (heads_view){x->data, x->dims[3], x->strides[0], x->strides[1], x->strides[2], x->strides[3]};
}

/* ---- what a row can see ----------------------------------------------------------------------------------------- */

/* Keys that causality leaves query i of the strip: j <= i + S - T. At most s->keys. */
static int64_t causal_limit(const attention *a, int64_t query)
{
    return a->causal ? tow__max(0, tow__min(a->s, query + a->s - a->t + 1)) : a->s;
}
static int64_t visible_keys(const attention *a, const strip *s, int64_t i) { return causal_limit(a, s->first + i); }

static row_mask mask_row(const attention *a, const strip *s, int64_t i)
{
    const tow__buffer *m = a->mask;
    if (m == NULL) return (row_mask){NULL, 0};
    int64_t at[3] = {s->b, s->h, s->first + i}, offset = 0;
    for (int d = 0; d < 3; d++) offset += m->dims[d] > 1 ? at[d] * m->strides[d] : 0;
    return (row_mask){(const b8 *)m->data + offset, m->dims[3] > 1 ? m->strides[3] : 0};
}

/* Nothing is visible to query i. */
static bool is_blind(const attention *a, const strip *s, int64_t i)
{
    int64_t limit = visible_keys(a, s, i);
    row_mask mask = mask_row(a, s, i);
    if (mask.data == NULL) return limit == 0;
    for (int64_t j = 0; j < limit; j++)
        if (mask.data[j * mask.stride]) return false;
    return true;
}

static strip strip_of(const attention *a, int64_t b, int64_t h, int64_t index)
{
    strip s = {.b = b, .h = h, .g = h / (a->heads / a->groups), .first = index * STRIP};
    s.rows = tow__min(STRIP, a->t - s.first);
    s.keys = visible_keys(a, &s, s.rows - 1);
    for (int64_t i = 0; i < s.rows && s.keys < a->s; i++)
        if (is_blind(a, &s, i)) s.keys = a->s;
    return s;
}

/* ---- matrices --------------------------------------------------------------------------------------------------- */

static void product(const attention *a, int64_t m, int64_t n, int64_t k, matrix x, matrix y, void *c, int64_t ldc,
                    bool add)
{
    tow__gemm g = {.dtype = a->dtype,
                   .accumulate = add,
                   .threads = 1,
                   .m = m,
                   .n = n,
                   .k = k,
                   .a = x.data,
                   .a_row = x.row,
                   .a_column = x.column,
                   .b = y.data,
                   .b_row = y.row,
                   .b_column = y.column,
                   .c = c,
                   .ldc = ldc};
    tow__gemm_run(&g, NULL);
}

static matrix matrix_of(const void *data, int64_t width) { return (matrix){data, width, 1}; }
static matrix transposed(const void *data, int64_t width) { return (matrix){data, 1, width}; }

static const char *head_of(const heads_view *x, const strip *s, int64_t head, int64_t row, tow_dtype dtype)
{
    return x->data + (s->b * x->batch + head * x->head + row * x->row) * (int64_t)tow__element_bytes(dtype);
}

/* ---- scratch memory --------------------------------------------------------------------------------------------- */

static size_t block_bytes(int64_t width, size_t size) { return ((size_t)(STRIP * width) * size + 63) / 64 * 64; }

static void place(const attention *a, strip *s)
{
    char *memory = a->scratch + (size_t)tow__team_thread() * a->scratch_bytes;
    s->q = memory;
    s->p = memory += block_bytes(a->q.width, a->size);
    s->ct = memory += block_bytes(a->s, a->size);
    if (a->ct.data == NULL) return;
    s->rows_out = memory += block_bytes(a->v.width, a->size);
    s->dp = memory + block_bytes(a->v.width, a->size);
}

static size_t strip_bytes(const tow__kernel_call *call, bool backward)
{
    size_t size = tow__element_bytes(call->in[0].dtype), logits = block_bytes(call->in[1].dims[1], size);
    size_t values = block_bytes(call->in[2].dims[3], size);
    return block_bytes(call->in[0].dims[3], size) + logits + (backward ? 2 * values + logits : 0);
}

static size_t scratch_forward(const tow__kernel_call *call)
{
    return (size_t)tow__threads(call) * strip_bytes(call, false);
}
static size_t scratch_backward(const tow__kernel_call *call)
{
    return (size_t)tow__threads(call) * strip_bytes(call, true);
}

/* ---- both float types ------------------------------------------------------------------------------------------- */

/* The strip's rows of x, contiguous [rows, width]. */
static void read_rows_as(const attention *a, const heads_view *x, const strip *s, void *to)
{
    tow__strided from = tow__strided_of((char *)(uintptr_t)head_of(x, s, s->h, s->first, a->dtype), a->dtype, 2,
                                        (const int64_t[]){s->rows, x->width}, (const int64_t[]){x->row, x->column});
    tow__strided_read(&from, 0, from.count, to);
}
#define read_rows(x, s, to) read_rows_as(a, x, s, to)
/* Keys or values of the strip's group: [keys, width], and its transpose. */
#define keys_of(x, s)         ((matrix){head_of(x, s, (s)->g, 0, a->dtype), (x)->row, (x)->column})
#define keys_transposed(x, s) ((matrix){head_of(x, s, (s)->g, 0, a->dtype), (x)->column, (x)->row})

static int64_t lse_offset(const attention *a, const strip *s, int64_t i)
{
    return s->b * a->lse.strides[0] + s->h * a->lse.strides[1] + (s->first + i) * a->lse.strides[2];
}

#define REAL       f32
#define NAME(name) name##_f32
#define LOWEST     (-FLT_MAX)
#include "src/kernels/attention.inc"
#undef REAL
#undef NAME
#undef LOWEST

#define REAL       f64
#define NAME(name) name##_f64
#define LOWEST     (-DBL_MAX)
#include "src/kernels/attention.inc"
#undef REAL
#undef NAME
#undef LOWEST

/* ---- forward and backward --------------------------------------------------------------------------------------- */

/* Fills what both directions share from (q, k, v, ...). */
static attention begin(const tow__kernel_call *call)
{
    const tow__buffer *q = &call->in[0], *k = &call->in[1];
    attention a = {.dtype = q->dtype,
                   .size = tow__element_bytes(q->dtype),
                   .q = view_heads(q),
                   .k = view_heads(k),
                   .v = view_heads(&call->in[2]),
                   .batches = q->dims[0],
                   .t = q->dims[1],
                   .heads = q->dims[2],
                   .s = k->dims[1],
                   .groups = k->dims[2],
                   .scratch = call->scratch};
    a.strips = tow__ceil_div(a.t, STRIP);
    return a;
}

static void forward_block(void *user, int64_t block)
{
    const attention *a = user;
    strip s = strip_of(a, block / a->strips / a->heads, block / a->strips % a->heads, block % a->strips);
    place(a, &s);
    if (a->dtype == TOW_F32)
        forward_strip_f32(a, &s);
    else
        forward_strip_f64(a, &s);
}

static void run_attention(const tow__kernel_call *call)
{
    const tow__attention_params *p = call->params;
    attention a = begin(call);
    a.causal = p->causal;
    a.scale = p->scale;
    a.mask = call->n_in == 4 ? &call->in[3] : NULL;
    a.out = call->out[0].data;
    a.lse_out = call->out[1].data;
    a.scratch_bytes = strip_bytes(call, false);
    tow__team_run(call->team, a.batches * a.heads * a.strips, forward_block, &a);
}

/* Zeros [S, width] of one (batch, group) of dk or dv. */
static void clear_group(const attention *a, void *to, int64_t width, int64_t b, int64_t g)
{
    char *rows = to;
    if (to == NULL) return;
    for (int64_t j = 0; j < a->s; j++)
        memset(rows + (size_t)(((b * a->s + j) * a->groups + g) * width) * a->size, 0, (size_t)width * a->size);
}

static void backward_block(void *user, int64_t block)
{
    const attention *a = user;
    int64_t b = block / a->groups, g = block % a->groups, repeat = a->heads / a->groups;
    clear_group(a, a->dk, a->q.width, b, g);
    clear_group(a, a->dv, a->v.width, b, g);
    for (int64_t h = g * repeat; h < (g + 1) * repeat; h++) {
        for (int64_t i = 0; i < a->strips; i++) {
            strip s = strip_of(a, b, h, i);
            place(a, &s);
            if (a->dtype == TOW_F32)
                backward_strip_f32(a, &s);
            else
                backward_strip_f64(a, &s);
        }
    }
}

/* (q, k, v, out, lse [, mask], ct) -> those of dq, dk, dv that wrt names */
static void run_attention_vjp(const tow__kernel_call *call)
{
    const tow__attention_ad_params *p = call->params;
    attention a = begin(call);
    size_t next = 0;
    a.causal = p->causal;
    a.scale = p->scale;
    a.mask = p->masked ? &call->in[5] : NULL;
    a.o = view_heads(&call->in[3]);
    a.lse = call->in[4];
    a.ct = view_heads(&call->in[call->n_in - 1]);
    a.scratch_bytes = strip_bytes(call, true);
    if (p->wrt & 1) a.dq = call->out[next++].data;
    if (p->wrt & 2) a.dk = call->out[next++].data;
    if (p->wrt & 4) a.dv = call->out[next].data;
    tow__team_run(call->team, a.batches * a.groups, backward_block, &a);
}

static const tow__kernel kernels[] = {
    {"attention", TOW__FLOATS, 0, run_attention, scratch_forward, "strips"},
    {"attention_vjp", TOW__FLOATS, 0, run_attention_vjp, scratch_backward, "strips"},
};
const tow__kernel_table tow__kernels_attention = {kernels, sizeof kernels / sizeof kernels[0]};

/* Attention by strips of 64 queries: the logits of a strip against the keys that it sees are made, exponentiated with
 * their maximum and multiplied with the values. Of T x S numbers only a strip exists; the output and the log-sum-exp of
 * each row are kept. The backward pass makes the same strips again.
 *
 * Forward, a block of work is some strips of a head. Backward, the strips of one (batch, group) add to the same dk and
 * dv, so one thread runs them in order. */
#include "src/kernels/attention/attention.h"

#include <stdio.h>

#include "src/base/params.h"
#include "src/kernels/tables.h"

enum {
    PART = 8 /* strips of a head that one block of forward work has */
};

static tow__heads heads_of(const tow__buffer *x)
{
    return (tow__heads){x->data,       x->dtype,      x->dims[3] * tow_dtype_numbers(x->dtype),
                        x->strides[0], x->strides[1], x->strides[2],
                        x->strides[3]};
}

const char *tow__head_row(const tow__heads *x, int64_t b, int64_t head, int64_t row)
{
    return x->data + (b * x->batch + head * x->head + row * x->row) * (int64_t)tow__element_bytes(x->dtype);
}

/* ---- what a query sees ------------------------------------------------------------------------------------------ */

/* Keys from[i] .. limit[i] that causality and the window leave to query i of the strip, whose position among the keys
 * is given. */
static void see_keys(const tow__attention_job *a, tow__strip *s, int64_t i, int64_t position)
{
    int64_t end = a->causal ? position + 1 : a->s, begin = 0;
    if (a->window > 0) {
        begin = position - a->window + 1;
        end = tow__min(end, position + a->window);
    }
    s->limit[i] = tow__max(0, tow__min(a->s, end));
    s->from[i] = tow__max(0, tow__min(s->limit[i], begin));
}

/* The position of query 0 of sequence b among the keys. */
static int64_t offset_of(const tow__attention_job *a, int64_t b)
{
    if (!a->offset) return a->s - a->t;
    return ((const int32_t *)a->offset->data)[a->offset->rank > 0 ? b * a->offset->strides[0] : 0];
}

/* Index of the first element for query i in what broadcasts to [B, H, T, S]. */
static int64_t row_offset(const tow__buffer *x, const tow__strip *s, int64_t i)
{
    int64_t at[3] = {s->b, s->h, s->first + i}, offset = 0;
    for (int d = 0; d < 3; d++) offset += x->dims[d] > 1 ? at[d] * x->strides[d] : 0;
    return offset;
}

static int64_t column_stride(const tow__buffer *x) { return x->dims[3] > 1 ? x->strides[3] : 0; }

tow__mask_row tow__strip_mask(const tow__attention_job *a, const tow__strip *s, int64_t i)
{
    if (!a->mask) return (tow__mask_row){NULL, 0};
    return (tow__mask_row){(const b8 *)a->mask->data + row_offset(a->mask, s, i), column_stride(a->mask)};
}

tow__bias_row tow__strip_bias(const tow__attention_job *a, const tow__strip *s, int64_t i)
{
    const tow__buffer *x = a->bias;
    if (!x) return (tow__bias_row){NULL, 0};
    return (tow__bias_row){(const char *)x->data + row_offset(x, s, i) * (int64_t)tow__element_bytes(x->dtype),
                           column_stride(x)};
}

static bool is_blind(const tow__attention_job *a, const tow__strip *s, int64_t i)
{
    tow__mask_row mask = tow__strip_mask(a, s, i);
    if (!mask.data) return s->limit[i] == s->from[i];
    for (int64_t j = s->from[i]; j < s->limit[i]; j++)
        if (mask.data[j * mask.stride]) return false;
    return true;
}

tow__strip tow__strip_of(const tow__attention_job *a, int64_t b, int64_t h, int64_t index)
{
    tow__strip s = {.b = b, .h = h, .g = h / (a->heads / a->groups), .first = index * TOW__STRIP, .start = a->s};
    int64_t offset = offset_of(a, b);
    s.rows = tow__min(TOW__STRIP, a->t - s.first);
    for (int64_t i = 0; i < s.rows; i++) {
        see_keys(a, &s, i, s.first + i + offset);
        s.blind[i] = is_blind(a, &s, i);
        s.any_blind |= s.blind[i];
        if (s.blind[i]) {
            s.from[i] = 0;
            s.limit[i] = a->s;
        }
        s.start = tow__min(s.start, s.from[i]);
        s.keys = tow__max(s.keys, s.limit[i]);
    }
    for (int64_t i = s.rows; i < TOW__STRIP; i++) {
        s.from[i] = s.start;
        s.limit[i] = s.keys;
    }
    return s;
}

/* ---- forward and backward --------------------------------------------------------------------------------------- */

typedef struct work {
    tow__attention_job job;
    const tow__attention_code *code;
    char *scratch;
    size_t bytes; /* of scratch per thread */
} work;

/* Parameters and optional operands: bool is a mask, i32 an offset, another type the bias. */
static void read_forward(const tow__kernel_call *call, tow__attention_job *a)
{
    const tow__attention_params *p = call->params;
    a->causal = p->causal, a->scale = p->scale, a->cap = p->cap, a->window = p->window;
    for (uint32_t i = 3; i < call->n_in; i++) {
        const tow__buffer *x = &call->in[i];
        *(x->dtype == TOW_BOOL ? &a->mask : x->dtype == TOW_I32 ? &a->offset : &a->bias) = x;
    }
}

static void read_backward(const tow__kernel_call *call, tow__attention_job *a)
{
    const tow__attention_ad_params *p = call->params;
    const tow__buffer *next = &call->in[5];
    a->causal = p->causal, a->scale = p->scale, a->cap = p->cap, a->window = p->window;
    a->mask = p->masked ? next++ : NULL;
    a->bias = p->biased ? next++ : NULL;
    a->offset = p->shifted ? next++ : NULL;
}

/* Fills what both directions share from (q, k, v, ...). */
/* Reads what the first three operands say, of either pass. */
static tow__attention_job shapes_of(const tow__kernel_call *call)
{
    const tow__buffer *q = &call->in[0], *k = &call->in[1];
    tow__attention_job job = {.dtype = q->dtype == TOW_F64 ? TOW_F64 : TOW_F32,
                              .result = q->dtype,
                              .q = heads_of(q),
                              .k = heads_of(k),
                              .v = heads_of(&call->in[2]),
                              .batches = q->dims[0],
                              .t = q->dims[1],
                              .heads = q->dims[2],
                              .s = k->dims[1],
                              .groups = k->dims[2],
                              .strips = tow__ceil_div(q->dims[1], TOW__STRIP),
                              .products = call->team != NULL ? call->team->products : NULL};
    job.unit = tow__attention_unit(&job);
    return job;
}

static work begin(const tow__kernel_call *call, bool backward)
{
    tow__attention_job job = shapes_of(call);
    job.backward = backward;
    if (backward)
        read_backward(call, &job);
    else
        read_forward(call, &job);
    work w = {.job = job, .scratch = call->scratch};
    w.code = job.dtype == TOW_F32 ? tow__attention_f32(0) : &tow__attention_f64;
    w.bytes = w.code->bytes(&w.job);
    return w;
}

static size_t all_threads(const tow__kernel_call *call, const work *w) { return w->bytes * (size_t)tow__threads(call); }
static size_t scratch_forward(const tow__kernel_call *call)
{
    work w = begin(call, false);
    return all_threads(call, &w);
}
static size_t scratch_backward(const tow__kernel_call *call)
{
    work w = begin(call, true);
    return all_threads(call, &w);
}

static void *scratch_of_thread(const work *w) { return tow__scratch_of_thread(w->scratch, w->bytes); }

static void forward_block(void *user, int64_t block)
{
    const work *w = user;
    const tow__attention_job *a = &w->job;
    int64_t parts = tow__ceil_div(a->strips, PART), head = block / parts, from = block % parts * PART;
    w->code->forward(a, head / a->heads, head % a->heads, from, tow__min(a->strips, from + PART), scratch_of_thread(w));
}

static void run_attention(const tow__kernel_call *call)
{
    work w = begin(call, false);
    tow__attention_job *a = &w.job;
    a->out = call->out[0].data;
    a->lse_out = call->out[1].data;
    tow__team_run(call->team, a->batches * a->heads * tow__ceil_div(a->strips, PART), forward_block, &w);
}

static void backward_block(void *user, int64_t block)
{
    const work *w = user;
    w->code->backward(&w->job, block / w->job.groups, block % w->job.groups, scratch_of_thread(w));
}

/* (q, k, v, out, lse [, mask] [, bias] [, offset], ct) -> those of dq, dk, dv that wrt names */
static void run_attention_vjp(const tow__kernel_call *call)
{
    const tow__attention_ad_params *p = call->params;
    work w = begin(call, true);
    tow__attention_job *a = &w.job;
    size_t next = 0;
    a->o = heads_of(&call->in[3]);
    a->lse = call->in[4];
    a->ct = heads_of(&call->in[call->n_in - 1]);
    if (p->wrt & 1) a->dq = call->out[next++].data;
    if (p->wrt & 2) a->dk = call->out[next++].data;
    if (p->wrt & 4) a->dv = call->out[next].data;
    tow__team_run(call->team, a->batches * a->groups, backward_block, &w);
}

static size_t reason(const tow__kernel_call *call, char *text, size_t size)
{
    const tow__attention_job job = shapes_of(call); /* reports have no other operands */
    const char *products = job.unit != NULL                ? job.unit->text
                           : call->out[0].dtype == TOW_F64 ? "products by the rule"
                                                           : "own kernel";
    const int length =
        snprintf(text, size, "%s: both products of a strip and the softmax between them stay in cache", products);
    return length < 0 ? 0 : (size_t)length;
}

static const tow__kernel kernels[] = {
    {"attention", TOW__FLOATS, run_attention, scratch_forward, "strips", .reason = reason},
    {"attention_vjp", TOW__FLOATS, run_attention_vjp, scratch_backward, "strips", .reason = reason},
};
const tow__kernel_table tow__kernels_attention = {kernels, sizeof kernels / sizeof kernels[0]};

/* Attention in double precision: plain loops around the products of gemm.h. It serves tests and references, so it is
 * short rather than fast. */
#include "src/kernels/attention/attention.h"
#include "src/kernels/norms/rows.h"
#include "src/kernels/products/gemm.h"

/* | q: 64 x D, scaled | p: 64 x S | backward: ct: 64 x E | out: 64 x E | dp: 64 x S | slope of the cap: 64 x S |
 * Columns count keys from the strip's first one. */
typedef struct workspace {
    f64 *q, *p, *ct, *out, *dp, *slope;
} workspace;

static f64 *part(char *memory, size_t *used, int64_t count)
{
    f64 *at = !memory ? NULL : (f64 *)(void *)(memory + *used);
    *used += ((size_t)count * sizeof(f64) + 63) / 64 * 64;
    return at;
}

static size_t divide_memory(const tow__attention_job *a, char *memory, workspace *w)
{
    size_t n = 0;
    *w = (workspace){.q = part(memory, &n, TOW__STRIP * a->q.width), .p = part(memory, &n, TOW__STRIP * a->s)};
    if (!a->backward) return n;
    w->ct = part(memory, &n, TOW__STRIP * a->v.width);
    w->out = part(memory, &n, TOW__STRIP * a->v.width);
    w->dp = part(memory, &n, TOW__STRIP * a->s);
    if (a->cap > 0) w->slope = part(memory, &n, TOW__STRIP * a->s);
    return n;
}

static size_t workspace_bytes(const tow__attention_job *a)
{
    workspace w;
    return divide_memory(a, NULL, &w);
}

static void product(const tow__attention_job *a, int64_t m, int64_t n, int64_t k, tow__gemm_operand x,
                    tow__gemm_operand y, f64 *c, int64_t ldc, bool add)
{
    tow__gemm g = tow__gemm_of(TOW_F64, m, n, k, x, y, a->products);
    g.accumulate = add;
    g.c = c, g.ldc = ldc;
    tow__gemm_run(&g, NULL);
}

static tow__gemm_operand matrix_of(const f64 *data, int64_t width) { return (tow__gemm_operand){data, width, 1, 0}; }

/* Keys or values of the strip's group, from its first key on. */
static tow__gemm_operand of_group(const tow__heads *x, const tow__strip *s)
{
    return (tow__gemm_operand){tow__head_row(x, s->b, s->g, s->start), x->row, x->column, 0};
}
static int64_t keys_of(const tow__strip *s) { return s->keys - s->start; }

/* The strip's rows of x times factor, contiguous [rows, width]. */
static void read_rows(const tow__heads *x, const tow__strip *s, f64 factor, f64 *to)
{
    const f64 *from = (const f64 *)(const void *)tow__head_row(x, s->b, s->h, s->first);
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t d = 0; d < x->width; d++) *to++ = from[i * x->row + d * x->column] * factor;
}

static f64 *result_row(const tow__attention_job *a, const tow__strip *s, void *data, int64_t i, int64_t width)
{
    return (f64 *)data + ((s->b * a->t + s->first + i) * a->heads + s->h) * width;
}
static f64 *result_group(const tow__attention_job *a, const tow__strip *s, void *data, int64_t width)
{
    return (f64 *)data + ((s->b * a->s + s->start) * a->groups + s->g) * width;
}

/* Row i of the products becomes logits: cap, bias, mask. */
static void finish_logits(const tow__attention_job *a, const tow__strip *s, int64_t i, f64 *p, f64 *slope)
{
    tow__mask_row mask = tow__strip_mask(a, s, i);
    tow__bias_row bias = tow__strip_bias(a, s, i);
    const f64 *add = (const f64 *)(const void *)bias.data;
    for (int64_t j = s->start; j < s->limit[i]; j++, p++) {
        if (a->cap > 0) {
            f64 t = tanh(*p / a->cap);
            if (slope) *slope++ = 1 - t * t;
            *p = a->cap * t;
        }
        if (add) *p += add[j * bias.stride];
        if (mask.data && !mask.data[j * mask.stride]) *p = -DBL_MAX;
    }
}

/* Logits [rows, keys]; the scaled queries stay in w->q. */
static void logits_of(const tow__attention_job *a, const tow__strip *s, const workspace *w)
{
    read_rows(&a->q, s, a->scale, w->q);
    int64_t keys = keys_of(s);
    product(a, s->rows, keys, a->q.width, matrix_of(w->q, a->q.width), tow__gemm_transposed(of_group(&a->k, s)), w->p,
            keys, false);
    for (int64_t i = 0; i < s->rows; i++)
        finish_logits(a, s, i, w->p + i * keys, w->slope ? w->slope + i * keys : NULL);
}

/* Row i of the logits becomes exp(logit - shift), 0 for keys that causality and the window hide. */
static void exponentials(const tow__strip *s, int64_t i, f64 *p, f64 shift)
{
    for (int64_t j = s->start; j < s->keys; j++, p++) *p = j >= s->from[i] && j < s->limit[i] ? exp(*p - shift) : 0;
}

static void forward_strip(const tow__attention_job *a, const tow__strip *s, const workspace *w)
{
    int64_t keys = keys_of(s);
    logits_of(a, s, w);
    f64 sums[TOW__STRIP], *lse = (f64 *)a->lse_out + (s->b * a->heads + s->h) * a->t + s->first;
    for (int64_t i = 0; i < s->rows; i++) {
        f64 *p = w->p + i * keys, *first = p + s->from[i] - s->start;
        f64 top = row_max_f64(s->limit[i] - s->from[i], first);
        if (s->blind[i]) {
            for (int64_t j = 0; j < keys; j++) p[j] = 1;
        } else {
            exponentials(s, i, p, top);
        }
        sums[i] = row_sum_f64(s->limit[i] - s->from[i], first);
        lse[i] = s->blind[i] ? -DBL_MAX : log(sums[i]) + top;
    }
    product(a, s->rows, a->v.width, keys, matrix_of(w->p, keys), of_group(&a->v, s),
            result_row(a, s, a->out, 0, a->v.width), a->heads * a->v.width, false);
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t e = 0; e < a->v.width; e++) result_row(a, s, a->out, i, a->v.width)[e] /= sums[i];
}

static void forward(const tow__attention_job *a, int64_t b, int64_t h, int64_t from, int64_t to, void *memory)
{
    workspace w;
    divide_memory(a, memory, &w);
    for (int64_t i = from; i < to && !tow__cancelled(); i++) {
        tow__strip s = tow__strip_of(a, b, h, i);
        forward_strip(a, &s, &w);
    }
}

/* p and, with the cotangents of the outputs, dl = slope p (ct v' - sum(ct out)) in w->dp */
static void through_softmax(const tow__attention_job *a, const tow__strip *s, const workspace *w)
{
    int64_t width = a->v.width, keys = keys_of(s);
    product(a, s->rows, keys, width, matrix_of(w->ct, width), tow__gemm_transposed(of_group(&a->v, s)), w->dp, keys,
            false);
    for (int64_t i = 0; i < s->rows; i++) {
        f64 *p = w->p + i * keys, *dp = w->dp + i * keys, delta = 0;
        for (int64_t e = 0; e < width; e++) delta += w->ct[i * width + e] * w->out[i * width + e];
        for (int64_t j = 0; j < keys; j++) dp[j] = s->blind[i] ? 0 : p[j] * (dp[j] - delta);
        for (int64_t j = s->from[i] - s->start; w->slope && j < s->limit[i] - s->start; j++)
            dp[j] *= w->slope[i * keys + j];
    }
}

/* dq = scale dl k;  dk += dl' (scale q);  dv += p' ct */
static void backward_strip(const tow__attention_job *a, const tow__strip *s, const workspace *w)
{
    const f64 *lse = a->lse.data;
    int64_t d = a->q.width, e = a->v.width, keys = keys_of(s);
    logits_of(a, s, w);
    lse += s->b * a->lse.strides[0] + s->h * a->lse.strides[1] + s->first * a->lse.strides[2];
    for (int64_t i = 0; i < s->rows; i++) {
        f64 *p = w->p + i * keys;
        exponentials(s, i, p, lse[i * a->lse.strides[2]]);
        for (int64_t j = 0; s->blind[i] && j < keys; j++) p[j] = 1 / (f64)a->s;
    }
    read_rows(&a->ct, s, 1, w->ct);
    read_rows(&a->o, s, 1, w->out);
    if (a->dv)
        product(a, keys, e, s->rows, tow__gemm_transposed(matrix_of(w->p, keys)), matrix_of(w->ct, e),
                result_group(a, s, a->dv, e), a->groups * e, true);
    if (!a->dq && !a->dk) return;
    through_softmax(a, s, w);
    if (a->dk)
        product(a, keys, d, s->rows, tow__gemm_transposed(matrix_of(w->dp, keys)), matrix_of(w->q, d),
                result_group(a, s, a->dk, d), a->groups * d, true);
    if (!a->dq) return;
    product(a, s->rows, d, keys, matrix_of(w->dp, keys), of_group(&a->k, s), result_row(a, s, a->dq, 0, d),
            a->heads * d, false);
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < d; j++) result_row(a, s, a->dq, i, d)[j] *= a->scale;
}

/* Zeros [S, width] of one (batch, group) of dk or dv. */
static void clear_group(const tow__attention_job *a, void *to, int64_t width, int64_t b, int64_t g)
{
    for (int64_t j = 0; to && j < a->s; j++)
        memset((f64 *)to + ((b * a->s + j) * a->groups + g) * width, 0, (size_t)width * sizeof(f64));
}

static void backward(const tow__attention_job *a, int64_t b, int64_t g, void *memory)
{
    workspace w;
    int64_t repeat = a->heads / a->groups;
    divide_memory(a, memory, &w);
    clear_group(a, a->dk, a->q.width, b, g);
    clear_group(a, a->dv, a->v.width, b, g);
    for (int64_t h = g * repeat; h < (g + 1) * repeat; h++) {
        for (int64_t i = 0; i < a->strips && !tow__cancelled(); i++) {
            tow__strip s = tow__strip_of(a, b, h, i);
            backward_strip(a, &s, &w);
        }
    }
}

const tow__attention_code tow__attention_f64 = {workspace_bytes, forward, backward};

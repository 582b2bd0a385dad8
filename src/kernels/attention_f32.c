/* Attention in single precision: what does not depend on the instruction set, and the choice of one.
 *
 * Memory of a strip, one per thread (64 = queries, C = most keys of a cut; rows of D and E are rounded up, see spaced):
 *
 *   both      | qt: D x 64 | q: 64 x D | p: C x 64 | k: S x D | v: S x E |
 *   forward   | out: 64 x E |
 *   backward  | ctt: E x 64 | ct: 64 x E | o: 64 x E | dp: C x 64 | dq: 64 x D | dk: S x D | dv: S x E |
 *
 * Keys and values of a head are copied there once: in place, their rows lie far apart. out, dq, dk and dv are made in
 * the results and have no memory here if the rows of those are whole vectors. */
#include "src/kernels/attention.h"
#include "src/kernels/attention_lanes.h"

enum {
    QUERIES = TOW__STRIP,
    /* Keys of a strip that are worked on together. Forward, sums are rescaled between cuts, so bits depend on them;
     * backward, they do not. */
    CUT = 2048,
    BACKWARD_CUT = 64,
    AHEAD = 12 /* rows */
};

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Rows of `width` numbers and zeros up to whole vectors, ld apart. */
typedef struct matrix {
    const f32 *data;
    int64_t ld, width;
} matrix;

/* Rows of whole vectors in which products are summed, ld apart. */
typedef struct sums {
    f32 *data;
    int64_t ld;
} sums;

/* A cut of a strip: keys first .. first + keys. Limits, and what else counts keys, are relative to `first`. */
typedef struct view {
    int64_t first, keys, rows, vectors; /* rows: queries; vectors of 16 of them */
    int64_t limit[QUERIES];
    int64_t low[QUERIES / LANES], high[QUERIES / LANES]; /* of a vector's limits */
} view;

typedef struct workspace {
    f32 *qt, *q, *p, *out, *k, *v, *ctt, *ct, *o, *dp, *dq, *dk, *dv;
    int64_t written; /* keys that have begun in dk and dv */
} workspace;

static int64_t padded(int64_t width) { return tow__ceil_div(width, LANES) * LANES; }

/* Stride of rows: an odd number of cache lines, so that a few columns of many rows lie in different sets of a cache. */
static int64_t spaced(int64_t width) { return (tow__ceil_div(width, LANES) | 1) * LANES; }

/* Equal cuts of at most `most` keys. */
static int64_t cut_keys(int64_t keys, int64_t most)
{
    return tow__ceil_div(keys, tow__max(1, tow__ceil_div(keys, most)));
}

static view view_of(const tow__strip *s, int64_t first, int64_t keys)
{
    view w = {.first = first, .keys = keys, .rows = s->rows, .vectors = tow__ceil_div(s->rows, LANES)};
    for (int64_t i = 0; i < QUERIES; i++) w.limit[i] = tow__max(0, tow__min(keys, s->limit[i] - first));
    for (int64_t v = 0; v < w.vectors; v++) {
        w.low[v] = keys;
        w.high[v] = 0;
        for (int64_t i = v * LANES; i < (v + 1) * LANES; i++) {
            w.low[v] = tow__min(w.low[v], w.limit[i]);
            w.high[v] = tow__max(w.high[v], w.limit[i]);
        }
    }
    return w;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* Whether sums can be made in the rows of a result. */
static bool in_place(int64_t width) { return width % LANES == 0; }

static bool usable(const tow__heads *x) { return x->column == 1 && x->width % LANES == 0; }

/* The next `count` floats of the memory, in whole cache lines. */
static f32 *part(char *memory, size_t *used, int64_t count)
{
    f32 *at = memory == NULL ? NULL : (f32 *)(void *)(memory + *used);
    *used += ((size_t)count * sizeof(f32) + 63) / 64 * 64;
    return at;
}

static size_t divide_memory(const tow__attention_job *a, char *memory, workspace *w)
{
    size_t n = 0;
    int64_t d = a->q.width, e = a->v.width, cut = tow__min(a->s, a->backward ? BACKWARD_CUT : CUT);
    *w = (workspace){.qt = part(memory, &n, padded(d) * QUERIES),
                     .q = part(memory, &n, QUERIES * spaced(d)),
                     .p = part(memory, &n, cut * QUERIES),
                     .k = part(memory, &n, a->s * spaced(d)),
                     .v = part(memory, &n, a->s * spaced(e))};
    if (!a->backward) {
        w->out = part(memory, &n, in_place(e) ? 0 : QUERIES * spaced(e));
        return n;
    }
    w->ctt = part(memory, &n, padded(e) * QUERIES);
    w->ct = part(memory, &n, QUERIES * spaced(e));
    w->o = part(memory, &n, QUERIES * spaced(e));
    w->dp = part(memory, &n, cut * QUERIES);
    w->dq = part(memory, &n, in_place(d) ? 0 : QUERIES * spaced(d));
    w->dk = part(memory, &n, in_place(d) ? 0 : a->s * spaced(d));
    w->dv = part(memory, &n, in_place(e) ? 0 : a->s * spaced(e));
    return n;
}

static size_t workspace_bytes(const tow__attention_job *a)
{
    workspace w;
    return divide_memory(a, NULL, &w);
}

static workspace workspace_of(const tow__attention_job *a, void *memory)
{
    workspace w;
    divide_memory(a, memory, &w);
    return w;
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

/* to [rows, spaced(width)], zeros behind the width up to whole vectors */
static void copy_rows(const tow__heads *x, const f32 *from, int64_t rows, f32 *to)
{
    int64_t ld = spaced(x->width), end = padded(x->width);
    for (int64_t i = 0; i < rows; i++, from += x->row, to += ld) {
        for (int64_t d = 0; d < x->width; d++) to[d] = from[d * x->column];
        for (int64_t d = x->width; d < end; d++) to[d] = 0;
    }
}

static void read_lse(const tow__attention_job *a, const tow__strip *s, f32 *lse)
{
    const f32 *data = a->lse.data;
    for (int64_t i = 0; i < QUERIES; i++)
        lse[i] = i < s->rows
                     ? data[s->b * a->lse.strides[0] + s->h * a->lse.strides[1] + (s->first + i) * a->lse.strides[2]]
                     : 0;
}

/* ---- results ---------------------------------------------------------------------------------------------------- */

/* The rows of a strip in a result [B, T, H, width], if there is one. */
static sums strip_result(const tow__attention_job *a, const tow__strip *s, void *result, int64_t width)
{
    int64_t at = ((s->b * a->t + s->first) * a->heads + s->h) * width;
    return (sums){result == NULL ? NULL : (f32 *)result + at, a->heads * width};
}

/* The rows of a group in a result [B, S, G, width], if there is one. */
static sums group_result(const tow__attention_job *a, int64_t b, int64_t g, void *result, int64_t width)
{
    int64_t at = (b * a->s * a->groups + g) * width;
    return (sums){result == NULL ? NULL : (f32 *)result + at, a->groups * width};
}

/* Where the sums are made that become rows of a result. */
static sums sums_of(sums result, int64_t width, f32 *memory)
{
    return in_place(width) ? result : (sums){memory, spaced(width)};
}

/* Copies sums that were not made in the result. */
static void write_sums(int64_t rows, sums x, int64_t width, sums result)
{
    for (int64_t i = 0; i < rows && x.data != result.data; i++)
        memcpy(result.data + i * result.ld, x.data + i * x.ld, (size_t)width * sizeof(f32));
}

/* The same for the sums of a group, of which `written` keys have some; the others get zeros. */
static void write_group(int64_t keys, int64_t written, sums x, int64_t width, sums result)
{
    if (result.data == NULL) return;
    write_sums(written, x, width, result);
    for (int64_t j = written; j < keys; j++) memset(result.data + j * result.ld, 0, (size_t)width * sizeof(f32));
}

/* ---- masks ------------------------------------------------------------------------------------------------------ */

static void hide_masked(const tow__attention_job *a, const tow__strip *s, const view *w, f32 *p)
{
    for (int64_t i = 0; a->mask != NULL && i < s->rows; i++) {
        tow__mask_row mask = tow__strip_mask(a, s, i);
        mask.data += w->first * mask.stride;
        for (int64_t j = 0; j < w->limit[i]; j++)
            if (!mask.data[j * mask.stride]) p[j * QUERIES + i] = -FLT_MAX;
    }
}

/* What blind queries have in p. Their sums are not rescaled. */
static void see_all(const tow__strip *s, const view *w, f32 *p, f32 value, f32 *factor)
{
    for (int64_t i = 0; i < s->rows; i++) {
        if (!s->blind[i]) continue;
        for (int64_t j = 0; j < w->keys; j++) p[j * QUERIES + i] = value;
        if (factor != NULL) factor[i] = 1;
    }
}

/* ---- instruction sets ------------------------------------------------------------------------------------------- */

#define UP_TO_4(X)                                                                                                     \
    X(1)                                                                                                               \
    X(2)                                                                                                               \
    X(3)                                                                                                               \
    X(4)
#define UP_TO_6(X)                                                                                                     \
    UP_TO_4(X) X(5)                                                                                                    \
    X(6)
#define UP_TO_14(X)                                                                                                    \
    UP_TO_6(X) X(7)                                                                                                    \
    X(8)                                                                                                               \
    X(9)                                                                                                               \
    X(10)                                                                                                              \
    X(11)                                                                                                              \
    X(12)                                                                                                              \
    X(13)                                                                                                              \
    X(14)

#define SET(name) name##_plain
#define INLINE    TOW__INLINE
#define TARGET
#define ROWS         4
#define VECTORS      1
#define EACH_ROWS(X) UP_TO_4(X)
#include "src/kernels/attention_f32.inc"
#undef SET
#undef INLINE
#undef TARGET
#undef ROWS
#undef VECTORS
#undef EACH_ROWS

#ifdef __x86_64__
#define SET(name)    name##_avx2
#define INLINE       INLINE_AVX2
#define TARGET       TARGET_AVX2
#define ROWS         6
#define VECTORS      1
#define EACH_ROWS(X) UP_TO_6(X)
#include "src/kernels/attention_f32.inc"
#undef SET
#undef INLINE
#undef TARGET
#undef ROWS
#undef VECTORS
#undef EACH_ROWS

#define SET(name)    name##_avx512
#define INLINE       INLINE_AVX512
#define TARGET       TARGET_AVX512
#define ROWS         14
#define VECTORS      2
#define EACH_ROWS(X) UP_TO_14(X)
#include "src/kernels/attention_f32.inc"
#endif

const tow__attention_code *tow__attention_f32(int choice)
{
#ifdef __x86_64__
    bool avx512 = __builtin_cpu_supports("avx512f") != 0;
    bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    if (avx512 && choice-- == 0) return &code_avx512;
    if (avx2 && choice-- == 0) return &code_avx2;
#endif
    return choice == 0 ? &code_plain : NULL;
}

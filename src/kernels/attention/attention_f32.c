/* Attention in single precision: what does not depend on the instruction set, and the choice of one.
 *
 * Memory of a strip, one per thread (64 = queries, C = most keys of a cut forward, of a block backward; rows of D and E
 * are rounded up, see spaced):
 *
 *   both      | qt: D x 64 | q: 64 x D | p: C x 64 | k: S x D | v: S x E |
 *   forward   | out: 64 x E |
 *   backward  | ctt: E x 64 | ct: 64 x E | o: 64 x E | dp: C x 64 | dq: 64 x D | dk: S x D | dv: S x E |
 *             | slope of the cap: C x 64 |
 *
 * Keys and values of a head are copied there once: in place, their rows lie far apart. Forward, where keys are used
 * only once per strip, those of short sequences stay in place, and those that only a few queries read: one row of a
 * cache. Operands of 16 bits are widened while they are copied. Keys and values that are stored beside queries of f32,
 * or that one strip reads alone, are decoded at most 128 at a time. out, dq, dk and dv are made in the results and have
 * no memory here if those are f32 in rows of whole vectors; sums that become 16 bits are rounded when they are
 * complete. */
#include "src/kernels/attention/attention.h"
#include "src/kernels/attention/attention_lanes.h"

enum {
    QUERIES = TOW__STRIP,
    CUT = 2048,     /* keys of a strip that have a maximum in common: sums are rescaled between cuts */
    BLOCK = 64,     /* keys that are worked on together: their logits stay in the first cache */
    IN_PLACE = 256, /* most keys of a head that stay in place forward, where few strips read them */
    FEW = 16,       /* most queries of a head for which all keys and values stay in place */
    AHEAD = 12      /* rows */
};

#ifdef __clang__
#define UNROLL   _Pragma("clang loop unroll(full)")
#define UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define UNROLL   _Pragma("GCC unroll 16")
#define UNROLL_4 _Pragma("GCC unroll 4")
#endif

/* Rows of `width` numbers and zeros up to whole vectors, ld apart; data are those from row `from` on. */
typedef struct matrix {
    const f32 *data;
    int64_t ld, width, from;
} matrix;

/* Rows of whole vectors in which products are summed, ld apart. */
typedef struct sums {
    f32 *data;
    int64_t ld;
} sums;

/* Rows of a result, ld apart. */
typedef struct result_rows {
    char *data;
    tow_dtype dtype;
    int64_t width, ld;
} result_rows;

/* The queries of a strip: the highest logit, the sum of exponentials, and what sums are multiplied with. */
typedef struct softmax {
    f32 top[QUERIES], sum[QUERIES], factor[QUERIES];
} softmax;

/* Some keys of a strip: first .. first + keys. Numbers of keys are relative to `first`. */
typedef struct view {
    const tow__strip *strip;
    int64_t first, keys, rows, vectors;                  /* rows: queries; vectors of 16 of them */
    int64_t low[QUERIES / LANES], high[QUERIES / LANES]; /* of the ends of the keys that a vector's queries see */
    int64_t begin[QUERIES / LANES];                      /* the highest of where these keys begin */
} view;

typedef struct workspace {
    f32 *qt, *q, *p, *out, *k, *v, *ctt, *ct, *o, *dp, *dq, *dk, *dv, *slope;
    uint16_t *halves; /* of a unit, as its scratch memory */
    void *scratch;
    int64_t written; /* keys that have begun in dk and dv */
} workspace;

static bool whole_vectors(int64_t width) { return width % LANES == 0; }
static int64_t padded(int64_t width) { return tow__ceil_div(width, LANES) * LANES; }

/* Stride of rows: an odd number of cache lines, so that a few columns of many rows lie in different sets of a cache. */
static int64_t spaced(int64_t width) { return (tow__ceil_div(width, LANES) | 1) * LANES; }

/* Equal cuts of at most CUT keys. */
static int64_t cut_keys(int64_t keys) { return tow__ceil_div(keys, tow__max(1, tow__ceil_div(keys, CUT))); }

/* Equal blocks of at least BLOCK keys, if there are as many, and less than twice as many. */
static int64_t block_keys(int64_t keys) { return tow__ceil_div(keys, tow__max(1, keys / BLOCK)); }

/* ---- views ------------------------------------------------------------------------------------------------------ */

static int64_t within(int64_t keys, int64_t limit) { return tow__max(0, tow__min(keys, limit)); }

/* The number of the keys that query i sees, but for the mask. */
static int64_t seen(const view *w, int64_t i) { return within(w->keys, w->strip->limit[i] - w->first); }

/* The number of the keys before those that query i sees. */
static int64_t unseen(const view *w, int64_t i) { return within(w->keys, w->strip->from[i] - w->first); }

static tow__unit_block unit_block(const tow__attention_job *a, const view *w, const workspace *m)
{
    return (tow__unit_block){a->unit, w->strip, w->first, w->keys, m->halves, m->scratch};
}

/* All keys of a strip, counted from key 0. */
static view view_of(const tow__strip *s)
{
    view w = {.strip = s, .keys = s->keys, .rows = s->rows, .vectors = tow__ceil_div(s->rows, LANES)};
    for (int64_t v = 0; v < QUERIES / LANES; v++) {
        w.low[v] = w.high[v] = s->limit[v * LANES];
        for (int64_t i = v * LANES + 1; i < (v + 1) * LANES; i++) {
            w.low[v] = tow__min(w.low[v], s->limit[i]);
            w.high[v] = tow__max(w.high[v], s->limit[i]);
        }
        for (int64_t i = v * LANES; i < (v + 1) * LANES; i++) w.begin[v] = tow__max(w.begin[v], s->from[i]);
    }
    return w;
}

TOW__INLINE view block_of(const view *strip, int64_t first, int64_t keys)
{
    view w = {.strip = strip->strip, .first = first, .keys = keys, .rows = strip->rows, .vectors = strip->vectors};
    for (int64_t v = 0; v < QUERIES / LANES; v++) {
        w.low[v] = within(keys, strip->low[v] - first);
        w.high[v] = within(keys, strip->high[v] - first);
        w.begin[v] = within(keys, strip->begin[v] - first);
    }
    return w;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static bool usable(const tow__heads *x) { return x->dtype == TOW_F32 && x->column == 1 && whole_vectors(x->width); }

/* Forward, keys or values stay where they are. */
static bool stay(const tow__attention_job *a, const tow__heads *x) { return !a->backward && usable(x) && a->t <= FEW; }

/* Forward, keys or values are decoded where they are used, block by block. */
static bool by_blocks(const tow__attention_job *a, const tow__heads *x)
{
    return !a->backward && !a->unit && tow__heads_stored(x) && (!tow__is_half(a->result) || a->strips == 1);
}

/* Results of rows of `width` numbers are summed where they are. */
static bool sums_in_place(const tow__attention_job *a, int64_t width)
{
    return whole_vectors(width) && !tow__is_half(a->result);
}

/* Rows of keys or values in the memory of a thread. */
static int64_t rows_in_memory(const tow__attention_job *a, const tow__heads *x)
{
    if (a->unit) return 0;
    if (by_blocks(a, x)) return tow__min(a->s, 2 * BLOCK);
    return stay(a, x) ? 0 : a->s;
}

/* The next bytes of the memory, in whole cache lines. */
static void *bytes_of(char *memory, size_t *used, size_t bytes)
{
    void *at = !memory ? NULL : memory + *used;
    *used += (bytes + 63) / 64 * 64;
    return at;
}

static f32 *part(char *memory, size_t *used, int64_t count)
{
    return bytes_of(memory, used, (size_t)count * sizeof(f32));
}

static size_t divide_memory(const tow__attention_job *a, char *memory, workspace *w)
{
    size_t n = 0;
    int64_t d = a->q.width, e = a->v.width, cut = tow__min(a->s, a->backward ? 2 * BLOCK : CUT);
    const int64_t block = tow__min(a->s, 2 * BLOCK);
    const bool vectors = a->unit == NULL;
    *w = (workspace){.qt = part(memory, &n, vectors ? padded(d) * QUERIES : 0),
                     .q = part(memory, &n, vectors ? QUERIES * spaced(d) : 0),
                     .p = part(memory, &n, cut * QUERIES),
                     .k = part(memory, &n, rows_in_memory(a, &a->k) * spaced(d)),
                     .v = part(memory, &n, rows_in_memory(a, &a->v) * spaced(e))};
    if (a->unit) {
        w->halves = bytes_of(memory, &n, (size_t)(block * QUERIES) * sizeof *w->halves);
        const size_t queries = tow__unit_scratch(block, d), values = tow__unit_scratch(block, e);
        w->scratch =
            bytes_of(memory, &n, queries > values ? queries : values); /* blocks of more numbers may be smaller */
    }
    if (!a->backward) {
        w->out = part(memory, &n, sums_in_place(a, e) ? 0 : QUERIES * spaced(e));
        return n;
    }
    w->ctt = part(memory, &n, vectors ? padded(e) * QUERIES : 0);
    w->ct = part(memory, &n, QUERIES * spaced(e));
    w->o = part(memory, &n, QUERIES * spaced(e));
    w->dp = part(memory, &n, cut * QUERIES);
    w->dq = part(memory, &n, sums_in_place(a, d) ? 0 : QUERIES * spaced(d));
    w->dk = part(memory, &n, sums_in_place(a, d) ? 0 : a->s * spaced(d));
    w->dv = part(memory, &n, sums_in_place(a, e) ? 0 : a->s * spaced(e));
    if (a->cap > 0) w->slope = part(memory, &n, cut * QUERIES);
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

static matrix rows_in_place(const tow__heads *x, int64_t b, int64_t head, int64_t first)
{
    return (matrix){(const f32 *)(const void *)tow__head_row(x, b, head, first), x->row, x->width, 0};
}

static matrix packed(const tow__heads *x, const f32 *memory) { return (matrix){memory, spaced(x->width), x->width, 0}; }

/* The keys of a view of keys or values: `all`, or decoded into `memory` if that is done block by block. */
static matrix rows_of_view(const tow__attention_job *a, const tow__heads *x, const view *w, matrix all, f32 *memory)
{
    if (!by_blocks(a, x)) return all;
    const int64_t ld = spaced(x->width);
    tow__heads_decode(x, w->strip->b, w->strip->g, w->first, w->keys, memory, ld, padded(x->width));
    return (matrix){memory, ld, x->width, w->first};
}

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

static result_rows rows_from(const tow__attention_job *a, void *result, int64_t at, int64_t width, int64_t ld)
{
    const int64_t bytes = (int64_t)tow__element_bytes(a->result);
    return (result_rows){!result ? NULL : (char *)result + at * bytes, a->result, width, ld};
}

/* The rows of a strip in a result [B, T, H, width], if there is one. */
static result_rows strip_result(const tow__attention_job *a, const tow__strip *s, void *result, int64_t width)
{
    return rows_from(a, result, ((s->b * a->t + s->first) * a->heads + s->h) * width, width, a->heads * width);
}

/* The rows of a group in a result [B, S, G, width], if there is one. */
static result_rows group_result(const tow__attention_job *a, int64_t b, int64_t g, void *result, int64_t width)
{
    return rows_from(a, result, (b * a->s * a->groups + g) * width, width, a->groups * width);
}

/* The memory of the sums that become rows of a result. */
static sums sums_of(const tow__attention_job *a, result_rows result, f32 *memory)
{
    if (!sums_in_place(a, result.width)) return (sums){memory, spaced(result.width)};
    return (sums){(f32 *)(void *)result.data, result.ld};
}

static char *result_row(result_rows y, int64_t i) { return y.data + i * y.ld * (int64_t)tow__element_bytes(y.dtype); }

/* Writes sums that were not made in the result. */
static void write_sums(int64_t rows, sums x, result_rows y)
{
    if ((char *)x.data == y.data) return;
    for (int64_t i = 0; i < rows; i++)
        if (y.dtype == TOW_F32)
            memcpy(result_row(y, i), x.data + i * x.ld, (size_t)y.width * sizeof(f32));
        else
            tow__narrow_row(y.dtype, y.width, x.data + i * x.ld, result_row(y, i));
}

/* The same for the sums of a group, of which `written` keys have some; the others get zeros. */
static void write_group(int64_t keys, int64_t written, sums x, result_rows y)
{
    if (!y.data) return;
    write_sums(written, x, y);
    for (int64_t j = written; j < keys; j++) memset(result_row(y, j), 0, (size_t)y.width * tow__element_bytes(y.dtype));
}

/* Zeros in rows from .. to, if there are any sums. */
static void clear_rows(sums x, int64_t width, int64_t from, int64_t to)
{
    for (int64_t i = from; x.data && i < to; i++) memset(x.data + i * x.ld, 0, (size_t)width * sizeof(f32));
}

/* ---- masks, biases ---------------------------------------------------------------------------------------------- */

static void add_bias(const tow__attention_job *a, const tow__strip *s, const view *w, f32 *p)
{
    for (int64_t i = 0; a->bias && i < s->rows; i++) {
        tow__bias_row bias = tow__strip_bias(a, s, i);
        for (int64_t j = unseen(w, i), end = seen(w, i); j < end; j++)
            p[j * QUERIES + i] += tow__number_at(a->bias->dtype, bias.data, (w->first + j) * bias.stride);
    }
}

static void hide_masked(const tow__attention_job *a, const tow__strip *s, const view *w, f32 *p)
{
    for (int64_t i = 0; a->mask && i < s->rows; i++) {
        tow__mask_row mask = tow__strip_mask(a, s, i);
        mask.data += w->first * mask.stride;
        for (int64_t j = unseen(w, i), end = seen(w, i); j < end; j++)
            if (!mask.data[j * mask.stride]) p[j * QUERIES + i] = -FLT_MAX;
    }
}

/* Sets the values of blind queries in p. */
static void see_all(const tow__strip *s, const view *w, f32 *p, f32 value)
{
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; s->blind[i] && j < w->keys; j++) p[j * QUERIES + i] = value;
}

/* ---- instruction sets ------------------------------------------------------------------------------------------- */

/* Tiles of 1 .. 14 rows and v vectors */
#define UP_TO_4(X, v)                                                                                                  \
    X(1, v)                                                                                                            \
    X(2, v)                                                                                                            \
    X(3, v)                                                                                                            \
    X(4, v)
#define UP_TO_6(X, v)                                                                                                  \
    UP_TO_4(X, v) X(5, v)                                                                                              \
    X(6, v)
#define UP_TO_9(X, v)                                                                                                  \
    UP_TO_6(X, v) X(7, v)                                                                                              \
    X(8, v)                                                                                                            \
    X(9, v)
#define UP_TO_14(X, v)                                                                                                 \
    UP_TO_9(X, v) X(10, v)                                                                                             \
    X(11, v)                                                                                                           \
    X(12, v)                                                                                                           \
    X(13, v)                                                                                                           \
    X(14, v)

#define SET(name) name##_plain
#define INLINE    TOW__INLINE
#define TARGET
#define ROWS         4
#define VECTORS      1
#define MOST_ROWS    4
#define EACH_TILE(X) UP_TO_4(X, 1)
#include "src/kernels/attention/attention_f32.inc"
#undef SET
#undef INLINE
#undef TARGET
#undef ROWS
#undef VECTORS
#undef MOST_ROWS
#undef EACH_TILE

#ifdef __x86_64__
#define SET(name)    name##_avx2
#define INLINE       INLINE_AVX2
#define TARGET       TARGET_AVX2
#define ROWS         6
#define VECTORS      1
#define MOST_ROWS    6
#define EACH_TILE(X) UP_TO_6(X, 1)
#include "src/kernels/attention/attention_f32.inc"
#undef SET
#undef INLINE
#undef TARGET
#undef ROWS
#undef VECTORS
#undef MOST_ROWS
#undef EACH_TILE

#define SET(name)    name##_avx512
#define INLINE       INLINE_AVX512
#define TARGET       TARGET_AVX512
#define ROWS         14
#define VECTORS      4
#define MOST_ROWS    14, 14, 9, 6
#define EACH_TILE(X) UP_TO_14(X, 1) UP_TO_14(X, 2) UP_TO_9(X, 3) UP_TO_6(X, 4)
#include "src/kernels/attention/attention_f32.inc"
#endif

const tow__attention_code *tow__attention_f32(int choice)
{
#ifdef __x86_64__
    if (tow__has_avx512() && choice-- == 0) return &code_avx512;
    if (tow__has_avx2() && choice-- == 0) return &code_avx2;
#endif
    return choice == 0 ? &code_plain : NULL;
}

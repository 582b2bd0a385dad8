/* Reductions over any axes as vector code, in the order of reduce.h.
 *
 * Along memory, a result is made of contiguous segments, and a strip of short ones is made at once. Across memory, a
 * strip of neighboring results is made together, so that rows are read as they lie. Both give the same bits, so
 * strides decide which is used. Work is split by results and, where few results have many elements, also by segments,
 * whose parts lie in scratch memory:
 *
 *   parts [segment][result], joined from the first segment to the last */
#include <string.h>

#include "src/kernels/math.h"
#include "src/kernels/reductions/reduce.h"
#include "src/kernels/tables.h"

enum {
    RESULTS = 128,  /* of a strip of short rows */
    WIDE = 2048,    /* bytes of a row in a strip of columns: memory streams where it is read in long pieces; */
    NARROW = 512,   /* or so many where threads would not get */
    EACH = 8,       /* segments of strips each, so that none waits long for another */
    AHEAD = 8,      /* rows that are fetched before they are read: they may be far apart in memory */
    LINE = 64,      /* bytes that are fetched at once */
    SHORT = 128,    /* elements of rows of which strips are made */
    SPLIT = 1 << 15 /* elements per strip or result from which segments are separate blocks */
};

#define T             f32
#define BITS          i32
#define NAME(name)    sum_##name##_f32
#define EIGHT_ROWS    TOW__SEGMENT
#define IDENTITY      0
#define NEUTRAL       -(T)0
#define COMBINE(a, b) ((a) + (b))
#include "src/kernels/reductions/reduce.inc"

#define T             f64
#define BITS          int64_t
#define NAME(name)    sum_##name##_f64
#define IDENTITY      0
#define NEUTRAL       -(T)0
#define COMBINE(a, b) ((a) + (b))
#include "src/kernels/reductions/reduce.inc"

#define T             f32
#define BITS          i32
#define NAME(name)    max_##name##_f32
#define EIGHT_ROWS    (2 * TOW__LANES)
#define IDENTITY      -(T)INFINITY
#define BETTER        >
#define COMBINE(a, b) tow__max_f32(a, b)
#define ORDER         tow__order_f32
#define UNORDER       tow__unorder_f32
#define INFINITE      0x7F800000
#define MAGNITUDE     INT32_MAX
#include "src/kernels/reductions/reduce.inc"

#define T             f64
#define BITS          int64_t
#define NAME(name)    max_##name##_f64
#define IDENTITY      -(T)INFINITY
#define BETTER        >
#define COMBINE(a, b) tow__max_f64(a, b)
#define ORDER         tow__order_f64
#define UNORDER       tow__unorder_f64
#define INFINITE      0x7FF0000000000000
#define MAGNITUDE     INT64_MAX
#include "src/kernels/reductions/reduce.inc"

#define T             f32
#define BITS          i32
#define NAME(name)    min_##name##_f32
#define EIGHT_ROWS    (2 * TOW__LANES)
#define IDENTITY      (T) INFINITY
#define BETTER        <
#define COMBINE(a, b) tow__min_f32(a, b)
#define ORDER         tow__order_f32
#define UNORDER       tow__unorder_f32
#define INFINITE      0x7F800000
#define MAGNITUDE     INT32_MAX
#include "src/kernels/reductions/reduce.inc"

#define T             f64
#define BITS          int64_t
#define NAME(name)    min_##name##_f64
#define IDENTITY      (T) INFINITY
#define BETTER        <
#define COMBINE(a, b) tow__min_f64(a, b)
#define ORDER         tow__order_f64
#define UNORDER       tow__unorder_f64
#define INFINITE      0x7FF0000000000000
#define MAGNITUDE     INT64_MAX
#include "src/kernels/reductions/reduce.inc"

/* Signed sums and products are the unsigned ones. */
#define T             u32
#define NAME(name)    sum_##name##_u32
#define IDENTITY      0
#define NEUTRAL       0
#define COMBINE(a, b) ((a) + (b))
#include "src/kernels/reductions/reduce.inc"

#define T             f32
#define NAME(name)    prod_##name##_f32
#define IDENTITY      1
#define NEUTRAL       1
#define COMBINE(a, b) ((a) * (b))
#include "src/kernels/reductions/reduce.inc"

#define T             f64
#define NAME(name)    prod_##name##_f64
#define IDENTITY      1
#define NEUTRAL       1
#define COMBINE(a, b) ((a) * (b))
#include "src/kernels/reductions/reduce.inc"

#define T             u32
#define NAME(name)    prod_##name##_u32
#define IDENTITY      1
#define NEUTRAL       1
#define COMBINE(a, b) ((a) * (b))
#include "src/kernels/reductions/reduce.inc"

#define T             i32
#define NAME(name)    max_##name##_i32
#define IDENTITY      INT32_MIN
#define NEUTRAL       INT32_MIN
#define COMBINE(a, b) ((a) > (b) ? (a) : (b))
#include "src/kernels/reductions/reduce.inc"

#define T             u32
#define NAME(name)    max_##name##_u32
#define IDENTITY      0
#define NEUTRAL       0
#define COMBINE(a, b) ((a) > (b) ? (a) : (b))
#include "src/kernels/reductions/reduce.inc"

#define T             i32
#define NAME(name)    min_##name##_i32
#define IDENTITY      INT32_MAX
#define NEUTRAL       INT32_MAX
#define COMBINE(a, b) ((a) < (b) ? (a) : (b))
#include "src/kernels/reductions/reduce.inc"

#define T             u32
#define NAME(name)    min_##name##_u32
#define IDENTITY      UINT32_MAX
#define NEUTRAL       UINT32_MAX
#define COMBINE(a, b) ((a) < (b) ? (a) : (b))
#include "src/kernels/reductions/reduce.inc"

#define T             u32
#define NAME(name)    or_##name##_u32
#define IDENTITY      0
#define NEUTRAL       0
#define COMBINE(a, b) ((a) | (b))
#include "src/kernels/reductions/reduce.inc"

#define T             u32
#define NAME(name)    xor_##name##_u32
#define IDENTITY      0
#define NEUTRAL       0
#define COMBINE(a, b) ((a) ^ (b))
#include "src/kernels/reductions/reduce.inc"

#define T             b8
#define NAME(name)    xor_##name##_b8
#define IDENTITY      0
#define NEUTRAL       0
#define COMBINE(a, b) (b8)((a) ^ (b))
#include "src/kernels/reductions/reduce.inc"

#define T             u32
#define NAME(name)    and_##name##_u32
#define IDENTITY      UINT32_MAX
#define NEUTRAL       UINT32_MAX
#define COMBINE(a, b) ((a) & (b))
#include "src/kernels/reductions/reduce.inc"

#define T             b8
#define NAME(name)    or_##name##_b8
#define IDENTITY      0
#define NEUTRAL       0
#define COMBINE(a, b) (b8)((a) | (b))
#include "src/kernels/reductions/reduce.inc"

#define T             b8
#define NAME(name)    and_##name##_b8
#define IDENTITY      1
#define NEUTRAL       1
#define COMBINE(a, b) (b8)((a) & (b))
#include "src/kernels/reductions/reduce.inc"

/* [dtype] */
static const tow__reducer *const sums[TOW_DTYPE_END] = {[TOW_F32] = &sum_reducer_f32,
                                                        [TOW_F64] = &sum_reducer_f64,
                                                        [TOW_I32] = &sum_reducer_u32,
                                                        [TOW_U32] = &sum_reducer_u32};
static const tow__reducer *const products[TOW_DTYPE_END] = {[TOW_F32] = &prod_reducer_f32,
                                                            [TOW_F64] = &prod_reducer_f64,
                                                            [TOW_I32] = &prod_reducer_u32,
                                                            [TOW_U32] = &prod_reducer_u32};
static const tow__reducer *const maxima[TOW_DTYPE_END] = {[TOW_F32] = &max_reducer_f32,
                                                          [TOW_F64] = &max_reducer_f64,
                                                          [TOW_I32] = &max_reducer_i32,
                                                          [TOW_U32] = &max_reducer_u32,
                                                          [TOW_BOOL] = &or_reducer_b8};
static const tow__reducer *const minima[TOW_DTYPE_END] = {[TOW_F32] = &min_reducer_f32,
                                                          [TOW_F64] = &min_reducer_f64,
                                                          [TOW_I32] = &min_reducer_i32,
                                                          [TOW_U32] = &min_reducer_u32,
                                                          [TOW_BOOL] = &and_reducer_b8};
static const tow__reducer *const unions[TOW_DTYPE_END] = {
    [TOW_I32] = &or_reducer_u32, [TOW_U32] = &or_reducer_u32, [TOW_BOOL] = &or_reducer_b8};
static const tow__reducer *const intersections[TOW_DTYPE_END] = {
    [TOW_I32] = &and_reducer_u32, [TOW_U32] = &and_reducer_u32, [TOW_BOOL] = &and_reducer_b8};
static const tow__reducer *const parities[TOW_DTYPE_END] = {
    [TOW_I32] = &xor_reducer_u32, [TOW_U32] = &xor_reducer_u32, [TOW_BOOL] = &xor_reducer_b8};

const tow__reducer *tow__reducer_of(const tow__kernel *kernel, tow_dtype dtype)
{
    return kernel && kernel->reducers && dtype != TOW_BOOL ? kernel->reducers[dtype] : NULL;
}

/* ---- the plan of one reduction ---------------------------------------------------------------------------------- */

/* The job, which follows from shapes. */
typedef struct reduce_job {
    tow__reduction_axes x; /* without addresses */
    size_t size;
    bool across;   /* strips of neighboring results, not of rows */
    int64_t group; /* elements of a piece of a result, beside which those of other results lie; 0: there are none */
    int64_t results, elements; /* per result */
    int64_t width, strips;     /* results per strip; strips */
    int64_t segments, parts;   /* segments per result; blocks they are split into: 1 or all */
} reduce_job;

typedef struct reduce_run {
    const reduce_job *job;
    const tow__reducer *reducer;
    char *x, *out, *scratch;
    int64_t group; /* small strips that make one block */
} reduce_run;

/* Common to the strips of a block: the places of the rows of a segment. */
typedef struct common {
    int64_t segment; /* whose rows these are; -1: none yet */
    int64_t rows[TOW__SEGMENT];
} common;

/* Results of a strip of columns, of which there are `last` beside each other. Strips cut no sum. */
static int64_t width_of(const reduce_job *job, int64_t last, int64_t threads)
{
    if (job->results == 0) return 1;
    const int64_t size = (int64_t)job->size, wide = job->results / last * tow__ceil_div(last, WIDE / size);
    return tow__min(last, (wide * job->segments >= EACH * threads || threads == 1 ? WIDE : NARROW) / size);
}

/* True if rows of memory hold a few neighboring elements of each result of a strip, as in GroupNorm's sums over
 * positions and the channels of a group: pieces that fill lanes evenly. */
static bool is_grouped(const tow__strided *kept, const tow__strided *reduced)
{
    const int last = reduced->rank - 1;
    if (kept->count == 0 || kept->rank == 0 || reduced->rank < 2 || reduced->strides[last] != 1) return false;
    return reduced->dims[last] > 1 && TOW__LANES % reduced->dims[last] == 0 &&
           kept->strides[kept->rank - 1] == reduced->dims[last];
}

static reduce_job prepare(const tow__kernel_call *call)
{
    reduce_job job = {.x = tow__reduction_axes_of(&call->in[0], &((const tow__axes_params *)call->params)->axes)};
    const tow__strided *kept = &job.x.kept, *reduced = &job.x.reduced;
    job.size = kept->size;
    job.results = kept->count;
    job.elements = reduced->count;
    bool along = reduced->rank > 0 && reduced->strides[reduced->rank - 1] == 1;
    job.across = !along && kept->rank > 0 && kept->strides[kept->rank - 1] == 1;
    bool rows = along && reduced->flat && kept->rank == 1 && job.elements <= SHORT;
    job.group = is_grouped(kept, reduced) ? reduced->dims[reduced->rank - 1] : 0;
    /* A strip does not leave the last kept axis. */
    int64_t last = job.across || rows || job.group > 0 ? kept->dims[kept->rank - 1] : 1;
    job.segments = tow__ceil_div(job.elements, TOW__SEGMENT);
    job.width = job.across      ? width_of(&job, last, tow__threads(call))
                : job.group > 0 ? tow__min(last, WIDE / (int64_t)job.size / job.group)
                : rows          ? RESULTS
                                : 1;
    job.strips = job.results == 0 ? 0 : job.results / last * tow__ceil_div(last, job.width);
    job.parts = job.elements * job.width >= SPLIT && job.strips < 16 ? job.segments : 1;
    return job;
}

/* First result and number of results of a strip. */
static int64_t strip_at(const reduce_job *job, int64_t strip, int64_t *columns)
{
    *columns = 1;
    if (job->width == 1) return strip;
    int64_t last = job->x.kept.dims[job->x.kept.rank - 1], per_row = tow__ceil_div(last, job->width);
    int64_t first = strip % per_row * job->width;
    *columns = tow__min(job->width, last - first);
    return strip / per_row * last + first;
}

/* Offsets of reduced elements start .. start + n. */
static void offsets(const tow__strided *reduced, int64_t start, int64_t n, int64_t *rows)
{
    if (reduced->rank == 1) {
        for (int64_t i = 0; i < n; i++) rows[i] = (start + i) * reduced->strides[0];
    } else {
        for (int64_t i = 0; i < n; i++) rows[i] = tow__strided_offset(reduced, start + i);
    }
}

/* Elements start .. start + n as runs, if those fill lanes; returns how many, 0 if they do not. */
static int runs_of(const tow__strided *reduced, int64_t start, int64_t n, tow__run *run)
{
    const int last = reduced->rank - 1;
    if (reduced->flat || reduced->strides[last] != 1 || reduced->dims[last] % TOW__LANES != 0) return 0;
    const int64_t length = reduced->dims[last], first = start / length;
    int runs = 0;
    for (int64_t at = start; at < start + n; runs++) {
        int64_t row = first + runs, column = at - row * length;
        int64_t place = last == 1 ? row * reduced->strides[0] : tow__strided_offset(reduced, row * length);
        run[runs] = (tow__run){place + column, tow__min(length - column, start + n - at)};
        at += run[runs].n;
    }
    return runs;
}

/* One segment of a strip of `columns` results whose pieces lie beside each other in n / group rows. Row i belongs to
 * lanes [i % apart * group, ...). Rows of the same lanes are added first, then the tree goes on between rows, then
 * within pieces. */
static void run_grouped(const reduce_run *r, int64_t columns, int64_t start, int64_t n, const char *x, void *out)
{
    const reduce_job *job = r->job;
    const int64_t group = job->group, wide = columns * group, count = n / group;
    const int64_t apart = tow__min(TOW__LANES / group, count), size = (int64_t)job->size;
    _Alignas(LINE) char lanes[TOW__LANES / 2 * WIDE], joined[WIDE];
    int64_t rows[TOW__SEGMENT / 2];
    for (int64_t i = 0; i < count; i++) rows[i] = tow__strided_offset(&job->x.reduced, start + i * group);
    for (int64_t l = 0; l < apart; l++)
        r->reducer->down(wide, tow__ceil_div(count - l, TOW__LANES / group), rows + l, TOW__LANES / group, x,
                         lanes + l * wide * size);
    r->reducer->end(wide, apart, wide, lanes, joined);
    r->reducer->rows(columns, group, group, joined, out);
}

static void run_segment(const reduce_run *r, common *c, int64_t first, int64_t columns, int64_t segment, void *out)
{
    const reduce_job *job = r->job;
    const tow__strided *kept = &job->x.kept, *reduced = &job->x.reduced;
    int64_t start = segment * TOW__SEGMENT, n = tow__min(TOW__SEGMENT, job->elements - start);
    char *x = r->x + tow__strided_offset(kept, first) * (int64_t)job->size;
    if (job->across) {
        if (c->segment != segment) offsets(reduced, start, n, c->rows);
        c->segment = segment;
        _Alignas(LINE) char lanes[TOW__LANES * WIDE];
        r->reducer->begin(columns, n, job->width, lanes);
        r->reducer->add(columns, 0, n, c->rows, x, job->width, lanes);
        r->reducer->end(columns, n, job->width, lanes, out);
        return;
    }
    if (job->group > 0) {
        run_grouped(r, columns, start, n, x, out);
        return;
    }
    tow__run run[TOW__SEGMENT / TOW__LANES + 1];
    int runs = runs_of(reduced, start, n, run);
    if (runs > 0) {
        r->reducer->runs(runs, run, x, out);
    } else if (reduced->flat) {
        r->reducer->rows(columns, kept->rank ? kept->strides[0] : 0, n, x + (size_t)start * job->size, out);
    } else {
        uint64_t tile[TOW__SEGMENT];
        tow__strided view = *reduced;
        view.data = x;
        tow__strided_read(&view, start, n, tile);
        r->reducer->rows(columns, 0, n, tile, out);
    }
}

/* A whole strip, segment after segment; or one segment of a strip, left in the scratch memory, one of all strips after
 * the other: so threads read whole rows. */
static void reduce_block(const reduce_run *r, common *c, int64_t block)
{
    const reduce_job *job = r->job;
    int64_t columns, first = strip_at(job, block % job->strips, &columns);
    if (job->parts > 1) {
        int64_t segment = block / job->strips;
        run_segment(r, c, first, columns, segment, r->scratch + (size_t)(segment * job->results + first) * job->size);
        return;
    }
    _Alignas(LINE) char part[WIDE];
    char *total = r->out + (size_t)first * job->size;
    if (job->segments == 0) r->reducer->nothing(columns, total);
    for (int64_t s = 0; s < job->segments; s++) {
        run_segment(r, c, first, columns, s, s == 0 ? total : (void *)part);
        if (s > 0) r->reducer->join(columns, total, part);
    }
}

static void group_block(void *user, int64_t block)
{
    const reduce_run *r = user;
    int64_t end = tow__min((block + 1) * r->group, r->job->strips * r->job->parts);
    common c;
    c.segment = -1;
    for (int64_t i = block * r->group; i < end; i++) reduce_block(r, &c, i);
}

static void reduce(const tow__kernel_call *call, const tow__reducer *const *reducers)
{
    reduce_job own;
    if (!call->state) own = prepare(call);
    const reduce_job *job = call->state ? call->state : &own;
    reduce_run r = {job, reducers[call->in[0].dtype], call->in[0].data, call->out[0].data, call->scratch, 1};
    int64_t elements = job->parts > 1 ? TOW__SEGMENT * job->width : tow__max(1, job->elements) * job->width;
    r.group = tow__max(1, TOW__BLOCK / elements);
    tow__team_run(call->team, tow__ceil_div(job->strips * job->parts, r.group), group_block, &r);
    if (job->parts == 1) return;
    memcpy(r.out, r.scratch, (size_t)job->results * job->size);
    for (int64_t s = 1; s < job->segments; s++)
        r.reducer->join(job->results, r.out, r.scratch + (size_t)(s * job->results) * job->size);
}

static void prepare_reduce(const tow__kernel_call *call, void *state) { *(reduce_job *)state = prepare(call); }

static size_t scratch_reduce(const tow__kernel_call *call)
{
    reduce_job job = prepare(call);
    return job.parts > 1 ? (size_t)(job.segments * job.results) * job.size : 0;
}

static void run_reduce_sum(const tow__kernel_call *call) { reduce(call, sums); }
static void run_reduce_prod(const tow__kernel_call *call) { reduce(call, products); }
static void run_reduce_max(const tow__kernel_call *call) { reduce(call, maxima); }
static void run_reduce_min(const tow__kernel_call *call) { reduce(call, minima); }
static void run_reduce_or(const tow__kernel_call *call) { reduce(call, unions); }
static void run_reduce_xor(const tow__kernel_call *call) { reduce(call, parities); }
static void run_reduce_and(const tow__kernel_call *call) { reduce(call, intersections); }

enum {
    NUMBERS = TOW__WORDS,
    COMPARED = TOW__WORDS | 1 << TOW_BOOL,
    LOGICAL = 1 << TOW_I32 | 1 << TOW_U32 | 1 << TOW_BOOL
};
#define KERNEL(name, set, table)                                                                                       \
    {.primitive = #name,                                                                                               \
     .dtypes = set,                                                                                                    \
     .run = run_##name,                                                                                                \
     .scratch = scratch_reduce,                                                                                        \
     .engine = "vector",                                                                                               \
     .state_bytes = sizeof(reduce_job),                                                                                \
     .prepare = prepare_reduce,                                                                                        \
     .reducers = table},
static const tow__kernel kernels[] = {KERNEL(reduce_and, LOGICAL, intersections) KERNEL(reduce_max, COMPARED, maxima)
                                          KERNEL(reduce_min, COMPARED, minima) KERNEL(reduce_or, LOGICAL, unions)
                                              KERNEL(reduce_prod, NUMBERS, products) KERNEL(reduce_sum, NUMBERS, sums)
                                                  KERNEL(reduce_xor, LOGICAL, parities)};
const tow__kernel_table tow__kernels_reduce = {kernels, sizeof kernels / sizeof kernels[0]};

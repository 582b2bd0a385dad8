/* Row programs whose results are reduced while they are in the cache (fused.h): one pass over memory for a chain and
 * the sums over what it makes. Results have the order of reduce.h, so a fused reduction has the bits of the chain and
 * the reduction one after the other.
 *
 *   [outer, elements, columns]    columns > 1: a strip of columns, a few rows after the other ──> lanes of a segment
 *                                 columns = 1: some segments of a result, or as many whole results as fit
 *
 * As in reduce.c, a strip is one piece of work, or, where there are few strips, its segments are separate pieces. */
#include <string.h>

#include "src/kernels/elementwise/fused.h"
#include "src/kernels/reductions/reduce.h"
#include "src/kernels/tables.h"

enum {
    ROOM = 16 << 10, /* bytes for what one run of the program makes of a result that is not stored; of many, half */
    FEW = 16,        /* pieces of work from which threads need no more */
    WIDE = 2048,     /* bytes of a row in a strip, for all reductions: runs of the program should be long, */
    NARROW = 512,    /* or so many where else threads would have nothing to do */
    ROWS = 256,      /* of a strip that one run makes, at most */
    LINE = 64        /* bytes to which lanes are aligned */
};
_Static_assert(WIDE / TOW__FUSED_REDUCTIONS >= NARROW && ROOM / 2 >= WIDE && ROOM / 2 >= TOW__SEGMENT * 8,
               "a row of a strip and a segment fit into the room of one of many results");

#define NANOSECONDS 0.1 /* of one operation on one element, about */

/* The state, which follows from shapes and the number of threads. */
typedef struct fused_reduce_state {
    tow__fused_layout layout;
    int64_t width;       /* results of a strip */
    int64_t row, strips; /* strips that the columns are cut into; strips in all */
    int64_t segments;    /* of a result, */
    int64_t span;        /* and those that one run makes */
    int64_t parts;       /* pieces of work that a strip is split into, of one span each; 1: it is not split */
    int64_t rows;        /* of a strip of columns that one run makes */
    int64_t group;       /* pieces that make one block of work */
    int64_t room, lane;  /* bytes for a result that is not stored; of a lane, at most */
} fused_reduce_state;

typedef struct fused_reduce_job {
    const tow__row_reductions *params;
    const fused_reduce_state *state;
    const tow__fused_job *program;
    size_t sizes[TOW__FUSED_REDUCTIONS];
    char *out[TOW__FUSED_REDUCTIONS];
    char *parts[TOW__FUSED_REDUCTIONS]; /* [segment][result] if strips are split */
} fused_reduce_job;

/* ---- what follows from shapes ------------------------------------------------------------------------------------ */

/* The program's operands all have the shape of the whole. */
static void prepare_layout(const tow__kernel_call *call, tow__fused_layout *layout)
{
    const tow__fused *program = call->params;
    const tow__buffer *in[TOW__FUSED_IN], *out[TOW__FUSED_OUT];
    for (uint32_t i = 0; i < program->n_in; i++) in[i] = &call->in[i];
    for (uint32_t k = 0; k < program->n_out; k++) out[k] = &call->in[0];
    tow__fused_prepare(program, in, out, layout);
}

static int64_t widest(const tow__row_reductions *p)
{
    int64_t size = 4;
    for (uint32_t r = 0; r < p->n_reductions; r++)
        if (p->reductions[r].dtype == TOW_F64) size = 8;
    return size;
}

static int64_t room_of(const tow__row_reductions *p)
{
    int n = 0;
    for (uint32_t k = 0; k < p->n_results; k++) n += !p->stored[k];
    return n > TOW__FUSED_REDUCTIONS / 2 ? ROOM / 2 : ROOM;
}

static void cut_along(const tow__row_reductions *p, fused_reduce_state *s)
{
    const int64_t room = s->room / widest(p);
    s->span = room / TOW__SEGMENT;
    s->width = s->segments == 1 ? room / p->elements : 1;
    s->row = 1;
    s->strips = tow__ceil_div(p->outer, s->width);
}

static void cut_across(const tow__row_reductions *p, int64_t threads, fused_reduce_state *s)
{
    const int64_t size = widest(p);
    s->span = 1;
    for (int64_t bytes = s->lane;; bytes = NARROW) {
        s->width = tow__min(p->columns, bytes / size);
        s->row = tow__ceil_div(p->columns, s->width);
        s->strips = p->outer * s->row;
        if (s->strips * s->segments >= 2 * threads || threads == 1 || bytes == NARROW) break;
    }
    const int64_t line = LINE / size; /* strips of about one width, so that no thread gets a remainder */
    s->width = tow__min(s->width, tow__ceil_div(tow__ceil_div(p->columns, s->row), line) * line);
    s->row = tow__ceil_div(p->columns, s->width);
    s->strips = p->outer * s->row;
    s->rows = tow__min(ROWS, s->room / size / s->width);
}

/* No sum is cut by the number of threads, only strips are. */
static void cut(const tow__row_reductions *p, int64_t threads, fused_reduce_state *s)
{
    s->segments = tow__ceil_div(p->elements, TOW__SEGMENT);
    s->room = room_of(p);
    s->lane = WIDE / p->n_reductions / LINE * LINE;
    if (p->columns == 1)
        cut_along(p, s);
    else
        cut_across(p, threads, s);
    s->parts = s->strips < FEW ? tow__ceil_div(s->segments, s->span) : 1;
    int64_t elements = (s->parts > 1 ? s->span * TOW__SEGMENT : p->elements) * s->width;
    s->group = tow__max(1, TOW__BLOCK / elements);
}

static void prepare_fused_reduce(const tow__kernel_call *call, void *state)
{
    prepare_layout(call, &((fused_reduce_state *)state)->layout);
    cut(call->extras.reductions, tow__threads(call), state);
}

int64_t tow__fused_reduce_pieces(const tow__row_reductions *p, int64_t threads)
{
    fused_reduce_state s;
    cut(p, threads, &s);
    return s.strips * s.parts;
}

static size_t parts_bytes(const tow__row_reductions *p, const fused_reduce_state *s, uint32_t r)
{
    int64_t bytes = s->segments * p->outer * p->columns * (int64_t)tow__element_bytes(p->reductions[r].dtype);
    return s->parts > 1 ? (size_t)(tow__ceil_div(bytes, LINE) * LINE) : 0;
}

static size_t scratch_fused_reduce(const tow__kernel_call *call)
{
    const tow__row_reductions *p = call->extras.reductions;
    fused_reduce_state s;
    size_t bytes = 0;
    cut(p, tow__threads(call), &s);
    for (uint32_t r = 0; r < p->n_reductions; r++) bytes += parts_bytes(p, &s, r);
    return bytes;
}

/* ---- one run ----------------------------------------------------------------------------------------------------- */

/* A thread, with room for what is not stored. */
typedef struct worker {
    const fused_reduce_job *job;
    char *room[TOW__FUSED_OUT]; /* [results of the program] NULL: it is stored */
    _Alignas(LINE) char memory[TOW__FUSED_REDUCTIONS / 2 * ROOM];
    _Alignas(LINE) char lanes[TOW__LANES * WIDE];
    _Alignas(LINE) char part[WIDE];
} worker;

static void begin_worker(worker *w, const fused_reduce_job *job)
{
    const tow__row_reductions *p = job->params;
    uint32_t n = 0;
    w->job = job;
    for (uint32_t k = 0; k < p->n_results; k++) w->room[k] = p->stored[k] ? NULL : w->memory + n++ * job->state->room;
}

/* The operand of reduction r from element `first` on, with which a run has begun. */
static const char *made_at(const worker *w, uint32_t r, int64_t first)
{
    uint32_t k = w->job->params->reductions[r].result;
    return w->room[k] ? w->room[k] : w->job->program->out[k] + (size_t)first * w->job->sizes[r];
}

/* The place of a segment of results from `result` on: among the parts, or to the results if it is the first. */
static char *segment_at(worker *w, uint32_t r, int64_t segment, int64_t result)
{
    const fused_reduce_job *job = w->job;
    int64_t results = job->params->outer * job->params->columns;
    if (job->state->parts > 1) return job->parts[r] + (size_t)(segment * results + result) * job->sizes[r];
    return segment ? w->part : job->out[r] + (size_t)result * job->sizes[r];
}

/* After a segment has gone where segment_at says. */
static void add_segment(worker *w, uint32_t r, int64_t segment, int64_t result, int64_t results)
{
    const fused_reduce_job *job = w->job;
    if (job->state->parts == 1 && segment > 0)
        job->params->reductions[r].reducer->join(results, job->out[r] + (size_t)result * job->sizes[r], w->part);
}

/* Segments [segment, end) of one result, or the only segment of several. */
static void run_along(worker *w, int64_t result, int64_t results, int64_t segment, int64_t end)
{
    const fused_reduce_job *job = w->job;
    int64_t elements = job->params->elements, start = segment * TOW__SEGMENT;
    int64_t first = result * elements + start, n = tow__min(end * TOW__SEGMENT, elements) - start;
    tow__fused_run_into(job->program, w->room, first, 1, 0, results * n);
    for (uint32_t r = 0; r < job->params->n_reductions; r++) {
        const char *x = made_at(w, r, first);
        for (int64_t s = segment; s < end; s++) {
            int64_t length = tow__min(TOW__SEGMENT, elements - s * TOW__SEGMENT);
            job->params->reductions[r].reducer->rows(results, length, length, x, segment_at(w, r, s, result));
            add_segment(w, r, s, result, results);
            x += (size_t)length * job->sizes[r];
        }
    }
}

/* Elements from lane to lane. */
static int64_t lane_pitch(const fused_reduce_job *job, uint32_t r)
{
    const int64_t line = LINE / (int64_t)job->sizes[r];
    return tow__ceil_div(job->state->width, line) * line;
}

static void *lanes_of(worker *w, uint32_t r) { return w->lanes + r * TOW__LANES * w->job->state->lane; }

/* Adds n rows to the lanes of reduction r, the first of which is row `at` of the segment. */
static void add_rows(worker *w, uint32_t r, int64_t first, int64_t columns, int64_t at, int64_t n)
{
    const fused_reduce_job *job = w->job;
    int64_t rows[ROWS], step = w->room[job->params->reductions[r].result] ? columns : job->params->columns;
    for (int64_t i = 0; i < n; i++) rows[i] = i * step;
    job->params->reductions[r].reducer->add(columns, at, n, rows, made_at(w, r, first), lane_pitch(job, r),
                                            lanes_of(w, r));
}

/* One segment of neighboring results. */
static void run_across(worker *w, int64_t result, int64_t columns, int64_t segment)
{
    const fused_reduce_job *job = w->job;
    const tow__row_reductions *p = job->params;
    int64_t start = segment * TOW__SEGMENT, count = tow__min(TOW__SEGMENT, p->elements - start);
    int64_t first = (result / p->columns * p->elements + start) * p->columns + result % p->columns;
    for (uint32_t r = 0; r < p->n_reductions; r++)
        job->params->reductions[r].reducer->begin(columns, count, lane_pitch(job, r), lanes_of(w, r));
    for (int64_t n, at = 0; at < count; at += n, first += n * p->columns) {
        n = tow__min(job->state->rows, count - at);
        tow__fused_run_into(job->program, w->room, first, n, p->columns, columns);
        for (uint32_t r = 0; r < p->n_reductions; r++) add_rows(w, r, first, columns, at, n);
    }
    for (uint32_t r = 0; r < p->n_reductions; r++) {
        job->params->reductions[r].reducer->end(columns, count, lane_pitch(job, r), lanes_of(w, r),
                                                segment_at(w, r, segment, result));
        add_segment(w, r, segment, result, columns);
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* The strip of a piece, by its first result and their number, and its first segment. Pieces follow each other as their
 * elements do, so that each thread has a part of memory of its own. */
static void find_piece(const fused_reduce_job *job, int64_t piece, int64_t *result, int64_t *results, int64_t *segment)
{
    const fused_reduce_state *s = job->state;
    const int64_t columns = job->params->columns, first = piece % s->row * s->width;
    *segment = piece / s->row % s->parts * s->span;
    piece /= s->row * s->parts;
    if (columns == 1) {
        *result = piece * s->width;
        *results = tow__min(s->width, job->params->outer - *result);
    } else {
        *result = piece * columns + first;
        *results = tow__min(s->width, columns - first);
    }
}

static void reduce_piece(worker *w, int64_t piece)
{
    const fused_reduce_state *s = w->job->state;
    int64_t result, results, segment;
    find_piece(w->job, piece, &result, &results, &segment);
    for (int64_t end = s->parts > 1 ? tow__min(segment + s->span, s->segments) : s->segments; segment < end;
         segment += s->span) {
        if (w->job->params->columns == 1)
            run_along(w, result, results, segment, tow__min(segment + s->span, end));
        else
            run_across(w, result, results, segment);
    }
}

static void reduce_block(void *user, int64_t block)
{
    const fused_reduce_job *job = user;
    const fused_reduce_state *s = job->state;
    worker w;
    begin_worker(&w, job);
    int64_t end = tow__min((block + 1) * s->group, s->strips * s->parts);
    for (int64_t piece = block * s->group; piece < end; piece++) reduce_piece(&w, piece);
}

static void join_parts(const fused_reduce_job *job, uint32_t r)
{
    int64_t results = job->params->outer * job->params->columns;
    size_t bytes = (size_t)results * job->sizes[r];
    memcpy(job->out[r], job->parts[r], bytes);
    for (int64_t i = 1; i < job->state->segments; i++)
        job->params->reductions[r].reducer->join(results, job->out[r], job->parts[r] + (size_t)i * bytes);
}

static void run_fused_reduce(const tow__kernel_call *call)
{
    const tow__row_reductions *p = call->extras.reductions;
    const tow__fused *ops = call->params;
    const tow__buffer *in[TOW__FUSED_IN], *out[TOW__FUSED_OUT], nowhere = {0};
    fused_reduce_state own;
    tow__fused_job program;
    fused_reduce_job job = {.params = p, .state = call->state ? call->state : &own, .program = &program};
    uint32_t n = 0;
    if (!call->state) prepare_fused_reduce(call, &own);
    for (uint32_t i = 0; i < ops->n_in; i++) in[i] = &call->in[i];
    for (uint32_t k = 0; k < ops->n_out; k++) out[k] = p->stored[k] ? &call->out[n++] : &nowhere;
    tow__fused_begin(&program, ops, &job.state->layout, in, out);
    char *parts = call->scratch;
    for (uint32_t r = 0; r < p->n_reductions; r++) {
        job.sizes[r] = tow__element_bytes(p->reductions[r].dtype);
        job.out[r] = call->out[n + r].data;
        job.parts[r] = parts;
        if (parts) parts += parts_bytes(p, job.state, r);
    }
    double nanoseconds = NANOSECONDS * (ops->n_ops + p->n_reductions) * (double)job.state->layout.count;
    int64_t blocks = tow__ceil_div(job.state->strips * job.state->parts, job.state->group);
    tow__team_run(tow__team_for(call->team, nanoseconds), blocks, reduce_block, &job);
    for (uint32_t r = 0; r < p->n_reductions && job.state->parts > 1; r++) join_parts(&job, r);
}

static const tow__kernel kernels[] = {
    {.primitive = "fused",
     .variant = TOW__WITH_REDUCTIONS,
     .dtypes = TOW__ALL_DTYPES,
     .run = run_fused_reduce,
     .scratch = scratch_fused_reduce,
     .engine = "vector",
     .state_bytes = sizeof(fused_reduce_state),
     .prepare = prepare_fused_reduce},
};
const tow__kernel_table tow__kernels_fused_reduce = {kernels, sizeof kernels / sizeof kernels[0]};

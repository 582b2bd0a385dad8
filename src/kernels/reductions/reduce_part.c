/* Reductions over rows that come block by block (reduce.h): sums of rows, where a region's blocks run in order.
 *
 *   elements   0          704         1024        1408        2048
 *   blocks     |-- 0 ------|-- 1 ------------------|-- 2 ...
 *   segments   |-- 0 ------------------|-- 1 ------------------|
 *                                      ^ lanes become a part, which joins the result
 *
 * Strips of columns are the blocks of work; one column is split by segments, as in reduce.c. */
#include <string.h>

#include "src/kernels/math.h"
#include "src/kernels/reductions/reduce.h"
#include "src/kernels/tables.h"

enum {
    COLUMNS = 128, /* of a strip */
    SEGMENTS = 16  /* of one column that make a block of work */
};

typedef struct part_job {
    const tow__reducer *reducer;
    size_t size;
    int64_t columns, elements; /* of the result; of a sum, in all blocks */
    int64_t start, n;          /* elements before this block; of it */
    char *x, *out, *lanes;
} part_job;

static part_job job_of(const tow__kernel_call *call)
{
    const tow__sum_part *p = call->extras.part;
    part_job job = {.reducer = p->reducer, .size = tow_dtype_size(call->in[0].dtype)};
    job.elements = p->elements;
    job.columns = tow__buffer_count(&call->out[0]);
    job.n = tow__buffer_count(&call->in[0]) / job.columns;
    job.start = p->before + *p->row * job.n;
    job.x = call->in[0].data;
    job.out = call->out[0].data;
    job.lanes = job.columns > 1 ? call->out[1].data : NULL;
    return job;
}

/* Columns first .. first + columns of what the block has of a segment: n of its `length` rows, from row `at` of it
 * on. */
static void add_rows(const part_job *job, int64_t first, int64_t columns, int64_t segment, int64_t at, int64_t n,
                     int64_t length, const char *x)
{
    const tow__reducer *reducer = job->reducer;
    const int64_t pitch = job->columns;
    char *lanes = job->lanes + (size_t)first * job->size, *out = job->out + (size_t)first * job->size;
    int64_t rows[TOW__SEGMENT];
    for (int64_t i = 0; i < n; i++) rows[i] = i * pitch;
    if (at == 0) reducer->begin(columns, length, pitch, lanes);
    reducer->add(columns, at, n, rows, x, pitch, lanes);
    if (at + n < length) return;
    uint64_t part[COLUMNS];
    reducer->end(columns, length, pitch, lanes, segment == 0 ? out : (void *)part);
    if (segment > 0) reducer->join(columns, out, part);
}

static void add_strip(void *user, int64_t strip)
{
    const part_job *job = user;
    const int64_t first = strip * COLUMNS, columns = tow__min(COLUMNS, job->columns - first);
    const int64_t end = job->start + job->n;
    for (int64_t row = job->start, n; row < end; row += n) {
        int64_t segment = row / TOW__SEGMENT, at = row % TOW__SEGMENT;
        int64_t length = tow__min(TOW__SEGMENT, job->elements - segment * TOW__SEGMENT);
        n = tow__min(length - at, end - row);
        int64_t place = (row - job->start) * job->columns + first;
        add_rows(job, first, columns, segment, at, n, length, job->x + (size_t)place * job->size);
    }
}

/* ---- one column -------------------------------------------------------------------------------------------------- */

typedef struct segments_job {
    part_job job;
    char *parts;
} segments_job;

static void make_parts(void *user, int64_t block)
{
    const segments_job *s = user;
    int64_t last = tow__ceil_div(s->job.n, TOW__SEGMENT);
    for (int64_t i = block * SEGMENTS; i < tow__min((block + 1) * SEGMENTS, last); i++) {
        int64_t at = i * TOW__SEGMENT, n = tow__min(TOW__SEGMENT, s->job.n - at);
        s->job.reducer->rows(1, 0, n, s->job.x + (size_t)at * s->job.size, s->parts + (size_t)i * s->job.size);
    }
}

static void run_part(const tow__kernel_call *call)
{
    part_job job = job_of(call);
    const tow__reducer *reducer = job.reducer;
    if (job.lanes) {
        tow__team_run(call->team, tow__ceil_div(job.columns, COLUMNS), add_strip, &job);
        return;
    }
    segments_job s = {job, call->scratch};
    int64_t segments = tow__ceil_div(job.n, TOW__SEGMENT);
    tow__team_run(call->team, tow__ceil_div(segments, SEGMENTS), make_parts, &s);
    for (int64_t i = 0; i < segments; i++) {
        const char *part = s.parts + (size_t)i * job.size;
        if (job.start == 0 && i == 0)
            memcpy(job.out, part, job.size);
        else
            reducer->join(1, job.out, part);
    }
}

static size_t scratch_part(const tow__kernel_call *call)
{
    if (tow__buffer_count(&call->out[0]) > 1) return 0;
    return (size_t)tow__ceil_div(tow__buffer_count(&call->in[0]), TOW__SEGMENT) * tow_dtype_size(call->in[0].dtype);
}

#define PART(name)                                                                                                     \
    {                                                                                                                  \
        .primitive = name, .variant = TOW__PART_OF_SUM, .dtypes = TOW__ALL_DTYPES, .run = run_part,                    \
        .scratch = scratch_part, .engine = "vector"                                                                    \
    }
static const tow__kernel kernels[] = {PART("reduce_and"),  PART("reduce_max"), PART("reduce_min"), PART("reduce_or"),
                                      PART("reduce_prod"), PART("reduce_sum"), PART("reduce_xor")};
const tow__kernel_table tow__kernels_reduce_part = {kernels, sizeof kernels / sizeof kernels[0]};

/* argmax of floats as vector code: the first of equal maxima, NaN counts as the largest. If rows lie side by side, a
 * strip of them is compared at once; long contiguous rows one by one; short ones are transposed into such a strip.
 * Other layouts are left to the plain twin, and so are integers. */
#include "src/kernels/math.h"
#include "src/kernels/reductions/reduce.h"
#include "src/kernels/tables.h"

enum {
    STRIP = 64, /* rows at once */
    LANES = 16,
    SHORT = 64 /* elements, at most, of rows that are transposed */
};

typedef struct argmax_functions {
    void (*across)(int64_t rows, int64_t n, const void *x, int64_t step, i32 *out);
    void (*along)(int64_t n, const void *x, i32 *out);
    void (*transpose)(int64_t rows, int64_t n, const void *x, int64_t step, void *tile);
} argmax_functions;

#define T          f32
#define BITS       i32
#define NAN_KEY    0x7F800001
#define NAME(name) name##_f32
#include "src/kernels/reductions/argmax.inc"

#define T          f64
#define BITS       int64_t
#define NAN_KEY    0x7FF0000000000001
#define NAME(name) name##_f64
#include "src/kernels/reductions/argmax.inc"

typedef struct argmax_job {
    const argmax_functions *f;
    tow__reduction_axes x;
    int64_t n, step; /* elements of a row, which are so far apart */
    bool across;
    int64_t last, strips; /* rows of the last kept axis, and its strips */
    int64_t rows;         /* of a strip, at most */
    int64_t per_block;    /* strips */
    i32 *out;
} argmax_job;

static void run_strip(const argmax_job *job, int64_t first, int64_t rows)
{
    const tow__strided *kept = &job->x.kept;
    const char *x = kept->data + tow__strided_offset(kept, first) * (int64_t)kept->size;
    const int64_t apart = kept->rank > 0 ? kept->strides[kept->rank - 1] : 0;
    uint64_t tile[SHORT * STRIP];
    if (job->across) {
        job->f->across(rows, job->n, x, job->step, job->out + first);
    } else if (job->n <= SHORT) {
        job->f->transpose(rows, job->n, x, apart, tile);
        job->f->across(rows, job->n, tile, STRIP, job->out + first);
    } else {
        for (int64_t r = 0; r < rows; r++)
            job->f->along(job->n, x + r * apart * (int64_t)kept->size, job->out + first + r);
    }
}

/* Strips do not leave the last kept axis. */
static void argmax_block(void *user, int64_t block)
{
    const argmax_job *job = user;
    const int64_t rows = job->x.kept.count, strips = rows / job->last * job->strips;
    const int64_t end = tow__min((block + 1) * job->per_block, strips);
    for (int64_t s = block * job->per_block; s < end; s++) {
        int64_t at = s % job->strips * job->rows;
        run_strip(job, s / job->strips * job->last + at, tow__min(job->rows, job->last - at));
    }
}

static void run_argmax(const tow__kernel_call *call)
{
    const tow__axis_params *p = call->params;
    const tow__ints axes = {.n = 1, .v = {p->axis}};
    argmax_job job = {.x = tow__reduction_axes_of(&call->in[0], &axes), .out = call->out[0].data};
    const tow__strided *kept = &job.x.kept, *row = &job.x.reduced;
    job.f = call->in[0].dtype == TOW_F64 ? &functions_f64 : &functions_f32;
    job.n = row->count;
    job.step = row->rank > 0 ? row->strides[0] : 1;
    job.last = kept->rank > 0 ? kept->dims[kept->rank - 1] : 1;
    job.across = kept->rank > 0 && kept->strides[kept->rank - 1] == 1 && job.step != 1;
    if (job.n == 0 || kept->count == 0 || (!job.across && job.step != 1)) {
        tow__kernel_reference("argmax", call->in[0].dtype)->run(call);
        return;
    }
    job.rows = job.across || job.n <= SHORT ? STRIP : tow__max(1, tow__min(STRIP, TOW__BLOCK / job.n));
    job.strips = tow__ceil_div(job.last, job.rows);
    job.per_block = tow__max(1, TOW__BLOCK / (job.rows * job.n));
    tow__team_run(call->team, tow__ceil_div(kept->count / job.last * job.strips, job.per_block), argmax_block, &job);
}

static const tow__kernel kernels[] = {{"argmax", TOW__WIDE_FLOATS, run_argmax, NULL, "vector"}};
const tow__kernel_table tow__kernels_argmax = {kernels, sizeof kernels / sizeof kernels[0]};

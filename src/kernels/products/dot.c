/* dot_general as matrix products.
 *
 *   x: batch axes, free axes, contracted axes  ->  A[batch][m, k]       y: likewise  ->  B[batch][k, n]
 *   result: [batch, free of x, free of y] = C[batch][m, n], row-major
 *
 * Axes that lie suitably in memory merge into one m, n or k, so transposes and most views are strides. If the free axes
 * do not merge, the outer ones become further products on rows or columns of the same C. If the contracted axes do not
 * merge, or where an operand repeats elements or runs backwards, it is packed into scratch memory first, which changes
 * no bits.
 *
 * Many products run one by one on the team. A few large ones are cut along the longer of m and n, one slice per thread:
 * engines guarantee that a cut changes no bits (gemm.h), and libraries' own threads wait for each other in spinning
 * barriers, which costs a factor of ten as soon as a core is shared. The engine is chosen once, for the whole product.
 * A C of one column is computed as one row, with exchanged operands: engines know rows, and their bits are the same.
 * Operands of 16 bits, and a result of 16 bits, go to the engine as they are stored (gemm.h).
 * All this is worked out when a program is linked; what is left to a run are addresses. */
#include <string.h>

#include "src/base/params.h"
#include "src/kernels/halves.h"
#include "src/kernels/products/dot.h"
#include "src/kernels/products/gemm_own.h"
#include "src/kernels/tables.h"

enum {
    NARROW = 8,      /* inner free axes smaller than this are packed rather than looped over */
    LARGE = 1 << 19, /* m n k from which one product is worth several threads */
    FEW = 4,         /* so many products or more are not cut */
    PACK = 64,       /* columns of an operand that a thread packs at a time, so that it reads long lines */
    CUT = 32         /* slices end at multiples of this: of the widths of all usual register tiles */
};
_Static_assert((int)CUT % (int)TOW__GEMM_PACKED_COLUMNS == 0 && (int)PACK % (int)TOW__GEMM_PACKED_COLUMNS == 0,
               "slices of a packed operand are whole panels");

#define NANOSECONDS 0.02 /* of one multiply-add on one thread, about */

typedef struct axes {
    int n;
    int64_t dims[TOW_MAX_RANK], strides[TOW_MAX_RANK];
} axes;

/* One operand: its batch axes unmerged (they pair with those of the other), free and contracted axes merged. */
typedef struct operand {
    axes batch, free, contract;
    size_t pack_bytes;      /* 0: used where it lies */
    tow__strided pack_from; /* axes batch, free, contract or batch, contract, free */
} operand;

/* Everything but addresses. */
typedef struct dot_job {
    operand x, y;
    tow__gemm product; /* of one job */
    tow__gemm_choice choice;
    const tow__gemm_engine *engine;
    size_t engine_bytes; /* of scratch memory for each thread */
    tow_dtype dtype;
    int64_t m, n; /* of the whole C */
    int64_t batches, x_outer, y_outer, jobs;
    int64_t slices; /* per job */
    int64_t groups; /* of k: `product` is that of one */
    bool exchanged; /* x is operand 1: C has one column, which is computed as one row. No bits change */
    double nanoseconds;
} dot_job;

/* A job on its addresses. */
typedef struct dot_run {
    const dot_job *job;
    const char *x, *y;
    char *out, *scratch;
    void *packed; /* y, or NULL */
    const tow__epilogue *epilogue;
    int64_t next_y; /* bytes from y to that of the next call; 0: unknown */
    const tow__span *read_after;
    bool adds;
} dot_run;

static size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

static void append(axes *to, int64_t dim, int64_t stride)
{
    to->dims[to->n] = dim;
    to->strides[to->n++] = stride;
}

static int64_t count(const axes *a)
{
    int64_t product = 1;
    for (int i = 0; i < a->n; i++) product *= a->dims[i];
    return product;
}

static axes merge(const axes *a)
{
    tow__strided s = tow__strided_of(NULL, TOW_F32, a->n, a->dims, a->strides);
    axes merged = {.n = s.rank};
    memcpy(merged.dims, s.dims, sizeof merged.dims);
    memcpy(merged.strides, s.strides, sizeof merged.strides);
    return merged;
}

static axes select_axes(const tow__buffer *b, const tow__ints *which)
{
    axes result = {0};
    for (int i = 0; i < which->n; i++) append(&result, b->dims[which->v[i]], b->strides[which->v[i]]);
    return result;
}

static axes free_axes(const tow__buffer *b, const tow__ints *batch, const tow__ints *contract)
{
    unsigned taken = 0;
    for (int i = 0; i < batch->n; i++) taken |= 1u << batch->v[i];
    for (int i = 0; i < contract->n; i++) taken |= 1u << contract->v[i];
    axes result = {0};
    for (int i = 0; i < b->rank; i++)
        if ((taken >> i & 1) == 0) append(&result, b->dims[i], b->strides[i]);
    return result;
}

/* Last dimension and stride of merged axes: those of one row, column or contraction. */
static int64_t inner_dim(const axes *a) { return a->n > 0 ? a->dims[a->n - 1] : 1; }
static int64_t inner_stride(const axes *a) { return a->n > 0 ? a->strides[a->n - 1] : 1; }

static bool usable(const operand *o)
{
    axes rows = merge(&o->free), k = merge(&o->contract);
    if (k.n > 1) return false;
    if (rows.n > 1 && inner_dim(&rows) < NARROW) return false;
    return tow__gemm_plain(inner_dim(&rows), inner_dim(&k), inner_stride(&rows), inner_stride(&k));
}

/* Row-major strides for `a`, innermost step `step`; returns the next step. */
static int64_t lay_out(axes *a, int64_t step)
{
    for (int i = a->n - 1; i >= 0; i--) {
        a->strides[i] = step;
        step *= a->dims[i];
    }
    return step;
}

static void append_all(axes *to, const axes *from)
{
    for (int i = 0; i < from->n; i++) append(to, from->dims[i], from->strides[i]);
}

/* Makes the operand contiguous as [batch, free, contract] (x) or [batch, contract, free] (y). Batch axes that repeat
 * (stride 0) are packed once. */
static void pack(operand *o, const tow__buffer *b, bool contract_last)
{
    axes all = {0}, batch = o->batch;
    for (int i = 0; i < batch.n; i++)
        if (batch.strides[i] == 0) batch.dims[i] = 1;
    append_all(&all, &batch);
    append_all(&all, contract_last ? &o->free : &o->contract);
    append_all(&all, contract_last ? &o->contract : &o->free);
    o->pack_from = tow__strided_of(b->data, b->dtype, all.n, all.dims, all.strides);
    o->pack_bytes = round_up((size_t)o->pack_from.count * o->pack_from.size);
    int64_t step = lay_out(contract_last ? &o->contract : &o->free, 1);
    step = lay_out(contract_last ? &o->free : &o->contract, step);
    lay_out(&batch, step);
    for (int i = 0; i < batch.n; i++)
        if (o->batch.strides[i] != 0) o->batch.strides[i] = batch.strides[i];
}

static operand prepare_operand(const tow__buffer *b, const tow__ints *batch, const tow__ints *contract,
                               bool contract_last)
{
    operand o = {.batch = select_axes(b, batch), .contract = select_axes(b, contract)};
    o.free = free_axes(b, batch, contract);
    if (!usable(&o)) pack(&o, b, contract_last);
    o.free = merge(&o.free);
    o.contract = merge(&o.contract);
    return o;
}

/* The beginning of slice `index` of an axis: a multiple of CUT, or the end. */
static int64_t slice_begin(int64_t length, int64_t index, int64_t slices)
{
    return tow__min(index * tow__ceil_div(length, CUT) / slices * CUT, length);
}

/* Scratch memory of one thread: slices are cut into tiles each for itself, and a shorter one may have larger ones. */
static size_t scratch_of_engine(const dot_job *job)
{
    tow__gemm g = job->product;
    int64_t *cut = g.m >= g.n ? &g.m : &g.n;
    const int64_t length = *cut;
    size_t most = 0;
    if (job->groups <= 1) return tow__gemm_scratch(&g, job->engine);
    for (int64_t i = 0; i < job->slices; i++) {
        *cut = slice_begin(length, i + 1, job->slices) - slice_begin(length, i, job->slices);
        const size_t bytes = tow__gemm_groups_scratch(&g, job->engine, job->groups);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* The engine, and how the work is split: by shapes alone, except that there is at most one slice per thread. */
static void choose_engine(dot_job *job, const tow__team *team)
{
    tow__gemm *g = &job->product;
    if (team && team->products) job->choice = *team->products;
    g->choice = &job->choice;
    job->engine = tow__gemm_choose(g);
    double work = (double)g->m * (double)g->n * (double)g->k * (double)job->groups;
    job->nanoseconds = work * (double)job->jobs * NANOSECONDS;
    bool large = work >= LARGE && job->jobs < FEW && job->engine->cuts;
    job->slices = large && team ? team->threads : 1;
    job->engine_bytes = round_up(scratch_of_engine(job));
    g->choice = NULL; /* the job may move: runs set it */
}

/* kc: 0, or that of the product of which this is a part */
static dot_job job_of(const tow__kernel_call *call, int64_t kc)
{
    const tow__dot_params *p = call->params;
    const tow_dtype in[2] = {call->in[0].dtype, call->in[1].dtype}, out = call->out[0].dtype;
    dot_job job = {.dtype = tow__wide(out)};
    job.x = prepare_operand(&call->in[0], &p->lhs_batch, &p->lhs_contract, true);
    job.y = prepare_operand(&call->in[1], &p->rhs_batch, &p->rhs_contract, false);
    /* One column becomes one row, unless it is a part of more columns: the matrix unit rounds an exchanged product in
     * another order, and parts have the bits of the whole. */
    job.exchanged = p->columns <= 1 && count(&job.y.free) == 1 && count(&job.x.free) > 1;
    if (job.exchanged) {
        operand x = job.x;
        job.x = job.y, job.y = x;
    }
    job.groups = tow__max(1, p->groups);
    job.m = count(&job.x.free);
    job.n = count(&job.y.free);
    int64_t rows = p->rows > 0 ? p->rows : job.exchanged ? job.n : job.m;
    int64_t columns = p->columns > 0 ? p->columns : job.exchanged ? job.m : job.n;
    job.product = (tow__gemm){.dtype = job.dtype,
                              .a_dtype = tow__half_or_none(in[job.exchanged]),
                              .b_dtype = tow__half_or_none(in[!job.exchanged]),
                              .c_dtype = tow__half_or_none(out),
                              .threads = 1,
                              .m = inner_dim(&job.x.free),
                              .n = inner_dim(&job.y.free),
                              .k = inner_dim(&job.x.contract) / job.groups,
                              .kc = kc,
                              .rows = job.exchanged ? columns : rows,
                              .columns = job.exchanged ? rows : columns,
                              .a_row = inner_stride(&job.x.free),
                              .a_column = inner_stride(&job.x.contract),
                              .b_row = inner_stride(&job.y.contract),
                              .b_column = inner_stride(&job.y.free),
                              .ldc = job.n};
    job.batches = count(&job.x.batch);
    bool empty = job.m == 0 || job.n == 0;
    job.x_outer = empty ? 0 : job.m / job.product.m;
    job.y_outer = empty ? 0 : job.n / job.product.n;
    job.jobs = job.batches * job.x_outer * job.y_outer;
    choose_engine(&job, call->team);
    return job;
}

static void no_epilogue(void *user, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    (void)user, (void)row, (void)rows, (void)column, (void)columns;
}

/* The product of a slice, as engines are compared on it: the first one, if they differ in length. */
static tow__gemm slice_of(const dot_job *job, const tow__kernel_call *call, bool adds)
{
    static char packed; /* nobody reads it */
    tow__gemm g = job->product;
    int64_t *cut = g.m >= g.n ? &g.m : &g.n;
    if (job->slices > 1) *cut = slice_begin(*cut, 1, job->slices);
    g.choice = &job->choice;
    g.accumulate = adds;
    if (!adds && call->n_in > 2) g.packed = &packed;
    if (call->epilogue != NULL) g.epilogue = no_epilogue;
    return g;
}

/* A job that is about to run, or as it would: an engine with the same bits may be faster on the very shape of its
 * slices. */
static void prepare_job(dot_job *job, const tow__kernel_call *call, bool adds)
{
    if (job->jobs == 0 || job->groups > 1) return; /* tiles of groups have shapes of their own */
    tow__gemm g = slice_of(job, call, adds);
    job->engine = tow__gemm_prepare(&g, job->engine);
    job->product.code = g.code;
}

static void tune_job(dot_job *job, const tow__kernel_call *call, bool adds)
{
    tow__gemm_tune_for(&job->product);
    prepare_job(job, call, adds);
}

/* Offset of step `index` over the first n axes. */
static int64_t offset_of(const axes *a, int n, int64_t index)
{
    int64_t offset = 0;
    for (int i = n - 1; i >= 0; i--) {
        offset += index % a->dims[i] * a->strides[i];
        index /= a->dims[i];
    }
    return offset;
}

/* Fills *g where it lies: a copy would wait for what has just been written piece by piece. */
static void find_product(const dot_run *r, int64_t index, tow__gemm *g)
{
    const dot_job *job = r->job;
    *g = job->product;
    g->choice = &job->choice;
    g->accumulate = r->adds;
    g->a = r->x;
    g->b = r->y;
    g->c = r->out;
    g->packed = r->packed;
    if (job->jobs == 1) return;
    int64_t y_outer = index % job->y_outer, x_outer = index / job->y_outer % job->x_outer;
    int64_t batch = index / job->y_outer / job->x_outer;
    int64_t x = offset_of(&job->x.batch, job->x.batch.n, batch) + offset_of(&job->x.free, job->x.free.n - 1, x_outer);
    int64_t y = offset_of(&job->y.batch, job->y.batch.n, batch) + offset_of(&job->y.free, job->y.free.n - 1, y_outer);
    g->a = r->x + x * tow__gemm_a_bytes(g);
    g->b = r->y + y * tow__gemm_b_bytes(g);
    g->c = r->out + ((batch * job->m + x_outer * g->m) * job->n + y_outer * g->n) * tow__gemm_c_bytes(g);
}

/* Slice `index` of g: rows or columns first .. limit. */
static void cut(tow__gemm *g, int64_t index, int64_t slices)
{
    int64_t length = g->m >= g->n ? g->m : g->n;
    int64_t first = slice_begin(length, index, slices), limit = slice_begin(length, index + 1, slices);
    if (g->m >= g->n) {
        g->a = (const char *)g->a + first * g->a_row * tow__gemm_a_bytes(g);
        g->c = (char *)g->c + first * g->ldc * tow__gemm_c_bytes(g);
        g->m = limit - first;
    } else {
        g->b = (const char *)g->b + first * g->b_column * tow__gemm_b_bytes(g);
        g->c = (char *)g->c + first * tow__gemm_c_bytes(g);
        g->n = limit - first;
        g->packed_column = first;
    }
}

static void run_block(void *user, int64_t block, int thread)
{
    const dot_run *r = user;
    const dot_job *job = r->job;
    tow__gemm g;
    find_product(r, block / job->slices, &g);
    if (job->slices > 1) cut(&g, block % job->slices, job->slices);
    if (r->next_y != 0) g.next_b = (const char *)g.b + r->next_y;
    g.read_after = r->read_after;
    if (job->engine_bytes > 0) g.scratch = r->scratch + (size_t)thread * job->engine_bytes;
    tow__epilogue_place p = {r->epilogue, ((char *)g.c - r->out) / tow__gemm_c_bytes(&g), job->n};
    if (r->epilogue) {
        g.epilogue = tow__epilogue_on_rectangle;
        g.user = &p;
        for (int i = 0; i < TOW__EPILOGUE_OPERANDS && r->epilogue->operands[i]; i++)
            g.epilogue_operands[i] = (const char *)r->epilogue->operands[i] + ((char *)g.c - r->out);
    }
    if (job->groups > 1)
        tow__gemm_run_groups(&g, job->engine, job->groups);
    else
        tow__gemm_run(&g, job->engine);
}

static const char *run_packing(const tow__kernel_call *call, const operand *o, const tow__buffer *b, char **scratch)
{
    if (o->pack_bytes == 0) return b->data;
    int64_t dims = o->pack_from.count;
    tow__strided to = tow__strided_of(*scratch, b->dtype, 1, &dims, &(int64_t){1}), from = o->pack_from;
    from.data = b->data;
    tow__strided_store(call->team, &to, &from);
    const char *packed = *scratch;
    *scratch += o->pack_bytes;
    return packed;
}

typedef struct pack_job {
    tow__gemm whole; /* of B and what it is packed into */
    const tow__gemm_engine *engine;
} pack_job;

static void pack_columns(void *user, int64_t block)
{
    const pack_job *job = user;
    tow__gemm g = job->whole;
    g.packed_column = block * PACK;
    g.b = (const char *)g.b + g.packed_column * g.b_column * tow__gemm_b_bytes(&g);
    g.n = tow__min(PACK, g.n - g.packed_column);
    tow__gemm_pack(&g, job->engine);
}

static void run_pack(tow__team *team, const tow__gemm *g, const tow__gemm_engine *engine)
{
    pack_job job = {*g, engine};
    tow__team_run(team, tow__ceil_div(g->n, PACK), pack_columns, &job);
}

static void run_job(const tow__kernel_call *call, const dot_job *job, bool adds)
{
    dot_run r = {
        .job = job, .out = call->out[0].data, .scratch = call->scratch, .epilogue = call->epilogue, .adds = adds};
    r.packed = call->n_in > 2 ? call->in[2].data : NULL;
    r.x = run_packing(call, &job->x, &call->in[job->exchanged ? 1 : 0], &r.scratch);
    r.y = run_packing(call, &job->y, &call->in[job->exchanged ? 0 : 1], &r.scratch);
    bool known = call->next_operand != NULL && !job->exchanged;
    if (known && job->y.pack_bytes == 0 && job->jobs == 1) r.next_y = (const char *)call->next_operand - r.y;
    if (job->jobs * job->slices == 1) {
        r.read_after = call->read_next;
        run_block(&r, 0, 0);
    } else {
        tow__team_run_indexed(tow__team_for(call->team, job->nanoseconds), job->jobs * job->slices, run_block, &r);
    }
}

static void run_product(const tow__kernel_call *call, int64_t kc, bool adds)
{
    if (call->state) {
        run_job(call, call->state, adds);
    } else {
        dot_job job = job_of(call, kc);
        run_job(call, &job, adds);
    }
}

static void run_dot_general(const tow__kernel_call *call) { run_product(call, 0, false); }

static void prepare_dot_general(const tow__kernel_call *call, void *state) { *(dot_job *)state = job_of(call, 0); }

static void tune_dot_general(const tow__kernel_call *call, void *state) { tune_job(state, call, false); }

static size_t scratch_bytes(const tow__kernel_call *call, const dot_job *job)
{
    return job->x.pack_bytes + job->y.pack_bytes + (size_t)tow__threads(call) * job->engine_bytes;
}

static size_t scratch_dot_general(const tow__kernel_call *call)
{
    dot_job job = job_of(call, 0);
    return scratch_bytes(call, &job);
}

static int64_t free_elements(tow_type type, const tow__ints *batch, const tow__ints *contract)
{
    int64_t taken = 1;
    for (int i = 0; i < batch->n; i++) taken *= type.dims[batch->v[i]];
    for (int i = 0; i < contract->n; i++) taken *= type.dims[contract->v[i]];
    return taken > 0 ? tow_type_element_count(type) / taken : 0;
}

void tow__dot_sizes(tow__dot_params *p, tow_type x, tow_type y)
{
    p->rows = free_elements(x, &p->lhs_batch, &p->lhs_contract);
    p->columns = free_elements(y, &p->rhs_batch, &p->rhs_contract);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

int64_t tow__dot_kc(const tow__kernel_call *call)
{
    const tow__dot_params *p = call->params;
    if (call->out[0].dtype != TOW_F32 || p->lhs_batch.n > 0 || p->lhs_contract.n == 0 || p->groups > 1) return 0;
    dot_job job = job_of(call, 0);
    return tow__gemm_in_parts(&job.product, job.engine) ? tow__gemm_kc(job.product.k) : 0;
}

static void run_part(const tow__kernel_call *call)
{
    const tow__sum_part *p = call->extras.part;
    run_product(call, p->depth, !p->row || *p->row > 0);
}

static void tune_part(const tow__kernel_call *call, void *state)
{
    const dot_job *job = state;
    (void)call;
    tow__gemm_tune_for(&job->product);
}

static void prepare_part(const tow__kernel_call *call, void *state)
{
    *(dot_job *)state = job_of(call, call->extras.part->depth);
}

static size_t scratch_part(const tow__kernel_call *call)
{
    dot_job job = job_of(call, call->extras.part->depth);
    return scratch_bytes(call, &job);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* The sum has the bits of a product and an addition if each element is one chain of multiply-adds. */
static bool takes_add(const tow__kernel_call *call)
{
    const tow__dot_params *p = call->params;
    if (call->out[0].dtype != TOW_F32 || p->lhs_contract.n == 0 || p->groups > 1) return false;
    dot_job job = job_of(call, 0);
    const int64_t k = job.product.k;
    return job.jobs > 0 && k > 0 && job.engine->in_parts && k <= tow__gemm_kc(k);
}

static void prepare_add(const tow__kernel_call *call, void *state) { *(dot_job *)state = job_of(call, 0); }

static void tune_add(const tow__kernel_call *call, void *state) { tune_job(state, call, true); }

static void run_add(const tow__kernel_call *call)
{
    const tow__buffer *c = &call->in[call->n_in - 1], *out = &call->out[0];
    tow__kernel_call product = *call;
    product.n_in = 2;
    if (c->data != out->data) {
        tow__strided to = tow__strided_buffer(out), from = tow__strided_buffer(c);
        tow__strided_store(call->team, &to, &from);
    }
    run_product(&product, 0, true);
}

/* The engine of the whole product, of f32 or as it is stored. */
static const tow__gemm_engine *engine_of(const tow__team *team, const tow__dot_params *p, tow_type x, tow_type y,
                                         bool stored)
{
    tow__dot_params sizes = *p;
    int64_t k = 1;
    for (int i = 0; i < p->lhs_contract.n; i++) k *= x.dims[p->lhs_contract.v[i]];
    tow__dot_sizes(&sizes, x, y);
    if (p->rows > 0) sizes.rows = p->rows, sizes.columns = p->columns;
    tow__gemm g = {.dtype = TOW_F32, .m = sizes.rows, .n = sizes.columns, .k = k / tow__max(1, p->groups)};
    g.a_row = g.k, g.a_column = 1, g.b_row = g.n, g.b_column = 1, g.ldc = g.n;
    if (stored) g.a_dtype = tow__half_or_none(x.dtype), g.b_dtype = tow__half_or_none(y.dtype);
    g.choice = team != NULL ? team->products : NULL;
    return tow__gemm_choose(&g);
}

static bool is_unit(const tow__gemm_engine *engine) { return engine == &tow__gemm_amx || engine == &tow__gemm_dots; }

bool tow__dot_has_bits_of_f32(const tow__team *team, const tow__dot_params *p, tow_type x, tow_type y)
{
    if (x.dtype != TOW_BF16 || y.dtype != TOW_BF16) return true;
    return !is_unit(engine_of(team, p, x, y, false)) && !is_unit(engine_of(team, p, x, y, true));
}

/* ---- packed operands --------------------------------------------------------------------------------------------- */

size_t tow__dot_packed(const tow__kernel_call *call, tow__dot_pack_params *params)
{
    const tow_dtype x = call->in[0].dtype, y = call->in[1].dtype, out = call->out[0].dtype;
    /* Who packs has no operand of f64; what the own kernel reads of 16 bits is widened panel by panel. */
    const bool halves = tow__is_half(x) || tow__is_half(y) || tow__is_half(out);
    if (!halves && (y != TOW_F32 || out != TOW_F32)) return 0;
    dot_job job = job_of(call, 0);
    if (halves && !is_unit(job.engine)) return 0;
    if (job.y.pack_bytes > 0 || job.jobs != 1 || job.exchanged || job.groups > 1) return 0;
    *params = (tow__dot_pack_params){*(const tow__dot_params *)call->params, x, job.engine};
    job.product.choice = &job.choice; /* the job stays where it is: panels are as wide as the chosen version's */
    return tow__gemm_packed(&job.product, job.engine);
}

static void run_pack_operand(const tow__kernel_call *call)
{
    const tow__dot_pack_params *p = call->params;
    operand y = prepare_operand(&call->in[0], &p->dot.rhs_batch, &p->dot.rhs_contract, false);
    tow__gemm g = {.dtype = TOW_F32,
                   .a_dtype = tow__half_or_none(p->with),
                   .b_dtype = tow__half_or_none(call->in[0].dtype),
                   .threads = 1,
                   .n = inner_dim(&y.free),
                   .k = inner_dim(&y.contract),
                   .b = call->in[0].data,
                   .b_row = inner_stride(&y.contract),
                   .b_column = inner_stride(&y.free),
                   .packed = call->out[0].data,
                   .choice = call->team != NULL ? call->team->products : NULL};
    run_pack(call->team, &g, p->engine);
}

static const char *pack_engine(const tow__kernel_call *call)
{
    return ((const tow__dot_pack_params *)call->params)->engine->name;
}

static const char *dot_engine(const tow__kernel_call *call)
{
    dot_job job = job_of(call, 0);
    prepare_job(&job, call, false);
    return job.engine->name;
}

static const char *add_engine(const tow__kernel_call *call)
{
    dot_job job = job_of(call, 0);
    prepare_job(&job, call, true);
    return job.engine->name;
}

static size_t explain(const dot_job *job, const tow__kernel_call *call, bool adds, char *text, size_t size)
{
    tow__gemm g = slice_of(job, call, adds);
    const char *unprepared = job->groups > 1 ? "a sum over groups of rows, made in tiles" : NULL;
    if (job->jobs == 0) unprepared = "empty";
    return tow__gemm_explain(&g, job->engine, unprepared, text, size);
}

static size_t dot_reason(const tow__kernel_call *call, char *text, size_t size)
{
    dot_job job = job_of(call, 0);
    return explain(&job, call, false, text, size);
}

static size_t add_reason(const tow__kernel_call *call, char *text, size_t size)
{
    dot_job job = job_of(call, 0);
    return explain(&job, call, true, text, size);
}

/* Parts run on the engine of the whole product. */
static const char *part_engine(const tow__kernel_call *call)
{
    return job_of(call, call->extras.part->depth).engine->name;
}

static size_t part_reason(const tow__kernel_call *call, char *text, size_t size)
{
    dot_job job = job_of(call, call->extras.part->depth);
    tow__gemm g = slice_of(&job, call, false);
    return tow__gemm_explain(&g, job.engine, "made in parts along k", text, size);
}

static const tow__kernel kernels[] = {
    {.primitive = "dot_general",
     .dtypes = TOW__FLOATS,
     .runs_epilogue = true,
     .prefetches = true,
     .run = run_dot_general,
     .scratch = scratch_dot_general,
     .engine_of = dot_engine,
     .reason = dot_reason,
     .state_bytes = sizeof(dot_job),
     .prepare = prepare_dot_general,
     .tune = tune_dot_general},
    {.primitive = "dot_general",
     .variant = TOW__ADDING,
     .takes = takes_add,
     .dtypes = 1u << TOW_F32,
     .prefetches = true,
     .run = run_add,
     .scratch = scratch_dot_general,
     .engine_of = add_engine,
     .reason = add_reason,
     .state_bytes = sizeof(dot_job),
     .prepare = prepare_add,
     .tune = tune_add},
    {.primitive = "dot_general",
     .variant = TOW__PART_OF_SUM,
     .dtypes = 1u << TOW_F32,
     .run = run_part,
     .scratch = scratch_part,
     .engine_of = part_engine,
     .reason = part_reason,
     .state_bytes = sizeof(dot_job),
     .prepare = prepare_part,
     .tune = tune_part},
    {.primitive = "pack_operand", .dtypes = 1u << TOW_F32, .run = run_pack_operand, .engine_of = pack_engine},
};
const tow__kernel_table tow__kernels_dot = {kernels, sizeof kernels / sizeof kernels[0]};

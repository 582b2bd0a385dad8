/* quantized_dot: rows of x become integers once; then threads share the rows of the weight.
 *
 *   one row to six      blocks are decoded as they come from memory, of TOW__FEW_OUTPUTS rows of the weight at a time
 *   more rows           blocks of some rows of the weight become a panel in the cache, with which all rows of x are
 *                       multiplied, TOW__PANEL_ROWS at a time */
#include "src/kernels/quantized/quantized_dot.h"

#include "src/kernels/norms/rows.h"

enum {
    FEW_ROWS = 6,         /* of x, for which no panels are packed */
    TASK_BYTES = 16 << 10 /* of the weight, at least, that a thread takes at a time */
};

typedef struct job {
    const tow__kernel_call *call;
    const tow__quantized_loops *loops;
    tow__row_view x;
    size_t row_bytes; /* of a row of x that is copied; 0: none is */
    const char *w;
    int64_t step, size; /* bytes from row to row of the weight, and of a block */
    int64_t rows, n, blocks;
    int64_t groups_of; /* of a block */
    int64_t groups;    /* along K */
    int64_t outputs;   /* of a task */
    i8 *q;
    f32 *scale;
    i32 *sum, *half;
    tow__quantized_panel *panels; /* of each thread */
    char *copies;
} job;

/* ---- scratch memory ---------------------------------------------------------------------------------------------- */

static size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Lays out what a call needs, from `base` on; returns how much it is. */
static size_t lay_out(job *j, char *base, int threads)
{
    const size_t count = (size_t)(j->rows * j->groups);
    size_t at = 0;
    j->q = (i8 *)(base + at), at += rounded(count * TOW__BLOCK_NUMBERS);
    j->scale = (f32 *)(void *)(base + at), at += rounded(count * sizeof *j->scale);
    j->sum = (i32 *)(void *)(base + at), at += rounded(count * sizeof *j->sum);
    j->half = (i32 *)(void *)(base + at), at += rounded(count * sizeof *j->half);
    j->panels = (tow__quantized_panel *)(void *)(base + at);
    if (j->rows > FEW_ROWS) at += (size_t)threads * sizeof *j->panels;
    j->copies = base + at;
    return at + (size_t)threads * j->row_bytes;
}

static job job_of(const tow__kernel_call *call, char *base)
{
    const tow__buffer *x = &call->in[0], *w = &call->in[1];
    job j = {.call = call, .x = tow__rows_of(x, x->rank - 1), .w = w->data, .n = w->dims[0], .blocks = w->dims[1]};
    j.size = (int64_t)tow__element_bytes(w->dtype);
    j.step = w->strides[0] * j.size;
    j.groups_of = tow_dtype_numbers(w->dtype) / TOW__BLOCK_NUMBERS;
    j.groups = j.blocks * j.groups_of;
    j.rows = j.x.rest.count;
    j.row_bytes = tow__rows_contiguous(&j.x) ? 0 : tow__row_bytes(j.x.length, TOW_F32);
    static char nowhere;
    lay_out(&j, base ? base : &nowhere, tow__threads(call));
    return j;
}

static size_t scratch_quantized_dot(const tow__kernel_call *call)
{
    static _Alignas(64) char nowhere[64];
    job j = job_of(call, NULL);
    return lay_out(&j, nowhere, tow__threads(call));
}

/* ---- x in integers ----------------------------------------------------------------------------------------------- */

TOW__CLONES static void quantize_row(int64_t groups, const f32 *x, i8 *q, f32 *scale, i32 *sum, i32 *half)
{
    for (int64_t g = 0; g < groups; g++, x += TOW__BLOCK_NUMBERS, q += TOW__BLOCK_NUMBERS) {
        scale[g] = tow__quantize_activations(x, q);
        i32 first = 0, second = 0;
        for (int i = 0; i < TOW__BLOCK_NUMBERS / 2; i++) {
            first += q[i];
            second += q[TOW__BLOCK_NUMBERS / 2 + i];
        }
        sum[g] = first + second;
        half[g] = first;
    }
}

static void quantize_task(void *user, int64_t r)
{
    const job *j = user;
    const f32 *x = tow__row(&j->x, r, tow__scratch_of_thread(j->copies, j->row_bytes));
    const int64_t at = r * j->groups;
    quantize_row(j->groups, x, j->q + at * TOW__BLOCK_NUMBERS, j->scale + at, j->sum + at, j->half + at);
}

/* Row r from group g on. */
static tow__activations row_of(const job *j, int64_t r, int64_t g)
{
    const int64_t at = r * j->groups + g;
    return (tow__activations){j->q + at * TOW__BLOCK_NUMBERS, j->scale + at, j->sum + at, j->half + at};
}

/* ---- few rows ---------------------------------------------------------------------------------------------------- */

static void few_task(void *user, int64_t task)
{
    const job *j = user;
    f32 *y = j->call->out[0].data;
    const int64_t end = tow__min((task + 1) * j->outputs, j->n);
    for (int64_t i = task * j->outputs; i < end; i += TOW__FEW_OUTPUTS)
        for (int64_t r = 0; r < j->rows; r++) {
            const tow__activations x = row_of(j, r, 0);
            j->loops->few(j->w + i * j->step, j->step, (int)tow__min(end - i, TOW__FEW_OUTPUTS), j->blocks, &x,
                          y + r * j->n + i);
        }
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* Rows [r, r + TOW__PANEL_ROWS) of x, of which the last one stands for those behind it. Columns [i, i + n) of the
 * result. */
static void multiply_rows(const job *j, const tow__quantized_panel *panel, int64_t r, int64_t g, int64_t groups,
                          int64_t i, int n)
{
    tow__activations x[TOW__PANEL_ROWS];
    f32 *y[TOW__PANEL_ROWS], edge[TOW__PANEL_ROWS][TOW__PANEL_OUTPUTS];
    const bool whole = n == j->loops->panel_outputs;
    for (int k = 0; k < TOW__PANEL_ROWS; k++) {
        const int64_t row = tow__min(r + k, j->rows - 1);
        f32 *to = (f32 *)j->call->out[0].data + row * j->n + i;
        x[k] = row_of(j, row, g);
        if (g == 0) memset(to, 0, (size_t)n * sizeof *to);
        if (!whole) memset(edge[k], 0, sizeof edge[k]), memcpy(edge[k], to, (size_t)n * sizeof *to);
        y[k] = whole ? to : edge[k];
    }
    j->loops->multiply(panel, groups, x, y);
    for (int k = 0; k < TOW__PANEL_ROWS && !whole && r + k < j->rows; k++)
        memcpy((f32 *)j->call->out[0].data + (r + k) * j->n + i, edge[k], (size_t)n * sizeof(f32));
}

static void panel_task(void *user, int64_t task)
{
    const job *j = user;
    const int64_t i = task * j->outputs;
    const int n = (int)tow__min(j->n - i, j->outputs);
    tow__quantized_panel *panel = &j->panels[tow__team_thread()];
    for (int64_t g = 0; g < j->groups; g += TOW__PANEL_GROUPS) {
        const int64_t groups = tow__min(j->groups - g, TOW__PANEL_GROUPS);
        j->loops->pack(j->w + i * j->step + g / j->groups_of * j->size, j->step, n, groups, panel);
        for (int64_t r = 0; r < j->rows; r += TOW__PANEL_ROWS) {
            if (r % 1024 == 0 && r > 0 && tow__cancelled()) return;
            multiply_rows(j, panel, r, g, groups, i, n);
        }
    }
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

void tow__quantized_dot_on(const tow__quantized_engine *engine, const tow__kernel_call *call)
{
    const tow__buffer *w = &call->in[1];
    job j = job_of(call, call->scratch);
    if (j.rows == 0 || j.n == 0) return;
    if (j.blocks > 1 && w->strides[1] != 1) {
        tow__kernel_reference("quantized_dot", TOW_F32)->run(call);
        return;
    }
    j.loops = &engine->loops[tow__blocks_index(w->dtype)];
    if (!j.loops->few) j.loops = &tow__quantized_plain.loops[tow__blocks_index(w->dtype)];
    const double bytes = (double)j.n * (double)j.blocks * (double)j.size, nanoseconds = bytes * (double)j.rows / 20;
    const tow__team *team = tow__team_for(call->team, nanoseconds);
    tow__team_run(j.rows > FEW_ROWS ? team : NULL, j.rows, quantize_task, &j);
    if (j.rows > FEW_ROWS && j.loops->panel_outputs > 0 && j.groups > 0) {
        j.outputs = j.loops->panel_outputs;
        tow__team_run(team, tow__ceil_div(j.n, j.outputs), panel_task, &j);
        return;
    }
    const int64_t group = TOW__FEW_OUTPUTS * tow__max(1, j.step < 0 ? -j.step : j.step);
    j.outputs = TOW__FEW_OUTPUTS * tow__max(1, TASK_BYTES / group);
    tow__team_run(team, tow__ceil_div(j.n, j.outputs), few_task, &j);
}

static bool always(void) { return true; }

const tow__quantized_engine *const tow__quantized_engines[] = {
#if defined(__x86_64__)
    &tow__quantized_avx512_vnni,
#if defined(TOW__HAVE_AVX_VNNI)
    &tow__quantized_avx_vnni,
#endif
    &tow__quantized_avx2,
#endif
    &tow__quantized_plain};
const size_t tow__quantized_engine_count = sizeof tow__quantized_engines / sizeof *tow__quantized_engines;

static const tow__quantized_engine *engine(void)
{
    size_t i = 0;
    while (!tow__quantized_engines[i]->runs()) i++; /* the last one always does */
    return tow__quantized_engines[i];
}

static void run_quantized_dot(const tow__kernel_call *call) { tow__quantized_dot_on(engine(), call); }

static const char *engine_of(const tow__kernel_call *call)
{
    (void)call;
    return engine()->name;
}

static const tow__kernel kernels[] = {
    {.primitive = "quantized_dot",
     .dtypes = 1 << TOW_F32,
     .run = run_quantized_dot,
     .scratch = scratch_quantized_dot,
     .engine = "plain",
     .engine_of = engine_of},
};
const tow__kernel_table tow__kernels_quantized_dot = {kernels, sizeof kernels / sizeof kernels[0]};

/* ---- plain C ----------------------------------------------------------------------------------------------------- */

/* The code adds a block of the weight and the `groups` of x from g on to `all`. */
#define PLAIN(type, groups, ...)                                                                                       \
    TOW__CLONES static void few_##type(const char *w, int64_t step, int n, int64_t blocks, const tow__activations *x,  \
                                       f32 *y)                                                                         \
    {                                                                                                                  \
        for (int i = 0; i < n; i++, w += step) {                                                                       \
            const tow__##type *block = (const void *)w;                                                                \
            f32 all = 0;                                                                                               \
            for (int64_t b = 0; b < blocks; b++, block++) {                                                            \
                const int64_t g = b * (groups);                                                                        \
                const i8 *q = x->q + g * TOW__BLOCK_NUMBERS;                                                           \
                const f32 d = tow__from_f16(block->scale), *scale = x->scale + g;                                      \
                __VA_ARGS__                                                                                            \
            }                                                                                                          \
            y[i] = all;                                                                                                \
        }                                                                                                              \
    }
/* clang-format off */
PLAIN(q8_0, 1,
    i32 sum = 0;
    for (int j = 0; j < 32; j++) sum += block->q[j] * q[j];
    all = tow__fma(d * *scale, (f32)sum, all);)
PLAIN(q4_0, 1,
    i32 sum = -8 * x->sum[g];
    for (int j = 0; j < 16; j++) sum += (block->q[j] & 15) * q[j] + (block->q[j] >> 4) * q[16 + j];
    all = tow__fma(d * *scale, (f32)sum, all);)
PLAIN(q4_k, 8,
    const f32 m = tow__from_f16(block->minimum);
    for (int k = 0; k < 8; k++, q += 32) {
        i32 sum = 0;
        int s, t;
        tow__q4_k_levels_of(block, k, &s, &t);
        for (int j = 0; j < 32; j++) sum += tow__q4_k_at(block, k, j) * q[j];
        all = tow__fma(d * (f32)s * scale[k], (f32)sum, all);
        all = tow__fma(-m * (f32)t, scale[k] * (f32)x->sum[g + k], all);
    })
PLAIN(q6_k, 8,
    for (int k = 0; k < 8; k++, q += 32) {
        i32 first = -32 * x->half[g + k], second = -32 * (x->sum[g + k] - x->half[g + k]);
        for (int j = 0; j < 16; j++) {
            first += tow__q6_k_at(block, k, j) * q[j];
            second += tow__q6_k_at(block, k, 16 + j) * q[16 + j];
        }
        all = tow__fma(d * scale[k], (f32)(block->levels[2 * k] * first + block->levels[2 * k + 1] * second), all);
    })
/* clang-format on */

const tow__quantized_engine tow__quantized_plain = {
    .name = "plain",
    .runs = always,
    .loops = {{.few = few_q8_0}, {.few = few_q4_0}, {.few = few_q4_k}, {.few = few_q6_k}}};

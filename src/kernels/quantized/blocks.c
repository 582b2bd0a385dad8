/* quantize, dequantize: rows of blocks, in parts on the team. */
#include "src/base/blocks.h"
#include "src/kernels/norms/rows.h"
#include "src/kernels/tables.h"

typedef struct job {
    const tow__kernel_call *call;
    tow__row_view rows; /* of the operand */
    bool makes_blocks;
    int64_t numbers;    /* in a block */
    int64_t blocks;     /* in a row */
    int64_t parts, per; /* of a row, and blocks in one, where rows are long; */
    int64_t per_task;   /* rows in one, where they are short */
    size_t row_bytes;
} job;

static void convert(const job *j, int64_t n, const char *from, int64_t block, const char *row_of_result)
{
    const tow_dtype dtype = j->makes_blocks ? j->call->out[0].dtype : j->call->in[0].dtype;
    const int64_t size = (int64_t)tow__element_bytes(dtype), numbers = j->numbers * (int64_t)sizeof(f32);
    char *to = (char *)(uintptr_t)row_of_result;
    if (j->makes_blocks)
        tow__quantize_blocks(dtype, n, (const f32 *)(const void *)(from + block * numbers), to + block * size);
    else
        tow__dequantize_blocks(dtype, n, from + block * size, (f32 *)(void *)(to + block * numbers));
}

static void run_task(void *user, int64_t task)
{
    const job *j = user;
    const size_t result = tow__element_bytes(j->call->out[0].dtype) * (size_t)(j->makes_blocks ? 1 : j->numbers);
    const int64_t first = task / j->parts * j->per_task, end = tow__min(first + j->per_task, j->rows.rest.count);
    const int64_t block = task % j->parts * j->per, n = tow__min(j->per, j->blocks - block);
    void *buffer = tow__scratch_of_thread(j->call->scratch, j->row_bytes);
    for (int64_t r = first; r < end; r++) {
        const char *row = tow__row(&j->rows, r, buffer);
        convert(j, n, row, block, (const char *)j->call->out[0].data + (size_t)(r * j->blocks) * result);
    }
}

static bool is_gapless(const tow__buffer *x) { return x->dims[x->rank - 1] <= 1 || x->strides[x->rank - 1] == 1; }

static void run_blocks(const tow__kernel_call *call)
{
    const tow__buffer *x = &call->in[0];
    job j = {.call = call, .rows = tow__rows_of(x, x->rank - 1), .makes_blocks = x->dtype == TOW_F32, .parts = 1};
    j.numbers = tow_dtype_numbers(j.makes_blocks ? call->out[0].dtype : x->dtype);
    const int64_t part = TOW__BLOCK / j.numbers; /* blocks that a thread takes at a time */
    j.blocks = j.per = j.makes_blocks ? j.rows.length / j.numbers : j.rows.length;
    if (j.rows.rest.count == 0 || j.blocks == 0) return;
    if (is_gapless(x) && j.blocks > part) {
        j.per = part;
        j.parts = tow__ceil_div(j.blocks, part);
    }
    j.per_task = tow__max(1, part / j.per);
    j.row_bytes = is_gapless(x) ? 0 : tow__row_bytes(j.rows.length, x->dtype);
    tow__team_run(call->team, tow__ceil_div(j.rows.rest.count, j.per_task) * j.parts, run_task, &j);
}

static size_t scratch_blocks(const tow__kernel_call *call)
{
    const tow__buffer *x = &call->in[0];
    return is_gapless(x) ? 0 : (size_t)tow__threads(call) * tow__row_bytes(x->dims[x->rank - 1], x->dtype);
}

static const tow__kernel kernels[] = {
    {"dequantize", TOW__BLOCKS, run_blocks, scratch_blocks, "vector"},
    {"quantize", 1 << TOW_F32, run_blocks, scratch_blocks, "vector"},
};
const tow__kernel_table tow__kernels_blocks = {kernels, sizeof kernels / sizeof kernels[0]};

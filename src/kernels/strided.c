/* Views of strided operands, and the driver of all elementwise kernels. */
#include "src/kernels/strided.h"

#include "src/base/blocks.h"

#include <string.h>

tow__strided tow__strided_of(void *data, tow_dtype dtype, int rank, const int64_t *dims, const int64_t *strides)
{
    tow__strided v = {.data = data, .size = tow__element_bytes(dtype), .count = 1};
    for (int i = 0; i < rank; i++) {
        v.count *= dims[i];
        if (dims[i] == 1) continue;
        int last = v.rank - 1;
        if (last >= 0 && v.strides[last] == strides[i] * dims[i]) {
            v.dims[last] *= dims[i];
            v.strides[last] = strides[i];
        } else {
            v.dims[v.rank] = dims[i];
            v.strides[v.rank++] = strides[i];
        }
    }
    v.flat = v.rank == 0 || (v.rank == 1 && v.strides[0] == 1);
    v.constant = v.rank == 0 || (v.rank == 1 && v.strides[0] == 0);
    return v;
}

tow__strided tow__strided_buffer(const tow__buffer *b)
{
    return tow__strided_of(b->data, b->dtype, b->rank, b->dims, b->strides);
}

tow__strided tow__strided_repeated(const tow__buffer *b, int64_t count)
{
    if (b->rank > 0) return tow__strided_buffer(b);
    return tow__strided_of(b->data, b->dtype, 1, &count, &(int64_t){0});
}

/* Splits index into coordinates; returns the offset in elements. */
static int64_t unravel(const tow__strided *v, int64_t index, int64_t *coordinate)
{
    int64_t offset = 0;
    for (int i = v->rank - 1; i >= 0; i--) {
        coordinate[i] = index % v->dims[i];
        index /= v->dims[i];
        offset += coordinate[i] * v->strides[i];
    }
    return offset;
}

int64_t tow__strided_offset(const tow__strided *v, int64_t index)
{
    int64_t coordinate[TOW_MAX_RANK];
    return unravel(v, index, coordinate);
}

/* repeat: elements that are `step` apart, each n times. */
#define COPY_RUN(T)                                                                                                    \
    TOW__CLONES static void repeat_##T(int64_t elements, int64_t n, T *out, const T *in, int64_t step)                 \
    {                                                                                                                  \
        for (int64_t e = 0; e < elements; e++, out += n) {                                                             \
            const T value = in[e * step];                                                                              \
            for (int64_t i = 0; i < n; i++) out[i] = value;                                                            \
        }                                                                                                              \
    }                                                                                                                  \
    static void copy_run_##T(int64_t n, T *out, const T *in, int64_t stride)                                           \
    {                                                                                                                  \
        if (stride == 0) {                                                                                             \
            repeat_##T(1, n, out, in, 0);                                                                              \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) out[i] = in[i * stride];                                                   \
        }                                                                                                              \
    }
COPY_RUN(uint8_t)
COPY_RUN(uint16_t)
COPY_RUN(uint32_t)
COPY_RUN(uint64_t)

void tow__copy_run(size_t size, int64_t n, void *out, const void *in, int64_t stride)
{
    if (stride == 1)
        memcpy(out, in, (size_t)n * size);
    else if (size == 4)
        copy_run_uint32_t(n, out, in, stride);
    else if (size == 8)
        copy_run_uint64_t(n, out, in, stride);
    else if (size == 2)
        copy_run_uint16_t(n, out, in, stride);
    else if (size == 1)
        copy_run_uint8_t(n, out, in, stride);
    else /* blocks */
        for (int64_t i = 0; i < n; i++)
            memcpy((char *)out + (size_t)i * size, (const char *)in + i * stride * (int64_t)size, size);
}

/* Rows of `bytes` bytes, which begin `step` bytes apart, one behind the other: in pieces of one size, of which the last
 * may copy some again. */
#define COPY_PIECES(size)                                                                                              \
    TOW__CLONES static void copy_pieces_##size(int64_t rows, int64_t bytes, char *out, const char *in, int64_t step)   \
    {                                                                                                                  \
        for (; rows > 0; rows--, in += step, out += bytes) {                                                           \
            int64_t i = 0;                                                                                             \
            for (; i + size <= bytes; i += size) memcpy(out + i, in + i, size);                                        \
            if (i < bytes) memcpy(out + bytes - size, in + bytes - size, size);                                        \
        }                                                                                                              \
    }
COPY_PIECES(4)
COPY_PIECES(16)
COPY_PIECES(64)

static void copy_rows(int64_t rows, int64_t bytes, char *out, const char *in, int64_t step)
{
    if (bytes >= 64)
        copy_pieces_64(rows, bytes, out, in, step);
    else if (bytes >= 16)
        copy_pieces_16(rows, bytes, out, in, step);
    else if (bytes >= 4)
        copy_pieces_4(rows, bytes, out, in, step);
    else
        for (int64_t r = 0; r < rows; r++) memcpy(out + r * bytes, in + r * step, (size_t)bytes);
}

/* Whole rows of the last axis, from the one at `offset` on. */
static void read_rows(const tow__strided *v, int64_t offset, int64_t rows, char *to)
{
    const int last = v->rank - 1;
    const int64_t size = (int64_t)v->size, n = v->dims[last], step = rows > 1 ? v->strides[last - 1] : 0;
    const char *from = v->data + offset * size;
    if (v->strides[last] == 1) {
        copy_rows(rows, n * size, to, from, step * size);
        return;
    }
    if (v->strides[last] == 0 && size == 4) {
        repeat_uint32_t(rows, n, (uint32_t *)(void *)to, (const uint32_t *)(const void *)from, step);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        tow__copy_run(v->size, n, to + r * n * size, from + r * step * size, v->strides[last]);
}

void tow__strided_read(const tow__strided *v, int64_t start, int64_t n, void *out)
{
    if (n <= 0) return;
    if (v->rank == 0) {
        memcpy(out, v->data, v->size);
        return;
    }
    int64_t coordinate[TOW_MAX_RANK], offset = unravel(v, start, coordinate);
    int last = v->rank - 1;
    char *to = out;
    while (n > 0) {
        int64_t run = tow__min(n, v->dims[last] - coordinate[last]), rows = 1;
        if (run == v->dims[last]) {
            if (last > 0) rows = tow__min(n / run, v->dims[last - 1] - coordinate[last - 1]);
            read_rows(v, offset, rows, to);
            if (last > 0) offset += (rows - 1) * v->strides[last - 1], coordinate[last - 1] += rows - 1;
        } else {
            tow__copy_run(v->size, run, to, v->data + offset * (int64_t)v->size, v->strides[last]);
        }
        to += (size_t)(rows * run) * v->size;
        n -= rows * run;
        offset += run * v->strides[last];
        coordinate[last] += run;
        for (int i = last; i > 0 && coordinate[i] == v->dims[i]; i--) {
            offset += v->strides[i - 1] - v->dims[i] * v->strides[i];
            coordinate[i] = 0;
            coordinate[i - 1]++;
        }
    }
}

void tow__fill_missing(tow_dtype dtype, int64_t n, void *out)
{
    union {
        uint64_t bits;
        char block[TOW__MOST_BLOCK_BYTES]; /* the largest element */
    } nan = {.block = {0}};
    if (tow_dtype_is_float(dtype)) tow__store_element(dtype, &nan, 0, (f64)NAN);
    if (tow__is_blocks(dtype))
        memcpy(nan.block + tow__block_form_of(dtype)->scale_at, &(f16){TOW__NAN_SCALE}, sizeof(f16));
    tow__copy_run(tow__element_bytes(dtype), n, out, &nan, 0);
}

enum {
    MAX_OPERANDS = TOW__MAP_OPERANDS,
    MAX_OUTPUTS = 2
};

typedef struct map_job {
    const tow__kernel_call *call;
    tow__tile tile;
    const tow__map_layout *layout;
} map_job;

static void map_block(void *user, int64_t block)
{
    const map_job *job = user;
    const tow__kernel_call *call = job->call;
    const tow__map_layout *layout = job->layout;
    uint64_t tiles[MAX_OPERANDS][TOW__TILE];
    tow__strided gathered;
    const void *in[MAX_OPERANDS] = {NULL};
    void *out[MAX_OUTPUTS] = {NULL};
    int64_t end = tow__min((block + 1) * TOW__BLOCK, layout->count);
    bool filled = false; /* operands that repeat one element are written to their tile once */
    for (int64_t start = block * TOW__BLOCK; start < end; start += layout->step) {
        int64_t n = tow__min(layout->step, end - start);
        for (size_t i = 0; i < call->n_in; i++) {
            const tow__strided *v = &layout->in[i];
            if (v->flat) {
                in[i] = (const char *)call->in[i].data + (size_t)start * v->size;
            } else if (!filled || !v->constant) {
                gathered = *v;
                gathered.data = call->in[i].data;
                tow__strided_read(&gathered, start, n, tiles[i]);
                in[i] = tiles[i];
            }
        }
        filled = true;
        for (size_t i = 0; i < call->n_out; i++)
            out[i] = (char *)call->out[i].data + (size_t)start * tow__element_bytes(call->out[i].dtype);
        job->tile(n, out, in, call->params);
    }
}

void tow__map_prepare(const tow__kernel_call *call, void *state)
{
    tow__map_layout *layout = state;
    layout->count = tow__buffer_count(&call->out[0]);
    layout->step = TOW__BLOCK;
    for (size_t i = 0; i < call->n_in; i++) {
        layout->in[i] = tow__strided_repeated(&call->in[i], layout->count);
        if (!layout->in[i].flat) layout->step = TOW__TILE;
    }
}

void tow__map(const tow__kernel_call *call, tow__tile tile)
{
    tow__map_layout own;
    map_job job = {.call = call, .tile = tile, .layout = call->state};
    if (!job.layout) {
        tow__map_prepare(call, &own);
        job.layout = &own;
    }
    tow__team_run(call->team, tow__ceil_div(job.layout->count, TOW__BLOCK), map_block, &job);
}

/* ---- writing into a region of an output ------------------------------------------------------------------------- */

#define SCATTER_RUN(T)                                                                                                 \
    static void scatter_run_##T(int64_t n, T *out, int64_t stride, const T *in)                                        \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) out[i * stride] = in[i];                                                       \
    }
SCATTER_RUN(uint8_t)
SCATTER_RUN(uint16_t)
SCATTER_RUN(uint32_t)
SCATTER_RUN(uint64_t)

static void scatter_run(size_t size, int64_t n, void *out, int64_t stride, const void *in)
{
    if (size == 4)
        scatter_run_uint32_t(n, out, stride, in);
    else if (size == 8)
        scatter_run_uint64_t(n, out, stride, in);
    else if (size == 2)
        scatter_run_uint16_t(n, out, stride, in);
    else if (size == 1)
        scatter_run_uint8_t(n, out, stride, in);
    else /* blocks */
        for (int64_t i = 0; i < n; i++)
            memcpy((char *)out + i * stride * (int64_t)size, (const char *)in + (size_t)i * size, size);
}

typedef struct store_job {
    const tow__strided *to, *from;
} store_job;

static void store_block(void *user, int64_t block)
{
    const store_job *job = user;
    const tow__strided *to = job->to;
    uint64_t tile[TOW__TILE];
    int64_t end = tow__min((block + 1) * TOW__BLOCK, to->count), start = block * TOW__BLOCK;
    while (start < end) {
        int64_t coordinate[TOW_MAX_RANK], last = to->rank - 1;
        char *out = to->data + unravel(to, start, coordinate) * (int64_t)to->size;
        int64_t run = to->rank == 0 ? 1 : tow__min(end - start, to->dims[last] - coordinate[last]);
        if (to->rank == 0 || to->strides[last] == 1) {
            tow__strided_read(job->from, start, run, out);
        } else {
            run = tow__min(run, (int64_t)(sizeof tile / to->size));
            scatter_run(to->size, run, out, to->strides[last], tow__strided_tile(job->from, start, run, tile));
        }
        start += run;
    }
}

void tow__strided_store(const tow__team *team, const tow__strided *to, const tow__strided *from)
{
    store_job job = {to, from};
    if (to->count > 0 && tow__store_patches(team, to, from)) return;
    tow__team_run(team, tow__ceil_div(to->count, TOW__BLOCK), store_block, &job);
}

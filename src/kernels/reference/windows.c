/* gather_general and the scatters element by element: each element of the windows says where in the array it
 * belongs. */
#include <string.h>

#include "src/base/params.h"
#include "src/kernels/math.h"
#include "src/kernels/tables.h"

/* The lists of dimension numbers of both primitives. */
typedef struct numbers {
    const tow__ints *window, *collapsed, *batching, *indices_batching, *index_map;
} numbers;

/* The window that an element of w at coordinates `at` belongs to: where it starts in the array, and where the element
 * is in it. False: the window does not lie in the array, and clamping is not asked for. */
static bool find(const tow__buffer *array, const tow__buffer *indices, const tow__buffer *w, const numbers *n,
                 bool clamped, const int64_t *at, int64_t *offset)
{
    int64_t start[TOW_MAX_RANK] = {0}, within[TOW_MAX_RANK] = {0}, sizes[TOW_MAX_RANK], index = 0;
    int batch = 0, axis = 0;
    for (int d = 0; d < array->rank; d++) sizes[d] = 1;
    for (int d = 0; d < w->rank; d++) {
        if (!tow__ints_contain(n->window, d)) {
            for (int i = 0; i < n->batching->n; i++)
                if (n->indices_batching->v[i] == batch) start[n->batching->v[i]] = at[d];
            index += at[d] * indices->strides[batch++];
            continue;
        }
        while (tow__ints_contain(n->collapsed, axis) || tow__ints_contain(n->batching, axis)) axis++;
        sizes[axis] = w->dims[d];
        within[axis++] = at[d];
    }
    for (int i = 0; i < n->index_map->n; i++) {
        const int64_t place = index + i * indices->strides[indices->rank - 1];
        const int64_t d = n->index_map->v[i], most = array->dims[d] - sizes[d];
        start[d] = tow__load_index(indices->data, indices->dtype, place);
        if (!clamped && (start[d] < 0 || start[d] > most)) return false;
        start[d] = tow__max(0, tow__min(start[d], most));
    }
    *offset = 0;
    for (int d = 0; d < array->rank; d++) *offset += (start[d] + within[d]) * array->strides[d];
    return true;
}

/* Coordinates and offset of element i of a buffer. */
static int64_t unravel(const tow__buffer *b, int64_t i, int64_t *at)
{
    int64_t offset = 0;
    for (int d = b->rank - 1; d >= 0; d--) {
        at[d] = i % b->dims[d];
        i /= b->dims[d];
        offset += at[d] * b->strides[d];
    }
    return offset;
}

static void run_gather_general(const tow__kernel_call *call)
{
    const tow__gather_params *p = call->params;
    const numbers n = {&p->offset_dims, &p->collapsed_slice_dims, &p->operand_batching_dims,
                       &p->start_indices_batching_dims, &p->start_index_map};
    const tow__buffer *x = &call->in[0], *out = &call->out[0];
    const size_t size = tow__element_bytes(x->dtype);
    for (int64_t i = 0; i < tow__buffer_count(out); i++) {
        int64_t at[TOW_MAX_RANK], from, to = unravel(out, i, at);
        if (find(x, &call->in[1], out, &n, !p->fill, at, &from))
            memcpy((char *)out->data + to * (int64_t)size, (const char *)x->data + from * (int64_t)size, size);
        else
            tow__store_element(out->dtype, out->data, to, p->fill_value);
    }
}

/* ---- scatter: window after window in the order of the indices ---------------------------------------------------- */

/* The updates with their window axes last; axes[d]: which axis of the updates axis d is. */
static tow__buffer windows_last(const tow__buffer *updates, const tow__ints *window, int *axes)
{
    tow__buffer b = *updates;
    int n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int d = 0; d < updates->rank; d++)
            if (tow__ints_contain(window, d) == (pass == 1)) axes[n++] = d;
    for (int d = 0; d < n; d++) {
        b.dims[d] = updates->dims[axes[d]];
        b.strides[d] = updates->strides[axes[d]];
    }
    return b;
}

enum operation {
    SET,
    ADD,
    MUL,
    MIN,
    MAX
};

#define APPLY(T, U, LESS, MORE)                                                                                        \
    static void apply_##T(enum operation operation, void *to, const void *from)                                        \
    {                                                                                                                  \
        T *x = to;                                                                                                     \
        const T y = *(const T *)from;                                                                                  \
        const T results[] = {y, (T)((U)*x + (U)y), (T)((U)*x * (U)y), LESS, MORE};                                     \
        *x = results[operation];                                                                                       \
    }
#define APPLY_INTEGERS(T, U) APPLY(T, U, *x<y ? *x : y, *x> y ? *x : y)
APPLY(f32, f32, tow__min_f32(*x, y), tow__max_f32(*x, y))
APPLY(f64, f64, tow__min_f64(*x, y), tow__max_f64(*x, y))
APPLY_INTEGERS(i8, u32)
APPLY_INTEGERS(u8, u32)
APPLY_INTEGERS(i32, u32)
APPLY_INTEGERS(u32, u32)
APPLY_INTEGERS(i64, u64)
APPLY_INTEGERS(u64, u64)

static void apply_half(enum operation operation, void *to, const void *from)
{
    (void)operation; /* plans do all but SET in f32 */
    memcpy(to, from, sizeof(uint16_t));
}

/* Blocks are only set. */
static void apply_element(tow_dtype dtype, enum operation operation, void *to, const void *from)
{
    static void (*const apply[TOW_DTYPE_END])(enum operation, void *, const void *) = {
        [TOW_F32] = apply_f32,   [TOW_F64] = apply_f64,  [TOW_I32] = apply_i32, [TOW_U32] = apply_u32,
        [TOW_I8] = apply_i8,     [TOW_U8] = apply_u8,    [TOW_I64] = apply_i64, [TOW_U64] = apply_u64,
        [TOW_BF16] = apply_half, [TOW_F16] = apply_half, [TOW_BOOL] = apply_u8};
    if (tow__is_blocks(dtype))
        memcpy(to, from, tow__element_bytes(dtype));
    else
        apply[dtype](operation, to, from);
}

static void scatter(const tow__kernel_call *call, enum operation operation)
{
    const tow__scatter_params *p = call->params;
    const numbers n = {&p->update_window_dims, &p->inserted_window_dims, &p->operand_batching_dims,
                       &p->scatter_indices_batching_dims, &p->scatter_dims_to_operand_dims};
    const tow__buffer *out = &call->out[0], *updates = &call->in[2];
    const int64_t size = (int64_t)tow__element_bytes(out->dtype);
    if (call->in[0].data != out->data) {
        tow__strided to = tow__strided_buffer(out), from = tow__strided_buffer(&call->in[0]);
        tow__strided_store(call->team, &to, &from);
    }
    int axes[TOW_MAX_RANK];
    const tow__buffer ordered = windows_last(updates, &p->update_window_dims, axes);
    for (int64_t i = 0; i < tow__buffer_count(updates); i++) {
        int64_t place[TOW_MAX_RANK], at[TOW_MAX_RANK], to, from = unravel(&ordered, i, place);
        for (int d = 0; d < updates->rank; d++) at[axes[d]] = place[d];
        if (find(out, &call->in[1], updates, &n, p->clip, at, &to))
            apply_element(out->dtype, operation, (char *)out->data + to * size,
                          (const char *)updates->data + from * size);
    }
}

static void run_set(const tow__kernel_call *call) { scatter(call, SET); }
static void run_add(const tow__kernel_call *call) { scatter(call, ADD); }
static void run_mul(const tow__kernel_call *call) { scatter(call, MUL); }
static void run_min(const tow__kernel_call *call) { scatter(call, MIN); }
static void run_max(const tow__kernel_call *call) { scatter(call, MAX); }

enum {
    NUMBERS = TOW__WIDE_NUMBERS
};
static const tow__kernel kernels[] = {
    {"gather_general", TOW__ALL_DTYPES, run_gather_general, NULL, "reference"},
    {"scatter_general", TOW__ANY_OR_BLOCKS, run_set, NULL, "reference"},
    {"scatter_general_add", NUMBERS, run_add, NULL, "reference"},
    {"scatter_general_mul", NUMBERS, run_mul, NULL, "reference"},
    {"scatter_general_min", NUMBERS, run_min, NULL, "reference"},
    {"scatter_general_max", NUMBERS, run_max, NULL, "reference"},
};
const tow__kernel_table tow__reference_windows = {kernels, sizeof kernels / sizeof kernels[0]};

/* Shared by all kernels: views of strided operands, runs of elements in row-major order, and how loops are compiled.
 *
 * A view is an operand with axes of size 1 dropped and compatible neighbors merged, so most operands become `flat`
 * (one contiguous run) or `constant` (one element repeated). Element i of a view is the element at row-major index i of
 * the operand's shape; so operands of one shape can be merged differently and still be walked together. */
#ifndef TOW_SRC_KERNELS_STRIDED_H
#define TOW_SRC_KERNELS_STRIDED_H

#include "src/base/clones.h"
#include "src/base/numbers.h"
#include "src/kernels/kernel.h"

enum {
    TOW__TILE = 512,    /* elements of a strided operand that are made contiguous at a time: 4 KiB of doubles */
    TOW__BLOCK = 16384, /* elements that one block of work covers; fixes the split, whatever the number of threads */
    TOW__ALL_DTYPES = TOW__ANY,
    TOW__MOVED_DTYPES = TOW__ANY_OR_BLOCKS /* of what moves elements, whatever is in them */
};

/* Before a loop whose iterations touch different elements, also when the output is the memory of an operand. */
#ifdef __clang__
#define TOW__VECTORIZE /* clang checks for overlaps when it runs, and warns where a demand to vectorize is not met */
#else
#define TOW__VECTORIZE _Pragma("GCC ivdep")
#endif
#define TOW__INLINE static inline __attribute__((always_inline))

typedef struct tow__strided {
    char *data;
    size_t size; /* bytes per element */
    int64_t count;
    int rank;
    bool flat, constant;
    int64_t dims[TOW_MAX_RANK], strides[TOW_MAX_RANK];
} tow__strided;

static inline size_t tow__element_bytes(tow_dtype dtype)
{
#define X(symbol, name, bytes) [symbol] = bytes,
    static const uint8_t table[] = { TOW_DTYPE_LIST(X) TOW_BLOCK_DTYPE_LIST(X) };
#undef X
    return table[dtype];
}

static inline int64_t tow__buffer_count(const tow__buffer *b)
{
    int64_t count = 1;
    for (int i = 0; i < b->rank; i++) count *= b->dims[i];
    return count;
}

/* Row-major, without gaps. */
static inline bool tow__buffer_contiguous(const tow__buffer *b)
{
    int64_t step = 1;
    for (int i = b->rank - 1; i >= 0; i--) {
        if (b->dims[i] != 1 && b->strides[i] != step) return false;
        step *= b->dims[i];
    }
    return true;
}

/* An element of an array of indices: any integer type. An index beyond all arrays is INT64_MAX. */
static inline int64_t tow__load_index(const void *data, tow_dtype dtype, int64_t at)
{
    switch (dtype) {
    case TOW_I8:
        return ((const i8 *)data)[at];
    case TOW_U8:
        return ((const u8 *)data)[at];
    case TOW_U32:
        return ((const u32 *)data)[at];
    case TOW_I64:
        return ((const i64 *)data)[at];
    case TOW_U64:
        return ((const u64 *)data)[at] > INT64_MAX ? INT64_MAX : (int64_t)((const u64 *)data)[at];
    default:
        return ((const i32 *)data)[at];
    }
}

static inline int64_t tow__ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t tow__min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t tow__max(int64_t a, int64_t b) { return a > b ? a : b; }

/* View of the axes dims[0..rank) with the given strides, over data. */
tow__strided tow__strided_of(void *data, tow_dtype dtype, int rank, const int64_t *dims, const int64_t *strides);
tow__strided tow__strided_buffer(const tow__buffer *b);
/* Like tow__strided_buffer, but a scalar repeats to `count` elements. */
tow__strided tow__strided_repeated(const tow__buffer *b, int64_t count);
/* Offset in elements of the element at row-major index `index`. */
int64_t tow__strided_offset(const tow__strided *v, int64_t index);
/* Copies elements [start, start + n) in row-major order to `out`, which is contiguous. */
void tow__strided_read(const tow__strided *v, int64_t start, int64_t n, void *out);
/* n elements of `size` bytes from `in`, `stride` elements apart, to contiguous memory. */
void tow__copy_run(size_t size, int64_t n, void *out, const void *in, int64_t stride);
/* The place where elements [start, start + n) are contiguous: in place for a flat view, else read into `tile`. */
static inline const void *tow__strided_tile(const tow__strided *v, int64_t start, int64_t n, void *tile)
{
    if (v->flat) return v->data + (size_t)start * v->size;
    tow__strided_read(v, start, n, tile);
    return tile;
}

/* n elements for what is not there: NaN, blocks of NaN, or 0 of integers and bools. */
void tow__fill_missing(tow_dtype dtype, int64_t n, void *out);
/* to[i] = from[i] for all elements, in blocks on the team. Views of equal counts; `to` repeats no element. */
void tow__strided_store(const tow__team *team, const tow__strided *to, const tow__strided *from);
/* patches.c: the same, if it is a transposition worth patches; else false, and nothing is done. */
bool tow__store_patches(const tow__team *team, const tow__strided *to, const tow__strided *from);

/* patches.c: to[i * to_row + j] = from[j * from_row + i] for i < m, j < n, on the caller; elements of 4 or 8 bytes. */
void tow__transpose_matrix(size_t size, int64_t m, int64_t n, void *to, int64_t to_row, const void *from,
                           int64_t from_row);

/* An elementwise function on n contiguous elements of every operand and output. An output may be the memory of an
 * operand. */
typedef void (*tow__tile)(int64_t n, void *const *out, const void *const *in, const void *params);
/* Applies it to whole operands, in blocks on the team. Operands have the shape of the outputs or are scalars. */
void tow__map(const tow__kernel_call *call, tow__tile tile);

enum {
    TOW__MAP_OPERANDS = 4
};
/* The layout that tow__map works out from shapes and strides: the state of kernels that use it. */
typedef struct tow__map_layout {
    int64_t count, step; /* elements; elements that go through the tile function at a time */
    tow__strided in[TOW__MAP_OPERANDS];
} tow__map_layout;
void tow__map_prepare(const tow__kernel_call *call, void *layout);

#endif

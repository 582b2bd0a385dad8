/* The order in which every reduction works, whatever the strides, the threads or the instruction set:
 *
 *   elements   those of one result, in row-major order: x[0] x[1] ... x[n-1]
 *   segments   of 1024 elements
 *   lanes      16 in each segment: lane l combines x[i] with i % 16 == l, from the first to the last
 *   tree       lanes are combined as (l, l+8), (l, l+4), (l, l+2), (l, l+1)
 *   result     of segments, from the first to the last
 *
 * All sums of this folder have it: whole reductions (reduce.c), those that come block by block (reduce_part.c) and
 * those of what a row program makes (fused_reduce.c). Argmax has no order: equal maxima go to the first (argmax.c).
 * Sums of norms and softmax have it, too (norms/lanes.inc).
 *
 * Engines. TOW__CLONES compiles each loop once per instruction set, and the loader picks the version; strides decide
 * between loops of the same bits. The plain twin (reference/reduce.c) runs what has no vector code. */
#ifndef TOW_SRC_KERNELS_REDUCE_H
#define TOW_SRC_KERNELS_REDUCE_H

#include "src/base/params.h"
#include "src/kernels/strided.h"

enum {
    TOW__LANES = 16,
    TOW__SEGMENT = 1024
};

typedef struct tow__run {
    int64_t at, n; /* elements */
} tow__run;

/* One kind of reduction, on elements of one type. Neighboring results share rows of memory: lanes [16][pitch] hold
 * what the rows of a segment have added so far. */
typedef struct tow__reducer {
    /* one segment of each of so many results: n contiguous elements, those of the next one `step` elements behind */
    void (*rows)(int64_t results, int64_t step, int64_t n, const void *x, void *out);
    /* one segment of one result: runs of contiguous elements, multiples of TOW__LANES */
    void (*runs)(int n, const tow__run *run, const void *x, void *out);
    void (*begin)(int64_t columns, int64_t n, int64_t pitch, void *lanes); /* for a segment of n rows */
    /* n rows, of which the first is row `at` of the segment; row i lies at x + rows[i] */
    void (*add)(int64_t columns, int64_t at, int64_t n, const int64_t *rows, const void *x, int64_t pitch, void *lanes);
    /* one lane of a segment: rows 0, step, ... (n of them), of which row i lies at x + rows[i] */
    void (*down)(int64_t columns, int64_t n, const int64_t *rows, int64_t step, const void *x, void *lane);
    void (*end)(int64_t columns, int64_t n, int64_t pitch, void *lanes, void *out); /* lanes are lost */
    void (*join)(int64_t n, void *total, const void *part); /* adds the next segment to the ones before */
    void (*nothing)(int64_t n, void *out);                  /* results of no elements */
} tow__reducer;

/* That of a kernel on numbers; NULL: it reduces nothing. */
const tow__reducer *tow__reducer_of(const tow__kernel *kernel, tow_dtype dtype);

/* A part of a reduction (tow__sum_part) is called on one block of rows after the other: operand [elements, columns],
 * row-major, reduced to [columns]. The sums of a segment so far stay in the lanes, out[1], [TOW__LANES, columns];
 * with one column there are none, and blocks are whole segments. */

/* An operand split into kept and reduced axes; element (k, r) lies at offset of k plus offset of r. */
typedef struct tow__reduction_axes {
    tow__strided kept, reduced;
} tow__reduction_axes;

static inline tow__reduction_axes tow__reduction_axes_of(const tow__buffer *x, const tow__ints *axes)
{
    int64_t dims[2][TOW_MAX_RANK], strides[2][TOW_MAX_RANK];
    int rank[2] = {0, 0};
    for (int i = 0; i < x->rank; i++) {
        int reduced = tow__ints_contain(axes, i);
        dims[reduced][rank[reduced]] = x->dims[i];
        strides[reduced][rank[reduced]++] = x->strides[i];
    }
    return (tow__reduction_axes){tow__strided_of(x->data, x->dtype, rank[0], dims[0], strides[0]),
                                 tow__strided_of(x->data, x->dtype, rank[1], dims[1], strides[1])};
}

#endif

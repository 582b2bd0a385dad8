/* Kernels in C: functions over buffers in memory. tow/primitive.h makes operations of them. */
#ifndef TOW_KERNEL_H
#define TOW_KERNEL_H

#include "tow/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An array as a kernel sees it. Element (i, j) is at data + (i strides[0] + j strides[1]) elements. */
typedef struct tow_buffer {
    void *data;
    tow_dtype dtype;
    int32_t rank;
    int64_t dims[TOW_MAX_RANK];
    int64_t strides[TOW_MAX_RANK]; /* in elements; 0 repeats an element, negative ones go backwards */
} tow_buffer;

/* A call of a kernel. Operands may have any strides and are only read. Results are row-major and contiguous, do not
 * overlap the operands, and are to be written whole: what is in them before has no meaning. */
typedef struct tow_kernel_call {
    size_t n_inputs, n_outputs;
    const tow_buffer *inputs, *outputs;
    const void *attributes; /* of the primitive, or NULL */
    void *user;             /* of the definition */
    void *scratch;          /* 64-byte-aligned, as many bytes as asked for */
    const void *team;       /* for tow_kernel_parallel */
} tow_kernel_call;

/* run must be a pure function of the operands and attributes: it may be called any number of times, by any thread, and
 * must allocate nothing that it does not free. */
typedef struct tow_kernel {
    void (*run)(const tow_kernel_call *call);
    /* Bytes of scratch memory that a call needs; asked when a program is compiled, when data is NULL in all buffers. It
     * is part of the program's arena. NULL: none. */
    size_t (*scratch)(const tow_kernel_call *call);
} tow_kernel;

/* In run: calls work(begin, end, argument) for ranges that together are [0, count), on the threads that the call may
 * use, and returns when all are done. The limits of the ranges may depend on the number of threads, so results must not
 * depend on the limits. work may not call this function again. */
TOW_API void tow_kernel_parallel(const tow_kernel_call *call, int64_t count,
                                 void (*work)(int64_t begin, int64_t end, void *argument), void *argument);

#ifdef __cplusplus
}
#endif
#endif

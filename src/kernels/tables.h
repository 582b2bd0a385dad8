/* The tables of kernels, one per file; src/kernels/registry.c lists them in the order of preference. */
#ifndef TOW_SRC_KERNELS_TABLES_H
#define TOW_SRC_KERNELS_TABLES_H

#include "src/kernels/strided.h"

typedef struct tow__kernel_table {
    const tow__kernel *kernels;
    size_t count;
} tow__kernel_table;

extern const tow__kernel_table tow__kernels_argmax, tow__kernels_attention, tow__kernels_collective, tow__kernels_conv,
    tow__kernels_blocks, tow__kernels_dot, tow__kernels_dynamic, tow__kernels_elementwise, tow__kernels_fused,
    tow__kernels_fused_product, tow__kernels_fused_reduce, tow__kernels_host, tow__kernels_index,
    tow__kernels_linear_cross_entropy, tow__kernels_norm, tow__kernels_pooling, tow__kernels_quantized_dot,
    tow__kernels_ragged, tow__kernels_random, tow__kernels_reduce, tow__kernels_reduce_part, tow__kernels_same_bits,
    tow__kernels_softmax, tow__kernels_sort, tow__kernels_spill, tow__kernels_steps, tow__kernels_windows;
extern const tow__kernel_table tow__reference_elementwise, tow__reference_move, tow__reference_reduce,
    tow__reference_dot, tow__reference_sort, tow__reference_windows, tow__reference_conv, tow__reference_cumulative,
    tow__reference_pooling, tow__reference_quantized;

/* The tile function of an elementwise call; one pick per kernel of the table of that name. */
typedef tow__tile (*tow__pick)(const tow__kernel_call *call);
extern const tow__pick *const tow__picks_elementwise, *const tow__picks_reference;

/* The plain C twin of a kernel, or NULL: what tests compare with. */
const tow__kernel *tow__kernel_reference(const char *primitive, tow_dtype dtype);

#endif

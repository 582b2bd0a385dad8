/* Windows that slide along axes, and the axes of a convolution: what type rules and kernels of convolutions and of
 * reductions over windows share.
 *
 * Along one axis, element k of the window at result p meets the operand's element i with
 *   i * base_dilation = p * stride + k * window_dilation - low
 * if there is one: elsewhere it meets padding, or a hole between the elements of a dilated operand. Negative padding
 * cuts. */
#ifndef TOW_SRC_WINDOW_H
#define TOW_SRC_WINDOW_H

#include "src/base/params.h"

typedef struct tow__window_axis {
    int64_t size, window, result; /* elements of the operand, the window and the result */
    int64_t stride, low, high, base_dilation, window_dilation;
} tow__window_axis;

enum {
    TOW__WINDOW_BITS = 60 /* sizes and paddings are below two to the power of this, so that sums of a few fit */
};

/* (n - 1) * dilation + 1, or 0 for none. */
int64_t tow__dilated(int64_t n, int64_t dilation);
/* Fills `result`, 0 for a window that is longer than the padded operand. False: strides or dilations below 1, negative
 * sizes, or sizes that overflow. */
bool tow__window_result(tow__window_axis *axis);
/* Padding as XLA places it so that the result has ceil(size / stride) elements: one more behind the operand than
 * before it, or with `lower` before it. */
void tow__window_pad_same(tow__window_axis *axis, bool lower);

/* The element that meets element k of the window at result p, or -1. */
static inline int64_t tow__window_element(const tow__window_axis *a, int64_t p, int64_t k)
{
    int64_t position = p * a->stride + k * a->window_dilation - a->low;
    if (position < 0 || position % a->base_dilation != 0) return -1;
    int64_t i = position / a->base_dilation;
    return i < a->size ? i : -1;
}

/* The elements that meet the window at one result: taps first, first + step, ... meet elements element,
 * element + element_step, ... */
typedef struct tow__taps {
    int64_t first, step, count, element, element_step;
} tow__taps;
tow__taps tow__window_taps(const tow__window_axis *a, int64_t p);
/* The first tap that meets no hole of a dilated operand, which may have no element there (element below 0 or beyond the
 * size), and `count` 0; step 0: all taps meet holes. */
tow__taps tow__window_first_tap(const tow__window_axis *a, int64_t p);

/* Entry i of a list that may be left out. */
static inline int64_t tow__entry(const tow__ints *list, int i, int64_t otherwise)
{
    return list->n > 0 ? list->v[i] : otherwise;
}
/* Axis i of a reduction over windows of an operand of this size. */
tow__window_axis tow__window_axis_of(const tow__window_params *p, int i, int64_t size);

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

enum {
    TOW__CONV_TEXT = 3 * TOW_MAX_RANK + 4 /* bytes of dimension numbers as text */
};

/* The roles of the axes of an array. [0]: batch (left, result) or features of the result (kernel); [1]: features
 * (of the result, or those that are summed); [2 + i]: spatial axis i, counted in the order of the kernel. */
typedef struct tow__conv_axes {
    int spatial;
    int lhs[TOW_MAX_RANK], rhs[TOW_MAX_RANK], out[TOW_MAX_RANK];
} tow__conv_axes;

/* Reads "NHWC,HWIO->NHWC": N batch, C features, O and I features of the result and of the left operand, any other
 * letters or digits spatial axes, each once in all three. False: it is not that. NULL text is false. */
bool tow__conv_axes_read(const char *text, tow__conv_axes *axes);
/* The same in one spelling: spatial axes are W, HW, DHW, or digits. */
void tow__conv_axes_write(const tow__conv_axes *axes, char text[TOW__CONV_TEXT]);
/* Channels last, with so many spatial axes. */
tow__conv_axes tow__conv_axes_last(int spatial);
/* Spatial axis i of a convolution of arrays with these dimensions, without `result`. */
tow__window_axis tow__conv_axis(const tow__conv_params *p, const tow__conv_axes *axes, int i, const int64_t *lhs,
                                const int64_t *rhs);

#endif

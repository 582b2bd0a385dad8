/* Shared by the layers with windows over spatial axes: x is [batch..., spatial..., features], with any number of batch
 * axes. */
#ifndef TOW_LAYERS_CONVOLUTION_H
#define TOW_LAYERS_CONVOLUTION_H

#include "src/scope/layer.h"
#include "tow/layers.h"

/* The number of spatial axes: the entries of `sizes`, of which x has as many before its last axis. 0 after an error. */
int tow__spatial_axes(tow_scope *scope, const char *layer, const char *option, const int64_t *sizes, tow_value x);
/* Reports zeros before and behind axes (.low, .high) that are not used: without `explicit_pads`, or beyond n axes. */
bool tow__check_pads(tow_scope *scope, const char *layer, bool explicit_pads, int n, const int64_t *low,
                     const int64_t *high);
/* x with all axes before the spatial ones as one, and y with those of x again. */
tow_value tow__one_batch_axis(tow_value x, int spatial);
tow_value tow__batch_axes_of(tow_value y, tow_type x, int spatial);
/* x with `low` elements more before an axis and `high` behind it: those of its other end, or mirrored at its ends.
 * x has elements along the axis, unless none are wanted. */
tow_value tow__extend_axis(tow_value x, int axis, int64_t low, int64_t high, bool mirrored);
/* One call of Conv or ConvLocal. */
typedef struct tow__conv_call {
    tow_type type;      /* of the input */
    int n;              /* spatial axes */
    int64_t features;   /* of the input */
    tow_conv_options o; /* strides, dilations, groups, and zeros that are not in x */
    tow__dtypes types;
    tow_value x; /* [N, spatial..., features] as types.compute, with the elements that are padded and no zeros */
    const tow_value *mask; /* NULL: none */
} tow__conv_call;
/* False after an error. */
bool tow__read_conv(tow_scope *scope, const char *layer, const tow_conv *m, size_t n_in, const tow_value *in,
                    size_t n_out, tow__conv_call *c);
/* The parameter "kernel" [dims] as types->compute, times the mask if there is one. Null after an error. */
tow_value tow__masked_kernel(tow_scope *scope, const char *layer, int rank, const int64_t *dims, tow_initializer init,
                             const tow__dtypes *types, const tow_value *mask);

#endif

/* Reductions along axes and over windows. */
#include "tests/programs/draw.h"

/* Some axes, or none, which means all. */
static int draw_axes(drawing *d, tow_value x, int *axes)
{
    int n = 0;
    for (int i = 0; i < tow_value_type(x).rank; i++)
        if (draw(d, 2)) axes[n++] = i;
    return n;
}

tow_value draw_reduction(drawing *d)
{
    tow_value x = draw_ranked(d, 1);
    if (tow_value_type(x).rank == 0) return tow_expand_dims(x, 0);
    int axes[TOW_MAX_RANK], n = draw_axes(d, x, axes), axis = draw_axis(d, x);
    const bool empty = count_of(x) == 0, reverse = draw(d, 2);
    switch (draw(d, 17)) {
    case 0:
    case 1:
    case 2:
        return tow_reduce_sum(x, n, axes);
    case 3:
        return empty ? x : tow_reduce_max(x, n, axes);
    case 4:
        return empty ? x : tow_reduce_min(x, n, axes);
    case 5:
        return tow_reduce_prod(tow_sin(x), n, axes);
    case 6:
        return empty ? x : tow_mean(x, n, axes);
    case 7:
        return empty ? x : tow_var(x, n, axes, 0, draw(d, 2));
    case 8:
        return tow_softmax(x, axis);
    case 9:
        return tow_log_softmax(x, axis);
    case 10:
        return empty ? x : tow_logsumexp(x, axis);
    case 11:
        return tow_cumsum(x, axis, reverse);
    case 12:
        return tow_cumprod(tow_sin(x), axis, reverse);
    case 13:
        return draw(d, 2) ? tow_cummax(x, axis, reverse) : tow_cummin(x, axis, reverse);
    case 14:
        return tow_cumlogsumexp(x, axis, reverse);
    case 15:
        return tow_norm(tow_add_scalar(tow_square(x), 0.25), n, axes, draw(d, 2));
    default:
        return tow_reduce_sum(draw_of(d, draw(d, 2) ? TOW_I32 : TOW_U32), 0, NULL);
    }
}

/* Sizes and strides along each axis; where nothing fits, windows of one element. */
tow_value draw_window(drawing *d)
{
    tow_value x = draw_ranked(d, 1);
    const tow_type type = tow_value_type(x);
    tow_window_options w = TOW_WINDOW_OPTIONS(.padding = (tow_padding)draw(d, 4));
    const bool same = w.padding == TOW_PAD_SAME || w.padding == TOW_PAD_SAME_LOWER;
    for (int i = 0; i < type.rank; i++) {
        w.window[i] = draw(d, 2) ? 1 : 1 + draw(d, 3);
        w.strides[i] = 1 + (draw(d, 3) == 0);
        w.base_dilation[i] = 1 + (!same && draw(d, 8) == 0); /* which has no meaning for a dilated operand */
        w.window_dilation[i] = 1 + (draw(d, 8) == 0);
        if (w.padding == TOW_PAD_EXPLICIT) w.low[i] = draw(d, 2), w.high[i] = draw(d, 2);
    }
    const int which = draw(d, 4);
    if (which == 0 && type.rank >= 2 && count_of(x)) {
        const tow_pool_options pool =
            TOW_POOL_OPTIONS(.spatial = 1, .window = {1 + draw(d, 2)}, .strides = {1 + draw(d, 2)},
                             .padding = TOW_PAD_SAME, .exclude_padding = draw(d, 2));
        return draw(d, 2) ? tow_avg_pool(x, &pool) : tow_max_pool(x, &pool);
    }
    if (which == 1) /* extremes of nothing are infinite */
        return tow_clip(tow_reduce_window_max(x, &w), tow_scalar(d->t, type.dtype, -9), (tow_value){0});
    if (which == 2) return tow_clip(tow_reduce_window_min(x, &w), (tow_value){0}, tow_scalar(d->t, type.dtype, 9));
    return tow_reduce_window_sum(x, &w);
}

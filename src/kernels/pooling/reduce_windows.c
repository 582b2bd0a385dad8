/* Reductions over windows: sums and extrema of tiles, see pooling.c. */
#include "src/kernels/pooling/windows.h"
#include "src/kernels/reference/window_reductions.h"

/* By channels: `all` stays in registers while the taps of a window, which meets some element, are combined. The first
 * one is taken apart, for a loop that clears `all` would become a call, and `all` an array in memory. */
#define CHANNELS(name, T, identity, COMBINE)                                                                           \
    TOW__INLINE void piece_##name##_##T(const int64_t n, const tow__walk *w, const T *x, const tow__taps *taps,        \
                                        int64_t step, T *y)                                                            \
    {                                                                                                                  \
        T all[TOW__PIECE_BYTES / sizeof(T)];                                                                           \
        const T start = (identity), *from = x + w->x_taps[0];                                                          \
        for (int64_t i = 0; i < n; i++) all[i] = (T)COMBINE(start, from[i]);                                           \
        from += step;                                                                                                  \
        for (int64_t o = 0, k = 1; o < w->n; k = 0) {                                                                  \
            for (; k < taps->count; k++, from += step)                                                                 \
                for (int64_t i = 0; i < n; i++) all[i] = (T)COMBINE(all[i], from[i]);                                  \
            if (++o < w->n) from = x + w->x_taps[o];                                                                   \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) y[i] = all[i];                                                                 \
    }                                                                                                                  \
    TOW__CLONES static void channels_##name##_##T(const tow__window_job *job, const tow__walk *w,                      \
                                                  const tow__window_tile *t, T *y)                                     \
    {                                                                                                                  \
        const int64_t piece = TOW__PIECE_BYTES / sizeof(T), fourth = piece / 4;                                        \
        for (int64_t p = 0; p < t->lanes; p++, y += t->n) {                                                            \
            const tow__taps taps = tow__row_window(job, t->lane + p);                                                  \
            const T *x = (const T *)job->x->data + taps.element * job->x_row + t->first;                               \
            const int64_t step = taps.element_step * job->x_row;                                                       \
            int64_t i = 0;                                                                                             \
            if (w->n == 0 || taps.count == 0) {                                                                        \
                for (; i < t->n; i++) y[i] = (identity);                                                               \
                continue;                                                                                              \
            }                                                                                                          \
            for (; i + piece <= t->n; i += piece) piece_##name##_##T(piece, w, x + i, &taps, step, y + i);             \
            for (; i + fourth <= t->n; i += fourth) piece_##name##_##T(fourth, w, x + i, &taps, step, y + i);          \
            for (; i < t->n; i++) piece_##name##_##T(1, w, x + i, &taps, step, y + i);                                 \
        }                                                                                                              \
    }

/* A tile has the whole run, or a single lane: its elements are together in the result. */
#define REDUCE(name, T, identity, COMBINE)                                                                             \
    CHANNELS(name, T, identity, COMBINE)                                                                               \
    TOW__CLONES static void add_##name##_##T(int64_t n, T *restrict y, const T *restrict x, int64_t x_step)            \
    {                                                                                                                  \
        if (x_step == 1)                                                                                               \
            for (int64_t i = 0; i < n; i++) y[i] = (T)COMBINE(y[i], x[i]);                                             \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) y[i] = (T)COMBINE(y[i], x[i * x_step]);                                    \
    }                                                                                                                  \
    TOW__CLONES static void sweep_##name##_##T(const tow__sweep *s, T *restrict y, const T *restrict x)                \
    {                                                                                                                  \
        const int64_t n = s->columns, x_step = s->x_column, y_step = s->y_column;                                      \
        if (y_step != 1)                                                                                               \
            for (int64_t i = 0; i < n; i++) y[i * y_step] = (T)COMBINE(y[i * y_step], x[i * x_step]);                  \
        else                                                                                                           \
            for (int64_t r = 0; r < s->rows; r++, y += s->y_row, x += s->x_row)                                        \
                for (int64_t i = 0; i < n; i++) y[i] = (T)COMBINE(y[i], x[i]);                                         \
    }                                                                                                                  \
    static void windows_##name##_##T(const tow__window_job *job, const tow__walk *w, const tow__window_tile *t,        \
                                     T *restrict y)                                                                    \
    {                                                                                                                  \
        for (int64_t p = 0; p < t->lanes; p++, y += t->n) {                                                            \
            const tow__taps taps = tow__row_window(job, t->lane + p);                                                  \
            if (taps.count == 0) continue;                                                                             \
            const T *x = (const T *)job->x->data + w->x + taps.element * job->x_row + t->first;                        \
            const int64_t step = taps.element_step * job->x_row;                                                       \
            if (t->n == 1) {                                                                                           \
                T all = *y;                                                                                            \
                for (int64_t k = 0; k < taps.count; k++) all = (T)COMBINE(all, x[k * step]);                           \
                *y = all;                                                                                              \
            } else                                                                                                     \
                for (int64_t k = 0; k < taps.count; k++) add_##name##_##T(t->n, y, x + k * step, 1);                   \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_##T(const tow__window_job *job, tow__walk *w, const tow__window_tile *t)                        \
    {                                                                                                                  \
        T *y = (T *)(void *)job->out + t->out;                                                                         \
        const T *x = job->x->data;                                                                                     \
        if (job->by_channels) {                                                                                        \
            channels_##name##_##T(job, w, t, y);                                                                       \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t i = 0; i < t->lanes * t->n; i++) y[i] = (identity);                                               \
        if (!tow__walk_meets(job, w)) return;                                                                          \
        if (job->by_window) {                                                                                          \
            do windows_##name##_##T(job, w, t, y);                                                                     \
            while (tow__walk_next(job, w));                                                                            \
            return;                                                                                                    \
        }                                                                                                              \
        const tow__row_range taps = tow__row_taps(job, t);                                                             \
        do {                                                                                                           \
            for (int64_t k = taps.first; k < taps.end; k++) {                                                          \
                tow__sweep s;                                                                                          \
                if (!tow__find_sweep(job, w, t, k, &s)) continue;                                                      \
                if (s.rows == 1 && s.y_column == 1)                                                                    \
                    add_##name##_##T(s.columns, y + s.y, x + s.x, s.x_column);                                         \
                else {                                                                                                 \
                    const tow__sweep whole = s; /* so s can be in registers */                                         \
                    sweep_##name##_##T(&whole, y + s.y, x + s.x);                                                      \
                }                                                                                                      \
            }                                                                                                          \
        } while (tow__walk_next(job, w));                                                                              \
    }
WINDOW_REDUCTIONS(REDUCE)

const tow__window_function tow__window_sum[TOW_DTYPE_END] = {FLOATS(sum), WORDS(sum)};
const tow__window_function tow__window_max[TOW_DTYPE_END] = {FLOATS(max), INTEGERS(max)};
const tow__window_function tow__window_min[TOW_DTYPE_END] = {FLOATS(min), INTEGERS(min)};

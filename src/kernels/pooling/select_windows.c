/* Selection by windows: gathering from another array and scattering to it, see pooling.c. */
#include "src/kernels/pooling/windows.h"

/* ---- by channels ------------------------------------------------------------------------------------------------- */

/* Another element takes the place of the best so far unless that is at least (at most) as large; so does a NaN. The
 * best of no elements is NaN, too, and so gives way to any. which: the numbers of the taps that have the best ones; -1:
 * the window meets nothing. V and W are vectors of T and of integers of its size, N of which stay in registers. */
#define CHOOSE(T, V, W, N)                                                                                             \
    TOW__INLINE void choose_##V##_##N(const bool minimum, const tow__walk *w, const T *x, const tow__taps *taps,       \
                                      int64_t step, W *which)                                                          \
    {                                                                                                                  \
        V best[N];                                                                                                     \
        W tap = {0};                                                                                                   \
        for (int j = 0; j < N; j++) {                                                                                  \
            best[j] = (V){0} + (T)NAN;                                                                                 \
            which[j] = (W){0} - 1;                                                                                     \
        }                                                                                                              \
        for (int64_t o = 0; o < w->n; o++) {                                                                           \
            const T *from = x + w->x_taps[o];                                                                          \
            for (int64_t k = 0; k < taps->count; k++, tap += 1, from += step)                                          \
                for (int j = 0; j < N; j++) {                                                                          \
                    const V value = ((const V *)(const void *)from)[j];                                                \
                    const W stays = minimum ? (W)(best[j] <= value) : (W)(best[j] >= value);                           \
                    best[j] = (V)((stays & (W)best[j]) | (~stays & (W)value));                                         \
                    which[j] = (stays & which[j]) | (~stays & tap);                                                    \
                }                                                                                                      \
        }                                                                                                              \
    }

/* N vectors of the run of one window. other: the place of its first tap of the row axis in the other array. Scattering
 * adds a zero to elements that are not selected. That leaves their bits: a sum that begins with 0 is never -0. */
#define PIECE(T, V, W, N)                                                                                              \
    CHOOSE(T, V, W, N)                                                                                                 \
    TOW__INLINE void gather_##V##_##N(const bool minimum, const tow__walk *w, const T *x, const tow__taps *taps,       \
                                      int64_t step, const T *other, int64_t other_step, T *y)                          \
    {                                                                                                                  \
        W which[N], all[N], tap = {0};                                                                                 \
        choose_##V##_##N(minimum, w, x, taps, step, which);                                                            \
        for (int j = 0; j < N; j++) all[j] = (W){0};                                                                   \
        for (int64_t o = 0; o < w->n; o++) {                                                                           \
            const T *from = other + w->other_taps[o];                                                                  \
            for (int64_t k = 0; k < taps->count; k++, tap += 1, from += other_step)                                    \
                for (int j = 0; j < N; j++) all[j] |= (W)(which[j] == tap) & ((const W *)(const void *)from)[j];       \
        }                                                                                                              \
        for (int j = 0; j < N; j++) ((W *)(void *)y)[j] = all[j];                                                      \
    }                                                                                                                  \
    TOW__INLINE void scatter_##V##_##N(const bool minimum, const bool stores, const tow__walk *w, const T *x,          \
                                       const tow__taps *taps, int64_t step, T *other, int64_t other_step, const T *t)  \
    {                                                                                                                  \
        W which[N], from[N], tap = {0};                                                                                \
        choose_##V##_##N(minimum, w, x, taps, step, which);                                                            \
        for (int j = 0; j < N; j++) from[j] = ((const W *)(const void *)t)[j];                                         \
        for (int64_t o = 0; o < w->n; o++) {                                                                           \
            T *to = other + w->other_taps[o];                                                                          \
            for (int64_t k = 0; k < taps->count; k++, tap += 1, to += other_step)                                      \
                for (int j = 0; j < N; j++) {                                                                          \
                    V *y = (V *)(void *)to + j;                                                                        \
                    *y = (stores ? (V){0} : *y) + (V)((W)(which[j] == tap) & from[j]);                                 \
                }                                                                                                      \
        }                                                                                                              \
    }

#define VECTOR(T, name, bytes) typedef T name __attribute__((vector_size(bytes), aligned(sizeof(T)), may_alias))
#define PIECES(T, I)                                                                                                   \
    VECTOR(T, T##_vector, 32);                                                                                         \
    VECTOR(I, T##_numbers, 32);                                                                                        \
    VECTOR(T, T##_single, sizeof(T));                                                                                  \
    VECTOR(I, T##_number, sizeof(T));                                                                                  \
    PIECE(T, T##_vector, T##_numbers, 4)                                                                               \
    PIECE(T, T##_vector, T##_numbers, 1)                                                                               \
    PIECE(T, T##_single, T##_number, 1)

#define EACH_PIECE(T, function, ...)                                                                                   \
    do {                                                                                                               \
        const int64_t vector = 32 / sizeof(T);                                                                         \
        int64_t i = 0;                                                                                                 \
        for (; i + 4 * vector <= t->n; i += 4 * vector) function##_##T##_vector_4(__VA_ARGS__);                        \
        for (; i + vector <= t->n; i += vector) function##_##T##_vector_1(__VA_ARGS__);                                \
        for (; i < t->n; i++) function##_##T##_single_1(__VA_ARGS__);                                                  \
    } while (0)

#define BY_CHANNELS(T, I)                                                                                              \
    PIECES(T, I)                                                                                                       \
    TOW__CLONES static void gather_channels_##T(const tow__window_job *job, const tow__walk *w,                        \
                                                const tow__window_tile *t)                                             \
    {                                                                                                                  \
        for (int64_t p = 0; p < t->lanes; p++) {                                                                       \
            const tow__taps taps = tow__row_window(job, t->lane + p);                                                  \
            const int64_t step = taps.element_step * job->x_row, other_step = taps.element_step * job->other_row;      \
            const T *x = (const T *)job->x->data + taps.element * job->x_row + t->first;                               \
            const T *other = (const T *)job->other.data + taps.element * job->other_row + t->first;                    \
            T *y = (T *)(void *)job->out + t->out + p * job->run;                                                      \
            if (job->minimum)                                                                                          \
                EACH_PIECE(T, gather, true, w, x + i, &taps, step, other + i, other_step, y + i);                      \
            else                                                                                                       \
                EACH_PIECE(T, gather, false, w, x + i, &taps, step, other + i, other_step, y + i);                     \
        }                                                                                                              \
    }                                                                                                                  \
    TOW__INLINE void scatter_lanes_##T(const bool minimum, const bool stores, const tow__window_job *job,              \
                                       const tow__walk *w, const tow__window_tile *t)                                  \
    {                                                                                                                  \
        for (int64_t p = 0; p < t->lanes; p++) {                                                                       \
            const tow__taps taps = tow__row_window(job, t->lane + p);                                                  \
            const int64_t step = taps.element_step * job->x_row, other_step = taps.element_step * job->other_row;      \
            const T *x = (const T *)job->x->data + taps.element * job->x_row + t->first;                               \
            T *other = (T *)(void *)job->out + taps.element * job->other_row + t->first;                               \
            const T *from = (const T *)(const void *)job->t + t->out + p * job->run;                                   \
            EACH_PIECE(T, scatter, minimum, stores, w, x + i, &taps, step, other + i, other_step, from + i);           \
        }                                                                                                              \
    }                                                                                                                  \
    TOW__CLONES static void scatter_channels_##T(const tow__window_job *job, const tow__walk *w,                       \
                                                 const tow__window_tile *t)                                            \
    {                                                                                                                  \
        if (job->minimum)                                                                                              \
            scatter_lanes_##T(true, job->partitions, job, w, t);                                                       \
        else if (job->partitions)                                                                                      \
            scatter_lanes_##T(false, true, job, w, t);                                                                 \
        else                                                                                                           \
            scatter_lanes_##T(false, false, job, w, t);                                                                \
    }
BY_CHANNELS(f32, i32)
BY_CHANNELS(f64, int64_t)

/* ---- by lanes or windows ----------------------------------------------------------------------------------------- */

#define NOWHERE(I) ((I)(UINT64_C(1) << (8 * sizeof(I) - 1)))

/* at[i]: where the other array has what element i of the tile selects, less the offset of its lane and of its place
 * in the run, which a tap does not change; NOWHERE if its window meets nothing. Another element takes the place of
 * the best so far unless that is at least (at most) as large; so does a NaN. The best of no elements is NaN, too,
 * and so gives way to any. */
#define BETTER(T, I, STAYS, x_column)                                                                                  \
    for (int64_t i = 0; i < s->columns; i++) {                                                                         \
        const T value = x[i * (x_column)];                                                                             \
        const bool stays = best[i] STAYS value;                                                                        \
        best[i] = stays ? best[i] : value;                                                                             \
        at[i] = stays ? at[i] : other;                                                                                 \
    }
#define SELECT(T, I)                                                                                                   \
    TOW__CLONES static void better_##T##_##I(const tow__sweep *s, bool minimum, const T *restrict x, I other,          \
                                             T *restrict best, I *restrict at)                                         \
    {                                                                                                                  \
        for (int64_t r = 0; r < s->rows; r++, best += s->y_row, at += s->y_row, x += s->x_row) {                       \
            if (s->x_column == 1) {                                                                                    \
                if (minimum)                                                                                           \
                    BETTER(T, I, <=, 1)                                                                                \
                else                                                                                                   \
                    BETTER(T, I, >=, 1)                                                                                \
            } else if (minimum)                                                                                        \
                BETTER(T, I, <=, s->x_column)                                                                          \
            else                                                                                                       \
                BETTER(T, I, >=, s->x_column)                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void windows_##T##_##I(const tow__window_job *job, const tow__walk *w, const tow__window_tile *t,           \
                                  T *restrict best, I *restrict at)                                                    \
    {                                                                                                                  \
        const tow__sweep s = {.rows = 1, .columns = t->n, .x_column = 1};                                              \
        for (int64_t p = 0; p < t->lanes; p++, best += t->n, at += t->n) {                                             \
            const tow__taps taps = tow__row_window(job, t->lane + p);                                                  \
            if (taps.count == 0) continue;                                                                             \
            const T *x = (const T *)job->x->data + w->x + taps.element * job->x_row + t->first;                        \
            const int64_t step = taps.element_step * job->x_row, other_step = taps.element_step * job->other_row;      \
            int64_t other = w->other + (taps.element - (t->lane + p) * job->row.stride) * job->other_row;              \
            for (int64_t k = 0; k < taps.count; k++, x += step, other += other_step) {                                 \
                if (t->n > TOW__FEW) {                                                                                 \
                    better_##T##_##I(&s, job->minimum, x, (I)other, best, at);                                         \
                    continue;                                                                                          \
                }                                                                                                      \
                for (int64_t i = 0; i < t->n; i++) {                                                                   \
                    if (job->minimum ? best[i] <= x[i] : best[i] >= x[i]) continue;                                    \
                    best[i] = x[i];                                                                                    \
                    at[i] = (I)other;                                                                                  \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void select_##T##_##I(const tow__window_job *job, tow__walk *w, const tow__window_tile *t, I *at)           \
    {                                                                                                                  \
        T best[TOW__SELECTED];                                                                                         \
        const T *x = job->x->data;                                                                                     \
        tow__sweep s;                                                                                                  \
        for (int64_t i = 0; i < t->lanes * t->n; i++) {                                                                \
            best[i] = (T)NAN;                                                                                          \
            at[i] = NOWHERE(I);                                                                                        \
        }                                                                                                              \
        if (!tow__walk_meets(job, w)) return;                                                                          \
        if (job->by_window) {                                                                                          \
            do windows_##T##_##I(job, w, t, best, at);                                                                 \
            while (tow__walk_next(job, w));                                                                            \
            return;                                                                                                    \
        }                                                                                                              \
        const tow__row_range taps = tow__row_taps(job, t);                                                             \
        do {                                                                                                           \
            for (int64_t k = taps.first; k < taps.end; k++) {                                                          \
                const int64_t element = k * job->row.window_dilation - job->row.low; /* of lane 0 */                   \
                if (tow__find_sweep(job, w, t, k, &s))                                                                 \
                    better_##T##_##I(&s, job->minimum, x + s.x, (I)(w->other + element * job->other_row), best + s.y,  \
                                     at + s.y);                                                                        \
            }                                                                                                          \
        } while (tow__walk_next(job, w));                                                                              \
    }
SELECT(f32, i32)
SELECT(f32, int64_t)
SELECT(f64, int64_t)

/* Kernels that use what the windows of a tile select: of window i of a lane it is element where[i] + lane + i of the
 * other array, unless it selects nothing; the result has element result + i for it. MOVE: from x to y. */
#define USE_SELECTED(name, T, I, X, MOVE)                                                                              \
    static void name##_##T##_##I(const tow__window_job *job, tow__walk *w, const tow__window_tile *t)                  \
    {                                                                                                                  \
        if (job->by_channels) {                                                                                        \
            name##_channels_##T(job, w, t);                                                                            \
            return;                                                                                                    \
        }                                                                                                              \
        I at[TOW__SELECTED];                                                                                           \
        select_##T##_##I(job, w, t, at);                                                                               \
        const T *x = (const T *)(const void *)(X);                                                                     \
        T *y = (T *)(void *)job->out;                                                                                  \
        for (int64_t p = 0; p < t->lanes; p++) {                                                                       \
            const int64_t lane = (t->lane + p) * (job->row.stride * job->other_row) + t->first;                        \
            const int64_t result = t->out + p * job->run;                                                              \
            const I *where = at + p * t->n;                                                                            \
            for (int64_t i = 0; i < t->n; i++) MOVE;                                                                   \
        }                                                                                                              \
    }
#define GATHER(T, I)                                                                                                   \
    USE_SELECTED(gather, T, I, job->other.data, y[result + i] = where[i] != NOWHERE(I) ? x[where[i] + lane + i] : 0)
#define SCATTER(T, I)                                                                                                  \
    USE_SELECTED(scatter, T, I, job->t, if (where[i] != NOWHERE(I)) y[where[i] + lane + i] += x[result + i])
GATHER(f32, i32)
GATHER(f32, int64_t)
GATHER(f64, int64_t)
SCATTER(f32, i32)
SCATTER(f32, int64_t)
SCATTER(f64, int64_t)

const tow__window_function tow__window_gather[2][2] = {{gather_f32_int64_t, gather_f32_i32},
                                                       {gather_f64_int64_t, gather_f64_int64_t}};
const tow__window_function tow__window_scatter[2][2] = {{scatter_f32_int64_t, scatter_f32_i32},
                                                        {scatter_f64_int64_t, scatter_f64_int64_t}};

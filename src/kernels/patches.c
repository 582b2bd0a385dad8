/* Transposition: writes what is contiguous along one axis so that it is contiguous along another.
 *
 * Reading a transposed view in order touches a cache line per element. So matrices are cut into patches of which both
 * sides stay in the cache, and those into squares that are transposed in registers: rows of a square are loaded whole,
 * and stored whole as its columns. */
#include <string.h>

#include "src/kernels/strided.h"

enum {
    PATCH = 64 /* rows and columns */
};

typedef uint32_t row_32 __attribute__((vector_size(32)));
typedef uint64_t row_64 __attribute__((vector_size(32)));

/* out[a][b] = in[b][a] for a square of 8: pairs of rows exchange elements, then pairs of elements, then halves. */
TOW__INLINE void turn_uint32_t(uint32_t *out, int64_t row, const uint32_t *in, int64_t column)
{
    row_32 x[8], y[8];
    for (int i = 0; i < 8; i++) memcpy(&x[i], in + i * column, sizeof x[i]);
    for (int i = 0; i < 8; i += 2) {
        y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        y[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int j = 0; j < 2; j++) {
            x[i + 2 * j] = __builtin_shufflevector(y[i + j], y[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            x[i + 2 * j + 1] = __builtin_shufflevector(y[i + j], y[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    }
    for (int i = 0; i < 4; i++) {
        y[i] = __builtin_shufflevector(x[i], x[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        y[i + 4] = __builtin_shufflevector(x[i], x[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    for (int i = 0; i < 8; i++) memcpy(out + i * row, &y[i], sizeof y[i]);
}

/* The same for a square of 4. */
TOW__INLINE void turn_uint64_t(uint64_t *out, int64_t row, const uint64_t *in, int64_t column)
{
    row_64 x[4], y[4];
    for (int i = 0; i < 4; i++) memcpy(&x[i], in + i * column, sizeof x[i]);
    for (int i = 0; i < 4; i += 2) {
        y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 4, 2, 6);
        y[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 1, 5, 3, 7);
    }
    for (int i = 0; i < 2; i++) {
        x[i] = __builtin_shufflevector(y[i], y[i + 2], 0, 1, 4, 5);
        x[i + 2] = __builtin_shufflevector(y[i], y[i + 2], 2, 3, 6, 7);
    }
    for (int i = 0; i < 4; i++) memcpy(out + i * row, &x[i], sizeof x[i]);
}

#define ELEMENTS(a_first, a_end, b_first, b_end)                                                                       \
    for (int64_t a = a_first; a < (a_end); a++)                                                                        \
        for (int64_t b = b_first; b < (b_end); b++) out[a * row + b] = in[b * column + a]

/* Squares, where there are instructions for them, then what is left of the columns, then of the rows. */
#define PATCHES(T, SQUARE)                                                                                             \
    TOW__CLONES static void transpose_##T(int64_t a_count, int64_t b_count, T *out, int64_t row, const T *in,          \
                                          int64_t column)                                                              \
    {                                                                                                                  \
        const int64_t square = tow__has_avx2() ? SQUARE : PATCH + 1;                                                   \
        const int64_t a_squares = a_count / square * square, b_squares = b_count / square * square;                    \
        for (int64_t a = 0; a < a_squares; a += SQUARE)                                                                \
            for (int64_t b = 0; b < b_squares; b += SQUARE)                                                            \
                turn_##T(out + a * row + b, row, in + b * column + a, column);                                         \
        ELEMENTS(0, a_squares, b_squares, b_count);                                                                    \
        ELEMENTS(a_squares, a_count, 0, b_count);                                                                      \
    }
PATCHES(uint32_t, 8)
PATCHES(uint64_t, 4)

static void transpose_uint16_t(int64_t a_count, int64_t b_count, uint16_t *out, int64_t row, const uint16_t *in,
                               int64_t column)
{
    ELEMENTS(0, a_count, 0, b_count);
}

static void transpose_uint8_t(int64_t a_count, int64_t b_count, uint8_t *out, int64_t row, const uint8_t *in,
                              int64_t column)
{
    ELEMENTS(0, a_count, 0, b_count);
}

void tow__transpose_matrix(size_t size, int64_t m, int64_t n, void *to, int64_t to_row, const void *from,
                           int64_t from_row)
{
    for (int64_t a = 0; a < m; a += PATCH)
        for (int64_t b = 0; b < n; b += PATCH) {
            int64_t a_count = tow__min(PATCH, m - a), b_count = tow__min(PATCH, n - b);
            int64_t in = a + b * from_row, out = a * to_row + b;
            if (size == 4)
                transpose_uint32_t(a_count, b_count, (uint32_t *)to + out, to_row, (const uint32_t *)from + in,
                                   from_row);
            else
                transpose_uint64_t(a_count, b_count, (uint64_t *)to + out, to_row, (const uint64_t *)from + in,
                                   from_row);
        }
}

typedef struct transpose_job {
    const tow__strided *to, *from;
    int along, last; /* axes of `from`: contiguous in `from`, contiguous in `to` */
    int64_t row;     /* elements of `to` per step of `along` */
    int64_t others, a_patches, b_patches;
} transpose_job;

static void transpose_block(void *user, int64_t block)
{
    const transpose_job *job = user;
    const tow__strided *from = job->from;
    int64_t b = block % job->b_patches * PATCH, a = block / job->b_patches % job->a_patches * PATCH;
    int64_t other = block / job->b_patches / job->a_patches, size = (int64_t)from->size, step = 1;
    int64_t in = a + b * from->strides[job->last], out = a * job->row + b;
    for (int i = job->last; i >= 0; i--) { /* the other axes, the last one fastest */
        if (i != job->last && i != job->along) {
            in += other % from->dims[i] * from->strides[i];
            out += other % from->dims[i] * step;
            other /= from->dims[i];
        }
        step *= from->dims[i];
    }
    int64_t a_count = tow__min(PATCH, from->dims[job->along] - a), b_count = tow__min(PATCH, from->dims[job->last] - b);
    void *to_at = job->to->data + out * size, *from_at = from->data + in * size;
    if (size == 4)
        transpose_uint32_t(a_count, b_count, to_at, job->row, from_at, from->strides[job->last]);
    else if (size == 8)
        transpose_uint64_t(a_count, b_count, to_at, job->row, from_at, from->strides[job->last]);
    else if (size == 2)
        transpose_uint16_t(a_count, b_count, to_at, job->row, from_at, from->strides[job->last]);
    else
        transpose_uint8_t(a_count, b_count, to_at, job->row, from_at, from->strides[job->last]);
}

bool tow__store_patches(const tow__team *team, const tow__strided *to, const tow__strided *from)
{
    transpose_job job = {.to = to, .from = from, .along = -1, .last = from->rank - 1, .row = 1};
    if (!to->flat || from->rank < 2 || from->size > sizeof(uint64_t) || from->strides[job.last] == 1) return false;
    for (int i = 0; i < job.last; i++)
        if (from->strides[i] == 1) job.along = i;
    if (job.along < 0 || from->dims[job.along] < 8 || from->dims[job.last] < 8) return false;
    for (int i = job.along + 1; i <= job.last; i++) job.row *= from->dims[i];
    job.a_patches = tow__ceil_div(from->dims[job.along], PATCH);
    job.b_patches = tow__ceil_div(from->dims[job.last], PATCH);
    job.others = from->count / from->dims[job.along] / from->dims[job.last];
    tow__team_run(team, job.others * job.a_patches * job.b_patches, transpose_block, &job);
    return true;
}

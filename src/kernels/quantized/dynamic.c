/* quantize_dynamic, dequantize_dynamic: rows as codes of 8 bits and the largest magnitude of each.
 *
 * Within an exponent of ten, codes are a straight line of magnitudes; with the exponent, the slopes fall and the lines
 * meet, so that the code of a magnitude is the least of all lines. It is taken a little low, and one comparison with
 * the middle between it and the next one says which of the two is nearest. */
#include "src/base/clones.h"
#include "src/base/params.h"
#include "src/kernels/norms/rows.h"
#include "src/kernels/quantized/dynamic_map.h"
#include "src/kernels/tables.h"

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The largest magnitude; NaN if there is one: the bits of magnitudes are in their order, and those of NaN above all. */
TOW__CLONES static f32 largest_of(int64_t n, const f32 *x)
{
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    f32 largest;
    memcpy(&largest, &most, sizeof largest);
    return largest;
}

/* The least of the lines, at magnitude u. */
static inline f32 least_line(const tow__dynamic_lines *l, f32 u)
{
    f32 least = u * l->slope[0] + l->at_zero[0];
    for (int k = 1; k < TOW__DYNAMIC_LINES; k++) {
        const f32 y = u * l->slope[k] + l->at_zero[k];
        least = y < least ? y : least;
    }
    return least;
}

TOW__CLONES static void encode_signed(const tow__dynamic_map *map, int64_t n, const f32 *x, f32 size,
                                      uint8_t *restrict codes)
{
    const tow__dynamic_lines lines = map->lines;
    const f32 *between = map->between;
    for (int64_t i = 0; i < n; i++) {
        const f32 t = x[i] / size;
        const int32_t steps = (int32_t)least_line(&lines, t == t ? fabsf(t) : 0);
        int32_t code = t < 0 ? TOW__DYNAMIC_ZERO - 1 - steps : TOW__DYNAMIC_ZERO + steps;
        code = code < 0 ? 0 : code;
        codes[i] = (uint8_t)(code + (t > between[code]));
    }
}

TOW__CLONES static void encode_nonnegative(const tow__dynamic_map *map, int64_t n, const f32 *x, f32 size,
                                           uint8_t *restrict codes)
{
    const tow__dynamic_lines lines = map->lines;
    const f32 *between = map->between;
    for (int64_t i = 0; i < n; i++) {
        const f32 t = x[i] / size; /* 0 where it is too small for an f32, too */
        const int32_t line = (int32_t)least_line(&lines, t > 0 ? t : 0), code = line + (t > between[line]);
        codes[i] = (uint8_t)(code + ((code == 0) & (x[i] > 0)));
    }
}

TOW__CLONES static void decode(const f32 *values, int64_t n, const uint8_t *codes, f32 size, f32 *x)
{
    for (int64_t i = 0; i < n; i++) x[i] = values[codes[i]] * size;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

typedef struct job {
    const tow__kernel_call *call;
    const tow__dynamic_map *map;
    tow__row_view rows; /* of operand 0 */
    tow__strided sizes; /* of operand 1 */
    size_t row_bytes;
    bool nonnegative;
} job;

static int64_t rows_per_block(int64_t length) { return tow__max(1, TOW__BLOCK / tow__max(1, length)); }

static void quantize_row(const job *j, int64_t r, const f32 *x)
{
    const int64_t n = j->rows.length;
    uint8_t *codes = (uint8_t *)j->call->out[0].data + r * n;
    f32 *size = (f32 *)j->call->out[1].data + r;
    *size = largest_of(n, x);
    if (*size == 0)
        memset(codes, j->nonnegative ? 0 : TOW__DYNAMIC_ZERO, (size_t)n); /* every number is 0 */
    else
        (j->nonnegative ? encode_nonnegative : encode_signed)(j->map, n, x, *size, codes);
}

static void run_block(void *user, int64_t block)
{
    const job *j = user;
    const tow__kernel_call *call = j->call;
    const int64_t n = j->rows.length, per_block = rows_per_block(n);
    const int64_t end = tow__min((block + 1) * per_block, j->rows.rest.count);
    char *buffer = tow__scratch_of_thread(call->scratch, j->row_bytes);
    for (int64_t r = block * per_block; r < end; r++) {
        const void *row = tow__row(&j->rows, r, buffer);
        if (call->n_out == 2) {
            quantize_row(j, r, row);
        } else {
            const char *size = j->sizes.data + tow__strided_offset(&j->sizes, r) * (int64_t)j->sizes.size;
            decode(j->map->values, n, row, *(const f32 *)(const void *)size, (f32 *)call->out[0].data + r * n);
        }
    }
}

static void run_dynamic(const tow__kernel_call *call)
{
    const tow__buffer *x = &call->in[0];
    const tow__dynamic_params *p = call->params;
    job j = {.call = call, .map = tow__dynamic_map_get(p->nonnegative), .rows = tow__rows_of(x, x->rank - 1)};
    if (call->n_in == 2) j.sizes = tow__strided_buffer(&call->in[1]);
    j.row_bytes = tow__row_bytes(j.rows.length, x->dtype);
    j.nonnegative = p->nonnegative;
    if (j.rows.rest.count == 0) return;
    tow__team_run(call->team, tow__ceil_div(j.rows.rest.count, rows_per_block(j.rows.length)), run_block, &j);
}

static size_t scratch_dynamic(const tow__kernel_call *call)
{
    const tow__buffer *x = &call->in[0];
    return (size_t)tow__threads(call) * tow__row_bytes(x->dims[x->rank - 1], x->dtype);
}

/* Types are those of the first operand of floats: x, or the sizes. */
static const tow__kernel kernels[] = {
    {"dequantize_dynamic", 1 << TOW_F32, run_dynamic, scratch_dynamic, "vector"},
    {"quantize_dynamic", 1 << TOW_F32, run_dynamic, scratch_dynamic, "vector"},
};
const tow__kernel_table tow__kernels_dynamic = {kernels, sizeof kernels / sizeof kernels[0]};

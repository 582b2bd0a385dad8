/* quantize_dynamic, dequantize_dynamic: rows as codes of 8 bits and the largest magnitude of each.
 *
 * The code of a number is found from the upper bits of its magnitude: a table has the least code among numbers with
 * those bits, and one comparison says whether it is the next one. */
#include "src/base/clones.h"
#include "src/base/params.h"
#include "src/kernels/norms/rows.h"
#include "src/kernels/quantized/dynamic_map.h"
#include "src/kernels/tables.h"

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The largest magnitude; NaN if there is one. */
TOW__CLONES static f32 largest_of(int64_t n, const f32 *x)
{
    enum {
        LANES = 16
    };
    f32 most[LANES] = {0}, all = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const f32 a = fabsf(x[i + j]);
            most[j] = a > most[j] || a != a ? a : most[j];
        }
    for (; i < n; i++) {
        const f32 a = fabsf(x[i]);
        most[0] = a > most[0] || a != a ? a : most[0];
    }
    for (int j = 0; j < LANES; j++) all = most[j] > all || most[j] != most[j] ? most[j] : all;
    return all;
}

TOW__CLONES static void encode(const tow__dynamic_map *map, int64_t n, const f32 *x, f32 size, uint8_t *codes)
{
    const int32_t *first = map->first[0];
    for (int64_t i = 0; i < n; i++) {
        const f32 t = x[i] / size;
        uint32_t bits;
        memcpy(&bits, &t, sizeof bits);
        int32_t bucket = (int32_t)((bits & 0x7FFFFFFF) >> 16) - TOW__FIRST_BUCKET;
        bucket = bucket < 0 ? 0 : bucket;
        bucket = bucket < TOW__BUCKETS ? bucket : TOW__BUCKETS - 1;
        const int32_t code = first[bucket + (int32_t)(bits >> 31) * TOW__BUCKETS];
        codes[i] = (uint8_t)(t == t ? code + (t > map->between[code]) : 0);
    }
}

/* Rows of zeros: every number is the 0 of the map. */
static uint8_t code_of_zero(const tow__dynamic_map *map)
{
    int code = 0;
    while (map->values[code] < 0) code++;
    return (uint8_t)code;
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
    uint8_t zero;
} job;

static int64_t rows_per_block(int64_t length) { return tow__max(1, TOW__BLOCK / tow__max(1, length)); }

static void quantize_row(const job *j, int64_t r, const f32 *x)
{
    const int64_t n = j->rows.length;
    uint8_t *codes = (uint8_t *)j->call->out[0].data + r * n;
    f32 *size = (f32 *)j->call->out[1].data + r;
    *size = largest_of(n, x);
    if (*size == 0)
        memset(codes, j->zero, (size_t)n);
    else
        encode(j->map, n, x, *size, codes);
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
    j.zero = code_of_zero(j.map);
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

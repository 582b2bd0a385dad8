/* Equations that sum over rows: see rows.h. Operands are cut into blocks, which are views; the sums of two neighbors
 * are added as soon as both are there. */
#include "src/autodiff/rows/rows.h"

#include <math.h>

#include "src/base/dtypes.h"
#include "src/ops/rules.h"
#include "tow/numpy.h"
#include "tow/ops.h"

/* One of an equation's results, a move of another, the sum of two, or what is given block by block. */
struct tow__late_sum {
    tow__row_equation r; /* with operands of its own */
    uint32_t result;
    tow_value **results;    /* [count] of an equation, for all its results: those of a block; NULL: not yet recorded */
    tow__late_sum *of[2];   /* a move: of [0]; a sum: of both; NULL: an equation, or given */
    const tow_value *given; /* [count], or NULL */
};

/* The operation on the results of two blocks. Other reductions than sums join results as they join elements. */
const tow_primitive *tow__rows_joining(const tow_primitive *p)
{
    static const struct {
        const tow_primitive *reduction, *join;
    } others[] = {{&tow__reduce_max_p, &tow__max_p},  {&tow__reduce_min_p, &tow__min_p},
                  {&tow__reduce_prod_p, &tow__mul_p}, {&tow__reduce_and_p, &tow__and_p},
                  {&tow__reduce_or_p, &tow__or_p},    {&tow__reduce_xor_p, &tow__xor_p}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].reduction == p) return others[i].join;
    return &tow__add_p;
}

tow_value tow__rows_identity(tow_trace *t, const tow_primitive *join, tow_type type)
{
    const bool floats = tow_dtype_is_float(type.dtype);
    const bool is_signed = type.dtype == TOW_I8 || type.dtype == TOW_I32 || type.dtype == TOW_I64;
    const double lowest = is_signed ? -ldexp(1, 8 * (int)tow_dtype_size(type.dtype) - 1) : 0;
    if (join == &tow__mul_p) return tow_full(t, type, 1);
    if (join == &tow__max_p) return tow_full(t, type, floats ? -INFINITY : lowest);
    if (join == &tow__min_p && floats) return tow_full(t, type, INFINITY);
    if (join == &tow__min_p) return tow_not(tow_full(t, type, lowest)); /* the complement of the lowest number */
    if (join == &tow__and_p) return tow_not(tow_full(t, type, 0));
    return tow_full(t, type, join == &tow__add_p ? -0.0 : 0);
}

tow_value tow__rows_slice(tow_value x, int axis, int64_t n, int64_t k)
{
    if (axis == TOW__WHOLE || tow_is_null(x)) return x;
    const int64_t size = tow_value_type(x).dims[axis] / n;
    return tow_slice_axis(x, axis, k * size, (k + 1) * size);
}

static void record_block(tow_trace *t, const tow__row_equation *r, int64_t n, int64_t k, tow_value *y)
{
    tow_value *in = tow__trace_alloc(t, (size_t)r->e->n_in + 1, sizeof *in);
    if (!in) return;
    for (uint32_t i = 0; i < r->e->n_in; i++) in[i] = tow__rows_slice(r->in[i], r->from[i], n, k);
    if (!tow__failed(t)) tow__rebind(t, r->e, in, y);
}

/* Blocks [begin, begin + length), depth first. */
static void record_blocks(tow_trace *t, const tow__row_equation *r, int64_t n, int64_t begin, int64_t length,
                          tow_value *y)
{
    if (length == 1) {
        record_block(t, r, n, begin, y);
        return;
    }
    tow_value *other = tow__trace_alloc(t, (size_t)r->e->n_out + 1, sizeof *other);
    if (!other) return;
    record_blocks(t, r, n, begin, length / 2, y);
    record_blocks(t, r, n, begin + length / 2, length / 2, other);
    for (uint32_t i = 0; i < r->e->n_out && !tow__failed(t); i++)
        y[i] = tow__op(tow__rows_joining(r->e->primitive), NULL, 2, (tow_value[]){y[i], other[i]});
}

/* scatter_add into more rows than there are indices: the tree is over tables that have a row for each index alone.
 *
 *     sorted = sort(indices), slot = place in sorted of the first index that is equal
 *     result = scatter_add(sorted, tree of scatter_add(slots of a block, its updates))
 *
 * All updates of one index meet in one row, and the rows of slots that no index has are zeros. */
static bool record_scatter(tow_trace *t, const tow__row_equation *r, const tow__row_blocks *b, tow_value *y)
{
    if (r->e->primitive != &tow__scatter_add_p || r->from[0] != 0) return false;
    const int64_t rows = ((const tow__rows_params *)r->e->params)->rows;
    const tow_type indices = tow_value_type(r->in[0]), updates = tow_value_type(r->in[1]);
    const int64_t n = tow_type_element_count(indices);
    int64_t dims[TOW_MAX_RANK] = {n};
    if (rows <= n || n == 0 || n > INT32_MAX) return false;
    for (int a = indices.rank; a < updates.rank; a++) dims[1 + a - indices.rank] = updates.dims[a];
    const tow_value given = tow_reshape(r->in[0], 1, &n), zero = tow_zeros_like(given);
    /* One index for one row: those from the end are counted from the front; what names no row stays outside. */
    const tow_value front = tow_add(given, tow_full_like(given, (double)rows));
    const tow_value is_last = tow_and(tow_lt(given, zero), tow_ge(front, zero));
    const tow_value flat = tow_where(is_last, front, given), sorted = tow_sort(flat, 0, false);
    tow__row_equation few = {.from = r->from, .in = tow__trace_alloc(t, 2, sizeof *few.in)};
    tow__equation *e = tow__trace_alloc(t, 1, sizeof *e);
    tow__rows_params *params = tow__trace_alloc(t, 1, sizeof *params);
    if (!e || !params || !few.in) return true;
    few.in[0] = tow_searchsorted(sorted, flat, false);
    few.in[1] = tow_reshape(r->in[1], 1 + updates.rank - indices.rank, dims);
    params->rows = n;
    *e = *r->e;
    e->params = params;
    few.e = e;
    if (!tow__failed(t)) record_blocks(t, &few, b->count, 0, b->count, y);
    if (!tow__failed(t)) *y = tow_scatter_add(sorted, *y, rows);
    return true;
}

void tow__rows_sum(tow_trace *t, const tow__row_equation *r, const tow__row_blocks *b, tow_value *y)
{
    if (record_scatter(t, r, b, y)) return;
    record_blocks(t, r, b->count, 0, b->count, y);
}

/* ---- later ------------------------------------------------------------------------------------------------------- */

static tow__late_sum *new_late(tow_trace *t, const tow__equation *e)
{
    tow__late_sum *late = tow__trace_alloc(t, 1, sizeof *late);
    if (late) late->r.e = e;
    return late;
}

static tow__row_value late_value(tow__late_sum *late)
{
    return (tow__row_value){.axis = TOW__WHOLE, .sum = &tow__add_p, .late = late};
}

void tow__rows_later(tow_trace *t, const tow__row_equation *r, const tow__row_blocks *b, tow__row_value *y)
{
    const size_t n = (size_t)r->e->n_in + 1;
    tow_value **results = tow__trace_alloc(t, (size_t)b->count, sizeof *results);
    tow_value *in = tow__trace_alloc(t, n, sizeof *in);
    int *from = tow__trace_alloc(t, n, sizeof *from);
    if (!results || !in || !from) return;
    memcpy(in, r->in, r->e->n_in * sizeof *in);
    memcpy(from, r->from, r->e->n_in * sizeof *from);
    for (uint32_t k = 0; k < r->e->n_out; k++) {
        tow__late_sum *late = new_late(t, r->e);
        if (!late) return;
        late->r.in = in;
        late->r.from = from;
        late->result = k;
        late->results = results;
        y[k] = late_value(late);
    }
}

tow__row_value tow__rows_later_of(tow_trace *t, const tow__equation *e, tow__late_sum *of, tow__late_sum *and)
{
    tow__late_sum *late = new_late(t, e);
    if (!late) return (tow__row_value){.axis = TOW__WHOLE};
    late->of[0] = of;
    late->of[1] = and;
    return late_value(late);
}

tow__row_value tow__rows_given(tow_trace *t, const tow_value *blocks)
{
    tow__late_sum *late = new_late(t, NULL);
    if (!late) return (tow__row_value){.axis = TOW__WHOLE};
    late->given = blocks;
    return late_value(late);
}

static tow_value result_of_block(tow_trace *t, const tow__late_sum *sum, const tow__row_blocks *b, int64_t k)
{
    if (!sum->results[k]) {
        sum->results[k] = tow__trace_alloc(t, (size_t)sum->r.e->n_out + 1, sizeof **sum->results);
        if (!sum->results[k]) return (tow_value){0};
        tow__set_source(t, &sum->r.e->source);
        record_block(t, &sum->r, b->count, k, sum->results[k]);
    }
    return sum->results[k][sum->result];
}

tow_value tow__rows_block(tow_trace *t, const tow__late_sum *sum, const tow__row_blocks *b, int64_t k)
{
    tow_value y = {0}, x[2] = {{0}};
    if (tow__failed(t)) return y;
    if (sum->given) return sum->given[k];
    if (!sum->of[0]) return result_of_block(t, sum, b, k);
    for (int i = 0; i < 2 && sum->of[i]; i++) x[i] = tow__rows_block(t, sum->of[i], b, k);
    tow__set_source(t, &sum->r.e->source);
    if (!tow__failed(t)) tow__rebind(t, sum->r.e, x, &y);
    return y;
}

/* Blocks [begin, begin + length), depth first. */
static tow_value total_of_blocks(tow_trace *t, const tow__late_sum *sum, const tow__row_blocks *b, int64_t begin,
                                 int64_t length)
{
    if (length == 1) return tow__rows_block(t, sum, b, begin);
    const tow_value left = total_of_blocks(t, sum, b, begin, length / 2);
    const tow_value right = total_of_blocks(t, sum, b, begin + length / 2, length / 2);
    return tow__failed(t) ? left : tow_add(left, right);
}

tow_value *tow__rows_blocks(tow_trace *t, const tow__late_sum *sum, const tow__row_blocks *b)
{
    tow_value *blocks = tow__trace_alloc(t, (size_t)b->count, sizeof *blocks);
    for (int64_t k = 0; blocks && k < b->count; k++) blocks[k] = tow__rows_block(t, sum, b, k);
    return blocks;
}

tow_value tow__rows_late_total(tow_trace *t, const tow__late_sum *sum, const tow__row_blocks *b)
{
    return total_of_blocks(t, sum, b, 0, b->count);
}

/* Moves, and conversions that lose nothing: of the sums of blocks as of the whole sum. */
bool tow__rows_moves_late(const tow_graph *g, const tow__equation *e)
{
    if (e->primitive == &tow__reshape_p || e->primitive == &tow__transpose_p) return true;
    if (e->primitive != &tow__convert_p) return false;
    const tow_dtype from = g->vars[e->in[0]].type.dtype, to = g->vars[e->out[0]].type.dtype;
    return to == TOW_F32 && tow_dtype_is_float(from) && tow_dtype_size(from) <= tow_dtype_size(to);
}

void tow__rows_mark_late(const tow_graph *g, const uint32_t *uses, uint32_t var, bool *late)
{
    if (uses[var] != 1) return;
    late[var] = true;
    if (g->vars[var].equation == TOW__INPUT) return;
    const tow__equation *e = &g->equations[g->vars[var].equation];
    const bool adds = e->primitive == &tow__add_p;
    if (adds || tow__rows_moves_late(g, e)) tow__rows_mark_late(g, uses, e->in[0], late);
    if (adds) tow__rows_mark_late(g, uses, e->in[1], late);
}

void tow__rows_count_uses(const tow_graph *g, uint32_t *uses)
{
    memset(uses, 0, g->n_vars * sizeof *uses);
    for (uint32_t i = 0; i < g->n_equations; i++)
        for (uint32_t k = 0; k < g->equations[i].n_in; k++) uses[g->equations[i].in[k]]++;
    for (uint32_t i = 0; i < g->n_outputs; i++) uses[g->outputs[i]]++;
}

tow_value tow__rows_tree(int64_t n, const tow_value *blocks)
{
    if (n == 1) return blocks[0];
    tow_value left = tow__rows_tree(n / 2, blocks);
    return tow_add(left, tow__rows_tree(n / 2, blocks + n / 2));
}

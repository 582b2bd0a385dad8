/* Tables of which a process has a share are read block by block: see sharding.h. A block is tow__loss_block(V) rows of
 * the table [V, C], a slice, which the graph on shares gathers in front of its reader:
 *
 *   gather(table, i)                 y = where(i is in block k, gather(table_k, i - first_k), y), for k = 0, 1, ..
 *   linear_cross_entropy(x, table)   linear_cross_entropy_join of the parts of all blocks
 *   its vjp                          dx = dx_0 + dx_1 + .., dtable_k
 *   index_add, scatter_add           into block k: i - first_k, or an index outside
 *   element by element               the same of blocks
 *
 * A gradient that is wanted as a share is a concatenation of blocks, whose sums over processes are scattered one by
 * one. Each reader slices for itself, so that no block is kept for a later one. All other equations read the whole. */
#include <math.h>

#include "src/autodiff/sharding/sharding.h"
#include "src/base/dtypes.h"
#include "src/ops/rules.h"
#include "tow/numpy.h"
#include "tow/ops.h"

enum {
    MOST_WHOLE = 1024 /* rows that are gathered at once */
};

/* A value of the graph. */
typedef struct table_value {
    bool refused; /* a table of the inputs that something reads whole: nothing would be saved by its blocks */
    bool can;     /* is a table that can be had in blocks */
    bool needs_blocks, needs_whole;
    tow_value whole, *blocks; /* in the new graph; null: not made */
    tow_value block;          /* one that was made for the reader `made_for` */
    uint64_t made_for;
} table_value;

typedef struct splitting {
    tow_trace *t;
    const tow_graph *g;
    const tow__sharding *s;
    table_value *values;
    uint64_t *reader; /* counts readers of blocks */
} splitting;

static const tow_type *type_of(const splitting *w, uint32_t var) { return &w->g->vars[var].type; }

static bool is_table(const tow_type *type)
{
    return tow_dtype_is_float(type->dtype) && type->rank == 2 && type->dims[0] > MOST_WHOLE;
}

static int64_t block_rows(const tow_type *table) { return tow__loss_block(table->dims[0]); }
static int64_t block_count(const tow_type *table)
{
    return (table->dims[0] + block_rows(table) - 1) / block_rows(table);
}
static int64_t first_row(const tow_type *table, int64_t k) { return k * block_rows(table); }
static int64_t end_row(const tow_type *table, int64_t k)
{
    const int64_t end = (k + 1) * block_rows(table);
    return end < table->dims[0] ? end : table->dims[0];
}

/* ---- what can be had in blocks, and what is needed so ------------------------------------------------------------ */

static bool is_elementwise(const splitting *w, const tow__equation *e)
{
    bool any = false;
    if (e->primitive->kind != TOW__ELEMENTWISE || e->n_out != 1 || tow__has_effect(e)) return false;
    for (uint32_t i = 0; i < e->n_in; i++) {
        tow_type x = *type_of(w, e->in[i]);
        x.dtype = type_of(w, e->out[0])->dtype;
        if (x.rank > 0 && !(w->values[e->in[i]].can && tow_type_equal(x, *type_of(w, e->out[0])))) return false;
        any |= x.rank > 0;
    }
    return any;
}

/* The loss of a product with a table, or its derivative, by blocks. */
static bool is_loss(const splitting *w, const tow__equation *e)
{
    if (e->n_in < 2 || !w->values[e->in[1]].can || type_of(w, e->in[0])->rank >= TOW_MAX_RANK) return false;
    if (e->primitive == &tow__linear_cross_entropy_p)
        return ((const tow__linear_cross_entropy_params *)e->params)->rows;
    const tow__linear_cross_entropy_ad_params *p = e->params;
    return e->primitive == &tow__linear_cross_entropy_vjp_p && p->rows && p->classes == 0;
}

static void find_tables(const splitting *w)
{
    const tow_graph *g = w->g;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        w->values[g->inputs[i]].can =
            w->s->in[i] == 1 && is_table(type_of(w, g->inputs[i])) && !w->values[g->inputs[i]].refused;
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (e->n_out == 0) continue;
        table_value *last = &w->values[e->out[e->n_out - 1]];
        if (!is_table(type_of(w, e->out[e->n_out - 1]))) continue;
        last->can = e->primitive == &tow__scatter_add_p || is_elementwise(w, e) ||
                    (e->primitive == &tow__index_add_p && w->values[e->in[0]].can) ||
                    (e->primitive == &tow__linear_cross_entropy_vjp_p && is_loss(w, e) &&
                     ((const tow__linear_cross_entropy_ad_params *)e->params)->wrt & 2);
    }
}

/* Only blocks of the result are needed. */
static bool in_blocks_alone(const splitting *w, const tow__equation *e)
{
    const table_value *y = &w->values[e->out[0]];
    return e->n_out == 1 && y->can && y->needs_blocks && !y->needs_whole;
}

static bool adds_rows(const splitting *w, const tow__equation *e)
{
    return (e->primitive == &tow__scatter_add_p || (e->primitive == &tow__index_add_p && w->values[e->in[0]].can)) &&
           in_blocks_alone(w, e);
}

static bool looks_up(const splitting *w, const tow__equation *e)
{
    return e->primitive == &tow__gather_p && w->values[e->in[0]].can;
}

/* The operand that the equation reads in blocks. */
static uint32_t table_of(const splitting *w, const tow__equation *e)
{
    if (looks_up(w, e) || (adds_rows(w, e) && e->primitive == &tow__index_add_p)) return 0;
    return is_loss(w, e) ? 1 : e->n_in;
}

static void find_needs(const splitting *w)
{
    const tow_graph *g = w->g;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        table_value *y = &w->values[g->outputs[i]];
        const bool made = g->vars[g->outputs[i]].equation != TOW__INPUT;
        *(y->can && made && w->s->out[i] == 1 ? &y->needs_blocks : &y->needs_whole) = true;
    }
    for (uint32_t i = g->n_equations; i-- > 0;) {
        const tow__equation *e = &g->equations[i];
        const bool elementwise = e->n_out == 1 && w->values[e->out[0]].can && is_elementwise(w, e);
        const table_value *y = elementwise ? &w->values[e->out[0]] : NULL;
        const uint32_t table = table_of(w, e);
        for (uint32_t k = 0; k < e->n_in; k++) {
            table_value *x = &w->values[e->in[k]];
            const bool scalar = type_of(w, e->in[k])->rank == 0;
            x->needs_blocks |= k == table || (y && y->needs_blocks && !scalar);
            x->needs_whole |= k != table && (!y || y->needs_whole || scalar);
        }
    }
}

static bool refuse_whole(const splitting *w)
{
    bool any = false;
    for (uint32_t i = 0; i < w->g->n_inputs; i++) {
        table_value *x = &w->values[w->g->inputs[i]];
        any |= x->can && x->needs_whole;
        x->refused |= x->can && x->needs_whole;
    }
    return any;
}

/* Finds tables and what they are needed for, until no table that is read in blocks is read whole as well. */
static bool find_all(const splitting *w)
{
    do {
        for (uint32_t i = 0; i < w->g->n_vars; i++) w->values[i] = (table_value){.refused = w->values[i].refused};
        find_tables(w);
        find_needs(w);
    } while (refuse_whole(w));
    for (uint32_t i = 0; i < w->g->n_inputs; i++)
        if (w->values[w->g->inputs[i]].can && w->values[w->g->inputs[i]].needs_blocks) return true;
    return false;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Block k of a value for the present reader, for which it is made once. */
static tow_value part_of_block(const splitting *w, uint32_t var, int64_t k)
{
    table_value *v = &w->values[var];
    const tow_type *type = type_of(w, var);
    const uint32_t maker = w->g->vars[var].equation;
    tow_value y = tow__null();
    if (v->blocks) return v->blocks[k];
    if (!tow_is_null(v->whole)) return tow_slice_axis(v->whole, 0, first_row(type, k), end_row(type, k));
    if (v->made_for == *w->reader) return v->block;
    const tow__equation *e = &w->g->equations[maker];
    tow_value *in = tow__trace_alloc(w->t, (size_t)e->n_in + 1, sizeof *in);
    if (!in) return y;
    for (uint32_t i = 0; i < e->n_in; i++)
        in[i] = type_of(w, e->in[i])->rank == 0 ? w->values[e->in[i]].whole : part_of_block(w, e->in[i], k);
    if (!tow__failed(w->t)) tow__rebind(w->t, e, in, &y);
    v->block = y;
    v->made_for = *w->reader;
    return y;
}

/* Block k of a value, made for one reader. */
static tow_value block_of(const splitting *w, uint32_t var, int64_t k)
{
    ++*w->reader;
    return part_of_block(w, var, k);
}

static tow_value join(const splitting *w, uint32_t var)
{
    const int64_t n = block_count(type_of(w, var));
    tow_value *all = tow__trace_alloc(w->t, (size_t)n, sizeof *all);
    for (int64_t k = 0; all && k < n; k++) all[k] = block_of(w, var, k);
    return all && !tow__failed(w->t) ? tow_concatenate((size_t)n, all, 0) : tow__null();
}

/* The rows of a table that indices mean, and those of block k: whether they are in it, and their places. */
static tow_value rows_of(tow_value indices, const tow_type *table)
{
    indices = tow__index_words(indices);
    if (tow_is_null(indices) || !tow__dtype_in(tow_value_type(indices).dtype, TOW__SIGNED)) return indices;
    const tow_value from_end = tow_add(indices, tow_full_like(indices, (double)table->dims[0]));
    return tow_where(tow_lt(indices, tow_zeros_like(indices)), from_end, indices);
}

static tow_value is_in_block(tow_value rows, const tow_type *table, int64_t k)
{
    return tow_and(tow_ge(rows, tow_full_like(rows, (double)first_row(table, k))),
                   tow_lt(rows, tow_full_like(rows, (double)end_row(table, k))));
}

static tow_value place_in_block(tow_value rows, tow_value inside, const tow_type *table, int64_t k, double outside)
{
    const tow_value place = tow_sub(rows, tow_full_like(rows, (double)first_row(table, k)));
    return tow_where(inside, place, tow_full_like(rows, outside));
}

/* ---- equations --------------------------------------------------------------------------------------------------- */

static void split_gather(const splitting *w, const tow__equation *e)
{
    const tow_type *table = type_of(w, e->in[0]), type = *type_of(w, e->out[0]);
    const tow_value rows = rows_of(w->values[e->in[1]].whole, table);
    tow_value y = tow_full(w->t, type, NAN); /* of a row that is not there */
    int axes[TOW_MAX_RANK];
    for (int d = 0; d < TOW_MAX_RANK; d++) axes[d] = d;
    for (int64_t k = 0; k < block_count(table) && !tow__failed(w->t); k++) {
        const tow_value inside = is_in_block(rows, table, k);
        const tow_value found = tow_gather(block_of(w, e->in[0], k), place_in_block(rows, inside, table, k, 0));
        y = tow_where(tow_broadcast_in_dim(inside, type.rank, type.dims, axes), found, y);
    }
    w->values[e->out[0]].whole = y;
}

static void split_addition(const splitting *w, const tow__equation *e)
{
    const bool adds = e->primitive == &tow__index_add_p;
    const tow_type *table = type_of(w, e->out[0]);
    const tow_value updates = w->values[e->in[e->n_in - 1]].whole;
    const tow_value rows = rows_of(w->values[e->in[e->n_in - 2]].whole, table);
    table_value *y = &w->values[e->out[0]];
    y->blocks = tow__trace_alloc(w->t, (size_t)block_count(table), sizeof *y->blocks);
    for (int64_t k = 0; y->blocks && k < block_count(table) && !tow__failed(w->t); k++) {
        const int64_t n = end_row(table, k) - first_row(table, k);
        const tow_value place = place_in_block(rows, is_in_block(rows, table, k), table, k, (double)n);
        y->blocks[k] =
            adds ? tow_index_add(block_of(w, e->in[0], k), place, updates) : tow_scatter_add(place, updates, n);
    }
}

/* Numbers of 16 bits in f32, in which a derivative is added up. */
static tow_value widened(tow_value x)
{
    if (tow_is_null(x)) return x;
    const tow_dtype dtype = tow_value_type(x).dtype, wide = tow__wide(dtype);
    return dtype == wide ? x : tow_convert(x, wide);
}

static tow_value as_type(tow_value x, const tow_type *type)
{
    return tow_is_null(x) || tow_value_type(x).dtype == type->dtype ? x : tow_convert(x, type->dtype);
}

/* x, block k of the table, labels that count from its first class. */
static void operands_of_loss(const splitting *w, const tow__equation *e, int64_t k, tow_value *in)
{
    const tow_value labels = w->values[e->in[2]].whole;
    in[0] = w->values[e->in[0]].whole;
    in[1] = block_of(w, e->in[1], k);
    in[2] = tow_sub(labels, tow_full_like(labels, (double)first_row(type_of(w, e->in[1]), k)));
}

static void split_loss(const splitting *w, const tow__equation *e)
{
    const tow_type *table = type_of(w, e->in[1]);
    const int64_t n = block_count(table);
    const tow__linear_cross_entropy_parts_params p = {.rows = true, .classes = table->dims[0]};
    tow_value *parts = tow__trace_alloc(w->t, (size_t)n, sizeof *parts), in[3], out[2] = {tow__null(), tow__null()};
    for (int64_t k = 0; parts && k < n && !tow__failed(w->t); k++) {
        operands_of_loss(w, e, k, in);
        parts[k] = tow__op(&tow__linear_cross_entropy_parts_p, &p, 3, in);
    }
    if (!parts || tow__failed(w->t)) return;
    in[0] = tow_concatenate((size_t)n, parts, type_of(w, e->in[0])->rank - 1);
    in[1] = w->values[e->in[2]].whole;
    if (!tow__failed(w->t)) tow__bind(w->t, &tow__linear_cross_entropy_join_p, NULL, 2, in, 2, out);
    for (int i = 0; i < 2; i++) w->values[e->out[i]].whole = as_type(out[i], type_of(w, e->out[i]));
}

/* Derivatives of block k. dx is added up in f32 and rounded to 16 bits once, behind the sum over all blocks: then it is
 * made apart from that of the block. */
static void split_block_of_vjp(const splitting *w, const tow__equation *e, int64_t k, tow_value *dx, tow_value *dw)
{
    tow__linear_cross_entropy_ad_params p = *(const tow__linear_cross_entropy_ad_params *)e->params;
    const bool apart = tow__is_half(type_of(w, e->in[0])->dtype) || p.wrt != 3;
    tow_value in[5], out[2] = {tow__null(), tow__null()};
    p.classes = type_of(w, e->in[1])->dims[0];
    operands_of_loss(w, e, k, in);
    in[3] = w->values[e->in[3]].whole;
    in[4] = w->values[e->in[4]].whole;
    if (tow__failed(w->t)) return;
    if (!apart) tow__bind(w->t, e->primitive, &p, 5, in, 2, out);
    if (apart && p.wrt & 2)
        out[1] = tow__op(e->primitive, &(tow__linear_cross_entropy_ad_params){true, 2, p.classes}, 5, in);
    if (apart && p.wrt & 1) {
        for (int i = 0; i < 5; i++)
            if (i != 2 && i != 3) in[i] = widened(in[i]);
        out[0] = tow__op(e->primitive, &(tow__linear_cross_entropy_ad_params){true, 1, p.classes}, 5, in);
    }
    if (p.wrt & 1) *dx = tow__add_or(*dx, out[0]);
    *dw = out[1];
}

static void split_loss_vjp(const splitting *w, const tow__equation *e)
{
    const int64_t wrt = ((const tow__linear_cross_entropy_ad_params *)e->params)->wrt;
    const int64_t n = block_count(type_of(w, e->in[1]));
    tow_value dx = tow__null(), *dw = tow__trace_alloc(w->t, (size_t)n, sizeof *dw);
    for (int64_t k = 0; dw && k < n && !tow__failed(w->t); k++) split_block_of_vjp(w, e, k, &dx, &dw[k]);
    if (tow__failed(w->t)) return;
    if (wrt & 1) w->values[e->out[0]].whole = as_type(dx, type_of(w, e->out[0]));
    if (!(wrt & 2)) return;
    table_value *table = &w->values[e->out[e->n_out - 1]];
    table->blocks = dw;
    if (table->needs_whole) table->whole = join(w, e->out[e->n_out - 1]);
}

static void record_as_it_is(const splitting *w, const tow__equation *e)
{
    tow_value *in = tow__trace_alloc(w->t, (size_t)e->n_in + e->n_out + 1, sizeof *in), *out = in + e->n_in;
    if (!in) return;
    for (uint32_t i = 0; i < e->n_in; i++) in[i] = w->values[e->in[i]].whole;
    tow__rebind(w->t, e, in, out);
    for (uint32_t k = 0; k < e->n_out; k++) w->values[e->out[k]].whole = out[k];
}

static void record_equation(const splitting *w, const tow__equation *e)
{
    if (looks_up(w, e))
        split_gather(w, e);
    else if (adds_rows(w, e))
        split_addition(w, e);
    else if (is_loss(w, e) && e->primitive == &tow__linear_cross_entropy_p)
        split_loss(w, e);
    else if (is_loss(w, e))
        split_loss_vjp(w, e);
    else if (!is_elementwise(w, e) || w->values[e->out[0]].needs_whole)
        record_as_it_is(w, e);
}

static tow_status record(const tow_graph *g, const tow__sharding *s, table_value *values, tow_graph **result)
{
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    uint64_t reader = 0;
    const splitting w = {t, g, s, values, &reader};
    if (!t) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        values[g->inputs[i]].whole = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    for (uint32_t i = 0; i < g->n_equations && !tow__failed(t); i++) {
        tow__set_source(t, &g->equations[i].source);
        record_equation(&w, &g->equations[i]);
        tow__set_source(t, NULL);
    }
    for (uint32_t i = 0; i < g->n_outputs && !tow__failed(t); i++) {
        const table_value *y = &values[g->outputs[i]];
        out[i] = y->needs_whole ? y->whole : join(&w, g->outputs[i]);
    }
    return tow__trace_end(t, g->n_outputs, out, true, result);
}

tow_status tow__sharding_blocks(const tow_graph *g, const tow__sharding *s, tow_graph **result)
{
    tow__arena memory;
    tow__arena_init(&memory, g->ctx);
    table_value *values = tow__arena_alloc(&memory, (size_t)g->n_vars + 1, sizeof *values);
    const splitting w = {NULL, g, s, values, NULL};
    tow_status status = values ? TOW_OK : TOW_OUT_OF_MEMORY;
    *result = NULL;
    if (values && tow_group_count(s->group) > 1 && find_all(&w)) status = record(g, s, values, result);
    if (status == TOW_OK && !*result) *result = tow__graph_share(g);
    tow__arena_free(&memory);
    return status;
}

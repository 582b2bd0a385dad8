/* A scan as several, one after the other, each over rows of its own:
 *
 *   y, ys = scan[n] body c xs       =>       d, us = scan[k] body c xs[:k]
 *                                            y, vs = scan[n - k] body d xs[k:]      ys = us, vs
 *
 * Rows are views, carries are handed on, and the iterations are the same, so all bits are (scan_cuts.c says of which
 * scans): the slices say that they share the cotangent of xs, which is the rows of both. If ys are the states that a
 * carry d goes through, us without its last row, d and vs are the rows. A run may be grouped: each group of iterations
 * is a region, which keeps its carries and makes all else again. */
#include "src/autodiff/limit/limit.h"
#include "src/ops/table.h"
#include "tow/ops.h"

/* Rows [start, limit) of x. */
static tow_value rows_of(tow_value x, int64_t start, int64_t limit)
{
    const tow_type type = tow_value_type(x);
    if (start == 0 && limit == type.dims[0]) return x;
    tow__slice_params p = {.start = {.n = type.rank}, .limit = {.n = type.rank}, .stride = {.n = type.rank}};
    for (int i = 0; i < type.rank; i++) p.limit.v[i] = type.dims[i], p.stride.v[i] = 1;
    p.start.v[0] = start;
    p.limit.v[0] = limit;
    p.shares = 1;
    return tow__bind1(x.trace, &tow__slice_p, &p, 1, &x);
}

/* [n, ...] as [n / size, size, ...], and back. */
static tow_value group_rows(tow_value x, int64_t size)
{
    const tow_type type = tow_value_type(x);
    int64_t dims[TOW_MAX_RANK + 1] = {type.dims[0] / size, size};
    for (int i = 1; i < type.rank; i++) dims[i + 1] = type.dims[i];
    return tow_reshape(x, type.rank + 1, dims);
}

static tow_value ungroup_rows(tow_value x)
{
    const tow_type type = tow_value_type(x);
    int64_t dims[TOW_MAX_RANK] = {type.dims[0] * type.dims[1]};
    for (int i = 2; i < type.rank; i++) dims[i - 1] = type.dims[i];
    return tow_reshape(x, type.rank - 1, dims);
}

/* (consts, carry, rows of a group) -> (carry, ys of the group): a scan of the body. */
static tow_graph *scan_of_group(const tow__scan_params *scan, const tow__scan_run *run)
{
    const tow_graph *body = run->body;
    tow__scan_params p = *scan;
    tow_value *x, *y;
    tow_graph *graph = NULL;
    tow_trace *t = tow__trace_begin_over(body, &x, &y);
    if (!t) return NULL;
    p.length = run->group;
    p.body = (tow_graph *)(uintptr_t)body;
    for (uint32_t i = 0; i < body->n_inputs; i++) {
        tow_type type = body->vars[body->inputs[i]].type;
        if (i >= (uint64_t)(p.consts + p.carry)) {
            int64_t dims[TOW_MAX_RANK] = {run->group};
            for (int k = 0; k < type.rank; k++) dims[k + 1] = type.dims[k];
            type = tow_make_type(type.dtype, type.rank + 1, dims);
        }
        x[i] = tow__input(t, type, body->input_names[i]);
    }
    tow__bind(t, &tow__scan_p, &p, body->n_inputs, x, body->n_outputs, y);
    tow__trace_end(t, body->n_outputs, y, false, &graph);
    return graph;
}

/* Records one run on operands x, whose xs are the rows of the run. */
static void record_run(tow_trace *t, const tow__equation *e, const tow__scan_run *run, tow_value *x, tow_value *y)
{
    tow__scan_params p = *(const tow__scan_params *)e->params;
    const uint32_t first = (uint32_t)(p.consts + p.carry);
    p.length = run->iterations;
    p.body = (tow_graph *)(uintptr_t)run->body;
    if (run->group < 2) {
        tow__bind(t, &tow__scan_p, &p, e->n_in, x, e->n_out, y);
        return;
    }
    tow_graph *group = scan_of_group(&p, run), *region = NULL;
    if (group) tow__as_region(group, NULL, &region);
    tow_graph_release(group);
    if (!region) {
        tow__adopt_error(t);
        return;
    }
    p.length = run->iterations / run->group;
    p.body = region;
    for (uint32_t i = first; i < e->n_in; i++) x[i] = group_rows(x[i], run->group);
    tow__bind(t, &tow__scan_p, &p, e->n_in, x, e->n_out, y);
    for (uint32_t j = (uint32_t)p.carry; j < e->n_out; j++) y[j] = ungroup_rows(y[j]);
    tow_graph_release(region);
}

/* Adds the rows of a result of one run to parts. carry: the row of its last iteration; null: that is in the rows. */
static size_t add_rows(const tow__scan_params *p, tow_value rows, tow_value carry, tow_value *parts)
{
    const int64_t n = tow_value_type(rows).dims[0];
    if (tow_is_null(carry)) return parts[0] = rows, 1;
    carry = tow_expand_dims(carry, 0);
    if (n < 2) return parts[0] = carry, 1;
    parts[0] = p->reverse ? carry : rows_of(rows, 0, n - 1);
    parts[1] = p->reverse ? rows_of(rows, 1, n) : carry;
    return 2;
}

/* Result y of all runs, whose results are out[runs][n_out]. */
static tow_value join_rows(const tow__scan_params *p, uint32_t y, uint32_t n, uint32_t n_out, const tow_value *out,
                           tow_value *parts)
{
    const uint32_t k = tow__row_in_carry(p, y);
    size_t n_parts = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t r = p->reverse ? n - 1 - i : i;
        const tow_value *of_run = out + (size_t)r * n_out;
        const bool from_carry = k < (uint32_t)p->carry && r + 1 < n;
        n_parts += add_rows(p, of_run[y], from_carry ? of_run[k] : (tow_value){0}, parts + n_parts);
    }
    return tow_concatenate(n_parts, parts, 0);
}

void tow__record_scan_runs(tow_trace *t, const tow__equation *e, const tow__scan_run *runs, uint32_t n,
                           const tow_value *x, tow_value *y)
{
    const tow__scan_params *p = e->params;
    const uint32_t first = (uint32_t)(p->consts + p->carry), carry = (uint32_t)p->carry;
    tow_value *in = tow__trace_alloc(t, (size_t)e->n_in + 1, sizeof *in),
              *out = tow__trace_alloc(t, (size_t)n * e->n_out + 1, sizeof *out),
              *parts = tow__trace_alloc(t, 2 * (size_t)n + 1, sizeof *parts);
    if (!in || !out || !parts) return;
    memcpy(in, x, first * sizeof *in);
    int64_t done = 0;
    for (uint32_t r = 0; r < n; r++) {
        const int64_t start = p->reverse ? p->length - done - runs[r].iterations : done;
        for (uint32_t i = first; i < e->n_in; i++) in[i] = rows_of(x[i], start, start + runs[r].iterations);
        record_run(t, e, &runs[r], in, out + (size_t)r * e->n_out);
        for (uint32_t j = 0; j < carry; j++) in[(uint32_t)p->consts + j] = out[(size_t)r * e->n_out + j];
        done += runs[r].iterations;
    }
    for (uint32_t j = 0; j < carry; j++) y[j] = out[(size_t)(n - 1) * e->n_out + j];
    for (uint32_t j = carry; j < e->n_out; j++) y[j] = join_rows(p, j, n, e->n_out, out, parts);
}

/* Finds which values of a graph are shares, and which are wanted whole: see sharding.h. Shares spread forward from
 * inputs; wishes spread backward from outputs. A share that an equation needs whole is gathered, which makes values
 * behind it whole that were shares before, so both are repeated until nothing changes. */
#include "src/autodiff/sharding/sharding.h"
#include "src/graph/region.h"
#include "src/ops/rules.h"

enum {
    ROUNDS = 8 /* after which values stay as they are: they are right in any case */
};

typedef struct analysis {
    const tow_graph *g;
    const tow__sharding *s;
    tow__sharded_value *values;
    bool changed;
} analysis;

static int64_t count_of(const tow_graph *g, uint32_t var) { return tow_type_element_count(g->vars[var].type); }

/* Does the equation work element by element? Operands are like the result, or scalars. */
static bool is_elementwise(const tow_graph *g, const tow__equation *e)
{
    if (e->primitive == &tow__reshape_p) return true;
    if (e->primitive->kind != TOW__ELEMENTWISE || e->n_out != 1 || e->n_in == 0 || tow__has_effect(e)) return false;
    const tow_type *y = &g->vars[e->out[0]].type;
    for (uint32_t i = 0; i < e->n_in; i++) {
        tow_type x = g->vars[e->in[i]].type;
        x.dtype = y->dtype;
        if (x.rank > 0 && !tow_type_equal(x, *y)) return false;
    }
    return true;
}

/* Repeats scalars, or one number for each layer, which are the leading axes of the result. */
static bool repeats(const tow_graph *g, const tow__equation *e, int64_t layers)
{
    if (e->primitive != &tow__broadcast_in_dim_p) return false;
    const tow__ints *axes = &((const tow__broadcast_params *)e->params)->axes;
    const tow_type *x = &g->vars[e->in[0]].type, *y = &g->vars[e->out[0]].type;
    for (int i = 0; i < axes->n; i++)
        if (axes->v[i] != i || x->dims[i] != y->dims[i]) return false;
    return x->rank == 0 || tow_type_element_count(*x) == layers;
}

/* Joins rows of which a share of one layer is made of windows. */
static bool joins_rows(const tow__equation *e, int64_t layers)
{
    return e->primitive == &tow__concatenate_p && layers == 1 && ((const tow__axis_params *)e->params)->axis == 0;
}

bool tow__sharding_follows(const tow_graph *g, const tow__equation *e, int64_t layers)
{
    if (layers == 0) return false;
    return joins_rows(e, layers) || is_elementwise(g, e) || repeats(g, e, layers) ||
           e->primitive == &tow__all_reduce_wait_p;
}

bool tow__sharding_sums_lines(const tow_graph *g, const tow__equation *e, int64_t layers)
{
    if (e->primitive != &tow__reduce_sum_p || layers == 0) return false;
    const tow__ints *axes = &((const tow__axes_params *)e->params)->axes;
    const tow_type *x = &g->vars[e->in[0]].type;
    if (x->rank != 3 || axes->n != 1 || axes->v[0] != 2 || x->dims[0] != layers || x->dims[2] == 0) return false;
    return tow__share_unit(x->dims[1] * x->dims[2]) % x->dims[2] == 0;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static bool is_there_as_share(const tow__sharded_value *x) { return x->is_share && !x->gathered; }

/* Does the equation take rows of a share of one layer, from *row on? Loops gather whole rows of their own. */
static bool takes_rows(const analysis *a, const tow__equation *e, int64_t *row)
{
    const tow__sharded_value *v = &a->values[e->in[0]];
    if (e->primitive != &tow__slice_p || !is_there_as_share(v) || v->layers != 1 || a->s->nested) return false;
    const tow__slice_params *p = e->params;
    const tow_type *x = &a->g->vars[e->in[0]].type;
    for (int d = 0; d < x->rank; d++)
        if (p->stride.v[d] != 1 || (d > 0 && (p->start.v[d] != 0 || p->limit.v[d] != x->dims[d]))) return false;
    *row = x->rank > 0 ? p->start.v[0] : 0;
    return x->rank > 0;
}

static bool same_shares(const tow__sharded_value *v, int64_t layers, tow__window window)
{
    return v->layers == layers && v->window.first == window.first && v->window.of == window.of;
}

/* The layers of the result if operands make it a share, and its window; 0: it is whole. */
static int64_t layers_of_result(const analysis *a, const tow__equation *e, tow__window *window)
{
    int64_t layers = 0, row;
    const tow__sharded_value *x = e->n_in == 1 ? &a->values[e->in[0]] : NULL;
    if (x && takes_rows(a, e, &row)) {
        const int64_t count = count_of(a->g, e->in[0]), rows = a->g->vars[e->in[0]].type.dims[0];
        *window = tow__window_in(x->window, count, rows > 0 ? count / rows * row : 0);
        return count > 0 ? 1 : 0;
    }
    if (!is_elementwise(a->g, e)) return 0;
    for (uint32_t i = 0; i < e->n_in; i++) {
        x = &a->values[e->in[i]];
        if (!is_there_as_share(x) || count_of(a->g, e->in[i]) != count_of(a->g, e->out[0])) continue;
        if (layers != 0 && !same_shares(x, layers, *window)) return 0;
        layers = x->layers;
        *window = x->window;
    }
    return layers;
}

static void spread_shares(const analysis *a)
{
    for (uint32_t i = 0; i < a->g->n_equations; i++) {
        const tow__equation *e = &a->g->equations[i];
        tow__window window = {0, 0};
        const int64_t layers = layers_of_result(a, e, &window);
        for (uint32_t k = 0; k < e->n_out; k++) {
            tow__sharded_value *y = &a->values[e->out[k]];
            y->layers = layers;
            y->window = layers > 0 ? window : (tow__window){0, 0};
            y->is_share = layers > 0;
        }
    }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

static void forget_wishes(const analysis *a)
{
    for (uint32_t i = 0; i < a->g->n_vars; i++) {
        tow__sharded_value *v = &a->values[i];
        v->wants_whole = v->wants_share = false;
        if (v->is_share) continue;
        v->layers = 0;
        v->window = (tow__window){0, 0};
    }
}

static void want_whole(analysis *a, uint32_t var, bool inside)
{
    tow__sharded_value *v = &a->values[var];
    v->wants_whole = true;
    if (!inside || !v->is_share || v->gathered) return;
    v->gathered = a->changed = true;
}

/* A value has one kind of shares. */
static void want_share(analysis *a, uint32_t var, int64_t layers, tow__window window)
{
    tow__sharded_value *v = &a->values[var];
    if (v->layers == 0 && layers > 0 && count_of(a->g, var) % layers == 0) {
        v->layers = layers;
        v->window = window;
    }
    if (same_shares(v, layers, window))
        v->wants_share = true;
    else
        want_whole(a, var, true);
}

static bool is_scalar(const analysis *a, uint32_t var) { return a->g->vars[var].type.rank == 0; }

static void want_operands_of_region(analysis *a, const tow__equation *e)
{
    for (uint32_t i = 0; i < e->n_in; i++) {
        const tow__sharded_value *x = &a->values[e->in[i]];
        if (is_there_as_share(x) && !tow__is_window(x->window) && tow__sharding_enters(a->g, e, i, x->layers) > 0)
            want_share(a, e->in[i], x->layers, x->window);
        else
            want_whole(a, e->in[i], true);
    }
}

static void want_windows(analysis *a, const tow__equation *e, const tow__sharded_value *y)
{
    const int64_t count = count_of(a->g, e->out[0]);
    int64_t offset = 0;
    for (uint32_t i = 0; i < e->n_in; i++) {
        want_share(a, e->in[i], 1, tow__window_in(y->window, count, offset));
        offset += count_of(a->g, e->in[i]);
    }
}

static void want_operands(analysis *a, const tow__equation *e)
{
    bool whole = tow__has_effect(e), share = false;
    for (uint32_t k = 0; k < e->n_out; k++) {
        whole |= a->values[e->out[k]].wants_whole;
        share |= a->values[e->out[k]].wants_share;
    }
    if (!whole && !share) return;
    if (tow__is_region(e)) {
        want_operands_of_region(a, e);
        return;
    }
    const tow__sharded_value *x = e->n_in == 1 ? &a->values[e->in[0]] : NULL;
    int64_t row;
    if (x && is_there_as_share(x) &&
        ((!tow__is_window(x->window) && tow__sharding_sums_lines(a->g, e, x->layers)) || takes_rows(a, e, &row))) {
        want_share(a, e->in[0], x->layers, x->window);
        return;
    }
    const tow__sharded_value *y = e->n_out == 1 ? &a->values[e->out[0]] : NULL;
    const bool as_share = y && (y->is_share || (!whole && tow__sharding_follows(a->g, e, y->layers)));
    if (as_share && e->primitive == &tow__concatenate_p) {
        want_windows(a, e, y);
        return;
    }
    for (uint32_t i = 0; i < e->n_in; i++)
        if (as_share && e->primitive != &tow__broadcast_in_dim_p && e->primitive != &tow__all_reduce_wait_p &&
            (!is_scalar(a, e->in[i]) || is_scalar(a, e->out[0])))
            want_share(a, e->in[i], y->layers, y->window);
        else
            want_whole(a, e->in[i], true);
}

static void spread_wishes(analysis *a)
{
    forget_wishes(a);
    for (uint32_t i = 0; i < a->g->n_outputs; i++)
        if (a->s->out[i] > 0)
            want_share(a, a->g->outputs[i], a->s->out[i], (tow__window){0, 0});
        else
            want_whole(a, a->g->outputs[i], false);
    for (uint32_t i = a->g->n_equations; i-- > 0;) want_operands(a, &a->g->equations[i]);
}

void tow__sharding_analyze(const tow_graph *g, const tow__sharding *s, tow__sharded_value *values)
{
    analysis a = {g, s, values, true};
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        tow__sharded_value *x = &values[g->inputs[i]];
        x->layers = s->in[i];
        x->is_share = s->in[i] > 0;
    }
    for (uint32_t i = 0; i < g->n_equations; i++)
        if (g->equations[i].primitive == &tow__all_reduce_wait_p) values[g->equations[i].in[1]].wait = i + 1;
    for (int round = 0; round < ROUNDS && a.changed; round++) {
        a.changed = false;
        spread_shares(&a);
        spread_wishes(&a);
    }
}

/* Records a graph on shares and whole values: see sharding.h. */
#include "src/autodiff/sharding/sharding.h"
#include "src/ops/collective.h"
#include "src/ops/rules.h"
#include "tow/ops.h"

typedef struct walk {
    tow_trace *t;
    const tow_graph *g;
    const tow__sharding *s;
    tow__sharded_value *values;
} walk;

/* ---- shares of values -------------------------------------------------------------------------------------------- */

static int64_t length_of(tow_type whole, int64_t layers) { return tow_type_element_count(whole) / layers; }

static tow__range_of range_of(const tow_group *group, int64_t n)
{
    tow__range_of r = {0, n};
    tow_group_share(tow_group_rank(group), tow_group_count(group), n, &r.offset, &r.count);
    return r;
}

tow_type tow__sharding_type(const tow_group *group, tow_type whole, int64_t layers)
{
    const int64_t dims[2] = {layers, range_of(group, length_of(whole, layers)).count};
    return tow_make_type(whole.dtype, 2, dims);
}

tow_value tow__sharding_cut(const tow_group *group, tow_value x, int64_t layers)
{
    if (tow_is_null(x)) return x;
    const int64_t dims[2] = {layers, length_of(tow_value_type(x), layers)};
    const tow__range_of r = range_of(group, dims[1]);
    return tow_slice_axis(tow_reshape(x, 2, dims), 1, r.offset, r.offset + r.count);
}

/* The value as a share, which is cut of the whole where it was not made as one. */
static tow_value share_of(const walk *w, uint32_t var, int64_t layers)
{
    tow__sharded_value *v = &w->values[var];
    if (v->layers == layers && !tow_is_null(v->share)) return v->share;
    const tow_value cut = tow__sharding_cut(w->s->group, v->whole, layers);
    if (v->layers == layers) v->share = cut;
    return cut;
}

/* Gathers a share that somebody reads as a whole. */
static void gather(const walk *w, uint32_t var)
{
    tow__sharded_value *v = &w->values[var];
    const tow_type type = w->g->vars[var].type;
    if (!v->is_share || !v->wants_whole || tow__failed(w->t)) return;
    const tow_value whole = tow__all_gather(w->t, w->s->group, length_of(type, v->layers), v->share);
    v->whole = tow_reshape(whole, type.rank, type.dims);
}

/* ---- equations --------------------------------------------------------------------------------------------------- */

/* x [] or [layers...] -> [layers, n / N] */
static tow_value repeat(const walk *w, const tow__equation *e, tow_type type)
{
    const tow_value x = w->values[e->in[0]].whole;
    if (tow_value_type(x).rank == 0) return tow_broadcast_to(x, 2, type.dims);
    return tow_broadcast_to(tow_reshape(x, 2, (int64_t[]){type.dims[0], 1}), 2, type.dims);
}

static void record_share(const walk *w, const tow__equation *e)
{
    tow__sharded_value *y = &w->values[e->out[0]];
    const tow_type type = tow__sharding_type(w->s->group, w->g->vars[e->out[0]].type, y->layers);
    if (e->primitive == &tow__reshape_p) {
        y->share = share_of(w, e->in[0], y->layers);
    } else if (e->primitive == &tow__broadcast_in_dim_p) {
        y->share = repeat(w, e, type);
    } else {
        tow_value *x = tow__trace_alloc(w->t, (size_t)e->n_in + 1, sizeof *x);
        for (uint32_t i = 0; x && i < e->n_in; i++) {
            const bool scalar = w->g->vars[e->in[i]].type.rank == 0 && w->g->vars[e->out[0]].type.rank > 0;
            x[i] = scalar ? w->values[e->in[i]].whole : share_of(w, e->in[i], y->layers);
        }
        if (x && !tow__failed(w->t)) tow__rebind(w->t, e, x, &y->share);
    }
    gather(w, e->out[0]);
}

static void record_whole(const walk *w, const tow__equation *e)
{
    tow_value *x = tow__trace_alloc(w->t, (size_t)e->n_in + (size_t)e->n_out + 1, sizeof *x), *y = x + e->n_in;
    if (!x) return;
    for (uint32_t i = 0; i < e->n_in; i++) x[i] = w->values[e->in[i]].whole;
    tow__rebind(w->t, e, x, y);
    for (uint32_t k = 0; k < e->n_out; k++) w->values[e->out[k]].whole = y[k];
}

static void record_equation(const walk *w, const tow__equation *e)
{
    bool whole = tow__has_effect(e), share = false;
    for (uint32_t k = 0; k < e->n_out; k++) {
        whole |= w->values[e->out[k]].wants_whole;
        share |= w->values[e->out[k]].wants_share;
    }
    if (!whole && !share) return;
    tow__set_source(w->t, &e->source);
    const tow__sharded_value *y = e->n_out == 1 ? &w->values[e->out[0]] : NULL;
    if (y && (y->is_share || (!whole && tow__sharding_follows(w->g, e, y->layers))))
        record_share(w, e);
    else
        record_whole(w, e);
    tow__set_source(w->t, NULL);
}

void tow__sharding_inline(tow_trace *t, const tow_graph *g, const tow__sharding *s, const tow_value *in, tow_value *out)
{
    walk w = {t, g, s, tow__trace_alloc(t, (size_t)g->n_vars + 1, sizeof *w.values)};
    if (!w.values) return;
    tow__sharding_analyze(g, s, w.values);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        tow__sharded_value *x = &w.values[g->inputs[i]];
        *(x->is_share ? &x->share : &x->whole) = in[i];
        gather(&w, g->inputs[i]);
    }
    for (uint32_t i = 0; i < g->n_equations && !tow__failed(t); i++) record_equation(&w, &g->equations[i]);
    for (uint32_t i = 0; i < g->n_outputs && !tow__failed(t); i++)
        out[i] = s->out[i] > 0 ? share_of(&w, g->outputs[i], s->out[i]) : w.values[g->outputs[i]].whole;
}

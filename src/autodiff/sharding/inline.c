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
    uint32_t *gathers; /* of inputs, so far */
} walk;

/* ---- shares of values -------------------------------------------------------------------------------------------- */

static int64_t length_of(tow_type whole, int64_t layers) { return tow_type_element_count(whole) / layers; }

static const tow__window no_window = {0, 0};

/* Of n elements of a layer, or of a window. */
static tow__range_of range_of(const tow_group *group, int64_t n, tow__window window)
{
    return tow__share_in_window(tow_group_rank(group), tow_group_count(group), n, 0, window);
}

tow_type tow__sharding_type(const tow_group *group, tow_type whole, int64_t layers)
{
    const int64_t dims[2] = {layers, range_of(group, length_of(whole, layers), no_window).count};
    return tow_make_type(whole.dtype, 2, dims);
}

static tow_value cut(const tow_group *group, tow_value x, int64_t layers, tow__window window)
{
    if (tow_is_null(x)) return x;
    const int64_t dims[2] = {layers, length_of(tow_value_type(x), layers)};
    const tow__range_of r = range_of(group, dims[1], window);
    return tow_slice_axis(tow_reshape(x, 2, dims), 1, r.offset, r.offset + r.count);
}

tow_value tow__sharding_cut(const tow_group *group, tow_value x, int64_t layers)
{
    return cut(group, x, layers, no_window);
}

/* The value as a share, which is cut of the whole where it was not made as one. */
static tow_value share_of(const walk *w, uint32_t var, int64_t layers, tow__window window)
{
    tow__sharded_value *v = &w->values[var];
    const bool same = v->layers == layers && v->window.first == window.first && v->window.of == window.of;
    if (same && !tow_is_null(v->share)) return v->share;
    const tow_value share = cut(w->s->group, v->whole, layers, window);
    if (same) v->share = share;
    return share;
}

static void gather(const walk *w, uint32_t var)
{
    tow__sharded_value *v = &w->values[var];
    const tow_type type = w->g->vars[var].type;
    if (tow__failed(w->t)) return;
    const tow_value whole = tow__all_gather(w->t, w->s->group, length_of(type, v->layers), 0, v->share, v->window);
    v->whole = tow_reshape(whole, type.rank, type.dims);
}

/* The whole of a value, for an equation of this phase. Inputs of a graph that is no body of a loop are gathered in
 * front of their first reader, and once more in the backward pass, so that they need not be kept for it: unless nothing
 * else was gathered since they were read, as between the last layer and its gradient. */
static tow_value whole_of(const walk *w, uint32_t var, tow__phase phase)
{
    tow__sharded_value *v = &w->values[var];
    const bool kept =
        w->s->nested || v->phase == phase || w->g->vars[var].equation != TOW__INPUT || v->read_after == *w->gathers;
    if (!v->is_share) return v->whole;
    if (tow_is_null(v->whole) || !kept) {
        gather(w, var);
        ++*w->gathers;
    }
    v->phase = phase;
    v->read_after = *w->gathers;
    return v->whole;
}

/* ---- equations --------------------------------------------------------------------------------------------------- */

/* x [] or [layers...] -> [layers, n / N] */
static tow_value repeat(const walk *w, const tow__equation *e, tow_type type)
{
    const tow_value x = whole_of(w, e->in[0], e->source.phase);
    if (tow_value_type(x).rank == 0) return tow_broadcast_to(x, 2, type.dims);
    return tow_broadcast_to(tow_reshape(x, 2, (int64_t[]){type.dims[0], 1}), 2, type.dims);
}

/* Of the elements of a share, those that are in a window of it. */
static tow_value take_rows(const walk *w, const tow__equation *e)
{
    const tow__sharded_value *x = &w->values[e->in[0]], *y = &w->values[e->out[0]];
    const tow_group *group = w->s->group;
    const tow__range_of all = range_of(group, tow_type_element_count(w->g->vars[e->in[0]].type), x->window);
    const tow__range_of own = range_of(group, tow_type_element_count(w->g->vars[e->out[0]].type), y->window);
    const int64_t first = own.count > 0 ? y->window.first + own.offset - x->window.first - all.offset : 0;
    return tow_slice_axis(x->share, 1, first, first + own.count);
}

/* The windows of which a process has something, one behind the other. */
static tow_value join_windows(const walk *w, const tow__equation *e)
{
    const tow__sharded_value *y = &w->values[e->out[0]];
    const int64_t count = tow_type_element_count(w->g->vars[e->out[0]].type);
    tow_value *parts = tow__trace_alloc(w->t, (size_t)e->n_in + 1, sizeof *parts);
    int64_t offset = 0;
    size_t n = 0;
    for (uint32_t i = 0; parts && i < e->n_in && !tow__failed(w->t); i++) {
        parts[n] = share_of(w, e->in[i], 1, tow__window_in(y->window, count, offset));
        offset += tow_type_element_count(w->g->vars[e->in[i]].type);
        n += n == 0 || tow_value_type(parts[n]).dims[1] > 0;
        if (n == 2 && tow_value_type(parts[0]).dims[1] == 0) parts[0] = parts[--n];
    }
    return tow__failed(w->t) || n == 0 ? tow__null() : tow_concatenate(n, parts, 1);
}

static void record_share(const walk *w, const tow__equation *e)
{
    tow__sharded_value *y = &w->values[e->out[0]];
    tow_type type = w->g->vars[e->out[0]].type;
    const int64_t dims[2] = {y->layers, range_of(w->s->group, length_of(type, y->layers), y->window).count};
    type = tow_make_type(type.dtype, 2, dims);
    if (e->primitive == &tow__slice_p) {
        y->share = take_rows(w, e);
    } else if (e->primitive == &tow__concatenate_p) {
        y->share = join_windows(w, e);
    } else if (e->primitive == &tow__reshape_p) {
        y->share = share_of(w, e->in[0], y->layers, y->window);
    } else if (e->primitive == &tow__broadcast_in_dim_p) {
        y->share = repeat(w, e, type);
    } else {
        tow_value *x = tow__trace_alloc(w->t, (size_t)e->n_in + 1, sizeof *x);
        for (uint32_t i = 0; x && i < e->n_in; i++) {
            const bool scalar = w->g->vars[e->in[i]].type.rank == 0 && w->g->vars[e->out[0]].type.rank > 0;
            x[i] = scalar ? whole_of(w, e->in[i], e->source.phase) : share_of(w, e->in[i], y->layers, y->window);
        }
        if (x && !tow__failed(w->t)) tow__rebind(w->t, e, x, &y->share);
    }
    if (y->is_share && y->wants_whole) gather(w, e->out[0]);
}

/* A sum over processes begins; where only shares of it are wanted, it ends in the same place. */
static void record_sum(const walk *w, const tow__equation *e)
{
    const tow__equation *wait = &w->g->equations[w->values[e->out[1]].wait - 1];
    const tow__group_params *params = e->params;
    tow__sharded_value *y = &w->values[wait->out[0]];
    const tow_value x = whole_of(w, e->in[0], e->source.phase);
    if (tow__failed(w->t)) return;
    const int64_t dims[2] = {y->layers, length_of(tow_value_type(x), y->layers)};
    y->share = tow__reduce_scatter(w->t, w->s->group, params->row_groups, tow_reshape(x, 2, dims), y->window);
}

/* [layers, n / N] -> sums of lines [layers, lines of the share] -> [layers, lines] */
static void record_lines(const walk *w, const tow__equation *e)
{
    const tow__sharded_value *x = &w->values[e->in[0]];
    const tow_type *type = &w->g->vars[e->in[0]].type;
    const int64_t lines = type->dims[1], line = type->dims[2];
    const tow_type share = tow_value_type(x->share);
    tow_value sums = tow_reshape(x->share, 3, (int64_t[]){share.dims[0], share.dims[1] / line, line});
    sums = tow_reduce_sum(sums, 1, (int[]){2});
    w->values[e->out[0]].whole =
        tow__all_gather(w->t, w->s->group, lines, tow__share_unit(lines * line) / line, sums, no_window);
}

static void record_whole(const walk *w, const tow__equation *e)
{
    tow_value *x = tow__trace_alloc(w->t, (size_t)e->n_in + (size_t)e->n_out + 1, sizeof *x), *y = x + e->n_in;
    if (!x) return;
    for (uint32_t i = 0; i < e->n_in; i++) x[i] = whole_of(w, e->in[i], e->source.phase);
    if (!tow__failed(w->t)) tow__rebind(w->t, e, x, y);
    for (uint32_t k = 0; k < e->n_out; k++) w->values[e->out[k]].whole = y[k];
}

/* A start of a sum that is scattered, or the wait behind it, which is recorded with the start. */
static bool is_scattered(const walk *w, const tow__equation *e)
{
    const bool starts = e->primitive == &tow__all_reduce_start_p;
    if (!starts && e->primitive != &tow__all_reduce_wait_p) return false;
    const uint32_t wait = w->values[starts ? e->out[1] : e->in[1]].wait;
    return wait > 0 && tow__wants_share_alone(&w->values[w->g->equations[wait - 1].out[0]]);
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
    const bool region = tow__is_region(e);
    for (uint32_t i = 0; region && i < e->n_in; i++)
        if (w->values[e->in[i]].wants_whole) whole_of(w, e->in[i], e->source.phase);
    const tow__sharded_value *y = e->n_out == 1 ? &w->values[e->out[0]] : NULL;
    if (is_scattered(w, e)) {
        if (e->primitive == &tow__all_reduce_start_p) record_sum(w, e);
    } else if (e->n_in == 1 && w->values[e->in[0]].is_share && !w->values[e->in[0]].wants_whole &&
               !tow__is_window(w->values[e->in[0]].window) &&
               tow__sharding_sums_lines(w->g, e, w->values[e->in[0]].layers)) {
        record_lines(w, e);
    } else if (region && tow__sharding_region(w->t, w->g, e, w->s, w->values)) {
        ++*w->gathers; /* it may have gathered */
    } else if (y && (y->is_share || (!whole && tow__sharding_follows(w->g, e, y->layers)))) {
        record_share(w, e);
    } else {
        record_whole(w, e);
    }
    tow__set_source(w->t, NULL);
}

void tow__sharding_inline(tow_trace *t, const tow_graph *g, const tow__sharding *s, const tow_value *in, tow_value *out)
{
    uint32_t gathers = 0;
    walk w = {t, g, s, tow__trace_alloc(t, (size_t)g->n_vars + 1, sizeof *w.values), &gathers};
    if (!w.values) return;
    tow__sharding_analyze(g, s, w.values);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        tow__sharded_value *x = &w.values[g->inputs[i]];
        *(x->is_share ? &x->share : &x->whole) = in[i];
        if (s->nested && x->is_share && x->wants_whole) gather(&w, g->inputs[i]);
    }
    for (uint32_t i = 0; i < g->n_equations && !tow__failed(t); i++) record_equation(&w, &g->equations[i]);
    for (uint32_t i = 0; i < g->n_outputs && !tow__failed(t); i++)
        out[i] = s->out[i] > 0 ? share_of(&w, g->outputs[i], s->out[i], no_window)
                               : whole_of(&w, g->outputs[i], TOW__FORWARD);
}

tow_status tow__sharding_graph(const tow_graph *g, const tow__sharding *s, tow_graph **result)
{
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    *result = NULL;
    if (!t) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const tow_type type = g->vars[g->inputs[i]].type;
        in[i] = tow__input(t, s->in[i] > 0 ? tow__sharding_type(s->group, type, s->in[i]) : type, g->input_names[i]);
    }
    tow__sharding_inline(t, g, s, in, out);
    return tow__trace_end(t, g->n_outputs, out, true, result);
}

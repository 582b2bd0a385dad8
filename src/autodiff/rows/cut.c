/* The rows of a part, of values that do not depend on rows: see rows.h. A slice goes through to what makes the value,
 * so that masks, for instance, are drawn for the rows at hand and not for all of them. */
#include "src/autodiff/rows/rows.h"
#include "src/ops/rules.h"
#include "tow/numpy.h"
#include "tow/ops.h"

static tow_value first_row(const tow__row_walk *w, int64_t rows)
{
    return tow_mul_scalar(w->blocks->first, (double)(rows / w->blocks->groups));
}

static tow_value slice_rows(const tow__row_walk *w, tow_value x, int axis)
{
    const tow_type type = tow_value_type(x);
    tow_value start[TOW_MAX_RANK];
    for (int a = 0; a < type.rank; a++)
        start[a] = a == axis ? first_row(w, type.dims[axis]) : tow_scalar(w->t, TOW_I32, 0);
    return tow_dynamic_slice(x, start, tow__rows_type(w->blocks, type, axis).dims);
}

/* ---- through what makes the value -------------------------------------------------------------------------------- */

static tow_type type_of(const tow__row_walk *w, uint32_t var) { return w->g->vars[var].type; }

/* iota: numbers from the first row on. */
static tow_value cut_iota(const tow__row_walk *w, const tow__equation *e, int axis)
{
    const tow__iota_params *p = e->params;
    const tow_type type = type_of(w, e->out[0]);
    const tow_value x = tow_iota(w->t, tow__rows_type(w->blocks, type, axis), (int)p->axis);
    if (p->axis != axis || tow_is_null(x)) return x;
    const tow_value first = tow_convert(first_row(w, type.dims[axis]), type.dtype);
    return tow_add(x, tow_broadcast_in_dim(first, type.rank, tow_value_type(x).dims, NULL));
}

static tow_value cut_broadcast(const tow__row_walk *w, const tow__equation *e, int axis)
{
    tow__broadcast_params p = *(const tow__broadcast_params *)e->params;
    const tow_type type = type_of(w, e->in[0]);
    tow_value x = w->values[e->in[0]].value;
    for (int a = 0; a < type.rank; a++)
        if (p.axes.v[a] == axis && type.dims[a] == p.shape.v[axis]) x = tow__rows_cut(w, e->in[0], a);
    p.shape.v[axis] = tow__rows_of_part(w->blocks, p.shape.v[axis]);
    return tow__op(e->primitive, &p, 1, &x);
}

/* The axis of the operand that begins where the axis of the result does. Null: there is none. */
static tow_value cut_reshape(const tow__row_walk *w, const tow__equation *e, int axis)
{
    tow__shape_params p = *(const tow__shape_params *)e->params;
    const tow_type type = type_of(w, e->in[0]);
    int64_t before = 1, group = 1;
    for (int a = 0; a < axis; a++) before *= p.shape.v[a];
    for (int a = 0; a < type.rank; group *= type.dims[a++]) {
        if (group != before || type.dims[a] == 1) continue;
        if (type.dims[a] % w->blocks->groups != 0) break;
        const tow_value x = tow__rows_cut(w, e->in[0], a);
        p.shape.v[axis] = tow__rows_of_part(w->blocks, p.shape.v[axis]);
        return tow__op(e->primitive, &p, 1, &x);
    }
    return tow__null();
}

static tow_value cut_elementwise(const tow__row_walk *w, const tow__equation *e, uint32_t result, int axis)
{
    tow_value *in = tow__trace_alloc(w->t, (size_t)e->n_in + 1, sizeof *in);
    tow_value *out = tow__trace_alloc(w->t, (size_t)e->n_out + 1, sizeof *out);
    if (!in || !out) return tow__null();
    for (uint32_t i = 0; i < e->n_in; i++)
        in[i] = type_of(w, e->in[i]).rank > 0 ? tow__rows_cut(w, e->in[i], axis) : w->values[e->in[i]].value;
    if (!tow__failed(w->t)) tow__rebind(w->t, e, in, out);
    return out[result];
}

/* random_bits: through the words and counters that they are made of. */
static tow_value cut_parts(const tow__row_walk *w, const tow__equation *e, uint32_t result, int axis)
{
    tow_value x = tow__null();
    tow_type *types = tow__trace_alloc(w->t, (size_t)e->n_in + 1, sizeof *types);
    if (!types) return x;
    for (uint32_t i = 0; i < e->n_in; i++) types[i] = type_of(w, e->in[i]);
    tow_graph *g = tow__decomposition(w->t, e, types);
    tow__row_walk *inner = g ? tow__rows_begin(w->t, g, w->blocks) : NULL;
    if (inner) {
        for (uint32_t i = 0; i < g->n_inputs; i++) inner->values[g->inputs[i]] = w->values[e->in[i]];
        tow__rows_walk(inner);
        if (!tow__failed(w->t)) x = tow__rows_cut(inner, g->outputs[result], axis);
    }
    tow_graph_release(g);
    return x;
}

static tow_value cut_maker(const tow__row_walk *w, uint32_t var, int axis)
{
    const tow__var *v = &w->g->vars[var];
    if (v->equation == TOW__INPUT) return tow__null();
    const tow__equation *e = &w->g->equations[v->equation];
    for (uint32_t i = 0; i < e->n_in; i++)
        if (tow_is_null(w->values[e->in[i]].value) || tow__has_rows(&w->values[e->in[i]])) return tow__null();
    if (e->primitive == &tow__iota_p) return cut_iota(w, e, axis);
    if (e->primitive == &tow__broadcast_in_dim_p) return cut_broadcast(w, e, axis);
    if (e->primitive == &tow__reshape_p) return cut_reshape(w, e, axis);
    if (e->primitive->kind == TOW__ELEMENTWISE) return cut_elementwise(w, e, v->index, axis);
    return e->primitive->kind == TOW__RANDOM && e->primitive->decompose ? cut_parts(w, e, v->index, axis) : tow__null();
}

tow_value tow__rows_cut(const tow__row_walk *w, uint32_t var, int axis)
{
    tow__row_value *x = &w->values[var];
    if (!tow__is_part(w->blocks) || tow_is_null(x->value)) return x->value;
    if (!tow_is_null(x->cut) && x->cut_axis == axis) return x->cut;
    tow_value cut = cut_maker(w, var, axis);
    if (tow_is_null(cut) && !tow__failed(w->t)) cut = slice_rows(w, x->value, axis);
    x->cut = cut;
    x->cut_axis = axis;
    return cut;
}

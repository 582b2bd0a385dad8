/* Batching rules of families; see batching.h. */
#include "src/ops/batching.h"

#include "src/ops/rules.h"

/* ---- values ------------------------------------------------------------------------------------------------------ */

tow_type tow__with_axis(tow_type type, int at, int64_t size)
{
    for (int d = type.rank++; d > at; d--) type.dims[d] = type.dims[d - 1];
    type.dims[at] = size;
    return type;
}

static tow_value moved(tow_value x, int from, int to)
{
    int permutation[TOW_MAX_RANK] = {0}, rank = tow_value_type(x).rank;
    for (int d = 0, next = 0; d < rank; d++) {
        if (next == from) next++;
        permutation[d] = d == to ? from : next++;
    }
    return tow_transpose(x, rank, permutation);
}

tow_value tow__batched_at(tow__mapped x, int64_t size, int axis)
{
    tow_type type = tow_value_type(x.value);
    if (tow_is_null(x.value) || x.axis == axis) return x.value;
    if (tow__is_batched(x)) return moved(x.value, x.axis, axis);
    if (type.rank == TOW_MAX_RANK)
        return tow__op_fail(x.value, "vmap", TOW_UNSUPPORTED,
                            "%s has the largest rank already and cannot be repeated for each row; reshape it to a "
                            "smaller rank",
                            tow__type_name(type).text);
    int kept[TOW_MAX_RANK];
    for (int d = 0; d < type.rank; d++) kept[d] = d < axis ? d : d + 1;
    tow_type whole = tow__with_axis(type, axis, size);
    tow_value from = tow_is_null(x.scalar) ? x.value : x.scalar;
    return tow_broadcast_in_dim(from, whole.rank, whole.dims, kept);
}

tow_value tow__batch_operand(const tow__batch *r, uint32_t i, int axis)
{
    return tow__batched_at(r->x[i], r->size, axis);
}

int tow__batch_axis(const tow__batch *r)
{
    uint32_t i = 0;
    while (i + 1 < r->e->n_in && !tow__is_batched(r->x[i])) i++;
    return r->x[i].axis;
}

void tow__batch_bind(tow__batch *r, const void *params, const tow_value *in, int axis)
{
    tow_value *out = tow__trace_alloc(r->t, r->e->n_out, sizeof *out);
    if (!out || tow__any_null(r->e->n_in, in)) return;
    tow__bind(r->t, r->e->primitive, params, r->e->n_in, in, r->e->n_out, out);
    for (uint32_t i = 0; i < r->e->n_out; i++) r->y[i] = (tow__mapped){out[i], axis, tow__null()};
}

/* All operands with their batch axes at `axis`; NULL: no memory. */
static tow_value *all_at(tow__batch *r, int axis)
{
    tow_value *in = tow__trace_alloc(r->t, r->e->n_in, sizeof *in);
    for (uint32_t i = 0; in && i < r->e->n_in; i++) in[i] = tow__batch_operand(r, i, axis);
    return in;
}

/* ---- axes in parameters ------------------------------------------------------------------------------------------ */

tow__ints tow__all_shifted(tow__ints axes, int at)
{
    for (int i = 0; i < axes.n; i++) axes.v[i] = tow__shifted(axes.v[i], at);
    return axes;
}

tow__ints tow__with_entry(tow__ints list, int at, int64_t value)
{
    for (int i = list.n++; i > at; i--) list.v[i] = list.v[i - 1];
    list.v[at] = value;
    return list;
}

/* ---- families ---------------------------------------------------------------------------------------------------- */

void tow__batch_elementwise(tow__batch *r)
{
    int axis = tow__batch_axis(r);
    tow_value *in = all_at(r, axis);
    if (in) tow__batch_bind(r, r->e->params, in, axis);
}

void tow__batch_over_axes(tow__batch *r)
{
    const tow__axes_params *p = r->e->params;
    int axis = r->x[0].axis, vanish = 0;
    if (r->out[0].rank < r->in[0].rank)
        for (int i = 0; i < p->axes.n; i++) vanish += p->axes.v[i] < axis;
    tow__axes_params shifted = {tow__all_shifted(p->axes, axis)};
    tow__batch_bind(r, &shifted, &r->x[0].value, axis - vanish);
}

void tow__batch_along_axis(tow__batch *r)
{
    const tow__axis_params *p = r->e->params;
    int axis = tow__batch_axis(r);
    tow__axis_params shifted = {tow__shifted(p->axis, axis)};
    tow_value *in = all_at(r, axis);
    bool vanishes = r->out[0].rank < r->in[0].rank;
    if (in) tow__batch_bind(r, &shifted, in, vanishes && p->axis < axis ? axis - 1 : axis);
}

bool tow__batch_rows(tow__batch *r, const bool *whole)
{
    for (uint32_t i = 0; i < r->e->n_in; i++)
        if (whole[i] && tow__is_batched(r->x[i])) return false;
    int axis = tow__batch_axis(r), last = r->in[0].rank - 1;
    if (axis > last) axis = 0;
    tow_value *in = tow__trace_alloc(r->t, r->e->n_in, sizeof *in);
    if (!in) return true;
    for (uint32_t i = 0; i < r->e->n_in; i++) in[i] = whole[i] ? r->x[i].value : tow__batch_operand(r, i, axis);
    tow__batch_bind(r, r->e->params, in, axis);
    return true;
}

static void widen(tow_type *type) { type->dtype = tow__wide(type->dtype); }

static tow_value converted(tow_value x) { return tow_is_null(x) ? x : tow_convert(x, tow__wide(tow__dtype(x))); }

void tow__batch_wide(tow__batch *r, void (*rule)(tow__batch *r))
{
    const uint32_t n_in = r->e->n_in, n_out = r->e->n_out;
    tow__mapped *x = tow__trace_alloc(r->t, n_in, sizeof *x);
    tow_type *types = tow__trace_alloc(r->t, (size_t)n_in + n_out, sizeof *types);
    if (!x || !types) return;
    tow__batch wide = *r;
    wide.x = x;
    wide.in = types;
    wide.out = types + n_in;
    memcpy(types, r->in, n_in * sizeof *types);
    memcpy(types + n_in, r->out, n_out * sizeof *types);
    for (uint32_t i = 0; i < n_in + n_out; i++) widen(&types[i]);
    for (uint32_t i = 0; i < n_in; i++)
        x[i] = (tow__mapped){converted(r->x[i].value), r->x[i].axis, converted(r->x[i].scalar)};
    if (tow__failed(r->t)) return;
    rule(&wide);
    for (uint32_t i = 0; i < n_out; i++)
        if (!tow_is_null(r->y[i].value)) r->y[i].value = tow_convert(r->y[i].value, r->out[i].dtype);
}

/* dropout(x, key u32[2]) -> select(bernoulli(key, 1 - rate), x / (1 - rate), 0), the bits drawn as Flax draws them.
 * Differentiated through its decomposition, so that the bool mask is all that is kept (and, under remat, only the
 * key). */
#include "src/ops/rules.h"

static tow_status dropout_type(const tow__typing *ty)
{
    const tow__dropout_params *p = ty->params;
    tow_status status = tow__require_dtype(ty, 0, TOW__FLOATS);
    if (status == TOW_OK) status = tow__require_axes(ty, &p->broadcast);
    if (status != TOW_OK) return status;
    if (!tow_type_equal(ty->in[1], tow_make_type(TOW_U32, 1, (int64_t[]){2})))
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "operand 1 must be a random key u32[2], found %s",
                              tow__type_name(ty->in[1]).text);
    if (!(p->rate >= 0 && p->rate <= 1))
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                              "the rate is the probability of dropping: it must be 0 to 1, found %g", p->rate);
    ty->out[0] = ty->in[0];
    return TOW_OK;
}

static void dropout_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow__dropout_params *p = e->params;
    tow_type type = tow_value_type(x[0]), drawn = type;
    double keep = 1 - p->rate;
    tow_value zeros = tow__zeros(t, type);
    if (p->rate == 0 || p->rate == 1) {
        y[0] = p->rate == 0 ? x[0] : zeros;
        return;
    }
    for (int i = 0; i < p->broadcast.n; i++) drawn.dims[p->broadcast.v[i]] = 1;
    tow_value mask = tow_random_bernoulli(x[1], keep, drawn.rank, drawn.dims);
    mask = tow_broadcast_to(mask, type.rank, type.dims);
    y[0] = tow_where(mask, tow_div(x[0], tow_full_like(x[0], keep)), zeros);
}

/* Rows that share a key share the draw: the batch axis is one more that does. */
static void dropout_batch(tow__batch *r)
{
    tow__dropout_params p = *(const tow__dropout_params *)r->e->params;
    int axis = r->x[0].axis, place = 0;
    if (tow__is_batched(r->x[1])) {
        r->decomposed(r);
        return;
    }
    p.broadcast = tow__all_shifted(p.broadcast, axis);
    while (place < p.broadcast.n && p.broadcast.v[place] < axis) place++;
    p.broadcast = tow__with_entry(p.broadcast, place, axis);
    tow__batch_bind(r, &p, (tow_value[]){r->x[0].value, r->x[1].value}, axis);
}

TOW__PRIMITIVE(dropout, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .operands = "x, key", .inputs = 2,
               .outputs = 1, .type = dropout_type, .batch = dropout_batch, .decompose = dropout_decompose,
               TOW__PARAMS(tow__dropout_params, TOW__PARAM(tow__dropout_params, rate, TOW__P_FLOAT),
                           TOW__PARAM(tow__dropout_params, broadcast, TOW__P_INTS)));

tow_value tow_dropout_with_key(tow_value x, tow_value key, double rate, int n_broadcast_axes, const int *broadcast_axes)
{
    tow__dropout_params p = {.rate = rate};
    if (tow__any_null(2, (tow_value[]){x, key})) return tow__null();
    if (n_broadcast_axes != 0 && !tow__normal_axes(x, "dropout", n_broadcast_axes, broadcast_axes, &p.broadcast))
        return tow__null();
    if (rate == 0) return x;
    return tow__op(&tow__dropout_p, &p, 2, (tow_value[]){x, key});
}

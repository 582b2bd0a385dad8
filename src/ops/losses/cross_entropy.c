/* softmax_cross_entropy(logits [..., V], labels i32 [...]) -> loss [...], lse [...]: loss = lse - logits[label].
 * A label outside [0, V) gives NaN. The fused pair keeps logits, labels and lse: the derivative is p - onehot(label),
 * p = exp(logits - lse). */
#include <math.h>

#include "src/ops/rules.h"

static tow__ints last_axis(tow_type type) { return (tow__ints){.n = 1, .v = {type.rank - 1}}; }

/* s [...] -> [..., V] like logits */
static tow_value per_row(tow_value s, tow_value logits)
{
    return tow__unreduce(s, tow_value_type(logits), last_axis(tow_value_type(logits)));
}

/* bool [..., V]: the place of the label */
static tow_value is_label(tow_value logits, tow_value labels)
{
    return tow_eq(tow_iota_like(logits, -1), per_row(labels, logits));
}

static tow_value probabilities(tow_value logits, tow_value lse)
{
    return tow_exp(tow_sub(logits, per_row(lse, logits)));
}

static tow_value pick(tow_value x, tow_value labels)
{
    return tow_reduce_sum(tow_where(is_label(x, labels), x, tow_zeros_like(x)), 1, (int[]){-1});
}

/* logits and labels fit; *row is the type of the loss */
static tow_status operands_type(const tow__typing *ty, tow_type *row)
{
    tow_type logits = ty->in[0], labels = ty->in[1];
    tow_status status = tow__require_dtype(ty, 0, TOW__FLOATS);
    if (status == TOW_OK) status = tow__require_dtype(ty, 1, 1 << TOW_I32);
    if (status != TOW_OK) return status;
    if (logits.rank == 0 || logits.dims[logits.rank - 1] == 0)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "logits need a last axis of classes, found %s",
                              tow__type_name(logits).text);
    tow__ints last = last_axis(logits);
    *row = tow__without_axes(logits, &last);
    tow_type want = *row;
    want.dtype = TOW_I32;
    if (!tow_type_equal(labels, want))
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "labels must be %s, one for each row of the logits %s, found %s",
                              tow__type_name(want).text, tow__type_name(logits).text, tow__type_name(labels).text);
    return TOW_OK;
}

static tow_status cross_entropy_type(const tow__typing *ty)
{
    tow_type row;
    tow_status status = operands_type(ty, &row);
    if (status == TOW_OK) ty->out[0] = ty->out[1] = row;
    if (status == TOW_OK) ty->out[1].dtype = tow__wide(row.dtype);
    return status;
}

static void cross_entropy_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t, (void)e;
    tow_value logits = x[0], labels = x[1];
    int64_t classes = tow_value_type(logits).dims[tow_value_type(logits).rank - 1];
    tow_value lse = tow_logsumexp(logits, -1);
    tow_value valid =
        tow_and(tow_ge(labels, tow_zeros_like(labels)), tow_lt(labels, tow_full_like(labels, (double)classes)));
    tow_value fault = tow_where(valid, tow_zeros_like(lse), tow_full_like(lse, (double)NAN));
    y[0] = tow_add(tow_sub(lse, pick(logits, labels)), fault);
    y[1] = lse;
}

static void cross_entropy_jvp(tow__jvp *r)
{
    if (!r->reverse || tow__uses_residual_outputs(r)) {
        r->decomposed(r);
        return;
    }
    tow__jvp_primal(r);
    tow_value in[4] = {r->x[0], r->x[1], r->y[1], r->dx[0]};
    r->dy[0] = tow__op(&tow__softmax_cross_entropy_jvp_p, NULL, 4, in);
}

/* Both companions: (logits, labels, lse, last) */
static tow_status companion_type(const tow__typing *ty, bool jvp)
{
    tow_type row;
    tow_status status = operands_type(ty, &row);
    if (status != TOW_OK) return status;
    for (size_t i = 2; i < 4; i++) {
        tow_type want = jvp && i == 3 ? ty->in[0] : row;
        if (i == 2) want.dtype = tow__wide(row.dtype);
        if (!tow_type_equal(ty->in[i], want))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "operand %zu must be %s, found %s", i,
                                  tow__type_name(want).text, tow__type_name(ty->in[i]).text);
    }
    ty->out[0] = jvp ? row : ty->in[0];
    return TOW_OK;
}

static tow_status jvp_type(const tow__typing *ty) { return companion_type(ty, true); }
static tow_status vjp_type(const tow__typing *ty) { return companion_type(ty, false); }

/* sum(p dlogits) - dlogits[label] */
static void jvp_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t, (void)e;
    tow_value weighted = tow_mul(probabilities(x[0], x[2]), x[3]);
    y[0] = tow_sub(tow_reduce_sum(weighted, 1, (int[]){-1}), pick(x[3], x[1]));
}

static void jvp_transpose(tow__transpose *r)
{
    tow_value in[4] = {r->x[0], r->x[1], r->x[2], r->ct[0]};
    r->dx[3] = tow__op(&tow__softmax_cross_entropy_vjp_p, NULL, 4, in);
}

/* (p - onehot(label)) ct */
static void vjp_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t, (void)e;
    tow_value onehot = tow_convert(is_label(x[0], x[1]), tow__dtype(x[0]));
    y[0] = tow_mul(tow_sub(probabilities(x[0], x[2]), onehot), per_row(x[3], x[0]));
}

static bool jvp_linear_in(const tow__equation *e, const bool *depends) { return tow__linear_behind(e, depends, 3); }

static void batch_rows(tow__batch *r) { tow__batch_rows(r, (const bool[4]){false}); }

TOW__PRIMITIVE(softmax_cross_entropy, TOW__COMPOSITE, tow__tile_rows, tow__element_cost, .reduces_axis = true,
               .operands = "logits, labels", .inputs = 2, .outputs = 2, .type = cross_entropy_type,
               .jvp = cross_entropy_jvp, .batch = batch_rows, .decompose = cross_entropy_decompose,
               .output_names = (const char *const[]){"loss", "lse", NULL});
TOW__PRIMITIVE(softmax_cross_entropy_jvp, TOW__COMPOSITE, tow__no_tiling, tow__element_cost,
               .operands = "logits, labels, lse, dlogits", .inputs = 4, .outputs = 1, .type = jvp_type,
               .transpose = jvp_transpose, .linear_in = jvp_linear_in, .batch = batch_rows, .decompose = jvp_decompose);
TOW__PRIMITIVE(softmax_cross_entropy_vjp, TOW__COMPOSITE, tow__tile_rows, tow__element_cost, .reduces_axis = true,
               .operands = "logits, labels, lse, ct", .inputs = 4, .outputs = 1, .type = vjp_type, .batch = batch_rows,
               .decompose = vjp_decompose);

tow_value tow_softmax_cross_entropy(tow_value logits, tow_value labels)
{
    tow_value in[2] = {logits, labels}, out[2] = {{0}};
    if (!tow__any_null(2, in)) tow__bind(logits.trace, &tow__softmax_cross_entropy_p, NULL, 2, in, 2, out);
    return out[0];
}

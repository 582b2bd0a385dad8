/* linear_cross_entropy(x [..., C], w, labels i32 [...]) -> loss [...], lse [...]: the cross-entropy of logits x w,
 * which exist for some rows at a time. w is [C, V], or [V, C] with `rows` (an embedding table). A label outside [0, V)
 * gives NaN.
 *
 * The fused pair keeps x, w, labels and lse and makes the logits again in chunks, unless a plan makes both in one step
 * (src/plan/rules/fuse_loss_and_gradient.c):
 *
 *   p = exp(logits - lse), dl = (p - onehot(label)) ct;  dx = dl w', dw = x' dl
 *
 * The decompositions are a product with softmax_cross_entropy and its companions.
 *
 * Weights [V, C] whose rows come in blocks of tow__loss_block(V) classes give the same bits, one block w_k after the
 * other, with labels that count from the first class of the block:
 *
 *   parts_k = linear_cross_entropy_parts(x, w_k, labels_k)
 *   loss, lse = linear_cross_entropy_join(parts_0 .. parts_n along their axis of tiles, labels)
 *   dx = dx_0 + dx_1 + ..,  dw_k,  of linear_cross_entropy_vjp(x, w_k, labels_k, lse, ct) with `classes` = V */
#include <math.h>

#include "src/ops/rules.h"

enum {
    WRT_X = 1,
    WRT_W = 2,
    WHOLE_CLASSES = 1024 /* up to here whole logits are cheaper than making them twice */
};

static int last_axis(tow_value x) { return tow_value_type(x).rank - 1; }

/* x [..., C], w -> [..., V] */
static tow_value product(tow_value x, tow_value w, bool rows)
{
    return tow_dot_general(
        x, w, (tow_dot_dims){.n_contract = 1, .lhs_contract = {last_axis(x)}, .rhs_contract = {rows ? 1 : 0}});
}

/* The same in f32 of operands of 16 bits, as the kernel makes logits: rounded ones lose the digits of a small loss. */
static tow_value wide_product(tow_value x, tow_value w, bool rows)
{
    const tow_dot_dims dims = {.n_contract = 1, .lhs_contract = {last_axis(x)}, .rhs_contract = {rows ? 1 : 0}};
    const tow_dtype dtype = tow_value_type(x).dtype;
    return tow__is_half(dtype) ? tow_dot_general_with(x, w, dims, tow__wide(dtype)) : tow_dot_general(x, w, dims);
}

/* Sum over all rows of a [..., m] and b [..., n] -> [m, n] */
static tow_value outer(tow_value a, tow_value b)
{
    tow_dot_dims dims = {.n_contract = last_axis(a)};
    for (int i = 0; i < dims.n_contract; i++) dims.lhs_contract[i] = dims.rhs_contract[i] = i;
    return tow_dot_general(a, b, dims);
}

/* ---- types ------------------------------------------------------------------------------------------------------ */

/* x, w and labels fit; *row is the type of the loss */
static tow_status operands_type(const tow__typing *ty, bool rows, tow_type *row)
{
    tow_type x = ty->in[0], w = ty->in[1], labels = ty->in[2];
    tow_status status = tow__require_dtype(ty, 0, TOW__FLOATS);
    if (status == TOW_OK) status = tow__require_rank(ty, 1, 2);
    if (status == TOW_OK) status = tow__require_dtype(ty, 2, 1 << TOW_I32);
    if (status != TOW_OK) return status;
    if (w.dtype != x.dtype)
        return tow__type_fail(ty, TOW_TYPE_MISMATCH, "x and w must have one element type, found %s and %s",
                              tow__type_name(x).text, tow__type_name(w).text);
    if (x.rank == 0 || w.dims[rows ? 1 : 0] != x.dims[x.rank - 1] || w.dims[rows ? 0 : 1] == 0)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "expected x [..., C] and w %s with some classes, found %s and %s",
                              rows ? "[V, C]" : "[C, V]", tow__type_name(x).text, tow__type_name(w).text);
    tow__ints last = {.n = 1, .v = {x.rank - 1}};
    *row = tow__without_axes(x, &last);
    tow_type want = *row;
    want.dtype = TOW_I32;
    if (!tow_type_equal(labels, want))
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "labels must be %s, one for each row of x %s, found %s",
                              tow__type_name(want).text, tow__type_name(x).text, tow__type_name(labels).text);
    return TOW_OK;
}

static tow_status forward_type(const tow__typing *ty)
{
    tow_type row;
    tow_status status = operands_type(ty, ((const tow__linear_cross_entropy_params *)ty->params)->rows, &row);
    if (status == TOW_OK) ty->out[0] = ty->out[1] = row;
    if (status == TOW_OK) ty->out[1].dtype = tow__wide(row.dtype);
    return status;
}

static size_t count_wrt(int64_t wrt) { return (size_t)((wrt & 1) + (wrt >> 1 & 1)); }

/* Can w be a block of so many classes? Labels are i32. */
static bool are_classes(const tow__typing *ty, bool rows, int64_t classes)
{
    const tow_type *w = &ty->in[1];
    return w->rank != 2 || (classes >= w->dims[rows ? 0 : 1] && classes <= INT32_MAX);
}

static tow_status classes_fail(const tow__typing *ty, int64_t classes)
{
    return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                          "expected the classes of the whole of which w %s is a block, at most %d, found %lld",
                          tow__type_name(ty->in[1]).text, INT32_MAX, (long long)classes);
}

/* Both companions: (x, w, labels, lse, ...) */
static tow_status companion_type(const tow__typing *ty, size_t n_in, size_t n_out, tow_type *row)
{
    const tow__linear_cross_entropy_ad_params *p = ty->params;
    if (p->classes != 0 && n_in == 5 && !are_classes(ty, p->rows, p->classes)) return classes_fail(ty, p->classes);
    if (p->wrt <= 0 || p->wrt > 3)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "wrt must name some of x, w by bits 0 and 1, found %lld",
                              (long long)p->wrt);
    tow_status status = tow__require_count(ty, n_in, n_out);
    if (status == TOW_OK) status = operands_type(ty, p->rows, row);
    if (status != TOW_OK) return status;
    tow_type lse = *row;
    lse.dtype = tow__wide(row->dtype);
    if (!tow_type_equal(ty->in[3], lse))
        status = tow__type_fail(ty, TOW_SHAPE_MISMATCH, "log-sum-exp must be %s, found %s", tow__type_name(lse).text,
                                tow__type_name(ty->in[3]).text);
    return status;
}

static tow_status jvp_type(const tow__typing *ty)
{
    const tow__linear_cross_entropy_ad_params *p = ty->params;
    tow_type row;
    tow_status status = companion_type(ty, 4 + count_wrt(p->wrt), 1, &row);
    size_t next = 4;
    for (size_t i = 0; status == TOW_OK && i < 2; i++)
        if (p->wrt >> i & 1 && !tow_type_equal(ty->in[next++], ty->in[i]))
            status = tow__type_fail(ty, TOW_SHAPE_MISMATCH, "tangent operand %zu must be %s, found %s", next - 1,
                                    tow__type_name(ty->in[i]).text, tow__type_name(ty->in[next - 1]).text);
    if (status == TOW_OK) ty->out[0] = row;
    return status;
}

static tow_status vjp_type(const tow__typing *ty)
{
    const tow__linear_cross_entropy_ad_params *p = ty->params;
    tow_type row;
    tow_status status = companion_type(ty, 5, count_wrt(p->wrt), &row);
    size_t next = 0;
    if (status == TOW_OK && !tow_type_equal(ty->in[4], row))
        status = tow__type_fail(ty, TOW_SHAPE_MISMATCH, "the cotangent must be %s, found %s", tow__type_name(row).text,
                                tow__type_name(ty->in[4]).text);
    for (size_t i = 0; status == TOW_OK && i < 2; i++)
        if (p->wrt >> i & 1) ty->out[next++] = ty->in[i];
    return status;
}

/* ---- decompositions and derivatives ----------------------------------------------------------------------------- */

static void forward_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow__linear_cross_entropy_params *p = e->params;
    tow_value in[2] = {product(x[0], x[1], p->rows), x[2]};
    y[0] = y[1] = tow__null();
    if (!tow__any_null(2, in)) tow__bind(t, &tow__softmax_cross_entropy_p, NULL, 2, in, 2, y);
}

static void forward_jvp(tow__jvp *r)
{
    if (!r->reverse || tow__uses_residual_outputs(r)) {
        r->decomposed(r);
        return;
    }
    tow__linear_cross_entropy_ad_params p = {.rows = ((const tow__linear_cross_entropy_params *)r->e->params)->rows};
    tow__jvp_primal(r);
    tow_value in[6] = {r->x[0], r->x[1], r->x[2], r->y[1]};
    size_t n = 4;
    for (int i = 0; i < 2; i++) {
        if (tow_is_null(r->dx[i])) continue;
        in[n++] = r->dx[i];
        p.wrt |= 1 << i;
    }
    r->dy[0] = tow__op(&tow__linear_cross_entropy_jvp_p, &p, n, in);
}

/* The loss's tangent for the tangent of the logits, dx w + x dw. */
static void jvp_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t;
    const tow__linear_cross_entropy_ad_params *p = e->params;
    const tow_value *tangent = x + 4;
    tow_value dl = tow__null();
    if (p->wrt & WRT_X) dl = product(*tangent++, x[1], p->rows);
    if (p->wrt & WRT_W) dl = tow__add_or(dl, product(x[0], *tangent, p->rows));
    tow_value in[4] = {product(x[0], x[1], p->rows), x[2], x[3], dl};
    y[0] = tow__op(&tow__softmax_cross_entropy_jvp_p, NULL, 4, in);
}

static void jvp_transpose(tow__transpose *r)
{
    tow__linear_cross_entropy_ad_params p = *(const tow__linear_cross_entropy_ad_params *)r->e->params;
    tow__transpose_to_vjp(r, &tow__linear_cross_entropy_vjp_p, &p, &p.wrt, 4);
}

static bool jvp_linear_in(const tow__equation *e, const bool *depends) { return tow__linear_behind(e, depends, 4); }

static void vjp_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t;
    const tow__linear_cross_entropy_ad_params *p = e->params;
    tow_value in[4] = {product(x[0], x[1], p->rows), x[2], x[3], x[4]};
    tow_value dl = tow__op(&tow__softmax_cross_entropy_vjp_p, NULL, 4, in);
    if (p->wrt & WRT_X) *y++ = product(dl, x[1], !p->rows);
    if (p->wrt & WRT_W) *y = p->rows ? outer(dl, x[0]) : outer(x[0], dl);
}

/* Weights that differ between rows are those of separate products. */
static void forward_batch(tow__batch *r)
{
    if (!tow__batch_rows(r, (const bool[3]){[1] = true})) r->decomposed(r);
}

/* The gradient of w is a sum over the rows of x, in the order of the kernel, for each row of the batch. */
static void vjp_batch(tow__batch *r)
{
    bool sums = ((const tow__linear_cross_entropy_ad_params *)r->e->params)->wrt & WRT_W;
    if (sums || !tow__batch_rows(r, (const bool[5]){[1] = true})) r->looped(r);
}

/* x [..., C] and w of C times V elements: logits, and a product for each gradient. */
static tow__op_cost losses(const tow__operation *o, uint32_t gradients)
{
    const tow_type *x = tow__in_type(o, 0);
    double features = (double)x->dims[x->rank - 1];
    if (features == 0) return tow__exact_cost(0);
    return tow__exact_cost(2 * tow__elements(&o->in[0]) * (tow__elements(&o->in[1]) / features) * (1 + gradients));
}

static tow__op_cost loss_cost(const tow__operation *o) { return losses(o, 0); }
static tow__op_cost loss_vjp_cost(const tow__operation *o) { return losses(o, o->n_out); }

/* ---- blocks of classes ------------------------------------------------------------------------------------------ */

enum {
    TOP,    /* of the logits of a tile */
    SUM,    /* of exp(logit - top) */
    PICKED, /* the logit of the label, or NaN */
    STATISTICS
};

static tow_status parts_type(const tow__typing *ty)
{
    const tow__linear_cross_entropy_parts_params *p = ty->params;
    tow_type row;
    tow_status status = operands_type(ty, p->rows, &row);
    if (status != TOW_OK) return status;
    const int64_t classes = ty->in[1].dims[p->rows ? 0 : 1];
    if (!are_classes(ty, p->rows, p->classes)) return classes_fail(ty, p->classes);
    if (row.rank + 2 > TOW_MAX_RANK)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "x may have at most %d axes, found %s; reshape it",
                              TOW_MAX_RANK - 1, tow__type_name(ty->in[0]).text);
    ty->out[0] = row;
    ty->out[0].dtype = tow__wide(row.dtype);
    ty->out[0].dims[ty->out[0].rank++] = (classes + TOW__LOSS_TILE - 1) / TOW__LOSS_TILE;
    ty->out[0].dims[ty->out[0].rank++] = STATISTICS;
    return tow__require_valid(ty, ty->out[0]);
}

static tow_status join_type(const tow__typing *ty)
{
    tow_type parts = ty->in[0], row = parts;
    tow_status status = tow__require_dtype(ty, 0, TOW__FLOATS);
    if (status == TOW_OK) status = tow__require_dtype(ty, 1, 1 << TOW_I32);
    if (status != TOW_OK) return status;
    row.rank -= 2;
    row.dtype = TOW_I32;
    if (parts.rank < 2 || parts.dims[parts.rank - 1] != STATISTICS || parts.dims[parts.rank - 2] == 0 ||
        !tow_type_equal(ty->in[1], row))
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "expected parts [..., tiles, 3] and labels [...], found %s and %s",
                              tow__type_name(parts).text, tow__type_name(ty->in[1]).text);
    row.dtype = parts.dtype;
    ty->out[0] = ty->out[1] = row;
    ty->out[1].dtype = tow__wide(row.dtype);
    return TOW_OK;
}

/* x [..., n] with [...] repeated along the last axis. */
static tow_value along_last(tow_value row, tow_type type)
{
    int axes[TOW_MAX_RANK];
    for (int d = 0; d + 1 < type.rank; d++) axes[d] = d;
    type.dtype = tow_value_type(row).dtype;
    return tow_broadcast_in_dim(row, type.rank, type.dims, axes);
}

/* The element of x [..., n] whose number `index` [...] says, NaN where there is none. */
static tow_value element_at(tow_value x, tow_value index)
{
    if (tow_is_null(x) || tow_is_null(index)) return tow__null();
    const int last = last_axis(x);
    tow_type type = tow_value_type(x);
    type.dtype = TOW_I32;
    const tow_value here = tow_eq(tow_iota(x.trace, type, last), along_last(index, type));
    const tow_value found = tow_reduce_sum(tow_where(here, x, tow_zeros_like(x)), 1, (int[]){last});
    return tow_where(tow_reduce_or(here, 1, (int[]){last}), found, tow_full_like(found, NAN));
}

/* x where it is finite, else 0. */
static tow_value finite_or_zero(tow_value x) { return tow_where(tow_is_finite(x), x, tow_zeros_like(x)); }

/* Statistics of one tile, [..., 1, 3]. */
static tow_value decompose_tile(tow_value logits, tow_value labels)
{
    if (tow_is_null(logits)) return logits;
    const int last = last_axis(logits);
    tow_type type = tow_value_type(logits);
    const tow_value top = tow_reduce_max(logits, 1, (int[]){last}), zero = finite_or_zero(top);
    tow_value all[STATISTICS] = {top,
                                 tow_reduce_sum(tow_exp(tow_sub(logits, along_last(zero, type))), 1, (int[]){last}),
                                 element_at(logits, labels)};
    type.dims[last] = type.dims[last + 1] = 1;
    for (int i = 0; i < STATISTICS; i++) all[i] = tow_reshape(all[i], last + 2, type.dims);
    return tow_concatenate(STATISTICS, all, last + 1);
}

static void parts_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow__linear_cross_entropy_parts_params *p = e->params;
    const tow_value logits = product(x[0], x[1], p->rows);
    if (tow_is_null(logits)) return;
    const int last = last_axis(logits);
    const int64_t classes = tow_value_type(logits).dims[last];
    const int64_t tiles = (classes + TOW__LOSS_TILE - 1) / TOW__LOSS_TILE;
    tow_value *all = tow__trace_alloc(t, (size_t)tiles, sizeof *all);
    for (int64_t i = 0; all && i < tiles; i++) {
        const int64_t first = i * TOW__LOSS_TILE, end = first + TOW__LOSS_TILE;
        all[i] = decompose_tile(tow_slice_axis(logits, last, first, end < classes ? end : classes),
                                tow_add_scalar(x[2], -(double)first));
    }
    if (all) y[0] = tow_concatenate((size_t)tiles, all, last);
}

static tow_value statistic(tow_value parts, int i)
{
    const int last = last_axis(parts);
    return tow_reshape(tow_slice_axis(parts, last, i, i + 1), last, tow_value_type(parts).dims);
}

static void join_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t, (void)e;
    const tow_value tops = statistic(x[0], TOP), tile = tow_full_like(x[1], TOW__LOSS_TILE);
    const int last = last_axis(tops);
    const tow_value top = tow_reduce_max(tops, 1, (int[]){last}), zero = finite_or_zero(top);
    const tow_value scaled =
        tow_mul(statistic(x[0], SUM), tow_exp(tow_sub(tops, along_last(zero, tow_value_type(tops)))));
    y[1] = tow_add(tow_log(tow_reduce_sum(scaled, 1, (int[]){last})), zero);
    const tow_value negative = tow_lt(x[1], tow_zeros_like(x[1]));
    const tow_value place = tow_where(negative, tow_full_like(x[1], -1), tow_div(x[1], tile));
    y[0] = tow_sub(y[1], element_at(statistic(x[0], PICKED), place));
}

#define AD_PARAMS                                                                                                      \
    TOW__PARAMS(tow__linear_cross_entropy_ad_params,                                                                   \
                TOW__PARAM(tow__linear_cross_entropy_ad_params, rows, TOW__P_BOOL),                                    \
                TOW__PARAM(tow__linear_cross_entropy_ad_params, wrt, TOW__P_INT),                                      \
                TOW__PARAM(tow__linear_cross_entropy_ad_params, classes, TOW__P_COUNT))

TOW__PRIMITIVE(linear_cross_entropy, TOW__COMPOSITE, tow__no_tiling, loss_cost, .operands = "x, w, labels", .inputs = 3,
               .outputs = 2, .product = TOW__PLAIN_PRODUCT, .type = forward_type, .jvp = forward_jvp,
               .batch = forward_batch, .decompose = forward_decompose,
               .output_names = (const char *const[]){"loss", "lse", NULL},
               TOW__PARAMS(tow__linear_cross_entropy_params,
                           TOW__PARAM(tow__linear_cross_entropy_params, rows, TOW__P_BOOL)));
TOW__PRIMITIVE(linear_cross_entropy_jvp, TOW__COMPOSITE, tow__no_tiling, tow__element_cost,
               .operands = "x, w, labels, lse, dx?, dw?", .inputs = -1, .outputs = 1, .product = TOW__PLAIN_PRODUCT,
               .type = jvp_type, .transpose = jvp_transpose, .linear_in = jvp_linear_in, .decompose = jvp_decompose,
               AD_PARAMS);
TOW__PRIMITIVE(linear_cross_entropy_vjp, TOW__COMPOSITE, tow__no_tiling, loss_vjp_cost,
               .operands = "x, w, labels, lse, ct", .inputs = 5, .outputs = -1, .product = TOW__PLAIN_PRODUCT,
               .type = vjp_type, .batch = vjp_batch, .decompose = vjp_decompose, AD_PARAMS);

TOW__PRIMITIVE(linear_cross_entropy_parts, TOW__COMPOSITE, tow__no_tiling, loss_cost, .operands = "x, w, labels",
               .inputs = 3, .outputs = 1, .product = TOW__PLAIN_PRODUCT, .type = parts_type,
               .decompose = parts_decompose,
               TOW__PARAMS(tow__linear_cross_entropy_parts_params,
                           TOW__PARAM(tow__linear_cross_entropy_parts_params, rows, TOW__P_BOOL),
                           TOW__PARAM(tow__linear_cross_entropy_parts_params, classes, TOW__P_INT)));
TOW__PRIMITIVE(linear_cross_entropy_join, TOW__COMPOSITE, tow__no_tiling, tow__element_cost,
               .operands = "parts, labels", .inputs = 2, .outputs = 2, .type = join_type, .decompose = join_decompose);

tow_value tow_linear_cross_entropy(tow_value x, tow_value w, bool rows, tow_value labels)
{
    tow_value in[3] = {x, w, labels}, out[2] = {{0}};
    if (tow__any_null(3, in)) return tow__null();
    tow_type type = tow_value_type(w);
    tow__linear_cross_entropy_params p = {.rows = rows};
    if (type.rank == 2 && type.dims[rows ? 0 : 1] <= WHOLE_CLASSES && tow_value_type(x).rank > 0)
        return tow_convert(tow_softmax_cross_entropy(wide_product(x, w, rows), labels), tow_value_type(x).dtype);
    tow__bind(x.trace, &tow__linear_cross_entropy_p, &p, 3, in, 2, out);
    return out[0];
}

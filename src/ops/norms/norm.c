/* layer_norm and rms_norm over the last axis, each with a fused pair that keeps x, scale and the statistics.
 *   layer_norm: n = (x - mean) rstd, rstd = rsqrt(mean((x - mean)^2) + epsilon), y = n scale + bias
 *   rms_norm:   n = x rstd,          rstd = rsqrt(mean(x^2) + epsilon),          y = n scale
 * (Ba, Kiros, Hinton, "Layer normalization", 2016; Zhang, Sennrich, "Root mean square layer normalization", 2019.)
 * With c(g) = (g - mean(g) - n mean(g n)) rstd, without mean(g) for rms_norm, which is symmetric:
 *   tangent: c(dx) scale + n dscale + dbias;   cotangents: c(ct scale), sum(ct n), sum(ct)
 * x: [..., D]; scale, bias: [D]; mean, rstd: [...] */
#include "src/ops/rules.h"

enum {
    WRT_X = 1,
    WRT_SCALE = 2,
    WRT_BIAS = 4
};

/* The operands of one norm, whichever it is: mean and bias are null for rms_norm. */
typedef struct norm {
    tow_value x, scale, mean, rstd; /* shapes as above */
    tow_value n;                    /* [..., D] normalized */
    bool centered;
} norm;

/* ---- arithmetic over the last axis ------------------------------------------------------------------------------- */

static tow_value mean_last(tow_value x) { return tow_mean(x, 1, (int[]){-1}); }

/* s [...] -> [..., D] like x */
static tow_value per_row(tow_value s, tow_value x)
{
    tow_type type = tow_value_type(x);
    return tow__unreduce(s, type, (tow__ints){.n = 1, .v = {type.rank - 1}});
}

/* w [D] -> [..., D] like x */
static tow_value per_column(tow_value w, tow_value x)
{
    tow_type type = tow_value_type(x);
    return tow_broadcast_to(w, type.rank, type.dims);
}

/* [..., D] -> [D] */
static tow_value sum_rows(tow_value x)
{
    int axes[TOW_MAX_RANK], n = tow_value_type(x).rank - 1;
    for (int d = 0; d < n; d++) axes[d] = d;
    return n > 0 ? tow_reduce_sum(x, n, axes) : x;
}

static tow_value normalized(const norm *m)
{
    tow_value d = m->centered ? tow_sub(m->x, per_row(m->mean, m->x)) : m->x;
    return tow_mul(d, per_row(m->rstd, m->x));
}

/* c(g) above */
static tow_value through_statistics(const norm *m, tow_value g)
{
    tow_value along_n = tow_mul(m->n, per_row(mean_last(tow_mul(g, m->n)), m->x));
    if (m->centered) g = tow_sub(g, per_row(mean_last(g), m->x));
    return tow_mul(tow_sub(g, along_n), per_row(m->rstd, m->x));
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static tow_status norm_type(const tow__typing *ty)
{
    tow_type x = ty->in[0];
    tow_status status = tow__require_dtype(ty, 0, TOW__FLOATS);
    if (status != TOW_OK) return status;
    if (x.rank == 0 || x.dims[x.rank - 1] == 0)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "the operand needs a last axis to normalize over, found %s",
                              tow__type_name(x).text);
    tow_type features = tow_make_type(x.dtype, 1, &x.dims[x.rank - 1]);
    for (size_t i = 1; i < ty->n_in; i++)
        if (!tow_type_equal(ty->in[i], features))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "%s must be %s, the last axis of %s, found %s",
                                  i == 1 ? "scale" : "bias", tow__type_name(features).text, tow__type_name(x).text,
                                  tow__type_name(ty->in[i]).text);
    ty->out[0] = x;
    for (size_t i = 1; i < ty->n_out; i++) ty->out[i] = tow_make_type(tow__wide(x.dtype), x.rank - 1, x.dims);
    return TOW_OK;
}

static tow_value reciprocal_deviation(const tow__equation *e, tow_value d)
{
    double epsilon = ((const tow__norm_params *)e->params)->epsilon;
    return tow_rsqrt(tow_add_scalar(mean_last(tow_square(d)), epsilon));
}

static void layer_norm_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t;
    y[1] = mean_last(x[0]);
    tow_value d = tow_sub(x[0], per_row(y[1], x[0]));
    y[2] = reciprocal_deviation(e, d);
    tow_value n = tow_mul(d, per_row(y[2], d));
    y[0] = tow_add(tow_mul(n, per_column(x[1], n)), per_column(x[2], n));
}

static void rms_norm_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    (void)t;
    y[1] = reciprocal_deviation(e, x[0]);
    tow_value n = tow_mul(x[0], per_row(y[1], x[0]));
    y[0] = tow_mul(n, per_column(x[1], n));
}

/* Reverse mode: the fused pair, which keeps x, scale and the statistics; otherwise the decomposition. */
static void norm_jvp(tow__jvp *r)
{
    if (!r->reverse || tow__uses_residual_outputs(r)) {
        r->decomposed(r);
        return;
    }
    bool centered = r->e->n_in == 3;
    tow__norm_ad_params p = {.epsilon = ((const tow__norm_params *)r->e->params)->epsilon};
    tow_value in[7] = {{0}};
    size_t n = 0;
    tow__jvp_primal(r);
    in[n++] = r->x[0];
    in[n++] = r->x[1];
    for (uint32_t i = 1; i < r->e->n_out; i++) in[n++] = r->y[i];
    for (uint32_t i = 0; i < r->e->n_in; i++) {
        if (tow_is_null(r->dx[i])) continue;
        in[n++] = r->dx[i];
        p.wrt |= 1 << i;
    }
    r->dy[0] = tow__op(centered ? &tow__layer_norm_jvp_p : &tow__rms_norm_jvp_p, &p, n, in);
}

/* ---- companions -------------------------------------------------------------------------------------------------- */

static size_t residuals_of(const tow_primitive *p)
{
    return p == &tow__layer_norm_jvp_p || p == &tow__layer_norm_vjp_p ? 4 : 3;
}

/* Operands x, scale, statistics as they stand in both companions. */
static norm operands(const tow__equation *e, const tow_value *x)
{
    norm m = {.x = x[0], .scale = x[1], .centered = residuals_of(e->primitive) == 4};
    if (m.centered) m.mean = x[2];
    m.rstd = x[m.centered ? 3 : 2];
    m.n = normalized(&m);
    return m;
}

static tow_status residuals_type(const tow__typing *ty, size_t residuals)
{
    tow_type x = ty->in[0];
    if (ty->n_in <= residuals) return tow__require_count(ty, residuals + 1, ty->n_out);
    if (x.rank == 0)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "operand 0 needs a last axis, found %s", tow__type_name(x).text);
    tow_type row = tow_make_type(tow__wide(x.dtype), x.rank - 1, x.dims),
             features = tow_make_type(x.dtype, 1, &x.dims[x.rank - 1]);
    for (size_t i = 1; i < residuals; i++) {
        tow_type want = i == 1 ? features : row;
        if (!tow_type_equal(ty->in[i], want))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "operand %zu must be %s, found %s", i,
                                  tow__type_name(want).text, tow__type_name(ty->in[i]).text);
    }
    return tow__require_dtype(ty, 0, TOW__FLOATS);
}

static int64_t wrt_of(const void *params) { return ((const tow__norm_ad_params *)params)->wrt; }

/* Number of bits among the lowest three; -1 if others are set or bias is asked of rms_norm. */
static int count_wrt(int64_t wrt, size_t residuals)
{
    int64_t allowed = residuals == 4 ? 7 : 3;
    if (wrt <= 0 || (wrt & ~allowed) != 0) return -1;
    return (int)((wrt & 1) + (wrt >> 1 & 1) + (wrt >> 2 & 1));
}

/* The type that goes with bit `bit` of wrt. */
static tow_type wrt_type(const tow__typing *ty, int bit) { return bit == 0 ? ty->in[0] : ty->in[1]; }

/* (residuals, tangents of wrt) -> dy */
static tow_status norm_jvp_type(const tow__typing *ty, size_t residuals)
{
    int n = count_wrt(wrt_of(ty->params), residuals);
    if (n < 0)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "wrt must name operands, found %lld",
                              (long long)wrt_of(ty->params));
    tow_status status = tow__require_count(ty, residuals + (size_t)n, 1);
    if (status == TOW_OK) status = residuals_type(ty, residuals);
    size_t next = residuals;
    for (int bit = 0; status == TOW_OK && bit < 3; bit++) {
        if (!(wrt_of(ty->params) >> bit & 1)) continue;
        if (!tow_type_equal(ty->in[next], wrt_type(ty, bit)))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "tangent operand %zu must be %s, found %s", next,
                                  tow__type_name(wrt_type(ty, bit)).text, tow__type_name(ty->in[next]).text);
        next++;
    }
    ty->out[0] = ty->in[0];
    return status;
}

/* (residuals, ct) -> cotangents of wrt */
static tow_status norm_vjp_type(const tow__typing *ty, size_t residuals)
{
    int n = count_wrt(wrt_of(ty->params), residuals), next = 0;
    if (n < 0)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "wrt must name operands, found %lld",
                              (long long)wrt_of(ty->params));
    tow_status status = tow__require_count(ty, residuals + 1, (size_t)n);
    if (status == TOW_OK) status = residuals_type(ty, residuals);
    if (status != TOW_OK) return status;
    if (!tow_type_equal(ty->in[residuals], ty->in[0]))
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "the cotangent must be %s, found %s",
                              tow__type_name(ty->in[0]).text, tow__type_name(ty->in[residuals]).text);
    for (int bit = 0; bit < 3; bit++)
        if (wrt_of(ty->params) >> bit & 1) ty->out[next++] = wrt_type(ty, bit);
    return TOW_OK;
}

static tow_status layer_norm_jvp_type(const tow__typing *ty) { return norm_jvp_type(ty, 4); }
static tow_status layer_norm_vjp_type(const tow__typing *ty) { return norm_vjp_type(ty, 4); }
static tow_status rms_norm_jvp_type(const tow__typing *ty) { return norm_jvp_type(ty, 3); }
static tow_status rms_norm_vjp_type(const tow__typing *ty) { return norm_vjp_type(ty, 3); }

static void norm_jvp_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    norm m = operands(e, x);
    int64_t wrt = wrt_of(e->params);
    const tow_value *tangent = x + residuals_of(e->primitive);
    (void)t;
    y[0] = tow__null();
    if (wrt & WRT_X) y[0] = tow_mul(through_statistics(&m, *tangent++), per_column(m.scale, m.x));
    if (wrt & WRT_SCALE) y[0] = tow__add_or(y[0], tow_mul(m.n, per_column(*tangent++, m.x)));
    if (wrt & WRT_BIAS) y[0] = tow__add_or(y[0], per_column(*tangent++, m.x));
}

static void norm_vjp_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    norm m = operands(e, x);
    int64_t wrt = wrt_of(e->params);
    tow_value ct = x[residuals_of(e->primitive)];
    (void)t;
    if (wrt & WRT_X) *y++ = through_statistics(&m, tow_mul(ct, per_column(m.scale, m.x)));
    if (wrt & WRT_SCALE) *y++ = sum_rows(tow_mul(ct, m.n));
    if (wrt & WRT_BIAS) *y++ = sum_rows(ct);
}

static void norm_jvp_transpose(tow__transpose *r)
{
    const size_t residuals = residuals_of(r->e->primitive);
    const tow_primitive *vjp = residuals == 4 ? &tow__layer_norm_vjp_p : &tow__rms_norm_vjp_p;
    tow__norm_ad_params p = *(const tow__norm_ad_params *)r->e->params;
    tow__transpose_to_vjp(r, vjp, &p, &p.wrt, residuals);
}

static bool norm_jvp_linear_in(const tow__equation *e, const bool *depends)
{
    return tow__linear_behind(e, depends, residuals_of(e->primitive));
}

/* ---- tiling ------------------------------------------------------------------------------------------------------ */

/* (x, scale [, bias]) -> y [, mean], rstd; (x, scale [, mean], rstd, ct) -> dx: all axes but the last, with all of
 * scale and bias, which have one axis. */
static bool tile_norm(const tow__operation *o, int axis, int *from)
{
    if (axis + 1 >= tow__in_type(o, 0)->rank) return false;
    from[0] = axis;
    for (uint32_t i = 1; i < o->n_in; i++) from[i] = TOW__WHOLE;
    return true;
}

/* Sums over rows, which are the derivatives with respect to scale and bias, need all rows. */
static bool tile_norm_vjp(const tow__operation *o, int axis, int *from)
{
    if (((const tow__norm_ad_params *)o->params)->wrt != 1 || !tile_norm(o, axis, from)) return false;
    for (uint32_t i = 2; i < o->n_in; i++) from[i] = axis;
    return true;
}

/* Derivatives with respect to scale and bias alone: all axes but the last. Scale, operand 1, has no other. */
static bool sum_norm_vjp(const tow__operation *o, uint32_t i, int axis, int *from)
{
    const int64_t wrt = ((const tow__norm_ad_params *)o->params)->wrt;
    if ((wrt & WRT_X) || axis + 1 >= o->in[0].type.rank) return false;
    for (uint32_t k = 0; k < o->n_in; k++) from[k] = k == 1 ? TOW__WHOLE : axis;
    return i != 1;
}

/* ---- batching ---------------------------------------------------------------------------------------------------- */

/* w [D] of each row, repeated to x, which has its batch axis in front: [rows, ..., D] */
static tow_value weights_of_rows(const tow__batch *r, uint32_t i, tow_value x)
{
    tow_type type = tow_value_type(x);
    return tow_broadcast_in_dim(tow__batch_operand(r, i, 0), type.rank, type.dims, (int[]){0, type.rank - 1});
}

/* A norm whose scale or bias differs between rows: the norm with the scale 1 and the bias -0, which change no bits,
 * then both. */
static void norm_by_rows(tow__batch *r)
{
    tow_type features = r->in[1];
    tow_value x = tow__batch_operand(r, 0, 0), out[3] = {{0}};
    tow_value in[3] = {x, tow_full(r->t, features, 1), tow_full(r->t, features, -0.0)};
    if (tow__any_null(3, in)) return;
    tow__bind(r->t, r->e->primitive, r->e->params, r->e->n_in, in, r->e->n_out, out);
    out[0] = tow_mul(out[0], weights_of_rows(r, 1, x));
    if (r->e->n_in == 3) out[0] = tow_add(out[0], weights_of_rows(r, 2, x));
    for (uint32_t i = 0; i < r->e->n_out; i++) r->y[i] = (tow__mapped){.value = out[i], .axis = 0};
}

static void norm_batch(tow__batch *r)
{
    if (!tow__batch_rows(r, (const bool[3]){[1] = true, [2] = true})) tow__batch_wide(r, norm_by_rows);
}

/* The cotangent of x for all rows, [rows, ..., D]. A scale of each row: that of ct scale with the scale 1. */
static tow_value dx_of_rows(const tow__batch *r)
{
    uint32_t n = r->e->n_in;
    bool scaled = tow__is_batched(r->x[1]);
    tow__norm_ad_params p = *(const tow__norm_ad_params *)r->e->params;
    tow_value in[6] = {{0}};
    for (uint32_t i = 0; i < n; i++) in[i] = i == 1 ? r->x[1].value : tow__batch_operand(r, i, 0);
    if (scaled) in[1] = tow_full(r->t, r->in[1], 1);
    if (scaled && !tow__any_null(n, in)) in[n - 1] = tow_mul(in[n - 1], weights_of_rows(r, 1, in[n - 1]));
    p.wrt = WRT_X;
    return tow__op(r->e->primitive, &p, n, in);
}

/* One vector for each row: no sums, but 0 + ct n and 0 + ct, as the kernel begins its sums. */
static void vjp_of_vectors(tow__batch *r)
{
    int64_t wrt = wrt_of(r->e->params);
    uint32_t n = r->e->n_in, next = 0;
    norm m = {.x = tow__batch_operand(r, 0, 0), .rstd = tow__batch_operand(r, n - 2, 0), .centered = n == 5};
    if (m.centered) m.mean = tow__batch_operand(r, 2, 0);
    m.n = normalized(&m);
    tow_value ct = tow__batch_operand(r, n - 1, 0), zero = tow_zeros_like(ct), y[3] = {{0}};
    if (wrt & WRT_X) y[next++] = dx_of_rows(r);
    if (wrt & WRT_SCALE) y[next++] = tow_add(zero, tow_mul(ct, m.n));
    if (wrt & WRT_BIAS) y[next++] = tow_add(zero, ct);
    for (uint32_t i = 0; i < next; i++) r->y[i] = (tow__mapped){.value = y[i], .axis = 0};
}

static void x_alone_by_rows(tow__batch *r) { r->y[0] = (tow__mapped){.value = dx_of_rows(r), .axis = 0}; }

/* Sums over several vectors have the order of the kernel in each row of the batch, so those go through a loop. */
static void norm_vjp_batch(tow__batch *r)
{
    if (wrt_of(r->e->params) == WRT_X && tow__batch_rows(r, (const bool[6]){[1] = true})) return;
    if (r->in[0].rank == 1)
        tow__batch_wide(r, vjp_of_vectors);
    else if (wrt_of(r->e->params) == WRT_X)
        tow__batch_wide(r, x_alone_by_rows);
    else
        r->looped(r);
}

#define NORM_PARAMS TOW__PARAMS(tow__norm_params, TOW__PARAM(tow__norm_params, epsilon, TOW__P_FLOAT))
#define AD_PARAMS                                                                                                      \
    TOW__PARAMS(tow__norm_ad_params, TOW__PARAM(tow__norm_ad_params, epsilon, TOW__P_FLOAT),                           \
                TOW__PARAM(tow__norm_ad_params, wrt, TOW__P_INT))

TOW__PRIMITIVE(layer_norm, TOW__COMPOSITE, tile_norm, tow__element_cost, .reduces_axis = true,
               .operands = "x, scale, bias", .inputs = 3, .outputs = 3, .type = norm_type, .jvp = norm_jvp,
               .batch = norm_batch, .decompose = layer_norm_decompose,
               .output_names = (const char *const[]){"y", "mean", "rstd", NULL}, NORM_PARAMS);
TOW__PRIMITIVE(rms_norm, TOW__COMPOSITE, tile_norm, tow__element_cost, .reduces_axis = true, .operands = "x, scale",
               .inputs = 2, .outputs = 2, .type = norm_type, .jvp = norm_jvp, .batch = norm_batch,
               .decompose = rms_norm_decompose, .output_names = (const char *const[]){"y", "rstd", NULL}, NORM_PARAMS);

#define COMPANIONS(op, statistics, tangents)                                                                           \
    TOW__PRIMITIVE(op##_jvp, TOW__COMPOSITE, tow__no_tiling, tow__element_cost,                                        \
                   .operands = "x, scale, " statistics tangents, .inputs = -1, .outputs = 1, .type = op##_jvp_type,    \
                   .transpose = norm_jvp_transpose, .linear_in = norm_jvp_linear_in, .decompose = norm_jvp_decompose,  \
                   AD_PARAMS);                                                                                         \
    TOW__PRIMITIVE(op##_vjp, TOW__COMPOSITE, tile_norm_vjp, tow__element_cost, .sums = sum_norm_vjp,                   \
                   .reduces_axis = true, .operands = "x, scale, " statistics ", ct", .inputs = -1, .outputs = -1,      \
                   .type = op##_vjp_type, .batch = norm_vjp_batch, .decompose = norm_vjp_decompose, AD_PARAMS);
COMPANIONS(layer_norm, "mean, rstd", ", dx?, dscale?, dbias?")
COMPANIONS(rms_norm, "rstd", ", dx?, dscale?")

/* ---- public functions -------------------------------------------------------------------------------------------- */

static tow_value bind_norm(const tow_primitive *p, double epsilon, size_t n_in, const tow_value *in)
{
    tow_value out[3] = {{0}};
    if (!tow__any_null(n_in, in)) tow__bind(in[0].trace, p, &(tow__norm_params){epsilon}, n_in, in, n_in, out);
    return out[0];
}

tow_value tow_normalize_layer(tow_value x, tow_value scale, tow_value bias, double epsilon)
{
    return bind_norm(&tow__layer_norm_p, epsilon, 3, (tow_value[]){x, scale, bias});
}

tow_value tow_normalize_rms(tow_value x, tow_value scale, double epsilon)
{
    return bind_norm(&tow__rms_norm_p, epsilon, 2, (tow_value[]){x, scale});
}

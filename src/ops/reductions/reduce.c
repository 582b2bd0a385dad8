/* Reductions over axes, which vanish; argmax. */
#include "src/ops/indexing/indexing.h"
#include "src/ops/rules.h"

static const tow__ints *axes_of(const tow__equation *e) { return &((const tow__axes_params *)e->params)->axes; }

static tow_status reduce_type(const tow__typing *ty, unsigned dtypes)
{
    const tow__axes_params *p = ty->params;
    tow_status status = tow__require_dtype(ty, 0, dtypes);
    if (status == TOW_OK) status = tow__require_axes(ty, &p->axes);
    if (status == TOW_OK) ty->out[0] = tow__without_axes(ty->in[0], &p->axes);
    return status;
}

static tow_status reduce_number_type(const tow__typing *ty) { return reduce_type(ty, TOW__NUMBERS); }
static tow_status reduce_bits_type(const tow__typing *ty) { return reduce_type(ty, TOW__BITS); }

/* ---- reduce_sum: linear ------------------------------------------------------------------------------------------ */

static void reduce_sum_transpose(tow__transpose *r)
{
    r->dx[0] = tow__unreduce(r->ct[0], r->in_types[0], *axes_of(r->e));
}

/* ---- y = max x: sum(select(x == y, dx, 0)) / number of ties; keeps a bool mask and the counts (size of y) -------- */

static tow_value sum_over(tow_value x, const tow__ints *axes)
{
    return tow__op(&tow__reduce_sum_p, &(tow__axes_params){*axes}, 1, &x);
}

/* The number of ties and the sum over them may exceed what 16 bits hold, the quotient does not: both are f32 there. */
static void reduce_extremum_jvp(tow__jvp *r)
{
    const tow__ints *axes = axes_of(r->e);
    tow__jvp_primal(r);
    tow_type type = tow_value_type(r->x[0]);
    if (tow_type_element_count(type) == 0) return; /* the result of nothing is a constant */
    tow_value dx = r->dx[0], mask = tow_eq(r->x[0], tow__unreduce(r->y[0], type, *axes));
    const tow_dtype wide = tow__wide(type.dtype);
    tow_value count = sum_over(tow_convert(mask, wide), axes);
    tow_value sum = sum_over(tow_convert(tow_where(mask, dx, tow_zeros_like(dx)), wide), axes);
    r->dy[0] = tow_convert(tow_div(sum, count), type.dtype);
}

/* ---- prod x: sum(dx c), c[i] = product of all other factors, made without division, in f32 of 16 bits ------------ */

/* x: [n, m] -> c: [n, m], c[i] = product of x[j], j != i. With p = first half * second half (elementwise) and o = c of
 * p, the c of the first half is o * second half. An odd n gets a factor 1. */
static tow_value other_factors(tow_value x)
{
    tow_type type = tow_value_type(x);
    int64_t n = type.dims[0], half = (n + 1) / 2;
    if (tow_is_null(x) || n <= 1) return tow_full_like(x, 1);
    if (n % 2 != 0) x = tow_pad(x, tow_scalar(x.trace, type.dtype, 1), (int64_t[]){0, 0}, (int64_t[]){1, 0}, NULL);
    tow_value a = tow_slice_axis(x, 0, 0, half), b = tow_slice_axis(x, 0, half, 2 * half);
    tow_value o = other_factors(tow_mul(a, b));
    tow_value c = tow_concatenate(2, (tow_value[]){tow_mul(o, b), tow_mul(o, a)}, 0);
    return n % 2 != 0 ? tow_slice_axis(c, 0, 0, n) : c;
}

/* Reduced axes first and as one: [reduced, rest]. */
static tow_value as_matrix(tow_value x, const tow__ints *axes)
{
    tow_type type = tow_value_type(x);
    int permutation[TOW_MAX_RANK] = {0}, n = 0;
    int64_t shape[2] = {1, 1};
    for (int i = 0; i < axes->n; i++) {
        permutation[n++] = (int)axes->v[i];
        shape[0] *= type.dims[axes->v[i]];
    }
    for (int d = 0, next = 0; d < type.rank; d++) {
        if (next < axes->n && axes->v[next] == d) {
            next++;
            continue;
        }
        permutation[n++] = d;
        shape[1] *= type.dims[d];
    }
    if (type.rank > 0) x = tow_transpose(x, type.rank, permutation);
    return tow_reshape(x, 2, shape);
}

static void reduce_prod_jvp(tow__jvp *r)
{
    const tow__ints *axes = axes_of(r->e);
    tow__jvp_primal(r);
    tow_type type = tow_value_type(r->y[0]);
    const tow_dtype wide = tow__wide(type.dtype);
    tow_value c = other_factors(as_matrix(tow_convert(r->x[0], wide), axes));
    tow_value dy = tow__sum_axis(tow_mul(as_matrix(tow_convert(r->dx[0], wide), axes), c), 0);
    r->dy[0] = tow_reshape(tow_convert(dy, type.dtype), type.rank, type.dims);
}

static bool tile_reduction(const tow__operation *o, int axis, int *from)
{
    from[0] = tow__kept_axis(&((const tow__axes_params *)o->params)->axes, axis);
    return tow__same_extent(o, axis, 0, from[0]);
}

static bool sum_reduction(const tow__operation *o, uint32_t i, int axis, int *from)
{
    from[i] = axis;
    return i == 0 && tow__ints_contain(&((const tow__axes_params *)o->params)->axes, axis);
}

#define REDUCTION(op, rule, ...)                                                                                       \
    TOW__PRIMITIVE(reduce_##op, TOW__REDUCTION, tile_reduction, tow__element_cost, .sums = sum_reduction,              \
                   .reduces_axis = true, .inputs = 1, .outputs = 1, .type = rule, .batch = tow__batch_over_axes,       \
                   TOW__PARAMS(tow__axes_params, TOW__PARAM(tow__axes_params, axes, TOW__P_INTS)), __VA_ARGS__);
REDUCTION(sum, reduce_number_type, .transpose = reduce_sum_transpose)
REDUCTION(max, reduce_number_type, .jvp = reduce_extremum_jvp)
REDUCTION(min, reduce_number_type, .jvp = reduce_extremum_jvp)
REDUCTION(prod, reduce_number_type, .jvp = reduce_prod_jvp)
REDUCTION(and, reduce_bits_type, .jvp = NULL)
REDUCTION(or, reduce_bits_type, .jvp = NULL)
REDUCTION(xor, reduce_bits_type, .jvp = NULL)

#define X(op)                                                                                                          \
    tow_value tow_reduce_##op(tow_value x, int n_axes, const int *axes)                                                \
    {                                                                                                                  \
        tow__axes_params p;                                                                                            \
        if (tow_is_null(x) || !tow__normal_axes(x, "reduce_" #op, n_axes, axes, &p.axes)) return tow__null_from(x);    \
        return p.axes.n == 0 ? x : tow__op(&tow__reduce_##op##_p, &p, 1, &x);                                          \
    }
TOW_REDUCTION_LIST(X)
#undef X

tow_value tow_mean(tow_value x, int n_axes, const int *axes)
{
    if (!tow_is_null(x) && !tow_dtype_is_float(tow_value_type(x).dtype))
        return tow__op_fail(x, "mean", TOW_TYPE_MISMATCH,
                            "%s has no mean of its own type; convert it to a float type first",
                            tow__type_name(tow_value_type(x)).text);
    if (!tow_is_null(x) && tow__is_half(tow__dtype(x))) /* in f32, rounded once */
        return tow_convert(tow_mean(tow_at(tow_convert(x, TOW_F32), x.here), n_axes, axes), tow__dtype(x));
    tow_value sum = tow_reduce_sum(x, n_axes, axes);
    if (tow_is_null(sum)) return sum;
    int64_t count = tow_type_element_count(tow_value_type(sum));
    double n = count == 0 ? 1 : (double)tow_type_element_count(tow_value_type(x)) / (double)count;
    return tow_div(tow_at(sum, x.here), tow_full_like(sum, n));
}

/* ---- argmax: i32, the first of equal maxima ---------------------------------------------------------------------- */

TOW__PRIMITIVE(argmax, TOW__REDUCTION, tow__tile_along_axis, tow__element_cost, .reduces_axis = true, .inputs = 1,
               .outputs = 1, .type = tow__type_argmax, .batch = tow__batch_along_axis,
               TOW__PARAMS(tow__axis_params, TOW__PARAM(tow__axis_params, axis, TOW__P_INT)));

tow_value tow_argmax(tow_value x, int axis)
{
    tow__axis_params p;
    if (tow_is_null(x) || !tow__normal_axis(x, "argmax", axis, tow_value_type(x).rank, &p.axis))
        return tow__null_from(x);
    return tow__op(&tow__argmax_p, &p, 1, &x);
}

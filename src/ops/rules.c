/* Type rules of families and helpers of rules; see rules.h. */
#include "src/ops/rules.h"

#include <stdio.h>

/* ---- values ------------------------------------------------------------------------------------------------------ */

bool tow__any_null(size_t n, const tow_value *x)
{
    for (size_t i = 0; i < n; i++)
        if (tow_is_null(x[i])) return true;
    return false;
}

tow_value tow__null_of(const char *op, size_t n, const tow_value *x)
{
    size_t i = 0, with = 0;
    while (i < n && !(tow_is_null(x[i]) && tow__null_text(x[i], NULL))) i++;
    if (i == n) return tow__null();
    while (with < n && tow_is_null(x[with])) with++;
    if (with < n) tow__op_fail(x[with], op, TOW_INVALID_ARGUMENT, "operand %zu is %s", i, tow__null_text(x[i], NULL));
    return x[i];
}

tow_dtype tow__dtype(tow_value x) { return tow_value_type(x).dtype; }

tow_value tow__zeros(tow_trace *t, tow_type type) { return tow_full(t, type, 0); }

tow_value tow__add_or(tow_value a, tow_value b)
{
    if (tow_is_null(a)) return b;
    return tow_is_null(b) ? a : tow_add(a, b);
}

tow_value tow__or_zeros(tow_value dx, tow_value x) { return tow_is_null(dx) ? tow_zeros_like(x) : dx; }

tow_value tow__op_fail(tow_value x, const char *op, tow_status status, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (tow__is_current(x.trace, x)) /* else that is the error */
        tow_trace_fail(x.trace, status, "%s%s%s: %s", x.here ? x.here : "", x.here ? ": " : "", op, text);
    return tow__null();
}

bool tow__given(tow_value x, const char *op, bool given, const char *expected)
{
    if (!given) tow__op_fail(x, op, TOW_INVALID_ARGUMENT, "expected %s, found NULL; pass what is missing", expected);
    return given;
}

tow_value tow__op(const tow_primitive *p, const void *params, size_t n, const tow_value *x)
{
    return tow__any_null(n, x) ? tow__null_of(p->name, n, x) : tow__bind1(x[0].trace, p, params, n, x);
}

tow_value tow__op1(const tow_primitive *p, tow_value x) { return tow__op(p, NULL, 1, &x); }

bool tow__broadcast_type(size_t n, const tow_type *types, tow_type *result)
{
    int32_t rank = 0;
    for (size_t i = 0; i < n; i++)
        if (types[i].rank > rank) rank = types[i].rank;
    *result = (tow_type){.dtype = types[0].dtype, .rank = rank};
    for (int32_t d = 0; d < rank; d++) result->dims[d] = 1;
    for (size_t i = 0; i < n; i++)
        for (int32_t d = 0; d < types[i].rank; d++) {
            int64_t *have = &result->dims[d + rank - types[i].rank], size = types[i].dims[d];
            if (*have != size && *have != 1 && size != 1) return false;
            if (*have == 1) *have = size;
        }
    return true;
}

bool tow__normal_axis(tow_value x, const char *op, int axis, int rank, int64_t *result)
{
    if (axis < -rank || axis >= rank) {
        tow__op_fail(x, op, TOW_INVALID_ARGUMENT, "axis %d is outside [%d, %d) for an operand %s; give one of its axes",
                     axis, -rank, rank, tow__type_name(tow_value_type(x)).text);
        return false;
    }
    *result = axis < 0 ? axis + rank : axis;
    return true;
}

bool tow__normal_axes(tow_value x, const char *op, int n, const int *axes, tow__ints *result)
{
    int rank = tow_value_type(x).rank;
    bool named[TOW_MAX_RANK] = {false};
    *result = (tow__ints){0};
    if (!tow__given(x, op, n <= 0 || axes, "a list of axes")) return false;
    if (n < 0 || n > rank) {
        tow__op_fail(x, op, TOW_INVALID_ARGUMENT, "%d axes given for an operand of rank %d; give 0 (all axes) to %d", n,
                     rank, rank);
        return false;
    }
    for (int i = 0; i < n; i++) {
        int64_t axis = 0;
        if (!tow__normal_axis(x, op, axes[i], rank, &axis)) return false;
        if (named[axis]) {
            tow__op_fail(x, op, TOW_INVALID_ARGUMENT, "axis %d is given twice; name each axis once", axes[i]);
            return false;
        }
        named[axis] = true;
    }
    for (int d = 0; d < rank; d++)
        if (n == 0 || named[d]) result->v[result->n++] = d;
    return true;
}

tow__ints tow__ints_of(int n, const int64_t *v)
{
    tow__ints ints = {.n = n};
    for (int i = 0; i < n && i < TOW_MAX_RANK; i++) ints.v[i] = v[i];
    return ints;
}

tow_value tow__index_words(tow_value indices)
{
    if (tow_is_null(indices)) return indices;
    return tow_dtype_size(tow__dtype(indices)) == 1 ? tow_convert(indices, TOW_I32) : indices;
}

tow_value tow__unreduce(tow_value x, tow_type type, tow__ints axes)
{
    int kept[TOW_MAX_RANK] = {0}, n = 0, next = 0;
    for (int d = 0; d < type.rank; d++) {
        if (next < axes.n && axes.v[next] == d)
            next++;
        else
            kept[n++] = d;
    }
    return tow_broadcast_in_dim(x, type.rank, type.dims, kept);
}

tow_value tow__sum_axis(tow_value x, int64_t axis) { return tow_reduce_sum(x, 1, (int[]){(int)axis}); }

/* ---- type rules -------------------------------------------------------------------------------------------------- */

tow_status tow__type_fail(const tow__typing *ty, tow_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    status = tow__fail_v(ty->ctx, status, format, args);
    va_end(args);
    return status;
}

tow_status tow__require_dtype(const tow__typing *ty, size_t i, unsigned set)
{
    if (set & 1u << ty->in[i].dtype) return TOW_OK;
    char allowed[64] = "";
    size_t used = 0;
    for (int d = 1; d < TOW__DTYPE_LIMIT; d++)
        if (set & 1u << d)
            used += (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%s", used ? ", " : "",
                                     tow_dtype_name((tow_dtype)d));
    return tow__type_fail(ty, TOW_TYPE_MISMATCH,
                          "operand %zu must be of type %s, found %s; convert it with tow_convert", i, allowed,
                          tow__type_name(ty->in[i]).text);
}

tow_status tow__require_same(const tow__typing *ty, size_t first)
{
    for (size_t i = first + 1; i < ty->n_in; i++) {
        if (ty->in[i].dtype != ty->in[first].dtype)
            return tow__type_fail(ty, TOW_TYPE_MISMATCH,
                                  "operands must have one element type, found %s and %s; convert one "
                                  "with tow_convert",
                                  tow__type_name(ty->in[first]).text, tow__type_name(ty->in[i]).text);
        if (!tow_type_equal(ty->in[i], ty->in[first]))
            return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                                  "operands must have one shape, found %s and %s; reshape one, or "
                                  "give it axes of size 1 where it should repeat",
                                  tow__type_name(ty->in[first]).text, tow__type_name(ty->in[i]).text);
    }
    return TOW_OK;
}

tow_status tow__product_dtype(const tow__typing *ty, int64_t preferred, tow_dtype *dtype)
{
    tow_status status = tow__require_dtype(ty, 0, TOW__NUMBERS);
    if (status != TOW_OK) return status;
    const tow_dtype own = *dtype = ty->in[0].dtype, other = ty->in[1].dtype;
    /* numbers as they are stored beside f32: the sums are of f32 */
    if (preferred == 1 + (int64_t)TOW_F32 &&
        ((own == TOW_F32 && tow__is_half(other)) || (other == TOW_F32 && tow__is_half(own)))) {
        *dtype = TOW_F32;
        return TOW_OK;
    }
    if (other != own)
        return tow__type_fail(ty, TOW_TYPE_MISMATCH,
                              "operands must have one element type, found %s and %s; convert one with tow_convert",
                              tow__type_name(ty->in[0]).text, tow__type_name(ty->in[1]).text);
    if (preferred == 0) return TOW_OK;
    *dtype = (tow_dtype)(preferred - 1);
    const bool is_signed = tow__dtype_in(own, TOW__SIGNED);
    const unsigned kinds = TOW__FLOATS | (is_signed ? TOW__SIGNED : tow_dtype_is_float(own) ? 0 : TOW__UNSIGNED);
    if (preferred > 0 && preferred <= TOW_DTYPE_END && tow__dtype_in(*dtype, kinds) &&
        tow_dtype_size(*dtype) >= tow_dtype_size(own))
        return TOW_OK;
    return tow__type_fail(
        ty, TOW_TYPE_MISMATCH,
        "products of %s are summed in that type, in a float or an integer of the same sign that is as "
        "wide or wider, found preferred=%s",
        tow_dtype_name(own), tow_dtype_name(*dtype));
}

tow_status tow__require_rank(const tow__typing *ty, size_t i, int rank)
{
    if (ty->in[i].rank == rank) return TOW_OK;
    return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "operand %zu must have rank %d, found %s; reshape it", i, rank,
                          tow__type_name(ty->in[i]).text);
}

tow_status tow__require_count(const tow__typing *ty, size_t n_in, size_t n_out)
{
    if (ty->n_in != n_in)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "expected %zu operands, found %zu", n_in, ty->n_in);
    if (ty->n_out != n_out)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "expected %zu results, found %zu", n_out, ty->n_out);
    return TOW_OK;
}

tow_status tow__require_axis(const tow__typing *ty, int64_t axis)
{
    if (axis >= 0 && axis < ty->in[0].rank) return TOW_OK;
    return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                          "axis %lld is outside [0, %d) for an operand %s; give one of its axes", (long long)axis,
                          ty->in[0].rank, tow__type_name(ty->in[0]).text);
}

tow_status tow__require_axes(const tow__typing *ty, const tow__ints *axes)
{
    for (int i = 0; i < axes->n; i++) {
        tow_status status = tow__require_axis(ty, axes->v[i]);
        if (status != TOW_OK) return status;
        if (i > 0 && axes->v[i] <= axes->v[i - 1])
            return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "axes must increase, found %lld after %lld",
                                  (long long)axes->v[i], (long long)axes->v[i - 1]);
    }
    return TOW_OK;
}

tow_status tow__require_valid(const tow__typing *ty, tow_type type)
{
    if (tow__type_valid(type)) return TOW_OK;
    return tow__type_fail(ty, TOW_INVALID_ARGUMENT,
                          "the result would be %s, which is no array type: rank at most %d, no "
                          "negative dimension, size in bytes must fit",
                          tow__type_name(type).text, TOW_MAX_RANK);
}

static tow_status type_same(const tow__typing *ty, unsigned set)
{
    tow_status status = tow__require_same(ty, 0);
    if (status == TOW_OK) status = tow__require_dtype(ty, 0, set);
    ty->out[0] = ty->in[0];
    return status;
}

tow_status tow__type_same_float(const tow__typing *ty) { return type_same(ty, TOW__FLOATS); }
tow_status tow__type_same_number(const tow__typing *ty) { return type_same(ty, TOW__NUMBERS); }
tow_status tow__type_same_bits(const tow__typing *ty) { return type_same(ty, TOW__BITS); }
tow_status tow__type_same_integer(const tow__typing *ty) { return type_same(ty, TOW__INTEGERS); }
tow_status tow__type_same_any(const tow__typing *ty) { return type_same(ty, TOW__ANY); }

tow_status tow__type_compare(const tow__typing *ty)
{
    tow_status status = type_same(ty, TOW__ANY);
    ty->out[0].dtype = TOW_BOOL;
    return status;
}

tow_status tow__type_axis_float(const tow__typing *ty)
{
    const tow__axis_params *p = ty->params;
    tow_status status = tow__require_axis(ty, p->axis);
    return status == TOW_OK ? type_same(ty, TOW__FLOATS) : status;
}

tow_status tow__type_argmax(const tow__typing *ty)
{
    const tow__axis_params *p = ty->params;
    tow_status status = tow__require_dtype(ty, 0, TOW__NUMBERS);
    if (status == TOW_OK) status = tow__require_axis(ty, p->axis);
    if (status != TOW_OK) return status;
    if (ty->in[0].dims[p->axis] == 0 || ty->in[0].dims[p->axis] > INT32_MAX)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "axis %lld of %s must have 1 to 2^31 - 1 elements",
                              (long long)p->axis, tow__type_name(ty->in[0]).text);
    ty->out[0] = tow__without_axes(ty->in[0], &(tow__ints){.n = 1, .v = {p->axis}});
    ty->out[0].dtype = TOW_I32;
    return TOW_OK;
}

tow_type tow__without_axes(tow_type type, const tow__ints *axes)
{
    tow_type result = {.dtype = type.dtype};
    int next = 0;
    for (int d = 0; d < type.rank; d++) {
        if (next < axes->n && axes->v[next] == d)
            next++;
        else
            result.dims[result.rank++] = type.dims[d];
    }
    return result;
}

/* ---- differentiation --------------------------------------------------------------------------------------------- */

void tow__jvp_primal(tow__jvp *r)
{
    tow__bind(r->t, r->e->primitive, r->e->params, r->e->n_in, r->x, r->e->n_out, r->y);
}

bool tow__linear_in_one(const tow__equation *e, const bool *depends)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->n_in; i++) n += depends[e->in[i]];
    return n <= 1;
}

bool tow__linear_in_first(const tow__equation *e, const bool *depends)
{
    for (uint32_t i = 1; i < e->n_in; i++)
        if (depends[e->in[i]]) return false;
    return true;
}

bool tow__linear_behind(const tow__equation *e, const bool *depends, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (depends[e->in[i]]) return false;
    return true;
}

bool tow__uses_residual_outputs(const tow__jvp *r)
{
    for (uint32_t i = 1; i < r->e->n_out; i++)
        if (r->used[i]) return true;
    return false;
}

void tow__transpose_to_vjp(tow__transpose *r, const tow_primitive *vjp, void *params, int64_t *wrt, size_t residuals)
{
    tow_value in[TOW__PAIR_RESIDUALS + 1], out[TOW__PAIR_WRT];
    size_t next = residuals, places[TOW__PAIR_WRT], n = 0;
    int64_t wanted = 0;
    for (int bit = 0; bit < TOW__PAIR_WRT; bit++) {
        if (!(*wrt >> bit & 1)) continue;
        if (r->linear[next]) {
            wanted |= 1 << bit;
            places[n++] = next;
        }
        next++;
    }
    *wrt = wanted;
    for (size_t i = 0; i < residuals; i++) in[i] = r->x[i];
    in[residuals] = r->ct[0];
    if (tow__any_null(residuals + 1, in)) return;
    tow__bind(r->t, vjp, params, residuals + 1, in, n, out);
    for (size_t i = 0; i < n; i++) r->dx[places[i]] = out[i];
}

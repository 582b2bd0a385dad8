/* Sources: const, iota and empty, and the public functions that make constants. A constant is one scalar that is
 * broadcast wherever possible: constants cost nothing to keep and are made anew where they are read. */
#include <math.h>

#include "src/ops/rules.h"

static tow_status const_type(const tow__typing *ty)
{
    const tow__const_params *p = ty->params;
    if (!p->value) return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "a constant needs an array");
    ty->out[0] = tow_array_type(p->value);
    return TOW_OK;
}

static tow_status iota_type(const tow__typing *ty)
{
    const tow__iota_params *p = ty->params;
    ty->out[0] = tow_make_type(p->dtype, p->shape.n, p->shape.v);
    tow_status status = tow__require_valid(ty, ty->out[0]);
    if (status != TOW_OK) return status;
    if (p->dtype == TOW_BOOL) return tow__type_fail(ty, TOW_TYPE_MISMATCH, "it counts in numbers, found bool");
    if (p->axis < 0 || p->axis >= p->shape.n)
        return tow__type_fail(ty, TOW_INVALID_ARGUMENT, "axis %lld is outside [0, %d)", (long long)p->axis, p->shape.n);
    return TOW_OK;
}

TOW__PRIMITIVE(const, TOW__SOURCE, tow__no_tiling, tow__element_cost, .inputs = 0, .outputs = 1, .type = const_type,
               TOW__PARAMS(tow__const_params, TOW__PARAM(tow__const_params, value, TOW__P_ARRAY)));

TOW__PRIMITIVE(iota, TOW__SOURCE, tow__no_tiling, tow__element_cost, .inputs = 0, .outputs = 1, .type = iota_type,
               TOW__PARAMS(tow__iota_params, TOW__PARAM(tow__iota_params, dtype, TOW__P_DTYPE),
                           TOW__PARAM(tow__iota_params, shape, TOW__P_INTS),
                           TOW__PARAM(tow__iota_params, axis, TOW__P_INT)));

static tow_status empty_type(const tow__typing *ty)
{
    const tow__empty_params *p = ty->params;
    ty->out[0] = tow_make_type(p->dtype, p->shape.n, p->shape.v);
    return tow__require_valid(ty, ty->out[0]);
}

/* An array whose elements are never read before something is written over them. */
TOW__PRIMITIVE(empty, TOW__SOURCE, tow__no_tiling, tow__element_cost, .takes_blocks = true, .inputs = 0, .outputs = 1,
               .type = empty_type,
               TOW__PARAMS(tow__empty_params, TOW__PARAM(tow__empty_params, dtype, TOW__P_DTYPE),
                           TOW__PARAM(tow__empty_params, shape, TOW__P_INTS)));

tow_value tow_constant(tow_trace *trace, tow_array *value)
{
    if (!trace) return tow__null();
    return tow__bind1(trace, &tow__const_p, &(tow__const_params){value}, 0, NULL);
}

tow_value tow_constant_data(tow_trace *trace, tow_type type, const void *data)
{
    if (!tow__records(trace, NULL)) return tow__null();
    tow_context *ctx = tow_trace_context(trace);
    tow_array *array = NULL;
    tow_status status = tow_array_from_data(ctx, type, data, &array);
    if (status != TOW_OK) {
        tow_trace_fail(trace, status, "constant: %s", tow_context_error(ctx));
        return tow__null();
    }
    tow_value value = tow_constant(trace, array);
    tow_array_release(array);
    return value;
}

/* True if `value` is a number of `dtype`: a whole one in range for integers. Unsigned types take negative ones modulo
 * their range, as far as the signed type of that size goes. */
static bool representable(tow_dtype dtype, double value)
{
    if (dtype == TOW_BOOL || tow__dtype_holds(dtype, value)) return true;
    return tow__dtype_in(dtype, TOW__UNSIGNED) && value < 0 && value == floor(value) &&
           value >= -ldexp(1, 8 * (int)tow_dtype_size(dtype) - 1);
}

static tow_value scalar_at(tow_trace *trace, tow_dtype dtype, double value, const char *here)
{
    if (!representable(dtype, value)) {
        if (trace)
            tow_trace_fail(trace, TOW_INVALID_ARGUMENT,
                           "%s%sthe constant %g is not a number of type %s: give a whole number in its range, or "
                           "convert the other operand with tow_convert",
                           here ? here : "", here ? ": " : "", value, tow_dtype_name(dtype));
        return tow__null();
    }
    uint64_t data = 0;
    const int64_t whole = value < 0 && tow_dtype_is_integer(dtype) ? (int64_t)value : 0;
    if (whole < 0)
        tow__convert_elements(dtype, &data, TOW_I64, &whole, 1);
    else
        tow__store_element(dtype, &data, 0, value);
    return tow_constant_data(trace, tow_make_type(dtype, 0, NULL), &data);
}

tow_value tow_scalar(tow_trace *trace, tow_dtype dtype, double value) { return scalar_at(trace, dtype, value, NULL); }

static tow_value full_at(tow_trace *trace, tow_type type, double value, const char *here)
{
    tow_value scalar = scalar_at(trace, type.dtype, value, here);
    return type.rank == 0 ? scalar : tow_broadcast_in_dim(scalar, type.rank, type.dims, NULL);
}

tow_value tow_full(tow_trace *trace, tow_type type, double value) { return full_at(trace, type, value, NULL); }

tow_value tow_iota(tow_trace *trace, tow_type type, int axis)
{
    if (!trace) return tow__null();
    int64_t normal = axis < 0 ? axis + type.rank : axis;
    tow__iota_params p = {.dtype = type.dtype, .shape = tow__ints_of(type.rank, type.dims), .axis = normal};
    return tow__bind1(trace, &tow__iota_p, &p, 0, NULL);
}

tow_value tow_full_like(tow_value x, double value)
{
    return !tow__is_current(x.trace, x) ? tow__null() : full_at(x.trace, tow_value_type(x), value, x.here);
}

tow_value tow_zeros_like(tow_value x) { return tow_full_like(x, 0); }

tow_value tow_iota_like(tow_value x, int axis)
{
    int64_t normal = 0;
    tow_type type = tow_value_type(x);
    if (tow_is_null(x) || !tow__normal_axis(x, "iota", axis, type.rank, &normal)) return tow__null();
    type.dtype = TOW_I32;
    return tow_iota(x.trace, type, (int)normal);
}

/* Element types of layers: what they compute in and store parameters in, from their options, the defaults around them
 * and their inputs. See tow_dtype in tow/module.h, and dtypes.h. */
#include "src/scope/dtypes.h"

#include "src/base/dtypes.h"

tow_dtype tow_promote_types(tow_dtype a, tow_dtype b)
{
    if (a == b) return a;
    return a == TOW_F64 || b == TOW_F64 ? TOW_F64 : TOW_F32;
}

bool tow__read_dtype(tow_scope *scope, const char *layer, const char *option, tow_dtype given, tow_dtype *dtype)
{
    *dtype = given;
    if (tow_dtype_is_float(given)) return true;
    const char *name = tow_dtype_size(given) > 0 ? tow_dtype_name(given) : "no element type";
    tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                   "%s: .%s = %d (%s); expected TOW_F32, TOW_F64, TOW_BF16 or TOW_F16, or zero for the default", layer,
                   option, (int)given, name);
    *dtype = TOW_F32;
    return false;
}

bool tow__param_dtype(tow_scope *scope, const char *layer, tow_dtype param_dtype, tow_dtype *dtype)
{
    tow_dtype given = param_dtype ? param_dtype : scope->param_dtype;
    *dtype = TOW_F32;
    if (tow__is_blocks(param_dtype)) {
        tow_scope_fail(scope, TOW_UNSUPPORTED,
                       "%s: .param_dtype = %s: its parameters are floats; Dense, DenseGeneral, Embed and what is made "
                       "of them (attention, MLPs, transformer blocks) have weights in blocks",
                       layer, tow_dtype_name(param_dtype));
        return false;
    }
    return given == 0 || tow__is_blocks(given) || tow__read_dtype(scope, layer, "param_dtype", given, dtype);
}

bool tow__compute_dtype(tow_scope *scope, const char *layer, tow_dtype dtype, size_t n, const tow_value *values,
                        const tow_dtype *params, tow_dtype *compute)
{
    tow_dtype given = dtype ? dtype : scope->dtype;
    if (given) return tow__read_dtype(scope, layer, "dtype", given, compute);
    bool found = params != NULL;
    *compute = params ? *params : TOW_F32;
    for (size_t i = 0; i < n; i++) {
        tow_dtype type = tow_value_type(values[i]).dtype;
        if (tow_is_null(values[i]) || !tow_dtype_is_float(type)) continue;
        *compute = found ? tow_promote_types(*compute, type) : type;
        found = true;
    }
    return true;
}

bool tow__read_dtypes(tow_scope *scope, const char *layer, tow_dtype dtype, tow_dtype param_dtype, size_t n,
                      const tow_value *in, tow__dtypes *types)
{
    types->blocks = (tow_dtype)0;
    return tow__param_dtype(scope, layer, param_dtype, &types->params) &&
           tow__compute_dtype(scope, layer, dtype, n, in, &types->params, &types->compute);
}

bool tow__read_weight_dtypes(tow_scope *scope, const char *layer, tow_dtype dtype, tow_dtype param_dtype, size_t n,
                             const tow_value *in, tow__dtypes *types)
{
    const tow_dtype given = param_dtype ? param_dtype : scope->param_dtype;
    const bool in_blocks = tow__is_blocks(given);
    if (!tow__read_dtypes(scope, layer, dtype, in_blocks ? 0 : param_dtype, n, in, types)) return false;
    types->blocks = in_blocks ? given : (tow_dtype)0;
    return true;
}

tow_value tow__as(tow_value x, tow_dtype dtype)
{
    return tow_is_null(x) || tow_value_type(x).dtype == dtype ? x : tow_convert(x, dtype);
}

tow_scope *tow__scope_with_dtypes(tow_scope *scope, const char *layer, tow_dtype dtype, tow_dtype param_dtype)
{
    tow_dtype checked;
    if (!dtype && !param_dtype) return scope;
    if ((dtype && !tow__read_dtype(scope, layer, "dtype", dtype, &checked)) ||
        (param_dtype && !tow__is_blocks(param_dtype) &&
         !tow__read_dtype(scope, layer, "param_dtype", param_dtype, &checked)))
        return NULL;
    tow_scope *here = tow__trace_alloc(scope->model->trace, 1, sizeof *here);
    if (!here) return NULL;
    *here = *scope;
    if (dtype) here->dtype = dtype;
    if (param_dtype) here->param_dtype = param_dtype;
    return here;
}

void tow__promote_floats(size_t n, tow_value *values)
{
    tow_dtype dtype = TOW_F32;
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        tow_dtype type = tow_value_type(values[i]).dtype;
        if (tow_is_null(values[i]) || !tow_dtype_is_float(type)) continue;
        dtype = found ? tow_promote_types(dtype, type) : type;
        found = true;
    }
    for (size_t i = 0; i < n; i++)
        if (tow_dtype_is_float(tow_value_type(values[i]).dtype)) values[i] = tow__as(values[i], dtype);
}

tow_value tow__add_promoted(tow_value x, tow_value y)
{
    tow_value both[2] = {x, y};
    tow__promote_floats(2, both);
    return tow_add(both[0], both[1]);
}

tow_value tow__mul_promoted(tow_value x, tow_value y)
{
    tow_value both[2] = {x, y};
    tow__promote_floats(2, both);
    return tow_mul(both[0], both[1]);
}

/* ---- for layers of programs -------------------------------------------------------------------------------------- */

tow_dtype tow_scope_param_dtype(tow_scope *scope, tow_dtype param_dtype)
{
    tow_dtype dtype;
    tow__param_dtype(scope, "layer", param_dtype, &dtype);
    return dtype;
}

tow_dtype tow_promote(tow_scope *scope, tow_dtype dtype, size_t n, tow_value *values)
{
    tow_dtype compute;
    if (!values) n = 0;
    if (!tow__compute_dtype(scope, "layer", dtype, n, values, NULL, &compute) || tow__scope_failed(scope))
        return compute;
    for (size_t i = 0; i < n; i++)
        if (tow_dtype_is_float(tow_value_type(values[i]).dtype)) values[i] = tow__as(values[i], compute);
    return compute;
}

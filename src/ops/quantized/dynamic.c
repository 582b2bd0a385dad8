/* quantize_dynamic(x f32 [..., n]) -> codes u8 [..., n], sizes f32 [...]: each row divided by its largest magnitude,
 * its size, as the nearest numbers of a map of 8 bits (src/kernels/quantized/dynamic_map.h); of two that are as
 * near, the lower one. Rows with NaN or infinity have that as their size, and are NaN when they are read.
 * dequantize_dynamic(codes, sizes) -> f32 [..., n]: the numbers times the size. */
#include "src/kernels/quantized/dynamic_map.h"
#include "src/ops/rules.h"
#include "tow/numpy.h"

static bool nonnegative(const tow__equation *e) { return ((const tow__dynamic_params *)e->params)->nonnegative; }

static tow_type of_rows(tow_type x)
{
    const tow__ints last = {.n = 1, .v = {x.rank - 1}};
    tow_type row = tow__without_axes(x, &last);
    row.dtype = TOW_F32;
    return row;
}

static tow_status rows_type(const tow__typing *ty, tow_dtype dtype)
{
    tow_status status = tow__require_dtype(ty, 0, 1 << dtype);
    if (status == TOW_OK && ty->in[0].rank == 0)
        status = tow__type_fail(ty, TOW_SHAPE_MISMATCH, "expected rows along a last axis, found %s",
                                tow__type_name(ty->in[0]).text);
    return status;
}

static tow_status quantize_type(const tow__typing *ty)
{
    tow_status status = rows_type(ty, TOW_F32);
    if (status != TOW_OK) return status;
    ty->out[0] = ty->in[0];
    ty->out[0].dtype = TOW_U8;
    ty->out[1] = of_rows(ty->in[0]);
    return TOW_OK;
}

static tow_status dequantize_type(const tow__typing *ty)
{
    tow_status status = rows_type(ty, TOW_U8);
    if (status != TOW_OK) return status;
    if (!tow_type_equal(ty->in[1], of_rows(ty->in[0])))
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "sizes must be %s, one for each row of the codes %s, found %s",
                              tow__type_name(of_rows(ty->in[0])).text, tow__type_name(ty->in[0]).text,
                              tow__type_name(ty->in[1]).text);
    ty->out[0] = ty->in[0];
    ty->out[0].dtype = TOW_F32;
    return TOW_OK;
}

/* A number for each row, along it. */
static tow_value per_row(tow_value s, tow_type x)
{
    x.dtype = tow__dtype(s);
    return tow__unreduce(s, x, (tow__ints){.n = 1, .v = {x.rank - 1}});
}

static tow_value numbers(tow_trace *t, const float *values)
{
    return tow_constant_data(t, tow_make_type(TOW_F32, 1, (int64_t[]){TOW__CODES}), values);
}

/* The code is the number of middles between the numbers of the map that are below x: a binary search. */
static void quantize_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    const tow_type type = tow_value_type(x[0]);
    y[1] = tow_reduce_max(tow_abs(x[0]), 1, (int[]){-1});
    if (type.dims[type.rank - 1] == 0) y[1] = tow_zeros_like(y[1]);
    tow_value size = per_row(y[1], type), zero = tow_zeros_like(x[0]);
    tow_value share = tow_where(tow_eq(size, zero), zero, tow_div(x[0], size));
    tow_value between = numbers(t, tow__dynamic_map_get(nonnegative(e))->between), code = tow_convert(zero, TOW_I32);
    for (int step = TOW__CODES / 2; step > 0; step /= 2) {
        tow_value next = tow_add_scalar(code, step), middle = tow_take(between, tow_add_scalar(next, -1), 0);
        code = tow_where(tow_gt(share, middle), next, code);
    }
    /* A share may be too small for an f32. */
    tow_value is_lost = tow_and(tow_eq(code, tow_zeros_like(code)), tow_gt(x[0], zero));
    if (nonnegative(e)) code = tow_where(is_lost, tow_add_scalar(code, 1), code);
    y[0] = tow_convert(code, TOW_U8);
}

static void dequantize_decompose(tow_trace *t, const tow__equation *e, const tow_value *x, tow_value *y)
{
    tow_value values = numbers(t, tow__dynamic_map_get(nonnegative(e))->values);
    tow_value units = tow_take(values, tow_convert(x[0], TOW_I32), 0);
    y[0] = tow_mul(units, per_row(x[1], tow_value_type(x[0])));
}

static void batch_rows(tow__batch *r) { tow__batch_rows(r, (const bool[2]){false}); }

#define DYNAMIC_PARAMS TOW__PARAMS(tow__dynamic_params, TOW__PARAM(tow__dynamic_params, nonnegative, TOW__P_BOOL))

TOW__PRIMITIVE(dequantize_dynamic, TOW__COMPOSITE, tow__tile_rows, tow__element_cost, .operands = "codes, sizes",
               .inputs = 2, .outputs = 1, .type = dequantize_type, .batch = batch_rows,
               .decompose = dequantize_decompose, DYNAMIC_PARAMS);
TOW__PRIMITIVE(quantize_dynamic, TOW__COMPOSITE, tow__tile_rows, tow__element_cost, .reduces_axis = true,
               .operands = "x", .inputs = 1, .outputs = 2, .type = quantize_type, .batch = batch_rows,
               .decompose = quantize_decompose, .output_names = (const char *const[]){"codes", "sizes", NULL},
               DYNAMIC_PARAMS);

void tow_quantize_dynamic(tow_value x, bool nonnegative_only, tow_value *codes, tow_value *sizes)
{
    const tow__dynamic_params p = {.nonnegative = nonnegative_only};
    tow_value out[2] = {{0}};
    if (!tow_is_null(x)) tow__bind(x.trace, &tow__quantize_dynamic_p, &p, 1, &x, 2, out);
    *codes = out[0];
    *sizes = out[1];
}

tow_value tow_dequantize_dynamic(tow_value codes, tow_value sizes, bool nonnegative_only)
{
    const tow__dynamic_params p = {.nonnegative = nonnegative_only};
    tow_value in[2] = {codes, sizes}, out = {0};
    if (!tow__any_null(2, in)) tow__bind(codes.trace, &tow__dequantize_dynamic_p, &p, 2, in, 1, &out);
    return out;
}

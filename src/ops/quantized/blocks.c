/* Blocks of few bits (TOW_BLOCK_DTYPE_LIST in tow/base.h):
 *
 *   quantize(x f32 [..., n K]) -> blocks [..., K], n being the numbers in a block
 *   dequantize(blocks [..., K]) -> f32 [..., n K]
 *   quantized_dot(x f32 [..., K], weight blocks [N, K / n]) -> f32 [..., N]
 *
 * src/kernels/quantized/quantized_dot.h says which numbers quantized_dot gives. Its derivative with respect to x is
 * that of the product with the numbers of the weight, as if x were not rounded. */
#include "src/base/blocks.h"
#include "src/ops/rules.h"

/* ---- types ------------------------------------------------------------------------------------------------------- */

static tow_status require_rows(const tow__typing *ty)
{
    if (ty->in[0].rank > 0) return TOW_OK;
    return tow__type_fail(ty, TOW_SHAPE_MISMATCH, "expected numbers or blocks along a last axis, found %s",
                          tow__type_name(ty->in[0]).text);
}

static tow_status quantize_type(const tow__typing *ty)
{
    const tow__dtype_params *p = ty->params;
    tow_status status = tow__require_dtype(ty, 0, 1u << TOW_F32);
    if (status == TOW_OK) status = require_rows(ty);
    if (status != TOW_OK) return status;
    if (!tow__is_blocks(p->dtype))
        return tow__type_fail(ty, TOW_TYPE_MISMATCH,
                              "expected q8_0, q4_0, q4_k or q6_k as the type of blocks, found %s",
                              tow_dtype_name(p->dtype));
    tow_type type = ty->in[0];
    int64_t *last = &type.dims[type.rank - 1];
    const int numbers = tow_dtype_numbers(p->dtype);
    if (*last % numbers != 0)
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "%s has blocks of %d numbers: expected a last axis that is a multiple of it, found %s",
                              tow_dtype_name(p->dtype), numbers, tow__type_name(ty->in[0]).text);
    *last /= numbers;
    type.dtype = p->dtype;
    ty->out[0] = type;
    return TOW_OK;
}

static tow_status dequantize_type(const tow__typing *ty)
{
    tow_status status = tow__require_dtype(ty, 0, TOW__BLOCKS);
    if (status == TOW_OK) status = require_rows(ty);
    if (status != TOW_OK) return status;
    tow_type type = ty->in[0];
    int64_t *last = &type.dims[type.rank - 1];
    type.dtype = TOW_F32;
    if (__builtin_mul_overflow(*last, (int64_t)tow_dtype_numbers(ty->in[0].dtype), last)) *last = -1;
    ty->out[0] = type;
    return tow__require_valid(ty, type);
}

static tow_status dot_type(const tow__typing *ty)
{
    tow_status status = tow__require_dtype(ty, 0, 1u << TOW_F32);
    if (status == TOW_OK) status = tow__require_dtype(ty, 1, TOW__BLOCKS);
    if (status == TOW_OK) status = tow__require_rank(ty, 1, 2);
    if (status == TOW_OK) status = require_rows(ty);
    if (status != TOW_OK) return status;
    tow_type type = ty->in[0];
    const tow_type w = ty->in[1];
    const int numbers = tow_dtype_numbers(w.dtype);
    int64_t *last = &type.dims[type.rank - 1];
    if (*last % numbers != 0 || *last / numbers != w.dims[1])
        return tow__type_fail(ty, TOW_SHAPE_MISMATCH,
                              "expected x [..., %d k] and a weight [n, k] in blocks of %d numbers, found %s and %s",
                              numbers, numbers, tow__type_name(ty->in[0]).text, tow__type_name(w).text);
    *last = w.dims[0];
    ty->out[0] = type;
    return tow__require_valid(ty, type);
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static void batch_rows(tow__batch *r) { tow__batch_rows(r, (const bool[1]){false}); }

static void dot_jvp(tow__jvp *r)
{
    tow__jvp_primal(r);
    if (tow_is_null(r->dx[0])) return;
    const int last = tow_value_type(r->dx[0]).rank - 1;
    r->dy[0] = tow_dot_general(r->dx[0], tow_dequantize(r->x[1], TOW_F32),
                               (tow_dot_dims){.n_contract = 1, .lhs_contract = {last}, .rhs_contract = {1}});
}

static void dot_batch(tow__batch *r)
{
    if (!tow__batch_rows(r, (const bool[2]){false, true})) r->looped(r);
}

/* Plans cut no tiles: each would decode the weight again. */
static tow__op_cost dot_cost(const tow__operation *o)
{
    return tow__exact_cost(2 * (double)(tow_dtype_numbers(tow__in_type(o, 1)->dtype) * tow__in_type(o, 1)->dims[1]) *
                           tow__elements(&o->out[0]));
}

TOW__PRIMITIVE(dequantize, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .takes_blocks = true, .arithmetic = true,
               .operands = "blocks", .inputs = 1, .outputs = 1, .type = dequantize_type, .batch = batch_rows);
TOW__PRIMITIVE(quantize, TOW__COMPOSITE, tow__no_tiling, tow__element_cost, .takes_blocks = true, .operands = "x",
               .inputs = 1, .outputs = 1, .type = quantize_type, .batch = batch_rows,
               TOW__PARAMS(tow__dtype_params, TOW__PARAM(tow__dtype_params, dtype, TOW__P_DTYPE)));
TOW__PRIMITIVE(quantized_dot, TOW__COMPOSITE, tow__no_tiling, dot_cost, .takes_blocks = true, .operands = "x, weight",
               .inputs = 2, .outputs = 1, .product = TOW__PLAIN_PRODUCT, .type = dot_type, .jvp = dot_jvp,
               .batch = dot_batch);

/* ---- public ------------------------------------------------------------------------------------------------------ */

tow_value tow_quantize(tow_value x, tow_dtype dtype)
{
    const tow__dtype_params p = {.dtype = dtype};
    if (!tow_is_null(x) && tow_dtype_is_float(tow__dtype(x))) x = tow_convert(x, TOW_F32);
    return tow__op(&tow__quantize_p, &p, 1, &x);
}

tow_value tow_dequantize(tow_value blocks, tow_dtype dtype)
{
    return tow_convert(tow__op1(&tow__dequantize_p, blocks), dtype);
}

tow_value tow_quantized_dot(tow_value x, tow_value weight)
{
    const tow_dtype dtype = tow_is_null(x) ? TOW_F32 : tow__dtype(x);
    const bool is_float = tow_dtype_is_float(dtype);
    tow_value y =
        tow__op(&tow__quantized_dot_p, NULL, 2, (tow_value[]){is_float ? tow_convert(x, TOW_F32) : x, weight});
    return is_float ? tow_convert(y, dtype) : y;
}

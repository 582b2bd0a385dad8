/* A quotient by a power of two, as many means are, is the product with its inverse, to the bit and several times as
 * fast:
 *
 *   div x 2^n   =>   mul x 2^-n        where 2^-n is a normal number of the type */
#include <math.h>

#include "src/plan/lower/lower.h"
#include "src/plan/rules/rewrite.h"

static bool is_quotient(const tow_primitive *op) { return op == &tow__div_p; }

/* The element that a constant operand repeats, in `value`; false: it is no constant, or has several. */
static bool repeated_constant(const tow__rewrite *r, const tow__view *x, double *value)
{
    const tow__storage *s = &r->p->storages[x->storage];
    if (s->kind != TOW__S_CONSTANT || (x->type.dtype != TOW_F32 && x->type.dtype != TOW_F64)) return false;
    for (int i = 0; i < x->type.rank; i++)
        if (x->type.dims[i] != 1 && x->strides[i] != 0) return false;
    *value = x->type.dtype == TOW_F32 ? ((const float *)s->data)[x->offset] : ((const double *)s->data)[x->offset];
    return true;
}

/* The inverse must be there in this type, and where subnormal numbers are flushed, too. */
static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const tow__instruction *inst = &r->insts[at];
    const tow_dtype dtype = inst->out[0].type.dtype;
    double *value = match;
    int exponent;
    if (!tow__kernel_of(&tow__mul_p, dtype) || !repeated_constant(r, &inst->in[1], value)) return false;
    if (fabs(frexp(*value, &exponent)) != 0.5) return false;
    return dtype == TOW_F32 ? isnormal((float)(1 / *value)) : isnormal(1 / *value);
}

static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    const double value = *(const double *)match;
    tow__instruction *inst = tow__copy_instruction(r, at);
    if (!inst) return TOW_OUT_OF_MEMORY;
    const tow_dtype dtype = inst->out[0].type.dtype;
    void *data = tow__add_constant(&r->l, tow_dtype_size(dtype), &inst->in[1].storage);
    if (!data) return TOW_OUT_OF_MEMORY;
    if (dtype == TOW_F32)
        *(float *)data = (float)(1 / value);
    else
        *(double *)data = 1 / value;
    inst->in[1].offset = 0;
    inst->op = &tow__mul_p;
    inst->kernel = tow__kernel_of(&tow__mul_p, dtype);
    return tow__add_scratch(&r->l, inst);
}

const tow__rule tow__rule_divide_to_multiply = {
    .is_root = is_quotient, .match_bytes = sizeof(double), .matches = matches, .replace = replace};

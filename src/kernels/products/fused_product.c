/* Products and convolutions with a row program as epilogue (fused.h): bias, activation, residual. The product is
 * computed in one of the results of the instruction, whose elements the program then overwrites strip by strip: the
 * product's kernel calls it on strips that are complete, or it runs when all of the product is. */
#include <string.h>

#include "src/kernels/elementwise/fused.h"
#include "src/kernels/products/gemm.h"
#include "src/kernels/tables.h"

enum {
    PRODUCT_STATE = 4096 /* bytes for the state of the product's kernel */
};

typedef struct fused_product_state {
    tow__fused_layout layout;
    bool prepared; /* `product` holds the state of the product's kernel */
    _Alignas(16) char product[PRODUCT_STATE];
} fused_product_state;

/* Operands of the product: two, or three if one is packed. The program has the product itself and those behind them. */
static size_t product_operands(const tow__kernel_call *call)
{
    return call->n_in + 1 - call->extras.epilogue->program->n_in;
}

static tow__kernel_call product_call(const tow__kernel_call *call)
{
    tow__kernel_call product = *call;
    product.n_in = product_operands(call);
    product.n_out = 1;
    product.out = &call->out[call->extras.epilogue->accumulator];
    product.extras = (tow__extras){NULL};
    product.state = NULL;
    return product;
}

static void point_at(const tow__kernel_call *call, const tow__buffer **in, const tow__buffer **out)
{
    const tow__row_epilogue *p = call->extras.epilogue;
    const tow__buffer *rest = call->in + product_operands(call);
    in[0] = &call->out[p->accumulator];
    for (uint32_t i = 1; i < p->program->n_in; i++) in[i] = &rest[i - 1];
    for (uint32_t i = 0; i < p->program->n_out; i++) out[i] = &call->out[i];
}

static void prepare_fused_product(const tow__kernel_call *call, void *at)
{
    const tow__row_epilogue *p = call->extras.epilogue;
    const tow__buffer *in[TOW__FUSED_IN], *out[TOW__FUSED_OUT];
    fused_product_state *state = at;
    tow__kernel_call product = product_call(call);
    point_at(call, in, out);
    tow__fused_prepare(p->program, in, out, &state->layout);
    state->prepared = p->product->prepare && p->product->state_bytes <= PRODUCT_STATE;
    if (state->prepared) p->product->prepare(&product, state->product);
}

static void tune_fused_product(const tow__kernel_call *call, void *at)
{
    const tow__row_epilogue *p = call->extras.epilogue;
    fused_product_state *state = at;
    const tow__epilogue epilogue = {0};
    tow__kernel_call product = product_call(call);
    product.epilogue = &epilogue; /* there will be one */
    if (state->prepared && p->product->tune) p->product->tune(&product, state->product);
}

static void run_epilogue_on_strip(void *user, int64_t first, int64_t times, int64_t step, int64_t n)
{
    tow__fused_run(user, first, times, step, n);
}

/* The epilogue operands: arrays laid out like the product, which the program reads as operand 0. */
static void find_epilogue_operands(const tow__fused_job *job, uint32_t accumulator, const void **operands)
{
    const tow__fused *program = job->program;
    int n = 0;
    for (uint32_t i = 1; i < program->n_in && n < TOW__EPILOGUE_OPERANDS; i++)
        if (job->layout->whole[i] && program->sizes[i] == program->sizes[0] && job->in[i] != job->in[0])
            operands[n++] = job->in[i];
    for (uint32_t k = 0; k < program->n_out && n < TOW__EPILOGUE_OPERANDS; k++)
        if (k != accumulator && program->sizes[program->n_in + k] == program->sizes[0]) operands[n++] = job->out[k];
}

static void run_fused_product(const tow__kernel_call *call)
{
    const tow__row_epilogue *p = call->extras.epilogue;
    const tow__buffer *in[TOW__FUSED_IN], *out[TOW__FUSED_OUT];
    const fused_product_state *state = call->state;
    tow__fused_layout own;
    tow__fused_job job;
    point_at(call, in, out);
    if (!state) tow__fused_prepare(p->program, in, out, &own);
    tow__fused_begin(&job, p->program, state ? &state->layout : &own, in, out);
    tow__epilogue epilogue = {run_epilogue_on_strip, &job, {NULL}};
    find_epilogue_operands(&job, p->accumulator, epilogue.operands);
    tow__kernel_call product = product_call(call);
    product.epilogue = &epilogue;
    if (state && state->prepared) product.state = state->product;
    p->product->run(&product);
    if (!p->product->runs_epilogue) tow__epilogue_on_all(call->team, &epilogue, job.layout->count);
}

static size_t scratch_fused_product(const tow__kernel_call *call)
{
    tow__kernel_call product = product_call(call);
    const tow__kernel *kernel = call->extras.epilogue->product;
    return kernel->scratch ? kernel->scratch(&product) : 0;
}

static const char *engine_of_product(const tow__kernel_call *call)
{
    const tow__epilogue epilogue = {0};
    tow__kernel_call product = product_call(call);
    product.epilogue = &epilogue;
    const tow__kernel *kernel = call->extras.epilogue->product;
    return kernel->engine_of ? kernel->engine_of(&product) : kernel->engine;
}

static size_t reason_of_product(const tow__kernel_call *call, char *text, size_t size)
{
    const tow__epilogue epilogue = {0};
    tow__kernel_call product = product_call(call);
    product.epilogue = &epilogue;
    const tow__kernel *kernel = call->extras.epilogue->product;
    if (kernel->reason != NULL) return kernel->reason(&product, text, size);
    if (size > 0) text[0] = '\0';
    return 0;
}

#define WITH_EPILOGUE(name, fetches)                                                                                   \
    {                                                                                                                  \
        .primitive = name, .variant = TOW__WITH_EPILOGUE, .dtypes = TOW__ALL_DTYPES, .prefetches = fetches,            \
        .run = run_fused_product, .scratch = scratch_fused_product, .engine_of = engine_of_product,                    \
        .reason = reason_of_product, .state_bytes = sizeof(fused_product_state), .prepare = prepare_fused_product,     \
        .tune = tune_fused_product                                                                                     \
    }
static const tow__kernel kernels[] = {WITH_EPILOGUE("dot_general", true), WITH_EPILOGUE("conv_general_dilated", false),
                                      WITH_EPILOGUE("ragged_dot", false), WITH_EPILOGUE("ragged_dot_contract", false)};
const tow__kernel_table tow__kernels_fused_product = {kernels, sizeof kernels / sizeof kernels[0]};

/* The engine that runs an instruction of a plan, and the reason: the answers of kernels with several engines about a
 * call. */
#include "src/base/arithmetic.h"
#include "src/kernels/elementwise/fused.h"
#include "src/kernels/products/gemm.h"
#include "src/plan/analysis/view.h"
#include "src/plan/report/report.h"

enum {
    OPERANDS = 3
};

/* A call of an instruction, without addresses: as much of it as kernels with several engines look at. */
typedef struct call_shape {
    tow__buffer in[OPERANDS], out[TOW__FUSED_OUT + 1];
    tow__kernel_call call;
} call_shape;

static const tow__kernel_call *shape_call(const tow__body *body, const tow__instruction *inst, call_shape *x)
{
    tow__kernel_call *call = &x->call;
    *call = (tow__kernel_call){.n_in = inst->n_in,
                               .in = x->in,
                               .out = x->out,
                               .params = inst->params,
                               .extras = inst->extras,
                               .team = body->team};
    for (; call->n_out <= TOW__FUSED_OUT && call->n_out < inst->n_out; call->n_out++)
        x->out[call->n_out] = tow__view_buffer(&inst->out[call->n_out]);
    for (uint32_t i = 0; i < OPERANDS && i < inst->n_in; i++) x->in[i] = tow__view_buffer(&inst->in[i]);
    return call;
}

const char *tow__engine_of(const tow__body *body, const tow__instruction *inst)
{
    call_shape x;
    if (!inst->kernel->engine_of) return inst->kernel->engine;
    return inst->kernel->engine_of(shape_call(body, inst, &x));
}

bool tow__reason_of(const tow__body *body, const tow__instruction *inst, char text[TOW__REASON])
{
    call_shape x;
    text[0] = '\0';
    if (inst->loop || !inst->kernel->reason) return false;
    inst->kernel->reason(shape_call(body, inst, &x), text, TOW__REASON);
    return text[0] != '\0';
}

size_t tow__units_of_products(const tow_context *ctx, char *text, size_t size)
{
    return tow__gemm_describe_units(ctx->products, text, size);
}

/* The instruction that is number *index of those with a reason in a body and in the loops within; NULL: *index is that
 * among those behind it. */
static const tow__instruction *find(const tow__body *body, bool backward, size_t *index, tow_program_engine *engine)
{
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        if (inst->loop) {
            const tow__instruction *found = find(inst->loop->body, backward || inst->backward, index, engine);
            if (found) return found;
        } else if (tow__reason_of(body, inst, engine->reason) && (*index)-- == 0) {
            engine->backward = backward || inst->backward;
            engine->engine = tow__engine_of(body, inst);
            return inst;
        }
    }
    return NULL;
}

bool tow_program_get_engine(const tow_program *p, size_t index, tow_program_engine *engine)
{
    TOW__ARITHMETIC(false);
    *engine = (tow_program_engine){.backward = false};
    const tow__instruction *inst = p != NULL ? find(p->top, false, &index, engine) : NULL;
    if (inst == NULL) return false;
    engine->instruction = inst->op->name;
    engine->result = inst->out[0].type;
    return true;
}

/* The number of times that a run does an operation: tow_program_operation_count. */
#include "src/kernels/elementwise/joined.h"
#include "src/plan/fuse/fuse.h"
#include "src/plan/ir.h"

/* Is it the one that is counted? NULL: all are. Names of operations are the same strings everywhere. */
static bool counts(const tow_primitive *wanted, const char *name) { return !wanted || wanted->name == name; }

static bool counts_function(const tow_primitive *wanted, tow__function function)
{
    return !wanted || wanted == tow__operation_find(tow__function_name(function));
}

/* Parts of a row program. */
static uint64_t count_ops(const tow__fused *program, const tow_primitive *wanted)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        tow__function functions[TOW__JOINED_FUNCTIONS];
        uint32_t n = tow__op_functions(&program->ops[i], functions);
        for (uint32_t j = 0; j < n; j++) count += counts_function(wanted, functions[j]);
    }
    return count;
}

static uint64_t count_reductions(const tow__instruction *inst, const tow_primitive *wanted)
{
    uint64_t count = 0;
    const tow__row_reductions *p = inst->extras.reductions;
    for (uint32_t r = 0; p && r < p->n_reductions; r++) count += counts(wanted, p->reductions[r].name);
    return count;
}

static uint64_t count_insts(const tow__body *body, const tow_primitive *wanted)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        const tow__loop *loop = inst->loop;
        bool region = loop && inst->op == &tow__tile_group_p; /* its blocks together make each instruction once */
        if (region && loop->continues) continue;
        const tow__fused *program = tow__row_program_of(inst);
        if (program) count += count_ops(program, wanted);
        count += count_reductions(inst, wanted);
        if (inst->extras.accumulation && !inst->extras.accumulation->in_order) count += counts(wanted, tow__add_p.name);
        if (!TOW__COMPUTES(inst, fused)) count += !region && counts(wanted, inst->op->name);
        if (loop) count += (region || loop->stops ? 1 : (uint64_t)loop->length) * count_insts(loop->body, wanted);
    }
    return count;
}

uint64_t tow_program_operation_count(const tow_program *p, const char *name)
{
    const tow_primitive *wanted = name ? tow__operation_find(name) : NULL;
    return name && !wanted ? 0 : count_insts(p->top, wanted);
}

/* Operations and floating-point operations: those of one run by the plan, and those that runs have done, which calls
 * count as they are made. The two are equal but for bodies that data run. */
#include <math.h>

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

/* A run of instructions that goes through blocks of rows. */
static bool is_group(const tow__instruction *inst) { return inst->loop && inst->op == &tow__tile_group_p; }

static uint64_t count_reductions(const tow__instruction *inst, const tow_primitive *wanted)
{
    uint64_t count = 0;
    const tow__row_reductions *p = inst->extras.reductions;
    for (uint32_t r = 0; p && r < p->n_reductions; r++) count += counts(wanted, p->reductions[r].name);
    return count;
}

/* The operations that one execution of the instruction does, itself and beside it, but not those of its body. */
static uint64_t count_inst(const tow__instruction *inst, const tow_primitive *wanted)
{
    const tow__fused *program = tow__row_program_of(inst);
    const tow__addition *sum = inst->extras.accumulation;
    uint64_t count = (program ? count_ops(program, wanted) : 0) + count_reductions(inst, wanted);
    if (sum && !sum->in_order) count += counts(wanted, tow__add_p.name);
    if (!TOW__COMPUTES(inst, fused) && !is_group(inst)) count += counts(wanted, inst->op->name);
    return count;
}

static uint64_t count_insts(const tow__body *body, const tow_primitive *wanted)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        const tow__loop *loop = inst->loop;
        const bool group = is_group(inst); /* its blocks together make each instruction once */
        if (group && loop->continues) continue;
        count += count_inst(inst, wanted);
        if (loop) count += (group || loop->stops ? 1 : (uint64_t)loop->length) * count_insts(loop->body, wanted);
    }
    return count;
}

/* ---- floating-point operations ----------------------------------------------------------------------------------- */

static double elements_of(const tow__instruction *inst)
{
    const tow__row_reductions *r = inst->extras.reductions;
    if (r) return (double)r->outer * (double)r->elements * (double)r->columns;
    return inst->n_out ? (double)tow_type_element_count(inst->out[0].type) : 0;
}

/* Those of the instruction's own operation. */
static double own_flops(const tow__instruction *inst)
{
    const tow__operation o = tow__operation_of(inst);
    const tow__op_cost cost = inst->op->cost(&o);
    return cost.exact == TOW__COST_OF_PARTS ? cost.estimate : cost.exact;
}

/* Those of one execution of the instruction, on the rows that it has. */
static double flops_of(const tow__instruction *inst, const tow_primitive *wanted)
{
    const tow__fused *program = tow__row_program_of(inst);
    const tow__addition *sum = inst->extras.accumulation;
    const uint64_t functions = (program ? count_ops(program, wanted) : 0) + count_reductions(inst, wanted);
    double flops = (double)functions * elements_of(inst);
    if (inst->loop) return 0;
    if (sum && !sum->in_order && counts(wanted, tow__add_p.name)) flops += elements_of(inst);
    if (!TOW__COMPUTES(inst, fused) && counts(wanted, inst->op->name)) flops += own_flops(inst);
    return flops;
}

/* The number of times that the body of a loop runs for one run of the loop, blocks of rows counted apart. */
static double repetitions(const tow__loop *loop)
{
    if (loop->stops) return 1;
    return (double)loop->length * (loop->schedule == TOW__PARALLEL_ROWS ? (double)loop->blocks : 1);
}

static double sum_flops(const tow__body *body, const tow_primitive *wanted)
{
    double flops = 0;
    for (uint32_t i = 0; i < body->n_insts; i++) {
        const tow__instruction *inst = &body->insts[i];
        flops += flops_of(inst, wanted);
        if (inst->loop) flops += repetitions(inst->loop) * sum_flops(inst->loop->body, wanted);
    }
    return flops;
}

/* ---- what runs do ------------------------------------------------------------------------------------------------ */

/* The operations, and the flops, of the calls that runs have made. */
typedef struct tally {
    const tow_primitive *wanted;
    double operations, flops;
} tally;

/* parts: calls that together make one operation, each on a block of rows; 0: another loop has made it, and these are
 * the rest of its rows. */
static void tally_code(tally *t, const tow__code *code, double parts)
{
    for (uint32_t i = 0; i < code->n; i++) {
        const tow__call *call = &code->calls[i];
        const tow__instruction *inst = call->origin;
        const tow__executable_loop *loop = call->loop;
        double inner = parts;
        t->flops += (double)call->runs * flops_of(inst, t->wanted);
        if (parts > 0) t->operations += (double)call->runs * (double)count_inst(inst, t->wanted) / parts;
        if (!loop) continue;
        if (is_group(inst)) inner *= inst->loop->continues ? 0 : (double)loop->length;
        if (loop->schedule == TOW__PARALLEL_ROWS) inner *= (double)loop->blocks;
        for (uint32_t j = 0; j < loop->n_codes; j++) tally_code(t, &loop->codes[j], inner);
        tally_code(t, &loop->together, inner);
    }
}

static void clear_code(const tow__code *code)
{
    for (uint32_t i = 0; i < code->n; i++) {
        const tow__executable_loop *loop = code->calls[i].loop;
        code->calls[i].runs = 0;
        for (uint32_t j = 0; loop && j < loop->n_codes; j++) clear_code(&loop->codes[j]);
        if (loop) clear_code(&loop->together);
    }
}

/* ---- the functions ----------------------------------------------------------------------------------------------- */

/* *wanted: NULL for all. False: there is no operation of the name. */
static bool find_wanted(const char *name, const tow_primitive **wanted)
{
    *wanted = name ? tow__operation_find(name) : NULL;
    return !name || *wanted;
}

uint64_t tow_program_operation_count(const tow_program *p, const char *name)
{
    const tow_primitive *wanted;
    return find_wanted(name, &wanted) ? count_insts(p->top, wanted) : 0;
}

double tow_program_flops(const tow_program *p, const char *name)
{
    const tow_primitive *wanted;
    return find_wanted(name, &wanted) ? sum_flops(p->top, wanted) : 0;
}

tow_status tow_program_count(tow_program *p, bool on)
{
    if (!p) return tow__missing(NULL, __func__, "a program");
    clear_code(&p->executable.code);
    p->executable.counting = on;
    return TOW_OK;
}

uint64_t tow_program_counted(const tow_program *p, const char *name)
{
    tally t = {0};
    if (find_wanted(name, &t.wanted)) tally_code(&t, &p->executable.code, 1);
    return (uint64_t)llround(t.operations);
}

double tow_program_counted_flops(const tow_program *p, const char *name)
{
    tally t = {0};
    if (find_wanted(name, &t.wanted)) tally_code(&t, &p->executable.code, 1);
    return t.flops;
}

/* Memory: aliasing, buffer assignment, address binding. */
#ifndef TOW_SRC_PLAN_MEMORY_H
#define TOW_SRC_PLAN_MEMORY_H

#include "src/plan/ir.h"

/* Computes the values that are written over donated inputs as soon as all others have read these. */
tow_status tow__hasten_updates(tow__function_state *s);
/* Lifetimes of the storages of a function; then results take over operands that die. */
tow_status tow__alias_results(tow__function_state *s);
/* Lets sums over processes that a loop stacks travel during the next iteration. After aliasing, before offsets. */
void tow__defer_waits(tow_program *p, tow__body *body);
/* The instruction that reads a carry last as it enters, or TOW__NONE. No instruction writes that storage and none
 * shares it, so this is the last access of all. */
uint32_t tow__last_read(const tow_program *p, uint32_t carry_in);
/* Chooses the storage of each carry, once the aliasing of the body is settled. */
tow_status tow__choose_carry_storage(tow_program *p, tow__loop *loop);
/* The inputs that the options donate, by output. Once it is known which outputs are written while the input is still
 * read, those get memory in the arena and a copy at the end. */
tow_status tow__set_donors(tow_program *p, const tow_compile_options *options);
tow_status tow__choose_donations(tow__function_state *s);
/* The first instruction of the program that overwrites a donated input, or their number. */
uint32_t tow__first_lasting(const tow_program *p);
/* True if memory `out` is written while what lies in memory `in` is still read, and not by an instruction that may
 * overwrite what it reads: then the two cannot be one. */
bool tow__written_while_read(const tow_program *p, const tow__body *body, uint32_t in, uint32_t out);
/* True if a loop's carry needs two buffers: its new value (storage `out`) is written while the old one (`in`) is still
 * read, and not by an instruction that may overwrite what it reads. */
bool tow__carry_alternates(const tow_program *p, const tow__body *body, uint32_t in, uint32_t out);
/* True if output k of the instruction may have the memory of operand j. */
bool tow__may_overwrite(const tow_program *p, const tow__instruction *inst, uint32_t k, uint32_t j);

typedef struct tow__interval {
    uint32_t first, last; /* instructions, both included */
    size_t bytes;         /* multiple of the alignment */
    size_t need;          /* what counts for the lower bound */
    size_t offset;        /* result */
} tow__interval;

/* Gives every interval an offset such that no two that meet in time meet in memory. *total: bytes needed;
 * *bound: most bytes of `need` at one instruction. */
tow_status tow__assign_offsets(tow_context *ctx, tow__interval *intervals, uint32_t n, uint32_t n_insts, size_t *total,
                               size_t *bound);
/* Offsets for the storages of a plan, and the size of its block in the surrounding one. */
tow_status tow__assign_buffers(tow_program *p, tow__body *body, tow__arena *scratch);
/* Allocates the arena and makes the executable program. */
tow_status tow__bind_addresses(tow_program *p, tow__arena *scratch);

#endif

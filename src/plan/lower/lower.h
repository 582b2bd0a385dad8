/* Lowering: instructions on values become instructions on views of storages. Later passes also use the functions that
 * build them. */
#ifndef TOW_SRC_PLAN_LOWER_H
#define TOW_SRC_PLAN_LOWER_H

#include "src/plan/ir.h"

/* A value that is made in its place in a concatenation, which needs no copy then. */
typedef struct tow__placed_value {
    uint32_t storage; /* of the concatenation, also for its result; TOW__NONE: the value has memory of its own */
    int64_t offset;   /* in elements */
} tow__placed_value;

/* A function that is being lowered, or, for later passes, one that gets new instructions: `body`, `p` and `scratch`. */
typedef struct tow__lowering {
    tow_program *p;
    tow__body *body;
    tow__arena *scratch;
    const tow__instruction *insts; /* as they were, on values */
    uint32_t n_insts;
    tow__view *env; /* [n_values] the view of each value that has been lowered; of inputs before tow__lower */
    tow__placed_value *parts; /* [n_values] */
} tow__lowering;

/* Begins to lower a function: its list of instructions becomes empty. */
tow_status tow__begin_lowering(tow__lowering *l, tow_program *p, tow__body *body, tow__arena *scratch);
/* Adds what its instructions become. */
tow_status tow__lower(tow__lowering *l);
/* Lowers the program: views of its inputs, its instructions, and the copies or designations of its outputs. */
tow_status tow__lower_program(tow_program *p, tow__arena *scratch);
/* lower_scan.c: lowers a scan and its body. */
tow_status tow__lower_scan(tow__lowering *l, const tow__instruction *inst);
/* Asks the instruction's kernel for its scratch, once kernel, params and views are known. */
tow_status tow__add_scratch(tow__lowering *l, tow__instruction *inst);
/* *bytes: what it needs when it runs on `team`. */
tow_status tow__scratch_bytes(tow__arena *scratch, const tow__instruction *inst, tow__team *team, size_t *bytes);
/* Is there a kernel for the instruction, on a team, which takes its shapes and strides? */
bool tow__kernel_takes(const tow__instruction *inst, tow__team *team);
/* Copies view x, row-major, into a storage that exists. */
tow_status tow__add_copy(tow__lowering *l, const tow__view *x, uint32_t storage, bool backward);
/* An instruction with room for its views; NULL: out of memory. Instructions move when more are added: fill it before
 * adding another. */
tow__instruction *tow__add_instruction(tow__lowering *l, const tow_primitive *op, uint32_t n_in, uint32_t n_out);
/* Appends an instruction as it is. */
tow_status tow__append_instruction(tow_program *p, tow__body *body, const tow__instruction *inst);
/* Output `value` of the function must end in a storage of this kind and index, which is returned in *storage: its
 * producer writes there if it can, else a copy does. */
tow_status tow__deliver(tow__lowering *l, uint32_t value, tow__storage_kind kind, uint32_t index, uint32_t *storage);
/* The operands of a loop: init values, xs, then what its body reads of functions around. Once more when that has
 * changed. */
tow_status tow__list_loop_reads(tow_program *p, tow__instruction *inst, tow__arena *scratch);
/* Memory for a new constant, or for a storage that becomes one, which the caller fills; NULL: out of memory. */
void *tow__add_constant(tow__lowering *l, size_t bytes, uint32_t *storage);
void *tow__become_constant(tow__lowering *l, uint32_t storage, size_t bytes);
/* A new storage for a whole value; TOW__NONE: out of memory. */
uint32_t tow__add_storage(tow_program *p, tow__body *body, tow__storage_kind kind, uint32_t index, size_t bytes);
/* For reports: what makes the value of storage `from` makes that of `to`, too. */
void tow__copy_maker(tow_program *p, uint32_t from, uint32_t to);

#endif

/* The values of a plan's functions, for reports: a storage that instructions write, with who writes and who reads it.
 * Several values may share the memory of one storage, one after the other (memory/alias.c). */
#ifndef TOW_SRC_PLAN_VALUES_H
#define TOW_SRC_PLAN_VALUES_H

#include "src/plan/ir.h"

/* By storage, not by representative. Instructions are those of the storage's function. */
typedef struct tow__plan_value {
    uint32_t from, to;  /* written first by, read last by; from is TOW__NONE if no instruction writes it */
    uint32_t last_read; /* by the backward pass; TOW__NONE: it does not read it */
    bool backward;      /* written by the backward pass */
    tow_type type;
} tow__plan_value;

/* [p->n_storages], in the arena; NULL: out of memory. */
tow__plan_value *tow__list_values(const tow_program *p, tow__arena *arena);
/* Is it made by the forward pass of a gradient and read by the backward pass? */
static inline bool tow__is_residual(const tow__plan_value *v)
{
    return v->from != TOW__NONE && !v->backward && v->last_read != TOW__NONE;
}

/* The storage of the function around that x, an operand of an instruction in the loop's body, is or is a part of. */
uint32_t tow__outer_storage(const tow_program *p, const tow__loop *loop, const tow__view *x);

#endif

/* The pass of a gradient, forward or backward, that instructions belong to. */
#ifndef TOW_SRC_PLAN_PHASE_H
#define TOW_SRC_PLAN_PHASE_H

#include "src/plan/ir.h"

/* Is storage `root` written (or read) by the backward pass where `instruction` does so? A tile group may have
 * instructions of both. */
bool tow__is_backward(const tow_program *p, const tow__instruction *inst, uint32_t root, bool write);
/* Bytes of the arena that the forward pass writes and the backward pass still reads. */
size_t tow__residual_bytes(const tow_program *p);

#endif

/* The pass of a gradient, forward or backward, that instructions belong to. */
#ifndef TOW_SRC_PLAN_PHASE_H
#define TOW_SRC_PLAN_PHASE_H

#include "src/plan/ir.h"

/* Is storage `root` written (or read) by the backward part where `step` does so? A region may have steps of both. */
bool tow__is_backward(const tow_program *p, const tow__instruction *inst, uint32_t root, bool write);

#endif

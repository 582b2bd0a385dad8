/* What plans tell about themselves. */
#ifndef TOW_SRC_PLAN_REPORT_H
#define TOW_SRC_PLAN_REPORT_H

#include "src/plan/ir.h"

/* The name of the engine that runs an instruction, which is no loop. */
const char *tow__engine_of(const tow_program *p, const tow__instruction *inst);

#endif

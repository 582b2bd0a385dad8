/* Reports of plans. */
#ifndef TOW_SRC_PLAN_REPORT_H
#define TOW_SRC_PLAN_REPORT_H

#include "src/plan/ir.h"

/* The name of the engine that runs an instruction of a body, which is no loop. */
const char *tow__engine_of(const tow__body *body, const tow__instruction *inst);

enum {
    TOW__REASON = 160
};
/* Why it is that engine, of any instruction. False: there is nothing to choose from. */
bool tow__reason_of(const tow__body *body, const tow__instruction *inst, char text[TOW__REASON]);

/* "dot_general", "fused(add, tanh)" */
void tow__string_add_operation(tow__string *s, const tow__instruction *inst);

#endif

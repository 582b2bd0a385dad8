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

/* The units of products in programs of the context, "amx for f32 and own for bf16", written like snprintf. Others have
 * other bits. */
size_t tow__units_of_products(const tow_context *ctx, char *text, size_t size);

/* "dot_general", "fused(add, tanh)" */
void tow__string_add_operation(tow__string *s, const tow__instruction *inst);

#endif

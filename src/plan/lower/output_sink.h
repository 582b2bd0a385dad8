/* Output sinks: outputs that consumers take piece by piece. */
#ifndef TOW_SRC_PLAN_OUTPUT_SINK_H
#define TOW_SRC_PLAN_OUTPUT_SINK_H

#include "src/plan/ir.h"
#include "src/plan/lower/lower.h"

/* The consumers of the options, by output. */
tow_status tow__set_consumers(tow_program *p, const tow_compile_options *options);
/* The consumer that may take the loop's rows of `value`, a result of scan `inst`, or NULL. */
const tow_consumer *tow__row_sink(const tow__lowering *l, const tow__instruction *inst, uint32_t value);
/* Copies x, which is to be handed over, unless it is contiguous and no consumer can overwrite it. Call this for all
 * that a plan hands over before it hands over the first. */
tow_status tow__copy_for_sink(tow__lowering *l, tow__view *x);
/* An instruction that hands x over, directly after the last instruction that makes x or reads `input`, which the
 * consumer overwrites; NULL: the plan does not read it. *row: which row x is when the instruction runs. */
tow_status tow__add_sink(tow__lowering *l, const tow_consumer *consumer, const tow__view *x, const tow__view *input,
                         const int64_t *row);
/* Hands over the outputs with consumers whose rows no loop has handed over. */
tow_status tow__sink_outputs(tow__lowering *l);

#endif

/* Rules of cond, while and fori that have files of their own. */
#ifndef TOW_SRC_AUTODIFF_CONTROL_H
#define TOW_SRC_AUTODIFF_CONTROL_H

#include "src/autodiff/batch.h"
#include "src/autodiff/loops.h"
#include "src/autodiff/partial.h"

/* cond_rules.c, cond_partial.c */
void tow__cond_jvp(tow__jvp *r);
void tow__cond_transpose(tow__transpose *r);
void tow__cond_split(tow__split *s, const tow__equation *e);

/* loop_jvp.c: forward mode of loops. forward: makes results of the new loop that are one value of the program one here,
 * once the loop is bound. */
typedef void (*tow__forwarding)(tow_trace *t, const tow__equation *loop, const tow_graph *body, uint32_t consts,
                                uint32_t carry, const tow_value *operands, tow_value *results);
void tow__loop_jvp(tow__jvp *r);
void tow__loop_jvp_forwarding(tow__jvp *r, tow__forwarding forward);

/* while_partial.c: of loops whose number of iterations data decide. */
void tow__while_split(tow__split *s, const tow__equation *e);

/* batch_control.c */
void tow__batch_cond(tow__batch *r);
void tow__batch_while(tow__batch *r);
void tow__batch_fori(tow__batch *r);

#endif

/* Loops by their common form: scan, while and fori have a body over (constants, carries, rest).
 *
 *   operands   (lead, consts, carry, xs)      lead: the count of a fori, else nothing; xs: of a scan only
 *   body       (consts, carry, rest) -> (carry, ys)      rest: elements of xs, or the number of a fori's iteration */
#ifndef TOW_SRC_LOOPS_H
#define TOW_SRC_LOOPS_H

#include "src/autodiff/autodiff.h"
#include "src/graph/region.h"

/* False if the equation is no loop. */
bool tow__loop_of(const tow__equation *e, tow__region_form *form);
/* Binds a loop like e with another body, numbers and operands. place[i]: the input of the new body that input i of the
 * old one has become, or TOW__INPUT if there is none; the condition of a while then depends on input place[i]. */
void tow__loop_bind(tow_trace *t, const tow__equation *e, tow_graph *body, uint32_t consts, uint32_t carry,
                    const uint32_t *place, size_t n_in, const tow_value *in, tow_value *out);

#endif

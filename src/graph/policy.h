/* Policies inside the library: copying into a graph, and asking about an equation. */
#ifndef TOW_SRC_POLICY_H
#define TOW_SRC_POLICY_H

#include "src/graph/primitive.h"
#include "tow/autodiff.h"

/* Deep copy into an arena; NULL stays NULL, NULL with the error set on failure. `decide` and `user` are copied as they
 * are. */
const tow_policy *tow__policy_copy(tow__arena *arena, const tow_policy *policy);
bool tow__policy_equal(const tow_policy *a, const tow_policy *b);
/* Whether the textual form has the checkpoint name as it is; others stand in quotes. */
bool tow__policy_name_is_word(const char *name);

/* The verdict of `policy` (NULL: nothing_saveable) on equation e of g. */
tow_verdict tow__policy_ask(const tow_policy *policy, const tow_graph *g, const tow__equation *e);
/* Two answers about one value: "must" beats "prefer", save beats recompute. */
tow_verdict tow__verdict_meet(tow_verdict a, tow_verdict b);

#endif

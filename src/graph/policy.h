/* Policies inside the library: copying into a graph, and asking about an equation. */
#ifndef TOW_SRC_POLICY_H
#define TOW_SRC_POLICY_H

#include "src/graph/primitive.h"
#include "tow/autodiff.h"

/* Policies in one another, the innermost counted: what the textual form has and every region accepts. */
enum {
    TOW__DEEPEST_POLICY = 32
};

/* Deep copy into an arena; NULL stays NULL, NULL with the error set on failure. `decide` and `user` are copied as they
 * are. Of the checkpoint names, those that `region` (NULL: any) has: passes remove names with what nobody needs, and a
 * region that refers to names which it lacks could not be read again. */
const tow_policy *tow__policy_copy(tow__arena *arena, const tow_policy *policy, const tow_graph *region);
bool tow__policy_equal(const tow_policy *a, const tow_policy *b);
/* Of the policy (NULL: nothing_saveable), on from h. */
uint64_t tow__policy_hash(uint64_t h, const tow_policy *policy);
/* Whether somebody may write a remat with this policy around this body: a policy of at most TOW__DEEPEST_POLICY levels
 * that has the fields of its kind only, and refers to no checkpoint name that the body lacks. Regions that passes make
 * are not asked. policy NULL is fine. */
tow_status tow__policy_check(tow_context *ctx, const tow_policy *policy, const tow_graph *body);
/* True if no more than `levels` policies are in one another. */
bool tow__policy_fits(const tow_policy *policy, int levels);
/* Whether the textual form has the checkpoint name as it is; others stand in quotes. */
bool tow__policy_name_is_word(const char *name);

/* The verdict of `policy` (NULL: nothing_saveable) on equation e of g. */
tow_verdict tow__policy_ask(const tow_policy *policy, const tow_graph *g, const tow__equation *e);
/* Two answers about one value: "must" beats "prefer", save beats recompute. */
tow_verdict tow__verdict_meet(tow_verdict a, tow_verdict b);

#endif

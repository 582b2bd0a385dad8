/* Policies inside the library: copying into a graph, and asking about an equation. */
#ifndef TOW_SRC_POLICY_H
#define TOW_SRC_POLICY_H

#include "src/base/names.h"
#include "src/graph/builder.h"
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
/* Adds the checkpoint names in the graph and in the bodies in it, in order. False: out of memory. */
bool tow__collect_names(tow__names *names, const tow_graph *graph);
/* A policy that refers to checkpoint names, and the names that values in its regions have. One policy may stand around
 * regions of different kinds, each of which has some of the names, so it takes the whole program to know which of them
 * none has. */
typedef struct tow__named_policy {
    const tow_policy *policy;
    tow__names there;
    uint32_t n_regions;
    const char *scope; /* of the first region, or NULL; */
    size_t at;         /* and its place in a text */
} tow__named_policy;

/* Those of a trace, of which equal ones are one. */
typedef struct tow__named_policies {
    tow__names texts;
    tow__vector list; /* tow__named_policy, by the number of its text */
} tow__named_policies;

/* True if somebody may write a remat with this policy around this body: a policy of at most TOW__DEEPEST_POLICY levels,
 * of kinds that exist, that has the fields of its kind only. If it refers to names, it and those of the body are added
 * to what the trace knows. Regions that passes make are not asked. policy NULL is fine. at: in a text, or 0. */
tow_status tow__policy_check(tow_trace *t, const tow_policy *policy, const tow_graph *body, size_t at);
/* TOW_OK if each name that a policy of the trace refers to is that of a value in one of its regions. *wrong: the policy
 * otherwise. */
tow_status tow__policy_check_names(tow_trace *t, const tow__named_policy **wrong);
void tow__named_policies_free(tow__named_policies *policies, tow_context *ctx);
/* True if no more than `levels` policies are in one another. */
bool tow__policy_fits(const tow_policy *policy, int levels);
/* True if its kind and those of the policies in it are of tow_policy_kind. It fits. */
bool tow__policy_kinds_exist(const tow_policy *policy);
/* True if the textual form has the checkpoint name as it is; others stand in quotes. */
bool tow__policy_name_is_word(const char *name);

/* The policy of regions that the search for a plan within a memory limit makes: the verdict on an equation is in its
 * mark. Without one: recompute; `kept`: save. */
enum {
    TOW__MARK_BITS = 3
};
const tow_policy *tow__marked_policy(bool kept);
bool tow__is_marked_policy(const tow_policy *policy);
static inline uint32_t tow__mark(uint32_t number, tow_verdict verdict)
{
    return (number + 1) << TOW__MARK_BITS | ((uint32_t)verdict + 1);
}
/* A mark without a number: the verdict on the results of an equation whatever policies say, also without any, for
 * reports on what would change. */
static inline uint32_t tow__override(tow_verdict verdict) { return (uint32_t)verdict + 1; }
static inline bool tow__is_overridden(uint32_t mark) { return mark > 0 && mark < 1u << TOW__MARK_BITS; }
/* The verdict of `policy` (NULL: nothing_saveable) on equation e of g. */
tow_verdict tow__policy_ask(const tow_policy *policy, const tow_graph *g, const tow__equation *e);
/* "prefer save" */
const char *tow__verdict_text(tow_verdict verdict);
/* Two answers about one value: "must" beats "prefer", save beats recompute. */
tow_verdict tow__verdict_meet(tow_verdict a, tow_verdict b);

#endif

/* Policies: deciding and comparing. Checking and copying are in policy_names.c, the textual form is in
 * policy_text.c. */
#include "src/graph/policy.h"

#include "src/base/hash.h"

static bool has_name(const tow_policy *policy, const char *name)
{
    for (size_t i = 0; policy->names && policy->names[i]; i++)
        if (strcmp(policy->names[i], name) == 0) return true;
    return false;
}

static tow_verdict prefer(bool save) { return save ? TOW_PREFER_SAVE : TOW_PREFER_RECOMPUTE; }

tow_verdict tow_policy_decide(const tow_policy *policy, const tow_policy_query *q)
{
    if (!policy || !q) return TOW_PREFER_RECOMPUTE;
    bool named = q->name != NULL, listed = named && has_name(policy, q->name);
    switch (policy->kind) {
    case TOW_POLICY_NOTHING:
        return TOW_PREFER_RECOMPUTE;
    case TOW_POLICY_EVERYTHING:
        return TOW_PREFER_SAVE;
    case TOW_POLICY_DOTS:
        return prefer(q->is_dot);
    case TOW_POLICY_DOTS_WITH_NO_BATCH_DIMS:
        return prefer(q->is_dot && !q->has_batch_dims);
    case TOW_POLICY_ONLY_NAMES:
        return listed ? TOW_MUST_SAVE : TOW_PREFER_RECOMPUTE;
    case TOW_POLICY_ANY_NAMES_BUT:
        return named && !listed ? TOW_MUST_SAVE : TOW_PREFER_RECOMPUTE;
    case TOW_POLICY_ANYTHING_EXCEPT_NAMES:
        return listed ? TOW_MUST_RECOMPUTE : TOW_PREFER_SAVE;
    case TOW_POLICY_EXCEPT_NAMES:
        return listed ? TOW_MUST_RECOMPUTE : tow_policy_decide(policy->a, q);
    case TOW_POLICY_NOT:
        return (tow_verdict)(TOW_MUST_SAVE - tow_policy_decide(policy->a, q));
    case TOW_POLICY_EITHER:
    case TOW_POLICY_BOTH: {
        tow_verdict a = tow_policy_decide(policy->a, q), b = tow_policy_decide(policy->b, q);
        return (policy->kind == TOW_POLICY_EITHER) == (a > b) ? a : b;
    }
    case TOW_POLICY_CUSTOM:
        return policy->decide ? policy->decide(q, policy->user) : TOW_PREFER_RECOMPUTE;
    }
    return TOW_PREFER_RECOMPUTE;
}

const char *tow__verdict_text(tow_verdict verdict)
{
    static const char *const texts[] = {[TOW_MUST_RECOMPUTE] = "must recompute",
                                        [TOW_PREFER_RECOMPUTE] = "prefer recompute",
                                        [TOW_PREFER_SAVE] = "prefer save",
                                        [TOW_MUST_SAVE] = "must save"};
    return verdict <= TOW_MUST_SAVE ? texts[verdict] : "";
}

tow_verdict tow__verdict_meet(tow_verdict a, tow_verdict b)
{
    bool must_a = a == TOW_MUST_SAVE || a == TOW_MUST_RECOMPUTE, must_b = b == TOW_MUST_SAVE || b == TOW_MUST_RECOMPUTE;
    if (must_a != must_b) return must_a ? a : b;
    return a > b ? a : b;
}

static tow_verdict save_unmarked(const tow_policy_query *q, void *user) { return (void)q, (void)user, TOW_PREFER_SAVE; }

static tow_verdict recompute_unmarked(const tow_policy_query *q, void *user)
{
    return (void)q, (void)user, TOW_PREFER_RECOMPUTE;
}

const tow_policy *tow__marked_policy(bool kept)
{
    static const tow_policy saves = {.kind = TOW_POLICY_CUSTOM, .decide = save_unmarked},
                            recomputes = {.kind = TOW_POLICY_CUSTOM, .decide = recompute_unmarked};
    return kept ? &saves : &recomputes;
}

bool tow__is_marked_policy(const tow_policy *policy)
{
    return policy && (policy->decide == save_unmarked || policy->decide == recompute_unmarked);
}

tow_verdict tow__policy_ask(const tow_policy *policy, const tow_graph *g, const tow__equation *e)
{
    const uint32_t verdict = e->source.mark & ((1u << TOW__MARK_BITS) - 1);
    if (verdict && (tow__is_marked_policy(policy) || tow__is_overridden(e->source.mark)))
        return (tow_verdict)(verdict - 1);
    tow_type in[8], out[8]; /* enough for rules; equations with more operands show the first ones */
    tow_policy_query q = {
        .primitive = e->primitive->name, .scope = e->source.scope, .input_types = in, .output_types = out};
    q.n_inputs = e->n_in < 8 ? e->n_in : 8;
    q.n_outputs = e->n_out < 8 ? e->n_out : 8;
    for (size_t i = 0; i < q.n_inputs; i++) in[i] = g->vars[e->in[i]].type;
    for (size_t i = 0; i < q.n_outputs; i++) out[i] = g->vars[e->out[i]].type;
    if (e->primitive->kind == TOW__NAME) q.name = ((const tow__name_params *)e->params)->name;
    q.is_dot = e->primitive->product != TOW__NO_PRODUCT;
    q.has_batch_dims = e->primitive->product == TOW__BATCHED_PRODUCT;
    if (e->primitive->kind == TOW__DOT) {
        const tow__dot_params *p = e->params;
        q.has_batch_dims = p->lhs_batch.n > p->mapped;
    }
    return tow_policy_decide(policy, &q);
}

static bool names_equal(const char *const *a, const char *const *b)
{
    size_t i = 0;
    for (; a && a[i]; i++)
        if (!b || !b[i] || strcmp(a[i], b[i]) != 0) return false;
    return !b || !b[i];
}

bool tow__policy_equal(const tow_policy *a, const tow_policy *b)
{
    static const tow_policy nothing = {.kind = TOW_POLICY_NOTHING};
    if (!a) a = &nothing;
    if (!b) b = &nothing;
    if (a == b) return true;
    if (a->kind != b->kind || a->decide != b->decide || a->user != b->user) return false;
    if ((!a->a) != (!b->a) || (!a->b) != (!b->b) || !names_equal(a->names, b->names)) return false;
    return (!a->a || tow__policy_equal(a->a, b->a)) && (!a->b || tow__policy_equal(a->b, b->b));
}

static uint64_t hash_names(uint64_t h, const char *const *names)
{
    for (; names && *names; names++) h = tow__hash(h, *names, strlen(*names));
    return h;
}

uint64_t tow__policy_hash(uint64_t h, const tow_policy *policy)
{
    int64_t kind = policy ? (int64_t)policy->kind : (int64_t)TOW_POLICY_NOTHING;
    h = tow__hash(h, &kind, sizeof kind);
    if (!policy) return h;
    h = hash_names(h, policy->names);
    if (policy->a) h = tow__policy_hash(h, policy->a);
    return policy->b ? tow__policy_hash(h, policy->b) : h;
}

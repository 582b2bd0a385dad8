/* Policies without effect: why a region keeps what it would keep under nothing_saveable.
 *
 *   nothing is differentiated    there is no backward pass that could read a value of the region
 *   nothing is of the kind       no product, no value of one of its names, ...
 *   only inputs                  what it names are inputs of the region, which are kept anyway
 *   nothing is read              the backward pass does without what it saves
 *
 * Regions with equal policies and equal reasons are one sentence, with the first of them and their number. */
#include "src/autodiff/policy_log.h"

#include "src/autodiff/regions/record.h"

typedef enum reason {
    KEEPS,
    NOT_DIFFERENTIATED,
    NOT_OF_KIND,
    ONLY_INPUTS,
    NOT_READ
} reason;

struct tow__policy_entry {
    tow__policy_entry *next;
    const tow_policy *policy; /* with the names that the region has */
    const char *text;         /* of the policy */
    const char *place;        /* of the first region: its path, or where it was written; NULL: nothing is known */
    reason why;
    uint32_t n_regions;
};

static reason reason_of(const tow__policy_tally *tally, bool keeps)
{
    if (!tally) return NOT_DIFFERENTIATED;
    if (keeps) return KEEPS;
    if (tally->saved == 0) return NOT_OF_KIND;
    return tally->inputs == tally->saved ? ONLY_INPUTS : NOT_READ;
}

static const char *policy_text(tow__arena *arena, const tow_policy *policy)
{
    const size_t size = tow_policy_text(policy, NULL, 0) + 1;
    char *text = tow__arena_alloc(arena, size, 1);
    if (text) tow_policy_text(policy, text, size);
    return text;
}

/* Regions are counted together only if they do nothing for one reason; those that keep values are told apart by their
 * names, which other sentences list. */
static tow__policy_entry *find(const tow__policy_log *log, const char *text, reason why)
{
    tow__policy_entry *x = log->first;
    while (x && (x->why != why || strcmp(x->text, text) != 0)) x = x->next;
    return x;
}

/* False: no memory. */
static bool add(tow__policy_log *log, const tow__equation *e, const tow_policy *policy, reason why)
{
    const char *text = policy_text(log->arena, policy);
    if (!text) return false;
    tow__policy_entry *x = find(log, text, why);
    if (x) {
        x->n_regions++;
        return true;
    }
    const char *place = e->source.scope && *e->source.scope ? e->source.scope : e->source.here;
    x = tow__arena_alloc(log->arena, 1, sizeof *x);
    if (!x) return false;
    *x = (tow__policy_entry){.text = text, .why = why, .n_regions = 1};
    x->policy = tow__policy_copy(log->arena, policy, NULL);
    if (place) x->place = tow__arena_string(log->arena, place);
    if (log->last)
        log->last->next = x;
    else
        log->first = x;
    log->last = x;
    return x->policy && (!place || x->place);
}

void tow__log_policy(tow__policy_log *log, const tow__equation *e, const tow__policy_tally *tally, bool keeps)
{
    const tow__remat_params *p = tow__written_region(e);
    if (!p || !p->policy || p->policy->kind == TOW_POLICY_NOTHING || tow__is_marked_policy(p->policy)) return;
    log->failed |= !add(log, e, p->policy, reason_of(tally, keeps));
}

/* ---- sentences --------------------------------------------------------------------------------------------------- */

/* Adds the other regions that have names which policies of this kind save. */
static void add_elsewhere(tow__string *s, const tow__policy_log *log, const tow__policy_entry *x)
{
    const char *before = "; ";
    for (const tow__policy_entry *other = log->first; other; other = other->next) {
        const char *const *name = other->policy->names;
        if (other == x || other->policy->kind != x->policy->kind || !name || !*name) continue;
        tow__string_add(s, "%s", before);
        for (const char *comma = ""; *name; name++, comma = ", ") {
            tow__string_add(s, "%s", comma);
            tow__string_add_quoted(s, *name);
        }
        tow__string_add(s, " is in another region");
        if (other->place) {
            tow__string_add(s, ", ");
            tow__string_add_quoted(s, other->place);
        }
        before = ", ";
    }
}

static void add_kind(tow__string *s, const tow__policy_log *log, const tow__policy_entry *x)
{
    switch (x->policy->kind) {
    case TOW_POLICY_DOTS:
        tow__string_add(s, "no value in the region is a product");
        break;
    case TOW_POLICY_DOTS_WITH_NO_BATCH_DIMS:
        tow__string_add(s, "no value in the region is a product without batch dimensions");
        break;
    case TOW_POLICY_ONLY_NAMES:
        tow__string_add(s, "no value in the region has one of its names");
        add_elsewhere(s, log, x);
        break;
    case TOW_POLICY_ANY_NAMES_BUT:
        tow__string_add(s, "no value in the region has a name that it saves");
        break;
    case TOW_POLICY_NOTHING:
    case TOW_POLICY_EVERYTHING:
    case TOW_POLICY_ANYTHING_EXCEPT_NAMES:
    case TOW_POLICY_EXCEPT_NAMES:
    case TOW_POLICY_EITHER:
    case TOW_POLICY_BOTH:
    case TOW_POLICY_NOT:
    case TOW_POLICY_CUSTOM:
        tow__string_add(s, "it saves no value in the region");
        break;
    }
}

static void add_reason(tow__string *s, const tow__policy_log *log, const tow__policy_entry *x)
{
    switch (x->why) {
    case NOT_DIFFERENTIATED:
        tow__string_add(s, "nothing in the region is differentiated");
        break;
    case NOT_OF_KIND:
        add_kind(s, log, x);
        break;
    case ONLY_INPUTS:
        tow__string_add(s, "everything that it saves is kept anyway, as an input of the region");
        break;
    case NOT_READ:
        tow__string_add(s, "the backward pass reads nothing of what it saves, or makes it of what is kept anyway");
        break;
    case KEEPS:
        break;
    }
}

/* NULL: no memory. */
static const char *sentence(const tow__policy_log *log, const tow__policy_entry *x)
{
    tow__string s;
    tow__string_init(&s, log->arena->ctx);
    tow__string_add(&s, "remat");
    if (x->place) {
        tow__string_add(&s, " in ");
        tow__string_add_quoted(&s, x->place);
    }
    if (x->n_regions > 1) tow__string_add(&s, " and %u more", x->n_regions - 1);
    tow__string_add(&s, ": the policy ");
    tow__string_add_quoted(&s, x->text);
    tow__string_add(&s, " has no effect: ");
    add_reason(&s, log, x);
    const char *text = s.failed ? NULL : tow__arena_string(log->arena, s.text);
    tow__string_free(&s);
    return text;
}

tow_status tow__policy_notes(tow__policy_log *log, size_t *n, const char *const **notes)
{
    size_t count = 0;
    *n = 0;
    if (log->failed)
        return tow__fail(log->arena->ctx, TOW_OUT_OF_MEMORY, "out of memory: notes about policies are not available");
    for (const tow__policy_entry *x = log->first; x; x = x->next) count += x->why != KEEPS;
    const char **texts = tow__arena_alloc(log->arena, count + 1, sizeof *texts);
    if (!texts) return TOW_OUT_OF_MEMORY;
    for (const tow__policy_entry *x = log->first; x; x = x->next)
        if (x->why != KEEPS && !(texts[(*n)++] = sentence(log, x))) return TOW_OUT_OF_MEMORY;
    *notes = texts;
    return TOW_OK;
}

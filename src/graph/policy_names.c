/* Policies and the region they are for: checked when somebody writes the region, and copied into the graph. */
#include <stdio.h>

#include "src/graph/policy.h"

/* ---- the checkpoint names of a region ---------------------------------------------------------------------------- */

static bool add_name(tow__names *names, const char *name)
{
    return tow__names_find(names, name) != TOW__NO_NAME || tow__names_add(names, name) != TOW__NO_NAME;
}

bool tow__collect_names(tow__names *names, const tow_graph *g)
{
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (e->primitive->kind == TOW__NAME && !add_name(names, ((const tow__name_params *)e->params)->name))
            return false;
        for (uint32_t j = 0, n = tow__nested_count(e->primitive, e->params); j < n; j++)
            if (!tow__collect_names(names, tow__nested(e->primitive, e->params, j))) return false;
    }
    return true;
}

static bool refers_to_names(const tow_policy *policy)
{
    return policy && ((policy->names && policy->names[0]) || refers_to_names(policy->a) || refers_to_names(policy->b));
}

/* ---- checking ---------------------------------------------------------------------------------------------------- */

static bool is_of_two(const tow_policy *p) { return p->kind == TOW_POLICY_EITHER || p->kind == TOW_POLICY_BOTH; }

static bool is_of_one(const tow_policy *p)
{
    return is_of_two(p) || p->kind == TOW_POLICY_NOT || p->kind == TOW_POLICY_EXCEPT_NAMES;
}

bool tow__policy_fits(const tow_policy *policy, int levels)
{
    if (levels == 0) return false;
    if (!policy || !is_of_one(policy)) return true;
    return tow__policy_fits(policy->a, levels - 1) && (!is_of_two(policy) || tow__policy_fits(policy->b, levels - 1));
}

static bool kind_exists(const tow_policy *p) { return (unsigned)p->kind <= TOW_POLICY_CUSTOM; }

bool tow__policy_kinds_exist(const tow_policy *policy)
{
    if (!policy) return true;
    if (!kind_exists(policy)) return false;
    return !is_of_one(policy) ||
           (tow__policy_kinds_exist(policy->a) && (!is_of_two(policy) || tow__policy_kinds_exist(policy->b)));
}

/* A kind that there is not would silently save nothing, and so would fields that a policy's kind does not read, which
 * were given without the kind. */
static tow_status check_fields(tow_context *ctx, const tow_policy *p)
{
    if (!p) return TOW_OK;
    if (!kind_exists(p))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "remat: the policy is of kind %d, expected one of tow_policy_kind, 0 to %d; make it with a "
                         "macro such as tow_dots_saveable()",
                         (int)p->kind, TOW_POLICY_CUSTOM);
    bool by_name = p->kind == TOW_POLICY_ONLY_NAMES || p->kind == TOW_POLICY_ANY_NAMES_BUT ||
                   p->kind == TOW_POLICY_ANYTHING_EXCEPT_NAMES || p->kind == TOW_POLICY_EXCEPT_NAMES;
    const char *what = !by_name && p->names                        ? "names"
                       : p->kind != TOW_POLICY_CUSTOM && p->decide ? "decide"
                       : !is_of_one(p) && p->a                     ? "a"
                       : !is_of_two(p) && p->b                     ? "b"
                                                                   : NULL;
    if (what)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "remat: the policy has .%s, which its kind (%d) does not read; make it with a macro such as "
                         "tow_save_only_these_names(\"a\")",
                         what, (int)p->kind);
    tow_status status = check_fields(ctx, p->a);
    return status == TOW_OK ? check_fields(ctx, p->b) : status;
}

/* The equation that gives the name to a value, in these or in bodies in them; NULL: none. */
static const tow__equation *find_named(const tow__equation *equations, uint32_t n, const char *name)
{
    const tow__equation *found = NULL;
    for (uint32_t i = 0; i < n && !found; i++) {
        const tow__equation *e = &equations[i];
        if (e->primitive->kind == TOW__NAME && strcmp(((const tow__name_params *)e->params)->name, name) == 0) return e;
        for (uint32_t j = 0, m = tow__nested_count(e->primitive, e->params); j < m && !found; j++) {
            const tow_graph *g = tow__nested(e->primitive, e->params, j);
            found = find_named(g->equations, g->n_equations, name);
        }
    }
    return found;
}

/* The value outside of the regions that has the name, if there is one. */
static void add_elsewhere(tow__string *text, const tow__vector *equations, const char *name)
{
    const tow__equation *e = find_named(equations->data, equations->count, name);
    if (!e) return;
    const char *place = e->source.scope && *e->source.scope ? e->source.scope : e->source.here;
    tow__string_add(text, "; a value outside of it has the name%s", place ? ", in " : "");
    if (place) tow__string_add_quoted(text, place);
}

static tow_status missing_name(tow_context *ctx, const char *name, const tow__named_policy *p,
                               const tow__vector *equations)
{
    const tow__names *there = &p->there;
    char regions[48] = "the region";
    if (p->n_regions > 1) snprintf(regions, sizeof regions, "its %u regions", p->n_regions);
    tow__string missing, list;
    tow__string_init(&missing, ctx);
    tow__string_init(&list, ctx);
    tow__string_add_quoted(&missing, name);
    for (uint32_t i = 0; i < there->count; i++) {
        if (i > 0) tow__string_add(&list, ", ");
        if (tow__policy_name_is_word(there->names[i]))
            tow__string_add(&list, "%s", there->names[i]);
        else
            tow__string_add_quoted(&list, there->names[i]);
    }
    if (there->count == 0) tow__string_add(&list, "(no value in it is named)");
    add_elsewhere(&list, equations, name);
    tow_status status = missing.failed || list.failed ? TOW_OUT_OF_MEMORY : TOW_NOT_FOUND;
    if (status == TOW_NOT_FOUND)
        tow__fail(ctx, status,
                  "remat: the policy refers to the checkpoint name %s, which no value in %s has; expected one of: %s",
                  missing.text, regions, list.text);
    tow__string_free(&missing);
    tow__string_free(&list);
    return status;
}

/* Reports the first name of `policy` that is not there: a misspelled name would change what is kept without a word. */
static tow_status check_names(tow_context *ctx, const tow_policy *policy, const tow__named_policy *of,
                              const tow__vector *equations)
{
    if (!policy) return TOW_OK;
    tow_status status = check_names(ctx, policy->a, of, equations);
    if (status == TOW_OK) status = check_names(ctx, policy->b, of, equations);
    for (const char *const *name = policy->names; status == TOW_OK && name && *name; name++)
        if (tow__names_find(&of->there, *name) == TOW__NO_NAME) status = missing_name(ctx, *name, of, equations);
    return status;
}

static tow__named_policy *add_policy(tow_trace *t, const tow_policy *policy, const char *text, size_t at)
{
    tow__named_policies *known = tow__trace_policies(t);
    tow_context *ctx = tow_trace_context(t);
    const char *scope = tow__get_scope(t);
    if (!known->texts.ctx) tow__names_init(&known->texts, ctx);
    const tow_policy *copy = tow__policy_copy(tow__trace_arena(t), policy, NULL);
    if (scope && copy && !(scope = tow__arena_string(tow__trace_arena(t), scope))) return NULL;
    tow__named_policy *new = copy ? tow__vector_push(ctx, &known->list, sizeof *new) : NULL;
    if (!new) return NULL;
    *new = (tow__named_policy){.policy = copy, .scope = scope, .at = at};
    tow__names_init(&new->there, ctx);
    if (tow__names_add(&known->texts, text) != TOW__NO_NAME) return new;
    known->list.count--;
    return NULL;
}

/* The knowledge of the trace about the policy, from now on. NULL: out of memory. */
static tow__named_policy *known_policy(tow_trace *t, const tow_policy *policy, size_t at)
{
    const tow__named_policies *known = tow__trace_policies(t);
    const size_t size = tow_policy_text(policy, NULL, 0) + 1;
    char *text = tow__alloc(tow_trace_context(t), size, 1);
    if (!text) return NULL;
    tow_policy_text(policy, text, size);
    const uint32_t number = known->texts.ctx ? tow__names_find(&known->texts, text) : TOW__NO_NAME;
    tow__named_policy *found =
        number == TOW__NO_NAME ? add_policy(t, policy, text, at) : (tow__named_policy *)known->list.data + number;
    tow__free(tow_trace_context(t), text, size, 1);
    return found;
}

tow_status tow__policy_check(tow_trace *t, const tow_policy *policy, const tow_graph *body, size_t at)
{
    tow_context *ctx = tow_trace_context(t);
    if (!tow__policy_fits(policy, TOW__DEEPEST_POLICY))
        return tow__fail(ctx, TOW_UNSUPPORTED,
                         "remat: policies are nested more than %d deep in the policy; combine fewer",
                         TOW__DEEPEST_POLICY);
    tow_status status = check_fields(ctx, policy);
    if (status != TOW_OK || !refers_to_names(policy)) return status;
    tow__named_policy *entry = known_policy(t, policy, at);
    if (!entry || !tow__collect_names(&entry->there, body)) return TOW_OUT_OF_MEMORY;
    entry->n_regions++;
    return TOW_OK;
}

tow_status tow__policy_check_names(tow_trace *t, const tow__named_policy **wrong)
{
    const tow__named_policies *policies = tow__trace_policies(t);
    const tow__named_policy *list = policies->list.data;
    tow_context *ctx = tow_trace_context(t);
    tow_status status = TOW_OK;
    for (uint32_t i = 0; i < policies->list.count && status == TOW_OK; i++)
        status = check_names(ctx, list[i].policy, *wrong = &list[i], tow__trace_equations(t));
    return status;
}

void tow__named_policies_free(tow__named_policies *policies, tow_context *ctx)
{
    tow__named_policy *list = policies->list.data;
    for (uint32_t i = 0; i < policies->list.count; i++) tow__names_free(&list[i].there);
    if (policies->texts.ctx) tow__names_free(&policies->texts);
    tow__vector_free(ctx, &policies->list, sizeof *list);
}

/* ---- copying ----------------------------------------------------------------------------------------------------- */

/* Of the names, those that are there (NULL: all). */
static const char *const *copy_names(tow__arena *arena, const char *const *names, const tow__names *there)
{
    size_t n = 0, kept = 0;
    while (names[n]) n++;
    const char **copy = tow__arena_alloc(arena, n + 1, sizeof *copy);
    for (size_t i = 0; copy && i < n; i++) {
        if (there && tow__names_find(there, names[i]) == TOW__NO_NAME) continue;
        if (!(copy[kept++] = tow__arena_string(arena, names[i]))) return NULL;
    }
    return (const char *const *)copy;
}

static const tow_policy *copy_policy(tow__arena *arena, const tow_policy *policy, const tow__names *there)
{
    tow_policy *copy = tow__arena_copy(arena, policy, 1, sizeof *policy);
    if (!copy) return NULL;
    if (policy->names && !(copy->names = copy_names(arena, policy->names, there))) return NULL;
    if (policy->a && !(copy->a = copy_policy(arena, policy->a, there))) return NULL;
    if (policy->b && !(copy->b = copy_policy(arena, policy->b, there))) return NULL;
    return copy;
}

const tow_policy *tow__policy_copy(tow__arena *arena, const tow_policy *policy, const tow_graph *region)
{
    if (!policy) return NULL;
    bool by_region = region && refers_to_names(policy);
    const tow_policy *copy = NULL;
    tow__names there;
    tow__names_init(&there, arena->ctx);
    if (!by_region || tow__collect_names(&there, region)) copy = copy_policy(arena, policy, by_region ? &there : NULL);
    tow__names_free(&there);
    return copy;
}

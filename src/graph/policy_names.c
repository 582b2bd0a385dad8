/* Policies and the region they are for: checked when somebody writes the region, and copied into the graph. */
#include "src/base/names.h"
#include "src/graph/policy.h"

/* ---- the checkpoint names of a region ---------------------------------------------------------------------------- */

static bool add_name(tow__names *names, const char *name)
{
    return tow__names_find(names, name) != TOW__NO_NAME || tow__names_add(names, name) != TOW__NO_NAME;
}

/* The names in the graph and in the bodies in it, in order. False: out of memory. */
static bool collect_names(tow__names *names, const tow_graph *g)
{
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (e->primitive->kind == TOW__NAME && !add_name(names, ((const tow__name_params *)e->params)->name))
            return false;
        for (uint32_t j = 0, n = tow__nested_count(e->primitive, e->params); j < n; j++)
            if (!collect_names(names, tow__nested(e->primitive, e->params, j))) return false;
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

/* Fields that a policy's kind does not read were given without it: with the kind of a zeroed struct they would silently
 * save nothing. */
static tow_status check_fields(tow_context *ctx, const tow_policy *p)
{
    if (!p) return TOW_OK;
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

static tow_status missing_name(tow_context *ctx, const char *name, const tow__names *there)
{
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
    tow_status status = missing.failed || list.failed ? TOW_OUT_OF_MEMORY : TOW_NOT_FOUND;
    if (status == TOW_NOT_FOUND)
        tow__fail(ctx, status,
                  "remat: the policy refers to the checkpoint name %s, which no value in the region has; expected one "
                  "of: %s",
                  missing.text, there->count > 0 ? list.text : "(no value in it is named)");
    tow__string_free(&missing);
    tow__string_free(&list);
    return status;
}

/* Reports the first name of `policy` that is not there: a misspelt name would change what is kept without a word. */
static tow_status check_names(tow_context *ctx, const tow_policy *policy, const tow__names *there)
{
    if (!policy) return TOW_OK;
    tow_status status = check_names(ctx, policy->a, there);
    if (status == TOW_OK) status = check_names(ctx, policy->b, there);
    for (const char *const *name = policy->names; status == TOW_OK && name && *name; name++)
        if (tow__names_find(there, *name) == TOW__NO_NAME) status = missing_name(ctx, *name, there);
    return status;
}

tow_status tow__policy_check(tow_context *ctx, const tow_policy *policy, const tow_graph *body)
{
    tow_status status = TOW_OK;
    tow__names there;
    tow__names_init(&there, ctx);
    if (!tow__policy_fits(policy, TOW__DEEPEST_POLICY))
        return tow__fail(ctx, TOW_UNSUPPORTED,
                         "remat: policies are nested more than %d deep in the policy; combine fewer",
                         TOW__DEEPEST_POLICY);
    TRY(check_fields(ctx, policy));
    if (!refers_to_names(policy)) goto done;
    TRY(collect_names(&there, body) ? TOW_OK : TOW_OUT_OF_MEMORY);
    TRY(check_names(ctx, policy, &there));
done:
    tow__names_free(&there);
    return status;
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
    if (!by_region || collect_names(&there, region)) copy = copy_policy(arena, policy, by_region ? &there : NULL);
    tow__names_free(&there);
    return copy;
}

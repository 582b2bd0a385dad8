/* Parts and wholes of lists of parameters: new lists that share the arrays of others. */
#include <stdlib.h>

#include "src/params/params.h"
#include "src/params/pattern.h"

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

/* " a b c ..." of the paths that there are, for messages; " //kernel/a //bias/b" with their kinds. */
static void add_known(tow__string *s, const tow_params *p, bool kinds)
{
    enum {
        MOST = 12
    };
    for (uint32_t i = 0; i < p->names.count && i < MOST; i++)
        tow__string_add(s, " %s%s%s%s", kinds ? "//" : "", kinds ? tow_param_kind_name(p->kinds[i]) : "",
                        kinds ? "/" : "", p->names.names[i]);
    if (p->names.count == 0) tow__string_add(s, " none");
    if (p->names.count > MOST) tow__string_add(s, " and %u more", p->names.count - MOST);
}

static tow_status fail_not_found(const tow_params *p, const char *caller, const char *what, const char *text)
{
    tow__string known;
    tow__string_init(&known, p->ctx);
    add_known(&known, p, strncmp(text, "//", 2) == 0);
    tow_status status = tow__fail(p->ctx, TOW_NOT_FOUND, "%s: %s \"%.200s\" matches no path; there are%.1200s", caller,
                                  what, text, known.text ? known.text : " ...");
    tow__string_free(&known);
    return status;
}

tow_status tow__params_check_patterns(const tow_params *p, const char *caller, const char *what,
                                      const char *const *patterns)
{
    for (; patterns && *patterns; patterns++) {
        uint32_t i = 0;
        while (i < p->names.count && !tow__param_matches(*patterns, p->names.names[i], p->kinds[i])) i++;
        if (i == p->names.count) return fail_not_found(p, caller, what, *patterns);
    }
    return TOW_OK;
}

bool tow__entry_wanted(const char *const *patterns, const tow_params *p, uint32_t i)
{
    if (!patterns) return true;
    while (*patterns && !tow__param_matches(*patterns, p->names.names[i], p->kinds[i])) patterns++;
    return *patterns != NULL;
}

bool tow__path_below(const char *path, const char *at)
{
    const size_t length = at ? strlen(at) : 0;
    return length == 0 || (strncmp(path, at, length) == 0 && path[length] == '/');
}

/* ---- lists that are being made ----------------------------------------------------------------------------------- */

/* Entry i under `path`, in another list. */
static tow_status append_entry(tow_params *to, const char *path, const tow_params *from, uint32_t i)
{
    return tow__params_append(to, path, from->arrays[i], from, i);
}

/* `made` goes to *list, or is freed after an error. */
static tow_status hand_out(tow_status status, tow_params *made, tow_params **list)
{
    if (status == TOW_OK)
        *list = made;
    else
        tow_params_free(made);
    return status;
}

/* ---- select, split, merge ---------------------------------------------------------------------------------------- */

static tow_status split(const tow_params *params, const char *caller, const char *const *patterns,
                        tow_params **selected, tow_params **rest)
{
    tow_params *lists[2] = {NULL, NULL};
    tow_status status = TOW_OK;
    TRY(tow__params_check_patterns(params, caller, "pattern", patterns));
    TRY(tow__params_create(params->ctx, &lists[0]));
    TRY(tow__params_create(params->ctx, &lists[1]));
    for (uint32_t i = 0; i < params->names.count; i++) {
        const char *path = params->names.names[i];
        TRY(append_entry(lists[tow__entry_wanted(patterns, params, i) ? 0 : 1], path, params, i));
    }
done:
    hand_out(status, lists[1], rest);
    return hand_out(status, lists[0], selected);
}

tow_status tow_params_split(const tow_params *params, const char *const *patterns, tow_params **selected,
                            tow_params **rest)
{
    if (selected) *selected = NULL;
    if (rest) *rest = NULL;
    if (!params || !patterns || !selected || !rest)
        return tow__missing(params ? params->ctx : NULL, __func__, "parameters, patterns and places for two lists");
    return split(params, __func__, patterns, selected, rest);
}

tow_status tow_params_select(const tow_params *params, const char *const *patterns, tow_params **selected)
{
    tow_params *rest = NULL;
    if (selected) *selected = NULL;
    if (!params || !patterns || !selected)
        return tow__missing(params ? params->ctx : NULL, __func__, "parameters, patterns and a place for the list");
    tow_status status = split(params, __func__, patterns, selected, &rest);
    tow_params_free(rest);
    return status;
}

tow_status tow_params_trainable(const tow_params *params, tow_params **trainable)
{
    if (trainable) *trainable = NULL;
    if (!params || !trainable)
        return tow__missing(params ? params->ctx : NULL, __func__, "parameters and a place for the list");
    tow_params *made = NULL;
    tow_status status = tow__params_create(params->ctx, &made);
    for (uint32_t i = 0; i < params->names.count && !status; i++)
        if (!params->frozen[i]) status = append_entry(made, params->names.names[i], params, i);
    return hand_out(status, made, trainable);
}

tow_status tow_params_merge(const tow_params *a, const tow_params *b, tow_merge conflicts, tow_params **merged)
{
    if (merged) *merged = NULL;
    if (!a || !b || !merged) return tow__missing(a ? a->ctx : NULL, __func__, "two lists and a place for a third");
    tow_status status = TOW_OK;
    tow_params *made = NULL;
    if (conflicts != TOW_MERGE_DISTINCT && conflicts != TOW_MERGE_FIRST && conflicts != TOW_MERGE_SECOND)
        return tow__fail(a->ctx, TOW_INVALID_ARGUMENT,
                         "tow_params_merge: expected TOW_MERGE_DISTINCT, _FIRST or _SECOND, found %d", (int)conflicts);
    TRY(tow__params_create(a->ctx, &made));
    for (uint32_t i = 0; i < a->names.count; i++) {
        const char *path = a->names.names[i];
        const uint32_t k = tow__names_find(&b->names, path);
        if (k != TOW__NO_NAME && conflicts == TOW_MERGE_DISTINCT)
            TRY(tow__fail(a->ctx, TOW_INVALID_ARGUMENT,
                          "tow_params_merge: both lists have %s; say which counts (TOW_MERGE_FIRST, TOW_MERGE_SECOND), "
                          "or rename one (tow_params_under, tow_params_rename)",
                          path));
        const bool second = k != TOW__NO_NAME && conflicts == TOW_MERGE_SECOND;
        TRY(append_entry(made, path, second ? b : a, second ? k : i));
    }
    for (uint32_t i = 0; i < b->names.count; i++)
        if (tow__names_find(&a->names, b->names.names[i]) == TOW__NO_NAME)
            TRY(append_entry(made, b->names.names[i], b, i));
done:
    return hand_out(status, made, merged);
}

/* ---- subtrees ---------------------------------------------------------------------------------------------------- */

/* The part of `entry` below `root`, or NULL. In place of a "{}" of the entry the root may have an index, which goes to
 * index[0..*levels). */
static const char *below(const char *entry, const char *root, int64_t *index, int *levels)
{
    *levels = 0;
    while (*root) {
        const size_t a = strcspn(entry, "/"), b = strcspn(root, "/");
        tow__numbering numbering;
        const bool stacked = tow__numbering_read(entry, a, &numbering);
        int64_t layer;
        if (stacked && tow__number_read(root, b, &layer)) {
            if (!tow__numbering_index(&numbering, layer, index + *levels)) return NULL;
            *levels += numbering.levels;
        } else if (a != b || memcmp(entry, root, a) != 0 || stacked) {
            return NULL; /* "{}" in a root would leave out an axis that the array has */
        }
        if (!entry[a]) return NULL;
        entry += a + 1;
        root += root[b] ? b + 1 : b;
    }
    return entry;
}

static tow_status append_below(tow_params *to, const tow_params *from, uint32_t i, const char *root)
{
    int64_t index[TOW_MAX_RANK];
    int levels;
    const char *path = below(from->names.names[i], root, index, &levels);
    if (!path) return TOW_OK;
    tow_array *view = NULL;
    tow_status status = tow__params_layer(from, i, levels, index, &view);
    if (status == TOW_INVALID_ARGUMENT)
        return tow__fail(from->ctx, status, "tow_params_subtree: %s: no such layer; %s is %s, one row for each layer",
                         root, from->names.names[i], tow__type_name(from->types[i]).text);
    if (status == TOW_OK) status = tow__params_append(to, path, view, from, i);
    tow_array_release(view);
    return status;
}

tow_status tow_params_subtree(const tow_params *params, const char *path, tow_params **part)
{
    if (part) *part = NULL;
    if (!params || !path || !part)
        return tow__missing(params ? params->ctx : NULL, __func__, "parameters, a path and a place for the list");
    tow_params *made = NULL;
    tow_status status = TOW_OK;
    TRY(tow__params_create(params->ctx, &made));
    for (uint32_t i = 0; i < params->names.count; i++) TRY(append_below(made, params, i, path));
    if (made->names.count == 0 && path[0]) TRY(fail_not_found(params, __func__, "the subtree", path));
done:
    return hand_out(status, made, part);
}

tow_status tow_params_under(const tow_params *params, const char *path, tow_params **whole)
{
    if (whole) *whole = NULL;
    if (!params || !path || !whole)
        return tow__missing(params ? params->ctx : NULL, __func__, "parameters, a path and a place for the list");
    if (!tow__is_path(path) || tow__path_levels(path) > 0)
        return tow__fail(params->ctx, TOW_INVALID_ARGUMENT,
                         "tow_params_under: expected a path such as \"encoder\" or \"models/0\", found \"%.200s\"",
                         path);
    tow_params *made = NULL;
    tow_status status = tow__params_create(params->ctx, &made);
    for (uint32_t i = 0; i < params->names.count && !status; i++) {
        tow__string name;
        tow__string_init(&name, params->ctx);
        tow__string_add(&name, "%s/%s", path, params->names.names[i]);
        status = name.failed ? TOW_OUT_OF_MEMORY : append_entry(made, name.text, params, i);
        tow__string_free(&name);
    }
    return hand_out(status, made, whole);
}

/* ---- other paths ------------------------------------------------------------------------------------------------- */

static tow_status check_rules(const tow_params *p, size_t n, const tow_path_rule *rules)
{
    for (size_t k = 0; k < n; k++) {
        const char *pattern = rules[k].pattern, *replacement = rules[k].replacement;
        if (!pattern || !replacement)
            return tow__missing(p->ctx, "tow_params_rename", "a pattern and a replacement in rule %zu", k);
        const int captures = tow__replacement_captures(replacement), stars = tow__pattern_stars(pattern);
        if (captures < 0 || captures > stars)
            return tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                             "tow_params_rename: rule %zu: \"%.200s\" for \"%.200s\": expected $0 to $%d, one for each "
                             "star of the pattern, or $$ for a dollar sign",
                             k, replacement, pattern, stars < TOW__MAX_CAPTURES ? stars : TOW__MAX_CAPTURES);
        tow_status status =
            tow__params_check_patterns(p, "tow_params_rename", "pattern", (const char *const[]){pattern, NULL});
        if (status) return status;
    }
    return TOW_OK;
}

/* Entry i under the path that the first rule gives it. */
static tow_status append_renamed(tow_params *to, const tow_params *from, uint32_t i, size_t n,
                                 const tow_path_rule *rules)
{
    const char *old = from->names.names[i];
    tow__string name;
    tow__string_init(&name, from->ctx);
    size_t k = 0;
    int axes[TOW_MAX_RANK];
    while (k < n && !tow__path_rewrite(rules[k].pattern, rules[k].replacement, old, from->kinds[i], &name)) k++;
    const char *path = k == n ? old : name.text ? name.text : "";
    tow_status status = TOW_OK;
    if (name.failed)
        status = TOW_OUT_OF_MEMORY;
    else if (!tow__is_path(path) || tow__path_axes(path, from->types[i].rank, axes) < 0)
        status =
            tow__fail(from->ctx, TOW_INVALID_ARGUMENT,
                      "tow_params_rename: %s (%s) would be called \"%.200s\"; expected components joined by '/', no "
                      "more \"{}\" among them than the array has axes",
                      old, tow__type_name(from->types[i]).text, path);
    else if (tow__names_find(&to->names, path) != TOW__NO_NAME)
        status = tow__fail(from->ctx, TOW_INVALID_ARGUMENT,
                           "tow_params_rename: %s would be called %s, as an entry before it; give them different paths",
                           old, path);
    else
        status = append_entry(to, path, from, i);
    tow__string_free(&name);
    return status;
}

tow_status tow_params_rename(const tow_params *params, size_t n, const tow_path_rule *rules, tow_params **renamed)
{
    if (renamed) *renamed = NULL;
    if (!params || (!rules && n > 0) || !renamed)
        return tow__missing(params ? params->ctx : NULL, __func__, "parameters, rules and a place for the list");
    tow_params *made = NULL;
    tow_status status = TOW_OK;
    TRY(check_rules(params, n, rules));
    TRY(tow__params_create(params->ctx, &made));
    for (uint32_t i = 0; i < params->names.count; i++) TRY(append_renamed(made, params, i, n, rules));
done:
    return hand_out(status, made, renamed);
}

/* ---- frozen ------------------------------------------------------------------------------------------------------ */

tow_status tow_params_freeze(tow_params *params, const char *const *patterns, bool frozen)
{
    if (!params) return tow__missing(NULL, __func__, "parameters");
    tow_status status = tow__params_check_patterns(params, __func__, "pattern", patterns);
    for (uint32_t i = 0; i < params->names.count && !status; i++)
        if (tow__entry_wanted(patterns, params, i)) params->frozen[i] = frozen;
    return status;
}

bool tow_params_is_frozen(const tow_params *params, size_t index)
{
    return index < params->names.count && params->frozen[index];
}

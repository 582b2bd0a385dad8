/* Links tensors to parameters: rules against the names of both sides, shapes against each other. */
#include <stdio.h>

#include "src/base/dtypes.h"
#include "src/weights/mapping.h"

#define NONE SIZE_MAX

tow_status tow__links_fail(const tow__links *l, tow_status status, const char *name, const char *format, ...)
{
    char why[1024];
    va_list args;
    va_start(args, format);
    if (vsnprintf(why, sizeof why, format, args) < 0) why[0] = '\0';
    va_end(args);
    return tow__fail(l->ctx, status, "%s%s%.300s: %s", l->where ? l->where : "", l->where ? ": " : "", name, why);
}

/* A status of tow__axes_solve with the names that its message does not have. */
static tow_status blame(const tow__links *l, const tow__tensor_rule *rule, const char *name, tow_status status)
{
    char why[512];
    if (status == TOW_OK || status == TOW_OUT_OF_MEMORY) return status;
    snprintf(why, sizeof why, "%.500s", tow_context_error(l->ctx));
    return tow__links_fail(l, status, name, "%s (%s:%d)", why, l->mapping->name, rule->line);
}

void tow__links_free(tow__links *l)
{
    if (l->links) tow__free(l->ctx, l->links, l->capacity, sizeof *l->links);
    if (l->by_ours) tow__free(l->ctx, l->by_ours, l->n_by_ours, sizeof *l->by_ours);
    l->links = NULL;
    l->by_ours = NULL;
}

static tow_status add_link(tow__links *l, tow__link **link)
{
    if (l->count == l->capacity) {
        const size_t capacity = l->capacity ? 2 * l->capacity : 64;
        tow__link *links = tow__grow(l->ctx, l->links, l->capacity, capacity, sizeof *links);
        if (!links) return TOW_OUT_OF_MEMORY;
        l->links = links;
        l->capacity = capacity;
    }
    *link = &l->links[l->count++];
    **link = (tow__link){.rule = NULL};
    return TOW_OK;
}

static const char *prefix_of(const tow__links *l) { return l->options->prefix ? l->options->prefix : ""; }

/* The path of a part: the prefix, then the pattern with its numbers. */
static tow_status add_path(const tow__links *l, const char *pattern, const tow__numbers *numbers, tow__string *path)
{
    tow__string_free(path);
    tow__string_init(path, l->ctx);
    tow__string_add(path, "%s", prefix_of(l));
    tow__pattern_expand(pattern, numbers, path);
    return path->failed ? TOW_OUT_OF_MEMORY : TOW_OK;
}

/* ---- both sides are there ---------------------------------------------------------------------------------------- */

/* Finds the parameters of a tensor. *found: how many there are. */
static tow_status find_parts(const tow__links *l, const tow__tensor_rule *rule, const tow__numbers *numbers,
                             size_t *ours, int *found)
{
    tow_status status = TOW_OK;
    tow__string path;
    tow__string_init(&path, l->ctx);
    *found = 0;
    for (int p = 0; p < rule->n_ours; p++) {
        TRY(add_path(l, rule->ours[p], numbers, &path));
        const ptrdiff_t index = tow__tensors_lookup(l->ours, path.text);
        ours[p] = index >= 0 ? (size_t)index : NONE;
        *found += index >= 0;
    }
done:
    tow__string_free(&path);
    return status;
}

static tow_status check_dtypes(const tow__links *l, const tow__tensor_rule *rule, size_t theirs, tow_dtype to)
{
    const char *name = l->theirs->items[theirs].name;
    const tow_dtype from = l->theirs->items[theirs].type.dtype;
    const bool blocks = tow__is_blocks(to);
    if (from == to || (blocks && tow__tensors_mapped(l->theirs, theirs, to))) return TOW_OK;
    const bool converts = blocks ? tow_dtype_is_float(from) : tow__file_converts(from, to);
    if (converts && l->options->convert) return TOW_OK;
    return tow__links_fail(l, TOW_TYPE_MISMATCH, name, "expected %s, found %s; %s (%s:%d)", tow_dtype_name(to),
                           tow_dtype_name(from),
                           converts ? "to convert it, load it with .convert" : "floats are not converted to integers",
                           l->mapping->name, rule->line);
}

/* Tensor `theirs` is the parameters `ours`. */
static tow_status join(tow__links *l, const tow__tensor_rule *rule, size_t theirs, const size_t *ours)
{
    const tow__tensor *tensor = &l->theirs->items[theirs];
    tow_type their_type = tensor->type, types[TOW__MAX_PARTS];
    tow_status status = TOW_OK;
    tow__link *link;
    TRY(tow__tensors_known(l->theirs, theirs));
    for (int p = 0; p < rule->n_ours; p++) {
        const tow__tensor *parameter = &l->ours->items[ours[p]];
        size_t *by = &l->by_ours[ours[p]];
        types[p] = parameter->type;
        if (*by)
            TRY(tow__links_fail(l, TOW_INVALID_ARGUMENT, tensor->name,
                                "'%.200s' is the parameter %.200s already; leave one out",
                                l->theirs->items[l->links[*by - 1].theirs].name, parameter->name));
        TRY(check_dtypes(l, rule, theirs, types[p].dtype));
        *by = l->count + 1;
        TRY(tow__report_add(l->report, TOW_FATE_PARAMETER, parameter->name));
    }
    TRY(add_link(l, &link));
    link->rule = rule;
    link->theirs = theirs;
    memcpy(link->ours, ours, (size_t)rule->n_ours * sizeof *ours);
    TRY(blame(l, rule, tensor->name,
              tow__is_blocks(types[0].dtype)
                  ? tow__axes_solve_blocks(l->ctx, rule, l->n_axes, l->axes, their_type, types, link->layouts)
                  : tow__axes_solve(l->ctx, rule, l->n_axes, l->axes, &their_type, types, link->layouts)));
    TRY(tow__report_add(l->report, TOW_FATE_TENSOR, tensor->name));
done:
    return status;
}

/* The other tensor of a rule "tied", by one of its names. */
static ptrdiff_t find_tied(const tow__links *l, const tow__tensor_rule *rule, const tow__numbers *numbers)
{
    tow__string name;
    ptrdiff_t index = -1;
    tow__string_init(&name, l->ctx);
    tow__pattern_expand(rule->ours[0], numbers, &name);
    if (!name.failed) index = tow__tensors_lookup(l->theirs, name.text);
    for (size_t i = 0; i < l->mapping->n_prefixes && index < 0 && !name.failed; i++) {
        const size_t length = strlen(l->mapping->prefixes[i]);
        if (strncmp(name.text, l->mapping->prefixes[i], length) == 0)
            index = tow__tensors_lookup(l->theirs, name.text + length);
    }
    tow__string_free(&name);
    return index;
}

static tow_status compare(tow__links *l, size_t theirs, size_t other, bool *equal)
{
    const tow__tensor *tensor = &l->theirs->items[theirs], *original = &l->theirs->items[other];
    tow_status status = TOW_OK;
    TRY(tow__tensors_load(l->theirs, theirs));
    TRY(tow__tensors_load(l->theirs, other));
    *equal = tow_type_equal(tensor->type, original->type) &&
             memcmp(tow_array_data(tensor->array), tow_array_data(original->array), tow_type_bytes(tensor->type)) == 0;
done:
    return status;
}

static tow_status check_tied(tow__links *l, const tow__tensor_rule *rule, const tow__numbers *numbers, size_t theirs)
{
    const tow__tensor *tensor = &l->theirs->items[theirs];
    const ptrdiff_t other = find_tied(l, rule, numbers);
    tow_status status = TOW_OK;
    bool equal;
    if (other < 0)
        return tow__links_fail(l, TOW_NOT_FOUND, tensor->name, "it is a copy of '%.200s', which is not there (%s:%d)",
                               rule->ours[0], l->mapping->name, rule->line);
    TRY(compare(l, theirs, (size_t)other, &equal));
    const tow__tensor *original = &l->theirs->items[other];
    if (!equal)
        return tow__links_fail(l, TOW_INVALID_ARGUMENT, tensor->name,
                               "expected a copy of %.200s, found other values: this model is not tied, use a mapping "
                               "that has a parameter for it (%s:%d)",
                               original->name, l->mapping->name, rule->line);
    TRY(tow__report_add(l->report, TOW_TIED, tensor->name));
done:
    return status;
}

/* The options say that the tensor is no parameter, or the rule does, which may be NULL. */
static bool is_ignored(const tow__links *l, const tow__tensor_rule *rule, const char *name)
{
    for (const char *const *ignored = l->options->ignored; ignored && *ignored; ignored++)
        if (strcmp(*ignored, name) == 0) return true;
    return rule && rule->kind == TOW__RULE_IGNORE;
}

static tow_status match_tensor(tow__links *l, size_t theirs)
{
    const char *name = l->theirs->items[theirs].name;
    tow__numbers numbers;
    const tow__tensor_rule *rule = tow__mapping_rule(l->mapping, name, &numbers);
    size_t ours[TOW__MAX_PARTS];
    tow_status status = TOW_OK;
    int found;
    if (is_ignored(l, rule, name)) return tow__report_add(l->report, TOW_FATE_IGNORED, name);
    if (!rule) return tow__report_add(l->report, TOW_FATE_UNUSED, name);
    if (rule->kind == TOW__RULE_TIED) return check_tied(l, rule, &numbers, theirs);
    TRY(find_parts(l, rule, &numbers, ours, &found));
    if (found == 0) {
        const tow__tensor_rule *copy = tow__mapping_tied(l->mapping, name, &numbers);
        if (copy) return check_tied(l, copy, &numbers, theirs);
        return tow__report_add(l->report, rule->optional ? TOW_FATE_OPTIONAL : TOW_FATE_UNUSED, name);
    }
    for (int p = 0; p < rule->n_ours; p++)
        if (ours[p] == NONE)
            TRY(tow__links_fail(l, TOW_NOT_FOUND, name,
                                "it is made of %d parameters, of which the model has %d only (%s:%d)", rule->n_ours,
                                found, l->mapping->name, rule->line));
    TRY(join(l, rule, theirs, ours));
done:
    return status;
}

/* Parameters below the prefix that no tensor is linked with. */
static tow_status report_missing(tow__links *l)
{
    const size_t length = strlen(prefix_of(l));
    tow_status status = TOW_OK;
    for (size_t i = 0; i < l->ours->count; i++) {
        const char *path = l->ours->items[i].name;
        tow__numbers numbers;
        int part;
        if (l->by_ours[i] || strncmp(path, prefix_of(l), length) != 0) continue;
        const tow__tensor_rule *rule = tow__mapping_rule_of_path(l->mapping, path + length, &part, &numbers);
        TRY(tow__report_add(l->report, rule && rule->optional ? TOW_FATE_OPTIONAL : TOW_FATE_MISSING, path));
    }
done:
    return status;
}

static tow_status begin(tow__links *l)
{
    l->n_by_ours = l->ours->count;
    l->by_ours = tow__alloc(l->ctx, l->n_by_ours, sizeof *l->by_ours);
    return l->by_ours ? TOW_OK : TOW_OUT_OF_MEMORY;
}

tow_status tow__links_match(tow__links *l)
{
    tow_status status = TOW_OK;
    TRY(begin(l));
    for (size_t i = 0; i < l->theirs->count; i++) TRY(match_tensor(l, i));
    TRY(report_missing(l));
done:
    return status;
}

/* ---- one side is made -------------------------------------------------------------------------------------------- */

/* The element type that floats get. */
static tow_dtype written(const tow__links *l, tow_dtype dtype)
{
    const tow_dtype chosen = l->options->dtype ? l->options->dtype : TOW_F32;
    return l->options->convert && tow_dtype_is_float(dtype) ? chosen : dtype;
}

static tow_status append(tow__links *l, tow_tensors *set, const char *name, tow_type type)
{
    bool duplicate;
    tow_status status = tow__tensors_append(set, name, type, &duplicate);
    if (status != TOW_OK || !duplicate) return status;
    return tow__links_fail(l, TOW_INVALID_ARGUMENT, name, "two tensors get this name; leave one out");
}

static tow_status make_parts(tow__links *l, size_t theirs, const tow__tensor_rule *rule, const tow__numbers *numbers)
{
    tow_type their_type = l->theirs->items[theirs].type, types[TOW__MAX_PARTS];
    tow_status status = TOW_OK;
    tow__string path;
    tow__link *link;
    tow__string_init(&path, l->ctx);
    TRY(tow__tensors_known(l->theirs, theirs));
    TRY(add_link(l, &link));
    link->rule = rule;
    link->theirs = theirs;
    for (int p = 0; p < rule->n_ours; p++) types[p] = tow_make_type(their_type.dtype, -1, NULL);
    TRY(blame(l, rule, l->theirs->items[theirs].name,
              tow__axes_solve(l->ctx, rule, l->n_axes, l->axes, &their_type, types, link->layouts)));
    for (int p = 0; p < rule->n_ours; p++) {
        types[p].dtype = written(l, their_type.dtype);
        TRY(add_path(l, rule->ours[p], numbers, &path));
        link->ours[p] = l->ours->count;
        TRY(append(l, l->ours, path.text, types[p]));
        TRY(tow__report_add(l->report, TOW_FATE_PARAMETER, path.text));
    }
    TRY(tow__report_add(l->report, TOW_FATE_TENSOR, l->theirs->items[theirs].name));
done:
    tow__string_free(&path);
    return status;
}

/* A tensor of an optional rule that is a copy of the tensor that a rule "tied" names: parameters are not made of it. */
static tow_status find_copy(tow__links *l, const tow__tensor_rule *rule, size_t theirs, bool *equal)
{
    tow__numbers numbers;
    const char *name = l->theirs->items[theirs].name;
    const tow__tensor_rule *tied = rule->optional ? tow__mapping_tied(l->mapping, name, &numbers) : NULL;
    const ptrdiff_t other = tied ? find_tied(l, tied, &numbers) : -1;
    *equal = false;
    return other >= 0 ? compare(l, theirs, (size_t)other, equal) : TOW_OK;
}

static tow_status make_parts_or_tie(tow__links *l, size_t theirs, const tow__tensor_rule *rule,
                                    const tow__numbers *numbers)
{
    bool equal;
    tow_status status = find_copy(l, rule, theirs, &equal);
    if (status != TOW_OK) return status;
    if (equal) return tow__report_add(l->report, TOW_TIED, l->theirs->items[theirs].name);
    return make_parts(l, theirs, rule, numbers);
}

tow_status tow__links_make_ours(tow__links *l)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < l->theirs->count; i++) {
        const char *name = l->theirs->items[i].name;
        tow__numbers numbers;
        const tow__tensor_rule *rule = tow__mapping_rule(l->mapping, name, &numbers);
        const bool ignored = is_ignored(l, rule, name);
        if (!rule || ignored)
            TRY(tow__report_add(l->report, ignored ? TOW_FATE_IGNORED : TOW_FATE_UNUSED, name));
        else if (rule->kind == TOW__RULE_TIED)
            TRY(check_tied(l, rule, &numbers, i));
        else
            TRY(make_parts_or_tie(l, i, rule, &numbers));
    }
    TRY(begin(l));
    for (size_t i = 0; i < l->count; i++)
        for (int p = 0; p < l->links[i].rule->n_ours; p++) l->by_ours[l->links[i].ours[p]] = i + 1;
done:
    return status;
}

/* The tensor of a rule whose first parameter is `first`. */
static tow_status make_tensor(tow__links *l, size_t first, const tow__tensor_rule *rule, const tow__numbers *numbers)
{
    size_t ours[TOW__MAX_PARTS];
    tow_type type = tow_make_type(l->ours->items[first].type.dtype, -1, NULL), types[TOW__MAX_PARTS];
    tow_status status = TOW_OK;
    tow__string name;
    tow__link *link;
    int found;
    tow__string_init(&name, l->ctx);
    TRY(find_parts(l, rule, numbers, ours, &found));
    for (int p = 0; p < rule->n_ours; p++) {
        if (ours[p] == NONE)
            TRY(tow__links_fail(l, TOW_NOT_FOUND, l->ours->items[first].name,
                                "the tensor is made of %d parameters, of which there are %d only (%s:%d)", rule->n_ours,
                                found, l->mapping->name, rule->line));
        TRY(tow__tensors_known(l->ours, ours[p]));
        types[p] = l->ours->items[ours[p]].type;
        if (types[p].dtype != type.dtype)
            TRY(tow__links_fail(l, TOW_TYPE_MISMATCH, l->ours->items[ours[p]].name,
                                "expected %s, as the other parameters of its tensor, found %s (%s:%d)",
                                tow_dtype_name(type.dtype), tow_dtype_name(types[p].dtype), l->mapping->name,
                                rule->line));
    }
    TRY(add_link(l, &link));
    link->rule = rule;
    memcpy(link->ours, ours, (size_t)rule->n_ours * sizeof *ours);
    TRY(blame(l, rule, l->ours->items[first].name,
              tow__axes_solve(l->ctx, rule, l->n_axes, l->axes, &type, types, link->layouts)));
    type.dtype = written(l, type.dtype);
    tow__pattern_expand(rule->theirs[0], numbers, &name);
    if (name.failed) TRY(TOW_OUT_OF_MEMORY);
    link->theirs = l->theirs->count;
    TRY(append(l, l->theirs, name.text, type));
    for (int p = 0; p < rule->n_ours; p++) {
        l->by_ours[ours[p]] = l->count;
        TRY(tow__report_add(l->report, TOW_FATE_PARAMETER, l->ours->items[ours[p]].name));
    }
    TRY(tow__report_add(l->report, TOW_FATE_TENSOR, name.text));
done:
    tow__string_free(&name);
    return status;
}

tow_status tow__links_make_theirs(tow__links *l)
{
    const size_t length = strlen(prefix_of(l));
    tow_status status = TOW_OK;
    TRY(begin(l));
    for (size_t i = 0; i < l->ours->count; i++) {
        const char *path = l->ours->items[i].name;
        tow__numbers numbers;
        int part;
        if (strncmp(path, prefix_of(l), length) != 0 || l->by_ours[i]) continue;
        const tow__tensor_rule *rule = tow__mapping_rule_of_path(l->mapping, path + length, &part, &numbers);
        if (!rule)
            TRY(tow__report_add(l->report, TOW_FATE_MISSING, path));
        else
            TRY(make_tensor(l, i, rule, &numbers));
    }
done:
    return status;
}

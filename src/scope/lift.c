/* Rules of lifted transforms: which parameters, variables and streams of keys the iterations of a scan (or the rows of
 * a vmap) have of their own, which are one for all, and which the layer inside does not have.
 *
 * A resolved scope is a copy of a scope as one entry sees it: iterations that share the entry are left out, so that its
 * parents say what its path, its axes and its keys are made of.
 *
 *   scope      "rnn" -- iteration -- "cell"                    path of a stacked entry: "rnn/{}/cell/kernel"
 *   resolved   "rnn" -- "cell"       for a shared entry        path: "rnn/cell/kernel"
 *   resolved   "rnn" -- iteration (axis 1) -- "cell"           path: "rnn/{@1}/cell/kernel"
 */
#include "src/scope/lift.h"

#include <stdio.h>

#include "tow/params.h"

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static const tow_lift_rule stacked = {.how = TOW_STACKED};

static bool is_one_for_all(tow_lifting how) { return how == TOW_SHARED || how == TOW_CARRIED; }

/* The rule of `lift` for "collection/below", where the axes of scans below do not count. scratch: room for both with a
 * '/' between them. */
static tow_lift_rule find_rule(const tow__lift *lift, const char *collection, const char *below, char *scratch)
{
    if (!lift) return stacked;
    size_t n = strlen(collection);
    memcpy(scratch, collection, n);
    scratch[n] = '/';
    if (scratch + n + 1 != below) tow__path_plain(below, scratch + n + 1);
    for (const tow_lift_rule *rule = lift->variables; rule && rule->pattern; rule++) {
        if (!tow_path_matches(rule->pattern, strchr(rule->pattern, '/') ? scratch : collection)) continue;
        if (lift->used) lift->used[rule - lift->variables] = true;
        return *rule;
    }
    return stacked;
}

static tow_lift_rule find_stream_rule(const tow__lift *lift, const char *stream)
{
    for (const tow_lift_rule *rule = lift ? lift->streams : NULL; rule && rule->pattern; rule++)
        if (tow_path_matches(rule->pattern, stream)) return *rule;
    return stacked;
}

/* ---- resolving --------------------------------------------------------------------------------------------------- */

typedef struct resolving {
    tow_trace *trace;
    const char *collection; /* NULL: none is asked for */
    const char *stream;     /* NULL: no keys are asked for */
    char *at;               /* the path below the scope that is looked at; there is room in front of it */
    tow__resolved *result;
    tow_lift_rule below; /* what the last iteration said; those that it counts on say the same */
} resolving;

static tow_lift_rule rule_at(resolving *r, const tow_scope *scope)
{
    tow_lift_rule rule = stacked;
    if (r->collection) rule = find_rule(scope->lift, r->collection, r->at, r->at - strlen(r->collection) - 1);
    return rule.how == TOW_STACKED && r->stream ? find_stream_rule(scope->lift, r->stream) : rule;
}

static void prepend(resolving *r, const char *component)
{
    size_t n = strlen(component);
    if (!r->collection) return;
    *--r->at = '/';
    r->at -= n;
    memcpy(r->at, component, n);
}

static const tow_scope *resolve(resolving *r, const tow_scope *scope);

/* A while, for keys of a stream that it splits. */
static const tow_scope *resolve_repeated(resolving *r, const tow_scope *scope)
{
    const tow_scope *parent = resolve(r, scope->parent);
    tow_scope *copy = tow__trace_alloc(r->trace, 1, sizeof *copy);
    if (!parent || !copy) return NULL;
    *copy = *scope;
    copy->parent = (tow_scope *)parent;
    copy->path = parent->path;
    copy->name = "";
    return copy;
}

/* The last component of a resolved scope: of an iteration of a loop with the axis. NULL: out of memory. */
static const char *component_of(resolving *r, const tow_scope *copy)
{
    tow__numbering numbering;
    if (copy->axis == 0 || !copy->iteration) return copy->name;
    char *name = tow__trace_alloc(r->trace, TOW__NUMBERING_SIZE, 1);
    tow__scope_numbering(copy, &numbering);
    if (name) tow__numbering_write(&numbering, name);
    return name;
}

static const tow_scope *resolve(resolving *r, const tow_scope *scope)
{
    const bool iteration = tow__scope_is_iteration(scope);
    tow_lift_rule rule = stacked;
    if (scope->lift) {
        rule = scope->covered ? r->below : rule_at(r, scope);
        if (iteration) r->below = rule;
        if (rule.how == TOW_HIDDEN) r->result->hidden = scope;
        if (iteration && is_one_for_all(rule.how)) {
            r->result->how = rule.how;
            r->result->in_unrolled = r->result->in_unrolled || scope->fixed >= 0;
            return resolve(r, scope->parent);
        }
    }
    if (!scope->parent) return scope;
    if (scope->transparent && scope->repeated && !r->collection && rule.how == TOW_STACKED)
        return resolve_repeated(r, scope);
    if (scope->transparent) return resolve(r, scope->parent);
    if (!scope->covered) prepend(r, scope->name);
    const tow_scope *parent = resolve(r, scope->parent);
    tow_scope *copy = tow__trace_alloc(r->trace, 1, sizeof *copy);
    if (!parent || !copy) return NULL;
    *copy = *scope;
    copy->parent = (tow_scope *)parent;
    copy->axis = iteration ? rule.axis : 0;
    if (scope->covered) {
        copy->path = parent->path;
        return copy;
    }
    const char *name = component_of(r, copy);
    const size_t prefix = strlen(parent->path), size = prefix + (name ? strlen(name) : 0) + 2;
    char *path = tow__trace_alloc(r->trace, size, 1);
    if (!name || !path) return NULL;
    snprintf(path, size, "%s%s%s", parent->path, prefix ? "/" : "", name);
    copy->path = path;
    copy->name = path + (prefix ? prefix + 1 : 0);
    return copy;
}

/* collection, stream: one or both. */
static bool resolve_for(const tow_scope *scope, const char *collection, const char *name, const char *stream,
                        tow__resolved *result)
{
    *result = (tow__resolved){.scope = scope};
    if (!scope->lifted) return true;
    resolving r = {.trace = scope->model->trace, .collection = collection, .stream = stream, .result = result};
    if (collection) {
        size_t length = strlen(name), size = strlen(collection) + strlen(scope->path) + length + 4;
        char *buffer = tow__trace_alloc(r.trace, size, 1);
        if (!buffer) return false;
        r.at = buffer + size - length - 1;
        memcpy(r.at, name, length);
    }
    result->scope = resolve(&r, scope);
    return result->scope != NULL;
}

bool tow__resolve(const tow_scope *scope, const char *collection, const char *name, tow__resolved *result)
{
    return resolve_for(scope, collection, name, NULL, result);
}

bool tow__resolve_stream(const tow_scope *scope, const char *stream, tow__resolved *result)
{
    return resolve_for(scope, NULL, NULL, stream, result);
}

const tow_scope *tow__resolve_draw(const tow_scope *scope, const char *collection, const char *name)
{
    tow__resolved result;
    return resolve_for(scope, collection, name, "params", &result) ? result.scope : scope;
}

const char *tow__entry_path(const tow_scope *resolved, const char *collection, const char *name)
{
    size_t size = (collection ? strlen(collection) : 0) + strlen(resolved->path) + strlen(name) + 3;
    char *path = tow__trace_alloc(resolved->model->trace, size, 1);
    if (path)
        snprintf(path, size, "%s%s%s%s%s", collection ? collection : "", collection ? "/" : "", resolved->path,
                 resolved->path[0] ? "/" : "", name);
    return path;
}

/* ---- which entries belong to an iteration ------------------------------------------------------------------------ */

tow_lift_rule tow__rule_below(const tow_scope *scope, const char *collection, const char *below)
{
    if (!scope->lift) return stacked;
    char *scratch = tow__trace_alloc(scope->model->trace, strlen(collection) + strlen(below) + 2, 1);
    return scratch ? find_rule(scope->lift, collection, below, scratch) : stacked;
}

/* True if the component of length n names the iteration, on whatever axis: *axis. */
static bool names_iteration(const tow_scope *iteration, const char *component, size_t n, int *axis)
{
    tow__numbering found, own;
    *axis = 0;
    if (!iteration->iteration) return n == strlen(iteration->name) && memcmp(component, iteration->name, n) == 0;
    if (!tow__numbering_read(component, n, &found) || !tow__scope_numbering(iteration, &own)) return false;
    *axis = found.axis;
    return tow__numbering_alike(&found, &own);
}

const char *tow__entry_below(const tow_scope *scope, const char *collection, const char *path, tow_lift_rule *rule)
{
    tow_lift_rule outer, here;
    *rule = stacked;
    if (!scope->parent) return path;
    const char *rest = tow__entry_below(scope->parent, collection, path, &outer);
    if (!rest || scope->transparent) return rest;
    size_t n = strcspn(rest, "/");
    const char *after = rest[n] ? rest + n + 1 : NULL;
    if (scope->covered) {
        tow__numbering numbering;
        const bool numbered = after && tow__numbering_read(rest, n, &numbering);
        *rule = tow__rule_below(scope, collection, numbered ? after : rest);
        return numbered && rule->how == TOW_STACKED && rule->axis != numbering.axis ? NULL : rest;
    }
    if (!tow__scope_is_iteration(scope))
        return after && n == strlen(scope->name) && memcmp(rest, scope->name, n) == 0 ? after : NULL;
    int axis;
    const bool named = after && names_iteration(scope, rest, n, &axis);
    here = named ? tow__rule_below(scope, collection, after) : stacked;
    *rule = here;
    if (named && !is_one_for_all(here.how)) return !scope->iteration || axis == here.axis ? after : NULL;
    *rule = tow__rule_below(scope, collection, rest);
    return is_one_for_all(rule->how) ? rest : NULL;
}

const char *tow__collection_of(tow__model *model, const char *path, const char **below)
{
    size_t length = strcspn(path, "/");
    char *collection = tow__trace_alloc(model->trace, length + 1, 1);
    if (collection) memcpy(collection, path, length);
    *below = path + length + (path[length] == '/');
    return collection;
}

/* ---- checking ---------------------------------------------------------------------------------------------------- */

static bool is_of_params(const char *pattern)
{
    return strcmp(pattern, "params") == 0 || tow__path_in(pattern, "params");
}

/* True for collections of sown values: only calls in which the collection is mutable have it. */
static bool may_match_nothing(const char *pattern)
{
    return strcmp(pattern, "intermediates") == 0 || tow__path_in(pattern, "intermediates");
}

/* One of the lists of a transform, while it is checked. */
typedef struct rule_list {
    tow_scope *scope;
    const char *transform, *name; /* "scan", "variables" */
    tow__lift_kind kind;
    bool streams;
} rule_list;

static const char *const lifting_names[] = {"TOW_STACKED", "TOW_SHARED", "TOW_CARRIED", "TOW_HIDDEN"};

/* Why a rule means nothing for what the pattern matches; NULL: it means something. */
static const char *find_fault(const rule_list *l, const char *pattern, tow_lifting how)
{
    const bool shared = how == TOW_SHARED, carried = how == TOW_CARRIED;
    if (how < TOW_STACKED || how > TOW_HIDDEN) return "which is no rule";
    if (l->kind == TOW__LIFT_ONCE && (shared || carried)) return "but there are no iterations";
    if (l->kind == TOW__LIFT_REPEATS && how == TOW_STACKED && !l->streams)
        return "but how many iterations there are is known only when the model runs";
    if (l->kind == TOW__LIFT_ROWS && carried) return "but rows are computed at once";
    return carried && (l->streams || is_of_params(pattern)) ? "but no call changes it" : NULL;
}

/* "TOW_STACKED, TOW_SHARED or TOW_HIDDEN": what means something for the pattern. */
static void write_expected(const rule_list *l, const char *pattern, char text[64])
{
    size_t n = 0, length = 0;
    tow_lifting fine[4];
    for (int how = TOW_STACKED; how <= TOW_HIDDEN; how++)
        if (!find_fault(l, pattern, (tow_lifting)how)) fine[n++] = (tow_lifting)how;
    for (size_t i = 0; i < n; i++) {
        const char *joint = i + 1 < n ? ", " : " or ";
        length += (size_t)snprintf(text + length, 64 - length, "%s%s", i ? joint : "", lifting_names[fine[i]]);
    }
}

static bool check_how(const rule_list *l, const tow_lift_rule *rule)
{
    const char *fault = find_fault(l, rule->pattern, rule->how);
    if (!fault) return true;
    char expected[64], number[24];
    const bool known = rule->how >= TOW_STACKED && rule->how <= TOW_HIDDEN;
    write_expected(l, rule->pattern, expected);
    snprintf(number, sizeof number, "%d", (int)rule->how);
    tow_scope_fail(l->scope, TOW_INVALID_ARGUMENT, "%s: .%s: \"%s\" is %s, %s; expected %s", l->transform, l->name,
                   rule->pattern, known ? lifting_names[rule->how] : number, fault, expected);
    return false;
}

/* False, reported: the rule has an axis, but stacks nothing there. */
static bool check_axis(const rule_list *l, const tow_lift_rule *rule)
{
    const bool fits = rule->axis >= -TOW_MAX_RANK && rule->axis < TOW_MAX_RANK;
    const bool stacks = l->kind == TOW__LIFT_ROWS || l->kind == TOW__LIFT_LAYERS;
    if (rule->axis == 0 || (fits && stacks && !l->streams && rule->how == TOW_STACKED)) return true;
    tow_scope_fail(l->scope, TOW_INVALID_ARGUMENT,
                   "%s: .%s: \"%s\" has .axis = %d%s; expected one in [%d, %d), of variables that a scan or vmap has "
                   "under TOW_STACKED, else 0",
                   l->transform, l->name, rule->pattern, rule->axis,
                   l->streams ? ", but keys are in no array"
                   : !stacks  ? ", but the transform stacks nothing"
                              : "",
                   -TOW_MAX_RANK, TOW_MAX_RANK);
    return false;
}

/* Returns the count of rules; -1: one is not allowed, which was reported. */
static int check_list(const rule_list *l, const tow_lift_rule *rules)
{
    int n = 0;
    for (; rules && rules[n].pattern; n++)
        if (!check_how(l, &rules[n]) || !check_axis(l, &rules[n])) return -1;
    return n;
}

tow__lift *tow__lift_make(tow_scope *scope, const char *transform, tow__lift_kind kind, const tow_lift_rule *variables,
                          const tow_lift_rule *streams)
{
    tow_trace *t = scope->model->trace;
    const int n = check_list(&(rule_list){scope, transform, "variables", kind, false}, variables),
              n_streams = check_list(&(rule_list){scope, transform, "streams", kind, true}, streams);
    if (n < 0 || n_streams < 0 || (n == 0 && n_streams == 0)) return NULL;
    tow__lift *lift = tow__trace_alloc(t, 1, sizeof *lift);
    bool *used = tow__trace_alloc(t, (size_t)n + 1, sizeof *used);
    if (lift) *lift = (tow__lift){variables, streams, used};
    return used ? lift : NULL;
}

void tow__lift_check_used(tow_scope *scope, const char *transform, const tow__lift *lift)
{
    const tow_lift_rule *rules = lift ? lift->variables : NULL;
    for (const tow_lift_rule *rule = rules; rule && rule->pattern && !tow__scope_failed(scope); rule++)
        if (rule->how != TOW_HIDDEN && !may_match_nothing(rule->pattern) && !lift->used[rule - lift->variables])
            tow_scope_fail(
                scope, TOW_NOT_FOUND,
                "%s: .variables: \"%s\" matches no parameter and no variable of the layer, or only what earlier "
                "rules match; expected a collection (\"params\"), or a pattern of collection/path below it",
                transform, rule->pattern);
}

/* The entries that layers ask for, as they are stored: parameters by their paths, variables of all other collections by
 * "collection/path". Of layers in loops an entry has the axes of all iterations. While a model is initialized entries
 * are recorded with what they will be drawn by; else they must be in the lists that are given. */
#include "src/scope/store.h"

#include <stdio.h>

#include "src/base/dtypes.h"
#include "src/scope/frames.h"
#include "src/scope/initializers.h"
#include "src/scope/lift.h"

/* ---- axes of iterations ------------------------------------------------------------------------------------------ */

/* `type` with an axis for every scan around a resolved scope, and how many these are. False: rank beyond the limit. */
static bool add_axes(const tow_scope *scope, tow_type type, tow_type *stacked, int *levels)
{
    *levels = 0;
    for (const tow_scope *s = scope; s; s = s->parent) {
        if (!s->iteration) continue;
        if (type.rank == TOW_MAX_RANK) return false;
        const int found = tow__axis_at(s->axis, ++type.rank), at = found < 0 ? 0 : found; /* check_axes reports it */
        memmove(type.dims + at + 1, type.dims + at, (size_t)(type.rank - 1 - at) * sizeof type.dims[0]);
        type.dims[at] = s->level->length;
        ++*levels;
    }
    *stacked = type;
    return true;
}

/* False, reported: a rule stacks the entry of this type, for one layer, on an axis that it does not have then. */
static bool check_axes(const tow_scope *resolved, const char *kind, const char *path, tow_type type)
{
    int rank = type.rank; /* with the axes of unrolled iterations, which have the same rules */
    for (const tow_scope *s = resolved; s; s = s->parent) {
        if (!tow__scope_is_iteration(s)) continue;
        rank++;
        if (tow__axis_at(s->axis, rank) >= 0) continue;
        tow__params_fail(
            resolved->model, TOW_INVALID_ARGUMENT,
            "%s%s: a rule of the transform %s stacks it on axis %d, but it is %s in one layer; expected an axis in "
            "[%d, %d); change .axis, or give this path a rule of its own before that one",
            kind, path, s->parent->path[0] ? s->parent->path : "around the model", s->axis, tow__type_name(type).text,
            -rank, rank);
        return false;
    }
    return true;
}

tow_type tow__seen_type(const tow_scope *s, tow_type stacked_type)
{
    if (!s) return stacked_type;
    tow_type type = tow__seen_type(s->parent, stacked_type);
    const int at = s->iteration ? tow__axis_at(s->axis, type.rank) : -1;
    if (at < 0) return type;
    memmove(type.dims + at, type.dims + at + 1, (size_t)(type.rank - at - 1) * sizeof type.dims[0]);
    type.rank--;
    return type;
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

static tow_status reserve_recipe(tow_context *ctx, tow__store *store)
{
    if (store->list->names.count < store->recipe_capacity) return TOW_OK;
    uint32_t capacity = store->recipe_capacity ? 2 * store->recipe_capacity : 16;
    tow__recipe *recipes = tow__grow(ctx, store->recipes, store->recipe_capacity, capacity, sizeof *recipes);
    if (!recipes) return TOW_OUT_OF_MEMORY;
    store->recipes = recipes;
    store->recipe_capacity = capacity;
    return TOW_OK;
}

/* A body that Flax would compile: an iteration with its keys is around. */
static bool is_compiled(const tow_scope *scope)
{
    while (scope && (!scope->flax_keys || scope->mapped)) scope = scope->parent;
    return scope != NULL;
}

/* The first iteration of an unrolled scan draws an entry that all of them share. The others count that draw, as the
 * iterations of a loop do: once, when they first ask for the entry. */
static bool asks_first(tow_scope *scope, const char *path)
{
    size_t size = strlen(path) + 8;
    char *asked = tow__trace_alloc(scope->model->trace, size, 1);
    if (!asked) return false;
    snprintf(asked, size, "asked %s", path);
    return tow__scope_count(scope, asked) == 1;
}

/* While initializing: a new entry at `path`, or the entry `index` whose draw did not count. draws: takes one draw of
 * "params" in `scope`. */
static void record_entry(tow_scope *scope, const tow__resolved *resolved, tow__store *store, const char *path,
                         uint32_t index, tow_type stacked, tow_param_kind kind, tow__recipe recipe, bool draws)
{
    const bool first = draws && resolved->in_unrolled && asks_first(scope, path);
    if (index == TOW__NO_NAME) {
        index = store->list->names.count;
        if (reserve_recipe(scope->model->ctx, store) || tow__params_add(store->list, path, stacked)) {
            tow_scope_fail(scope, TOW_OUT_OF_MEMORY, "no memory for %s", path);
            return;
        }
        store->list->kinds[index] = kind;
    } else if (!store->recipes[index].stale) {
        if (first) tow__scope_count(scope, "params");
        return;
    }
    if (draws) recipe.counter = tow__scope_count(scope, "params");
    recipe.scope = resolved->scope;
    recipe.init.compiled = recipe.init.compiled || is_compiled(recipe.scope);
    recipe.recorded = store->recorded++;
    store->recipes[index] = recipe;
}

/* While initializing: whether the resolved `scope` is of the same layer as the one that recorded the entry `index`.
 * False, reported: the component that is the iteration of an unrolled scan in one is a child with a number for its name
 * in the other. */
static bool is_same_layer(const tow_scope *scope, const tow__store *store, uint32_t index, const char *kind)
{
    const tow_scope *a = scope, *b = store->recipes[index].scope;
    while (a->parent && b->parent && tow__scope_is_iteration(a) == tow__scope_is_iteration(b)) {
        a = a->parent;
        b = b->parent;
    }
    if (!a->parent || !b->parent) return true;
    tow__params_fail(scope->model, TOW_INVALID_ARGUMENT,
                     "%s%s: iteration %s of the scan %s and the child \"%s\" of that scope both ask for it; give the "
                     "child another name",
                     kind, store->list->names.names[index], a->name, a->parent->path, b->name);
    return false;
}

/* ---- collections and names --------------------------------------------------------------------------------------- */

static bool has_collection(const tow__store *store, const char *collection)
{
    for (uint32_t i = 0; i < store->list->names.count; i++)
        if (tow__path_in(store->list->names.names[i], collection)) return true;
    return false;
}

bool tow__collection_mutable(const tow__model *m, const char *collection)
{
    return tow__collection_listed(m->mutable_collections, collection) ||
           (tow__collection_listed(m->mutable_collections, TOW_EVERY_COLLECTION) &&
            has_collection(&m->state, collection));
}

bool tow_is_mutable(const tow_scope *scope, const char *collection)
{
    if (!collection) return false;
    if (scope->model->initializing)
        return strcmp(collection, "params") != 0 && strcmp(collection, "intermediates") != 0;
    return tow__collection_mutable(scope->model, collection);
}

/* The path of a variable, or NULL after an error; *resolved: how the scope sees it. */
const char *tow__checked_path(tow_scope *scope, const char *collection, const char *name, tow__resolved *resolved)
{
    if (tow__scope_failed(scope)) return NULL;
    const char *of_collection = tow__component_fault(collection), *fault = tow__component_fault(name);
    if (!of_collection && strcmp(collection, TOW_EVERY_COLLECTION) == 0) of_collection = "stands for all collections";
    if (of_collection || fault) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "variable \"%s\" of collection \"%s\": the %s %s; expected two names without '/'",
                       name ? name : "(null)", collection ? collection : "(null)",
                       of_collection ? "collection" : "name", of_collection ? of_collection : fault);
        return NULL;
    }
    if (strcmp(collection, "params") == 0) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "variable \"%s\": the collection \"params\" holds parameters, which no call changes; ask for "
                       "them with tow_param",
                       name);
        return NULL;
    }
    return tow__resolve(scope, collection, name, resolved) ? tow__entry_path(resolved->scope, collection, name) : NULL;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

bool tow__is_param(const tow_variable_request *request) { return strcmp(request->collection, "params") == 0; }

tow_param_kind tow__request_kind(const tow_variable_request *request)
{
    return request->kind == TOW_PARAM_DEFAULT ? tow__param_kind_of(request->name, request->type.rank) : request->kind;
}

/* False, reported: a transform hides the entry. kind: "params/" or "". */
static bool check_visible(tow_scope *scope, const char *kind, const char *path, const tow__resolved *resolved)
{
    if (!resolved->hidden) return true;
    tow__params_fail(
        scope->model, TOW_NOT_FOUND,
        "%s%s: a rule of the transform %s hides it from the layers in it, which ask for it; leave TOW_HIDDEN "
        "out",
        kind, path, resolved->hidden->path[0] ? resolved->hidden->path : "around the model");
    return false;
}

/* The error of an entry that is not there. param: a parameter, else a variable. */
static void fail_missing(tow__model *m, bool param, const char *path, const char *wanted)
{
    const tow__names *names = &(param ? &m->params : &m->state)->list->names;
    const char *first = names->count ? names->names[0] : "none";
    if (m->initializing)
        tow__params_fail(m, TOW_NOT_FOUND, "%s: no such variable; declare it with tow_variable first", path);
    else if (param)
        tow__params_fail(
            m, TOW_NOT_FOUND,
            "params/%s: the model asks for %s, the parameters given have no such path (%u paths, the first is %s); "
            "initialize them with the same model, or pass them through tow_params_unstack, tow_params_stack or "
            "tow_params_to_tensors and tow_params_from_tensors if only the scans differ",
            path, wanted, names->count, first);
    else
        tow__params_fail(m, TOW_NOT_FOUND,
                         "%s: the model asks for %s, the variables given have no such path (%u paths, the first is "
                         "%s); make them with tow_model_init_with and pass them as tow_model_options.state",
                         path, wanted, names->count, first);
}

/* The entry is there, of the type `found`, but the layer asks for `wanted`. */
static void fail_type(tow__model *m, bool param, const char *path, tow_type wanted, tow_type found)
{
    const bool of_type = param && found.dtype != wanted.dtype;
    const char *advice =
        m->initializing
            ? (param ? "give two layers different names, or equal sizes and types if they share the parameter"
                     : "give two layers different names, or equal sizes if they share the variable")
        : of_type ? "set .param_dtype of the layers, or of a TOW_PRECISION around them, to that type"
        : param   ? "use the sizes that the parameters were initialized with"
                  : "use the sizes that the variables were initialized with";
    tow__params_fail(m, of_type ? TOW_TYPE_MISMATCH : TOW_SHAPE_MISMATCH,
                     "%s%s: the layer asks for %s, the %s is %s; %s", param ? "params/" : "", path,
                     tow__type_name(wanted).text, param ? "parameter" : "variable", tow__type_name(found).text, advice);
}

/* The type with the axes of the scans around. False, reported: there is none. */
static bool stack_type(tow_scope *scope, const tow_variable_request *request, const tow_scope *resolved,
                       tow_type *stacked, int *levels)
{
    const bool param = tow__is_param(request);
    const tow_type type = request->type;
    if ((!param || tow_dtype_is_float(type.dtype) || tow__is_blocks(type.dtype)) && tow__type_valid(type) &&
        add_axes(resolved, type, stacked, levels))
        return true;
    if (param)
        tow_scope_fail(
            scope, TOW_INVALID_ARGUMENT,
            "parameter \"%s\": expected a float type that with the scans around it has a rank of 0 to %d, no "
            "negative dimension and less than 2^60 bytes, found %s (rank %d)",
            request->name, TOW_MAX_RANK, tow__type_name(type).text, type.rank);
    else
        tow_scope_fail(
            scope, TOW_INVALID_ARGUMENT,
            "variable \"%s\": %s, with the scans around it, exceeds rank %d or 2^60 bytes, or has a negative "
            "dimension",
            request->name, tow__type_name(type).text, TOW_MAX_RANK);
    return false;
}

/* A stand-in for a parameter while nothing is computed. */
static tow_value zeros(tow_trace *trace, tow_type type)
{
    const tow_dtype dtype = type.dtype;
    if (!tow__is_blocks(dtype) || type.rank == 0) return tow_full(trace, type, 0);
    type.dtype = TOW_F32;
    type.dims[type.rank - 1] *= tow_dtype_numbers(dtype);
    return tow_quantize(tow_full(trace, type, 0), dtype);
}

/* The entry that a layer declares, at `path`, which `resolved` has led to. */
static tow_value request_entry(tow_scope *scope, const tow_variable_request *request, const tow__resolved *resolved,
                               const char *path)
{
    tow__model *m = scope->model;
    const bool param = tow__is_param(request);
    const char *kind = param ? "params/" : "";
    tow__store *store = param ? &m->params : &m->state;
    tow_type stacked = request->type;
    int levels = 0;
    if (!check_visible(scope, kind, path, resolved) ||
        !stack_type(scope, request, resolved->scope, &stacked, &levels) ||
        !check_axes(resolved->scope, kind, path, request->type))
        return (tow_value){0};
    const uint32_t index = tow__names_find(&store->list->names, path);
    if (index == TOW__NO_NAME && !m->initializing) {
        fail_missing(m, param, path, tow__type_name(stacked).text);
        return (tow_value){0};
    }
    if (index != TOW__NO_NAME && !tow_type_equal(store->list->types[index], stacked)) {
        fail_type(m, param, path, stacked, store->list->types[index]);
        return (tow_value){0};
    }
    if (m->initializing) {
        if (index != TOW__NO_NAME && !is_same_layer(resolved->scope, store, index, kind)) return (tow_value){0};
        const tow__recipe recipe = {.keys = tow__resolve_draw(scope, request->collection, request->name),
                                    .init = request->init,
                                    .levels = levels};
        const bool draws = param || tow__init_draws(&request->init); /* parameters of zeros and ones draw, as in Flax */
        record_entry(scope, resolved, store, path, index, stacked, tow__request_kind(request), recipe, draws);
        return zeros(m->trace, request->type);
    }
    store->used[index] = true;
    return param ? tow__param_value(m, index) : tow__variable_value(m, index);
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

bool tow__check_param_request(tow_scope *scope, const tow_variable_request *request)
{
    const tow_initializer *init = &request->init;
    const char *fault = tow__component_fault(request->name);
    if (request->kind != TOW_PARAM_DEFAULT && !tow__is_param_kind(request->kind)) {
        tow_scope_fail(
            scope, TOW_INVALID_ARGUMENT,
            "parameter \"%s\": %d is no kind of parameter; expected TOW_PARAM_BIAS or another tow_param_kind",
            request->name ? request->name : "NULL", (int)request->kind);
        return false;
    }
    if (!fault && init->fill && request->type.rank >= 0) return true;
    tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                   "parameter \"%s\": expected a name without '/', dimensions, and an initializer such as "
                   "tow_initializer_zeros(), found no %s%s",
                   request->name ? request->name : "NULL",
                   fault                              ? "such name: it "
                   : init->fill                       ? "dimensions"
                   : tow_initializer_is_default(init) ? "initializer"
                                                      : "function .fill in an initializer with options",
                   fault ? fault : "");
    return false;
}

tow_value tow__stored_param(tow_scope *scope, const tow_variable_request *request)
{
    tow__resolved resolved;
    if (tow__scope_failed(scope) || !tow__check_param_request(scope, request) ||
        !tow__resolve(scope, "params", request->name, &resolved))
        return (tow_value){0};
    const char *path = tow__entry_path(resolved.scope, NULL, request->name);
    return path ? request_entry(scope, request, &resolved, path) : (tow_value){0};
}

/* ---- variables --------------------------------------------------------------------------------------------------- */

/* Index of a variable that must be there, else TOW__NO_NAME after an error. */
static uint32_t find_variable(tow_scope *scope, const char *collection, const char *name, const char **path,
                              tow__resolved *resolved)
{
    tow__model *m = scope->model;
    *path = tow__checked_path(scope, collection, name, resolved);
    if (!*path || !check_visible(scope, "", *path, resolved)) return TOW__NO_NAME;
    uint32_t index = tow__names_find(&m->state.list->names, *path);
    if (index == TOW__NO_NAME)
        fail_missing(m, false, *path, "it");
    else if (!m->initializing)
        m->state.used[index] = true;
    return index;
}

tow_value tow__stored_variable(tow_scope *scope, const tow_variable_request *request)
{
    tow__model *m = scope->model;
    const char *path;
    tow__resolved resolved;
    if (!tow__request_of_any_type(request)) {
        path = tow__checked_path(scope, request->collection, request->name, &resolved);
        return path ? request_entry(scope, request, &resolved, path) : (tow_value){0};
    }
    uint32_t index = find_variable(scope, request->collection, request->name, &path, &resolved);
    if (index == TOW__NO_NAME) return (tow_value){0};
    if (m->initializing) return tow_full(m->trace, tow__seen_type(resolved.scope, m->state.list->types[index]), 0);
    return tow__variable_value(m, index);
}

void tow__store_variable(tow_scope *scope, const tow_variable_request *request, tow_value value)
{
    tow__model *m = scope->model;
    const char *collection = request->collection, *name = request->name, *path;
    tow__resolved resolved;
    uint32_t index = find_variable(scope, collection, name, &path, &resolved);
    if (index == TOW__NO_NAME || !tow__check_returned(scope, path, "the variable is written")) return;
    if (!tow_is_mutable(scope, collection)) {
        tow__params_fail(m, TOW_INVALID_ARGUMENT,
                         "%s: cannot be written, the collection \"%s\" is immutable in this call; name it in "
                         "tow_model_options.mutable_collections%s, or write only where tow_is_mutable(scope, \"%s\")",
                         path, collection,
                         m->deterministic ? ""
                                          : ", or set tow_model_options.deterministic for evaluation, in which "
                                            "BatchNorm and the like only read",
                         collection);
        return;
    }
    tow_type type = tow__seen_type(resolved.scope, m->state.list->types[index]), found = tow_value_type(value);
    if (tow_is_null(value) || !tow_type_equal(type, found)) {
        tow__params_fail(m, TOW_TYPE_MISMATCH, "%s: expected %s as its new value, found %s; a variable keeps its type",
                         path, tow__type_name(type).text,
                         tow_is_null(value) ? "the null value" : tow__type_name(found).text);
        return;
    }
    if (!m->initializing) tow__variable_write(m, index, value);
}

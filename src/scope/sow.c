/* Sown values, which a call hands out besides its outputs, each by itself or made together (see tow_sow). And
 * perturbations. */
#include <stdio.h>

#include "src/scope/frames.h"
#include "src/scope/lift.h"
#include "src/scope/store.h"

/* ---- sowing ------------------------------------------------------------------------------------------------------ */

/* The view that the scope has of the collection, if a value is sown there. False: nothing is to be done, or an error
 * was reported. */
static bool may_sow(tow_scope *scope, const char *collection, const char *name, tow_value value,
                    tow__resolved *resolved)
{
    tow__model *m = scope->model;
    const char *plain = tow__checked_path(scope, collection, name, resolved);
    if (!plain || !tow__check_returned(scope, plain, "a value is sown")) return false;
    if (tow__names_find(&m->sown_collections, collection) == TOW__NO_NAME &&
        tow__names_add(&m->sown_collections, collection) == TOW__NO_NAME) {
        tow_scope_fail(scope, TOW_OUT_OF_MEMORY, "no memory for the name of collection \"%s\"", collection);
        return false;
    }
    if (m->initializing || !tow__collection_listed(m->mutable_collections, collection)) return false;
    if (resolved->hidden || m->frame->silent) return false;
    if (resolved->how != TOW_STACKED) {
        tow_scope_fail(
            scope, TOW_UNSUPPORTED,
            "\"%s\" is sown into \"%s\", which the iterations of a scan share; sow into a collection that no "
            "rule shares or carries",
            name, collection);
        return false;
    }
    if (!tow_is_null(value)) return true;
    tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "\"%s\" is sown into \"%s\": expected a value, found %s", name,
                   collection, tow__null_text(value, "the null value"));
    return false;
}

/* False, reported: there is a variable with this path, or, if `other` is true, a value that was sown in the other
 * way. */
static bool check_free(tow__model *m, const char *path, bool other)
{
    if (!other && tow__names_find(&m->state.list->names, path) == TOW__NO_NAME) return true;
    tow__params_fail(m, TOW_INVALID_ARGUMENT,
                     "%s: %s has the path under which a value is sown; sow it under another name, or into another "
                     "collection",
                     path, other ? "a value that was sown before" : "a variable");
    return false;
}

bool tow_sow(tow_scope *scope, const char *collection, const char *name, tow_value value)
{
    tow__model *m = scope->model;
    tow__resolved resolved;
    if (!may_sow(scope, collection, name, value, &resolved)) return false;
    size_t size = strlen(name) + 24;
    char *numbered = tow__trace_alloc(m->trace, size, 1);
    const char *path = NULL;
    for (uint32_t i = 0; numbered && (i == 0 || (path && tow__find_sown(m, path))); i++) {
        snprintf(numbered, size, "%s/%u", name, i);
        path = tow__entry_path(resolved.scope, collection, numbered);
    }
    if (!path || !check_free(m, path, false)) return false;
    tow__add_sown(m, &(tow__sown){.path = path}, value);
    return true;
}

/* Within the body of a while, which hands out what its last iteration sows. */
static bool is_repeated(const tow_scope *scope)
{
    while (scope && !scope->repeated) scope = scope->parent;
    return scope != NULL;
}

bool tow_sow_with(tow_scope *scope, const char *collection, const char *name, tow_value value, double initial,
                  tow_value (*reduce)(tow_value before, tow_value value))
{
    tow__model *m = scope->model;
    tow__resolved resolved;
    if (!may_sow(scope, collection, name, value, &resolved)) return false;
    if (!reduce || is_repeated(scope)) {
        tow_scope_fail(scope, reduce ? TOW_UNSUPPORTED : TOW_INVALID_ARGUMENT, "\"%s\" is sown into \"%s\": %s", name,
                       collection,
                       reduce ? "the iterations of a while hand on no reduced value; make it a variable under a rule "
                                "TOW_CARRIED"
                              : "expected a function that reduces, such as tow_add, found NULL");
        return false;
    }
    const char *path = tow__entry_path(resolved.scope, collection, name);
    const tow__sown *before = path ? tow__find_sown(m, path) : NULL;
    if (!path || !check_free(m, path, before && !before->reduced)) return false;
    const tow_type type = tow_value_type(value);
    tow_value first = before ? tow__import(m->trace, before->value) : tow_full(m->trace, type, initial);
    if (tow__scope_failed(scope)) return false;
    if (!tow_type_equal(tow_value_type(first), type)) {
        tow__params_fail(m, TOW_TYPE_MISMATCH, "%s: expected %s as was sown before, found %s", path,
                         tow__type_name(tow_value_type(first)).text, tow__type_name(type).text);
        return false;
    }
    const tow_value reduced = reduce(first, value);
    if (!tow__scope_failed(scope) && (tow_is_null(reduced) || !tow_type_equal(tow_value_type(reduced), type)))
        tow__params_fail(m, TOW_TYPE_MISMATCH, "%s: its reduction gives %s, expected %s as it is given", path,
                         tow_is_null(reduced) ? "the null value" : tow__type_name(tow_value_type(reduced)).text,
                         tow__type_name(type).text);
    if (tow__scope_failed(scope)) return false;
    tow__add_sown(m, &(tow__sown){.path = path, .reduced = true, .initial = initial}, reduced);
    return true;
}

/* ---- perturbations ----------------------------------------------------------------------------------------------- */

#define PERTURBATIONS "perturbations"

static bool has_perturbations(const tow__model *m)
{
    for (uint32_t i = 0; i < m->state.list->names.count; i++)
        if (tow__path_in(m->state.list->names.names[i], PERTURBATIONS)) return true;
    return false;
}

tow_value tow_perturb(tow_scope *scope, const char *name, tow_value value)
{
    if (tow__scope_failed(scope) || (!scope->model->initializing && !has_perturbations(scope->model))) return value;
    if (tow_is_null(value) || !tow_dtype_is_float(tow_value_type(value).dtype)) {
        tow_scope_fail(
            scope, TOW_INVALID_ARGUMENT, "\"%s\" is perturbed: expected a float value, found %s", name ? name : "",
            tow_is_null(value) ? tow__null_text(value, "the null value") : tow__type_name(tow_value_type(value)).text);
        return value;
    }
    return tow_add(value, tow_variable(scope, PERTURBATIONS, name, tow_value_type(value), (tow_initializer){0}));
}

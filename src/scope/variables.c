/* The requests of a layer to its scope: parameters, and variables of all other collections. They go through the views
 * around the layer to the store. While a model is initialized nothing is computed, so writes are checked and dropped:
 * variables have their initial values afterwards. */
#include "src/scope/store.h"
#include "src/scope/views.h"

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static tow_value request_param(tow_scope *scope, tow_variable_request *request)
{
    if (tow__scope_failed(scope) || !tow__check_param_request(scope, request)) return (tow_value){0};
    return tow__request(scope, request);
}

tow_value tow_param_with(tow_scope *scope, const char *name, tow_type type, tow_param_kind kind, tow_initializer init)
{
    return request_param(
        scope, &(tow_variable_request){.collection = "params", .name = name, .type = type, .init = init, .kind = kind});
}

tow_value tow_param(tow_scope *scope, const char *name, int rank, const int64_t *dims, tow_initializer init)
{
    return tow_param_with(scope, name, tow_make_type(tow_scope_param_dtype(scope, 0), rank, dims), TOW_PARAM_DEFAULT,
                          init);
}

/* ---- variables --------------------------------------------------------------------------------------------------- */

bool tow_has_variable(const tow_scope *scope, const char *collection, const char *name)
{
    if (tow__component_fault(collection) || tow__component_fault(name) || tow__scope_failed(scope)) return false;
    tow__resolved resolved;
    if (!tow__resolve(scope, collection, name, &resolved) || resolved.hidden) return false;
    const char *path = tow__entry_path(resolved.scope, collection, name);
    return path && tow__names_find(&scope->model->state.list->names, path) != TOW__NO_NAME;
}

tow_value tow_variable(tow_scope *scope, const char *collection, const char *name, tow_type type, tow_initializer init)
{
    tow__resolved resolved;
    if (!tow__checked_path(scope, collection, name, &resolved)) return (tow_value){0};
    if (tow_initializer_is_default(&init)) init = tow_initializer_zeros();
    if (!init.fill || type.rank < 0) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT, "variable \"%s\": found %s", name,
                       init.fill ? "a negative rank; expected a type such as tow_make_type(TOW_F32, 1, dims)"
                                 : "an initializer with options but no function .fill; make it with "
                                   "tow_initializer_normal(0.02) or the like, or leave it zero");
        return (tow_value){0};
    }
    return tow__request(scope,
                        &(tow_variable_request){.collection = collection, .name = name, .type = type, .init = init});
}

tow_value tow_request_variable(tow_scope *scope, const tow_variable_request *request)
{
    if (!request || !request->collection || strcmp(request->collection, "params") != 0)
        return tow_variable(scope, request ? request->collection : NULL, request ? request->name : NULL,
                            request ? request->type : tow_make_type(TOW_F32, 0, NULL),
                            request ? request->init : (tow_initializer){0});
    tow_variable_request own = *request;
    return request_param(scope, &own);
}

tow_value tow_get_variable(tow_scope *scope, const char *collection, const char *name)
{
    tow__resolved resolved;
    if (!tow__checked_path(scope, collection, name, &resolved)) return (tow_value){0};
    return tow__request(scope, &(tow_variable_request){.collection = collection, .name = name, .type = {.rank = -1}});
}

void tow_set_variable(tow_scope *scope, const char *collection, const char *name, tow_value value)
{
    tow__resolved resolved;
    if (!tow__checked_path(scope, collection, name, &resolved)) return;
    tow__request_write(
        scope, &(tow_variable_request){.collection = collection, .name = name, .type = tow_value_type(value)}, value);
}

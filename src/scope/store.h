/* The store: parameters and variables by the names and types under which layers ask for them, past all views. */
#ifndef TOW_SRC_SCOPE_STORE_H
#define TOW_SRC_SCOPE_STORE_H

#include "src/scope/lift.h"

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* tow_get_variable, which knows no type. */
static inline bool tow__request_of_any_type(const tow_variable_request *request) { return request->type.rank < 0; }
/* The request is for a parameter. */
bool tow__is_param(const tow_variable_request *request);
/* The kind that it says, or else its name and rank. */
tow_param_kind tow__request_kind(const tow_variable_request *request);
/* False, reported: the name, type, initializer or kind of a request for a parameter. */
bool tow__check_param_request(tow_scope *scope, const tow_variable_request *request);
/* The path of a variable, or NULL after an error; *resolved: how the scope sees it. */
const char *tow__checked_path(tow_scope *scope, const char *collection, const char *name, tow__resolved *resolved);
/* Variables of this collection may be written, the model not being initialized. */
bool tow__collection_mutable(const tow__model *model, const char *collection);

/* ---- entries ----------------------------------------------------------------------------------------------------- */

/* The type that the layer sees: without the axes of the iterations. */
tow_type tow__seen_type(const tow_scope *resolved, tow_type stacked);
/* The entry that a layer declares, or the variable whose type it does not know; a new value of a variable. */
tow_value tow__stored_param(tow_scope *scope, const tow_variable_request *request);
tow_value tow__stored_variable(tow_scope *scope, const tow_variable_request *request);
void tow__store_variable(tow_scope *scope, const tow_variable_request *request, tow_value value);

#endif

/* Layers around another one that change how it sees its parameters and variables. */
#ifndef TOW_TRANSFORMS_VIEW_H
#define TOW_TRANSFORMS_VIEW_H

#include "src/scope/layer.h"
#include "src/scope/views.h"
#include "tow/params.h"
#include "tow/transforms.h"

/* Calls the inner layer in this scope, with what it asks for seen through a copy of `view`, of which the functions,
 * .of_kept and .user are set. */
void tow__call_viewed(tow_scope *scope, const tow_module *inner, const tow__scope_view *view, size_t n_in,
                      const tow_value *in, size_t n_out, tow_value *out);
/* A scope "kind/parameter" below the one that asked for the parameter, for what a view keeps of it: of the views around
 * only those with .of_kept take that. */
tow_scope *tow__open_beside(tow_scope *scope, const char *kind, const char *parameter);
void tow__close_beside(tow_scope *beside);
/* False, reported: a view of the same kind around this one takes the request too, and what they keep beside would be
 * one. */
bool tow__check_kept_once(const tow__scope_view *view, tow_scope *scope, const tow_variable_request *request,
                          const char *kind);
/* As .takes of a view: any parameter. */
bool tow__takes_params(const tow__scope_view *view, const tow_scope *scope, const tow_variable_request *request);

#endif

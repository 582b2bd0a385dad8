/* See view.h. */
#include "transforms/view.h"
#include "src/scope/calls.h"
#include "src/scope/store.h"

void tow__call_viewed(tow_scope *scope, const tow_module *inner, const tow__scope_view *view, size_t n_in,
                      const tow_value *in, size_t n_out, tow_value *out)
{
    tow_scope *here = tow__trace_alloc(scope->model->trace, 1, sizeof *here);
    tow__scope_view *own = tow__trace_alloc(scope->model->trace, 1, sizeof *own);
    if (!here || !own) return;
    *own = *view;
    own->outer = scope->view;
    own->at = scope;
    *here = *scope;
    here->view = own;
    tow__call_here(here, inner, n_in, in, n_out, out);
}

tow_scope *tow__open_beside(tow_scope *scope, const char *kind, const char *parameter)
{
    tow_scope *outer = tow_scope_begin(scope, kind), *inner = tow_scope_begin(outer, parameter);
    if (inner != scope) inner->kept = true;
    return inner;
}

void tow__close_beside(tow_scope *beside)
{
    tow_scope_end(beside);
    tow_scope_end(beside);
}

bool tow__check_kept_once(const tow__scope_view *view, tow_scope *scope, const tow_variable_request *request,
                          const char *kind)
{
    for (const tow__scope_view *v = view->outer; v; v = v->outer) {
        if (v->read != view->read || !v->takes(v, scope, request)) continue;
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "%s: another %s around this one takes \"%s\" too, and both would keep theirs under one name; "
                       "let one of them leave it out by its .filter, or leave one of them out",
                       kind, kind, request->name);
        return false;
    }
    return true;
}

bool tow__takes_params(const tow__scope_view *view, const tow_scope *scope, const tow_variable_request *request)
{
    (void)view, (void)scope;
    return tow__is_param(request);
}

/* See views.h. */
#include "src/scope/views.h"

#include <stdio.h>
#include <string.h>

#include "src/base/dtypes.h"
#include "src/scope/dtypes.h"
#include "src/scope/lift.h"
#include "src/scope/storage.h"
#include "src/scope/store.h"
#include "tow/numpy.h"

/* ---- which view answers ------------------------------------------------------------------------------------------ */

/* The innermost view that takes the request; NULL: the store answers. */
static tow__scope_view *view_of(const tow_scope *scope, const tow_variable_request *request)
{
    tow__scope_view *view = scope->view;
    while (view && ((scope->kept && !view->of_kept) || !view->takes(view, scope, request))) view = view->outer;
    return view;
}

static tow_scope *outside_of(tow_scope *scope, const tow__scope_view *view)
{
    tow_scope *outside = tow__trace_alloc(scope->model->trace, 1, sizeof *outside);
    if (!outside) return NULL;
    *outside = *scope;
    outside->view = view->outer;
    return outside;
}

const char *tow__viewed_path(const tow__scope_view *view, const tow_scope *scope, const tow_variable_request *request)
{
    return tow__path_from(view->at, scope, request);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* A request that a view took. Iterations of an unrolled scan that share a parameter ask in scopes of their own: each
 * makes it anew, as those of a loop do. */
typedef struct tow__viewed {
    struct tow__viewed *next;
    const char *path; /* of the scope that asked */
    tow_variable_request asked;
    uint32_t frame, body; /* serial numbers */
    tow_value value;      /* of a parameter: what the view gave */
} tow__viewed;

static bool is_same(const tow__viewed *v, const tow_scope *scope, const tow_variable_request *request)
{
    return strcmp(v->asked.name, request->name) == 0 && strcmp(v->path, scope->path) == 0 &&
           strcmp(v->asked.collection, request->collection) == 0;
}

static void remember(tow__scope_view *view, const tow_scope *scope, const tow_variable_request *request,
                     tow_value value)
{
    tow__model *m = scope->model;
    size_t n = strlen(request->name) + 1, size = n + strlen(request->collection) + 1;
    char *texts = tow__trace_alloc(m->trace, size, 1);
    tow__viewed *v = tow__trace_alloc(m->trace, 1, sizeof *v);
    if (!texts || !v) return;
    *v = (tow__viewed){view->seen, scope->path, *request, m->frame->serial, tow__innermost_serial(m->trace), value};
    v->asked.name = memcpy(texts, request->name, n);
    v->asked.collection = memcpy(texts + n, request->collection, size - n);
    view->seen = v;
}

static tow_value read_param(tow__scope_view *view, tow_scope *scope, tow_scope *outside,
                            const tow_variable_request *request)
{
    const uint32_t frame = scope->model->frame->serial, body = tow__innermost_serial(scope->model->trace);
    for (const tow__viewed *v = view->seen; v; v = v->next)
        if (v->frame == frame && v->body == body && is_same(v, scope, request) &&
            tow_type_equal(v->asked.type, request->type))
            return v->value;
    tow_value value = view->read(view, outside, request);
    remember(view, scope, request, value);
    return value;
}

/* A request without a type has that of the request which declared the variable, if it came through this view. */
static tow_value read_variable(tow__scope_view *view, tow_scope *scope, tow_scope *outside,
                               const tow_variable_request *request)
{
    const tow__viewed *v = view->seen;
    while (v && !is_same(v, scope, request)) v = v->next;
    if (tow__request_of_any_type(request)) return view->read(view, outside, v ? &v->asked : request);
    if (!v) remember(view, scope, request, (tow_value){0});
    return view->read(view, outside, request);
}

tow_value tow__request(tow_scope *scope, const tow_variable_request *request)
{
    if (tow__scope_failed(scope)) return (tow_value){0};
    tow__scope_view *view = view_of(scope, request);
    if (!view && tow__is_param(request)) return tow__weight_numbers(request, tow__stored_weight(scope, request));
    if (!view) return tow__stored_variable(scope, request);
    tow_scope *outside = outside_of(scope, view);
    if (!outside) return (tow_value){0};
    return tow__is_param(request) ? read_param(view, scope, outside, request)
                                  : read_variable(view, scope, outside, request);
}

tow_value tow__request_stored(tow_scope *scope, const tow_variable_request *request)
{
    if (tow__scope_failed(scope)) return (tow_value){0};
    return view_of(scope, request) ? tow__request(scope, request) : tow__stored_weight(scope, request);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static tow_value multiply(const tow__product *p, const tow_variable_request *request, tow_value x, tow_value w)
{
    char spec[3 * TOW_MAX_RANK + 16];
    if (tow__is_blocks(tow_value_type(w).dtype)) return tow__multiply_blocks(request, p->dot, x, w);
    w = tow__as(w, p->compute);
    if (p->dot) return tow_dot_general(x, w, *p->dot);
    snprintf(spec, sizeof spec, "%s,%s->%s", p->x, p->param, p->y);
    return tow_einsum(spec, 2, (tow_value[]){x, w});
}

tow_value tow__request_product(tow_scope *scope, const tow_variable_request *request, const tow__product *product,
                               tow_value x)
{
    if (tow__scope_failed(scope)) return (tow_value){0};
    tow__scope_view *view = view_of(scope, request);
    if (!view || !view->product) return multiply(product, request, x, tow__request_stored(scope, request));
    tow_scope *outside = outside_of(scope, view);
    return outside ? view->product(view, outside, request, product, x) : (tow_value){0};
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

void tow__request_write(tow_scope *scope, const tow_variable_request *request, tow_value value)
{
    if (tow__scope_failed(scope)) return;
    tow__scope_view *view = view_of(scope, request);
    if (!view) {
        tow__store_variable(scope, request, value);
        return;
    }
    tow_scope *outside = outside_of(scope, view);
    if (outside) view->write(view, outside, request, value);
}

/* tied: a layer around another one, one of whose parameters is that of another layer, or its transpose. */
#include "src/scope/initializers.h"
#include "src/scope/store.h"
#include "src/scope/tree.h"
#include "transforms/view.h"

/* The operands of one call of the layer. */
typedef struct tied_call {
    const tow_tied *m;
    bool found; /* the layer asked for the parameter */
} tied_call;

static bool takes(const tow__scope_view *view, const tow_scope *scope, const tow_variable_request *request)
{
    const tow_tied *m = ((const tied_call *)view->user)->m;
    const char *path = tow__is_param(request) ? tow__viewed_path(view, scope, request) : NULL;
    return path && strcmp(path, m->parameter ? m->parameter : "kernel") == 0;
}

/* The initializer of a parameter that somebody else must have asked for. */
static tow_status fill_none(tow_context *context, const tow_initializer *self, tow_type type, const uint32_t key[2],
                            float *data)
{
    (void)self, (void)type, (void)key, (void)data;
    return tow_initializer_fail(
        context, TOW_NOT_FOUND,
        "a layer is tied to it, but no layer that was called before holds it; call that one first, or "
        "give another path .to");
}

static void fail_path(tow_scope *scope, const tow_tied *m)
{
    tow_scope_fail(
        scope, TOW_INVALID_ARGUMENT,
        "tied: .to = \"%s\"; expected the path of a parameter from this layer on, such as \"../embed/embedding\"",
        m->to ? m->to : "NULL");
}

static tow_value read_tied(const tow__scope_view *view, tow_scope *outside, const tow_variable_request *request)
{
    tied_call *c = (tied_call *)view->user;
    const tow_tied *m = c->m;
    const char *name;
    c->found = true;
    tow_scope *other = tow__scope_at(view->at, m->to, &name);
    if (tow__scope_failed(outside)) return (tow_value){0};
    if (!other) {
        fail_path(outside, m);
        return (tow_value){0};
    }
    tow_variable_request wanted = {.collection = "params",
                                   .name = name,
                                   .type = request->type,
                                   .init = {.fill = fill_none},
                                   .blocks = request->blocks,
                                   .summed = request->summed};
    if (m->transposed) wanted.summed = request->type.rank == 2 ? -request->summed : 0; /* a table is a kernel turned */
    for (int i = 0; m->transposed && i < wanted.type.rank; i++)
        wanted.type.dims[i] = request->type.dims[request->type.rank - 1 - i];
    tow_value value = tow__request(other, &wanted);
    return m->transposed && request->type.rank > 1 ? tow_transpose(value, 0, NULL) : value;
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    tied_call c = {(const tow_tied *)module, false};
    if (!c.m->to) {
        fail_path(scope, c.m);
        return;
    }
    tow__call_viewed(scope, c.m->inner, &(tow__scope_view){.takes = takes, .read = read_tied, .user = &c}, n_in, in,
                     n_out, out);
    if (!c.found && !tow__scope_failed(scope))
        tow_scope_fail(scope, TOW_NOT_FOUND,
                       "tied: the layer asks for no parameter \"%s\"; set .parameter to its path below it",
                       c.m->parameter ? c.m->parameter : "kernel");
}

const tow_module_class tow_tied_class = {TOW__MADE_BY(TOW_TIED, tow_tied), .name = "tied", .call = call,
                                         .layout =
                                             TOW__LAYOUT_OF(tow_tied, TOW_MEMBER(tow_tied, inner, TOW_MEMBER_LAYER),
                                                            TOW_MEMBER(tow_tied, parameter, TOW_MEMBER_TEXT),
                                                            TOW_MEMBER(tow_tied, to, TOW_MEMBER_TEXT))};

/* remat as a layer: the inner layer is called in the scope of the remat itself, so nothing about its parameters and
 * random keys changes; what it records becomes the body of a remat equation. */
#include "layers/scope.h"
#include "src/ops/primitive.h"
#include "tow/transforms.h"

/* ---- checkpoint names: every name that a policy refers to must exist --------------------------------------------- */

typedef struct name_search {
    const char *name; /* looked for, or NULL: list all */
    bool found;
    tow__string list;
} name_search;

static void search_graph(const tow_graph *g, name_search *s)
{
    for (uint32_t i = 0; i < g->n_equations && !s->found; ++i) {
        const tow__equation *e = &g->equations[i];
        if (e->primitive->kind == TOW__NAME) {
            const char *name = ((const tow__name_params *)e->params)->name;
            if (s->name)
                s->found = strcmp(name, s->name) == 0;
            else
                tow__string_add(&s->list, "%s%s", s->list.length ? ", " : "", name);
        }
        for (const tow__param *p = e->primitive->params; p && p->name && e->params; ++p)
            if (p->kind == TOW__P_GRAPH) search_graph(*(tow_graph *const *)((const char *)e->params + p->offset), s);
    }
}

/* Reports the first name of `policy` that `body` does not use. */
static void check_names(tow_scope *scope, const tow_policy *policy, const tow_graph *body)
{
    if (!policy) return;
    check_names(scope, policy->a, body);
    check_names(scope, policy->b, body);
    for (const char *const *name = policy->names; name && *name && !tow__scope_failed(scope); ++name) {
        name_search s = {.name = *name};
        search_graph(body, &s);
        if (s.found) continue;
        s.name = NULL;
        tow__string_init(&s.list, scope->model->ctx);
        search_graph(body, &s);
        tow_scope_fail(
            scope, TOW_NOT_FOUND,
            "remat: the policy refers to the checkpoint name \"%s\", which nothing in the wrapped layer has; "
            "expected one of: %s",
            *name, s.list.text ? s.list.text : "(no value in it is named)");
        tow__string_free(&s.list);
    }
}

/* ---- the layer --------------------------------------------------------------------------------------------------- */

typedef struct call_info {
    tow_scope *scope;
    const tow_remat *m;
    size_t n_in, n_out;
} call_info;

/* Records the inner layer in a body of its own first, so that its names can be looked at, and then in the region. */
static void region(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const call_info *c = user;
    tow__push(t);
    tow__call_here(c->scope, c->m->inner, c->n_in, in, c->n_out, out);
    size_t n_captures = 0;
    tow_value *captures = NULL;
    tow_graph *body = tow__pop(t, c->n_out, out, &n_captures, &captures);
    if (!body) return;
    check_names(c->scope, &c->m->policy, body);
    if (!tow__scope_failed(c->scope)) tow__inline(t, body, captures, out);
    tow_graph_release(body);
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    call_info c = {.scope = scope, .m = (const tow_remat *)module, .n_in = n_in, .n_out = n_out};
    tow_remat_function(scope->model->trace, region, &c, &c.m->policy, n_in, in, n_out, out);
}

const tow_module_class tow_remat_class = {.name = "remat", .call = call};

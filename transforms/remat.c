/* remat as a layer: the inner layer is called in the scope of the remat itself, so nothing about its parameters and
 * random keys changes; what it records becomes the body of a remat equation. */
#include "layers/scope.h"
#include "tow/transforms.h"

typedef struct call_info {
    tow_scope *scope;
    const tow_remat *m;
    size_t n_in, n_out;
} call_info;

static void region(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    const call_info *c = user;
    tow__call_here(c->scope, c->m->inner, c->n_in, in, c->n_out, out);
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    call_info c = {.scope = scope, .m = (const tow_remat *)module, .n_in = n_in, .n_out = n_out};
    tow_remat_function(scope->model->trace, region, &c, &c.m->policy, n_in, in, n_out, out);
}

const tow_module_class tow_remat_class = {.name = "remat", .call = call};

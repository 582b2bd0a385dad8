/* remat as a layer: the inner layer is called in the scope of the remat itself, so nothing about its parameters and
 * random keys changes; what it records becomes the body of a remat equation. New values of variables are outputs of
 * that equation, so they are taken from the forward pass and recomputing the body repeats no update. */
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

/* There are no iterations that could share or hand on. */
static bool check_rules(tow_scope *scope, const char *list, const tow_lift_rule *rules)
{
    for (; rules && rules->pattern; rules++) {
        if (rules->how != TOW_SHARED && rules->how != TOW_CARRIED) continue;
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "remat: .%s: \"%s\" is %s; expected TOW_HIDDEN, or TOW_STACKED for what the layer sees", list,
                       rules->pattern, rules->how == TOW_SHARED ? "TOW_SHARED" : "TOW_CARRIED");
        return false;
    }
    return true;
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    call_info c = {.scope = scope, .m = (const tow_remat *)module, .n_in = n_in, .n_out = n_out};
    tow_trace *t = scope->model->trace;
    if (!check_rules(scope, "variables", c.m->variables) || !check_rules(scope, "streams", c.m->streams)) return;
    const tow__lift *lift = tow__lift_make(scope, "remat", false, c.m->variables, c.m->streams, NULL);
    if (lift) c.scope = tow__scope_lifted(scope, lift, NULL);
    if (tow__scope_failed(scope)) return;
    tow__body body;
    tow_type *types = tow__trace_alloc(t, n_in, sizeof *types);
    if (!types) return;
    for (size_t i = 0; i < n_in; i++) types[i] = tow_value_type(in[i]);
    if (!tow__body_record(scope->model, region, &c, n_in, types, n_out, &body)) return;
    tow_value *all = tow__trace_alloc(t, body.n_out, sizeof *all);
    if (all) {
        tow_remat_function(t, tow__body_replay, &body, &c.m->policy, n_in, in, body.n_out, all);
        if (n_out) memcpy(out, all, n_out * sizeof *out);
        if (!tow__failed(t)) tow__body_commit(scope->model, &body, all + n_out);
    }
    tow__lift_check_used(scope, "remat", lift);
    tow__body_free(&body);
}

const tow_module_class tow_remat_class = {.name = "remat", .call = call};

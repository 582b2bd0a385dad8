/* remat as a layer: the inner layer is called in the scope of the remat itself, so nothing about its parameters and
 * random keys changes; what it records becomes the body of a remat equation. New values of variables are outputs of
 * that equation, so they are taken from the forward pass and recomputing the body repeats no update. */
#include "src/autodiff/regions/record.h"
#include "src/scope/tree.h"
#include "tow/transforms.h"
#include "transforms/aside.h"

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_remat *m = (const tow_remat *)module;
    tow_trace *t = scope->model->trace;
    tow__aside aside;
    tow__recorded_body body;
    if (!tow__aside_begin(&aside, scope, "remat", m->variables, m->streams)) return;
    if (!tow__aside_record(&aside, m->inner, n_in, in, n_out, &body)) return;
    tow_value *all = tow__trace_alloc(t, body.n_out, sizeof *all);
    if (all) {
        tow__remat_within(t, tow__body_replay, &body, &m->policy, m->limit, n_in, in, body.n_out, all);
        if (n_out) memcpy(out, all, n_out * sizeof *out);
        if (!tow__failed(t)) tow__body_commit(scope->model, &body, all + n_out);
    }
    tow__aside_end(&aside);
    tow__body_free(&body);
}

const tow_module_class tow_remat_class = {
    TOW__MADE_BY(TOW_REMAT, tow_remat), .name = "remat", .call = call,
    .layout = TOW__LAYOUT_OF(
        tow_remat, TOW_MEMBER(tow_remat, inner, TOW_MEMBER_LAYER), TOW_MEMBER(tow_remat, policy, TOW_MEMBER_POLICY),
        TOW_MEMBER(tow_remat, variables, TOW_MEMBER_RULES), TOW_MEMBER(tow_remat, streams, TOW_MEMBER_RULES))};

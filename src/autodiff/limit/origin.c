/* The function that a gradient is the gradient of, and the variants of it for plans within a memory limit. */
#include "src/autodiff/limit/limit.h"

typedef struct gradient_variants {
    const tow_graph *gradient;
    tow__loss_variants *losses;
} gradient_variants;

static tow_status differentiate(const tow__origin *o, const tow_graph *loss, tow_graph **gradient)
{
    return o->value ? tow_value_and_grad(loss, o->n_wrt, o->wrt, o->has_aux, gradient)
                    : tow_grad(loss, o->n_wrt, o->wrt, o->has_aux, gradient);
}

static tow_status again(const tow_graph *gradient, tow_graph **result)
{
    return differentiate(gradient->origin, gradient->origin->loss, result);
}

static tow_status make(void *user, uint32_t i, tow_graph **graph)
{
    const gradient_variants *v = user;
    const tow__origin *o = v->gradient->origin;
    tow_graph *loss = NULL;
    *graph = NULL;
    if (i == 0 && !v->gradient->ctx->verifies) {
        *graph = tow__graph_share(v->gradient);
        return TOW_OK;
    }
    tow_status status = tow__loss_variant(v->losses, i, &loss);
    if (status == TOW_OK) status = differentiate(o, loss, graph);
    tow_graph_release(loss);
    return status;
}

static tow_status begin(const tow_graph *gradient, const tow__price *price, tow__variants *variants)
{
    gradient_variants *v = tow__alloc(gradient->ctx, 1, sizeof *v);
    if (!v) return TOW_OUT_OF_MEMORY;
    v->gradient = gradient;
    variants->user = v;
    variants->make = make;
    variants->frontiers = gradient->origin->frontiers;
    tow_status status = tow__loss_variants_create(gradient->origin->loss, price, &v->losses);
    if (status != TOW_OK) return status;
    variants->n = tow__loss_variants_count(v->losses);
    variants->note = tow__loss_variants_note(v->losses);
    return TOW_OK;
}

static void end(tow__variants *variants)
{
    gradient_variants *v = variants->make == make ? variants->user : NULL;
    if (!v) return;
    tow__loss_variants_free(v->losses);
    tow__free(v->gradient->ctx, v, 1, sizeof *v);
    variants->user = NULL;
}

tow_status tow__set_step_origin(tow_graph *step, const tow_graph *loss, size_t n_wrt, const size_t *wrt, bool has_aux,
                                tow__make_step make_step, void *user)
{
    tow_status status = tow__set_origin(step, loss, n_wrt, wrt, true, has_aux);
    if (status != TOW_OK) return status;
    tow__origin *o = tow__arena_copy(&step->arena, step->origin, 1, sizeof *o);
    if (!o) return TOW_OUT_OF_MEMORY;
    o->make = make_step;
    o->user = user;
    o->variants = NULL;
    o->free_variants = NULL;
    o->again = NULL;
    step->origin = o;
    return TOW_OK;
}

tow_status tow__set_origin(tow_graph *gradient, const tow_graph *loss, size_t n_wrt, const size_t *wrt, bool value,
                           bool has_aux)
{
    tow__origin *o = tow__arena_alloc(&gradient->arena, 1, sizeof *o);
    size_t *chosen = tow__arena_alloc(&gradient->arena, n_wrt, sizeof *chosen);
    tow__frontiers *frontiers = tow__arena_alloc(&gradient->arena, 1, sizeof *frontiers);
    if (!o || !chosen || !frontiers) return TOW_OUT_OF_MEMORY;
    frontiers->ctx = gradient->ctx;
    if (n_wrt) memcpy(chosen, wrt, n_wrt * sizeof *wrt);
    *o = (tow__origin){.loss = tow__graph_share(loss),
                       .n_wrt = n_wrt,
                       .wrt = n_wrt ? chosen : NULL,
                       .value = value,
                       .has_aux = has_aux,
                       .frontiers = frontiers,
                       .make = differentiate,
                       .variants = begin,
                       .free_variants = end,
                       .again = again};
    gradient->origin = o;
    return TOW_OK;
}

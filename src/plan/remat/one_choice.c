/* All processes of a group take one plan within a memory limit. The values that are kept decide where sums over
 * processes are recorded, so all must take the same point, while their caches, their shares of the rows and their
 * limits may differ.
 *
 *   all       look for a plan if one of them has a limit; the others' limit is SIZE_MAX
 *   rank 0    searches, telling the others with each plan that it goes on, and offers its points within its limit, the
 *             fastest first
 *   others    plan the point that is offered, for their machine and their rows, and compare it with their limit
 *   all       take the first point that nobody refuses */
#include "src/group/agreement.h"
#include "src/plan/remat/remat.h"

/* A point, as rank 0 sends it. */
typedef struct offer {
    uint32_t variant, products;
    uint8_t all, interleaved, untiled, last; /* last: there is none below it */
} offer;

static offer offer_of(const tow__plan_point *x, bool last)
{
    return (offer){x->variant, x->choice.products, x->choice.all, x->choice.interleaved, x->choice.untiled, last};
}

static tow__plan_point point_of(const offer *o)
{
    return (tow__plan_point){.variant = o->variant,
                             .choice = {.products = o->products,
                                        .all = o->all != 0,
                                        .interleaved = o->interleaved != 0,
                                        .untiled = o->untiled != 0}};
}

/* Does this process keep its limit with the point? TOW_INVALID_ARGUMENT, and why: it does not. */
static tow_status try_point(const tow__variants *v, tow_context *ctx, const tow_compile_options *options, int threads,
                            const tow__plan_point *point)
{
    tow_program *p = NULL;
    tow_status status = tow__plan_of_point(v, ctx, options, threads, point, &p);
    if (status == TOW_OK && tow__run_bytes(p) > options->memory_limit)
        status = tow__refuse_limit(p, v, options->memory_limit);
    tow_program_free(p);
    return status;
}

tow_status tow__choose_together(const tow__variants *v, tow_context *ctx, const tow_compile_options *options,
                                int threads, const tow__frontier *f, tow__plan_point *point)
{
    static const char what[] = "the plan within the memory limit";
    const bool chooses = tow__group_leads(v->group);
    const tow__plan_point *best = chooses ? tow__pick_point(f, options->memory_limit) : NULL;
    uint32_t i = best ? (uint32_t)(best - f->points) : 0;
    for (;; i--) {
        offer o = {0};
        if (chooses) o = offer_of(&f->points[i], i == 0);
        tow_status status = tow__group_send_to_all(v->group, 0, &o, sizeof o, what);
        if (status != TOW_OK) return status;
        *point = point_of(&o);
        status = tow__group_agree(ctx, v->group, try_point(v, ctx, options, threads, point));
        if (status != TOW_INVALID_ARGUMENT || o.last) return status;
    }
}

static tow_status send_goes_on(tow_group *group, uint8_t *goes_on)
{
    return tow__group_send_to_all(group, 0, goes_on, sizeof *goes_on, "the search for a plan within the memory limit");
}

tow_status tow__search_goes_on(tow_group *group, bool goes_on)
{
    uint8_t told = goes_on;
    return send_goes_on(group, &told);
}

tow_status tow__wait_for_search(tow_group *group)
{
    uint8_t goes_on = 1;
    tow_status status = TOW_OK;
    while (goes_on && status == TOW_OK) status = send_goes_on(group, &goes_on);
    return status;
}

tow_status tow__limit_together(tow_context *ctx, struct tow_group *group, size_t *limit)
{
    bool any = *limit > 0;
    const tow_status status = tow__group_any(ctx, group, &any);
    if (status == TOW_OK && any && *limit == 0) *limit = SIZE_MAX;
    return status;
}

tow_status tow__price_together(struct tow_group *group, tow__pricing *pricing)
{
    return tow__group_send_to_all(group, 0, &pricing->machine, sizeof pricing->machine,
                                  "the machine by which plans are compared");
}

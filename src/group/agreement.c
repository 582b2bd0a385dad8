/* Agreement about a status, and messages along the chain of shares. */
#include "src/group/agreement.h"

#include <stdio.h>

enum {
    CHAIN_TAGS = 32000, /* from here on, behind those of collectives; messages that are on their way differ in them */
    N_CHAIN_TAGS = 512,
    MESSAGE = 1024 /* bytes of an error that all hear */
};

static bool is_alone(const tow_group *group) { return !group || group->carrier.count == 1 || group->plan_only; }

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Runs a collective of bytes once. */
static tow_status run(tow_group *group, const tow__collective_options *options, void *data)
{
    tow__collective *c = NULL;
    tow_status status = tow__collective_create(group->ctx, group, options, &c);
    if (!status) status = tow__collective_run(c, &data, NULL);
    tow__collective_free(c);
    return status;
}

tow_status tow__group_send_to_all(tow_group *group, int root, void *data, size_t bytes, const char *what)
{
    if (is_alone(group) || bytes == 0) return TOW_OK;
    return run(group,
               &(tow__collective_options){
                   .kind = TOW__BROADCAST, .dtype = TOW_U8, .n = (int64_t)bytes, .root = root, .what = what},
               data);
}

bool tow__group_leads(const tow_group *group) { return tow_group_rank(group) == 0 || group->plan_only; }

/* ---- a number of each rank --------------------------------------------------------------------------------------- */

/* A number of each rank, into all[count], which has this rank's. */
static tow_status gather_numbers(tow_group *group, int32_t *all)
{
    const size_t count = (size_t)group->carrier.count;
    tow__range_of *shares = tow__alloc(group->ctx, count, sizeof *shares);
    if (!shares) return TOW_OUT_OF_MEMORY;
    for (size_t r = 0; r < count; r++) shares[r] = (tow__range_of){(int64_t)r, 1};
    const tow_status status =
        run(group,
            &(tow__collective_options){
                .kind = TOW__ALL_GATHER, .dtype = TOW_I32, .n = (int64_t)count, .shares = shares, .what = "agreement"},
            all);
    tow__free(group->ctx, shares, count, sizeof *shares);
    return status;
}

tow_status tow__group_any(tow_context *ctx, tow_group *group, bool *any)
{
    if (is_alone(group)) return TOW_OK;
    const size_t count = (size_t)group->carrier.count;
    int32_t *all = tow__alloc(ctx, count, sizeof *all);
    if (!all) return TOW_OUT_OF_MEMORY;
    all[group->carrier.rank] = *any;
    const tow_status status = gather_numbers(group, all);
    for (size_t r = 0; r < count; r++) *any = *any || all[r] != 0;
    tow__free(ctx, all, count, sizeof *all);
    return status;
}

/* ---- a status ---------------------------------------------------------------------------------------------------- */

/* Rank `failed` tells the others why. */
static tow_status tell(tow_context *ctx, tow_group *group, int failed, tow_status how)
{
    char text[MESSAGE] = "";
    if (group->carrier.rank == failed) snprintf(text, sizeof text, "%s", tow_context_error(ctx));
    const tow_status status = tow__group_send_to_all(group, failed, text, sizeof text, "agreement");
    if (status) return status;
    if (group->carrier.rank == failed) return how;
    text[sizeof text - 1] = '\0';
    return tow__fail(ctx, how, "rank %d (%s): %s", failed, group->hosts[failed], text);
}

tow_status tow__group_agree(tow_context *ctx, tow_group *group, tow_status status)
{
    if (is_alone(group)) return status;
    const size_t count = (size_t)group->carrier.count;
    int32_t *all = tow__alloc(ctx, count, sizeof *all);
    int failed = -1;
    if (!all) return TOW_OUT_OF_MEMORY;
    all[group->carrier.rank] = (int32_t)status;
    const tow_status gathered = gather_numbers(group, all);
    for (int r = 0; !gathered && r < (int)count && failed < 0; r++)
        if (all[r] != TOW_OK) failed = r;
    const tow_status how = failed >= 0 ? (tow_status)all[failed] : TOW_OK;
    tow__free(ctx, all, count, sizeof *all);
    if (gathered) return gathered;
    return failed < 0 ? TOW_OK : tell(ctx, group, failed, how);
}

/* ---- the chain --------------------------------------------------------------------------------------------------- */

tow_status tow__share_chain_create(tow_context *ctx, tow_group *group, const char *what, tow__share_chain *chain)
{
    const int count = tow_group_count(group), rank = tow_group_rank(group);
    *chain = (tow__share_chain){.group = group, .previous = -1, .next = -1};
    tow__range_of *shares = tow__alloc(ctx, (size_t)count, sizeof *shares);
    if (!shares) return TOW_OUT_OF_MEMORY;
    tow__shares(count, count, 1, shares); /* one element each: its offset is the place */
    const int64_t place = shares[rank].offset;
    for (int r = 0; r < count; r++) {
        if (shares[r].offset == 0) chain->first = r;
        if (shares[r].offset == count - 1) chain->last = r;
        if (shares[r].offset == place - 1) chain->previous = r;
        if (shares[r].offset == place + 1) chain->next = r;
    }
    tow__free(ctx, shares, (size_t)count, sizeof *shares);
    return tow__collective_create(ctx, group, &(tow__collective_options){.kind = TOW__BARRIER, .what = what},
                                  &chain->text);
}

void tow__share_chain_free(tow__share_chain *chain)
{
    tow__collective_free(chain->text);
    chain->text = NULL;
}

/* Exchanges one message, and waits for it as for a collective. */
static tow_status exchange(const tow__share_chain *chain, tow_message message, unsigned number)
{
    static const double patience = 1e-3;
    const tow_group_functions *carrier = &chain->group->carrier;
    void *request = NULL;
    size_t left = 1;
    tow_status status =
        carrier->exchange(&message, 1, CHAIN_TAGS + (int)(number % N_CHAIN_TAGS), &request, carrier->user);
    tow__watch_reset(chain->group);
    while (!status && left > 0) {
        status = carrier->test(request, patience, &left, carrier->user);
        if (!status && left > 0) tow__watch_idle(chain->group, chain->text);
    }
    return status;
}

tow_status tow__share_chain_receive(tow__share_chain *chain, void *data, size_t bytes)
{
    if (chain->previous < 0) return TOW_OK;
    return exchange(chain, (tow_message){.peer = chain->previous, .data = data, .bytes = bytes}, chain->received++);
}

tow_status tow__share_chain_send(tow__share_chain *chain, void *data, size_t bytes)
{
    if (chain->next < 0) return TOW_OK;
    return exchange(chain, (tow_message){.peer = chain->next, .sends = true, .data = data, .bytes = bytes},
                    chain->sent++);
}

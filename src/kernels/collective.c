/* Sums over processes: starts, and waits for them (src/ops/collective.c). The plan gives each start its collective; a
 * wait finds it by the number at the beginning of the buffer. A failure ends the run. */
#include <stdio.h>

#include "src/base/host.h"
#include "src/group/group.h"
#include "src/kernels/strided.h"
#include "src/kernels/tables.h"

enum {
    HEADER = 64 /* bytes of the buffer in front of scratch memory */
};

static void end_run(const tow__host_site *site, tow_status status)
{
    char text[sizeof site->ctx->error];
    snprintf(text, sizeof text, "%s", site->ctx->error);
    *site->failure = status;
    tow__fail(site->ctx, status, "%s%s%s%s%s", site->here ? site->here : "", site->here ? ": " : "",
              site->scope ? site->scope : "", site->scope ? ": " : "", text);
}

static void copy(const tow__kernel_call *call)
{
    if (call->in[0].data == call->out[0].data) return;
    const tow__strided to = tow__strided_buffer(&call->out[0]), from = tow__strided_buffer(&call->in[0]);
    tow__strided_store(call->team, &to, &from);
}

/* x -> partial sums, buffer. The sum of the iteration before, whose wait is deferred, may still be in the buffer. */
static void run_start(const tow__kernel_call *call)
{
    const tow__host_site *site = call->user;
    tow__collective *collective = site->collectives->list[site->collective];
    char *buffer = call->out[1].data;
    copy(call);
    tow_status status = tow__collective_wait(collective);
    memcpy(buffer, &site->collective, sizeof site->collective);
    if (status == TOW_OK) status = tow__collective_start(collective, (void *[]){call->out[0].data}, buffer + HEADER);
    if (status != TOW_OK) end_run(site, status);
}

/* partial sums, buffer -> sum */
static void run_wait(const tow__kernel_call *call)
{
    const tow__host_site *site = call->user;
    uint32_t number;
    if (site->deferred) return;
    memcpy(&number, call->in[1].data, sizeof number);
    tow_status status = TOW_OK;
    if (number >= site->collectives->n)
        status = tow__fail(site->ctx, TOW_INTERNAL_ERROR, "all_reduce_wait: its operands are no results of a start");
    else
        status = tow__collective_wait(site->collectives->list[number]);
    if (status == TOW_OK)
        copy(call);
    else
        end_run(site, status);
}

static const tow__kernel kernels[] = {
    {.primitive = "all_reduce_start", .dtypes = TOW__ALL_DTYPES, .run = run_start, .engine = "group"},
    {.primitive = "all_reduce_wait", .dtypes = TOW__ALL_DTYPES, .run = run_wait, .engine = "group"},
};
const tow__kernel_table tow__kernels_collective = {kernels, sizeof kernels / sizeof kernels[0]};

/* Exchange between processes: starts, and waits for them (src/ops/collective.c). The
 * plan gives each start its collective; a wait finds it by the number at the beginning of the buffer. A failure ends
 * the run. */
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

static void copy_buffer(const tow__kernel_call *call, const tow__buffer *to, const tow__buffer *from)
{
    if (to->data == from->data) return;
    const tow__strided a = tow__strided_buffer(to), b = tow__strided_buffer(from);
    tow__strided_store(call->team, &a, &b);
}

/* The share of this process in whole layers, a buffer [layers, n]. */
static tow__buffer share_in(const tow__buffer *whole, const tow__collective *collective)
{
    const tow__range_of share = tow__collective_share(collective, whole->dims[1]);
    tow__buffer b = *whole;
    b.data = (char *)b.data + (size_t)share.offset * (size_t)b.strides[1] * tow__element_bytes(b.dtype);
    b.dims[1] = share.count;
    return b;
}

/* The number of the collective to start. An iteration that starts that of the next one may have its own in flight. */
static uint32_t number_now(const tow__host_site *site)
{
    return site->collective + (site->in_turn && *site->rows[0] % 2 != 0);
}

/* The sum of the iteration before, whose wait is deferred, may still be in the buffer. */
static void start(const tow__kernel_call *call)
{
    const tow__host_site *site = call->user;
    const uint32_t number = number_now(site);
    tow__collective *collective = site->collectives->list[number];
    char *buffer = call->out[1].data;
    tow_status status = tow__collective_wait(collective);
    memcpy(buffer, &number, sizeof number);
    if (status == TOW_OK) status = tow__collective_start(collective, (void *[]){call->out[0].data}, buffer + HEADER);
    if (status != TOW_OK) end_run(site, status);
}

/* x -> partial sums, buffer */
static void start_sum(const tow__kernel_call *call)
{
    copy_buffer(call, &call->out[0], &call->in[0]);
    start(call);
}

/* share -> layers, buffer */
static void start_gather(const tow__kernel_call *call)
{
    const tow__host_site *site = call->user;
    const tow__buffer own = share_in(&call->out[0], site->collectives->list[site->collective]);
    if (tow__buffer_count(&own) > 0) copy_buffer(call, &own, &call->in[0]);
    start(call);
}

/* Waits for the collective whose start wrote the buffer; *c NULL: over the group of one. False: an error, or the loop
 * waits for it. */
static bool wait(const tow__kernel_call *call, tow__collective **c)
{
    const tow__host_site *site = call->user;
    uint32_t number;
    if (site->deferred) return false;
    memcpy(&number, call->in[1].data, sizeof number);
    *c = number < site->collectives->n ? site->collectives->list[number] : NULL;
    const tow_status status =
        number < site->collectives->n
            ? tow__collective_wait(*c)
            : tow__fail(site->ctx, TOW_INTERNAL_ERROR, "the operands of a wait are no results of a start");
    if (status != TOW_OK) end_run(site, status);
    return status == TOW_OK;
}

/* partial sums or layers, buffer -> the same when they are complete */
static void wait_for_whole(const tow__kernel_call *call)
{
    tow__collective *c;
    if (wait(call, &c)) copy_buffer(call, &call->out[0], &call->in[0]);
}

/* partial sums, buffer -> share */
static void wait_for_share(const tow__kernel_call *call)
{
    tow__collective *c;
    if (!wait(call, &c)) return;
    const tow__buffer own = share_in(&call->in[0], c);
    if (tow__buffer_count(&own) > 0) copy_buffer(call, &call->out[0], &own);
}

static const tow__kernel kernels[] = {
    {.primitive = "all_reduce_start", .dtypes = TOW__ALL_DTYPES, .run = start_sum, .engine = "group"},
    {.primitive = "all_reduce_wait", .dtypes = TOW__ALL_DTYPES, .run = wait_for_whole, .engine = "group"},
    {.primitive = "reduce_scatter_start", .dtypes = TOW__ALL_DTYPES, .run = start_sum, .engine = "group"},
    {.primitive = "reduce_scatter_wait", .dtypes = TOW__ALL_DTYPES, .run = wait_for_share, .engine = "group"},
    {.primitive = "all_gather_start", .dtypes = TOW__ALL_DTYPES, .run = start_gather, .engine = "group"},
    {.primitive = "all_gather_wait", .dtypes = TOW__ALL_DTYPES, .run = wait_for_whole, .engine = "group"},
};
const tow__kernel_table tow__kernels_collective = {kernels, sizeof kernels / sizeof kernels[0]};

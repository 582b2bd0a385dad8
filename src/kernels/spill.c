/* Rows of arrays of which some are in a file (src/base/spill.h): row i < file_rows is in the file, the others are rows
 * i - file_rows of the array. The plan gives each call the site it was recorded at; what fails ends the run. */
#include "src/base/spill.h"

#include <stdio.h>

#include "src/base/dtypes.h"
#include "src/base/host.h"
#include "src/base/params.h"
#include "src/kernels/strided.h"
#include "src/kernels/tables.h"

/* Ends the run. The message is in the context already. */
static void end_run(const tow__host_site *site, tow_status status)
{
    char text[sizeof site->ctx->error];
    snprintf(text, sizeof text, "%s", site->ctx->error);
    *site->failure = status;
    tow__fail(site->ctx, status, "%s%s%s%s%s", site->here ? site->here : "", site->here ? ": " : "",
              site->scope ? site->scope : "", site->scope ? ": " : "", text);
}

/* () -> token, staging rows */
static void run_spill(const tow__kernel_call *call)
{
    const tow__host_site *site = call->user;
    const tow_status status = tow__spill_begin(site->spill, site->region, call->out[1].data);
    if (status != TOW_OK) end_run(site, status);
    *(int32_t *)call->out[0].data = site->region->token;
}

static int32_t scalar_of(const tow__buffer *b) { return *(const int32_t *)b->data; }

/* Row i of the array, in the shape of `row`. */
static tow__strided row_of(const tow__buffer *array, int64_t i, const tow__buffer *row)
{
    char *data = (char *)array->data + i * array->strides[0] * (int64_t)tow__element_bytes(array->dtype);
    return tow__strided_of(data, array->dtype, row->rank, row->dims, array->strides + 1);
}

/* A row without gaps, in the shape of `row`. */
static tow__buffer packed(char *data, const tow__buffer *row)
{
    tow__buffer b = *row;
    int64_t step = 1;
    b.data = data;
    for (int d = b.rank; d-- > 0; step *= b.dims[d]) b.strides[d] = step;
    return b;
}

/* x, row, index, token, staging -> x with the row */
static void run_spill_write(const tow__kernel_call *call)
{
    const tow__host_site *site = call->user;
    const tow__buffer *x = &call->in[0], *row = &call->in[1], *out = &call->out[0];
    const int64_t file_rows = ((const tow__spill_rows_params *)call->params)->file_rows, i = scalar_of(&call->in[2]);
    const tow__strided from = tow__strided_buffer(row);
    if (x->data != out->data) {
        const tow__strided all = tow__strided_buffer(out), before = tow__strided_buffer(x);
        tow__strided_store(call->team, &all, &before);
    }
    if (i >= file_rows) {
        const tow__strided to = row_of(out, i - file_rows, row);
        if (i - file_rows < out->dims[0]) tow__strided_store(call->team, &to, &from);
        return;
    }
    tow__spill_region *region = tow__spill_find(site->spill, scalar_of(&call->in[3]), call->in[4].data);
    if (!region) {
        end_run(site, TOW_UNSUPPORTED);
        return;
    }
    const tow__buffer room = packed(tow__spill_room(site->spill, region), row);
    const tow__strided to = tow__strided_buffer(&room);
    tow__strided_store(call->team, &to, &from);
    const tow_status status = tow__spill_write(site->spill, region, i < 0 ? 0 : i);
    if (status != TOW_OK) end_run(site, status);
}

/* x, index, token, staging -> row */
static void run_spill_read(const tow__kernel_call *call)
{
    const tow__host_site *site = call->user;
    const tow__buffer *x = &call->in[0], *out = &call->out[0];
    const int64_t file_rows = ((const tow__spill_rows_params *)call->params)->file_rows, i = scalar_of(&call->in[1]);
    const tow__strided to = tow__strided_buffer(out);
    tow__spill_region *region = tow__spill_find(site->spill, scalar_of(&call->in[2]), call->in[3].data);
    if (!region) {
        end_run(site, TOW_UNSUPPORTED);
        return;
    }
    tow_status status = TOW_OK;
    if (i >= file_rows) {
        const tow__strided from = row_of(x, i - file_rows, out);
        if (i - file_rows < x->dims[0]) tow__strided_store(call->team, &to, &from);
    } else {
        const char *data = NULL;
        status = tow__spill_read(site->spill, region, i < 0 ? 0 : i, &data);
        if (status == TOW_OK) memcpy(out->data, data, region->row_bytes);
    }
    if (status != TOW_OK)
        end_run(site, status);
    else if (i <= file_rows)
        tow__spill_prefetch(site->spill, region, i - 1);
}

static const tow__kernel kernels[] = {
    {.primitive = "spill", .dtypes = TOW__ALL_DTYPES, .run = run_spill, .engine = "file"},
    {.primitive = "spill_write", .dtypes = TOW__ALL_DTYPES, .run = run_spill_write, .engine = "file"},
    {.primitive = "spill_read", .dtypes = TOW__ALL_DTYPES, .run = run_spill_read, .engine = "file"},
};
const tow__kernel_table tow__kernels_spill = {kernels, sizeof kernels / sizeof kernels[0]};

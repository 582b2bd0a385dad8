/* Calls of host functions, and debug_print. The plan gives a call the site it was recorded at; what fails says so in
 * the status of the run, which ends it. */
#include <stdio.h>

#include "src/base/base.h"
#include "src/base/host.h"
#include "src/base/params.h"
#include "src/kernels/element_text.h"
#include "src/kernels/strided.h"
#include "src/kernels/tables.h"

/* ---- operands without strides ------------------------------------------------------------------------------------ */

static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

static size_t buffer_bytes(const tow__buffer *b) { return (size_t)tow__buffer_count(b) * tow__element_bytes(b->dtype); }

/* The operand as a row-major array; a copy of it in `scratch`, which moves on, if it is none. */
static tow__buffer packed(const tow__buffer *x, char **scratch)
{
    tow__buffer y = *x;
    int64_t step = 1, index[TOW_MAX_RANK] = {0};
    const size_t size = tow__element_bytes(x->dtype);
    for (int d = y.rank; d-- > 0; step *= y.dims[d]) y.strides[d] = step;
    if (tow__buffer_contiguous(x)) return y;
    y.data = *scratch;
    *scratch += aligned(buffer_bytes(x));
    for (int64_t i = 0; i < step; i++) {
        int64_t at = 0;
        for (int d = 0; d < x->rank; d++) at += index[d] * x->strides[d];
        memcpy((char *)y.data + (size_t)i * size, (const char *)x->data + at * (int64_t)size, size);
        for (int d = x->rank; d-- > 0 && ++index[d] == x->dims[d];) index[d] = 0;
    }
    return y;
}

/* Buffers, and copies of operands that are not contiguous. */
static size_t packed_bytes(const tow__kernel_call *call)
{
    size_t bytes = aligned((call->n_in + 1) * sizeof(tow__buffer));
    for (size_t i = 0; i < call->n_in; i++)
        if (!tow__buffer_contiguous(&call->in[i])) bytes += aligned(buffer_bytes(&call->in[i]));
    return bytes;
}

/* [n_in] buffers at the beginning of the scratch memory; *rest: what is behind them. */
static tow__buffer *pack_operands(const tow__kernel_call *call, char **rest)
{
    tow__buffer *in = call->scratch;
    *rest = (char *)call->scratch + aligned((call->n_in + 1) * sizeof *in);
    for (size_t i = 0; i < call->n_in; i++) in[i] = packed(&call->in[i], rest);
    return in;
}

/* ---- call_host --------------------------------------------------------------------------------------------------- */

/* Puts before the function's message where it was called. */
static void explain(const tow__host_site *site, tow_status status)
{
    char text[sizeof site->ctx->error];
    tow_context *ctx = site->ctx;
    snprintf(text, sizeof text, "%s", ctx->error[0] ? ctx->error : tow_status_text(status));
    tow__fail(ctx, status, "%s%s%s%shost function \"%s\": %s", site->here ? site->here : "", site->here ? ": " : "",
              site->scope ? site->scope : "", site->scope ? ": " : "", site->host->function.name, text);
}

static void run_host(const tow__kernel_call *call)
{
    const tow__host_site *site = call->user;
    char *rest;
    const tow_host_call c = {.n_inputs = call->n_in,
                             .n_outputs = call->n_out,
                             .inputs = pack_operands(call, &rest),
                             .outputs = call->out,
                             .user = site->host->function.user,
                             .context = site->ctx};
    tow_context_clear_error(site->ctx);
    const tow_status status = site->host->function.run(&c);
    if (status == TOW_OK) return;
    *site->failure = status;
    explain(site, status);
}

/* ---- debug_print ------------------------------------------------------------------------------------------------- */

enum {
    MOST = 1000, /* elements of an array that is shown whole */
    EDGE = 3     /* elements, or rows, that are shown at each end of an axis of a larger one */
};

/* Rows along an axis that are shown. */
static int64_t shown(const tow__buffer *x, int axis, bool whole)
{
    const int64_t n = x->dims[axis];
    return whole || n <= 2 * EDGE ? n : 2 * EDGE;
}

static size_t text_bytes(const tow__buffer *x)
{
    const bool whole = tow__buffer_count(x) <= MOST;
    size_t count = 1, bytes = TOW__NUMBER_BYTES;
    for (int d = 0; d < x->rank; d++) {
        count *= (size_t)shown(x, d, whole);
        bytes += count * 8 + 8; /* brackets, blanks and dots of the rows along this axis */
    }
    return bytes + count * TOW__NUMBER_BYTES;
}

static char *write_axis(char *text, const tow__buffer *x, int axis, int64_t at, bool whole)
{
    if (axis == x->rank) return text + tow__write_element(text, x->dtype, x->data, at);
    const int64_t n = x->dims[axis], some = shown(x, axis, whole);
    *text++ = '[';
    for (int64_t i = 0; i < some; i++) {
        if (i > 0) *text++ = ' ';
        if (some < n && i == EDGE) text += sprintf(text, "... ");
        const int64_t row = i < EDGE || some == n ? i : n - some + i;
        text = write_axis(text, x, axis + 1, at + row * x->strides[axis], whole);
    }
    *text++ = ']';
    return text;
}

static size_t print_scratch(const tow__kernel_call *call)
{
    size_t bytes = packed_bytes(call) + strlen(((const tow__debug_print_params *)call->params)->format) + 2;
    for (size_t i = 0; i < call->n_in; i++) bytes += text_bytes(&call->in[i]);
    return bytes;
}

static void run_print(const tow__kernel_call *call)
{
    const tow_context *ctx = ((const tow__host_site *)call->user)->ctx;
    char *text, *end;
    const tow__buffer *in = pack_operands(call, &text), *x = in;
    end = text;
    for (const char *f = ((const tow__debug_print_params *)call->params)->format; *f; f++) {
        if (*f == '{' && f[1] == '}') {
            end = write_axis(end, x, 0, 0, tow__buffer_count(x) <= MOST);
            x++, f++;
        } else {
            if (*f == '{' || *f == '}') f++;
            *end++ = *f;
        }
    }
    *end++ = '\n';
    if (ctx->debug_write)
        ctx->debug_write(text, (size_t)(end - text), ctx->debug_user);
    else
        fwrite(text, 1, (size_t)(end - text), stdout);
}

static const tow__kernel kernels[] = {
    {.primitive = "call_host", .dtypes = TOW__ALL_DTYPES, .run = run_host, .scratch = packed_bytes, .engine = "host"},
    {.primitive = "debug_print",
     .dtypes = TOW__ALL_DTYPES,
     .run = run_print,
     .scratch = print_scratch,
     .engine = "host"},
};
const tow__kernel_table tow__kernels_host = {kernels, sizeof kernels / sizeof kernels[0]};

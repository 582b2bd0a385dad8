/* same_bits: a value that has been made again, compared with the one that was kept, bit by bit. The plan gives a call
 * the site of the operation that made both; the first difference ends the run. */
#include <inttypes.h>
#include <stdio.h>

#include "src/base/base.h"
#include "src/base/dtypes.h"
#include "src/base/host.h"
#include "src/base/params.h"
#include "src/kernels/element_text.h"
#include "src/kernels/strided.h"
#include "src/kernels/tables.h"

/* An element with its bits: "0x3f800000 (1)". */
typedef struct element_text {
    char text[2 * TOW__NUMBER_BYTES];
} element_text;

static element_text show(const tow__buffer *x, int64_t at)
{
    element_text t;
    const size_t size = tow__element_bytes(x->dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const char *)x->data + at * (int64_t)size, size);
    const int n = snprintf(t.text, sizeof t.text, "0x%0*" PRIx64 " (", (int)(2 * size), bits);
    const int m = tow__write_element(t.text + n, x->dtype, x->data, at);
    t.text[n + m] = ')';
    t.text[n + m + 1] = 0;
    return t;
}

/* "[1, 3] of f32[2,4]" */
static void show_index(char *text, size_t size, const tow__buffer *x, const int64_t *index)
{
    size_t n = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < x->rank; d++) n += (size_t)snprintf(text + n, size - n, "%s%" PRId64, d ? ", " : "", index[d]);
    n += (size_t)snprintf(text + n, size - n, "] of %s[", tow_dtype_name(x->dtype));
    for (int d = 0; d < x->rank; d++) n += (size_t)snprintf(text + n, size - n, "%s%" PRId64, d ? "," : "", x->dims[d]);
    snprintf(text + n, size - n, "]");
}

static void show_iterations(char *text, size_t size, const tow__host_site *site)
{
    size_t n = 0;
    *text = 0;
    for (int i = site->n_rows; i-- > 0;)
        n += (size_t)snprintf(text + n, size - n, "%s%" PRId64, n ? ", " : ", in iteration ", *site->rows[i]);
}

static void report(const tow__kernel_call *call, const int64_t *index, const int64_t *at)
{
    const tow__host_site *site = call->user;
    const tow__same_bits_params *p = call->params;
    char element[TOW_MAX_RANK * 42 + 32], iterations[sizeof site->rows / sizeof *site->rows * 24 + 16];
    show_index(element, sizeof element, &call->out[0], index);
    show_iterations(iterations, sizeof iterations, site);
    *site->failure = tow__fail(
        site->ctx, TOW_CHECK_FAILED,
        "%s%s%s%s%s: result %" PRId64 " has other bits when it is made again%s: at %s it was %s, and is %s; a function "
        "that may give other bits on the same operands says so (.varies of a primitive), or runs outside of regions",
        site->here ? site->here : "", site->here ? ": " : "", site->scope ? site->scope : "", site->scope ? ": " : "",
        p->what, p->result, iterations, element, show(&call->in[1], at[1]).text, show(&call->in[0], at[0]).text);
}

/* Goes through the elements in order. at: where each element lies in the three buffers. */
static void run_same_bits(const tow__kernel_call *call)
{
    const tow__buffer *again = &call->in[0], *kept = &call->in[1], *out = &call->out[0];
    const size_t size = tow__element_bytes(again->dtype);
    const int64_t count = tow__buffer_count(again);
    int64_t index[TOW_MAX_RANK] = {0};
    const bool whole = tow__buffer_contiguous(again) && tow__buffer_contiguous(kept) && tow__buffer_contiguous(out);
    if (whole && memcmp(again->data, kept->data, (size_t)count * size) == 0) {
        if (out->data != again->data) memcpy(out->data, again->data, (size_t)count * size);
        return;
    }
    bool differs = false;
    for (int64_t i = 0; i < count; i++) {
        int64_t at[3] = {0};
        for (int d = 0; d < again->rank; d++) {
            at[0] += index[d] * again->strides[d];
            at[1] += index[d] * kept->strides[d];
            at[2] += index[d] * out->strides[d];
        }
        const char *x = (const char *)again->data + at[0] * (int64_t)size;
        if (!differs && memcmp(x, (const char *)kept->data + at[1] * (int64_t)size, size) != 0) {
            report(call, index, at);
            differs = true;
        }
        memmove((char *)out->data + at[2] * (int64_t)size, x, size);
        for (int d = again->rank; d-- > 0 && ++index[d] == again->dims[d];) index[d] = 0;
    }
}

static const tow__kernel kernels[] = {
    {.primitive = "same_bits", .dtypes = TOW__MOVED_DTYPES, .run = run_same_bits, .engine = "host"},
};
const tow__kernel_table tow__kernels_same_bits = {kernels, sizeof kernels / sizeof kernels[0]};

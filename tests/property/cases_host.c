/* Calls of functions on the host: a pure one whose derivative a rule around it gives, one that counts, and prints. Rows
 * in a file. Tests ops/spill.c. */
#include <math.h>
#include <string.h>

#include "src/ops/collective.h"
#include "tests/property/property.h"
#include "tow/autodiff.h"
#include "tow/primitive.h"

/* y = 3 x, in either type */
static tow_status triple(const tow_host_call *call)
{
    const tow_buffer *x = &call->inputs[0];
    for (int64_t i = 0; i < x->dims[0]; i++)
        if (x->dtype == TOW_F32)
            ((float *)call->outputs[0].data)[i] = 3 * ((const float *)x->data)[i];
        else
            ((double *)call->outputs[0].data)[i] = 3 * ((const double *)x->data)[i];
    return TOW_OK;
}

/* The number of elements. */
static tow_status count(const tow_host_call *call)
{
    *(int32_t *)call->outputs[0].data = (int32_t)call->inputs[0].dims[0];
    return TOW_OK;
}

static const tow_host_function triples = {.name = "triple", .run = triple, .pure = true},
                               counts = {.name = "count", .run = count};

static void call_triple(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_type type = tow_value_type(in[0]);
    (void)user;
    tow_call_host(trace, &triples, 1, in, 1, &type, out);
}

static void triple_rule(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    call_triple(trace, in, out, user);
    out[1] = tow_mul_scalar(in[1], 3);
}

static void record_triple(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    (void)c;
    tow_custom_jvp_function(trace, call_triple, triple_rule, NULL, NULL, 1, in, 1, out);
}

static void tripled(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) out[0][i] = 3 * in[0][i];
}

static void record_count(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    const tow_type number = tow_make_type(TOW_I32, 0, NULL);
    (void)c;
    tow_call_host(trace, &counts, 1, in, 1, &number, out);
    out[1] = tow_mul(in[0], tow_convert(tow_broadcast_to(out[0], 1, (int64_t[]){5}), tow_value_type(in[0]).dtype));
}

static void counted(const property_case *c, double *const *in, double *const *out)
{
    out[0][0] = 5;
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) out[1][i] = 5 * in[0][i];
}

static void discard(const char *text, size_t length, void *user) { (void)user, (void)text, (void)length; }

static void record_print(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    (void)c;
    tow_debug_output(tow_trace_context(trace), discard, NULL);
    tow_debug_print("x = {}, its square {}", in[0], tow_square(in[0]));
    out[0] = tow_mul(in[0], in[0]);
    tow_debug_print("{}", out[0]);
}

static void squared(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) out[0][i] = in[0][i] * in[0][i];
}

/* y = sin x, made twice and compared */
static void record_same_bits(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    const tow__same_bits_params p = {.what = "sin"};
    const tow_value twice[] = {tow_sin(in[0]), tow_sin(in[0])};
    (void)c;
    tow__bind(trace, tow__primitive_find("same_bits", 9), &p, 2, twice, 1, out);
}

static void sine(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) out[0][i] = sin(in[0][i]);
}

/* ---- rows in a file: 2 x + 3, where 2 has been in the file and 3 in memory --------------------------------------- */

static tow_value bind_one(tow_trace *trace, const char *name, size_t n, const tow_value *in)
{
    const tow__spill_rows_params params = {.file_rows = 1};
    return tow__bind1(trace, tow__primitive_find(name, strlen(name)), &params, n, in);
}

static void record_spill(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    const tow_type row = tow_make_type(tow_value_type(in[0]).dtype, 1, c->in[0].dims);
    const tow_type rows = tow_make_type(row.dtype, 2, (int64_t[]){1, row.dims[0]});
    const tow__spill_params params = {.dtype = row.dtype, .shape = {.n = 1, .v = {row.dims[0]}}, .file_rows = 1};
    const tow_value file = tow_scalar(trace, TOW_I32, 0), memory = tow_scalar(trace, TOW_I32, 1);
    tow_value spilled[2], x = tow_full(trace, rows, 0);
    tow__bind(trace, tow__primitive_find("spill", 5), &params, 0, NULL, 2, spilled);
    const tow_value two = tow_full(trace, row, 2), three = tow_full(trace, row, 3);
    x = bind_one(trace, "spill_write", 5, (tow_value[]){x, two, file, spilled[0], spilled[1]});
    x = bind_one(trace, "spill_write", 5, (tow_value[]){x, three, memory, spilled[0], spilled[1]});
    const tow_value again = bind_one(trace, "spill_read", 4, (tow_value[]){x, file, spilled[0], spilled[1]});
    out[0] = tow_add(tow_mul(in[0], again),
                     bind_one(trace, "spill_read", 4, (tow_value[]){x, memory, spilled[0], spilled[1]}));
}

static void two_and_three(const property_case *c, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < property_count(&c->in[0]); i++) out[0][i] = 2 * in[0][i] + 3;
}

/* ---- sums over processes: 2 is that of the group of one ---------------------------------------------------------- */

static void record_all_reduce(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    const tow__group_params params = {.group = "", .row_groups = 8};
    const tow_value two = tow_full(trace, tow_value_type(in[0]), 2);
    tow_value started[2];
    (void)c;
    tow__bind(trace, tow__primitive_find("all_reduce_start", 16), &params, 1, &two, 2, started);
    const tow_value sum = tow__bind1(trace, tow__primitive_find("all_reduce_wait", 15), NULL, 2, started);
    out[0] = tow_add_scalar(tow_mul(in[0], sum), 3);
}

/* Of the group of one, 2 is the share of each element, and the sum of it. */
static void record_scatter(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    const tow__group_params params = {.group = "", .row_groups = 8};
    const int64_t dims[2] = {1, c->in[0].dims[0]};
    const tow__share_params share = {.group = "", .n = dims[1]};
    const tow_value two = tow_full(trace, tow_make_type(tow_value_type(in[0]).dtype, 2, dims), 2);
    tow_value started[2];
    tow__bind(trace, tow__primitive_find("reduce_scatter_start", 20), &params, 1, &two, 2, started);
    tow_value sum = tow__bind1(trace, tow__primitive_find("reduce_scatter_wait", 19), &share, 2, started);
    out[0] = tow_add_scalar(tow_mul(in[0], tow_reshape(sum, 1, dims + 1)), 3);
}

static void record_gather(tow_trace *trace, const tow_value *in, tow_value *out, const property_case *c)
{
    const int64_t dims[2] = {1, c->in[0].dims[0]};
    const tow__share_params share = {.group = "", .n = dims[1]};
    const tow_value two = tow_full(trace, tow_make_type(tow_value_type(in[0]).dtype, 2, dims), 2);
    tow_value started[2];
    tow__bind(trace, tow__primitive_find("all_gather_start", 16), &share, 1, &two, 2, started);
    tow_value whole = tow__bind1(trace, tow__primitive_find("all_gather_wait", 15), NULL, 2, started);
    out[0] = tow_add_scalar(tow_mul(in[0], tow_reshape(whole, 1, dims + 1)), 3);
}

#define EXCHANGE(name_, build_, n_)                                                                                    \
    {                                                                                                                  \
        .primitive = name_, .n_in = 1, .build = build_, .value = two_and_three, .in = { {TOW_F64, S1(n_)} }            \
    }

static const property_case cases[] = {
    EXCHANGE("all_gather_start", record_gather, 4),
    EXCHANGE("all_gather_wait", record_gather, 1),
    EXCHANGE("reduce_scatter_start", record_scatter, 5),
    EXCHANGE("reduce_scatter_wait", record_scatter, 2),
    {.primitive = "all_reduce_start",
     .n_in = 1,
     .build = record_all_reduce,
     .value = two_and_three,
     .in = {{TOW_F64, S1(4)}}},
    {.primitive = "all_reduce_wait",
     .n_in = 1,
     .build = record_all_reduce,
     .value = two_and_three,
     .in = {{TOW_F64, S1(1)}}},
    {.primitive = "spill", .n_in = 1, .build = record_spill, .value = two_and_three, .in = {{TOW_F64, S1(4)}}},
    {.primitive = "spill_write", .n_in = 1, .build = record_spill, .value = two_and_three, .in = {{TOW_F64, S1(1)}}},
    {.primitive = "spill_read", .n_in = 1, .build = record_spill, .value = two_and_three, .in = {{TOW_F64, S1(9)}}},
    {.primitive = "call_host", .n_in = 1, .build = record_triple, .value = tripled, .in = {{TOW_F64, S1(4)}}},
    {.primitive = "call_host",
     .label = "with an effect",
     .n_in = 1,
     .n_out = 2,
     .build = record_count,
     .value = counted,
     .in = {{TOW_F64, S1(5)}}},
    {.primitive = "debug_print", .n_in = 1, .build = record_print, .value = squared, .in = {{TOW_F64, S2(2, 3)}}},
    {.primitive = "same_bits", .n_in = 1, .build = record_same_bits, .value = sine, .in = {{TOW_F64, S2(2, 3)}}},
};
const property_table host_cases = TABLE(cases);

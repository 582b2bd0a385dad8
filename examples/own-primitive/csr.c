/* A sparse matrix (CSR) times a dense one, and its two transposes, one kernel each. */
#include "own.h"

static bool is_csr(const tow_type *in)
{
    return in[0].dtype == TOW_F32 && in[0].rank == 1 && in[1].dtype == TOW_I32 && in[1].rank == 1 &&
           in[1].dims[0] == in[0].dims[0] && in[2].dtype == TOW_I32 && in[2].rank == 1 && in[2].dims[0] > 0 &&
           in[3].dtype == TOW_F32 && in[3].rank == 2;
}

static tow_status type(const tow_primitive_rule *rule, const tow_type *in, tow_type *out)
{
    if (!is_csr(in))
        return tow_primitive_fail(rule, TOW_SHAPE_MISMATCH, "expected f32[N], i32[N], i32[M+1] and f32[K,C]");
    const int64_t dims[] = {in[2].dims[0] - 1, in[3].dims[1]};
    out[0] = tow_make_type(TOW_F32, 2, dims);
    return TOW_OK;
}

/* The gradients: of values, [N], from (columns, starts, dense, ct); of dense, its type, from (values, ..., dense,
 * ct). */
static tow_status gradient_type(const tow_primitive_rule *rule, const tow_type *in, tow_type *out)
{
    if (!is_csr(in) || in[4].dtype != TOW_F32 || in[4].rank != 2 || in[4].dims[0] != in[2].dims[0] - 1 ||
        in[4].dims[1] != in[3].dims[1])
        return tow_primitive_fail(rule, TOW_SHAPE_MISMATCH, "expected f32[N], i32[N], i32[M+1], f32[K,C] and f32[M,C]");
    out[0] = in[0];
    out[1] = in[3];
    return TOW_OK;
}

static float at(const tow_buffer *b, int64_t i, int64_t j)
{
    return ((const float *)b->data)[i * b->strides[0] + (b->rank > 1 ? j * b->strides[1] : 0)];
}

static int64_t index_at(const tow_buffer *b, int64_t i) { return ((const int32_t *)b->data)[i * b->strides[0]]; }

static void multiply_rows(int64_t begin, int64_t end, void *argument)
{
    const tow_kernel_call *call = argument;
    const tow_buffer *in = call->inputs;
    const int64_t width = in[3].dims[1];
    for (int64_t i = begin; i < end; i++) {
        float *y = (float *)call->outputs[0].data + i * width;
        for (int64_t k = 0; k < width; k++) y[k] = 0;
        for (int64_t e = index_at(&in[2], i); e < index_at(&in[2], i + 1); e++)
            for (int64_t k = 0; k < width; k++) y[k] += at(&in[0], e, 0) * at(&in[3], index_at(&in[1], e), k);
    }
}

static void run(const tow_kernel_call *call)
{
    tow_kernel_call copy = *call;
    tow_kernel_parallel(call, call->inputs[2].dims[0] - 1, multiply_rows, &copy);
}

/* ct of values[e] = sum over k of ct[i, k] dense[column, k]; ct of dense[column, k] += values[e] ct[i, k] */
static void run_gradient(const tow_kernel_call *call)
{
    const tow_buffer *in = call->inputs;
    const int64_t width = in[3].dims[1];
    float *values = call->outputs[0].data, *dense = call->outputs[1].data;
    for (int64_t i = 0; i < in[3].dims[0] * width; i++) dense[i] = 0;
    for (int64_t i = 0; i + 1 < in[2].dims[0]; i++)
        for (int64_t e = index_at(&in[2], i); e < index_at(&in[2], i + 1); e++) {
            const int64_t column = index_at(&in[1], e);
            values[e] = 0;
            for (int64_t k = 0; k < width; k++) {
                values[e] += at(&in[4], i, k) * at(&in[3], column, k);
                dense[column * width + k] += at(&in[0], e, 0) * at(&in[4], i, k);
            }
        }
}

const tow_primitive *define_csr(tow_context *context)
{
    const tow_primitive *gradient, *result;
    tow_primitive_definition d = {
        .name = "csr_gradient", .n_inputs = 5, .n_outputs = 2, .type = gradient_type, .kernel = {.run = run_gradient}};
    if (tow_primitive_define(context, &d, &gradient) != TOW_OK) return NULL;
    /* A policy of dots keeps its result. Its derivative is a rule around the call (csr_matmul below). */
    d = (tow_primitive_definition){.name = "csr_matmul",
                                   .n_inputs = 4,
                                   .n_outputs = 1,
                                   .type = type,
                                   .kernel = {.run = run},
                                   .dot = TOW_PLAIN_DOT};
    return tow_primitive_define(context, &d, &result) == TOW_OK ? result : NULL;
}

static void call_kernel(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_primitive_call(trace, tow_primitive_find(tow_trace_context(trace), "csr_matmul"), NULL, in, out);
}

static void forward(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    call_kernel(trace, in, out, user);
    for (int i = 0; i < 4; i++) out[1 + i] = in[i];
}

static void backward(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    tow_value gradients[2];
    (void)user;
    tow_primitive_call(trace, tow_primitive_find(tow_trace_context(trace), "csr_gradient"), NULL, in, gradients);
    out[0] = gradients[0];
    out[3] = gradients[1];
}

tow_value csr_matmul(tow_value values, tow_value columns, tow_value starts, tow_value dense)
{
    const tow_value operands[] = {values, columns, starts, dense};
    const tow_custom_options options = TOW_CUSTOM_OPTIONS(.name = "csr_matmul");
    tow_value y = {0};
    tow_trace *trace = tow_value_trace(values);
    if (trace) tow_custom_vjp_function(trace, call_kernel, forward, backward, NULL, &options, 4, operands, 4, 1, &y);
    return y;
}

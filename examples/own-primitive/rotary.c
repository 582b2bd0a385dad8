/* A rotary embedding: one kernel turns pairs by their angles, forward and, for the gradient, back. */
#include "own.h"

#include <math.h>

typedef struct parameters {
    bool back;
} parameters;

static const tow_attribute fields[] = {
    {.name = "back", .kind = TOW_ATTRIBUTE_BOOL, .offset = offsetof(parameters, back)},
};

static tow_status type(const tow_primitive_rule *rule, const tow_type *in, tow_type *out)
{
    const tow_type x = in[0], a = in[1];
    if (x.dtype != TOW_F32 || a.dtype != TOW_F32 || x.rank != 2 || a.rank != 2 || x.dims[0] != a.dims[0] ||
        x.dims[1] != 2 * a.dims[1])
        return tow_primitive_fail(rule, TOW_SHAPE_MISMATCH, "expected f32[T,D] and angles f32[T,D/2]");
    out[0] = x;
    return TOW_OK;
}

static void turn_rows(int64_t begin, int64_t end, void *argument)
{
    const tow_kernel_call *call = argument;
    const tow_buffer *x = &call->inputs[0], *a = &call->inputs[1];
    const float sign = ((const parameters *)call->attributes)->back ? -1.0f : 1.0f;
    const int64_t pairs = a->dims[1];
    for (int64_t t = begin; t < end; t++) {
        const float *row = (const float *)x->data + t * x->strides[0];
        const float *angle = (const float *)a->data + t * a->strides[0];
        float *y = (float *)call->outputs[0].data + t * 2 * pairs;
        for (int64_t k = 0; k < pairs; k++) {
            const float c = cosf(angle[k * a->strides[1]]), s = sign * sinf(angle[k * a->strides[1]]);
            const float u = row[2 * k * x->strides[1]], v = row[(2 * k + 1) * x->strides[1]];
            y[2 * k] = u * c - v * s;
            y[2 * k + 1] = u * s + v * c;
        }
    }
}

static void run(const tow_kernel_call *call)
{
    tow_kernel_call copy = *call;
    tow_kernel_parallel(call, call->inputs[0].dims[0], turn_rows, &copy);
}

/* One element after the other, in double precision: what the kernel is compared with. */
static void run_plainly(const tow_kernel_call *call)
{
    const tow_buffer *x = &call->inputs[0], *a = &call->inputs[1];
    const int64_t width = x->dims[1];
    for (int64_t i = 0; i < x->dims[0] * width; i++) {
        const int64_t t = i / width, k = i % width, partner = k % 2 == 0 ? k + 1 : k - 1;
        const double angle = (double)((const float *)a->data)[t * a->strides[0] + k / 2 * a->strides[1]];
        const double by = ((const parameters *)call->attributes)->back ? -angle : angle;
        const double u = (double)((const float *)x->data)[t * x->strides[0] + k * x->strides[1]];
        const double v = (double)((const float *)x->data)[t * x->strides[0] + partner * x->strides[1]];
        ((float *)call->outputs[0].data)[i] = (float)(u * cos(by) + (k % 2 == 0 ? -v : v) * sin(by));
    }
}

/* Linear in x: dy is dx, turned. By angles it is not differentiated. */
static void jvp(tow_trace *trace, const tow_primitive_rule *rule, const tow_value *x, const tow_value *dx, tow_value *y,
                tow_value *dy)
{
    const tow_primitive *rotary = tow_primitive_find(rule->context, "rotary");
    tow_primitive_call(trace, rotary, rule->attributes, x, y);
    if (!tow_is_null(dx[1])) {
        tow_trace_fail(trace, TOW_UNSUPPORTED, "rotary has no derivative by its angles; use tow_stop_gradient of them");
        return;
    }
    const tow_value operands[] = {dx[0], x[1]};
    tow_primitive_call(trace, rotary, rule->attributes, operands, dy);
}

/* Of dy = dx, turned: ct, turned back. */
static void transpose(tow_trace *trace, const tow_primitive_rule *rule, const tow_type *types, const bool *linear,
                      const tow_value *x, const tow_value *ct, tow_value *dx)
{
    const parameters p = {.back = !((const parameters *)rule->attributes)->back};
    const tow_value operands[] = {ct[0], x[1]};
    (void)types, (void)linear;
    tow_primitive_call(trace, tow_primitive_find(rule->context, "rotary"), &p, operands, dx);
}

const tow_primitive *define_rotary(tow_context *context)
{
    const tow_primitive *result;
    const tow_primitive_definition d = {.name = "rotary",
                                        .n_inputs = 2,
                                        .n_outputs = 1,
                                        .attributes = fields,
                                        .n_attributes = 1,
                                        .attributes_size = sizeof(parameters),
                                        .type = type,
                                        .kernel = {.run = run},
                                        .reference = {.run = run_plainly},
                                        .jvp = jvp,
                                        .transpose = transpose,
                                        .tiling = TOW_TILING_ROWS};
    return tow_primitive_define(context, &d, &result) == TOW_OK ? result : NULL;
}

tow_value rotary(tow_value x, tow_value angles)
{
    const parameters p = {.back = false};
    const tow_value operands[] = {x, angles};
    tow_value y = {0};
    tow_trace *trace = tow_value_trace(x);
    if (trace) tow_primitive_call(trace, tow_primitive_find(tow_trace_context(trace), "rotary"), &p, operands, &y);
    return y;
}

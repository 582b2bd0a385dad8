/* Planted operations. All compute times x element by element, or nearly so; what is wrong with each stands beside
 * it. */
#include "tests/programs/fault.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

/* times: printed; hidden: a part of the parameters that the table of fields leaves out */
typedef struct parameters {
    double times, hidden;
} parameters;

static const tow_attribute fields[] = {
    {.name = "times", .kind = TOW_ATTRIBUTE_FLOAT, .offset = offsetof(parameters, times)},
};

static tow_status type_of_x(const tow_primitive_rule *rule, const tow_type *in, tow_type *out)
{
    if (!tow_dtype_is_float(in[0].dtype)) return tow_primitive_fail(rule, TOW_TYPE_MISMATCH, "expected floats");
    out[0] = in[0];
    return TOW_OK;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

typedef double (*function)(const tow_kernel_call *call, double x);

static double load(const tow_buffer *x, int64_t at)
{
    return x->dtype == TOW_F32 ? (double)((const float *)x->data)[at] : ((const double *)x->data)[at];
}

static void each(const tow_kernel_call *call, function f)
{
    const tow_buffer *x = &call->inputs[0], *y = &call->outputs[0];
    int64_t count = 1;
    for (int i = 0; i < x->rank; i++) count *= x->dims[i];
    for (int64_t k = 0; k < count; k++) {
        int64_t at = 0, rest = k;
        for (int i = x->rank; i-- > 0; rest /= x->dims[i]) at += rest % x->dims[i] * x->strides[i];
        const double value = f(call, load(x, at));
        if (y->dtype == TOW_F32)
            ((float *)y->data)[k] = (float)value;
        else
            ((double *)y->data)[k] = value;
    }
}

static double scaled(const tow_kernel_call *call, double x)
{
    const parameters *p = call->attributes;
    return p->times * x + p->hidden;
}

static void run_scaled(const tow_kernel_call *call) { each(call, scaled); }

/* Another result for every call. */
static double with_count(const tow_kernel_call *call, double x)
{
    static atomic_int calls;
    return scaled(call, x) + atomic_fetch_add(&calls, 1);
}

static void run_with_count(const tow_kernel_call *call) { each(call, with_count); }

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static void call_with(tow_trace *t, const tow_primitive_rule *rule, double times, tow_value x, tow_value *y)
{
    parameters p = *(const parameters *)rule->attributes;
    p.times *= times;
    p.hidden = 0;
    tow_primitive_call(t, tow_primitive_find(rule->context, "scaled"), &p, &x, y);
}

static void right_transpose(tow_trace *t, const tow_primitive_rule *rule, const tow_type *types, const bool *linear,
                            const tow_value *x, const tow_value *ct, tow_value *dx)
{
    (void)types, (void)x;
    if (linear[0]) call_with(t, rule, 1, ct[0], dx);
}

static void wrong_transpose(tow_trace *t, const tow_primitive_rule *rule, const tow_type *types, const bool *linear,
                            const tow_value *x, const tow_value *ct, tow_value *dx)
{
    (void)types, (void)x;
    if (linear[0]) call_with(t, rule, 1.03125, ct[0], dx);
}

static void wrong_jvp(tow_trace *t, const tow_primitive_rule *rule, const tow_value *x, const tow_value *dx,
                      tow_value *y, tow_value *dy)
{
    tow_primitive_call(t, tow_primitive_find(rule->context, "wrong_derivative"), rule->attributes, x, y);
    if (!tow_is_null(dx[0])) call_with(t, rule, 0.96875, dx[0], dy);
}

/* Rows come out in the opposite order. */
static void wrong_batch(tow_trace *t, const tow_primitive_rule *rule, int64_t size, const tow_value *x, const int *axes,
                        tow_value *y, int *y_axes)
{
    tow_value rows = tow_rev(x[0], 1, &axes[0]);
    (void)size;
    tow_primitive_call(t, tow_primitive_find(rule->context, "wrong_batch"), rule->attributes, &rows, y);
    y_axes[0] = axes[0];
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

#define PLANTED(...)                                                                                                   \
    {                                                                                                                  \
        .n_inputs = 1, .n_outputs = 1, .attributes = fields, .n_attributes = 1, .attributes_size = sizeof(parameters), \
        .type = type_of_x, __VA_ARGS__                                                                                 \
    }

static const tow_primitive_definition planted[] = {
    PLANTED(.name = "scaled", .kernel = {.run = run_scaled}, .linear = true, .transpose = right_transpose,
            .tiling = TOW_TILING_ELEMENTWISE), /* right */
    PLANTED(.name = "unsteady", .kernel = {.run = run_with_count}, .linear = true, .transpose = right_transpose),
    PLANTED(.name = "wrong_transpose", .kernel = {.run = run_scaled}, .linear = true, .transpose = wrong_transpose),
    PLANTED(.name = "wrong_derivative", .kernel = {.run = run_scaled}, .jvp = wrong_jvp),
    PLANTED(.name = "wrong_batch", .kernel = {.run = run_scaled}, .linear = true, .transpose = right_transpose,
            .batch = wrong_batch),
    PLANTED(.name = "lost_parameter", .kernel = {.run = run_scaled}, .linear = true, .transpose = right_transpose),
};

bool define_faults(tow_context *context)
{
    const tow_primitive *p;
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++)
        if (tow_primitive_define(context, &planted[i], &p) != TOW_OK) return false;
    return true;
}

bool is_fault(const char *name)
{
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++)
        if (strcmp(planted[i].name, name) == 0) return true;
    return false;
}

tow_value record_fault(tow_trace *t, const char *name, tow_value x)
{
    const parameters p = {.times = 0.5, .hidden = strcmp(name, "lost_parameter") == 0 ? 0.25 : 0};
    tow_value y = {0};
    tow_primitive_call(t, tow_primitive_find(tow_trace_context(t), name), &p, &x, &y);
    return y;
}

/* A primitive "counted" of the test's context that counts its calls, for tests of how often loops run their iterations:
 *
 *     counted(x f64[n]) -> 0.9 x + 0.1
 *     counted(x f64[n], number f64[n])     number: of the iteration, in all places
 *
 * Its tangent reads the result, so that an iteration runs beside its derivative. Programs of one thread call it. */
#ifndef TOW_TESTS_COUNTED_H
#define TOW_TESTS_COUNTED_H

#include <stdint.h>
#include <string.h>

#include "tow/tow.h"

enum {
    COUNTED_ITERATIONS = 3000 /* numbers are below */
};

static struct counted {
    int64_t calls, of_iteration[COUNTED_ITERATIONS];
} counted;

static tow_status counted_type(const tow_primitive_rule *rule, const tow_type *in, tow_type *out)
{
    (void)rule;
    out[0] = in[0];
    return TOW_OK;
}

static void counted_run(const tow_kernel_call *call)
{
    const tow_buffer *x = &call->inputs[0];
    for (int64_t i = 0; i < x->dims[0]; i++)
        ((double *)call->outputs[0].data)[i] = 0.9 * ((const double *)x->data)[i * x->strides[0]] + 0.1;
    counted.calls++;
    if (call->n_inputs > 1) counted.of_iteration[(int64_t)((const double *)call->inputs[1].data)[0]]++;
}

static void counted_jvp(tow_trace *t, const tow_primitive_rule *rule, const tow_value *x, const tow_value *dx,
                        tow_value *y, tow_value *dy)
{
    tow_primitive_call(t, tow_primitive_find(rule->context, "counted"), NULL, x, y);
    dy[0] = tow_mul(dx[0], tow_cos(y[0]));
}

static tow_status counted_define(tow_context *context, size_t n_inputs)
{
    const tow_primitive_definition definition = {.name = "counted",
                                                 .n_inputs = n_inputs,
                                                 .n_outputs = 1,
                                                 .type = counted_type,
                                                 .kernel = {.run = counted_run},
                                                 .jvp = counted_jvp};
    const tow_primitive *primitive;
    return tow_primitive_define(context, &definition, &primitive);
}

static void counted_reset(void) { memset(&counted, 0, sizeof counted); }

#endif

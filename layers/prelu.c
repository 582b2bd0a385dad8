/* PReLU: y = x where x >= 0, else negative_slope x. */
#include "layers/layer.h"
#include "tow/numpy.h"

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_prelu *m = (const tow_prelu *)module;
    if (!tow__check_counts(scope, "PReLU", n_in, 1, 1, n_out) || !tow__check_float(scope, "PReLU", 0, in[0], 0)) return;
    tow_initializer init = tow__init_or(m->slope_init, tow_init_constant(0.01));
    tow_value slope = tow__param_like(scope, "negative_slope", 0, NULL, init, in[0]);
    out[0] = tow_select(tow_ge_scalar(in[0], 0), in[0], tow_mul(slope, in[0]));
}

const tow_module_class tow_prelu_class = {.name = "PReLU", .call = call};

/* PReLU: y = x where x >= 0, else negative_slope x. */
#include "src/scope/layer.h"
#include "src/scope/tree.h"
#include "tow/layers.h"
#include "tow/numpy.h"

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_prelu *m = (const tow_prelu *)module;
    tow__dtypes types;
    if (!tow__check_counts(scope, "PReLU", n_in, 1, 1, n_out) || !tow__check_float(scope, "PReLU", 0, in[0], 0) ||
        !tow__param_dtype(scope, "PReLU", m->param_dtype, &types.params) ||
        !tow__compute_dtype(scope, "PReLU", m->dtype, 1, in, NULL, &types.compute)) /* as the input, as in Flax */
        return;
    tow_initializer init = tow__init_or(m->slope_init, tow_initializer_constant(0.01));
    tow_value slope =
        tow_param_with(scope, "negative_slope", tow_make_type(types.params, 0, NULL), TOW_PARAM_SCALE, init);
    tow_value x = tow__as(in[0], types.compute);
    slope = tow__as(slope, types.compute);
    out[0] = tow_where(tow_ge_scalar(x, 0), x, tow_mul(slope, x));
}

const tow_module_class tow_prelu_class = {TOW__MADE_BY(TOW_PRELU, tow_prelu), .name = "PReLU", .call = call,
                                          .layout = TOW__LAYOUT(tow_prelu)};

/* Dense: y = x.kernel + bias over the last axis. */
#include "src/scope/layer.h"
#include "src/scope/tree.h"
#include "tow/layers.h"

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_dense *m = (const tow_dense *)module;
    tow__dtypes types;
    if (!tow__check_counts(scope, "Dense", n_in, 1, 1, n_out) || !tow__check_float(scope, "Dense", 0, in[0], 1) ||
        !tow__check_option(scope, "Dense", m->features > 0, "features", (double)m->features, "a positive number") ||
        !tow__read_weight_dtypes(scope, "Dense", m->dtype, m->param_dtype, 1, in, &types))
        return;
    tow_type type = tow_value_type(in[0]); /* [..., in] */
    int64_t dims[] = {type.dims[type.rank - 1], m->features};
    tow_initializer init = tow__init_or(m->kernel_init, tow_initializer_lecun_normal());
    tow_dot_dims dot = {.n_contract = 1, .lhs_contract = {type.rank - 1}};
    tow_value y = tow__product_with_param(scope, "kernel", 2, dims, init, &types, tow__as(in[0], types.compute), &dot);
    out[0] = m->no_bias ? y : tow__add_bias(scope, y, m->bias_init, &types);
}

const tow_module_class tow_dense_class = {TOW__MADE_BY(TOW_DENSE, tow_dense), .name = "Dense", .call = call,
                                          .layout = TOW__LAYOUT(tow_dense)};

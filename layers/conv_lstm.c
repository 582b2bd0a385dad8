/* ConvLSTMCell: of gates i, g, f, o = Conv(x) + Conv(h),
 *
 *   c' = sigma(f + 1) c + sigma(i) tanh(g),   h' = sigma(o) tanh(c').
 *
 * Shi et al., Convolutional LSTM network, arXiv:1506.04214. */
#include "layers/cell.h"
#include "src/scope/tree.h"

static const char *const name = "ConvLSTMCell";

/* Spatial axes; 0 after an error. */
static int spatial_axes(tow_scope *scope, const tow_conv_lstm_cell *m)
{
    return tow__count_sizes(scope, name, "kernel_size", TOW_MAX_RANK - 2, m->kernel_size);
}

static int feature_axes(const tow_module *module)
{
    const tow_conv_lstm_cell *m = (const tow_conv_lstm_cell *)module;
    int n = 0;
    while (n < TOW_MAX_RANK - 2 && m->kernel_size[n] > 0) n++;
    return n + 1;
}

static tow_conv conv_of(const tow_conv_lstm_cell *m)
{
    tow_conv conv = TOW_CONV(.features = 4 * m->features, .no_bias = m->no_bias, .kernel_init = m->kernel_init,
                             .bias_init = m->bias_init, .dtype = m->dtype, .param_dtype = m->param_dtype);
    memcpy(conv.kernel_size, m->kernel_size, sizeof conv.kernel_size);
    return conv;
}

/* The part that it has in common with cells whose gates are products. */
static tow__gates gates_of(const tow_conv_lstm_cell *m)
{
    return (tow__gates){.cell = name,
                        .features = m->features,
                        .n_carry = 2,
                        .carry_init = m->carry_init,
                        .dtype = m->dtype,
                        .param_dtype = m->param_dtype};
}

static bool check_axes(tow_scope *scope, const tow_conv_lstm_cell *m, tow_type x)
{
    int n = spatial_axes(scope, m);
    if (n == 0 || x.rank > n) return n != 0;
    tow_scope_fail(scope, TOW_SHAPE_MISMATCH, "%s: x: expected %d spatial axes and one of features, found %s", name, n,
                   tow__type_name(x).text);
    return false;
}

/* gates: Conv(x) + Conv(h). out: c', h', h' */
static void combine(int64_t features, tow_value gates, tow_value c, tow_value *out)
{
    tow_value i = tow__gate_slice(gates, features, 0), g = tow__gate_slice(gates, features, 1);
    tow_value f = tow__gate_slice(gates, features, 2), o = tow__gate_slice(gates, features, 3);
    tow_value kept = tow__mul_promoted(tow_logistic(tow_add_scalar(f, 1)), c);
    out[0] = tow__add_promoted(kept, tow_mul(tow_logistic(i), tow_tanh(g)));
    out[1] = out[2] = tow__mul_promoted(tow_logistic(o), tow_tanh(out[0]));
}

static void prepare(tow_scope *scope, const tow_module *module, tow_value xs, tow_cell_prepared *prepared)
{
    tow_conv conv = conv_of((const tow_conv_lstm_cell *)module);
    prepared->xs = tow_apply(scope, "ih", &conv, xs);
}

static void step(tow_scope *scope, const tow_module *module, const tow_cell_prepared *prepared, const tow_value *carry,
                 tow_value x, tow_value *out)
{
    const tow_conv_lstm_cell *m = (const tow_conv_lstm_cell *)module;
    const tow__gates g = gates_of(m);
    (void)prepared;
    if (!tow__check_carry(scope, &g, carry, x)) return;
    tow_conv conv = conv_of(m);
    tow_value hidden = tow_apply(scope, "hh", &conv, tow__as(carry[1], tow_value_type(x).dtype));
    if (!tow__scope_failed(scope)) combine(m->features, tow_add(x, hidden), carry[0], out);
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_conv_lstm_cell *m = (const tow_conv_lstm_cell *)module;
    const tow__gates g = gates_of(m);
    tow_cell_prepared prepared = {0};
    tow_value x;
    if (!tow__check_cell(scope, &g, n_in, in, n_out, &x) || !check_axes(scope, m, tow_value_type(x))) return;
    prepare(scope, module, x, &prepared);
    if (!tow__scope_failed(scope)) step(scope, module, &prepared, in, prepared.xs, out);
}

static void initial_carry(tow_scope *scope, const tow_module *module, tow_type x, const uint32_t key[2],
                          tow_value *carry)
{
    const tow_conv_lstm_cell *m = (const tow_conv_lstm_cell *)module;
    const tow__gates g = gates_of(m);
    if (check_axes(scope, m, x)) tow__draw_carry(scope, &g, x, key, carry);
}

static const tow_cell_methods methods = {
    .n_carry = 2, .feature_axes = feature_axes, .initial_carry = initial_carry, .prepare = prepare, .step = step};
const tow_module_class tow_conv_lstm_cell_class = {TOW__MADE_BY(TOW_CONV_LSTM_CELL, tow_conv_lstm_cell),
                                                   .name = "ConvLSTMCell", .call = call, .cell = &methods,
                                                   .layout = TOW__LAYOUT(tow_conv_lstm_cell)};

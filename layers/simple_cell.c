/* SimpleCell: h' = tanh(W x + b + U h), with .residual h' = tanh(W x + b + U h + h). */
#include "layers/cell.h"

static tow__gates gates_of(const tow_simple_cell *m)
{
    return (tow__gates){.cell = "SimpleCell",
                        .features = m->features,
                        .n_carry = 1,
                        .kernel_init = m->kernel_init,
                        .recurrent_kernel_init = m->recurrent_kernel_init,
                        .dtype = m->dtype,
                        .param_dtype = m->param_dtype,
                        .n = 1,
                        .gate = {{"i", "h", .input_bias = true, .bias_init = m->bias_init}}};
}

static void combine(const tow_simple_cell *m, tow_value input, tow_value hidden, tow_value h, tow_value *out)
{
    tow_value sum = tow_add(input, hidden);
    if (m->residual) sum = tow_add(sum, h);
    out[0] = out[1] = tow__activation_or(m->activation, tow_tanh)(sum);
}

static void prepare(tow_scope *scope, const tow_module *module, tow_value xs, tow_cell_prepared *prepared)
{
    tow__gates g = gates_of((const tow_simple_cell *)module);
    tow__gates_prepare(scope, &g, xs, prepared);
}

static void step(tow_scope *scope, const tow_module *module, const tow_cell_prepared *prepared, const tow_value *carry,
                 tow_value x, tow_value *out)
{
    const tow_simple_cell *m = (const tow_simple_cell *)module;
    tow__gates g = gates_of(m);
    tow_value hidden = tow__gates_hidden(scope, &g, prepared, carry, x);
    if (!tow_is_null(hidden)) combine(m, x, hidden, carry[0], out);
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_simple_cell *m = (const tow_simple_cell *)module;
    tow__gates g = gates_of(m);
    tow_value x, input, hidden;
    if (!tow__check_cell(scope, &g, n_in, in, n_out, &x)) return;
    tow__gate_products(scope, &g, x, in[0], &input, &hidden);
    if (!tow__scope_failed(scope)) combine(m, input, hidden, in[0], out);
}

static void initial_carry(tow_scope *scope, const tow_module *module, tow_type x, const uint32_t key[2],
                          tow_value *carry)
{
    const tow_simple_cell *m = (const tow_simple_cell *)module;
    tow__gates g = gates_of(m);
    tow__draw_carry(scope, &g, m->carry_init, x, key, carry);
}

static const tow_cell_methods methods = {
    .n_carry = 1, .initial_carry = initial_carry, .prepare = prepare, .step = step};
const tow_module_class tow_simple_cell_class = {.name = "SimpleCell", .call = call, .cell = &methods};

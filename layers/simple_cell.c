/* SimpleCell: h' = tanh(W x + b + U h), with .residual h' = tanh(W x + b + U h + h). */
#include "layers/cell.h"
#include "src/scope/tree.h"

static tow__gates gates_of(const tow_module *module)
{
    const tow_simple_cell *m = (const tow_simple_cell *)module;
    return (tow__gates){.cell = "SimpleCell",
                        .features = m->features,
                        .n_carry = 1,
                        .kernel_init = m->kernel_init,
                        .recurrent_kernel_init = m->recurrent_kernel_init,
                        .carry_init = m->carry_init,
                        .dtype = m->dtype,
                        .param_dtype = m->param_dtype,
                        .computed_carry = !m->residual,
                        .n = 1,
                        .gate = {{"i", "h", .input_bias = true, .bias_init = m->bias_init}}};
}

static void combine(const tow_module *module, const tow_value *input, const tow_value *hidden, const tow_value *carry,
                    tow_value *out)
{
    const tow_simple_cell *m = (const tow_simple_cell *)module;
    tow_value sum = tow_add(input[0], hidden[0]);
    if (m->residual) sum = tow__add_promoted(sum, carry[0]);
    out[0] = out[1] = tow__activation_or(m->activation, tow_tanh)(sum);
}

static const tow__gate_cell cell = {.base = TOW__GATE_CELL_METHODS(1), .gates = gates_of, .combine = combine};
const tow_module_class tow_simple_cell_class = {TOW__MADE_BY(TOW_SIMPLE_CELL, tow_simple_cell), .name = "SimpleCell",
                                                .call = tow__gate_cell_call, .cell = &cell.base,
                                                .layout = TOW__LAYOUT(tow_simple_cell)};

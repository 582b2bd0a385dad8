/* GRUCell and MGUCell, of which each carries h alone.
 *
 *   GRU: r, z = sigma(W x + b + U h),  n = tanh(W x + b + r (U h + b_hn)),  h' = (1 - z) n + z h    (arXiv:1412.3555)
 *   MGU: f    = sigma(W x + b + U h),  n = tanh(W x + b + f (U h + b_hn)),  h' = (1 - f) n + f h
 * (arXiv:1603.09420) */
#include "layers/cell.h"
#include "src/scope/tree.h"

/* (1 - z) n + z h; out: h', h' */
static void blend(tow_value z, tow_value n, tow_value h, tow_value *out)
{
    tow_value rest = tow_sub(tow_full_like(z, 1), z);
    out[0] = out[1] = tow__add_promoted(tow_mul(rest, n), tow__mul_promoted(z, h));
}

/* ---- GRU --------------------------------------------------------------------------------------------------------- */

enum {
    R,
    Z,
    N
};

static tow__gates gru_gates(const tow_module *module)
{
    const tow_gru_cell *m = (const tow_gru_cell *)module;
    tow__gates g = {.cell = "GRUCell",
                    .features = m->features,
                    .n_carry = 1,
                    .kernel_init = m->kernel_init,
                    .recurrent_kernel_init = m->recurrent_kernel_init,
                    .carry_init = m->carry_init,
                    .dtype = m->dtype,
                    .param_dtype = m->param_dtype,
                    .n = 3,
                    .gate = {[R] = {"ir", "hr"}, [Z] = {"iz", "hz"}, [N] = {"in", "hn", .hidden_bias = true}}};
    for (int k = 0; k < g.n; k++) {
        g.gate[k].input_bias = true;
        g.gate[k].bias_init = m->bias_init;
    }
    return g;
}

static void gru_combine(const tow_module *module, const tow_value *input, const tow_value *hidden,
                        const tow_value *carry, tow_value *out)
{
    const tow_gru_cell *m = (const tow_gru_cell *)module;
    tow_activation gate = tow__activation_or(m->gate, tow_logistic);
    tow_value r = gate(tow_add(input[R], hidden[R])), z = gate(tow_add(input[Z], hidden[Z]));
    tow_value n = tow__activation_or(m->activation, tow_tanh)(tow_add(input[N], tow_mul(r, hidden[N])));
    blend(z, n, carry[0], out);
}

static const tow__gate_cell gru = {.base = TOW__GATE_CELL_METHODS(1), .gates = gru_gates, .combine = gru_combine};
const tow_module_class tow_gru_cell_class = {TOW__MADE_BY(TOW_GRU_CELL, tow_gru_cell), .name = "GRUCell",
                                             .call = tow__gate_cell_call, .cell = &gru.base,
                                             .layout = TOW__LAYOUT(tow_gru_cell)};

/* ---- MGU: gates f and n ------------------------------------------------------------------------------------------ */

static tow__gates mgu_gates(const tow_module *module)
{
    const tow_mgu_cell *m = (const tow_mgu_cell *)module;
    return (tow__gates){
        .cell = "MGUCell",
        .features = m->features,
        .n_carry = 1,
        .kernel_init = m->kernel_init,
        .recurrent_kernel_init = m->recurrent_kernel_init,
        .carry_init = m->carry_init,
        .dtype = m->dtype,
        .param_dtype = m->param_dtype,
        .n = 2,
        .gate = {
            {"if", "hf", .input_bias = true, .bias_init = tow__init_or(m->forget_bias_init, tow_initializer_ones())},
            {"in", "hn", .input_bias = true, .hidden_bias = !m->no_reset_gate, .bias_init = m->activation_bias_init}}};
}

static void mgu_combine(const tow_module *module, const tow_value *input, const tow_value *hidden,
                        const tow_value *carry, tow_value *out)
{
    const tow_mgu_cell *m = (const tow_mgu_cell *)module;
    tow_value f = tow__activation_or(m->gate, tow_logistic)(tow_add(input[0], hidden[0]));
    tow_value reset = m->no_reset_gate ? hidden[1] : tow_mul(hidden[1], f);
    blend(f, tow__activation_or(m->activation, tow_tanh)(tow_add(input[1], reset)), carry[0], out);
}

static const tow__gate_cell mgu = {.base = TOW__GATE_CELL_METHODS(1), .gates = mgu_gates, .combine = mgu_combine};
const tow_module_class tow_mgu_cell_class = {TOW__MADE_BY(TOW_MGU_CELL, tow_mgu_cell), .name = "MGUCell",
                                             .call = tow__gate_cell_call, .cell = &mgu.base,
                                             .layout = TOW__LAYOUT(tow_mgu_cell)};

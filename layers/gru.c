/* GRUCell and MGUCell, of which each carries h alone.
 *
 *   GRU: r, z = sigma(W x + b + U h),  n = tanh(W x + b + r (U h + b_hn)),  h' = (1 - z) n + z h    (arXiv:1412.3555)
 *   MGU: f    = sigma(W x + b + U h),  n = tanh(W x + b + f (U h + b_hn)),  h' = (1 - f) n + f h    (arXiv:1603.09420) */
#include "layers/cell.h"

/* (1 - z) n + z h; out: h', h' */
static void blend(tow_value z, tow_value n, tow_value h, tow_value *out)
{
    tow_value rest = tow_sub(tow_full_like(z, 1), z);
    out[0] = out[1] = tow_add(tow_mul(rest, n), tow_mul(z, h));
}

/* ---- GRU --------------------------------------------------------------------------------------------------------- */

enum {
    R,
    Z,
    N
};

static tow__gates gru_gates(const tow_gru_cell *m)
{
    tow__gates g = {.cell = "GRUCell",
                    .features = m->features,
                    .n_carry = 1,
                    .kernel_init = m->kernel_init,
                    .recurrent_kernel_init = m->recurrent_kernel_init,
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

/* input, hidden: of each gate, biases added. */
static void gru_combine(const tow_gru_cell *m, const tow_value *input, const tow_value *hidden, tow_value h,
                        tow_value *out)
{
    tow_activation gate = tow__activation_or(m->gate, tow_logistic);
    tow_value r = gate(tow_add(input[R], hidden[R])), z = gate(tow_add(input[Z], hidden[Z]));
    tow_value n = tow__activation_or(m->activation, tow_tanh)(tow_add(input[N], tow_mul(r, hidden[N])));
    blend(z, n, h, out);
}

static void gru_prepare(tow_scope *scope, const tow_module *module, tow_value xs, tow_cell_prepared *prepared)
{
    tow__gates g = gru_gates((const tow_gru_cell *)module);
    tow__gates_prepare(scope, &g, xs, prepared);
}

static void gru_step(tow_scope *scope, const tow_module *module, const tow_cell_prepared *prepared,
                     const tow_value *carry, tow_value x, tow_value *out)
{
    const tow_gru_cell *m = (const tow_gru_cell *)module;
    tow__gates g = gru_gates(m);
    tow_value all = tow__gates_hidden(scope, &g, prepared, carry, x), input[3], hidden[3];
    if (tow_is_null(all)) return;
    for (int k = 0; k < g.n; k++) {
        input[k] = tow__gate_slice(x, m->features, k);
        hidden[k] = tow__gate_slice(all, m->features, k);
    }
    hidden[N] = tow_add(hidden[N], prepared->shared[1]);
    gru_combine(m, input, hidden, carry[0], out);
}

static void gru_call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    const tow_gru_cell *m = (const tow_gru_cell *)module;
    tow__gates g = gru_gates(m);
    tow_value x, input[3], hidden[3];
    if (!tow__check_cell(scope, &g, n_in, in, n_out, &x)) return;
    tow__gate_products(scope, &g, x, in[0], input, hidden);
    if (!tow__scope_failed(scope)) gru_combine(m, input, hidden, in[0], out);
}

static void gru_initial_carry(tow_scope *scope, const tow_module *module, tow_type x, const uint32_t key[2],
                              tow_value *carry)
{
    const tow_gru_cell *m = (const tow_gru_cell *)module;
    tow__gates g = gru_gates(m);
    tow__draw_carry(scope, &g, m->carry_init, x, key, carry);
}

static const tow_cell_methods gru_methods = {
    .n_carry = 1, .initial_carry = gru_initial_carry, .prepare = gru_prepare, .step = gru_step};
const tow_module_class tow_gru_cell_class = {.name = "GRUCell", .call = gru_call, .cell = &gru_methods};

/* ---- MGU: gates f and n ------------------------------------------------------------------------------------------ */

static tow__gates mgu_gates(const tow_mgu_cell *m)
{
    return (tow__gates){
        .cell = "MGUCell",
        .features = m->features,
        .n_carry = 1,
        .kernel_init = m->kernel_init,
        .recurrent_kernel_init = m->recurrent_kernel_init,
        .dtype = m->dtype,
        .param_dtype = m->param_dtype,
        .n = 2,
        .gate = {
            {"if", "hf", .input_bias = true, .bias_init = tow__init_or(m->forget_bias_init, tow_init_ones())},
            {"in", "hn", .input_bias = true, .hidden_bias = !m->no_reset_gate, .bias_init = m->activation_bias_init}}};
}

static void mgu_combine(const tow_mgu_cell *m, const tow_value *input, const tow_value *hidden, tow_value h,
                        tow_value *out)
{
    tow_value f = tow__activation_or(m->gate, tow_logistic)(tow_add(input[0], hidden[0]));
    tow_value reset = m->no_reset_gate ? hidden[1] : tow_mul(hidden[1], f);
    blend(f, tow__activation_or(m->activation, tow_tanh)(tow_add(input[1], reset)), h, out);
}

static void mgu_prepare(tow_scope *scope, const tow_module *module, tow_value xs, tow_cell_prepared *prepared)
{
    tow__gates g = mgu_gates((const tow_mgu_cell *)module);
    tow__gates_prepare(scope, &g, xs, prepared);
}

static void mgu_step(tow_scope *scope, const tow_module *module, const tow_cell_prepared *prepared,
                     const tow_value *carry, tow_value x, tow_value *out)
{
    const tow_mgu_cell *m = (const tow_mgu_cell *)module;
    tow__gates g = mgu_gates(m);
    tow_value all = tow__gates_hidden(scope, &g, prepared, carry, x), input[2], hidden[2];
    if (tow_is_null(all)) return;
    for (int k = 0; k < g.n; k++) {
        input[k] = tow__gate_slice(x, m->features, k);
        hidden[k] = tow__gate_slice(all, m->features, k);
    }
    if (!m->no_reset_gate) hidden[1] = tow_add(hidden[1], prepared->shared[1]);
    mgu_combine(m, input, hidden, carry[0], out);
}

static void mgu_call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    const tow_mgu_cell *m = (const tow_mgu_cell *)module;
    tow__gates g = mgu_gates(m);
    tow_value x, input[2], hidden[2];
    if (!tow__check_cell(scope, &g, n_in, in, n_out, &x)) return;
    tow__gate_products(scope, &g, x, in[0], input, hidden);
    if (!tow__scope_failed(scope)) mgu_combine(m, input, hidden, in[0], out);
}

static void mgu_initial_carry(tow_scope *scope, const tow_module *module, tow_type x, const uint32_t key[2],
                              tow_value *carry)
{
    const tow_mgu_cell *m = (const tow_mgu_cell *)module;
    tow__gates g = mgu_gates(m);
    tow__draw_carry(scope, &g, m->carry_init, x, key, carry);
}

static const tow_cell_methods mgu_methods = {
    .n_carry = 1, .initial_carry = mgu_initial_carry, .prepare = mgu_prepare, .step = mgu_step};
const tow_module_class tow_mgu_cell_class = {.name = "MGUCell", .call = mgu_call, .cell = &mgu_methods};

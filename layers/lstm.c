/* LSTMCell and OptimizedLSTMCell: of gates i, f, g, o = W x + U h + b,
 *
 *   c' = sigma(f) c + sigma(i) tanh(g),   h' = sigma(o) tanh(c').
 *
 * Hochreiter and Schmidhuber, Long short-term memory, Neural Computation 9 (1997), with forget gates. */
#include "layers/cell.h"
#include "src/scope/tree.h"

/* Both structs have the same options; this is where they are read. */
typedef struct options {
    const char *name;
    int64_t features;
    tow_activation gate, activation;
    tow_initializer kernel_init, recurrent_kernel_init, bias_init, carry_init;
    tow_dtype dtype, param_dtype;
} options;

#define READ(layer, text)                                                                                              \
    ((options){.name = (text),                                                                                         \
               .features = (layer)->features,                                                                          \
               .gate = tow__activation_or((layer)->gate, tow_logistic),                                                \
               .activation = tow__activation_or((layer)->activation, tow_tanh),                                        \
               .kernel_init = (layer)->kernel_init,                                                                    \
               .recurrent_kernel_init = (layer)->recurrent_kernel_init,                                                \
               .bias_init = (layer)->bias_init,                                                                        \
               .carry_init = (layer)->carry_init,                                                                      \
               .dtype = (layer)->dtype,                                                                                \
               .param_dtype = (layer)->param_dtype})

static options read_options(const tow_module *module)
{
    if (module->cls == &tow_lstm_cell_class) return READ((const tow_lstm_cell *)module, "LSTMCell");
    return READ((const tow_optimized_lstm_cell *)module, "OptimizedLSTMCell");
}

enum {
    I,
    F,
    G,
    O
};

static tow__gates gates_of(const tow_module *module)
{
    options o = read_options(module);
    tow__gates g = {.cell = o.name,
                    .features = o.features,
                    .n_carry = 2,
                    .kernel_init = o.kernel_init,
                    .recurrent_kernel_init = o.recurrent_kernel_init,
                    .carry_init = o.carry_init,
                    .dtype = o.dtype,
                    .param_dtype = o.param_dtype,
                    .n = 4,
                    .gate = {[I] = {"ii", "hi"}, [F] = {"if", "hf"}, [G] = {"ig", "hg"}, [O] = {"io", "ho"}}};
    for (int k = 0; k < g.n; k++) {
        g.gate[k].hidden_bias = true;
        g.gate[k].bias_init = o.bias_init;
    }
    return g;
}

/* sums: W x + U h + b of each gate. out: c', h', h' */
static void apply_gates(const options *o, const tow_value *sums, tow_value c, tow_value *out)
{
    tow_value kept = tow__mul_promoted(o->gate(sums[F]), c);
    tow_value added = tow_mul(o->gate(sums[I]), o->activation(sums[G]));
    out[0] = tow__add_promoted(kept, added);
    out[1] = out[2] = tow__mul_promoted(o->gate(sums[O]), o->activation(out[0]));
}

static void combine(const tow_module *module, const tow_value *input, const tow_value *hidden, const tow_value *carry,
                    tow_value *out)
{
    options o = read_options(module);
    tow_value sums[4];
    for (int k = 0; k < 4; k++) sums[k] = tow_add(input[k], hidden[k]);
    apply_gates(&o, sums, carry[0], out);
}

/* All gates have equal roles: one sum for them, which is then cut. */
static void step(tow_scope *scope, const tow_module *module, const tow_cell_prepared *prepared, const tow_value *carry,
                 tow_value x, tow_value *out)
{
    options o = read_options(module);
    tow__gates g = gates_of(module);
    tow_value hidden = tow__gates_hidden(scope, &g, prepared, carry, x), sums[4];
    if (tow_is_null(hidden)) return;
    tow_value all = tow_add(x, hidden);
    for (int k = 0; k < g.n; k++) sums[k] = tow__gate_slice(all, o.features, k);
    apply_gates(&o, sums, carry[0], out);
}

/* With kernels put together, as in prepare. */
static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    tow__gates g = gates_of(module);
    tow_cell_prepared prepared = {0};
    tow_value x;
    if (!tow__check_cell(scope, &g, n_in, in, n_out, &x)) return;
    tow__gates_prepare(scope, &g, x, &prepared);
    if (!tow__scope_failed(scope)) step(scope, module, &prepared, in, prepared.xs, out);
}

static const tow__gate_cell cell = {.base = {.n_carry = 2,
                                             .initial_carry = tow__gate_cell_initial_carry,
                                             .prepare = tow__gate_cell_prepare,
                                             .step = step},
                                    .gates = gates_of,
                                    .combine = combine};

const tow_module_class tow_lstm_cell_class = {TOW__MADE_BY(TOW_LSTM_CELL, tow_lstm_cell), .name = "LSTMCell",
                                              .call = tow__gate_cell_call, .cell = &cell.base,
                                              .layout = TOW__LAYOUT(tow_lstm_cell)};
const tow_module_class tow_optimized_lstm_cell_class = {TOW__MADE_BY(TOW_OPTIMIZED_LSTM_CELL, tow_optimized_lstm_cell),
                                                        .name = "OptimizedLSTMCell", .call = call, .cell = &cell.base,
                                                        .layout = TOW__LAYOUT(tow_optimized_lstm_cell)};

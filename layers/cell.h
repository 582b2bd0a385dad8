/* Shared by recurrent cells: gates that are products of x and of h with kernels of their own,
 *
 *   input_k = x . W_k (+ b_k),   hidden_k = h . U_k (+ b_k),   k = 0, ..., n - 1,
 *
 * kernels and biases being those of Dense children. A cell that is called makes 2 n products. prepare puts the kernels
 * side by side, so that all inputs of all steps are one product, and each step makes one more. An element is the same
 * sum in both. */
#ifndef TOW_LAYERS_CELL_H
#define TOW_LAYERS_CELL_H

#include "src/scope/layer.h"
#include "tow/recurrent.h"

enum {
    TOW__MOST_GATES = 4
};

typedef struct tow__gate {
    const char *input, *hidden; /* children */
    bool input_bias, hidden_bias;
    tow_initializer bias_init;
} tow__gate;

/* A cell as its gates see it. */
typedef struct tow__gates {
    const char *cell; /* its name in messages */
    int64_t features;
    size_t n_carry;
    tow_initializer kernel_init, recurrent_kernel_init, carry_init;
    tow_dtype dtype, param_dtype;
    bool computed_carry; /* h' is of the type of computation, whatever h is */
    int n;
    tow__gate gate[TOW__MOST_GATES];
} tow__gates;

/* A cell that is gates and what is made of them. Its methods and its call are the functions below. */
typedef struct tow__gate_cell {
    tow_cell_methods base; /* what tow_module_class.cell points to */
    tow__gates (*gates)(const tow_module *module);
    /* input, hidden: of each gate [batch..., features], biases added. Writes out[0..n_carry]. */
    void (*combine)(const tow_module *module, const tow_value *input, const tow_value *hidden, const tow_value *carry,
                    tow_value *out);
} tow__gate_cell;

void tow__gate_cell_call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out);
void tow__gate_cell_prepare(tow_scope *scope, const tow_module *module, tow_value xs, tow_cell_prepared *prepared);
void tow__gate_cell_step(tow_scope *scope, const tow_module *module, const tow_cell_prepared *prepared,
                         const tow_value *carry, tow_value x, tow_value *out);
void tow__gate_cell_initial_carry(tow_scope *scope, const tow_module *module, tow_type x, const uint32_t key[2],
                                  tow_value *carry);
#define TOW__GATE_CELL_METHODS(carries)                                                                                \
    {                                                                                                                  \
        .n_carry = (carries), .initial_carry = tow__gate_cell_initial_carry, .prepare = tow__gate_cell_prepare,        \
        .step = tow__gate_cell_step                                                                                    \
    }

/* Reports unless each carry is [batch..., features], with the batch axes of x, of a float type. */
bool tow__check_carry(tow_scope *scope, const tow__gates *g, const tow_value *carry, tow_value x);
/* Reports unless inputs are (carry..., x) with outputs (carry..., y), x [batch..., in] and each carry [batch...,
 * features] of float types. *x is then of the type of computation. */
bool tow__check_cell(tow_scope *scope, const tow__gates *g, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *x);
/* prepared->xs [..., n features]: the inputs of all gates; shared: kernel and biases of the hidden side. */
void tow__gates_prepare(tow_scope *scope, const tow__gates *g, tow_value xs, tow_cell_prepared *prepared);
/* The hidden sides of all gates as one product, [batch..., n features], for a step with this carry, of which h is the
 * last, and x from prepared->xs. A null value after an error. */
tow_value tow__gates_hidden(tow_scope *scope, const tow__gates *g, const tow_cell_prepared *prepared,
                            const tow_value *carry, tow_value x);
/* Features of gate k. */
tow_value tow__gate_slice(tow_value gates, int64_t features, int k);

/* As in Flax, a carry is stored as parameters are, or in the type of computation if that is wider: results that add to
 * it, such as z h, promote to it. So each step of a recurrence that computes in bf16 rounds what it adds, and not what
 * it has. */
tow_dtype tow__carry_dtype(const tow__gates *g, const tow__dtypes *types);
/* n carries for an x of this type, with so many features in place of its last axis. They are drawn as parameters
 * of these types are, several with keys split(key, n). */
void tow__draw_carry(tow_scope *scope, const tow__gates *g, tow_type x, const uint32_t key[2], tow_value *carry);
static inline tow_activation tow__activation_or(tow_activation given, tow_activation otherwise)
{
    return given ? given : otherwise;
}

#endif

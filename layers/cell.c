/* See cell.h. */
#include "layers/cell.h"
#include "src/scope/initializers.h"

/* ---- checks and carries ------------------------------------------------------------------------------------------ */

/* type: x with so many features in place of its last axis; false, reported: x has none, or the option is out of its
 * range. */
static bool carry_type(tow_scope *scope, const tow__gates *g, tow_type x, tow_type *type)
{
    *type = x;
    if (!tow__is_float(x.dtype) || x.rank < 1) {
        tow_scope_fail(scope, x.rank < 1 ? TOW_SHAPE_MISMATCH : TOW_TYPE_MISMATCH,
                       "%s: x: expected a float type of rank 1 or more, found %s", g->cell, tow__type_name(x).text);
        return false;
    }
    if (!tow__check_option(scope, g->cell, g->features > 0 && g->features < TOW__SIZE_LIMIT, "features",
                           (double)g->features, "a positive number below 2^30"))
        return false;
    type->dims[x.rank - 1] = g->features;
    return true;
}

/* The type in which a cell computes, for an x of this type. */
static bool read_types(tow_scope *scope, const tow__gates *g, tow_dtype x, tow__dtypes *types)
{
    if (!tow__param_dtype(scope, g->cell, g->param_dtype, &types->params) ||
        !tow__compute_dtype(scope, g->cell, g->dtype, 0, NULL, &types->params, &types->compute))
        return false;
    if (!g->dtype && !scope->dtype) types->compute = tow_promote_types(types->params, x);
    return true;
}

bool tow__check_carry(tow_scope *scope, const tow__gates *g, const tow_value *carry, tow_value x)
{
    tow_type type;
    if (!carry_type(scope, g, tow_value_type(x), &type)) return false;
    for (size_t i = 0; i < g->n_carry; i++) {
        const tow_type found = tow_value_type(carry[i]);
        const bool is_float = tow__is_float(found.dtype);
        if (is_float) type.dtype = found.dtype;
        if (is_float && tow_type_equal(found, type)) continue;
        tow_scope_fail(scope, is_float ? TOW_SHAPE_MISMATCH : TOW_TYPE_MISMATCH,
                       "%s: carry %zu: expected %s (batch axes of x, .features) or another float type, found %s",
                       g->cell, i, tow__type_name(type).text, tow__type_name(found).text);
        return false;
    }
    return true;
}

tow_dtype tow__carry_dtype(const tow__gates *g, const tow__dtypes *types)
{
    return g->computed_carry ? types->compute : tow_promote_types(types->params, types->compute);
}

bool tow__check_cell(tow_scope *scope, const tow__gates *g, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *x)
{
    size_t n = g->n_carry;
    tow__dtypes types;
    tow_type type;
    if (n_in != n + 1 || n_out != n + 1) {
        tow_scope_fail(
            scope, TOW_INVALID_ARGUMENT,
            "%s: expected %zu inputs (carry %zu, x) and as many outputs, found %zu and %zu; TOW_RNN makes the "
            "carry and calls the cell for each element of a sequence",
            g->cell, n + 1, n, n_in, n_out);
        return false;
    }
    if (!carry_type(scope, g, tow_value_type(in[n]), &type) || !read_types(scope, g, type.dtype, &types)) return false;
    *x = tow__as(in[n], types.compute);
    return tow__check_carry(scope, g, in, *x);
}

/* A constant of what the initializer fills. */
static tow_value drawn(tow_scope *scope, tow_initializer init, tow_type type, tow__key key)
{
    tow_array *array = NULL;
    tow_status status = tow_array_create(scope->model->ctx, type, &array);
    if (!status) status = tow__initialize(scope->model->ctx, &init, type, key.k, tow_array_data(array));
    if (status) tow__adopt_error(tow_scope_trace(scope));
    tow_value value = status ? (tow_value){0} : tow_constant(tow_scope_trace(scope), array);
    tow_array_release(array);
    return value;
}

void tow__draw_carry(tow_scope *scope, const tow__gates *g, tow_type x, const uint32_t key[2], tow_value *carry)
{
    const tow_initializer init = g->carry_init;
    bool zeros = tow_initializer_is_default(&init) || (init.fill == tow_initializer_zeros().fill && init.a == 0);
    tow__dtypes types;
    tow_type type;
    if (!carry_type(scope, g, x, &type) || !read_types(scope, g, x.dtype, &types)) return;
    if (!zeros && !init.fill) {
        tow_scope_fail(
            scope, TOW_INVALID_ARGUMENT,
            ".carry_init: found options but no function .fill; make it with tow_initializer_normal(1) or the like");
        return;
    }
    for (size_t i = 0; i < g->n_carry && !tow__scope_failed(scope); i++) {
        tow__key own = {{key[0], key[1]}};
        if (g->n_carry > 1) own = tow__key_fold_in(own, (uint32_t)i);
        const tow_dtype dtype = tow__carry_dtype(g, &types);
        type.dtype = zeros ? dtype : types.params;
        carry[i] = zeros ? tow_full(tow_scope_trace(scope), type, 0) : tow__as(drawn(scope, init, type, own), dtype);
    }
}

/* ---- gates ------------------------------------------------------------------------------------------------------- */

typedef struct sides {
    tow_value input_kernel[TOW__MOST_GATES], input_bias[TOW__MOST_GATES];
    tow_value hidden_kernel[TOW__MOST_GATES], hidden_bias[TOW__MOST_GATES];
} sides;

static void read_side(tow_scope *scope, const char *name, const int64_t *dims, tow_initializer kernel_init, bool biased,
                      tow_initializer bias_init, const tow__dtypes *types, tow_value *kernel, tow_value *bias)
{
    tow_scope *child = tow_scope_begin(scope, name);
    *kernel = tow__param(child, "kernel", 2, dims, kernel_init, types);
    if (biased) *bias = tow__param(child, "bias", 1, dims + 1, tow__init_or(bias_init, tow_initializer_zeros()), types);
    tow_scope_end(child);
}

/* x: of the type of computation. */
static void read_gate(tow_scope *scope, const tow__gates *g, int k, tow_type x, sides *s)
{
    tow__dtypes types = {.compute = x.dtype};
    if (!tow__param_dtype(scope, g->cell, g->param_dtype, &types.params)) return;
    const tow__gate *gate = &g->gate[k];
    const int64_t input[] = {x.dims[x.rank - 1], g->features}, hidden[] = {g->features, g->features};
    read_side(scope, gate->input, input, tow__init_or(g->kernel_init, tow_initializer_lecun_normal()), gate->input_bias,
              gate->bias_init, &types, &s->input_kernel[k], &s->input_bias[k]);
    read_side(scope, gate->hidden, hidden, tow__init_or(g->recurrent_kernel_init, tow_initializer_orthogonal(1, -1)),
              gate->hidden_bias, gate->bias_init, &types, &s->hidden_kernel[k], &s->hidden_bias[k]);
}

static tow_value product(tow_value x, tow_value kernel)
{
    int last = tow_value_type(x).rank - 1;
    return tow_dot_general(x, kernel, (tow_dot_dims){.n_contract = 1, .lhs_contract = {last}});
}

/* input[k] and hidden[k], each a product of its own, for an x of the type of computation. */
static void gate_products(tow_scope *scope, const tow__gates *g, tow_value x, tow_value h, tow_value *input,
                          tow_value *hidden)
{
    sides s = {0};
    for (int k = 0; k < g->n; k++) {
        read_gate(scope, g, k, tow_value_type(x), &s);
        if (tow__scope_failed(scope)) return;
        input[k] = product(x, s.input_kernel[k]);
        hidden[k] = product(tow__as(h, tow_value_type(x).dtype), s.hidden_kernel[k]);
        if (g->gate[k].input_bias) input[k] = tow_add(input[k], s.input_bias[k]);
        if (g->gate[k].hidden_bias) hidden[k] = tow_add(hidden[k], s.hidden_bias[k]);
    }
}

/* The parts side by side on the last axis. */
static tow_value side_by_side(int n, const tow_value *parts)
{
    return n == 1 ? parts[0] : tow_concatenate((size_t)n, parts, tow_value_type(parts[0]).rank - 1);
}

static bool all_have_hidden_bias(const tow__gates *g)
{
    for (int k = 0; k < g->n; k++)
        if (!g->gate[k].hidden_bias) return false;
    return true;
}

/* shared: [0] hidden kernel [features, n features]; then biases of the hidden side: one for all gates if all have one,
 * else those of the gates that have, in their order. */
void tow__gates_prepare(tow_scope *scope, const tow__gates *g, tow_value xs, tow_cell_prepared *prepared)
{
    sides s = {0};
    bool input_bias = true;
    tow__dtypes types;
    if (!read_types(scope, g, tow_value_type(xs).dtype, &types)) return;
    xs = tow__as(xs, types.compute);
    for (int k = 0; k < g->n; k++) {
        read_gate(scope, g, k, tow_value_type(xs), &s);
        input_bias = input_bias && g->gate[k].input_bias;
    }
    if (tow__scope_failed(scope)) return;
    prepared->xs = product(xs, side_by_side(g->n, s.input_kernel));
    if (input_bias) prepared->xs = tow_add(prepared->xs, side_by_side(g->n, s.input_bias));
    prepared->shared[prepared->n_shared++] = side_by_side(g->n, s.hidden_kernel);
    if (all_have_hidden_bias(g)) {
        prepared->shared[prepared->n_shared++] = side_by_side(g->n, s.hidden_bias);
        return;
    }
    for (int k = 0; k < g->n; k++)
        if (g->gate[k].hidden_bias) prepared->shared[prepared->n_shared++] = s.hidden_bias[k];
}

tow_value tow__gates_hidden(tow_scope *scope, const tow__gates *g, const tow_cell_prepared *prepared,
                            const tow_value *carry, tow_value x)
{
    if (!tow__check_carry(scope, g, carry, x)) return (tow_value){0};
    tow_value y = product(tow__as(carry[g->n_carry - 1], tow_value_type(x).dtype), prepared->shared[0]);
    return all_have_hidden_bias(g) ? tow_add(y, prepared->shared[1]) : y;
}

tow_value tow__gate_slice(tow_value gates, int64_t features, int k)
{
    tow_type type = tow_value_type(gates);
    if (type.rank > 0 && type.dims[type.rank - 1] == features) return gates; /* the only one */
    return tow_slice_axis(gates, tow_value_type(gates).rank - 1, k * features, (k + 1) * features);
}

/* ---- cells that are gates ---------------------------------------------------------------------------------------- */

static const tow__gate_cell *gate_cell_of(const tow_module *module)
{
    return (const tow__gate_cell *)module->cls->cell;
}

void tow__gate_cell_call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    const tow__gate_cell *cell = gate_cell_of(module);
    tow__gates g = cell->gates(module);
    tow_value x, input[TOW__MOST_GATES], hidden[TOW__MOST_GATES];
    if (!tow__check_cell(scope, &g, n_in, in, n_out, &x)) return;
    gate_products(scope, &g, x, in[g.n_carry - 1], input, hidden);
    if (!tow__scope_failed(scope)) cell->combine(module, input, hidden, in, out);
}

void tow__gate_cell_prepare(tow_scope *scope, const tow_module *module, tow_value xs, tow_cell_prepared *prepared)
{
    tow__gates g = gate_cell_of(module)->gates(module);
    tow__gates_prepare(scope, &g, xs, prepared);
}

void tow__gate_cell_step(tow_scope *scope, const tow_module *module, const tow_cell_prepared *prepared,
                         const tow_value *carry, tow_value x, tow_value *out)
{
    const tow__gate_cell *cell = gate_cell_of(module);
    tow__gates g = cell->gates(module);
    tow_value all = tow__gates_hidden(scope, &g, prepared, carry, x), input[TOW__MOST_GATES], hidden[TOW__MOST_GATES];
    if (tow_is_null(all)) return;
    const bool added = all_have_hidden_bias(&g);
    for (int k = 0, next = 1; k < g.n; k++) {
        input[k] = tow__gate_slice(x, g.features, k);
        hidden[k] = tow__gate_slice(all, g.features, k);
        if (!added && g.gate[k].hidden_bias) hidden[k] = tow_add(hidden[k], prepared->shared[next++]);
    }
    cell->combine(module, input, hidden, carry, out);
}

void tow__gate_cell_initial_carry(tow_scope *scope, const tow_module *module, tow_type x, const uint32_t key[2],
                                  tow_value *carry)
{
    tow__gates g = gate_cell_of(module)->gates(module);
    tow__draw_carry(scope, &g, x, key, carry);
}

/* Helpers of the tests of recurrent networks: numbers, and a cell that RNN calls in every step. */
#ifndef TOW_TESTS_RNN_CELLS_H
#define TOW_TESTS_RNN_CELLS_H

#include "tests/unit/support/fractions.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

#define TYPE(dtype, ...)                                                                                               \
    tow_make_type(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
#define F32(...) TYPE(TOW_F32, __VA_ARGS__)

/* A cell that says nothing of whole sequences: RNN calls it in every step. */
typedef struct stepwise {
    tow_module module;
    const tow_module *inner;
} stepwise;
static const tow_module *inner_of(const tow_module *module) { return ((const stepwise *)module)->inner; }
static void call_stepwise(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    inner_of(module)->cls->call(s, inner_of(module), n_in, in, n_out, out);
}
static void start_stepwise(tow_scope *s, const tow_module *module, tow_type x, const uint32_t key[2], tow_value *carry)
{
    inner_of(module)->cls->cell->initial_carry(s, inner_of(module), x, key, carry);
}
static int axes_of_stepwise(const tow_module *module)
{
    int (*axes)(const tow_module *) = inner_of(module)->cls->cell->feature_axes;
    return axes ? axes(inner_of(module)) : 1;
}
static const tow_cell_methods stepwise_methods[] = {
    {0},
    {.n_carry = 1, .initial_carry = start_stepwise, .feature_axes = axes_of_stepwise},
    {.n_carry = 2, .initial_carry = start_stepwise, .feature_axes = axes_of_stepwise},
};
static const tow_module_class stepwise_class[] = {
    {0},
    {.name = "stepwise", .call = call_stepwise, .cell = &stepwise_methods[1]},
    {.name = "stepwise", .call = call_stepwise, .cell = &stepwise_methods[2]},
};

#endif

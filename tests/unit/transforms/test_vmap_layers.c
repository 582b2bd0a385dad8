/* Layers called for all rows at once: one set of parameters, with the names and values of the layer alone, and rows
 * with the bits of its calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/running_layer.h"

enum {
    ROWS = 3,
    LENGTH = 5,
    WIDTH = 8
};

/* Calls a child for each row of its input, or for the whole. */
typedef struct by_rows {
    tow_module module;
    const tow_module *child;
    bool rows;
} by_rows;

typedef struct child_call {
    tow_scope *scope;
    const tow_module *child;
} child_call;

static void call_child(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const child_call *c = user;
    (void)trace;
    out[0] = tow_apply_module(c->scope, "child", c->child, in[0]);
}

static void call_by_rows(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    const by_rows *m = (const by_rows *)module;
    child_call c = {s, m->child};
    const tow_vmap_options options = TOW_VMAP_OPTIONS(.in_axes = (const int[]){1}, .out_axes = (const int[]){0});
    (void)n_in, (void)n_out;
    if (m->rows)
        tow_vmap_function(tow_scope_trace(s), call_child, &c, &options, 1, in, 1, out);
    else
        call_child(tow_scope_trace(s), in, out, &c);
}
static const tow_module_class by_rows_class = {"by_rows", call_by_rows};

static tow_array *run(const tow_module *model, tow_array *x, tow_params **params)
{
    tow_type type = tow_array_type(x);
    tow_graph *g;
    tow_array *in[32], *out = NULL;
    OK(tow_model_init(ctx, model, 7, 1, &type, params));
    OK(tow_model_forward_graph(model, *params, 1, &type, NULL, &g));
    size_t n = tow_params_count(*params);
    assert_in_range(n, 1, 31);
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(*params, i);
    in[n] = x;
    OK(tow_evaluate(g, in, &out));
    tow_graph_release(g);
    return out;
}

static void check_layer(const tow_module *child)
{
    by_rows one = {{&by_rows_class}, child, false}, all = {{&by_rows_class}, child, true};
    tow_params *params, *again;
    tow_array *x = exact_fractions(ctx, TYPE(TOW_F32, LENGTH, ROWS, WIDTH)), *row;
    tow_array *y = run(TOW_MODULE(&all), x, &params);
    size_t bytes = (size_t)LENGTH * WIDTH * sizeof(float);
    for (int r = 0; r < ROWS; r++) {
        OK(tow_array_create(ctx, TYPE(TOW_F32, LENGTH, WIDTH), &row));
        for (int t = 0; t < LENGTH; t++)
            memcpy((float *)tow_array_data(row) + t * WIDTH, (float *)tow_array_data(x) + (t * ROWS + r) * WIDTH,
                   WIDTH * sizeof(float));
        tow_array *expected = run(TOW_MODULE(&one), row, &again);
        expect_same_list("parameters", params, again);
        assert_int_equal(tow_type_bytes(tow_array_type(expected)), bytes);
        assert_memory_equal((char *)tow_array_data(y) + (size_t)r * bytes, tow_array_data(expected), bytes);
        tow_array_release(expected);
        tow_array_release(row);
        tow_params_free(again);
    }
    tow_array_release(x);
    tow_array_release(y);
    tow_params_free(params);
}

static void test_layers(void **state)
{
    (void)state;
    tow_mlp mlp = TOW_MLP(.features = {16, WIDTH});
    tow_layer_norm norm = TOW_LAYER_NORM(.epsilon = 1e-5);
    tow_dense dense = TOW_DENSE(.features = WIDTH);
    tow_remat remat = TOW_REMAT(&mlp, .policy = tow_dots_with_no_batch_dims_saveable());
    tow_scan scan = TOW_SCAN(&dense, .length = 3);
    check_layer(TOW_MODULE(&mlp));
    check_layer(TOW_MODULE(&norm));
    check_layer(TOW_MODULE(&remat));
    check_layer(TOW_MODULE(&scan));
}

static int portable_setup(void **state)
{
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.portable_bits = true);
    (void)state;
    return tow_context_create(&options, &ctx) == TOW_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
    };
    return cmocka_run_group_tests(tests, portable_setup, teardown);
}

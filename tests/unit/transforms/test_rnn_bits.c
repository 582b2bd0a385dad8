/* RNN: equal bits under remat, scan and vmap, and one product for all inputs. Tests rnn.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/rnn_cells.h"

enum {
    MOST = 64
};

/* loss, outputs, gradients of parameters and x */
typedef struct results {
    tow_params *params;
    size_t n;
    size_t products; /* in the graph of the gradient */
    tow_array *arrays[MOST];
} results;

static void compute(results *r, const tow_module *model, tow_type type, size_t n_out)
{
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = n_out);
    tow_graph *loss, *gradient;
    tow_array *in[MOST];
    size_t wrt[MOST];
    OK(tow_model_init_with(ctx, model, 3, 1, &type, &options, &r->params, NULL));
    size_t n = tow_params_count(r->params);
    OK(tow_model_loss_graph(model, r->params, 1, &type, 0, NULL, weighted_sum, &n_out, n_out, &options, &loss));
    for (size_t i = 0; i <= n; i++) wrt[i] = i;
    OK(tow_value_and_grad(loss, n + 1, wrt, true, &gradient));
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(r->params, i);
    in[n] = fractions(type, 0);
    r->n = 1 + n_out + n + 1;
    r->products = tow_graph_primitive_count(gradient, "dot_general");
    assert_true(r->n <= MOST);
    OK(tow_evaluate(gradient, in, r->arrays));
    tow_array_release(in[n]);
    tow_graph_release(loss);
    tow_graph_release(gradient);
}

static void release(results *r)
{
    for (size_t i = 0; i < r->n; i++) tow_array_release(r->arrays[i]);
    tow_params_free(r->params);
    *r = (results){0};
}

static bool same_bits(tow_array *a, tow_array *b)
{
    return tow_type_equal(tow_array_type(a), tow_array_type(b)) &&
           memcmp(tow_array_data(a), tow_array_data(b), tow_type_bytes(tow_array_type(a))) == 0;
}

static void expect_equal(const char *what, const results *a, const results *b)
{
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++)
        if (!same_bits(a->arrays[i], b->arrays[i])) fail_msg("%s: result %zu has other bits", what, i);
}

/* use(name, cell, n_carry) for every kind of cell; x is [2, 5, 6], or [2, 5, 4, 6] for ConvLSTM. */
typedef void (*cell_use)(const char *name, const tow_module *cell, size_t n_carry, tow_type x);
static void with_cells(cell_use use)
{
    tow_simple_cell simple = TOW_SIMPLE_CELL(.features = 6);
    tow_lstm_cell lstm = TOW_LSTM_CELL(.features = 6, .carry_init = tow_initializer_normal(1));
    tow_optimized_lstm_cell optimized = TOW_OPTIMIZED_LSTM_CELL(.features = 6);
    tow_gru_cell gru = TOW_GRU_CELL(.features = 6);
    tow_mgu_cell mgu = TOW_MGU_CELL(.features = 6), plain = TOW_MGU_CELL(.features = 6, .no_reset_gate = true);
    tow_conv_lstm_cell conv = TOW_CONV_LSTM_CELL(.features = 6, .kernel_size = {3});
    for (int wide = 0; wide < 2; wide++) {
        tow_dtype dtype = wide ? TOW_F64 : TOW_F32;
        use("simple", TOW_MODULE(&simple), 1, TYPE(dtype, 2, 5, 6));
        use("lstm", TOW_MODULE(&lstm), 2, TYPE(dtype, 2, 5, 6));
        use("optimized", TOW_MODULE(&optimized), 2, TYPE(dtype, 2, 5, 6));
        use("gru", TOW_MODULE(&gru), 1, TYPE(dtype, 2, 5, 6));
        use("mgu", TOW_MODULE(&mgu), 1, TYPE(dtype, 2, 5, 6));
        use("mgu without reset", TOW_MODULE(&plain), 1, TYPE(dtype, 2, 5, 6));
        use("conv", TOW_MODULE(&conv), 2, TYPE(dtype, 2, 5, 4, 6));
    }
}

/* Outputs and carries have the bits of the cell called in every step. Gradients of parameters are sums over steps in
 * another order. */
static void check_stepwise(const char *name, const tow_module *cell, size_t n_carry, tow_type x)
{
    stepwise by_step = {{&stepwise_class[n_carry]}, cell};
    tow_rnn whole = {.module = {&tow_rnn_class, sizeof(tow_rnn)}, .inner = cell}, steps = TOW_RNN(&by_step);
    results a = {0}, b = {0};
    compute(&a, TOW_MODULE(&whole), x, 1 + n_carry);
    compute(&b, TOW_MODULE(&steps), x, 1 + n_carry);
    assert_int_equal(a.n, b.n);
    for (size_t i = 0; i < 2 + n_carry; i++)
        if (!same_bits(a.arrays[i], b.arrays[i])) fail_msg("%s: result %zu has other bits than step by step", name, i);
    release(&a);
    release(&b);
}

static void test_bits_of_single_steps(void **unused)
{
    (void)unused;
    with_cells(check_stepwise);
}

/* One product each for: inputs, the step; the gradients of x, of h, and of both kernels. */
static void check_products(const char *name, const tow_module *cell, size_t n_carry, tow_type x)
{
    tow_rnn rnn = {.module = {&tow_rnn_class, sizeof(tow_rnn)}, .inner = cell};
    results r = {0};
    if (strcmp(name, "conv") == 0) return;
    compute(&r, TOW_MODULE(&rnn), x, 1 + n_carry);
    if (r.products != 6) fail_msg("%s: %zu products", name, r.products);
    release(&r);
}

static void test_one_product_for_all_inputs(void **unused)
{
    (void)unused;
    with_cells(check_products);
}

/* Around the RNN and around its cell. */
static void check_remat(const char *name, const tow_module *cell, size_t n_carry, tow_type x)
{
    const tow_policy policies[] = {tow_nothing_saveable(), tow_dots_saveable(), tow_everything_saveable(),
                                   tow_dots_with_no_batch_dims_saveable()};
    tow_rnn plain = {.module = {&tow_rnn_class, sizeof(tow_rnn)}, .inner = cell};
    results a = {0}, b = {0};
    compute(&a, TOW_MODULE(&plain), x, 1 + n_carry);
    for (int i = 0; i < 4; i++) {
        tow_remat step = {.module = {&tow_remat_class, sizeof(tow_remat)}, .inner = cell, .policy = policies[i]};
        tow_rnn inside = TOW_RNN(&step);
        tow_remat around = TOW_REMAT(&plain, .policy = policies[i]), both = TOW_REMAT(&inside, .policy = policies[i]);
        const tow_module *models[] = {TOW_MODULE(&inside), TOW_MODULE(&around), TOW_MODULE(&both)};
        for (int k = 0; k < 3; k++) {
            compute(&b, models[k], x, 1 + n_carry);
            expect_equal(name, &a, &b);
            release(&b);
        }
    }
    release(&a);
}

static void test_remat(void **unused)
{
    (void)unused;
    with_cells(check_remat);
}

/* A stack of RNNs as a loop, and written out. */
static void check_deep(const char *name, const tow_module *cell, size_t n_carry, tow_type x)
{
    tow_rnn rnn = {.module = {&tow_rnn_class, sizeof(tow_rnn)}, .inner = cell};
    tow_remat region = TOW_REMAT(&rnn);
    tow_scan loop = TOW_SCAN(&region, .length = 3), unrolled = TOW_SCAN(&region, .length = 3, .unrolled = true);
    results a = {0}, b = {0};
    (void)n_carry;
    compute(&a, TOW_MODULE(&loop), x, 1);
    compute(&b, TOW_MODULE(&unrolled), x, 1);
    if (!same_bits(a.arrays[1], b.arrays[1]) || !same_bits(a.arrays[a.n - 1], b.arrays[b.n - 1]))
        fail_msg("%s: a scan of three has other bits than three", name);
    assert_true(strncmp(tow_params_path(a.params, 0), "{}/cell/", 8) == 0);
    release(&a);
    release(&b);
}

static void test_deep(void **unused)
{
    (void)unused;
    with_cells(check_deep);
}

/* Row r of the batched forward pass has the bits of the pass on row r. */
static void check_vmap(const char *name, const tow_module *cell, size_t n_carry, tow_type x)
{
    tow_rnn rnn = {.module = {&tow_rnn_class, sizeof(tow_rnn)}, .inner = cell, .reverse = true};
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = 1 + n_carry);
    tow_params *params;
    tow_graph *one, *both;
    tow_array *in[MOST], *out[3], *expected[3];
    int axes[MOST];
    OK(tow_model_init_with(ctx, TOW_MODULE(&rnn), 3, 1, &x, &options, &params, NULL));
    OK(tow_model_forward_graph(TOW_MODULE(&rnn), params, 1, &x, &options, &one));
    size_t n = tow_params_count(params);
    for (size_t i = 0; i < n; i++) {
        axes[i] = TOW_NOT_MAPPED;
        in[i] = tow_params_array(params, i);
    }
    axes[n] = 0;
    OK(tow_vmap(one, 2, axes, NULL, &both));
    tow_type rows = x;
    memmove(rows.dims + 1, rows.dims, (size_t)x.rank * sizeof *rows.dims);
    rows.dims[0] = 2;
    rows.rank++;
    tow_array *all = fractions(rows, 0);
    in[n] = all;
    OK(tow_evaluate(both, in, out));
    for (int row = 0; row < 2; row++) {
        in[n] = fractions(x, row * tow_type_element_count(x));
        OK(tow_evaluate(one, in, expected));
        for (size_t i = 0; i < 1 + n_carry; i++) {
            size_t bytes = tow_type_bytes(tow_array_type(expected[i]));
            if (memcmp((char *)tow_array_data(out[i]) + (size_t)row * bytes, tow_array_data(expected[i]), bytes) != 0)
                fail_msg("%s under vmap: row %d of result %zu has other bits", name, row, i);
            tow_array_release(expected[i]);
        }
        tow_array_release(in[n]);
    }
    for (size_t i = 0; i < 1 + n_carry; i++) tow_array_release(out[i]);
    tow_array_release(all);
    tow_graph_release(one);
    tow_graph_release(both);
    tow_params_free(params);
}

static void test_vmap(void **unused)
{
    (void)unused;
    with_cells(check_vmap);
}

/* Every step by itself gives the bits of the loop; gradients of what steps share are sums over steps in another
 * order. */
static void check_unrolled(const char *name, const tow_module *cell, size_t n_carry, tow_type x)
{
    tow_rnn loop = {.module = {&tow_rnn_class, sizeof(tow_rnn)}, .inner = cell, .reverse = true}, steps = loop;
    results a = {0}, b = {0};
    steps.unrolled = true;
    compute(&a, TOW_MODULE(&loop), x, 1 + n_carry);
    compute(&b, TOW_MODULE(&steps), x, 1 + n_carry);
    for (size_t i = 0; i < a.n; i++)
        if (!same_bits(a.arrays[i], b.arrays[i])) fail_msg("%s: result %zu has other bits unrolled", name, i);
    release(&a);
    release(&b);
}

static void test_unrolled(void **unused)
{
    (void)unused;
    with_cells(check_unrolled);
}

/* Views of a kernel that each step reads: steps written out make them one by one, as those of the loop do. */
static void test_views_unrolled(void **unused)
{
    (void)unused;
    tow_conv_lstm_cell conv = TOW_CONV_LSTM_CELL(.features = 6, .kernel_size = {3});
    tow_rnn rnn[] = {TOW_RNN(&conv), TOW_RNN(&conv, .unrolled = true)};
    tow_type x = F32(2, 5, 4, 6);
    for (int view = 0; view < 2; view++) {
        results r[2] = {0};
        for (int k = 0; k < 2; k++) {
            tow_weight_norm norm = TOW_WEIGHT_NORM(&rnn[k], .epsilon = 0.01);
            tow_lora lora = TOW_LORA(&rnn[k], .rank = 2, .b_init = tow_initializer_normal(0.1));
            compute(&r[k], view ? TOW_MODULE(&lora) : TOW_MODULE(&norm), x, 3);
        }
        expect_equal(view ? "LoRA" : "WeightNorm", &r[0], &r[1]);
        for (int k = 0; k < 2; k++) release(&r[k]);
    }
    tow_tensors *of[2];
    for (int k = 0; k < 2; k++) {
        tow_spectral_norm norm = TOW_SPECTRAL_NORM(&rnn[k]);
        tow_params *params, *state;
        OK(tow_model_init_with(ctx, TOW_MODULE(&norm), 3, 1, &x, NULL, &params, &state));
        OK(tow_tensors_create(ctx, &of[k]));
        OK(tow_params_to_tensors(state, "", of[k]));
        tow_params_free(params);
        tow_params_free(state);
    }
    assert_int_equal(tow_tensors_count(of[0]), 2 + 2 * 5); /* u and sigma of "ih" once, of "hh" in each step */
    assert_int_equal(tow_tensors_count(of[1]), 2 + 2 * 5);
    for (size_t i = 0; i < tow_tensors_count(of[0]); i++) {
        tow_array *other = tow_tensors_find(of[1], tow_tensors_name(of[0], i));
        if (!other || !same_bits(tow_tensors_at(of[0], i), other)) fail_msg("%s", tow_tensors_name(of[0], i));
    }
    for (int k = 0; k < 2; k++) tow_tensors_free(of[k]);
}

static int portable_setup(void **unused)
{
    (void)unused;
    tow_context_options options = TOW_CONTEXT_OPTIONS(.portable_bits = true);
    return tow_context_create(&options, &ctx) == TOW_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_of_single_steps),
        cmocka_unit_test(test_one_product_for_all_inputs),
        cmocka_unit_test(test_remat),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_vmap),
        cmocka_unit_test(test_unrolled),
        cmocka_unit_test(test_views_unrolled),
    };
    return cmocka_run_group_tests(tests, portable_setup, teardown);
}

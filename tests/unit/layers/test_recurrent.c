/* Recurrent cells, RNN and Bidirectional against Flax (tests/oracle/flax_recurrent.py).
 * Tests cell.c, conv_lstm.c, gru.c, lstm.c, simple_cell.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/fractions.h"
#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/shape_text.h"
#include "tow/tow.h"

enum {
    MOST = 64
};

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* The child `name` with all inputs and outputs, and lengths as one more input where there are some. */
typedef struct named {
    tow_module module;
    const char *name;
    const tow_module *inner;
    int n_lengths;
    int lengths[4];
} named;

static void call_named(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    const named *m = (const named *)module;
    tow_value all[8];
    assert_true(n_in < 8);
    memcpy(all, in, n_in * sizeof *in);
    if (m->n_lengths)
        all[n_in++] =
            tow_constant_data(tow_scope_trace(s), tow_make_type(TOW_I32, 1, (int64_t[]){m->n_lengths}), m->lengths);
    tow_apply_module_n(s, m->name, m->inner, n_in, all, n_out, out);
}
static const tow_module_class named_class = {.name = "named", .call = call_named};

static tow_value sum_of(tow_value a, tow_value b) { return tow_add(a, b); }

/* h' = dropout(tanh(W x + b + h)) */
static void call_drop(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    tow_dense dense = TOW_DENSE(.features = 4);
    tow_dropout drop = TOW_DROPOUT(.rate = 0.5);
    (void)module, (void)n_in, (void)n_out;
    tow_value h = tow_tanh(tow_add(tow_apply(s, "input", &dense, in[1]), in[0]));
    out[0] = out[1] = tow_apply(s, "drop", &drop, h);
}
static void start_drop(tow_scope *s, const tow_module *module, tow_type x, const uint32_t key[2], tow_value *carry)
{
    (void)module, (void)key;
    x.dims[x.rank - 1] = 4;
    carry[0] = tow_full(tow_scope_trace(s), x, 0);
}
static const tow_cell_methods drop_methods = {.n_carry = 1, .initial_carry = start_drop};
static const tow_module_class drop_class = {.name = "drop", .call = call_drop, .cell = &drop_methods};

typedef struct shapes {
    size_t n;
    tow_type type[4];
} shapes;

static shapes shapes_of(tow_dtype dtype, const int64_t *dims)
{
    shapes s = {0};
    while (*dims != 0) { /* 0 ends a shape, and another one the list */
        int rank = 0;
        while (dims[rank] != 0) rank++;
        s.type[s.n++] = tow_make_type(dtype, rank, dims);
        dims += rank + 1;
    }
    return s;
}

typedef void (*case_use)(void *user, const char *name, const tow_module *model, const shapes *inputs, size_t n_out);

#define H 2, 4, 0
#define X 2, 3, 0
#define LIST(...)                                                                                                      \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define CASE(text, child, layer, outputs, length_count, length_list, ...)                                              \
    if (!name || strcmp(name, text) == 0) {                                                                            \
        const int64_t dims[] = {__VA_ARGS__, 0};                                                                       \
        shapes inputs = shapes_of(dtype, dims);                                                                        \
        named model = {{&named_class}, child, TOW_MODULE(&(layer)), length_count, length_list};                        \
        use(user, text, TOW_MODULE(&model), &inputs, outputs);                                                         \
        found = true;                                                                                                  \
    }
#define CELL(text, layer, outputs, ...) CASE(text, "cell", layer, outputs, 0, LIST(0), __VA_ARGS__)
#define RNN(text, layer, outputs, ...)  CASE(text, "rnn", layer, outputs, 0, LIST(0), __VA_ARGS__)

static bool with_cell(const char *name, tow_dtype dtype, case_use use, void *user)
{
    bool found = false;
    tow_initializer normal = tow_initializer_normal(0.5), uniform = tow_initializer_uniform(0.3),
                    he = tow_initializer_he_normal();
    CELL("simple", TOW_SIMPLE_CELL(.features = 4), 2, H, X)
    CELL("simple_residual", TOW_SIMPLE_CELL(.features = 4, .residual = true, .activation = tow_relu), 2, H, X)
    CELL("simple_init",
         TOW_SIMPLE_CELL(.features = 4, .kernel_init = normal, .recurrent_kernel_init = he, .bias_init = uniform), 2, H,
         X)
    CELL("lstm", TOW_LSTM_CELL(.features = 4), 3, H, H, X)
    CELL("lstm_batches", TOW_LSTM_CELL(.features = 4), 3, 2, 3, 4, 0, 2, 3, 4, 0, 2, 3, 5, 0)
    CELL("lstm_no_batch", TOW_LSTM_CELL(.features = 4), 3, 4, 0, 4, 0, 3, 0)
    CELL("lstm_init",
         TOW_LSTM_CELL(.features = 4, .kernel_init = normal, .recurrent_kernel_init = he, .bias_init = uniform), 3, H,
         H, X)
    CELL("lstm_functions", TOW_LSTM_CELL(.features = 4, .gate = tow_tanh, .activation = tow_relu), 3, H, H, X)
    CELL("optimized_lstm", TOW_OPTIMIZED_LSTM_CELL(.features = 4), 3, H, H, X)
    CELL("optimized_lstm_init",
         TOW_OPTIMIZED_LSTM_CELL(.features = 4, .bias_init = uniform, .recurrent_kernel_init = he), 3, H, H, X)
    CELL("gru", TOW_GRU_CELL(.features = 4), 2, H, X)
    CELL("gru_init", TOW_GRU_CELL(.features = 4, .bias_init = uniform, .recurrent_kernel_init = he), 2, H, X)
    CELL("gru_functions", TOW_GRU_CELL(.features = 4, .gate = tow_tanh, .activation = tow_relu), 2, H, X)
    CELL("mgu", TOW_MGU_CELL(.features = 4), 2, H, X)
    CELL("mgu_no_reset", TOW_MGU_CELL(.features = 4, .no_reset_gate = true), 2, H, X)
    CELL("mgu_init",
         TOW_MGU_CELL(.features = 4, .forget_bias_init = uniform, .activation_bias_init = tow_initializer_normal(0.2),
                      .recurrent_kernel_init = he),
         2, H, X)
    CELL("conv_lstm", TOW_CONV_LSTM_CELL(.features = 3, .kernel_size = {3, 2}), 3, 2, 4, 5, 3, 0, 2, 4, 5, 3, 0, 2, 4,
         5, 2, 0)
    CELL("conv_lstm_1d", TOW_CONV_LSTM_CELL(.features = 3, .kernel_size = {4}, .no_bias = true), 3, 2, 6, 3, 0, 2, 6, 3,
         0, 2, 6, 2, 0)
    return found;
}

static bool with_rnn(const char *name, tow_dtype dtype, case_use use, void *user)
{
    bool found = false;
    tow_simple_cell simple = TOW_SIMPLE_CELL(.features = 4);
    tow_lstm_cell lstm = TOW_LSTM_CELL(.features = 4);
    tow_lstm_cell drawn = TOW_LSTM_CELL(.features = 4, .carry_init = tow_initializer_normal(1));
    tow_optimized_lstm_cell optimized = TOW_OPTIMIZED_LSTM_CELL(.features = 4);
    tow_gru_cell gru = TOW_GRU_CELL(.features = 4), narrow = TOW_GRU_CELL(.features = 3);
    tow_gru_cell uniform = TOW_GRU_CELL(.features = 4, .carry_init = tow_initializer_uniform(0.5));
    tow_mgu_cell mgu = TOW_MGU_CELL(.features = 4);
    tow_conv_lstm_cell conv = TOW_CONV_LSTM_CELL(.features = 2, .kernel_size = {3});
    struct {
        tow_module module;
    } drop = {{&drop_class}};
    RNN("rnn_dropout", TOW_RNN(&drop, .keys = TOW_KEYS_FLAX), 2, 2, 5, 3, 0)
    CASE("rnn_dropout_shared", "rnn",
         TOW_RNN(&drop, .keys = TOW_KEYS_FLAX, .streams = TOW_RULES({"dropout", TOW_SHARED})), 2, 0, LIST(0), 2, 5, 3,
         0)
    RNN("rnn_simple", TOW_RNN(&simple), 1, 2, 5, 3, 0)
    RNN("rnn_lstm", TOW_RNN(&lstm), 3, 2, 5, 3, 0)
    RNN("rnn_lstm_carry", TOW_RNN(&lstm), 3, H, H, 2, 5, 3, 0)
    RNN("rnn_lstm_drawn", TOW_RNN(&drawn), 3, 2, 5, 3, 0)
    RNN("rnn_optimized", TOW_RNN(&optimized), 1, 2, 5, 3, 0)
    RNN("rnn_gru", TOW_RNN(&gru), 2, H, 2, 5, 3, 0)
    RNN("rnn_gru_drawn", TOW_RNN(&uniform), 1, 2, 5, 3, 0)
    RNN("rnn_mgu", TOW_RNN(&mgu), 1, 2, 5, 3, 0)
    RNN("rnn_conv", TOW_RNN(&conv), 3, 2, 3, 4, 3, 0)
    RNN("rnn_time_major", TOW_RNN(&lstm, .time_major = true), 3, 5, 2, 3, 0)
    RNN("rnn_batches", TOW_RNN(&lstm), 3, 2, 3, 5, 2, 0)
    RNN("rnn_no_batch", TOW_RNN(&gru), 2, 5, 3, 0)
    RNN("rnn_reverse", TOW_RNN(&gru, .reverse = true), 2, 2, 5, 3, 0)
    RNN("rnn_keep_order", TOW_RNN(&gru, .reverse = true, .keep_order = true), 2, 2, 5, 3, 0)
    RNN("rnn_keep_order_only", TOW_RNN(&gru, .keep_order = true), 1, 2, 5, 3, 0)
    CASE("rnn_lengths", "rnn", TOW_RNN(&lstm, .lengths = true), 3, 3, LIST(5, 2, 0), 3, 5, 3, 0)
    CASE("rnn_lengths_reverse", "rnn", TOW_RNN(&lstm, .lengths = true, .reverse = true), 3, 3, LIST(4, 0, 3), 3, 5, 3,
         0)
    CASE("rnn_lengths_keep_order", "rnn", TOW_RNN(&gru, .lengths = true, .reverse = true, .keep_order = true), 2, 3,
         LIST(4, 1, 3), 3, 4, 0, 3, 5, 3, 0)
    CASE("rnn_lengths_time_major", "rnn", TOW_RNN(&gru, .lengths = true, .reverse = true, .time_major = true), 2, 2,
         LIST(4, 1), 5, 2, 3, 0)
    CASE("rnn_lengths_ends", "rnn", TOW_RNN(&lstm, .lengths = true), 3, 3, LIST(5, 0, 1), 3, 5, 3, 0)
    CASE("rnn_lengths_ends_reverse", "rnn", TOW_RNN(&gru, .lengths = true, .reverse = true), 2, 3, LIST(5, 0, 1), 3, 5,
         3, 0)
    CASE("rnn_lengths_ends_keep_order", "rnn", TOW_RNN(&mgu, .lengths = true, .reverse = true, .keep_order = true), 2,
         3, LIST(0, 5, 0), 3, 5, 3, 0)
    RNN("rnn_unroll", TOW_RNN(&lstm, .unroll = 2, .reverse = true), 3, 2, 5, 3, 0)
    CASE("rnn_unroll_lengths", "rnn", TOW_RNN(&gru, .unroll = 3, .lengths = true), 2, 2, LIST(2, 6), 2, 6, 3, 0)
    CASE("rnn_lengths_outside", "rnn", TOW_RNN(&gru, .lengths = true, .reverse = true), 2, 3, LIST(7, -1, -9), 3, 5, 3,
         0)
    CASE("rnn_lengths_conv", "rnn", TOW_RNN(&conv, .lengths = true, .reverse = true), 3, 2, LIST(1, 3), 2, 3, 4, 3, 0)
    CASE("rnn_compact", "GRUCell_0", TOW_RNN(&narrow, .in_place = true), 1, 0, LIST(0), 2, 5, 3, 0)
    return found;
}

static bool with_several(const char *name, tow_dtype dtype, case_use use, void *user)
{
    bool found = false;
    tow_lstm_cell lstm = TOW_LSTM_CELL(.features = 3), wide = TOW_LSTM_CELL(.features = 4);
    tow_gru_cell gru2 = TOW_GRU_CELL(.features = 2), gru3 = TOW_GRU_CELL(.features = 3),
                 gru4 = TOW_GRU_CELL(.features = 4);
    tow_mgu_cell mgu = TOW_MGU_CELL(.features = 3);
    tow_rnn of_lstm = TOW_RNN(&lstm), of_wide = TOW_RNN(&wide), of_gru2 = TOW_RNN(&gru2), of_gru3 = TOW_RNN(&gru3),
            of_gru4 = TOW_RNN(&gru4), of_mgu = TOW_RNN(&mgu);
    tow_bidirectional both = TOW_BIDIRECTIONAL(.forward_rnn = &of_gru2, .backward_rnn = &of_gru2);
    RNN("bidirectional", TOW_BIDIRECTIONAL(.forward_rnn = &of_lstm), 1, 2, 5, 3, 0)
    RNN("bidirectional_mixed", TOW_BIDIRECTIONAL(.forward_rnn = &of_lstm, .backward_rnn = &of_gru2), 4, 2, 5, 3, 0)
    RNN("bidirectional_carry", TOW_BIDIRECTIONAL(.forward_rnn = &of_gru4), 3, H, H, 2, 5, 3, 0)
    CASE("bidirectional_lengths", "rnn", TOW_BIDIRECTIONAL(.forward_rnn = &of_gru3, .lengths = true), 3, 3,
         LIST(4, 0, 2), 3, 5, 3, 0)
    RNN("bidirectional_sum", TOW_BIDIRECTIONAL(.forward_rnn = &of_gru3, .merge = sum_of, .time_major = true), 1, 5, 2,
        3, 0)
    tow_sequential stacked = TOW_SEQUENTIAL(TOW_MODULE(&of_wide), TOW_MODULE(&both), TOW_MODULE(&of_mgu));
    if (!name || strcmp(name, "stacked") == 0) {
        shapes inputs = shapes_of(dtype, (const int64_t[]){2, 5, 3, 0, 0});
        use(user, "stacked", TOW_MODULE(&stacked), &inputs, 1);
        found = true;
    }
    return found;
}

static bool with_case(const char *name, tow_dtype dtype, case_use use, void *user)
{
    bool cell = with_cell(name, dtype, use, user), rnn = with_rnn(name, dtype, use, user);
    return with_several(name, dtype, use, user) || cell || rnn;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* loss, outputs, gradients of parameters and of inputs */
typedef struct results {
    tow_params *params;
    size_t n_in, n_out, n;
    tow_graph *gradient;
    tow_array *inputs[MOST]; /* not owned: the parameters; then the inputs */
    tow_array *arrays[MOST];
} results;

static const char *const streams[] = {"dropout", NULL};
static void prepare(results *r, const tow_module *model, const shapes *inputs, size_t n_out)
{
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = n_out, .streams = streams);
    tow_graph *loss;
    size_t wrt[MOST];
    OK(tow_model_init_with(ctx, model, 3, inputs->n, inputs->type, &options, &r->params, NULL));
    size_t n = tow_params_count(r->params);
    r->n_in = inputs->n;
    r->n_out = n_out;
    r->n = 1 + n_out + n + inputs->n;
    assert_true(r->n <= MOST);
    OK(tow_model_loss_graph(model, r->params, inputs->n, inputs->type, 0, NULL, weighted_sum, &n_out, n_out, &options,
                            &loss));
    for (size_t i = 0; i < n + inputs->n; i++) wrt[i] = i;
    OK(tow_value_and_grad(loss, n + inputs->n, wrt, true, &r->gradient));
    for (size_t i = 0; i < n; i++) r->inputs[i] = tow_params_array(r->params, i);
    for (size_t i = 0; i < inputs->n; i++) r->inputs[n + i] = fractions(inputs->type[i], 100 * (int64_t)i);
    size_t at = n + r->n_in++;
    OK(tow_array_create(ctx, tow_make_type(TOW_U32, 1, (int64_t[]){2}), &r->inputs[at]));
    ((uint32_t *)tow_array_data(r->inputs[at]))[1] = 7; /* PRNGKey(7) */
    tow_graph_release(loss);
}

static void run(results *r) { OK(tow_evaluate(r->gradient, r->inputs, r->arrays)); }

static void release(results *r)
{
    size_t n = r->params ? tow_params_count(r->params) : 0;
    for (size_t i = 0; i < r->n; i++) tow_array_release(r->arrays[i]);
    for (size_t i = 0; i < r->n_in; i++) tow_array_release(r->inputs[n + i]);
    tow_graph_release(r->gradient);
    tow_params_free(r->params);
    *r = (results){0};
}

/* ---- against Flax ------------------------------------------------------------------------------------------------ */

static void prepare_case(void *user, const char *name, const tow_module *model, const shapes *inputs, size_t n_out)
{
    (void)name;
    prepare(user, model, inputs, n_out);
}

static size_t param_index(const results *r, const char *path)
{
    for (size_t i = 0; i < tow_params_count(r->params); i++)
        if (strcmp(tow_params_path(r->params, i), path) == 0) return i;
    fail_msg("no parameter %s", path);
    return 0;
}

static tow_array *result_called(const results *r, const char *what)
{
    if (strncmp(what, "output/", 7) == 0) return r->arrays[1 + strtoul(what + 7, NULL, 10)];
    if (strncmp(what, "grad/", 5) == 0) return r->arrays[1 + r->n_out + param_index(r, what + 5)];
    assert_int_equal(strncmp(what, "input/", 6), 0);
    return r->arrays[1 + r->n_out + tow_params_count(r->params) + strtoul(what + 6, NULL, 10)];
}

/* A kernel of the hidden side with its default: orthogonal. */
static bool is_orthogonal(const char *name, const char *what)
{
    const char *end = strstr(what, "/kernel");
    return end && !strstr(name, "_init") && !strstr(name, "conv") &&
           (end[-2] == 'h' || (end[-1] == 'h' && end[-2] == '/'));
}

typedef struct line {
    char name[64], dtype[8], what[128], shape[128];
} line;

/* Values of an array against the file's. Initial values are taken over, so that all else has Flax's parameters. */
static void compare(FILE *file, const line *l, tow_array *array, double limit, bool take)
{
    double largest = 1, error = 0, expected;
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(array)); i++) {
        assert_int_equal(fscanf(file, "%lf", &expected), 1);
        if (tow_array_type(array).dtype == TOW_F32) expected = (float)expected;
        largest = fmax(largest, fabs(expected));
        double difference = fabs(expected - element(array, i));
        if (!(difference <= error)) error = difference; /* a NaN stays */
        if (take) ((float *)tow_array_data(array))[i] = (float)expected;
    }
    if (!(error <= limit * largest))
        fail_msg("%s %s %s: differs by %g, largest element %g", l->name, l->dtype, l->what, error, largest);
}

static void test_golden(void **unused)
{
    (void)unused;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/flax_recurrent.txt", "r");
    assert_non_null(file);
    line l;
    char last[80] = "", now[80], found[128];
    int lines = 0;
    results r = {0};
    while (fscanf(file, "%63s %7s %127s %127s", l.name, l.dtype, l.what, l.shape) == 4) {
        bool is_double = strcmp(l.dtype, "f64") == 0, initial = strncmp(l.what, "param/", 6) == 0;
        snprintf(now, sizeof now, "%s %s", l.name, l.dtype);
        if (strcmp(now, last) != 0) {
            release(&r);
            if (!with_case(l.name, is_double ? TOW_F64 : TOW_F32, prepare_case, &r)) fail_msg("no case %s", l.name);
            strcpy(last, now);
        }
        if (!initial && !r.arrays[0]) run(&r);
        tow_array *array =
            initial ? tow_params_array(r.params, param_index(&r, l.what + 6)) : result_called(&r, l.what);
        if (strcmp(shape_text(tow_array_type(array), found), l.shape) != 0)
            fail_msg("%s %s %s: expected the shape %s, found %s", l.name, l.dtype, l.what, l.shape, found);
        double limit = tow_array_type(array).dtype == TOW_F64 ? 1e-12 : 1e-5;
        if (initial) limit = is_orthogonal(l.name, l.what) ? 1e-6 : 0;
        compare(file, &l, array, limit, initial);
        ++lines;
    }
    assert_true(feof(file));
    fclose(file);
    assert_true(lines > 1000);
    release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_golden, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

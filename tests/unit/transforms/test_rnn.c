/* RNN: order and lengths, variables of cells, memory of long sequences, element types, and what goes wrong. Values
 * against Flax are in test_recurrent.c, equal bits in test_rnn_bits.c.
 * Tests bidirectional.c, rnn.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/rnn_cells.h"

/* ---- c' = 10 c + x ----------------------------------------------------------------------------------------------- */

static void call_digits(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)s, (void)module, (void)n_in, (void)n_out;
    out[0] = out[1] = tow_add(tow_mul_scalar(in[0], 10), in[1]);
}
static void start_digits(tow_scope *s, const tow_module *module, tow_type x, const uint32_t key[2], tow_value *carry)
{
    (void)module, (void)key;
    carry[0] = tow_full(tow_scope_trace(s), x, 0);
}
static const tow_cell_methods digits_methods = {.n_carry = 1, .initial_carry = start_digits};
static const tow_module_class digits_class = {.name = "digits", .call = call_digits, .cell = &digits_methods};
/* The same, without saying that it is a cell. */
static const tow_module_class secret_class = {.name = "secret", .call = call_digits};

/* Runs the RNN on x [sequences, T, 1] of `dtype` with lengths (NULL: none); carry (n_out 2) and y as numbers. */
static void run_digits(tow_rnn rnn, tow_dtype dtype, int64_t sequences, int64_t steps, const int *x, const int *lengths,
                       double *carry, double *y)
{
    tow_module cell = {&digits_class};
    if (!rnn.inner) rnn.inner = &cell;
    rnn.module = (tow_module){&tow_rnn_class, sizeof rnn};
    rnn.lengths = lengths != NULL;
    tow_type types[] = {TYPE(dtype, sequences, steps, 1), TYPE(TOW_I32, sequences)};
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = 2);
    tow_params *params;
    tow_graph *graph;
    size_t n_in = 1 + (size_t)rnn.lengths;
    OK(tow_model_init_with(ctx, TOW_MODULE(&rnn), 0, n_in, types, &options, &params, NULL));
    OK(tow_model_forward_graph(TOW_MODULE(&rnn), params, n_in, types, &options, &graph));
    tow_array *in[2] = {0}, *out[2], *wide;
    OK(tow_array_create(ctx, types[0], &in[0]));
    for (int64_t i = 0; i < sequences * steps; i++) {
        if (dtype == TOW_F64) ((double *)tow_array_data(in[0]))[i] = x[i];
        if (dtype == TOW_F32) ((float *)tow_array_data(in[0]))[i] = (float)x[i];
        if (dtype == TOW_I32) ((int32_t *)tow_array_data(in[0]))[i] = x[i];
    }
    OK(tow_array_create(ctx, types[1], &in[1]));
    if (lengths) memcpy(tow_array_data(in[1]), lengths, (size_t)sequences * sizeof *lengths);
    OK(tow_evaluate(graph, in, out));
    for (int k = 0; k < 2; k++) {
        OK(tow_array_convert(out[k], TOW_F64, &wide));
        memcpy(k ? y : carry, tow_array_data(wide), tow_type_bytes(tow_array_type(wide)));
        tow_array_release(wide);
        tow_array_release(out[k]);
        tow_array_release(in[k]);
    }
    tow_graph_release(graph);
    tow_params_free(params);
}

/* The table of Flax's RNN, printed by it. */
static void test_orders_and_lengths(void **unused)
{
    (void)unused;
    static const int x[] = {1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 9, 1};
    static const tow_rnn plain = {0}, reverse = {.reverse = true}, keep_order = {.reverse = true, .keep_order = true};
    static const int counts[] = {4, 2, 0}, outside[] = {9, -4, -9}, others[] = {4, 5, -1};
    static const struct {
        const tow_rnn *rnn;
        const int *lengths;
        double carry[3], y[12];
    } rows[] = {
        {&plain, NULL, {1234, 5600, 7891}, {1, 12, 123, 1234, 5, 56, 560, 5600, 7, 78, 789, 7891}},
        {&plain, counts, {1234, 56, 7891}, {1, 12, 123, 1234, 5, 56, 560, 5600, 7, 78, 789, 7891}},
        {&plain, others, {1234, 5600, 789}, {1, 12, 123, 1234, 5, 56, 560, 5600, 7, 78, 789, 7891}},
        {&plain, outside, {1234, 5, 7}, {1, 12, 123, 1234, 5, 56, 560, 5600, 7, 78, 789, 7891}},
        {&reverse, NULL, {4321, 65, 1987}, {4, 43, 432, 4321, 0, 0, 6, 65, 1, 19, 198, 1987}},
        {&reverse, counts, {4321, 65, 1987}, {4, 43, 432, 4321, 6, 65, 650, 6500, 1, 19, 198, 1987}},
        {&reverse, others, {4321, 5006, 987}, {4, 43, 432, 4321, 5, 50, 500, 5006, 9, 98, 987, 9871}},
        {&reverse, outside, {1432, 0, 9}, {1, 14, 143, 1432, 0, 0, 6, 65, 9, 98, 987, 9871}},
        {&keep_order, NULL, {4321, 65, 1987}, {4321, 432, 43, 4, 65, 6, 0, 0, 1987, 198, 19, 1}},
        {&keep_order, counts, {4321, 65, 1987}, {4321, 432, 43, 4, 65, 6, 6500, 650, 1987, 198, 19, 1}},
        {&keep_order, others, {4321, 5006, 987}, {4321, 432, 43, 4, 5, 5006, 500, 50, 987, 98, 9, 9871}},
        {&keep_order, outside, {1432, 0, 9}, {1, 1432, 143, 14, 65, 6, 0, 0, 987, 98, 9, 9871}},
    };
    static const tow_dtype dtypes[] = {TOW_F32, TOW_F64, TOW_I32};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < 3; k++) {
            double carry[3], y[12];
            run_digits(*rows[i].rnn, dtypes[k], 3, 4, x, rows[i].lengths, carry, y);
            for (int j = 0; j < 12; j++)
                if (y[j] != rows[i].y[j] || carry[j % 3] != rows[i].carry[j % 3])
                    fail_msg("row %zu, dtype %d: y[%d] = %g, carry[%d] = %g", i, k, j, y[j], j % 3, carry[j % 3]);
        }
}

/* No steps, or no sequences: the carry is the initial one. */
static void test_empty(void **unused)
{
    (void)unused;
    static const int none[] = {0, 0};
    static const tow_rnn kinds[] = {{.keep_order = false}, {.reverse = true}, {.reverse = true, .keep_order = true}};
    double carry[2] = {-1, -1}, y[1];
    for (int k = 0; k < 3; k++)
        for (int with = 0; with < 2; with++) {
            run_digits(kinds[k], TOW_F32, 2, 0, none, with ? none : NULL, carry, y);
            assert_true(carry[0] == 0 && carry[1] == 0);
            run_digits(kinds[k], TOW_F32, 0, 3, none, with ? none : NULL, carry, y);
        }
}

/* ---- variables --------------------------------------------------------------------------------------------------- */

/* h' = h + x; "stats" "steps" counts, and "intermediates" "h" is sown. */
static void call_counting(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_value steps = tow_variable(s, "stats", "steps", tow_make_type(TOW_F32, 0, NULL), tow_initializer_zeros());
    if (tow_is_mutable(s, "stats")) tow_set_variable(s, "stats", "steps", tow_add_scalar(steps, 1));
    out[0] = out[1] = tow_add(in[0], in[1]);
    tow_sow(s, "intermediates", "h", out[0]);
}
static const tow_module_class counting_class = {.name = "counting", .call = call_counting, .cell = &digits_methods};

/* One set that is carried through the steps, or one for each step; recomputing a step counts nothing. */
static void test_variables_of_cells(void **unused)
{
    static const char *const every[] = {TOW_EVERY_COLLECTION, "intermediates", NULL};
    (void)unused;
    for (int k = 0; k < 4; k++) {
        bool carried = k % 2 == 0;
        struct {
            tow_module module;
        } cell = {{&counting_class}};
        tow_remat region = TOW_REMAT(&cell);
        tow_rnn rnn = TOW_RNN(&region);
        if (k >= 2) rnn.inner = &cell.module;
        const tow_lift_rule *rules = TOW_RULES({"stats", TOW_CARRIED});
        if (carried) rnn.variables = rules;
        tow_type x = F32(2, 5, 3);
        tow_params *params, *state, *updates;
        tow_graph *graph;
        OK(tow_model_init_with(ctx, TOW_MODULE(&rnn), 0, 1, &x, NULL, &params, &state));
        assert_int_equal(tow_params_count(state), 1);
        assert_string_equal(tow_params_path(state, 0), carried ? "stats/cell/steps" : "stats/cell/{}/steps");
        tow_model_options options =
            TOW_MODEL_OPTIONS(.state = state, .mutable_collections = every, .updates = &updates);
        OK(tow_model_forward_graph(TOW_MODULE(&rnn), params, 1, &x, &options, &graph));
        assert_int_equal(tow_params_count(updates), 2);
        assert_string_equal(tow_params_path(updates, 1), "intermediates/cell/{}/h/0");
        tow_array *in[] = {tow_params_array(state, 0), fractions(x, 0)}, *out[3];
        OK(tow_evaluate(graph, in, out));
        const float *steps = tow_array_data(out[1]);
        for (int i = 0; i < (carried ? 1 : 5); i++) assert_true(steps[i] == (carried ? 5 : 1));
        assert_true(tow_type_equal(tow_array_type(out[2]), F32(5, 2, 3)));
        for (int i = 0; i < 3; i++) tow_array_release(out[i]);
        tow_array_release(in[1]);
        tow_graph_release(graph);
        tow_params_free(updates);
        tow_params_free(state);
        tow_params_free(params);
    }
}

/* ---- memory of long sequences ------------------------------------------------------------------------------------ */

static void square_loss(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss, tow_value *aux,
                        void *user)
{
    (void)t, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(tow_square(outputs[0]), 0, NULL);
}

/* x [1000, 8, 32] in 25 pieces of 40 steps, each of which keeps its carry alone: a RNN in a remat in a scan with one
 * set of parameters. The model itself is the same. */
typedef struct pieces {
    tow_module module;
    const tow_module *rnn; /* time first */
} pieces;
static void call_pieces(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const tow_rnn *rnn = (const tow_rnn *)((const pieces *)module)->rnn;
    tow_remat region = TOW_REMAT(rnn);
    tow_scan scan = TOW_SCAN(&region, .n_carry = 2, .variables = TOW_RULES({"params", TOW_SHARED}));
    tow_value inputs[3], outputs[3];
    (void)n_in, (void)n_out;
    tow_cell_initial_carry(s, rnn->inner, F32(8, 32), 0, 2, inputs);
    inputs[2] = tow_reshape(in[0], 4, (int64_t[]){25, 40, 8, 32});
    tow_apply_n(s, "rnn", &scan, 3, inputs, 3, outputs);
    out[0] = tow_reshape(outputs[2], 3, (int64_t[]){1000, 8, 32});
}
static const tow_module_class pieces_class = {.name = "pieces", .call = call_pieces};
/* The RNN at the same path. */
static void call_whole(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    tow_apply_module_n(s, "rnn", ((const pieces *)module)->rnn, n_in, in, n_out, out);
}
static const tow_module_class whole_class = {.name = "whole", .call = call_whole};

static size_t train_once(const tow_module_class *cls, const tow_module *cell, double *loss)
{
    tow_rnn rnn = {.module = {&tow_rnn_class, sizeof(tow_rnn)}, .inner = cell, .time_major = true};
    pieces model = {{cls}, TOW_MODULE(&rnn)};
    tow_type x = F32(1000, 8, 32);
    tow_train_options options = TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(1e-3)},
                                                  .n_inputs = 1, .input_types = &x, .loss = square_loss);
    tow_train_state *state;
    OK(tow_train_create(ctx, TOW_MODULE(&model), &options, &state));
    tow_array *in = fractions(x, 0);
    for (int i = 0; i < 2; i++) OK(tow_train_step(state, &in, loss));
    tow_train_bytes bytes = tow_train_get_bytes(state);
    tow_array_release(in);
    tow_train_free(state);
    return bytes.residuals + bytes.workspace;
}

static void test_memory_of_1000_steps(void **unused)
{
    (void)unused;
    tow_lstm_cell lstm = TOW_LSTM_CELL(.features = 32);
    tow_remat step = TOW_REMAT(&lstm);
    double losses[3];
    size_t whole = train_once(&whole_class, TOW_MODULE(&lstm), &losses[0]);
    size_t steps = train_once(&whole_class, TOW_MODULE(&step), &losses[1]);
    size_t in_pieces = train_once(&pieces_class, TOW_MODULE(&lstm), &losses[2]);
    const size_t sequence = (size_t)1000 * 8 * 32 * sizeof(float); /* of one value for all steps: 1 MB */
    assert_true(losses[0] == losses[1] && losses[0] == losses[2]);
    assert_true(whole < 14 * sequence && steps < whole && in_pieces < 2 * sequence);
}

/* ---- element types ----------------------------------------------------------------------------------------------- */

/* The type of the output; parameters must have this type. */
static tow_dtype output_dtype(const tow_module *model, tow_type x, tow_dtype expected)
{
    tow_params *params;
    tow_graph *graph;
    OK(tow_model_init(ctx, model, 3, 1, &x, &params));
    for (size_t i = 0; i < tow_params_count(params); i++)
        assert_int_equal(tow_array_type(tow_params_array(params, i)).dtype, expected);
    OK(tow_model_forward_graph(model, params, 1, &x, NULL, &graph));
    tow_dtype dtype = tow_graph_output_type(graph, 0).dtype;
    tow_graph_release(graph);
    tow_params_free(params);
    return dtype;
}

/* As Flax's: computed in .dtype, or in what x and the parameters promote to. Carries, and so results, are as wide as
 * parameters; those of the SimpleCell are made anew. */
static void test_element_types(void **unused)
{
    (void)unused;
    static const struct {
        tow_dtype dtype, param_dtype;
        tow_dtype x, params, simple, output;
    } rows[] = {
        {0, 0, TOW_F32, TOW_F32, TOW_F32, TOW_F32},
        {0, 0, TOW_F64, TOW_F32, TOW_F64, TOW_F64},
        {0, 0, TOW_BF16, TOW_F32, TOW_F32, TOW_F32},
        {0, TOW_BF16, TOW_BF16, TOW_BF16, TOW_BF16, TOW_BF16},
        {0, TOW_F64, TOW_F32, TOW_F64, TOW_F64, TOW_F64},
        {TOW_BF16, 0, TOW_F32, TOW_F32, TOW_BF16, TOW_F32},
        {TOW_BF16, TOW_BF16, TOW_F32, TOW_BF16, TOW_BF16, TOW_BF16},
        {TOW_F32, TOW_F64, TOW_F64, TOW_F64, TOW_F32, TOW_F64},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tow_dtype dtype = rows[i].dtype, params = rows[i].param_dtype;
        tow_initializer normal = tow_initializer_normal(1);
        /* orthogonal kernels are not for 16 bits in Flax; here they are rounded once */
        tow_simple_cell simple = TOW_SIMPLE_CELL(.features = 6, .dtype = dtype, .param_dtype = params);
        tow_lstm_cell lstm = TOW_LSTM_CELL(.features = 6, .dtype = dtype, .param_dtype = params, .carry_init = normal);
        tow_optimized_lstm_cell optimized =
            TOW_OPTIMIZED_LSTM_CELL(.features = 6, .dtype = dtype, .param_dtype = params);
        tow_gru_cell gru = TOW_GRU_CELL(.features = 6, .dtype = dtype, .param_dtype = params);
        tow_mgu_cell mgu = TOW_MGU_CELL(.features = 6, .dtype = dtype, .param_dtype = params);
        tow_conv_lstm_cell conv =
            TOW_CONV_LSTM_CELL(.features = 6, .kernel_size = {3}, .dtype = dtype, .param_dtype = params);
        const tow_module *cells[] = {TOW_MODULE(&simple), TOW_MODULE(&lstm), TOW_MODULE(&optimized),
                                     TOW_MODULE(&gru),    TOW_MODULE(&mgu),  TOW_MODULE(&conv)};
        for (int k = 0; k < 6; k++) {
            tow_rnn whole = {.module = {&tow_rnn_class, sizeof(tow_rnn)}, .inner = cells[k]};
            stepwise by_step = {{&stepwise_class[cells[k]->cls->cell->n_carry]}, cells[k]};
            tow_rnn steps = TOW_RNN(&by_step);
            tow_type x = k == 5 ? TYPE(rows[i].x, 2, 3, 4, 5) : TYPE(rows[i].x, 2, 3, 5);
            const tow_dtype expected = k == 0 ? rows[i].simple : rows[i].output;
            if (output_dtype(TOW_MODULE(&whole), x, rows[i].params) != expected ||
                output_dtype(TOW_MODULE(&steps), x, rows[i].params) != expected)
                fail_msg("row %zu, cell %d: another type of output", i, k);
        }
    }
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

#define expect_error(model, status, text, n_out, ...)                                                                  \
    check_error(TOW_MODULE(&(model)), status, text, n_out, sizeof((tow_type[]){__VA_ARGS__}) / sizeof(tow_type),       \
                (tow_type[]){__VA_ARGS__})
static void check_error(const tow_module *model, tow_status expected, const char *text, size_t n_out, size_t n_in,
                        const tow_type *types)
{
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = n_out);
    tow_params *params = NULL;
    tow_status status = tow_model_init_with(ctx, model, 0, n_in, types, &options, &params, NULL);
    assert_null(params);
    if (status != expected || !strstr(tow_context_error(ctx), text))
        fail_msg("expected %s and \"%s\", found %s: %s", tow_status_text(expected), text, tow_status_text(status),
                 tow_context_error(ctx));
}

static void narrow(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                   tow_value *out)
{
    (void)s, (void)module, (void)n_in, (void)n_out;
    out[0] = out[1] = tow_slice_axis(in[0], 1, 0, 1);
}
static const tow_module_class narrow_class = {.name = "narrow", .call = narrow};

static void test_errors(void **unused)
{
    (void)unused;
    tow_lstm_cell lstm = TOW_LSTM_CELL(.features = 4), none = TOW_LSTM_CELL();
    tow_lstm_cell half = TOW_LSTM_CELL(.features = 4, .carry_init = {.a = 1});
    tow_gru_cell gru = TOW_GRU_CELL(.features = 4);
    tow_conv_lstm_cell conv = TOW_CONV_LSTM_CELL(.features = 4, .kernel_size = {3}),
                       no_kernel = TOW_CONV_LSTM_CELL(.features = 4);
    stepwise secret = {{&secret_class}, NULL}, narrows = {{&narrow_class}, NULL}, classless = {{NULL}, NULL};
    tow_rnn rnn = TOW_RNN(&lstm), with_lengths = TOW_RNN(&lstm, .lengths = true), of_none = TOW_RNN(&none),
            of_half = TOW_RNN(&half), of_conv = TOW_RNN(&conv), of_no_kernel = TOW_RNN(&no_kernel),
            of_secret = TOW_RNN(&secret), of_narrow = TOW_RNN(&narrows), of_classless = TOW_RNN(&classless),
            of_gru = TOW_RNN(&gru);
    tow_rnn of_nothing = {.module = {&tow_rnn_class, sizeof(tow_rnn)}};
    tow_bidirectional both = TOW_BIDIRECTIONAL(.forward_rnn = &rnn, .backward_rnn = &of_gru),
                      no_forward = TOW_BIDIRECTIONAL(.backward_rnn = &rnn);
    tow_type h = F32(2, 4), x = F32(2, 3), xs = F32(2, 5, 3);
    expect_error(none, TOW_INVALID_ARGUMENT, "LSTMCell: .features = 0", 3, h, h, x);
    expect_error(lstm, TOW_INVALID_ARGUMENT, "LSTMCell: expected 3 inputs (carry 2, x)", 1, x);
    expect_error(lstm, TOW_INVALID_ARGUMENT, "as many outputs, found 3 and 2", 2, h, h, x);
    expect_error(lstm, TOW_SHAPE_MISMATCH, "LSTMCell: carry 1: expected f32[2,4]", 3, h, F32(2, 5), x);
    expect_error(lstm, TOW_TYPE_MISMATCH,
                 "carry 0: expected f32[2,4] (batch axes of x, .features) or another float type, found i32[2,4]", 3,
                 TYPE(TOW_I32, 2, 4), h, x);
    expect_error(gru, TOW_TYPE_MISMATCH, "GRUCell: x: expected a float type", 2, h, TYPE(TOW_I32, 2, 3));
    expect_error(gru, TOW_SHAPE_MISMATCH, "rank 1 or more, found f32[]", 2, h, tow_make_type(TOW_F32, 0, NULL));
    expect_error(conv, TOW_SHAPE_MISMATCH, "ConvLSTMCell: x: expected 1 spatial axes", 3, F32(4), F32(4), F32(3));
    expect_error(no_kernel, TOW_INVALID_ARGUMENT, "ConvLSTMCell: .kernel_size[0] = 0", 3, F32(2, 6, 4), F32(2, 6, 4),
                 F32(2, 6, 3));
    tow_gru_cell integer = TOW_GRU_CELL(.features = 4, .dtype = TOW_I32);
    expect_error(integer, TOW_INVALID_ARGUMENT, "GRUCell: .dtype", 2, h, x);
    expect_error(of_nothing, TOW_INVALID_ARGUMENT, "RNN: expected a cell, found NULL", 1, xs);
    expect_error(of_classless, TOW_INVALID_ARGUMENT, "RNN: expected a cell, found a layer without a class", 1, xs);
    expect_error(of_none, TOW_INVALID_ARGUMENT, "LSTMCell: .features = 0", 1, xs);
    expect_error(of_half, TOW_INVALID_ARGUMENT, ".carry_init: found options but no function .fill", 1, xs);
    expect_error(of_conv, TOW_SHAPE_MISMATCH, "RNN: x: expected a time axis and 2 of features, found f32[3,5]", 1,
                 F32(3, 5));
    expect_error(of_no_kernel, TOW_INVALID_ARGUMENT, ".kernel_size[0] = 0", 1, xs);
    expect_error(rnn, TOW_INVALID_ARGUMENT, "expected 1 inputs (x), or 3 with the carry of LSTMCell", 1, h, xs);
    expect_error(rnn, TOW_INVALID_ARGUMENT, "1 output (y) or 3 (carry, y), found 1 and 2", 2, xs);
    expect_error(rnn, TOW_SHAPE_MISMATCH, "LSTMCell: carry 0: expected f32[2,4]", 1, F32(3, 4), h, xs);
    expect_error(with_lengths, TOW_TYPE_MISMATCH, "RNN: lengths: expected i32[2], a number for each sequence", 1, xs,
                 F32(2));
    expect_error(with_lengths, TOW_SHAPE_MISMATCH, "RNN: lengths: expected i32[2]", 1, xs, TYPE(TOW_I32, 3));
    expect_error(of_secret, TOW_INVALID_ARGUMENT, "the layer secret is no cell that can make its carry", 1, xs);
    expect_error(of_narrow, TOW_TYPE_MISMATCH, "RNN: carry 0 enters a step as f32[2,4] and leaves it as f32[2,1]", 1, h,
                 xs);
    expect_error(no_forward, TOW_INVALID_ARGUMENT, "Bidirectional: expected RNNs", 1, xs);
    expect_error(both, TOW_INVALID_ARGUMENT, "or 4 with the carries of both RNNs", 1, h, xs);
    expect_error(both, TOW_INVALID_ARGUMENT, "1 output (y) or 4 (carries, y), found 1 and 3", 3, xs);
}

/* ---- every allocation failing in turn ---------------------------------------------------------------------------- */

static tow_status use_models(tow_context *c)
{
    tow_lstm_cell lstm = TOW_LSTM_CELL(.features = 2, .carry_init = tow_initializer_normal(1));
    tow_gru_cell gru = TOW_GRU_CELL(.features = 2);
    tow_remat region = TOW_REMAT(&gru);
    tow_rnn a = TOW_RNN(&lstm), b = TOW_RNN(&region);
    tow_bidirectional both = TOW_BIDIRECTIONAL(.forward_rnn = &a, .backward_rnn = &b, .lengths = true);
    tow_type types[] = {F32(2, 3, 2), TYPE(TOW_I32, 2)};
    tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = 4);
    tow_params *params = NULL;
    tow_graph *graph = NULL;
    tow_status status = tow_model_init_with(c, TOW_MODULE(&both), 0, 2, types, &options, &params, NULL);
    if (!status) status = tow_model_forward_graph(TOW_MODULE(&both), params, 2, types, &options, &graph);
    tow_graph_release(graph);
    tow_params_free(params);
    return status;
}

static void test_every_allocation_failing(void **unused)
{
    (void)unused;
    counting count;
    long runs = 0;
    for (long n = 0;; ++n, ++runs) {
        tow_context_options options = counting_options(&count, n);
        tow_context *c = NULL;
        tow_status status = tow_context_create(&options, &c);
        if (!status) status = use_models(c);
        bool failed = count.calls > n;
        if (status != (failed ? TOW_OUT_OF_MEMORY : TOW_OK))
            fail_msg("allocation %ld: %s: %s", n, tow_status_text(status), c ? tow_context_error(c) : "");
        tow_context_free(c);
        if (count.blocks != 0 || count.wrong_sizes != 0)
            fail_msg("allocation %ld: %ld blocks leak, %d wrong sizes", n, count.blocks, count.wrong_sizes);
        if (!failed) break;
    }
    assert_true(runs > 100);
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
        cmocka_unit_test(test_orders_and_lengths),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_variables_of_cells),
        cmocka_unit_test(test_memory_of_1000_steps),
        cmocka_unit_test(test_element_types),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_every_allocation_failing),
    };
    return cmocka_run_group_tests(tests, portable_setup, teardown);
}

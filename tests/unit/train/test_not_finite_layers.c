/* The layer in which the first NaN comes up has its exact name, whatever repeats the layer; and so has the first
 * parameter of the backward pass whose gradient is not finite. Every layer of every structure is made to fail once.
 * Tests not_finite.c, layer_path.c, not_finite_report.c, not_finite_index.c. */
#include "tests/unit/support/training.h"

typedef struct plain {
    tow_module module;
} plain;

/* ---- a layer that can be made to fail ---------------------------------------------------------------------------- */

/* "mlp/hidden": x + log(scale) + sqrt(gate). scale = -1: NaN in the forward pass; gate = 0: an infinite gradient. */
static void trap_call(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    const tow_type type = tow_value_type(in[0]);
    tow_scope *mlp = tow_scope_begin(s, "mlp"), *hidden = tow_scope_begin(mlp, "hidden");
    tow_value scale = tow_log(tow_param(hidden, "scale", 1, (int64_t[]){2}, tow_initializer_ones()));
    tow_value gate = tow_sqrt(tow_param(hidden, "gate", 1, (int64_t[]){2}, tow_initializer_ones()));
    out[0] = tow_tanh(tow_add(in[0], tow_broadcast_to(tow_add(scale, gate), type.rank, type.dims)));
    tow_scope_end(hidden);
    tow_scope_end(mlp);
}
static const tow_module_class trap_class = {"trap", trap_call};
static const plain trap = {{&trap_class}};

/* A layer with one child. `mean`: it returns the mean of the child's rows. */
typedef struct parent {
    tow_module module;
    const char *child;
    const tow_module *inner;
    bool mean;
} parent;
static void parent_call(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const parent *p = (const parent *)module;
    (void)n_in, (void)n_out;
    out[0] = tow_apply_module(s, p->child, p->inner, in[0]);
    if (p->mean) out[0] = tow_mean(out[0], 1, (int[]){0});
}
static const tow_module_class parent_class = {"parent", parent_call};
#define PARENT(name, layer, ...)                                                                                       \
    ((parent){.module = {&parent_class}, .child = name, .inner = TOW_MODULE(layer), __VA_ARGS__})

/* A wrapper of a layer that is at hand as a pointer to its module. */
#define OF(type, layer, ...) ((type){.module = {&type##_class, sizeof(type)}, .inner = (layer), __VA_ARGS__})

/* ---- one failure ------------------------------------------------------------------------------------------------- */

static void plant(const training *t, const char *layer, const char *parameter, float value)
{
    char path[128];
    tow_array *row;
    snprintf(path, sizeof path, "%s/mlp/hidden/%s", layer, parameter);
    if (tow_params_get(tow_train_params(t->state), path, &row) != TOW_OK) fail_msg("%s: no such parameter", path);
    ((float *)tow_array_data(row))[1] = value;
    tow_array_release(row);
}

/* The message of a step in which `parameter` of the layers is `value`. layers: NULL-terminated. */
static void fail_step(const fixture *f, const char *name, const tow_module *model, const char *const *layers,
                      const char *parameter, float value)
{
    double loss;
    training t = start(f->ctx, model, 2, 2, TOW_TRAIN_OPTIONS(.optimizer = usual, .check_finite = true));
    for (; *layers; layers++) plant(&t, *layers, parameter, value);
    tow_status status = tow_train_step(t.state, t.batch, &loss);
    if (status != TOW_CHECK_FAILED) fail_msg("%s: %s", name, tow_status_text(status));
    stop(&t);
}

static void expect_part(const fixture *f, const char *name, const char *format, const char *layer)
{
    char expected[256];
    snprintf(expected, sizeof expected, format, layer);
    if (!strstr(tow_context_error(f->ctx), expected))
        fail_msg("%s: expected \"%s\" in \"%s\"", name, expected, tow_context_error(f->ctx));
}

static const char made[] = "the first NaN is made by log of layer '%s/mlp/hidden'",
                  gate[] = "gradient is not finite is '%s/mlp/hidden/gate'";

/* Each layer alone, then the first and the last together. `layers`: in the order of computation. remat: an infinite
 * derivative that is recomputed stays where it is. */
static void check_structure(const fixture *f, const char *name, const tow_module *inner, bool mean,
                            const char *const *layers)
{
    const parent model = {{&parent_class}, "blocks", inner, mean};
    size_t n = 0;
    for (; layers[n]; n++) {
        const char *const one[] = {layers[n], NULL};
        fail_step(f, name, TOW_MODULE(&model), one, "scale", -1);
        expect_part(f, name, made, layers[n]);
        fail_step(f, name, TOW_MODULE(&model), one, "gate", 0);
        expect_part(f, name, gate, layers[n]);
        expect_part(f, name, " of layer '%s/mlp/hidden'", layers[n]);
        expect_part(f, name, "in the %s pass", "backward");
        fail_step(f, name, TOW_MODULE(&model), one, "scale", NAN);
        expect_part(f, name, "(params/%s/mlp/hidden/scale) holds NaN already (f32[2], 1 of 2 elements, the first at 1)",
                    layers[n]);
    }
    const char *const two[] = {layers[0], layers[n - 1], NULL};
    fail_step(f, name, TOW_MODULE(&model), two, "scale", -1);
    expect_part(f, name, made, layers[0]);
    fail_step(f, name, TOW_MODULE(&model), two, "gate", 0);
    expect_part(f, name, gate, layers[n - 1]);
    fail_step(f, name, TOW_MODULE(&model), two, "scale", NAN);
    expect_part(f, name, "(params/%s/mlp/hidden/scale) holds NaN already", layers[0]);
}

/* ---- structures -------------------------------------------------------------------------------------------------- */

static const char *const six[] = {"blocks/0", "blocks/1", "blocks/2", "blocks/3", "blocks/4", "blocks/5", NULL};
static const char *const three[] = {"blocks/0", "blocks/1", "blocks/2", NULL};

static void scans(void **state)
{
    const fixture *f = *state;
    const tow_remat again = TOW_REMAT(&trap);
    const tow_scan stacks[] = {TOW_SCAN(&trap, .length = 6),
                               TOW_SCAN(&trap, .length = 6, .unrolled = true),
                               TOW_SCAN(&again, .length = 6),
                               TOW_SCAN(&trap, .length = 6, .unroll = 2),
                               TOW_SCAN(&again, .length = 6, .unroll = 4),
                               TOW_SCAN(&again, .length = 6, .unroll = 6),
                               TOW_SCAN(&again, .length = 6, .unrolled = true)};
    const char *const names[] = {"scan",
                                 "unrolled",
                                 "scan of remat",
                                 "two in an iteration",
                                 "four in an iteration",
                                 "all in an iteration",
                                 "unrolled remat"};
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++)
        check_structure(f, names[i], TOW_MODULE(&stacks[i]), false, six);
    const tow_remat outside = TOW_REMAT(&stacks[0]);
    check_structure(f, "remat of scan", TOW_MODULE(&outside), false, six);
}

static void scans_in_scans(void **state)
{
    const fixture *f = *state;
    static const char *const layers[] = {"blocks/0/inner/0",
                                         "blocks/0/inner/1",
                                         "blocks/0/inner/2",
                                         "blocks/1/inner/0",
                                         "blocks/1/inner/1",
                                         "blocks/1/inner/2",
                                         NULL};
    for (int i = 0; i < 16; i++) {
        const tow_remat again = TOW_REMAT(&trap);
        const tow_module *body = i & 1 ? TOW_MODULE(&again) : TOW_MODULE(&trap);
        const tow_scan inner = OF(tow_scan, body, .length = 3, .unrolled = i >> 1 & 1, .unroll = i >> 3 ? 2 : 0);
        const parent block = PARENT("inner", &inner);
        const tow_scan outer = TOW_SCAN(&block, .length = 2, .unrolled = i >> 2 & 1, .unroll = i >> 3 ? 2 : 0);
        check_structure(f, "scan in scan", TOW_MODULE(&outer), false, layers);
    }
}

static void stacks_of_unlike_layers(void **state)
{
    const fixture *f = *state;
    const tow_remat cheap = TOW_REMAT(&trap);
    const tow_module *a = TOW_MODULE(&trap), *b = TOW_MODULE(&cheap);
    for (int unrolled = 0; unrolled < 2; unrolled++) {
        const tow_layer_stack stack =
            TOW_LAYER_STACK(.length = 6, .pattern = TOW_LAYERS(a, b), .first = TOW_LAYERS(a), .unrolled = unrolled);
        check_structure(f, "layer stack", TOW_MODULE(&stack), false, six);
        const tow_layer_stack whole =
            TOW_LAYER_STACK(.length = 6, .pattern = TOW_LAYERS(b, a, a), .unrolled = unrolled);
        check_structure(f, "layer stack of whole patterns", TOW_MODULE(&whole), false, six);
        const tow_layer_stack ends =
            TOW_LAYER_STACK(.length = 6, .pattern = TOW_LAYERS(b, a), .last = TOW_LAYERS(a, a), .unrolled = unrolled);
        check_structure(f, "layer stack with an end", TOW_MODULE(&ends), false, six);
    }
}

static void remat_scans(void **state)
{
    const fixture *f = *state;
    const tow_remat_scan deep[] = {TOW_REMAT_SCAN(&trap, .lengths = {2, 3}), TOW_REMAT_SCAN(&trap, .lengths = {6}),
                                   TOW_REMAT_SCAN(&trap, .lengths = {3, 1, 2}),
                                   TOW_REMAT_SCAN(&trap, .lengths = {3, 2}, .policy = tow_dots_saveable())};
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++)
        check_structure(f, "remat_scan", TOW_MODULE(&deep[i]), false, six);
}

static void vmaps(void **state)
{
    const fixture *f = *state;
    static const int whole[] = {TOW_NOT_MAPPED};
    static const char *const scans_in_members[] = {"blocks/0/inner/0",
                                                   "blocks/0/inner/1",
                                                   "blocks/1/inner/0",
                                                   "blocks/1/inner/1",
                                                   "blocks/2/inner/0",
                                                   "blocks/2/inner/1",
                                                   NULL};
    const tow_remat again = TOW_REMAT(&trap);
    for (int i = 0; i < 2; i++) {
        const tow_module *body = i ? TOW_MODULE(&again) : TOW_MODULE(&trap);
        const tow_vmap_layer members = OF(tow_vmap_layer, body, .axis_size = 3, .in_axes = whole);
        check_structure(f, "vmap", TOW_MODULE(&members), true, three);
        const tow_vmap_layer unrolled = OF(tow_vmap_layer, body, .axis_size = 3, .in_axes = whole, .unrolled = true);
        check_structure(f, "unrolled vmap", TOW_MODULE(&unrolled), true, three);
        /* members of scans and of vmaps: no order between members, so one at a time */
        const tow_scan scan = OF(tow_scan, body, .length = 2);
        const tow_vmap_layer pair = OF(tow_vmap_layer, body, .axis_size = 2, .in_axes = whole);
        const parent stack = PARENT("inner", &scan), pairs = PARENT("inner", &pair, .mean = true);
        const tow_vmap_layer of_scans = TOW_VMAP(&stack, .axis_size = 3, .in_axes = whole);
        const tow_vmap_layer of_pairs = TOW_VMAP(&pairs, .axis_size = 3, .in_axes = whole);
        const tow_scan scan_of_pairs = TOW_SCAN(&pairs, .length = 3);
        for (size_t k = 0; scans_in_members[k]; k++) {
            const char *const one[] = {scans_in_members[k], NULL};
            const parent models[] = {PARENT("blocks", &of_scans, .mean = true),
                                     PARENT("blocks", &of_pairs, .mean = true), PARENT("blocks", &scan_of_pairs)};
            for (size_t m = 0; m < 3; m++) {
                fail_step(f, "vmap of more", TOW_MODULE(&models[m]), one, "scale", -1);
                expect_part(f, "vmap of more", made, *one);
                fail_step(f, "vmap of more", TOW_MODULE(&models[m]), one, "gate", 0);
                expect_part(f, "vmap of more", gate, *one);
                expect_part(f, "vmap of more", " of layer '%s/mlp/hidden'", *one);
            }
        }
    }
}

/* ---- what the batch brings --------------------------------------------------------------------------------------- */

static void log_call(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_value bias = tow_param(s, "bias", 0, NULL, tow_initializer_zeros());
    out[0] = tow_add(tow_log(in[0]), tow_broadcast_to(bias, tow_value_type(in[0]).rank, tow_value_type(in[0]).dims));
}
static const tow_module_class log_class = {"log", log_call};
static const plain logarithm = {{&log_class}};

/* carry + log(x): no cell with methods, so that each step is the loop's own. */
static void cell_call(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    out[0] = tow_add(in[0], tow_apply_module(s, "gate", TOW_MODULE(&logarithm), in[1]));
    out[1] = out[0];
}
static const tow_module_class cell_class = {"cell", cell_call};
static const plain cell = {{&cell_class}};

typedef struct over_time {
    tow_module module;
    tow_rnn rnn;
} over_time;
static tow_value zeros(tow_scope *s)
{
    return tow_full(tow_scope_trace(s), tow_make_type(TOW_F32, 1, (int64_t[]){2}), 0);
}
static void over_time_call(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                           tow_value *out)
{
    (void)n_in, (void)n_out;
    tow_value both[2] = {zeros(s), in[0]};
    tow_apply_module_n(s, "rnn", TOW_MODULE(&((const over_time *)module)->rnn), 2, both, 1, out);
}
static const tow_module_class over_time_class = {"over_time", over_time_call};

/* A step on a batch of ones but for element [row, column], which is negative. */
static void fail_batch(const fixture *f, const tow_module *model, int row, int column)
{
    double loss;
    training t = start(f->ctx, model, 2, 2, TOW_TRAIN_OPTIONS(.optimizer = usual, .check_finite = true));
    float *x = tow_array_data(t.batch[0]);
    for (int i = 0; i < 2 * ROWS; i++) x[i] = 1;
    assert_int_equal(tow_train_step(t.state, t.batch, &loss), TOW_OK);
    x[2 * row + column] = -1;
    assert_int_equal(tow_train_step(t.state, t.batch, &loss), TOW_CHECK_FAILED);
    stop(&t);
}

static void rows_and_time_steps(void **state)
{
    const fixture *f = *state;
    const tow_remat again = TOW_REMAT(&cell);
    const tow_vmap_layer by_column = TOW_VMAP(&logarithm, .in_axes = (int[]){1}, .out_axes = (int[]){1}),
                         by_row = TOW_VMAP(&logarithm, .variables = TOW_RULES({"params", TOW_SHARED})),
                         columns = TOW_VMAP(&logarithm, .in_axes = (int[]){0});
    const parent column_model = PARENT("columns", &by_column), row_model = PARENT("rows", &by_row);
    const parent inner = PARENT("columns", &columns);
    const tow_vmap_layer both = TOW_VMAP(&inner);
    const parent both_model = PARENT("rows", &both);
    char expected[64];
    for (int i = 0; i < 2 * ROWS; i++) {
        const int row = i / 2, column = i % 2;
        fail_batch(f, TOW_MODULE(&column_model), row, column);
        snprintf(expected, sizeof expected, "columns/%d", column);
        expect_part(f, "columns", "made by log of layer '%s'", expected);
        fail_batch(f, TOW_MODULE(&row_model), row, column);
        snprintf(expected, sizeof expected, "rows/%d", row);
        expect_part(f, "rows", "made by log of layer '%s'", expected);
        fail_batch(f, TOW_MODULE(&both_model), row, column);
        snprintf(expected, sizeof expected, "rows/%d/columns/%d", row, column);
        expect_part(f, "rows of columns", "made by log of layer '%s'", expected);
        for (int k = 0; k < 6; k++) {
            const tow_module *body = k & 1 ? TOW_MODULE(&again) : TOW_MODULE(&cell);
            const over_time model = {{&over_time_class},
                                     OF(tow_rnn, body, .unrolled = k / 2 == 1, .reverse = k / 2 == 2)};
            fail_batch(f, TOW_MODULE(&model), row, column);
            snprintf(expected, sizeof expected, "rnn/cell/%d/gate", row);
            expect_part(f, "RNN", "made by log of layer '%s'", expected);
            expect_part(f, "RNN", "gradient is not finite is 'rnn/cell/%s/bias'", "gate");
        }
    }
}

/* ---- loops of a layer's own, and gradients in a loop of the caller's --------------------------------------------- */

static void add_root(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add(in[0], tow_sqrt(in[1]));
}

/* Adds sqrt(x[0]), sqrt(x[1]), ... */
static void summing_call(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                         tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_trace *t = tow_scope_trace(s);
    tow_value zero = zeros(s), sum;
    tow_scope *solver = tow_scope_begin(s, "solver");
    tow_scan_function(t, add_root, NULL, NULL, 1, &zero, 1, in, 0, &sum, NULL);
    tow_scope_end(solver);
    sum = tow_add(sum, tow_param(s, "bias", 1, (int64_t[]){2}, tow_initializer_ones()));
    out[0] = tow_add(in[0], tow_broadcast_to(sum, 2, tow_value_type(in[0]).dims));
}
static const tow_module_class summing_class = {"summing", summing_call};
static const plain summing = {{&summing_class}};

static void loops_of_a_layer(void **state)
{
    const fixture *f = *state;
    const tow_scan stack = TOW_SCAN(&summing, .length = 3);
    const parent model = PARENT("blocks", &stack);
    fail_batch(f, TOW_MODULE(&model), 2, 1);
    expect_part(f, "loop in a scan", "made by sqrt of layer '%s'", "blocks/0/solver[2]");
}

static void gradients_by_hand(void **state)
{
    const fixture *f = *state;
    const float zeros[6] = {0}, bad[6] = {0, 0, NAN, 0, INFINITY, 0};
    const char *const paths[] = {"embed", "blocks/{}/a", "blocks/{}/b", "head"};
    tow_array *arrays[4];
    tow_params *gradients;
    tow_not_finite found;
    char text[400];
    for (int i = 0; i < 4; i++)
        tow_array_from_data(f->ctx, tow_make_type(TOW_F32, 2, (int64_t[]){3, 2}), i == 1 || i == 0 ? bad : zeros,
                            &arrays[i]);
    assert_int_equal(tow_params_from_arrays(f->ctx, 4, paths, arrays, &gradients), TOW_OK);
    assert_int_equal(tow_find_not_finite_gradient(gradients, &found), TOW_OK);
    assert_true(found.found && found.gradient && found.input == 1 && found.nans == 1 && found.infinities == 0);
    assert_string_equal(found.path,
                        "blocks/1/a"); /* layer 2 holds an infinity, but layer 1 a NaN: the last NaN counts */
    ((float *)tow_array_data(arrays[2]))[4] = NAN;
    assert_int_equal(tow_find_not_finite_gradient(gradients, &found), TOW_OK);
    assert_string_equal(found.path, "blocks/2/b");
    tow_not_finite_text(&found, text, sizeof text);
    assert_string_equal(text,
                        "the first parameter of the backward pass whose gradient is not finite is 'blocks/2/b': it "
                        "holds NaN (f32[2], 1 of 2 elements, the first at 0)");
    tow_params *moved; /* layers along the last axis */
    assert_int_equal(tow_params_rename(gradients, 1, &(tow_path_rule){"blocks/{}/b", "blocks/{@-1}/b"}, &moved),
                     TOW_OK);
    ((float *)tow_array_data(arrays[2]))[1] = NAN;
    assert_int_equal(tow_find_not_finite_gradient(moved, &found), TOW_OK);
    assert_string_equal(found.path, "blocks/1/b"); /* [2, 0] is of layer 0, [0, 1] of layer 1 */
    assert_true(found.nans == 1 && found.first == 0 && found.type.rank == 1 && found.type.dims[0] == 3);
    tow_params_free(moved);
    for (int i = 0; i < 4; i++) memset(tow_array_data(arrays[i]), 0, sizeof zeros);
    assert_int_equal(tow_find_not_finite_gradient(gradients, &found), TOW_OK);
    assert_false(found.found);
    assert_int_equal(tow_find_not_finite_gradient(NULL, &found), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_find_not_finite_gradient(gradients, NULL), TOW_INVALID_ARGUMENT);
    tow_params_free(gradients);
    for (int i = 0; i < 4; i++) tow_array_release(arrays[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(scans, setup, teardown),
        cmocka_unit_test_setup_teardown(scans_in_scans, setup, teardown),
        cmocka_unit_test_setup_teardown(stacks_of_unlike_layers, setup, teardown),
        cmocka_unit_test_setup_teardown(remat_scans, setup, teardown),
        cmocka_unit_test_setup_teardown(vmaps, setup, teardown),
        cmocka_unit_test_setup_teardown(rows_and_time_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(loops_of_a_layer, setup, teardown),
        cmocka_unit_test_setup_teardown(gradients_by_hand, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

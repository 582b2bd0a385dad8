/* Transforms inside each other against Flax: a BatchNorm under vmap, scan and remat in every order, RNNs under vmap,
 * variables that rows share, and layers that are not all alike against a model that writes them out. The golden file is
 * written by tests/oracle/flax_lift_more.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/lift_golden.h"

#define FLAX .keys = TOW_KEYS_FLAX

/* ---- the layers of the golden file ------------------------------------------------------------------------------- */

/* y, 2 y and a key. */
static void hand_out(tow_scope *s, tow_value y, size_t n_out, tow_value *out)
{
    out[0] = y;
    if (n_out > 1) out[1] = tow_mul_scalar(y, 2);
    if (n_out > 2) out[2] = tow_make_rng(s, "noise");
}

static void call_norm(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)module, (void)n_in;
    tow_type type = tow_value_type(in[0]);
    tow_dense dense = TOW_DENSE(.features = type.dims[type.rank - 1], .bias_init = tow_initializer_normal(0.5));
    tow_batch_norm norm = TOW_BATCH_NORM(.momentum = 0.75, .epsilon = 0.1);
    tow_value h = tow_apply(s, "norm", &norm, tow_apply(s, "dense", &dense, in[0]));
    hand_out(s, tow_add(tow_tanh(h), in[0]), n_out, out);
}
static const tow_module_class norm_class = {"norm", call_norm};
static const bare norm = {{&norm_class}};

static void call_gru(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                     tow_value *out)
{
    (void)module, (void)n_in;
    tow_type type = tow_value_type(in[0]);
    tow_gru_cell steps = TOW_GRU_CELL(.features = type.dims[type.rank - 1]);
    tow_rnn rnn = TOW_RNN(&steps, .unroll = 2, .in_place = true);
    hand_out(s, tow_apply(s, "GRUCell_0", &rnn, in[0]), n_out, out);
}
static const tow_module_class gru_class = {"gru", call_gru};
static const bare gru = {{&gru_class}};

/* Of two sequences, the first counts whole and the second not at all. */
static void call_lstm(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                      tow_value *out)
{
    (void)module, (void)n_in;
    tow_type type = tow_value_type(in[0]);
    const int32_t lengths[] = {(int32_t)type.dims[type.rank - 2], 0};
    tow_optimized_lstm_cell steps = TOW_OPTIMIZED_LSTM_CELL(.features = type.dims[type.rank - 1]);
    tow_rnn rnn = TOW_RNN(&steps, .lengths = true, .reverse = true, .keep_order = true, .in_place = true);
    tow_value x[] = {in[0], tow_constant_data(tow_scope_trace(s), TYPE(TOW_I32, 2), lengths)}, y;
    tow_apply_n(s, "OptimizedLSTMCell_0", &rnn, 2, x, 1, &y);
    hand_out(s, y, n_out, out);
}
static const tow_module_class lstm_class = {"lstm", call_lstm};
static const bare lstm = {{&lstm_class}};

static void call_other(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in;
    tow_mlp mlp = TOW_MLP(.features = {6, 4});
    out[0] = tow_apply(s, "mlp", &mlp, in[0]);
    if (n_out > 1) out[1] = tow_mul_scalar(out[0], 3);
    if (n_out > 2) out[2] = tow_make_rng(s, "noise");
}
static const tow_module_class other_class = {"other", call_other};
static const bare other = {{&other_class}};

/* ---- cases ------------------------------------------------------------------------------------------------------- */

typedef struct one_case {
    const char *name;
    tow_type x;
    const tow_module *model;
} one_case;

static bool run_case(lift_run *r, const char *name, const one_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(cases[i].name, name) != 0) continue;
        const stack model = {{&stack_class}, cases[i].model};
        run_lifted(r, TOW_MODULE(&model), 1, &cases[i].x, 3, NULL);
        return true;
    }
    return false;
}
#define RUN(r, name, cases) run_case(r, name, cases, sizeof(cases) / sizeof *(cases))

static bool with_norm(const char *name, lift_run *r)
{
    const int whole[] = {TOW_NOT_MAPPED}, middle[] = {1}, out[] = {1, 0, 0};
    const tow_remat remat = TOW_REMAT(&norm);
    const tow_vmap_layer vmap = TOW_VMAP(&norm, FLAX), of_remat = TOW_VMAP(&remat, FLAX),
                         ensemble = TOW_VMAP(&norm, .axis_size = 3, .in_axes = whole, FLAX),
                         shared = TOW_VMAP(&norm, .in_axes = middle, .out_axes = out, FLAX,
                                           .variables = TOW_RULES({"params", TOW_SHARED}));
    const tow_remat remat_of_vmap = TOW_REMAT(&vmap);
    const tow_scan scan = TOW_SCAN(&norm, .length = 2, FLAX), scan_of_remat = TOW_SCAN(&remat, .length = 2, FLAX),
                   scan_of_vmap = TOW_SCAN(&vmap, .length = 2, FLAX),
                   scan_remat_vmap = TOW_SCAN(&remat_of_vmap, .length = 2, FLAX);
    const tow_vmap_layer vmap_of_scan = TOW_VMAP(&scan, FLAX), vmap_scan_remat = TOW_VMAP(&scan_of_remat, FLAX);
    const tow_type x = TYPE(TOW_F32, 5, 4), rows = TYPE(TOW_F32, 3, 5, 4);
    const one_case cases[] = {
        {"norm", x, TOW_MODULE(&norm)},
        {"norm_vmap", rows, TOW_MODULE(&vmap)},
        {"norm_vmap_ensemble", x, TOW_MODULE(&ensemble)},
        {"norm_vmap_shared", TYPE(TOW_F32, 5, 3, 4), TOW_MODULE(&shared)},
        {"norm_remat_of_vmap", rows, TOW_MODULE(&remat_of_vmap)},
        {"norm_vmap_of_remat", rows, TOW_MODULE(&of_remat)},
        {"norm_scan_of_vmap", rows, TOW_MODULE(&scan_of_vmap)},
        {"norm_vmap_of_scan", rows, TOW_MODULE(&vmap_of_scan)},
        {"norm_scan_remat_vmap", rows, TOW_MODULE(&scan_remat_vmap)},
        {"norm_vmap_scan_remat", rows, TOW_MODULE(&vmap_scan_remat)},
    };
    return RUN(r, name, cases);
}

static bool with_rows(const char *name, lift_run *r)
{
    const tow_lift_rule *shared = TOW_RULES({"params", TOW_SHARED}), *counters = TOW_RULES({"counters", TOW_SHARED});
    const tow_remat remat = TOW_REMAT(&lstm);
    const tow_vmap_layer plain = TOW_VMAP(&cell, FLAX), counted = TOW_VMAP(&cell, .variables = counters, FLAX),
                         of_gru = TOW_VMAP(&gru, FLAX), one_gru = TOW_VMAP(&gru, .variables = shared, FLAX),
                         of_lstm = TOW_VMAP(&lstm, FLAX), of_remat = TOW_VMAP(&remat, FLAX);
    const tow_remat remat_of_vmap = TOW_REMAT(&plain);
    const tow_type x = TYPE(TOW_F32, 3, 2, 4), sequences = TYPE(TOW_F32, 3, 2, 5, 4);
    const one_case cases[] = {
        {"remat_of_vmap", x, TOW_MODULE(&remat_of_vmap)},
        {"vmap_shared_counters", x, TOW_MODULE(&counted)},
        {"rnn_vmap", sequences, TOW_MODULE(&of_gru)},
        {"rnn_vmap_shared", sequences, TOW_MODULE(&one_gru)},
        {"rnn_vmap_lengths", sequences, TOW_MODULE(&of_lstm)},
        {"rnn_vmap_remat", TYPE(TOW_F32, 2, 2, 3, 4), TOW_MODULE(&of_remat)},
    };
    return RUN(r, name, cases);
}

static bool with_stack(const char *name, lift_run *r)
{
    const tow_remat remat = TOW_REMAT(&cell);
    const tow_module *c = TOW_MODULE(&cell), *o = TOW_MODULE(&other), *cheap = TOW_MODULE(&remat);
    const tow_layer_stack three = TOW_LAYER_STACK(.length = 8, .pattern = TOW_LAYERS(c, c, o)),
                          two = TOW_LAYER_STACK(.length = 5, .pattern = TOW_LAYERS(cheap, o)),
                          ends = TOW_LAYER_STACK(.length = 8, .first = TOW_LAYERS(o), .pattern = TOW_LAYERS(c, o),
                                                 .last = TOW_LAYERS(c));
    const tow_type x = TYPE(TOW_F32, 2, 4);
    const one_case cases[] = {{"written_8", x, TOW_MODULE(&three)},
                              {"written_remat", x, TOW_MODULE(&two)},
                              {"written_ends", x, TOW_MODULE(&ends)}};
    return RUN(r, name, cases);
}

/* ---- against Flax ------------------------------------------------------------------------------------------------ */

/* Gradients as parameters, so that those of a stack are found layer by layer. */
static tow_params *gradients(const lift_run *r)
{
    tow_params *list;
    const char *paths[LIFT_ARRAYS];
    for (size_t i = 0; i < tow_params_count(r->params); i++) paths[i] = tow_params_path(r->params, i);
    OK(tow_params_from_arrays(ctx, tow_params_count(r->params), paths, r->grads, &list));
    return list;
}

/* A reference to what a line is about, which may be one layer of a stack. */
static tow_array *find(const lift_run *r, const tow_params *grads, const char *name, const char *what)
{
    tow_array *layer = NULL;
    if (strncmp(name, "written", 7) == 0 && strchr(what, '/')) {
        if (strncmp(what, "param/", 6) == 0) OK(tow_params_get(r->params, what + 6, &layer));
        if (strncmp(what, "grad/", 5) == 0) OK(tow_params_get(grads, what + 5, &layer));
        if (strncmp(what, "state/", 6) == 0) OK(tow_params_get(r->state, what + 6, &layer));
        return layer;
    }
    layer = lifted_result(r, what);
    if (!layer) fail_msg("%s: nothing is called %s", name, what);
    return tow_array_retain(layer);
}

static void test_golden(void **unused)
{
    (void)unused;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/flax_lift_more.txt", "r");
    assert_non_null(file);
    char name[64], what[128], shape[128], found[128], last[64] = "";
    lift_run r = {0};
    tow_params *grads = NULL;
    int cases = 0;
    while (fscanf(file, "%63s %127s %127s", name, what, shape) == 3) {
        if (strcmp(name, last) != 0) {
            free_lift_run(&r);
            tow_params_free(grads);
            if (!with_norm(name, &r) && !with_rows(name, &r) && !with_stack(name, &r)) fail_msg("no case %s", name);
            grads = gradients(&r);
            strcpy(last, name);
            cases++;
        }
        tow_array *array = find(&r, grads, name, what);
        if (strcmp(shape_text(tow_array_type(array), found), shape) != 0)
            fail_msg("%s %s: expected the shape %s, found %s", name, what, shape, found);
        compare_array(file, name, what, array, strncmp(name, "rnn", 3) == 0);
        tow_array_release(array);
    }
    assert_true(feof(file));
    assert_int_equal(cases, 19);
    fclose(file);
    tow_params_free(grads);
    free_lift_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

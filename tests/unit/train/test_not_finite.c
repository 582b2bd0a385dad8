/* The place where the first NaN or infinity comes up: in layers, in regions, forward and backward. */
#include "tests/unit/support/training.h"

#define expect_text(found, part) check_text(&(found), part)
static void check_text(const tow_not_finite *found, const char *part)
{
    char text[800];
    tow_not_finite_text(found, text, sizeof text);
    if (!strstr(text, part)) fail_msg("expected \"%s\" in \"%s\"", part, text);
}

/* ---- a model of blocks, of which one takes logarithms of what the caller sends ----------------------------------- */

static void block_call(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    (void)module, (void)n_in, (void)n_out;
    tow_value scale = tow_param(s, "scale", 1, (int64_t[]){2}, tow_initializer_ones());
    const tow_type type = tow_value_type(in[0]);
    tow_scope *inner = tow_scope_begin(s, "gate");
    tow_value y = tow_checkpoint_name(tow_log(in[0]), "logarithm");
    out[0] = tow_add(tow_mul(y, tow_broadcast_to(scale, type.rank, type.dims)), in[0]);
    tow_scope_end(inner);
}
static const tow_module_class block_class = {"block", block_call};
static const tow_module block = {&block_class};

typedef struct blocks {
    tow_module module;
    const tow_module *inner;
} blocks;
static void blocks_call(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    (void)n_in, (void)n_out;
    out[0] = tow_apply_module(s, "blocks", ((const blocks *)module)->inner, in[0]);
}
static const tow_module_class blocks_class = {"blocks", blocks_call};

/* x = 20 goes through log(x) + x four times. */
static void layer_is_named(void **state)
{
    const fixture *f = *state;
    for (int remat = 0; remat < 2; remat++)
        for (int unrolled = 0; unrolled < 2; unrolled++) {
            tow_remat again = {.module = {&tow_remat_class, sizeof(tow_remat)}, .inner = &block};
            const tow_module *body = remat ? TOW_MODULE(&again) : &block;
            tow_scan stack = {
                .module = {&tow_scan_class, sizeof(tow_scan)}, .inner = body, .length = 4, .unrolled = unrolled};
            blocks model = {{&blocks_class}, TOW_MODULE(&stack)};
            training t =
                start(f->ctx, TOW_MODULE(&model), 2, 2, TOW_TRAIN_OPTIONS(.optimizer = usual, .check_finite = true));
            float *x = tow_array_data(t.batch[0]);
            for (int i = 0; i < 8; i++) x[i] = 20;
            double loss;
            assert_int_equal(tow_train_step(t.state, t.batch, &loss), TOW_OK);
            x[5] = 0.85f; /* 0.85 - 0.16, then 0.69 - 0.37, then 0.32 - 1.13 < 0, whose logarithm is NaN */
            assert_int_equal(tow_train_step(t.state, t.batch, &loss), TOW_CHECK_FAILED);
            assert_message(f, "step 2: the loss is ");
            assert_message(f, "the first NaN is made by log of layer 'blocks/3/gate', named 'logarithm'");
            assert_message(f, "test_not_finite.c:");
            assert_message(f, "in the forward pass (f32[4,2], 1 of 8 elements, the first at 5)");
            stop(&t);
        }
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

typedef void (*recorded)(tow_trace *t, const tow_value *in, tow_value *out, void *user);

static tow_not_finite find(const fixture *f, recorded record, bool gradient, size_t n, const float *numbers)
{
    tow_graph *g, *d = NULL;
    const tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){(int64_t)n});
    tow_not_finite found;
    tow_array *x;
    assert_int_equal(tow_array_from_data(f->ctx, type, numbers, &x), TOW_OK);
    if (tow_trace_function(f->ctx, record, NULL, 1, &type, NULL, 1, &g) != TOW_OK)
        fail_msg("%s", tow_context_error(f->ctx));
    if (gradient) assert_int_equal(tow_value_and_grad(g, 0, NULL, false, &d), TOW_OK);
    if (tow_find_not_finite(d ? d : g, &x, &found) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
    tow_array_release(x);
    tow_graph_release(g);
    tow_graph_release(d);
    return found;
}

static void roots(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_reduce_sum(tow_sqrt(in[0]), 0, NULL);
}

/* -inf where a mask says so is meant; softmax of it is finite, but of a row of nothing else it is not. */
static void masked(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_value zero = tow_full_like(in[0], 0), lowest = tow_full_like(in[0], -INFINITY);
    tow_value p = tow_softmax(tow_where(tow_gt(in[0], zero), in[0], lowest), 0);
    (void)t;
    out[0] = tow_reduce_sum(tow_mul(p, in[0]), 0, NULL);
}

static void exponential(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_reduce_sum(tow_exp(tow_mul_scalar(in[0], 2)), 0, NULL);
}

static void difference_of_exponentials(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    tow_value e = tow_exp(in[0]);
    out[0] = tow_reduce_sum(tow_sub(e, tow_mul_scalar(e, 2)), 0, NULL);
}

static void graphs(void **state)
{
    const fixture *f = *state;
    tow_not_finite x = find(f, roots, false, 2, (float[]){4, 0});
    assert_false(x.found);
    expect_text(x, "every value is finite");
    x = find(f, roots, true, 3, (float[]){4, 0, 0}); /* 1 / (2 sqrt(0)) */
    assert_true(x.found && x.backward && x.nans == 0 && x.infinities == 2 && x.first == 1 && x.input == -1);
    expect_text(x, "the first infinity is made by ");
    expect_text(x, "in the backward pass (f32[3], 2 of 3 elements, the first at 1)");
    x = find(f, roots, false, 3, (float[]){4, -1, -2});
    assert_true(x.found && !x.backward && x.nans == 2 && x.first == 1);
    assert_string_equal(x.primitive, "sqrt");
    x = find(f, roots, false, 3, (float[]){4, INFINITY, NAN});
    assert_true(x.found && x.input == 0 && x.nans == 1 && x.infinities == 1 && x.first == 2);
    expect_text(x, "input 0 holds NaN already (f32[3], 1 of 3 elements, the first at 2)");
    x = find(f, masked, false, 3, (float[]){1, -1, 2});
    assert_false(x.found);
    x = find(f, masked, false, 3, (float[]){-1, -1, -2});
    assert_true(x.found && x.nans == 3);
    assert_string_equal(x.primitive, "softmax");
    x = find(f, exponential, false, 2, (float[]){1, 50});
    assert_true(x.found && x.infinities == 1 && x.first == 1);
    assert_string_equal(x.primitive, "exp");
    x = find(f, difference_of_exponentials, false, 1, (float[]){88.7f}); /* 2e is infinite, e is not; e - 2e is */
    assert_true(x.found && x.nans == 0);
    assert_string_equal(x.primitive, "mul");
}

/* ---- indices and labels ------------------------------------------------------------------------------------------ */

/* x: the index of a row of [20, 3] */
static void looks_up(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_value table = tow_full(t, tow_make_type(TOW_F32, 2, (int64_t[]){20, 3}), 1);
    out[0] = tow_reduce_sum(tow_gather(table, tow_convert(in[0], TOW_I32)), 0, NULL);
}

static void takes(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_value table = tow_full(t, tow_make_type(TOW_F32, 2, (int64_t[]){3, 20}), 1);
    out[0] = tow_reduce_sum(tow_take(table, tow_convert(in[0], TOW_I64), 1), 0, NULL);
}

/* x: labels of 10 classes */
static void compares(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    tow_value logits = tow_full(t, tow_make_type(TOW_F32, 2, (int64_t[]){3, 10}), 1);
    out[0] = tow_mean(tow_softmax_cross_entropy(logits, tow_convert(in[0], TOW_I32)), 0, NULL);
}

static void compares_product(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value x = tow_full(t, tow_make_type(TOW_F32, 2, (int64_t[]){3, 4}), 1);
    tow_value table = tow_full(t, tow_make_type(TOW_F32, 2, (int64_t[]){10, 4}), 1);
    (void)user;
    out[0] = tow_mean(tow_linear_cross_entropy(x, table, true, tow_convert(in[0], TOW_I32)), 0, NULL);
}

static void what_is_outside(void **state)
{
    const fixture *f = *state;
    tow_not_finite x = find(f, looks_up, false, 3, (float[]){19, 25, 20});
    expect_text(x, "the first NaN is made by gather");
    expect_text(x, "(index 25, expected 0 to 19; f32[3,3], 6 of 9 elements, the first at 3)");
    assert_true(x.outside_value == 25 && x.outside_at == 1 && x.outside_limit == 20);
    x = find(f, takes, false, 3, (float[]){19, 3, 20});
    expect_text(x, "(index 20, expected 0 to 19; ");
    assert_int_equal(x.outside_at, 2);
    x = find(f, compares, false, 3, (float[]){9, 10, 0});
    expect_text(x, "(label 10, expected 0 to 9; f32[3], 1 of 3 elements, the first at 1)");
    x = find(f, compares, true, 3, (float[]){9, 0, -1});
    expect_text(x, "(label -1, expected 0 to 9; ");
    x = find(f, compares_product, false, 3, (float[]){9, 10, 0});
    expect_text(x, "(label 10, expected 0 to 9; ");
    x = find(f, roots, false, 3, (float[]){4, -1, -2});
    assert_string_equal(x.outside, "");
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

static void countdown_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add_scalar(in[0], -1);
    out[1] = tow_add(in[1], tow_log(in[0]));
}

static void positive(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)user;
    out[0] = tow_gt(in[0], tow_scalar(t, TOW_F32, -5));
}

static void counts_down(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value x = tow_reshape(in[0], 0, NULL), carry[2] = {x, tow_scalar(t, TOW_F32, 0)}, last[2];
    tow_while_function(t, positive, countdown_body, user, NULL, 2, carry, last);
    out[0] = last[1];
}

static void fori_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    tow_value left = tow_sub(in[1], tow_convert(in[0], TOW_F32));
    out[0] = in[1];
    out[1] = tow_add(in[2], tow_sqrt(left));
}

static void counts_up(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value x = tow_reshape(in[0], 0, NULL), carry[2] = {x, tow_scalar(t, TOW_F32, 0)}, last[2];
    tow_fori_options options =
        TOW_FORI_OPTIONS(.upper = tow_convert(tow_add_scalar(x, 3), TOW_I32), .max_iterations = 100);
    tow_fori_function(t, 0, 0, fori_body, user, &options, 2, carry, last);
    out[0] = last[1];
}

static void logarithm(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_log(in[0]);
}
static void itself(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = in[0];
}

static void takes_a_branch(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value x = tow_reshape(in[0], 0, NULL);
    tow_cond_function(t, tow_lt(x, tow_scalar(t, TOW_F32, 0)), logarithm, itself, user, 1, &x, 1, out);
}

static void scan_body(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_add(in[0], tow_log(in[1]));
    out[1] = out[0];
}

static void backwards(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_value zero = tow_scalar(t, TOW_F32, 0), last, ys;
    tow_scan_function(t, scan_body, user, &TOW_SCAN_OPTIONS(.reverse = true), 1, &zero, 1, in, 1, &last, &ys);
    out[0] = last;
}

static void regions(void **state)
{
    const fixture *f = *state;
    tow_not_finite x = find(f, counts_down, false, 1, (float[]){2.5f}); /* 2.5, 1.5, 0.5, -0.5 */
    assert_true(x.found && x.nans == 1);
    assert_string_equal(x.primitive, "log");
    expect_text(x, "of layer '[3]'");
    x = find(f, counts_up, false, 1, (float[]){1.5f}); /* sqrt(1.5 - i) */
    assert_true(x.found && x.nans == 1);
    assert_string_equal(x.primitive, "sqrt");
    expect_text(x, "of layer '[2]'");
    x = find(f, takes_a_branch, false, 1, (float[]){-1});
    assert_string_equal(x.primitive, "log");
    x = find(f, takes_a_branch, false, 1, (float[]){1});
    assert_false(x.found);
    x = find(f, backwards, false, 5, (float[]){-1, 2, -3, 4, 5}); /* from the last one on */
    assert_true(x.found && x.nans == 1);
    expect_text(x, "log of layer '[2]'");
    x = find(f, backwards, true, 5, (float[]){0, 2, 3, 4, 5});
    assert_true(x.found && !x.backward && x.infinities == 1);
    expect_text(x, "log of layer '[0]'");
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static void arguments(void **state)
{
    const fixture *f = *state;
    const tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){3});
    tow_graph *g;
    tow_not_finite found;
    tow_array *x, *none = NULL;
    assert_int_equal(tow_trace_function(f->ctx, roots, NULL, 1, &type, NULL, 1, &g), TOW_OK);
    assert_int_equal(tow_array_create(f->ctx, tow_make_type(TOW_F32, 1, (int64_t[]){4}), &x), TOW_OK);
    assert_int_equal(tow_find_not_finite(g, &x, &found), TOW_TYPE_MISMATCH);
    assert_message(f, "input 0: expected f32[3], found f32[4]");
    assert_int_equal(tow_find_not_finite(g, &none, &found), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_find_not_finite(g, NULL, &found), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_find_not_finite(NULL, &x, &found), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_find_not_finite(g, &x, NULL), TOW_INVALID_ARGUMENT);
    tow_array_release(x);
    tow_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(layer_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(graphs, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_outside, setup, teardown),
        cmocka_unit_test_setup_teardown(regions, setup, teardown),
        cmocka_unit_test_setup_teardown(arguments, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

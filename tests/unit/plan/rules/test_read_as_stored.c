/* Operands of 16 bits are read as they are stored: no array of f32 is made of one in models of convolutions, recurrent
 * cells, embeddings, norms, products and cross-entropies, forward and in gradients; and the bits are those of the
 * kernels of f32 on widened operands. So it is for convolutions of f32 whose operands the user has converted, with
 * units for bf16 and without: they are never taken for convolutions of 16 bits.
 * Tests read_as_stored.c, ops/wide.c, kernels/halves.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/base/team.h"
#include "src/kernels/kernel.h"
#include "src/plan/lower/inline.h"
#include "tests/unit/support/elements.h"
#include "tow/tow.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(ctx));                                       \
    } while (0)

static tow_context *ctx;

static int setup(void **state)
{
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.threads = 2, .portable_bits = true);
    (void)state;
    return tow_context_create(&options, &ctx) == TOW_OK ? 0 : -1;
}

static int setup_with_units(void **state)
{
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.threads = 2);
    (void)state;
    return tow_context_create(&options, &ctx) == TOW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tow_context_free(ctx);
    return 0;
}

enum {
    MOST = 8
};

/* A function of operands of one float type, and of integers. */
typedef struct function {
    const char *name;
    int n;
    tow_type types[MOST]; /* of bf16 stands for any float */
    tow_value (*call)(const tow_value *in);
    bool rounds_again; /* the gradient is made of several operations, each of which rounds */
} function;

/* ---- models ------------------------------------------------------------------------------------------------------ */

static tow_value conv(tow_value x, tow_value w, int64_t stride, int64_t groups)
{
    return tow_conv_general_dilated(
        x, w, &TOW_CONV_OPTIONS(.padding = TOW_PAD_SAME, .strides = {stride, stride}, .feature_groups = groups));
}

/* x, four kernels (3x3, 3x3 with a stride, depthwise, 1x1), scale of a norm */
static tow_value cnn(const tow_value *in)
{
    tow_value y = tow_relu(conv(in[0], in[1], 1, 1));
    y = tow_relu(conv(y, in[2], 2, 1));
    y = tow_normalize_rms(conv(y, in[3], 1, 24), in[5], 1e-6);
    return tow_reduce_sum(tow_tanh(conv(y, in[4], 1, 1)), 2, (int[]){1, 2});
}

static void cell(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const tow_value *w = user, h = in[0], c = in[1], x = in[2];
    (void)t;
    tow_value gates = tow_add(tow_matmul(x, w[0]), tow_matmul(h, w[1])), g[4];
    for (int i = 0; i < 4; i++) g[i] = tow_slice_axis(gates, 1, 24 * i, 24 * i + 24);
    out[1] = tow_add(tow_mul(tow_logistic(g[0]), c), tow_mul(tow_logistic(g[1]), tow_tanh(g[2])));
    out[0] = out[2] = tow_mul(tow_logistic(g[3]), tow_tanh(out[1]));
}

/* wx, wh, h, c, xs */
static tow_value lstm(const tow_value *in)
{
    tow_value carry[2], h, w[] = {in[0], in[1]};
    tow_scan_function(tow_value_trace(in[0]), cell, w, NULL, 2, in + 2, 1, in + 4, 1, carry, &h);
    return h;
}

/* table, scale, bias, w, scale of another norm, tokens, labels */
static tow_value language(const tow_value *in)
{
    tow_value x = tow_normalize_layer(tow_gather(in[0], in[5]), in[1], in[2], 1e-5);
    x = tow_normalize_rms(tow_gelu(tow_matmul(x, in[3])), in[4], 1e-6);
    return tow_linear_cross_entropy(x, in[0], true, in[6]);
}

#define OF(type, ...)                                                                                                  \
    {                                                                                                                  \
        .dtype = (type), .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dims = { __VA_ARGS__ }           \
    }
#define F(...) OF(TOW_BF16, __VA_ARGS__)
#define I(...) OF(TOW_I32, __VA_ARGS__)

static const function models[] = {
    {"convolutions",
     6,
     {F(2, 12, 13, 16), F(3, 3, 16, 24), F(3, 3, 24, 24), F(3, 3, 1, 24), F(1, 1, 24, 40), F(24)},
     cnn},
    {"recurrent cells", 5, {F(20, 96), F(24, 96), F(20, 24), F(20, 24), F(6, 20, 20)}, lstm},
    {"language", 7, {F(1100, 32), F(32), F(32), F(32, 32), F(32), I(3, 7), I(3, 7)}, language},
};

/* ---- single operations, whose results are rounded once ----------------------------------------------------------- */

static tow_value one_conv(const tow_value *in) { return conv(in[0], in[1], 1, 1); }
static tow_value strided_conv(const tow_value *in) { return conv(in[0], in[1], 2, 1); }
static tow_value grouped_conv(const tow_value *in) { return conv(in[0], in[1], 1, 2); }
static tow_value depthwise_conv(const tow_value *in) { return conv(in[0], in[1], 1, 20); }
static tow_value features_first(const tow_value *in)
{
    return tow_conv_general_dilated(in[0], in[1],
                                    &TOW_CONV_OPTIONS(.dimensions = "NCHW,OIHW->NCHW", .padding = TOW_PAD_SAME));
}
static tow_value layer_norm(const tow_value *in) { return tow_normalize_layer(in[0], in[1], in[2], 1e-5); }
static tow_value rms_norm(const tow_value *in) { return tow_normalize_rms(in[0], in[1], 1e-6); }
static tow_value softmax(const tow_value *in) { return tow_softmax(in[0], 1); }
static tow_value softmax_across(const tow_value *in) { return tow_softmax(in[0], 0); }
static tow_value cross_entropy(const tow_value *in) { return tow_softmax_cross_entropy(in[0], in[1]); }
static tow_value linear_rows(const tow_value *in) { return tow_linear_cross_entropy(in[0], in[1], true, in[2]); }
static tow_value linear_columns(const tow_value *in) { return tow_linear_cross_entropy(in[0], in[1], false, in[2]); }
static tow_value embed(const tow_value *in) { return tow_gather(in[0], in[1]); }

/* c + x^T y of rows of f32 and of converted rows of 16 bits, in either order. */
static void add_product(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const bool stored_first = *(const bool *)user;
    const tow_value x = in[1], y = tow_convert(in[2], TOW_F32);
    const tow_dot_dims rows = {.n_contract = 1, .lhs_contract = {0}, .rhs_contract = {0}};
    (void)t;
    out[0] = tow_add(in[0], stored_first ? tow_dot_general(y, x, rows) : tow_dot_general(x, y, rows));
}

static tow_value sum_of_products(const tow_value *in, bool stored_first)
{
    const tow_value carry = tow_convert(in[0], TOW_F32), xs[] = {tow_exp(tow_convert(in[1], TOW_F32)), in[2]};
    tow_value sum;
    tow_scan_function(tow_value_trace(in[0]), add_product, &stored_first, NULL, 1, &carry, 2, xs, 0, &sum, NULL);
    return tow_convert(sum, tow_value_type(in[0]).dtype);
}

static tow_value stored_rows_first(const tow_value *in) { return sum_of_products(in, true); }
static tow_value stored_rows_second(const tow_value *in) { return sum_of_products(in, false); }
static tow_value add_rows(const tow_value *in) { return tow_index_add(in[0], in[2], in[1]); }

static const function operations[] = {
    {"rows", 2, {F(2, 21, 30, 20), F(3, 3, 20, 33)}, one_conv},
    {"few positions", 2, {F(5, 6, 6, 20), F(3, 3, 20, 33)}, one_conv},
    {"strides", 2, {F(2, 12, 13, 24), F(3, 3, 24, 20)}, strided_conv},
    {"a kernel of one tap", 2, {F(2, 24, 25, 40), F(1, 1, 40, 70)}, one_conv},
    {"groups", 2, {F(2, 9, 10, 12), F(3, 3, 6, 14)}, grouped_conv},
    {"channels", 2, {F(2, 9, 10, 20), F(3, 3, 1, 20)}, depthwise_conv},
    {"features first", 2, {F(2, 5, 24, 25), F(7, 5, 3, 3)}, features_first},
    {"layer_norm", 3, {F(37, 70), F(70), F(70)}, layer_norm},
    {"rms_norm", 2, {F(37, 70), F(70)}, rms_norm},
    {"softmax", 1, {F(37, 70)}, softmax, true},
    {"softmax of short rows", 1, {F(37, 9)}, softmax, true},
    {"softmax across", 1, {F(37, 70)}, softmax_across, true},
    {"cross-entropy", 2, {F(37, 70), I(37)}, cross_entropy},
    {"cross-entropy of short rows", 2, {F(37, 9), I(37)}, cross_entropy},
    {"rows of classes", 3, {F(37, 20), F(1200, 20), I(37)}, linear_rows},
    {"columns of classes", 3, {F(37, 20), F(20, 1200), I(37)}, linear_columns},
    {"embedding", 2, {F(50, 70), I(37)}, embed},
    {"products in a loop, stored rows first", 3, {F(16, 8), F(5, 70, 8), F(5, 70, 16)}, stored_rows_first, true},
    {"products in a loop, stored rows second", 3, {F(8, 16), F(5, 70, 8), F(5, 70, 16)}, stored_rows_second, true},
    {"index_add", 3, {F(50, 70), F(37, 70), I(37)}, add_rows},
};

static tow_value f32_of(tow_value x) { return tow_convert(x, TOW_F32); }
static tow_value converted_conv(const tow_value *in) { return conv(f32_of(in[0]), f32_of(in[1]), 1, 1); }
static tow_value converted_strided_conv(const tow_value *in) { return conv(f32_of(in[0]), f32_of(in[1]), 2, 1); }

static const function converted[] = {
    {"converted rows", 2, {F(2, 21, 30, 40), F(3, 3, 40, 33)}, converted_conv},
    {"converted, few positions", 2, {F(5, 6, 6, 20), F(3, 3, 20, 33)}, converted_conv},
    {"converted, strides", 2, {F(2, 12, 13, 24), F(3, 3, 24, 20)}, converted_strided_conv},
};

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

typedef struct traced {
    const function *f;
    tow_dtype dtype;
} traced;

static bool is_float(const function *f, int i) { return f->types[i].dtype == TOW_BF16; }

/* in ... -> f(in), as f32 */
static void forward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const traced *x = user;
    (void)t;
    out[0] = tow_convert(x->f->call(in), TOW_F32);
}

/* in ..., weights of the result in f32 -> their sum */
static void weighted(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const traced *x = user;
    (void)t;
    out[0] = tow_reduce_sum(tow_mul(tow_convert(x->f->call(in), TOW_F32), in[x->f->n]), 0, NULL);
}

static tow_graph *trace(tow_function f, traced *x, size_t n, const tow_type *extra)
{
    tow_type types[MOST + 1];
    tow_graph *g;
    for (int i = 0; i < x->f->n; i++) {
        types[i] = x->f->types[i];
        if (is_float(x->f, i)) types[i].dtype = x->dtype;
    }
    if (extra) types[x->f->n] = *extra;
    OK(tow_trace_function(ctx, f, x, n, types, NULL, 1, &g));
    return g;
}

/* f(in), and the gradient of its weighted sum for all floats. */
static void make_graphs(traced *x, tow_graph **y, tow_graph **gradient)
{
    size_t wrt[MOST], n = 0;
    for (int i = 0; i < x->f->n; i++)
        if (is_float(x->f, i)) wrt[n++] = (size_t)i;
    *y = trace(forward, x, (size_t)x->f->n, NULL);
    const tow_type result = tow_graph_output_type(*y, 0);
    tow_graph *loss = trace(weighted, x, (size_t)x->f->n + 1, &result);
    OK(tow_grad(loss, n, wrt, false, gradient));
    tow_graph_release(loss);
}

/* ---- what plans widen -------------------------------------------------------------------------------------------- */

/* True if the array of this line is what the next one, an index_add, adds rows to: sums are f32. */
static bool is_sum(const char *line, const char *next)
{
    const char *name = strstr(line, " #"), *end = name ? strchr(name + 2, ' ') : NULL;
    const char *reader = next ? strstr(next, " = index_add(") : NULL;
    return reader && end && strncmp(reader + 13, name + 1, (size_t)(end - name - 1)) == 0;
}

/* True if the last result of this line is read by the next one, which is the rest of one row program that was cut. */
static bool is_cut(const char *line, const char *next)
{
    const char *op = strstr(line, " = fused("), *name = op, *reader = next ? strstr(next, " = fused(") : NULL;
    char text[32];
    while (name && name > line && *name != '#') name--;
    if (!reader || !name || *name != '#') return false;
    snprintf(text, sizeof text, "%.*s f32[", (int)strcspn(name, " "), name);
    return strstr(reader, text) != NULL;
}

/* A line of a plan whose result is an array of f32 that is made by widening, or by rounding and widening, last of all:
 * readers of these are to read the numbers of 16 bits. Results of a program, which are f32 here, are not counted. */
static bool widens(const char *line)
{
    const char *op = strstr(line, " = "), *dims = strstr(line, "f32[");
    if (!op || !dims || dims > op || dims[4] == ']' || strstr(line, "output ")) return false;
    if (strncmp(op, " = convert(", 11) == 0) return true;
    const char *end = strstr(op, ")(");
    return strncmp(op, " = fused(", 9) == 0 && end && end - op >= 16 && strncmp(end - 7, "convert", 7) == 0;
}

static int count_widened(const tow_graph *g)
{
    tow_program *p;
    int n = 0;
    OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.threads = 1), &p));
    OK(tow_program_check(p));
    const size_t length = tow_program_text(p, NULL, 0);
    char *text = malloc(length + 1);
    assert_non_null(text);
    tow_program_text(p, text, length + 1);
    for (char *line = strtok(text, "\n"), *next; line; line = next) {
        next = strtok(NULL, "\n");
        n += widens(line) && !is_sum(line, next) && !is_cut(line, next);
    }
    free(text);
    tow_program_free(p);
    return n;
}

static void nothing_is_widened_into_an_array(void **state)
{
    (void)state;
    if (!tow__kernel_find("conv_general_dilated", TOW_F32)->halves)
        skip(); /* plain kernels read what they compute in */
    for (size_t k = 0; k < sizeof models / sizeof *models; k++)
        for (int f16 = 0; f16 < 2; f16++) {
            traced x = {&models[k], f16 ? TOW_F16 : TOW_BF16};
            tow_graph *y, *gradient;
            make_graphs(&x, &y, &gradient);
            const int found[] = {count_widened(y), count_widened(gradient)};
            if (found[0] + found[1] > 0)
                fail_msg("%s of %s: %d arrays are widened forward, %d in the gradient", x.f->name,
                         tow_dtype_name(x.dtype), found[0], found[1]);
            tow_graph_release(y);
            tow_graph_release(gradient);
        }
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

/* Numbers that 16 bits hold, of both signs; indices, some of which name nothing. */
static void fill(tow_array *x, tow_dtype half, uint32_t seed)
{
    const tow_type type = tow_array_type(x);
    const int fraction = half == TOW_BF16 ? 7 : 10;
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        seed = seed * 1664525u + 1013904223u;
        const double value = (double)(seed >> 8) / (1 << 23) - 1;
        element_set(type.dtype, tow_array_data(x), i,
                    type.dtype == TOW_I32 ? (double)(seed >> 16 & 15)
                                          : half_value(half_bits(value, fraction), fraction));
    }
}

/* Results of the graph; those of f32 are rounded to `half`, as those of operations on it are. */
static void run(tow_graph *g, tow_dtype half, int threads, tow_array **y)
{
    tow_program *p;
    tow_array *x[MOST + 1], *made[MOST];
    const size_t n_in = tow_graph_input_count(g), n_out = tow_graph_output_count(g);
    for (size_t i = 0; i < n_in; i++) {
        OK(tow_array_create(ctx, tow_graph_input_type(g, i), &x[i]));
        fill(x[i], half, (uint32_t)i + 1);
    }
    for (size_t i = 0; i < n_out; i++) {
        tow_type type = tow_graph_output_type(g, i);
        OK(tow_array_create(ctx, type, &made[i]));
        type.dtype = half;
        OK(tow_array_create(ctx, type, &y[i]));
    }
    OK(tow_compile(ctx, g, &TOW_COMPILE_OPTIONS(.threads = threads), &p));
    OK(tow_program_run(p, x, made));
    for (size_t i = 0; i < n_out; i++)
        for (int64_t j = 0; j < tow_type_element_count(tow_array_type(y[i])); j++)
            element_set(half, tow_array_data(y[i]), j,
                        element_get(tow_array_type(made[i]).dtype, tow_array_data(made[i]), j));
    for (size_t i = 0; i < n_in; i++) tow_array_release(x[i]);
    for (size_t i = 0; i < n_out; i++) tow_array_release(made[i]);
    tow_program_free(p);
}

static void expect_equal(const char *name, tow_graph *g, tow_graph *wide, tow_dtype half, int threads)
{
    tow_array *y[MOST], *expected[MOST];
    run(g, half, threads, y);
    run(wide, half, 1, expected);
    for (size_t i = 0; i < tow_graph_output_count(g); i++) {
        if (memcmp(tow_array_data(y[i]), tow_array_data(expected[i]), tow_type_bytes(tow_array_type(y[i]))) != 0)
            fail_msg("%s of %s: output %zu differs from the kernel of f32", name, tow_dtype_name(half), i);
        tow_array_release(y[i]);
        tow_array_release(expected[i]);
    }
}

static void expect_bits_of_f32(const function *f, tow_dtype half, int threads)
{
    traced x = {f, half}, z = {f, TOW_F32};
    tow_graph *y, *gradient, *wide_y, *wide_gradient;
    make_graphs(&x, &y, &gradient);
    make_graphs(&z, &wide_y, &wide_gradient);
    assert_int_equal(count_widened(y) + (f->rounds_again ? 0 : count_widened(gradient)), 0);
    expect_equal(f->name, y, wide_y, half, threads);
    if (!f->rounds_again) expect_equal(f->name, gradient, wide_gradient, half, threads);
    tow_graph *all[] = {y, gradient, wide_y, wide_gradient};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tow_graph_release(all[i]);
}

static void bits_are_those_of_widened_operands(void **state)
{
    (void)state;
    if (!tow__kernel_find("conv_general_dilated", TOW_F32)->halves) skip();
    for (size_t k = 0; k < sizeof operations / sizeof *operations; k++) {
        expect_bits_of_f32(&operations[k], TOW_BF16, 1);
        expect_bits_of_f32(&operations[k], TOW_F16, 2);
    }
}

/* Portable bits or not: on units for bf16 run convolutions of 16 bits alone. */
static void converted_numbers_have_the_bits_of_f32(void **state)
{
    (void)state;
    if (!tow__kernel_find("conv_general_dilated", TOW_F32)->halves) skip();
    for (size_t k = 0; k < sizeof converted / sizeof *converted; k++) {
        expect_bits_of_f32(&converted[k], TOW_BF16, 1);
        expect_bits_of_f32(&converted[k], TOW_F16, 2);
    }
}

/* Two convolutions of 16 bits, and one of f32 on the same numbers. */
static void same_numbers(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = one_conv(in);
    out[1] = converted_conv(in);
    out[2] = one_conv(in);
}

static void equality_knows_16_bits_from_f32(void **state)
{
    const tow_type types[] = {F(2, 6, 6, 40), F(3, 3, 40, 33)};
    tow_graph *g, *wide, *merged;
    tow__team team;
    (void)state;
    OK(tow__team_create(ctx, 1, &team));
    OK(tow_trace_function(ctx, same_numbers, NULL, 2, types, NULL, 3, &g));
    OK(tow__widen_graph(g, &team, &wide));
    OK(tow_graph_cse(wide, &merged));
    assert_int_equal(tow_graph_primitive_count(wide, "conv_general_dilated"), 3);
    assert_int_equal(tow_graph_primitive_count(merged, "conv_general_dilated"), 2);
    tow_graph_release(g);
    tow_graph_release(wide);
    tow_graph_release(merged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_widened_into_an_array, setup, teardown),
        cmocka_unit_test_setup_teardown(bits_are_those_of_widened_operands, setup, teardown),
        cmocka_unit_test_setup_teardown(converted_numbers_have_the_bits_of_f32, setup, teardown),
        cmocka_unit_test_setup_teardown(converted_numbers_have_the_bits_of_f32, setup_with_units, teardown),
        cmocka_unit_test_setup_teardown(equality_knows_16_bits_from_f32, setup, teardown),
    };
    return cmocka_run_group_tests_name("read_as_stored", tests, NULL, NULL);
}

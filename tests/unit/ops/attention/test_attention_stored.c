/* Attention on keys and values that are stored in 16 bits or in blocks of few bits, beside attention on what they stand
 * for in f32: the same bits, for a few queries and many, short caches and long ones, grouped heads, windows, masks and
 * offsets. The same with queries of 16 bits, and what plans of models in 16 bits make of it. Products of f32 with
 * operands that are conversions of 16 bits, likewise.
 * Tests ops/attention/attention.c, kernels/attention/attention_stored.c and plan/lower/widen.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

static int setup_portable(void **state)
{
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.threads = 2, .portable_bits = true);
    (void)state;
    return tow_context_create(&options, &ctx) != TOW_OK;
}
static int teardown_portable(void **state)
{
    (void)state;
    tow_context_free(ctx);
    return 0;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static tow_array *numbers(int rank, const int64_t *dims, uint32_t seed)
{
    tow_array *x;
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, rank, dims), &x));
    float *data = tow_array_data(x);
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(x)); i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (float)(seed >> 8) / 8388608.0f - 1;
    }
    return x;
}

static tow_array *converted(const tow_array *x, tow_dtype dtype)
{
    tow_array *y;
    OK(tow_array_convert(x, dtype, &y));
    return y;
}

static tow_array *evaluated(tow_function record, void *user, size_t n, tow_array *const *in)
{
    tow_type types[4];
    tow_graph *g;
    tow_array *y = NULL;
    for (size_t i = 0; i < n; i++) types[i] = tow_array_type(in[i]);
    if (tow_trace_function(ctx, record, user, n, types, NULL, 1, &g) != TOW_OK) fail_msg("%s", tow_context_error(ctx));
    OK(tow_evaluate(g, in, &y));
    tow_graph_release(g);
    return y;
}

static void expect_equal(const tow_array *x, const tow_array *y)
{
    assert_true(tow_type_equal(tow_array_type(x), tow_array_type(y)));
    assert_memory_equal(tow_array_data((tow_array *)x), tow_array_data((tow_array *)y),
                        tow_type_bytes(tow_array_type(x)));
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static const tow_dtype stored_types[] = {TOW_BF16, TOW_F16, TOW_Q8_0, TOW_Q4_0};

typedef struct shape {
    int64_t batch, t, s, heads, groups, width;
    bool causal;
    int64_t window;
    int32_t offset; /* -1: none */
} shape;

static void attend(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const shape *s = user;
    const tow_attention_options options =
        TOW_ATTENTION_OPTIONS(.causal = s->causal, .window = s->window,
                              .offset = s->offset < 0 ? (tow_value){0} : tow_scalar(t, TOW_I32, s->offset));
    out[0] = tow_attention(in[0], in[1], in[2], &options);
}

static void test_attention(void **state)
{
    static const shape shapes[] = {
        {1, 1, 40, 4, 4, 32, true, 0, 17},   {2, 1, 300, 4, 2, 64, true, 0, 299},
        {1, 3, 5, 2, 1, 32, false, 0, -1},   {1, 70, 200, 2, 2, 32, true, 0, 100},
        {1, 17, 130, 4, 2, 96, true, 9, 60}, {1, 2, 2100, 2, 1, 32, true, 0, 2090},
    };
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        shape s = shapes[i];
        tow_array *q = numbers(4, (int64_t[]){s.batch, s.t, s.heads, s.width}, 1),
                  *k = numbers(4, (int64_t[]){s.batch, s.s, s.groups, s.width}, 2),
                  *v = numbers(4, (int64_t[]){s.batch, s.s, s.groups, s.width}, 3);
        for (size_t d = 0; d < 4; d++) {
            tow_array *sk = converted(k, stored_types[d]), *sv = converted(v, stored_types[d]);
            tow_array *wk = converted(sk, TOW_F32), *wv = converted(sv, TOW_F32);
            tow_array *found = evaluated(attend, &s, 3, (tow_array *[]){q, sk, sv});
            tow_array *expected = evaluated(attend, &s, 3, (tow_array *[]){q, wk, wv});
            expect_equal(found, expected);
            tow_array *all[] = {sk, sv, wk, wv, found, expected};
            for (size_t a = 0; a < 6; a++) tow_array_release(all[a]);
        }
        tow_array_release(q), tow_array_release(k), tow_array_release(v);
    }
}

/* All of 16 bits: the result is that of f32, rounded once. */
static void test_halves(void **state)
{
    static const shape shapes[] = {{2, 1, 300, 4, 2, 64, true, 0, 299}, {1, 150, 150, 2, 1, 40, true, 9, -1}};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        shape s = shapes[i / 2];
        const tow_dtype dtype = stored_types[i % 2];
        tow_array *q = numbers(4, (int64_t[]){s.batch, s.t, s.heads, s.width}, 1),
                  *k = numbers(4, (int64_t[]){s.batch, s.s, s.groups, s.width}, 2),
                  *v = numbers(4, (int64_t[]){s.batch, s.s, s.groups, s.width}, 3);
        tow_array *half[] = {converted(q, dtype), converted(k, dtype), converted(v, dtype)}, *wide[3];
        for (int a = 0; a < 3; a++) wide[a] = converted(half[a], TOW_F32);
        tow_array *found = evaluated(attend, &s, 3, half), *exact = evaluated(attend, &s, 3, wide);
        tow_array *expected = converted(exact, dtype);
        expect_equal(found, expected);
        tow_array *all[] = {q, k, v, half[0], half[1], half[2], wide[0], wide[1], wide[2], found, exact, expected};
        for (size_t a = 0; a < sizeof all / sizeof *all; a++) tow_array_release(all[a]);
    }
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static void sum_of_squares(tow_trace *t, const tow_value *outputs, const tow_value *extra, tow_value *loss,
                           tow_value *aux, void *user)
{
    (void)t, (void)extra, (void)aux, (void)user;
    *loss = tow_reduce_sum(tow_square(outputs[0]), 0, NULL);
}

/* The plan of the gradients of a block with activations of this type. */
static char *plan_of(tow_context *context, tow_dtype dtype)
{
    static char text[1 << 16];
    const tow_type type = tow_make_type(TOW_F32, 3, (int64_t[]){2, 40, 96});
    const tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 3, .causal = true, .mlp_features = 32);
    tow_precision mixed = TOW_PRECISION(&block, .dtype = dtype, .output_dtype = TOW_F32);
    tow_params *params;
    tow_graph *loss, *gradient;
    tow_program *program;
    size_t wrt[32];
    OK(tow_model_init(context, &mixed.module, 0, 1, &type, &params));
    const size_t n = tow_params_count(params);
    assert_true(n <= 32);
    for (size_t i = 0; i < n; i++) wrt[i] = i;
    OK(tow_model_loss_graph(&mixed.module, params, 1, &type, 0, NULL, sum_of_squares, NULL, 0, NULL, &loss));
    OK(tow_value_and_grad(loss, n, wrt, false, &gradient));
    OK(tow_compile(context, gradient, NULL, &program));
    assert_true(tow_program_text(program, text, sizeof text) < sizeof text);
    tow_program_free(program);
    tow_graph_release(gradient);
    tow_graph_release(loss);
    tow_params_free(params);
    return text;
}

/* Forward and backward, nothing of the shape of queries, keys and values is f32, by portable bits and by others. */
static void test_plans(void **state)
{
    tow_context *fast;
    (void)state;
    OK(tow_context_create(NULL, &fast));
    for (int i = 0; i < 4; i++) {
        const char *text = plan_of(i % 2 ? ctx : fast, stored_types[i / 2]), *wide = strstr(text, "f32[2,40,3,32]");
        assert_non_null(strstr(text, "= attention("));
        assert_non_null(strstr(text, "= attention_vjp("));
        if (wide) fail_msg("plan %d: %.200s", i, wide);
    }
    tow_context_free(fast);
}

static void test_refused(void **state)
{
    static const tow_dtype wrong[][3] = {{TOW_F64, TOW_BF16, TOW_BF16}, {TOW_BF16, TOW_F16, TOW_F16},
                                         {TOW_F32, TOW_BF16, TOW_F16},  {TOW_F32, TOW_Q8_0, TOW_F32},
                                         {TOW_F32, TOW_F64, TOW_F64},   {TOW_Q8_0, TOW_Q8_0, TOW_Q8_0}};
    shape s = {1, 2, 3, 2, 1, 32, true, 0, -1};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tow_type types[3];
        tow_graph *g;
        for (int a = 0; a < 3; a++) {
            const int64_t width = tow_dtype_numbers(wrong[i][a]) > 1 ? 1 : 32;
            types[a] = tow_make_type(wrong[i][a], 4, (int64_t[]){1, a ? 3 : 2, a ? 1 : 2, width});
        }
        assert_int_equal(tow_trace_function(ctx, attend, &s, 3, types, NULL, 1, &g), TOW_TYPE_MISMATCH);
        tow_context_clear_error(ctx);
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

typedef struct product {
    bool transposed; /* the weight is [n, k] */
    bool first;      /* the weight is the first operand */
} product;

/* x f32, w of 16 bits, as a layer of f32 with parameters of 16 bits has them. */
static void multiply(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const product *p = user;
    const tow_value w = tow_convert(in[1], TOW_F32);
    tow_dot_dims dims = {.n_contract = 1, .lhs_contract = {1}, .rhs_contract = {p->transposed}};
    (void)t;
    if (p->first) dims.lhs_contract[0] = p->transposed, dims.rhs_contract[0] = 1;
    out[0] = p->first ? tow_dot_general(w, in[0], dims) : tow_dot_general(in[0], w, dims);
}

static void test_products(void **state)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 40}, columns[] = {1, 7, 64, 131, 300}, depths[] = {1, 5, 64, 700};
    (void)state;
    for (int i = 0; i < 6 * 5 * 4 * 8; i++) {
        const int64_t m = rows[i % 6], n = columns[i / 6 % 5], k = depths[i / 30 % 4];
        product p = {.transposed = i / 120 % 2, .first = i / 240 % 2};
        const int64_t dims[2] = {p.transposed ? n : k, p.transposed ? k : n};
        tow_array *x = numbers(2, (int64_t[]){m, k}, 5), *w = numbers(2, dims, 6);
        tow_array *half = converted(w, i / 480 ? TOW_BF16 : TOW_F16), *wide = converted(half, TOW_F32);
        tow_array *found = evaluated(multiply, &p, 2, (tow_array *[]){x, half});
        tow_array *expected = evaluated(multiply, &p, 2, (tow_array *[]){x, wide});
        expect_equal(found, expected);
        tow_array *all[] = {x, w, half, wide, found, expected};
        for (size_t a = 0; a < 6; a++) tow_array_release(all[a]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention), cmocka_unit_test(test_halves),
                                       cmocka_unit_test(test_plans), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_products)};
    return cmocka_run_group_tests(tests, setup_portable, teardown_portable);
}

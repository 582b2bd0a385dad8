/* Primitives: decompositions and derivatives have the types they must, derivatives keep the bytes they should, and are
 * right at the edges of the numbers. The results of primitives are the business of tests/property. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/unit/support/primitive_cases.h"
#include "tow/autodiff.h"
#include "tow/program.h"

/* ---- good cases: decompositions and derivatives ------------------------------------------------------------------ */

typedef struct good_case {
    const char *primitive;
    tow_type in[9];
    size_t n_in, n_out;
    const void *params;
    const char *first; /* type of result 0 */
} good_case;

#define Q T(F32, 2, 4, 6, 3)
#define K T(F32, 2, 5, 2, 3)
#define V T(F32, 2, 5, 2, 7)
#define O T(F32, 2, 4, 6, 7)
#define L T(F32, 2, 6, 4)
#define M T(BOOL, 1, 6, 1, 5)

static const good_case good_cases[] = {
    {"relu", {T(F32, 2, 3)}, 1, 1, NULL, "f32[2,3]"},
    {"silu", {T(F64, 2, 3)}, 1, 1, NULL, "f64[2,3]"},
    {"silu_grad", {T(F32, 2, 3)}, 1, 1, NULL, "f32[2,3]"},
    {"gelu", {T(F32, 3)}, 1, 1, &(tow__gelu_params){true}, "f32[3]"},
    {"gelu", {T(F64, 3)}, 1, 1, &(tow__gelu_params){false}, "f64[3]"},
    {"gelu_grad", {T(F32, 3)}, 1, 1, &(tow__gelu_params){true}, "f32[3]"},
    {"gelu_grad", {T(F32, 3)}, 1, 1, &(tow__gelu_params){false}, "f32[3]"},
    {"softmax", {T(F32, 2, 3, 4)}, 1, 1, &(tow__axis_params){1}, "f32[2,3,4]"},
    {"log_softmax", {T(F64, 2, 3, 4)}, 1, 1, &(tow__axis_params){0}, "f64[2,3,4]"},
    {"logsumexp", {T(F32, 2, 3, 4)}, 1, 1, &(tow__axis_params){1}, "f32[2,4]"},
    {"dropout", {T(F32, 2, 3), T(U32, 2)}, 2, 1, &(tow__dropout_params){0.25, INTS(0)}, "f32[2,3]"},
    {"dropout", {T(F64, 2, 3), T(U32, 2)}, 2, 1, &(tow__dropout_params){1, {0}}, "f64[2,3]"},
    {"random_bits", {T(U32, 2)}, 1, 1, &(tow__shape_params){INTS(3, 0, 2)}, "u32[3,0,2]"},
    {"random_bits", {T(U32, 2)}, 1, 1, &(tow__shape_params){{0}}, "u32[]"},
    {"layer_norm", {T(F32, 2, 3, 4), T(F32, 4), T(F32, 4)}, 3, 3, &(tow__norm_params){1e-6}, "f32[2,3,4]"},
    {"layer_norm", {T(F64, 4), T(F64, 4), T(F64, 4)}, 3, 3, &(tow__norm_params){1e-6}, "f64[4]"},
    {"layer_norm_jvp",
     {T(F32, 2, 4), T(F32, 4), T(F32, 2), T(F32, 2), T(F32, 2, 4), T(F32, 4), T(F32, 4)},
     7,
     1,
     &(tow__norm_ad_params){1e-6, 7},
     "f32[2,4]"},
    {"layer_norm_jvp",
     {T(F32, 2, 4), T(F32, 4), T(F32, 2), T(F32, 2), T(F32, 4)},
     5,
     1,
     &(tow__norm_ad_params){1e-6, 4},
     "f32[2,4]"},
    {"layer_norm_vjp",
     {T(F32, 2, 4), T(F32, 4), T(F32, 2), T(F32, 2), T(F32, 2, 4)},
     5,
     3,
     &(tow__norm_ad_params){1e-6, 7},
     "f32[2,4]"},
    {"layer_norm_vjp",
     {T(F32, 2, 4), T(F32, 4), T(F32, 2), T(F32, 2), T(F32, 2, 4)},
     5,
     1,
     &(tow__norm_ad_params){1e-6, 4},
     "f32[4]"},
    {"rms_norm", {T(F32, 2, 3, 4), T(F32, 4)}, 2, 2, &(tow__norm_params){1e-6}, "f32[2,3,4]"},
    {"rms_norm_jvp",
     {T(F32, 2, 4), T(F32, 4), T(F32, 2), T(F32, 2, 4), T(F32, 4)},
     5,
     1,
     &(tow__norm_ad_params){1e-6, 3},
     "f32[2,4]"},
    {"rms_norm_vjp",
     {T(F32, 2, 4), T(F32, 4), T(F32, 2), T(F32, 2, 4)},
     4,
     2,
     &(tow__norm_ad_params){1e-6, 3},
     "f32[2,4]"},
    {"attention", {Q, K, V}, 3, 2, &(tow__attention_params){true, 0.5}, "f32[2,4,6,7]"},
    {"attention", {Q, K, V, M}, 4, 2, &(tow__attention_params){true, 0.5}, "f32[2,4,6,7]"},
    {"attention_jvp",
     {Q, K, V, O, L, M, Q, K, V},
     9,
     1,
     &(tow__attention_ad_params){.causal = true, .masked = true, .scale = 0.5, .wrt = 7},
     "f32[2,4,6,7]"},
    {"attention_jvp", {Q, K, V, O, L, V}, 6, 1, &(tow__attention_ad_params){.scale = 0.5, .wrt = 4}, "f32[2,4,6,7]"},
    {"attention_vjp",
     {Q, K, V, O, L, M, O},
     7,
     3,
     &(tow__attention_ad_params){.causal = true, .masked = true, .scale = 0.5, .wrt = 7},
     "f32[2,4,6,3]"},
    {"attention_vjp", {Q, K, V, O, L, O}, 6, 1, &(tow__attention_ad_params){.scale = 0.5, .wrt = 2}, "f32[2,5,2,3]"},
    {"softmax_cross_entropy", {T(F32, 2, 3, 5), T(I32, 2, 3)}, 2, 2, NULL, "f32[2,3]"},
    {"linear_cross_entropy",
     {T(F32, 2, 3, 4), T(F32, 4, 7), T(I32, 2, 3)},
     3,
     2,
     &(tow__linear_cross_entropy_params){false},
     "f32[2,3]"},
    {"linear_cross_entropy_jvp",
     {T(F32, 2, 3, 4), T(F32, 7, 4), T(I32, 2, 3), T(F32, 2, 3), T(F32, 2, 3, 4), T(F32, 7, 4)},
     6,
     1,
     &(tow__linear_cross_entropy_ad_params){true, 3},
     "f32[2,3]"},
    {"linear_cross_entropy_vjp",
     {T(F32, 2, 3, 4), T(F32, 7, 4), T(I32, 2, 3), T(F32, 2, 3), T(F32, 2, 3)},
     5,
     2,
     &(tow__linear_cross_entropy_ad_params){true, 3},
     "f32[2,3,4]"},
    {"softmax_cross_entropy_jvp", {T(F32, 2, 5), T(I32, 2), T(F32, 2), T(F32, 2, 5)}, 4, 1, NULL, "f32[2]"},
    {"softmax_cross_entropy_vjp", {T(F32, 2, 5), T(I32, 2), T(F32, 2), T(F32, 2)}, 4, 1, NULL, "f32[2,5]"},
    /* base primitives whose derivatives move axes */
    {"dot_general",
     {T(F32, 2, 3, 4, 5), T(F32, 5, 6, 3, 4)},
     2,
     1,
     &(tow__dot_params){INTS(3, 2), INTS(0, 3), INTS(1), INTS(2)},
     "f32[3,2,6]"},
    {"dot_general",
     {T(F32, 4, 2, 3), T(F32, 2, 7, 4, 3)},
     2,
     1,
     &(tow__dot_params){{0}, {0}, INTS(2, 0), INTS(3, 2)},
     "f32[3,4,2,2,7]"},
    {"dot_general", {T(F32, 3), T(F32, 3)}, 2, 1, &(tow__dot_params){INTS(0), INTS(0), {0}, {0}}, "f32[]"},
    {"broadcast_in_dim", {T(F32, 1, 3)}, 1, 1, &(tow__broadcast_params){INTS(2, 4, 3), INTS(1, 2)}, "f32[2,4,3]"},
    {"transpose", {T(F32, 2, 3, 4)}, 1, 1, &(tow__transpose_params){INTS(2, 0, 1)}, "f32[4,2,3]"},
    {"slice", {T(F32, 9, 4)}, 1, 1, &(tow__slice_params){INTS(1, 2), INTS(9, 2), INTS(3, 1)}, "f32[3,0]"},
    {"slice", {T(F32, 9)}, 1, 1, &(tow__slice_params){INTS(1), INTS(9), INTS(3)}, "f32[3]"},
    {"pad", {T(F32, 4, 3), T0(F32)}, 2, 1, &(tow__pad_params){INTS(-1, 2), INTS(3, -2), INTS(2, 0)}, "f32[12,3]"},
    {"concatenate", {T(F32, 2, 3), T(F32, 2, 0), T(F32, 2, 1)}, 3, 1, &(tow__axis_params){1}, "f32[2,4]"},
    {"gather", {T(F32, 5, 2), T(I32, 3, 4)}, 2, 1, NULL, "f32[3,4,2]"},
    {"scatter_add", {T(I32, 3, 4), T(F32, 3, 4, 2)}, 2, 1, &(tow__rows_params){5}, "f32[5,2]"},
    {"dynamic_slice", {T(F32, 5, 4), T0(I32), T0(I32)}, 3, 1, &(tow__sizes_params){INTS(2, 3)}, "f32[2,3]"},
    {"dynamic_update_slice", {T(F32, 5, 4), T(F32, 2, 3), T0(I32), T0(I32)}, 4, 1, NULL, "f32[5,4]"},
    {"reduce_prod", {T(F32, 2, 5, 3)}, 1, 1, &(tow__axes_params){INTS(0, 2)}, "f32[5]"},
    {"reduce_max", {T(F32, 2, 5, 3)}, 1, 1, &(tow__axes_params){INTS(1)}, "f32[2,3]"},
    {"reduce_sum", {T(F32, 2, 5, 3)}, 1, 1, &(tow__axes_params){INTS(0, 2)}, "f32[5]"},
    {"cumsum", {T(F32, 2, 5)}, 1, 1, &(tow__cumsum_params){1, true}, "f32[2,5]"},
    {"pow", {T(F32, 2), T(F32, 2)}, 2, 1, NULL, "f32[2]"},
    {"clamp", {T(F32, 2), T(F32, 2), T(F32, 2)}, 3, 1, NULL, "f32[2]"},
};

/* The case as a graph of one equation, or as its decomposition. */
static tow_graph *case_graph(tow_context *ctx, const good_case *c, bool decomposed, tow_type *types)
{
    const tow_primitive *p = tow__primitive_find(c->primitive, strlen(c->primitive));
    assert_non_null(p);
    tow_trace *t = tow__trace_begin(ctx);
    tow_value in[9], out[3] = {{0}};
    for (size_t i = 0; i < c->n_in; i++) in[i] = tow__input(t, c->in[i], NULL);
    if (decomposed) {
        tow__equation e = {.primitive = p, .params = c->params, .n_in = (uint32_t)c->n_in, .n_out = (uint32_t)c->n_out};
        p->decompose(t, &e, in, out);
    } else {
        tow__bind(t, p, c->params, c->n_in, in, c->n_out, out);
    }
    for (size_t i = 0; i < c->n_out; i++) types[i] = tow_value_type(out[i]);
    tow_graph *g = NULL;
    if (tow__trace_end(t, c->n_out, out, false, &g) != TOW_OK) fail_msg("%s: %s", c->primitive, tow_context_error(ctx));
    if (tow_graph_check(g) != TOW_OK) fail_msg("%s: %s", c->primitive, tow_context_error(ctx));
    return g;
}

static void assert_same_type(const char *what, tow_type have, tow_type want)
{
    if (!tow_type_equal(have, want))
        fail_msg("%s: %s instead of %s", what, tow__type_name(have).text, tow__type_name(want).text);
}

static void test_decompositions(void **state)
{
    (void)state;
    tow_context *ctx = new_context();
    for (size_t i = 0; i < COUNT(good_cases); i++) {
        const good_case *c = &good_cases[i];
        tow_type bound[3], decomposed[3];
        tow_graph_release(case_graph(ctx, c, false, bound));
        assert_string_equal(tow__type_name(bound[0]).text, c->first);
        if (!tow__primitive_find(c->primitive, strlen(c->primitive))->decompose) continue;
        tow_graph_release(case_graph(ctx, c, true, decomposed));
        for (size_t j = 0; j < c->n_out; j++) assert_same_type(c->primitive, decomposed[j], bound[j]);
    }
    tow_context_free(ctx);
}

/* vjp, and the vjp of its backward graph: both check, and cotangents have the types of the inputs. */
static void check_vjp(tow_context *ctx, const char *what, const tow_graph *g, int depth)
{
    tow_graph *forward = NULL, *backward = NULL;
    if (tow_vjp(g, 0, NULL, &forward, &backward) != TOW_OK)
        fail_msg("%s, derivative %d: %s", what, 3 - depth, tow_context_error(ctx));
    if (tow_graph_check(forward) != TOW_OK || tow_graph_check(backward) != TOW_OK)
        fail_msg("%s, derivative %d: %s", what, 3 - depth, tow_context_error(ctx));
    size_t next = 0;
    for (size_t i = 0; i < tow_graph_input_count(g); i++)
        if (tow_dtype_is_float(tow_graph_input_type(g, i).dtype))
            assert_same_type(what, tow_graph_output_type(backward, next++), tow_graph_input_type(g, i));
    assert_int_equal(next, tow_graph_output_count(backward));
    if (depth > 1) check_vjp(ctx, what, backward, depth - 1);
    tow_graph_release(forward);
    tow_graph_release(backward);
}

static void test_derivatives(void **state)
{
    (void)state;
    tow_context *ctx = new_context();
    for (size_t i = 0; i < COUNT(good_cases); i++) {
        const good_case *c = &good_cases[i];
        tow_type types[3];
        if (strcmp(c->primitive, "random_bits") == 0) continue;
        tow_graph *g = case_graph(ctx, c, false, types);
        check_vjp(ctx, c->primitive, g, 2);
        tow_graph_release(g);
    }
    tow_context_free(ctx);
}

/* ---- residuals: bytes kept by one primitive on 10 floats, as docs/residuals.md says ------------------------------ */

typedef struct kept_case {
    tow_value (*unary)(tow_value);
    const char *name;
    size_t bytes;
} kept_case;

static tow_value gelu(tow_value x) { return tow_gelu(x); }
static tow_value softmax(tow_value x) { return tow_softmax(x, 0); }
static tow_value log_softmax(tow_value x) { return tow_log_softmax(x, 0); }
static tow_value logsumexp(tow_value x) { return tow_logsumexp(x, 0); }
static tow_value max_zero(tow_value x) { return tow_max(x, tow_zeros_like(x)); }
static tow_value reciprocal(tow_value x) { return tow_div(tow_full_like(x, 2), x); }
static tow_value clamp(tow_value x) { return tow_clamp(tow_full_like(x, -1), x, tow_full_like(x, 1)); }
static tow_value where_positive(tow_value x) { return tow_where(tow_gt(x, tow_zeros_like(x)), x, tow_zeros_like(x)); }
static tow_value cube(tow_value x) { return tow_integer_pow(x, 3); }
static tow_value largest(tow_value x) { return tow_reduce_max(x, 0, NULL); }
static tow_value product(tow_value x) { return tow_reduce_prod(x, 0, NULL); }

static const kept_case kept_cases[] = {
    {tow_neg, "neg", 0},
    {tow_abs, "abs", 10},
    {tow_exp, "exp", 40},
    {tow_expm1, "expm1", 40},
    {tow_log, "log", 40},
    {tow_log1p, "log1p", 40},
    {tow_sqrt, "sqrt", 40},
    {tow_rsqrt, "rsqrt", 40},
    {tow_sin, "sin", 40},
    {tow_cos, "cos", 40},
    {tow_tanh, "tanh", 40},
    {tow_logistic, "logistic", 40},
    {tow_erf, "erf", 40},
    {tow_erf_inv, "erf_inv", 40},
    {tow_relu, "relu", 10},
    {tow_silu, "silu", 40},
    {gelu, "gelu", 40},
    {tow_square, "square", 40},
    {cube, "integer_pow", 40},
    {softmax, "softmax", 40},
    {log_softmax, "log_softmax", 40},
    {logsumexp, "logsumexp", 40},
    {max_zero, "max", 20},
    {reciprocal, "div", 40},
    {clamp, "clamp", 10},
    {where_positive, "select", 10},
    {largest, "reduce_max", 10},
    {product, "reduce_prod", 40},
    {tow_stop_gradient, "stop_gradient", 0},
    {tow_floor, "floor", 0},
};

static void apply_unary(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = ((const kept_case *)user)->unary(in[0]);
}

static void test_residuals(void **state)
{
    (void)state;
    tow_context *ctx = new_context();
    tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){10});
    for (size_t i = 0; i < COUNT(kept_cases); i++) {
        kept_case c = kept_cases[i];
        tow_graph *g = NULL;
        tow_residuals kept;
        assert_int_equal(tow_trace_function(ctx, apply_unary, &c, 1, &type, NULL, 1, &g), TOW_OK);
        assert_int_equal(tow_saved_residuals(g, 0, NULL, &kept), TOW_OK);
        if (kept.bytes != c.bytes) fail_msg("%s keeps %zu bytes, expected %zu", c.name, kept.bytes, c.bytes);
        tow_residuals_free(&kept);
        tow_graph_release(g);
    }
    tow_context_free(ctx);
}

/* ---- derivatives at the edges of the numbers --------------------------------------------------------------------- */

static void sum_of_extrema(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = tow_reduce_sum(*(const bool *)user ? tow_max(in[0], in[1]) : tow_min(in[0], in[1]), 0, NULL);
}

static void sum_of_rsqrt(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_reduce_sum(tow_rsqrt(in[0]), 0, NULL);
}

/* Gradients of a function of n_in arrays of n elements. */
static void gradients(tow_context *ctx, tow_function function, void *user, size_t n_in, const float *x, size_t n,
                      float *found)
{
    tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){(int64_t)n}), types[2] = {type, type};
    const size_t wrt[] = {0, 1};
    tow_graph *g = NULL, *gradient = NULL;
    tow_array *in[2], *out[2];
    assert_int_equal(tow_trace_function(ctx, function, user, n_in, types, NULL, 1, &g), TOW_OK);
    assert_int_equal(tow_grad(g, n_in, wrt, false, &gradient), TOW_OK);
    for (size_t i = 0; i < n_in; i++) {
        assert_int_equal(tow_array_create(ctx, type, &in[i]), TOW_OK);
        memcpy(tow_array_data(in[i]), x + i * n, n * sizeof *x);
    }
    assert_int_equal(tow_evaluate(gradient, in, out), TOW_OK);
    for (size_t i = 0; i < n_in; i++) {
        memcpy(found + i * n, tow_array_data(out[i]), n * sizeof *x);
        tow_array_release(in[i]);
        tow_array_release(out[i]);
    }
    tow_graph_release(gradient);
    tow_graph_release(g);
}

static void test_edges(void **state)
{
    (void)state;
    tow_context *ctx = new_context();
    /* JAX: an operand gets the gradient where it equals the result, half of it at a tie, and NaN equals nothing */
    const float pairs[2][6] = {{1, 2, 3, NAN, 1, NAN}, {2, 1, 3, 1, NAN, NAN}};
    const float expected[2][2][6] = {{{1, 0, 0.5f, 0, 0, 0}, {0, 1, 0.5f, 0, 0, 0}},  /* min */
                                     {{0, 1, 0.5f, 0, 0, 0}, {1, 0, 0.5f, 0, 0, 0}}}; /* max */
    for (int which = 0; which < 2; which++) {
        float found[2][6];
        bool greatest = which == 1;
        gradients(ctx, sum_of_extrema, &greatest, 2, pairs[0], 6, found[0]);
        assert_memory_equal(found, expected[which], sizeof found);
    }
    /* -x^-1.5/2 is finite down to 1.3e-26; x^-1.5 is not from 2e-26 on */
    const float small[] = {1e-20f, 2.1e-26f, 1.9e-26f, 1.4e-26f};
    float found[4];
    gradients(ctx, sum_of_rsqrt, NULL, 1, small, 4, found);
    for (int i = 0; i < 4; i++) {
        double slope = -0.5 * pow(small[i], -1.5);
        if (!(fabs(found[i] - slope) <= 1e-6 * fabs(slope)))
            fail_msg("rsqrt at %g: expected the slope %g, found %g", (double)small[i], slope, (double)found[i]);
    }
    tow_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decompositions),
        cmocka_unit_test(test_derivatives),
        cmocka_unit_test(test_residuals),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

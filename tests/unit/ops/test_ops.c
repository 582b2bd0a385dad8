/* Primitives: the table, the messages of type rules and of public operations. Decompositions and derivatives are tested
 * in test_ops_derivatives.c; what primitives compute is the business of tests/property.
 * Tests names.c, rules.c, source.c, table.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/primitive_cases.h"

/* ---- table ------------------------------------------------------------------------------------------------------- */

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < tow__primitive_count; i++) {
        const tow_primitive *p = tow__primitives[i];
        if (i > 0) assert_true(strcmp(tow__primitives[i - 1]->name, p->name) < 0);
        assert_ptr_equal(tow__primitive_find(p->name, strlen(p->name)), p);
        assert_non_null(p->type);
        assert_true((p->params_size == 0) == (p->params == NULL));
        for (const tow__param *f = p->params; f && f->name; f++) assert_true(f->offset < p->params_size);
    }
    assert_null(tow__primitive_find("ex", 2));
    assert_null(tow__primitive_find("expm", 4));
    assert_null(tow__primitive_find("", 0));
    assert_null(tow__primitive_find("zzz", 3));
    assert_string_equal(tow__primitive_find("expm1", 3)->name, "exp");
}

/* ---- messages of type rules -------------------------------------------------------------------------------------- */

typedef struct bad_case {
    const char *primitive;
    tow_type in[5];
    size_t n_in, n_out;
    const void *params;
    tow_status status;
    const char *says; /* part of the message */
} bad_case;

static const bad_case bad_cases[] = {
    {"add", {T(F32, 2, 3), T(F32, 4)}, 2, 1, NULL, TOW_SHAPE_MISMATCH, "f32[2,3] and f32[4]"},
    {"add", {T(F32, 2), T(F64, 2)}, 2, 1, NULL, TOW_TYPE_MISMATCH, "tow_convert"},
    {"add", {T(BOOL, 2), T(BOOL, 2)}, 2, 1, NULL, TOW_TYPE_MISMATCH, "bool[2]"},
    {"exp", {T(I32, 2)}, 1, 1, NULL, TOW_TYPE_MISMATCH, "f32, f64"},
    {"not", {T(F32, 2)}, 1, 1, NULL, TOW_TYPE_MISMATCH, "i32, u32, bool"},
    {"select", {T(F32, 2), T(F32, 2), T(F32, 2)}, 3, 1, NULL, TOW_TYPE_MISMATCH, "bool"},
    {"select", {T(BOOL, 3), T(F32, 2), T(F32, 2)}, 3, 1, NULL, TOW_SHAPE_MISMATCH, "bool[3] and f32[2]"},
    {"bitcast", {T(F64, 2)}, 1, 1, &(tow__dtype_params){TOW_U32}, TOW_TYPE_MISMATCH, "one size in bytes"},
    {"reduce_sum",
     {T(F32, 2, 3)},
     1,
     1,
     &(tow__axes_params){INTS(2)},
     TOW_INVALID_ARGUMENT,
     "axis 2 is outside [0, 2)"},
    {"reduce_sum", {T(F32, 2, 3)}, 1, 1, &(tow__axes_params){INTS(1, 0)}, TOW_INVALID_ARGUMENT, "increase"},
    {"argmax", {T(F32, 0)}, 1, 1, &(tow__axis_params){0}, TOW_SHAPE_MISMATCH, "1 to 2^31 - 1"},
    {"dot_general",
     {T(F32, 2, 3), T(F32, 4, 5)},
     2,
     1,
     &(tow__dot_params){.lhs_contract = INTS(1), .rhs_contract = INTS(0)},
     TOW_SHAPE_MISMATCH,
     "found 3 and 4"},
    {"dot_general",
     {T(F32, 2, 3), T(F32, 3, 5)},
     2,
     1,
     &(tow__dot_params){.lhs_contract = INTS(1), .rhs_contract = INTS(0), .lhs_batch = INTS(1), .rhs_batch = INTS(1)},
     TOW_INVALID_ARGUMENT,
     "named twice"},
    {"dot_general",
     {T(F32, 2, 3), T(F32, 3, 5)},
     2,
     1,
     &(tow__dot_params){.lhs_contract = INTS(1)},
     TOW_INVALID_ARGUMENT,
     "pairs"},
    {"dot_general",
     {T(BOOL, 2), T(BOOL, 2)},
     2,
     1,
     &(tow__dot_params){.lhs_contract = INTS(0), .rhs_contract = INTS(0)},
     TOW_TYPE_MISMATCH,
     "f32, f64"},
    {"dot_general",
     {T(I8, 3), T(I8, 3)},
     2,
     1,
     &(tow__dot_params){.preferred = 1 + TOW_U32},
     TOW_TYPE_MISMATCH,
     "same sign"},
    {"dot_general",
     {T(F32, 3), T(F32, 3)},
     2,
     1,
     &(tow__dot_params){.preferred = 1 + TOW_BF16},
     TOW_TYPE_MISMATCH,
     "preferred=bf16"},
    {"dot_general",
     {T(F32, 3), T(F32, 3)},
     2,
     1,
     &(tow__dot_params){.preferred = 1 + TOW_I64},
     TOW_TYPE_MISMATCH,
     "a float"},
    {"dot_general",
     {T(BF16, 3), T(F16, 3)},
     2,
     1,
     &(tow__dot_params){.preferred = 1 + TOW_F32},
     TOW_TYPE_MISMATCH,
     "one element type"},
    {"dot_general",
     {T(BF16, 3), T(F32, 3)},
     2,
     1,
     &(tow__dot_params){.preferred = 0},
     TOW_TYPE_MISMATCH,
     "one element type"},
    {"reshape", {T(F32, 2, 3)}, 1, 1, &(tow__shape_params){INTS(4)}, TOW_SHAPE_MISMATCH, "6 elements"},
    {"reshape", {T(F32, 2, 3)}, 1, 1, &(tow__shape_params){INTS(-6)}, TOW_INVALID_ARGUMENT, "no array type"},
    {"transpose", {T(F32, 2, 3)}, 1, 1, &(tow__transpose_params){INTS(0, 0)}, TOW_INVALID_ARGUMENT, "once"},
    {"broadcast_in_dim",
     {T(F32, 2)},
     1,
     1,
     &(tow__broadcast_params){INTS(3, 4), INTS(1)},
     TOW_SHAPE_MISMATCH,
     "size 4 or 1"},
    {"broadcast_in_dim",
     {T(F32, 3, 4)},
     1,
     1,
     &(tow__broadcast_params){INTS(4, 3), INTS(1, 0)},
     TOW_INVALID_ARGUMENT,
     "increase"},
    {"slice", {T(F32, 5)}, 1, 1, &(tow__slice_params){INTS(2), INTS(6), INTS(1)}, TOW_INVALID_ARGUMENT, "limit 6"},
    {"slice", {T(F32, 5)}, 1, 1, &(tow__slice_params){INTS(2), INTS(4), INTS(0)}, TOW_INVALID_ARGUMENT, "stride 0"},
    {"pad", {T(F32, 2), T0(F32)}, 2, 1, &(tow__pad_params){INTS(-3), INTS(0), INTS(0)}, TOW_INVALID_ARGUMENT, "low -3"},
    {"pad", {T(F32, 2), T0(I32)}, 2, 1, &(tow__pad_params){INTS(0), INTS(0), INTS(0)}, TOW_TYPE_MISMATCH, "f32[]"},
    {"pad",
     {T(F32, 4), T0(F32)},
     2,
     1,
     &(tow__pad_params){INTS(INT64_MAX), INTS(INT64_MAX), INTS(INT64_MAX)},
     TOW_INVALID_ARGUMENT,
     "2^60"},
    {"pad",
     {T(F32, 4), T0(F32)},
     2,
     1,
     &(tow__pad_params){INTS(INT64_MIN), INTS(INT64_MIN), INTS(0)},
     TOW_INVALID_ARGUMENT,
     "2^60"},
    {"pad",
     {T(F32, 4), T0(F32)},
     2,
     1,
     &(tow__pad_params){INTS(0), INTS(0), INTS(INT64_C(1) << 59)},
     TOW_INVALID_ARGUMENT,
     "2^60"},
    {"concatenate", {T(F32, 2, 3), T(F32, 2, 4)}, 2, 1, &(tow__axis_params){0}, TOW_SHAPE_MISMATCH, "axis 0 only"},
    {"gather", {T(F32, 5, 2), T(F32, 3)}, 2, 1, NULL, TOW_TYPE_MISMATCH, "i32, u32"},
    {"gather", {T0(F32), T(I32, 3)}, 2, 1, NULL, TOW_SHAPE_MISMATCH, "leading axis"},
    {"scatter_add", {T(I32, 3), T(F32, 4, 2)}, 2, 1, &(tow__rows_params){5}, TOW_SHAPE_MISMATCH, "i32[3]"},
    {"index_add", {T(F32, 5, 2), T(I32, 3), T(F32, 4, 2)}, 3, 1, NULL, TOW_SHAPE_MISMATCH, "i32[3]"},
    {"index_add", {T(F32, 5, 2), T(I32, 3), T(F32, 3, 4)}, 3, 1, NULL, TOW_SHAPE_MISMATCH, "rows of the operand"},
    {"index_add", {T(F32, 5, 2), T(I32, 3), T(F64, 3, 2)}, 3, 1, NULL, TOW_SHAPE_MISMATCH, "rows of the operand"},
    {"index_add", {T(F32, 5, 2), T(F32, 3), T(F32, 3, 2)}, 3, 1, NULL, TOW_TYPE_MISMATCH, "i32, u32"},
    {"dynamic_slice", {T(F32, 5), T0(I32)}, 2, 1, &(tow__sizes_params){INTS(6)}, TOW_SHAPE_MISMATCH, "size 6"},
    {"dynamic_slice", {T(F32, 5)}, 1, 1, &(tow__sizes_params){INTS(2)}, TOW_INVALID_ARGUMENT, "expected 2 operands"},
    {"dynamic_update_slice", {T(F32, 5), T(F64, 2), T0(I32)}, 3, 1, NULL, TOW_SHAPE_MISMATCH, "f64[2]"},
    {"random_bits", {T(U32, 3)}, 1, 1, &(tow__shape_params){INTS(4)}, TOW_TYPE_MISMATCH, "u32[2]"},
    {"random_bits", {T(U32, 2)}, 1, 1, &(tow__shape_params){INTS(65536, 65537)}, TOW_UNSUPPORTED, "2^32"},
    {"threefry2x32", {T(U32, 2), T(U32, 2), T(U32, 2), T(U32, 3)}, 4, 2, NULL, TOW_SHAPE_MISMATCH, "u32[3]"},
    {"name", {T(F32, 2)}, 1, 1, &(tow__name_params){""}, TOW_INVALID_ARGUMENT, "empty"},
    {"call", {T(F32, 2)}, 1, 1, &(tow__call_params){NULL, "f"}, TOW_INVALID_ARGUMENT, "no body"},
    {"iota", {{0}}, 0, 1, &(tow__iota_params){TOW_I32, INTS(3), 1}, TOW_INVALID_ARGUMENT, "axis 1"},
    {"dropout", {T(F32, 2), T(U32, 2)}, 2, 1, &(tow__dropout_params){1.5, {0}}, TOW_INVALID_ARGUMENT, "1.5"},
    {"softmax", {T(F32, 2)}, 1, 1, &(tow__axis_params){1}, TOW_INVALID_ARGUMENT, "axis 1"},
    {"layer_norm",
     {T(F32, 2, 3), T(F32, 2), T(F32, 3)},
     3,
     3,
     &(tow__norm_params){1e-6},
     TOW_SHAPE_MISMATCH,
     "scale must be f32[3]"},
    {"layer_norm_vjp",
     {T(F32, 2, 3), T(F32, 3), T(F32, 2), T(F32, 2)},
     4,
     1,
     &(tow__norm_ad_params){1e-6, 1},
     TOW_INVALID_ARGUMENT,
     "expected 5 operands"},
    {"attention",
     {T(F32, 1, 4, 6, 2), T(F32, 1, 5, 4, 2), T(F32, 1, 5, 4, 3)},
     3,
     2,
     &(tow__attention_params){false, 1},
     TOW_SHAPE_MISMATCH,
     "4 groups must divide the 6 heads"},
    {"attention",
     {T(F32, 1, 4, 6, 2), T(F32, 1, 5, 2, 2), T(F32, 1, 5, 2, 3), T(BOOL, 1, 1, 5, 5)},
     4,
     2,
     &(tow__attention_params){false, 1},
     TOW_SHAPE_MISMATCH,
     "bool[1,6,4,5]"},
    {"attention",
     {T(F32, 2, 4, 6, 2), T(F32, 2, 5, 2, 2), T(F32, 2, 5, 2, 3), T(F32, 2, 6, 4, 4)},
     4,
     2,
     &(tow__attention_params){false, 1},
     TOW_SHAPE_MISMATCH,
     "the bias must be f32[2,6,4,5]"},
    {"attention",
     {T(F32, 2, 4, 6, 2), T(F32, 2, 5, 2, 2), T(F32, 2, 5, 2, 3), T(I32, 3)},
     4,
     2,
     &(tow__attention_params){false, 1},
     TOW_SHAPE_MISMATCH,
     "the offset must be i32[] or i32[2]"},
    {"attention",
     {T(F32, 2, 4, 6, 2), T(F32, 2, 5, 2, 2), T(F32, 2, 5, 2, 3)},
     3,
     2,
     &(tow__attention_params){.scale = 1, .window = -1},
     TOW_INVALID_ARGUMENT,
     "cap and window must not be negative"},
    {"attention",
     {T(F32, 2, 4, 6, 2), T(F32, 2, 5, 2, 2), T(F32, 2, 5, 2, 3)},
     3,
     2,
     &(tow__attention_params){.scale = 1, .cap = -2},
     TOW_INVALID_ARGUMENT,
     "cap and window must not be negative"},
    {"softmax_cross_entropy", {T(F32, 2, 3), T(I32, 3)}, 2, 2, NULL, TOW_SHAPE_MISMATCH, "i32[2]"},
    {"linear_cross_entropy",
     {T(F32, 2, 3), T(F32, 5, 3), T(I32, 2)},
     3,
     2,
     &(tow__linear_cross_entropy_params){false},
     TOW_SHAPE_MISMATCH,
     "w [C, V] with some classes"},
    {"linear_cross_entropy",
     {T(F32, 2, 3), T(F32, 5, 3), T(I32, 3)},
     3,
     2,
     &(tow__linear_cross_entropy_params){true},
     TOW_SHAPE_MISMATCH,
     "labels must be i32[2]"},
    {"linear_cross_entropy",
     {T(F32, 2, 3), T(F64, 5, 3), T(I32, 2)},
     3,
     2,
     &(tow__linear_cross_entropy_params){true},
     TOW_TYPE_MISMATCH,
     "one element type"},
    {"linear_cross_entropy_vjp",
     {T(F32, 2, 3), T(F32, 5, 3), T(I32, 2), T(F32, 3), T(F32, 2)},
     5,
     1,
     &(tow__linear_cross_entropy_ad_params){true, 1},
     TOW_SHAPE_MISMATCH,
     "log-sum-exp must be f32[2]"},
    {"linear_cross_entropy_vjp",
     {T(F32, 2, 3), T(F32, 5, 3), T(I32, 2), T(F32, 2), T(F32, 2)},
     5,
     1,
     &(tow__linear_cross_entropy_ad_params){true, 1, 4},
     TOW_INVALID_ARGUMENT,
     "the classes of the whole of which w f32[5,3] is a block"},
    {"linear_cross_entropy_parts",
     {T(F32, 2, 3), T(F32, 5, 3), T(I32, 2)},
     3,
     1,
     &(tow__linear_cross_entropy_parts_params){true, 4},
     TOW_INVALID_ARGUMENT,
     "is a block, at most 2147483647, found 4"},
    {"linear_cross_entropy_join",
     {T(F32, 2, 1, 3), T(I32, 3)},
     2,
     2,
     NULL,
     TOW_SHAPE_MISMATCH,
     "parts [..., tiles, 3] and labels [...]"},
};

static void test_messages(void **state)
{
    (void)state;
    tow_context *ctx = new_context();
    for (size_t i = 0; i < COUNT(bad_cases); i++) {
        const bad_case *c = &bad_cases[i];
        const tow_primitive *p = tow__primitive_find(c->primitive, strlen(c->primitive));
        assert_non_null(p);
        tow_type out[3];
        tow__typing ty = {.ctx = ctx,
                          .name = p->name,
                          .params = c->params,
                          .n_in = c->n_in,
                          .in = c->in,
                          .n_out = c->n_out,
                          .out = out};
        tow_context_clear_error(ctx);
        tow_status status = p->type(&ty);
        if (status != c->status || !strstr(tow_context_error(ctx), c->says))
            fail_msg("%s, case %zu: status %s, message \"%s\", expected \"%s\"", c->primitive, i,
                     tow_status_text(status), tow_context_error(ctx), c->says);
    }
    tow_context_free(ctx);
}

/* ---- public operations: bad arguments stick with the line, null values pass through ------------------------------ */

static void bad_axis(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    tow_value wrong = tow_reduce_sum(tow_at(in[0], "model.c:7"), 1, (int[]){2});
    assert_true(tow_is_null(wrong));
    assert_true(tow_is_null(tow_add(wrong, in[0])));
    assert_true(tow_is_null(tow_softmax(wrong, 0)));
    assert_true(tow_is_null(tow_matmul(in[0], wrong)));
    out[0] = tow_tanh(wrong);
}

static void bad_reshape(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_reshape(in[0], 2, (int64_t[]){-1, 4});
}

/* user: {dtype, value} */
typedef struct constant_case {
    tow_dtype dtype;
    double value;
    bool fits;
} constant_case;

static void constant(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)in;
    const constant_case *c = user;
    out[0] = tow_full(t, tow_make_type(c->dtype, 1, (int64_t[]){2}), c->value);
}

static void half_of_integers(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_mul_scalar(tow_at(tow_convert(in[0], TOW_I32), "model.c:9"), 0.5);
}

static void mean_of_integers(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = tow_mean(tow_at(tow_convert(in[0], TOW_I32), "model.c:11"), 0, NULL);
}

static void negative_axes(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    tow_value x = tow_reduce_sum(in[0], 2, (int[]){-1, 0}); /* [3] */
    out[0] = tow_expand_dims(tow_squeeze(tow_expand_dims(x, -1), -1), 0);
}

static void test_public(void **state)
{
    (void)state;
    tow_context *ctx = new_context();
    tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){2, 3}),
             cube3 = tow_make_type(TOW_F32, 3, (int64_t[]){2, 3, 5});
    tow_graph *g = NULL;
    assert_int_equal(tow_trace_function(ctx, bad_axis, NULL, 1, &type, NULL, 1, &g), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "model.c:7: reduce_sum: axis 2 is outside [-2, 2)"));
    assert_int_equal(tow_trace_function(ctx, bad_reshape, NULL, 1, &type, NULL, 1, &g), TOW_SHAPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "6 elements"));
    assert_int_equal(tow_trace_function(ctx, half_of_integers, NULL, 1, &type, NULL, 1, &g), TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "0.5 is not a number of type i32"));
    assert_int_equal(tow_trace_function(ctx, mean_of_integers, NULL, 1, &type, NULL, 1, &g), TOW_TYPE_MISMATCH);
    assert_non_null(strstr(tow_context_error(ctx), "model.c:11: mean: i32[2,3] has no mean"));
    constant_case constants[] = {{TOW_I32, 1.5, false},         {TOW_I32, 0x1p31, false}, {TOW_I32, -0x1p31, true},
                                 {TOW_I32, 0x1p31 - 1, true},   {TOW_I32, NAN, false},    {TOW_I32, -INFINITY, false},
                                 {TOW_U32, 0x1p32 - 1, true},   {TOW_U32, -1, true},      {TOW_U32, 0x1p32, false},
                                 {TOW_U32, -0x1p31 - 1, false}, {TOW_F32, 1e300, true},   {TOW_BOOL, 0.5, true}};
    for (size_t i = 0; i < COUNT(constants); i++) {
        tow_status expected = constants[i].fits ? TOW_OK : TOW_INVALID_ARGUMENT;
        assert_int_equal(tow_trace_function(ctx, constant, &constants[i], 0, NULL, NULL, 1, &g), expected);
        tow_graph_release(g);
    }
    assert_int_equal(tow_trace_function(ctx, negative_axes, NULL, 1, &cube3, NULL, 1, &g), TOW_OK);
    assert_string_equal(tow__type_name(tow_graph_output_type(g, 0)).text, "f32[1,3]");
    tow_graph_release(g);
    tow_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_public),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

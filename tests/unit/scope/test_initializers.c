/* Initializers against jax.nn.initializers (tests/oracle/initializers_golden.py): bits, but for orthogonal ones, which
 * are close to JAX's and orthonormal; one's own; errors with the path of the parameter; allocations that fail. Tests
 * initializers.c, draws.c, orthogonal.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/scope/initializers.h"
#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/shape_text.h"
#include "tow/tow.h"

/* ---- golden files ------------------------------------------------------------------------------------------------ */

#define LIST(...)                                                                                                      \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define FAN(init, n_i, i, n_o, o, n_b, b)                                                                              \
    tow_initializer_with_fan_axes(                                                                                     \
        init, &(tow_fan_axes){.n_in = n_i, .in = i, .n_out = n_o, .out = o, .n_batch = n_b, .batch = b})

static bool find_case(const char *name, tow_initializer *init)
{
    const struct {
        const char *name;
        tow_initializer init;
    } cases[] = {
        {"constant", tow_initializer_constant(0.1)},
        {"normal", tow_initializer_normal(0.02)},
        {"uniform", tow_initializer_uniform(0.3)},
        {"truncated", tow_initializer_truncated_normal(0.7)},
        {"truncated_scalar", tow_initializer_truncated_normal_with(0.7, -2, 2)},
        {"truncated_upper", tow_initializer_truncated_normal_with(0.5, 0.25, 3)},
        {"truncated_narrow", tow_initializer_truncated_normal_with(1, -0.1, 0.05)},
        {"truncated_tail", tow_initializer_truncated_normal_with(1, 2, 2.5)},
        {"truncated_far", tow_initializer_truncated_normal_with(1, -5.35, 5.2)},
        {"truncated_farther", tow_initializer_truncated_normal_with(1, -5.0, 5.45)},
        {"truncated_below", tow_initializer_truncated_normal_with(2, -(double)INFINITY, -1)},
        {"truncated_open", tow_initializer_truncated_normal_with(0.1, -(double)INFINITY, (double)INFINITY)},
        {"lecun_normal", tow_initializer_lecun_normal()},
        {"lecun_conv", tow_initializer_lecun_normal()},
        {"he_uniform", tow_initializer_he_uniform()},
        {"glorot_normal", tow_initializer_glorot_normal()},
        {"geo", tow_initializer_variance_scaling(0.7, TOW_FAN_GEO_AVG, TOW_NORMAL)},
        {"fan_out_uniform", tow_initializer_variance_scaling(0.5, TOW_FAN_OUT, TOW_UNIFORM)},
        {"axes_in_0", FAN(tow_initializer_lecun_normal(), 1, LIST(0), 1, LIST(1), 0, LIST(0))},
        {"axes_in_01", FAN(tow_initializer_lecun_uniform(), 2, LIST(0, 1), 1, LIST(2), 0, LIST(0))},
        {"axes_batch",
         FAN(tow_initializer_variance_scaling(1, TOW_FAN_IN, TOW_NORMAL), 0, LIST(0), 0, LIST(0), 1, LIST(0))},
        {"axes_batches",
         FAN(tow_initializer_variance_scaling(1, TOW_FAN_OUT, TOW_NORMAL), 1, LIST(-1), 1, LIST(-2), 2, LIST(0, 1))},
        {"axes_all", FAN(tow_initializer_glorot_uniform(), 1, LIST(2), 2, LIST(0, -1), 1, LIST(1))},
        {"axes_vector", FAN(tow_initializer_lecun_normal(), 1, LIST(0), 0, LIST(0), 0, LIST(0))},
        {"orthogonal", tow_initializer_orthogonal(1, -1)},
        {"orthogonal_tall", tow_initializer_orthogonal(2.5, -1)},
        {"orthogonal_wide", tow_initializer_orthogonal(1, -1)},
        {"orthogonal_one", tow_initializer_orthogonal(-0.5, -1)},
        {"orthogonal_row", tow_initializer_orthogonal(1, -1)},
        {"orthogonal_column", tow_initializer_orthogonal(1, -1)},
        {"orthogonal_conv", tow_initializer_orthogonal(1, -1)},
        {"orthogonal_axis_0", tow_initializer_orthogonal(1.5, 0)},
        {"orthogonal_axis_1", tow_initializer_orthogonal(1, -2)},
        {"orthogonal_large", tow_initializer_orthogonal(1, -1)},
        {"delta_3", tow_initializer_delta_orthogonal(1, -1)},
        {"delta_4", tow_initializer_delta_orthogonal(2, -1)},
        {"delta_5", tow_initializer_delta_orthogonal(1, -2)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, name) == 0) {
            *init = cases[i].init;
            return true;
        }
    return false;
}

static tow_dtype dtype_called(const char *name)
{
    int dtype = 0;
    while (strcmp(tow_dtype_name((tow_dtype)dtype), name) != 0) assert_true(++dtype < TOW_DTYPE_END);
    return (tow_dtype)dtype;
}

static tow_type read_type(const char *dtype, const char *shape)
{
    tow_type type = tow_make_type(dtype_called(dtype), 0, NULL);
    if (strcmp(shape, "scalar") == 0) return type;
    for (const char *s = shape; s; s = strchr(s, 'x') ? strchr(s, 'x') + 1 : NULL) type.dims[type.rank++] = atoll(s);
    return type;
}

/* A part that is made alone has the bits of the whole. */
static void compare_part(const tow_initializer *init, const uint32_t key[2], const tow_array *whole)
{
    const tow_type type = tow_array_type(whole);
    const int64_t n = tow_type_element_count(type), first = n / 3, count = n / 2;
    const size_t size = tow_dtype_size(type.dtype);
    char *part = malloc((size_t)n * size + 1);
    assert_non_null(part);
    OK(tow__initialize_part(ctx, init, type, key, first, count, part));
    assert_memory_equal(part, (const char *)tow_array_data(whole) + (size_t)first * size, (size_t)count * size);
    free(part);
}

static tow_array *initialized(const tow_initializer *init, tow_type type)
{
    tow_array *array;
    uint32_t key[2];
    OK(tow_array_create(ctx, type, &array));
    tow_random_host_key(11, key);
    OK(tow__initialize(ctx, init, type, key, tow_array_data(array)));
    compare_part(init, key, array);
    return array;
}

static double element(const tow_array *array, int64_t i)
{
    const void *data = tow_array_data(array);
    return tow_array_type(array).dtype == TOW_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static uint64_t fnv1a(const void *data, size_t size)
{
    uint64_t h = 0xCBF29CE484222325U;
    for (size_t i = 0; i < size; i++) h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001B3U;
    return h;
}

static void compare_bits(FILE *file, const char *name, const char *dtype, const tow_array *array)
{
    tow_type type = tow_array_type(array);
    size_t size = tow_dtype_size(type.dtype);
    unsigned long long hash, word, found = 0;
    assert_int_equal(fscanf(file, "%llx", &hash), 1);
    for (int64_t i = 0; i < 4 && i < tow_type_element_count(type); i++) {
        assert_int_equal(fscanf(file, "%llx", &word), 1);
        memcpy(&found, (const char *)tow_array_data(array) + (size_t)i * size, size);
        if (found != word) fail_msg("%s %s[%d]: expected %llx, found %llx", name, dtype, (int)i, word, found);
    }
    if (fnv1a(tow_array_data(array), tow_type_bytes(type)) != hash)
        fail_msg("%s %s: values differ after the first four", name, dtype);
}

/* LAPACK's f32 has errors of a few units in the last place of 1. */
static void compare_values(FILE *file, const char *name, const char *dtype, const tow_array *array)
{
    double limit = tow_array_type(array).dtype == TOW_F64 ? 1e-14 : 1e-6, expected;
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(array)); i++) {
        assert_int_equal(fscanf(file, "%lf", &expected), 1);
        if (!(fabs(element(array, i) - expected) <= limit * 2.5))
            fail_msg("%s %s[%d]: expected %.9g, found %.9g", name, dtype, (int)i, expected, element(array, i));
    }
}

static void test_golden(void **state)
{
    (void)state;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/initializers.txt", "r");
    char how[8], name[64], dtype[8], shape[64];
    int lines = 0;
    assert_non_null(file);
    for (; fscanf(file, "%7s %63s %7s %63s", how, name, dtype, shape) == 4; lines++) {
        tow_initializer init;
        if (!find_case(name, &init)) fail_msg("no case %s", name);
        tow_array *array = initialized(&init, read_type(dtype, shape));
        (strcmp(how, "bits") == 0 ? compare_bits : compare_values)(file, name, dtype, array);
        tow_array_release(array);
    }
    assert_true(feof(file));
    assert_int_equal(lines, 122);
    fclose(file);
}

/* ---- orthonormality ---------------------------------------------------------------------------------------------- */

/* Rows or columns of [m, n], whichever are fewer, times `scale`. */
static void check_orthonormal(const tow_array *array, int64_t m, int64_t n, double scale, double limit)
{
    bool columns = n <= m;
    int64_t k = columns ? n : m, length = columns ? m : n;
    for (int64_t a = 0; a < k; a++)
        for (int64_t b = 0; b <= a; b++) {
            double sum = 0;
            for (int64_t i = 0; i < length; i++)
                sum +=
                    element(array, columns ? i * n + a : a * n + i) * element(array, columns ? i * n + b : b * n + i);
            if (!(fabs(sum / (scale * scale) - (a == b ? 1 : 0)) <= limit))
                fail_msg("%lldx%lld: product of %lld and %lld is %.9g", (long long)m, (long long)n, (long long)a,
                         (long long)b, sum);
        }
}

static void test_orthonormal(void **state)
{
    (void)state;
    const int64_t sizes[][2] = {{1, 1}, {2, 1}, {1, 5}, {17, 17}, {128, 128}, {200, 96}, {63, 130}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int wide = 0; wide < 2; wide++) {
            tow_initializer init = tow_initializer_orthogonal(3, -1);
            tow_array *array = initialized(&init, tow_make_type(wide ? TOW_F64 : TOW_F32, 2, sizes[i]));
            check_orthonormal(array, sizes[i][0], sizes[i][1], 3, wide ? 1e-13 : 1e-6);
            tow_array_release(array);
        }
}

/* JAX has no orthogonal initializer of 16 bits: here it is the f32 one's exact matrix, rounded once. */
static void test_orthogonal_halves(void **state)
{
    (void)state;
    tow_initializer init = tow_initializer_orthogonal(1, -1);
    const tow_dtype dtypes[] = {TOW_BF16, TOW_F16};
    for (int i = 0; i < 2; i++) {
        tow_array *f32 = initialized(&init, tow_make_type(TOW_F32, 2, (int64_t[]){9, 6})), *expected;
        tow_array *half = initialized(&init, tow_make_type(dtypes[i], 2, (int64_t[]){9, 6}));
        OK(tow_array_convert(f32, dtypes[i], &expected));
        assert_memory_equal(tow_array_data(half), tow_array_data(expected), 9 * 6 * 2);
        tow_array_release(f32);
        tow_array_release(half);
        tow_array_release(expected);
    }
}

/* Nothing to fill: no draw, no division by zero; but wrong ranks of orthogonal matrices are told. */
static void test_zero_sizes(void **state)
{
    (void)state;
    const tow_initializer all[] = {tow_initializer_normal(1), tow_initializer_lecun_normal(),
                                   tow_initializer_truncated_normal(1), tow_initializer_orthogonal(1, 0),
                                   tow_initializer_delta_orthogonal(1, -1)};
    const int64_t dims[][3] = {{0, 3, 4}, {2, 0, 4}, {2, 0, 0}, {0, 0, 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int k = 0; k < 4; k++) tow_array_release(initialized(&all[i], tow_make_type(TOW_F32, 3, dims[k])));
    tow_initializer delta = tow_initializer_delta_orthogonal(1, -1);
    tow_array *array = initialized(&delta, tow_make_type(TOW_F32, 3, (int64_t[]){2, 0, 4}));
    assert_int_equal(tow_type_element_count(tow_array_type(array)), 0);
    tow_array_release(array);
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* A parameter "block/w" of the given shape. */
typedef struct holder {
    tow_module module;
    int rank;
    int64_t dims[4];
    tow_initializer init;
} holder;
static void call_holder(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const holder *m = (const holder *)module;
    (void)n_in, (void)n_out;
    tow_scope *child = tow_scope_begin(s, "block");
    tow_param(child, "w", m->rank, m->dims, m->init);
    tow_scope_end(child);
    out[0] = in[0];
}
static const tow_module_class holder_class = {"holder", call_holder};

static tow_status init_holder(tow_context *context, tow_initializer init, int rank, const int64_t *dims,
                              tow_params **params)
{
    holder model = {{&holder_class}, rank, {0}, init};
    memcpy(model.dims, dims, (size_t)rank * sizeof *dims);
    tow_type x = tow_make_type(TOW_F32, 0, NULL);
    return tow_model_init(context, TOW_MODULE(&model), 1, 1, &x, params);
}

static void test_errors(void **state)
{
    (void)state;
    const double nan = (double)NAN, inf = (double)INFINITY;
    tow_initializer wrong_mode = tow_initializer_lecun_normal();
    wrong_mode.mode = 7;
    const struct {
        tow_initializer init;
        int rank;
        int64_t dims[4];
        tow_status status;
        const char *text;
    } cases[] = {
        {tow_initializer_orthogonal(1, -1),
         1,
         {4},
         TOW_SHAPE_MISMATCH,
         "orthogonal: expected a shape of rank 2 or more"},
        {tow_initializer_orthogonal(1, -1), 0, {0}, TOW_SHAPE_MISMATCH, "rank 2 or more, found f32[]"},
        {tow_initializer_orthogonal(1, 2),
         2,
         {3, 3},
         TOW_INVALID_ARGUMENT,
         "column_axis 2; expected an axis of f32[3,3]"},
        {tow_initializer_orthogonal(1, -3), 2, {3, 3}, TOW_INVALID_ARGUMENT, "column_axis -3"},
        {tow_initializer_orthogonal(nan, 0), 2, {3, 3}, TOW_INVALID_ARGUMENT, "expected a finite scale, found"},
        {tow_initializer_delta_orthogonal(1, -1), 2, {3, 3}, TOW_SHAPE_MISMATCH, "of rank 3 to 5, found f32[3,3]"},
        {tow_initializer_delta_orthogonal(1, -1), 3, {3, 4, 3}, TOW_SHAPE_MISMATCH, "no more inputs than features"},
        {tow_initializer_delta_orthogonal(1, 2), 3, {3, 3, 3}, TOW_INVALID_ARGUMENT, "column_axis 2"},
        {tow_initializer_truncated_normal_with(1, 2, 2),
         1,
         {4},
         TOW_INVALID_ARGUMENT,
         "below the upper one, found 2 and 2"},
        {tow_initializer_truncated_normal_with(1, nan, 2), 1, {4}, TOW_INVALID_ARGUMENT, "below the upper one"},
        {tow_initializer_normal(inf), 1, {4}, TOW_INVALID_ARGUMENT, "expected a finite stddev, found inf"},
        {tow_initializer_uniform(nan), 1, {4}, TOW_INVALID_ARGUMENT, "expected a finite scale"},
        {tow_initializer_lecun_normal(), 1, {4}, TOW_INVALID_ARGUMENT, "variance scaling needs a shape of rank 2"},
        {tow_initializer_variance_scaling(inf, TOW_FAN_IN, TOW_NORMAL),
         2,
         {4, 4},
         TOW_INVALID_ARGUMENT,
         "found scale inf"},
        {wrong_mode, 2, {4, 4}, TOW_INVALID_ARGUMENT, "mode 7"},
        {FAN(tow_initializer_lecun_normal(), 1, LIST(2), 0, LIST(0), 0, LIST(0)),
         2,
         {4, 4},
         TOW_INVALID_ARGUMENT,
         ".fan.in[0] = 2; expected distinct axes of f32[4,4]"},
        {FAN(tow_initializer_lecun_normal(), 2, LIST(0, -2), 0, LIST(0), 0, LIST(0)),
         2,
         {4, 4},
         TOW_INVALID_ARGUMENT,
         ".fan.in[1] = -2"},
        {FAN(tow_initializer_lecun_normal(), 0, LIST(0), 0, LIST(0), 1, LIST(-3)),
         2,
         {4, 4},
         TOW_INVALID_ARGUMENT,
         ".fan.batch[0] = -3"},
        {FAN(tow_initializer_lecun_normal(), 0, LIST(0), 9, LIST(0), 0, LIST(0)),
         2,
         {4, 4},
         TOW_INVALID_ARGUMENT,
         ".fan.n_out = 9"},
        {FAN(tow_initializer_lecun_normal(), -1, LIST(0), 0, LIST(0), 0, LIST(0)),
         2,
         {4, 4},
         TOW_INVALID_ARGUMENT,
         ".fan.n_in = -1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_params *params;
        assert_int_equal(init_holder(ctx, cases[i].init, cases[i].rank, cases[i].dims, &params), cases[i].status);
        assert_null(params);
        const char *text = tow_context_error(ctx);
        if (strncmp(text, "params/block/w: ", 16) != 0 || !strstr(text, cases[i].text))
            fail_msg("case %zu: expected \"%s\", found \"%s\"", i, cases[i].text, text);
    }
}

/* ---- one's own --------------------------------------------------------------------------------------------------- */

/* A number and what the fills of this test were asked for. */
typedef struct log {
    double value;
    int calls;
    tow_status status;
    const char *message;
} log_of_fills;

static tow_status fill_own(tow_context *context, const tow_initializer *self, tow_type type, const uint32_t key[2],
                           float *data)
{
    log_of_fills *log = (log_of_fills *)(uintptr_t)self->user;
    (void)key;
    assert_int_equal(type.dtype, TOW_F32);
    log->calls++;
    if (log->message) return tow_initializer_fail(context, log->status, "%s of rank %d", log->message, type.rank);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        assert_true(data[i] == 0);
        data[i] = (float)log->value;
    }
    return log->status;
}

static void test_own(void **state)
{
    (void)state;
    log_of_fills log = {.value = 0.3};
    tow_initializer init = {.fill = fill_own, .user = &log};
    assert_false(tow_initializer_is_default(&init));
    tow_params *params;
    OK(init_holder(ctx, init, 2, (int64_t[]){2, 3}, &params));
    assert_int_equal(log.calls, 1);
    assert_true(((float *)tow_array_data(tow_params_array(params, 0)))[5] == 0.3F);
    tow_params_free(params);
    tow_array *half = initialized(&init, tow_make_type(TOW_BF16, 1, (int64_t[]){2})); /* rounded */
    assert_int_equal(((uint16_t *)tow_array_data(half))[1], 0x3E9A);
    tow_array_release(half);

    log.message = "no use for a shape";
    assert_int_equal(init_holder(ctx, init, 2, (int64_t[]){2, 3}, &params), TOW_INVALID_ARGUMENT);
    assert_string_equal(tow_context_error(ctx), "params/block/w: no use for a shape of rank 2");
    log.status = TOW_IO_ERROR;
    assert_int_equal(init_holder(ctx, init, 2, (int64_t[]){2, 3}, &params), TOW_IO_ERROR);
    assert_int_equal(tow_context_status(ctx), TOW_IO_ERROR);
    log.message = NULL; /* a status alone: not the message of the failure before */
    assert_int_equal(init_holder(ctx, init, 2, (int64_t[]){2, 3}, &params), TOW_IO_ERROR);
    assert_string_equal(tow_context_error(ctx), "params/block/w: its initializer failed without a message");
    assert_null(params);
    assert_int_equal(tow_initializer_fail(NULL, TOW_OK, "x"), TOW_INVALID_ARGUMENT);
}

/* DenseGeneral has a matrix drawn, whatever draws it: here an orthogonal one. */
static void test_general(void **state)
{
    (void)state;
    tow_dense_general layer = TOW_DENSE_GENERAL(.features = {2, 3}, .n_axes = 2, .axes = {-2, -1}, .no_bias = true,
                                                .kernel_init = tow_initializer_orthogonal(1, -1));
    tow_type x = tow_make_type(TOW_F32, 3, (int64_t[]){1, 3, 4});
    tow_params *params;
    OK(tow_model_init(ctx, TOW_MODULE(&layer), 5, 1, &x, &params));
    assert_int_equal(tow_array_type(tow_params_array(params, 0)).rank, 4);
    check_orthonormal(tow_params_array(params, 0), 12, 6, 1, 1e-6);
    tow_params_free(params);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++)
        for (long fail_at = 0;; fail_at++) {
            counting c;
            tow_context_options options = counting_options(&c, fail_at);
            tow_context *context = NULL;
            tow_params *params = NULL;
            tow_status status = tow_context_create(&options, &context);
            tow_initializer init = which ? tow_initializer_delta_orthogonal(1, -1) : tow_initializer_orthogonal(1, -1);
            if (!status) status = init_holder(context, init, 3, (int64_t[]){3, 4, 5}, &params);
            assert_true(status == TOW_OK || status == TOW_OUT_OF_MEMORY);
            assert_true((status == TOW_OK) == (params != NULL));
            tow_params_free(params);
            tow_context_free(context);
            assert_int_equal(c.blocks, 0);
            assert_int_equal(c.wrong_sizes, 0);
            if (status == TOW_OK) break;
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_orthonormal),
        cmocka_unit_test(test_orthogonal_halves),
        cmocka_unit_test(test_zero_sizes),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_general),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

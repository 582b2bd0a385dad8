/* Elementwise kernels on all types against functions in double precision; random bits; the registry. In all layouts,
 * with empty operands, with equal bits for 1 and 2 threads and for the vector kernels and their twins.
 * Tests context.c, registry.c. */
#include "tests/unit/support/kernels.h"

/* ---- elementwise ------------------------------------------------------------------------------------------------ */

static double x_add(double x, double y) { return x + y; }
static double x_sub(double x, double y) { return x - y; }
static double x_mul(double x, double y) { return x * y; }
static double x_div(double x, double y) { return x / y; }
static double x_max(double x, double y) { return x > y ? x : y; }
static double x_min(double x, double y) { return x < y ? x : y; }
static double x_eq(double x, double y) { return x == y; }
static double x_ne(double x, double y) { return x != y; }
static double x_lt(double x, double y) { return x < y; }
static double x_le(double x, double y) { return x <= y; }
static double x_gt(double x, double y) { return x > y; }
static double x_ge(double x, double y) { return x >= y; }
static double x_and(double x, double y) { return (double)((int64_t)x & (int64_t)y); }
static double x_or(double x, double y) { return (double)((int64_t)x | (int64_t)y); }
static double x_xor(double x, double y) { return (double)((int64_t)x ^ (int64_t)y); }
static double x_shift_left(double x, double y)
{
    return y >= 0 && y < 32 ? (double)((int64_t)x * (1ll << (int64_t)y)) : 0;
}
static double x_shift_right(double x, double y)
{
    return y >= 0 && y < 32 ? (double)((uint32_t)(int64_t)x >> (uint32_t)y) : 0;
}

enum {
    ANY,
    PREDICATE,
    NONZERO,
    POSITIVE
};
static const struct {
    const char *name;
    double (*function)(double, double);
    int kind;
} binaries[] = {
    {"add", x_add, ANY},
    {"sub", x_sub, ANY},
    {"mul", x_mul, ANY},
    {"div", x_div, NONZERO},
    {"rem", fmod, NONZERO},
    {"pow", pow, POSITIVE},
    {"max", x_max, ANY},
    {"min", x_min, ANY},
    {"eq", x_eq, PREDICATE},
    {"ne", x_ne, PREDICATE},
    {"lt", x_lt, PREDICATE},
    {"le", x_le, PREDICATE},
    {"gt", x_gt, PREDICATE},
    {"ge", x_ge, PREDICATE},
    {"and", x_and, ANY},
    {"or", x_or, ANY},
    {"xor", x_xor, ANY},
    {"shift_left", x_shift_left, ANY},
    {"shift_right", x_shift_right, ANY},
};

static const int64_t shapes[][3] = {{3, 5, 7}, {1, 1, 1}, {2, 260, 33}, {0, 3, 2}, {5, 1, 600}};
enum {
    SHAPES = sizeof shapes / sizeof shapes[0]
};

static void check_binary(size_t op, tow_dtype dtype, const int64_t *dims, layout first, layout second)
{
    tow__buffer in[2] = {random_operand(dtype, 3, dims, first), random_operand(dtype, 3, dims, second)};
    tow_dtype result = binaries[op].kind == PREDICATE ? TOW_BOOL : dtype;
    tow__buffer out = make(result, 3, dims, ROW_MAJOR), twin = make(result, 3, dims, ROW_MAJOR);
    int64_t count = count_of(&out);
    for (int64_t i = 0; i < count && binaries[op].kind >= NONZERO; i++) {
        if (get(&in[1], i) == 0) set(&in[1], i, 3);
        if (binaries[op].kind == POSITIVE)
            set(&in[0], i, fabs(get(&in[0], i)) + 0.5), set(&in[1], i, fabs(get(&in[1], i)));
    }
    run_kernel(tow__kernel_find(binaries[op].name, dtype), 2, in, 1, &out, NULL);
    run_kernel(tow__kernel_reference(binaries[op].name, dtype), 2, in, 1, &twin, NULL);
    assert_equal_bits(&out, &twin, binaries[op].name);
    for (int64_t i = 0; i < count; i++) {
        double want = binaries[op].function(get(&in[0], i), get(&in[1], i));
        if (!(dtype == TOW_F32 || dtype == TOW_F64)) want = trunc(want);
        double tolerance = binaries[op].kind == POSITIVE ? 2 * epsilon_of(dtype) * fabs(want) : 0;
        assert_close(get(&out, i), as_type(want, result), tolerance, binaries[op].name, i);
    }
    release_all();
}

static void binary_operations(void **state)
{
    (void)state;
    for (size_t op = 0; op < sizeof binaries / sizeof binaries[0]; op++) {
        int types = 0;
        for (size_t d = 0; d < 5; d++) {
            if (!accepts(binaries[op].name, all_dtypes[d])) continue;
            types++;
            for (size_t s = 0; s < SHAPES; s++)
                for (int how = 0; how < LAYOUTS; how++)
                    check_binary(op, all_dtypes[d], shapes[s], (layout)how, (layout)((how + (int)s) % LAYOUTS));
        }
        assert_true(types >= 2);
    }
}

/* An output may be the memory of any contiguous operand of its type. */
static void in_place(void **state)
{
    (void)state;
    static const char *const names[] = {"add", "sub", "max", "div"};
    for (size_t i = 0; i < 4; i++) {
        for (int which = 0; which < 2; which++) {
            tow__buffer in[2] = {random_operand(TOW_F32, SHAPE(40, 1001), which == 0 ? ROW_MAJOR : SPACED),
                                 random_operand(TOW_F32, SHAPE(40, 1001), which == 1 ? ROW_MAJOR : COLUMN_MAJOR)};
            tow__buffer out = make(TOW_F32, SHAPE(40, 1001), ROW_MAJOR);
            const tow__kernel *kernel = tow__kernel_find(names[i], TOW_F32);
            run_kernel(kernel, 2, in, 1, &out, NULL);
            run_once(kernel, 2, in, 1, &in[which], NULL, 2);
            assert_equal_bits(&out, &in[which], names[i]);
            release_all();
        }
    }
}

static void nan_propagates(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++) {
        tow_dtype dtype = all_dtypes[type];
        tow__buffer in[3] = {make(dtype, SHAPE(40), ROW_MAJOR), make(dtype, SHAPE(40), ROW_MAJOR),
                             make(dtype, SHAPE(40), ROW_MAJOR)};
        for (int i = 0; i < 40; i++) {
            set(&in[0], i, i % 2 ? NAN : 1);
            set(&in[1], i, i % 2 ? 1 : NAN);
            set(&in[2], i, 5);
        }
        tow__buffer out = make(dtype, SHAPE(40), ROW_MAJOR), one = make(dtype, 0, NULL, ROW_MAJOR);
        static const char *const names[] = {"max", "min"};
        for (int n = 0; n < 2; n++) {
            run_kernel(tow__kernel_find(names[n], dtype), 2, in, 1, &out, NULL);
            for (int i = 0; i < 40; i++) assert_true(isnan(get(&out, i)));
        }
        static const char *const reductions[] = {"reduce_max", "reduce_min", "reduce_sum"};
        for (int n = 0; n < 3; n++) {
            run_kernel(tow__kernel_find(reductions[n], dtype), 1, in, 1, &one, &(tow__axes_params){{1, {0}}});
            assert_true(isnan(get(&one, 0)));
        }
        tow__buffer clamp[3] = {in[2], in[0], in[2]};
        run_kernel(tow__kernel_find("relu", dtype), 1, in, 1, &out, NULL);
        for (int i = 0; i < 40; i++) assert_true(i % 2 ? isnan(get(&out, i)) : get(&out, i) == 1);
        run_kernel(tow__kernel_find("clamp", dtype), 3, clamp, 1, &out, NULL);
        for (int i = 0; i < 40; i++) assert_true(i % 2 ? isnan(get(&out, i)) : get(&out, i) == 5);
        release_all();
    }
}

static void select_and_clamp(void **state)
{
    (void)state;
    for (size_t d = 0; d < 5; d++) {
        for (int how = 0; how < LAYOUTS * 2; how++) {
            bool scalars = how >= LAYOUTS;
            layout lay = (layout)(how % LAYOUTS);
            tow_dtype dtype = all_dtypes[d];
            tow__buffer x = random_operand(dtype, SHAPE(9, 700), lay), y = random_operand(dtype, SHAPE(9, 700), SPACED);
            tow__buffer p = random_operand(TOW_BOOL, scalars ? 0 : 2, x.dims, lay),
                        out = make(dtype, SHAPE(9, 700), ROW_MAJOR);
            tow__buffer in[3] = {p, x, y};
            run_kernel(tow__kernel_find("select", dtype == TOW_F32 || dtype == TOW_F64 ? dtype : TOW_BOOL), 3, in, 1,
                       &out, NULL);
            for (int64_t i = 0; i < count_of(&out); i++)
                assert_true(get(&out, i) == (get(&p, scalars ? 0 : i) != 0 ? get(&x, i) : get(&y, i)));
            if (dtype != TOW_BOOL) {
                tow__buffer low = random_operand(dtype, scalars ? 0 : 2, x.dims, lay),
                            high = random_operand(dtype, scalars ? 0 : 2, x.dims, lay);
                tow__buffer bounds[3] = {low, x, high};
                run_kernel(tow__kernel_find("clamp", dtype), 3, bounds, 1, &out, NULL);
                for (int64_t i = 0; i < count_of(&out); i++) {
                    int64_t j = scalars ? 0 : i;
                    assert_true(get(&out, i) == fmin(fmax(get(&x, i), get(&low, j)), get(&high, j)));
                }
            }
            release_all();
        }
    }
}

static double x_neg(double x) { return -x; }
static double x_sign(double x) { return (x > 0) - (x < 0); }
static double x_square(double x) { return x * x; }
static double x_same(double x) { return x; }
static double x_logistic(double x) { return 1 / (1 + exp(-x)); }
static double x_relu(double x) { return x > 0 ? x : 0; }
static double x_silu(double x) { return x / (1 + exp(-x)); }
static double x_silu_grad(double x) { return x_logistic(x) * (1 + x * x_logistic(-x)); }
static double x_rsqrt(double x) { return 1 / sqrt(x); }
static const struct {
    const char *name;
    double (*function)(double);
    double tolerance; /* in epsilons, relative to 1 + |result| */
} unaries[] = {
    {"neg", x_neg, 0},
    {"abs", fabs, 0},
    {"sign", x_sign, 0},
    {"floor", floor, 0},
    {"ceil", ceil, 0},
    {"round", rint, 0},
    {"square", x_square, 1},
    {"stop_gradient", x_same, 0},
    {"relu", x_relu, 0},
    {"exp", exp, 4},
    {"expm1", expm1, 4},
    {"log", log, 4},
    {"log1p", log1p, 4},
    {"sqrt", sqrt, 2},
    {"rsqrt", x_rsqrt, 2},
    {"sin", sin, 2},
    {"cos", cos, 2},
    {"tanh", tanh, 4},
    {"erf", erf, 4},
    {"silu", x_silu, 4},
    {"logistic", x_logistic, 4},
    {"silu_grad", x_silu_grad, 4},
};

static void unary_operations(void **state)
{
    (void)state;
    for (size_t op = 0; op < sizeof unaries / sizeof unaries[0]; op++) {
        for (size_t d = 0; d < 4; d++) {
            tow_dtype dtype = all_dtypes[d];
            if (!accepts(unaries[op].name, dtype)) continue;
            for (int how = 0; how < LAYOUTS; how++) {
                tow__buffer x = random_operand(dtype, SHAPE(7, 300, 9), (layout)how),
                            y = make(dtype, SHAPE(7, 300, 9), ROW_MAJOR);
                int64_t count = count_of(&x);
                run_kernel(tow__kernel_find(unaries[op].name, dtype), 1, &x, 1, &y, NULL);
                for (int64_t i = 0; i < count; i++) {
                    double want = as_type(unaries[op].function(get(&x, i)), dtype);
                    assert_close(get(&y, i), want, unaries[op].tolerance * epsilon_of(dtype) * (1 + fabs(want)),
                                 unaries[op].name, i);
                }
                release_all();
            }
        }
    }
}

static double gelu(double x, bool approximate)
{
    if (!approximate) return 0.5 * x * erfc(-x / sqrt(2));
    return x / (1 + exp(-1.5957691216057308 * (x + 0.044715 * x * x * x))); /* 1 + tanh u without its cancellation */
}

/* Far out the slopes are 0 and 1 and nothing overflows into NaN. */
static void gelus(void **state)
{
    (void)state;
    for (int c = 0; c < 4; c++) {
        tow_dtype dtype = all_dtypes[c & 1];
        tow__gelu_params params = {c >= 2};
        tow__buffer x = make(dtype, SHAPE(4001), ROW_MAJOR), y = make(dtype, SHAPE(4001), ROW_MAJOR),
                    slope = make(dtype, SHAPE(4001), ROW_MAJOR);
        for (int64_t i = 0; i < 4001; i++) set(&x, i, ((double)i - 2000) / 150);
        set(&x, 0, -1e18);
        set(&x, 4000, 1e18);
        run_kernel(tow__kernel_find("gelu", dtype), 1, &x, 1, &y, &params);
        run_kernel(tow__kernel_find("gelu_grad", dtype), 1, &x, 1, &slope, &params);
        for (int64_t i = 0; i < 4001; i++) {
            double at = get(&x, i), want = i == 0 ? 0 : gelu(at, params.approximate), h = 1e-5;
            assert_close(get(&y, i), want, epsilon_of(dtype) * 4 * (0.1 + fabs(want)), "gelu", i);
            double central = i == 0 ? 0
                             : i == 4000
                                 ? 1
                                 : (gelu(at + h, params.approximate) - gelu(at - h, params.approximate)) / (2 * h);
            assert_close(get(&slope, i), central, epsilon_of(dtype) * 8 + 1e-9, "gelu_grad", i);
        }
        release_all();
    }
}

static void powers(void **state)
{
    (void)state;
    for (int64_t e = -4; e <= 9; e++) {
        for (int type = 0; type < 2; type++) {
            tow_dtype dtype = all_dtypes[type];
            tow__buffer x = random_operand(dtype, SHAPE(3, 900), COLUMN_MAJOR),
                        y = make(dtype, SHAPE(3, 900), ROW_MAJOR);
            tow__buffer twin = make(dtype, SHAPE(3, 900), ROW_MAJOR);
            run_kernel(tow__kernel_find("integer_pow", dtype), 1, &x, 1, &y, &(tow__integer_pow_params){e});
            run_kernel(tow__kernel_reference("integer_pow", dtype), 1, &x, 1, &twin, &(tow__integer_pow_params){e});
            assert_equal_bits(&y, &twin, "integer_pow");
            for (int64_t i = 0; i < 2700; i++) {
                double want = pow(get(&x, i), (double)e);
                assert_close(get(&y, i), want, epsilon_of(dtype) * 8 * fabs(want), "integer_pow", i);
            }
            release_all();
        }
    }
    tow__buffer x = random_operand(TOW_I32, SHAPE(50), ROW_MAJOR), y = make(TOW_I32, SHAPE(50), ROW_MAJOR);
    run_kernel(tow__kernel_find("integer_pow", TOW_I32), 1, &x, 1, &y, &(tow__integer_pow_params){5});
    for (int64_t i = 0; i < 50; i++) assert_true(get(&y, i) == pow(get(&x, i), 5));
    release_all();
}

/* erf(erf_inv(x)) is x; the ends give infinities. */
static void inverse_error_function(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++) {
        tow_dtype dtype = all_dtypes[type];
        tow__buffer x = make(dtype, SHAPE(20001), ROW_MAJOR), y = make(dtype, SHAPE(20001), ROW_MAJOR);
        for (int64_t i = 0; i < 20001; i++) set(&x, i, ((double)i - 10000) / 10000);
        run_kernel(tow__kernel_find("erf_inv", dtype), 1, &x, 1, &y, NULL);
        for (int64_t i = 1; i < 20000; i++)
            assert_close(erf(get(&y, i)), get(&x, i), epsilon_of(dtype) * (type ? 4 : 8), "erf_inv", i);
        assert_true(get(&y, 0) == -INFINITY && get(&y, 20000) == INFINITY && get(&y, 10000) == 0);
        set(&x, 0, 1.5);
        run_kernel(tow__kernel_find("erf_inv", dtype), 1, &x, 1, &y, NULL);
        assert_true(isnan(get(&y, 0)));
        release_all();
    }
}

static void integer_edges(void **state)
{
    (void)state;
    static const int32_t x_values[] = {INT32_MIN, INT32_MIN, 7, -7, -7, 1, -1, -1};
    static const int32_t y_values[] = {-1, 0, 0, 2, -2, -5, -5, -4};
    static const int32_t quotient[] = {INT32_MIN, -1, -1, -3, 3, 0, 0, 0};
    static const int32_t rest[] = {0, INT32_MIN, 7, -1, -1, 1, -1, -1};
    static const int32_t power[] = {0, 1, 1, 49, 0, 1, -1, 1};
    tow__buffer in[2] = {make(TOW_I32, SHAPE(8), ROW_MAJOR), make(TOW_I32, SHAPE(8), ROW_MAJOR)},
                out = make(TOW_I32, SHAPE(8), ROW_MAJOR);
    memcpy(in[0].data, x_values, sizeof x_values);
    memcpy(in[1].data, y_values, sizeof y_values);
    run_kernel(tow__kernel_find("div", TOW_I32), 2, in, 1, &out, NULL);
    assert_memory_equal(out.data, quotient, sizeof quotient);
    run_kernel(tow__kernel_find("rem", TOW_I32), 2, in, 1, &out, NULL);
    assert_memory_equal(out.data, rest, sizeof rest);
    run_kernel(tow__kernel_find("pow", TOW_I32), 2, in, 1, &out, NULL);
    assert_memory_equal(out.data, power, sizeof power);
    release_all();
}

static void conversions(void **state)
{
    (void)state;
    for (size_t from = 0; from < 5; from++) {
        for (size_t to = 0; to < 5; to++) {
            tow__buffer x = random_operand(all_dtypes[from], SHAPE(30, 40), SPACED),
                        y = make(all_dtypes[to], SHAPE(30, 40), ROW_MAJOR);
            run_kernel(tow__kernel_find("convert", all_dtypes[from]), 1, &x, 1, &y,
                       &(tow__dtype_params){all_dtypes[to]});
            for (int64_t i = 0; i < 1200; i++) {
                double v = get(&x, i), want = all_dtypes[to] == TOW_BOOL ? v != 0 : as_type(v, all_dtypes[to]);
                if (from < 2 && to == 3 && v < 0) want = 0; /* floats saturate */
                if (from < 2 && (to == 2 || to == 3)) want = trunc(want);
                assert_true(get(&y, i) == want);
            }
            release_all();
        }
    }
    static const float values[] = {3e9f, -3e9f, NAN, 5e9f, -0.7f, 2.9f, INFINITY};
    static const int32_t as_i32[] = {INT32_MAX, INT32_MIN, 0, INT32_MAX, 0, 2, INT32_MAX};
    static const uint32_t as_u32[] = {3000000000u, 0, 0, UINT32_MAX, 0, 2, UINT32_MAX};
    tow__buffer x = make(TOW_F32, SHAPE(7), ROW_MAJOR), i = make(TOW_I32, SHAPE(7), ROW_MAJOR),
                u = make(TOW_U32, SHAPE(7), ROW_MAJOR);
    memcpy(x.data, values, sizeof values);
    run_kernel(tow__kernel_find("convert", TOW_F32), 1, &x, 1, &i, &(tow__dtype_params){TOW_I32});
    run_kernel(tow__kernel_find("convert", TOW_F32), 1, &x, 1, &u, &(tow__dtype_params){TOW_U32});
    assert_memory_equal(i.data, as_i32, sizeof as_i32);
    assert_memory_equal(u.data, as_u32, sizeof as_u32);
    run_kernel(tow__kernel_find("bitcast", TOW_F32), 1, &x, 1, &u, &(tow__dtype_params){TOW_U32});
    assert_memory_equal(u.data, values, sizeof values);
    release_all();
}

/* ---- random bits ------------------------------------------------------------------------------------------------ */

/* The known answers of Random123 (kat_vectors, threefry2x32 with 20 rounds). */
static void threefry(void **state)
{
    (void)state;
    static const uint32_t known[3][6] = {
        {0, 0, 0, 0, 0x6b200159, 0x99ba4efe},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x1cb996fc, 0xbb002be7},
        {0x13198a2e, 0x03707344, 0x243f6a88, 0x85a308d3, 0xc4923a9c, 0x483df7a0},
    };
    tow__buffer in[4], out[2] = {make(TOW_U32, SHAPE(3), ROW_MAJOR), make(TOW_U32, SHAPE(3), ROW_MAJOR)};
    for (int i = 0; i < 4; i++) {
        in[i] = make(TOW_U32, SHAPE(3), SPACED);
        for (int j = 0; j < 3; j++) set(&in[i], j, (double)known[j][i]);
    }
    run_kernel(tow__kernel_find("threefry2x32", TOW_U32), 4, in, 2, out, NULL);
    for (int j = 0; j < 3; j++) {
        assert_int_equal(((uint32_t *)out[0].data)[j], known[j][4]);
        assert_int_equal(((uint32_t *)out[1].data)[j], known[j][5]);
    }
    /* bits[i] is the exclusive or of the two words for the counter (0, i) */
    int64_t n = 40000;
    tow__buffer key = make(TOW_U32, SHAPE(2), REVERSED), bits = make(TOW_U32, SHAPE(40, 1000), ROW_MAJOR);
    tow__buffer words[4], pair[2] = {make(TOW_U32, 1, &n, ROW_MAJOR), make(TOW_U32, 1, &n, ROW_MAJOR)};
    for (int i = 0; i < 4; i++) words[i] = make(TOW_U32, 1, &n, ROW_MAJOR);
    set(&key, 0, 0x4B7A05A2);
    set(&key, 1, 0x4F2F72D7);
    for (int64_t i = 0; i < n; i++) {
        set(&words[0], i, 0x4B7A05A2);
        set(&words[1], i, 0x4F2F72D7);
        set(&words[2], i, 0);
        set(&words[3], i, (double)i);
    }
    run_kernel(tow__kernel_find("random_bits", TOW_U32), 1, &key, 1, &bits, &(tow__shape_params){{2, {40, 1000}}});
    run_kernel(tow__kernel_find("threefry2x32", TOW_U32), 4, words, 2, pair, NULL);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(((uint32_t *)bits.data)[i], ((uint32_t *)pair[0].data)[i] ^ ((uint32_t *)pair[1].data)[i]);
    release_all();
}

/* ---- the registry ----------------------------------------------------------------------------------------------- */

static void registry(void **state)
{
    (void)state;
    assert_null(tow__kernel_find("no such primitive", TOW_F32));
    assert_null(tow__kernel_find("exp", TOW_I32));
    assert_string_equal(tow__kernel_find("exp", TOW_F64)->engine, "reference");
    assert_string_not_equal(tow__kernel_find("exp", TOW_F32)->engine, "reference");
    assert_string_equal(tow__kernel_reference("exp", TOW_F32)->engine, "reference");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binary_operations),
        cmocka_unit_test(in_place),
        cmocka_unit_test(nan_propagates),
        cmocka_unit_test(select_and_clamp),
        cmocka_unit_test(unary_operations),
        cmocka_unit_test(gelus),
        cmocka_unit_test(powers),
        cmocka_unit_test(inverse_error_function),
        cmocka_unit_test(integer_edges),
        cmocka_unit_test(conversions),
        cmocka_unit_test(threefry),
        cmocka_unit_test(registry),
    };
    return cmocka_run_group_tests_name("elementwise kernels", tests, NULL, NULL);
}

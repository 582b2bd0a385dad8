/* Every base kernel against loops in double precision: elementwise operations on all types, reductions, moves, random bits;
 * in all layouts, with empty operands, and with equal bits for 1 and 2 threads and for the vector kernels and their twins. */
#include "tests/unit/kernels.h"

#include "src/kernels/tables.h"

static const tow_dtype all_dtypes[] = {TOW_F32, TOW_F64, TOW_I32, TOW_U32, TOW_BOOL};

static bool accepts(const char *name, tow_dtype dtype) { return tow__kernel_find(name, dtype) != NULL; }

/* Rounds to the type; integers wrap. */
static double as_type(double x, tow_dtype dtype)
{
    if (dtype == TOW_F32) return (double)(float)x;
    if (dtype == TOW_I32) return (double)(int32_t)(uint32_t)(int64_t)x;
    if (dtype == TOW_U32) return (double)(uint32_t)(int64_t)x;
    return x;
}

static void assert_equal_bits(const tow__buffer *a, const tow__buffer *b, const char *what)
{
    if (memcmp(a->data, b->data, (size_t)count_of(a) * bytes_of(a->dtype)) != 0) fail_msg("%s: bits differ", what);
}

/* ---- elementwise --------------------------------------------------------------------------------------------------------- */

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
static double x_shift_left(double x, double y) { return y >= 0 && y < 32 ? (double)((int64_t)x * (1ll << (int64_t)y)) : 0; }
static double x_shift_right(double x, double y) { return y >= 0 && y < 32 ? (double)((uint32_t)(int64_t)x >> (uint32_t)y) : 0; }

enum { ANY, PREDICATE, NONZERO, POSITIVE };
static const struct {
    const char *name;
    double (*function)(double, double);
    int kind;
} binaries[] = {
    {"add", x_add, ANY},       {"sub", x_sub, ANY},       {"mul", x_mul, ANY},       {"div", x_div, NONZERO},
    {"rem", fmod, NONZERO},    {"pow", pow, POSITIVE},    {"max", x_max, ANY},       {"min", x_min, ANY},
    {"eq", x_eq, PREDICATE},   {"ne", x_ne, PREDICATE},   {"lt", x_lt, PREDICATE},   {"le", x_le, PREDICATE},
    {"gt", x_gt, PREDICATE},   {"ge", x_ge, PREDICATE},   {"and", x_and, ANY},       {"or", x_or, ANY},
    {"xor", x_xor, ANY},       {"shift_left", x_shift_left, ANY}, {"shift_right", x_shift_right, ANY},
};

static const int64_t shapes[][3] = {{3, 5, 7}, {1, 1, 1}, {2, 260, 33}, {0, 3, 2}, {5, 1, 600}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void check_binary(size_t op, tow_dtype dtype, const int64_t *dims, layout first, layout second)
{
    tow__buffer in[2] = {random_operand(dtype, 3, dims, first), random_operand(dtype, 3, dims, second)};
    tow_dtype result = binaries[op].kind == PREDICATE ? TOW_BOOL : dtype;
    tow__buffer out = make(result, 3, dims, ROW_MAJOR), twin = make(result, 3, dims, ROW_MAJOR);
    int64_t count = count_of(&out);
    for (int64_t i = 0; i < count && binaries[op].kind >= NONZERO; i++) {
        if (get(&in[1], i) == 0) set(&in[1], i, 3);
        if (binaries[op].kind == POSITIVE) set(&in[0], i, fabs(get(&in[0], i)) + 0.5), set(&in[1], i, fabs(get(&in[1], i)));
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
            assert_true(kernel->flags & TOW__IN_PLACE);
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
        tow__buffer in[3] = {make(dtype, SHAPE(40), ROW_MAJOR), make(dtype, SHAPE(40), ROW_MAJOR), make(dtype, SHAPE(40), ROW_MAJOR)};
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
            tow__buffer p = random_operand(TOW_BOOL, scalars ? 0 : 2, x.dims, lay), out = make(dtype, SHAPE(9, 700), ROW_MAJOR);
            tow__buffer in[3] = {p, x, y};
            run_kernel(tow__kernel_find("select", dtype == TOW_F32 || dtype == TOW_F64 ? dtype : TOW_BOOL), 3, in, 1, &out, NULL);
            for (int64_t i = 0; i < count_of(&out); i++)
                assert_true(get(&out, i) == (get(&p, scalars ? 0 : i) != 0 ? get(&x, i) : get(&y, i)));
            if (dtype != TOW_BOOL) {
                tow__buffer low = random_operand(dtype, scalars ? 0 : 2, x.dims, lay), high = random_operand(dtype, scalars ? 0 : 2, x.dims, lay);
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
    {"neg", x_neg, 0},       {"abs", fabs, 0},        {"sign", x_sign, 0},    {"floor", floor, 0}, {"ceil", ceil, 0},  {"round", rint, 0},
    {"square", x_square, 1}, {"stop_gradient", x_same, 0}, {"relu", x_relu, 0}, {"exp", exp, 4},   {"expm1", expm1, 4}, {"log", log, 4},
    {"log1p", log1p, 4},     {"sqrt", sqrt, 2},       {"rsqrt", x_rsqrt, 2},  {"sin", sin, 2},     {"cos", cos, 2},    {"tanh", tanh, 4},
    {"erf", erf, 4},         {"silu", x_silu, 4},     {"logistic", x_logistic, 4}, {"silu_grad", x_silu_grad, 4},
};

static void unary_operations(void **state)
{
    (void)state;
    for (size_t op = 0; op < sizeof unaries / sizeof unaries[0]; op++) {
        for (size_t d = 0; d < 4; d++) {
            tow_dtype dtype = all_dtypes[d];
            if (!accepts(unaries[op].name, dtype)) continue;
            for (int how = 0; how < LAYOUTS; how++) {
                tow__buffer x = random_operand(dtype, SHAPE(7, 300, 9), (layout)how), y = make(dtype, SHAPE(7, 300, 9), ROW_MAJOR);
                int64_t count = count_of(&x);
                run_kernel(tow__kernel_find(unaries[op].name, dtype), 1, &x, 1, &y, NULL);
                for (int64_t i = 0; i < count; i++) {
                    double want = as_type(unaries[op].function(get(&x, i)), dtype);
                    assert_close(get(&y, i), want, unaries[op].tolerance * epsilon_of(dtype) * (1 + fabs(want)), unaries[op].name, i);
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
        tow__buffer x = make(dtype, SHAPE(4001), ROW_MAJOR), y = make(dtype, SHAPE(4001), ROW_MAJOR), slope = make(dtype, SHAPE(4001), ROW_MAJOR);
        for (int64_t i = 0; i < 4001; i++) set(&x, i, ((double)i - 2000) / 150);
        set(&x, 0, -1e18);
        set(&x, 4000, 1e18);
        run_kernel(tow__kernel_find("gelu", dtype), 1, &x, 1, &y, &params);
        run_kernel(tow__kernel_find("gelu_grad", dtype), 1, &x, 1, &slope, &params);
        for (int64_t i = 0; i < 4001; i++) {
            double at = get(&x, i), want = i == 0 ? 0 : gelu(at, params.approximate), h = 1e-5;
            assert_close(get(&y, i), want, epsilon_of(dtype) * 4 * (0.1 + fabs(want)), "gelu", i);
            double central = i == 0 ? 0 : i == 4000 ? 1 : (gelu(at + h, params.approximate) - gelu(at - h, params.approximate)) / (2 * h);
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
            tow__buffer x = random_operand(dtype, SHAPE(3, 900), COLUMN_MAJOR), y = make(dtype, SHAPE(3, 900), ROW_MAJOR);
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
    tow__buffer in[2] = {make(TOW_I32, SHAPE(8), ROW_MAJOR), make(TOW_I32, SHAPE(8), ROW_MAJOR)}, out = make(TOW_I32, SHAPE(8), ROW_MAJOR);
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
            tow__buffer x = random_operand(all_dtypes[from], SHAPE(30, 40), SPACED), y = make(all_dtypes[to], SHAPE(30, 40), ROW_MAJOR);
            run_kernel(tow__kernel_find("convert", all_dtypes[from]), 1, &x, 1, &y, &(tow__dtype_params){all_dtypes[to]});
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
    tow__buffer x = make(TOW_F32, SHAPE(7), ROW_MAJOR), i = make(TOW_I32, SHAPE(7), ROW_MAJOR), u = make(TOW_U32, SHAPE(7), ROW_MAJOR);
    memcpy(x.data, values, sizeof values);
    run_kernel(tow__kernel_find("convert", TOW_F32), 1, &x, 1, &i, &(tow__dtype_params){TOW_I32});
    run_kernel(tow__kernel_find("convert", TOW_F32), 1, &x, 1, &u, &(tow__dtype_params){TOW_U32});
    assert_memory_equal(i.data, as_i32, sizeof as_i32);
    assert_memory_equal(u.data, as_u32, sizeof as_u32);
    run_kernel(tow__kernel_find("bitcast", TOW_F32), 1, &x, 1, &u, &(tow__dtype_params){TOW_U32});
    assert_memory_equal(u.data, values, sizeof values);
    release_all();
}

/* ---- random bits ------------------------------------------------------------------------------------------------------------- */

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

/* ---- reductions ---------------------------------------------------------------------------------------------------------------- */

static const char *const reductions[] = {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"};

static double combine(int op, double a, double b)
{
    switch (op) {
    case 0: return a + b;
    case 1: return fmax(a, b);
    case 2: return fmin(a, b);
    case 3: return a * b;
    case 4: return (double)((int64_t)a & (int64_t)b);
    default: return (double)((int64_t)a | (int64_t)b);
    }
}

static double identity(int op, tow_dtype dtype)
{
    bool real = dtype == TOW_F32 || dtype == TOW_F64;
    switch (op) {
    case 0: return 0;
    case 1: return real ? -(double)INFINITY : dtype == TOW_I32 ? -2147483648.0 : 0;
    case 2: return real ? (double)INFINITY : dtype == TOW_I32 ? 2147483647.0 : dtype == TOW_U32 ? 4294967295.0 : 1;
    case 3: return 1;
    case 4: return dtype == TOW_BOOL ? 1 : dtype == TOW_I32 ? -1 : 4294967295.0;
    default: return 0;
    }
}

/* axes: bit set. The result of integer products wraps, so their operands are kept small. */
static void check_reduction(int op, tow_dtype dtype, const int64_t *dims, unsigned axes, layout how)
{
    tow__buffer x = random_operand(dtype, 3, dims, how);
    int64_t kept[3], count = count_of(&x);
    int rank = 0;
    tow__axes_params params = {{0}};
    for (int i = 0; i < 3; i++) {
        if (axes >> i & 1) params.axes.v[params.axes.n++] = i;
        else kept[rank++] = dims[i];
    }
    for (int64_t i = 0; i < count && op == 3; i++)
        set(&x, i, dtype <= TOW_F64 ? 1 + 0.01 * random_unit() : random_bits() % 97 == 0 ? 2 : 1);
    tow__buffer out = make(dtype, rank, kept, ROW_MAJOR), twin = make(dtype, rank, kept, ROW_MAJOR);
    run_kernel(tow__kernel_find(reductions[op], dtype), 1, &x, 1, &out, &params);
    run_kernel(tow__kernel_reference(reductions[op], dtype), 1, &x, 1, &twin, &params);
    assert_equal_bits(&out, &twin, reductions[op]);
    int64_t results = count_of(&out);
    double *want = take((size_t)results * 16 + 8), *size = want + results;
    for (int64_t i = 0; i < results; i++) want[i] = identity(op, dtype), size[i] = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at[3] = {i / dims[2] / dims[1], i / dims[2] % dims[1], i % dims[2]}, to = 0;
        for (int d = 0; d < 3; d++)
            if (!(axes >> d & 1)) to = to * dims[d] + at[d];
        want[to] = combine(op, want[to], get(&x, i));
        size[to] += op == 3 ? fabs(want[to]) : fabs(get(&x, i));
    }
    for (int64_t i = 0; i < results; i++) {
        double tolerance = dtype <= TOW_F64 && (op == 0 || op == 3) ? epsilon_of(dtype) * 2 * size[i] : 0;
        assert_close(get(&out, i), as_type(want[i], dtype), tolerance, reductions[op], i);
    }
    release_all();
}

static void reductions_over_axes(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{3, 5, 7}, {2, 33, 130}, {1, 1, 1}, {0, 3, 2}, {3, 0, 2}, {5, 1, 1100}, {40, 40, 3}, {1, 70, 65}};
    for (int op = 0; op < 6; op++)
        for (size_t d = 0; d < 5; d++)
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0] && accepts(reductions[op], all_dtypes[d]); s++)
                for (unsigned axes = 1; axes < 8; axes++)
                    check_reduction(op, all_dtypes[d], sizes[s], axes, (layout)((axes + s + d) % LAYOUTS));
}

/* Long sums are split into segments on several threads. */
static void long_reductions(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 70000}, {1500, 2, 33}, {1, 20000, 2}, {3, 1, 35001}};
    for (size_t s = 0; s < 4; s++)
        for (unsigned axes = 1; axes < 8; axes++)
            for (int how = 0; how < LAYOUTS; how++) check_reduction(how % 3, how % 2 ? TOW_F64 : TOW_F32, sizes[s], axes, (layout)how);
}

static void argmax_and_cumsum(void **state)
{
    (void)state;
    for (size_t c = 0; c < 5 * 3 * LAYOUTS; c++) {
        tow_dtype dtype = all_dtypes[c % 5];
        int axis = (int)(c / 5 % 3);
        tow__buffer x = random_operand(dtype, SHAPE(4, 30, 5), (layout)(c / 15));
        int64_t n = x.dims[axis], inner = axis == 0 ? 150 : axis == 1 ? 5 : 1, kept[2], at = 0;
        for (int i = 0; i < 3; i++)
            if (i != axis) kept[at++] = x.dims[i];
        tow__buffer best = make(TOW_I32, 2, kept, ROW_MAJOR), sum = make(dtype, 3, x.dims, ROW_MAJOR);
        if (dtype <= TOW_F64) set(&x, 77, NAN);
        run_kernel(tow__kernel_find("argmax", dtype), 1, &x, 1, &best, &(tow__axis_params){axis});
        for (int64_t r = 0; r < 600 / n; r++) {
            int64_t base = r / inner * n * inner + r % inner, want = 0;
            for (int64_t i = n - 1; i >= 0; i--) {
                double v = get(&x, base + i * inner), w = get(&x, base + want * inner);
                if (isnan(v) || (!isnan(w) && v >= w)) want = i;
            }
            assert_int_equal((int64_t)get(&best, r), want);
        }
        if (dtype <= TOW_F64) set(&x, 77, 0.5);
        for (int reverse = 0; reverse < 2 && dtype != TOW_BOOL; reverse++) {
            run_kernel(tow__kernel_find("cumsum", dtype), 1, &x, 1, &sum, &(tow__cumsum_params){axis, reverse});
            for (int64_t r = 0; r < 600 / n; r++) {
                double total = 0;
                for (int64_t i = 0; i < n; i++) {
                    int64_t element = r / inner * n * inner + r % inner + (reverse ? n - 1 - i : i) * inner;
                    total = as_type(total + get(&x, element), dtype);
                    assert_close(get(&sum, element), total, 0, "cumsum", element);
                }
            }
        }
        release_all();
    }
}

/* ---- moves ------------------------------------------------------------------------------------------------------------------------- */

static void copy_and_iota(void **state)
{
    (void)state;
    for (size_t c = 0; c < 5 * LAYOUTS * SHAPES; c++) {
        tow_dtype dtype = all_dtypes[c % 5];
        const int64_t *dims = shapes[c / 5 / LAYOUTS];
        tow__buffer x = random_operand(dtype, 3, dims, (layout)(c / 5 % LAYOUTS)), y = make(dtype, 3, dims, ROW_MAJOR);
        run_kernel(tow__kernel_find("copy", dtype), 1, &x, 1, &y, NULL);
        for (int64_t i = 0; i < count_of(&x); i++) assert_true(get(&x, i) == get(&y, i));
        for (int axis = 0; axis < 3 && dtype != TOW_BOOL; axis++) {
            run_kernel(tow__kernel_find("iota", dtype), 0, NULL, 1, &y, &(tow__iota_params){dtype, {3, {dims[0], dims[1], dims[2]}}, axis});
            for (int64_t i = 0; i < count_of(&y); i++) {
                int64_t at[3] = {i / dims[2] / dims[1], i / dims[2] % dims[1], i % dims[2]};
                assert_true(get(&y, i) == (double)at[axis]);
            }
        }
        release_all();
    }
}

/* Transpositions go patch by patch. */
static void transpositions(void **state)
{
    (void)state;
    for (size_t c = 0; c < 3 * 24; c++) {
        static const tow_dtype dtypes[] = {TOW_F32, TOW_F64, TOW_BOOL};
        static const int64_t dims[4] = {33, 5, 40, 9};
        int order[4] = {0, 1, 2, 3}, left = 4, permutation[4];
        for (int i = 0, rest = (int)(c / 3), radix = 6; i < 4; i++, radix = radix > 1 ? radix / (4 - i) : 1) {
            int pick = rest / radix;
            rest %= radix;
            permutation[i] = order[pick];
            left--;
            for (int j = pick; j < left; j++) order[j] = order[j + 1];
        }
        tow__buffer x = random_operand(dtypes[c % 3], 4, dims, ROW_MAJOR), view = x;
        for (int i = 0; i < 4; i++) {
            view.dims[i] = x.dims[permutation[i]];
            view.strides[i] = x.strides[permutation[i]];
        }
        tow__buffer y = make(x.dtype, 4, view.dims, ROW_MAJOR);
        run_kernel(tow__kernel_find("copy", x.dtype), 1, &view, 1, &y, NULL);
        for (int64_t i = 0; i < count_of(&y); i++) assert_true(get(&y, i) == get(&view, i));
        release_all();
    }
}

static void pads(void **state)
{
    (void)state;
    static const int64_t cases[][6] = {/* low, high, interior of both axes */
        {0, 0, 0, 0, 0, 0}, {2, 1, 0, 0, 3, 0}, {-1, 2, 0, 1, -2, 0}, {1, 1, 2, 0, 0, 1}, {-3, -1, 1, -2, 2, 3}, {-5, 5, 0, 0, 0, 0}, {3, -4, 1, -6, 3, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0] * LAYOUTS * 2; c++) {
        const int64_t *p = cases[c / LAYOUTS / 2], in_dims[2] = {4, 5};
        tow_dtype dtype = c % 2 ? TOW_BOOL : TOW_F32;
        int64_t dims[2];
        tow__pad_params params = {{2, {p[0], p[3]}}, {2, {p[1], p[4]}}, {2, {p[2], p[5]}}};
        for (int i = 0; i < 2; i++) dims[i] = p[3 * i] + p[3 * i + 1] + in_dims[i] + (in_dims[i] - 1) * p[3 * i + 2];
        tow__buffer in[2] = {random_operand(dtype, 2, in_dims, (layout)(c / 2 % LAYOUTS)), random_operand(dtype, 0, NULL, ROW_MAJOR)};
        tow__buffer out = make(dtype, 2, dims, ROW_MAJOR);
        run_kernel(tow__kernel_find("pad", dtype), 2, in, 1, &out, &params);
        for (int64_t i = 0; i < count_of(&out); i++) {
            int64_t at[2] = {i / dims[1], i % dims[1]}, from[2];
            bool inside = true;
            for (int d = 0; d < 2; d++) {
                int64_t step = p[3 * d + 2] + 1, shifted = at[d] - p[3 * d];
                inside &= shifted >= 0 && shifted % step == 0 && shifted / step < in_dims[d];
                from[d] = shifted / step;
            }
            assert_true(get(&out, i) == (inside ? get(&in[0], from[0] * 5 + from[1]) : get(&in[1], 0)));
        }
        release_all();
    }
}

static void concatenations(void **state)
{
    (void)state;
    for (int c = 0; c < 3 * LAYOUTS * 5; c++) {
        int axis = c % 3;
        tow_dtype dtype = all_dtypes[c / 3 % 5];
        layout how = (layout)(c / 15);
        int64_t base[3] = {3, 4, 50}, lengths[3] = {5, 0, 2}, total[3] = {3, 4, 50};
        tow__buffer in[3];
        for (int i = 0; i < 3; i++) {
            base[axis] = lengths[i];
            in[i] = random_operand(dtype, 3, base, how);
        }
        total[axis] = 7;
        tow__buffer out = make(dtype, 3, total, ROW_MAJOR);
        run_kernel(tow__kernel_find("concatenate", dtype), 3, in, 1, &out, &(tow__axis_params){axis});
        for (int64_t i = 0; i < count_of(&out); i++) {
            int64_t at[3] = {i / total[2] / total[1], i / total[2] % total[1], i % total[2]};
            const tow__buffer *x = at[axis] < 5 ? &in[0] : &in[2];
            if (x == &in[2]) at[axis] -= 5;
            assert_true(get(&out, i) == get(x, (at[0] * x->dims[1] + at[1]) * x->dims[2] + at[2]));
        }
        release_all();
    }
}

static void dynamic_slices(void **state)
{
    (void)state;
    static const int64_t starts[][2] = {{0, 0}, {2, 3}, {-4, 1}, {100, 100}, {4, -100}};
    for (size_t c = 0; c < 5 * LAYOUTS * 5; c++) {
        tow_dtype dtype = all_dtypes[c % 5];
        layout how = (layout)(c / 5 % LAYOUTS);
        const int64_t *start = starts[c / 5 / LAYOUTS];
        tow__buffer x = random_operand(dtype, SHAPE(6, 9), how), in[4] = {x, make(TOW_I32, 0, NULL, ROW_MAJOR), make(TOW_I32, 0, NULL, ROW_MAJOR)};
        tow__buffer part = make(dtype, SHAPE(3, 4), ROW_MAJOR), whole = make(dtype, SHAPE(6, 9), ROW_MAJOR);
        int64_t first[2];
        for (int d = 0; d < 2; d++) {
            int64_t last = d == 0 ? 3 : 5;
            set(&in[1 + d], 0, (double)start[d]);
            first[d] = start[d] < 0 ? 0 : start[d] > last ? last : start[d];
        }
        run_kernel(tow__kernel_find("dynamic_slice", dtype), 3, in, 1, &part, &(tow__sizes_params){{2, {3, 4}}});
        for (int64_t i = 0; i < 12; i++) assert_true(get(&part, i) == get(&x, (first[0] + i / 4) * 9 + first[1] + i % 4));
        tow__buffer update = random_operand(dtype, SHAPE(3, 4), how), operands[4] = {x, update, in[1], in[2]};
        const tow__kernel *kernel = tow__kernel_find("dynamic_update_slice", dtype);
        run_kernel(kernel, 4, operands, 1, &whole, NULL);
        for (int64_t i = 0; i < 54; i++) {
            int64_t row = i / 9 - first[0], column = i % 9 - first[1];
            bool inside = row >= 0 && row < 3 && column >= 0 && column < 4;
            assert_true(get(&whole, i) == (inside ? get(&update, row * 4 + column) : get(&x, i)));
        }
        tow__buffer same = make(dtype, SHAPE(6, 9), ROW_MAJOR);
        for (int64_t i = 0; i < 54; i++) set(&same, i, get(&x, i));
        operands[0] = same;
        run_once(kernel, 4, operands, 1, &same, NULL, 2);
        assert_equal_bits(&same, &whole, "dynamic_update_slice in place");
        release_all();
    }
}

static void gather_and_scatter(void **state)
{
    (void)state;
    for (size_t c = 0; c < 4 * LAYOUTS * 2; c++) {
        tow_dtype dtype = all_dtypes[c % 4], index_dtype = c / 4 / LAYOUTS ? TOW_U32 : TOW_I32;
        layout how = (layout)(c / 4 % LAYOUTS);
        tow__buffer in[2] = {random_operand(dtype, SHAPE(7, 3, 50), how), make(index_dtype, SHAPE(11, 2), how == REPEATED ? SPACED : how)};
        for (int64_t i = 0; i < 22; i++) set(&in[1], i, index_dtype == TOW_U32 ? (double)(random_bits() % 9) : (double)(random_bits() % 18) - 9);
        tow__buffer rows = make(dtype, SHAPE(11, 2, 3, 50), ROW_MAJOR), sums = make(dtype, SHAPE(7, 3, 50), ROW_MAJOR);
        run_kernel(tow__kernel_find("gather", dtype), 2, in, 1, &rows, NULL);
        double want[7 * 150] = {0};
        tow__buffer scatter[2] = {in[1], random_operand(dtype, SHAPE(11, 2, 3, 50), how)};
        run_kernel(tow__kernel_find("scatter_add", dtype), 2, scatter, 1, &sums, &(tow__rows_params){7});
        for (int64_t i = 0; i < 22; i++) {
            int64_t row = (int64_t)get(&in[1], i);
            if (row < 0) row += 7;
            bool inside = row >= 0 && row < 7;
            for (int64_t j = 0; j < 150; j++) {
                double got = get(&rows, i * 150 + j);
                if (inside) {
                    assert_true(got == get(&in[0], row * 150 + j));
                    want[row * 150 + j] = as_type(want[row * 150 + j] + get(&scatter[1], i * 150 + j), dtype);
                } else {
                    assert_true(dtype <= TOW_F64 ? isnan(got) : got == 0);
                }
            }
        }
        for (int64_t i = 0; i < 7 * 150; i++) assert_close(get(&sums, i), want[i], 0, "scatter_add", i);
        release_all();
    }
}

/* ---- the registry ---------------------------------------------------------------------------------------------------------------------- */

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
        cmocka_unit_test(binary_operations),    cmocka_unit_test(in_place),         cmocka_unit_test(nan_propagates),
        cmocka_unit_test(select_and_clamp),     cmocka_unit_test(unary_operations), cmocka_unit_test(gelus),
        cmocka_unit_test(powers),               cmocka_unit_test(inverse_error_function),
        cmocka_unit_test(integer_edges),        cmocka_unit_test(conversions),      cmocka_unit_test(threefry),
        cmocka_unit_test(reductions_over_axes), cmocka_unit_test(long_reductions),  cmocka_unit_test(argmax_and_cumsum),
        cmocka_unit_test(copy_and_iota),        cmocka_unit_test(transpositions),   cmocka_unit_test(pads),
                   cmocka_unit_test(concatenations),
        cmocka_unit_test(dynamic_slices),       cmocka_unit_test(gather_and_scatter), cmocka_unit_test(registry),
    };
    return cmocka_run_group_tests_name("base kernels", tests, NULL, NULL);
}

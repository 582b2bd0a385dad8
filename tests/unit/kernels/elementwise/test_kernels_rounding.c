/* Tests how far softmax, the norms and AdamW may be off what they are in exact arithmetic, in units in the last place
 * (ulps) of the terms that meet in them, over wide ranges of floats: docs/techniques.md states these bounds. Compared
 * with double. */
#include "tests/unit/support/kernels.h"

#include <float.h>

#include "src/train/optimizer.h"

enum {
    ROUNDS = 60
};

/* Of a sign, and any magnitude between powers of two. */
static double spread(int low, int high)
{
    int exponent = low + (int)(random_bits() % (uint32_t)(high - low));
    return (double)(float)ldexp(random_unit() < 0 ? -1 - fabs(random_unit()) : 1 + fabs(random_unit()), exponent);
}

static void keep_largest(double *largest, double x)
{
    if (!(x <= *largest)) *largest = x;
}

/* Of an element: 3, one for each unit of its distance from the largest, whose rounding the exponential magnifies, and
 * one for each 1024 elements, which are summed in lanes. */
static void softmax_rounds_little(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 31, 257, 4096};
    double largest = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t rows = 3, n = lengths[round % 5];
        tow__buffer x = make(TOW_F32, SHAPE(rows, n), ROW_MAJOR), y = make(TOW_F32, SHAPE(rows, n), ROW_MAJOR);
        const double width = ldexp(1, round % 9 - 2), center = spread(-4, 12);
        for (int64_t i = 0; i < rows * n; i++) set(&x, i, (double)(float)(center + width * random_unit()));
        run_kernel(tow__kernel_find("softmax", TOW_F32), 1, &x, 1, &y, &(tow__axis_params){1});
        for (int64_t r = 0; r < rows; r++) {
            double top = -INFINITY, sum = 0;
            for (int64_t i = r * n; i < (r + 1) * n; i++) top = fmax(top, get(&x, i));
            for (int64_t i = r * n; i < (r + 1) * n; i++) sum += exp(get(&x, i) - top);
            for (int64_t i = r * n; i < (r + 1) * n; i++) {
                double below = top - get(&x, i), bound = 3 + below + (double)n / 1024;
                keep_largest(&largest, fabs(get(&y, i) - exp(-below) / sum) / ulp_of(exp(-below) / sum) / bound);
            }
        }
        release_all();
    }
    print_message("softmax: %.2f of the bound\n", largest);
    assert_true(largest <= 1);
}

/* Of a result: 4 ulps of the largest |x| of the row, times rstd and |scale|, plus |bias|: the mean has their errors. */
static void norms_round_little(void **state)
{
    (void)state;
    static const int64_t lengths[] = {2, 31, 256, 1024, 5000};
    double largest = 0;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        const bool centered = round % 2;
        const int64_t n = lengths[round / 2 % 5];
        const double epsilon = 1e-5, width = spread(-8, 40), center = round % 3 ? width * spread(-10, 6) : 0;
        tow__buffer x = make(TOW_F32, SHAPE(1, n), ROW_MAJOR), scale = make(TOW_F32, SHAPE(n), ROW_MAJOR),
                    bias = make(TOW_F32, SHAPE(n), ROW_MAJOR), y = make(TOW_F32, SHAPE(1, n), ROW_MAJOR),
                    kept[2] = {make(TOW_F32, SHAPE(1), ROW_MAJOR), make(TOW_F32, SHAPE(1), ROW_MAJOR)};
        double mean = 0, square = 0, most = 0;
        for (int64_t i = 0; i < n; i++) {
            set(&x, i, (double)(float)(center + width * random_unit()));
            set(&scale, i, spread(-6, 6));
            set(&bias, i, spread(-20, 6));
            mean += centered ? get(&x, i) / (double)n : 0;
            most = fmax(most, fabs(get(&x, i)));
        }
        for (int64_t i = 0; i < n; i++) square += (get(&x, i) - mean) * (get(&x, i) - mean) / (double)n;
        const double rstd = 1 / sqrt(square + epsilon);
        tow__buffer in[] = {x, scale, bias}, out[] = {y, kept[0], kept[1]};
        run_kernel(tow__kernel_find(centered ? "layer_norm" : "rms_norm", TOW_F32), centered ? 3 : 2, in,
                   centered ? 3 : 2, out, &(tow__norm_params){epsilon});
        for (int64_t i = 0; i < n; i++) {
            double b = centered ? get(&bias, i) : 0, want = (get(&x, i) - mean) * rstd * get(&scale, i) + b;
            double terms = most * rstd * fabs(get(&scale, i)) + fabs(b);
            keep_largest(&largest, fabs(get(&y, i) - want) / ulp_of(terms) / 4);
        }
        release_all();
    }
    print_message("norms: %.2f of the bound\n", largest);
    assert_true(largest <= 1);
}

enum {
    COUNT = 1003
};

/* One update by AdamW, with slots that are given. */
static void update_by_adamw(const tow_standard_optimizer *options, int64_t step, float *p, float *m, float *v,
                            const float *g)
{
    const tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){COUNT});
    tow_context *ctx;
    tow_array *parameter, *gradient;
    tow_params *params;
    tow_optimizer_state *state;
    tow__optimizer_transforms transforms;
    assert_int_equal(tow_context_create(NULL, &ctx), TOW_OK);
    assert_int_equal(tow_array_from_data(ctx, type, p, &parameter), TOW_OK);
    assert_int_equal(tow_array_from_data(ctx, type, g, &gradient), TOW_OK);
    assert_int_equal(tow_params_from_arrays(ctx, 1, (const char *const[]){"p"}, &parameter, &params), TOW_OK);
    tow__optimizer_chain(options, &transforms);
    assert_int_equal(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&transforms.chain), params, NULL, &state),
                     TOW_OK);
    tow_optimizer_set_step_count(state, step);
    float *slots[] = {m, v};
    for (size_t i = 0; i < 2; i++)
        memcpy(tow_array_data(tow_params_array(tow_optimizer_slot(state, i), 0)), slots[i], COUNT * sizeof(float));
    assert_int_equal(tow_optimizer_update(state, &gradient), TOW_OK);
    memcpy(p, tow_array_data(parameter), COUNT * sizeof(float));
    for (size_t i = 0; i < 2; i++)
        memcpy(slots[i], tow_array_data(tow_params_array(tow_optimizer_slot(state, i), 0)), COUNT * sizeof(float));
    tow_optimizer_free(state);
    tow_params_free(params);
    tow_array_release(parameter);
    tow_array_release(gradient);
    tow_context_free(ctx);
}

/* m: 1.5 ulps of |b1 m| + |(1 - b1) g|; v: 2 ulps, and the
 * smallest normal number for each of its two terms, because subnormal ones count as zeros; p: one ulp of its own and 4
 * of what is subtracted, made of the new m and v as they are rounded, while v / (1 - b2^t) is finite. */
static void adamw_rounds_little(void **state)
{
    (void)state;
    static float p[COUNT], m[COUNT], v[COUNT], g[COUNT], before[3][COUNT];
    const double b1 = (double)0.9f, b2 = (double)0.999f, c1 = (double)0.1f, c2 = (double)0.001f, eps = (double)1e-8f;
    double largest[3] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        const double rate = (double)(float)fabs(spread(-14, 0)), decay = round % 2 ? (double)0.1f : 0;
        const double bias1 = (double)(float)(1 - pow(0.9, round + 1)),
                     bias2 = (double)(float)(1 - pow(0.999, round + 1));
        const tow_standard_optimizer options = {.b1 = 0.9,
                                                .b2 = 0.999,
                                                .eps = 1e-8,
                                                .learning_rate = tow_schedule_constant(rate),
                                                .weight_decay = decay,
                                                .decay_all = true};
        for (int i = 0; i < COUNT; i++) {
            p[i] = (float)spread(-60, 60), m[i] = (float)spread(-70, 50), g[i] = (float)spread(-70, 50);
            v[i] = (float)fabs(spread(-140, 110));
        }
        memcpy(before[0], p, sizeof p), memcpy(before[1], m, sizeof m), memcpy(before[2], v, sizeof v);
        update_by_adamw(&options, round, p, m, v, g);
        for (int i = 0; i < COUNT; i++) {
            double from_m = b1 * (double)before[1][i], from_g = c1 * (double)g[i];
            double square = b2 * (double)before[2][i] + c2 * (double)g[i] * (double)g[i];
            double step = (double)m[i] / bias1 / (sqrt((double)v[i] / bias2) + eps);
            double less = rate * (step + decay * (double)before[0][i]);
            double terms = rate * (fabs(step) + fabs(decay * (double)before[0][i]));
            double want = (double)before[0][i] - less, allowed = ulp_of(want) + 4 * ulp_of(terms);
            keep_largest(&largest[0],
                         fabs((double)m[i] - (from_m + from_g)) / ulp_of(fabs(from_m) + fabs(from_g)) / 1.5);
            keep_largest(&largest[1], fabs((double)v[i] - square) / (2 * ulp_of(square) + 2 * (double)FLT_MIN));
            keep_largest(&largest[2], fabs((double)p[i] - want) / allowed);
        }
    }
    print_message("AdamW: m %.2f, v %.2f, p %.2f of the bound\n", largest[0], largest[1], largest[2]);
    for (int i = 0; i < 3; i++) assert_true(largest[i] <= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_rounds_little),
        cmocka_unit_test(norms_round_little),
        cmocka_unit_test(adamw_rounds_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

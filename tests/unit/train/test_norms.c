/* Norms of gradients near the ends of what element types hold: clipping, trust ratios, blocks, Muon. Expected values
 * are arithmetic. Tests norms.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/dtypes.h"
#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

static const tow_clip_by_global_norm clip = {{&tow_clip_by_global_norm_class, sizeof(tow_clip_by_global_norm)}, 1};
static const tow_clip_by_global_norm tiny_clip = {{&tow_clip_by_global_norm_class, sizeof(tow_clip_by_global_norm)},
                                                  1e-20};
static const tow_clip_by_block_rms block_clip = {.base = {&tow_clip_by_block_rms_class, sizeof(tow_clip_by_block_rms)}};
static const tow_scale_by_param_block_rms block_rms = {
    .base = {&tow_scale_by_param_block_rms_class, sizeof(tow_scale_by_param_block_rms)}};
static const tow_scale_by_trust_ratio trust = {
    .base = {&tow_scale_by_trust_ratio_class, sizeof(tow_scale_by_trust_ratio)}};
static const tow_scale_by_muon muon = {
    .base = {&tow_scale_by_muon_class, sizeof(tow_scale_by_muon)}, .plain_momentum = true, .steps = 1};

#define F16_MAX  65504.0
#define BF16_MAX 0x1.fep127
#define ROOT2    1.4142135623730951

/* n elements p and g each -> the change of each, with a relative tolerance of two roundings of the type. Muon:
 * 1/sqrt(n) = x, X <- a X + (b A + c A A) X of the 1 x n matrix x: A = 1, so (a + b + c) x = 0.701 x, and for columns /
 * rows = n times sqrt(n). */
static const struct {
    const char *name;
    const tow_gradient_transform *transform;
    tow_dtype dtype;
    int n;
    double p, g, expected;
} cases[] = {
    {"clip, largest", &clip.base, TOW_F32, 2, 0, FLT_MAX, 1 / ROOT2},
    {"clip, largest", &clip.base, TOW_F64, 2, 0, DBL_MAX, 1 / ROOT2},
    {"clip, largest", &clip.base, TOW_F16, 2, 0, F16_MAX, 1 / ROOT2},
    {"clip, largest", &clip.base, TOW_BF16, 2, 0, BF16_MAX, 1 / ROOT2},
    {"clip, many", &clip.base, TOW_F16, 10000, 0, F16_MAX, 0.01},
    {"clip, many", &clip.base, TOW_F32, 10000, 0, -FLT_MAX, -0.01},
    {"clip, above 8.5e37", &clip.base, TOW_F32, 1, 0, 8.6e37, 1},
    {"clip, below 8.5e37", &clip.base, TOW_F32, 1, 0, 8.4e37, 1},
    {"clip to little", &tiny_clip.base, TOW_F32, 2, 0, 1e20, 1e-20 / ROOT2},
    {"clip to little", &tiny_clip.base, TOW_F64, 2, 0, 1e300, 1e-20 / ROOT2},
    {"clip, below the norm", &clip.base, TOW_F64, 2, 0, 1e-300, 1e-300},
    {"block clip", &block_clip.base, TOW_F32, 3, 0, FLT_MAX, 1},
    {"block clip", &block_clip.base, TOW_F64, 3, 0, -DBL_MAX, -1},
    {"block clip", &block_clip.base, TOW_F16, 3, 0, 300, 1},
    {"block clip, small", &block_clip.base, TOW_F16, 3, 0, 0.5, 0.5},
    {"block rms", &block_rms.base, TOW_F16, 3, 300, 2, 600},
    {"block rms", &block_rms.base, TOW_F32, 3, 1e30, 1e-30, 1},
    {"block rms", &block_rms.base, TOW_F64, 3, 1e200, 1e-200, 1},
    {"trust ratio", &trust.base, TOW_F32, 2, 1, FLT_MAX, 1},
    {"trust ratio", &trust.base, TOW_F32, 2, 1, 1e-30, 1},
    {"trust ratio", &trust.base, TOW_F32, 2, 1e30, 1e-30, 1e30},
    {"trust ratio", &trust.base, TOW_F32, 2, 1e-30, 1e30, 1e-30},
    {"trust ratio", &trust.base, TOW_F64, 2, 1, 1e-300, 1},
    {"trust ratio", &trust.base, TOW_F64, 2, 1e300, 1e-300, 1e300},
    {"trust ratio", &trust.base, TOW_F64, 2, 1e-300, DBL_MAX, 1e-300},
    {"trust ratio", &trust.base, TOW_F16, 2, 300, 600, 300},
    {"trust ratio", &trust.base, TOW_BF16, 2, 2, BF16_MAX, 2},
    {"trust ratio, zero", &trust.base, TOW_F64, 2, 0, 3, 3},
    {"muon", &muon.base, TOW_F32, 4, 0, 1e30, (3.4445 - 4.7750 + 2.0315)},
    {"muon", &muon.base, TOW_F64, 4, 0, 1e200, (3.4445 - 4.7750 + 2.0315)},
};

static double places(tow_dtype dtype)
{
    return dtype == TOW_F64 ? 0x1p-50 : dtype == TOW_F32 ? 0x1p-21 : dtype == TOW_F16 ? 0x1p-10 : 0x1p-7;
}

static tow_array *filled(tow_type type, double value)
{
    tow_array *x;
    OK(tow_array_create(ctx, type, &x));
    for (int64_t i = 0; i < tow_type_element_count(type); i++)
        tow__store_element(type.dtype, tow_array_data(x), i, value);
    return x;
}

static void ends_of_types(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const tow_type type = tow_make_type(cases[k].dtype, 2, (int64_t[]){1, cases[k].n});
        tow_array *p = filled(type, cases[k].p), *g = filled(type, cases[k].g);
        tow_params *params;
        tow_optimizer_state *optimizer;
        OK(tow_params_from_arrays(ctx, 1, (const char *const[]){"w"}, &p, &params));
        OK(tow_optimizer_create(ctx, cases[k].transform, params, NULL, &optimizer));
        OK(tow_optimizer_update(optimizer, &g));
        for (int64_t i = 0; i < cases[k].n; i++) {
            const double found = tow__load_element(type.dtype, tow_array_data(p), i).f;
            const double expected = cases[k].p + cases[k].expected;
            if (!(fabs(found - expected) <= places(type.dtype) * fabs(expected)))
                fail_msg("%s of %d %s %g: expected %.9g, found %.9g", cases[k].name, cases[k].n,
                         tow_dtype_name(type.dtype), cases[k].g, expected, found);
        }
        tow_optimizer_free(optimizer);
        tow_params_free(params);
        tow_array_release(p);
        tow_array_release(g);
    }
}

/* One norm of parameters of several types; it is reported. */
static void of_several_types(void **state)
{
    (void)state;
    static const tow_dtype dtypes[] = {TOW_F32, TOW_F64, TOW_F16, TOW_BF16};
    static const char *const paths[] = {"a", "b", "c", "d"};
    static const double larges[] = {1e3, 1e300};
    for (int large = 0; large < 2; large++) {
        tow_array *p[4], *g[4];
        tow_params *params;
        tow_optimizer_state *optimizer;
        for (int i = 0; i < 4; i++) {
            const tow_type type = tow_make_type(dtypes[i], 0, NULL);
            p[i] = filled(type, 0);
            g[i] = filled(type, dtypes[i] == TOW_F64 ? larges[large] : 1e3);
        }
        const double norm = large ? 1e300 : 2e3;
        OK(tow_params_from_arrays(ctx, 4, paths, p, &params));
        OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&clip), params, NULL, &optimizer));
        OK(tow_optimizer_update(optimizer, g));
        assert_true(fabs(tow_optimizer_reported(optimizer, "clip/norm") - norm) <= 1e-14 * norm);
        for (int i = 0; i < 4; i++) {
            const double found = tow__load_element(dtypes[i], tow_array_data(p[i]), 0).f;
            const double expected = tow__load_element(dtypes[i], tow_array_data(g[i]), 0).f / norm;
            assert_true(fabs(found - expected) <= places(dtypes[i]) * expected || (large && found == 0));
        }
        tow_optimizer_free(optimizer);
        tow_params_free(params);
        for (int i = 0; i < 4; i++) tow_array_release(p[i]), tow_array_release(g[i]);
    }
}

/* A value that is not finite reaches every parameter, or none but those that hold it. */
static void not_finite(void **state)
{
    (void)state;
    static const tow_dtype dtypes[] = {TOW_F32, TOW_F64};
    for (int i = 0; i < 2; i++) {
        const tow_type type = tow_make_type(dtypes[i], 2, (int64_t[]){1, 2});
        for (int infinite = 0; infinite < 2; infinite++) {
            tow_array *p = filled(type, 0), *g = filled(type, 3);
            tow_params *params;
            tow_optimizer_state *optimizer;
            tow__store_element(type.dtype, tow_array_data(g), 0, infinite ? (double)INFINITY : (double)NAN);
            OK(tow_params_from_arrays(ctx, 1, (const char *const[]){"w"}, &p, &params));
            OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&clip), params, NULL, &optimizer));
            OK(tow_optimizer_update(optimizer, &g));
            assert_true(isnan(tow__load_element(type.dtype, tow_array_data(p), 0).f));
            const double other = tow__load_element(type.dtype, tow_array_data(p), 1).f;
            assert_true(infinite ? other == 0 : isnan(other));
            tow_optimizer_free(optimizer);
            tow_params_free(params);
            tow_array_release(p);
            tow_array_release(g);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ends_of_types), cmocka_unit_test(of_several_types),
                                       cmocka_unit_test(not_finite)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* L-BFGS, line searches and private gradients beside Optax (tests/oracle/optax_searches.py). Tests lbfgs.c,
 * line_search.c, privacy.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/dtypes.h"
#include "tests/unit/support/golden_parameters.h"

#define GOLDEN "optax_searches.txt"

/* ---- a function of the parameters -------------------------------------------------------------------------------- */

typedef struct problem {
    golden_problem p;
    tow_dtype dtype;
    int calls;
    int fails_at;     /* the call that returns an error; 0: none */
    double nan_above; /* the loss is NaN where an element is larger; 0: nowhere */
} problem;

/* Sum of a x^2 / 2 + x^4 / 4, a = 1 + i mod 4, and 0.05 (sum of all x)^2, in the type of the parameters at its end. */
static tow_status function(double *loss, tow_array *const *gradients, void *user)
{
    problem *q = user;
    double sum = 0, total = 0;
    if (++q->calls == q->fails_at) return TOW_IO_ERROR;
    for (size_t j = 0; j < PARAMETERS; j++)
        for (int64_t i = 0; i < tow_type_element_count(type_of(j, q->dtype)); i++)
            sum += element_of(q->p.parameters[j], i);
    for (size_t j = 0; j < PARAMETERS; j++)
        for (int64_t i = 0; i < tow_type_element_count(type_of(j, q->dtype)); i++) {
            const double x = element_of(q->p.parameters[j], i), a = 1 + (double)(i % 4);
            total += a * x * x / 2 + x * x * x * x / 4;
            if (q->nan_above > 0 && x > q->nan_above) total = NAN;
            tow__store_element(q->dtype, tow_array_data(gradients[j]), i, a * x + x * x * x + 0.1 * sum);
        }
    *loss = total + 0.05 * sum * sum;
    return TOW_OK;
}

static problem make_problem(tow_dtype dtype) { return (problem){.p = make_golden_problem(dtype), .dtype = dtype}; }

/* The calls behind the first one of each step, as the line "calls_NAME" has them. */
static void expect_calls(const char *name, tow_dtype dtype, int steps, const int *calls)
{
    char start[60];
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/" GOLDEN, "r");
    assert_non_null(file);
    const int length = snprintf(start, sizeof start, "calls_%s %s - ", name, tow_dtype_name(dtype));
    static char line[1 << 14];
    bool found = false;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, start, (size_t)length) != 0) continue;
        found = true;
        char *at = line + length;
        for (int i = 0; i < steps; i++) {
            const long expected = strtol(at, &at, 10);
            if (calls[i] != expected)
                fail_msg("%s, step %d: expected %ld calls, found %d", name, i, expected, calls[i]);
        }
    }
    fclose(file);
    assert_true(found);
}

/* ---- searches ---------------------------------------------------------------------------------------------------- */

static const tow_scale minus = {{&tow_scale_class, sizeof(tow_scale)}, -1};
static const tow_scale_by_lbfgs lbfgs = {.base = {&tow_scale_by_lbfgs_class, sizeof(tow_scale_by_lbfgs)}};
static const tow_scale_by_lbfgs short_lbfgs = {
    .base = {&tow_scale_by_lbfgs_class, sizeof(tow_scale_by_lbfgs)}, .memory_size = 2, .no_scaled_precond = true};
static const tow_scale_by_lbfgs three = {.base = {&tow_scale_by_lbfgs_class, sizeof(tow_scale_by_lbfgs)},
                                         .memory_size = 3};
static const tow_scale_by_learning_rate fixed = {
    .base = {&tow_scale_by_learning_rate_class, sizeof(tow_scale_by_learning_rate)},
    .schedule = {.kind = TOW_SCHEDULE_CONSTANT, .peak_value = 0.3}};

static const struct {
    const char *name;
    const tow_gradient_transform *first; /* NULL: none */
    tow_line_search_options search;
    int steps;
    double tolerance[2];
} searches[] = {
    /* f32: Optax's loss and slopes are f32, of which differences make rates. */
    {"lbfgs", &lbfgs.base, {0}, 6, {5e-6, 1e-13}},
    {"lbfgs_short", &short_lbfgs.base, {.keep_learning_rate = true, .curv_rtol = 0.05}, 6, {5e-6, 1e-13}},
    {"lbfgs_most", &lbfgs.base, {.max_learning_rate = 0.3, .approx_dec_rtol = -1}, 5, {5e-6, 1e-13}},
    {"gradient_search", NULL, {.keep_learning_rate = true, .curv_rtol = 0.02}, 5, {5e-6, 1e-13}},
};

static void line_searches(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof searches / sizeof *searches; k++) {
        const tow_gradient_transform *list[] = {searches[k].first ? searches[k].first : &minus.base, &minus.base};
        const tow_chain chain = {{&tow_chain_class, sizeof(tow_chain)}, list, searches[k].first ? 2 : 1};
        for (int wide = 0; wide < 2; wide++) {
            problem q = make_problem(wide ? TOW_F64 : TOW_F32);
            tow_optimizer_state *optimizer;
            int calls[8];
            OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&chain), q.p.params,
                                    &TOW_OPTIMIZER_OPTIONS(.line_search = true), &optimizer));
            for (int step = 0; step < searches[k].steps; step++) {
                tow_line_search_result result;
                tow_line_search_options search = searches[k].search;
                search.size = sizeof search;
                OK(tow_optimizer_line_search(optimizer, &search, function, &q, &result));
                calls[step] = result.calls - (step == 0);
                assert_false(result.failed);
            }
            expect_calls(searches[k].name, q.dtype, searches[k].steps, calls);
            assert_int_equal(compare_lines(GOLDEN, searches[k].name, searches[k].tolerance[wide], q.p.parameters),
                             PARAMETERS);
            tow_optimizer_free(optimizer);
            free_golden_problem(&q.p);
        }
    }
}

static void fixed_rate(void **state)
{
    (void)state;
    const tow_chain chain = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&three), TOW_GRADIENT_TRANSFORM(&fixed));
    for (int wide = 0; wide < 2; wide++) {
        problem q = make_problem(wide ? TOW_F64 : TOW_F32);
        tow_optimizer_state *optimizer;
        double loss;
        OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&chain), q.p.params, NULL, &optimizer));
        for (int step = 0; step < 20; step++) {
            OK(function(&loss, q.p.gradients, &q));
            OK(tow_optimizer_update(optimizer, q.p.gradients));
        }
        assert_int_equal(compare_lines(GOLDEN, "lbfgs_fixed", wide ? 1e-13 : 5e-6, q.p.parameters), PARAMETERS);
        tow_optimizer_free(optimizer);
        free_golden_problem(&q.p);
    }
}

/* A search meets functions that fail, have no value, or cannot be made smaller. */
static void hard_functions(void **state)
{
    (void)state;
    const tow_chain chain = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&lbfgs), TOW_GRADIENT_TRANSFORM(&minus));
    const tow_optimizer_options options = TOW_OPTIMIZER_OPTIONS(.line_search = true);
    tow_optimizer_state *optimizer;
    tow_line_search_result result;
    for (int at = 1; at <= 3; at++) { /* an error leaves the parameters alone */
        problem q = make_problem(TOW_F64);
        tow_params *before;
        q.fails_at = at;
        const tow_line_search_options strict = TOW_LINE_SEARCH_OPTIONS(.curv_rtol = 1e-6);
        OK(tow_params_copy(q.p.params, &before));
        OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&chain), q.p.params, &options, &optimizer));
        assert_int_equal(tow_optimizer_line_search(optimizer, &strict, function, &q, NULL), TOW_IO_ERROR);
        assert_true(tow_params_equal(before, q.p.params));
        OK(tow_optimizer_line_search(optimizer, NULL, function, &q, &result)); /* and the next one goes on */
        assert_false(result.failed || tow_params_equal(before, q.p.params));
        tow_optimizer_free(optimizer);
        tow_params_free(before);
        free_golden_problem(&q.p);
    }
    problem q = make_problem(TOW_F64);
    tow_params *before;
    OK(tow_params_copy(q.p.params, &before));
    q.nan_above = 1e-300; /* NaN at once: no step is made */
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&chain), q.p.params, &options, &optimizer));
    OK(tow_optimizer_line_search(optimizer, NULL, function, &q, &result));
    assert_true(result.failed && result.learning_rate == 0 && result.calls == 21);
    assert_true(tow_params_equal(before, q.p.params));
    tow_optimizer_free(optimizer);
    tow_params_free(before);
    /* one trial, with conditions that it does not meet: it stays where the decrease is enough, and the function is
     * called again */
    q.nan_above = 0;
    const tow_line_search_options one = TOW_LINE_SEARCH_OPTIONS(.max_steps = 1, .curv_rtol = 1e-9);
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&chain), q.p.params, &options, &optimizer));
    OK(tow_optimizer_line_search(optimizer, &one, function, &q, &result));
    assert_true(result.failed && result.learning_rate == 1 && result.calls == 2 && result.curvature_error > 0);
    double loss;
    OK(function(&loss, q.p.gradients, &q));
    assert_true(loss == result.loss);
    tow_optimizer_free(optimizer);
    free_golden_problem(&q.p);
}

/* ---- private gradients ------------------------------------------------------------------------------------------- */

enum {
    EXAMPLES = 5
};

static void private_gradients(void **state)
{
    (void)state;
    const tow_trace_gradients momentum = TOW_TRACE_GRADIENTS(.decay = 0.9);
    const tow_scale_by_learning_rate rate = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(0.1));
    const tow_differentially_private_aggregate noisy = TOW_DIFFERENTIALLY_PRIVATE_AGGREGATE(.l2_norm_clip = 2,
                                                                                            .noise_multiplier = 0.5,
                                                                                            .seed = 42),
                                               quiet = TOW_DIFFERENTIALLY_PRIVATE_AGGREGATE(.l2_norm_clip = 3);
    const tow_chain chains[] = {
        TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&noisy), TOW_GRADIENT_TRANSFORM(&momentum), TOW_GRADIENT_TRANSFORM(&rate)),
        TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&quiet), TOW_GRADIENT_TRANSFORM(&rate))};
    static const char *const names[] = {"private", "private_clip"};
    for (int c = 0; c < 2; c++)
        for (int wide = 0; wide < 2; wide++) {
            const tow_dtype dtype = wide ? TOW_F64 : TOW_F32;
            golden_problem p = make_golden_problem(dtype);
            tow_array *examples[PARAMETERS];
            tow_optimizer_state *optimizer;
            for (size_t j = 0; j < PARAMETERS; j++) {
                const tow_type one = type_of(j, dtype);
                const int64_t dims[3] = {EXAMPLES, one.dims[0], one.rank > 1 ? one.dims[1] : 0};
                OK(tow_array_create(ctx, tow_make_type(dtype, one.rank + 1, dims), &examples[j]));
            }
            OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&chains[c]), p.params,
                                    &TOW_OPTIMIZER_OPTIONS(.examples = EXAMPLES), &optimizer));
            for (int step = 0; step < 4; step++) {
                for (size_t j = 0; j < PARAMETERS; j++) fill(examples[j], j, step);
                OK(tow_optimizer_update(optimizer, examples));
            }
            assert_int_equal(compare_lines(GOLDEN, names[c], wide ? 1e-13 : 3e-6, p.parameters), PARAMETERS);
            expect_error(tow_optimizer_update(optimizer, p.gradients), TOW_TYPE_MISMATCH, "the gradient of params/b",
                         wide ? "expected f64[5,7], found f64[7]" : "expected f32[5,7], found f32[7]");
            tow_optimizer_free(optimizer);
            for (size_t j = 0; j < PARAMETERS; j++) tow_array_release(examples[j]);
            free_golden_problem(&p);
        }
}

static void refused(void **state)
{
    (void)state;
    golden_problem p = make_golden_problem(TOW_F32);
    tow_optimizer_state *o;
    const tow_differentially_private_aggregate aggregate = TOW_DIFFERENTIALLY_PRIVATE_AGGREGATE(.l2_norm_clip = 1),
                                               no_clip = TOW_DIFFERENTIALLY_PRIVATE_AGGREGATE(.noise_multiplier = 1);
    const tow_chain late = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&minus), TOW_GRADIENT_TRANSFORM(&aggregate));
    const tow_chain empty = {.base = {&tow_chain_class, sizeof(tow_chain)}};
    const tow_scale_by_lbfgs large = TOW_SCALE_BY_LBFGS(.memory_size = 101);
    const struct {
        const tow_gradient_transform *transform;
        tow_optimizer_options options;
        const char *text;
    } cases[] = {
        {TOW_GRADIENT_TRANSFORM(&late), {.examples = 5}, "scale: gradients are those of single examples"},
        {TOW_GRADIENT_TRANSFORM(&empty),
         {.examples = 5},
         "the end of the optimizer: gradients are those of single examples"},
        {TOW_GRADIENT_TRANSFORM(&aggregate), {0}, "set tow_optimizer_options.examples"},
        {TOW_GRADIENT_TRANSFORM(&no_clip), {.examples = 5}, "expected a finite l2_norm_clip above 0"},
        {TOW_GRADIENT_TRANSFORM(&aggregate), {.examples = -1}, "expected .examples in [0, 2^30), found -1"},
        {TOW_GRADIENT_TRANSFORM(&aggregate), {.examples = 5, .every = 2}, "expected .every = 0"},
        {TOW_GRADIENT_TRANSFORM(&aggregate), {.examples = 5, .line_search = true}, "found .examples and .line_search"},
        {TOW_GRADIENT_TRANSFORM(&large), {0}, "expected a memory_size in [1, 100], found 101"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_optimizer_options options = cases[i].options;
        options.size = sizeof options;
        expect_error(tow_optimizer_create(ctx, cases[i].transform, p.params, &options, &o), TOW_INVALID_ARGUMENT,
                     cases[i].text);
    }
    problem q = {.p = p, .dtype = TOW_F32};
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&minus), p.params, NULL, &o));
    expect_error(tow_optimizer_line_search(o, NULL, function, &q, NULL), TOW_INVALID_ARGUMENT,
                 "made without .line_search");
    tow_optimizer_free(o);
    OK(tow_optimizer_create(ctx, TOW_GRADIENT_TRANSFORM(&minus), p.params, &TOW_OPTIMIZER_OPTIONS(.line_search = true),
                            &o));
    expect_error(tow_optimizer_update(o, p.gradients), TOW_INVALID_ARGUMENT, "call tow_optimizer_line_search");
    const tow_line_search_options wrong = TOW_LINE_SEARCH_OPTIONS(.increase_factor = 0.5);
    expect_error(tow_optimizer_line_search(o, &wrong, function, &q, NULL), TOW_INVALID_ARGUMENT,
                 "increase_factor above 1");
    tow_optimizer_free(o);
    free_golden_problem(&p);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static tow_status half_of(double *loss, tow_array *const *gradients, void *user)
{
    const float *x = tow_array_data(user);
    *loss = 0;
    for (int i = 0; i < 4; i++) {
        *loss += 0.5 * (double)(x[i] * x[i]);
        ((float *)tow_array_data(gradients[0]))[i] = x[i];
    }
    return TOW_OK;
}

/* A wrapper in another one around options that follow schedules; L-BFGS and a search; private gradients. */
static tow_status make_and_run(tow_context *c)
{
    static const tow_scale_by_learning_rate rate = {
        .base = {&tow_scale_by_learning_rate_class, sizeof(tow_scale_by_learning_rate)},
        .schedule = {.kind = TOW_SCHEDULE_CONSTANT, .peak_value = 0.1}};
    static const tow_scale_by_adam adam = {.base = {&tow_scale_by_adam_class, sizeof(tow_scale_by_adam)},
                                           .mu_dtype = TOW_BF16};
    static const tow_scale_by_lbfgs one_pair = {.base = {&tow_scale_by_lbfgs_class, sizeof(tow_scale_by_lbfgs)},
                                                .memory_size = 1};
    const tow_scheduled_option option = {"b1", tow_schedule_constant(0.8)};
    const tow_inject_hyperparams injected = TOW_INJECT_HYPERPARAMS(&adam, .n = 1, .options = &option);
    const tow_chain fast = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&injected), TOW_GRADIENT_TRANSFORM(&rate));
    const tow_lookahead ahead = TOW_LOOKAHEAD(&fast, .sync_period = 2, .reset_state = true);
    const tow_sam sharp = TOW_SAM(&ahead, .ascent = TOW_GRADIENT_TRANSFORM(&minus));
    const tow_chain lbfgs_chain = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&one_pair), TOW_GRADIENT_TRANSFORM(&minus));
    const tow_differentially_private_aggregate aggregate =
        TOW_DIFFERENTIALLY_PRIVATE_AGGREGATE(.l2_norm_clip = 1, .noise_multiplier = 1);
    tow_array *x = NULL, *g = NULL, *examples = NULL;
    tow_params *params = NULL;
    tow_optimizer_state *o = NULL;
    tow_status status = tow_array_create(c, tow_make_type(TOW_F32, 1, (int64_t[]){4}), &x);
    if (!status) status = tow_array_create(c, tow_array_type(x), &g);
    if (!status) status = tow_array_create(c, tow_make_type(TOW_F32, 2, (int64_t[]){3, 4}), &examples);
    if (!status) status = tow_params_from_arrays(c, 1, (const char *const[]){"x"}, &x, &params);
    for (int i = 0; i < 4 && !status; i++) ((float *)tow_array_data(x))[i] = (float)i;
    if (!status) status = tow_optimizer_create(c, TOW_GRADIENT_TRANSFORM(&sharp), params, NULL, &o);
    if (!status) status = tow_optimizer_update(o, &g);
    tow_optimizer_free(o), o = NULL;
    if (!status)
        status = tow_optimizer_create(c, TOW_GRADIENT_TRANSFORM(&lbfgs_chain), params,
                                      &TOW_OPTIMIZER_OPTIONS(.line_search = true), &o);
    if (!status) status = tow_optimizer_line_search(o, NULL, half_of, x, NULL);
    tow_optimizer_free(o), o = NULL;
    if (!status)
        status = tow_optimizer_create(c, TOW_GRADIENT_TRANSFORM(&aggregate), params,
                                      &TOW_OPTIMIZER_OPTIONS(.examples = 3), &o);
    if (!status) status = tow_optimizer_update(o, &examples);
    tow_optimizer_free(o);
    tow_params_free(params);
    tow_array_release(x);
    tow_array_release(g);
    tow_array_release(examples);
    return status;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    fail_in_turn(make_and_run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(line_searches),  cmocka_unit_test(fixed_rate),
                                       cmocka_unit_test(hard_functions), cmocka_unit_test(private_gradients),
                                       cmocka_unit_test(refused),        cmocka_unit_test(allocations_may_fail)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

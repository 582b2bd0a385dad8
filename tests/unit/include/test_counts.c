/* Counts of callers that are far too large are refused with their name: sums of them must not wrap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/threaded_context.h"
#include "tow/autodiff.h"
#include "tow/tow.h"

static const size_t counts[] = {
    SIZE_MAX,      SIZE_MAX - 1,      SIZE_MAX - 64,   SIZE_MAX / 2,           SIZE_MAX / 8,
    SIZE_MAX / 16, SIZE_MAX / 32 + 1, (size_t)1 << 40, (size_t)UINT32_MAX + 2, (size_t)1 << 31};

static const tow_dense model = TOW_DENSE(.features = 2);
static const tow_type types[1] = {{.dtype = TOW_F32, .rank = 2, .dims = {4, 3}}};
static const tow_type labels[1] = {{.dtype = TOW_F32, .rank = 2, .dims = {4, 2}}};

static void squares(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss, tow_value *aux,
                    void *user)
{
    (void)trace, (void)aux, (void)user;
    *loss = tow_mean(tow_square(tow_sub(out[0], extra[0])), 0, NULL);
}

static void expect_refused(tow_status status, const char *name, size_t count)
{
    if (status != TOW_INVALID_ARGUMENT || !strstr(tow_context_error(ctx), name))
        fail_msg("%s = %zu: expected \"%s\" and a message that names it, found \"%s\": %s", name, count,
                 tow_status_text(TOW_INVALID_ARGUMENT), tow_status_text(status), tow_context_error(ctx));
    tow_context_clear_error(ctx);
}

static void of_training_states(void **state)
{
    (void)state;
    tow_train_state *s = NULL;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int field = 0; field < 5; field++) {
            tow_train_options o = TOW_TRAIN_OPTIONS(.n_inputs = 1, .input_types = types, .n_extra = 1,
                                                    .extra_types = labels, .loss = squares);
            size_t *const fields[] = {&o.n_inputs, &o.n_extra, &o.n_aux, &o.micro_batches, &o.other_shapes};
            static const char *const names[] = {".n_inputs", ".n_extra", ".n_aux", ".micro_batches", ".other_shapes"};
            *fields[field] = counts[i];
            expect_refused(tow_train_create(ctx, TOW_MODULE(&model), &o, &s), names[field], counts[i]);
            assert_null(s);
        }
}

static void of_model_functions(void **state)
{
    (void)state;
    tow_params *params = NULL, *drawn = NULL;
    tow_model_function *f = NULL;
    tow_graph *graph = NULL;
    OK(tow_model_init(ctx, TOW_MODULE(&model), 0, 1, types, &params));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const size_t n = counts[i];
        for (int field = 0; field < 4; field++) {
            tow_model_function_options o = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1, .n_extra = 1, .loss = squares);
            size_t *const fields[] = {&o.n_inputs, &o.n_extra, &o.n_aux, &o.limit};
            static const char *const names[] = {".n_inputs", ".n_extra", ".n_aux", ".limit"};
            *fields[field] = n;
            expect_refused(tow_model_function_create_value_and_grad(TOW_MODULE(&model), params, &o, &f), names[field],
                           n);
            expect_refused(tow_model_function_create(TOW_MODULE(&model), params, &o, &f), names[field], n);
        }
        const tow_model_options many = TOW_MODEL_OPTIONS(.n_outputs = n);
        expect_refused(tow_model_init(ctx, TOW_MODULE(&model), 0, n, types, &drawn), "n_inputs", n);
        expect_refused(tow_model_init_with(ctx, TOW_MODULE(&model), 0, 1, types, &many, &drawn, NULL), "n_outputs", n);
        expect_refused(tow_model_forward_graph(TOW_MODULE(&model), params, n, types, NULL, &graph), "n_inputs", n);
        expect_refused(tow_model_forward_graph(TOW_MODULE(&model), params, 1, types, &many, &graph), "n_outputs", n);
        expect_refused(
            tow_model_loss_graph(TOW_MODULE(&model), params, 1, types, n, labels, squares, NULL, 0, NULL, &graph),
            "n_extra", n);
        expect_refused(
            tow_model_loss_graph(TOW_MODULE(&model), params, 1, types, 1, labels, squares, NULL, n, NULL, &graph),
            "n_aux", n);
    }
    assert_true(!drawn && !f && !graph);
    tow_params_free(params);
}

/* ---- tracing ----------------------------------------------------------------------------------------------------- */

static void identity(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t, (void)user;
    out[0] = in[0];
}

/* user: the number of residuals */
static void with_a_rule(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    tow_custom_vjp_function(t, identity, identity, identity, NULL, NULL, 1, in, *(const size_t *)user, 1, out);
}

static tow_status make_nothing(const tow_type *wanted, tow_program **program, void **data, void *user)
{
    (void)user, (void)wanted, (void)program, (void)data;
    return TOW_UNSUPPORTED;
}

static void of_traced_functions(void **state)
{
    (void)state;
    tow_graph *graph = NULL;
    tow_program_cache *cache = NULL;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t n = counts[i];
        expect_refused(tow_trace_function(ctx, identity, NULL, n, types, NULL, 1, &graph), "n_inputs", n);
        expect_refused(tow_trace_function(ctx, identity, NULL, 1, types, NULL, n, &graph), "n_outputs", n);
        expect_refused(tow_trace_function(ctx, with_a_rule, &n, 1, types, NULL, 1, &graph), "n_residuals", n);
        const tow_program_cache_options options = TOW_PROGRAM_CACHE_OPTIONS(.n_types = n, .make = make_nothing);
        expect_refused(tow_program_cache_create(ctx, &options, &cache), ".n_types", n);
    }
    assert_true(!graph && !cache);
}

static void of_loaders(void **state)
{
    (void)state;
    tow_array *array = NULL;
    tow_source *source = NULL;
    tow_loader *loader = NULL;
    OK(tow_array_create(ctx, types[0], &array));
    OK(tow_source_array(ctx, array, &source));
    const tow_field field = {.source = source};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        tow_loader_options o = TOW_LOADER_OPTIONS(.fields = &field, .n_fields = counts[i], .batch = 2);
        expect_refused(tow_loader_create(ctx, &o, &loader), ".n_fields", counts[i]);
        o = TOW_LOADER_OPTIONS(.fields = &field, .n_fields = 1, .batch = 2, .output_types = types,
                               .n_outputs = counts[i]);
        expect_refused(tow_loader_create(ctx, &o, &loader), ".n_outputs", counts[i]);
    }
    tow_source_release(source);
    tow_array_release(array);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(of_training_states), TEST(of_model_functions), TEST(of_traced_functions),
                                       TEST(of_loaders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

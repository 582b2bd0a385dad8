/* Attention with a cache: against Flax, position by position and past the end (tests/oracle/flax_decode.py); prompts of
 * several positions; the cache in place.
 * Tests attention_cache.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"

#include "tests/unit/support/shape_text.h"
#include "tow/tow.h"

/* ---- a model and its state --------------------------------------------------------------------------------------- */

enum {
    MOST = 64
};

/* A model that is called again and again, with the arrays of its parameters and variables. */
typedef struct session {
    const tow_module *model;
    tow_params *params, *state;
    tow_array *variables[MOST];
} session;

static const char *const caches[] = {"cache", NULL};

static void start(session *s, const tow_module *model, tow_type input)
{
    *s = (session){.model = model};
    OK(tow_model_init_with(ctx, model, 3, 1, &input, NULL, &s->params, &s->state));
    for (size_t i = 0; i < tow_params_count(s->state); i++)
        s->variables[i] = tow_array_retain(tow_params_array(s->state, i));
}

/* The output for x, which becomes the caller's; the variables go on. */
static tow_array *call(session *s, tow_array *x)
{
    size_t n = tow_params_count(s->params), n_state = tow_params_count(s->state);
    tow_type type = tow_array_type(x);
    tow_model_options options = TOW_MODEL_OPTIONS(.state = s->state, .mutable_collections = n_state ? caches : NULL);
    tow_array *in[2 * MOST], *out[MOST];
    tow_graph *graph;
    OK(tow_model_forward_graph(s->model, s->params, 1, &type, &options, &graph));
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(s->params, i);
    for (size_t i = 0; i < n_state; i++) in[n + i] = s->variables[i];
    in[n + n_state] = x;
    OK(tow_evaluate(graph, in, out));
    for (size_t i = 0; i < n_state; i++) {
        tow_array_release(s->variables[i]);
        s->variables[i] = out[1 + i];
    }
    tow_graph_release(graph);
    return out[0];
}

static void stop(session *s)
{
    for (size_t i = 0; i < tow_params_count(s->state); i++) tow_array_release(s->variables[i]);
    tow_params_free(s->params);
    tow_params_free(s->state);
}

/* Positions [first, first + n) of the sequence [B, length, D] of exact fractions that flax_models.py has. */
static tow_array *positions_of(int64_t B, int64_t length, int64_t D, int64_t first, int64_t n)
{
    tow_array *x;
    OK(tow_array_create(ctx, tow_make_type(TOW_F32, 3, (int64_t[]){B, n, D}), &x));
    float *to = tow_array_data(x);
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0; i < n * D; i++) *to++ = (float)((((b * length + first) * D + i) * 7919) % 257 - 128) / 64;
    return x;
}

static double element(tow_array *array, int64_t i)
{
    return tow_array_type(array).dtype == TOW_I32 ? (double)((int32_t *)tow_array_data(array))[i]
                                                  : (double)((float *)tow_array_data(array))[i];
}

/* ---- against Flax ------------------------------------------------------------------------------------------------ */

/* The child "layer", with the mask of flax_decode.py. */
typedef struct masked {
    tow_module module;
    const tow_module *inner;
    bool mask;
} masked;

static void call_masked(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const masked *m = (const masked *)module;
    bool mask[8];
    for (int i = 0; i < 8; i++) mask[i] = i % 3 != 1;
    tow_type type = tow_make_type(TOW_BOOL, 4, (int64_t[]){2, 1, 1, 4});
    tow_value x[2] = {in[0], tow_constant_data(tow_scope_trace(s), type, mask)};
    assert_true(n_in == 1 && n_out == 1);
    tow_apply_module_n(s, "layer", m->inner, m->mask ? 2 : 1, x, 1, out);
}
static const tow_module_class masked_class = {.name = "masked", .call = call_masked};

static tow_array *result_called(session *s, tow_array *output, const char *what)
{
    if (strcmp(what, "output") == 0) return output;
    for (size_t i = 0; i < tow_params_count(s->state); i++)
        if (strcmp(strrchr(tow_params_path(s->state, i), '/') + 1, what) == 0) return s->variables[i];
    fail_msg("nothing is called %s", what);
    return NULL;
}

/* Sums are taken in other orders: 2e-5. */
static void test_flax(void **unused)
{
    (void)unused;
    FILE *file = fopen(TOW_TEST_DATA "/oracle/golden/flax_decode.txt", "r");
    assert_non_null(file);
    char name[64], what[64], shape[64], found[64], last[64] = "";
    int step, done = -1, lines = 0;
    tow_multi_head_attention plain = TOW_MULTI_HEAD_ATTENTION(.heads = 2, .decode = true),
                             normed =
                                 TOW_MULTI_HEAD_ATTENTION(.heads = 2, .decode = true, .qk_norm = TOW_QK_LAYER_NORM);
    masked model;
    session s = {0};
    tow_array *output = NULL;
    for (; fscanf(file, "%63s %d %63s %63s", name, &step, what, shape) == 4; lines++) {
        if (strcmp(name, last) != 0) {
            if (last[0]) stop(&s);
            model =
                (masked){{&masked_class}, TOW_MODULE(strstr(name, "norm") ? &normed : &plain), strstr(name, "mask")};
            start(&s, TOW_MODULE(&model), tow_make_type(TOW_F32, 3, (int64_t[]){2, 4, 8}));
            strcpy(last, name);
            done = -1;
        }
        if (step != done) {
            tow_array *x = positions_of(2, 6, 8, step, 1);
            tow_array_release(output);
            output = call(&s, x);
            tow_array_release(x);
            done = step;
        }
        tow_array *array = result_called(&s, output, what);
        assert_string_equal(shape_text(tow_array_type(array), found), shape);
        for (int64_t i = 0; i < tow_type_element_count(tow_array_type(array)); i++) {
            double expected;
            assert_int_equal(fscanf(file, "%lf", &expected), 1);
            if (!(fabs(expected - element(array, i)) <= 2e-5 * fmax(1, fabs(expected))))
                fail_msg("%s step %d %s[%d]: expected %g, found %g", name, step, what, (int)i, expected,
                         element(array, i));
        }
    }
    assert_true(feof(file) && lines == 3 * 6 * 4);
    fclose(file);
    tow_array_release(output);
    stop(&s);
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

/* Checks that positions [first, first + n) of y and those of z [B, ?, D] from `from` on differ by at most 2e-5. */
static void expect_near(tow_array *y, int64_t first, tow_array *z, int64_t from, int64_t n)
{
    tow_type a = tow_array_type(y), b = tow_array_type(z);
    for (int64_t row = 0; row < a.dims[0]; row++)
        for (int64_t i = 0; i < n * a.dims[2]; i++) {
            double p = element(y, (row * a.dims[1] + first) * a.dims[2] + i),
                   q = element(z, (row * b.dims[1] + from) * b.dims[2] + i);
            if (!(fabs(p - q) <= 2e-5 * fmax(1, fabs(p))))
                fail_msg("position %d: %g and %g", (int)(first + i / a.dims[2]), p, q);
        }
}

/* However a sequence is cut into calls, the outputs are those of the layer without a cache. */
static void expect_prompts(const tow_module *whole, const tow_module *decoding)
{
    static const int64_t cuts[][5] = {{7, 0}, {1, 1, 1, 1, 3}, {4, 3}, {2, 5}};
    session a, b;
    tow_array *x = positions_of(2, 7, 8, 0, 7);
    start(&a, whole, tow_array_type(x));
    tow_array *expected = call(&a, x);
    for (int c = 0; c < 4; c++) {
        start(&b, decoding, tow_make_type(TOW_F32, 3, (int64_t[]){2, 3, 8}));
        for (int64_t first = 0, i = 0; first < 7; first += cuts[c][i++]) {
            tow_array *part = positions_of(2, 7, 8, first, cuts[c][i]), *y = call(&b, part);
            expect_near(expected, first, y, 0, cuts[c][i]);
            tow_array_release(part);
            tow_array_release(y);
        }
        stop(&b);
    }
    tow_array_release(expected);
    tow_array_release(x);
    stop(&a);
}

#define OPTIONS                                                                                                        \
    .heads = 4, .kv_heads = 2, .window = 4, .logit_cap = 2, .qk_norm = TOW_QK_RMS_NORM, .rope = true, .head_gates = true

static void test_prompts(void **unused)
{
    (void)unused;
    tow_multi_head_attention plain = TOW_MULTI_HEAD_ATTENTION(.heads = 2, .causal = true),
                             decoding = TOW_MULTI_HEAD_ATTENTION(.heads = 2, .decode = true, .cache_length = 9),
                             more = TOW_MULTI_HEAD_ATTENTION(OPTIONS, .causal = true),
                             more_decoding = TOW_MULTI_HEAD_ATTENTION(OPTIONS, .decode = true, .cache_length = 7);
    expect_prompts(TOW_MODULE(&plain), TOW_MODULE(&decoding));
    expect_prompts(TOW_MODULE(&more), TOW_MODULE(&more_decoding));
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(OPTIONS, .causal = true, .gated = true),
                          decoding_block =
                              TOW_TRANSFORMER_BLOCK(OPTIONS, .gated = true, .decode = true, .cache_length = 8);
    tow_scan stack = TOW_SCAN(&block, .length = 2), decoding_stack = TOW_SCAN(&decoding_block, .length = 2);
    expect_prompts(TOW_MODULE(&block), TOW_MODULE(&decoding_block));
    expect_prompts(TOW_MODULE(&stack), TOW_MODULE(&decoding_stack));
    tow_learned_positions learned = TOW_LEARNED_POSITIONS(.max_length = 7),
                          learned_decoding = TOW_LEARNED_POSITIONS(.max_length = 7, .decode = true);
    tow_sinusoidal_positions sines = TOW_SINUSOIDAL_POSITIONS(),
                             sines_decoding = TOW_SINUSOIDAL_POSITIONS(.decode = true);
    expect_prompts(TOW_MODULE(&learned), TOW_MODULE(&learned_decoding));
    expect_prompts(TOW_MODULE(&sines), TOW_MODULE(&sines_decoding));
}

/* ---- in place ---------------------------------------------------------------------------------------------------- */

/* The program of one call with `positions` positions, the cache donated or not; on one thread if it is, since
 * arenas grow with their number. */
static tow_program *compile_call(session *s, tow_type input, bool donates)
{
    tow_model_options options = TOW_MODEL_OPTIONS(.state = s->state, .mutable_collections = caches);
    size_t n = tow_params_count(s->params), n_state = tow_params_count(s->state);
    tow_donation donations[MOST];
    tow_graph *graph;
    tow_program *program;
    OK(tow_model_forward_graph(s->model, s->params, 1, &input, &options, &graph));
    for (size_t i = 0; i < n_state; i++) donations[i] = (tow_donation){.output = 1 + i, .input = n + i};
    OK(tow_compile(
        ctx, graph,
        &TOW_COMPILE_OPTIONS(.donations = donations, .n_donations = donates ? n_state : 0, .threads = donates),
        &program));
    OK(tow_program_check(program));
    tow_graph_release(graph);
    return program;
}

/* With a cache of 4096 positions, 2 layers and 64 features (4 MiB), a call copies none of it: the arena holds what the
 * call's own positions need and the logits of 2048 keys (512 KiB), and the outputs in place of inputs have the bits of
 * those beside them. */
static void expect_in_place(const tow_module *model, int64_t positions)
{
    session s;
    tow_type input = tow_make_type(TOW_F32, 3, (int64_t[]){1, positions, 64});
    start(&s, model, input);
    size_t n = tow_params_count(s.params), n_state = tow_params_count(s.state),
           cache = 2 * 2 * 4096 * 64 * sizeof(float);
    tow_program *program = compile_call(&s, input, true), *apart = compile_call(&s, input, false);
    tow_program_bytes bytes = tow_program_get_bytes(program), other = tow_program_get_bytes(apart);
    assert_true(tow_program_operation_count(program, "copy") <= n_state / 3); /* of the indices */
    assert_true(other.outputs >= cache);
    if (!(bytes.arena < cache / 3)) fail_msg("the arena has %zu bytes, the cache %zu", bytes.arena, cache);
    tow_array *in[2 * MOST], *out[MOST] = {0}, *expected[MOST], *y;
    for (size_t i = 0; i < n; i++) in[i] = tow_params_array(s.params, i);
    for (size_t i = 0; i < n_state; i++) in[n + i] = s.variables[i];
    OK(tow_array_create(ctx, input, &y));
    OK(tow_array_create(ctx, input, &expected[0]));
    for (size_t i = 0; i < n_state; i++) OK(tow_array_create(ctx, tow_array_type(s.variables[i]), &expected[1 + i]));
    for (int64_t step = 0; step < 3; step++) {
        in[n + n_state] = positions_of(1, 3 * positions, 64, step * positions, positions);
        out[0] = y;
        OK(tow_program_run(apart, in, expected));
        OK(tow_program_run(program, in, out));
        assert_memory_equal(tow_array_data(y), tow_array_data(expected[0]), tow_type_bytes(input));
        for (size_t i = 0; i < n_state; i++)
            assert_memory_equal(tow_array_data(s.variables[i]), tow_array_data(expected[1 + i]),
                                tow_type_bytes(tow_array_type(s.variables[i])));
        tow_array_release(in[n + n_state]);
    }
    for (size_t i = 0; i <= n_state; i++) tow_array_release(expected[i]);
    tow_array_release(y);
    tow_program_free(program);
    tow_program_free(apart);
    stop(&s);
}

static void test_in_place(void **unused)
{
    (void)unused;
    tow_transformer_block block = TOW_TRANSFORMER_BLOCK(.heads = 4, .decode = true, .cache_length = 4096, .rope = true),
                          window = TOW_TRANSFORMER_BLOCK(.heads = 4, .kv_heads = 4, .decode = true,
                                                         .cache_length = 4096, .window = 100, .logit_cap = 2);
    tow_scan loop = TOW_SCAN(&block, .length = 2), unrolled = TOW_SCAN(&block, .length = 2, .unrolled = true),
             windows = TOW_SCAN(&window, .length = 2);
    const tow_module *models[] = {TOW_MODULE(&loop), TOW_MODULE(&unrolled), TOW_MODULE(&windows)};
    for (int i = 0; i < 3; i++) {
        expect_in_place(models[i], 1);
        expect_in_place(models[i], 7);
    }
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void expect_init_error(const tow_module *model, tow_type type, tow_status status, const char *text)
{
    tow_params *params = NULL, *state = NULL;
    assert_int_equal(tow_model_init_with(ctx, model, 0, 1, &type, NULL, &params, &state), status);
    if (!strstr(tow_context_error(ctx), text)) fail_msg("expected \"%s\" in: %s", text, tow_context_error(ctx));
}

static void test_errors(void **unused)
{
    (void)unused;
    tow_type x = tow_make_type(TOW_F32, 3, (int64_t[]){2, 5, 8});
    tow_multi_head_attention decoding = TOW_MULTI_HEAD_ATTENTION(.heads = 2, .decode = true, .cache_length = 4);
    expect_init_error(TOW_MODULE(&decoding), x, TOW_SHAPE_MISMATCH, "the cache has 4 positions, the call 5");
    decoding.cache_length = -1;
    expect_init_error(TOW_MODULE(&decoding), x, TOW_INVALID_ARGUMENT, "cache_length");
    decoding.cache_length = 8;
    tow_params *params, *state;
    tow_graph *graph;
    OK(tow_model_init_with(ctx, TOW_MODULE(&decoding), 0, 1, &x, NULL, &params, &state));
    tow_model_options immutable = TOW_MODEL_OPTIONS(.state = state);
    assert_int_equal(tow_model_forward_graph(TOW_MODULE(&decoding), params, 1, &x, &immutable, &graph),
                     TOW_INVALID_ARGUMENT);
    assert_non_null(strstr(tow_context_error(ctx), "immutable"));
    tow_params_free(params);
    tow_params_free(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flax),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* Caches of keys and values in 16 bits and in blocks of few bits: what is put there is rounded once, results are those
 * of attention on it, and requests in a running batch have the tokens that they have alone.
 * Tests attention_cache.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    D = 64, /* 2 heads of 32 */
    V = 40,
    LENGTH = 12
};

static tow_context *portable;

static int setup_portable(void **state)
{
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.threads = 2, .portable_bits = true);
    return setup(state) || tow_context_create(&options, &portable) != TOW_OK;
}
static int teardown_portable(void **state)
{
    tow_context_free(portable);
    return teardown(state);
}

typedef struct language {
    tow_module module;
    tow_embed tokens;
    tow_transformer_block block;
    tow_scan blocks;
} language;

/* tokens [B, T] -> logits of the last position */
static void call(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out, tow_value *out)
{
    const language *m = (const language *)module;
    (void)n_in, (void)n_out;
    tow_value x = tow_apply(s, "blocks", &m->blocks, tow_apply(s, "tokens", &m->tokens, in[0]));
    const int64_t n = tow_value_type(x).dims[1];
    out[0] = tow_embed_attend(s, "tokens", &m->tokens, tow_slice_axis(x, 1, n - 1, n));
}
static const tow_module_class language_class = {.name = "language", .call = call};

static void make(language *m, tow_dtype cache, int64_t heads)
{
    *m = (language){.module = {&language_class}};
    m->tokens = TOW_EMBED(.num_embeddings = V, .features = D);
    m->block = TOW_TRANSFORMER_BLOCK(.heads = heads, .mlp_features = 32, .causal = true, .rope = true, .decode = true,
                                     .cache_length = LENGTH, .cache_dtype = cache);
    m->blocks = TOW_SCAN(&m->block, .length = 2);
}

static const int32_t prompt[] = {3, 17, 5, 30, 2};

/* The logits behind the prompt, in one call or token after token; *type: of cached_key. */
static void logits_of(tow_dtype cache, bool in_steps, float logits[V], tow_type *type)
{
    const tow_type tokens = tow_make_type(TOW_I32, 2, (int64_t[]){1, 1});
    language m;
    tow_params *params, *state;
    tow_generator *g;
    make(&m, cache, 2);
    OK(tow_model_init_with(ctx, TOW_MODULE(&m), 1, 1, &tokens, NULL, &params, &state));
    *type = tow_array_type(tow_params_find(state, "cache/blocks/{}/attn/cached_key"));
    OK(tow_generator_create(ctx, TOW_MODULE(&m), params, NULL, &g));
    for (int i = 0; i < 5; i += in_steps ? 1 : 5) OK(tow_generator_feed(g, in_steps ? 1 : 5, prompt + i, NULL));
    memcpy(logits, tow_array_data((tow_array *)(uintptr_t)tow_generator_logits(g)), V * sizeof *logits);
    tow_generator_free(g);
    tow_params_free(state);
    tow_params_free(params);
}

static void test_types(void **state)
{
    static const struct {
        tow_dtype dtype;
        int64_t width;
        double error; /* a rounding is at most 2^-9, 2^-12, 1/254 and 1/16 of a number or of the largest of its block */
    } caches[] = {
        {TOW_F32, 32, 1e-6}, {TOW_BF16, 32, 0.02}, {TOW_F16, 32, 0.003}, {TOW_Q8_0, 1, 0.02}, {TOW_Q4_0, 1, 0.3}};
    float exact[V], rounded[V], stepwise[V];
    tow_type type;
    (void)state;
    logits_of((tow_dtype)0, false, exact, &type);
    assert_int_equal(type.dtype, TOW_F32);
    for (size_t i = 0; i < 5; i++) {
        double most = 0, size = 0, between = 0;
        logits_of(caches[i].dtype, false, rounded, &type);
        assert_int_equal(type.dtype, caches[i].dtype);
        assert_int_equal(type.dims[type.rank - 1], caches[i].width);
        logits_of(caches[i].dtype, true, stepwise, &type);
        for (int k = 0; k < V; k++) {
            most = fmax(most, fabs((double)rounded[k] - exact[k]));
            between = fmax(between, fabs((double)rounded[k] - stepwise[k]));
            size = fmax(size, fabs((double)exact[k]));
        }
        if (most > caches[i].error * size) fail_msg("%s: %g of %g", tow_dtype_name(caches[i].dtype), most, size);
        if (i > 0) assert_true(most > 0);    /* the cache is what is read, in a prompt, too */
        assert_true(between <= 1e-4 * size); /* a prompt at once, or token after token */
    }
}

static bool take(int64_t id, int32_t token, void *user)
{
    int32_t(*told)[LENGTH] = user;
    told[id][++told[id][0]] = token;
    return true;
}

/* Rows of blocks move like others. */
static void test_batches(void **state)
{
    static const tow_dtype caches[] = {TOW_F16, TOW_Q8_0, TOW_Q4_0};
    const tow_type tokens = tow_make_type(TOW_I32, 2, (int64_t[]){1, 1});
    (void)state;
    for (int i = 0; i < 3; i++) {
        language m;
        tow_params *params, *variables;
        tow_batcher *b;
        int32_t told[3][LENGTH] = {{0}}, alone[LENGTH];
        int64_t left = 1;
        make(&m, caches[i], 2);
        OK(tow_model_init_with(portable, TOW_MODULE(&m), 1, 1, &tokens, NULL, &params, &variables));
        const tow_generator_options options = TOW_GENERATOR_OPTIONS(.batch = 2, .repetition_penalty = 2);
        if (tow_batcher_create(portable, TOW_MODULE(&m), params, &options, &b) != TOW_OK)
            fail_msg("%s", tow_context_error(portable));
        for (int64_t r = 0; r < 3; r++)
            OK(tow_batcher_add(
                b, &TOW_BATCH_REQUEST(.n = 4 - r, .prompt = prompt + r, .limit = 7 - r, .on_token = take, .user = told),
                NULL));
        while (left > 0) OK(tow_batcher_step(b, &left));
        for (int64_t r = 0; r < 3; r++) {
            const tow_generator_options own = TOW_GENERATOR_OPTIONS(.repetition_penalty = 2);
            tow_generator *g;
            OK(tow_generator_create(portable, TOW_MODULE(&m), params, &own, &g));
            OK(tow_generate(g, 4 - r, prompt + r, 7 - r, alone, NULL));
            assert_int_equal(told[r][0], 7 - r);
            assert_memory_equal(told[r] + 1, alone, (size_t)(7 - r) * sizeof *alone);
            tow_generator_free(g);
        }
        tow_batcher_free(b);
        tow_params_free(variables);
        tow_params_free(params);
    }
}

static void test_refused(void **state)
{
    const tow_type tokens = tow_make_type(TOW_I32, 2, (int64_t[]){1, 1});
    static const struct {
        tow_dtype dtype;
        int64_t heads;
    } wrong[] = {{TOW_Q8_0, 4}, {TOW_Q4_0, 4}, {TOW_I32, 2}, {TOW_F64, 2}, {(tow_dtype)999, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        language m;
        tow_params *params = NULL, *variables = NULL;
        make(&m, wrong[i].dtype, wrong[i].heads);
        assert_int_not_equal(tow_model_init_with(ctx, TOW_MODULE(&m), 1, 1, &tokens, NULL, &params, &variables),
                             TOW_OK);
        assert_non_null(strstr(tow_context_error(ctx), ".cache_dtype"));
        tow_context_clear_error(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_batches),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, setup_portable, teardown_portable);
}

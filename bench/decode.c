/* Decodes one token after the other, or a prompt, with random weights of any element type.
 *
 *     decode [--model gpt2|llama] [--dtype f32|bf16|f16|q8_0|q4_0] [--tokens 64] [--prompt N] [--layers N]
 *            [--vocabulary N]
 *
 * gpt2: GPT-2 with 124 million parameters; llama: 110 million (12 layers of 768, 4 pairs of keys and values for 12
 * heads, 2048 hidden features, 32000 tokens, an own head); --layers and --vocabulary change that. Activations, keys
 * and values are f32. A step is one token, the mean of --tokens of them from the first position on; with --prompt, a
 * prompt of so many tokens at once. */
#include <string.h>

#include "bench.h"
#include "examples/chat/model.h"

enum {
    CONTEXT = 1024,
    WIDTH = 768,
    HEADS = 12
};

static bool choose_model(chat_config *c, const char *name, int64_t layers, int64_t vocabulary)
{
    const bool llama = strcmp(name, "llama") == 0;
    *c = (chat_config){.positions = CONTEXT, .width = WIDTH, .layers = layers, .epsilon = 1e-5};
    c->vocabulary = vocabulary > 0 ? vocabulary : llama ? 32000 : 50257;
    c->learned_positions = c->tied = !llama;
    c->block =
        llama ? TOW_TRANSFORMER_BLOCK(.heads = HEADS, .kv_heads = 4, .mlp_features = 2048, .causal = true,
                                      .no_bias = true, .rms_norm = true, .gated = true, .rope = true, .epsilon = 1e-5)
              : TOW_TRANSFORMER_BLOCK(.heads = HEADS, .mlp_features = 4 * WIDTH, .causal = true, .epsilon = 1e-5);
    c->block.qkv_features = WIDTH;
    return llama || strcmp(name, "gpt2") == 0;
}

static tow_dtype find_dtype(const char *name)
{
    static const tow_dtype dtypes[] = {TOW_F32, TOW_BF16, TOW_F16, TOW_Q8_0, TOW_Q4_0};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(tow_dtype_name(dtypes[i]), name) == 0) return dtypes[i];
    bench_fail("decode: --dtype: expected f32, bf16, f16, q8_0 or q4_0, found '%s'", name);
}

/* Random numbers in place of the zeros that the model begins with. */
static tow_params *draw_parameters(const bench *b, const tow_module *model)
{
    const tow_type tokens = tow_make_type(TOW_I32, 2, (int64_t[]){1, 1});
    tow_params *params = NULL, *state = NULL;
    bench_check(b, tow_model_init_with(b->context, model, 0, 1, &tokens, NULL, &params, &state));
    tow_params_free(state);
    for (size_t i = 0; i < tow_params_count(params); i++) {
        tow_array *array = tow_params_array(params, i), *drawn = bench_draw(b, tow_array_type(array), i, 0.03);
        memcpy(tow_array_data(array), tow_array_data(drawn), tow_type_bytes(tow_array_type(array)));
        tow_array_release(drawn);
    }
    return params;
}

typedef struct decoding {
    tow_generator *generator;
    int64_t n, calls; /* tokens that are fed at once, and how often */
    int32_t tokens[CONTEXT];
} decoding;

static tow_status decode(void *user)
{
    decoding *d = user;
    int32_t next = 0;
    tow_generator_reset(d->generator);
    for (int64_t i = 0; i < d->calls; i++) {
        const tow_status status = tow_generator_feed(d->generator, d->n, d->tokens, &next);
        if (status != TOW_OK) return status;
        if (d->n == 1) d->tokens[0] = next;
    }
    return TOW_OK;
}

static double bytes_of(const tow_params *params)
{
    double bytes = 0;
    for (size_t i = 0; i < tow_params_count(params); i++)
        bytes += (double)tow_type_bytes(tow_array_type(tow_params_array(params, i)));
    return bytes;
}

int main(int argc, char **argv)
{
    static chat_config config;
    static chat_model model;
    bench b;
    int64_t tokens = 64, prompt = 0, layers = 12, vocabulary = 0;
    const char *name = "gpt2", *type = "f32";
    const bench_option options[] = {{"model", .text = &name},
                                    {"dtype", .text = &type},
                                    {"tokens", .number = &tokens, .least = 1, .most = CONTEXT},
                                    {"prompt", .number = &prompt, .least = 0, .most = CONTEXT},
                                    {"layers", .number = &layers, .least = 1, .most = 1000},
                                    {"vocabulary", .number = &vocabulary, .least = 0, .most = 1 << 20},
                                    {0}};
    bench_start(&b, "decode", argc, argv, options);
    if (!choose_model(&config, name, layers, vocabulary))
        bench_fail("decode: --model: expected gpt2 or llama, found '%s'", name);
    const tow_module *module = chat_make_model(
        &model, &config, &(chat_model_options){.dtype = find_dtype(type), .cache_dtype = TOW_F32, .context = CONTEXT});
    tow_params *params = draw_parameters(&b, module);
    decoding d = {.n = prompt > 0 ? prompt : 1, .calls = prompt > 0 ? 1 : tokens};
    for (int64_t i = 0; i < d.n; i++) d.tokens[i] = (int32_t)(i * 37 % config.vocabulary);
    bench_check(&b, tow_generator_create(b.context, module, params, NULL, &d.generator));
    bench_check(&b, tow_generator_prepare(d.generator, d.n));
    if (prompt == 0) b.footprint = (size_t)bytes_of(params);
    bench_set(&b, "weights", json_real(bytes_of(params)));
    bench_repeat(&b, decode, &d, d.calls);
    tow_generator_free(d.generator);
    tow_params_free(params);
    return bench_finish(&b, 0);
}

/* Small language models that decode, with the options and weights of tests/oracle/generation_golden.py: GPT-2, Llama
 * and BART. */
#ifndef TOW_TESTS_LANGUAGE_MODELS_H
#define TOW_TESTS_LANGUAGE_MODELS_H

#include <string.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    V = 29,
    D = 16,
    HEADS = 4,
    LAYERS = 2,
    LENGTH = 40,
    HIDDEN = 24,
    SOURCE = 6,
    MOST = 64
};

/* ---- models ------------------------------------------------------------------------------------------------------ */

typedef enum kind {
    GPT2,
    LLAMA,
    BART
} kind;

typedef struct language {
    tow_module module;
    kind kind;
    bool recall; /* of BART */
    bool window; /* of Llama */
} language;

static tow_transformer_block block_of(const language *m)
{
    if (m->kind == LLAMA)
        return TOW_TRANSFORMER_BLOCK(.heads = HEADS, .kv_heads = 2, .mlp_features = HIDDEN, .causal = true,
                                     .no_bias = true, .rms_norm = true, .epsilon = 1e-5, .gated = true, .rope = true,
                                     .decode = true, .cache_length = LENGTH, .window = m->window ? 4 : 0);
    return TOW_TRANSFORMER_BLOCK(.heads = HEADS, .mlp_features = HIDDEN, .causal = true, .epsilon = 1e-5,
                                 .decode = true, .cache_length = LENGTH, .post_norm = m->kind == BART,
                                 .cross = m->kind == BART, .recall = m->recall,
                                 .activation = m->kind == BART ? tow_gelu_erf : tow_gelu);
}

/* tokens -> the rows of the table with positions, normalized */
static tow_value embed_side(tow_scope *s, const tow_embed *embed, const char *positions, const char *norm, bool decode,
                            tow_value tokens)
{
    tow_learned_positions learned = TOW_LEARNED_POSITIONS(.max_length = LENGTH, .decode = decode);
    tow_layer_norm layer_norm = TOW_LAYER_NORM(.epsilon = 1e-5);
    return tow_apply(s, norm, &layer_norm, tow_apply(s, positions, &learned, tow_apply(s, "tokens", embed, tokens)));
}

/* tokens [B, T], source [B, S], its mask [B, S] -> logits [B, T, V] */
static void call_bart(tow_scope *s, const language *m, const tow_value *in, tow_value *out)
{
    tow_embed embed = TOW_EMBED(.num_embeddings = V, .features = D);
    tow_transformer_block encoder = TOW_TRANSFORMER_BLOCK(.heads = HEADS, .mlp_features = HIDDEN, .epsilon = 1e-5,
                                                          .post_norm = true, .activation = tow_gelu_erf),
                          decoder = block_of(m);
    tow_encoder_decoder both =
        TOW_ENCODER_DECODER(.encoder = TOW_MODULE(&encoder), .decoder = TOW_MODULE(&decoder), .encoder_length = LAYERS,
                            .decoder_length = LAYERS, .no_final_norms = true);
    const tow_value inputs[] = {embed_side(s, &embed, "source_positions", "source_norm", false, in[1]),
                                embed_side(s, &embed, "target_positions", "target_norm", true, in[0]), in[2]};
    tow_value x;
    tow_apply_n(s, "both", &both, 3, inputs, 1, &x);
    out[0] = tow_embed_attend(s, "tokens", &embed, x);
}

static void call_language(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                          tow_value *out)
{
    const language *m = (const language *)module;
    tow_embed embed = TOW_EMBED(.num_embeddings = V, .features = D);
    tow_learned_positions positions = TOW_LEARNED_POSITIONS(.max_length = LENGTH, .decode = true);
    tow_transformer_block block = block_of(m);
    tow_scan blocks = TOW_SCAN(&block, .length = LAYERS);
    tow_layer_norm layer_norm = TOW_LAYER_NORM(.epsilon = 1e-5);
    tow_rms_norm rms_norm = TOW_RMS_NORM(.epsilon = 1e-5);
    tow_dense logits = TOW_DENSE(.features = V, .no_bias = true);
    (void)n_in, (void)n_out;
    if (m->kind == BART) {
        call_bart(s, m, in, out);
        return;
    }
    tow_value x = tow_apply(s, "tokens", &embed, in[0]);
    if (m->kind == GPT2) x = tow_apply(s, "positions", &positions, x);
    x = tow_apply(s, "blocks", &blocks, x);
    x = tow_slice_axis(x, 1, tow_value_type(x).dims[1] - 1, tow_value_type(x).dims[1]);
    if (m->kind == LLAMA)
        out[0] = tow_apply(s, "logits", &logits, tow_apply(s, "norm", &rms_norm, x));
    else
        out[0] = tow_embed_attend(s, "tokens", &embed, tow_apply(s, "norm", &layer_norm, x));
}
static const tow_module_class language_class = {.name = "language", .call = call_language};
/* By kind, and behind them Llama with a window. */
static const language models[] = {{{&language_class}, GPT2, false, false},
                                  {{&language_class}, LLAMA, false, false},
                                  {{&language_class}, BART, false, false},
                                  {{&language_class}, LLAMA, false, true}};
enum {
    WINDOWED = 3
};

static bool ends_with(const char *text, const char *end)
{
    return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

/* The weights of generation_golden.py: hashes of index and path. */
static void fill(tow_params *params)
{
    for (size_t i = 0; i < tow_params_count(params); i++) {
        const char *path = tow_params_path(params, i);
        if (strncmp(path, "both/", 5) == 0) path += 5;
        tow_array *array = tow_params_array(params, i);
        float *x = tow_array_data(array);
        uint32_t salt = 2166136261u;
        for (const char *c = path; *c; c++) salt = (salt ^ (unsigned char)*c) * 16777619u;
        const double factor = ends_with(path, "/kernel") ? 0.75 : ends_with(path, "/embedding") ? 1 : 0.25;
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(array)); k++) {
            uint32_t h = (uint32_t)k * 2654435761u ^ salt;
            h = (h ^ h >> 15) * 2246822519u;
            h ^= h >> 13;
            x[k] = (float)((h >> 8) / 8388608.0 - 1) * (float)factor + (ends_with(path, "/scale") ? 1 : 0);
        }
    }
}

static void source_types(int64_t batch, tow_type *types)
{
    const int64_t dims[] = {batch, SOURCE};
    types[0] = tow_make_type(TOW_I32, 2, dims);
    types[1] = tow_make_type(TOW_BOOL, 2, dims);
}

static tow_params *params_of(tow_context *context, kind k)
{
    const int64_t dims[] = {1, 4};
    tow_type types[3] = {tow_make_type(TOW_I32, 2, dims)};
    tow_params *params, *state;
    source_types(1, types + 1);
    OK(tow_model_init_with(context, TOW_MODULE(&models[k]), 0, k == BART ? 3 : 1, types, NULL, &params, &state));
    tow_params_free(state);
    fill(params);
    return params;
}

#endif

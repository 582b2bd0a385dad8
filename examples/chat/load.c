/* The model from its files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"

/* ---- element types ----------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    tow_dtype dtype;
} types[] = {{"f32", TOW_F32}, {"bf16", TOW_BF16}, {"f16", TOW_F16}, {"q8_0", TOW_Q8_0}, {"q4_0", TOW_Q4_0}};

/* n: so many of the types are allowed. */
static bool find_type(const char *option, const char *name, size_t n, tow_dtype *dtype)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(types[i].name, name) != 0) continue;
        *dtype = types[i].dtype;
        return true;
    }
    fprintf(stderr, "chat: %s: expected", option);
    for (size_t i = 0; i < n; i++) fprintf(stderr, " %s", types[i].name);
    fprintf(stderr, ", found %s\n", name);
    return false;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static int load_weights(chat *c)
{
    const tow_type tokens = tow_make_type(TOW_I32, 2, (int64_t[]){1, 1});
    const tow_weight_mapping_options options = TOW_WEIGHT_MAPPING_OPTIONS(.convert = true);
    tow_weight_mapping *mapping = NULL;
    tow_params *state = NULL;
    c->module = chat_make_model(&c->model, &c->config, &c->options);
    const bool good = tow_weight_mapping_read(c->context, c->config.mapping, &mapping) == TOW_OK &&
                      tow_model_init_with(c->context, c->module, 0, 1, &tokens, NULL, &c->params, &state) == TOW_OK &&
                      tow_weight_mapping_load_file(mapping, c->params, c->path, &options, NULL) == TOW_OK;
    tow_params_free(state);
    tow_weight_mapping_free(mapping);
    return good ? SUCCESS : chat_complain(c);
}

static int load_tokenizer(chat *c)
{
    if (c->check) return SUCCESS;
    if (tow_tokenizer_read(c->context, c->path, &c->tokenizer) != TOW_OK) return chat_complain(c);
    if (tow_tokenizer_vocabulary_count(c->tokenizer) <= c->config.vocabulary) return SUCCESS;
    fprintf(stderr, "chat: the tokenizer has %d tokens, the model %lld\n",
            (int)tow_tokenizer_vocabulary_count(c->tokenizer), (long long)c->config.vocabulary);
    return FAILURE;
}

static int choose_context(chat *c)
{
    const int64_t most = c->config.positions;
    if (c->positions > most && c->config.learned_positions) {
        fprintf(stderr, "chat: --context: the model has %lld positions, found %lld\n", (long long)most,
                (long long)c->positions);
        return BAD_OPTION;
    }
    c->options.context = c->check ? 0 : c->positions > 0 ? c->positions : most < 4096 ? most : 4096;
    return SUCCESS;
}

int chat_load(chat *c)
{
    if (!find_type("--dtype", c->dtype, 3, &c->options.dtype) ||
        !find_type("--cache-dtype", c->cache_dtype, sizeof types / sizeof *types, &c->options.cache_dtype) ||
        !chat_read_config("chat", c->path, &c->config))
        return BAD_OPTION;
    int status = choose_context(c);
    if (status == SUCCESS) status = load_tokenizer(c);
    return status == SUCCESS ? load_weights(c) : status;
}

void chat_unload(chat *c)
{
    tow_params_free(c->params);
    tow_tokenizer_free(c->tokenizer);
}

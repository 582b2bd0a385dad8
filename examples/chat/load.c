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

static bool find_type(const char *option, const char *name, tow_dtype *dtype)
{
    const size_t n = sizeof types / sizeof *types;
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

/* Without --dtype those of a GGUF file, else f32. */
static int choose_types(chat *c, bool is_gguf)
{
    tow_weight_mapping *mapping = NULL;
    c->options.dtype = TOW_F32;
    if (c->dtype) return find_type("--dtype", c->dtype, &c->options.dtype) ? SUCCESS : BAD_OPTION;
    if (!is_gguf) return SUCCESS;
    tow_status status = tow_weight_mapping_read(c->context, c->config.mapping, &mapping);
    if (status == TOW_OK) status = tow_weight_mapping_dtypes(mapping, c->path, NULL, &c->dtypes);
    tow_weight_mapping_free(mapping);
    c->options.dtypes = tow_weight_dtypes_rules(c->dtypes);
    c->config.layer_by_layer = tow_weight_dtypes_by_layer(c->dtypes);
    return status == TOW_OK ? SUCCESS : chat_complain(c);
}

static bool have_blocks(const chat *c)
{
    const tow_dtype_rule *r = c->options.dtypes;
    bool found = tow_dtype_numbers(c->options.dtype) > 1;
    for (; r && r->pattern; r++) found = found || tow_dtype_numbers(r->dtype) > 1;
    return found;
}

/* "f16 and q8_0" of the parameters whose paths begin so. False: there are none. */
static bool types_of(const tow_dtype_rule *r, const char *part, const char *end, char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (; r->pattern; r++) {
        const size_t n = strlen(r->pattern), tail = strlen(end);
        const char *name = tow_dtype_name(r->dtype);
        if (strncmp(r->pattern, part, strlen(part)) != 0 || n < tail || strcmp(r->pattern + n - tail, end) != 0 ||
            strstr(text, name) || length + strlen(name) + 6 > size)
            continue;
        length += (size_t)snprintf(text + length, size - length, "%s%s", length > 0 ? " and " : "", name);
    }
    return length > 0;
}

static void show_types(const chat *c)
{
    char tokens[64], layers[64], head[64];
    const tow_dtype_rule *r = c->options.dtypes;
    if (!r || c->bare || !types_of(r, "tokens/", "embedding", tokens, sizeof tokens) ||
        !types_of(r, "blocks/", "kernel", layers, sizeof layers))
        return;
    if (!types_of(r, "head/", "kernel", head, sizeof head)) snprintf(head, sizeof head, "%s", tokens);
    if (strcmp(tokens, "f32") == 0 && strcmp(layers, "f32") == 0 && strcmp(head, "f32") == 0) return;
    fprintf(stderr, "[weights: tokens in %s, layers in %s, the output in %s]\n", tokens, layers, head);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Zeros for the model's parameters. */
static tow_status make_params(chat *c, const tow_module *module, tow_params **params)
{
    const tow_type tokens = tow_make_type(TOW_I32, 2, (int64_t[]){1, 1});
    tow_params *state = NULL;
    const tow_status status = tow_model_init_with(c->context, module, 0, 1, &tokens, NULL, params, &state);
    tow_params_free(state);
    return status;
}

/* The file as the parameters of `module`; what it has in their order and type stays there. */
static tow_status read_weights(chat *c, const tow_module *module, tow_params **params)
{
    /* Rows of queries and keys of gguf-llama are in another order, pair by pair of a head. The shape of a parameter in
     * blocks does not tell how many pairs there are. */
    const tow_transformer_block *block = &c->config.block;
    const bool has_pairs = block->rope && block->heads > 0 && block->qkv_features >= 2 * block->heads;
    const tow_weight_mapping_axis pairs = {"p", has_pairs ? block->qkv_features / block->heads / 2 : 1};
    /* Tensors that became options. */
    const tow_weight_mapping_options options =
        TOW_WEIGHT_MAPPING_OPTIONS(.convert = true, .in_place = true, .n_axes = has_pairs, .axes = &pairs,
                                   .ignored = TOW_NAMES("rope_freqs.weight"));
    tow_weight_mapping *mapping = NULL;
    tow_status status = tow_weight_mapping_read(c->context, c->config.mapping, &mapping);
    if (status == TOW_OK) status = make_params(c, module, params);
    if (status == TOW_OK) status = tow_weight_mapping_load_file(mapping, *params, c->path, &options, NULL);
    tow_weight_mapping_free(mapping);
    return status;
}

/* Weights in blocks are those of the file, if it has them in the order of the parameters; else they are made of those
 * of f32, which then go. */
static int load_weights(chat *c)
{
    static chat_model wide;
    chat_model_options options = c->options;
    tow_params *numbers = NULL;
    const bool blocks = have_blocks(c);
    tow_status status = TOW_OK;
    c->module = chat_make_model(&c->model, &c->config, &c->options);
    options.dtype = TOW_F32;
    options.dtypes = NULL;
    if (blocks && read_weights(c, c->module, &c->params) == TOW_OK) return SUCCESS; /* the file has them so */
    if (blocks) {
        tow_context_clear_error(c->context);
        tow_params_free(c->params);
        c->params = NULL;
        status = read_weights(c, chat_make_model(&wide, &c->config, &options), &numbers);
        if (status == TOW_OK) status = make_params(c, c->module, &c->params);
        if (status == TOW_OK) status = tow_params_convert(c->params, numbers);
        tow_params_free(numbers);
    } else {
        status = read_weights(c, c->module, &c->params);
    }
    return status == TOW_OK ? SUCCESS : chat_complain(c);
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

/* A file with the first bytes of GGUF, or that should be one by its name. */
static bool is_gguf_file(const char *path)
{
    const size_t length = strlen(path);
    char magic[4] = {0};
    FILE *file = fopen(path, "rb");
    const bool found = file && fread(magic, 1, sizeof magic, file) == sizeof magic && memcmp(magic, "GGUF", 4) == 0;
    if (file) fclose(file);
    return found || (length > 5 && strcmp(path + length - 5, ".gguf") == 0);
}

int chat_load(chat *c)
{
    if (!find_type("--cache-dtype", c->cache_dtype, &c->options.cache_dtype)) return BAD_OPTION;
    const bool is_gguf = is_gguf_file(c->path);
    if (is_gguf ? !chat_read_gguf("chat", c->context, c->path, &c->config)
                : !chat_read_config("chat", c->path, &c->config))
        return BAD_OPTION;
    int status = choose_types(c, is_gguf);
    if (status == SUCCESS) show_types(c);
    if (status == SUCCESS) status = choose_context(c);
    if (status == SUCCESS) status = load_tokenizer(c);
    return status == SUCCESS ? load_weights(c) : status;
}

void chat_unload(chat *c)
{
    tow_params_free(c->params);
    tow_weight_dtypes_free(c->dtypes);
    tow_tokenizer_free(c->tokenizer);
}

/* convert-weights --architecture: from the files of transformers to GGUF. The metadata of the GGUF file are made of
 * config.json and tokenizer.json beside the weights. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/tool/gguf.h"

/* ---- values ------------------------------------------------------------------------------------------------------ */

static tow_status set(tool_gguf *g, const char *key, tow_metadata_value value)
{
    return tow_tensors_set_metadata_value(g->metadata, key, value);
}

tow_status tool_set_integer(tool_gguf *g, const char *key, tow_metadata_type type, int64_t integer)
{
    return set(g, key, (tow_metadata_value){.type = type, .integer = integer});
}

tow_status tool_set_array(tool_gguf *g, const char *key, tow_metadata_type element, size_t count, const void *elements)
{
    return set(
        g, key,
        (tow_metadata_value){.type = TOW_METADATA_ARRAY, .element = element, .count = count, .elements = elements});
}

/* ---- config.json ------------------------------------------------------------------------------------------------- */

const tool_number tool_numbers[] = {
    {"context_length", {"max_position_embeddings", "n_positions"}, TOW_METADATA_U32, NULL},
    {"embedding_length", {"hidden_size", "n_embd"}, TOW_METADATA_U32, NULL},
    {"block_count", {"num_hidden_layers", "n_layer"}, TOW_METADATA_U32, NULL},
    {"feed_forward_length", {"intermediate_size", "n_inner"}, TOW_METADATA_U32, NULL},
    {"attention.head_count", {"num_attention_heads", "n_head"}, TOW_METADATA_U32, NULL},
    {"attention.head_count_kv", {"num_key_value_heads"}, TOW_METADATA_U32, NULL},
    {"attention.key_length", {"head_dim"}, TOW_METADATA_U32, NULL},
    {"attention.value_length", {"head_dim"}, TOW_METADATA_U32, NULL},
    {"rope.dimension_count", {"head_dim"}, TOW_METADATA_U32, "llama"},
    {"rope.freq_base", {"rope_theta"}, TOW_METADATA_F32, NULL},
    {"attention.layer_norm_rms_epsilon", {"rms_norm_eps"}, TOW_METADATA_F32, NULL},
    {"attention.layer_norm_epsilon", {"layer_norm_epsilon"}, TOW_METADATA_F32, NULL},
    {"vocab_size", {"vocab_size"}, TOW_METADATA_U32, "llama"},
    {"attn_logit_softcapping", {"attn_logit_softcapping"}, TOW_METADATA_F32, "gemma2"},
    {"final_logit_softcapping", {"final_logit_softcapping"}, TOW_METADATA_F32, "gemma2"},
    {"attention.sliding_window", {"sliding_window"}, TOW_METADATA_U32, "gemma2"},
    {NULL, {NULL}, TOW_METADATA_NONE, NULL},
};

static const json_t *find_number(const json_t *config, const tool_number *n)
{
    const json_t *rope = json_object_get(config, "rope_parameters");
    for (size_t i = 0; i < 3 && n->names[i]; i++) {
        const json_t *value = json_object_get(config, n->names[i]);
        if (!json_is_number(value)) value = json_object_get(rope, n->names[i]);
        if (json_is_number(value)) return value;
    }
    return NULL;
}

/* The type must hold the number: whole ones below 2^31, or an f32. */
static tow_status check_number(tool_gguf *g, const tool_number *n, double number)
{
    const bool whole = n->type == TOW_METADATA_U32;
    if (whole ? number >= 0 && number <= INT32_MAX && number == (double)(int64_t)number : fabs(number) <= FLT_MAX)
        return TOW_OK;
    return tool_fail(g->tool, TOW_BAD_FORMAT, "%s/config.json: %s: expected %s, found %g", g->directory, n->names[0],
                     whole ? "a whole number, 0 to 2147483647" : "a number of f32", number);
}

static tow_status set_number(tool_gguf *g, const tool_number *n, double number)
{
    char key[128];
    const tow_status status = check_number(g, n, number);
    snprintf(key, sizeof key, "%s.%s", g->architecture->name, n->key);
    if (status != TOW_OK) return status;
    return set(g, key,
               (tow_metadata_value){
                   .type = n->type, .integer = n->type == TOW_METADATA_U32 ? (int64_t)number : 0, .number = number});
}

/* The epsilon of norms that transformers takes if config.json has none; llama.cpp has no default. Else 0. */
static double standard_of(const tool_gguf *g, const tool_number *n)
{
    const bool is_gpt2 = strcmp(g->architecture->name, "gpt2") == 0;
    if (strcmp(n->names[0], is_gpt2 ? "layer_norm_epsilon" : "rms_norm_eps") != 0) return 0;
    return is_gpt2 ? 1e-5 : 1e-6;
}

static tow_status set_numbers(tool_gguf *g, const json_t *config)
{
    tow_status status = TOW_OK;
    for (const tool_number *n = tool_numbers; n->key && status == TOW_OK; n++) {
        const json_t *value = find_number(config, n);
        const double number = value ? json_number_value(value) : standard_of(g, n);
        const bool elsewhere = n->only && strcmp(n->only, g->architecture->name) != 0;
        if ((value || number > 0) && !elsewhere) status = set_number(g, n, number);
    }
    return status;
}

/* Activations that GGUF has no word for: each architecture has one. */
static tow_status check_activation(tool_gguf *g, const json_t *config)
{
    static const char *const keys[] = {"hidden_activation", "hidden_act", "activation_function"};
    static const struct {
        const char *architecture, *names[3];
    } known[] = {{"gpt2", {"gelu_new", "gelu_pytorch_tanh"}},
                 {"gemma", {"gelu_pytorch_tanh", "gelu"}}, /* which transformers takes for the same there */
                 {"gemma2", {"gelu_pytorch_tanh"}}};
    const char *found = NULL, *const silu[] = {"silu", "swish", NULL}, *const *names = silu;
    for (size_t i = 0; i < 3 && !found; i++) found = json_string_value(json_object_get(config, keys[i]));
    for (size_t i = 0; i < 3; i++)
        if (strcmp(known[i].architecture, g->architecture->name) == 0) names = known[i].names;
    bool fits = !found;
    for (size_t i = 0; names[i] && !fits; i++) fits = strcmp(found, names[i]) == 0;
    if (fits && !json_is_true(json_object_get(config, "use_sliding_window"))) return TOW_OK;
    return tool_fail(
        g->tool, TOW_UNSUPPORTED,
        "%s/config.json: expected the activation %s and no use_sliding_window, as GGUF files of %s have no "
        "other, found %.60s",
        g->directory, names[0], g->architecture->name, fits ? "use_sliding_window" : found);
}

static tow_status refuse_config(const tool_gguf *g, const char *key, const char *expected)
{
    return tool_fail(g->tool, TOW_UNSUPPORTED, "%s/config.json: %s: expected %s, as GGUF files of %s have nothing else",
                     g->directory, key, expected, g->architecture->name);
}

/* A window of attention, which files of Gemma 2 alone have: it must not be shorter than texts can be. */
static tow_status check_window(const tool_gguf *g, const json_t *config)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const bool mistral = type && strcmp(type, "mistral") == 0; /* has a window where config.json does not say so */
    const json_t *window = json_object_get(config, "sliding_window"),
                 *context = json_object_get(config, "max_position_embeddings");
    const double width = window ? json_number_value(window) : mistral ? 4096 : 0;
    if (strcmp(g->architecture->name, "gemma2") == 0 || json_is_false(json_object_get(config, "use_sliding_window")))
        return TOW_OK;
    if (width <= 0 || width >= (context ? json_number_value(context) : mistral ? 131072 : 0)) return TOW_OK;
    return refuse_config(g, "sliding_window", "null, or max_position_embeddings or more");
}

/* Layers that see a window: all of none but Gemma 2, whose first, third, ... do. */
static tow_status check_layers(const tool_gguf *g, const json_t *config)
{
    const json_t *types = json_object_get(config, "layer_types");
    const bool alternate = strcmp(g->architecture->name, "gemma2") == 0;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type || strcmp(type, alternate && i % 2 == 0 ? "sliding_attention" : "full_attention") != 0)
            return refuse_config(g, "layer_types",
                                 alternate ? "sliding_attention and full_attention in turn" : "full_attention");
    }
    return TOW_OK;
}

/* Options that change logits and have no word in GGUF files. */
static tow_status check_config(tool_gguf *g, const json_t *config)
{
    static const char *const caps[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    tow_status status = check_activation(g, config);
    if (status == TOW_OK) status = check_window(g, config);
    if (status == TOW_OK) status = check_layers(g, config);
    for (size_t i = 0; i < 2 && status == TOW_OK && strcmp(g->architecture->name, "gemma2") == 0; i++)
        if (json_is_null(json_object_get(config, caps[i]))) status = refuse_config(g, caps[i], "a number");
    if (status != TOW_OK || strcmp(g->architecture->name, "gpt2") != 0) return status;
    if (json_is_true(json_object_get(config, "scale_attn_by_inverse_layer_idx")))
        return refuse_config(g, "scale_attn_by_inverse_layer_idx", "false");
    if (json_is_false(json_object_get(config, "scale_attn_weights")))
        return refuse_config(g, "scale_attn_weights", "true");
    return TOW_OK;
}

int64_t tool_gemma2_scalar(const tow_gguf_model *m)
{
    return m->layers == 46 && m->heads > 0 ? m->width / m->heads : m->head_width;
}

static tow_status check_queries(tool_gguf *g, const json_t *config)
{
    const json_t *scalar = json_object_get(config, "query_pre_attn_scalar");
    const int64_t expected = tool_gemma2_scalar(&g->model);
    if (strcmp(g->architecture->name, "gemma2") != 0 || !scalar) return TOW_OK;
    if (json_number_value(scalar) == (double)expected) return TOW_OK;
    return tool_fail(
        g->tool, TOW_UNSUPPORTED,
        "%s/config.json: query_pre_attn_scalar: expected %lld, which GGUF files of gemma2 are read with, found "
        "%g; multiply the weights of queries by sqrt(%lld / %g), and give the expected number",
        g->directory, (long long)expected, json_number_value(scalar), (long long)expected, json_number_value(scalar));
}

/* ---- scaled positions -------------------------------------------------------------------------------------------- */

static tow_status refuse_rope(const tool_gguf *g, const char *what, const char *found)
{
    return tool_fail(g->tool, TOW_UNSUPPORTED, "%s/config.json: rotary positions: expected %s, found %.60s",
                     g->directory, what, found);
}

/* A number above 0 of the section; 0: reported. */
static double rope_number(tool_gguf *g, const json_t *section, const char *name)
{
    const double number = json_number_value(json_object_get(section, name));
    if (number > 0 && number < 1e30) return number;
    tool_fail(g->tool, TOW_BAD_FORMAT, "%s/config.json: rotary positions: expected a number above 0 as %s",
              g->directory, name);
    return 0;
}

static tow_status set_linear(tool_gguf *g, double factor)
{
    char type[64], key[64];
    snprintf(type, sizeof type, "%s.rope.scaling.type", g->architecture->name);
    snprintf(key, sizeof key, "%s.rope.scaling.factor", g->architecture->name);
    const tow_status status = tow_tensors_set_metadata(g->metadata, type, "linear");
    return status == TOW_OK ? set(g, key, (tow_metadata_value){.type = TOW_METADATA_F32, .number = factor}) : status;
}

/* Adds the tensor of factors, which llama.cpp has in place of the numbers. It reads that of Llama alone. */
static tow_status set_llama3(tool_gguf *g, const json_t *section)
{
    tow_gguf_model *m = &g->model;
    tow_array *factors = NULL;
    if (strcmp(g->architecture->name, "llama") != 0) return refuse_rope(g, "none or linear scaling", "llama3");
    m->rope_scaling = "llama3";
    m->rope_factor = rope_number(g, section, "factor");
    m->rope_low = rope_number(g, section, "low_freq_factor");
    m->rope_high = rope_number(g, section, "high_freq_factor");
    m->rope_length = rope_number(g, section, "original_max_position_embeddings");
    if (g->tool->message[0]) return TOW_BAD_FORMAT;
    if (m->rope_length > INT32_MAX || m->rope_length != (double)(int64_t)m->rope_length)
        return refuse_rope(g, "a whole number below 2^31 as original_max_position_embeddings", "another");
    if (m->rope_factor < 1 || m->rope_high <= m->rope_low)
        return refuse_rope(g, "a factor of 1 or above, and low_freq_factor below high_freq_factor", "others");
    tow_status status = tow_gguf_rope_factors(g->tool->context, m, &factors);
    if (status == TOW_OK) status = tow_tensors_add(g->metadata, "rope_freqs.weight", factors);
    if (status == TOW_OK && m->rope_length != 8192)
        status = tool_set_integer(g, "llama.rope.scaling.original_context_length", TOW_METADATA_U32,
                                  (int64_t)m->rope_length);
    tow_array_release(factors);
    return status;
}

/* "rope_parameters" of today's files, "rope_scaling" of older ones. */
static tow_status set_rope(tool_gguf *g, const json_t *config)
{
    static const char *const keys[] = {"rope_parameters", "rope_scaling"}, *const kinds[] = {"rope_type", "type"};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < 2; i++) {
            const json_t *section = json_object_get(config, keys[k]);
            const char *kind = json_string_value(json_object_get(section, kinds[i]));
            if (!kind && i == 1 && !json_object_get(section, kinds[0]) && json_object_get(section, "factor"))
                return refuse_rope(g, "a type beside the factor", "none");
            if (!kind || strcmp(kind, "default") == 0) continue;
            if (strcmp(kind, "llama3") == 0) return set_llama3(g, section);
            if (strcmp(kind, "linear") != 0) return refuse_rope(g, "scaling of type linear or llama3", kind);
            const double factor = rope_number(g, section, "factor");
            return factor > 0 ? set_linear(g, factor) : TOW_BAD_FORMAT;
        }
    return TOW_OK;
}

/* ---- general ----------------------------------------------------------------------------------------------------- */

/* The name of the model is that of its directory. */
static tow_status set_name(tool_gguf *g)
{
    const char *slash = strrchr(g->directory, '/'), *name = slash && slash[1] ? slash + 1 : g->directory;
    char *whole = strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ? realpath(g->directory, NULL) : NULL;
    if (whole && (slash = strrchr(whole, '/')) && slash[1]) name = slash + 1;
    const tow_status status = tow_tensors_set_metadata(g->metadata, "general.name", name);
    free(whole);
    return status;
}

/* Sets the architecture, a name, and the type of matrices by its number in llama.cpp. */
static tow_status set_general(tool_gguf *g, const json_t *config)
{
    static const int32_t file_types[] = {
        [TOW_GGUF_F16] = 1, [TOW_GGUF_BF16] = 32, [TOW_GGUF_Q8_0] = 7, [TOW_GGUF_Q4_0] = 2};
    char key[64];
    const int64_t width = json_integer_value(json_object_get(config, "n_embd"));
    tow_status status = tow_tensors_set_metadata(g->metadata, "general.architecture", g->architecture->name);
    if (status == TOW_OK) status = set_name(g);
    if (status == TOW_OK) status = tool_set_integer(g, "general.file_type", TOW_METADATA_U32, file_types[g->type]);
    if (status == TOW_OK) status = tool_set_integer(g, "general.quantization_version", TOW_METADATA_U32, 2);
    snprintf(key, sizeof key, "%s.feed_forward_length", g->architecture->name);
    if (status == TOW_OK && width > 0 && width <= INT32_MAX / 4)
        status = tool_set_integer(g, key, TOW_METADATA_U32, 4 * width); /* unless it says more */
    return status;
}

/* ---- files beside the weights ------------------------------------------------------------------------------------ */

/* A file of JSON beside the weights; *root NULL: there is none. */
static tow_status read_json(tool_gguf *g, const char *name, size_t flags, json_t **root)
{
    char path[4096];
    json_error_t error;
    const int length = snprintf(path, sizeof path, "%s/%s", g->directory, name);
    if (length < 0 || length >= (int)sizeof path)
        return tool_fail(g->tool, TOW_INVALID_ARGUMENT, "the path of %s is too long", name);
    FILE *file = fopen(path, "rb");
    *root = file ? json_loadf(file, flags, &error) : NULL;
    if (file) fclose(file);
    if (!file || *root) return TOW_OK;
    return tool_fail(g->tool, TOW_BAD_FORMAT, "%s: line %d: %s", path, error.line, error.text);
}

/* The text of a file beside the weights, malloc'ed; *text NULL: there is none. */
static tow_status read_template(tool_gguf *g, const char *name, char **text)
{
    enum {
        MOST = 1 << 20 /* bytes */
    };
    char path[4096];
    *text = NULL;
    snprintf(path, sizeof path, "%s/%s", g->directory, name); /* shorter than the path of config.json */
    FILE *file = fopen(path, "rb");
    if (!file) return TOW_OK;
    *text = calloc(MOST + 1, 1);
    const size_t size = *text ? fread(*text, 1, MOST + 1, file) : 0;
    const bool whole = size <= MOST && !ferror(file);
    fclose(file);
    if (!*text) return tool_fail(g->tool, TOW_OUT_OF_MEMORY, "out of memory");
    if (whole && strlen(*text) == size) return TOW_OK;
    free(*text);
    *text = NULL;
    return tool_fail(g->tool, TOW_BAD_FORMAT, "%s: expected a text of at most %d bytes without zero bytes", path, MOST);
}

/* A template, or of a list of templates with names that of the name "default". */
static const char *default_template(const json_t *templates)
{
    for (size_t i = 0; i < json_array_size(templates); i++) {
        const json_t *one = json_array_get(templates, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && strcmp(name, "default") == 0) return json_string_value(json_object_get(one, "template"));
    }
    return json_string_value(templates);
}

/* The template of conversations: a file of its own, or a text in the file that was the only place for it. Numbers of
 * that file, of which none is read, may have any size: transformers writes 10^30 for no limit of tokens. */
static tow_status set_chat_template(tool_gguf *g)
{
    json_t *root = NULL;
    char *own = NULL;
    tow_status status = read_template(g, "chat_template.jinja", &own);
    if (status == TOW_OK && !own) status = read_json(g, "tokenizer_config.json", JSON_DECODE_INT_AS_REAL, &root);
    const char *text = own ? own : default_template(json_object_get(root, "chat_template"));
    if (status == TOW_OK && text) status = tow_tensors_set_metadata(g->metadata, "tokenizer.chat_template", text);
    json_decref(root);
    free(own);
    return status;
}

/* The architecture that config.json names; NULL: none that is known here. */
static const char *name_architecture(tool_gguf *g, const json_t *config)
{
    const tool_architecture *known;
    const char *type = json_string_value(json_object_get(config, "model_type"));
    if (type && strcmp(type, "mistral") == 0) return "llama";
    const bool found = type && tool_find_architecture(g->tool, type, &known) == TOW_OK;
    g->tool->message[0] = '\0';
    return found ? type : NULL;
}

static tow_status find_architecture(tool_gguf *g, const json_t *config, const char *name)
{
    const char *type = json_string_value(json_object_get(config, "model_type")), *own = name_architecture(g, config);
    if (strcmp(name, "auto") == 0) name = own ? own : type ? type : "none";
    const tow_status status = tool_find_architecture(g->tool, name, &g->architecture);
    if (status != TOW_OK || !own || strcmp(own, name) == 0) return status;
    return tool_fail(g->tool, TOW_INVALID_ARGUMENT,
                     "--architecture: expected %s or auto, as %s/config.json says, found %s", own, g->directory, name);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* The tensor whose name ends so, or -1. */
static ptrdiff_t find_tensor(const tow_tensors *tensors, const char *end)
{
    for (size_t i = 0; i < tow_tensors_count(tensors); i++)
        if (ends_with(tow_tensors_name(tensors, i), end)) return (ptrdiff_t)i;
    return -1;
}

/* One more than the highest N of the tensors' names that have "PREFIX N.", as in "blk.7.attn_q.weight". */
static int64_t count_layers(const tow_tensors *tensors, const char *prefix)
{
    int64_t count = 0;
    for (size_t i = 0; i < tow_tensors_count(tensors); i++) {
        const char *name = tow_tensors_name(tensors, i), *at = strstr(name, prefix);
        if (!at || (at > name && at[-1] != '.')) continue;
        char *end;
        const long long layer = strtoll(at + strlen(prefix), &end, 10);
        if (*end == '.' && layer >= count && layer < INT32_MAX) count = layer + 1;
    }
    return count;
}

/* Files that say that the output has the table of tokens, and have another one beside it. */
static tow_status check_tied(tool_gguf *g, const json_t *config, const tow_tensors *tensors, ptrdiff_t table)
{
    const ptrdiff_t head = find_tensor(tensors, "lm_head.weight");
    tow_array *a = NULL, *b = NULL;
    if (head < 0 || !json_is_true(json_object_get(config, "tie_word_embeddings"))) return TOW_OK;
    tow_status status = tow_tensors_get(tensors, tow_tensors_name(tensors, (size_t)head), &a);
    if (status == TOW_OK) status = tow_tensors_get(tensors, tow_tensors_name(tensors, (size_t)table), &b);
    const tow_type type = a ? tow_array_type(a) : (tow_type){0};
    if (status == TOW_OK && (!tow_type_equal(type, tow_array_type(b)) ||
                             memcmp(tow_array_data(a), tow_array_data(b), tow_type_bytes(type)) != 0))
        status =
            tool_fail(g->tool, TOW_BAD_FORMAT,
                      "%s/config.json: tie_word_embeddings: expected false, as lm_head.weight is no copy of %s, found "
                      "true; correct it, or remove lm_head.weight",
                      g->directory, tow_tensors_name(tensors, (size_t)table));
    tow_array_release(a);
    tow_array_release(b);
    return status;
}

static tow_status check_sizes(tool_gguf *g, const tow_tensors *tensors, ptrdiff_t table, const char *layers)
{
    const int64_t count = count_layers(tensors, layers), rows = tow_tensors_type(tensors, (size_t)table).dims[0];
    const size_t tokens = tow_tensors_metadata_value(g->metadata, "tokenizer.ggml.tokens").count;
    if (count > 0 && count != g->model.layers)
        return tool_fail(g->tool, TOW_BAD_FORMAT,
                         "%s/config.json: expected %lld layers, as the weights have, found %lld", g->directory,
                         (long long)count, (long long)g->model.layers);
    if ((int64_t)tokens <= rows) return TOW_OK;
    return tool_fail(g->tool, TOW_BAD_FORMAT,
                     "%s/tokenizer.json: expected at most %lld tokens, the rows of %s, found %zu (with vocab_size of "
                     "config.json)",
                     g->directory, (long long)rows, tow_tensors_name(tensors, (size_t)table), tokens);
}

/* config.json and tokenizer.json against the weights. */
static tow_status check_weights(tool_gguf *g, const json_t *config)
{
    const bool is_gpt2 = strcmp(g->architecture->name, "gpt2") == 0;
    const char *file = g->tool->options.file;
    char path[4096];
    tow_tensors *tensors = NULL;
    if (ends_with(file, ".safetensors") || ends_with(file, ".json"))
        snprintf(path, sizeof path, "%s", file);
    else
        snprintf(path, sizeof path, "%s/model.safetensors", g->directory);
    tow_status status = tow_safetensors_mmap(g->tool->context, path, &tensors);
    const ptrdiff_t table =
        status == TOW_OK ? find_tensor(tensors, is_gpt2 ? "wte.weight" : "embed_tokens.weight") : -1;
    if (table >= 0) status = check_sizes(g, tensors, table, is_gpt2 ? "h." : "layers.");
    if (table >= 0 && status == TOW_OK) status = check_tied(g, config, tensors, table);
    tow_tensors_free(tensors);
    return status;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

tow_status tool_gguf_begin(tool_gguf *g, const char *name)
{
    json_t *config = NULL, *tokenizer = NULL, *generation = NULL;
    tow_status status = read_json(g, "config.json", 0, &config);
    if (status == TOW_OK && !config)
        status =
            tool_fail(g->tool, TOW_IO_ERROR, "%s/config.json: cannot open; a GGUF file has what it says", g->directory);
    if (status == TOW_OK) status = find_architecture(g, config, name);
    if (status == TOW_OK) status = read_json(g, "tokenizer.json", 0, &tokenizer);
    if (status == TOW_OK) status = read_json(g, "generation_config.json", 0, &generation);
    if (status == TOW_OK) status = check_config(g, config);
    if (status == TOW_OK) status = set_general(g, config);
    if (status == TOW_OK) status = set_numbers(g, config);
    if (status == TOW_OK) status = tow_gguf_model_read(g->metadata, &g->model);
    if (status == TOW_OK) status = check_queries(g, config);
    if (status == TOW_OK) status = set_rope(g, config);
    if (status == TOW_OK && tokenizer) status = tool_set_tokenizer(g, config, generation, tokenizer);
    if (status == TOW_OK && tokenizer) status = set_chat_template(g);
    if (status == TOW_OK) status = check_weights(g, config);
    json_decref(config);
    json_decref(tokenizer);
    json_decref(generation);
    return status;
}

/* convert-weights --architecture: from the files of transformers to GGUF. The metadata of the GGUF file are made of
 * config.json and tokenizer.json beside the weights. */
#include <stdlib.h>
#include <string.h>

#include "src/tool/gguf.h"

/* ---- values ------------------------------------------------------------------------------------------------------ */

static tow_status set(tool_gguf *g, const char *key, tow_metadata_value value)
{
    return tow_tensors_set_metadata_value(g->metadata, key, value);
}

static tow_status set_integer(tool_gguf *g, const char *key, tow_metadata_type type, int64_t integer)
{
    return set(g, key, (tow_metadata_value){.type = type, .integer = integer});
}

static tow_status set_array(tool_gguf *g, const char *key, tow_metadata_type element, size_t count,
                            const void *elements)
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

static tow_status set_numbers(tool_gguf *g, const json_t *config)
{
    tow_status status = TOW_OK;
    for (const tool_number *n = tool_numbers; n->key && status == TOW_OK; n++) {
        const json_t *value = find_number(config, n);
        char key[128];
        if (!value || (n->only && strcmp(n->only, g->architecture->name) != 0)) continue;
        snprintf(key, sizeof key, "%s.%s", g->architecture->name, n->key);
        status =
            set(g, key,
                (tow_metadata_value){
                    .type = n->type, .integer = (int64_t)json_number_value(value), .number = json_number_value(value)});
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
                 {"gemma", {"gelu_pytorch_tanh", "gelu"}}, /* which transformers takes for the same */
                 {"gemma2", {"gelu_pytorch_tanh", "gelu"}}};
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
    if (m->rope_factor < 1 || m->rope_high <= m->rope_low)
        return refuse_rope(g, "a factor of 1 or above, and low_freq_factor below high_freq_factor", "others");
    tow_status status = tow_gguf_rope_factors(g->tool->context, m, &factors);
    if (status == TOW_OK) status = tow_tensors_add(g->metadata, "rope_freqs.weight", factors);
    if (status == TOW_OK && m->rope_length != 8192)
        status =
            set_integer(g, "llama.rope.scaling.original_context_length", TOW_METADATA_U32, (int64_t)m->rope_length);
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

/* Sets the architecture, a name, and the type of matrices by its number in llama.cpp. */
static tow_status set_general(tool_gguf *g, const json_t *config)
{
    static const int32_t file_types[] = {
        [TOW_GGUF_F16] = 1, [TOW_GGUF_BF16] = 32, [TOW_GGUF_Q8_0] = 7, [TOW_GGUF_Q4_0] = 2};
    const char *slash = strrchr(g->directory, '/');
    char key[64];
    const int64_t width = json_integer_value(json_object_get(config, "n_embd"));
    tow_status status = tow_tensors_set_metadata(g->metadata, "general.architecture", g->architecture->name);
    if (status == TOW_OK)
        status = tow_tensors_set_metadata(g->metadata, "general.name", slash && slash[1] ? slash + 1 : g->directory);
    if (status == TOW_OK) status = set_integer(g, "general.file_type", TOW_METADATA_U32, file_types[g->type]);
    if (status == TOW_OK) status = set_integer(g, "general.quantization_version", TOW_METADATA_U32, 2);
    snprintf(key, sizeof key, "%s.feed_forward_length", g->architecture->name);
    if (status == TOW_OK && width > 0)
        status = set_integer(g, key, TOW_METADATA_U32, 4 * width); /* unless it says more */
    return status;
}

/* ---- tokenizer.json ---------------------------------------------------------------------------------------------- */

enum { /* types of tokens */
    NORMAL = 1,
    UNKNOWN,
    CONTROL,
    USER_DEFINED,
    UNUSED,
    BYTE
};

enum {
    MOST_TOKENS = 1 << 20 /* of the reader of GGUF files, too */
};

typedef struct vocabulary {
    size_t count;
    const char **tokens; /* [count] */
    int32_t *types;
    float *scores;
    char (*padding)[32]; /* [count] texts of tokens that are not there */
} vocabulary;

static void free_vocabulary(vocabulary *v)
{
    free(v->tokens);
    free(v->types);
    free(v->scores);
    free(v->padding);
}

static bool is_byte_token(const char *token)
{
    return strlen(token) == 6 && strncmp(token, "<0x", 3) == 0 && token[5] == '>';
}

static tow_status refuse_token(tool_gguf *g, const char *token, const char *fault)
{
    return tool_fail(g->tool, TOW_BAD_FORMAT, "%s/tokenizer.json: '%.80s' %s", g->directory, token, fault);
}

/* Makes room for the token of the id. */
static tow_status count_token(tool_gguf *g, const char *token, const json_t *id, size_t *count)
{
    const int64_t number = json_integer_value(id);
    if (!token || !json_is_integer(id) || number < 0 || number >= MOST_TOKENS)
        return refuse_token(g, token ? token : "(a token without text)", "has no id from 0 to 1048575");
    if ((size_t)number >= *count) *count = (size_t)number + 1;
    return TOW_OK;
}

static tow_status count_tokens(tool_gguf *g, json_t *vocab, json_t *added, int64_t least, size_t *count)
{
    tow_status status = TOW_OK;
    const char *key;
    json_t *value;
    if (least < 0 || least > MOST_TOKENS)
        return tool_fail(g->tool, TOW_BAD_FORMAT, "%s/config.json: vocab_size: expected 0 to %d, found %lld",
                         g->directory, MOST_TOKENS, (long long)least);
    *count = (size_t)least;
    json_object_foreach(vocab, key, value) if (status == TOW_OK) status = count_token(g, key, value, count);
    for (size_t i = 0; i < json_array_size(added) && status == TOW_OK; i++) {
        value = json_array_get(added, i);
        status =
            count_token(g, json_string_value(json_object_get(value, "content")), json_object_get(value, "id"), count);
    }
    return status;
}

/* Gives the id to the token. An added one may be in the vocabulary, too. */
static tow_status take_token(tool_gguf *g, vocabulary *v, const char *token, int64_t id, int32_t type)
{
    if (v->tokens[id] && strcmp(v->tokens[id], token) != 0)
        return refuse_token(g, token, "has the id of another token");
    v->tokens[id] = token;
    if (v->types[id] != UNKNOWN) v->types[id] = type;
    return TOW_OK;
}

static tow_status make_vocabulary(tool_gguf *g, const json_t *model, json_t *added, int64_t least, vocabulary *v)
{
    json_t *vocab = json_object_get(model, "vocab"), *value;
    const char *unk = json_string_value(json_object_get(model, "unk_token")), *key;
    size_t i;
    tow_status status = count_tokens(g, vocab, added, least, &v->count);
    if (status != TOW_OK) return status;
    v->tokens = calloc(v->count + 1, sizeof *v->tokens);
    v->types = calloc(v->count + 1, sizeof *v->types);
    v->scores = calloc(v->count + 1, sizeof *v->scores);
    v->padding = calloc(v->count + 1, sizeof *v->padding);
    if (!v->tokens || !v->types || !v->scores || !v->padding)
        return tool_fail(g->tool, TOW_OUT_OF_MEMORY, "out of memory");
    json_object_foreach(vocab, key, value)
    {
        const int32_t type = unk && strcmp(key, unk) == 0 ? UNKNOWN : is_byte_token(key) ? BYTE : NORMAL;
        status = take_token(g, v, key, json_integer_value(value), type);
        if (status != TOW_OK) return status;
    }
    json_array_foreach(added, i, value)
    {
        const int32_t type = json_is_true(json_object_get(value, "special")) ? CONTROL : USER_DEFINED;
        status = take_token(g, v, json_string_value(json_object_get(value, "content")),
                            json_integer_value(json_object_get(value, "id")), type);
        if (status != TOW_OK) return status;
    }
    for (i = 0; i < v->count; i++) {
        if (v->tokens[i]) continue;
        snprintf(v->padding[i], sizeof v->padding[i], "[PAD%zu]", i);
        v->tokens[i] = v->padding[i];
        v->types[i] = UNUSED;
    }
    return TOW_OK;
}

/* The first expression that words are split by, and whether digits stand alone, of a section or of those in it. */
static void find_splits(const json_t *section, const char **expression, bool *digits)
{
    const json_t *list = json_object_get(section, "pretokenizers");
    const char *type = json_string_value(json_object_get(section, "type"));
    const char *regex = json_string_value(json_object_get(json_object_get(section, "pattern"), "Regex"));
    if (type && strcmp(type, "Digits") == 0) *digits = true;
    if (type && strcmp(type, "Split") == 0) *expression = regex && !*expression ? regex : "one that is not known here";
    if (json_is_true(json_object_get(section, "add_prefix_space"))) *expression = "one that is not known here";
    for (size_t i = 0; i < json_array_size(list); i++) find_splits(json_array_get(list, i), expression, digits);
}

/* The name that llama.cpp has for the way in which texts are cut; NULL: it has none that is known here. */
static const char *name_splitting(const json_t *section)
{
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define REST         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
    const char *expression = NULL;
    bool digits = false;
    find_splits(section, &expression, &digits);
    if (!expression) return digits ? "smollm" : "gpt-2";
    if (strcmp(expression, CONTRACTIONS "\\p{N}{1,3}" REST) == 0) return "llama-bpe";
    return strcmp(expression, CONTRACTIONS "\\p{N}" REST) == 0 ? "qwen2" : NULL;
}

/* True if the section, or one in it, is of the type. */
static bool has_type(const json_t *section, const char *type, const char *list_name)
{
    const json_t *list = json_object_get(section, list_name);
    const char *own = json_string_value(json_object_get(section, "type"));
    if (own && strcmp(own, type) == 0) return true;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (has_type(json_array_get(list, i), type, list_name)) return true;
    return false;
}

/* True if a space is put in front of texts: by a normalizer, or by the section that cuts texts at spaces. */
static bool adds_space(const json_t *root)
{
    const json_t *cut = json_object_get(root, "pre_tokenizer");
    const char *scheme = json_string_value(json_object_get(cut, "prepend_scheme"));
    if (has_type(json_object_get(root, "normalizer"), "Prepend", "normalizers")) return true;
    return has_type(cut, "Metaspace", "pretokenizers") &&
           (scheme ? strcmp(scheme, "never") != 0 : !json_is_false(json_object_get(cut, "add_prefix_space")));
}

/* "a b" of ["a", "b"], malloc'ed. */
static char *merge_text(const json_t *merge)
{
    const char *whole = json_string_value(merge), *a = json_string_value(json_array_get(merge, 0)),
               *b = json_string_value(json_array_get(merge, 1));
    if (!whole && (!a || !b)) return NULL;
    const size_t size = whole ? strlen(whole) + 1 : strlen(a) + strlen(b) + 2;
    char *text = malloc(size);
    if (text) snprintf(text, size, "%s%s%s", whole ? whole : a, whole ? "" : " ", whole ? "" : b);
    return text;
}

static tow_status set_merges(tool_gguf *g, const json_t *merges)
{
    const size_t count = json_array_size(merges);
    char **texts = calloc(count + 1, sizeof *texts);
    tow_status status = texts ? TOW_OK : tool_fail(g->tool, TOW_OUT_OF_MEMORY, "out of memory");
    for (size_t i = 0; i < count && status == TOW_OK; i++) {
        texts[i] = merge_text(json_array_get(merges, i));
        if (!texts[i])
            status = tool_fail(g->tool, TOW_BAD_FORMAT, "%s/tokenizer.json: merge %zu is no pair of tokens",
                               g->directory, i + 1);
    }
    if (status == TOW_OK) status = set_array(g, "tokenizer.ggml.merges", TOW_METADATA_STRING, count, texts);
    for (size_t i = 0; i < count && texts; i++) free(texts[i]);
    free(texts);
    return status;
}

/* Scores that lead to the same merges: a token's is higher the earlier it was merged. */
static tow_status set_scores(tool_gguf *g, const json_t *model, vocabulary *v)
{
    const json_t *merges = json_object_get(model, "merges"), *vocab = json_object_get(model, "vocab");
    for (size_t i = json_array_size(merges); i-- > 0;) { /* the earliest merge of a token counts */
        char *text = merge_text(json_array_get(merges, i)), *space = text ? strchr(text, ' ') : NULL;
        if (space) memmove(space, space + 1, strlen(space));
        const json_t *id = text ? json_object_get(vocab, text) : NULL;
        if (json_is_integer(id)) v->scores[json_integer_value(id)] = -(float)(i + 1);
        free(text);
    }
    return set_array(g, "tokenizer.ggml.scores", TOW_METADATA_F32, v->count, v->scores);
}

/* Of ids that end an answer, that of a turn: one of a known name, else the second. */
static tow_status set_end_of_turn(tool_gguf *g, const json_t *ids, const vocabulary *v)
{
    static const char *const names[] = {"<|eot_id|>", "<|im_end|>", "<end_of_turn>"};
    int64_t end = -1;
    for (size_t i = json_array_size(ids); i-- > 0;) {
        const json_t *id = json_array_get(ids, i);
        const int64_t number = json_integer_value(id);
        bool known = false;
        if (!json_is_integer(id) || number < 0 || number >= (int64_t)v->count) continue;
        for (size_t k = 0; k < 3; k++) known = known || strcmp(v->tokens[number], names[k]) == 0;
        if (known || (end < 0 && i == 1)) end = number;
    }
    return end < 0 ? TOW_OK : set_integer(g, "tokenizer.ggml.eot_token_id", TOW_METADATA_U32, end);
}

/* Ids that config.json names; of several the first. Those of models that were cut may name none of `count` tokens. */
static tow_status set_ids(tool_gguf *g, const json_t *config, size_t count)
{
    static const char *const names[][2] = {{"bos_token_id", "tokenizer.ggml.bos_token_id"},
                                           {"eos_token_id", "tokenizer.ggml.eos_token_id"},
                                           {"pad_token_id", "tokenizer.ggml.padding_token_id"}};
    tow_status status = TOW_OK;
    for (size_t i = 0; i < 3 && status == TOW_OK; i++) {
        const json_t *id = json_object_get(config, names[i][0]);
        if (json_is_array(id)) id = json_array_get(id, 0);
        if (json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) < (json_int_t)count)
            status = set_integer(g, names[i][1], TOW_METADATA_U32, json_integer_value(id));
    }
    return status;
}

/* The model of the tokenizer as llama.cpp has it: "gpt2" on bytes, "llama" on characters with a fallback to bytes. */
static tow_status set_model(tool_gguf *g, const json_t *root, vocabulary *v)
{
    const json_t *model = json_object_get(root, "model");
    const char *type = json_string_value(json_object_get(model, "type"));
    const bool bytes = has_type(json_object_get(root, "decoder"), "ByteLevel", "decoders");
    const char *pre = bytes ? name_splitting(json_object_get(root, "pre_tokenizer")) : "default";
    if (!type || strcmp(type, "BPE") != 0 || !pre || (!bytes && !json_is_true(json_object_get(model, "byte_fallback"))))
        return tool_fail(g->tool, TOW_UNSUPPORTED,
                         "%s/tokenizer.json: expected byte-pair encoding that cuts texts as GPT-2, Llama or Qwen 2 do; "
                         "move the file away to leave the tokenizer out",
                         g->directory);
    tow_status status = tow_tensors_set_metadata(g->metadata, "tokenizer.ggml.model", bytes ? "gpt2" : "llama");
    if (status == TOW_OK) status = tow_tensors_set_metadata(g->metadata, "tokenizer.ggml.pre", pre);
    if (status == TOW_OK) status = bytes ? set_merges(g, json_object_get(model, "merges")) : set_scores(g, model, v);
    if (status == TOW_OK && !bytes)
        status = set_integer(g, "tokenizer.ggml.add_space_prefix", TOW_METADATA_BOOL, adds_space(root));
    for (size_t i = 0; i < v->count && status == TOW_OK && !bytes; i++)
        if (v->types[i] == UNKNOWN)
            status = set_integer(g, "tokenizer.ggml.unknown_token_id", TOW_METADATA_U32, (int64_t)i);
    return status;
}

/* The part of the section, or of one in it, that puts tokens around a text. */
static const json_t *find_template(const json_t *section)
{
    const json_t *list = json_object_get(section, "processors"), *found = NULL;
    const char *type = json_string_value(json_object_get(section, "type"));
    if (type && strcmp(type, "TemplateProcessing") == 0) return section;
    for (size_t i = 0; i < json_array_size(list) && !found; i++) found = find_template(json_array_get(list, i));
    return found;
}

/* The token in front of a text and the one behind it, which count more than what config.json says. */
static tow_status set_ends(tool_gguf *g, const json_t *root, size_t count)
{
    const json_t *template = find_template(json_object_get(root, "post_processor"));
    const json_t *single = json_object_get(template, "single"), *known = json_object_get(template, "special_tokens");
    bool added[2] = {false, false}, behind = false;
    tow_status status = TOW_OK;
    for (size_t i = 0; i < json_array_size(single) && status == TOW_OK; i++) {
        const json_t *step = json_array_get(single, i), *token = json_object_get(step, "SpecialToken");
        const char *name = json_string_value(json_object_get(token, "id"));
        const json_t *id = name ? json_array_get(json_object_get(json_object_get(known, name), "ids"), 0) : NULL;
        if (json_object_get(step, "Sequence")) behind = true;
        if (!json_is_integer(id)) continue;
        if (json_integer_value(id) < 0 || json_integer_value(id) >= (json_int_t)count)
            return refuse_token(g, name, "has an id that no token has");
        if (added[behind])
            return tool_fail(g->tool, TOW_UNSUPPORTED,
                             "%s/tokenizer.json: expected at most one token in front of a text and one behind it",
                             g->directory);
        added[behind] = true;
        status = set_integer(g, behind ? "tokenizer.ggml.eos_token_id" : "tokenizer.ggml.bos_token_id",
                             TOW_METADATA_U32, json_integer_value(id));
    }
    if (status == TOW_OK) status = set_integer(g, "tokenizer.ggml.add_bos_token", TOW_METADATA_BOOL, added[0]);
    if (status == TOW_OK) status = set_integer(g, "tokenizer.ggml.add_eos_token", TOW_METADATA_BOOL, added[1]);
    return status;
}

static tow_status set_tokenizer(tool_gguf *g, const json_t *config, const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    vocabulary v = {.count = 0};
    const int64_t least = json_integer_value(json_object_get(config, "vocab_size"));
    tow_status status = make_vocabulary(g, model, json_object_get(root, "added_tokens"), least, &v);
    if (status == TOW_OK) status = set_model(g, root, &v);
    if (status == TOW_OK) status = set_array(g, "tokenizer.ggml.tokens", TOW_METADATA_STRING, v.count, v.tokens);
    if (status == TOW_OK) status = set_array(g, "tokenizer.ggml.token_type", TOW_METADATA_I32, v.count, v.types);
    if (status == TOW_OK) status = set_ids(g, config, v.count);
    if (status == TOW_OK) status = set_end_of_turn(g, json_object_get(config, "eos_token_id"), &v);
    if (status == TOW_OK) status = set_ends(g, root, v.count);
    free_vocabulary(&v);
    return status;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* A file of JSON beside the weights; *root NULL: there is none. */
static tow_status read_json(tool_gguf *g, const char *name, json_t **root)
{
    char path[4096];
    json_error_t error;
    const int length = snprintf(path, sizeof path, "%s/%s", g->directory, name);
    if (length < 0 || length >= (int)sizeof path)
        return tool_fail(g->tool, TOW_INVALID_ARGUMENT, "the path of %s is too long", name);
    FILE *file = fopen(path, "rb");
    *root = file ? json_loadf(file, 0, &error) : NULL;
    if (file) fclose(file);
    if (!file || *root) return TOW_OK;
    return tool_fail(g->tool, TOW_BAD_FORMAT, "%s: line %d: %s", path, error.line, error.text);
}

/* The template of conversations, from the file beside tokenizer.json that may have it. */
static tow_status set_chat_template(tool_gguf *g)
{
    json_t *root = NULL;
    tow_status status = read_json(g, "tokenizer_config.json", &root);
    const char *text = json_string_value(json_object_get(root, "chat_template"));
    if (status == TOW_OK && text) status = tow_tensors_set_metadata(g->metadata, "tokenizer.chat_template", text);
    json_decref(root);
    return status;
}

tow_status tool_gguf_begin(tool_gguf *g, const char *name)
{
    json_t *config = NULL, *tokenizer = NULL;
    tow_status status = read_json(g, "config.json", &config);
    if (status == TOW_OK && !config)
        status =
            tool_fail(g->tool, TOW_IO_ERROR, "%s/config.json: cannot open; a GGUF file has what it says", g->directory);
    if (status == TOW_OK && strcmp(name, "auto") == 0) {
        const char *type = json_string_value(json_object_get(config, "model_type"));
        name = type && strcmp(type, "mistral") == 0 ? "llama" : type ? type : "none";
    }
    if (status == TOW_OK) status = tool_find_architecture(g->tool, name, &g->architecture);
    if (status == TOW_OK) status = read_json(g, "tokenizer.json", &tokenizer);
    if (status == TOW_OK) status = check_activation(g, config);
    if (status == TOW_OK) status = set_general(g, config);
    if (status == TOW_OK) status = set_numbers(g, config);
    if (status == TOW_OK) status = tow_gguf_model_read(g->metadata, &g->model);
    if (status == TOW_OK) status = check_queries(g, config);
    if (status == TOW_OK) status = set_rope(g, config);
    if (status == TOW_OK && tokenizer) status = set_tokenizer(g, config, tokenizer);
    if (status == TOW_OK && tokenizer) status = set_chat_template(g);
    json_decref(config);
    json_decref(tokenizer);
    return status;
}

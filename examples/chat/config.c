/* Sizes and options of a model from config.json. Options that would give other logits than transformers are refused. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"
#include "model.h"

/* A file that is read. `failed`: a message was printed. */
typedef struct reader {
    const char *program, *path;
    const json_t *root;
    bool failed;
} reader;

static void fail(reader *r, const char *key, const char *expected, const char *found)
{
    if (!r->failed)
        fprintf(stderr, "%s: %s: expected \"%s\" to be %s, found %s\n", r->program, r->path, key, expected, found);
    r->failed = true;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static const json_t *find(const json_t *from, const char *key)
{
    const json_t *value = json_object_get(from, key);
    return json_is_null(value) ? NULL : value;
}

/* A whole number above 0; `otherwise` where the file has none, and an error if that is 0. */
static int64_t read_size(reader *r, const char *key, int64_t otherwise)
{
    const json_t *value = find(r->root, key);
    const int64_t size = json_is_integer(value) ? json_integer_value(value) : value ? 0 : otherwise;
    if (size < 1 || size > INT32_MAX) fail(r, key, "a whole number from 1 to 2^31-1", value ? "another value" : "none");
    return r->failed ? 1 : size;
}

/* A number above 0, `otherwise` where there is none. */
static double read_number(reader *r, const json_t *from, const char *key, double otherwise)
{
    const json_t *value = find(from, key);
    const double number = value ? json_number_value(value) : otherwise;
    if (number < 0 || !isfinite(number) || (value && number == 0)) fail(r, key, "a number above 0", "another value");
    return number;
}

static const char *read_text(const json_t *from, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(from, key));
    return text ? text : otherwise;
}

static bool read_flag(const json_t *from, const char *key) { return json_is_true(json_object_get(from, key)); }

/* Tokens that the vocabulary does not have, as cut models name them, end nothing. */
static void add_end(chat_config *c, const json_t *end)
{
    const json_int_t id = json_is_integer(end) ? json_integer_value(end) : -1;
    for (size_t i = 0; i < c->n_ends; i++)
        if (c->ends[i] == id) return;
    if (id >= 0 && id < c->vocabulary && c->n_ends < MOST_ENDS) c->ends[c->n_ends++] = (int32_t)id;
}

static void read_ends(const json_t *root, chat_config *c)
{
    const json_t *value = find(root, "eos_token_id");
    if (value && !json_is_array(value)) add_end(c, value);
    for (size_t i = 0; i < json_array_size(value); i++) add_end(c, json_array_get(value, i));
}

/* generation_config.json, if it is there, may name more tokens that end an answer. */
static void read_generation(reader *r, const char *directory, chat_config *c)
{
    json_error_t error;
    char *path = path_in(r->program, directory, "generation_config.json");
    FILE *file = path ? fopen(path, "rb") : NULL;
    json_t *root = file ? json_loadf(file, 0, &error) : NULL;
    if (file && !root) fprintf(stderr, "%s: %s: %s\n", r->program, path, error.text);
    r->failed = r->failed || (file && !root);
    if (root) read_ends(root, c);
    if (file) fclose(file);
    json_decref(root);
    free(path);
}

/* ---- the kinds --------------------------------------------------------------------------------------------------- */

static void read_gpt2(reader *r, chat_config *c)
{
    const char *activation = read_text(r->root, "activation_function", "gelu_new");
    if (strcmp(activation, "gelu_new") != 0) fail(r, "activation_function", "gelu_new", activation);
    if (read_flag(r->root, "scale_attn_by_inverse_layer_idx"))
        fail(r, "scale_attn_by_inverse_layer_idx", "false", "true");
    if (json_is_false(json_object_get(r->root, "scale_attn_weights"))) fail(r, "scale_attn_weights", "true", "false");
    if (json_is_false(json_object_get(r->root, "tie_word_embeddings"))) fail(r, "tie_word_embeddings", "true", "false");
    c->learned_positions = c->tied = true;
    c->vocabulary = read_size(r, "vocab_size", 50257);
    c->positions = read_size(r, "n_positions", 1024);
    c->width = read_size(r, "n_embd", 768);
    c->layers = read_size(r, "n_layer", 12);
    c->epsilon = read_number(r, r->root, "layer_norm_epsilon", 1e-5);
    c->block = TOW_TRANSFORMER_BLOCK(.heads = read_size(r, "n_head", 12),
                                     .mlp_features = read_size(r, "n_inner", 4 * c->width), .causal = true,
                                     .epsilon = c->epsilon);
    c->block.qkv_features = c->width;
}

/* "rope_parameters" of today's files, "rope_scaling" and "rope_theta" of older ones. */
static void read_rope(reader *r, tow_rope_options *o)
{
    const json_t *p = find(r->root, "rope_parameters");
    if (!p) p = find(r->root, "rope_scaling");
    const char *type = read_text(p, "rope_type", read_text(p, "type", "default"));
    o->theta = read_number(r, find(p, "rope_theta") ? p : r->root, "rope_theta", 10000);
    o->factor = read_number(r, p, "factor", 1);
    if (strcmp(type, "linear") == 0) {
        o->scaling = TOW_ROPE_LINEAR;
    } else if (strcmp(type, "llama3") == 0) {
        o->scaling = TOW_ROPE_LLAMA3;
        o->low_frequency = read_number(r, p, "low_freq_factor", 1);
        o->high_frequency = read_number(r, p, "high_freq_factor", 4);
        o->original_length = read_number(r, p, "original_max_position_embeddings", 8192);
    } else if (strcmp(type, "default") != 0) {
        fail(r, "rope_type", "default, linear or llama3", type);
    }
    if (read_number(r, r->root, "partial_rotary_factor", 1) != 1)
        fail(r, "partial_rotary_factor", "1", "another value");
}

/* The options that all models shaped like Llama have. */
static void read_llama(reader *r, chat_config *c)
{
    c->vocabulary = read_size(r, "vocab_size", 32000);
    c->positions = read_size(r, "max_position_embeddings", 2048);
    c->width = read_size(r, "hidden_size", 0);
    c->layers = read_size(r, "num_hidden_layers", 0);
    c->epsilon = read_number(r, r->root, "rms_norm_eps", 1e-6);
    c->tied = read_flag(r->root, "tie_word_embeddings");
    const int64_t heads = read_size(r, "num_attention_heads", 0);
    const int64_t head = read_size(r, "head_dim", heads > 0 ? c->width / heads : 0);
    c->block =
        TOW_TRANSFORMER_BLOCK(.heads = heads, .kv_heads = read_size(r, "num_key_value_heads", heads),
                              .mlp_features = read_size(r, "intermediate_size", 0), .causal = true, .no_bias = true,
                              .rms_norm = true, .epsilon = c->epsilon, .gated = true, .rope = true);
    c->block.qkv_features = heads * head;
    read_rope(r, &c->block.rope_options);
}

static void expect_silu(reader *r)
{
    const char *activation = read_text(r->root, "hidden_act", "silu");
    if (strcmp(activation, "silu") != 0) fail(r, "hidden_act", "silu", activation);
}

static void refuse_biases(reader *r)
{
    if (read_flag(r->root, "attention_bias")) fail(r, "attention_bias", "false", "true");
    if (read_flag(r->root, "mlp_bias")) fail(r, "mlp_bias", "false", "true");
}

static void read_plain_llama(reader *r, chat_config *c)
{
    read_llama(r, c);
    expect_silu(r);
    c->block.no_bias = false;
    c->block.no_qkv_bias = c->block.no_out_bias = !read_flag(r->root, "attention_bias");
    c->block.no_mlp_bias = !read_flag(r->root, "mlp_bias");
}

static void read_mistral(reader *r, chat_config *c)
{
    read_llama(r, c);
    expect_silu(r);
    refuse_biases(r);
    if (find(r->root, "sliding_window")) c->block.window = read_size(r, "sliding_window", 0);
}

static void read_qwen2(reader *r, chat_config *c)
{
    read_llama(r, c);
    expect_silu(r);
    if (read_flag(r->root, "use_sliding_window")) fail(r, "use_sliding_window", "false", "true");
    c->block.no_bias = false;
    c->block.no_out_bias = c->block.no_mlp_bias = true;
}

static void read_qwen3(reader *r, chat_config *c)
{
    read_llama(r, c);
    expect_silu(r);
    refuse_biases(r);
    if (read_flag(r->root, "use_sliding_window")) fail(r, "use_sliding_window", "false", "true");
    c->block.qk_norm = TOW_QK_RMS_NORM;
}

static void read_gemma(reader *r, chat_config *c)
{
    read_llama(r, c);
    refuse_biases(r);
    c->tied = c->one_plus = c->scaled_tokens = true; /* whatever the file says: transformers does not ask */
    c->block.activation = tow_gelu;
}

/* A cap is that of transformers where the file does not name it; null means none. */
static double read_cap(reader *r, const char *key, double otherwise)
{
    return json_is_null(json_object_get(r->root, key)) ? 0 : read_number(r, r->root, key, otherwise);
}

/* Windows of every second layer, from the first one on. */
static void expect_alternation(reader *r)
{
    static const char *const types[] = {"sliding_attention", "full_attention"};
    const json_t *found = find(r->root, "layer_types");
    for (size_t i = 0; i < json_array_size(found); i++) {
        const char *type = json_string_value(json_array_get(found, i));
        if (!type || strcmp(type, types[i % 2]) != 0)
            fail(r, "layer_types", "sliding_attention and full_attention in turn", "another order");
    }
}

static void read_gemma2(reader *r, chat_config *c)
{
    const char *activation = read_text(r->root, "hidden_activation", "gelu_pytorch_tanh");
    read_gemma(r, c);
    if (strcmp(activation, "gelu_pytorch_tanh") != 0) fail(r, "hidden_activation", "gelu_pytorch_tanh", activation);
    expect_alternation(r);
    c->block.branch_norms = true;
    c->block.logit_cap = read_cap(r, "attn_logit_softcapping", 50);
    c->logit_cap = read_cap(r, "final_logit_softcapping", 30);
    c->block.scale = 1 / sqrt(read_number(r, r->root, "query_pre_attn_scalar", 256));
    c->local_window = read_size(r, "sliding_window", 4096);
}

static const struct {
    const char *type, *mapping;
    void (*read)(reader *r, chat_config *c);
} kinds[] = {
    {"gpt2", "gpt2", read_gpt2},       {"llama", "llama", read_plain_llama}, {"mistral", "llama", read_mistral},
    {"qwen2", "llama", read_qwen2},    {"qwen3", "qwen3", read_qwen3},       {"gemma", "gemma", read_gemma},
    {"gemma2", "gemma2", read_gemma2},
};

static void read_config(reader *r, chat_config *c)
{
    const char *type = read_text(r->root, "model_type", "none");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(type, kinds[i].type) != 0) continue;
        c->mapping = kinds[i].mapping;
        kinds[i].read(r, c);
        read_ends(r->root, c);
        return;
    }
    fail(r, "model_type", "gpt2, llama, mistral, qwen2, qwen3, gemma or gemma2", type);
}

bool chat_read_config(const char *program, const char *directory, chat_config *config)
{
    json_error_t error;
    reader r = {.program = program};
    char *path = path_in(program, directory, "config.json");
    json_t *root = path ? json_load_file(path, 0, &error) : NULL;
    *config = (chat_config){0};
    if (path && !root) fprintf(stderr, "%s: %s: %s\n", program, path, error.text);
    r.path = path;
    r.root = root;
    r.failed = !root;
    if (root) read_config(&r, config);
    if (!r.failed) read_generation(&r, directory, config);
    json_decref(root);
    free(path);
    return !r.failed;
}

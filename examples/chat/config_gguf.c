/* Sizes and options of a model from the metadata of a GGUF file, as llama.cpp writes them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/common.h"
#include "model.h"

typedef struct reader {
    const char *program, *path;
    const tow_tensors *tensors;
    tow_gguf_model sizes;
    bool failed;
} reader;

static bool fail(reader *r, const char *key, const char *what)
{
    if (!r->failed) fprintf(stderr, "%s: %s: %s%s\n", r->program, r->path, key, what);
    r->failed = true;
    return false;
}

/* "llama.rope.scaling.type" */
static tow_metadata_value of_architecture(const reader *r, const char *key)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", r->sizes.architecture, key);
    return tow_tensors_metadata_value(r->tensors, name);
}

static double number_of(const reader *r, const char *key, double otherwise)
{
    const tow_metadata_value value = of_architecture(r, key);
    return value.type == TOW_METADATA_NONE ? otherwise : value.number;
}

/* ---- rotary positions -------------------------------------------------------------------------------------------- */

static bool has_tensor(const reader *r, const char *name)
{
    for (size_t i = 0; i < tow_tensors_count(r->tensors); i++)
        if (strcmp(tow_tensors_name(r->tensors, i), name) == 0) return true;
    return false;
}

static void read_rope(reader *r, tow_rope_options *o)
{
    const tow_gguf_model *m = &r->sizes;
    o->theta = m->rope_base;
    o->factor = m->rope_factor;
    if (m->rope_width != m->head_width) o->features = m->rope_width;
    if (strcmp(m->rope_scaling, "linear") == 0) {
        o->scaling = TOW_ROPE_LINEAR;
    } else if (strcmp(m->rope_scaling, "llama3") == 0) {
        o->scaling = TOW_ROPE_LLAMA3;
        o->low_frequency = m->rope_low;
        o->high_frequency = m->rope_high;
        o->original_length = m->rope_length;
    } else if (strcmp(m->rope_scaling, "none") != 0) {
        fail(r, "rope.scaling.type", ": expected none or linear");
    }
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

static void read_sizes(reader *r, chat_config *c)
{
    const tow_gguf_model *m = &r->sizes;
    *c = (chat_config){.vocabulary = m->vocabulary,
                       .positions = m->context > 0 ? m->context : 2048,
                       .width = m->width,
                       .layers = m->layers,
                       .epsilon = m->norm_epsilon};
    char last[64];
    snprintf(last, sizeof last, "blk.%lld.attn_norm.weight", (long long)m->layers - 1);
    c->tied = !has_tensor(r, "output.weight");
    c->block =
        TOW_TRANSFORMER_BLOCK(.heads = m->heads, .mlp_features = m->hidden, .causal = true, .epsilon = m->norm_epsilon);
    c->block.qkv_features = m->heads * m->head_width;
    if (m->layers < 1 || m->width < 1 || m->heads < 1 || m->hidden < 1 || m->vocabulary < 1)
        fail(r, m->architecture, ": layers, width, heads, hidden features or tokens are not given");
    else if (!has_tensor(r, last))
        fail(r, last, ": expected this tensor of the last layer, which is not there");
}

/* Biases of Llama, each where the first layer has it. */
static void read_biases(const reader *r, tow_transformer_block *b)
{
    b->no_bias = false;
    b->no_qkv_bias = !has_tensor(r, "blk.0.attn_q.bias");
    b->no_out_bias = !has_tensor(r, "blk.0.attn_output.bias");
    b->no_mlp_bias = !has_tensor(r, "blk.0.ffn_up.bias");
}

static bool takes_bias(const tow_transformer_block *b, const char *name)
{
    if (b->no_bias) return false;
    if (strstr(name, "attn_output.")) return !b->no_out_bias;
    if (strstr(name, "ffn_")) return !b->no_mlp_bias;
    return !b->no_qkv_bias && (strstr(name, "attn_q.") || strstr(name, "attn_k.") || strstr(name, "attn_v."));
}

static void check_biases(reader *r, const chat_config *c)
{
    for (size_t i = 0; i < tow_tensors_count(r->tensors); i++) {
        const char *name = tow_tensors_name(r->tensors, i);
        const size_t length = strlen(name);
        const bool is_bias = length > 5 && strcmp(name + length - 5, ".bias") == 0;
        if (is_bias && !takes_bias(&c->block, name)) fail(r, name, ": models of this kind with this bias are refused");
    }
}

/* The options that all models shaped like Llama have. */
static void read_llama(reader *r, chat_config *c)
{
    c->block.kv_heads = r->sizes.kv_heads;
    c->block.no_bias = c->block.rms_norm = c->block.gated = c->block.rope = true;
    read_rope(r, &c->block.rope_options);
}

static void read_plain_llama(reader *r, chat_config *c)
{
    read_llama(r, c);
    read_biases(r, &c->block);
}

static void read_gpt2(reader *r, chat_config *c)
{
    (void)r;
    c->learned_positions = true;
}

static void read_qwen2(reader *r, chat_config *c)
{
    read_llama(r, c);
    c->block.no_bias = false;
    c->block.no_out_bias = c->block.no_mlp_bias = true;
}

static void read_qwen3(reader *r, chat_config *c)
{
    read_llama(r, c);
    c->block.qk_norm = TOW_QK_RMS_NORM;
}

static void read_gemma(reader *r, chat_config *c)
{
    read_llama(r, c);
    c->tied = c->one_plus = c->scaled_tokens = true; /* a file may have a copy of the tokens as output.weight */
    c->block.activation = tow_gelu;
}

/* Queries of the model of 46 layers are scaled by the features of the model for each head, not by those of a head. */
static void read_gemma2(reader *r, chat_config *c)
{
    read_gemma(r, c);
    c->block.branch_norms = true;
    c->block.logit_cap = number_of(r, "attn_logit_softcapping", 50);
    c->logit_cap = number_of(r, "final_logit_softcapping", 30);
    c->local_window = (int64_t)number_of(r, "attention.sliding_window", 4096);
    if (c->layers == 46) c->block.scale = 1 / sqrt((double)c->width / (double)c->block.heads);
}

static const struct {
    const char *architecture, *mapping;
    void (*read)(reader *r, chat_config *c);
} kinds[] = {{"gpt2", "gguf-gpt2", read_gpt2},    {"llama", "gguf-llama", read_plain_llama},
             {"qwen2", "gguf-qwen2", read_qwen2}, {"qwen3", "gguf-qwen3", read_qwen3},
             {"gemma", "gguf-gemma", read_gemma}, {"gemma2", "gguf-gemma2", read_gemma2}};

static void add_end(const reader *r, chat_config *c, const char *key)
{
    const tow_metadata_value value = tow_tensors_metadata_value(r->tensors, key);
    if (value.type == TOW_METADATA_NONE || value.integer < 0 || value.integer >= c->vocabulary) return;
    if (c->n_ends < MOST_ENDS) c->ends[c->n_ends++] = (int32_t)value.integer;
}

static bool read_config(reader *r, chat_config *c)
{
    const size_t n = sizeof kinds / sizeof *kinds;
    size_t i = 0;
    while (i < n && strcmp(kinds[i].architecture, r->sizes.architecture) != 0) i++;
    if (i == n) {
        fprintf(stderr, "%s: %s: general.architecture: expected", r->program, r->path);
        for (size_t k = 0; k < n; k++) fprintf(stderr, " %s", kinds[k].architecture);
        fprintf(stderr, ", found %s\n", r->sizes.architecture);
        return false;
    }
    read_sizes(r, c);
    if (r->failed) return false;
    c->mapping = kinds[i].mapping;
    kinds[i].read(r, c);
    if (c->block.rms_norm) check_biases(r, c);
    add_end(r, c, "tokenizer.ggml.eos_token_id");
    add_end(r, c, "tokenizer.ggml.eot_token_id");
    return !r->failed;
}

bool chat_read_gguf(const char *program, tow_context *context, const char *path, chat_config *config)
{
    tow_tensors *tensors = NULL;
    reader r = {.program = program, .path = path};
    bool good = false;
    if (tow_gguf_mmap(context, path, &tensors) == TOW_OK && tow_gguf_model_read(tensors, &r.sizes) == TOW_OK) {
        r.tensors = tensors;
        good = read_config(&r, config);
    } else {
        report_error(program, context);
    }
    tow_tensors_free(tensors);
    return good;
}

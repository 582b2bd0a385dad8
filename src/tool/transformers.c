/* convert-weights --architecture from GGUF to a directory of transformers: config.json, tokenizer.json and
 * tokenizer_config.json of the metadata. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/tool/gguf.h"

/* ---- values ------------------------------------------------------------------------------------------------------ */

static tow_metadata_value metadata(const tool_transformers *f, const char *key)
{
    return tow_tensors_metadata_value(f->tensors, key);
}

static bool has_tensor(const tool_transformers *f, const char *name)
{
    for (size_t i = 0; i < tow_tensors_count(f->tensors); i++)
        if (strcmp(tow_tensors_name(f->tensors, i), name) == 0) return true;
    return false;
}

static bool is_kind(const tool_transformers *f, const char *name) { return strcmp(f->architecture->name, name) == 0; }

/* A float of a GGUF file as the shortest number that is it: 1e-05, not 9.9999997e-06. */
static double shortest(double number)
{
    char text[32];
    for (int digits = 1; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtof(text, NULL) == (float)number) return strtod(text, NULL);
    }
    return number;
}

static void set_text(json_t *object, const char *key, const char *text)
{
    json_object_set_new(object, key, json_string(text));
}

/* ---- config.json ------------------------------------------------------------------------------------------------- */

/* A kind of model by its name in GGUF files and in transformers, with what config.json says besides numbers. */
static const struct kind {
    const char *name, *model, *activation_key, *activation;
    bool tied; /* whatever the file has */
} kinds[] = {
    {"gemma", "GemmaForCausalLM", "hidden_activation", "gelu_pytorch_tanh", true},
    {"gemma2", "Gemma2ForCausalLM", "hidden_activation", "gelu_pytorch_tanh", true},
    {"gpt2", "GPT2LMHeadModel", "activation_function", "gelu_new", true},
    {"llama", "LlamaForCausalLM", "hidden_act", "silu", false},
    {"qwen2", "Qwen2ForCausalLM", "hidden_act", "silu", false},
    {"qwen3", "Qwen3ForCausalLM", "hidden_act", "silu", false},
};

static const struct kind *kind_of(const tool_transformers *f)
{
    size_t i = 0;
    while (strcmp(kinds[i].name, f->architecture->name) != 0) i++;
    return &kinds[i];
}

static bool is_sound(const tool_number *n, tow_metadata_value value)
{
    const bool real = value.type == TOW_METADATA_F32 || value.type == TOW_METADATA_F64;
    if (value.type == TOW_METADATA_STRING || value.type == TOW_METADATA_ARRAY || value.type == TOW_METADATA_BOOL)
        return false;
    return n->type == TOW_METADATA_F32 ? isfinite(value.number) != 0 : !real && value.integer >= 0;
}

/* The numbers that are metadata: under the last of their names for GPT-2, else under the first. */
static tow_status set_numbers(tool *t, const tool_transformers *f)
{
    for (const tool_number *n = tool_numbers; n->key; n++) {
        char key[128];
        const char *name = is_kind(f, "gpt2") && n->names[1] ? n->names[1] : n->names[0];
        snprintf(key, sizeof key, "%s.%s", f->model->architecture, n->key);
        const tow_metadata_value value = metadata(f, key);
        if (value.type == TOW_METADATA_NONE || (n->only && !is_kind(f, n->only))) continue;
        if (!is_sound(n, value))
            return tool_fail(t, TOW_BAD_FORMAT, "%s: metadata '%s': expected one %s", t->options.file, key,
                             n->type == TOW_METADATA_F32 ? "finite number" : "integer, 0 or above");
        json_object_set_new(f->config, name,
                            n->type == TOW_METADATA_F32 ? json_real(shortest(value.number))
                                                        : json_integer(value.integer));
    }
    return TOW_OK;
}

/* Sizes that a file may leave out. */
static void set_sizes(const tool_transformers *f)
{
    const tow_gguf_model *m = f->model;
    json_object_set_new(f->config, "vocab_size", json_integer(m->vocabulary));
    if (is_kind(f, "gpt2")) return;
    json_object_set_new(f->config, "num_key_value_heads", json_integer(m->kv_heads));
    json_object_set_new(f->config, "head_dim", json_integer(m->head_width));
    json_object_set_new(f->config, "rope_theta", json_real(shortest(m->rope_base)));
}

static tow_status set_rope(tool *t, const tool_transformers *f)
{
    const tow_gguf_model *m = f->model;
    if (m->rope_width != m->head_width)
        return tool_fail(
            t, TOW_UNSUPPORTED,
            "%s: rope.dimension_count: expected all %lld features of a head, found %lld, which config.json "
            "of this kind cannot say",
            t->options.file, (long long)m->head_width, (long long)m->rope_width);
    if (strcmp(m->rope_scaling, "none") == 0) return TOW_OK;
    const bool llama3 = strcmp(m->rope_scaling, "llama3") == 0;
    if (!llama3 && strcmp(m->rope_scaling, "linear") != 0)
        return tool_fail(t, TOW_UNSUPPORTED, "%s: rope.scaling.type: expected none or linear, found %.60s",
                         t->options.file, m->rope_scaling);
    if (llama3 && m->rope_length > INT32_MAX)
        return tool_fail(t, TOW_BAD_FORMAT,
                         "%s: rope.scaling.original_context_length: expected less than 2^31, found %g", t->options.file,
                         m->rope_length);
    json_t *rope = json_object();
    set_text(rope, "rope_type", m->rope_scaling);
    json_object_set_new(rope, "factor", json_real(shortest(m->rope_factor)));
    if (llama3) {
        json_object_set_new(rope, "low_freq_factor", json_real(m->rope_low));
        json_object_set_new(rope, "high_freq_factor", json_real(m->rope_high));
        json_object_set_new(rope, "original_max_position_embeddings", json_integer((int64_t)m->rope_length));
    }
    json_object_set_new(f->config, "rope_scaling", rope);
    return TOW_OK;
}

/* True if the value is the id of a token; files without one have -1. */
static bool names_token(const tool_transformers *f, tow_metadata_value value)
{
    const bool is_integer = value.type != TOW_METADATA_NONE && value.type != TOW_METADATA_STRING &&
                            value.type != TOW_METADATA_ARRAY && value.type != TOW_METADATA_F32 &&
                            value.type != TOW_METADATA_F64 && value.type != TOW_METADATA_BOOL;
    return is_integer && value.integer >= 0 && value.integer < f->model->vocabulary;
}

/* Ids of tokens; of two that end an answer, both. */
static void set_ids(const tool_transformers *f)
{
    static const char *const names[][2] = {{"bos_token_id", "tokenizer.ggml.bos_token_id"},
                                           {"eos_token_id", "tokenizer.ggml.eos_token_id"},
                                           {"pad_token_id", "tokenizer.ggml.padding_token_id"}};
    for (size_t i = 0; i < 3; i++) {
        const tow_metadata_value value = metadata(f, names[i][1]);
        if (names_token(f, value)) json_object_set_new(f->config, names[i][0], json_integer(value.integer));
    }
    const tow_metadata_value eos = metadata(f, "tokenizer.ggml.eos_token_id"),
                             eot = metadata(f, "tokenizer.ggml.eot_token_id");
    if (names_token(f, eos) && names_token(f, eot) && eot.integer != eos.integer)
        json_object_set_new(f->config, "eos_token_id",
                            json_pack("[II]", (json_int_t)eos.integer, (json_int_t)eot.integer));
}

static tow_status make_config(tool *t, tool_transformers *f)
{
    const tow_gguf_model *m = f->model;
    const struct kind *kind = kind_of(f);
    if (m->layers < 1 || m->width < 1 || m->hidden < 1 || m->heads < 1 || m->head_width < 1 || m->vocabulary < 1)
        return tool_fail(t, TOW_BAD_FORMAT, "%s: layers, width, heads, hidden features or tokens are not given",
                         t->options.file);
    f->config = json_object();
    json_object_set_new(f->config, "architectures", json_pack("[s]", kind->model));
    set_text(f->config, "model_type", kind->name);
    set_text(f->config, kind->activation_key, kind->activation);
    json_object_set_new(f->config, "tie_word_embeddings", json_boolean(kind->tied || !has_tensor(f, "output.weight")));
    const tow_status status = set_numbers(t, f);
    if (status != TOW_OK) return status;
    set_sizes(f);
    if (is_kind(f, "llama")) {
        json_object_set_new(f->config, "attention_bias", json_boolean(has_tensor(f, "blk.0.attn_q.bias")));
        json_object_set_new(f->config, "mlp_bias", json_boolean(has_tensor(f, "blk.0.ffn_up.bias")));
    }
    if (is_kind(f, "gemma2"))
        json_object_set_new(f->config, "query_pre_attn_scalar", json_integer(tool_gemma2_scalar(f->model)));
    set_ids(f);
    return is_kind(f, "gpt2") ? TOW_OK : set_rope(t, f);
}

/* ---- tokenizer_config.json --------------------------------------------------------------------------------------- */

/* The name of a token that the metadata name by its id. One that is an ordinary piece of text stays that: transformers
 * would look for it before texts are cut. */
static void set_token(const tool_transformers *f, const char *name, const char *key)
{
    enum {
        UNKNOWN = 2,
        CONTROL = 3
    };
    const tow_metadata_value id = metadata(f, key), tokens = metadata(f, "tokenizer.ggml.tokens"),
                             types = metadata(f, "tokenizer.ggml.token_type");
    if (!names_token(f, id) || (uint64_t)id.integer >= tokens.count) return;
    const int32_t type = types.count == tokens.count ? ((const int32_t *)types.elements)[id.integer] : CONTROL;
    if (type != UNKNOWN && type != CONTROL) return;
    set_text(f->tokenizer_config, name, ((const char *const *)tokens.elements)[id.integer]);
}

/* Says that tokenizer.json has all of it. */
static void make_tokenizer_config(tool_transformers *f)
{
    const tow_metadata_value template = metadata(f, "tokenizer.chat_template");
    f->tokenizer_config = json_object();
    set_text(f->tokenizer_config, "tokenizer_class", "PreTrainedTokenizerFast");
    json_object_set_new(f->tokenizer_config, "model_input_names", json_pack("[ss]", "input_ids", "attention_mask"));
    json_object_set_new(f->tokenizer_config, "clean_up_tokenization_spaces", json_false());
    if (f->model->context > 0)
        json_object_set_new(f->tokenizer_config, "model_max_length", json_integer(f->model->context));
    set_token(f, "bos_token", "tokenizer.ggml.bos_token_id");
    set_token(f, "eos_token", "tokenizer.ggml.eos_token_id");
    set_token(f, "unk_token", "tokenizer.ggml.unknown_token_id");
    set_token(f, "pad_token", "tokenizer.ggml.padding_token_id");
    if (template.type == TOW_METADATA_STRING) set_text(f->tokenizer_config, "chat_template", template.text);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static tow_status check_tokenizer(tool *t, const tool_transformers *f)
{
    tow_tokenizer *tokenizer = NULL;
    const tow_status status = tow_tokenizer_from_tensors(t->context, f->tensors, &tokenizer);
    tow_tokenizer_free(tokenizer);
    if (status == TOW_OK || status == TOW_OUT_OF_MEMORY) return status;
    return tool_fail(t, status,
                     "%s: no tokenizer.json can be made: %s; give -o a name that ends with .safetensors for the "
                     "weights alone",
                     t->options.file, tow_context_error(t->context));
}

tow_status tool_transformers_begin(tool *t, tool_transformers *f)
{
    tow_status status = make_config(t, f);
    if (status != TOW_OK || metadata(f, "tokenizer.ggml.model").type == TOW_METADATA_NONE) return status;
    status = check_tokenizer(t, f);
    if (status == TOW_OK) make_tokenizer_config(f);
    return status;
}

static bool find_path(tool *t, const char *directory, const char *name, char *path, size_t size)
{
    const int length = snprintf(path, size, "%s/%s", directory, name);
    if (length > 0 && length < (int)size) return true;
    tool_fail(t, TOW_INVALID_ARGUMENT, "-o: the path of %s is too long", name);
    return false;
}

/* Writes beside the file and renames, so that what was there stays whole until all is written. */
static bool replace_file(const char *path, const char *temporary, const char *text)
{
    FILE *file = fopen(temporary, "w");
    bool written = file && fputs(text, file) >= 0;
    if (file && fclose(file) != 0) written = false;
    if (written && rename(temporary, path) == 0) return true;
    const int error = errno;
    remove(temporary);
    errno = error;
    return false;
}

static tow_status write_json(tool *t, const char *directory, const char *name, const json_t *root)
{
    char path[4096], temporary[4096 + 8];
    if (!find_path(t, directory, name, path, sizeof path)) return TOW_INVALID_ARGUMENT;
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    if (!text) return tool_fail(t, TOW_OUT_OF_MEMORY, "%s: out of memory", path);
    const bool written = replace_file(path, temporary, text);
    free(text);
    return written ? TOW_OK : tool_fail(t, TOW_IO_ERROR, "%s: cannot write: %s", path, strerror(errno));
}

static void name_configs(const char *directory, char path[4096], char aside[4096])
{
    snprintf(path, 4096, "%s/config.json", directory);
    snprintf(aside, 4096, "%s/config.json.old", directory);
}

tow_status tool_transformers_set_aside(tool *t, const char *directory)
{
    char path[4096], aside[4096];
    if (!find_path(t, directory, "config.json.old", aside, sizeof aside)) return TOW_INVALID_ARGUMENT;
    name_configs(directory, path, aside);
    remove(aside); /* of a run that was killed */
    if (rename(path, aside) == 0 || errno == ENOENT) return TOW_OK;
    return tool_fail(t, TOW_IO_ERROR, "%s: cannot rename: %s", path, strerror(errno));
}

void tool_transformers_put_back(const char *directory, bool stayed)
{
    char path[4096], aside[4096];
    name_configs(directory, path, aside);
    if (stayed)
        rename(aside, path);
    else
        remove(aside);
}

/* config.json comes last: a directory without it is no model. */
tow_status tool_transformers_write(tool *t, const tool_transformers *f, const char *directory)
{
    char path[4096];
    tow_status status = TOW_OK;
    if (f->tokenizer_config) {
        if (!find_path(t, directory, "tokenizer.json", path, sizeof path)) return TOW_INVALID_ARGUMENT;
        status = write_json(t, directory, "tokenizer_config.json", f->tokenizer_config);
        if (status == TOW_OK) status = tow_tokenizer_write_json(t->context, f->tensors, path);
    }
    return status == TOW_OK ? write_json(t, directory, "config.json", f->config) : status;
}

void tool_transformers_end(tool_transformers *f)
{
    json_decref(f->config);
    json_decref(f->tokenizer_config);
}

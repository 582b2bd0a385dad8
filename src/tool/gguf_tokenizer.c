/* convert-weights --architecture to GGUF: the metadata of the tokenizer, which are made of tokenizer.json. */
#include <stdlib.h>
#include <string.h>

#include "src/tool/gguf.h"

/* ---- tokenizer.json ---------------------------------------------------------------------------------------------- */

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
    if (v->types[id] != TOOL_UNKNOWN) v->types[id] = type;
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
        const int32_t type = unk && strcmp(key, unk) == 0 ? TOOL_UNKNOWN : is_byte_token(key) ? TOOL_BYTE : TOOL_NORMAL;
        status = take_token(g, v, key, json_integer_value(value), type);
        if (status != TOW_OK) return status;
    }
    json_array_foreach(added, i, value)
    {
        const int32_t type = json_is_true(json_object_get(value, "special")) ? TOOL_CONTROL : TOOL_USER_DEFINED;
        status = take_token(g, v, json_string_value(json_object_get(value, "content")),
                            json_integer_value(json_object_get(value, "id")), type);
        if (status != TOW_OK) return status;
    }
    for (i = 0; i < v->count; i++) {
        if (v->tokens[i]) continue;
        snprintf(v->padding[i], sizeof v->padding[i], "[PAD%zu]", i);
        v->tokens[i] = v->padding[i];
        v->types[i] = TOOL_UNUSED;
    }
    return TOW_OK;
}

static tow_status set_merges(tool_gguf *g, const json_t *merges)
{
    const size_t count = json_array_size(merges);
    char **texts = calloc(count + 1, sizeof *texts);
    tow_status status = texts ? TOW_OK : tool_fail(g->tool, TOW_OUT_OF_MEMORY, "out of memory");
    for (size_t i = 0; i < count && status == TOW_OK; i++) {
        texts[i] = tool_merge_text(json_array_get(merges, i));
        if (!texts[i])
            status = tool_fail(g->tool, TOW_BAD_FORMAT, "%s/tokenizer.json: merge %zu is no pair of tokens",
                               g->directory, i + 1);
    }
    if (status == TOW_OK) status = tool_set_array(g, "tokenizer.ggml.merges", TOW_METADATA_STRING, count, texts);
    for (size_t i = 0; i < count && texts; i++) free(texts[i]);
    free(texts);
    return status;
}

/* Scores that lead to the same merges: a token's is higher the earlier it was merged. */
static tow_status set_scores(tool_gguf *g, const json_t *model, vocabulary *v)
{
    const json_t *merges = json_object_get(model, "merges"), *vocab = json_object_get(model, "vocab");
    for (size_t i = json_array_size(merges); i-- > 0;) { /* the earliest merge of a token counts */
        char *text = tool_merge_text(json_array_get(merges, i)), *space = text ? strchr(text, ' ') : NULL;
        if (space) memmove(space, space + 1, strlen(space));
        const json_t *id = text ? json_object_get(vocab, text) : NULL;
        if (json_is_integer(id)) v->scores[json_integer_value(id)] = -(float)(i + 1);
        free(text);
    }
    return tool_set_array(g, "tokenizer.ggml.scores", TOW_METADATA_F32, v->count, v->scores);
}

/* Id i of one id or a list of ids; NULL: there are fewer. */
static const json_t *id_at(const json_t *ids, size_t i)
{
    return json_is_array(ids) ? json_array_get(ids, i) : i == 0 ? ids : NULL;
}

static bool ends_turns(const char *token)
{
    static const char *const names[] = {"<|eot_id|>", "<|im_end|>", "<end_of_turn>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(token, names[i]) == 0) return true;
    return false;
}

/* Of the ids of both files that end an answer, that of a turn: one of a known name, else the first one that is not
 * config.json's first, which has an entry of its own. */
static tow_status set_end_of_turn(tool_gguf *g, const json_t *config, const json_t *generation, const vocabulary *v)
{
    const json_t *ids[] = {json_object_get(config, "eos_token_id"), json_object_get(generation, "eos_token_id")};
    const json_t *first = id_at(ids[0], 0);
    int64_t end = -1;
    bool known = false;
    for (int file = 0; file < 2; file++)
        for (size_t i = 0; id_at(ids[file], i); i++) {
            const json_t *id = id_at(ids[file], i);
            const int64_t number = json_integer_value(id);
            if (!json_is_integer(id) || number < 0 || number >= (int64_t)v->count) continue;
            const bool knows = ends_turns(v->tokens[number]), other = !first || number != json_integer_value(first);
            if (known || (end >= 0 && !knows) || !(knows || other)) continue;
            end = number;
            known = knows;
        }
    return end < 0 ? TOW_OK : tool_set_integer(g, "tokenizer.ggml.eot_token_id", TOW_METADATA_U32, end);
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
            status = tool_set_integer(g, names[i][1], TOW_METADATA_U32, json_integer_value(id));
    }
    return status;
}

/* The model of the tokenizer as llama.cpp has it: "gpt2" on bytes, "llama" on characters with a fallback to bytes. */
static tow_status set_model(tool_gguf *g, const json_t *root, vocabulary *v)
{
    const json_t *model = json_object_get(root, "model");
    const char *type = json_string_value(json_object_get(model, "type"));
    const bool bytes = tool_has_type(json_object_get(root, "decoder"), "ByteLevel", "decoders");
    const tool_splitting *splitting;
    if (!type || strcmp(type, "BPE") != 0 || (!bytes && !json_is_true(json_object_get(model, "byte_fallback"))))
        return tool_fail(g->tool, TOW_UNSUPPORTED,
                         "%s/tokenizer.json: expected byte-pair encoding that cuts texts as GPT-2, Llama or Qwen 2 do; "
                         "move the file away to leave the tokenizer out",
                         g->directory);
    tow_status status = tool_check_tokenizer(g, root, bytes, &splitting);
    if (status == TOW_OK && !bytes) status = tool_check_merges(g, model, v->types, v->count);
    if (status == TOW_OK)
        status = tow_tensors_set_metadata(g->metadata, "tokenizer.ggml.model", bytes ? "gpt2" : "llama");
    if (status == TOW_OK) status = tow_tensors_set_metadata(g->metadata, "tokenizer.ggml.pre", splitting->pre);
    if (status == TOW_OK) status = bytes ? set_merges(g, json_object_get(model, "merges")) : set_scores(g, model, v);
    if (status == TOW_OK && !bytes)
        status = tool_set_integer(g, "tokenizer.ggml.add_space_prefix", TOW_METADATA_BOOL, splitting->prefix);
    for (size_t i = 0; i < v->count && status == TOW_OK && !bytes; i++)
        if (v->types[i] == TOOL_UNKNOWN)
            status = tool_set_integer(g, "tokenizer.ggml.unknown_token_id", TOW_METADATA_U32, (int64_t)i);
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
        status = tool_set_integer(g, behind ? "tokenizer.ggml.eos_token_id" : "tokenizer.ggml.bos_token_id",
                                  TOW_METADATA_U32, json_integer_value(id));
    }
    if (status == TOW_OK) status = tool_set_integer(g, "tokenizer.ggml.add_bos_token", TOW_METADATA_BOOL, added[0]);
    if (status == TOW_OK) status = tool_set_integer(g, "tokenizer.ggml.add_eos_token", TOW_METADATA_BOOL, added[1]);
    return status;
}

tow_status tool_set_tokenizer(tool_gguf *g, const json_t *config, const json_t *generation, const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    vocabulary v = {.count = 0};
    const int64_t least = json_integer_value(json_object_get(config, "vocab_size"));
    tow_status status = make_vocabulary(g, model, json_object_get(root, "added_tokens"), least, &v);
    if (status == TOW_OK) status = set_model(g, root, &v);
    if (status == TOW_OK) status = tool_set_array(g, "tokenizer.ggml.tokens", TOW_METADATA_STRING, v.count, v.tokens);
    if (status == TOW_OK) status = tool_set_array(g, "tokenizer.ggml.token_type", TOW_METADATA_I32, v.count, v.types);
    if (status == TOW_OK) status = set_ids(g, config, v.count);
    if (status == TOW_OK) status = set_end_of_turn(g, config, generation, &v);
    if (status == TOW_OK) status = set_ends(g, root, v.count);
    free_vocabulary(&v);
    return status;
}

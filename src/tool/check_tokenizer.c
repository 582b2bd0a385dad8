/* convert-weights --architecture to GGUF: whether the metadata of a GGUF file can say what tokenizer.json says. They
 * have one name for the way in which texts are normalized and cut (src/text/read_gguf.c), no options of added tokens,
 * and of tokenizers on characters scores in place of merges. The rest of tokenizer.json would be lost. */
#include <stdlib.h>
#include <string.h>

#include "src/tool/gguf.h"

#define SPACE        "\xe2\x96\x81" /* U+2581, which stands for a space */
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define REST         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const tool_splitting splittings[] = {
    {"gpt-2", "", "words of GPT-2", .bytes = true},
    {"llama-bpe", "", "words of Llama 3, bytes", .bytes = true, .ignore_merges = true},
    {"qwen2", "NFC", "words of Qwen 2, bytes", .bytes = true},
    {"smollm", "", "single digits, words of GPT-2", .bytes = true},
    {"default", "space in front, spaces as U+2581", "", .prefix = true},
    {"default", "space in front, spaces as U+2581", "split at spaces", .prefix = true}, /* of which none are left */
    {"default", "spaces as U+2581", ""},
    {"default", "spaces as U+2581", "split at spaces"}, /* of Gemma */
    {"default", "", "spaces as U+2581"},
    {"default", "", "a space in front of all, spaces as U+2581", .prefix = true, .extra = ""},
    {"default", "", "a space in front of the first, spaces as U+2581", .prefix = true,
     .extra = ", at the beginning of a text"},
};

enum {
    N_SPLITTINGS = sizeof splittings / sizeof *splittings,
    MOST_MERGED = 1024, /* bytes of a token that readers of GGUF files find merges of */
    STEPS = 512         /* bytes of a section's steps as text */
};

static tow_status refuse(const tool_gguf *g, const char *section, const char *expected, const char *found)
{
    return tool_fail(g->tool, TOW_UNSUPPORTED,
                     "%s/tokenizer.json: %s: expected %s, as GGUF files have it, found %.300s; move the file away to "
                     "leave the tokenizer out",
                     g->directory, section, expected, *found ? found : "none");
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static const char *text_of(const json_t *step, const char *key)
{
    const char *text = json_string_value(json_object_get(step, key));
    return text ? text : "";
}

static bool is_text(const json_t *step, const char *key, const char *text)
{
    return strcmp(text_of(step, key), text) == 0;
}

static const char *name_split(const json_t *step)
{
    const json_t *pattern = json_object_get(step, "pattern");
    if (json_is_true(json_object_get(step, "invert"))) return NULL;
    if (is_text(pattern, "String", " ")) return "split at spaces";
    if (!is_text(step, "behavior", "Isolated")) return NULL;
    if (is_text(pattern, "Regex", CONTRACTIONS "\\p{N}{1,3}" REST)) return "words of Llama 3";
    return is_text(pattern, "Regex", CONTRACTIONS "\\p{N}" REST) ? "words of Qwen 2" : NULL;
}

static const char *name_bytes(const json_t *step)
{
    if (!json_is_false(json_object_get(step, "add_prefix_space"))) return NULL;
    return json_is_false(json_object_get(step, "use_regex")) ? "bytes" : "words of GPT-2";
}

/* Metaspace puts a space in front of what is between added tokens, if it does not begin with one. */
static const char *name_metaspace(const json_t *step)
{
    const bool named = json_object_get(step, "prepend_scheme");
    if (!is_text(step, "replacement", SPACE) || !json_is_false(json_object_get(step, "split"))) return NULL;
    if (named ? is_text(step, "prepend_scheme", "never") : json_is_false(json_object_get(step, "add_prefix_space")))
        return "spaces as U+2581";
    return is_text(step, "prepend_scheme", "first") ? "a space in front of the first, spaces as U+2581"
                                                    : "a space in front of all, spaces as U+2581";
}

static const char *name_replace(const json_t *step)
{
    return is_text(json_object_get(step, "pattern"), "String", " ") && is_text(step, "content", SPACE)
               ? "spaces as U+2581"
               : NULL;
}

static const char *name_prepend(const json_t *step)
{
    return is_text(step, "prepend", SPACE) ? "space in front" : NULL;
}
static const char *name_nfc(const json_t *step) { return step ? "NFC" : NULL; }

static const char *name_digits(const json_t *step)
{
    return json_is_true(json_object_get(step, "individual_digits")) ? "single digits" : NULL;
}

/* The name of a step above; NULL: it has none. */
static const char *name_step(const json_t *step)
{
    static const struct {
        const char *type, *(*name)(const json_t *step);
    } kinds[] = {
        {"NFC", name_nfc},     {"Prepend", name_prepend}, {"Replace", name_replace},    {"Digits", name_digits},
        {"Split", name_split}, {"ByteLevel", name_bytes}, {"Metaspace", name_metaspace}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is_text(step, "type", kinds[i].type)) return kinds[i].name(step);
    return NULL;
}

/* Adds the names of the section's steps, in their order; of a step without a name its text in JSON. */
static void add_steps(const json_t *section, const char *list_name, char *steps)
{
    const size_t used = strlen(steps);
    if (!json_is_object(section)) return;
    if (is_text(section, "type", "Sequence")) {
        const json_t *list = json_object_get(section, list_name);
        for (size_t i = 0; i < json_array_size(list); i++) add_steps(json_array_get(list, i), list_name, steps);
        return;
    }
    const char *name = name_step(section);
    char *text = name ? NULL : json_dumps(section, JSON_COMPACT);
    snprintf(steps + used, STEPS - used, "%s%s", used > 0 ? ", " : "", name ? name : text ? text : "an unknown step");
    free(text);
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

static tow_status find_splitting(tool_gguf *g, const json_t *root, bool bytes, const tool_splitting **splitting)
{
    char normalizer[STEPS] = "", cut[STEPS] = "";
    const tool_splitting *near = NULL; /* that differs in the normalizer alone */
    add_steps(json_object_get(root, "normalizer"), "normalizers", normalizer);
    add_steps(json_object_get(root, "pre_tokenizer"), "pretokenizers", cut);
    for (size_t i = 0; i < N_SPLITTINGS; i++) {
        const tool_splitting *s = &splittings[i];
        if (s->bytes != bytes || strcmp(s->cut, cut) != 0) continue;
        if (!near) near = s;
        *splitting = s;
        if (strcmp(s->normalizer, normalizer) == 0) return TOW_OK;
    }
    if (near) return refuse(g, "normalizer", *near->normalizer ? near->normalizer : "none", normalizer);
    return refuse(g, "pre_tokenizer",
                  bytes ? "words of GPT-2, Llama 3, Qwen 2 or SmolLM and then bytes"
                        : "none, or spaces as U+2581 without a split",
                  cut);
}

/* The text of the first token with the option; NULL: none has it. */
static const char *find_option(const json_t *tokens, const char *option)
{
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *token = json_array_get(tokens, i);
        if (json_is_true(json_object_get(token, option))) return text_of(token, "content");
    }
    return NULL;
}

/* Options of tokens that GGUF files do not have. */
static tow_status check_added(tool_gguf *g, const json_t *tokens)
{
    static const char *const options[] = {"lstrip", "rstrip", "single_word"};
    for (size_t k = 0; k < 3; k++) {
        const char *token = find_option(tokens, options[k]);
        char found[160];
        snprintf(found, sizeof found, "%s of '%.100s'", options[k], token ? token : "");
        if (token) return refuse(g, "added_tokens", "neither lstrip, rstrip nor single_word", found);
    }
    return TOW_OK;
}

/* Options of the model. */
static tow_status check_model(tool_gguf *g, const json_t *model, const tool_splitting *s)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const bool ignores = json_is_true(json_object_get(model, "ignore_merges"));
    for (size_t i = 0; i < 2; i++)
        if (*text_of(model, affixes[i])) return refuse(g, affixes[i], "none", text_of(model, affixes[i]));
    if (json_number_value(json_object_get(model, "dropout")) > 0) return refuse(g, "dropout", "none", "one");
    if (ignores == s->ignore_merges) return TOW_OK;
    return refuse(g, "ignore_merges", s->ignore_merges ? "true, with this pre_tokenizer" : "false",
                  ignores ? "true" : "false");
}

/* Of sections that put tokens around a text, GGUF files have the template alone. */
static tow_status check_processor(tool_gguf *g, const json_t *section)
{
    static const char *const known[] = {"", "ByteLevel", "Sequence", "TemplateProcessing"};
    const json_t *list = json_object_get(section, "processors");
    tow_status status = TOW_UNSUPPORTED;
    for (size_t i = 0; i < 4; i++)
        if (is_text(section, "type", known[i])) status = TOW_OK;
    if (status != TOW_OK) return refuse(g, "post_processor", "TemplateProcessing", text_of(section, "type"));
    for (size_t i = 0; i < json_array_size(list) && status == TOW_OK; i++)
        status = check_processor(g, json_array_get(list, i));
    return status;
}

/* llama.cpp puts a space in front of what is between added tokens, whatever it begins with. */
static void warn_of_spaces(const tool_gguf *g, const tool_splitting *s)
{
    if (!s->extra) return;
    fprintf(stderr,
            "tow: warning: %s/tokenizer.json: a space is put in front of what does not begin with one%s; readers of "
            "GGUF files put one in front of every text and behind every added token, so some texts get a space more\n",
            g->directory, s->extra);
}

/* llama.cpp looks for added tokens in texts as they are. `normalized` has no effect without a normalizer. */
static void warn_of_normalized(const tool_gguf *g, const json_t *tokens, const tool_splitting *s)
{
    const char *token = *s->normalizer ? find_option(tokens, "normalized") : NULL;
    if (!token) return;
    fprintf(stderr,
            "tow: warning: %s/tokenizer.json: '%.100s' is looked for in normalized texts (\"normalized\"); readers of "
            "GGUF files look for added tokens in texts as they are, and may find more of them\n",
            g->directory, token);
}

tow_status tool_check_tokenizer(tool_gguf *g, const json_t *root, bool bytes, const tool_splitting **splitting)
{
    const json_t *tokens = json_object_get(root, "added_tokens");
    tow_status status = find_splitting(g, root, bytes, splitting);
    if (status == TOW_OK) status = check_added(g, tokens);
    if (status == TOW_OK) status = check_model(g, json_object_get(root, "model"), *splitting);
    if (status == TOW_OK) status = check_processor(g, json_object_get(root, "post_processor"));
    if (status != TOW_OK) return status;
    warn_of_spaces(g, *splitting);
    warn_of_normalized(g, tokens, *splitting);
    return status;
}

bool tool_has_type(const json_t *section, const char *type, const char *list_name)
{
    const json_t *list = json_object_get(section, list_name);
    const char *own = json_string_value(json_object_get(section, "type"));
    if (own && strcmp(own, type) == 0) return true;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (tool_has_type(json_array_get(list, i), type, list_name)) return true;
    return false;
}

/* ---- merges ------------------------------------------------------------------------------------------------------ */

char *tool_merge_text(const json_t *merge)
{
    const char *whole = json_string_value(merge), *a = json_string_value(json_array_get(merge, 0)),
               *b = json_string_value(json_array_get(merge, 1));
    if (!whole && (!a || !b)) return NULL;
    const size_t size = whole ? strlen(whole) + 1 : strlen(a) + strlen(b) + 2;
    char *text = malloc(size);
    if (text) snprintf(text, size, "%s%s%s", whole ? whole : a, whole ? "" : " ", whole ? "" : b);
    return text;
}

/* Tokens of which merges are made and which they make. Added ones are cut out of texts before, except for those in
 * whose place texts have spaces then. */
static bool is_piece(const json_t *vocab, const int32_t *types, const char *token)
{
    const json_t *id = json_object_get(vocab, token);
    const int32_t type = id ? types[json_integer_value(id)] : 0;
    return type == TOOL_NORMAL || (type == TOOL_USER_DEFINED && strstr(token, SPACE));
}

/* With scores, all pairs of tokens that make a token are merges: so they must be here. */
static tow_status check_splits(tool_gguf *g, const json_t *pairs, const json_t *vocab, const int32_t *types,
                               const char *token)
{
    char left[MOST_MERGED + 1] = "", pair[MOST_MERGED + 8];
    const size_t length = strlen(token);
    if (length > MOST_MERGED || !is_piece(vocab, types, token)) return TOW_OK;
    for (size_t at = 1; at < length; at++) {
        left[at - 1] = token[at - 1];
        left[at] = '\0';
        if (((unsigned char)token[at] & 0xc0) == 0x80) continue; /* within a character */
        if (!is_piece(vocab, types, left) || !is_piece(vocab, types, token + at)) continue;
        snprintf(pair, sizeof pair, "%s %s", left, token + at);
        if (!json_object_get(pairs, pair)) return refuse(g, "merges", "all pairs of tokens that make a token", pair);
    }
    return TOW_OK;
}

/* Collects the merges as keys of `pairs`. Those of one token, which has one score, are side by side. */
static tow_status collect_merges(tool_gguf *g, const json_t *model, const int32_t *types, bool *seen, json_t *pairs)
{
    const json_t *merges = json_object_get(model, "merges"), *vocab = json_object_get(model, "vocab");
    int64_t last = -1;
    tow_status status = TOW_OK;
    for (size_t i = 0; i < json_array_size(merges) && status == TOW_OK; i++) {
        char *text = tool_merge_text(json_array_get(merges, i)), *space = text ? strchr(text, ' ') : NULL;
        if (!text || json_object_set_new(pairs, text, json_true()) != 0)
            status = tool_fail(g->tool, TOW_BAD_FORMAT, "%s/tokenizer.json: merge %zu is no pair of tokens",
                               g->directory, i + 1);
        if (space) memmove(space, space + 1, strlen(space));
        const json_t *id = space ? json_object_get(vocab, text) : NULL;
        const int64_t token = json_is_integer(id) ? json_integer_value(id) : -1;
        if (token >= 0 && token != last && seen[token] && types[token] == TOOL_NORMAL)
            status = refuse(g, "merges", "those that make one token side by side", text);
        if (token >= 0) seen[token] = true;
        last = token;
        free(text);
    }
    return status;
}

tow_status tool_check_merges(tool_gguf *g, const json_t *model, const int32_t *types, size_t count)
{
    json_t *vocab = json_object_get(model, "vocab"), *pairs = json_object(), *value;
    bool *seen = calloc(count + 1, sizeof *seen);
    const char *token;
    tow_status status = seen && pairs ? collect_merges(g, model, types, seen, pairs)
                                      : tool_fail(g->tool, TOW_OUT_OF_MEMORY, "out of memory");
    json_object_foreach(vocab, token, value) if (status == TOW_OK) status = check_splits(g, pairs, vocab, types, token);
    free(seen);
    json_decref(pairs);
    return status;
}

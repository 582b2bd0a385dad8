/* Tokenizers in the metadata of GGUF files: tokens by id, with merges (model "gpt2") or with scores (model "llama"), of
 * which merges are made. Normalization, splitting and decoding are those of a text such as tokenizer.json has it, and
 * such a file is written. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "src/io/io.h"
#include "src/io/json.h"
#include "src/text/read.h"
#include "tow/gguf.h"

#define KEY(name) "tokenizer.ggml." name

enum { /* of tokens */
    NORMAL = 1,
    UNKNOWN,
    CONTROL,
    USER_DEFINED,
    UNUSED,
    BYTE
};

typedef struct gguf_reader {
    tow__token_reader r; /* this field comes first */
    const tow_tensors *tensors;
    tow_metadata_value tokens, types, scores;
} gguf_reader;

/* ---- what the metadata say --------------------------------------------------------------------------------------- */

static const char *token_text(const gguf_reader *g, size_t id) { return ((const char *const *)g->tokens.elements)[id]; }

static int type_of(const gguf_reader *g, size_t id)
{
    return g->types.count > 0 ? ((const int32_t *)g->types.elements)[id] : NORMAL;
}

/* An array of as many elements as there are tokens, of a type; or none. */
static tow_status take_array(gguf_reader *g, const char *key, tow_metadata_type element, tow_metadata_value *value)
{
    *value = tow_tensors_metadata_value(g->tensors, key);
    if (value->type == TOW_METADATA_NONE) return TOW_OK;
    if (value->type == TOW_METADATA_ARRAY && value->element == element && value->count == g->tokens.count)
        return TOW_OK;
    return tow__refuse(&g->r, TOW_BAD_FORMAT, "expected an array of one element for each of %zu tokens",
                       g->tokens.count);
}

static bool take_flag(const gguf_reader *g, const char *key, bool otherwise)
{
    const tow_metadata_value value = tow_tensors_metadata_value(g->tensors, key);
    return value.type == TOW_METADATA_BOOL ? value.integer != 0 : otherwise;
}

/* The id of a token that the file names, else `otherwise`, if there is such a token; -1: none. */
static tow_status take_id(gguf_reader *g, const char *key, int32_t otherwise, int32_t *id)
{
    const tow_metadata_value value = tow_tensors_metadata_value(g->tensors, key);
    *id = otherwise < (int64_t)g->tokens.count ? otherwise : TOW__NO_ID;
    if (value.type == TOW_METADATA_NONE) return TOW_OK;
    g->r.path = key;
    if (value.type == TOW_METADATA_STRING || value.type == TOW_METADATA_ARRAY || value.integer < 0 ||
        (uint64_t)value.integer >= g->tokens.count)
        return tow__refuse(&g->r, TOW_BAD_FORMAT, "expected the id of a token, 0 to %zu", g->tokens.count - 1);
    *id = (int32_t)value.integer;
    return TOW_OK;
}

static tow_status take_arrays(gguf_reader *g)
{
    tow_status status = TOW_OK;
    g->r.path = KEY("tokens");
    g->tokens = tow_tensors_metadata_value(g->tensors, KEY("tokens"));
    if (g->tokens.type != TOW_METADATA_ARRAY || g->tokens.element != TOW_METADATA_STRING || g->tokens.count == 0 ||
        g->tokens.count > INT32_MAX)
        return tow__refuse(&g->r, TOW_BAD_FORMAT, "expected an array of strings");
    g->r.path = KEY("token_type");
    TRY(take_array(g, KEY("token_type"), TOW_METADATA_I32, &g->types));
    g->r.path = KEY("scores");
    TRY(take_array(g, KEY("scores"), TOW_METADATA_F32, &g->scores));
done:
    return status;
}

/* ---- what surrounds the model ------------------------------------------------------------------------------------ */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define REST         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The ways in which texts are cut into words, by the names that files give them. */
typedef struct splitting {
    const char *names[8];
    const char *expression; /* NULL: that of GPT-2 */
    bool digits;            /* are words of their own */
    bool nfc, ignore_merges, bos;
} splitting;
static const splitting splittings[] = {
    {.names = {"gpt-2", "gpt2", "phi-2", "jina-es", "jina-de", "gigachat"}},
    {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3"},
     .expression = CONTRACTIONS "\\p{N}{1,3}" REST,
     .ignore_merges = true,
     .bos = true},
    {.names = {"dbrx", "smaug-bpe"}, .expression = CONTRACTIONS "\\p{N}{1,3}" REST},
    {.names = {"qwen2", "stablelm2", "deepseek-r1-qwen", "megrez"},
     .expression = CONTRACTIONS "\\p{N}" REST,
     .nfc = true},
    {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell"}, .digits = true},
};

static const splitting *find_splitting(const char *name)
{
    for (size_t i = 0; i < sizeof splittings / sizeof splittings[0]; i++)
        for (size_t k = 0; k < 8 && splittings[i].names[k]; k++)
            if (strcmp(splittings[i].names[k], name) == 0) return &splittings[i];
    return NULL;
}

static void add_splitting(tow__string *text, const splitting *s)
{
    tow__string_add(text, "\"normalizer\": %s, \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [",
                    s->nfc ? "{\"type\": \"NFC\"}" : "null");
    if (s->digits) tow__string_add(text, "{\"type\": \"Digits\", \"individual_digits\": true},");
    if (s->expression) {
        tow__string_add(text, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        tow__json_add_string(text, s->expression);
        tow__string_add(text, "}, \"behavior\": \"Isolated\", \"invert\": false},");
    }
    tow__string_add(
        text,
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": %s}]}, "
        "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": "
        "true}",
        s->expression ? "false" : "true");
}

/* SentencePiece: spaces are "\u2581", one of them before the text. */
static void add_pieces(tow__string *text, bool prefix)
{
    tow__string_add(text,
                    "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [%s"
                    "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\\u2581\"}]}, ",
                    prefix ? "{\"type\": \"Prepend\", \"prepend\": \"\\u2581\"}, " : "");
    tow__string_add(text,
                    "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "
                    "{\"String\": \"\\u2581\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": "
                    "\"Fuse\"}%s]}",
                    prefix ? ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}" : "");
}

static void add_token(tow__string *text, const gguf_reader *g, int32_t id)
{
    tow__string_add(text, "{\"SpecialToken\": {\"id\": ");
    tow__json_add_string(text, token_text(g, (size_t)id));
    tow__string_add(text, ", \"type_id\": 0}}");
}

static void add_known(tow__string *text, const gguf_reader *g, int32_t id)
{
    tow__json_add_string(text, token_text(g, (size_t)id));
    tow__string_add(text, ": {\"id\": ");
    tow__json_add_string(text, token_text(g, (size_t)id));
    tow__string_add(text, ", \"ids\": [%d], \"tokens\": [", (int)id);
    tow__json_add_string(text, token_text(g, (size_t)id));
    tow__string_add(text, "]}");
}

/* The tokens around a text; -1: none. */
static void add_template(tow__string *text, const gguf_reader *g, int32_t bos, int32_t eos)
{
    if (bos < 0 && eos < 0) return;
    tow__string_add(text, ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [");
    for (int pair = 0; pair < 2; pair++) {
        if (pair) tow__string_add(text, "], \"pair\": [");
        for (int s = 0; s <= pair; s++) {
            if (s) tow__string_add(text, ", ");
            if (bos >= 0) add_token(text, g, bos);
            tow__string_add(text, "%s{\"Sequence\": {\"id\": \"%s\", \"type_id\": 0}}", bos >= 0 ? ", " : "",
                            s == 0 ? "A" : "B");
            if (eos >= 0) tow__string_add(text, ", ");
            if (eos >= 0) add_token(text, g, eos);
        }
    }
    tow__string_add(text, "], \"special_tokens\": {");
    if (bos >= 0) add_known(text, g, bos);
    if (bos >= 0 && eos >= 0 && bos != eos) tow__string_add(text, ", ");
    if (eos >= 0 && bos != eos) add_known(text, g, eos);
    tow__string_add(text, "}}");
}

/* Of files with scores, tokens that are not named are those of SentencePiece, as in llama.cpp. */
static tow_status take_ends(gguf_reader *g, const splitting *s, int32_t *bos, int32_t *eos)
{
    tow_status status = TOW_OK;
    TRY(take_id(g, KEY("bos_token_id"), s ? TOW__NO_ID : 1, bos));
    TRY(take_id(g, KEY("eos_token_id"), s ? TOW__NO_ID : 2, eos));
    if (!take_flag(g, KEY("add_bos_token"), !s || s->bos)) *bos = TOW__NO_ID;
    if (!take_flag(g, KEY("add_eos_token"), false)) *eos = TOW__NO_ID;
done:
    return status;
}

/* Adds the members of tokenizer.json around "model". */
static tow_status add_surroundings(gguf_reader *g, const splitting *s, tow__string *text)
{
    int32_t bos, eos;
    const tow_status status = take_ends(g, s, &bos, &eos);
    if (status != TOW_OK) return status;
    if (s)
        add_splitting(text, s);
    else
        add_pieces(text, take_flag(g, KEY("add_space_prefix"), true));
    add_template(text, g, bos, eos);
    return TOW_OK;
}

/* Parses the text, and reads what comes before the model. */
static tow_status read_surroundings(gguf_reader *g, const splitting *s)
{
    tow__token_reader *r = &g->r;
    tow__string text;
    tow_status status = TOW_OK;
    tow__string_init(&text, r->ctx);
    tow__string_add(&text, "{");
    TRY(add_surroundings(g, s, &text));
    r->path = "tokenizer of GGUF";
    tow__string_add(&text, "}");
    if (text.failed) TRY(TOW_OUT_OF_MEMORY);
    TRY(tow__dom_parse(r->ctx, r->path, text.text, text.length, &r->dom));
    TRY(tow__tokenizer_create(r->ctx, &r->t));
    TRY(tow__read_normalizer(r, tow__dom_get(&r->dom, &r->dom.nodes[0], "normalizer")));
    TRY(tow__read_splitter(r, tow__dom_get(&r->dom, &r->dom.nodes[0], "pre_tokenizer")));
done:
    tow__string_free(&text);
    return status;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static tow_status read_vocabulary(gguf_reader *g)
{
    tow_status status = TOW_OK;
    g->r.path = KEY("tokens");
    for (size_t id = 0; id < g->tokens.count; id++) {
        const char *token = token_text(g, id);
        if (!tow__is_utf8(token)) return tow__refuse(&g->r, TOW_BAD_FORMAT, "expected token %zu in UTF-8", id);
        status = tow__vocabulary_add(&g->r.t->vocabulary, token, strlen(token), (int32_t)id);
        if (status == TOW_BAD_FORMAT) return tow__refuse(&g->r, status, "%.400s", tow_context_error(g->r.ctx));
        TRY(status);
    }
done:
    return status;
}

/* Tokens that are not text of the model: they are found as a whole, before the model sees the text. */
static bool is_special(const gguf_reader *g, size_t id)
{
    return type_of(g, id) == CONTROL || type_of(g, id) == UNKNOWN;
}

static bool is_added(const gguf_reader *g, size_t id)
{
    return (is_special(g, id) || type_of(g, id) == USER_DEFINED) && token_text(g, id)[0] != '\0';
}

static tow_status read_added(gguf_reader *g)
{
    const tow__added options = {.normalized = false};
    tow_status status = TOW_OK;
    for (size_t id = 0; id < g->tokens.count; id++)
        if (is_added(g, id))
            TRY(tow__add_added(&g->r, token_text(g, id), (int32_t)id, is_special(g, id), &options));
        else if (type_of(g, id) == UNUSED)
            g->r.t->vocabulary.entries[id].decoded = "";
done:
    return status;
}

static tow_status read_merges(gguf_reader *g)
{
    const tow_metadata_value merges = tow_tensors_metadata_value(g->tensors, KEY("merges"));
    tow_status status = TOW_OK;
    g->r.path = KEY("merges");
    if (merges.type != TOW_METADATA_ARRAY || merges.element != TOW_METADATA_STRING || merges.count > UINT32_MAX)
        return tow__refuse(&g->r, TOW_BAD_FORMAT, "expected an array of strings");
    TRY(tow__bpe_create(g->r.ctx, merges.count, &g->r.t->bpe));
    for (size_t i = 0; i < merges.count; i++) {
        const char *merge = ((const char *const *)merges.elements)[i];
        const char *space = *merge ? strchr(merge + 1, ' ') : NULL; /* a token may begin with a space */
        if (!space || !space[1])
            return tow__refuse(&g->r, TOW_BAD_FORMAT, "merge %zu: expected two tokens, found '%.100s'", i + 1, merge);
        TRY(tow__add_merge(&g->r, merge, (size_t)(space - merge), space + 1, strlen(space + 1), (uint32_t)i));
    }
done:
    return status;
}

/* A merge of two tokens to a third. */
typedef struct scored {
    int32_t left, right, id;
    float score; /* of the third */
    size_t left_length, right_length;
} scored;

/* Higher scores first, then longer tokens. The order of equal scores does not matter here, as they have one rank. */
static int by_score(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->left_length != y->left_length) return x->left_length > y->left_length ? -1 : 1;
    if (x->right_length != y->right_length) return x->right_length > y->right_length ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static bool is_continuation(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

enum {
    MOST_MERGED = 1024 /* bytes of a token that merges make: each way to cut it is looked up */
};

/* The merges that make token `id` of two others: into `out`, if it is not NULL. */
static size_t find_merges(const gguf_reader *g, size_t id, scored *out)
{
    const tow__vocabulary *v = &g->r.t->vocabulary;
    const char *token = token_text(g, id);
    const size_t length = strlen(token);
    const int type = type_of(g, id);
    size_t n = 0;
    if ((type != NORMAL && type != USER_DEFINED) || length > MOST_MERGED) return 0;
    for (size_t at = 1; at < length; at++) {
        if (is_continuation(token[at])) continue;
        const int32_t left = tow__vocabulary_find(v, token, at);
        const int32_t right = left != TOW__NO_ID ? tow__vocabulary_find(v, token + at, length - at) : TOW__NO_ID;
        if (right == TOW__NO_ID) continue;
        if (out) out[n] = (scored){left, right, (int32_t)id, ((const float *)g->scores.elements)[id], at, length - at};
        n++;
    }
    return n;
}

/* All merges of tokens with scores, in their order; the caller frees them. */
static tow_status list_merges(gguf_reader *g, scored **merges, size_t *count)
{
    size_t n = 0;
    *count = 0;
    g->r.path = KEY("scores");
    if (g->scores.count == 0) return tow__refuse(&g->r, TOW_BAD_FORMAT, "expected an array of numbers, found none");
    for (size_t id = 0; id < g->tokens.count; id++) {
        if (isnan(((const float *)g->scores.elements)[id]))
            return tow__refuse(&g->r, TOW_BAD_FORMAT, "expected a score of token %zu, found NaN", id);
        *count += find_merges(g, id, NULL);
    }
    if (*count > UINT32_MAX) return tow__refuse(&g->r, TOW_BAD_FORMAT, "its tokens have too many parts");
    *merges = tow__alloc(g->r.ctx, *count, sizeof **merges);
    if (!*merges) return TOW_OUT_OF_MEMORY;
    for (size_t id = 0; id < g->tokens.count; id++) n += find_merges(g, id, *merges + n);
    if (n > 1) qsort(*merges, n, sizeof **merges, by_score);
    return TOW_OK;
}

/* The merges that SentencePiece does: of all pairs of tokens that make a token, that of the highest score, and of those
 * of one score, which have one rank, the leftmost. */
static tow_status make_merges(gguf_reader *g)
{
    scored *merges = NULL;
    size_t count;
    tow_status status = TOW_OK;
    TRY(list_merges(g, &merges, &count));
    TRY(tow__bpe_create(g->r.ctx, count, &g->r.t->bpe));
    for (size_t i = 0, rank = 0; i < count; i++) {
        if (i > 0 && merges[i].score != merges[i - 1].score) rank++;
        tow__bpe_add(&g->r.t->bpe, merges[i].left, merges[i].right, (uint32_t)rank, merges[i].id);
    }
done:
    if (merges) tow__free(g->r.ctx, merges, count, sizeof *merges);
    return status;
}

static tow_status read_bpe(gguf_reader *g, const splitting *s)
{
    tow_tokenizer *t = g->r.t;
    tow__bpe *b = &t->bpe;
    tow_status status = TOW_OK;
    t->model = TOW__BPE;
    b->prefix = b->suffix = "";
    b->unk = TOW__NO_ID;
    b->byte_level = t->byte_level;
    b->byte_fallback = b->fuse_unk = !s;
    b->ignore_merges = s && s->ignore_merges;
    if (!s) TRY(take_id(g, KEY("unknown_token_id"), 0, &b->unk));
    TRY(read_vocabulary(g));
    tow__find_bytes(&g->r);
    TRY(s ? read_merges(g) : make_merges(g));
done:
    return status;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static tow_status choose(const gguf_reader *g, const splitting **s)
{
    const char *model = tow_tensors_metadata(g->tensors, KEY("model"));
    const char *pre = tow_tensors_metadata(g->tensors, KEY("pre"));
    tow_context *ctx = g->r.ctx;
    *s = NULL;
    if (!model)
        return tow__fail(ctx, TOW_NOT_FOUND, "metadata '" KEY("model") "': there is none; the file has no tokenizer");
    if (strcmp(model, "llama") == 0) return TOW_OK;
    if (strcmp(model, "gpt2") != 0)
        return tow__fail(ctx, TOW_UNSUPPORTED, KEY("model") ": expected gpt2 or llama, found '%.100s'", model);
    *s = find_splitting(pre ? pre : "gpt-2");
    if (*s) return TOW_OK;
    return tow__fail(ctx, TOW_UNSUPPORTED,
                     KEY("pre") ": expected gpt-2, llama-bpe, qwen2, smollm or one that cuts texts like them, found "
                                "'%.100s'; read the model's tokenizer.json",
                     pre);
}

/* Reads the metadata into g->r.t, with what was found on the way in g; the caller frees both. */
static tow_status read_all(gguf_reader *g, const splitting **s)
{
    tow__token_reader *r = &g->r;
    tow_status status = TOW_OK;
    TRY(choose(g, s));
    TRY(take_arrays(g));
    TRY(read_surroundings(g, *s));
    TRY(read_bpe(g, *s));
    TRY(read_added(g));
    r->path = "tokenizer of GGUF";
    TRY(tow__read_processor(r, tow__dom_get(&r->dom, &r->dom.nodes[0], "post_processor")));
    TRY(tow__read_decoder(r, tow__dom_get(&r->dom, &r->dom.nodes[0], "decoder")));
    TRY(tow__check_growth(r));
    TRY(r->wrong);
    TRY(tow__tokenizer_finish(r));
done:
    tow__dom_free(&r->dom);
    return status;
}

tow_status tow_tokenizer_from_tensors(tow_context *context, const tow_tensors *tensors, tow_tokenizer **tokenizer)
{
    if (tokenizer) *tokenizer = NULL;
    if (!context || !tensors || !tokenizer)
        return tow__missing(context, __func__, "a context, tensors and a place for the tokenizer");
    gguf_reader g = {.r = {.ctx = context, .dom.ctx = context}, .tensors = tensors};
    const splitting *s;
    const tow_status status = read_all(&g, &s);
    if (status == TOW_OK)
        *tokenizer = g.r.t;
    else
        tow_tokenizer_free(g.r.t);
    return status;
}

/* ---- tokenizer.json ---------------------------------------------------------------------------------------------- */

static void add_added(const gguf_reader *g, tow__string *text)
{
    bool first = true;
    tow__string_add(text, "\"added_tokens\": [");
    for (size_t id = 0; id < g->tokens.count; id++) {
        if (!is_added(g, id)) continue;
        tow__string_add(text, "%s\n    {\"id\": %zu, \"content\": ", first ? "" : ",", id);
        tow__json_add_string(text, token_text(g, id));
        tow__string_add(text,
                        ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
                        "\"special\": %s}",
                        is_special(g, id) ? "true" : "false");
        first = false;
    }
    tow__string_add(text, "]");
}

/* [tokens] true for those that a merge is made of or makes; NULL: no memory. The caller frees them. */
static bool *find_merged(const gguf_reader *g)
{
    const tow__bpe *b = &g->r.t->bpe;
    bool *merged = tow__alloc(g->r.ctx, g->tokens.count, sizeof *merged);
    if (merged) memset(merged, 0, g->tokens.count * sizeof *merged);
    for (size_t i = 0; merged && i < b->n_slots; i++) {
        if (b->keys[i] == UINT64_MAX) continue;
        merged[b->keys[i] >> 32] = merged[b->keys[i] & UINT32_MAX] = merged[b->merges[i].id] = true;
    }
    return merged;
}

/* Tokens that are not used stand for nothing, which a file without them says. */
static void add_vocabulary(const gguf_reader *g, tow__string *text)
{
    bool *merged = find_merged(g), first = true;
    text->failed = text->failed || !merged;
    tow__string_add(text, "\"vocab\": {");
    for (size_t id = 0; merged && id < g->tokens.count; id++) {
        if (type_of(g, id) == UNUSED && !merged[id] && (int64_t)id != g->r.t->bpe.unk) continue;
        tow__string_add(text, "%s\n      ", first ? "" : ",");
        tow__json_add_string(text, token_text(g, id));
        tow__string_add(text, ": %zu", id);
        first = false;
    }
    tow__string_add(text, "}");
    if (merged) tow__free(g->r.ctx, merged, g->tokens.count, sizeof *merged);
}

/* A pair of tokens, each `length` bytes. */
static void add_pair(const gguf_reader *g, bool first, const char *left, size_t left_length, const char *right,
                     tow__string *text)
{
    char *copy = tow__alloc(g->r.ctx, left_length + 1, 1);
    text->failed = text->failed || !copy;
    if (!copy) return;
    memcpy(copy, left, left_length);
    tow__string_add(text, "%s\n      [", first ? "" : ",");
    tow__json_add_string(text, copy);
    tow__string_add(text, ", ");
    tow__json_add_string(text, right);
    tow__string_add(text, "]");
    tow__free(g->r.ctx, copy, left_length + 1, 1);
}

static tow_status add_merges(gguf_reader *g, bool scored_tokens, tow__string *text)
{
    const tow_metadata_value given = tow_tensors_metadata_value(g->tensors, KEY("merges"));
    scored *merges = NULL;
    size_t count = given.count;
    tow_status status = scored_tokens ? list_merges(g, &merges, &count) : TOW_OK;
    if (status != TOW_OK) return status;
    tow__string_add(text, "\"merges\": [");
    for (size_t i = 0; i < count; i++) {
        const char *whole = merges ? token_text(g, (size_t)merges[i].id) : ((const char *const *)given.elements)[i];
        const size_t length = merges ? merges[i].left_length : (size_t)(strchr(whole + 1, ' ') - whole);
        add_pair(g, i == 0, whole, length, whole + length + (merges ? 0 : 1), text);
    }
    tow__string_add(text, "]");
    if (merges) tow__free(g->r.ctx, merges, count, sizeof *merges);
    return TOW_OK;
}

static void add_options(const gguf_reader *g, tow__string *text)
{
    const tow__bpe *b = &g->r.t->bpe;
    tow__string_add(text, "\"model\": {\n    \"type\": \"BPE\", \"dropout\": null, \"unk_token\": ");
    if (b->unk >= 0)
        tow__json_add_string(text, token_text(g, (size_t)b->unk));
    else
        tow__string_add(text, "null");
    tow__string_add(text,
                    ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": %s, "
                    "\"byte_fallback\": %s, \"ignore_merges\": %s,\n    ",
                    b->fuse_unk ? "true" : "false", b->byte_fallback ? "true" : "false",
                    b->ignore_merges ? "true" : "false");
}

/* The whole file of a tokenizer that was read. */
static tow_status make_json(gguf_reader *g, const splitting *s, tow__string *text)
{
    tow_status status = TOW_OK;
    tow__string_add(text, "{\n  \"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n  ");
    add_added(g, text);
    tow__string_add(text, ",\n  %s", s ? "" : "\"pre_tokenizer\": null, ");
    TRY(add_surroundings(g, s, text));
    tow__string_add(text, ",\n  ");
    add_options(g, text);
    add_vocabulary(g, text);
    tow__string_add(text, ",\n    ");
    TRY(add_merges(g, !s, text));
    tow__string_add(text, "\n  }\n}\n");
    if (text->failed) status = TOW_OUT_OF_MEMORY;
done:
    return status;
}

tow_status tow_tokenizer_write_json(tow_context *context, const tow_tensors *tensors, const char *path)
{
    if (!context || !tensors || !path) return tow__missing(context, __func__, "a context, tensors and a path");
    gguf_reader g = {.r = {.ctx = context, .dom.ctx = context}, .tensors = tensors};
    const splitting *s;
    tow__string text;
    tow__output_file file = {.fd = -1};
    tow_status status = TOW_OK;
    tow__string_init(&text, context);
    TRY(read_all(&g, &s));
    TRY(make_json(&g, s, &text));
    TRY(tow__output_open(context, path, &file));
    TRY(tow__output_write(&file, text.text, text.length));
    TRY(tow__output_commit(&file));
done:
    tow__output_close(&file);
    tow__string_free(&text);
    tow_tokenizer_free(g.r.t);
    return status;
}

/* The model of tokenizer.json: vocabulary, merges and what unknown text becomes. */
#include <inttypes.h>
#include <math.h>

#include "src/text/read.h"

static tow_status read_vocabulary(tow__token_reader *r, const tow__node *model)
{
    const tow__node *vocabulary = tow__dom_get(&r->dom, model, "vocab");
    tow_status status = TOW_OK;
    if (!vocabulary || vocabulary->kind != TOW__NODE_OBJECT)
        return tow__refuse(r, TOW_BAD_FORMAT, "expected the model to have a \"vocab\" of tokens and ids");
    for (const tow__node *n = tow__dom_first(&r->dom, vocabulary); n; n = tow__dom_next(&r->dom, n)) {
        if (n->kind != TOW__NODE_NUMBER || !n->integral || n->integer < 0 || n->integer > INT32_MAX)
            return tow__refuse(r, TOW_BAD_FORMAT, "expected an id of the token '%.100s'", n->key);
        status = tow__vocabulary_add(&r->t->vocabulary, n->key, strlen(n->key), (int32_t)n->integer);
        if (status == TOW_BAD_FORMAT) return tow__refuse(r, status, "vocabulary: %.400s", tow_context_error(r->ctx));
        TRY(status);
    }
done:
    return status;
}

static tow_status find_unknown(const tow__token_reader *r, const char *token, int32_t *id)
{
    *id = token ? tow_tokenizer_id(r->t, token) : TOW__NO_ID;
    if (!token || *id != TOW__NO_ID) return TOW_OK;
    return tow__refuse(r, TOW_BAD_FORMAT, "the unknown token '%.100s' is not in the vocabulary", token);
}

/* ---- byte-pair encoding ------------------------------------------------------------------------------------------ */

/* Ids of the tokens <0x00> to <0xFF>. */
static void find_byte_tokens(const tow_tokenizer *t, int32_t ids[256])
{
    static const char digits[] = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; byte++) {
        const char name[] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
        ids[byte] = tow__vocabulary_find(&t->vocabulary, name, sizeof name);
    }
}

/* Ids of the tokens that stand for bytes. */
void tow__find_bytes(tow__token_reader *r)
{
    tow_tokenizer *t = r->t;
    if (!t->byte_level) {
        find_byte_tokens(t, t->bpe.bytes);
        return;
    }
    for (int byte = 0; byte < 256; byte++) {
        char character[4];
        const int length = tow__utf8_put(tow__byte_character((unsigned char)byte), character);
        t->bpe.bytes[byte] = tow__vocabulary_find(&t->vocabulary, character, (size_t)length);
    }
}

tow_status tow__add_merge(tow__token_reader *r, const char *left, size_t left_length, const char *right,
                          size_t right_length, uint32_t rank)
{
    tow_tokenizer *t = r->t;
    const int32_t a = tow__vocabulary_find(&t->vocabulary, left, left_length);
    const int32_t b = tow__vocabulary_find(&t->vocabulary, right, right_length);
    const size_t prefix = strlen(t->bpe.prefix);
    char joined[1024];
    if (a == TOW__NO_ID || b == TOW__NO_ID)
        return tow__refuse(r, TOW_BAD_FORMAT, "merge %u: the token '%.*s' is not in the vocabulary", rank + 1,
                           (int)((a == TOW__NO_ID ? left_length : right_length) < 100
                                     ? (a == TOW__NO_ID ? left_length : right_length)
                                     : 100),
                           a == TOW__NO_ID ? left : right);
    if (prefix > 0 && right_length >= prefix && memcmp(right, t->bpe.prefix, prefix) == 0) {
        right += prefix;
        right_length -= prefix;
    }
    const size_t length = left_length + right_length;
    int32_t id = TOW__NO_ID;
    if (length <= sizeof joined) {
        memcpy(joined, left, left_length);
        memcpy(joined + left_length, right, right_length);
        id = tow__vocabulary_find(&t->vocabulary, joined, length);
    }
    if (id == TOW__NO_ID)
        return tow__refuse(r, TOW_BAD_FORMAT, "merge %u: '%.*s%.*s' is not in the vocabulary", rank + 1,
                           (int)(left_length < 100 ? left_length : 100), left,
                           (int)(right_length < 100 ? right_length : 100), right);
    tow__bpe_add(&t->bpe, a, b, rank, id);
    return TOW_OK;
}

/* A pair of strings, or one with a space between them. */
static tow_status read_merge(tow__token_reader *r, const tow__node *n, uint32_t rank)
{
    if (n->kind == TOW__NODE_STRING) {
        const char *space = strchr(n->string, ' ');
        if (space && !strchr(space + 1, ' '))
            return tow__add_merge(r, n->string, (size_t)(space - n->string), space + 1, strlen(space + 1), rank);
    } else if (n->kind == TOW__NODE_ARRAY && n->count == 2) {
        const tow__node *a = tow__dom_first(&r->dom, n), *b = tow__dom_next(&r->dom, a);
        if (a->kind == TOW__NODE_STRING && b->kind == TOW__NODE_STRING)
            return tow__add_merge(r, a->string, strlen(a->string), b->string, strlen(b->string), rank);
    }
    return tow__refuse(r, TOW_BAD_FORMAT, "merge %u: expected two tokens, as [\"a\", \"b\"] or \"a b\"", rank + 1);
}

static tow_status read_bpe(tow__token_reader *r, const tow__node *model)
{
    const tow__dom *dom = &r->dom;
    const tow__node *merges = tow__dom_get(dom, model, "merges"), *dropout = tow__dom_get(dom, model, "dropout");
    tow__bpe *b = &r->t->bpe;
    tow_status status = TOW_OK;
    uint32_t rank = 0;
    if (!merges || merges->kind != TOW__NODE_ARRAY)
        return tow__refuse(r, TOW_BAD_FORMAT, "expected the model to have a list of \"merges\"");
    if (dropout && (dropout->kind != TOW__NODE_NUMBER || !dropout->integral || dropout->integer != 0))
        return tow__refuse(r, TOW_UNSUPPORTED, "dropout of merges is not known here; set it to null");
    TRY(find_unknown(r, tow__take_string(r, model, "unk_token", NULL), &b->unk));
    b->byte_level = r->t->byte_level;
    b->fuse_unk = tow__take_bool(r, model, "fuse_unk", false);
    b->byte_fallback = tow__take_bool(r, model, "byte_fallback", false);
    b->ignore_merges = tow__take_bool(r, model, "ignore_merges", false);
    TRY(tow__keep(r, tow__take_string(r, model, "continuing_subword_prefix", ""), &b->prefix));
    TRY(tow__keep(r, tow__take_string(r, model, "end_of_word_suffix", ""), &b->suffix));
    if (b->byte_level && (*b->prefix || *b->suffix))
        return tow__refuse(r, TOW_UNSUPPORTED, "byte-level tokens with a prefix or suffix of words are not known here");
    tow__find_bytes(r);
    TRY(tow__bpe_create(r->ctx, merges->count, b));
    for (const tow__node *n = tow__dom_first(dom, merges); n; n = tow__dom_next(dom, n)) TRY(read_merge(r, n, rank++));
done:
    return status;
}

/* ---- WordPiece --------------------------------------------------------------------------------------------------- */

static tow_status read_wordpiece(tow__token_reader *r, const tow__node *model)
{
    tow__wordpiece *w = &r->t->wordpiece;
    const int64_t most = tow__take_integer(r, model, "max_input_chars_per_word", 100);
    tow_status status = TOW_OK;
    w->max_characters = most > 0 ? (size_t)most : 0;
    TRY(find_unknown(r, tow__take_string(r, model, "unk_token", "[UNK]"), &w->unk));
    TRY(tow__keep(r, tow__take_string(r, model, "continuing_subword_prefix", "##"), &w->prefix));
done:
    return status;
}

/* ---- WordLevel --------------------------------------------------------------------------------------------------- */

/* The unknown token may be missing until a word is unknown. */
static tow_status read_wordlevel(tow__token_reader *r, const tow__node *model)
{
    r->t->wordlevel_unk = tow_tokenizer_id(r->t, tow__take_string(r, model, "unk_token", "<unk>"));
    return TOW_OK;
}

/* ---- Unigram ----------------------------------------------------------------------------------------------------- */

/* A list of tokens and their scores; ids are places in the list. */
static tow_status read_scores(tow__token_reader *r, const tow__node *list)
{
    tow__unigram *u = &r->t->unigram;
    tow_status status = TOW_OK;
    int32_t id = 0;
    u->n_scores = list->count;
    u->scores = tow__alloc(r->ctx, u->n_scores, sizeof *u->scores);
    if (!u->scores) return TOW_OUT_OF_MEMORY;
    u->smallest = INFINITY;
    for (const tow__node *n = tow__dom_first(&r->dom, list); n; n = tow__dom_next(&r->dom, n), id++) {
        const tow__node *token = tow__dom_first(&r->dom, n), *score = token ? tow__dom_next(&r->dom, token) : NULL;
        if (n->kind != TOW__NODE_ARRAY || !score || token->kind != TOW__NODE_STRING ||
            score->kind != TOW__NODE_NUMBER || !isfinite(score->number))
            return tow__refuse(r, TOW_BAD_FORMAT,
                               "vocabulary: expected a token and its score at place %d, as [\"a\", -1.5]", (int)id);
        status = tow__vocabulary_add(&r->t->vocabulary, token->string, strlen(token->string), id);
        if (status == TOW_BAD_FORMAT) return tow__refuse(r, status, "vocabulary: %.400s", tow_context_error(r->ctx));
        TRY(status);
        u->scores[id] = score->number;
        if (score->number < u->smallest) u->smallest = score->number;
    }
done:
    return status;
}

static tow_status read_unigram(tow__token_reader *r, const tow__node *model)
{
    tow__unigram *u = &r->t->unigram;
    const tow__vocabulary *v = &r->t->vocabulary;
    const tow__node *list = tow__take_list(r, model, "vocab");
    tow__trie_key *keys = NULL;
    tow_status status = TOW_OK;
    TRY(r->wrong);
    if (!list || list->count == 0)
        return tow__refuse(r, TOW_BAD_FORMAT, "expected the model to have a \"vocab\" of tokens and scores");
    TRY(read_scores(r, list));
    const int64_t unk = tow__take_integer(r, model, "unk_id", TOW__NO_ID);
    u->byte_fallback = tow__take_bool(r, model, "byte_fallback", false);
    if (unk < TOW__NO_ID || unk >= (int64_t)u->n_scores)
        return tow__refuse(r, TOW_BAD_FORMAT,
                           "expected unk_id to be a place in the vocabulary of %zu tokens, found %" PRId64, u->n_scores,
                           unk);
    u->unk = (int32_t)unk;
    find_byte_tokens(r->t, u->bytes);
    keys = tow__alloc(r->ctx, u->n_scores, sizeof *keys);
    if (!keys) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < u->n_scores; i++)
        keys[i] = (tow__trie_key){v->entries[i].token, v->entries[i].length, (int32_t)i};
    status = tow__trie_build(r->ctx, u->n_scores, keys, false, &u->trie);
    tow__free(r->ctx, keys, u->n_scores, sizeof *keys);
done:
    return status;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* Old files do not say what their model is: one with merges is BPE, one with an unknown token's place is Unigram. */
tow_status tow__read_model(tow__token_reader *r, const tow__node *model)
{
    static const struct {
        const char *type;
        tow__model_kind kind;
        tow_status (*read)(tow__token_reader *r, const tow__node *model);
    } models[] = {{"BPE", TOW__BPE, read_bpe},
                  {"WordPiece", TOW__WORDPIECE, read_wordpiece},
                  {"WordLevel", TOW__WORDLEVEL, read_wordlevel},
                  {"Unigram", TOW__UNIGRAM, read_unigram}};
    const char *otherwise = tow__dom_get(&r->dom, model, "merges")   ? "BPE"
                            : tow__dom_get(&r->dom, model, "unk_id") ? "Unigram"
                                                                     : "WordPiece";
    const char *type = tow__take_string(r, model, "type", otherwise);
    tow_status status = TOW_OK;
    size_t i = 0;
    TRY(r->wrong);
    while (i < sizeof models / sizeof *models && strcmp(type, models[i].type) != 0) i++;
    if (i == sizeof models / sizeof *models)
        return tow__refuse(r, TOW_UNSUPPORTED,
                           "expected a model of type BPE, WordPiece, WordLevel or Unigram, found '%.100s'", type);
    r->t->model = models[i].kind;
    if (r->t->byte_level && r->t->model != TOW__BPE)
        return tow__refuse(r, TOW_UNSUPPORTED, "%s on bytes is not known here", type);
    if (r->t->model != TOW__UNIGRAM) TRY(read_vocabulary(r, model));
    TRY(models[i].read(r, model));
    TRY(r->wrong);
done:
    return status;
}

/* tokenizer.json as a whole, added tokens, and what a tokenizer answers about its vocabulary. */
#include "src/text/read.h"

#include <stdio.h>

tow_status tow__refuse(const tow__token_reader *r, tow_status status, const char *format, ...)
{
    char why[512];
    va_list args;
    va_start(args, format);
    if (vsnprintf(why, sizeof why, format, args) < 0) why[0] = '\0';
    va_end(args);
    return tow__fail(r->ctx, status, "%s: %s", r->path, why);
}

tow_status tow__keep(tow__token_reader *r, const char *text, const char **copy)
{
    *copy = tow__arena_string(&r->t->memory, text);
    return *copy || !text ? TOW_OK : TOW_OUT_OF_MEMORY;
}

tow_status tow__count_step(const tow__token_reader *r, int n, const char *what)
{
    if (n < TOW__MAX_STEPS) return TOW_OK;
    return tow__refuse(r, TOW_UNSUPPORTED, "expected at most %d steps of the %s, found more", TOW__MAX_STEPS, what);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

tow_status tow__tokenizer_create(tow_context *ctx, tow_tokenizer **tokenizer)
{
    tow_tokenizer *t = *tokenizer = tow__alloc(ctx, 1, sizeof *t);
    if (!t) return TOW_OUT_OF_MEMORY;
    t->options.size = sizeof t->options;
    t->ctx = ctx;
    tow__arena_init(&t->memory, ctx);
    tow__vocabulary_init(&t->vocabulary, ctx);
    tow__text_init(&t->text, ctx);
    tow__text_init(&t->other, ctx);
    t->words.ctx = t->more_words.ctx = t->pieces.ctx = ctx;
    tow__text_init(&t->third, ctx);
    t->bpe.unk = t->wordpiece.unk = t->unigram.unk = t->wordlevel_unk = TOW__NO_ID;
    t->bpe.prefix = t->bpe.suffix = "";
    for (int i = 0; i < 256; i++) t->bpe.bytes[i] = TOW__NO_ID;
    t->cache = tow__alloc(ctx, TOW__CACHE_SIZE, sizeof *t->cache);
    return t->cache ? TOW_OK : TOW_OUT_OF_MEMORY;
}

void tow_tokenizer_free(tow_tokenizer *t)
{
    if (!t) return;
    tow__bpe_free(t->ctx, &t->bpe);
    if (t->wordpiece.buffer) tow__free(t->ctx, t->wordpiece.buffer, t->wordpiece.buffer_size, 1);
    tow__added_free(&t->raw);
    tow__added_free(&t->normalized);
    tow__text_free(&t->text);
    tow__text_free(&t->other);
    tow__text_free(&t->third);
    tow__unigram_free(t->ctx, &t->unigram);
    for (int i = 0; i < TOW__MAX_STEPS; i++) {
        tow__regex_free(t->normals[i].regex);
        tow__regex_free(t->splits[i].regex);
        tow__regex_free(t->decoders[i].regex);
    }
    tow__ranges_free(&t->words);
    tow__ranges_free(&t->more_words);
    tow__pieces_free(&t->pieces);
    if (t->cache) tow__free(t->ctx, t->cache, TOW__CACHE_SIZE, sizeof *t->cache);
    tow__vocabulary_free(&t->vocabulary);
    tow__arena_free(&t->memory);
    tow__free(t->ctx, t, 1, sizeof *t);
}

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

/* Tokens that are found in normalized text are normalized themselves. */
static tow_status normalize_content(tow__token_reader *r, tow__added *added)
{
    tow_tokenizer *t = r->t;
    t->text.length = 0;
    tow__text_add_original(&t->text, added->content, 0, added->length);
    tow__normalize_text(t->normals, t->n_normals, &t->text, &t->other);
    const tow_status status = tow__normalize_status(t->normals, t->n_normals, &t->text);
    if (status != TOW_OK) return status;
    char *copy = tow__arena_alloc(&t->memory, t->text.length + 1, 1);
    if (!copy) return TOW_OUT_OF_MEMORY;
    if (t->text.length > 0) memcpy(copy, t->text.bytes, t->text.length);
    added->content = copy;
    added->length = t->text.length;
    return TOW_OK;
}

tow_status tow__add_added(tow__token_reader *r, const char *content, int32_t id, bool special,
                          const tow__added *options)
{
    tow_tokenizer *t = r->t;
    tow__added added = *options;
    tow_status status = TOW_OK;
    const int32_t there = tow__vocabulary_find(&t->vocabulary, content, strlen(content));
    if (!*content) return TOW_OK;
    if (there == TOW__NO_ID) {
        status = tow__vocabulary_add(&t->vocabulary, content, strlen(content), id);
        if (status != TOW_OK && status != TOW_OUT_OF_MEMORY)
            return tow__refuse(r, status, "added tokens: %.400s", tow_context_error(r->ctx));
        TRY(status);
        t->vocabulary.entries[id].model = false;
    } else {
        id = there;
    }
    t->vocabulary.entries[id].added = true;
    t->vocabulary.entries[id].special = special;
    added.id = id;
    TRY(tow__keep(r, content, &added.content));
    added.length = strlen(content);
    if (added.normalized) TRY(normalize_content(r, &added));
    t->vocabulary.entries[id].decoded = added.content;
    if (added.length == 0)
        return tow__refuse(r, TOW_UNSUPPORTED,
                           "added tokens: the normalizer leaves nothing of '%.100s'; set its \"normalized\" to false",
                           content);
    TRY(tow__added_push(r->ctx, added.normalized ? &t->normalized : &t->raw, added));
done:
    return status;
}

tow_status tow__read_added(tow__token_reader *r, const tow__node *list)
{
    const tow__dom *dom = &r->dom;
    tow_status status = TOW_OK;
    if (list && list->kind != TOW__NODE_ARRAY)
        return tow__refuse(r, TOW_BAD_FORMAT, "expected added_tokens to be a list");
    for (const tow__node *n = tow__dom_first(dom, list); n; n = tow__dom_next(dom, n)) {
        const char *content = tow__take_string(r, n, "content", NULL);
        const int64_t id = tow__take_integer(r, n, "id", -1);
        const bool special = tow__take_bool(r, n, "special", false);
        const tow__added options = {.single_word = tow__take_bool(r, n, "single_word", false),
                                    .lstrip = tow__take_bool(r, n, "lstrip", false),
                                    .rstrip = tow__take_bool(r, n, "rstrip", false),
                                    .normalized = tow__take_bool(r, n, "normalized", !special)};
        TRY(r->wrong);
        if (!content || id < 0 || id > INT32_MAX)
            return tow__refuse(r, TOW_BAD_FORMAT, "expected added tokens to have a content and an id");
        TRY(tow__add_added(r, content, (int32_t)id, special, &options));
    }
done:
    return status;
}

tow_status tow__tokenizer_finish(tow__token_reader *r)
{
    tow_tokenizer *t = r->t;
    tow_status status = TOW_OK;
    TRY(tow__added_finish(r->ctx, &t->raw));
    TRY(tow__added_finish(r->ctx, &t->normalized));
    if (!t->has_template) { /* a text alone, or two one after the other */
        t->single = (tow__template){.n = 1};
        t->pair = (tow__template){.n = 2, .steps = {{.sequence = 0}, {.sequence = 1, .type = 1}}};
    }
    if (t->model != TOW__WORDPIECE) return TOW_OK;
    t->wordpiece.buffer_size = strlen(t->wordpiece.prefix) + t->vocabulary.longest + 1;
    t->wordpiece.buffer = tow__alloc(t->ctx, t->wordpiece.buffer_size, 1);
    if (!t->wordpiece.buffer) TRY(TOW_OUT_OF_MEMORY);
done:
    return status;
}

/* ---- truncation and padding -------------------------------------------------------------------------------------- */

static const char *const sides[] = {"Left", "Right", NULL};

static tow_status read_truncation(tow__token_reader *r, const tow__node *node)
{
    static const char *const strategies[] = {"LongestFirst", "OnlyFirst", "OnlySecond", NULL};
    tow_encode_options *o = &r->t->options;
    if (!node) return TOW_OK;
    const int64_t most = tow__take_integer(r, node, "max_length", 0);
    o->truncation = (tow_truncation)tow__take_choice(r, node, "strategy", strategies, 0);
    o->truncate_left = tow__take_choice(r, node, "direction", sides, 1) == 0;
    if (r->wrong == TOW_OK && most < 1)
        return tow__refuse(r, TOW_BAD_FORMAT, "expected truncation to have a max_length above 0");
    o->max_length = (size_t)most;
    return r->wrong;
}

/* A text alone is its own longest of a batch. */
static tow_status read_padding(tow__token_reader *r, const tow__node *node)
{
    static const char *const longest[] = {"BatchLongest", "BatchLongest", NULL};
    tow_encode_options *o = &r->t->options;
    if (!node) return TOW_OK;
    const tow__node *strategy = tow__dom_get(&r->dom, node, "strategy");
    const bool fixed = strategy && strategy->kind == TOW__NODE_OBJECT;
    const int64_t length = fixed ? tow__take_integer(r, strategy, "Fixed", 0) : 0,
                  multiple = tow__take_integer(r, node, "pad_to_multiple_of", 0),
                  id = tow__take_integer(r, node, "pad_id", 0), type = tow__take_integer(r, node, "pad_type_id", 0);
    if (!fixed) tow__take_choice(r, node, "strategy", longest, 0);
    o->pad_left = tow__take_choice(r, node, "direction", sides, 1) == 0;
    if (r->wrong == TOW_OK && (length < 0 || length >= INT32_MAX || multiple < 0 || multiple >= INT32_MAX || id < 0 ||
                               id > INT32_MAX || type < 0 || type > INT32_MAX))
        return tow__refuse(r, TOW_BAD_FORMAT, "expected numbers of padding from 0 to below 2^31");
    o->pad_length = (size_t)length;
    o->pad_multiple = (size_t)multiple;
    o->pad_id = (int32_t)id;
    o->pad_type = (int32_t)type;
    return r->wrong;
}

/* ---- tokenizer.json ---------------------------------------------------------------------------------------------- */

/* A part of the file, which may be null. */
static const tow__node *section(tow__token_reader *r, const char *key)
{
    const tow__node *root = &r->dom.nodes[0], *node = tow__dom_get(&r->dom, root, key);
    return node ? tow__take_object(r, root, key) : NULL;
}

static tow_status read_sections(tow__token_reader *r)
{
    const tow__dom *dom = &r->dom;
    const tow__node *root = &dom->nodes[0];
    tow_status status = TOW_OK;
    if (root->kind != TOW__NODE_OBJECT || !tow__dom_get(dom, root, "model"))
        return tow__refuse(r, TOW_BAD_FORMAT,
                           "expected an object with a \"model\", found none; is this a tokenizer.json?");
    TRY(tow__read_normalizer(r, section(r, "normalizer")));
    TRY(tow__check_growth(r)); /* before added tokens are normalized */
    TRY(tow__read_splitter(r, section(r, "pre_tokenizer")));
    TRY(tow__read_model(r, section(r, "model")));
    TRY(tow__read_added(r, tow__dom_get(dom, root, "added_tokens")));
    TRY(tow__read_processor(r, section(r, "post_processor")));
    TRY(tow__read_decoder(r, section(r, "decoder")));
    TRY(tow__check_growth(r));
    TRY(read_truncation(r, section(r, "truncation")));
    TRY(read_padding(r, section(r, "padding")));
    TRY(r->wrong);
    TRY(tow__tokenizer_finish(r));
done:
    return status;
}

tow_status tow_tokenizer_parse(tow_context *context, const char *name, const char *text, size_t length,
                               tow_tokenizer **tokenizer)
{
    if (tokenizer) *tokenizer = NULL;
    if (!context || !name || (!text && length > 0) || !tokenizer)
        return tow__missing(context, __func__, "a context, a name, a text and a place for the tokenizer");
    tow__token_reader r = {.ctx = context, .path = name};
    tow_status status = TOW_OK;
    TRY(tow__dom_parse(context, name, text, length, &r.dom));
    TRY(tow__tokenizer_create(context, &r.t));
    TRY(read_sections(&r));
done:
    tow__dom_free(&r.dom);
    if (status == TOW_OK)
        *tokenizer = r.t;
    else
        tow_tokenizer_free(r.t);
    return status;
}

/* ---- the vocabulary ---------------------------------------------------------------------------------------------- */

int32_t tow_tokenizer_vocabulary_count(const tow_tokenizer *t) { return t->vocabulary.count; }

int32_t tow_tokenizer_id(const tow_tokenizer *t, const char *token)
{
    return token ? tow__vocabulary_find(&t->vocabulary, token, strlen(token)) : TOW__NO_ID;
}

const char *tow_tokenizer_token(const tow_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocabulary.count ? t->vocabulary.entries[id].token : NULL;
}

bool tow_tokenizer_is_special(const tow_tokenizer *t, int32_t id)
{
    return tow_tokenizer_token(t, id) && t->vocabulary.entries[id].special;
}

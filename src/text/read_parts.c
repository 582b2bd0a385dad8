/* Normalizers, splitters and decoders of tokenizer.json. Each is a table of types and their readers; normalizers and
 * decoders, which are steps with a few values, are tables of their values, too. */
#include <stddef.h>
#include <stdio.h>

#include "src/text/read.h"

enum {
    MOST_GROWTH = 1024 /* of a text by all replacements */
};

/* One value of a step. */
typedef struct field {
    const char *key; /* NULL: the end of the fields */
    enum {
        FLAG,
        NUMBER,
        TEXT,
        LITERAL, /* the literal text of "pattern"; NULL: it is a regular expression */
        SCHEME   /* tow__prepend_scheme */
    } form;
    size_t at;           /* in the step */
    bool flag;           /* these where the file has no such value */
    const char *as_flag; /* in place of .flag: that of another key, or else true */
    const char *text;
} field;

typedef tow__part part;

tow_status tow__read_part(tow__token_reader *r, const tow__node *node, const tow__part *parts, const char *what,
                          int depth)
{
    const part *p = parts;
    tow_status status = TOW_OK;
    if (!node) return r->wrong;
    const char *type = tow__take_string(r, node, "type", NULL);
    TRY(r->wrong);
    if (!type || depth > 8) return tow__refuse(r, TOW_BAD_FORMAT, "expected a %s with a type", what);
    while (p->type && strcmp(p->type, type) != 0) p++;
    if (!p->type)
        return tow__refuse(r, TOW_UNSUPPORTED,
                           "the %s '%.100s' is not known here; docs/tokenizers.md lists those that are", what, type);
    if (!p->list) {
        status = p->read(r, node, p);
        return status == TOW_OK ? r->wrong : status;
    }
    const tow__node *list = tow__take_list(r, node, p->list);
    TRY(r->wrong);
    if (!list)
        return tow__refuse(r, TOW_BAD_FORMAT, "expected the %s Sequence to have a list of \"%s\"", what, p->list);
    for (const tow__node *n = tow__dom_first(&r->dom, list); n; n = tow__dom_next(&r->dom, n))
        TRY(tow__read_part(r, n, parts, what, depth + 1));
done:
    return status;
}

/* The literal text of a pattern; NULL: it is a regular expression. */
static const char *literal(tow__token_reader *r, const tow__node *node)
{
    return tow__take_string(r, tow__take_object(r, node, "pattern"), "String", NULL);
}

static tow__prepend_scheme scheme_of(tow__token_reader *r, const tow__node *node)
{
    static const char *const names[] = {"always", "first", "never", NULL};
    const bool old = tow__take_bool(r, node, "add_prefix_space", true);
    return (tow__prepend_scheme)tow__take_choice(r, node, "prepend_scheme", names,
                                                 old ? TOW__PREPEND_ALWAYS : TOW__PREPEND_NEVER);
}

/* The regular expression of a pattern without a literal text. `what` is for messages. */
static tow_status regex_of(tow__token_reader *r, const tow__node *node, const char *what, tow__regex **regex)
{
    const char *pattern = tow__take_string(r, tow__take_object(r, node, "pattern"), "Regex", NULL);
    char why[600];
    if (r->wrong != TOW_OK) return r->wrong;
    if (!pattern) return tow__refuse(r, TOW_BAD_FORMAT, "the %s: expected a pattern with a String or a Regex", what);
    const tow_status status = tow__regex_create(r->ctx, pattern, regex);
    if (status == TOW_OK || status == TOW_OUT_OF_MEMORY) return status;
    snprintf(why, sizeof why, "%.590s", tow_context_error(r->ctx));
    return tow__refuse(r, status, "the %s: the regular expression %s", what, why);
}

/* ---- steps of values --------------------------------------------------------------------------------------------- */

static tow_status read_field(tow__token_reader *r, const tow__node *node, const field *f, const char *what,
                             const char *type, void *to)
{
    const char *text = f->form == LITERAL ? literal(r, node)
                       : f->form == TEXT  ? tow__take_string(r, node, f->key, f->text)
                                          : NULL;
    switch (f->form) {
    case FLAG:
        *(bool *)to = tow__take_bool(r, node, f->key, f->as_flag ? tow__take_bool(r, node, f->as_flag, true) : f->flag);
        break;
    case NUMBER:
        *(int64_t *)to = tow__take_integer(r, node, f->key, 0);
        break;
    case SCHEME:
        *(tow__prepend_scheme *)to = scheme_of(r, node);
        break;
    case TEXT:
    case LITERAL:
        if (r->wrong != TOW_OK) return r->wrong;
        if (f->form == LITERAL && text && !*text)
            return tow__refuse(r, TOW_UNSUPPORTED, "the %s %s with an empty pattern is not known here", what, type);
        return tow__keep(r, text, to);
    }
    return TOW_OK;
}

/* The values of a step, which is zero. n: how many steps there are in front of it. */
static tow_status read_fields(tow__token_reader *r, const tow__node *node, const part *p, int n, const char *what,
                              void *step)
{
    tow_status status = tow__count_step(r, n, what);
    for (const field *f = p->fields; f && f->key && status == TOW_OK; f++)
        status = read_field(r, node, f, what, p->type, (char *)step + f->at);
    return status;
}

/* The length of a replacement as a multiple of the length of what it replaces. */
static double growth(const char *from, const tow__regex *regex, const char *to)
{
    const double factor = (double)strlen(to) / (double)(regex ? tow__regex_shortest(regex) : strlen(from));
    return factor > 1.0 ? factor : 1.0;
}

/* Replacements multiply: a small file must not make a long text of a short one. */
tow_status tow__check_growth(const tow__token_reader *r)
{
    const tow_tokenizer *t = r->t;
    double normalized = 1.0, decoded = 1.0;
    for (int i = 0; i < t->n_normals; i++) {
        if (t->normals[i].kind == TOW__REPLACE)
            normalized *= growth(t->normals[i].from, t->normals[i].regex, t->normals[i].to);
        if (t->normals[i].kind == TOW__PRECOMPILED && t->normals[i].map->longest > 1)
            normalized *= (double)t->normals[i].map->longest;
    }
    for (int i = 0; i < t->n_decoders; i++)
        if (t->decoders[i].kind == TOW__DECODE_REPLACE)
            decoded *= growth(t->decoders[i].from, t->decoders[i].regex, t->decoders[i].to);
    if (normalized <= MOST_GROWTH && decoded <= MOST_GROWTH) return TOW_OK;
    return tow__refuse(r, TOW_UNSUPPORTED,
                       "the %s can make a text %.3g times as long by its replacements; expected at most %d times",
                       normalized > MOST_GROWTH ? "normalizer" : "decoder",
                       normalized > MOST_GROWTH ? normalized : decoded, MOST_GROWTH);
}

/* ---- normalizers ------------------------------------------------------------------------------------------------- */

static tow_status normal(tow__token_reader *r, const tow__node *node, const part *p)
{
    tow_tokenizer *t = r->t;
    tow__normal step = {.kind = (tow__normal_kind)p->kind};
    tow_status status = read_fields(r, node, p, t->n_normals, "normalizer", &step);
    if (status == TOW_OK && step.kind == TOW__REPLACE && !step.from)
        status = regex_of(r, node, "normalizer Replace", &step.regex);
    if (status == TOW_OK) t->normals[t->n_normals++] = step;
    return status;
}

static tow_status precompiled(tow__token_reader *r, const tow__node *node, const part *p)
{
    tow_tokenizer *t = r->t;
    tow__normal step = {.kind = (tow__normal_kind)p->kind};
    tow_status status = tow__count_step(r, t->n_normals, "normalizer");
    const char *map = tow__take_string(r, node, "precompiled_charsmap", "");
    TRY(status);
    TRY(r->wrong);
    const char *expected = tow__charsmap_read(&t->memory, map, &step.map);
    if (expected) return tow__refuse(r, TOW_BAD_FORMAT, "the normalizer Precompiled: expected %s", expected);
    if (!step.map) return TOW_OUT_OF_MEMORY;
    t->normals[t->n_normals++] = step;
done:
    return status;
}

tow_status tow__read_normalizer(tow__token_reader *r, const tow__node *node)
{
#define AT(member) offsetof(tow__normal, member)
    static const field bert[] = {{"clean_text", FLAG, AT(clean), true},
                                 {"handle_chinese_chars", FLAG, AT(chinese), true},
                                 {"lowercase", FLAG, AT(lower), true},
                                 {"strip_accents", FLAG, AT(accents), .as_flag = "lowercase"},
                                 {0}};
    static const field prepend[] = {{"prepend", TEXT, AT(to), .text = ""}, {0}};
    static const field replace[] = {{"pattern", LITERAL, AT(from)}, {"content", TEXT, AT(to), .text = ""}, {0}};
    static const field strip[] = {{"strip_left", FLAG, AT(left), true}, {"strip_right", FLAG, AT(right), true}, {0}};
#undef AT
    static const part parts[] = {
        {"Sequence", .list = "normalizers"},
        {"NFC", normal, TOW__NFC},
        {"NFD", normal, TOW__NFD},
        {"NFKC", normal, TOW__NFKC},
        {"NFKD", normal, TOW__NFKD},
        {"Lowercase", normal, TOW__LOWERCASE},
        {"StripAccents", normal, TOW__STRIP_ACCENTS},
        {"Precompiled", precompiled, TOW__PRECOMPILED},
        {"BertNormalizer", normal, TOW__BERT_NORMAL, .fields = bert},
        {"Prepend", normal, TOW__PREPEND, .fields = prepend},
        {"Replace", normal, TOW__REPLACE, .fields = replace},
        {"Strip", normal, TOW__STRIP, .fields = strip},
        {0},
    };
    return tow__read_part(r, node, parts, "normalizer", 0);
}

/* ---- splitters --------------------------------------------------------------------------------------------------- */

/* Regular expressions that are known, with the numbers of one word. */
#define GPT2               "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CONTRACTIONS       "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define CONTRACTIONS_GPT4  "'(?i:[sdmt]|ll|ve|re)|"
#define LETTERS            "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define LETTERS_POSSESSIVE "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|"
#define OTHERS             " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
#define OTHERS_POSSESSIVE  " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|"
#define SPACES             "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SPACES_ONE         "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
static const struct {
    const char *regex;
    tow__split_kind kind;
    int max_digits;
} regexes[] = {
    {GPT2, TOW__SPLIT_GPT2, 0},
    {CONTRACTIONS LETTERS "\\p{N}{1,3}|" OTHERS SPACES, TOW__SPLIT_TIKTOKEN, 3},
    {CONTRACTIONS LETTERS "\\p{N}|" OTHERS SPACES, TOW__SPLIT_TIKTOKEN, 1},
    {CONTRACTIONS LETTERS "\\p{N}{1,3}|" OTHERS SPACES_ONE, TOW__SPLIT_TIKTOKEN, 3},
    {CONTRACTIONS LETTERS_POSSESSIVE "\\p{N}{1,3}|" OTHERS_POSSESSIVE SPACES, TOW__SPLIT_TIKTOKEN, 3},
    {CONTRACTIONS LETTERS_POSSESSIVE "\\p{N}{1,3}|" OTHERS_POSSESSIVE SPACES_ONE, TOW__SPLIT_TIKTOKEN, 3},
    {CONTRACTIONS_GPT4 LETTERS "\\p{N}{1,3}|" OTHERS SPACES, TOW__SPLIT_TIKTOKEN, 3},
    {CONTRACTIONS_GPT4 LETTERS_POSSESSIVE "\\p{N}{1,3}|" OTHERS_POSSESSIVE SPACES, TOW__SPLIT_TIKTOKEN, 3},
    {CONTRACTIONS_GPT4 LETTERS_POSSESSIVE "\\p{N}{1,3}|" OTHERS_POSSESSIVE SPACES_ONE, TOW__SPLIT_TIKTOKEN, 3},
};

static tow__behavior behavior_of(tow__token_reader *r, const tow__node *node)
{
    static const char *const names[] = {"Isolated",       "Removed",    "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous", NULL};
    return (tow__behavior)tow__take_choice(r, node, "behavior", names, TOW__ISOLATED);
}

static tow_status new_split(tow__token_reader *r, int kind, tow__splitter **split)
{
    tow_tokenizer *t = r->t;
    const tow_status status = tow__count_step(r, t->n_splits, "pre_tokenizer");
    if (status != TOW_OK) return status;
    if (t->byte_level) return tow__refuse(r, TOW_UNSUPPORTED, "pre_tokenizers behind ByteLevel are not known here");
    *split = &t->splits[t->n_splits++];
    **split = (tow__splitter){.kind = (tow__split_kind)kind};
    return TOW_OK;
}

static tow_status split_simple(tow__token_reader *r, const tow__node *node, const part *p)
{
    tow__splitter *s = NULL;
    tow_status status = TOW_OK;
    TRY(new_split(r, p->kind, &s));
    s->each = tow__take_bool(r, node, "individual_digits", false);
    if (p->kind == TOW__SPLIT_DIGITS) s->behavior = s->each ? TOW__ISOLATED : TOW__CONTIGUOUS;
    if (p->kind == TOW__SPLIT_PUNCTUATION) s->behavior = behavior_of(r, node);
done:
    return status;
}

/* "Split": a literal text, or one of the regular expressions, whose matches are the words. */
static tow_status split_pattern(tow__token_reader *r, const tow__node *node, const part *p)
{
    const char *regex = tow__take_string(r, tow__take_object(r, node, "pattern"), "Regex", NULL);
    const bool invert = tow__take_bool(r, node, "invert", false);
    tow__splitter *s = NULL;
    tow_status status = TOW_OK;
    TRY(new_split(r, p->kind, &s));
    s->behavior = behavior_of(r, node);
    s->invert = invert;
    const char *text = literal(r, node);
    TRY(r->wrong);
    if (text && !*text)
        return tow__refuse(r, TOW_UNSUPPORTED, "the pre_tokenizer Split with an empty pattern is not known here");
    if (text) return tow__keep(r, text, &s->pattern);
    /* the matches cover a text, so that it is the same whether what is between them is removed */
    const bool words = invert ? s->behavior == TOW__REMOVED : s->behavior == TOW__ISOLATED;
    for (size_t i = 0; regex && words && i < sizeof regexes / sizeof *regexes; i++) {
        if (strcmp(regex, regexes[i].regex) != 0) continue;
        s->kind = regexes[i].kind;
        s->max_digits = regexes[i].max_digits;
        return TOW_OK;
    }
    s->kind = TOW__SPLIT_REGEX;
    TRY(regex_of(r, node, "pre_tokenizer Split", &s->regex));
done:
    return status;
}

static tow_status split_bytes(tow__token_reader *r, const tow__node *node, const part *p)
{
    tow__splitter *s = NULL;
    tow_status status = TOW_OK;
    const bool prefix = tow__take_bool(r, node, "add_prefix_space", true);
    if (r->t->byte_level)
        return tow__refuse(r, TOW_UNSUPPORTED, "ByteLevel behind ByteLevel is not known here: the bytes of bytes");
    if (prefix) TRY(new_split(r, TOW__SPLIT_ADD_SPACE, &s));
    if (tow__take_bool(r, node, "use_regex", true)) TRY(new_split(r, p->kind, &s));
    r->t->byte_level = true;
done:
    return status;
}

/* A character that is between words and in none. */
static tow_status split_delimiter(tow__token_reader *r, const tow__node *node, const part *p)
{
    tow__splitter *s = NULL;
    tow_status status = TOW_OK;
    const char *delimiter = tow__take_string(r, node, "delimiter", "");
    TRY(r->wrong);
    uint32_t c;
    if (!*delimiter || (size_t)tow__utf8_get(delimiter, &c) != strlen(delimiter))
        return tow__refuse(r, TOW_BAD_FORMAT,
                           "expected the delimiter of CharDelimiterSplit to be one character, found '%.60s'",
                           delimiter);
    TRY(new_split(r, p->kind, &s));
    s->behavior = TOW__REMOVED;
    TRY(tow__keep(r, delimiter, &s->pattern));
done:
    return status;
}

static tow_status split_metaspace(tow__token_reader *r, const tow__node *node, const part *p)
{
    tow__splitter *s = NULL;
    tow_status status = TOW_OK;
    TRY(new_split(r, p->kind, &s));
    s->behavior = TOW__MERGED_WITH_NEXT;
    s->splits = tow__take_bool(r, node, "split", true);
    s->prepend = scheme_of(r, node);
    TRY(tow__keep(r, tow__take_string(r, node, "replacement", "\xe2\x96\x81"), &s->pattern));
done:
    return status;
}

tow_status tow__read_splitter(tow__token_reader *r, const tow__node *node)
{
    static const part parts[] = {
        {"Sequence", .list = "pretokenizers"},
        {"ByteLevel", split_bytes, TOW__SPLIT_GPT2},
        {"Split", split_pattern, TOW__SPLIT_STRING},
        {"BertPreTokenizer", split_simple, TOW__SPLIT_BERT},
        {"Whitespace", split_simple, TOW__SPLIT_WORDS},
        {"WhitespaceSplit", split_simple, TOW__SPLIT_SPACES},
        {"Digits", split_simple, TOW__SPLIT_DIGITS},
        {"Punctuation", split_simple, TOW__SPLIT_PUNCTUATION},
        {"Metaspace", split_metaspace, TOW__SPLIT_METASPACE},
        {"CharDelimiterSplit", split_delimiter, TOW__SPLIT_STRING},
        {0},
    };
    return tow__read_part(r, node, parts, "pre_tokenizer", 0);
}

/* ---- decoders ---------------------------------------------------------------------------------------------------- */

static tow_status decoder(tow__token_reader *r, const tow__node *node, const part *p)
{
    tow_tokenizer *t = r->t;
    tow__text_decoder step = {.kind = (tow__decode_kind)p->kind, .from = "", .to = ""};
    tow_status status = read_fields(r, node, p, t->n_decoders, "decoder", &step);
    if (status == TOW_OK && step.kind == TOW__DECODE_REPLACE && !step.from)
        status = regex_of(r, node, "decoder Replace", &step.regex);
    if (status == TOW_OK) t->decoders[t->n_decoders++] = step;
    return status;
}

tow_status tow__read_decoder(tow__token_reader *r, const tow__node *node)
{
#define AT(member) offsetof(tow__text_decoder, member)
    static const field wordpiece[] = {
        {"prefix", TEXT, AT(from), .text = "##"}, {"cleanup", FLAG, AT(cleanup), true}, {0}};
    static const field metaspace[] = {
        {"replacement", TEXT, AT(from), .text = "\xe2\x96\x81"}, {"prepend_scheme", SCHEME, AT(prepend)}, {0}};
    static const field replace[] = {{"pattern", LITERAL, AT(from)}, {"content", TEXT, AT(to), .text = ""}, {0}};
    static const field strip[] = {
        {"content", TEXT, AT(from), .text = " "}, {"start", NUMBER, AT(start)}, {"stop", NUMBER, AT(stop)}, {0}};
#undef AT
    static const part parts[] = {
        {"Sequence", .list = "decoders"},
        {"ByteLevel", decoder, TOW__DECODE_BYTE_LEVEL},
        {"WordPiece", decoder, TOW__DECODE_WORDPIECE, .fields = wordpiece},
        {"Metaspace", decoder, TOW__DECODE_METASPACE, .fields = metaspace},
        {"Replace", decoder, TOW__DECODE_REPLACE, .fields = replace},
        {"ByteFallback", decoder, TOW__DECODE_BYTE_FALLBACK},
        {"Fuse", decoder, TOW__DECODE_FUSE},
        {"Strip", decoder, TOW__DECODE_STRIP, .fields = strip},
        {0},
    };
    return tow__read_part(r, node, parts, "decoder", 0);
}

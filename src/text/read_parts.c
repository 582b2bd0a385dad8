/* Normalisers, splitters, post-processors and decoders of tokenizer.json. Each is a table of types and their readers; normalisers and
 * decoders, which are steps with a few values, are tables of their values, too. */
#include <stddef.h>

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
        LITERAL, /* the literal text of "pattern", which must not be a regular expression */
        SCHEME   /* tow__prepend_scheme */
    } form;
    size_t at;           /* in the step */
    bool flag;           /* these where the file has no such value */
    const char *as_flag; /* in place of .flag: that of another key, or else true */
    const char *text;
} field;

typedef struct part part;
struct part {
    const char *type;
    tow_status (*read)(tow__token_reader *r, const tow__node *node, const part *p);
    int kind;
    const char *list; /* of its parts, if it is a sequence */
    const field *fields;
};

static tow_status read_part(tow__token_reader *r, const tow__node *node, const part *parts, const char *what, int depth)
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
        TRY(read_part(r, n, parts, what, depth + 1));
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
        if (text && (*text || f->form == TEXT)) return tow__keep(r, text, to);
        if (r->wrong != TOW_OK) return r->wrong;
        return tow__refuse(r, TOW_UNSUPPORTED, "the %s %s with %s is not known here", what, type,
                           text ? "an empty pattern" : "a regular expression");
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

/* How many times as long a replacement is as what it replaces. */
static double growth(const char *from, const char *to)
{
    const double factor = (double)strlen(to) / (double)strlen(from);
    return factor > 1.0 ? factor : 1.0;
}

/* Replacements multiply: a small file must not make a long text of a short one. */
tow_status tow__check_growth(const tow__token_reader *r)
{
    const tow_tokenizer *t = r->t;
    double normalized = 1.0, decoded = 1.0;
    for (int i = 0; i < t->n_normals; i++)
        if (t->normals[i].kind == TOW__REPLACE) normalized *= growth(t->normals[i].from, t->normals[i].to);
    for (int i = 0; i < t->n_decoders; i++)
        if (t->decoders[i].kind == TOW__DECODE_REPLACE) decoded *= growth(t->decoders[i].from, t->decoders[i].to);
    if (normalized <= MOST_GROWTH && decoded <= MOST_GROWTH) return TOW_OK;
    return tow__refuse(r, TOW_UNSUPPORTED,
                       "the %s can make a text %.3g times as long by its replacements; expected at most %d times",
                       normalized > MOST_GROWTH ? "normalizer" : "decoder",
                       normalized > MOST_GROWTH ? normalized : decoded, MOST_GROWTH);
}

/* ---- normalisers ------------------------------------------------------------------------------------------------- */

static tow_status normal(tow__token_reader *r, const tow__node *node, const part *p)
{
    tow_tokenizer *t = r->t;
    tow__normal step = {.kind = (tow__normal_kind)p->kind};
    const tow_status status = read_fields(r, node, p, t->n_normals, "normalizer", &step);
    if (status == TOW_OK) t->normals[t->n_normals++] = step;
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
        {"BertNormalizer", normal, TOW__BERT_NORMAL, .fields = bert},
        {"Prepend", normal, TOW__PREPEND, .fields = prepend},
        {"Replace", normal, TOW__REPLACE, .fields = replace},
        {"Strip", normal, TOW__STRIP, .fields = strip},
        {0},
    };
    return read_part(r, node, parts, "normalizer", 0);
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

static tow__behaviour behaviour_of(tow__token_reader *r, const tow__node *node)
{
    static const char *const names[] = {"Isolated",       "Removed",    "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous", NULL};
    return (tow__behaviour)tow__take_choice(r, node, "behavior", names, TOW__ISOLATED);
}

static tow_status new_split(tow__token_reader *r, int kind, tow__split **split)
{
    tow_tokenizer *t = r->t;
    const tow_status status = tow__count_step(r, t->n_splits, "pre_tokenizer");
    if (status != TOW_OK) return status;
    if (t->byte_level) return tow__refuse(r, TOW_UNSUPPORTED, "pre_tokenizers behind ByteLevel are not known here");
    *split = &t->splits[t->n_splits++];
    **split = (tow__split){.kind = (tow__split_kind)kind};
    return TOW_OK;
}

static tow_status split_simple(tow__token_reader *r, const tow__node *node, const part *p)
{
    tow__split *s = NULL;
    tow_status status = TOW_OK;
    TRY(new_split(r, p->kind, &s));
    s->each = tow__take_bool(r, node, "individual_digits", false);
    if (p->kind == TOW__SPLIT_DIGITS) s->behaviour = s->each ? TOW__ISOLATED : TOW__CONTIGUOUS;
    if (p->kind == TOW__SPLIT_PUNCTUATION) s->behaviour = behaviour_of(r, node);
done:
    return status;
}

/* "Split": a literal text, or one of the regular expressions, whose matches are the words. */
static tow_status split_pattern(tow__token_reader *r, const tow__node *node, const part *p)
{
    const char *regex = tow__take_string(r, tow__take_object(r, node, "pattern"), "Regex", NULL);
    const bool invert = tow__take_bool(r, node, "invert", false);
    tow__split *s = NULL;
    tow_status status = TOW_OK;
    TRY(new_split(r, p->kind, &s));
    s->behaviour = behaviour_of(r, node);
    if (literal(r, node)) {
        if (invert)
            return tow__refuse(r, TOW_UNSUPPORTED,
                               "the pre_tokenizer Split of a text with \"invert\" is not known here");
        return tow__keep(r, literal(r, node), &s->pattern);
    }
    /* the matches cover a text, so that it is the same whether what is between them is removed */
    const bool words = s->behaviour == TOW__ISOLATED || (s->behaviour == TOW__REMOVED && invert);
    for (size_t i = 0; regex && words && i < sizeof regexes / sizeof *regexes; i++) {
        if (strcmp(regex, regexes[i].regex) != 0) continue;
        s->kind = regexes[i].kind;
        s->max_digits = regexes[i].max_digits;
        return TOW_OK;
    }
    return tow__refuse(r, TOW_UNSUPPORTED,
                       "the pre_tokenizer Split with the regular expression '%.300s' is not known here; those "
                       "of GPT-2, GPT-4, Llama 3 and Qwen 2 are, isolated",
                       regex ? regex : "");
done:
    return status;
}

static tow_status split_bytes(tow__token_reader *r, const tow__node *node, const part *p)
{
    tow__split *s = NULL;
    tow_status status = TOW_OK;
    const bool prefix = tow__take_bool(r, node, "add_prefix_space", true);
    if (r->t->byte_level)
        return tow__refuse(r, TOW_UNSUPPORTED, "ByteLevel behind ByteLevel is not known here: the bytes of bytes");
    if (prefix && r->t->n_splits > 0)
        return tow__refuse(r, TOW_UNSUPPORTED,
                           "ByteLevel with add_prefix_space behind other pre_tokenizers is not known here");
    if (tow__take_bool(r, node, "use_regex", true)) TRY(new_split(r, p->kind, &s));
    r->t->add_prefix_space = prefix;
    r->t->byte_level = true;
done:
    return status;
}

static tow_status split_metaspace(tow__token_reader *r, const tow__node *node, const part *p)
{
    tow__split *s = NULL;
    tow_status status = TOW_OK;
    if (r->t->n_splits > 0)
        return tow__refuse(r, TOW_UNSUPPORTED, "Metaspace behind other pre_tokenizers is not known here");
    TRY(new_split(r, p->kind, &s));
    s->behaviour = TOW__MERGED_WITH_NEXT;
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
        {0},
    };
    return read_part(r, node, parts, "pre_tokenizer", 0);
}

/* ---- post-processors --------------------------------------------------------------------------------------------- */

/* The ids of a special token of a template. */
static tow_status special_ids(const tow__token_reader *r, const tow__node *node, const char *name,
                              tow__template_step *step)
{
    const tow__node *token = tow__dom_get(&r->dom, tow__dom_get(&r->dom, node, "special_tokens"), name);
    const tow__node *ids = tow__dom_get(&r->dom, token, "ids");
    if (!ids || ids->kind != TOW__NODE_ARRAY || ids->count > 4)
        return tow__refuse(r, TOW_BAD_FORMAT, "the template names '%.100s', which has no ids", name);
    for (const tow__node *n = tow__dom_first(&r->dom, ids); n; n = tow__dom_next(&r->dom, n)) {
        if (n->kind != TOW__NODE_NUMBER || !n->integral ||
            !tow_tokenizer_token(r->t, n->integer <= INT32_MAX ? (int32_t)n->integer : -1))
            return tow__refuse(r, TOW_BAD_FORMAT, "the template has an id of '%.100s' that is not in the vocabulary",
                               name);
        step->ids[step->n_ids++] = (int32_t)n->integer;
    }
    return TOW_OK;
}

static tow_status read_template(tow__token_reader *r, const tow__node *node, const char *key, tow__template *template)
{
    const tow__node *list = tow__dom_get(&r->dom, node, key);
    tow_status status = TOW_OK;
    *template = (tow__template){.n = 0};
    if (!list || list->kind != TOW__NODE_ARRAY)
        return tow__refuse(r, TOW_UNSUPPORTED, "expected the template \"%s\" to be a list", key);
    for (const tow__node *n = tow__dom_first(&r->dom, list); n; n = tow__dom_next(&r->dom, n)) {
        TRY(tow__count_step(r, template->n, "template"));
        tow__template_step *step = &template->steps[template->n++];
        const tow__node *token = tow__dom_get(&r->dom, n, "SpecialToken"),
                        *sequence = tow__dom_get(&r->dom, n, "Sequence");
        const char *name = tow__take_string(r, token ? token : sequence, "id", NULL);
        if (!name)
            return tow__refuse(r, TOW_BAD_FORMAT, "expected a SpecialToken or a Sequence with an id in the template");
        const int64_t type = tow__take_integer(r, token ? token : sequence, "type_id", 0);
        TRY(r->wrong);
        if (type < 0 || type > INT32_MAX || (!token && strcmp(name, "A") != 0 && strcmp(name, "B") != 0))
            return tow__refuse(r, TOW_BAD_FORMAT,
                               "expected the texts A and B, and types from 0 to below 2^31, in the template");
        *step = (tow__template_step){.sequence = token ? -1 : strcmp(name, "B") == 0, .type = (int32_t)type};
        if (token) TRY(special_ids(r, node, name, step));
    }
done:
    return status;
}

static tow_status process_template(tow__token_reader *r, const tow__node *node, const part *p)
{
    tow_status status = TOW_OK;
    (void)p;
    TRY(read_template(r, node, "single", &r->t->single));
    TRY(read_template(r, node, "pair", &r->t->pair));
    for (int i = 0; i < r->t->single.n; i++)
        if (r->t->single.steps[i].sequence == 1)
            return tow__refuse(r, TOW_BAD_FORMAT, "the template of a single text has a second one");
    r->t->has_template = true;
done:
    return status;
}

static void trim(tow__token_reader *r, const tow__node *node)
{
    r->t->trim_offsets = tow__take_bool(r, node, "trim_offsets", true);
    r->t->trims_prefix_space = tow__take_bool(r, node, "add_prefix_space", true);
}

static tow_status process_bytes(tow__token_reader *r, const tow__node *node, const part *p)
{
    (void)p;
    trim(r, node);
    return TOW_OK;
}

/* A pair ["[SEP]", 102]. */
static tow_status pair_id(const tow__token_reader *r, const tow__node *node, const char *key, int32_t *id)
{
    const tow__node *first = tow__dom_first(&r->dom, tow__dom_get(&r->dom, node, key));
    const tow__node *second = first ? tow__dom_next(&r->dom, first) : NULL;
    if (second && first->kind == TOW__NODE_STRING && second->kind == TOW__NODE_NUMBER && second->integral &&
        second->integer >= 0 && second->integer <= INT32_MAX && tow_tokenizer_token(r->t, (int32_t)second->integer)) {
        *id = (int32_t)second->integer;
        return TOW_OK;
    }
    return tow__refuse(r, TOW_BAD_FORMAT, "expected \"%s\" to be a token and its id", key);
}

/* BERT: cls A sep, and B sep of type 1. RoBERTa: cls A sep, and sep B sep, all of type 0. */
static tow_status process_bert(tow__token_reader *r, const tow__node *node, const part *p)
{
    const bool roberta = p->kind;
    tow_tokenizer *t = r->t;
    int32_t cls = TOW__NO_ID, sep = TOW__NO_ID;
    tow_status status = TOW_OK;
    TRY(pair_id(r, node, "cls", &cls));
    TRY(pair_id(r, node, "sep", &sep));
    const tow__template_step before = {.sequence = -1, .n_ids = 1, .ids = {cls}};
    tow__template_step after = {.sequence = -1, .n_ids = 1, .ids = {sep}};
    t->single = (tow__template){.n = 3, .steps = {before, {.sequence = 0}, after}};
    t->pair = t->single;
    if (roberta) t->pair.steps[t->pair.n++] = after;
    after.type = roberta ? 0 : 1;
    t->pair.steps[t->pair.n++] = (tow__template_step){.sequence = 1, .type = after.type};
    t->pair.steps[t->pair.n++] = after;
    t->has_template = true;
    if (roberta) trim(r, node);
done:
    return status;
}

tow_status tow__read_processor(tow__token_reader *r, const tow__node *node)
{
    static const part parts[] = {
        {"Sequence", .list = "processors"},     {"TemplateProcessing", process_template, 0},
        {"ByteLevel", process_bytes, 0},        {"BertProcessing", process_bert, 0},
        {"RobertaProcessing", process_bert, 1}, {0},
    };
    return read_part(r, node, parts, "post_processor", 0);
}

/* ---- decoders ---------------------------------------------------------------------------------------------------- */

static tow_status decoder(tow__token_reader *r, const tow__node *node, const part *p)
{
    tow_tokenizer *t = r->t;
    tow__decoder step = {.kind = (tow__decode_kind)p->kind, .from = "", .to = ""};
    const tow_status status = read_fields(r, node, p, t->n_decoders, "decoder", &step);
    if (status == TOW_OK) t->decoders[t->n_decoders++] = step;
    return status;
}

tow_status tow__read_decoder(tow__token_reader *r, const tow__node *node)
{
#define AT(member) offsetof(tow__decoder, member)
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
    return read_part(r, node, parts, "decoder", 0);
}

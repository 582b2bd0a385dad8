/* The textual form of policies: a word, then what it applies to.
 *   word | word:name,name | not(P) | either(P;Q) | both(P;Q) | except(P;name,name)
 * Any text can be a name. Those that would not be read as one word stand in quotes.
 * A parsed policy is one block of memory (nodes, name lists and characters in an arena behind a header), so that
 * freeing it is freeing one thing. */
#include "src/graph/policy.h"

/* Words of the textual form. The first word of each kind is the one that is printed. */
static const struct word {
    const char *text;
    tow_policy_kind kind;
} words[] = {
    {"nothing", TOW_POLICY_NOTHING},
    {"nothing_saveable", TOW_POLICY_NOTHING},
    {"everything", TOW_POLICY_EVERYTHING},
    {"everything_saveable", TOW_POLICY_EVERYTHING},
    {"dots", TOW_POLICY_DOTS},
    {"dots_saveable", TOW_POLICY_DOTS},
    {"checkpoint_dots", TOW_POLICY_DOTS},
    {"dots_with_no_batch_dims", TOW_POLICY_DOTS_WITH_NO_BATCH_DIMS},
    {"dots_with_no_batch_dims_saveable", TOW_POLICY_DOTS_WITH_NO_BATCH_DIMS},
    {"checkpoint_dots_with_no_batch_dims", TOW_POLICY_DOTS_WITH_NO_BATCH_DIMS},
    {"names", TOW_POLICY_ONLY_NAMES},
    {"save_only_these_names", TOW_POLICY_ONLY_NAMES},
    {"any_names_but", TOW_POLICY_ANY_NAMES_BUT},
    {"save_any_names_but_these", TOW_POLICY_ANY_NAMES_BUT},
    {"anything_except", TOW_POLICY_ANYTHING_EXCEPT_NAMES},
    {"save_anything_except_these_names", TOW_POLICY_ANYTHING_EXCEPT_NAMES},
    {"either", TOW_POLICY_EITHER},
    {"save_from_both_policies", TOW_POLICY_EITHER},
    {"both", TOW_POLICY_BOTH},
    {"not", TOW_POLICY_NOT},
    {"except", TOW_POLICY_EXCEPT_NAMES},
    {"custom", TOW_POLICY_CUSTOM},
};
enum {
    WORDS = sizeof words / sizeof *words
};

static bool ends_word(char c) { return c == '\0' || strchr(":,;() \t\n\v\f\r", c); }

static size_t word_length(const char *text)
{
    size_t n = 0;
    while (!ends_word(text[n])) n++;
    return n;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

typedef struct sink {
    char *text;
    size_t size, length;
} sink;

static void put(sink *s, const char *text)
{
    for (; *text; text++, s->length++)
        if (s->length + 1 < s->size) s->text[s->length] = *text;
}

/* Not if it is empty or has in it what ends words, a quote, a backslash or a control character. */
bool tow__policy_name_is_word(const char *name)
{
    size_t n = 0;
    while (!ends_word(name[n]) && !tow__escape(name[n]).text[1]) n++;
    return n > 0 && !name[n];
}

static void put_name(sink *s, const char *name)
{
    if (tow__policy_name_is_word(name)) {
        put(s, name);
        return;
    }
    put(s, "\"");
    for (; *name; name++) put(s, tow__escape(*name).text);
    put(s, "\"");
}

static void put_names(sink *s, char before, const char *const *names)
{
    char separator[2] = {before, 0};
    for (size_t i = 0; names && names[i]; i++) {
        put(s, separator);
        put_name(s, names[i]);
        separator[0] = ',';
    }
    if (!names || !names[0]) put(s, separator);
}

static void put_policy(sink *s, const tow_policy *p)
{
    tow_policy_kind kind = p ? p->kind : TOW_POLICY_NOTHING;
    for (size_t i = 0; i < WORDS; i++)
        if (words[i].kind == kind) {
            put(s, words[i].text);
            break;
        }
    switch (kind) {
    case TOW_POLICY_ONLY_NAMES:
    case TOW_POLICY_ANY_NAMES_BUT:
    case TOW_POLICY_ANYTHING_EXCEPT_NAMES:
        put_names(s, ':', p->names);
        break;
    case TOW_POLICY_EITHER:
    case TOW_POLICY_BOTH:
    case TOW_POLICY_NOT:
    case TOW_POLICY_EXCEPT_NAMES:
        put(s, "(");
        put_policy(s, p->a);
        if (kind == TOW_POLICY_EXCEPT_NAMES) put_names(s, ';', p->names);
        if (kind == TOW_POLICY_EITHER || kind == TOW_POLICY_BOTH) {
            put(s, ";");
            put_policy(s, p->b);
        }
        put(s, ")");
        break;
    default:
        break;
    }
}

size_t tow_policy_text(const tow_policy *policy, char *text, size_t size)
{
    sink s = {.text = text, .size = size};
    if (tow__policy_fits(policy, TOW__DEEPEST_POLICY) && tow__policy_kinds_exist(policy)) put_policy(&s, policy);
    if (size > 0) text[s.length < size ? s.length : size - 1] = 0;
    return s.length;
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

/* The arena stands before the policy that is handed out. */
typedef struct parsed {
    tow__arena arena;
    tow_policy policy;
} parsed;

typedef struct reader {
    tow_context *ctx;
    tow__arena *arena;
    const char *text;
    size_t at;
    int depth;
} reader;

static tow_status expected(reader *r, const char *what)
{
    char found[24];
    size_t n = strnlen(r->text + r->at, 16);
    memcpy(found, r->text + r->at, n);
    found[n] = 0;
    return tow__fail(r->ctx, TOW_BAD_FORMAT, "policy \"%.100s\", column %zu: expected %s, found %s%s%s", r->text,
                     r->at + 1, what, n ? "\"" : "", n ? found : "the end", n ? "\"" : "");
}

static tow_status take(reader *r, char c, const char *what)
{
    if (r->text[r->at] != c) return expected(r, what);
    r->at++;
    return TOW_OK;
}

/* Bytes of a name: of a word, or of a text in quotes with these. 0: there is none, or its closing quote is missing. */
static size_t name_length(const char *text)
{
    size_t n = 1;
    if (*text != '"') return word_length(text);
    while (text[n] && text[n] != '"') n += text[n] == '\\' && text[n + 1] ? 2 : 1;
    return text[n] ? n + 1 : 0;
}

static tow_status read_name(reader *r, const char **name)
{
    const char *text = r->text + r->at;
    bool quoted = *text == '"';
    size_t n = name_length(text), length = 0;
    if (n == 0)
        return expected(r, quoted ? "a checkpoint name with a closing quote"
                                  : "a checkpoint name (in quotes if blanks or any of :,;() are in it)");
    char *copy = tow__arena_alloc(r->arena, n + 1, 1);
    if (!copy) return TOW_OUT_OF_MEMORY;
    if (!quoted) memcpy(copy, text, n);
    for (const char *c = text + 1; quoted && c < text + n - 1;) {
        r->at = (size_t)(c - r->text);
        c = tow__unescape(c, &copy[length++]);
        if (!c) return expected(r, TOW__ESCAPES);
    }
    r->at = (size_t)(text - r->text) + n;
    *name = copy;
    return TOW_OK;
}

/* name,name,... ; an empty list is allowed */
static tow_status read_names(reader *r, tow_policy *p)
{
    size_t count = 0;
    for (size_t at = r->at, n; (n = name_length(r->text + at)) > 0; at += n + 1) {
        count++;
        if (r->text[at + n] != ',') break;
    }
    const char **names = tow__arena_alloc(r->arena, count + 1, sizeof *names);
    if (!names) return TOW_OUT_OF_MEMORY;
    p->names = names;
    char next = r->text[r->at];
    if (count == 0 && next != ',' && next != '"') return TOW_OK;
    for (size_t i = 0; i == 0 || r->text[r->at] == ','; i++) {
        if (i > 0) r->at++;
        tow_status status = read_name(r, &names[i]);
        if (status != TOW_OK) return status;
    }
    return TOW_OK;
}

static tow_status read_policy(reader *r, tow_policy *p);

static tow_status read_operand(reader *r, const tow_policy **out)
{
    tow_policy *p = tow__arena_alloc(r->arena, 1, sizeof *p);
    *out = p;
    return p ? read_policy(r, p) : TOW_OUT_OF_MEMORY;
}

static tow_status read_operands(reader *r, tow_policy *p)
{
    tow_status status = TOW_OK;
    TRY(take(r, '(', "\"(\""));
    TRY(read_operand(r, &p->a));
    if (p->kind != TOW_POLICY_NOT) TRY(take(r, ';', "\";\""));
    if (p->kind == TOW_POLICY_EXCEPT_NAMES) TRY(read_names(r, p));
    if (p->kind == TOW_POLICY_EITHER || p->kind == TOW_POLICY_BOTH) TRY(read_operand(r, &p->b));
    TRY(take(r, ')', "\")\""));
done:
    return status;
}

static tow_status read_policy(reader *r, tow_policy *p)
{
    static const char *const what = "a policy: nothing, everything, dots, dots_with_no_batch_dims, names:a,b, "
                                    "any_names_but:a,b, anything_except:a,b, "
                                    "either(P;Q), both(P;Q), not(P) or except(P;a,b)";
    if (++r->depth > TOW__DEEPEST_POLICY)
        return tow__fail(r->ctx, TOW_UNSUPPORTED,
                         "policy \"%.100s\", column %zu: policies are nested more than %d deep; combine fewer", r->text,
                         r->at + 1, TOW__DEEPEST_POLICY);
    size_t n = word_length(r->text + r->at), i = 0;
    while (i < WORDS && (strncmp(words[i].text, r->text + r->at, n) != 0 || words[i].text[n])) i++;
    if (n == 0 || i == WORDS || words[i].kind == TOW_POLICY_CUSTOM) return expected(r, what);
    p->kind = words[i].kind;
    r->at += n;
    tow_status status = TOW_OK;
    switch (p->kind) {
    case TOW_POLICY_ONLY_NAMES:
    case TOW_POLICY_ANY_NAMES_BUT:
    case TOW_POLICY_ANYTHING_EXCEPT_NAMES:
        status = take(r, ':', "\":\" and checkpoint names");
        if (status == TOW_OK) status = read_names(r, p);
        break;
    case TOW_POLICY_EITHER:
    case TOW_POLICY_BOTH:
    case TOW_POLICY_NOT:
    case TOW_POLICY_EXCEPT_NAMES:
        status = read_operands(r, p);
        break;
    default:
        break;
    }
    r->depth--;
    return status;
}

tow_status tow_policy_parse(tow_context *context, const char *text, tow_policy **policy)
{
    if (policy) *policy = NULL;
    if (!context || !text || !policy)
        return tow__missing(context, __func__, "a context, a text and a place for the policy");
    parsed *result = tow__alloc(context, 1, sizeof *result);
    if (!result) return TOW_OUT_OF_MEMORY;
    tow__arena_init(&result->arena, context);
    reader r = {.ctx = context, .arena = &result->arena, .text = text};
    tow_status status = read_policy(&r, &result->policy);
    if (status == TOW_OK && text[r.at]) status = expected(&r, "the end");
    if (status == TOW_OK)
        *policy = &result->policy;
    else
        tow_policy_free(&result->policy);
    return status;
}

void tow_policy_free(tow_policy *policy)
{
    if (!policy) return;
    parsed *p = (parsed *)((char *)policy - offsetof(parsed, policy));
    tow_context *context = p->arena.ctx;
    tow__arena_free(&p->arena);
    tow__free(context, p, 1, sizeof *p);
}

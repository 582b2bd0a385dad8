/* Regular expressions by PCRE2. Patterns are those of Oniguruma with Ruby's syntax: lines end at "\n" alone, ^ and $
 * are beginnings and ends of lines, and sets may contain sets. Constructs that differ are rewritten, or refused.
 *
 * Hostile patterns try exponentially many ways. Every item of a pattern that is tried is a step, and so is every byte
 * between where it is tried and where the item before was; there are as many as the length of the text allows. */
#include "src/text/regex.h"

#ifdef TOW_HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    STEPS = 1000000, /* that every text may take, and */
    STEPS_PER_BYTE = 256,
    MOST_HEAP = 1 << 14, /* KiB that a search may take */
    MOST_PATTERN = 1 << 16
};

struct tow__regex {
    tow_context *ctx;
    pcre2_general_context *general;
    pcre2_match_context *limits;
    pcre2_code *code;
    pcre2_match_data *match;
    size_t shortest, steps_left, last;
    tow_status status;
};

/* ---- memory ------------------------------------------------------------------------------------------------------ */

enum {
    HEADER = 16 /* bytes in front of a block, with its size */
};

static void *allocate(size_t size, void *ctx)
{
    char *block = size <= SIZE_MAX - HEADER ? tow__alloc(ctx, size + HEADER, 1) : NULL;
    if (!block) return NULL;
    memcpy(block, &size, sizeof size);
    return block + HEADER;
}

static void release(void *memory, void *ctx)
{
    size_t size;
    if (!memory) return;
    memcpy(&size, (char *)memory - HEADER, sizeof size);
    tow__free(ctx, (char *)memory - HEADER, size + HEADER, 1);
}

void tow__regex_free(tow__regex *r)
{
    if (!r) return;
    pcre2_match_data_free(r->match);
    pcre2_code_free(r->code);
    pcre2_match_context_free(r->limits);
    pcre2_general_context_free(r->general);
    tow__free(r->ctx, r, 1, sizeof *r);
}

/* ---- syntax ------------------------------------------------------------------------------------------------------ */

typedef struct translator {
    tow_context *ctx;
    const char *pattern, *at;
    int sets; /* that are open */
    tow__string to;
} translator;

static tow_status differs(const translator *t, const char *what)
{
    return tow__fail(t->ctx, TOW_UNSUPPORTED, "'%.300s' has %s, which is not known here", t->pattern, what);
}

/* Classes as Oniguruma has them: the members of sets. */
#define POSIX_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD       POSIX_WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define SPACE      "\\p{Z}\\t-\\r\\x{85}"
#define HEX        "0-9a-fA-F"

/* A class, in a set or as a set of its own. */
static tow_status add_class(translator *t, const char *members, bool negated)
{
    if (t->sets > 0 && negated) return differs(t, "a negated class in a set");
    if (t->sets > 0)
        tow__string_add(&t->to, "%s", members);
    else
        tow__string_add(&t->to, negated ? "[^%s]" : "[%s]", members);
    return TOW_OK;
}

/* A backslash and what it stands before. */
static tow_status escape(translator *t)
{
    static const struct {
        char letter;
        const char *members;
    } classes[] = {{'w', WORD}, {'s', SPACE}, {'h', HEX}, {'W', WORD}, {'S', SPACE}, {'H', HEX}};
    const char c = t->at[1];
    if (!c) return tow__fail(t->ctx, TOW_BAD_FORMAT, "'%.300s' ends with a backslash", t->pattern);
    if (strchr("RXKGNOyYgkCEQ", c)) return differs(t, "an escape that means something else elsewhere");
    t->at += 2;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (c == classes[i].letter) return add_class(t, classes[i].members, i >= 3);
    if (c == 'b' && t->sets == 0)
        tow__string_add(&t->to, "(?:(?<=[%s])(?![%s])|(?<![%s])(?=[%s]))", WORD, WORD, WORD, WORD);
    else if (c == 'B' && t->sets == 0)
        tow__string_add(&t->to, "(?:(?<=[%s])(?=[%s])|(?<![%s])(?![%s]))", WORD, WORD, WORD, WORD);
    else if (c != 'u')
        tow__string_add(&t->to, "\\%c", c);
    if (c != 'u') return TOW_OK;
    for (int i = 0; i < 4; i++)
        if (!t->at[i] || !strchr("0123456789abcdefABCDEF", t->at[i]))
            return tow__fail(t->ctx, TOW_BAD_FORMAT, "'%.300s': expected four digits behind \\u", t->pattern);
    tow__string_add(&t->to, "\\x{%.4s}", t->at);
    t->at += 4;
    return TOW_OK;
}

/* [:name:], which is in a set. */
static tow_status posix_class(translator *t)
{
    static const struct {
        const char *name, *members;
    } classes[] = {{"[:alpha:]", "\\p{Alphabetic}"},
                   {"[:digit:]", "\\p{Nd}"},
                   {"[:alnum:]", "\\p{Alphabetic}\\p{Nd}"},
                   {"[:upper:]", "\\p{Uppercase}"},
                   {"[:lower:]", "\\p{Lowercase}"},
                   {"[:space:]", SPACE},
                   {"[:word:]", POSIX_WORD},
                   {"[:xdigit:]", HEX}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const size_t length = strlen(classes[i].name);
        if (strncmp(t->at, classes[i].name, length) != 0) continue;
        t->at += length;
        return add_class(t, classes[i].members, false);
    }
    return differs(t, "a class of another name than alpha, digit, alnum, upper, lower, space, word and xdigit");
}

/* A bracket that opens: a set, a set in a set, whose members are those of the outer one, or a class. */
static tow_status open_set(translator *t)
{
    const bool negated = t->at[1] == '^';
    if (t->sets > 0 && t->at[1] == ':') return posix_class(t);
    if (t->sets > 0 && negated) return differs(t, "a negated set in a set");
    if (t->at[1 + negated] == ']') return differs(t, "an empty set");
    if (t->sets++ == 0) tow__string_add(&t->to, negated ? "[^" : "[");
    t->at += 1 + negated;
    return TOW_OK;
}

/* A parenthesis that opens. */
static tow_status open_group(translator *t)
{
    const char *c = t->at + 1;
    if (*c == '*') return differs(t, "a verb");
    if (*c == '?' && c[1] && strchr("&PRC|+0123456789~(y", c[1])) return differs(t, "a group of another kind");
    for (const char *flag = c + 1; *c == '?' && *flag && strchr("imxadsujWDSPy-", *flag); flag++)
        if (*flag != 'i' && *flag != '-' && *flag != 'x') return differs(t, "a flag other than i and x");
    tow__string_add(&t->to, "(");
    t->at++;
    return TOW_OK;
}

static tow_status translate(translator *t)
{
    tow_status status = TOW_OK;
    while (*t->at) {
        const char c = *t->at;
        if (c == '\\') {
            TRY(escape(t));
        } else if (c == '[') {
            TRY(open_set(t));
        } else if (c == ']' && t->sets > 0) {
            if (--t->sets == 0) tow__string_add(&t->to, "]");
            t->at++;
        } else if (c == '&' && t->at[1] == '&' && t->sets > 0) {
            TRY(differs(t, "an intersection of sets"));
        } else if (c == '(' && t->sets == 0) {
            TRY(open_group(t));
        } else {
            tow__string_add(&t->to, "%c", c);
            t->at++;
        }
    }
    if (t->to.failed) status = TOW_OUT_OF_MEMORY;
done:
    return status;
}

/* ---- compiling --------------------------------------------------------------------------------------------------- */

static int count_step(pcre2_callout_block *block, void *user)
{
    tow__regex *r = user;
    const size_t at = block->current_position, moved = at > r->last ? at - r->last : r->last - at;
    r->last = at;
    if (r->steps_left <= moved) {
        r->steps_left = 0;
        return PCRE2_ERROR_MATCHLIMIT;
    }
    r->steps_left -= moved + 1;
    return 0;
}

static tow_status compile(tow__regex *r, const char *pattern, const tow__string *translated)
{
    int error = 0;
    size_t at = 0;
    uint32_t empty = 0, shortest = 0;
    pcre2_compile_context *options = pcre2_compile_context_create(r->general);
    if (!options) return TOW_OUT_OF_MEMORY;
    pcre2_set_newline(options, PCRE2_NEWLINE_LF);
    pcre2_set_max_pattern_length(options, MOST_PATTERN);
    r->code = pcre2_compile((PCRE2_SPTR)translated->text, translated->length,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_MULTILINE | PCRE2_AUTO_CALLOUT |
                                PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_START_OPTIMIZE,
                            &error, &at, options);
    pcre2_compile_context_free(options);
    if (!r->code) {
        PCRE2_UCHAR why[160] = "";
        pcre2_get_error_message(error, why, sizeof why);
        if (error == PCRE2_ERROR_HEAP_FAILED || error == PCRE2_ERROR_NOMEMORY) return TOW_OUT_OF_MEMORY;
        return tow__fail(r->ctx, TOW_BAD_FORMAT, "'%.300s' is no regular expression: %s", pattern, (const char *)why);
    }
    pcre2_pattern_info(r->code, PCRE2_INFO_MATCHEMPTY, &empty);
    pcre2_pattern_info(r->code, PCRE2_INFO_MINLENGTH, &shortest);
    if (empty)
        return tow__fail(r->ctx, TOW_UNSUPPORTED, "'%.300s' matches a text of no characters, which is not known here",
                         pattern);
    r->shortest = shortest > 0 ? shortest : 1;
    return TOW_OK;
}

tow_status tow__regex_create(tow_context *ctx, const char *pattern, tow__regex **regex)
{
    translator t = {.ctx = ctx, .pattern = pattern, .at = pattern};
    tow_status status = TOW_OK;
    tow__string_init(&t.to, ctx);
    tow__regex *r = *regex = tow__alloc(ctx, 1, sizeof *r);
    if (!r) TRY(TOW_OUT_OF_MEMORY);
    r->ctx = ctx;
    TRY(translate(&t));
    r->general = pcre2_general_context_create(allocate, release, ctx);
    if (!r->general) TRY(TOW_OUT_OF_MEMORY);
    TRY(compile(r, pattern, &t.to));
    r->limits = pcre2_match_context_create(r->general);
    r->match = pcre2_match_data_create(1, r->general);
    if (!r->limits || !r->match) TRY(TOW_OUT_OF_MEMORY);
    pcre2_set_callout(r->limits, count_step, r);
    pcre2_set_heap_limit(r->limits, MOST_HEAP);
    pcre2_set_match_limit(r->limits, UINT32_MAX);
done:
    tow__string_free(&t.to);
    if (status != TOW_OK) {
        tow__regex_free(r);
        *regex = NULL;
    }
    return status;
}

size_t tow__regex_shortest(const tow__regex *r) { return r->shortest; }

/* ---- searching --------------------------------------------------------------------------------------------------- */

void tow__regex_allow(tow__regex *r, size_t length)
{
    r->status = TOW_OK;
    r->steps_left = length > (SIZE_MAX - STEPS) / STEPS_PER_BYTE ? SIZE_MAX : STEPS + STEPS_PER_BYTE * length;
}

static tow_status fail(const tow__regex *r, int error)
{
    if (error == PCRE2_ERROR_NOMEMORY) return TOW_OUT_OF_MEMORY;
    return tow__fail(r->ctx, TOW_INVALID_ARGUMENT, "a regular expression of the tokenizer takes too %s for this text",
                     error == PCRE2_ERROR_HEAPLIMIT || error == PCRE2_ERROR_DEPTHLIMIT ? "much memory" : "many steps");
}

bool tow__regex_find(tow__regex *r, const char *text, size_t begin, size_t at, size_t end, size_t *match_begin,
                     size_t *match_end)
{
    if (r->status != TOW_OK) return false;
    r->last = at - begin;
    const int n = pcre2_match(r->code, (PCRE2_SPTR)text + begin, end - begin, at - begin, PCRE2_NO_UTF_CHECK, r->match,
                              r->limits);
    if (n < 0) {
        if (n != PCRE2_ERROR_NOMATCH) r->status = fail(r, n);
        return false;
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(r->match);
    *match_begin = begin + ends[0];
    *match_end = begin + ends[1];
    return *match_end > *match_begin;
}

tow_status tow__regex_status(const tow__regex *r) { return r->status; }

#else

tow_status tow__regex_create(tow_context *ctx, const char *pattern, tow__regex **regex)
{
    *regex = NULL;
    return tow__fail(
        ctx, TOW_UNSUPPORTED,
        "'%.300s' is not known here: those of GPT-2, GPT-4, Llama 3 and Qwen 2 are, isolated; others take PCRE2, "
        "without which this library was built",
        pattern);
}

void tow__regex_free(tow__regex *regex) { (void)regex; }
size_t tow__regex_shortest(const tow__regex *regex) { return (void)regex, 1; }
void tow__regex_allow(tow__regex *regex, size_t length) { (void)regex, (void)length; }
bool tow__regex_find(tow__regex *regex, const char *text, size_t begin, size_t at, size_t end, size_t *match_begin,
                     size_t *match_end)
{
    (void)regex, (void)text, (void)begin, (void)at, (void)end, (void)match_begin, (void)match_end;
    return false;
}
tow_status tow__regex_status(const tow__regex *regex) { return (void)regex, TOW_OK; }

#endif

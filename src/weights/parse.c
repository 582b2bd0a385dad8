/* The text of a mapping: one rule a line. The grammar stands in tow/weights.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/locale.h"
#include "src/weights/mapping.h"

/* A rule while its line is read. */
typedef struct draft {
    int n_theirs, n_ours;
    const char *theirs[TOW__MAX_ALIASES], *ours[TOW__MAX_PARTS];
    bool given; /* there are axes */
    tow__axes axes;
    int32_t fixed[TOW__MAX_FACTORS];
    const char *names[TOW__MAX_FACTORS];
    tow__axis their_axes[TOW_MAX_RANK], our_axes[TOW_MAX_RANK];
} draft;

typedef struct parser {
    tow_weight_mapping *m;
    const char *at, *end; /* of the line without its comment */
    int line;
    draft draft;
} parser;

__attribute__((format(printf, 2, 3))) static tow_status refuse(const parser *p, const char *format, ...)
{
    char why[512];
    va_list args;
    va_start(args, format);
    if (vsnprintf(why, sizeof why, format, args) < 0) why[0] = '\0';
    va_end(args);
    return tow__fail(p->m->ctx, TOW_BAD_FORMAT, "%s:%d: %s", p->m->name, p->line, why);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static void skip_spaces(parser *p)
{
    while (p->at < p->end && is_space(*p->at)) p->at++;
}

static bool at_end(parser *p)
{
    skip_spaces(p);
    return p->at == p->end;
}

/* Length of the word at p->at: up to a space or the character of its own that ends names. */
static int word_length(const parser *p)
{
    const char *c = p->at;
    while (c < p->end && !is_space(*c) && !strchr("[]|=", *c)) c++;
    return (int)(c - p->at);
}

/* True if the word that comes is `word`, which is skipped. */
static bool accept_word(parser *p, const char *word)
{
    skip_spaces(p);
    const size_t length = strlen(word);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0) return false;
    if (p->at + length < p->end && !is_space(p->at[length]) && strchr("[]|=", word[0]) == NULL) return false;
    p->at += length;
    return true;
}

/* For messages: what comes. */
#define FOUND(p)                                                                                                       \
    (p)->at == (p)->end ? 11 : (int)((p)->end - (p)->at < 60 ? (p)->end - (p)->at : 60),                               \
        (p)->at == (p)->end ? "end of line" : (p)->at

static tow_status read_word(parser *p, const char *what, const char **word)
{
    skip_spaces(p);
    const int length = word_length(p);
    if (length == 0) return refuse(p, "expected %s, found '%.*s'", what, FOUND(p));
    char *copy = tow__arena_alloc(&p->m->memory, (size_t)length + 1, 1);
    if (!copy) return TOW_OUT_OF_MEMORY;
    memcpy(copy, p->at, (size_t)length);
    p->at += length;
    *word = copy;
    return TOW_OK;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/* {letters} at `c`, or 0. */
static size_t hole_length(const char *c)
{
    size_t n = 1;
    while (is_letter(c[n])) n++;
    return n > 1 && c[n] == '}' ? n + 1 : 0;
}

/* Braces must hold one word of letters, at most four times and each once; "*" only where `stars`. */
static tow_status check_pattern(const parser *p, const char *pattern, bool stars)
{
    int holes = 0;
    for (const char *c = pattern; *c; c++) {
        if (*c == '*' && !stars) return refuse(p, "'*' in '%.100s': only names to ignore may have one", pattern);
        if (*c == '}') return refuse(p, "'}' without '{' in '%.100s'", pattern);
        if (*c != '{') continue;
        const size_t length = hole_length(c);
        if (length == 0) return refuse(p, "expected {name} in '%.100s', found '%.20s'", pattern, c);
        if (++holes > TOW__MAX_NUMBERS)
            return refuse(p, "expected at most %d numbers in '%.100s'", TOW__MAX_NUMBERS, pattern);
        for (const char *other = pattern; other < c; other++)
            if (strncmp(other, c, length) == 0)
                return refuse(p, "'%.*s' is twice in '%.100s'", (int)length, c, pattern);
        c += length - 1;
    }
    return TOW_OK;
}

/* Every {x} of `a` must be in `b`. */
static tow_status check_holes(const parser *p, const char *a, const char *b)
{
    for (const char *c = a; *c; c++) {
        const size_t length = *c == '{' ? hole_length(c) : 0;
        bool found = length == 0;
        for (const char *other = b; *other && !found; other++) found = strncmp(other, c, length) == 0;
        if (!found) return refuse(p, "'%.*s' of '%.100s' is not in '%.100s'", (int)length, c, a, b);
    }
    return TOW_OK;
}

/* "head{a,b}tail" to "headatail", "headbtail"; without a comma in braces, the word itself. */
static tow_status expand_parts(parser *p, const char *word)
{
    draft *rule = &p->draft;
    const char *open = word, *close, *comma;
    for (;; open++) {
        open = strchr(open, '{');
        close = open ? strchr(open, '}') : NULL;
        comma = close ? memchr(open, ',', (size_t)(close - open)) : NULL;
        if (!close || comma) break;
    }
    if (!comma) {
        rule->ours[rule->n_ours++] = word;
        return TOW_OK;
    }
    for (const char *part = open + 1; part <= close;) {
        const int length = (int)strcspn(part, ",}");
        if (length == 0) return refuse(p, "expected a name before '%.20s'", part);
        if (rule->n_ours == TOW__MAX_PARTS)
            return refuse(p, "expected at most %d parameters of one tensor, found more", TOW__MAX_PARTS);
        const size_t size = (size_t)(open - word) + (size_t)length + strlen(close + 1) + 1;
        char *path = tow__arena_alloc(&p->m->memory, size, 1);
        if (!path) return TOW_OUT_OF_MEMORY;
        snprintf(path, size, "%.*s%.*s%s", (int)(open - word), word, length, part, close + 1);
        for (int i = 0; i < rule->n_ours; i++)
            if (strcmp(rule->ours[i], path) == 0) return refuse(p, "'%.100s' is there twice", path);
        rule->ours[rule->n_ours++] = path;
        part += length + 1;
    }
    return TOW_OK;
}

/* ---- axes -------------------------------------------------------------------------------------------------------- */

/* The factor of that name, added on the left side. -1 on an error. */
static tow_status find_factor(parser *p, const char *name, int length, bool add, int *factor)
{
    tow__axes *a = &p->draft.axes;
    for (*factor = 0; *factor < a->n_factors; ++*factor)
        if (strncmp(a->names[*factor], name, (size_t)length) == 0 && a->names[*factor][length] == '\0') break;
    if (*factor < a->n_factors) return TOW_OK;
    if (!add) return refuse(p, "the axis '%.*s' of the parameter is not among those of the tensor", length, name);
    if (a->n_factors == TOW__MAX_FACTORS) return refuse(p, "expected at most %d axes", TOW__MAX_FACTORS);
    char *copy = tow__arena_alloc(&p->m->memory, (size_t)length + 1, 1);
    if (!copy) return TOW_OUT_OF_MEMORY;
    memcpy(copy, name, (size_t)length);
    p->draft.names[a->n_factors++] = copy;
    return TOW_OK;
}

/* "=SIZE" behind the name of a factor. */
static tow_status read_size(parser *p, int factor)
{
    int32_t size = 0;
    p->at++;
    const char *begin = p->at;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9' && size < 1 << 20; p->at++)
        size = 10 * size + (*p->at - '0');
    if (p->at == begin || size == 0 || size >= 1 << 20)
        return refuse(p, "expected the size of the axis '%s', 1 to 2^20 - 1", p->draft.names[factor]);
    p->draft.fixed[factor] = size;
    p->draft.axes.fixed = p->draft.fixed;
    return TOW_OK;
}

/* A name of a factor, which may have a size, or "*", or 1. */
static tow_status read_factor(parser *p, bool left, tow__axis *axis)
{
    tow__axes *a = &p->draft.axes;
    tow_status status = TOW_OK;
    int length = 0, factor;
    skip_spaces(p);
    if (p->at < p->end && *p->at == '*' && left) {
        if (a->alternates) return refuse(p, "'*' is there twice");
        a->alternates = true;
        factor = TOW__PART_FACTOR;
        length = 1;
    } else {
        while (p->at + length < p->end &&
               (is_letter(p->at[length]) || (length > 0 && p->at[length] >= '0' && p->at[length] <= '9')))
            length++;
        if (length == 0) return refuse(p, "expected the name of an axis, found '%.*s'", FOUND(p));
        TRY(find_factor(p, p->at, length, left, &factor));
    }
    if (axis->n == TOW__MAX_FACTORS) return refuse(p, "expected at most %d axes", TOW__MAX_FACTORS);
    axis->factors[axis->n++] = (int8_t)factor;
    p->at += length;
    if (left && factor != TOW__PART_FACTOR && p->at < p->end && *p->at == '=') TRY(read_size(p, factor));
done:
    return status;
}

static tow_status read_axis(parser *p, bool left, tow__axis *axis)
{
    tow_status status = TOW_OK;
    if (*p->at == '1') {
        p->at++;
        return TOW_OK;
    }
    if (*p->at != '(') return read_factor(p, left, axis);
    p->at++;
    for (;;) {
        TRY(read_factor(p, left, axis));
        skip_spaces(p);
        if (p->at < p->end && *p->at == ')') break;
    }
    p->at++;
done:
    return status;
}

/* "[...]", whose first bracket comes. */
static tow_status read_axes(parser *p, bool left)
{
    tow__axes *a = &p->draft.axes;
    tow__axis *axes = left ? p->draft.their_axes : p->draft.our_axes;
    int8_t *n = left ? &a->n_theirs : &a->n_ours;
    tow_status status = TOW_OK;
    p->at++;
    p->draft.given = true;
    while (!at_end(p) && *p->at != ']') {
        if (*n == TOW_MAX_RANK) return refuse(p, "expected at most %d axes, found more", TOW_MAX_RANK);
        if (*p->at == '+' && left) {
            if (a->joined >= 0) return refuse(p, "'+' is there twice");
            a->joined = *n;
            p->at++;
            skip_spaces(p);
        }
        TRY(read_axis(p, left, &axes[(*n)++]));
    }
    if (p->at == p->end) return refuse(p, "expected ']', found end of line");
    p->at++;
done:
    return status;
}

/* Every name once on each side, and the mark of parts where there are several. */
static tow_status check_axes(const parser *p)
{
    const draft *rule = &p->draft;
    const tow__axes *a = &rule->axes;
    for (int side = 0; side < 2; side++)
        for (int f = 0; f < a->n_factors; f++) {
            const tow__axis *axes = side == 0 ? a->theirs : a->ours;
            int count = 0;
            for (int i = 0; i < (side == 0 ? a->n_theirs : a->n_ours); i++)
                for (int j = 0; j < axes[i].n; j++) count += axes[i].factors[j] == f;
            if (count != 1)
                return refuse(p, "the axis '%s' is %s of the %s", a->names[f],
                              count == 0 ? "not among those" : "twice among those", side == 0 ? "tensor" : "parameter");
        }
    const int marks = a->alternates + (a->joined >= 0);
    if (rule->n_ours > 1 && marks != 1)
        return refuse(p, "expected one '*' or '+' among the axes of the tensor, which %d parameters make, found %d",
                      rule->n_ours, marks);
    if (rule->n_ours == 1 && marks != 0) return refuse(p, "'*' and '+' are for several parameters, found one");
    return TOW_OK;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static tow_status read_left(parser *p)
{
    draft *rule = &p->draft;
    tow_status status = TOW_OK;
    do {
        if (rule->n_theirs == TOW__MAX_ALIASES)
            return refuse(p, "expected at most %d names of one tensor", TOW__MAX_ALIASES);
        TRY(read_word(p, "the name of a tensor", &rule->theirs[rule->n_theirs]));
        TRY(check_pattern(p, rule->theirs[rule->n_theirs], false));
        rule->n_theirs++;
    } while (accept_word(p, "|"));
    skip_spaces(p);
    if (p->at < p->end && *p->at == '[') TRY(read_axes(p, true));
done:
    return status;
}

/* "plus NUMBER", if it comes. */
static tow_status read_plus(parser *p, double *plus)
{
    char number[32], *stop;
    if (!accept_word(p, "plus")) return TOW_OK;
    skip_spaces(p);
    const int length = word_length(p);
    snprintf(number, sizeof number, "%.*s", length, p->at);
    const tow__locale locale = tow__locale_enter();
    *plus = strtod(number, &stop);
    tow__locale_leave(locale);
    if (length == 0 || *stop != '\0' || !isfinite(*plus))
        return refuse(p, "expected a number behind 'plus', found '%.*s'", FOUND(p));
    p->at += length;
    return TOW_OK;
}

static tow_status read_map(parser *p, tow__tensor_rule *made)
{
    draft *rule = &p->draft;
    tow_status status = TOW_OK;
    const char *word;
    TRY(read_left(p));
    if (!accept_word(p, "->")) return refuse(p, "expected '->' and the path of a parameter, found '%.*s'", FOUND(p));
    TRY(read_word(p, "the path of a parameter", &word));
    TRY(expand_parts(p, word));
    for (int i = 0; i < rule->n_ours; i++) {
        TRY(check_pattern(p, rule->ours[i], false));
        for (int j = 0; j < rule->n_theirs; j++) {
            TRY(check_holes(p, rule->ours[i], rule->theirs[j]));
            TRY(check_holes(p, rule->theirs[j], rule->ours[i]));
        }
    }
    skip_spaces(p);
    const bool left = rule->given, right = p->at < p->end && *p->at == '[';
    if (left != right) return refuse(p, "expected axes [...] on both sides of '->', or on none");
    if (right) TRY(read_axes(p, false));
    TRY(check_axes(p));
    TRY(read_plus(p, &made->plus));
    made->optional = accept_word(p, "optional");
done:
    return status;
}

static tow_status read_tied(parser *p)
{
    draft *rule = &p->draft;
    tow_status status = TOW_OK;
    rule->n_theirs = rule->n_ours = 1;
    TRY(read_word(p, "the name of a tensor", &rule->theirs[0]));
    if (!accept_word(p, "="))
        return refuse(p, "expected '=' and the tensor that it is a copy of, found '%.*s'", FOUND(p));
    TRY(read_word(p, "the tensor that it is a copy of", &rule->ours[0]));
    TRY(check_pattern(p, rule->theirs[0], false));
    TRY(check_pattern(p, rule->ours[0], false));
    TRY(check_holes(p, rule->ours[0], rule->theirs[0]));
done:
    return status;
}

static tow_status read_prefix(parser *p)
{
    tow_weight_mapping *m = p->m;
    const char *prefix;
    tow_status status = TOW_OK;
    TRY(read_word(p, "the beginning of names", &prefix));
    if (m->n_prefixes == m->prefixes_capacity) {
        const size_t capacity = m->prefixes_capacity ? 2 * m->prefixes_capacity : 4;
        const char **prefixes = tow__grow(m->ctx, m->prefixes, m->prefixes_capacity, capacity, sizeof *prefixes);
        if (!prefixes) return TOW_OUT_OF_MEMORY;
        m->prefixes = prefixes;
        m->prefixes_capacity = capacity;
    }
    m->prefixes[m->n_prefixes++] = prefix;
done:
    return status;
}

/* Gives a rule what was read, in no more memory than it takes. */
static tow_status keep_draft(parser *p, tow__tensor_rule *rule)
{
    const draft *d = &p->draft;
    tow__arena *memory = &p->m->memory;
    rule->n_theirs = (int8_t)d->n_theirs;
    rule->n_ours = (int8_t)d->n_ours;
    rule->theirs = tow__arena_copy(memory, d->theirs, (size_t)d->n_theirs, sizeof *d->theirs);
    rule->ours = tow__arena_copy(memory, d->ours, (size_t)d->n_ours, sizeof *d->ours);
    if (!rule->theirs || (d->n_ours > 0 && !rule->ours)) return TOW_OUT_OF_MEMORY;
    if (!d->given) return TOW_OK;
    tow__axes axes = d->axes;
    axes.names = tow__arena_copy(memory, d->names, (size_t)axes.n_factors, sizeof *d->names);
    axes.theirs = tow__arena_copy(memory, d->their_axes, (size_t)axes.n_theirs, sizeof *d->their_axes);
    axes.ours = tow__arena_copy(memory, d->our_axes, (size_t)axes.n_ours, sizeof *d->our_axes);
    if (axes.fixed) axes.fixed = tow__arena_copy(memory, d->fixed, (size_t)axes.n_factors, sizeof *d->fixed);
    rule->axes = tow__arena_copy(memory, &axes, 1, sizeof axes);
    const bool kept = (axes.fixed || !d->axes.fixed) && (axes.names || axes.n_factors == 0) &&
                      (axes.theirs || axes.n_theirs == 0) && (axes.ours || axes.n_ours == 0) && rule->axes;
    return kept ? TOW_OK : TOW_OUT_OF_MEMORY;
}

static tow_status read_rule(parser *p)
{
    tow_weight_mapping *m = p->m;
    tow_status status = TOW_OK;
    if (m->n_rules == m->capacity) {
        const size_t capacity = m->capacity ? 2 * m->capacity : 16;
        tow__tensor_rule *rules = tow__grow(m->ctx, m->rules, m->capacity, capacity, sizeof *rules);
        if (!rules) return TOW_OUT_OF_MEMORY;
        m->rules = rules;
        m->capacity = capacity;
    }
    tow__tensor_rule rule = {.line = p->line};
    p->draft = (draft){.axes.joined = -1};
    p->draft.axes.names = p->draft.names;
    p->draft.axes.theirs = p->draft.their_axes;
    p->draft.axes.ours = p->draft.our_axes;
    if (accept_word(p, "ignore")) {
        rule.kind = TOW__RULE_IGNORE;
        p->draft.n_theirs = 1;
        TRY(read_word(p, "the name of a tensor to ignore", &p->draft.theirs[0]));
        TRY(check_pattern(p, p->draft.theirs[0], true));
    } else if (accept_word(p, "tied")) {
        rule.kind = TOW__RULE_TIED;
        TRY(read_tied(p));
    } else {
        TRY(read_map(p, &rule));
    }
    TRY(keep_draft(p, &rule));
    m->rules[m->n_rules++] = rule;
done:
    return status;
}

static tow_status read_line(parser *p)
{
    tow_status status = TOW_OK;
    if (at_end(p)) return TOW_OK;
    TRY(accept_word(p, "prefix") ? read_prefix(p) : read_rule(p));
    if (!at_end(p)) return refuse(p, "expected end of line, found '%.*s'", FOUND(p));
done:
    return status;
}

static tow_status read_lines(tow_weight_mapping *m, const char *text)
{
    parser p = {.m = m, .at = text};
    tow_status status = TOW_OK;
    while (*text) {
        const size_t length = strcspn(text, "\n"), used = strcspn(text, "#\n");
        p.at = text;
        p.end = text + used;
        p.line++;
        TRY(read_line(&p));
        text += length + (text[length] == '\n');
    }
    if (m->n_rules == 0) return tow__fail(m->ctx, TOW_BAD_FORMAT, "%s: expected rules, found none", m->name);
done:
    return status;
}

tow_status tow_weight_mapping_parse(tow_context *context, const char *name, const char *text,
                                    tow_weight_mapping **mapping)
{
    if (mapping) *mapping = NULL;
    if (!context || !name || !text || !mapping)
        return tow__missing(context, __func__, "a context, a name, a text and a place for the mapping");
    tow_weight_mapping *m = tow__alloc(context, 1, sizeof *m);
    tow_status status = TOW_OK;
    if (!m) return TOW_OUT_OF_MEMORY;
    m->ctx = context;
    tow__arena_init(&m->memory, context);
    m->name = tow__arena_string(&m->memory, name);
    TRY(m->name ? TOW_OK : TOW_OUT_OF_MEMORY);
    TRY(read_lines(m, text));
    *mapping = m;
done:
    if (status != TOW_OK) tow_weight_mapping_free(m);
    return status;
}

void tow_weight_mapping_free(tow_weight_mapping *m)
{
    if (!m) return;
    if (m->rules) tow__free(m->ctx, m->rules, m->capacity, sizeof *m->rules);
    if (m->prefixes) tow__free(m->ctx, m->prefixes, m->prefixes_capacity, sizeof *m->prefixes);
    tow__arena_free(&m->memory);
    tow__free(m->ctx, m, 1, sizeof *m);
}

/* The regular expressions by which GPT-2 and its successors split a text into words, by hand: at every place the first
 * alternative that matches takes as much as it can.
 *
 *     GPT-2     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *     tiktoken  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
 *               ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *
 * There are variants of the second with other numbers of digits, and with \s*[\r\n], which matches what \s*[\r\n]+
 * does. */
#include "src/text/tokenizer.h"

static unsigned classes_at(const char *text, size_t at, size_t *next)
{
    uint32_t c;
    *next = at + (size_t)tow__utf8_get(text + at, &c);
    return tow__classes(c);
}

/* The end of the characters from `at` on that have one of the classes; none: that have none of them. */
static size_t skip(const char *text, size_t at, size_t end, unsigned classes, bool none)
{
    size_t next;
    for (; at < end; at = next)
        if (((classes_at(text, at, &next) & classes) != 0) == none) break;
    return at;
}

static bool is_newline(char c) { return c == '\n' || c == '\r'; }

/* A letter of a contraction in lower case; the long s is an s, too. */
static char folded(const char *text, size_t at, size_t end, bool any_case, size_t *length)
{
    *length = 1;
    if (any_case && end - at >= 2 && text[at] == '\xc5' && text[at + 1] == '\xbf') {
        *length = 2;
        return 's';
    }
    return any_case && text[at] >= 'A' && text[at] <= 'Z' ? (char)(text[at] + 32) : text[at];
}

/* The end of 's 't 're 've 'm 'll 'd, or `at`. */
static size_t contraction(const char *text, size_t at, size_t end, bool any_case)
{
    size_t first, second;
    if (text[at] != '\'' || end - at < 2) return at;
    const char a = folded(text, at + 1, end, any_case, &first);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 1 + first;
    if ((a != 'r' && a != 'v' && a != 'l') || end - at < 3) return at;
    const char b = folded(text, at + 2, end, any_case, &second);
    return b == (a == 'l' ? 'l' : 'e') ? at + 2 + second : at;
}

/* The end of white space that is followed by other text: all of it but its last character, if it has two. */
static size_t all_but_one(const char *text, size_t at, size_t end, size_t limit)
{
    if (end == limit) return end;
    size_t last = end - 1;
    while (tow__utf8_continues(text[last])) last--;
    return last > at ? last : end;
}

size_t tow__word_gpt2(const char *text, size_t at, size_t end)
{
    size_t next = contraction(text, at, end, false);
    if (next > at) return next;
    const size_t begin = text[at] == ' ' && at + 1 < end ? at + 1 : at;
    const unsigned classes = classes_at(text, begin, &next);
    if (classes & TOW__LETTER) return skip(text, next, end, TOW__LETTER, false);
    if (classes & TOW__NUMBER) return skip(text, next, end, TOW__NUMBER, false);
    if (!(classes & TOW__SPACE)) return skip(text, next, end, TOW__SPACE | TOW__LETTER | TOW__NUMBER, true);
    return all_but_one(text, at, skip(text, at, end, TOW__SPACE, false), end);
}

static size_t numbers(const char *text, size_t at, size_t end, int most)
{
    size_t next;
    for (int n = 0; at < end && n < most && (classes_at(text, at, &next) & TOW__NUMBER); n++) at = next;
    return at;
}

/* White space at `at`: up to and with its last newline, if it has one. */
static size_t spaces(const char *text, size_t at, size_t end)
{
    const size_t run = skip(text, at, end, TOW__SPACE, false);
    for (size_t i = run; i > at; i--)
        if (is_newline(text[i - 1])) return i;
    return all_but_one(text, at, run, end);
}

size_t tow__word_tiktoken(const tow__splitter *split, const char *text, size_t at, size_t end)
{
    size_t next = contraction(text, at, end, true), after;
    if (next > at) return next;
    const unsigned classes = classes_at(text, at, &next);
    if (classes & TOW__LETTER) return skip(text, next, end, TOW__LETTER, false);
    if (classes & TOW__NUMBER) return numbers(text, at, end, split->max_digits);
    if (!is_newline(text[at]) && next < end && (classes_at(text, next, &after) & TOW__LETTER))
        return skip(text, after, end, TOW__LETTER, false);
    const size_t begin = text[at] == ' ' && at + 1 < end ? at + 1 : at;
    if (!(classes_at(text, begin, &next) & (TOW__SPACE | TOW__LETTER | TOW__NUMBER))) {
        next = skip(text, next, end, TOW__SPACE | TOW__LETTER | TOW__NUMBER, true);
        while (next < end && is_newline(text[next])) next++;
        return next;
    }
    return spaces(text, at, end);
}

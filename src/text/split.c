/* Splitting a text into words. Steps either say where words are, or find matches, of which a behavior makes words. */
#include "src/text/tokenizer.h"

/* The next match at or behind `at` in a word that begins at `begin`; false if there is none. */
typedef bool (*matcher)(const tow__splitter *split, const char *text, size_t begin, size_t at, size_t end,
                        tow__text_range *match);

/* ---- matches ----------------------------------------------------------------------------------------------------- */

static bool match_classes(const char *text, size_t at, size_t end, unsigned classes, bool many, tow__text_range *match)
{
    size_t next;
    for (; at < end; at = next) {
        uint32_t c;
        next = at + (size_t)tow__utf8_get(text + at, &c);
        if (!(tow__classes(c) & classes)) continue;
        match->begin = (uint32_t)at;
        while (many && next < end) {
            const int length = tow__utf8_get(text + next, &c);
            if (!(tow__classes(c) & classes)) break;
            next += (size_t)length;
        }
        match->end = (uint32_t)next;
        return true;
    }
    return false;
}

static bool match_string(const tow__splitter *split, const char *text, size_t begin, size_t at, size_t end,
                         tow__text_range *match)
{
    (void)begin;
    const size_t length = strlen(split->pattern);
    for (; length > 0 && end - at >= length; at++)
        if (memcmp(text + at, split->pattern, length) == 0) {
            *match = (tow__text_range){(uint32_t)at, (uint32_t)(at + length)};
            return true;
        }
    return false;
}

static bool match_regex(const tow__splitter *split, const char *text, size_t begin, size_t at, size_t end,
                        tow__text_range *match)
{
    size_t first, last;
    if (!tow__regex_find(split->regex, text, begin, at, end, &first, &last)) return false;
    *match = (tow__text_range){(uint32_t)first, (uint32_t)last};
    return true;
}

static bool match_digits(const tow__splitter *split, const char *text, size_t begin, size_t at, size_t end,
                         tow__text_range *match)
{
    (void)begin;
    return match_classes(text, at, end, TOW__NUMBER, !split->each, match);
}

static bool match_punctuation(const tow__splitter *split, const char *text, size_t begin, size_t at, size_t end,
                              tow__text_range *match)
{
    (void)begin;
    (void)split;
    return match_classes(text, at, end, TOW__PUNCTUATION, false, match);
}

/* ---- behaviors -------------------------------------------------------------------------------------------------- */

/* Joins a match with its neighbors, or not. `open` is the word that is not written yet. */
static void take_match(tow__behavior behavior, tow__text_range match, tow__ranges *to, tow__text_range *open,
                       bool *after_match)
{
    const bool joins = open->begin < open->end && (behavior == TOW__MERGED_WITH_PREVIOUS ? !*after_match
                                                   : behavior == TOW__CONTIGUOUS         ? *after_match
                                                                                         : false);
    if (joins) {
        open->end = match.end;
    } else {
        tow__ranges_add(to, open->begin, open->end);
        *open = behavior == TOW__REMOVED ? (tow__text_range){match.end, match.end} : match;
    }
    *after_match = true;
}

static void take(const tow__splitter *split, tow__text_range match, tow__ranges *to, tow__text_range *open,
                 bool *after_match)
{
    if (match.begin < match.end) take_match(split->behavior, match, to, open, after_match);
}

static void take_rest(tow__behavior behavior, tow__text_range rest, tow__ranges *to, tow__text_range *open,
                      bool *after_match)
{
    if (rest.begin >= rest.end) return;
    const bool joins = behavior == TOW__MERGED_WITH_NEXT ? *after_match : behavior == TOW__CONTIGUOUS && !*after_match;
    if (joins && open->begin < open->end) {
        open->end = rest.end;
    } else {
        tow__ranges_add(to, open->begin, open->end);
        *open = rest;
    }
    *after_match = false;
}

static void split_matches(const tow__splitter *split, matcher find, const char *text, tow__text_range word,
                          tow__ranges *to)
{
    tow__text_range open = {word.begin, word.begin}, match;
    bool after_match = false;
    size_t at = word.begin;
    while (at < word.end && find(split, text, word.begin, at, word.end, &match)) {
        const tow__text_range rest = {(uint32_t)at, match.begin};
        take(split, split->invert ? rest : (tow__text_range){0}, to, &open, &after_match);
        take_rest(split->behavior, split->invert ? match : rest, to, &open, &after_match);
        take(split, split->invert ? (tow__text_range){0} : match, to, &open, &after_match);
        at = match.end;
    }
    const tow__text_range rest = {(uint32_t)at, word.end};
    take(split, split->invert ? rest : (tow__text_range){0}, to, &open, &after_match);
    take_rest(split->behavior, split->invert ? (tow__text_range){0} : rest, to, &open, &after_match);
    tow__ranges_add(to, open.begin, open.end);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* \w+|[^\w\s]+ */
static void split_words(const char *text, tow__text_range word, tow__ranges *to)
{
    size_t begin = word.begin, next;
    unsigned before = TOW__SPACE;
    for (size_t at = word.begin; at < word.end; at = next) {
        uint32_t c;
        next = at + (size_t)tow__utf8_get(text + at, &c);
        unsigned kind = tow__classes(c) & TOW__WORD;
        if (!kind) kind = tow__classes(c) & TOW__SPACE;
        if (kind != before) {
            if (before != TOW__SPACE) tow__ranges_add(to, begin, at);
            begin = at;
        }
        before = kind;
    }
    if (before != TOW__SPACE) tow__ranges_add(to, begin, word.end);
}

/* Words between white space, of BERT also every character of punctuation. */
static void split_spaces(const char *text, tow__text_range word, bool punctuation, tow__ranges *to)
{
    size_t begin = word.begin, next;
    for (size_t at = word.begin; at < word.end; at = next) {
        uint32_t c;
        next = at + (size_t)tow__utf8_get(text + at, &c);
        const unsigned classes = tow__classes(c);
        const bool alone = punctuation && (classes & TOW__PUNCTUATION);
        if (!alone && !(classes & TOW__SPACE)) continue;
        tow__ranges_add(to, begin, at);
        if (alone) tow__ranges_add(to, at, next);
        begin = next;
    }
    tow__ranges_add(to, begin, word.end);
}

static void split_word(const tow__splitter *split, const char *text, tow__text_range word, tow__ranges *to)
{
    switch (split->kind) {
    case TOW__SPLIT_GPT2:
        for (size_t at = word.begin, end; at < word.end; at = end) {
            end = tow__word_gpt2(text, at, word.end);
            tow__ranges_add(to, at, end);
        }
        break;
    case TOW__SPLIT_TIKTOKEN:
        for (size_t at = word.begin, end; at < word.end; at = end) {
            end = tow__word_tiktoken(split, text, at, word.end);
            tow__ranges_add(to, at, end);
        }
        break;
    case TOW__SPLIT_ADD_SPACE:
        break;
    case TOW__SPLIT_METASPACE:
    case TOW__SPLIT_STRING:
        split_matches(split, match_string, text, word, to);
        break;
    case TOW__SPLIT_REGEX:
        split_matches(split, match_regex, text, word, to);
        break;
    case TOW__SPLIT_DIGITS:
        split_matches(split, match_digits, text, word, to);
        break;
    case TOW__SPLIT_PUNCTUATION:
        split_matches(split, match_punctuation, text, word, to);
        break;
    case TOW__SPLIT_BERT:
        split_spaces(text, word, true, to);
        break;
    case TOW__SPLIT_SPACES:
        split_spaces(text, word, false, to);
        break;
    case TOW__SPLIT_WORDS:
        split_words(text, word, to);
        break;
    }
}

void tow__split_words(const tow__splitter *split, const tow__text *text, const tow__ranges *from, tow__ranges *to)
{
    to->count = 0;
    if (split->regex) tow__regex_allow(split->regex, text->length);
    for (size_t i = 0; i < from->count; i++) split_word(split, text->bytes, from->items[i], to);
}

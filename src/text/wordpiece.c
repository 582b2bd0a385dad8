/* WordPiece: the longest token that the word begins with, then the longest one with the prefix that the rest begins
 * with, and so on; a word of which a rest has no token is unknown as a whole. */
#include "src/text/tokenizer.h"

static size_t count_characters(const char *word, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) n += !tow__utf8_continues(word[i]);
    return n;
}

/* The longest token at `at`, or TOW__NO_ID. The buffer has the prefix and the word. */
static int32_t longest(const tow__wordpiece *w, const tow__vocabulary *v, const char *word, size_t length, size_t at,
                       size_t *end)
{
    const size_t prefix = at > 0 ? strlen(w->prefix) : 0;
    size_t stop = length;
    if (prefix > v->longest) return TOW__NO_ID;
    if (stop - at > v->longest - prefix) stop = at + (v->longest - prefix);
    memcpy(w->buffer, w->prefix, prefix);
    memcpy(w->buffer + prefix, word + at, stop - at);
    for (*end = stop; *end > at; --*end) {
        if (*end < length && tow__utf8_continues(word[*end])) continue;
        const int32_t id = tow__vocabulary_find_model(v, w->buffer, prefix + (*end - at));
        if (id != TOW__NO_ID) return id;
    }
    return TOW__NO_ID;
}

void tow__wordpiece_word(tow__wordpiece *w, const tow__vocabulary *v, const char *word, size_t length,
                         tow__pieces *pieces)
{
    const size_t first = pieces->count;
    const bool too_long = length > w->max_characters && count_characters(word, length) > w->max_characters;
    for (size_t at = 0, end; at < length; at = end) {
        const int32_t id = too_long ? TOW__NO_ID : longest(w, v, word, length, at, &end);
        if (id == TOW__NO_ID) {
            pieces->count = first < pieces->count ? first : pieces->count;
            tow__pieces_add(pieces, w->unk, 0, length);
            return;
        }
        tow__pieces_add(pieces, id, at, end);
    }
}

/* The knowledge of Unicode that tokenizers need: UTF-8, classes of characters, lower case, decomposition and
 * composition. */
#ifndef TOW_SRC_TEXT_UNICODE_H
#define TOW_SRC_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Classes of a code point, or'ed. Space, letter, number and word are those of regular expressions; the others those
 * that BERT's normalizer and splitter have. */
enum {
    TOW__LETTER = 1 << 0,
    TOW__NUMBER = 1 << 1,
    TOW__SPACE = 1 << 2,
    TOW__WORD = 1 << 3,
    TOW__CONTROL = 1 << 4, /* removed by cleaning */
    TOW__BLANK = 1 << 5,   /* a space after cleaning */
    TOW__PUNCTUATION = 1 << 6,
    TOW__CHINESE = 1 << 7,
    TOW__ACCENT = 1 << 8, /* removed from decomposed text by BERT */
    TOW__MARK = 1 << 9    /* removed by StripAccents */
};
unsigned tow__classes_of(uint32_t c);
extern const uint16_t tow__ascii_classes[128];
static inline unsigned tow__classes(uint32_t c) { return c < 128 ? tow__ascii_classes[c] : tow__classes_of(c); }

/* One code point, or of U+0130 the first of two, 'i' before U+0307. */
uint32_t tow__lower_case(uint32_t c);

/* The end of the extended grapheme cluster (Unicode Standard Annex 29) that begins at text[at]; at < end. */
size_t tow__grapheme_end(const char *text, size_t at, size_t end);
uint8_t tow__grapheme_class(uint32_t c);

enum {
    TOW__MOST_DECOMPOSED = 18
};
/* The canonical decomposition as a whole, 1 to 4 code points, or that for compatibility, up to 18. */
int tow__decompose_character(uint32_t c, bool compatible, uint32_t parts[TOW__MOST_DECOMPOSED]);
/* The canonical combining class. */
int tow__combining_class(uint32_t c);
/* The composition of two code points, or 0. */
uint32_t tow__compose_characters(uint32_t first, uint32_t second);

/* The code point at `text`, which is valid UTF-8. Returns how many bytes it has. */
static inline int tow__utf8_get(const char *text, uint32_t *c)
{
    const unsigned char *b = (const unsigned char *)text;
    if (b[0] < 0x80) {
        *c = b[0];
        return 1;
    }
    if (b[0] < 0xe0) {
        *c = (uint32_t)(b[0] & 0x1f) << 6 | (b[1] & 0x3f);
        return 2;
    }
    if (b[0] < 0xf0) {
        *c = (uint32_t)(b[0] & 0x0f) << 12 | (uint32_t)(b[1] & 0x3f) << 6 | (b[2] & 0x3f);
        return 3;
    }
    *c = (uint32_t)(b[0] & 0x07) << 18 | (uint32_t)(b[1] & 0x3f) << 12 | (uint32_t)(b[2] & 0x3f) << 6 | (b[3] & 0x3f);
    return 4;
}
/* Returns how many bytes were put. */
int tow__utf8_put(uint32_t c, char bytes[4]);
static inline bool tow__utf8_continues(char byte) { return ((unsigned char)byte & 0xc0) == 0x80; }
/* Bytes of the valid character at text[0..left), or 0; then *broken is how many bytes stand for one U+FFFD. */
int tow__utf8_check(const char *text, size_t left, int *broken);

#endif

/* Tables of Unicode as runs of code points; scripts/unicode_tables.py prints them. */
#include "src/text/unicode.h"

#include "src/text/unicode_tables.inc"

#define COUNT(array) (sizeof(array) / sizeof *(array))
enum {
    HANGUL = 0xac00,
    HANGUL_END = 0xd7a4,
    LEADING = 0x1100,
    VOWEL = 0x1161,
    TRAILING = 0x11a7,
    N_LEADING = 19,
    N_VOWELS = 21,
    N_TRAILING = 28
};

/* ---- classes ----------------------------------------------------------------------------------------------------- */

unsigned tow__classes_of(uint32_t c)
{
    size_t low = 0, high = COUNT(class_runs);
    const uint32_t block = c >> 8;
    if (block < COUNT(class_index)) {
        low = class_index[block];
        if (block + 1 < COUNT(class_index)) high = class_index[block + 1] + 1u;
    }
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (class_runs[middle] >> 12 <= c)
            low = middle;
        else
            high = middle;
    }
    return (unsigned)(class_runs[low] & 0xfff);
}

/* ---- letters ----------------------------------------------------------------------------------------------------- */

uint32_t tow__lower_case(uint32_t c)
{
    size_t low = 0, high = COUNT(lower_runs);
    if (c < 128) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    if (c == 0x130) return 'i';
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (lower_runs[middle].last < c)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == COUNT(lower_runs) || lower_runs[low].first > c) return c;
    if ((c - lower_runs[low].first) % (uint32_t)lower_runs[low].step != 0) return c;
    return (uint32_t)((int32_t)c + lower_runs[low].difference);
}

/* Entries are code << 20 | begin << 5 | count, of parts in the pool. */
static int find_parts(const uint64_t *entries, size_t n, const uint32_t *pool, uint32_t c, uint32_t *parts)
{
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (entries[middle] >> 20 < c)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == n || entries[low] >> 20 != c) return 0;
    const int count = (int)(entries[low] & 31);
    for (int i = 0; i < count; i++) parts[i] = pool[(entries[low] >> 5 & 0x7fff) + (size_t)i];
    return count;
}

int tow__decompose_character(uint32_t c, bool compatible, uint32_t parts[TOW__MOST_DECOMPOSED])
{
    int n = 0;
    parts[0] = c;
    if (c < 0xa0) return 1;
    if (c >= HANGUL && c < HANGUL_END) {
        const uint32_t s = c - HANGUL, trailing = s % N_TRAILING;
        parts[0] = LEADING + s / (N_VOWELS * N_TRAILING);
        parts[1] = VOWEL + s / N_TRAILING % N_VOWELS;
        parts[2] = TRAILING + trailing;
        return trailing > 0 ? 3 : 2;
    }
    if (compatible) n = find_parts(compatible_decompositions, COUNT(compatible_decompositions), decomposed, c, parts);
    if (n == 0) n = find_parts(decompositions, COUNT(decompositions), decomposed, c, parts);
    return n > 0 ? n : 1;
}

int tow__combining_class(uint32_t c)
{
    size_t low = 0, high = COUNT(combining_runs);
    if (c < 0x300) return 0;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (combining_runs[middle] >> 8 <= c)
            low = middle;
        else
            high = middle;
    }
    return (int)(combining_runs[low] & 0xff);
}

uint8_t tow__grapheme_class(uint32_t c)
{
    size_t low = 0, high = COUNT(grapheme_runs);
    if (c >= 0x20 && c < 0x7f) return 0;
    if (c >= HANGUL && c < HANGUL_END) return (c - HANGUL) % N_TRAILING == 0 ? 11 : 12; /* LV, LVT */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (grapheme_runs[middle] >> 8 <= c)
            low = middle;
        else
            high = middle;
    }
    return (uint8_t)(grapheme_runs[low] & 0xff);
}

uint32_t tow__compose_characters(uint32_t first, uint32_t second)
{
    size_t low = 0, high = COUNT(compositions);
    if (first >= LEADING && first < LEADING + N_LEADING && second >= VOWEL && second < VOWEL + N_VOWELS)
        return HANGUL + ((first - LEADING) * N_VOWELS + (second - VOWEL)) * N_TRAILING;
    if (first >= HANGUL && first < HANGUL_END && (first - HANGUL) % N_TRAILING == 0 && second > TRAILING &&
        second < TRAILING + N_TRAILING)
        return first + (second - TRAILING);
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const uint32_t *pair = compositions[middle];
        if (pair[0] < first || (pair[0] == first && pair[1] < second))
            low = middle + 1;
        else
            high = middle;
    }
    return low < COUNT(compositions) && compositions[low][0] == first && compositions[low][1] == second
               ? compositions[low][2]
               : 0;
}

/* ---- UTF-8 ------------------------------------------------------------------------------------------------------- */

int tow__utf8_put(uint32_t c, char bytes[4])
{
    if (c < 0x80) {
        bytes[0] = (char)c;
        return 1;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    bytes[0] = (char)(first[more] | c >> (6 * more));
    for (int i = 1; i <= more; i++) bytes[i] = (char)(0x80 | (c >> (6 * (more - i)) & 0x3f));
    return more + 1;
}

int tow__utf8_check(const char *text, size_t left, int *broken)
{
    const unsigned char *b = (const unsigned char *)text;
    const int length = b[0] < 0x80                   ? 1
                       : b[0] >= 0xc2 && b[0] < 0xe0 ? 2
                       : (b[0] & 0xf0) == 0xe0       ? 3
                       : b[0] >= 0xf0 && b[0] < 0xf5 ? 4
                                                     : 0;
    *broken = 1;
    if (length <= 1) return length;
    const unsigned char low = b[0] == 0xe0 ? 0xa0 : b[0] == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = b[0] == 0xed ? 0x9f : b[0] == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i < length; i++, ++*broken)
        if ((size_t)i >= left || b[i] < (i == 1 ? low : 0x80) || b[i] > (i == 1 ? high : 0xbf)) return 0;
    return length;
}

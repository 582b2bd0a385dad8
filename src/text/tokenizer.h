/* The parts of a tokenizer, in the order in which a text goes through them: added tokens are cut out, what is between
 * them is normalized, split into words, and cut into tokens by the model; then tokens are put around all. */
#ifndef TOW_SRC_TEXT_TOKENIZER_H
#define TOW_SRC_TEXT_TOKENIZER_H

#include "src/base/base.h"
#include "src/text/regex.h"
#include "src/text/unicode.h"
#include "tow/tokenizer.h"

enum {
    TOW__NO_ID = -1,
    TOW__MAX_STEPS = 16 /* of normalizers, splitters, decoders and templates */
};

/* ---- texts (text.c) ---------------------------------------------------------------------------------------------- */

typedef struct tow__source_span {
    uint32_t begin, end;
} tow__source_span;

/* A text, and of each byte which bytes of the original it comes from. */
typedef struct tow__text {
    tow_context *ctx;
    char *bytes;
    tow__source_span *spans;
    size_t length, capacity;
    uint32_t origin; /* where its part of the original begins */
    bool failed;     /* memory was missing */
} tow__text;

void tow__text_init(tow__text *text, tow_context *ctx);
void tow__text_free(tow__text *text);
bool tow__text_reserve(tow__text *text, size_t capacity);
void tow__text_add(tow__text *text, const char *bytes, size_t length, tow__source_span span);
/* Adds a part of another text, with its places. */
void tow__text_copy(tow__text *text, const tow__text *from, size_t begin, size_t end);
void tow__text_add_char(tow__text *text, uint32_t c, tow__source_span span);
/* Adds a piece of an original text, character by character. */
void tow__text_add_original(tow__text *text, const char *original, size_t begin, size_t end);

/* Writes a text from another one, character by character, with the places that the new characters come from. */
typedef struct tow__changer {
    const tow__text *from;
    tow__text *to;
    size_t at; /* bytes of `from` that are replaced or removed */
} tow__changer;

void tow__changer_init(tow__changer *changer, const tow__text *from, tow__text *to);
/* The next character. It is an addition if change > 0, with the place of what is before it. Otherwise it takes the
 * place of the next character of `from`, behind which -change more are removed. */
void tow__changer_put(tow__changer *changer, uint32_t c, int64_t change);

/* ---- vocabulary (vocabulary.c) ----------------------------------------------------------------------------------- */

typedef struct tow__entry {
    const char *token; /* NULL: no token has this id */
    uint32_t length;
    bool model; /* a token of the model; others are only found as added tokens */
    bool added, special;
    /* what takes the token's place in decoded text: an added token as normalization makes it, "" of one that is not
     * used; NULL: none */
    const char *decoded;
} tow__entry;

/* Tokens by id, and ids by token. */
typedef struct tow__vocabulary {
    tow_context *ctx;
    tow__arena strings;
    tow__entry *entries;
    int32_t count;   /* one more than the largest id */
    size_t capacity; /* of entries */
    uint32_t *slots; /* id + 1; 0: empty */
    size_t n_slots, n_tokens;
    uint32_t longest;
} tow__vocabulary;

void tow__vocabulary_init(tow__vocabulary *v, tow_context *ctx);
void tow__vocabulary_free(tow__vocabulary *v);
tow_status tow__vocabulary_add(tow__vocabulary *v, const char *token, size_t length, int32_t id);
int32_t tow__vocabulary_find(const tow__vocabulary *v, const char *token, size_t length);
/* The same for models, which do not see added tokens that are not theirs. */
int32_t tow__vocabulary_find_model(const tow__vocabulary *v, const char *token, size_t length);

/* ---- tries (trie.c) ---------------------------------------------------------------------------------------------- */

typedef struct tow__trie_key {
    const char *text;
    uint32_t length;
    int32_t value; /* at least 0 */
} tow__trie_key;

typedef struct tow__trie {
    tow_context *ctx;
    size_t count;       /* of nodes; node 0 is the root */
    uint32_t *children; /* [count + 1] of node i: nodes children[i] to children[i + 1] */
    uint8_t *labels;    /* [count] the last byte of a node */
    int32_t *values;    /* [count] TOW__NO_ID: no key ends here */
} tow__trie;

/* Sorts the keys. Of equal ones that with the smallest value counts. reversed: of their bytes from the last to the
 * first. */
tow_status tow__trie_build(tow_context *ctx, size_t count, tow__trie_key *keys, bool reversed, tow__trie *trie);
void tow__trie_free(tow__trie *trie);
/* The child with that label, or 0. */
uint32_t tow__trie_child(const tow__trie *trie, uint32_t node, unsigned char label);

/* ---- normalization (normalize.c) --------------------------------------------------------------------------------- */

typedef enum tow__normal_kind {
    TOW__NFC,
    TOW__NFD,
    TOW__NFKC,
    TOW__NFKD,
    TOW__PRECOMPILED,
    TOW__LOWERCASE,
    TOW__STRIP_ACCENTS,
    TOW__BERT_NORMAL,
    TOW__PREPEND,
    TOW__REPLACE,
    TOW__STRIP
} tow__normal_kind;

typedef struct tow__normal {
    tow__normal_kind kind;
    bool clean, chinese, accents, lower; /* of TOW__BERT_NORMAL */
    bool left, right;                    /* of TOW__STRIP */
    const char *from, *to;               /* of TOW__REPLACE; `to` of TOW__PREPEND */
    tow__regex *regex;                   /* of TOW__REPLACE, in place of `from`; NULL: none */
    const struct tow__charsmap *map;     /* of TOW__PRECOMPILED */
} tow__normal;

/* A map of characters as SentencePiece compiles it (charsmap.c): a trie over bytes, as a double array, and texts that
 * end with zero bytes. */
typedef struct tow__charsmap {
    const unsigned char *units; /* [4 n_units], little-endian */
    size_t n_units;
    const char *texts;
    size_t length, longest; /* longest: of one text */
} tow__charsmap;

/* Reads a map in base 64. Returns what was expected if it is none, else NULL; then *map is NULL if memory is missing.
 * */
const char *tow__charsmap_read(tow__arena *memory, const char *base64, const tow__charsmap **map);

void tow__charsmap_apply(const tow__charsmap *map, const tow__text *from, tow__text *to);
/* A normal form of Unicode (normal_forms.c). */
void tow__normal_form(const tow__text *from, bool composed, bool compatible, tow__text *to);
/* Takes `text` through all steps; `other` is a place to work. */
void tow__normalize_text(const tow__normal *steps, int n, tow__text *text, tow__text *other);
/* Returns what became of it: TOW_OK, or a lack of memory, or a regular expression that took too many steps. */
tow_status tow__normalize_status(const tow__normal *steps, int n, const tow__text *text);

/* ---- splitting (split.c, words.c) -------------------------------------------------------------------------------- */

typedef enum tow__split_kind {
    TOW__SPLIT_GPT2,
    TOW__SPLIT_TIKTOKEN,
    TOW__SPLIT_STRING,
    TOW__SPLIT_REGEX,
    TOW__SPLIT_BERT,
    TOW__SPLIT_WORDS,
    TOW__SPLIT_SPACES,
    TOW__SPLIT_DIGITS,
    TOW__SPLIT_PUNCTUATION,
    TOW__SPLIT_METASPACE, /* words are written anew first, with the replacement for spaces */
    TOW__SPLIT_ADD_SPACE  /* words are written anew, behind a space */
} tow__split_kind;

typedef enum tow__behavior {
    TOW__ISOLATED,
    TOW__REMOVED,
    TOW__MERGED_WITH_PREVIOUS,
    TOW__MERGED_WITH_NEXT,
    TOW__CONTIGUOUS
} tow__behavior;

typedef enum tow__prepend_scheme {
    TOW__PREPEND_ALWAYS,
    TOW__PREPEND_FIRST,
    TOW__PREPEND_NEVER
} tow__prepend_scheme;

typedef struct tow__splitter {
    tow__split_kind kind;
    tow__behavior behavior;
    const char *pattern; /* of TOW__SPLIT_STRING, and the replacement of TOW__SPLIT_METASPACE */
    tow__regex *regex;   /* of TOW__SPLIT_REGEX */
    bool invert;         /* of these two: what is between matches is a match */
    int max_digits;      /* of TOW__SPLIT_TIKTOKEN, numbers in one word */
    bool each;           /* of TOW__SPLIT_DIGITS: every digit is a word */
    bool splits;         /* of TOW__SPLIT_METASPACE */
    tow__prepend_scheme prepend;
} tow__splitter;

/* Words as ranges of a text. */
typedef struct tow__text_range {
    uint32_t begin, end;
} tow__text_range;
typedef struct tow__ranges {
    tow_context *ctx;
    tow__text_range *items;
    size_t count, capacity;
    bool failed;
} tow__ranges;

void tow__ranges_add(tow__ranges *ranges, size_t begin, size_t end);
void tow__ranges_free(tow__ranges *ranges);
/* Splits all of `from`, whose words these become, by one step. */
void tow__split_words(const tow__splitter *split, const tow__text *text, const tow__ranges *from, tow__ranges *to);
/* The end of the word of GPT-2's, or of tiktoken's, regular expression that begins at text[at]; at < end. */
size_t tow__word_gpt2(const char *text, size_t at, size_t end);
size_t tow__word_tiktoken(const tow__splitter *split, const char *text, size_t at, size_t end);

/* ---- models (bpe.c, wordpiece.c, wordlevel.c, unigram.c) --------------------------------------------------------- */

/* A token of a word: id, and bytes of the word that it stands for. */
typedef struct tow__piece {
    int32_t id;
    uint32_t begin, end;
} tow__piece;
typedef struct tow__pieces {
    tow_context *ctx;
    tow__piece *items;
    size_t count, capacity;
    bool failed;
    bool unknown; /* of a part of the word there is no token, and no unknown one */
} tow__pieces;
void tow__pieces_add(tow__pieces *pieces, int32_t id, size_t begin, size_t end);
void tow__pieces_free(tow__pieces *pieces);

typedef struct tow__merge {
    uint32_t rank; /* UINT32_MAX: no merge */
    int32_t id;
} tow__merge;

typedef struct tow__bpe {
    uint64_t *keys; /* left << 32 | right; [n_slots], open addressing, UINT64_MAX: empty */
    tow__merge *merges;
    size_t n_slots;
    int32_t unk, bytes[256]; /* ids of <0x00> and so on, or of the characters that stand for bytes; TOW__NO_ID: none */
    bool byte_level, fuse_unk, byte_fallback, ignore_merges;
    const char *prefix, *suffix; /* of characters inside and at the end of a word; "": none */
    struct tow__symbol *symbols;
    size_t n_symbols; /* capacity */
    struct tow__merge_candidate *queue;
    size_t n_queue; /* capacity */
} tow__bpe;

typedef struct tow__wordpiece {
    int32_t unk;
    size_t max_characters;
    const char *prefix;
    char *buffer; /* the prefix and the longest word that has tokens */
    size_t buffer_size;
} tow__wordpiece;

struct tow__unigram_node;
typedef struct tow__unigram {
    tow__trie trie; /* of all tokens */
    double *scores, smallest;
    size_t n_scores;
    int32_t unk, bytes[256];
    bool byte_fallback;
    struct tow__unigram_node *nodes; /* to work in */
    size_t n_nodes;                  /* capacity */
} tow__unigram;

tow_status tow__bpe_create(tow_context *ctx, size_t n_merges, tow__bpe *bpe);
void tow__bpe_free(tow_context *ctx, tow__bpe *bpe);
/* A later merge of the same pair takes the place of an earlier one. */
void tow__bpe_add(tow__bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t id);
void tow__bpe_word(tow__bpe *bpe, const tow__vocabulary *v, const char *word, size_t length, tow__pieces *pieces);
void tow__wordpiece_word(tow__wordpiece *w, const tow__vocabulary *v, const char *word, size_t length,
                         tow__pieces *pieces);
void tow__wordlevel_word(int32_t unk, const tow__vocabulary *v, const char *word, size_t length, tow__pieces *pieces);
void tow__unigram_free(tow_context *ctx, tow__unigram *unigram);
void tow__unigram_word(tow__unigram *u, const tow__vocabulary *v, const char *word, size_t length, tow__pieces *pieces);
/* The character that stands for a byte in byte-level tokens, as a code point; and the byte, or -1. */
uint32_t tow__byte_character(unsigned char byte);
int tow__character_byte(uint32_t c);

/* ---- the tokenizer ----------------------------------------------------------------------------------------------- */

typedef struct tow__added {
    const char *content; /* normalized if `normalized` */
    size_t length;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized;
} tow__added;

/* The place where an added token begins, and its number. */
typedef struct tow__added_place {
    uint32_t at, item;
} tow__added_place;

/* Added tokens and the automaton that finds them. */
typedef struct tow__added_set {
    tow_context *ctx;
    tow__added *items;
    size_t count, capacity;
    tow__trie trie; /* of the reversed tokens; its values are the longest tokens that end there, as indices of items */
    uint32_t *fallback;      /* [trie.count] */
    bool ends[256];          /* bytes that are the last one of a token */
    tow__added_place *found; /* to work in */
    size_t n_found;          /* capacity */
    size_t steps;            /* of the automaton so far: at most two for each byte */
} tow__added_set;

/* A step of a template: the first or second text, or a token. */
typedef struct tow__template_step {
    int sequence; /* 0, 1; or -1: ids */
    int32_t type;
    int32_t n_ids, ids[4];
} tow__template_step;
typedef struct tow__template {
    int n;
    tow__template_step steps[TOW__MAX_STEPS];
} tow__template;

typedef enum tow__decode_kind {
    TOW__DECODE_BYTE_LEVEL,
    TOW__DECODE_WORDPIECE,
    TOW__DECODE_METASPACE,
    TOW__DECODE_REPLACE,
    TOW__DECODE_BYTE_FALLBACK,
    TOW__DECODE_FUSE,
    TOW__DECODE_STRIP
} tow__decode_kind;
typedef struct tow__text_decoder {
    tow__decode_kind kind;
    const char *from, *to; /* from: also the prefix, the replacement, and what is stripped */
    tow__regex *regex;     /* of TOW__DECODE_REPLACE, in place of `from`; NULL: none */
    bool cleanup;
    int64_t start, stop;
    tow__prepend_scheme prepend;
} tow__text_decoder;

typedef enum tow__model_kind {
    TOW__BPE,
    TOW__WORDPIECE,
    TOW__WORDLEVEL,
    TOW__UNIGRAM
} tow__model_kind;

enum {
    TOW__CACHE_SIZE = 1 << 13,
    TOW__CACHE_WORD = 24, /* bytes of words that are remembered, and */
    TOW__CACHE_PIECES = 7 /* tokens of them */
};
typedef struct tow__cached {
    uint64_t hash;
    uint8_t length, count, begins[TOW__CACHE_PIECES], ends[TOW__CACHE_PIECES]; /* length 0: nothing */
    char word[TOW__CACHE_WORD];
    int32_t ids[TOW__CACHE_PIECES];
} tow__cached;

struct tow_tokenizer {
    tow_context *ctx;
    tow__arena memory; /* of what does not change */
    tow__vocabulary vocabulary;
    tow__added_set raw, normalized; /* cut out before and after normalization */
    int n_normals, n_splits, n_decoders;
    tow__normal normals[TOW__MAX_STEPS];
    tow__splitter splits[TOW__MAX_STEPS];
    bool byte_level; /* words are bytes */
    tow__model_kind model;
    tow__bpe bpe;
    tow__wordpiece wordpiece;
    tow__unigram unigram;
    int32_t wordlevel_unk;
    bool has_template;
    tow__template single, pair;
    tow_encode_options options;            /* truncation and padding of the file */
    bool trim_offsets, trims_prefix_space; /* spaces are not in the offsets of tokens, but for one that was added */
    tow__text_decoder decoders[TOW__MAX_STEPS];
    /* to work in */
    tow__text text, other, third;
    tow__ranges words, more_words;
    tow__pieces pieces;
    tow__cached *cache;
};

/* Characters of white space at the ends of a token, as normalization made it. */
typedef struct tow__margins {
    uint32_t leading, trailing;
} tow__margins;

struct tow_encoding {
    tow_context *ctx;
    tow_token *tokens;
    int32_t *ids;
    tow__margins *margins;
    size_t count, capacity;
};

/* Cuts a text at added tokens: calls `visit` with what is between them (id TOW__NO_ID) and with them, in order. */
typedef tow_status (*tow__added_visitor)(void *user, size_t begin, size_t end, int32_t id);
tow_status tow__added_split(tow__added_set *set, const char *text, size_t length, tow__added_visitor visit, void *user);
tow_status tow__added_push(tow_context *ctx, tow__added_set *set, tow__added added);
/* Makes the automaton, when all are there. */
tow_status tow__added_finish(tow_context *ctx, tow__added_set *set);
void tow__added_free(tow__added_set *set);
/* Adds a token to an encoding. margins: of tokens whose offsets may be trimmed; NULL: none. */
tow_status tow__encoding_push(tow_encoding *encoding, tow_token token, const tow__margins *margins);
/* Adds the tokens of a text, with nothing around them. */
tow_status tow__encode_text(tow_tokenizer *t, const char *text, size_t length, tow_encoding *encoding);
/* Leaves spaces at the ends of a text's tokens, which are those of the encoding from `first` on, out of their offsets,
 * if the file says so. */
void tow__trim_offsets(const tow_tokenizer *t, const char *text, tow_encoding *encoding, size_t first);

#endif

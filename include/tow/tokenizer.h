/* Tokenizers: text to token ids and back, read from the files of models that others trained.
 *
 * Byte-pair encoding (on bytes as GPT-2 and Llama 3, or on characters with a fallback to bytes as Llama 2), Unigram
 * (T5, ALBERT, XLM-R), WordPiece (BERT) and WordLevel, with what tokenizer.json says of normalization, splitting into
 * words, added tokens and special tokens around a text. Ids and offsets are those of Hugging Face's package
 * `tokenizers`, as far as the parts that a file names are known here (docs/tokenizers.md has the list); a file with
 * others is refused (TOW_UNSUPPORTED) with their names.
 *
 *     tow_tokenizer *tokenizer;
 *     tow_encoding *encoding;
 *     tow_tokenizer_read(context, "gpt2", &tokenizer);              // a directory, or tokenizer.json, or vocab.txt
 *     tow_encoding_create(context, &encoding);
 *     tow_tokenizer_encode(tokenizer, text, length, NULL, encoding);
 *     const int32_t *ids = tow_encoding_ids(encoding);              // tow_encoding_count(encoding) of them
 *
 * A tokenizer and its context belong to one thread at a time: it remembers how it cut words that came before. */
#ifndef TOW_TOKENIZER_H
#define TOW_TOKENIZER_H

#include "tow/io.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tow_tokenizer tow_tokenizer;

/* Reads tokenizer.json; a directory with that file, or with vocab.json and merges.txt (as GPT-2's), or with vocab.txt
 * (as BERT's, lower case unless the directory has a tokenizer_config.json that says otherwise); or one of these files,
 * or a GGUF file.
 * Errors: TOW_IO_ERROR, TOW_BAD_FORMAT with path and place, TOW_UNSUPPORTED with the name of the part. */
TOW_API tow_status tow_tokenizer_read(tow_context *context, const char *path, tow_tokenizer **tokenizer);
/* The same from the text of a tokenizer.json, `length` bytes. name: of the text, for messages. */
TOW_API tow_status tow_tokenizer_parse(tow_context *context, const char *name, const char *text, size_t length,
                                       tow_tokenizer **tokenizer);
/* From GPT-2's two files: byte-level byte-pair encoding without a space before the text. */
TOW_API tow_status tow_tokenizer_read_bpe(tow_context *context, const char *vocab_json, const char *merges_txt,
                                          tow_tokenizer **tokenizer);
/* From BERT's file of one token a line: WordPiece, with [CLS] before a text and [SEP] behind it if the file has them.
 * lowercase: for uncased models, which also lose their accents. */
TOW_API tow_status tow_tokenizer_read_wordpiece(tow_context *context, const char *vocab_txt, bool lowercase,
                                                tow_tokenizer **tokenizer);
/* From the metadata of a GGUF file, "tokenizer.ggml...": the models "gpt2" (byte-level byte-pair encoding, with the
 * regular expressions of "gpt-2", "llama-bpe", "qwen2" and others as the file's "pre" says) and "llama"
 * (SentencePiece's byte-pair encoding with scores and a fallback to bytes), with the tokens around texts that the file
 * asks for. Errors: TOW_NOT_FOUND without a tokenizer, TOW_BAD_FORMAT, TOW_UNSUPPORTED with the model or the
 * expression. */
TOW_API tow_status tow_tokenizer_from_tensors(tow_context *context, const tow_tensors *tensors,
                                              tow_tokenizer **tokenizer);
/* Writes that tokenizer as a tokenizer.json, which `tokenizers` (0.20 and later) and tow_tokenizer_read read. Merges of
 * "llama" are in the order of their scores; among equal scores, of which SentencePiece takes the leftmost pair, those
 * with the longest first token come first, as transformers has them.
 * Errors: those of tow_tokenizer_from_tensors; TOW_IO_ERROR with the path. */
TOW_API tow_status tow_tokenizer_write_json(tow_context *context, const tow_tensors *tensors, const char *path);
/* NULL is accepted. */
TOW_API void tow_tokenizer_free(tow_tokenizer *tokenizer);

/* One more than the largest id, added tokens included: the smallest vocabulary that a model must have. */
TOW_API int32_t tow_tokenizer_vocabulary_count(const tow_tokenizer *tokenizer);
/* The id of a token as the file writes it, or -1. */
TOW_API int32_t tow_tokenizer_id(const tow_tokenizer *tokenizer, const char *token);
/* The token of an id as the file writes it, or NULL. */
TOW_API const char *tow_tokenizer_token(const tow_tokenizer *tokenizer, int32_t id);
/* True for added tokens that are special: they stand for no text. */
TOW_API bool tow_tokenizer_is_special(const tow_tokenizer *tokenizer, int32_t id);

/* ---- text to tokens ---------------------------------------------------------------------------------------------- */

typedef struct tow_token {
    int32_t id;
    int32_t type;      /* 0, or 1 for the second text of a pair, as the file says */
    bool special;      /* put around the text by the tokenizer */
    size_t begin, end; /* bytes of the text; of a token that is a part of a character, those of the character */
} tow_token;

/* The tokens of a text. */
typedef struct tow_encoding tow_encoding;
TOW_API tow_status tow_encoding_create(tow_context *context, tow_encoding **encoding);
TOW_API void tow_encoding_free(tow_encoding *encoding);
TOW_API size_t tow_encoding_count(const tow_encoding *encoding);
/* count of them; valid until the next text is encoded. */
TOW_API const int32_t *tow_encoding_ids(const tow_encoding *encoding);
TOW_API const tow_token *tow_encoding_tokens(const tow_encoding *encoding);

/* The text that loses tokens if there are too many. */
typedef enum tow_truncation {
    TOW_TRUNCATE_LONGEST, /* the longer one, then both */
    TOW_TRUNCATE_FIRST,
    TOW_TRUNCATE_SECOND
} tow_truncation;

typedef struct tow_encode_options {
    size_t size TOW__SIZE(tow_encode_options); /* set by TOW_ENCODE_OPTIONS */
    bool no_special;                           /* nothing is put around the text */
    const char *pair; /* a second text, of which [pair_length] bytes, for models of two texts; NULL: none */
    size_t pair_length;
    size_t max_length; /* of an encoding, with what is put around texts; 0: none */
    tow_truncation truncation;
    bool truncate_left; /* tokens at the beginning of a text are left out, not those at its end */
    /* At least so many tokens, and then a multiple of pad_multiple, by tokens pad_id of type pad_type, which count as
     * special, behind the others, or before them. 0: none. */
    size_t pad_length, pad_multiple;
    bool pad_left;
    int32_t pad_id, pad_type;
} tow_encode_options;
#define TOW_ENCODE_OPTIONS(...) TOW__OPTIONS(tow_encode_options, __VA_ARGS__)
/* Options with the truncation and the padding that tokenizer.json asks for, which live as long as the tokenizer; those
 * of other files are zeros. NULL for NULL. A text that is encoded without them is neither cut nor padded. */
TOW_API const tow_encode_options *tow_tokenizer_options(const tow_tokenizer *tokenizer);

/* Encodes a text of `length` bytes into `encoding`, in place of what it had. options: may be NULL. Errors:
 * TOW_INVALID_ARGUMENT for a text that is not UTF-8, with the byte, or has 2 GiB or more; for a max_length that what is
 * put around texts exceeds; for a text that is to lose tokens and has not enough of them; for one with a part that no
 * token stands for, where the model has no unknown token; and for one of which a regular expression of the file takes
 * too many steps. */
TOW_API tow_status tow_tokenizer_encode(tow_tokenizer *tokenizer, const char *text, size_t length,
                                        const tow_encode_options *options, tow_encoding *encoding);

/* ---- tokens to text ---------------------------------------------------------------------------------------------- */

/* The text of `count` ids, as the decoder of the file puts it together, written like snprintf: returns the length of
 * the whole text. skip_special: without special tokens. Ids that are not in the vocabulary are left out. Bytes that are
 * no UTF-8 become U+FFFD. The length is 0 where memory is missing or a regular expression of the file takes too many
 * steps; the context has the message. */
TOW_API size_t tow_tokenizer_decode(tow_tokenizer *tokenizer, const int32_t *ids, size_t count, bool skip_special,
                                    char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif

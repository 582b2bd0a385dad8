/* Tokenizers: files that are refused, arguments, memory that is missing. Equality with another implementation is tested
 * by test_tokenizer_golden.c.
 * Tests around.c, dom.c, grapheme.c, read.c, read_files.c, read_model.c, read_parts.c, read_template.c,
 * read_values.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/io_files.h"
#include "tow/tow.h"

static void expect(const fixture *f, tow_status found, tow_status status, const char *message)
{
    if (found != status) fail_msg("status %d, expected %d: %s", found, status, tow_context_error(f->ctx));
    if (message) assert_message(f, message);
}
#define OK(call) expect(f, call, TOW_OK, NULL)

#define BPE "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<u>\":3},\"merges\":[[\"a\",\"b\"]]}"
#define ALL                                                                                                            \
    "{\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true,\"lstrip\":true},{\"id\":5,\"content\":\"QQ\"}" \
    "],"                                                                                                               \
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]},"            \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{\"type\":\"Digits\"}" \
    "]},"                                                                                                              \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}" \
    "},"                                                                                                               \
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"              \
    "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[4]}}},"         \
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},"           \
    "\"content\":\"xy\"},"                                                                                             \
    "{\"type\":\"Fuse\"}]}," BPE "}"

static void bad_files(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *text;
        tow_status status;
        const char *message;
    } cases[] = {
        {"", TOW_BAD_FORMAT, "t: the file is not valid JSON"},
        {"[]", TOW_BAD_FORMAT, "t: expected an object with a \"model\", found none; is this a tokenizer.json?"},
        {"{}", TOW_BAD_FORMAT, "expected an object with a \"model\""},
        {"{\"model\":null}", TOW_BAD_FORMAT, "expected an object with a \"model\""},
        {"{\"model\":{}}", TOW_BAD_FORMAT, "expected the model to have a \"vocab\""},
        {"{\"model\":{\"vocab\":{}}}", TOW_BAD_FORMAT, "the unknown token '[UNK]' is not in the vocabulary"},
        {"{\"model\":{\"type\":\"Other\",\"vocab\":[]}}", TOW_UNSUPPORTED,
         "expected a model of type BPE, WordPiece, WordLevel or Unigram, found 'Other'"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", TOW_BAD_FORMAT, "a \"vocab\" of tokens and scores"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"b\"]]}}", TOW_BAD_FORMAT,
         "vocabulary: expected a token and its score at place 1"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",1e999]]}}", TOW_BAD_FORMAT, "at place 0"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",-1.5]]}}", TOW_BAD_FORMAT,
         "expected unk_id to be a place in the vocabulary of 1 tokens, found 1"},
        {"{\"pre_tokenizer\":{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"ab\"}," BPE "}", TOW_BAD_FORMAT,
         "to be one character, found 'ab'"},
        {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"????\"}," BPE "}", TOW_BAD_FORMAT,
         "expected a precompiled_charsmap in base 64"},
        {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"/////////w==\"}," BPE "}",
         TOW_BAD_FORMAT, "expected a precompiled_charsmap in base 64"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", TOW_BAD_FORMAT,
         "t: vocabulary: 'b' has the id 0, but so has 'a'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", TOW_BAD_FORMAT,
         "expected an id of the token 'a'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}}", TOW_BAD_FORMAT,
         "expected an id of the token 'a'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}}", TOW_BAD_FORMAT,
         "expected an id from 0 to 1048575, found 99999999"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", TOW_BAD_FORMAT, "a list of \"merges\""},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"b\"]]}}", TOW_BAD_FORMAT,
         "merge 1: the token 'b' is not in the vocabulary"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", TOW_BAD_FORMAT,
         "merge 1: 'aa' is not in the vocabulary"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", TOW_BAD_FORMAT, "merge 1: expected two tokens"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", TOW_BAD_FORMAT, "merge 1: expected two tokens"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", TOW_BAD_FORMAT, "merge 1: expected two tokens"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}", TOW_UNSUPPORTED, "dropout of merges"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"b\"}}", TOW_BAD_FORMAT,
         "the unknown token 'b'"},
        {"{\"normalizer\":{\"type\":\"Nmt\"}," BPE "}", TOW_UNSUPPORTED,
         "the normalizer 'Nmt' is not known here; docs/tokenizers.md lists those that are"},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{},\"content\":\"b\"}," BPE "}", TOW_BAD_FORMAT,
         "expected a pattern with a String or a Regex"},
        {"{\"normalizer\":{}," BPE "}", TOW_BAD_FORMAT, "expected a normalizer with a type"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\R\"},\"behavior\":\"Isolated\"}," BPE "}",
         TOW_UNSUPPORTED, "the pre_tokenizer Split: the regular expression '\\R'"},
        {"{\"pre_tokenizer\":{\"type\":\"Punctuation\",\"behavior\":\"Gone\"}," BPE "}", TOW_UNSUPPORTED,
         "found 'Gone'"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}"
         "," BPE "}",
         TOW_UNSUPPORTED, "pre_tokenizers behind ByteLevel"},
        {"{\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"x\",9],\"cls\":[\"a\",0]}," BPE "}",
         TOW_BAD_FORMAT, "expected \"sep\" to be a token and its id"},
        {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}],\"pair\":"
         "[]}," BPE "}",
         TOW_BAD_FORMAT, "the template names 'x', which has no ids"},
        {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"B\"}}],\"pair\":[]}"
         "," BPE "}",
         TOW_BAD_FORMAT, "the template of a single text has a second one"},
        {"{\"decoder\":{\"type\":\"CTC\"}," BPE "}", TOW_UNSUPPORTED, "the decoder 'CTC' is not known here"},
        {"{\"added_tokens\":[{\"content\":\"x\"}]," BPE "}", TOW_BAD_FORMAT,
         "expected added tokens to have a content and an id"},
        {"{\"added_tokens\":{}," BPE "}", TOW_BAD_FORMAT, "expected added_tokens to be a list"},
        {"{\"added_tokens\":[{\"content\":\"x\",\"id\":1}]," BPE "}", TOW_BAD_FORMAT,
         "added tokens: 'x' has the id 1, but so has 'b'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_tokenizer *t;
        const tow_status status = tow_tokenizer_parse(f->ctx, "t", cases[i].text, strlen(cases[i].text), &t);
        if (status != cases[i].status) fail_msg("case %zu: status %d: %s", i, status, tow_context_error(f->ctx));
        assert_message(f, cases[i].message);
        assert_null(t);
    }
    for (size_t n = 0; n < sizeof ALL - 1; n++) { /* cut off anywhere */
        tow_tokenizer *t;
        assert_int_equal(tow_tokenizer_parse(f->ctx, "t", ALL, n, &t), TOW_BAD_FORMAT);
        assert_null(t);
    }
}

static void bad_paths(void **state)
{
    fixture *f = *state;
    char path[128], other[128];
    tow_tokenizer *t;
    expect(f, tow_tokenizer_read(f->ctx, f->directory, &t), TOW_IO_ERROR,
           "expected tokenizer.json, vocab.json with merges.txt, or vocab.txt");
    expect(f, tow_tokenizer_read(f->ctx, f->path, &t), TOW_IO_ERROR, "/file: cannot open");
    snprintf(path, sizeof path, "%s/vocab.txt", f->directory);
    write_bytes(path, "a\nb\n", 4);
    expect(f, tow_tokenizer_read(f->ctx, f->directory, &t), TOW_BAD_FORMAT, "/vocab.txt: expected a line [UNK]");
    write_bytes(path, "a\na\n", 4);
    expect(f, tow_tokenizer_read(f->ctx, path, &t), TOW_BAD_FORMAT,
           "line 2: 'a' has the id 1, but so has 'a' with the id 0");
    write_bytes(path, "a\n\xff\n", 4);
    expect(f, tow_tokenizer_read(f->ctx, path, &t), TOW_BAD_FORMAT, "found the byte 0xff at byte 2");
    snprintf(path, sizeof path, "%s/vocab.json", f->directory);
    snprintf(other, sizeof other, "%s/merges.txt", f->directory);
    write_bytes(path, "{\"a\":0,\"b\":1,\"ab\":2}", 20);
    write_bytes(other, "#version: 0.2\na b\n", 18);
    OK(tow_tokenizer_read(f->ctx, f->directory, &t));
    assert_int_equal(tow_tokenizer_id(t, "ab"), 2);
    tow_tokenizer_free(t);
    write_bytes(other, "a b c\n", 6);
    expect(f, tow_tokenizer_read(f->ctx, other, &t), TOW_BAD_FORMAT, "/merges.txt: expected two tokens, found 'a b c'");
    assert_null(t);
}

/* BERT in a directory that says that it is cased. */
static void case_is_configured(void **state)
{
    fixture *f = *state;
    char path[128];
    tow_encoding *e;
    OK(tow_encoding_create(f->ctx, &e));
    snprintf(path, sizeof path, "%s/vocab.txt", f->directory);
    write_bytes(path, "[UNK]\na\nA\n", 10);
    for (int cased = 0; cased < 2; cased++) {
        tow_tokenizer *t;
        snprintf(path, sizeof path, "%s/tokenizer_config.json", f->directory);
        if (cased) write_bytes(path, "{\"do_lower_case\": false}", 24);
        OK(tow_tokenizer_read(f->ctx, f->directory, &t));
        OK(tow_tokenizer_encode(t, "A", 1, NULL, e));
        assert_int_equal(tow_encoding_ids(e)[0], cased ? 2 : 1);
        tow_tokenizer_free(t);
    }
    tow_encoding_free(e);
}

static void texts_and_arguments(void **state)
{
    fixture *f = *state;
    tow_tokenizer *t;
    tow_encoding *e;
    char text[8];
    OK(tow_tokenizer_parse(f->ctx, "t", ALL, sizeof ALL - 1, &t));
    OK(tow_encoding_create(f->ctx, &e));
    OK(tow_tokenizer_encode(t, "xab <s>ab\0QQ", 12, NULL, e));
    static const int32_t ids[] = {4, 2, 4, 2, 5};
    assert_int_equal(tow_encoding_count(e), 5);
    assert_memory_equal(tow_encoding_ids(e), ids, sizeof ids);
    assert_true(tow_encoding_tokens(e)[0].special);
    assert_int_equal(tow_encoding_tokens(e)[2].begin, 3); /* with the space before it */
    assert_int_equal(tow_encoding_tokens(e)[2].end, 7);
    OK(tow_tokenizer_encode(t, "ab", 2, &TOW_ENCODE_OPTIONS(.no_special = true), e));
    assert_int_equal(tow_encoding_count(e), 1);
    static const struct {
        const char *text;
        size_t length;
        const char *message;
    } bad[] = {{"a\xff", 2, "found the byte 0xff at byte 1"},
               {"\xe2\x82", 2, "0xe2 at byte 0"},
               {"a\xed\xa0\x80", 4, "0xed at byte 1"},
               {"\xc0\x80", 2, "0xc0 at byte 0"},
               {"\xf4\x90\x80\x80", 4, "0xf4 at byte 0"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect(f, tow_tokenizer_encode(t, bad[i].text, bad[i].length, NULL, e), TOW_INVALID_ARGUMENT, bad[i].message);
        assert_int_equal(tow_encoding_count(e), 0);
    }
    expect(f, tow_tokenizer_encode(t, NULL, 1, NULL, e), TOW_INVALID_ARGUMENT,
           "expected a tokenizer, a text and an encoding");
    OK(tow_tokenizer_encode(t, NULL, 0, NULL, e));
    assert_int_equal(tow_tokenizer_decode(t, (const int32_t[]){2, 99, -1, 4, 0}, 5, true, text, sizeof text), 5);
    assert_string_equal(text, "xybxy");
    assert_int_equal(tow_tokenizer_decode(t, (const int32_t[]){2, 0}, 2, true, text, 4), 5);
    assert_string_equal(text, "xyb");
    assert_int_equal(tow_tokenizer_decode(t, NULL, 0, true, text, 4), 0);
    assert_string_equal(text, "");
    assert_int_equal(tow_tokenizer_vocabulary_count(t), 6);
    assert_string_equal(tow_tokenizer_token(t, 5), "QQ");
    assert_null(tow_tokenizer_token(t, 6));
    assert_null(tow_tokenizer_token(t, -1));
    assert_int_equal(tow_tokenizer_id(t, "none"), -1);
    assert_true(tow_tokenizer_is_special(t, 4) && !tow_tokenizer_is_special(t, 5) && !tow_tokenizer_is_special(t, 77));
    tow_encoding_free(e);
    tow_encoding_free(NULL);
    tow_tokenizer_free(t);
    tow_tokenizer_free(NULL);
}

/* The settings of truncation and padding in the file are handed out, and not done unasked. */
static void options_of_the_file(void **state)
{
    fixture *f = *state;
    static const char text[] =
        "{\"truncation\":{\"direction\":\"Left\",\"max_length\":2,\"strategy\":\"OnlyFirst\",\"stride\":0},"
        "\"padding\":{\"strategy\":{\"Fixed\":5},\"direction\":\"Left\",\"pad_to_multiple_of\":3,\"pad_id\":1,"
        "\"pad_type_id\":2,\"pad_token\":\"b\"}," BPE "}";
    static const char *const wrong[][2] = {
        {"{\"truncation\":{\"max_length\":0}," BPE "}", "max_length above 0"},
        {"{\"truncation\":{\"max_length\":2,\"strategy\":\"Middle\"}," BPE "}", "found 'Middle'"},
        {"{\"padding\":{\"strategy\":{\"Fixed\":-1}}," BPE "}", "from 0 to below 2^31"}};
    tow_tokenizer *t;
    tow_encoding *e;
    OK(tow_tokenizer_parse(f->ctx, "t", text, strlen(text), &t));
    OK(tow_encoding_create(f->ctx, &e));
    OK(tow_tokenizer_encode(t, "bbaba", 5, NULL, e));
    assert_int_equal(tow_encoding_count(e), 4); /* b b ab a */
    OK(tow_tokenizer_encode(t, "bbaba", 5, tow_tokenizer_options(t), e));
    assert_int_equal(tow_encoding_count(e), 6);
    assert_memory_equal(tow_encoding_ids(e), ((int32_t[]){1, 1, 1, 1, 2, 0}), 6 * sizeof(int32_t));
    assert_int_equal(tow_encoding_tokens(e)[0].type, 2);
    expect(f, tow_tokenizer_encode(t, "a", 1, &TOW_ENCODE_OPTIONS(.truncation = (tow_truncation)9), e),
           TOW_INVALID_ARGUMENT, "tow_truncation");
    assert_null(tow_tokenizer_options(NULL));
    tow_encoding_free(e);
    tow_tokenizer_free(t);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const tow_status status = tow_tokenizer_parse(f->ctx, "t", wrong[i][0], strlen(wrong[i][0]), &t);
        assert_true(status == TOW_BAD_FORMAT || status == TOW_UNSUPPORTED);
        assert_message(f, wrong[i][1]);
    }
}

/* As `tokenizers` 0.23 does it: an added token that is found in normalized text is decoded as it is there. */
static void added_tokens_are_decoded_normalized(void **state)
{
    fixture *f = *state;
    static const char text[] = "{\"added_tokens\":[{\"id\":4,\"content\":\"QQ\",\"normalized\":true},"
                               "{\"id\":5,\"content\":\"RR\",\"normalized\":false}],"
                               "\"normalizer\":{\"type\":\"Lowercase\"}," BPE "}";
    char decoded[16];
    tow_tokenizer *t;
    OK(tow_tokenizer_parse(f->ctx, "t", text, strlen(text), &t));
    tow_tokenizer_decode(t, (int32_t[]){4, 5}, 2, true, decoded, sizeof decoded);
    assert_string_equal(decoded, "qq RR");
    assert_string_equal(tow_tokenizer_token(t, 4), "QQ");
    tow_tokenizer_free(t);
}

/* Ids and offsets as the package has them. */
static void equal_to_the_package_in_corners(void **state)
{
    fixture *f = *state;
#define BYTES                                                                                                          \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"e\":0,\"\xc3\x8c\":1,\"\xc4\xa3\":2,\"\xc3\x8d\":3,\"\xc4\xb7\":4,"      \
    "\"a\":5,\"b\":"                                                                                                   \
    "6,\"\xc4\xa0\":7,\"\xc3\xa9\":8,\"\xc3\x83\":9,\"\xc2\xa9\":10},\"merges\":[]}"
    static const struct {
        const char *file, *text;
        size_t count;
        struct {
            int32_t id;
            size_t begin, end;
        } tokens[5];
    } cases[] = {
        /* a model does not see added tokens that are not its own */
        {"{\"added_tokens\":[{\"id\":3,\"content\":\"ab\",\"special\":true}],\"normalizer\":{\"type\":\"Lowercase\"},"
         "\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0,"
         "\"a\":1,\"##b\":2}}}",
         "AB ab",
         3,
         {{1, 0, 1}, {2, 1, 2}, {3, 3, 5}}},
        /* marks that change places */
        {"{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
         "," BYTES "}",
         "e\xcc\x81\xcd\x95",
         4,
         {{9, 0, 1}, {10, 0, 1}, {3, 3, 5}, {4, 3, 5}}},
        {"{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
         "," BYTES "}",
         "e\xcd\x95\xcc\x81"
         "b",
         5,
         {{9, 0, 1}, {10, 0, 1}, {3, 3, 5}, {4, 3, 5}, {6, 5, 6}}},
        /* a replacement has the place of the last character that it replaces */
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"  \"},\"content\":\" "
         "\"},\"pre_tokenizer\":{\"type\":"
         "\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},\"post_processor\":{\"type\":\"ByteLevel\"}"
         "," BYTES "}",
         "a  b",
         3,
         {{5, 0, 1}, {7, 3, 3}, {6, 3, 4}}},
        /* unknown bytes are one token, without the byte before them that the unknown token stands for */
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},"
         "\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"fuse_unk\":true,"
         "\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}",
         "a\xd9\x90"
         "b",
         3,
         {{0, 0, 1}, {0, 1, 3}, {1, 3, 4}}},
    };
    tow_encoding *e;
    OK(tow_encoding_create(f->ctx, &e));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_tokenizer *t;
        OK(tow_tokenizer_parse(f->ctx, "t", cases[i].file, strlen(cases[i].file), &t));
        OK(tow_tokenizer_encode(t, cases[i].text, strlen(cases[i].text), NULL, e));
        assert_int_equal(tow_encoding_count(e), cases[i].count);
        for (size_t k = 0; k < cases[i].count; k++) {
            const tow_token *token = &tow_encoding_tokens(e)[k];
            if (token->id != cases[i].tokens[k].id || token->begin != cases[i].tokens[k].begin ||
                token->end != cases[i].tokens[k].end)
                fail_msg("case %zu, token %zu: found %d (%zu, %zu)", i, k, (int)token->id, token->begin, token->end);
        }
        tow_tokenizer_free(t);
    }
    tow_encoding_free(e);
}

/* Values of a wrong kind are errors, which `tokenizers` makes of them, too. */
static void wrong_kinds(void **state)
{
    fixture *f = *state;
#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}"
    static const char *const cases[][2] = {
        {"{\"model\":{\"type\":5," VOCAB ",\"merges\":[]}}", "expected \"type\" to be a string, found a number"},
        {"{\"model\":{\"type\":null," VOCAB ",\"merges\":[]}}", "expected \"type\" to be a string, found null"},
        {"{\"model\":{\"type\":[]," VOCAB ",\"merges\":[]}}", "expected \"type\" to be a string, found a list"},
        {"{\"model\":5}", "expected \"model\" to be an object, found a number"},
        {"{\"model\":{" VOCAB ",\"merges\":[],\"fuse_unk\":1}}", "expected \"fuse_unk\" to be true or false"},
        {"{\"model\":{" VOCAB ",\"merges\":[],\"unk_token\":0}}", "expected \"unk_token\" to be a string"},
        {"{\"model\":{\"vocab\":{\"[UNK]\":0},\"max_input_chars_per_word\":\"9\"}}",
         "to be an integer, found a string"},
        {"{\"model\":{\"vocab\":{\"[UNK]\":0},\"max_input_chars_per_word\":9.5}}",
         "to be an integer, found another number"},
        {"{\"normalizer\":[]," BPE "}", "expected \"normalizer\" to be an object, found a list"},
        {"{\"normalizer\":{\"type\":\"Sequence\"}," BPE "}", "expected the normalizer Sequence to have a list"},
        {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":{}}," BPE "}", "to be a list, found an object"},
        {"{\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":null}," BPE "}",
         "expected \"lowercase\" to be true or false"},
        {"{\"normalizer\":{\"type\":\"Prepend\",\"prepend\":3}," BPE "}", "expected \"prepend\" to be a string"},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":\"a\",\"content\":\"\"}," BPE "}",
         "expected \"pattern\" to be an object"},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}," BPE "}",
         "an empty pattern"},
        {"{\"pre_tokenizer\":{\"type\":\"Digits\",\"individual_digits\":\"yes\"}," BPE "}",
         "expected \"individual_digits\""},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"sometimes\"}," BPE "}", "found 'sometimes'"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":"
         "\"ByteLevel\","
         "\"add_prefix_space\":false,\"use_regex\":false}]}," BPE "}",
         "ByteLevel behind ByteLevel"},
        {"{\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"a\",0.5],\"cls\":[\"a\",0]}," BPE "}",
         "expected \"sep\""},
        {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"C\",\"type_id\":0}}]"
         ","
         "\"pair\":[]}," BPE "}",
         "expected the texts A and B"},
        {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":-1}}"
         "],"
         "\"pair\":[]}," BPE "}",
         "types from 0"},
        {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"a\"}}],\"pair\":"
         "[],"
         "\"special_tokens\":{\"a\":{\"ids\":[-4294967296]}}}," BPE "}",
         "an id of 'a' that is not in the vocabulary"},
        {"{\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":\"1\",\"stop\":0}," BPE "}",
         "expected \"start\""},
        {"{\"decoder\":\"Fuse\"," BPE "}", "expected \"decoder\" to be an object"},
        {"{\"added_tokens\":[{\"id\":9,\"content\":\"x\",\"special\":\"no\"}]," BPE "}", "expected \"special\""},
        {"{\"added_tokens\":[{\"id\":\"9\",\"content\":\"x\"}]," BPE "}", "expected \"id\" to be an integer"},
        {"{\"truncation\":{\"max_length\":4,\"direction\":\"Up\"}," BPE "}", "found 'Up'"},
        {"{\"truncation\":7," BPE "}", "expected \"truncation\" to be an object"},
        {"{\"padding\":{\"strategy\":\"Fixed\"}," BPE "}", "found 'Fixed'"},
        {"{\"padding\":{\"strategy\":{\"Fixed\":\"8\"}}," BPE "}", "expected \"Fixed\" to be an integer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_tokenizer *t;
        const tow_status status = tow_tokenizer_parse(f->ctx, "t", cases[i][0], strlen(cases[i][0]), &t);
        if (status != TOW_BAD_FORMAT && status != TOW_UNSUPPORTED) fail_msg("case %zu: status %d", i, status);
        assert_message(f, cases[i][1]);
        assert_null(t);
    }
}

/* Replacements in sequence must not make long texts of short ones: twelve steps of tenfold are 10^12. */
static void replacements_are_bounded(void **state)
{
    fixture *f = *state;
    static const char step[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaa\"}";
    for (int normalizer = 0; normalizer < 2; normalizer++)
        for (int steps = 3; steps <= 12; steps += 9) {
            char text[2048];
            int n = snprintf(text, sizeof text, "{\"%s\":{\"type\":\"Sequence\",\"%s\":[",
                             normalizer ? "normalizer" : "decoder", normalizer ? "normalizers" : "decoders");
            for (int i = 0; i < steps; i++)
                n += snprintf(text + n, sizeof text - (size_t)n, "%s%s", i > 0 ? "," : "", step);
            n += snprintf(text + n, sizeof text - (size_t)n, "]}," BPE "}");
            tow_tokenizer *t;
            if (steps == 3)
                OK(tow_tokenizer_parse(f->ctx, "t", text, (size_t)n, &t));
            else
                expect(f, tow_tokenizer_parse(f->ctx, "t", text, (size_t)n, &t), TOW_UNSUPPORTED,
                       "can make a text 1e+12 times as long by its replacements; expected at most 1024 times");
            if (t && !normalizer) assert_int_equal(tow_tokenizer_decode(t, (int32_t[]){0}, 1, true, NULL, 0), 1000);
            tow_tokenizer_free(t);
        }
}

static void missing_arguments(void **state)
{
    fixture *f = *state;
    tow_tokenizer *t = (tow_tokenizer *)f;
    expect(f, tow_tokenizer_read(f->ctx, NULL, &t), TOW_INVALID_ARGUMENT, "expected a context, a path");
    assert_null(t);
    expect(f, tow_tokenizer_read(f->ctx, "x", NULL), TOW_INVALID_ARGUMENT, NULL);
    expect(f, tow_tokenizer_read(NULL, "x", &t), TOW_INVALID_ARGUMENT, NULL);
    expect(f, tow_tokenizer_parse(f->ctx, NULL, "{}", 2, &t), TOW_INVALID_ARGUMENT, "expected a context, a name");
    expect(f, tow_tokenizer_parse(f->ctx, "x", NULL, 2, &t), TOW_INVALID_ARGUMENT, NULL);
    expect(f, tow_tokenizer_read_bpe(f->ctx, "x", NULL, &t), TOW_INVALID_ARGUMENT, "two paths");
    expect(f, tow_tokenizer_read_wordpiece(f->ctx, NULL, true, &t), TOW_INVALID_ARGUMENT, "a path");
    expect(f, tow_encoding_create(f->ctx, NULL), TOW_INVALID_ARGUMENT, "a place for the encoding");
    expect(f, tow_tokenizer_encode(NULL, "a", 1, NULL, NULL), TOW_INVALID_ARGUMENT, NULL);
    assert_int_equal(tow_tokenizer_decode(NULL, NULL, 0, true, NULL, 0), 0);
    assert_null(t);
}

/* A word of a million bytes takes n log n, not n squared. */
static void long_words(void **state)
{
    fixture *f = *state;
    enum {
        N = 1000000
    };
    char *text = malloc(N);
    tow_tokenizer *t;
    tow_encoding *e;
    assert_non_null(text);
    OK(tow_tokenizer_parse(f->ctx, "t", "{" BPE "}", sizeof "{" BPE "}" - 1, &t));
    OK(tow_encoding_create(f->ctx, &e));
    for (int i = 0; i < N; i++) text[i] = "ab"[i % 2];
    OK(tow_tokenizer_encode(t, text, N, NULL, e));
    assert_int_equal(tow_encoding_count(e), N / 2);
    free(text);
    tow_encoding_free(e);
    tow_tokenizer_free(t);
}

static tow_status everything(tow_context *ctx)
{
    tow_tokenizer *t = NULL;
    tow_encoding *e = NULL;
    char text[64];
    tow_status status = tow_tokenizer_parse(ctx, "t", ALL, sizeof ALL - 1, &t);
    if (status == TOW_OK) status = tow_encoding_create(ctx, &e);
    if (status == TOW_OK)
        status = tow_tokenizer_encode(
            t, "ab ab <s> AB 12 ababababababababababababababababababababababababababababababababab", 71, NULL, e);
    const tow_encode_options few =
        TOW_ENCODE_OPTIONS(.max_length = 3, .pair = "ab", .pair_length = 2, .pad_length = 200, .pad_left = true);
    if (status == TOW_OK) status = tow_tokenizer_encode(t, "ab ab <s> AB", 12, &few, e);
    if (status == TOW_OK && tow_tokenizer_decode(t, tow_encoding_ids(e), 3, false, text, sizeof text) == 0)
        status = TOW_OUT_OF_MEMORY;
    tow_encoding_free(e);
    tow_tokenizer_free(t);
    return status;
}

/* Unigram with a map of characters, and a regular expression if there are any. */
static tow_status everything_else(tow_context *ctx)
{
    static const char regex[] = "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[ab]+\"},\"behavior\":"
                                "\"Removed\",\"invert\":true}," BPE "}";
    static const char text[] = "\xef\xbc\xa1 layer e\xcc\x81 \xef\xac\x81 of a struct";
    tow_tokenizer *t[2] = {NULL, NULL};
    tow_encoding *e = NULL;
    tow_status status = tow_tokenizer_read(ctx, TOW_TEST_DATA "/oracle/golden/tokenizers/t5.json", &t[0]);
    if (status == TOW_OK) status = tow_tokenizer_parse(ctx, "t", regex, sizeof regex - 1, &t[1]);
    const bool no_regex = status == TOW_UNSUPPORTED;
    if (no_regex) status = TOW_OK;
    if (status == TOW_OK) status = tow_encoding_create(ctx, &e);
    for (int i = 0; i < 2 - no_regex && status == TOW_OK; i++)
        status = tow_tokenizer_encode(t[i], text, sizeof text - 1, NULL, e);
    tow_encoding_free(e);
    tow_tokenizer_free(t[0]);
    tow_tokenizer_free(t[1]);
    return status;
}

static void fail_in_turn(tow_status (*work)(tow_context *))
{
    tow_status status = TOW_OUT_OF_MEMORY;
    for (long n = 0; status != TOW_OK; n++) {
        counting c;
        const tow_context_options options = counting_options(&c, n);
        tow_context *ctx;
        status = tow_context_create(&options, &ctx);
        if (status == TOW_OK) status = work(ctx);
        if (status != TOW_OK && status != TOW_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", n, tow_context_error(ctx));
        tow_context_free(ctx);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.wrong_sizes, 0);
        assert_true(status == TOW_OK || n < 10000);
    }
}

static void allocations_fail_in_turn(void **state)
{
    (void)state;
    fail_in_turn(everything);
    fail_in_turn(everything_else);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bad_files),
        TEST(bad_paths),
        TEST(case_is_configured),
        TEST(texts_and_arguments),
        TEST(options_of_the_file),
        TEST(added_tokens_are_decoded_normalized),
        TEST(equal_to_the_package_in_corners),
        TEST(wrong_kinds),
        TEST(replacements_are_bounded),
        TEST(missing_arguments),
        TEST(long_words),
        TEST(allocations_fail_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

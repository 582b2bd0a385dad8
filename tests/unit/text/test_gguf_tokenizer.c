/* Tokenizers of GGUF files (tests/oracle/gguf_tokenizers.py): those with merges give the ids, the decoded texts and the
 * tokens of the same tokenizers' tokenizer.json, which test_tokenizer_golden.c holds against `tokenizers`; the one with
 * scores gives the ids of sentencepiece. A tokenizer.json that is written of one gives the same. Wrong metadata are
 * refused. Tests read_gguf.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/io_files.h"
#include "tow/tow.h"

#define FILES TOW_TEST_DATA "/oracle/golden/"
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(f->ctx));                                    \
    } while (0)

static tow_tokenizer *read_tokenizer(const fixture *f, const char *name)
{
    char path[256];
    tow_tensors *tensors;
    tow_tokenizer *tokenizer;
    snprintf(path, sizeof path, FILES "gguf/tokenizers/%s.gguf", name);
    OK(tow_gguf_mmap(f->ctx, path, &tensors));
    OK(tow_tokenizer_from_tensors(f->ctx, tensors, &tokenizer));
    tow_tensors_free(tensors);
    return tokenizer;
}

static void assert_ids(const fixture *f, tow_tokenizer *t, tow_encoding *e, const char *text, size_t length,
                       const int32_t *ids, size_t count)
{
    OK(tow_tokenizer_encode(t, text, length, NULL, e));
    for (size_t i = 0; i < count && i < tow_encoding_count(e); i++)
        if (tow_encoding_ids(e)[i] != ids[i])
            fail_msg("%.80s: token %zu is %d, expected %d", text, i, (int)tow_encoding_ids(e)[i], (int)ids[i]);
    assert_int_equal(tow_encoding_count(e), count);
}

/* Texts in many languages, with special tokens, spaces and numbers. */
static const char *const texts[] = {
    "The quick brown fox jumps over the lazy dog. It's 1,234.56 dollars, isn't it? They'LL've SHE'D",
    "  two  spaces\n\n\tand 12345678 digits \xe2\x82\xac",
    ("Gr\xc3\xb6\xc3\x9f"
     "e, e\xcc\x81, \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x98\x80 <|endoftext|> <|begin_of_text|>x <|im_start|>"),
    "",
    " ",
};

static void with_merges(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"gpt2", "llama3", "qwen2"};
    tow_encoding *e, *wanted;
    OK(tow_encoding_create(f->ctx, &e));
    OK(tow_encoding_create(f->ctx, &wanted));
    for (size_t n = 0; n < 3; n++) {
        tow_tokenizer *t = read_tokenizer(f, names[n]), *json;
        char path[256];
        snprintf(path, sizeof path, FILES "tokenizers/%s.json", names[n]);
        OK(tow_tokenizer_read(f->ctx, path, &json));
        assert_int_equal(tow_tokenizer_vocabulary_count(t), tow_tokenizer_vocabulary_count(json));
        for (int32_t id = 0; id < tow_tokenizer_vocabulary_count(t); id++) {
            assert_string_equal(tow_tokenizer_token(t, id), tow_tokenizer_token(json, id));
            assert_int_equal(tow_tokenizer_is_special(t, id), tow_tokenizer_is_special(json, id));
        }
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            char a[512], b[512];
            OK(tow_tokenizer_encode(json, texts[i], strlen(texts[i]), NULL, wanted));
            assert_ids(f, t, e, texts[i], strlen(texts[i]), tow_encoding_ids(wanted), tow_encoding_count(wanted));
            tow_tokenizer_decode(t, tow_encoding_ids(e), tow_encoding_count(e), true, a, sizeof a);
            tow_tokenizer_decode(json, tow_encoding_ids(e), tow_encoding_count(e), true, b, sizeof b);
            assert_string_equal(a, b);
        }
        tow_tokenizer_free(t);
        tow_tokenizer_free(json);
    }
    tow_encoding_free(e);
    tow_encoding_free(wanted);
}

static void with_scores(void **state)
{
    fixture *f = *state;
    enum {
        MOST = 1 << 16
    };
    static char line[MOST], text[MOST], back[MOST];
    static int32_t ids[MOST];
    tow_tokenizer *t = read_tokenizer(f, "spm");
    tow_encoding *e;
    size_t lines = 0;
    FILE *file = fopen(FILES "gguf/tokenizers/spm.txt", "r");
    assert_non_null(file);
    OK(tow_encoding_create(f->ctx, &e));
    while (fgets(line, sizeof line, file)) {
        size_t length = 0, count = 0;
        unsigned byte;
        char *at = line;
        for (; sscanf(at, "%2x", &byte) == 1 && *at != ' '; at += 2) text[length++] = (char)byte;
        text[length] = '\0';
        for (char *end; *at && *at != '\n'; at = end) ids[count++] = (int32_t)strtol(at, &end, 10);
        assert_ids(f, t, e, text, length, ids, count);
        tow_tokenizer_decode(t, ids, count, true, back, sizeof back);
        assert_string_equal(back, text);
        lines++;
    }
    assert_in_range(lines, 50, 1000);
    fclose(file);
    tow_encoding_free(e);
    tow_tokenizer_free(t);
}

/* The tokenizer.json that is made of a file gives the same ids, texts and special tokens. */
static void written(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"gpt2", "llama3", "qwen2", "spm"};
    tow_encoding *e, *wanted;
    OK(tow_encoding_create(f->ctx, &e));
    OK(tow_encoding_create(f->ctx, &wanted));
    for (size_t n = 0; n < 4; n++) {
        tow_tokenizer *t = read_tokenizer(f, names[n]), *json;
        tow_tensors *tensors;
        char gguf[256], path[256];
        snprintf(gguf, sizeof gguf, FILES "gguf/tokenizers/%s.gguf", names[n]);
        snprintf(path, sizeof path, "%s/tokenizer.json", f->directory);
        OK(tow_gguf_mmap(f->ctx, gguf, &tensors));
        OK(tow_tokenizer_write_json(f->ctx, tensors, path));
        OK(tow_tokenizer_read(f->ctx, path, &json));
        assert_int_equal(tow_tokenizer_vocabulary_count(t), tow_tokenizer_vocabulary_count(json));
        for (int32_t id = 0; id < tow_tokenizer_vocabulary_count(t); id++) {
            assert_string_equal(tow_tokenizer_token(t, id), tow_tokenizer_token(json, id));
            assert_int_equal(tow_tokenizer_is_special(t, id), tow_tokenizer_is_special(json, id));
        }
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            char a[512], b[512];
            OK(tow_tokenizer_encode(json, texts[i], strlen(texts[i]), NULL, wanted));
            assert_ids(f, t, e, texts[i], strlen(texts[i]), tow_encoding_ids(wanted), tow_encoding_count(wanted));
            tow_tokenizer_decode(t, tow_encoding_ids(e), tow_encoding_count(e), true, a, sizeof a);
            tow_tokenizer_decode(json, tow_encoding_ids(e), tow_encoding_count(e), true, b, sizeof b);
            assert_string_equal(a, b);
        }
        if (n == 0) assert_int_equal(tow_tokenizer_write_json(f->ctx, tensors, "/absent/tokenizer.json"), TOW_IO_ERROR);
        tow_tensors_free(tensors);
        tow_tokenizer_free(t);
        tow_tokenizer_free(json);
    }
    tow_encoding_free(e);
    tow_encoding_free(wanted);
}

/* ---- what files leave out ---------------------------------------------------------------------------------------- */

static void set_strings(tow_tensors *t, const char *key, size_t count, const char *const *strings)
{
    const tow_metadata_value value = {
        .type = TOW_METADATA_ARRAY, .element = TOW_METADATA_STRING, .count = count, .elements = strings};
    assert_int_equal(tow_tensors_set_metadata_value(t, key, value), TOW_OK);
}

static void assert_tokens(const fixture *f, const tow_tensors *t, const char *text, const int32_t *ids, size_t count)
{
    tow_tokenizer *tokenizer;
    tow_encoding *e;
    OK(tow_encoding_create(f->ctx, &e));
    OK(tow_tokenizer_from_tensors(f->ctx, t, &tokenizer));
    assert_ids(f, tokenizer, e, text, strlen(text), ids, count);
    tow_tokenizer_free(tokenizer);
    tow_encoding_free(e);
}

/* With scores, ids that are not given are those of SentencePiece: 0, 1 and 2, as in llama.cpp. */
static void standard_ids(void **state)
{
    fixture *f = *state;
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "\xe2\x96\x81", "a"};
    const float scores[5] = {0};
    const tow_metadata_value yes = {.type = TOW_METADATA_BOOL, .integer = 1};
    tow_tensors *t;
    OK(tow_tensors_create(f->ctx, &t));
    OK(tow_tensors_set_metadata(t, "tokenizer.ggml.model", "llama"));
    set_strings(t, "tokenizer.ggml.tokens", 5, tokens);
    OK(tow_tensors_set_metadata_value(
        t, "tokenizer.ggml.scores",
        (tow_metadata_value){.type = TOW_METADATA_ARRAY, .element = TOW_METADATA_F32, .count = 5, .elements = scores}));
    assert_tokens(f, t, "ab", (const int32_t[]){1, 3, 4, 0}, 4);
    OK(tow_tensors_set_metadata_value(t, "tokenizer.ggml.add_eos_token", yes));
    assert_tokens(f, t, "a", (const int32_t[]){1, 3, 4, 2}, 4);
    OK(tow_tensors_set_metadata_value(t, "tokenizer.ggml.bos_token_id",
                                      (tow_metadata_value){.type = TOW_METADATA_U32, .integer = 2}));
    assert_tokens(f, t, "a", (const int32_t[]){2, 3, 4, 2}, 4);
    tow_tensors_free(t);
}

/* Names of llama.cpp for Llama 3's way to cut texts: without a first token, and with merges, for two of them. */
static void names_of_splittings(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"llama-bpe", "smaug-bpe", "dbrx"};
    static const char *const tokens[] = {"a", "b", "ab", "abb", "x"}, *const merges[] = {"a b"};
    for (size_t i = 0; i < 3; i++) {
        tow_tensors *t;
        OK(tow_tensors_create(f->ctx, &t));
        OK(tow_tensors_set_metadata(t, "tokenizer.ggml.model", "gpt2"));
        OK(tow_tensors_set_metadata(t, "tokenizer.ggml.pre", names[i]));
        set_strings(t, "tokenizer.ggml.tokens", 5, tokens);
        set_strings(t, "tokenizer.ggml.merges", 1, merges);
        OK(tow_tensors_set_metadata_value(t, "tokenizer.ggml.bos_token_id",
                                          (tow_metadata_value){.type = TOW_METADATA_U32, .integer = 4}));
        assert_tokens(f, t, "abb", i == 0 ? (const int32_t[]){4, 3} : (const int32_t[]){2, 1}, 2);
        tow_tensors_free(t);
    }
}

static void assert_decoded(tow_tokenizer *t, const int32_t *ids, size_t count, const char *wanted)
{
    char text[64];
    tow_tokenizer_decode(t, ids, count, false, text, sizeof text);
    assert_string_equal(text, wanted);
}

/* Tokens that are not used stand for no text, as in llama.cpp, and no text makes them. tokenizer.json has those alone
 * that merges are made of. */
static void unused_tokens(void **state)
{
    fixture *f = *state;
    static const char *const tokens[] = {"a", "[PAD1]", "b", "ab", "aba"}, *const merges[] = {"a b", "ab a"};
    const int32_t types[] = {1, 5, 1, 5, 1}, ids[] = {0, 1, 2, 3, 4};
    const tow_metadata_value value = {
        .type = TOW_METADATA_ARRAY, .element = TOW_METADATA_I32, .count = 5, .elements = types};
    tow_tensors *t;
    tow_tokenizer *tokenizer, *json;
    char path[256];
    snprintf(path, sizeof path, "%s/unused.json", f->directory);
    OK(tow_tensors_create(f->ctx, &t));
    OK(tow_tensors_set_metadata(t, "tokenizer.ggml.model", "gpt2"));
    set_strings(t, "tokenizer.ggml.tokens", 5, tokens);
    set_strings(t, "tokenizer.ggml.merges", 2, merges);
    OK(tow_tensors_set_metadata_value(t, "tokenizer.ggml.token_type", value));
    assert_tokens(f, t, "a[PAD1]aba", (const int32_t[]){0, 4}, 2);
    OK(tow_tokenizer_from_tensors(f->ctx, t, &tokenizer));
    assert_decoded(tokenizer, ids, 5, "ababa");
    OK(tow_tokenizer_write_json(f->ctx, t, path));
    OK(tow_tokenizer_read(f->ctx, path, &json));
    assert_null(tow_tokenizer_token(json, 1));
    assert_string_equal(tow_tokenizer_token(json, 3), "ab");
    assert_int_equal(tow_tokenizer_vocabulary_count(json), 5);
    assert_decoded(json, ids, 2, "a");
    tow_tokenizer_free(tokenizer);
    tow_tokenizer_free(json);
    tow_tensors_free(t);
}

/* ---- refused ----------------------------------------------------------------------------------------------------- */

static void expect(const fixture *f, const tow_tensors *t, tow_status status, const char *message)
{
    tow_tokenizer *tokenizer;
    assert_int_equal(tow_tokenizer_from_tensors(f->ctx, t, &tokenizer), status);
    assert_null(tokenizer);
    assert_message(f, message);
    assert_int_equal(tow_tokenizer_write_json(f->ctx, t, "refused.json"), status);
}

static void refused(void **state)
{
    fixture *f = *state;
    static const char *const tokens[] = {"a", "b", "ab", "ab"}, *const broken[] = {"\xff"}, *const merges[] = {"a b"},
                             *const one[] = {"ab"}, *const unknown[] = {"a c"};
    const float scores[] = {0, __builtin_nanf("")};
    tow_tensors *t;
    tow_tokenizer *tokenizer;
    OK(tow_tensors_create(f->ctx, &t));
    expect(f, t, TOW_NOT_FOUND, "the file has no tokenizer");
    OK(tow_tensors_set_metadata(t, "tokenizer.ggml.model", "bert"));
    expect(f, t, TOW_UNSUPPORTED, "expected gpt2 or llama, found 'bert'");
    OK(tow_tensors_set_metadata(t, "tokenizer.ggml.model", "gpt2"));
    OK(tow_tensors_set_metadata(t, "tokenizer.ggml.pre", "strange"));
    expect(f, t, TOW_UNSUPPORTED, "found 'strange'");
    OK(tow_tensors_set_metadata(t, "tokenizer.ggml.pre", "gpt-2"));
    expect(f, t, TOW_BAD_FORMAT, "tokenizer.ggml.tokens: expected an array of strings");
    set_strings(t, "tokenizer.ggml.tokens", 4, tokens);
    set_strings(t, "tokenizer.ggml.merges", 1, merges);
    expect(f, t, TOW_BAD_FORMAT, "'ab' has the id 3, but so has");
    set_strings(t, "tokenizer.ggml.tokens", 1, broken);
    expect(f, t, TOW_BAD_FORMAT, "expected token 0 in UTF-8");
    set_strings(t, "tokenizer.ggml.tokens", 3, tokens);
    set_strings(t, "tokenizer.ggml.merges", 1, one);
    expect(f, t, TOW_BAD_FORMAT, "tokenizer.ggml.merges: merge 1: expected two tokens, found 'ab'");
    set_strings(t, "tokenizer.ggml.merges", 1, unknown);
    expect(f, t, TOW_BAD_FORMAT, "'c' is not in the vocabulary");
    set_strings(t, "tokenizer.ggml.merges", 1, merges);
    OK(tow_tensors_set_metadata_value(t, "tokenizer.ggml.bos_token_id",
                                      (tow_metadata_value){.type = TOW_METADATA_U32, .integer = 3}));
    expect(f, t, TOW_BAD_FORMAT, "tokenizer.ggml.bos_token_id: expected the id of a token, 0 to 2");
    OK(tow_tensors_set_metadata_value(t, "tokenizer.ggml.bos_token_id",
                                      (tow_metadata_value){.type = TOW_METADATA_U32, .integer = 2}));
    OK(tow_tensors_set_metadata(t, "tokenizer.ggml.model", "llama"));
    expect(f, t, TOW_BAD_FORMAT, "tokenizer.ggml.scores: expected an array of numbers, found none");
    OK(tow_tensors_set_metadata_value(
        t, "tokenizer.ggml.scores",
        (tow_metadata_value){.type = TOW_METADATA_ARRAY, .element = TOW_METADATA_F32, .count = 2, .elements = scores}));
    expect(f, t, TOW_BAD_FORMAT, "expected an array of one element for each of 3 tokens");
    set_strings(t, "tokenizer.ggml.tokens", 2, tokens);
    OK(tow_tensors_set_metadata_value(t, "tokenizer.ggml.bos_token_id",
                                      (tow_metadata_value){.type = TOW_METADATA_U32, .integer = 1}));
    expect(f, t, TOW_BAD_FORMAT, "expected a score of token 1, found NaN");
    OK(tow_tensors_set_metadata(t, "tokenizer.ggml.model", "gpt2"));
    set_strings(t, "tokenizer.ggml.tokens", 3, tokens);
    OK(tow_tensors_set_metadata(t, "tokenizer.ggml.scores", "none"));
    expect(f, t, TOW_BAD_FORMAT, "tokenizer.ggml.scores");
    tow_tensors_free(t);
    OK(tow_gguf_mmap(f->ctx, FILES "gguf/tokenizers/gpt2.gguf", &t));
    OK(tow_tokenizer_from_tensors(f->ctx, t, &tokenizer));
    tow_tokenizer_free(tokenizer);
    tow_tensors_free(t);
}

static void allocations_fail_in_turn(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "spm"};
    for (size_t n = 0; n < 2; n++)
        for (long fail_at = 0, step = 1;; fail_at += step, step += step / 8 + 1) {
            counting c;
            tow_context_options options = counting_options(&c, fail_at);
            tow_context *ctx;
            tow_tensors *t = NULL;
            tow_tokenizer *tokenizer = NULL;
            char path[256];
            snprintf(path, sizeof path, FILES "gguf/tokenizers/%s.gguf", names[n]);
            if (tow_context_create(&options, &ctx) != TOW_OK) continue;
            tow_status status = tow_gguf_mmap(ctx, path, &t);
            if (status == TOW_OK) status = tow_tokenizer_from_tensors(ctx, t, &tokenizer);
            if (status == TOW_OK) status = tow_tokenizer_write_json(ctx, t, "/dev/null");
            tow_tokenizer_free(tokenizer);
            tow_tensors_free(t);
            tow_context_free(ctx);
            assert_int_equal(c.blocks, 0);
            assert_true(status == TOW_OK || status == TOW_OUT_OF_MEMORY);
            if (status == TOW_OK) break;
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(with_merges),
        TEST(with_scores),
        TEST(written),
        TEST(standard_ids),
        TEST(names_of_splittings),
        TEST(unused_tokens),
        TEST(refused),
        cmocka_unit_test(allocations_fail_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

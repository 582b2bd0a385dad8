/* Tokenizers against the package `tokenizers` (tests/oracle/tokenizers_golden.py): ids, offsets and decoded text of 1
 * MB of many languages and kinds, and of small texts; and random tokenizers.
 * Tests bpe.c, charsmap.c, decode.c, encode.c, normal_forms.c, normalize.c, split.c, text.c, trie.c, unicode.c,
 * unigram.c, vocabulary.c, wordlevel.c, wordpiece.c, words.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>

#include "tests/unit/support/io_files.h"
#include "tow/tow.h"

#define FILES TOW_TEST_DATA "/oracle/golden/tokenizers/"
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) fail_msg("%s: %s", #call, tow_context_error(f->ctx));                                    \
    } while (0)

enum {
    LONG = 1000000, /* bytes of the long text, at least */
    MOST_SNIPPETS = 256
};

/* ---- the long text ----------------------------------------------------------------------------------------------- */

static char *read_whole(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    rewind(file);
    char *text = malloc((size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    fclose(file);
    text[size] = '\0';
    return text;
}

static size_t put(uint32_t c, char *to)
{
    if (c < 0x80) return (size_t)(to[0] = (char)c, 1);
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    to[0] = (char)((more == 1 ? 0xc0 : more == 2 ? 0xe0 : 0xf0) | c >> (6 * more));
    for (int i = 1; i <= more; i++) to[i] = (char)(0x80 | (c >> (6 * (more - i)) & 0x3f));
    return (size_t)more + 1;
}

/* Resolves Python's unicode_escape in place; returns the length, as texts may have zero bytes. */
static size_t unescape(char *line)
{
    char *to = line;
    for (const char *c = line; *c; c++) {
        if (*c != '\\') {
            *to++ = *c;
            continue;
        }
        const char kind = *++c;
        const int digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
        char number[9] = {0};
        memcpy(number, c + 1, (size_t)digits);
        if (digits > 0)
            to += put((uint32_t)strtoul(number, NULL, 16), to);
        else
            *to++ = kind == 'n' ? '\n' : kind == 'r' ? '\r' : kind == 't' ? '\t' : kind;
        c += digits;
    }
    return (size_t)(to - line);
}

/* As long_text of the script does it. */
static char *make_long(size_t *length)
{
    static const char *const separators[] = {"", " ", "\n", "  ", "\r\n\r\n"};
    char *file = read_whole(FILES "snippets.txt"), *snippets[MOST_SNIPPETS], *text = malloc(LONG + 4096);
    size_t lengths[MOST_SNIPPETS], n = 0;
    uint64_t x = 1;
    assert_non_null(text);
    for (char *line = strtok(file, "\n"); line; line = strtok(NULL, "\n")) {
        assert_true(n < MOST_SNIPPETS);
        snippets[n] = line;
        lengths[n++] = unescape(line);
    }
    *length = 0;
    while (*length < LONG) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const size_t i = (x >> 33) % n;
        const char *separator = separators[(x >> 20) % 5];
        memcpy(text + *length, snippets[i], lengths[i]);
        *length += lengths[i];
        memcpy(text + *length, separator, strlen(separator));
        *length += strlen(separator);
    }
    free(file);
    return text;
}

/* ---- expectations ------------------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * UINT64_C(0x100000001b3); }
#define BASIS UINT64_C(0xcbf29ce484222325)

typedef struct golden {
    const fixture *f;
    tow_tokenizer *tokenizer;
    tow_encoding *encoding;
    const char *name;
    const char *text; /* the long one */
    size_t length;
} golden;

static char *decode(const golden *g, bool skip, size_t *length)
{
    const size_t count = tow_encoding_count(g->encoding);
    const int32_t *ids = tow_encoding_ids(g->encoding);
    *length = tow_tokenizer_decode(g->tokenizer, ids, count, skip, NULL, 0);
    char *text = malloc(*length + 1);
    assert_non_null(text);
    assert_int_equal(tow_tokenizer_decode(g->tokenizer, ids, count, skip, text, *length + 1), *length);
    assert_int_equal(text[*length], '\0');
    return text;
}

static void check_long(const golden *g, const char *line)
{
    const fixture *f = g->f;
    size_t count, decoded_length, length;
    uint64_t ids, offsets, decoded, found_ids = BASIS, found_offsets = BASIS, found_decoded = BASIS;
    assert_int_equal(
        sscanf(line, "%zu %" SCNx64 " %" SCNx64 " %zu %" SCNx64, &count, &ids, &offsets, &decoded_length, &decoded), 5);
    OK(tow_tokenizer_encode(g->tokenizer, g->text, g->length, NULL, g->encoding));
    const tow_token *tokens = tow_encoding_tokens(g->encoding);
    for (size_t i = 0; i < tow_encoding_count(g->encoding); i++) {
        assert_int_equal(tokens[i].id, tow_encoding_ids(g->encoding)[i]);
        found_ids = mix(found_ids, (uint64_t)tokens[i].id);
        found_offsets = mix(mix(found_offsets, tokens[i].begin), tokens[i].end);
    }
    char *text = decode(g, true, &length);
    for (size_t i = 0; i < length; i++) found_decoded = mix(found_decoded, (unsigned char)text[i]);
    free(text);
    if (tow_encoding_count(g->encoding) != count || found_ids != ids)
        fail_msg("%s: other ids of the long text", g->name);
    if (found_offsets != offsets) fail_msg("%s: other offsets in the long text", g->name);
    if (length != decoded_length || found_decoded != decoded)
        fail_msg("%s: the long text is decoded otherwise", g->name);
}

/* Hexadecimal, "-": nothing. */
static size_t from_hex(const char *hex, char *text)
{
    size_t n = 0;
    for (; *hex != '-' && hex[0]; hex += 2) {
        const char digits[3] = {hex[0], hex[1], '\0'};
        text[n++] = (char)strtoul(digits, NULL, 16);
    }
    return n;
}

static void check_decoded(const golden *g, bool skip, const char *hex)
{
    char want[4096];
    size_t length;
    char *found = decode(g, skip, &length);
    const size_t n = from_hex(hex, want);
    if (n != length || memcmp(found, want, n) != 0)
        fail_msg("%s: decoded '%s', expected '%.*s'", g->name, found, (int)n, want);
    free(found);
}

static void check_text(const golden *g, char *line)
{
    const fixture *f = g->f;
    char text[1024], *save;
    const char *hex = strtok_r(line, " ", &save), *skipped = strtok_r(NULL, " ", &save),
               *all = strtok_r(NULL, " ", &save);
    const size_t length = from_hex(hex, text);
    size_t i = 0;
    OK(tow_tokenizer_encode(g->tokenizer, text, length, NULL, g->encoding));
    const tow_token *tokens = tow_encoding_tokens(g->encoding);
    for (const char *word; (word = strtok_r(NULL, " ", &save)); i++) {
        int id;
        size_t begin, end;
        assert_int_equal(sscanf(word, "%d:%zu:%zu", &id, &begin, &end), 3);
        if (i >= tow_encoding_count(g->encoding) || tokens[i].id != id || tokens[i].begin != begin ||
            tokens[i].end != end)
            fail_msg("%s: token %zu of '%.*s': expected %s", g->name, i, (int)length, text, word);
    }
    assert_int_equal(tow_encoding_count(g->encoding), i);
    check_decoded(g, true, skipped);
    check_decoded(g, false, all);
}

static void check_pair(const golden *g, char *line)
{
    const fixture *f = g->f;
    char *save = NULL;
    size_t i = 0;
    OK(tow_tokenizer_encode(g->tokenizer, "first it's", 10,
                            &TOW_ENCODE_OPTIONS(.pair = "second one", .pair_length = 10), g->encoding));
    for (const char *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save), i++) {
        int id, type;
        size_t begin, end;
        assert_int_equal(sscanf(word, "%d:%d:%zu:%zu", &id, &type, &begin, &end), 4);
        const tow_token *token = &tow_encoding_tokens(g->encoding)[i];
        if (i >= tow_encoding_count(g->encoding) || token->id != id || token->type != type || token->begin != begin ||
            token->end != end)
            fail_msg("%s: token %zu of the pair: expected %s", g->name, i, word);
    }
    assert_int_equal(tow_encoding_count(g->encoding), i);
}

static void equal_to_file(const fixture *f, const char *file, size_t n_tokenizers, size_t n_texts)
{
    golden g = {.f = f};
    char name[64], path[256], *expected = read_whole(file), *save, *text = make_long(&g.length);
    size_t tokenizers = 0, texts = 0;
    g.text = text;
    g.name = name;
    OK(tow_encoding_create(f->ctx, &g.encoding));
    for (char *line = strtok_r(expected, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        int used = 0;
        char kind[8];
        assert_int_equal(sscanf(line, "%7s %63s %n", kind, name, &used), 2);
        if (strcmp(kind, "long") == 0) {
            tow_tokenizer_free(g.tokenizer);
            snprintf(path, sizeof path, FILES "%s.json", name);
            OK(tow_tokenizer_read(f->ctx, path, &g.tokenizer));
            check_long(&g, line + used);
            tokenizers++;
        } else if (strcmp(kind, "text") == 0) {
            check_text(&g, line + used);
            texts++;
        } else {
            check_pair(&g, line + used);
        }
    }
    assert_int_equal(tokenizers, n_tokenizers);
    assert_int_equal(texts, n_tokenizers * n_texts);
    tow_tokenizer_free(g.tokenizer);
    tow_encoding_free(g.encoding);
    free(expected);
    free(text);
}

static void equal_to_the_package(void **state) { equal_to_file(*state, FILES "expected.txt", 11, 45); }

/* Unigram as T5, ALBERT and XLM-R have it, and WordLevel (tests/oracle/tokenizers_more.py). */
static void more_models_equal_to_the_package(void **state) { equal_to_file(*state, FILES "more.txt", 4, 43); }

/* Small tokenizers of random parts, with random texts. */
static void random_tokenizers_equal_to_the_package(void **state)
{
    const fixture *f = *state;
    golden g = {.f = f};
    char *lines = read_whole(FILES "random.txt"), *save, name[16];
    size_t tokenizers = 0;
    OK(tow_encoding_create(f->ctx, &g.encoding));
    for (char *line = strtok_r(lines, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "config ", 7) == 0) {
            tow_tokenizer_free(g.tokenizer);
            snprintf(name, sizeof name, "random %zu", ++tokenizers);
            g.name = name;
            OK(tow_tokenizer_parse(f->ctx, name, line + 7, strlen(line + 7), &g.tokenizer));
        } else {
            check_text(&g, line + strlen("text - "));
        }
    }
    assert_int_equal(tokenizers, 158);
    tow_tokenizer_free(g.tokenizer);
    tow_encoding_free(g.encoding);
    free(lines);
}

/* The same vocabulary in other files: vocab.json with merges.txt, and vocab.txt. */
static void other_files(void **state)
{
    const fixture *f = *state;
    size_t length;
    char *text = make_long(&length);
    tow_encoding *a, *b;
    OK(tow_encoding_create(f->ctx, &a));
    OK(tow_encoding_create(f->ctx, &b));
    for (int bert = 0; bert < 2; bert++) {
        tow_tokenizer *whole, *parts;
        OK(tow_tokenizer_read(f->ctx, bert ? FILES "bert_cased.json" : FILES "gpt2.json", &whole));
        OK(bert ? tow_tokenizer_read_wordpiece(f->ctx, FILES "vocab.txt", false, &parts)
                : tow_tokenizer_read(f->ctx, FILES "vocab.json", &parts));
        assert_int_equal(tow_tokenizer_vocabulary_count(whole), tow_tokenizer_vocabulary_count(parts));
        OK(tow_tokenizer_encode(whole, text, length, NULL, a));
        OK(tow_tokenizer_encode(parts, text, length, NULL, b));
        assert_int_equal(tow_encoding_count(a), tow_encoding_count(b));
        assert_memory_equal(tow_encoding_ids(a), tow_encoding_ids(b), tow_encoding_count(a) * sizeof(int32_t));
        assert_memory_equal(tow_encoding_tokens(a), tow_encoding_tokens(b), tow_encoding_count(a) * sizeof(tow_token));
        tow_tokenizer_free(whole);
        tow_tokenizer_free(parts);
    }
    tow_encoding_free(a);
    tow_encoding_free(b);
    free(text);
}

/* ---- truncation and padding (tests/oracle/tokenizers_cut.py) ----------------------------------------------------- */

static void expect_tokens(const tow_encoding *encoding, const char *line, const char *tokens)
{
    const tow_token *found = tow_encoding_tokens(encoding);
    size_t n = 0;
    int id, type, begin, end, special, used;
    for (; sscanf(tokens, " %d:%d:%d:%d:%d%n", &id, &type, &begin, &end, &special, &used) == 5; tokens += used, n++)
        if (n >= tow_encoding_count(encoding) || found[n].id != id || found[n].type != type ||
            found[n].begin != (size_t)begin || found[n].end != (size_t)end || found[n].special != (special != 0) ||
            tow_encoding_ids(encoding)[n] != id)
            fail_msg("token %zu of %s", n, line);
    if (n != tow_encoding_count(encoding)) fail_msg("%zu tokens of %s", tow_encoding_count(encoding), line);
}

static void unescape_spaces(char *text)
{
    if (strcmp(text, ".") == 0) text[0] = '\0';
    for (; *text; text++)
        if (*text == '_') *text = ' ';
}

static void expect_cut(const fixture *f, tow_tokenizer *tokenizer, const char *line, tow_encoding *encoding)
{
    char side[8], pad_side[8], first[64], second[64];
    int most, strategy, length, multiple, special, at;
    assert_int_equal(sscanf(line, "%*s %d %d %7s %d %d %7s %d %63s %63[^:]:%n", &most, &strategy, side, &length,
                            &multiple, pad_side, &special, first, second, &at),
                     9);
    const bool pair = strcmp(second, "-") != 0;
    unescape_spaces(first);
    unescape_spaces(second);
    const tow_encode_options options =
        TOW_ENCODE_OPTIONS(.no_special = !special, .pair = pair ? second : NULL,
                           .pair_length = pair ? strlen(second) : 0, .max_length = (size_t)most,
                           .truncation = (tow_truncation)strategy, .truncate_left = strcmp(side, "left") == 0,
                           .pad_length = (size_t)length, .pad_multiple = (size_t)multiple,
                           .pad_left = strcmp(pad_side, "left") == 0, .pad_id = length || multiple ? 3 : 0,
                           .pad_type = length || multiple ? 1 : 0);
    const tow_status status = tow_tokenizer_encode(tokenizer, first, strlen(first), &options, encoding);
    if (strstr(line + at, "error")) {
        if (status != TOW_INVALID_ARGUMENT) fail_msg("status %d for %s", status, line);
        assert_int_equal(tow_encoding_count(encoding), 0);
        return;
    }
    if (status) fail_msg("%s for %s", tow_context_error(f->ctx), line);
    expect_tokens(encoding, line, line + at);
}

static void cut_and_padded(void **state)
{
    const fixture *f = *state;
    char *lines = read_whole(FILES "cut.txt"), *rest = lines;
    tow_encoding *encoding;
    tow_tokenizer *tokenizers[2];
    int n = 0;
    OK(tow_encoding_create(f->ctx, &encoding));
    OK(tow_tokenizer_read(f->ctx, FILES "bert_uncased.json", &tokenizers[0]));
    OK(tow_tokenizer_read(f->ctx, FILES "roberta.json", &tokenizers[1]));
    for (char *line; (line = strsep(&rest, "\n")) && *line; n++)
        expect_cut(f, tokenizers[line[0] == 'r'], line, encoding);
    assert_int_equal(n, 2 * (3 * 3 * 2 * 2 * 5 + 2 * 2 * 2 * 5 + 5));
    tow_tokenizer_free(tokenizers[0]);
    tow_tokenizer_free(tokenizers[1]);
    tow_encoding_free(encoding);
    free(lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(equal_to_the_package), TEST(more_models_equal_to_the_package),
                                       TEST(random_tokenizers_equal_to_the_package), TEST(other_files),
                                       TEST(cut_and_padded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Regular expressions by PCRE2: as Oniguruma means them, within a number of steps. Skipped where the library has no
 * PCRE2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "src/text/regex.h"
#include "tests/unit/support/io_files.h"
#include "tow/tow.h"

/* False without PCRE2, where the message says so. */
static bool is_there(const fixture *f)
{
    tow__regex *r;
    const tow_status status = tow__regex_create(f->ctx, "a", &r);
    tow__regex_free(r);
    if (status == TOW_OK) return true;
    assert_int_equal(status, TOW_UNSUPPORTED);
    assert_message(f, "PCRE2, without which this library was built");
    return false;
}

static void matches(void **state)
{
    const fixture *f = *state;
    /* the first match; the values are those of the package tokenizers */
    static const struct {
        const char *pattern, *text;
        size_t begin, end;
    } cases[] = {
        {"\\w+", "-e\xcc\x81_1\xc2\xbd-", 1, 8}, /* marks, the fraction 1/2, but no letters alone */
        {"[^\\w]", "e\xcc\x81-", 3, 4},
        {"\\s", "a\xe1\xa0\x8e\xc2\x85", 4, 6}, /* U+180E is no space, U+0085 is one */
        {"\\bb",
         "ab e\xcc\x81"
         "b b",
         8, 9},
        {"^b", "a\rb\nb", 4, 5},
        {"a$", "a\ra\n", 2, 3},
        {"[^(\\s|[.,!?])]+", "(,ab c", 2, 4}, /* a set in a set */
        {"\\h+", "xgAf0", 2, 5},
        {"(?i:\xc3\xa9)", "e\xc3\x89", 1, 3},
        {"[[:alpha:]]+", "1a\xcd\x85", 1, 4},
        {"\\u00e9", "e\xc3\xa9", 1, 3},
        {"\\p{L}+(?!\\S)", "ab1 cd", 4, 6},
    };
    if (!is_there(f)) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow__regex *r;
        size_t begin = 0, end = 0;
        const size_t length = strlen(cases[i].text);
        if (tow__regex_create(f->ctx, cases[i].pattern, &r) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
        tow__regex_allow(r, length);
        if (!tow__regex_find(r, cases[i].text, 0, 0, length, &begin, &end) || begin != cases[i].begin ||
            end != cases[i].end)
            fail_msg("'%s': found %zu to %zu", cases[i].pattern, begin, end);
        tow__regex_free(r);
    }
}

static void refused(void **state)
{
    const fixture *f = *state;
    static const char *const cases[][2] = {
        {"a*", "matches a text of no characters"},
        {"(", "is no regular expression"},
        {"a\\", "ends with a backslash"},
        {"[a&&b]", "an intersection of sets"},
        {"[a[^b]]", "a negated set in a set"},
        {"[]", "an empty set"},
        {"(*UTF)a", "a verb"},
        {"(?m:.)a", "a flag other than"},
        {"\\Ra", "an escape"},
        {"[\\S]", "a negated class in a set"},
        {"[[:punct:]]", "a class of another name"},
        {"(?|a)", "a group of another kind"},
        {"(?:(?:a{500}){500}){500}", "is no regular expression"},
        {"\\u12", "expected four digits"},
    };
    if (!is_there(f)) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow__regex *r;
        const tow_status status = tow__regex_create(f->ctx, cases[i][0], &r);
        if (status != TOW_BAD_FORMAT && status != TOW_UNSUPPORTED) fail_msg("'%s': status %d", cases[i][0], status);
        assert_message(f, cases[i][1]);
        assert_null(r);
    }
}

/* Exponentially and polynomially many ways end with an error, and honest patterns do not. */
static void effort_is_bounded(void **state)
{
    const fixture *f = *state;
    enum {
        LENGTH = 20000
    };
    static const char *const hostile[] = {"(a|a)+b", "(a+)+[bc]", "a*a*a*a*a*[bc]", "(?:a?){30}a{30}[bc]", "a*[bc]"};
    static const char honest[] =
        "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|"
        "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
    if (!is_there(f)) skip();
    char *text = malloc(LENGTH);
    assert_non_null(text);
    for (size_t i = 0; i <= sizeof hostile / sizeof *hostile; i++) {
        const bool is_honest = i == sizeof hostile / sizeof *hostile;
        for (int spaces = 0; spaces <= is_honest; spaces++) {
            tow__regex *r;
            size_t begin, end = 0;
            memset(text, spaces ? ' ' : 'a', LENGTH);
            if (tow__regex_create(f->ctx, is_honest ? honest : hostile[i], &r) != TOW_OK)
                fail_msg("%s", tow_context_error(f->ctx));
            tow__regex_allow(r, LENGTH);
            assert_int_equal(tow__regex_find(r, text, 0, 0, LENGTH, &begin, &end), is_honest);
            assert_int_equal(tow__regex_status(r), is_honest ? TOW_OK : TOW_INVALID_ARGUMENT);
            if (!is_honest) assert_message(f, "takes too many steps for this text");
            if (is_honest) assert_int_equal(end, LENGTH);
            tow__regex_free(r);
        }
    }
    free(text);
}

/* As a splitter, a normalizer and a decoder. */
static void in_a_tokenizer(void **state)
{
    const fixture *f = *state;
    static const char file[] =
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\"b\"},"
        "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[0-9]{2}\"},\"behavior\":\"Contiguous\","
        "\"invert\":false},"
        "\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"b+\"},\"content\":\"-\"},"
        "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"abbb\":1,\"1234\":2}}}";
    tow_tokenizer *t;
    tow_encoding *e;
    char text[16];
    if (!is_there(f)) skip();
    if (tow_tokenizer_parse(f->ctx, "t", file, strlen(file), &t) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
    assert_int_equal(tow_encoding_create(f->ctx, &e), TOW_OK);
    assert_int_equal(tow_tokenizer_encode(t, "ab   b12345", 11, NULL, e), TOW_OK);
    assert_int_equal(tow_encoding_count(e), 3);
    assert_memory_equal(tow_encoding_ids(e), ((int32_t[]){1, 2, 0}), 3 * sizeof(int32_t));
    assert_int_equal(tow_encoding_tokens(e)[1].begin, 6);
    assert_int_equal(tow_encoding_tokens(e)[1].end, 10);
    assert_int_equal(tow_tokenizer_decode(t, (int32_t[]){1, 2}, 2, true, text, sizeof text), 6);
    assert_string_equal(text, "a-1234");
    tow_encoding_free(e);
    tow_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(matches), TEST(refused), TEST(effort_is_bounded), TEST(in_a_tokenizer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

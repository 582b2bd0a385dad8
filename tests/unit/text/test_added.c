/* Added tokens: the automaton finds what a search at every place finds, in a number of steps that the text bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/text/tokenizer.h"
#include "tests/unit/support/plain_context.h"

typedef struct places {
    size_t n;
    struct {
        size_t begin, end;
        int32_t id;
    } items[512];
} places;

static tow_status note(void *user, size_t begin, size_t end, int32_t id)
{
    places *p = user;
    if (p->n > 0 && id == TOW__NO_ID) assert_true(begin >= p->items[p->n - 1].begin);
    p->items[p->n].begin = begin;
    p->items[p->n].end = end;
    p->items[p->n++].id = id;
    return TOW_OK;
}

/* The longest token at the first place where one is, then from its end on. */
static void search(size_t count, char tokens[][8], const char *text, size_t length, places *p)
{
    size_t done = 0;
    p->n = 0;
    for (size_t at = 0; at < length;) {
        size_t best = 0, which = 0;
        for (size_t i = 0; i < count; i++) {
            const size_t n = strlen(tokens[i]);
            if (n > best && length - at >= n && memcmp(text + at, tokens[i], n) == 0) {
                best = n;
                which = i;
            }
        }
        if (best == 0) {
            at++;
            continue;
        }
        if (at > done) note(p, done, at, TOW__NO_ID);
        note(p, at, at + best, (int32_t)which);
        done = at += best;
    }
    if (done < length) note(p, done, length, TOW__NO_ID);
}

static uint64_t draw(uint64_t *x) { return (*x = *x * UINT64_C(6364136223846793005) + 1442695040888963407) >> 33; }

static void equal_to_a_search(void **state)
{
    (void)state;
    uint64_t x = 1;
    for (int round = 0; round < 2000; round++) {
        tow__added_set set = {0};
        char tokens[12][8], text[40];
        places found = {0}, want;
        const size_t count = 1 + draw(&x) % 12, length = draw(&x) % 40, letters = 1 + draw(&x) % 3;
        for (size_t i = 0; i < count; i++) {
            const size_t n = 1 + draw(&x) % 7;
            for (size_t k = 0; k < n; k++) tokens[i][k] = (char)('a' + draw(&x) % letters);
            tokens[i][n] = '\0';
            OK(tow__added_push(ctx, &set, (tow__added){.content = tokens[i], .length = n, .id = (int32_t)i}));
        }
        for (size_t i = 0; i < length; i++) text[i] = (char)('a' + draw(&x) % letters);
        OK(tow__added_finish(ctx, &set));
        OK(tow__added_split(&set, text, length, note, &found));
        search(count, tokens, text, length, &want);
        assert_int_equal(found.n, want.n);
        assert_memory_equal(found.items, want.items, found.n * sizeof *found.items);
        tow__added_free(&set);
    }
}

static tow_status ignore(void *user, size_t begin, size_t end, int32_t id)
{
    (void)user, (void)begin, (void)end, (void)id;
    return TOW_OK;
}

/* 20,000 tokens with a common beginning and a common end, and a text that is nothing but beginnings, or ends, of them.
 * */
static void steps_are_bounded(void **state)
{
    enum {
        COUNT = 20000,
        COMMON = 50,
        LENGTH = 100000
    };
    (void)state;
    tow__added_set set = {0};
    char *tokens = malloc(COUNT * 128), *text = malloc(LENGTH);
    assert_true(tokens && text);
    for (int i = 0; i < COUNT; i++) {
        char *token = tokens + 128 * i;
        memset(token, 'a', 2 * COMMON + 5);
        snprintf(token + COMMON, 12, "%05d", i);
        token[COMMON + 5] = 'a';
        OK(tow__added_push(ctx, &set, (tow__added){.content = token, .length = 2 * COMMON + 5, .id = i}));
    }
    OK(tow__added_finish(ctx, &set));
    assert_true(set.trie.count < COMMON + COUNT * (COMMON + 10));
    for (int pattern = 0; pattern < 3; pattern++) {
        memset(text, 'a', LENGTH);
        for (int i = 0; i < LENGTH && pattern > 0; i += pattern == 1 ? 49 : 53) text[i] = '0';
        set.steps = 0;
        OK(tow__added_split(&set, text, LENGTH, ignore, NULL));
        assert_true(set.steps <= 2 * LENGTH);
    }
    tow__added_free(&set);
    free(tokens);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(equal_to_a_search, setup, teardown),
        cmocka_unit_test_setup_teardown(steps_are_bounded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

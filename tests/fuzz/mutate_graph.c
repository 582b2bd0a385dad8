/* Mutator of graph texts: besides libFuzzer's own mutations it replaces numbers, element types, primitives and
 * operands, takes equations away and brings equations of other inputs in. Afterwards it mostly repairs what the reader
 * complains about: declared types, names that are unknown or defined twice. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/graph/primitive.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"

enum {
    REPAIRS = 24
};

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

typedef struct token {
    size_t at, length;
} token;

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The word or number that begins at or behind `at`; length 0: there is none. */
static token token_from(const mutant *m, size_t at)
{
    while (at < m->size && !in_word(m->data[at])) at++;
    token t = {.at = at};
    while (at < m->size && in_word(m->data[at])) at++, t.length++;
    return t;
}

static bool is_number(const mutant *m, token t) { return isdigit((unsigned char)m->data[t.at]) != 0; }

static bool is_dtype(const mutant *m, token t)
{
    for (int i = 1; i < TOW_DTYPE_END; i++) {
        const char *name = tow_dtype_name((tow_dtype)i);
        if (strlen(name) == t.length && memcmp(name, m->data + t.at, t.length) == 0) return true;
    }
    return false;
}

static bool is_primitive(const mutant *m, token t) { return tow__primitive_find(m->data + t.at, t.length) != NULL; }

static bool is_result(const mutant *m, token t)
{
    return !is_number(m, t) && t.at + t.length < m->size && m->data[t.at + t.length] == ':';
}

static bool is_word(const mutant *m, token t) { return !is_number(m, t); }

/* One of the tokens of a kind, each as likely as the others; length 0: there is none. */
static token pick(mutant *m, bool (*is_kind)(const mutant *m, token t))
{
    token picked = {0};
    size_t n = 0;
    for (token t = token_from(m, 0); t.length > 0; t = token_from(m, t.at + t.length))
        if (is_kind(m, t) && mutant_random(m, ++n) == 0) picked = t;
    return picked;
}

/* The token becomes `text`; if `everywhere`, so do all equal ones. */
static void rewrite(mutant *m, token old, const char *text, bool everywhere)
{
    char word[64];
    if (old.length == 0 || old.length >= sizeof word) return;
    memcpy(word, m->data + old.at, old.length);
    if (!everywhere) {
        mutant_replace(m, old.at, old.length, text, strlen(text));
        return;
    }
    for (token t = token_from(m, 0); t.length > 0; t = token_from(m, t.at + t.length)) {
        if (t.length != old.length || memcmp(word, m->data + t.at, t.length) != 0) continue;
        if (!mutant_replace(m, t.at, t.length, text, strlen(text))) return;
        t.length = strlen(text);
    }
}

/* ---- mutations --------------------------------------------------------------------------------------------------- */

static void change_number(mutant *m)
{
    static const char *const numbers[] = {"0",
                                          "1",
                                          "2",
                                          "3",
                                          "4",
                                          "5",
                                          "6",
                                          "7",
                                          "8",
                                          "12",
                                          "16",
                                          "17",
                                          "33",
                                          "64",
                                          "129",
                                          "1000",
                                          "65536",
                                          "2147483647",
                                          "4294967296",
                                          "1152921504606846975",
                                          "9223372036854775807"};
    const size_t small = 12, all = sizeof numbers / sizeof numbers[0];
    rewrite(m, pick(m, is_number), numbers[mutant_random(m, mutant_random(m, 4) ? small : all)],
            mutant_random(m, 4) > 0);
}

static void change_dtype(mutant *m)
{
    rewrite(m, pick(m, is_dtype), tow_dtype_name((tow_dtype)(1 + mutant_random(m, TOW_DTYPE_END - 1))),
            mutant_random(m, 2) == 0);
}

/* By one with the same parameters and numbers of operands and results, mostly. */
static void change_primitive(mutant *m)
{
    const token t = pick(m, is_primitive);
    const tow_primitive *old = t.length > 0 ? tow__primitive_find(m->data + t.at, t.length) : NULL;
    for (int i = 0; old != NULL && i < 100; i++) {
        const tow_primitive *new = tow__primitives[mutant_random(m, tow__primitive_count)];
        const bool alike = new->params == old->params &&new->inputs == old->inputs &&new->outputs == old->outputs;
        if (new == old || (!alike && i < 90)) continue;
        rewrite(m, t, new->name, false);
        return;
    }
}

static void change_word(mutant *m)
{
    const token t = pick(m, is_word), from = pick(m, is_result);
    char word[64];
    if (from.length == 0 || from.length >= sizeof word) return;
    memcpy(word, m->data + from.at, from.length);
    word[from.length] = '\0';
    rewrite(m, t, word, false);
}

static size_t line_end(const mutant *m, size_t at)
{
    const char *end = memchr(m->data + at, '\n', m->size - at);
    return end != NULL ? (size_t)(end - m->data) + 1 : m->size;
}

static size_t line_begin(const mutant *m, size_t at)
{
    while (at > 0 && m->data[at - 1] != '\n') at--;
    return at;
}

static void drop_line(mutant *m)
{
    const token t = pick(m, is_result);
    const size_t begin = line_begin(m, t.at);
    if (t.length > 0) mutant_replace(m, begin, line_end(m, begin) - begin, "", 0);
}

static void mutate_line(mutant *m)
{
    const token t = pick(m, is_result);
    const size_t begin = line_begin(m, t.at);
    if (t.length > 0) mutant_mutate(m, begin, line_end(m, begin) - begin);
}

/* The line of a result of `from`, before another one. */
static void bring_line(mutant *m, mutant *from)
{
    const token t = pick(from, is_result), place = pick(m, is_result);
    if (t.length == 0 || place.length == 0) return;
    const size_t begin = line_begin(from, t.at), length = line_end(from, begin) - begin;
    char *line = malloc(length + 1);
    if (line == NULL) return;
    memcpy(line, from->data + begin, length);
    mutant_replace(m, line_begin(m, place.at), 0, line, length);
    free(line);
}

static void repeat_line(mutant *m) { bring_line(m, m); }

/* One output more. */
static void add_output(mutant *m)
{
    const token t = pick(m, is_result);
    char text[80];
    if (t.length == 0 || t.length > 60) return;
    snprintf(text, sizeof text, ", %.*s", (int)t.length, m->data + t.at);
    for (size_t at = m->size; at > 3; at--)
        if (memcmp(m->data + at - 3, ") }", 3) == 0) {
            mutant_replace(m, at - 3, 0, text, strlen(text));
            return;
        }
}

/* ---- repair ------------------------------------------------------------------------------------------------------ */

static size_t offset_of(const mutant *m, size_t line, size_t column)
{
    size_t at = 0;
    while (line > 1 && at < m->size) at = line_end(m, at), line--;
    return at + column - 1 < m->size ? at + column - 1 : m->size;
}

/* "name:type" at `at` gets the type that stands at the end of the message. */
static bool repair_type(mutant *m, size_t at, const char *message)
{
    const char *type = strstr(message, "the operation yields ");
    const char *colon = memchr(m->data + at, ':', m->size - at);
    const char *end = colon != NULL ? memchr(colon, ']', (size_t)(m->data + m->size - colon)) : NULL;
    if (type == NULL || end == NULL) return false;
    type += strlen("the operation yields ");
    return mutant_replace(m, (size_t)(colon + 1 - m->data), (size_t)(end - colon), type, strlen(type));
}

static bool repair_name(mutant *m, size_t at, const char *message)
{
    char word[64] = "";
    const token old = token_from(m, at), other = pick(m, is_result);
    if (strstr(message, "is defined twice") != NULL)
        snprintf(word, sizeof word, "q%zu", mutant_random(m, 1000));
    else if (strstr(message, "is not defined in this graph") != NULL && other.length < sizeof word)
        memcpy(word, m->data + other.at, other.length);
    if (word[0] == '\0' || old.at != at) return false;
    rewrite(m, old, word, false);
    return true;
}

/* One complaint of the reader less; false if it has none, or one that cannot be helped. */
static bool repair(mutant *m)
{
    tow_context *ctx = fuzz_mutators_context();
    tow_graph *graph = NULL;
    size_t line, column;
    bool done = false;
    char *text = fuzz_text((const uint8_t *)m->data, m->size);
    const char *message = tow_context_error(ctx);
    if (tow_graph_parse(ctx, text, &graph) != TOW_OK && sscanf(message, "line %zu, column %zu", &line, &column) == 2) {
        const size_t at = offset_of(m, line, column);
        done = repair_type(m, at, message) || repair_name(m, at, message);
    }
    tow_graph_release(graph);
    tow_context_free(ctx);
    free(text);
    return done;
}

/* ---- what libFuzzer calls ---------------------------------------------------------------------------------------- */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    static void (*const mutations[])(mutant * m) = {change_number, change_number, change_dtype, change_primitive,
                                                    change_word,   change_word,   drop_line,    mutate_line,
                                                    repeat_line,   add_output};
    mutant m = {.data = (char *)data, .size = size, .max_size = max_size, .random = (seed + UINT64_C(1)) << 20};
    if (mutant_random(&m, 8) == 0) {
        m.size = LLVMFuzzerMutate(data, size, max_size);
        return m.size;
    }
    for (size_t n = 1 + mutant_random(&m, 3); n > 0; n--)
        mutations[mutant_random(&m, sizeof mutations / sizeof mutations[0])](&m);
    for (int i = 0; i < REPAIRS && repair(&m); i++) {}
    return m.size;
}

/* Not declared by libFuzzer's own header, which is for C++. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *out,
                                 size_t max_size, unsigned seed);

/* Lines of b in a. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *out,
                                 size_t max_size, unsigned seed)
{
    mutant m = {.data = (char *)out, .size = a_size, .max_size = max_size, .random = (seed + UINT64_C(1)) << 20};
    mutant from = {.data = (char *)(uintptr_t)b, .size = b_size, .max_size = b_size, .random = m.random + 1};
    if (a_size > max_size) return 0;
    memcpy(out, a, a_size);
    for (size_t n = 1 + mutant_random(&m, 3); n > 0; n--) bring_line(&m, &from);
    for (int i = 0; i < REPAIRS && repair(&m); i++) {}
    return m.size;
}

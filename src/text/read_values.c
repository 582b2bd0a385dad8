/* Values of tokenizer.json, each of the kind that is expected. A value of another kind is an error, as silence would
 * read a file otherwise than its author meant it. */
#include "src/text/read.h"

/* Values that may be null. */
static bool is_optional(const char *key)
{
    static const char *const keys[] = {"unk_token",          "unk_id",        "continuing_subword_prefix",
                                       "end_of_word_suffix", "fuse_unk",      "byte_fallback",
                                       "ignore_merges",      "strip_accents", "pad_to_multiple_of"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

/* The member if it is of the kind; NULL: there is none, or another, which is remembered. */
static const tow__node *take(tow__token_reader *r, const tow__node *object, const char *key, tow__node_kind kind,
                             const char *expected)
{
    const tow__node *n = tow__dom_member(&r->dom, object, key);
    if (!n || n->kind == kind) return n;
    if (n->kind == TOW__NODE_NULL && is_optional(key)) return NULL;
    if (r->wrong == TOW_OK)
        r->wrong =
            tow__refuse(r, TOW_BAD_FORMAT, "expected \"%.60s\" to be %s, found %s", key, expected, tow__dom_kind(n));
    return NULL;
}

const char *tow__take_string(tow__token_reader *r, const tow__node *object, const char *key, const char *otherwise)
{
    const tow__node *n = take(r, object, key, TOW__NODE_STRING, "a string");
    return n ? n->string : otherwise;
}

bool tow__take_bool(tow__token_reader *r, const tow__node *object, const char *key, bool otherwise)
{
    const tow__node *n = take(r, object, key, TOW__NODE_BOOL, "true or false");
    return n ? n->boolean : otherwise;
}

int64_t tow__take_integer(tow__token_reader *r, const tow__node *object, const char *key, int64_t otherwise)
{
    const tow__node *n = take(r, object, key, TOW__NODE_NUMBER, "an integer");
    if (n && !n->integral && r->wrong == TOW_OK)
        r->wrong = tow__refuse(r, TOW_BAD_FORMAT, "expected \"%.60s\" to be an integer, found another number", key);
    return n && n->integral ? n->integer : otherwise;
}

const tow__node *tow__take_list(tow__token_reader *r, const tow__node *object, const char *key)
{
    return take(r, object, key, TOW__NODE_ARRAY, "a list");
}

const tow__node *tow__take_object(tow__token_reader *r, const tow__node *object, const char *key)
{
    return take(r, object, key, TOW__NODE_OBJECT, "an object");
}

int tow__take_choice(tow__token_reader *r, const tow__node *object, const char *key, const char *const *names,
                     int otherwise)
{
    const char *name = tow__take_string(r, object, key, names[otherwise]);
    for (int i = 0; names[i]; i++)
        if (strcmp(name, names[i]) == 0) return i;
    if (r->wrong == TOW_OK)
        r->wrong = tow__refuse(r, TOW_UNSUPPORTED, "expected \"%.60s\" to be %s, %s, ..., found '%.100s'", key,
                               names[0], names[1], name);
    return otherwise;
}

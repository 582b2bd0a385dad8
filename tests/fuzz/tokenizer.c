/* Fuzz target: bytes as a tokenizer.json; what is read encodes texts and decodes what comes out. Offsets are in order
 * within the text, and ids in the vocabulary. */
#include "tow/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static const char text[] = "ab  The caf\xc3\xa9's 123 \xe2\x96\x81"
                           "e\xcc\x81\n\xf0\x9f\x98\x80<s>ababababababababababababababababababababababababab";

static void check(tow_context *ctx, tow_tokenizer *t, const tow_encode_options *options)
{
    tow_encoding *e = NULL;
    char decoded[64];
    fuzz_expect(ctx, tow_encoding_create(ctx, &e), "an encoding");
    /* a text may have a part that no token stands for, or take too many steps of a regular expression */
    const tow_status status = tow_tokenizer_encode(t, text, sizeof text - 1, options, e);
    if (!fuzz_succeeds(ctx, status) && status != TOW_INVALID_ARGUMENT) fuzz_expect(ctx, status, "encoding");
    for (size_t i = 0; i < tow_encoding_count(e); i++) {
        const tow_token *token = &tow_encoding_tokens(e)[i];
        if (!tow_tokenizer_token(t, token->id)) fuzz_fail("the id %d is not in the vocabulary", (int)token->id);
        if (token->begin > token->end || token->end >= sizeof text)
            fuzz_fail("offsets %zu to %zu", token->begin, token->end);
    }
    tow_tokenizer_decode(t, tow_encoding_ids(e), tow_encoding_count(e), options != NULL, decoded, sizeof decoded);
    tow_encoding_free(e);
}

int fuzz_target(const uint8_t *data, size_t size)
{
    tow_context *ctx = fuzz_context();
    tow_tokenizer *t = NULL;
    if (fuzz_succeeds(ctx, tow_tokenizer_parse(ctx, "input", (const char *)data, size, &t))) {
        check(ctx, t, NULL);
        check(ctx, t, &TOW_ENCODE_OPTIONS(.pair = text, .pair_length = 20));
    }
    tow_tokenizer_free(t);
    fuzz_end(ctx);
    return 0;
}

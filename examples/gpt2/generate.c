/* Generating text: the prompt at once, then token after token, with the keys and values of earlier ones in a cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tow/generate.h>

#include "run.h"

/* The tokens of the prompt; a text without tokens becomes the id 0. */
static int32_t *encode(run *r, int64_t *count)
{
    tow_encoding *encoding = NULL;
    int32_t *ids = NULL;
    if (tow_encoding_create(r->context, &encoding) == TOW_OK &&
        tow_tokenizer_encode(r->tokenizer, r->prompt, strlen(r->prompt), NULL, encoding) == TOW_OK) {
        *count = (int64_t)tow_encoding_count(encoding);
        ids = calloc((size_t)*count + 1, sizeof *ids);
        if (ids && *count > 0) memcpy(ids, tow_encoding_ids(encoding), (size_t)*count * sizeof *ids);
        if (*count == 0) *count = 1;
    }
    tow_encoding_free(encoding);
    return ids;
}

static void print_text(run *r, const int32_t *ids, int64_t count)
{
    const size_t length = tow_tokenizer_decode(r->tokenizer, ids, (size_t)count, false, NULL, 0);
    char *text = malloc(length + 1);
    if (!text) return;
    tow_tokenizer_decode(r->tokenizer, ids, (size_t)count, false, text, length + 1);
    printf("%s%.*s\n", r->prompt, (int)length, text);
    free(text);
}

static bool go_on(void *user, int64_t index, const int32_t *tokens)
{
    (void)user, (void)index, (void)tokens;
    return !interrupted();
}

/* The first token needs the whole prompt; the others one position each. */
static int print_tokens(run *r, tow_generator *generator, const int32_t *prompt, int64_t n, int64_t limit,
                        int32_t *tokens)
{
    int64_t count = 0, more = 0;
    double begin = seconds_now();
    if (tow_generate(generator, n, prompt, 1, tokens, &count) != TOW_OK) return complain(r);
    const double first = seconds_now() - begin;
    begin = seconds_now();
    if (limit > 1 && tow_generate(generator, 1, tokens, limit - 1, tokens + 1, &more) != TOW_OK) return complain(r);
    const double rest = seconds_now() - begin;
    print_text(r, tokens, count + more);
    printf("prompt: %lld tokens in %.1f ms", (long long)n, 1e3 * first);
    if (more > 0) printf("; then %.0f tokens/s", (double)more / rest);
    printf("\n");
    return SUCCESS;
}

int generate(run *r)
{
    int64_t n = 0;
    int32_t *prompt = encode(r, &n);
    if (!prompt) return complain(r);
    int64_t limit = r->tokens;
    if (n + limit > r->config.positions) limit = r->config.positions - n;
    int32_t *tokens = calloc((size_t)(limit > 0 ? limit : 1), sizeof *tokens);
    const tow_generator_options options = {
        .sampling = {.temperature = r->greedy ? 0 : r->temperature, .top_k = r->top_k},
        .seed = r->options.seed,
        .on_token = go_on};
    tow_generator *generator = NULL;
    int status = FAILURE;
    if (limit <= 0)
        fprintf(stderr, "gpt2: the prompt has %lld tokens, and the model %lld positions\n", (long long)n,
                (long long)r->config.positions);
    else if (!tokens ||
             tow_generator_create(r->context, TOW_MODULE(&r->decoder), r->params, &options, &generator) != TOW_OK)
        status = complain(r);
    else
        status = print_tokens(r, generator, prompt, n, limit, tokens);
    tow_generator_free(generator);
    free(tokens);
    free(prompt);
    return status;
}

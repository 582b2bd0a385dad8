/* Generating text: the prompt at once, then token after token, with the keys and values of earlier ones in a cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tow/generate.h>

#include "run.h"

/* The tokens of the prompt; a text without tokens becomes the id 0. */
static int32_t *encode(gpt2_run *r, int64_t *count)
{
    tow_encoding *encoding = NULL;
    int32_t *ids = NULL;
    if (tow_encoding_create(r->base.context, &encoding) == TOW_OK &&
        tow_tokenizer_encode(r->tokenizer, r->prompt, strlen(r->prompt), NULL, encoding) == TOW_OK) {
        *count = (int64_t)tow_encoding_count(encoding);
        ids = calloc((size_t)*count + 1, sizeof *ids);
        if (ids && *count > 0) memcpy(ids, tow_encoding_ids(encoding), (size_t)*count * sizeof *ids);
        if (*count == 0) *count = 1;
    }
    tow_encoding_free(encoding);
    return ids;
}

static void print_text(gpt2_run *r, const int32_t *ids, int64_t count)
{
    const size_t length = tow_tokenizer_decode(r->tokenizer, ids, (size_t)count, false, NULL, 0);
    char *text = malloc(length + 1);
    if (!text) return;
    tow_tokenizer_decode(r->tokenizer, ids, (size_t)count, false, text, length + 1);
    printf("%s%.*s\n", r->prompt, (int)length, text);
    free(text);
}

/* The generated text, as the callback sees it. */
typedef struct progress_of_text {
    gpt2_run *r;
    const int32_t *tokens; /* so far; of beams, which change their minds, the end alone counts */
    char *text;            /* [size] */
    size_t size;
    double begin, first, last; /* seconds: of the call, of the first token, of the last one so far */
} progress_of_text;

/* True if the text contains --until. */
static bool has_end(const progress_of_text *p, int64_t count)
{
    const gpt2_run *r = p->r;
    if (!r->until || r->beams > 1) return false;
    const size_t length = tow_tokenizer_decode(r->tokenizer, p->tokens, (size_t)count, false, p->text, p->size);
    return length < p->size && strstr(p->text, r->until);
}

static bool go_on(int64_t index, const int32_t *tokens, void *user)
{
    progress_of_text *p = user;
    (void)tokens;
    p->last = seconds_now();
    if (index == 0) p->first = p->last;
    return !interrupted() && !has_end(p, index + 1);
}

/* The first token needs the whole prompt; the others one position each. */
static int print_tokens(gpt2_run *r, tow_generator *generator, progress_of_text *p, const int32_t *prompt, int64_t n,
                        int64_t limit, int32_t *tokens)
{
    int64_t count = 0;
    p->begin = seconds_now();
    if (tow_generate(generator, n, prompt, limit, tokens, &count) != TOW_OK) return complain(&r->base);
    print_text(r, tokens, count);
    printf("prompt: %lld tokens in %.1f ms", (long long)n, 1e3 * (p->first - p->begin));
    if (count > 1) printf("; then %.0f tokens/s", (double)(count - 1) / (p->last - p->first));
    printf("\n");
    return SUCCESS;
}

static int generate_behind(gpt2_run *r, const int32_t *prompt, int64_t n, int64_t limit)
{
    int32_t *tokens = calloc((size_t)limit, sizeof *tokens);
    const size_t size = 1024 * (size_t)limit;
    progress_of_text p = {.r = r, .tokens = tokens, .text = malloc(size), .size = size};
    const bool draws = !r->greedy && r->beams == 1;
    const tow_generator_options options =
        TOW_GENERATOR_OPTIONS(.sampling = {.temperature = draws ? r->temperature : 0,
                                           .top_k = r->top_k,
                                           .top_p = r->top_p < 1 ? r->top_p : 0},
                              .seed = r->base.options.seed, .repetition_penalty = r->repetition_penalty,
                              .beams = r->beams, .on_token = go_on, .user = &p);
    tow_generator *generator = NULL;
    int status = FAILURE;
    if (!tokens || !p.text ||
        tow_generator_create(r->base.context, TOW_MODULE(&r->decoder), r->params, &options, &generator) != TOW_OK)
        status = complain(&r->base);
    else
        status = print_tokens(r, generator, &p, prompt, n, limit, tokens);
    tow_generator_free(generator);
    free(p.text);
    free(tokens);
    return status;
}

int generate(gpt2_run *r)
{
    int64_t n = 0, limit = r->tokens;
    int32_t *prompt = encode(r, &n);
    int status = FAILURE;
    if (!prompt) return complain(&r->base);
    if (n + limit > r->config.positions) limit = r->config.positions - n;
    if (limit <= 0)
        fprintf(stderr, "gpt2: the prompt has %lld tokens, and the model %lld positions\n", (long long)n,
                (long long)r->config.positions);
    else
        status = generate_behind(r, prompt, n, limit);
    free(prompt);
    return status;
}

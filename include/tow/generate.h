/* Generating text, or any tokens, with a model that decodes: choosing a token from logits, and a generator that holds the cache
 * and the programs. docs/attention.md shows a whole program. */
#ifndef TOW_GENERATE_H
#define TOW_GENERATE_H

#include "tow/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a token is chosen; zero: the likeliest. Cuts are made one after the other, as Hugging Face's generate makes them. */
typedef struct tow_sampling {
    /* Logits are divided by it; 0: the likeliest token, without a draw. However small it is, the likeliest token is drawn in the
     * limit, and of equal ones each with the same probability. */
    double temperature;
    int64_t top_k; /* only the k largest logits, and those equal to the last of them; 0: all */
    /* Only the likeliest tokens, as few as have this probability together, at least one (Holtzman et al., 2020); of equal ones
     * those of least index. 0: all */
    double top_p;
} tow_sampling;
/* logits [..., V] of a float type, key u32[2] -> i32 [...]: argmax, or jax.random.categorical of the cut logits, those of 16 bits in
 * f32. The first of equal ones counts. key may be the null value if the temperature is 0; sampling may be NULL. Where logits are NaN, or
 * all are -infinity, the token means nothing; the generator says so. Error: TOW_INVALID_ARGUMENT for options out of range: top_p is in
 * [0, 1]. */
TOW_API tow_value tow_sample_logits(tow_value logits, tow_value key, const tow_sampling *sampling);

/* A model with its cache: tokens go in, the next token comes out. Programs for calls of one position and of several are
 * compiled when they are first needed; they share the parameters and the cache, which stays in place. */
typedef struct tow_generator tow_generator;

typedef struct tow_generator_options {
    int64_t batch; /* sequences that are generated together, of one length; 0: 1 */
    tow_sampling sampling;
    uint64_t seed; /* of the draws: token i is chosen with fold_in(PRNGKey(seed), i) */
    /* Zeros of the variables, from tow_init_with_options for the same batch; NULL: the generator initialises the model. */
    const tow_params *state;
    int64_t chunk;    /* most positions in one call; longer prompts take several; 0: 512 */
    bool stop_at_end; /* a sequence ends with the token .end, which follows to the end of tow_generate's result */
    int32_t end;
    /* Called after each token with the tokens of all sequences; false: no more. NULL: nobody is told. */
    bool (*on_token)(void *user, int64_t index, const int32_t *tokens);
    void *user;
    const tow_compile_options *compile; /* of the programs; donations are the generator's. NULL: none */
} tow_generator_options;

/* model: tokens i32 [B, T] -> logits [B, T, V], or of the last position alone, [B, 1, V]; its layers have .decode. model, params
 * and what the options point to live as long as the generator. options may be NULL.
 * Errors: those of tow_forward and tow_compile; TOW_INVALID_ARGUMENT for a model without a cache and options out of range. */
TOW_API tow_status tow_generator_create(tow_context *context, const tow_module *model, const tow_params *params,
                                        const tow_generator_options *options, tow_generator **generator);
/* NULL is accepted. */
TOW_API void tow_generator_free(tow_generator *generator);
/* Forgets all tokens, and draws as at first. */
TOW_API void tow_generator_reset(tow_generator *generator);
/* n > 0 more positions, tokens [batch, n]; next, which may be NULL: [batch], the tokens that are chosen to follow. Error:
 * TOW_INVALID_ARGUMENT for more positions than are left in the cache; then nothing has happened. */
TOW_API tow_status tow_generator_feed(tow_generator *generator, int64_t n, const int32_t *tokens, int32_t *next);
/* Feeds a prompt [batch, n], n > 0, and chooses up to `limit` tokens, each of which is fed but the last: tokens [batch, limit].
 * *count, which may be NULL, is how many there are. A later prompt that goes on begins with the last token. */
TOW_API tow_status tow_generate(tow_generator *generator, int64_t n, const int32_t *prompt, int64_t limit,
                                int32_t *tokens, int64_t *count);
/* f32 [batch, V] of the last position that was fed, not retained; NULL before the first. */
TOW_API const tow_array *tow_generator_logits(const tow_generator *generator);
/* Positions that were fed, and how many the cache has. */
TOW_API int64_t tow_generator_position(const tow_generator *generator);
TOW_API int64_t tow_generator_length(const tow_generator *generator);

#ifdef __cplusplus
}
#endif
#endif

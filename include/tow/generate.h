/* Generating text, or any tokens, with a model that decodes: choosing a token from logits, and a generator that holds
 * the cache and the programs. docs/attention.md shows a whole program. */
#ifndef TOW_GENERATE_H
#define TOW_GENERATE_H

#include "tow/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Options of the choice of a token; zero: the likeliest one. Cuts are made one after the other, as Hugging Face's
 * generate does. */
typedef struct tow_sampling {
    /* Logits are divided by it; 0: the likeliest token, without a draw. However small it is, the likeliest token is
     * drawn in the limit, and of equal ones each with the same probability. */
    double temperature;
    int64_t top_k; /* only the k largest logits, and those equal to the last of them; 0: all */
    /* Only the likeliest tokens, as few as have this probability together, at least one (Holtzman et al., 2020); of
     * equal ones those of least index. 0: all */
    double top_p;
} tow_sampling;
/* logits [..., V] of a float type, key u32[2] -> i32 [...]: argmax, or jax.random.categorical of the cut logits, those
 * of 16 bits in f32. The first of equal ones counts. key may be the null value if the temperature is 0; sampling may be
 * NULL. If a logit is NaN, or all are -infinity, the token means nothing, and the generator reports it. Error:
 * TOW_INVALID_ARGUMENT for options out of range: top_p is in [0, 1]. */
TOW_API tow_value tow_sample_logits(tow_value logits, tow_value key, const tow_sampling *sampling);

/* A model with its cache: tokens go in, the next tokens come out. Programs for calls of one position and of several are
 * compiled when they are first needed; they share the parameters and the cache, which stays in place.
 * docs/generation.md shows what it can do. */
typedef struct tow_generator tow_generator;

/* Tokens that end a sequence which generates them one after the other. */
typedef struct tow_stop {
    int64_t n;
    const int32_t *tokens;
} tow_stop;

/* When beam search ends for a prompt; as early_stopping of Hugging Face's generate. Before the limit it ends when as
 * many sequences have ended as there are beams, and ... */
typedef enum tow_beam_stopping {
    TOW_STOP_LIKELY_BEST, /* False: ... the best running beam, with its length of now, is worse than all of them */
    TOW_STOP_WHEN_ENOUGH, /* True: ... at once */
    TOW_STOP_SURE_BEST    /* "never": ... the best running beam is worse whatever length up to the limit it will have */
} tow_beam_stopping;

typedef struct tow_generator_options {
    size_t size TOW__SIZE(tow_generator_options); /* set by TOW_GENERATOR_OPTIONS */
    int64_t batch;                                /* prompts that are gone on with together; 0: 1 */
    tow_sampling sampling;
    /* Of the draws: sequence r draws its token i with fold_in(PRNGKey(seed + r), i), as a generator of its own with
     * that seed. */
    uint64_t seed;
    /* Zeros of the variables, from tow_model_init_with for the same batch; NULL: the generator makes them. */
    const tow_params *state;
    int64_t chunk;    /* most positions in one call; longer prompts take several; 0: 512 */
    bool stop_at_end; /* a sequence ends with the token .end, which follows to the end of the result */
    int32_t end;
    /* Called after each token with the tokens of all sequences; false: no more. NULL: nobody is told. */
    bool (*on_token)(int64_t index, const int32_t *tokens, void *user);
    void *user;
    const tow_compile_options *compile; /* of the programs; donations are the generator's. NULL: none */

    /* ---- when a sequence ends, besides .end ---- */
    const int32_t *ends; /* [n_ends] further tokens */
    size_t n_ends;
    const tow_stop *stops; /* [n_stops]; what is in the prompt does not count */
    size_t n_stops;
    int64_t min_tokens; /* before so many, end tokens have no probability, and stop sequences do not count */

    /* ---- penalties, which change logits before they are cut and, with beams, log-probabilities ---- */
    /* Logits of tokens that are in the prompt or were generated are divided by it if they are positive, else multiplied
     * with it (Keskar et al., "CTRL", 2019). 0: 1, none */
    double repetition_penalty;
    double presence_penalty;  /* is subtracted for each token that was generated */
    double frequency_penalty; /* is subtracted as often as it was generated */

    /* ---- several sequences for each prompt ---- */
    int64_t sequences;      /* of the result, with beams the best ones, at most .beams; 0: 1 */
    int64_t beams;          /* beam search over so many sequences of each prompt, without a temperature; 0: 1, none */
    double length_penalty;  /* sequences of n tokens are compared by log-probability / n^length_penalty; 0: 1 */
    bool no_length_penalty; /* by log-probability */
    tow_beam_stopping early_stopping;

    bool log_probabilities; /* tow_generation may ask for them */

    /* ---- models with further inputs, as an encoder's source ---- */
    size_t n_inputs;             /* of the model besides the tokens; at most 8 */
    const tow_type *input_types; /* [n_inputs]; axis 0, where its size is .batch, is that of the prompts */
    /* The model for calls behind the first one of a prompt, with the same parameters and variables: its decoder has
     * .recall. NULL: the same model, which then reads its inputs in every call. */
    const tow_module *further;
} tow_generator_options;
#define TOW_GENERATOR_OPTIONS(...) TOW__OPTIONS(tow_generator_options, __VA_ARGS__)

/* model: tokens i32 [B, T], inputs... -> logits [B, T, V], or of the last position alone, [B, 1, V]; its layers have
 * .decode. model, params and what the options point to live as long as the generator. options may be NULL. Errors:
 * those of tow_model_forward_graph and tow_compile; TOW_INVALID_ARGUMENT for a model without a cache and options out of
 * range; TOW_UNSUPPORTED for several sequences of a model with variables in "cache" other than those of
 * MultiHeadAttention and positions. */
TOW_API tow_status tow_generator_create(tow_context *context, const tow_module *model, const tow_params *params,
                                        const tow_generator_options *options, tow_generator **generator);
/* NULL is accepted. */
TOW_API void tow_generator_free(tow_generator *generator);
/* Compiles now what a prompt of n > 0 tokens and the tokens behind it need, and what there is already not again, so
 * that the call with the prompt computes alone. Errors: TOW_INVALID_ARGUMENT for n out of range; those of
 * tow_compile. */
TOW_API tow_status tow_generator_prepare(tow_generator *generator, int64_t n);
/* Forgets all tokens, and draws as at first. */
TOW_API void tow_generator_reset(tow_generator *generator);
/* n > 0 more positions, tokens [batch, n]; next, which may be NULL: [batch], the tokens that are chosen to follow.
 * Errors: TOW_INVALID_ARGUMENT for more positions than are left in the cache, and for a generator with inputs or
 * several sequences for a prompt; then nothing has happened. TOW_CHECK_FAILED if a token is asked for and logits are
 * NaN, infinite or all -infinity, with sequence and position; the tokens have been fed then. */
TOW_API tow_status tow_generator_feed(tow_generator *generator, int64_t n, const int32_t *tokens, int32_t *next);
/* Feeds a prompt [batch, n], n > 0, and chooses up to `limit` tokens, each of which is fed but the last: tokens [batch
 * * sequences, limit]. *count, which may be NULL, is how many there are. A later prompt that goes on begins with the
 * last token. Errors: those of tow_generate_with. */
TOW_API tow_status tow_generate(tow_generator *generator, int64_t n, const int32_t *prompt, int64_t limit,
                                int32_t *tokens, int64_t *count);

/* Why a sequence ended. */
typedef enum tow_ending {
    TOW_NOT_ENDED, /* by the limit, or the callback */
    TOW_END_TOKEN,
    TOW_STOP_SEQUENCE
} tow_ending;

/* The prompts and the places for results, of which all but `tokens` may be NULL. R = batch * sequences; the
 * sequences of a prompt stand one after the other, with beams the best one first. */
typedef struct tow_generation {
    size_t size TOW__SIZE(tow_generation); /* set by TOW_GENERATION */
    int64_t n;
    const int32_t *prompts;   /* [batch, n] */
    const int64_t *lengths;   /* [batch]: so many tokens of each row are its prompt, the others padding; NULL: all n */
    bool left_padded;         /* padding is in front of the prompts; else behind */
    tow_array *const *inputs; /* [n_inputs] of the model; needed by the first call after the beginning */
    int64_t limit;            /* most tokens of a sequence */
    int32_t *tokens;          /* [R, limit]; the token .end of the options fills what is behind the sequences */
    int64_t *counts;          /* [R]: tokens of each sequence, with those that ended it; right in each on_token */
    tow_ending *endings;      /* [R] */
    float *
        log_probabilities; /* [R, limit]: of each token by the model's logits, before penalties, temperature and cuts */
    float *scores;         /* [R], with beams: what they are compared by */
} tow_generation;
#define TOW_GENERATION(...) TOW__OPTIONS(tow_generation, __VA_ARGS__)
/* Feeds the prompts and goes on with each of them. Prompts of different lengths stand in the cache as they would alone:
 * each has its own positions (RoPE, learned, sinusoidal) from 0 on, padding is never seen, and in a context with
 * portable bits each sequence has the bits that it has alone. Without .beams and with one sequence for each prompt a
 * later call goes on behind what each sequence has been fed, that is all but its last token, with which the next prompt
 * begins; otherwise every call begins anew. After the first token there are no allocations. With beams on_token gets
 * the tokens that the running beams end with, [batch * beams]. Ties go to the least index. Errors: TOW_INVALID_ARGUMENT
 * for lengths and limits that the cache does not have; then nothing has happened. TOW_CHECK_FAILED if logits of a
 * sequence that has not ended are NaN, infinite or all -infinity, with sequence and position. TOW_UNSUPPORTED for rows
 * at different positions of a model with variables in "cache" other than those of MultiHeadAttention and positions. */
TOW_API tow_status tow_generate_with(tow_generator *generator, const tow_generation *generation);
/* f32 [batch, V] of the last position that was fed, or of all sequences once there are several, not retained; NULL
 * before the first. */
TOW_API const tow_array *tow_generator_logits(const tow_generator *generator);
/* Positions that were fed, of the longest sequence, and how many the cache has. */
TOW_API int64_t tow_generator_position(const tow_generator *generator);
TOW_API int64_t tow_generator_length(const tow_generator *generator);

/* ---- requests that join and leave a running batch ---------------------------------------------------------------- */

/* Continuous batching (Yu et al., "Orca", 2022): prompts of many requests through one model, .batch of them at a time.
 * A sequence that ends leaves its row of the cache to the next request that waits, while the others go on; nobody waits
 * for the longest one. A request is answered with the tokens that a generator with its seed gives its prompt alone: in
 * a context with portable bits always, otherwise as far as rounding does not decide between two tokens.
 *
 *     options = TOW_GENERATOR_OPTIONS(.batch = 8, .ends = &end, .n_ends = 1);
 *     tow_batcher_create(context, TOW_MODULE(&model), params, &options, &batcher);
 *     tow_batcher_add(batcher, &TOW_BATCH_REQUEST(.prompt = tokens, .n = n, .limit = 100, .on_token = tell), &id);
 *     for (int64_t left = 1; left > 0 && status == TOW_OK;) status = tow_batcher_step(batcher, &left);
 *
 * Prompts are read alone, one after the other; what is generated is fed in one program for all rows. A batcher belongs
 * to one thread at a time. */
typedef struct tow_batcher tow_batcher;

typedef struct tow_batch_request {
    size_t size TOW__SIZE(tow_batch_request); /* set by TOW_BATCH_REQUEST */
    int64_t n;
    const int32_t *prompt; /* [n], n > 0; copied */
    int64_t limit;         /* most tokens */
    uint64_t seed;         /* of the draws */
    /* Called with each token; false: the request ends. NULL: nobody is told. */
    bool (*on_token)(int64_t id, int32_t token, void *user);
    /* Called once, when the request has ended: TOW_OK, with the reason and the number of tokens; TOW_CANCELLED by
     * on_token or tow_batcher_cancel; TOW_CHECK_FAILED for logits that are NaN or infinite, of which others take no
     * notice. It may add requests. NULL: nobody is told. */
    void (*on_end)(int64_t id, tow_status status, tow_ending ending, int64_t count, void *user);
    void *user;
} tow_batch_request;
#define TOW_BATCH_REQUEST(...) TOW__OPTIONS(tow_batch_request, __VA_ARGS__)

/* options: .batch is how many sequences run at a time, .seed is not read; .state, .on_token, .min_tokens, .n_inputs,
 * .sequences and .beams are refused (TOW_INVALID_ARGUMENT). Errors: those of tow_generator_create; TOW_UNSUPPORTED for
 * a model with variables in "cache" other than those of MultiHeadAttention and positions. */
TOW_API tow_status tow_batcher_create(tow_context *context, const tow_module *model, const tow_params *params,
                                      const tow_generator_options *options, tow_batcher **batcher);
/* Requests that have not ended are told nothing. NULL is accepted. */
TOW_API void tow_batcher_free(tow_batcher *batcher);
/* Puts a request behind those that wait. *id, which may be NULL: its number, from 0 on. Errors: TOW_INVALID_ARGUMENT
 * for a prompt and a limit for which the cache has no room; TOW_OUT_OF_MEMORY. */
TOW_API tow_status tow_batcher_add(tow_batcher *batcher, const tow_batch_request *request, int64_t *id);
/* Ends a request that runs or waits; what has ended already, or never was, is left alone. It may be called in
 * on_token. */
TOW_API void tow_batcher_cancel(tow_batcher *batcher, int64_t id);
/* Lets requests that wait into free rows, each with its first token, and chooses one more token of all others. *left,
 * which may be NULL: how many run or wait now. Errors: those of programs, TOW_CANCELLED among them; then nothing has
 * happened to requests of which no token was told, and the next step goes on with them. */
TOW_API tow_status tow_batcher_step(tow_batcher *batcher, int64_t *left);

#ifdef __cplusplus
}
#endif
#endif

/* Shared by the files of the generator: a model with a cache for so many rows (decoder.c), the choice of tokens behind
 * it (choice.c), and the generator over both (generate.c, generate_sequences.c, beams.c). */
#ifndef TOW_SRC_MODEL_DECODER_H
#define TOW_SRC_MODEL_DECODER_H

#include "src/scope/layer.h"
#include "tow/generate.h"

/* ---- choice.c ---------------------------------------------------------------------------------------------------- */

/* The part of a program behind the model: which inputs a choice has depends on the options alone.
 *
 *   keys u32 [R, 2]      of the draws, one for each sequence        temperature above 0
 *   history i32 [R, V]   2 * (how often a token was generated) + (it stood in a prompt)      penalties
 *   early bool []        no sequence may end yet                    least number of new tokens
 *   scores f32 [R]       log-probability of each beam so far        beams
 *
 * R = rows * repeats sequences; of a program over prompts each row of logits is that of `repeats` sequences. */
typedef struct tow__token_choice {
    const tow_generator_options *options;
    int64_t rows, repeats;
    size_t n_inputs; /* of the model, behind the tokens */
} tow__token_choice;

enum {
    TOW__CHOICE_OUTPUTS = 4, /* in front of the variables: tokens or beams, beams' scores, logits, statistics */
    TOW__CHOICE_INPUTS = 4   /* at most */
};

/* The inputs' types for V tokens; how many. V is not read where no input has it. */
size_t tow__choice_inputs(const tow__token_choice *c, int64_t V, tow_type *types);
bool tow__has_history(const tow_generator_options *o);
bool tow__has_early(const tow_generator_options *o);
/* The number of candidates that a step of beam search looks at, at most, for each prompt. */
int64_t tow__candidates(const tow_generator_options *o, int64_t V);
/* Tokens that end a sequence: .ends and .end. */
size_t tow__n_ends(const tow_generator_options *o);
int32_t tow__end(const tow_generator_options *o, size_t i);

/* A module around `inner`: (tokens, inputs..., choice inputs...) -> the choice's outputs
 *   chosen i32 [R], or with beams [prompts, candidates] of beam * V + token
 *   totals f32 [prompts, candidates]: log-probabilities, or [0] without beams
 *   logits f32 [rows, V]
 *   statistics f32 [rows, 2]: the largest logit m, and log(sum(exp(logits - m))) if it is wanted */
typedef struct tow__chooser {
    tow_module module;
    const tow_module *inner;
    const tow__token_choice *choice;
} tow__chooser;
extern const tow_module_class tow__chooser_class;

/* ---- decoder.c --------------------------------------------------------------------------------------------------- */

enum {
    TOW__CALL_SIZES = 24 /* powers of two that calls may have */
};

/* A model for so many rows, its cache, and a program for each number of positions in a call. */
typedef struct tow__decoder {
    tow_context *ctx;
    const tow_module *model, *further; /* further: of calls behind the first; may be the same */
    const tow_params *params;
    const tow_generator_options *options;
    tow__token_choice choice;
    int64_t classes;    /* tokens, where penalties need to know */
    tow_params *state;  /* its own: the arrays are the cache */
    int64_t length;     /* positions of the shortest cache */
    bool own_positions; /* each row counts its own: variables "cache_index" are i32 [rows] */
    tow_array **in;     /* params, variables, tokens, inputs, choice inputs; the last two are the generator's */
    tow_array **out;    /* the choice's outputs; new variables are in place */
    tow_program *programs[2][TOW__CALL_SIZES]; /* for 2^i positions, of `further` and of the model */
    tow_array *tokens[TOW__CALL_SIZES];        /* i32 [rows, 2^i] */
} tow__decoder;

enum {
    TOW__MODEL_INPUTS = 8 /* at most, besides the tokens */
};

/* state: of the model for these rows; it becomes the decoder's, also in case of an error. */
tow_status tow__decoder_open(tow__decoder *d, tow_context *ctx, const tow_module *model, const tow_params *params,
                             const tow_generator_options *options, int64_t rows, int64_t repeats, tow_params *state);
/* A struct of zeros is accepted. */
void tow__decoder_close(tow__decoder *d);
/* The place of the tokens in `in`; inputs and choice inputs stand behind them. */
static inline tow_array **tow__decoder_tokens(const tow__decoder *d)
{
    return d->in + tow_params_count(d->params) + tow_params_count(d->state);
}
/* Makes the program for 2^size positions, if there is none. The first one also makes the outputs. */
tow_status tow__decoder_prepare(tow__decoder *d, bool first, int size);
/* The largest call of at most so many positions. */
int tow__call_size(const tow__decoder *d, int64_t most);
/* From here on each row counts its own positions. */
tow_status tow__decoder_part_rows(tow__decoder *d);
/* Runs 2^size positions on tokens[size]. positions[rows]: of the first token of each row, which may be negative, and
 * are all equal where rows have no positions of their own. */
tow_status tow__decoder_run(tow__decoder *d, bool first, int size, const int64_t *positions);
/* Zeros in the cache. */
void tow__decoder_reset(tow__decoder *d);
/* Zeros like the variables of `from`, for `repeats` times as many rows. Error: TOW_UNSUPPORTED for variables whose rows
 * are not known. */
tow_status tow__repeat_state(tow_context *ctx, const tow_params *from, int64_t rows, int64_t repeats,
                             tow_params **state);
/* Row i of the cache becomes row from[i] of that of `source`, of which the first `positions` positions count. source
 * may be the decoder itself: then rows are moved as if at once, by way of `scratch`, which has tow__row_bytes. work: [6
 * rows]. */
void tow__decoder_copy_rows(tow__decoder *d, const tow__decoder *source, const int64_t *from, int64_t positions,
                            int64_t *work, char *scratch);
/* Row `row` of the cache becomes the first row of that of `source`, of which the first `positions` positions count. */
void tow__decoder_copy_row(tow__decoder *d, int64_t row, const tow__decoder *source, int64_t positions);
size_t tow__row_bytes(const tow__decoder *d);

#endif

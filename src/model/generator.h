/* The generator: what its files share. Prompts go through `prompts`; if one prompt has several sequences, their cache
 * is copied to `sequences`, which takes the tokens that follow. Else both are one. */
#ifndef TOW_SRC_MODEL_GENERATOR_H
#define TOW_SRC_MODEL_GENERATOR_H

#include "src/model/decoder.h"

struct tow_generator {
    tow_context *ctx;
    tow_generator_options options;  /* .compile points to compile */
    tow_compile_options compile;    /* of all programs, */
    tow_shared_arena *shared_arena; /* which compute in this arena, unless the caller has given another */
    tow_params *params;             /* a list of its own over the arrays of the caller's */
    tow__decoder prompts, several;
    tow__decoder *sequences;      /* &several, or &prompts if each prompt has one sequence */
    const tow__decoder *last;     /* which of them ran last: its outputs are those of the last choice */
    int64_t batch, repeats, rows; /* prompts, sequences that are kept for each, and of all */
    int64_t length;
    bool fresh; /* nothing was fed since the beginning: the model reads its inputs */
    int64_t *
        positions; /* [rows], of which a generator with several sequences for a prompt has those of the prompts first */
    int32_t *fed;  /* [batch, length]: the tokens at these positions */
    int64_t *starts;                            /* [rows] of a call */
    int64_t *work;                              /* [7 rows] of moves */
    uint32_t (*roots)[2], *draws;               /* [rows]: keys of the draws, and how many there were */
    tow_array *keys, *history, *early, *scores; /* inputs of the choice; NULL: there is none */
    tow_array *inputs[TOW__MODEL_INPUTS], *repeated[TOW__MODEL_INPUTS]; /* of the model, for `prompts` and `several` */
};

/* Prompts [batch, n]; lengths NULL: all have n. */
typedef struct tow__prompts {
    int64_t n;
    const int32_t *tokens;
    const int64_t *lengths;
    bool left_padded;
} tow__prompts;

/* Empties the cache; draws go on. */
void tow__forget(tow_generator *g);
/* Feeds the prompts and makes the first choice, which stands in g->last->out. index: of the choice among those of this
 * call. */
tow_status tow__feed_prompts(tow_generator *g, const tow__prompts *p, int64_t index);
/* Feeds one more token of each sequence and makes the next choice. */
tow_status tow__feed_tokens(tow_generator *g, const int32_t *tokens, int64_t index);
/* The row of g->last that sequence r has. */
static inline int64_t tow__row_of(const tow_generator *g, int64_t r) { return r / g->last->choice.repeats; }
/* TOW_CHECK_FAILED with sequence and position if the logits of sequence r cannot be chosen from. p: of a first choice,
 * or NULL. */
tow_status tow__check_logits(const tow_generator *g, int64_t r, const tow__prompts *p);
/* log softmax(logits of sequence r)[token], where it was asked for. */
float tow__log_probability(const tow_generator *g, int64_t r, int32_t token);
/* Counts a token for the penalties. */
void tow__note_generated(tow_generator *g, int64_t r, int32_t token);
/* True if tokens[0..n), of which the last one is new, end a sequence. */
tow_ending tow__ending_of(const tow_generator *g, const int32_t *tokens, int64_t n);
/* Feeds the prompts, and makes programs and room for what follows, so that nothing is allocated then. */
tow_status tow__begin_sequences(tow_generator *g, const tow__prompts *p);
/* True if the callback wants more. */
bool tow__tell(const tow_generator *g, int64_t index, const int32_t *tokens);
/* Beam search (beams.c). */
tow_status tow__search_beams(tow_generator *g, const tow_generation *call, const tow__prompts *p);

#endif

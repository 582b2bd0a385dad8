/* Shared by the parts of the program. */
#ifndef GPT2_RUN_H
#define GPT2_RUN_H

#include "common/golden.h"
#include "common/run.h"
#include "model.h"

typedef struct gpt2_run {
    run base;
    const char *directory, *prompt, *text, *check, *until;
    int64_t tokens, top_k, beams, batch, context_length, rank;
    double temperature, top_p, repetition_penalty;
    bool greedy, no_training, full, bf16;
    tow_tokenizer *tokenizer;
    tow_weight_mapping *mapping;
    gpt2_config config;
    gpt2 model, decoder;
    tow_params *params;
} gpt2_run;

/* generate.c: goes on with the prompt, and says how fast. */
int generate(gpt2_run *r);
/* tune.c: trains on a text, adapters that are merged then, or all parameters, and writes the model for other
 * programs. */
int tune(gpt2_run *r);

#endif

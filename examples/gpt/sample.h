/* Text drawn from a trained model. */
#ifndef GPT_SAMPLE_H
#define GPT_SAMPLE_H

#include "common/text.h"
#include "model.h"

/* Prints `count` characters, drawn one by one at a fixed temperature; the same seed gives the same text. */
tow_status sample_text(tow_context *context, const gpt *model, const tow_params *params, const text *t, int64_t window,
                       uint64_t seed, int64_t count);

#endif
